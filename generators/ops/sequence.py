"""Sequences and optionals. They live inside one record: it makes one, applies its operator and takes a tensor out."""

from driftnet.generators.building.builder import Builder, hull
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, made, scalar, weight
from driftnet.generators.building.serialization import value_type
from driftnet.generators.building.values import BOOL, FLOAT, INT32, INT64, Shape
from driftnet.generators.ops.registry import operator

_RANKS = (3, 2, 4, 1, 0)
_DTYPES = (None, FLOAT, None, INT64, INT32, BOOL)
"""What a sequence is of. None: what the record would have. Left to that, one SequenceEmpty of ten was of what is no
float, as most values are floats."""


def _operand(b: Builder) -> Value:
    types, dtype = b.types(op_type="SequenceConstruct"), b.choose("of", _DTYPES)
    return data(b, dtypes=(dtype,) if dtype in types else types, ranks=_RANKS)


def _sequence(b: Builder, op_type: str, inputs: list[Value | None], x: Value) -> Value:
    """What an operator makes of those inputs: a sequence of tensors shaped like x."""
    return b.emit(inputs, x, op_type=op_type, dtype=x.dtype, container="sequence")


def _constructed(b: Builder, x: Value, *, least: int = 1) -> tuple[Value, int]:
    """A sequence of x and other tensors of its shape, made at once or one after the other; and its length."""
    others, grown = max(b.choose("others", (0, 1, 2)), least - 1), b.flag("grown")
    source = b.choose("other", ("initializer", "input", "constant"))
    items = [x, *[made(b, source, x.shapes, x.dtype, "weight") for _ in range(others)]]
    if not grown:
        return _sequence(b, "SequenceConstruct", [*items], x), len(items)
    sequence = b.emit((), x, {"dtype": x.dtype}, op_type="SequenceEmpty", dtype=x.dtype, container="sequence")
    for item in items:
        sequence = _sequence(b, "SequenceInsert", [sequence, item], x)
    return sequence, len(items)


def _position(b: Builder, number: int | None) -> Value | None:
    return None if number is None else scalar(b, "position", number, dtype=INT64)


def _bounds(x: Value) -> tuple[float, float]:
    return hull(x, -4.0, 4.0)


def _taken(b: Builder, sequence: Value, x: Value) -> None:
    """The first tensor of a sequence of tensors shaped like x."""
    b.emit((sequence, _position(b, 0)), x, op_type="SequenceAt", dtype=x.dtype, bounds=_bounds(x))


@operator("SequenceConstruct", weight=0.3)
def sequence_construct(b: Builder) -> None:
    """A sequence of one or more tensors"""
    x = _operand(b)
    count = b.choose("count", (2, 1, 3))
    axis = b.axis("axis", x.rank) if x.rank else 0
    _concatenated(b, _sequence(b, "SequenceConstruct", [x] * count, x), x, count, axis, x.rank == 0)


@operator("SequenceAt", weight=0.3)
def sequence_at(b: Builder) -> None:
    """The tensor at a position, negative ones counting from the end"""
    x = _operand(b)
    sequence, count = _constructed(b, x)
    number = b.choose("at", (0, -1, 1))
    operand = _position(b, number if -count <= number < count else 0)
    b.emit((sequence, operand), x, dtype=x.dtype, bounds=_bounds(x))


@operator("SequenceEmpty", weight=0.4)
def sequence_empty(b: Builder) -> None:
    """A sequence of no tensors, into which one is inserted"""
    x = _operand(b)
    dtype = x.dtype if x.dtype != FLOAT or b.explicit else None
    empty = b.emit((), x, {"dtype": dtype}, dtype=x.dtype, container="sequence")
    _taken(b, _sequence(b, "SequenceInsert", [empty, x], x), x)


@operator("SequenceInsert", weight=0.3)
def sequence_insert(b: Builder) -> None:
    """A sequence with one more tensor, at a position or at the end"""
    x = _operand(b)
    sequence, _ = _constructed(b, x)
    number = b.choose("at", (0, None, -1))
    other = weight(b, "inserted", x.shapes, dtype=x.dtype, sources=("initializer", "input"))
    _taken(b, _sequence(b, b.op_type, [sequence, other, _position(b, number)], x), x)


@operator("SequenceErase", weight=0.3)
def sequence_erase(b: Builder) -> None:
    """A sequence without the tensor at a position, or without the last"""
    x = _operand(b)
    sequence, _ = _constructed(b, x, least=2)
    number = b.choose("at", (-1, None, 1))
    _taken(b, _sequence(b, b.op_type, [sequence, _position(b, number)], x), x)


@operator("SequenceLength", weight=0.2)
def sequence_length(b: Builder) -> None:
    """How many tensors a sequence has"""
    sequence, _ = _constructed(b, _operand(b))
    b.emit((sequence,), (), dtype=INT64, bounds=(0.0, 8.0))


@operator("ConcatFromSequence", weight=0.3)
def concat_from_sequence(b: Builder) -> None:
    """The tensors of a sequence one after the other along an axis, or stacked along a new one"""
    x = _operand(b)
    sequence, count = _constructed(b, x)
    stacked = b.flag("new_axis") or x.rank == 0
    _concatenated(b, sequence, x, count, b.axis("axis", x.rank + stacked), stacked)


def _concatenated(b: Builder, sequence: Value, x: Value, count: int, axis: int, stacked: bool) -> None:
    k = axis % (x.rank + stacked)

    def shape(s: Shape) -> Shape:
        return (*s[:k], count, *s[k:]) if stacked else (*s[:k], count * s[k], *s[k + 1 :])

    attributes = {"axis": axis, "new_axis": int(stacked)}
    b.emit((sequence,), shape, attributes, op_type="ConcatFromSequence", dtype=x.dtype, bounds=_bounds(x))


@operator("SplitToSequence", weight=0.3)
def split_to_sequence(b: Builder) -> None:
    """A sequence of the pieces of x along an axis, of one size, or of single slices with or without that axis"""
    x = data(b, ranks=(3, 2, 4, 1))
    axis, keep, by_size = b.axis("axis", x.rank), b.choose("keepdims", (1, 0)), b.flag("split")
    operand = scalar(b, "size", 1, dtype=INT64) if by_size else None
    one = x.resized(axis, *[1] * bool(keep or by_size))
    attributes = {"axis": axis, "keepdims": None if by_size else keep}
    pieces = b.emit((x, operand), one, attributes, container="sequence")
    b.emit((pieces, _position(b, 0)), one, op_type="SequenceAt", dtype=x.dtype, bounds=x)


@operator("SequenceMap", weight=0.2)
def sequence_map(b: Builder) -> None:
    """A body applied to each tensor of a sequence"""
    x = data(b, dtypes=(FLOAT,), ranks=_RANKS)
    sequence, _ = _constructed(b, x)
    op_type = b.choose("body", ("Relu", "Neg", "Abs", "Tanh"))  # in this order: it is part of what a genome means
    item = b.value(x.dtype, x.shapes, _bounds(x))
    body = b.body((item,), lambda: [b.emit((item,), x, op_type=op_type)])
    _taken(b, b.emit((sequence,), x, {"body": body}, dtype=x.dtype, container="sequence"), x)


def _optional(b: Builder, x: Value) -> Value:
    """x in an optional."""
    return b.emit((x,), x, op_type="Optional", container="optional")


def _asked(b: Builder, held: list[Value]) -> None:
    """Whether it holds something."""
    b.emit(held, (), op_type="OptionalHasElement", dtype=BOOL, bounds=(0.0, 1.0))


@operator("Optional", weight=0.2)
def optional(b: Builder) -> None:
    """An optional that holds x, or one of a type that holds nothing; asked whether it does"""
    x = data(b, dtypes=(FLOAT, INT64), ranks=_RANKS)
    if b.flag("empty"):
        kind = value_type(x.dtype, x.shape)
        held = b.emit((), x, {"type": kind}, dtype=x.dtype, container="optional")
    else:
        held = _optional(b, x)
    _asked(b, [held])


@operator("OptionalHasElement", weight=0.2)
def optional_has_element(b: Builder) -> None:
    """Whether an optional (from opset 18 also a tensor, or nothing at all) holds something"""
    x = data(b, dtypes=(FLOAT,), ranks=_RANKS)
    form = b.choose("form", ("optional", "tensor", "nothing")) if b.opset >= 18 else "optional"
    _asked(b, [] if form == "nothing" else [x if form == "tensor" else _optional(b, x)])


@operator("OptionalGetElement", weight=0.2)
def optional_get_element(b: Builder) -> None:
    """What an optional holds"""
    x = data(b, dtypes=(FLOAT,), ranks=_RANKS)
    b.emit((_optional(b, x),), x, dtype=x.dtype, bounds=x)
