"""The operators of com.microsoft that quantizers write, and those that fuse what they wrote.

Most are a float operator between a DequantizeLinear and a QuantizeLinear, and are followed just so. Kernels that look a
function up in a table of 256 codes, or that fold zero points into the sum, round once or twice more before they decide.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    FLOAT,
    Array,
    Ball,
    U,
    Undecided,
    constant,
    exact,
    is_float,
    moved,
    value,
    widened,
)
from driftnet.oracle.ball_arithmetic.linear import Sum, convolution, product_and_sum, products
from driftnet.oracle.ball_arithmetic.quantized import (
    accumulated,
    centred,
    codes,
    columns,
    dynamic_quantize_linear,
    in_steps,
    matrix_product,
    requantized,
    rows,
    scalar,
    scaled,
    scales,
)
from driftnet.oracle.ball_arithmetic.recurrent import CELLS, Layer, State, lstm_step, recurrent
from driftnet.oracle.ball_arithmetic.rules import RULES, Context, Maybe, Results, attribute, rule

DOMAIN = "com.microsoft."


def dequantized(x: Ball, scale: Ball, zero: Maybe = None) -> Ball:
    """Codes with one scale and one zero point (or none) as numbers."""
    return scaled(centred(x, zero), scalar(scale))


def quantized(x: Ball, scale: Ball, zero: Ball | None, like: Ball, context: Context, *, extra: float = 0.0) -> Ball:
    """x as codes of the dtype of `zero`, or where that is absent of `like`.

    extra   what a kernel may lose in units of the scale beside the rounding of the quotient
    """
    zero = constant(0, like.dtype) if zero is None else scalar(zero)
    v, d = in_steps(x, scalar(scale), x.dtype)
    return codes(v, d + extra + 2 * U * np.abs(zero.numbers), zero, zero.dtype, context)


def _followed(op: str, node: Node, operands: Sequence[Ball], context: Context) -> Ball:
    """What the default domain's `op` makes of `operands`, with the attributes of `node`."""
    result: Ball = RULES[op](dataclasses.replace(node, op=op), operands, context)[0]
    return result


# Those that onnxruntime has, but QLinearConcat, whose operands come in another order, and QLinearReduceMean.
QLINEAR = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), 1),
    **dict.fromkeys(("Add", "Mul", "Where"), 2),
}
"""operator of the default domain -> how many tensors of codes it takes"""


@rule(*(f"{DOMAIN}QLinear{op}" for op in QLINEAR))
def qlinear(*operands: Any, channels_last: int = 0, node: Node, context: Context) -> Ball:
    """The operator on tensors of codes (x, scale, zero ..., y_scale, y_zero), behind the condition of a Where

    Softmax names the opset that defines it; channels of a pool are second or last.
    """
    op = node.op.removeprefix(f"{DOMAIN}QLinear")
    first, end = (1 if op == "Where" else 0), (1 if op == "Where" else 0) + 3 * QLINEAR[op]
    y_scale, y_zero = [*operands[end:], None][:2]
    numbers = [dequantized(*operands[k : k + 3]) for k in range(first, end, 3)]
    numbers = [moved(x, lambda a: np.moveaxis(a, -1, 1)) if channels_last else x for x in numbers]
    # Nobody says of a pool whether what ceil_mode sees beyond the padding counts: either, as in the first opsets.
    opset = 1 if op.endswith("AveragePool") else attribute(node, "opset", context.opset)
    result = _followed(op, node, [*operands[:first], *numbers], dataclasses.replace(context, opset=opset))
    result = moved(result, lambda a: np.moveaxis(a, 1, -1)) if channels_last else result
    extra = 0.0
    if op == "Add":  # zero points times scales are summed beforehand: terms as large as 255 scales of either operand
        s_a, s_b, s_y = scales(operands[1], operands[4], y_scale)
        extra = 8 * U * 255 * float((s_a + s_b) / s_y)
    return quantized(result, y_scale, y_zero, operands[first], context, extra=extra)


@rule(f"{DOMAIN}QLinearConcat")
def qlinear_concat(scale: Ball, zero: Ball, *operands: Ball, node: Node, context: Context) -> Ball:
    """Concat of codes, each with its scale and zero point"""
    parts = [dequantized(*operands[k : k + 3]) for k in range(0, len(operands), 3)]
    return _followed("Concat", node, [quantized(x, scale, zero, zero, context) for x in parts], context)


@rule(f"{DOMAIN}QGemm")
def qgemm(*operands: Any, node: Node, context: Context) -> Ball:
    """alpha s_a s_b (A' B' + C), C int32 in units of s_a s_b; in codes where a scale of Y is given, else in float32"""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = [*operands, None, None, None][:9]
    channels = rows if attribute(node, "transB", 0) else columns
    total = product_and_sum(node, centred(a, a_zero), centred(b, b_zero, channels), c, scaled=False)
    s_a, s_b = scales(scalar(a_scale), columns(b_scale))
    factor = attribute(node, "alpha", 1.0) * s_a * s_b
    if y_scale is None:
        return accumulated(total).times(factor).ball(FLOAT)
    y_zero = constant(0, a.dtype) if y_zero is None else y_zero
    return requantized(total, factor / value(y_scale), y_zero, y_zero.dtype, context)


@rule(f"{DOMAIN}MatMulIntegerToFloat")
def matmul_integer_to_float(a: Ball, b: Ball, a_scale: Ball, b_scale: Ball, *zeros_and_bias: Maybe) -> Ball:
    """s_a s_b (A - zero) (B - zero) + bias, in float32"""
    a_zero, b_zero, bias = [*zeros_and_bias, None, None, None][:3]
    total = matrix_product(centred(a, a_zero), centred(b, b_zero, columns))
    s_a, s_b = scalar(a_scale), columns(b_scale)
    step = s_a.numbers * s_b.numbers
    slack = s_a.error * (s_b.numbers + s_b.error) + s_a.numbers * s_b.error
    radius = total.radius * (step + slack) + np.abs(total.midpoint) * slack
    return Sum(total.midpoint * step, radius, total.size * step, total.terms).plus(bias).ball(FLOAT)


@rule(f"{DOMAIN}DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    x: Ball, b: Ball, b_scale: Ball, b_zero: Maybe = None, bias: Maybe = None, *, context: Context
) -> Ball:
    """MatMulIntegerToFloat of what DynamicQuantizeLinear makes of A"""
    a, a_scale, a_zero = dynamic_quantize_linear(x, context=context)
    return matmul_integer_to_float(a, b, a_scale, b_scale, a_zero, b_zero, bias)


@rule(f"{DOMAIN}FusedMatMul")
def fused_matmul(a: Ball, b: Ball, *, alpha: float = 1.0, node: Node) -> Ball:
    """alpha A' B', the last two dims of A and B exchanged on demand"""
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        raise Undecided("batch dims that are exchanged too")
    a, b = (
        moved(x, lambda values: values.swapaxes(-1, -2)) if attribute(node, name, 0) and x.midpoint.ndim > 1 else x
        for x, name in ((a, "transA"), (b, "transB"))
    )
    return products(np.matmul, a, b, a.shape[-1]).times(alpha).ball(a.dtype)


@rule(f"{DOMAIN}FusedConv")
def fused_conv(
    x: Ball,
    w: Ball,
    bias: Maybe = None,
    added: Maybe = None,
    *,
    activation_params: Sequence[float] = (),
    node: Node,
    context: Context,
) -> Ball:
    """An activation of Conv plus a tensor"""
    total = convolution(node, x, w, bias).plus(added)
    return _activated(node, total, x.dtype, activation_params, context)


@rule(f"{DOMAIN}FusedGemm")
def fused_gemm(a: Ball, b: Ball, c: Maybe = None, *, node: Node, context: Context) -> Ball:
    """An activation of Gemm"""
    given = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    numbers = [number for number in given if number is not None]
    return _activated(node, product_and_sum(node, a, b, c), a.dtype, numbers, context)


def _activated(node: Node, total: Sum, dtype: np.dtype, numbers: Sequence[float], context: Context) -> Ball:
    """The activation that `node` names, its parameters in order."""
    operands, attributes = [total.ball(dtype)], dict(zip(("alpha", "beta"), numbers))
    if node.attributes["activation"] == "Clip":
        operands, attributes = [*operands, *(exact(np.array(number, dtype)) for number in numbers)], {}
    return _followed(node.attributes["activation"], dataclasses.replace(node, attributes=attributes), operands, context)


@rule(f"{DOMAIN}MatMulNBits")
def matmul_nbits(
    x: Ball,
    packed: Array,
    scale: Array,
    zero: Array | None = None,
    groups: Maybe = None,
    bias: Maybe = None,
    *,
    bits: int = 4,
    node: Node,
) -> Ball:
    """A W', W (N, K) in codes of a few bits, one scale and zero point a block of K"""
    if groups is not None:
        raise Undecided("blocks in another order")
    if attribute(node, "accuracy_level", 0) == 4:  # allows x to become int8, with a scale for each block of a row
        rows = np.max(np.maximum(np.abs(x.low), np.abs(x.high)), axis=-1, keepdims=True, initial=0.0)
        x = widened(x.numbers, x.error + rows / 254, x.dtype)
    n, k, block = (int(node.attributes[name]) for name in ("N", "K", "block_size"))
    codes_, origin, steps = unpacked_weights(packed, scale, zero, (n, k), bits, block)
    weights = Ball(((codes_ - origin) * steps).T, None, x.dtype)
    return products(np.matmul, x, weights, k).plus(bias).ball(x.dtype)


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


@rule(f"{DOMAIN}GatherBlockQuantized")
def gather_block_quantized(
    table: Ball,
    indices: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    node: Node,
) -> Ball:
    """Rows of a table in codes of a few bits, one scale and zero point a block of the quantized axis"""
    if is_float(table.dtype):
        raise Undecided("a table of narrow floats")
    rank = table.midpoint.ndim
    gathered, split = (attribute(node, f"{of}_axis", k) % rank for k, of in enumerate(("gather", "quantize")))
    if gathered == split:
        raise Undecided("blocks that are cut apart by gathering along them")
    packed = table.dtype == np.uint8
    if zero is None:
        zero = np.asarray(2 ** (bits - 1) if packed else 0)
    elif packed:
        zero = _unpacked(zero, bits)[..., : scale.shape[-1]]
    numbers = _unpacked(value(table), bits) if packed else value(table)
    step, origin = (np.repeat(p, block_size, split) if p.ndim else p for p in (scale, zero))
    inside = tuple(slice(n) for n in numbers.shape)
    step, origin = step[inside], origin[inside] if origin.ndim else origin
    whole = scaled(Ball(numbers - origin.astype(np.float64), None, table.dtype), exact(step))
    return moved(whole, lambda values: values.take(indices, gathered))


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Codes of `bits` bits out of bytes, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((packed[..., None] >> shifts & (2**bits - 1)).reshape(*packed.shape[:-1], -1))


@rule(f"{DOMAIN}DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    x: Ball, w: Ball, r: Ball, bias: Maybe = None, lens: Maybe = None, *others: Any, node: Node, context: Context
) -> Results:
    """LSTM whose input, and whose state before every step, are quantized as DynamicQuantizeLinear does

    The weights are (D, I, 4 H) and (D, H, 4 H) in codes, with a scale and zero point a direction or a gate.
    """
    h, c, peepholes, *of_weights = others
    longest = int(value(lens).max(initial=0)) if lens is not None else x.shape[0]
    seen = _as_quantized(moved(x, lambda values: values[:longest]), context)
    padding = [(0, x.shape[0] - longest), (0, 0), (0, 0)]
    seen = moved(seen, lambda values: np.pad(values, padding))

    def step(layer: Layer, wx: Sum, state: State) -> State:
        before = _as_quantized(state[0], context) if state[0].shape[0] == 1 else _near(state[0])
        return lstm_step(layer, wx, (before, *state[1:]))

    weights = _gates(w, *of_weights[:2]), _gates(r, *of_weights[2:4])
    cell = dataclasses.replace(CELLS["LSTM"], step=step)
    return recurrent(cell, node, [seen, *weights, bias, lens, h, c, peepholes], context)


def _gates(codes_: Ball, scale: Ball, zero: Ball) -> Ball:
    """Weights as LSTM takes them: (D, 4 H, I)."""
    scale, zero = (moved(p, lambda values: values.reshape(codes_.shape[0], 1, -1)) for p in (scale, zero))
    return moved(scaled(centred(codes_, zero, lambda p: p), scale), lambda values: values.swapaxes(1, 2))


def _as_quantized(x: Ball, context: Context) -> Ball:
    """What is left of x after a DynamicQuantizeLinear and a DequantizeLinear."""
    try:
        found, scale, zero = dynamic_quantize_linear(x, context=context)
    except Undecided:  # all of it may be zero
        return _near(x)
    return scaled(centred(found, zero), scale)


def _near(x: Ball) -> Ball:
    """x quantized in parts, as engines split a batch among threads: each part within one step of the whole's range."""
    width = max(x.high.max(initial=0.0), 0.0) - min(x.low.min(initial=0.0), 0.0)
    return widened(x.numbers, x.error + width / 255, x.dtype)
