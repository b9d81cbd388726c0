"""One real model on one target: what is wrong, which nodes do it, and a small case that shows it.

The model as a whole tells whether every stage runs, and whether what comes out can be right at all; its windows tell
where it goes wrong, and vouch for the rest. Each fault is then examined as any other case: confirmed, known or reduced.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import onnx
from driftnet.diagnosis import kernels
from driftnet.diagnosis.attribution import INLINED, with_options, without_functions
from driftnet.diagnosis.conclusion import conclude, harmless_fault
from driftnet.diagnosis.end_to_end import losses
from driftnet.diagnosis.faults import diagnose
from driftnet.diagnosis.inquiry import BUDGET, Found, Inquiry, affirms, undecided
from driftnet.diagnosis.inside import Inside, look_inside
from driftnet.diagnosis.localize import alike
from driftnet.diagnosis.requantized import mistaken, quantized_already
from driftnet.diagnosis.result import Checked, Cost, Culprit
from driftnet.diagnosis.search import (
    is_explained,
    locate_faults,
    locate_what_is_accused,
    locate_what_is_met,
    locate_what_is_told,
    places,
    steps,
    survey_windows,
    to_narrow,
)
from driftnet.diagnosis.usability import nothing_quantized, rounded_joins, vanishing, with_joins_in_float
from driftnet.diagnosis.views import along_the_depth
from driftnet.diagnosis.weighing import is_lost_as_written, weigh, weigh_excuses
from driftnet.findings.issues import KnownIssue
from driftnet.findings.trial import TOO_MUCH, Trial, look, watch
from driftnet.model.graph import read
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.submodel import Recording, recording_within
from driftnet.model.verdict import Kind, Observation, Outcome, Tier, Verdict, Word
from driftnet.model.windows import nodes_of, seams, split, survey
from driftnet.oracle.ball_arithmetic.creation import random_tensors
from driftnet.oracle.tolerances.table import LOST
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.subgraphs import entered
from driftnet.run.reference import ReferenceError, ReferenceRun
from driftnet.run.sandbox.allowance import Allowance

RUNS, RUNS_A_NODE = 300, 1.5
"""How often a target may be run for one model and recipe: whichever is more. Constants and Q/DQ are no nodes here."""
MOST_INSIDE = 20.0
"""Seconds that looking inside the converted model may take, which costs a run for each tensor."""
CONFIRMING, SPARED, FAILING_SPARED = 3, 0.1, 0.3
"""What windows and the search for faults leave for confirming what they find: so many times the CPU time of the model's
first run, but of one of which something comes out at most this share of what is left, and if it is wrong, or nothing
came out again, the other."""
VOUCHING = 0.5
"""The share of the time left that windows of a model leave of which a fault is found already: these only vouch."""
DEAR = 1.5
"""CPU seconds of a first run from which on a model of which something comes out is looked into on one feed."""
MUCH = 0.1
"""Of an output, lost: then it is asked whether something vanishes that need not."""
WEIGHED = 0.5
"""The share of what is left for confirming that weighing faults may take: what does nothing is not confirmed."""


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
        checked = _checked(trial, known_issues, allowance, tell)
    ended = allowance.spent or checked.verdict.rule == BUDGET  # what is spared for confirming counts as spent before
    if checked.verdict.word is Word.ABSTAINS and ended and (late := allowance.late):
        return replace(checked, verdict=replace(checked.verdict, message=f"{checked.verdict.message}; {late}"))
    return checked


def _checked(
    trial: Trial, known_issues: Sequence[KnownIssue], allowance: Allowance, tell: Callable[[str], None]
) -> Checked:
    if not trial.calibrates:  # or every tensor would be recorded for every sample
        trial = replace(trial, case=replace(trial.case, calibration=()))
    started, before = trial.runner.target_runs, trial.runner.all_cpu_seconds
    tell("the whole model")
    try:
        verdict, observation = watch(trial)
    except ExhaustedError as e:
        message = f"the budget was spent before the model was judged: {e}"
        return Checked(Verdict(Word.ABSTAINS, message=message, rule=BUDGET))
    first = trial.runner.all_cpu_seconds - before
    spared = _spared(verdict, first, allowance)
    unheard = False
    try:
        trial, verdict, observation = kernels.uncovered(trial, verdict, observation)
    except ExhaustedError:
        unheard = True
    already = quantized_already(trial.case) if trial.quantizes else ""
    if already and verdict.failed and not unheard:
        tell("the model as it is, for it is quantized already")
        with contextlib.suppress(ExhaustedError):
            if (told := mistaken(trial, verdict, observation, known_issues)) is not verdict:
                return Checked(told, observation, quantized_already=already)
    if observation is None and verdict.rule != TOO_MUCH:
        return Checked(verdict, culprits=tuple(Culprit(*pair) for pair in verdict.culprits))
    asked = trial.runner.reference.run(trial.case)
    if observation and observation.outputs and not asked.outputs:  # its answer was forgotten for larger ones
        return _uncompared(verdict, observation, allowance, asked)
    checked = _compared(trial, verdict, observation, asked)
    if verdict.word is Word.AGREES and verdict.tier is Tier.EXACT and not verdict.rule:
        return replace(checked, vouched=1.0)
    if verdict.word is Word.REJECTS:
        return replace(checked, verdict=_with_a_way_out(trial, verdict, tell))
    hurried = trial.hurried(verdict, observation) if observation else trial
    answers = bool(observation and observation.outputs) and (verdict.in_values or not verdict.failed)
    limit, dear = _most_runs(trial.case), first > DEAR
    inquiry = Inquiry(hurried, known_issues, allowance, spared, tell, started, limit, dear, answers=answers)
    try:
        alone = partial(inquiry.watch, like=(verdict, observation))
        checked = replace(checked, verdict=kernels.judged(trial, verdict, observation, alone, whole=True))
    except ExhaustedError:
        unheard = True
    return _with_what_vanishes(trial, _with_costs(inquiry, _localized(inquiry, checked, unheard)))


def _most_runs(case: Case) -> int:
    nodes = (case.proto.graph.node[i] for i in computing(case.proto.graph))
    counted = sum(not has_any(node, Trait.QUANTIZES | Trait.DEQUANTIZES) for node in nodes)
    return max(RUNS, int(RUNS_A_NODE * counted))


def _spared(verdict: Verdict, first: float, allowance: Allowance) -> float:
    """CPU seconds that are left for confirming, of a model whose `first` run took that long."""
    spared = CONFIRMING * first
    if verdict.failed and not verdict.in_values:
        return spared
    return min(spared, (FAILING_SPARED if verdict.failed else SPARED) * allowance.left)


def _compared(trial: Trial, verdict: Verdict, observation: Observation | None, asked: ReferenceRun) -> Checked:
    """The model as a whole: how far its outputs are from those that the reference says are right."""
    random = _random_outputs(trial.case)
    table = losses(observation.outputs, asked.outputs, random) if observation else []
    unquantized = _unquantized(trial, observation) if observation else ""
    already = quantized_already(trial.case) if trial.quantizes else ""
    return Checked(
        verdict, observation, end_to_end=tuple(table), random=random, unquantized=unquantized, quantized_already=already
    )


def _with_a_way_out(trial: Trial, verdict: Verdict, tell: Callable[[str], None]) -> Verdict:
    """What a target does not support, and what it makes of the model without functions of its own, if it has any."""
    other = without_functions(trial)
    if other is trial:
        return verdict
    tell("the model with its functions inlined")
    with contextlib.suppress(ExhaustedError):
        found, _ = watch(other)
        if found.word is not Word.REJECTS:
            how = f"with model={INLINED} (onnx.inliner.inline_local_functions) it {found.word}"
            return replace(verdict, message=f"{verdict.message}; {how}")
    return verdict


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


def _with_what_vanishes(trial: Trial, checked: Checked) -> Checked:
    """`checked` with what vanishes in the steps of the artifact, if it can be read and much of an output is lost."""
    data = checked.observation.artifact.model if checked.observation else None
    if data is None or not any(row.relative_l2 >= MUCH for row in checked.end_to_end):
        return checked
    reference, names = trial.runner.reference, [value.name for value in trial.case.proto.graph.output]
    try:
        model, graph = read(trial.case.proto, trial.case.file), read(onnx.ModelProto.FromString(data))
        if not rounded_joins(model, graph):
            return checked  # before all tensors are recorded for it
        case, recorded = recording_within(replace(trial.case, calibration=()), reference.record)
        found = dict(vanishing(model, graph, recorded.feeds))
    except Exception:  # ReferenceError, or protobuf's DecodeError, whose module has no types
        return checked
    expected = [{name: run[name] for name in names if name in run} for run in recorded.feeds]
    artifact = replace(case, model=data)
    left = with_joins_in_float(artifact, set(found.values()), expected, reference.outputs) if found else ()
    return replace(checked, vanishing=tuple(found), joins_in_float=left)


def _with_costs(inquiry: Inquiry, checked: Checked) -> Checked:
    """`checked` with what the kernels and the documented behaviour cost by which something was excused, and without
    which there are options: of the output that they move most, how far they do, and how far off it is without them."""
    verdicts = (checked.verdict, *(judged.verdict for judged in checked.judged))
    named = {name for verdict in verdicts for name in verdict.rule.split(" and ")}
    trial, costs = inquiry.trial, []
    avoided = {kernel.name: kernel.without for kernel in kernels.used(trial)}
    avoided |= {
        rule.name: rule.without for rule in trial.target.exceptions if rule.without and rule.holds(trial.options)
    }
    for name, without in avoided.items():
        if name not in named:
            continue
        with contextlib.suppress(ExhaustedError):
            _, seen = inquiry.watch(with_options(trial, without))
            moved = losses(checked.outputs, seen.outputs, checked.random) if seen and seen.outputs else []
            worst = max(moved, key=lambda row: row.change, default=None)
            if worst and worst.change:
                right = losses(seen.outputs if seen else (), trial.runner.reference.run(inquiry.case).outputs)
                left = next((row.change for row in right if row.output == worst.output), math.inf)
                costs.append(Cost(name, worst.output, worst.change, left, dict(without)))
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
        if found.again:  # it is confirmed: what is left is for what does it
            inquiry = replace(inquiry, spared=min(inquiry.spared, FAILING_SPARED * inquiry.allowance.left))
        found.as_written = undecided(checked) and is_lost_as_written(inquiry, checked)
        inquiry = _entered(_with_one_feed(inquiry, whole), found.ended)
        _find(inquiry, checked, found)
    except KeyboardInterrupt:
        if not (whole.failed or found.faults):
            raise
        found.interrupted = True
    return conclude(inquiry, checked, found)


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
    """Look for the faults, and examine them."""
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
        _search(inquiry, recorded, checked, found)
    found.hasty = not inquiry.in_time
    if not harmless_fault(checked, found):
        diagnose(inquiry, whole, found)
    if found.judged:
        _judge_the_rest(inquiry, recorded, found)


def _search(inquiry: Inquiry, recorded: Recording, checked: Checked, found: Found) -> None:
    """Look for the faults window by window, then, where these explain nothing, at the places that known causes name,
    where the intact artifact goes wrong, and across the seams between windows; and for what they do to the outputs."""
    whole = checked.verdict
    weighing = replace(inquiry, spared=WEIGHED * inquiry.spared)
    locate_what_is_told(inquiry, recorded, found)
    locate_what_is_met(inquiry, recorded, found)
    locate_what_is_accused(inquiry, recorded, whole, found)
    weigh(weighing, recorded, checked, found)
    if lost := undecided(checked) and not (inquiry.inside or found.as_written):
        locate_faults(inquiry, recorded, [], whole, found, lost)
    known, windows = bool(found.faults), split(inquiry.case, recorded)
    last = seams(inquiry.case, windows)
    named = [] if whole.failed and not whole.in_values else places(inquiry, windows)
    named += [step for step in steps(inquiry, recorded, windows) if step not in named]
    for pieces in (windows, *([named] if named else []), last):
        if pieces is not windows and (known or is_explained(inquiry.case, checked, found)):
            break
        before = len(found.judged)
        kept = VOUCHING * inquiry.allowance.left if found.faults and math.isfinite(inquiry.allowance.left) else 0.0
        survey_windows(replace(inquiry, spared=max(inquiry.spared, kept)), recorded, whole, found, pieces)
        failing = to_narrow(inquiry.trial.target.name, found.judged[before:], whole)
        if failing or (pieces is last and not (found.faults or lost)):
            found.unlocated = locate_faults(inquiry, recorded, failing, whole, found) or found.unlocated
        weigh(weighing, recorded, checked, found)
    verdicts = [*(judged.verdict for judged in found.judged), *(fault.verdict for fault in found.faults)]
    found.depth = along_the_depth(inquiry.case, verdicts, inquiry.inside, recorded)
    try:
        with contextlib.suppress(ReferenceError):
            weigh_excuses(weighing, recorded, checked, found)
    except ExhaustedError:
        found.unweighed = True


def _judge_the_rest(inquiry: Inquiry, recorded: Recording, found: Found) -> None:
    """Vouch for what is right beside the nodes at fault, in windows that fail by these. What fails there, too, was not
    found to be at fault, and stays undecided."""
    wrong = {node for fault in (*found.faults, *found.shared) for node in fault.nodes}
    failing = [j.window for j in found.judged if j.verdict.failed and not wrong.isdisjoint(j.nodes)]
    rests = dict.fromkeys(tuple(unit for unit in window if wrong.isdisjoint(unit)) for window in failing)
    affirmed = {node for j in found.judged if affirms(j) for node in j.nodes}
    pieces = [rest for rest in rests if not affirmed.issuperset(nodes_of(rest))]
    with contextlib.suppress(ExhaustedError):
        judged = survey(inquiry.case, recorded, inquiry.look, lambda verdict: verdict.failed, pieces)
        found.judged.extend(one for one in judged if affirms(one))


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


def _random_outputs(case: Case) -> tuple[str, ...]:
    """The outputs of which two right runs may differ, so that nothing is said by how far these are apart."""
    graph = read(case.proto, case.file)
    random = random_tensors(graph)
    return tuple(name for name in graph.outputs if name in random)
