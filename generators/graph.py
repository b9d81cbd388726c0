"""GraphSpec: a graph as decoded, typed and with a concrete shape for every feed; and how it becomes a Case.

A tensor carries one shape *per feed*. A dim whose sizes differ between the feeds is symbolic, and its name stands for
that tuple of sizes: equal names always mean equal sizes. So every shape rule is plain arithmetic on integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper

from generators import values
from generators.case import Case, Feed
from generators.values import FLOAT, INT4, INT64, NUMPY, STORAGE, STRING, UINT4, Fill, Regime, Shape


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor.

    shapes     its shape in each feed (of a sequence or an optional: that of what it holds)
    low, high  no element lies outside, as far as a coarse interval arithmetic tells
    container  "" for a tensor, else "sequence", "optional" or "optional sequence"
    """

    index: int
    dtype: int
    shapes: tuple[Shape, ...]
    low: float
    high: float
    container: str = ""

    @property
    def rank(self) -> int:
        return len(self.shapes[0])

    @property
    def shape(self) -> Shape:
        """The shape in the first feed."""
        return self.shapes[0]

    @property
    def static(self) -> bool:
        """Whether every feed has the same shape."""
        return self.shapes.count(self.shapes[0]) == len(self.shapes)

    def fixed(self, axis: int) -> bool:
        """Whether this axis has the same size in every feed."""
        n = self.shapes[0][axis]
        return all(shape[axis] == n for shape in self.shapes)

    @property
    def empty(self) -> bool:
        """Whether it has no element in some feed."""
        return any(0 in shape for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph: what is computed in a branch or a loop. It sees the values of the graph around it."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[Node, ...]

    def reads(self) -> set[int | None]:
        """Every value that its nodes and outputs refer to."""
        return {i for node in self.nodes for i in (*node.inputs, *node.reads())} | set(self.outputs)


Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | np.ndarray | Body | TypeProto


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. inputs and outputs are indices of values, None for an optional one left out."""

    op_type: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: Mapping[str, Attribute]

    def reads(self) -> set[int | None]:
        """The values that its bodies refer to."""
        found: set[int | None] = set()
        for value in self.attributes.values():
            if isinstance(value, Body):
                found |= value.reads()
        return found


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that no node computes. source: "input", "initializer" or "constant" (a Constant node)."""

    value: Value
    source: str
    fill: Fill


@dataclass(frozen=True)
class GraphSpec:
    """A decoded graph. `nodes` are in topological order; `outputs` are indices of values; `pool` feeds the fills.

    annotated  declare every intermediate in value_info
    form       "plain"; "literal": Constant nodes hold plain numbers (value_ints, ...) where they can; "unnamed": nodes
               have no names; "listed": weights are graph inputs too, as IR version 3 had it; "described": with
               metadata
    """

    opset: int
    regime: Regime
    nodes: tuple[Node, ...]
    givens: tuple[Given, ...]
    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    pool: bytes = b""
    annotated: bool = False
    form: str = "plain"
    origin: Mapping[str, Any] = field(default_factory=dict)


def pruned(spec: GraphSpec) -> GraphSpec:
    """`spec` without what no output depends on."""
    needed: set[int | None] = set(spec.outputs)
    nodes = []
    for node in reversed(spec.nodes):
        if not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
            needed.update(node.reads())
    needed.discard(None)
    return replace(
        spec, nodes=tuple(reversed(nodes)), givens=tuple(given for given in spec.givens if given.value.index in needed)
    )


Symbols = dict[tuple[int, ...], str]
"""The sizes of a dim in each feed -> its name."""

CALIBRATION_SHIFT = 101
FEED_SHIFT = 53
"""How far apart in the pool two feeds of one input start: primes, so that no two come out alike in a small pool."""


def build(spec: GraphSpec) -> Case:
    """The case that `spec` describes, dead code removed.

    Calibration: one feed drawn like feed 0, and feed 0 with every input reversed, so that its range is covered.
    """
    spec = pruned(spec)
    names = _names(spec)
    symbols: Symbols = {}
    model = onnx.ModelProto(
        ir_version=ir_version(spec.opset), opset_import=[onnx.OperatorSetIdProto(version=spec.opset)]
    )
    graph = model.graph
    graph.name = "driftnet"
    pool, period = values.circle(spec.pool), len(spec.pool)
    inputs = [given for given in spec.givens if given.source == "input"]
    for given in spec.givens:
        if given.source == "input" or (spec.form == "listed" and _is_listed(given)):
            graph.input.append(_value_info(names[given.value.index], given.value, symbols))
    for given in spec.givens:
        if given.source != "input":
            literal = spec.form == "literal" and spec.opset >= 12
            _add_constant(graph, given, names[given.value.index], spec.regime, pool, period, literal)
    for node in spec.nodes:
        graph.node.append(_node(node, spec, names, symbols))
    for index in spec.outputs:
        graph.output.append(_value_info(names[index], spec.values[index], symbols))
    if spec.annotated:
        outputs = set(spec.outputs)
        for node in spec.nodes:
            graph.value_info.extend(
                _value_info(names[index], spec.values[index], symbols)
                for index in node.outputs
                if index is not None and index not in outputs
            )

    if spec.form == "unnamed":
        for written in graph.node:
            written.ClearField("name")
    elif spec.form == "described":
        model.producer_name, model.graph.doc_string = "driftnet", "a graph with metadata"
        model.metadata_props.add(key="title", value="driftnet")

    def feed(number: int, shift: int) -> Feed:
        return {
            names[g.value.index]: values.materialise(
                g.fill, g.value.dtype, g.value.shapes[number], spec.regime, pool, period, shift
            )
            for g in inputs
        }

    feeds = tuple([feed(number, FEED_SHIFT * number) for number in range(len(spec.values[0].shapes))])
    turned = {
        name: x if given.fill.array is not None else x.reshape(-1)[::-1].reshape(x.shape)
        for given, (name, x) in zip(inputs, feeds[0].items())
    }
    calibration = (feed(0, CALIBRATION_SHIFT), turned)
    return Case(model.SerializeToString(deterministic=True), feeds, calibration, spec.origin)


def _is_listed(given: Given) -> bool:
    """Whether it may be a graph input too. What decides a shape may not: shape inference has to know it."""
    return given.source == "initializer" and given.value.dtype in NUMPY and given.fill.array is None


@lru_cache(maxsize=64)
def ir_version(opset: int) -> int:
    """The oldest IR version that goes with an opset of the default domain."""
    return int(helper.OP_SET_ID_VERSION_MAP["ai.onnx", opset])


def _names(spec: GraphSpec) -> dict[int | None, str]:
    """x0, x1 ... for graph inputs, w0 ... for constants, t0 ... for what nodes compute, y0 ... for graph outputs."""
    names: dict[int | None, str] = {None: ""}
    inputs = constants = 0
    for given in spec.givens:
        if given.source == "input":
            names[given.value.index], inputs = f"x{inputs}", inputs + 1
        else:
            names[given.value.index], constants = f"w{constants}", constants + 1
    for k, index in enumerate(spec.outputs):
        names[index] = f"y{k}"
    _name_computed(spec.nodes, names)
    return names


def _name_computed(nodes: Iterable[Node], names: dict[int | None, str]) -> None:
    for node in nodes:
        for output in node.outputs:
            if output not in names:
                names[output] = f"t{len(names)}"
        for value in node.attributes.values():
            if isinstance(value, Body):
                for index in value.inputs:
                    names[index] = f"b{len(names)}"
                _name_computed(value.nodes, names)


def _value_info(name: str, value: Value, symbols: Symbols) -> onnx.ValueInfoProto:
    dims: tuple[int | str, ...] = value.shapes[0]
    if not value.static:
        per_feed = zip(*value.shapes)
        dims = tuple([n[0] if n.count(n[0]) == len(n) else symbols.setdefault(n, f"n{len(symbols)}") for n in per_feed])
    return onnx.ValueInfoProto(name=name, type=value_type(value.dtype, dims, value.container))


@lru_cache(maxsize=4096)
def value_type(dtype: int, dims: tuple[int | str, ...], container: str = "") -> TypeProto:
    """The type of a tensor, or of a container of such tensors. Shared: copy it before changing anything."""
    proto = TypeProto()
    if container:
        outer, _, inner = container.partition(" ")
        kind = proto.sequence_type if outer == "sequence" else proto.optional_type
        kind.elem_type.CopyFrom(value_type(dtype, dims, inner))
        return proto
    proto.tensor_type.elem_type = dtype
    shape = proto.tensor_type.shape
    shape.SetInParent()
    for dim in dims:
        if isinstance(dim, str):
            shape.dim.add(dim_param=dim)
        else:
            shape.dim.add(dim_value=dim)
    return proto


def _node(node: Node, spec: GraphSpec, names: Mapping[int | None, str], symbols: Symbols) -> onnx.NodeProto:
    outputs = [names[o] for o in node.outputs]
    return onnx.NodeProto(
        name=f"{node.op_type}_{next(filter(None, outputs))}",
        op_type=node.op_type,
        input=[names[i] for i in node.inputs],
        output=outputs,
        attribute=[
            _large_attribute(name, value, spec, names, symbols)
            if isinstance(value, (np.ndarray, Body, TypeProto))
            else attribute(name, value)
            for name, value in node.attributes.items()
        ],
    )


@lru_cache(maxsize=4096, typed=True)
def attribute(name: str, value: int | float | str | tuple[Any, ...]) -> AttributeProto:
    """The attribute as ONNX has it. Shared: a repeated field copies what is put into it."""
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, int):
        return AttributeProto(name=name, type=AttributeProto.INT, i=value)
    if isinstance(value, float):
        return AttributeProto(name=name, type=AttributeProto.FLOAT, f=value)
    if isinstance(value, str):
        return AttributeProto(name=name, type=AttributeProto.STRING, s=value.encode())
    if value and isinstance(value[0], float):
        return AttributeProto(name=name, type=AttributeProto.FLOATS, floats=value)
    if value and isinstance(value[0], str):
        return AttributeProto(name=name, type=AttributeProto.STRINGS, strings=[s.encode() for s in value])
    return AttributeProto(name=name, type=AttributeProto.INTS, ints=value)


def _large_attribute(
    name: str,
    value: np.ndarray | Body | TypeProto,
    spec: GraphSpec,
    names: Mapping[int | None, str],
    symbols: Symbols,
) -> AttributeProto:
    if isinstance(value, np.ndarray):
        return AttributeProto(name=name, type=AttributeProto.TENSOR, t=numpy_helper.from_array(value))
    if isinstance(value, TypeProto):
        return AttributeProto(name=name, type=AttributeProto.TYPE_PROTO, tp=value)
    graph = onnx.GraphProto(
        name=name,
        input=[_value_info(names[i], spec.values[i], symbols) for i in value.inputs],
        node=[_node(node, spec, names, symbols) for node in value.nodes],
        output=[_value_info(names[i], spec.values[i], symbols) for i in value.outputs],
    )
    return AttributeProto(name=name, type=AttributeProto.GRAPH, g=graph)


def _add_constant(
    graph: onnx.GraphProto, given: Given, name: str, regime: Regime, pool: np.ndarray, period: int, literal: bool
) -> None:
    """literal: a Constant node holds plain numbers where there is an attribute for them."""
    value = given.value
    numbers = values.materialise(given.fill, value.dtype, value.shape, regime, pool, period)
    if value.dtype == STRING:
        strings = [text.encode() for text in numbers.reshape(-1).tolist()]
        tensor = TensorProto(dims=value.shape, data_type=value.dtype, string_data=strings)
    else:
        tensor = TensorProto(dims=value.shape, data_type=value.dtype, raw_data=_raw(numbers, value.dtype))
    if given.source == "initializer":
        tensor.name = name
        graph.initializer.append(tensor)
        return
    written = AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor)
    if literal and value.rank < 2 and value.dtype in _LITERALS and numbers.size:
        plain = numbers.tolist()
        written = attribute(_LITERALS[value.dtype] + "s" * value.rank, tuple(plain) if value.rank else plain)
    graph.node.add(name=f"Constant_{name}", op_type="Constant", output=[name], attribute=[written])


_LITERALS = {FLOAT: "value_float", INT64: "value_int", STRING: "value_string"}
"""The attributes of Constant for one number (and, with an s, for several)."""


def _raw(numbers: np.ndarray, dtype: int) -> bytes:
    """Row-major little-endian bytes; two 4-bit integers share one, the first in its low half."""
    if dtype not in (INT4, UINT4):
        return np.ascontiguousarray(numbers, STORAGE[dtype]).tobytes()
    nibbles = numbers.reshape(-1).astype(np.int8).view(np.uint8) & 15
    padded = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8))
    packed: np.ndarray = padded[::2] | padded[1::2] << 4
    return packed.astype(np.uint8).tobytes()
