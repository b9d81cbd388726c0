"""Steering: where drawing goes by what is known. Away from places that meet a known trigger, and, where no trigger is
known, from the operators of saved cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from driftnet.causes.facts import Facts, Place
from driftnet.causes.host import Host, Tensors
from driftnet.causes.lookup import PlaceFacts, around, cost_of, facts_of
from driftnet.causes.predicate import ONE_NODE, Region, Trigger
from driftnet.findings.issues import KnownIssue
from driftnet.findings.recognition import is_older, is_trusted
from driftnet.generators.ops.table import CODES

STEERED_WEIGHT = 0.25
AVOIDED = 0.8
"""The share of instances about which a trigger has to be right to be avoided: what it names by mistake is not drawn."""
KEPT = 20
"""One index in so many is drawn as if nothing was known: what triggers say may be wrong, or mended. Nearly all of these
fail: of every tenth came a third of all known failures of MNN (300 cases, seed 60611)."""
TIMES = 3
"""Models in which a trigger was met and nothing failed, until what it says of this run's graphs is doubted."""


@dataclass
class Doubts:
    """How often graphs that meet a trigger failed, in this run.

    The score of a trigger is of instances around its cases. One that names no operator can be right about all of these
    and be met by every graph there is: two of onnxruntime-quant left one record of 3 in 4 graphs.
    """

    failed: Counter[Trigger] = field(default_factory=Counter)
    ran: Counter[Trigger] = field(default_factory=Counter)

    def learn(self, outcomes: Iterable[tuple[Set[Trigger], bool]]) -> None:
        """What became of the cases of one graph: the triggers that each met, and whether it failed."""
        told = [(trigger, failed) for met, failed in outcomes for trigger in met]
        failing = {trigger for trigger, failed in told if failed}
        self.failed.update(failing)
        self.ran.update({trigger for trigger, _ in told} - failing)

    def __contains__(self, trigger: Trigger) -> bool:
        ran, failed = self.ran[trigger], self.failed[trigger]
        return ran >= TIMES and failed < AVOIDED * (ran + failed)


class _Part(NamedTuple):
    """A region of a trigger: what it asks of model and recipe, and of a place."""

    trigger: Trigger
    around: Region
    place: Region


class _Known:
    """What a target is known to fail by, as graphs are asked for it.

    of_one        regions that speak of one node: operator -> those that name it, "" -> those that name none
    of_several    triggers that speak of several, and their regions: operator -> those that need it, "" -> those that
        may do with any
    """

    def __init__(self, triggers: Iterable[Trigger]) -> None:
        self.of_one: dict[str, list[_Part]] = defaultdict(list)
        self.of_several: dict[str, list[tuple[Trigger, list[_Part]]]] = defaultdict(list)
        arounds: dict[Region, Region] = {}  # many ask the same: each is asked once
        for trigger in triggers:
            parts = [_part(trigger, region, arounds) for region in trigger.regions]
            if trigger.shape == ONE_NODE:
                for part, region in zip(parts, trigger.regions):
                    for name in region.operators(0) or ("",):
                        self.of_one[name].append(part)
            else:
                for name in min(trigger.operators.values(), key=len, default=("",)):
                    self.of_several[name].append((trigger, parts))

    def places(self, host: Host, applies: Callable[[_Part], bool]) -> Iterator[tuple[Place, Iterable[_Part]]]:
        """The places of a graph where something may be met, and the regions that it may meet, of those that apply."""
        for i, node in enumerate(host.graph.nodes):
            yield (i,), filter(applies, (*self.of_one.get(node.op, ()), *self.of_one.get("", ())))
        there = ("", *dict.fromkeys(node.op for node in host.graph.nodes))
        several = dict(known for op in there for known in self.of_several.get(op, ()))
        for trigger, parts in several.items():
            if asked := list(filter(applies, parts)):
                yield from ((place, asked) for place in trigger.shape.places(host, trigger.operators))


def _part(trigger: Trigger, region: Region, arounds: dict[Region, Region]) -> _Part:
    """A region taken apart. arounds: what others ask of model and recipe; of equal ones one is taken."""
    around, naming = Region(region.of_role(-1)), region.naming(0) if trigger.shape == ONE_NODE else None
    of_place = (atom for atom in region.atoms if atom not in around.atoms and atom is not naming)
    place = Region(tuple(sorted(of_place, key=lambda atom: cost_of(atom.fact))))
    return _Part(trigger, arounds.setdefault(around, around), place)


@dataclass(frozen=True)
class Steering:
    """What drawing goes by, once these issues are known."""

    issues: Sequence[KnownIssue]
    doubts: Doubts = field(default_factory=Doubts)
    _weights: dict[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    _known: dict[tuple[str, str], _Known] = field(default_factory=dict)

    def weights(self, target: str, release: str) -> Mapping[str, float]:
        """Operator -> factor on how often it is drawn: those of issues of `target` that no trigger tells, and that
        are drawn at all; those of models that somebody had may be any. What only later releases than `release` were
        seen to have keeps nothing away: 28 operators, Conv and MatMul among them, for 40 issues of onnxruntime-quant
        of which 1.16.3 showed none."""
        if (target, release) not in self._weights:
            untold = (
                issue
                for issue in self.issues
                if issue.saved.target == target
                and not any(is_trusted(cause, AVOIDED) for cause in issue.causes)
                and not is_older(release, issue.causes)
            )
            names = {name for issue in untold for name in issue.op_types} & CODES.keys()
            self._weights[target, release] = dict.fromkeys(names, STEERED_WEIGHT)
        return self._weights[target, release]

    def under(self, options: Iterable[tuple[str, str, Facts]]) -> Lookout:
        """What to look out for in graphs that are run under these recipes. options: (target, its release, those of a
        recipe)"""
        recipes = defaultdict[tuple[str, str], list[Facts]](list)
        for target, release, chosen in options:
            recipes[target, release].append(chosen)
        return Lookout(self.doubts, [(self._of(*system), under) for system, under in recipes.items()])

    def _of(self, target: str, release: str) -> _Known:
        """What a release is known to fail by, whoever has it; not what only later ones were seen to have."""
        if (target, release) not in self._known:
            triggers = dict[Trigger, None]()
            for issue in self.issues:
                for cause in issue.causes if issue.saved.target == target else ():
                    if cause.trigger and is_trusted(cause, AVOIDED) and not is_older(release, [cause]):
                        triggers.setdefault(cause.trigger)
            self._known[target, release] = _Known(triggers)
        return self._known[target, release]


@dataclass(frozen=True)
class Lookout:
    """What to look out for in graphs that are run under some recipes: those of each target, and what is known of it."""

    doubts: Doubts
    known: Sequence[tuple[_Known, Sequence[Facts]]]
    _told: dict[tuple[int, bool], dict[int, bool]] = field(default_factory=lambda: defaultdict(dict))
    """Opset of a model and whether its names differ -> id of what a region asks of model and recipe -> whether that
    holds by any of the recipes: of the graphs that are drawn for one index nearly all have the same."""

    def unwanted(self, host: Host, computed: Callable[[], Tensors] = dict) -> frozenset[str]:
        """The operators of the places in a model that meet a trigger under some recipe.

        computed  the tensors that the model makes: asked for once, where no trigger is met by what is known without
            running anything, and some hang on that. Half of the known failures of MNN that a run drew were of these.
        """
        found, unsure = self._unwanted(host)
        if not found and unsure and (tensors := computed()):
            found, _ = self._unwanted(replace(host, tensors={**host.tensors, **tensors}))
        return found

    def met(self, host: Host) -> frozenset[Trigger]:
        """The triggers that some place in a model meets under some recipe."""
        return frozenset(trigger for trigger, _, holds in self._met(host) if holds)

    def _unwanted(self, host: Host) -> tuple[frozenset[str], bool]:
        """The operators of the places that meet a trigger, and whether others may."""
        found, unsure = set[str](), False
        for _, place, holds in self._met(host, found):
            unsure = unsure or holds is None
            if holds:
                found.update(host.graph.nodes[i].op for i in place)
        return frozenset(found), unsure

    def _met(self, host: Host, without: Set[str] = frozenset()) -> Iterator[tuple[Trigger, Place, bool | None]]:
        """The triggers that places meet, or may meet (None); not those of places of which all operators are in
        `without`, which may grow meanwhile."""
        told = self._told[host.graph.opset, host.named]
        facts = dict[Place, PlaceFacts]()
        for known, recipes in self.known:
            under = [around(host, options) for options in recipes]

            def applies(part: _Part, under: Sequence[Facts] = under) -> bool:
                if (found := told.get(id(part.around))) is None:
                    found = told[id(part.around)] = any(map(part.around.holds, under))
                return found

            for place, parts in known.places(host, applies):
                for trigger, _, of_place in parts:
                    if without and all(host.graph.nodes[i].op in without for i in place):
                        break
                    if place not in facts:  # many triggers ask of one node
                        facts[place] = facts_of(host, place, {})
                    holds = of_place.holds(facts[place])
                    if holds is not False and trigger not in self.doubts:
                        yield trigger, place, holds
