"""Edits: a case with one thing about it changed, its types inferred anew; None where onnx does not accept it.

Nodes are named by their outputs, which no edit changes. An edit is written as what it does to a draft (`edit`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
import onnx
from driftnet.causes.host import Host
from driftnet.generators.mutation.draft import Draft
from driftnet.model.case import Case
from driftnet.model.constants import constant
from driftnet.model.inference import InferenceError
from driftnet.model.inspect import refill
from driftnet.model.schemas import schema_of
from driftnet.model.submodel import needless, rebuilt
from driftnet.reduce.dims import resizable
from driftnet.reduce.size_constraints import Size, first_output
from onnx import AttributeProto, TensorProto, helper, numpy_helper

P = ParamSpec("P")
Layer = Callable[[Draft, str], Sequence[onnx.NodeProto]]
"""The nodes of a layer that reads a tensor; the last one makes its result."""
Refill = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class ImpossibleError(Exception):
    """The draft cannot be changed so."""


def edit(
    change: Callable[Concatenate[Draft, P], None], *, doubtful: bool = False
) -> Callable[Concatenate[Case, P], Case | None]:
    """`change`, which may raise ImpossibleError, as a function of a case; doubtful as for `inferred`."""

    @wraps(change)
    def edited(case: Case, /, *args: P.args, **named: P.kwargs) -> Case | None:
        draft = Draft(replace(case, feeds=case.runs))
        try:
            change(draft, *args, **named)
        except ImpossibleError:
            return None
        return _finished(draft, case, doubtful)

    return edited


def _finished(draft: Draft, before: Case, doubtful: bool) -> Case | None:
    try:
        model = draft.inferred(doubtful=doubtful)
    except InferenceError:
        return None
    if any(output.type.WhichOneof("value") is None for output in model.graph.output):
        return None
    del model.graph.value_info[:]
    count = len(before.feeds)
    changed = Case(b"", tuple(draft.feeds[:count]), tuple(draft.feeds[count:]), before.origin)
    try:
        return rebuilt(changed, model, needless(before.proto.graph))
    except (KeyError, ValueError):
        return None


@edit
def at_opset(draft: Draft, version: int) -> None:
    """The same nodes under another operator set."""
    for imported in draft.model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            imported.version = version
    draft.model.ir_version = max(draft.model.ir_version, helper.OP_SET_ID_VERSION_MAP["ai.onnx", version])


def _node(draft: Draft, outputs: Sequence[str]) -> onnx.NodeProto:
    nodes: Iterable[onnx.NodeProto] = draft.graph.node
    return next(node for node in nodes if tuple(node.output) == tuple(outputs))


@edit
def with_operator(draft: Draft, outputs: Sequence[str], op: str) -> None:
    """Another operator in the place of the node that makes `outputs`; attributes it does not have are dropped."""
    node = _node(draft, outputs)
    schema = schema_of(op, draft.opset)
    node.op_type = op
    refill(node.attribute, [a for a in node.attribute if schema and a.name in schema.attributes])
    if schema and len(node.input) > schema.max_input:
        del node.input[schema.max_input :]


@edit
def swapped(draft: Draft, outputs: Sequence[str]) -> None:
    """The first two operands of a node exchanged."""
    node = _node(draft, outputs)
    node.input[0], node.input[1] = node.input[1], node.input[0]


@edit
def with_attribute(draft: Draft, outputs: Sequence[str], name: str, made: AttributeProto | None) -> None:
    """One attribute given another value, or left out where `made` is None."""
    node = _node(draft, outputs)
    kept = [a for a in node.attribute if a.name != name]
    refill(node.attribute, [*kept, made] if made is not None else kept)


@edit
def without_operand(draft: Draft, outputs: Sequence[str], slot: int) -> None:
    """One optional operand left out."""
    node = _node(draft, outputs)
    if slot == len(node.input) - 1:
        del node.input[slot:]
    else:
        node.input[slot] = ""


@partial(edit, doubtful=True)
def with_result(draft: Draft, outputs: Sequence[str]) -> None:
    """One more result, which is a graph output."""
    name = draft.new("result")
    _node(draft, outputs).output.append(name)
    draft.graph.output.append(onnx.ValueInfoProto(name=name))


@edit
def with_fewer_results(draft: Draft, outputs: Sequence[str], count: int) -> None:
    """The first `count` results alone; None where another one is read."""
    dropped = set(outputs[count:])
    if any(dropped.intersection(node.input) for node in draft.graph.node):
        raise ImpossibleError
    del _node(draft, outputs).output[count:]
    kept = [v for v in draft.graph.output if v.name not in dropped]
    refill(draft.graph.output, kept or [onnx.ValueInfoProto(name=outputs[0])])


@edit
def as_constant(draft: Draft, name: str, *, beside: bool = False) -> None:
    """An input that has become an initializer; `beside`: with another one, for a model without inputs is folded."""
    refill(draft.graph.input, [v for v in draft.graph.input if v.name != name])
    draft.graph.initializer.append(numpy_helper.from_array(np.asarray(draft.feeds[0][name]), name))
    draft.feeds = [{k: x for k, x in feed.items() if k != name} for feed in draft.feeds]
    if beside:  # a model without any input is folded, not run
        draft.graph.input.append(helper.make_tensor_value_info("beside", TensorProto.FLOAT, [2]))
        draft.graph.node.append(helper.make_node("Identity", ["beside"], ["beside_too"]))
        draft.graph.output.append(onnx.ValueInfoProto(name="beside_too"))
        draft.feeds = [{**feed, "beside": np.ones(2, np.float32)} for feed in draft.feeds]


@edit
def as_input(draft: Draft, name: str) -> None:
    """A constant that has become an input, fed the same."""
    x = _removed_constant(draft, name)
    draft.graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
    draft.feeds = [{**feed, name: x} for feed in draft.feeds]


@edit
def as_other_constant(draft: Draft, name: str) -> None:
    """An initializer that has become a Constant node, or the other way round."""
    was_initializer = any(t.name == name for t in draft.graph.initializer)
    x = _removed_constant(draft, name)
    tensor = numpy_helper.from_array(x, name)
    if was_initializer:
        draft.graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))
    else:
        draft.graph.initializer.append(tensor)


def _removed_constant(draft: Draft, name: str) -> np.ndarray:
    for tensor in draft.graph.initializer:
        if tensor.name == name:
            draft.graph.initializer.remove(tensor)
            return numpy_helper.to_array(tensor)
    node = next(node for node in draft.graph.node if name in node.output)
    draft.graph.node.remove(node)
    x = constant(node)
    return np.zeros(0, np.float32) if x is None else x


@edit
def in_dtype(draft: Draft, names: frozenset[str], dtype: np.dtype[Any]) -> None:
    """The tensors `names` in another dtype."""
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


def _cast(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if dtype.kind == "u":
            x = np.abs(x) if x.dtype.kind != "b" else x
        return np.asarray(np.nan_to_num(x) if dtype.kind in "iu" and x.dtype.kind == "f" else x).astype(dtype)


@edit
def read_too(draft: Draft, name: str) -> None:
    """One more reader of a tensor, whose result is an output."""
    result = draft.new("read")
    draft.graph.node.append(helper.make_node("Neg", [name], [result]))
    draft.graph.output.append(onnx.ValueInfoProto(name=result))


@edit
def behind(draft: Draft, name: str) -> None:
    """A Neg between a tensor and the graph output that it was."""
    result = draft.new("behind")
    draft.graph.node.append(helper.make_node("Neg", [name], [result]))
    next(v for v in draft.graph.output if v.name == name).name = result


@edit
def exposed(draft: Draft, name: str) -> None:
    """A tensor that is a graph output too."""
    draft.graph.output.append(onnx.ValueInfoProto(name=name))


@edit
def before(draft: Draft, name: str, op: str) -> None:
    """An operator between an input and all that read it."""
    result = draft.new("before")
    draft.behind(name, [helper.make_node(op, [name], [result])], result)


@edit
def preceded(draft: Draft, name: str, layer: Layer) -> None:
    """A layer between an input and all that read it."""
    made = layer(draft, name)
    draft.behind(name, made, made[-1].output[0])


@edit
def followed(draft: Draft, name: str, layer: Layer) -> None:
    """A layer behind a graph output, whose result is the output then."""
    made = layer(draft, name)
    draft.graph.node.extend(made)
    next(v for v in draft.graph.output if v.name == name).name = made[-1].output[0]


@edit
def given_instead(
    draft: Draft,
    outputs: Sequence[str],
    slot: int,
    host: Host,
    *,
    fixed: bool = False,
    change: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> None:
    """What one operand was made of, or what `change` makes of it, is given instead; its maker stays for whoever else
    reads it."""
    node = _node(draft, outputs)
    x, name = host.array(node.input[slot]), draft.new("given")
    if x is None or len(draft.feeds) > 1:
        raise ImpossibleError
    node.input[slot] = name
    x = change(x)
    if fixed:
        draft.graph.initializer.append(numpy_helper.from_array(x, name))
    else:
        number = helper.np_dtype_to_tensor_dtype(x.dtype)
        draft.graph.input.append(helper.make_tensor_value_info(name, number, x.shape))
        draft.feeds = [{**feed, name: x} for feed in draft.feeds]


@edit
def sized(draft: Draft, group: Iterable[Size], first: Size, n: int, tensors: Mapping[str, np.ndarray]) -> None:
    """`case` with the tied sizes scaled so that the first of them is `n`; what grows is repeated."""
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


def resizable_groups(case: Case, host: Host) -> list[tuple[Size, ...]]:
    """The sizes of `case` that can only change together, as `sized` takes them; none where what is known of its tensors
    does not tell."""
    try:
        return resizable(case, {**host.graph.constants, **host.tensors}, by_group=False)
    except (KeyError, IndexError, ValueError, StopIteration):  # ties are made of what was recorded
        return []


def _grown(x: np.ndarray, sizes: Mapping[int, int]) -> np.ndarray:
    for axis, size in sizes.items():
        have = x.shape[axis]
        if have:
            x = np.take(x, np.arange(size) % have, axis=axis)
        else:
            x = np.ones((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    return np.ascontiguousarray(x).reshape(x.shape)


@edit
def symbolic(draft: Draft, axes: Iterable[int]) -> None:
    """Inputs with symbolic dims at these axes; equal sizes have equal names."""
    for value in draft.graph.input:
        dims, x = value.type.tensor_type.shape.dim, draft.feeds[0].get(value.name)
        for axis in axes:
            if x is not None and -len(dims) <= axis < len(dims) and x.shape[axis] > 0:
                dims[axis].dim_param = f"n{x.shape[axis]}"  # equal names mean equal sizes


@edit
def static(draft: Draft) -> None:
    """Inputs with the sizes that the first feed has."""
    draft.feeds = draft.feeds[:1]
    for value in draft.graph.input:
        for dim, n in zip(value.type.tensor_type.shape.dim, np.shape(draft.feeds[0].get(value.name, ()))):
            dim.dim_value = n


@edit
def with_axis(draft: Draft) -> None:
    """One more axis of size 1, the first, of all tensors of the highest rank."""
    rank = max((x.ndim for x in (*draft.feeds[0].values(), *draft.values.values())), default=-1)
    for tensor in draft.graph.initializer:
        if len(tensor.dims) == rank:
            tensor.dims.insert(0, 1)
    for value in draft.graph.input:
        if value.name in draft.feeds[0] and draft.feeds[0][value.name].ndim == rank:
            dims = value.type.tensor_type.shape.dim
            refill(dims, [onnx.TensorShapeProto.Dimension(dim_value=1), *dims])
    draft.feeds = [{k: x[np.newaxis] if x.ndim == rank else x for k, x in feed.items()} for feed in draft.feeds]


@edit
def without_axis(draft: Draft) -> None:
    """All tensors of the highest rank without their first axis, where its size is 1."""
    tensors = [*draft.feeds[0].values(), *draft.values.values()]
    rank = max((x.ndim for x in tensors), default=0)
    if not rank or any(x.shape[0] != 1 for feed in draft.feeds for x in feed.values() if x.ndim == rank):
        raise ImpossibleError
    for tensor in draft.graph.initializer:
        if len(tensor.dims) == rank:
            if tensor.dims[0] != 1:
                raise ImpossibleError
            del tensor.dims[0]
    for value in draft.graph.input:
        if value.name in draft.feeds[0] and draft.feeds[0][value.name].ndim == rank:
            del value.type.tensor_type.shape.dim[0]
    draft.feeds = [
        {k: x.reshape(x.shape[1:]) if x.ndim == rank else x for k, x in feed.items()} for feed in draft.feeds
    ]


@edit
def refilled(draft: Draft, name: str, refill: Refill) -> None:
    """Other numbers in the operand `name`, or in all of floats where it is ""."""
    rng = np.random.default_rng(7)

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
