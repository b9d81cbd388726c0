"""Reductions and running sums along axes, and the index of the largest element.

A sum of n terms in any order: r = sum r_i + gamma_n' sum (|m_i| + r_i), n' as in
driftnet.oracle.ball_arithmetic.linear. A mean, a norm or a logarithm of one follows by the interval's ends.
"""

from collections.abc import Callable

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Open,
    Undecided,
    between,
    exact,
    increasing,
    is_float,
    moved,
    rounded,
)
from driftnet.oracle.ball_arithmetic.elementwise import absolute, is_wrapping, multiply, scaled
from driftnet.oracle.ball_arithmetic.functions import approximated, root, through
from driftnet.oracle.ball_arithmetic.linear import Sum
from driftnet.oracle.ball_arithmetic.rules import Integers, rule
from driftnet.oracle.tolerances.table import LOG_SUM_EXP_ROUNDINGS

Axes = tuple[int, ...]


def total(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """The sum over `axes`, in any order."""

    def add(values: Array) -> Array:
        return np.asarray(np.sum(values, axes, keepdims=keepdims))

    if is_wrapping(x):
        return Ball(np.asarray(np.sum(x.midpoint, axes, x.midpoint.dtype, keepdims=keepdims)), None, x.dtype)
    return moved(x, add) if count(x, axes) == 1 else Sum.of(x, add, count(x, axes)).ball(x.dtype)


def count(x: Ball, axes: Axes) -> int:
    """How many elements make one."""
    return int(np.prod([x.shape[axis] for axis in axes], dtype=int))


def mean(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """The mean over `axes`."""
    n = count(x, axes)
    if not n:
        raise Open("the mean of nothing")
    sums = total(x, axes, keepdims=keepdims)
    return sums if n == 1 else scaled(sums, 1 / n)


def extreme(x: Ball, axes: Axes, choose: Callable[..., Array], *, keepdims: bool = True) -> Ball:
    """The maximum or minimum over `axes`; undecided where one is NaN."""
    if axes and not count(x, axes):
        raise Undecided("the largest of nothing")
    return increasing(lambda values: choose(values, axes, keepdims=keepdims), x)


def _product(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    if is_wrapping(x):
        return Ball(np.asarray(np.prod(x.midpoint, axes, x.midpoint.dtype, keepdims=keepdims)), None, x.dtype)
    midpoint = np.prod(x.numbers, axes, keepdims=keepdims)
    size = np.prod(np.abs(x.numbers) + x.error, axes, keepdims=keepdims)
    return rounded(midpoint, size - np.abs(midpoint), x.dtype, roundings=count(x, axes) + 2, size=size)


def sum_of_squares(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """The sum of squares over `axes`."""
    return total(multiply(x, x), axes, keepdims=keepdims)


def log_sum_exp(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """log(sum exp(x)). Monotone in each x; the roundings are those of x less the maximum, the sum and the logarithm."""
    shift = np.max(np.where(np.isfinite(x.numbers), x.numbers, 0), axes, keepdims=True, initial=-1e30)

    def at(values: Array) -> Array:
        sums = np.log(np.sum(np.exp(values - shift), axes, keepdims=keepdims))
        return np.asarray(sums + np.reshape(shift, sums.shape))

    ends = between(at(x.low), at(x.high), x.dtype)
    largest_argument = np.max(np.abs(x.numbers), axes, keepdims=keepdims, initial=0)
    steps = count(x, axes) + LOG_SUM_EXP_ROUNDINGS
    ends = rounded(ends.numbers, ends.error, x.dtype, roundings=steps, size=np.abs(ends.numbers) + 1)
    ends = rounded(ends.numbers, ends.error, x.dtype, size=largest_argument)
    return approximated(ends.numbers, ends.error, x.dtype, "Log")


# a rule each
REDUCTIONS: dict[str, Callable[..., Ball]] = {
    "ReduceL1": lambda x, axes, **kept: total(absolute(x), axes, **kept),
    "ReduceL2": lambda x, axes, **kept: root(sum_of_squares(x, axes, **kept)),
    "ReduceLogSum": lambda x, axes, **kept: through(np.log, total(x, axes, **kept), "Log"),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": lambda x, axes, **kept: extreme(x, axes, np.max, **kept),
    "ReduceMean": mean,
    "ReduceMin": lambda x, axes, **kept: extreme(x, axes, np.min, **kept),
    "ReduceProd": _product,
    "ReduceSum": total,
    "ReduceSumSquare": sum_of_squares,
}
# Editions of the standard, and engines, differ by operator, not by trait.
FRACTIONS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"})
"""what they make of integers is none"""
# likewise
KEEPING = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
"""what they make of one element is that element"""


@rule(*REDUCTIONS)
def reduced(
    x: Ball, axes: Integers | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0, node: Node
) -> Ball:
    """One element of all those along axes"""
    if not is_float(x.dtype) and node.op in FRACTIONS:
        raise Open("how a fraction becomes an integer")
    if not axes and noop_with_empty_axes:
        if node.op not in KEEPING:
            raise Open("whether roots and logarithms are taken of what is not reduced: editions of the standard differ")
        return x
    chosen = tuple(axis % x.midpoint.ndim for axis in axes or range(x.midpoint.ndim))
    return REDUCTIONS[node.op](x, chosen, keepdims=bool(keepdims))


@rule("CumSum", "CumProd")
def cumulated(x: Ball, axis: Integers, *, reverse: int = 0, exclusive: int = 0, node: Node) -> Ball:
    """The sum or product of an element and all before it"""
    (along,), sums = axis, node.op == "CumSum"
    run = np.cumsum if sums else np.cumprod

    def running(values: Array) -> Array:
        ordered = np.flip(values, along) if reverse else values
        if exclusive:
            first = np.full_like(np.take(ordered, [0], along), 0 if sums else 1)
            ordered = np.concatenate([first, np.take(ordered, range(x.shape[along] - 1), along)], along)
        result = run(ordered, along, dtype=values.dtype)
        return np.asarray(np.flip(result, along) if reverse else result)

    if x.midpoint.size == 0:
        return x
    if is_wrapping(x):
        return moved(x, running)
    size = running(np.abs(x.numbers) + (0 if sums else x.error))
    radius = running(np.broadcast_to(x.error, x.shape)) if sums else size - np.abs(running(x.numbers))
    return rounded(running(x.numbers), radius, x.dtype, roundings=x.shape[along] + 2, size=size)


def position(x: Ball, axis: int, *, last: bool = False) -> tuple[Array, Array]:
    """(first, last) index along `axis`, keeping it, that the maximum may have. Of equal maxima the first is meant, or
    the last. Both are the index where it is certain."""
    if last:
        first, final = position(moved(x, lambda a: np.flip(a, axis)), axis)
        return x.shape[axis] - 1 - final, x.shape[axis] - 1 - first
    low, high = x.low, x.high
    possible = high >= np.max(low, axis, keepdims=True)
    certain = low >= np.max(high, axis, keepdims=True)
    possible |= np.isnan(low) | x.undecided
    certain &= ~x.undecided
    first = np.argmax(possible, axis, keepdims=True)
    final = x.shape[axis] - 1 - np.argmax(np.flip(possible, axis), axis, keepdims=True)
    return first, np.where(certain.any(axis, keepdims=True), np.argmax(certain, axis, keepdims=True), final)


def index_between(first: Array, last: Array) -> Ball:
    """An index that is one of those from `first` to `last`."""
    return exact(first.astype(np.int64)) if (first == last).all() else between(first, last, np.dtype(np.int64))


@rule("ArgMax", "ArgMin")
def arg(x: Ball, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0, node: Node) -> Ball:
    """The index of the largest or smallest element"""
    if not x.shape[axis]:
        raise Undecided("the maximum of nothing")
    x = x if node.op == "ArgMax" else Ball(-x.numbers, x.radius, x.dtype)
    ends = position(x, axis, last=bool(select_last_index))
    return index_between(*(end if keepdims else np.squeeze(end, axis) for end in ends))
