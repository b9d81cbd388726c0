"""T2, running error: the output of any right implementation lies in the ball that float64 evaluation gives it.

    driftnet.oracle.balls computes m and r, element by element: |y - m| <= r whatever the order of summation, with or
    without fused multiply-add, with constants folded before or after

An element outside is wrong. Where r is more than 10 % of max|m| over many elements, or an operator has no rule for what
it was given, or an element that differs may be anything, the ball cannot tell, and the tier abstains, naming the
operator after which that is so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from driftnet.model.graph import Graph
from driftnet.model.verdict import Verdict
from driftnet.oracle.ball_arithmetic.ball import Ball, format_of, is_float
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation, evaluate
from driftnet.oracle.ball_arithmetic.random import is_random
from driftnet.oracle.question import Place, Question, abstains, agrees, distance, diverges

TIER = "running-error"
RANDOM = "random-by-definition"
"""Behind a random operator shape and dtype are judged, and the range as far as a ball tells it."""

ILL, ILL_SHARE = 0.1, 0.1  # of the largest element; of the elements
FEW, NOTHING = 100, 2.0**-40  # roundings of an operand; what float64 leaves where the true result is 0
NEGLIGIBLE = 1e-30  # what a product of many small numbers, or underflow, may leave


def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Each feed is evaluated once."""
    evaluations = {
        feed: evaluate(
            question.graph, question.case.feeds[feed], observed=question.observed[feed], inexact=question.inexact
        )
        for feed in {feed for feed, _ in places}
    }
    return {place: _judge(question, place, evaluations[place[0]]) for place in places}


def _judge(question: Question, place: Place, evaluation: Evaluation) -> Verdict:
    name = place[1]
    random = depends_on_chance(question, place)
    if name in evaluation.undecided:
        if random:
            return agrees(TIER, place, rule=RANDOM)
        return abstains(TIER, place, "there is no rule for its error", [evaluation.undecided[name]])
    got, ball = question.pair(place)[0], evaluation.balls[name]
    if ball.shape != got.shape:
        return abstains(TIER, place, "rounding changes the shape", [question.graph.producers[name].op])
    wrong = outside(ball, got)
    if wrong.any():
        return diverges(TIER, question, place, wrong, ball.error, midpoint=ball.midpoint)
    if random:
        return agrees(TIER, place, rule=RANDOM)
    if _is_ill(question.graph, evaluation, name):
        return abstains(TIER, place, "rounding moves it too far", [culprit(question.graph, evaluation, name)])
    if (ball.undecided & (distance(*question.pair(place)) > 0)).any():
        return abstains(TIER, place, "some of it may be anything", [culprit(question.graph, evaluation, name)])
    if not got.size:
        return agrees(TIER, place)
    error = distance(got, ball.midpoint)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    bound = np.broadcast_to(ball.error, error.shape)
    return agrees(TIER, place, error=float(error[worst]), bound=float(bound[worst]))


def depends_on_chance(question: Question, place: Place) -> bool:
    """Whether two right runs may differ there."""
    return any(is_random(node, question.graph) for node in question.graph.ancestors(place[1]))


def outside(ball: Ball, x: np.ndarray) -> np.ndarray:
    """Where `x`, of the ball's shape, is no right answer."""
    return np.asarray(distance(x, ball.midpoint) > ball.error)


def is_ill(ball: Ball, terms: float = 0.0) -> bool:
    """Whether the ball is too wide, over too many elements, to vouch for an answer inside it.

    terms   the largest number that the result was made of: x - x is 0 up to the rounding of x, which is no fault
    """
    if ball.radius is None or not ball.radius.size:
        return False
    ill = ball.radius > max(ILL * _largest(ball), NEGLIGIBLE)
    if ill.any() and is_float(ball.dtype):
        ill &= (np.abs(ball.midpoint) > NOTHING * terms) | (ball.radius > FEW * format_of(ball.dtype).unit * terms)
    return bool(np.mean(ill) > ILL_SHARE)


def _largest(ball: Ball) -> float:
    return float(np.max(np.abs(ball.midpoint), initial=0.0, where=np.isfinite(ball.midpoint)))


def _is_ill(graph: Graph, evaluation: Evaluation, name: str) -> bool:
    """Whether the ball of tensor `name` is, given the operands that it was made of."""
    operands = graph.producers[name].inputs if name in graph.producers else ()
    balls = [evaluation.balls.get(operand) for operand in operands]
    terms = [_largest(ball) for ball in balls if isinstance(ball, Ball) and is_float(ball.dtype)]
    return is_ill(evaluation.balls[name], max(terms, default=0.0))


def culprit(graph: Graph, evaluation: Evaluation, name: str) -> str:
    """The first operator before tensor `name` whose result is ill, or undecided somewhere."""
    for node in graph.ancestors(name):
        for output in node.outputs:
            ball = evaluation.balls.get(output)
            if isinstance(ball, Ball) and (ball.undecided.any() or _is_ill(graph, evaluation, output)):
                return node.op
    return graph.producers[name].op
