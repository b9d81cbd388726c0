"""What every tier is asked, and how it answers.

A tier is a function (question, places) -> {place: Verdict}: for each place it says AGREES, DIVERGES or ABSTAINS.
Adding a tier is adding a file with such a function and naming it in `judge`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
from driftnet.model import graph
from driftnet.model.artifact import UNTOLD, Artifact
from driftnet.model.case import Case
from driftnet.model.graph import Graph, Values
from driftnet.run.reference import MOST_TOLD, Reference
from driftnet.targets.interface import Scheme

Place = tuple[int, str]
"""(index of the feed, name of the graph output)"""


MOST_SAMPLED = 2**27
"""Bytes of all tensors, under all feeds, of a model that is run with noise."""
MOST_NODES = 600

TOO_LARGE = "it is too large to be run with noise"
HALVES = "half-precision"
"""The documented behaviour of a target that makes float16 of whatever is float32."""


@dataclass(frozen=True, eq=False)
class Question:
    """Are these `observed` outputs right answers of the case's model, where the reference says `expected`?

    scheme      how the target quantized, or None when it had to stay in floating point
    exceptions  names of the documented numerical behaviour that the target declares
    approximations   operator -> by how much the target declares its results to be off
    artifact    what is known of what the target made when it quantized
    inexact     constants that the target holds to within so much only, whatever is right otherwise
    coarse      those of them that it rounds more than float32 does, and results of subgraphs that hold such
    """

    case: Case
    observed: tuple[Values, ...]
    expected: tuple[Values, ...]
    reference: Reference
    scheme: Scheme | None = None
    exceptions: frozenset[str] = frozenset()
    artifact: Artifact = UNTOLD
    inexact: Mapping[str, float] = field(default_factory=dict)
    coarse: frozenset[str] = frozenset()
    approximations: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)

    @property
    def in_halves(self) -> bool:
        """Whether whatever is float32 in the model may be held and computed in float16."""
        return HALVES in self.exceptions

    @cached_property
    def graph(self) -> Graph:
        return graph.read(self.case.proto, self.case.file)

    @cached_property
    def written(self) -> Graph | None:
        """The artifact, its nodes in order, if it is an ONNX model."""
        data = self.artifact.model
        return None if data is None else graph.in_order(graph.read(onnx.ModelProto.FromString(data)))

    @cached_property
    def records(self) -> tuple[Values, ...]:
        """Every tensor of the main graph, one mapping a feed."""
        return self.reference.record(self.case, most=MOST_TOLD)

    @cached_property
    def calibrated(self) -> tuple[Values, ...]:
        """The same of the feeds that a quantizer calibrates on."""
        if not self.case.calibration:
            return self.records
        return self.reference.record(replace(self.case, feeds=self.case.calibration, calibration=()), most=MOST_TOLD)

    @cached_property
    def is_too_large(self) -> bool:
        """Whether it costs too much to run the model with noise on every tensor, many times: one of a thousand nodes
        takes 23 CPU seconds to load so, and the tensors of a detector of 7 MB are 1 GiB. Its windows are small."""
        inside = sum(x.nbytes for record in self.records for x in record.values())
        return inside > MOST_SAMPLED or len(self.graph.nodes) > MOST_NODES

    @cached_property
    def places(self) -> list[Place]:
        """Every output that is a tensor, of every feed."""
        # By the proto: where all is equal, as it mostly is, nobody has to read the graph.
        names = [value.name for value in self.case.proto.graph.output]
        return [(feed, name) for feed, out in enumerate(self.expected) for name in names if name in out]

    def pair(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """(observed, expected) there."""
        feed, name = place
        return self.observed[feed][name], self.expected[feed][name]

    def describe(self, place: Place) -> str:
        feed, name = place
        return f"output {name!r}" + (f" of feed {feed}" if len(self.expected) > 1 else "")
