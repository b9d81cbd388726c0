"""Facts by their names, of a node and of a place: each is found out when somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from driftnet.causes.facts import SLOTS, Facts, Place, Value, kind_of, kinds_of, of_kind
from driftnet.causes.host import Host
from driftnet.model.graph import Node
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe, effective


@dataclass(frozen=True, eq=False)
class NodeFacts(Mapping[str, Value]):
    """The facts of one node, each found out with its kind when somebody asks: a trigger asks for few of them."""

    host: Host
    node: Node
    _kinds: dict[str, Facts] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Value:
        return self._of_kind(kind_of(name))[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Its fact of this name, which many nodes do not have."""
        return self._of_kind(kind_of(name)).get(name, default)

    def __iter__(self) -> Iterator[str]:
        for kind in kinds_of(self.node):
            yield from self._of_kind(kind)

    def __len__(self) -> int:
        return sum(len(self._of_kind(kind)) for kind in kinds_of(self.node))

    def all(self) -> dict[str, Value]:
        """Every fact, found out now."""
        return {name: value for kind in kinds_of(self.node) for name, value in self._of_kind(kind).items()}

    def _of_kind(self, kind: str) -> Facts:
        if kind not in self._kinds:
            self._kinds[kind] = dict(of_kind(self.host, self.node, kind))
        return self._kinds[kind]


@dataclass(frozen=True, eq=False)
class PlaceFacts(Mapping[str, Value]):
    """The facts of a place.

    own   of the model, of the recipe, and of how the nodes hang together
    """

    nodes: Sequence[NodeFacts]
    own: Facts

    def __getitem__(self, name: str) -> Value:
        role, of_node = _divided(name)
        if name in self.own or not 0 <= role < len(self.nodes):
            return self.own[name]
        return self.nodes[role][of_node]

    def get(self, name: str, default: Any = None) -> Any:
        """Its fact of this name, which many places do not have: drawing asks thousands of times for a graph."""
        role, of_node = _divided(name)
        if name in self.own or not 0 <= role < len(self.nodes):
            return self.own.get(name, default)
        return self.nodes[role].get(of_node, default)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        for role, facts in enumerate(self.nodes):
            yield from (f"{role}.{name}" for name in facts)

    def __len__(self) -> int:
        return len(self.own) + sum(map(len, self.nodes))

    def all(self) -> dict[str, Value]:
        """Every fact, found out now: for whoever asks for all of them, and more than once."""
        found = dict(self.own)
        for role, facts in enumerate(self.nodes):
            for name, value in facts.all().items():
                found.setdefault(f"{role}.{name}", value)
        return found


def of_node(host: Host, index: int) -> NodeFacts:
    """The facts of one node, without the number of its role."""
    if index not in host.told:
        host.told[index] = NodeFacts(host, host.graph.nodes[index])
    found: NodeFacts = host.told[index]
    return found


def around(host: Host, options: Facts) -> dict[str, Value]:
    """The facts of a model and of a recipe, which are those of no place. options: of the recipe (`recipe_facts`)."""
    own = {"opset": host.graph.opset, "named": host.named, "fed": bool(host.graph.inputs), "symbolic": host.symbolic}
    return {**own, **options}


def facts_of(host: Host, place: Place, options: Facts) -> PlaceFacts:
    """The facts of `place`. options: those of the recipe (`recipe_facts`)."""
    own = around(host, options)
    first: dict[str, str] = {}
    constants: list[tuple[str, np.ndarray]] = []
    for role, index in enumerate(place):
        for k, name in enumerate(host.graph.nodes[index].inputs[:SLOTS]):
            if not name:
                continue
            maker = host.makers.get(name)
            if maker and maker[0] in place:
                own[f"{role}.in.{k}.made"] = f"{place.index(maker[0])}.out.{maker[1]}"
            here = f"{role}.in.{k}"
            if first.setdefault(name, here) != here:
                own[f"{here}.shared"] = first[name]
            if (x := host.graph.constants.get(name)) is not None and x.size > 1:  # many a scale is 1
                if equal := next((other for other, y in constants if _are_equal(x, y)), None):
                    own[f"{here}.equals"] = equal
                constants.append((here, x))
        for attribute, value in host.graph.nodes[index].attributes.items() if len(place) > 1 else ():
            here = f"{role}.attr.{attribute}"
            if isinstance(value, list) and (equal := first.setdefault(f"{attribute}={value}", here)) != here:
                own[f"{here}.equals"] = equal
    return PlaceFacts([of_node(host, index) for index in place], own)


def _are_equal(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two constants are one to a system that keeps of equal ones one, as of tied weights."""
    return x is y or (x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y))


def recipe_facts(target: Target, recipe: Recipe) -> dict[str, Value]:
    """The options in effect, switches as the tuple of their parts."""
    return {f"recipe.{k}": tuple(v) if isinstance(v, list) else v for k, v in effective(target, recipe).items()}


@cache
def cost_of(fact: str) -> int:
    """How much it takes to find out a fact of a place, in steps of ten: its operator, attributes, operands, their
    numbers. A conjunction that is asked in that order ends early."""
    kind = kind_of(fact.partition(".")[2])
    if ".numbers" in kind:
        return 3
    return 0 if kind == "op" else 1 if kind in ("attr", "trait", "inputs", "outputs") else 2


@cache
def _divided(name: str) -> tuple[int, str]:
    """The role that a fact of a place speaks of, -1 for none, and the name that the fact has there."""
    role, _, of_node = name.partition(".")
    return int(role) if role.isdecimal() else -1, of_node
