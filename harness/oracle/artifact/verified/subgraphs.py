"""The bodies of If, Loop and Scan: each is a model of its own, and compared with its counterpart as such.

What a body reads from outside it is an input of that model, with the values that the artifact has there, or a constant.
The formal inputs of a Loop or Scan have the values of its first round.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from driftnet.model.graph import Graph, Values, captured, read_graph
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair, Problem
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.ball_arithmetic.ball import Undecided
from driftnet.oracle.ball_arithmetic.evaluate import evaluate

Compare = Callable[[Graph, Graph, Sequence[Mapping[str, object]]], tuple[Sequence[Problem], bool]]
"""the problems of an artifact against its float model, and whether all of it could be compared"""


def compare_bodies(pair: Pair, comparison: Comparison, compare: Compare) -> tuple[list[Problem], bool]:
    """The problems of the bodies of a node of the float model, and whether all of these could be compared."""
    problems: list[Problem] = []
    certain = True
    for ours, theirs in _bodies(pair):
        try:
            floating = _floating(ours, comparison)
            body, feed = _artifact(theirs, floating, pair, comparison)
            found, all_of_it = compare(floating, body, [evaluate(body, feed).balls])
        except Undecided:
            certain = False
            continue
        problems += found
        certain = certain and all_of_it
    return problems, certain


def _bodies(pair: Pair) -> Iterator[tuple[onnx.GraphProto, onnx.GraphProto]]:
    theirs = pair.piece.node.attributes if pair.piece and pair.how is How.SAME else {}
    for name, value in pair.node.attributes.items():
        if isinstance(value, onnx.GraphProto) and isinstance(theirs.get(name), onnx.GraphProto):
            yield value, theirs[name]


def _from_outside(body: Graph) -> list[str]:
    """What a body reads that is not its own; names of the bodies inside it may be among them."""
    own = {"", *body.inputs, *body.constants, *body.producers}
    read = [name for node in body.nodes for name in (*node.inputs, *captured(node))]
    return [name for name in dict.fromkeys([*read, *body.outputs]) if name not in own]


def _floating(proto: onnx.GraphProto, comparison: Comparison) -> Graph:
    """A body of the float model as a model of its own."""
    body, constants = read_graph(proto, comparison.model.opset), comparison.model.constants
    outside = _from_outside(body)
    known = {name: constants[name] for name in outside if name in constants}
    varying = [name for name in outside if name in comparison.at]
    return replace(body, constants={**known, **body.constants}, inputs=(*body.inputs, *varying))


def _artifact(proto: onnx.GraphProto, floating: Graph, pair: Pair, comparison: Comparison) -> tuple[Graph, Values]:
    """The counterpart of `floating`, with its names for what comes from outside and goes there, and values for the
    former. Raises Undecided where it reads what the float model's does not, or what is quantized outside."""
    artifact, numbers, constants = comparison.artifact, comparison.numbers, dict[str, np.ndarray]()
    body, given = read_graph(proto, artifact.graph.opset), _first_round(pair, numbers)
    formal = floating.inputs[: len(body.inputs)]
    names = dict(zip((*body.inputs, *body.outputs), (*formal, *floating.outputs)))
    feed = dict(zip(formal, given))
    called = {comparison.at[name]: name for name in floating.inputs[len(body.inputs) :]}
    for name in _from_outside(body):
        if name in artifact.graph.constants:
            constants[name] = artifact.graph.constants[name]
        elif name in artifact.constant:
            raise Undecided(f"{name!r} may be rounded outside the body")
        elif name in numbers.balls:
            names[name] = called.get(artifact.stands_for(name), name)
            if names[name] in feed:
                raise Undecided(f"{names[name]!r} is read as it is and rounded")
            feed[names[name]] = _value(numbers, name)
        elif any(name in node.inputs for node in body.nodes):
            raise Undecided(f"nothing is known of {name!r}, which the body reads")
    changed = {name: new for name, new in names.items() if name != new}
    inner = {name for node in body.nodes for name in captured(node)}
    if len(given) != len(body.inputs) or not inner.isdisjoint(changed):
        raise Undecided("the bodies have other inputs, or bodies of their own have")

    def renamed(some: Sequence[str]) -> tuple[str, ...]:
        return tuple(changed.get(name, name) for name in some)

    nodes = tuple(replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs)) for node in body.nodes)
    constants |= body.constants
    return replace(body, nodes=nodes, constants=constants, inputs=tuple(feed), outputs=renamed(body.outputs)), feed


def _value(numbers: Numbers, tensor: str) -> np.ndarray:
    ball = numbers.ball(tensor)
    return np.asarray(ball.midpoint.astype(ball.dtype))


def _first_round(pair: Pair, numbers: Numbers) -> list[np.ndarray]:
    """The formal inputs of the body of a node. Raises Undecided where they are not known."""
    node = pair.node
    operands = [_value(numbers, use.tensor) if use else np.zeros(0) for use in pair.operands]
    if node.op == "If":
        return []
    if node.op == "Loop":
        return [np.array(0), np.array(True), *operands[2:]]
    start = len(operands) - int(node.attributes["num_scan_inputs"])
    axes = node.attributes.get("scan_input_axes", [0] * (len(operands) - start))
    if not all(x.size for x in operands[start:]):
        raise Undecided("there is no first round")
    return operands[:start] + [np.asarray(x.take(0, axis)) for x, axis in zip(operands[start:], axes)]
