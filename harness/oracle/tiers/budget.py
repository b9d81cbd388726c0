"""D4, the budget: is an error within what quantization noise explains? For artifacts that cannot be read.

The float model is rerun with noise in place of quantization (see `noise`). With E_k the error of sample k, e that of
the target, mu and sd mean and deviation of a statistic over the samples, and dist(a, b..c) the distance of a from that
interval:

    score = max( L2(e) / 2 max L2(E_k),  max|e| / 2 max max|E_k|,
                 dist(mean e, 0..mu) / 8 sd,  dist(slope e, 0..mu) / 8 sd ),      slope e = <e, y> / <y, y>

A score above 2 diverges; the verdict's error is the score and its bound 2. Zero counts as well as mu, because noise
that a right quantizer does not make (zeros stay zero) is made here. To sd is added what the largest error of a single
element makes of the statistic: with few elements off zero, as behind a Cos, that is no normal variable. Nobody is
accused behind a decision (a comparison, an index) that noise may flip, or behind an operator that may be quantized
inside; where noise drowns the result, nobody can tell.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.model.arrays import distance
from driftnet.model.graph import Values
from driftnet.model.operators import WEIGHTED, Trait, having
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.oracle.artifact.simulated.tier import cut
from driftnet.oracle.ball_arithmetic.ball import is_float, normal_of
from driftnet.oracle.question.answers import abstains, agrees
from driftnet.oracle.question.poles import poles
from driftnet.oracle.question.question import TOO_LARGE, Place, Question
from driftnet.oracle.scheme import formulas
from driftnet.oracle.scheme.noise import Noise, of_scheme, sampled, with_cut
from driftnet.oracle.tolerances.table import (
    BUDGET_FLOAT_ERROR,
    DROWNED,
    NEGLIGIBLE,
    SAMPLED_DEVIATIONS,
    SAMPLED_ERRORS,
    SCORE,
)
from driftnet.util import spent

SAMPLES = (12, 24, 48, 96)
DECISIONS = having(Trait.DECIDES) | having(Trait.HAS_BODY)  # a subgraph may hold anything
# These are known to stay one operation.
SIMPLE = WEIGHTED | formulas.PLAIN | {"Div", "Elu", "Exp", "HardSigmoid", "HardSwish", "Sigmoid", "Softmax", "Tanh"}
"""operators that a converter keeps as one; of others it may make several, and what is between them is quantized too
(LpNormalization in MNN: results 3 times as far off as noise at its ends explains). So with convolutions that have
groups."""


@spent.part("oracle budget")
def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Asks for samples only where half a step does not settle it, and for more before it accuses."""
    if question.scheme is None:
        return {place: _cannot_tell(question, place, "nothing is quantized") for place in places}
    noise = of_scheme(question, question.scheme)
    verdicts = {place: agrees(Tier.BUDGET, place) for place in places if _within_half_a_step(question, place, noise)}
    for place in (place for place in places if place not in verdicts and _rests_on(question, place, noise.unknown)):
        verdicts[place] = _cannot_tell(question, place, "calibration saw nothing but zeros")
    disputed = [place for place in places if place not in verdicts]
    if disputed:
        noise = with_cut(noise, cut(question))
    untold = [place for place in disputed if _rests_on(question, place, noise.untold)]
    if disputed and question.is_too_large:
        return verdicts | {place: _cannot_tell(question, place, TOO_LARGE) for place in disputed}
    samples: list[Sequence[Values]] = []
    for count in SAMPLES:
        if not disputed:
            break
        samples += sampled(noise, question, range(len(samples), count))
        for place in disputed:
            verdicts[place] = _judge(question, place, [sample[place[0]] for sample in samples])
        disputed = [place for place in disputed if verdicts[place].error > SCORE / 2 and place not in untold]
    for place in untold:  # what the noise of all other tensors explains is right, whatever becomes of these
        if verdicts[place].word is not Word.AGREES:
            verdicts[place] = _cannot_tell(question, place, "the quantizer tells no step of a tensor")
    return verdicts


def _within_half_a_step(question: Question, place: Place, noise: Noise) -> bool:
    step, (got, expected) = noise.activations.get(place[1]), question.pair(place)
    return step is not None and bool((distance(got, expected) <= 0.5 * step.scale).all())


def _rests_on(question: Question, place: Place, names: frozenset[str]) -> bool:
    nodes = question.graph.ancestors(place[1]) if names else ()
    return place[1] in names or any(not names.isdisjoint(node.inputs) for node in nodes)


def _judge(question: Question, place: Place, samples: Sequence[Values]) -> Verdict:
    got, expected = question.pair(place)
    runs = [sample[place[1]] for sample in samples]
    if not runs:
        return _cannot_tell(question, place, "the model does not run with noise")
    if any(run.shape != expected.shape for run in runs):
        return _cannot_tell(question, place, "noise changes the shape")
    if expected.dtype.kind != "f":
        right = np.any([run == got for run in (*runs, expected)], axis=0)
        return agrees(Tier.BUDGET, place) if right.all() else _cannot_tell(question, place, "noise may flip a decision")
    finite = np.isfinite(np.stack([expected, *runs])).all(axis=0)
    if not np.isfinite(got[finite]).all():  # noise seldom makes the very zero that a code is
        return abstains(Tier.BUDGET, place, "noise does not explain what is not finite", poles(question, place))
    y = expected[finite].astype(np.float64)
    if not y.size:
        return _cannot_tell(question, place, "nothing finite is left")
    errors = np.stack([run[finite] - y for run in runs])
    if np.median(np.linalg.norm(errors, axis=1)) > DROWNED * np.linalg.norm(y):
        return _cannot_tell(question, place, "noise drowns it")
    unit = max(BUDGET_FLOAT_ERROR, 4 * float(np.finfo(expected.dtype).eps))
    score, statistic = _score(got[finite] - y, errors, y, unit)
    note = f"{question.describe(place)} is {score:.2g} times as far off as sampled noise explains, by its {statistic}"
    if score <= SCORE:
        return agrees(Tier.BUDGET, place, error=score, bound=SCORE, message=note if score > SCORE / 2 else "")
    nodes = question.graph.ancestors(place[1])
    if any(node.op in DECISIONS for node in nodes):
        return _cannot_tell(question, place, "noise may flip a decision")
    values = {**question.graph.constants, **question.records[place[0]]}
    if any(_is_subnormal(values[name]) for node in nodes for name in node.outputs if name in values):
        return _cannot_tell(question, place, "of a number that is subnormal a runtime may round or keep the half")
    taken_apart = [node.op for node in nodes if node.op not in SIMPLE or formulas.taken_apart(node, values)]
    if taken_apart and question.scheme and question.scheme.activation_codes:
        return abstains(Tier.BUDGET, place, "there may be noise inside an operator", taken_apart)
    where: dict[str, Any] = {"feed": place[0], "output": place[1], "error": score, "bound": SCORE}
    return Verdict(Word.DIVERGES, Tier.BUDGET, "execute", Kind.WRONG_VALUES, note, **where)


def _is_subnormal(x: np.ndarray) -> bool:
    """Whether `x`, in half precision or less, has numbers that are known to a digit or two only: whether they are
    rounded between two operators, which runtimes do or leave, is worth more than noise."""
    if not is_float(x.dtype) or x.dtype.itemsize >= 4:
        return False
    size = np.abs(x.astype(np.float64))
    return bool(((size > 0) & (size < normal_of(x.dtype))).any())


def _score(error: np.ndarray, errors: np.ndarray, y: np.ndarray, unit: float) -> tuple[float, str]:
    """(score, the statistic that has it) of one error, given those of the samples, of results `y`.

    unit  of max|y|: what is no quantization noise
    """
    floor = unit * np.abs(y).max() + NEGLIGIBLE
    size, largest = np.linalg.norm(errors, axis=1).max(), np.abs(errors).max() + floor
    scores = {
        "size": np.linalg.norm(error) / (SAMPLED_ERRORS * (size + floor * np.sqrt(y.size))),
        "largest element": np.abs(error).max() / (SAMPLED_ERRORS * largest),
        "mean": _stray(error.mean(), errors.mean(axis=1), largest / y.size),
    }
    if power := y @ y:
        scores["slope"] = _stray(error @ y / power, errors @ y / power, largest * np.abs(y).max() / power)
    worst = max(scores, key=lambda name: scores[name])
    return float(scores[worst]), worst


def _stray(value: float, sampled: np.ndarray, single: float) -> float:
    """How far `value` is from the interval between zero and the mean of the samples, in eight deviations."""
    mean = float(sampled.mean())
    away = max(min(0.0, mean) - value, value - max(0.0, mean), 0.0)
    return away / (SAMPLED_DEVIATIONS * (float(sampled.std()) + single))


def _cannot_tell(question: Question, place: Place, why: str) -> Verdict:
    return abstains(Tier.BUDGET, place, why, [node.op for node in question.graph.ancestors(place[1])])
