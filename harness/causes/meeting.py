"""Which causes a model meets, by their triggers alone: nothing is run.

A place *meets* a cause where the trigger holds, and *may* meet it where that depends on what nobody knows without a
run: the numbers that are fed, an option that the trigger was never tried under, or a trigger that is known to err.
Numbers that are fed are taken to be finite, not all equal, nor all zero, and some of those that PRelu and its like read
to be negative, of those of an operand some to be 1 or more, and some 1 or less; some of what is computed to be 1 or
more, where it may be; sizes that are unknown to be other than 1, and what is resized to change its own: what depends on
no more of them is met.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from driftnet.causes.facts import Facts, Place, Value
from driftnet.causes.host import Host
from driftnet.causes.impact import ranked
from driftnet.causes.lookup import around, facts_of
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.causes.record import CauseRecord
from driftnet.causes.words import SHOWS, as_one, atom_in_words, otherwise, region_in_words
from driftnet.util.options import written

TRUSTED = 0.85
"""The share of the instances that a trigger named that has to have failed, for its word to be taken. At .95 3 of 354
nodes that were named did not fail, at this 4 of 497, where one in twenty may."""
LEAST_NAMED = 3
"""Instances that a trigger has to have named for that share to say anything: of 9 places that were named by ones that
had named a single instance 4 did not fail, of 345 by others 18."""
USUAL = {"same": False, "zeros": False, "finite": True, "nan": False}
"""What numbers are like of which nothing is known, by the last word of a fact."""
BELOW_ZERO = frozenset(("Celu", "Elu", "LeakyRelu", "PRelu", "Selu", "Shrink"))  # no trait tells of these
"""Operators that are there for what is negative: who has one feeds it some."""
# no trait tells how far results reach
UP_TO_ONE = frozenset(("Cos", "Erf", "GRU", "HardSigmoid", "LSTM", "Sigmoid", "Sin", "Softmax", "Softsign", "Tanh"))
"""Operators that make nothing beyond 1, and 1 itself of few numbers or none."""
DEPENDS = "it depends on"
"""How it is said what only a run could tell."""
ADVICE = 3
"""Ways out that are told, or tried."""
RECIPE = "recipe."
"""How the facts of options begin."""


def _options(recipe: Mapping[str, Any]) -> list[str]:
    return [f"option {', '.join(options)}"] if (options := written(recipe)) else []


@dataclass(frozen=True, eq=False)
class Known:
    """A cause that may be met.

    recipe   the options in effect where it was seen (`facts.recipe_facts`);   coarse   signature of its first variant
    """

    record: CauseRecord
    recipe: Facts
    coarse: str = ""

    @property
    def stage(self) -> str:
        """The stage that fails; "" where no variant is kept."""
        return self.coarse.split("/")[1] if self.coarse else ""


@dataclass(frozen=True, eq=False)
class Meeting:
    """A place of a model that meets a cause, or may.

    why      "" where it does, else what is not known;   inside   whether it lies in a subgraph
    instead  values of options that end it here and meet no other cause here, where others do: by their facts
    cures    recipes under which this place was run and did not fail; None where none was tried
    fails    how a place failed that was run, otherwise than the cause does; "" where it did not
    not_run  why a place that was to be run tells nothing; "" of one that was run, or that nobody asked to run
    """

    known: Known
    host: Host
    place: Place
    region: Region
    why: str = ""
    inside: bool = False
    instead: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    cures: Sequence[Mapping[str, Any]] | None = None
    not_run: str = ""
    fails: str = ""

    @property
    def cause(self) -> CauseRecord:
        """The record of the cause."""
        return self.known.record

    @property
    def tells(self) -> bool:
        """Whether the trigger says anything of the place: any may be meant by one that names no operator, and asks of
        operands where they come from alone."""
        asked = [atom for atom in self.region.atoms if atom.role >= 0 and atom.fact != f"{atom.role}.op"]
        named = self.cause.trigger is not None and bool(self.cause.trigger.operators)
        return named or not all(atom.fact.endswith((".from", ".given")) for atom in asked)

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
        return region_in_words(self.region, trigger.shape)

    @property
    def title(self) -> str:
        """The cause in a line: what somebody has called it, else when it fails by what is met here, and how."""
        made = SHOWS.search(self.cause.title)
        return f"{self.when}{made[0]}" if made else self.cause.title

    @property
    def advice(self) -> str:
        """What may help: options under which it should be gone, unless they were tried, and what lies outside of the
        trigger."""
        tried = self.cures is not None
        ways = [] if tried else _options(self.cause.remedy)
        region = Region(tuple(a for a in self.region.atoms if not (tried and a.fact.startswith(RECIPE))))
        instead = {} if tried else self.instead
        ways += otherwise(region, self.cause.trigger.shape if self.cause.trigger else None, instead)
        return "; or ".join(ways[:ADVICE])

    @property
    def cure(self) -> str:
        """Options under which this very place was run and did not fail."""
        return "; or ".join(way for recipe in self.cures or () for way in _options(recipe))

    def ways_out(self, values: Callable[[str], Sequence[Value]]) -> list[Mapping[str, Any]]:
        """Options that may end it, to be tried: those it is known to be gone under, then what the trigger rules out.

        values   those that an option may have, by its name
        """
        ways: list[Mapping[str, Any]] = [dict(self.cause.remedy)] if self.cause.remedy else []
        asked = {a.fact: a for a in self.region.of_role(-1) if a.fact.startswith(RECIPE)}
        for fact in dict.fromkeys((*self.instead, *asked)):
            name = fact.removeprefix(RECIPE)
            beyond = self.instead.get(fact)
            ways += [
                {name: v}
                for v in (values(name) if beyond is None else beyond)
                if beyond is not None or not asked[fact].holds({fact: v})
            ]
        return [way for k, way in enumerate(ways) if way not in ways[:k]][:ADVICE]


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
            for place, region, unknown in places(host, known, options, facts_at):
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


def places(
    host: Host, known: Known, options: Facts, facts_at: Callable[[Place], Facts]
) -> Iterator[tuple[Place, Region, str]]:
    """Places where the trigger of a cause holds, or may, under `options`, with the region, of the operators that are
    there, and what it depends on then."""
    trigger = known.record.trigger
    if trigger is None:
        return
    own = around(host, options)
    # Nodes that do not hang together have as many places as pairs: they are looked at where model and recipe fit.
    regions = [region for region in trigger.regions if Region(region.of_role(-1)).holds(own) is not False]
    for place in trigger.shape.places(host, trigger.operators) if regions else ():
        facts = facts_at(place)
        possible = None
        for region in regions:
            holds = region.holds(facts)
            if holds or (holds is None and _usually(region, facts)):
                yield place, _here(region, host, place), ""
                break
            if holds is None and possible is None:
                possible = region
        else:
            if possible:
                there = _here(possible, host, place)
                yield place, there, _unknown(there, facts, trigger.shape)


def _here(region: Region, host: Host, place: Place) -> Region:
    """What a region asks of this place: of the operators that it may be about, those that are there."""
    operators = [Atom(f"{role}.op", "is", host.graph.nodes[i].op) for role, i in enumerate(place)]
    return Region((*operators, *(atom for atom in region.atoms if atom.fact != f"{atom.role}.op")))


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
    if named < LEAST_NAMED:
        return f"the trigger was measured on {named:g} that it names only"
    tried = {*known.record.tried, *(a.fact for region in known.record.trigger.regions for a in region.atoms)}
    untried = [  # an option that has no meaning under these is as good as off
        name.removeprefix("recipe.")
        for name, value in known.recipe.items()
        if options.get(name, False) != value and name not in tried
    ]
    return f"seen with another {', '.join(untried)} only" if untried else ""


def _errs_mostly(cause: CauseRecord) -> bool:
    """Whether more of what a trigger named did not fail than did: that is no reason against a way out."""
    return 2 * cause.score.get("found", 0) < cause.score.get("named", 0)


def _usually(region: Region, facts: Facts) -> bool:
    """Whether a region holds for numbers as they usually are: of each that is unknown every condition has to be one
    of which that is told, and what is taken of it has to meet them all."""
    unknown = [atom for atom in region.atoms if atom.holds(facts) is None]
    usual = {(atom.fact, _usual(atom, facts)) for atom in unknown}
    return bool(usual) and all(atom.holds({atom.fact: v}) for atom in unknown for fact, v in usual if fact == atom.fact)


def _usual(atom: Atom, facts: Facts) -> Value:
    """A value that the unknown fact of a condition usually has, as far as that condition asks; None where nobody knows:
    a size that is no 1 may be any other."""
    op, _, what = facts.get(f"{atom.role}.op"), *atom.fact.partition(".")[1:]
    if what == "in.0.negative" and op in BELOW_ZERO:
        return True
    asked, last = (atom.test, atom.value), what.rpartition(".")[2]
    if (".dim." in what or what == "axis.size" or last == "elements") and asked in (("not", 1), ("least", 2)):
        return 2
    if what == "out.0.magnitude" and asked == ("least", 1) and op not in UP_TO_ONE:
        return 1
    if what.startswith("in.") and (last, atom.test) in (("magnitude", "least"), ("smallest", "most")):
        return 1
    if what == "out.0.like.0" and op == "Resize":
        return False
    return USUAL.get(last)


def _unknown(region: Region, facts: Facts, shape: Shape) -> str:
    asked = [atom for atom in region.atoms if atom.fact != f"{atom.role}.op"]
    unknown = [atom for atom in asked if atom.holds(facts) is None]
    if len(unknown) == len(asked) > 1:
        return f"{DEPENDS} all of that"
    return f"{DEPENDS}: {', '.join(dict.fromkeys(atom_in_words(atom, region, shape) for atom in as_one(unknown)))}"


def with_ways_out(
    found: Sequence[Meeting],
    causes: Sequence[Known],
    values: Callable[[str], Sequence[Value]],
    facts_under: Callable[[str, Value], Facts],
) -> list[Meeting]:
    """`found`, of which no option is advised under which its node meets another cause, or would by a trigger that errs,
    but not mostly.

    values        those that an option may have, by its name;   facts_under   the options with one of them another
    """

    @cache
    def met_under(name: str, value: Value, host: Host) -> set[tuple[str, int]]:
        """Of the causes that the option decides about."""
        deciding = [k for k in causes if k.record.trigger and _is_of(k.record.trigger, f"recipe.{name}")]
        there = meetings([host], deciding, facts_under(name, value))
        return {(m.cause.id, m.node) for m in there if not (m.why.startswith(DEPENDS) or _errs_mostly(m.cause))}

    def told(meeting: Meeting) -> Meeting:
        before = {m.cause.id for m in found if m.host is meeting.host and m.node == meeting.node}

        def met_here(name: str, value: Value) -> set[str]:
            return {c for c, node in met_under(name, value, meeting.host) if node == meeting.node}

        instead = dict[str, Sequence[Value]]()
        for atom in meeting.region.of_role(-1):
            head, _, name = atom.fact.partition(".")
            beyond = [v for v in values(name) if not atom.holds({atom.fact: v})] if head == "recipe" else []
            met = {v: met_here(name, v) for v in beyond}
            if any(met[v] - before for v in beyond):
                instead[atom.fact] = [v for v in beyond if not met[v] - before]
        named = {atom.fact for atom in meeting.region.atoms}
        for fact in (a for a in meeting.cause.needed if a.startswith("recipe.") and a not in named):
            # It failed with that value only, which no condition says; of several others nobody knows which mends.
            name, seen = fact.removeprefix("recipe."), meeting.known.recipe.get(fact)
            others = [v for v in values(name) if v != seen]
            if len(others) == 1 and not met_here(name, *others) - before:
                instead[fact] = others
        return replace(meeting, instead=instead) if instead else meeting

    return [told(meeting) for meeting in found]


def _is_of(trigger: Trigger, fact: str) -> bool:
    return any(atom.fact == fact for region in trigger.regions for atom in region.atoms)


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
        **({"cure": meeting.cure} if meeting.cures is not None else {}),
        **({"not_run": meeting.not_run} if meeting.not_run else {}),
        **({"fails": meeting.fails} if meeting.fails else {}),
    }
