"""Pursuing: a failure traced back to where it starts, reduced, confirmed and signed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from driftnet.causes.place import Where, class_of, place_of
from driftnet.causes.record import Status
from driftnet.findings.corpus import FIRST_SEEN, SavedCase
from driftnet.findings.explaining import Inquiry, is_recognized, known_of
from driftnet.findings.issues import NOWHERE, KnownIssue
from driftnet.findings.trial import CONFIRMATION, Confirmed, Trial, blamed, confirm, is_stale_state, look, watch
from driftnet.model.inspect import Case, Feed, computing, nodes
from driftnet.model.signature import Signature, coarse, fine, folder_name
from driftnet.model.submodel import UnrecordedError, recording, submodel
from driftnet.model.verdict import Kind, Observation, Tier, Verdict, Word
from driftnet.oracle.tolerances.table import CLEAR_OF_BOUND, CLEAR_OF_STEP
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import BUDGET, MINIMAL, Reduced, reduce
from driftnet.reduce.trace import trace
from driftnet.run.reference import ReferenceError
from driftnet.targets.environments import Installed
from driftnet.targets.recipe import Recipe
from driftnet.util import spent
from driftnet.util.machine import description

MOST_ASKED = 12
"""Nodes of a case that is asked whether it is known before it is reduced to the end: of more there are so many places
to ask that it costs as much as to go on."""

HANG_CALLS = 20  # each takes its whole time limit

MOST_IN_PLACE = 4
"""Nodes of which a crash that is held to its function may leave a model: one that writes where it may not ends where
that has hit, and of more nodes nobody sees what does it. Such a one is reduced on by its kind alone."""

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


@dataclass(frozen=True, eq=False)
class Finding:
    """A confirmed failure, reduced as far as the effort went.

    answer       digest of what the target answered (`Observation.digest`) in a last run; "" where that did not fail
    symptom      the failure it was first seen by, where that was another one
    ended        how the reduction ended (`Reduced.ended`);   named   the case under the names it was given, if reduced
    where        in the target it fails
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
    named: Case | None = None
    where: Where = NOWHERE

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
            note=f"{FIRST_SEEN}{self.symptom}" if self.symptom else "",
            unfinished=self.ended != MINIMAL,
        )


class KnownError(Exception):
    """What is being reduced is known, as far as it was reduced then."""

    def __init__(self, issue: KnownIssue, fewest: Trial) -> None:
        super().__init__(issue.id)
        self.issue, self.fewest = issue, fewest


@dataclass(frozen=True, eq=False)
class _Left:
    """What is left of a failure, as far as it was traced back and reduced; symptom, ended and named as of a Finding.

    where   in the target it failed before, as far as that is known
    """

    trial: Trial
    verdict: Verdict
    where: Where = NOWHERE
    symptom: str = ""
    ended: str = MINIMAL
    named: Case | None = None


def pursue(trial: Trial, inquiry: Inquiry) -> Finding | None:
    """Trace a failure back to where it starts, reduce it, confirm what is left, and sign it; None when it is gone.

    Of the first tensor that is wrong by itself, once the fewest nodes are left that fail, and of what is left in the
    end, the known issues are asked again: what they explain then is not reduced any further, nor confirmed. Raises
    KnownError for it.
    """
    left = _reduced(trial, inquiry)
    try:
        if issue := known_of(left.trial, inquiry):  # a run in fresh processes costs more than asking
            raise KnownError(issue, left.trial)
    except ExhaustedError:
        left = replace(left, ended=BUDGET)
    confirmed_as, confirmed = _confirmed(left.trial)
    if not confirmed.failed:  # its failure needed what a worker had done before, or what is left is only slow
        left = replace(left, named=None)
        confirmed_as, confirmed = _confirmed(trial)
    if not confirmed.failed:
        return None
    left = replace(left, trial=confirmed_as)
    if is_stale_state(left.trial, confirmed.verdict):
        confirmed = confirmed._replace(verdict=replace(confirmed.verdict, kind=Kind.STALE_STATE))
    return replace(signed(left.trial, confirmed), symptom=left.symptom, ended=left.ended, named=left.named)


@spent.part("reduction")
def _reduced(trial: Trial, inquiry: Inquiry) -> _Left:
    """A failure traced back and reduced, as far as the reference and the effort allow that."""
    verdict, seen = watch(trial)
    left = _Left(trial, verdict, place_of(trial.target, verdict, seen))
    try:
        with trial.runner.within(inquiry.allowance):
            left = _traced(left, inquiry)
            reduction = _Reduction(left.trial, left.verdict, inquiry, left.where)
            if left.trial is not trial:
                reduction.demand_new(left.trial.case, left.trial.recipe)
            return reduction.of(left)
    except ReferenceError as e:
        return replace(left, symptom=f"not reduced: {e}")
    except ExhaustedError:
        return replace(left, ended=BUDGET)


def _traced(left: _Left, inquiry: Inquiry) -> _Left:
    """The first tensor that is wrong by itself, where a failure surfaces late."""
    trial, verdict = left.trial, left.verdict
    name = trial.target.name

    def examined(part: Case) -> Verdict:
        if inquiry.spent:
            raise ExhaustedError
        return look(replace(trial, case=part))

    if not verdict.surfaces_late or not (source := trace(trial.case, examined, trial.runner.reference.record)):
        return left
    symptom = f"{verdict.message}; the first tensor that is wrong by itself: {source.verdict.message}"
    is_other = coarse(name, source.verdict) != coarse(name, verdict)
    return _Left(replace(trial, case=source.case), source.verdict, symptom=symptom if is_other else "")


@dataclass(eq=False)
class _Reduction:
    """What a reducer asks of candidates for the failure of `start`.

    where   in the target it fails;   shown   the candidate that failed last in the same way, and how
    """

    start: Trial
    verdict: Verdict
    inquiry: Inquiry
    where: Where = NOWHERE
    shown: tuple[Trial, Verdict, Observation] | None = None

    def __post_init__(self) -> None:
        self.wanted, self.quantized = coarse(self.start.target.name, self.verdict), self.start.quantizes

    def of(self, left: _Left) -> _Left:
        """`left`, reduced."""
        start, calls = self.start, self.inquiry.effort.calls
        if self.verdict.word is Word.HANGS:
            calls = min(calls, HANG_CALLS)
        found = self._from(start.case, start.recipe, calls)
        if self.where.sort == "crash" and nodes(found.case) > MOST_IN_PLACE:
            self.where = NOWHERE
            found = self._from(found.named, found.recipe, calls - found.calls)
        trial = replace(start, case=found.case, recipe=found.recipe)
        return replace(left, trial=trial, ended=found.ended, named=found.named)

    def _from(self, case: Case, recipe: Recipe, calls: int) -> Reduced:
        record, target = self.start.runner.reference.record, self.start.target
        return reduce(case, recipe, target, self.reproduces, record, calls=calls, simpler=self.demand_new)

    def demand_new(self, case: Case, recipe: Recipe, anew: bool = True) -> None:
        """Raise KnownError if it is known; anew: whether or not it is recognized without a run."""
        part = replace(self.start, case=case, recipe=recipe)
        is_it = self.shown and (self.shown[0].case, self.shown[0].recipe) == (case, recipe)
        here = (self.shown[1], self.shown[2]) if self.shown and is_it else None
        asked = nodes(case) <= MOST_ASKED if anew else here and is_recognized(part, *here, self.inquiry)
        if asked and (issue := known_of(part, self.inquiry, here)):
            raise KnownError(issue, part)

    def reproduces(self, case: Case, recipe: Recipe) -> str:
        """What is wrong, in words; "" where nothing is, or something else."""
        if self.inquiry.spent:
            raise ExhaustedError
        candidate = replace(self.start, case=case, recipe=recipe)
        if candidate.quantizes and not self.quantized:  # a default may quantize: that is no simpler case
            return ""
        # What a damaged heap leads to depends on what the process did before.
        found, observed = watch(candidate, fresh=self.verdict.kind == "SIGABRT")
        if not (self._is_the_same(found) and self._is_there(candidate, found, observed)):
            return ""
        if self.verdict.kind == Kind.NAN and not self._is_the_same_nan(candidate, found):
            return ""
        if observed:
            self.shown = candidate, found, observed
        return found.message if found.word is Word.DIVERGES else self.wanted

    def _is_the_same(self, found: Verdict) -> bool:
        if not (is_clear(found) and coarse(self.start.target.name, found) == self.wanted):
            return False
        # A range that is another tensor's is no operator that is gone.
        return _rank(found) <= _rank(self.verdict) and class_of(found) == class_of(self.verdict)

    def _is_the_same_nan(self, candidate: Trial, found: Verdict) -> bool:
        """Whether NaN is lost where it was lost, made where it was made, and that by operators that were there: those
        that stand for others in a reduction have bugs of their own with what is no number."""
        if nan_is_due(candidate, found) != self._nan_was_due:
            return False
        graph = candidate.case.proto.graph
        there = {node.op_type for node in self.start.case.proto.graph.node}
        others = [i for i in computing(graph) if graph.node[i].op_type not in there]
        if not others:
            return True
        try:
            recorded = recording(candidate.case, candidate.runner.reference.record)
            parts = [submodel(candidate.case, [i], recorded) for i in others]
        except (ReferenceError, UnrecordedError):
            return False
        return not any(look(replace(candidate, case=part)).failed for part in parts)

    @cached_property
    def _nan_was_due(self) -> bool:
        return nan_is_due(self.start, self.verdict)

    def _is_there(self, candidate: Trial, found: Verdict, observed: Observation | None) -> bool:
        """Whether a crash is in the function in which it was, as far as both are known: a target has many crashes, and
        a reduction that may use any slips from the bug that it was started for into another one."""
        if self.where.sort != "crash":
            return True
        place = place_of(candidate.target, found, observed)
        return place.sort != "crash" or self.where.is_one_with(place)


def _confirmed(trial: Trial) -> tuple[Trial, Confirmed]:
    """What fresh runs come to, and of which trial. A hang is given HANG_LIMITS times its limit: still one, what else
    fails by then, or only slow. What hangs in some runs may come back in this one, and is not told then: slow is far
    more common."""
    confirmed = confirm(trial)
    if not confirmed.failed or confirmed.verdict.word is not Word.HANGS:
        return trial, confirmed
    try:
        found = look(trial.patient, fresh=True)
    except ExhaustedError:
        return trial, confirmed
    if found.word is Word.HANGS:
        return trial, confirmed._replace(verdict=found)
    return (trial.patient, confirm(trial.patient)) if found.failed else (trial, confirmed._replace(failed=0))


@spent.part(CONFIRMATION)
def signed(trial: Trial, confirmed: Confirmed) -> Finding:
    """A confirmed failure as a finding: who is wrong, what the target answers, its signature."""
    verdict, answer, where = blamed(trial, confirmed.verdict)
    sign = coarse(trial.target.name, verdict)
    return Finding(
        trial.case,
        trial.runner.reference.run(trial.case).outputs,
        trial.installed,
        trial.recipe,
        verdict,
        Signature(sign, fine(sign, trial.case)),
        confirmed.runs,
        confirmed.failed,
        answer,
        where=where,
    )


def nan_is_due(trial: Trial, verdict: Verdict) -> bool:
    """Whether what is most wrong, by a verdict on outputs, should be NaN."""
    right = np.asarray(trial.runner.reference.run(trial.case).outputs[verdict.feed][verdict.output])
    return right.dtype.kind == "f" and bool(np.isnan(right[verdict.at]).any())


def is_clear(verdict: Verdict) -> bool:
    """Whether a failure is clear of the edge, so that it does not come and go while the case shrinks."""
    return verdict.failed and verdict.error >= CLEAR.get(verdict.tier, 1.0) * verdict.bound


def _rank(verdict: Verdict) -> int:
    return next(rank for rank, tiers in enumerate(WEAKER) if verdict.tier in tiers)
