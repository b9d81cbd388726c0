"""Whatever a target says or tells, the harness judges it within its limits, or says that it cannot."""

import resource
import sys
import time
from pathlib import Path

import pytest
from driftnet.findings import trial
from driftnet.findings.trial import Trial, watch
from driftnet.model.signature import coarse
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed

from tests.support import models
from tests.support.hostile_target import ANSWERED, HOSTILE, OUTPUT, SAID, TOLD
from tests.support.rules import assert_each

INSTALLED = Installed(HOSTILE, "tests.support.hostile_target:HOSTILE", "1", sys.executable)
SECONDS, MIB = 4.0, 1280


@pytest.fixture(scope="module")
def hurried():
    with Runner(timeout=1.0, small_models=True) as runner:
        yield runner


def peak_mib():
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def judged(runner, deed):
    """One run of it is judged, or said to take too much, and takes little."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
    begun, before = time.process_time(), peak_mib()
    verdict, _ = watch(Trial(models.relu(), INSTALLED, {"deed": deed}, runner))
    coarse("hostile", verdict)
    assert verdict.failed or (verdict.word is Word.ABSTAINS and verdict.rule == trial.TOO_MUCH), f"is {verdict}"
    assert time.process_time() - begun < SECONDS, f"took {time.process_time() - begun:.1f} s of CPU"
    assert peak_mib() - before < MIB, f"took {peak_mib() - before:.0f} MiB"
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY, "a limit has stayed"


@pytest.mark.parametrize("deeds", [TOLD, SAID, ANSWERED, OUTPUT], ids=["told", "said", "answered", "output"])
def test_no_target_takes_the_harness_down(hurried, monkeypatch, deeds):
    monkeypatch.setattr(trial, "JUDGING_SECONDS", 1.5)
    assert_each(deeds, lambda deed: judged(hurried, deed))
