"""How far the outputs of a whole model are from what they should be, and how much of that a fault brings about.

What a person asks first of a converted model, whatever any bound says. The share that a fault explains is found by
experiment: what the target made of the nodes at fault is put into the reference, and carried on to the outputs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from driftnet.diagnosis.localize import Fault
from driftnet.model.arrays import distance
from driftnet.model.inspect import Case
from driftnet.model.submodel import Recording, UnrecordedError, submodel
from driftnet.model.windows import live_nodes
from driftnet.oracle.tolerances.table import LEAST_CHANGE, LEAST_SHARE
from driftnet.run.reference import ReferenceError

TOP = 5
"""The largest of a vector of scores that are compared beside the very largest."""
USABLE = 10.0
"""Decibels of signal to noise below which an output is told to be of little use, however rightly it is quantized: an
error of a third of what it should be."""

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Loss:
    """One output of the model over all feeds.

    max_abs, largest   the largest error, and the largest magnitude it should have
    relative_l2, cosine, sqnr_db   of all elements together; an error of 0 has infinite decibels, one element no cosine
    argmax, top_k   how often the largest along the last axis is the same, and the share of the TOP largest that are;
                    None where that axis is no longer than two, or TOP
    """

    output: str
    max_abs: float
    largest: float
    relative_l2: float
    cosine: float | None
    sqnr_db: float
    argmax: float | None
    top_k: float | None

    @property
    def change(self) -> float:
        """The error by the norm of the output, as of an Impact; the largest error where the output should be zero."""
        return self.relative_l2 if math.isfinite(self.relative_l2) else self.max_abs

    def as_json(self) -> dict[str, Any]:
        """The row as a JSON value; no decibels where they are infinite."""
        return asdict(self) | {"sqnr_db": self.sqnr_db if math.isfinite(self.sqnr_db) else None}


@dataclass(frozen=True)
class Impact:
    """What one fault does to the outputs.

    share    in [0, 1], of the error of the outputs: 1 - |e - f|^2 / |e|^2, where e is that error, and f what the fault
             alone brings. One that is there for being cut out only, and not in the whole, explains nothing. Where it
             brings NaN, and behind it is rounded to codes, f is e
    change   |f| by the norm of the output, of the one that it moves most
    noisy    in f is the noise of quantizing, too
    drowned   in f is none, but in e there is: beside other faults f is not small
    """

    share: float
    change: float
    noisy: bool = False
    drowned: bool = False

    @property
    def negligible(self) -> bool:
        """Whether it is a note. With noise it is told by no share: of all that noise, any layer has a small one."""
        return self.change < LEAST_CHANGE or (not (self.noisy or self.drowned) and self.share < LEAST_SHARE)


@dataclass(frozen=True, eq=False)
class References:
    """Every tensor of the model under each feed, and who runs another for its outputs; it may raise ReferenceError."""

    recorded: Sequence[Tensors]
    run: Callable[[Case], Sequence[Tensors]]


def losses(observed: Sequence[Tensors], expected: Sequence[Tensors], leave_out: Sequence[str] = ()) -> list[Loss]:
    """A row for each output that holds numbers; none where nothing was observed."""
    names = [name for name, x in expected[0].items() if x.dtype.kind in "biuf"] if observed and expected else []
    return [
        _loss(name, [(got.get(name), right[name]) for got, right in zip(observed, expected)])
        for name in names
        if name not in leave_out
    ]


def are_usable(table: Sequence[Loss]) -> bool:
    """Whether every output is of use, by USABLE."""
    return all(loss.sqnr_db >= USABLE for loss in table)


def within(
    observed: Sequence[Tensors], expected: Sequence[Tensors], *, atol: float, rtol: float, leave_out: Sequence[str] = ()
) -> bool:
    """Whether every element y of every output is within atol + rtol |y| of what it should be, as numpy.allclose has it;
    of what is no number, whether it is that. False where not all feeds were answered."""
    if not observed or len(observed) != len(expected):
        return False
    for got, right in zip(observed, expected):
        for name, y in right.items():
            x = got.get(name)
            if name in leave_out:
                continue
            if x is None or x.shape != y.shape:
                return False
            if y.dtype.kind not in "biuf":
                if not np.array_equal(x, y):
                    return False
            elif not (distance(x, y) <= atol + rtol * distance(y, np.zeros_like(y))).all():
                return False
    return True


def impact(
    case: Case,
    fault: Fault,
    made: Sequence[Tensors],
    outputs: Sequence[Tensors],
    reference: References,
    innocent: Sequence[Tensors] | None = None,
    *,
    noisy: bool = False,
) -> Impact | None:
    """What `fault` does to the outputs, once what the target made of the nodes at fault is put into the reference. None
    where the rest of the model does not run on that.

    made   what the target makes of `fault.case`;   outputs   what it makes of the whole `case`
    innocent   what it would make of it without the fault, which is not what the reference makes where it quantizes
    """
    names = [v.name for v in case.proto.graph.output]
    carried = _carried(case, fault, made, reference)
    without = reference.recorded if innocent is None else _carried(case, fault, innocent, reference)
    if carried is None or without is None:
        return None
    explained = total = change = 0.0
    for after, before, got, right in zip(carried, without, outputs, reference.recorded):
        for name in names:
            if name in right and right[name].dtype.kind in "biuf":
                size = float(np.linalg.norm(_plain(right[name]))) or 1.0
                e = _error(got.get(name), right[name]) / size
                f = (_error(after.get(name), right[name]) - _error(before.get(name), right[name])) / size
                if noisy and e.any():  # codes hold no NaN: behind it may stand any number, the right one too
                    f = np.where(_spoiled(after.get(name), right[name]), e, f)
                change = max(change, float(np.linalg.norm(f)))
                total += float(e @ e)
                explained += float(e @ e - (e - f) @ (e - f))
    return Impact(min(1.0, max(0.0, explained / total)) if total else 0.0, change, noisy)


def _carried(case: Case, fault: Fault, made: Sequence[Tensors], reference: References) -> Sequence[Tensors] | None:
    """The outputs of the whole once the nodes of `fault` give what is `made`."""
    names = [v.name for v in case.proto.graph.output]
    runs = tuple({**run, **got} for run, got in zip(reference.recorded, made))
    kept = [i for i in live_nodes(case) if i not in fault.nodes]
    left = [name for i in kept for name in case.proto.graph.node[i].output if name in names]
    if not left:
        return runs
    try:
        after = reference.run(submodel(replace(case, calibration=()), kept, Recording(runs, ()), left))
    except (UnrecordedError, ReferenceError, ValueError):
        return None
    return [{**run, **found} for run, found in zip(runs, after)]


def _loss(name: str, pairs: Sequence[tuple[np.ndarray | None, np.ndarray]]) -> Loss:
    right = np.concatenate([_plain(b) for _, b in pairs])
    error = np.concatenate([_error(a, b) for a, b in pairs])
    got, size, off = right + error, float(np.linalg.norm(right)), float(np.linalg.norm(error))
    largest = max((float(distance(b, np.zeros_like(b)).max(initial=0.0)) for _, b in pairs), default=0.0)
    most = max((_largest_error(a, b) for a, b in pairs), default=0.0)
    product = size * float(np.linalg.norm(got))
    cosine = min(1.0, float(right @ got) / product) if product else float(off == 0)
    ranks = [_ranks(a, b) for a, b in pairs if a is not None and a.shape == b.shape]
    return Loss(
        name,
        most,
        largest,
        off / size if size else (math.inf if off else 0.0),
        cosine if right.size > 1 else None,
        20 * math.log10(size / off) if off and size else (math.inf if not off else -math.inf),
        _mean([first for first, _ in ranks]),
        _mean([several for _, several in ranks]),
    )


def _largest_error(got: np.ndarray | None, right: np.ndarray) -> float:
    if got is None or got.shape != right.shape:
        return math.inf
    return float(distance(got, right).max(initial=0.0))


def _spoiled(got: np.ndarray | None, right: np.ndarray) -> np.ndarray:
    """Where something is no finite number that should be one."""
    if got is None or got.shape != right.shape or got.dtype.kind != "f":
        return np.zeros(right.size, bool)
    return np.asarray(np.isfinite(right) & ~np.isfinite(got)).ravel()


def _plain(x: np.ndarray) -> np.ndarray:
    """The elements in float64, 0 for what is not finite."""
    return np.nan_to_num(x.astype(np.float64).ravel(), nan=0.0, posinf=0.0, neginf=0.0)


def _error(got: np.ndarray | None, right: np.ndarray) -> np.ndarray:
    """got - right; where only one of them is finite, and for another shape, as much as the largest that is right."""
    plain = _plain(right)
    largest = float(np.abs(plain).max(initial=0.0)) or 1.0
    if got is None or got.shape != right.shape:
        return np.full(plain.shape, largest)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.asarray(got.astype(np.float64).ravel() - right.astype(np.float64).ravel())
    error[distance(got, right).ravel() == 0] = 0.0
    error[~np.isfinite(error)] = largest
    return error


def _ranks(got: np.ndarray, right: np.ndarray) -> tuple[float | None, float | None]:
    """Whether the largest along the last axis are the same: the first, and the first few."""
    count = right.shape[-1] if right.ndim else 0
    if count < 3 or right.dtype.kind != "f" or not right.size:
        return None, None
    a, b = (np.argsort(-np.nan_to_num(x.reshape(-1, count)), axis=-1, kind="stable") for x in (got, right))
    several = (a[:, :TOP, None] == b[:, None, :TOP]).any(axis=-1) if count > TOP else None
    return float(np.mean(a[:, 0] == b[:, 0])), None if several is None else float(np.mean(several))


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else None
