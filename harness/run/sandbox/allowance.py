"""Allowance: CPU time that something may use, of the workers of a runner and of this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE = 3.0
"""How many times its CPU seconds an allowance lasts in wall time: another process may have the core, or a target
sleep."""

LATE = "the machine is busy, or a target waits"
"""So ends what is said of an allowance that wall time ended: another time more of it may be used."""


@dataclass
class Allowance:
    """CPU seconds that may be used: until `used` says `until`, or at `deadline` (monotonic).

    cut   what was ended for it, in words; "" for nothing;   seconds   how many they were
    """

    used: Callable[[], float]
    until: float
    deadline: float
    cut: str = ""
    seconds: float = math.inf

    @classmethod
    def of(cls, used: Callable[[], float], seconds: float) -> Allowance:
        """So many CPU seconds from now on."""
        return cls(used, used() + seconds, time.monotonic() + PATIENCE * seconds, seconds=seconds)

    @property
    def wall(self) -> float:
        """Wall seconds that are left."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def left(self) -> float:
        """CPU seconds that are left; none once it is over."""
        return max(0.0, min(self.until - self.used(), self.wall / PATIENCE))

    @property
    def late(self) -> str:
        """In words, that time ends it, or does so before it is used up; "" where use does."""
        unused = self.until - self.used()
        if unused <= self.wall / PATIENCE:
            return ""
        used, waited = self.seconds - unused, PATIENCE * self.seconds - self.wall
        said = f"in {waited:.3g} s of time {used:.2g} of {self.seconds:.3g} CPU seconds were used"
        return f"{said}: {LATE}"

    @property
    def spent(self) -> bool:
        """Whether it is over."""
        return self.left <= 0
