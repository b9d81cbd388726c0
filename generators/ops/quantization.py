"""Quantization, and products of integers."""

from dataclasses import replace

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import Domain, constant, data, fixed, tame, whole
from driftnet.generators.building.values import FLOAT, FLOAT8, INT8, INT32, RANGES, STORAGE, UINT8, Fill, Shape
from driftnet.generators.ops.convolution import Window, convolved, window
from driftnet.generators.ops.linear import matmul_shape
from driftnet.generators.ops.registry import operator

SCALES = (0.0625, 1.0, 0.5, 0.03125, 0.0078125, 0.1)
"""Dyadic but for the last, so that dequantized numbers stay exact."""

_CODES = Fill("range", low=0, high=15)
_SUMS = 2.0**24


def _parameters(b: Builder, x: Value, dtype: int, real: int) -> tuple[Value, Value | None, dict[str, int | None]]:
    """Scale, zero point and axis: one number a tensor or, from opset 13, one a channel, or from 21 one a block."""
    scale = b.choose("scale", SCALES)
    granularity = b.choose("per_channel", (False, False, True, "blocked"))
    axis = b.choose("axis", (1, 0, -1))
    zero_point = b.choose("zero_point", (None, 0, 3, 100))
    split = granularity and b.has("axis") and -x.rank <= axis < x.rank and x.fixed(axis)
    shape: Shape = (x.shape[axis],) if split else ()
    attributes: dict[str, int | None] = {"axis": axis if split else None}
    if split and granularity == "blocked" and b.has("block_size") and x.static and x.rank > 1:
        (shape, *_) = x.resized(axis, -(-x.shape[axis] // 2))
        attributes["block_size"] = 2
    zero = min(zero_point or 0, int(RANGES[dtype][1])) if dtype in RANGES and dtype != INT32 else 0
    numbers = np.array([scale, 2 * scale, scale / 2], STORAGE[real])
    scale_value = constant(b, "scale_source", np.resize(numbers, shape))
    source = b.choose("zero_source", ("initializer", "constant"))
    if zero_point is None and dtype == UINT8:  # left out, it is an uint8 zero
        return scale_value, None, attributes
    return scale_value, constant(b, "zero_made", np.full(shape, zero, STORAGE[dtype]), (source,)), attributes


def _codes(b: Builder, parameter: str = "") -> tuple[int, ...]:
    return tuple(sorted(b.types(parameter, inner=True), key=lambda dtype: (dtype != UINT8, dtype != INT8)))


@operator("QuantizeLinear", weight=1.5)
def quantize_linear(b: Builder) -> None:
    """y = saturate(round(x / scale) + zero_point), halves to even"""
    x = data(b, dtypes=b.floats(), ranks=(4, 3, 2, 1, 5))
    codes = _codes(b, "T2" if b.opset < 23 else "T3")
    dtype = b.choose("dtype", (UINT8, INT8, UINT8, None))
    dtype = codes[b.choose("other", range(256)) % len(codes)] if dtype is None else dtype
    scale, zero, attributes = _parameters(b, x, dtype, x.dtype)
    attributes["saturate"] = 1 if dtype in FLOAT8 else None
    if b.has("output_dtype"):
        attributes["output_dtype"] = b.unless(dtype, dtype)
    b.emit((x, scale, zero), x, attributes, dtype=dtype, bounds=RANGES.get(dtype, (-240.0, 240.0)))


@operator("DequantizeLinear", weight=1.5)
def dequantize_linear(b: Builder) -> None:
    """y = (x - zero_point) scale"""
    moderate = Domain(lambda v: v.low > -(2.0**16) and v.high < 2.0**16, Fill("range", low=0, high=127))
    x = data(b, dtypes=_codes(b), ranks=(4, 3, 2, 1, 5), domain=moderate)
    reals = b.types("T2") if b.opset >= 19 else (FLOAT,)
    real = reals[b.choose("real", (0, 0, 0, 1)) % len(reals)]
    scale, zero, attributes = _parameters(b, x, x.dtype, real)
    if b.has("output_dtype") and real == FLOAT:  # onnxruntime computes float16 as float and contradicts the attribute
        attributes["output_dtype"] = b.unless(real, real)
    b.emit((x, scale, zero), x, attributes, dtype=real, bounds=2.0 * max(x.magnitude, 256.0))


@operator("DynamicQuantizeLinear", weight=0.5)
def dynamic_quantize_linear(b: Builder) -> None:
    """Codes, scale and zero point for the range of x, zero included"""
    x = data(b, dtypes=(FLOAT,), domain=tame(1e12))
    b.emit_all((x,), [(UINT8, x), (FLOAT, ()), (UINT8, ())], bounds=(0.0, 1e12))


def _zero(b: Builder, name: str, dtype: int, *, absent: bool = True) -> Value | None:
    zero = b.choose(name, (None, 0, 3, 7) if absent else (0, 0, 3, 7))
    return None if zero is None else fixed(b, "initializer", np.array(zero, STORAGE[dtype]))


def _matrices(b: Builder, dtypes: tuple[int, ...], of_weights: tuple[int, ...]) -> tuple[Value, Value]:
    """Codes to be multiplied; the second ones have the dtype of the first by default."""
    a = data(b, "a", dtypes=dtypes, ranks=(2, 3), fixed=(-1,), domain=Domain(lambda v: True, _CODES))
    dtype = b.choose("dtype", of_weights) if of_weights else a.dtype
    return a, whole(b, "w", (a.shape[-1], b.choose("n", (1, 2, 3, 4))), 0, 15, dtype=dtype)


def _window(b: Builder, dtypes: tuple[int, ...]) -> tuple[Window, int, int]:
    """A window over codes, how many groups of channels there are, and how many channels come out."""
    groups = b.choose("group", (1, 2, 0, 1))
    domain = replace(tame(256.0), fill=_CODES)
    slide = window(b, (4, 3), domain, dtypes=dtypes, fixed=(1,), multiple=max(groups, 1))
    group = groups or slide.x.shape[1]
    return slide, group, group * b.choose("outputs", (1, 2, 3))


@operator("MatMulInteger", weight=0.5)
def matmul_integer(b: Builder) -> None:
    """Y = (A - a_zero_point) (B - b_zero_point) in int32"""
    a, w = _matrices(b, _codes(b), b.types("T2"))
    inputs = (a, w, _zero(b, "a_zero_point", a.dtype), _zero(b, "b_zero_point", w.dtype))
    b.emit(inputs, each(matmul_shape, a, w), dtype=INT32, bounds=_SUMS)


@operator("ConvInteger", weight=0.4)
def conv_integer(b: Builder) -> None:
    """Conv of codes less their zero points in int32"""
    slide, group, outputs = _window(b, _codes(b))
    x = slide.x
    dtype = b.choose("dtype", b.types("T2"))
    w = whole(b, "w", (outputs, x.shape[1] // group, *slide.kernel), 0, 15, dtype=dtype)
    shapes, attributes = convolved(b, slide, group, outputs)
    inputs = (x, w, _zero(b, "x_zero_point", x.dtype), _zero(b, "w_zero_point", dtype))
    b.emit(inputs, shapes, attributes, dtype=INT32, bounds=_SUMS)


def _with_parameters(b: Builder, operands: dict[str, Value], dtype: int) -> list[Value | None]:
    """Each operand, its scale and its zero point; then those of the result, which has this dtype."""
    found: list[Value | None] = []
    for name in (*operands, "y"):
        x = operands.get(name)
        scale = fixed(b, "initializer", np.array(b.choose(f"{name}_scale", SCALES), np.float32))
        zero = _zero(b, f"{name}_zero_point", x.dtype if x else dtype, absent=False)
        found += [scale, zero] if x is None else [x, scale, zero]
    return found


@operator("QLinearMatMul", weight=0.6)
def qlinear_matmul(b: Builder) -> None:
    """Y = codes of the product of two tensors of codes, each with its scale and zero point"""
    a, w = _matrices(b, (UINT8, INT8), ())
    b.emit(_with_parameters(b, {"a": a, "b": w}, a.dtype), each(matmul_shape, a, w), bounds=RANGES[a.dtype])


@operator("QLinearConv", weight=0.8)
def qlinear_conv(b: Builder) -> None:
    """Y = codes of the convolution of codes, each tensor with its scale and zero point; B int32 in units of x and w"""
    slide, group, outputs = _window(b, (UINT8, INT8))
    x, signed = slide.x, b.choose("signed", (False, True))
    dtype = INT8 if signed or x.dtype == INT8 else UINT8
    w = whole(b, "w", (outputs, x.shape[1] // group, *slide.kernel), 0, 15, dtype=dtype)
    bias = whole(b, "b", (outputs,), -64, 64, dtype=INT32) if b.flag("bias") else None
    shapes, attributes = convolved(b, slide, group, outputs)
    b.emit((*_with_parameters(b, {"x": x, "w": w}, x.dtype), bias), shapes, attributes, bounds=RANGES[x.dtype])
