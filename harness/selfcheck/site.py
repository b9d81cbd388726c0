"""Site: one node of a model that a mutant changes, and what it takes to change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from driftnet.model.constants import stored_tensors
from driftnet.model.declared import settle_shapes
from driftnet.model.inspect import all_nodes, opset, refill
from driftnet.util.apart import trusting
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

Shape = list[int | None]


@dataclass(frozen=True)
class Site:
    """A node of the main graph of `model`."""

    model: ModelProto
    node: NodeProto

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return opset(self.model)

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute `name` as a Python value."""
        found = next((helper.get_attribute_value(a) for a in self.node.attribute if a.name == name), default)
        return found.decode() if isinstance(found, bytes) else found

    def put(self, **attributes: Any) -> None:
        """Set attributes; None removes one."""
        kept = [a for a in self.node.attribute if a.name not in attributes]
        made = [helper.make_attribute(name, value) for name, value in attributes.items() if value is not None]
        refill(self.node.attribute, [*kept, *made])

    def has(self, position: int) -> bool:
        """Whether there is an operand at `position`."""
        return position < len(self.node.input) and bool(self.node.input[position])

    def constant(self, position: int) -> np.ndarray | None:
        """The operand at `position` where it is an initializer or comes from a Constant node."""
        return constant(self.model, self.node.input[position]) if self.has(position) else None

    def feed(self, position: int, value: np.ndarray) -> None:
        """Feed the operand at `position` from its constant with another value; a new one where others read that too."""
        name = self.node.input[position] if self.has(position) else ""
        readers = sum(list(node.input).count(name) for node in all_nodes(self.model.graph))
        kept = _tensor(self.model, name) if readers == 1 else None
        if kept is None:
            name = f"{self.node.output[0]}_mutated_{position}"
            kept = self.model.graph.initializer.add()
        kept.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
        self._connect(position, name)

    def drop(self, position: int) -> None:
        """Leave out the optional operand at `position`."""
        if self.has(position):
            self._connect(position, "")

    def before(self, position: int, op_type: str, *operands: np.ndarray, **attributes: Any) -> None:
        """Let the operand at `position` pass through a new node first."""
        made = f"{self.node.output[0]}_{op_type}_{position}_{len(self.model.graph.node)}"
        self._insert(0, op_type, self.node.input[position], made, operands, attributes)
        self._connect(position, made)

    def after(self, op_type: str, *operands: np.ndarray, **attributes: Any) -> None:
        """Let the first result pass through a new node."""
        result = self.node.output[0]
        raw = f"{result}_{op_type}_{len(self.model.graph.node)}"
        self._insert(1, op_type, raw, result, operands, attributes)
        self.node.output[0] = raw

    def producer(self, position: int) -> Site | None:
        """The node that makes the operand at `position`."""
        name = self.node.input[position]
        found = next((node for node in self.model.graph.node if name in node.output), None)
        return Site(self.model, found) if found is not None and name else None

    def reader(self) -> Site:
        """The first node that reads the first result; there must be one."""
        return Site(self.model, next(node for node in self.model.graph.node if self.node.output[0] in node.input))

    def consumers(self) -> int:
        """How many operands and graph outputs the first result is."""
        name = self.node.output[0]
        readers = sum(list(node.input).count(name) for node in self.model.graph.node)
        return int(readers + sum(value.name == name for value in self.model.graph.output))

    def shape(self, position: int) -> Shape | None:
        """The shape of the operand at `position` as far as it can be inferred; symbolic dims are None."""
        tensor = self._inferred(position)
        if tensor is None or not tensor.HasField("shape"):
            held = self.constant(position)
            return None if held is None else list(held.shape)
        return [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]

    def is_float(self, position: int) -> bool:
        """Whether the operand at `position` is known to be of float32."""
        tensor = self._inferred(position)
        return tensor is not None and bool(tensor.elem_type == TensorProto.FLOAT)

    def _inferred(self, position: int) -> TypeProto.Tensor | None:
        if not self.has(position):
            return None
        inferred = _inferred(self.model)
        values = (*inferred.input, *inferred.value_info, *inferred.output)
        return next((v.type.tensor_type for v in values if v.name == self.node.input[position]), None)

    def _connect(self, position: int, name: str) -> None:
        inputs = [*self.node.input, *[""] * (position + 1 - len(self.node.input))]
        inputs[position] = name
        self.node.input[:] = inputs

    def _insert(
        self, offset: int, op_type: str, source: str, result: str, operands: Sequence[np.ndarray], attributes: Any
    ) -> None:
        names = [f"{result}_{k}" for k in range(len(operands))]
        self.model.graph.initializer.extend(numpy_helper.from_array(x, n) for x, n in zip(operands, names))
        new = helper.make_node(op_type, [source, *names], [result], **attributes)
        index = next(i for i, node in enumerate(self.model.graph.node) if node.output[:] == self.node.output[:])
        self.model.graph.node.insert(index + offset, new)


Damage = Callable[[Site], None]


def sites(model: ModelProto, *op_types: str) -> list[Site]:
    """The nodes of these types."""
    return [Site(model, node) for node in list(model.graph.node) if node.op_type in op_types]


def constant(model: ModelProto, name: str) -> np.ndarray | None:
    """The value of an initializer or of a Constant node's tensor."""
    tensor = _tensor(model, name)
    return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))


def _tensor(model: ModelProto, name: str) -> TensorProto | None:
    return next((tensor for stored, tensor in stored_tensors(model.graph) if stored == name), None)


def put(**attributes: Any) -> Damage:
    """Give attributes other values: None removes one, a function is asked with what it is now (None: absent)."""

    def damage(at: Site) -> None:
        at.put(**{name: value(at.get(name)) if callable(value) else value for name, value in attributes.items()})

    return damage


def alter(position: int, change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """Give a constant operand the value that `change` makes of it."""

    def damage(at: Site) -> None:
        if (value := at.constant(position)) is not None:
            at.feed(position, change(value))

    return damage


def each(op_types: Sequence[str], damage: Damage) -> Callable[[ModelProto], None]:
    """Damage to a node as damage to every node of these types."""

    def damage_all(model: ModelProto) -> None:
        for site in sites(model, *op_types):
            damage(site)
        with trusting():  # of a worker, which may be lost
            settle_shapes(model)

    return damage_all


def _inferred(model: ModelProto) -> GraphProto:
    """The graph with inferred shapes; as it is where those contradict what a subgraph declares."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return model.graph
