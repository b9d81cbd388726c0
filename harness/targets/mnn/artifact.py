"""What a converted MNN file holds: the quantized weights of its layers, and the scales of its tensors.

A file is a flatbuffer of the schema of MNN's repository (schema/default/MNN.fbs and CaffeOp.fbs); fields are named here
by their numbers there, which later releases keep. The converter can dump a file as JSON, but with six decimals.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CONVOLUTION_2D = 9  # in the union OpParameter
SUBGRAPHS = 10  # of Net: their tensors have numbers of their own, which the quantizer takes for the main graph's
HISTOGRAM = {"bins": 2048, "least": 128}  # tools/quantization/TensorStatistic.cpp
CODED, SPARSE = 1, 2
"""IDSTQuan.type where weights are indices into a table of codes, all of them or those that are not 0. (Others: float16
...)"""

HALF_SCALES, HALF_ROUNDED = 14, 3 / 2**11
"""of IDSTQuan the field with scales in half precision; what they make a weight be off by, of the largest: its minimum
and the largest code times the scale are rounded by 2^-11"""
EXTERNAL, SCALE_TYPE, BESIDE = 6, 15, ".weight"
"""of Convolution2D the field that says where its weights lie in a file of their own; of IDSTQuan that with the type of
the scales there, 1 for half precision; what the name of that file has more than that of the model"""

# Operators by their numbers in the enum OpType. CPURuntimeCreator::_supportQuant in source/backend/cpu/CPUBackend.cpp
# says which run in int8 where all their operands and results have a scale; a session's callbacks show the same.
BINARY, CONCAT, CONVERT_TENSOR, CONVOLUTION, DEPTHWISE, PACK, PADDING, UNARY = 7, 10, 129, 12, 13, 44, 45, 101
POOLINGS = {47: (7, 1), 112: (3, 2)}
"""Pooling, and Pooling3D, which is made in two steps: (the number of the field that holds its type, how many steps)"""
WINOGRAD = 10
"""of QuantizedFloatParam the field by which a Conv runs in Winograd's form, as EMA may have a 3x3 one of stride 1:
what is transformed has codes and scales of its own, which are not simulated (ConvInt8Winograd.cpp)"""
SCALE, IN_FIXED_POINT = 77, 128 / 2**15
"""BatchNormalization, and how far off what it rounds may be: CPUScaleInt8 multiplies by whole numbers of 2^-15, half a
unit off for each step of its operand, at most 255 from the zero point, and for the bias"""
IN_CODES = frozenset({CONVOLUTION, DEPTHWISE, 49, SCALE, 85, UNARY, 603})
"""the two, and PReLU, Scale, Softmax, UnaryOp, LayerNorm"""
IN_ORDER = frozenset({26, 28, 73, 90, 107, CONVERT_TENSOR})
"""of these ExpandDims, Flatten, Reshape, Squeeze, Unsqueeze, ConvertTensor: elements keep their order"""
CONSTANT, REDUCTION, RELU, CLIP = 11, 68, 69, 70
REDUCTIONS = {0: "ReduceSum", 3: "ReduceMean", 4: "ReduceMax", 5: "ReduceMin", 6: "ReduceProd"}
BINARIES = {0: "Add", 1: "Sub", 2: "Mul", 3: "Div", 6: "Pow", 7: "Div", 8: "Min", 9: "Max"}
UNARIES = {0: "Abs", 1: "Neg", 5: "Sqrt", 7: "Exp", 8: "Log", 9: "Sin", 10: "Cos", 11: "Tan", 12: "Asin", 13: "Acos"}
UNARIES |= {14: "Atan", 15: "Reciprocal", 18: "Acosh", 19: "Sinh", 20: "Asinh", 21: "Atanh", 22: "Sign", 24: "Cosh"}
SQUARE = 4
UNARIES |= {SQUARE: "Mul", 25: "Erf", 29: "Sigmoid", 30: "Tanh", 31: "HardSwish"}
"""of the enums ReductionType, BinaryOpOperation and UnaryOpOperation, those that are operators of ONNX"""
WITHOUT_TABLE = frozenset({0, 1, 22})
"""ABS, NEG, SIGN of the enum UnaryOpOperation: others run in codes where the file holds a table for them"""
IN_FLOATS = frozenset({2, 9, 17, 18, 22, 23, 39, 66, 68, 69, 70, 76, 78, 80, 82, 130, 257, 514, 604})
"""ArgMax, Cast, Deconvolution, DeconvolutionDepthwise, Eltwise, ELU, MatMul, Rank, Reduction, ReLU, ReLU6, ROIPooling,
Selu, Shape, Size, ArgMin, Select, Int8ToFloat, GridSample"""
MATMUL, MOVED_TOO = 39, frozenset({2, 68, 130})
"""of these MatMul, and ArgMax, Reduction, ArgMin: vectors are reshaped besides, and other operands and results
transposed, as codes"""
BEFORE_TRANSPOSED, PIECE, PRODUCT = "__before_tr", "__group__", "__matmul_converted"
"""what the converter adds to the name of a result that it transposes next, and to those of an operator that it splits
(with a number) or makes a convolution of"""
EITHER = MOVED_TOO | POOLINGS.keys() | {BINARY, MATMUL} | IN_CODES - {CONVOLUTION, DEPTHWISE}
"""those of which the scales alone say whether they run in codes"""
MOVES = frozenset(
    {CONCAT, 14, 26, 28, PACK, PADDING, 46, 73, 83, 84, 88, 90, 91, 98, 100, 102, 107, 109, 110, 120, CONVERT_TENSOR}
)
"""Concat, Crop, ExpandDims, Flatten, Pack, Padding, Permute, Reshape, Slice, SliceTf, Split, Squeeze, StridedSlice,
Tile, Transpose, Unpack, Unsqueeze, DepthToSpace, SpaceToDepth, BroadcastTo, ConvertTensor"""


def read(path: str, histogram: bool = False) -> dict[str, Any]:
    """{"layers": [...], "tensors": {name: ...}, "operations": [...], ...} of a file, see model.artifact.Artifact.

    histogram   whether scales were calibrated by KL on the case's own samples
    """
    with open(path, "rb") as file:
        content = file.read()
    net = Table(content, struct.unpack_from("<I", content)[0])
    ops = list(net.tables(3))
    names, reordered = _distinct([name.decode("utf-8", "replace") for name in net.strings(7)], ops)
    tensors = {
        names[describe.integer(1)]: _tensor(describe.table(4))
        for describe in net.tables(1)
        if describe.has(4) and describe.integer(1) < len(names)
    }
    beside = Path(f"{path}{BESIDE}")
    outside = beside.read_bytes() if beside.exists() else b""
    layers = [layer for op in ops for layer in _layers(op, outside)]
    coded = {layer["name"] for layer in layers}
    return {
        "layers": _joined(layers),
        "tensors": tensors,
        "operations": _operations(ops, names, tensors, coded, outside),
        "reordered": reordered,
    } | ({"histogram": HISTOGRAM} if histogram and not net.has(SUBGRAPHS) else {})


@dataclass(frozen=True)
class Table:
    """A table of a flatbuffer at `position`; fields are read by number (https://flatbuffers.dev/internals)."""

    content: bytes
    position: int

    def has(self, field: int) -> bool:
        """Whether the field is there; an absent one has its default."""
        return self._at(field) != 0

    def integer(self, field: int, default: int = 0, form: str = "<i") -> int:
        """A scalar of the struct format `form`."""
        at = self._at(field)
        return int(struct.unpack_from(form, self.content, at)[0]) if at else default

    def number(self, field: int, default: float = 0.0) -> float:
        """A float."""
        at = self._at(field)
        return float(struct.unpack_from("<f", self.content, at)[0]) if at else default

    def table(self, field: int) -> Table:
        """A table that is there."""
        return Table(self.content, self._follow(self._at(field)))

    def array(self, field: int, dtype: str) -> np.ndarray:
        """A vector of numbers, empty when absent."""
        start, length = self._vector(field)
        return np.frombuffer(self.content, np.dtype(dtype).newbyteorder("<"), length, start)

    def tables(self, field: int) -> Iterator[Table]:
        """The tables of a vector."""
        for at in self._elements(field):
            yield Table(self.content, self._follow(at))

    def strings(self, field: int) -> Iterator[bytes]:
        """The strings of a vector."""
        for at in self._elements(field):
            start = self._follow(at)
            yield self.content[start + 4 : start + 4 + self._unsigned(start)]

    def string(self, field: int) -> bytes:
        """A string, empty when absent."""
        start, length = self._vector(field)
        return self.content[start : start + length]

    def _at(self, field: int) -> int:
        table = self.position - struct.unpack_from("<i", self.content, self.position)[0]
        size = struct.unpack_from("<H", self.content, table)[0]
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self.content, table + entry)[0] if entry < size else 0
        return self.position + offset if offset else 0

    def _unsigned(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.content, at)[0])

    def _follow(self, at: int) -> int:
        return at + self._unsigned(at)

    def _vector(self, field: int) -> tuple[int, int]:
        """(where the elements start, how many)"""
        at = self._at(field)
        if not at:
            return 0, 0
        start = self._follow(at)
        return start + 4, self._unsigned(start)

    def _elements(self, field: int) -> Iterator[int]:
        start, length = self._vector(field)
        return iter(range(start, start + 4 * length, 4))


def _distinct(names: list[str], ops: list[Table]) -> tuple[list[str], dict[str, str]]:
    """(`names`, made distinct, {name: the name of what it is before it is transposed}).

    The name that two tensors have is that of the second, where the first is but transposed into it. Of others that
    several have nobody can tell which is meant, and none of them keeps it.
    """
    counts = Counter(names)
    distinct = [name if counts[name] == 1 else f"{name}#{k}" for k, name in enumerate(names)]
    reordered = {x: x[: -len(BEFORE_TRANSPOSED)] for x in names if x.endswith(BEFORE_TRANSPOSED)}
    for op in ops:
        read, given = op.array(0, "i4"), op.array(4, "i4")
        if op.integer(5) == CONVERT_TENSOR and len(read) == len(given) == 1:
            before, after = int(read[0]), int(given[0])
            if names[before] == names[after] and counts[names[after]] == 2:
                distinct[after] = names[after]
                reordered[distinct[before]] = names[after]
    return distinct, reordered


def _operations(
    ops: list[Table], names: list[str], tensors: dict[str, Any], coded: set[str], outside: bytes
) -> list[dict[str, Any]]:
    """What the file says of its operators, see model.artifact.Artifact. What is only moved keeps its scale."""
    scales: dict[str, float | None] = {}
    taken = _taken(ops, names, tensors)
    constants: dict[str, np.ndarray] = {}
    found = []
    for op in ops:
        kind, name = op.integer(5), op.string(3).decode("utf-8", "replace")
        inputs, outputs = ([names[k] for k in op.array(field, "i4")] for field in (0, 4))
        fills = kind == PADDING and any(np.any(constants.get(x, 1)) for x in inputs[2:])
        if (kind in MOVES and kind not in (CONCAT, PACK)) or kind in MOVED_TOO:
            inputs = inputs[:1]  # the others say where to
        read = {scales.get(tensor) for tensor in inputs}
        moved = read.pop() if kind in MOVES and len(read) == 1 else None
        stays = kind == RELU and inputs[0] in tensors and outputs[0] not in tensors and taken.isdisjoint(outputs)
        if stays:  # in codes, on the same grid
            tensors[outputs[0]] = tensors[inputs[0]]
        scales |= {tensor: tensors[tensor]["scale"] if tensor in tensors else moved for tensor in outputs}
        known = [scales.get(tensor) for tensor in (*inputs, *outputs[:1])]
        # The number that a Padding fills in has a scale of its own, or none.
        runs, steps = ("somehow", 0) if fills else _runs(op, kind, known, name in coded)
        runs, steps = ("codes", 1) if stays else (runs, steps)
        if runs == "float" and kind in EITHER and not taken.isdisjoint((*inputs, *outputs)):
            runs = "somehow"
        if kind == UNARY and op.table(2).has(2) and tensors.get(outputs[0], {}).get("high", 127) < 127:
            runs = "somehow"  # the codes in its table go up to 127, whatever range its result is told to have
        if kind == UNARY and op.table(2).integer(0) == SQUARE:
            inputs = 2 * inputs  # of Mul
        operation = {"name": name, "inputs": inputs, "outputs": outputs, "runs": runs, "steps": steps}
        found.append(operation | _meaning(op, kind, outside))
        if name in coded:
            found[-1]["layer"] = name.split(PIECE)[0]
            if any(tensors[x]["zero_point"] for x in (*inputs, *outputs) if x in tensors):
                found[-1]["whole_bias"] = True  # what zero points add is added as a bias
        constants |= {x: found[-1]["values"] for x in outputs if "values" in found[-1]}
    return found


def _taken(ops: list[Table], names: list[str], tensors: dict[str, Any]) -> set[str]:
    """The tensors without a scale that are moved into one that has a scale: the executor may take it for theirs, and
    for that of others that they are moved into."""
    found: set[str] = set()
    moves = [[[names[k] for k in op.array(f, "i4")] for f in (0, 4)] for op in ops if op.integer(5) in MOVES]
    for inputs, outputs in reversed(moves):
        if any(x in tensors or x in found for x in outputs):
            found.update(x for x in inputs if x not in tensors)
    for inputs, outputs in moves:
        if not found.isdisjoint(inputs):
            found.update(x for x in outputs if x not in tensors)
    return found


def _meaning(op: Table, kind: int, outside: bytes) -> dict[str, Any]:
    """The ONNX operator that an operator computes, or the numbers that it holds; {} for others."""
    if kind == CONSTANT:
        blob = op.table(2)
        values, shape = blob.array(7, "f4"), blob.array(0, "i4")
        return {"values": values.reshape(shape)} if values.size == math.prod(shape) else {}  # else it is padded
    if kind == RELU:
        slope = op.table(2).number(0) if op.integer(1, form="<B") else 0.0
        return {"computes": "LeakyRelu", "attributes": {"alpha": slope}}
    if kind == CLIP:
        low, high = (op.table(2).number(0), op.table(2).number(1, 6.0)) if op.integer(1, form="<B") else (0.0, 6.0)
        return {"computes": "Clip", "attributes": {"min": low, "max": high}}
    if kind in IN_ORDER:
        return {"in_order": True}
    if kind in (CONVOLUTION, DEPTHWISE):
        return {"whole_bias": True} if _bias(op.table(2), outside).any() else {"computes": "layer"}
    if kind == REDUCTION:
        axes, name = op.table(2).array(1, "i4"), REDUCTIONS.get(op.table(2).integer(0, form="<b"), "")
        kept = op.table(2).integer(3, form="<b")
        return {"computes": name, "attributes": {"axes": axes.tolist(), "keepdims": kept}} if axes.size and name else {}
    if kind in (BINARY, UNARY):
        param = op.table(2)
        name = (BINARIES if kind == BINARY else UNARIES).get(param.integer(0), "")
        fused = param.integer(2) if kind == BINARY else 0
        return {"computes": name, "then": ("", "Relu")[fused]} if name and fused in (0, 1) else {}
    return {}


def _runs(op: Table, kind: int, scales: list[float | None], coded: bool) -> tuple[str, float]:
    """(in what an operator runs, how far off what it rounds may be) given the scales of its operands and result.

    Averages are cut to integers (MNNAvgPoolInt8), and so are results of Abs, Neg and Sign.
    """
    if kind in MOVES:
        return "moves", 0
    if kind not in IN_FLOATS | IN_CODES | POOLINGS.keys() | {BINARY}:
        return "somehow", 0
    if kind in MOVED_TOO | {MATMUL} and None not in scales:
        return "codes or floats", 0
    if len(scales) < 2 or None in scales[:-1] or kind in IN_FLOATS:
        return "float", 0
    if scales[-1] is None:
        return "somehow", 0  # the executor may take the scale of what the result is moved to
    if kind == BINARY:
        fused = op.table(2).integer(2)
        return "codes" if fused else "codes unless broadcast", 0
    if kind in POOLINGS:
        field, parts = POOLINGS[kind]
        average = op.table(2).integer(field, form="<B") == 1
        return ("codes", parts if average else 0) if len(set(scales)) == 1 else ("float", 0)
    if kind in (CONVOLUTION, DEPTHWISE) and not coded:
        return ("somehow" if op.table(2).has(3) else "float"), 0  # weights that are quantized in a form not read here
    if kind == CONVOLUTION and op.table(2).table(4).has(WINOGRAD):
        return "somehow", 0
    if kind == SCALE:
        return "codes", IN_FIXED_POINT
    if kind == UNARY and not op.table(2).has(2):
        return ("codes", 1) if op.table(2).integer(0) in WITHOUT_TABLE else ("float", 0)
    return "codes", 0


def _joined(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The layers, those that the converter split a grouped operator into joined again."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for layer in layers:
        parts.setdefault(layer["name"].split(PIECE)[0], []).append(layer)
    return [
        {"name": name, "result": name.split(PRODUCT)[0]}
        | {key: np.concatenate([layer[key] for layer in group]) for key in ("weights", "scales")}
        | {"room": group[0]["room"]}
        for name, group in parts.items()
    ]


def _layers(op: Table, outside: bytes) -> Iterator[dict[str, Any]]:
    """The layer that `op` is, if it is one with quantized weights.

    outside   the file with the weights of those that say where theirs begin in it, and how many bytes codes and scales
        have
    """
    if op.integer(1, form="<B") != CONVOLUTION_2D:
        return
    convolution = op.table(2)
    if not convolution.has(3):
        return
    quantization = convolution.table(3)
    content, alpha, halves = (quantization.array(*field) for field in ((0, "u1"), (1, "f4"), (HALF_SCALES, "f2")))
    if not content.size:
        of_codes, of_scales, _ = _outside(convolution, outside)
        content = np.frombuffer(of_codes, np.uint8)
        if quantization.integer(SCALE_TYPE, form="<B") == 1:
            halves = np.frombuffer(of_scales, "<f2")
        else:
            alpha = np.frombuffer(of_scales, "<f4")
    alpha = alpha if alpha.size else halves.astype(np.float32)
    pairs = quantization.integer(9)  # readType: how many (minimum, scale) pairs; 0: scales alone
    codes = _codes(quantization, content, alpha.reshape(-1, 2) if pairs else None)
    if codes is None or not alpha.size:
        return
    channels = convolution.table(0).integer(10)
    scales = alpha.reshape(-1, 2)[:, 1] if pairs else alpha
    blocks = scales.size // channels
    codes = codes.reshape(channels, blocks, -1).astype(np.float32)
    weights = codes * scales.reshape(channels, blocks, 1)
    if pairs:
        lowest = np.float32(quantization.integer(8))
        weights = (codes - lowest) * scales.reshape(channels, blocks, 1) + alpha.reshape(channels, blocks, 2)[..., :1]
    yield {
        "name": op.string(3).decode("utf-8", "replace"),
        "weights": weights.reshape(channels, -1),
        "scales": scales.reshape(channels, blocks),
        "room": HALF_ROUNDED if halves.size else 0.0,
    }


def _outside(convolution: Table, outside: bytes) -> list[bytes]:
    """Weights, scales and bias that lie in a file of their own: where they begin, and the bytes of each."""
    ends = np.cumsum(convolution.array(EXTERNAL, "i8")[:4])
    return [outside[begin:end] for begin, end in itertools.pairwise(ends)] or [b"", b"", b""]


def _bias(convolution: Table, outside: bytes) -> np.ndarray:
    held = convolution.array(2, "f4")
    return held if held.size else np.frombuffer(_outside(convolution, outside)[2], "<f4")


def _codes(quantization: Table, content: np.ndarray, pairs: np.ndarray | None) -> np.ndarray | None:
    """The int8 codes of weights, flat; None in another form, and where they are not there.

    Dims (a count, then 16 or 32 bits each); where only some weights are written, how many (32 bits), and how far each
    is behind the one before; then how many codes there are (0: 256), these, and the index of each weight's code. A
    weight that is not written is 0; the code of that hangs on the `pairs`, float32 [channels, (minimum, scale)].
    """
    form = quantization.integer(2)
    if form not in (CODED, SPARSE) or not content.size:
        return None
    wide = bool(quantization.integer(11, form="<B"))
    at = 1 + int(content[0]) * (4 if wide else 2)
    written = size = math.prod(int(d) for d in content[1:at].view("<u4" if wide else "<u2"))
    places = np.arange(size)
    if form == SPARSE:
        written, width = int(content[at : at + 4].copy().view("<u4")[0]), int(content[at + 4])
        places = np.cumsum(_unpacked(content[at + 5 :], written, width))
        at += 5 + (written * width + 7) // 8
    known = int(content[at]) or 256
    table = content[at + 1 : at + 1 + known].view(np.int8)
    width = max(1, (known - 1).bit_length())
    codes = np.zeros(size, np.int8) if pairs is None else np.repeat(_zeros(pairs, width), size // len(pairs))
    codes[places] = table[_unpacked(content[at + 1 + known :], written, width)]
    return codes


def _zeros(pairs: np.ndarray, width: int) -> np.ndarray:
    """The int8 code of 0 in each channel, as ReadSparseQuanData_c in source/core/ConvolutionCommon.cpp finds it: of
    `width` bits, a tie away from zero, the lowest where a step is next to nothing, and not kept within the bits."""
    lowest, steps = pairs.T.astype(np.float64)
    from_lowest = np.divide(-lowest, steps, out=np.zeros(len(pairs)), where=steps > 1e-6)
    rounded = np.trunc(from_lowest + np.copysign(0.5, from_lowest))
    return np.asarray((rounded.astype(np.int64) - 2 ** (width - 1)).astype(np.int8))


def _unpacked(packed: np.ndarray, count: int, width: int) -> np.ndarray:
    """`count` numbers of `width` bits each, the first in the highest."""
    bits = np.unpackbits(packed[: (count * width + 7) // 8])[: count * width].reshape(count, width)
    return np.asarray(bits @ (1 << np.arange(width)[::-1]))


def _tensor(quantization: Table) -> dict[str, float]:
    return {
        "scale": quantization.number(0),
        "zero_point": quantization.number(1),
        "low": quantization.number(2, -128.0),
        "high": quantization.number(3, 127.0),
    }
