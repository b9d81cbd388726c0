"""Tracing: which operation of an artifact computes which tensor of the float model, and on which grids.

An artifact that is no ONNX may still tell its operations, by the names of their tensors (see
driftnet.model.artifact.Artifact). From a tensor of the model one goes back through them until other tensors of the
model are met that it depends on. What lies between is its region. Where a single operation computes there, all others
moving data only, its operands and result are on the artifact's grids when it runs in codes, and as they were when it
does not. So with the pieces of a grouped convolution, which stand side by side. What is rounded between operations that
follow each other cannot be said of the model's tensors, and such a region is not known, unless all compute in floats.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.artifact import Operation
from driftnet.model.graph import Graph, Values
from driftnet.oracle.fixed_point import rules
from driftnet.oracle.scheme.artifact_trace import Grid, Trace

UNLESS_BROADCAST, EITHER = "codes unless broadcast", "codes or floats"
LAYER = "layer"
"""what an operation computes that multiplies its operand by its weights"""


Grids = tuple[Grid | None, ...]
"""One for all of a tensor, or one for each of as many equal pieces along axis 1. None: as it is."""


@dataclass(frozen=True)
class Region:
    """What computes tensor `result` of the model.

    start        the artifact's name of the result; "" where it has none that could be relied upon
    operations   those that do more than move data
    coded        the operations that run in codes -> whether they surely do
    sources      tensors of the model that it is computed from -> the grids that they are read on
    grids        those of the result;   steps   how far off a code may be there, beyond the nearest
    handed_out   the grids of the result as a result of the whole model
    known        whether that is all that is rounded
    told         whether all grids are, those between operations too
    """

    result: str
    start: str = ""
    operations: tuple[Operation, ...] = ()
    coded: Mapping[str, bool] = field(default_factory=dict)
    sources: Mapping[str, Grids] = field(default_factory=dict)
    grids: Grids = (None,)
    steps: float = 0
    handed_out: Grids = (None,)
    known: bool = False
    told: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether the result is handed out as those that read it find it."""
        return self.start == self.result and all(grid is None or grid.sure for grid in self.handed_out)


@dataclass(frozen=True)
class _Read:
    """A tensor of the model ("": a constant that the model does not have), met on the way back from an `operand`.

    moved   the grids on which the data were moved
    """

    tensor: str
    operation: str
    operand: str
    moved: frozenset[Grid]


def regions(model: Graph, trace: Trace, runs: Sequence[Values]) -> dict[str, Region]:
    """The region of each tensor that `model` computes and the artifact names. runs: the tensors of the model."""
    found = {}
    computed = {name for node in model.nodes for name in node.outputs}
    for node in model.nodes:
        for name in node.outputs:
            if name and (start := trace.start(name)):
                behind = set(_behind(model, name))
                region = _region(model, trace, name, _walk(trace, start, behind), runs)
                renamed = _is_renamed(model, region, computed - behind - {name}, runs[0])
                found[name] = Region(name) if renamed else region
            elif name in model.outputs:
                found[name] = Region(name)
    return found


def _is_renamed(model: Graph, region: Region, strangers: Collection[str], run: Values) -> bool:
    """Whether the artifact's tensor is not the model's: converters that change the order of nodes move names.

    strangers   results that do not come before this one
    """
    nodes = [model.nodes[k] for k in inside(model, region)]
    computing = [node for node in nodes if run.get(node.outputs[0], _NOTHING).dtype.kind == "f"]
    moves = all(rules.moves(node.op) for node in computing)
    return any(op.name in strangers or (moves and op.values is None) for op in region.operations)


_NOTHING = np.zeros(0)


def inside(model: Graph, region: Region) -> list[int]:
    """The numbers of the nodes between the tensors that a region reads and its result, in order."""
    needed, found = {region.result}, []
    for k in range(len(model.nodes) - 1, -1, -1):
        node = model.nodes[k]
        if needed.intersection(node.outputs):
            found.append(k)
            needed.update(name for name in node.inputs if name not in region.sources)
    return found[::-1]


def _behind(model: Graph, name: str) -> Iterator[str]:
    """The tensors that tensor `name` depends on."""
    for node in model.ancestors(name):
        yield from (x for x in (*node.inputs, *(node.outputs if name not in node.outputs else ())) if x)


@dataclass(frozen=True)
class _Walk:
    """The way back from `start`.

    operations   those that compute;   reads   the tensors of the model that were met
    links        (operation, the one whose result it reads, the grids on which that was moved)
    """

    start: str
    operations: Mapping[str, Operation]
    reads: Sequence[_Read]
    links: Sequence[tuple[str, str, frozenset[Grid]]]


def _region(model: Graph, trace: Trace, result: str, walk: _Walk, runs: Sequence[Values]) -> Region:
    """What `walk`, the way back from tensor `result`, says of it."""
    operations = tuple(walk.operations.values())
    coded = _coded(trace, result, walk, runs)
    sources, sure = _sources(trace, walk, coded)
    taken = trace.taken(walk.start)
    results: list[Grid | None] = [
        replace(trace.grid(op.outputs[0]), sure=coded[op.name]) if op.name in coded else None for op in operations
    ]
    region = Region(
        result,
        walk.start,
        operations,
        coded,
        {name: grids for name, grids in sources.items() if name},
        _single(results) if coded else (taken,),
        max((op.steps for op in operations if op.name in coded), default=0),
        (trace.moved_on(walk.start) if walk.start == result else None,),
    )
    between = {trace.grid(t) for op in operations if op.name in coded for t in (*op.inputs, *op.outputs[:1])}
    moved = {grid for grids in (*sources.values(), region.handed_out, (taken,)) for grid in grids if grid}
    told = all(grid.scale > 0 for grid in between | moved)
    apart = not any(moved or {reader, maker} & coded.keys() for reader, maker, moved in walk.links)
    alone = not coded or (len(coded) == len(operations) and "" not in sources)
    fits = _fits(model, region)
    told &= fits or bool(operations)  # else a name has moved past what was fused into its operation
    return replace(region, known=told and sure and apart and alone and fits, told=told)


def _sources(trace: Trace, walk: _Walk, coded: Mapping[str, bool]) -> tuple[dict[str, Grids], bool]:
    """({tensor of the model: the grids that it is read on}, whether each read is on one grid at most)"""
    found: dict[str, list[Grid | None]] = {}
    sure = True
    for r in walk.reads:
        own = [replace(trace.grid(r.operand), sure=coded[r.operation])] if r.operation in coded else []
        grids = sorted((*r.moved, *own), key=lambda grid: not grid.sure)
        found.setdefault(r.tensor, []).append(grids[0] if grids else None)
        sure &= len({replace(grid, sure=True) for grid in grids}) <= 1
    return {name: _single(grids) for name, grids in found.items()}, sure


def _fits(model: Graph, region: Region) -> bool:
    """Whether the region's nodes can be what its operations are: as many pieces as groups, and none for moves only."""
    nodes = [model.nodes[k] for k in inside(model, region)]
    pieces = {1, *(node.attributes.get("group", 1) for node in nodes if node.op in ("Conv", "ConvTranspose"))}
    if not all(len(grids) in pieces for grids in (region.grids, *region.sources.values())):
        return False
    if region.operations:
        return not any(op.runs == "somehow" for op in region.operations)
    moved = all(rules.moves(node.op) for node in nodes)
    return moved or set(_behind(model, region.result)).isdisjoint(model.inputs)  # else: computed beforehand


def _single(grids: Sequence[Grid | None]) -> Grids:
    """One grid where all are the same."""
    return tuple(grids[:1]) if len(set(grids)) == 1 else tuple(grids)


def _walk(trace: Trace, start: str, behind: Collection[str]) -> _Walk:
    operations: dict[str, Operation] = {}
    reads: list[_Read] = []
    links: list[tuple[str, str, frozenset[Grid]]] = []
    met: set[tuple[str, str]] = set()
    pending: list[tuple[str, str, str, frozenset[Grid]]] = [(start, "", "", frozenset())]
    while pending:
        tensor, operation, operand, grids = pending.pop()
        name, op = trace.name(tensor), trace.makers.get(tensor)
        moved = trace.moved_on(tensor)
        if tensor != start and moved:
            grids = grids | {moved}
        if tensor != start and name in behind:
            reads.append(_Read(name, operation, operand, grids))
        elif op is None or not op.inputs:
            reads.append(_Read("", operation, operand, grids))
        elif op.runs == "moves":
            if (tensor, operation) in met:
                continue
            met.add((tensor, operation))
            pending += [(x, operation, operand, grids) for x in reversed(op.inputs)]
        else:
            links += [(operation, op.name, grids)] if operation else []
            if op.name not in operations:
                operations[op.name] = op
                pending += [(x, op.name, x, frozenset()) for x in reversed(op.inputs)]
    return _Walk(start, operations, reads, links)


def _coded(trace: Trace, result: str, walk: _Walk, runs: Sequence[Values]) -> dict[str, bool]:
    """The operations that run in codes -> whether they surely do."""
    coded = {}
    for op in walk.operations.values():
        if op.runs in ("codes", UNLESS_BROADCAST, EITHER):
            coded[op.name] = op.runs == "codes" or (
                op.runs == UNLESS_BROADCAST
                and all(
                    {_size(trace, walk, tensor, result, run) for tensor in op.inputs}
                    <= {1, np.size(run.get(result, 0))}
                    for run in runs
                )
            )
    return coded


def _size(trace: Trace, walk: _Walk, tensor: str, result: str, run: Values) -> int:
    """How many elements the artifact's `tensor` has in a run of the model; 0 where that is not known."""
    name, op = trace.name(tensor), trace.makers.get(tensor)
    if any(r.tensor == name for r in walk.reads):
        return np.size(run.get(name, 0))
    if op is None or op.values is not None:
        return 0 if op is None or op.values is None else op.values.size
    if op.computes == LAYER:
        return np.size(run.get(result, 0))
    if (op.computes and not op.computes.startswith("Reduce")) or op.in_order:
        sizes = [_size(trace, walk, x, result, run) for x in op.inputs]
        return max(sizes) if all(sizes) else 0
    return 0
