"""Tracing a late failure back to the earliest tensor that is wrong by itself.

A wrong shape may surface as an error of its consumer, or as no output at all. What is to be reduced and reported is the
first computation that fails on its own; what it was first seen by is a symptom.
"""

from collections.abc import Callable
from dataclasses import dataclass

from driftnet.model.inspect import Case, computing, graph_inputs
from driftnet.model.submodel import Record, Recording, UnrecordedError, ancestors, reads, recording, submodel
from driftnet.model.verdict import Verdict
from driftnet.reduce.passes import bisect

LINEAR = 12
"""Up to this many nodes every tensor is examined in turn; in larger models the failing prefix is bisected first."""


@dataclass(frozen=True, eq=False)
class Traced:
    """The model of everything that `tensor` is computed by, with `tensor` as its only output, and how it fails."""

    case: Case
    verdict: Verdict
    tensor: str


def trace(case: Case, examine: Callable[[Case], Verdict], record: Record) -> Traced | None:
    """The earliest tensor of a failing `case`, in topological order, whose own computation fails in any way.

    None when that is no part of the case, but the whole. Raises what `record` raises.
    """
    recorded = recording(case, record)
    nodes = computing(case.proto.graph)
    last = len(nodes)
    if last > LINEAR:
        last = bisect(last, lambda n: _fails(case, nodes[:n], recorded, examine))
    start = 0 if last <= LINEAR else last - 1
    made = [name for index in nodes[start:last] for name in case.proto.graph.node[index].output if name]
    fed = _fed(case)
    for name in sorted(made, key=lambda name: name not in fed):
        if traced := _examined(case, name, recorded, examine):
            return traced
    return None


def _fed(case: Case) -> set[str]:
    """The tensors that depend on a graph input. What is made of constants alone comes last: on its own it is a model
    that nobody would deploy, and its failure may be another one."""
    fed = {value.name for value in graph_inputs(case.proto)}
    for node in case.proto.graph.node:
        if fed.intersection(reads(node)):
            fed.update(node.output)
    return fed


def _fails(case: Case, keep: list[int], recorded: Recording, examine: Callable[[Case], Verdict]) -> bool:
    try:
        return examine(submodel(case, keep, recorded)).failed
    except UnrecordedError:
        return False


def _examined(case: Case, name: str, recorded: Recording, examine: Callable[[Case], Verdict]) -> Traced | None:
    keep = ancestors(case.proto.graph, [name])
    if len(keep) == len(case.proto.graph.node):
        return None
    try:
        part = submodel(case, keep, recorded, [name])
    except UnrecordedError:
        return None
    verdict = examine(part)
    return Traced(part, verdict, name) if verdict.failed else None
