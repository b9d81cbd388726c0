"""Regions of images: pooled, suppressed, and read at offsets."""

import math
from collections.abc import Sequence

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    FLOAT,
    Array,
    Ball,
    Open,
    U,
    Undecided,
    exact,
    increasing,
    joined,
    moved,
)
from driftnet.oracle.ball_arithmetic.elementwise import multiply
from driftnet.oracle.ball_arithmetic.interpolation import Kernel, crossed, interpolated, weighable
from driftnet.oracle.ball_arithmetic.linear import products, weighted_columns
from driftnet.oracle.ball_arithmetic.rules import Context, Integers, Maybe, attribute, rule
from driftnet.oracle.ball_arithmetic.sliding import sliding
from driftnet.oracle.tolerances.table import GRID_ROUNDINGS, POSITION_ROUNDINGS, UNDECIDED_COUNT

LINEAR = Kernel("linear", "clamp")


@rule("RoiAlign")
def roi_align(
    x: Ball,
    rois: Array,
    samples: Integers,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    node: Node,
    context: Context,
) -> Ball:
    """Regions of X pooled to one size by the mean of interpolated samples: that of rows, then that of columns"""
    if mode != "avg":
        raise Open("of what the maximum is taken: engines differ")
    results = []
    for (x1, y1, x2, y2), sample in zip(rois.astype(np.float64).tolist(), samples):
        rows, of_rows = _bins(node, y1, y2, output_height, x.shape[2], context)
        columns, of_columns = _bins(node, x1, x2, output_width, x.shape[3], context)
        image = weighable(moved(x, lambda a: a[sample]))  # noqa: B023
        results.append(interpolated(interpolated(image, rows, 1, of_rows), columns, 2, of_columns))
    return joined(results, np.stack)


def _bins(node: Node, start: float, end: float, bins: int, n: int, context: Context) -> tuple[Ball, int]:
    """Along one axis the weights of each bin, and of how many elements they are.

    A sample more than one element outside of the image is zero; nearer ones are moved inside.
    """
    scale, ratio = attribute(node, "spatial_scale", 1.0), attribute(node, "sampling_ratio", 0)
    shifted = attribute(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel" and context.opset >= 16
    begin = start * scale - (0.5 if shifted else 0.0)
    size = (end - start) * scale
    size = size if shifted else max(size, 1.0)
    each = size / bins
    count = ratio or math.ceil(each)
    if size <= 0 or (not ratio and each != round(each) and abs(each - round(each)) < UNDECIDED_COUNT * each):
        raise Undecided("an empty region, or one whose number of samples depends on rounding")
    p = begin + (np.arange(bins * count) + 0.5) * (each / count)
    error = POSITION_ROUNDINGS * U * (abs(start * scale) + abs(end * scale) + 1)
    rows = LINEAR.ball(p, np.full(p.shape, error), n)
    seen = ((p >= -1) & (p <= n))[:, None]
    unsure = (np.minimum(np.abs(p + 1), np.abs(p - n)) < error)[:, None]
    midpoint, radius = (w.reshape(bins, count, n).mean(1) for w in (rows.midpoint * seen, rows.error * seen + unsure))
    return Ball(midpoint, radius, FLOAT), 2 * count


@rule("MaxRoiPool")
def max_roi_pool(x: Ball, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Ball:
    """The maximum of each cell of each region (batch index, x1, y1, x2, y2), whose corners are rounded; 0 if empty"""
    height, width = pooled_shape
    results = []
    for sample, *corners in rois.astype(np.float64).tolist():
        x1, y1, x2, y2 = (int(math.copysign(math.floor(abs(c * spatial_scale) + 0.5), c)) for c in corners)
        rows, columns = _cells(y1, y2, height, x.shape[2]), _cells(x1, x2, width, x.shape[3])
        results.append(increasing(lambda a: _maxima(a[int(sample)], rows, columns), x))  # noqa: B023
    return joined(results, np.stack)


def _cells(start: int, end: int, count: int, n: int) -> list[slice]:
    """The cells of a region along one axis. Raises Undecided where float32 may round across an element."""
    size = max(end - start + 1, 1)
    edges = size * np.arange(count + 1) / count
    single = (np.arange(count + 1, dtype=np.float32) * np.float32(size / count)).astype(np.float64)
    if (np.floor(edges) != np.floor(single)).any() or (np.ceil(edges) != np.ceil(single)).any():
        raise Undecided("whether a cell takes in one more element depends on rounding")
    first = np.clip(np.floor(edges[:-1]).astype(int) + start, 0, n)
    last = np.clip(np.ceil(edges[1:]).astype(int) + start, 0, n)
    return [slice(low, high) for low, high in zip(first, last)]


def _maxima(values: Array, rows: list[slice], columns: list[slice]) -> Array:
    """The maximum of each cell of (C, H, W)."""
    cells = [[values[:, r, c] for c in columns] for r in rows]
    empty = np.zeros(values.shape[0])
    return np.stack([np.stack([c.max((1, 2)) if c.size else empty for c in row], -1) for row in cells], -2)


@rule("DeformConv")
def deform_conv(
    x: Ball,
    w: Ball,
    offset: Ball,
    bias: Maybe = None,
    mask: Maybe = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    node: Node,
) -> Ball:
    """Conv whose taps each read the image at an offset of their own, times a mask"""
    where = sliding(node, x.shape[2:], w.shape[2:])
    n, channels, taps, positions = x.shape[0], x.shape[1], math.prod(where.kernel), math.prod(where.count)
    axes = []
    for axis, size in enumerate(x.shape[2:]):
        at = np.arange(where.count[axis]) * where.strides[axis] - where.before[axis]
        tap = np.arange(where.kernel[axis]) * where.dilations[axis]
        base = _grid(tap, axis, where.kernel)[:, None] + _grid(at, axis, where.count)
        shifts = moved(offset, lambda o: o.reshape(n, offset_group, taps, -1, positions)[:, :, :, axis])  # noqa: B023
        p = (base + shifts.numbers).reshape(n, offset_group, -1)
        error = GRID_ROUNDINGS * U * (np.abs(p) + size) + np.broadcast_to(shifts.error, shifts.shape).reshape(p.shape)
        axes.append(Kernel("linear", "drop").ball(p, error, size))
    flat = moved(weighable(x), lambda values: values.reshape(n, offset_group, channels // offset_group, -1))
    read = products(lambda values, rows: values @ rows.swapaxes(-1, -2), flat, crossed(axes), 4).ball(x.dtype)
    if mask is not None:
        read = multiply(read, moved(mask, lambda m: m.reshape(n, offset_group, 1, -1)))
    columns = moved(read, lambda values: values.reshape(n, group, channels // group * taps, positions))
    return weighted_columns(columns, w, bias, where.count).ball(x.dtype)


def _grid(numbers: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """`numbers` along one axis of a tensor of `shape`, flattened."""
    steps = numbers.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(steps, shape).ravel()


@rule("NonMaxSuppression")
def non_max_suppression(
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Ball:
    """(batch, class, box) of the boxes left when each that overlaps a better one of its class is dropped"""
    limit, threshold, lowest = (
        otherwise if given is None else given.item()
        for given, otherwise in ((most, 0), (overlap, 0.0), (least, -np.inf))
    )
    corners = _corners(boxes.astype(np.float64), center_point_box)
    chosen = []
    for batch, classes in enumerate(scores.astype(np.float64)):
        for kind, marks in enumerate(classes):
            kept: list[int] = []
            for box in np.argsort(-marks, kind="stable"):
                if len(kept) < limit and marks[box] > lowest and not _overlaps(corners[batch], box, kept, threshold):
                    kept.append(int(box))
            chosen += [(batch, kind, box) for box in kept]
    return exact(np.array(chosen, np.int64).reshape(-1, 3))


def _corners(boxes: Array, by_centre: int) -> Array:
    """Boxes as (low, low, high, high)."""
    if by_centre:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([centre - half, centre + half], -1)
    ends = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(*ends), np.maximum(*ends)], -1)


def _overlaps(corners: Array, box: int, kept: list[int], threshold: float) -> bool:
    """Whether the box shares more than `threshold` of the union with one that is kept."""
    for other in kept:
        a, b = corners[box], corners[other]
        shared = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
        union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
        ratio = shared / union if union > 0 and shared > 0 else 0.0
        if ratio and abs(ratio - threshold) < UNDECIDED_COUNT * ratio:
            raise Undecided("whether two boxes overlap too much depends on rounding")
        if ratio > threshold:
            return True
    return False
