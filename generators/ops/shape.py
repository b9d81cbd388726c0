"""Shape and data movement: no number changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

import numpy as np

from generators.builder import Builder, each
from generators.graph import Value
from generators.ops.elementwise import broadcast, magnitude, tame
from generators.ops.reduction import axes_operands
from generators.ops.registry import operator
from generators.values import ELEMENTS, FLOAT16, INT64, RANGES, Fill, Shape

SHAPED = (3, 2, 4, 1, 5, 6)


@operator("Reshape", weight=3)
def reshape(b: Builder) -> None:
    """The same numbers in row-major order in another shape; 0 copies a dim, -1 is inferred (allowzero from opset 14)"""
    form = b.choose("form", RESHAPES)
    factor = b.choose("factor", (2, 3, 4, 8))
    if form in ("groups", "shuffle"):
        x = b.data(dtypes=b.types("Reshape", inner=True), ranks=(4, 3), fixed=(1,), multiple=factor)
    else:
        x = b.data(dtypes=b.types("Reshape", inner=True), ranks=SHAPED)
    like = b.find(lambda v: v.shape != x.shape and list(map(prod, v.shapes)) == list(map(prod, x.shapes)))
    if form == "like" and like is not None:
        operand = b.emit("Shape", (like,), ((like.rank,),) * len(x.shapes), dtype=INT64, bounds=(1.0, 4096.0))
        b.emit("Reshape", (x, operand), like.shapes, bounds=(x.low, x.high))
        return
    if form in ("view", "sized"):
        _view(b, x, 1 if form == "view" else x.rank - 1)
        return
    target = _target(form, factor, x)
    if not all(_reshapes(s, target) for s in x.shapes):
        target = (-1,)
    operand = b.integers("shape", target)
    b.emit("Reshape", (x, operand), each(lambda s: reshaped(s, target), x), bounds=(x.low, x.high))


RESHAPES = (
    *("flat", "rows", "tail", "groups", "split", "like", "squeezed", "unsqueezed", "merge"),
    *("view", "explicit", "shuffle", "sized", "flat"),
)


def _view(b: Builder, x: Value, kept: int) -> None:
    """The first `kept` dims read off x one by one and the rest flattened: torch's x.view(x.size(0), -1)."""
    feeds = len(x.shapes)
    shape = b.emit("Shape", (x,), ((x.rank,),) * feeds, dtype=INT64, bounds=(1.0, 4096.0))
    parts = []
    for axis in range(kept):
        index = b.fixed("initializer", np.array(axis, np.int64))
        number = b.emit("Gather", (shape, index), ((),) * feeds, {"axis": 0})
        inputs, attributes = axes_operands(b, (0,), input_since=13)
        parts.append(b.emit("Unsqueeze", (number, *inputs), ((1,),) * feeds, attributes, bounds=(1.0, 4096.0)))
    parts.append(b.integers("shape", (-1,)))
    target = b.emit("Concat", parts, ((len(parts),),) * feeds, {"axis": 0}, bounds=(-1.0, 4096.0))
    b.emit("Reshape", (x, target), each(lambda s: (*s[:kept], prod(s[kept:])), x), bounds=(x.low, x.high))


def _target(form: str, factor: int, x: Value) -> Shape:
    rank = x.rank
    forms = {
        "groups": (0, factor, -1),  # what torch exports for GroupNorm
        "rows": (0, -1) if rank > 1 else (-1, 1),
        "tail": (-1, x.shape[-1] if x.fixed(-1) else 1),
        "split": (0,) * (rank - 1) + (factor, -1),
        "squeezed": (-1, *[n for axis, n in enumerate(x.shape[1:], 1) if n > 1 and x.fixed(axis)]),
        "unsqueezed": (*(0,) * (rank - 1), -1, 1),
        "merge": (0,) * (rank - 2) + (-1,),
        "explicit": _halved(x.shape),
        "shuffle": (0, factor, -1, *x.shape[2:]),  # channels in groups
    }
    return forms.get(form, (-1,))


def _halved(shape: Shape) -> Shape:
    """Every dim written out, the first even one split in two."""
    axis = next((axis for axis, n in enumerate(shape) if n > 1 and n % 2 == 0), len(shape) - 1)
    n = shape[axis]
    return (*shape[:axis], *((2, n // 2) if n % 2 == 0 else (n, 1)), *shape[axis + 1 :])


def reshaped(shape: Shape, target: Shape) -> Shape:
    """What Reshape makes of `shape`. Raises IndexError or ValueError where `target` is illegal for it."""
    sizes = [shape[axis] if n == 0 else n for axis, n in enumerate(target)]
    if -1 in sizes:
        known = -prod(sizes)
        if known == 0 or prod(shape) % known:
            raise ValueError(f"{shape} does not reshape to {target}")
        sizes[sizes.index(-1)] = prod(shape) // known
    if prod(sizes) != prod(shape):
        raise ValueError(f"{shape} does not reshape to {target}")
    return tuple(sizes)


def _reshapes(shape: Shape, target: Shape) -> bool:
    try:
        reshaped(shape, target)
    except (IndexError, ValueError):
        return False
    return True


@operator("Transpose", weight=3)
def transpose(b: Builder) -> None:
    """The axes in another order; reversed when none is given"""
    x = b.data(dtypes=b.types("Transpose", inner=True), ranks=SHAPED, empty=True)
    form = b.choose(
        "perm", ("default", "swap last", "to last", "to first", "rotate", "identity", "swap first", "mixed", "middle")
    )
    axes = list(range(x.rank))
    perm = {
        "default": axes[::-1],
        "swap last": [*axes[:-2], *axes[:-3:-1]],
        "to last": [*axes[:1], *axes[2:], *axes[1:2]],
        "to first": [*axes[:1], *axes[-1:], *axes[1:-1]] if x.rank > 1 else axes,
        "rotate": [*axes[1:], *axes[:1]],
        "identity": axes,
        "swap first": [*axes[1::-1], *axes[2:]],
        "mixed": axes[::2] + axes[1::2],
        "middle": [*axes[:1], *axes[2:3], *axes[1:2], *axes[3:]],
    }[form]
    attributes = {"perm": tuple(perm) if form != "default" or b.explicit else None}
    b.emit("Transpose", (x,), each(lambda s: tuple([s[axis] for axis in perm]), x), attributes)


@operator("Flatten")
def flatten(b: Builder) -> None:
    """A matrix: the dims before `axis` as rows, the others as columns"""
    x = b.data(dtypes=b.types("Flatten", inner=True), ranks=SHAPED)
    axis = b.choose("axis", (1, 0, 2, -1, 3))
    axis = axis if axis <= x.rank else 1
    k = axis % x.rank if axis < 0 else axis
    b.emit("Flatten", (x,), each(lambda s: (prod(s[:k]), prod(s[k:])), x), {"axis": b.unless(axis, 1)})


@operator("Squeeze")
def squeeze(b: Builder) -> None:
    """Without the given axes of size 1, or without all of them; axes are an input from opset 13"""
    x = b.data(dtypes=b.types("Squeeze", inner=True), ranks=SHAPED, most=(1,), fits=lambda v: any(_ones(v)))
    every, mask = b.choose("every", (False, False, True)), b.choose("axes", range(64))
    ones = [axis for axis, one in enumerate(_ones(x)) if one]
    every = every and x.static  # with symbolic dims "all of size 1" would depend on the feed
    dropped = ones if every else [axis for axis in ones if not mask >> axis & 1] or ones
    inputs, attributes = axes_operands(b, () if every else tuple(dropped), input_since=13)
    shapes = each(lambda s: tuple([n for axis, n in enumerate(s) if axis not in dropped]), x)
    b.emit("Squeeze", (x, *inputs), shapes, attributes, bounds=(x.low, x.high))


def _ones(x: Value) -> list[bool]:
    return [all(shape[axis] == 1 for shape in x.shapes) for axis in range(x.rank)]


@operator("Unsqueeze")
def unsqueeze(b: Builder) -> None:
    """With new axes of size 1; axes are an input from opset 13"""
    x = b.data(dtypes=b.types("Unsqueeze", inner=True), ranks=(2, 3, 1, 4, 0), empty=True)
    axes = b.choose("axes", ((0,), (1,), (-1,), (0, 1), (2,), (0, -1), (-2,), (2, 3)))
    rank = x.rank + len(axes)
    if len({axis % rank for axis in axes}) < len(axes) or any(not -rank <= axis < rank for axis in axes):
        axes, rank = (0,), x.rank + 1
    new = {axis % rank for axis in axes}

    def shape(s: Shape) -> Shape:
        rest = iter(s)
        return tuple([1 if axis in new else next(rest) for axis in range(rank)])

    inputs, attributes = axes_operands(b, axes, input_since=13)
    b.emit("Unsqueeze", (x, *inputs), each(shape, x), attributes, bounds=(x.low, x.high))


@operator("Concat", weight=2)
def concat(b: Builder) -> None:
    """One or more tensors one after the other along an axis; the other dims agree"""
    x = b.data(dtypes=b.types("Concat", inner=True), ranks=SHAPED)
    count = b.choose("count", (2, 2, 1, 3))
    axis = b.axis("axis", x.rank)
    k = axis % x.rank
    operands = [x]
    for n in range(2):
        source = b.choose(f"y{n}", ("value", "value", "self", "initializer", "input"))
        size = b.choose(f"y{n}_size", (1, 2, 3))
        if n >= count - 1:
            continue
        other = b.find(lambda v: v.dtype == x.dtype and v.index != x.index and _beside(v, x, k))
        if source == "self":
            operands.append(x)
        elif source == "value" and other is not None:
            operands.append(other)
        else:
            operands.append(b.made(source, each(lambda s, n=size: (*s[:k], n, *s[k + 1 :]), x), x.dtype, "weight"))
    shapes = each(lambda *s: (*s[0][:k], sum(t[k] for t in s), *s[0][k + 1 :]), *operands)
    b.emit("Concat", operands, shapes, {"axis": axis})


def _beside(a: Value, x: Value, axis: int) -> bool:
    return a.rank == x.rank and all(
        s[:axis] == t[:axis] and s[axis + 1 :] == t[axis + 1 :] for s, t in zip(a.shapes, x.shapes)
    )


@operator("Split")
def split(b: Builder) -> None:
    """Pieces along an axis, equal or as given; the sizes are an input from opset 13, or num_outputs from 18"""
    x = b.data(dtypes=b.types("Split", inner=True), ranks=SHAPED)
    axis = b.axis("axis", x.rank)
    first, count, equal = b.choose("first", (1, 2, 3)), b.choose("count", (2, 3, 1)), b.flag("equal")
    k, smallest = axis % x.rank, min(shape[axis] for shape in x.shapes)

    def piece(size: Callable[[int], int]) -> tuple[int, tuple[Shape, ...]]:
        return x.dtype, each(lambda s: (*s[:k], size(s[k]), *s[k + 1 :]), x)

    attributes: dict[str, int | Shape | None] = {"axis": b.unless(axis, 0)}
    operand = None
    if equal or smallest < 2 or not x.fixed(k):
        count = count if all(shape[k] % count == 0 for shape in x.shapes) else 1
        pieces = [piece(lambda n: n // count)] * count
        if b.opset >= 18:
            attributes["num_outputs"] = count
    else:
        first = min(first, smallest - 1)
        pieces = [piece(lambda n: first), piece(lambda n: n - first)]
        if b.opset >= 13:
            operand = b.integers("split", (first, smallest - first))
        else:
            attributes["split"] = (first, smallest - first)
    b.emit_all("Split", (x, operand), pieces, attributes, bounds=(x.low, x.high))


SLICES = (
    *((0, 1, 1), (1, 2**31, 1), (0, 2**31, 2), (-1, -(2**31), -1), (0, -1, 1), (-2, 2**31, 1), (-1, -(2**31), -2)),
    *((0, 2**63 - 1, 1), (-9, 2, 1)),
)
"""(start, end, step): the first, all but the first, every second, reversed, all but the last, the last two, ..., all as
torch writes it, the first two from a start out of range."""


@operator("Slice", weight=2)
def slice_(b: Builder) -> None:
    """x[start:end:step] along the given axes, out-of-range bounds clamped; Python's semantics"""
    x = b.data(dtypes=b.types("Slice", inner=True), ranks=SHAPED)
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

    starts = b.integers("starts", [f[0] for f in bounds])
    ends = b.integers("ends", [f[1] for f in bounds])
    axes = b.integers("axes_source", [axis - x.rank for axis in chosen] if negative else chosen)
    steps = b.integers("steps", [f[2] for f in bounds]) if any(f[2] != 1 for f in bounds) or b.explicit else None
    given_axes = axes if chosen != list(range(len(chosen))) or b.explicit or steps else None
    b.emit("Slice", (x, starts, ends, given_axes, steps), each(shape, x), bounds=(x.low, x.high))


def _span(n: int, form: tuple[int, int, int]) -> range:
    return range(n)[slice(*form)]


@operator("Pad", weight=2)
def pad(b: Builder) -> None:
    """More elements at both ends of axes, constant, edge or reflected; which axes may be said from opset 18"""
    x = b.data(dtypes=b.types("Pad", inner=True), ranks=(4, 3, 2, 1, 5))
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
        smallest = min(shape[axis] for shape in x.shapes)
        most = smallest - 1 if mode in ("reflect", "wrap") else ELEMENTS
        least = -1 if mode == "constant" and smallest > 2 else 0
        pads[axis] = (max(min(wanted[0], most), least), max(min(wanted[1], most), least))
    written = chosen if partial and b.opset >= 18 else list(range(x.rank))
    operands = [
        b.integers("pads", [pads[axis][end] for end in (0, 1) for axis in written]),
        b.scalar("number_source", number, dtype=x.dtype),
        b.integers("axes_source", written) if len(written) < x.rank else None,
    ]
    shapes = each(lambda s: tuple([n + p + q for n, (p, q) in zip(s, pads)]), x)
    bounds = (min(x.low, number or 0.0), max(x.high, number or 0.0))
    b.emit("Pad", (x, *operands), shapes, {"mode": b.unless(mode, "constant")}, bounds=bounds)


@operator("Expand")
def expand(b: Builder) -> None:
    """x broadcast with a shape"""
    x = b.data(dtypes=b.types("Expand", inner=True), ranks=(3, 2, 4, 1, 0))
    size, higher = b.choose("size", (2, 3, 1, 4)), b.flag("higher")
    ones = _ones(x)
    target = tuple([size if one else 1 for one in ones])
    target = (size, *target) if higher or not target else target
    operand = b.integers("shape", target)
    b.emit("Expand", (x, operand), each(lambda s: broadcast(s, target), x), bounds=(x.low, x.high))


@operator("Tile")
def tile(b: Builder) -> None:
    """x repeated along each axis"""
    x = b.data(dtypes=b.types("Tile", inner=True), ranks=SHAPED)
    mask, times = b.choose("axes", range(1, 64)), b.choose("times", (2, 1, 3))
    repeats = tuple([times if mask >> axis & 1 else 1 for axis in range(x.rank)])
    operand = b.integers("repeats", repeats)
    b.emit("Tile", (x, operand), each(lambda s: tuple([n * r for n, r in zip(s, repeats)]), x), bounds=(x.low, x.high))


@operator("Gather", weight=1.5)
def gather(b: Builder) -> None:
    """x[..., indices, ...]: slices along an axis, negative indices counting from the end; x may be a table"""
    if b.choose("table", (False, False, False, False, True)):
        _embedding(b)
        return
    x = b.data(dtypes=b.types("Gather", inner=True), ranks=SHAPED)
    axis = b.axis("axis", x.rank)
    k = axis % x.rank
    smallest = min(shape[k] for shape in x.shapes)
    picked = b.choose("indices", ((0,), 0, (0, -1), (-1,), (1, 0, 1), ((0, 1), (-1, 0)), -1))
    indices = np.array(picked, np.int64)
    indices = np.where(indices >= smallest, 0, indices)
    operand = b.constant("indices_source", indices, ("initializer", "constant", "initializer", "input"))
    shapes = each(lambda s: (*s[:k], *indices.shape, *s[k + 1 :]), x)
    b.emit("Gather", (x, operand), shapes, {"axis": b.unless(axis, 0)}, bounds=(x.low, x.high))


def _embedding(b: Builder) -> None:
    count, width, length = b.choose("rows", (4, 2, 9)), b.choose("width", (3, 1, 8)), b.choose("length", (2, 1, 5))
    table = b.weight("table_source", (count, width))
    shape = b.choose("form", ((length,), (b.header.batch, length)))
    indices = b.whole("indices_source", (shape,) * b.header.feeds, -count, count - 1, sources=("input", "initializer"))
    shapes = each(lambda s: (*s, width), indices)
    b.emit("Gather", (table, indices), shapes, {"axis": b.unless(0, 0)}, bounds=(table.low, table.high))


@operator("DepthToSpace")
def depth_to_space(b: Builder) -> None:
    """Channels to blocks of rows and columns, in DCR or CRD order"""
    block = b.choose("blocksize", (2, 3, 1))
    x = b.data(dtypes=b.types("DepthToSpace", inner=True), ranks=(4,), fixed=(1,), multiple=block**2)
    mode = b.choose("mode", ("DCR", "CRD"))
    shapes = each(lambda s: (s[0], s[1] // block**2, s[2] * block, s[3] * block), x)
    b.emit("DepthToSpace", (x,), shapes, {"blocksize": block, "mode": b.unless(mode, "DCR")})


@operator("SpaceToDepth")
def space_to_depth(b: Builder) -> None:
    """Blocks of rows and columns to channels"""
    x = b.data(dtypes=b.types("SpaceToDepth", inner=True), ranks=(4,))
    wanted = b.choose("blocksize", (2, 3, 1))
    block = wanted if all(n % wanted == 0 for shape in x.shapes for n in shape[2:]) else 1
    shapes = each(lambda s: (s[0], s[1] * block**2, s[2] // block, s[3] // block), x)
    b.emit("SpaceToDepth", (x,), shapes, {"blocksize": block})


@operator("CumSum", weight=0.5)
def cumsum(b: Builder) -> None:
    """y_i = x_0 + ... + x_i along an axis, optionally without x_i, optionally from the end"""
    x = b.data(dtypes=b.types("CumSum", inner=True), ranks=SHAPED, fits=tame(1e12))
    axis = b.axis("axis", x.rank)
    exclusive, backwards = b.choose("exclusive", (0, 1)), b.choose("reverse", (0, 1))
    operand = b.constant("axis_source", np.array(axis, np.int64))
    n = max(shape[axis] for shape in x.shapes)
    attributes = {"exclusive": b.unless(exclusive, 0), "reverse": b.unless(backwards, 0)}
    bounds = (n * min(x.low, 0.0), n * max(x.high, 0.0))
    b.emit("CumSum", (x, operand), x.shapes, attributes, bounds=bounds)


@operator("Shape", weight=0.4)
def shape_(b: Builder) -> None:
    """The shape of x as numbers; start and end from opset 15"""
    x = b.data(dtypes=b.types("Shape", inner=True), ranks=SHAPED, empty=True)
    start = b.choose("start", (0, 1, -1)) if b.opset >= 15 else 0
    start = start if -x.rank <= start < x.rank else 0
    attributes = {"start": b.unless(start, 0) if b.opset >= 15 else None}
    count = x.rank - (start % x.rank)
    b.emit("Shape", (x,), ((count,),) * len(x.shapes), attributes, dtype=INT64, bounds=(1.0, 4096.0))


@operator("CumProd", since=26, weight=1.5)
def cumprod(b: Builder) -> None:
    """y_i = x_0 ... x_i along an axis, optionally without x_i, optionally from the end"""
    dtypes = [dtype for dtype in b.types("CumProd") if dtype != FLOAT16]
    x = b.data(dtypes=dtypes, ranks=SHAPED, fits=lambda v: magnitude(v) <= 1.0, fill=Fill("unit"))
    axis = b.axis("axis", x.rank)
    exclusive, backwards = b.choose("exclusive", (0, 1)), b.choose("reverse", (0, 1))
    operand = b.constant("axis_source", np.array(axis, np.int64))
    attributes = {"exclusive": b.unless(exclusive, 0), "reverse": b.unless(backwards, 0)}
    b.emit("CumProd", (x, operand), x.shapes, attributes, bounds=(-1.0, 1.0))


@operator("CenterCropPad", since=18, weight=0.4)
def center_crop_pad(b: Builder) -> None:
    """Axes cropped or padded with zeros to given sizes, evenly on both ends"""
    x = b.data(dtypes=b.types("CenterCropPad"), ranks=(3, 2, 4), fixed=None)
    axes = b.choose("axes", (None, (-1,), (0,), (0, -1)))
    sizes = b.choose("sizes", (2, 1, 3, 4)), b.choose("other", (2, 1, 3))
    chosen = list(range(x.rank)) if axes is None else [axis % x.rank for axis in axes]
    target = list(x.shape)
    for n, axis in enumerate(chosen):
        target[axis] = sizes[n % 2]
    operand = b.integers("shape", [target[axis] for axis in chosen])
    bounds = (min(x.low, 0.0), max(x.high, 0.0))
    b.emit("CenterCropPad", (x, operand), (tuple(target),) * len(x.shapes), {"axes": axes}, bounds=bounds)
