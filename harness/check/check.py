"""One real model on one target: what is wrong, which nodes do it, and a small case that shows it.

The model as a whole tells whether every stage runs, and whether what comes out can be right at all; its windows tell
where it goes wrong, and vouch for the rest. Each fault is then examined as any other case: confirmed, known or reduced.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.check.attribution import Remedy, remedies, stage_at_fault, with_options
from driftnet.check.localize import Fault, Search, locate
from driftnet.check.result import Checked, Diagnosis
from driftnet.findings.known import KnownIssue
from driftnet.findings.pipeline import Effort, Examination, examine
from driftnet.findings.trial import Trial, watch
from driftnet.model.arrays import distance
from driftnet.model.graph import read
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.submodel import Recording, recording
from driftnet.model.verdict import Kind, Observation, Tier, Verdict, Word
from driftnet.model.windows import Judged, live_nodes, survey
from driftnet.oracle.ball_arithmetic.creation import is_random
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import INTERRUPTED
from driftnet.run.reference import ReferenceError

ENOUGH = 0.95
"""Share of nodes that have to be vouched for where no tier can judge a model end to end."""

RUNS, RUNS_A_NODE = 300, 1.5
"""How often a target may be run for one model and recipe: whichever is more. Constants and Q/DQ are no nodes here."""

SURVEYED, FAILING_SURVEYED, NARROWED = 0.7, 0.45, 0.6
"""The shares of these runs after which no further window is judged, the same of a model that fails, and after which no
fault is looked for."""


RESERVED = 60
"""Runs that a reduction leaves for confirming it and for trying options."""

DIAGNOSED = 3
"""Faults of different operators that are examined, each; of the others the nodes are named."""


@dataclass(frozen=True, eq=False)
class Inquiry:
    """The trial of one model, and what its examination may cost.

    deadline  monotonic seconds after which nothing new is begun
    started, limit   runs of the target when it began, and how many it may take
    tell      hears what is being done, for people
    """

    trial: Trial
    known_issues: Sequence[KnownIssue]
    deadline: float
    tell: Callable[[str], None]
    started: int
    limit: int

    @property
    def case(self) -> Case:
        """The model."""
        return self.trial.case

    @property
    def left(self) -> int:
        """Runs that are left."""
        return self.limit - (self.trial.runner.target_runs - self.started)

    def look(self, case: Case, share: float = 1.0) -> Verdict:
        """The verdict on a part. Raises ExhaustedError once the time or this share of the runs is spent."""
        if self.left <= (1 - share) * self.limit:
            raise ExhaustedError
        return self.watch(replace(self.trial, case=case))[0]

    def watch(self, trial: Trial) -> tuple[Verdict, Observation | None]:
        """One run. Raises ExhaustedError once the time is spent."""
        if time.monotonic() > self.deadline:
            raise ExhaustedError
        return watch(trial)


@dataclass(eq=False)
class Found:
    """What a check has come to. It grows as the check goes on, so that somebody may end it and keep what there is.

    unconfirmed   a failure that fresh processes did not show again;   interrupted   somebody ended the check
    """

    judged: list[Judged] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    unconfirmed: Verdict | None = None
    interrupted: bool = False


def check(
    trial: Trial,
    known_issues: Sequence[KnownIssue],
    *,
    seconds: float = math.inf,
    tell: Callable[[str], None] = lambda text: None,
) -> Checked:
    """Check one model. Raises nothing on account of the target or of the reference.

    seconds   wall time after which nothing new is begun;   tell   hears what is being done, for people
    """
    case, started = trial.case, trial.runner.target_runs
    nodes = [case.proto.graph.node[i] for i in computing(case.proto.graph)]
    counted = sum(not has_any(node, Trait.QUANTIZES | Trait.DEQUANTIZES) for node in nodes)
    limit, deadline = max(RUNS, int(RUNS_A_NODE * counted)), time.monotonic() + seconds
    tell("the whole model")
    verdict, observation = watch(trial)
    if observation is None:
        return Checked(verdict, culprits=verdict.culprits)
    random = _random_outputs(case)
    errors = {name: said for name, said in _errors(trial, observation).items() if name not in random}
    checked = Checked(verdict, observation, outputs=errors, random=random)
    if verdict.word is Word.AGREES and verdict.tier is Tier.EXACT and not verdict.rule:
        return replace(checked, vouched=1.0)
    if verdict.word is Word.REJECTS:
        return checked
    inquiry = Inquiry(trial.hurried(verdict, observation), known_issues, deadline, tell, started, limit)
    return _localized(inquiry, checked)


def _localized(inquiry: Inquiry, checked: Checked) -> Checked:
    """`checked` with what the windows say, and the faults."""
    case, whole, found = inquiry.case, checked.verdict, Found()
    try:
        _find(inquiry, whole, found)
    except KeyboardInterrupt:
        if not (whole.failed or found.faults):
            raise
        found.interrupted = True
    diagnoses = found.diagnoses
    examined = len(diagnoses) >= len(_sorts(case, found.faults)) and (whole.in_values or not whole.failed)
    rule = _excuse(inquiry.known_issues, diagnoses) if examined else ""
    right = [j for j in found.judged if _vouches(j.verdict) or (rule and j.verdict.in_values)]
    affirmed = {node for j in right for node in j.nodes}
    live, graph = live_nodes(case), case.proto.graph
    doubtful = Counter(graph.node[i].op_type for i in live if i not in affirmed)
    vouched = 1 - doubtful.total() / max(1, len(live))
    return replace(
        checked,
        verdict=_overall(whole, diagnoses, found.unconfirmed, rule, vouched),
        judged=tuple(found.judged),
        vouched=vouched,
        doubtful=dict(doubtful.most_common()),
        culprits=tuple(dict.fromkeys(pair for fault in found.faults for pair in _named(case, fault))),
        diagnoses=tuple(diagnoses),
        interrupted=found.interrupted,
    )


def _find(inquiry: Inquiry, whole: Verdict, found: Found) -> None:
    try:
        recorded = recording(inquiry.case, inquiry.trial.runner.reference.record)
    except ReferenceError as e:
        inquiry.tell(f"no windows: {e}")
    else:
        _survey(inquiry, recorded, whole, found.judged)
        _locate(inquiry, recorded, _failing(found.judged, whole), whole, found.faults)
    _diagnose(inquiry, whole, found)


def _survey(inquiry: Inquiry, recorded: Recording, whole: Verdict, judged: list[Judged]) -> None:
    live, share = len(live_nodes(inquiry.case)), FAILING_SURVEYED if whole.failed else SURVEYED

    def explains(verdict: Verdict) -> bool:
        return _is_wrong(verdict, whole) and (verdict.in_values or not whole.in_values)

    try:
        for one in survey(inquiry.case, recorded, lambda part: inquiry.look(part, share), explains):
            judged.append(one)
            seen = {node for j in judged for node in j.nodes}
            inquiry.tell(f"windows: {len(seen)} of {live} nodes")
    except ExhaustedError:
        inquiry.tell("windows: the budget is spent")


def _is_wrong(verdict: Verdict, whole: Verdict) -> bool:
    """Whether a window's failure is one of the model's. A part may fail to run for being cut out; then it says nothing
    where the whole runs."""
    return verdict.failed and (whole.failed or verdict.in_values)


def _failing(judged: Sequence[Judged], whole: Verdict) -> list[Judged]:
    """The windows to be narrowed: where the model gives wrong values those that do too, if there are any."""
    wrong = [j for j in judged if _is_wrong(j.verdict, whole)]
    return [j for j in wrong if whole.in_values and j.verdict.in_values] or wrong


def _locate(
    inquiry: Inquiry, recorded: Recording, failing: Sequence[Judged], whole: Verdict, faults: list[Fault]
) -> None:
    search = Search(inquiry.case, recorded, lambda part: inquiry.look(part, NARROWED), inquiry.trial.target.name)
    try:
        for fault in locate(search, failing, whole):
            faults.append(fault)
            inquiry.tell(f"at fault: {', '.join(' '.join(pair) for pair in _named(inquiry.case, fault))}")
    except ExhaustedError:
        inquiry.tell("localization: the budget is spent")


def _diagnose(inquiry: Inquiry, whole: Verdict, found: Found) -> None:
    """Examine one fault of each sort; where the model fails and no part of it does, the model."""
    parts = [(_named(inquiry.case, fault), fault.case) for fault in _sorts(inquiry.case, found.faults)[:DIAGNOSED]]
    for nodes, case in (*parts, ((), inquiry.case)):
        if (found.diagnoses and inquiry.left < 2 * RESERVED) or (not nodes and (found.diagnoses or not whole.failed)):
            break
        inquiry.tell("reducing")
        seconds, calls = max(0.0, inquiry.deadline - time.monotonic()), max(0, inquiry.left - RESERVED)
        trial, effort = replace(inquiry.trial, case=case), Effort(seconds=seconds, calls=calls)
        examined = examine(trial, inquiry.known_issues, effort=effort)
        found.unconfirmed = examined.unconfirmed or found.unconfirmed
        if examined.unconfirmed or not (examined.verdict.failed or not nodes):
            continue
        found.diagnoses.append(Diagnosis(nodes, examined))  # it is kept when somebody ends what follows
        if examined.finding and examined.finding.ended == INTERRUPTED:
            raise KeyboardInterrupt
        found.diagnoses[-1] = _attributed(inquiry, nodes, trial, examined)


def _sorts(case: Case, faults: Sequence[Fault]) -> list[Fault]:
    """The first of the faults that have the same operators and fail in the same way; those of one step last."""
    sorts: dict[tuple[str, ...], Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.verdict.kind == Kind.OFF_BY_ONE_STEP):
        sorts.setdefault((fault.verdict.kind, *(op for _, op in _named(case, fault))), fault)
    return list(sorts.values())


def _attributed(inquiry: Inquiry, nodes: tuple[tuple[str, str], ...], whole: Trial, examined: Examination) -> Diagnosis:
    """The fault of `nodes`, with what makes it go away: both as it was found, `whole`, and reduced, because what is
    left of a bias that a converter loses may be zeros of which only a quantizer's parameters still tell. What was known
    before is not reduced."""
    if examined.verdict.word is Word.HANGS:
        return Diagnosis(nodes, examined)
    finding = examined.finding
    small = replace(whole, case=finding.case, recipe=finding.recipe) if finding else whole
    verdict = finding.verdict if finding else examined.verdict
    inquiry.tell("trying options")
    found: list[Remedy] = []

    def holds(remedy: Remedy) -> bool:
        return not inquiry.watch(with_options(whole, {remedy.option: remedy.value}))[0].failed

    try:
        found.extend(filter(holds, remedies(small, verdict, inquiry.watch)))
        stage = stage_at_fault(small, verdict, found, inquiry.watch)
    except ExhaustedError:
        stage = ""
    return Diagnosis(nodes, examined, tuple(found), stage)


def _vouches(verdict: Verdict) -> bool:
    """Whether values were compared, and are right. Of outputs without elements shapes and dtypes are all there is."""
    return verdict.word is Word.AGREES and verdict.tier != Tier.STRUCTURE


def _overall(
    whole: Verdict, diagnoses: Sequence[Diagnosis], unconfirmed: Verdict | None, rule: str, vouched: float
) -> Verdict:
    """The verdict on the model: any failure; agreement where the windows agree, or `rule` excuses every fault."""
    if diagnoses:
        first = diagnoses[0].examination.verdict
        if rule:
            return Verdict(
                Word.AGREES, Tier.WINDOWS, rule=rule, message=f"but for what is documented or known: {first.message}"
            )
        return whole if whole.failed else first
    if unconfirmed:
        message = f"failed once, but not again in fresh processes: {unconfirmed.word} in {unconfirmed.stage}"
        return replace(unconfirmed, word=Word.ABSTAINS, message=f"{message}: {unconfirmed.message}")
    if whole.word is Word.AGREES and not _vouches(whole) and vouched < ENOUGH:
        return replace(whole, word=Word.ABSTAINS, message="no output has elements that could be compared")
    if whole.word is Word.ABSTAINS and vouched >= ENOUGH:
        return Verdict(Word.AGREES, Tier.WINDOWS, message=f"in windows; end to end nobody can tell: {whole.message}")
    return whole


def _named(case: Case, fault: Fault) -> tuple[tuple[str, str], ...]:
    """(name, operator) of its nodes; nodes without a name are called after what they make."""
    nodes = [case.proto.graph.node[i] for i in fault.nodes]
    return tuple((node.name or next(name for name in node.output if name), node.op_type) for node in nodes)


def _excuse(known_issues: Sequence[KnownIssue], diagnoses: Sequence[Diagnosis]) -> str:
    """The rule by which the faults are no failure of the model, "" where one of them is.

    They are documented; or they are kernels that the corpus knows to be off by a step, which is a finding once for an
    operator, not once for every model that has it.
    """
    documented = {issue.id: issue.saved.rule for issue in known_issues}

    def rule(examined: Examination) -> str:
        known, a_step = examined.known, examined.verdict.kind == Kind.OFF_BY_ONE_STEP
        return documented.get(known, "") or (str(Kind.OFF_BY_ONE_STEP) if known and a_step else "")

    rules = [rule(diagnosis.examination) for diagnosis in diagnoses]
    return rules[0] if rules and all(rules) else ""


def _random_outputs(case: Case) -> tuple[str, ...]:
    """The outputs of which two right runs may differ, so that nothing is said by how far these are apart."""
    graph = read(case.proto, case.file)
    return tuple(name for name in graph.outputs if any(is_random(node, graph) for node in graph.ancestors(name)))


def _errors(trial: Trial, observation: Observation) -> dict[str, tuple[float, float]]:
    """Of each output the largest error over all feeds, and the largest magnitude it should have."""
    errors: dict[str, tuple[float, float]] = {}
    for got, expected in zip(observation.outputs, trial.runner.reference.run(trial.case).outputs):
        for name, right in expected.items():
            error = math.inf
            if name in got and got[name].shape == right.shape:
                error = float(distance(got[name], right).max(initial=0.0))
            size = float(distance(right, np.zeros_like(right)).max(initial=0.0)) if right.dtype.kind in "biuf" else 0.0
            before = errors.get(name, (0.0, 0.0))
            errors[name] = (max(before[0], error), max(before[1], size))
    return errors
