"""Reductions over axes, whole and running."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import constant, data, integers
from driftnet.generators.building.values import FLOAT16, INT64, RANGES, Fill, Shape
from driftnet.generators.ops.elementwise import magnitude, tame
from driftnet.generators.ops.registry import operator

RANKS = (3, 2, 4, 1, 5)
Bounds = Callable[[Value, int], tuple[float, float]]


def _reduction(
    name: str,
    rule: str,
    bounds: Bounds,
    *,
    axes_input_since: int,
    most: float,
    positive: bool = False,
    whole: bool = True,
    noop: bool = False,
) -> None:
    """whole: whether the result of integers is an integer; where it is not, rounding it is the engine's choice.
    noop: whether of no axes at all x itself may be the result (from the opset on that has axes as an input)"""

    @operator(
        name, rule=f"{rule}, over axes (all when none are given); axes are an input from opset {axes_input_since}"
    )
    def reduction(b: Builder) -> None:
        small = tame(most)
        x = data(
            b,
            dtypes=[dtype for dtype in b.types(name) if dtype not in RANGES or whole],
            ranks=RANKS,
            fits=lambda v: small(v) and (v.low > 0 or not positive),
            fill=Fill("positive" if positive else "unit" if most < 2.0 else "weight"),
        )
        chosen, keep = b.choose("axes", range(64)), b.choose("keepdims", (1, 1, 0))
        negative = b.flag("negative")
        axes = [axis for axis in range(x.rank) if chosen >> axis & 1]
        # Without axes nothing is reduced where that is asked for; ReduceSumSquare and its like still square then.
        nothing = b.choose("noop", (False, False, True)) and b.opset >= axes_input_since and not axes and noop
        reduced = axes or ([] if nothing else list(range(x.rank)))

        def shape(s: Shape) -> Shape:
            if keep:
                return tuple([1 if axis in reduced else n for axis, n in enumerate(s)])
            return tuple([n for axis, n in enumerate(s) if axis not in reduced])

        written = tuple([axis - x.rank for axis in axes] if negative else axes)
        inputs, attributes = axes_operands(b, written, input_since=axes_input_since)
        count = max(prod(s[axis] for axis in reduced) for s in x.shapes)
        attributes["keepdims"] = b.unless(keep, 1)
        attributes["noop_with_empty_axes"] = (
            int(nothing) if nothing or (b.explicit and b.opset >= axes_input_since) else None
        )
        b.emit(name, (x, *inputs), each(shape, x), attributes, bounds=bounds(x, count))


def axes_operands(
    b: Builder, axes: Shape, *, input_since: int
) -> tuple[tuple[Value | None, ...], dict[str, Shape | int | None]]:
    """Axes as the opset has them: (inputs after the first, attributes). No axes: left out."""
    if b.opset < input_since:
        return (), {"axes": axes or None}
    operand = integers(b, "axes_source", axes)
    return (operand if axes else None,), {}


def _hull(x: Value, count: int) -> tuple[float, float]:
    return x.low, x.high


def _total(x: Value, count: int) -> tuple[float, float]:
    return x.low if x.low > 0 else count * x.low, count * max(x.high, 0.0)


_reduction("ReduceMean", "the mean", _hull, axes_input_since=18, most=1e12, whole=False, noop=True)
_reduction("ReduceSum", "the sum", _total, axes_input_since=13, most=1e12, noop=True)
_reduction("ReduceMax", "the maximum", _hull, axes_input_since=18, most=math.inf, noop=True)
_reduction("ReduceMin", "the minimum", _hull, axes_input_since=18, most=math.inf, noop=True)
_reduction("ReduceL1", "the sum of |x|", lambda x, n: (0.0, n * magnitude(x)), axes_input_since=18, most=1e12)
_reduction(
    "ReduceL2",
    "the root of the sum of squares",
    lambda x, n: (0.0, n * magnitude(x)),
    axes_input_since=18,
    most=1e9,
    whole=False,
)
_reduction(
    "ReduceSumSquare", "the sum of squares", lambda x, n: (0.0, n * magnitude(x) ** 2), axes_input_since=18, most=1e6
)
_reduction(
    "ReduceProd",
    "the product",
    lambda x, n: (-(max(magnitude(x), 1.0) ** n), max(magnitude(x), 1.0) ** n),
    axes_input_since=18,
    most=1.01,
)
_reduction(
    "ReduceLogSumExp",
    "log of the sum of e ** x",
    lambda x, n: (x.low, x.high + math.log(n)),
    axes_input_since=18,
    most=64.0,
    whole=False,
)
_reduction(
    "ReduceLogSum",
    "log of the sum",
    lambda x, n: (math.log(x.low), math.log(n * x.high)),
    axes_input_since=18,
    most=1e12,
    positive=True,
    whole=False,
)


def _arg(name: str, rule: str) -> None:
    @operator(name, rule=rule + " along an axis", weight=0.5)
    def arg(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), ranks=RANKS)
        axis, keep = b.axis("axis", x.rank), b.choose("keepdims", (1, 0))
        last = b.choose("select_last_index", (0, 0, 1)) if b.opset >= 12 else 0

        def shape(s: Shape) -> Shape:
            k = axis % len(s)
            return (*s[:k], 1, *s[k + 1 :]) if keep else (*s[:k], *s[k + 1 :])

        attributes = {
            "axis": b.unless(axis, 0),
            "keepdims": b.unless(keep, 1),
            "select_last_index": b.unless(last, 0) if b.opset >= 12 else None,
        }
        bounds = (0.0, max(s[axis] for s in x.shapes) - 1.0)
        b.emit(name, (x,), each(shape, x), attributes, dtype=INT64, bounds=bounds)


_arg("ArgMax", "the index of the maximum, the first or the last")
_arg("ArgMin", "the index of the minimum, the first or the last")


@operator("CumSum", weight=0.5)
def cumsum(b: Builder) -> None:
    """y_i = x_0 + ... + x_i along an axis, optionally without x_i, optionally from the end"""
    x = data(b, dtypes=b.types("CumSum", inner=True), ranks=(*RANKS, 6), fits=tame(1e12))
    axis = b.axis("axis", x.rank)
    exclusive, backwards = b.choose("exclusive", (0, 1)), b.choose("reverse", (0, 1))
    operand = constant(b, "axis_source", np.array(axis, np.int64))
    n = max(shape[axis] for shape in x.shapes)
    attributes = {"exclusive": b.unless(exclusive, 0), "reverse": b.unless(backwards, 0)}
    bounds = (n * min(x.low, 0.0), n * max(x.high, 0.0))
    b.emit("CumSum", (x, operand), x.shapes, attributes, bounds=bounds)


@operator("CumProd", since=26, weight=1.5)
def cumprod(b: Builder) -> None:
    """y_i = x_0 ... x_i along an axis, optionally without x_i, optionally from the end"""
    dtypes = [dtype for dtype in b.types("CumProd") if dtype != FLOAT16]
    x = data(b, dtypes=dtypes, ranks=(*RANKS, 6), fits=tame(1.01), fill=Fill("unit"))
    axis = b.axis("axis", x.rank)
    exclusive, backwards = b.choose("exclusive", (0, 1)), b.choose("reverse", (0, 1))
    operand = constant(b, "axis_source", np.array(axis, np.int64))
    attributes = {"exclusive": b.unless(exclusive, 0), "reverse": b.unless(backwards, 0)}
    b.emit("CumProd", (x, operand), x.shapes, attributes, bounds=(-2.0, 2.0))
