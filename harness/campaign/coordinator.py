"""Campaign: many cases under a time budget, examined by shards (processes) and told as a stream of events.

The coordinator hands out case indices in order and forwards what the shards report to its listener. A shard has written
into the journal what it reports; so it may be killed at any moment, and nothing is lost but the time.
"""

import contextlib
import itertools
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Event as SharedEvent
from pathlib import Path

from driftnet.campaign.cluster import Cluster
from driftnet.campaign.events import Done, Ended, Event, Failed, Tick
from driftnet.campaign.plan import Plan
from driftnet.campaign.shard import begin, examine_index
from driftnet.run import health
from driftnet.run.runner import MEMORY
from driftnet.run.sandbox.worker import cpu_seconds_of, family
from driftnet.util.errors import UserError
from driftnet.util.files import sweep_scratch
from driftnet.util.machine import end_pools

Listener = Callable[[Event], None]

AHEAD = 2  # indices in hand for each shard, so that none waits for the coordinator
GRACE_SECONDS = 3.0  # after the deadline, for the reductions under way
STOPPING_SECONDS = 2.0  # after a signal, or that grace; then shards are killed
MOST_DEATHS = 3  # of shards, with no index examined between them
TICK_SECONDS = 0.25
SILENT_TICKS, LOOKS = 400, 5
"""Ticks, which do not count while this process is stopped itself, for which shards may do nothing; and how often they
are looked at meanwhile."""
IDLE_SECONDS = 0.05
"""CPU time, of shards and all that they started, that nothing is: to watch a target that sleeps takes more."""
SEMAPHORES = Path("/dev/shm")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(plan: Plan, listener: Listener, *, done: Container[int] = ()) -> None:
    """Run a campaign, on every index but those that are `done`.

    SIGINT, SIGTERM and SIGHUP end it in order: what is under way stops at its next oracle call, and what does not stop
    in time is killed. When a shard dies others take its place, and what was in hand is examined again. Raises UserError
    when nothing further could be saved, and when shards keep dying.
    """
    started, cpu_before = time.monotonic(), cpu_seconds()
    sweep_semaphores()
    context, noted = multiprocessing.get_context("spawn"), list[int]()
    try:
        with _signals_noted() as noted:
            campaign = _Campaign(plan, listener, _Work(plan, done), context.Event(), noted)
            while campaign.goes_on:
                with (
                    contextlib.suppress(BrokenProcessPool),
                    _said_as_it_began(),
                    _executor(plan, context, campaign.stop) as pool,
                ):
                    campaign.examine(pool)
    finally:
        for place in (MEMORY, tempfile.gettempdir()):  # a shard that was killed while it began has left its own
            sweep_scratch(Path(place))
        listener(Ended(time.monotonic() - started, cpu_seconds() - cpu_before, bool(noted)))


def _executor(plan: Plan, context: SpawnContext, stop: SharedEvent) -> Executor:
    """What the shards of a campaign run in."""
    return Cluster(plan) if plan.cluster else ProcessPoolExecutor(plan.workers, context, begin, (plan, stop))


@contextlib.contextmanager
def _said_as_it_began() -> Iterator[None]:
    """A pool whose thread cannot be started cannot be ended either: what is told is why it could not be started."""
    try:
        yield
    except RuntimeError as e:
        if "before it is started" in str(e) and e.__context__:
            raise e.__context__ from None
        raise


def sweep_semaphores(folder: Path = SEMAPHORES) -> None:
    """Remove the semaphores of processes that are gone, and name those of this one after it.

    multiprocessing removes them by a process of its own, which goes along where a whole process group is killed; and
    nobody can tell whose those with its own names are.
    """
    for path in folder.glob("sem.driftnet-*-*"):
        holder = path.name.split("-")[1]
        if not Path("/proc", holder).exists():
            path.unlink(missing_ok=True)
    # no public name of this setting; without it the names are as before
    getattr(multiprocessing.current_process(), "_config", {})["semprefix"] = f"/driftnet-{os.getpid()}"


class _Work:
    """The indices of a campaign, in order; those first that are to be examined again because a shard died."""

    def __init__(self, plan: Plan, done: Container[int]) -> None:
        self._left = math.inf if plan.cases is None else plan.cases
        self._most, self._ends = plan.cases_per_model, time.monotonic() + plan.seconds
        self._indices = (index for index in itertools.count() if index not in done)
        self._again: list[tuple[int, int, bool]] = []  # arguments of `examine_index`
        self._given: dict[Future[list[Event]], tuple[int, int, bool]] = {}
        self._come = set[Future[list[Event]]]()
        self._in_order = bool(plan.cluster) and not plan.steer

    def give(self, pool: Executor) -> Future[list[Event]] | None:
        """Let a shard examine the next index; None when `plan.cases` have been handed out."""
        if not self._again:
            if self._left <= 0:
                return None
            most = int(min(self._left, self._most))
            self._left -= most
            self._again.append((next(self._indices), most, True))
        # None is ever cancelled: a pool of CPython 3.11 whose shards die stumbles over those that were.
        future = pool.submit(examine_index, *self._again[0], ends=self._ends)
        self._given[future] = self._again.pop(0)
        return future

    @property
    def in_hand(self) -> int:
        """How many indices are under way, or come and not taken."""
        return len(self._given)

    @property
    def again(self) -> bool:
        """Whether an index is to be examined again: all that is in hand may have come, and wait for it."""
        return bool(self._again)

    def come(self, futures: Iterable[Future[list[Event]]] = (), *, over: bool = False) -> Iterator[Future[list[Event]]]:
        """Of these, which are done, and of those before, what may be taken now, in the order of the indices: all. Where
        a run on a cluster is to be repeatable only what is of the first index that is left, then of the next: what one
        process would know of. over: nobody examines any more what is left, so all."""
        self._come.update(futures)
        while self._come:
            future = min(self._come, key=self._given.__getitem__)
            if self._in_order and not over and self._given[future] > min((*self._given.values(), *self._again)):
                return
            self._come.remove(future)
            yield future

    def take(self, future: Future[list[Event]], pool: Executor) -> list[Event]:
        """What came of it. Raises BrokenProcessPool when a shard has died."""
        events = pool.accepted(future) if isinstance(pool, Cluster) else future.result()
        given = self._given.pop(future)
        if events is None:
            self._again.append(given)
        return events or []

    def take_back(self) -> None:
        """Hand out again what is in hand; what a shard died of may be among it."""
        self._again += [(index, most, False) for index, most, _ in self._given.values()]
        self._given.clear()
        self._come.clear()


@dataclass
class _Campaign:
    """noted   signals that have come;   deaths   of shards since an index was last done"""

    plan: Plan
    listener: Listener
    work: _Work
    stop: SharedEvent
    noted: list[int]
    started: float = field(default_factory=time.monotonic)
    deaths: int = 0
    goes_on: bool = True

    def examine(self, pool: Executor) -> None:
        """Drive the shards of `pool` until there is no more work, or time. Raises BrokenProcessPool when one dies, and
        UserError when that goes on or when nothing further could be saved."""
        pending, self.goes_on, finished = set[Future[list[Event]]](), False, False
        try:
            try:
                self._drive(pool, pending)
            finally:
                self._take_left(pool)
            finished = all(future.done() for future in pending)
        except BrokenProcessPool as e:
            self.deaths += 1
            self.work.take_back()
            if self.deaths == MOST_DEATHS:
                health.check(self.plan.report)
                raise UserError(
                    f"a process of driftnet itself died, {MOST_DEATHS} times in a row; all that was found is saved",
                    hint="for want of memory? --workers takes a smaller number; --resume goes on from here",
                    kind="internal",
                ) from e
            self.goes_on = not self.stop.is_set()
            raise
        finally:
            # The pool waits for those that are left: one that hears no SIGTERM may wait for a lock of the dead, and one
            # that is only starting would tell that what it was to share is gone.
            if not finished:
                end_pools()

    def _drive(self, pool: Executor, pending: set[Future[list[Event]]]) -> None:
        end, silence = self.plan.seconds + GRACE_SECONDS, _Silence()
        while True:
            elapsed = time.monotonic() - self.started
            if (self.noted or elapsed >= end) and not self.stop.is_set():
                self.stop.set()
                end = elapsed
            over = self.stop.is_set() or elapsed >= self.plan.seconds
            with _signals_held():  # this may start a shard
                most = AHEAD * (pool.workers if isinstance(pool, Cluster) else self.plan.workers)
                while not over and (self.work.in_hand < most or self.work.again) and (future := self.work.give(pool)):
                    pending.add(future)
            if not pending or (self.stop.is_set() and elapsed >= end + STOPPING_SECONDS):
                return
            ready, _ = wait(pending, TICK_SECONDS, FIRST_COMPLETED)
            for future in self.work.come(ready):
                for event in self.work.take(future, pool):
                    self._hear(event)
            pending -= ready
            if silence.lasts(heard=bool(ready) or isinstance(pool, Cluster)):  # its scheduler watches over workers
                raise health.lacking(["the processes of this run do nothing any more"])
            self.listener(Tick(elapsed, self.plan.seconds - elapsed))

    def _take_left(self, pool: Executor) -> None:
        """However it ends, take what has come from a cluster: it is on no disk of this machine before."""
        failed = list[UserError]()
        for future in self.work.come(over=True) if isinstance(pool, Cluster) else ():
            try:
                for event in self.work.take(future, pool):
                    self._hear(event)
            except UserError as e:
                failed.append(e)
        if failed:
            raise failed[0]

    def _hear(self, event: Event) -> None:
        self.listener(event)
        if isinstance(event, Done):
            self.deaths = 0
        if isinstance(event, Failed) and event.kind is not None:
            raise UserError(event.message, hint=event.hint or "", kind=event.kind)


class _Silence:
    """Shards that do nothing: stopped, or waiting for what a machine without memory never gives them."""

    def __init__(self) -> None:
        self._ticks, self._used = 0, 0.0

    def lasts(self, *, heard: bool) -> bool:
        """Whether that has gone on for too long, at one more tick. heard: whether a shard has said something."""
        self._ticks = 0 if heard else self._ticks + 1
        if self._ticks % (SILENT_TICKS // LOOKS) == 0:
            shards = [shard.pid for shard in multiprocessing.active_children() if shard.pid]
            used = sum(cpu_seconds_of(pid) for shard in shards for pid in family(shard))
            if abs(used - self._used) >= IDLE_SECONDS:  # a process that ended takes its time along
                self._ticks = 0
            self._used = used
        return self._ticks >= SILENT_TICKS


def cpu_seconds() -> float:
    """CPU seconds of this process and of every child it has reaped."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """While the block runs, SIGNALS are noted in the list that is yielded, and do nothing else.

    A handler may interrupt the holder of any lock: one that took a lock itself, a shared event's say, could hang.
    """
    noted: list[int] = []
    before = {s: signal.signal(s, lambda number, frame: noted.append(number)) for s in SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """While the block runs, SIGNALS wait; in processes that it starts until driftnet.campaign.shard.begin.

    Ctrl-C in a terminal reaches every process, and would end a shard that is still importing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
