"""Causes: what one fix would mend. Findings are merged by place and by trigger.

    place     two crashes in one function, two exceptions raised in one function, are one cause
    trigger   where no place tells, the case of either finding fulfils the trigger of the other, and both show in the
              same way; or one does, if the trigger has shown to be right

A damaged heap crashes anywhere, so its place tells nothing; where it was damaged does, if that was looked for. The
function of an exception that every invalid model ends in tells little, so there what both say is compared too, and the
triggers of exceptions that a check raises. An optimizer is large, and has many bugs: that both go away without it is
needed, and is not enough.
"""

import re

from driftnet.causes.facts import Facts
from driftnet.causes.host import host_of
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Trigger
from driftnet.causes.words import in_a_line, region_in_words
from driftnet.findings.corpus import SavedCase
from driftnet.findings.issues import symptom_of
from driftnet.learning.trigger import Learned
from driftnet.model.operators import Trait, having

TRUSTED = {True: 0.85, False: 0.9}
"""Whether two findings are at one place -> the accuracy of a trigger from which on what fulfils it is of its cause;
below, each has to fulfil the other's."""

INSTANCES = 10
"""Instances of which an accuracy says anything."""

MEASURED = re.compile(r"\.(dim\.-?\d|elements|magnitude|smallest|ratio\.-?\d|distinct|same|tied|zeros?|whole)$")
SPECIAL = having(Trait.QUANTIZES) | having(Trait.DEQUANTIZES) | having(Trait.HAS_BODY)
"""Operators that are never there by chance."""

LONG = 7
"""Words from which on a message is about something in particular."""


def is_same(a: Learned, b: Learned, of_a: Facts, of_b: Facts) -> bool:
    """Whether two findings have one cause, as far as can be told. of_a, of_b: the options of their recipes."""
    if a.saved.target != b.saved.target:
        return False
    if a.where.damage and b.where.damage:
        return a.where.damage[0] == b.where.damage[0]
    if a.where.tells or b.where.tells:
        if not (a.where.is_one_with(b.where) and (a.where.sort == "crash" or alike(_said(a), _said(b)))):
            return False
        if not a.where.is_a_check:
            return True
    elif not at_like_places(a, b):
        return False
    if a.where.class_tells:
        return True
    placed = _tells_some(a.where) and _tells_some(b.where)
    if placed and a.where.sort != "error" and _specific(a, b) and not _operators(a).isdisjoint(_operators(b)):
        return True
    exactly = [_fulfils(b, of_b, a, placed), _fulfils(a, of_a, b, placed)]
    if any(good and is_trusted(by, TRUSTED[placed]) for good, by in zip(exactly, (a, b))):
        return True
    return _fulfils(b, of_b, a, placed, measured=False) and _fulfils(a, of_a, b, placed, measured=False)


def is_trusted(member: Learned, least: float) -> bool:
    """Whether the trigger of a finding was right about that share of as many instances as say anything."""
    return member.score.instances >= INSTANCES and member.score.accuracy >= least


def at_like_places(a: Learned, b: Learned) -> bool:
    """Whether what is known of two places that do not tell is the same."""
    if set(a.where.optimizers).isdisjoint(b.where.optimizers) and (a.where.optimizers or b.where.optimizers):
        return False
    if a.where.sort == b.where.sort == "message":
        return alike(a.where.keys[0], b.where.keys[0])
    if _sort(a) != _sort(b):
        return False
    return bool(a.where.optimizers) or (
        (a.where.sort, a.where.keys) == (b.where.sort, b.where.keys)
        if a.where.sort != "heap"
        else a.where.sort == b.where.sort
    )


def _tells_some(where: Where) -> bool:
    """Whether a place is of something in particular: an optimizer, a class of artifact, a long message."""
    said = where.keys[0] if where.sort == "message" else ""
    return bool(where.optimizers) or (len(said.split()) >= LONG if said else bool(where.keys))


def _specific(a: Learned, b: Learned) -> bool:
    """Whether both need the same optimizers, or say nearly the same at length."""
    if a.where.sort == b.where.sort == "message":
        return alike(a.where.keys[0], b.where.keys[0], share=0.75)
    return bool(a.where.optimizers) and (a.where, a.saved.kind) == (b.where, b.saved.kind)


def _said(member: Learned) -> str:
    return member.saved.coarse.partition("/error/")[2]


def alike(a: str, b: str, share: float = 0.5) -> bool:
    """Whether two messages have that share of their words in common."""
    here, there = set(a.split()), set(b.split())
    return len(here & there) >= share * len(here | there)


def _operators(member: Learned) -> set[str]:
    return {node.op for node in host_of(member.saved.case).graph.nodes} - SPECIAL


def _fulfils(member: Learned, options: Facts, by: Learned, placed: bool, *, measured: bool = True) -> bool:
    """Whether the case of a finding is in the region around the case of another one.

    measured whether sizes and magnitudes count: a trigger that is not well learned sets bounds by chance

    placed   both are at one place: then one of several operators may be another one, for what stands beside the
             operator at fault is any that the system treats alike
    """
    if by.trigger is None or not by.trigger.regions:
        return False
    if not placed and not {node.op for node in host_of(member.saved.case).graph.nodes} & set().union(*by.operators):
        return False  # a trigger may say "any operator" of those that were tried
    region, host = by.trigger.regions[0], host_of(member.saved.case, member.tensors)
    if not measured:
        region = Region(tuple(atom for atom in region.atoms if not MEASURED.search(atom.fact)))
    company = [role for role, names in enumerate(by.operators) if not SPECIAL.intersection(names)]
    tried = [region]
    if placed and by.trigger.shape.roles > 1:
        tried += [_with_any(region, role) for role in company]
    return any(Trigger(by.trigger.shape, (one,)).matches(host, options) is True for one in tried)


def _with_any(region: Region, role: int) -> Region:
    """`region` with any operator in one role that may be there by chance."""
    others = (Atom(f"{role}.op", "not", name) for name in sorted(SPECIAL))
    return Region((*(atom for atom in region.atoms if atom.role != role), *others))


def _sort(member: Learned) -> str:
    return symptom_of(member.saved.coarse, ()).sort


def title_of(saved: SavedCase, trigger: Trigger | None) -> str:
    """A cause in a line: when a finding of it fails, by the first region of its trigger, and how."""
    said = region_in_words(trigger.regions[0], trigger.shape) if trigger else ""
    said = said or saved.fine.split(" | ")[1] or "a model without operators"
    return in_a_line(said, saved.kind, saved.stage)
