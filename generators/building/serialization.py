"""Serialization: how a GraphSpec becomes a Case, that is a serialized model and its feeds."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from driftnet.generators.building import values
from driftnet.generators.building.graph import Body, Given, GraphSpec, Node, Value, pruned
from driftnet.generators.building.values import FLOAT, INT64, NUMPY, STRING
from driftnet.model.case import Case, Feed
from onnx import AttributeProto, TypeProto, helper, numpy_helper

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
    pool, period = values.circle(spec.pool), len(spec.pool)
    inputs = {names[given.value.index]: given for given in spec.givens if given.source == "input"}

    def feed(number: int, shift: int) -> Feed:
        return {
            name: values.materialize(g.fill, g.value.dtype, g.value.shapes[number], spec.regime, pool, period, shift)
            for name, g in inputs.items()
        }

    model = _model(spec, names, pool, period)
    feeds = tuple([feed(number, FEED_SHIFT * number) for number in range(len(spec.values[0].shapes))])
    turned = {
        name: x if inputs[name].fill.array is not None else x.reshape(-1)[::-1].reshape(x.shape)
        for name, x in feeds[0].items()
    }
    calibration = (feed(0, CALIBRATION_SHIFT), turned)
    return Case(model.SerializeToString(deterministic=True), feeds, calibration, spec.origin)


def _model(spec: GraphSpec, names: Mapping[int | None, str], pool: np.ndarray, period: int) -> onnx.ModelProto:
    symbols: Symbols = {}
    model = onnx.ModelProto(
        ir_version=ir_version(spec.opset), opset_import=[onnx.OperatorSetIdProto(version=spec.opset)]
    )
    graph = model.graph
    graph.name = "driftnet"
    for given in spec.givens:
        if given.source == "input" or (spec.form == "listed" and _is_listed(given)):
            graph.input.append(_value_info(names[given.value.index], given.value, symbols))
    for given in spec.givens:
        if given.source != "input":
            value, literal = given.value, spec.form == "literal" and spec.opset >= 12
            numbers = values.materialize(given.fill, value.dtype, value.shape, spec.regime, pool, period)
            _add_constant(graph, given, names[value.index], numbers, literal=literal)
    for node in spec.nodes:
        graph.node.append(_node(node, spec, names, symbols))
    for index in spec.outputs:
        graph.output.append(_value_info(names[index], spec.values[index], symbols))
    if spec.annotated:
        inner = [i for node in spec.nodes for i in node.outputs if i is not None and i not in spec.outputs]
        graph.value_info.extend(_value_info(names[index], spec.values[index], symbols) for index in inner)
    if spec.form == "unnamed":
        for written in graph.node:
            written.ClearField("name")
    elif spec.form == "described":
        model.producer_name, graph.doc_string = "driftnet", "a graph with metadata"
        model.metadata_props.add(key="title", value="driftnet")
    return model


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


@lru_cache(maxsize=1024)  # making one takes 2 us, keeping it 1.1 KB
def value_type(dtype: int, dims: tuple[int | str, ...], container: str = "") -> TypeProto:
    """The type of a tensor, or of a container of such tensors. Shared: copy it before changing anything."""
    if not container:
        return helper.make_tensor_type_proto(dtype, dims)
    outer, _, inner = container.partition(" ")
    contained = value_type(dtype, dims, inner)
    if outer == "sequence":
        return helper.make_sequence_type_proto(contained)
    return helper.make_optional_type_proto(contained)


def _node(node: Node, spec: GraphSpec, names: Mapping[int | None, str], symbols: Symbols) -> onnx.NodeProto:
    outputs = [names[o] for o in node.outputs]
    return onnx.NodeProto(
        name=f"{node.op_type}_{next(filter(None, outputs))}",
        op_type=node.op_type,
        input=[names[i] for i in node.inputs],
        output=outputs,
        attribute=[
            helper.make_attribute(name, _proto(name, value, spec, names, symbols))
            if isinstance(value, (np.ndarray, Body, TypeProto))
            else attribute(name, value)
            for name, value in node.attributes.items()
        ],
    )


@lru_cache(maxsize=1024, typed=True)  # 2.4 KB each
def attribute(name: str, value: int | float | str | tuple[Any, ...]) -> AttributeProto:
    """The attribute as ONNX has it. Shared: a repeated field copies what is put into it."""
    return helper.make_attribute(name, value, attr_type=AttributeProto.INTS if value == () else None)


def _proto(
    name: str, value: np.ndarray | Body | TypeProto, spec: GraphSpec, names: Mapping[int | None, str], symbols: Symbols
) -> onnx.TensorProto | onnx.GraphProto | TypeProto:
    if isinstance(value, Body):
        return onnx.GraphProto(
            name=name,
            input=[_value_info(names[i], spec.values[i], symbols) for i in value.inputs],
            node=[_node(node, spec, names, symbols) for node in value.nodes],
            output=[_value_info(names[i], spec.values[i], symbols) for i in value.outputs],
        )
    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


def _add_constant(graph: onnx.GraphProto, given: Given, name: str, numbers: np.ndarray, *, literal: bool) -> None:
    """literal: a Constant node holds plain numbers where there is an attribute for them."""
    value = given.value
    if given.source == "initializer":
        graph.initializer.append(numpy_helper.from_array(numbers, name))
        return
    if literal and value.rank < 2 and value.dtype in _LITERALS and numbers.size:
        plain = numbers.tolist()
        written = attribute(_LITERALS[value.dtype] + "s" * value.rank, tuple(plain) if value.rank else plain)
    else:
        written = helper.make_attribute("value", numpy_helper.from_array(numbers))
    graph.node.add(name=f"Constant_{name}", op_type="Constant", output=[name], attribute=[written])


_LITERALS = {FLOAT: "value_float", INT64: "value_int", STRING: "value_string"}
"""The attributes of Constant for one number (and, with an s, for several)."""
