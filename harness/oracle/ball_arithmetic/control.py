"""Subgraphs: evaluated where the condition and the number of turns do not depend on rounding.

Where a condition does, both branches of an If are taken, and the result is their hull.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, exact, hull, joined, moved, value
from driftnet.oracle.ball_arithmetic.rules import Context, Maybe, rule
from onnx import GraphProto

MOST_TURNS = 1024
"""Of a Loop: one without end would never come back."""


@rule("If")
def if_(condition: Ball, *, then_branch: GraphProto, else_branch: GraphProto, context: Context) -> list[Ball | None]:
    """What one branch makes"""
    if not condition.error.any():
        return list(context.subgraph(then_branch if value(condition).item() else else_branch, ()))
    pairs = zip(context.subgraph(then_branch, ()), context.subgraph(else_branch, ()))
    return [hull([a, b]) if a.shape == b.shape else None for a, b in pairs]


@rule("Loop")
def loop(most: Array | None = None, going: Maybe = None, *state: Any, body: GraphProto, context: Context) -> list[Any]:
    """A state passed through a body up to M times and while a condition holds; what each turn yields is stacked"""
    turns = MOST_TURNS + 1 if most is None else int(most.item())
    going = exact(np.array(True)) if going is None else going
    yields: list[Sequence[Ball]] = []
    for turn in range(turns):
        if not value(going).item():
            break
        if turn == MOST_TURNS:
            raise Undecided(f"more than {MOST_TURNS} turns")
        going, *results = context.subgraph(body, [exact(np.array(turn)), going, *state])
        state, yielded = tuple(results[: len(state)]), results[len(state) :]
        yields.append(yielded)
    return [*state, *(_stack(column, 0) for column in zip(*yields))]


@rule("Scan")
def scan(
    *operands: Any,
    body: GraphProto,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    context: Context,
) -> list[Any]:
    """A state passed along the slices of one or more tensors; what each step yields is stacked"""
    first = len(operands) - num_scan_inputs
    state, scanned = operands[:first], operands[first:]
    columns = [
        _slices(x, axis, backwards)
        for x, axis, backwards in zip(scanned, _each(scan_input_axes), _each(scan_input_directions))
    ]
    yields: list[Sequence[Ball]] = []
    for slices in zip(*columns):
        results = context.subgraph(body, [*state, *slices])
        state, yielded = tuple(results[: len(state)]), results[len(state) :]
        yields.append(yielded)
    columns_out = zip(zip(*yields), _each(scan_output_axes), _each(scan_output_directions))
    return [*state, *(_stack(column[::-1] if backwards else column, axis) for column, axis, backwards in columns_out)]


def _each(given: Sequence[int]) -> Iterable[int]:
    """What is given for each of several tensors, 0 where nothing is."""
    return given or repeat(0)


def _stack(balls: Sequence[Ball], axis: int) -> Ball:
    return joined(balls, lambda arrays: np.stack(arrays, axis))


def _slices(x: Ball, axis: int, backwards: int) -> list[Ball]:
    slices = [moved(x, lambda a: np.take(a, k, axis)) for k in range(x.shape[axis])]  # noqa: B023
    return slices[::-1] if backwards else slices
