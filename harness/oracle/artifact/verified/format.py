"""The words for a quantized ONNX model: integers that stand for reals, roundings, and float operations on them."""

from dataclasses import dataclass, field

from driftnet.model.graph import Graph, Node
from driftnet.model.operators import CONTRIB


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

    constant   tensors that do not depend on the inputs
    pieces     float operations, in order
    real       tensor -> the real tensor it stands for, where that has another name
    formats    of integer tensors, and of the floats that a DequantizeLinear makes of them
    roundings  every place where a real is rounded
    rereads    DequantizeLinear nodes that read with another format than the integers were written with
    integers   tensors of integers that stand for reals
    """

    graph: Graph
    constant: set[str]
    pieces: list[Piece] = field(default_factory=list)
    real: dict[str, str] = field(default_factory=dict)
    formats: dict[str, Format] = field(default_factory=dict)
    roundings: list[Rounding] = field(default_factory=list)
    rereads: list[tuple[Node, Format, Format]] = field(default_factory=list)
    integers: set[str] = field(default_factory=set)

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
    """Which inputs of a quantized operator are what, by position.

    op        the float operator that it stands for
    operands  of that: (value, scale, zero point) of integers, or the one input that is taken as it is
    result    the result's scale and zero point; None: it is a float
    bias      an int32 bias whose scale is the product of the first two operands' scales
    added     a float bias, as of an Add behind the operator
    """

    op: str
    operands: tuple[int | tuple[int, int, int], ...]
    result: tuple[int, int] | None = None
    bias: int = -1
    added: int = -1


_ONE = (((0, 1, 2),), (3, 4))
_TWO = (((0, 1, 2), (3, 4, 5)), (6, 7))
# Where each has its scales is a matter of positions, which no trait tells.
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
    CONTRIB + "QLinearWhere": Layout("Where", (0, (1, 2, 3), (4, 5, 6)), (7, 8)),
    CONTRIB + "MatMulIntegerToFloat": Layout("MatMul", ((0, 2, 4), (1, 3, 5)), added=6),
    CONTRIB + "DynamicQuantizeMatMul": Layout("MatMul", (0, (1, 2, 3)), added=4),
    CONTRIB + "DynamicQuantizeLSTM": Layout("LSTM", (0, (1, 8, 9), (2, 10, 11), 3, 4, 5, 6, 7)),
    CONTRIB + "MatMulNBits": Layout("MatMul", (0, (1, 2, 3)), added=5),
    CONTRIB + "GatherBlockQuantized": Layout("Gather", ((0, 2, 3), 1)),
}
"""Quantized operators whose inputs have fixed positions."""
OWN_ATTRIBUTES = frozenset(
    {"channels_last", "opset", "bits", "K", "N", "block_size", "accuracy_level", "quantize_axis"}
)
"""those of quantized operators that the float operators do not have"""
RENAMED = {"gather_axis": "axis"}
"""those that float operators have under another name"""


def layout_of(node: Node) -> Layout | None:
    """Which inputs of a quantized operator are what; None for any other."""
    if node.op == CONTRIB + "QLinearConcat":
        return Layout("Concat", tuple((k, k + 1, k + 2) for k in range(2, len(node.inputs), 3)), (0, 1))
    regrouped = node.op == CONTRIB + "MatMulNBits" and node.input(4)
    in_bytes = node.op == CONTRIB + "GatherBlockQuantized" and "bits" in node.attributes  # several codes in each
    return None if regrouped or in_bytes else LAYOUTS.get(node.op)


def operand_format(node: Node, position: int, scale: str, zero: str) -> Format:
    """The format of an operand of a quantized operator, given the names of its scale and zero point."""
    given = node.attributes
    match node.op.removeprefix(CONTRIB):  # the layouts that onnxruntime documents, one an operator
        case "MatMulNBits":
            return Format(scale, zero, block=given["block_size"], packed=(given["bits"], given["K"], given["N"]))
        case "GatherBlockQuantized":
            return Format(scale, zero, axis=given.get("quantize_axis", 1), block=given.get("block_size", 128))
        case "DynamicQuantizeLSTM":
            return Format(scale, zero, axis=0, flipped=True)
        case "QLinearConv" | "ConvInteger":
            return Format(scale, zero, axis=0)
        case "QGemm":
            return Format(scale, zero, axis=0 if position and given.get("transB", 0) else 1)
    # A row scale for the first operand of a product, a column scale for the second.
    return Format(scale, zero, axis=-1 if position else -2)


def linear_format(node: Node) -> Format:
    """The format of what a QuantizeLinear makes, or a DequantizeLinear reads."""
    return Format(node.input(1), node.input(2), node.attributes.get("axis", 1), node.attributes.get("block_size", 0))
