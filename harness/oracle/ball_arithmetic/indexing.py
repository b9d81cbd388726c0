"""Selecting and placing elements by index.

Where indices depend on rounding there is no answer, but for TopK, whose order statistics are monotone: the j-th largest
element lies between the j-th largest lower and the j-th largest upper end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Open,
    Undecided,
    between,
    exact,
    hull,
    rounded,
    undecided_where,
    value,
    widened,
)
from driftnet.oracle.ball_arithmetic.operands import integers, joined, moved
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule


@rule("Gather")
def gather(node: Node, operands: Operands, context: Context) -> Results:
    """Slices along an axis"""
    indices, axis = value(operands[1]), attribute(node, "axis", 0)
    return [moved(operands[0], lambda x: x.take(indices, axis))]


@rule("GatherElements")
def gather_elements(node: Node, operands: Operands, context: Context) -> Results:
    """y[i][j] = x[indices[i][j]][j] for axis 0"""
    at = _elements(operands[0].shape, value(operands[1]), attribute(node, "axis", 0))
    return [moved(operands[0], lambda x: x[at])]


def _elements(shape: tuple[int, ...], indices: Array, axis: int) -> tuple[Array, ...]:
    """Where in a tensor of `shape` the elements are that `indices` mean along `axis`."""
    at = list(np.ogrid[tuple([slice(n) for n in indices.shape])])
    at[axis] = indices
    return tuple(at)


@rule("GatherND")
def gather_nd(node: Node, operands: Operands, context: Context) -> Results:
    """Slices x[indices[i]], each row of indices a path into the axes after the first batch_dims"""
    indices, batch = value(operands[1]), attribute(node, "batch_dims", 0)
    paths = [indices[..., k] for k in range(indices.shape[-1])]
    steps = np.ogrid[tuple([slice(n) for n in indices.shape[:batch]])]
    samples = [s.reshape(s.shape + (1,) * (indices.ndim - 1 - batch)) for s in steps]
    return [moved(operands[0], lambda x: x[(*samples, *paths)])]


@rule("Compress")
def compress(node: Node, operands: Operands, context: Context) -> Results:
    """The slices along an axis, or the elements, where a condition holds"""
    condition, axis = value(operands[1]), node.attributes.get("axis")
    return [moved(operands[0], lambda x: np.compress(condition, x, axis))]


@rule("ScatterElements")
def scatter_elements(node: Node, operands: Operands, context: Context) -> Results:
    """x with y[indices[i][j]][j] = updates[i][j] for axis 0, or combined with what stands there"""
    at = _elements(operands[0].shape, value(operands[1]), attribute(node, "axis", 0))
    return [scattered(operands[0], at, operands[2], attribute(node, "reduction", "none"))]


@rule("ScatterND")
def scatter_nd(node: Node, operands: Operands, context: Context) -> Results:
    """x with y[indices[i]] = updates[i], each row of indices a path into the first axes"""
    indices = value(operands[1])
    at = tuple([indices[..., k] for k in range(indices.shape[-1])])
    return [scattered(operands[0], at, operands[2], attribute(node, "reduction", "none"))]


def scattered(x: Ball, at: tuple[Array, ...], updates: Ball, reduction: str) -> Ball:
    """x with `updates` put in at positions `at`. Where two meet that are not combined, either may win; as may NaN, and
    what it meets, where the larger is wanted."""
    hits = np.zeros(x.shape, np.int64)
    np.add.at(hits, at, 1)
    if reduction == "none":
        result = joined([x, updates], lambda both: _placed(both[0], at, both[1]))
        return undecided_where(hits > 1, result) if hits.size and hits.max() > 1 else result
    if reduction in ("max", "min"):
        result = _extreme(x, at, updates, np.maximum if reduction == "max" else np.minimum)
        return undecided_where((hits > 0) & np.isnan(result.numbers), result)
    combine = np.add if reduction == "add" else np.multiply
    if x.radius is None and updates.radius is None and x.midpoint.dtype.kind in "biu":
        return Ball(_combined(combine, x.midpoint, at, updates.midpoint), None, x.dtype)
    midpoint = _combined(combine, x.numbers, at, updates.numbers)
    size = _combined(combine, np.abs(x.numbers), at, np.abs(updates.numbers))
    # |prod (m + r) - prod m| <= prod (|m| + r) - prod |m|, and likewise for sums.
    most = _combined(combine, np.abs(x.numbers) + x.error, at, np.abs(updates.numbers) + updates.error)
    touched = hits > 0
    result = rounded(midpoint, most - size, x.dtype, roundings=float(hits.max(initial=0)) + 2.0, size=most)
    return joined([x, result], lambda both: np.where(touched, both[1], both[0]))


def _placed(x: Array, at: tuple[Array, ...], updates: Array) -> Array:
    result = x.copy()
    result[at] = updates
    return result


def _combined(combine: Any, x: Array, at: tuple[Array, ...], updates: Array) -> Array:
    """x with every update combined into it by a ufunc, one after the other."""
    result = x.copy()
    combine.at(result, at, updates)
    return result


def _extreme(x: Ball, at: tuple[Array, ...], updates: Ball, choose: Any) -> Ball:
    if x.radius is None and updates.radius is None:
        return Ball(_combined(choose, x.midpoint, at, updates.midpoint), None, x.dtype)
    low, high = _combined(choose, x.low, at, updates.low), _combined(choose, x.high, at, updates.high)
    return between(low, high, x.dtype)


@rule("TensorScatter")
def tensor_scatter(node: Node, operands: Operands, context: Context) -> Results:
    """A cache with an update written along an axis from a position of its own for each sample, linear or circular"""
    cache, update = operands[0], operands[1]
    axis = attribute(node, "axis", -2) % cache.midpoint.ndim
    starts = integers(operands, 2) or [0] * cache.shape[0]
    n, size = cache.shape[axis], update.shape[axis]

    def written(both: Any) -> Array:
        result = both[0].copy()
        target, source = np.moveaxis(result, axis, 1), np.moveaxis(both[1], axis, 1)
        for sample, start in enumerate(starts):
            target[sample, (start + np.arange(size)) % n] = source[sample]
        return np.asarray(result)

    return [joined([cache, update], written)]


@rule("OneHot")
def one_hot(node: Node, operands: Operands, context: Context) -> Results:
    """A new axis of `depth` that holds the on-value at the index and the off-value elsewhere

    An index between two whole numbers is cast to the one nearer to zero, says the standard. onnxruntime finds none
    there, or its neighbour, when it adds the depth to a negative one in float32.
    """
    indices: Ball = operands[0]
    depth, rank = int(value(operands[1]).ravel()[0]), indices.midpoint.ndim + 1
    axis = attribute(node, "axis", -1) % rank
    steps = np.arange(depth).reshape([-1 if k == axis else 1 for k in range(rank)])
    low, high = (np.expand_dims(end, axis) for end in (np.floor(indices.low), np.ceil(indices.high)))
    whole, crossing = low == high, (low < 0) & (high >= 0)
    possible = (_from_start(low, depth) <= steps) & (steps <= _from_start(high, depth)) | crossing
    if whole.all():
        return [moved(operands[2], lambda levels: np.where(possible, levels[1], levels[0]))]
    off, on = moved(operands[2], lambda levels: levels[0]), moved(operands[2], lambda levels: levels[1])
    either = hull([off, on])
    lowest = np.where(possible, np.where(whole, on.low, either.low), off.low)
    highest = np.where(possible, np.where(whole, on.high, either.high), off.high)
    return [between(lowest, highest, off.dtype)]


def _from_start(indices: Array, n: int) -> Array:
    return np.where(indices < 0, indices + n, indices)


@rule("NonZero")
def nonzero(node: Node, operands: Operands, context: Context) -> Results:
    """The indices of the elements that are not zero, a column each"""
    x: Ball = operands[0]
    if x.radius is not None and (np.abs(x.midpoint) <= x.radius).any():
        raise Undecided("whether an element is zero depends on rounding")
    return [exact(np.array(np.nonzero(x.midpoint != 0), np.int64).reshape(x.midpoint.ndim, -1))]


@rule("Unique")
def unique(node: Node, operands: Operands, context: Context) -> Results:
    """The different elements or slices, where each comes first, which of them each one is, how often it comes"""
    x, axis = value(operands[0]), node.attributes.get("axis")
    found, first, inverse, counts = np.unique(x, axis=axis, return_index=True, return_inverse=True, return_counts=True)
    if not attribute(node, "sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        found, first, inverse, counts = found.take(order, axis or 0), first[order], rank[inverse], counts[order]
    numbers = (first, inverse.ravel(), counts)
    return [exact(found.astype(x.dtype, copy=False)), *[exact(n.astype(np.int64)) for n in numbers]]


@rule("TopK")
def topk(node: Node, operands: Operands, context: Context) -> Results:
    """The k largest or smallest elements along an axis and their indices.

    Of equal elements the standard wants the lower index first; engines sort unstably for speed: any of theirs will do.
    """
    x: Ball = operands[0]
    k, axis = (integers(operands, 1) or [0])[0], attribute(node, "axis", -1)
    if k > 1 and not attribute(node, "sorted", 1):
        raise Open("the order of what is not sorted")
    if x.midpoint.dtype.kind == "f" and np.isnan(x.midpoint).any():
        raise Open("the order of NaN")
    largest = bool(attribute(node, "largest", 1))
    order = _sorted(x.midpoint, axis, largest).take(range(k), axis)
    if x.radius is None:
        found = np.take_along_axis(x.midpoint, order, axis)
        return [Ball(found, None, x.dtype), _tied(x.midpoint, found, axis)]
    low, high = (_ends(side, axis, largest, k) for side in (x.low, x.high))
    return [between(low, high, x.dtype), _ranks(x, axis, low, high)]


def _tied(x: Array, found: Array, axis: int) -> Ball:
    """The indices of the elements that equal the one at each rank, as a hull."""
    equal = np.moveaxis(x, axis, -1)[..., None, :] == np.moveaxis(found, axis, -1)[..., None]
    first, last = equal.argmax(-1), x.shape[axis] - 1 - np.flip(equal, -1).argmax(-1)
    low, high = (np.moveaxis(index, -1, axis) for index in (first, last))
    return exact(low.astype(np.int64)) if (low == high).all() else between(low, high, np.dtype(np.int64))


def _sorted(x: Array, axis: int, largest: bool) -> Array:
    """The stable order along an axis, largest or smallest first."""
    if not largest:
        return np.argsort(x, axis, kind="stable")
    # Negating overflows in unsigned integers and the smallest one; reversing twice keeps the lower index first.
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(backwards, axis))


def _ends(x: Array, axis: int, largest: bool, k: int) -> Array:
    ordered = np.sort(x, axis)
    return np.asarray((np.flip(ordered, axis) if largest else ordered).take(range(k), axis))


def _ranks(x: Ball, axis: int, low: Array, high: Array) -> Ball:
    """Which elements may stand at each rank: those whose balls meet the rank's."""
    lows, highs = np.moveaxis(x.low, axis, -1)[..., None, :], np.moveaxis(x.high, axis, -1)[..., None, :]
    at_least, at_most = np.moveaxis(low, axis, -1)[..., None], np.moveaxis(high, axis, -1)[..., None]
    candidates = (lows <= at_most) & (highs >= at_least)
    n = candidates.shape[-1]
    first, last = candidates.argmax(-1), n - 1 - candidates[..., ::-1].argmax(-1)
    midpoint, radius = (first + last) / 2, (last - first) / 2
    return widened(np.moveaxis(midpoint, -1, axis), np.moveaxis(radius, -1, axis), np.dtype(np.int64))
