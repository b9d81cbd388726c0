"""Element-wise arithmetic, with NumPy's broadcasting where there are several operands."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from driftnet.generators.building.broadcasting import broadcast, broadcasts, ordered, second
from driftnet.generators.building.builder import Builder, each, hull
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import ANYTHING, POSITIVE, UNIT, Domain, data, made, scalar, tame, within
from driftnet.generators.building.values import DOUBLE, FLOAT, FLOAT16, INT64, RANGES, Fill
from driftnet.generators.ops.registry import Function, operator, operators

Ends = tuple[float, float]

ONE = 1.001
"""What a result that is 1 at most may be rounded up to: onnxruntime's Tanh was seen to give 1.0000001, of which an arc
cosine is NaN."""


def unary(
    bounds: Ends | Callable[..., Ends],
    *,
    domain: Domain = ANYTHING,
    empty: bool = False,
    **attributes: Sequence[Any] | Callable[[Builder], Sequence[Any]],
) -> Function:
    """An operator that takes one tensor element by element.

    bounds      of the result, or their rule: (low, high of the operand, each attribute) -> (low, high)
    attributes  name -> what it is chosen from (None: left out)
    """

    def function(b: Builder) -> None:
        x = data(b, domain=domain, empty=empty)
        chosen = {name: b.choose(name, of(b) if callable(of) else of) for name, of in attributes.items()}
        b.emit((x,), x, chosen, bounds=bounds(x.low, x.high, *chosen.values()) if callable(bounds) else bounds)

    return function


@operator("Identity", weight=0.7)
def identity(b: Builder) -> None:
    """y = x"""
    x = data(b, dtypes=b.types(inner=True), empty=True)
    b.emit((x,), x)


LARGEST = 1e15
"""Products stop here: a chain of them would overflow float32 to infinity, and infinity less itself is NaN."""

LITERALS = (*[None] * 24, 1.0, 0.0, 0.5, 2.0, 2**0.5, 1e-5, 0.044715, (2 / math.pi) ** 0.5, -1.0, 3.0, 6.0, 1 / 6)
"""Numbers that hand-written layers hold and optimizers look for."""


def literal(b: Builder, x: Value) -> Value | None:
    """One of `LITERALS`, now and then."""
    number = b.choose("literal", LITERALS)
    return scalar(b, "literal_source", None if x.dtype in RANGES else number, dtype=x.dtype)


def _product(a: float, b: float, c: float, d: float) -> Ends:
    return hull(a * c, a * d, b * c, b * d)


def _binary(bounds: Callable[[float, float, float, float], Ends]) -> Function:
    def binary(b: Builder) -> None:
        x = data(b, domain=tame(LARGEST), empty=True)
        p, q = ordered(b, x, literal(b, x) or second(b, "y", x))
        b.emit((p, q), each(broadcast, p, q), bounds=bounds(p.low, p.high, q.low, q.high))

    return binary


operator("Add", "z = x + y, broadcast", weight=3)(_binary(lambda a, b, c, d: (a + c, b + d)))
operator("Mul", "z = x y, broadcast", weight=3)(_binary(_product))
operator("Sub", "z = x - y, broadcast", weight=1.5)(_binary(lambda a, b, c, d: (a - d, b - c)))


@operator("Div", weight=1.5)
def div(b: Builder) -> None:
    """z = x / y, broadcast; y is kept away from zero"""
    x = data(b, domain=tame(LARGEST))
    y = literal(b, x) or second(b, "y", x, fill="positive")
    if y.low < (1e-3 if x.dtype == FLOAT16 else 1e-12):
        y = made(b, "initializer", y.shapes, x.dtype, "positive")
    b.emit((x, y), each(broadcast, x, y), bounds=_product(x.low, x.high, 1 / y.high, 1 / y.low))


@operator("Pow")
def power(b: Builder) -> None:
    """z = x ** y, broadcast; a small integer exponent, or any where x > 0"""
    small = Domain(lambda v: v.magnitude < (1e4 if v.dtype in (FLOAT, DOUBLE) else 30), Fill("weight"))
    x = data(b, domain=small)
    fractions = x.low > 0 and x.dtype not in RANGES
    exponent = b.choose("exponent", (2.0, 3.0, 1.0, 0.0, 0.5 if fractions else 2.0, -1.0 if fractions else 3.0))
    dtype = b.choose("y_dtype", (x.dtype, x.dtype, FLOAT, INT64 if exponent in (2.0, 3.0) else x.dtype))
    dtype = dtype if b.opset >= 12 and FLOAT16 not in (x.dtype, dtype) else x.dtype
    y = scalar(b, "y", exponent, ("initializer", "constant", "input"), dtype=dtype)
    if exponent < 0:
        bounds = (1 / x.high, 1 / x.low)
    else:
        top = max(x.magnitude, 1.0) ** exponent
        bounds = (0.0 if exponent in (0.0, 0.5, 2.0) else -top, top)
    b.emit((x, y), x, bounds=bounds)


@operators(
    {
        "Max": "the largest element of one or more tensors, broadcast",
        "Min": "the smallest element of one or more tensors, broadcast",
        "Sum": "the sum of one or more tensors, broadcast",
        "Mean": "the arithmetic mean of one or more tensors, broadcast",
    }
)
def variadic(b: Builder) -> None:
    """One of the operators that take any number of tensors"""
    x = data(b, domain=tame(LARGEST))
    count = b.choose("count", (2, 1, 3, 2, 4))
    operands = [x]
    for k in range(3):
        y = second(b, f"y{k}", x)
        if k < count - 1 and broadcasts(*operands, y):
            operands.append(y)
    low, high = hull(*operands, 0.0)
    b.emit(operands, each(broadcast, *operands), bounds=(len(operands) * low, len(operands) * high))


def _rounded(low: float, high: float) -> Ends:
    return low - 1.0, high + 1.0


operator("Neg", "y = -x")(unary(lambda low, high: (-high, -low), empty=True))
operator("Abs", "y = |x|")(unary(lambda low, high: (max(low, -high, 0.0), max(-low, high)), empty=True))
operator("Floor", "y = the largest integer <= x", weight=0.7)(unary(_rounded, empty=True))
operator("Ceil", "y = the smallest integer >= x", weight=0.7)(unary(_rounded, empty=True))
operator("Round", "y = the nearest integer, halves to even", weight=0.7)(unary(_rounded, empty=True))
operator("Sign", "y = -1, 0 or 1", weight=0.7)(unary((-1.0, 1.0), empty=True))
operators({"Sin": "y = sin x", "Cos": "y = cos x"}, weight=0.7)(unary((-ONE, ONE), empty=True))


def _inside(name: str, rule: str, least: float, most: float, bounds: Ends, fill: Fill = UNIT) -> None:
    """An operator that has a result, or a result of a moderate size, between `least` and `most` alone."""
    stated = f"{rule}, {least:g} <= x <= {most:g}"
    operator(name, stated, weight=0.3)(unary(bounds, domain=within(least, most, fill)))


_inside("Asin", "y = arc sine of x", -1.0, 1.0, (-1.6, 1.6))
_inside("Acos", "y = arc cosine of x", -1.0, 1.0, (0.0, 3.2))
_inside("Atanh", "y = inverse hyperbolic tangent of x", -0.9, 0.9, (-1.5, 1.5))
_inside("Acosh", "y = inverse hyperbolic cosine of x", 1.0, 1e4, (0.0, 10.0), Fill("range", low=1, high=8))
_inside("Sinh", "y = hyperbolic sine of x", -9.0, 9.0, (-4052.0, 4052.0))
_inside("Cosh", "y = hyperbolic cosine of x", -9.0, 9.0, (1.0, 4052.0))
_inside("Tan", "y = tangent of x", -1.5, 1.5, (-15.0, 15.0))
operator("Atan", "y = arc tangent of x", weight=0.3)(unary((-1.6, 1.6), empty=True))
operator("Asinh", "y = inverse hyperbolic sine of x", weight=0.3)(
    unary(lambda low, high: hull(low, high, 0.0), empty=True)
)


def _monotone(function: Callable[[float], float]) -> Callable[[float, float], Ends]:
    return lambda low, high: hull(function(low), function(high))


operator("Sqrt", "y = square root of x, x > 0")(unary(_monotone(math.sqrt), domain=POSITIVE))
operator("Log", "y = ln x, x > 0")(unary(_monotone(math.log), domain=POSITIVE))
operator("Reciprocal", "y = 1 / x, x > 0")(unary(_monotone(lambda x: 1 / x), domain=POSITIVE))
_EXPONENTS = Domain(lambda v: v.low > -50 and v.high <= (10 if v.dtype == FLOAT16 else 20), Fill("positive"))
operator("Exp", "y = e ** x, x <= 20 so that chains stay finite")(unary(_monotone(math.exp), domain=_EXPONENTS))


@operator("Mod", weight=0.3)
def mod(b: Builder) -> None:
    """z = x - y floor(x / y), or the remainder of the truncated quotient (fmod: always for floats); y > 0"""
    x = data(b, domain=tame(1e4))
    y = second(b, "y", x, fill="positive")
    if y.low <= 0:
        y = made(b, "initializer", y.shapes, x.dtype, "positive")
    truncated = b.choose("fmod", (0, 1)) if x.dtype in RANGES else 1
    b.emit((x, y), each(broadcast, x, y), {"fmod": truncated}, bounds=y.high)
