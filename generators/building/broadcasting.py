"""Broadcasting: second operands of a shape that goes with the first, as NumPy has it."""

from math import prod

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import find, made
from driftnet.generators.building.values import ELEMENTS, Shape


def broadcast(*shapes: Shape) -> Shape:
    """The common shape under multidirectional broadcasting. Raises ValueError where there is none."""
    return shapes[0] if shapes.count(shapes[0]) == len(shapes) else np.broadcast_shapes(*shapes)


def broadcasts(*operands: Value) -> bool:
    """Whether the operands have a common shape of a legal size in every feed."""
    try:
        return all(prod(shape) <= ELEMENTS for shape in each(broadcast, *operands))
    except ValueError:
        return False


def second(b: Builder, name: str, x: Value, *, fill: str = "weight") -> Value:
    """An operand that broadcasts with x: another value, or a constant or input of a shape made from x's.

    A value of x's rank comes before others: that is what a residual or a gate is. The shapes: x's, a scalar, one axis
    of x alone, some of its axes, and x with an axis more.
    """
    reference = b.choose(name, ("made", "made", "value", "made", "value", "made"))
    form = b.choose(
        f"{name}_form", ("scalar", "same", "channel", "last", "trailing", "one", "column", "higher", "mask")
    )
    keep = b.choose(f"{name}_mask", range(64))
    source = b.choose(f"{name}_source", ("initializer", "initializer", "constant", "input", "shared"))
    if reference == "value":

        def fits(v: Value) -> bool:
            return v.dtype == x.dtype and v.index != x.index and broadcasts(x, v)

        found = find(b, lambda v: v.rank == x.rank and fits(v)) or find(b, fits)
        if found is not None:
            return found
    return made(b, source, each(lambda s: _second_shape(form, keep, s), x), x.dtype, fill)


def _second_shape(form: str, keep: int, shape: Shape) -> Shape:
    rank = len(shape)
    if form == "scalar" or rank == 0:
        return ()
    if form == "mask":
        return tuple([n if keep >> axis & 1 else 1 for axis, n in enumerate(shape)])
    if form in ("channel", "last", "column"):
        axis = {"channel": min(1, rank - 1), "last": rank - 1, "column": max(rank - 2, 0)}[form]
        return (shape[axis],) + (1,) * (rank - 1 - axis)
    return {"one": (1,) * rank, "same": shape, "higher": (1, *shape), "trailing": shape[keep % rank :]}[form]


def ordered(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """The two operands, as often as not in the other order."""
    return (y, x) if b.flag("swapped") else (x, y)
