"""Effect: whether a mutant changes anything that somebody could call wrong. No verdict of the oracle is asked.

Two results differ when they do so in a bit. That is no effect

* behind a random operator, or where the standard leaves the shape open: any right run may differ there;
* where rounding alone does as much. Of how far it moves an element, the reference gives DRAWS samples, with every
  operand moved by a rounding of its own (Monte-Carlo arithmetic); the largest of 24 normal numbers is two deviations,
  thrice that is six, where rounding does not come;
* where the results are the reference's.

Where something is quantized, a bug in the converter has to change the float model, by these rules. Of a bug in the
runtime rounding is that of the quantized model, if it is ONNX: a tie between two codes goes either way.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
from driftnet.findings.trial import Trial
from driftnet.model import graph
from driftnet.model.arrays import distance, identical
from driftnet.model.graph import Values
from driftnet.model.inspect import Case
from driftnet.model.verdict import Observation
from driftnet.oracle.ball_arithmetic.ball import U
from driftnet.oracle.ball_arithmetic.creation import is_random
from driftnet.oracle.exemptions import underspecified
from driftnet.oracle.question.question import HALVES
from driftnet.oracle.tolerances.table import HALF_ROUNDING, NO_EFFECT
from driftnet.run.reference import Reference, ReferenceError
from driftnet.selfcheck.mutant import Mutant
from onnx import ModelProto

DRAWS = 24
COARSER = float(HALF_ROUNDING / U)


def is_effective(mutant: Mutant, trial: Trial, clean: Observation, seen: Observation) -> bool:
    """Whether `mutant` made the outputs of `seen` wrong, where those of the same target without it are `clean`."""
    case, reference = trial.case, trial.runner.reference
    before, after = clean.outputs, seen.outputs
    if not after or same(before, after):
        return False
    expected = reference.run(case).outputs
    if not expected or any(value.name not in out for value in case.proto.graph.output for out in expected):
        return False
    judged = _judged(case, reference)
    if same(before, after, judged) or same(expected, after, judged):
        return False
    if not trial.quantizes:
        halves = any(rule.name == HALVES and rule.holds(trial.options) for rule in trial.target.exceptions)
        return _moved(case, before, after, judged, reference, COARSER if halves else 1.0)
    if mutant.stage == "convert":
        damaged = reference.run(replace(case, model=damage(mutant, case).SerializeToString())).outputs
        return not damaged or _moved(case, expected, damaged, judged, reference)
    written = clean.artifact.model
    if mutant.stage == "quantize" or written is None:
        return True
    return _moved(replace(case, model=written), before, after, judged, reference)


def same(a: Sequence[Values], b: Sequence[Values], names: frozenset[str] | None = None) -> bool:
    """Whether the outputs of all feeds, or those of these names, are the same, bit for bit."""
    for x, y in zip(a, b, strict=True):
        asked = x.keys() | y.keys() if names is None else names & (x.keys() | y.keys())
        if any(name not in x or name not in y or not _alike(x[name], y[name]) for name in asked):
            return False
    return True


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and identical(a, b)


def damage(mutant: Mutant, case: Case) -> ModelProto:
    """What a bug of the converter makes of the model of `case`."""
    model = deepcopy(case.proto)
    mutant.damage(model)
    return model


def _judged(case: Case, reference: Reference) -> frozenset[str]:
    """The outputs of which there is a right answer; none where the reference does not record what is before them."""
    model = graph.read(case.proto)
    try:
        records = reference.record(case)
    except ReferenceError:
        return frozenset()
    return frozenset(
        name
        for name in model.outputs
        if not any(is_random(node, model) for node in model.ancestors(name))
        and underspecified.find(model, records, [name], bounded=False) is None
    )


def _moved(
    case: Case,
    before: Sequence[Values],
    after: Sequence[Values],
    names: frozenset[str],
    reference: Reference,
    coarser: float = 1.0,
) -> bool:
    """Whether anything moved further than rounding, so many times that of float32, could have moved it."""
    expected = reference.run(case).outputs
    try:
        samples = reference.sample(case, DRAWS)
    except ReferenceError:
        return True
    if not expected:
        return True
    for feed, (a, b) in enumerate(zip(before, after, strict=True)):
        for name in names & (a.keys() | b.keys()):
            if name not in a or name not in b or a[name].shape != b[name].shape or a[name].dtype != b[name].dtype:
                return True
            draws = [sample[feed][name] for sample in samples]
            if any(draw.shape != a[name].shape for draw in draws):
                continue  # its shape depends on rounding
            spread = np.max([distance(draw, expected[feed][name]) for draw in draws], axis=0)
            if (distance(a[name], b[name]) > NO_EFFECT * coarser * spread).any():
                return True
    return False
