"""What a runtime documents to round, or to compute in a narrower type, though the model as written does not.

    bias-quantization   of a Conv, ConvTranspose or Gemm whose first operand was dequantized, a constant bias becomes
                        multiples of the product of the scales, which is known exactly; constant weights, if they are
                        floats, become eight bits wide, off by half a step, and half a step more for their zero point
    int8-matmul         the float operand of a MatMul or Gemm by dequantized constants becomes eight bits wide, with a
                        scale for every block of a row: off by half a step, 1/254 of the row's largest element at most
    int64-in-int32      integers of 64 bits, unsigned ones too, are computed as signed ones of 32, and wrap
    moved-dequantization   what DequantizeLinear multiplies by and subtracts is moved behind the operators that read it,
                        and joined with their constants: its result is off by some float32 roundings of 8-bit codes
    reciprocal-range    a DynamicQuantizeLinear multiplies by 1/255 instead of dividing: where the zero point is on a
                        tie, as of a range from -a to a, it is either
    u8s8-saturation     pairs of products of 8-bit codes are cut at 16 bits, of which sums lose so much at most
    half-precision      whatever is float32 may be held and computed in float16

    approximation       results of operators that the target names are off by what it says of them, in float32: of
                        elements beyond 1 by so much of them, and of narrower types by as many of their roundings;
                        a recurrent layer's activations too, and thresholds, at which results jump

Each has to be declared by the target, by this name. What is right of the model rewritten so is no failure.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from driftnet.model.graph import Graph, Node, Values
from driftnet.model.inspect import all_nodes
from driftnet.model.operators import RECURRENT, WEIGHTED, Trait, having
from driftnet.model.verdict import Tier, Verdict
from driftnet.oracle.ball_arithmetic.ball import Ball, is_float, outside, widened
from driftnet.oracle.ball_arithmetic.conditioning import is_ill
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.ball_arithmetic.functions import looser
from driftnet.oracle.ball_arithmetic.recurrent import LOOSE
from driftnet.oracle.ball_arithmetic.rules import rule
from driftnet.oracle.exemptions import saturation
from driftnet.oracle.question.answers import abstains, agrees
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.scheme.precomputed import folded
from driftnet.oracle.tolerances.table import MOVED_DEQUANTIZATION

BIAS, ROWS, NARROW, MOVED = "bias-quantization", "int8-matmul", "int64-in-int32", "moved-dequantization"
RECIPROCAL = "reciprocal-range"
APPROXIMATED = "approximation"
# No trait tells an attribute at which results jump.
THRESHOLDS = {"Shrink": ("lambd", 0.5), "ThresholdedRelu": ("alpha", 1.0)}
"""operator -> its attribute at which results jump, and what that is where it is not stated"""
SMALLEST_BLOCK = 16
INEXACT = "driftnet.Inexact"
"""A tensor up to `error`; without that attribute, up to half a step of eight bits for each row."""
Declared = float | tuple[float, float]
APPROXIMATE = "driftnet.Approximate"
"""A tensor up to `error` in float32, and up to so much of elements beyond 1. Of two numbers, the second is for each
unit of the other operand, which the tensor is made of."""
WRAPPED = "driftnet.Wrapped"
"""What 32 bits hold of a tensor of 64-bit integers; any other as it is."""
WIDE = (np.int64, np.uint64)


def excuse(question: Question, graph: Graph, place: Place, tier: Tier) -> Verdict | None:
    """What `tier` says of an output that is wrong of `graph`, but right of what is documented to be run for it.

    It agrees, or where that rounds so much that nothing could be wrong, abstains, by the rules' names. None where the
    output is wrong of that too.
    """
    without = question.exceptions - {saturation.RULE}
    for exceptions in (without, question.exceptions) if saturation.is_possible() else (without,):
        if verdict := _excused(question, graph, place, tier, exceptions):
            return verdict
    return None


def _excused(question: Question, graph: Graph, place: Place, tier: Tier, exceptions: Collection[str]) -> Verdict | None:
    """What `excuse` says by these `exceptions`. What is cut on this processor may leave nothing of an output: that is
    no reason to say nothing of it, where it is known what there may be."""
    feed, name = place
    rewritten, names = documented(graph, exceptions, question.approximations)
    if NARROW in exceptions and any(map(_is_wide, question.records[feed].values())):
        rewritten, names = narrowed(rewritten), names | {NARROW}
    feeds, halves = question.case.feeds[feed], question.in_halves
    ball = evaluate(rewritten, feeds, halves=halves, keep=[name]).balls.get(name) if names else None
    got = question.observed[feed][name]
    if not isinstance(ball, Ball) or ball.shape != got.shape or outside(ball, got).any():
        return None
    rule = " and ".join(sorted(names))
    if ball.undecided.any() or (is_ill(ball) and saturation.RULE not in exceptions):
        operators = [node.op for node in graph.ancestors(name)]
        return replace(abstains(tier, place, f"{rule} moves it too far", operators), rule=rule)
    return agrees(tier, place, rule=rule)


def documented(
    graph: Graph, exceptions: Container[str], approximations: Mapping[str, Declared] | None = None
) -> tuple[Graph, set[str]]:
    """`graph` as it is run, with the names of the rules by which it is.

    approximations   operator -> by how much its results may be off
    """
    names: set[str] = set()
    nodes: list[Node] = []
    known, constants = folded(graph), dict(graph.constants)
    for outer in graph.nodes:
        node = _within(outer, approximations or {})
        if node.op in RECURRENT and approximations:
            node = replace(node, attributes={**node.attributes, LOOSE: approximations})
        if node is not outer:
            names.add(APPROXIMATED)
        inputs = list(node.inputs)
        if ROWS in exceptions and _has_constant_weights(graph, known, node):
            names.add(ROWS)
            inputs[0] = f"{node.outputs[0]}/rows"
            nodes.append(Node(INEXACT, node.inputs[:1], (inputs[0],), {}))
        elif BIAS in exceptions and (scales := _scales(graph, known, node)):
            names.add(BIAS)
            if not _dequantized(graph, node.inputs[1]):
                inputs[1] = f"{node.outputs[0]}/weights"
                nodes.append(Node(INEXACT, node.inputs[1:2], (inputs[1],), {"error": float(scales[1].max())}))
            if node.input(2) in known:
                inputs[2] = f"{node.outputs[0]}/bias"
                constants[inputs[2]] = _rounded(known[node.inputs[2]], np.ravel(scales[0] * scales[1]))
        elif node.op in THRESHOLDS and (apart := (approximations or {}).get(node.op)):
            names.add(APPROXIMATED)
            inputs[0], (key, usual) = f"{node.outputs[0]}/operand", THRESHOLDS[node.op]
            share = apart[0] if isinstance(apart, tuple) else apart
            off = share * abs(float(node.attributes.get(key, usual)))
            nodes.append(Node(INEXACT, node.inputs[:1], (inputs[0],), {"error": off}))
        elif RECIPROCAL in exceptions and node.op == "DynamicQuantizeLinear":  # the one that makes a zero point itself
            names.add(RECIPROCAL)
            inputs[0] = f"{node.outputs[0]}/range"
            nodes.append(Node(INEXACT, node.inputs[:1], (inputs[0],), {"error": 0.0}))
        nodes.append(replace(node, inputs=tuple(inputs)))
        if saturation.RULE in exceptions and (less := saturation.cut(graph, outer, f"{node.outputs[0]}/whole")):
            names.add(saturation.RULE)
            nodes[-1:] = replace(nodes[-1], outputs=(less.inputs[0], *node.outputs[1:])), less
        rule = ""
        error: Declared = (approximations or {}).get(node.op, 0.0)
        if error:
            rule = APPROXIMATED
        elif MOVED in exceptions and node.op == "DequantizeLinear" and (scale := known.get(node.inputs[1])) is not None:
            rule, error = MOVED, MOVED_DEQUANTIZATION * float(np.abs(scale).max(initial=0))
        if rule:
            names.add(rule)
            exact = f"{node.outputs[0]}/exact"
            nodes[-1] = replace(nodes[-1], outputs=(exact, *node.outputs[1:]))
            op, made_of = (APPROXIMATE, (exact, inputs[0])) if rule == APPROXIMATED else (INEXACT, (exact,))
            nodes.append(Node(op, made_of, node.outputs[:1], {"error": error}))
    return replace(graph, nodes=tuple(nodes), constants=constants), names


def _within(node: Node, approximations: Mapping[str, Declared]) -> Node:
    """`node` with its subgraphs as they are run, of which approximations alone are known."""
    bodies = {key: value for key, value in node.attributes.items() if isinstance(value, onnx.GraphProto)}
    if not any(inner.op_type in approximations for body in bodies.values() for inner in all_nodes(body)):
        return node
    run = {key: _approximated(body, approximations) for key, body in bodies.items()}
    return replace(node, attributes={**node.attributes, **run})


def _approximated(body: onnx.GraphProto, approximations: Mapping[str, Declared]) -> onnx.GraphProto:
    """A copy of `body` with an APPROXIMATE behind each node that is approximated, at every depth."""
    run = onnx.GraphProto()
    run.CopyFrom(body)
    del run.node[:]
    for node in body.node:
        run.node.append(node)
        for attribute in run.node[-1].attribute:
            if attribute.HasField("g"):
                attribute.g.CopyFrom(_approximated(attribute.g, approximations))
        if error := approximations.get(node.op_type):
            exact = f"{node.output[0]}/exact"
            run.node[-1].output[0] = exact
            run.node.append(onnx.helper.make_node(APPROXIMATE, [exact, node.input[0]], node.output[:1], error=error))
    return run


def _dequantized(graph: Graph, name: str) -> Node | None:
    node = graph.producers.get(name)
    return node if node is not None and node.op == "DequantizeLinear" else None


def _scales(graph: Graph, known: Values, node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Those of data and weights, where the runtime rounds bias or weights."""
    bias = known.get(node.input(2)) if node.input(2) else np.zeros(0)
    if bias is None or node.op not in WEIGHTED - {"MatMul"} or bias.ndim != 1 or not is_float(bias.dtype):
        return None
    data, weights = (_dequantized(graph, name) for name in node.inputs[:2])
    own = known.get(node.inputs[1])
    step = known.get(data.inputs[1]) if data else None
    if weights:
        scale = known.get(weights.inputs[1]) if node.input(2) in known else None
    else:
        scale = None if own is None else np.asarray((own.max(initial=0) - own.min(initial=0)) / 255)
    if step is None or step.size != 1 or scale is None or scale.size not in (1, bias.size):
        return None
    return step.astype(np.float64), scale.astype(np.float64)


def _rounded(x: np.ndarray, step: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.rint(x / step) * step).astype(x.dtype))


def _has_constant_weights(graph: Graph, known: Values, node: Node) -> bool:
    """Whether the runtime has a kernel for this product that reads codes: of a matrix with one scale, one a column or
    one a block of a power of two of its rows, 16 at least (onnxruntime 1.31 was seen to take these, and no other)."""
    given = node.attributes
    if node.op not in WEIGHTED - having(Trait.SLIDES) or given.get("transA", 0) or given.get("transB", 0):
        return False
    weights = _dequantized(graph, node.input(1))
    if weights is None or given.get("alpha", 1.0) != 1.0 or _dequantized(graph, node.inputs[0]):
        return False
    codes, scale = (known.get(name, np.zeros(0)) for name in weights.inputs[:2])
    if codes.ndim != 2:
        return False
    axis, block = weights.attributes.get("axis", 1) % 2, weights.attributes.get("block_size", 0)
    if block:
        return bool(axis == 0 and block >= SMALLEST_BLOCK and block & (block - 1) == 0)
    return bool(scale.size == 1 or axis == 1)


def narrowed(graph: Graph) -> Graph:
    """`graph` with every result of 64-bit integers wrapped to 32 bits."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(replace(node, outputs=tuple(f"{name}/wide" if name else "" for name in node.outputs)))
        nodes += [Node(WRAPPED, (f"{name}/wide",), (name,), {}) for name in node.outputs if name]
    return replace(graph, nodes=tuple(nodes))


def _is_wide(x: np.ndarray) -> bool:
    """Whether `x` has 64-bit integers that 32 bits, one of them for the sign, do not hold."""
    return x.dtype in WIDE and bool((x != x.astype(np.int32).astype(x.dtype)).any())


@rule(WRAPPED)
def wrapped(x: Any) -> Any:
    """The lower 32 bits, the first of them for the sign of an unsigned integer too."""
    if not isinstance(x, Ball) or x.dtype not in WIDE:
        return x
    return Ball(x.midpoint.astype(np.int32).astype(x.dtype), None, x.dtype) if x.radius is None else []


@rule(INEXACT)
def inexact(x: Ball, *, error: float | None = None) -> Ball:
    """A tensor that was rounded."""
    rows = np.max(np.maximum(np.abs(x.low), np.abs(x.high)), axis=-1, keepdims=True, initial=0.0) / 254
    return widened(x.numbers, x.error + (rows if error is None else error), x.dtype)


@rule(APPROXIMATE)
def approximate(x: Ball, operand: Ball, *, error: float | Sequence[float]) -> Ball:
    """A result that was approximated, of an operand."""
    return looser(x, error, operand)
