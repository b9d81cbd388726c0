"""Reductions over axes, whole and running."""

import math
from collections.abc import Callable
from math import prod

import onnx
from driftnet.generators.building.builder import Attributes, Builder, hull
from driftnet.generators.building.graph import Value
from driftnet.generators.building.kernels import OPSETS
from driftnet.generators.building.operands import UNIT, WEIGHT, Domain, data, integers, scalar, tame
from driftnet.generators.building.values import FLOAT16, INT64, Fill, Shape
from driftnet.generators.ops.registry import operator, operators

RANKS = (3, 2, 4, 1, 5)
Bounds = Callable[[Value, int], tuple[float, float]]


def _reduction(name: str, rule: str, bounds: Bounds, domain: Domain, *, whole: bool = True, noop: bool = False) -> None:
    """bounds  of the reduction of so many elements of x
    whole   whether the result of integers is an integer; where it is not, rounding it is the engine's choice
    noop    whether of no axes at all x itself may be the result (from the opset on that has axes as an input)
    """
    since = next(opset for opset in OPSETS if "axes" not in onnx.defs.get_schema(name, opset).attributes)

    @operator(name, f"{rule}, over axes (all when none are given); axes are an input from opset {since}")
    def reduction(b: Builder) -> None:
        x = data(b, dtypes=() if whole else b.floats(), ranks=RANKS, domain=domain)
        chosen, keep = b.choose("axes", range(64)), b.choose("keepdims", (1, 1, 0))
        negative = b.flag("negative")
        axes = [axis for axis in range(x.rank) if chosen >> axis & 1]
        # Without axes nothing is reduced where that is asked for; ReduceSumSquare and its like still square then.
        nothing = b.choose("noop", (False, False, True)) and b.has("noop_with_empty_axes") and not axes and noop
        reduced = axes or ([] if nothing else list(range(x.rank)))

        def shape(s: Shape) -> Shape:
            return tuple([1 if axis in reduced else n for axis, n in enumerate(s) if keep or axis not in reduced])

        inputs, attributes = axes_operands(b, tuple([axis - x.rank for axis in axes] if negative else axes))
        count = max(prod(s[axis] for axis in reduced) for s in x.shapes)
        attributes = {**attributes, "keepdims": keep, "noop_with_empty_axes": int(nothing)}
        b.emit((x, *inputs), shape, attributes, bounds=bounds(x, count))


def axes_operands(b: Builder, axes: Shape, *, op_type: str = "") -> tuple[tuple[Value | None, ...], Attributes]:
    """Axes as the opset has them: (inputs after the first, attributes). No axes: left out."""
    if b.has("axes", op_type):
        return (), {"axes": axes or None}
    operand = integers(b, "axes_source", axes)
    return (operand if axes else None,), {}


def _total(x: Value, count: int) -> tuple[float, float]:
    return x.low if x.low > 0 else count * x.low, count * max(x.high, 0.0)


def _product(x: Value, count: int) -> tuple[float, float]:
    top = max(x.magnitude, 1.0) ** count
    return -top, top


_LARGE, _SMALL = tame(1e12, WEIGHT), tame(1.01, UNIT)
_SUMMANDS = Domain(lambda v: v.low > 0 and _LARGE.holds(v), Fill("positive"))

_reduction("ReduceMean", "the mean", lambda x, n: hull(x), _LARGE, whole=False, noop=True)
_reduction("ReduceSum", "the sum", _total, _LARGE, noop=True)
_reduction("ReduceMax", "the maximum", lambda x, n: hull(x), tame(math.inf, WEIGHT), noop=True)
_reduction("ReduceMin", "the minimum", lambda x, n: hull(x), tame(math.inf, WEIGHT), noop=True)
_reduction("ReduceL1", "the sum of |x|", lambda x, n: (0.0, n * x.magnitude), _LARGE)
_reduction(
    "ReduceL2", "the root of the sum of squares", lambda x, n: (0.0, n * x.magnitude), tame(1e9, WEIGHT), whole=False
)
_reduction("ReduceSumSquare", "the sum of squares", lambda x, n: (0.0, n * x.magnitude**2), tame(1e6, WEIGHT))
_reduction("ReduceProd", "the product", _product, _SMALL)
_reduction(
    "ReduceLogSumExp",
    "log of the sum of e ** x",
    lambda x, n: (x.low, x.high + math.log(n)),
    tame(64.0, WEIGHT),
    whole=False,
)
_reduction(
    "ReduceLogSum", "log of the sum", lambda x, n: (math.log(x.low), math.log(n * x.high)), _SUMMANDS, whole=False
)


@operators(
    {
        "ArgMax": "the index of the maximum, the first or the last along an axis",
        "ArgMin": "the index of the minimum, the first or the last along an axis",
    },
    weight=0.5,
)
def arg(b: Builder) -> None:
    """Where along an axis the extremum is"""
    x = data(b, ranks=RANKS)
    axis, keep = b.axis("axis", x.rank), b.choose("keepdims", (1, 0))
    last = b.choose("select_last_index", (0, 0, 1)) if b.has("select_last_index") else 0
    attributes = {"axis": axis, "keepdims": keep, "select_last_index": last}
    bounds = (0.0, max(s[axis] for s in x.shapes) - 1.0)
    b.emit((x,), x.resized(axis, *[1] * keep), attributes, dtype=INT64, bounds=bounds)


def _running(b: Builder, x: Value, axis: int, bounds: tuple[float, float]) -> None:
    chosen = b.attributes(exclusive=(0, 1), reverse=(0, 1))
    b.emit((x, scalar(b, "axis_source", axis, dtype=INT64)), x, chosen, bounds=bounds)


@operator("CumSum", weight=0.5)
def cumsum(b: Builder) -> None:
    """y_i = x_0 + ... + x_i along an axis, optionally without x_i, optionally from the end"""
    x = data(b, dtypes=b.types(inner=True), ranks=(*RANKS, 6), domain=tame(1e12))
    axis = b.axis("axis", x.rank)
    n = max(shape[axis] for shape in x.shapes)
    _running(b, x, axis, (n * min(x.low, 0.0), n * max(x.high, 0.0)))


@operator("CumProd", weight=1.5)
def cumprod(b: Builder) -> None:
    """y_i = x_0 ... x_i along an axis, optionally without x_i, optionally from the end"""
    x = data(b, dtypes=[dtype for dtype in b.types() if dtype != FLOAT16], ranks=(*RANKS, 6), domain=_SMALL)
    _running(b, x, b.axis("axis", x.rank), (-2.0, 2.0))
