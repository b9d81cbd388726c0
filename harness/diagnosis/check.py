"""One real model on one target: what is wrong, which nodes do it, and a small case that shows it.

The model as a whole tells whether every stage runs, and whether what comes out can be right at all; its windows tell
where it goes wrong, and vouch for the rest. Each fault is then examined as any other case: confirmed, known or reduced.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from driftnet.diagnosis import kernels
from driftnet.diagnosis.attribution import Remedy, remedies, stage_at_fault, under, with_options
from driftnet.diagnosis.end_to_end import Impact, References, impact, losses
from driftnet.diagnosis.inside import Inside, in_form, look_inside, made_by_cutting, off
from driftnet.diagnosis.likeness import unlike
from driftnet.diagnosis.localize import Fault, Search, alike, locate
from driftnet.diagnosis.result import Checked, Cost, Culprit, Diagnosis
from driftnet.diagnosis.usability import nothing_quantized
from driftnet.diagnosis.views import Distribution, Point, along_the_depth, around, distribution
from driftnet.findings.issues import KnownIssue, KnownIssues
from driftnet.findings.pipeline import Effort, Examination, examine
from driftnet.findings.trial import TOO_MUCH, Ran, Trial, look, watch
from driftnet.model.framed import framed
from driftnet.model.graph import read
from driftnet.model.inspect import Case, Feed, computing, digest, has_any
from driftnet.model.operators import Trait
from driftnet.model.signature import folder_name
from driftnet.model.submodel import Recording, UnrecordedError, reads, recording_within, submodel
from driftnet.model.verdict import Kind, Observation, Outcome, Tier, Verdict, Word
from driftnet.model.windows import Judged, Window, live_nodes, nodes_of, seams, split, survey
from driftnet.oracle.ball_arithmetic.creation import random_tensors
from driftnet.oracle.judge import BEFORE, cut_tensors, of_nearest_codes, of_wrong_weights
from driftnet.oracle.tolerances.table import LEAST_CHANGE, LEAST_SHARE, LOST
from driftnet.reduce.passes import bisect
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import INTERRUPTED
from driftnet.reduce.subgraphs import entered
from driftnet.run.reference import ReferenceError, ReferenceRun
from driftnet.run.sandbox.allowance import Allowance
from driftnet.targets.recipe import unquantized

ENOUGH = 0.95
"""Share of nodes that have to be vouched for where no tier can judge a model end to end."""

RUNS, RUNS_A_NODE = 300, 1.5
"""How often a target may be run for one model and recipe: whichever is more. Constants and Q/DQ are no nodes here."""

SURVEYED, FAILING_SURVEYED, NARROWED = 0.7, 0.45, 0.6
"""The shares of these runs after which no further window is judged, the same of a model that fails, and after which no
fault is looked for."""


RESERVED = 60
"""Runs that a reduction leaves for confirming it and for trying options."""

MOST_INSIDE = 20.0
"""Seconds that looking inside the converted model may take, which costs a run for each tensor."""

BUDGET = "budget"
"""The rule by which a check abstains that was spent before the model was judged, or before a failure was confirmed."""

CONFIRMING, SPARED, FAILING_SPARED = 3, 0.1, 0.3
"""What windows and the search for faults leave for confirming what they find: so many times the CPU time of the model's
first run, but of one of which something comes out at most this share of what is left, and if it is wrong the other."""

VOUCHING = 0.5
"""The share of the time left that windows of a model leave of which a fault is found already: these only vouch."""

DEAR = 1.5
"""CPU seconds of a first run from which on a model of which something comes out is looked into on one feed."""

REDUCED = 0.8
"""The share of the CPU time left that a reduction may take: what it comes to is confirmed in the rest."""

FLOAT = (Tier.EXACT, Tier.RUNNING_ERROR, Tier.SAMPLING)
"""The tiers that accuse what no noise of quantizing is in."""

WEIGHED = 0.5
"""The share of what is left for confirming that weighing faults may take: what does nothing is not confirmed."""

EXPLAINED = 0.5
"""Faults that explain less than this share of the error together work on each other: a small share acquits none."""

CUTTING = "codes that are cut, not rounded"
"""What excuses a part whose results are whole codes, but not the nearest, as its target declares."""

DIAGNOSED = 3
"""Faults of different operators that are examined, each; of the others the nodes are named."""


@dataclass(frozen=True, eq=False)
class Inquiry:
    """The trial of one model, and what its examination may cost.

    allowance  of CPU time, after which nothing is run;   spared   seconds of it that are left for confirming
    dear      whether one run of the model takes long
    started, limit   runs of the target when it began, and how many it may take
    tell      hears what is being done, for people
    inside    the tensors of the intact artifact, where these are known and tell right from wrong
    suspects  parts that go wrong there, though not by themselves;   suspected  tensors that do, where these were not
              asked for as a whole
    given     the model as it was given; that of `trial` has the branches that are taken in the place of its Ifs
    samples   those by which that was calibrated
    answers   whether outputs of the right form come out of the model: a part of it without may be cut out only
    frames    such parts, by their digests, as they stand in the model
    """

    trial: Trial
    known_issues: Sequence[KnownIssue]
    allowance: Allowance
    spared: float
    tell: Callable[[str], None]
    started: int
    limit: int
    dear: bool = False
    inside: Inside | None = None
    suspects: list[Case] = field(default_factory=list)
    suspected: list[str] = field(default_factory=list)
    given: Case | None = None
    samples: tuple[Feed, ...] = ()
    answers: bool = False
    frames: dict[str, Case] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        """The model."""
        return self.trial.case

    @property
    def intact(self) -> Trial:
        """The trial of the artifact that is there: fewer samples for windows would make another one."""
        return replace(self.trial, case=replace(self.case, calibration=self.samples or self.case.calibration))

    @property
    def left(self) -> int:
        """Runs that are left."""
        return self.limit - (self.trial.runner.target_runs - self.started)

    def look(self, case: Case, share: float = 1.0, *, plain: bool = False) -> Verdict:
        """The verdict on a run of a part, as it stands in the model where it fails for being cut out only. Raises
        ExhaustedError once the time or this share of the runs is spent.

        plain   on what it is before it is quantized: a run of that takes a tenth of one with calibration
        """
        if self.left <= (1 - share) * self.limit:
            raise ExhaustedError
        trial = replace(self.trial, case=case)
        if plain:
            trial = replace(trial, recipe=unquantized(trial.target, trial.recipe))
        verdict = self.judged(trial)
        if not self.answers or not verdict.failed or verdict.in_values:
            return verdict
        if within := framed(self.case, case):
            trial = replace(trial, case=within)
            there = self.judged(trial)
            if there.in_values or not there.failed:
                self.frames[digest(case)] = within
                return there
        return verdict

    def survey(self, case: Case, share: float) -> Verdict:
        """The verdict on a part from the inside of the intact artifact, where that agrees; else `look`."""
        within = self.inside.verdict(case) if self.inside and self.in_time else None
        if within and within.word is Word.AGREES:
            return within
        alone = self.look(case, share)
        if within and within.failed and not alone.failed:
            self.suspects.append(case)
        return alone

    def judged(self, trial: Trial) -> Verdict:
        """The verdict on one run, but for the rounding of fast kernels."""
        ran = self.watch(trial)
        return kernels.judged(trial, *ran, partial(self.watch, like=ran))

    def watch(self, trial: Trial, like: Ran | None = None) -> Ran:
        """One run; like as of `watch`. Raises ExhaustedError once the time is spent."""
        if not self.in_time:
            raise ExhaustedError
        return watch(trial, like=like) if like else watch(trial)

    def reducing(self) -> bool:
        """Says how far a reduction is, and never that it should stop."""
        self.tell(f"reducing: {self.limit - self.left} runs, {self.allowance.left:.0f} CPU seconds left")
        return False

    @property
    def in_time(self) -> bool:
        """Whether something new may be begun."""
        return self.allowance.left > self.spared


@dataclass(eq=False)
class Found:
    """What a check has come to. It grows as the check goes on, so that somebody may end it and keep what there is.

    target        its name;   ended   how the model fails, if nothing comes out of it;   again   in a fresh process too
    distributions   of a fault, by its nodes, of what it gets wrong;   depth   as of a Checked
    impacts       of a fault, by its nodes, what it does to the outputs; None where nobody can tell
    unconfirmed   a failure that fresh processes did not show again;   interrupted   somebody ended the check
    cut           what was ended because the time was spent, before a fault had been examined
    unlocated     how a window fails that nobody had the time to look into
    unsought      the time or the runs for it were spent before all faults had been looked for
    hasty         the time was spent before all faults had been looked for and weighed
    unheard       it was spent before anybody knew whether the model fails for the rounding of a fast kernel only
    unweighed     it was spent before all had been weighed that is right by a rule only
    """

    target: str
    ended: Verdict | None
    judged: list[Judged] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    impacts: dict[tuple[int, ...], Impact | None] = field(default_factory=dict)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    distributions: dict[tuple[int, ...], Distribution | None] = field(default_factory=dict)
    depth: tuple[Point, ...] = ()
    again: bool = False
    unconfirmed: Verdict | None = None
    interrupted: bool = False
    cut: str = ""
    unlocated: Verdict | None = None
    unsought: bool = False
    hasty: bool = False
    unheard: bool = False
    unweighed: bool = False
    excused: list[tuple[tuple[int, ...], str, Impact]] = field(default_factory=list)
    needed: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    def is_beside(self, fault: Fault) -> bool:
        """Whether `fault` fails otherwise than the model, of which nothing comes out: that fails by none of these, and
        they may be there for being cut only."""
        return self.ended is not None and not alike(self.target, fault.verdict, self.ended)


def check(
    trial: Trial,
    known_issues: Sequence[KnownIssue],
    *,
    seconds: float = math.inf,
    tell: Callable[[str], None] = lambda text: None,
) -> Checked:
    """Check one model. Raises nothing on account of the target or of the reference.

    seconds   CPU time after which nothing new is begun, and what runs is ended;   tell   hears what is being done, for
              people
    """
    allowance = trial.runner.allow(seconds)
    with trial.runner.within(allowance):
        return _checked(trial, known_issues, allowance, tell)


def _checked(
    trial: Trial, known_issues: Sequence[KnownIssue], allowance: Allowance, tell: Callable[[str], None]
) -> Checked:
    if not trial.calibrates:  # or every tensor would be recorded for every sample
        trial = replace(trial, case=replace(trial.case, calibration=()))
    case, started = trial.case, trial.runner.target_runs
    nodes = [case.proto.graph.node[i] for i in computing(case.proto.graph)]
    counted = sum(not has_any(node, Trait.QUANTIZES | Trait.DEQUANTIZES) for node in nodes)
    limit, before = max(RUNS, int(RUNS_A_NODE * counted)), trial.runner.all_cpu_seconds
    tell("the whole model")
    try:
        verdict, observation = watch(trial)
    except ExhaustedError as e:
        message = f"the budget was spent before the model was judged: {e}"
        return Checked(Verdict(Word.ABSTAINS, message=message, rule=BUDGET))
    first = trial.runner.all_cpu_seconds - before
    spared = CONFIRMING * first
    if verdict.in_values or not verdict.failed:
        spared = min(spared, (FAILING_SPARED if verdict.failed else SPARED) * allowance.left)
    unheard = False
    try:
        trial, verdict, observation = kernels.uncovered(trial, verdict, observation)
    except ExhaustedError:
        unheard = True
    if observation is None and verdict.rule != TOO_MUCH:
        return Checked(verdict, culprits=tuple(Culprit(*pair) for pair in verdict.culprits))
    random = _random_outputs(case)
    asked = trial.runner.reference.run(case)
    right = asked.outputs
    if observation and observation.outputs and not right:  # its answer was forgotten for larger ones
        return _uncompared(verdict, observation, allowance, asked)
    table = losses(observation.outputs, right, random) if observation else []
    unquantized = _unquantized(trial, observation) if observation else ""
    checked = Checked(verdict, observation, end_to_end=tuple(table), random=random, unquantized=unquantized)
    if verdict.word is Word.AGREES and verdict.tier is Tier.EXACT and not verdict.rule:
        return replace(checked, vouched=1.0)
    if verdict.word is Word.REJECTS:
        return checked
    hurried = trial.hurried(verdict, observation) if observation else trial
    answers = bool(observation and observation.outputs) and (verdict.in_values or not verdict.failed)
    dear = first > DEAR
    inquiry = Inquiry(hurried, known_issues, allowance, spared, tell, started, limit, dear, answers=answers)
    try:
        alone = partial(inquiry.watch, like=(verdict, observation))
        checked = replace(checked, verdict=kernels.judged(trial, verdict, observation, alone, whole=True))
    except ExhaustedError:
        unheard = True
    return _with_costs(inquiry, _localized(inquiry, checked, unheard))


def _uncompared(verdict: Verdict, observation: Observation, allowance: Allowance, asked: ReferenceRun) -> Checked:
    """What is known where the reference, which was `asked` once more, has not said what is right."""
    culprits = tuple(Culprit(*pair) for pair in verdict.culprits)
    spent = allowance.spent or bool(allowance.cut)
    if not verdict.failed or (spent and verdict.in_values):
        why = "the budget was spent" if spent else f"the reference's answer was lost ({asked.error or asked.broken})"
        message = f"{why} before what comes out could be compared"
        message = f"undecided, for {message}: {verdict.message}" if verdict.failed else message
        verdict = replace(verdict, word=Word.ABSTAINS, message=message, rule=BUDGET if spent else "")
    return Checked(verdict, observation, culprits=culprits)


def _unquantized(trial: Trial, observation: Observation) -> str:
    """Why nothing is quantized, where the recipe says so and the artifact is a model that tells."""
    data = observation.artifact.model
    if not trial.quantizes or data is None:
        return ""
    try:
        return nothing_quantized(trial.case.proto, onnx.ModelProto.FromString(data))
    except Exception:  # protobuf's DecodeError, whose module has no types
        return ""


def _with_costs(inquiry: Inquiry, checked: Checked) -> Checked:
    """`checked` with what the kernels cost by whose rounding something was excused: of the output that they move most,
    how far they do, and how far off it is without them."""
    named = {verdict.rule for verdict in (checked.verdict, *(judged.verdict for judged in checked.judged))}
    costs = []
    for kernel in kernels.used(inquiry.trial):
        if kernel.name not in named:
            continue
        with contextlib.suppress(ExhaustedError):
            _, seen = inquiry.watch(with_options(inquiry.trial, kernel.without))
            moved = losses(checked.outputs, seen.outputs, checked.random) if seen and seen.outputs else []
            worst = max(moved, key=lambda row: row.change, default=None)
            if worst and worst.change:
                right = losses(seen.outputs if seen else (), inquiry.trial.runner.reference.run(inquiry.case).outputs)
                left = next((row.change for row in right if row.output == worst.output), math.inf)
                costs.append(Cost(kernel.name, worst.output, worst.change, left, dict(kernel.without)))
    verdict = checked.verdict
    if verdict.word is Word.AGREES and (dear := next((c for c in costs if c.moved >= LOST > 2 * c.left), None)):
        message = f"right by the rules, but not usable: {dear}"
        verdict = Verdict(Word.DIVERGES, Tier.WINDOWS, "execute", Kind.WRONG_VALUES, message, rule=dear.kernel)
    elif verdict.word is Word.AGREES and costs:
        verdict = replace(verdict, rule=verdict.rule or costs[0].kernel, message="; ".join(map(str, costs)))
    return replace(checked, verdict=verdict, costs=tuple(costs))


def _localized(inquiry: Inquiry, checked: Checked, unheard: bool) -> Checked:
    """`checked` with what the windows say, and the faults; unheard as of a Found."""
    whole = checked.verdict
    ended = whole if whole.failed and not checked.outputs else None
    found = Found(inquiry.trial.target.name, ended, unheard=unheard)
    try:
        found.again = _fails_again(inquiry, found.ended)
        inquiry = _entered(_with_one_feed(inquiry, whole), found.ended)
        _find(inquiry, checked, found)
    except KeyboardInterrupt:
        if not (whole.failed or found.faults):
            raise
        found.interrupted = True
    case = inquiry.case
    diagnoses, serious, harmless = found.diagnoses, _serious(found), _harmless(checked, found)
    examined = len(diagnoses) >= len(_sorts(case, serious)) and (whole.in_values or not whole.failed)
    rule = _excuse(inquiry.known_issues, diagnoses, lost=_is_lost(checked)) if examined else ""
    wrong = {node for fault in serious for node in fault.nodes}
    noted = {node for fault in found.faults if not found.is_beside(fault) for node in fault.nodes} - wrong
    right = [
        j
        for j in found.judged
        if _vouches(j.verdict)
        or (j.verdict.in_values and (rule or (not noted.isdisjoint(j.nodes) and wrong.isdisjoint(j.nodes))))
    ]
    affirmed = {node for j in right for node in j.nodes}
    live, graph = live_nodes(case), case.proto.graph
    doubtful = Counter(graph.node[i].op_type for i in live if i not in affirmed)
    vouched = 1 - doubtful.total() / max(1, len(live))
    if harmless:
        message = f"but for what does nothing to the outputs: {harmless.verdict.message}"
        whole = Verdict(Word.AGREES if vouched >= ENOUGH else Word.ABSTAINS, Tier.WINDOWS, message=message)
    verdict = _overall(whole, found, serious, rule, vouched)
    culprits = _culprits(case, [_needed(case, fault, found.needed) for fault in serious], found.impacts)
    culprits = culprits or _blamed(diagnoses)
    if found.excused and not verdict.failed:
        verdict, culprits = _not_usable(case, found)
    elif not verdict.failed and _undecided(checked) and (unexplained := _unexplained(inquiry, checked, found)):
        rule = BUDGET if found.unsought else verdict.rule
        verdict = replace(verdict, word=Word.ABSTAINS, message=f"{unexplained}: {verdict.message}", rule=rule)
    elif found.unweighed and verdict.word is Word.AGREES:
        message = "an output is lost, and the budget was spent before it was known whether what a rule excuses does it"
        verdict = replace(verdict, word=Word.ABSTAINS, message=f"{message}: {verdict.message}", rule=BUDGET)
    verdict = _of_what_is_lost(checked, found, serious, verdict)
    if verdict.failed and (unasked := _unasked(inquiry, checked, found, serious)):
        message = f"undecided, for the budget was spent before it was known {unasked}: {verdict.message}"
        verdict = replace(verdict, word=Word.ABSTAINS, message=message, rule=BUDGET)
    return replace(
        checked,
        verdict=verdict,
        judged=tuple(found.judged),
        vouched=vouched,
        doubtful=dict(doubtful.most_common()),
        culprits=culprits,
        notes=_culprits(case, [fault for fault in found.faults if fault not in serious], found.impacts),
        diagnoses=tuple(diagnoses),
        depth=found.depth,
        interrupted=found.interrupted,
    )


def _fails_again(inquiry: Inquiry, ended: Verdict | None) -> bool:
    """Whether a model of which nothing comes out fails in a fresh process too. It is asked first: that is the word on
    the model, though windows may eat the time for anything else. To see a hang again costs more than that is worth."""
    if ended is None or ended.word is Word.HANGS:
        return False
    with contextlib.suppress(ExhaustedError):
        return alike(inquiry.trial.target.name, look(inquiry.trial, fresh=True), ended)
    return False


def _with_one_feed(inquiry: Inquiry, whole: Verdict) -> Inquiry:
    """The inquiry with one feed and one sample, where runs are dear, and a model that fails does so on these too: of
    what ends a model most windows run to their end, and a quantizer takes as long as it has samples."""
    case, given = replace(inquiry.case, feeds=inquiry.case.feeds[:1], calibration=inquiry.case.calibration[:1]), inquiry
    ends, hangs = whole.failed and not whole.in_values, whole.word is Word.HANGS
    if hangs or not (ends or inquiry.dear) or len(case.runs) == len(given.case.runs):
        return given
    fewer = replace(given, trial=replace(given.trial, case=case), samples=given.case.calibration or given.case.feeds)
    with contextlib.suppress(ExhaustedError):
        if not whole.failed or alike(given.trial.target.name, fewer.watch(fewer.trial)[0], whole):
            inquiry.tell(f"windows on 1 of {len(given.case.feeds)} inputs: with all of them each run takes long")
            return fewer
    return given


def _entered(inquiry: Inquiry, ended: Verdict | None) -> Inquiry:
    """The inquiry into what stands inside the Ifs of the model, of which no window could be cut; into the model as it
    is where nothing comes out of it because of the Ifs."""
    given = replace(inquiry, given=inquiry.case)
    try:
        case = entered(inquiry.case, inquiry.trial.runner.reference.record)
    except ReferenceError:
        return given
    if case is inquiry.case:
        return given
    inside = replace(given, trial=replace(inquiry.trial, case=case), samples=())
    if ended:
        with contextlib.suppress(ExhaustedError):
            if not alike(inquiry.trial.target.name, inside.watch(inside.trial)[0], ended):
                return given
    return inside


def _find(inquiry: Inquiry, checked: Checked, found: Found) -> None:
    whole = checked.verdict
    try:
        case, recorded = recording_within(inquiry.case, inquiry.trial.runner.reference.record)
    except ReferenceError as e:
        inquiry.tell(f"no windows: {e}")
    else:
        if len(case.runs) < len(inquiry.case.runs):
            inquiry.tell(f"windows on {len(case.feeds)} of {len(inquiry.case.feeds)} inputs: all tensors are too large")
            inquiry = replace(inquiry, trial=replace(inquiry.trial, case=case))
        inquiry = replace(inquiry, inside=_inside(inquiry, recorded, checked))
        weighing = replace(inquiry, spared=WEIGHED * inquiry.spared)
        if lost := _undecided(checked) and not inquiry.inside:
            _locate(inquiry, recorded, [], whole, found, lost)
        known, windows = bool(found.faults), split(inquiry.case, recorded)
        for pieces in (windows, seams(inquiry.case, windows)):
            if pieces is not windows and (known or _is_explained(inquiry.case, checked, found)):
                break
            before = len(found.judged)
            kept = VOUCHING * inquiry.allowance.left if known and math.isfinite(inquiry.allowance.left) else 0.0
            _survey(replace(inquiry, spared=max(inquiry.spared, kept)), recorded, whole, found, pieces)
            failing = _failing(inquiry.trial.target.name, found.judged[before:], whole)
            if failing or not (pieces is windows or found.faults or lost):
                found.unlocated = _locate(inquiry, recorded, failing, whole, found) or found.unlocated
            _weigh(weighing, recorded, checked, found)
        verdicts = [*(judged.verdict for judged in found.judged), *(fault.verdict for fault in found.faults)]
        found.depth = along_the_depth(inquiry.case, verdicts, inquiry.inside, recorded)
        try:
            with contextlib.suppress(ReferenceError):
                _weigh_excuses(weighing, recorded, checked, found)
        except ExhaustedError:
            found.unweighed = True
    found.hasty = not inquiry.in_time
    if not _harmless(checked, found):
        _diagnose(inquiry, whole, found)
    if found.judged:
        _judge_the_rest(inquiry, recorded, found)


def _judge_the_rest(inquiry: Inquiry, recorded: Recording, found: Found) -> None:
    """Vouch for what is right beside the nodes at fault, in windows that fail by these. What fails there, too, was not
    found to be at fault, and stays undecided."""
    wrong = {node for fault in found.faults for node in fault.nodes}
    failing = [j.window for j in found.judged if j.verdict.failed and not wrong.isdisjoint(j.nodes)]
    rests = dict.fromkeys(tuple(unit for unit in window if wrong.isdisjoint(unit)) for window in failing)
    affirmed = {node for j in found.judged if _vouches(j.verdict) for node in j.nodes}
    pieces = [rest for rest in rests if not affirmed.issuperset(nodes_of(rest))]
    with contextlib.suppress(ExhaustedError):
        judged = survey(inquiry.case, recorded, inquiry.look, lambda verdict: verdict.failed, pieces)
        found.judged.extend(one for one in judged if _vouches(one.verdict))


def _inside(inquiry: Inquiry, recorded: Recording, checked: Checked) -> Inside | None:
    """The inside of the intact artifact, where asking for it costs little, and no noise of quantization is in it."""
    trial, runs = inquiry.trial, checked.observation.stages if checked.observation else ()
    once = sum(run.seconds for run in runs if run.stage == "execute")
    if trial.target.tap is None or trial.quantizes or not runs or runs[-1].outcome != Outcome.OK:
        return None
    if once * len(recorded.feeds[0]) > MOST_INSIDE:
        return None
    inquiry.tell("looking inside the converted model")
    return look_inside(trial, recorded)


def _survey(inquiry: Inquiry, recorded: Recording, whole: Verdict, found: Found, pieces: Sequence[Window]) -> None:
    live, share = len(live_nodes(inquiry.case)), FAILING_SURVEYED if whole.failed else SURVEYED

    def explains(verdict: Verdict) -> bool:
        return _is_wrong(verdict, whole) and (verdict.in_values or not whole.in_values)

    try:
        look = partial(inquiry.survey, share=share)
        for one in survey(inquiry.case, recorded, look, explains, pieces):
            found.judged.append(one)
            seen = {node for j in found.judged for node in j.nodes}
            inquiry.tell(f"windows: {len(seen)} of {live} nodes")
    except ExhaustedError:
        inquiry.tell("windows: the budget is spent")


def _is_explained(case: Case, checked: Checked, found: Found) -> bool:
    """Whether what is found explains the failure, or the loss of an output, or is all that the whole is accused for:
    then nobody looks at the cuts between windows, which are twice as many."""
    accused = checked.verdict.culprits if checked.verdict.failed else ()
    if accused and {pair for fault in found.faults for pair in _named(case, fault)}.issuperset(accused):
        return True
    if checked.verdict.failed and not checked.outputs:
        return any(not found.is_beside(fault) for fault in found.faults)
    said = [found.impacts.get(fault.nodes) for fault in found.faults]
    return sum(weighed.share for weighed in said if weighed) >= EXPLAINED


def _is_wrong(verdict: Verdict, whole: Verdict) -> bool:
    """Whether a window's failure is one of the model's. A part may fail to run for being cut out; then it says nothing
    where the whole runs."""
    return verdict.failed and (whole.failed or verdict.in_values)


def _failing(target: str, judged: Sequence[Judged], whole: Verdict) -> list[Judged]:
    """The windows to be narrowed: those that fail as the model does, if there are any. To find which node is wrong
    beside what ends a model takes longer than all else."""
    wrong = [j for j in judged if _is_wrong(j.verdict, whole)]
    return [j for j in wrong if whole.failed and alike(target, j.verdict, whole)] or wrong


def _locate(
    inquiry: Inquiry, recorded: Recording, failing: Sequence[Judged], whole: Verdict, found: Found, lost: bool = False
) -> Verdict | None:
    """Adds to the faults that are `found`; how a window fails of which the budget did not reach to say why.

    lost   of an output nothing is left, nobody can tell whether that is right, and no window was asked yet
    """
    before = [judged for judged in failing if judged.verdict.message.startswith(BEFORE)]
    rest = [judged for judged in failing if judged not in before]
    try:
        suspects = _suspects(inquiry, recorded)
        if lost:
            suspects = _first_lost(inquiry, recorded)
            inquiry.suspected.extend(suspects)
        early = before or inquiry.suspected  # it fails before it is quantized, or may
        for plain, windows in (*([(True, before)] if early else []), *([(False, rest)] if rest or not early else [])):
            look = partial(inquiry.look, share=NARROWED, plain=plain)
            search = Search(inquiry.case, recorded, look, inquiry.trial.target.name)
            for fault in locate(search, windows, whole, suspects):
                found.faults.append(fault)
                inquiry.tell(f"at fault: {', '.join(' '.join(pair) for pair in _named(inquiry.case, fault))}")
    except ExhaustedError:
        inquiry.tell("localization: the budget is spent")
        found.unsought = True
        located = {node for fault in found.faults for node in fault.nodes}
        return next((j.verdict for j in failing if located.isdisjoint(j.nodes)), None)
    return None


def _suspects(inquiry: Inquiry, recorded: Recording) -> list[str]:
    """The tensors, in order, that the intact artifact gets wrong from right ones, though a model of their own is right:
    what single nodes make, else what a part does."""
    graph, inside = inquiry.case.proto.graph, inquiry.inside
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    found: set[str] = set()
    for part in inquiry.suspects:
        nodes = sorted({makers[name] for node in part.proto.graph.node for name in node.output if name in makers})
        for node in nodes:
            with contextlib.suppress(UnrecordedError, ValueError):
                verdict = inside.verdict(submodel(inquiry.case, [node], recorded)) if inside else None
                if verdict and verdict.failed:
                    found.update(name for name in graph.node[node].output if name)
                    break
        else:
            found.update(value.name for value in part.proto.graph.output)
    return sorted(found, key=lambda name: makers.get(name, 0))


def _first_lost(inquiry: Inquiry, recorded: Recording) -> list[str]:
    """The first tensor of the intact artifact of which nothing is left before it is quantized, as a bisection finds it:
    of an artifact into which it takes too long to look as a whole. None where it cannot be asked."""
    graph, right, trial = inquiry.case.proto.graph, recorded.feeds[0], inquiry.trial
    trial = replace(trial, recipe=unquantized(trial.target, trial.recipe))
    live, decided = live_nodes(inquiry.case), set[str]()  # behind a decision rounding explains the loss of anything
    for node in (graph.node[i] for i in live):
        floats = [name for name in reads(node) if name in right and right[name].dtype.kind == "f"]
        if (has_any(node, Trait.DECIDES) and floats) or not decided.isdisjoint(reads(node)):
            decided.update(node.output)
    names = [name for i in live for name in graph.node[i].output if name in right and name not in decided]
    names = [name for name in names if right[name].dtype.kind == "f" and right[name].any()]
    if trial.target.tap is None or not names:
        return []
    inquiry.tell("looking for the first tensor that is lost inside of the converted model")

    def is_lost(count: int) -> bool:
        for name in names[count - 1 :: -1]:  # a fusion takes some of them away
            if not inquiry.in_time:
                raise ExhaustedError
            if name in (seen := look_inside(trial, recorded, [name]).tensors[0]):
                return off(seen[name], right[name]) >= LOST
        return False

    return [names[bisect(len(names), is_lost) - 1]] if is_lost(len(names)) else []


def _weigh(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """What each fault does to the outputs; the faults are put in that order, without those that cutting made."""
    outputs = checked.outputs
    if not outputs or not found.faults:
        return
    trial, reference = inquiry.trial, References(recorded.feeds, inquiry.trial.runner.reference.outputs)
    names = [value.name for fault in found.faults for value in fault.case.proto.graph.output]
    with contextlib.suppress(ExhaustedError):
        inside = inquiry.inside or look_inside(inquiry.intact, recorded, names)
        for fault in tuple(found.faults):
            _, seen = inquiry.watch(replace(trial, case=fault.case))
            if not seen or not seen.outputs:
                continue
            if digest(fault.case) in inquiry.frames:
                seen = replace(seen, outputs=tuple(map(in_form, seen.outputs, recorded.feeds)))
            alone = fault.verdict.failed and not _is_wrong(fault.verdict, checked.verdict)
            if alone or made_by_cutting(fault, seen.outputs, inside, recorded):
                found.faults.remove(fault)
            else:
                found.impacts[fault.nodes] = _impact(inquiry, fault, seen, outputs, reference)
                wrong = fault.verdict.output
                found.distributions[fault.nodes] = distribution(wrong, seen.outputs, recorded.feeds)
        _keep_intertwined(inquiry, recorded, checked, found)
        _keep_drowned(inquiry, found)

    def share(fault: Fault) -> float:
        weighed = found.impacts.get(fault.nodes)
        return weighed.share if weighed else 0.0

    found.faults.sort(key=share, reverse=True)


def _keep_intertwined(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """Let nobody tell the share of a fault that the intact artifact has too, where faults work on each other: of a
    fraction whose two sums are wrong, either alone may be farther off than both."""
    trial, weighed = inquiry.trial, {nodes: said for nodes, said in found.impacts.items() if said}
    if trial.target.tap is None or trial.quantizes or sum(said.share for said in weighed.values()) >= EXPLAINED:
        return
    off = [row.relative_l2 for row in checked.end_to_end if math.isfinite(row.relative_l2)]
    least = max(LEAST_CHANGE, LEAST_SHARE * max(off, default=0.0))
    acquitted = [f for f in found.faults if (said := weighed.get(f.nodes)) and said.negligible and said.change >= least]
    graphs = [fault.case.proto.graph for fault in acquitted]
    names = [value.name for part in graphs for value in (*part.input, *part.output)]
    inside = inquiry.inside or (look_inside(inquiry.intact, recorded, names) if names else None)
    for fault in acquitted:
        within = inside.verdict(fault.case) if inside else None
        if within and within.failed:
            found.impacts[fault.nodes] = None


def _keep_drowned(inquiry: Inquiry, found: Found) -> None:
    """Let no share tell of a fault without noise that only the noise of quantizing makes a small one: what it does is
    held against the other faults."""
    weighed = {fault: said for fault in found.faults if (said := found.impacts.get(fault.nodes))}
    most = max((said.change for said in weighed.values()), default=0.0)
    for fault, said in weighed.items():
        if inquiry.trial.quantizes and fault.verdict.tier in FLOAT and said.change**2 >= LEAST_SHARE * most**2:
            found.impacts[fault.nodes] = replace(said, drowned=True)


def _impact(
    inquiry: Inquiry,
    fault: Fault,
    seen: Observation,
    outputs: Sequence[Mapping[str, np.ndarray]],
    reference: References,
) -> Impact | None:
    """What a fault does to the outputs; where weights are wrong what these do, without the noise of the others."""
    trial, recorded = inquiry.trial, inquiry.trial.runner.reference
    if fault.verdict.stage == "quantize":
        pair = of_wrong_weights(fault.case, seen, target=trial.target, options=trial.options, reference=recorded)
        if pair:
            return impact(inquiry.case, fault, pair[0], outputs, reference, innocent=pair[1])
    noisy = trial.quantizes and fault.verdict.tier not in FLOAT
    return impact(inquiry.case, fault, seen.outputs, outputs, reference, noisy=noisy)


def _weigh_excuses(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """What is right by a rule only is carried to the outputs too, where one of these is lost. The noise of rounding to
    codes is no part of it; nor are floats that would move the outputs as much if they were rounded once more."""
    if checked.verdict.failed or _serious(found) or not _is_lost(checked):
        return
    trial, recorder = inquiry.trial, inquiry.trial.runner.reference
    reference = References(recorded.feeds, recorder.outputs)
    parts = [(tuple(j.nodes), j.verdict.rule) for j in found.judged if _vouches(j.verdict) and j.verdict.rule]
    if trial.quantizes and checked.observation:
        cut = cut_tensors(
            trial.case, checked.observation, target=trial.target, options=trial.options, reference=recorder
        )
        nodes = trial.case.proto.graph.node
        parts = [((i,), CUTTING) for i in live_nodes(trial.case) if not cut.isdisjoint(nodes[i].output)]
    for excused, rule in parts:
        with contextlib.suppress(UnrecordedError, ReferenceError):  # of what cannot be cut out nobody can tell
            part = submodel(inquiry.case, excused, recorded, shared=True)
            verdict, seen = inquiry.watch(replace(trial, case=part))
            if not seen or not seen.outputs:
                continue
            rounded: Sequence[Mapping[str, np.ndarray]] | None
            if trial.quantizes:
                rounded = of_nearest_codes(part, seen, target=trial.target, options=trial.options, reference=recorder)
            else:
                rounded = [
                    {name: np.nextafter(x, np.inf) if x.dtype.kind == "f" else x for name, x in run.items()}
                    for run in recorder.run(part).outputs
                ]
            fault = Fault(excused, part, verdict)
            said = rounded and impact(inquiry.case, fault, seen.outputs, checked.outputs, reference, innocent=rounded)
            if said and said.change >= LOST and said.share >= EXPLAINED:
                found.excused.append((excused, rule, said))


def _serious(found: Found) -> list[Fault]:
    """The faults that do something to the outputs, as far as anybody can tell, or take them away."""
    weighed = [(fault, found.impacts.get(fault.nodes)) for fault in found.faults if not found.is_beside(fault)]
    return [fault for fault, said in weighed if said is None or not said.negligible]


def _unasked(inquiry: Inquiry, checked: Checked, found: Found, serious: Sequence[Fault]) -> str:
    """What could take back an accusation, and was not known when the time was spent; "" where nothing is open. What
    ends a model, or gives its outputs another form, is taken back by nothing; and what somebody ended is as it is."""
    whole, diagnoses = checked.verdict, found.diagnoses
    if found.interrupted or (whole.failed and not whole.in_values):
        return ""
    if found.unheard and whole.failed:
        return "whether it is the rounding of a fast kernel"
    may_be_harmless = not whole.failed or _is_right(checked) or (whole.stage == "quantize" and whole.culprits)
    if found.hasty and checked.outputs and may_be_harmless and all(f.nodes not in found.impacts for f in serious):
        return "what it does to the outputs"
    issues = inquiry.known_issues
    rules = any(issue.saved.rule for issue in issues)
    left = [d.examination for d in diagnoses if not _rule_of(issues, d.examination)]
    open_ = [e for e in left if e.unexplained and (rules or e.verdict.kind == Kind.OFF_BY_ONE_STEP)]
    if diagnoses and len(left) == len(open_) and (open_ or found.cut):
        return "whether it is documented, or a step that is known"
    return ""


def _is_right(checked: Checked) -> bool:
    """Whether the outputs are as good as right."""
    return all(row.change < LEAST_CHANGE for row in checked.end_to_end)


def _unexplained(inquiry: Inquiry, checked: Checked, found: Found) -> str:
    """Which outputs are lost for what no part shows by itself, and where first, as far as that was looked for; "" where
    nothing speaks for that."""
    if not (inquiry.suspects or inquiry.suspected or found.unsought):
        return ""
    lost = ", ".join(repr(row.output) for row in checked.end_to_end if row.change >= LOST)
    first = f"; in the converted model it is lost first at tensor {inquiry.suspected[0]!r}" if inquiry.suspected else ""
    why = "the budget was spent before it was known why" if found.unsought else "no part cut out of the model shows why"
    return f"little is left of output {lost}{first}, and {why}"


def _undecided(checked: Checked) -> bool:
    """Whether an output is lost, and nobody can tell of the model as a whole whether it may be."""
    return checked.verdict.word is Word.ABSTAINS and _is_lost(checked)


def _is_lost(checked: Checked) -> bool:
    """Whether of an output so little is left that it is of no use."""
    return any(row.change >= LOST for row in checked.end_to_end)


def _harmless(checked: Checked, found: Found) -> Fault | None:
    """The fault by which the model as a whole fails, where that and all others do nothing to the outputs: it accuses
    the very weights, or the outputs are as good as right."""
    whole = checked.verdict
    if not (whole.failed and whole.in_values and found.faults) or _serious(found):
        return None
    if _is_right(checked):
        return found.faults[0]
    accused = whole.stage == "quantize" and whole.culprits
    return next((fault for fault in found.faults if accused and fault.verdict.culprits == accused), None)


def _culprits(
    case: Case, faults: Sequence[Fault], impacts: Mapping[tuple[int, ...], Impact | None]
) -> tuple[Culprit, ...]:
    """Every node of the faults, each with the most that a fault of it explains."""
    shares: dict[tuple[str, str], float | None] = {}
    for fault in faults:
        weighed = impacts.get(fault.nodes)
        for pair in _named(case, fault):
            shares.setdefault(pair, weighed.share if weighed else None)
    return tuple(Culprit(*pair, share) for pair, share in shares.items())


def _needed(case: Case, fault: Fault, needed: Mapping[tuple[int, ...], tuple[int, ...]]) -> Fault:
    """A fault without the nodes that one of the same operators does not need to end a model."""

    def operators(nodes: Sequence[int]) -> list[str]:
        return [case.proto.graph.node[i].op_type for i in nodes]

    for nodes, left in needed.items():
        if operators(nodes) == operators(fault.nodes):
            return replace(fault, nodes=tuple(fault.nodes[nodes.index(i)] for i in left))
    return fault


def _blamed(diagnoses: Sequence[Diagnosis]) -> tuple[Culprit, ...]:
    """The nodes that are left of a model that fails, though no part of it was found to."""
    return tuple(Culprit(*pair) for diagnosis in diagnoses for pair in diagnosis.nodes)


def _diagnose(inquiry: Inquiry, whole: Verdict, found: Found) -> None:
    """Examine one fault of each sort; where the model fails and no part of it does, the model."""
    faults = _sorts(inquiry.case, _serious(found))[:DIAGNOSED]
    whole_model: tuple[Any, ...] = ((), inquiry.given or inquiry.case, ())
    for nodes, case, indices in (*((_named(inquiry.case, f), f.case, f.nodes) for f in faults), whole_model):
        if (found.diagnoses and inquiry.left < 2 * RESERVED) or (not nodes and (found.diagnoses or not whole.failed)):
            break
        effort = Effort(REDUCED * inquiry.allowance.left, stop=inquiry.reducing)
        if nodes:  # of the model as a whole nothing is known without it
            effort = replace(effort, calls=max(0, inquiry.left - RESERVED))
        trial = replace(inquiry.trial, case=inquiry.frames.get(digest(case), case))
        try:
            if trial.quantizes and kernels.used(trial):  # or it may be taken for the rounding that hides it
                trial = kernels.uncovered(trial, *inquiry.watch(trial))[0]
            examined = examine(trial, inquiry.known_issues, effort=effort)
        except ExhaustedError as e:
            found.cut = str(e)
            break
        found.unconfirmed = examined.unconfirmed or found.unconfirmed
        if examined.unconfirmed or not (examined.verdict.failed or not nodes):
            continue
        weighed, place = found.impacts.get(indices), around(inquiry.case, indices)
        share, values = weighed.share if weighed else None, found.distributions.get(indices)
        # It is kept when somebody ends what follows.
        found.diagnoses.append(Diagnosis(nodes, examined, impact=share, around=place, distribution=values))
        trial = examined.fewest or trial
        if examined.known and not examined.finding and not _rule_of(inquiry.known_issues, examined):
            with contextlib.suppress(ExhaustedError):
                own = examine(trial, effort=replace(effort, seconds=REDUCED * inquiry.allowance.left)).finding
                examined = replace(examined, finding=own)
                found.diagnoses[-1] = replace(found.diagnoses[-1], examination=examined)
        left = _left(inquiry.case, examined.finding.named) if examined.finding and examined.finding.named else ()
        fewer = not whole.in_values and set(left) < set(indices)
        if left and (not nodes or fewer):
            if fewer:
                found.needed[indices] = left
            nodes, place = tuple(_named_node(inquiry.case, i) for i in left), around(inquiry.case, left)
            found.diagnoses[-1] = replace(found.diagnoses[-1], nodes=nodes, around=place)
        if examined.finding and examined.finding.ended == INTERRUPTED:
            raise KeyboardInterrupt
        found.diagnoses[-1] = _likened(inquiry, _attributed(inquiry, found.diagnoses[-1], trial), trial)


def _sorts(case: Case, faults: Sequence[Fault]) -> list[Fault]:
    """The first of the faults that have the same operators and fail in the same way; those of one step last."""
    sorts: dict[tuple[str, ...], Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.verdict.kind == Kind.OFF_BY_ONE_STEP):
        sorts.setdefault((fault.verdict.kind, *(op for _, op in _named(case, fault))), fault)
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
    if not examined.known or _rule_of(issues, examined) or examined.verdict.word is Word.HANGS:
        return diagnosis
    name = folder_name(examined.finding.signature) if examined.finding else ""
    if very := KnownIssues(issues).named(name):  # whatever it was recognized as
        return replace(diagnosis, examination=replace(examined, known=very.id))
    inquiry.tell(f"comparing with {examined.known}")
    try:
        own = _reduced(examined, whole)
        reason = unlike(own, examined.known, issues, diagnosis.remedies, inquiry.watch)
    except ExhaustedError:
        reason = "no time was left to compare them"
    return replace(diagnosis, unlike=reason)


def _reduced(examined: Examination, whole: Trial) -> Trial:
    """`whole`, a fault, as far as it was reduced."""
    finding = examined.finding
    return replace(whole, case=finding.case, recipe=finding.recipe) if finding else whole


def _vouches(verdict: Verdict) -> bool:
    """Whether values were compared, and are right. Of outputs without elements shapes and dtypes are all there is."""
    return verdict.word is Word.AGREES and verdict.tier != Tier.STRUCTURE


def _overall(whole: Verdict, found: Found, serious: Sequence[Fault], rule: str, vouched: float) -> Verdict:
    """The verdict on the model: any failure; agreement where the windows agree, or `rule` excuses every fault."""
    unconfirmed, unlocated = found.unconfirmed, found.unlocated
    if unlocated and not whole.failed and (rule or not found.diagnoses):
        message = f"a part fails, and the budget was spent before it was known which node does it: {unlocated.message}"
        return replace(unlocated, word=Word.ABSTAINS, message=message, rule=BUDGET)
    if found.diagnoses:
        first = found.diagnoses[0].examination.verdict
        if rule:
            return Verdict(
                Word.AGREES, Tier.WINDOWS, rule=rule, message=f"but for what is documented or known: {first.message}"
            )
        beside = any(whole.culprits and whole.culprits == f.verdict.culprits for f in found.faults if f not in serious)
        return whole if whole.failed and not beside else first  # what does nothing to the outputs is no headline
    if unconfirmed:
        message = f"failed once, but not again in fresh processes: {unconfirmed.word} in {unconfirmed.stage}"
        return replace(unconfirmed, word=Word.ABSTAINS, message=f"{message}: {unconfirmed.message}")
    failed = [verdict for verdict in (whole, *(fault.verdict for fault in serious)) if verdict.failed]
    if found.cut and failed and not found.again:
        message = f"failed, and the budget was spent before fresh processes could show it again ({found.cut})"
        message = f"{message}: {failed[0].word} in {failed[0].stage}: {failed[0].message}"
        return replace(failed[0], word=Word.ABSTAINS, message=message, rule=BUDGET)
    if whole.word is Word.AGREES and not _vouches(whole) and vouched < ENOUGH:
        return replace(whole, word=Word.ABSTAINS, message="no output has elements that could be compared")
    if whole.word is Word.ABSTAINS and vouched >= ENOUGH:
        return Verdict(Word.AGREES, Tier.WINDOWS, message=f"in windows; end to end nobody can tell: {whole.message}")
    return whole


def _not_usable(case: Case, found: Found) -> tuple[Verdict, tuple[Culprit, ...]]:
    """The verdict on a model whose parts are right by the rules, and that is of no use for it; and these parts."""
    worst = sorted(found.excused, key=lambda each: each[2].share, reverse=True)
    culprits = [Culprit(*_named_node(case, i), said.share) for nodes, _, said in worst for i in nodes]
    nodes, rule, said = worst[0]
    named = ", ".join(" ".join(_named_node(case, i)[::-1]) for i in nodes)
    message = (
        f"right by the rules, but not usable: {named} ({rule}) moves an output by {said.change:.2g} of its size, which "
        f"explains {said.share:.0%} of the error of the outputs"
    )
    verdict = Verdict(Word.DIVERGES, Tier.WINDOWS, "execute", Kind.WRONG_VALUES, message, rule=rule)
    return verdict, tuple(dict.fromkeys(culprits))


def _of_what_is_lost(checked: Checked, found: Found, serious: Sequence[Fault], verdict: Verdict) -> Verdict:
    """The verdict by faults that explain little of an output that is lost: that is told first, they are told of it."""
    weighed = [found.impacts.get(fault.nodes) for fault in serious]
    share = min(1.0, sum(said.share for said in weighed if said))
    worst = max(checked.end_to_end, key=lambda row: row.change, default=None)
    if not (verdict.in_values and all(weighed) and weighed and share < EXPLAINED and worst and worst.change >= LOST):
        return verdict
    message = (
        f"little is left of output {worst.output!r}, which is off by {worst.change:.2g} of its size; what is at fault "
        f"explains {share:.0%} of the error: {verdict.message}"
    )
    return replace(verdict, message=message)


def _named(case: Case, fault: Fault) -> tuple[tuple[str, str], ...]:
    """(name, operator) of its nodes; nodes without a name are called after what they make."""
    return tuple(_named_node(case, i) for i in fault.nodes)


def _named_node(case: Case, index: int) -> tuple[str, str]:
    node = case.proto.graph.node[index]
    return node.name or next(name for name in node.output if name), node.op_type


def _left(case: Case, reduced: Case) -> tuple[int, ...]:
    """The nodes of `case` that are left in `reduced`, though plainer operators may have taken their places."""
    nodes, kept = case.proto.graph.node, reduced.proto.graph.node
    names = {name for node in kept for name in (node.name, *node.output) if name}
    return tuple(i for i in computing(case.proto.graph) if not names.isdisjoint((nodes[i].name, *nodes[i].output)))


def _excuse(known_issues: Sequence[KnownIssue], diagnoses: Sequence[Diagnosis], *, lost: bool) -> str:
    """The rule by which the faults are no failure of the model, "" where one of them is.

    They are documented; or they are kernels that the corpus knows to be off by a step, which is a finding once for an
    operator, not once for every model that has it. But what explains most of the error of an output that is `lost` is
    a failure by whatever rule.
    """
    if lost and any((diagnosis.impact or 0.0) >= EXPLAINED for diagnosis in diagnoses):
        return ""
    rules = [_rule_of(known_issues, diagnosis.examination) for diagnosis in diagnoses]
    return rules[0] if rules and all(rules) else ""


def _rule_of(known_issues: Sequence[KnownIssue], examined: Examination) -> str:
    """The rule by which one fault is no failure of the model, "" where it is one."""
    documented = {issue.id: issue.saved.rule for issue in known_issues}
    known, a_step = examined.known, examined.verdict.kind == Kind.OFF_BY_ONE_STEP
    return documented.get(known, "") or (str(Kind.OFF_BY_ONE_STEP) if known and a_step else "")


def _random_outputs(case: Case) -> tuple[str, ...]:
    """The outputs of which two right runs may differ, so that nothing is said by how far these are apart."""
    graph = read(case.proto, case.file)
    random = random_tensors(graph)
    return tuple(name for name in graph.outputs if name in random)
