"""Usability: what a quantized model loses, however rightly it is quantized, and where.

End to end, tensor by tensor up to there, and layer by layer: each float node is run on what the artifact gives it, so
that what it loses is its own. The layers that lose most are then put into the artifact in float, one at a time.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from driftnet.diagnosis.end_to_end import Loss, losses
from driftnet.model.graph import Graph, Node, Values, read
from driftnet.model.inspect import Case, all_nodes, bodies, computing
from driftnet.model.operators import AFFINE, full_name
from driftnet.model.submodel import Record, Recording, UnrecordedError, rebuilt, submodel
from driftnet.oracle.artifact.verified.calibration import Range, largest_of, ranges_of
from driftnet.oracle.artifact.verified.comparison import label
from driftnet.oracle.artifact.verified.operators import CLIPPING, MOVEMENT, OPAQUE, QUANTIZED
from driftnet.oracle.artifact.verified.range_outliers import moved_from
from driftnet.oracle.artifact.verified.ranges import stated_ranges
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.run.reference import ReferenceError
from onnx import helper

LAYERS = 5
"""Layers that are put into the artifact in float, each of which takes a run of it."""

JOINS = frozenset({"Concat", "Where"})  # no trait tells whose operands keep their values beside larger ones
SUMS = frozenset({"Add", "Sub"})  # these round a small one away in floats, too, but not where a mask is 0
UNMASKED = 0.1
"""The share of a sum that has to be lost in its step: next to 0 some of every sum of two large numbers is."""
CODES_OF_EIGHT_BITS = 255
OWN = ":in_float"
"""What the names of tensors end in that float nodes make of the artifact's."""


@dataclass(frozen=True)
class Layer:
    """One layer of the float model that loses much by itself.

    loss      of what it makes of its operands as the artifact has them, against what it should make of these
    in_float  what is lost end to end where it is left in float
    """

    node: str
    op_type: str
    loss: Loss
    in_float: tuple[Loss, ...]

    def as_json(self) -> dict[str, Any]:
        """The layer as a JSON value."""
        losses = [row.as_json() for row in self.in_float]
        return {"node": self.node, "op_type": self.op_type, "loss": self.loss.as_json(), "end_to_end": losses}


def nothing_quantized(model: onnx.ModelProto, quantized: onnx.ModelProto) -> str:
    """Why nothing is quantized in what a quantizer made of the float `model`; "" where something is."""
    names = {full_name(node.op_type, node.domain) for node in all_nodes(quantized.graph)}
    if not names.isdisjoint(QUANTIZED | OPAQUE):
        return ""
    inner = {
        op: sum(1 for b in bodies(node) for _ in all_nodes(b)) for node in model.graph.node for op in [node.op_type]
    }
    inside, total = sum(inner.values()), sum(1 for _ in all_nodes(model.graph))
    if 2 * inside <= total:
        return "nothing is quantized"
    holders = " and ".join(op for op, count in inner.items() if count)
    return f"nothing is quantized: {inside} of {total} nodes stand inside {holders}, where quantizers leave them alone"


def by_tensor(
    counterparts: Mapping[str, str], records: Sequence[Values], recorded: Sequence[Values]
) -> tuple[Loss, ...]:
    """How far off each float tensor is in the artifact, by the best of its counterparts, the worst first."""
    rows: dict[str, Loss] = {}
    for name, real in counterparts.items():
        pairs = [(run[name], right[real]) for run, right in zip(records, recorded) if name in run and real in right]
        if pairs and all(a.dtype.kind == b.dtype.kind == "f" and a.shape == b.shape for a, b in pairs):
            (row,) = losses([{real: a} for a, _ in pairs], [{real: b} for _, b in pairs])
            if real not in rows or row.relative_l2 < rows[real].relative_l2:
                rows[real] = row
    return tuple(sorted(rows.values(), key=lambda row: row.relative_l2, reverse=True))


def rounded_joins(model: Graph, graph: Graph) -> list[tuple[Node, Range]]:
    """The nodes of `model` in whose results something may vanish, and the ranges in which `graph`, an artifact, rounds
    these."""
    ranges = stated_ranges(graph)
    joins = (node for node in model.nodes if node.op in JOINS | SUMS)
    return [(node, ranges[node.outputs[0]]) for node in joins if node.outputs[0] in ranges]


def vanishing(model: Graph, graph: Graph, recorded: Sequence[Values]) -> Iterator[tuple[str, str]]:
    """Joins whose result has a step so large that an operand rounds to nothing: boxes and scores of a detector, scores
    of an attention and a mask of -10000. Each in words, and its result."""
    seen = ranges_of(recorded)
    for node, (low, high) in rounded_joins(model, graph):
        step = float(high - low) / CODES_OF_EIGHT_BITS
        made = [np.abs(run[node.outputs[0]]) for run in recorded if node.op in SUMS and node.outputs[0] in run]
        if node.op in SUMS and not any(np.mean((x > 0) & (x < step / 2)) >= UNMASKED for x in made):
            continue
        for name in node.inputs:
            largest = largest_of(seen[name]) if name in seen else 0.0
            if 0 < largest < step / 2:
                said = f"{name!r} is {largest:.3g} at most, and is lost in steps of {step:.3g}"
                yield f"{node.op} {label(node)}: {said}", node.outputs[0]


def with_joins_in_float(
    artifact: Case, joins: Collection[str], expected: Sequence[Values], run: Record
) -> tuple[Loss, ...]:
    """What is lost end to end where all these `joins`, tensors in which something vanishes, are read as they are before
    they are rounded, and so is what is moved of them; nothing where an operator in codes makes them."""
    graph = read(artifact.proto)
    reals = read_artifact(graph)
    wanted = {reals.stands_for(name) for name in joins}

    def is_of_a_join(name: str) -> bool:
        while name not in wanted and (before := reals.stands_for(moved_from(graph, name))) != name:
            name = before
        return name in wanted

    pairs = [r.node for r in reals.roundings if r.node.op == "QuantizeLinear" and is_of_a_join(r.real)]
    rounded = {node.outputs[0]: node.inputs[0] for node in pairs}
    proto = deepcopy(artifact.proto)
    reads = {n.output[0]: rounded[n.input[0]] for n in proto.graph.node if n.input and n.input[0] in rounded}
    for node in proto.graph.node if reads else ():
        node.input[:] = [reads.get(name, name) for name in node.input]
    try:
        return tuple(losses(run(replace(artifact, model=proto.SerializeToString())), expected)) if reads else ()
    except ReferenceError:
        return ()


def worst_layers(
    model: Case,
    artifact: Case,
    counterparts: Mapping[str, str],
    records: Sequence[Values],
    recorded: Sequence[Values],
    record: Record,
) -> tuple[Layer, ...]:
    """The layers of the float model that lose most by themselves, and what leaving each in float gives; first the one
    that gives most. None where the model does not run cut up like that.

    counterparts   tensor of the artifact -> the one of the float model that it stands for
    records, recorded   the tensors of the artifact and of the float model, under each feed
    """
    there: dict[str, list[str]] = {}  # the last one is what others read: it was rounded
    for name, real in counterparts.items():
        if all(_alike(run.get(name), right.get(real)) for run, right in zip(records, recorded)):
            there.setdefault(real, []).append(name)
    seen = tuple({**run, **{real: run[names[-1]] for real, names in there.items()}} for run in records)
    try:
        own = record(_apart(model, there.keys(), seen))
    except (ReferenceError, UnrecordedError, ValueError):
        return ()
    found: list[Layer] = []
    makers = {name: node for node in model.proto.graph.node for name in node.output}
    rows = losses(
        [{real: run[real] for real in there} for run in seen], [{r: run[r + OWN] for r in there} for run in own]
    )
    for row in sorted(rows, key=lambda row: row.relative_l2, reverse=True)[:LAYERS]:
        left = _left_in_float(artifact, there[row.output], [run[row.output + OWN] for run in own], records, record)
        if left and row.relative_l2:
            node, names = _carried_by(makers, row.output, there), [value.name for value in model.proto.graph.output]
            rest = [{name: run[name] for name in names if name in run} for run in recorded]
            told = losses(left, rest)
            called = node.name or next(filter(None, node.output)).removesuffix(OWN)
            found.append(Layer(called, node.op_type, row, tuple(told)))
    return tuple(sorted(found, key=lambda layer: sum(row.relative_l2 for row in layer.in_float)))


def _carried_by(makers: Mapping[str, onnx.NodeProto], name: str, known: Collection[str]) -> onnx.NodeProto:
    """The node whose error a tensor has: what is fused with it, or folded into it, makes none of its own."""
    node = makers[name]
    passing = CLIPPING | MOVEMENT | AFFINE
    while node.op_type in passing and node.input[0] not in known and node.input[0] in makers:
        node = makers[node.input[0]]
    return node


def _alike(got: np.ndarray | None, right: np.ndarray | None) -> bool:
    return got is not None and right is not None and got.dtype == right.dtype and got.shape == right.shape


def _apart(model: Case, known: Collection[str], seen: Sequence[Values]) -> Case:
    """The float model with each tensor of `known` fed, and made again under a name of its own by whoever makes it."""
    proto = deepcopy(model.proto)
    graph = proto.graph
    for node in graph.node:
        node.output[:] = [name + OWN if name in known else name for name in node.output]
    del graph.output[:], graph.value_info[:]
    for name in known:
        kind = helper.np_dtype_to_tensor_dtype(seen[0][name].dtype)
        shapes = {run[name].shape for run in seen}
        shape = shapes.pop() if len(shapes) == 1 else [None] * seen[0][name].ndim
        graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        graph.output.append(helper.make_tensor_value_info(name + OWN, kind, None))
    feeds = [{**feed, **{name: run[name] for name in known}} for feed, run in zip(model.feeds, seen)]
    return rebuilt(replace(model, feeds=tuple(feeds)), proto)


def _left_in_float(
    artifact: Case, names: Collection[str], values: Sequence[np.ndarray], records: Sequence[Values], record: Record
) -> list[Values]:
    """The outputs of the artifact with these values for all that stands for one tensor; none where it does not run."""
    graph = artifact.proto.graph
    runs = tuple({**run, **dict.fromkeys(names, x)} for run, x in zip(records, values))
    outputs = [value.name for value in graph.output]
    kept = [i for i in computing(graph) if set(graph.node[i].output).isdisjoint(names)]
    left = [name for i in kept for name in graph.node[i].output if name in outputs]
    try:
        made = record(submodel(artifact, kept, Recording(runs, ()), left)) if left else [{} for _ in runs]
    except (ReferenceError, UnrecordedError, ValueError):
        return []
    return [{name: after.get(name, run[name]) for name in outputs} for run, after in zip(runs, made)]
