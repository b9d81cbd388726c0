"""Element-wise arithmetic, with NumPy's broadcasting where there are several operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod

from generators.builder import Builder, each
from generators.graph import Value
from generators.ops.registry import operator
from generators.values import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    ELEMENTS,
    FLOAT,
    FLOAT8,
    FLOAT16,
    INT4,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMPY,
    RANGES,
    UINT4,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Fill,
    Shape,
    limit,
)

Ends = Callable[[float, float, float, float], tuple[float, float]]

UNIT = 1.001
"""What a result that is 1 at most may be rounded up to: onnxruntime's Tanh was seen to give 1.0000001, of which an arc
cosine is NaN."""


@operator("Identity", weight=0.7)
def identity(b: Builder) -> None:
    """y = x"""
    x = b.data(dtypes=b.types("Identity", "V" if b.opset >= 14 else "T", inner=True), empty=True)
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

        found = b.find(lambda v: v.rank == x.rank and fits(v)) or b.find(fits)
        if found is not None:
            return found
    return b.made(source, each(lambda s: _second_shape(form, keep, s), x), dtype, fill)


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
"""Numbers that hand-written layers hold and optimisers look for."""


def literal(b: Builder, x: Value) -> Value | None:
    """One of `LITERALS`, now and then."""
    number = b.choose("literal", LITERALS)
    wanted = number is not None and x.dtype not in RANGES
    return b.scalar("literal_source", number if wanted else None, dtype=x.dtype)


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
        x = b.data(dtypes=b.types(name), fits=tame(LARGEST), empty=True)
        p, q = ordered(b, x, literal(b, x) or second(b, "y", x))
        b.emit(name, (p, q), each(broadcast, p, q), bounds=bounds(p.low, p.high, q.low, q.high))


_binary("Add", "z = x + y", _sum, 3)
_binary("Mul", "z = x y", _product, 3)
_binary("Sub", "z = x - y", _difference, 1.5)


@operator("Div", weight=1.5)
def div(b: Builder) -> None:
    """z = x / y, broadcast; y is kept away from zero"""
    x = b.data(dtypes=b.types("Div"), fits=tame(LARGEST))
    y = literal(b, x) or second(b, "y", x, fill="positive")
    if y.low < (1e-3 if x.dtype == FLOAT16 else 1e-12):
        y = b.made("initializer", y.shapes, x.dtype, "positive")
    bounds = _product(x.low, x.high, 1 / y.high, 1 / y.low)
    b.emit("Div", (x, y), each(broadcast, x, y), bounds=bounds)


@operator("Pow")
def power(b: Builder) -> None:
    """z = x ** y, broadcast; a small integer exponent, or any where x > 0"""
    x = b.data(
        dtypes=b.types("Pow"),
        fits=lambda v: magnitude(v) < (1e4 if v.dtype in (FLOAT, DOUBLE) else 30),
        fill=Fill("weight"),
    )
    fractions = x.low > 0 and x.dtype not in RANGES
    exponent = b.choose("exponent", (2.0, 3.0, 1.0, 0.0, 0.5 if fractions else 2.0, -1.0 if fractions else 3.0))
    dtype = b.choose("y_dtype", (x.dtype, x.dtype, FLOAT, INT64 if exponent in (2.0, 3.0) else x.dtype))
    dtype = dtype if b.opset >= 12 and FLOAT16 not in (x.dtype, dtype) else x.dtype
    y = b.scalar("y", exponent, ("initializer", "constant", "input"), dtype=dtype)
    if exponent < 0:
        bounds = (1 / x.high, 1 / x.low)
    else:
        top = max(magnitude(x), 1.0) ** exponent
        bounds = (0.0 if exponent in (0.0, 0.5, 2.0) else -top, top)
    b.emit("Pow", (x, y), x.shapes, bounds=bounds)


def _variadic(name: str, rule: str) -> None:
    @operator(name, rule=rule + " of one or more tensors, broadcast")
    def variadic(b: Builder) -> None:
        x = b.data(dtypes=b.types(name), fits=tame(LARGEST))
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
        x = b.data(dtypes=b.types(name), empty=True)
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
        x = b.data(dtypes=b.types(name), fits=lambda v: least <= v.low and v.high <= most, fill=fill)
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


NONFINITE = Fill("nonfinite")


def _classified(name: str, rule: str) -> None:
    @operator(name, rule=rule, weight=0.3)
    def classified(b: Builder) -> None:
        floats = [dtype for dtype in b.types(name, "T1") if dtype not in RANGES]
        x = b.data(dtypes=floats, fits=lambda v: math.isinf(v.high), fill=NONFINITE)
        signs = b.choose("signs", (None, (1, 0), (0, 1)))
        through = b.choose("through", (None, None, None, "Transpose", "Neg", "Identity", "Abs", "Where"))
        attributes = (
            {} if signs is None or name == "IsNaN" else dict(zip(("detect_positive", "detect_negative"), signs))
        )
        x = _moved(b, through, x)
        b.emit(name, (x,), x.shapes, attributes, dtype=BOOL, bounds=(0.0, 1.0))


def _moved(b: Builder, through: str | None, x: Value) -> Value:
    """x through an operator for which every infinity and every NaN has one right result."""
    if through is None or x.dtype not in b.types(through, "V" if through == "Identity" and b.opset >= 14 else "T"):
        return x
    if through == "Where":
        condition = b.made("initializer", x.shapes, BOOL, "data")
        return b.emit("Where", (condition, x, b.scalar("zero", 0.0, dtype=x.dtype)), x.shapes, dtype=x.dtype)
    return b.emit(through, (x,), each(lambda s: s[::-1], x) if through == "Transpose" else x.shapes)


_classified("IsNaN", "y = whether x is NaN")
_classified("IsInf", "y = whether x is an infinity, of the wanted signs")


def _on_positive(name: str, rule: str, function: Callable[[float], float], weight: float = 1.0) -> None:
    @operator(name, rule=rule + ", x > 0", weight=weight)
    def on_positive(b: Builder) -> None:
        x = b.data(dtypes=b.types(name), fits=lambda v: v.low > 0, fill=Fill("positive"))
        ends = function(x.low), function(x.high)
        b.emit(name, (x,), x.shapes, bounds=(min(ends), max(ends)))


_on_positive("Sqrt", "y = square root of x", math.sqrt)
_on_positive("Log", "y = ln x", math.log)
_on_positive("Reciprocal", "y = 1 / x", lambda x: 1 / x)


@operator("Exp")
def exp(b: Builder) -> None:
    """y = e ** x, x <= 20 so that chains stay finite"""
    x = b.data(
        dtypes=b.types("Exp"),
        fits=lambda v: v.low > -50 and v.high <= (10 if v.dtype == FLOAT16 else 20),
        fill=Fill("positive"),
    )
    b.emit("Exp", (x,), x.shapes, bounds=(math.exp(x.low), math.exp(x.high)))


def _comparison(name: str, rule: str, since: int = 11) -> None:
    @operator(name, since=since, rule=rule + ", broadcast", weight=0.5)
    def comparison(b: Builder) -> None:
        x = b.data(dtypes=b.types(name), empty=True)
        p, q = ordered(b, x, second(b, "y", x))
        if b.choose("nonfinite", (*[False] * 15, True)) and x.dtype not in RANGES:
            p = b.fresh(x.dtype, p.shapes, NONFINITE)
        b.emit(name, (p, q), each(broadcast, p, q), dtype=BOOL, bounds=(0.0, 1.0))


_comparison("Greater", "z = x > y")
_comparison("Less", "z = x < y")
_comparison("Equal", "z = x == y")
_comparison("GreaterOrEqual", "z = x >= y", 12)
_comparison("LessOrEqual", "z = x <= y", 12)


def _logical(name: str, rule: str) -> None:
    @operator(name, rule=rule + ", broadcast", weight=0.4)
    def logical(b: Builder) -> None:
        x = b.data(dtypes=(BOOL,), fill=Fill("range", high=1))
        y = b.find(lambda v: v.dtype == BOOL and broadcasts(x, v)) or x
        b.emit(name, (x, y), each(broadcast, x, y))


_logical("And", "z = x and y")
_logical("Or", "z = x or y")
_logical("Xor", "z = x differs from y")


@operator("Not", weight=0.5)
def logical_not(b: Builder) -> None:
    """y = not x"""
    x = b.data(dtypes=(BOOL,), fill=Fill("range", high=1))
    b.emit("Not", (x,), x.shapes)


@operator("Where")
def where(b: Builder) -> None:
    """z = x where the condition holds, else y; all three broadcast"""
    x = b.data(dtypes=b.types("Where"))
    y = second(b, "y", x)
    condition = b.find(lambda v: v.dtype == BOOL and broadcasts(x, y, v))
    if condition is None:
        condition = b.fresh(BOOL, x.shapes, Fill("range", high=1))
    bounds = (min(x.low, y.low), max(x.high, y.high))
    b.emit("Where", (condition, x, y), each(broadcast, condition, x, y), dtype=x.dtype, bounds=bounds)


def _bitwise(name: str, rule: str) -> None:
    @operator(name, since=18, rule=rule + " bit by bit, broadcast", weight=0.3)
    def bitwise(b: Builder) -> None:
        x = b.data(dtypes=_signed_first(b.types(name)))
        p, q = ordered(b, x, second(b, "y", x))
        b.emit(name, (p, q), each(broadcast, p, q), bounds=RANGES[x.dtype])


def _signed_first(dtypes: Sequence[int]) -> Sequence[int]:
    return sorted(dtypes, key=lambda dtype: dtype != INT32)


_bitwise("BitwiseAnd", "z = x and y")
_bitwise("BitwiseOr", "z = x or y")
_bitwise("BitwiseXor", "z = x xor y")


@operator("BitwiseNot", since=18, weight=0.3)
def bitwise_not(b: Builder) -> None:
    """y = not x, bit by bit"""
    x = b.data(dtypes=_signed_first(b.types("BitwiseNot")))
    b.emit("BitwiseNot", (x,), x.shapes, bounds=RANGES[x.dtype])


@operator("BitShift", weight=0.3)
def bit_shift(b: Builder) -> None:
    """z = x shifted by y bits to the left or to the right, unsigned"""
    x = b.data(dtypes=b.types("BitShift"), fits=tame(1e12))
    direction = b.choose("direction", ("LEFT", "RIGHT"))
    form = b.choose("form", ((), x.shape if x.static else (), (1,)))
    y = b.whole("y", (form,) * len(x.shapes), 0, 3, dtype=x.dtype)
    b.emit("BitShift", (x, y), each(broadcast, x, y), {"direction": direction}, bounds=(0.0, 8 * x.high))


@operator("Mod", weight=0.3)
def mod(b: Builder) -> None:
    """z = x - y floor(x / y), or the remainder of the truncated quotient (fmod: always for floats); y > 0"""
    x = b.data(dtypes=b.types("Mod"), fits=tame(1e4))
    y = second(b, "y", x, fill="positive")
    if y.low <= 0:
        y = b.made("initializer", y.shapes, x.dtype, "positive")
    truncated = b.choose("fmod", (0, 1)) if x.dtype in RANGES else 1
    b.emit("Mod", (x, y), each(broadcast, x, y), {"fmod": b.unless(truncated, 0)}, bounds=(-y.high, y.high))


SAME_WIDTH = {FLOAT: INT32, DOUBLE: INT64, FLOAT16: INT16, INT32: UINT32, INT64: UINT64, INT16: UINT16, INT8: UINT8}


@operator("BitCast", since=26, weight=2.0)
def bit_cast(b: Builder) -> None:
    """The bits of x read as an integer of the same width"""
    x = b.data(dtypes=[dtype for dtype in b.types("BitCast", "T1") if dtype in SAME_WIDTH])
    to = SAME_WIDTH[x.dtype]
    b.emit("BitCast", (x,), x.shapes, {"to": to}, dtype=to, bounds=RANGES[to])


@operator("CastLike", since=15, weight=0.4)
def cast_like(b: Builder) -> None:
    """x in the dtype of another tensor"""
    x = b.data(dtypes=b.types("Cast", "T1"))
    to = castable(x, b.choose("to", TARGETS), b.types("Cast", "T2"))
    shape = b.choose("shape", ((), (1,), (2, 1)))
    like = b.weight("like", shape, dtype=to, sources=("initializer", "input", "constant"))
    bounds = (0.0, 1.0) if to == BOOL else (x.low, x.high)
    b.emit("CastLike", (x, like), x.shapes, dtype=to, bounds=bounds)


TARGETS = (FLOAT, INT64, BOOL, FLOAT, INT32, FLOAT16, FLOAT, DOUBLE, UINT8, INT8, FLOAT, INT16, UINT16, UINT32, UINT64)
INNER_TARGETS = (BFLOAT16, *FLOAT8[:2], INT4, BFLOAT16, *FLOAT8[2:], UINT4)


@operator("Cast")
def cast(b: Builder) -> None:
    """y = x in another dtype; to an integer, only what lies inside its range"""
    x = b.data(dtypes=b.types("Cast", "T1", inner=True), empty=True)
    to = castable(x, b.choose("to", (*TARGETS, *INNER_TARGETS)), b.types("Cast", "T2", inner=True))
    b.emit("Cast", (x,), x.shapes, {"to": to}, dtype=to, bounds=(0.0, 1.0) if to == BOOL else (x.low, x.high))


def castable(x: Value, to: int, allowed: Sequence[int]) -> int:
    """`to` where x lies in its range, else the nearest dtype that is wide enough. No result is left to the engine."""
    if to == BOOL:
        return to
    if to in RANGES:
        least, most = RANGES[to]
        inside = least <= x.low and x.high <= min(most, 2.0**53) and to in allowed
        return to if inside else INT64 if magnitude(x) < 2.0**53 else x.dtype if x.dtype in NUMPY else FLOAT
    if to == DOUBLE:
        return to
    return to if to in allowed and magnitude(x) < limit_of_float(to) else FLOAT


def limit_of_float(dtype: int) -> float:
    """What a number must stay below to be finite in a dtype of floats."""
    return {FLOAT16: 6e4, FLOAT: 3e38, BFLOAT16: 3e38}.get(dtype, 240.0)
