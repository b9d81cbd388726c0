"""Dyadic grids: what each operator makes of tensors whose values are multiples of a power of two.

A rule gives the grid on which the result of a node, and every partial sum on the way to it, lies, or None where it
rounds, or where right implementations may differ. The tier that asks is `exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.oracle.balls.ball import is_float
from harness.oracle.graph import Graph, Node, Values

SIGNIFICAND = {"float16": (11, -14, 15), "float32": (24, -126, 127), "float64": (53, -1022, 1023)}
"""dtype -> bits of the significand, exponent of the smallest and of the largest normal number"""
NUMERIC = "biufV"
"""kinds of dtypes that are numbers; V are those of ml_dtypes: integers of 4 bits, bfloat16, floats of 8 bits"""


@dataclass(frozen=True)
class Grid:
    """Multiples of 2**lsb with magnitude at most `size`. size is infinite where a value is NaN or infinite."""

    size: float
    lsb: int


NOTHING = Grid(0.0, 0)


class UnrecordedError(Exception):
    """A value is a sequence, or of a type that numpy cannot hold."""


def grid_of(x: np.ndarray) -> Grid:
    """The coarsest grid that holds every element of `x`; NOTHING for text, with which no rule calculates."""
    if x.dtype.kind not in NUMERIC or not x.size:
        return NOTHING
    numbers = x.astype(np.float64)
    size = float(np.max(np.abs(numbers)))
    if not math.isfinite(size):
        return Grid(math.inf, 0)
    if x.dtype.kind in "biu":
        return Grid(size, 0)
    significand, exponent = np.frexp(numbers[numbers != 0])
    if not significand.size:
        return NOTHING
    integers = np.abs(np.ldexp(significand, 53)).astype(np.int64)
    lowest_bit = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    return Grid(size, int(np.min(lowest_bit + exponent)) - 53)


@dataclass(frozen=True)
class Application:
    """One node of `graph` about to be followed: the grids of its operands, and the recorded value of each tensor."""

    graph: Graph
    node: Node
    known: Mapping[str, Grid]
    values: Values

    def grid(self, k: int) -> Grid:
        """Grid of operand k; that of nothing when it is absent."""
        name = self.node.input(k)
        return self.known[name] if name else NOTHING

    def grids(self) -> list[Grid]:
        return [self.known[name] for name in self.node.inputs if name]

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

    def fits(self, grid: Grid) -> Grid | None:
        """`grid` if every multiple of it up to its size is a number of the output's dtype, else None."""
        dtype = self.value(self.node.outputs[0]).dtype
        if dtype.kind in "biu":
            return grid if grid.size < 2.0 ** (8 * dtype.itemsize - 1) else None
        if dtype.name not in SIGNIFICAND:
            return None
        bits, lowest, highest = SIGNIFICAND[dtype.name]
        if grid.size == 0:
            return grid
        exponent = math.frexp(grid.size)[1] if math.isfinite(grid.size) else highest + 1
        return grid if exponent - grid.lsb <= bits and grid.lsb >= lowest and exponent <= highest else None


Rule = Callable[[Application], Grid | None]


def _union(grids: Sequence[Grid]) -> Grid:
    used = [g for g in grids if g.size] or [NOTHING]
    return Grid(max(g.size for g in used), min(g.lsb for g in used))


def _sum(grids: Sequence[Grid]) -> Grid:
    return Grid(sum(g.size for g in grids), _union(grids).lsb)


def _product(a: Grid, b: Grid) -> Grid:
    if a.size and b.size:
        return Grid(a.size * b.size, a.lsb + b.lsb)
    return NOTHING if math.isfinite(a.size + b.size) else Grid(math.inf, 0)  # 0 times infinity is NaN


def _scalar(x: float) -> Grid:
    return grid_of(np.asarray(x, np.float32))


def _move(at: Application) -> Grid | None:
    """Elements of the operands (of any dtype), each somewhere."""
    return _union(at.grids()) if at.attribute("reduction", "none") == "none" else None


def _move_first(at: Application) -> Grid | None:
    """Elements of the first operand; the others say where."""
    return at.grid(0)


def _dropout(at: Application) -> Grid | None:
    return None if at.node.input(2) else at.grid(0)


def _select(at: Application) -> Grid | None:
    """Like moving, but which element is taken depends on comparisons, and engines differ on NaN."""
    grid = _union(at.grids())
    return grid if math.isfinite(grid.size) else None


def _select_first(at: Application) -> Grid | None:
    return at.grid(0) if math.isfinite(at.grid(0).size) else None


def _max_pool(at: Application) -> Grid | None:
    """No standard says which of equal maxima the indices tell."""
    return None if any(at.node.outputs[1:]) else _select_first(at)


def _fill(at: Application) -> Grid | None:
    return grid_of(np.asarray(at.attribute("value", np.float32(0))))


def _integer(at: Application) -> Grid | None:
    """Integers or truth values, decided by numbers that are exactly known, and so measured."""
    if any(not math.isfinite(g.size) for g in at.grids()):
        return None
    return _union([grid_of(at.value(name)) for name in at.node.outputs if name])


def _range(at: Application) -> Grid | None:
    """Each element is a product and a sum, or a sum of as many steps as lie before it."""
    count = at.value(at.node.outputs[0]).size
    return at.fits(_sum([at.grid(0), Grid(count * at.grid(2).size, at.grid(2).lsb)]))


def _one_hot(at: Application) -> Grid | None:
    """Engines differ on an index between two numbers."""
    return _integer(at) if at.grid(0).lsb >= 0 else None


def _cast(at: Application) -> Grid | None:
    if at.value(at.node.outputs[0]).dtype.kind != "f":
        return _integer(at)
    source = at.value(at.node.inputs[0])
    if source.dtype.kind not in NUMERIC:
        return None
    return at.fits(at.grid(0) if source.dtype.kind == "f" else grid_of(source))


def _round(at: Application) -> Grid | None:
    return Grid(at.grid(0).size + 1, max(at.grid(0).lsb, 0)) if math.isfinite(at.grid(0).size) else None


def _add(at: Application) -> Grid | None:
    return at.fits(_sum(at.grids()))


def _multiply(at: Application) -> Grid | None:
    return at.fits(_product(at.grid(0), at.grid(1)))


def _mean(at: Application) -> Grid | None:
    return _divided(at, _sum(at.grids()), len(at.grids()))


def _divided(at: Application, total: Grid, count: int) -> Grid | None:
    """total / count, both as a division and as a factor on each summand; exact for powers of two."""
    if count < 1 or count & (count - 1):
        return None
    return at.fits(Grid(total.size, total.lsb - count.bit_length() + 1))


def _clip(at: Application) -> Grid | None:
    bounds = [_scalar(at.attribute(name, 0.0)) for name in ("min", "max") if name in at.node.attributes]
    grid = _union([*at.grids(), *bounds])
    return grid if math.isfinite(grid.size) else None


def _leaky(at: Application) -> Grid | None:
    slope = at.grid(1) if at.node.op == "PRelu" else _scalar(at.attribute("alpha", 0.01))
    return at.fits(_union([at.grid(0), _product(at.grid(0), slope)]))


def _linear(at: Application, weights: np.ndarray | None, count: int, weight: Grid) -> Grid:
    """Sums of `count` products; `weights` is constant (outputs x summands), where known."""
    products = _product(at.grid(0), weight)
    if not products.size or not math.isfinite(products.size):
        return products
    total = float(np.abs(weights).astype(np.float64).sum(-1).max()) if weights is not None else count * weight.size
    return Grid(at.grid(0).size * total, products.lsb)


def _convolution(at: Application) -> Grid | None:
    weights, shape = at.constant(1), at.shape(1)
    transposed = at.node.op == "ConvTranspose"
    groups = int(at.attribute("group", 1))
    count = math.prod(shape[1:]) if not transposed else shape[0] // max(groups, 1) * math.prod(shape[2:])
    rows = None
    if weights is not None and weights.size:
        if transposed:
            weights = np.moveaxis(weights.reshape(groups, -1, *shape[1:]), 2, 1)
        rows = weights.reshape(-1, count)
    return at.fits(_sum([_linear(at, rows, count, at.grid(1)), at.grid(2)]))


def _matmul(at: Application) -> Grid | None:
    weights, count = at.constant(1), at.shape(0)[-1] if at.shape(0) else 1
    rows = np.moveaxis(weights, -2, -1) if weights is not None and weights.ndim > 1 and weights.size else None
    return at.fits(_linear(at, rows, count, at.grid(1)))


def _gemm(at: Application) -> Grid | None:
    weights, shape = at.constant(1), at.shape(1)
    transposed = bool(at.attribute("transB", 0))
    rows = None if weights is None or not weights.size else weights if transposed else weights.T
    product = _linear(at, rows, shape[1 if transposed else 0], at.grid(1))
    scaled = [
        _product(product, _scalar(at.attribute("alpha", 1.0))),
        _product(at.grid(2), _scalar(at.attribute("beta", 1.0))),
    ]
    return at.fits(_sum([*scaled, product, at.grid(2)]))


def _batch_normalization(at: Application) -> Grid | None:
    variance = at.constant(4)
    if variance is None or at.attribute("training_mode", 0) or any(at.node.outputs[1:]):
        return None
    spread = variance.astype(np.float64) + np.float32(at.attribute("epsilon", 1e-5))
    deviation = np.sqrt(np.maximum(spread, 0))
    if not (np.frexp(deviation)[0] == 0.5).all():
        return None
    factor = _product(at.grid(1), grid_of(1 / deviation))
    centred = _sum([at.grid(0), at.grid(3)])
    parts = [_product(centred, factor), _product(centred, at.grid(1)), centred, at.grid(2)]
    return at.fits(_sum(parts))


def _pool(at: Application) -> Grid | None:
    kernel = [int(k) for k in at.attribute("kernel_shape", ())]
    padded = any(at.attribute("pads", ())) or at.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if at.attribute("ceil_mode", 0) or (padded and not at.attribute("count_include_pad", 0)):
        return None
    return _divided(at, Grid(at.grid(0).size * math.prod(kernel), at.grid(0).lsb), math.prod(kernel))


def _reduced(at: Application) -> int:
    """How many elements make one."""
    before = at.value(at.node.inputs[0]).size
    return before // max(at.value(at.node.outputs[0]).size, 1)


def _reduce_sum(at: Application) -> Grid | None:
    return at.fits(Grid(at.grid(0).size * _reduced(at), at.grid(0).lsb))


def _reduce_mean(at: Application) -> Grid | None:
    return _divided(at, Grid(at.grid(0).size * _reduced(at), at.grid(0).lsb), _reduced(at))


def _cumulate(at: Application) -> Grid | None:
    axis = int(at.value(at.node.input(1)).item())
    return at.fits(Grid(at.grid(0).size * at.shape(0)[axis], at.grid(0).lsb))


def _resize(at: Application) -> Grid | None:
    """Scales that are powers of two: a coordinate is then an exact binary fraction, and so is a linear weight."""
    before, after = at.shape(0), at.value(at.node.outputs[0]).shape
    ratios = [a / b for a, b in zip(after, before) if a != b and b]
    scales = at.constant(2 if at.node.op == "Resize" and at.graph.opset > 10 else 1)
    named = np.asarray([] if scales is None else scales, np.float64)
    if any(math.frexp(r)[0] != 0.5 for r in (*ratios, *named)):
        return None
    if at.attribute("coordinate_transformation_mode", "half_pixel") not in ("half_pixel", "asymmetric"):
        return None
    if at.attribute("antialias", 0) or at.attribute("exclude_outside", 0):
        return None
    match at.attribute("mode", "nearest"):
        case "nearest":
            return at.grid(0)
        case "linear":
            bits = sum(abs(math.frexp(r)[1] - 1) + 1 for r in ratios)
            return at.fits(Grid(at.grid(0).size, at.grid(0).lsb - bits))
    return None


def _dequantize(at: Application) -> Grid | None:
    code = _sum([grid_of(at.value(at.node.inputs[0])), at.grid(2)])
    return at.fits(_product(code, at.grid(1)))


def _quantize(at: Application) -> Grid | None:
    """Codes that are integers, by a scale that can be divided by or multiplied with. float8 has ties of its own."""
    scale = at.value(at.node.inputs[1])
    if is_float(at.value(at.node.outputs[0]).dtype):
        return None
    return _integer(at) if bool((np.frexp(scale.astype(np.float64))[0] == 0.5).all()) else None


def _table(rules: Mapping[Rule, str]) -> dict[str, Rule]:
    return {op: rule for rule, ops in rules.items() for op in ops.split()}


RULES: Mapping[str, Rule] = _table(
    {
        _move: "Concat Where Pad Identity ScatterElements ScatterND",
        _move_first: "Reshape Transpose Squeeze Unsqueeze Flatten Expand Tile Slice Gather GatherElements GatherND "
        "Split DepthToSpace SpaceToDepth ReverseSequence Compress Trilu",
        _dropout: "Dropout",
        _select: "Max Min Relu Abs Neg",
        _max_pool: "MaxPool",
        _select_first: "GlobalMaxPool ReduceMax ReduceMin ThresholdedRelu",
        _clip: "Clip",
        _fill: "ConstantOfShape",
        _integer: "Shape Size Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor Not ArgMax ArgMin NonZero "
        "Sign BitwiseAnd BitwiseOr BitwiseXor BitwiseNot",
        _range: "Range",
        _one_hot: "OneHot",
        _cast: "Cast",
        _round: "Round Floor Ceil",
        _add: "Add Sub Sum",
        _multiply: "Mul",
        _mean: "Mean",
        _leaky: "LeakyRelu PRelu",
        _convolution: "Conv ConvTranspose",
        _matmul: "MatMul",
        _gemm: "Gemm",
        _batch_normalization: "BatchNormalization",
        _pool: "AveragePool",
        _reduce_sum: "ReduceSum ReduceL1",
        _reduce_mean: "ReduceMean GlobalAveragePool",
        _cumulate: "CumSum",
        _resize: "Resize Upsample",
        _dequantize: "DequantizeLinear",
        _quantize: "QuantizeLinear",
    }
)
WITHOUT_ARITHMETIC = frozenset(
    {_move, _move_first, _dropout, _select, _select_first, _max_pool, _clip, _fill, _integer, _one_hot, _round}
)
MOVEMENT = frozenset({_move, _move_first})
