"""Host: a model in which places are looked for, and what is known of its tensors without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import onnx
from driftnet.model.case import Case
from driftnet.model.graph import Graph, Node, captured, read
from driftnet.model.inference import InferenceError, inferred, light
from driftnet.model.inspect import all_nodes
from onnx import TensorProto, defs, helper, numpy_helper

Tensors = Mapping[str, np.ndarray]
Dims = tuple[int | None, ...]

FEW = 8
"""Elements of a constant that is looked at for others that are equal to it."""


@dataclass(frozen=True, eq=False)
class Host:
    """A model in which places are looked for.

    tensors   values of its inputs and of what it computes, as far as they are known; constants need not be among them
    sized     tensor -> its type where symbolic dims have the sizes of which somebody has said that they are fed
    told      what was found out of its nodes, by their indices (`driftnet.causes.facts`)
    """

    model: onnx.ModelProto
    tensors: Tensors
    graph: Graph
    sized: Mapping[str, onnx.TypeProto] = field(default_factory=dict)
    told: dict[int, Any] = field(default_factory=dict, init=False)

    @cached_property
    def makers(self) -> Mapping[str, tuple[int, int]]:
        """Tensor -> (node, slot) that makes it."""
        return {name: (i, k) for i, node in enumerate(self.graph.nodes) for k, name in enumerate(node.outputs) if name}

    @cached_property
    def readers(self) -> Mapping[str, list[int]]:
        """Tensor -> the nodes that read it, through subgraphs too."""
        found: dict[str, list[int]] = {}
        for i, node in enumerate(self.graph.nodes):
            for name in dict.fromkeys((*node.inputs, *captured(node))):
                found.setdefault(name, []).append(i)
        return found

    @cached_property
    def needed(self) -> set[str]:
        """The tensors that an output is, or is made of: of a node that has one, other results are not. What may be
        left out of a model is another thing (`submodel.needless`): of a node, all or nothing."""
        live = self.graph.ancestors(*self.graph.outputs)
        return {*self.graph.outputs, *(name for node in live for name in (*node.inputs, *captured(node)))}

    @cached_property
    def typed(self) -> set[str]:
        """The results whose types the model itself states."""
        return {value.name for value in (*self.model.graph.value_info, *self.model.graph.output)}

    @cached_property
    def declared(self) -> Mapping[str, onnx.TypeProto]:
        """Tensor -> its type as declared or inferred."""
        graph = self.model.graph
        values = [*graph.value_info, *graph.output, *graph.input]
        if not self.makers.keys() <= {v.name for v in values}:
            try:
                whole = inferred(light(self.model), data_prop=True).graph
                values = [*whole.value_info, *values]
            except InferenceError:
                pass
        return {v.name: v.type for v in values}

    @cached_property
    def _dtypes(self) -> Mapping[str, str]:
        """Tensor of which no dtype is known -> that of what has the same type as it, by the schema of an operator that
        reads or makes it: beside one that nobody registered, say."""
        known: dict[str, str | None] = {name: _dtype_inside(declared) for name, declared in self.declared.items()}
        known |= {name: _dtype(x) for name, x in (*self.graph.constants.items(), *self.tensors.items())}
        alike = [names for node in self.graph.nodes for names in _of_one_type(node, self.graph.opset)]
        found, left = dict[str, str](), [names for names in alike if any(known.get(name) is None for name in names)]
        while left:
            told = [(names, [dtype for name in names if (dtype := known.get(name))]) for names in left]
            for names, dtypes in told:
                if dtypes:
                    new = dict.fromkeys((name for name in names if known.get(name) is None), dtypes[0])
                    found.update(new)
                    known.update(new)
            if not any(dtypes for _, dtypes in told):
                break
            left = [names for names in left if any(known.get(name) is None for name in names)]
        return found

    @cached_property
    def extended(self) -> Mapping[str, list[str]]:
        """Tensor -> what others add to its name: "_scale" of x where there is an x_scale. Systems name so, too."""
        names = {*self.makers, *self.graph.inputs, *self.graph.constants}
        found: dict[str, list[str]] = {}
        for name in names:
            for at in (i for i, letter in enumerate(name) if letter == "_" and name[:i] in names):
                found.setdefault(name[:at], []).append(name[at:])
        return found

    @cached_property
    def stated(self) -> Mapping[str, str]:
        """What a Constant node makes -> the attribute that states it: value, value_int, ..."""
        made = (node for node in self.model.graph.node if node.op_type == "Constant" and node.attribute)
        return {node.output[0]: node.attribute[0].name for node in made}

    @cached_property
    def named(self) -> bool:
        """Whether no two nodes, Constants among them, share a name; no name is one too."""
        nodes = self.model.graph.node
        return len({node.name for node in nodes}) == len(nodes)

    @cached_property
    def symbolic(self) -> bool:
        """Whether an input of the model has a dim of no fixed size: a session of it may be given others."""
        fed = [self.declared[name].tensor_type for name in self.graph.inputs if name in self.declared]
        return any(_size(dim) is None for tensor in fed for dim in tensor.shape.dim)

    @cached_property
    def twins(self) -> frozenset[str]:
        """What a node makes that one before it makes too: of the same operands, or equal constants, by the same
        attributes."""
        seen, found = set[bytes](), set[str]()
        for node in self.model.graph.node:
            alike = onnx.NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
            alike.input.extend(self._equals.get(name, name) for name in node.input)
            key = alike.SerializeToString(deterministic=True)
            found.update(filter(None, node.output) if key in seen and node.input else ())
            seen.add(key)
        return frozenset(found)

    @cached_property
    def _equals(self) -> Mapping[str, str]:
        """Small constant -> the first that is equal to it."""
        first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        small = {name: x for name, x in self.graph.constants.items() if x.size <= FEW and x.dtype != object}
        return {name: first.setdefault((x.dtype.str, x.shape, x.tobytes()), name) for name, x in small.items()}

    def is_no_tensor(self, name: str) -> bool:
        """Whether it is a sequence, a map or an optional, which nothing can be fed."""
        declared = self.declared.get(name)
        return declared is not None and declared.WhichOneof("value") not in ("tensor_type", "sparse_tensor_type", None)

    @cached_property
    def folded(self) -> frozenset[str]:
        """What depends on constants alone, these included."""
        found = set(self.graph.constants)
        for node in self.graph.nodes:
            if all(name in found for name in node.inputs if name) and any(node.inputs):
                found.update(node.outputs)
        return frozenset(found)

    def array(self, name: str) -> np.ndarray | None:
        """The value of a tensor, where it is known."""
        found = self.graph.constants.get(name)
        return self.tensors.get(name) if found is None else found

    def dtype(self, name: str) -> str | None:
        """The dtype of a tensor, or of what a sequence or an optional holds; None where it is unknown."""
        x, declared = self.array(name), self.declared.get(name)
        found = _dtype(x) if x is not None else _dtype_inside(declared) if declared else None
        return self._dtypes.get(name) if found is None else found

    def shape(self, name: str) -> Dims | None:
        """The dims of a tensor, None for one that is unknown or symbolic; None where not even the rank is known."""
        x = self.array(name)
        if x is not None:
            return x.shape
        found = self._dims(name)
        return None if found is None else tuple(_size(dim) for dim in found)

    def of_one_shape(self, a: str, b: str) -> bool | None:
        """Whether two tensors have one shape, whatever symbolic dims are: those of one name are equal."""
        if a == b:
            return True
        here, there = self.shape(a), self.shape(b)
        if here is None or there is None:
            return None
        if len(here) != len(there) or any(None not in (n, m) and n != m for n, m in zip(here, there)):
            return False
        symbols = map(self._symbols, (a, b), (here, there))
        told = (n == m is not None or (n is m is None and p == q != "") for n, m, p, q in zip(here, there, *symbols))
        return True if all(told) else None

    def _symbols(self, name: str, shape: Dims) -> Sequence[str]:
        """The names of the dims of a tensor of that shape, "" for those without."""
        dims = self._dims(name) if None in shape else None
        return [dim.dim_param for dim in dims] if dims is not None else [""] * len(shape)

    def _dims(self, name: str) -> Sequence[onnx.TensorShapeProto.Dimension] | None:
        declared = self.sized.get(name) or self.declared.get(name)
        return declared.tensor_type.shape.dim if declared and declared.tensor_type.HasField("shape") else None


def host_of(case: Case, tensors: Tensors | None = None) -> Host:
    """`case` as a host; its first feed is known, and what `tensors` says besides."""
    return Host(case.proto, {**case.feeds[0], **(tensors or {})}, read(case.proto, case.file))


def hosts(model: onnx.ModelProto, sized: Mapping[str, onnx.TypeProto] | None = None) -> Iterator[Host]:
    """`model` as a host of which nothing is fed, then each of its subgraphs, at every depth, as a host of its own.
    sized: as in Host."""
    host = Host(model, {}, read(model), sized or {})
    yield host
    for proto in model.graph.node:
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from hosts(_alone(attribute.g, host), sized)


def _alone(graph: onnx.GraphProto, outer: Host) -> onnx.ModelProto:
    """A subgraph as a model: what it captures is a constant or an input of it."""
    model = onnx.ModelProto(ir_version=outer.model.ir_version, opset_import=outer.model.opset_import, graph=graph)
    own = {*(t.name for t in graph.initializer), *(v.name for v in graph.input)}
    own.update(name for node in graph.node for name in node.output)
    for name in dict.fromkeys(name for node in all_nodes(graph) for name in node.input):
        if name in outer.graph.constants and name not in own:
            model.graph.initializer.append(numpy_helper.from_array(outer.graph.constants[name], name))
        elif name in outer.declared and name not in own:
            model.graph.input.append(onnx.ValueInfoProto(name=name, type=outer.declared[name]))
    return model


def _of_one_type(node: Node, opset: int) -> Iterator[list[str]]:
    """Operands and results of a node that have one type, whichever that is."""
    try:
        schema = defs.get_schema(node.op, opset)
    except defs.SchemaError:
        return
    found: dict[str, list[str]] = {}
    for names, formal in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for k, name in enumerate(names if formal else ()):
            one = formal[min(k, len(formal) - 1)]  # what is variadic comes last
            if name and one.is_homogeneous:
                found.setdefault(one.type_str, []).append(name)
    yield from (
        found[one.type_param_str] for one in schema.type_constraints if len(found.get(one.type_param_str, ())) > 1
    )


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def _dtype_inside(declared: onnx.TypeProto) -> str | None:
    match declared.WhichOneof("value"):
        case "sequence_type":
            return _dtype_inside(declared.sequence_type.elem_type)
        case "optional_type":
            return _dtype_inside(declared.optional_type.elem_type)
        case "tensor_type":
            return _named(declared.tensor_type.elem_type)
    return None


def _dtype(x: np.ndarray) -> str:
    return "string" if x.dtype.kind in "OUS" else _named(helper.np_dtype_to_tensor_dtype(x.dtype))


@cache
def _named(elem_type: int) -> str:
    return str(TensorProto.DataType.Name(elem_type)).lower()
