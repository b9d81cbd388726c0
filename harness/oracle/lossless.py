"""T1q, lossless quantisation: on data that lie on the integer grid, quantising is the identity.

Weights are k 2^-a and hold the extreme codes in every channel (or tensor, as the scheme quantises), inputs are k 2^-b
with the extreme codes in every feed, the bias is an integer multiple of 2^-(a+b). The quantiser's own formula then
gives steps of exactly 2^-a and 2^-b, nothing is lost before the operator, its integer sum is the float sum, and what is
left is the rounding of results: |y_q - y| <= 0.501 times the sum of the steps of the tensors quantised from there on.
Where only weights are quantised nothing at all is lost, and the tiers for floats judge.

This holds for one operator, with or without a Relu behind it. `construct` puts a case on the grid; `decide` recognises
one there, whoever made it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from generators.case import Case, Feed
from harness.machine import cpu_features
from harness.oracle import graph
from harness.oracle.graph import Graph, Node
from harness.oracle.question import Place, Question, abstains, agrees, distance, diverges
from harness.verdict import Verdict
from harness.wire import Scheme

TIER = "lossless"
HALF_STEP = 0.501
SATURATION = "u8s8-saturation"
SMALL = 4
LARGEST_SUM = 2**23  # in steps: float32 holds every sum of the reference up to 2^24
WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
PLAIN = frozenset(
    {"Add", "AveragePool", "Concat", "DepthToSpace", "Flatten", "GlobalAveragePool", "Identity", "MaxPool", "Mul"}
    | {"ReduceMax", "ReduceMean", "ReduceMin", "Relu", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Sub"}
    | {"Transpose", "Unsqueeze"}
)
"""operators without weights: every float operand is quantised as an activation"""


def keeps_weights(question: Question) -> bool:
    """Whether only weights are quantised and all of them are on their grid, so that floats are what is to be judged."""
    scheme = question.scheme
    if scheme is None or scheme.weight_codes is None or scheme.activation_codes is not None:
        return False
    nodes = question.graph.nodes
    return not any(node.op in RECURRENT for node in nodes) and all(
        _weight_scales(question.graph, node, scheme) is not None for node in nodes if node.op in WEIGHTED
    )


def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Recognises a case on the grid of the question's scheme; abstains on all others."""
    scheme, nodes = question.scheme, _chain(question.graph)
    steps: Mapping[str, Step] = {}
    if nodes and scheme and scheme.activation_codes and not scheme.clips:
        steps = _steps(question, scheme, scheme.activation_codes)
    on_grid = {feed: bool(steps) and _on_grid(question, nodes, steps, feed) for feed in {feed for feed, _ in places}}
    return {
        place: _judge(question, place, nodes, steps)
        if on_grid[place[0]]
        else abstains(TIER, place, "quantising loses something", [n.op for n in question.graph.ancestors(place[1])])
        for place in places
    }


@dataclass(frozen=True)
class Step:
    """How a tensor with values in [low, high] is quantised: in multiples of `scale`."""

    low: float
    high: float
    scale: float

    def holds(self, x: np.ndarray) -> bool:
        """Whether quantising `x` is the identity."""
        inside = bool(x.size == 0 or (x.min() >= self.low and x.max() <= self.high))
        return inside and bool(_multiples(np.array([self.low, self.high, *x.flat]), np.asarray(self.scale)))


def scales(low: np.ndarray, high: np.ndarray, codes: tuple[int, int], symmetric: bool) -> np.ndarray:
    """The scales that the formula of `Scheme` gives for ranges [low, high]; zero is always inside a range."""
    lowest, highest = codes
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    if symmetric:
        scale = np.maximum(-low, high) / (highest if lowest < 0 else (highest - lowest) / 2)
    else:
        scale = (high - low) / (highest - lowest)
    return np.where(scale == 0, 1.0, scale)


def _multiples(x: np.ndarray, scale: np.ndarray) -> bool:
    """Whether the scales are powers of two, and every element of `x` an integer multiple of its scale."""
    x = x.astype(np.float64)
    return bool((np.frexp(scale)[0] == 0.5).all() and (np.rint(x / scale) * scale == x).all())


def _chain(model: Graph) -> tuple[Node, ...]:
    """The nodes of a graph that this tier can follow; empty for any other."""
    first, *rest = model.nodes or (None,)
    if first is None or first.op not in WEIGHTED | PLAIN or len(rest) > 1:
        return ()
    if rest and (rest[0].op != "Relu" or rest[0].inputs[0] not in first.outputs):
        return ()
    return model.nodes


def _steps(question: Question, scheme: Scheme, codes: tuple[int, int]) -> dict[str, Step]:
    """The step of each float tensor that is quantised as an activation, by the calibration data."""
    case = question.case
    records = question.records
    if case.calibration:
        records = question.reference.record(dataclasses.replace(case, feeds=case.calibration, calibration=()))
    model = question.graph
    values = {name: [record[name] for record in records] for node in model.nodes for name in node.outputs if name}
    values |= {name: [record[name] for record in records] for name in model.inputs}
    steps = {}
    for name, arrays in values.items():
        if arrays[0].dtype != np.float32:
            continue
        low = min(min(float(x.min(initial=0.0)) for x in arrays), 0.0)
        high = max(float(x.max(initial=0.0)) for x in arrays)
        scale = scales(np.asarray(low), np.asarray(high), codes, scheme.symmetric_activations)
        steps[name] = Step(low, high, float(scale))
    return steps


def _on_grid(question: Question, nodes: Sequence[Node], steps: Mapping[str, Step], feed: int) -> bool:
    """Whether nothing is lost before the first node's results, and nothing is clipped behind it."""
    node, scheme, model = nodes[0], question.scheme, question.graph
    values = {**question.records[feed], **model.constants}
    produced = [name for n in nodes for name in n.outputs if name]
    if any(values[name].min(initial=0.0) < steps[name].low for name in produced if name in steps) or any(
        values[name].max(initial=0.0) > steps[name].high for name in produced if name in steps
    ):
        return False
    weighted = _has_weights(model, node)
    operands = node.inputs[:1] if weighted else [x for x in node.inputs if x and values[x].dtype == np.float32]
    if not _unscaled(node) or not all(name in steps and steps[name].holds(values[name]) for name in operands):
        return False
    if not weighted:
        return not node.input(2) or node.op not in WEIGHTED
    scale = _weight_scales(model, node, scheme) if scheme else None
    bias = model.constants.get(node.input(2))
    if scale is None or bias is None:
        return scale is not None and not node.input(2)
    unit = _by_output(scale, bias) * steps[node.inputs[0]].scale
    return _multiples(bias, unit)


def _weight_scales(model: Graph, node: Node, scheme: Scheme) -> np.ndarray | None:
    """Scales of the constant weights, in a shape that broadcasts to them; None unless quantising is the identity."""
    weights = model.constants.get(node.inputs[1])
    if weights is None or scheme.weight_codes is None or not weights.size or weights.dtype != np.float32:
        return None
    if node.op == "MatMul" and weights.ndim != 2:
        return None
    kept = _channel_axes(node, scheme)
    axes = tuple(k for k in range(weights.ndim) if k not in kept)
    low, high = (f(weights, axis=axes, keepdims=True).astype(np.float64) for f in (np.min, np.max))
    scale = scales(low, high, scheme.weight_codes, scheme.symmetric_weights)
    uniform = len(kept) < 2 or bool((scale == scale.flat[0]).all())
    return scale if uniform and _multiples(weights, scale) else None


def _channel_axes(node: Node, scheme: Scheme) -> tuple[int, ...]:
    """The axes of the weights along which scales may differ.

    What a channel of ConvTranspose is, quantisers do not agree upon: onnxruntime takes axis 1, MNN cuts the weights
    into as many equal pieces as there are output channels. Two axes mean: the same scale for every kernel.
    """
    if not scheme.per_channel or node.op in scheme.per_tensor:
        return ()
    return (0, 1) if node.op == "ConvTranspose" else (_output_axis(node),)


def _output_axis(node: Node) -> int:
    """The axis of the weights along which outputs differ."""
    return 0 if node.op == "Conv" or (node.op == "Gemm" and node.attributes.get("transB", 0)) else 1


def _by_output(scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The weight scales in a shape that broadcasts to the bias; the largest where one element serves many outputs."""
    return scale.ravel() if bias.shape[-1:] == (scale.size,) else np.asarray(scale.max())


def _has_weights(model: Graph, node: Node) -> bool:
    return node.op in WEIGHTED and node.inputs[1] in model.constants


def _unscaled(node: Node) -> bool:
    return all(node.attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))


def _judge(question: Question, place: Place, nodes: Sequence[Node], steps: Mapping[str, Step]) -> Verdict:
    got, expected = question.pair(place)
    float_error = 1e-6 * float(np.abs(expected.astype(np.float64)).max(initial=0.0))
    bound = HALF_STEP * sum(_largest_step(n, steps) for n in question.graph.ancestors(place[1])) + float_error
    error = distance(got, expected)
    worst = float(error.max(initial=0.0))
    if worst <= bound:
        return agrees(TIER, place, error=worst, bound=bound)
    if SATURATION in question.exceptions and _saturates(question, nodes[0], steps, place[0]):
        return agrees(TIER, place, error=worst, bound=bound, rule=SATURATION)
    return diverges(TIER, question, place, error > bound, np.asarray(bound))


def _largest_step(node: Node, steps: Mapping[str, Step]) -> float:
    """The step of the node's results; quantisers give operators like AveragePool one step for input and output."""
    names = node.outputs if node.op in WEIGHTED else (*node.inputs, *node.outputs)
    return max((steps[name].scale for name in names if name in steps), default=0.0)


def _saturates(question: Question, node: Node, steps: Mapping[str, Step], feed: int) -> bool:
    """Whether a pair of u8 s8 products may leave int16, on a machine that adds such pairs in 16 bits."""
    scheme = question.scheme
    if scheme is None or not _has_weights(question.graph, node) or (scheme.activation_codes or (-1,))[0] < 0:
        return False
    if {"avx512_vnni", "avx_vnni", "amx_int8", "asimd"} & set(cpu_features()):
        return False
    scale = _weight_scales(question.graph, node, scheme)
    codes = np.abs(question.graph.constants[node.inputs[1]] / scale).max()
    step, x = steps[node.inputs[0]], question.records[feed][node.inputs[0]]
    return bool(2 * codes * (x.max() - step.low) / step.scale > np.iinfo(np.int16).max)


def construct(case: Case, scheme: Scheme, rng_seed: int) -> Case | None:
    """`case` with weights, inputs and bias on the grid of `scheme`, extreme codes in every channel and feed.

    The same graph and shapes; calibration is on the feeds. None where the graph is not one operator (and a Relu), where
    the scheme clips, or where a tensor or channel is too small to hold both extremes.
    """
    model = graph.read(case.proto)
    nodes = _chain(model)
    if not nodes or scheme.clips or (scheme.symmetric_activations and (scheme.activation_codes or (-1,))[0] >= 0):
        return None
    rng = np.random.default_rng(rng_seed)
    codes, symmetric = scheme.activation_codes or (-128, 127), scheme.symmetric_activations
    sharp = rng.random() < 0.5
    lattices = {name: Lattice.draw(rng, codes, symmetric, sharp) for name in model.inputs}
    feeds = [_filled(rng, feed, lattices) for feed in case.feeds]
    constants: Feed | None = {}
    if _has_weights(model, nodes[0]):
        constants = _constants(rng, model, nodes[0], scheme, lattices)
    if constants is None or any(feed is None for feed in feeds):
        return None
    origin = {**case.origin, "lossless": rng_seed}
    return Case(_with_constants(case.proto, constants), tuple(f for f in feeds if f is not None), origin=origin)


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
    weights, x = model.constants[node.inputs[1]], lattices.get(node.inputs[0])
    if x is None or scheme.weight_codes is None or not weights.size or not _unscaled(node):
        return None
    lattice = Lattice.draw(rng, scheme.weight_codes, scheme.symmetric_weights, x.sharp)
    own_scales = _channel_axes(node, scheme)
    channels = own_scales or (_output_axis(node),)
    moved = np.moveaxis(weights, channels, range(len(channels))).shape
    points = lattice.points(rng, weights.size).reshape(math.prod(moved[: len(channels)]), -1)
    terms = weights.size // weights.shape[_output_axis(node)]
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
        unit = _by_output(scale, bias) * x.scale
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
