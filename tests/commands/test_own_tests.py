"""A red test of somebody's own toolchain, which driftnet knows nothing of: what fails is reduced with that test."""

import os
import re
import subprocess
import sys

import onnx
import pytest
from driftnet.findings import corpus
from driftnet.model.inspect import nodes

from tests.support.paths import ROOT

OWN = """
import onnx
import pytest
from driftnet import cases
from hypothesis import given, note, settings

def my_toolchain(model):
    operators = [node.op_type for node in model.graph.node]
    if "Softmax" in operators and operators[-1] != "Softmax":
        raise RuntimeError("Softmax is only supported as the last operator")

class Test:
    @settings(derandomize=True, deadline=None, max_examples=50)
    @given(case=cases(focus="Softmax", max_nodes=4))
    def test_converts(self, case, tmp_path_factory):
        note("converting")
        my_toolchain(case.proto)

@settings(derandomize=True, max_examples=5)
@given(case=cases())
def test_green(case):
    pass
"""


@pytest.fixture(scope="module")
def red(tmp_path_factory):
    """What pytest says of the test, and the folder of its project."""
    project = tmp_path_factory.mktemp("project")
    (project / "test_own.py").write_text(OWN)
    (project / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout, f"{done.stdout}{done.stderr}"
    return done.stdout, project


def test_the_case_is_reduced_by_the_test_itself_and_saved(red):
    (folder,) = (red[1] / ".driftnet" / "own").iterdir()
    case, expected = corpus.read_model(folder)
    operators = [node.op_type for node in case.proto.graph.node]
    assert (nodes(case), operators[0]) == (2, "Softmax"), f"{case} could be smaller"
    onnx.checker.check_model(case.proto)
    assert expected, "what onnxruntime makes of it is not saved"


@pytest.mark.parametrize(
    "shown",
    [
        r"RuntimeError: Softmax is only supported as the last operator\n",
        r"the smallest model that shows it has 2 nodes and \d+ elements?\n\(\d+ nodes and \d+ elements were drawn\)",
        r"= Softmax",
        r"input x: float",
        r"expected y0: ",
        r"it is saved, in the layout of ONNX's own tests:\n *\.driftnet/own/test_converts_[0-9a-f]{8}\n",
        r"again:\n *pytest 'test_own.py::Test::test_converts'\n",
    ],
)
def test_the_red_test_shows(red, shown):
    text = re.sub(r"\nE +", "\n", red[0])
    assert re.search(shown, text), f"/{shown}/ is not in\n{red[0]}"
