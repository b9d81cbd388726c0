"""How the sizes of a node's operands hang together.

A size cannot change alone: the channels of a Conv are also those of its weight, of its bias, of the BatchNormalization
behind it. Each operator ties sizes that change by the same ratio. A tie that is missing or too many costs one candidate
that the reference refuses, so rules are kept short rather than complete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from driftnet.model.constants import Tensors
from driftnet.model.inspect import has_any
from driftnet.model.operators import Trait


@dataclass(frozen=True, order=True)
class Size:
    """A number that says how large something is.

    what   "dim": axis `at` of tensor `owner`;  "entry": element `at` of the integer initializer `owner` (a shape);
           otherwise the attribute `what` of the node that makes `owner` (its first result that has a name), its
           element `at`; "direction" counts as 1 or 2
    """

    what: str
    owner: str
    at: int


Tie = list[Size]


@dataclass(frozen=True, eq=False)
class Operands:
    """A node and the arrays it reads and makes."""

    node: onnx.NodeProto
    tensors: Tensors

    def attribute(self, name: str, default: int) -> int:
        """An integer attribute."""
        return next((a.i for a in self.node.attribute if a.name == name), default)

    def name(self, slot: int, *, out: bool = False) -> str:
        """Operand `slot`, or "" where it is absent or unknown."""
        names = self.node.output if out else self.node.input
        return names[slot] if slot < len(names) and names[slot] in self.tensors else ""

    def shape(self, slot: int, *, out: bool = False) -> tuple[int, ...]:
        """Its shape, () where it is absent."""
        name = self.name(slot, out=out)
        return np.shape(self.tensors[name]) if name else ()

    def dim(self, slot: int, axis: int, *, out: bool = False) -> Tie:
        """That dimension of that operand, as a list of one; empty where there is none."""
        rank = len(self.shape(slot, out=out))
        if not -rank <= axis < rank:
            return []
        return [Size("dim", self.name(slot, out=out), axis % rank)]

    def number(self, attribute: str, at: int = 0) -> Tie:
        """That element of an integer attribute; empty where it is absent."""
        given = any(a.name == attribute for a in self.node.attribute)
        return [Size(attribute, first_output(self.node), at)] if given else []


def first_output(node: onnx.NodeProto) -> str:
    """The first result that is not left out: two GRUs may both leave out their first."""
    return next(str(name) for name in node.output if name)


def ties(op: Operands, *, by_group: bool = False) -> Iterator[Tie]:
    """The sizes that an operator makes change by the same ratio."""
    kind = op.node.op_type
    if has_any(op.node, Trait.WEIGHTED) and has_any(op.node, Trait.SLIDES):
        yield from _convolution(op, by_group)
    elif kind in RULES:
        yield from RULES[kind](op)
    elif has_any(op.node, Trait.REDUCES) and not op.attribute("keepdims", 1):
        yield from _subsequence(op)
    else:
        yield from _aligned(op)


def _aligned(op: Operands) -> Iterator[Tie]:
    """Operands aligned at their last axis, as in broadcasting: what is equal there stays equal."""
    operands = [(slot, False) for slot in range(len(op.node.input))] + [(i, True) for i in range(len(op.node.output))]
    data = [(slot, out) for slot, out in operands if out or not _is_parameter(op, slot)]
    for axis in range(1, 1 + max((len(op.shape(slot, out=out)) for slot, out in data), default=0)):
        yield from _equal(op, [s for slot, out in data for s in op.dim(slot, -axis, out=out)])


def _equal(op: Operands, sizes: Tie) -> Iterator[Tie]:
    """Those of `sizes` that are as large as the largest."""
    known = {size: np.shape(op.tensors[size.owner])[size.at] for size in sizes}
    largest = max(known.values(), default=1)
    if largest > 1:
        yield [size for size, n in known.items() if n == largest]


def _is_parameter(op: Operands, slot: int) -> bool:
    """An integer vector beside floating-point data: pads, axes, a shape."""
    first, name = op.name(0), op.name(slot)
    if not first or not name or slot == 0:
        return False
    return op.tensors[name].dtype.kind in "iu" and op.tensors[first].dtype.kind not in "iu"


def _convolution(op: Operands, by_group: bool) -> Iterator[Tie]:
    transposed = op.node.op_type == "ConvTranspose"
    from_input, from_output = (0, 1) if transposed else (1, 0)
    yield op.dim(0, 0) + op.dim(0, 0, out=True)
    reading, making = op.dim(0, 1), op.dim(2, 0) + op.dim(0, 1, out=True)
    if by_group and op.attribute("group", 1) > 1:
        yield reading + making + op.dim(1, 0) + op.number("group")
    else:
        yield reading + op.dim(1, from_input)
        yield making + op.dim(1, from_output)
    for axis in range(2, len(op.shape(0))):
        yield op.dim(1, axis) + op.number("kernel_shape", axis - 2)
        yield from _strided(op, axis, transposed)


def _strided(op: Operands, axis: int, transposed: bool) -> Iterator[Tie]:
    """A spatial axis of an image and of what becomes of it, where they are exactly a stride apart."""
    given = next((list(a.ints) for a in op.node.attribute if a.name == "strides"), [1] * axis)
    image, out = (op.shape(0)[axis], op.shape(0, out=True)[axis]) if len(op.shape(0, out=True)) > axis else (0, 0)
    large, small = (out, image) if transposed else (image, out)
    if small > 1 and large == small * given[axis - 2]:
        yield op.dim(0, axis) + op.dim(0, axis, out=True)


def _pooling(op: Operands) -> Iterator[Tie]:
    for axis in range(len(op.shape(0))):
        yield from _strided(op, axis, False) if axis > 1 else [op.dim(0, axis) + op.dim(0, axis, out=True)]


def _per_channel(op: Operands) -> Iterator[Tie]:
    yield from _same_axes(op, skip=1)
    sizes = op.dim(0, 1) + op.dim(0, 1, out=True)
    yield from _equal(op, sizes + [s for slot in range(1, len(op.node.input)) for s in op.dim(slot, 0)])


def _per_axis(op: Operands) -> Iterator[Tie]:
    """QuantizeLinear, DequantizeLinear."""
    axis = op.attribute("axis", 1)
    yield from _same_axes(op)
    yield from _equal(op, op.dim(0, axis) + op.dim(1, 0) + op.dim(2, 0))


def _same_axes(op: Operands, skip: int = -1) -> Iterator[Tie]:
    for axis in range(len(op.shape(0))):
        if axis != skip:
            yield op.dim(0, axis) + op.dim(0, axis, out=True)


def _gemm(op: Operands) -> Iterator[Tie]:
    a, b = op.attribute("transA", 0), op.attribute("transB", 0)
    yield from _equal(op, op.dim(0, a) + op.dim(0, 0, out=True) + (op.dim(2, -2) if len(op.shape(2)) == 2 else []))
    yield op.dim(0, 1 - a) + op.dim(1, b)
    yield from _equal(op, op.dim(1, 1 - b) + op.dim(0, 1, out=True) + op.dim(2, -1))


def _matmul(op: Operands) -> Iterator[Tie]:
    left, right, rank = len(op.shape(0)), len(op.shape(1)), len(op.shape(0, out=True))
    yield op.dim(0, -1) + op.dim(1, -2 if right > 1 else 0)
    if left > 1:
        yield op.dim(0, -2) + op.dim(0, -2 if right > 1 else -1, out=True)
    if right > 1:
        yield op.dim(1, -1) + op.dim(0, -1, out=True)
    if left > 1 and right > 1:
        for axis in range(3, rank + 1):
            yield from _equal(op, op.dim(0, -axis) + op.dim(1, -axis) + op.dim(0, -axis, out=True))


def _recurrent(op: Operands) -> Iterator[Tie]:
    """X [T,B,I], W [d,gH,I], R [d,gH,H], B [d,2gH], lengths [B], states [d,B,H], P [d,pH] -> Y [T,d,B,H], states."""
    yield op.dim(0, 0) + op.dim(0, 0, out=True)
    yield op.dim(0, 2) + op.dim(1, 2)
    states = [(5, False), (6, False), (1, True), (2, True)] if op.node.op_type == "LSTM" else [(5, False), (1, True)]
    batch = op.dim(0, 1) + op.dim(4, 0) + op.dim(0, 2, out=True)
    hidden = op.dim(1, 1) + op.dim(2, 1) + op.dim(2, 2) + op.dim(3, 1) + op.dim(0, 3, out=True)
    hidden += op.number("hidden_size") + (op.dim(7, 1) if op.node.op_type == "LSTM" else [])
    directions = [s for slot in (1, 2, 3, 7) for s in op.dim(slot, 0)] + op.dim(0, 1, out=True)
    for tie, axis in ((directions + op.number("direction"), 0), (batch, 1), (hidden, 2)):
        yield tie + [s for slot, out in states for s in op.dim(slot, axis, out=out)]


def _transpose(op: Operands) -> Iterator[Tie]:
    rank = len(op.shape(0))
    given = [list(a.ints) for a in op.node.attribute if a.name == "perm"]
    for to, axis in enumerate(given[0] if given else range(rank - 1, -1, -1)):
        yield op.dim(0, axis) + op.dim(0, to, out=True)


def _reshape(op: Operands) -> Iterator[Tie]:
    """Blocks of axes with equal products; a block of several axes changes with its largest."""
    before, after = list(op.shape(0)), list(op.shape(0, out=True))
    i = j = 0
    while i < len(before) and j < len(after):
        m, n = i + 1, j + 1
        while (a := math.prod(before[i:m])) != (b := math.prod(after[j:n])):
            if a < b and m < len(before):
                m += 1
            elif b < a and n < len(after):
                n += 1
            else:
                return
        yield op.dim(0, max(range(i, m), key=before.__getitem__)) + op.dim(
            0, max(range(j, n), key=after.__getitem__), out=True
        )
        i, j = m, n
    yield from _entries(op)


def _expand(op: Operands) -> Iterator[Tie]:
    yield from _aligned(op)
    yield from _entries(op)


def _resize(op: Operands) -> Iterator[Tie]:
    yield from _same_axes(op)
    yield from _entries(op, slot=3)


def _entries(op: Operands, slot: int = 1) -> Iterator[Tie]:
    """The shape that operand `slot` asks for: of Reshape, Expand, Resize."""
    name = op.name(slot)
    wanted = op.tensors[name].tolist() if name and op.tensors[name].ndim == 1 else []
    for at, n in enumerate(wanted):
        dim = op.dim(0, at - len(wanted), out=True)
        if n > 1 and dim and n == op.shape(0, out=True)[dim[0].at]:
            yield [Size("entry", name, at), *dim]


def _subsequence(op: Operands) -> Iterator[Tie]:
    """The output's axes are some of the input's, in their order."""
    start = 0
    for to, n in enumerate(op.shape(0, out=True)):
        for axis in range(start, len(op.shape(0))):
            if op.shape(0)[axis] == n:
                yield op.dim(0, axis) + op.dim(0, to, out=True)
                start = axis + 1
                break


def _gather(op: Operands) -> Iterator[Tie]:
    data, indices = len(op.shape(0)), len(op.shape(1))
    axis = op.attribute("axis", 0) % max(1, data)
    for k in range(data):
        if k != axis:
            yield op.dim(0, k) + op.dim(0, k if k < axis else k + indices - 1, out=True)
    for k in range(indices):
        yield op.dim(1, k) + op.dim(0, axis + k, out=True)


def _joined(op: Operands) -> Iterator[Tie]:
    """Concat and Split: the parts change as the whole does."""
    parts = range(len(op.node.input if op.node.op_type == "Concat" else op.node.output))
    split = op.node.op_type == "Split"
    rank = len(op.shape(0))
    joined = op.attribute("axis", 0) % max(1, rank)
    for axis in range(rank):
        yield op.dim(0, axis, out=not split) + [s for part in parts for s in op.dim(part, axis, out=split)]
    if split:
        sizes = [Size("entry", op.name(1), i) for i in range(len(op.tensors[op.name(1)]))] if op.name(1) else []
        sizes += [s for part in parts for s in op.number("split", part)]
        yield op.dim(0, joined) + sizes


RULES: Mapping[str, Callable[[Operands], Iterator[Tie]]] = {
    "AveragePool": _pooling,
    "LpPool": _pooling,
    "MaxPool": _pooling,
    "BatchNormalization": _per_channel,
    "InstanceNormalization": _per_channel,
    "GroupNormalization": _per_channel,
    "QuantizeLinear": _per_axis,
    "DequantizeLinear": _per_axis,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "RNN": _recurrent,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Expand": _expand,
    "Resize": _resize,
    "Tile": _same_axes,
    "Gather": _gather,
    "Concat": _joined,
    "Split": _joined,
}
