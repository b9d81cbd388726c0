"""Work that ends its process, or never ends."""

from __future__ import annotations

import collections
import ctypes
import itertools

import numpy as np


def crash() -> None:
    ctypes.string_at(0)


def spin() -> None:
    while True:
        pass


def spin_in_c() -> None:
    """Nothing interrupts it: no bytecode is run meanwhile."""
    collections.deque(itertools.repeat(0), maxlen=0)


def swell() -> None:
    kept = [np.ones(2**16)]
    while True:
        kept.append(kept[-1] + 1)
