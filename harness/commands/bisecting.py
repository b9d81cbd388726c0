"""Bisection: which release of a target broke a case, and which mended it."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from driftnet.causes import record
from driftnet.causes.impact import ranked
from driftnet.causes.record import CauseRecord
from driftnet.causes.releases import BAD, DIFFERS, GOOD, UNTESTABLE, History
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.names import DEFAULT_ROOTS, located, located_case
from driftnet.findings.pipeline import reproduces
from driftnet.findings.trial import Trial, look
from driftnet.model.inspect import Case
from driftnet.model.signature import coarse
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.run.runner import Runner
from driftnet.targets import environments
from driftnet.targets.environments import Installed, declared, numbers, resolve
from driftnet.util.errors import UserError, in_a_line
from driftnet.util.options import listed
from onnx import helper

FEW = 8
"""Releases that are all asked; of more, five are asked first, and then those between two that did not do the same."""
RUNS = 3
"""In fresh workers, that have to agree for a release to be good; the first that fails tells that it is not."""
MISSED = 0.05
"""How likely a flaky case may be taken for good where it is bad."""
MOST_RUNS = 30
MOST_TEMPLATES = 24
"""Interpreters that stay ready between cases: each is a process of some 100 MiB."""
HANGING_SECONDS = 2.0
STAGE_SECONDS = 10.0
ENOUGH = 150
"""Characters of why a release could not be asked."""

Tell = Callable[[str, str, str], None]
"""Called with each case, release and state."""


def bisect(
    path: Path | str | None = None,
    *,
    target: str = "",
    releases: str | Sequence[str] = (),
    every: bool = False,
    budget: float = math.inf,
    root: Path | str = Path("corpus"),
    tell: Tell = lambda case, release, state: None,
) -> dict[str, Any]:
    """Run a case on releases of its target: on which does it show, which was the first bad, which the last good?

    path      a case, or its name, which is looked for below `root` first; of a cause its smallest variant stands for it
    target    with `every`: causes of this target only; else it has to be the case's own
    releases  which; () are all that the package index offers, see `driftnet.targets.environments.releases`
    every     instead of one, the causes below `root` that have no history on these releases, those of most impact first
    budget    seconds of wall time, after which no other cause is begun

    The states are written into the cause (`releases`, `seen`, `not_seen`), or into a case that has none. Raises
    UserError for a case or a release that there is not, and where the index offers nothing.
    """
    if every == (path is not None):
        raise UserError("name one cause or case, or --all", hint="driftnet bisect --help")
    name = declared(target).name if target else ""
    work: list[SavedCase] = []
    if path is not None:
        work = [corpus.load(located_case(Path(path), (Path(root), *DEFAULT_ROOTS)))]
        if name and work[0].target != name:
            what = f"{work[0].id} is a case of {work[0].target}, not of {name}"
            raise UserError(what, hint=f"driftnet bisect {path} --target {work[0].target}", kind="target")
    else:
        work = [saved for saved in _causes(located(Path(root))) if not name or saved.target == name]
    offered = {}
    for name in {saved.target for saved in work}:
        offered[name] = _demanded(listed(releases), name) or environments.releases(declared(name).distribution)
    if every:  # the newest release shows that a cause has no history, or one of another time
        work = [saved for saved in work if not saved.cause or offered[saved.target][-1] not in saved.cause.releases]
    end, done = time.monotonic() + budget, list[dict[str, Any]]()
    with Asking(tell) as asking:
        for saved in work:
            if time.monotonic() > end:
                break
            if len(offered[saved.target]) <= FEW:
                asking.ready(saved.target, offered[saved.target])
            states = walk(offered[saved.target], partial(asking.state, saved), known={*saved.seen, *saved.not_seen})
            done.append(_told(saved, states, len(offered[saved.target])))
            _keep(saved, states)
    return {"bisected": done, "left": len(work) - len(done)} if every else done[0]


def _demanded(releases: Sequence[str], target: str) -> list[str]:
    """`releases` in order. Raises UserError (kind "target") for one that the index does not have: nothing is kept of
    it. Of a pre-release, which it does not list, and of all where it says nothing, an environment will tell."""
    distribution = declared(target).distribution
    there = list[str]()
    if releases:
        with contextlib.suppress(UserError):
            there = environments.releases(distribution)
    for one in releases:
        pre = re.fullmatch(r"\d+(\.\d+)*\.?(a|b|rc|dev|post)\d*", one)
        if not re.match(r"\d", one) or (there and one not in there and not pre):
            hint = f"the newest are {', '.join(there[-FEW:])}" if there else "give a release, as in 3.4.1"
            raise UserError(f"there is no release {one!r:.80} of {distribution}", hint=hint, kind="target")
    return sorted(releases, key=numbers)


def walk(releases: Sequence[str], ask: Callable[[str], str], *, known: Collection[str] = ()) -> dict[str, str]:
    """{release: state}, in order: of all where they are few; of many, the ends, the quarters and those `known` to have
    shown something first, and between two asked that differ the middle, until they are neighbours. So another state
    that lasts for less than a quarter of them, and ends as it began, is not seen."""
    last = len(releases) - 1
    found: dict[int, str] = {}
    ends = {round(last * part / 4) for part in range(5)} | {i for i, name in enumerate(releases) if name in known}
    start = range(last + 1) if len(releases) <= FEW else sorted(ends)
    for i in reversed(start):  # the newest are made quickest
        found[i] = ask(releases[i])
    while True:
        asked = sorted(found)
        gaps = [(a, b) for a, b in itertools.pairwise(asked) if b - a > 1 and found[a] != found[b]]
        # Where nothing can be tried, why that is so does not matter.
        gaps = [(a, b) for a, b in gaps if not all(found[i].startswith(UNTESTABLE) for i in (a, b))]
        if not gaps:
            return {releases[i]: found[i] for i in asked}
        for a, b in gaps:
            found[(a + b) // 2] = ask(releases[(a + b) // 2])


class Asking:
    """Runs cases on releases, whose interpreters stay ready. Close it, or use it in a `with`."""

    def __init__(self, tell: Tell = lambda case, release, state: None) -> None:
        self._tell = tell
        self._runner = Runner(timeout=STAGE_SECONDS)
        self._ready: set[str] = set()
        self._resolved: dict[str, Installed | UserError] = {}

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    def ready(self, target: str, releases: Sequence[str]) -> None:
        """Begin the interpreters of all of these at once: each imports for half a second."""
        found = [self._of(f"{target}=={release}") for release in releases]
        installed = [one for one in found if isinstance(one, Installed)]
        if len(self._ready | {one.python for one in installed}) <= MOST_TEMPLATES:
            self._ready |= {one.python for one in installed}
            self._runner.ready(installed)

    def state(self, saved: SavedCase, release: str) -> str:
        """What `release` does with the case, see `driftnet.causes.releases`."""
        installed = self._of(f"{saved.target}=={release}")
        try:
            if isinstance(installed, UserError):
                raise installed
            state, _ = self.on(saved, installed)
        except UserError as e:
            of_another_api = e.kind == "target" and isinstance(installed, Installed)
            if e.kind != "environment" and not of_another_api:
                raise
            said = re.sub(r"^the sandbox's interpreter \S+ ", "its interpreter ", e.message)
            state = _because(re.sub(r"(?<=is broken: )\S+/", "", said))
        self._tell(saved.id, release, state)
        return state

    def _of(self, word: str) -> Installed | UserError:
        """The release that a target word names, or why there is none: an environment is tried to be made once."""
        if word not in self._resolved:
            try:
                self._resolved[word] = resolve(word)
            except UserError as e:
                self._resolved[word] = e
        return self._resolved[word]

    def on(self, saved: SavedCase, installed: Installed) -> tuple[str, Verdict | None]:
        """The same of what is installed, and the verdict where it fails in whatever way."""
        if len(self._ready | {installed.python}) > MOST_TEMPLATES:
            self._runner.let_go()
            self._ready.clear()
        self._ready.add(installed.python)
        patience = HANGING_SECONDS if saved.kind == Kind.HANG else math.inf
        trial = Trial(_for_old(saved.case), installed, saved.recipe, self._runner, patience)
        failed: Verdict | None = None
        for _ in range(_runs(saved)):
            verdict = look(trial, fresh=True)
            if reproduces(saved, verdict):
                return BAD, verdict
            if verdict.word in (Word.REJECTS, Word.INVALID, Word.ABSTAINS):
                return _because(verdict.message), None
            failed = verdict if verdict.failed else failed
        return (f"{DIFFERS}: {coarse(saved.target, failed).partition('/')[2]}" if failed else GOOD), failed


def _for_old(case: Case) -> Case:
    """The case in the oldest IR version that has its opsets: a release may be too old for a newer one, which says
    nothing of the failure."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    with contextlib.suppress(ValueError):  # an opset that onnx does not know
        proto.ir_version = min(proto.ir_version, helper.find_min_ir_version_for(proto.opset_import))
    return replace(case, model=proto.SerializeToString())


def _runs(saved: SavedCase) -> int:
    """How often it is run before a release is called good."""
    if saved.reproduced >= saved.runs:
        return RUNS if not saved.depends else 2 * RUNS
    rate = max(saved.reproduced, 0.5) / saved.runs
    return min(MOST_RUNS, max(RUNS, math.ceil(math.log(MISSED) / math.log(1 - rate))))


def _because(message: str) -> str:
    return f"{UNTESTABLE}: {in_a_line(message, ENOUGH)}"


def _causes(root: Path) -> Iterator[SavedCase]:
    """The smallest variant of each cause below `root`, those of most impact first."""
    for cause in ranked(record.below(root), lambda cause: cause.standing):
        if cause.path:
            yield corpus.load(located_case(cause.path))


def _told(saved: SavedCase, states: Mapping[str, str], offered: int) -> dict[str, Any]:
    history = History(states)
    return {
        "id": saved.cause.id if saved.cause else saved.id,
        "case": saved.id,
        "target": saved.target,
        "states": [
            {"release": release, "outcome": state.partition(":")[0], "what": state.partition(": ")[2]}
            for release, state in states.items()
        ],
        "appears_in": history.appears_in,
        "gone_in": history.gone_in,
        "first_bad": history.first_bad,
        "last_good": history.last_good,
        "sentence": history.sentence,
        "releases": offered,
    }


def _keep(saved: SavedCase, states: Mapping[str, str]) -> None:
    """Write what was seen into the case, and into the cause that it stands for."""

    def changes(it: SavedCase | CauseRecord) -> dict[str, Any]:
        seen = sorted({*it.seen, *History(states).bad}, key=numbers)
        not_seen = sorted({*it.not_seen, *History(states).good} - {*seen}, key=numbers)
        return {"seen": tuple(seen), "not_seen": tuple(not_seen)}

    if saved.path:  # people may have written into it meanwhile: bisecting all takes hours
        saved = corpus.load(saved.path)
    corpus.update(saved, **changes(saved))
    if saved.cause:
        known = {**saved.cause.releases, **states}
        record.update(saved.cause, releases={r: known[r] for r in sorted(known, key=numbers)}, **changes(saved.cause))
