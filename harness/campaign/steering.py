"""Steering: where drawing goes by what is known. Away from places that meet a known trigger, and, where no trigger is
known, from the operators of saved cases."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from driftnet.causes.facts import Facts, Host, Place, PlaceFacts, Tensors, around, cost_of, facts_of
from driftnet.causes.predicate import ONE_NODE, Region, Trigger, any_of
from driftnet.findings.issues import KnownIssue
from driftnet.findings.recognition import is_trusted

STEERED_WEIGHT = 0.25
AVOIDED = 0.8
"""The share of instances about which a trigger has to be right to be avoided: what it names by mistake is not drawn."""
KEPT = 10
"""One index in so many is drawn as if nothing was known: what triggers say may be wrong, or mended."""
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


@dataclass(frozen=True)
class _Known:
    """A trigger, the operators of its roles, and its regions: what they ask of model and recipe, and of a place."""

    trigger: Trigger
    operators: Sequence[Set[str]]
    regions: Sequence[tuple[Region, Region]]

    def places(self, host: Host, there: Mapping[str, Sequence[Place]]) -> Iterable[Place]:
        """Where it may be met. there: operator -> its nodes."""
        if self.trigger.shape == ONE_NODE and self.operators:
            return (place for op in there.keys() & self.operators[0] for place in there[op])
        return self.trigger.shape.places(host, self.trigger.operators)


@dataclass(frozen=True)
class Steering:
    """What drawing goes by, once these issues are known."""

    issues: Sequence[KnownIssue]
    doubts: Doubts = field(default_factory=Doubts)

    def weights(self, target: str) -> Mapping[str, float]:
        """Operator -> factor on how often it is drawn: those of issues of `target` that no trigger tells."""
        return self._weights[target]

    def unwanted(
        self, host: Host, options: Iterable[tuple[str, Facts]], computed: Callable[[], Tensors] = dict
    ) -> frozenset[str]:
        """The operators of the places in a model that meet a trigger under some of the options.

        options   (target, those of a recipe)
        computed  the tensors that the model makes: asked for once, where no trigger is met by what is known without
            running anything, and some hang on that. Half of the known failures of MNN that a run drew were of these.
        """
        recipes = defaultdict[str, list[Facts]](list)
        for target, chosen in options:
            recipes[target].append(around(host, chosen))
        found, unsure = self._unwanted(host, recipes)
        if not found and unsure and (tensors := computed()):
            found, _ = self._unwanted(replace(host, tensors={**host.tensors, **tensors}), recipes)
        return found

    def met(self, host: Host, target: str, options: Facts) -> frozenset[Trigger]:
        """The triggers that some place in a model meets under these options."""
        found = self._met(host, {target: [around(host, options)]})
        return frozenset(trigger for trigger, _, holds in found if holds)

    def _unwanted(self, host: Host, recipes: Mapping[str, Sequence[Facts]]) -> tuple[frozenset[str], bool]:
        """The operators of the places that meet a trigger, and whether others may."""
        found, unsure = set[str](), False
        for _, place, holds in self._met(host, recipes, found):
            unsure = unsure or holds is None
            if holds:
                found.update(host.graph.nodes[i].op for i in place)
        return frozenset(found), unsure

    def _met(
        self, host: Host, recipes: Mapping[str, Sequence[Facts]], without: Set[str] = frozenset()
    ) -> Iterator[tuple[Trigger, Place, bool | None]]:
        """The triggers that places meet, or may meet (None); not those of places of which all operators are in
        `without`, which may grow meanwhile."""
        facts = dict[Place, PlaceFacts]()
        there = defaultdict[str, list[Place]](list)
        for i, node in enumerate(host.graph.nodes):
            there[node.op].append((i,))
        for target, under in recipes.items():
            for known in self._triggers[target]:
                if any(map(there.keys().isdisjoint, known.operators)):
                    continue
                regions = [of_place for around, of_place in known.regions if any(map(around.holds, under))]
                for place in known.places(host, there) if regions else ():
                    if without and all(host.graph.nodes[i].op in without for i in place):
                        continue
                    if place not in facts:  # many triggers ask of one node
                        facts[place] = facts_of(host, place, {})
                    holds = any_of(region.holds(facts[place]) for region in regions)
                    if holds is not False and known.trigger not in self.doubts:
                        yield known.trigger, place, holds

    @cached_property
    def _weights(self) -> Mapping[str, Mapping[str, float]]:
        found = defaultdict[str, dict[str, float]](dict)
        for issue in self.issues:
            if not any(is_trusted(cause, AVOIDED) for cause in issue.causes):
                found[issue.saved.target].update(dict.fromkeys(issue.op_types, STEERED_WEIGHT))
        return found

    @cached_property
    def _triggers(self) -> Mapping[str, Iterable[_Known]]:
        """Target -> what it is known to fail by, each once, whoever has it."""
        found = defaultdict[str, dict[Trigger, _Known]](dict)
        for issue in self.issues:
            for cause in issue.causes:
                if cause.trigger and is_trusted(cause, AVOIDED):
                    found[issue.saved.target].setdefault(cause.trigger, _known(cause.trigger))
        return defaultdict(list, {target: list(known.values()) for target, known in found.items()})


def _known(trigger: Trigger) -> _Known:
    def divided(region: Region) -> tuple[Region, Region]:
        around = region.of_role(-1)
        place = (atom for atom in region.atoms if atom not in around)
        return Region(around), Region(tuple(sorted(place, key=lambda atom: cost_of(atom.fact))))

    return _Known(trigger, list(trigger.operators.values()), [divided(region) for region in trigger.regions])
