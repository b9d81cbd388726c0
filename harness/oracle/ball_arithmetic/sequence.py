"""Sequences and optionals. A sequence is a tuple of balls; an optional is what it holds, or NOTHING."""

from __future__ import annotations

from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Ball, exact
from driftnet.oracle.ball_arithmetic.data_movement import pieces
from driftnet.oracle.ball_arithmetic.operands import array, integers, joined, moved, operand
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule


@rule("SequenceConstruct")
def sequence_construct(node: Node, operands: Operands, context: Context) -> Results:
    """A sequence of the operands"""
    return [tuple(operands)]


@rule("SequenceEmpty")
def sequence_empty(node: Node, operands: Operands, context: Context) -> Results:
    """A sequence of no tensors"""
    return [()]


@rule("SequenceInsert")
def sequence_insert(node: Node, operands: Operands, context: Context) -> Results:
    """A sequence with one more tensor, at a position or at the end"""
    items = list(operands[0])
    at = integers(operands, 2)
    items.insert(len(items) if at is None else at[0], operands[1])
    return [tuple(items)]


@rule("SequenceErase")
def sequence_erase(node: Node, operands: Operands, context: Context) -> Results:
    """A sequence without the tensor at a position, or without the last"""
    items = list(operands[0])
    del items[(integers(operands, 1) or [-1])[0]]
    return [tuple(items)]


@rule("SequenceAt")
def sequence_at(node: Node, operands: Operands, context: Context) -> Results:
    """The tensor at a position"""
    return [operands[0][(integers(operands, 1) or [0])[0]]]


@rule("SequenceLength")
def sequence_length(node: Node, operands: Operands, context: Context) -> Results:
    """How many tensors a sequence has"""
    return [exact(np.array(len(operands[0]), np.int64))]


@rule("ConcatFromSequence")
def concat_from_sequence(node: Node, operands: Operands, context: Context) -> Results:
    """The tensors of a sequence one after the other along an axis, or stacked along a new one"""
    axis, join = node.attributes["axis"], np.stack if attribute(node, "new_axis", 0) else np.concatenate
    return [joined(operands[0], lambda xs: np.asarray(join(xs, axis)))]


@rule("SplitToSequence")
def split_to_sequence(node: Node, operands: Operands, context: Context) -> Results:
    """The pieces of x along an axis: of one size or of given sizes, or single slices with or without that axis"""
    x: Ball = operands[0]
    axis, sizes = attribute(node, "axis", 0), array(operands, 1)
    step = 1 if sizes is None else int(sizes.ravel()[0])
    if sizes is not None and sizes.ndim:
        ends = [int(n) for n in np.cumsum(sizes)[:-1]]
    else:
        ends = list(range(step, x.shape[axis], step))
    parts = pieces(x, ends, axis)
    if sizes is None and not attribute(node, "keepdims", 1):
        parts = [moved(part, lambda values: values.squeeze(axis)) for part in parts]
    return [tuple(parts)]


@rule("SequenceMap")
def sequence_map(node: Node, operands: Operands, context: Context) -> Results:
    """A body applied to each tensor of one or more sequences; a tensor operand is given to every turn"""
    count = len(operands[0])
    turns = [[x[turn] if isinstance(x, tuple) else x for x in operands] for turn in range(count)]
    results: list[Any] = [context.subgraph(node.attributes["body"], turn) for turn in turns]
    return [tuple(column) for column in zip(*results)] if results else [()] * len(node.outputs)


NOTHING = exact(np.array((), object))
"""What an empty optional holds, told by its identity."""


@rule("Optional")
def optional(node: Node, operands: Operands, context: Context) -> Results:
    """An optional that holds x, or nothing"""
    return [operands[0] if operands else NOTHING]


@rule("OptionalGetElement")
def optional_get_element(node: Node, operands: Operands, context: Context) -> Results:
    """What an optional holds"""
    return [operands[0]]


@rule("OptionalHasElement")
def optional_has_element(node: Node, operands: Operands, context: Context) -> Results:
    """Whether an optional holds something; an operand that is absent does not"""
    held = operand(operands, 0)
    return [exact(np.array(held is not None and held is not NOTHING))]
