"""End to end: a table says how far outputs are off, and the share that a fault explains is found by experiment."""

import dataclasses
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from driftnet.diagnosis import kernels
from driftnet.diagnosis.check import check
from driftnet.diagnosis.end_to_end import Impact, References, impact, losses, within
from driftnet.diagnosis.inquiry import BUDGET, Inquiry
from driftnet.diagnosis.inside import Inside
from driftnet.diagnosis.localize import Fault
from driftnet.findings.pipeline import Examination
from driftnet.findings.trial import Trial, watch
from driftnet.model.artifact import UNTOLD, Artifact
from driftnet.model.submodel import UnrecordedError, recording, submodel
from driftnet.model.verdict import Kind, Observation, Tier, Verdict, Word
from driftnet.model.windows import Judged
from driftnet.reduce.problem import ExhaustedError
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Rule
from onnx import TensorProto, helper

from tests.support import models
from tests.support.checking import put, what

WRONG = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES)


def test_the_table_says_how_far_an_output_is_off_over_all_feeds():
    right = [{"y": np.array([[3.0, 0, 4]], np.float32)}, {"y": np.array([[0.0, 1, 0]], np.float32)}]
    got = [{"y": np.array([[3.0, 0, 4]], np.float32)}, {"y": np.array([[0.0, 1, 2]], np.float32)}]
    (row,) = losses(got, right)
    assert (row.max_abs, row.largest, row.argmax) == (2.0, 4.0, 0.5)
    assert row.relative_l2 == pytest.approx(2 / math.sqrt(26))
    assert row.sqnr_db == pytest.approx(10 * math.log10(26 / 4))
    assert row.cosine == pytest.approx(26 / math.sqrt(26 * 30))


def test_where_there_is_nothing_to_compare_with_there_is_no_row():
    assert losses([{"y": np.ones(1)}], ()) == []


def test_an_output_that_is_right_has_no_error_and_nothing_is_divided_by_zero():
    (row,) = losses([{"y": np.zeros(4, np.float32)}], [{"y": np.zeros(4, np.float32)}])
    assert (row.max_abs, row.relative_l2, row.cosine, row.sqnr_db) == (0.0, 0.0, 1.0, math.inf)


@pytest.mark.parametrize(("x", "y", "decibels"), [([2.0], [2.0], None), ([30.0], [2.0], -22.9), ([2.0], [0.0], None)])
def test_in_json_nothing_is_infinite_and_one_element_has_no_angle(x, y, decibels):
    (row,) = losses([{"y": np.float32(x)}], [{"y": np.float32(y)}])
    said = row.as_json()
    assert (said["cosine"], said["sqnr_db"]) == (None, decibels and pytest.approx(decibels, abs=0.1))


def test_what_is_not_finite_or_of_another_shape_counts_as_much_as_the_largest():
    right = [{"a": np.array([1.0, -4], np.float32), "b": np.ones((2, 2), np.float32)}]
    rows = losses([{"a": np.array([np.nan, -4], np.float32), "b": np.ones(4, np.float32)}], right)
    assert [row.max_abs for row in rows] == [math.inf, math.inf]
    assert [row.relative_l2 for row in rows] == [pytest.approx(4 / math.sqrt(17)), 1.0]


def two_branches():
    """y = 1000 relu(x) + .5 relu(-x): what is wrong in the first branch is nearly all of the error."""
    nodes = [
        helper.make_node("Relu", ["x"], ["p"], name="large"),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Relu", ["n"], ["q"], name="small"),
        helper.make_node("Mul", ["p", "k"], ["pk"]),
        helper.make_node("Mul", ["q", "h"], ["qh"]),
        helper.make_node("Add", ["pk", "qh"], ["y"]),
    ]
    constants = {"k": np.float32(1000), "h": np.float32(0.5)}
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    return models.case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT, (9,))])


@pytest.mark.parametrize(("node", "tensor", "share"), [(0, "p", 1.0), (2, "q", 0.0)])
def test_the_share_of_a_fault_is_what_it_carries_to_the_outputs(runner, node, tensor, share):
    case = two_branches()
    recorded = recording(case, runner.reference.record)
    fault = Fault((node,), submodel(case, [node], recorded), WRONG)
    (run,) = recorded.feeds
    outputs = [{"y": 1000 * (run["p"] * 1.1) + 0.5 * (run["q"] * 1.1)}]
    found = impact(
        case, fault, [{tensor: run[tensor] * np.float32(1.1)}], outputs, References([run], runner.reference.outputs)
    )
    assert found.share == pytest.approx(share, abs=1e-3)


def test_a_fault_that_is_there_for_being_cut_out_explains_nothing(runner):
    case = two_branches()
    recorded = recording(case, runner.reference.record)
    (run,) = recorded.feeds
    fault = Fault((0,), submodel(case, [0], recorded), WRONG)
    slightly_off = [{"y": run["y"] * np.float32(1 + 1e-6)}]
    found = impact(case, fault, [{"p": -run["p"]}], slightly_off, References([run], runner.reference.outputs))
    assert found.share == 0.0
    assert found.negligible, f"{found} should be negligible"


@pytest.mark.parametrize(
    ("quantize", "tier", "noted"),
    [
        ("none", Tier.RUNNING_ERROR, ["small"]),
        ("dynamic", Tier.RUNNING_ERROR, ["small"]),
        ("dynamic", Tier.BUDGET, []),  # of all the noise any layer has a small share
    ],
)
def test_the_fault_that_does_the_damage_comes_first_and_one_without_is_a_note(
    runner, monkeypatch, quantize, tier, noted
):
    """Both Relu nodes are a tenth too large; but for 2 in ten million all of the error comes from the first."""
    case, wrong = two_branches(), replace(WRONG, tier=tier)

    def watched(trial, **more):
        part = trial.case.proto.graph
        expected = runner.reference.run(trial.case).outputs
        bad = [node for node in part.node if node.op_type == "Relu"]
        if len(bad) == 2:
            run = runner.reference.record(trial.case)[0]
            return wrong, Observation((), ({"y": 1100 * run["p"] + 0.55 * run["q"]},))
        outputs = tuple({name: x * np.float32(1.1 if bad else 1) for name, x in out.items()} for out in expected)
        return (wrong if bad else Verdict(Word.AGREES)), Observation((), outputs)

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(WRONG))
    installed = resolve("onnxruntime-quant")
    closed = replace(installed, target=replace(installed.target, tap=None))  # what it hands out would be right
    checked = check(Trial(case, closed, {"quantize": quantize}, runner), ())
    impacts = [(culprit.node, round(culprit.impact, 3)) for culprit in checked.culprits]
    assert impacts == ([("large", 1.0)] if noted else [("large", 1.0), ("small", 0.0)])
    assert [note.node for note in checked.notes] == noted


@pytest.mark.parametrize(("varies", "noted"), [(False, ["large"]), (True, [])])
def test_an_error_that_differs_from_run_to_run_acquits_nothing(runner, monkeypatch, varies, noted):
    """What was never written is huge in one run of the whole: of that any fault explains a small share."""
    case = two_branches()

    def watched(trial, fresh=False, **more):
        expected = runner.reference.run(trial.case).outputs
        bad = [node for node in trial.case.proto.graph.node if node.name == "large"]
        if len(trial.case.proto.graph.node) == 6:
            return WRONG, Observation((), ({"y": np.full(9, 1e30 if varies and fresh else 1e9, np.float32)},))
        outputs = tuple({name: x * np.float32(1.1 if bad else 1) for name, x in out.items()} for out in expected)
        return (WRONG if bad else Verdict(Word.AGREES)), Observation((), outputs)

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(WRONG))
    installed = resolve("onnxruntime-quant")
    closed = replace(installed, target=replace(installed.target, tap=None))
    checked = check(Trial(case, closed, {"quantize": "none"}, runner), ())
    assert [note.node for note in checked.notes] == noted
    assert not (varies and any(culprit.impact for culprit in checked.culprits)), "nobody can tell a share"


@pytest.mark.parametrize(("noise", "headline"), [(0.1, ""), (0.9, "little is left of output 'y', which is off by 0.9")])
def test_a_fault_that_noise_drowns_is_none_the_less_one_and_what_is_lost_in_it_is_told_first(
    runner, monkeypatch, noise, headline
):
    """The Relu that is a tenth too large explains a millionth of what is mostly the noise of quantizing."""
    case, wrong = two_branches(), replace(WRONG, tier=Tier.RUNNING_ERROR)

    def watched(trial, **more):
        outputs = runner.reference.run(trial.case).outputs
        small = any(node.name == "small" for node in trial.case.proto.graph.node)
        if len(trial.case.proto.graph.node) == len(case.proto.graph.node):
            return Verdict(Word.AGREES, Tier.BUDGET), Observation((), ({"y": (1 + noise) * outputs[0]["y"]},))
        factor = np.float32(1.1 if small else 1)
        seen = Observation((), tuple({name: factor * x for name, x in out.items()} for out in outputs))
        return (wrong if small else Verdict(Word.AGREES)), seen

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(wrong))
    installed = resolve("onnxruntime-quant")
    closed = replace(installed, target=replace(installed.target, tap=None))
    serious, weighed = what("serious_faults"), {}
    put(monkeypatch, "serious_faults", lambda found: weighed.update(found.impacts) or serious(found))
    checked = check(Trial(case, closed, {"quantize": "dynamic"}, runner), ())
    assert checked.verdict.word is Word.DIVERGES, checked.verdict
    assert [(said.drowned, said.noisy) for said in weighed.values()] == [(True, False)], "no noise is in what it does"
    assert [(culprit.node, round(culprit.impact, 3)) for culprit in checked.culprits] == [("small", 0.0)]
    assert checked.verdict.message[: len(headline) or None] == headline, checked.verdict
    assert ("what is at fault explains 0% of the error" in checked.verdict.message) is bool(headline)


@pytest.mark.parametrize(("beside", "named"), [(0.0, ["small"]), (0.5, ["large"])])
def test_a_step_of_an_executor_is_a_note_beside_another_fault_that_does_all(runner, monkeypatch, beside, named):
    """What is held against the artifact as it is written has no noise of quantizing in it, so its share tells."""
    case, wrong = two_branches(), replace(WRONG, tier=Tier.ARTIFACT)
    off = {"small": np.float32(1.1), "large": np.float32(1 + beside)}

    def watched(trial, **more):
        outputs = runner.reference.run(trial.case).outputs
        nodes = [node.name for node in trial.case.proto.graph.node]
        if len(nodes) == len(case.proto.graph.node):
            factor, verdict = np.float32(1.5), Verdict(Word.AGREES, Tier.BUDGET)
        else:
            factor = math.prod(off.get(name, 1) for name in nodes)
            verdict = wrong if factor != 1 else Verdict(Word.AGREES)
        out = tuple({name: np.float32(factor) * x for name, x in run.items()} for run in outputs)
        return verdict, Observation((), out, Artifact(model=trial.case.model))

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(wrong))
    installed = resolve("onnxruntime-quant")
    closed = replace(installed, target=replace(installed.target, tap=None))
    checked = check(Trial(case, closed, {"quantize": "dynamic"}, runner), ())
    assert [culprit.node for culprit in checked.culprits] == named, checked.verdict
    assert [culprit.node for culprit in checked.notes] == (["small"] if beside else [])


def cut_after(runs, monkeypatch, watched):
    """Let the time of a check be spent once so many runs have been watched."""
    seen = []

    def counted(trial, **more):
        if len(seen) >= runs:
            raise ExhaustedError
        seen.append(trial)
        return watched(trial)

    put(monkeypatch, "watch", counted)
    monkeypatch.setattr(Inquiry, "in_time", property(lambda self: len(seen) < runs))
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(WRONG))


@pytest.mark.parametrize("whole", [Verdict(Word.AGREES, Tier.RUNNING_ERROR), WRONG], ids=["agrees", "diverges"])
def test_a_cut_budget_never_accuses_what_a_full_one_acquits(runner, monkeypatch, whole):
    """One Relu is off by a thousandth, which is nothing to the outputs."""
    case = two_branches()

    def watched(trial, **more):
        nodes = {node.name for node in trial.case.proto.graph.node}
        (out,) = trial.runner.reference.run(trial.case).outputs
        if "small" not in nodes or "large" in nodes:
            return (whole if "large" in nodes else Verdict(Word.AGREES, Tier.RUNNING_ERROR)), Observation((), (out,))
        return WRONG, Observation((), ({name: x * np.float32(1.001) for name, x in out.items()},))

    installed = resolve("onnxruntime-quant")
    closed = replace(installed, target=replace(installed.target, tap=None))
    said = []
    for runs in range(1, 13):
        with monkeypatch.context() as patch:
            cut_after(runs, patch, watched)
            said.append(check(Trial(case, closed, {"quantize": "none"}, runner), ()).verdict)
    assert {verdict.word for verdict in said} == {Word.ABSTAINS, Word.AGREES}, said
    undecided = [verdict for verdict in said if verdict.rule == BUDGET]
    assert any("undecided" in v.message and "what it does to the outputs" in v.message for v in undecided), said


@pytest.mark.parametrize(
    ("got", "near"),
    [([100.9, 0.09], True), ([101.2, 0.0], False), ([100.0, 0.11], False), ([np.nan, 0.0], False), ([100.0], False)],
)
def test_outputs_are_within_what_is_accepted_element_by_element(got, near):
    right, seen = ({"y": np.array(values, np.float32)} for values in ([100.0, 0.0], got))
    assert within([seen], [right], atol=0.1, rtol=0.01) is near, f"{got} for [100, 0], within 0.1 + 1 %"
    assert not within([], [right], atol=0.1, rtol=0.01), "nothing was observed"
    assert not within([right], [right, right], atol=0.1, rtol=0.01), "of two feeds one was answered"


def coarse_conv():
    """64 channels are enough for MNN's large tile, which is off by 4e-4 of the largest element."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 64, 24, 24), (16, 64, 3, 3)))
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    return models.case([node], {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 16, 22, 22))])


def test_winograd_hides_nothing_of_how_a_model_is_quantized(runner):
    trial = Trial(coarse_conv(), resolve("mnn"), {"quantize": "offline"}, runner)
    verdict, seen = watch(trial)
    assert verdict.before, "no longer so coarse: is this still needed?"
    part = kernels.judged(trial, verdict, seen, watch)
    assert not part.before, f"of a window: {part.message}"
    checked = check(trial, (), seconds=0)
    assert not checked.verdict.before, checked.verdict.message


def test_winograds_rounding_is_told_from_the_noise_of_quantized_weights(runner):
    trial = Trial(coarse_conv(), resolve("mnn"), {"quantize": "weight-only", "weight_bits": 4}, runner)
    verdict, seen = watch(trial)
    lost = kernels.loss(seen.outputs, runner.reference.run(trial.case).outputs)
    assert verdict.failed, "no longer so coarse: is this still needed?"
    assert lost > 2 * kernels.used(trial)[0].loss, "of two noises the one that quantizing makes should be the larger"
    assert kernels.judged(trial, verdict, seen, watch).word is Word.AGREES, verdict.message


def test_winograd_is_told_from_a_bug_by_doing_without_it(runner, monkeypatch):
    case = coarse_conv()
    trial = Trial(case, resolve("mnn"), {}, runner)
    verdict, seen = watch(trial)
    (kernel,) = kernels.used(trial)
    lost = kernels.loss(seen.outputs, runner.reference.run(case).outputs)
    assert verdict.word is Word.DIVERGES, "no longer so coarse: is the declared loss still needed?"
    assert 1e-5 < lost < kernel.loss / 2, f"lost {lost:.1e}, should be some 4e-4"
    checked = check(trial, ())
    (cost,) = checked.costs
    assert (checked.verdict.word, checked.verdict.rule) == (Word.AGREES, "Winograd"), checked.verdict.message
    assert cost.left < 2e-6 < 1e-5 < cost.moved
    assert "gone with disabled_kernels=Winograd, which leaves" in checked.verdict.message, checked.verdict.message
    assert checked.as_json()["kernels"][0]["message"] == checked.verdict.message, "JSON and sentence say two things"
    with monkeypatch.context() as patch:
        cut_after(1, patch, watch)
        undecided = check(trial, ()).verdict
    assert undecided.word is Word.ABSTAINS, "nobody knew yet what it is without the kernel"
    assert "undecided" in undecided.message, undecided.message
    coarse = dataclasses.replace(kernel, loss=lost / 2)
    monkey = dataclasses.replace(trial.installed.target, kernels=(coarse,))
    strict = dataclasses.replace(trial, installed=dataclasses.replace(trial.installed, target=monkey))
    assert kernels.judged(strict, verdict, seen, watch).failed, "more than it may lose is no rounding"


def test_what_is_right_by_a_rule_and_takes_an_output_away_is_named(runner):
    """MNN cuts averages to whole codes: of those just below a step, which is as large as one channel is, nothing is
    left."""
    x = np.random.default_rng(0).uniform(0, 100, (1, 8, 16, 16)).astype(np.float32)
    x[:, 0, :, 1::2], x[:, 1:] = -x[:, 0, :, ::2], 0.011 * x[:, 1:]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["wide"], name="conv"),
        helper.make_node("GlobalAveragePool", ["wide"], ["y"], name="mean"),
    ]
    w = np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1)
    case = models.case(nodes, {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 8, 1, 1))])
    checked = check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), ())
    verdict, (culprit,) = checked.verdict, checked.culprits
    assert (verdict.word, verdict.message[:18], culprit.node) == (Word.DIVERGES, "right by the rules", "mean"), verdict
    assert culprit.impact > 0.5, culprit


def lost_in_company(runner, monkeypatch, *, alone, quantize="none", third="Neg"):
    """What check says of twenty nodes of which the sixteenth is lost, of parts in those with nine before it, if
    `alone`; windows have eight at most, and of the whole nobody can tell. third: the operator of that node."""
    operators = ["Neg", "Neg", third, *["Neg"] * 17]
    nodes = [helper.make_node(op, [f"t{k}"], [f"t{k + 1}"], name=f"neg{k}") for k, op in enumerate(operators)]
    case = models.case(nodes, {"t0": np.ones(4, np.float32)}, outputs=[("t20", TensorProto.FLOAT, (4,))])

    def watched(trial, **more):
        outputs, part = runner.reference.run(trial.case).outputs, trial.case.proto.graph.node
        lost = Observation((), tuple({name: 0 * x for name, x in out.items()} for out in outputs))
        if len(part) == len(nodes):
            return Verdict(Word.ABSTAINS), lost
        wrong = alone and len(part) >= 10 and any(node.name == "neg15" for node in part)
        return (WRONG, lost) if wrong else (Verdict(Word.AGREES, Tier.EXACT), Observation((), outputs))

    def look_inside(trial, recorded, names=()):
        return Inside(trial, [{name: recorded.feeds[0][name] * np.float32(int(name[1:]) < 16) for name in names}])

    put(monkeypatch, "MOST_INSIDE", 0.0)
    put(monkeypatch, "watch", watched)
    put(monkeypatch, "look_inside", look_inside)
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(WRONG))
    return check(Trial(case, resolve("mnn"), {"quantize": quantize}, runner), ())


@pytest.mark.parametrize("quantize", ["none", "weight-only"])
@pytest.mark.parametrize("alone", [True, False])
def test_what_is_lost_in_company_is_looked_for_where_nobody_can_tell_of_the_whole(runner, monkeypatch, alone, quantize):
    checked = lost_in_company(runner, monkeypatch, alone=alone, quantize=quantize)
    assert checked.verdict.word is (Word.DIVERGES if alone else Word.ABSTAINS), checked.verdict
    assert [c.node for c in checked.culprits] == ([f"neg{k}" for k in range(15, 5, -1)] if alone else [])
    assert alone or checked.verdict.message.startswith(
        "little is left of output 't20'; in the converted model it is lost first at tensor 't16', and no part cut out"
    ), checked.verdict.message
    assert checked.verdict.rule == ""
    assert len(checked.judged) == (3 if alone else 5), "where it is known nobody looks at the two cuts"


def test_what_is_lost_behind_a_decision_may_be_lost_for_rounding(runner, monkeypatch):
    checked = lost_in_company(runner, monkeypatch, alone=False, third="Floor")
    assert checked.verdict.word is Word.AGREES, checked.verdict


@pytest.mark.parametrize(("cut", "known"), [("_first_lost", False), ("locate", True)])
def test_what_no_time_was_left_to_look_for_is_undecided(runner, monkeypatch, cut, known):
    """The time is spent when `cut` begins: not all that is lost had been looked for, nor is that said."""
    step = what(cut)

    def spent(*args):
        monkeypatch.setattr(Inquiry, "in_time", False)
        return step(*args)

    put(monkeypatch, cut, spent)
    verdict = lost_in_company(runner, monkeypatch, alone=True).verdict
    assert (verdict.word, verdict.rule) == (Word.ABSTAINS, BUDGET), verdict
    assert verdict.message.startswith("little is left of output 't20'"), verdict.message
    assert "the budget was spent before it was known why" in verdict.message, verdict.message
    assert ("first at tensor 't16'" in verdict.message) is known, verdict.message


@pytest.mark.parametrize("readable", [True, False])
def test_what_codes_cost_as_they_are_written_takes_no_agreement_away_when_the_budget_is_spent(
    runner, monkeypatch, readable
):
    """Beside 1000 what is added to it is rounded away. Nobody can tell of the whole, and nobody looked at all cuts."""
    nodes = [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node("Sub", ["s", "c"], ["y"])]
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    case = models.case(nodes, {"x": x}, {"c": np.float32(1000)}, outputs=[("y", TensorProto.FLOAT, (8,))])

    def watched(trial, **more):
        seen = watch(trial, **more)[1]
        return Verdict(Word.ABSTAINS, message="too deep"), seen if readable else replace(seen, artifact=UNTOLD)

    def find(inquiry, checked, found):
        found.judged, found.unsought = [Judged(((0,), (1,)), Verdict(Word.AGREES, Tier.ARTIFACT))], True

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "_find", find)
    verdict = check(Trial(case, resolve("onnxruntime-quant"), {}, runner), ()).verdict
    assert verdict.word is (Word.AGREES if readable else Word.ABSTAINS), verdict.message
    assert verdict.message.startswith("little is left of output 'y'") is not readable, verdict.message
    assert ("little is left of output 'y', as of the artifact executed" in verdict.message) is readable


def told(runner, monkeypatch, x, off, *, without=None, part, whole=WRONG, rule=""):
    """What check says of Neg(Relu(x)) on a target whose Relu is by `off` too large, unless it runs with the options
    `without`, for a kernel, or for what it declares by the name of a `rule`; and whose parts and whole are judged as
    told."""
    nodes = [helper.make_node("Relu", ["x"], ["p"], name="relu"), helper.make_node("Neg", ["p"], ["y"])]
    case = models.case(nodes, {"x": np.full(4, x, np.float32)}, outputs=[("y", TensorProto.FLOAT, (4,))])
    trial = Trial(case, resolve("mnn"), {}, runner)
    if without:
        kernel = replace(trial.target.kernels[-1], operators=frozenset({"Relu"}), without=without)
        target = replace(trial.target, kernels=(kernel,))
        if rule:
            declared = Rule(rule, "execute", "", "https://example.org", without=without)
            target = replace(target, kernels=(), exceptions=(declared,))
        trial = replace(trial, installed=replace(trial.installed, target=target))

    def watched(trial, **more):
        (right,) = runner.reference.run(trial.case).outputs
        operators = [node.op_type for node in trial.case.proto.graph.node]
        if "Relu" not in operators or (without and trial.options["disabled_kernels"]):
            return Verdict(Word.AGREES, Tier.EXACT), Observation((), (right,))
        sign = -1 if "Neg" in operators else 1
        verdict = whole if trial.case.model == case.model else part
        return verdict, Observation((), ({name: y + np.float32(sign * off) for name, y in right.items()},))

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "look_inside", lambda *args: Inside(trial, ({},)))
    put(monkeypatch, "examine", lambda trial, *issues, **more: Examination(watched(trial)[0], known="known"))
    saved = SimpleNamespace(rule="documented", target="", kind="", cause=None)
    return check(trial, [SimpleNamespace(id="known", names=(), saved=saved)])


OF_USE = pytest.mark.parametrize(
    ("x", "off", "usable"), [(1, 0.1, True), (1, 3, False), (0, 1e-4, True), (0, 3, False)]
)
"""An element, how far its Relu is off, and whether what comes out is of use: against zeros the error itself counts."""


@OF_USE
def test_what_is_documented_and_takes_an_output_away_is_told_with_the_options_that_end_it(
    runner, monkeypatch, x, off, usable
):
    without, excused = {"disabled_kernels": ["Winograd"]}, Verdict(Word.AGREES, Tier.ARTIFACT, rule="cut")
    checked = told(runner, monkeypatch, x, off, without=without, part=excused, whole=excused, rule="cut")
    assert (checked.verdict.word, checked.verdict.rule) == (Word.AGREES if usable else Word.DIVERGES, "cut")
    assert (checked.costs[0].kernel, checked.costs[0].options) == ("cut", without)
    said = "cut costs" in checked.verdict.message and "gone with disabled_kernels" in checked.verdict.message
    assert said is usable, checked.verdict.message  # else it is said which nodes take it away


@OF_USE
def test_a_kernel_that_takes_an_output_away_is_no_rounding(runner, monkeypatch, x, off, usable):
    without, right = {"disabled_kernels": ["Winograd"]}, Verdict(Word.AGREES, Tier.EXACT)
    checked = told(runner, monkeypatch, x, off, without=without, part=right)
    assert (checked.verdict.word, checked.verdict.rule) == (Word.AGREES if usable else Word.DIVERGES, "Winograd")
    assert ("not usable" in checked.verdict.message) is not usable, checked.verdict.message
    assert checked.costs[0].moved == pytest.approx(off, rel=1e-3)


@OF_USE
def test_what_is_documented_is_excused_where_what_comes_out_is_of_use(runner, monkeypatch, x, off, usable):
    checked = told(runner, monkeypatch, x, off, part=WRONG)
    assert checked.diagnoses[0].impact == 1.0
    assert (checked.verdict.word, checked.verdict.rule) == (
        (Word.AGREES, "documented") if usable else (Word.DIVERGES, "")
    )


@OF_USE
def test_floats_that_are_right_by_a_rule_are_named_where_they_take_an_output_away(runner, monkeypatch, x, off, usable):
    by_rule = Verdict(Word.AGREES, Tier.RUNNING_ERROR, rule="approximated")
    checked = told(runner, monkeypatch, x, off, part=by_rule, whole=by_rule)
    assert checked.verdict.word is (Word.AGREES if usable else Word.DIVERGES), checked.verdict
    assert ("relu" in [c.node for c in checked.culprits]) is not usable


@OF_USE
def test_a_lost_output_agrees_by_no_rule_that_no_time_was_left_to_weigh(runner, monkeypatch, x, off, usable):
    by_rule = Verdict(Word.AGREES, Tier.RUNNING_ERROR, rule="approximated")

    def spent(*args, **more):
        raise ExhaustedError

    put(monkeypatch, "submodel", spent)
    verdict = told(runner, monkeypatch, x, off, part=by_rule, whole=by_rule).verdict
    assert verdict.word is (Word.AGREES if usable else Word.ABSTAINS), verdict
    assert ("an output is lost" in verdict.message) is not usable, verdict.message


def test_a_part_that_cannot_be_cut_out_does_not_end_the_weighing_of_the_others(runner, monkeypatch):
    by_rule, cut = Verdict(Word.AGREES, Tier.RUNNING_ERROR, rule="approximated"), []

    def unrecorded_once(*args, **options):
        cut.append(args[1])
        if len(cut) == 1:
            raise UnrecordedError
        return submodel(*args, **options)

    put(monkeypatch, "submodel", unrecorded_once)
    put(monkeypatch, "survey", lambda *args: [Judged(((0,),), by_rule)])
    checked = told(runner, monkeypatch, 1, 3, part=by_rule, whole=by_rule)
    assert (len(cut), checked.verdict.word) == (2, Word.DIVERGES), checked.verdict


def test_a_part_that_fails_for_being_cut_out_hides_no_weight_that_does_nothing(runner):
    """A 1-D Conv that ends a part has a dim too many in MNN, and of channels of hardly anything all weights are one."""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 4, 1), (8, 8, 1)))
    w[3] *= 1e-5
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["p"]),
        helper.make_node("Conv", ["p", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["q"]),
        helper.make_node("GlobalAveragePool", ["q"], ["y"]),
    ]
    x = rng.standard_normal((1, 4, 16)).astype(np.float32)
    case = models.case(nodes, {"x": x}, {"w": w, "v": v}, outputs=[("y", TensorProto.FLOAT, (1, 8, 1))])
    checked = check(Trial(case, resolve("mnn"), {"quantize": "weight-only"}, runner), ())
    assert checked.verdict.word is Word.AGREES, checked.verdict
    assert "but for what does nothing to the outputs: weight" in checked.verdict.message, checked.verdict.message
    assert [note.op_type for note in checked.notes] == ["Conv"], checked.notes


@pytest.mark.parametrize(("gain", "word"), [(1.0, Word.AGREES), (3e4, Word.DIVERGES)])
def test_wrong_weights_in_half_precision_are_weighed_before_any_window(runner, monkeypatch, gain, word):
    """Of a channel of hardly anything all weights become one, which does nothing, unless it is amplified."""
    rng, dtype = np.random.default_rng(0), np.float16
    w, v = (rng.standard_normal(shape).astype(dtype) for shape in ((8, 4, 3, 3), (8, 8, 3, 3)))
    w[3] *= dtype(1e-5)
    gains = np.where(np.arange(8) == 3, gain, 1).astype(dtype).reshape(1, 8, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["o"], name="cut"),
        helper.make_node("Mul", ["o", "gains"], ["p"], name="amplify"),
        helper.make_node("Conv", ["p", "v"], ["y"], name="second"),
    ]
    x = rng.standard_normal((1, 4, 9, 9)).astype(dtype)
    constants, told = {"w": w, "v": v, "gains": gains}, list[str]()
    case = models.case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT16, (1, 8, 5, 5))])
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(WRONG))
    checked = check(Trial(case, resolve("mnn"), {"quantize": "weight-only"}, runner), (), tell=told.append)
    assert checked.verdict.word is word, checked.verdict
    accused = checked.culprits if word is Word.DIVERGES else checked.notes
    assert [each.node for each in accused] == ["first"], checked.verdict
    first = next(line for line in told if line.startswith(("at fault", "windows: ")))
    assert first == "at fault: first Conv", told


@pytest.mark.parametrize(("share", "across"), [(0.9, False), (0.2, True)])
def test_cuts_between_windows_are_asked_about_only_while_the_error_is_not_explained(runner, monkeypatch, share, across):
    nodes = [helper.make_node("Neg", [f"t{k}"], [f"t{k + 1}"], name=f"neg{k}") for k in range(20)]
    case = models.case(nodes, {"t0": np.ones(4, np.float32)}, outputs=[("t20", TensorProto.FLOAT, (4,))])

    def watched(trial, **more):
        outputs, part = runner.reference.run(trial.case).outputs, trial.case.proto.graph.node
        if all(node.name != "neg3" for node in part):
            return Verdict(Word.AGREES, Tier.EXACT), Observation((), outputs)
        return WRONG, Observation((), tuple({name: 2 * x for name, x in out.items()} for out in outputs))

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "look_inside", lambda trial, *args: Inside(trial, ({},)))
    put(monkeypatch, "impact", lambda *args, **more: Impact(share, 1.0))
    put(monkeypatch, "examine", lambda trial, *args, **options: Examination(WRONG))
    checked = check(Trial(case, resolve("mnn"), {}, runner), ())
    assert [culprit.node for culprit in checked.culprits] == ["neg3"], checked.verdict
    cuts = [{(k,), (k + 1,)} <= set(judged.window) for k in (7, 15) for judged in checked.judged]
    assert sum(cuts) == 2 * across
    assert len(checked.judged) == 4 + 2 * across, "three windows, and what neg3 leaves of one"


def test_what_is_transformed_and_rounded_to_codes_of_its_own_is_a_kernels_cost_and_no_fault(runner):
    """EMA lets 3x3 Convs of stride 1 run in Winograd's form, in codes: simulated as it stands, every second element
    is wrong."""
    rng = np.random.default_rng(2)
    weights, data = rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8, rng.standard_normal((2, 1, 8, 16, 16))
    node, y = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4), ("y", TensorProto.FLOAT, (1, 8, 16, 16))
    first, second = ({"x": x.astype(np.float32)} for x in data)
    case = replace(models.case([node], first, {"w": weights}, outputs=[y]), calibration=(first, second))
    found = check(Trial(case, resolve("mnn"), {"quantize": "offline", "method": "EMA"}, runner), ())
    assert (found.verdict.word, found.verdict.rule) == (Word.AGREES, "Winograd of codes"), found.verdict
    assert "gone with disabled_kernels=Winograd" in found.verdict.message
    trial = Trial(case, resolve("mnn"), {"quantize": "offline", "method": "EMA"}, runner)
    before, after = ([kernel.name for kernel in kernels.used(trial, before=before)] for before in (True, False))
    assert (before, after) == (["Winograd"], ["Winograd of codes", "Winograd"]), "there are no codes before"
