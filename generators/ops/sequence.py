"""Sequences and optionals. They live inside one record: it makes one, applies its operator and takes a tensor out."""

from __future__ import annotations

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import constant, data, made
from driftnet.generators.building.serialization import value_type
from driftnet.generators.building.values import BOOL, FLOAT, INT64, Shape
from driftnet.generators.ops.registry import operator


def _operand(b: Builder) -> Value:
    return data(b, dtypes=b.types("SequenceConstruct"), ranks=(3, 2, 4, 1, 0))


def _constructed(b: Builder, x: Value, *, least: int = 1) -> tuple[Value, int]:
    """A sequence of x and other tensors of its shape, made at once or one after the other; and its length."""
    others, grown = max(b.choose("others", (0, 1, 2)), least - 1), b.flag("grown")
    source = b.choose("other", ("initializer", "input", "constant"))
    items = [x, *[made(b, source, x.shapes, x.dtype, "weight") for _ in range(others)]]
    if not grown:
        return b.emit("SequenceConstruct", items, x.shapes, container="sequence"), len(items)
    sequence = b.emit("SequenceEmpty", (), x.shapes, {"dtype": x.dtype}, dtype=x.dtype, container="sequence")
    for item in items:
        sequence = b.emit("SequenceInsert", (sequence, item), x.shapes, dtype=x.dtype, container="sequence")
    return sequence, len(items)


def _position(b: Builder, number: int) -> Value:
    return constant(b, "position", np.array(number, np.int64))


def _bounds(x: Value) -> tuple[float, float]:
    return min(x.low, -4.0), max(x.high, 4.0)


def _taken(b: Builder, sequence: Value, x: Value) -> None:
    """The first tensor of a sequence of tensors shaped like x."""
    b.emit("SequenceAt", (sequence, _position(b, 0)), x.shapes, dtype=x.dtype, bounds=_bounds(x))


@operator("SequenceConstruct", weight=0.3)
def sequence_construct(b: Builder) -> None:
    """A sequence of one or more tensors"""
    x = _operand(b)
    count = b.choose("count", (2, 1, 3))
    axis = b.axis("axis", x.rank) if x.rank else 0
    together = b.emit("SequenceConstruct", [x] * count, x.shapes, container="sequence")
    _concatenated(b, together, x, count, axis, x.rank == 0)


@operator("SequenceAt", weight=0.3)
def sequence_at(b: Builder) -> None:
    """The tensor at a position, negative ones counting from the end"""
    x = _operand(b)
    sequence, count = _constructed(b, x)
    number = b.choose("at", (0, -1, 1))
    operand = _position(b, number if -count <= number < count else 0)
    b.emit("SequenceAt", (sequence, operand), x.shapes, dtype=x.dtype, bounds=_bounds(x))


@operator("SequenceEmpty", weight=0.2)
def sequence_empty(b: Builder) -> None:
    """A sequence of no tensors, into which one is inserted"""
    x = _operand(b)
    dtype = x.dtype if x.dtype != FLOAT or b.explicit else None
    empty = b.emit("SequenceEmpty", (), x.shapes, {"dtype": dtype}, dtype=x.dtype, container="sequence")
    filled = b.emit("SequenceInsert", (empty, x), x.shapes, dtype=x.dtype, container="sequence")
    _taken(b, filled, x)


@operator("SequenceInsert", weight=0.3)
def sequence_insert(b: Builder) -> None:
    """A sequence with one more tensor, at a position or at the end"""
    x = _operand(b)
    sequence, _ = _constructed(b, x)
    number = b.choose("at", (0, None, -1))
    other = made(b, b.choose("inserted", ("initializer", "input")), x.shapes, x.dtype, "weight")
    inputs = (sequence, other, None if number is None else _position(b, number))
    _taken(b, b.emit("SequenceInsert", inputs, x.shapes, dtype=x.dtype, container="sequence"), x)


@operator("SequenceErase", weight=0.3)
def sequence_erase(b: Builder) -> None:
    """A sequence without the tensor at a position, or without the last"""
    x = _operand(b)
    sequence, _ = _constructed(b, x, least=2)
    number = b.choose("at", (-1, None, 1))
    inputs = (sequence, None if number is None else _position(b, number))
    _taken(b, b.emit("SequenceErase", inputs, x.shapes, dtype=x.dtype, container="sequence"), x)


@operator("SequenceLength", weight=0.2)
def sequence_length(b: Builder) -> None:
    """How many tensors a sequence has"""
    x = _operand(b)
    sequence, _ = _constructed(b, x)
    b.emit("SequenceLength", (sequence,), ((),) * len(x.shapes), dtype=INT64, bounds=(0.0, 8.0))


@operator("ConcatFromSequence", weight=0.3)
def concat_from_sequence(b: Builder) -> None:
    """The tensors of a sequence one after the other along an axis, or stacked along a new one"""
    x = _operand(b)
    sequence, count = _constructed(b, x)
    stacked = b.flag("new_axis") or x.rank == 0
    axis = b.axis("axis", x.rank + stacked)
    _concatenated(b, sequence, x, count, axis, stacked)


def _concatenated(b: Builder, sequence: Value, x: Value, count: int, axis: int, stacked: bool) -> None:
    k = axis % (x.rank + stacked)

    def shape(s: Shape) -> Shape:
        return (*s[:k], count, *s[k:]) if stacked else (*s[:k], count * s[k], *s[k + 1 :])

    attributes = {"axis": axis, "new_axis": b.unless(int(stacked), 0)}
    b.emit("ConcatFromSequence", (sequence,), each(shape, x), attributes, dtype=x.dtype, bounds=_bounds(x))


@operator("SplitToSequence", weight=0.3)
def split_to_sequence(b: Builder) -> None:
    """A sequence of the pieces of x along an axis, of one size, or of single slices with or without that axis"""
    x = data(b, dtypes=b.types("SplitToSequence"), ranks=(3, 2, 4, 1))
    axis, keep, by_size = b.axis("axis", x.rank), b.choose("keepdims", (1, 0)), b.flag("split")
    k = axis % x.rank
    operand = constant(b, "size", np.array(1, np.int64)) if by_size else None
    attributes = {"axis": b.unless(axis, 0), "keepdims": None if by_size else b.unless(keep, 1)}
    one = each(lambda s: (*s[:k], *(1,) * bool(keep or by_size), *s[k + 1 :]), x)
    pieces = b.emit("SplitToSequence", (x, operand), one, attributes, container="sequence")
    b.emit("SequenceAt", (pieces, _position(b, 0)), one, dtype=x.dtype, bounds=(x.low, x.high))


@operator("SequenceMap", since=17, weight=0.2)
def sequence_map(b: Builder) -> None:
    """A body applied to each tensor of a sequence"""
    x = data(b, ranks=(3, 2, 4, 1, 0))
    sequence, _ = _constructed(b, x)
    op_type = b.choose("body", ("Relu", "Neg", "Abs", "Tanh"))
    item = b.value(x.dtype, x.shapes, _bounds(x))
    body = b.body((item,), lambda: [b.emit(op_type, (item,), x.shapes)])
    mapped = b.emit("SequenceMap", (sequence,), x.shapes, {"body": body}, dtype=x.dtype, container="sequence")
    _taken(b, mapped, x)


def _optional(b: Builder, x: Value) -> Value:
    """x in an optional."""
    return b.emit("Optional", (x,), x.shapes, container="optional")


@operator("Optional", since=15, weight=0.2)
def optional(b: Builder) -> None:
    """An optional that holds x, or one of a type that holds nothing; asked whether it does"""
    x = data(b, dtypes=(FLOAT, INT64), ranks=(3, 2, 4, 1, 0))
    if b.flag("empty"):
        kind = value_type(x.dtype, tuple(x.shape))
        held = b.emit("Optional", (), x.shapes, {"type": kind}, dtype=x.dtype, container="optional")
    else:
        held = _optional(b, x)
    b.emit("OptionalHasElement", (held,), ((),) * len(x.shapes), dtype=BOOL, bounds=(0.0, 1.0))


@operator("OptionalHasElement", since=15, weight=0.2)
def optional_has_element(b: Builder) -> None:
    """Whether an optional (from opset 18 also a tensor, or nothing at all) holds something"""
    x = data(b, ranks=(3, 2, 4, 1, 0))
    form = b.choose("form", ("optional", "tensor", "nothing")) if b.opset >= 18 else "optional"
    inputs: list[Value] = []
    if form != "nothing":
        inputs = [x if form == "tensor" else _optional(b, x)]
    b.emit("OptionalHasElement", inputs, ((),) * len(x.shapes), dtype=BOOL, bounds=(0.0, 1.0))


@operator("OptionalGetElement", since=15, weight=0.2)
def optional_get_element(b: Builder) -> None:
    """What an optional holds"""
    x = data(b, ranks=(3, 2, 4, 1, 0))
    held = _optional(b, x)
    b.emit("OptionalGetElement", (held,), x.shapes, dtype=x.dtype, bounds=(x.low, x.high))
