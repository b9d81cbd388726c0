"""T2, running error: the output of any right implementation lies in the ball that float64 evaluation gives it.

    driftnet.oracle.ball_arithmetic computes m and r, element by element: |y - m| <= r whatever the order of summation,
    with or without fused multiply-add, with constants folded before or after

An element outside is wrong. Where r is more than 10 % of max|m| over many elements, or an operator has no rule for what
it was given, or an element that differs may be anything, the ball cannot tell, and the tier abstains, naming the
operator after which that is so.
"""

from collections.abc import Mapping, Sequence

from driftnet.model.arrays import distance
from driftnet.model.verdict import Tier, Verdict
from driftnet.oracle.ball_arithmetic.ball import outside
from driftnet.oracle.ball_arithmetic.conditioning import culprit, is_ill_at
from driftnet.oracle.ball_arithmetic.creation import random_tensors
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation
from driftnet.oracle.question.answers import abstains, agrees, agrees_inside, diverges, evaluated
from driftnet.oracle.question.question import Place, Question
from driftnet.util import spent

RANDOM = "random-by-definition"
"""Behind a random operator shape and dtype are judged, and the range as far as a ball tells it."""


@spent.part("oracle running-error")
def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Each feed is evaluated once, and its balls let go before the next."""
    verdicts: dict[Place, Verdict] = {}
    for feed in sorted({feed for feed, _ in places}):
        there = [place for place in places if place[0] == feed]
        evaluation = evaluated(question, question.graph, feed)
        verdicts |= {place: _judge(question, place, evaluation) for place in there}
    return {place: verdicts[place] for place in places}


def _judge(question: Question, place: Place, evaluation: Evaluation) -> Verdict:
    name = place[1]
    random = depends_on_chance(question, place)
    if name in evaluation.undecided:
        if random:
            return agrees(Tier.RUNNING_ERROR, place, rule=RANDOM)
        return abstains(Tier.RUNNING_ERROR, place, "there is no rule for its error", [evaluation.undecided[name]])
    got, ball = question.pair(place)[0], evaluation.balls[name]
    if ball.shape != got.shape:
        return abstains(Tier.RUNNING_ERROR, place, "rounding changes the shape", [question.graph.producers[name].op])
    wrong = outside(ball, got)
    if wrong.any():
        return diverges(Tier.RUNNING_ERROR, question, place, wrong, ball.error, midpoint=ball.midpoint)
    if random:
        return agrees(Tier.RUNNING_ERROR, place, rule=RANDOM)
    vague = "rounding moves it too far" if is_ill_at(question.graph, evaluation.balls, name) else ""
    if (ball.undecided & (distance(*question.pair(place)) > 0)).any():
        vague = vague or "some of it may be anything"
    if vague:
        return abstains(
            Tier.RUNNING_ERROR, place, vague, [culprit(question.graph, evaluation.balls, evaluation.ill, name)]
        )
    return agrees_inside(Tier.RUNNING_ERROR, place, got, ball)


def depends_on_chance(question: Question, place: Place) -> bool:
    """Whether two right runs may differ there."""
    return place[1] in random_tensors(question.graph)
