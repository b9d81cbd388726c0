"""Selecting and placing elements by index."""

from math import prod

import numpy as np
from driftnet.generators.building.builder import Builder, hull
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import (
    NUMBERS,
    Domain,
    constant,
    data,
    integers,
    scalar,
    weight,
    whole,
    within,
)
from driftnet.generators.building.values import BOOL, FLOAT, FLOAT16, INT32, INT64, NUMPY, Fill
from driftnet.generators.ops.registry import operator

RANKS = (3, 2, 4, 1, 5)
_MODERATE = Domain(lambda v: v.magnitude < 1e3)


@operator("TopK", weight=0.8)
def topk(b: Builder) -> None:
    """The k largest or smallest elements along an axis and their indices; ties go to the lower index"""
    x = data(b, ranks=RANKS)
    axis, wanted = b.axis("axis", x.rank), b.choose("k", (1, 2, 3))
    k = min(wanted, x.least(axis))
    attributes = {"axis": axis, **b.attributes(largest=(1, 0), sorted=(1, 1, 1))}
    operands, shapes = (x, integers(b, "k_source", (k,), NUMBERS)), x.resized(axis, k)
    b.emit_all(operands, [(x.dtype, shapes), (INT64, shapes)], attributes, bounds=hull(x, 0.0, 4096.0))


@operator("GatherElements", weight=0.6)
def gather_elements(b: Builder) -> None:
    """y[i][j] = x[indices[i][j]][j] for axis 0, negative indices counting from the end"""
    x = data(b, ranks=RANKS)
    axis, count = b.axis("axis", x.rank), b.choose("count", (1, 2, 3))
    n = x.least(axis)
    shapes = x.resized(axis, count)
    indices = whole(b, "indices", shapes, -n, n - 1, dtype=b.choose("dtype", (INT64, INT32)))
    b.emit((x, indices), shapes, {"axis": axis}, bounds=x)


@operator("GatherND", weight=0.6)
def gather_nd(b: Builder) -> None:
    """Slices x[indices[i]], each row of indices a path into the first axes (after batch_dims, from opset 12)"""
    x = data(b, ranks=RANKS)
    batch = b.choose("batch_dims", (0, 0, 1)) if b.has("batch_dims") and x.rank > 1 else 0
    depth = min(b.choose("depth", (1, 2, 3)), x.rank - batch)
    rows = b.choose("rows", (1, 2, 3))
    n = min(x.least(axis) for axis in range(batch, batch + depth))
    indices = whole(b, "indices", tuple([(*s[:batch], rows, depth) for s in x.shapes]), -n, n - 1)
    b.emit((x, indices), lambda s: (*s[:batch], rows, *s[batch + depth :]), {"batch_dims": batch}, bounds=x)


def _reduction(b: Builder, x: Value) -> str:
    """What happens where two updates meet: nothing defined before opset 16."""
    wanted = b.choose("reduction", ("none", "none", "add", "mul", "max", "min"))
    allowed = ("none",) if b.opset < 16 else ("none", "add", "mul") if b.opset < 18 else ()
    return wanted if x.dtype not in (BOOL, FLOAT16) and (not allowed or wanted in allowed) else "none"


def _scattered(x: Value, updates: Value) -> float:
    return 64.0 * (max(x.magnitude, 1.0) * max(updates.magnitude, 1.0))


@operator("ScatterElements", weight=0.6)
def scatter_elements(b: Builder) -> None:
    """x with y[indices[i][j]][j] = updates[i][j] for axis 0; from opset 16 the two may be combined"""
    x = data(b, ranks=RANKS, domain=_MODERATE)
    axis, reduction = b.axis("axis", x.rank), _reduction(b, x)
    n = x.least(axis)
    count = b.choose("count", (1, 2, 3)) if reduction != "none" else 1  # one a line: no two updates meet
    shapes = x.resized(axis, min(count, n))
    indices = whole(b, "indices", shapes, -n, n - 1)
    updates = weight(b, "updates", shapes, dtype=x.dtype, sources=("initializer", "input", "constant"))
    b.emit((x, indices, updates), x, {"axis": axis, "reduction": reduction}, bounds=_scattered(x, updates))


@operator("ScatterND", weight=1.2)  # torch exports the assignment of a slice as one
def scatter_nd(b: Builder) -> None:
    """x with y[indices[i]] = updates[i], each row of indices a path into the first axes"""
    x = data(b, ranks=RANKS, domain=_MODERATE)
    reduction, depth = _reduction(b, x), min(b.choose("depth", (1, 2, 3)), x.rank)
    n = min(x.least(axis) for axis in range(depth))
    rows = min(b.choose("rows", (1, 2, 3)), n)
    # Rows in falling order: all different, so no two updates meet.
    last = -1 if b.flag("negative") else n - 1
    paths = np.repeat(np.arange(last, last - rows, -1, dtype=np.int64)[:, None], depth, 1)
    indices = constant(b, "indices", paths, NUMBERS)
    shapes = tuple([(rows, *s[depth:]) for s in x.shapes])
    updates = weight(b, "updates", shapes, dtype=x.dtype, sources=("initializer", "input", "constant"))
    b.emit((x, indices, updates), x, {"reduction": reduction}, bounds=_scattered(x, updates))


@operator("TensorScatter", weight=1.0)
def tensor_scatter(b: Builder) -> None:
    """A cache with an update written along an axis from a position of its own for each sample, linear or circular"""
    x = data(b, ranks=(3, 4), fixed=None)
    size, mode = b.choose("size", (1, 2)), b.choose("mode", ("linear", "circular"))
    axis = b.choose("axis", (-2, 1, -2))
    size = min(size, x.shape[axis])
    update = weight(b, "update", x.resized(axis, size), dtype=x.dtype, sources=("input", "initializer"))
    where = whole(b, "write_indices", x.shape[:1], 0, x.shape[axis] - size) if b.flag("positions") else None
    b.emit((x, update, where), x, {"axis": axis, "mode": mode}, bounds=hull(x, update))


@operator("OneHot", weight=0.5)
def one_hot(b: Builder) -> None:
    """A new axis of `depth` that holds the on-value at the index and the off-value elsewhere"""
    kinds = ((INT64, FLOAT, INT64), (INT64, INT64, INT64), (INT32, FLOAT, INT32), (FLOAT, FLOAT, FLOAT))
    of_indices, of_values, of_depth = b.choose("dtypes", kinds)
    small = within(-1e6, 1e6, Fill("range", low=-2, high=2))
    indices = data(b, dtypes=(of_indices,), ranks=(1, 2, 3), domain=small)
    depth = b.choose("depth", (3, 4, 2, 1))
    axis = b.axis("axis", indices.rank + 1)
    k = axis % (indices.rank + 1)
    count = scalar(b, "depth_source", depth, dtype=of_depth)
    pair = np.array(b.choose("values", ((0, 1), (2, 5), (-1, 1))), NUMPY[of_values])
    levels = constant(b, "values_source", pair, NUMBERS)
    bounds = (float(pair.min()), float(pair.max()))
    operands = (indices, count, levels)
    b.emit(operands, lambda s: (*s[:k], depth, *s[k:]), {"axis": axis}, dtype=of_values, bounds=bounds)


@operator("ReverseSequence", weight=0.4)
def reverse_sequence(b: Builder) -> None:
    """The first sequence_lens[i] steps of sample i in reverse order"""
    x = data(b, ranks=(3, 2, 4))
    time, batch = b.choose("axes", ((0, 1), (1, 0)))
    lengths = whole(b, "lengths", tuple([(s[batch],) for s in x.shapes]), 1, x.least(time))
    b.emit((x, lengths), x, {"time_axis": time, "batch_axis": batch}, bounds=x)


@operator("Trilu", weight=0.6)
def trilu(b: Builder) -> None:
    """The upper or lower triangle of each matrix, zeros elsewhere; k moves the diagonal"""
    x = data(b, ranks=(2, 3, 4))
    upper, k = b.choose("upper", (1, 0)), b.choose("k", (None, 0, 1, -1, 3))
    diagonal = None if k is None else scalar(b, "k_source", k, NUMBERS, dtype=INT64)
    b.emit((x, diagonal), x, {"upper": upper}, bounds=hull(x, 0.0))


# How many elements the next operators find depends on the numbers. So those are constants, chosen here.
PATTERNS = ((1,), (1, 0), (0, 1, 1), (1, 1, 0, 1), (2, 1, 1, 3, 2), (0, 0, 5, 1))


@operator("Compress", weight=0.5)
def compress(b: Builder) -> None:
    """The slices along an axis, or the elements, where a condition holds; what it is too short for is dropped"""
    x = data(b, ranks=RANKS)
    flat, axis = b.flag("flat"), b.axis("axis", x.rank)
    shortest = min(prod(s) for s in x.shapes) if flat else x.least(axis)
    condition = np.array(b.choose("condition", PATTERNS), np.bool_)[:shortest]
    kept = int(condition.sum())
    operands = (x, constant(b, "condition_source", condition))
    b.emit(operands, (kept,) if flat else x.resized(axis, kept), {"axis": None if flat else axis}, bounds=x)


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
    b.emit((operand,), (x.ndim, len(x[x != 0])), dtype=INT64, bounds=(0.0, 8.0))


@operator("Unique", weight=0.3)
def unique(b: Builder) -> None:
    """The different elements or slices, where each comes first, which of them each one is, and how often it comes"""
    x = _pattern(b)
    flat, in_order, every = b.flag("flat"), b.choose("sorted", (1, 0)), b.flag("every")
    found = np.unique(x, axis=None if flat else 0)
    count, total = found.size if flat else len(found), x.size if flat else len(x)
    operand = constant(b, "x_source", x)
    outputs = [(operand.dtype, found.shape), *[(INT64, (n,)) if every else None for n in (count, total, count)]]
    b.emit_all((operand,), outputs, {"axis": None if flat else 0, "sorted": in_order}, bounds=(0.0, 16.0))


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
    operands = (
        constant(b, "boxes", _centred(BOXES) if centred else BOXES),
        constant(b, "scores", SCORES),
        integers(b, "max_output_boxes_per_class", (most,)),
        constant(b, "iou_threshold", np.array([iou], np.float32)),
        constant(b, "score_threshold", np.array([score], np.float32)) if score else None,
    )
    b.emit(operands, (left, 3), {"center_point_box": centred}, dtype=INT64, bounds=(0.0, 8.0))


def _centred(boxes: np.ndarray) -> np.ndarray:
    """Corners (y1, x1, y2, x2) as centre, width and height (x, y, w, h)."""
    y1, x1, y2, x2 = np.moveaxis(boxes, -1, 0)
    return np.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1], -1)
