"""Sizes: the shape of a fresh operand, in each feed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod

from driftnet.generators.building.header import Header
from driftnet.generators.building.values import ELEMENTS, Shape

_SIZES = (1, 2, 3, 4, 5, 6, 8, 4, 7, 3, 9, 10, 12, 2, 16)
"""What each of the four bytes for sizes chooses from."""
WIDE = (65, 72, 66, 100, 67, 129)
"""Channels of a fresh operand, now and then: more than any vector loop takes at once, and mostly no multiple of it."""

INPUT_ELEMENTS = 512
"""A fresh operand has no more elements (but for a wide one), so that operators which multiply sizes mostly stay under
`ELEMENTS`."""


def fresh_rank(header: Header, wanted: int | None, ranks: Sequence[int]) -> int:
    """The wanted rank, else the model's own, else the first that the operator takes."""
    if wanted is not None and wanted in ranks:
        return wanted
    return header.rank if header.rank in ranks else ranks[0]


def fresh_sizes(header: Header, data: bytes, rank: int, *, isolated: bool) -> list[int]:
    """The sizes that a record's four bytes ask for, the model's batch size first, within `INPUT_ELEMENTS`.

    isolated  all sizes are 1: the record has been found to make something too large
    """
    if isolated:
        return [1] * rank
    sizes = [_SIZES[data[axis % 4] % len(_SIZES)] for axis in range(rank)]
    if rank > 1:
        sizes[0] = header.batch
    while prod(sizes) > INPUT_ELEMENTS:
        largest = sizes.index(max(sizes))
        sizes[largest] //= 2
    if rank > 2 and data[1] >= 256 - len(WIDE):
        sizes = [1, WIDE[255 - data[1]], *[min(n, 3) for n in sizes[2:4]], *[1] * (rank - 4)]
    return sizes


@dataclass(frozen=True)
class Sizes:
    """What a fresh operand's sizes have to meet so that nothing needs clamping: a record should not depend on another
    one to have made room for it.

    least, most  bounds on the sizes from axis 0 on;  multiple  what the size of axis 1 must be a multiple of
    """

    least: Shape = ()
    most: Shape = ()
    multiple: int = 1

    def bounded(self, sizes: list[int]) -> list[int]:
        """`sizes` within these bounds, that of axis 1 then rounded up to a multiple."""
        result, rank = list(sizes), len(sizes)
        for axis, (low, high) in enumerate(zip_longest(self.least[:rank], self.most[:rank])):
            result[axis] = min(max(sizes[axis], low or 1), high or ELEMENTS)
        if self.multiple > 1:
            result[1] = -(-result[1] // self.multiple) * self.multiple
        return result


def per_feed(header: Header, sizes: list[int], held: Collection[int]) -> tuple[Shape, ...]:
    """The shape in each feed: the model's dynamic axes grow from feed to feed, but for those that are `held`."""
    rank, growth = len(sizes), [0] * len(sizes)
    for axis in header.dynamic:
        if -rank <= axis < rank and axis % rank not in held:
            growth[axis] = header.growth
            if prod([n + g for n, g in zip(sizes, growth)]) > INPUT_ELEMENTS:
                growth[axis] = 0
    return tuple([tuple([n + feed * g for n, g in zip(sizes, growth)]) for feed in range(header.feeds)])
