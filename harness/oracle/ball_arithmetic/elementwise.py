"""Arithmetic, element by element, with NumPy's broadcasting.

    sum       r = r1 + r2,  roundings of |x| + |y|, because a converter may add constants in another order
    product   r = |x| r2 + |y| r1 + r1 r2,  two roundings, because it may multiply constants first
    quotient  r = (r1 + |x / y| r2) / (|y| - r2)

Integers that are exactly known are computed in their own dtype, and wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Undecided,
    between,
    hull,
    is_float,
    rounded,
    spread,
    undecided_where,
    widened,
)
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, rule


def add(x: Ball, y: Ball) -> Ball:
    """x + y"""
    if is_wrapping(x, y):
        return Ball(np.asarray(x.midpoint + y.midpoint), None, x.dtype)
    a, b = x.numbers, y.numbers
    return rounded(a + b, x.error + y.error, x.dtype, size=np.abs(a) + np.abs(b))


def negated(x: Ball) -> Ball:
    """-x"""
    return _mirrored(x, np.negative)


def _mirrored(x: Ball, function: Callable[[Array], Array]) -> Ball:
    """`function` of x, which gives x or -x: of integers the least has no opposite."""
    if x.radius is None or is_float(x.dtype):
        return Ball(np.asarray(function(x.midpoint)), x.radius, x.dtype)
    return widened(function(x.midpoint), x.radius, x.dtype)


def multiply(x: Ball, y: Ball) -> Ball:
    """x y"""
    if is_wrapping(x, y):
        return Ball(np.asarray(x.midpoint * y.midpoint), None, x.dtype)
    a, b = x.numbers, y.numbers
    if x.radius is None and y.radius is None:
        return rounded(a * b, 0.0, x.dtype)
    return rounded(a * b, np.abs(a) * y.error + np.abs(b) * x.error + x.error * y.error, x.dtype)


def divide(x: Ball, y: Ball) -> Ball:
    """x / y, towards zero for integers; undecided where a divisor that is not exactly known may be 0."""
    if is_wrapping(x, y):
        return _whole_quotient(x, y)
    if not is_float(x.dtype):
        raise Undecided("a quotient of integers that depend on rounding")
    a, b = x.numbers, y.numbers
    quotient = a / b
    if x.radius is None and y.radius is None:
        return rounded(quotient, 0.0, x.dtype)
    least = np.abs(b) - y.error
    numerator = x.error + np.abs(quotient) * y.error
    # 0 / least is 0 also where the divisor is an exact 0: then the quotient is an exact infinity or NaN
    radius = np.where(numerator == 0, 0.0, numerator / least)
    return rounded(quotient, np.where((least > 0) | (y.error == 0), radius, np.inf), x.dtype)


def _whole_quotient(x: Ball, y: Ball) -> Ball:
    divisor = np.where(y.midpoint == 0, 1, y.midpoint)
    quotient = x.midpoint // divisor
    quotient = quotient + ((quotient < 0) & (quotient * divisor != x.midpoint)).astype(x.midpoint.dtype)
    return undecided_where(y.midpoint == 0, Ball(quotient, None, x.dtype))


def is_wrapping(*balls: Ball) -> bool:
    """Whether these are integers, all of them exactly known."""
    return not is_float(balls[0].dtype) and all(b.radius is None for b in balls)


def larger(x: Ball, y: Ball) -> Ball:
    """max(x, y); undecided where one is NaN, for which engines differ."""
    return _selected(x, y, np.maximum)


def smaller(x: Ball, y: Ball) -> Ball:
    """min(x, y); undecided where one is NaN."""
    return _selected(x, y, np.minimum)


def _selected(x: Ball, y: Ball, choose: Callable[[Array, Array], Array]) -> Ball:
    if is_wrapping(x, y):
        return Ball(np.asarray(choose(x.midpoint, y.midpoint)), None, x.dtype)
    chosen = between(choose(x.low, y.low), choose(x.high, y.high), x.dtype)
    return undecided_where(x.undecided | y.undecided, chosen)


def select(condition: Ball, x: Ball, y: Ball) -> Ball:
    """x where the condition holds, else y; where it may or may not, the hull of both."""
    if condition.radius is None:
        if x.radius is None and y.radius is None:
            return Ball(np.asarray(np.where(condition.midpoint, x.midpoint, y.midpoint)), None, x.dtype)
        midpoint = np.where(condition.midpoint, x.numbers, y.numbers)
        return Ball(midpoint, spread(np.where(condition.midpoint, x.error, y.error), midpoint.shape), x.dtype)
    if x.dtype.kind not in "biuf" and not is_float(x.dtype):
        raise Undecided("a choice between strings depends on rounding")
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    x, y = broadcast(x, shape), broadcast(y, shape)
    either = hull([x, y])
    chosen, open_ = condition.midpoint > 0.5, condition.error > 0
    midpoint = np.where(open_, either.midpoint, np.where(chosen, x.numbers, y.numbers))
    return Ball(midpoint, np.where(open_, either.error, np.where(chosen, x.error, y.error)), x.dtype)


def broadcast(ball: Ball, shape: tuple[int, ...]) -> Ball:
    """`ball` broadcast to a shape."""
    radius = None if ball.radius is None else spread(ball.radius, shape)
    return Ball(spread(ball.midpoint, shape), radius, ball.dtype)


def absolute(x: Ball) -> Ball:
    """|x|"""
    return _mirrored(x, np.abs)


@rule("Identity")
def _identity(node: Node, operands: Operands, context: Context) -> Results:
    return [operands[0]]


@rule("Add", "Sum")
def _add(node: Node, operands: Operands, context: Context) -> Results:
    return [reduce(add, operands)]


@rule("Sub")
def _subtract(node: Node, operands: Operands, context: Context) -> Results:
    x, y = operands
    if is_wrapping(x, y):
        return [Ball(np.asarray(x.midpoint - y.midpoint), None, x.dtype)]
    return [add(x, negated(y))]


@rule("Mul")
def _multiply(node: Node, operands: Operands, context: Context) -> Results:
    return [multiply(operands[0], operands[1])]


@rule("Div")
def _divide(node: Node, operands: Operands, context: Context) -> Results:
    return [divide(operands[0], operands[1])]


@rule("Mean")
def _mean(node: Node, operands: Operands, context: Context) -> Results:
    total = reduce(add, operands)
    return [rounded(total.numbers / len(operands), total.error / len(operands), total.dtype)]


@rule("Max")
def _max(node: Node, operands: Operands, context: Context) -> Results:
    return [reduce(larger, operands)]


@rule("Min")
def _min(node: Node, operands: Operands, context: Context) -> Results:
    return [reduce(smaller, operands)]


@rule("Clip")
def _clip(node: Node, operands: Operands, context: Context) -> Results:
    """min(max(x, low), high); the bounds are attributes before opset 11"""
    x, *bounds = operands
    for name, take in (("min", larger), ("max", smaller)):
        if name in node.attributes:
            x = take(x, Ball(np.asarray(float(node.attributes[name])), None, x.dtype))
    for bound, take in zip(bounds, (larger, smaller)):
        x = x if bound is None else take(x, bound)
    return [x]


@rule("Relu")
def _relu(node: Node, operands: Operands, context: Context) -> Results:
    x = operands[0]
    return [larger(x, Ball(np.zeros((), x.midpoint.dtype), None, x.dtype))]


@rule("Neg")
def _neg(node: Node, operands: Operands, context: Context) -> Results:
    return [negated(operands[0])]


@rule("Abs")
def _abs(node: Node, operands: Operands, context: Context) -> Results:
    return [absolute(operands[0])]


@rule("Where")
def _where(node: Node, operands: Operands, context: Context) -> Results:
    condition, x, y = operands
    return [select(condition, x, y)]


@rule("Mod")
def _mod(node: Node, operands: Operands, context: Context) -> Results:
    """x - y trunc(x / y) when fmod, else x - y floor(x / y); undecided next to a jump"""
    x, y = operands
    truncated = node.attributes.get("fmod", 0)
    if is_wrapping(x, y):
        divisor = np.where(y.midpoint == 0, 1, y.midpoint)
        remainder = (np.fmod if truncated else np.mod)(x.midpoint, divisor)
        return [undecided_where(y.midpoint == 0, Ball(remainder, None, x.dtype))]
    quotient = divide(x, y)
    whole = (np.trunc if truncated else np.floor)(quotient.low)
    jump = whole != (np.trunc if truncated else np.floor)(quotient.high)
    divides = (x.error == 0) & (y.error == 0) & (np.fmod(x.numbers, y.numbers) == 0)
    remainder = (np.fmod if truncated else np.mod)(x.numbers, y.numbers)
    result = rounded(remainder, x.error + np.abs(whole) * y.error, x.dtype, size=np.abs(x.numbers))
    return [undecided_where(jump & ~divides, result)]
