"""Sliding windows: where they stand, what lies in them, and adding up what was spread over them.

Formulas: the specification of Conv and the pools. Arrays are (..., spatial dims); a window's taps come last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array
from driftnet.oracle.ball_arithmetic.rules import attribute

CEIL_MODE_SETTLED = 19
"""the opset from which on ceil_mode says where the last window may start, and how many elements it sees"""

Index = tuple[Any, ...]
"""What stands between brackets behind an array."""


@dataclass(frozen=True)
class Sliding:
    """Windows over up to three spatial dims; every field has one number a dim.

    kernel, strides, dilations   of a window
    before   padding at the begin
    count    positions of the window
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def taps(self) -> tuple[int, ...]:
        """The axes of what each window sees that are its own."""
        return tuple(range(-len(self.kernel), 0))

    @property
    def extent(self) -> tuple[int, ...]:
        """How much of the padded input the windows cover."""
        dims = zip(self.kernel, self.strides, self.dilations, self.count)
        return tuple([(n - 1) * s + (k - 1) * d + 1 for k, s, d, n in dims])


def sliding(node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> Sliding:
    """The windows of a Conv or a pool over spatial dims of `sizes`.

    With ceil_mode the last window has to start inside the input or the padding before it (opset 19 settled that).
    """
    strides, dilations, pads = window_attributes(node, len(kernel))
    auto, ceil = attribute(node, "auto_pad", "NOTSET"), attribute(node, "ceil_mode", 0)
    before, count = [], []
    for axis, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations)):
        reach = (k - 1) * d + 1
        begin, end = pads[axis], pads[axis + len(kernel)]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            positions = -(-n // s)
            total = max((positions - 1) * s + reach - n, 0)
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
        else:
            free = n + begin + end - reach
            positions = (-(-free // s) if ceil else free // s) + 1
            if ceil and (positions - 1) * s >= n + begin:
                positions -= 1
        before.append(begin)
        count.append(positions)
    return Sliding(tuple(kernel), strides, dilations, tuple(before), tuple(count))


def window_attributes(node: Node, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(strides, dilations, pads) of a node, as they are when left out."""
    one = (1,) * spatial
    strides, dilations = attribute(node, "strides", one), attribute(node, "dilations", one)
    explicit = attribute(node, "auto_pad", "NOTSET") in ("NOTSET", "")
    pads = attribute(node, "pads", ()) if explicit else ()
    return tuple(strides), tuple(dilations), tuple(pads) or (0,) * 2 * spatial


def windows(x: Array, where: Sliding, fill: object = 0) -> Array:
    """What each window sees, (..., *count, *kernel), `fill` outside of `x`. A view: do not write."""
    spatial = len(where.kernel)
    lead = x.shape[: x.ndim - spatial]
    extent = where.extent
    padded = np.full((*lead, *extent), fill, x.dtype)
    sizes = x.shape[x.ndim - spatial :]
    inside = [min(n, e - p) for n, p, e in zip(sizes, where.before, extent)]
    source: Index = (..., *[slice(n) for n in inside])
    target: Index = (..., *[slice(p, p + n) for p, n in zip(where.before, inside)])
    padded[target] = x[source]
    steps = padded.strides[len(lead) :]
    shape = (*lead, *where.count, *where.kernel)
    strides = (
        *padded.strides[: len(lead)],
        *[step * s for step, s in zip(steps, where.strides)],
        *[step * d for step, d in zip(steps, where.dilations)],
    )
    return np.ndarray(shape, padded.dtype, padded, 0, strides)


def spread(taps: Array, where: Sliding, sizes: Sequence[int]) -> Array:
    """The adjoint of `windows`: taps (..., *kernel, *count) added up where they stand, (..., *sizes)."""
    spatial = len(where.kernel)
    lead = taps.shape[: taps.ndim - 2 * spatial]
    extent = where.extent
    room = [max(e, p + n) for e, p, n in zip(extent, where.before, sizes)]
    total = np.zeros((*lead, *room), taps.dtype)
    every = [slice(None)] * spatial
    for tap in product(*[range(k) for k in where.kernel]):
        dims = zip(tap, where.dilations, where.strides, where.count)
        source: Index = (..., *tap, *every)
        target: Index = (..., *[slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in dims])
        total[target] += taps[source]
    inside: Index = (..., *[slice(p, p + n) for p, n in zip(where.before, sizes)])
    return np.asarray(total[inside])
