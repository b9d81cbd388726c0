"""Campaign: many cases under a time budget, examined by shards (processes) and told as a stream of events.

The coordinator hands out case indices in order and forwards what the shards report to its listener.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from driftnet.campaign.events import Ended, Event, Failed, Tick
from driftnet.campaign.shard import Plan, begin, examine_index
from driftnet.util.errors import UserError

Listener = Callable[[Event], None]

AHEAD = 2  # indices in hand for each shard, so that none waits for the coordinator
GRACE_SECONDS = 15.0  # after the deadline, for the reductions under way
TICK_SECONDS = 0.25


def run(plan: Plan, listener: Listener, *, first_index: int = 0) -> None:
    """Run a campaign.

    SIGINT and SIGTERM end it in order: what is under way stops at its next oracle call, and all that was found is kept.
    Raises UserError when nothing further could be saved, and when a shard dies.
    """
    started, cpu_before = time.monotonic(), cpu_seconds()
    try:
        _run(plan, listener, first_index)
    finally:
        listener(Ended(time.monotonic() - started, cpu_seconds() - cpu_before))


def _run(plan: Plan, listener: Listener, first_index: int) -> None:
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()

    def elapsed() -> float:
        return time.monotonic() - started

    with _signals_noted() as noted, ProcessPoolExecutor(plan.workers, context, begin, (plan, stop)) as pool:
        pending: set[Future[list[Event]]] = set()
        work = _work(plan, first_index)
        try:
            while True:
                if noted:
                    stop.set()
                over = stop.is_set() or elapsed() >= plan.seconds
                with _signals_held():  # this may start a shard
                    for index, most in itertools.islice(work, 0 if over else plan.workers * AHEAD - len(pending)):
                        pending.add(pool.submit(examine_index, index, most))
                if over:
                    pending -= {future for future in pending if future.cancel()}
                if not pending:
                    break
                if elapsed() >= plan.seconds + GRACE_SECONDS:
                    stop.set()
                done, pending = wait(pending, TICK_SECONDS, FIRST_COMPLETED)
                for event in itertools.chain.from_iterable(future.result() for future in done):
                    listener(event)
                    _raise_if_hopeless(event)
                listener(Tick(elapsed(), plan.seconds - elapsed()))
        except BrokenProcessPool as e:
            raise UserError(
                "a process of driftnet itself died; everything found so far is saved",
                hint="was it killed for want of memory? --workers takes a smaller number; --resume goes on from here",
                kind="internal",
            ) from e
        finally:
            stop.set()
            for future in pending:
                future.cancel()


def cpu_seconds() -> float:
    """CPU seconds of this process and of every child it has reaped."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _work(plan: Plan, first_index: int) -> Iterator[tuple[int, int]]:
    """(index, how many of its cases), in order, until `plan.cases` are handed out."""
    left = math.inf if plan.cases is None else plan.cases
    for index in itertools.count(first_index):
        if left <= 0:
            return
        most = int(min(left, plan.cases_per_model))
        left -= most
        yield index, most


def _raise_if_hopeless(event: Event) -> None:
    if isinstance(event, Failed) and event.kind is not None:
        raise UserError(event.message, hint=event.hint or "", kind=event.kind)


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """While the block runs, SIGINT and SIGTERM are noted in the list that is yielded, and do nothing else.

    A handler may interrupt the holder of any lock: one that took a lock itself, a shared event's say, could hang.
    """
    noted: list[int] = []
    before = {s: signal.signal(s, lambda number, frame: noted.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """While the block runs, SIGINT and SIGTERM wait; in processes that it starts until driftnet.campaign.shard.begin.

    Ctrl-C in a terminal reaches every process, and would end a shard that is still importing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
