"""Each sort of fault, examined as any other case: confirmed, known or reduced, with the options that cure it."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftnet.diagnosis import kernels
from driftnet.diagnosis.attribution import Remedy, mends, remedies, stage_at_fault, under, with_options
from driftnet.diagnosis.inquiry import Found, Inquiry, name_of, names_of, serious_faults
from driftnet.diagnosis.likeness import unlike
from driftnet.diagnosis.localize import Fault
from driftnet.diagnosis.result import Diagnosis
from driftnet.diagnosis.views import around
from driftnet.findings.explaining import Effort, symptom_seen
from driftnet.findings.issues import KnownIssue, KnownIssues
from driftnet.findings.known import shows
from driftnet.findings.pipeline import Examination, examine
from driftnet.findings.trial import Trial
from driftnet.model.framed import unframed
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.signature import folder_name
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import INTERRUPTED, MINIMAL
from driftnet.targets.environments import declared

RESERVED = 60
"""Runs that a reduction leaves for confirming it and for trying options."""
REDUCED = 0.8
"""The share of the CPU time left that a reduction may take: what it comes to is confirmed in the rest."""
BLAMED = 8
"""Nodes that are named of a reduction that was not finished: of more of them most have no part in it."""
DIAGNOSED = 3
"""Faults of different operators that are examined, each; of the others the nodes are named."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is examined: a fault, by its nodes and their names, cut out; or without nodes the model."""

    case: Case
    nodes: tuple[int, ...] = ()
    names: tuple[tuple[str, str], ...] = ()


def diagnose(inquiry: Inquiry, whole: Verdict, found: Found) -> None:
    """Examine one fault of each sort; where the model fails and no part of it does, the model."""
    faults = sorts_of(inquiry.case, serious_faults(found))[:DIAGNOSED]
    for fault in faults:
        if found.diagnoses and inquiry.left < 2 * RESERVED:
            return
        if not _diagnosed(inquiry, whole, found, _Asked(fault.case, fault.nodes, names_of(inquiry.case, fault))):
            return
    if whole.failed and not found.diagnoses:
        _diagnosed(inquiry, whole, found, _Asked(inquiry.given or inquiry.case))


def _diagnosed(inquiry: Inquiry, whole: Verdict, found: Found, asked: _Asked) -> bool:
    """Examine one fault, and tell of it in `found`; False where the time was spent before that was done."""
    effort = Effort(REDUCED * inquiry.allowance.left, stop=inquiry.reducing)
    if asked.nodes:  # of the model as a whole nothing is known without it
        effort = replace(effort, calls=max(0, inquiry.left - RESERVED))
    trial = replace(inquiry.trial, case=inquiry.frames.get(asked.case.digest, asked.case))
    try:
        if trial.quantizes and kernels.used(trial):  # or it may be taken for the rounding that hides it
            trial = kernels.uncovered(trial, *inquiry.watch(trial))[0]
        examined = _step_elsewhere(inquiry, trial) or examine(trial, inquiry.known_issues, effort=effort)
    except ExhaustedError as e:
        found.cut = str(e)
        return False
    if trial.case is not asked.case:  # what stands in a frame is told of by the model's own names
        said = unframed(examined.verdict.message)
        examined = replace(examined, verdict=replace(examined.verdict, message=said))
    found.unconfirmed = examined.unconfirmed or found.unconfirmed
    if examined.unconfirmed or (asked.nodes and not examined.verdict.failed):
        return True
    weighed, place = found.impacts.get(asked.nodes), around(inquiry.case, asked.nodes)
    share, values = weighed.share if weighed else None, found.distributions.get(asked.nodes)
    # It is kept when somebody ends what follows.
    found.diagnoses.append(Diagnosis(asked.names, examined, impact=share, around=place, distribution=values))
    trial = examined.fewest or trial
    if examined.known and not examined.finding and not rule_of(inquiry.known_issues, examined):
        with contextlib.suppress(ExhaustedError):
            own = examine(trial, effort=replace(effort, seconds=REDUCED * inquiry.allowance.left)).finding
            examined = replace(examined, finding=own)
            found.diagnoses[-1] = replace(found.diagnoses[-1], examination=examined)
    _name_what_is_left(inquiry, whole, found, asked)
    if examined.finding and examined.finding.ended == INTERRUPTED:
        raise KeyboardInterrupt
    found.diagnoses[-1] = _likened(inquiry, _attributed(inquiry, found.diagnoses[-1], trial), trial)
    return True


def _step_elsewhere(inquiry: Inquiry, trial: Trial) -> Examination | None:
    """A fault by a rounding step, in a model that is quantized as it is given, that is known of what a target of the
    same runtime quantizes itself: of the same operators, but for Q/DQ pairs, and gone under what mends it there. It is
    executed alike, whoever quantized it. None where it is no such step."""
    if trial.quantizes:
        return None
    operators, distribution = _computing(trial.case), trial.target.distribution
    for issue in inquiry.known_issues:
        cause = issue.saved.cause
        if issue.saved.kind != Kind.OFF_BY_ONE_STEP or cause is None or not cause.remedy:
            continue
        if declared(issue.saved.target).distribution != distribution or _computing(issue.saved.case) != operators:
            continue
        applies = cause.remedy.keys() <= trial.options.keys() | trial.target.switches.keys()
        verdict, seen = inquiry.watch(trial)
        if verdict.kind != Kind.OFF_BY_ONE_STEP or seen is None:
            return None
        if applies and mends(trial, verdict, with_options(trial, cause.remedy), inquiry.watch):
            return Examination(verdict, known=issue.id)
    return None


def _computing(case: Case) -> set[str]:
    """Its operators, but for those that only quantize."""
    nodes = (case.proto.graph.node[i] for i in computing(case.proto.graph))
    return {node.op_type for node in nodes if not has_any(node, Trait.QUANTIZES | Trait.DEQUANTIZES)}


def _name_what_is_left(inquiry: Inquiry, whole: Verdict, found: Found, asked: _Asked) -> None:
    """Name the nodes that a reduction has left: of the model as a whole, or of a fault that does not need them all to
    end it."""
    finding = found.diagnoses[-1].examination.finding
    left = _left(inquiry.case, finding.named) if finding and finding.named else ()
    fewer = not whole.in_values and set(left) < set(asked.nodes)
    if not left or (asked.nodes and not fewer):
        return
    if not asked.nodes and finding and finding.ended != MINIMAL and len(left) > BLAMED:
        return
    if fewer:
        found.needed[asked.nodes] = left
    names = tuple(name_of(inquiry.case, i) for i in left)
    found.diagnoses[-1] = replace(found.diagnoses[-1], nodes=names, around=around(inquiry.case, left))


def sorts_of(case: Case, faults: Sequence[Fault]) -> list[Fault]:
    """The first of the faults that have the same operators and fail in the same way; those of one step last."""
    sorts: dict[tuple[str, ...], Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.verdict.kind == Kind.OFF_BY_ONE_STEP):
        sorts.setdefault((fault.verdict.kind, *(op for _, op in names_of(case, fault))), fault)
    return list(sorts.values())


def _attributed(inquiry: Inquiry, diagnosis: Diagnosis, whole: Trial) -> Diagnosis:
    """The fault with what makes it go away: both as it was found, `whole`, and reduced, because what is
    left of a bias that a converter loses may be zeros of which only a quantizer's parameters still tell."""
    examined = diagnosis.examination
    if examined.verdict.word is Word.HANGS:
        return diagnosis
    small = _reduced(examined, whole)
    verdict = examined.finding.verdict if examined.finding else examined.verdict
    inquiry.tell("trying options")
    found: list[Remedy] = []

    def holds(remedy: Remedy) -> bool:
        return not inquiry.watch(under(whole, remedy))[0].failed

    try:
        found.extend(filter(holds, remedies(small, verdict, inquiry.watch)))
        stage = stage_at_fault(small, verdict, found, inquiry.watch)
    except ExhaustedError:
        stage = ""
    return replace(diagnosis, remedies=tuple(found), stage=stage)


def _likened(inquiry: Inquiry, diagnosis: Diagnosis, whole: Trial) -> Diagnosis:
    """The fault with why it only looks like the known one, if it does."""
    examined, issues = diagnosis.examination, inquiry.known_issues
    if not examined.known or rule_of(issues, examined) or examined.verdict.word is Word.HANGS:
        return diagnosis
    inquiry.tell("comparing with the known case that it looks like")
    try:
        own = _reduced(examined, whole)
        name = folder_name(examined.finding.signature) if examined.finding else ""
        very = KnownIssues(issues).named(name)  # whatever it was recognized as
        if very and shows(very, symptom_seen(own, *inquiry.watch(own))):
            return replace(diagnosis, examination=replace(examined, known=very.id))
        reason = unlike(own, examined.known, issues, diagnosis.remedies, inquiry.watch)
    except ExhaustedError:
        reason = "no time was left to compare them"
    return replace(diagnosis, unlike=reason)


def _reduced(examined: Examination, whole: Trial) -> Trial:
    """`whole`, a fault, as far as it was reduced."""
    finding = examined.finding
    return replace(whole, case=finding.case, recipe=finding.recipe) if finding else whole


def _left(case: Case, reduced: Case) -> tuple[int, ...]:
    """The nodes of `case` that are left in `reduced`, though plainer operators may have taken their places."""
    nodes, kept = case.proto.graph.node, reduced.proto.graph.node
    names = {name for node in kept for name in (node.name, *node.output) if name}
    return tuple(i for i in computing(case.proto.graph) if not names.isdisjoint((nodes[i].name, *nodes[i].output)))


def rule_of(known_issues: Sequence[KnownIssue], examined: Examination) -> str:
    """The rule by which one fault is no failure of the model, "" where it is one."""
    documented = {issue.id: issue.saved.rule for issue in known_issues}
    known, a_step = examined.known, examined.verdict.kind == Kind.OFF_BY_ONE_STEP
    return documented.get(known, "") or (str(Kind.OFF_BY_ONE_STEP) if known and a_step else "")
