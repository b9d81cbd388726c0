"""Triggers as data: a predicate over the facts of a place, evaluated without running anything.

    Trigger   one shape, any of its regions
    Shape     how many nodes, and how they hang together
    Region    all of its atoms
    Atom      one fact: is, is not, is one of, at least, at most

Where a fact is unknown, an atom neither holds nor fails: it is None, and so may a trigger be (it depends on what the
model is fed).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from driftnet.causes.facts import Facts, Place, Value
from driftnet.causes.host import Host
from driftnet.causes.lookup import facts_of

TESTS = ("is", "not", "in", "least", "most")
_ABSENT = object()


@dataclass(frozen=True)
class Atom:
    """A test of one fact.

    is, not   equal to `value` or not;  in  one of a tuple;  least, most  a number of at least or at most `value`.
    A fact that a place does not have is nothing: different from everything, and no number.
    """

    fact: str
    test: str
    value: Value

    def holds(self, facts: Facts) -> bool | None:
        """Whether it holds; None where the fact is unknown."""
        have = facts.get(self.fact, _ABSENT)
        if have is None:
            return None
        match self.test:
            case "is":
                return bool(have == self.value)
            case "not":
                return bool(have != self.value)
            case "in":
                return have in self.value  # type: ignore[operator]
        if isinstance(have, bool) or not isinstance(have, int | float):
            return False
        return bool(have >= self.value if self.test == "least" else have <= self.value)  # type: ignore[operator]

    @property
    def role(self) -> int:
        """The role that it speaks of, -1 for the model and the recipe."""
        head = self.fact.partition(".")[0]
        return int(head) if head.isdecimal() else -1

    def as_json(self) -> dict[str, Any]:
        """{"fact": ..., "is": ...}"""
        return {"fact": self.fact, self.test: _listed(self.value)}


@dataclass(frozen=True)
class Region:
    """A conjunction: every atom has to hold."""

    atoms: tuple[Atom, ...]

    def holds(self, facts: Facts) -> bool | None:
        """Whether every atom holds; None where none fails and some are unknown."""
        told: bool | None = True
        for atom in self.atoms:
            if not (one := atom.holds(facts)):
                if one is not None:
                    return False
                told = None
        return told

    def of_role(self, role: int) -> tuple[Atom, ...]:
        """The atoms that speak of one role."""
        return tuple(atom for atom in self.atoms if atom.role == role)

    def naming(self, role: int) -> Atom | None:
        """The atom by which it names the operators of one role, None where it names none."""
        return next((atom for atom in self.atoms if atom.fact == f"{role}.op" and atom.test in ("is", "in")), None)

    def operators(self, role: int) -> frozenset[str] | None:
        """The operators that it names for one role, None where it names none."""
        if (atom := self.naming(role)) is None:
            return None
        return frozenset({atom.value} if atom.test == "is" else atom.value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Shape:
    """How the nodes of a place hang together.

    edges     (reader, maker): the one reads what the other makes
    shared    (role, role): both read one tensor
    """

    roles: int = 1
    edges: frozenset[tuple[int, int]] = frozenset()
    shared: frozenset[tuple[int, int]] = frozenset()

    def places(self, host: Host, fits: Mapping[int, frozenset[str]] | None = None) -> Iterator[Place]:
        """Every place of this shape in `host`, a role only where its operator is among those that `fits` gives it."""
        yield from self._completed(host, (), fits or {})

    def _completed(self, host: Host, chosen: Place, fits: Mapping[int, frozenset[str]]) -> Iterator[Place]:
        role = len(chosen)
        if role == self.roles:
            yield chosen
            return
        for index in self._candidates(host, chosen):
            node = host.graph.nodes[index]
            if index not in chosen and (role not in fits or node.op in fits[role]):
                here = (*chosen, index)
                if all(_reads(host, here[a], here[b]) for a, b in self.edges if max(a, b) == role) and all(
                    _share(host, here[a], here[b]) for a, b in self.shared if max(a, b) == role
                ):
                    yield from self._completed(host, here, fits)

    def _candidates(self, host: Host, chosen: Place) -> Iterable[int]:
        """Where the next role may be: beside one that is chosen, where it has to hang together with any."""
        role, everywhere = len(chosen), range(len(host.graph.nodes))
        for a, b in self.edges:
            if a == role and b < role:
                made = host.graph.nodes[chosen[b]].outputs
                return sorted({i for name in made for i in host.readers.get(name, ()) if name})
            if b == role and a < role:
                return [host.makers[name][0] for name in host.graph.nodes[chosen[a]].inputs if name in host.makers]
        return everywhere


ONE_NODE = Shape()
"""The place that is one node."""


@dataclass(frozen=True)
class Trigger:
    """The condition under which a system fails: any of the regions, at a place of the shape."""

    shape: Shape
    regions: tuple[Region, ...]

    def holds(self, facts: Facts) -> bool | None:
        """Whether some region holds; None where none does and some are unknown."""
        return any_of(region.holds(facts) for region in self.regions)

    def matches(self, host: Host, options: Facts, node: int | None = None) -> bool | None:
        """Whether it holds at some place of `host`, or at one that `node` belongs to. Runs nothing."""
        unknown = False
        for place in self.shape.places(host, self.operators):
            if node is None or node in place:
                found = self.holds(facts_of(host, place, options))
                if found:
                    return True
                unknown = unknown or found is None
        return None if unknown else False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Found out once: triggers are looked up in mappings whenever something fails."""
        return hash((self.shape, self.regions))

    @cached_property
    def operators(self) -> Mapping[int, frozenset[str]]:
        """Role -> the operators that it may have, where every region says so."""
        found: dict[int, frozenset[str]] = {}
        for role in range(self.shape.roles):
            named = [region.operators(role) for region in self.regions]
            if named and all(named):
                found[role] = frozenset().union(*[operators for operators in named if operators])
        return found

    def as_json(self) -> dict[str, Any]:
        """The trigger as a JSON value."""
        return {
            "roles": self.shape.roles,
            "edges": sorted(map(list, self.shape.edges)),
            "shared": sorted(map(list, self.shape.shared)),
            "regions": [[atom.as_json() for atom in region.atoms] for region in self.regions],
        }


_READ: dict[Trigger, Trigger] = {}
"""Those that were read, each once: two equal ones are compared to the last atom whenever one is looked up."""


def any_of(found: Iterable[bool | None]) -> bool | None:
    """Whether one is true; None where none is and some are unknown."""
    told: bool | None = False
    for one in found:
        if one:
            return True
        told = None if one is None else told
    return told


def trigger_of(value: Mapping[str, Any]) -> Trigger:
    """The trigger that `as_json` made a JSON value of. Raises ValueError, KeyError or TypeError for any other."""
    shape = Shape(int(value["roles"]), frozenset(_pairs(value["edges"])), frozenset(_pairs(value["shared"])))
    trigger = Trigger(shape, tuple(Region(tuple(map(_atom, atoms))) for atoms in value["regions"]))
    return _READ.setdefault(trigger, trigger)


def _atom(value: Mapping[str, Any]) -> Atom:
    (test,) = set(value) - {"fact"}
    if test not in TESTS or not isinstance(value["fact"], str):
        raise ValueError(f"{value!r:.80} is no test of a fact")
    return Atom(value["fact"], test, tuples(value[test]))


def _pairs(value: Iterable[Any]) -> Iterator[tuple[int, int]]:
    for a, b in value:
        yield int(a), int(b)


def tuples(value: Any) -> Any:
    """Lists of JSON, and those in them, as the tuples that they were."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return [_listed(v) for v in value] if isinstance(value, tuple) else value


def _reads(host: Host, reader: int, maker: int) -> bool:
    return any(reader in host.readers.get(name, ()) for name in host.graph.nodes[maker].outputs if name)


def _share(host: Host, a: int, b: int) -> bool:
    return not {name for name in host.graph.nodes[a].inputs if name}.isdisjoint(host.graph.nodes[b].inputs)
