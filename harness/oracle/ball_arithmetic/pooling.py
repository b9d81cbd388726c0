"""Pooling over the spatial dims: extremes by the ends of intervals, means and norms as sums."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    between,
    exact,
    format_of,
    hull,
    is_float,
    rounded,
    undecided_where,
)
from driftnet.oracle.ball_arithmetic.linear import Sum
from driftnet.oracle.ball_arithmetic.operands import integers, moved
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule
from driftnet.oracle.ball_arithmetic.sliding import CEIL_MODE_SETTLED, Sliding, sliding, window_attributes, windows
from driftnet.oracle.tolerances.table import LP_POOL_ROUNDINGS

INT64 = np.dtype(np.int64)


@rule("MaxPool")
def max_pool(node: Node, operands: Operands, context: Context) -> Results:
    """The maximum of each window, and where it stands in the flat tensor: any of equals, says no standard which"""
    x: Ball = operands[0]
    where = sliding(node, x.shape[2:], node.attributes["kernel_shape"])
    taps = tuple(range(-len(where.kernel), 0))
    fill = -np.inf if is_float(x.dtype) else np.iinfo(x.dtype).min
    if x.radius is None:
        maxima = Ball(np.asarray(windows(x.midpoint, where, fill).max(taps)), None, x.dtype)
    else:
        low, high = (windows(end, where, -np.inf).max(taps) for end in (x.low, x.high))
        maxima = between(low, high, x.dtype)
    if is_float(x.dtype):  # whether NaN counts is open
        maxima = undecided_where(np.isnan(maxima.midpoint), maxima)
    return [maxima, _places(node, x, where) if len(node.outputs) > 1 else None]


def _places(node: Node, x: Ball, where: Sliding) -> Ball:
    """The flat index of the maximum of each window; between the first and the last that may be it, all where one is
    NaN."""
    sizes, taps = x.shape[2:], tuple(range(-len(where.kernel), 0))
    plane = math.prod(sizes)
    order: Literal["C", "F"] = "F" if attribute(node, "storage_order", 0) else "C"
    numbers = windows(np.arange(plane).reshape((1, 1, *sizes), order=order), where, -1)
    low, high = (windows(end, where, -np.inf) for end in (x.low, x.high))
    candidates = ~(high < low.max(taps, keepdims=True)) & (numbers >= 0)
    first, last = np.where(candidates, numbers, plane).min(taps), np.where(candidates, numbers, -1).max(taps)
    planes = plane * np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(sizes))
    return exact(first + planes) if (first == last).all() else between(first + planes, last + planes, INT64)


@rule("GlobalMaxPool")
def global_max_pool(node: Node, operands: Operands, context: Context) -> Results:
    """The maximum over all spatial dims"""
    x: Ball = operands[0]
    axes = tuple(range(2, x.midpoint.ndim))
    if x.radius is None:
        return [Ball(np.asarray(x.midpoint.max(axes, keepdims=True)), None, x.dtype)]
    return [between(x.low.max(axes, keepdims=True), x.high.max(axes, keepdims=True), x.dtype)]


@rule("AveragePool")
def average_pool(node: Node, operands: Operands, context: Context) -> Results:
    """The mean of each window, over the elements inside the tensor or over the padding too"""
    x: Ball = operands[0]
    sizes = x.shape[2:]
    where = sliding(node, sizes, node.attributes["kernel_shape"])
    total = _summed(x, where)
    if not attribute(node, "count_include_pad", 0):
        return [_mean(total, _inside(where, sizes), x.dtype)]
    whole, padded = np.asarray(float(math.prod(where.kernel))), _padded(node, where, sizes)
    if context.opset >= CEIL_MODE_SETTLED or (padded == whole).all():
        return [_mean(total, padded, x.dtype)]
    return [hull([_mean(total, counts, x.dtype) for counts in (whole, padded)])]


def _mean(total: Sum, counts: Array, dtype: np.dtype) -> Ball:
    return total.each(lambda y: y / counts).ball(dtype)


def _summed(x: Ball, where: Sliding) -> Sum:
    taps = tuple(range(-len(where.kernel), 0))

    def add(values: Array) -> Array:
        return np.asarray(windows(values, where).sum(taps))

    radius = 0.0 if x.radius is None else add(x.radius)
    return Sum(add(x.numbers), radius, add(np.abs(x.numbers)), math.prod(where.kernel))


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
def global_average_pool(node: Node, operands: Operands, context: Context) -> Results:
    """The mean over all spatial dims"""
    x: Ball = operands[0]
    axes, count = tuple(range(2, x.midpoint.ndim)), math.prod(x.shape[2:])
    radius = 0.0 if x.radius is None else x.radius.mean(axes, keepdims=True)
    midpoint, size = x.numbers.mean(axes, keepdims=True), np.abs(x.numbers).mean(axes, keepdims=True)
    return [Sum(midpoint, radius, size, count).ball(x.dtype)]


@rule("LpPool")
def lp_pool(node: Node, operands: Operands, context: Context) -> Results:
    """The p-norm of each window"""
    x: Ball = operands[0]
    where = sliding(node, x.shape[2:], node.attributes["kernel_shape"])
    return [_norm(x, where, attribute(node, "p", 2))]


@rule("GlobalLpPool")
def global_lp_pool(node: Node, operands: Operands, context: Context) -> Results:
    """The p-norm over all spatial dims"""
    x: Ball = operands[0]
    sizes = x.shape[2:]
    where = Sliding(sizes, (1,) * len(sizes), (1,) * len(sizes), (0,) * len(sizes), (1,) * len(sizes))
    return [_norm(x, where, attribute(node, "p", 2))]


def _norm(x: Ball, where: Sliding, p: int) -> Ball:
    """(sum |x|^p)^(1/p), monotone in each |x|: by its ends. Powers may underflow, and each costs some roundings."""
    taps, count = tuple(range(-len(where.kernel), 0)), math.prod(where.kernel)

    def norm(size: Array) -> Array:
        return np.asarray((windows(size, where) ** p).sum(taps) ** (1 / p))

    size = np.abs(x.numbers)
    midpoint = norm(size)
    radius = (count * format_of(x.dtype).tiny) ** (1 / p)
    if x.radius is not None:
        radius = radius + np.maximum(norm(size + x.radius) - midpoint, midpoint - norm(np.maximum(size - x.radius, 0)))
    result = rounded(midpoint, radius, x.dtype, roundings=count / p + LP_POOL_ROUNDINGS)
    return undecided_where((midpoint + result.error) ** p > format_of(x.dtype).largest, result)


@rule("MaxUnpool")
def max_unpool(node: Node, operands: Operands, context: Context) -> Results:
    """The maxima that MaxPool found, each where it was, zeros elsewhere; undecided where one may have been or not"""
    x, at = operands[0], operands[1]
    kernel = node.attributes["kernel_shape"]
    strides, _, pads = window_attributes(node, len(kernel))
    dims = zip(x.shape[2:], kernel, strides, pads, pads[len(kernel) :])
    shape = integers(operands, 2) or [*x.shape[:2], *[(n - 1) * s + k - p - q for n, k, s, p, q in dims]]
    sure = np.broadcast_to(at.error == 0, at.shape)

    def placed(values: Array) -> Array:
        result = np.zeros(math.prod(shape))
        result[at.midpoint[sure].astype(np.int64)] = values[sure]
        return result.reshape(shape)

    result = moved(x, placed)
    if sure.all():
        return [result]
    unknown = np.zeros(math.prod(shape), np.bool_)
    for low, high in zip(at.low[~sure].tolist(), at.high[~sure].tolist()):
        unknown[int(low) : int(high) + 1] = True
    return [undecided_where(unknown.reshape(shape), result)]
