"""What a mutation may change: each takes a draft and dice, and says whether there was a place for it."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from driftnet.generators.mutation.draft import FLOATS, Dice, Draft
from driftnet.generators.mutation.insertions import INSERTIONS, SIBLINGS
from driftnet.model.inspect import Feed, refill
from onnx import TensorProto, helper, numpy_helper

WORDS = (
    ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("forward", "reverse", "bidirectional"),
    ("constant", "reflect", "edge", "wrap"),
    ("nearest", "linear", "cubic"),
    ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    ("none", "add", "mul", "max", "min"),
    ("DCR", "CRD"),
)
"""Values that string attributes have, those of one attribute together."""

Change = Callable[[Draft, Dice], bool]
"""Changes the draft; False when there is no place for it."""


def change_attribute(draft: Draft, dice: Dice) -> bool:
    """Another value for one attribute, or none at all."""
    places = [(node, a) for node in draft.graph.node for a in node.attribute if not a.HasField("t")]
    if not places:
        return False
    node, attribute = dice.pick(places)
    value = helper.get_attribute_value(attribute)
    kind = attribute.type
    if kind == onnx.AttributeProto.INT:
        value = dice.pick([x for x in (0, 1, 2, value + 1, value - 1, -value) if x != value])
    elif kind == onnx.AttributeProto.FLOAT:
        value = dice.pick([0.0, 1.0, -value, 2 * value, value / 2])
    elif kind == onnx.AttributeProto.INTS and len(value):
        value = list(value)
        place = dice.below(len(value))
        value[place] = dice.pick([0, 1, 2, value[place] + 1, value[place] - 1])
    elif kind == onnx.AttributeProto.STRING:
        known = [words for words in WORDS if value.decode(errors="replace") in words]
        value = dice.pick(known[0]) if known else value
    if dice.below(4) == 0:
        node.attribute.remove(attribute)
    else:
        attribute.CopyFrom(helper.make_attribute(attribute.name, value, attr_type=kind))
    return True


def change_dim(draft: Draft, dice: Dice) -> bool:
    """Another size for one dim of a graph input, and perhaps a second feed that makes the dim symbolic."""
    inputs = [v for v in draft.graph.input if v.name in draft.feeds[0] and draft.feeds[0][v.name].ndim]
    if not inputs:
        return False
    value = dice.pick(inputs)
    axis = dice.below(len(value.type.tensor_type.shape.dim))
    dim = value.type.tensor_type.shape.dim[axis]
    size = draft.feeds[0][value.name].shape[axis]
    wanted = dice.pick([n for n in (1, 2, size - 1, size + 1, 2 * size) if n > 0 and n != size])
    symbol = dim.dim_param or (draft.new("dim") if dice.below(2) else "")
    places = [(value.name, axis)]
    if dim.dim_param:
        places = [
            (v.name, k)
            for v in draft.graph.input
            for k, d in enumerate(v.type.tensor_type.shape.dim)
            if d.dim_param == dim.dim_param
        ]
    resized = {name: _resized(x, [(k, wanted) for n, k in places if n == name]) for name, x in draft.feeds[0].items()}
    draft.feeds = [draft.feeds[0], resized] if symbol else [_resized_alike(f, places, wanted) for f in draft.feeds]
    if symbol:
        dim.dim_param = symbol
    else:
        dim.dim_value = wanted
    return True


def change_dtype(draft: Draft, dice: Dice) -> bool:
    """One node computes in another float dtype, between Casts."""
    nodes = [n for n in draft.graph.node if n.output and all(draft.element(x) in FLOATS for x in n.output if x)]
    if not nodes:
        return False
    node = dice.pick(nodes)
    own = draft.element(next(name for name in node.output if name))
    other = dice.pick([t for t in FLOATS if t != own])
    place = list(draft.graph.node).index(node)
    before, after = [], []
    for k, name in enumerate(node.input):
        array = draft.values.get(name)
        if draft.element(name) == own or (array is not None and helper.np_dtype_to_tensor_dtype(array.dtype) == own):
            before.append(helper.make_node("Cast", [name], [draft.new(f"cast{k}_{place}")], to=other))
            node.input[k] = before[-1].output[0]
    for k, name in enumerate(node.output):
        if name:
            node.output[k] = draft.new(f"narrow{k}_{place}")
            after.append(helper.make_node("Cast", [node.output[k]], [name], to=own))
    for k, extra in enumerate(before):
        draft.graph.node.insert(place + k, extra)
    for k, extra in enumerate(after):
        draft.graph.node.insert(place + len(before) + 1 + k, extra)
    return True


def change_source(draft: Draft, dice: Dice) -> bool:
    """An initializer becomes a graph input that feeds give, or the result of a Constant node."""
    fed = {v.name for v in draft.graph.input}
    tensors = [t for t in draft.graph.initializer if t.name not in fed and t.data_type in (*FLOATS, TensorProto.INT64)]
    if not tensors:
        return False
    tensor = dice.pick(tensors)
    array = draft.values[tensor.name]
    if dice.below(2):
        draft.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
        draft.feeds = [{**feed, tensor.name: array} for feed in draft.feeds]
    else:
        node = helper.make_node("Constant", [], [tensor.name], value=numpy_helper.from_array(array))
        draft.graph.node.insert(0, node)
    draft.graph.initializer.remove(tensor)
    return True


def replace_node(draft: Draft, dice: Dice) -> bool:
    """One node becomes one of its operator's siblings."""
    known = {op for family in SIBLINGS for op in family if onnx.defs.has(op, draft.opset)}
    places = [
        (node, op)
        for node in draft.graph.node
        for family in SIBLINGS
        if node.op_type in family and not node.domain
        for op in family
        if op in known and op != node.op_type
    ]
    if not places:
        return False
    node, operator = dice.pick(places)
    node.op_type = operator
    attributes = onnx.defs.get_schema(node.op_type, draft.opset).attributes
    refill(node.attribute, [a for a in node.attribute if a.name in attributes])
    return True


def remove_node(draft: Draft, dice: Dice) -> bool:
    """What read the result of one node reads an operand of it instead."""
    places = [
        (node, x) for node in draft.graph.node for x in node.input if draft.element(x) == draft.element(node.output[0])
    ]
    if not places:
        return False
    node, operand = dice.pick(places)
    outputs = {v.name for v in draft.graph.output}
    if outputs & set(node.output):
        node.CopyFrom(helper.make_node("Identity", [operand], [node.output[0]]))
        return True
    for reader in draft.graph.node:
        reader.input[:] = [operand if x == node.output[0] else x for x in reader.input]
    draft.graph.node.remove(node)
    return True


def insert_node(draft: Draft, dice: Dice) -> bool:
    """Something that keeps type and shape comes between a tensor and all that read it."""
    tensors = draft.floats()
    if not tensors or draft.opset < 11:
        return False
    name = dice.pick(tensors)
    dims, result = draft.dims(name) or [], draft.new("inserted")
    fitting = [build for build, least in INSERTIONS if len(dims) >= least]
    draft.behind(name, list(dice.pick(fitting)(draft, dice, name, result)), result)
    return True


def expose(draft: Draft, dice: Dice) -> bool:
    """An intermediate becomes a graph output too."""
    outputs = {v.name for v in draft.graph.output}
    names = [name for node in draft.graph.node for name in node.output if name in draft.types and name not in outputs]
    if not names:
        return False
    draft.graph.output.append(onnx.ValueInfoProto(name=dice.pick(names)))
    return True


def splice(draft: Draft, dice: Dice) -> bool:
    """Another model, one float input of it computed from a tensor of this one: flattened, filled up, cut, reshaped."""
    alike = [case for case in draft.others if _opsets(case.proto) == _opsets(draft.model)]
    if not alike or draft.opset < 11:
        return False
    second = Draft(dice.pick(alike))
    sources = [name for name in draft.floats() if draft.element(name) == TensorProto.FLOAT]
    fixed = [n for n, x in second.feeds[0].items() if x.dtype == np.float32 and -1 not in (second.dims(n) or [-1])]
    if not (sources and fixed):
        return False
    prefix = draft.new("spliced")
    renamed = onnx.compose.add_prefix(second.model, f"{prefix}_").graph
    source, sink = dice.pick(sources), dice.pick(fixed)
    shape = second.feeds[0][sink].shape
    draft.graph.node.extend(_reshaped(draft, source, shape, f"{prefix}_{sink}"))
    draft.graph.node.extend(renamed.node)
    draft.graph.initializer.extend(renamed.initializer)
    draft.graph.output.extend(renamed.output)
    draft.graph.input.extend(v for v in renamed.input if v.name != f"{prefix}_{sink}")
    given = [{f"{prefix}_{n}": x for n, x in feed.items() if n != sink} for feed in second.feeds]
    draft.feeds = [{**feed, **given[k % len(given)]} for k, feed in enumerate(draft.feeds)]
    return True


def _reshaped(draft: Draft, source: str, shape: Sequence[int], result: str) -> Iterator[onnx.NodeProto]:
    """Nodes that make a tensor of `shape` out of any, even an empty one."""
    count = math.prod(shape)
    zeros = draft.constant(np.zeros(count, np.float32))
    yield helper.make_node("Reshape", [source, draft.constant(np.array([-1]))], [f"{result}_flat"])
    yield helper.make_node("Concat", [f"{result}_flat", zeros], [f"{result}_long"], axis=0)
    ends = [draft.constant(np.array([n])) for n in (0, count)]
    yield helper.make_node("Slice", [f"{result}_long", *ends], [f"{result}_cut"])
    yield helper.make_node("Reshape", [f"{result}_cut", draft.constant(np.array(shape, np.int64))], [result])


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {o.domain: o.version for o in model.opset_import}


def _resized_alike(feed: Feed, places: Sequence[tuple[str, int]], size: int) -> dict[str, np.ndarray]:
    return {name: _resized(x, [(k, size) for n, k in places if n == name]) for name, x in feed.items()}


def _resized(x: np.ndarray, sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """`x` repeated or cut along axes, so that its values stay in the range that their reader expects."""
    for axis, size in sizes:
        x = np.take(x, np.arange(size) % max(x.shape[axis], 1), axis=axis) if x.shape[axis] else x
    return x


CHANGES: tuple[Change, ...] = (
    change_attribute,
    change_attribute,
    change_dim,
    change_dtype,
    change_source,
    replace_node,
    remove_node,
    insert_node,
    insert_node,
    expose,
    splice,
)
