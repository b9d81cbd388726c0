"""Second opinion: when a target and the reference disagree, who is wrong?

onnxruntime without optimizations is one implementation among several. Two others vote on its answer: the float64 ball
of driftnet.oracle.ball_arithmetic, and onnx.reference, which follows the text of the standard. None of the three is
always right (notes of onnx.reference's own deviations: grouped ConvTranspose, some recurrent attributes, old Softmax).
"""

from enum import StrEnum

import numpy as np
from driftnet.model.arrays import distance
from driftnet.oracle.ball_arithmetic.ball import outside
from driftnet.oracle.ball_arithmetic.conditioning import is_ill
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.tolerances.table import SAME_OPINION


class Blame(StrEnum):
    """Who is wrong, where a target and the reference give different answers."""

    TARGET = "target"
    REFERENCE = "reference"
    UNDECIDED = "undecided"


def blame(question: Question, place: Place) -> Blame:
    """Who is wrong at `place`, where the target's answer was found wrong.

    The reference is, when the ball excludes its answer and onnx.reference does not share it; or when the ball says
    nothing and onnx.reference gives the target's answer instead. When the two contradict each other, it is undecided.
    """
    observed, expected = question.pair(place)
    by_ball, by_text = _in_ball(question, place, expected), question.reference.second_opinion(question.case)
    textual = by_text[place[0]].get(place[1]) if by_text else None
    shared = None if textual is None else _close(textual, expected)
    if by_ball is False:
        return Blame.UNDECIDED if shared else Blame.REFERENCE
    if by_ball is None and shared is False and textual is not None:
        return Blame.REFERENCE if _close(textual, observed) else Blame.UNDECIDED
    return Blame.TARGET


def _in_ball(question: Question, place: Place, answer: np.ndarray) -> bool | None:
    """Whether `answer` lies in the ball; None where there is no ball that could tell."""
    evaluation = evaluate(question.graph, question.case.feeds[place[0]], keep=[place[1]])
    ball = evaluation.balls.get(place[1])
    if ball is None or ball.shape != answer.shape or is_ill(ball):
        return None
    return not outside(ball, answer).any()


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    size = np.where(np.isfinite(b), np.abs(b), 0).max(initial=0.0) if b.dtype.kind in "iuf" else 0.0
    return bool((distance(a, b) <= SAME_OPINION * size).all())
