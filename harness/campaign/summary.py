"""Summary: what a campaign counted, which is what `driftnet fuzz --json` prints, and the listener that counts it.

While a campaign runs, `Tally` counts what it hears; what holds in the end is `derived` from the run's journal and its
folder of cases.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from driftnet.campaign.events import Begun, Done, Ended, Event, Examined, Failed, Found, Learned, LeftOut, Tick
from driftnet.campaign.journal import histories, settled
from driftnet.campaign.ledger import RED, Status, What
from driftnet.causes.impact import Severity, Standing, features_of, ranked, severity_of
from driftnet.findings import arrange, corpus
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Word
from driftnet.util.errors import UserError
from driftnet.util.files import json_text, replace_text
from msgspec import Meta, Struct, structs

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Counts = dict[str, Count]

FILE = "summary.json"
"""In the report of a run."""
MOST_ONCE = 100
OTHER = "other"
"""Of the CPU time: starting, reading what is known, drawing graphs."""


class Entry(Struct, kw_only=True, omit_defaults=True):
    """What JSON says of a finding.

    runs, reproduced   how often what is left of it was run in fresh processes, and failed
    times   how often a campaign met it
    cause   the folder of the cause that it is a variant of, its own name where that is not known;   trigger  in words
    severity   of this case;   exposure, artificial   of its cause
    """

    id: str
    target: str
    release: str
    stage: str
    kind: str
    signature: str
    status: str
    nodes: Count
    elements: Count
    unfinished: bool
    message: str
    path: str
    runs: Count = 0
    reproduced: Count = 0
    times: Count = 0
    cause: str = ""
    trigger: str = ""
    severity: Severity
    exposure: float = 0.0
    artificial: bool = False

    @property
    def standing(self) -> Standing:
        """What it is ranked by."""
        features = features_of(self.id, self.message)
        return Standing(self.severity, self.exposure, self.artificial, self.status == "known", features)


class Once(Struct, frozen=True):
    """A failure that did not come back: how it showed, and in how many runs, the first one included."""

    index: int
    target: str
    release: str
    recipe: dict[str, Any]
    stage: str
    kind: str
    message: str
    failed: int
    runs: int


class Happened(Struct, frozen=True, kw_only=True):
    """What happened to a cause in a night of a state; of one that waits, what happened to it last.

    status   whether the cause is there after this night, whatever of it happened last
    since   the day on which a night found it, "" where it came with a corpus;   path   its folder
    releases   what each release did that a night asked about it
    """

    cause: str
    target: str
    what: What
    status: Status
    release: str
    title: str
    severity: Severity
    since: str
    path: str
    releases: dict[str, str] = {}


class Tonight(Struct, frozen=True, kw_only=True):
    """What a run with a state has to tell.

    number    of the night, from 1;   changes   what happened in it
    waiting   causes that an earlier night announced and that are open;   open, fixed   how many causes are, in all
    asked     known causes that were asked again;   unasked   those for which there was no time
    """

    id: str
    number: int
    changes: list[Happened]
    waiting: list[Happened]
    open: Count
    fixed: Count
    asked: Count
    unasked: Count


class Summary(Struct, kw_only=True):
    """What was counted so far.

    verdicts, rules   verdict words and documented rules -> cases
    abstained   operator type -> cases that no tier could decide because of it
    abstention_rates   the same as a share of the cases that hold it
    operators   operator type -> cases that hold it, of those that the target did not refuse
    insensitive     cases in which no damage could have shown, examined as they were: no other numbers helped
    unconfirmed  failures that fresh workers did not show again;   once   the first MOST_ONCE of these
    unexplained  indices with a failure of which nobody knows whether it is known: its effort was spent before
    recognized  failures that were known without a run, by trigger or place; of these `verified` were examined all the
                same, and `mistaken` turned out to be something else
    cpu_by      CPU seconds of the cases that did not fail, of known and of new failures, of handing over what is
                new, of everything else
    cpu_parts   the same by part of the work, "why: what" (`driftnet.util.spent`): what a part of it was done for, and
                what that was
    errors      of driftnet itself, and saved cases that were left out because they are not whole
    interrupted   somebody ended it before its time
    night       of a run with a state
    """

    cases: Count
    models: Count
    seed: int
    next_index: Count = 0
    wall_seconds: Seconds = 0.0
    cpu_seconds: Seconds = 0.0
    cpu_by: dict[str, Seconds] = {}
    cpu_parts: dict[str, Seconds] = {}
    verdicts: Counts = {}
    abstained: Counts = {}
    abstention_rates: dict[str, float] = {}
    operators: Counts = {}
    insensitive: Count = 0
    rules: Counts = {}
    unconfirmed: Count = 0
    once: list[Once] = []
    unexplained: list[int] = []
    recognized: Count = 0
    verified: Count = 0
    mistaken: Count = 0
    findings: list[Entry] = []
    errors: list[Failed] = []
    interrupted: bool = False
    night: Tonight | None = None

    @property
    def new(self) -> list[Entry]:
        """The findings that no saved case explained."""
        return [finding for finding in self.findings if finding.status == "new"]

    @property
    def known_causes(self) -> int:
        """How many causes the other findings have; of one there may be several cases."""
        return len({finding.cause or finding.id for finding in self.findings if finding.status != "new"})

    @property
    def exit_status(self) -> int:
        """2 after an error of driftnet itself, 1 with a new finding or an unexplained one, 3 with known ones only, else
        0. With a state it is 1 where a cause is new, back or worse, and 3 where one is open. 2 where nothing is new in
        a run that was interrupted: it was not all that was asked for."""
        if self.errors:
            return 2
        if any(change.what in RED for change in self.night.changes) if self.night else self.new or self.unexplained:
            return 1
        if self.interrupted:
            return 2
        return 3 if (self.night.open if self.night else self.findings) else 0

    @property
    def status_of_new(self) -> int:
        """The same where known ones do not count."""
        return 0 if self.exit_status == 3 else self.exit_status

    def as_json(self) -> dict[str, Any]:
        """The JSON object of `driftnet fuzz --json`."""
        sorted_ = {name: commonest(getattr(self, name)) for name in ("verdicts", "abstained", "operators", "rules")}
        rates = {op: round(n / max(n, self.operators.get(op, 0)), 3) for op, n in sorted_["abstained"].items()}
        rounded = {name: round(getattr(self, name), 1) for name in ("wall_seconds", "cpu_seconds")}
        cpu_by = {name: round(seconds, 2) for name, seconds in self.cpu_by.items()}
        parts = {name: round(seconds, 2) for name, seconds in sorted(self.cpu_parts.items())}
        told = structs.replace(self, **sorted_, **rounded, abstention_rates=rates, cpu_by=cpu_by, cpu_parts=parts)
        said: dict[str, Any] = msgspec.to_builtins(told)
        return said


@dataclass
class Tally:
    """A listener that counts on from what has been counted.

    run_cases   the folder of this run's own cases: those are new, but for what stood there `before` it
    merged      what is known now to share its cause with a known case -> the path of that
    """

    run_cases: Path
    summary: Summary
    wall_before: float = 0.0
    cpu_before: float = 0.0
    before: set[str] = field(default_factory=set)
    merged: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Take one event of a campaign into account."""
        summary = self.summary
        match event:
            case Examined():
                self._examined(event)
            case Found():
                self._spent("handed over", event.cpu)
                self._met(Path(event.path), event.release)
            case Learned():
                self._spent("new", event.cpu)
                self._learned(event)
            case Done():
                summary.models += 1
                for name, seconds in event.cpu.items():
                    summary.cpu_parts[name] = summary.cpu_parts.get(name, 0.0) + seconds
                summary.next_index = max(summary.next_index, event.index + 1)
            case Failed():
                summary.errors.append(event)
            case LeftOut():  # every shard says so
                error = Failed(-1, event.message, event.hint, "case")
                summary.errors += [] if error in summary.errors else [error]
            case Tick():
                summary.wall_seconds = self.wall_before + event.elapsed
            case Ended():
                summary.wall_seconds = self.wall_before + event.elapsed
                summary.cpu_seconds = self.cpu_before + event.cpu
                summary.interrupted = event.interrupted
                self.settle()
            case Begun():
                self.wall_before, self.cpu_before = summary.wall_seconds, summary.cpu_seconds
                self.before |= set(event.cases)

    def settle(self) -> None:
        """Put the findings in order, and tell what of the CPU time went into no case. What the workers of a shard that
        was killed have used nobody can ask for any more: in all it is as much at least as the cases tell."""
        self.summary.findings = ranked(self.summary.findings, lambda entry: entry.standing)
        told = sum(seconds for name, seconds in self.summary.cpu_by.items() if name != OTHER)
        self.summary.cpu_seconds = max(self.summary.cpu_seconds, told)
        self.summary.cpu_by[OTHER] = self.summary.cpu_seconds - told

    def _spent(self, name: str, seconds: float) -> None:
        self.summary.cpu_by[name] = self.summary.cpu_by.get(name, 0.0) + seconds

    def _examined(self, event: Examined) -> None:
        summary, verdict = self.summary, event.verdict
        summary.cases += 1
        _count(summary.verdicts, [verdict.word])
        _count(summary.abstained, verdict.abstained)
        _count(summary.rules, [verdict.rule] if verdict.rule else [])
        if verdict.word is not Word.REJECTS:
            _count(summary.operators, event.operators)
        summary.insensitive += event.insensitive
        summary.unconfirmed += not event.confirmed
        if (once := event.once) and len(summary.once) < MOST_ONCE:
            seen = (event.index, event.target, event.release, dict(event.recipe), once.stage, once.kind, once.message)
            summary.once.append(Once(*seen, failed=1, runs=1 + event.again))
        if event.unexplained and event.index not in summary.unexplained:
            summary.unexplained.append(event.index)
        summary.recognized += event.recognized
        summary.verified += event.verified
        summary.mistaken += event.mistaken
        self._spent("known" if event.known else "new" if verdict.failed else "clean", event.cpu)
        if event.known:
            self._met(Path(event.known), event.release)

    def _learned(self, event: Learned) -> None:
        """Tell anew of a finding: where it lies now, or with what it shares its cause, which was met so often more."""
        if event.known:
            self.merged[event.case] = event.known
        entry = next((finding for finding in self.summary.findings if finding.id == event.case), None)
        if entry is not None:
            self.summary.findings.remove(entry)
            self._met(Path(event.known or entry.path), entry.release, entry.times)

    def _met(self, path: Path, release: str, times: int = 1) -> None:
        findings = self.summary.findings
        entry = next((finding for finding in findings if finding.id == path.name), None)
        if entry is None:
            try:
                own = (folder for depth in ("*", "*/*") for folder in self.run_cases.glob(f"{depth}/{path.name}"))
                saved = corpus.load(next(own, path))  # it may have got a cause since, and the report another place
                ours = saved.id not in self.before and self.run_cases in (saved.path or path).parents
                status = "new" if ours else "known"
                findings.append(entry := described(saved, release or (*saved.seen, "")[0], status))
            except UserError:  # it was removed or damaged since; or it turned out to be known, when others had met it
                if known := self.merged.get(path.name):
                    self._met(Path(known), release, times)
                return
        entry.times += times


def write(summary: Summary, report: Path) -> None:
    """Write the FILE of a run, atomically. Raises UserError (kind "disk")."""
    replace_text(report / FILE, json_text(summary.as_json(), indent=1) + "\n")


def derived(report: Path, run_cases: Path) -> tuple[Summary, frozenset[int]]:
    """What the journal in `report` and the folder of its run's cases add up to, and the indices that are done.

    What was examined of an index that is not done does not count, because it will be examined again; what was found
    there does.
    """
    tally, done, told = Tally(run_cases, Summary(cases=0, models=0, seed=0)), set[int](), histories(report)
    every = [event for history in told for event in history]
    tally.merged = {event.case: event.known for event in every if isinstance(event, Learned) and event.known}
    for event in settled(told):
        if isinstance(event, Begun):
            tally.summary.seed = event.seed
        elif isinstance(event, Done):
            done.add(event.index)
        tally(event)
    unexplained = {event.index for event in every if isinstance(event, Examined) and event.unexplained}
    tally.summary.unexplained = sorted(unexplained - done)
    counted = {finding.id for finding in tally.summary.findings}
    for folder in corpus.folders([run_cases]) if run_cases.is_dir() else []:
        if folder.name not in tally.before | counted:  # its process died between saving it and telling of it
            tally(Found(-1, str(folder), ""))
    tally.settle()
    return tally.summary, frozenset(done)


def described(saved: corpus.SavedCase, release: str, status: str) -> Entry:
    """What a finding's entry in JSON says of `saved`."""
    cause = saved.cause or arrange.loose(saved)
    return Entry(
        id=saved.id,
        target=saved.target,
        release=release,
        stage=saved.stage,
        kind=saved.kind,
        signature=saved.coarse,
        status=status,
        nodes=nodes(saved.case),
        elements=elements(saved.case),
        unfinished=saved.unfinished,
        message=saved.verdict.message,
        path=str(saved.path),
        runs=saved.runs,
        reproduced=saved.reproduced,
        cause=cause.id,
        trigger=cause.of_case(saved.id).sentence,
        severity=severity_of(saved.verdict),
        exposure=cause.exposure,
        artificial=cause.artificial,
    )


def _count(counts: Counts, names: Iterable[str]) -> None:
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def commonest(counts: Counts) -> Counts:
    """The same, the largest count first."""
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
