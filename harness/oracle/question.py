"""What every tier is asked, and how it answers.

A tier is a function (question, places) -> {place: Verdict}: for each place it says AGREES, DIVERGES or ABSTAINS.
Adding a tier is adding a file with such a function and naming it in `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from driftnet.model import graph
from driftnet.model.case import Case
from driftnet.model.graph import Graph, Values
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.run.reference import Reference
from driftnet.targets.interface import Artifact, Scheme

Place = tuple[int, str]
"""(index of the feed, name of the graph output)"""


@dataclass(frozen=True, eq=False)
class Question:
    """Are these `observed` outputs right answers of the case's model, where the reference says `expected`?

    scheme      how the target quantized, or None when it had to stay in floating point
    exceptions  names of the documented numerical behaviour that the target declares
    artifact    what the target made when it quantized, if it can be told
    inexact     constants that the target holds to within so much only, whatever is right otherwise
    """

    case: Case
    observed: tuple[Values, ...]
    expected: tuple[Values, ...]
    reference: Reference
    scheme: Scheme | None = None
    exceptions: frozenset[str] = frozenset()
    artifact: Artifact | None = None
    inexact: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        return graph.read(self.case.proto, self.case.file)

    @cached_property
    def written(self) -> Graph | None:
        """The artifact, its nodes in order, if it is an ONNX model."""
        data = (self.artifact or {}).get("model")
        return graph.in_order(graph.read(onnx.ModelProto.FromString(data))) if isinstance(data, bytes) else None

    @cached_property
    def records(self) -> tuple[Values, ...]:
        """Every tensor of the main graph, one mapping a feed."""
        return self.reference.record(self.case)

    @cached_property
    def places(self) -> list[Place]:
        """Every output that is a tensor, of every feed."""
        return [(feed, name) for feed, out in enumerate(self.expected) for name in self.graph.outputs if name in out]

    def pair(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """(observed, expected) there."""
        feed, name = place
        return self.observed[feed][name], self.expected[feed][name]

    def describe(self, place: Place) -> str:
        feed, name = place
        return f"output {name!r}" + (f" of feed {feed}" if len(self.expected) > 1 else "")


Tier = Callable[[Question, Sequence[Place]], Mapping[Place, Verdict]]


def agrees(tier: str, place: Place, **evidence: Any) -> Verdict:
    """The verdict that nothing is wrong there; evidence: error and bound where it was nearest, a rule."""
    return Verdict(Word.AGREES, tier, feed=place[0], output=place[1], **evidence)


def abstains(tier: str, place: Place, why: str, operators: Sequence[str]) -> Verdict:
    """The verdict that this tier cannot tell there, because of `operators`."""
    return Verdict(
        Word.ABSTAINS, tier, feed=place[0], output=place[1], message=why, abstained=tuple(sorted(set(operators)))
    )


def diverges(
    tier: str,
    question: Question,
    place: Place,
    wrong: np.ndarray,
    bound: np.ndarray,
    *,
    midpoint: np.ndarray | None = None,
) -> Verdict:
    """The verdict on elements marked in `wrong`, where an error up to `bound` would have been right.

    midpoint   what the error is from, where that is not the reference's answer
    """
    got, expected = question.pair(place)
    expected = expected if midpoint is None else midpoint
    wrong = np.atleast_1d(wrong)
    bound = np.broadcast_to(bound, wrong.shape)
    a, b = np.atleast_1d(got), np.atleast_1d(expected)
    error = distance(a, b)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        excess = np.where(wrong, error / np.maximum(bound, 1e-30), -1.0)
    worst = np.unravel_index(int(np.argmax(excess)), wrong.shape)
    where = f" at [{', '.join(map(str, worst))}]" if got.ndim else ""
    should = b.astype(a.dtype)[worst]
    message = (
        f"{question.describe(place)}{where} is {a[worst]}, should be {should}: error {error[worst]:.3g}, "
        f"bound {bound[worst]:.3g}; {int(wrong.sum())} of {wrong.size} elements are wrong"
    )
    nonsense = bool((wrong & ~same_kind(a, b)).any())
    return Verdict(
        Word.DIVERGES,
        tier,
        stage="execute",
        kind=Kind.NAN if nonsense else Kind.WRONG_VALUES,
        message=message,
        feed=place[0],
        output=place[1],
        error=float(error[worst]),
        bound=float(bound[worst]),
    )


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| in float64; 0 where both are NaN or the same infinity, inf where only one is finite, or text differs.

    Of integers that differ it is 1 at least, though float64 does not tell all those of 64 bits apart.
    """
    if a.dtype.kind not in "biuf" or b.dtype.kind not in "biuf":
        return np.asarray(np.where(a == b, 0.0, np.inf))
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.asarray(np.abs(a.astype(np.float64) - b.astype(np.float64)))
    d[np.isnan(d)] = np.inf
    d[(a == b) | ((a != a) & (b != b))] = 0.0
    return np.maximum(d, a != b) if a.dtype.kind in "iu" and b.dtype.kind in "iu" else d


def same_kind(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where both are finite, both NaN, or the same infinity."""
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return np.ones(a.shape, bool)
    return np.asarray((np.isfinite(a) & np.isfinite(b)) | (a == b) | (np.isnan(a) & np.isnan(b)))


def identical(a: np.ndarray, b: np.ndarray) -> bool:
    """Bitwise equal, but that -0 is 0 and any NaN is NaN."""
    return bool(np.array_equal(a, b) or (a.dtype.kind == "f" and np.array_equal(a, b, equal_nan=True)))
