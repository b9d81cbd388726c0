"""Ball: a tensor that is known up to rounding.

Ball arithmetic: an element lies in [midpoint - radius, midpoint + radius]. The midpoint is computed in float64; the
radius takes in the operands' radii and the roundings that a right implementation makes in the tensor's own dtype:

    fl(a op b) = (a op b)(1 + d) + e,   |d| <= u, |e| <= eta

with u the unit roundoff and eta the smallest normal number, because engines flush what is smaller to zero (for formats
of less than 32 bits the smallest subnormal one). A tensor of float64 may be computed in float32: mobile engines do.

Three kinds of elements:
    finite midpoint, finite radius    a number in that interval
    infinite or NaN midpoint, radius 0    that very infinity, or NaN
    infinite radius (midpoint 0)    undecided: anything, NaN included. It stays so in whatever is computed from it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from driftnet.model.arrays import distance
from driftnet.oracle.tolerances.table import OWN_ROUNDING

Array = np.ndarray
Number = Array | float
NARROW = {np.dtype(ml_dtypes.int4): np.dtype(np.int8), np.dtype(ml_dtypes.uint4): np.dtype(np.uint8)}
"""Integer dtypes that numpy does not compute in, and those that hold them here."""


@dataclass(frozen=True)
class Format:
    """A floating-point format: unit roundoff, what may be lost to underflow, largest finite number."""

    unit: float
    tiny: float
    largest: float


@cache
def format_of(dtype: np.dtype) -> Format:
    """What a float dtype, numpy's or one of ml_dtypes, may be computed in: float64 in float32, any other in itself."""
    finfo: Any = ml_dtypes.finfo  # it has no annotations
    info = finfo(np.float32 if dtype == np.float64 else dtype)
    tiny = float(info.smallest_normal if dtype.itemsize >= 4 else info.smallest_subnormal)
    return Format(float(info.eps) / 2, tiny, float(info.max))


@cache
def normal_of(dtype: np.dtype) -> float:
    """The smallest number of a float dtype that has all of its digits."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtype).smallest_normal)


@cache
def is_float(dtype: np.dtype) -> bool:
    """Whether numbers of `dtype` round: float16 to float64, bfloat16, the float8 formats."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype not in NARROW)


FLOAT, HALF = np.dtype(np.float32), np.dtype(np.float16)
U = format_of(FLOAT).unit


class Undecided(Exception):
    """A rule has no answer; the message says why."""


class Open(Undecided):
    """Nobody has: the standard leaves it open, or engines differ."""


@dataclass(frozen=True, eq=False)
class Ball:
    """A tensor between midpoint - radius and midpoint + radius.

    midpoint  float64; for exact integers, truth values and strings the array in its own dtype (int4 in int8)
    radius  float64 of the same shape, or None: exactly the midpoint. Uncertain truth values are 0.5 +- 0.5
    dtype   what the tensor has in the model; int4 and uint4 included
    terms   of a sum, how many: what is added next may be the number that an engine begins it with, and be rounded as
            often
    """

    midpoint: Array
    radius: Array | None
    dtype: np.dtype
    terms: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.midpoint.shape

    @property
    def numbers(self) -> Array:
        """The midpoint in float64."""
        return self.midpoint if self.midpoint.dtype == np.float64 else self.midpoint.astype(np.float64)

    @property
    def error(self) -> Array:
        """The radius, a single 0 where everything is exact."""
        return _ZERO if self.radius is None else self.radius

    @property
    def low(self) -> Array:
        return np.asarray(self.numbers - self.error)

    @property
    def high(self) -> Array:
        return np.asarray(self.numbers + self.error)

    @property
    def undecided(self) -> Array:
        """Where anything may stand; of the ball's shape, or a single False."""
        return np.asarray(np.isinf(self.error))


_ZERO = np.zeros(())


def exact(x: Array) -> Ball:
    """The ball that is `x` itself."""
    if is_float(x.dtype):
        return Ball(x.astype(np.float64), None, x.dtype)
    return Ball(x.astype(NARROW.get(x.dtype, x.dtype), copy=False), None, x.dtype)


def constant(number: float, dtype: np.dtype) -> Ball:
    """A number that is exactly known, as a tensor of `dtype` without dims."""
    return Ball(np.asarray(number, np.float64 if is_float(dtype) else NARROW.get(dtype, dtype)), None, dtype)


def held(x: Array) -> Ball:
    """The ball of a number that is given: `x`, or for a float64 what float32 holds of it."""
    ball = exact(x)
    if x.dtype != np.float64 or not (lost := np.nan_to_num(np.abs(x - x.astype(np.float32)), nan=0.0)).any():
        return ball
    return Ball(ball.midpoint, lost, ball.dtype)


def half(x: Array) -> Ball:
    """Of a float32, what lies as far from `x` as the float16 nearest to it, which may be taken instead; undecided where
    that overflows. Any other as `held`."""
    if x.dtype != FLOAT:
        return held(x)
    finite, tiny = np.isfinite(x), format_of(HALF).tiny
    lost = distance(x.astype(HALF), x) + tiny * ((x != 0) & (np.abs(x) < tiny))
    lost = np.where(finite, lost, 0.0)
    return widened(x, lost, HALF) if lost.any() else Ball(x.astype(np.float64), None, HALF)


def in_half(made: Any) -> Any:
    """A result, a tuple of balls for a sequence, in float16 where it is a float32."""
    if isinstance(made, tuple):
        return tuple(map(in_half, made))
    if not isinstance(made, Ball) or made.dtype != FLOAT:
        return made
    if made.radius is None:
        return half(made.midpoint.astype(FLOAT))
    return rounded(made.midpoint, made.radius, HALF, roundings=1)


def value(ball: Ball) -> Array:
    """The array in its own dtype. Raises Undecided where it is not exactly known."""
    if ball.radius is not None and ball.radius.any():
        raise Undecided("a parameter depends on rounding")
    return np.asarray(ball.midpoint.astype(ball.dtype if ball.dtype not in NARROW else ball.midpoint.dtype, copy=False))


def rounded(
    midpoint: Number, radius: Number, dtype: np.dtype, *, roundings: float = 2.0, size: Number | None = None
) -> Ball:
    """The ball around `midpoint`, known to `radius`, after `roundings` roundings of numbers as large as `size`.

    size   |midpoint| by default; for a sum that of its terms together. An integer dtype does not round.
    What may overflow is undecided, because an engine may keep more range on the way. An infinity or NaN is known where
    radius is 0, and undecided otherwise.
    """
    if not is_float(dtype):
        return widened(midpoint, radius, dtype)
    midpoint = np.asarray(midpoint)
    form, magnitude = format_of(dtype), np.abs(midpoint)
    size = magnitude if size is None else np.asarray(size)
    error = radius + (roundings * form.unit) * (size + radius) + form.tiny * (size != 0)
    odd = ~(magnitude + error <= form.largest)
    if odd.any():
        known = odd & ~np.isfinite(midpoint) & (np.asarray(radius) == 0)
        error = np.where(odd, np.where(known, 0.0, np.inf), error)
        midpoint = np.where(odd & ~known, 0.0, midpoint)
    return Ball(midpoint, spread(error, midpoint.shape), dtype)


def widened(midpoint: Number, radius: Number, dtype: np.dtype) -> Ball:
    """The ball around `midpoint` with `radius`, no rounding added; undecided where either makes no sense.

    Integers that may lie beyond the range of their dtype, or that float64 does not hold, are undecided.
    """
    midpoint = np.asarray(midpoint, np.float64)
    radius = spread(np.asarray(radius, np.float64), midpoint.shape)
    odd = ~np.isfinite(midpoint + radius)
    if odd.any():
        odd &= ~((radius == 0) | ((radius < np.inf) & np.isfinite(midpoint)))
    if dtype.kind in "iu":
        least, most = range_of(dtype)
        odd |= ~((midpoint - radius >= least) & (midpoint + radius <= most))
    if odd.any():
        midpoint, radius = np.where(odd, 0.0, midpoint), np.where(odd, np.inf, radius)
    return Ball(midpoint, radius, dtype)


def spread(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` broadcast to `shape`."""
    return x if x.shape == shape else np.broadcast_to(x, shape)


@cache
def range_of(dtype: np.dtype) -> tuple[float, float]:
    """(least, largest) integer of `dtype` that float64 holds."""
    iinfo: Any = ml_dtypes.iinfo
    info = iinfo(dtype)
    return max(float(info.min), -(2.0**53)), min(float(info.max), 2.0**53)


def truth(surely: Array, possibly: Array) -> Ball:
    """Truth values: true where `surely`, false where not even `possibly`, and either between."""
    if np.array_equal(surely, possibly):
        return Ball(np.asarray(surely), None, np.dtype(bool))
    open_ = surely != possibly
    return Ball(np.where(open_, 0.5, surely), np.where(open_, 0.5, 0.0), np.dtype(bool))


def between(low: Number, high: Number, dtype: np.dtype) -> Ball:
    """The ball whose elements lie between two ends; undecided where an end is NaN, or only one is an infinity."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    own = OWN_ROUNDING * np.maximum(np.abs(low), np.abs(high)) if is_float(dtype) else 0.0
    with np.errstate(invalid="ignore"):  # an end may be an infinity
        half = (high - low) / 2
        midpoint, radius = low + half, np.where(half == 0, 0.0, half + own)
    infinite = np.isnan(half) & (low == high)
    if infinite.any():
        midpoint, radius = np.where(infinite, low, midpoint), np.where(infinite, 0.0, radius)
    return widened(midpoint, radius, dtype)


def hull(balls: Sequence[Ball]) -> Ball:
    """The smallest ball that holds every one of `balls`, which have one shape."""
    low, high = balls[0].low, balls[0].high
    for ball in balls[1:]:
        low, high = np.minimum(low, ball.low), np.maximum(high, ball.high)
    result = between(low, high, balls[0].dtype)
    for ball in balls:
        result = undecided_where(ball.undecided, result)
    return result


def increasing(function: Callable[..., Array], *balls: Ball) -> Ball:
    """`function`, which rises with every element: exact of what is exact; undecided where it is NaN, on which engines
    differ."""
    dtype = balls[0].dtype
    if all(ball.radius is None for ball in balls):
        result = np.asarray(function(*[ball.midpoint for ball in balls]))
        if result.dtype.kind != "f" or not np.isnan(result).any():
            return Ball(result, None, dtype)
    return between(function(*[ball.low for ball in balls]), function(*[ball.high for ball in balls]), dtype)


def positive(x: Ball) -> Ball:
    """`x`, of which it is known that it is not negative."""
    if x.radius is None:
        return x
    low = np.maximum(x.low, 0)
    return undecided_where(x.undecided, widened((x.high + low) / 2, (x.high - low) / 2, x.dtype))


def undecided_where(mask: Array, ball: Ball) -> Ball:
    """`ball`, undecided where `mask`, which broadcasts to it, is set."""
    if not mask.any():
        return ball
    mask = np.broadcast_to(mask, ball.shape)
    radius = np.where(mask, np.inf, ball.error)
    return Ball(np.where(mask, 0.0, ball.numbers), radius, ball.dtype)


def outside(ball: Ball, x: np.ndarray) -> np.ndarray:
    """Where `x`, of the ball's shape, is no right answer."""
    return np.asarray(distance(x, ball.midpoint) > ball.error)


def moved(ball: Ball, move: Callable[[Array], Array]) -> Ball:
    """The ball whose elements `move` takes from those of `ball`."""
    radius = None if ball.radius is None else np.asarray(move(ball.radius))
    return Ball(np.asarray(move(ball.midpoint)), radius, ball.dtype)


def joined(balls: Sequence[Ball], join: Callable[[Sequence[Array]], Array]) -> Ball:
    """The ball whose elements `join` takes from those of `balls`, which have one dtype."""
    dtype = balls[0].dtype
    if all(ball.radius is None for ball in balls):
        return Ball(np.asarray(join([ball.midpoint for ball in balls])), None, dtype)
    radii = [np.broadcast_to(ball.error, ball.shape) for ball in balls]
    return Ball(np.asarray(join([ball.numbers for ball in balls])), np.asarray(join(radii)), dtype)
