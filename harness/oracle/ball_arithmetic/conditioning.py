"""Conditioning: balls that are too wide to vouch for an answer inside them."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from driftnet.model.graph import Graph
from driftnet.oracle.ball_arithmetic.ball import Ball, format_of, is_float
from driftnet.oracle.tolerances.table import CANCELLED, ILL, ILL_ROUNDINGS, ILL_SHARE, NEGLIGIBLE


def is_ill(ball: Ball, terms: float = 0.0) -> bool:
    """Whether the ball is too wide, over too many elements, to vouch for an answer inside it.

    terms   the largest number that the result was made of: x - x is 0 up to the rounding of x, which is no fault
    """
    if ball.radius is None or not ball.radius.size:
        return False
    ill = ball.radius > max(ILL * _largest(ball), NEGLIGIBLE)
    if ill.any() and is_float(ball.dtype):
        ill &= (np.abs(ball.midpoint) > CANCELLED * terms) | (
            ball.radius > ILL_ROUNDINGS * format_of(ball.dtype).unit * terms
        )
    return bool(np.mean(ill) > ILL_SHARE)


def _largest(ball: Ball) -> float:
    return float(np.max(np.abs(ball.midpoint), initial=0.0, where=np.isfinite(ball.midpoint)))


def is_ill_at(graph: Graph, balls: Mapping[str, Any], name: str) -> bool:
    """Whether the ball of tensor `name` is, given the operands that it was made of."""
    operands = [balls.get(operand) for operand in (graph.producers[name].inputs if name in graph.producers else ())]
    terms = [_largest(ball) for ball in operands if isinstance(ball, Ball) and is_float(ball.dtype)]
    return is_ill(balls[name], max(terms, default=0.0))


def culprit(graph: Graph, balls: Mapping[str, Any], ill: Collection[str], name: str) -> str:
    """The first operator before tensor `name` whose result is `ill`, or undecided somewhere."""
    for node in graph.ancestors(name):
        told = any(operand and operand not in balls for operand in node.inputs)  # in `ill`, before they were let go
        for output in node.outputs:
            ball = None if told else balls.get(output)
            vague = isinstance(ball, Ball) and (ball.undecided.any() or is_ill_at(graph, balls, output))
            if vague or output in ill:
                return node.op
    return graph.producers[name].op
