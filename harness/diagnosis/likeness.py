"""Likeness: whether a fault of a model is the known issue that it was recognized as, or only looks like it.

Known means the same cause. A pattern or a trigger that matches is a guess, and of a trained model an expensive one: who
is told that its fault is known looks no further. So the known case is put to the test beside the reduced one of the
model: it fails under the recipe of the model, in the same way, and what mends one of them mends the other. No more is
asked where what is wrong in an artifact is of a class that one function makes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from driftnet.causes.record import Status
from driftnet.diagnosis.attribution import SIMPLIFIED, Remedy, Watch, mends, remedies, under
from driftnet.findings.explaining import explanation, symptom_seen
from driftnet.findings.issues import KnownIssue, symptom_of
from driftnet.findings.recognition import is_same_place
from driftnet.findings.trial import Trial
from driftnet.model.signature import coarse, fine
from driftnet.model.verdict import DEPENDS_ON_RUN, Kind, Observation, Verdict


@dataclass(frozen=True)
class Misshape:
    """How a shape is wrong: the rank that it has and should have, and the axes whose size is wrong."""

    rank: int
    wanted: int
    axes: tuple[int, ...]

    def __str__(self) -> str:
        if self.rank != self.wanted:
            return f"rank {self.rank} in the place of {self.wanted}"
        return f"of rank {self.rank}, wrong in axis {' and '.join(map(str, self.axes))}"


def unlike(own: Trial, known: str, issues: Sequence[KnownIssue], cures: Sequence[Remedy], watch: Watch) -> str:
    """Why the failure of `own`, a fault of a model as far as it was reduced, need not be the issue `known`; "" where it
    is that.

    issues   all known ones, for a cause may show in several
    cures    what makes `own` right

    Raises what `watch` raises.
    """
    issue = next(issue for issue in issues if issue.id == known)
    verdict, seen = watch(own)
    if not verdict.failed or seen is None:
        return ""  # it comes and goes: nothing can be held against anything
    cause = issue.saved.cause
    same = [
        other
        for other in issues
        if other is issue or (cause and other.saved.cause and other.saved.cause.id == cause.id)
    ]
    telling = [cause for other in same for cause in other.causes if cause.place.class_tells]
    if telling and any(is_same_place(cause, symptom_seen(own, verdict, seen)) for cause in telling):
        return ""  # one function made both
    sign = coarse(own.target.name, verdict)
    if fine(sign, own.case) in {other.saved.fine for other in same}:
        return ""  # it was reduced to the very same
    if explanation(own, verdict, same, seen).rest is not None:
        return "the reduced case does not show it"
    if (
        any(other.saved.status == Status.FLAKY or other.saved.depends for other in same)
        or verdict.kind in DEPENDS_ON_RUN
    ):
        return ""
    reasons = [_unlike(own, verdict, seen, other, cures, watch) for other in same]
    return "" if "" in reasons else reasons[same.index(issue)]


def _unlike(
    own: Trial, verdict: Verdict, seen: Observation, issue: KnownIssue, cures: Sequence[Remedy], watch: Watch
) -> str:
    there = replace(own, case=issue.saved.case)
    found, observed = watch(there)
    shown = symptom_of(coarse(own.target.name, found), ()).sort if found.failed else ""
    if shown != issue.symptom.sort:
        return "its case does not fail so under this recipe"
    if observed and verdict.kind == found.kind == Kind.WRONG_SHAPE:
        ours, theirs = _misshape(own, verdict, seen), _misshape(there, found, observed)
        if ours != theirs:
            return f"its shape is {theirs}, this one {ours}"
    for cure in filter(partial(_tells, own), cures):
        if not mends(there, found, under(there, cure), watch):
            return f"{cure} mends this, but not that"
    for cure in filter(partial(_tells, there), remedies(there, found, watch)):
        if not mends(own, verdict, under(own, cure), watch):
            return f"{cure} mends that, but not this"
    return ""


def _tells(trial: Trial, cure: Remedy) -> bool:
    """Whether a cure tells causes apart. Quantized in another way numbers differ, and may happen to be right; of a
    model that is folded it depends on which of its operands are constants what is left."""
    before, after = (trial.target.scheme(one.options) for one in (trial, under(trial, cure)))
    return cure.value != SIMPLIFIED and (after is None or (after == before and cure.stage != "quantize"))


def _misshape(trial: Trial, verdict: Verdict, seen: Observation) -> Misshape:
    right = trial.runner.reference.run(trial.case).outputs[verdict.feed][verdict.output].shape
    made = seen.outputs[verdict.feed][verdict.output].shape
    axes = tuple(i for i, (a, b) in enumerate(zip(made, right)) if a != b)
    return Misshape(len(made), len(right), axes if len(made) == len(right) else ())
