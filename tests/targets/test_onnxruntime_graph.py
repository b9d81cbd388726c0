"""The target onnxruntime-graph: what its adapter promises, on the installed release."""

import numpy as np
import onnxruntime
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from driftnet.targets.onnxruntime_graph.target import ONNXRUNTIME_GRAPH, OPTIMIZERS, SINGLE, _settings
from driftnet.targets.recipe import effective, swept
from onnx import TensorProto, helper

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
        assert verdict.word is Word.AGREES, verdict.message

    assert_each(swept(ONNXRUNTIME_GRAPH), rule, name_of)


def test_a_bug_of_an_optimizer_is_seen_at_its_level_and_in_what_is_saved(runner):
    words = {value: word(runner, {"level": value}) for value in ("all", "layout", "extended", "basic", "off")}
    assert words.pop("off") is Word.AGREES
    assert {*words.values()} == {Word.DIVERGES}, words
    assert {word(runner, {"saved": form}) for form in ("onnx", "ort")} == {Word.DIVERGES}
    assert word(runner, {"saved": "onnx", "level": "off"}) is Word.AGREES


def test_without_the_optimizer_it_is_gone(runner):
    assert word(runner, {"disabled_optimizers": ["Pad_Fusion"]}) is Word.AGREES


def test_what_is_left_out_are_optimizers():
    assert set(SINGLE) <= set(OPTIMIZERS), "names that onnxruntime does not know leave nothing out"


def test_every_level_is_another_one():
    options = {option.name: option.values for option in ONNXRUNTIME_GRAPH.options}
    asked = {level: _settings(effective(ONNXRUNTIME_GRAPH, {}), level) for level in options["level"]}
    numbers = {level: int(settings.graph_optimization_level) for level, settings in asked.items()}
    assert sorted(numbers.values()) == sorted(map(int, onnxruntime.GraphOptimizationLevel.__members__.values()))
