"""Selecting and placing elements by index.

Where indices depend on rounding there is no answer, but for TopK, whose order statistics are monotone: the j-th largest
element lies between the j-th largest lower and the j-th largest upper end.
"""

from typing import Any

import numpy as np
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Open,
    Undecided,
    between,
    exact,
    hull,
    increasing,
    joined,
    moved,
    rounded,
    undecided_where,
)
from driftnet.oracle.ball_arithmetic.data_movement import elements, paths
from driftnet.oracle.ball_arithmetic.elementwise import is_wrapping
from driftnet.oracle.ball_arithmetic.reduction import index_between
from driftnet.oracle.ball_arithmetic.rules import Integers, knowing, rule


@rule("ScatterElements")
def scatterelements(x: Ball, indices: Array, updates: Ball, *, axis: int = 0, reduction: str = "none") -> Ball:
    """x with y[indices[i][j]][j] = updates[i][j] for axis 0, or combined with what stands there"""
    return scattered(x, elements(indices, axis), updates, reduction)


@rule("ScatterND")
def scatter_nd(x: Ball, indices: Array, updates: Ball, *, reduction: str = "none") -> Ball:
    """x with y[indices[i]] = updates[i], each row of indices a path into the first axes"""
    return scattered(x, paths(indices), updates, reduction)


def scattered(x: Ball, at: tuple[Array, ...], updates: Ball, reduction: str) -> Ball:
    """x with `updates` put in at positions `at`. Where two meet that are not combined, either may win; as may NaN, and
    what it meets, where the larger is wanted."""
    hits = np.zeros(x.shape, np.int64)
    np.add.at(hits, at, 1)
    if reduction == "none":
        return undecided_where(hits > 1, joined([x, updates], lambda both: _placed(both[0], at, both[1])))
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]

    def combined(values: Array, others: Array) -> Array:
        result = values.copy()
        combine.at(result, at, others)
        return result

    if reduction in ("max", "min"):
        result = increasing(combined, x, updates)
    elif is_wrapping(x, updates):
        return Ball(combined(x.midpoint, updates.midpoint), None, x.dtype)
    else:
        # |prod (m + r) - prod m| <= prod (|m| + r) - prod |m|, and likewise for sums.
        sizes, errors = (np.abs(x.numbers), np.abs(updates.numbers)), (x.error, updates.error)
        most = combined(sizes[0] + errors[0], sizes[1] + errors[1])
        radius, roundings = most - combined(*sizes), float(hits.max(initial=0)) + 2.0
        result = rounded(combined(x.numbers, updates.numbers), radius, x.dtype, roundings=roundings, size=most)
    return joined([x, result], lambda both: np.where(hits > 0, both[1], both[0]))


def _placed(x: Array, at: tuple[Array, ...], updates: Array) -> Array:
    result = x.copy()
    result[at] = updates
    return result


@rule("TensorScatter")
def tensor_scatter(cache: Ball, update: Ball, starts: Integers | None = None, *, axis: int = -2) -> Ball:
    """A cache with an update written along an axis from a position of its own for each sample, linear or circular"""
    n, size = cache.shape[axis], update.shape[axis]

    def written(both: Any) -> Array:
        result = both[0].copy()
        target, source = (np.moveaxis(x, axis % x.ndim, 1) for x in (result, both[1]))
        for sample, start in enumerate(starts or [0] * cache.shape[0]):
            target[sample, (start + np.arange(size)) % n] = source[sample]
        return np.asarray(result)

    return joined([cache, update], written)


@rule("OneHot")
def one_hot(indices: Ball, depth: Integers, levels: Ball, *, axis: int = -1) -> Ball:
    """A new axis of `depth` that holds the on-value at the index and the off-value elsewhere

    An index between two whole numbers is cast to the one nearer to zero, says the standard. onnxruntime finds none
    there, or its neighbour, when it adds the depth to a negative one in float32.
    """
    (n,), rank = depth, indices.midpoint.ndim + 1
    steps = np.arange(n).reshape([-1 if k == axis % rank else 1 for k in range(rank)])
    low, high = (np.expand_dims(end, axis) for end in (np.floor(indices.low), np.ceil(indices.high)))
    whole, crossing = low == high, (low < 0) & (high >= 0)
    first, last = (np.where(end < 0, end + n, end) for end in (low, high))
    possible = (first <= steps) & (steps <= last) | crossing
    if whole.all():
        return moved(levels, lambda a: np.where(possible, a[1], a[0]))
    off, on = moved(levels, lambda a: a[0]), moved(levels, lambda a: a[1])
    either = hull([off, on])
    lowest = np.where(possible, np.where(whole, on.low, either.low), off.low)
    highest = np.where(possible, np.where(whole, on.high, either.high), off.high)
    return between(lowest, highest, off.dtype)


@rule("NonZero")
def nonzero(x: Ball) -> Ball:
    """The indices of the elements that are not zero, a column each"""
    if x.radius is not None and (np.abs(x.midpoint) <= x.radius).any():
        raise Undecided("whether an element is zero depends on rounding")
    return exact(np.array(np.nonzero(x.midpoint != 0), np.int64).reshape(x.midpoint.ndim, -1))


@knowing("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> list[Array]:
    """The different elements or slices, where each comes first, which of them each one is, how often it comes"""
    found, first, inverse, counts = np.unique(x, axis=axis, return_index=True, return_inverse=True, return_counts=True)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        found, first, inverse, counts = found.take(order, axis or 0), first[order], rank[inverse], counts[order]
    return [found.astype(x.dtype, copy=False), *(n.ravel().astype(np.int64) for n in (first, inverse, counts))]


@rule("TopK")
def topk(x: Ball, k: Integers, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> list[Ball]:
    """The k largest or smallest elements along an axis and their indices.

    Of equal elements the standard wants the lower index first; engines sort unstably for speed: any of theirs will do.
    """
    if k[0] > 1 and not sorted:
        raise Open("the order of what is not sorted")
    if x.midpoint.dtype.kind == "f" and np.isnan(x.midpoint).any():
        raise Open("the order of NaN")

    def first(values: Array) -> Array:
        ordered = np.sort(values, axis)
        return np.asarray((np.flip(ordered, axis) if largest else ordered).take(range(k[0]), axis))

    found = increasing(first, x)
    return [found, _ranks(x, axis, first(x.low), first(x.high))]


def _ranks(x: Ball, axis: int, low: Array, high: Array) -> Ball:
    """Which elements may stand at each rank: those whose balls meet the rank's."""
    lows, highs = (np.moveaxis(end, axis, -1)[..., None, :] for end in (x.low, x.high))
    at_least, at_most = (np.moveaxis(end, axis, -1)[..., None] for end in (low, high))
    candidates = (lows <= at_most) & (highs >= at_least)
    ends = candidates.argmax(-1), x.shape[axis] - 1 - candidates[..., ::-1].argmax(-1)
    return index_between(*(np.moveaxis(end, -1, axis) for end in ends))
