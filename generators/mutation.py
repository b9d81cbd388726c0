"""Mutation: neighbours of a real model or a saved case.

A neighbour differs in one to four places: an attribute, a dim, a dtype, where an operand comes from, a node inserted,
replaced or removed, another model spliced on, an intermediate that is an output too. Of a model from outside nothing is
known by construction, so a change is taken back unless onnx still infers a type for every output and accepts the whole.
What only a run can tell (the sizes that a Reshape computes) is left to who runs it: ask for the next attempt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from generators.case import Case, Feed

MOSTCHANGES = 4
TRIES = 12
"""Changes that are tried for one that holds."""

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
SIBLINGS = (
    ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Abs"),
    ("Neg", "Ceil", "Floor", "Round", "Sign", "Identity", "Sin", "Cos", "Atan", "Erf"),
    ("Add", "Sub", "Mul", "Div", "PRelu"),
    ("Max", "Min", "Sum", "Mean"),
    ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
    ("MaxPool", "AveragePool", "LpPool"),
    ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"),
    ("Softmax", "LogSoftmax", "Hardmax"),
    ("ArgMax", "ArgMin"),
    ("Less", "Greater", "Equal"),
    ("And", "Or", "Xor"),
)
"""Operators that take the place of each other; attributes that the new one has not are dropped."""

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


T = TypeVar("T")


class Dice:
    """Choices that are the same for the same seed on every Python."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def below(self, n: int) -> int:
        """One of 0 ... n - 1."""
        return int(self._random.random() * n)

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return options[self.below(len(options))]


class Draft:
    """A model and its feeds while they are being changed, with the tensor types that onnx inferred at the start."""

    def __init__(self, case: Case, others: Sequence[Case] = ()) -> None:
        self.others = others
        self.model = onnx.ModelProto()
        self.model.CopyFrom(case.proto)
        self.graph = self.model.graph
        self.feeds: list[dict[str, np.ndarray]] = [dict(feed) for feed in case.feeds]
        self.opset = next((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.values = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        infos = (*self.graph.input, *self.graph.value_info, *self.graph.output)
        self.types = {v.name: v.type.tensor_type for v in infos if v.type.HasField("tensor_type")}

    def dims(self, name: str) -> list[int] | None:
        """The shape of a tensor, -1 where symbolic; None when its rank is not known."""
        if name in self.values:
            return list(self.values[name].shape)
        known = name in self.types and self.types[name].HasField("shape")
        return [d.dim_value if d.HasField("dim_value") else -1 for d in self.types[name].shape.dim] if known else None

    def floats(self) -> list[str]:
        """Tensors of known rank and a float dtype that nodes compute or feeds give."""
        made = [name for node in self.graph.node for name in node.output]
        given = [v.name for v in self.graph.input if v.name not in self.values]
        return [n for n in (*given, *made) if self.element(n) in FLOATS and self.dims(n) is not None]

    def element(self, name: str) -> int:
        """The element type of a tensor, 0 when it is not known."""
        return int(self.types[name].elem_type) if name in self.types else 0

    def new(self, stem: str) -> str:
        """A name that no tensor has."""
        taken = {name for node in self.graph.node for name in (*node.input, *node.output)} | set(self.values)
        return next(name for k in range(len(taken) + 1) if (name := f"{stem}_{k}") not in taken)

    def constant(self, array: np.ndarray) -> str:
        """The name of a new initializer."""
        name = self.new("constant")
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        self.values[name] = array
        return name

    def behind(self, name: str, nodes: Sequence[onnx.NodeProto], result: str) -> None:
        """Put `nodes`, which compute `result` from tensor `name`, between it and all that read it."""
        for node in self.graph.node:
            node.input[:] = [result if x == name else x for x in node.input]
        producers = [k for k, node in enumerate(self.graph.node) if name in node.output]
        for k, node in enumerate(nodes):
            self.graph.node.insert(producers[0] + 1 + k if producers else k, node)


Change = Callable[[Draft, Dice], bool]
"""Changes the draft; False when there is no place for it."""


def neighbour(case: Case, seed: int, index: int, *, others: Sequence[Case] = (), attempt: int = 0) -> Case:
    """Neighbour number `index` of `case` in the stream `seed`; `case` itself when no change holds.

    others   cases that may be spliced onto this one;   attempt  another neighbour of the same number
    """
    dice = Dice(f"{seed} {index} {attempt}")
    changed, names = case, []
    for _ in range(1 + dice.below(MOSTCHANGES)):
        for _ in range(TRIES):
            change = dice.pick(CHANGES)
            draft = Draft(changed, others)
            if change(draft, dice) and (held := _checked(draft, changed)) is not None:
                changed = held
                names.append(change.__name__)
                break
    origin = {**case.origin, "mutation": {"seed": seed, "index": index, "attempt": attempt, "changes": names}}
    return Case(changed.model, changed.feeds, changed.calibration, origin)


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
    kept = [a for a in node.attribute if a.name in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
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
    fitting = [build for build, least in _INSERTIONS if len(dims) >= least]
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

Insertion = Callable[[Draft, Dice, str, str], Iterator[onnx.NodeProto]]
"""(draft, dice, name of the tensor, name of the result) -> nodes"""


def _unary(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node(dice.pick(SIBLINGS[0] + SIBLINGS[1]), [x], [y])


def _with_constant(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    last = (draft.dims(x) or [1])[-1]
    size = last if last > 0 and dice.below(2) else 1
    dtype = helper.tensor_dtype_to_np_dtype(draft.element(x))
    operands = [x, draft.constant(np.asarray([0.5 * (1 + dice.below(5)) for _ in range(size)], dtype))]
    yield helper.make_node(dice.pick(("Add", "Mul", "Sub", "Div")), operands[:: dice.pick((1, -1))], [y])


def _transposes(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    perm = list(range(len(draft.dims(x) or [])))
    for k in range(len(perm) - 1, 0, -1):
        j = dice.below(k + 1)
        perm[k], perm[j] = perm[j], perm[k]
    yield helper.make_node("Transpose", [x], [f"{y}_there"], perm=perm)
    yield helper.make_node("Transpose", [f"{y}_there"], [y], perm=[perm.index(k) for k in range(len(perm))])


def _flattened(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Shape", [x], [f"{y}_shape"])
    yield helper.make_node("Reshape", [x, draft.constant(np.array([-1]))], [f"{y}_flat"])
    yield helper.make_node("Reshape", [f"{y}_flat", f"{y}_shape"], [y])


def _doubled(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    axis = dice.below(len(draft.dims(x) or [1]))
    yield helper.make_node("Concat", [x, x], [f"{y}_twice"], axis=axis)
    yield helper.make_node("Shape", [x], [f"{y}_shape"])
    yield helper.make_node("Gather", [f"{y}_shape", draft.constant(np.array([axis]))], [f"{y}_size"])
    yield helper.make_node(
        "Slice",
        [f"{y}_twice", draft.constant(np.array([0])), f"{y}_size", draft.constant(np.array([axis]))],
        [y],
    )


def _pair(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    if draft.element(x) != TensorProto.FLOAT:
        yield helper.make_node("Identity", [x], [y])
        return
    scale = draft.constant(np.array(2.0 ** -(1 + dice.below(6)), np.float32))
    zero_point = draft.constant(np.array(0, dice.pick((np.int8, np.uint8))))
    yield helper.make_node("QuantizeLinear", [x, scale, zero_point], [f"{y}_codes"])
    yield helper.make_node("DequantizeLinear", [f"{y}_codes", scale, zero_point], [y])


def _norm(draft: Draft, dice: Dice, x: str, y: str) -> Iterator[onnx.NodeProto]:
    channels = (draft.dims(x) or [0, -1])[1]
    if channels <= 0 or draft.element(x) != TensorProto.FLOAT:
        yield helper.make_node("Identity", [x], [y])
        return
    values = [np.asarray([0.25 * (1 + dice.below(8)) for _ in range(channels)], np.float32) for _ in range(4)]
    names = [draft.constant(x) for x in values]
    yield helper.make_node("BatchNormalization", [x, *names], [y])


_INSERTIONS: tuple[tuple[Insertion, int], ...] = (
    (_unary, 0),
    (_with_constant, 0),
    (_flattened, 0),
    (_pair, 0),
    (_doubled, 1),
    (_transposes, 2),
    (_norm, 2),
)
"""What may be inserted, and the least rank it needs."""


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


def _checked(draft: Draft, before: Case) -> Case | None:
    """The draft as a case with its types inferred anew; None when onnx does not accept it."""
    del draft.graph.value_info[:]
    for output in draft.graph.output:
        output.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(draft.model, check_type=True, strict_mode=True, data_prop=True)
        if not all(output.type.WhichOneof("value") == "tensor_type" for output in inferred.graph.output):
            return None
        onnx.checker.check_model(inferred, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return None
    shapes = [{name: x.shape for name, x in feeds[0].items()} for feeds in (draft.feeds, before.feeds)]
    calibration = before.calibration if shapes[0] == shapes[1] else ()
    return Case(inferred.SerializeToString(), tuple(_fitting(draft.feeds)), calibration, before.origin)


def _fitting(feeds: Sequence[Mapping[str, np.ndarray]]) -> Iterator[Feed]:
    for feed in feeds:
        yield {name: np.ascontiguousarray(x).reshape(x.shape) for name, x in feed.items()}
