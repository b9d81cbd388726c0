"""A fuzzing budget inside a suite of tests: its slices are shared out among the workers of pytest-xdist, none examines
what another does, and causes stand in the JUnit file. What is none of driftnet's is left alone."""

import os
import re
import subprocess
import sys
from collections import Counter
from xml.etree import ElementTree

import pytest
from driftnet.commands.sliced import SLICES

from tests.support.paths import ROOT

WORKERS = 2
BROKEN = "tests.support.toy_target:LACKS_ITS_SYSTEM"
"""Each model fails on it, and for one reason."""
BUDGET = ("--driftnet-minutes", "0.01", "--driftnet-target", BROKEN, "--driftnet-corpus", "nothing_known")


def suite(project, *words):
    """A run of pytest in the folder `project`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Somebody's project with a test, and files called as driftnet's are that are none of it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_own.py").write_text("def test_own():\n    pass\n")
    (folder / "nothing_known").mkdir()
    foreign = {"mesh": '{"schema": 1, "coarse": 0.5, "fine": 0.1}', "json5": "// a case\n{coarse: 1}", "list": "[1]"}
    for name, text in foreign.items():
        (folder / name).mkdir()
        (folder / name / "case.json").write_text(text)
        (folder / name / "model.onnx").touch()
    return folder


@pytest.fixture(scope="module")
def fuzzed(project):
    """What pytest-xdist says of a run with a budget, and its properties: of each test, pairs of name and value."""
    done = suite(project, "-v", "-n", str(WORKERS), *BUDGET, "--junitxml", "junit.xml")
    cases = ElementTree.parse(project / "junit.xml").iter("testcase")
    return done, {case.get("name"): [(p.get("name"), p.get("value")) for p in case.iter("property")] for case in cases}


def values(properties, name):
    return [value for those in properties.values() for key, value in those if key == name]


def test_each_slice_is_a_test_and_no_index_is_examined_twice(fuzzed):
    _, properties = fuzzed
    slices = [name for name in properties if name.startswith("fuzz[")]
    assert len(slices) == SLICES * WORKERS, f"the tests are {[*properties]}"
    indices = Counter(index for text in values(properties, "driftnet-indices") for index in text.split())
    assert len(indices) >= len(slices), f"{len(slices)} slices examined {len(indices)} indices"
    assert max(indices.values()) == 1, f"examined more than once: {indices.most_common(3)}"
    assert len(set(values(properties, "driftnet-seed"))) == 1, "the workers had several seeds"


def test_the_workers_share_the_slices(fuzzed):
    done, _ = fuzzed
    ran = set(re.findall(r"^\[(gw\d)\].* driftnet::fuzz", done.stdout, re.MULTILINE))
    assert ran == {"gw0", "gw1"}, done.stdout


def test_a_new_cause_turns_a_slice_red_and_is_a_property(fuzzed):
    done, properties = fuzzed
    red = [name for name, those in properties.items() if "driftnet-cause" in dict(those)]
    assert 1 <= len(red) <= WORKERS, f"{red} have found the one cause, which two workers can only at the same time"
    assert done.returncode == 1, done.stdout
    assert f"{len(red)} failed, {SLICES * WORKERS + 1 - len(red)} passed" in done.stdout, done.stdout
    for cause in values(properties, "driftnet-cause"):
        assert cause.startswith("lacks-its-system_convert_error"), cause
        assert ": an error (error in convert), when:" in cause, cause
        assert f"replay it:  driftnet replay {cause.partition(':')[0][-8:]}" in done.stdout, done.stdout


def test_a_cause_that_is_met_again_is_known_and_turns_nothing_red(fuzzed):
    known = values(fuzzed[1], "driftnet-known")
    causes = {cause.partition(":")[0] for cause in values(fuzzed[1], "driftnet-cause")}
    assert known, "no slice has met it again"
    assert set(known) <= causes, f"known: {known}, found: {causes}"


def test_files_that_are_none_of_driftnets_are_left_alone(project):
    done = suite(project, "-q", "--collect-only")
    assert done.stdout.splitlines()[0] == "test_own.py::test_own", done.stdout
    assert "1 test collected" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--driftnet-minutes", "0"], "--driftnet-minutes is a positive number"),
        (["--driftnet-minutes", "1", "--driftnet-target", "tensorrt"], "there is no target 'tensorrt'"),
        (["--driftnet-minutes", "1", "--driftnet-corpus", "nowhere"], "there is no such folder"),
    ],
    ids=["minutes", "target", "corpus"],
)
def test_a_budget_that_cannot_be_spent_is_a_usage_error(project, words, says):
    done = suite(project, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
