"""Known issues: masks of saved open cases, and whether one of them explains a failure.

Toolchains carry many bugs, and one common bug drowns the rest: 59 of 60 raw failures were the same one. A mask is the
reduced case of a known bug read as a pattern. Reduction leaves only what the failure needs, so the pattern is a lower
bound: a place in another model matches when it has at least what the pattern has.

    operators     the same types, or their siblings: operators that engines implement by one piece of code
    edges         the same slots of the same makers; an operand that nothing makes in the pattern may be made elsewhere
    attributes    each one left in the pattern is present; texts are equal, numbers negative where the pattern's are,
                  and neither 0 nor 1 where the pattern's are large: these are what numbers are reduced to
    operands      present where the pattern's is, and of its class (`signature.operand_class`)

Where the system says at length why it failed, its words are compared in the place of classes; and they are the pattern
of any one node, whichever operator it is (a quantiser that refuses float16 does so at every operator that it knows).
A lone Identity does nothing that could go wrong but pass a tensor on: it is the pattern of whatever reads or makes
a tensor of that class (a quantiser that takes integers for floats crashes at every operator that has any).

That a place matches proves nothing. Masks explain a failure when such places, cut out with their recorded operands,
fail by themselves as their masks say, and the model without these places, their outputs recorded, does not fail. So the
kind is compared where the bug is; what consumers make of a wrong value downstream (NaN, no output) may be of any kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from harness.case import Case
from harness.corpus import SavedCase
from harness.reduce.passes import operators
from harness.reduce.submodel import (
    Record,
    Recording,
    Tensors,
    UnrecordedError,
    reads,
    recording,
    submodel,
    with_constants,
)
from harness.signature import attribute_classes, operand_class
from harness.verdict import Kind

SIBLINGS = (
    "And Or Xor",
    "ArgMax ArgMin",
    "AveragePool LpPool MaxPool",
    "BatchNormalization InstanceNormalization LayerNormalization",
    "Ceil Floor Round",
    "Equal Greater GreaterOrEqual Less LessOrEqual",
    "GRU LSTM RNN",
    "GlobalAveragePool GlobalLpPool GlobalMaxPool",
    "LogSoftmax Sigmoid Softmax Tanh",
    "Max Mean Min Sum",
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare",
)
TELLING = 8
"""Words of an error message that tell its cause, whatever the operator; MNN's "Compute Shape Error" does not. A Python
exception, which has a type, does in fewer."""

FAMILY = {op_type: family for family in SIBLINGS for op_type in family.split()}

Occurrence = tuple[int, ...]
"""Indices of the nodes that stand for the pattern's nodes, in the pattern's order."""


@dataclass(frozen=True)
class Operand:
    """What the pattern knows of one input of a node: the (pattern node, output slot) that makes it, or its class."""

    maker: tuple[int, int] | None = None
    leaf: str = ""


@dataclass(frozen=True)
class PatternNode:
    """One node of the pattern. operands: None where an optional input is absent."""

    op_type: str
    attributes: Mapping[str, str]
    operands: tuple[Operand | None, ...]


@dataclass(frozen=True)
class Mask:
    """A known bug of `target`, to be found in other models.

    id names the saved case;   rule  the documented behaviour that it shows, "" where it is a bug
    """

    id: str
    target: str
    stage: str
    kind: str
    coarse: str
    pattern: tuple[PatternNode, ...]
    rule: str = ""

    @property
    def is_told(self) -> bool:
        """Whether the words of the error are pattern enough."""
        words = self.coarse.rpartition("/")[2].split()
        told = len(words) >= TELLING or any(word.endswith("error") and word != "error" for word in words)
        return self.kind == Kind.ERROR and told

    @property
    def passes_on(self) -> str:
        """The class of the tensor that is pattern enough, "" where the operators count."""
        lone = self.pattern[0] if len(self.pattern) == 1 and self.pattern[0].op_type == "Identity" else None
        return lone.operands[0].leaf if lone and lone.operands[0] else ""

    @property
    def op_types(self) -> frozenset[str]:
        """The operators of the pattern."""
        return frozenset(node.op_type for node in self.pattern)


def mask_of(saved: SavedCase) -> Mask:
    """The mask of a saved case."""
    kind = str(saved.verdict.get("kind", ""))
    return Mask(saved.id, saved.target, saved.stage, kind, saved.coarse, pattern_of(saved.case), saved.rule)


def pattern_of(case: Case) -> tuple[PatternNode, ...]:
    """The main graph of `case` without its Constant nodes, in its order."""
    values = with_constants(case, case.feeds[0])
    nodes = [node for node in case.proto.graph.node if node.op_type != "Constant"]
    made = {name: (i, slot) for i, node in enumerate(nodes) for slot, name in enumerate(node.output) if name}

    def operand(name: str, op_type: str) -> Operand | None:
        if not name:
            return None
        if name in made:
            return Operand(made[name])
        return Operand(leaf=operand_class(values[name], op_type) if name in values else "")

    return tuple(
        PatternNode(node.op_type, attribute_classes(node), tuple(operand(name, node.op_type) for name in node.input))
        for node in nodes
    )


@dataclass(frozen=True, eq=False)
class Explanation:
    """masks: the known bugs that show in a case. rest: what still fails when their places are replaced by recorded
    values (the case itself where there are none), None when nothing does: then they explain the failure."""

    masks: tuple[Mask, ...]
    rest: Case | None


def explain(masks: Iterable[Mask], case: Case, failure: Callable[[Case], str], record: Record) -> Explanation:
    """How far known bugs account for the failure of `case`: a graph of ten nodes may well have two of them, or one and
    a new one, which is then all that is left in the rest.

    masks     of the target that failed
    failure   the coarse signature of the way a case fails, "" when it does not
    Raises what `record` raises for `case` itself.
    """
    masks = list(masks)
    possible = [mask for mask in masks if may_occur(mask, case)]
    told = {mask.coarse: mask for mask in masks if mask.is_told}
    found: list[Mask] = []
    places: set[int] = set()
    rest, failed = case, failure(case) if possible or told else ""
    recorded = recording(case, record) if failed else Recording((), ())
    # A bug of one stage is not why another fails; when it is neutralised, what is left may fail in a later one.
    while failed:
        if mask := next((m for m in possible if m.stage == _stage(failed)), None):
            possible.remove(mask)
            occurrences = _places(mask, case, recorded)
        elif mask := told.pop(failed, None):
            occurrences = _inseparable(case, recorded)
        else:
            break
        failing = [o for o in occurrences if places.isdisjoint(o)]
        failing = [o for o in failing if _fails_alone(mask, case, o, failure, recorded)]
        if failing:
            found.append(mask)
            places.update(index for occurrence in failing for index in occurrence)
            without = _without(case, places, recorded)
            if without is None or not (failed := failure(without)):
                return Explanation(tuple(found), None)
            rest = without
    return Explanation(tuple(found), rest)


def _stage(coarse: str) -> str:
    return coarse.split("/")[1] if "/" in coarse else ""


def may_occur(mask: Mask, case: Case) -> bool:
    """Whether `case` has as many nodes of each operator or its siblings as the pattern: costs microseconds."""
    if not mask.pattern:  # a saved case of nothing but Constant nodes
        return False
    if mask.passes_on:
        return True
    there = Counter(_family(node.op_type) for node in case.proto.graph.node)
    return Counter(_family(node.op_type) for node in mask.pattern) <= there


def _family(op_type: str) -> str:
    return FAMILY.get(op_type, op_type)


def matches(mask: Mask, case: Case, tensors: Tensors) -> list[Occurrence]:
    """Where the pattern occurs in `case`, each set of nodes once. tensors: every tensor of the main graph."""
    graph = case.proto.graph
    host = Host(list(graph.node), with_constants(case, tensors), mask.is_told)
    found: dict[frozenset[int], Occurrence] = {}
    for occurrence in _extend(mask.pattern, host, ()):
        found.setdefault(frozenset(occurrence), occurrence)
    return list(found.values())


@dataclass(frozen=True, eq=False)
class Host:
    """The model that is searched: its nodes, every value of its main graph, and whether the words of the error are
    pattern enough, so that classes are not compared."""

    nodes: Sequence[onnx.NodeProto]
    tensors: Tensors
    told: bool


def _extend(pattern: Sequence[PatternNode], host: Host, chosen: Occurrence) -> Iterator[Occurrence]:
    """Every way to complete `chosen`, node by node; makers stand before readers, so edges are checked at once."""
    if len(chosen) == len(pattern):
        yield chosen
        return
    wanted = pattern[len(chosen)]
    for index, node in enumerate(host.nodes):
        alike = _family(node.op_type) == _family(wanted.op_type)
        if index not in chosen and alike and _fits(wanted, node, host, chosen):
            yield from _extend(pattern, host, (*chosen, index))


def _fits(wanted: PatternNode, node: onnx.NodeProto, host: Host, chosen: Occurrence) -> bool:
    classes = attribute_classes(node)
    covered = (name in classes and _covers(classes[name], value) for name, value in wanted.attributes.items())
    if not (host.told or all(covered)):
        return False
    names = [*node.input, *[""] * len(wanted.operands)]
    return all(
        operand is None or (name and _stands_for(operand, name, node, host, chosen))
        for operand, name in zip(wanted.operands, names)
    )


def _covers(have: str, want: str) -> bool:
    if not set(want) <= set("[]01n-"):
        return have == want
    return ("-" in have or "-" not in want) and ("-" in have or "n" in have or "n" not in want)


def _stands_for(operand: Operand, name: str, node: onnx.NodeProto, host: Host, chosen: Occurrence) -> bool:
    if operand.maker is not None:
        maker, slot = operand.maker
        return list(host.nodes[chosen[maker]].output)[slot : slot + 1] == [name]
    x = host.tensors.get(name)
    return host.told or (x is not None and operand.leaf in ("", operand_class(x, node.op_type)))


def _inseparable(case: Case, recorded: Recording) -> list[Occurrence]:
    """The nodes of `case` one by one; those together that pass on what cannot be recorded, a sequence for one."""
    graph, groups = case.proto.graph, list[set[int]]()
    made = {name: i for i in operators(case) for name in graph.node[i].output}
    for i in operators(case):
        makers = {made[name] for name in reads(graph.node[i]) if name in made and name not in recorded.runs[0]}
        joined = [group for group in groups if not group.isdisjoint(makers)]
        groups = [group for group in groups if group not in joined] + [{i}.union(*joined)]
    return [tuple(sorted(group)) for group in groups]


def _places(mask: Mask, case: Case, recorded: Recording) -> list[Occurrence]:
    """Where the bug of `mask` may be at work."""
    if not mask.passes_on:
        return matches(mask, case, recorded.runs[0])
    tensors, nodes = with_constants(case, recorded.runs[0]), case.proto.graph.node

    def has(i: int) -> bool:
        arrays = [tensors[name] for name in (*nodes[i].input, *nodes[i].output) if name in tensors]
        return any(operand_class(x, "Identity") == mask.passes_on for x in arrays)

    return [group for group in _inseparable(case, recorded) if any(map(has, group))]


def _fails_alone(
    mask: Mask, case: Case, occurrence: Occurrence, failure: Callable[[Case], str], recorded: Recording
) -> bool:
    whole = len(occurrence) == len(operators(case))
    try:
        coarse = failure(case if whole else submodel(case, occurrence, recorded))
    except UnrecordedError:
        return False
    # These kinds take several runs to tell; one run shows them as something else.
    by_chance = mask.kind in (Kind.NONDETERMINISTIC, Kind.STALE_STATE)
    return coarse == mask.coarse or (by_chance and coarse != "")


def _without(case: Case, places: set[int], recorded: Recording) -> Case | None:
    """`case` without these nodes, None when none is left; `case` itself when it cannot be cut there."""
    kept = [i for i in operators(case) if i not in places]
    try:
        return submodel(case, kept, recorded) if kept else None
    except UnrecordedError:
        return case
