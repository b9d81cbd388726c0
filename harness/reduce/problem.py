"""A reduction in progress: the simplest candidate so far, and what one more attempt costs.

A candidate takes the place of the best when it is strictly simpler and still reproduces. A reduction pass is a function
that makes candidates and attempts them; nothing but `attempt` ever changes the best.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, TypeVar

import numpy as np
from driftnet.model.inspect import Case, all_nodes, declared_dims, graph_inputs, nodes
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
    """The budget of seconds or of calls is spent; the message says what was cut off for it, if anything was."""


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
    _measured: tuple[Case, Recipe, Measured] | None = None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def attempt(self, case: Case, recipe: Recipe | None = None, *, at_length: Case | None = None) -> bool:
        """Whether the candidate has become the best. Raises ExhaustedError when it may not be tried any more.

        at_length   the same model with everything stated that the candidate leaves to defaults. Where it computes the
                    same it has to show the same: a target that takes absence for something else has another bug there
        """
        recipe = self.recipe if recipe is None else recipe
        if not simpler(measures(case, recipe), self.measured()):
            return False
        if name_of(case, recipe) in self.shown:
            return False
        shown = self._show(case, recipe)
        taken = bool(shown) and self._can_calibrate(case) and self._keeps_its_word(case)
        if taken and at_length and self._compute_the_same(case, at_length):
            taken = shown == self._show(at_length, recipe)
        if taken:
            self.case, self.recipe = case, recipe
        return taken

    def _show(self, case: Case, recipe: Recipe) -> object:
        name = name_of(case, recipe)
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

    def _keeps_its_word(self, case: Case) -> bool:
        """Whether outputs come in the shapes that are declared, or did not before either: a compiler that believes what
        is declared would fail for that alone."""
        try:
            return _as_declared(case, self.record(case)) or not _as_declared(self.case, self.recording().feeds)
        except ReferenceError:
            return True

    def outline(self) -> tuple[Any, ...]:
        """The measures of the best case that say how large it is."""
        return tuple(islice(self.measured(), OUTLINE))

    def measured(self) -> Measured:
        """The measures of the best case, which each candidate is compared with."""
        if self._measured is None or self._measured[0] is not self.case or self._measured[1] is not self.recipe:
            self._measured = (self.case, self.recipe, Measured(measures(self.case, self.recipe)))
        return self._measured[2]

    def recording(self) -> Recording:
        """Every tensor of the best case."""
        if self._recorded is None or self._recorded[0] is not self.case:
            self._recorded = (self.case, recording(self.case, self.record))
        return self._recorded[1]


def _as_declared(case: Case, recorded: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Whether every output that is recorded has the rank and the fixed dims that the model declares of it."""
    declared = {v.name: declared_dims(v) for v in case.proto.graph.output if v.type.tensor_type.HasField("shape")}
    return all(
        len(dims) == record[name].ndim and all(isinstance(d, str) or d == n for d, n in zip(dims, record[name].shape))
        for record in recorded
        for name, dims in declared.items()
        if name in record
    )


def name_of(case: Case, recipe: Recipe) -> str:
    """What tells a case under a recipe from any other."""
    return case.digest + json.dumps(dict(recipe), sort_keys=True)


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


def simpler(measured: Iterable[float], than: Iterable[float]) -> bool:
    """Strictly lower in the first of the measures that differs."""
    return next((ours < theirs for ours, theirs in zip(measured, than) if ours != theirs), False)


class Measured:
    """Measures that are asked for again and again, each computed once, when it is first needed."""

    def __init__(self, computed: Iterator[float]) -> None:
        self._computed, self._known = computed, list[float]()

    def __iter__(self) -> Iterator[float]:
        for k in count():
            if k == len(self._known):
                left = next(self._computed, None)
                if left is None:
                    return
                self._known.append(left)
            yield self._known[k]


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

# Of the operators that keep dtype and shape, one of each kind.
PLAIN = {"Relu": 0, "Neg": 1, "Floor": 2}
"""Operators that stand for any other, in this order: one that quantizers treat, one they compute, one they leave."""


OUTLINE = 6
"""How many of the measures say how large a case is, its values aside."""


def measures(case: Case, recipe: Recipe) -> Iterator[float]:
    """What is simpler, most important first: each is computed when those before it are equal."""
    graph, everywhere = case.proto.graph, list(all_nodes(case.proto.graph))
    values = (*graph.input, *graph.output)
    tensors = [*graph.initializer, *(a.t for node in everywhere for a in node.attribute if a.HasField("t"))]
    fed = [x for feed in case.runs for x in feed.values()]
    yield nodes(case)
    yield len(graph_inputs(case.proto)) + len(graph.output) + len(case.runs)
    yield sum(len(reads(node)) for node in everywhere)
    yield sum(PLAIN.get(node.op_type, len(PLAIN)) for node in everywhere)
    yield sum(int(np.size(x)) for x in fed) + sum(math.prod(t.dims) for t in tensors)
    yield sum(np.ndim(x) for feed in case.feeds for x in feed.values()) + sum(len(t.dims) for t in graph.initializer)
    dims = [d for v in values for d in v.type.tensor_type.shape.dim]
    unstated = sum(not d.HasField("dim_value") and not d.dim_param for d in dims)
    constants = len(everywhere) - nodes(case)
    yield len({d.dim_param for d in dims if d.dim_param}) + unstated + constants
    yield sum(len(node.attribute) for node in everywhere)
    yield len(recipe)
    stored = [numpy_helper.to_array(t) for t in tensors if not uses_external_data(t)]
    numbers = [np.array([a.f, a.i, *a.floats, *a.ints], np.float64) for node in everywhere for a in node.attribute]
    yield sum(map(array_complexity, [*fed, *stored, *numbers]))
    yield case.proto.ir_version + sum(o.version for o in case.proto.opset_import)
    yield len(case.model)  # all else equal: names
