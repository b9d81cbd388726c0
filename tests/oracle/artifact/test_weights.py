"""The artifact tier where layers can be read: MNN's weights are read as they are, and wrong ones are seen."""

import dataclasses
import itertools

import numpy as np
import pytest
from driftnet.model import graph
from driftnet.model.artifact import Artifact, Layer
from driftnet.model.verdict import Word
from driftnet.oracle.artifact.simulated.weights import misquantized, weights_of
from driftnet.oracle.judge import judge
from driftnet.oracle.question.question import Question
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Scheme
from driftnet.targets.recipe import canonical, effective
from msgspec import structs
from onnx import TensorProto, helper

from tests.support import models
from tests.support.rules import assert_each

WEIGHT_ONLY = {"quantize": "weight-only"}
OFFLINE = {"quantize": "offline", "method": "EMA"}


def weighted(op, shape, x, y, norm=False, **attributes):
    """`op` with random weights of `shape`, from x to y (shapes), perhaps with a BatchNormalization behind it."""
    rng = np.random.default_rng(3)
    result = "c" if norm else "y"
    nodes, constants = [helper.make_node(op, ["x", "w"], [result], **attributes)], {"w": rng.normal(size=shape)}
    if norm:
        nodes.append(helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], epsilon=1e-5))
        constants |= {name: rng.uniform(0.5, 2, y[1]) for name in "sbmv"}
    feed = {"x": rng.normal(size=x).astype(np.float32)}
    values = {name: value.astype(np.float32) for name, value in constants.items()}
    return models.case(nodes, feed, values, outputs=[("y", TensorProto.FLOAT, y)])


CASES = {
    "convolution": weighted("Conv", (8, 4, 2, 2), (1, 4, 4, 4), (1, 8, 3, 3)),
    "grouped convolution": weighted("Conv", (8, 4, 2, 2), (1, 8, 4, 4), (1, 8, 3, 3), group=2),
    "folded convolution": weighted("Conv", (8, 4, 2, 2), (1, 4, 4, 4), (1, 8, 3, 3), norm=True),
    "transposed convolution": weighted("ConvTranspose", (4, 6, 2, 2), (1, 4, 4, 4), (1, 6, 5, 5)),
    "grouped transposed convolution": weighted("ConvTranspose", (4, 6, 2, 2), (1, 4, 4, 4), (1, 12, 5, 5), group=2),
    "folded transposed convolution": weighted("ConvTranspose", (4, 6, 2, 2), (1, 4, 4, 4), (1, 6, 5, 5), norm=True),
    "folded grouped transposed convolution": weighted(
        "ConvTranspose", (4, 6, 2, 2), (1, 4, 4, 4), (1, 12, 5, 5), norm=True, group=2
    ),
    "matrix product": weighted("MatMul", (6, 5), (3, 6), (3, 5)),
    "scaled product": weighted("Gemm", (5, 6), (3, 6), (3, 5), transB=1, alpha=0.5),
}


def seen(runner, case, recipe):
    mnn = resolve("mnn")
    observation = runner.observe(case, mnn, canonical(mnn.target, recipe))
    assert observation.outputs, f"MNN did not run it: {observation.last.message}"
    return observation


def verdict(runner, case, recipe, observation):
    target = resolve("mnn").target
    options = effective(target, canonical(target, recipe))
    return judge(case, observation, target=target, options=options, reference=runner.reference)


def damaged(observation, **changes):
    layer, *others = observation.artifact.layers
    layers = (structs.replace(layer, **changes), *others)
    return dataclasses.replace(observation, artifact=structs.replace(observation.artifact, layers=layers))


def test_weight_only_models_are_judged_as_float_models_with_their_weights(runner):
    def rule(form):
        name, bits, asymmetric = form
        recipe = {**WEIGHT_ONLY, "weight_bits": bits, "weight_asymmetric": asymmetric}
        found = verdict(runner, CASES[name], recipe, seen(runner, CASES[name], recipe))
        assert found.word is Word.AGREES, f"{found.word}, should agree: {found.message}"

    assert_each(itertools.product(CASES, (8, 4), (True, False)), rule)


@pytest.mark.parametrize("recipe", [WEIGHT_ONLY, OFFLINE], ids=["weight-only", "offline"])
def test_a_weight_further_than_half_a_step_is_a_problem_of_the_quantizer(runner, recipe):
    case = CASES["convolution"]
    observation = seen(runner, case, recipe)
    layer = observation.artifact.layers[0]
    weights = layer.weights.copy()
    weights[5, 7] += layer.scales[5, 0]
    found = verdict(runner, case, recipe, damaged(observation, weights=weights))
    assert (found.word, found.stage) == (Word.DIVERGES, "quantize"), "a code that is one off went unseen"
    assert "weight 7 of channel 5 of Conv 'y'" in found.message, found.message
    assert found.culprits == (("y", "Conv"),)


@pytest.mark.parametrize("bits", [8, 3])
def test_a_scale_that_the_formula_does_not_give_is_a_problem_of_the_quantizer(runner, bits):
    """Of three bits no weight is half a step off yet."""
    recipe = {**WEIGHT_ONLY, "weight_bits": bits, "weight_asymmetric": False}
    observation = seen(runner, CASES["convolution"], recipe)
    assert not verdict(runner, CASES["convolution"], recipe, observation).failed
    layer = observation.artifact.layers[0]
    wrong = damaged(observation, scales=layer.scales * 1.01, weights=layer.weights * np.float32(1.01))
    found = verdict(runner, CASES["convolution"], recipe, wrong)
    assert (found.word, found.stage, found.tier) == (Word.DIVERGES, "quantize", "artifact")


def test_a_channel_of_zeros_may_have_any_scale(runner):
    """MNN gives some 1e-6/127, others 0 or NaN."""
    w = np.zeros((1, 1), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["r"])]
    nodes.append(helper.make_node("Div", ["r", "one"], ["y"]))
    feed, constants = {"x": np.ones((1, 1), np.float32)}, {"w": w, "one": np.ones([], np.float32)}
    case = models.case(nodes, feed, constants, outputs=[("y", TensorProto.FLOAT, (1, 1))])
    observation = seen(runner, case, OFFLINE)
    assert (observation.artifact.layers[0].scales > 0).all(), "MNN has another scale: the claim is not tried"
    found = verdict(runner, case, OFFLINE, observation)
    assert not found.failed, found.message


def test_outputs_that_the_weights_do_not_explain_are_a_problem_of_the_executor(runner):
    case = CASES["folded convolution"]
    observation = seen(runner, case, WEIGHT_ONLY)
    outputs = observation.outputs[0]["y"] * np.float32(1.001)
    found = verdict(runner, case, WEIGHT_ONLY, dataclasses.replace(observation, outputs=({"y": outputs},)))
    assert (found.word, found.stage) == (Word.DIVERGES, "execute"), "outputs .1 % too large went unseen"


def test_a_weight_of_zero_is_zero_to_a_rounding_of_its_channel(runner):
    """Codes times a scale of 4/255: MNN makes 2.4e-7 of the zeros."""
    w = np.float32([0, 0, -4]).reshape(1, 1, 1, 3)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"])
    feed = {"x": np.full((1, 1, 1, 1), 0.1, np.float32)}
    case = models.case([node], feed, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 1, 1, 3))])
    observation = seen(runner, case, WEIGHT_ONLY)
    assert verdict(runner, case, WEIGHT_ONLY, observation).word is Word.AGREES
    outputs = observation.outputs[0]["y"] + np.float32(1e-5)
    wrong = dataclasses.replace(observation, outputs=({"y": outputs},))
    assert verdict(runner, case, WEIGHT_ONLY, wrong).word is Word.DIVERGES


def test_a_constant_that_rounds_is_held_to_its_rounding_only(runner):
    """A converter computes Sigmoid(-1) beforehand, and no more exactly than a runtime does: MNN's is 6e-8 off."""
    nodes = [helper.make_node("Sigmoid", ["w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    case = models.case(nodes, {}, {"w": np.float32([-1])}, outputs=[("y", TensorProto.FLOAT, (1,))])
    observation = seen(runner, case, WEIGHT_ONLY)
    assert verdict(runner, case, WEIGHT_ONLY, observation).word is Word.AGREES
    outputs = observation.outputs[0]["y"] + np.float32(1e-5)
    wrong = dataclasses.replace(observation, outputs=({"y": outputs},))
    assert verdict(runner, case, WEIGHT_ONLY, wrong).word is Word.DIVERGES


@pytest.mark.parametrize("bits", [32, 16])
def test_weights_in_a_file_of_their_own_are_read_as_those_in_the_model(runner, bits):
    case = CASES["convolution"]
    inside, outside = (
        seen(runner, case, {**WEIGHT_ONLY, "scale_bits": bits, "external_data": beside}).artifact
        for beside in (False, True)
    )
    assert inside.layers, "there are weights"
    for mine, theirs in zip(inside.layers, outside.layers, strict=True):
        np.testing.assert_array_equal(theirs.weights, mine.weights, f"weights of {mine.name}, scales of {bits} bits")
        np.testing.assert_array_equal(theirs.scales, mine.scales, f"scales of {mine.name}, of {bits} bits")
        assert theirs.room == mine.room, "what half precision has rounded"
    assert [op.whole_bias for op in outside.operations] == [op.whole_bias for op in inside.operations]


@pytest.mark.parametrize(
    "recipe", [{**WEIGHT_ONLY, "weight_asymmetric": False}, OFFLINE], ids=["weight-only", "offline"]
)
@pytest.mark.parametrize("zeros", [0.5, 0.95])
def test_weights_of_which_only_those_that_are_not_zero_are_written_are_read(runner, recipe, zeros):
    rng = np.random.default_rng(1)
    w = np.where(rng.uniform(size=(8, 8, 3, 3)) < zeros, 0, rng.normal(size=(8, 8, 3, 3))).astype(np.float32)
    feed = {"x": rng.normal(size=(1, 8, 4, 4)).astype(np.float32)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])
    case = models.case([node], feed, {"w": w}, outputs=[("y", TensorProto.FLOAT, (1, 8, 2, 2))])
    (layer,) = seen(runner, case, recipe).artifact.layers
    off = np.abs(layer.weights - w.reshape(8, -1))
    assert (off <= 0.501 * layer.scales + 1e-6).all(), f"a weight is read {off.max()} off"


@pytest.mark.parametrize("asymmetric", [True, False])
@pytest.mark.parametrize("sign", [1, -1, 0], ids=["positive", "negative", "both signs"])
def test_weights_are_read_as_mnn_runs_them_where_zeros_are_left_out(runner, sign, asymmetric):
    """What MNN makes of one-hot inputs are the weights that it runs with."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(64, 6)).astype(np.float32)
    w = np.where(rng.uniform(size=w.shape) < 0.9, 0, sign * np.abs(w) if sign else w).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    feed = {"x": np.eye(64, dtype=np.float32)}
    case = models.case([node], feed, {"w": w}, outputs=[("y", TensorProto.FLOAT, (64, 6))])

    def rule(recipe):
        observation = seen(runner, case, recipe)
        (layer,) = observation.artifact.layers
        np.testing.assert_allclose(layer.weights.T, observation.outputs[0]["y"], atol=1e-6)
        found = verdict(runner, case, recipe, observation)
        assert found.word is Word.AGREES, found.message

    recipe = {**WEIGHT_ONLY, "sparse": True, "weight_asymmetric": asymmetric}
    recipes = itertools.product((8, 4), (32, 16), (0, 32))
    keys = ("weight_bits", "scale_bits", "weight_block")
    assert_each([recipe | dict(zip(keys, values, strict=True)) for values in recipes], rule)


def test_weights_that_a_converter_computes_from_constants_are_judged(runner):
    """Codes with one scale, dequantized: what MNN makes of them is a constant, and quantized anew."""
    rng = np.random.default_rng(3)
    codes = rng.integers(-127, 128, (6, 5)).astype(np.int8)
    nodes = [helper.make_node("DequantizeLinear", ["q", "s"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    feed = {"x": rng.normal(size=(3, 6)).astype(np.float32)}
    constants = {"q": codes, "s": np.float32(0.0123)}
    case = models.case(nodes, feed, constants, outputs=[("y", TensorProto.FLOAT, (3, 5))])
    observation = seen(runner, case, WEIGHT_ONLY)
    assert verdict(runner, case, WEIGHT_ONLY, observation).word is Word.AGREES
    outputs = observation.outputs[0]["y"] * np.float32(1.001)
    wrong = dataclasses.replace(observation, outputs=({"y": outputs},))
    assert verdict(runner, case, WEIGHT_ONLY, wrong).word is Word.DIVERGES, "outputs .1 % too large went unseen"


def test_the_scales_of_tensors_are_read_too(runner):
    tensors = seen(runner, CASES["convolution"], OFFLINE).artifact.tensors
    assert [name for name, tensor in tensors.items() if tensor.scale <= 0] == [], "scales that are not positive"
    assert len(tensors) >= 2, f"input and output are quantized, but only {sorted(tensors)} were read"


@pytest.mark.parametrize("scale", [np.inf, np.nan, 0.02])
def test_weights_that_are_no_numbers_are_wrong_whatever_their_scale(runner, scale):
    model = CASES["matrix product"]
    (weights,) = weights_of(graph.read(model.proto))
    scales = np.full((5, 1), 0.02, np.float32)
    held = (np.rint(weights.matrix / 0.02) * 0.02).astype(np.float32)
    held[1], scales[1] = np.nan, scale
    told = Artifact(layers=(Layer("y", "y", held, scales),))
    question = Question(model, (), (), runner.reference, Scheme((-127, 127)), artifact=told)
    assert misquantized(question), "weights that are no numbers went unseen"
