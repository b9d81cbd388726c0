"""Precomputed: what a converter works out beforehand, because it depends on constants alone.

The weights that a DequantizeLinear makes of constants are constants to whoever quantizes them anew. What rounds on the
way may be rounded otherwise by a converter.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Container
from copy import deepcopy

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.inspect import declared_dims, graph_inputs, refill
from driftnet.model.operators import AFFINE, Trait, traits_of
from driftnet.oracle.ball_arithmetic.ball import Ball, format_of, is_float
from driftnet.oracle.ball_arithmetic.creation import is_random
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.question.question import Question
from driftnet.oracle.tolerances.table import FOLDING_ERROR, HALF_ROUNDING, HALF_SUBNORMAL
from onnx import GraphProto, numpy_helper

# Of thirty with such attributes MNN's converter does so with these.
HALVED = ("Celu", "Gemm", "HardSigmoid", "Shrink", "ThresholdedRelu")
"""Operators whose numbers in attributes a converter makes constants of."""


MOST_MADE = 2**28
"""Bytes of what is worked out beforehand: a judge holds it several times over. Of a transformer of 85 MB whose layers
share their weights, the copies of these are 532 MiB, and a judge took more than 4 GiB."""


class TooMuchError(Exception):
    """What is worked out beforehand is more than MOST_MADE; the message says how much."""


def precomputed(question: Question) -> Question:
    """The same question, of a model that holds as initializers what the nodes make that depend on constants alone.

    Raises TooMuchError.
    """
    graph = question.graph

    def gives_arrays(node: Node) -> bool:
        """None of them an output. To record them takes a run, so that is asked last."""
        return all(name in question.records[0] and name not in graph.outputs for name in node.outputs if name)

    def is_settled(node: Node) -> bool:
        name, first = node.outputs[0], question.records[0]
        return gives_arrays(node) and all(np.array_equal(first[name], record[name]) for record in question.records[1:])

    # In a model of fixed sizes a shape is a constant, unless it hangs on numbers.
    fixed = all(isinstance(dim, int) for value in graph_inputs(question.case.proto) for dim in declared_dims(value))
    # These two read no numbers.
    shapes = [node for node in graph.nodes if node.op in ("Shape", "Size")] if fixed else []
    settled = [node for node in shapes if is_settled(node)]
    known = {node.outputs[0] for node in settled}
    nodes = [*settled, *_constant_nodes(graph, gives_arrays, known)]
    if len(nodes) == len(settled):
        return question
    values = {name: question.records[0][name] for node in nodes for name in node.outputs if name}
    if (made := sum(x.nbytes for x in values.values())) > MOST_MADE:
        raise TooMuchError(f"what depends on constants alone is {made // 2**20} MiB")
    model = deepcopy(question.case.proto)
    refill(model.graph.node, [node for node in model.graph.node if not values.keys() >= set(node.output) - {""}])
    model.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in values.items())
    case = dataclasses.replace(question.case, model=model.SerializeToString())
    balls = evaluate(dataclasses.replace(graph, nodes=tuple(nodes)), {name: values[name] for name in known}).balls
    errors = {
        name: float(np.max(balls[name].error, initial=0.0)) for name in values if isinstance(balls.get(name), Ball)
    }
    inexact = {name: error for name, error in errors.items() if 0 < error < np.inf}
    return dataclasses.replace(question, case=case, inexact={**question.inexact, **inexact})


def halved(question: Question) -> Question:
    """The same question, of a model whose float constants, those made of attributes too, are rounded to float16 once a
    converter has folded them. Raises TooMuchError."""
    question = precomputed(question)
    folds = any(node.op in AFFINE for node in question.graph.nodes)
    inexact: dict[str, float] = {}
    for name, x in question.graph.constants.items():
        if is_float(x.dtype) and x.size and np.isfinite(x).all():
            largest = float(np.abs(x).max())
            with np.errstate(over="ignore"):
                kept = (x.astype(np.float16) == x).all()
            if largest > float(np.finfo(np.float16).max):
                inexact[name] = np.inf
            elif not kept or (folds and largest):
                inexact[name] = largest * HALF_ROUNDING + HALF_SUBNORMAL
    inside = {name for node in question.graph.nodes if Trait.HAS_BODY in traits_of(node.op) for name in node.outputs}
    return dataclasses.replace(
        question,
        inexact={**question.inexact, **inexact},
        coarse=frozenset({*inexact, *inside}),
        approximations={
            **question.approximations,
            **dict.fromkeys(HALVED, float(2 * HALF_ROUNDING)),
            **_of_norms(question),
        },
    )


def fits_halves(question: Question) -> bool:
    """Whether float16 holds every float constant, and what nodes make of constants alone: else infinity is right."""
    made = [name for node in _constant_nodes(question.graph) for name in node.outputs]
    values = {**question.records[0], **question.graph.constants}
    arrays = [values[name] for name in (*question.graph.constants, *made) if name in values]
    largest = float(np.finfo(np.float16).max)
    return all(bool((np.abs(x[np.isfinite(x)]) <= largest).all()) for x in arrays if is_float(x.dtype))


def _of_norms(question: Question) -> dict[str, float]:
    """By how much s ** (1/p), which a pooling makes of a sum s, is off, of elements beyond 1 by so much of them, where
    1/p is rounded to float16: p ln y times that rounding."""
    found: dict[str, float] = {}
    for node in question.graph.nodes:
        # The two that take a root of what they sum.
        p = node.attributes.get("p", 2) if node.op in ("GlobalLpPool", "LpPool") else 1
        if lost := abs(float(np.float16(1 / p)) - 1 / p):
            seen = [record[name] for record in question.records for name in node.outputs if name in record]
            largest = max((float(y.max(initial=0.0, where=np.isfinite(y))) for y in seen), default=0.0)
            found[node.op] = max(found.get(node.op, 0.0), p * lost * max(1.0, math.log(max(largest, 1.0))))
    return found


def folded(graph: Graph) -> dict[str, np.ndarray]:
    """The constants of `graph`, and what is computed from nothing but constants: not what hangs on a rounding there."""
    constants = dict(graph.constants)
    if nodes := _constant_nodes(graph):
        part = Graph(tuple(nodes), graph.constants, graph.initializers, (), (), graph.opset)
        balls = evaluate(part, {}).balls
        vague: set[str] = set()
        for node in reversed(nodes):
            made = {name: ball for name in node.outputs if isinstance(ball := balls.get(name), Ball)}
            if not vague.isdisjoint(made) or not all(_is_sharp(ball) for ball in made.values()):
                vague.update(node.inputs)
            else:
                constants |= {name: np.asarray(ball.midpoint.astype(ball.dtype)) for name, ball in made.items()}
    return constants


def _constant_nodes(
    graph: Graph, may: Callable[[Node], bool] = lambda node: True, more: Collection[str] = ()
) -> list[Node]:
    """The nodes, of those that `may` be, whose results depend on constants alone, and on what there is `more`."""
    known, nodes = {*graph.constants, *more}, []
    for node in graph.nodes:
        if is_constant(node, known, graph) and may(node):
            nodes.append(node)
            known.update(node.outputs)
    return nodes


def _is_sharp(ball: Ball) -> bool:
    """Whether two ways of computing a constant give the same: not Floor of what is nearly a whole number."""
    if ball.radius is None:
        return True
    share = max(FOLDING_ERROR, 64 * format_of(ball.dtype).unit) if is_float(ball.dtype) else 0.0
    size = np.abs(ball.numbers).max(initial=1.0, where=np.isfinite(ball.numbers))
    return bool((ball.error <= share * size).all())


def is_constant(node: Node, known: Container[str], graph: Graph) -> bool:
    """Whether the results of a node of `graph` depend on its operands alone, which are all among `known` ones."""
    # A subgraph may read tensors that are no operands.
    closed = not any(isinstance(value, GraphProto) for value in node.attributes.values())
    fixed = all(name in known for name in node.inputs if name)
    return closed and fixed and any(node.inputs) and not is_random(node, graph)
