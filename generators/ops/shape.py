"""Shape and data movement: no number changes."""

from math import prod

import numpy as np
from driftnet.generators.building.broadcasting import broadcast
from driftnet.generators.building.builder import Attributes, Builder
from driftnet.generators.building.graph import Stated, Value
from driftnet.generators.building.operands import Domain, data, find, fixed, integers, shape_of
from driftnet.generators.building.sizes import Sizes
from driftnet.generators.building.values import INT64, Shape
from driftnet.generators.ops.reduction import axes_operands
from driftnet.generators.ops.registry import operator

SHAPED = (3, 2, 4, 1, 5, 6)
RESHAPES = (
    *("flat", "rows", "tail", "groups", "split", "like", "squeezed", "unsqueezed", "merge"),
    *("view", "explicit", "shuffle", "sized", "flat"),
)


@operator("Reshape", weight=3)
def reshape(b: Builder) -> None:
    """The same numbers in row-major order in another shape; 0 copies a dim, -1 is inferred (allowzero from opset 14)"""
    form, computed = b.choose("form", RESHAPES), "computed" in b.profile.numbers
    factor = b.choose("factor", (2, 3, 4, 8))
    if form in ("groups", "shuffle"):
        x = data(b, dtypes=b.types(inner=True), ranks=(4, 3), fixed=(1,), sizes=Sizes(multiple=factor))
    else:
        x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    like = find(b, lambda v: v.shape != x.shape and list(map(prod, v.shapes)) == list(map(prod, x.shapes)))
    if form == "like" and like is not None and computed:
        b.emit((x, shape_of(b, like)), like, bounds=x)
        return
    if form in ("view", "sized") and computed:
        _view(b, x, 1 if form == "view" else x.rank - 1)
        return
    target = _target(form, factor, x)
    if not all(_reshapes(s, target) for s in x.shapes):
        target = (-1,)
    b.emit((x, integers(b, "shape", target)), lambda s: reshaped(s, target), {"allowzero": 0}, bounds=x)


def _view(b: Builder, x: Value, kept: int) -> None:
    """The first `kept` dims read off x one by one and the rest flattened: torch's x.view(x.size(0), -1)."""
    shape, parts = shape_of(b, x), []
    for axis in range(kept):
        index = fixed(b, "initializer", np.array(axis, np.int64))
        number = b.emit((shape, index), (), {"axis": Stated(0)}, op_type="Gather")
        inputs, attributes = axes_operands(b, (0,), op_type="Unsqueeze")
        parts.append(b.emit((number, *inputs), (1,), attributes, op_type="Unsqueeze", bounds=(1.0, 4096.0)))
    parts.append(integers(b, "shape", (-1,)))
    target = b.emit(parts, (len(parts),), {"axis": 0}, op_type="Concat", bounds=(-1.0, 4096.0))
    b.emit((x, target), lambda s: (*s[:kept], prod(s[kept:])), bounds=x)


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
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED, empty=True)
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
    b.emit((x,), lambda s: tuple([s[axis] for axis in perm]), attributes)


@operator("Flatten")
def flatten(b: Builder) -> None:
    """A matrix: the dims before `axis` as rows, the others as columns"""
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    axis = b.choose("axis", (1, 0, 2, -1, 3))
    axis = axis if axis <= x.rank else 1
    k = axis % x.rank if axis < 0 else axis
    b.emit((x,), lambda s: (prod(s[:k]), prod(s[k:])), {"axis": axis})


@operator("Squeeze")
def squeeze(b: Builder) -> None:
    """Without the given axes of size 1, or without all of them; axes are an input from opset 13"""
    narrow = Domain(lambda v: any(_ones(v)))
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED, sizes=Sizes(most=(1,)), domain=narrow)
    every, mask = b.choose("every", (False, False, True)), b.choose("axes", range(64))
    ones = [axis for axis, one in enumerate(_ones(x)) if one]
    every = every and x.static  # with symbolic dims "all of size 1" would depend on the feed
    dropped = ones if every else [axis for axis in ones if not mask >> axis & 1] or ones
    inputs, attributes = axes_operands(b, () if every else tuple(dropped))
    b.emit((x, *inputs), lambda s: tuple([n for k, n in enumerate(s) if k not in dropped]), attributes, bounds=x)


def _ones(x: Value) -> list[bool]:
    return [all(shape[axis] == 1 for shape in x.shapes) for axis in range(x.rank)]


@operator("Unsqueeze")
def unsqueeze(b: Builder) -> None:
    """With new axes of size 1; axes are an input from opset 13"""
    x = data(b, dtypes=b.types(inner=True), ranks=(2, 3, 1, 4, 0), empty=True)
    axes = b.choose("axes", ((0,), (1,), (-1,), (0, 1), (2,), (0, -1), (-2,), (2, 3)))
    rank = x.rank + len(axes)
    if len({axis % rank for axis in axes}) < len(axes) or any(not -rank <= axis < rank for axis in axes):
        axes, rank = (0,), x.rank + 1
    new = {axis % rank for axis in axes}

    def shape(s: Shape) -> Shape:
        rest = iter(s)
        return tuple([1 if axis in new else next(rest) for axis in range(rank)])

    inputs, attributes = axes_operands(b, axes)
    b.emit((x, *inputs), shape, attributes, bounds=x)


@operator("Expand")
def expand(b: Builder) -> None:
    """x broadcast with a shape"""
    x = data(b, dtypes=b.types(inner=True), ranks=(3, 2, 4, 1, 0))
    size, higher = b.choose("size", (2, 3, 1, 4)), b.flag("higher")
    target = tuple([size if one else 1 for one in _ones(x)])
    target = (size, *target) if higher or not target else target
    b.emit((x, integers(b, "shape", target)), lambda s: broadcast(s, target), bounds=x)


@operator("Tile")
def tile(b: Builder) -> None:
    """x repeated along each axis"""
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED)
    mask, times = b.choose("axes", range(1, 64)), b.choose("times", (2, 1, 3))
    repeats = tuple([times if mask >> axis & 1 else 1 for axis in range(x.rank)])
    operands = (x, integers(b, "repeats", repeats))
    b.emit(operands, lambda s: tuple([n * r for n, r in zip(s, repeats)]), bounds=x)


@operator("DepthToSpace")
def depth_to_space(b: Builder) -> None:
    """Channels to blocks of rows and columns, in DCR or CRD order"""
    block = b.choose("blocksize", (2, 3, 1))
    x = data(b, dtypes=b.types(inner=True), ranks=(4,), fixed=(1,), sizes=Sizes(multiple=block**2))
    attributes = {"blocksize": block, "mode": b.choose("mode", ("DCR", "CRD"))}
    b.emit((x,), lambda s: (s[0], s[1] // block**2, s[2] * block, s[3] * block), attributes)


@operator("SpaceToDepth")
def space_to_depth(b: Builder) -> None:
    """Blocks of rows and columns to channels"""
    x = data(b, dtypes=b.types(inner=True), ranks=(4,))
    wanted = b.choose("blocksize", (2, 3, 1))
    block = wanted if all(n % wanted == 0 for shape in x.shapes for n in shape[2:]) else 1
    b.emit((x,), lambda s: (s[0], s[1] * block**2, s[2] // block, s[3] // block), {"blocksize": block})


@operator("Shape", weight=0.4)
def shape_(b: Builder) -> None:
    """The shape of x as numbers; start and end from opset 15"""
    x = data(b, dtypes=b.types(inner=True), ranks=SHAPED, empty=True)
    start = b.choose("start", (0, 1, -1)) if b.has("start") else 0
    start = start if -x.rank <= start < x.rank else 0
    attributes: Attributes = {"start": start, "end": b.choose("end", (None, None, -1, 2, 9)) if b.has("end") else None}
    count = len(range(x.rank)[start : attributes["end"]])
    if count == 0:
        attributes, count = {"start": Stated(start)}, x.rank - start % x.rank
    b.emit((x,), (count,), attributes, dtype=INT64, bounds=(1.0, 4096.0))
