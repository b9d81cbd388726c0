"""Cluster: a campaign on the workers of a Dask scheduler, on other machines if need be.

Each worker keeps one shard, in a process and a folder of its own. They share no disk: what is known is sent to them,
and what they find is sent back and stands in the run's own folder only. Two that work at the same time may find the
same. So what a shard found without knowing of all that stands there counts for nothing where it may be the same, and
where the run is to be repeatable: its index is examined again.
"""

from __future__ import annotations

import base64
import contextlib
import io
import math
import multiprocessing
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftnet.campaign import coverage
from driftnet.campaign.events import Event, Examined, Failed, Found
from driftnet.campaign.gaps import Part
from driftnet.campaign.journal import Journal
from driftnet.campaign.plan import Plan
from driftnet.campaign.shard import begin, examine_index
from driftnet.campaign.state import CASES
from driftnet.causes import record
from driftnet.findings import corpus
from driftnet.findings.issues import KnownIssue, KnownIssues
from driftnet.findings.pattern import family
from driftnet.learning import mending
from driftnet.util.errors import UserError
from driftnet.util.files import Scratch, make_folder
from msgspec import structs

if TYPE_CHECKING:
    from distributed import Client

RUN, CORPUS, STATE = "run", "corpus", "state"
CONNECT_SECONDS = 30
FETCH_SECONDS = 60
SYNC_SECONDS = 0.25
"""Between two waits for the disk, which take milliseconds each: one process writes what all workers have examined."""
PACK = 8
"""Archives that a worker asks for at once where it lags behind: each time it asks takes the scheduler .3 ms."""
LIST_SECONDS = 5.0
"""For which a list of workers counts: to make it takes the scheduler and this process 60 µs a worker."""
MOST_DEATHS = 3
"""Shards of one worker that may die of one index; the second and third judge in processes apart."""


@dataclass(frozen=True)
class Order:
    """What a worker has to know to examine an index.

    run    of this coordinator;   news   archives sent so far, the first with all that was known when it began
    gone   cases that a shard found and that count for nothing;   workers   addresses of all that there are now, sorted
    """

    run: str
    plan: Plan
    news: int
    gone: frozenset[str]
    index: int
    most: int
    trusted: bool
    seconds: float
    workers: tuple[str, ...] = ()

    @property
    def part(self) -> Part:
        """Of what was never asked, what this worker seeks: by its place among all of them."""
        own = own_address()
        return (self.workers.index(own), len(self.workers)) if own in self.workers else (0, 1)


@dataclass(frozen=True)
class Sent:
    """What a worker says of an order.

    root    of the paths in its events;   known   archives that it knew
    found   case, by its path in the folder of cases -> its archive, with its cause
    missed  what it found to be known the long way (`driftnet.learning.mending`)
    """

    order: Order
    root: str
    known: int
    events: list[Event]
    found: dict[str, str]
    missed: str = ""


class Cluster(Executor):
    """Workers of a Dask scheduler as an executor for the coordinator: its own journal has what they tell."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._run = plan, uuid.uuid4().hex
        self._client = _client(plan.cluster)
        self._executor = self._client.get_executor(pure=False)
        self._journal = Journal(plan.report, SYNC_SECONDS)
        self._news: list[str] = []  # the case of each, by its path in the folder of cases; the first is of all before
        self._pack: list[str] = []  # the last archives, of which the pack is not full yet
        self._issues: dict[str, KnownIssue] = {}  # of these
        self._gone: set[str] = set()
        self._there: tuple[float, tuple[str, ...]] = (-math.inf, ())  # since when; addresses
        asked = [(plan.state / coverage.FILE, f"{STATE}/{coverage.FILE}")] if plan.state else []
        self._send("", _archive([*_places(plan).items(), *asked]))

    @property
    def workers(self) -> int:
        """How many there are now; at least one may come."""
        return max(1, len(self._addresses()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let some worker do what `examine_index` does. Of a worker that is lost the scheduler gives it to another."""
        index, most, trusted = args
        left = kwargs["ends"] - time.monotonic()
        news, gone, there = len(self._news), frozenset(self._gone), self._addresses()
        order = Order(self._run, self._plan, news, gone, index, most, trusted, left, there)
        future: Future[Any] = self._executor.submit(examine, order)
        return future

    def accepted(self, future: Future[Any]) -> list[Event] | None:
        """The events that a worker tells, in the journal, and what it found, in the folder of the run; None where that
        counts for nothing, and the index is to be examined again. Raises UserError where the scheduler gave it up."""
        try:
            sent: Sent = future.result()
        except Exception as e:
            hint = "see the logs of its workers; what was found is saved, --resume goes on from here"
            raise UserError(f"the cluster gave an index up: {type(e).__name__}: {e}", hint=hint, kind="cluster") from e
        events = [self._here(event, sent.root) for event in sent.events]
        untold = self._may_be_known(sent)
        known = {Path(e.known) for e in events if isinstance(e, Examined) and e.known}
        own = {self._plan.found / name for name in sent.found}  # what one recipe finds others of its model may meet
        lost = not all(path.exists() for path in known - own)
        if untold or lost:
            self._gone.update(name for name in sent.found if not (self._plan.found / name).exists())
            return None
        for data in sent.found.values():
            _unpack(data, self._plan.found)
        self._gone.difference_update(sent.found)  # what counted for nothing has been found again
        mending.add(self._plan.report, sent.missed)
        for event in events:
            self._journal.write(event)
        for name in sent.found:
            folder = self._plan.found / name
            self._send(name, _archive([(folder, f"{RUN}/{self._plan.found.name}/{name}")]))
        return events

    def _may_be_known(self, sent: Sent) -> bool:
        """Whether what was found may be what was found before, of which its worker did not know."""
        targets = {_target(name) for name in sent.found}
        untold = [name for name in self._news[sent.known :] if _target(name) in targets]
        if not (untold and self._plan.steer):
            return bool(untold)
        with tempfile.TemporaryDirectory() as place:
            for data in sent.found.values():
                _unpack(data, Path(place))
            try:
                found = [KnownIssue(corpus.load(Path(place, name))) for name in sent.found]
                return any(may_be_one(one, self._issue(name)) for one in found for name in untold)
            except UserError:  # not whole: nobody can tell
                return True

    def _issue(self, name: str) -> KnownIssue:
        if name not in self._issues:
            self._issues[name] = KnownIssue(corpus.load(self._plan.found / name))
        return self._issues[name]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the shards of this run, and leave the cluster as it was."""
        with contextlib.suppress(Exception):  # a scheduler that is gone has nothing left to be ended
            self._executor.shutdown(wait=False)
            self._client.run(end, self._run, on_error="ignore")
            for number in range(len(self._news)):
                _variable(self._run, number, self._client).delete()
            for number in range(1, len(self._news) - PACK + 1, PACK):
                _variable(self._run, number, self._client, PACK).delete()
        self._client.close()

    def _addresses(self) -> tuple[str, ...]:
        """Of all workers that there are, or were a little ago, sorted."""
        if time.monotonic() >= self._there[0] + LIST_SECONDS:
            there = self._client.scheduler_info(n_workers=-1)["workers"]
            self._there = time.monotonic(), tuple(sorted(there))
        return self._there[1]

    def _send(self, name: str, data: str) -> None:
        number = len(self._news)
        _variable(self._run, number, self._client).set(data)
        self._pack += [data] if number else ()  # the first is large, and whoever comes asks for it
        if len(self._pack) == PACK:
            _variable(self._run, number + 1 - PACK, self._client, PACK).set("\n".join(self._pack))
            self._pack.clear()
        self._news.append(name)

    def _here(self, event: Event, root: str) -> Event:
        """`event` with the paths of this machine."""
        if isinstance(event, Examined) and event.known:
            return structs.replace(event, known=self._path(event.known, Path(root)))
        return structs.replace(event, path=self._path(event.path, Path(root))) if isinstance(event, Found) else event

    def _path(self, path: str, root: Path) -> str:
        places = [(here, root / there) for here, there in _places(self._plan).items()]
        here = [here / Path(path).relative_to(there) for here, there in places if Path(path).is_relative_to(there)]
        return str(next((there for there in reversed(here) if there.exists()), here[-1]))


def may_be_one(one: KnownIssue, other: KnownIssue) -> bool:
    """Whether two findings may have one cause: they show alike, as they crash or say the same words, or at operators of
    one family, which a trigger names too."""
    if one.saved.target != other.saved.target or other not in KnownIssues([other]).like(one.symptom):
        return False
    return one.symptom.anywhere or not _operators(one).isdisjoint(_operators(other))


def _operators(issue: KnownIssue) -> set[str]:
    named = (cause.trigger.operators.values() for cause in issue.causes if cause.trigger)
    return {family(op) for op in {*issue.op_types}.union(*(ops for each in named for ops in each))}


def _target(name: str) -> str:
    """That of a case, by its path in a folder of cases."""
    return name.split("/")[0]


@dataclass
class _Here:
    """What a worker keeps for one run."""

    run: str
    scratch: Scratch = field(default_factory=Scratch)
    known: int = 0
    pool: ProcessPoolExecutor | None = None
    ended: bool = False

    def examined(self, order: Order) -> Sent:
        """What becomes of the index of an order."""
        root = self.scratch.path
        found = root / RUN / order.plan.found.name
        while self.known < order.news:
            many = PACK if self.known % PACK == 1 and self.known + PACK <= order.news else 1
            for data in _variable(self.run, self.known, of=many).get(timeout=FETCH_SECONDS).split("\n"):
                _unpack(data, root)
            self.known += many
        for name in order.gone if self.known == order.news else ():  # an older one knows of less than is here
            corpus.remove(found / name)
        before, known = _names(found), self.known
        events = self._events(order, _plan(order.plan, root))
        new = sorted(_names(found) - before)
        archives = {name: _archive([(found / name, name)]) for name in new}
        return Sent(order, str(root), known, events, archives, mending.taken(root / RUN))

    def _events(self, order: Order, plan: Plan) -> list[Event]:
        for death in range(MOST_DEATHS):
            if self.pool is None:
                self.pool = _shard(plan)
            try:
                ends = time.monotonic() + order.seconds
                trusted = order.trusted and not death
                given = order.index, order.most, trusted, ends, order.part
                return self.pool.submit(examine_index, *given).result()
            except BrokenProcessPool:
                self.pool = None
                if self.ended:
                    return []
        said = f"a process of driftnet itself died, {MOST_DEATHS} times in a row; all that was found is saved"
        hint = "for want of memory on the cluster's workers? --resume goes on from here"
        return [Failed(order.index, said, hint, "internal")]

    def end(self) -> None:
        """End the shard, whatever it does, and remove its folder."""
        self.ended = True
        for process in [*(getattr(self.pool, "_processes", None) or {}).values()]:
            process.kill()
        self.scratch.close()


_here: _Here | None = None
_TURN = threading.Lock()


def examine(order: Order) -> Sent:
    """On a worker: examine an index. A worker with several threads does so one by one: a shard takes a whole core."""
    global _here
    with _TURN:
        if _here is None or _here.run != order.run:
            if _here:
                _here.end()
            _here = _Here(order.run)
        return _here.examined(order)


def end(run: str) -> None:
    """On a worker: end the shard of `run`."""
    global _here
    if _here and _here.run == run:
        _here.end()
        _here = None


def own_address() -> str:
    """On a worker: its address, as the scheduler has it."""
    from distributed import get_worker

    return str(get_worker().address)


def _shard(plan: Plan) -> ProcessPoolExecutor:
    """A shard, as the coordinator of one machine starts them."""
    context = multiprocessing.get_context("spawn")
    # Dask's workers are daemons, which multiprocessing lets have no children; this one ends with its parent.
    getattr(multiprocessing.current_process(), "_config", {}).pop("daemon", None)
    make_folder(plan.found)
    return ProcessPoolExecutor(1, context, begin, (plan, context.Event()))


def _plan(plan: Plan, root: Path) -> Plan:
    """`plan` as a worker follows it, with its folders below `root`."""
    state = root / STATE if plan.state else None
    return replace(plan, report=root / RUN, corpus=root / CORPUS, state=state, save=False, resume=False)


def _places(plan: Plan) -> dict[Path, str]:
    """The folders of cases of a run, and where each stands below the folder of a worker."""
    state = {plan.state / CASES: f"{STATE}/{CASES}"} if plan.state else {}
    corpora = reversed(corpus.known(plan.corpus))  # of what both have, the last that is unpacked is there
    return {plan.found: f"{RUN}/{plan.found.name}", **dict.fromkeys(corpora, CORPUS), **state}


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError:
        hint = "pip install distributed"
        raise UserError("--cluster needs Dask, which is not installed", hint=hint, kind="option") from None
    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as e:
        hint = "dask scheduler prints its address when it starts, tcp://HOST:8786 for one"
        raise UserError(f"no Dask scheduler answers at {address}: {e}", hint=hint, kind="option") from None


def _variable(run: str, number: int, client: Client | None = None, of: int = 1) -> Any:
    """A text that the scheduler keeps, whichever workers are lost: an archive of `run`, or so many from that on."""
    from distributed import Variable

    return Variable(f"driftnet-{run}-{number}-{of}", client)


def _archive(folders: Iterable[tuple[Path, str]]) -> str:
    """Files and folders under these names, with the cause that a case stands in."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, name in folders:
            if path.exists():
                archive.add(path, name)
            if (cause := path.parent / record.FILE).exists():
                archive.add(cause, f"{name.rpartition('/')[0]}/{record.FILE}")
    return base64.b64encode(data.getvalue()).decode()


def _unpack(data: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(data))) as archive:
        archive.extractall(folder, filter="data")


def _names(found: Path) -> set[str]:
    """The cases below a run's folder of cases that have a cause, by their paths there."""
    return {path.parent.relative_to(found).as_posix() for path in found.glob("*/*/test_*/case.json")}
