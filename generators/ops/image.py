"""Resize."""

from __future__ import annotations

import math

import numpy as np

from generators.builder import Builder, each
from generators.ops.registry import operator
from generators.values import RANGES, Shape

SCALES = ((2.0, 2.0, 2.0), (1.0, 2.0, 1.0), (0.5, 0.5, 0.5), (1.5, 1.5, 1.0), (2.0, 3.0, 1.0), (1.0, 0.5, 2.0))
COORDINATES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")


@operator("Resize", weight=2)
def resize(b: Builder) -> None:
    """The spatial dims scaled, floor(n scale) or to given sizes, by nearest, linear or cubic interpolation"""
    mode = b.choose("mode", ("nearest", "linear", "cubic"))
    dtypes = [d for d in b.types("Resize", "T1") if d not in RANGES or mode == "nearest"]
    x = b.data(dtypes=dtypes, ranks=(4,) if mode == "cubic" else (4, 3))
    factors = b.choose("scales", SCALES)[: x.rank - 2]
    factors = tuple([f if all(s[axis] * f >= 1 for s in x.shapes) else 1.0 for axis, f in enumerate(factors, 2)])
    coordinates = b.choose("coordinate_transformation_mode", COORDINATES)
    rounding = b.choose("nearest_mode", ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil"))
    by_sizes = b.choose("sizes", (False, False, True)) and x.static
    with_roi = b.flag("roi")
    shapes = each(lambda s: _scaled(s, factors), x)
    attributes = {
        "coordinate_transformation_mode": b.unless(coordinates, "half_pixel"),
        "mode": b.unless(mode, "nearest"),
        "nearest_mode": rounding if mode == "nearest" else None,
    }
    # Before opset 13 roi and scales are no optional inputs: they are empty where they do not count.
    empty = b.constant("roi_source", np.zeros(0, np.float32)) if b.opset < 13 or with_roi else None
    scales = np.array((1.0, 1.0, *factors), np.float32)
    sizes = b.integers("sizes_source", shapes[0]) if by_sizes else None
    given_scales = b.constant("scales_source", scales[:0] if by_sizes else scales)
    inputs = (x, empty, given_scales if not by_sizes or b.opset < 13 else None, sizes)
    low, high = min(x.low, 0.0), max(x.high, 0.0)
    bounds = (2 * low - high, 2 * high - low) if mode == "cubic" else (low, high)
    b.emit("Resize", inputs, shapes, attributes, bounds=bounds)


def _scaled(shape: Shape, factors: tuple[float, ...]) -> Shape:
    return (*shape[:2], *[math.floor(n * f) for n, f in zip(shape[2:], factors)])
