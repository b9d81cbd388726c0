"""Element-wise arithmetic, with NumPy's broadcasting where there are several operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, find, made, scalar
from driftnet.generators.building.values import DOUBLE, ELEMENTS, FLOAT, FLOAT16, INT64, RANGES, Fill, Shape, limit
from driftnet.generators.ops.registry import operator

Ends = Callable[[float, float, float, float], tuple[float, float]]

UNIT = 1.001
"""What a result that is 1 at most may be rounded up to: onnxruntime's Tanh was seen to give 1.0000001, of which an arc
cosine is NaN."""


@operator("Identity", weight=0.7)
def identity(b: Builder) -> None:
    """y = x"""
    x = data(b, dtypes=b.types("Identity", "V" if b.opset >= 14 else "T", inner=True), empty=True)
    b.emit("Identity", (x,), x.shapes)


LARGEST = 1e15
"""Products stop here: a chain of them would overflow float32 to infinity, and infinity less itself is NaN."""


def broadcast(*shapes: Shape) -> Shape:
    """The common shape under multidirectional broadcasting. Raises ValueError where there is none."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded):
        size = next((n for n in sizes if n != 1), 1)
        if any(n not in (1, size) for n in sizes):
            raise ValueError(f"{shapes} do not broadcast")
        result.append(size)
    return tuple(result)


def broadcasts(*operands: Value) -> bool:
    """Whether the operands have a common shape of a legal size in every feed."""
    try:
        return all(prod(shape) <= ELEMENTS for shape in each(broadcast, *operands))
    except ValueError:
        return False


def second(b: Builder, name: str, x: Value, *, dtype: int | None = None, fill: str = "weight") -> Value:
    """An operand that broadcasts with x: another value, or a constant or input of a shape made from x's.

    A value of x's rank comes before others: that is what a residual or a gate is. The shapes: x's, a scalar, one axis
    of x alone, some of its axes, and x with an axis more.
    """
    dtype = x.dtype if dtype is None else dtype
    reference = b.choose(name, ("made", "made", "value", "made", "value", "made"))
    form = b.choose(
        f"{name}_form", ("scalar", "same", "channel", "last", "trailing", "one", "column", "higher", "mask")
    )
    keep = b.choose(f"{name}_mask", range(64))
    source = b.choose(f"{name}_source", ("initializer", "initializer", "constant", "input", "shared"))
    if reference == "value":

        def fits(v: Value) -> bool:
            return v.dtype == dtype and v.index != x.index and broadcasts(x, v)

        found = find(b, lambda v: v.rank == x.rank and fits(v)) or find(b, fits)
        if found is not None:
            return found
    return made(b, source, each(lambda s: _second_shape(form, keep, s), x), dtype, fill)


def _second_shape(form: str, keep: int, shape: Shape) -> Shape:
    rank = len(shape)
    if form == "scalar" or rank == 0:
        return ()
    if form == "one":
        return (1,) * rank
    if form == "same":
        return shape
    if form == "higher":
        return (1, *shape)
    if form == "trailing":
        return shape[keep % rank :]
    if form == "mask":
        return tuple([n if keep >> axis & 1 else 1 for axis, n in enumerate(shape)])
    axis = {"channel": min(1, rank - 1), "last": rank - 1, "column": max(rank - 2, 0)}[form]
    return (shape[axis],) + (1,) * (rank - 1 - axis)


LITERALS = (*[None] * 24, 1.0, 0.0, 0.5, 2.0, 2**0.5, 1e-5, 0.044715, (2 / math.pi) ** 0.5, -1.0, 3.0, 6.0, 1 / 6)
"""Numbers that hand-written layers hold and optimizers look for."""


def literal(b: Builder, x: Value) -> Value | None:
    """One of `LITERALS`, now and then."""
    number = b.choose("literal", LITERALS)
    wanted = number is not None and x.dtype not in RANGES
    return scalar(b, "literal_source", number if wanted else None, dtype=x.dtype)


def ordered(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """The two operands, as often as not in the other order."""
    return (y, x) if b.flag("swapped") else (x, y)


def _sum(a: float, b: float, c: float, d: float) -> tuple[float, float]:
    return a + c, b + d


def _difference(a: float, b: float, c: float, d: float) -> tuple[float, float]:
    return a - d, b - c


def _product(a: float, b: float, c: float, d: float) -> tuple[float, float]:
    ends = (a * c, a * d, b * c, b * d)
    return min(ends), max(ends)


def magnitude(x: Value) -> float:
    """The largest absolute value that x may hold."""
    return max(-x.low, x.high)


def tame(most: float) -> Callable[[Value], bool]:
    """Whether a value stays below `most` (for float32; less in a narrower dtype): sums and products do not overflow."""
    return lambda v: magnitude(v) < limit(v.dtype, most)


def _binary(name: str, rule: str, bounds: Ends, weight: float) -> None:
    @operator(name, weight=weight, rule=rule + ", broadcast")
    def binary(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), fits=tame(LARGEST), empty=True)
        p, q = ordered(b, x, literal(b, x) or second(b, "y", x))
        b.emit(name, (p, q), each(broadcast, p, q), bounds=bounds(p.low, p.high, q.low, q.high))


_binary("Add", "z = x + y", _sum, 3)
_binary("Mul", "z = x y", _product, 3)
_binary("Sub", "z = x - y", _difference, 1.5)


@operator("Div", weight=1.5)
def div(b: Builder) -> None:
    """z = x / y, broadcast; y is kept away from zero"""
    x = data(b, dtypes=b.types("Div"), fits=tame(LARGEST))
    y = literal(b, x) or second(b, "y", x, fill="positive")
    if y.low < (1e-3 if x.dtype == FLOAT16 else 1e-12):
        y = made(b, "initializer", y.shapes, x.dtype, "positive")
    bounds = _product(x.low, x.high, 1 / y.high, 1 / y.low)
    b.emit("Div", (x, y), each(broadcast, x, y), bounds=bounds)


@operator("Pow")
def power(b: Builder) -> None:
    """z = x ** y, broadcast; a small integer exponent, or any where x > 0"""
    x = data(
        b,
        dtypes=b.types("Pow"),
        fits=lambda v: magnitude(v) < (1e4 if v.dtype in (FLOAT, DOUBLE) else 30),
        fill=Fill("weight"),
    )
    fractions = x.low > 0 and x.dtype not in RANGES
    exponent = b.choose("exponent", (2.0, 3.0, 1.0, 0.0, 0.5 if fractions else 2.0, -1.0 if fractions else 3.0))
    dtype = b.choose("y_dtype", (x.dtype, x.dtype, FLOAT, INT64 if exponent in (2.0, 3.0) else x.dtype))
    dtype = dtype if b.opset >= 12 and FLOAT16 not in (x.dtype, dtype) else x.dtype
    y = scalar(b, "y", exponent, ("initializer", "constant", "input"), dtype=dtype)
    if exponent < 0:
        bounds = (1 / x.high, 1 / x.low)
    else:
        top = max(magnitude(x), 1.0) ** exponent
        bounds = (0.0 if exponent in (0.0, 0.5, 2.0) else -top, top)
    b.emit("Pow", (x, y), x.shapes, bounds=bounds)


def _variadic(name: str, rule: str) -> None:
    @operator(name, rule=rule + " of one or more tensors, broadcast")
    def variadic(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), fits=tame(LARGEST))
        count = b.choose("count", (2, 1, 3, 2, 4))
        operands = [x]
        for k in range(3):
            y = second(b, f"y{k}", operands[0])
            if k < count - 1 and broadcasts(*operands, y):
                operands.append(y)
        low, high = min(v.low for v in operands), max(v.high for v in operands)
        n = len(operands)
        b.emit(name, operands, each(broadcast, *operands), bounds=(n * min(low, 0.0), n * max(high, 0.0)))


_variadic("Max", "the largest element")
_variadic("Min", "the smallest element")
_variadic("Sum", "the sum")
_variadic("Mean", "the arithmetic mean")


def _unary(name: str, rule: str, bounds: Callable[[float, float], tuple[float, float]], weight: float = 1.0) -> None:
    @operator(name, rule=rule, weight=weight)
    def unary(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), empty=True)
        b.emit(name, (x,), x.shapes, bounds=bounds(x.low, x.high))


def _rounded(low: float, high: float) -> tuple[float, float]:
    return low - 1.0, high + 1.0


_unary("Neg", "y = -x", lambda low, high: (-high, -low))
_unary("Abs", "y = |x|", lambda low, high: (max(low, -high, 0.0), max(-low, high)))
_unary("Floor", "y = the largest integer <= x", _rounded, 0.7)
_unary("Ceil", "y = the smallest integer >= x", _rounded, 0.7)
_unary("Round", "y = the nearest integer, halves to even", _rounded, 0.7)
_unary("Sign", "y = -1, 0 or 1", lambda low, high: (-1.0, 1.0), 0.7)
_unary("Sin", "y = sin x", lambda low, high: (-UNIT, UNIT), 0.7)
_unary("Cos", "y = cos x", lambda low, high: (-UNIT, UNIT), 0.7)


def _bounded(name: str, rule: str, least: float, most: float, fill: Fill, bounds: tuple[float, float]) -> None:
    @operator(name, rule=f"{rule}, {least:g} <= x <= {most:g}", weight=0.3)
    def bounded(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), fits=lambda v: least <= v.low and v.high <= most, fill=fill)
        b.emit(name, (x,), x.shapes, bounds=bounds)


_UNIT = Fill("unit")
_bounded("Asin", "y = arc sine of x", -1.0, 1.0, _UNIT, (-1.6, 1.6))
_bounded("Acos", "y = arc cosine of x", -1.0, 1.0, _UNIT, (0.0, 3.2))
_bounded("Atanh", "y = inverse hyperbolic tangent of x", -0.9, 0.9, _UNIT, (-1.5, 1.5))
_bounded("Acosh", "y = inverse hyperbolic cosine of x", 1.0, 1e4, Fill("range", low=1, high=8), (0.0, 10.0))
_bounded("Sinh", "y = hyperbolic sine of x", -9.0, 9.0, _UNIT, (-4052.0, 4052.0))
_bounded("Cosh", "y = hyperbolic cosine of x", -9.0, 9.0, _UNIT, (1.0, 4052.0))
_bounded("Tan", "y = tangent of x", -1.5, 1.5, _UNIT, (-15.0, 15.0))
_unary("Atan", "y = arc tangent of x", lambda low, high: (-1.6, 1.6), 0.3)
_unary("Asinh", "y = inverse hyperbolic sine of x", lambda low, high: (min(low, 0.0), max(high, 0.0)), 0.3)


def _on_positive(name: str, rule: str, function: Callable[[float], float], weight: float = 1.0) -> None:
    @operator(name, rule=rule + ", x > 0", weight=weight)
    def on_positive(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), fits=lambda v: v.low > 0, fill=Fill("positive"))
        ends = function(x.low), function(x.high)
        b.emit(name, (x,), x.shapes, bounds=(min(ends), max(ends)))


_on_positive("Sqrt", "y = square root of x", math.sqrt)
_on_positive("Log", "y = ln x", math.log)
_on_positive("Reciprocal", "y = 1 / x", lambda x: 1 / x)


@operator("Exp")
def exp(b: Builder) -> None:
    """y = e ** x, x <= 20 so that chains stay finite"""
    x = data(
        b,
        dtypes=b.types("Exp"),
        fits=lambda v: v.low > -50 and v.high <= (10 if v.dtype == FLOAT16 else 20),
        fill=Fill("positive"),
    )
    b.emit("Exp", (x,), x.shapes, bounds=(math.exp(x.low), math.exp(x.high)))


@operator("Mod", weight=0.3)
def mod(b: Builder) -> None:
    """z = x - y floor(x / y), or the remainder of the truncated quotient (fmod: always for floats); y > 0"""
    x = data(b, dtypes=b.types("Mod"), fits=tame(1e4))
    y = second(b, "y", x, fill="positive")
    if y.low <= 0:
        y = made(b, "initializer", y.shapes, x.dtype, "positive")
    truncated = b.choose("fmod", (0, 1)) if x.dtype in RANGES else 1
    b.emit("Mod", (x, y), each(broadcast, x, y), {"fmod": b.unless(truncated, 0)}, bounds=(-y.high, y.high))
