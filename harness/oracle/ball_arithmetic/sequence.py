"""Sequences and optionals. A sequence is a tuple of balls; an optional is what it holds, or NOTHING."""

from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, exact, joined, moved
from driftnet.oracle.ball_arithmetic.data_movement import pieces
from driftnet.oracle.ball_arithmetic.rules import Context, Integers, rule
from onnx import GraphProto

Sequence = tuple[Any, ...]
NOTHING = exact(np.array((), object))
"""What an empty optional holds, told by its identity."""


@rule("SequenceConstruct", "SequenceEmpty")
def sequence_construct(*operands: Ball) -> Sequence:
    """A sequence of the operands"""
    return tuple(operands)


@rule("SequenceInsert")
def sequence_insert(items: Sequence, x: Ball, at: Integers | None = None) -> Sequence:
    """A sequence with one more tensor, at a position or at the end"""
    before = slice(at[0] if at else None)
    return (*items[before], x, *items[len(items[before]) :])


@rule("SequenceErase")
def sequence_erase(items: Sequence, at: Integers | None = None) -> Sequence:
    """A sequence without the tensor at a position, or without the last"""
    erased = (at[0] if at else -1) % len(items)
    return (*items[:erased], *items[erased + 1 :])


@rule("SequenceAt")
def sequence_at(items: Sequence, at: Integers) -> Any:
    """The tensor at a position"""
    return items[at[0]]


@rule("SequenceLength")
def sequence_length(items: Sequence) -> Ball:
    """How many tensors a sequence has"""
    return exact(np.array(len(items), np.int64))


@rule("ConcatFromSequence")
def concat_from_sequence(items: Sequence, *, axis: int, new_axis: int = 0) -> Ball:
    """The tensors of a sequence one after the other along an axis, or stacked along a new one"""
    join = np.stack if new_axis else np.concatenate
    return joined(items, lambda xs: np.asarray(join(xs, axis)))


@rule("SplitToSequence")
def split_to_sequence(x: Ball, sizes: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> Sequence:
    """The pieces of x along an axis: of one size or of given sizes, or single slices with or without that axis"""
    if sizes is not None and sizes.ndim:
        return tuple(pieces(x, [int(n) for n in np.cumsum(sizes)[:-1]], axis))
    step = 1 if sizes is None else int(sizes)
    parts = pieces(x, list(range(step, x.shape[axis], step)), axis)
    if sizes is None and not keepdims:
        parts = [moved(part, lambda values: values.squeeze(axis)) for part in parts]
    return tuple(parts)


@rule("SequenceMap")
def sequence_map(items: Sequence, *others: Any, body: GraphProto, node: Node, context: Context) -> list[Sequence]:
    """A body applied to each tensor of one or more sequences; a tensor operand is given to every turn"""
    turns = [[x[turn] if isinstance(x, tuple) else x for x in (items, *others)] for turn in range(len(items))]
    results: list[Any] = [context.subgraph(body, turn) for turn in turns]
    return [tuple(column) for column in zip(*results)] if results else [()] * len(node.outputs)


@rule("Identity", "Optional", "OptionalGetElement")
def identity(x: Any = NOTHING) -> Any:
    """What it is given: a tensor, a sequence, or an optional that holds that"""
    return x


@rule("OptionalHasElement")
def optional_has_element(x: Any = NOTHING) -> Ball:
    """Whether an optional holds something; an operand that is absent does not"""
    return exact(np.array(x is not NOTHING))
