"""Gaps: what one target was never asked yet, which is drawn first.

The forms are those that can be told beforehand: an operator, a type of it, an attribute of it that is stated, and a
text of an attribute. Six of the 23 equations of Einsum show a bug of MNN 3.0.0, and ten minutes had 14 to 23 graphs
with any Einsum. And each operator is asked for some times by itself, whatever it is like then: that takes half the time
of a whole graph, and where every other graph fails for something else it says more.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Set
from functools import cache
from random import Random
from typing import NamedTuple

from driftnet.campaign.coverage import ATTRIBUTE, SOUGHT, Counts, possible
from driftnet.campaign.events import Drawn
from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.generators.building.values import NUMPY, codes
from driftnet.generators.bulk import outside
from driftnet.generators.features import PREFIX, known_features
from driftnet.generators.focus import spelling
from driftnet.generators.motifs import spelled
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

AGAIN = "again"
"""The trait of an operator that is sought by itself, whatever it was asked: no graph tells it, so it is given up."""
LAST = 2
"""In what order types, attributes and operators again come, after all else."""
LONE = 1 / 3
"""Of the indices for these, how many are for operators again: with four for each of 196 operators they would keep all
types and attributes waiting for longer than many runs are."""


Part = tuple[int, int]
"""One of how many equal parts of the forms: its number from 0, and how many there are."""


class Form(NamedTuple):
    """An operator, and what of it: nothing, that it is by itself, its type, or an attribute (value "", or a text)."""

    operator: str
    trait: str = ""
    value: str = ""

    @property
    def order(self) -> int:
        """What comes first: whole operators, then texts, of which there may be many."""
        return 0 if not self.trait else 1 if self.is_text else LAST

    @property
    def is_text(self) -> bool:
        """Whether it is a text of an attribute."""
        return self.trait.startswith(ATTRIBUTE) and bool(self.value)

    @property
    def focus(self) -> str:
        """What a generator is to make a graph of."""
        attribute = self.trait.removeprefix(ATTRIBUTE)
        return spelling(self.operator, attribute, self.value) if self.is_text else self.operator

    def comes_in(self, graph: Drawn) -> bool:
        """Whether a graph has what is sought."""
        return (Form(self.operator) if self.trait == AGAIN else self) in forms_in(graph)

    @property
    def weights(self) -> dict[str, float]:
        """The weights of a generator that make it likelier."""
        feature = f"{PREFIX}dtype-{self.value}"
        return {feature: FAVOUR} if self.trait == "type" and feature in known_features() else {}


class Gaps:
    """What a target was never asked of all that is drawn for it, given what it was. part: which of how many equal parts
    of it is sought here, which may change at any time; what is asked is learned of all."""

    def __init__(self, target: str, counts: Counts, profile: Profile = EVERYTHING, part: Part = (0, 1)) -> None:
        drawn = [operator for operator in OPERATORS if operator.name not in outside(profile)]
        self._graphs = Counter({operator.name: 0 for operator in drawn})
        forms = dict.fromkeys(form for operator in drawn for form in _forms(operator, profile))
        self.part = part
        self._open = {form: zlib.crc32(" ".join(form).encode()) for form in forms}
        self._all = len(self._open)
        self._tried = Counter[Form]()
        for (asked, op, trait, value, judge), n in counts.items():
            if asked == target and judge == SOUGHT:
                self._tried[Form(op, trait, value)] = n
            if asked == target and (judge != SOUGHT or n >= TRIES):
                for form in (Form(op, trait, value),) if judge == SOUGHT else _told(op, trait, value):
                    self._open.pop(form, None)

    def __len__(self) -> int:
        return len(self._open)

    def learn(self, graph: Drawn, agreed: bool = True) -> None:
        """This graph is asked. Its texts are if it `agreed` or has one operator: else another one may be why not."""
        self._graphs.update(graph.keys() & self._graphs.keys())
        for form in forms_in(graph):
            if agreed or len(graph) == 1 or not form.is_text:
                self._open.pop(form, None)

    @property
    def rare(self) -> dict[str, float]:
        """The weights of a generator that make operators likelier which this run has asked less often than others."""
        usual = self._graphs.total() / len(self._graphs)
        return {name: RARE for name, graphs in self._graphs.items() if graphs < usual}

    def share(self, without: Set[str]) -> float:
        """Of the indices, how many are for seeking: `SHARE`, then the fewer, the less of what comes last is left."""
        left = self._left(without)
        return SHARE * (
            1.0 if any(form.order < LAST for form in left) else min(1.0, len(left) * self.part[1] / self._all)
        )

    def _left(self, without: Set[str]) -> list[Form]:
        own, of = self.part
        return [form for form, n in self._open.items() if n % of == own and form.operator not in without]

    def one(self, rng: Random, without: Set[str]) -> Form | None:
        """What to draw next, of operators but `without`: whole operators before what is particular about one."""
        left = self._left(without)
        if not left:
            return None
        first = min(form.order for form in left)
        sought = [form for form in left if form.order == first]
        if first == LAST:
            again, others = ([form for form in sought if (form.trait == AGAIN) is lone] for lone in (True, False))
            sought = (again or others) if rng.random() < LONE else (others or again)
        form = sought[int(rng.random() * len(sought))]
        self._tried[form] += 1
        if self._tried[form] >= TRIES:
            del self._open[form]
        return form

    def alone(self, form: Form) -> bool:
        """Whether a graph is to have nothing but what is sought, which `one` has told: what is particular about an
        operator, that nothing else fails before it, and an operator that did not come in company."""
        return bool(form.trait) or self._tried[form] > 1


def forms_in(graph: Drawn) -> Iterator[Form]:
    """The forms of a graph, as gaps are told."""
    for op, traits in graph.items():
        yield Form(op)
        for trait, values in traits.items():
            for value in values:
                yield from _told(op, trait, value)


@cache
def _told(op: str, trait: str, value: str) -> tuple[Form, ...]:
    """The forms that a trait tells: of an attribute that it is stated, and how."""
    form = Form(op, trait, value)
    return (Form(op, trait), form) if form.is_text else (form,)


def _forms(operator: Operator, profile: Profile) -> Iterator[Form]:
    yield Form(operator.name)
    yield Form(operator.name, AGAIN)
    types = profile.of_dtypes([*NUMPY])  # others are made by casts at most, whatever is sought
    for trait, values in possible(operator.name, operator.until).items():
        for value in values:
            if trait != "type" or codes(value)[0] in types:
                yield Form(operator.name, trait, value)
    for attribute, texts in spelled(operator.name).items():
        yield from (Form(operator.name, ATTRIBUTE + attribute, text) for text in texts)
