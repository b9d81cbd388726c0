"""Cases for the lossless tier: weights, inputs and bias on the integer grid of a scheme."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from generators.case import Case, Feed
from harness.oracle import graph, grid
from harness.oracle.graph import Graph, Node
from harness.wire import Scheme

SMALL = 4
LARGEST_SUM = 2**23  # in steps: float32 holds every sum of the reference up to 2^24


def construct(case: Case, scheme: Scheme, rng_seed: int) -> Case | None:
    """A case on the grid of `scheme`, extreme codes in every channel and feed, calibrated on its feeds.

    One operator (and a Relu behind it): that of `case`, or one cut out of its graph, with the shapes it has there. None
    where the graph holds no fitting one, where the scheme clips, or where a channel or feed has no place for both
    extremes.
    """
    if scheme.clips or (scheme.symmetric_activations and (scheme.activation_codes or (-1,))[0] >= 0):
        return None
    rng = np.random.default_rng(rng_seed)
    single = case if grid.chain(graph.read(case.proto)) else _cut_out(case, rng)
    if single is None:
        return None
    model = graph.read(single.proto)
    if not grid.chain(model):
        return None
    codes, symmetric = scheme.activation_codes or (-128, 127), scheme.symmetric_activations
    sharp = rng.random() < 0.5
    lattices = {name: Lattice.draw(rng, codes, symmetric, sharp) for name in model.inputs}
    feeds = [_filled(rng, feed, lattices) for feed in single.feeds]
    constants: Feed | None = {}
    if grid.has_weights(model, model.nodes[0]):
        constants = _constants(rng, model, model.nodes[0], scheme, lattices)
    if constants is None or any(feed is None for feed in feeds):
        return None
    origin = {**case.origin, "lossless": rng_seed}
    return Case(_with_constants(single.proto, constants), tuple(f for f in feeds if f is not None), origin=origin)


def _cut_out(case: Case, rng: np.random.Generator) -> Case | None:
    """One operator of the graph, and a Relu behind it if there is one; weighted operators before others."""
    proto, values = case.proto, _values(case)
    constants = graph.read(proto).constants
    fitting = [node for node in proto.graph.node if _fits(node, values, constants)]
    choices = [node for node in fitting if node.op_type in grid.WEIGHTED] or fitting
    if not choices:
        return None
    node = choices[int(rng.integers(len(choices)))]
    relu = [n for n in proto.graph.node if n.op_type == "Relu" and n.input[0] == node.output[0]][:1]
    names = [name for name in dict.fromkeys(node.input) if name]
    inputs = [name for name in names if name not in constants]
    single = helper.make_graph(
        [node, *relu],
        "one operator",
        [values[name] for name in inputs],
        [values[name] for name in (relu or [node])[0].output if name],
        [numpy_helper.from_array(constants[name], name) for name in names if name in constants],
    )
    model = helper.make_model(single, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    feed = {name: np.zeros(_shape(values[name]), np.float32) for name in inputs}
    return Case(model.SerializeToString(), (feed,) * len(case.feeds), origin=case.origin)


def _values(case: Case) -> dict[str, onnx.ValueInfoProto]:
    """The float32 tensors of the main graph whose shapes follow from those of the first feed."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    for value in proto.graph.input:
        if value.name in case.feeds[0]:
            dims = np.shape(case.feeds[0][value.name])
            value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    return {v.name: v for v in values if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and _static(v)}


def _static(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _fits(node: onnx.NodeProto, values: Mapping[str, onnx.ValueInfoProto], constants: Mapping[str, np.ndarray]) -> bool:
    """Whether `node` can stand alone: floats of known shape go in and come out, and the rest is constant."""
    return (
        node.op_type in grid.WEIGHTED | grid.PLAIN
        and node.domain in ("", "ai.onnx")
        and any(name in values and name not in constants for name in node.input)
        and all(name in values or name in constants or not name for name in node.input)
        and all(name in values or not name for name in node.output)
    )


def _filled(rng: np.random.Generator, feed: Feed, lattices: Mapping[str, Lattice]) -> Feed | None:
    filled = {name: lattices[name].fill(rng, np.asarray(x)) for name, x in feed.items()}
    return (
        {name: x for name, x in filled.items() if x is not None}
        if all(x is not None for x in filled.values())
        else None
    )


@dataclass(frozen=True)
class Lattice:
    """The multiples of `scale` from lowest to highest; a symmetric one needs only one of its ends in the data.

    Data are anywhere on it; `sharp` ones are small but for the ends. Then single products stand out, and results have
    a step so fine that one code too many in one place shows.
    """

    lowest: int
    highest: int
    scale: float
    symmetric: bool
    sharp: bool

    @staticmethod
    def draw(rng: np.random.Generator, codes: tuple[int, int], symmetric: bool, sharp: bool) -> Lattice:
        """Half of the asymmetric ones have the zero point in the middle."""
        lowest, highest = codes
        zero = (lowest + highest + 1) // 2 if rng.random() < 0.5 else int(rng.integers(lowest, highest + 1))
        ends = (-highest, highest) if symmetric else (lowest - zero, highest - zero)
        return Lattice(*ends, 2.0 ** -int(rng.integers(0, 7)), symmetric, sharp)

    def points(self, rng: np.random.Generator, size: int, ends: float = 0.0) -> np.ndarray:
        """Random points; where sharp, a share `ends` of them are ends."""
        if not self.sharp:
            return rng.integers(self.lowest, self.highest + 1, size)
        small = rng.integers(max(self.lowest, -SMALL), min(self.highest, SMALL) + 1, size)
        return np.where(rng.random(size) < ends, rng.choice([self.lowest, self.highest], size), small)

    def fill(self, rng: np.random.Generator, like: np.ndarray) -> np.ndarray | None:
        """Input data in the shape and dtype of `like`, the ends among them; None where they do not fit in."""
        if like.dtype != np.float32:
            return like
        points = self.points(rng, like.size, ends=0.3)
        if not self.mark(rng, points):
            return None
        return np.asarray((points * self.scale).reshape(like.shape), np.float32)

    def mark(self, rng: np.random.Generator, points: np.ndarray) -> bool:
        """Put the ends somewhere into `points`; False where it is too small for them."""
        ends = [self.highest * rng.choice([-1, 1])] if self.symmetric else [self.lowest, self.highest]
        if points.size < len(ends):
            return False
        points[rng.choice(points.size, len(ends), replace=False)] = ends
        return True


def _constants(
    rng: np.random.Generator, model: Graph, node: Node, scheme: Scheme, lattices: Mapping[str, Lattice]
) -> dict[str, np.ndarray] | None:
    """Weights and bias on their grids; None where that cannot be."""
    weights, x = grid.weights_of(model, node), lattices.get(node.inputs[0])
    if weights is None or x is None or scheme.weight_codes is None:
        return None
    lattice = Lattice.draw(rng, scheme.weight_codes, scheme.symmetric_weights, x.sharp)
    own_scales = grid.channel_axes(node, scheme)
    channels = own_scales or (grid.output_axis(node),)
    moved = np.moveaxis(weights, channels, range(len(channels))).shape
    points = lattice.points(rng, weights.size).reshape(math.prod(moved[: len(channels)]), -1)
    terms = weights.size // weights.shape[grid.output_axis(node)]
    largest = max(-x.lowest, x.highest) * max(-lattice.lowest, lattice.highest)
    points[rng.random(points.shape) > LARGEST_SUM / (2 * largest * terms)] = 0
    marked = [lattice.mark(rng, channel) for channel in points]
    if not (all(marked) or (not own_scales and lattice.mark(rng, points.reshape(-1)))):
        return None
    finer = rng.integers(0, 3, len(points)) if len(own_scales) == 1 else np.zeros(len(points))
    scale = lattice.scale * 2.0**-finer
    filled = np.moveaxis((points * scale[:, None]).reshape(moved), range(len(channels)), channels)
    constants = {node.inputs[1]: np.ascontiguousarray(filled, np.float32)}
    if node.input(2):
        if node.input(2) not in model.constants:
            return None
        bias = model.constants[node.input(2)]
        unit = grid.by_output(scale, bias) * x.scale
        constants[node.input(2)] = np.asarray(rng.integers(-4096, 4097, bias.shape) * unit, np.float32)
    return constants


def _with_constants(model: onnx.ModelProto, constants: Mapping[str, np.ndarray]) -> bytes:
    """`model` with other values in these initializers and Constant nodes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(numpy_helper.from_array(constants[tensor.name], tensor.name))
    for node in changed.graph.node:
        if node.op_type == "Constant" and node.output[0] in constants:
            value = numpy_helper.from_array(constants[node.output[0]])
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", value))
    return bytes(changed.SerializeToString())
