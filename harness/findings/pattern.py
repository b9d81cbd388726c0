"""Patterns: a reduced model read as the least that a place in another model has to have.

    operators     the same types, or their siblings: operators that engines implement by one piece of code
    edges         the same slots of the same makers; an operand that nothing makes in the pattern may be made elsewhere
    attributes    each one left in the pattern is present; texts are equal, numbers negative where the pattern's are,
                  and neither 0 nor 1 where the pattern's are large: these are what numbers are reduced to
    operands      present where the pattern's is, and of its class (`signature.operand_class`); of operators that move
                  data the type does not count, nor does it count what a subgraph or an equation says

Where it is known at which node the bug is, the pattern's other nodes are but the company it needs: any operator may
stand for one of them that has its edges, and shares with the others the tensors that it shares in the pattern.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx
from driftnet.model.constants import Tensors, with_constants
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.signature import attribute_classes, is_ranked, operand_class

# What engines implement by one piece of code, as far as findings have shown.
SIBLINGS = (
    "Add Div Mul Sub",
    "And Or Xor",
    "ArgMax ArgMin",
    "AveragePool LpPool MaxPool",
    "BatchNormalization InstanceNormalization LayerNormalization",
    "Ceil Floor Round",
    "Clip Relu",
    "Equal Greater GreaterOrEqual Less LessOrEqual",
    "GRU LSTM RNN",
    "Gather GatherElements GatherND",
    "GlobalAveragePool GlobalLpPool GlobalMaxPool",
    "LogSoftmax Softmax",
    "Max Mean Min Sum",
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare",
    "ScatterElements ScatterND",
    "Sigmoid Tanh",
)
BODIES = frozenset({"body", "then_branch", "else_branch", "equation"})
"""Attributes that hold programs of their own."""

FAMILY = {op_type: family for family in SIBLINGS for op_type in family.split()}

Occurrence = tuple[int, ...]
"""Indices of the nodes that stand for the pattern's nodes, in the pattern's order."""


@dataclass(frozen=True)
class Operand:
    """What the pattern knows of one input of a node: the (pattern node, output slot) that makes it, or its class."""

    name: str
    maker: tuple[int, int] | None = None
    leaf: str = ""


@dataclass(frozen=True)
class PatternNode:
    """One node of a pattern.

    name        its own, or that of its first output
    attributes  (name, class) of each that is stated
    operands    None where an optional input is absent
    """

    name: str
    op_type: str
    attributes: tuple[tuple[str, str], ...]
    operands: tuple[Operand | None, ...]


@dataclass(frozen=True)
class Pattern:
    """nodes     in the order of their graph
    anchors   indices of the nodes where the bug is; the others may be of any operator
    classless   classes of attributes and operands do not count
    rankless    ranks of operands do not count: a quantizer, unlike a kernel, treats all alike
    """

    nodes: tuple[PatternNode, ...]
    anchors: frozenset[int]
    classless: bool = False
    rankless: bool = False

    @property
    def is_loose(self) -> bool:
        """Whether some nodes may be of any operator."""
        return len(self.anchors) < len(self.nodes)


def nodes_of(case: Case) -> tuple[PatternNode, ...]:
    """The main graph of `case` without its Constant nodes, in its order."""
    values = with_constants(case, case.feeds[0])
    nodes = [case.proto.graph.node[i] for i in computing(case.proto.graph)]
    made = {name: (i, slot) for i, node in enumerate(nodes) for slot, name in enumerate(node.output) if name}

    def operand(name: str, node: onnx.NodeProto) -> Operand | None:
        if not name:
            return None
        if name in made:
            return Operand(name, made[name])
        return Operand(name, leaf=operand_class(values[name], ranked=is_ranked(node)) if name in values else "")

    def pattern_node(node: onnx.NodeProto) -> PatternNode:
        operands = tuple(operand(name, node) for name in node.input)
        return PatternNode(node.name or node.output[0], node.op_type, (*attribute_classes(node).items(),), operands)

    return tuple(map(pattern_node, nodes))


def family(op_type: str) -> str:
    """An operator with its siblings."""
    return FAMILY.get(op_type, op_type)


def sinks(nodes: Sequence[PatternNode]) -> frozenset[int]:
    """Indices of the nodes whose results no other one reads."""
    read = {operand.maker[0] for node in nodes for operand in node.operands if operand and operand.maker}
    return frozenset(range(len(nodes))) - read


def may_occur(pattern: Pattern, case: Case) -> bool:
    """Whether `case` has as many nodes of each operator or its siblings as the pattern: costs microseconds."""
    there = families(case)
    wanted = Counter(family(pattern.nodes[i].op_type) for i in pattern.anchors)
    return 0 < len(pattern.nodes) <= there.total() and wanted <= there


@lru_cache(maxsize=4)  # a case is asked for each known issue
def families(case: Case) -> Counter[str]:
    """How many nodes `case` has of each operator with its siblings."""
    return Counter(family(node.op_type) for node in case.proto.graph.node)


def occurrences(pattern: Pattern, case: Case, tensors: Tensors) -> list[Occurrence]:
    """Where the pattern occurs in `case`, each set of nodes once. tensors: every tensor of the main graph."""
    graph = case.proto.graph
    host = _Host(pattern, list(graph.node), computing(graph), with_constants(case, tensors))
    found: dict[frozenset[int], Occurrence] = {}
    for occurrence in host.completed(()):
        found.setdefault(frozenset(occurrence), occurrence)
    return list(found.values())


@dataclass(frozen=True, eq=False)
class _Host:
    """The model that is searched: its nodes, which of them are no Constant, and every value of its main graph."""

    pattern: Pattern
    nodes: Sequence[onnx.NodeProto]
    computing: Sequence[int]
    tensors: Tensors

    def completed(self, chosen: Occurrence) -> Iterator[Occurrence]:
        """Every way to complete `chosen`, node by node; makers stand before readers, so edges are checked at once."""
        if len(chosen) == len(self.pattern.nodes):
            yield chosen
            return
        for index in self.computing:
            if index not in chosen and self.fits(self.nodes[index], chosen):
                yield from self.completed((*chosen, index))

    def fits(self, node: onnx.NodeProto, chosen: Occurrence) -> bool:
        """Whether `node` may stand for the pattern's next node."""
        wanted = self.pattern.nodes[len(chosen)]
        if not self.shares(wanted, node, chosen):
            return False
        if len(chosen) not in self.pattern.anchors:
            return True
        classes = attribute_classes(node)
        covered = (
            name in classes and (name in BODIES or _covers(classes[name], value)) for name, value in wanted.attributes
        )
        if family(node.op_type) != family(wanted.op_type) or not (self.pattern.classless or all(covered)):
            return False
        names = [*node.input, *[""] * len(wanted.operands)]
        pairs = [(operand, name) for operand, name in zip(wanted.operands, names) if operand]
        return all(name and self.stands_for(operand, name, node, chosen) for operand, name in pairs)

    def shares(self, wanted: PatternNode, node: onnx.NodeProto, chosen: Occurrence) -> bool:
        """Whether `node` has in common with the chosen nodes what the pattern's node has, where either may be any."""
        loose = [k for k in range(len(chosen)) if not {k, len(chosen)} <= self.pattern.anchors]
        read = {operand.name for operand in wanted.operands if operand}
        for k in loose:
            other, there = self.pattern.nodes[k], self.nodes[chosen[k]]
            makes = any(operand.maker and operand.maker[0] == k for operand in wanted.operands if operand)
            common = any(operand.name in read for operand in other.operands if operand)
            if (makes and set(there.output).isdisjoint(node.input)) or (
                common and not makes and set(there.input).isdisjoint(node.input)
            ):
                return False
        return True

    def stands_for(self, operand: Operand, name: str, node: onnx.NodeProto, chosen: Occurrence) -> bool:
        """Whether tensor `name`, which `node` reads, is the pattern's operand."""
        if operand.maker is not None:
            maker, slot = operand.maker
            made = list(self.nodes[chosen[maker]].output)
            return name in made if maker not in self.pattern.anchors else made[slot : slot + 1] == [name]
        x = self.tensors.get(name)
        return self.pattern.classless or (
            x is not None and self.is_alike(operand.leaf, operand_class(x, ranked=is_ranked(node)), node)
        )

    def is_alike(self, wanted: str, have: str, node: onnx.NodeProto) -> bool:
        """Whether two classes of operands are one."""
        if self.pattern.rankless:
            wanted, have = (re.sub(r"(?<!\[)\d", "", x) for x in (wanted, have))
        start = 1 if has_any(node, Trait.MOVES) else 0  # without the kind of the type
        return wanted == "" or wanted[start:] == have[start:]


def _covers(have: str, want: str) -> bool:
    if not set(want) <= set("[]01n-"):
        return have == want
    return ("-" in have or "-" not in want) and ("-" in have or "n" in have or "n" not in want)
