"""Nights: runs with a state. What is open is asked again first, then graphs are generated; what happened to a cause is
announced once."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from driftnet.campaign import coverage
from driftnet.campaign import ledger as ledgers
from driftnet.campaign import state as states
from driftnet.campaign.events import Asked
from driftnet.campaign.ledger import Change, Ledger, Night, Status, Tracked, What
from driftnet.campaign.plan import Plan
from driftnet.campaign.state import Kept
from driftnet.campaign.summary import Happened, Summary, Tonight
from driftnet.causes.impact import Severity, Standing, features_of, ranked, severity_of
from driftnet.causes.releases import BAD, GOOD, outcome_of
from driftnet.commands.bisecting import Asking
from driftnet.findings import arrange, corpus
from driftnet.targets.environments import Installed, resolve
from driftnet.util.errors import UserError
from driftnet.util.files import held, make_folder
from msgspec import structs

ASKING_SHARE = 0.25
"""Of the minutes of a night, the most that asking known causes again may take; those asked least recently come first,
so that in some nights all get their turn."""

Tell = Callable[[Asked], None]


@dataclass
class InNight:
    """The night that is under way.

    asked, unasked   causes that were asked again, and those for which there was no time
    """

    id: str
    plan: Plan
    state: Path
    ledger: Ledger
    causes: Mapping[str, Kept]
    asked: int = 0
    unasked: int = 0

    @property
    def roots(self) -> tuple[Path, ...]:
        """Where known causes are."""
        return *corpus.known(self.plan.corpus), self.state / states.CASES

    def put(self, id: str, cause: Tracked) -> None:
        """Write down what is known of a cause from now on."""
        self.ledger = structs.replace(self.ledger, causes={**self.ledger.causes, id: cause})


def next_seed(state: Path) -> int:
    """A seed that no night of the state had."""
    return 1 + max((night.seed for night in states.load(state).nights.values()), default=-1)


def begin(plan: Plan, state: Path, tell: Tell) -> tuple[Plan, InNight]:
    """Ask what is known once more, on the releases of the plan; and the plan for the rest of the night."""
    started = time.monotonic()
    make_folder(state / states.CASES)
    corpus.sweep(state / states.CASES)
    moment = datetime.now(UTC)
    targets = [resolve(word, python=plan.python) for word in plan.targets]
    known = states.causes(*corpus.known(plan.corpus))
    night = InNight(f"{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", plan, state, states.load(state), known)
    told = Night(moment.isoformat(timespec="seconds"), plan.seed, {one.target.name: one.release for one in targets})
    night.ledger = structs.replace(night.ledger, nights={**night.ledger.nights, night.id: told})
    names = {one.target.name for one in targets}
    for id, kept in night.causes.items():
        if id not in night.ledger.causes and kept.cause.target in names:
            night.put(id, kept.tracked)
    _announce(night, targets)  # what a night found that was killed before it could say so
    night.causes = states.causes(*night.roots)
    _ask(night, targets, ASKING_SHARE * plan.seconds, tell)
    states.save(state, night.ledger)
    mended = frozenset(id for id, cause in night.ledger.causes.items() if cause.status == Status.FIXED)
    left = None if plan.minutes is None else max(0.0, plan.minutes - (time.monotonic() - started) / 60)
    return replace(plan, minutes=left, mended=mended), night


def end(night: InNight, summary: Summary) -> Tonight:
    """Write down what the night has seen; what it has to tell."""
    targets = [resolve(word, python=night.plan.python) for word in night.plan.targets]
    _announce(night, targets, {finding.cause: finding.release for finding in summary.new})
    for finding in summary.findings:
        known = night.ledger.causes.get(finding.cause)
        if finding.status == "known" and known:
            night.put(finding.cause, ledgers.looked(known, finding.release, BAD, night.id))
    told = structs.replace(night.ledger.nights[night.id], cases=summary.cases)
    night.ledger = structs.replace(night.ledger, nights={**night.ledger.nights, night.id: told})
    states.save(night.state, night.ledger)
    night.causes = states.causes(*night.roots)
    return _tonight(night, {one.target.name for one in targets})


def merge_states(folder: Path, others: Sequence[Path]) -> dict[str, Any]:
    """Take what other states know, and their cases, into the one in `folder`; what it then says.

    Raises UserError for a state that there is not, or that is not whole, and where a run works on one of them.
    """
    for other in (*others, *([] if others else [folder])):
        if not (other / states.FILE).exists():
            hint = "driftnet fuzz --state DIR makes one"
            raise UserError(f"{other} is no state: it has no {states.FILE}", hint=hint, kind="state")
    if not others:
        return status(folder)
    make_folder(folder / states.CASES)
    with ExitStack() as stack:
        for place in dict.fromkeys(path.resolve() for path in (folder, *others)):
            stack.enter_context(held(place / states.LOCK))
        both, asked = states.load(folder), coverage.load(folder)
        for other in others:
            for found in corpus.folders([other / states.CASES]) if (other / states.CASES).is_dir() else []:
                arrange.brought(found, folder / states.CASES)
            both = ledgers.merged(both, states.load(other))
            asked |= coverage.load(other)
        states.save(folder, both)
        coverage.save(folder, asked)
    return status(folder)


def status(folder: Path) -> dict[str, Any]:
    """What the state in `folder` says of each cause that a night found or that something happened to, open ones first;
    of the others how many there are."""
    ledger = states.load(folder)
    told = {id: cause for id, cause in ledger.causes.items() if cause.found or cause.changes}
    order = sorted(told, key=lambda id: (told[id].status, list(Severity).index(told[id].severity), id))
    rest = [cause for id, cause in ledger.causes.items() if id not in told]
    return {
        "path": str(folder),
        "nights": [{"id": id, **msgspec.to_builtins(night)} for id, night in sorted(ledger.nights.items())],
        "causes": [_told(id, told[id]) for id in order],
        "known": {status: sum(cause.status == status for cause in rest) for status in Status},
    }


def _told(id: str, cause: Tracked) -> dict[str, Any]:
    return {
        "id": id,
        "target": cause.target,
        "title": cause.title,
        "severity": cause.severity,
        "status": cause.status,
        "found": cause.found,
        "releases": {release: look.outcome for release, look in cause.looks.items()},
        "changes": msgspec.to_builtins(cause.changes),
    }


def _announce(night: InNight, targets: Sequence[Installed], releases: Mapping[str, str] = {}) -> None:
    """Announce what stands among the cases of the state and was not; releases: of those found now."""
    of = {one.target.name: one.release for one in targets}
    for id, kept in states.causes(night.state / states.CASES).items():
        known = night.ledger.causes.get(id)
        if known is None or id in releases:
            release = releases.get(id) or (*kept.cases[0].seen, of.get(kept.cause.target, ""))[0]
            night.put(id, ledgers.announced(known or kept.tracked, release, night.id))


def _ask(night: InNight, targets: Sequence[Installed], seconds: float, tell: Tell) -> None:
    """Ask the releases of the night about the causes of their targets, until the time is over."""
    work = [(id, one) for one in targets for id in _order(night, one)]
    finish = time.monotonic() + seconds
    with Asking() as asking:
        for number, (id, installed) in enumerate(work):
            if time.monotonic() > finish:
                night.unasked = len(work) - number
                break
            outcome, severity = _asked(asking, night.causes[id], installed)
            release = installed.release
            night.put(id, ledgers.looked(night.ledger.causes[id], release, outcome, night.id, severity))
            night.asked += 1
            tell(Asked(id, release, outcome, number + 1, len(work)))


def _order(night: InNight, installed: Installed) -> list[str]:
    """The causes of a target: those first that its release was not asked about yet, by impact, then those asked
    least recently."""
    ids = [id for id, kept in night.causes.items() if kept.cause.target == installed.target.name]
    by_impact = ranked([id for id in ids if id in night.ledger.causes], lambda id: night.causes[id].cause.standing)

    def last(id: str) -> str:
        look = night.ledger.causes[id].looks.get(installed.release)
        return look.night if look else ""

    return sorted(by_impact, key=last)


def _asked(asking: Asking, kept: Kept, installed: Installed) -> tuple[str, Severity | None]:
    """What a release does with a cause: it is good where all its cases are, and shows where one does."""
    said: list[tuple[str, Severity | None]] = []
    for saved in kept.cases:
        outcome, verdict = asking.on(saved, installed)
        said.append((outcome, severity_of(verdict) if verdict else None))
        if outcome_of(outcome) != GOOD:
            break
    return said[-1]


def _tonight(night: InNight, names: Iterable[str]) -> Tonight:
    changed = ledgers.changed_in(night.ledger, night.id)
    causes = {id: cause for id, cause in night.ledger.causes.items() if cause.target in names}
    return Tonight(
        id=night.id,
        number=len(night.ledger.nights),
        changes=ranked(
            [_happened(night, id, change) for id, told in changed.items() for change in told],
            lambda one: Standing(one.severity, known=one.what == What.FIXED, features=features_of(one.cause)),
        ),
        open=sum(cause.status == Status.OPEN for cause in causes.values()),
        fixed=sum(cause.status == Status.FIXED for cause in causes.values()),
        waiting=[_happened(night, id, cause.changes[-1]) for id, cause in causes.items() if _is_waiting(night, cause)],
        asked=night.asked,
        unasked=night.unasked,
    )


def _happened(night: InNight, id: str, change: Change) -> Happened:
    cause, kept = night.ledger.causes[id], night.causes.get(id)
    first = night.ledger.nights.get(cause.found)
    return Happened(
        cause=id,
        target=cause.target,
        what=change.what,
        status=cause.status,
        release=change.release,
        title=cause.title,
        severity=cause.severity,
        since=first.begun[:10] if first else "",
        path=str(kept.cause.path or kept.cases[0].path) if kept else "",
        releases={release: look.outcome for release, look in cause.looks.items()},
    )


def _is_waiting(night: InNight, cause: Tracked) -> bool:
    """Whether an earlier night announced it, and it is open still."""
    return cause.status == Status.OPEN and any(change.night != night.id for change in cause.changes)
