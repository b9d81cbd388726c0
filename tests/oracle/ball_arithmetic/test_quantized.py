"""Quantization in ball arithmetic: one code but near ties, integer sums exact, kernels as documented."""

import dataclasses

import numpy as np
import pytest
from driftnet.model import graph
from driftnet.oracle.ball_arithmetic.ball import Undecided
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.targets.environments import resolve
from onnx import helper

from tests.support import models
from tests.support.balls import apply, around, assert_all_answered, assert_holds, assert_outside, holds, noise

OPERATORS = """
    QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger ConvInteger QLinearMatMul QLinearConv
""".split()  # noqa: SIM905


def test_the_reference_stays_in_the_balls_of_every_generated_form(runner):
    assert_all_answered(runner, OPERATORS, cases=4)


def one(number, dtype=np.float32):
    return np.array(number, dtype)


STEP, ZERO = one(0.5), one(10, np.uint8)


def quantized(x, lenient=False, step=STEP, zero=ZERO):
    return apply("QuantizeLinear", x, step, zero, lenient=lenient)[0]


def test_away_from_ties_a_code_is_exact():
    ball = quantized(np.array([0.0, 0.3, -0.3, 1.1, 200.0, -200.0], np.float32))
    assert ball.radius is None
    assert ball.midpoint.tolist() == [10, 11, 9, 12, 255, 0]


def test_a_tie_carries_both_codes():
    ball = quantized(np.array([0.25, 0.75, 1.0], np.float32))
    assert ball.low.tolist() == [10, 11, 12]
    assert ball.high.tolist() == [11, 12, 12]


def test_what_a_fused_kernel_loses_by_multiplying_zero_points_out_is_near_a_tie():
    """27 of 47040 elements of a right MobileNetV2 were off by one step, all by one element of an Add before them."""
    x = np.array([1.25 - 1e-5, 1.25 - 1e-3], np.float32)
    assert (quantized(x).high - quantized(x).low).tolist() == [1, 0]


def test_a_value_that_is_known_to_a_radius_carries_every_code_in_reach():
    ball = quantized(around(np.array([1.0], np.float32), 0.6))
    assert (ball.low.item(), ball.high.item()) == (11, 13)


def test_a_lenient_question_allows_one_step_more():
    x = noise((50,))
    strict, lenient = quantized(x), quantized(x, lenient=True)
    off_by_one = np.clip(strict.numbers + 1, 0, 255).astype(np.uint8)
    assert_holds(lenient, off_by_one)
    assert_outside(strict, off_by_one)


PLANTED = {
    "truncation": lambda x: np.trunc(x / 0.5) + 10,
    "floor": lambda x: np.floor(x / 0.5) + 10,
    "zero point off by one": lambda x: np.rint(x / 0.5) + 11,
    "scale off by a hundredth": lambda x: np.rint(x / 0.505) + 10,
    "signed": lambda x: np.clip(np.rint(x / 0.5) + 10, 0, 127),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_of_quantization_is_outside(bug):
    x = 50 * np.abs(noise((100,)))
    assert_outside(quantized(x), np.clip(PLANTED[bug](x), 0, 255).astype(np.uint8))


def test_channels_and_blocks_have_scales_of_their_own():
    x = noise((2, 4))
    (by_channel,) = apply("QuantizeLinear", x, one([0.5, 0.1]), np.zeros(2, np.int8), axis=0)
    assert_holds(by_channel, np.rint(x / [[0.5], [0.1]]).astype(np.int8))
    blocks = one([[0.5, 0.1], [0.2, 0.3]])
    (blocked,) = apply("DequantizeLinear", by_channel, blocks, None, axis=1, block_size=2)
    assert_holds(blocked, (by_channel.midpoint * np.repeat(blocks, 2, 1)).astype(np.float32))


def test_codes_of_four_bits_are_clipped_to_them():
    import ml_dtypes

    (ball,) = apply("QuantizeLinear", one([-100.0, 3.0, 100.0]), one(1.0), np.zeros((), ml_dtypes.int4))
    assert ball.midpoint.tolist() == [-8, 3, 7]


def test_the_range_of_a_dynamic_quantization_holds_zero():
    codes, scale, zero = apply("DynamicQuantizeLinear", one([1.0, 2.0, 5.1]), outputs=3)
    assert zero.midpoint.item() == 0
    assert_holds(scale, one(5.1 / 255))
    assert_holds(codes, np.array([50, 100, 255], np.uint8))


def test_the_scale_of_a_dynamic_quantization_may_be_a_product_by_the_reciprocal():
    x = np.float32([4.088867])
    _, scale, _ = apply("DynamicQuantizeLinear", x, outputs=3)
    divided, multiplied = x / np.float32(255), x * np.float32(1 / 255)
    assert divided != multiplied, "of this range both are the same"
    assert_holds(scale, divided.reshape(()))
    assert_holds(scale, multiplied.reshape(()))
    assert scale.error.max() < 1e-6 * divided.item()


def test_a_symmetric_range_has_the_zero_point_that_the_standard_computes():
    codes, _, zero = apply("DynamicQuantizeLinear", one([-3.0, 3.0, 0.7]), outputs=3)
    assert zero.radius is None
    assert codes.error.max() <= 0.5, "3 is 127.5 steps from zero, so that its code is open, and only that"
    assert codes.error.reshape(-1)[-1] == 0


def test_whether_there_is_a_range_at_all_may_depend_on_rounding():
    with pytest.raises(Undecided):
        apply("DynamicQuantizeLinear", around(np.zeros(3, np.float32), 0.1), outputs=3)


def convolved(x_zero=3, w_scale=(0.02, 0.01), w_zero=(0, 0), bias=(500, -700), padding=1):
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 255, (1, 2, 6, 6)).astype(np.uint8), rng.integers(-127, 127, (2, 2, 3, 3)).astype(np.int8)
    parameters = (one(0.1), one(x_zero, np.uint8), w, one(w_scale), np.array(w_zero, np.int8), one(0.5), ZERO)
    return apply("QLinearConv", x, *parameters, np.array(bias, np.int32), pads=[padding] * 4)[0]


DAMAGED = {
    "zero point of x off by one": {"x_zero": 4},
    "scales of channels exchanged": {"w_scale": (0.01, 0.02)},
    "zero point of one channel": {"w_zero": (0, 1)},
    "bias lost": {"bias": (0, 0)},
}


@pytest.mark.parametrize("bug", DAMAGED)
def test_a_planted_bug_of_a_quantized_convolution_is_outside(bug):
    right, wrong = convolved(), convolved(**DAMAGED[bug])
    assert (np.broadcast_to(right.error, right.shape) == 0).mean() > 0.9, "nearly every code is certain"
    assert_outside(right, np.rint(wrong.numbers).astype(np.uint8))


def test_a_bias_that_overflows_32_bits_leaves_any_code():
    ball = convolved(bias=(2**31 - 1, 0))
    assert ball.low[0, 0].min() == 0
    assert ball.high[0, 0].max() == 255
    assert (ball.error[0, 1] == 0).mean() > 0.9, "the other channel is as certain as ever"


def test_padding_is_filled_with_the_zero_point():
    x = np.full((1, 1, 2, 2), 7, np.uint8)
    (ball,) = apply("ConvInteger", x, np.ones((1, 1, 3, 3), np.uint8), one(7, np.uint8), None, pads=[1, 1, 1, 1])
    assert set(ball.midpoint.ravel()) == {0}


def triple(x, scale, zero):
    return x, one(scale), np.array(zero, x.dtype)


CODES = np.arange(256, dtype=np.uint8)
REAL = (CODES - 100.0) * 0.05
OUT = (one(0.01), one(20, np.uint8))


def coded(y):
    return np.clip(np.rint(y / 0.01) + 20, 0, 255).astype(np.uint8)


UNARY = {
    "Sigmoid": ({}, 1 / (1 + np.exp(-REAL))),
    "LeakyRelu": ({"alpha": 0.1}, np.where(REAL < 0, 0.1 * REAL, REAL)),
    "Softmax": ({"axis": 0, "opset": 13}, np.exp(REAL) / np.exp(REAL).sum()),
}


@pytest.mark.parametrize("op", UNARY)
def test_an_operator_between_codes_is_the_float_operator_rounded(op):
    attributes, right = UNARY[op]
    (ball,) = apply(f"com.microsoft.QLinear{op}", *triple(CODES, 0.05, 100), *OUT, **attributes)
    assert_holds(ball, coded(right))
    assert_outside(ball, coded(right + 0.01))


@pytest.mark.parametrize(("op", "f"), [("Add", np.add), ("Mul", np.multiply)])
def test_a_sum_and_a_product_of_codes(op, f):
    other = CODES[::-1].copy()
    (ball,) = apply(f"com.microsoft.QLinear{op}", *triple(CODES, 0.05, 100), *triple(other, 0.02, 7), *OUT)
    right = f(REAL, (other - 7.0) * 0.02)
    assert (np.abs(coded(right) - ball.numbers) <= ball.error + 1e-9).mean() > 0.95, "but where a tie rounds otherwise"
    assert_outside(ball, coded(right + 0.01))


def test_a_quantized_gemm_adds_its_bias_in_units_of_both_scales():
    a, b = np.array([[3, 5]], np.uint8), np.array([[2], [4]], np.uint8)
    operands = (*triple(a, 0.1, 1), *triple(b, 0.2, 1), np.array([7], np.int32))
    (ball,) = apply("com.microsoft.QGemm", *operands, alpha=0.5)
    assert_holds(ball, one([[0.5 * 0.02 * (2 * 1 + 4 * 3 + 7)]]))


@pytest.mark.parametrize("trans", [0, 1])
def test_the_zero_points_of_a_quantized_gemm_are_those_of_its_columns_which_transposed_are_rows(trans):
    a, b = np.array([[3, 5]], np.uint8), np.array([[2, 4], [6, 9]], np.uint8)
    zero, scale = np.array([1, 2], np.uint8), np.array([0.2, 0.5], np.float32)
    given = (np.ascontiguousarray(b.T) if trans else b, scale, zero)
    (ball,) = apply("com.microsoft.QGemm", *triple(a, 0.1, 1), *given, transB=trans)
    assert_holds(ball, (a - 1.0) * 0.1 @ ((b - zero.astype(float)) * scale))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_a_few_bits_are_unpacked_from_the_lowest(bits):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2**bits, (3, 2, 16))
    scales, x = rng.uniform(0.1, 1, (3, 2)).astype(np.float32), noise((5, 32))
    per_byte = 8 // bits
    packed = (codes.reshape(3, 2, -1, per_byte) << np.arange(0, 8, bits)).sum(-1).astype(np.uint8)
    (ball,) = apply("com.microsoft.MatMulNBits", x, packed, scales, N=3, K=32, bits=bits, block_size=16)
    weights = ((codes - 2 ** (bits - 1)) * scales[..., None]).reshape(3, 32)
    assert_holds(ball, (x.astype(np.float64) @ weights.T).astype(np.float32))


def test_rows_of_a_quantized_table_are_scaled_block_by_block():
    codes, scales = np.random.default_rng(0).integers(0, 16, (3, 32)), np.abs(noise((3, 2)))
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    attributes = {"bits": 4, "block_size": 16}
    (ball,) = apply("com.microsoft.GatherBlockQuantized", packed, np.array([2, 0]), scales, **attributes)
    assert_holds(ball, ((codes - 8) * np.repeat(scales, 16, 1))[[2, 0]].astype(np.float32))


@pytest.mark.parametrize(("activation", "numbers"), [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7])])
def test_an_activation_fused_into_a_convolution_is_the_operator_behind_it(activation, numbers):
    x, w, z = noise((1, 2, 4, 4)), noise((3, 2, 3, 3), 1), noise((1, 3, 2, 2), 2)
    (fused,) = apply("com.microsoft.FusedConv", x, w, None, z, activation=activation, activation_params=numbers)
    (y,) = apply("Add", *apply("Conv", x, w), z)
    attributes = {"alpha": numbers[0]} if activation == "LeakyRelu" else {}
    bounds = [one(number) for number in numbers] if activation == "Clip" else []
    (apart,) = apply(activation, y, *bounds, **attributes)
    assert_holds(fused, apart.midpoint.astype(np.float32))


RECIPES = {
    "QDQ": {"format": "QDQ"},
    "QOperator": {"format": "QOperator", "types": "u8u8"},
    "QOperator, a scale a channel": {
        "format": "QOperator",
        "types": "u8s8",
        "per_channel": True,
        "reduce_range": True,  # or kernels of AVX2 cut products
    },
    "dynamic": {"quantize": "dynamic"},
}


def network():
    """Layers of every kind that quantizers write an operator for."""
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "v": (8, 4), "c": (4,), "u": (4, 4)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["conv"], ["gate"]),
        helper.make_node("Mul", ["conv", "gate"], ["swish"]),
        helper.make_node("LeakyRelu", ["conv"], ["leaky"]),
        helper.make_node("Add", ["swish", "leaky"], ["sum"]),
        helper.make_node("AveragePool", ["sum"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxPool", ["sum"], ["maxima"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Concat", ["pooled", "maxima"], ["both"], axis=1),
        helper.make_node("GlobalAveragePool", ["both"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("Gemm", ["flat", "v", "c"], ["dense"]),
        helper.make_node("MatMul", ["dense", "u"], ["last"]),
        helper.make_node("Softmax", ["last"], ["y"]),
    ]
    constants = {name: noise(shape, seed) for seed, (name, shape) in enumerate(shapes.items(), 1)}
    return models.case(nodes, {"x": noise((2, 3, 8, 8))}, constants, outputs=[("y", 1, (2, 4))])


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_quantizer_writes_is_executed_inside_its_balls(runner, name):
    made = network()
    artifact = runner.observe(made, resolve("onnxruntime-quant"), RECIPES[name]).artifact
    written = dataclasses.replace(made, model=artifact.model)
    model = graph.read(written.proto)
    (record,) = runner.reference.record(written)
    evaluation = evaluate(model, made.feeds[0])
    assert not evaluation.undecided
    judged = certain = 0
    for node in model.nodes:
        for tensor in set(node.outputs) & record.keys():
            ball = evaluation.balls[tensor]
            assert holds(ball, record[tensor]), f"{tensor}, made by {node.op}"
            if ball.dtype.kind in "iu" and ball.midpoint.ndim > 1:
                judged += ball.midpoint.size
                certain += int((np.broadcast_to(ball.error, ball.shape) == 0).sum())
    assert judged > 300
    assert certain > 0.95 * judged, f"only {certain} of {judged} codes are certain"


def test_a_negative_scale_turns_a_tie_around():
    (ball,) = apply("DequantizeLinear", around(np.array([2], np.int8), 1.0), np.array(-0.3, np.float32))
    for code in (1, 2, 3):
        assert_holds(ball, np.array([-0.3 * code], np.float32))
    assert_outside(ball, np.array([-0.3 * 4], np.float32))
