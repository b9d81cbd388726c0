"""A campaign on the workers of a Dask scheduler finds what one process does, and survives the loss of a worker."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from unittest.mock import Mock

import pytest
from driftnet import api
from driftnet.campaign import cluster, coordinator
from driftnet.campaign.cluster import Cluster, Order, Sent
from driftnet.campaign.coordinator import _Work
from driftnet.campaign.events import Done, Examined, Found
from driftnet.campaign.plan import Plan
from driftnet.campaign.shard import Shard, examine_index
from driftnet.findings import corpus
from driftnet.findings.issues import KnownIssue
from driftnet.learning import mending
from driftnet.model.verdict import Verdict, Word
from driftnet.util.errors import UserError
from onnx import TensorProto, helper

from tests.findings.test_corpus import saved_relu
from tests.support import models
from tests.support.paths import ROOT

TARGET = "onnxruntime-quant"


@pytest.fixture(scope="module")
def workers():
    """The address of a scheduler with four workers, and their process ids."""
    command = [sys.executable, "-m", "tests.support.dask_cluster", "4"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().split()
        process.stdin.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_workers_of_a_cluster_seek_everything_and_none_what_another_does(tmp_path, workers):
    plan = Plan(report=tmp_path / "run", corpus=tmp_path / "none", targets=(TARGET,), cluster=workers[0])
    with Cluster(plan) as pool:
        pool._executor = Mock()
        pool.submit(examine_index, 0, 4, True, ends=math.inf)
        order = pool._executor.submit.call_args.args[1]
        asked = [pool._client.submit(Order.part.fget, order, workers=one, pure=False) for one in order.workers]
        assert [one.result() for one in asked] == [(k, 4) for k in range(4)]


def test_a_worker_seeks_by_its_place_among_those_that_there_are_now(tmp_path, monkeypatch):
    plan = Plan(targets=(TARGET,), corpus=tmp_path / "none", report=tmp_path / "run", cluster="tcp://x")
    here, shard = cluster._Here("run"), Shard(plan, None, stopping=lambda: True)
    here.pool = Mock(submit=lambda fn, *given: Mock(result=lambda: fn(*given)), _processes={})
    monkeypatch.setattr("driftnet.campaign.shard._shard", shard, raising=False)
    monkeypatch.setattr(Shard, "run", lambda *_: iter(()))
    monkeypatch.setattr(cluster, "own_address", lambda: "b")
    whole, parts = shard.drawing.gaps[0]._left(frozenset()), []
    for there in (("a", "b"), ("b", "c"), ("a", "c")):
        here.examined(Order("run", plan, 0, frozenset(), 0, 4, True, 60.0, there))
        parts.append(shard.drawing.gaps[0]._left(frozenset()))
    here.end()
    assert not {*parts[0]} & {*parts[1]}, "another died, and this one has its place"
    assert {*parts[0]} | {*parts[1]} == {*whole}
    assert parts[2] == whole, "nobody knows of it yet"


def test_workers_that_join_or_leave_a_campaign_are_seen_when_the_list_is_old(monkeypatch):
    there, clock, pool = ["b"], [0.0], Cluster.__new__(Cluster)
    pool._there = (-math.inf, ())
    pool._client = Mock(scheduler_info=lambda n_workers: {"workers": dict.fromkeys(there)})
    monkeypatch.setattr(cluster, "time", Mock(monotonic=lambda: clock[0]))
    seen = []
    for seconds, now in ((0, ["b"]), (1, ["b", "a"]), (cluster.LIST_SECONDS, ["b", "a"]), (60, ["a"])):
        clock[0], there[:] = seconds, now
        seen.append(pool._addresses())
    assert seen == [("b",), ("b",), ("a", "b"), ("a",)], f"a joins while the list counts, b leaves: {seen}"
    assert pool.workers == 1, f"one is left, not {pool.workers}"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_four_workers_of_which_one_is_killed_find_what_one_process_does(tmp_path, workers):
    address, *pids = workers

    def run(name, **options):
        events = []

        def hear(summary, event):
            events.append(event)
            if name == "four" and isinstance(event, Done) and sum(isinstance(e, Done) for e in events) == 1:
                os.kill(int(pids[0]), signal.SIGKILL)

        plan = Plan(report=tmp_path / name, corpus=tmp_path / "none", targets=(TARGET,), cases=24, seed=6, steer=False)
        return api.fuzz(replace(plan, **options), listeners=[hear]), events

    one, _ = run("one")
    four, events = run("four", cluster=address)
    assert not four.errors, four.errors
    done = Counter(event.index for event in events if isinstance(event, Done))
    assert done == dict.fromkeys(range(6), 1), f"what was in flight was lost, or came twice: {done}"
    assert four.verdicts == one.verdicts
    assert one.new, "this seed is known to find something"
    found = [{finding.id for finding in summary.new} for summary in (four, one)]
    assert found[0] == found[1], f"four workers found {found[0]}, one process {found[1]}"
    folders = [tmp_path / "four" / "cases" / TARGET / finding.cause / finding.id for finding in four.new]
    assert all((folder / "case.json").exists() for folder in folders), f"not all of {folders} came back"


class _Told(Cluster):
    """What a coordinator accepts, without a scheduler."""

    def __init__(self, plan):
        self._plan, self._news, self._gone, self._issues, self.written = plan, [""], set(), {}, []
        self._journal = self

    def _send(self, name, data):
        self._news.append(name)

    def write(self, event):
        self.written.append(event)


class _Ended(dict):
    def result(self):
        return self["sent"]


def test_what_was_found_without_knowing_of_the_others_is_examined_again(tmp_path):
    plan = Plan(report=tmp_path / "run", corpus=tmp_path / "none", targets=(TARGET,), steer=False)
    pool, far = _Told(plan), tmp_path / "far"
    order = Order("run", plan, 1, frozenset(), 0, 4, True, 60.0)

    def sent(name, known):
        folder = far / "run" / "cases" / TARGET / "cause" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "case.json").write_text("{}")
        archive = cluster._archive([(folder, f"{TARGET}/cause/{name}")])
        again = Examined(0, TARGET, "1", {}, Verdict(Word.FAILS), known=str(folder))  # by another recipe
        told = Sent(order, str(far), known, [Found(0, str(folder), "1"), again], {f"{TARGET}/cause/{name}": archive})
        return _Ended(sent=told)

    event, again = pool.accepted(sent("test_a", known=1))
    here = plan.found / TARGET / "cause" / "test_a"
    assert (event.path, (here / "case.json").exists()) == (str(here), True), "it came to this machine"
    assert again.known == str(here), "what its own index met again is not lost"
    assert pool.accepted(sent("test_b", known=1)) is None, "it may be what the first had found"
    assert pool.accepted(sent("test_a", known=1)) is None, "another had found the very same"
    assert pool._gone == {f"{TARGET}/cause/test_b"}, f"got {pool._gone}: what stands here is no worker's to forget"
    assert pool.written == [event, again], "the journal has what counts"
    event, _ = pool.accepted(sent("test_c", known=2))
    assert event.path == str(here.with_name("test_c")), "it was told of the first"
    gone = str(far / "run" / "cases" / TARGET / "cause" / "test_b")
    by_what_is_gone = Examined(1, TARGET, "1", {}, Verdict(Word.FAILS), known=gone)
    assert pool.accepted(_Ended(sent=Sent(order, str(far), 3, [by_what_is_gone], {}))) is None
    assert pool.accepted(sent("test_b", known=3)), "found again, and now it counts"
    assert pool._gone == set(), f"got {pool._gone}: what counts is no worker's to forget"


@pytest.mark.parametrize(
    ("ops", "kind", "steer", "counts"),
    [
        (("Relu", "Relu"), "wrong-values", True, False),
        (("Relu", "Sigmoid"), "wrong-values", True, True),
        (("Relu", "Sigmoid"), "wrong-values", False, False),
        (("Relu", "Sigmoid"), "crash", True, False),
    ],
)
def test_what_was_found_meanwhile_counts_where_it_cannot_be_what_others_found(tmp_path, ops, kind, steer, counts):
    plan = Plan(report=tmp_path / "run", corpus=tmp_path / "none", targets=(TARGET,), steer=steer)
    pool, order, told = _Told(plan), Order("run", plan, 1, frozenset(), 0, 4, True, 60.0), []
    far = tmp_path / "far" / "run" / "cases"
    for number, op in enumerate(ops):
        node = helper.make_node(op, ["x"], ["y"])
        made = models.case([node], models.relu().feeds[0], outputs=[("y", TensorProto.FLOAT, (1, 4))])
        saved = saved_relu(id=f"test_{number}", case=made, coarse=f"mnn/execute/{kind}")
        folder = corpus.save(saved, far)
        name = folder.relative_to(far).as_posix()
        archives = {name: cluster._archive([(folder, name)])}
        sent = Sent(order, str(tmp_path / "far"), 1, [Found(0, str(folder), "1")], archives)
        told.append(pool.accepted(_Ended(sent=sent)) is not None)
    assert told == [True, counts], f"{ops}, both {kind}: counts {told}, should be {[True, counts]}"


def test_a_worker_that_lags_behind_is_told_of_several_findings_at_once(tmp_path, monkeypatch):
    kept, asked = {}, []

    class Kept:
        def __init__(self, run, number, client=None, of=1):
            self.name = (number, of)

        def set(self, text):
            kept[self.name] = text

        def get(self, timeout):
            asked.append(self.name)
            return kept[self.name]

    monkeypatch.setattr(cluster, "_variable", Kept)
    monkeypatch.setattr(cluster, "_unpack", lambda data, root: told.append(data))
    monkeypatch.setattr(cluster._Here, "_events", lambda self, order, plan: [])
    plan = Plan(report=tmp_path, targets=(TARGET,))
    sender, here, told = Cluster.__new__(Cluster), cluster._Here("run"), []
    sender._run, sender._client, sender._news, sender._pack = "run", None, [], []
    for number in range(2 * cluster.PACK + 4):
        sender._send(f"name {number}", f"text {number}")
    for news in (3, 2 * cluster.PACK + 4):
        here.examined(Order("run", plan, news, frozenset(), 0, 4, True, 60.0))
    here.end()
    should = [f"text {number}" for number in range(2 * cluster.PACK + 4)]
    assert told == should, f"each once, in order: got {told}"
    packs = [name for name in asked if name[1] > 1]
    assert packs == [(cluster.PACK + 1, cluster.PACK)], f"got {packs}: what it has not begun to ask for, and is full"


def test_the_workers_of_a_cluster_are_not_counted_for_each_index(tmp_path):
    pool = _Told(Plan(report=tmp_path, targets=(TARGET,)))
    pool._there, pool._client = (-math.inf, ()), Mock()
    pool._client.scheduler_info.return_value = {"workers": {"tcp://b": {}, "tcp://a": {}}}
    assert [pool._addresses() for _ in range(100)] == [("tcp://a", "tcp://b")] * 100, "sorted, whenever it is asked for"
    asked = pool._client.scheduler_info.call_count
    assert asked == 1, f"the scheduler made its list {asked} times, should be once in {cluster.LIST_SECONDS} s"


def test_what_a_cluster_tells_is_taken_in_the_order_of_the_indices_where_a_run_is_to_be_repeatable(tmp_path):
    class Pool:
        def submit(self, *args, **kwargs):
            future = Future()
            future.set_result([])
            return future

    def taken(**options):
        plan = Plan(targets=(TARGET,), report=tmp_path, cases=12, **options)
        work, pool, order = _Work(plan, ()), Pool(), []
        first, second, third = (work.give(pool) for _ in range(3))
        for come in ([third], [first], [second]):
            for future in work.come(come):
                order.append([first, second, third].index(future))
                work.take(future, pool)
        return order

    assert taken(cluster="tcp://x", steer=False) == [0, 1, 2]
    assert taken(cluster="tcp://x") == taken(steer=False) == [2, 0, 1], "nobody waits without need"


def test_what_a_worker_found_to_be_known_the_long_way_is_kept_where_the_run_is(tmp_path, monkeypatch):
    def examined(self, order, plan):
        mending.add(plan.report, f"{order.index}\n")
        return []

    monkeypatch.setattr(cluster._Here, "_events", examined)
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(TARGET,))
    pool, here = _Told(plan), cluster._Here("run")
    (here.scratch.path / cluster.RUN).mkdir()
    for index in range(2):
        order = Order("run", plan, 0, frozenset(), index, 4, True, 60.0)
        pool.accepted(_Ended(sent=here.examined(order)))
    here.end()
    assert mending.taken(tmp_path) == "0\n1\n"


def test_a_worker_forgets_nothing_that_it_has_been_told_of_since(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster._Here, "_events", lambda self, order, plan: [])
    here, name = cluster._Here("run"), f"{TARGET}/cause/test_a"
    folder = here.scratch.path / cluster.RUN / "cases" / name
    folder.mkdir(parents=True)
    (folder / "case.json").write_text("{}")
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(TARGET,))
    for known, news, stands in [(2, 1, True), (2, 2, False)]:
        here.known = known
        here.examined(Order("run", plan, news, frozenset({name}), 0, 4, True, 60.0))
        assert folder.exists() == stands, (
            f"told of {known}, asked with {news}: got {folder.exists()}, should be {stands}"
        )
    here.end()


@pytest.mark.parametrize("first", ["hangs", "counts for nothing"])
def test_what_has_come_and_waits_for_its_turn_is_taken_where_a_run_ends(tmp_path, monkeypatch, first):
    class Pool(_Told):
        workers = 2
        given = 0

        def submit(self, *args, **kwargs):
            future = Future()
            future.index, self.given = args[1], self.given + 1
            if future.index or first != "hangs":
                future.set_result(None)
            return future

        def accepted(self, future):
            if future.index == 0:
                noted.append(signal.SIGINT)
                return None
            return [Done(future.index)]

    def hear(event):
        if isinstance(event, Done):
            heard.append(event.index)
        else:
            ticks.append(event)
            noted.extend([signal.SIGINT] if len(ticks) > 2 else [])

    monkeypatch.setattr(coordinator, "STOPPING_SECONDS", 0.0)
    monkeypatch.setattr(coordinator, "TICK_SECONDS", 0.01)
    plan = Plan(report=tmp_path, targets=(TARGET,), minutes=1, cluster="tcp://x", steer=False)
    pool, heard, ticks, noted = Pool(plan), [], [], []
    coordinator._Campaign(plan, hear, _Work(plan, ()), multiprocessing.Event(), noted).examine(pool)
    assert heard == [1, 2, 3]
    assert pool.given == 4, "more and more is under way while the first hangs"


def test_what_counts_for_nothing_is_examined_again_however_few_workers_are_left(tmp_path, monkeypatch):
    class Pool(_Told):
        given = 0

        @property
        def workers(self):
            return 2 if self.given < 4 else 1

        def submit(self, *args, **kwargs):
            future = Future()
            future.index, future.again, self.given = args[1], args[1] == 0 and self.given > 0, self.given + 1
            future.set_result(None)
            return future

        def accepted(self, future):
            return [Done(future.index)] if future.index or future.again else None

    monkeypatch.setattr(coordinator, "TICK_SECONDS", 0.01)
    plan = Plan(report=tmp_path, targets=(TARGET,), cases=24, cluster="tcp://x", steer=False)
    heard = []

    def hear(event):
        heard.extend([event.index] if isinstance(event, Done) else [])

    coordinator._Campaign(plan, hear, _Work(plan, ()), multiprocessing.Event(), []).examine(Pool(plan))
    assert heard == [*range(6)], f"of six indices {heard} were examined: three waited for the first, and nobody had it"


def test_a_shard_forgets_what_counts_for_nothing(tmp_path):
    plan = Plan(targets=(TARGET,), corpus=tmp_path / "none", report=tmp_path, cluster="tcp://x")
    shard, there = Shard(plan, None, stopping=lambda: True), plan.found / "there"
    there.mkdir(parents=True)
    paths = {"there": there, "gone": plan.found / "gone", "of the corpus": tmp_path / "none" / "a"}
    for name, path in paths.items():
        shard.keeping.know(KnownIssue(replace(saved_relu(), id=name, path=path)))
    shard.keeping.forget()
    assert sorted(shard.keeping.known_issues) == ["of the corpus", "there"]


@pytest.mark.parametrize(
    ("given", "says"),
    [({"cluster": "tcp://127.0.0.1:1"}, "no Dask scheduler answers"), ({"seeds": ("x",)}, "is sent no seeds")],
)
def test_what_cannot_be_done_on_a_cluster_is_told(tmp_path, monkeypatch, given, says):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    plan = Plan(report=tmp_path / "run", corpus=tmp_path / "none", targets=(TARGET,), **{"cluster": "tcp://x", **given})
    with pytest.raises(UserError, match=says):
        api.fuzz(plan)
