"""Softmax and its like, and the losses made of them.

softmax_i is largest where x_i is at the upper end of its interval and every other x_j at the lower, and the other way
round. An engine subtracts the maximum first: an exponential is off by u |x - max| relative, the sum by gamma_n.
"""

from collections.abc import Callable

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Undecided,
    between,
    constant,
    format_of,
    moved,
    rounded,
    undecided_where,
    widened,
)
from driftnet.oracle.ball_arithmetic.elementwise import divide, multiply, negated
from driftnet.oracle.ball_arithmetic.functions import approximated
from driftnet.oracle.ball_arithmetic.reduction import position, total
from driftnet.oracle.ball_arithmetic.rules import Context, Maybe, attribute, rule
from driftnet.oracle.tolerances.table import OWN_SUM, SOFTMAX_ROUNDINGS


def softmax(x: Ball) -> Ball:
    """exp(x) / sum exp(x) along the last axis"""
    argument, low, high, rest_low, rest_high = _exponentials(x)
    ends = between(low / (low + rest_high), high / (high + rest_low), x.dtype)
    steps = x.shape[-1] + SOFTMAX_ROUNDINGS + 2 * argument
    tiny = format_of(x.dtype).tiny / format_of(x.dtype).unit  # an engine may cut off what it takes the exponential of
    ends = rounded(ends.numbers, ends.error, x.dtype, roundings=1, size=steps * (ends.numbers + ends.error) + tiny)
    return _unless_undecided(x, approximated(ends.numbers, ends.error, x.dtype, "Softmax"))


def log_softmax(x: Ball) -> Ball:
    """x - log(sum exp(x)) along the last axis"""
    argument, low, high, rest_low, rest_high = _exponentials(x)
    shift = _shift(x)
    least, most = x.low - shift - np.log(low + rest_high), x.high - shift - np.log(high + rest_low)
    ends = between(least, most, x.dtype)
    size = np.abs(x.numbers) + 2 * argument + np.abs(ends.numbers) + x.shape[-1] + SOFTMAX_ROUNDINGS
    ends = rounded(ends.numbers, ends.error, x.dtype, roundings=1, size=size)
    return _unless_undecided(x, approximated(ends.numbers, ends.error, x.dtype, "LogSoftmax"))


def _unless_undecided(x: Ball, y: Ball) -> Ball:
    return undecided_where(np.asarray(x.undecided.any(-1, keepdims=True)), y) if x.undecided.any() else y


def _shift(x: Ball) -> Array:
    return np.asarray(np.max(np.where(x.undecided, -np.inf, x.numbers), -1, keepdims=True))


def _exponentials(x: Ball) -> tuple[Array, ...]:
    """(|x - shift|, exp of the lower ends, of the upper ends, sums of the others' lower ends, of the others' upper)

    Where one exponential outweighs the others, the sum without it is off by our own rounding of the whole.
    """
    shift = _shift(x)
    low = np.exp(x.low - shift)
    high = low if x.radius is None else np.exp(x.high - shift)
    sum_low, sum_high = np.sum(low, -1, keepdims=True), np.sum(high, -1, keepdims=True)
    others_low = np.maximum(sum_low * (1 - OWN_SUM) - low, 0)
    others_high = np.maximum(sum_high * (1 + OWN_SUM) - high, 0)
    argument = np.where(np.isfinite(x.numbers), np.abs(x.numbers - shift), 0.0)
    return argument, low, high, others_low, others_high


def _flattened(x: Array, node: Node, context: Context) -> Array:
    """`x` with the axis that a Softmax goes along last. Before opset 13 that is `axis` and all axes after it as one."""
    if context.opset >= 13:
        return np.moveaxis(x, int(attribute(node, "axis", -1)), -1)
    axis = int(attribute(node, "axis", 1)) % max(x.ndim, 1)
    return x.reshape(*x.shape[:axis], int(np.prod(x.shape[axis:], dtype=int)))


def _along_axis(x: Ball, function: Callable[[Ball], Ball], node: Node, context: Context) -> Ball:
    """`function`, which goes along the last axis, along the node's own."""
    if not x.midpoint.size:
        return x
    y = function(moved(x, lambda a: _flattened(a, node, context)))
    if context.opset >= 13:
        return moved(y, lambda a: np.moveaxis(a, -1, int(attribute(node, "axis", -1))))
    return moved(y, lambda a: a.reshape(x.shape))


@rule("Softmax", "LogSoftmax", "Hardmax")
def along_axis(x: Ball, *, node: Node, context: Context) -> Ball:
    """Along an axis"""
    functions = {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}  # a rule each
    return _along_axis(x, functions[node.op], node, context)


def hardmax(x: Ball) -> Ball:
    """1 at the first maximum along the last axis, else 0"""
    first, final = position(x, -1)
    places = np.arange(x.shape[-1])
    midpoint = np.where(first == final, places == first, 0.5 * ((first <= places) & (places <= final)))
    return widened(midpoint, np.where(first == final, 0.0, midpoint), x.dtype)


@rule("NegativeLogLikelihoodLoss")
def likelihood_loss(
    x: Ball, labels: Array, weight: Maybe = None, *, reduction: str = "mean", ignore_index: int | None = None
) -> Ball:
    """-weight[label] x[label], its sum, or that over the sum of the weights"""
    ignored = labels == ignore_index
    taken = np.where(ignored, 0, labels)
    weights = constant(1, x.dtype) if weight is None else weight
    weights = moved(weights, lambda w: np.where(ignored, 0, w[taken] if w.ndim else w))
    picked = moved(x, lambda a: np.take_along_axis(a, np.expand_dims(taken, 1), 1).squeeze(1))
    losses = multiply(negated(picked), weights)
    if reduction == "none":
        return losses
    whole, weighed = (total(parts, tuple(range(labels.ndim)), keepdims=False) for parts in (losses, weights))
    if reduction == "sum":
        return whole
    if ignored.all():
        raise Undecided("the mean of nothing")
    return divide(whole, weighed)


@rule("SoftmaxCrossEntropyLoss")
def cross_entropy_loss(
    x: Ball, labels: Array, weight: Maybe = None, *, reduction: str = "mean", ignore_index: int | None = None
) -> list[Ball]:
    """The same of the logarithm of softmax, which is the second result"""
    log = moved(log_softmax(moved(x, lambda a: np.moveaxis(a, 1, -1))), lambda a: np.moveaxis(a, -1, 1))
    return [likelihood_loss(log, labels, weight, reduction=reduction, ignore_index=ignore_index), log]
