"""GraphSpec: a graph as decoded, typed and with a concrete shape for every feed.

A tensor carries one shape *per feed*. A dim whose sizes differ between the feeds is symbolic, and its name stands for
that tuple of sizes: equal names always mean equal sizes. So every shape rule is plain arithmetic on integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from driftnet.generators.building.values import Fill, Regime, Shape
from onnx import TypeProto


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor.

    shapes     its shape in each feed (of a sequence or an optional: that of what it holds)
    low, high  no element lies outside, as far as a coarse interval arithmetic tells
    container  "" for a tensor, else "sequence", "optional" or "optional sequence"
    """

    index: int
    dtype: int
    shapes: tuple[Shape, ...]
    low: float
    high: float
    container: str = ""

    @property
    def rank(self) -> int:
        return len(self.shapes[0])

    @property
    def shape(self) -> Shape:
        """The shape in the first feed."""
        return self.shapes[0]

    @property
    def static(self) -> bool:
        """Whether every feed has the same shape."""
        return self.shapes.count(self.shapes[0]) == len(self.shapes)

    def fixed(self, axis: int) -> bool:
        """Whether this axis has the same size in every feed."""
        n = self.shapes[0][axis]
        return all(shape[axis] == n for shape in self.shapes)

    def least(self, axis: int) -> int:
        """The size of this axis in the feed where it is smallest."""
        return min([shape[axis] for shape in self.shapes])

    def resized(self, axis: int, *sizes: int) -> tuple[Shape, ...]:
        """The shapes with these sizes in place of that of one axis: another, none or several."""
        k = axis % self.rank
        return tuple([(*s[:k], *sizes, *s[k + 1 :]) for s in self.shapes])

    @property
    def magnitude(self) -> float:
        """The largest absolute value that an element may have."""
        return max(-self.low, self.high)

    @property
    def empty(self) -> bool:
        """Whether it has no element in some feed."""
        return any(0 in shape for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph: what is computed in a branch or a loop. It sees the values of the graph around it."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[Node, ...]

    def reads(self) -> set[int | None]:
        """Every value that its nodes and outputs refer to."""
        return {i for node in self.nodes for i in (*node.inputs, *node.reads())} | set(self.outputs)


Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | np.ndarray | Body | TypeProto


@dataclass(frozen=True, slots=True)
class Stated:
    """An attribute that is written even where it equals its default."""

    value: Attribute


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. inputs and outputs are indices of values, None for an optional one left out."""

    op_type: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: Mapping[str, Attribute]

    def reads(self) -> set[int | None]:
        """The values that its bodies refer to."""
        found: set[int | None] = set()
        for value in self.attributes.values():
            if isinstance(value, Body):
                found |= value.reads()
        return found


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that no node computes. source: "input", "initializer" or "constant" (a Constant node)."""

    value: Value
    source: str
    fill: Fill


@dataclass(frozen=True)
class GraphSpec:
    """A decoded graph. `nodes` are in topological order; `outputs` are indices of values; `pool` feeds the fills.

    annotated  declare every intermediate in value_info
    form       "plain"; "literal": Constant nodes hold plain numbers (value_ints, ...) where they can; "unnamed": nodes
               have no names; "listed": weights are graph inputs too, as IR version 3 had it; "described": with
               metadata
    """

    opset: int
    regime: Regime
    nodes: tuple[Node, ...]
    givens: tuple[Given, ...]
    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    pool: bytes = b""
    annotated: bool = False
    form: str = "plain"
    origin: Mapping[str, Any] = field(default_factory=dict)


def pruned(spec: GraphSpec) -> GraphSpec:
    """`spec` without what no output depends on."""
    needed: set[int | None] = set(spec.outputs)
    nodes = []
    for node in reversed(spec.nodes):
        if not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
            needed.update(node.reads())
    needed.discard(None)
    return replace(
        spec, nodes=tuple(reversed(nodes)), givens=tuple(given for given in spec.givens if given.value.index in needed)
    )
