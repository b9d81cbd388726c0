"""Selfcheck: does the oracle bite? Bugs are put into real targets, and their verdicts counted.

For each kind of bug, generated cases are run on the clean target and on its mutant. A case is effective when an output
differs in a way that somebody could call wrong (see selfcheck.effect). It is detected when the mutant's verdict is a
failure. A failure of the clean target that the corpus explains is set aside; any other is a false alarm.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import util
from pathlib import Path
from typing import Any

import onnx
from driftnet.findings.known import KnownIssue, issues
from driftnet.findings.pipeline import Effort, examine
from driftnet.findings.trial import Trial as OnOneTarget
from driftnet.generators import bulk
from driftnet.generators.building.profile import CONSTANT_OPERANDS
from driftnet.model.graph import Values
from driftnet.model.inspect import Case
from driftnet.model.verdict import Observation, Tier, Verdict, Word
from driftnet.on_grid.construct import construct
from driftnet.oracle.judge import judge
from driftnet.run.runner import Runner
from driftnet.selfcheck import effect, mutated
from driftnet.selfcheck.effect import damage, is_effective
from driftnet.selfcheck.mutant import MUTANTS, Mutant
from driftnet.targets import recipe
from driftnet.targets.environments import DEFAULT_TARGETS, Installed, resolve
from driftnet.targets.recipe import Recipe
from driftnet.util.errors import UserError

CONSTRUCTED_SHARE = 0.5
LEAST_OF_A_KIND, LEAST_OF_ALL = 0.80, 0.97
"""Shares of the effective cases that are to be detected."""

TIMEOUT = 3.0  # seconds of one stage
TRIES = 40  # cases looked at for each that is to be effective
EFFORT = Effort(seconds=10.0, calls=45)


@dataclass(frozen=True)
class Trial:
    """One case on a clean target and on its mutant.

    constructed   its data are on the quantizer's grid, and calibration does not clip them: quantizing is the identity
    """

    case: Case
    clean: Installed
    mutated: Installed
    recipe: Recipe
    constructed: bool


@dataclass(frozen=True)
class Judged:
    """A verdict on the clean target or on its mutant, and what it takes to come back to it."""

    target: str
    recipe: Recipe
    origin: Mapping[str, Any]
    constructed: bool
    verdict: Verdict

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
    """

    stage: str = ""
    what: str = ""
    mutants: list[Judged] = field(default_factory=list)
    clean: int = 0
    set_aside: int = 0
    alarms: list[Judged] = field(default_factory=list)

    @property
    def effective(self) -> int:
        """In how many cases the bug changed an output."""
        return len(self.mutants)

    @property
    def detected(self) -> int:
        """In how many of these it was seen."""
        return sum(judged.verdict.failed for judged in self.mutants)


Listener = Callable[[str, Count], None]


def nobody(kind: str, count: Count) -> None:
    """A listener to whom nothing matters."""


def trials(mutant: Mutant, seed: int, count: int, targets: Sequence[str] = DEFAULT_TARGETS) -> Iterator[Trial]:
    """Those of `count` cases in which the bug may come into play, on the targets it fits in turn. A seed names them."""
    pairs = [
        (clean, resolve(mutated.word(mutant.name, target)))
        for target in targets
        if mutant.name in mutated.mutants((clean := resolve(target)).target)
    ]
    for index in range(count):
        rng = random.Random(f"{seed}/{index}/{mutant.name}")
        clean, damaged = pairs[index % len(pairs)]
        constant = rng.random() < 0.5
        case = bulk.case(seed, rng.getrandbits(31), focus=mutant.focus, profile=CONSTANT_OPERANDS if constant else None)
        drawn = {**recipe.draw(clean.target, rng), **mutant.options(clean.target)}
        chosen = recipe.canonical(clean.target, drawn)
        scheme = clean.target.scheme(recipe.effective(clean.target, chosen))
        on_grid = construct(case, scheme, rng.getrandbits(32)) if scheme and rng.random() < CONSTRUCTED_SHARE else None
        if mutant.stage != "convert" or changes(mutant, on_grid or case):
            constructed = on_grid is not None and scheme is not None and not scheme.clips
            yield Trial(on_grid or case, clean, damaged, chosen, constructed)


def changes(mutant: Mutant, case: Case) -> bool:
    """Whether a bug of the converter changes the model of `case` at all."""
    return _parts(damage(mutant, case)) != _parts(case.proto)


def _parts(model: onnx.ModelProto) -> list[bytes]:
    return [part.SerializeToString() for part in (*model.graph.node, *model.graph.initializer)]


def check(
    mutant: Mutant,
    seed: int,
    wanted: int,
    runner: Runner,
    known_issues: Sequence[KnownIssue],
    targets: Sequence[str] = DEFAULT_TARGETS,
) -> Count:
    """Count until `wanted` cases were effective, or TRIES times as many were tried."""
    count = Count(mutant.stage, mutant.doc)
    for trial in trials(mutant, seed, TRIES * wanted, targets):
        if count.effective == wanted:
            break
        clean = runner.observe(trial.case, trial.clean, trial.recipe)
        seen = runner.observe(trial.case, trial.mutated, trial.recipe) if clean.outputs else clean
        if not seen.outputs or same(clean.outputs, seen.outputs) or not _is_judgeable(trial.case, runner):
            continue
        quantized = trial.clean.target.scheme(recipe.effective(trial.clean.target, trial.recipe)) is not None
        if not is_effective(mutant, trial.case, quantized, clean, seen, runner.reference):
            continue
        verdict = _judge(trial, clean, trial.clean, runner)
        count.clean += 1
        if not verdict.failed:
            count.mutants.append(_judged(trial, _judge(trial, seen, trial.mutated, runner)))
        elif _is_known(trial, runner, known_issues):
            count.set_aside += 1
        else:
            count.alarms.append(_judged(trial, verdict))
    return count


def same(a: Sequence[Values], b: Sequence[Values]) -> bool:
    """Whether the outputs of all feeds are the same, bit for bit."""
    return all(
        x.keys() == y.keys() and all(effect.same(x[name], y[name]) for name in x) for x, y in zip(a, b, strict=True)
    )


def _is_judgeable(case: Case, runner: Runner) -> bool:
    """Whether the reference runs `case` and every output is an array."""
    reference = runner.reference.run(case)
    names = {value.name for value in case.proto.graph.output}
    return bool(reference.outputs) and all(names <= out.keys() for out in reference.outputs)


def _is_known(trial: Trial, runner: Runner, known_issues: Sequence[KnownIssue]) -> bool:
    """Whether the corpus explains why the clean target fails, or it does not fail again."""
    found = examine(OnOneTarget(trial.case, trial.clean, trial.recipe, runner), known_issues, effort=EFFORT)
    return bool(found.known) or not found.confirmed


def _judge(trial: Trial, seen: Observation, installed: Installed, runner: Runner) -> Verdict:
    """The verdict; an abstention of Tier.ERROR where the oracle itself raises: one case must not end the others."""
    options = recipe.effective(installed.target, trial.recipe)
    try:
        return judge(trial.case, seen, target=installed.target, options=options, reference=runner.reference)
    except Exception as e:
        return Verdict(Word.ABSTAINS, Tier.ERROR, message=f"{type(e).__name__}: {e}")


def _judged(trial: Trial, verdict: Verdict) -> Judged:
    target = trial.clean.target
    return Judged(target.name, recipe.effective(target, trial.recipe), trial.case.origin, trial.constructed, verdict)


def run(
    kinds: Sequence[str],
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    cases: int,
    seed: int,
    workers: int,
    corpus_folder: Path,
    listener: Listener,
) -> dict[str, Count]:
    """Check these kinds, all that fit into the targets when there are none, each in one of `workers` processes.

    The listener is told of each kind that is done. Raises UserError for a kind or a target that there is not.
    """
    fitting = [name for target in targets for name in mutated.mutants(resolve(target).target)]
    there = sorted(set(fitting), key=[*MUTANTS, *fitting].index)
    if unknown := [name for name in kinds if name not in there]:
        hint = f"into {' and '.join(targets)} fit {', '.join(there)}"
        raise UserError(f"no bug is called {unknown[0]!r}", hint=hint, kind="option")
    names = [name for name in there if name in kinds or not kinds]
    counts: dict[str, Count] = {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (corpus_folder,)) as pool:
        asked = partial(_check_kind, seed=seed, cases=cases, targets=targets)
        for name, count in zip(names, pool.map(asked, names)):
            counts[name] = count
            listener(name, count)
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _lab = Runner(timeout=TIMEOUT, small_models=True)
    util.Finalize(None, _lab.close, exitpriority=10)  # multiprocessing's children run no atexit functions
    _masks = issues(corpus_folder)


def _check_kind(name: str, seed: int, cases: int, targets: Sequence[str]) -> Count:
    fitting = [found for target in targets for found in [mutated.mutants(resolve(target).target).get(name)] if found]
    return check(fitting[0], seed, cases, _lab, _masks, targets)
