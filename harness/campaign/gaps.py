"""Gaps: what one target was never asked yet, which is drawn first.

The forms are those that can be told beforehand: an operator, a type of it, an attribute of it that is stated.
"""

from collections import Counter
from collections.abc import Iterator, Set
from random import Random
from typing import NamedTuple

from driftnet.campaign.coverage import ATTRIBUTE, SOUGHT, Counts, possible
from driftnet.campaign.events import Drawn
from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.generators.building.values import NUMPY, codes
from driftnet.generators.bulk import outside
from driftnet.generators.features import PREFIX, known_features
from driftnet.generators.ops.registry import Operator
from driftnet.generators.ops.table import OPERATORS

SHARE = 0.5
"""Of the indices, the most that are drawn around something that was never asked; the rest stays as the generator has
it."""
DRAWS = 3
"""Graphs that are drawn for one index until one has what is sought."""
TRIES = 4
"""Indices that seek one thing, of all nights, before it is given up: not all that has kernels can be drawn."""
FAVOUR = 8.0
"""Factor on the odds of models of the type that is sought."""
RARE = 16.0
"""Factor on the odds of operators that this run has asked less often than others, in what is drawn around what is
sought: of 200 graphs 19 operators are in fewer than three, and 37 without it."""


class Form(NamedTuple):
    """An operator, and what of it: nothing, its type, or an attribute (value "")."""

    operator: str
    trait: str = ""
    value: str = ""

    @property
    def weights(self) -> dict[str, float]:
        """The weights of a generator that make it likelier."""
        feature = f"{PREFIX}dtype-{self.value}"
        return {feature: FAVOUR} if self.trait == "type" and feature in known_features() else {}


class Gaps:
    """What a target was never asked of all that is drawn for it, given what it was."""

    def __init__(self, target: str, counts: Counts, profile: Profile = EVERYTHING) -> None:
        drawn = [operator for operator in OPERATORS if operator.name not in outside(profile)]
        self._graphs = Counter({operator.name: 0 for operator in drawn})
        self._open = dict.fromkeys(form for operator in drawn for form in _forms(operator, profile))
        self._all = len(self._open)
        self._tried = Counter[Form]()
        for (asked, op, trait, value, judge), n in counts.items():
            form = _form(op, trait, value)
            if asked == target and judge == SOUGHT:
                self._tried[form] = n
            if asked == target and (judge != SOUGHT or n >= TRIES):
                self._open.pop(form, None)

    def __len__(self) -> int:
        return len(self._open)

    def learn(self, graph: Drawn) -> None:
        """This graph is asked."""
        self._graphs.update(graph.keys() & self._graphs.keys())
        for form in forms_in(graph):
            self._open.pop(form, None)

    @property
    def rare(self) -> dict[str, float]:
        """The weights of a generator that make operators likelier which this run has asked less often than others."""
        usual = self._graphs.total() / len(self._graphs)
        return {name: RARE for name, graphs in self._graphs.items() if graphs < usual}

    def share(self, without: Set[str]) -> float:
        """Of the indices, how many are for seeking: the fewer, the less is left, but all where operators are."""
        left = self._left(without)
        return SHARE if any(not form.trait for form in left) else SHARE * len(left) / self._all

    def _left(self, without: Set[str]) -> list[Form]:
        return [form for form in self._open if form.operator not in without]

    def one(self, rng: Random, without: Set[str]) -> Form | None:
        """What to draw next, of operators but `without`: whole operators before what is particular about one."""
        left = self._left(without)
        sought = [form for form in left if not form.trait] or left
        if not sought:
            return None
        form = sought[int(rng.random() * len(sought))]
        self._tried[form] += 1
        if self._tried[form] >= TRIES:
            del self._open[form]
        return form


def forms_in(graph: Drawn) -> Iterator[Form]:
    """The forms of a graph, as gaps are told."""
    for op, traits in graph.items():
        yield Form(op)
        for trait, values in traits.items():
            yield from (_form(op, trait, value) for value in values)


def _form(op: str, trait: str, value: str) -> Form:
    return Form(op, trait, "" if trait.startswith(ATTRIBUTE) else value)


def _forms(operator: Operator, profile: Profile) -> Iterator[Form]:
    yield Form(operator.name)
    types = profile.of_dtypes([*NUMPY])  # others are made by casts at most, whatever is sought
    for trait, values in possible(operator.name, operator.until).items():
        for value in values:
            if trait != "type" or codes(value)[0] in types:
                yield Form(operator.name, trait, value)
