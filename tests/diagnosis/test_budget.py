"""A check ends at its budget, whatever its target does, and what was cut off for that is called nothing else."""

import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from driftnet.diagnosis.check import check
from driftnet.diagnosis.inquiry import BUDGET
from driftnet.findings.explaining import Effort
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import BUDGET as UNFINISHED
from driftnet.run.runner import Runner
from driftnet.run.sandbox.allowance import PATIENCE, Allowance
from driftnet.targets.environments import Installed
from onnx import TensorProto, helper

from tests.support import models
from tests.support.endless_target import DEEDS, ENDLESS, ENDLESS_IN_PARTS, LATE, SLOW

SECONDS = 0.8
ONE = np.ones(1, np.float32)
MORE = 0.3
"""For ending what is cut off, for the reference and for templates that are read in: of the CPU time of starting."""


@pytest.fixture
def patient():
    """A runner whose stages may take far longer than a budget."""
    with Runner(timeout=60.0, small_models=True) as runner:
        runner.observe(models.relu(), trial(runner, "shout").installed, {}, timeout=0.01)
        runner.reference.run(models.relu())
        yield runner


@pytest.fixture
def most(patient):
    """CPU seconds that may be used under a budget of SECONDS, on this machine."""
    return SECONDS + MORE * patient.all_cpu_seconds


@pytest.fixture
def unhurried(monkeypatch):
    """Wall time counts for nothing."""
    monkeypatch.setattr("driftnet.run.sandbox.allowance.PATIENCE", 1000.0)


def trial(runner, deed, target=ENDLESS):
    name = target.name.upper().replace("-", "_")
    installed = Installed(target, f"tests.support.endless_target:{name}", "1", sys.executable)
    return Trial(models.relu(), installed, {"deed": deed} if deed else {}, runner)


@pytest.mark.parametrize("deed", DEEDS)
def test_a_check_ends_at_its_budget(patient, most, deed):
    begun, before = time.monotonic(), patient.all_cpu_seconds
    verdict = check(trial(patient, deed), (), seconds=SECONDS).verdict
    assert patient.all_cpu_seconds - before < most
    assert patient.all_cpu_seconds - before > SECONDS or time.monotonic() - begun >= PATIENCE * SECONDS
    assert (verdict.word, verdict.rule) == (Word.ABSTAINS, BUDGET)
    assert "the budget was spent before the model was judged: execute was cut off after" in verdict.message


def test_a_stage_that_takes_its_whole_time_within_the_budget_hangs(patient):
    with Runner(timeout=0.2, small_models=True) as hasty:
        checked = check(trial(hasty, "spin_in_c"), (), seconds=20.0)
    assert checked.verdict.word is Word.HANGS
    assert checked.diagnoses[0].examination.finding, "it is not reduced"


@pytest.mark.usefixtures("unhurried")
def test_a_failure_that_no_time_is_left_to_see_again_is_none_yet(patient):
    verdict = check(trial(patient, "", SLOW), (), seconds=1.5 * LATE).verdict
    assert (verdict.word, verdict.rule) == (Word.ABSTAINS, BUDGET)
    assert "before fresh processes could show it again" in verdict.message
    assert "too late" in verdict.message, "what failed is not told"


@pytest.mark.usefixtures("unhurried")
def test_a_failure_that_was_seen_again_is_one_though_no_time_is_left_to_examine_it(patient):
    checked = check(trial(patient, "", SLOW), (), seconds=2.9 * LATE)
    assert checked.verdict.word is Word.FAILS
    assert checked.diagnoses == ()


@pytest.mark.usefixtures("unhurried")
def test_a_failure_that_was_seen_again_is_one_though_no_time_is_left_to_reduce_it(patient):
    checked = check(trial(patient, "", SLOW), (), seconds=6.9 * LATE)
    assert checked.verdict.word is Word.FAILS
    assert checked.diagnoses[0].examination.finding is None


def test_a_reduction_ends_at_its_effort_with_what_it_has(patient, most):
    relus = [helper.make_node("Relu", ["x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    two = models.case(relus, {"x": ONE}, outputs=[("y", TensorProto.FLOAT, (1,))])
    asked = replace(trial(patient, "", ENDLESS_IN_PARTS), case=two)
    before = patient.all_cpu_seconds
    finding = examine(asked, effort=Effort(seconds=SECONDS)).finding
    assert SECONDS < patient.all_cpu_seconds - before < most
    assert finding.ended == UNFINISHED
    assert len(finding.case.proto.graph.node) == 2, "what it was cut off from counts as seen"


def test_of_two_allowances_the_narrower_holds(patient):
    wide, narrow = patient.allow(10.0), patient.allow(5.0)
    for outer, inner in ((wide, narrow), (narrow, wide)):
        with patient.within(outer):
            with patient.within(inner):
                assert patient.allowance is narrow
            assert patient.allowance is outer


@pytest.mark.parametrize(
    ("used", "ago", "says"),
    [
        (4.0, 30.1, "in 30 s of time 4 of 10 CPU"),
        (4.0, 20.0, "in 20 s of time 4 of 10 CPU"),
        (10.0, 30.1, ""),
        (7.0, 20.0, ""),
    ],
)
def test_that_the_machine_was_busy_is_told_where_time_runs_out_before_the_budget(used, ago, says):
    allowance = Allowance(lambda: 100.0 + used, 110.0, time.monotonic() + 30.0 - ago, seconds=10.0)
    assert says in allowance.late
    assert bool(allowance.late) is bool(says)


def test_nothing_is_asked_once_an_allowance_is_spent_and_everything_after_it(patient):
    asked = trial(patient, "shout")
    with patient.within(patient.allow(0.0)):
        begun = patient.all_cpu_seconds
        with pytest.raises(ExhaustedError, match="nothing more was run"):
            look(asked)
        assert patient.all_cpu_seconds - begun < 0.1, "something was asked"
        patient.check_health()
    assert patient.reference.run(asked.case).outputs, "what was cut off is remembered as an answer"
