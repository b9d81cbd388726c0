"""What was learned survives as a line of JSON, and updating a cause needs no more than that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driftnet.causes import record
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings import arrange, corpus
from driftnet.learning.study import proposal
from driftnet.learning.survey import learn_all, line_of, read_lines, update
from driftnet.learning.trigger import Learned, Score, compare
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve

from tests.support.models import grid
from tests.support.triggers import learned, one

NEEDS_STRIDES = "tests.support.bugs:NEEDS_STRIDES"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


@pytest.fixture(scope="module")
def found(runner: Runner) -> Learned:
    return learned(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 2]), NEEDS_STRIDES, runner, seconds=4)


def test_the_later_of_two_lines_of_a_case_counts(found: Learned, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    old = line_of(found, found.score) | {"sentence": "of an earlier time"}
    file.write_text("".join(json.dumps(line) + "\n" for line in (old, line_of(found, found.score))), encoding="utf-8")
    assert read_lines([file])[found.saved.id]["sentence"].startswith("MaxPool")


@pytest.mark.parametrize(
    ("before", "after"), [(Score(20, right=10, failing=10), "learned"), (Score(20, 20, 10, 10, 10), "had")]
)
def test_a_finding_keeps_the_trigger_that_tells_better_what_fails(
    found: Learned, tmp_path: Path, before: Score, after: str
) -> None:
    any_pool = Trigger(Shape(), (Region((Atom("0.op", "is", "MaxPool"),)),))
    loose = corpus.load(corpus.save(found.saved, tmp_path))
    folder = arrange.found(loose, proposal(replace(found, trigger=any_pool)), tmp_path).parent
    line = line_of(replace(found, score=Score(20, right=18, failing=10, found=9, named=10)), found.score)
    changed = update(tmp_path, {found.saved.id: line | {"before": before.as_json()}})
    cause = record.load(folder)
    assert cause.trigger == {"learned": found.trigger, "had": any_pool}[after]
    assert changed == (after == "learned")
    assert cause.score["right"] == {"learned": 18, "had": 20}[after], "measured anew, whichever it is"


def test_triggers_are_compared_on_the_same_instances(found: Learned, runner: Runner) -> None:
    never = Trigger(Shape(), (Region((Atom("0.op", "is", "Relu"),)),))
    assert found.trigger is not None
    good, bad = compare([found.trigger, never], found, resolve(NEEDS_STRIDES), runner, seed=9, count=12)
    assert (good.instances, good.failing) == (bad.instances, bad.failing)
    assert bad.named == 0
    assert good.right > bad.right, f"{good} against {bad}"


def test_what_was_learned_of_a_variant_stands_beside_what_holds_of_the_whole(found: Learned, tmp_path: Path) -> None:
    loose = corpus.load(corpus.save(found.saved, tmp_path))
    folder = arrange.found(loose, proposal(found), tmp_path).parent
    variant = replace(found.saved, id="test_variant_01234567")
    corpus.save(variant, folder)
    any_pool = Trigger(Shape(), (Region((Atom("0.op", "is", "MaxPool"),)),))
    line = line_of(replace(found, saved=variant, trigger=any_pool, score=Score(instances=20, right=18)), found.score)
    assert update(tmp_path, {variant.id: line | {"before": {}}}) == 1
    cause = record.load(folder)
    assert cause.trigger == found.trigger, "the whole keeps its own"
    assert {id: own.trigger for id, own in cause.each.items()} == {found.saved.id: found.trigger, variant.id: any_pool}


def test_a_trigger_is_not_measured_where_its_own_case_does_not_meet_it(found: Learned, tmp_path: Path) -> None:
    loose = corpus.load(corpus.save(found.saved, tmp_path))
    saved = corpus.load(arrange.found(loose, proposal(found), tmp_path))
    assert saved.cause is not None
    never = Trigger(Shape(), (Region((Atom("0.op", "is", "Relu"),)),))
    saved = replace(saved, target=NEEDS_STRIDES, cause=replace(saved.cause, trigger=never))
    ((_, _, before),) = learn_all([saved], seconds=2, fresh=4)
    assert before is None, f"{before}: a case that does not meet it says nothing of it"


def test_a_trigger_that_names_nothing_is_worth_less_than_one_that_errs_at_times() -> None:
    never, errs = Score(200, right=190, failing=10), Score(200, right=180, failing=10, found=9, named=28)
    assert never.accuracy > errs.accuracy, "as failures are rare"
    assert never.worth == 0.5 < errs.worth
    assert (Score().worth, Score(4, right=4).worth, Score(4, right=4, failing=4, found=4, named=4).worth) == (1, 1, 1)
