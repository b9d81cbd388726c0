"""Ledger: what the nights of a state have seen of each cause, and what each of them had to announce.

A night is a run with `--state`. A cause is announced when a night finds it, and from then on only when something
happens to it: it is fixed, comes back, or gets worse. Between, its status stands in every night.

Everything here is a value: what a night sees makes another ledger. Two that went on from one, or have nothing in
common, can be `merged`, in any order and any number of times.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, TypeVar

from driftnet.causes.impact import Severity
from driftnet.causes.releases import BAD, GOOD, outcome_of
from driftnet.targets.environments import numbers
from msgspec import Meta, Struct, structs

T = TypeVar("T")

SCHEMA = 1
QUIET_NIGHTS = 3
"""In a row in which a cause does not show on a release that it was seen on, until it counts as fixed there: the same
release may be built anew, but once it may have been chance."""


class What(StrEnum):
    """What happened to a cause in a night."""

    NEW = "new"
    BACK = "back"
    WORSE = "worse"
    FIXED = "fixed"


RED = (What.NEW, What.BACK, What.WORSE)


class Status(StrEnum):
    """Whether a cause is there: until a release does not show it that is not older than all that did."""

    OPEN = "open"
    FIXED = "fixed"


class Night(Struct, frozen=True, omit_defaults=True):
    """A run: when it began (UTC, ISO 8601), its seed, the targets with their releases, and how many cases it
    examined."""

    begun: str
    seed: int
    releases: Mapping[str, str] = {}
    cases: int = 0


class Look(Struct, frozen=True, omit_defaults=True):
    """What a release did with a cause when it was asked last, a word of `driftnet.causes.releases`.

    night   which night that was;   quiet   nights in a row, up to that one, in which it did not show on this release
    """

    outcome: str
    night: str
    quiet: Annotated[int, Meta(ge=0)] = 0


class Change(Struct, frozen=True, order=True):
    """What happened to a cause in a night, on which release."""

    night: str
    what: What
    release: str


class Tracked(Struct, frozen=True, omit_defaults=True):
    """What is known of one cause.

    severity  the worst that was seen of it
    status    as of the night `settled`;   found  the first night that found it, "" where it came with a corpus
    looks     release -> what it did;   bad  releases that it was ever seen on
    changes   what nights announced, the oldest first
    certain   False: whether it shows depends on chance, the heap or the CPU
    """

    target: str
    title: str
    severity: Severity
    status: Status = Status.OPEN
    settled: str = ""
    found: str = ""
    looks: Mapping[str, Look] = {}
    bad: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    certain: bool = True


class Ledger(Struct, frozen=True):
    """nights: id -> what it was; ids sort by time. causes: id -> what is known of it."""

    schema: int = SCHEMA
    nights: Mapping[str, Night] = {}
    causes: Mapping[str, Tracked] = {}


def looked(cause: Tracked, release: str, outcome: str, night: str, severity: Severity | None = None) -> Tracked:
    """The cause after a night has asked a release about it. severity: of the failure that was seen, if any was.

    It comes back where it was fixed and shows on a release that it was not seen on before; and it is fixed where it
    does not show on a release that it was never seen on, or for QUIET_NIGHTS on one that it was; one that is older than
    a release that showed it tells nothing of that: there it was not yet broken. It is worse where a release that was
    never asked before, and is not older either, fails more severely.
    """
    before = cause.looks.get(release)
    word = outcome_of(outcome)
    agrees = word == GOOD
    quiet = 0 if not agrees else 1 if before is None else before.quiet + (before.night != night)
    look = Look(outcome, night, quiet)
    older = any(numbers(release) < numbers(bad) for bad in cause.bad)
    mended = agrees and not older and (release not in cause.bad or (cause.certain and quiet >= QUIET_NIGHTS))
    status = Status.FIXED if mended else Status.OPEN if word == BAD else cause.status
    fresh = before is None and release not in cause.bad and not older and cause.certain
    worse = fresh and severity is not None and _rank(severity) < _rank(cause.severity)
    happened = []
    if status != cause.status and (mended or release not in cause.bad or (before and before.quiet >= QUIET_NIGHTS)):
        happened.append(What.FIXED if mended else What.BACK)
    if worse:
        happened.append(What.WORSE)
    return structs.replace(
        cause,
        severity=severity if severity is not None and worse else cause.severity,
        status=status,
        settled=night,
        looks={**cause.looks, release: look},
        bad=tuple(sorted({*cause.bad, release})) if word == BAD else cause.bad,
        changes=_in_order({*cause.changes, *(Change(night, what, release) for what in happened)}),
    )


def announced(cause: Tracked, release: str, night: str) -> Tracked:
    """A cause that a night has found: new, or back where it counted as fixed."""
    if cause.found or cause.changes:
        return looked(cause, release, BAD, night)
    first = looked(cause, release, BAD, night)
    return structs.replace(first, found=night, changes=(Change(night, What.NEW, release),))


def changed_in(ledger: Ledger, night: str) -> dict[str, list[Change]]:
    """What a night has to announce: cause -> what happened to it."""
    told = {id: [c for c in cause.changes if c.night == night] for id, cause in ledger.causes.items()}
    return {id: changes for id, changes in told.items() if changes}


def merged(a: Ledger, b: Ledger) -> Ledger:
    """What both know. Of what they say of one thing, that of the later night holds."""
    causes = {id: _of_both(a.causes.get(id), b.causes.get(id)) for id in sorted({*a.causes, *b.causes})}
    nights = {id: _greater(a.nights.get(id), b.nights.get(id), _cases) for id in sorted({*a.nights, *b.nights})}
    return Ledger(nights=nights, causes=causes)


def _cases(night: Night) -> tuple[int, int, str]:
    return night.cases, night.seed, repr(night)


def _of_both(a: Tracked | None, b: Tracked | None) -> Tracked:
    if a is None or b is None:
        return _there(a, b)
    later = max(a, b, key=_age)
    releases = sorted({*a.looks, *b.looks})
    looks = {name: _greater(a.looks.get(name), b.looks.get(name), _when) for name in releases}
    return structs.replace(
        later,
        severity=min(a.severity, b.severity, key=_rank),
        found=min((cause.found for cause in (a, b) if cause.found), default=""),
        looks=looks,
        bad=tuple(sorted({*a.bad, *b.bad})),
        changes=_once(_in_order({*a.changes, *b.changes})),
        certain=a.certain and b.certain,
    )


def _once(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Without what both have told as new but the first."""
    told = list(changes)
    first = next((change for change in told if change.what == What.NEW), None)
    return tuple(change for change in told if change.what != What.NEW or change == first)


def _age(cause: Tracked) -> tuple[str, str, str, str]:
    return cause.settled, cause.status, cause.title, cause.target


def _when(look: Look) -> tuple[str, int, str]:
    return look.night, look.quiet, look.outcome


def _greater(a: T | None, b: T | None, key: Callable[[T], tuple[object, ...]]) -> T:
    return _there(a, b) if a is None or b is None else max(a, b, key=key)


def _there(a: T | None, b: T | None) -> T:
    found = b if a is None else a
    if found is None:
        raise ValueError("one of both has it")
    return found


def _rank(severity: Severity) -> int:
    return list(Severity).index(severity)


def _in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes))
