"""What is known of how the ranges of activations were chosen."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from driftnet.model.graph import Values
from driftnet.model.operators import Trait, traits_of
from driftnet.oracle.ball_arithmetic.ball import Ball
from driftnet.oracle.ball_arithmetic.creation import is_random
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.question.question import Question

Range = tuple[float, float]
RANGE, CALIBRATED_ELSEWHERE = "range", "calibrated on other data"
"""What a problem of an activation's range is `about`; and of an input's, where the data of calibration, or those of the
audit, are not what the model is made for: a mistake in what was given, which says nothing of who quantized it."""


@dataclass(frozen=True)
class Calibration:
    """What is known of how ranges were chosen.

    ranges    [min, max] of each float tensor
    clips     calibration may choose a narrower range
    errors    how far these tensors may be off by what is rounded to float16 before
    sampled   these are not the data of calibration: only an absurd range is wrong
    records   the float tensors, where sampled: an outlier is wrong too
    alike     these inputs are like those of calibration; of others an outlier has to be ABSURD_RANGE
    moves_biases   biases make up for the mean error that quantizing makes of these data
    narrow    a range no wider than this may be widened by as much at either end
    empty     tensors without elements, which any range fits
    """

    ranges: Mapping[str, Range]
    clips: bool = False
    errors: Mapping[str, float] = field(default_factory=dict)
    sampled: bool = False
    records: Sequence[Values] = ()
    alike: bool = False
    moves_biases: bool = False
    narrow: float = 0.0
    empty: Collection[str] = ()


def largest_of(range: Range) -> float:
    """The largest magnitude in a range that holds zero."""
    return max(-range[0], range[1])


def ranges_of(records: Sequence[Values]) -> dict[str, Range]:
    """[min, max] of each float tensor over several feeds; an empty tensor has none."""
    ranges: dict[str, Range] = {}
    for record in records:
        for name, x in record.items():
            if x.dtype.kind == "f" and x.size:
                low, high = ranges.get(name, (np.inf, -np.inf))
                ranges[name] = (min(low, float(x.min())), max(high, float(x.max())))
    return ranges


def calibration_of(question: Question) -> Calibration | None:
    """What calibration saw of the float model; None where the target's scheme is not known."""
    scheme = question.scheme
    if scheme is None or scheme.activation_codes is None:
        return None
    records = question.calibrated
    summed, chance = set[str](), set[str]()
    for node in question.graph.nodes:  # behind chance, another run sees other data
        traits, made = traits_of(node.op), set(node.outputs)
        if is_random(node, question.graph) or not chance.isdisjoint(node.inputs):
            chance |= made
        elif Trait.DECIDES in traits and not _floats(records[0], node.inputs).isdisjoint(summed):
            # Which of two scores is the larger may hang on the order of a sum: with two threads other boxes are taken.
            chance |= made - _floats(records[0], made)
        if Trait.CONTRACTS in traits or not summed.isdisjoint(node.inputs):
            summed |= made
    known = {name: found for name, found in ranges_of(records).items() if name not in chance}
    has_halves = any(x.dtype == np.float16 for record in records for x in record.values())
    return Calibration(
        known,
        scheme.clips,
        _errors(question, known) if has_halves else {},
        moves_biases=scheme.moves_biases,
        narrow=scheme.narrow,
        empty={name for name in records[0] if all(name in record and not record[name].size for record in records)},
    )


def _floats(record: Values, names: Iterable[str]) -> set[str]:
    return {name for name in names if name in record and record[name].dtype.kind == "f"}


def _errors(question: Question, names: Mapping[str, Range]) -> dict[str, float]:
    """How far each tensor may be off in calibration, which may compute what the model rounds to float16 in float32."""
    runs = [evaluate(question.graph, feed).balls for feed in question.case.calibration or question.case.feeds]
    balls = {name: [run.get(name) for run in runs] for name in names}
    return {
        name: max(float(np.max(ball.error, initial=0.0)) if isinstance(ball, Ball) else np.inf for ball in found)
        for name, found in balls.items()
    }
