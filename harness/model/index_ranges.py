"""Which values an integer input may have: what indexes a table has to lie in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from driftnet.model.constants import constant
from driftnet.model.inspect import all_nodes, graph_inputs, has_any
from driftnet.model.operators import RECURRENT, Trait, parameters

PASSING = Trait.MOVES | Trait.SELECTS | Trait.COPIES
"""What gives again the values of its data, or some of them."""

UNKNOWN = (0, 2)
"""The range, upper end not included, of integers that nothing is known of: masks, counts, flags."""


@dataclass(frozen=True)
class Known:
    """Shapes and constants of a model, as far as it states them itself."""

    shapes: Mapping[str, Sequence[int]]
    constants: Mapping[str, np.ndarray]

    def dim(self, name: str, axis: int) -> int | None:
        """That dimension of a tensor, None where it is symbolic or not stated."""
        shape = self.shapes.get(name, ())
        return shape[axis] if -len(shape) <= axis < len(shape) and shape[axis] > 0 else None


def ranges(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """(lowest, end) for each integer input of `model`, so that every operator that reads it, or what data movement
    makes of it, accepts it: Gather and its like, OneHot, losses, RoiAlign, lengths of sequences, divisors. UNKNOWN
    where none says."""
    graph = model.graph
    nodes = list(all_nodes(graph))
    known = _known(graph, nodes)
    return {value.name: _range(value.name, nodes, known) for value in graph_inputs(model)}


def _range(name: str, nodes: Sequence[onnx.NodeProto], known: Known) -> tuple[int, int]:
    carried, found = {name}, list[tuple[int, int]]()
    for node in nodes:
        for slot, operand in enumerate(node.input):
            if operand not in carried:
                continue
            found += _accepted(node, slot, known)
            if has_any(node, PASSING) and slot not in parameters(node.op_type):
                carried.update(node.output)
    if not found:
        return UNKNOWN
    low, end = max(low for low, _ in found), min(end for _, end in found)
    return low, max(end, low + 1)


def _accepted(node: onnx.NodeProto, slot: int, known: Known) -> Iterator[tuple[int, int]]:
    data, axis = node.input[0], next((a.i for a in node.attribute if a.name == "axis"), 0)
    ends: list[int | None] = []
    match node.op_type, slot:  # where the standard puts indices, divisors, lengths, and up to what they go
        case ("Gather" | "GatherElements" | "ScatterElements" | "Scatter", 1):
            ends = [known.dim(data, axis)]
        case ("GatherND" | "ScatterND", 1):  # along each axis in turn
            ends = [known.dim(data, k) for k in range(len(known.shapes.get(data, ())))]
        case ("NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss", 1):  # classes
            ends = [known.dim(data, 1)]
        case ("RoiAlign", 2):  # images of the batch
            ends = [known.dim(data, 0)]
        case ("OneHot", 0):
            depth = known.constants.get(node.input[1])
            ends = [None if depth is None else int(depth.reshape(-1)[0])]
        case (op, 4) if op in RECURRENT:
            steps = known.dim(data, 0)
            yield (1, steps + 1) if steps else (1, 2)
        case ("Div" | "Mod" | "TopK", 1):  # divisors, and a count
            yield 1, 2
    yield from ((0, end) for end in ends if end)


def _known(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> Known:
    constants = {node.output[0]: x for node in nodes if (x := constant(node)) is not None}
    shapes: dict[str, Sequence[int]] = {name: x.shape for name, x in constants.items()}
    for value in (*graph.value_info, *graph.input):
        shapes[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]
    depths = {node.input[1] for node in nodes if node.op_type == "OneHot"}
    for tensor in graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
        if tensor.name in depths:
            constants[tensor.name] = onnx.numpy_helper.to_array(tensor)
    return Known(shapes, constants)
