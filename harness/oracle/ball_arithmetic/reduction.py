"""Reductions and running sums along axes, and the index of the largest element.

A sum of n terms in any order: r = sum r_i + gamma_n' sum (|m_i| + r_i), n' as in
driftnet.oracle.ball_arithmetic.linear. A mean, a norm or a logarithm of one follows by the interval's ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Open, Undecided, between, exact, is_float, rounded
from driftnet.oracle.ball_arithmetic.elementwise import absolute, is_wrapping, multiply
from driftnet.oracle.ball_arithmetic.functions import approximated, root, through
from driftnet.oracle.ball_arithmetic.linear import Sum
from driftnet.oracle.ball_arithmetic.operands import integers, moved, parameter
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule
from driftnet.oracle.tolerances.table import LOG_SUM_EXP_ROUNDINGS

Axes = tuple[int, ...]


def total(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """The sum over `axes`, in any order."""
    if is_wrapping(x):
        return Ball(np.asarray(np.sum(x.midpoint, axes, x.midpoint.dtype, keepdims=keepdims)), None, x.dtype)
    if count(x, axes) == 1:
        return moved(x, lambda a: np.sum(a, axes, keepdims=keepdims))
    radius = 0.0 if x.radius is None else np.asarray(np.sum(x.radius, axes, keepdims=keepdims))
    midpoint, size = np.sum(x.numbers, axes, keepdims=keepdims), np.sum(np.abs(x.numbers), axes, keepdims=keepdims)
    return Sum(midpoint, radius, size, count(x, axes)).ball(x.dtype)


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


def scaled(x: Ball, factor: float) -> Ball:
    """x times a number that an engine may round."""
    return rounded(x.numbers * factor, x.error * abs(factor), x.dtype)


def largest(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """The maximum over `axes`; undecided where one is NaN."""
    return _extreme(x, axes, keepdims, np.max)


def smallest(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    """The minimum over `axes`; undecided where one is NaN."""
    return _extreme(x, axes, keepdims, np.min)


def _extreme(x: Ball, axes: Axes, keepdims: bool, choose: Callable[..., Array]) -> Ball:
    if axes and not count(x, axes):
        raise Undecided("the largest of nothing")
    if is_wrapping(x):
        return Ball(np.asarray(choose(x.midpoint, axes, keepdims=keepdims)), None, x.dtype)
    return between(choose(x.low, axes, keepdims=keepdims), choose(x.high, axes, keepdims=keepdims), x.dtype)


def _product(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    if is_wrapping(x):
        return Ball(np.asarray(np.prod(x.midpoint, axes, x.midpoint.dtype, keepdims=keepdims)), None, x.dtype)
    midpoint = np.prod(x.numbers, axes, keepdims=keepdims)
    size = np.prod(np.abs(x.numbers) + x.error, axes, keepdims=keepdims)
    return rounded(midpoint, size - np.abs(midpoint), x.dtype, roundings=count(x, axes) + 2, size=size)


def _sum_of_squares(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    return total(multiply(x, x), axes, keepdims=keepdims)


def _l1(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    return total(absolute(x), axes, keepdims=keepdims)


def _l2(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    return root(_sum_of_squares(x, axes, keepdims=keepdims))


def _log_sum(x: Ball, axes: Axes, *, keepdims: bool = True) -> Ball:
    return through(np.log, total(x, axes, keepdims=keepdims), "Log")


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


Reduction = Callable[..., Ball]

REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": largest,
    "ReduceMean": mean,
    "ReduceMin": smallest,
    "ReduceProd": _product,
    "ReduceSum": total,
    "ReduceSumSquare": _sum_of_squares,
}
OF_INTEGERS = frozenset({"ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"})


@rule(*REDUCTIONS)
def _reduce(node: Node, operands: Operands, context: Context) -> Results:
    x = operands[0]
    if not is_float(x.dtype) and node.op not in OF_INTEGERS:
        raise Open("how a fraction becomes an integer")
    axes = parameter(node, operands, 1, "axes")
    if not axes and attribute(node, "noop_with_empty_axes", 0):
        if node.op not in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
            raise Open("whether roots and logarithms are taken of what is not reduced: editions of the standard differ")
        return [x]
    chosen = tuple(axis % x.midpoint.ndim for axis in axes or range(x.midpoint.ndim))
    return [REDUCTIONS[node.op](x, chosen, keepdims=bool(attribute(node, "keepdims", 1)))]


@rule("CumSum", "CumProd")
def _cumulate(node: Node, operands: Operands, context: Context) -> Results:
    x = operands[0]
    (axis,) = integers(operands, 1) or [0]
    backwards, exclusive = bool(attribute(node, "reverse", 0)), bool(attribute(node, "exclusive", 0))
    sums = node.op == "CumSum"
    run = np.cumsum if sums else np.cumprod

    def running(values: Array) -> Array:
        ordered = np.flip(values, axis) if backwards else values
        if exclusive:
            first = np.full_like(np.take(ordered, [0], axis), 0 if sums else 1)
            ordered = np.concatenate([first, np.take(ordered, range(x.shape[axis] - 1), axis)], axis)
        result = run(ordered, axis, dtype=values.dtype)
        return np.asarray(np.flip(result, axis) if backwards else result)

    if x.midpoint.size == 0:
        return [x]
    if is_wrapping(x):
        return [moved(x, running)]
    size = running(np.abs(x.numbers) + (0 if sums else x.error))
    radius = running(np.broadcast_to(x.error, x.shape)) if sums else size - np.abs(running(x.numbers))
    return [rounded(running(x.numbers), radius, x.dtype, roundings=x.shape[axis] + 2, size=size)]


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


@rule("ArgMax", "ArgMin")
def _arg(node: Node, operands: Operands, context: Context) -> Results:
    x, axis = operands[0], int(attribute(node, "axis", 0))
    if not x.shape[axis]:
        raise Undecided("the maximum of nothing")
    x = x if node.op == "ArgMax" else Ball(-x.numbers, x.radius, x.dtype)
    ends = position(x, axis, last=bool(attribute(node, "select_last_index", 0)))
    first, final = (end if attribute(node, "keepdims", 1) else np.squeeze(end, axis) for end in ends)
    if np.array_equal(first, final):
        return [exact(first.astype(np.int64))]
    return [between(first, final, np.dtype(np.int64))]
