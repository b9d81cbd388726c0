"""The negative control is looked for among the changes that may take the failure away."""

from types import SimpleNamespace

import pytest
from driftnet.findings.corpus import SavedCase
from driftnet.findings.trial import Trial
from driftnet.handover import control
from driftnet.learning.experiment import Sample
from driftnet.learning.pairs import Change
from driftnet.model.verdict import Observation, Verdict, Word

from tests.support import models

CASE = models.relu()
VERDICT = Verdict(Word.DIVERGES, stage="execute", kind="wrong-values", message="y is wrong")
SAVED = SavedCase("test_relu_01234567", CASE, (), "mnn", {}, "coarse", "fine", VERDICT)
RUNNER = SimpleNamespace(all_cpu_seconds=0.0)


def test_a_change_that_was_seen_not_to_help_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    wanted = [Change("0.attr.axis", said, lambda said=said: made.append(said)) for said in ("1", "2", "3")]
    samples = [
        Sample(CASE, {}, "pair", fails=True, facts=None, aspect="0.attr.axis", said="1"),
        Sample(CASE, {}, "pair", fails=False, facts=None, aspect="0.attr.axis", said="2", agrees=True),
    ]
    monkeypatch.setattr(control.Search, "changes", lambda search: iter(wanted))
    search = control.search(SAVED, Trial(CASE, None, {}, RUNNER), VERDICT, samples=samples)
    assert list(search.found()) == [], "none of these changes makes a model"
    assert made == ["2", "3"], "what fails still, and only that, is known not to help"
    assert search.tried == 1, "a model that was run before counts as tried"


def test_a_control_is_run_in_heaps_of_every_layout_and_both_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = Verdict(Word.CRASHES, stage="execute", kind="SIGABRT")
    saved = SavedCase("test_relu_01234567", CASE, (), "mnn", {}, "coarse", "fine", crash)
    turns, seen, ran = [0], set[tuple[int, int]](), Observation(())
    runner = SimpleNamespace(all_cpu_seconds=0.0, turn=lambda: turns.append(1 - turns[-1]))

    def watch(trial: Trial, *, fresh: bool) -> tuple[Verdict, Observation | None]:
        seen.add((turns[-1], trial.layout))
        return Verdict(Word.AGREES), ran

    monkeypatch.setattr(control, "watch", watch)
    search = control.search(saved, Trial(CASE, None, {}, runner), crash)
    assert search.agreeing(search.trial) is ran
    assert seen == {(turn, layout) for turn in (0, 1) for layout in range(4)}, "some heap was never tried"


def test_only_a_change_of_how_a_model_is_written_computes_the_same():
    said = {"0.attr.epsilon.stated": "1e-05", "0.in.1.initializer": "Constant", "symbolic": "none"}
    others = {"0.attr.epsilon": "0.5", "0.attr.alpha.stated": "left out", "values": "other", "0.in.1.given": "no"}
    kept = [aspect for aspect, value in (said | others).items() if control.is_same_model(Change(aspect, value, None))]
    assert kept == [*said]
