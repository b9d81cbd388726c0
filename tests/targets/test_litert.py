"""The target litert: what its adapter promises. LiteRT and its converter are not installed here."""

import json

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look, watch
from driftnet.model.verdict import Tier, Word
from driftnet.targets.environments import resolve
from driftnet.targets.interface import StageError
from driftnet.targets.litert.target import LITERT, _bare, _channels_second, _from_codes, _in_codes, _said, _shapes
from driftnet.targets.recipe import effective, swept
from onnx import TensorProto, helper, save

from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import name_of
from tests.targets.test_tract import RELEASES

SAYS = {
    ("convert", "the shape of x0 has to be known"): "shape that has to be known",
    ("convert", "ModuleNotFoundError: No module named 'onnx2tf.ops.BitCast'; in <frozen importlib._bootstrap>"): (
        "operator not supported"
    ),
    (
        "convert",
        "ConverterError: Could not translate MLIR to FlatBuffer.<string>:1:1: error: 'tf.Acos' op is neither a custom",
    ): "operator that LiteRT has not",
    ("execute", "ValueError: Didn't find op for builtin opcode 'ELU' version '1'. An older"): (
        "operator without a reference kernel"
    ),
    ("execute", "in which place the channels of y0 are cannot be told from its shape"): "layout that cannot be told",
    ("convert", "AssertionError: ERROR: Invalid auto_pad attribute: SAME_LOWER; in ops/Conv.py"): (
        "form of an operator not supported"
    ),
    (
        "convert",
        "ERROR: The current implementation of GridSample supports only mode=['linear', 'nearest', 'cubic']. Pull "
        "requests are welcome. ERROR: input_onnx_file_path: model.onnx; in ops/GridSample.py",
    ): "form of an operator not supported",
    ("execute", "RuntimeError: Regular TensorFlow ops are not supported. Make sure you invoke the Flex delegate"): (
        "operator that LiteRT has not"
    ),
    ("convert", "KeyError: ''; in ops/GRU.py"): "",
    ("quantize", "there is nothing to calibrate with"): "nothing to calibrate with",
    ("quantize", "RuntimeError: Current CPU implementations do not yet support dilation rates larger than 1."): (
        "operator that LiteRT has not"
    ),
}


def convolution(*, groups=1):
    x, w = models.grid((1, 4, 5, 6)), models.grid((6, 4 // groups, 3, 2))
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], group=groups), helper.make_node("Relu", ["c"], ["y"])]
    return models.case(nodes, {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 6, 3, 5))])


@pytest.mark.network
def test_every_value_of_every_option_runs_and_agrees(runner):
    def rule(recipe):
        verdict = look(Trial(convolution(), resolve(f"litert=={RELEASES['litert']}"), recipe, runner))
        assert verdict.word is Word.AGREES, f"{verdict.word}: {verdict.message}"

    assert_each(swept(LITERT), rule, name_of)


@pytest.mark.network
def test_a_net_without_a_signature_runs_too(runner):
    verdict = look(Trial(convolution(groups=2), resolve(f"litert=={RELEASES['litert']}"), {}, runner))
    assert verdict.word is Word.AGREES, verdict.message


@pytest.mark.network
def test_what_is_quantized_computes_in_codes_and_a_tier_judges_it(runner):
    installed = resolve(f"litert=={RELEASES['litert']}")
    x, w = np.linspace(-1, 1, 120, dtype=np.float32).reshape(1, 4, 5, 6), models.grid((6, 4, 3, 2)) / 7
    w *= np.array([1, 0.1, 0.3, 1, 1, 1], np.float32).reshape(6, 1, 1, 1)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    case = models.case([node], {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 6, 3, 5))])
    right = runner.observe(case, installed, {}).outputs[0]["y"]
    results = {}
    for recipe in ({"quantize": "integer"}, {"quantize": "full"}, {"quantize": "full", "per_channel": False}):
        verdict, seen = watch(Trial(case, installed, recipe, runner))
        assert (verdict.word, verdict.tier) == (Word.AGREES, Tier.BUDGET), f"{recipe}: {verdict.message}"
        y = seen.outputs[0]["y"]
        levels = np.unique(y).size
        assert levels < min(257, np.unique(right).size), f"{recipe}: the result has {levels} levels"
        results[name_of(recipe)] = y
    channels, whole = results[name_of({"quantize": "full"})], results["full-False"]
    assert not np.array_equal(channels, whole), "one scale for all weights does the same as one a channel"


def test_codes_of_inputs_are_the_nearest_and_those_of_outputs_come_back_as_numbers():
    coded = {"quantization": (0.5, 3), "dtype": np.int8}
    x = np.array([-200, -65, 0, 0.2, 0.3, 61.9, 62, 99], np.float32)
    codes = _in_codes(x, coded)
    np.testing.assert_array_equal(codes, np.array([-128, -127, 3, 3, 4, 127, 127, 127], np.int8))
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(_from_codes(codes, coded), [-65.5, -65, 0, 0, 0.5, 62, 62, 62])
    one = _from_codes(np.array(5, np.int8), {"quantization": (np.float32(0.5), np.int64(3))})
    assert one.dtype == np.float32, f"a single code became {one.dtype}, should be float32"
    plain, indices = {"quantization": (0.0, 0), "dtype": np.float32}, np.array([1, 2])
    assert _in_codes(x, plain) is x, "floats are codes of nothing"
    assert _from_codes(x, plain) is x, "floats are codes of nothing"
    assert _in_codes(indices, coded) is indices, "indices are no codes"


def test_what_is_quantized_how():
    def said(**options):
        return LITERT.scheme(effective(LITERT, options))

    assert said() is None
    assert said(weights="float16").halves
    channels, whole = said(quantize="integer"), said(quantize="full", per_channel=False)
    assert (channels.weight_codes, channels.activation_codes) == ((-127, 127), (-128, 127))
    assert (channels.per_channel, whole.per_channel) == (True, False)


def test_what_is_refused_and_what_is_not():
    told = {
        (stage, said): next((rule.name for rule in LITERT.refusals if rule.stage == stage and rule.matches(said)), "")
        for stage, said in SAYS
    }
    assert told == SAYS


def test_channels_come_back_to_the_second_place_where_the_shape_tells():
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    last = np.moveaxis(x, 1, -1)
    np.testing.assert_array_equal(_channels_second("y", last, (1, 2, 3, 4)), x)
    np.testing.assert_array_equal(_channels_second("y", x, (1, 2, 3, 4)), x)
    assert _channels_second("y", last, (5,)).shape == last.shape, "a wrong shape stays what it is"
    assert _channels_second("y", np.ones((1, 2, 2, 2)), (1, 2, 2, 2)).shape == (1, 2, 2, 2), "no matter where"
    with pytest.raises(StageError, match="cannot be told"):
        _channels_second("y", np.arange(8.0).reshape(1, 2, 2, 2), (1, 2, 2, 2))


def test_shapes_are_read_from_the_model_and_have_to_be_known(tmp_path):
    path = str(tmp_path / "model.onnx")
    save(convolution().proto, path)
    assert _shapes(path) == (["x"], {"y": [1, 6, 3, 5]})
    assert json.loads(json.dumps(_shapes(path)[1])) == {"y": [1, 6, 3, 5]}
    symbolic = models.case(
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": models.grid((2, 3))},
        shapes={"x": ("n", 3)},
        outputs=[("y", TensorProto.FLOAT, ("n", 3))],
    )
    save(symbolic.proto, path)
    with pytest.raises(StageError, match="the shape of x has to be known"):
        _shapes(path)


def test_inputs_have_their_names_with_a_signature_and_without_one():
    assert [_bare(name) for name in ("serving_default_x.1:0", "x0", "serving_default_a_b:0")] == ["x.1", "x0", "a_b"]


def test_an_error_and_an_end_of_the_process_are_told_in_one_line():
    def gives_up():
        print("\x1b[31mERROR:\x1b[0m The trace log is below.")
        print("\x1b[31mERROR:\x1b[0m no such form")
        raise SystemExit(1)

    def fails():
        raise ValueError("axes\nlines")

    with pytest.raises(StageError, match=r"^ERROR: no such form; in targets/test_litert\.py$"):
        _said(gives_up)
    with pytest.raises(StageError, match=r"^ValueError: axes; in targets/test_litert\.py$"):
        _said(fails)


def test_commands_say_what_the_options_ask_for():
    def rule(recipe):
        said = LITERT.commands(effective(LITERT, recipe))
        for name, value in recipe.items():
            wanted = {"groups": "-dgc", "unfold": "-ebu", "unroll": "-eru", "threads": "num_threads=2"}
            wanted["per_channel"] = "disable_per_channel = True"
            kernels = {"builtin": "BUILTIN_WITHOUT", "reference": "BUILTIN_REF"}
            assert wanted.get(name, kernels.get(value, str(value))) in said, f"{value} is not in\n{said}"

    assert_each(swept(LITERT), rule, name_of)


@pytest.mark.network
def test_codes_of_a_padded_max_pool_are_left_for_what_is_in_the_image(runner):
    x = models.grid((1, 2, 6, 6))
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 0, 0])
    outputs = [("y", TensorProto.FLOAT, (1, 2, 5, 5))]
    case = models.case([node], {"x": x}, outputs=outputs, calibration=[{"x": x / 2}, {"x": x}])
    verdict = look(Trial(case, resolve(f"litert=={RELEASES['litert']}"), {"quantize": "integer"}, runner))
    assert verdict.word is Word.AGREES, f"padded by the lowest float there is, all results are zero: {verdict.message}"
