"""Damage a quantized model in one place, as a broken quantizer or a careless edit would.

A damage is a function (model, random numbers) -> the names by which its place may be told: the tensor, or the node, and
what reads it. It changes the model that it is given; no name means that the model has no such place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Names = set[str]
Damage = Callable[[onnx.ModelProto, np.random.Generator], Names]
WEIGHTS = {
    "QLinearConv": (3, 4, 5),
    "QLinearMatMul": (3, 4, 5),
    "QGemm": (3, 4, 5),
    "MatMulInteger": (1, -1, 3),
    "ConvInteger": (1, -1, 3),
    "DynamicQuantizeLSTM": (1, 8, 9),
}
"""positions of constant weights, their scale and their zero point"""


def _constants(model: onnx.ModelProto) -> dict[str, TensorProto]:
    return {t.name: t for t in model.graph.initializer}


def _set(tensor: TensorProto, x: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(x).reshape(x.shape), tensor.name))


def _readers(model: onnx.ModelProto, name: str) -> Names:
    """The name of a tensor, and of the nodes that read it, through Q/DQ pairs and movement."""
    names, tensors = {name}, {name}
    for node in model.graph.node:
        if tensors.intersection(node.input):
            names.add(node.name)
            names.update(node.output)
            if node.op_type in ("DequantizeLinear", "QuantizeLinear", "Mul", "Cast", "Reshape", "Transpose"):
                tensors.update(node.output)
    return names


def _weights(model: onnx.ModelProto) -> Iterator[tuple[TensorProto, TensorProto | None, TensorProto | None]]:
    """(integers, scale, zero point) of quantized constants."""
    constants = _constants(model)
    for node in model.graph.node:
        positions = (0, 1, 2) if node.op_type == "DequantizeLinear" else WEIGHTS.get(node.op_type)
        if positions and node.input[positions[0]] in constants:
            scale, zero = (node.input[k] if 0 <= k < len(node.input) else "" for k in positions[1:])
            yield constants[node.input[positions[0]]], constants.get(scale), constants.get(zero)


def _pick(model: onnx.ModelProto, rng: np.random.Generator, fits: Callable[..., bool]) -> tuple:
    found = [w for w in _weights(model) if fits(numpy_helper.to_array(w[0]), *w[1:])]
    return found[rng.integers(len(found))] if found else (None, None, None)


def _is_weight(codes: np.ndarray, scale: object, zero: object) -> bool:
    return codes.dtype.itemsize == 1 and codes.ndim >= 2


def moved_zero_point(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """The zero point of weights is one off."""
    codes, _, zero = _pick(model, rng, lambda q, s, z: _is_weight(q, s, z) and z is not None)
    if codes is None:
        return set()
    x = numpy_helper.to_array(zero)
    _set(zero, np.where(x < 100, x + 1, x - 1).astype(x.dtype))
    return _readers(model, zero.name) | _readers(model, codes.name)


def scale_of_another_channel(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """Two channels have each other's scale."""
    codes, scale, _ = _pick(
        model, rng, lambda q, s, z: _is_weight(q, s, z) and s is not None and len(s.float_data or s.raw_data) > 8
    )
    if codes is None:
        return set()
    x = numpy_helper.to_array(scale).copy()
    k, other = rng.permutation(x.size)[:2]
    x[k], x[other] = x[other], x[k]
    _set(scale, x)
    return _readers(model, scale.name) | _readers(model, codes.name)


def _of_codes(fits: Callable[..., bool]) -> Callable[[Callable[..., np.ndarray]], Damage]:
    """A damage of the integers of one quantized constant that `fits`: (codes, random numbers) -> other codes."""

    def wrap(change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Damage:
        @functools.wraps(change)
        def damage(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
            codes, _, _ = _pick(model, rng, fits)
            if codes is None:
                return set()
            _set(codes, change(numpy_helper.to_array(codes).copy(), rng))
            return _readers(model, codes.name)

        return damage

    return wrap


@_of_codes(lambda q, s, z: _is_weight(q, s, z) and max(q.shape) > 1)
def swapped_channels(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Two channels have each other's weights."""
    axis = int(np.argmax(codes.shape))
    k, other = rng.permutation(codes.shape[axis])[:2]
    order = np.arange(codes.shape[axis])
    order[[k, other]] = order[[other, k]]
    return np.take(codes, order, axis)


@_of_codes(_is_weight)
def one_wrong_weight(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One weight is eight codes off."""
    k = rng.integers(codes.size)
    codes.flat[k] = codes.flat[k] - 8 if int(codes.flat[k]) > 0 else codes.flat[k] + 8
    return codes


@_of_codes(_is_weight)
def weights_off_by_one(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weights are one code too low, as if rounded down, in one of three elements."""
    low = np.iinfo(codes.dtype).min
    codes.flat[::3] = np.where(codes.flat[::3] > low, codes.flat[::3] - 1, codes.flat[::3])
    return codes


@_of_codes(_is_weight)
def clipped_weights(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weights end a third of the way to the last code."""
    middle = (np.iinfo(codes.dtype).min + np.iinfo(codes.dtype).max + 1) // 2
    return np.clip(codes, middle - 42, middle + 42)


@_of_codes(lambda q, s, z: q.dtype == np.int32 and q.size > 1)
def wrong_bias(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The codes of a bias are rotated."""
    return np.roll(codes, 1)


def doubled_weight_scale(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """The scale of weights is twice what it should be."""
    codes, scale, _ = _pick(model, rng, lambda q, s, z: _is_weight(q, s, z) and s is not None)
    if codes is None:
        return set()
    _set(scale, numpy_helper.to_array(scale) * np.float32(2))
    return _readers(model, scale.name) | _readers(model, codes.name)


def stale_bias_scale(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """The scale of a bias is that of other data; the bias keeps its value."""
    codes, scale, _ = _pick(model, rng, lambda q, s, z: q.dtype == np.int32 and s is not None)
    if codes is None:
        return set()
    x = numpy_helper.to_array(scale)
    _set(scale, x * np.float32(1.5))
    _set(codes, np.rint(numpy_helper.to_array(codes) / 1.5).astype(np.int32))
    return _readers(model, codes.name) | _readers(model, scale.name)


def _with_another_constant(
    model: onnx.ModelProto, rng: np.random.Generator, position: int, change: Callable[[np.ndarray], np.ndarray]
) -> Names:
    """One DequantizeLinear of activations gets a scale (position 1) or zero point (2) of its own."""
    constants = _constants(model)
    made = {name for node in model.graph.node if node.op_type == "QuantizeLinear" for name in node.output}
    nodes = [n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in made]
    nodes = [n for n in nodes if len(n.input) > position]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    x = numpy_helper.to_array(constants[node.input[position]])
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(change(x), x.dtype), "another_constant"))
    node.input[position] = "another_constant"
    return _readers(model, node.input[0]) | {node.name, node.input[1], "another_constant"}


def lone_dequantize(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A DequantizeLinear of activations has a zero point one higher than its QuantizeLinear."""
    return _with_another_constant(model, rng, 2, lambda x: np.where(x < 100, x + 1, x - 1))


def halved_activation_scale(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A DequantizeLinear of activations reads with half the scale."""
    return _with_another_constant(model, rng, 1, lambda x: x / 2)


def narrow_range(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """The scale of activations is a quarter of what their range needs, for all that write and read them."""
    constants = _constants(model)
    nodes = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[1] in constants]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    scale = constants[node.input[1]]
    _set(scale, numpy_helper.to_array(scale) / np.float32(4))
    return _readers(model, scale.name) | _readers(model, node.output[0]) | {node.input[0]}


def wrong_float(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """One number of what stayed in float is half as large again, and a tenth more."""
    quantizing = ("QuantizeLinear", "DequantizeLinear", "QLinear", "DynamicQuantize")
    scales = {name for n in model.graph.node if n.op_type.startswith(quantizing) for name in n.input}
    found = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.name not in scales]
    found = [t for t in found if any(t.name in n.input for n in model.graph.node)]
    if not found:
        return set()
    tensor = found[rng.integers(len(found))]
    x = numpy_helper.to_array(tensor).copy()
    x.flat[int(np.argmax(np.abs(x)))] *= np.float32(1.5)
    x.flat[int(np.argmax(np.abs(x)))] += np.float32(0.1)
    _set(tensor, x)
    return _readers(model, tensor.name)


def swapped_parts(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """Two parts of a Concat have changed places."""
    nodes = [n for n in model.graph.node if n.op_type == "Concat" and n.input[0] != n.input[-1]]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    node.input[:] = [node.input[-1], *node.input[1:-1], node.input[0]]
    return {node.name, *node.output}


def shifted_slice(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A Slice starts and ends one element sooner or later; a Gather takes what stands beside."""
    constants = _constants(model)
    positions = {"Slice": (1, 2), "Gather": (1,)}
    nodes = [n for n in model.graph.node if n.op_type in positions]
    nodes = [n for n in nodes if all(n.input[k] in constants for k in positions[n.op_type])]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    ends = [numpy_helper.to_array(constants[node.input[k]]) for k in positions[node.op_type]]
    step = -1 if ends[0].flat[0] > 0 else 1
    for k, x in zip(positions[node.op_type], ends):
        model.graph.initializer.append(numpy_helper.from_array(x + np.asarray(step, x.dtype), f"shifted_{k}"))
        node.input[k] = f"shifted_{k}"
    return {node.name, *node.output}


def dropped_node(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A Relu or another function of one operand is gone."""
    plain = ("Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "Softmax", "Sqrt", "HardSwish", "PRelu", "Erf", "Elu")
    outputs = {v.name for v in model.graph.output}
    nodes = [n for n in model.graph.node if n.op_type in plain and n.output[0] not in outputs]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    names = {node.name, node.output[0], node.input[0]} | _readers(model, node.output[0])
    for reader in model.graph.node:
        reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
    model.graph.node.remove(node)
    return names


def wrong_pads(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """The pads of a Conv or pool have moved by one: the shape stays."""
    nodes = [n for n in model.graph.node for a in n.attribute if a.name == "pads" and any(a.ints)]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    pads = next(a for a in node.attribute if a.name == "pads").ints
    half = len(pads) // 2
    k = next(k for k in range(half) if pads[k] or pads[k + half])
    step = 1 if pads[k + half] else -1
    pads[k], pads[k + half] = pads[k] + step, pads[k + half] - step
    return {node.name, *node.output}


def wrong_perm(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """Two axes of a Transpose are swapped."""
    nodes = [n for n in model.graph.node if n.op_type == "Transpose"]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    perm = node.attribute[0].ints
    k = int(rng.integers(len(perm) - 1))
    perm[k], perm[k + 1] = perm[k + 1], perm[k]
    return {node.name, *node.output}


def wrong_axis(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A Softmax, Concat, or reduction works along another axis."""
    nodes = [
        n
        for n in model.graph.node
        if n.op_type in ("Softmax", "QLinearSoftmax", "LayerNormalization", "Concat", "Gather")
    ]
    nodes = [n for n in nodes if any(a.name == "axis" for a in n.attribute)]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    axis = next(a for a in node.attribute if a.name == "axis")
    axis.i = axis.i - 1 if axis.i > 0 or axis.i < -1 else axis.i + 1 if axis.i == 0 else -2
    return {node.name, *node.output}


def wrong_number(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """An attribute that is a number (alpha, epsilon) is something else."""
    names = ("alpha", "beta", "epsilon", "gamma")
    nodes = [n for n in model.graph.node if any(a.name in names for a in n.attribute)]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    attribute = next(a for a in node.attribute if a.name in names)
    attribute.f = attribute.f * 3 + 0.01
    return {node.name, *node.output}


def swapped_operands(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """Both operands of a subtraction or division have changed places."""
    nodes = [n for n in model.graph.node if n.op_type in ("Sub", "Div", "Pow")]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return {node.name, *node.output}


def inserted_node(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A Mul stands between a node and what reads its result."""
    made = ("Conv", "Gemm", "MatMul", "Add", "LayerNormalization")
    outputs = {v.name for v in model.graph.output}
    nodes = [k for k, n in enumerate(model.graph.node) if n.op_type in made and n.output[0] not in outputs]
    if not nodes:
        return set()
    k = int(nodes[rng.integers(len(nodes))])
    result = model.graph.node[k].output[0]
    model.graph.node[k].output[0] = "before_inserted"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1.5), "inserted_factor"))
    mul = helper.make_node("Mul", ["before_inserted", "inserted_factor"], [result], name="inserted")
    model.graph.node.insert(k + 1, mul)
    return {"inserted", model.graph.node[k].name, result, *_readers(model, result)}


def wrong_constant(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """An operator reads its first operand twice."""
    constants = _constants(model)
    nodes = [n for n in model.graph.node if n.op_type in ("Add", "Mul") and not constants.keys() & set(n.input)]
    nodes = [n for n in nodes if n.input[0] != n.input[1]]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    node.input[1] = node.input[0]
    return {node.name, *node.output}


def wrong_source(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A residual connection starts at another tensor of the same shape."""
    inferred = onnx.shape_inference.infer_shapes(model)
    shapes = {v.name: str(v.type) for v in inferred.graph.value_info}
    before: dict[str, list[str]] = {}
    places = []
    for node in model.graph.node:
        if node.op_type in ("Add", "QLinearAdd") and (other := before.get(shapes.get(node.input[0], "?"), [])):
            stems = [name.partition("_QuantizeLinear")[0].partition("_DequantizeLinear")[0] for name in node.input]
            wrong = [name for name in other if not name.startswith(tuple(stems))]
            if wrong and node.op_type == "Add":
                places.append((node, wrong))
        for name in node.output:
            if name in shapes:
                before.setdefault(shapes[name], []).append(name)
    if not places:
        return set()
    node, wrong = places[rng.integers(len(places))]
    node.input[0] = wrong[rng.integers(len(wrong))]
    return {node.name, *node.output}


def other_state(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A recurrent layer runs backwards, or with another formula."""
    nodes = [n for n in model.graph.node if n.op_type in ("GRU", "LSTM", "RNN")]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    found = next((a for a in node.attribute if a.name == "linear_before_reset"), None)
    if found is not None:
        found.i = 1 - found.i
    elif not any(a.name == "direction" for a in node.attribute):
        node.attribute.append(helper.make_attribute("direction", "reverse"))
    else:
        return set()
    return {node.name, *(name for name in node.output if name)}


def lost_operand(model: onnx.ModelProto, rng: np.random.Generator) -> Names:
    """A bias is gone."""
    nodes = [n for n in model.graph.node if n.op_type in ("Conv", "Gemm", "ConvTranspose") and len(n.input) == 3]
    nodes += [n for n in model.graph.node if n.op_type == "QLinearConv" and len(n.input) == 9]
    if not nodes:
        return set()
    node = nodes[rng.integers(len(nodes))]
    names = {node.name, *node.output, node.input[-1]}
    del node.input[-1]
    return names


DAMAGES: tuple[Damage, ...] = (
    moved_zero_point,
    scale_of_another_channel,
    swapped_channels,
    one_wrong_weight,
    weights_off_by_one,
    doubled_weight_scale,
    clipped_weights,
    stale_bias_scale,
    wrong_bias,
    lone_dequantize,
    halved_activation_scale,
    narrow_range,
    wrong_float,
    swapped_parts,
    shifted_slice,
    dropped_node,
    wrong_pads,
    wrong_perm,
    wrong_axis,
    wrong_number,
    swapped_operands,
    inserted_node,
    wrong_constant,
    wrong_source,
    other_state,
    lost_operand,
)


def damaged(model: onnx.ModelProto, damage: Damage, seed: int) -> tuple[onnx.ModelProto, Names]:
    """A copy of `model` with one damage, and the names of its place; no names where the model has no such place."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = damage(copy, np.random.default_rng(seed))
    del copy.graph.value_info[:]
    return copy, {name for name in names if name}
