"""A reduction in progress: the simplest candidate so far, and what one more attempt costs.

A candidate takes the place of the best when it is strictly simpler and still reproduces. A reduction pass is a function
that makes candidates and attempts them; nothing but `attempt` ever changes the best.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import onnx
from driftnet.model.inspect import Case, all_nodes, digest, graph_inputs, nodes
from driftnet.model.submodel import Record, Recording, reads, recording
from driftnet.run.reference import ReferenceError
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

T = TypeVar("T")
Reproduces = Callable[[Case, Recipe], object]
"""What a candidate shows that fails in the same way: anything true, which differs where the failure looks different.
Something false for any other."""


class ExhaustedError(Exception):
    """The budget of seconds or of calls is spent."""


@dataclass
class Problem:
    """reproduces runs reference and target; it alone decides. calls counts its invocations, shown what came of them."""

    case: Case
    recipe: Recipe
    target: Target
    reproduces: Reproduces
    record: Record
    seconds: float
    limit: int
    calls: int = 0
    start: float = field(default_factory=time.monotonic)
    shown: dict[str, object] = field(default_factory=dict)
    _recorded: tuple[Case, Recording] | None = None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def attempt(self, case: Case, recipe: Recipe | None = None, *, at_length: Case | None = None) -> bool:
        """Whether the candidate has become the best. Raises ExhaustedError when it may not be tried any more.

        at_length   the same model with everything stated that the candidate leaves to defaults. Where it computes the
                    same it has to show the same: a target that takes absence for something else has another bug there
        """
        recipe = self.recipe if recipe is None else recipe
        if not simpler(case, recipe, self.case, self.recipe):
            return False
        if _name(case, recipe) in self.shown:
            return False
        shown = self._show(case, recipe)
        taken = bool(shown) and self._can_calibrate(case)
        if taken and at_length and self._compute_the_same(case, at_length):
            taken = shown == self._show(at_length, recipe)
        if taken:
            self.case, self.recipe = case, recipe
        return taken

    def _show(self, case: Case, recipe: Recipe) -> object:
        name = _name(case, recipe)
        if name not in self.shown:
            if self.calls >= self.limit or self.elapsed >= self.seconds:
                raise ExhaustedError
            self.calls += 1
            self.shown[name] = self.reproduces(case, recipe)
        return self.shown[name]

    def _compute_the_same(self, one: Case, other: Case) -> bool:
        outputs = {value.name for value in one.proto.graph.output}
        try:
            runs = list(zip(self.record(one), self.record(other)))
        except ReferenceError:
            return False
        return all(np.array_equal(a[name], b[name]) for a, b in runs for name in outputs & a.keys() & b.keys())

    def _can_calibrate(self, case: Case) -> bool:
        # `reproduces` asks the reference about the feeds. A quantizer that fails on calibration feeds which have become
        # invalid would be no finding.
        try:
            return not case.calibration or bool(self.record(replace(case, feeds=case.calibration, calibration=())))
        except ReferenceError:
            return False

    def outline(self) -> tuple[Any, ...]:
        """The measures of the best case that say how large it is."""
        return tuple(measure(self.case, self.recipe) for measure in MEASURES[: MEASURES.index(_ranks) + 1])

    def recording(self) -> Recording:
        """Every tensor of the best case."""
        if self._recorded is None or self._recorded[0] is not self.case:
            self._recorded = (self.case, recording(self.case, self.record))
        return self._recorded[1]


def _name(case: Case, recipe: Recipe) -> str:
    return digest(case) + json.dumps(dict(recipe), sort_keys=True)


def shrink(items: Sequence[T], test: Callable[[list[T]], bool], *, least: int = 0, grain: int = 1) -> list[T]:
    """Delta debugging: drop chunks of `items` while `test` holds, half of them first, `grain` of them at last."""
    kept = list(items)
    chunk = max(grain, len(kept) // 2)
    while chunk >= grain:
        start = 0
        while start < len(kept) and len(kept) > least:
            rest = kept[:start] + kept[start + chunk :]
            if len(rest) >= least and test(rest):
                kept = rest
            else:
                start += chunk
        chunk //= 2
    return kept


def simpler(case: Case, recipe: Recipe, than: Case, than_recipe: Recipe) -> bool:
    """Strictly lower in the first of the MEASURES that differs; later ones are not computed."""
    for measure in MEASURES:
        ours, theirs = measure(case, recipe), measure(than, than_recipe)
        if ours != theirs:
            return bool(ours < theirs)
    return False


def array_complexity(x: np.ndarray) -> float:
    """How hard the values are to read: 0 for 0, then 1, -1, 2, .5, integers by size, dyadic fractions, the rest."""
    if x.dtype.kind in "OUSc":
        return float(x.size)
    v = np.asarray(x, np.float64)
    size = np.abs(v)
    integer = 5 + np.log2(1 + np.where(np.isfinite(size), size, 0))
    rank = np.where(v == np.rint(v), integer, np.where(v * 8 == np.rint(v * 8), 70.0, 80.0))
    rank = np.where(np.isfinite(v), rank, 90.0)
    for value, place in PALETTE.items():
        rank = np.where(v == value, place, rank)
    negative_zeros = np.count_nonzero((v == 0) & np.signbit(v))
    return float(rank.sum()) + 0.5 * float(negative_zeros)


PALETTE = {0.0: 0.0, 1.0: 1.0, -1.0: 2.0, 2.0: 3.0, 0.5: 4.0}
"""Readable values and their complexity, simplest first."""

PLAIN = {"Relu": 0, "Neg": 1, "Floor": 2}
"""Operators that stand for any other, in this order: one that quantizers treat, one they compute, one they leave."""


def _interface(case: Case, recipe: Recipe) -> int:
    runs = len(case.feeds) + len(case.calibration)
    return len(graph_inputs(case.proto)) + len(case.proto.graph.output) + runs


def _operators(case: Case, recipe: Recipe) -> int:
    return sum(PLAIN.get(node.op_type, len(PLAIN)) for node in all_nodes(case.proto.graph))


def _ranks(case: Case, recipe: Recipe) -> int:
    fed = sum(np.ndim(x) for feed in case.feeds for x in feed.values())
    return fed + sum(len(t.dims) for t in case.proto.graph.initializer)


def _edges(case: Case, recipe: Recipe) -> int:
    return sum(len(reads(node)) for node in all_nodes(case.proto.graph))


def _size(case: Case, recipe: Recipe) -> int:
    fed = sum(int(np.size(x)) for feed in (*case.feeds, *case.calibration) for x in feed.values())
    return fed + sum(int(math.prod(t.dims)) for t in _tensors(case.proto.graph))


def _attributes(case: Case, recipe: Recipe) -> int:
    return sum(len(node.attribute) for node in all_nodes(case.proto.graph))


def _complexity(case: Case, recipe: Recipe) -> float:
    arrays = [x for feed in (*case.feeds, *case.calibration) for x in feed.values()]
    arrays += [numpy_helper.to_array(t) for t in _tensors(case.proto.graph) if not uses_external_data(t)]
    for node in all_nodes(case.proto.graph):
        arrays += [np.array([a.f, a.i, *a.floats, *a.ints], np.float64) for a in node.attribute]
    return sum(map(array_complexity, arrays))


def _unusual(case: Case, recipe: Recipe) -> int:
    graph = case.proto.graph
    dims = [d for v in (*graph.input, *graph.output) for d in v.type.tensor_type.shape.dim]
    unstated = sum(not d.HasField("dim_value") and not d.dim_param for d in dims)
    constants = sum(node.op_type == "Constant" for node in all_nodes(graph))
    return len({d.dim_param for d in dims if d.dim_param}) + unstated + constants


def _options(case: Case, recipe: Recipe) -> int:
    return len(recipe)


def _versions(case: Case, recipe: Recipe) -> int:
    return int(case.proto.ir_version + sum(o.version for o in case.proto.opset_import))


def _length(case: Case, recipe: Recipe) -> int:
    return len(case.model)  # all else equal: names


def _tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    return [*graph.initializer, *(a.t for n in all_nodes(graph) for a in n.attribute if a.HasField("t"))]


MEASURES: tuple[Callable[[Case, Recipe], Any], ...] = (
    lambda case, recipe: nodes(case),
    _interface,
    _edges,
    _operators,
    _size,
    _ranks,
    _unusual,
    _attributes,
    _options,
    _complexity,
    _versions,
    _length,
)
"""What is simpler, most important first."""
