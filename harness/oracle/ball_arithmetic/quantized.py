"""Quantization, and what integer kernels compute of codes.

A code is a decision: in units of the scale a value is v +- d, with d = r / s + 4u (|v| + r / s), because engines divide
by the scale or multiply by its reciprocal (2u for float16: there 4u of a large code is a quarter of a step), and 4u of
all the codes, because fused kernels add zero points as terms of their own. Its code is one of rint(v - d) ...
rint(v + d), moved by the zero point and clipped. That is one code but near ties, so behind a QuantizeLinear radii are 0
almost everywhere.

Sums of products of codes are exact. Their requantization is a product of three scales: v = sum s_a s_b / s_y, rounded
a few times, then the same decision.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    FLOAT,
    NARROW,
    Array,
    Ball,
    U,
    Undecided,
    between,
    constant,
    format_of,
    is_float,
    moved,
    rounded,
    value,
)
from driftnet.oracle.ball_arithmetic.ball import exact as exactly
from driftnet.oracle.ball_arithmetic.elementwise import product
from driftnet.oracle.ball_arithmetic.linear import Sum, convolution, products
from driftnet.oracle.ball_arithmetic.rules import Context, Maybe, attribute, dtype_of, rule
from driftnet.oracle.tolerances.table import (
    CODE_ROUNDINGS,
    CODE_ROUNDINGS_FLOAT16,
    RANGE_ROUNDINGS,
    REQUANTIZED_ROUNDINGS,
)

UINT8, INT32 = np.dtype(np.uint8), np.dtype(np.int32)
Place = Callable[[Ball], Ball]
"""How a scale or zero point is put so that it broadcasts with its tensor."""

ONE_STEP = 1.0
"""What Context.lenient adds to a value before it is rounded."""


@cache
def code_range(dtype: np.dtype) -> tuple[int, int]:
    """The smallest and the largest code."""
    if dtype in NARROW:
        return (-8, 7) if NARROW[dtype].kind == "i" else (0, 15)
    if is_float(dtype):
        largest = int(format_of(dtype).largest)
        return -largest, largest
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def codes(v: Array, d: Array, zero: Ball, dtype: np.dtype, context: Context) -> Ball:
    """The codes that v +- d, in units of the scale, may have."""
    if context.lenient:
        d = d + ONE_STEP
    low, high = np.rint(v - d) + zero.low, np.rint(v + d) + zero.high
    ends = code_range(dtype)
    low, high = np.clip(low, *ends), np.clip(high, *ends)
    unknown = ~(np.isfinite(v) & np.isfinite(d))
    if unknown.any():  # engines clip infinity, but what an integer makes of NaN is their own affair
        kept = np.isinf(v) & (d == 0)
        low, high = np.where(unknown & ~kept, ends[0], low), np.where(unknown & ~kept, ends[1], high)
    if (low == high).all():
        return Ball(low.astype(NARROW.get(dtype, dtype)), None, dtype)
    return between(low, high, dtype)


def along(parameter: Ball, shape: tuple[int, ...], axis: int, block: int) -> Ball:
    """A scale or zero point as it broadcasts with a tensor of `shape`: one a tensor, a channel or a block."""
    if parameter.midpoint.size == 1 and not block:
        return scalar(parameter)
    axis %= len(shape)
    if block:
        return moved(parameter, lambda p: np.repeat(p, block, axis)[(slice(None),) * axis + (slice(shape[axis]),)])
    return moved(parameter, lambda p: p.reshape([-1 if k == axis else 1 for k in range(len(shape))]))


def scalar(parameter: Ball) -> Ball:
    """A scale or zero point of a whole tensor."""
    return moved(parameter, lambda p: p.reshape(()))


def channels(rank: int) -> Place:
    """Those of the output channels of a convolution, as they broadcast with (channels, ...)."""
    return lambda parameter: along(parameter, (1,) * rank, 0, 0)


def rows(parameter: Ball) -> Ball:
    """Those of the rows of a matrix, as they broadcast with it."""
    return moved(parameter, lambda p: p[:, None] if p.ndim == 1 and p.size > 1 else p.reshape(()) if p.size == 1 else p)


def columns(parameter: Ball) -> Ball:
    """Those of the columns of a matrix, as they broadcast with it."""
    return scalar(parameter) if parameter.midpoint.size == 1 else parameter


@rule("QuantizeLinear", "com.microsoft.QuantizeLinear")
def quantize_linear(
    x: Ball, scale: Ball, zero: Maybe = None, *, axis: int = 1, block_size: int = 0, node: Node, context: Context
) -> Ball:
    """y = saturate(round(x / scale) + zero_point), halves to even"""
    zero = constant(0, _named(node, "output_dtype", UINT8)) if zero is None else along(zero, x.shape, axis, block_size)
    v, d = in_steps(x, along(scale, x.shape, axis, block_size), _named(node, "precision", x.dtype))
    if is_float(zero.dtype):
        return _narrowed(v, d, zero, node)
    return codes(v, d + _multiplied_out(zero.dtype), zero, zero.dtype, context)


def _multiplied_out(dtype: np.dtype) -> float:
    """What a kernel that is fused with its Q/DQ pairs loses by adding zero points, its operands' times the quotient of
    scales too, as terms of their own, which may be as large as any code."""
    low, high = code_range(dtype)
    return CODE_ROUNDINGS * format_of(FLOAT).unit * (high - low)


def _named(node: Node, name: str, otherwise: np.dtype) -> np.dtype:
    """The dtype that an attribute names."""
    number = attribute(node, name, 0)
    return dtype_of(number) if number else otherwise


def in_steps(x: Ball, scale: Ball, precision: np.dtype) -> tuple[Array, Array]:
    """x / scale as v and d, divided in `precision`."""
    u = format_of(precision if is_float(precision) else FLOAT).unit
    slack = (CODE_ROUNDINGS if u <= U else CODE_ROUNDINGS_FLOAT16) * u
    step = scale.numbers
    v = x.numbers / step
    if x.radius is None and scale.radius is None:
        return v, slack * np.abs(v)
    r = (x.error + np.abs(v) * scale.error) / np.maximum(np.abs(step) - scale.error, 0)
    return v, np.asarray(r + slack * (np.abs(v) + r))


def _narrowed(v: Array, d: Array, zero: Ball, node: Node) -> Ball:
    """v + zero in a float8 format, whose rounding is monotone."""
    largest = format_of(zero.dtype).largest
    low, high = v - d + zero.numbers, v + d + zero.numbers
    if not attribute(node, "saturate", 1) and max(np.abs(low).max(initial=0), np.abs(high).max(initial=0)) > largest:
        raise Undecided("what overflows a float8 format becomes NaN or infinity, as the format has it")
    low, high = (np.clip(end, -largest, largest).astype(zero.dtype).astype(np.float64) for end in (low, high))
    return Ball(low, None, zero.dtype) if (low == high).all() else between(low, high, zero.dtype)


@rule("DequantizeLinear", "com.microsoft.DequantizeLinear")
def dequantize_linear(
    x: Ball, scale: Ball, zero: Maybe = None, *, axis: int = 1, block_size: int = 0, node: Node
) -> Ball:
    """y = (x - zero_point) scale"""
    result = scaled(
        centred(x, zero, lambda p: along(p, x.shape, axis, block_size)), along(scale, x.shape, axis, block_size)
    )
    dtype = _named(node, "output_dtype", scale.dtype)
    return result if dtype == scale.dtype else rounded(result.midpoint, result.error, dtype)


def centred(x: Ball, zero: Ball | None, place: Place = scalar) -> Ball:
    """x - zero in float64, the zero point placed so that they broadcast."""
    if zero is None:
        return Ball(x.numbers, x.radius, x.dtype)
    zero = place(zero)
    radius = None if x.radius is None and zero.radius is None else x.error + zero.error
    return Ball(x.numbers - zero.numbers, radius, x.dtype)


def scaled(x: Ball, scale: Ball) -> Ball:
    """x scale, in the dtype of the scale."""
    return product(x, scale, scale.dtype)


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Ball, *, context: Context) -> list[Ball]:
    """Codes, scale and zero point for the range of x, zero included; nothing but zeros have scale 1"""
    scale, zero = _literal_range(x) if x.radius is None else _range(x, context)
    v, d = in_steps(x, scale, FLOAT)
    return [codes(v, d, zero, UINT8, context), scale, zero]


def _literal_range(x: Ball) -> tuple[Ball, Ball]:
    """Scale and zero point of what is exactly known, in float32, step by step as the standard writes them.

    The scale may be off by its roundings: engines multiply by 1/255. A range from -a to a has its zero point on a tie,
    so to allow both would leave no code certain.
    """
    low, high = np.float32(x.midpoint.min(initial=0.0)), np.float32(x.midpoint.max(initial=0.0))
    scale = (high - low) / np.float32(255) or np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    width = (float(high) - float(low)) or 255.0
    return _scale(width, 0.0, x.dtype), exactly(np.asarray(zero, np.uint8))


def _range(x: Ball, context: Context) -> tuple[Ball, Ball]:
    """Scale and zero point of what is known to a radius."""
    low = between(min(x.low.min(initial=0.0), 0.0), min(x.high.min(initial=0.0), 0.0), x.dtype)
    high = between(max(x.low.max(initial=0.0), 0.0), max(x.high.max(initial=0.0), 0.0), x.dtype)
    scale = _scale(high.numbers - low.numbers, high.error + low.error, x.dtype)
    if not scale.low > 0:
        raise Undecided("whether there is a range to quantize depends on rounding")
    v, d = in_steps(Ball(-low.numbers, low.radius, x.dtype), scale, FLOAT)
    return scale, codes(v, d, constant(0, UINT8), UINT8, context)


def _scale(width: Any, error: Any, dtype: np.dtype) -> Ball:
    """That of a range so wide, known to `error`."""
    return rounded(np.asarray(width / 255), error / 255, dtype, roundings=RANGE_ROUNDINGS)


@rule("ConvInteger")
def conv_integer(x: Ball, w: Ball, x_zero: Maybe = None, w_zero: Maybe = None, *, node: Node) -> Ball:
    """Conv of codes less their zero points in int32"""
    return convolution(node, centred(x, x_zero), centred(w, w_zero, channels(w.midpoint.ndim)), None).ball(INT32)


@rule("MatMulInteger")
def matmul_integer(a: Ball, b: Ball, a_zero: Maybe = None, b_zero: Maybe = None) -> Ball:
    """Y = (A - a_zero_point) (B - b_zero_point) in int32"""
    return matrix_product(centred(a, a_zero, rows), centred(b, b_zero, columns)).ball(INT32)


def matrix_product(a: Ball, b: Ball) -> Sum:
    """NumPy's matmul of centred codes."""
    return products(np.matmul, a, b, a.shape[-1])


def accumulated(total: Sum) -> Sum:
    """The sum of products of codes and a bias as 32 bits hold it: anything where they do not."""
    over = np.abs(total.midpoint) + total.radius >= 2.0**31
    return dataclasses.replace(total, radius=np.where(over, np.inf, total.radius)) if over.any() else total


def requantized(total: Sum, factor: Array, zero: Ball, dtype: np.dtype, context: Context) -> Ball:
    """The codes of total * factor, factor a product and quotient of scales."""
    total = accumulated(total)
    v, r = total.midpoint * factor, total.radius * np.abs(factor)
    return codes(
        v, np.asarray(r + REQUANTIZED_ROUNDINGS * format_of(FLOAT).unit * (np.abs(v) + r)), zero, dtype, context
    )


def scales(*given: Ball) -> list[Array]:
    """Scales in float64. Raises Undecided where one depends on rounding."""
    return [value(scale).astype(np.float64) for scale in given]


@rule("QLinearMatMul")
def qlinear_matmul(*operands: Ball, context: Context) -> Ball:
    """Y = codes of the product of two tensors of codes, each with its scale and zero point"""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    s_a, s_b, s_y = scales(rows(a_scale), columns(b_scale), y_scale)
    total = matrix_product(centred(a, a_zero, rows), centred(b, b_zero, columns))
    return requantized(total, s_a * s_b / s_y, y_zero, y_zero.dtype, context)


@rule("QLinearConv")
def qlinear_conv(*operands: Any, node: Node, context: Context) -> Ball:
    """Y = codes of the convolution of codes, each tensor with its scale and zero point; B int32 in units of x and w"""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = [*operands, None][:9]
    rank = w.midpoint.ndim
    total = convolution(node, centred(x, x_zero), centred(w, w_zero, channels(rank)), bias)
    s_x, s_w, s_y = scales(x_scale, channels(rank - 1)(w_scale), y_scale)
    return requantized(total, s_x * s_w / s_y, y_zero, y_zero.dtype, context)
