"""Arithmetic, element by element, with NumPy's broadcasting.

    sum       r = r1 + r2,  roundings of |x| + |y|, because a converter may add constants in another order
    product   r = |x| r2 + |y| r1 + r1 r2,  two roundings, because it may multiply constants first
    quotient  r = (r1 + |x / y| r2) / (|y| - r2)

Integers that are exactly known are computed in their own dtype, and wrap.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np
from driftnet.oracle.ball_arithmetic import ball as balls
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Undecided,
    constant,
    format_of,
    is_float,
    rounded,
    undecided_where,
)
from driftnet.oracle.ball_arithmetic.rules import rule


@rule("Add", "Sum")
def add(*operands: Ball) -> Ball:
    """x + y + ..."""
    return reduce(_sum, operands)


def _sum(x: Ball, y: Ball) -> Ball:
    if is_wrapping(x, y):
        return Ball(np.asarray(x.midpoint + y.midpoint), None, x.dtype)
    a, b = x.numbers, y.numbers
    within = begun_with(x, np.abs(b)) + begun_with(y, np.abs(a))
    return rounded(a + b, x.error + y.error + within, x.dtype, size=np.abs(a) + np.abs(b))


def begun_with(x: Ball, size: Array) -> Array | float:
    """What rounding makes of numbers of this size more, if the sum that x is begins with them."""
    return x.terms * format_of(x.dtype).unit * size if x.terms else 0.0


@rule("Sub")
def subtract(x: Ball, y: Ball) -> Ball:
    """x - y"""
    if is_wrapping(x, y):
        return Ball(np.asarray(x.midpoint - y.midpoint), None, x.dtype)
    return add(x, negated(y))


@rule("Neg")
def negated(x: Ball) -> Ball:
    """-x"""
    return _mirrored(x, np.negative)


@rule("Abs")
def absolute(x: Ball) -> Ball:
    """|x|"""
    return _mirrored(x, np.abs)


def _mirrored(x: Ball, function: Callable[[Array], Array]) -> Ball:
    """`function` of x, which gives x or -x: of integers the least has no opposite."""
    if x.radius is None or is_float(x.dtype):
        return Ball(np.asarray(function(x.midpoint)), x.radius, x.dtype)
    return balls.widened(function(x.midpoint), x.radius, x.dtype)


@rule("Mul")
def multiply(x: Ball, y: Ball) -> Ball:
    """x y"""
    if is_wrapping(x, y):
        return Ball(np.asarray(x.midpoint * y.midpoint), None, x.dtype)
    return replace(product(x, y, x.dtype), terms=max(x.terms, y.terms))  # a factor may be folded into the sum


def product(x: Ball, y: Ball, dtype: np.dtype) -> Ball:
    """x y, rounded to `dtype`."""
    a, b = x.numbers, y.numbers
    if x.radius is None and y.radius is None:
        return rounded(a * b, 0.0, dtype)
    return rounded(a * b, np.abs(a) * y.error + np.abs(b) * x.error + x.error * y.error, dtype)


@rule("Div")
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


@rule("Reciprocal")
def reciprocal(x: Ball) -> Ball:
    """1 / x"""
    return divide(constant(1, x.dtype), x)


@rule("Mean")
def mean(*operands: Ball) -> Ball:
    """The sum of the operands over their number"""
    return scaled(add(*operands), 1 / len(operands))


def scaled(x: Ball, factor: float) -> Ball:
    """x times a number that an engine may round."""
    return rounded(x.numbers * factor, x.error * abs(factor), x.dtype)


def is_wrapping(*operands: Ball) -> bool:
    """Whether these are integers, all of them exactly known."""
    return not is_float(operands[0].dtype) and all(x.radius is None for x in operands)


@rule("Max")
def larger(*operands: Ball) -> Ball:
    """The largest of the operands; undecided where one is NaN, for which engines differ."""
    return reduce(lambda x, y: _selected(np.maximum, x, y), operands)


@rule("Min")
def smaller(*operands: Ball) -> Ball:
    """The smallest of the operands; undecided where one is NaN."""
    return reduce(lambda x, y: _selected(np.minimum, x, y), operands)


def _selected(choose: Callable[..., Array], x: Ball, y: Ball) -> Ball:
    return undecided_where(x.undecided | y.undecided, balls.increasing(choose, x, y))


@rule("Relu")
def relu(x: Ball) -> Ball:
    """max(x, 0)"""
    return larger(x, constant(0, x.dtype))


@rule("PRelu")
def prelu(x: Ball, slope: Ball) -> Ball:
    """x where x > 0, else slope x"""
    zero = constant(0, x.dtype)
    return add(larger(x, zero), multiply(smaller(x, zero), slope))


@rule("Clip")
def clip(x: Ball, min: Ball | float | None = None, max: Ball | float | None = None) -> Ball:
    """min(max(x, low), high); the bounds are attributes before opset 11"""
    for bound, take in ((min, larger), (max, smaller)):
        if bound is not None:
            x = take(x, bound if isinstance(bound, Ball) else constant(bound, x.dtype))
    return x


@rule("Where")
def select(condition: Ball, x: Ball, y: Ball) -> Ball:
    """x where the condition holds, else y; where it may or may not, the hull of both."""
    if condition.radius is None:
        if x.radius is None and y.radius is None:
            return Ball(np.asarray(np.where(condition.midpoint, x.midpoint, y.midpoint)), None, x.dtype)
        midpoint = np.where(condition.midpoint, x.numbers, y.numbers)
        return Ball(midpoint, balls.spread(np.where(condition.midpoint, x.error, y.error), midpoint.shape), x.dtype)
    if x.dtype.kind not in "biuf" and not is_float(x.dtype):
        raise Undecided("a choice between strings depends on rounding")
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    x, y = (balls.moved(ball, lambda a: balls.spread(a, shape)) for ball in (x, y))
    either = balls.hull([x, y])
    chosen, open_ = condition.midpoint > 0.5, condition.error > 0
    midpoint = np.where(open_, either.midpoint, np.where(chosen, x.numbers, y.numbers))
    return Ball(midpoint, np.where(open_, either.error, np.where(chosen, x.error, y.error)), x.dtype)


@rule("Mod")
def mod(x: Ball, y: Ball, *, fmod: int = 0) -> Ball:
    """x - y trunc(x / y) when fmod, else x - y floor(x / y); undecided next to a jump"""
    rest, whole = (np.fmod, np.trunc) if fmod else (np.mod, np.floor)
    if is_wrapping(x, y):
        remainder = rest(x.midpoint, np.where(y.midpoint == 0, 1, y.midpoint))
        return undecided_where(y.midpoint == 0, Ball(remainder, None, x.dtype))
    quotient = divide(x, y)
    turns = whole(quotient.low)
    jump = turns != whole(quotient.high)
    divides = (x.error == 0) & (y.error == 0) & (np.fmod(x.numbers, y.numbers) == 0)
    radius = x.error + np.abs(turns) * y.error
    result = rounded(rest(x.numbers, y.numbers), radius, x.dtype, size=np.abs(x.numbers))
    return undecided_where(jump & ~divides, result)
