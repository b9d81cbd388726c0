"""What many rules do: read operands that are parameters, and move elements with their radii."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, value
from driftnet.oracle.ball_arithmetic.rules import Operands


def operand(operands: Operands, k: int) -> Any:
    """Operand k, None where it is absent."""
    return operands[k] if k < len(operands) else None


def array(operands: Operands, k: int) -> Array | None:
    """Operand k as an array in its own dtype, None where absent. Raises Undecided where it depends on rounding."""
    ball = operand(operands, k)
    return None if ball is None else value(ball)


def integers(operands: Operands, k: int) -> list[int] | None:
    """Operand k as a flat list of integers, None where absent. Raises Undecided where it depends on rounding."""
    x = array(operands, k)
    return None if x is None else [int(n) for n in x.ravel().tolist()]


def parameter(node: Node, operands: Operands, k: int, name: str) -> list[int] | None:
    """Integers that are operand k in newer opsets and the attribute `name` in older ones; None where absent."""
    given = integers(operands, k)
    return given if given is not None else node.attributes.get(name)


def moved(ball: Ball, move: Callable[[Array], Array]) -> Ball:
    """The ball whose elements `move` takes from those of `ball`."""
    radius = None if ball.radius is None else np.asarray(move(ball.radius))
    return Ball(np.asarray(move(ball.midpoint)), radius, ball.dtype)


def joined(balls: Sequence[Ball], join: Callable[[Sequence[Array]], Array]) -> Ball:
    """The ball whose elements `join` takes from those of `balls`, which have one dtype."""
    dtype = balls[0].dtype
    if all(ball.radius is None for ball in balls):
        return Ball(np.asarray(join([ball.midpoint for ball in balls])), None, dtype)
    radii = [np.broadcast_to(ball.error, ball.shape) for ball in balls]
    return Ball(np.asarray(join([ball.numbers for ball in balls])), np.asarray(join(radii)), dtype)
