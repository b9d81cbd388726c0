"""Impact: what a failure does to people and how many it hits; and the one order in which failures are told."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from driftnet.model.operators import OPERATORS
from driftnet.model.verdict import Kind, Verdict, Word

T = TypeVar("T")
Level = tuple[bool, bool, int]


class Severity(StrEnum):
    """What a failure does to a user, the worst first."""

    WRONG = "wrong"
    """silently wrong values"""
    CRASH = "crash"
    HANG = "hang"
    ERROR = "error"
    REFUSAL = "refusal"
    """an error that names neither an operator nor a sort of exception: nobody can tell from it what to change"""


HARM = {
    Severity.WRONG: "silently wrong values",
    Severity.CRASH: "a crash",
    Severity.HANG: "a hang",
    Severity.ERROR: "an error",
    Severity.REFUSAL: "an error that names nothing",
}
"""The same in words."""
WEIGHT = {Severity.WRONG: 16, Severity.CRASH: 8, Severity.HANG: 6, Severity.ERROR: 4, Severity.REFUSAL: 2}
"""How much worse: whoever sees a crash knows at once, whoever has wrong values may ship them."""
MOST = 64
"""Powers of two that an impact may be below 1."""


@dataclass(frozen=True)
class Standing:
    """What something is ranked by.

    exposure     the share of real models that may meet it; 0 where nobody has said
    artificial   whether it is known that none of them does
    features     words of its case and of its failure, by which it differs from others
    """

    severity: Severity
    exposure: float = 0.0
    artificial: bool = False
    known: bool = False
    features: frozenset[str] = frozenset()

    @property
    def impact(self) -> float:
        """Severity times exposure."""
        return WEIGHT[self.severity] * self.exposure

    @property
    def level(self) -> Level:
        """New before known, what nobody has last, and impact by powers of two: the lowest comes first."""
        unsaid = MOST + list(Severity).index(self.severity)
        return self.known, self.artificial, -math.floor(math.log2(self.impact)) if self.impact else unsaid


def severity_of(verdict: Verdict) -> Severity:
    """How severe the failure is that `verdict` tells."""
    match verdict.word, verdict.kind:
        case Word.CRASHES, _:
            return Severity.CRASH
        case Word.HANGS, _:
            return Severity.HANG
        case Word.FAILS, _:
            words = re.findall(r"\w+", verdict.message.partition(": ")[2])
            tells = any(word in OPERATORS or re.search(r"\w(Error|Exception)$|Invalid|Fail$", word) for word in words)
            return Severity.ERROR if tells else Severity.REFUSAL
        case _, Kind.WRONG_SHAPE | Kind.WRONG_DTYPE:
            return Severity.ERROR
    return Severity.WRONG


def ranked(items: Iterable[T], standing: Callable[[T], Standing]) -> list[T]:
    """`items` in the order in which they are told: new before known, the greatest impact first; of those alike in that,
    each time the one that differs most from all that were told (furthest-point-first: Taming compiler fuzzers, PLDI
    2013), so that whoever reads from the top meets what is different soonest."""
    levels: dict[Level, list[tuple[T, Standing]]] = {}
    for item in items:
        its = standing(item)
        levels.setdefault(its.level, []).append((item, its))
    told: list[tuple[T, Standing]] = []
    for level in sorted(levels):
        rest = sorted(levels[level], key=lambda pair: -pair[1].impact)
        near = [min((_distance(s, t) for _, t in told), default=1.0) for _, s in rest]
        while rest:
            k = near.index(max(near))
            chosen = rest.pop(k)
            near.pop(k)
            told.append(chosen)
            near = [min(old, _distance(s, chosen[1])) for old, (_, s) in zip(near, rest)]
    return [item for item, _ in told]


def _distance(a: Standing, b: Standing) -> float:
    """The share of their features that they do not have in common."""
    either = len(a.features | b.features)
    return 1 - len(a.features & b.features) / either if either else 0.0


def features_of(*texts: str) -> frozenset[str]:
    """The words of signatures, places and titles as features."""
    return frozenset(word for text in texts for word in re.findall(r"[\w.:-]+", text))
