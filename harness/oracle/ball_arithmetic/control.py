"""Subgraphs: evaluated where the condition and the number of turns do not depend on rounding.

Where a condition does, both branches of an If are taken, and the result is their hull.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, hull, value
from driftnet.oracle.ball_arithmetic.operands import joined, moved, operand
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule

MOST_TURNS = 1024
"""Of a Loop: one without end would never come back."""


@rule("If")
def _if(node: Node, operands: Operands, context: Context) -> Results:
    condition: Ball = operands[0]
    then, otherwise = node.attributes["then_branch"], node.attributes["else_branch"]
    if not condition.error.any():
        return context.subgraph(then if value(condition).item() else otherwise, ())
    pairs = zip(context.subgraph(then, ()), context.subgraph(otherwise, ()))
    return [hull([a, b]) if a.shape == b.shape else None for a, b in pairs]


@rule("Loop")
def _loop(node: Node, operands: Operands, context: Context) -> Results:
    """A state passed through a body up to M times and while a condition holds; what each turn yields is stacked"""
    most, going = (operand(operands, k) for k in range(2))
    turns = MOST_TURNS + 1 if most is None else int(value(most).item())
    going = exact(np.array(True)) if going is None else going
    state: list[Any] = list(operands[2:])
    yields: list[list[Ball]] = []
    for turn in range(turns):
        if not value(going).item():
            break
        if turn == MOST_TURNS:
            raise Undecided(f"more than {MOST_TURNS} turns")
        going, *results = context.subgraph(node.attributes["body"], [exact(np.array(turn)), going, *state])
        state, yielded = results[: len(state)], results[len(state) :]
        yields.append(yielded)
    stacked = [_stack(column, 0) for column in zip(*yields)] if yields else []
    return [*state, *stacked]


@rule("Scan")
def _scan(node: Node, operands: Operands, context: Context) -> Results:
    """A state passed along the slices of one or more tensors; what each step yields is stacked"""
    body, count = node.attributes["body"], int(node.attributes["num_scan_inputs"])
    state, scanned = list(operands[: len(operands) - count]), operands[len(operands) - count :]
    columns = [
        _slices(x, axis, backwards)
        for x, axis, backwards in zip(
            scanned,
            attribute(node, "scan_input_axes", [0] * count),
            attribute(node, "scan_input_directions", [0] * count),
        )
    ]
    yields: list[list[Ball]] = []
    for slices in zip(*columns):
        results = list(context.subgraph(body, [*state, *slices]))
        state, yielded = results[: len(state)], results[len(state) :]
        yields.append(yielded)
    outputs = len(node.outputs) - len(state)
    axes = attribute(node, "scan_output_axes", [0] * outputs)
    directions = attribute(node, "scan_output_directions", [0] * outputs)
    columns_out = zip(zip(*yields), axes, directions)
    return [*state, *(_stack(column[::-1] if backwards else column, axis) for column, axis, backwards in columns_out)]


def _stack(balls: Sequence[Ball], axis: int) -> Ball:
    return joined(balls, lambda arrays: np.stack(arrays, axis))


def _slices(x: Ball, axis: int, backwards: int) -> list[Ball]:
    slices = [_slice(x, axis, k) for k in range(x.shape[axis])]
    return slices[::-1] if backwards else slices


def _slice(x: Ball, axis: int, k: int) -> Ball:
    return moved(x, lambda a: np.take(a, k, axis))
