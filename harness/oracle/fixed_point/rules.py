"""What each operator makes of tensors in fixed point: a short rule each.

A rule gives the fixed-point format that holds the result of a node and every partial sum on the way to it, or None
where something rounds, or where right implementations may differ. What an operator decides (a comparison, a cast to
integers) is exact where ball arithmetic, told the operands, knows one answer only. The tier that asks is `exact`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from driftnet.model.graph import Graph, Node, Values
from driftnet.model.operators import Trait, having, settings
from driftnet.oracle.ball_arithmetic.ball import Ball, is_float
from driftnet.oracle.ball_arithmetic.evaluate import applied
from driftnet.oracle.fixed_point.fixed_point import (
    NOTHING,
    NUMERIC,
    FixedPoint,
    fixed_point_of,
    of_number,
    product,
    total,
    union,
)


class UnrecordedError(Exception):
    """A value is a sequence, or of a type that numpy cannot hold."""


@dataclass(frozen=True)
class Application:
    """One node of `graph` about to be followed: the formats of its operands, and the recorded value of each tensor."""

    graph: Graph
    node: Node
    known: Mapping[str, FixedPoint]
    values: Values

    def operand(self, k: int) -> FixedPoint:
        """The format of operand k; that of nothing when it is absent."""
        name = self.node.input(k)
        return self.known[name] if name else NOTHING

    def operands(self) -> list[FixedPoint]:
        return [self.known[name] for name in self.node.inputs if name]

    def data(self) -> list[FixedPoint]:
        """The formats of the operands that are no mere settings."""
        fixed = settings(self.node.op)
        return [self.known[name] for k, name in enumerate(self.node.inputs) if name and k not in fixed]

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attributes.get(name, default)

    def constant(self, k: int) -> np.ndarray | None:
        return self.graph.constants.get(self.node.input(k))

    def value(self, name: str) -> np.ndarray:
        if name not in self.values:
            raise UnrecordedError(name)
        return self.values[name]

    def shape(self, k: int) -> tuple[int, ...]:
        return self.value(self.node.input(k)).shape

    @property
    def result(self) -> np.ndarray:
        return self.value(self.node.outputs[0])

    def fitting(self, found: FixedPoint) -> FixedPoint | None:
        """`found` if the dtype of the result holds all its numbers, else None."""
        return found if found.fits(self.result.dtype) else None


Rule = Callable[[Application], FixedPoint | None]
RULES: dict[str, Rule] = {}


def _rule(*operators: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, rule))
        return rule

    return register


# The index of a OneHot may lie between two, and those of a MaxUnpool may be the same; a Dropout may have a mask.
# Scatter has left the standard.
@_rule(*(having(Trait.MOVES) - {"OneHot", "MaxUnpool", "Dropout", "Scatter"}))
def _move(at: Application) -> FixedPoint | None:
    """Elements of the operands (of any dtype), each somewhere; the settings say where."""
    return union(at.data()) if at.attribute("reduction", "none") == "none" else None


@_rule("Dropout")
def _dropout(at: Application) -> FixedPoint | None:
    """Before opset 12 nobody said what the mask is outside of training."""
    masked = any(at.node.outputs[1:]) and at.graph.opset < 12
    return None if masked or at.node.input(2) else at.operand(0)


# The cells of a MaxRoiPool are rounded.
@_rule(*(having(Trait.EXTREME) - {"MaxRoiPool"}), "Abs", "Neg", "ThresholdedRelu")
def _select(at: Application) -> FixedPoint | None:
    """Like moving, but which element is taken depends on comparisons. Engines differ on NaN, and no standard says which
    of equal maxima the indices of a MaxPool tell."""
    bounds = [of_number(at.node.attributes[name]) for name in ("min", "max") if name in at.node.attributes]
    found = union([*at.data(), *bounds])
    return None if any(at.node.outputs[1:]) or not math.isfinite(found.size) else found


@_rule("ConstantOfShape")
def _fill(at: Application) -> FixedPoint | None:
    return fixed_point_of(np.asarray(at.attribute("value", np.float32(0))))


def _measured(at: Application) -> FixedPoint | None:
    """What is decided by numbers, which are exactly known."""
    if any(not math.isfinite(operand.size) for operand in at.operands()):
        return None
    return union([fixed_point_of(at.value(name)) for name in at.node.outputs if name])


@_rule(
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not", "Sign", "Shape", "Size"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "ArgMax", "ArgMin", "NonZero", "OneHot"),
)
def _decide(at: Application) -> FixedPoint | None:
    """What is decided by numbers, and leaves no choice."""
    results = applied(at.node, {name: at.value(name) for name in at.node.inputs if name}, at.graph.opset).balls
    balls = [results.get(name) for name in at.node.outputs if name]
    return _measured(at) if all(isinstance(ball, Ball) and not ball.error.any() for ball in balls) else None


@_rule("Cast", "CastLike")
def _cast(at: Application) -> FixedPoint | None:
    if at.result.dtype.kind != "f":
        return _decide(at)
    source = at.value(at.node.inputs[0])
    if source.dtype.kind not in NUMERIC:
        return None
    return at.fitting(at.operand(0) if is_float(source.dtype) else fixed_point_of(source))


@_rule("Round", "Floor", "Ceil")
def _round(at: Application) -> FixedPoint | None:
    x = at.operand(0)
    return FixedPoint(x.size + 1, max(x.lsb, 0)) if math.isfinite(x.size) else None


@_rule("Range")
def _range(at: Application) -> FixedPoint | None:
    """Each element is a product and a sum, or a sum of as many steps as lie before it."""
    return at.fitting(total([at.operand(0), at.operand(2).times(at.result.size)]))


@_rule("Add", "Sub", "Sum")
def _add(at: Application) -> FixedPoint | None:
    return at.fitting(total(at.operands()))


@_rule("Mul")
def _multiply(at: Application) -> FixedPoint | None:
    return at.fitting(product(at.operand(0), at.operand(1)))


@_rule("Mean")
def _mean(at: Application) -> FixedPoint | None:
    return _divided(at, total(at.operands()), len(at.operands()))


def _divided(at: Application, dividend: FixedPoint, count: int) -> FixedPoint | None:
    """dividend / count, both as a division and as a factor on each summand; exact for powers of two."""
    if count < 1 or count & (count - 1):
        return None
    return at.fitting(FixedPoint(dividend.size, dividend.lsb - count.bit_length() + 1))


@_rule("LeakyRelu", "PRelu")
def _leaky(at: Application) -> FixedPoint | None:
    slope = at.operand(1) if at.node.op == "PRelu" else of_number(at.attribute("alpha", 0.01))
    return at.fitting(union([at.operand(0), product(at.operand(0), slope)]))


def _linear(at: Application, weights: np.ndarray | None, count: int, weight: FixedPoint) -> FixedPoint:
    """Sums of `count` products; `weights` is constant (outputs x summands), where known."""
    products = product(at.operand(0), weight)
    if not products.size or not math.isfinite(products.size):
        return products
    each = float(np.abs(weights).astype(np.float64).sum(-1).max()) if weights is not None else count * weight.size
    return FixedPoint(at.operand(0).size * each, products.lsb)


@_rule("Conv", "ConvTranspose")
def _convolution(at: Application) -> FixedPoint | None:
    weights, shape = at.constant(1), at.shape(1)
    transposed = at.node.op == "ConvTranspose"
    groups = int(at.attribute("group", 1))
    count = math.prod(shape[1:]) if not transposed else shape[0] // max(groups, 1) * math.prod(shape[2:])
    rows = None
    if weights is not None and weights.size:
        if transposed:
            weights = np.moveaxis(weights.reshape(groups, -1, *shape[1:]), 2, 1)
        rows = weights.reshape(-1, count)
    return at.fitting(total([_linear(at, rows, count, at.operand(1)), at.operand(2)]))


@_rule("MatMul")
def _matmul(at: Application) -> FixedPoint | None:
    weights, count = at.constant(1), at.shape(0)[-1] if at.shape(0) else 1
    rows = np.moveaxis(weights, -2, -1) if weights is not None and weights.ndim > 1 and weights.size else None
    return at.fitting(_linear(at, rows, count, at.operand(1)))


@_rule("Gemm")
def _gemm(at: Application) -> FixedPoint | None:
    """alpha A B + beta C, and as much if alpha and beta come last."""
    weights, shape = at.constant(1), at.shape(1)
    transposed = bool(at.attribute("transB", 0))
    rows = None if weights is None or not weights.size else weights if transposed else weights.T
    products = _linear(at, rows, shape[1 if transposed else 0], at.operand(1))
    scaled = [
        product(products, of_number(at.attribute("alpha", 1.0))),
        product(at.operand(2), of_number(at.attribute("beta", 1.0))),
    ]
    return at.fitting(total([*scaled, products, at.operand(2)]))


@_rule("BatchNormalization")
def _batch_normalization(at: Application) -> FixedPoint | None:
    """By deviations that are powers of two; the factor may be multiplied into what is before it, or not."""
    variance = at.constant(4)
    if variance is None or at.attribute("training_mode", 0) or any(at.node.outputs[1:]):
        return None
    spread = variance.astype(np.float64) + np.float32(at.attribute("epsilon", 1e-5))
    deviation = np.sqrt(np.maximum(spread, 0))
    if not _are_powers_of_two(deviation):
        return None
    factor = product(at.operand(1), fixed_point_of(1 / deviation))
    centred = total([at.operand(0), at.operand(3)])
    parts = [product(centred, factor), product(centred, at.operand(1)), centred, at.operand(2)]
    return at.fitting(total(parts))


def _are_powers_of_two(x: np.ndarray) -> bool:
    return bool((np.frexp(x.astype(np.float64))[0] == 0.5).all())


@_rule("AveragePool")
def _pool(at: Application) -> FixedPoint | None:
    """The mean of windows that hold as many elements everywhere."""
    count = math.prod(int(k) for k in at.attribute("kernel_shape", ()))
    padded = any(at.attribute("pads", ())) or at.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if at.attribute("ceil_mode", 0) or (padded and not at.attribute("count_include_pad", 0)):
        return None
    return _divided(at, at.operand(0).times(count), count)


def _reduced(at: Application) -> int:
    """How many elements make one."""
    before = at.value(at.node.inputs[0]).size
    return before // max(at.result.size, 1)


@_rule("ReduceSum", "ReduceL1")
def _reduce_sum(at: Application) -> FixedPoint | None:
    """Whether ReduceL1 takes the magnitude where it reduces nothing, editions of the standard disagree."""
    if at.node.op == "ReduceL1" and at.attribute("noop_with_empty_axes", 0):
        return None
    return at.fitting(at.operand(0).times(_reduced(at)))


@_rule("ReduceMean", "GlobalAveragePool")
def _reduce_mean(at: Application) -> FixedPoint | None:
    return _divided(at, at.operand(0).times(_reduced(at)), _reduced(at))


@_rule("CumSum")
def _cumulate(at: Application) -> FixedPoint | None:
    axis = int(at.value(at.node.input(1)).item())
    return at.fitting(at.operand(0).times(at.shape(0)[axis]))


@_rule("Resize", "Upsample")
def _resize(at: Application) -> FixedPoint | None:
    """Scales that are powers of two: a coordinate is then an exact binary fraction, and so is a linear weight."""
    ratios = [after / before for after, before in zip(at.result.shape, at.shape(0)) if after != before and before]
    name = at.node.input(2 if at.node.op == "Resize" and at.graph.opset > 10 else 1)
    if not _are_powers_of_two(np.append(ratios, at.value(name) if name else ())):
        return None
    if at.attribute("coordinate_transformation_mode", "half_pixel") not in ("half_pixel", "asymmetric"):
        return None
    if at.attribute("antialias", 0) or at.attribute("exclude_outside", 0):
        return None
    match at.attribute("mode", "nearest"):
        case "nearest":
            return at.operand(0)
        case "linear":
            bits = sum(abs(math.frexp(r)[1] - 1) + 1 for r in ratios)
            return at.fitting(FixedPoint(at.operand(0).size, at.operand(0).lsb - bits))
    return None


@_rule("DequantizeLinear")
def _dequantize(at: Application) -> FixedPoint | None:
    code = total([fixed_point_of(at.value(at.node.inputs[0])), at.operand(2)])
    return at.fitting(product(code, at.operand(1)))


@_rule("QuantizeLinear")
def _quantize(at: Application) -> FixedPoint | None:
    """Codes that are integers, by a scale that can be divided by or multiplied with; halves go to even, says the
    standard. Floats of eight bits have ties of their own."""
    if is_float(at.result.dtype) or not _are_powers_of_two(at.value(at.node.inputs[1])):
        return None
    return _measured(at)


WITHOUT_ARITHMETIC = frozenset({_move, _dropout, _select, _fill, _decide, _round})
