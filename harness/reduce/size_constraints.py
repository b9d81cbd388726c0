"""How the sizes of a node's operands hang together.

A size cannot change alone: the channels of a Conv are also those of its weight, of its bias, of the BatchNormalization
behind it. Each operator constrains sizes to change by the same ratio. A constraint that is missing or too many costs
one candidate that the reference refuses, so rules are kept short rather than complete.

Most rules are written as in Einsum, a letter an axis, operands before the arrow and results behind it:

    mk,kn,...mn->mn      Gemm: axes with the same letter have one size; operands that are broadcast there have size 1
    tbi,DHi,DHH->tDbH    GRU: axes with the same capital change by one ratio, whatever their sizes (3 H of gates)
    *c,c->*c             `*` stands for axes that each belong to the same axis of the other `*`, by ratio
    ...,...->...         axes counted from the last one, as in broadcasting
    bG,G_,G->bG          `_` is constrained by nothing
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np
import onnx
from driftnet.model.constants import Tensors
from driftnet.model.operators import Trait, full_name, settings, traits_of


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


Constraint = list[Size]
"""Sizes that change by the same ratio."""


@dataclass(frozen=True, eq=False)
class Operands:
    """A node and the arrays it reads and makes.

    by_group   constrain the `group` of a convolution and its channels, instead of keeping the number of groups
    """

    node: onnx.NodeProto
    tensors: Tensors
    by_group: bool = False

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

    def dim(self, slot: int, axis: int, *, out: bool = False) -> Constraint:
        """That dimension of that operand, as a list of one; empty where there is none."""
        rank = len(self.shape(slot, out=out))
        if not -rank <= axis < rank:
            return []
        return [Size("dim", self.name(slot, out=out), axis % rank)]

    def number(self, attribute: str, at: int = 0) -> Constraint:
        """That element of an integer attribute; empty where it is absent."""
        given = any(a.name == attribute for a in self.node.attribute)
        return [Size(attribute, first_output(self.node), at)] if given else []


def first_output(node: onnx.NodeProto) -> str:
    """The first result that is not left out: two GRUs may both leave out their first."""
    return next(str(name) for name in node.output if name)


Rule = Callable[[Operands], Iterator[Constraint]]


def constraints(op: Operands) -> Iterator[Constraint]:
    """The sizes that an operator makes change by the same ratio."""
    traits = traits_of(full_name(op.node.op_type, op.node.domain))
    if Trait.REDUCES in traits and not op.attribute("keepdims", 1):
        yield from _subsequence(op)
        return
    family = next((rule for common, rule in FAMILIES.items() if common in traits), _aligned)
    rule = RULES.get(op.node.op_type, family)
    yield from _written(op, rule) if isinstance(rule, str) else rule(op)


def _written(op: Operands, rule: str) -> Iterator[Constraint]:
    """What the notation of this module's docstring says."""
    found: dict[str, Constraint] = {}
    for out, side in enumerate(rule.split("->")):
        for slot, axes in enumerate(side.split(",")):
            rank = len(op.shape(slot, out=bool(out)))
            free = max(0, rank - len(axes.replace("*", "").strip(".")))
            if axes.startswith("..."):
                axes = "".join(str(k) for k in range(free, 0, -1)) + axes[3:][-rank:]
            axes = axes.replace("*", "".join(chr(0x391 + k) for k in range(free)))
            for axis, letter in enumerate(axes):
                found.setdefault(letter, []).extend(op.dim(slot, axis, out=bool(out)))
    for letter, sizes in found.items():
        if letter != "_":
            yield from [sizes] if letter.isupper() else _equal(op, sizes)


def _equal(op: Operands, sizes: Constraint) -> Iterator[Constraint]:
    """Those of `sizes` that are as large as the largest."""
    known = {size: np.shape(op.tensors[size.owner])[size.at] for size in sizes}
    largest = max(known.values(), default=1)
    if largest > 1:
        yield [size for size, n in known.items() if n == largest]


def _aligned(op: Operands) -> Iterator[Constraint]:
    """Operands aligned at their last axis, as in broadcasting: what is equal there stays equal."""
    set_by = settings(op.node.op_type)
    operands = ["" if slot in set_by else "..." for slot in range(len(op.node.input))]
    yield from _written(op, f"{','.join(operands)}->{','.join(['...'] * len(op.node.output))}")


def _convolution(op: Operands) -> Iterator[Constraint]:
    if op.by_group and op.attribute("group", 1) > 1:
        yield from _written(op, "b,_,_->b")
        yield op.dim(0, 1) + op.dim(2, 0) + op.dim(0, 1, out=True) + op.dim(1, 0) + op.number("group")
    else:
        yield from _written(op, "bI,IO,O->bO" if op.node.op_type == "ConvTranspose" else "bI,OI,O->bO")
    for axis in range(2, len(op.shape(0))):
        yield op.dim(1, axis) + op.number("kernel_shape", axis - 2)
    yield from _strided(op)


def _pooling(op: Operands) -> Iterator[Constraint]:
    yield from _written(op, "bc->bc")
    yield from _strided(op)


def _strided(op: Operands) -> Iterator[Constraint]:
    """The spatial axes of an image and of what becomes of it, where they are exactly a stride apart."""
    given = next((list(a.ints) for a in op.node.attribute if a.name == "strides"), [1] * len(op.shape(0)))
    for axis, (image, out) in enumerate(zip(op.shape(0)[2:], op.shape(0, out=True)[2:]), start=2):
        large, small = (out, image) if op.node.op_type == "ConvTranspose" else (image, out)
        if small > 1 and large == small * given[axis - 2]:
            yield op.dim(0, axis) + op.dim(0, axis, out=True)


def _codes(op: Operands) -> Iterator[Constraint]:
    yield from _written(op, "*->*")
    yield from _equal(op, op.dim(0, op.attribute("axis", 1)) + op.dim(1, 0) + op.dim(2, 0))


def _gemm(op: Operands) -> Iterator[Constraint]:
    a, b = ("km" if op.attribute("transA", 0) else "mk"), ("nk" if op.attribute("transB", 0) else "kn")
    yield from _written(op, f"{a},{b},...mn->mn")


def _matmul(op: Operands) -> Iterator[Constraint]:
    left, right = len(op.shape(0)) > 1, len(op.shape(1)) > 1
    yield from _written(op, f"{'...mk' if left else 'k'},{'...kn' if right else 'k'}->...{'m' * left}{'n' * right}")


def _einsum(op: Operands) -> Iterator[Constraint]:
    """What its equation says. Sizes of one letter that are cut apart are broadcast, and another bug is left."""
    equation = next((a.s.decode() for a in op.node.attribute if a.name == "equation"), "").replace(" ", "")
    if "->" not in equation:  # the result has what occurs once, in the order of the alphabet
        once = sorted(letter for letter in set(equation) - {",", "."} if equation.count(letter) == 1)
        equation += f"->{'...' * ('...' in equation)}{''.join(once)}"
    ahead = all(term.find("...") <= 0 for side in equation.split("->") for term in side.split(","))
    yield from _written(op, equation if ahead else equation.replace("...", "*"))


def _recurrent(op: Operands) -> Iterator[Constraint]:
    """X [T,B,I], W [d,gH,I], R [d,gH,H], B [d,2gH], lengths [B], states [d,B,H], P [d,pH] -> Y [T,d,B,H], states."""
    yield from _written(op, "tbi,DHi,DHH,DH,b,DbH,DbH,DH->tDbH,DbH,DbH")
    yield op.dim(1, 0) + op.number("direction")
    yield op.dim(2, 2) + op.number("hidden_size")


def _transpose(op: Operands) -> Iterator[Constraint]:
    axes = ascii_lowercase[: len(op.shape(0))]
    given = next((a.ints for a in op.node.attribute if a.name == "perm"), range(len(axes))[::-1])
    if len(given) == len(axes):  # else the operand is unknown
        yield from _written(op, f"{axes}->{''.join(axes[axis] for axis in given)}")


def _reshape(op: Operands) -> Iterator[Constraint]:
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


def _entries(op: Operands, slot: int = 1) -> Iterator[Constraint]:
    """The shape that operand `slot` asks for: of Reshape, Expand, Resize."""
    name = op.name(slot)
    wanted = op.tensors[name].tolist() if name and op.tensors[name].ndim == 1 else []
    for at, n in enumerate(wanted):
        dim = op.dim(0, at - len(wanted), out=True)
        if n > 1 and dim and n == op.shape(0, out=True)[dim[0].at]:
            yield [Size("entry", name, at), *dim]


def _subsequence(op: Operands) -> Iterator[Constraint]:
    """The output's axes are some of the input's, in their order."""
    start = 0
    for to, n in enumerate(op.shape(0, out=True)):
        for axis in range(start, len(op.shape(0))):
            if op.shape(0)[axis] == n:
                yield op.dim(0, axis) + op.dim(0, to, out=True)
                start = axis + 1
                break


def _expand(op: Operands) -> Iterator[Constraint]:
    yield from _aligned(op)
    yield from _entries(op)


def _resize(op: Operands) -> Iterator[Constraint]:
    yield from _written(op, "*->*")
    yield from _entries(op, slot=3)


def _gather(op: Operands) -> Iterator[Constraint]:
    data = ascii_lowercase[: len(op.shape(0))]
    indices = ascii_lowercase[len(data) :][: len(op.shape(1))]
    axis = op.attribute("axis", 0) % max(1, len(data))
    yield from _written(op, f"{data},{indices}->{data[:axis]}{indices}{data[axis + 1 :]}")


def _concat(op: Operands) -> Iterator[Constraint]:
    yield from _written(op, f"{','.join('*' * len(op.node.input))}->*")


def _split(op: Operands) -> Iterator[Constraint]:
    parts = range(len(op.node.output))
    yield from _written(op, f"*->{','.join('*' * len(parts))}")
    entries = [Size("entry", op.name(1), i) for i in range(len(op.tensors[op.name(1)]))] if op.name(1) else []
    numbers = [s for part in parts for s in op.number("split", part)]
    yield op.dim(0, op.attribute("axis", 0)) + entries + numbers


# In families whose members are constrained alike; the rules of single operators come before these.
FAMILIES: Mapping[Trait, Rule] = {
    Trait.WEIGHTED | Trait.SLIDES: _convolution,
    Trait.POOLS | Trait.SLIDES: _pooling,
    Trait.RECURRENT: _recurrent,
    Trait.QUANTIZES: _codes,
    Trait.DEQUANTIZES: _codes,
    Trait.KEEPS_ORDER: _reshape,
}
# A rule each. Without one, and of no family: as in broadcasting.
RULES: Mapping[str, str | Rule] = {
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization"), "bc*,c,c,c,c->bc*"),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Einsum": _einsum,
    "Transpose": _transpose,
    "Expand": _expand,
    "Resize": _resize,
    **dict.fromkeys(("GatherElements", "ScatterElements"), "...,...,...->..."),
    "Tile": "*->*",
    "Gather": _gather,
    "Concat": _concat,
    "Split": _split,
}
