"""Comparison, selection and logic: results that are true or false, and bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, find, fresh, made, scalar, whole
from driftnet.generators.building.values import BOOL, INT32, RANGES, Fill
from driftnet.generators.ops.elementwise import broadcast, broadcasts, ordered, second, tame
from driftnet.generators.ops.registry import operator

NONFINITE = Fill("nonfinite")


def _classified(name: str, rule: str) -> None:
    @operator(name, rule=rule, weight=0.3)
    def classified(b: Builder) -> None:
        floats = [dtype for dtype in b.types(name, "T1") if dtype not in RANGES]
        x = data(b, dtypes=floats, fits=lambda v: math.isinf(v.high), fill=NONFINITE)
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
        condition = made(b, "initializer", x.shapes, BOOL, "data")
        return b.emit("Where", (condition, x, scalar(b, "zero", 0.0, dtype=x.dtype)), x.shapes, dtype=x.dtype)
    return b.emit(through, (x,), each(lambda s: s[::-1], x) if through == "Transpose" else x.shapes)


_classified("IsNaN", "y = whether x is NaN")
_classified("IsInf", "y = whether x is an infinity, of the wanted signs")


def _comparison(name: str, rule: str, since: int = 11) -> None:
    @operator(name, since=since, rule=rule + ", broadcast", weight=0.5)
    def comparison(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), empty=True)
        p, q = ordered(b, x, second(b, "y", x))
        if b.choose("nonfinite", (*[False] * 15, True)) and x.dtype not in RANGES:
            p = fresh(b, x.dtype, p.shapes, NONFINITE)
        b.emit(name, (p, q), each(broadcast, p, q), dtype=BOOL, bounds=(0.0, 1.0))


_comparison("Greater", "z = x > y")
_comparison("Less", "z = x < y")
_comparison("Equal", "z = x == y")
_comparison("GreaterOrEqual", "z = x >= y", 12)
_comparison("LessOrEqual", "z = x <= y", 12)


def _logical(name: str, rule: str) -> None:
    @operator(name, rule=rule + ", broadcast", weight=0.4)
    def logical(b: Builder) -> None:
        x = data(b, dtypes=(BOOL,), fill=Fill("range", high=1))
        y = find(b, lambda v: v.dtype == BOOL and broadcasts(x, v)) or x
        b.emit(name, (x, y), each(broadcast, x, y))


_logical("And", "z = x and y")
_logical("Or", "z = x or y")
_logical("Xor", "z = x differs from y")


@operator("Not", weight=0.5)
def logical_not(b: Builder) -> None:
    """y = not x"""
    x = data(b, dtypes=(BOOL,), fill=Fill("range", high=1))
    b.emit("Not", (x,), x.shapes)


@operator("Where")
def where(b: Builder) -> None:
    """z = x where the condition holds, else y; all three broadcast"""
    x = data(b, dtypes=b.types("Where"))
    y = second(b, "y", x)
    condition = find(b, lambda v: v.dtype == BOOL and broadcasts(x, y, v))
    if condition is None:
        condition = fresh(b, BOOL, x.shapes, Fill("range", high=1))
    bounds = (min(x.low, y.low), max(x.high, y.high))
    b.emit("Where", (condition, x, y), each(broadcast, condition, x, y), dtype=x.dtype, bounds=bounds)


def _bitwise(name: str, rule: str) -> None:
    @operator(name, since=18, rule=rule + " bit by bit, broadcast", weight=0.3)
    def bitwise(b: Builder) -> None:
        x = data(b, dtypes=_signed_first(b.types(name)))
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
    x = data(b, dtypes=_signed_first(b.types("BitwiseNot")))
    b.emit("BitwiseNot", (x,), x.shapes, bounds=RANGES[x.dtype])


@operator("BitShift", weight=0.3)
def bit_shift(b: Builder) -> None:
    """z = x shifted by y bits to the left or to the right, unsigned"""
    x = data(b, dtypes=b.types("BitShift"), fits=tame(1e12))
    direction = b.choose("direction", ("LEFT", "RIGHT"))
    form = b.choose("form", ((), x.shape if x.static else (), (1,)))
    y = whole(b, "y", (form,) * len(x.shapes), 0, 3, dtype=x.dtype)
    b.emit("BitShift", (x, y), each(broadcast, x, y), {"direction": direction}, bounds=(0.0, 8 * x.high))
