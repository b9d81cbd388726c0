"""Saved cases, run again: does each do what its status says?"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.findings import corpus
from driftnet.findings.names import located
from driftnet.findings.pipeline import reproduces
from driftnet.findings.trial import Trial, laid_out, watch
from driftnet.model.verdict import Kind, Word
from driftnet.run.runner import Runner
from driftnet.run.share import SAVED_SECONDS
from driftnet.targets import recipe
from driftnet.targets.environments import is_installed, resolve, where_seen
from driftnet.util.errors import UserError
from driftnet.util.machine import cpu_features
from driftnet.util.options import listed

QUIET = (Word.AGREES, Word.ABSTAINS, Word.REJECTS)
"""What is no failure; "abstains" and "rejects" are told apart from "agrees" everywhere."""

HANGING_SECONDS = 2.0  # a saved case has a node or two: if it hung, and still runs after this time, it still hangs


def replay(
    paths: Path | str | Sequence[Path | str] = ("corpus",),
    *,
    target: str | Sequence[str] = "",
    runs: int = 5,
    python: str | None = None,
    timeout: float = SAVED_SECONDS,
    budget: float = math.inf,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run every saved case at or below `paths`, `runs` times in fresh workers: does it behave as its status says?

    target  examine this release, or each of these; only the cases of its target are run
    python  the interpreter that holds the targets; None: this one, or one made for the release
    budget  seconds after which no other case is begun
    tell    hears what is being done, for people

    Interrupted, it tells of the cases that it has come to by then. What is of targets that are not installed here is
    left out, and counted in "absent", where there is anything else; alone it is run on the newest release that did what
    its status says, in an environment made for that. Raises UserError, before anything is run, for a
    case that is not whole, for a recipe or a target that there is not, and where no case is of `target`.
    """
    paths = listed(paths)
    folders = corpus.folders([located(Path(path)) for path in paths])
    if not folders:
        raise UserError(
            f"no saved case below {', '.join(map(str, paths))}", hint="driftnet fuzz finds some", kind="case"
        )
    loaded = [corpus.load(folder) for folder in folders]
    absent: dict[str, int] = {}
    if words := [target] if isinstance(target, str) and target else list(dict.fromkeys(target)):
        pairs: list[tuple[corpus.SavedCase, str]] = []
        for word in words:
            name = resolve(word, python=python).target.name
            own = [(saved, word) for saved in loaded if saved.target == name]
            if not own:
                there = ", ".join(sorted({saved.target for saved in loaded}))
                raise UserError(f"no saved case is for target {name}", hint=f"they are for {there}", kind="case")
            pairs += own
    else:
        counts = Counter(saved.target for saved in loaded)
        absent = {name: counts[name] for name in sorted(counts) if not (python or is_installed(name))}
        some = len(absent) < len(counts)
        here = [saved for saved in loaded if not (some and saved.target in absent)]
        pairs = [(saved, saved.target if python else where_seen(saved.target, telling(saved))) for saved in here]
    for saved, word in pairs:
        recipe.validated(resolve(word, python=python).target, saved.recipe)
    finish, interrupted = time.monotonic() + budget, False
    cases: list[dict[str, Any]] = []
    with Runner(timeout=timeout) as runner:
        for saved, word in pairs:
            if cases and time.monotonic() > finish:
                break
            tell(f"{len(cases)} of {len(pairs)} cases; {saved.id}")
            try:
                cases.append(replay_one(saved, word, runs, runner, python=python))
            except KeyboardInterrupt:
                if not cases:
                    raise
                interrupted = True
                break
        return {
            "cases": cases,
            "interrupted": interrupted,
            "left": len(pairs) - len(cases),
            "absent": absent,
            "network_isolated": runner.network_isolated,
        }


def replay_status(result: Mapping[str, Any]) -> int:
    """The exit status of `replay`: 2 when it was interrupted, 1 when a case does not behave as its status says, 3 when
    an open one reproduced."""
    if result["interrupted"]:
        return 2
    if not all(case["as_expected"] for case in result["cases"]):
        return 1
    return 3 if any(c["status"] == "open" and c["outcome"] == "reproduces" for c in result["cases"]) else 0


def telling(saved: corpus.SavedCase) -> Sequence[str]:
    """The releases in which a case does what its status says, as far as is known."""
    return saved.not_seen if saved.status == "fixed" else saved.seen


def behaves(saved: corpus.SavedCase, outcome: str, *, elsewhere: bool = False) -> bool:
    """Whether `outcome` is what the status of `saved` promises.

    elsewhere  what an open case was measured to depend on is not what is here (`is_elsewhere`). Only then it may, as
        flaky and expected ones always, do anything but be invalid; every other one must reproduce wherever it runs.
    """
    if saved.status == "fixed":
        return outcome in QUIET
    if saved.status in ("flaky", "expected") or elsewhere:
        return outcome != "error"
    return outcome == "reproduces"


def is_elsewhere(saved: corpus.SavedCase, answers: Collection[str]) -> bool:
    """Whether what `saved` was measured to depend on is another here than when it was saved: the CPU features, or what
    lies on the heap, which shows in what the target answers. Never for a case that depends on neither: if such a one
    does not reproduce, the target was mended, or driftnet has gone blind."""
    match saved.depends:
        case "cpu":
            return saved.machine.get("cpu_features") != list(cpu_features())
        case "heap":
            return saved.answer not in answers
    return False


def replay_one(
    saved: corpus.SavedCase, target: str, runs: int, runner: Runner, *, python: str | None = None
) -> dict[str, Any]:
    """Run one saved case `runs` times in fresh workers; `target` and `python` as in `replay`."""
    installed = resolve(target or saved.target, python=python)
    patience = HANGING_SECONDS if saved.kind == Kind.HANG else math.inf
    trial = Trial(saved.case, installed, saved.recipe, runner, patience)
    watched = [watch(one, fresh=True) for one in laid_out(trial, runs)]
    verdicts = [verdict for verdict, _ in watched]
    answers = {observation.digest for _, observation in watched if observation}
    same = [v for v in verdicts if reproduces(saved, v)]
    worst = next((v for v in verdicts if v.failed), verdicts[0])
    if same:
        outcome = "reproduces"
    elif worst.failed:
        outcome = "differs"
    else:
        outcome = str(worst.word) if worst.word in QUIET else "error"
    elsewhere = is_elsewhere(saved, answers)
    return {
        "id": saved.id,
        "target": installed.target.name,
        "release": installed.release,
        "status": saved.status,
        "outcome": outcome,
        "runs": runs,
        "reproduced": len(same),
        "shows": [saved.reproduced, saved.runs],
        "depends": saved.depends,
        "elsewhere": elsewhere,
        "as_expected": behaves(saved, outcome, elsewhere=elsewhere),
        "message": worst.message,
    }
