"""Expansion: what roundings between the operations of one region do to the region's result.

A converter makes several operations of some operators, and what is rounded between them is no tensor of the model.
Where each of them computes what an operator of ONNX does, they are evaluated twice, rounded (g~) and not (g), and the
result is taken to be

    y = f(x) + g~(x) - g(x)

with f as the model computes it. Where g is f by other means, y is g~; where g is something else, y says so. But what
shape a tensor has that was moved is not told: where such a one meets another operand, or is reduced, a g that is not f
may be ours, and nothing is said of y.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from driftnet.model.artifact import Operation
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import WEIGHTED, Trait, having
from driftnet.oracle.artifact.simulated.trace import LAYER, Grids, Region
from driftnet.oracle.scheme.artifact_trace import Grid, Trace

SLIDING = having(Trait.SLIDES)
ROUNDED = "artifact.Rounded"
"""The operator that puts a tensor, known to `slack` only, on the attribute `grids`, up to `steps` codes off."""
BY_OTHER_MEANS = "artifact.ByOtherMeans"
"""The operator that gives its first operand, y, of which nothing is known unless its others, f and g, are one."""


@dataclass(frozen=True)
class Expansion:
    """Nodes that make a region's result of what the model computes, their constants, and what the result is on."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    grids: Grids
    steps: float


class _Unforeseen(Exception):
    """The artifact does not tell what an operation computes."""


def expand(
    model: Graph, region: Region, trace: Trace, names: Mapping[str, str], computed: str, result: str
) -> Expansion | None:
    """The nodes that make tensor `result` of tensor `computed`, which is the region's without roundings between.

    names   tensor of the model -> what it is called where the nodes will stand
    None where the artifact does not tell what one of its operations computes.
    """
    products = [node for k in region.within if (node := model.nodes[k]).op in WEIGHTED - SLIDING]
    builder = _Builder(region, trace, names, products)
    try:
        rounded, plain = builder.value(region.start, True), builder.value(region.start, False)
    except _Unforeseen:
        return None
    flat, shape, effect, sure, other = (f"{region.result}~{part}" for part in ("flat", "shape", "effect", "sum", "g"))
    summed = sure if builder.guessed else result
    nodes = [
        *builder.nodes,
        Node("Sub", (rounded, plain), (flat,), {}),
        Node("Shape", (computed,), (shape,), {}),
        Node("Reshape", (flat, shape), (effect,), {}),
        Node("Add", (computed, effect), (summed,), {}),
    ]
    if builder.guessed:
        nodes.append(Node("Reshape", (plain, shape), (other,), {}))
        nodes.append(Node(BY_OTHER_MEANS, (sure, computed, other), (result,), {}))
    last = trace.makers[region.start]
    while last.runs == "moves":
        last = trace.makers[last.inputs[0]]
    if last.name not in region.coded:
        return Expansion(tuple(nodes), builder.constants, (None,), 0)
    grid = trace.grid(last.outputs[0], region.coded[last.name])
    return Expansion(tuple(nodes), builder.constants, (grid,), last.steps)


def rounding(x: str, y: str, grids: Grids, steps: float = 0, slack: float = 0.0) -> Node:
    """The node that makes tensor y of x on `grids`."""
    if not any(grids):
        return Node("Identity", (x,), (y,), {})
    return Node(ROUNDED, (x,), (y,), {"grids": grids, "steps": steps, "slack": slack})


@dataclass
class _Builder:
    """Nodes that compute the tensors of one region.

    products   the model's matrix products there: what a layer of the artifact with their weights computes
    guessed    whether the shape counts of a tensor that was moved into one that is not told
    """

    region: Region
    trace: Trace
    names: Mapping[str, str]
    products: Sequence[Node]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    guessed: bool = False

    def value(self, tensor: str, rounded: bool) -> str:
        """What the artifact's `tensor` is called here, with or without roundings."""
        name = self.trace.name(tensor)
        if tensor != self.region.start and name in self.region.sources:
            return self._on(self.names.get(name, name), tensor, rounded)
        op, made = self.trace.makers.get(tensor), f"{tensor}~{self.region.result}~{'rounded' if rounded else 'plain'}"
        if op is None or (op.runs == "somehow" and op.values is None):
            raise _Unforeseen
        if op.runs == "moves":
            if not op.in_order:
                raise _Unforeseen
            return self._on(self.value(op.inputs[0], rounded), tensor, rounded)
        if made not in self.made:
            self.made.add(made)
            self._compute(op, made, rounded)
        return made

    def _on(self, x: str, tensor: str, rounded: bool) -> str:
        """Tensor x as it is moved into the artifact's `tensor`."""
        grid = self.trace.moved_on(tensor)
        if grid is None or not rounded:
            return x
        self.nodes.append(rounding(x, f"{x}~in~{tensor}~{self.region.result}", (grid,)))
        return self.nodes[-1].outputs[0]

    def _compute(self, op: Operation, result: str, rounded: bool) -> None:
        """The nodes of one operation."""
        if op.values is not None:
            self.constants[result] = op.values
            return
        operands = [self._read(op, tensor, rounded, result) for tensor in op.inputs]
        coded = rounded and op.name in self.region.coded
        y = f"{result}~exact" if coded else result
        if op.computes and op.computes != LAYER:
            shaped = len(operands) > 1 or op.computes.startswith("Reduce")
            self.guessed |= shaped and any(self._is_moved(tensor) for tensor in op.inputs)
            first = f"{y}~before" if op.then else y
            self.nodes.append(Node(op.computes, tuple(operands), (first,), op.attributes))
            self.nodes += [Node(op.then, (first,), (y,), {})] if op.then else []
        elif op.computes == LAYER and len(self.products) == 1:
            product = self.products[0]
            kept = {key: value for key, value in product.attributes.items() if key not in ("alpha", "beta")}
            self.nodes.append(Node(product.op, (operands[0], product.inputs[1]), (y,), kept))
        else:
            raise _Unforeseen
        if coded:
            self.nodes.append(rounding(y, result, (self._grid(op, op.outputs[0]),), op.steps))

    def _is_moved(self, tensor: str) -> bool:
        """Whether its shape is not told: it is no tensor of the model, and was moved before."""
        op = self.trace.makers.get(tensor)
        if op is None or self.trace.name(tensor) in self.region.sources:
            return False
        return op.runs == "moves" or (len(op.inputs) == 1 and self._is_moved(op.inputs[0]))

    def _grid(self, op: Operation, tensor: str) -> Grid:
        return self.trace.grid(tensor, self.region.coded[op.name])

    def _read(self, op: Operation, tensor: str, rounded: bool, result: str) -> str:
        """What the operand `tensor` of an operation is called, on the grid that it is read on."""
        x = self.value(tensor, rounded)
        if not rounded or op.name not in self.region.coded:
            return x
        read = f"{x}~read~{result}"
        if read not in self.made:
            self.made.add(read)
            self.nodes.append(rounding(x, read, (self._grid(op, tensor),)))
        return read
