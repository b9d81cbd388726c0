"""What belongs together, directly or through others."""

from collections.abc import Collection, Iterable
from typing import TypeVar

T = TypeVar("T")


def groups(links: Iterable[Collection[T]]) -> list[set[T]]:
    """Each member of a link in the group of all that its links join."""
    home: dict[T, set[T]] = {}
    for link in links:
        joined = set(link).union(*(home[member] for member in link if member in home))
        home.update(dict.fromkeys(joined, joined))
    return list({id(group): group for group in home.values()}.values())
