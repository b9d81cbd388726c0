"""Comparison, selection and logic: results that are true or false, and bits."""

import math
from collections.abc import Sequence

from driftnet.generators.building.broadcasting import broadcast, broadcasts, ordered, second
from driftnet.generators.building.builder import Builder, each, hull
from driftnet.generators.building.graph import Stated, Value
from driftnet.generators.building.operands import ANYTHING, Domain, data, find, fresh, made, scalar, tame, whole
from driftnet.generators.building.values import BOOL, INT32, RANGES, Fill
from driftnet.generators.ops.registry import operator, operators

_NONFINITE = Domain(lambda v: math.isinf(v.high), Fill("nonfinite"))
_TRUTH = Domain(ANYTHING.holds, Fill("range", high=1))


@operators({"IsNaN": "y = whether x is NaN", "IsInf": "y = whether x is an infinity, of the wanted signs"}, weight=0.3)
def classified(b: Builder) -> None:
    """What kind of number each element is, of a tensor that holds infinities and NaN"""
    x = data(b, dtypes=b.floats(), domain=_NONFINITE)
    signs = b.choose("signs", (None, (1, 0), (0, 1)))
    # Drawn from, in this order, which is part of what a genome means.
    through = b.choose("through", (None, None, None, "Transpose", "Neg", "Identity", "Abs", "Where"))
    attributes = {}
    if signs is not None and b.has("detect_positive"):
        attributes = {"detect_positive": Stated(signs[0]), "detect_negative": Stated(signs[1])}
    x = _moved(b, through, x)
    b.emit((x,), x, attributes, dtype=BOOL, bounds=(0.0, 1.0))


def _moved(b: Builder, through: str | None, x: Value) -> Value:
    """x through an operator for which every infinity and every NaN has one right result."""
    if through is None or x.dtype not in b.types("T" if through == "Where" else "", op_type=through):
        return x
    if through == "Where":
        condition = made(b, "initializer", x.shapes, BOOL, "data")
        other = scalar(b, "zero", 0.0, dtype=x.dtype)
        return b.emit((condition, x, other), x, op_type=through, dtype=x.dtype)
    return b.emit((x,), (lambda s: s[::-1]) if through == "Transpose" else x, op_type=through)


@operators(
    {
        "Greater": "z = x > y, broadcast",
        "Less": "z = x < y, broadcast",
        "Equal": "z = x == y, broadcast",
        "GreaterOrEqual": "z = x >= y, broadcast",
        "LessOrEqual": "z = x <= y, broadcast",
    },
    weight=0.5,
)
def comparison(b: Builder) -> None:
    """Whether a relation holds, now and then of infinities and NaN too"""
    x = data(b, empty=True)
    p, q = ordered(b, x, second(b, "y", x))
    if b.choose("nonfinite", (*[False] * 15, True)) and x.dtype not in RANGES:
        p = fresh(b, x.dtype, p.shapes, _NONFINITE.fill)
    b.emit((p, q), each(broadcast, p, q), dtype=BOOL, bounds=(0.0, 1.0))


@operators(
    {"And": "z = x and y, broadcast", "Or": "z = x or y, broadcast", "Xor": "z = x differs from y, broadcast"},
    weight=0.4,
)
def logical(b: Builder) -> None:
    """Connectives of truth values"""
    x = data(b, domain=_TRUTH)
    y = find(b, lambda v: v.dtype == BOOL and broadcasts(x, v)) or x
    b.emit((x, y), each(broadcast, x, y))


@operator("Not", weight=0.5)
def logical_not(b: Builder) -> None:
    """y = not x"""
    x = data(b, domain=_TRUTH)
    b.emit((x,), x)


@operator("Where")
def where(b: Builder) -> None:
    """z = x where the condition holds, else y; all three broadcast"""
    x = data(b, dtypes=b.types("T"))
    y = second(b, "y", x)
    condition = find(b, lambda v: v.dtype == BOOL and broadcasts(x, y, v)) or fresh(b, BOOL, x.shapes, _TRUTH.fill)
    b.emit((condition, x, y), each(broadcast, condition, x, y), dtype=x.dtype, bounds=hull(x, y))


@operators(
    {
        "BitwiseAnd": "z = x and y bit by bit, broadcast",
        "BitwiseOr": "z = x or y bit by bit, broadcast",
        "BitwiseXor": "z = x xor y bit by bit, broadcast",
    },
    weight=0.3,
)
def bitwise(b: Builder) -> None:
    """Connectives of bits"""
    x = data(b, dtypes=_signed_first(b.types()))
    p, q = ordered(b, x, second(b, "y", x))
    b.emit((p, q), each(broadcast, p, q), bounds=RANGES[x.dtype])


def _signed_first(dtypes: Sequence[int]) -> Sequence[int]:
    return sorted(dtypes, key=lambda dtype: dtype != INT32)


@operator("BitwiseNot", weight=0.3)
def bitwise_not(b: Builder) -> None:
    """y = not x, bit by bit"""
    x = data(b, dtypes=_signed_first(b.types()))
    b.emit((x,), x, bounds=RANGES[x.dtype])


@operator("BitShift", weight=0.3)
def bit_shift(b: Builder) -> None:
    """z = x shifted by y bits to the left or to the right, unsigned"""
    x = data(b, domain=tame(1e12))
    direction = b.choose("direction", ("LEFT", "RIGHT"))
    form = b.choose("form", ((), x.shape if x.static else (), (1,)))
    y = whole(b, "y", form, 0, 3, dtype=x.dtype)
    b.emit((x, y), each(broadcast, x, y), {"direction": direction}, bounds=(0.0, 8 * x.high))
