"""Causes: what one fix would mend. Findings are merged by place and by trigger.

    place     two crashes in one function, two exceptions raised in one function, are one cause
    trigger   where no place tells, one finding's case fulfils the other's trigger, and both show in the same way

A damaged heap crashes anywhere, so its place tells nothing. The function of an exception that every invalid model ends
in tells little, so there what both say is compared too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftnet.causes.facts import Facts, host_of, recipe_facts
from driftnet.causes.impact import Severity, severity_of
from driftnet.causes.place import Where
from driftnet.causes.predicate import Trigger
from driftnet.causes.words import region_in_words, sentence
from driftnet.findings.known import symptom_of
from driftnet.learning.trigger import Learned, Score
from driftnet.model.inspect import elements, nodes
from driftnet.targets.interface import Target
from driftnet.util.groups import groups

VARIANTS = 4
"""Cases that stand for a cause: the smallest, and those that differ most."""


@dataclass(frozen=True, eq=False)
class Cause:
    """One cause, with the findings that were merged into it, its smallest case first.

    id         of the cause: that of its first finding's fine signature
    trigger    of the finding that was learned best; None where none was
    tried      what was changed without losing the failure
    """

    id: str
    target: str
    title: str
    severity: Severity
    where: Where
    trigger: Trigger | None
    score: Score
    tried: tuple[str, ...]
    members: tuple[Learned, ...]

    @property
    def variants(self) -> tuple[Learned, ...]:
        """The findings that stand for it: the smallest, then each time the one that differs most from those taken."""
        taken, rest = [self.members[0]], list(self.members[1:])
        while rest and len(taken) < VARIANTS:
            far = max(rest, key=lambda m: min(_distance(m, t) for t in taken))
            taken.append(far)
            rest.remove(far)
        return tuple(taken)

    def as_json(self) -> dict[str, Any]:
        """The cause as a JSON value."""
        return {
            "id": self.id,
            "target": self.target,
            "title": self.title,
            "severity": self.severity,
            "place": self.where.as_json(),
            "trigger": self.trigger.as_json() if self.trigger else None,
            "sentence": sentence(self.trigger, self.tried) if self.trigger else "",
            "score": self.score.as_json(),
            "variants": [member.saved.id for member in self.variants],
            "merged": [member.saved.id for member in self.members if member not in self.variants],
            "seconds": [round(member.seconds, 2) for member in self.members],
        }


def causes_of(learned: Iterable[Learned], targets: Mapping[str, Target]) -> list[Cause]:
    """The findings of any targets merged into causes. targets: by name."""
    found = sorted(learned, key=lambda m: (nodes(m.saved.case), elements(m.saved.case), m.saved.id))
    facts = [_options(m, targets[m.saved.target]) for m in found]
    same = [[i, k] for i in range(len(found)) for k in range(i) if is_same(found[i], found[k], facts[i], facts[k])]
    merged = [[found[i] for i in sorted(group)] for group in groups([*same, *([i] for i in range(len(found)))])]
    return sorted(map(_cause, merged), key=lambda cause: (cause.target, list(Severity).index(cause.severity), cause.id))


def is_same(a: Learned, b: Learned, of_a: Facts, of_b: Facts) -> bool:
    """Whether two findings have one cause, as far as can be told. of_a, of_b: the options of their recipes."""
    if a.saved.target != b.saved.target:
        return False
    if a.where.tells or b.where.tells:
        return a.where == b.where and (a.where.sort == "crash" or a.saved.coarse == b.saved.coarse)
    if _sort(a) != _sort(b) or a.where.sort != b.where.sort:
        return False
    if a.where.sort == "artifact" and a.where.keys != b.where.keys:
        return False
    if a.where.optimizers or b.where.optimizers:
        return not set(a.where.optimizers).isdisjoint(b.where.optimizers)
    return _fulfils(b, of_b, a.trigger) or _fulfils(a, of_a, b.trigger)


def _fulfils(member: Learned, options: Facts, trigger: Trigger | None) -> bool:
    """Whether the case of a finding is in the region around the case that `trigger` was learned from."""
    if trigger is None or not trigger.regions:
        return False
    own = Trigger(trigger.shape, trigger.regions[:1])
    return own.matches(host_of(member.saved.case, member.tensors), options) is True


def _options(member: Learned, target: Target) -> Facts:
    return recipe_facts(target, member.saved.recipe)


def _sort(member: Learned) -> str:
    return symptom_of(member.saved.coarse, ()).sort


def _cause(members: Sequence[Learned]) -> Cause:
    first = members[0]
    best = max(members, key=lambda m: (m.trigger is not None, m.score.accuracy, -members.index(m)))
    return Cause(
        id=hashlib.sha256(first.saved.fine.encode()).hexdigest()[:8],
        target=first.saved.target,
        title=_title(first),
        severity=severity_of(first.saved.verdict),
        where=first.where,
        trigger=best.trigger,
        score=best.score,
        tried=best.free,
        members=tuple(members),
    )


def _title(member: Learned) -> str:
    said = region_in_words(member.trigger.regions[0], member.trigger.shape) if member.trigger else ""
    said = said or member.saved.fine.split(" | ")[1] or "a model without operators"
    return f"{said}: {_symptom(member)}"


def _symptom(member: Learned) -> str:
    stage, kind = member.saved.stage, member.saved.kind
    when = {"convert": "converting", "quantize": "quantizing", "execute": "running"}.get(stage, stage)
    return f"{kind.replace('-', ' ')} when {when}"


def _distance(a: Learned, b: Learned) -> int:
    """In how many words of their fine signatures two findings differ."""
    return len(set(a.saved.fine.split()) ^ set(b.saved.fine.split()))
