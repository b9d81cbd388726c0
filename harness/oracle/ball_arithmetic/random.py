"""Random operators: no two implementations draw the same numbers, so their balls are the ranges they draw from.

A normal number further than 8 deviations from its mean turns up once in 10^15.
"""

from __future__ import annotations

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.oracle.ball_arithmetic.ball import between
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule
from driftnet.oracle.tolerances.table import NORMAL_DEVIATIONS
from onnx import TensorProto, helper

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def is_random(node: Node, graph: Graph) -> bool:
    """Whether two right runs of `node` may give different results: a Dropout too, when it is trained."""
    if node.op in RANDOM:
        return True
    training = graph.constants.get(node.input(2)) if node.op == "Dropout" else None
    return training is not None and bool(training.any())


@rule("RandomUniform", "RandomUniformLike")
def random_uniform(node: Node, operands: Operands, context: Context) -> Results:
    """Uniform numbers between low and high"""
    low, high = attribute(node, "low", 0.0), attribute(node, "high", 1.0)
    return _filled(node, operands, low, high)


@rule("RandomNormal", "RandomNormalLike")
def random_normal(node: Node, operands: Operands, context: Context) -> Results:
    """Normal numbers of a mean and a scale"""
    mean, reach = attribute(node, "mean", 0.0), NORMAL_DEVIATIONS * attribute(node, "scale", 1.0)
    return _filled(node, operands, mean - reach, mean + reach)


@rule("Bernoulli")
def bernoulli(node: Node, operands: Operands, context: Context) -> Results:
    """1 with probability x, else 0"""
    return _filled(node, operands, 0.0, 1.0)


@rule("Multinomial")
def multinomial(node: Node, operands: Operands, context: Context) -> Results:
    """Classes of each row"""
    rows, classes = operands[0].shape
    shape = (rows, attribute(node, "sample_size", 1))
    dtype = helper.tensor_dtype_to_np_dtype(attribute(node, "dtype", TensorProto.INT32))
    return [between(np.zeros(shape), np.full(shape, classes - 1.0), np.dtype(dtype))]


def _filled(node: Node, operands: Operands, low: float, high: float) -> Results:
    """A tensor between `low` and `high`, of the shape of the operand or of the attribute, of the dtype of either."""
    like = operands[0] if operands else None
    shape = like.shape if like is not None else tuple(attribute(node, "shape", ()))
    own = like.dtype if like is not None else np.dtype(np.float32)
    given = attribute(node, "dtype", 0)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(given)) if given else own
    return [between(np.full(shape, low), np.full(shape, high), dtype)]
