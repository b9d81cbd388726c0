"""Confirming a failure, and replaying it: what must be seen again, and where."""

import dataclasses
import re
import subprocess
import sys
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from driftnet import api
from driftnet.cli.report import tables
from driftnet.commands import saved as saved_cases
from driftnet.commands.saved import is_elsewhere
from driftnet.commands.testing import Replayed, replayed
from driftnet.findings import corpus, pipeline, trial
from driftnet.findings.trial import CONFIRMING_RUNS, Trial, confirm, watch
from driftnet.model.verdict import Verdict, Word
from driftnet.run.runner import Runner
from driftnet.targets import environments
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.registry import registered
from driftnet.util.errors import UserError
from driftnet.util.machine import description
from rich.console import Console

from tests.findings.test_corpus import saved_relu
from tests.support import models, mutants
from tests.support.paths import saved_case


def test_a_failure_is_confirmed_in_workers_that_share_no_template(runner):
    installed = Installed(mutants.DEPENDS_ON_LAYOUT, "tests.support.mutants:DEPENDS_ON_LAYOUT", "1", sys.executable)
    verdict, reproduced, _ = confirm(Trial(models.relu(), installed, {}, runner))
    assert (reproduced, verdict.kind) == (CONFIRMING_RUNS, "nondeterministic"), "every worker had one memory layout"


def test_a_failure_is_confirmed_in_heaps_of_several_layouts(runner):
    """A value that was never written is zero in the memory of most processes, and right by chance."""
    installed = Installed(mutants.READS_UNWRITTEN, "tests.support.mutants:READS_UNWRITTEN", "1", sys.executable)
    verdict, reproduced, _ = confirm(Trial(models.relu(), installed, {}, runner))
    assert (reproduced, verdict.kind) == (1, "nondeterministic"), "no worker had memory that is filled"


def test_after_its_budget_a_replay_begins_no_other_case_and_says_how_many_are_left(tmp_path):
    for id in ("test_relu_aaaaaaaa", "test_relu_bbbbbbbb"):
        corpus.save(saved_relu(id=id), tmp_path)
    result = api.replay([tmp_path], runs=1, budget=0)
    assert (len(result["cases"]), result["left"]) == (1, 1)


def test_an_interrupted_replay_tells_what_it_has_come_to(tmp_path, monkeypatch):
    for id in ("test_relu_aaaaaaaa", "test_relu_bbbbbbbb"):
        corpus.save(saved_relu(id=id), tmp_path)
    said, replay_one = [], saved_cases.replay_one

    def interrupted(saved, *args, **given):
        if saved.id.endswith("bbbbbbbb"):
            raise KeyboardInterrupt
        return replay_one(saved, *args, **given)

    monkeypatch.setattr(saved_cases, "replay_one", interrupted)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to tell
        api.replay([tmp_path / "mnn" / "test_relu_bbbbbbbb"], runs=1)
    result = api.replay([tmp_path], runs=1, tell=said.append)
    assert said == ["0 of 2 cases; test_relu_aaaaaaaa", "1 of 2 cases; test_relu_bbbbbbbb"]
    assert (len(result["cases"]), result["left"], api.replay_status(result)) == (1, 1, 2)
    console = Console(record=True, width=120, file=StringIO())
    tables.replay(console, result)
    assert "1 unexpected; 1 not run to the end, interrupted" in console.export_text()


def test_of_several_releases_each_runs_every_case_and_has_a_column(tmp_path, monkeypatch):
    corpus.save(saved_relu(id="test_relu_aaaaaaaa"), tmp_path)
    ours = resolve("mnn")
    other = dataclasses.replace(ours, release="1.0")
    monkeypatch.setattr(saved_cases, "resolve", lambda word, python=None: other if word.endswith("1.0") else ours)
    result = api.replay([tmp_path], target=["mnn==1.0", "mnn"], runs=1)
    assert [case["release"] for case in result["cases"]] == ["1.0", ours.release]
    console = Console(record=True, width=120, file=StringIO())
    tables.replay(console, result)
    head, row, *_ = [line.split() for line in console.export_text().splitlines()]
    assert (head[3:], row[3:]) == (["mnn==1.0", f"mnn=={ours.release}"], ["agrees", "agrees"])


def fail():
    raise UserError("no space", kind="machine")


def test_a_failure_does_not_count_before_the_health_of_the_templates_it_was_seen_in_is_known(runner, monkeypatch):
    installed = Installed(mutants.DEPENDS_ON_LAYOUT, "tests.support.mutants:DEPENDS_ON_LAYOUT", "1", sys.executable)
    monkeypatch.setattr(runner, "check_health", fail)
    monkeypatch.setattr(runner, "turn", lambda: pytest.fail("other templates had their turn first"))
    with pytest.raises(UserError, match="no space"):
        confirm(Trial(models.relu(), installed, {}, runner))


def test_the_health_of_templates_in_which_nothing_failed_is_not_asked_for(runner, monkeypatch):
    installed = resolve("onnxruntime-quant")
    monkeypatch.setattr(runner, "check_health", fail)
    verdict, reproduced, _ = confirm(Trial(models.relu(), installed, {}, runner))
    assert (verdict.word, reproduced) == (Word.AGREES, 0)


@pytest.mark.parametrize(
    ("kind", "seen", "same"),
    [
        ("nondeterministic", Verdict(Word.DIVERGES, stage="execute", kind="wrong-values"), True),
        ("nondeterministic", Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV"), True),
        ("nondeterministic", Verdict(Word.CRASHES, stage="convert", kind="SIGSEGV"), False),
        ("nondeterministic", Verdict(Word.AGREES), False),
        ("stale-state", Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV"), False),
    ],
)
def test_what_lies_in_memory_may_end_a_run_as_well_as_change_its_results(kind, seen, same):
    saved = saved_relu(verdict=Verdict(Word.DIVERGES, stage="execute", kind=kind))
    assert pipeline.reproduces(saved, seen) is same


def saved_at_times(folder, **changes):
    failure = Verdict(Word.DIVERGES, stage="execute", kind="nondeterministic", message="y is wrong")
    return corpus.save(saved_relu(status="flaky", runs=5, reproduced=1, verdict=failure, recipe={}, **changes), folder)


def test_what_fails_at_times_is_run_until_it_does_before_there_is_nothing_to_reduce(tmp_path):
    folder = saved_at_times(tmp_path / "in")
    found = api.reduce(folder, target="tests.support.mutants:READS_UNWRITTEN", out=tmp_path / "out")
    assert found["nodes"] == 1


def test_of_what_failed_at_times_and_does_not_it_is_told_how_often_it_did(tmp_path):
    folder = saved_at_times(tmp_path)
    with pytest.raises(UserError, match=r"did not fail in \d+ runs, or not again; of 5 runs it showed in 1") as raised:
        api.reduce(folder, out=tmp_path / "out")
    assert "try again" in raised.value.hint
    console = Console(record=True, width=120, file=StringIO())
    tables.replay(console, api.replay([folder], runs=2))
    assert "did not fail in 2 runs; of 5 runs it showed in 1 when it was saved: driftnet" in console.export_text()


def test_a_case_that_is_not_judged_is_not_said_to_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_cases, "watch", lambda one, fresh: (Verdict(Word.ABSTAINS, message="noise"), None))
    case = api.replay([saved_at_times(tmp_path)], runs=1)["cases"][0]
    assert (case["outcome"], case["as_expected"]) == ("abstains", True)


ABSENT = "released"
ANOTHER = {"cpu_features": ["of", "another", "machine"]}


@pytest.mark.parametrize(
    ("depends", "machine", "answers", "elsewhere"),
    [
        ("", ANOTHER, {"another"}, False),
        ("cpu", description(), {"another"}, False),
        ("cpu", ANOTHER, {"same"}, True),
        ("heap", ANOTHER, {"same", "another"}, False),
        ("heap", description(), {"another"}, True),
    ],
)
def test_a_case_is_elsewhere_only_where_what_it_was_measured_to_depend_on_is_another(
    depends, machine, answers, elsewhere
):
    saved = saved_relu(depends=depends, machine=machine, answer="same")
    assert is_elsewhere(saved, answers) is elsewhere


@pytest.fixture
def failing():
    """A case of the corpus that fails everywhere, as if it had been saved on another machine."""
    saved = corpus.load(saved_case("f56c53d6"))
    return dataclasses.replace(saved, machine=ANOTHER, answer="another", status="open")


@pytest.fixture
def folder(failing, tmp_path):
    return corpus.save(failing, tmp_path)


def test_an_open_case_that_fails_is_as_expected(folder):
    result = api.replay([folder], runs=1)
    assert [(c["outcome"], c["as_expected"]) for c in result["cases"]] == [("reproduces", True)]
    assert api.replay_status(result) == 3


@pytest.mark.parametrize("depends", ["", "heap"])
def test_on_a_mended_target_an_open_case_is_unexpected_unless_it_depends_on_the_heap(failing, tmp_path, depends):
    folder = corpus.save(dataclasses.replace(failing, depends=depends), tmp_path)
    result = api.replay([folder], target="tests.support.plain:MENDED", runs=1)
    assert [(c["outcome"], c["as_expected"]) for c in result["cases"]] == [("agrees", depends != "")]
    assert api.replay_status(result) == (0 if depends else 1)


@pytest.mark.parametrize("depends", ["", "heap"])
def test_with_a_judge_that_always_agrees_an_open_case_is_unexpected(failing, tmp_path, monkeypatch, depends):
    installed = resolve("mnn")
    with Runner() as runner:
        answer = watch(Trial(failing.case, installed, failing.recipe, runner))[1].digest
    folder = corpus.save(dataclasses.replace(failing, depends=depends, answer=answer), tmp_path)
    monkeypatch.setattr(trial, "judge", lambda *args, **kwargs: Verdict(Word.AGREES))
    result = api.replay([folder], runs=1)
    assert [(c["outcome"], c["as_expected"]) for c in result["cases"]] == [("agrees", False)]
    assert api.replay_status(result) == 1


def test_pytest_is_red_where_a_target_was_mended_and_green_where_it_was_not(folder, runner, monkeypatch):
    said = replayed(folder, runner)
    assert (said.failure, said.excuse[:5]) == ("", "open:")
    monkeypatch.setattr(saved_cases, "resolve", lambda word, python: resolve("tests.support.plain:MENDED"))
    failure = replayed(folder, runner).failure
    assert "is open, but on mnn==" in failure
    assert "it agrees" in failure


def test_a_case_of_a_system_that_is_not_installed_is_skipped_by_pytest_and_left_out_beside_others(
    tmp_path, runner, monkeypatch
):
    monkeypatch.setattr(
        environments, "registered", lambda: registered() | {ABSENT: "tests.support.toy_target:RELEASED"}
    )
    there = corpus.save(saved_relu(id="test_relu_aaaaaaaa", recipe={}), tmp_path)
    absent = corpus.save(saved_relu(id="test_relu_bbbbbbbb", recipe={}, target=ABSENT), tmp_path)
    assert replayed(absent, runner)._replace(absent="") == Replayed()
    assert f"--target {ABSENT}==RELEASE asks a release" in replayed(absent, runner).absent
    result = api.replay([tmp_path], runs=1)
    assert ([case["id"] for case in result["cases"]], result["absent"]) == ([there.name], {ABSENT: 1})
    with pytest.raises(UserError, match="needs the package driftnet-toy"):
        api.replay([absent], runs=1)


@pytest.mark.parametrize(
    ("command", "status", "release"),
    [
        (api.replay, "open", "1.10"),
        (api.replay, "fixed", "1.12"),
        (partial(api.reduce, out=Path("smaller")), "open", "1.10"),
    ],
)
def test_a_case_alone_of_a_system_that_is_not_installed_is_asked_of_the_newest_release_that_is_as_its_status_says(
    tmp_path, monkeypatch, command, status, release
):
    def asked(distribution, release, companions):
        raise UserError(f"an environment for {distribution} {release}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environments, "environment", asked)
    monkeypatch.setattr(
        environments, "registered", lambda: registered() | {ABSENT: "tests.support.toy_target:RELEASED"}
    )
    releases = {"seen": ("1.9", "1.10", "1.2"), "not_seen": ("1.12", "1.11")}
    absent = corpus.save(saved_relu(recipe={}, target=ABSENT, status=status, **releases), tmp_path)
    with pytest.raises(UserError, match=f"an environment for driftnet-toy {re.escape(release)}"):
        command([absent] if command is api.replay else absent)


def test_pytest_fails_for_an_open_case_that_the_target_gets_right(tmp_path):
    corpus.save(saved_relu(recipe={}, machine=ANOTHER, answer="another"), tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, "is open, but on mnn==" in done.stdout) == (1, True), done.stdout
