"""Views of a checked model for people: where in it a fault lies, how errors run along its depth, how a wrong tensor is
distributed."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.diagnosis.inside import Inside, off
from driftnet.model.inspect import Case, computing
from driftnet.model.submodel import Recording, reads
from driftnet.model.verdict import Verdict

MOST_POINTS, MOST_AROUND, BINS = 300, 24, 30

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Point:
    """One tensor along the depth of a model.

    at       the share of the nodes that stand before it
    error    how far it is off in the intact artifact (relative, L2), errors from before it and all; None where nobody
             asked
    excess   the error of the window that ends in it, by its bound; None where none does
    """

    tensor: str
    at: float
    error: float | None = None
    excess: float | None = None


@dataclass(frozen=True)
class Distribution:
    """How many elements of a wrong tensor lie in each of BINS intervals from `low` to `high`, as they should be and as
    they are; what is no number lies in none."""

    tensor: str
    low: float
    high: float
    right: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(frozen=True)
class Neighbour:
    """A node at a fault, or next to one."""

    node: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    at_fault: bool


def along_the_depth(
    case: Case, verdicts: Iterable[Verdict], inside: Inside | None, recorded: Recording
) -> tuple[Point, ...]:
    """The tensors of which anything is known, in order; of very many as many as a picture can hold, the worst kept.

    verdicts   on the windows, and on what is at fault: that may be a part of a window that agrees
    """
    nodes = case.proto.graph.node
    excess: dict[str, float] = {}
    for verdict in verdicts:
        if verdict.output and verdict.bound > 0 and math.isfinite(verdict.error):
            excess[verdict.output] = max(excess.get(verdict.output, 0.0), verdict.error / verdict.bound)
    points = []
    for i in computing(case.proto.graph):
        for name in nodes[i].output:
            runs = zip(inside.tensors, recorded.feeds) if inside else ()
            errors = [off(run[name], right[name]) for run, right in runs if name in run and name in right]
            error = max(filter(math.isfinite, errors), default=None)
            if error is not None or name in excess:
                points.append(Point(name, i / max(1, len(nodes)), error, excess.get(name)))
    kept = sorted(points, key=lambda p: (p.excess or 0.0, p.error or 0.0), reverse=True)[:MOST_POINTS]
    return tuple(sorted(kept, key=lambda point: point.at))


def distribution(name: str, made: Sequence[Tensors], right: Sequence[Tensors]) -> Distribution | None:
    """How tensor `name` is distributed; None where it holds no numbers."""
    values = [
        np.concatenate([np.asarray(run[name]).ravel() for run in runs if name in run] or [np.zeros(0)])
        for runs in (right, made)
    ]
    if any(x.dtype.kind not in "iuf" for x in values):
        return None
    finite = [x[np.isfinite(x)].astype(np.float64) for x in values]
    if not finite[0].size:
        return None
    both = np.concatenate(finite)
    low, high = float(both.min()), float(both.max())
    width = (high / 2 - low / 2) or 1.0  # halves: that of all doubles is none
    # As shares of it: no interval of so few numbers as 1e30 has next to it can be cut into so many.
    counts = [np.histogram((x / 2 - low / 2) / width, BINS, (0, 1))[0] for x in finite]
    return Distribution(name, low, high, tuple(map(int, counts[0])), tuple(map(int, counts[1])))


def around(case: Case, faulty: Collection[int]) -> tuple[Neighbour, ...]:
    """The nodes `faulty`, by their indices, those that make what they read, and those that read what they make."""
    nodes = case.proto.graph.node
    read = {name for i in faulty for name in reads(nodes[i])}
    made = {name for i in faulty for name in nodes[i].output}
    near = [
        i
        for i in computing(case.proto.graph)
        if i in faulty or not read.isdisjoint(nodes[i].output) or not made.isdisjoint(reads(nodes[i]))
    ]
    kept = sorted(sorted(near, key=lambda i: i not in faulty)[:MOST_AROUND])
    return tuple(
        Neighbour(
            nodes[i].name or next(filter(None, nodes[i].output), ""),
            nodes[i].op_type,
            tuple(filter(None, nodes[i].input)),
            tuple(filter(None, nodes[i].output)),
            i in faulty,
        )
        for i in kept
    )
