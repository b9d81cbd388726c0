"""The integer grid of a quantization scheme: which operators stay on it, and which weights lie on it."""

from collections.abc import Iterator, Sequence

import numpy as np
from driftnet.model.graph import Graph, Node, Values, nested
from driftnet.model.operators import AFFINE, RECURRENT, WEIGHTED, Trait, traits_of
from driftnet.oracle.tolerances.table import CODE_ERROR
from driftnet.targets.interface import Scheme

# Not what keeps a grid by its trait: each was tried on quantizers, which take others apart, or leave them in floats.
PLAIN = frozenset(
    {"Abs", "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "CumSum", "DepthToSpace", "Dropout"}
    | {"Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GlobalAveragePool", "GlobalMaxPool"}
    | {"Identity", "LeakyRelu", "Max", "MaxPool", "Min", "Mul", "Neg", "PRelu", "Pad", "ReduceMax", "ReduceMean"}
    | {"ReduceMin", "ReduceSum", "Relu", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Sub"}
    | {"Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"}
)
"""operators without weights: every float operand is quantized as an activation"""

FOLDED = AFFINE - {"Add", "Sub"}  # which leave factors alone
"""operators that a converter may multiply into weights before it quantizes them"""

ANY_CODES = (-128, 127)
"""where a scheme has none"""


def fits(node: Node) -> bool:
    """Whether `node` is one of these, and nothing but its operands decides on the range of its results.

    A Gemm may multiply by more than its weights. A cubic Resize overshoots, and quantizers let a Resize keep the range
    of its operand.
    """
    if node.op == "Gemm":
        return all(node.attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))
    if node.op == "Resize":
        return bool(node.attributes.get("mode", "nearest") != "cubic")
    return node.op in WEIGHTED | PLAIN


def scales(low: np.ndarray, high: np.ndarray, codes: tuple[int, int], symmetric: bool) -> np.ndarray:
    """The scales that the formula of `Scheme` gives for ranges [low, high]; zero is always inside a range."""
    lowest, highest = codes
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    if symmetric:
        scale = np.maximum(-low, high) / (highest if lowest < 0 else (highest - lowest) / 2)
    else:
        scale = (high - low) / (highest - lowest)
    return np.where(scale == 0, 1.0, scale)


def multiples(x: np.ndarray, scale: np.ndarray) -> bool:
    """Whether every element of `x` is an integer multiple of its scale, to float32's precision."""
    x = x.astype(np.float64)
    return near(np.rint(x / scale) * scale, x)


def near(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether `a` is `b` but for the float32 rounding of a few operations on its largest element."""
    return bool((np.abs(a - b) <= CODE_ERROR * np.abs(b).max(initial=0.0)).all())


def on_grid(arrays: Sequence[np.ndarray], codes: tuple[int, int], symmetric: bool) -> bool:
    """Whether quantizing is the identity on each array, by its own range and by that of all of them together."""
    together = np.concatenate([x.ravel() for x in arrays])
    for x in (*arrays, together) if len(arrays) > 1 else arrays:
        ends = np.asarray([x.min(initial=0.0), x.max(initial=0.0)])
        if not multiples(np.append(ends, x), scales(ends[0], ends[1], codes, symmetric)):
            return False
    return True


def indifferent(x: np.ndarray, scheme: Scheme) -> bool:
    """Whether `x` is quantized without loss by weights' formula or activations': what is not zero is the same all over.

    Only zero is where some range is symmetric for codes that are not: no code stands for either end of it.
    """
    weights, activations = scheme.weight_codes or ANY_CODES, scheme.activation_codes or ANY_CODES
    between = (scheme.symmetric_weights and weights[0] >= 0) or (scheme.symmetric_activations and activations[0] >= 0)
    if x.dtype != np.float32 or not np.isfinite(x).all():
        return False
    there = x[x != 0]
    return not there.size or bool(not between and (there == there[0]).all())


def channel_axes(node: Node, scheme: Scheme) -> tuple[int, ...]:
    """The axes of the weights along which scales may differ. Two axes mean: the same scale for every kernel.

    What a channel is, quantizers do not always agree upon. Of ConvTranspose onnxruntime takes axis 1, while MNN cuts
    the weights into as many equal pieces as there are outputs; a grouped Conv MNN may make into depthwise ones first.
    """
    if not scheme.per_channel or node.op in scheme.per_tensor:
        return ()
    depthwise = grouped(node) and scheme.activation_codes is None
    return (0, 1) if node.op == "ConvTranspose" or depthwise else (output_axis(node),)


def output_axis(node: Node) -> int:
    """The axis of the weights along which outputs differ."""
    return 0 if is_outputs_first(node) else 1


def is_outputs_first(node: Node) -> bool:
    """Whether the weights of a weighted operator lie as [outputs, ...]."""
    # The standard's layouts: of these alone, ConvTranspose has its inputs first, Gemm and MatMul end with outputs.
    return node.op == "Conv" or (node.op == "Gemm" and bool(node.attributes.get("transB", 0)))


def weights_of(model: Graph, node: Node) -> np.ndarray | None:
    """The constant weights of `node`; None where there are none, or of a shape whose channels are not agreed upon."""
    weights = model.constants.get(node.inputs[1], np.zeros(0))
    # Engines write a 3-D convolution as several 2-D ones or as a matrix product, whose channels are others.
    fitting = weights.ndim == 2 if node.op == "MatMul" else weights.ndim <= 4
    return weights if weights.size and weights.dtype == np.float32 and fitting else None


def keeps_weights(model: Graph, scheme: Scheme, nodes: Sequence[Node]) -> bool:
    """Whether quantizing the weights of every weighted operator among `nodes` is the identity.

    A converter may multiply weights, channel by channel, by the constants of a FOLDED operator before it quantizes
    them. Where each channel has its own scale, that changes no code.
    """
    varying, folded = set(model.inputs), any(node.op in FOLDED for node in nodes)
    for node in model.nodes:
        if not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
    for node in nodes:
        bodies = [inner for inner in nested([node], model.opset) if inner is not node]
        if any(inner.op in WEIGHTED | RECURRENT for inner in bodies):
            return False  # a subgraph has weights of its own
        if node.op in RECURRENT:
            if not all(
                name in varying or indifferent(model.constants.get(name, _NONE), scheme) for name in node.inputs[1:3]
            ):
                return False
        elif node.op in WEIGHTED and node.inputs[1] not in varying:
            if not has_weights(model, node) or weight_scales(model, node, scheme) is None:
                return False
            if folded and len(channel_axes(node, scheme)) != 1:
                return False
        if node.op in WEIGHTED and node.inputs[0] not in varying:
            return False
    return True


def inexact_weights(model: Graph, scheme: Scheme) -> Iterator[tuple[str, float]]:
    """(name, largest element) of the weights that codes times a scale give to within a rounding of that only."""
    for node in model.nodes:
        scale = weight_scales(model, node, scheme) if has_weights(model, node) else None
        dyadic = scale is not None and bool((np.frexp(scale)[0] == 0.5).all())
        names = node.inputs[1:3] if node.op in RECURRENT else node.inputs[1:2] if node.op in WEIGHTED else ()
        for name in names:
            x = model.constants.get(name, _NONE)
            if x.dtype == np.float32 and x.any() and not dyadic:
                yield name, float(np.abs(x).max())


_NONE = np.zeros(0)


def weight_scales(model: Graph, node: Node, scheme: Scheme) -> np.ndarray | None:
    """Scales of the constant weights, in a shape that broadcasts to them; None unless quantizing is the identity.

    What comes of a Constant node may be taken for an activation, and what converters do with the weights of a 3-D
    convolution or of a recurrent operator is not agreed upon: these have to be indifferent.
    """
    given = model.constants[node.inputs[1]]
    weights = weights_of(model, node)
    if scheme.weight_codes is None:
        return None
    if weights is None or node.inputs[1] not in model.initializers:
        scale = scales(given.min(initial=0.0), given.max(initial=0.0), scheme.weight_codes, scheme.symmetric_weights)
        return np.reshape(scale, (1,) * given.ndim) if indifferent(given, scheme) else None
    kept = channel_axes(node, scheme)
    axes = tuple(k for k in range(weights.ndim) if k not in kept)
    low, high = (f(weights, axis=axes, keepdims=True).astype(np.float64) for f in (np.min, np.max))
    scale = scales(low, high, scheme.weight_codes, scheme.symmetric_weights)
    uniform = len(kept) < 2 or bool((scale == scale.flat[0]).all())
    return scale if uniform and multiples(weights, scale) else None


def by_output(scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The weight scales in a shape that broadcasts to the bias; the largest where one element serves many outputs."""
    return scale.ravel() if bias.shape[-1:] == (scale.size,) else np.asarray(scale.max())


def has_weights(model: Graph, node: Node) -> bool:
    """Whether something of `node` is quantized as weights."""
    return node.op in WEIGHTED and node.inputs[1] in model.constants


def grouped(node: Node) -> bool:
    """Whether a convolution has groups."""
    return bool(node.attributes.get("group", 1) != 1)


def taken_apart(node: Node, values: Values) -> bool:
    """Whether a converter may make several operations of this one.

    Of a convolution because of its groups, or of three dimensions; of a Gemm because of its alpha, or of a bias that is
    not one number for each output.
    """
    if node.op == "Gemm":
        bias, outputs = node.input(2), values[node.outputs[0]].shape[-1]
        return node.attributes.get("alpha", 1.0) != 1.0 or (bool(bias) and np.size(values[bias]) != outputs)
    return Trait.WEIGHTED | Trait.SLIDES in traits_of(node.op) and (grouped(node) or values[node.inputs[0]].ndim > 4)
