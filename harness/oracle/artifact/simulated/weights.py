"""The artifact tier for artifacts that are no ONNX, but whose layers can be read: weights as they were quantized.

Two questions, of which neither carries quantization noise:
parameters  each weight is dequantized to within half a step of what it was, |deq(Wq) - W| <= s/2 (1 + 2e-4)
            and a scale of symmetric weights is the largest of its channel over the highest code
execution   with W := deq(Wq) in the float model, the outputs are those of a float model, and the tiers for floats
            judge (only where nothing but weights is quantized)

A layer belongs to the operator whose weights it holds, or, where its name says so, should hold. A converter may have
multiplied them: by the factors of a BatchNormalization behind the operator, by Gemm's alpha.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from driftnet.model import graph
from driftnet.model.artifact import UNTOLD, Layer
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import AFFINE
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import formulas
from driftnet.oracle.scheme.folding import fold
from driftnet.oracle.tolerances.table import (
    FITTED_EPSILON,
    LAYER_FLOAT_ERROR,
    LAYER_SCALE_ERROR,
    NEGLIGIBLE,
    PARAMETER_HALF_STEP,
    TIE,
)
from driftnet.targets.interface import Scheme
from msgspec import structs

TIER = Tier.ARTIFACT


@dataclass(frozen=True, eq=False)
class Weights:
    """The constant weights of one operator, float64 [channels, n] in the order that a layer holds them.

    factors  what a converter may multiply them by, an array that broadcasts with them
    result   what they make then: of the operator, or of the last BatchNormalization whose factors these are
    """

    node: Node
    matrix: np.ndarray
    factors: np.ndarray
    result: str = ""

    @cached_property
    def wanted(self) -> np.ndarray:
        """What a layer should hold."""
        return np.asarray(self.matrix * self.factors)


def misquantized(question: Question) -> Verdict | None:
    """The verdict on the first layer with a weight or a scale that is not what it should be, if there is one.

    Only a layer is accused that should make the result of an operator of so many weights, with nothing to fold beside.
    """
    if question.scheme is None or not question.scheme.nearest_weights:
        return None
    weights = list(weights_of(question.graph))
    for layer in layers_of(question):
        fitting = [w for w in weights if _holds(layer, w)] or weights
        own = [w for w in fitting if _belongs_to(layer, w, question.graph)]
        problems = [problem(layer, w, question.scheme) for w in own]
        if problems and all(problems):
            return problems[0]
    return None


def with_and_without_wrong(question: Question) -> tuple[bytes, bytes] | None:
    """The float model with the weights of each layer that is accused: as the artifact holds them, and as near to these
    as they may be; None where no weight is wrong."""
    scheme, model = question.scheme, question.graph
    if scheme is None:
        return None
    held: dict[str, np.ndarray] = {}
    right: dict[str, np.ndarray] = {}
    for layer in layers_of(question):
        own = [w for w in weights_of(model) if _belongs_to(layer, w, model) and w.factors.all()]
        problems = [problem(layer, w, scheme) for w in own]
        if not problems or not all(problems):
            continue
        nearest = min(own, key=lambda w: distance_of(layer, w).max(initial=0.0))
        bound, name = _allowed(layer, nearest, scheme), nearest.node.inputs[1]
        moved = np.clip(layer.weights, nearest.wanted - bound, nearest.wanted + bound)
        if (moved == layer.weights).all():  # its scale is wrong, and with that everything
            return None
        for values, matrix in ((held, layer.weights), (right, moved)):
            stored = model.constants[name]
            values[name] = in_place(nearest.node, matrix / nearest.factors, stored.shape).astype(stored.dtype)
    if not held:
        return None
    proto = question.case.proto
    return graph.with_values(proto, held).SerializeToString(), graph.with_values(proto, right).SerializeToString()


def dequantized(question: Question) -> Question | None:
    """The same question of the float model with the weights of the artifact; None unless they say it all.

    They do where only weights are quantized, and each layer holds the weights of an operator.
    """
    scheme, layers, model = question.scheme, layers_of(question), question.graph
    if scheme is None or scheme.activation_codes is not None or not layers:
        return None
    weights = list(weights_of(model))
    users = Counter(node.inputs[1] for node in model.nodes if formulas.has_weights(model, node))
    replaced: dict[str, np.ndarray] = {}
    for layer in layers:
        found = next((w for w in weights if _holds(layer, w) and w.node.inputs[1] not in replaced), None)
        if found is None or users[found.node.inputs[1]] > 1 or not found.factors.all():
            return None
        name = found.node.inputs[1]
        replaced[name] = in_place(found.node, layer.weights / found.factors, model.constants[name].shape)
    proto = graph.with_values(question.case.proto, replaced)
    case = dataclasses.replace(question.case, model=proto.SerializeToString())
    expected = question.reference.run(case)
    if not expected.outputs:
        return None
    return dataclasses.replace(question, case=case, expected=expected.outputs, scheme=None, artifact=UNTOLD)


def layers_of(question: Question) -> list[Layer]:
    """The layers of the artifact. A channel of zeros may have any scale, NaN too."""

    def known(x: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(x), x, 0)

    layers = question.artifact.layers
    return [structs.replace(layer, weights=known(layer.weights), scales=known(layer.scales)) for layer in layers]


def weights_of(model: Graph) -> Iterator[Weights]:
    """The constant weights of each operator, once for each factor that may have been multiplied into them."""
    for node in model.nodes:
        values = model.constants[node.inputs[1]] if formulas.has_weights(model, node) else np.zeros(0)
        # Engines write a 3-D convolution as several 2-D ones or as a matrix product.
        fitting = values.ndim == 2 if node.op == "MatMul" else values.ndim <= 4
        if not values.size or values.dtype.kind != "f" or not fitting:
            continue
        matrix = _matrix(node, values.astype(np.float64))
        yield Weights(node, matrix, np.ones(()))
        if (alpha := float(node.attributes.get("alpha", 1.0))) != 1.0:
            yield Weights(node, matrix, np.asarray(alpha))
        for norms in _norms(model, node):
            with np.errstate(divide="ignore", invalid="ignore"):  # a variance may be anything
                folded = fold(node, {1: np.ones(values.shape)}, norms, model.constants).get(1)
            if folded is not None:
                yield Weights(node, matrix, _matrix(node, folded), norms[-1].outputs[0])


def _norms(model: Graph, node: Node) -> Iterator[list[Node]]:
    """The BatchNormalizations that alone follow `node`: the first, the first two, ..."""
    norms: list[Node] = []
    while len(readers := model.readers(node.outputs[0])) == 1 and readers[0].op == "BatchNormalization":
        node = readers[0]
        if not model.constants.keys() >= set(node.inputs[1:5]):
            return
        norms.append(node)
        yield list(norms)


def _matrix(node: Node, values: np.ndarray) -> np.ndarray:
    """Weights as [channels of the output, n]."""
    if _is_transposed(node):
        return values.T
    # The engine cuts the weights of ConvTranspose, [inputs, outputs / group, ...], into equal pieces as they lie.
    cut = values.shape[1] * int(node.attributes.get("group", 1)) if node.op == "ConvTranspose" else len(values)
    return values.reshape(cut, -1)


def in_place(node: Node, matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse of `_matrix`."""
    return np.asarray((matrix.T if _is_transposed(node) else matrix.reshape(shape)).astype(np.float32))


def _is_transposed(node: Node) -> bool:
    return node.op != "ConvTranspose" and not formulas.is_outputs_first(node)


def _holds(layer: Layer, weights: Weights) -> bool:
    return weights.matrix.shape == layer.weights.shape and bool((distance_of(layer, weights) <= _bound(layer)).all())


def problem(layer: Layer, weights: Weights, scheme: Scheme) -> Verdict | None:
    """What is wrong with a layer that holds these weights: one is too far off, or the scale is not by the formula."""
    if not np.isfinite(weights.wanted).all():
        return None
    off, bound = distance_of(layer, weights), _allowed(layer, weights, scheme)
    if (off > bound).any():
        half = "half a step" if scheme.nearest_weights else "half a step and half one of the first scale"
        return _too_far(layer, weights, off, bound, half)
    return _nearest(layer, weights, scheme) if scheme.nearest_weights else _fitted(layer, weights, _highest(scheme))


def _highest(scheme: Scheme) -> int:
    return scheme.weight_codes[1] if scheme.weight_codes else 0


def _allowed(layer: Layer, weights: Weights, scheme: Scheme) -> np.ndarray:
    """How far each weight may be from what it should be.

    One that is fitted was rounded as the nearest is before that, so it moves twice: by half a step and half a step of
    the first scale. One that is clipped may be anywhere beyond.
    """
    if scheme.nearest_weights:
        return _bound(layer)
    highest, wanted = _highest(scheme), weights.wanted
    bound = _bound(layer) + PARAMETER_HALF_STEP * _first_step(weights, highest) + FITTED_EPSILON * highest
    held = np.abs(layer.weights)
    clipped = (held >= (highest - 0.5) * layer.steps) & (held <= np.abs(wanted)) & (layer.weights * wanted >= 0)
    return np.where(clipped, np.inf, bound)


def _first_step(weights: Weights, highest: int) -> np.ndarray:
    return np.asarray(np.abs(weights.wanted).max(axis=1, initial=0.0, keepdims=True) / (highest or 1))


def _nearest(layer: Layer, weights: Weights, scheme: Scheme) -> Verdict | None:
    """The scale is that of the largest; each weight has the code nearest to it."""
    node, wanted, highest = weights.node, weights.wanted, _highest(scheme)
    largest, scales = np.abs(wanted).max(axis=1, initial=0.0), layer.scales[:, 0]
    error = np.abs(scales * highest - largest)
    negligible = LAYER_FLOAT_ERROR * largest.max(initial=0.0)
    # Of a channel of hardly anything a quantizer may choose another scale, as long as a step of it is nothing either;
    # of zeros any.
    wrong = (error > (LAYER_SCALE_ERROR + layer.room) * largest + negligible) & (scales > negligible) & (largest > 0)
    if not (scheme.symmetric_weights and layer.scales.shape[1] == 1 and wrong.any()):
        return None
    channel = int(np.argmax(wrong))
    return _wrong_scale(
        layer, node, channel, largest[channel] / highest, LAYER_SCALE_ERROR * largest[channel] / highest
    )


def _fitted(layer: Layer, weights: Weights, highest: int) -> Verdict | None:
    """The scale is fitted to the codes, and the codes to the scale, until neither changes; what is too large for them
    is clipped. So it is that of least squares, sum(w q) / sum(q q), of the codes q and the weights w as they were
    rounded first, as `_nearest` has it.
    """
    node, wanted, steps = weights.node, weights.wanted, layer.steps.astype(np.float64)
    first = _first_step(weights, highest)
    if layer.scales.shape[1] != 1:
        return None
    unit = np.where(first > 0, first, 1.0)
    codes = np.clip(np.rint(layer.weights / np.where(steps > 0, steps, np.inf)), -highest, highest)
    squares, tied = (codes * codes).sum(axis=1), np.abs(np.abs(wanted / unit) % 1 - 0.5) < TIE
    # Float32 sums, one after the other; a weight on a tie may have been rounded to either side.
    room = (first * np.abs(codes) * tied).sum(axis=1)
    for rounded in (np.rint(wanted / unit) * first, wanted):  # not every operator's are rounded first
        fitted, summed = (rounded * codes).sum(axis=1), np.abs(rounded * codes).sum(axis=1)
        allowed = room + (codes.shape[1] * np.finfo(np.float32).eps + LAYER_SCALE_ERROR) * summed
        off_by = np.abs(layer.scales[:, 0] * squares - fitted) - allowed
        if (off_by <= 0).all():
            return None
    channel = int(np.argmax(off_by))
    size = squares[channel] or 1.0
    return _wrong_scale(layer, node, channel, fitted[channel] / size, allowed[channel] / size)


def _too_far(layer: Layer, weights: Weights, off: np.ndarray, bound: np.ndarray, allowed: str) -> Verdict:
    node, worst = weights.node, np.unravel_index(int(np.argmax(off / np.maximum(bound, NEGLIGIBLE))), off.shape)
    message = (
        f"weight {worst[1]} of channel {worst[0]} of {node.op} {node.outputs[0]!r} is dequantized to "
        f"{layer.weights[worst]:.6g}, should be within {allowed} of {weights.wanted[worst]:.6g}: "
        f"error {off[worst]:.3g}, bound {bound[worst]:.3g}"
    )
    return misquantized_tensor(node.outputs[0], node, message, off[worst], bound[worst])


def _wrong_scale(layer: Layer, node: Node, channel: int, right: float, bound: float) -> Verdict:
    scale = float(layer.scales[channel, 0])
    message = f"the scale of channel {channel} of {node.op} {node.outputs[0]!r} is {scale:.7g}, should be {right:.7g}"
    return misquantized_tensor(node.outputs[0], node, message, abs(scale - right), bound)


def misquantized_tensor(name: str, maker: Node | None, message: str, error: float, bound: float) -> Verdict:
    """The verdict that the quantizer is wrong about tensor `name`, or about the weights that it is made with."""
    wrong = Verdict(Word.DIVERGES, TIER, "quantize", Kind.WRONG_VALUES, message, name)
    culprits = ((name, maker.op),) if maker else ()
    return dataclasses.replace(wrong, error=float(error), bound=float(bound), culprits=culprits)


def distance_of(layer: Layer, weights: Weights) -> np.ndarray:
    """How far each weight of the layer is from what it should be."""
    return np.asarray(np.abs(layer.weights - weights.wanted))


def _bound(layer: Layer) -> np.ndarray:
    largest = float(np.abs(layer.weights).max(initial=0.0))
    return PARAMETER_HALF_STEP * layer.steps.astype(np.float64) + (LAYER_FLOAT_ERROR + layer.room) * largest


def _belongs_to(layer: Layer, weights: Weights, model: Graph) -> bool:
    """Whether the layer should make the node's result, and nothing around it could be folded into the layer."""
    node = weights.node
    if layer.result != node.outputs[0] or node.op == "ConvTranspose" or weights.matrix.shape != layer.weights.shape:
        return False
    neighbours = [n for n in model.nodes if node.outputs[0] in n.inputs or set(n.outputs) & set(node.inputs)]
    return not any(n.op in AFFINE for n in neighbours)
