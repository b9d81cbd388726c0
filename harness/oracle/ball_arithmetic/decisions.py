"""Where an infinitely small change may change the result: comparisons, logic, rounding, casts, bits.

A ball clear of every tie has one outcome, exactly known. One that straddles a tie gets the hull of the outcomes; a
truth value then is 0.5 +- 0.5.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    NARROW,
    Array,
    Ball,
    Open,
    between,
    exact,
    increasing,
    is_float,
    rounded,
    truth,
    undecided_where,
    value,
)
from driftnet.oracle.ball_arithmetic.rules import dtype_of, rule

Test = Callable[[Array, Array], Array]

# a rule each
ORDERS: dict[str, Test] = {
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}


@rule(*ORDERS)
def order(x: Ball, y: Ball, *, node: Node) -> Ball:
    """A comparison"""
    test = ORDERS[node.op]
    if x.radius is None and y.radius is None:
        return exact(np.asarray(test(x.midpoint, y.midpoint)))
    if node.op.startswith("Less"):  # and LessOrEqual; the others hold of the greater
        return _open(test(x.high, y.low), test(x.low, y.high), x.undecided | y.undecided)
    return _open(test(x.low, y.high), test(x.high, y.low), x.undecided | y.undecided)


@rule("Equal")
def equal(x: Ball, y: Ball) -> Ball:
    """x == y"""
    if x.radius is None and y.radius is None:
        return exact(np.asarray(x.midpoint == y.midpoint, bool))
    surely = (x.numbers == y.numbers) & (x.error + y.error == 0)
    return _open(surely, (x.low <= y.high) & (y.low <= x.high), x.undecided | y.undecided)


def _open(surely: Array, possibly: Array, undecided: Array) -> Ball:
    return truth(surely & ~undecided, possibly | undecided)


@rule("And", "Or", "Xor")
def logic(x: Ball, y: Ball, *, node: Node) -> Ball:
    """Of two truth values"""
    if node.op == "Xor":
        differs, open_ = (x.low > 0.5) != (y.low > 0.5), (x.error > 0) | (y.error > 0)
        return truth(differs & ~open_, differs | open_)
    combine = np.logical_and if node.op == "And" else np.logical_or
    return truth(combine(x.low > 0.5, y.low > 0.5), combine(x.high > 0.5, y.high > 0.5))


@rule("Not")
def not_(x: Ball) -> Ball:
    """Of a truth value"""
    return truth(x.high < 0.5, x.low < 0.5)


@rule("IsNaN")
def is_nan(x: Ball) -> Ball:
    """Whether it is no number"""
    return _open(np.isnan(x.numbers), np.isnan(x.numbers), x.undecided)


@rule("IsInf")
def is_inf(x: Ball, *, detect_positive: int = 1, detect_negative: int = 1) -> Ball:
    """Whether it is infinite"""
    found = bool(detect_positive) & (x.numbers == np.inf) | bool(detect_negative) & (x.numbers == -np.inf)
    return _open(found, found, x.undecided)


# a rule each
STEPS: dict[str, Callable[[Array], Array]] = {"Ceil": np.ceil, "Floor": np.floor, "Round": np.rint, "Sign": np.sign}


@rule(*STEPS)
def step(x: Ball, *, node: Node) -> Ball:
    """Round takes halves to even"""
    return undecided_where(x.undecided, increasing(STEPS[node.op], x))


@rule("Cast")
def cast_to(x: Ball, *, to: int) -> Ball:
    """In the dtype that is named"""
    return cast(x, dtype_of(to))


@rule("CastLike")
def cast_like(x: Ball, like: Ball) -> Ball:
    """In the dtype of another tensor"""
    return cast(x, like.dtype)


def cast(x: Ball, to: np.dtype) -> Ball:
    """`x` in another dtype: integers towards zero, undecided beyond their range; floats rounded, however an engine
    does that. Raises Open for strings of floats.
    """
    if to == x.dtype:
        return x
    if to.kind in "OUST" or x.dtype.kind in "OUST":
        return _cast_string(x, to)
    if to.kind == "b":
        return _open((x.low > 0) | (x.high < 0), (x.numbers != 0) | (x.error > 0), x.undecided | np.isnan(x.numbers))
    if is_float(to):
        return _cast_to_float(x, to)
    if x.radius is None and not is_float(x.dtype):
        return exact(x.midpoint.astype(to))
    ends = [np.trunc(x.low), np.trunc(x.high)]
    if to in NARROW:  # onnxruntime rounds halves away from zero, onnx.reference cuts
        ends += [np.trunc(x.low + np.copysign(0.5, x.low)), np.trunc(x.high + np.copysign(0.5, x.high))]
    result = undecided_where(x.undecided, between(reduce(np.minimum, ends), reduce(np.maximum, ends), to))
    return result if result.error.any() else exact(value(result))


def _cast_to_float(x: Ball, to: np.dtype) -> Ball:
    held = (x.numbers.astype(to).astype(np.float64) == x.numbers) & (x.error == 0)
    if held.all():
        return Ball(x.numbers, None, to)
    result = rounded(x.numbers, x.error, to, roundings=1)
    return Ball(np.where(held, x.numbers, result.midpoint), np.where(held, 0.0, result.error), to)


def _cast_string(x: Ball, to: np.dtype) -> Ball:
    source = value(x)
    if is_float(x.dtype):
        raise Open("how a float is written")
    if to.kind in "OUST":
        return exact(np.asarray([str(item) for item in source.ravel().tolist()], object).reshape(source.shape))
    numbers = np.asarray([float(item) for item in source.ravel().tolist()]).reshape(source.shape)
    return exact(numbers.astype(to))


@rule("BitCast")
def bit_cast(x: Array, *, to: int) -> Ball:
    """The same bits as another dtype"""
    return exact(x.view(dtype_of(to)))


# a rule each
BITS: dict[str, Callable[..., Array]] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.invert,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}


@rule(*BITS)
def bitwise(*operands: Ball, node: Node) -> Ball:
    """Bit by bit"""
    return exact(np.asarray(BITS[node.op](*(value(x) for x in operands))))


@rule("BitShift")
def bit_shift(x: Array, y: Array, *, direction: str) -> Ball:
    """x shifted by y bits"""
    return exact(np.asarray(x << y if direction == "LEFT" else x >> y))
