"""A red test: a failure under Hypothesis is reduced by driftnet, saved, and shown so that one knows what to do."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from driftnet import cases
from driftnet.commands import redtest, testing
from driftnet.commands.testing import Divergence, Examiner, Settled
from driftnet.findings import corpus
from driftnet.findings import trial as trials
from driftnet.model.inspect import elements, nodes
from driftnet.model.signature import other_name
from driftnet.model.verdict import Verdict, Word
from driftnet.util.errors import UserError
from hypothesis import given, settings

from tests.support import models
from tests.support.paths import ROOT, saved_case

WHERE = "from another folder it is called"

BUG = "tests.support.bugs:NEGATES_LONG_MAXIMA"
RED = f"""
from driftnet import cases
from hypothesis import given, settings

@settings(deadline=None, derandomize=True, max_examples=40)
@given(case=cases(focus="ReduceMax", max_nodes=4))
def test_models_run(driftnet, case):
    driftnet.check(case, "{BUG}")
"""


@pytest.fixture(scope="module")
def red(tmp_path_factory):
    """What pytest says of the test on 80 columns, and the folder of its project."""
    project = tmp_path_factory.mktemp("project")
    (project / "test_red.py").write_text(RED)
    (project / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, f"the test is not red, but ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout, project


@pytest.fixture(scope="module")
def saved(red):
    """The case that the red test has saved."""
    (found,) = corpus.load_all(red[1] / ".driftnet")
    return found


def test_what_a_red_test_saves_is_reduced_and_has_a_cause(saved):
    assert (nodes(saved.case), elements(saved.case)) <= (1, 8), f"{saved.case} could be smaller"
    assert [node.op_type for node in saved.case.proto.graph.node] == ["ReduceMax"], f"{saved.case} is of another bug"
    assert saved.cause.trigger is not None, "nobody learned when it fails"


@pytest.mark.parametrize(
    "shown",
    [
        r"silently wrong values \(wrong-values in \w+\),\s+when:\s+ReduceMax",
        r"should be",
        r"the smallest model that shows it has 1 node and \d elements?\n\(\d+ nodes and \d+ elements were drawn\)",
        r"y = ReduceMax",
        r"input x: float",
        r"expected y: float",
        r"actual y: float",
        r"wrong in y: \[.*\] is \S+, should be \S+",
        r"driftnet replay [0-9a-f]{8}\n",
        r"FAILED test_red.py::test_models_run",
    ],
)
def test_a_red_test_shows(red, shown):
    text = re.sub(r"\nE +", "\n", red[0])
    assert re.search(shown, text), f"/{shown}/ is not in\n{red[0]}"


def test_a_red_test_shows_lines_that_fit_a_terminal_and_no_code_but_the_persons(red):
    said = red[0].splitlines()
    long = [line for line in said if len(line) > 80 and line.startswith("E") and WHERE not in line]
    assert long == [], "lines that 80 columns fold"
    foreign = [line for line in said if re.match(r"\S+\.py:\d+:", line) and not line.startswith("test_red.py")]
    assert foreign == [], "frames of the traceback that are not the person's"


def test_the_path_that_a_red_test_names_is_found_from_another_folder(red, saved):
    path = re.search(rf"{WHERE} (\S+)", red[0])[1]
    assert path == str(saved.path.resolve())


def test_the_digits_that_a_red_test_names_are_found_by_every_command(red, saved):
    digits = re.search(r"driftnet replay (\w{8})", red[0])[1]
    assert saved.path.name.endswith(digits), f"{digits} is not the end of {saved.path.name}"
    code = f"from pathlib import Path; from driftnet.findings.names import located; print(located(Path('{digits}')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=red[1], capture_output=True, text=True)
    assert done.stdout.strip() == os.path.relpath(saved.path.parent, red[1]), done.stderr


def test_a_failure_that_a_case_of_driftnets_own_explains_is_called_by_it_and_not_saved(runner, tmp_path):
    known = corpus.load(saved_case("397c7100"))
    with pytest.raises(Divergence) as caught:
        Examiner(runner, found=tmp_path).check(known.case, known.target, known.recipe)
    said = " ".join(str(caught.value).split())
    assert "it is known: 397c7100" in said, said
    assert " ".join(known.cause.title.split()) in said, said
    assert 'driftnet.knowing("corpus")' in said
    assert list(tmp_path.rglob("case.json")) == [], "it is saved another time"


def test_hypothesis_runs_a_failed_test_no_longer_than_to_the_next_case(monkeypatch, runner, tmp_path):
    examiner, drawn = Examiner(runner, found=tmp_path), []
    monkeypatch.setattr(examiner, "_answer", lambda trial: Divergence("it is broken"))

    @settings(database=None, max_examples=20, deadline=None)
    @given(case=cases())
    def test(case):
        drawn.append(case.digest)
        examiner.check(case, "mnn")

    with pytest.raises(Settled, match="it is broken"):
        test()
    assert len(set(drawn)) == 2, f"{len(set(drawn))} cases were drawn, should be the one that failed and the next"


def test_a_case_that_failed_fails_again_without_a_run(monkeypatch, runner, tmp_path):
    examiner = Examiner(runner, found=tmp_path)
    runs = iter([Divergence("it is broken")])
    monkeypatch.setattr(examiner, "_answer", lambda trial: next(runs))
    for _ in range(2):
        with pytest.raises(Divergence, match="it is broken"):
            examiner.check(models.relu(), "mnn")


def test_a_saved_case_that_explains_a_failure_keeps_the_test_green(red, saved, runner, tmp_path):
    examiner = Examiner(runner, found=tmp_path / "found").knowing(red[1] / ".driftnet")
    assert examiner.check(saved.case, BUG, saved.recipe) == "diverges"
    assert not (tmp_path / "found").exists(), "what is known is saved as new"


@pytest.mark.parametrize("fails", [True, False])
def test_what_has_the_name_of_a_fixed_case_is_called_otherwise_unless_that_has_come_back(
    saved, runner, tmp_path, monkeypatch, fails
):
    fixed = replace(saved, status="fixed", case=saved.case if fails else models.relu(), cause=None)
    corpus.save(fixed, tmp_path / "corpus")
    monkeypatch.setattr(testing, "study", lambda saved, *rest: pytest.fail(saved.id))  # what it is called by then
    examiner = Examiner(runner, found=tmp_path / "found").knowing(tmp_path / "corpus")
    with pytest.raises(pytest.fail.Exception) as raised:
        examiner.check(saved.case, BUG, saved.recipe)
    assert str(raised.value) == (saved.id if fails else other_name(saved.id))


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_the_target_made_of_it_is_shown_of_a_run_that_failed(saved, runner, tmp_path, monkeypatch, comes_back):
    def watched(trial, fresh):
        verdict, seen = trials.watch(trial, fresh=fresh)
        return verdict if comes_back else Verdict(Word.AGREES), seen

    monkeypatch.setattr(testing, "watch", watched)
    with pytest.raises(Divergence) as raised:
        Examiner(runner, found=tmp_path).check(saved.case, BUG, saved.recipe)
    assert ("actual y: float" in str(raised.value)) == comes_back, raised.value


@pytest.mark.parametrize(
    ("call", "says", "hint"),
    [
        (lambda examiner: examiner.knowing("nowhere"), "nowhere: there is no such folder", "driftnet fuzz"),
        (lambda examiner: examiner.check(models.relu(), "tensorrt"), "there is no target 'tensorrt'", "mnn"),
        (
            lambda examiner: examiner.check(models.relu(), "mnn", {"threds": 1}),
            "has no option 'threds'",
            "did you mean threads?",
        ),
    ],
    ids=["knowing", "target", "option"],
)
def test_a_bad_argument_raises_what_the_command_line_says(runner, tmp_path, call, says, hint):
    with pytest.raises(UserError, match=re.escape(says)) as raised:
        call(Examiner(runner, found=tmp_path))
    assert hint in raised.value.hint, f"the hint is {raised.value.hint!r}"
    assert raised.value.__notes__ == [raised.value.hint], "nobody who does not catch it sees the hint"


def test_a_case_shows_what_is_in_it_however_it_is_printed():
    case = models.relu()
    assert re.fullmatch(r"Case\(Relu; x: float32\[.*\]\)", repr(case)), repr(case)


def test_wrong_elements_are_told_the_worst_first():
    expected, actual = {"y": np.float32([1, 2, np.nan])}, {"y": np.float32([1, 5, 0])}
    *_, line = redtest.values([{}], [expected], [actual])
    assert line == "wrong in y: [2] is 0.0, should be nan; [1] is 5.0, should be 2.0"


@pytest.mark.parametrize(
    ("model", "feeds", "says"),
    [
        (b"no model", [{"x": np.float32([1])}], "the model of the case cannot be read"),
        (None, [], "the case has no feeds; its model reads x"),
        (None, [{"y": np.float32([1])}], "a feed lacks input 'x'"),
        (None, [{"x": np.float64([1])}], "dtype float64, the model expects float32"),
    ],
)
def test_a_case_that_says_nothing_of_a_target_is_the_mistake_of_the_test(runner, model, feeds, says):
    case = replace(models.relu(), model=model or models.relu().model, feeds=tuple(feeds))
    with pytest.raises(UserError, match=says):
        Examiner(runner).check(case, BUG)
