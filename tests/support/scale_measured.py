"""What the simulation of a large cluster is made of (`tests.support.scale`), measured on this machine.

    python -m tests.support.scale_measured EMPTY SAVED... [--out FILE]

EMPTY and each SAVED are reports of runs of one worker on some cases, `driftnet fuzz --workers 1 --cases 600`, from an
empty corpus and from the committed one: what an index costs, and what fails, stands in their journals. What messages
cost coordinator and scheduler is measured with workers that examine nothing, but tell what stands there.
--scheduler, and --workers with ADDRESS REPORT MANY EVERY, are other processes of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from driftnet import api
from driftnet.campaign import cluster
from driftnet.campaign.coordinator import AHEAD
from driftnet.campaign.events import Done, Event, Examined, Found
from driftnet.campaign.journal import histories
from driftnet.campaign.plan import Plan
from driftnet.campaign.summary import Summary
from driftnet.findings.corpus import COMMITTED
from driftnet.findings.issues import issues as known_issues
from driftnet.run.sandbox.worker import cpu_seconds_of
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.files import json_text
from driftnet.util.machine import description
from msgspec import structs

from tests.support import scale
from tests.support.paths import ROOT

MANY = (4, 40)
INDICES = 100
IDLE_SECONDS = 6.0
PAIRS = 3000
EVERY = 10
"""Of the indices, one in so many tells of a finding, where that is measured."""


@dataclass
class Examinations:
    """What was examined in a run of one worker. CPU seconds.

    rows     index by index: of what did not fail and of drawing it, and how many causes failed in it
    known, new   of a cause in an index, by whether it was known;   targets   of the new ones
    causes   that failed, in order;   cases   of an index
    """

    rows: list[tuple[float, int]] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    cases: float = 0.0


def examinations(report: Path, corpus: Path) -> Examinations:
    """What the journal of a run from this corpus says."""
    summary = json.loads((report / "summary.json").read_text(encoding="utf-8"))
    told, cases = Examinations(), 0
    for events in by_index(report):
        clean, failing, found = 0.0, defaultdict[str, float](float), dict[str, str]()
        for event, after in zip(events, [*events[1:], None]):
            cases += isinstance(event, Examined)
            if isinstance(event, Examined) and isinstance(after, Found):
                found[cause := Path(after.path).parent.name] = event.target
                failing[cause] += event.cpu + after.cpu
            elif isinstance(event, Examined) and event.known:
                failing[Path(event.known).parent.name] += event.cpu
            elif isinstance(event, Examined):
                clean += event.cpu
        for cause, seconds in failing.items():
            (told.new if cause in found else told.known).append(seconds)
        told.targets += found.values()
        told.causes += failing
        told.rows.append((clean, len(failing)))
    told.cases = cases / len(told.rows)
    spent = sum(seconds for seconds, _ in told.rows) + sum(told.known) + sum(told.new)
    rest = max(0.0, summary["cpu_seconds"] - spent - seconds_to_begin(corpus)) / len(told.rows)
    told.rows = [(seconds + rest, failing) for seconds, failing in told.rows]
    return told


def by_index(report: Path) -> Iterator[list[Event]]:
    """The events of each index that was done."""
    for history in histories(report):
        events: list[Event] = []
        for event in history:
            events.append(event)
            if isinstance(event, Done):
                yield events
                events = []


def loads(empty: Path, saved: Sequence[Path], none: Path) -> dict[str, scale.Load]:
    """What is examined from no corpus and from the committed one. What a new cause costs, and of which target it is, is
    seen best from none, the rest where many cases were examined for their time."""
    first, then = examinations(empty, none), Examinations()
    for one in (examinations(report, COMMITTED) for report in saved):
        then.rows += one.rows
        then.known += one.known
        then.new += one.new
        then.targets += one.targets
        then.causes += one.causes
        then.cases = one.cases
    discount, strength = fitted(then.causes)
    unknown = (len(then.new) + 0.5) / len(then.causes)
    new, targets = first.new + then.new, first.targets + then.targets
    many = {
        "no corpus": (0.0, seconds_to_begin(none), archive_bytes(none)),
        "the committed corpus": (1 - unknown, seconds_to_begin(COMMITTED), archive_bytes(COMMITTED)),
    }
    every = (then.rows, then.known, new, targets, discount, strength)
    return {name: scale.Load(*every, *own, then.cases) for name, own in many.items()}


def archive_bytes(corpus: Path) -> int:
    """What a worker is sent of a corpus."""
    return len(cluster._archive([(corpus, cluster.CORPUS)]))


def fitted(order: Sequence[str]) -> tuple[float, float]:
    """Discount and strength of the urn that makes this order of causes most likely."""
    grid = [(float(d), float(s)) for d in np.arange(0.0, 0.95, 0.05) for s in np.geomspace(0.5, 2000, 40)]
    return max(grid, key=lambda pair: likelihood(order, *pair))


def likelihood(order: Sequence[str], discount: float, strength: float) -> float:
    """The logarithm of how likely the urn is to give causes in this order."""
    times, found = defaultdict[str, int](int), 0.0
    for n, cause in enumerate(order):
        weight = times[cause] - discount if times[cause] else strength + discount * len(times)
        found += np.log(weight / (n + strength))
        times[cause] += 1
    return float(found)


def seconds_to_begin(corpus: Path) -> float:
    """CPU seconds until a run of one worker has examined its first case."""
    with tempfile.TemporaryDirectory() as place:
        return api.fuzz(Plan(report=Path(place), corpus=corpus, cases=1)).cpu_seconds


def costs(report: Path, findings: Path) -> scale.Costs:
    """What messages cost the coordinator and the scheduler, with workers that tell what stands in a run's journal, and
    now and then of a finding of another run."""
    rows = []
    for many in MANY:
        for every in (0, EVERY):
            with tempfile.TemporaryDirectory() as place:
                rows.append(messages(report, findings, Path(place) / "run", many, every))
            print(many, every, *rows[-1], flush=True)
    plain, finding = rows[::2], rows[1::2]
    lines = [np.polyfit(MANY, [row[k] for row in plain], 1) for k in (0, 1)]
    each = [scale.Line(float(fixed), max(0.0, float(slope))) for slope, fixed in lines]
    found = EVERY * statistics.median(more[0] - less[0] for less, more in zip(plain, finding))
    heartbeat = plain[-1][2] * scale.heartbeat_seconds(MANY[-1]) / MANY[-1]
    return scale.Costs(*each, max(0.0, found), told(), len(archived(findings)), heartbeat)


def messages(report: Path, findings: Path, run: Path, workers: int, every: int) -> tuple[float, ...]:
    """CPU seconds of the coordinator and of the scheduler an index, where one `every` so many tells of a finding; and
    of the scheduler a second, when nothing happens."""
    begun = AHEAD * workers  # that many are given out before the first comes, and that many come when none is given out
    indices = 2 * begun + INDICES
    told = (report, findings, workers, every)
    with part("--scheduler") as (scheduler, address), part("--workers", address, *told):
        cases = indices * Plan(report=run).cases_per_model
        plan = Plan(report=run, corpus=run / "none", cases=cases, cluster=address)
        before = cpu_seconds_of(scheduler)
        time.sleep(IDLE_SECONDS)
        rate = (cpu_seconds_of(scheduler) - before) / IDLE_SECONDS
        spent: list[tuple[float, float]] = []

        def hear(summary: Summary, event: Event) -> None:
            if isinstance(event, Done):
                spent.append((time.process_time(), cpu_seconds_of(scheduler) - rate * time.monotonic()))

        summary = api.fuzz(plan, listeners=[hear])
        assert len(spent) == indices, f"{len(spent)} indices were told of, {summary.errors}"
        own, its = ((last - first) / INDICES for first, last in zip(spent[begun - 1], spent[-begun - 1]))
        return own, its, rate


def listed(report: Path, findings: Path) -> tuple[float, float]:
    """CPU seconds that a list of workers takes coordinator and scheduler, for each."""
    from distributed import Client

    many, times = MANY[-1], 50
    told = (report, findings, many, 0)
    with (
        part("--scheduler") as (scheduler, address),
        part("--workers", address, *told),
        Client(address, set_as_default=False) as client,
    ):
        own, its = time.process_time(), cpu_seconds_of(scheduler)
        for _ in range(times):
            client.scheduler_info(n_workers=-1)
        both = time.process_time() - own, cpu_seconds_of(scheduler) - its
    return both[0] / times / many, both[1] / times / many


def alike() -> float:
    """The share of pairs of causes of a target that may be one: of the default target with most of them."""
    issues = {one.saved.cause.id: one for one in known_issues(COMMITTED) if one.saved.cause}
    of = [[one for one in issues.values() if one.saved.target == target] for target in DEFAULT_TARGETS]
    pairs = [*itertools.combinations(max(of, key=len), 2)]
    return sum(cluster.may_be_one(*pair) for pair in random.Random(0).sample(pairs, PAIRS)) / PAIRS


def told() -> scale.Line:
    """CPU seconds of the scheduler to tell a worker of an archive, by its bytes."""
    from distributed import Client

    sizes, spent = (1_000, 1_000_000, 4_000_000), []
    with part("--scheduler") as (scheduler, address), Client(address, set_as_default=False) as client:
        for k, size in enumerate(sizes):
            kept = cluster._variable("measured", k, client)
            kept.set("x" * size)
            before = cpu_seconds_of(scheduler)
            times = 400 if k == 0 else 40
            for _ in range(times):
                kept.get()
            spent.append((cpu_seconds_of(scheduler) - before) / times)
    each = (spent[-1] - spent[0]) / (sizes[-1] - sizes[0])
    return scale.Line(spent[0], each)


@contextlib.contextmanager
def part(*words: object) -> Iterator[tuple[int, str]]:
    """One of the other processes, while the block runs: its id, and what it says as it is ready."""
    command = [sys.executable, "-m", "tests.support.scale_measured", *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.stdin.close()


async def schedule() -> None:
    """A scheduler in a process of its own, until its standard input ends."""
    from distributed import Scheduler

    async with Scheduler(dashboard=False, port=0, host="127.0.0.1") as scheduler:
        print(scheduler.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def work(address: str, report: Path, findings: Path, many: int, every: int) -> None:
    """Workers in one process, until its standard input ends: they examine nothing, and tell of an index what stands in
    a journal of another."""
    from distributed import Worker

    events, archive, known = [*by_index(report)], archived(findings), defaultdict[str, int](int)

    def examine(order: cluster.Order) -> cluster.Sent:
        own = cluster.own_address()
        while known[own] < order.news:
            cluster._variable(order.run, known[own]).get()
            known[own] += 1
        said = events[order.index % len(events)]
        told: list[Event] = [
            structs.replace(one, index=order.index) for one in said if isinstance(one, Examined | Done)
        ]
        told = [structs.replace(one, known="") if isinstance(one, Examined) else one for one in told]
        sent, found = {}, f"target{order.index}/cause/test_{order.index}"  # its own target, so that it always counts
        if every and order.index % every == 0:
            sent = {found: archive}
            told.insert(0, Found(order.index, f"/far/run/cases/{found}", "1"))
        return cluster.Sent(order, "/far", known[own], told, sent)

    cluster.examine = examine
    async with contextlib.AsyncExitStack() as stack:
        there = [Worker(address, nthreads=1, dashboard=False) for _ in range(many)]
        await asyncio.gather(*(stack.enter_async_context(one) for one in there))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def archived(report: Path) -> str:
    """A finding as it is sent, of usual size."""
    found = [path.parent for path in (report / "cases").glob("*/*/test_*/case.json")]
    texts = sorted((cluster._archive([(path, f"{path.parent.name}/{path.name}")]) for path in found), key=len)
    return texts[len(texts) // 2]


def main() -> None:
    """Measure, or be one of the other processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--scheduler", action="store_true")
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--out", type=Path, default=scale.FILE)
    given = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if given.scheduler:
        asyncio.run(schedule())
    elif given.workers:
        address, report, findings, many, every = given.words
        asyncio.run(work(address, Path(report), Path(findings), int(many), int(every)))
    else:
        empty, *saved = map(Path, given.words)
        with tempfile.TemporaryDirectory() as none:
            told = costs(saved[0], empty), loads(empty, saved, Path(none))
        measured = scale.Distributions(*told, alike(), listed(saved[0], empty), description())
        given.out.write_text(json_text(msgspec.to_builtins(measured), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
