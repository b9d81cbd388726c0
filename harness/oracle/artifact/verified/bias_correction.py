"""Bias correction: quantizers may move biases by what rounding makes of the mean of a layer's results.

    |b' - b| <= sum |W' - W| max |x| + sum |W| s_x / 2      for each output channel

(https://arxiv.org/abs/1906.04721, section 4.2; NNCF does so unless told otherwise: on eleven models its biases moved by
a twentieth of that in the median). It is a habit of a quantizer, not of a layer: where few biases of a model have
moved, they are wrong.
"""

from collections.abc import Collection, Iterator

import numpy as np
from driftnet.model.operators import WEIGHTED
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair
from driftnet.oracle.artifact.verified.range_outliers import moved_from
from driftnet.oracle.ball_arithmetic.ball import Undecided
from driftnet.oracle.scheme.folding import output_axis
from driftnet.oracle.tolerances.table import CORRECTED_BIASES


def corrected(c: Comparison, wrong: Collection[str]) -> frozenset[str]:
    """Those of the constants `wrong` that are biases, moved by no more than correction may move them."""
    biases = dict(_biases(c))
    moved = biases.keys() & set(wrong)
    if len(moved) < max(2, CORRECTED_BIASES * len(biases)):
        return frozenset()
    return frozenset(name for name in moved if biases[name])


def _biases(c: Comparison) -> Iterator[tuple[str, bool]]:
    """The biases of linear operators by name, and whether correction explains what the artifact has there."""
    pairs = {name: pair for pair in c.pairs for name in pair.node.outputs if pair.how is How.SAME}
    for pair in pairs.values():
        if pair.node.op in WEIGHTED:
            linear, position = pair, 2
        else:
            position = next((k for k, name in enumerate(pair.node.inputs) if name in c.constants), 2)
            other = pairs.get(pair.node.input(1 - position)) if pair.node.op == "Add" and position < 2 else None
            if other is None or other.node.op != "MatMul":
                continue
            linear = other
        name, use = pair.node.input(position), pair.operand(position)
        if name not in c.constants or linear.node.input(1) not in c.constants or use is None:
            continue
        try:
            with np.errstate(invalid="ignore"):  # of infinity
                error = np.abs(c.numbers.real(use).numbers.ravel() - c.constants[name].astype(np.float64).ravel())
            yield name, bool((error <= _most(c, linear)).all())
        except (Undecided, ValueError):
            yield name, False


def _most(c: Comparison, linear: Pair) -> np.ndarray:
    """By how much correction may move the bias behind a linear operator, one number an output channel."""
    x, w = linear.operands[:2]
    if x is None or w is None:
        raise Undecided("an operand is missing")
    wanted = c.constants[linear.node.inputs[1]].astype(np.float64)
    found = c.numbers.real(w).numbers
    channel, _ = output_axis(linear.node, wanted)
    rest = tuple(k for k in range(wanted.ndim) if k != channel)
    formats = c.artifact.formats
    format = formats.get(x.tensor) or formats.get(moved_from(c.artifact.graph, x.tensor))
    half = float(np.max(c.numbers.scale(format))) / 2 if format else 0.0
    largest = float(np.abs(c.numbers.real(x).numbers).max(initial=0.0))
    return np.asarray(np.abs(found - wanted).sum(rest) * largest + np.abs(wanted).sum(rest) * half)
