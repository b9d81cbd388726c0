"""The words for a quantized ONNX model: integers that stand for reals, roundings, and float operations on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.model.graph import Graph, Node
from onnx import TensorProto

CONTRIB = "com.microsoft."
QUANTIZE = frozenset({"QuantizeLinear", CONTRIB + "QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", CONTRIB + "DequantizeLinear"})
INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger"})
OPAQUE = frozenset(
    CONTRIB + name
    for name in (
        *("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "GatherBlockQuantized", "MatMulBnb4", "MatMulNBits"),
        *("QAttention", "QEmbedLayerNormalization", "QMoE"),
    )
)
"""operators that quantize what they compute with inside, or unpack it"""
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
MOVEMENT = frozenset(
    {"DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool", "Pad"}
    | {"Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""operators that act on integers as on the reals they stand for, and keep scale and zero point"""
SHAPES = frozenset({"Shape", "Size"})
"""operators that read no values"""


@dataclass(frozen=True)
class Format:
    """How integers stand for reals: (integer - zero point) * scale.

    scale, zero_point  names of tensors; no zero point is ""
    axis, block        along which scales differ where there are several; elements that share one there, 0 all
    unit, factor       an int32 bias: the product of the scales of these two tensors and a number, instead of `scale`
    packed             (bits, K, N) of weights [K, N] that MatMulNBits packs into bytes, block after block
    flipped            the integers stand with their last two axes exchanged
    """

    scale: str
    zero_point: str = ""
    axis: int = 1
    block: int = 0
    unit: tuple[str, str] | None = None
    factor: float = 1.0
    packed: tuple[int, int, int] | None = None
    flipped: bool = False


@dataclass(frozen=True)
class Use:
    """`tensor` of the artifact, which stands for the real tensor `real`.

    format   of its integers, or of those that a DequantizeLinear made it of; None for any other float
    """

    tensor: str
    real: str
    format: Format | None = None
    integer: bool = False


@dataclass(frozen=True, eq=False)
class Piece:
    """A float operation that the artifact performs.

    node     the operation on real tensors: its inputs and outputs are names of reals
    uses, results   what it reads and writes, by position
    source   the node of the artifact it was read from
    """

    node: Node
    uses: tuple[Use | None, ...]
    results: tuple[Use | None, ...]
    source: Node


@dataclass(frozen=True)
class Rounding:
    """A place where a real tensor is rounded to integers by `node`; dynamic where the scale comes from the data."""

    real: str
    format: Format
    node: Node
    tensor: str
    dynamic: bool = False


@dataclass(frozen=True)
class Artifact:
    """A quantized model as it was read.

    pieces     float operations, in order
    real       tensor -> the real tensor it stands for, where that has another name
    formats    of integer tensors, and of the floats that a DequantizeLinear makes of them
    roundings  every place where a real is rounded
    rereads    DequantizeLinear nodes that read with another format than the integers were written with
    constant   tensors that do not depend on the inputs
    integers   tensors of integers that stand for reals
    """

    graph: Graph
    pieces: tuple[Piece, ...]
    real: Mapping[str, str]
    formats: Mapping[str, Format]
    roundings: tuple[Rounding, ...]
    rereads: tuple[tuple[Node, Format, Format], ...]
    constant: frozenset[str]
    integers: frozenset[str]

    def use(self, tensor: str) -> Use:
        """`tensor` with what it stands for."""
        return Use(tensor, self.stands_for(tensor), self.formats.get(tensor), tensor in self.integers)

    def stands_for(self, tensor: str) -> str:
        """The real tensor that `tensor` stands for."""
        return self.real.get(tensor, tensor)

    def codes_of(self, tensor: str) -> str:
        """The integers of which a DequantizeLinear, and a Cast behind it, make `tensor`; itself where it holds them."""
        while tensor not in self.integers and (maker := self.graph.producers.get(tensor)):
            tensor = maker.inputs[0]
        return tensor


@dataclass(frozen=True)
class Layout:
    """Which inputs of a quantized operator are what: (value, scale, zero point) triples by position.

    scale or zero point -1: none there.
    bias      position of an int32 bias whose scale is the product of the first two operands' scales
    result    positions of the result's scale and zero point; None: the result is a float
    plain     positions of inputs that the float operator takes as they are, before the operands
    """

    op: str
    operands: tuple[tuple[int, int, int], ...]
    result: tuple[int, int] | None
    bias: int = -1
    plain: tuple[int, ...] = ()


_ONE = (((0, 1, 2),), (3, 4))
_TWO = (((0, 1, 2), (3, 4, 5)), (6, 7))
LAYOUTS = {
    "QLinearConv": Layout("Conv", *_TWO, bias=8),
    "QLinearMatMul": Layout("MatMul", *_TWO),
    CONTRIB + "QGemm": Layout("Gemm", ((0, 1, 2), (3, 4, 5)), (7, 8), bias=6),
    CONTRIB + "QLinearAdd": Layout("Add", *_TWO),
    CONTRIB + "QLinearMul": Layout("Mul", *_TWO),
    CONTRIB + "QLinearLeakyRelu": Layout("LeakyRelu", *_ONE),
    CONTRIB + "QLinearSigmoid": Layout("Sigmoid", *_ONE),
    CONTRIB + "QLinearSoftmax": Layout("Softmax", *_ONE),
    CONTRIB + "QLinearAveragePool": Layout("AveragePool", *_ONE),
    CONTRIB + "QLinearGlobalAveragePool": Layout("GlobalAveragePool", *_ONE),
    CONTRIB + "QLinearReduceMean": Layout("ReduceMean", *_ONE),
    CONTRIB + "QLinearWhere": Layout("Where", ((1, 2, 3), (4, 5, 6)), (7, 8), plain=(0,)),
    CONTRIB + "MatMulIntegerToFloat": Layout("MatMul", ((0, 2, 4), (1, 3, 5)), None),
}
"""operators with fixed positions; of the attributes, those in OWN_ATTRIBUTES are not the float operator's"""

QUANTISED = (
    QUANTIZE | DEQUANTIZE | LAYOUTS.keys() | INTEGER_PRODUCTS | {"DynamicQuantizeLinear", CONTRIB + "QLinearConcat"}
)
"""operators that a float model has only where it is quantized already"""

OWN_ATTRIBUTES = frozenset({"channels_last", "opset"})


def spread(values: np.ndarray, format: Format, shape: Sequence[int]) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to that of the integers, [] to [1, C, 1, 1] or blocks."""
    if values.size == 1:
        return values.reshape(())
    if format.block:
        whole = np.repeat(values, format.block, axis=format.axis)
        return np.take(whole, np.arange(shape[format.axis]), axis=format.axis)
    if values.ndim > 1:  # [directions, rows] of recurrent weights [directions, columns, rows]
        return values[:, None, :] if len(shape) == 3 else values
    return values.reshape([-1 if k == format.axis % len(shape) else 1 for k in range(len(shape))])
