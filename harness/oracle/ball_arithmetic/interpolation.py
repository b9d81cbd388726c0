"""Interpolation along one axis: positions between elements as rows of weights on them.

A position is computed in float32, so it is known to a few roundings: p +- e. The weights are those at p; their radius
is how far they are from those at p - e and p + e: over so short a way they are monotone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from driftnet.oracle.ball_arithmetic.ball import FLOAT, Array, Ball, U, Undecided
from driftnet.oracle.ball_arithmetic.linear import products
from driftnet.oracle.tolerances.table import CURVED

LARGEST = 2**22
"""Weights; beyond, an image is too large for a dense matrix of them."""


@dataclass(frozen=True)
class Kernel:
    """How neighbours are weighted.

    mode      "nearest" (halves to even), "linear" or "cubic"
    outside   what stands for an element beyond the ends: "clamp" the last one, "drop" zero, "exclude" nothing (the
              weights left are scaled to a sum of 1), "reflect" about the outer edges, "reflect centres" about centres
    a         coefficient of the cubic
    stretch   how much wider than one element the kernel is, so as not to skip elements when an image shrinks; the
              weights of the wider kernel are scaled to a sum of 1
    """

    mode: str
    outside: str
    a: float = -0.75
    stretch: float = 1.0

    @property
    def reach(self) -> int:
        """How many elements on either side of a position may count."""
        return math.ceil((2 if self.mode == "cubic" else 1) * self.stretch)

    def weights(self, p: Array, n: int) -> Array:
        """Rows of n weights, one for each position."""
        p = self.inside(p, n)
        base = np.rint(p) if self.mode == "nearest" else np.floor(p)
        taps = [(base, np.ones(p.shape))]
        if self.mode != "nearest":
            near = [base + k for k in range(1 - self.reach, self.reach + 1)]
            taps = [(where, self.weight(np.abs(where - p) / self.stretch)) for where in near]
        rows = np.zeros((*p.shape, n))
        elements = np.arange(n)
        for where, weight in taps:
            rows += np.where(elements == self.index(where, n)[..., None], weight[..., None], 0.0)
        if self.outside == "exclude":
            rows /= rows.sum(-1, keepdims=True)
        elif self.stretch > 1:
            rows /= reduce(np.add, [weight for _, weight in taps])[..., None]
        return rows

    def inside(self, p: Array, n: int) -> Array:
        """The position itself moved inside, where it is that and not the neighbours that are moved."""
        if self.mode == "cubic" or not self.outside.startswith(("clamp", "reflect")):
            return p
        return self.index(p, n)

    def index(self, where: Array, n: int) -> Array:
        """The element that stands for position `where`; -1 for none."""
        match self.outside:
            case "clamp":
                return np.asarray(np.clip(where, 0, n - 1))
            case "reflect":
                return np.asarray(np.abs((where + 0.5 - n) % (2 * n) - n) - 0.5)
            case "reflect centres":
                last = max(n - 1, 1)
                return np.asarray(np.minimum(np.abs((where - last) % (2 * last) - last), n - 1))
        return np.asarray(np.where((where >= 0) & (where <= n - 1), where, -1))

    def weight(self, d: Array) -> Array:
        """The weight of an element at distance d: a tent, or Keys' cubic."""
        if self.mode == "linear":
            return np.asarray(np.maximum(1 - d, 0))
        a = self.a
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        return np.asarray(np.where(d <= 1, near, np.where(d < 2, (((d - 5) * d + 8) * d - 4) * a, 0)))

    def ball(self, p: Array, e: Array, n: int) -> Ball:
        """The rows of weights at positions p +- e."""
        if p.size * n > LARGEST:
            raise Undecided("an image too large for a matrix of weights")
        midpoint = self.weights(p, n)
        sides = [np.abs(self.weights(end, n) - midpoint) for end in (p - e, p + e)]
        # The polynomials of the cubic add terms up to 8 |a|; those of the others are at most 1.
        roundings = 32 * abs(self.a) if self.mode == "cubic" else 2 + 8 * (self.stretch > 1)
        rounded = (roundings * U) * (midpoint != 0)
        if self.outside == "exclude":  # a division by the sum of those that are left, which may be less than 1
            left = np.abs(replace(self, outside="drop").weights(p, n).sum(-1, keepdims=True))
            rounded = rounded / np.minimum(left, 1.0)
        return Ball(midpoint, np.maximum(*sides) * (1 + CURVED) + rounded, FLOAT)


def weighable(x: Ball) -> Ball:
    """`x`, all of it finite. Raises Undecided where an element may be an infinity or NaN: of one that has a weight of 0
    some engines make NaN and some do not read it, along axes that keep their size too."""
    if np.isfinite(x.low).all() and np.isfinite(x.high).all():
        return x
    raise Undecided("what is no number, times a weight of 0")


def crossed(axes: Sequence[Ball]) -> Ball:
    """Weights (..., P, n) of each axis as weights (..., P, n1 n2 ...) of the image, each product rounded."""
    return reduce(_crossed, axes)


def _crossed(a: Ball, b: Ball) -> Ball:
    if a.midpoint.size * b.shape[-1] > LARGEST:
        raise Undecided("an image too large for a matrix of weights")
    midpoint = a.midpoint[..., :, None] * b.midpoint[..., None, :]
    shape = (*midpoint.shape[:-2], -1)
    if a.radius is None and b.radius is None:
        return Ball(midpoint.reshape(shape), None, FLOAT)
    most = (np.abs(a.midpoint) + a.error)[..., :, None] * (np.abs(b.midpoint) + b.error)[..., None, :]
    return Ball(midpoint.reshape(shape), (most - np.abs(midpoint)).reshape(shape), FLOAT)


def interpolated(x: Ball, rows: Ball, axis: int, taps: int) -> Ball:
    """x with `axis` taken to as many elements as there are rows of weights, up to `taps` of them not zero in each."""

    def interpolate(values: Array, weights: Array) -> Array:
        return np.asarray((values.swapaxes(axis, -1) @ weights.T).swapaxes(axis, -1))

    return products(interpolate, x, rows, taps).ball(x.dtype)
