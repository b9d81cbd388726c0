"""Campaigns: repeatable, interruptible, and nothing that was found is lost."""

import contextlib
import ctypes
import fcntl
import io
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from driftnet import api
from driftnet.campaign import coordinator, keeping, shard
from driftnet.campaign.events import Begun, Ended, Examined, Failed, Found, Learned, Tick, Warned
from driftnet.campaign.journal import Journal
from driftnet.campaign.plan import RECIPES_PER_MODEL, Plan, choices
from driftnet.campaign.shard import Shard
from driftnet.campaign.summary import Summary, Tally, derived, described
from driftnet.cli.report import progress
from driftnet.findings import arrange, corpus, trial
from driftnet.findings.corpus import COMMITTED
from driftnet.findings.issues import KnownIssue, KnownIssues
from driftnet.findings.pipeline import Examination
from driftnet.learning.study import proposal
from driftnet.model.verdict import Tier, Verdict, Word
from driftnet.run import health
from driftnet.run.runner import Runner
from driftnet.targets import recipe
from driftnet.targets.environments import resolve
from driftnet.util import limits
from driftnet.util.errors import UserError
from driftnet.util.records import read
from msgspec import structs
from rich.console import Console

from tests.findings.test_corpus import saved_relu
from tests.support.models import grid
from tests.support.paths import no_cases
from tests.support.toy_target import BURNED
from tests.support.triggers import found, one

EMPTY = Summary(cases=0, models=0, seed=0, next_index=0)
ENTRY = described(saved_relu(), "1", "new")


@pytest.fixture(scope="module")
def runner():
    """Workers as a shard has them."""
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


def fuzz(tmp_path, **options):
    """A campaign on the real targets, with its events."""
    events = []
    plan = Plan(**{"report": tmp_path / "report", "corpus": tmp_path / "corpus", **options})
    summary = api.fuzz(plan, listeners=[lambda summary, event: events.append(event)])
    return summary, events


def examined(events):
    """What was examined in which order; and the verdict, where the target is deterministic (MNN may read its heap)."""
    return [
        (e.index, e.target, e.recipe, e.verdict if e.target == "onnxruntime-quant" else None)
        for e in events
        if isinstance(e, Examined)
    ]


def test_the_same_seed_examines_the_same_cases_in_the_same_order(tmp_path):
    options = {"corpus": COMMITTED, "cases": 30, "seed": 11, "steer": False, "workers": 1}  # much fails: all is known
    runs = [fuzz(tmp_path / str(k), **options) for k in range(2)]
    (first, first_events), (second, second_events) = runs
    assert first.cases == second.cases == 30
    assert examined(first_events) == examined(second_events)
    assert not first.errors, first.errors


def test_what_is_found_is_saved_and_then_known(tmp_path):
    # onnxruntime's quantizer is deterministic; what MNN does may depend on what its heap happens to hold
    options = {"targets": ["onnxruntime-quant"], "cases": 4, "seed": 2, "steer": False}
    first, events = fuzz(tmp_path, save=True, **options)
    assert first.new, "this seed is known to find something"
    assert first.exit_status == 1
    saved = corpus.load_all(tmp_path / "corpus")
    assert {case.id for case in saved} == {finding.id for finding in first.findings}
    again, events_again = fuzz(tmp_path, **options)
    assert sorted(map(str, examined(events_again))) == sorted(map(str, examined(events))), "what is known changes cases"
    assert not again.new, [finding.id for finding in again.new]
    assert again.exit_status == 3


def test_a_run_goes_on_where_it_stopped(tmp_path):
    options = {"targets": ["onnxruntime-quant"], "cases": 4, "seed": 2, "steer": False, "corpus": COMMITTED}
    fuzz(tmp_path, **options)
    second, events = fuzz(tmp_path, **options, resume=True)
    assert {index for index, *_ in examined(events)} == {1}
    assert second.cases == 8


def started(*words):
    """A command line of driftnet in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "driftnet.cli.main", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        cwd=os.getcwd(),
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_in_order_with_everything_saved(tmp_path, number):
    report = tmp_path / "report"
    words = ["fuzz", "--minutes", "5", "--workers", "2", "--report", report, "--corpus", no_cases(tmp_path), "--json"]
    process = started(*words)
    deadline = time.monotonic() + 60
    while not corpus.case_folders(report / "cases") and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    result = json.loads(out)
    assert process.returncode == 1, err.decode()
    assert result["interrupted"], "it reads like a run that came to its end"
    assert result["findings"]
    assert {f["id"] for f in result["findings"]} == {p.name for p in corpus.case_folders(report / "cases")}
    assert json.loads((report / "summary.json").read_text(encoding="utf-8"))["cases"] == result["cases"]
    for finding in result["findings"]:
        assert corpus.load(Path(finding["path"])).expected


def test_ctrl_c_while_the_shards_start_ends_a_run_in_order(tmp_path):
    words = ["fuzz", "--minutes", "5", "--workers", "1", "--report", tmp_path / "report", "--json"]
    process = started(*words)
    deadline = time.monotonic() + 60
    while not shards_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2), err.decode()
    assert json.loads(out)["wall_seconds"] < 60, "it went on for its five minutes"


def shards_of(pid):
    """The processes that a campaign has spawned."""
    children = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text(encoding="utf-8").split()
    return [child for child in children if b"spawn_main" in (Path("/proc") / child / "cmdline").read_bytes()]


@pytest.mark.parametrize(
    ("errors", "statuses", "status", "interrupted"),
    [([], [], 0, 2), ([], ["known"], 3, 2), ([], ["known", "new"], 1, 1), ([Failed(0, "a slip")], ["new"], 2, 2)],
)
def test_exit_statuses(errors, statuses, status, interrupted):
    findings = [structs.replace(ENTRY, status=s) for s in statuses]
    summary = structs.replace(EMPTY, errors=errors, findings=findings)
    assert summary.exit_status == status
    assert structs.replace(summary, interrupted=True).exit_status == interrupted, "not all was done that was asked for"


def test_a_run_that_goes_on_adds_time_and_keeps_errors(tmp_path):
    errors = [{"event": "error", "index": 3, "message": "a slip"}]
    before = EMPTY.as_json() | {"wall_seconds": 10.0, "cpu_seconds": 20, "errors": errors}
    summary = read(before, Summary, "summary")
    assert summary.as_json() == before
    tally = Tally(tmp_path, summary)
    tally(Begun(0))
    tally(Tick(1.0, 5.0))
    assert summary.wall_seconds == 11.0
    tally(Ended(2.0, 3.0))
    assert (summary.wall_seconds, summary.cpu_seconds) == (12.0, 23.0)
    assert [error.message for error in summary.errors] == ["a slip"]
    assert summary.exit_status == 2


def test_cpu_time_is_told_by_what_it_went_into(tmp_path):
    path = corpus.save(saved_relu(), tmp_path / "corpus")
    tally = Tally(tmp_path / "cases", structs.replace(EMPTY, cpu_by={}))
    for word, known, cpu in [("agrees", "", 1.0), ("diverges", str(path), 2.0), ("crashes", "", 3.0)]:
        tally(Examined(0, "mnn", "1", {}, Verdict(Word(word)), known=known, cpu=cpu))
    tally(Found(0, str(path), "1", cpu=0.5))
    tally(Ended(10.0, 8.0))
    assert tally.summary.as_json()["cpu_by"] == {
        "clean": 1.0,
        "known": 2.0,
        "new": 3.0,
        "handed over": 0.5,
        "other": 1.5,
    }
    assert tally.summary.cpu_seconds == 8.0


def test_a_stage_that_takes_long_is_told_by_its_name_and_the_parts_are_part_of_the_whole(tmp_path):
    told, _ = fuzz(tmp_path, cases=3, seed=1, targets=["tests.support.toy_target:BURNING"], workers=1)
    runs = BURNED * sum(count for word, count in told.verdicts.items() if word != Word.INVALID)
    stage = sum(seconds for name, seconds in told.cpu_parts.items() if name.endswith(": target convert"))
    assert runs <= stage < told.cpu_seconds, f"converting took {stage} of {told.cpu_seconds} CPU s, at least {runs}"
    whole = sum(told.cpu_parts.values())
    assert whole <= told.cpu_seconds, f"the parts take {whole} CPU s, all that was used is {told.cpu_seconds}"
    lacking = {"generator", "starting", "first run"} - {name.partition(": ")[0] for name in told.cpu_parts}
    assert not lacking, f"nothing was spent for {lacking}"
    again = derived(tmp_path / "report", tmp_path / "report" / "cases")[0].cpu_parts
    assert again == pytest.approx(told.cpu_parts), f"by the journal {again}, by the run {told.cpu_parts}"


def test_cpu_time_that_a_killed_shard_took_along_is_told_by_its_cases(tmp_path):
    tally = Tally(tmp_path / "cases", structs.replace(EMPTY, cpu_by={}))
    tally(Examined(0, "mnn", "1", {}, Verdict(Word.AGREES), cpu=5.0))
    tally(Ended(10.0, 2.0))
    told = tally.summary.as_json()
    assert (told["cpu_seconds"], told["cpu_by"]) == (5.0, {"clean": 5.0, "other": 0.0})


@pytest.mark.parametrize(
    ("begun", "says"),
    [
        (None, "it has no journal"),
        (Begun(4), "that run has seed 4, not 0"),
        (Begun(0, given=("a.onnx",)), "that run draws neighbours of a.onnx"),
    ],
)
def test_a_run_that_is_not_there_is_not_gone_on_with(tmp_path, begun, says):
    if begun is not None:
        Journal(tmp_path / "report").write(begun)
    with pytest.raises(UserError, match=f"cannot go on with the run of .*: {says}"):
        fuzz(tmp_path, cases=1, resume=True)


@pytest.mark.parametrize("place", ["corpus", "report/cases"])
def test_a_saved_case_that_is_not_whole_stops_no_run_but_is_an_error_of_it(tmp_path, place):
    folder = corpus.save(saved_relu(target="onnxruntime-quant"), tmp_path / place)
    (folder / "case.json").write_text('{"schema": 1,')
    summary, _ = fuzz(tmp_path, cases=1, targets=["onnxruntime-quant"], save=True)
    (error,) = summary.errors
    assert error.message.startswith(f"{folder}/case.json: not a whole case.json"), error
    assert (summary.cases, summary.exit_status) == (1, 2)


def test_a_shard_reads_what_is_saved_of_others_than_the_targets_that_it_does_not_examine(tmp_path):
    for name in ("mnn", "onnxruntime-quant", "of-nobody"):
        corpus.save(replace(saved_relu(), id=f"test_{name}"), tmp_path / "corpus" / name)
    plan = Plan(report=tmp_path, corpus=tmp_path / "corpus", targets=("onnxruntime-quant",))
    read = Shard(plan, None, stopping=lambda: True).keeping.known_issues
    assert sorted(read) == ["test_of-nobody", "test_onnxruntime-quant"]


def die(plan, stop):
    """A shard that does not come up."""
    os._exit(1)


def commands(word):
    """The command lines with that word of processes that this interpreter runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [text for text in found if word in text and text.startswith(sys.executable)]


def test_what_quantizes_nothing_is_run_before_what_does():
    installed = resolve("mnn")
    for index in range(20):
        told = [recipe.effective(installed.target, one.recipe) for one in choices(installed, 1, index)]
        quantizes = [installed.target.scheme(options) is not None for options in told]
        assert quantizes == sorted(quantizes)
        assert len(quantizes) == RECIPES_PER_MODEL


def test_of_one_model_no_recipe_is_run_twice():
    for word in ("mnn", "onnxruntime-quant", "onnxruntime-graph"):
        installed = resolve(word)
        for index in range(100):
            told = [one.recipe for one in choices(installed, 3, index)]
            again = [one for k, one in enumerate(told) if one in told[:k]]
            assert not again, f"index {index} of {word} has {again} twice"


def test_nothing_is_begun_when_the_run_is_over(monkeypatch):
    monkeypatch.setattr(shard, "_shard", None, raising=False)
    assert shard.examine_index(0, 12, ends=time.monotonic()) == []


def test_a_run_ends_within_ten_seconds_of_its_limit_whatever_a_target_does(tmp_path):
    target = "tests.support.endless_target:ENDLESS"
    _, events = fuzz(tmp_path, minutes=0.1, seed=3, targets=[target], steer=False, workers=2)
    (elapsed,) = (event.elapsed for event in events if isinstance(event, Ended))
    assert 6 <= elapsed < 6 + 10
    assert multiprocessing.active_children() == []
    ended = time.monotonic() + 10
    while (left := commands("endless_target")) and time.monotonic() < ended:
        time.sleep(0.1)
    assert left == [], "processes that a target started are left"


def lose_memory(plan, stop):
    """A shard to which somebody grants no more address space than it has."""
    shard.begin(plan, stop)
    limit = limits.address_space()
    resource.prlimit(os.getpid(), resource.RLIMIT_AS, (limit, limit))


def be_stopped(plan, stop):
    """A shard that somebody stops."""
    shard.begin(plan, stop)
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("begin", "ticks", "says"),
    [(lose_memory, 40, "address space may be had"), (be_stopped, 10, "the processes of this run do nothing any more")],
    ids=["address space", "stopped"],
)
def test_shards_that_come_no_further_are_the_machines_fault_and_end(tmp_path, monkeypatch, begin, ticks, says):
    monkeypatch.setattr(coordinator, "begin", begin)
    monkeypatch.setattr(coordinator, "SILENT_TICKS", ticks)
    with pytest.raises(UserError, match=says) as error:
        fuzz(tmp_path, cases=60, seed=2, targets=["onnxruntime-quant"], steer=False, workers=1)
    assert error.value.kind == "machine"
    assert multiprocessing.active_children() == []


def test_a_pool_that_cannot_begin_is_the_machines_fault_and_leaves_nobody(tmp_path, monkeypatch):
    def cannot_start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("concurrent.futures.process._ExecutorManagerThread.start", cannot_start)
    with pytest.raises(RuntimeError, match="can't start new thread") as error:
        fuzz(tmp_path, cases=4, workers=1)
    assert health.fault(error.value) is not None
    for killed in multiprocessing.active_children():  # which may take a moment to end
        killed.join(5.0)
    assert multiprocessing.active_children() == []


def die_with_the_lock(plan, stop):
    """A shard that dies while it holds the lock that every other one waits for."""
    shard.begin(plan, stop)
    frames = [frame.f_locals for frame, _ in traceback.walk_stack(None)]
    calls = next(known["call_queue"] for known in frames if "call_queue" in known)
    calls._rlock.acquire()
    os._exit(1)


def test_a_shard_that_dies_with_a_lock_leaves_no_other_waiting_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "begin", die_with_the_lock)
    with pytest.raises(UserError, match="a process of driftnet itself died"):
        fuzz(tmp_path, cases=60, seed=2, targets=["onnxruntime-quant"], steer=False, workers=2)
    assert multiprocessing.active_children() == []


def crash_judging(plan, stop):
    """A shard whose oracle crashes."""
    trial.judge = lambda *args, **kwargs: ctypes.string_at(0)
    shard.begin(plan, stop)


def test_a_crash_while_judging_costs_a_shard_once_and_is_an_abstention_then(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "begin", crash_judging)
    summary, events = fuzz(tmp_path, cases=4, seed=5, targets=["onnxruntime-quant"], workers=1)
    assert len(examined(events)) == summary.cases == 4
    assert summary.rules[trial.TOO_MUCH] > 0
    assert (summary.errors, summary.exit_status) == ([], 0)


def test_a_shard_that_dies_is_an_internal_error_and_the_summary_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "begin", die)
    report = tmp_path / "report"
    with pytest.raises(UserError, match="a process of driftnet itself died") as error:
        api.fuzz(Plan(cases=1, report=report, corpus=tmp_path), listeners=[progress.written(report)])
    assert error.value.kind == "internal"
    assert json.loads((report / "summary.json").read_text(encoding="utf-8"))["wall_seconds"] > 0


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (TypeError("of ours"), "internal", "TypeError: of ours"),
        (UserError("the disk", kind="disk"), "disk", "the disk"),
    ],
)
def test_what_keeps_a_shard_from_starting_is_told_with_the_first_index(monkeypatch, raised, kind, says):
    def fail(**options):
        raise raised

    monkeypatch.setattr(shard, "Runner", fail)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(shard, "_shard", None, raising=False)
    shard.begin(Plan(targets=("mnn",), report=Path("report")), multiprocessing.Event())
    (error,) = shard.examine_index(3, 1)
    assert (error.kind, error.message) == (kind, says)
    assert error.hint == "" if kind == "disk" else "error of driftnet itself" in error.hint


def test_signals_are_only_noted():
    before = signal.getsignal(signal.SIGINT)  # a shell ignores it in what it runs in the background
    with coordinator._signals_noted() as noted:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert noted == [signal.SIGTERM, signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_shard_warns_once_where_the_network_cannot_be_cut_off(tmp_path):
    plan = Plan(targets=("mnn",), corpus=tmp_path / "corpus", report=tmp_path)
    shard = Shard(plan, SimpleNamespace(network_isolated=False), stopping=lambda: True)
    events = [event for index in range(2) for event in shard.run(index, 1)]
    assert [type(event) for event in events] == [Warned]
    shard = Shard(plan, SimpleNamespace(network_isolated=True), stopping=lambda: True)
    assert list(shard.run(0, 1)) == [], "an index that was stopped is not done"


@pytest.mark.parametrize(("quiet", "terminal"), [(True, False), (False, False), (False, True)])
def test_the_warnings_of_all_shards_are_shown_once(tmp_path, quiet, terminal):
    said = io.StringIO()
    with progress.shown(Console(file=said, force_terminal=terminal, width=100), quiet=quiet) as show:
        for _ in range(3):
            show(EMPTY, Warned("mind the gap"))
    assert said.getvalue().count("warning: mind the gap") == 1


def test_nothing_is_found_while_the_machine_is_at_fault(tmp_path, monkeypatch, runner):
    def fail(**options):
        raise UserError("no space", kind="machine")

    plan = Plan(targets=("onnxruntime-quant",), corpus=tmp_path, report=tmp_path / "report", seed=2, steer=False)
    monkeypatch.setattr(runner, "check_health", fail)
    one = Shard(plan, runner, stopping=lambda: False)
    with pytest.raises(UserError, match="no space"):
        [event for index in range(15) for event in one.run(index, 4)]
    assert corpus.load_all(plan.found) == []


def test_the_machine_is_looked_at_now_and_then_and_where_somebody_abstains(tmp_path, monkeypatch, runner):
    plan = Plan(targets=("onnxruntime-quant",), corpus=tmp_path, report=tmp_path / "report", seed=2, steer=False)
    looks = []
    monkeypatch.setattr(runner, "check_health", lambda **options: looks.append(1))
    one = Shard(plan, runner, stopping=lambda: False)
    monkeypatch.setattr(shard, "CANARIES", 3)
    monkeypatch.setattr(shard, "examine", lambda *args, **options: Examination(Verdict(Word.AGREES)))
    seen = [len(looks) for index in range(3) for event in one.run(index, 4) if isinstance(event, Examined)]
    assert seen == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    monkeypatch.setattr(shard, "examine", lambda *args, **options: Examination(Verdict(Word.ABSTAINS)))
    list(one.run(3, 1))
    assert len(looks) == 5
    vague = Verdict(Word.ABSTAINS, Tier.RUNNING_ERROR)  # numbers were seen and weighed
    monkeypatch.setattr(shard, "examine", lambda *args, **options: Examination(vague))
    list(one.run(4, 1))
    assert len(looks) == 5


def test_what_was_not_explained_is_no_finding_and_is_examined_again_by_resume(tmp_path):
    """Two of these failures are known, and recognized by no trigger: it takes runs to tell."""
    report = tmp_path / "report"
    plan = Plan(targets=("onnxruntime-quant",), corpus=COMMITTED, report=report, seed=78, cases=40, steer=False)
    first = api.fuzz(replace(plan, reduce_seconds=0.0))
    assert [f.id for f in first.new] == [], "what nobody had the time to explain is told as new"
    assert first.unexplained, "all of it was explained without any effort"
    assert first.exit_status == 1
    again = api.fuzz(replace(plan, resume=True, cases=4 * len(first.unexplained)))
    assert (again.unexplained, len(again.new), again.models) == ([], 0, 10)


def test_a_failure_that_did_not_come_back_is_kept_with_its_rate():
    tally = Tally(Path("cases"), Summary(cases=0, models=0, seed=0))
    once = Verdict(Word.CRASHES, Tier.STRUCTURE, "execute", "SIGSEGV", "mnn was ended by SIGSEGV in execute")
    tally(Examined(7, "mnn", "1", {"quantize": "no"}, Verdict(Word.AGREES), confirmed=False, once=once, again=6))
    (kept,) = tally.summary.once
    assert (kept.index, kept.recipe, kept.failed, kept.runs, kept.kind) == (7, {"quantize": "no"}, 1, 7, "SIGSEGV")


def test_what_shares_its_cause_is_no_new_finding_and_known_from_then_on(tmp_path, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"

    def pool(op, size):
        return found(one(op, grid((1, 2, size, size)), kernel_shape=[2, 2]), target, runner)

    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,), cases=1)
    of_run = Shard(plan, runner, stopping=lambda: False)
    _, new = of_run.keeping.keep(pool("MaxPool", 6))
    other = pool("AveragePool", 9)
    _, issue = of_run.keeping.keep(other)
    assert isinstance(issue, KnownIssue), f"it is taken for new: {issue}"
    assert issue.id == new.path.name
    assert corpus.folders([plan.found]) == [new.path], "the other one is not kept"
    known = of_run.keeping.known_issues[other.to_save().id]
    assert known.saved.path == new.path, "what it explains counts for the cause"
    assert known.saved.cause.trigger is not None


@pytest.mark.parametrize("fails", [False, True])
def test_what_has_the_name_of_a_fixed_case_is_called_otherwise_unless_that_has_come_back(tmp_path, fails, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "corpus", targets=(target,), cases=1)
    finding = found(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner)
    right = one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2], strides=[1, 1])
    fixed = replace(finding.to_save(), status="fixed", **({} if fails else {"case": right}))
    corpus.save(fixed, plan.corpus)
    id, new = Shard(plan, runner, stopping=lambda: False).keeping.keep(finding)
    assert id == new.path.name
    assert (id == fixed.id) is fails
    there = KnownIssues([KnownIssue(corpus.load(new.path))]).named(fixed.id)
    assert there is not None, "who finds it again does not know it by its signature"


def test_what_is_found_faster_than_it_can_be_learned_of_waits_and_is_learned_of_later(tmp_path, monkeypatch, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,), minutes=1)
    pools = [
        found(one(op, grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner) for op in ("MaxPool", "AveragePool")
    ]
    of_run = Shard(plan, runner, stopping=lambda: False)
    monkeypatch.setattr(keeping, "LEARNING", 0.0)
    waiting = [of_run.keeping.keep(pool)[1] for pool in pools]
    assert [corpus.load(new.path).cause for new in waiting] == [None, None], "there was no time for that"
    monkeypatch.setattr(keeping, "HANDING", 0.0)
    of_run.keeping.hand_over(waiting[0], pools[0].installed)
    assert (waiting[0].path / "ISSUE.md").exists()
    assert not (waiting[0].path / "without_trigger").exists(), "a control was searched for though there was no time"
    _, met = Shard(plan, runner, stopping=lambda: False).keeping.keep(pools[0])
    assert isinstance(met, KnownIssue), "another process takes what waits for something of its own"
    monkeypatch.setattr(keeping, "LEARNING", 1.0)
    resumed = Shard(replace(plan, resume=True), runner, stopping=lambda: False)
    shards = resumed, of_run
    learned = [event.case for one in shards for event in one.keeping.catch_up()]
    assert [len(one.keeping.waiting) for one in shards] == [0, 0], "one is learned of when the run is resumed too"
    assert sorted(learned) == sorted(new.path.name for new in waiting), "each by one process"
    (kept,) = corpus.load_all(plan.found)
    assert kept.cause.trigger is not None
    assert (kept.path / "ISSUE.md").exists(), "what is handed over does not tell the trigger"
    assert (kept.path / "without_trigger").exists(), "what was learned gives no control"
    summary, _ = derived(tmp_path, plan.found)
    assert [finding.id for finding in summary.new] == [kept.id], "both are told as causes"


def test_what_turns_out_to_be_known_leaves_the_corpus_again_and_nothing_else_does(tmp_path, monkeypatch):
    plan = Plan(report=tmp_path / "run", corpus=tmp_path / "corpus", save=True, targets=("mnn",), cases=1)
    ids, during = ["test_mnn_relu_aaaaaaaa", "test_mnn_relu_bbbbbbbb"], list[list[str]]()
    corpus.save(saved_relu(id=ids[1], status="fixed"), plan.corpus)

    def run(plan, hear, **given):
        for id in ids:
            path = corpus.save(saved_relu(id=id), plan.found)
            hear(Found(0, str(path), "1"))
            corpus.remove(path)
            hear(Learned(id, 0.0, known=str(known)))
        hear(Ended(1.0, 1.0))

    known = corpus.save(saved_relu(id="test_mnn_relu_cccccccc"), tmp_path / "known")
    monkeypatch.setattr(coordinator, "run", run)
    told = api.fuzz(plan, listeners=[lambda summary, event: during.append([entry.id for entry in summary.new])])
    assert during[-2] == [], "the run still tells of it as new"
    assert not told.new
    assert [saved.id for saved in corpus.load_all(plan.corpus)] == [ids[1]]


def test_what_turns_out_to_be_known_was_met_as_often_as_it_was_and_what_got_a_cause_is_told_where_it_lies(tmp_path):
    names = ["test_mnn_relu_aaaaaaaa", "test_mnn_relu_bbbbbbbb", "test_mnn_relu_cccccccc"]
    first, second, known = (
        corpus.save(saved_relu(id=id), tmp_path / where) for id, where in zip(names, ("run", "run", "known"))
    )
    tally = Tally(tmp_path / "run", Summary(seed=0, cases=0, models=0))
    for path in first, second:
        tally(Found(0, str(path), "1"))
        tally(Examined(1, "mnn", "1", {}, Verdict(Word.FAILS, stage="execute"), known=str(path)))
    corpus.remove(first)
    tally(Learned(first.name, 0.0, known=str(known)))
    moved = second.parent / "a_cause" / second.name
    moved.parent.mkdir()
    second.rename(moved)
    tally(Learned(second.name, 0.0))
    tally(Examined(1, "mnn", "1", {}, Verdict(Word.FAILS, stage="execute"), known=str(first)))  # by another shard
    told = {entry.id: (entry.status, entry.times, entry.path) for entry in tally.summary.findings}
    assert told == {known.name: ("known", 3, str(known)), second.name: ("new", 2, str(moved))}


def test_what_another_shard_has_found_meanwhile_explains_a_finding_that_was_examined_without_it(
    tmp_path, monkeypatch, runner
):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,))
    one_op, another = (
        found(one(op, grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner) for op in ("MaxPool", "AveragePool")
    )
    first, second = (Shard(plan, runner, stopping=lambda: False) for _ in range(2))
    _, new = first.keeping.keep(one_op)
    monkeypatch.setattr(keeping, "study", lambda *args: pytest.fail("it is studied as something new"))
    _, issue = second.keeping.keep(another)
    assert one_op.to_save().id != another.to_save().id
    assert issue.saved.path == new.path, "it is explained by something else"
    assert corpus.folders([plan.found]) == [new.path], "both are told as new"
    assert another.to_save().id not in second.keeping.known_issues


def test_nobody_waits_while_a_shard_learns_of_what_it_found(tmp_path, monkeypatch, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,))
    kept = []
    one_op, another = (
        found(one(op, grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner) for op in ("MaxPool", "AveragePool")
    )
    first, second = (Shard(plan, runner, stopping=lambda: False) for _ in range(2))

    def learning(*args, study=keeping.study):
        kept.append(second.keeping.keep(another)[1])
        return study(*args)

    monkeypatch.setattr(keeping, "study", learning)
    _, new = first.keeping.keep(one_op)
    assert kept[0].id == new.path.name, "what is not learned of yet explains what another has"
    assert corpus.folders([plan.found]) == [new.path]


def is_written(plan):
    """Whether what is found stands still for some shard."""
    with (plan.report / ".keeping").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_what_a_shard_learns_of_is_adopted_by_no_other(tmp_path, monkeypatch, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,), cases=1)
    adopted = []
    finding = found(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner)

    def learning(*args, study=keeping.study):
        resumed = Shard(replace(plan, resume=True), runner, stopping=lambda: False)
        adopted.append((len(resumed.keeping.waiting), [*resumed.keeping.catch_up()]))
        return study(*args)

    monkeypatch.setattr(keeping, "study", learning)
    _, new = Shard(plan, runner, stopping=lambda: False).keeping.keep(finding)
    assert adopted == [(1, [])], "two have studied it"
    assert corpus.folders([plan.found]) == [new.path]


def test_nothing_goes_while_a_shard_looks_what_stands_there(tmp_path, monkeypatch, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,), cases=1)
    gone = {}
    first, second = (Shard(plan, runner, stopping=lambda: False) for _ in range(2))
    pools = [
        found(one(op, grid((1, 2, size, size)), kernel_shape=[2, 2]), target, runner)
        for op, size in (("MaxPool", 6), ("AveragePool", 9), ("AveragePool", 6))
    ]
    first.keeping.keep(pools[0])

    def removing(folder, remove=corpus.remove):
        gone[folder.name] = is_written(plan)
        remove(folder)

    monkeypatch.setattr(corpus, "remove", removing)
    ids = [one.keeping.keep(pool)[0] for one, pool in ((first, pools[1]), (second, pools[2]))]
    assert gone == dict.fromkeys(ids, True)


def test_nobody_waits_while_a_shard_asks_what_shares_its_cause_and_what_came_meanwhile_is_asked(
    tmp_path, monkeypatch, runner
):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,), cases=1)
    waited, come = [], []
    finding, other = (
        found(one(op, grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner) for op in ("MaxPool", "AveragePool")
    )

    def asking(*args, sharing=keeping.sharing):
        waited.append(is_written(plan))
        shared = sharing(*args)
        if len(waited) == 2:  # after it was studied
            saved = corpus.load(corpus.save(other.to_save(), plan.found))
            learned = keeping.study(saved, other.installed, other.where, runner)
            come.append(arrange.found(saved, proposal(learned), plan.found))
        return shared

    monkeypatch.setattr(keeping, "sharing", asking)
    _, issue = Shard(plan, runner, stopping=lambda: False).keeping.keep(finding)
    assert waited == [False] * 3
    assert issue.saved.path == come[0], "it is told as new beside what it shares its cause with"
    assert corpus.folders([plan.found]) == come


def test_what_stands_there_and_is_not_whole_is_met_again(tmp_path, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,), cases=1)
    finding = found(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner)
    there = corpus.save(finding.to_save(), plan.found)
    (there / "case.json").write_text("{")
    _, issue = Shard(plan, runner, stopping=lambda: False).keeping.keep(finding)
    assert issue.saved.path == there


def test_the_very_same_finding_of_another_shard_is_no_second_one(tmp_path, runner):
    target = "tests.support.bugs:NEEDS_STRIDES"
    plan = Plan(report=tmp_path, corpus=tmp_path / "none", targets=(target,))
    finding = found(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), target, runner)
    first, second = (Shard(plan, runner, stopping=lambda: False) for _ in range(2))
    _, new = first.keeping.keep(finding)
    _, issue = second.keeping.keep(finding)
    known = second.keeping.known_issues.values()
    assert [*second.drawing.steering.issues] == [*known] != [], "drawing goes by what is known now"
    assert isinstance(issue, KnownIssue), f"it is taken for new: {issue}"
    assert issue.saved.path == new.path
    assert corpus.folders([plan.found]) == [new.path], "what the first one has kept stays"
