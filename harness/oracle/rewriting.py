"""What a runtime documents to round in a model that holds quantised operands, though the model as written does not.

    bias-quantisation   a constant bias of a Conv, ConvTranspose or Gemm, whose operands were dequantised, becomes
                        multiples of the product of their scales: that of a constant is known exactly
    int8-matmul         the float operand of a MatMul or Gemm by dequantised constants becomes eight bits wide, with a
                        scale for every block of a row: off by half a step, 1/254 of the row's largest element at most

Each has to be declared by the target, by this name. What is right of the model rewritten so is no failure.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import numpy as np

from harness.oracle.artifact_values import folded
from harness.oracle.balls.ball import Ball, is_float, widened
from harness.oracle.balls.evaluate import evaluate
from harness.oracle.balls.rules import Context, Operands, Results, rule
from harness.oracle.graph import Graph, Node, Values
from harness.oracle.question import Place, Question
from harness.oracle.running_error import outside

BIAS, ROWS = "bias-quantisation", "int8-matmul"
ROUNDED_ROWS = "driftnet.RoundedRows"
HALF_OF_A_STEP = 1 / 254


def excuse(question: Question, graph: Graph, place: Place) -> str:
    """The documented rule by which the output that was observed is right of `graph`, "" where it is not."""
    feed, name = place
    rewritten, names = documented(graph, question.exceptions)
    ball = evaluate(rewritten, question.case.feeds[feed]).balls.get(name) if names else None
    got = question.observed[feed][name]
    if not isinstance(ball, Ball) or ball.shape != got.shape or outside(ball, got).any():
        return ""
    return " and ".join(sorted(names))


def documented(graph: Graph, exceptions: Container[str]) -> tuple[Graph, set[str]]:
    """`graph` as it is run, with the names of the rules by which it is."""
    names: set[str] = set()
    nodes: list[Node] = []
    known, constants = folded(graph), dict(graph.constants)
    for node in graph.nodes:
        bias = _rounded_bias(graph, known, node) if BIAS in exceptions else None
        if bias is not None:
            names.add(BIAS)
            name = f"{node.outputs[0]}/{BIAS}"
            constants[name] = bias
            node = replace(node, inputs=(*node.inputs[:2], name))
        elif ROWS in exceptions and _has_constant_weights(graph, known, node):
            names.add(ROWS)
            name = f"{node.outputs[0]}/{ROWS}"
            nodes.append(Node(ROUNDED_ROWS, node.inputs[:1], (name,), {}))
            node = replace(node, inputs=(name, *node.inputs[1:]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=constants), names


def _dequantised(graph: Graph, name: str) -> Node | None:
    node = graph.producers.get(name)
    return node if node is not None and node.op == "DequantizeLinear" else None


def _rounded_bias(graph: Graph, known: Values, node: Node) -> np.ndarray | None:
    bias = known.get(node.input(2))
    if node.op not in ("Conv", "ConvTranspose", "Gemm") or bias is None or bias.ndim != 1 or not is_float(bias.dtype):
        return None
    makers = [_dequantised(graph, name) for name in node.inputs[:2]]
    scales = [known.get(maker.inputs[1]) for maker in makers if maker]
    found = [scale.astype(np.float64) for scale in scales if scale is not None]
    if len(found) < 2 or found[0].size != 1 or found[1].size not in (1, bias.size):
        return None
    step = np.ravel(found[0] * found[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.rint(bias / step) * step).astype(bias.dtype))


def _has_constant_weights(graph: Graph, known: Values, node: Node) -> bool:
    if node.op not in ("Gemm", "MatMul") or node.attributes.get("transA", 0) or _dequantised(graph, node.inputs[0]):
        return False
    weights = _dequantised(graph, node.input(1))
    return weights is not None and weights.inputs[0] in known


@rule(ROUNDED_ROWS)
def rounded_rows(node: Node, operands: Operands, context: Context) -> Results:
    """A tensor whose rows were rounded to eight bits."""
    x: Ball = operands[0]
    largest = np.max(np.maximum(np.abs(x.low), np.abs(x.high)), axis=-1, keepdims=True, initial=0.0)
    return [widened(x.numbers, x.error + HALF_OF_A_STEP * largest, x.dtype)]
