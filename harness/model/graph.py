"""The model as the tiers look at it: nodes in order, constants, attributes, and what an output depends on."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.model import external_data
from driftnet.model.constants import constant
from driftnet.model.inspect import all_nodes, opset
from driftnet.model.operators import full_name
from onnx import helper, numpy_helper

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Node:
    """A node with its attributes as Python values (tensors as arrays). Absent optional inputs are "", as is no name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    name: str = ""

    def input(self, k: int) -> str:
        return self.inputs[k] if k < len(self.inputs) else ""


@dataclass(frozen=True)
class Graph:
    """The main graph of a model, or a subgraph.

    nodes      in topological order, without Constant
    constants  initializers and the results of Constant nodes
    initializers, inputs, outputs   names: of the former, of what a feed gives, of the graph outputs
    opset      version of the default domain
    """

    nodes: tuple[Node, ...]
    constants: Values
    initializers: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs if name}

    def readers(self, name: str) -> list[Node]:
        """The nodes that read tensor `name`, in their subgraphs too."""
        return [node for node in self.nodes if name in (*node.inputs, *captured(node))]

    def ancestors(self, *outputs: str) -> list[Node]:
        """The nodes that any of `outputs` depends on, through subgraphs too, in topological order."""
        needed, found = set(outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                found.append(node)
                needed.update(name for name in (*node.inputs, *captured(node)) if name)
        return found[::-1]


def nested(nodes: Iterable[Node], opset: int) -> Iterator[Node]:
    """`nodes` and those of their subgraphs, at every depth."""
    for node in nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, onnx.GraphProto):
                yield from nested(read_graph(value, opset).nodes, opset)


def unmade(graph: Graph, given: Iterable[str]) -> tuple[Node, str] | None:
    """The first node that reads a tensor which nothing before it makes, and that tensor. given: of the inputs."""
    known = {"", *graph.constants, *given}
    for node in graph.nodes:
        for name in node.inputs:
            if name not in known:
                return node, name
        known.update(node.outputs)
    return None


def captured(node: Node) -> Iterator[str]:
    """Names that the subgraphs of a node read, their own among them."""
    for value in node.attributes.values():
        if isinstance(value, onnx.GraphProto):
            for inner in all_nodes(value):
                yield from inner.input


def read(model: onnx.ModelProto, file: Path | None = None) -> Graph:
    """The Graph of `model`, of a case whose file is `file`. Subgraphs stay attributes of their node."""
    return read_graph(model.graph, opset(model), file)


def read_graph(graph: onnx.GraphProto, opset: int, file: Path | None = None) -> Graph:
    """The Graph of a main graph or subgraph."""
    constants = {t.name: external_data.array(t, file) for t in graph.initializer}
    nodes = []
    for proto in graph.node:
        if (stated := constant(proto)) is not None:
            constants[proto.output[0]] = stated
        else:
            attributes = {a.name: _value(a) for a in proto.attribute}
            op = full_name(proto.op_type, proto.domain)
            nodes.append(Node(op, tuple(proto.input), tuple(proto.output), attributes, proto.name))
    return Graph(
        tuple(nodes),
        constants,
        frozenset(t.name for t in graph.initializer),
        tuple(v.name for v in graph.input if v.name not in constants),
        tuple(v.name for v in graph.output),
        opset,
    )


def in_order(graph: Graph) -> Graph:
    """`graph` with its nodes in topological order, of what their subgraphs read too; quantizers forget that."""
    makers = {name: k for k, node in enumerate(graph.nodes) for name in node.outputs if name}
    needs = [{makers[name] for name in (*node.inputs, *captured(node)) if name in makers} for node in graph.nodes]
    try:
        order = tuple(TopologicalSorter(dict(enumerate(needs))).static_order())
    except CycleError:
        return graph
    return replace(graph, nodes=tuple(graph.nodes[k] for k in order))


def with_values(model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """`model` with other values in the initializers, and as results of the Constant nodes, that `values` names."""
    changed = deepcopy(model)
    for tensor in changed.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
    for node in changed.graph.node:
        if node.op_type == "Constant" and node.output[0] in values:
            value = helper.make_attribute("value", numpy_helper.from_array(values[node.output[0]]))
            node.attribute[0].CopyFrom(value)
    return changed


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [item.decode(errors="replace") for item in value]
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
