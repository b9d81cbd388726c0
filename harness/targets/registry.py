"""Which targets there are, by name; nothing of them is imported for that."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from importlib import metadata
from types import MappingProxyType

GROUP = "driftnet.targets"


def _own() -> tuple[str, ...]:
    try:
        declared = metadata.distribution("driftnet").entry_points
    except metadata.PackageNotFoundError:  # in a worker of an environment that was made for another release
        return ()
    return tuple(e.name for e in declared if e.group == GROUP and not e.extras)


DEFAULT_TARGETS = _own()
"""those that driftnet itself registers, and needs for more than an extra"""


def registered() -> Mapping[str, str]:
    """The targets that are registered here: name -> "module:attribute"."""
    return _registered(tuple(sys.path))


@functools.cache  # looking through what is installed takes 4 ms, and a replay asks three times
def _registered(path: tuple[str, ...]) -> Mapping[str, str]:
    entries = metadata.entry_points(group=GROUP)
    return MappingProxyType({entry.name: f"{entry.module}:{entry.attr}" for entry in entries})
