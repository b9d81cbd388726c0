"""The artifact tier for artifacts that are no ONNX, but whose layers can be read: weights as they were quantized.

Two questions, of which neither carries quantization noise:
parameters  each weight is dequantized to within half a step of what it was, |deq(Wq) - W| <= s/2 (1 + 2e-4)
            and a scale of symmetric weights is the largest of its channel over the highest code
execution   with W := deq(Wq) in the float model, the outputs are those of a float model, and the tiers for floats
            judge (only where nothing but weights is quantized)

A layer belongs to the operator whose weights it holds, or, where its name says so, should hold. A converter may have
multiplied them: by the factors of a BatchNormalization behind the operator, by Gemm's alpha.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from driftnet.model import graph
from driftnet.model.artifact import UNTOLD, Layer
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import AFFINE
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import formulas
from driftnet.oracle.tolerances.table import LAYER_FLOAT_ERROR, LAYER_SCALE_ERROR, PARAMETER_HALF_STEP
from driftnet.targets.interface import Scheme
from msgspec import structs

TIER = Tier.ARTIFACT


@dataclass(frozen=True, eq=False)
class Weights:
    """The constant weights of one operator, float64 [channels, n] in the order that a layer holds them.

    factors  what a converter may multiply them by, [channels, 1], or [channels, n] where a row holds several channels
    """

    node: Node
    matrix: np.ndarray
    factors: np.ndarray


def misquantized(question: Question) -> Verdict | None:
    """The verdict on the first layer with a weight or a scale that is not what it should be, if there is one.

    Only a layer is accused that should make the result of an operator of so many weights, with nothing to fold beside.
    """
    if question.scheme is None or not question.scheme.nearest_weights:
        return None
    weights = list(weights_of(question.graph))
    for layer in read(question):
        fitting = [w for w in weights if _holds(layer, w)] or weights
        own = [
            w for w in fitting if _belongs_to(layer, w.node, question.graph) and w.matrix.shape == layer.weights.shape
        ]
        problems = [problem(layer, w, question.scheme) for w in own]
        if problems and all(problems):
            return problems[0]
    return None


def dequantized(question: Question) -> Question | None:
    """The same question of the float model with the weights of the artifact; None unless they say it all.

    They do where only weights are quantized, and each layer holds the weights of an operator.
    """
    scheme, layers = question.scheme, read(question)
    if scheme is None or scheme.activation_codes is not None or not layers:
        return None
    weights = list(weights_of(question.graph))
    users = Counter(node.inputs[1] for node in question.graph.nodes if formulas.has_weights(question.graph, node))
    replaced: dict[str, np.ndarray] = {}
    for layer in layers:
        found = next((w for w in weights if _holds(layer, w) and w.node.inputs[1] not in replaced), None)
        if found is None or users[found.node.inputs[1]] > 1 or not found.factors.all():
            return None
        shape = question.graph.constants[found.node.inputs[1]].shape
        replaced[found.node.inputs[1]] = in_place(found.node, layer.weights / found.factors, shape)
    case = dataclasses.replace(
        question.case, model=graph.with_values(question.case.proto, replaced).SerializeToString()
    )
    expected = question.reference.run(case)
    if not expected.outputs:
        return None
    return dataclasses.replace(question, case=case, expected=expected.outputs, scheme=None, artifact=UNTOLD)


def read(question: Question) -> list[Layer]:
    """The layers of the artifact. A channel of zeros may have any scale, NaN too."""
    return [
        structs.replace(
            layer,
            weights=np.where(np.isfinite(layer.weights), layer.weights, 0),
            scales=np.where(np.isfinite(layer.scales), layer.scales, 0),
        )
        for layer in question.artifact.layers
    ]


def weights_of(model: Graph) -> Iterator[Weights]:
    """The constant weights of each operator, once for each factor that may have been multiplied into them."""
    for node in model.nodes:
        values = model.constants[node.inputs[1]] if formulas.has_weights(model, node) else np.zeros(0)
        if (
            not values.size
            or values.dtype.kind != "f"
            or (values.ndim != 2 if node.op == "MatMul" else values.ndim > 4)
        ):
            continue  # engines write a 3-D convolution as several 2-D ones or as a matrix product
        matrix = _matrix(node, values.astype(np.float64))
        plain = np.ones((len(matrix), 1))
        yield Weights(node, matrix, plain)
        if (alpha := float(node.attributes.get("alpha", 1.0))) != 1.0:
            yield Weights(node, matrix, alpha * plain)
        for factors in _norm_factors(model, node):
            if factors.size == len(matrix):
                yield Weights(node, matrix, _spread(node, factors, values.shape))


def _matrix(node: Node, values: np.ndarray) -> np.ndarray:
    """Weights as [channels of the output, n]."""
    if node.op == "Conv" or (node.op == "Gemm" and node.attributes.get("transB", 0)):
        return values.reshape(len(values), -1)
    if node.op in ("Gemm", "MatMul"):
        return values.T
    # The engine cuts the weights of ConvTranspose, [inputs, outputs / group, ...], into equal pieces as they lie.
    return values.reshape(values.shape[1] * int(node.attributes.get("group", 1)), -1)


def _spread(node: Node, factors: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The factor of its channel for each row, or each weight, of `_matrix`."""
    if node.op != "ConvTranspose":
        return factors[:, None]
    group = int(node.attributes.get("group", 1))
    each = np.repeat(factors.reshape(group, -1), shape[0] // group, axis=0)  # [inputs, outputs / group]
    return _matrix(node, np.broadcast_to(each.reshape(*each.shape, *[1] * (len(shape) - 2)), shape))


def in_place(node: Node, matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse of `_matrix`."""
    transposed = node.op == "MatMul" or (node.op == "Gemm" and not node.attributes.get("transB", 0))
    return np.asarray((matrix.T if transposed else matrix.reshape(shape)).astype(np.float32))


def _norm_factors(model: Graph, node: Node) -> Iterator[np.ndarray]:
    """What the BatchNormalizations that alone follow `node` multiply each channel by: the first, the first two, ..."""
    product, result = np.ones(1), node.outputs[0]
    while True:
        followers = [n for n in model.nodes if result in n.inputs]
        if len(followers) != 1 or followers[0].op != "BatchNormalization":
            return
        norm = followers[0]
        scale, variance = (model.constants.get(norm.inputs[k]) for k in (1, 4))
        if scale is None or variance is None:
            return
        epsilon = float(norm.attributes.get("epsilon", 1e-5))
        with np.errstate(divide="ignore", invalid="ignore"):  # a variance may be anything
            product = product * (scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon))
        yield product
        result = norm.outputs[0]


def _holds(layer: Layer, weights: Weights) -> bool:
    return weights.matrix.shape == layer.weights.shape and bool((distance(layer, weights) <= _bound(layer)).all())


def problem(layer: Layer, weights: Weights, scheme: Scheme) -> Verdict | None:
    """What is wrong with a layer that holds these weights: one is too far off, or the scale is not by the formula."""
    if not np.isfinite(weights.matrix * weights.factors).all():
        return None
    highest = scheme.weight_codes[1] if scheme.weight_codes else 0
    largest = np.abs(weights.matrix * weights.factors).max(axis=1, initial=0.0)
    off, bound = distance(layer, weights), _bound(layer)
    if not scheme.nearest_weights:
        size = np.abs(layer.weights)
        clipped = (size >= (highest - 0.5) * layer.steps) & (size <= np.abs(weights.matrix * weights.factors))
        off = np.where(clipped, 0.0, off)
        bound = 2 * bound  # and moves once more when the codes are there: .75 of a step were seen
    if (off > bound).any():
        return _accused(layer, weights)
    scales = layer.scales[:, 0]
    wrong = np.abs(scales * highest - largest) > LAYER_SCALE_ERROR * largest + LAYER_FLOAT_ERROR * largest.max(
        initial=0.0
    )
    if not (scheme.nearest_weights and scheme.symmetric_weights and layer.scales.shape[1] == 1 and wrong.any()):
        return None
    channel = int(np.argmax(wrong))
    message = (
        f"the scale of channel {channel} of {weights.node.op} {weights.node.outputs[0]!r} is {scales[channel]:.7g}, "
        f"should be {largest[channel] / highest:.7g}"
    )
    error = abs(float(scales[channel] * highest - largest[channel]))
    return _verdict(weights.node, message, error, LAYER_SCALE_ERROR * float(largest[channel]))


def distance(layer: Layer, weights: Weights) -> np.ndarray:
    """How far each weight of the layer is from what it should be."""
    return np.asarray(np.abs(layer.weights - weights.matrix * weights.factors))


def _bound(layer: Layer) -> np.ndarray:
    return PARAMETER_HALF_STEP * layer.steps.astype(np.float64) + LAYER_FLOAT_ERROR * float(
        np.abs(layer.weights).max(initial=0.0)
    )


def _belongs_to(layer: Layer, node: Node, model: Graph) -> bool:
    """Whether the layer should make the node's result, and nothing around it could be folded into the layer."""
    if layer.result != node.outputs[0] or node.op == "ConvTranspose":
        return False
    neighbours = [n for n in model.nodes if node.outputs[0] in n.inputs or set(n.outputs) & set(node.inputs)]
    return not any(n.op in AFFINE for n in neighbours)


def _accused(layer: Layer, weights: Weights) -> Verdict:
    off, bound = distance(layer, weights), _bound(layer)
    channel, element = np.unravel_index(int(np.argmax(off / np.maximum(bound, 1e-30))), off.shape)
    error, allowed = float(off[channel, element]), float(bound[channel, element])
    right = float((weights.matrix * weights.factors)[channel, element])
    node = weights.node
    message = (
        f"weight {element} of channel {channel} of {node.op} {node.outputs[0]!r} is dequantized to "
        f"{layer.weights[channel, element]:.6g}, should be within half a step of {right:.6g}: "
        f"error {error:.3g}, bound {allowed:.3g}"
    )
    return _verdict(node, message, error, allowed)


def _verdict(node: Node, message: str, error: float, bound: float) -> Verdict:
    return Verdict(
        Word.DIVERGES,
        TIER,
        stage="quantize",
        kind=Kind.WRONG_VALUES,
        message=message,
        output=node.outputs[0],
        error=error,
        bound=bound,
        culprits=((node.outputs[0], node.op),),
    )
