"""Steering: where drawing goes by what is known. Away from places that meet a known trigger, and, where no trigger is
known, from the operators of saved cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from driftnet.causes.facts import Facts, Place, Value, facts_of, host_of
from driftnet.causes.predicate import Trigger
from driftnet.findings.known import KnownIssue
from driftnet.findings.recognition import is_trusted
from driftnet.model.case import Case

STEERED_WEIGHT = 0.25
AVOIDED = 0.8
"""The share of instances about which a trigger has to be right to be avoided: what it names by mistake is not drawn."""
KEPT = 10
"""One index in so many is drawn as if nothing was known: what triggers say may be wrong, or mended."""


@dataclass(frozen=True)
class _Known:
    """A trigger of a target, with the operators that it speaks of."""

    target: str
    trigger: Trigger
    operators: Mapping[int, frozenset[str]]


@dataclass(frozen=True)
class Steering:
    """What drawing goes by, once these issues are known."""

    issues: Sequence[KnownIssue]

    def weights(self, target: str) -> dict[str, float]:
        """Operator -> factor on how often it is drawn: those of issues of `target` that no trigger tells."""
        return {
            op: STEERED_WEIGHT
            for issue in self.issues
            if issue.saved.target == target and not any(is_trusted(cause, AVOIDED) for cause in issue.causes)
            for op in issue.op_types
        }

    def unwanted(self, case: Case, options: Iterable[tuple[str, Facts]]) -> frozenset[str]:
        """The operators of the places in `case` that meet a trigger under some of the options, by what is known without
        running anything. options: (target, those of a recipe)"""
        host = host_of(case)
        there = {node.op for node in host.graph.nodes}
        recipes, told = list(options), dict[Place, dict[str, Value]]()
        found = set[str]()
        for known in self._triggers:
            if any(there.isdisjoint(names) for names in known.operators.values()):
                continue
            under = [facts for target, facts in recipes if target == known.target]
            for place in known.trigger.shape.places(host, known.operators) if under else ():
                if place not in told:  # many triggers ask of one node, under every recipe
                    told[place] = facts_of(host, place, {})
                for chosen in under:
                    told[place].update(chosen)  # a recipe says of every option what it is
                    if known.trigger.holds(told[place]):
                        found.update(host.graph.nodes[i].op for i in place)
                        break
        return frozenset(found)

    @cached_property
    def _triggers(self) -> list[_Known]:
        """Each once, whoever has it."""
        found: dict[tuple[str, Trigger], _Known] = {}
        for issue in self.issues:
            for cause in issue.causes:
                if cause.trigger and is_trusted(cause, AVOIDED):
                    known = _Known(issue.saved.target, cause.trigger, cause.trigger.operators)
                    found.setdefault((issue.saved.target, cause.trigger), known)
        return list(found.values())
