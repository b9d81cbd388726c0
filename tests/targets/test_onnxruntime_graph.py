"""The target onnxruntime-graph: what its adapter promises, on the installed release."""

import numpy as np
import onnxruntime
from driftnet.findings.trial import Trial, look, watch
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from driftnet.targets.onnxruntime_graph.target import (
    HALVES,
    KINDS,
    ONNXRUNTIME_GRAPH,
    OPTIMIZERS,
    SINGLE,
    _settings,
    convert,
)
from driftnet.targets.recipe import effective, swept
from onnx import TensorProto, helper, load, save

from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net, name_of

PAD_LOST_IN_MAXPOOL = models.case(
    [helper.make_node("Pad", ["x", "pads"], ["p"]), helper.make_node("MaxPool", ["p"], ["y"], kernel_shape=[2])],
    {"x": np.full((1, 1, 2), -1, np.float32)},
    {"pads": np.int64([0, 0, 1, 0, 0, 0])},
    outputs=[("y", TensorProto.FLOAT, (1, 1, 2))],
    opset=13,
)
"""Pad_Fusion pads with the least number where the model pads with zeros."""


def word(runner, recipe):
    return look(Trial(PAD_LOST_IN_MAXPOOL, resolve("onnxruntime-graph"), recipe, runner)).word


def test_every_value_of_every_option_runs_and_agrees(runner):
    def rule(recipe):
        verdict = look(Trial(conv_net(), resolve("onnxruntime-graph"), recipe, runner))
        vague = recipe.get("float16")  # half precision allows anything at the end of so many layers
        assert verdict.word is (Word.ABSTAINS if vague else Word.AGREES), verdict.message

    assert_each(swept(ONNXRUNTIME_GRAPH), rule, name_of)


def test_a_bug_of_an_optimizer_is_seen_at_its_level_and_in_what_is_saved(runner):
    words = {value: word(runner, {"level": value}) for value in ("all", "layout", "extended", "basic", "off")}
    assert words.pop("off") is Word.AGREES
    assert {*words.values()} == {Word.DIVERGES}, words
    assert {word(runner, {"saved": form}) for form in ("onnx", "ort")} == {Word.DIVERGES}
    assert word(runner, {"saved": "onnx", "level": "off"}) is Word.AGREES


def test_without_the_optimizer_it_is_gone(runner):
    assert word(runner, {"disabled_optimizers": ["Pad_Fusion"]}) is Word.AGREES


def test_fusions_for_transformers_change_what_is_run_and_what_they_make_is_judged(runner, tmp_path, monkeypatch):
    """The exact Gelu as torch exports it becomes one operator."""
    numbers = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    steps = [("Div", "x", "root"), ("Erf", "Div"), ("Add", "Erf", "one"), ("Mul", "x", "Add"), ("Mul", "Mul", "half")]
    nodes = [helper.make_node(op, [*given], [op]) for op, *given in steps]
    nodes[-1].output[0] = "y"
    made = [("y", TensorProto.FLOAT, (8,))]
    gelu = models.case(nodes, {"x": np.linspace(-3, 3, 8, dtype=np.float32)}, numbers, outputs=made, opset=17)
    monkeypatch.chdir(tmp_path)
    save(gelu.proto, "model.onnx")

    def rule(kind):
        fused = convert("model.onnx", ".", effective(ONNXRUNTIME_GRAPH, {"transformers": kind}))
        assert [node.op_type for node in load(fused).graph.node] == ["Gelu"]
        verdict = look(Trial(gelu, resolve("onnxruntime-graph"), {"transformers": kind}, runner))
        assert verdict.word is Word.AGREES, verdict.message

    assert_each(KINDS, rule, str)


def test_conversion_to_float16_changes_what_is_run_and_is_judged_by_what_half_precision_allows(
    runner, tmp_path, monkeypatch
):
    rng = np.random.default_rng(1)
    x, w = rng.uniform(0.5, 1, (2, 8)).astype(np.float32), rng.uniform(0.5, 1, (8, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Sqrt", ["m"], ["y"])]
    case = models.case(nodes, {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (2, 3))])
    exact = np.sqrt(x.astype(np.float64) @ w)
    monkeypatch.chdir(tmp_path)
    save(case.proto, "model.onnx")

    def rule(which):
        trial = Trial(case, resolve("onnxruntime-graph"), {"float16": which}, runner)
        graph = load(convert("model.onnx", ".", trial.options)).graph
        half = TensorProto.FLOAT if which.startswith("inside") else TensorProto.FLOAT16
        assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {half}
        assert ("m_cast_to_fp16_node" in {node.name for node in graph.node}) == which.endswith("sums")
        verdict, seen = watch(trial)
        error = np.abs(seen.outputs[0]["y"] - exact).max()
        assert 2**-14 < error < verdict.bound < 2**-5
        assert verdict.word is Word.AGREES, verdict.message

    assert_each(HALVES, rule, str)


def test_what_is_left_out_are_optimizers():
    assert set(SINGLE) <= set(OPTIMIZERS), "names that onnxruntime does not know leave nothing out"


def test_every_level_is_another_one():
    options = {option.name: option.values for option in ONNXRUNTIME_GRAPH.options}
    asked = {level: _settings(effective(ONNXRUNTIME_GRAPH, {}), level) for level in options["level"]}
    numbers = {level: int(settings.graph_optimization_level) for level, settings in asked.items()}
    assert sorted(numbers.values()) == sorted(map(int, onnxruntime.GraphOptimizationLevel.__members__.values()))
