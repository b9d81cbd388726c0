"""Steering: where drawing goes by what is known. Away from places that meet a known trigger, and, where no trigger is
known, from the operators of saved cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from driftnet.causes.facts import Facts, Host, Place, PlaceFacts, Tensors, facts_of
from driftnet.causes.predicate import Region, Trigger
from driftnet.findings.known import KnownIssue
from driftnet.findings.recognition import is_trusted

STEERED_WEIGHT = 0.25
AVOIDED = 0.8
"""The share of instances about which a trigger has to be right to be avoided: what it names by mistake is not drawn."""
KEPT = 10
"""One index in so many is drawn as if nothing was known: what triggers say may be wrong, or mended."""


@dataclass(frozen=True)
class _Known:
    """A trigger, the operators of its roles, and its regions: what they ask of model and recipe, and of a place."""

    trigger: Trigger
    operators: Sequence[Set[str]]
    regions: Sequence[tuple[Region, Region]]


@dataclass(frozen=True)
class Steering:
    """What drawing goes by, once these issues are known."""

    issues: Sequence[KnownIssue]

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
            recipes[target].append({"opset": host.graph.opset, **chosen})
        found, unsure = self._met(host, recipes)
        if not found and unsure and (tensors := computed()):
            found, _ = self._met(replace(host, tensors={**host.tensors, **tensors}), recipes)
        return found

    def _met(self, host: Host, recipes: Mapping[str, Sequence[Facts]]) -> tuple[frozenset[str], bool]:
        """The operators of the places that meet a trigger, and whether others may."""
        facts = dict[Place, PlaceFacts]()
        there = {node.op for node in host.graph.nodes}
        found, unsure = set[str](), False
        for target, under in recipes.items():
            for known in self._triggers[target]:
                if any(map(there.isdisjoint, known.operators)):
                    continue
                regions = [of_place for around, of_place in known.regions if any(map(around.holds, under))]
                for place in known.trigger.shape.places(host, known.trigger.operators) if regions else ():
                    if place not in facts:  # many triggers ask of one node
                        facts[place] = facts_of(host, place, {})
                    holds = {region.holds(facts[place]) for region in regions}
                    unsure = unsure or None in holds
                    if True in holds:
                        found.update(host.graph.nodes[i].op for i in place)
        return frozenset(found), unsure

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
        return Region(around), Region(tuple(atom for atom in region.atoms if atom not in around))

    return _Known(trigger, list(trigger.operators.values()), [divided(region) for region in trigger.regions])
