"""Selfcheck: does the oracle bite? Bugs are put into real targets, and their verdicts counted.

For each kind of bug, generated cases are run on the clean target and on its mutant. A case is effective when an output
differs in a way that somebody could call wrong (see selfcheck.effect). It is detected when the mutant's verdict is a
failure. A failure of the clean target that the corpus explains is set aside; any other is a false alarm, until somebody
has read it and brings it into the corpus.
"""

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import util
from pathlib import Path
from typing import Any

from driftnet.findings import corpus
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import KnownIssue, issues
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial
from driftnet.generators import bulk
from driftnet.generators.building.profile import CONSTANT_OPERANDS, Profile
from driftnet.model.inspect import Case
from driftnet.model.verdict import Observation, Tier, Verdict, Word
from driftnet.on_grid.construct import construct
from driftnet.oracle.judge import judge
from driftnet.run.runner import Runner
from driftnet.selfcheck import mutated
from driftnet.selfcheck.effect import damage, is_effective
from driftnet.selfcheck.mutant import Mutant
from driftnet.targets import recipe
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import Recipe
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.apart import trusting
from driftnet.util.machine import end_pools, leave_to_parent
from driftnet.util.nearest import demand

CONSTRUCTED_SHARE = 0.5
LEAST_OF_A_KIND, LEAST_OF_ALL = 0.80, 0.97
"""Shares of the effective cases that are to be detected."""

TIMEOUT = 3.0  # seconds of one stage
TRIES = 40  # cases looked at for each that is to be effective
EFFORT = Effort(seconds=10.0, calls=45)


@dataclass(frozen=True)
class Judged:
    """A verdict on the clean target or on its mutant, and what it takes to come back to it.

    case   of an alarm, the folder that it was written to, reduced
    """

    target: str
    recipe: Recipe
    origin: Mapping[str, Any]
    constructed: bool
    verdict: Verdict
    case: str = ""

    @property
    def place(self) -> str:
        """The target and how it quantized."""
        return f"{self.target} {self.recipe.get('quantize', 'none')}"

    def as_json(self) -> dict[str, Any]:
        """All of it as a JSON value."""
        return {**vars(self), "recipe": dict(self.recipe), "verdict": self.verdict.as_json()}


@dataclass
class Count:
    """What came of one kind.

    stage, what   where the bug is, and what goes wrong
    mutants    verdicts on the mutant, one for each case in which the bug changed an output
    clean      how many verdicts on the clean target there are;   set_aside  the failures that the corpus explains
    alarms     the clean target's other failures
    ran        of the cases tried, those that the clean target runs;   failed  those that it does not
    refused    those that it documents that it does not support
    """

    stage: str = ""
    what: str = ""
    mutants: list[Judged] = field(default_factory=list)
    clean: int = 0
    set_aside: int = 0
    alarms: list[Judged] = field(default_factory=list)
    ran: int = 0
    failed: int = 0
    refused: int = 0

    @property
    def applies(self) -> bool:
        """Whether the target takes at all what the bug needs."""
        return self.ran > 0 or self.refused <= self.failed

    @property
    def effective(self) -> int:
        """In how many cases the bug changed an output."""
        return len(self.mutants)

    @property
    def detected(self) -> int:
        """In how many of these it was seen."""
        return _detection(self.mutants)["detected"]


Listener = Callable[[str, Count], None]


def nobody(kind: str, count: Count) -> None:
    """A listener to whom nothing matters."""


def trials(
    mutant: Mutant, seed: int, count: int, runner: Runner, targets: Sequence[str] = DEFAULT_TARGETS
) -> Iterator[tuple[Trial, Trial, bool]]:
    """Those of `count` cases in which the bug may come into play, on the targets it fits in turn. A seed names them.

    Each on the clean target and on the mutated one; and whether its data are on the quantizer's grid, and calibration
    does not clip them: quantizing is the identity then.
    """
    fitting = [word for word in targets if mutant.name in mutated.mutants(resolve(word).target)]
    pairs = [(resolve(word), resolve(mutated.word(mutant.name, word))) for word in fitting]
    for index in range(count):
        rng = random.Random(f"{seed}/{index}/{mutant.name}")
        clean, damaged = pairs[index % len(pairs)]
        profile = Profile(**clean.target.profile)
        if rng.random() < 0.5:
            profile = replace(profile, weights=CONSTANT_OPERANDS.weights, numbers=CONSTANT_OPERANDS.numbers)
        case = bulk.case(seed, rng.getrandbits(31), focus=mutant.focus, profile=profile)
        drawn = {**recipe.draw(clean.target, rng), **mutant.options(clean.target)}
        chosen = recipe.canonical(clean.target, drawn)
        scheme = clean.target.scheme(recipe.effective(clean.target, chosen))
        on_grid = construct(case, scheme, rng.getrandbits(32)) if scheme and rng.random() < CONSTRUCTED_SHARE else None
        if mutant.stage != "convert" or changes(mutant, on_grid or case):
            constructed = on_grid is not None and scheme is not None and not (scheme.clips or scheme.told)
            trial = Trial(on_grid or case, clean, chosen, runner)
            yield trial, replace(trial, installed=damaged), constructed


def changes(mutant: Mutant, case: Case) -> bool:
    """Whether a bug of the converter changes the model of `case` at all."""
    before, after = (
        [part.SerializeToString() for part in (*model.graph.node, *model.graph.initializer)]
        for model in (case.proto, damage(mutant, case))
    )
    return before != after


def check(
    mutant: Mutant,
    seed: int,
    wanted: int,
    runner: Runner,
    known_issues: Sequence[KnownIssue],
    targets: Sequence[str] = DEFAULT_TARGETS,
    out: Path | None = None,
) -> Count:
    """Count until `wanted` cases were effective, or TRIES times as many were tried. Alarms are written into `out`."""
    count = Count(mutant.stage, mutant.doc)
    for trial, damaged, constructed in trials(mutant, seed, TRIES * wanted, runner, targets):
        if count.effective == wanted:
            break
        clean = runner.observe(trial.case, trial.installed, trial.recipe)
        if not clean.outputs:
            refused = _verdict(trial, clean).word is Word.REJECTS
            count.refused, count.failed = count.refused + refused, count.failed + (not refused)
            continue
        count.ran += 1
        seen = runner.observe(trial.case, damaged.installed, trial.recipe)
        if not is_effective(mutant, trial, clean, seen):
            continue
        judged = partial(Judged, trial.target.name, trial.options, trial.case.origin, constructed)
        verdict = _verdict(trial, clean)
        count.clean += 1
        if not verdict.failed:
            count.mutants.append(judged(_verdict(damaged, seen)))
        elif (found := examine(trial, known_issues, effort=EFFORT)).known or not found.confirmed:
            count.set_aside += 1  # the corpus explains it, or it does not fail again
        else:
            written = str(corpus.save(found.finding.to_save(), out)) if out and found.finding else ""
            count.alarms.append(judged(verdict, written))
    return count


def _verdict(trial: Trial, seen: Observation) -> Verdict:
    """The verdict; an abstention of Tier.ERROR where the oracle itself raises: one case must not end the others."""
    try:
        reference = trial.runner.reference
        return judge(trial.case, seen, target=trial.target, options=trial.options, reference=reference)
    except Exception as e:
        return Verdict(Word.ABSTAINS, Tier.ERROR, message=f"{type(e).__name__}: {e}")


def run(
    kinds: Sequence[str],
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    cases: int,
    seed: int,
    workers: int,
    corpus_folder: Path,
    out: Path | None = None,
    listener: Listener,
) -> dict[str, Count]:
    """Check these kinds, all that fit into the targets when there are none, each in one of `workers` processes.

    The listener is told of each kind that is done, and `out` gets what clean targets are blamed for. Raises UserError
    for a kind or a target that there is not.
    """
    there = _fitting(targets)
    demand(kinds, there, "no bug is called {!r}", f"into {' and '.join(targets)} fit {', '.join(there)}")
    names = [name for name in there if name in kinds or not kinds]
    counts: dict[str, Count] = {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (corpus_folder,)) as pool:
        # `map` would cancel some: a pool of CPython 3.11 whose processes die stumbles over those that were.
        asked = {name: pool.submit(_check_kind, name, seed, cases, targets, out) for name in names}
        try:
            for name, future in asked.items():
                counts[name] = future.result()
                listener(name, counts[name])
        except BaseException:  # as Ctrl-C, after which nobody hears of what the pool would go on with
            end_pools()
            raise
    return counts


def summary(counts: Mapping[str, Count]) -> dict[str, Any]:
    """What `driftnet selfcheck --json` prints."""
    everything = [judged for count in counts.values() for judged in count.mutants]
    alarms = [{"kind": name, **judged.as_json()} for name, count in counts.items() for judged in count.alarms]
    result = {
        "kinds": {
            name: {
                "stage": count.stage,
                "what": count.what,
                "applies": count.applies,
                **_detection(count.mutants),
                "missed": [judged.as_json() for judged in count.mutants if not judged.verdict.failed],
            }
            for name, count in counts.items()
        },
        "tiers": dict(Counter(judged.verdict.tier for judged in everything if judged.verdict.failed).most_common()),
        "places": {
            place: _detection([judged for judged in everything if judged.place == place])
            for place in sorted({judged.place for judged in everything})
        },
        "constructed": _detection([judged for judged in everything if judged.constructed]),
        **_detection(everything),
        "errors": [judged.as_json() for judged in everything if judged.verdict.tier == Tier.ERROR],
        "clean": {
            "cases": sum(count.clean for count in counts.values()),
            "set_aside": sum(count.set_aside for count in counts.values()),
            "false_alarms": len(alarms),
            "alarms": alarms,
        },
    }
    return {**result, "problems": _problems(result)}


def _detection(mutants: list[Judged]) -> dict[str, int]:
    return {"effective": len(mutants), "detected": sum(judged.verdict.failed for judged in mutants)}


def _problems(result: Mapping[str, Any]) -> list[str]:
    """What is not as it should be, in sentences."""
    problems = []
    for name, kind in result["kinds"].items():
        if not kind["applies"]:
            continue
        if not kind["effective"]:
            problems.append(f"{name} was not tested: of the cases tried, it changed an output in none")
        elif kind["detected"] < LEAST_OF_A_KIND * kind["effective"]:
            problems.append(f"{name}: {kind['detected']} of {kind['effective']} detected, {LEAST_OF_A_KIND:.0%} wanted")
    if result["detected"] < LEAST_OF_ALL * result["effective"]:
        problems.append(f"{result['detected']} of {result['effective']} detected, {LEAST_OF_ALL:.0%} wanted")
    if errors := result["errors"]:
        problems.append(f"errors that the oracle raised: {len(errors)}; the first: {errors[0]['verdict']['message']}")
    if alarms := result["clean"]["false_alarms"]:
        problems.append(f"false alarms: {alarms} of {result['clean']['cases']} clean cases")
    return problems


_lab: Runner
_masks: list[KnownIssue]


def _begin(corpus_folder: Path) -> None:
    """Set this process up (a process pool's initializer)."""
    global _lab, _masks
    leave_to_parent()
    _lab = Runner(timeout=TIMEOUT, small_models=True)
    util.Finalize(None, _lab.close, exitpriority=10)  # multiprocessing's children run no atexit functions
    _masks = issues(corpus_folder)


def _check_kind(name: str, seed: int, cases: int, targets: Sequence[str], out: Path | None) -> Count:
    with trusting():  # a pool makes another process
        return check(_fitting(targets)[name], seed, cases, _lab, _masks, targets, out)


def _fitting(targets: Sequence[str]) -> dict[str, Mutant]:
    """The bugs that fit into any of these targets, by name."""
    return {name: found for word in targets for name, found in mutated.mutants(resolve(word).target).items()}
