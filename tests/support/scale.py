"""Where a run on a cluster stops getting faster: a simulation of up to 1,000 workers from what was measured of few.

    python -m tests.support.scale               simulates, from reports/bench/scale.json, and prints the table
    python -m tests.support.scale --before      as it was before: see `Ways`
    python -m tests.support.scale_measured      measures anew, 10 CPU minutes

Coordinator, scheduler and workers serve one thing after the other, for as long as was measured. What an index costs is
drawn from those that were examined, what fails from an urn (Pitman and Yor's) that was fitted to the order in which
causes were met: a cause is drawn as often as it was before, a new one the less the more there were. It knows no network
but for what its ends spend on messages, and no worker that is lost.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from driftnet.campaign import cluster
from driftnet.campaign.coordinator import AHEAD
from msgspec import Struct

from tests.support.paths import ROOT

FILE = ROOT / "reports" / "bench" / "scale.json"
WORKERS = (1, 2, 4, 16, 64, 256, 1000)
SECONDS = 300.0


class Line(Struct, frozen=True):
    """CPU seconds of something that is done: always, and for each worker that there is, or byte that is sent."""

    fixed: float
    each: float = 0.0

    def of(self, count: float) -> float:
        """For so many."""
        return self.fixed + self.each * count


class Costs(Struct, frozen=True):
    """What a message costs those that all messages pass.

    coordinator, scheduler   an index, by the number of workers;   found   more of it in the coordinator, for a finding
    told                     a worker's asking the scheduler for an archive, by its bytes
    bytes                    of the archive of a finding;   heartbeat   of the scheduler, for each of a worker's
    """

    coordinator: Line
    scheduler: Line
    found: float
    told: Line
    bytes: int
    heartbeat: float


def heartbeat_seconds(workers: int) -> float:
    """Between two heartbeats of a worker, of so many: as Dask has it (`distributed.scheduler.heartbeat_interval`)."""
    return 0.5 if workers <= 10 else 1.0 if workers < 50 else 2.0 if workers < 200 else workers / 200 + 1


class Load(Struct, frozen=True):
    """What is examined, from one corpus. CPU seconds of a worker.

    rows     of an index that was examined: what did not fail and what it took to begin, and how many causes failed
    known, new   a cause that fails in an index, known or not
    targets  of new causes
    discount, strength   of the urn of what is not known;   known_before   the share of failures that are
    setup, bytes   until a worker examines its first index; of all that it is sent for that
    cases    of an index
    """

    rows: list[tuple[float, int]]
    known: list[float]
    new: list[float]
    targets: list[str]
    discount: float
    strength: float
    known_before: float
    setup: float
    bytes: int
    cases: float


class Distributions(Struct, frozen=True):
    """All that was measured. alike: the share of pairs of causes of a target that may be one for all that the
    coordinator sees (`driftnet.campaign.cluster.may_be_one`); listed: what a list of the workers takes coordinator and
    scheduler, for each."""

    costs: Costs
    loads: dict[str, Load]
    alike: float
    listed: tuple[float, float]
    machine: dict[str, Any]


class Ways(NamedTuple):
    """What a run does that it might do otherwise.

    by_case   what was found counts unless it may be what others found; else unless they found anything of its target
    pack      findings that a worker may ask for at once;   lists   of all workers, made for each index
    """

    by_case: bool = True
    pack: int = cluster.PACK
    lists: int = 0


NOW, BEFORE = Ways(), Ways(by_case=False, pack=1, lists=2)


@dataclass
class Urn:
    """Causes, in the order in which they fail. Those that were known before are -1 here."""

    load: Load
    rng: random.Random
    met: list[int] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    times: Counter[int] = field(default_factory=Counter)

    def draw(self) -> int:
        """The next cause that fails."""
        load, rng = self.load, self.rng
        if rng.random() < load.known_before:
            return -1
        new = load.strength + load.discount * len(self.targets)
        if rng.random() * (len(self.met) + load.strength) < new:
            cause = len(self.targets)
            self.targets.append(rng.choice(load.targets))
        else:
            cause = rng.choice(self.met)
            while rng.random() < load.discount / self.times[cause]:  # by how often it was met, less the discount
                cause = rng.choice(self.met)
        self.met.append(cause)
        self.times[cause] += 1
        return cause


@dataclass(eq=False)
class Given:
    """An index: the time that it takes whatever is known, what fails; of what its order knows, and its worker knew."""

    seconds: float
    causes: list[int]
    worker: int = -1
    known: int = 0


@dataclass
class Simulated:
    """What became of a run. Seconds: of all workers, on what counted, on what did not; of coordinator and scheduler."""

    workers: int
    seconds: float
    indices: int = 0
    again: int = 0
    found: int = 0
    useful: float = 0.0
    wasted: float = 0.0
    coordinator: float = 0.0
    scheduler: float = 0.0

    @property
    def of_ideal(self) -> float:
        """The share of the workers' time that went into what counted."""
        return self.useful / (self.workers * self.seconds)


class Simulation:
    """One run: `at` a time, something that `then` happens."""

    def __init__(self, measured: Distributions, corpus: str, told: Simulated, ways: Ways, seed: int) -> None:
        costs, many = measured.costs, told.workers
        self.costs, self.load, self.alike, self.ways, self.told = (
            costs,
            measured.loads[corpus],
            measured.alike,
            ways,
            told,
        )
        listed = [ways.lists * each * many for each in measured.listed]
        self.coordinator, self.scheduler = costs.coordinator.of(many) + listed[0], costs.scheduler.of(many) + listed[1]
        self.left = 1 - costs.heartbeat * many / heartbeat_seconds(many)
        """The share of the scheduler's time that heartbeats leave."""
        self.rng = random.Random(seed)
        self.urn = Urn(self.load, self.rng)
        self.news: list[int] = []  # causes that were accepted, in order
        self.accepted: dict[int, int] = {}  # their places there
        self.free: dict[str, float] = {"coordinator": 0.0, "scheduler": 0.0}
        self.waiting: list[deque[Given]] = [deque() for _ in range(many)]
        self.busy, self.knows = [True] * many, [0] * many
        self.again: deque[Given] = deque()
        self.events: list[tuple[float, int, Any, Any]] = []
        self.count = itertools.count()

    def run(self) -> Simulated:
        """What becomes of it."""
        for worker in range(self.told.workers):
            ready = self.serve("scheduler", 0.0, self.costs.told.of(self.load.bytes)) + self.load.setup
            self.at(ready, self.idle, worker)
        for _ in range(AHEAD):
            for worker in range(self.told.workers):
                self.give(0.0, worker)
        while self.events and self.events[0][0] < self.told.seconds:
            time, _, then, what = heapq.heappop(self.events)
            then(time, what)
        return self.told

    def at(self, time: float, then: Any, what: Any) -> None:
        """Let it happen."""
        heapq.heappush(self.events, (time, next(self.count), then, what))

    def serve(self, who: str, time: float, seconds: float) -> float:
        """When one that serves all in turn is done with this, which comes now."""
        seconds /= self.left if who == "scheduler" else 1.0
        self.free[who] = max(self.free[who], time) + seconds
        setattr(
            self.told,
            who,
            getattr(self.told, who) + max(0.0, min(seconds, self.told.seconds - self.free[who] + seconds)),
        )
        return self.free[who]

    def give(self, time: float, worker: int) -> None:
        """The coordinator gives an index out, and the scheduler a worker to it. What both take is counted as it comes
        back."""
        given = self.again.popleft() if self.again else self.drawn()
        given.worker, given.known = worker, len(self.news)
        self.at(time, self.come, given)

    def drawn(self) -> Given:
        """The next index."""
        seconds, failing = self.rng.choice(self.load.rows)
        return Given(seconds, list(dict.fromkeys(self.urn.draw() for _ in range(failing))))

    def come(self, time: float, given: Given) -> None:
        """It has come to its worker."""
        self.waiting[given.worker].append(given)
        if not self.busy[given.worker]:
            self.idle(time, given.worker)

    def idle(self, time: float, worker: int) -> None:
        """A worker goes on with what waits; it asks for what it was not told yet."""
        self.busy[worker] = bool(self.waiting[worker])
        if not self.busy[worker]:
            return
        given = self.waiting[worker].popleft()
        begun = time
        while self.knows[worker] < given.known:
            full = self.knows[worker] % self.ways.pack == 0 and self.knows[worker] + self.ways.pack <= given.known
            many = self.ways.pack if full else 1
            begun = self.serve("scheduler", begun, self.costs.told.of(many * self.costs.bytes))
            self.knows[worker] += many
        given.known = self.knows[worker]
        new = [cause for cause in given.causes if cause >= 0 and self.accepted.get(cause, given.known) >= given.known]
        spent = given.seconds + sum(self.rng.choice(self.load.new) for _ in new)
        spent += sum(self.rng.choice(self.load.known) for _ in range(len(given.causes) - len(new)))
        self.at(begun + spent, self.done, (given, new, spent))

    def done(self, time: float, what: tuple[Given, list[int], float]) -> None:
        """A worker is done with an index, which goes to the coordinator by the scheduler."""
        came = self.serve("scheduler", time, self.scheduler)
        self.at(came, self.take, what)
        self.at(time, self.idle, what[0].worker)

    def take(self, time: float, what: tuple[Given, list[int], float]) -> None:
        """The coordinator has it, and takes it when its turn comes."""
        more = self.costs.found * len(what[1])
        self.at(self.serve("coordinator", time, self.coordinator + more), self.judge, what)

    def judge(self, time: float, what: tuple[Given, list[int], float]) -> None:
        """It counts, or is to be examined again; another is given out in its place."""
        given, new, spent = what
        if self.counts(given, new):
            for cause in new:
                self.accepted[cause] = len(self.news)
                self.news.append(cause)
            self.told.indices += 1
            self.told.useful += spent
            self.told.found += len(new)
        else:
            self.again.append(given)
            self.told.again += 1
            self.told.wasted += spent
        self.give(time, given.worker)

    def counts(self, given: Given, new: Sequence[int]) -> bool:
        """Whether it counts, by what was found that its worker did not know of."""
        untold, targets = self.news[given.known :], self.urn.targets
        alike = sum(targets[cause] == targets[other] for cause in new for other in untold)
        if not self.ways.by_case:
            return not alike
        return not {*new} & {*untold} and self.rng.random() < (1 - self.alike) ** alike


def simulated(
    measured: Distributions, corpus: str, workers: int, seconds: float = SECONDS, ways: Ways = NOW, seed: int = 0
) -> Simulated:
    """What becomes of a run of so many workers from a corpus."""
    return Simulation(measured, corpus, Simulated(workers, seconds), ways, seed).run()


def table(measured: Distributions, workers: Sequence[int], seconds: float, ways: Ways) -> Iterator[str]:
    """Rows of Markdown: what becomes of runs of so many workers."""
    columns = ("from", "workers", "cases a second", "time that counts", "examined again", "coordinator", "scheduler")
    yield f"| {' | '.join((*columns, 'causes'))} |"
    yield "|---" * (len(columns) + 1) + "|"
    for corpus, load in measured.loads.items():
        for many in workers:
            one = simulated(measured, corpus, many, seconds, ways)
            again = one.again / max(1, one.again + one.indices)
            shares = (one.of_ideal, again, one.coordinator / seconds, one.scheduler / seconds)
            told = " | ".join(f"{100 * share:.0f} %" for share in shares)
            yield f"| {corpus} | {many:,} | {one.indices * load.cases / seconds:,.0f} | {told} | {one.found:,} |"


def read(path: Path = FILE) -> Distributions:
    """What was measured."""
    return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Distributions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--before", action="store_true", help="as it was before this was first simulated")
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    given = parser.parse_args()
    for row in table(read(given.file), WORKERS, given.seconds, BEFORE if given.before else NOW):
        print(row, flush=True)
