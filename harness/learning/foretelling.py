"""Foretelling: whether a known trigger says which minimal pairs of a finding fail.

A trigger of several operators names those that it was learned with, which are some of many: a converter makes ReduceL2
of the Sqrt that is known to overwrite an output. Where another operator stands in one role, what is left of the trigger
is held against experiments that were made already, the minimal pairs of the finding. It has the cause of the trigger if

    its case, and what still fails of it with one thing changed, fulfil the rest
    what does not fail any more does not, and not only for its operators: the same things cure it

A finding of another cause that shows in the same way may fulfil the rest by chance, but is not cured by what it says.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from driftnet.causes.facts import Facts, Host, host_of, recipe_facts
from driftnet.causes.predicate import Atom, Region, Trigger
from driftnet.learning.experiment import computed
from driftnet.learning.merging import SPECIAL, TRUSTED, at_like_places, is_trusted
from driftnet.learning.trigger import Learned
from driftnet.run.reference import Reference
from driftnet.targets.interface import Target

RIGHT = 0.9
"""The share of those that fail, and of those that do not, about which a trigger has to be right."""

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
    """The case of a finding, first, and its minimal pairs, with all that they compute."""
    return tuple(
        Tried(host_of(s.case, computed(s.case, reference)), recipe_facts(target, s.recipe), s.fails, s.aspect)
        for s in sorted(learned.samples, key=lambda s: s.how != "case")
        if s.how in ("case", "pair")
    )


def is_foretold(member: Learned, tried: Sequence[Tried], by: Learned) -> bool:
    """Whether the trigger of `by`, with the operators of a finding too in one role, tells what was tried of that."""
    if not tried or by.trigger is None or by.trigger.shape.roles < 2 or not is_trusted(by, TRUSTED[False]):
        return False
    if member.where.tells or by.where.tells or not at_like_places(member, by):
        return False
    return any(_tells(trigger, at, tried) for trigger, at in _widened(by.trigger, member.operators))


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


def _tells(trigger: Trigger, at: int, tried: Sequence[Tried]) -> bool:
    if not trigger.matches(tried[0].host, tried[0].options):
        return False
    told = [(one.fails, trigger.matches(one.host, one.options)) for one in tried if one.aspect != f"{at}.op"]
    failing, sound = ([named is fails for fails, named in told if fails is kind] for kind in (True, False))
    return sum(sound) >= ENOUGH and all(sum(right) >= RIGHT * len(right) for right in (failing, sound))
