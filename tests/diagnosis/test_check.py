"""check: a right model is vouched for, a wrong one is localized, reduced, and told what makes it go away."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.campaign.seeds import seeds
from driftnet.campaign.summary import described
from driftnet.cli import main as cli
from driftnet.cli.report import pages, tables
from driftnet.diagnosis import check as checks
from driftnet.diagnosis import conclusion, faults, kernels, requantized
from driftnet.diagnosis.check import check
from driftnet.diagnosis.inquiry import BUDGET, Found
from driftnet.diagnosis.localize import Fault
from driftnet.diagnosis.result import Checked, Diagnosis
from driftnet.findings import corpus, explaining, pipeline, pursuing
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import KnownIssue, issues
from driftnet.findings.pipeline import Examination, examine
from driftnet.findings.trial import TOO_MUCH, Confirmed, Trial, watch
from driftnet.model.case import Case
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Tier, Verdict, Word
from driftnet.model.windows import Judged
from driftnet.oracle.tolerances.table import LOST
from driftnet.reduce import passes, reducer
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.subgraphs import entered
from driftnet.run.reference import ReferenceRun
from driftnet.selfcheck import mutated
from driftnet.selfcheck.mutant import MUTANTS
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from onnx import TensorProto, helper
from rich.console import Console

from tests.support import localization, models, production
from tests.support import reduction as tools
from tests.support.checking import put
from tests.support.localization import FLOAT
from tests.support.paths import no_cases, saved_case


def one_node(op_type, x):
    """A model of one node on `x`."""
    node = helper.make_node(op_type, ["x"], ["y"])
    return models.case([node], {"x": x}, outputs=[("y", TensorProto.FLOAT, x.shape)])


@pytest.mark.parametrize("recipe", [FLOAT, {}], ids=str)
def test_a_right_model_agrees_and_nearly_every_node_is_vouched_for(runner, recipe):
    checked = check(Trial(production.SMALL["dual_path_rnn"](), resolve("onnxruntime-quant"), recipe, runner), ())
    assert checked.verdict.word is Word.AGREES, checked.verdict.message
    assert checked.vouched >= 0.95, f"nobody can tell of {checked.doubtful}"


@pytest.fixture
def too_large(monkeypatch):
    """A model that takes too much to be judged as a whole."""
    case = production.SMALL["dual_path_rnn"]()

    def whole_is_too_much(trial, **more):
        verdict, seen = watch(trial, **more)
        too_much = nodes(trial.case) == nodes(case)
        return (Verdict(Word.ABSTAINS, message="too much", rule=TOO_MUCH), None) if too_much else (verdict, seen)

    put(monkeypatch, "watch", whole_is_too_much)
    return case


def test_nodes_of_a_window_that_agrees_within_a_bound_that_allows_anything_are_not_verified():
    case = one_node("Relu", np.ones((2, 3), np.float32))
    agrees = Verdict(Word.AGREES, Tier.RUNNING_ERROR, output="y", bound=1e9)
    window = ((0,), (0,))
    shares = [
        conclusion._doubtful(
            case, Found("mnn", None, judged=[Judged(window, dataclasses.replace(agrees, loose=loose))]), [], ""
        )[1]
        for loose in (False, True)
    ]
    assert shares == [1.0, 0.0], f"{shares} of the nodes are verified, should be all and none"


def test_a_model_that_takes_too_much_to_be_judged_as_a_whole_is_judged_in_windows(runner, too_large):
    checked = check(Trial(too_large, resolve("onnxruntime-graph"), {}, runner), ())
    assert checked.verdict.word is Word.AGREES, checked.verdict.message
    assert checked.vouched >= 0.95, f"nobody can tell of {checked.doubtful}"


def test_what_is_wrong_in_a_model_that_takes_too_much_is_at_fault(runner, too_large):
    target = resolve("tests.support.localization:MATMUL_ADD_LOSES_THE_BIAS.onnxruntime_quant")
    checked = check(Trial(too_large, target, FLOAT, runner), ())
    assert checked.verdict.word is Word.DIVERGES, checked.verdict.message
    assert {c.op_type for c in checked.culprits} == {"MatMul", "Add"}


@pytest.mark.parametrize(("bug", "model"), [("MATMUL_ADD_LOSES_THE_BIAS", "dual_path_rnn")])
def test_a_planted_bug_is_localized_and_reduced(runner, bug, model):
    case, planted = production.SMALL[model](), localization.BUGS[bug]
    runs = runner.target_runs
    checked = check(Trial(case, resolve(f"tests.support.localization:{bug}.onnxruntime_quant"), FLOAT, runner), ())
    right, extra, size = localization.judged(checked, planted, case)
    assert checked.verdict.failed
    assert right, f"blames {[d.nodes for d in checked.diagnoses]}"
    assert extra == 0, "nodes more than the bug needs"
    assert size <= 16
    assert runner.target_runs - runs <= 300


@pytest.mark.parametrize(
    ("name", "recipe", "cures", "stage"),
    [
        (
            "OPTIMIZER_BREAKS_SOFTMAX",
            FLOAT,
            {("optimization", "off"), ("disabled_optimizers", "['TransposeOptimizer']")},
            "execute",
        ),
        ("REWRITING_BREAKS_SOFTMAX", {}, {("optimize_level", "0")}, "convert"),
    ],
)
def test_what_makes_it_go_away_is_found_down_to_the_optimizer(runner, name, recipe, cures, stage):
    target = resolve(f"tests.support.localization:{name}")
    (diagnosis,) = check(Trial(one_node("Softmax", models.grid((2, 3, 4))), target, recipe, runner), ()).diagnoses
    assert diagnosis.examination.finding.recipe == recipe, "quantizing is no simplification"
    assert {(r.option, str(r.value)) for r in diagnosis.remedies} == cures
    assert diagnosis.stage == stage


def test_what_stands_beside_the_nodes_at_fault_is_vouched_for(runner):
    nodes = [
        helper.make_node(*words)
        for words in (
            ("Tanh", ["x"], ["t"]),
            ("MatMul", ["t", "w"], ["m"]),
            ("Add", ["m", "b"], ["a"]),
            ("Sigmoid", ["a"], ["y"]),
        )
    ]
    constants = {"w": models.grid((3, 2)), "b": np.array([1, -3], np.float32)}
    case = models.case(nodes, {"x": models.grid((2, 3))}, constants, outputs=[("y", TensorProto.FLOAT, (2, 2))])
    target = resolve("tests.support.localization:MATMUL_ADD_LOSES_THE_BIAS.onnxruntime_quant")
    checked = check(Trial(case, target, FLOAT, runner), ())
    assert checked.verdict.word is Word.DIVERGES, checked.verdict.message
    assert (checked.vouched, checked.doubtful) == (0.5, {"MatMul": 1, "Add": 1})
    told = checked.as_json()
    assert told["windows"] == {"judged": 2, "diverges": 1, "agrees": 1}
    assert [row for row in told["worst"] if told["worst"].count(row) > 1] == [], "the model and its window say the same"


@pytest.mark.parametrize(("bug", "stage"), [("stale-bias-scale", "quantize"), ("lost-inner-remainder", "execute")])
def test_a_fault_of_a_quantized_model_is_put_down_to_its_stage(runner, bug, stage):
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")
    weights = {"w": models.grid((2, 3, 1, 1)), "b": np.array([1, -3], np.float32)}
    case = models.case(
        [node], {"x": models.grid((1, 3, 2, 2))}, weights, outputs=[("y", TensorProto.FLOAT, (1, 2, 2, 2))]
    )
    target = resolve(mutated.word(bug, "onnxruntime-quant"))
    checked = check(Trial(case, target, MUTANTS[bug].options(target.target), runner), ())
    assert [(d.nodes, d.stage) for d in checked.diagnoses] == [((("conv", "Conv"),), stage)], checked.verdict


def test_a_window_that_fails_for_being_cut_out_is_judged_in_a_frame(runner):
    """MNN gives what a 1-D Conv makes a dim more where it is an output."""
    nodes = [
        node
        for k in range(5)
        for node in (
            helper.make_node("Conv", [f"x{k}", f"w{k}"], [f"y{k}"], kernel_shape=[3], pads=[1, 1]),
            helper.make_node("Relu", [f"y{k}"], [f"x{k + 1}"]),
        )
    ]
    nodes.append(helper.make_node("ReduceMean", ["x5"], ["z"], axes=[2], keepdims=0))
    rng = np.random.default_rng(0)
    weights = {f"w{k}": rng.normal(size=(4, 4, 3)).astype(np.float32) for k in range(5)}
    case = models.case(
        nodes, {"x0": models.grid((1, 4, 16))}, weights, outputs=[("z", TensorProto.FLOAT, (1, 4))], opset=17
    )
    checked = check(Trial(case, resolve("mnn"), {"quantize": "weight-only"}, runner), ())
    assert {judged.verdict.word for judged in checked.judged} == {Word.AGREES}, checked.judged


def test_a_spent_budget_keeps_the_verdict_on_the_whole_model(runner):
    case = production.SMALL["transformer"]()
    checked = check(
        Trial(case, resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant"), FLOAT, runner),
        (),
        seconds=0,
    )
    assert checked.verdict.word in (Word.DIVERGES, Word.ABSTAINS)
    assert not checked.judged
    assert checked.vouched == 0.0


@pytest.mark.parametrize(("seconds", "word"), [(60, Word.DIVERGES), (0, Word.ABSTAINS)])
def test_what_was_seen_as_wrong_is_told_where_the_reference_gives_no_answer_any_more(
    runner, monkeypatch, seconds, word
):
    case, culprits = models.relu(), (("relu", "Relu"),)
    wrong = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES, message="far off", culprits=culprits)
    seen = Observation((), ({"y": np.zeros(1, np.float32)},))
    lost = ReferenceRun("", (), "an answer of 600 MiB")
    monkeypatch.setattr(kernels, "uncovered", lambda trial, *ran: (trial, *ran))
    put(monkeypatch, "_random_outputs", lambda case: ())
    monkeypatch.setattr(runner.reference, "run", lambda case: lost)
    said = []
    for verdict in (wrong, Verdict(Word.AGREES, Tier.BUDGET)):
        put(monkeypatch, "watch", lambda trial, verdict=verdict, **more: (verdict, seen))
        said.append(check(Trial(case, resolve("onnxruntime-quant"), FLOAT, runner), (), seconds=seconds))
    of_wrong, of_right = said
    assert (of_wrong.verdict.word, [c.node for c in of_wrong.culprits]) == (word, ["relu"])
    assert "far off" in of_wrong.verdict.message
    assert of_right.verdict.word is Word.ABSTAINS
    spent = [one.verdict.rule == BUDGET and "the budget was spent" in one.verdict.message for one in said]
    assert spent == [seconds == 0] * 2, [one.verdict for one in said]


@pytest.mark.parametrize(("spent", "why"), [(True, "--budget SECONDS gives more"), (False, "no part that was cut out")])
def test_of_a_failure_that_no_node_is_named_for_it_is_said_why(runner, monkeypatch, spent, why):
    def find(inquiry, checked, found):
        found.unsought = spent

    put(monkeypatch, "_find", find)
    target = resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant")
    checked = check(Trial(one_node("Erf", np.linspace(-2, 2, 8, dtype=np.float32)), target, FLOAT, runner), ())
    assert checked.verdict.failed
    assert why in checked.verdict.message, checked.verdict.message


def test_a_place_of_a_known_cause_is_run_by_itself_before_any_window_of_a_model_that_crashes(runner, monkeypatch):
    """On large pictures no window but the first is judged in the time that a model is given."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["a"], ["y"], axes=[2, 3], name="last"),
    ]
    case = models.case(
        nodes, {"x": np.ones((1, 2, 4, 4), np.float32)}, outputs=[("y", TensorProto.FLOAT, (1, 2, 1, 1))]
    )
    known = KnownIssue(corpus.load(saved_case("2c63448f")))
    for later in ("survey_windows", "diagnose"):
        put(monkeypatch, later, lambda *asked: None)
    checked = check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), [known])
    assert checked.verdict.word is Word.CRASHES, f"it agrees with {checked.verdict.message}: has MNN mended this?"
    assert [culprit.node for culprit in checked.culprits] == ["last"]


def interrupt(*args, **options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["reducing", "trying options", "examining"])
def test_ctrl_c_keeps_what_was_found_so_far(runner, monkeypatch, when):
    if when == "reducing":
        monkeypatch.setattr(reducer, "PASSES", (passes.window, interrupt))
    else:
        put(monkeypatch, "remedies" if when == "trying options" else "examine", interrupt)
    target = resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant")
    checked = check(Trial(one_node("Erf", np.linspace(-2, 2, 8, dtype=np.float32)), target, FLOAT, runner), ())
    assert checked.interrupted
    assert checked.verdict.failed
    assert [culprit.op_type for culprit in checked.culprits] == ["Erf"]
    sizes = [elements(diagnosis.examination.finding.case) for diagnosis in checked.diagnoses]
    assert sizes == {"reducing": [8], "trying options": [1], "examining": []}[when]


def test_ctrl_c_keeps_a_crash_that_is_being_asked_for_again(runner, monkeypatch):
    case = one_node("Exp", np.linspace(-2, 2, 8, dtype=np.float32))
    put(monkeypatch, "watch", lambda trial, **more: (CRASH, Observation(())))
    put(monkeypatch, "look", interrupt)
    checked = check(Trial(case, resolve("mnn"), {}, runner), ())
    assert checked.interrupted
    assert checked.verdict == CRASH


def test_ctrl_c_ends_a_check_that_has_found_nothing_yet(runner, monkeypatch):
    put(monkeypatch, "survey", interrupt)
    with pytest.raises(KeyboardInterrupt):
        check(Trial(one_node("Exp", np.linspace(-2, 2, 8, dtype=np.float32)), resolve("mnn"), {}, runner), ())


@pytest.mark.parametrize(("effort", "unfinished"), [(Effort(calls=1), True), (Effort(seconds=0), True), (None, False)])
def test_a_finding_says_when_its_reduction_was_cut_short(runner, tmp_path, effort, unfinished):
    target = resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant")
    case = one_node("Erf", np.linspace(-2, 2, 8, dtype=np.float32))
    finding = examine(Trial(case, target, FLOAT, runner), effort=effort).finding
    saved = finding.to_save()
    assert (saved.unfinished, saved.note) == (unfinished, ""), "the note is for the cause"
    loaded = corpus.load(corpus.save(saved, tmp_path))
    assert loaded.unfinished == unfinished
    assert described(loaded, "1", "new").unfinished == unfinished


def trained_with_a_dead_channel(runner, kept_alive):
    """Convolution, Relu, a factor a channel, mean, and a readout that is fitted to a target by ridge regression. What
    decay has made of one channel is 1e-5 of the others; `kept_alive` its factor makes up for that."""
    rng = np.random.default_rng(7)
    weights, factors = rng.normal(0, 0.3, (8, 4, 3, 3)).astype(np.float32), np.ones((8, 1, 1), np.float32)
    weights[5] *= 1e-5
    factors[5] = 1e5 if kept_alive else 1
    body = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Mul", ["r", "k"], ["m"]),
        helper.make_node("GlobalAveragePool", ["m"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
    ]
    x = rng.normal(size=(40, 4, 8, 8)).astype(np.float32)
    constants = {"w": weights, "k": factors}
    seen = models.case(body, {"x": x}, constants, outputs=[("f", TensorProto.FLOAT, (40, 8))])
    features = runner.reference.run(seen).outputs[0]["f"].astype(np.float64)
    target = np.stack([features.sum(1), x[:, 0].mean((1, 2)), features[:, 2]], 1)
    readout = np.linalg.solve(features.T @ features + 1e-3 * np.eye(8), features.T @ target)
    nodes = [*body, helper.make_node("MatMul", ["f", "v"], ["y"], name="readout")]
    return models.case(
        nodes, {"x": x[:2]}, {**constants, "v": readout.astype(np.float32)}, outputs=[("y", TensorProto.FLOAT, (2, 3))]
    )


@pytest.mark.parametrize(("kept_alive", "word"), [(False, Word.AGREES), (True, Word.DIVERGES)])
def test_a_wrong_weight_is_a_failure_where_the_outputs_feel_it_and_else_a_note(runner, kept_alive, word):
    """MNN makes all weights of a channel the smallest, where a step between them would be below 1e-6."""
    case = trained_with_a_dead_channel(runner, kept_alive)
    checked = check(Trial(case, resolve("mnn"), {"quantize": "weight-only"}, runner), ())
    named = [culprit.node for culprit in (checked.culprits if kept_alive else checked.notes)]
    assert (checked.verdict.word, named) == (word, ["conv"]), checked.verdict.message
    assert "of channel 5 of Conv 'c' is dequantized to" in checked.verdict.message, checked.verdict.message
    assert kept_alive or not checked.culprits, f"{checked.culprits} should be notes"


def test_what_is_documented_is_no_failure(runner):
    target = resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant")
    case = one_node("Erf", np.linspace(-2, 2, 8, dtype=np.float32))
    finding = check(Trial(case, target, FLOAT, runner), ()).diagnoses[0].examination.finding
    known = KnownIssue(finding.to_save())
    assert check(Trial(case, target, FLOAT, runner), [known]).known == known.id, (
        "an open case is known, and still fails"
    )
    documented = KnownIssue(dataclasses.replace(known.saved, rule="erf is approximated"))
    checked = check(Trial(case, target, FLOAT, runner), [documented])
    assert (checked.verdict.word, checked.verdict.rule) == (Word.AGREES, "erf is approximated")


def test_a_kernel_that_floors_is_told_from_one_that_rounds(runner):
    """A right kernel is a step off near ties only, and the oracle knows where these are."""
    case = one_node("Softmax", np.linspace(-1, 2, 16, dtype=np.float32))
    unfused = {"optimization": "off"}
    assert check(Trial(case, resolve("onnxruntime-quant"), unfused, runner), ()).verdict.word is Word.AGREES
    target = resolve(mutated.word("floor-for-round", "onnxruntime-quant"))
    checked = check(Trial(case, target, unfused, runner), ())
    assert (checked.verdict.word, checked.verdict.kind) == (Word.DIVERGES, Kind.OFF_BY_ONE_STEP)
    finding = checked.diagnoses[0].examination.finding
    issue = KnownIssue(finding.to_save())
    known = check(Trial(case, target, unfused, runner), [issue])
    said = (known.verdict.word, known.verdict.rule)
    assert said == (Word.AGREES, Kind.OFF_BY_ONE_STEP), "a finding once, not in every model"
    cures = {remedy.option for remedy in known.diagnoses[0].remedies}
    assert cures == {remedy.option for remedy in checked.diagnoses[0].remedies} != set(), "a known fault has its cures"


def test_a_wrong_shape_that_is_there_for_being_cut_out_hides_no_wrong_values(runner, monkeypatch):
    """MNN gives what a Conv of rank 3 makes another rank where it is an output, and only there."""
    case = tools.cnn(blocks=4, planted=0)
    wrong = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES)

    def watched(trial, **more):
        part = trial.case.proto.graph
        operators = [node.op_type for node in part.node]
        if part.output[0].name == "relu1":
            return dataclasses.replace(wrong, kind=Kind.WRONG_SHAPE), Observation(())
        return (wrong if "ConvTranspose" in operators else Verdict(Word.AGREES)), Observation(())

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda *args, **options: Examination(wrong))
    assert {c.op_type for c in check(Trial(case, resolve("mnn"), {}, runner), ()).culprits} == {"ConvTranspose"}


CRASH = Verdict(Word.CRASHES, stage="quantize", kind="SIGSEGV", message="it fell over")


def test_what_a_part_gets_wrong_for_being_cut_is_not_why_nothing_comes_out_of_the_model(runner, monkeypatch):
    case, whole = tools.cnn(blocks=4, planted=0), Observation(())

    def watched(trial, **more):
        if trial.case.model == case.model:
            return CRASH, whole
        wrong = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_SHAPE)
        return (wrong if trial.case.proto.graph.output[0].name == "relu1" else Verdict(Word.AGREES)), whole

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda *args, **options: Examination(CRASH))
    checked = check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), ())
    assert checked.verdict == CRASH
    assert checked.culprits == (), "it fails otherwise"
    assert [c.op_type for c in checked.notes] == ["Relu"]
    assert [d.nodes for d in checked.diagnoses] == [()], "the model as a whole, and no part of it"


def test_what_ends_a_part_in_a_stage_that_the_whole_came_through_is_not_at_fault(runner, monkeypatch):
    """MNN's transformerFuse aborts on a Transpose and a Reshape that are a model of their own."""
    case, whole = tools.cnn(blocks=4, planted=0), Observation(())
    wrong = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES)

    def watched(trial, **more):
        if trial.case.model == case.model:
            return wrong, whole
        return (CRASH if trial.case.proto.graph.output[0].name == "relu1" else Verdict(Word.AGREES)), whole

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda *args, **options: Examination(wrong))
    checked = check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), ())
    assert (checked.culprits, checked.notes) == ((), ())


def crashing(monkeypatch, crashes):
    """The planted target crashes where `crashes` of the case holds; the cases that it was asked for."""
    asked, fell = [], Observation((StageRun("quantize", Outcome.CRASH, signal="SIGSEGV"),))

    def watched(trial, **more):
        asked.append(trial.case)
        return (CRASH if crashes(trial.case) else Verdict(Word.AGREES)), fell

    doubles = {"watch": watched, "look": lambda trial, **more: watched(trial)[0]}
    for name, double in doubles.items():
        put(monkeypatch, name, double)
    doubles["confirm"] = lambda trial: Confirmed(watched(trial)[0], 5, 5)
    for name, double in doubles.items():
        for module in (pipeline, explaining, pursuing):
            monkeypatch.setattr(module, name, double)
    return asked


def test_the_nodes_that_end_a_model_together_are_named_though_no_window_holds_them(runner, monkeypatch):
    case = tools.cnn(blocks=13, planted=6)

    def crashes(part):
        operators = [node.op_type for node in part.proto.graph.node]
        return "ConvTranspose" in operators and operators.count("Relu") >= 12 and tools.is_valid(part)

    crashing(monkeypatch, crashes)
    checked = check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), ())
    named = [c.op_type for c in checked.culprits]
    assert sorted(named) == ["ConvTranspose"] + ["Relu"] * 12, named
    names = {node.name or node.output[0] for node in case.proto.graph.node}
    assert {c.node for c in checked.culprits} <= names, "nobody finds these in the model"
    assert [d.nodes for d in checked.diagnoses] == [tuple((c.node, c.op_type) for c in checked.culprits)]


@pytest.mark.parametrize(("needed", "fed"), [(1, 1), (3, 3)])
def test_what_ends_a_model_is_looked_for_on_one_feed_where_one_ends_it(runner, monkeypatch, needed, fed):
    case = tools.cnn(blocks=4, planted=0)
    case = dataclasses.replace(case, feeds=case.feeds[:1] * 2, calibration=case.feeds[:1] * 3)
    asked = crashing(monkeypatch, lambda part: tools.contains("Relu")(part, {}) and len(part.calibration) >= needed)
    check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), ())
    windows = [len(part.calibration) for part in asked if nodes(part) == 1]
    assert max(windows) == fed, windows


def test_a_part_that_is_wrong_and_that_no_time_was_left_for_is_no_agreement(runner, monkeypatch):
    case = tools.cnn(blocks=4, planted=0)
    wrong = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_VALUES, message="far off")

    def watched(trial, **more):
        if trial.case.model == case.model:
            return Verdict(Word.ABSTAINS, message="nobody can tell"), Observation(())
        seam = [node.op_type for node in trial.case.proto.graph.node] == ["Relu", "Conv", "BatchNormalization"]
        return (wrong if seam else Verdict(Word.AGREES, Tier.EXACT)), Observation(())

    def spent(*args):
        raise ExhaustedError
        yield

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "locate", spent)
    checked = check(Trial(case, resolve("onnxruntime-quant"), FLOAT, runner), ())
    assert any(judged.verdict == wrong for judged in checked.judged), "no window was wrong"
    assert (checked.verdict.word, checked.verdict.rule) == (Word.ABSTAINS, BUDGET), checked.verdict
    assert "far off" in checked.verdict.message, checked.verdict.message


def test_faults_that_make_up_for_each_other_are_all_at_fault(runner):
    """A weighted mean over the edges of a graph, of whose two sums MNN keeps the last term: each alone is far off."""
    rng = np.random.default_rng(0)
    index = np.array([0, 1, 0, 2, 1, 0, 2, 2])
    given = {"weight": rng.uniform(0.2, 0.3, 8).astype(np.float32), "value": rng.uniform(1, 2, 8).astype(np.float32)}
    nodes_ = [
        helper.make_node("Mul", ["weight", "value"], ["weighted"]),
        helper.make_node(
            "ScatterElements", ["zero", "index", "weighted"], ["above"], axis=0, reduction="add", name="above"
        ),
        helper.make_node(
            "ScatterElements", ["zero", "index", "weight"], ["below"], axis=0, reduction="add", name="below"
        ),
        helper.make_node("Div", ["above", "below"], ["y"]),
    ]
    constants = {"zero": np.zeros(3, np.float32), "index": index}
    case = models.case(nodes_, given, constants, outputs=[("y", TensorProto.FLOAT, (3,))])
    checked = check(Trial(case, resolve("mnn"), {}, runner), ())
    assert checked.verdict.word is Word.DIVERGES
    assert {c.node for c in checked.culprits} == {"above", "below"}, f"notes: {checked.notes}"


def test_an_if_that_a_crash_needs_is_at_fault_itself(runner, monkeypatch):
    (result,) = [helper.make_tensor_value_info("made", TensorProto.FLOAT, (3, 4))]
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], ["made"])], name, [], [result])
        for name, op in (("then", "Neg"), ("else", "Abs"))
    }
    nodes_ = [helper.make_node("If", ["flag"], ["y"], name="if", **branches), helper.make_node("Relu", ["y"], ["z"])]
    given = {"x": models.grid((3, 4)), "flag": np.array(True)}
    case = models.case(nodes_, given, outputs=[("z", TensorProto.FLOAT, (3, 4))])

    def watched(trial, **more):
        operators = {node.op_type for node in trial.case.proto.graph.node}
        return (CRASH if "If" in operators else Verdict(Word.AGREES)), Observation(())

    put(monkeypatch, "watch", watched)
    put(monkeypatch, "examine", lambda *args, **options: Examination(CRASH))
    checked = check(Trial(case, resolve("mnn"), {"quantize": "offline"}, runner), ())
    assert [(c.node, c.op_type) for c in checked.culprits] == [("if", "If")]


def masked_by(value, runner, monkeypatch):
    """What a check says of a masked Softmax that onnxruntime quantizes, but for the reduced case."""
    put(monkeypatch, "diagnose", lambda *asked: None)
    masked = helper.make_node("Add", ["x", "mask"], ["masked"], name="masking")
    y = helper.make_node("Softmax", ["masked"], ["y"], name="weights")
    feed, constants = {"x": np.array([[0.5, 1, 2]], np.float32)}, {"mask": np.array([0, 0, value], np.float32)}
    case = models.case([masked, y], feed, constants=constants, outputs=[("y", TensorProto.FLOAT, [1, 3])])
    return check(Trial(case, resolve("onnxruntime-quant"), {"quantize": "static"}, runner), ())


def test_what_vanishes_beside_a_mask_is_told_with_what_leaving_it_in_float_gives(runner, monkeypatch):
    checked = masked_by(-10000, runner, monkeypatch)
    assert checked.vanishing == ("Add masking: 'x' is 2 at most, and is lost in steps of 39.2",)
    assert checked.joins_in_float[0].relative_l2 < checked.end_to_end[0].relative_l2 / 10


def test_an_infinite_scale_is_put_down_to_what_makes_the_tensor_not_to_what_reads_it(runner, monkeypatch):
    checked = masked_by(-np.inf, runner, monkeypatch)
    assert [culprit.node for culprit in checked.culprits] == ["masking"]
    assert checked.culprits[0].impact >= 0.9, "NaN, of which codes make any number, explains no error"
    assert checked.verdict.culprits == (("masking", "Add"),), "the whole model's verdict names another node"


def test_an_output_that_is_random_by_definition_has_no_error(runner):
    node = helper.make_node("RandomNormalLike", ["x"], ["r"])
    nodes_ = [node, helper.make_node("Relu", ["r"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    float_output = [(name, TensorProto.FLOAT, (4, 3)) for name in "yz"]
    checked = check(
        Trial(models.case(nodes_, {"x": models.grid((4, 3))}, outputs=float_output), resolve("mnn"), {}, runner), ()
    )
    assert checked.verdict.word is Word.AGREES
    assert checked.random == ("y",)
    assert [(row["output"], row["max_abs"]) for row in checked.as_json()["end_to_end"]] == [("z", 0.0)]


def test_a_failure_that_does_not_come_back_is_no_agreement(runner, monkeypatch):
    failure = Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV", message="it fell over")
    put(monkeypatch, "watch", lambda *args, **more: (failure, Observation(())))
    again = Examination(Verdict(Word.AGREES), unconfirmed=failure)
    put(monkeypatch, "examine", lambda *args, **options: again)
    checked = check(Trial(models.relu(), resolve("mnn"), {}, runner), ())
    assert checked.verdict.word is Word.ABSTAINS
    assert checked.verdict.message == "failed once, but not again in fresh processes: crashes in execute: it fell over"


def test_a_model_whose_functions_a_target_does_not_take_is_tried_inlined(runner):
    body = helper.make_function(
        "acme", "Half", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Half", ["x"], ["y"], domain="acme")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[body], ir_version=8)
    case = Case(model.SerializeToString(), ({"x": np.ones((2, 3), np.float32)},))
    verdict = check(Trial(case, resolve("mnn"), {}, runner), []).verdict
    assert verdict.word is Word.REJECTS
    assert "with model=functions inlined (onnx.inliner.inline_local_functions) it agrees" in verdict.message


def test_the_json_of_a_wrong_model_tells_nodes_faults_and_the_reduced_case(tmp_path):
    model = tmp_path / "transformer.onnx"
    model.write_bytes(production.SMALL["transformer"]().model)
    said = []
    settings = api.CheckSettings(
        targets=["tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant"],
        options={"quantize": "none"},
        dims={"T": 6},
        corpus=tmp_path / "corpus",
        out=tmp_path / "out",
    )
    result = api.check(model, settings, tell=said.append)
    (one,) = json.loads(json.dumps(result))["targets"]
    assert {c["op_type"] for c in one["culprits"]} == {"Erf"}
    named = [{"node": c["node"], "op_type": c["op_type"]} for c in one["culprits"]]
    assert one["faults"][0]["nodes"] == [c for c in named if c in one["faults"][0]["nodes"]]
    assert one["faults"][0]["error"] > one["faults"][0]["bound"]
    assert [s["stage"] for s in one["stages"]] == ["convert", "quantize", "execute"]
    assert one["end_to_end"][0]["output"] == "logits"
    saved = corpus.load(Path(one["reduced"]["path"]))
    assert (nodes(saved.case), elements(saved.case)) == (one["reduced"]["nodes"], one["reduced"]["elements"]) == (1, 1)
    assert one["target_runs"] < 300
    assert any("windows: " in text for text in said), f"no text on windows among {said}"
    assert any("at fault: " in text for text in said), f"no text on what is at fault among {said}"


def test_a_check_that_its_process_is_lost_with_is_made_again_in_what_is_left_and_told_so(tmp_path, monkeypatch):
    here, checking, said, given = os.getpid(), checks.check, [], []

    def check_or_end(trial, *args, seconds, tell):
        if os.getpid() != here:
            while trial.runner.all_cpu_seconds < 0.2:
                pass
            tell("so far")
            os.abort()
        given.append(seconds)
        return checking(trial, *args, seconds=seconds, tell=tell)

    monkeypatch.setattr(checks, "check", check_or_end)
    (model := tmp_path / "relu.onnx").write_bytes(models.relu().model)
    settings = api.CheckSettings(targets=["onnxruntime-quant", "mnn"], corpus=tmp_path / "none", budget=60)
    result = api.check(model, settings, tell=said.append)
    assert [one["verdict"] for one in result["targets"]] == ["agrees", "agrees"]
    assert [0 < 2 * (60 - seconds) < 1 for seconds in given] == [True, True], given
    assert [text for text in said if "lost" in text] == [
        "the process that judged was lost: all is done again, apart, with a budget of 60 CPU seconds"
    ]


def test_a_net_inside_an_if_is_entered_and_its_fault_named(runner):
    """Exporters put a whole net into a branch, of which no window could be cut."""
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    inner = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Erf", ["square"], ["made"], name="inside"),
    ]
    (result,) = [helper.make_tensor_value_info("made", TensorProto.FLOAT, (3, 4))]
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["made"])], "else", [], [result])
    branches = {"then_branch": helper.make_graph(inner, "then", [], [result]), "else_branch": other}
    nodes = [helper.make_node("If", ["flag"], ["y"], name="if", **branches)]
    outputs = [("y", TensorProto.FLOAT, (3, 4))]
    case = models.case(nodes, {"x": x, "flag": np.array(True)}, outputs=outputs)
    right = check(Trial(case, resolve("onnxruntime-quant"), FLOAT, runner), ())
    assert (right.verdict.word, right.vouched) == (Word.AGREES, 1.0), right.verdict.message
    said = check(Trial(case, resolve("onnxruntime-quant"), {}, runner), ()).as_json()["unquantized"]
    assert said == "nothing is quantized: 3 of 4 nodes stand inside If, where quantizers leave them alone"
    wrong = resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant")
    case = entered(case, runner.reference.record)
    assert [node.op_type for node in case.proto.graph.node] == ["Mul", "Erf"], "not the branch that is taken"
    checked = check(Trial(case, wrong, FLOAT, runner), ())
    assert [(c.node, c.op_type) for c in checked.culprits] == [("inside", "Erf")], checked.culprits


@pytest.mark.parametrize(("factor", "said"), [(255, "255 times as large"), (0.5, "are cut off"), (2, None)])
def test_inputs_that_are_not_like_the_data_of_calibration_are_a_mistake_that_is_told_first(
    tmp_path, capsys, factor, said
):
    x = np.linspace(0, 1, 9, dtype=np.float32)
    (tmp_path / "one.onnx").write_bytes(one_node("LeakyRelu", x).model)
    for name, scale in {"inputs": 1, "calibration": factor}.items():
        np.savez(tmp_path / f"{name}.npz", x=x * np.float32(scale))
    given = [str(tmp_path / "one.onnx"), "--target", "onnxruntime-quant", "--corpus", str(no_cases(tmp_path))]
    given += [f for name in ("inputs", "calibration") for f in (f"--{name}", str(tmp_path / f"{name}.npz"))]
    with pytest.raises(SystemExit) as end:
        cli.main(["check", *given])
    first = capsys.readouterr().out.splitlines()[:3]
    told = [line for line in first if "is calibrated on other data" in line]
    assert (len(told), end.value.code) == ((1, 2) if said else (0, 0)), first
    assert all(said in line for line in told), f"{said}: {told}"


@pytest.mark.parametrize(("quantize", "usable"), [("offline", False), ("none", True)])
def test_a_right_quantization_of_which_nothing_is_left_is_told_to_be_of_little_use(tmp_path, capsys, quantize, usable):
    """Of one peak in 248 probabilities the histogram says that it is rare, and the divergence that it is cut."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (1, 20, 248)).astype(np.float32)
    x[0, ::5, 0] += 8
    softmax = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    model, feed = tmp_path / "peaks.onnx", tmp_path / "feed.npz"
    model.write_bytes(models.case([softmax], {"x": x}, outputs=[("y", TensorProto.FLOAT, x.shape)]).model)
    np.savez(feed, x=x)
    given = [str(model), "--target", "mnn", "--option", f"quantize={quantize}", "--corpus", str(no_cases(tmp_path))]
    with pytest.raises(SystemExit) as end:
        cli.main(["check", *given, "--inputs", str(feed), "--calibration", str(feed)])
    told = capsys.readouterr().out
    assert (end.value.code, tables.OF_LITTLE_USE in told) == (0, not usable), told


@pytest.mark.parametrize(("atol", "status"), [(0.1, 0), (1e-9, 1)])
def test_what_a_team_accepts_is_no_failure_of_its_pipeline(tmp_path, atol, status):
    model = tmp_path / "erf.onnx"
    model.write_bytes(one_node("Erf", np.linspace(-1, 1, 9, dtype=np.float32)).model)
    settings = api.CheckSettings(
        targets=["tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant"],
        options={"quantize": "none"},
        corpus=tmp_path / "corpus",
        atol=atol,
        accept="half precision on purpose",
    )
    result = api.check(model, settings)
    (one,) = result["targets"]
    said = "half precision on purpose" if status == 0 else ""
    assert (one["verdict"], one["accepted"], api.check_status(result)) == ("diverges", said, status)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("agrees/mnn rejects/mnn", 0),
        ("rejects/mnn rejects/mnn", 2),
        ("agrees/mnn rejects/mnn fails/mnn", 1),
        ("agrees/mnn abstains/mnn", 2),
        ("agrees/another rejects/mnn", 2),
        ("agrees/mnn==3.5.0 rejects/mnn==3.0.0", 2),
        ("agrees/mnn==3.5.0 rejects/mnn==3.5.0", 0),
    ],
)
def test_what_one_recipe_of_a_sweep_does_not_support_is_passed_over(words, status):
    said = []
    for word in words.split():
        verdict, _, asked = word.partition("/")
        target, _, release = asked.partition("==")
        said.append({"target": target, "release": release, "verdict": verdict, "accepted": "", "known": ""})
    assert api.check_status({"targets": said}) == status
    said[-1]["interrupted"] = True
    assert api.check_status({"targets": said}) == (1 if status == 1 else 2), "there may be more"


@pytest.mark.parametrize("given", [{"atol": 1.0}, {"accept": "why"}])
def test_what_is_accepted_needs_a_size_and_a_reason(tmp_path, given):
    model = tmp_path / "erf.onnx"
    model.write_bytes(one_node("Erf", np.ones(1, np.float32)).model)
    with pytest.raises(UserError, match="a size and a reason"):
        api.check(model, api.CheckSettings(**given))


def test_data_sets_beside_a_model_are_its_inputs_and_what_is_made_up_is_told(tmp_path):
    """ONNX's own tests and saved cases lie so: model.onnx beside test_data_set_<k>."""
    case = one_node("Relu", np.array([[0, 0.5], [1, 2]], np.float32))
    (tmp_path / "model.onnx").write_bytes(case.model)
    settings = api.CheckSettings(targets=["onnxruntime-quant"], options={"quantize": "none"}, corpus=tmp_path / "none")
    invented = api.check(tmp_path / "model.onnx", settings)["targets"][0]
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(onnx.numpy_helper.from_array(case.feeds[0]["x"], "x").SerializeToString())
    given = api.check(tmp_path / "model.onnx", settings)["targets"][0]
    assert (invented["made_up"], given["made_up"]) == (["x"], [])
    assert given["end_to_end"][0]["largest"] == 2.0, "the largest that was given"
    (tmp_path / "other.onnx").write_bytes(case.model)
    assert api.check(tmp_path / "model.onnx", settings)["targets"][0]["made_up"] == ["x"], "of which model they are?"


def test_a_model_of_free_sizes_is_fed_what_it_takes(tmp_path, runner):
    """An exported detector: an image of 2 x 2, which is made up first, is smaller than its kernel."""
    kernel = np.ones((1, 1, 5, 5), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    given, free = {"x": np.ones((1, 1, 6, 6), np.float32)}, {"x": ["N", 1, "H", "W"]}
    made = models.case(nodes, given, {"w": kernel}, outputs=[("y", TensorProto.FLOAT, None)], shapes=free)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.model)
    settings = api.CheckSettings(targets=["onnxruntime-quant"], options={"quantize": "none"}, corpus=tmp_path / "none")
    result = api.check(path, settings)["targets"][0]
    assert (result["verdict"], result["made_up_shapes"]) == ("agrees", {"x": [2, 1, 32, 32]})
    (seed,) = seeds([path], runner.reference)
    assert seed.feeds[0]["x"].shape == (2, 1, 32, 32), "fuzz --from takes it too"


def test_a_known_fault_is_handed_over_as_the_case_it_is_known_by(tmp_path, capsys):
    source = saved_case("9804cf0d")
    known = corpus.load(source)
    corpus.save(known, tmp_path / "corpus")
    settings = api.CheckSettings(
        inputs=source / "test_data_set_0",
        targets=[known.target],
        recipe=known.recipe,
        corpus=tmp_path / "corpus",
        out=tmp_path / "out",
    )
    result = api.check(source / "model.onnx", settings)
    (fault,) = result["targets"][0]["faults"]
    assert (fault["known"], api.check_status(result)) == (known.id, 0), "off by a step it is no failure of the model"
    assert fault["goes_away_with"]
    folder = Path(fault["known_path"])
    assert folder.is_relative_to(tmp_path / "out")
    assert {"reproduce.py", "ISSUE.md", "model.onnx"} <= {path.name for path in folder.iterdir()}
    page = pages.write_check(result, source / "model.onnx", tmp_path / "out").read_text(encoding="utf-8")
    assert "The known case" in page
    tables.check(Console(width=200), result)
    told = capsys.readouterr().out
    for text, called in ((told, "no failure of the model"), (page, "No failure of the model")):
        assert f"{called} (off-by-one-step)" in text
        assert "nodes at fault" not in text.lower()


def test_what_quantizing_loses_is_not_put_down_to_the_step_of_a_kernel_that_it_goes_through(tmp_path, runner):
    """A mask of -10000 leaves nothing of the scores beside it, whose Softmax is a step low, too."""
    corpus.save(corpus.load(saved_case("9804cf0d")), tmp_path)
    rng = np.random.default_rng(0)
    x, mask = rng.normal(0, 3, (8, 8)), np.where(rng.random((8, 8)) < 0.5, -1e4, 0)
    mask[0] = [0, *7 * [-1e4]]
    feed = {"x": x.astype(np.float32), "mask": mask.astype(np.float32)}
    both = [helper.make_node("Add", ["x", "mask"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    case = models.case(both, feed, outputs=[("y", TensorProto.FLOAT, x.shape)])
    checked = check(Trial(case, resolve("onnxruntime-quant"), {}, runner), issues(tmp_path))
    (fault,) = checked.diagnoses
    assert checked.end_to_end[0].change > LOST, "nothing is lost, so nothing is tested"
    assert (checked.verdict.word, checked.verdict.rule) == (Word.AGREES, "off-by-one-step"), checked.verdict.message
    assert fault.impact is not None
    assert fault.impact < 0.01, f"a step of one weight of 64 explains {fault.impact:.0%} of the error"


def test_what_is_known_is_called_by_its_cause_and_told_with_the_default_that_mends_it(tmp_path, capsys):
    source = saved_case("7ad11722")
    shutil.copytree(source.parent, tmp_path / "corpus" / "mnn" / source.parent.name)
    settings = api.CheckSettings(inputs=source / "test_data_set_0", targets=["mnn"], corpus=tmp_path / "corpus")
    result = api.check(source / "model.onnx", settings)
    (told,) = result["targets"]
    (fault,) = told["faults"]
    assert (fault["known"], fault["cause"], told["cause"]) == (source.name, source.parent.name, source.parent.name)
    tables.check(Console(width=200), result)
    text = capsys.readouterr().out
    page = pages.write_check(result, source / "model.onnx", tmp_path).read_text(encoding="utf-8")
    assert f"known: {source.parent.name}: BatchNormalization" in text
    assert "goes away with model=epsilon of BatchNormalization stated" in text
    assert f"<dd><code>{source.parent.name}</code>: BatchNormalization" in page
    assert source.name not in text, "a case is meant by nothing here"


def test_a_model_beyond_two_gib_is_refused_where_it_has_to_be_loaded(tmp_path):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**20, 2**10], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="huge.bin")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["w"], ["y"])], "huge", [], [helper.make_tensor_value_info("y", 1, None)], [tensor]
    )
    (tmp_path / "huge.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with open(tmp_path / "huge.bin", "wb") as file:
        file.truncate(2**32)  # sparse
    with pytest.raises(UserError, match=r"holds 4\.0 GiB of external data; this command takes models up to 2 GiB"):
        corpus.read_onnx(tmp_path / "huge.onnx")


def test_missing_external_data_are_called_that(tmp_path):
    model = onnx.ModelProto.FromString(models.grouped_conv_transpose_and_norm().model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    assert corpus.read_onnx(tmp_path / "m.onnx").graph.initializer[0].raw_data
    (tmp_path / "m.bin").unlink()
    with pytest.raises(UserError, match="its external data cannot be read"):
        corpus.read_onnx(tmp_path / "m.onnx")


def test_of_outputs_without_elements_nobody_can_tell(runner):
    checked = check(
        Trial(one_node("Relu", np.zeros((0, 4), np.float32)), resolve("onnxruntime-quant"), FLOAT, runner), ()
    )
    assert (checked.verdict.word, checked.vouched) == (Word.ABSTAINS, 0.0)


def test_what_a_reduced_crash_no_longer_has_is_not_at_fault_nor_where_the_same_stands_again():
    names = ["x", "a", "b", "c", "y"]
    nodes = [helper.make_node(op, names[k : k + 1], names[k + 1 : k + 2]) for k, op in enumerate(["Neg", "Elu"] * 2)]
    x = np.ones(3, np.float32)
    case = models.case(nodes, {"x": x}, outputs=[("y", TensorProto.FLOAT, x.shape)])
    crash = Verdict(Word.CRASHES, stage="quantize", kind="SIGSEGV")
    again, other = (conclusion._needed(case, Fault(nodes, case, crash), {(0, 1): (1,)}) for nodes in ((2, 3), (1, 2)))
    assert (again.nodes, other.nodes) == ((3,), (1, 2))


def exact_gelu(width: int, hidden: int):
    """A feed-forward block whose Gelu is the exact one, in five nodes."""
    draw = np.random.default_rng(0)

    def normal(*shape):
        return draw.normal(size=shape).astype(np.float32)

    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"]),
        helper.make_node("MatMul", ["n", "w1"], ["h"]),
        helper.make_node("Div", ["h", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["a"]),
        helper.make_node("Mul", ["h", "a"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["g"]),
        helper.make_node("MatMul", ["g", "w2"], ["y"]),
    ]
    constants = {
        "scale": np.ones(width, np.float32),
        "w1": normal(width, hidden) / np.float32(width**0.5),
        "w2": normal(hidden, width) / np.float32(hidden**0.5),
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    return models.case(nodes, {"x": normal(2, width)}, constants, outputs=[("y", TensorProto.FLOAT, (2, width))])


def test_what_a_known_cause_names_is_judged_by_itself_where_the_bound_of_its_window_allows_what_it_does(runner):
    trial = Trial(exact_gelu(64, 512), resolve("mnn"), {}, runner)
    unknowing = check(trial, ())
    assert unknowing.verdict.word is Word.AGREES, f"the bound of a window of all is tight: {unknowing.verdict.message}"
    issue = KnownIssue(corpus.load(saved_case("32522fbe")))
    checked = check(trial, [issue])
    assert checked.verdict.word is Word.DIVERGES, "the tanh approximation passes for the exact Gelu"
    (diagnosis,) = checked.diagnoses
    assert diagnosis.examination.known == issue.id, f"known by {diagnosis.examination.known!r}, should be {issue.id}"
    left = {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2}
    assert checked.doubtful == left, f"not verified are {checked.doubtful}, should be what is at fault, {left}"
    told = [str(remedy) for remedy in diagnosis.remedies]
    assert "fp16=True" not in told, f"{told} has what leaves the values as they are, under a wider bound"


def test_what_nodes_make_of_nan_that_they_are_fed_is_not_noted_beside_a_fault():
    wrong = Verdict(Word.DIVERGES, stage="execute", kind=Kind.NAN)
    fed = [np.float32([value]) for value in (np.inf, np.nan, 1)]
    first, of_nan, other = [Fault((k,), one_node("Relu", x), wrong) for k, x in enumerate(fed)]
    found = Found("mnn", None, faults=[first, of_nan, other])
    assert conclusion._noted(found, [first]) == [other]
    assert conclusion._noted(found, []) == [first, of_nan, other]


def test_a_step_of_a_model_that_is_quantized_as_given_is_the_known_one_of_what_the_same_runtime_quantizes(runner):
    pairs = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("Softmax", ["b"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "t", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "t", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.01), "t": np.float32(0.004), "z": np.uint8(0)}
    x = np.linspace(0, 2.5, 4, dtype=np.float32).reshape(1, 4)
    case = models.case(pairs, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT, x.shape)])
    issue = KnownIssue(corpus.load(saved_case("9804cf0d")))
    checked = check(Trial(case, resolve("onnxruntime-graph"), {}, runner), [issue])
    assert (checked.verdict.word, checked.verdict.rule) == (Word.AGREES, Kind.OFF_BY_ONE_STEP), checked.verdict.message
    assert checked.known == issue.id


def in_pairs(factor):
    """What a quantizer makes of two products, with the names that onnxruntime's gives."""
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["c"], name="r_QuantizeLinear"),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"], name="r_DequantizeLinear"),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    constants = {"s": np.float32(0.25), "z": np.int8(0), "codes": np.eye(4, dtype=np.int8)}
    x = factor * np.arange(8, dtype=np.float32).reshape(2, 4)
    return models.case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT, (2, 4))])


@pytest.mark.parametrize(
    ("recipe", "factor", "word"), [({}, 1, Word.ABSTAINS), ({"calibration": "Percentile"}, 1e-44, Word.FAILS)]
)
def test_a_model_that_is_quantized_already_is_the_users_mistake_unless_its_float_model_fails_too(
    runner, monkeypatch, recipe, factor, word
):
    """Two nodes get one name. Of data that are next to nothing no histogram is made, whatever is rounded."""
    trial = Trial(in_pairs(np.float32(factor)), resolve("onnxruntime-quant"), recipe, runner)
    floating = requantized.in_float(trial)
    assert [node.op_type for node in floating.proto.graph.node] == ["MatMul", "MatMul"]
    put(monkeypatch, "_localized", lambda inquiry, checked, unheard: checked)
    checked = check(trial, ())
    assert checked.verdict.word is word, checked.verdict.message
    assert checked.quantized_already == "the model is quantized already: 2 DequantizeLinear, 1 QuantizeLinear"


@pytest.mark.parametrize(("kind", "word"), [(Kind.OFF_BY_ONE_STEP, Word.ABSTAINS), (Kind.WRONG_VALUES, Word.FAILS)])
def test_a_rounding_step_of_what_is_quantized_already_is_no_reason_to_accuse_a_target_of_more(
    runner, monkeypatch, kind, word
):
    trial = Trial(in_pairs(np.float32(1)), resolve("onnxruntime-quant"), {}, runner)
    seen = Observation((StageRun("quantize", Outcome.OK),), ({"y": np.full((2, 4), 100, np.float32)},))
    monkeypatch.setattr(requantized, "watch", lambda trial: (Verdict(Word.DIVERGES, kind=kind), seen))
    told = requantized.mistaken(trial, Verdict(Word.FAILS, stage="quantize", kind=Kind.ERROR), seen, ())
    assert told.word is word, told.message


@pytest.mark.parametrize("digits", ["d7b83492", "959eef08", "5cd86ba3"])  # in execution, in quantizing, wrong weights
def test_a_fault_with_weights_that_are_stored_rounded_is_not_the_users_mistake(runner, digits):
    saved = corpus.load(saved_case(digits))
    trial = Trial(saved.case, resolve(saved.target), saved.recipe, runner)
    verdict, seen = watch(trial)
    assert verdict.failed
    assert requantized.mistaken(trial, verdict, seen, ()) is verdict


@pytest.mark.parametrize(("word", "known"), [(Word.DIVERGES, "a case"), (Word.ABSTAINS, "")])
def test_what_is_undecided_is_not_called_known(word, known):
    fault = Diagnosis((), Examination(Verdict(Word.DIVERGES), known="a case"))
    assert Checked(Verdict(word), diagnoses=(fault,)).known == known


@pytest.mark.parametrize(("ended", "nodes", "named"), [("budget", 12, 0), ("minimal", 12, 12), ("budget", 3, 3)])
def test_a_reduction_that_did_not_come_far_blames_no_node(ended, nodes, named):
    names = [f"t{k}" for k in range(21)]
    chain = [helper.make_node("Neg", names[k : k + 1], names[k + 1 : k + 2]) for k in range(20)]
    x = np.ones(3, np.float32)
    case = models.case(chain, {names[0]: x}, outputs=[(names[-1], TensorProto.FLOAT, x.shape)])
    left = models.case(chain[:nodes], {names[0]: x}, outputs=[(names[nodes], TensorProto.FLOAT, x.shape)])
    crash = Verdict(Word.CRASHES, stage="quantize", kind="SIGSEGV")
    found = Found("mnn", crash)
    found.diagnoses.append(Diagnosis((), SimpleNamespace(finding=SimpleNamespace(named=left, ended=ended))))
    faults._name_what_is_left(SimpleNamespace(case=case), crash, found, faults._Asked(case))
    got = len(found.diagnoses[0].nodes)
    assert got == named, f"{got} of 20 nodes are at fault where {nodes} are left by {ended!r}, should be {named}"
