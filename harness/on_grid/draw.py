"""Lattice: the integer codes of a quantization scheme, and data, weights and constants drawn on them.

Rich data are anywhere among the codes and hold both ends, so that the scheme's formula gives a step of a power of two;
sharp ones are small but for the ends: then single products stand out, and results have a step so fine that one code too
many in one place shows. Coarse data are a few integers k g with a range N g such that N divides the number of steps in
a range (255, say): results of coarse data often are coarse again, so that whole graphs stay on the grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMALL = 4


@dataclass(frozen=True)
class Lattice:
    """The multiples of `scale` from lowest to highest; a symmetric one needs only one of its ends in the data."""

    lowest: int
    highest: int
    scale: float
    symmetric: bool
    sharp: bool

    @staticmethod
    def draw(rng: np.random.Generator, codes: tuple[int, int], symmetric: bool, sharp: bool) -> Lattice:
        """Half of the asymmetric ones have the zero point in the midpoint."""
        lowest, highest = codes
        zero = (lowest + highest + 1) // 2 if rng.random() < 0.5 else int(rng.integers(lowest, highest + 1))
        ends = (-highest, highest) if symmetric else (lowest - zero, highest - zero)
        return Lattice(*ends, 2.0 ** -int(rng.integers(0, 7)), symmetric, sharp)

    def points(self, rng: np.random.Generator, size: int, ends: float = 0.0) -> np.ndarray:
        """Random points; where sharp, a share `ends` of them are ends."""
        if not self.sharp:
            return rng.integers(self.lowest, self.highest + 1, size)
        small = rng.integers(max(self.lowest, -SMALL), min(self.highest, SMALL) + 1, size)
        return np.where(rng.random(size) < ends, rng.choice([self.lowest, self.highest], size), small)

    def fill(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
        """Data with the ends among them, float32; None where they do not fit in."""
        points = self.points(rng, int(np.prod(shape)), ends=0.3)
        if not self.mark(rng, points):
            return None
        return np.asarray((points * self.scale).reshape(shape), np.float32)

    def mark(self, rng: np.random.Generator, points: np.ndarray) -> bool:
        """Put the ends somewhere into `points`; False where it is too small for them."""
        ends = [self.highest * rng.choice([-1, 1])] if self.symmetric else [self.lowest, self.highest]
        if points.size < len(ends):
            return False
        points[rng.choice(points.size, len(ends), replace=False)] = ends
        return True


def steps_of(codes: tuple[int, int], symmetric: bool) -> int:
    """How many steps there are from the one end of a range to the other, or from zero to it."""
    return codes[1] if symmetric else codes[1] - codes[0]


def coarse(
    rng: np.random.Generator, shape: tuple[int, ...], unit: float, steps: int, symmetric: bool, widest: int, count: int
) -> list[np.ndarray]:
    """`count` arrays, float32, on one grid of `unit` with a range of at most `widest`, each with both ends of it."""
    size = int(np.prod(shape))
    wide = int(rng.choice([n for n in range(1, widest + 1) if steps % n == 0]))
    below = wide if symmetric else int(rng.integers(0, wide + 1)) if size > 1 else 0
    low, high = -below, wide if symmetric else wide - below
    arrays = []
    for _ in range(count):
        points = rng.integers(low, high + 1, size)
        ends = [high, low][: min(size, 2)]
        points[rng.permutation(size)[: len(ends)]] = ends
        arrays.append(np.asarray((points * unit).reshape(shape), np.float32))
    return arrays


def shifted(low: float, high: float, unit: float, steps: int) -> float | None:
    """What, added to integers in low..high times `unit`, puts them on the grid; None where there are too many."""
    fitting = [n for n in range(max(round((high - low) / unit), 1), steps + 1) if steps % n == 0]
    return fitting[0] * unit - high if fitting else None


def single_valued(rng: np.random.Generator, shape: tuple[int, ...], unit: float) -> np.ndarray:
    """One number and some zeros, float32: quantized without loss by any formula."""
    value = unit * float(rng.choice([1, 1, 2, -1]))
    chosen = rng.random(shape) < 0.8
    return np.asarray(np.where(chosen, value, 0.0) if np.any(chosen) else np.full(shape, value), np.float32)


def coarse_channels(rng: np.random.Generator, channels: int, terms: int, density: float, signed: bool) -> np.ndarray:
    """[channels, terms] of 0 and 1, and -1 where signed. In each channel something is not zero, and something is."""
    points = np.where(rng.random((channels, terms)) < density, 1, 0)
    points[np.arange(channels), rng.integers(0, terms, channels)] = 1
    if terms > 1:
        full = points.all(axis=1)
        points[full, rng.integers(0, terms, int(full.sum()))] = 0
    return points * rng.choice([-1, 1], points.shape) if signed else points
