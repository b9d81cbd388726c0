"""Spent: what the CPU time of this process and of its workers goes into, by the parts of the work that are open.

    with part("explanation"):                    or @part("explanation") above a function
        with part("target execute"): ...         is told as {("explanation", "target execute"): seconds}

Of the parts that are open, one in another, the outermost says what it is done for, the innermost what it is. A process
counts for all of its threads; so it tells the truth of one that opens parts in one thread only, as a shard does.
"""

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ContextDecorator

WIRE = "wire"
"""What this process does to ask a worker; what the worker does meanwhile is not of it."""
OUTSIDE = "everything else"
"""Where no part is open."""

_open: list[str] = []
_spent: defaultdict[tuple[str, str], float] = defaultdict(float)
_last = 0.0


class part(ContextDecorator):
    """What is spent while the block runs, in this process and in its workers, goes into the part of this name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        _count()
        _open.append(self.name)

    def __exit__(self, *error: object) -> None:
        _count()
        _open.pop()


def elsewhere(seconds: float, name: str = "") -> None:
    """CPU seconds that another process is seen to have used for this one, in the innermost part that is open, or in
    that of this name."""
    what = [one for one in _open if one != WIRE] or [OUTSIDE]
    _spent[what[0], name or what[-1]] += seconds


def take() -> Mapping[tuple[str, str], float]:
    """CPU seconds by the outermost and the innermost part that were open, since this was last asked."""
    _count()
    told = dict(_spent)
    _spent.clear()
    return told


def gather(name: str) -> None:
    """What was spent so far, since the process began, is all of this part."""
    _spent[name, name] = sum(take().values())


def _count() -> None:
    """Tell what this process has used since the last time."""
    global _last
    now = time.process_time()
    what = _open or [OUTSIDE]
    _spent[what[0], what[-1]] += now - _last
    _last = now


def _begin() -> None:
    """In a fork: what it spends is its own."""
    global _last
    _spent.clear()
    _last = time.process_time()


os.register_at_fork(after_in_child=_begin)
