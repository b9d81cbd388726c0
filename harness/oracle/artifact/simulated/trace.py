"""Trace: which operation of an artifact computes which tensor of the float model, and on which grids.

An artifact that is no ONNX may still tell its operations, by the names of their tensors (see
driftnet.model.artifact.Artifact). From a tensor of the model one goes back through them until other tensors of the
model are met that it depends on. What lies between is its region. Where a single operation computes there, all others
moving data only, its operands and result are on the artifact's grids when it runs in codes, and as they were when it
does not. So with the pieces of a grouped convolution, which stand side by side. What is rounded between operations that
follow each other cannot be said of the model's tensors, and such a region is not known, unless all compute in floats.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.artifact import Operation
from driftnet.model.graph import Graph, Node, Values, nested
from driftnet.model.operators import Trait, having
from driftnet.oracle.artifact.verified.names import attributes_of, content
from driftnet.oracle.scheme.artifact_trace import Grid, Trace

UNLESS_BROADCAST, EITHER = "codes unless broadcast", "codes or floats"
LAYER = "layer"
"""what an operation computes that multiplies its operand by its weights"""
MOVING, RANDOM = having(Trait.MOVES), having(Trait.RANDOM)

Grids = tuple[Grid | None, ...]
"""One for all of a tensor, or one for each of as many equal pieces along axis 1. None: as it is."""


@dataclass(frozen=True)
class Region:
    """What computes tensor `result` of the model.

    within       the numbers of the model's nodes between what it is computed from and the result, in order
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
    within: tuple[int, ...]
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
    def is_observable(self) -> bool:
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


def merged(model: Graph, trace: Trace) -> Graph:
    """`model` with one reader more for the first of nodes that compute the same, where the artifact knows what that
    makes and nothing of the other: a converter takes common subexpressions away, and what is left stands for both, on
    its grid. Of what something was fused into it may not know the result, but the operation."""
    first: dict[tuple[object, ...], Node] = {}
    called: dict[str, str] = {}
    there = {*trace.makers, *(op.name for op in trace.makers.values())}
    nodes = []
    for node in model.nodes:
        read = replace(node, inputs=tuple(called.get(name, name) for name in node.inputs))
        operands = [content(model.constants.get(name), name) for name in read.inputs]
        form = (node.op, len(node.outputs), *operands, *sorted(attributes_of(node).items()))
        drawn = any(inner.op in RANDOM for inner in nested([node], model.opset))
        twin = node if drawn else first.setdefault(form, node)
        own = {node.name, *node.outputs} - {""}
        if there.isdisjoint(own) and own.isdisjoint(model.outputs) and trace.start(twin.outputs[0]):
            called.update(zip(node.outputs, twin.outputs))
        nodes.append(read)
    return replace(model, nodes=tuple(nodes))


def regions_of(model: Graph, trace: Trace, runs: Sequence[Values]) -> dict[str, Region]:
    """The region of each tensor that `model` computes and the artifact names. runs: the tensors of the model."""
    found = {}
    for name in (name for node in model.nodes for name in node.outputs if name):
        start = trace.start(name)
        if start or name in model.outputs:
            region = _region(model, trace, name, runs) if start else None
            found[name] = region or Region(name, _within(model, name, ()))
    return found


def _within(model: Graph, result: str, sources: Collection[str]) -> tuple[int, ...]:
    needed, found = {result}, []
    for k in range(len(model.nodes) - 1, -1, -1):
        node = model.nodes[k]
        if needed.intersection(node.outputs):
            found.append(k)
            needed.update(name for name in node.inputs if name not in sources)
    return tuple(found[::-1])


def _behind(model: Graph, name: str) -> Iterator[str]:
    """The tensors that tensor `name` depends on."""
    for node in model.ancestors(name):
        yield from (x for x in (*node.inputs, *(node.outputs if name not in node.outputs else ())) if x)


def _region(model: Graph, trace: Trace, result: str, runs: Sequence[Values]) -> Region | None:
    """What the way back from tensor `result` says of it; None where the artifact's is another tensor of that name."""
    behind = set(_behind(model, result))
    walk = _walk(trace, trace.start(result), behind)
    operations, coded = tuple(walk.operations.values()), _coded(trace, result, walk, runs)
    sources, sure = _sources(trace, walk, coded)
    within = _within(model, result, sources)
    nodes = [model.nodes[k] for k in within]
    # Converters that change the order of nodes move names.
    computing = [node for node in nodes if np.asarray(runs[0].get(node.outputs[0], 0.0)).dtype.kind == "f"]
    moves = all(node.op in MOVING for node in computing)
    strangers = model.producers.keys() - behind - {result}
    if any(op.name in strangers or (moves and op.values is None) for op in operations):
        return None
    taken = trace.taken(walk.start)
    handed_out = trace.moved_on(walk.start) if walk.start == result else None
    results = [trace.grid(op.outputs[0], coded[op.name]) if op.name in coded else None for op in operations]
    grids = _single(results) if coded else (taken,)
    between = {trace.grid(t) for op in operations if op.name in coded for t in (*op.inputs, *op.outputs[:1])}
    moved = {grid for read in (*sources.values(), (handed_out, taken)) for grid in read if grid}
    # There are as many pieces as groups; and none for moves only, unless it was computed beforehand.
    pieces = {1, *(node.attributes.get("group", 1) for node in nodes)}
    fits = all(len(read) in pieces for read in (grids, *sources.values()))
    if operations:
        fits &= not any(op.runs == "somehow" for op in operations)
    else:
        fits &= all(node.op in MOVING for node in nodes) or behind.isdisjoint(model.inputs)
    told = all(grid.scale > 0 for grid in between | moved)
    told &= fits or bool(operations)  # else a name has moved past what was fused into its operation
    apart = not any(on or {reader, maker} & coded.keys() for reader, maker, on in walk.links)
    alone = not coded or (len(coded) == len(operations) and "" not in sources)
    return Region(
        result,
        within,
        walk.start,
        operations,
        coded,
        {name: read for name, read in sources.items() if name},
        grids,
        max((op.steps for op in operations if op.name in coded), default=0),
        (handed_out,),
        known=told and sure and apart and alone and fits,
        told=told,
    )


def _sources(trace: Trace, walk: _Walk, coded: Mapping[str, bool]) -> tuple[dict[str, Grids], bool]:
    """({tensor of the model: the grids that it is read on}, whether each read is on one grid at most)"""
    found: dict[str, list[Grid | None]] = {}
    sure = True
    for r in walk.reads:
        own = [trace.grid(r.operand, coded[r.operation])] if r.operation in coded else []
        grids = sorted((*r.moved, *own), key=lambda grid: not grid.sure)
        found.setdefault(r.tensor, []).append(grids[0] if grids else None)
        sure &= len({replace(grid, sure=True) for grid in grids}) <= 1
    return {name: _single(grids) for name, grids in found.items()}, sure


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

    def is_broadcast(op: Operation, run: Values) -> bool:
        return not {_size(trace, walk, x, result, run) for x in op.inputs} <= {1, np.size(run.get(result, 0))}

    return {
        op.name: op.runs == "codes" or (op.runs == UNLESS_BROADCAST and not any(is_broadcast(op, run) for run in runs))
        for op in walk.operations.values()
        if op.runs in ("codes", UNLESS_BROADCAST, EITHER)
    }


def _size(trace: Trace, walk: _Walk, tensor: str, result: str, run: Values) -> int:
    """How many elements the artifact's `tensor` has in a run of the model; 0 where that is not known."""
    name, op = trace.name(tensor), trace.makers.get(tensor)
    if any(r.tensor == name for r in walk.reads):
        return np.size(run.get(name, 0))
    if op is None:
        return 0
    if op.values is not None:
        return op.values.size
    if op.computes == LAYER:
        return np.size(run.get(result, 0))
    if (op.computes and not op.computes.startswith("Reduce")) or op.in_order:
        sizes = [_size(trace, walk, x, result, run) for x in op.inputs]
        return max(sizes) if all(sizes) else 0
    return 0
