"""Which causes a model meets, by their triggers alone: nothing is run.

A place *meets* a cause where the trigger holds, and *may* meet it where that depends on what nobody knows without a
run: the numbers that are fed, an option that the trigger was never tried under, or a trigger that is known to err.
Numbers that are fed are taken to be finite, not all equal, nor all zero: what depends on no more of them is met.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from driftnet.causes.facts import Facts, Host, Place, facts_of
from driftnet.causes.impact import ranked
from driftnet.causes.predicate import Atom, Region
from driftnet.causes.record import CauseRecord
from driftnet.causes.words import SHOWS, otherwise, region_in_words

TRUSTED = 0.85
"""The share of the instances that a trigger named that has to have failed, for its word to be taken. At .95 3 of 354
nodes that were named did not fail, at this 4 of 497, where one in twenty may."""
USUAL = {"same": False, "zeros": False, "finite": True, "nan": False}
"""What numbers are like of which nothing is known, by the last word of a fact."""
ADVICE = 3
"""Ways out that are told."""


@dataclass(frozen=True, eq=False)
class Known:
    """A cause that may be met.

    recipe   the options in effect where it was seen (`facts.recipe_facts`);   coarse   signature of its first variant
    """

    record: CauseRecord
    recipe: Facts
    coarse: str = ""


@dataclass(frozen=True, eq=False)
class Meeting:
    """A place of a model that meets a cause, or may.

    why      "" where it does, else what is not known;   inside   whether it lies in a subgraph
    """

    known: Known
    host: Host
    place: Place
    region: Region
    why: str = ""
    inside: bool = False

    @property
    def cause(self) -> CauseRecord:
        """The record of the cause."""
        return self.known.record

    @property
    def node(self) -> int:
        """The node that is named: the last of the place."""
        return max(self.place)

    @property
    def when(self) -> str:
        """When it fails, by what is met here: the operators of this place and their part of the trigger, in words."""
        trigger = self.cause.trigger
        if trigger is None:
            return ""
        here = [Atom(f"{role}.op", "is", self.host.graph.nodes[i].op) for role, i in enumerate(self.place)]
        rest = [atom for atom in self.region.atoms if atom.fact != f"{atom.role}.op"]
        return region_in_words(Region((*here, *rest)), trigger.shape)

    @property
    def title(self) -> str:
        """The cause in a line: what somebody has called it, else when it fails by what is met here, and how."""
        made = SHOWS.search(self.cause.title)
        return f"{self.when}{made[0]}" if made else self.cause.title

    @property
    def advice(self) -> str:
        """What to do instead: options under which it is gone, and what lies outside of the trigger."""
        options = [f"{name} = {value}" for name, value in self.cause.remedy.items()]
        ways = [f"option {', '.join(options)}"] if options else []
        ways += otherwise(self.region, self.cause.trigger.shape if self.cause.trigger else None)
        return "; or ".join(ways[:ADVICE])


def meetings(hosts: Sequence[Host], causes: Sequence[Known], options: Facts) -> list[Meeting]:
    """The places of `hosts` that meet, or may meet, any of `causes` under `options`, the greatest impact first.

    A node is named once for each cause: where it meets one, not that it may meet it otherwise.
    """
    order = {known.record.id: k for k, known in enumerate(ranked(causes, lambda known: known.record.standing))}
    found: list[Meeting] = []
    for k, host in enumerate(hosts):
        facts_at = cache(lambda place, host=host: facts_of(host, place, options))
        for known in _possible(host, causes):
            unsure = _doubts(known, options)
            for place, region, unknown in _places(host, known, facts_at):
                found.append(Meeting(known, host, place, region, unknown or unsure, k > 0))
    told: dict[tuple[str, int, int], Meeting] = {}
    for meeting in sorted(found, key=lambda m: (bool(m.why), order[m.cause.id], m.node)):
        told.setdefault((meeting.cause.id, id(meeting.host), meeting.node), meeting)
    return list(told.values())


def _possible(host: Host, causes: Sequence[Known]) -> Iterator[Known]:
    """The causes of which the model has every operator."""
    there = {node.op for node in host.graph.nodes}
    for known in causes:
        trigger = known.record.trigger
        if trigger and trigger.regions and all(there & operators for operators in trigger.operators.values()):
            yield known


def _places(host: Host, known: Known, facts_at: Callable[[Place], Facts]) -> Iterator[tuple[Place, Region, str]]:
    """Places where the trigger of a cause holds, or may, with the region, and what it depends on then."""
    trigger = known.record.trigger
    assert trigger is not None
    for place in trigger.shape.places(host, trigger.operators):
        facts = facts_at(place)
        possible = None
        for region in trigger.regions:
            holds = region.holds(facts)
            if holds or (holds is None and _usually(region, facts)):
                yield place, region, ""
                break
            if holds is None and possible is None:
                possible = region
        else:
            if possible:
                yield place, possible, _unknown(possible, facts)


def _doubts(known: Known, options: Facts) -> str:
    """Why the word of a trigger is not taken: it errs, or what it was learned under differs in what was never tried."""
    if not known.record.trigger or not known.record.trigger.operators:
        return "the trigger names no operator"
    score = known.record.score
    named, found = score.get("named", 0), score.get("found", 0)
    if named and found < TRUSTED * named:
        return f"{named - found:g} of {named:g} instances that the trigger named did not fail"
    if not named:
        return "the trigger was not measured on anything that it names"
    tried = {*known.record.tried, *(a.fact for region in known.record.trigger.regions for a in region.atoms)}
    untried = [  # an option that has no meaning under these is as good as off
        name.removeprefix("recipe.")
        for name, value in known.recipe.items()
        if options.get(name, False) != value and name not in tried
    ]
    return f"seen with another {', '.join(untried)} only" if untried else ""


def _usually(region: Region, facts: Facts) -> bool:
    """Whether a region holds for numbers as they usually are."""
    usual = {atom.fact: USUAL.get(atom.fact.rpartition(".")[2]) for atom in region.atoms if atom.holds(facts) is None}
    return bool(usual) and all(atom.holds(usual) for atom in region.atoms if atom.fact in usual)


def _unknown(region: Region, facts: Facts) -> str:
    names = dict.fromkeys(atom.fact.partition(".")[2] for atom in region.atoms if atom.holds(facts) is None)
    return f"it depends on {', '.join(names)}"


def as_json(meeting: Meeting) -> Mapping[str, Any]:
    """A meeting as `lint` tells it."""
    node, cause = meeting.host.graph.nodes[meeting.node], meeting.cause
    names = [meeting.host.graph.nodes[i] for i in meeting.place]
    return {
        "cause": cause.id,
        "node": node.name or next(filter(None, node.outputs), ""),
        "op_type": node.op,
        "severity": str(cause.severity),
        "advice": meeting.advice,
        "upstream": cause.upstream,
        "title": meeting.title,
        "when": meeting.when,
        "place": [one.name or next(filter(None, one.outputs), "") for one in names],
        **({"why": meeting.why} if meeting.why else {}),
    }
