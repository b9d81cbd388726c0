"""The way of one case: observe, judge, confirm, known? else trace back and reduce, sign.

Trial  ->  Examination, with a Finding where the verdict is a failure
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from driftnet.causes.record import Status
from driftnet.findings.corpus import SavedCase
from driftnet.findings.known import Explanation, KnownIssue, Symptom, explain, symptom_of
from driftnet.findings.trial import CONFIRMING_RUNS, Trial, blamed, confirm, is_stale_state, look, watch
from driftnet.model.inspect import Case, Feed
from driftnet.model.signature import Signature, coarse, fine, folder_name
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.oracle.tolerances.table import CLEAR_OF_BOUND, CLEAR_OF_STEP
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import BUDGET, MINIMAL, reduce
from driftnet.reduce.trace import trace
from driftnet.run.reference import ReferenceError
from driftnet.targets.environments import Installed
from driftnet.targets.recipe import Recipe, canonical, remedied
from driftnet.targets.recipe import simpler as simpler_recipes
from driftnet.util.machine import description

HANG_CALLS = 20  # each takes its whole time limit

CLEAR = dict.fromkeys((Tier.RUNNING_ERROR, Tier.SAMPLING), CLEAR_OF_BOUND)
CLEAR |= dict.fromkeys((Tier.LOSSLESS, Tier.ARTIFACT, Tier.BUDGET), CLEAR_OF_STEP)
"""How many times its bound an error must be for a reduction step to count; other tiers are exact (1)."""

WEAKER = (
    {Tier.STRUCTURE, Tier.EXACT},
    {Tier.LOSSLESS, Tier.ARTIFACT},
    {Tier.RUNNING_ERROR, Tier.SAMPLING},
    {Tier.BUDGET},
)
"""Tiers, the strongest first.

A failure of one may not be reduced into one of a weaker tier: a target has many small inaccuracies near poles, and a
reduction that may use them slips from the bug it was started for into one of those.
"""


@dataclass(frozen=True)
class Effort:
    """What a finding may cost: `seconds` of wall time, and `calls` of the target for its reduction; `stop` ends it."""

    seconds: float = 20.0
    calls: int = 500
    stop: Callable[[], bool] = lambda: False

    def begun(self) -> Callable[[], bool]:
        """Whether it is spent, asked from now on."""
        deadline = time.monotonic() + self.seconds
        return lambda: self.stop() or time.monotonic() > deadline


@dataclass(frozen=True, eq=False)
class Finding:
    """A confirmed failure, reduced as far as the effort went.

    answer       digest of what the target answered (`Observation.digest`) in a last run; "" where that did not fail
    symptom      the failure it was first seen by, where that was another one
    ended        how the reduction ended (`Reduced.ended`)
    """

    case: Case
    expected: tuple[Feed, ...]
    installed: Installed
    recipe: Recipe
    verdict: Verdict
    signature: Signature
    runs: int
    reproduced: int
    answer: str = ""
    symptom: str = ""
    ended: str = MINIMAL

    def to_save(self) -> SavedCase:
        """The finding as a case for the corpus: open, or flaky with its rate."""
        return SavedCase(
            id=folder_name(self.signature),
            case=self.case,
            expected=self.expected,
            target=self.installed.target.name,
            recipe=self.recipe,
            coarse=self.signature.coarse,
            fine=self.signature.fine,
            verdict=self.verdict,
            status=Status.OPEN if self.reproduced == self.runs else Status.FLAKY,
            seen=(self.installed.release,),
            machine=description(),
            runs=self.runs,
            reproduced=self.reproduced,
            answer=self.answer,
            note=f"first seen as: {self.symptom}" if self.symptom else "",
            unfinished=self.ended != MINIMAL,
        )


@dataclass(frozen=True, eq=False)
class Examination:
    """What came of one case; `known` names the open case that explains a failure.

    unconfirmed   a failure that fresh processes did not show again: it has no finding
    """

    verdict: Verdict
    finding: Finding | None = None
    known: str = ""
    unconfirmed: Verdict | None = None

    @property
    def confirmed(self) -> bool:
        return self.unconfirmed is None


def examine(trial: Trial, known_issues: Sequence[KnownIssue] = (), *, effort: Effort | None = None) -> Examination:
    """Run one case the whole way. Raises nothing on account of the target or of the reference.

    known_issues   of the saved cases that count as known
    """
    trial = replace(trial, recipe=canonical(trial.target, trial.recipe))
    verdict, seen = watch(trial)
    if not verdict.failed or seen is None:
        return Examination(verdict)
    effort = effort or Effort()
    trial, spent = trial.hurried(verdict, seen), effort.begun()
    confirmed = look(trial, fresh=True)
    if not confirmed.failed and not confirm(trial)[1]:
        return Examination(confirmed, unconfirmed=verdict)
    trial, cause = _unquantized(trial, verdict)
    known = explanation(trial, cause, known_issues, spent)
    if known.rest is None:
        return Examination(verdict, known=known.known_issues[0].id)
    finding = pursue(replace(trial, case=known.rest), effort.calls, spent)
    if finding is None:
        return Examination(verdict, unconfirmed=verdict)
    # Reduced, it may turn out to be one that the known issues did not recognize in the whole model.
    if same := [issue.id for issue in known_issues if issue.id == folder_name(finding.signature)]:
        return Examination(verdict, finding, known=same[0])
    reduced, cause = _unquantized(replace(trial, case=finding.case, recipe=finding.recipe), finding.verdict)
    known = explanation(reduced, cause, known_issues, spent)
    return Examination(verdict, finding, known="" if known.rest else known.known_issues[0].id)


def _unquantized(trial: Trial, verdict: Verdict) -> tuple[Trial, Verdict]:
    """A simpler recipe that does not quantize and fails too, with its verdict; else what is given.

    Calibration runs the model: what cannot be run crashes a quantizer, through no fault of its own. And weights that
    are converted wrongly are quantized wrongly.
    """
    for recipe in simpler_recipes(trial.target, trial.recipe) if verdict.stage == "quantize" else ():
        simpler = replace(trial, recipe=recipe)
        if not simpler.quantizes:
            found = look(simpler)
            if found.failed and (found.word is Word.DIVERGES) == (verdict.word is Word.DIVERGES):
                return simpler, found
    return trial, verdict


def explanation(
    trial: Trial, verdict: Verdict, known_issues: Sequence[KnownIssue], spent: Callable[[], bool] = lambda: False
) -> Explanation:
    """How far the saved cases account for `trial` failing with `verdict`; not at all once the effort is `spent`."""
    name = trial.target.name

    def failure(part: Case) -> Symptom:
        if spent():
            raise ExhaustedError
        found = verdict if part is trial.case else look(replace(trial, case=part))
        return symptom_of(coarse(name, found), found.culprits, found.output) if found.failed else Symptom()

    def cured(part: Case, remedy: Recipe) -> bool:
        found = look(replace(trial, case=part, recipe=remedied(trial.target, trial.recipe, remedy)))
        return is_gone(coarse(name, verdict), coarse(name, found) if found.failed else "")

    issues = [issue for issue in known_issues if issue.saved.target == name]
    try:
        return explain(issues, trial.case, failure, trial.runner.reference.record, cured)
    except (ReferenceError, ExhaustedError):
        return Explanation((), trial.case)


def is_gone(before: str, after: str) -> bool:
    """Whether a failure with the coarse signature `before` is cured where one with `after` is seen, "" for none. A hang
    or an error is when something else is the matter; a wrong value may still be there behind that."""
    return not after or (before.split("/")[2] in (Kind.HANG, Kind.ERROR) and after != before)


def pursue(trial: Trial, calls: int, spent: Callable[[], bool]) -> Finding | None:
    """Trace a failure back to where it starts, reduce it, confirm what is left, and sign it; None when it is gone."""
    first, name, record = trial, trial.target.name, trial.runner.reference.record
    verdict, symptom, ended = look(trial), "", MINIMAL

    def examined(part: Case) -> Verdict:
        if spent():
            raise ExhaustedError
        return look(replace(trial, case=part))

    try:
        if verdict.surfaces_late and (source := trace(trial.case, examined, record)):
            if coarse(name, source.verdict) != coarse(name, verdict):
                symptom = f"{verdict.message}; the first tensor that is wrong by itself: {source.verdict.message}"
            trial, verdict = replace(trial, case=source.case), source.verdict
        wanted, quantized = coarse(name, verdict), trial.quantizes

        def reproduces(case: Case, recipe: Recipe) -> str:
            """What is wrong, in words; "" where nothing is, or something else."""
            if spent():
                raise ExhaustedError
            candidate = replace(trial, case=case, recipe=recipe)
            if candidate.quantizes and not quantized:  # a default may quantize: that is no simpler case
                return ""
            # What a damaged heap leads to depends on what the process did before.
            found = look(candidate, fresh=verdict.kind == "SIGABRT")
            if not (is_clear(found) and coarse(name, found) == wanted and _rank(found) <= _rank(verdict)):
                return ""
            return found.message if found.word is Word.DIVERGES else wanted

        if verdict.word is Word.HANGS:
            calls = min(calls, HANG_CALLS)
        reduced = reduce(trial.case, trial.recipe, trial.target, reproduces, record, budget=math.inf, calls=calls)
        trial, ended = replace(trial, case=reduced.case, recipe=reduced.recipe), reduced.ended
    except ReferenceError as e:
        symptom = f"not reduced: {e}"
    except ExhaustedError:
        ended = BUDGET
    verdict, reproduced = confirm(trial)
    if not reproduced:  # its failure needed what a worker had done before
        trial = first
        verdict, reproduced = confirm(trial)
    if not reproduced:
        return None
    if is_stale_state(trial, verdict):
        verdict = replace(verdict, kind=Kind.STALE_STATE)
    return replace(signed(trial, verdict, reproduced), symptom=symptom, ended=ended)


def signed(trial: Trial, verdict: Verdict, reproduced: int) -> Finding:
    """A confirmed failure as a finding: who is wrong, what the target answers, its signature."""
    verdict, answer = blamed(trial, verdict)
    sign = coarse(trial.target.name, verdict)
    return Finding(
        trial.case,
        trial.runner.reference.run(trial.case).outputs,
        trial.installed,
        trial.recipe,
        verdict,
        Signature(sign, fine(sign, trial.case)),
        CONFIRMING_RUNS,
        reproduced,
        answer,
    )


def is_clear(verdict: Verdict) -> bool:
    """Whether a failure is clear of the edge, so that it does not come and go while the case shrinks."""
    return verdict.failed and verdict.error >= CLEAR.get(verdict.tier, 1.0) * verdict.bound


def _rank(verdict: Verdict) -> int:
    return next(rank for rank, tiers in enumerate(WEAKER) if verdict.tier in tiers)


def reproduces(saved: SavedCase, verdict: Verdict) -> bool:
    """Whether `verdict` is the failure that `saved` was saved for."""
    if saved.kind in (Kind.NONDETERMINISTIC, Kind.STALE_STATE):
        return verdict.word is Word.DIVERGES
    return verdict.failed and coarse(saved.target, verdict) == saved.coarse
