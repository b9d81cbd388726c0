"""Normalizations: deviations from a mean over their spread.

With c = x - mean(x) and v = mean(c^2) over n elements, changes of x by up to r move c by up to

    d = (1 - 2 / n) r + mean(r)

and v, since the c add up to 0, by up to 2 mean(|c| r) + mean(d^2). An engine may take v as mean(x^2) - mean(x)^2, so
that v is also off by gamma_n 2 mean(x^2). Then c / sqrt(v + epsilon) follows as a quotient.
"""

from collections.abc import Callable, Sequence

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Undecided,
    constant,
    format_of,
    moved,
    positive,
    rounded,
    widened,
)
from driftnet.oracle.ball_arithmetic.elementwise import absolute, add, begun_with, divide, multiply, scaled, subtract
from driftnet.oracle.ball_arithmetic.functions import approximated, root, through
from driftnet.oracle.ball_arithmetic.linear import Sum
from driftnet.oracle.ball_arithmetic.reduction import Axes, count, mean, sum_of_squares, total
from driftnet.oracle.ball_arithmetic.rules import Context, Maybe, attribute, rule
from driftnet.oracle.tolerances.table import VARIANCE_EPSILON


def deviation(variance: Ball, epsilon: float) -> Ball:
    """sqrt(variance + epsilon)"""
    return root(add(positive(variance), constant(epsilon, variance.dtype)))


def normalized(x: Ball, axes: Axes, epsilon: float) -> Ball:
    """(x - mean) / sqrt(var + epsilon) over `axes`"""
    if not count(x, axes):
        return x
    centred, variance = moments(x, axes)
    return divide(centred, deviation(variance, epsilon))


def moments(x: Ball, axes: Axes) -> tuple[Ball, Ball]:
    """x - mean and the variance, over `axes`"""
    n, size = count(x, axes), np.abs(x.numbers) + x.error
    radius = np.broadcast_to(x.error, x.shape)
    centre = np.mean(x.numbers, axes, keepdims=True)
    centred = x.numbers - centre
    moves = (1 - 2 / n) * radius + np.mean(radius, axes, keepdims=True)
    change = np.mean(2 * np.abs(centred) * radius + moves**2, axes, keepdims=True)
    squares = 2 * np.mean(size**2, axes, keepdims=True)
    variance = Sum(np.mean(centred**2, axes, keepdims=True), change, squares, n).ball(x.dtype)
    averaged = Sum(centred, moves, np.mean(size, axes, keepdims=True), n).ball(x.dtype)
    return rounded(centred, averaged.error, x.dtype, size=size + np.abs(centre)), variance


def affine(x: Ball, scale: Ball, bias: Ball | None, operator: str) -> Ball:
    """x scale + bias, as `operator` gives it."""
    y = multiply(x, scale)
    y = y if bias is None else add(y, bias)
    return approximated(y.numbers, y.error, y.dtype, operator)


def along(x: Ball, parameter: Ball, axis: int = 1) -> Ball:
    """A parameter with one number for each index of an axis of `x`, shaped to broadcast with it."""
    shape = [1] * x.midpoint.ndim
    shape[axis] = -1
    return moved(parameter, lambda p: p.reshape(shape))


def as_staged(node: Node, x: Ball, function: Callable[[Ball], Ball]) -> Ball:
    """`function` of x, in float32 where the node says that this stage is computed so."""
    single = np.dtype(np.float32)
    if format_of(x.dtype).unit <= format_of(single).unit or attribute(node, "stash_type", 1) != 1:
        return function(x)
    y = function(Ball(x.midpoint, x.radius, single))
    return rounded(y.numbers, y.error, x.dtype, roundings=1)


@rule("BatchNormalization")
def batch_normalization(x: Ball, *parameters: Ball, epsilon: float = 1e-5, training_mode: int = 0, node: Node) -> Ball:
    """(x - mean) scale / sqrt(variance + epsilon) + bias"""
    if training_mode or any(node.outputs[1:]):
        raise Undecided("in training mode")
    scale, bias, centre, variance = (along(x, p, min(1, x.midpoint.ndim - 1)) for p in parameters)
    y = add(multiply(subtract(x, centre), divide(scale, deviation(variance, epsilon))), bias)
    return widened(y.numbers, y.error + begun_with(x, np.abs(bias.numbers)), y.dtype)


@rule("InstanceNormalization")
def instance_normalization(x: Ball, scale: Ball, bias: Ball, *, epsilon: float = 1e-5) -> Ball:
    """Over the spatial dims"""
    y = normalized(x, tuple(range(2, x.midpoint.ndim)), epsilon)
    return affine(y, along(x, scale), along(x, bias), "InstanceNormalization")


@rule("GroupNormalization")
def group_normalization(
    x: Ball, *parameters: Ball, num_groups: int, epsilon: float = 1e-5, node: Node, context: Context
) -> Ball:
    """One scale a channel, a group before opset 21"""
    apart = moved(x, lambda a: a.reshape(a.shape[0], num_groups, -1))
    y = as_staged(node, apart, lambda x: normalized(x, (2,), epsilon))
    y = moved(y, lambda a: a.reshape(x.shape))
    repeats = 1 if context.opset >= 21 else x.shape[1] // num_groups
    scale, bias = (along(x, moved(p, lambda a: np.repeat(a, repeats))) for p in parameters)
    return affine(y, scale, bias, "InstanceNormalization")


@rule("LayerNormalization")
def layer_normalization(
    x: Ball, scale: Ball, bias: Maybe = None, *, axis: int = -1, epsilon: float = 1e-5, node: Node
) -> list[Ball]:
    """The mean and 1 / sqrt(var + epsilon) too"""
    axes = _from(x, axis)
    y = affine(as_staged(node, x, lambda x: normalized(x, axes, epsilon)), scale, bias, "LayerNormalization")
    if not any(node.outputs[1:]):
        return [y]
    staged = Ball(x.midpoint, x.radius, np.dtype(np.float32))
    inverse = divide(constant(1, staged.dtype), deviation(moments(staged, axes)[1], epsilon))
    return [y, mean(staged, axes), approximated(inverse.numbers, inverse.error, inverse.dtype, "LayerNormalization")]


def _from(x: Ball, axis: int) -> Axes:
    """An axis and all behind it."""
    return tuple(range(axis % x.midpoint.ndim, x.midpoint.ndim))


@rule("com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization")
def skip_layer_normalization(
    x: Ball, skip: Ball, scale: Ball, *rest: Maybe, epsilon: float = 1e-12, node: Node
) -> list[Ball | None]:
    """Of x + skip + bias, which is the last result; the simplified one has neither mean nor beta"""
    simplified = node.op.endswith("SimplifiedLayerNormalization")  # of the two names
    beta, bias = [*[None] * simplified, *rest, None, None][:2]
    x = add(*(term for term in (x, skip, bias) if term is not None))
    normalize = root_mean_square_normalized if simplified else normalized
    y = as_staged(node, x, lambda x: normalize(x, _from(x, -1), epsilon))
    return [affine(y, scale, beta, "LayerNormalization"), None, None, x]


def root_mean_square_normalized(x: Ball, axes: Axes, epsilon: float) -> Ball:
    """x / sqrt(mean(x^2) + epsilon) over `axes`"""
    return divide(x, deviation(mean(multiply(x, x), axes), epsilon))


@rule("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(x: Ball, scale: Ball, *, axis: int = -1, epsilon: float = 1e-5, node: Node) -> list[Ball | None]:
    """x scale / sqrt(mean(x^2) + epsilon)"""
    y = as_staged(node, x, lambda x: root_mean_square_normalized(x, _from(x, axis), epsilon))
    return [affine(y, scale, None, "LayerNormalization"), None]


@rule("MeanVarianceNormalization")
def mean_variance_normalization(x: Ball, *, axes: Sequence[int] = (0, 2, 3)) -> Ball:
    """(x - mean) / sqrt(var), to which engines add an epsilon in one place or another"""
    over = tuple(axis % x.midpoint.ndim for axis in axes)
    y = normalized(x, over, 0.0)
    variance = np.var(x.numbers, over, keepdims=True)
    return rounded(y.numbers, y.error + np.abs(y.numbers) * VARIANCE_EPSILON / np.minimum(variance, 1), x.dtype)


@rule("LpNormalization")
def lp_normalization(x: Ball, *, axis: int = -1, p: int = 2) -> Ball:
    """x / its p-norm along an axis"""
    y = divide(x, total(absolute(x), (axis,)) if p == 1 else root(sum_of_squares(x, (axis,))))
    return approximated(y.numbers, y.error, y.dtype, "LpNormalization")


@rule("LRN")
def lrn(x: Ball, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Ball:
    """x / (bias + alpha / size sum of squares over `size` neighbouring channels) ** beta

    An engine may keep a running sum, from which it subtracts what leaves the window.
    """

    def neighbours(squares: Array) -> Array:
        before = (size - 1) // 2
        pads = [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (squares.ndim - 2)
        return np.asarray(np.lib.stride_tricks.sliding_window_view(np.pad(squares, pads), size, 1).sum(-1))

    squares = multiply(x, x)
    running = np.sum(squares.numbers, 1, keepdims=True)
    sums = Sum(neighbours(squares.numbers), neighbours(squares.error), running, 2 * x.shape[1]).ball(x.dtype)
    base = add(scaled(sums, alpha / size), constant(bias, x.dtype))
    return divide(x, through(lambda b: np.power(b, beta), base, "Pow"))
