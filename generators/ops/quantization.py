"""Quantization, and products of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import constant, data, fixed, whole
from driftnet.generators.building.values import FLOAT, FLOAT8, INT8, INT32, RANGES, STORAGE, UINT8, Fill, Shape
from driftnet.generators.ops.convolution import Window, convolved, window
from driftnet.generators.ops.elementwise import tame
from driftnet.generators.ops.linear import matmul_shape
from driftnet.generators.ops.registry import operator

SCALES = (0.0625, 1.0, 0.5, 0.03125, 0.0078125, 0.1)
"""Dyadic but for the last, so that dequantized numbers stay exact."""


CODES = Fill("range", low=0, high=15)


def _parameters(b: Builder, x: Value, dtype: int, real: int) -> tuple[Value, Value | None, dict[str, int | None]]:
    """Scale, zero point and axis: one number a tensor or, from opset 13, one a channel, or from 21 one a block."""
    scale = b.choose("scale", SCALES)
    granularity = b.choose("per_channel", (False, False, True, "blocked"))
    axis = b.choose("axis", (1, 0, -1))
    zero_point = b.choose("zero_point", (None, 0, 3, 100))
    split = granularity and b.opset >= 13 and -x.rank <= axis < x.rank and x.fixed(axis)
    channels = x.shape[axis] if split else 1
    shape: Shape = (channels,) if split else ()
    attributes: dict[str, int | None] = {"axis": b.unless(axis, 1) if split else None}
    if split and granularity == "blocked" and b.opset >= 21 and x.static and x.rank > 1:
        k = axis % x.rank
        shape = (*x.shape[:k], -(-channels // 2), *x.shape[k + 1 :])
        attributes["block_size"] = 2
    numbers = [scale, 2 * scale, scale / 2]
    zero = min(zero_point or 0, int(RANGES[dtype][1])) if dtype in RANGES and dtype != INT32 else 0
    scale_value = constant(b, "scale_source", np.resize(np.array(numbers, STORAGE[real]), shape))
    source = b.choose("zero_source", ("initializer", "constant"))
    if zero_point is None and dtype == UINT8:  # left out, it is an uint8 zero
        return scale_value, None, attributes
    return scale_value, constant(b, "zero_made", np.full(shape, zero, STORAGE[dtype]), (source,)), attributes


def _codes(b: Builder, op_type: str, parameter: str) -> tuple[int, ...]:
    return tuple(sorted(b.types(op_type, parameter, inner=True), key=lambda dtype: (dtype != UINT8, dtype != INT8)))


def _moderate(v: Value) -> bool:
    return v.low > -(2.0**16) and v.high < 2.0**16


@operator("QuantizeLinear", weight=1.5)
def quantize_linear(b: Builder) -> None:
    """y = saturate(round(x / scale) + zero_point), halves to even"""
    reals = [dtype for dtype in b.types("QuantizeLinear", "T1") if dtype not in RANGES]
    x = data(b, dtypes=reals, ranks=(4, 3, 2, 1, 5))
    codes = _codes(b, "QuantizeLinear", "T2" if b.opset < 23 else "T3")
    dtype = b.choose("dtype", (UINT8, INT8, UINT8, None))
    dtype = codes[b.choose("other", range(256)) % len(codes)] if dtype is None else dtype
    scale, zero, attributes = _parameters(b, x, dtype, x.dtype)
    if b.opset >= 19 and dtype in FLOAT8:
        attributes["saturate"] = b.unless(1, 1)
    if b.opset >= 21:
        attributes["output_dtype"] = b.unless(dtype, dtype)
    bounds = RANGES.get(dtype, (-240.0, 240.0))
    b.emit("QuantizeLinear", (x, scale, zero), x.shapes, attributes, dtype=dtype, bounds=bounds)


@operator("DequantizeLinear", weight=1.5)
def dequantize_linear(b: Builder) -> None:
    """y = (x - zero_point) scale"""
    codes = _codes(b, "DequantizeLinear", "T" if b.opset < 19 else "T1")
    x = data(b, dtypes=codes, ranks=(4, 3, 2, 1, 5), fits=_moderate, fill=Fill("range", low=0, high=127))
    reals = b.types("DequantizeLinear", "T2") if b.opset >= 19 else (FLOAT,)
    real = reals[b.choose("real", (0, 0, 0, 1)) % len(reals)]
    scale, zero, attributes = _parameters(b, x, x.dtype, real)
    if b.opset >= 23 and real == FLOAT:  # onnxruntime computes float16 as float and then contradicts the attribute
        attributes["output_dtype"] = b.unless(real, real)
    top = 2.0 * max(-x.low, x.high, 256.0)
    b.emit("DequantizeLinear", (x, scale, zero), x.shapes, attributes, dtype=real, bounds=(-top, top))


@operator("DynamicQuantizeLinear", weight=0.5)
def dynamic_quantize_linear(b: Builder) -> None:
    """Codes, scale and zero point for the range of x, zero included"""
    x = data(b, fits=tame(1e12))
    outputs = [(UINT8, x.shapes), (FLOAT, ((),) * len(x.shapes)), (UINT8, ((),) * len(x.shapes))]
    b.emit_all("DynamicQuantizeLinear", (x,), outputs, bounds=(0.0, 1e12))


def _zero(b: Builder, name: str, dtype: int, *, absent: bool = True) -> Value | None:
    zero = b.choose(name, (None, 0, 3, 7) if absent else (0, 0, 3, 7))
    return None if zero is None else fixed(b, "initializer", np.array(zero, STORAGE[dtype]))


def _scale(b: Builder, name: str) -> Value:
    return fixed(b, "initializer", np.array(b.choose(name, SCALES), np.float32))


@operator("MatMulInteger", weight=0.5)
def matmul_integer(b: Builder) -> None:
    """Y = (A - a_zero_point) (B - b_zero_point) in int32"""
    a = data(b, "a", dtypes=_codes(b, "MatMulInteger", "T1"), ranks=(2, 3), fixed=(-1,), fill=CODES)
    dtype = b.choose("dtype", b.types("MatMulInteger", "T2"))
    w = whole(b, "w", ((a.shape[-1], b.choose("n", (1, 2, 3, 4))),) * len(a.shapes), 0, 15, dtype=dtype)
    inputs = (a, w, _zero(b, "a_zero_point", a.dtype), _zero(b, "b_zero_point", dtype))
    shapes = each(matmul_shape, a, w)
    b.emit("MatMulInteger", inputs, shapes, dtype=INT32, bounds=(-(2.0**24), 2.0**24))


@operator("ConvInteger", weight=0.4)
def conv_integer(b: Builder) -> None:
    """Conv of codes less their zero points in int32"""
    slide, group, outputs = _window(b, _codes(b, "ConvInteger", "T1"))
    x = slide.x
    dtype = b.choose("dtype", b.types("ConvInteger", "T2"))
    w = whole(b, "w", ((outputs, x.shape[1] // group, *slide.kernel),) * len(x.shapes), 0, 15, dtype=dtype)
    shapes, attributes = convolved(b, slide, group, outputs)
    inputs = (x, w, _zero(b, "x_zero_point", x.dtype), _zero(b, "w_zero_point", dtype))
    b.emit("ConvInteger", inputs, shapes, attributes, dtype=INT32, bounds=(-(2.0**24), 2.0**24))


def _window(b: Builder, dtypes: Sequence[int]) -> tuple[Window, int, int]:
    """A window over codes, how many groups of channels there are, and how many channels come out."""
    groups = b.choose("group", (1, 2, 0, 1))
    slide = window(b, dtypes, (4, 3), fixed=(1,), multiple=max(groups, 1), most=256.0, fill=CODES)
    group = groups or slide.x.shape[1]
    return slide, group, group * b.choose("outputs", (1, 2, 3))


@operator("QLinearMatMul", weight=0.6)
def qlinear_matmul(b: Builder) -> None:
    """Y = codes of the product of two tensors of codes, each with its scale and zero point"""
    a = data(b, "a", dtypes=(UINT8, INT8), ranks=(2, 3), fixed=(-1,), fill=CODES)
    w = whole(b, "w", ((a.shape[-1], b.choose("n", (1, 2, 3, 4))),) * len(a.shapes), 0, 15, dtype=a.dtype)
    inputs = [v for name, x in (("a", a), ("b", w), ("y", None)) for v in _triple(b, name, x, a.dtype)]
    b.emit("QLinearMatMul", inputs, each(matmul_shape, a, w), bounds=RANGES[a.dtype])


@operator("QLinearConv", weight=0.8)
def qlinear_conv(b: Builder) -> None:
    """Y = codes of the convolution of codes, each tensor with its scale and zero point; B int32 in units of x and w"""
    slide, group, outputs = _window(b, (UINT8, INT8))
    x, signed = slide.x, b.choose("signed", (False, True))
    dtype = INT8 if signed or x.dtype == INT8 else UINT8
    w = whole(b, "w", ((outputs, x.shape[1] // group, *slide.kernel),) * len(x.shapes), 0, 15, dtype=dtype)
    bias = whole(b, "b", ((outputs,),) * len(x.shapes), -64, 64, dtype=INT32) if b.flag("bias") else None
    shapes, attributes = convolved(b, slide, group, outputs)
    inputs = [v for name, t in (("x", x), ("w", w), ("y", None)) for v in _triple(b, name, t, x.dtype)]
    b.emit("QLinearConv", (*inputs, bias), shapes, attributes, bounds=RANGES[x.dtype])


def _triple(b: Builder, name: str, x: Value | None, dtype: int) -> list[Value | None]:
    """A tensor (the result has none yet), its scale and its zero point."""
    parameters = [_scale(b, f"{name}_scale"), _zero(b, f"{name}_zero_point", x.dtype if x else dtype, absent=False)]
    return parameters if x is None else [x, *parameters]
