"""Whatever a target says or tells, the harness judges it within its limits, or says that it cannot."""

import re
import resource
import sys
import time
from pathlib import Path

import pytest
from driftnet.findings import trial
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial, watch
from driftnet.model.signature import coarse
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.util import apart
from driftnet.util.errors import UserError
from onnx import TensorProto, helper

from tests.support import endless_target, models
from tests.support.deeds import crash, spin_in_c, swell
from tests.support.hostile_deeds import DONE
from tests.support.hostile_target import ANSWERED, HOSTILE, OUTPUT, SAID, TOLD
from tests.support.rules import assert_each

INSTALLED = Installed(HOSTILE, "tests.support.hostile_target:HOSTILE", "1", sys.executable)
SECONDS, MIB = 4.0, 1280


@pytest.fixture(scope="module")
def hurried():
    with Runner(timeout=1.0, small_models=True, hold_crashes=True) as runner:
        yield runner


def peak_mib():
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def judged(runner, deed):
    """One run of it is judged, or said to take too much or to give what is no value, and takes little."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
    begun, before = time.process_time(), peak_mib()
    try:
        verdict, _ = watch(Trial(models.relu(), INSTALLED, {"deed": deed}, runner), fresh=deed in DONE)
        coarse("hostile", verdict)
        assert verdict.failed or (verdict.word is Word.ABSTAINS and verdict.rule == trial.TOO_MUCH), f"is {verdict}"
    except UserError as e:  # its author's mistake
        if e.kind != "target" or not re.search("cannot cross the pipe|has to return", e.message):
            raise
    assert time.process_time() - begun < SECONDS, f"took {time.process_time() - begun:.1f} s of CPU"
    assert peak_mib() - before < MIB, f"took {peak_mib() - before:.0f} MiB"
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY, "a limit has stayed"


@pytest.mark.parametrize(
    ("deed", "seconds", "says"),
    [
        (crash, 0.5, "takes its process down (SIGSEGV)"),
        (spin_in_c, 0.5, "takes more than 0.5 s of CPU time"),
        (swell, 9.0, "takes more than 1024 MiB of memory"),
    ],
    ids=["crash", "loop in C", "memory"],
)
def test_what_judging_does_to_its_process_is_an_abstention(hurried, monkeypatch, deed, seconds, says):
    monkeypatch.setattr(trial, "JUDGING_SECONDS", seconds)
    monkeypatch.setattr(trial, "judge", lambda *args, **kwargs: deed())
    begun, before = time.process_time(), peak_mib()
    verdict, seen = watch(Trial(models.relu(), INSTALLED, {"deed": "gives wrong numbers"}, hurried))
    assert (verdict.word, verdict.rule, seen) == (Word.ABSTAINS, trial.TOO_MUCH, None)
    assert says in verdict.message
    assert time.process_time() - begun < 1, "this process worked"
    assert peak_mib() - before < 64, "this process swelled"


def test_judging_apart_says_what_judging_here_does(hurried, monkeypatch):
    asked = Trial(models.relu(), INSTALLED, {"deed": "gives wrong numbers"}, hurried)
    there = watch(asked)[0]
    monkeypatch.setattr(apart, "_trusting", True)
    assert watch(asked)[0] == there
    assert there.word is Word.DIVERGES


@pytest.mark.parametrize(
    "deeds", [TOLD, SAID, ANSWERED, OUTPUT, DONE], ids=["told", "said", "answered", "output", "done"]
)
def test_no_target_takes_the_harness_down(hurried, monkeypatch, deeds):
    monkeypatch.setattr(trial, "JUDGING_SECONDS", 1.5)
    assert_each(deeds, lambda deed: judged(hurried, deed))


def examined(name, case):
    installed = Installed(getattr(endless_target, name), f"tests.support.endless_target:{name}", "1", sys.executable)
    with Runner(timeout=0.4, small_models=True) as hasty:
        return examine(Trial(case, installed, {}, hasty), ())


def test_what_is_slow_is_judged_and_what_fails_late_is_told_as_that():
    """With four times its limit it comes to an end. (What goes on for ever is found: tests/campaign.)"""
    slow, late = examined("DAWDLING", models.relu()), examined("DOZING", models.relu())
    assert slow.verdict.word is Word.AGREES, f"within its limit it is {slow}"
    assert late.finding, "what fails late is not told"
    assert late.finding.verdict.word is Word.FAILS, f"it is told as {late.finding.verdict}"


def test_a_hang_whose_parts_are_only_slow_is_found_as_it_is():
    """A run of a reduction has a share of the time: what does not come back in it may be slow, and no hang."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    case = models.case(nodes, {"x": models.grid((2, 3))}, outputs=[("y", TensorProto.FLOAT, (2, 3))])
    found = examined("ENDLESS_WHOLE", case).finding
    assert found, "it is lost with what it was reduced to"
    assert (found.verdict.word, len(found.case.proto.graph.node)) == (Word.HANGS, 2)
