"""Calibration: the ranges that a quantizer sees, and the steps that the formula of its scheme makes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import formulas
from driftnet.oracle.scheme.artifact_trace import read_trace
from driftnet.oracle.tolerances.table import LARGEST_VANISHED, NARROWEST_RANGE, WIDEST_RANGE
from driftnet.targets.interface import Scheme


@dataclass(frozen=True)
class Step:
    """How a tensor with values in [low, high] is quantized: in multiples of `scale`."""

    low: float
    high: float
    scale: float

    def holds(self, x: np.ndarray) -> bool:
        """Whether quantizing `x` is the identity."""
        inside = bool(x.size == 0 or (x.min() >= self.low and x.max() <= self.high))
        return inside and formulas.multiples(np.append([self.low, self.high], x), np.asarray(self.scale))


def steps(question: Question, scheme: Scheme) -> dict[str, Step]:
    """The step of each float tensor of the main graph as an activation, calibrated as the case says; constants not.

    Empty when the scheme quantizes no activations.
    """
    if scheme.activation_codes is None:
        return {}
    codes, symmetric, found = scheme.activation_codes, scheme.symmetric_activations, {}
    for name, arrays in _calibrated(question).items():
        low = min(0.0, *(float(x.min(initial=0.0)) for x in arrays))
        high = max(0.0, low + scheme.narrow, *(float(x.max(initial=0.0)) for x in arrays))
        if np.isfinite(high - low):
            scale = formulas.scales(np.asarray(low), np.asarray(high), codes, symmetric)
            found[name] = Step(low, high, float(scale))
    return found


def told(question: Question, formula: Mapping[str, Step]) -> dict[str, tuple[Step, ...]]:
    """The steps that the artifact itself names, where a calibration may have chosen them in place of `formula`'s.

    The first of a tensor is its own, where it has one; others are those of what its data are moved into.
    """
    trace = read_trace(question.artifact)
    found = {}
    for name, step in formula.items():
        chosen = [
            Step(codes.value(codes.low), codes.value(codes.high), codes.scale)
            for codes in dict.fromkeys(trace.copies(name))
            if NARROWEST_RANGE * step.scale <= codes.scale <= WIDEST_RANGE * step.scale
        ]
        if chosen:
            found[name] = tuple(chosen)
    return found


def vanished(question: Question) -> frozenset[str]:
    """The constants that the quantizer took for zero: small ones to which the artifact tells a scale of 0."""
    told = {name for name, codes in question.artifact.tensors.items() if codes.scale == 0}
    held = {name: x for name, x in question.graph.constants.items() if name in told and x.dtype.kind == "f"}
    return frozenset(name for name, x in held.items() if x.any() and np.abs(x).max() < LARGEST_VANISHED)


def _calibrated(question: Question) -> Mapping[str, Sequence[np.ndarray]]:
    """Every float tensor that is computed or fed, in each calibration sample."""
    records, constants = question.calibrated, question.graph.constants
    names = [name for name, x in records[0].items() if x.dtype.kind == "f" and name not in constants]
    return {name: [record[name] for record in records if name in record] for name in names}
