"""Which targets there are, by name; nothing of them is imported for that."""

from __future__ import annotations

from importlib import metadata

GROUP = "driftnet.targets"
DEFAULT_TARGETS = tuple(
    e.name for e in metadata.distribution("driftnet").entry_points if e.group == GROUP and not e.extras
)
"""those that driftnet itself registers, and needs for more than an extra"""


def registered() -> dict[str, str]:
    """The targets that are registered here: name -> "module:attribute"."""
    return {entry.name: f"{entry.module}:{entry.attr}" for entry in metadata.entry_points(group=GROUP)}
