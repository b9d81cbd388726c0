"""The pass that makes values readable: 0, 1 and small integers wherever the failure allows."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from driftnet.model.constants import stored_tensors
from driftnet.model.inspect import Case, Feed, graph_inputs
from driftnet.model.submodel import edited
from driftnet.reduce.problem import PALETTE, Problem, shrink
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

PARTS = 8
"""A tensor that cannot be constant is simplified by eighths of its size, one of up to 15 elements singly."""


@dataclass(frozen=True)
class Place:
    """Where an array stands: an initializer, or the input `name` of run number `run` (feeds, then calibration)."""

    name: str
    run: int | None = None


Change = Callable[[np.ndarray], np.ndarray]


def simpler_data(problem: Problem) -> None:
    """All arrays to small integers at once, or to quarters; then each to 0, 1, ... as a whole, else in parts."""
    if not problem.attempt(changed(problem.case, places(problem.case), _rounded)):
        problem.attempt(changed(problem.case, places(problem.case), partial(_rounded, step=0.25)))
    for place in places(problem.case):
        if not any(problem.attempt(changed(problem.case, [place], partial(_filled, value=v))) for v in PALETTE):
            problem.attempt(changed(problem.case, [place], _rounded))
            for value in (0.0, 1.0):
                _partly(problem, place, value)


def places(case: Case) -> list[Place]:
    """Every array of the case, initializers first; those that the model keeps outside itself are left alone."""
    fed = [Place(v.name, run) for v in graph_inputs(case.proto) for run in range(len(case.runs))]
    return [Place(name) for name, t in stored_tensors(case.proto.graph) if not uses_external_data(t)] + fed


def array_at(case: Case, place: Place) -> np.ndarray:
    """The array that stands there."""
    if place.run is not None:
        return np.asarray(case.runs[place.run][place.name])
    return next(numpy_helper.to_array(t) for name, t in stored_tensors(case.proto.graph) if name == place.name)


def changed(case: Case, at: Collection[Place], change: Change) -> Case:
    """`case` with `change` applied to the arrays at these places; it keeps their shapes and dtypes."""

    def store(model: onnx.ModelProto) -> None:
        for name, tensor in stored_tensors(model.graph):
            if Place(name) in at:
                tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))

    def fed(run: int, feed: Feed) -> Feed:
        return {name: change(np.asarray(x)) if Place(name, run) in at else x for name, x in feed.items()}

    return edited(case.fed([fed(run, feed) for run, feed in enumerate(case.runs)]), store)


def _partly(problem: Problem, place: Place, value: float) -> None:
    case = problem.case
    x = array_at(case, place)
    positions = [i for i, v in enumerate(x.ravel().tolist()) if v != value]

    def test(untouched: list[int]) -> bool:
        at = sorted(set(positions).difference(untouched))
        return problem.attempt(changed(case, [place], lambda x: _filled(x, value, at)))

    shrink(positions, test, grain=max(1, x.size // PARTS))


def _filled(x: np.ndarray, value: float, at: list[int] | None = None) -> np.ndarray:
    """`x` with `value` everywhere or at these flat positions; `x` itself where its dtype has no such value."""
    with np.errstate(invalid="ignore"):
        cast = np.asarray(value).astype(x.dtype)
    if x.dtype.kind in "OUSc" or float(cast) != value:
        return x
    y = np.array(x)
    y.reshape(-1)[slice(None) if at is None else at] = cast
    return y


def _rounded(x: np.ndarray, step: float = 1.0) -> np.ndarray:
    """Floating-point `x` to the nearest multiples of `step` within ±4."""
    if x.dtype.kind in "OUSciub":
        return x
    small = np.clip(np.nan_to_num(np.asarray(x, np.float64)), -4, 4)
    return (np.rint(small / step) * step + 0.0).astype(x.dtype)  # + 0.0: no negative zeros
