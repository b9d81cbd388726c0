"""Shape and data movement: no number changes."""

from __future__ import annotations

from math import prod

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, find, fixed, integers
from driftnet.generators.building.values import INT64, Shape
from driftnet.generators.ops.elementwise import broadcast
from driftnet.generators.ops.reduction import axes_operands
from driftnet.generators.ops.registry import operator

SHAPED = (3, 2, 4, 1, 5, 6)


@operator("Reshape", weight=3)
def reshape(b: Builder) -> None:
    """The same numbers in row-major order in another shape; 0 copies a dim, -1 is inferred (allowzero from opset 14)"""
    form = b.choose("form", RESHAPES)
    factor = b.choose("factor", (2, 3, 4, 8))
    if form in ("groups", "shuffle"):
        x = data(b, dtypes=b.types("Reshape", inner=True), ranks=(4, 3), fixed=(1,), multiple=factor)
    else:
        x = data(b, dtypes=b.types("Reshape", inner=True), ranks=SHAPED)
    like = find(b, lambda v: v.shape != x.shape and list(map(prod, v.shapes)) == list(map(prod, x.shapes)))
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
    operand = integers(b, "shape", target)
    attributes = {"allowzero": b.unless(0, 0) if b.opset >= 14 else None}
    b.emit("Reshape", (x, operand), each(lambda s: reshaped(s, target), x), attributes, bounds=(x.low, x.high))


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
        index = fixed(b, "initializer", np.array(axis, np.int64))
        number = b.emit("Gather", (shape, index), ((),) * feeds, {"axis": 0})
        inputs, attributes = axes_operands(b, (0,), input_since=13)
        parts.append(b.emit("Unsqueeze", (number, *inputs), ((1,),) * feeds, attributes, bounds=(1.0, 4096.0)))
    parts.append(integers(b, "shape", (-1,)))
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
    x = data(b, dtypes=b.types("Transpose", inner=True), ranks=SHAPED, empty=True)
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
    x = data(b, dtypes=b.types("Flatten", inner=True), ranks=SHAPED)
    axis = b.choose("axis", (1, 0, 2, -1, 3))
    axis = axis if axis <= x.rank else 1
    k = axis % x.rank if axis < 0 else axis
    b.emit("Flatten", (x,), each(lambda s: (prod(s[:k]), prod(s[k:])), x), {"axis": b.unless(axis, 1)})


@operator("Squeeze")
def squeeze(b: Builder) -> None:
    """Without the given axes of size 1, or without all of them; axes are an input from opset 13"""
    x = data(b, dtypes=b.types("Squeeze", inner=True), ranks=SHAPED, most=(1,), fits=lambda v: any(_ones(v)))
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
    x = data(b, dtypes=b.types("Unsqueeze", inner=True), ranks=(2, 3, 1, 4, 0), empty=True)
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


@operator("Expand")
def expand(b: Builder) -> None:
    """x broadcast with a shape"""
    x = data(b, dtypes=b.types("Expand", inner=True), ranks=(3, 2, 4, 1, 0))
    size, higher = b.choose("size", (2, 3, 1, 4)), b.flag("higher")
    ones = _ones(x)
    target = tuple([size if one else 1 for one in ones])
    target = (size, *target) if higher or not target else target
    operand = integers(b, "shape", target)
    b.emit("Expand", (x, operand), each(lambda s: broadcast(s, target), x), bounds=(x.low, x.high))


@operator("Tile")
def tile(b: Builder) -> None:
    """x repeated along each axis"""
    x = data(b, dtypes=b.types("Tile", inner=True), ranks=SHAPED)
    mask, times = b.choose("axes", range(1, 64)), b.choose("times", (2, 1, 3))
    repeats = tuple([times if mask >> axis & 1 else 1 for axis in range(x.rank)])
    operand = integers(b, "repeats", repeats)
    b.emit("Tile", (x, operand), each(lambda s: tuple([n * r for n, r in zip(s, repeats)]), x), bounds=(x.low, x.high))


@operator("DepthToSpace")
def depth_to_space(b: Builder) -> None:
    """Channels to blocks of rows and columns, in DCR or CRD order"""
    block = b.choose("blocksize", (2, 3, 1))
    x = data(b, dtypes=b.types("DepthToSpace", inner=True), ranks=(4,), fixed=(1,), multiple=block**2)
    mode = b.choose("mode", ("DCR", "CRD"))
    shapes = each(lambda s: (s[0], s[1] // block**2, s[2] * block, s[3] * block), x)
    b.emit("DepthToSpace", (x,), shapes, {"blocksize": block, "mode": b.unless(mode, "DCR")})


@operator("SpaceToDepth")
def space_to_depth(b: Builder) -> None:
    """Blocks of rows and columns to channels"""
    x = data(b, dtypes=b.types("SpaceToDepth", inner=True), ranks=(4,))
    wanted = b.choose("blocksize", (2, 3, 1))
    block = wanted if all(n % wanted == 0 for shape in x.shapes for n in shape[2:]) else 1
    shapes = each(lambda s: (s[0], s[1] * block**2, s[2] // block, s[3] // block), x)
    b.emit("SpaceToDepth", (x,), shapes, {"blocksize": block})


@operator("Shape", weight=0.4)
def shape_(b: Builder) -> None:
    """The shape of x as numbers; start and end from opset 15"""
    x = data(b, dtypes=b.types("Shape", inner=True), ranks=SHAPED, empty=True)
    start = b.choose("start", (0, 1, -1)) if b.opset >= 15 else 0
    start = start if -x.rank <= start < x.rank else 0
    end = b.choose("end", (None, None, -1, 2, 9)) if b.opset >= 15 else None
    attributes = {"start": b.unless(start, 0) if b.opset >= 15 else None, "end": end}
    count = len(range(x.rank)[start:end])
    if count == 0:
        attributes, count = {"start": start}, x.rank - start % x.rank
    b.emit("Shape", (x,), ((count,),) * len(x.shapes), attributes, dtype=INT64, bounds=(1.0, 4096.0))
