"""Tensors made from a shape, from a few numbers, or by chance.

No two implementations draw the same numbers, so the balls of random tensors are the ranges they draw from.
"""

import math
from collections.abc import Sequence

import numpy as np
from driftnet.model.graph import Graph, Node, captured
from driftnet.model.operators import Trait, having
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, between, exact, rounded, undecided_where
from driftnet.oracle.ball_arithmetic.rules import Integers, Maybe, dtype_of, rule
from driftnet.oracle.tolerances.table import NORMAL_DEVIATIONS, UNDECIDED_LENGTH
from onnx import TensorProto

RANDOM = having(Trait.RANDOM)
ZERO = np.zeros(1, np.float32)


@rule("Shape")
def shape(x: Ball, *, start: int = 0, end: int | None = None) -> Ball:
    """The shape of x, or a slice of it"""
    return exact(np.array(x.shape[start:end], np.int64))


@rule("Size")
def size(x: Ball) -> Ball:
    """How many elements x has"""
    return exact(np.array(x.midpoint.size, np.int64))


@rule("ConstantOfShape")
def constant_of_shape(shape: Integers, *, value: Array = ZERO) -> Ball:
    """A tensor of one number"""
    return exact(np.full(shape, value.ravel()[0], value.dtype))


@rule("Range")
def range_(first: Array, limit: Array, delta: Array) -> Ball:
    """first, first + delta, ... up to but without limit; by multiplication or by repeated addition"""
    dtype, start = first.dtype, first.item()
    if dtype.kind != "f":
        return exact(np.arange(start, limit.item(), delta.item(), dtype=dtype))
    exactly = (float(limit.item()) - start) / float(delta.item())
    count = max(math.ceil(exactly), 0)
    if exactly != count and abs(exactly - round(exactly)) < UNDECIDED_LENGTH * abs(exactly):
        raise Undecided("how many elements there are depends on rounding")
    midpoint = start + float(delta.item()) * np.arange(count)
    if (midpoint.astype(dtype) == midpoint).all():
        return exact(midpoint.astype(dtype))
    return rounded(midpoint, 0.0, dtype, roundings=count + 1.0, size=abs(start) + np.abs(midpoint))


@rule("EyeLike")
def eye_like(x: Ball, *, dtype: int = 0, k: int = 0) -> Ball:
    """Ones on a diagonal, zeros elsewhere, in the shape of a matrix"""
    rows, columns = x.shape
    return exact(np.eye(rows, columns, k=k).astype(dtype_of(dtype) if dtype else x.dtype))


def is_random(node: Node, graph: Graph) -> bool:
    """Whether two right runs of `node` may give different results: a Dropout too, when it is trained."""
    if node.op in RANDOM:
        return True
    training = graph.constants.get(node.input(2)) if node.op == "Dropout" else None
    return training is not None and bool(training.any())


def random_tensors(graph: Graph) -> frozenset[str]:
    """The tensors of `graph` of which two right runs may differ."""
    found = set[str]()
    for node in graph.nodes:
        if is_random(node, graph) or not found.isdisjoint((*node.inputs, *captured(node))):
            found.update(filter(None, node.outputs))
    return frozenset(found)


@rule("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli")
def random(
    like: Maybe = None, *, low: float = 0.0, high: float = 1.0, mean: float = 0.0, scale: float = 1.0, node: Node
) -> Ball:
    """Numbers from low to high, within some deviations of a mean, or from 0 to 1; like an operand or as stated"""
    if node.op.startswith("RandomNormal"):  # and RandomNormalLike; the others have ends
        low, high = mean - NORMAL_DEVIATIONS * scale, mean + NORMAL_DEVIATIONS * scale
    shape: Sequence[int] = like.shape if like is not None else node.attributes.get("shape", ())
    own = like.dtype if like is not None else np.dtype(np.float32)
    given = node.attributes.get("dtype", 0)
    return between(np.full(shape, low), np.full(shape, high), dtype_of(given) if given else own)


@rule("Multinomial")
def multinomial(x: Ball, *, sample_size: int = 1, dtype: int = TensorProto.INT32) -> Ball:
    """Classes of each row; undecided where its numbers are no logarithms of probabilities, or may overflow"""
    rows, classes = x.shape
    shape = (rows, sample_size)
    largest = x.high.max(axis=1, keepdims=True, initial=-np.inf)  # NaN where one is
    drawn = between(np.zeros(shape), np.full(shape, classes - 1.0), dtype_of(dtype))
    return undecided_where(~np.isfinite(largest), drawn)
