"""Selecting and placing elements by index."""

from __future__ import annotations

from math import prod

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import constant, data, integers, made, scalar, whole
from driftnet.generators.building.values import BOOL, FLOAT, FLOAT16, INT32, INT64, Fill, Shape
from driftnet.generators.ops.registry import operator

RANKS = (3, 2, 4, 1, 5)
INDEX_SOURCES = ("initializer", "constant", "initializer", "input")


def _least(x: Value, axis: int) -> int:
    """The size of an axis in the feed where it is smallest."""
    return min(shape[axis] for shape in x.shapes)


def _resized(x: Value, axis: int, n: int) -> tuple[Shape, ...]:
    """The shape of x with another size of one axis."""
    k = axis % x.rank
    return each(lambda s: (*s[:k], n, *s[k + 1 :]), x)


@operator("TopK", weight=0.8)
def topk(b: Builder) -> None:
    """The k largest or smallest elements along an axis and their indices; ties go to the lower index"""
    x = data(b, dtypes=b.types("TopK"), ranks=RANKS)
    axis, wanted = b.axis("axis", x.rank), b.choose("k", (1, 2, 3))
    k = min(wanted, _least(x, axis))
    largest, as_sorted = b.choose("largest", (1, 0)), b.choose("sorted", (1, 1, 1))
    operand = integers(b, "k_source", (k,), INDEX_SOURCES)
    shapes = _resized(x, axis, k)
    attributes = {
        "axis": b.unless(axis, -1),
        "largest": b.unless(largest, 1),
        "sorted": b.unless(as_sorted, 1),
    }
    b.emit_all("TopK", (x, operand), [(x.dtype, shapes), (INT64, shapes)], attributes, bounds=_with_indices(x))


def _with_indices(x: Value) -> tuple[float, float]:
    return min(x.low, 0.0), max(x.high, 4096.0)


@operator("GatherElements", weight=0.6)
def gather_elements(b: Builder) -> None:
    """y[i][j] = x[indices[i][j]][j] for axis 0, negative indices counting from the end"""
    x = data(b, dtypes=b.types("GatherElements"), ranks=RANKS)
    axis, count = b.axis("axis", x.rank), b.choose("count", (1, 2, 3))
    n = _least(x, axis)
    shapes = _resized(x, axis, count)
    dtype = b.choose("dtype", (INT64, INT32))
    indices = whole(b, "indices", shapes, -n, n - 1, dtype=dtype)
    b.emit("GatherElements", (x, indices), shapes, {"axis": b.unless(axis, 0)}, bounds=(x.low, x.high))


@operator("GatherND", weight=0.6)
def gather_nd(b: Builder) -> None:
    """Slices x[indices[i]], each row of indices a path into the first axes (after batch_dims, from opset 12)"""
    x = data(b, dtypes=b.types("GatherND"), ranks=RANKS)
    batch = b.choose("batch_dims", (0, 0, 1)) if b.opset >= 12 and x.rank > 1 else 0
    depth = min(b.choose("depth", (1, 2, 3)), x.rank - batch)
    rows = b.choose("rows", (1, 2, 3))
    n = min(_least(x, axis) for axis in range(batch, batch + depth))
    indices = whole(b, "indices", each(lambda s: (*s[:batch], rows, depth), x), -n, n - 1)
    shapes = each(lambda s: (*s[:batch], rows, *s[batch + depth :]), x)
    attributes = {"batch_dims": b.unless(batch, 0) if b.opset >= 12 else None}
    b.emit("GatherND", (x, indices), shapes, attributes, bounds=(x.low, x.high))


def _reduction(b: Builder, x: Value) -> str:
    """What happens where two updates meet: nothing defined before opset 16."""
    wanted = b.choose("reduction", ("none", "none", "add", "mul", "max", "min"))
    allowed = ("none",) if b.opset < 16 else ("none", "add", "mul") if b.opset < 18 else ()
    return wanted if x.dtype not in (BOOL, FLOAT16) and (not allowed or wanted in allowed) else "none"


def _scattered(x: Value, updates: Value) -> tuple[float, float]:
    top = 64.0 * (max(-x.low, x.high, 1.0) * max(-updates.low, updates.high, 1.0))
    return -top, top


@operator("ScatterElements", weight=0.6)
def scatter_elements(b: Builder) -> None:
    """x with y[indices[i][j]][j] = updates[i][j] for axis 0; from opset 16 the two may be combined"""
    x = data(b, dtypes=b.types("ScatterElements"), ranks=RANKS, fits=lambda v: max(-v.low, v.high) < 1e3)
    axis, reduction = b.axis("axis", x.rank), _reduction(b, x)
    n = _least(x, axis)
    count = b.choose("count", (1, 2, 3)) if reduction != "none" else 1  # one a line: no two updates meet
    shapes = _resized(x, axis, min(count, n))
    indices = whole(b, "indices", shapes, -n, n - 1)
    updates = made(b, b.choose("updates", ("initializer", "input", "constant")), shapes, x.dtype, "weight")
    attributes = {
        "axis": b.unless(axis, 0),
        "reduction": b.unless(reduction, "none") if b.opset >= 16 else None,
    }
    b.emit("ScatterElements", (x, indices, updates), x.shapes, attributes, bounds=_scattered(x, updates))


@operator("ScatterND", weight=0.6)
def scatter_nd(b: Builder) -> None:
    """x with y[indices[i]] = updates[i], each row of indices a path into the first axes"""
    x = data(b, dtypes=b.types("ScatterND"), ranks=RANKS, fits=lambda v: max(-v.low, v.high) < 1e3)
    reduction, depth = _reduction(b, x), min(b.choose("depth", (1, 2, 3)), x.rank)
    n = min(_least(x, axis) for axis in range(depth))
    rows = min(b.choose("rows", (1, 2, 3)), n)
    # Rows in falling order: all different, so no two updates meet.
    paths = np.repeat(np.arange(n - 1, n - 1 - rows, -1, dtype=np.int64)[:, None], depth, 1)
    paths = paths - n if b.flag("negative") and all(x.fixed(a) and x.shape[a] == n for a in range(depth)) else paths
    indices = constant(b, "indices", paths, INDEX_SOURCES)
    shapes = each(lambda s: (rows, *s[depth:]), x)
    updates = made(b, b.choose("updates", ("initializer", "input", "constant")), shapes, x.dtype, "weight")
    attributes = {"reduction": b.unless(reduction, "none") if b.opset >= 16 else None}
    b.emit("ScatterND", (x, indices, updates), x.shapes, attributes, bounds=_scattered(x, updates))


@operator("TensorScatter", since=24, weight=1.0)
def tensor_scatter(b: Builder) -> None:
    """A cache with an update written along an axis from a position of its own for each sample, linear or circular"""
    x = data(b, dtypes=b.types("TensorScatter"), ranks=(3, 4), fixed=None)
    size, mode = b.choose("size", (1, 2)), b.choose("mode", ("linear", "circular"))
    axis = b.choose("axis", (-2, 1, -2))
    n, k = x.shape[axis], axis % x.rank
    size = min(size, n)
    shapes = each(lambda s: (*s[:k], size, *s[k + 1 :]), x)
    update = made(b, b.choose("update", ("input", "initializer")), shapes, x.dtype, "weight")
    where = whole(b, "write_indices", ((x.shape[0],),) * len(x.shapes), 0, n - size) if b.flag("positions") else None
    bounds = (min(x.low, update.low), max(x.high, update.high))
    attributes = {"axis": b.unless(axis, -2), "mode": b.unless(mode, "linear")}
    b.emit("TensorScatter", (x, update, where), x.shapes, attributes, bounds=bounds)


@operator("OneHot", weight=0.5)
def one_hot(b: Builder) -> None:
    """A new axis of `depth` that holds the on-value at the index and the off-value elsewhere"""
    kinds = ((INT64, FLOAT, INT64), (INT64, INT64, INT64), (INT32, FLOAT, INT32), (FLOAT, FLOAT, FLOAT))
    of_indices, of_values, of_depth = b.choose("dtypes", kinds)
    indices = data(b, "x", dtypes=(of_indices,), ranks=(1, 2, 3), fits=_small, fill=Fill("range", low=-2, high=2))
    depth = b.choose("depth", (3, 4, 2, 1))
    axis = b.axis("axis", indices.rank + 1)
    k = axis % (indices.rank + 1)
    count = scalar(b, "depth_source", depth, dtype=of_depth)
    pair = np.array(b.choose("values", ((0, 1), (2, 5), (-1, 1))), {FLOAT: np.float32, INT64: np.int64}[of_values])
    levels = constant(b, "values_source", pair, INDEX_SOURCES)
    shapes = each(lambda s: (*s[:k], depth, *s[k:]), indices)
    bounds = (float(pair.min()), float(pair.max()))
    attributes = {"axis": b.unless(axis, -1)}
    b.emit("OneHot", (indices, count, levels), shapes, attributes, dtype=of_values, bounds=bounds)


def _small(v: Value) -> bool:
    return v.low >= -1e6 and v.high <= 1e6


@operator("ReverseSequence", weight=0.4)
def reverse_sequence(b: Builder) -> None:
    """The first sequence_lens[i] steps of sample i in reverse order"""
    x = data(b, dtypes=b.types("ReverseSequence"), ranks=(3, 2, 4))
    time, batch = b.choose("axes", ((0, 1), (1, 0)))
    lengths = whole(b, "lengths", each(lambda s: (s[batch],), x), 1, _least(x, time))
    attributes = {"time_axis": b.unless(time, 0), "batch_axis": b.unless(batch, 1)}
    b.emit("ReverseSequence", (x, lengths), x.shapes, attributes, bounds=(x.low, x.high))


@operator("Trilu", since=14, weight=0.6)
def trilu(b: Builder) -> None:
    """The upper or lower triangle of each matrix, zeros elsewhere; k moves the diagonal"""
    x = data(b, dtypes=b.types("Trilu"), ranks=(2, 3, 4))
    upper, k = b.choose("upper", (1, 0)), b.choose("k", (None, 0, 1, -1, 3))
    diagonal = None if k is None else constant(b, "k_source", np.array(k, np.int64), INDEX_SOURCES)
    bounds = (min(x.low, 0.0), max(x.high, 0.0))
    b.emit("Trilu", (x, diagonal), x.shapes, {"upper": b.unless(upper, 1)}, bounds=bounds)


# How many elements the next operators find depends on the numbers. So those are constants, chosen here.
PATTERNS = ((1,), (1, 0), (0, 1, 1), (1, 1, 0, 1), (2, 1, 1, 3, 2), (0, 0, 5, 1))


@operator("Compress", weight=0.5)
def compress(b: Builder) -> None:
    """The slices along an axis, or the elements, where a condition holds; what it is too short for is dropped"""
    x = data(b, dtypes=b.types("Compress"), ranks=RANKS)
    flat, axis = b.flag("flat"), b.axis("axis", x.rank)
    shortest = min(prod(s) for s in x.shapes) if flat else _least(x, axis)
    condition = np.array(b.choose("condition", PATTERNS), np.bool_)[:shortest]
    kept = int(condition.sum())
    operand = constant(b, "condition_source", condition)
    shapes = ((kept,),) * len(x.shapes) if flat else _resized(x, axis, kept)
    b.emit("Compress", (x, operand), shapes, {"axis": None if flat else axis}, bounds=(x.low, x.high))


def _pattern(b: Builder) -> np.ndarray:
    """Certain numbers, as a vector or as a matrix, in a dtype that the operator takes."""
    pattern, form = b.choose("x", PATTERNS), b.choose("form", ("vector", "column", "rows"))
    x = np.array(pattern, b.choose("dtype", [np.float32, np.int64, np.int64]))
    x = np.where(x > 0, x, 0)
    return {"vector": x, "column": x.reshape(-1, 1), "rows": np.stack([x, x])}[form]


@operator("NonZero", weight=0.3)
def nonzero(b: Builder) -> None:
    """The indices of the elements that are not zero, a column each"""
    x = _pattern(b)
    operand = constant(b, "x_source", x if b.flag("numbers") else x.astype(np.bool_))
    found = len(x[x != 0])
    b.emit("NonZero", (operand,), ((x.ndim, found),) * b.header.feeds, dtype=INT64, bounds=(0.0, 8.0))


@operator("Unique", weight=0.3)
def unique(b: Builder) -> None:
    """The different elements or slices, where each comes first, which of them each one is, and how often it comes"""
    x = _pattern(b)
    flat, in_order, every = b.flag("flat"), b.choose("sorted", (1, 0)), b.flag("every")
    found = np.unique(x, axis=None if flat else 0)
    count, total, feeds = found.size if flat else len(found), x.size if flat else len(x), b.header.feeds
    operand = constant(b, "x_source", x)
    outputs = [
        (operand.dtype, (found.shape,) * feeds),
        *[(INT64, ((n,),) * feeds) if every else None for n in (count, total, count)],
    ]
    attributes = {"axis": None if flat else 0, "sorted": b.unless(in_order, 1)}
    b.emit_all("Unique", (operand,), outputs, attributes, bounds=(0.0, 16.0))


SUPPRESSIONS = (
    # max_output_boxes_per_class, iou_threshold, score_threshold, how many boxes of BOXES and SCORES are left
    (3, 0.5, 0.0, 4),
    (1, 0.5, 0.0, 2),
    (3, 0.99, 0.0, 6),
    (3, 0.5, 0.5, 2),
)
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [3, 3, 4, 4]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6], [0.3, 0.2, 0.1]]], np.float32)


@operator("NonMaxSuppression", weight=0.3)
def non_max_suppression(b: Builder) -> None:
    """(batch, class, box) of the boxes left when each that overlaps a better one of its class is dropped"""
    most, iou, score, left = b.choose("thresholds", SUPPRESSIONS)
    centred = b.choose("center_point_box", (0, 1))
    boxes, scores = constant(b, "boxes", _centred(BOXES) if centred else BOXES), constant(b, "scores", SCORES)
    limits = (
        integers(b, "max_output_boxes_per_class", (most,)),
        constant(b, "iou_threshold", np.array([iou], np.float32)),
        constant(b, "score_threshold", np.array([score], np.float32)) if score else None,
    )
    shapes = ((left, 3),) * b.header.feeds
    attributes = {"center_point_box": b.unless(centred, 0)}
    b.emit("NonMaxSuppression", (boxes, scores, *limits), shapes, attributes, dtype=INT64, bounds=(0.0, 8.0))


def _centred(boxes: np.ndarray) -> np.ndarray:
    """Corners (y1, x1, y2, x2) as centre, width and height (x, y, w, h)."""
    y1, x1, y2, x2 = np.moveaxis(boxes, -1, 0)
    return np.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1], -1)
