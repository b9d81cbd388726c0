"""Inside: the tensors of the intact artifact tell which part is wrong by itself, and what cutting alone brings."""

import dataclasses

import numpy as np
import pytest
from driftnet.diagnosis.check import check
from driftnet.diagnosis.inside import Inside, look_inside, made_by_cutting
from driftnet.diagnosis.localize import Fault
from driftnet.findings.trial import Trial, watch
from driftnet.model.submodel import recording, submodel
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models
from tests.support.localization import FLOAT


def two_layers():
    """y = |conv1d(x)| + k. (Of tanh(|c|) MNN hands out the tanh by the name of |c|: names move with fusions.)"""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 3, 9)).astype(np.float32), rng.normal(size=(4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Abs", ["c"], ["a"], name="abs"),
        helper.make_node("Add", ["a", "k"], ["y"], name="add"),
    ]
    return models.case(nodes, {"x": x}, {"w": w, "k": np.float32(0.5)}, outputs=[("y", TensorProto.FLOAT, (1, 4, 7))])


@pytest.fixture(scope="module")
def looked(runner):
    trial = Trial(two_layers(), resolve("mnn"), {}, runner)
    recorded = recording(trial.case, runner.reference.record)
    return trial, recorded, look_inside(trial, recorded)


@pytest.mark.parametrize(("target", "recipe"), [("mnn", {}), ("onnxruntime-quant", {"quantize": "none"})])
def test_tensors_are_handed_out_by_their_names_in_the_model(runner, target, recipe):
    trial = Trial(two_layers(), resolve(target), recipe, runner)
    recorded = recording(trial.case, runner.reference.record)
    inside = look_inside(trial, recorded)
    assert set(inside.tensors[0]) == {"x", "c", "a", "y"}
    for name, x in inside.tensors[0].items():
        np.testing.assert_allclose(x, recorded.feeds[0][name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("node", "wrong", "word"), [(1, "c", Word.AGREES), (1, "a", Word.DIVERGES), (2, "a", Word.DIVERGES)]
)
def test_a_part_is_judged_by_what_stands_before_it_in_the_artifact(looked, node, wrong, word):
    """With c wrong, |c| of that c would be right; with a wrong, a is none of c, and y none of a."""
    trial, recorded, inside = looked
    tensors = dict(inside.tensors[0])
    tensors[wrong] = tensors[wrong] * np.float32(1.5)
    if wrong == "c":
        tensors["a"] = np.abs(tensors["c"])
    part = submodel(trial.case, [node], recorded)
    assert Inside(trial, [tensors]).verdict(part).word is word


def test_nothing_is_said_of_a_part_whose_tensors_the_artifact_does_not_know(looked):
    trial, recorded, inside = looked
    known = {name: x for name, x in inside.tensors[0].items() if name != "a"}
    assert Inside(trial, [known]).verdict(submodel(trial.case, [1], recorded)) is None
    assert Inside(trial, [known]).verdict(submodel(trial.case, [2], recorded)) is None


def test_a_target_that_hands_out_nothing_is_not_asked(runner):
    trial = Trial(two_layers(), resolve("onnxruntime-graph"), {}, runner)
    runs = runner.target_runs
    inside = look_inside(trial, recording(trial.case, runner.reference.record))
    assert (set(inside.tensors[0]), runner.target_runs - runs) == ({"x"}, 0)


def test_a_wrong_shape_that_mnn_gives_for_the_cut_alone_is_no_fault(looked):
    """What a 1-D Conv makes has another rank where it is a graph output; in the intact model it has the right one."""
    trial, recorded, inside = looked
    part = submodel(trial.case, [0], recorded)
    verdict, seen = watch(dataclasses.replace(trial, case=part))
    assert verdict.kind == Kind.WRONG_SHAPE, "MNN has mended this: another example is needed"
    fault = Fault((0,), part, verdict)
    assert made_by_cutting(fault, seen.outputs, inside, recorded), f"{fault} comes of cutting alone"
    wrong = [{**inside.tensors[0], "c": -inside.tensors[0]["c"]}]
    assert not made_by_cutting(fault, [{"c": wrong[0]["c"]}], Inside(trial, wrong), recorded), "it is wrong there too"
    checked = check(trial, ())
    assert (checked.verdict.word, checked.culprits) == (Word.AGREES, ()), checked.verdict.message


def test_inside_no_noise_of_quantization_is_taken_for_a_fault(runner):
    case = two_layers()
    checked = check(Trial(case, resolve("mnn"), {"quantize": "weight-only"}, runner), ())
    assert checked.verdict != Verdict(Word.DIVERGES)
    assert not checked.culprits, checked.verdict.message


def a_chain_across_a_cut():
    """y = 2 exp(-sqrt|sin(sin(sin(x + 1000 - 1000)))|): the bound of the whole is that of rounding 1000, and of the
    eight nodes of a window the last three are the first of what is fused."""
    operators = ["Add", "Sub", "Sin", "Sin", "Sin", "Abs", "Sqrt", "Neg", "Exp", "Mul"]
    constants = {0: "thousand", 1: "thousand", 9: "two"}
    nodes = [
        helper.make_node(op, [f"t{k}", *([constants[k]] if k in constants else [])], [f"t{k + 1}"], name=f"n{k}")
        for k, op in enumerate(operators)
    ]
    x = np.linspace(0.5, 1.5, 12, dtype=np.float32).reshape(3, 4)
    held = {"thousand": np.float32(1000), "two": np.float32(2)}
    return models.case(nodes, {"t0": x}, held, outputs=[("t10", TensorProto.FLOAT, (3, 4))])


def test_what_the_intact_artifact_gets_wrong_across_a_cut_between_windows_is_at_fault(runner):
    target = resolve("tests.support.localization:FUSES_INEXACTLY")
    trial = Trial(a_chain_across_a_cut(), target, FLOAT, runner)
    whole, _ = watch(trial)
    assert whole.word is Word.AGREES, f"the bound of the whole shows it already: {whole.message}"
    checked = check(trial, ())
    assert checked.verdict.word is Word.DIVERGES, f"no window is wrong, but the artifact is: {checked.verdict.message}"
    blamed = [culprit.op_type for culprit in checked.culprits]
    assert blamed == ["Abs", "Sqrt", "Neg", "Exp", "Mul"], f"blames {blamed}, should be what is fused"
    assert checked.vouched <= 0.5, f"vouches for {checked.vouched} of the nodes, five of ten are wrong"


def test_a_right_artifact_is_vouched_for_though_it_hands_out_nothing_across_a_cut(runner):
    target = resolve("tests.support.localization:FUSES_EXACTLY")
    checked = check(Trial(a_chain_across_a_cut(), target, FLOAT, runner), ())
    assert (checked.verdict.word, checked.vouched) == (Word.AGREES, 1.0), checked.verdict.message


def gelu_by_erf():
    """A Gelu behind a layer, its Div by sqrt(2) written as a Mul, where a cut between windows takes it apart."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(8, 8)).astype(np.float32) for _ in range(2))
    nodes = [
        *(helper.make_node("Sin", [f"s{k}"], [f"s{k + 1}"]) for k in range(4)),
        helper.make_node("MatMul", ["s4", "w"], ["u"]),
        helper.make_node("Mul", ["u", "r"], ["d"], name="d"),
        helper.make_node("Erf", ["d"], ["e"], name="e"),
        helper.make_node("Add", ["e", "one"], ["f"], name="f"),
        helper.make_node("Mul", ["u", "f"], ["g"], name="g"),
        helper.make_node("Mul", ["g", "half"], ["h"], name="h"),
        helper.make_node("Mul", ["h", "thousandth"], ["i"]),
        helper.make_node("Add", ["i", "k"], ["y"]),
    ]
    held = {"r": np.sqrt(0.5), "one": 1, "half": 0.5, "thousandth": 1e-4, "k": 1}
    held = {name: np.float32(value) for name, value in held.items()} | {"w": w}
    return models.case(nodes, {"s0": x}, held, outputs=[("y", TensorProto.FLOAT, (8, 8))])


def test_a_gelu_by_tanh_that_mnn_makes_of_one_by_erf_across_a_cut_is_found(runner):
    """It moves the outputs by half a rounding, which the bound of the whole allows: a note, and no more than that."""
    checked = check(Trial(gelu_by_erf(), resolve("mnn"), {}, runner), ())
    noted = [culprit.node for culprit in (*checked.culprits, *checked.notes)]
    assert noted == ["d", "e", "f", "g", "h"], f"names {noted}, should be the Gelu: has MNN mended this?"
    assert checked.verdict.word is Word.AGREES, f"the outputs are right: {checked.verdict.message}"
