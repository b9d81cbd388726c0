"""A sweep shows where triggers fail to name what fails, gives the cause a finding that does, and counts who errs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from driftnet.causes import record
from driftnet.causes.predicate import Atom, Region, Trigger
from driftnet.findings import arrange, corpus
from driftnet.generators import bulk
from driftnet.learning.study import proposal, study
from driftnet.learning.sweep import ONE, Sweep, rows_of
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
def swept(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep over pools, and a corpus that says of the bug that it is one of MaxPool, whatever its strides."""
    root = tmp_path_factory.mktemp("corpus")
    finding = found(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), NEEDS_STRIDES, runner)
    saved = corpus.load(corpus.save(finding.to_save(), root))
    path = arrange.found(saved, proposal(study(saved, finding, runner, seconds=0.5)), root)
    cause = corpus.load(path).cause
    assert cause is not None
    narrow = Trigger(ONE, (Region((Atom("0.op", "is", "MaxPool"),)),))
    record.update(cause, trigger=narrow, score={"instances": 1.0, "right": 1.0, "accuracy": 1.0})
    sweep = Sweep(root, resolve(NEEDS_STRIDES), runner)
    sweep.load()
    sweep.rows = list(rows_of(sweep.installed, [PLAIN], (bulk.case(5, k, focus=POOLS) for k in range(70)), runner))
    sweep.attribute()
    sweep.widen()
    sweep.score()
    return sweep


def record_of(sweep: Sweep) -> record.CauseRecord:
    ((_, cause),) = sweep.records().items()
    return record.load(sweep.root / cause.target / cause.id)


def test_what_no_trigger_names_becomes_a_finding_of_its_cause(swept: Sweep) -> None:
    triggers = [own.trigger for own in map(record_of(swept).of_case, record_of(swept).findings) if own.trigger]
    missed = [row for row in swept.rows if row.op == "AveragePool" and row.symptom]
    named = [any(trigger.holds(row.facts) for trigger in triggers) for row in missed]
    assert len(named) >= 5, f"{len(named)} failing pools are too few to tell"
    assert sum(named) >= 0.9 * len(named), f"{sum(named)} of {len(named)} are named by {triggers}"


def test_a_trigger_that_names_what_does_not_fail_is_known_to_err(swept: Sweep) -> None:
    narrow = next(own for own in map(record_of(swept).of_case, record_of(swept).findings) if own.trigger)
    rows = [row for row in swept.rows if row.op == "MaxPool"]
    failing = sum(row.symptom is not None for row in rows)
    assert failing < len(rows), "all pools fail"
    got = {name: narrow.score[name] for name in ("named", "found")}
    assert got == {"named": len(rows), "found": failing}
