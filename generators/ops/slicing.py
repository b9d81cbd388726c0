"""Parts of tensors, and tensors put together: no number changes."""

import math
from collections.abc import Callable

import numpy as np
from driftnet.generators.building.builder import Builder, each, hull
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import NUMBERS, constant, data, find, integers, made, scalar, weight, whole
from driftnet.generators.building.values import ELEMENTS, RANGES, Shape
from driftnet.generators.ops.registry import operator
from driftnet.generators.ops.shape import SHAPED


@operator("Concat", weight=2)
def concat(b: Builder) -> None:
    """One or more tensors one after the other along an axis; the other dims agree"""
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    count = b.choose("count", (2, 2, 1, 3))
    axis = b.axis("axis", x.rank)
    k = axis % x.rank
    operands = [x]
    for n in range(2):
        source = b.choose(f"y{n}", ("value", "value", "self", "initializer", "input"))
        size = b.choose(f"y{n}_size", (1, 2, 3))
        if n >= count - 1:
            continue
        other = find(b, lambda v: v.dtype == x.dtype and v.index != x.index and _beside(v, x, k))
        if source == "self":
            operands.append(x)
        elif source == "value" and other is not None:
            operands.append(other)
        else:
            operands.append(made(b, source, x.resized(k, size), x.dtype, "weight"))
    shapes = each(lambda *s: (*s[0][:k], sum(t[k] for t in s), *s[0][k + 1 :]), *operands)
    b.emit(operands, shapes, {"axis": axis})


def _beside(a: Value, x: Value, axis: int) -> bool:
    return a.rank == x.rank and a.resized(axis) == x.resized(axis)


@operator("Split")
def split(b: Builder) -> None:
    """Pieces along an axis, equal or as given; the sizes are an input from opset 13, or num_outputs from 18"""
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    axis = b.axis("axis", x.rank)
    first, count, equal = b.choose("first", (1, 2, 3)), b.choose("count", (2, 3, 1)), b.flag("equal")
    k, smallest = axis % x.rank, x.least(axis)

    def piece(size: Callable[[int], int]) -> tuple[int, tuple[Shape, ...]]:
        return x.dtype, each(lambda s: (*s[:k], size(s[k]), *s[k + 1 :]), x)

    attributes: dict[str, int | Shape | None] = {"axis": axis}
    operand = None
    if equal or smallest < 2 or not x.fixed(k):
        count = count if all(shape[k] % count == 0 for shape in x.shapes) else 1
        pieces = [piece(lambda n: n // count)] * count
        attributes["num_outputs"] = count if b.has("num_outputs") else None
    else:
        first = min(first, smallest - 1)
        pieces = [piece(lambda n: first), piece(lambda n: n - first)]
        if b.has("split"):
            attributes["split"] = (first, smallest - first)
        else:
            operand = integers(b, "split", (first, smallest - first))
    b.emit_all((x, operand), pieces, attributes, bounds=x)


SLICES = (
    *((0, 1, 1), (1, 2**31, 1), (0, 2**31, 2), (-1, -(2**31), -1), (0, -1, 1), (-2, 2**31, 1), (-1, -(2**31), -2)),
    *((0, 2**63 - 1, 1), (-9, 2, 1)),
)
"""(start, end, step): the first, all but the first, every second, reversed, all but the last, the last two, ..., all as
torch writes it, the first two from a start out of range."""


@operator("Slice", weight=2)
def slice_(b: Builder) -> None:
    """x[start:end:step] along the given axes, out-of-range bounds clamped; Python's semantics"""
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    mask, form = b.choose("axes", range(1, 16)), b.choose("form", (*SLICES, SLICES[1], SLICES[4]))
    other, negative = b.choose("other", SLICES), b.flag("negative")
    chosen = [axis for axis in range(x.rank) if mask >> axis & 1] or [0]
    bounds = [form if i == 0 else other for i in range(len(chosen))]
    # An empty result is legal but hardly any engine's business: such an axis keeps its first element.
    bounds = [f if all(len(_span(s[a], f)) for s in x.shapes) else SLICES[0] for a, f in zip(chosen, bounds)]

    def shape(s: Shape) -> Shape:
        sizes = list(s)
        for axis, f in zip(chosen, bounds):
            sizes[axis] = len(_span(s[axis], f))
        return tuple(sizes)

    starts = integers(b, "starts", [f[0] for f in bounds])
    ends = integers(b, "ends", [f[1] for f in bounds])
    axes = integers(b, "axes_source", [axis - x.rank for axis in chosen] if negative else chosen)
    steps = integers(b, "steps", [f[2] for f in bounds]) if any(f[2] != 1 for f in bounds) or b.explicit else None
    given_axes = axes if chosen != list(range(len(chosen))) or b.explicit or steps else None
    b.emit((x, starts, ends, given_axes, steps), shape, bounds=x)


def _span(n: int, form: tuple[int, int, int]) -> range:
    return range(n)[slice(*form)]


@operator("Pad", weight=2)
def pad(b: Builder) -> None:
    """More elements at both ends of axes, constant, edge or reflected; which axes may be said from opset 18"""
    x = data(b, dtypes=b.types(inner=True), ranks=(4, 3, 2, 1, 5))
    mode = b.choose("mode", ("constant", "constant", "reflect", "edge", "wrap"))
    mode = "reflect" if mode == "wrap" and b.opset < 19 else mode
    mask, partial = b.choose("axes", range(64)), b.flag("partial")
    wanted = b.choose("before", (1, 0, 2, 1, -1)), b.choose("after", (0, 1, 2, 0, -1))
    number = b.choose("number", (None, 1.0, -1.0, 0.0, 0.5)) if mode == "constant" else None
    if number is not None and x.dtype in RANGES:
        number = abs(math.trunc(number))
    chosen = [axis for axis in range(x.rank) if mask >> (x.rank - 1 - axis) & 1] or [x.rank - 1]
    pads = [(0, 0)] * x.rank
    for axis in chosen:
        # A reflection cannot reach past the other end; a negative pad crops, and one element has to be left.
        most = x.least(axis) - 1 if mode in ("reflect", "wrap") else ELEMENTS
        least = -1 if mode == "constant" and x.least(axis) > 2 else 0
        pads[axis] = (max(min(wanted[0], most), least), max(min(wanted[1], most), least))
    written = chosen if partial and b.opset >= 18 else list(range(x.rank))
    operands = [
        integers(b, "pads", [pads[axis][end] for end in (0, 1) for axis in written]),
        scalar(b, "number_source", number, dtype=x.dtype),
        integers(b, "axes_source", written) if len(written) < x.rank else None,
    ]
    shapes = each(lambda s: tuple([n + p + q for n, (p, q) in zip(s, pads)]), x)
    b.emit((x, *operands), shapes, {"mode": mode}, bounds=hull(x, number or 0.0))


@operator("Gather", weight=1.5)
def gather(b: Builder) -> None:
    """x[..., indices, ...]: slices along an axis, negative indices counting from the end; x may be a table"""
    if b.choose("table", (False, False, False, False, True)):
        _embedding(b)
        return
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    axis = b.axis("axis", x.rank)
    picked = b.choose("indices", ((0,), 0, (0, -1), (-1,), (1, 0, 1), ((0, 1), (-1, 0)), -1))
    indices = np.array(picked, np.int64)
    indices = np.where(indices >= x.least(axis), 0, indices)
    operand = constant(b, "indices_source", indices, NUMBERS)
    b.emit((x, operand), x.resized(axis, *indices.shape), {"axis": axis}, bounds=x)


def _embedding(b: Builder) -> None:
    count, width, length = b.choose("rows", (4, 2, 9)), b.choose("width", (3, 1, 8)), b.choose("length", (2, 1, 5))
    table = weight(b, "table_source", (count, width))
    shape = b.choose("form", ((length,), (b.header.batch, length)))
    indices = whole(b, "indices_source", shape, -count, count - 1, sources=("input", "initializer"))
    b.emit((table, indices), (*shape, width), {"axis": 0}, bounds=table)


@operator("CenterCropPad", weight=0.4)
def center_crop_pad(b: Builder) -> None:
    """Axes cropped or padded with zeros to given sizes, evenly on both ends"""
    x = data(b, ranks=(3, 2, 4), fixed=None)
    axes = b.choose("axes", (None, (-1,), (0,), (0, -1)))
    sizes = b.choose("sizes", (2, 1, 3, 4)), b.choose("other", (2, 1, 3))
    chosen = list(range(x.rank)) if axes is None else [axis % x.rank for axis in axes]
    target = list(x.shape)
    for n, axis in enumerate(chosen):
        target[axis] = sizes[n % 2]
    operand = integers(b, "shape", [target[axis] for axis in chosen])
    b.emit((x, operand), tuple(target), {"axes": axes}, bounds=hull(x, 0.0))
