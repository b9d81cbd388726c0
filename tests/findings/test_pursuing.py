"""What a reduction takes for the failure that it was started for."""

from types import SimpleNamespace

import pytest
from driftnet.causes.place import Where
from driftnet.findings import pursuing
from driftnet.findings.trial import Trial
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict, Word
from driftnet.targets.environments import resolve

from tests.support import models

SQRT = ("_mnncengine MNN::CPUUnary::onExecute", "_mnncengine MNN::Pipeline::execute")
OTHER_COPY = ("libMNN.so MNN::CPUUnary::onExecute",)
FLOOR = ("_mnncengine MNN::Tensor::host", "_mnncengine MNN::Pipeline::execute")


@pytest.mark.parametrize(("frames", "taken"), [(SQRT, True), (OTHER_COPY, True), (FLOOR, False), ((), True)])
def test_a_crash_is_reduced_in_its_function_as_far_as_that_is_known(monkeypatch, frames, taken):
    crash = Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV")
    seen = Observation((StageRun("execute", Outcome.CRASH, frames=frames),))
    monkeypatch.setattr(pursuing, "watch", lambda trial, fresh: (crash, seen))
    case = models.relu()
    trial, inquiry = Trial(case, resolve("mnn"), {}, SimpleNamespace()), SimpleNamespace(spent=False)
    reduction = pursuing._Reduction(trial, crash, inquiry, Where("crash", SQRT))
    said = reduction.reproduces(case, {})
    assert bool(said) == taken, f"a crash in {frames or 'no known place'} of one in {SQRT[0]}: {said!r}"
    unplaced = pursuing._Reduction(trial, crash, inquiry).reproduces(case, {})
    assert unplaced, f"where it crashed first is not known, so {frames} may be there: {unplaced!r}"
