"""A new finding has a cause at once: its own, or that of something known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driftnet.findings import arrange, corpus
from driftnet.findings.issues import KnownIssue
from driftnet.findings.pipeline import examine
from driftnet.findings.pursuing import Finding
from driftnet.findings.trial import Trial
from driftnet.learning import study as study_module
from driftnet.learning.study import at_sight, proposal, settled, sharing, study
from driftnet.model.case import Case
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from onnx import helper

from tests.support.models import grid
from tests.support.triggers import PLAIN, found, one, some

NEEDS_STRIDES = "tests.support.bugs:NEEDS_STRIDES"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


def pool(op: str = "MaxPool", size: int = 6, **attributes: object) -> Case:
    return one(op, grid((1, 2, size, size)), kernel_shape=[2, 2], **attributes)


@pytest.fixture(scope="module")
def known(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> KnownIssue:
    """A new finding of a campaign, with the cause that it got."""
    root = tmp_path_factory.mktemp("corpus")
    finding = found(pool(), NEEDS_STRIDES, runner)
    saved = corpus.load(corpus.save(finding.to_save(), root))
    path = arrange.found(saved, proposal(study(saved, finding.installed, finding.where, runner)), root)
    assert corpus.folders([root]) == [path], "the loose case has gone"
    return KnownIssue(corpus.load(path))


def test_a_new_finding_stands_under_its_cause_and_another_one_of_that_shares_it(
    runner: Runner, known: KnownIssue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known.saved.cause is not None
    assert "without `strides`" in known.saved.cause.sentence, known.saved.cause

    other = found(pool("AveragePool", size=9), NEEDS_STRIDES, runner)
    learned = study(other.to_save(), other.installed, other.where, runner, seconds=1.0)
    assert sharing(learned, other.installed, [known], runner) is known, f"{learned.trigger}, should be of one cause"

    asked = list[KnownIssue]()

    def differs(issue: KnownIssue) -> str:
        asked.append(issue)
        return "mended since 1"

    monkeypatch.setattr(study_module, "difference", lambda trial: differs)
    unlike = KnownIssue(replace(known.saved, id="test_unlike", coarse="a/b/c"))
    assert sharing(learned, other.installed, [unlike, known], runner) is None, "another release tells them apart"
    assert asked == [known], "runs are for what would be taken for its cause"


def test_what_a_person_merged_or_split_off_is_asked_before_place_and_trigger(runner: Runner, known: KnownIssue) -> None:
    alike = found(pool("AveragePool", size=9), NEEDS_STRIDES, runner)
    unlike = found(one("ReduceMax", grid((2, 3, 4)), axes=[0, 1]), "tests.support.bugs:NEGATES_LONG_MAXIMA", runner)
    for finding, shares in ((alike, True), (unlike, False)):
        learned = study(finding.to_save(), finding.installed, finding.where, runner, seconds=1.0)
        for said, shared in (({}, shares), ({"apart": True}, False), ({"together": True}, True)):
            told = dict.fromkeys(said, (learned.saved.id,))
            issue = KnownIssue(replace(known.saved, cause=replace(known.saved.cause, **told)))
            got = sharing(learned, finding.installed, [issue], runner)
            assert (got is issue) == shared, f"{learned.saved.id} is said to be {said}: {got}, should share: {shared}"


def test_two_bugs_of_one_target_share_no_cause(runner: Runner, known: KnownIssue) -> None:
    other = found(one("ReduceMax", grid((2, 3, 4)), axes=[0, 1]), "tests.support.bugs:NEGATES_LONG_MAXIMA", runner)
    learned = study(other.to_save(), other.installed, other.where, runner, seconds=1.0)
    assert sharing(learned, other.installed, [known], runner) is None


def test_what_an_optimizer_says_and_what_is_said_without_it_share_no_cause_at_sight(runner: Runner) -> None:
    def behind(op: str) -> Finding:
        nodes = [helper.make_node("Exp", ["x"], ["t"]), helper.make_node(op, ["t"], ["y"])]
        return found(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]), "tests.support.bugs:REFUSES_TWICE", runner)

    ceil, fused = behind("Ceil"), behind("Abs")
    saved = replace(ceil.to_save(), cause=arrange.loose(ceil.to_save()))
    known = KnownIssue(replace(saved, cause=replace(saved.cause, place=ceil.where)))
    other = replace(ceil.to_save(), id="test_other")
    for new, finding, shared in ((other, ceil, known), (fused.to_save(), fused, None)):
        seen = at_sight(new, finding.installed, finding.where, runner)
        assert seen.where.optimizers == (() if shared else ("ReshapeFusion",)), f"{seen.where} is where {new.id} fails"
        assert sharing(seen, finding.installed, [known], runner) is shared, f"{new.id} and {known.id}: {seen.where}"


def test_a_case_that_lies_loose_gets_a_cause_and_the_next_one_like_it_joins_that(
    runner: Runner, tmp_path: Path
) -> None:
    places = []
    for case in (pool(), pool("AveragePool", size=9)):
        finding = found(case, NEEDS_STRIDES, runner)
        places.append(settled(corpus.save(finding.to_save(), tmp_path), finding.installed, runner, tmp_path))
    first, second = (corpus.load(place).cause for place in places)
    assert first is not None
    assert second is not None
    assert first.id == second.id, (first.title, second.title)
    assert "without `strides`" in first.sentence


def test_a_case_that_does_not_fail_here_stays_as_it_lies(runner: Runner, tmp_path: Path) -> None:
    finding = found(pool(), NEEDS_STRIDES, runner)
    folder = corpus.save(finding.to_save(), tmp_path)
    assert settled(folder, resolve("mnn"), runner, tmp_path) == folder
    assert corpus.load(folder).cause is None


def test_what_is_brought_elsewhere_stays_with_its_cause(runner: Runner, tmp_path: Path) -> None:
    run, home = tmp_path / "run", tmp_path / "corpus"
    finding = found(pool(), NEEDS_STRIDES, runner)
    saved = corpus.load(corpus.save(finding.to_save(), run))
    path = arrange.found(saved, proposal(study(saved, finding.installed, finding.where, runner, seconds=0.5)), run)
    there = corpus.load(arrange.brought(path, home))
    before = corpus.load(path).cause
    assert there.cause is not None
    assert before is not None
    assert (there.cause.id, there.cause.trigger) == (before.id, before.trigger)
    assert arrange.brought(path, home) == there.path, "once is enough"
    assert sorted(p.name for p in there.path.iterdir()) == ["case.json", "model.onnx", "test_data_set_0"]


def test_a_finding_that_was_merged_into_a_cause_and_is_not_kept_is_known_by_its_name(runner: Runner) -> None:
    trial = Trial(pool(), resolve(NEEDS_STRIDES), PLAIN, runner)
    new = examine(trial)
    assert new.finding, f"{new.verdict} is no finding"
    assert not new.known, "nothing is known"
    other = replace(new.finding.to_save(), id="test_other", case=one("ReduceMax", grid((2, 3))), coarse="a/b/c")
    cause = replace(arrange.loose(other), merged={new.finding.to_save().id: ""})
    issues = [KnownIssue(replace(other, cause=said)) for said in (arrange.loose(other), cause)]
    assert [examine(trial, [issue]).known for issue in issues] == ["", "test_other"]
