"""Pooling over the spatial dims: extremes by the ends of intervals, means and norms as sums."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    format_of,
    hull,
    increasing,
    is_float,
    moved,
    rounded,
    undecided_where,
)
from driftnet.oracle.ball_arithmetic.linear import Sum
from driftnet.oracle.ball_arithmetic.reduction import extreme, index_between
from driftnet.oracle.ball_arithmetic.rules import Context, Integers, attribute, rule
from driftnet.oracle.ball_arithmetic.sliding import CEIL_MODE_SETTLED, Sliding, sliding, window_attributes, windows
from driftnet.oracle.tolerances.table import LP_POOL_ROUNDINGS


@rule("MaxPool")
def max_pool(x: Ball, *, kernel_shape: Sequence[int], storage_order: int = 0, node: Node) -> list[Ball | None]:
    """The maximum of each window, and where it stands in the flat tensor: any of equals, says no standard which"""
    where = sliding(node, x.shape[2:], kernel_shape)
    fill = -np.inf if is_float(x.dtype) or x.radius is not None else np.iinfo(x.dtype).min
    maxima = increasing(lambda values: windows(values, where, fill).max(where.taps), x)
    return [maxima, _places(x, where, storage_order) if len(node.outputs) > 1 else None]


def _places(x: Ball, where: Sliding, by_columns: int) -> Ball:
    """The flat index of the maximum of each window; between the first and the last that may be it, all where one is
    NaN."""
    sizes = x.shape[2:]
    plane = math.prod(sizes)
    numbers = windows(np.arange(plane).reshape((1, 1, *sizes), order="F" if by_columns else "C"), where, -1)
    low, high = (windows(end, where, -np.inf) for end in (x.low, x.high))
    candidates = ~(high < low.max(where.taps, keepdims=True)) & (numbers >= 0)
    first = np.where(candidates, numbers, plane).min(where.taps)
    last = np.where(candidates, numbers, -1).max(where.taps)
    planes = plane * np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(sizes))
    return index_between(first + planes, last + planes)


@rule("GlobalMaxPool")
def global_max_pool(x: Ball) -> Ball:
    """The maximum over all spatial dims"""
    return extreme(x, tuple(range(2, x.midpoint.ndim)), np.max)


@rule("AveragePool")
def average_pool(
    x: Ball, *, kernel_shape: Sequence[int], count_include_pad: int = 0, node: Node, context: Context
) -> Ball:
    """The mean of each window, over the elements inside the tensor or over the padding too"""
    sizes = x.shape[2:]
    where = sliding(node, sizes, kernel_shape)
    total = Sum.of(x, lambda values: windows(values, where).sum(where.taps), math.prod(where.kernel))
    if not count_include_pad:
        return _mean(total, _inside(where, sizes), x.dtype)
    whole, padded = np.asarray(float(math.prod(where.kernel))), _padded(node, where, sizes)
    if context.opset >= CEIL_MODE_SETTLED or (padded == whole).all():
        return _mean(total, padded, x.dtype)
    return hull([_mean(total, counts, x.dtype) for counts in (whole, padded)])


def _mean(total: Sum, counts: Array, dtype: np.dtype) -> Ball:
    return total.each(lambda y: y / counts).ball(dtype)


@lru_cache(maxsize=256)
def _inside(where: Sliding, sizes: tuple[int, ...]) -> Array:
    """How many elements of a tensor each window sees."""
    return np.asarray(windows(np.ones(sizes), where).sum(tuple(range(-len(sizes), 0))))


def _padded(node: Node, where: Sliding, sizes: tuple[int, ...]) -> Array:
    """How many elements each window sees, padding included, but not what ceil_mode lets it see beyond."""
    if not attribute(node, "ceil_mode", 0):
        return np.asarray(float(math.prod(where.kernel)))
    _, _, pads = window_attributes(node, len(sizes))
    whole = tuple([n + p + q for n, p, q in zip(sizes, pads, pads[len(sizes) :])])
    return _inside(Sliding(where.kernel, where.strides, where.dilations, (0,) * len(sizes), where.count), whole)


@rule("GlobalAveragePool")
def global_average_pool(x: Ball) -> Ball:
    """The mean over all spatial dims, no number of none"""
    axes, count = tuple(range(2, x.midpoint.ndim)), math.prod(x.shape[2:])
    return Sum.of(x, lambda values: values.sum(axes, keepdims=True) / (count or math.nan), count).ball(x.dtype)


@rule("LpPool", "GlobalLpPool")
def lp_pool(x: Ball, *, kernel_shape: Sequence[int] = (), p: int = 2, node: Node) -> Ball:
    """(sum |x|^p)^(1/p), monotone in each |x|: by its ends. Powers may underflow, and each costs some roundings."""
    where = sliding(node, x.shape[2:], kernel_shape or x.shape[2:])
    count, size = math.prod(where.kernel), np.abs(x.numbers)

    def norm(size: Array) -> Array:
        return np.asarray((windows(size, where) ** p).sum(where.taps) ** (1 / p))

    midpoint = norm(size)
    radius = (count * format_of(x.dtype).tiny) ** (1 / p)
    if x.radius is not None:
        radius = radius + np.maximum(norm(size + x.radius) - midpoint, midpoint - norm(np.maximum(size - x.radius, 0)))
    result = rounded(midpoint, radius, x.dtype, roundings=count / p + LP_POOL_ROUNDINGS)
    return undecided_where((midpoint + result.error) ** p > format_of(x.dtype).largest, result)


@rule("MaxUnpool")
def max_unpool(
    x: Ball, at: Ball, output_shape: Integers | None = None, *, kernel_shape: Sequence[int], node: Node
) -> Ball:
    """The maxima that MaxPool found, each where it was, zeros elsewhere; undecided where one may have been or not"""
    strides, _, pads = window_attributes(node, len(kernel_shape))
    dims = zip(x.shape[2:], kernel_shape, strides, pads, pads[len(kernel_shape) :])
    shape = output_shape or [*x.shape[:2], *[(n - 1) * s + k - p - q for n, k, s, p, q in dims]]
    sure = np.broadcast_to(at.error == 0, at.shape)

    def placed(values: Array) -> Array:
        result = np.zeros(math.prod(shape))
        result[at.midpoint[sure].astype(np.int64)] = values[sure]
        return result.reshape(shape)

    unknown = np.zeros(math.prod(shape), np.bool_)
    for low, high in zip(at.low[~sure].tolist(), at.high[~sure].tolist()):
        unknown[int(low) : int(high) + 1] = True
    return undecided_where(unknown.reshape(shape), moved(x, placed))
