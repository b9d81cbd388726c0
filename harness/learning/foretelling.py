"""Foretelling: whether a known trigger says which minimal pairs of a finding fail.

A trigger of several operators names those that it was learned with, which are some of many: a converter makes ReduceL2
of the Sqrt that is known to overwrite an output. Where another operator stands in one role, what is left of the trigger
is held against experiments that were made already, the minimal pairs of the finding. It has the cause of the trigger if

    its case, and what still fails of it with one thing changed, fulfil the rest
    what does not fail any more does not, and not only for its operators: the same things cure it

A finding of another cause that shows in the same way may fulfil the rest by chance, but is not cured by what it says.

A trigger may be too narrow in other ways. Where a minimal pair that fails fulfils it, and the case all of it but one
atom, that one is taken out of it, and the rest held against the others. That a pair is known says much already: of what
is cured most has to be told. Of one operator alone it says less: two attributes of a Resize that are ignored are two
causes.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from driftnet.causes.facts import Facts
from driftnet.causes.host import Host, host_of
from driftnet.causes.lookup import facts_of, recipe_facts
from driftnet.causes.predicate import Atom, Region, Trigger
from driftnet.learning.experiment import computed
from driftnet.learning.merging import SPECIAL, TRUSTED, at_like_places, is_trusted
from driftnet.learning.trigger import Learned
from driftnet.run.reference import Reference
from driftnet.targets.interface import Target

RIGHT = 0.9
"""The share of those that fail, and of those that do not, about which a trigger has to be right."""

CURED = 0.6
"""Of those that do not fail, where one that fails fulfils the trigger as it is."""

ENOUGH = 3
"""Pairs that do not fail which it has to tell, whatever their operators."""


@dataclass(frozen=True, eq=False)
class Tried:
    """A model that was run: the case of a finding, or a minimal pair of it; aspect is "" or what was changed."""

    host: Host
    options: Facts
    fails: bool
    aspect: str


def tried_of(learned: Learned, target: Target, reference: Reference) -> tuple[Tried, ...]:
    """The case of a finding, first, and its minimal pairs, with all that they compute. One that fails in another way is
    not cured: it tells nothing."""
    return tuple(
        Tried(host_of(s.case, computed(s.case, reference)), recipe_facts(target, s.recipe), s.fails, s.aspect)
        for s in sorted(learned.samples, key=lambda s: s.how != "case")
        if s.how == "case" or (s.how == "pair" and (s.fails or s.agrees))
    )


def is_foretold(member: Learned, tried: Sequence[Tried], by: Learned) -> bool:
    """Whether the trigger of `by`, with the operators of a finding too in one role, or without what one pair changed,
    tells what was tried of that."""
    if not tried or by.trigger is None or by.trigger.shape.roles < 2 or not is_trusted(by, TRUSTED[False]):
        return False
    if member.where.tells or by.where.tells or not at_like_places(member, by):
        return False
    if any(_tells(trigger, f"{at}.op", tried) for trigger, at in _widened(by.trigger, member.operators)):
        return True
    return any(
        _tells(trigger, pair.aspect, tried, CURED)
        for pair in tried[1:]
        if pair.fails
        for trigger in _relaxed(by.trigger, pair, tried[0])
    )


def _relaxed(trigger: Trigger, pair: Tried, case: Tried) -> Iterator[Trigger]:
    """The regions that a pair fulfils, without the one atom that the case does not: where it breaks more of them, too
    little of the trigger would be left. Its operator joins those that are named."""
    for place in trigger.shape.places(pair.host, trigger.operators):
        facts = facts_of(pair.host, place, pair.options)
        for region in trigger.regions:
            if region.holds(facts) and max(place) < len(case.host.graph.nodes):
                before = facts_of(case.host, place, case.options)
                broken = [atom for atom in region.atoms if atom.holds(before) is False]
                if len(broken) == 1:
                    yield Trigger(trigger.shape, (_without(region, broken[0], before),))


def _without(region: Region, broken: Atom, before: Facts) -> Region:
    """The region without an atom, or with the operator of the case too where that is it."""
    if broken.fact.endswith(".op"):
        return _with(region, broken.role, {str(before[broken.fact])})
    return Region(tuple(atom for atom in region.atoms if atom != broken))


def _widened(trigger: Trigger, operators: Sequence[Sequence[str]]) -> Iterator[tuple[Trigger, int]]:
    """The trigger with the operators of a role of the finding too in one of its own, and that role of the finding.
    Another one keeps its operators: so much the two have to have in common."""
    for role, named in trigger.operators.items() if len(trigger.operators) > 1 else ():
        for at, others in enumerate(operators):
            if (new := {*others} - named) and new.isdisjoint(SPECIAL):
                yield Trigger(trigger.shape, tuple(_with(region, role, new) for region in trigger.regions)), at


def _with(region: Region, role: int, new: Set[str]) -> Region:
    """The region with more operators in one role."""

    def more(atom: Atom) -> Atom:
        if atom.fact != f"{role}.op" or atom.test not in ("is", "in"):
            return atom
        named = atom.value if isinstance(atom.value, tuple) else (atom.value,)
        return Atom(atom.fact, "in", (*named, *sorted(new)))

    return Region(tuple(map(more, region.atoms)))


def _tells(trigger: Trigger, aspect: str, tried: Sequence[Tried], cured: float = RIGHT) -> bool:
    """Whether it is right about the case, and about those of its pairs that have nothing to do with an aspect.

    cured   the share of those that do not fail
    """
    if not trigger.matches(tried[0].host, tried[0].options):
        return False
    told = [(one.fails, trigger.matches(one.host, one.options)) for one in tried if one.aspect != aspect]
    failing, sound = ([named is fails for fails, named in told if fails is kind] for kind in (True, False))
    return sum(failing) >= RIGHT * len(failing) and sum(sound) >= max(ENOUGH, cured * len(sound))
