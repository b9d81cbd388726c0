"""The integer grid of a quantisation scheme, and the graphs small enough to keep all their data on it."""

from __future__ import annotations

import numpy as np

from harness.oracle.graph import Graph, Node
from harness.wire import Scheme

WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""operators whose second operand is quantised as weights where it is constant"""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})

PLAIN = frozenset(
    {"Add", "AveragePool", "Concat", "DepthToSpace", "Flatten", "GlobalAveragePool", "Identity", "MaxPool", "Mul"}
    | {"ReduceMax", "ReduceMean", "ReduceMin", "Relu", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Sub"}
    | {"Transpose", "Unsqueeze"}
)
"""operators without weights: every float operand is quantised as an activation"""


def chain(model: Graph) -> tuple[Node, ...]:
    """The nodes of a graph that is one operator, perhaps with a Relu behind it; empty for any other.

    Constant operands have to be weights and a bias, and initializers: how other constants are quantised depends on the
    quantiser (onnxruntime's takes those of Constant nodes for activations).
    """
    first, *rest = model.nodes or (None,)
    if first is None or first.op not in WEIGHTED | PLAIN or len(rest) > 1 or not _unscaled(first):
        return ()
    if rest and (rest[0].op != "Relu" or rest[0].inputs[0] not in first.outputs):
        return ()
    weighted = has_weights(model, first)
    constants = {name for name in first.inputs if name in model.constants and model.constants[name].dtype.kind == "f"}
    if not constants <= (model.initializers.intersection(first.inputs[1:3]) if weighted else set()):
        return ()
    return model.nodes if weighted or first.op not in WEIGHTED or not first.input(2) else ()


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
    """Whether the scales are powers of two, and every element of `x` an integer multiple of its scale."""
    x = x.astype(np.float64)
    return bool((np.frexp(scale)[0] == 0.5).all() and (np.rint(x / scale) * scale == x).all())


def channel_axes(node: Node, scheme: Scheme) -> tuple[int, ...]:
    """The axes of the weights along which scales may differ. Two axes mean: the same scale for every kernel.

    What a channel is, quantisers do not always agree upon. Of ConvTranspose onnxruntime takes axis 1, while MNN cuts
    the weights into as many equal pieces as there are outputs; a grouped Conv MNN may make into depthwise ones first.
    """
    if not scheme.per_channel or node.op in scheme.per_tensor:
        return ()
    grouped = node.attributes.get("group", 1) > 1 and scheme.activation_codes is None
    return (0, 1) if node.op == "ConvTranspose" or grouped else (output_axis(node),)


def output_axis(node: Node) -> int:
    """The axis of the weights along which outputs differ."""
    return 0 if node.op == "Conv" or (node.op == "Gemm" and node.attributes.get("transB", 0)) else 1


def weights_of(model: Graph, node: Node) -> np.ndarray | None:
    """The constant weights of `node`; None where there are none, or of a shape whose channels are not agreed upon."""
    weights = model.constants.get(node.inputs[1], np.zeros(0))
    # Engines write a 3-D convolution as several 2-D ones or as a matrix product, whose channels are others.
    fitting = weights.ndim == 2 if node.op == "MatMul" else weights.ndim <= 4
    return weights if weights.size and weights.dtype == np.float32 and fitting else None


def weight_scales(model: Graph, node: Node, scheme: Scheme) -> np.ndarray | None:
    """Scales of the constant weights, in a shape that broadcasts to them; None unless quantising is the identity."""
    weights = weights_of(model, node)
    if weights is None or scheme.weight_codes is None:
        return None
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
    """Whether something of `node` is quantised as weights."""
    return node.op in WEIGHTED and node.inputs[1] in model.constants


def _unscaled(node: Node) -> bool:
    return all(node.attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))
