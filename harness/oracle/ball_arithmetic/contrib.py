"""The operators of com.microsoft that quantizers write, and those that fuse what they wrote.

Most are a float operator between a DequantizeLinear and a QuantizeLinear, and are followed just so. Kernels that look a
function up in a table of 256 codes, or that fold zero points into the sum, round once or twice more before they decide.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, format_of, is_float, value, widened
from driftnet.oracle.ball_arithmetic.linear import Sum, convolution, product_and_sum, products
from driftnet.oracle.ball_arithmetic.operands import array, moved, operand
from driftnet.oracle.ball_arithmetic.quantized import (
    FLOAT,
    accumulated,
    centred,
    codes,
    columns,
    dynamic_quantize_linear,
    in_steps,
    matrix_product,
    no_zero,
    requantized,
    scaled,
    scales,
)
from driftnet.oracle.ball_arithmetic.recurrent import Layer, State, lstm_step, recurrent
from driftnet.oracle.ball_arithmetic.rules import RULES, Context, Operands, Results, attribute, rule

U = format_of(FLOAT).unit


def dequantized(operands: Operands, k: int) -> Ball:
    """Operands k, k + 1, k + 2: codes, one scale, one zero point (or none), as numbers."""
    zero = operand(operands, k + 2)
    return scaled(centred(operands[k], None if zero is None else _scalar(zero)), _scalar(operands[k + 1]))


def _scalar(parameter: Ball) -> Ball:
    return moved(parameter, lambda p: p.reshape(()))


def quantized(x: Ball, scale: Ball, zero: Ball | None, like: Ball, context: Context, *, extra: float = 0.0) -> Ball:
    """x as codes of the dtype of `zero`, or where that is absent of `like`.

    extra   what a kernel may lose in units of the scale beside the rounding of the quotient
    """
    zero = no_zero(like.dtype) if zero is None else _scalar(zero)
    v, d = in_steps(x, _scalar(scale), x.dtype)
    return codes(v, d + extra + 2 * U * np.abs(zero.numbers), zero, zero.dtype, context)


def _followed(op: str, node: Node, operands: Sequence[Ball], context: Context) -> Ball:
    """What the default domain's `op` makes of `operands`, with the attributes of `node`."""
    result: Ball = RULES[op](dataclasses.replace(node, op=op), operands, context)[0]
    return result


UNARY = ("Sigmoid", "LeakyRelu", "Softmax", "AveragePool", "GlobalAveragePool")


@rule(*(f"com.microsoft.QLinear{op}" for op in UNARY))
def qlinear_unary(node: Node, operands: Operands, context: Context) -> Results:
    """The operator of one tensor of codes (x, scale, zero, y_scale, y_zero)

    Softmax names the opset that defines it; channels of a pool are second or last.
    """
    # Nobody says of a pool whether what ceil_mode sees beyond the padding counts: either, as in the first opsets.
    opset = 1 if node.op.endswith("AveragePool") else attribute(node, "opset", context.opset)
    context = dataclasses.replace(context, opset=opset)
    last = attribute(node, "channels_last", 0)
    x = dequantized(operands, 0)
    x = moved(x, lambda values: np.moveaxis(values, -1, 1)) if last else x
    result = _followed(node.op.removeprefix("com.microsoft.QLinear"), node, [x], context)
    result = moved(result, lambda values: np.moveaxis(values, 1, -1)) if last else result
    return [quantized(result, operands[3], operand(operands, 4), operands[0], context)]


@rule("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul")
def qlinear_binary(node: Node, operands: Operands, context: Context) -> Results:
    """Sum or product of codes"""
    op = node.op.removeprefix("com.microsoft.QLinear")
    result = _followed(op, node, [dequantized(operands, 0), dequantized(operands, 3)], context)
    # Zero points times scales are summed beforehand: the terms are as large as 255 scales of either operand.
    s_a, s_b, s_c = scales(operands[1], operands[4], operands[6])
    extra = 8 * U * 255 * float((s_a + s_b) / s_c) if op == "Add" else 0.0
    return [quantized(result, operands[6], operand(operands, 7), operands[0], context, extra=extra)]


@rule("com.microsoft.QLinearConcat")
def qlinear_concat(node: Node, operands: Operands, context: Context) -> Results:
    """Concat of codes, each with its scale and zero point"""
    parts = [dequantized(operands, k) for k in range(2, len(operands), 3)]
    scale, zero = operands[0], operands[1]
    return [_followed("Concat", node, [quantized(x, scale, zero, zero, context) for x in parts], context)]


@rule("com.microsoft.QLinearWhere")
def qlinear_where(node: Node, operands: Operands, context: Context) -> Results:
    """Where of codes"""
    choice = [operands[0], dequantized(operands, 1), dequantized(operands, 4)]
    return [quantized(_followed("Where", node, choice, context), operands[7], operands[8], operands[8], context)]


@rule("com.microsoft.QGemm")
def qgemm(node: Node, operands: Operands, context: Context) -> Results:
    """alpha s_a s_b (A' B' + C), C int32 in units of s_a s_b; in codes where a scale of Y is given, else in float32"""
    a, b, zero = centred(operands[0], _scalar(operands[2])), operands[3], columns(operands[5])
    a = moved(a, np.transpose) if attribute(node, "transA", 0) else a
    b = moved(b, np.transpose) if attribute(node, "transB", 0) else b
    total = products(np.matmul, a, centred(b, zero), a.shape[1]).plus(operand(operands, 6))
    s_a, s_b = scales(_scalar(operands[1]), columns(operands[4]))
    factor = attribute(node, "alpha", 1.0) * s_a * s_b
    if operand(operands, 7) is None:
        return [accumulated(total).times(factor).ball(FLOAT)]
    y_zero = no_zero(operands[0].dtype) if operand(operands, 8) is None else operands[8]
    return [requantized(total, factor / value(operands[7]), y_zero, y_zero.dtype, context)]


@rule("com.microsoft.MatMulIntegerToFloat")
def matmul_integer_to_float(node: Node, operands: Operands, context: Context) -> Results:
    """s_a s_b (A - zero) (B - zero) + bias, in float32"""
    a_zero, b_zero = operand(operands, 4), operand(operands, 5)
    a = centred(operands[0], None if a_zero is None else _scalar(a_zero))
    b = centred(operands[1], None if b_zero is None else columns(b_zero))
    return [_to_float(matrix_product(a, b), operands[2], operands[3], operand(operands, 6))]


def _to_float(total: Sum, a_scale: Ball, b_scale: Ball, bias: Ball | None) -> Ball:
    """s_a s_b total + bias."""
    s_a, s_b = _scalar(a_scale), columns(b_scale)
    step = s_a.numbers * s_b.numbers
    slack = s_a.error * (s_b.numbers + s_b.error) + s_a.numbers * s_b.error
    size = total.size * step
    radius = total.radius * (step + slack) + np.abs(total.midpoint) * slack
    return Sum(total.midpoint * step, radius, size, total.terms).plus(bias).ball(FLOAT)


@rule("com.microsoft.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: Node, operands: Operands, context: Context) -> Results:
    """MatMulIntegerToFloat of what DynamicQuantizeLinear makes of A"""
    a, s_a, zero = dynamic_quantize_linear(node, operands[:1], context)
    b, s_b, b_zero, bias = (operand(operands, k) for k in (1, 2, 3, 4))
    return matmul_integer_to_float(node, [a, b, s_a, s_b, zero, b_zero, bias], context)


@rule("com.microsoft.FusedMatMul")
def fused_matmul(node: Node, operands: Operands, context: Context) -> Results:
    """alpha A' B', the last two dims of A and B exchanged on demand"""
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        raise Undecided("batch dims that are exchanged too")
    a, b = (
        moved(x, lambda values: values.swapaxes(-1, -2)) if attribute(node, name, 0) and x.midpoint.ndim > 1 else x
        for x, name in zip(operands, ("transA", "transB"))
    )
    return [products(np.matmul, a, b, a.shape[-1]).times(attribute(node, "alpha", 1.0)).ball(a.dtype)]


@rule("com.microsoft.FusedConv")
def fused_conv(node: Node, operands: Operands, context: Context) -> Results:
    """An activation of Conv plus a tensor"""
    total = convolution(node, operands[0], operands[1], operand(operands, 2)).plus(operand(operands, 3))
    return [_activated(node, total, operands[0].dtype, attribute(node, "activation_params", ()), context)]


@rule("com.microsoft.FusedGemm")
def fused_gemm(node: Node, operands: Operands, context: Context) -> Results:
    """An activation of Gemm"""
    total = product_and_sum(node, operands[0], operands[1], operand(operands, 2))
    given = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    return [_activated(node, total, operands[0].dtype, [number for number in given if number is not None], context)]


def _activated(node: Node, total: Sum, dtype: np.dtype, numbers: Sequence[float], context: Context) -> Ball:
    """The activation that `node` names, its parameters in order."""
    operands, attributes = [total.ball(dtype)], dict(zip(("alpha", "beta"), numbers))
    if node.attributes["activation"] == "Clip":
        operands, attributes = [*operands, *(exact(np.array(number, dtype)) for number in numbers)], {}
    return _followed(node.attributes["activation"], dataclasses.replace(node, attributes=attributes), operands, context)


@rule("com.microsoft.MatMulNBits")
def matmul_nbits(node: Node, operands: Operands, context: Context) -> Results:
    """A W', W (N, K) in codes of a few bits, one scale and zero point a block of K"""
    if attribute(node, "accuracy_level", 0) == 4 or operand(operands, 4) is not None:
        raise Undecided("an operand that is quantized on the way, or blocks in another order")
    n, k, block = (int(node.attributes[name]) for name in ("N", "K", "block_size"))
    given = value(operands[1]), value(operands[2]), array(operands, 3)
    codes_, origin, steps = unpacked_weights(*given, (n, k), int(attribute(node, "bits", 4)), block)
    weights, x = Ball(((codes_ - origin) * steps).T, None, operands[0].dtype), operands[0]
    return [products(np.matmul, x, weights, k).plus(operand(operands, 5)).ball(x.dtype)]


def unpacked_weights(
    packed: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, shape: tuple[int, int], bits: int, block: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes, zero points, scales) of the weights of a MatMulNBits, each of `shape` (N, K) in float64; zero may be
    None."""
    n, k = shape
    blocks = -(-k // block)
    codes_ = _unpacked(packed.reshape(n, blocks, -1), bits)[..., :block].reshape(n, -1)[:, :k]
    origin = np.full((n, blocks), 2.0 ** (bits - 1))
    if zero is not None:
        origin = (_unpacked(zero.reshape(n, -1), bits) if zero.dtype == np.uint8 else zero.reshape(n, -1))[:, :blocks]
    wide = [np.repeat(x.reshape(n, blocks).astype(np.float64), block, axis=1)[:, :k] for x in (origin, scale)]
    return codes_.astype(np.float64), wide[0], wide[1]


@rule("com.microsoft.GatherBlockQuantized")
def gather_block_quantized(node: Node, operands: Operands, context: Context) -> Results:
    """Rows of a table in codes of a few bits, one scale and zero point a block of the quantized axis"""
    table, indices, scale, zero = (value(operands[k]) if operand(operands, k) else None for k in range(4))
    if table is None or indices is None or scale is None or is_float(operands[0].dtype):
        raise Undecided("a table of narrow floats")
    bits, block = attribute(node, "bits", 4), attribute(node, "block_size", 128)
    gathered, split = (attribute(node, name, k) % table.ndim for k, name in enumerate(("gather_axis", "quantize_axis")))
    if gathered == split:
        raise Undecided("blocks that are cut apart by gathering along them")
    packed = operands[0].dtype == np.uint8
    if zero is None:
        zero = np.asarray(2 ** (bits - 1) if packed else 0)
    elif packed:
        zero = _unpacked(zero, bits)[..., : scale.shape[-1]]
    table = _unpacked(table, bits) if packed else table
    step, origin = (np.repeat(p, block, split) if p.ndim else p for p in (scale, zero))
    inside = tuple(slice(n) for n in table.shape)
    step, origin = step[inside], origin[inside] if origin.ndim else origin
    codes_ = Ball(table - origin.astype(np.float64), None, operands[0].dtype)
    whole = scaled(codes_, Ball(step.astype(np.float64), None, operands[2].dtype))
    return [moved(whole, lambda values: values.take(indices, gathered))]


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Codes of `bits` bits out of bytes, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((packed[..., None] >> shifts & (2**bits - 1)).reshape(*packed.shape[:-1], -1))


@rule("com.microsoft.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(node: Node, operands: Operands, context: Context) -> Results:
    """LSTM whose input, and whose state before every step, are quantized as DynamicQuantizeLinear does

    The weights are (D, I, 4 H) and (D, H, 4 H) in codes, with a scale and zero point a direction or a gate.
    """
    lens = operand(operands, 4)
    longest = int(value(lens).max(initial=0)) if lens is not None else operands[0].shape[0]
    x = moved(operands[0], lambda values: values[:longest])
    w, r = (_gates(operands[k], *operands[j : j + 2]) for k, j in ((1, 8), (2, 10)))
    padding = [(0, operands[0].shape[0] - longest), (0, 0), (0, 0)]
    x = moved(_as_quantized(x, node, context), lambda values: np.pad(values, padding))

    def step(layer: Layer, wx: Sum, state: State) -> State:
        h, c = state
        seen = _as_quantized(h, node, context) if h.shape[0] == 1 else _near(h)
        return lstm_step(layer, wx, (seen, c))

    return recurrent(node, [x, w, r, *operands[3:8]], 4, ("Sigmoid", "Tanh", "Tanh"), step, context.observed)


def _gates(codes_: Ball, scale: Ball, zero: Ball) -> Ball:
    """Weights as LSTM takes them: (D, 4 H, I)."""
    scale, zero = (moved(p, lambda values: values.reshape(codes_.shape[0], 1, -1)) for p in (scale, zero))
    return moved(scaled(centred(codes_, zero), scale), lambda values: values.swapaxes(1, 2))


def _as_quantized(x: Ball, node: Node, context: Context) -> Ball:
    """What is left of x after a DynamicQuantizeLinear and a DequantizeLinear."""
    try:
        found, scale, zero = dynamic_quantize_linear(node, [x], context)
    except Undecided:  # all of it may be zero
        return _near(x)
    return scaled(centred(found, zero), scale)


def _near(x: Ball) -> Ball:
    """x quantized in parts, as engines split a batch among threads: each part within one step of the whole's range."""
    width = max(x.high.max(initial=0.0), 0.0) - min(x.low.min(initial=0.0), 0.0)
    return widened(x.numbers, x.error + width / 255, x.dtype)
