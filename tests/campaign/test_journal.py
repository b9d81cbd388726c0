"""The journal: what was confirmed is on the disk, whoever dies when."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from driftnet import api
from driftnet.campaign import coordinator
from driftnet.campaign.coordinator import SEMAPHORES, sweep_semaphores
from driftnet.campaign.events import Begun, Done, Ended, Examined, Failed, Found, Tick, Warned
from driftnet.campaign.journal import REPORT, Journal, histories
from driftnet.campaign.plan import Plan
from driftnet.campaign.summary import derived
from driftnet.cli.report import progress
from driftnet.findings import corpus
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.util.errors import UserError
from driftnet.util.files import Scratch, held

from tests.campaign.test_campaign import shards_of, started
from tests.findings.test_corpus import saved_relu
from tests.support.paths import no_cases
from tests.support.torture import alive, descendants

WRONG = Verdict(Word.DIVERGES, Tier.EXACT, "execute", Kind.WRONG_VALUES, "off", "y", 0, float("inf"), 1.0)
EVENTS = [
    Begun(3, ("test_a",)),
    Warned("mind the gap"),
    Examined(0, "mnn", "3.6.1", {"quantize": "offline", "disabled": ["a"]}, WRONG, "/c/test_b", False, ("Relu",), True),
    Found(0, "/c/test_b", "3.6.1"),
    Failed(0, "a slip", trace="..."),
    Done(0),
    Tick(1.5, float("inf")),
    Ended(2.5, 1.0),
]


def test_what_is_written_is_what_is_read(tmp_path):
    journal = Journal(tmp_path)
    for event in EVENTS:
        journal.write(event)
    assert histories(tmp_path) == [EVENTS]


@pytest.mark.parametrize(("pause", "waits"), [(0.0, 6), (3600.0, 3)])
def test_the_disk_is_waited_for_at_each_finding_and_unless_it_was_just_now_at_each_index(
    tmp_path, monkeypatch, pause, waits
):
    journal, synced = Journal(tmp_path, pause), []
    monkeypatch.setattr("driftnet.campaign.journal.os.fsync", synced.append)
    for event in (Done(0), EVENTS[1], Done(1), Found(2, "/c/test_b", "1"), Done(2), Done(3)):
        journal.write(event)
    assert len(synced) == waits, f"waited {len(synced)} times, should be {waits}"
    assert len(histories(tmp_path)[0]) == 6, "all is written, whether it was waited for or not"


def test_a_line_that_breaks_off_takes_no_other_along(tmp_path):
    journal = Journal(tmp_path)
    for event in EVENTS[:3]:
        journal.write(event)
    text = journal.path.read_bytes()
    for size in range(len(text)):
        journal.path.write_bytes(text[:size])
        whole = text[:size].count(b"\n")
        (found,) = histories(tmp_path)
        assert found[:whole] == EVENTS[:whole], f"cut at byte {size}"
        assert len(found) <= whole + 1, f"cut at byte {size}"


def test_only_what_is_done_counts_but_all_that_was_found(tmp_path):
    told, untold = (corpus.save(saved_relu(id=f"test_{name}_00000000"), tmp_path / "cases") for name in ("a", "b"))
    journal = Journal(tmp_path)
    agrees = Verdict(Word.AGREES)
    for event in (
        *(Begun(0), Examined(4, "mnn", "1", {}, agrees), Done(4)),
        *(Examined(7, "mnn", "1", {}, agrees), Found(7, str(told), "1")),
    ):
        journal.write(event)
    summary, done = derived(tmp_path, tmp_path / "cases")
    assert (summary.cases, summary.models, done) == (1, 1, {4})
    assert {(f.id, f.status) for f in summary.findings} == {(told.name, "new"), (untold.name, "new")}


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_is_named(tmp_path):
    with held(tmp_path / "lock"), pytest.raises(UserError, match=f"process {os.getpid()} is writing into"):
        api.fuzz(Plan(report=tmp_path, cases=1, corpus=tmp_path / "corpus"))


def test_what_an_earlier_run_told_in_the_same_folder_is_put_aside_and_its_cases_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "run", lambda plan, hear, done: hear(Ended(1.0, 0.0)))
    report, case = tmp_path / "report", corpus.save(saved_relu(), tmp_path / "report" / "cases")
    heard = []
    for seed in range(3):
        plan = Plan(report=report, seed=seed, cases=1, corpus=tmp_path / "none")
        api.fuzz(plan, listeners=[progress.written(report), lambda summary, event: heard.append(event)])
    places = [report / "earlier-1", report / "earlier-2", report]
    said = [event.message for event in heard if isinstance(event, Warned)]
    assert [f"stands in {one} now" in text for one, text in zip(places[:2], said, strict=True)] == [True, True]
    seeds = [json.loads((one / "summary.json").read_text(encoding="utf-8"))["seed"] for one in places]
    assert seeds == [0, 1, 2]
    assert [len(histories(one)) for one in places] == [1, 1, 1]
    assert case.is_dir(), "the case that was found is gone"
    there = {*REPORT, "cases", "lock", "earlier-1", "earlier-2"} - {"issues", "missed"}
    assert {path.name for path in report.iterdir()} == there


def test_what_the_machine_refuses_a_run_is_not_told_as_another_run(tmp_path):
    with pytest.raises(BlockingIOError), held(tmp_path / "lock"):
        raise BlockingIOError(errno.EAGAIN, "no process can be started")


def test_the_folder_of_a_process_that_was_killed_is_removed_by_the_next(tmp_path):
    alive, dead = Scratch(tmp_path), Scratch(tmp_path)
    os.close(dead._handle)
    for scratch in (alive, dead):
        os.utime(scratch.path, (0, 0))
    third = Scratch(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([alive.path, third.path])


def abandoned(place):
    """A folder of scratch in `place`, made a moment ago by a process that was killed."""
    make = (
        "import os, sys; from driftnet.util.files import Scratch; print(Scratch(sys.argv[1]).path); sys.stdout.flush()"
    )
    command = [sys.executable, "-c", f"{make}; os.kill(os.getpid(), 9)", str(place)]
    folder = Path(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    assert folder.is_dir(), f"nothing stands at {folder}, should be a folder of scratch"
    return folder


def test_the_folder_of_a_process_that_was_killed_a_moment_ago_is_removed_too(tmp_path):
    dead = abandoned(tmp_path)
    alive = Scratch(tmp_path)
    assert not dead.exists(), "it is left behind"
    assert alive.path.exists(), "the folder of who is alive is gone"


def test_a_run_leaves_no_folder_of_a_shard_that_was_killed_while_it_began(tmp_path, monkeypatch):
    monkeypatch.setattr("driftnet.campaign.coordinator.MEMORY", str(tmp_path))
    events = []
    dead = abandoned(tmp_path)
    coordinator.run(Plan(report=tmp_path / "report", cases=0), events.append)
    assert not dead.exists(), f"it is left behind: {events}"


def finding(report, process):
    """Wait until something has been found."""
    deadline = time.monotonic() + 90
    while not corpus.case_folders(report / "cases") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert corpus.case_folders(report / "cases"), "nothing was found in time"


@pytest.mark.parametrize("victim", ["main", "shard", "template"])
def test_whoever_is_killed_nothing_found_is_lost_and_nobody_stays_behind(tmp_path, victim):
    report, home = tmp_path / "report", tmp_path / "corpus"
    words = ["fuzz", "--target", "onnxruntime-quant", "--workers", "1", "--seed", "6", "--no-steer", "--save"]
    words += ["--report", report, "--corpus", home, "--json"]
    process = started(*words, "--cases", "24")
    finding(report, process)
    family = descendants(process.pid)
    (shard,) = map(int, shards_of(process.pid))
    templates = [pid for pid in descendants(shard) if alive([pid])]
    os.kill({"main": process.pid, "shard": shard, "template": templates[0]}[victim], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    deadline = time.monotonic() + 20
    while alive(family) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(family) == [], f"{victim} was killed, and these went on for ever"
    if victim == "main":
        process = started(*words, "--cases", "8", "--resume")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err.decode()
    result = json.loads(out)
    found = {path.name for path in corpus.case_folders(report / "cases")}
    assert {f["id"] for f in result["findings"] if f["status"] == "new"} == found
    assert {path.name for path in corpus.case_folders(home)} == found, "not all that was found is in the corpus"
    done = [e.index for history in histories(report) for e in history if isinstance(e, Done)]
    assert sorted(done) == list(range(len(done))), "an index was skipped, or done twice"


def test_an_end_by_hangup_is_one_in_order(tmp_path):
    report = tmp_path / "report"
    words = ["fuzz", "--target", "onnxruntime-quant", "--workers", "1", "--seed", "6", "--minutes", "5", "--no-steer"]
    process = started(*words, "--report", report, "--corpus", no_cases(tmp_path), "--json")
    finding(report, process)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1, err.decode()
    assert {f["id"] for f in json.loads(out)["findings"]} == {
        path.name for path in corpus.case_folders(report / "cases")
    }


def test_semaphores_of_a_group_that_was_killed_are_removed_by_the_next_run(tmp_path):
    words = ["fuzz", "--target", "onnxruntime-quant", "--workers", "1", "--seed", "6", "--no-steer", "--cases", "400"]
    process = started(*words, "--report", tmp_path / "report", "--corpus", no_cases(tmp_path), "--json")
    ours = f"sem.driftnet-{process.pid}-*"
    deadline = time.monotonic() + 60
    while not list(SEMAPHORES.glob(ours)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(SEMAPHORES.glob(ours)), "it had none, or somebody else removes them"
    sweep_semaphores()
    assert not list(SEMAPHORES.glob(ours)), "they stay for ever"


def test_a_shard_whose_coordinator_was_killed_while_it_started_ends():
    code = "from driftnet.util.machine import die_with_parent; die_with_parent(2**22 + 1); print('it goes on')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b""), "it waits for ever for work"
