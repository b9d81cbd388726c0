"""A trigger that is too narrow becomes as wide as what it missed shows, and no wider than is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driftnet.causes import record
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings import arrange, corpus
from driftnet.findings.issues import issues
from driftnet.findings.pipeline import Care, examine
from driftnet.findings.trial import Trial
from driftnet.learning import mending
from driftnet.learning.mending import SEEDS, mend, missed, remember
from driftnet.learning.study import proposal, study
from driftnet.learning.trigger import Score
from driftnet.model.case import Case
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve

from tests.support.models import grid
from tests.support.triggers import PLAIN, found, one

NEEDS_STRIDES = "tests.support.bugs:NEEDS_STRIDES"
STATED = Atom("0.attr.strides.stated", "is", False)
SMALL = Atom("0.in.0.dim.1", "most", 2)
NARROW = Trigger(Shape(), (Region((Atom("0.op", "is", "MaxPool"), STATED, SMALL)),))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


def pool(op: str, channels: int) -> Case:
    return one(op, grid((1, channels, 4, 4)), kernel_shape=[2, 2])


@pytest.fixture
def root(runner: Runner, tmp_path: Path) -> Path:
    """A corpus of one cause, with a trigger that is too narrow and trusted."""
    finding = found(pool("MaxPool", 2), NEEDS_STRIDES, runner)
    saved = corpus.load(corpus.save(finding.to_save(), tmp_path / "corpus"))
    learned = study(saved, finding.installed, finding.where, runner, seconds=0.3)
    folder = arrange.found(saved, proposal(learned), tmp_path / "corpus").parent
    score = {"instances": 40, "right": 40, "failing": 20, "found": 20, "named": 20, "accuracy": 1.0}
    record.save(replace(record.load(folder), trigger=NARROW, score=score, findings={}), folder)
    return tmp_path / "corpus"


def test_what_a_run_finds_known_the_long_way_is_kept_once_and_what_is_recognized_is_not(
    root: Path, runner: Runner, tmp_path: Path
) -> None:
    known, installed = issues(root), resolve(NEEDS_STRIDES)
    for case in (pool("MaxPool", 3), pool("MaxPool", 3), pool("MaxPool", 2)):
        result = examine(Trial(case, installed, PLAIN, runner), known, care=Care.NONE)
        assert result.known == known[0].id, f"it is known by {result.known!r}, should be by {known[0].id}"
        remember(tmp_path, result.shown)
    (tmp_path / "missed" / "1.jsonl").write_text('{"issue": "of a process that was kil')
    kept = missed([tmp_path])
    assert [*kept] == [known[0].id]
    assert [case.feeds[0]["x0"].shape for case, _ in kept[known[0].id]] == [(1, 3, 4, 4)]


def test_a_trigger_becomes_as_wide_as_what_it_missed(root: Path, runner: Runner) -> None:
    (issue,) = issues(root)
    seen = {issue.id: [(pool("AveragePool", 3), PLAIN)]}
    told = list(mend(root, resolve(NEEDS_STRIDES), runner, seen))
    (cause,) = record.below(root)
    assert cause.trigger is not None
    (region,) = cause.trigger.regions
    assert region.operators(0) == {"MaxPool", "AveragePool"}, f"{told}"
    assert [atom for atom in region.atoms if atom.fact != "0.op"] == [STATED], f"channels do not matter: {told}"
    assert cause.score["accuracy"] == 1.0, f"it was measured anew: {cause.score}"


def test_nothing_is_written_where_what_was_missed_does_not_fail(root: Path, runner: Runner) -> None:
    (issue,) = issues(root)
    sound = one("MaxPool", grid((1, 3, 4, 4)), kernel_shape=[2, 2], strides=[1, 1])
    told = list(mend(root, resolve(NEEDS_STRIDES), runner, {issue.id: [(sound, PLAIN)]}))
    assert record.below(root)[0].trigger == NARROW, f"{told}"


def test_a_trigger_that_errs_on_the_second_seed_is_not_written(
    root: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (issue,), measured = issues(root), mending.compare

    def lucky(*given: Any, seed: int, **named: Any) -> list[Score]:
        had, has = measured(*given, seed=seed, **named)
        return [had, has if seed == SEEDS[0] else Score(40, right=10, failing=20, found=0, named=10)]

    monkeypatch.setattr(mending, "compare", lucky)
    told = list(mend(root, resolve(NEEDS_STRIDES), runner, {issue.id: [(pool("AveragePool", 3), PLAIN)]}))
    assert "given up" in told[0], f"it was tried: {told}"
    assert record.below(root)[0].trigger == NARROW, f"{told}"
