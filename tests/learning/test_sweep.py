"""A sweep shows where triggers fail to name what fails, gives the cause a finding that does, and counts who errs."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from driftnet.causes import record
from driftnet.causes.predicate import ONE_NODE, Atom, Region, Trigger
from driftnet.findings import arrange, corpus
from driftnet.generators import bulk
from driftnet.learning.study import proposal, study
from driftnet.learning.sweep import Sweep, rows_of
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve

from tests.support.models import grid
from tests.support.triggers import PLAIN, found, one

NEEDS_STRIDES = "tests.support.bugs:NEEDS_STRIDES"
POOLS = ("MaxPool", "AveragePool")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


@pytest.fixture(scope="module")
def whole(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep over pools, and a corpus that says of the bug that it is one of MaxPool, whatever its strides."""
    root = tmp_path_factory.mktemp("corpus")
    finding = found(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), NEEDS_STRIDES, runner)
    saved = corpus.load(corpus.save(finding.to_save(), root))
    path = arrange.found(saved, proposal(study(saved, finding.installed, finding.where, runner, seconds=0.5)), root)
    cause = corpus.load(path).cause
    assert cause is not None
    narrow = Trigger(ONE_NODE, (Region((Atom("0.op", "is", "MaxPool"),)),))
    record.update(cause, trigger=narrow, score={"instances": 1.0, "right": 1.0, "accuracy": 1.0})
    sweep = Sweep(root, resolve(NEEDS_STRIDES), runner)
    sweep.load()
    sweep.rows = list(rows_of(sweep.installed, [PLAIN], (bulk.case(5, k, focus=POOLS) for k in range(70)), runner))
    sweep.attribute()
    return sweep


@pytest.fixture
def swept(whole: Sweep, tmp_path: Path) -> Sweep:
    """The same with a corpus of its own."""
    shutil.copytree(whole.root, tmp_path, dirs_exist_ok=True)
    sweep = dataclasses.replace(whole, root=tmp_path)
    sweep.load()
    return sweep


def cause_of(sweep: Sweep) -> record.CauseRecord:
    (cause,) = sweep.records().values()
    return record.load(sweep.root / cause.target / cause.id)


def test_what_a_sweep_saw_of_a_trigger_counts_in_its_score(swept: Sweep) -> None:
    swept.score()
    rows = [row for row in swept.rows if row.op == "MaxPool"]
    failing = sum(row.symptom is not None for row in rows)
    assert 0 < failing < len(rows), f"{failing} of {len(rows)} pools fail: all or none tell nothing"
    got = {name: cause_of(swept).score[name] for name in ("named", "found")}
    assert got == {"named": len(rows), "found": failing}


def test_a_trigger_that_names_what_does_not_fail_is_learned_anew(swept: Sweep) -> None:
    swept.score()
    swept.mend()
    cause = cause_of(swept)
    assert cause.trigger is not None
    named = [row.symptom is not None for row in swept.rows if cause.trigger.holds(row.facts)]
    assert sum(named) >= 0.9 * len(named), f"{sum(named)} of {len(named)} that {cause.trigger} names fail"
    assert 0 < cause.score["instances"] < len(swept.rows), "it is scored on those that it was not learned from"


def test_what_no_trigger_names_becomes_a_finding_of_its_cause(swept: Sweep) -> None:
    swept.widen()
    triggers = [own.trigger for own in cause_of(swept).each.values() if own.trigger]
    missed = [row for row in swept.rows if row.op == "AveragePool" and row.symptom]
    named = [any(trigger.holds(row.facts) for trigger in triggers) for row in missed]
    assert len(named) >= 5, f"{len(named)} failing pools are too few to tell"
    assert sum(named) >= 0.9 * len(named), f"{sum(named)} of {len(named)} are named by {triggers}"
