"""How a tier answers: it agrees, abstains or diverges at a place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.model.arrays import distance, same_kind
from driftnet.model.graph import Graph
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.oracle.ball_arithmetic.ball import Ball
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation, evaluate
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.tolerances.table import NEGLIGIBLE

Decide = Callable[[Question, Sequence[Place]], Mapping[Place, Verdict]]


def agrees(tier: Tier, place: Place, **evidence: Any) -> Verdict:
    """The verdict that nothing is wrong there; evidence: error and bound where it was nearest, a rule."""
    return Verdict(Word.AGREES, tier, feed=place[0], output=place[1], **evidence)


def abstains(tier: Tier, place: Place, why: str, operators: Sequence[str]) -> Verdict:
    """The verdict that this tier cannot tell there, because of `operators`."""
    return Verdict(
        Word.ABSTAINS, tier, feed=place[0], output=place[1], message=why, abstained=tuple(sorted(set(operators)))
    )


def agrees_inside(tier: Tier, place: Place, got: np.ndarray, ball: Ball) -> Verdict:
    """The verdict on an answer that lies in its ball, with the error where that is greatest."""
    if not got.size:
        return agrees(tier, place)
    error = distance(got, ball.midpoint)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    return agrees(tier, place, error=float(error[worst]), bound=float(np.broadcast_to(ball.error, error.shape)[worst]))


def evaluated(question: Question, graph: Graph, feed: int) -> Evaluation:
    """What `graph` makes of a feed: its outputs. Its balls are to be let go before the next is asked for."""
    feeds, halves = question.case.feeds[feed], question.in_halves
    observed = {} if halves else question.observed[feed]  # a state is shown in fewer digits than it is kept in
    return evaluate(graph, feeds, observed=observed, inexact=question.inexact, halves=halves, keep=graph.outputs)


def diverges(
    tier: Tier,
    question: Question,
    place: Place,
    wrong: np.ndarray,
    bound: np.ndarray,
    *,
    midpoint: np.ndarray | None = None,
) -> Verdict:
    """The verdict on elements marked in `wrong`, where an error up to `bound` would have been right.

    midpoint   what the error is from, where that is not the reference's answer
    """
    got, expected = question.pair(place)
    expected = expected if midpoint is None else midpoint
    wrong = np.atleast_1d(wrong)
    bound = np.broadcast_to(bound, wrong.shape)
    a, b = np.atleast_1d(got), np.atleast_1d(expected)
    error = distance(a, b)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        excess = np.where(wrong, error / np.maximum(bound, NEGLIGIBLE), -1.0)
    worst = np.unravel_index(int(np.argmax(excess)), wrong.shape)
    where = f" at [{', '.join(map(str, worst))}]" if got.ndim else ""
    should = b.astype(a.dtype)[worst]
    message = (
        f"{question.describe(place)}{where} is {a[worst]}, should be {should}: error {error[worst]:.3g}, "
        f"bound {bound[worst]:.3g}; {int(wrong.sum())} of {wrong.size} elements are wrong"
    )
    nonsense = bool((wrong & ~same_kind(a, b)).any())
    return Verdict(
        Word.DIVERGES,
        tier,
        stage="execute",
        kind=Kind.NAN if nonsense else Kind.WRONG_VALUES,
        message=message,
        feed=place[0],
        output=place[1],
        error=float(error[worst]),
        bound=float(bound[worst]),
        at=tuple(map(int, worst)) if got.ndim else (),
    )
