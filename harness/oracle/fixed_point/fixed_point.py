"""Fixed point: multiples of a power of two up to some size, and what becomes of them in sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FLOAT32 = (24, -126, 127)
SIGNIFICAND = {"float16": (11, -14, 15), "float32": FLOAT32, "float64": FLOAT32}
"""dtype -> bits of the significand, exponent of the smallest and of the largest normal number. Engines without doubles
compute them in float32."""
NUMERIC = "biufV"
"""kinds of dtypes that are numbers; V are those of ml_dtypes: integers of 4 bits, bfloat16, floats of 8 bits"""


@dataclass(frozen=True)
class FixedPoint:
    """A format: multiples of 2**lsb with magnitude at most `size`, infinite where a value is NaN or infinite."""

    size: float
    lsb: int

    def fits(self, dtype: np.dtype) -> bool:
        """Whether every multiple up to the size is a number of `dtype`."""
        if dtype.kind in "biu":
            return self.lsb >= 0 and self.size < 2.0 ** (8 * dtype.itemsize - 1)
        if dtype.name not in SIGNIFICAND or not math.isfinite(self.size):
            return False
        bits, lowest, highest = SIGNIFICAND[dtype.name]
        exponent = math.frexp(self.size)[1]
        return self.size == 0 or (exponent - self.lsb <= bits and self.lsb >= lowest and exponent <= highest)

    def times(self, count: int) -> FixedPoint:
        """The format of sums of `count` of its numbers."""
        return FixedPoint(self.size * count, self.lsb)


NOTHING = FixedPoint(0.0, 0)


def fixed_point_of(x: np.ndarray) -> FixedPoint:
    """The coarsest format that holds every element of `x`; NOTHING for text, with which no rule calculates."""
    if x.dtype.kind not in NUMERIC or not x.size:
        return NOTHING
    numbers = x.astype(np.float64)
    size = float(np.max(np.abs(numbers)))
    if not math.isfinite(size):
        return FixedPoint(math.inf, 0)
    if x.dtype.kind in "biu":
        return FixedPoint(size, 0)
    significand, exponent = np.frexp(numbers[numbers != 0])
    if not significand.size:
        return NOTHING
    integers = np.abs(np.ldexp(significand, 53)).astype(np.int64)
    lowest_bit = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    return FixedPoint(size, int(np.min(lowest_bit + exponent)) - 53)


def of_number(x: float) -> FixedPoint:
    """The format of an attribute, which is a float32."""
    return fixed_point_of(np.asarray(x, np.float32))


def union(formats: Sequence[FixedPoint]) -> FixedPoint:
    """The format of numbers of which each has one of `formats`."""
    used = [f for f in formats if f.size] or [NOTHING]
    return FixedPoint(max(f.size for f in used), min(f.lsb for f in used))


def total(formats: Sequence[FixedPoint]) -> FixedPoint:
    """The format of sums of a number of each of `formats`, and of every partial sum."""
    return FixedPoint(sum(f.size for f in formats), union(formats).lsb)


def product(a: FixedPoint, b: FixedPoint) -> FixedPoint:
    """The format of products of a number of each."""
    if a.size and b.size:
        return FixedPoint(a.size * b.size, a.lsb + b.lsb)
    return NOTHING if math.isfinite(a.size + b.size) else FixedPoint(math.inf, 0)  # 0 times infinity is NaN
