"""Edits: a case with one thing about it changed, its types inferred anew; None where onnx does not accept it.

Nodes are named by their outputs, which no edit changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from driftnet.causes.facts import Host, schema_of
from driftnet.generators.mutation.draft import Draft
from driftnet.model.case import Case
from driftnet.model.constants import constant
from driftnet.model.inference import InferenceError, inferred
from driftnet.model.submodel import rebuilt
from driftnet.reduce.size_constraints import Size, first_output
from onnx import AttributeProto, TensorProto, helper, numpy_helper

Layer = Callable[[Draft, str], Sequence[onnx.NodeProto]]
"""The nodes of a layer that reads a tensor; the last one makes its result."""
Refill = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def at_opset(case: Case, version: int) -> Case | None:
    """The same nodes under another operator set."""
    draft = _draft(case)
    for imported in draft.model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            imported.version = version
    draft.model.ir_version = max(draft.model.ir_version, helper.OP_SET_ID_VERSION_MAP["ai.onnx", version])
    return _finished(draft, case)


def _node(draft: Draft, outputs: Sequence[str]) -> onnx.NodeProto:
    nodes: Iterable[onnx.NodeProto] = draft.graph.node
    return next(node for node in nodes if tuple(node.output) == tuple(outputs))


def with_operator(case: Case, outputs: Sequence[str], op: str) -> Case | None:
    """Another operator in the place of the node that makes `outputs`; attributes it does not have are dropped."""
    draft = _draft(case)
    node = _node(draft, outputs)
    schema = schema_of(op, draft.opset)
    node.op_type = op
    kept = [a for a in node.attribute if schema and a.name in schema.attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    if schema and len(node.input) > schema.max_input:
        del node.input[schema.max_input :]
    return _finished(draft, case)


def swapped(case: Case, outputs: Sequence[str]) -> Case | None:
    """The first two operands of a node exchanged."""
    draft = _draft(case)
    node = _node(draft, outputs)
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return _finished(draft, case)


def with_attribute(case: Case, outputs: Sequence[str], name: str, made: AttributeProto | None) -> Case | None:
    """One attribute given another value, or left out where `made` is None."""
    draft = _draft(case)
    node = _node(draft, outputs)
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, made] if made is not None else kept)
    return _finished(draft, case)


def without_operand(case: Case, outputs: Sequence[str], slot: int) -> Case | None:
    """One optional operand left out."""
    draft = _draft(case)
    node = _node(draft, outputs)
    if slot == len(node.input) - 1:
        del node.input[slot:]
    else:
        node.input[slot] = ""
    return _finished(draft, case)


def with_result(case: Case, outputs: Sequence[str]) -> Case | None:
    """One more result, which is a graph output."""
    draft = _draft(case)
    node = _node(draft, outputs)
    name = draft.new("result")
    node.output.append(name)
    draft.graph.output.append(onnx.ValueInfoProto(name=name))
    return _finished(draft, case, doubtful=True)


def with_fewer_results(case: Case, outputs: Sequence[str], count: int) -> Case | None:
    """The first `count` results alone; None where another one is read."""
    draft = _draft(case)
    dropped = set(outputs[count:])
    if any(dropped.intersection(node.input) for node in draft.graph.node):
        return None
    del _node(draft, outputs).output[count:]
    kept = [v for v in draft.graph.output if v.name not in dropped]
    del draft.graph.output[:]
    draft.graph.output.extend(kept or [onnx.ValueInfoProto(name=outputs[0])])
    return _finished(draft, case)


def as_constant(case: Case, name: str, *, beside: bool = False) -> Case | None:
    """An input that has become an initializer; `beside`: with another one, for a model without inputs is folded."""
    draft = _draft(case)
    kept = [v for v in draft.graph.input if v.name != name]
    del draft.graph.input[:]
    draft.graph.input.extend(kept)
    draft.graph.initializer.append(numpy_helper.from_array(np.asarray(draft.feeds[0][name]), name))
    draft.feeds = [{k: x for k, x in feed.items() if k != name} for feed in draft.feeds]
    if beside:  # a model without any input is folded, not run
        draft.graph.input.append(helper.make_tensor_value_info("beside", TensorProto.FLOAT, [2]))
        draft.graph.node.append(helper.make_node("Identity", ["beside"], ["beside_too"]))
        draft.graph.output.append(onnx.ValueInfoProto(name="beside_too"))
        draft.feeds = [{**feed, "beside": np.ones(2, np.float32)} for feed in draft.feeds]
    return _finished(draft, case)


def as_input(case: Case, name: str) -> Case | None:
    """A constant that has become an input, fed the same."""
    draft = _draft(case)
    x = _removed_constant(draft, name)
    draft.graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
    draft.feeds = [{**feed, name: x} for feed in draft.feeds]
    return _finished(draft, case)


def as_other_constant(case: Case, name: str) -> Case | None:
    """An initializer that has become a Constant node, or the other way round."""
    draft = _draft(case)
    was_initializer = any(t.name == name for t in draft.graph.initializer)
    x = _removed_constant(draft, name)
    tensor = numpy_helper.from_array(x, name)
    if was_initializer:
        draft.graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))
    else:
        draft.graph.initializer.append(tensor)
    return _finished(draft, case)


def _removed_constant(draft: Draft, name: str) -> np.ndarray:
    for tensor in draft.graph.initializer:
        if tensor.name == name:
            draft.graph.initializer.remove(tensor)
            return numpy_helper.to_array(tensor)
    node = next(node for node in draft.graph.node if name in node.output)
    draft.graph.node.remove(node)
    x = constant(node)
    return np.zeros(0, np.float32) if x is None else x


def in_dtype(case: Case, names: frozenset[str], dtype: np.dtype[Any]) -> Case | None:
    """The tensors `names` in another dtype."""
    draft = _draft(case)
    number = helper.np_dtype_to_tensor_dtype(dtype)
    for value in draft.graph.input:
        if value.name in names:
            value.type.tensor_type.elem_type = number
    for tensor in draft.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(numpy_helper.from_array(_cast(numpy_helper.to_array(tensor), dtype), tensor.name))
    for node in draft.graph.node:
        if node.op_type == "Constant" and node.output[0] in names and (x := constant(node)) is not None:
            node.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(_cast(x, dtype))))
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and node.output[0] in names:
                attribute.i = number
    draft.feeds = [{k: _cast(x, dtype) if k in names else x for k, x in feed.items()} for feed in draft.feeds]
    return _finished(draft, case)


def _cast(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if dtype.kind == "u":
            x = np.abs(x) if x.dtype.kind != "b" else x
        return np.asarray(np.nan_to_num(x) if dtype.kind in "iu" and x.dtype.kind == "f" else x).astype(dtype)


def read_too(case: Case, name: str) -> Case | None:
    """One more reader of a tensor, whose result is an output."""
    draft = _draft(case)
    result = draft.new("read")
    draft.graph.node.append(helper.make_node("Neg", [name], [result]))
    draft.graph.output.append(onnx.ValueInfoProto(name=result))
    return _finished(draft, case)


def behind(case: Case, name: str) -> Case | None:
    """A Neg between a tensor and the graph output that it was."""
    draft = _draft(case)
    result = draft.new("behind")
    draft.graph.node.append(helper.make_node("Neg", [name], [result]))
    next(v for v in draft.graph.output if v.name == name).name = result
    return _finished(draft, case)


def exposed(case: Case, name: str) -> Case | None:
    """A tensor that is a graph output too."""
    draft = _draft(case)
    draft.graph.output.append(onnx.ValueInfoProto(name=name))
    return _finished(draft, case)


def before(case: Case, name: str, op: str) -> Case | None:
    """An operator between an input and all that read it."""
    draft = _draft(case)
    result = draft.new("before")
    draft.behind(name, [helper.make_node(op, [name], [result])], result)
    return _finished(draft, case)


def preceded(case: Case, name: str, layer: Layer) -> Case | None:
    """A layer between an input and all that read it."""
    draft = _draft(case)
    made = layer(draft, name)
    draft.behind(name, made, made[-1].output[0])
    return _finished(draft, case)


def followed(case: Case, name: str, layer: Layer) -> Case | None:
    """A layer behind a graph output, whose result is the output then."""
    draft = _draft(case)
    made = layer(draft, name)
    draft.graph.node.extend(made)
    next(v for v in draft.graph.output if v.name == name).name = made[-1].output[0]
    return _finished(draft, case)


def given_instead(
    case: Case,
    outputs: Sequence[str],
    slot: int,
    host: Host,
    *,
    fixed: bool = False,
    change: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> Case | None:
    """What one operand was made of, or what `change` makes of it, is given instead; its maker stays for whoever else
    reads it."""
    draft = _draft(case)
    node = _node(draft, outputs)
    x, name = host.array(node.input[slot]), draft.new("given")
    if x is None or len(case.feeds) > 1 or case.calibration:
        return None
    node.input[slot] = name
    x = change(x)
    if fixed:
        draft.graph.initializer.append(numpy_helper.from_array(x, name))
    else:
        number = helper.np_dtype_to_tensor_dtype(x.dtype)
        draft.graph.input.append(helper.make_tensor_value_info(name, number, x.shape))
        draft.feeds = [{**feed, name: x} for feed in draft.feeds]
    return _finished(draft, case)


def sized(case: Case, group: Iterable[Size], first: Size, n: int, tensors: Mapping[str, np.ndarray]) -> Case | None:
    """`case` with the tied sizes scaled so that the first of them is `n`; what grows is repeated."""
    draft = _draft(case)
    makers = {first_output(node): node for node in draft.graph.node if any(node.output)}
    now = np.shape(tensors[first.owner])[first.at]
    dims: dict[str, dict[int, int]] = {}
    for size in group:
        if size.what == "dim":
            have = np.shape(tensors[size.owner])[size.at]
            dims.setdefault(size.owner, {})[size.at] = have * n // now if now else n
    for tensor in draft.graph.initializer:
        x = numpy_helper.to_array(tensor)
        entries = [size for size in group if size.what == "entry" and size.owner == tensor.name]
        if tensor.name in dims or entries:
            x = np.array(_grown(x, dims.get(tensor.name, {})))
            for size in entries:
                x[size.at] = x[size.at] * n // max(now, 1)
            tensor.CopyFrom(numpy_helper.from_array(x, tensor.name))
    for size in group:
        if size.what not in ("dim", "entry") and size.what != "direction":
            attribute = next(a for a in makers[size.owner].attribute if a.name == size.what)
            if attribute.type == AttributeProto.INTS:
                attribute.ints[size.at] = attribute.ints[size.at] * n // max(now, 1)
            else:
                attribute.i = attribute.i * n // max(now, 1)
    draft.feeds = [{k: _grown(x, dims.get(k, {})) for k, x in feed.items()} for feed in draft.feeds]
    for value in draft.graph.input:
        for axis, wanted in dims.get(value.name, {}).items():
            dim = value.type.tensor_type.shape.dim[axis]
            if dim.HasField("dim_value"):
                dim.dim_value = wanted
    return _finished(draft, case)


def _grown(x: np.ndarray, sizes: Mapping[int, int]) -> np.ndarray:
    for axis, size in sizes.items():
        have = x.shape[axis]
        if have:
            x = np.take(x, np.arange(size) % have, axis=axis)
        else:
            x = np.ones((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    return np.ascontiguousarray(x).reshape(x.shape)


def symbolic(case: Case, axes: Iterable[int]) -> Case | None:
    """Inputs with symbolic dims at these axes; equal sizes have equal names."""
    draft = _draft(case)
    for value in draft.graph.input:
        dims, x = value.type.tensor_type.shape.dim, draft.feeds[0].get(value.name)
        for axis in axes:
            if x is not None and -len(dims) <= axis < len(dims) and x.shape[axis] > 0:
                dims[axis].dim_param = f"n{x.shape[axis]}"  # equal names mean equal sizes
    return _finished(draft, case)


def static(case: Case) -> Case | None:
    """Inputs with the sizes that the first feed has."""
    draft = _draft(case)
    draft.feeds = draft.feeds[:1]
    for value in draft.graph.input:
        for dim, n in zip(value.type.tensor_type.shape.dim, np.shape(draft.feeds[0].get(value.name, ()))):
            dim.dim_value = n
    return _finished(draft, replace(case, feeds=case.feeds[:1], calibration=()))


def with_axis(case: Case) -> Case | None:
    """One more axis of size 1, the first, of all tensors of the highest rank."""
    draft = _draft(case)
    rank = max((x.ndim for x in (*draft.feeds[0].values(), *draft.values.values())), default=-1)
    for tensor in draft.graph.initializer:
        if len(tensor.dims) == rank:
            tensor.dims.insert(0, 1)
    for value in draft.graph.input:
        if value.name in draft.feeds[0] and draft.feeds[0][value.name].ndim == rank:
            dims = [_dim(1), *value.type.tensor_type.shape.dim]
            del value.type.tensor_type.shape.dim[:]
            value.type.tensor_type.shape.dim.extend(dims)
    draft.feeds = [{k: x[np.newaxis] if x.ndim == rank else x for k, x in feed.items()} for feed in draft.feeds]
    return _finished(draft, case)


def without_axis(case: Case) -> Case | None:
    """All tensors of the highest rank without their first axis, where its size is 1."""
    draft = _draft(case)
    tensors = [*draft.feeds[0].values(), *draft.values.values()]
    rank = max((x.ndim for x in tensors), default=0)
    if not rank or any(x.shape[0] != 1 for feed in draft.feeds for x in feed.values() if x.ndim == rank):
        return None
    for tensor in draft.graph.initializer:
        if len(tensor.dims) == rank:
            if tensor.dims[0] != 1:
                return None
            del tensor.dims[0]
    for value in draft.graph.input:
        if value.name in draft.feeds[0] and draft.feeds[0][value.name].ndim == rank:
            del value.type.tensor_type.shape.dim[0]
    draft.feeds = [{k: x[0] if x.ndim == rank else x for k, x in feed.items()} for feed in draft.feeds]
    return _finished(draft, case)


def _dim(n: int) -> onnx.TensorShapeProto.Dimension:
    return onnx.TensorShapeProto.Dimension(dim_value=n)


def refilled(case: Case, name: str, refill: Refill) -> Case | None:
    """Other numbers in the operand `name`, or in all of floats where it is ""."""
    draft, rng = _draft(case), np.random.default_rng(7)

    def new(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(refill(x, rng), x.dtype).reshape(x.shape)

    for tensor in draft.graph.initializer:
        x = numpy_helper.to_array(tensor)
        if tensor.name == name or (not name and x.dtype.kind == "f"):
            tensor.CopyFrom(numpy_helper.from_array(new(x), tensor.name))
    for node in draft.graph.node:
        if node.op_type == "Constant" and node.output[0] == name and (held := constant(node)) is not None:
            node.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(new(held))))
    draft.feeds = [
        {k: new(x) if k == name or (not name and x.dtype.kind == "f") else x for k, x in feed.items()}
        for feed in draft.feeds
    ]
    return _finished(draft, case)


def _draft(case: Case) -> Draft:
    return Draft(replace(case, feeds=(*case.feeds, *case.calibration)))


def _finished(draft: Draft, before: Case, *, doubtful: bool = False) -> Case | None:
    """The draft as a case, its types inferred anew; None where onnx does not accept it."""
    del draft.graph.value_info[:]
    for output in draft.graph.output:
        output.ClearField("type")
    try:
        model = inferred(draft.model, doubtful=doubtful, check_type=True, data_prop=True)
    except InferenceError:
        return None
    if any(output.type.WhichOneof("value") is None for output in model.graph.output):
        return None
    del model.graph.value_info[:]
    count = len(before.feeds)
    changed = Case(b"", tuple(draft.feeds[:count]), tuple(draft.feeds[count:]), before.origin)
    try:
        return rebuilt(changed, model)
    except (KeyError, ValueError):
        return None
