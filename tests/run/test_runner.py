"""The laboratory takes whatever a target does for an observation, and leaves nothing behind."""

import sys
import tempfile
from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet.model.verdict import Outcome, Word
from driftnet.oracle.judge import judge
from driftnet.run import artifact_schema as inspection
from driftnet.run import runner as laboratory
from driftnet.run.runner import Laboratory
from driftnet.targets.environments import Installed
from driftnet.util.errors import UserError

from tests.support import models
from tests.support.sandbox_faults import HOSTILE

INSTALLED = Installed(HOSTILE, "tests.support.sandbox_faults:HOSTILE", "1", sys.executable)


def observe(lab, deed):
    return lab.observe(models.relu(), INSTALLED, {"deed": deed})


def assert_goes_on(lab):
    __tracebackhide__ = True
    last = observe(lab, "none").last
    assert (last.stage, last.outcome) == ("execute", Outcome.OK), f"the next case ends so: {last}"


@pytest.mark.parametrize(
    "deed", ["nul", "long name", "surrogate", "circle of links", "folder", "outside", "out by a link"]
)
def test_a_path_that_is_no_file_of_the_case_is_garbage(lab, deed):
    last = observe(lab, deed).last
    assert (last.stage, last.outcome) == ("convert", Outcome.GARBAGE), f"it is taken for {last}"
    assert_goes_on(lab)


@pytest.mark.parametrize("deed", ["nothing", "file", "pipe", "link", "file in the way"])
def test_a_target_that_replaces_its_folder_harms_no_later_case(lab, deed):
    observe(lab, deed)
    assert_goes_on(lab)
    assert_goes_on(lab)


@pytest.mark.parametrize(
    ("deed", "outcome", "says"),
    [
        ("garbage from inspect", Outcome.GARBAGE, "the model cannot be read"),
        ("crash in inspect", Outcome.CRASH, "ended by SIGSEGV"),
    ],
)
def test_an_inspect_that_fails_is_told_and_the_stages_go_on(lab, deed, outcome, says):
    case = models.relu()
    observation = observe(lab, deed)
    assert [(run.stage, run.outcome) for run in observation.stages][2:] == [("inspect", outcome), ("execute", "ok")]
    assert observation.artifact is None, "what it told is taken for an artifact"
    right = replace(observation, outputs=lab.reference.run(case).outputs)
    verdict = judge(case, right, target=HOSTILE, options={"deed": deed}, reference=lab.reference)
    assert (verdict.word, says in verdict.message) == (Word.AGREES, True), f"the verdict does not tell: {verdict}"


ARRAY = np.zeros((2, 4), np.float32)
LAYER = {"name": "y", "result": "y", "weights": ARRAY, "scales": ARRAY[:, :2]}
GRID = {"scale": 0.5, "zero_point": 0, "low": -1.0, "high": 1.0}
OPERATION = {"name": "y", "inputs": ["x"], "outputs": ["y"], "runs": "codes"}
RIGHT = {"layers": [LAYER], "tensors": {"x": GRID}, "operations": [OPERATION], "histogram": {"bins": 9, "least": 2}}


def outside_data():
    """A model that keeps a tensor in a file."""
    model = models.relu().proto
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([1], "the artifact is [1], not an object"),
        ({"model": "text"}, "the artifact.model is 'text', not bytes"),
        ({"model": b""}, "no output"),
        ({"model": b"garbage"}, "cannot be read"),
        ({"model": outside_data()}, "another file"),
        ({"layers": 3}, "layers is 3, not a list"),
        ({"layers": [{}]}, "lacks 'name'"),
        ({"layers": [LAYER | {"weights": ARRAY[0]}]}, "layer 'y'"),
        ({"layers": [LAYER | {"scales": ARRAY[:, :3]}]}, "layer 'y'"),
        ({"tensors": {"x": "a"}}, "tensors.x is 'a', not an object"),
        ({"tensors": {"x": GRID | {"scale": True}}}, "tensors.x.scale is True"),
        ({"operations": [OPERATION | {"runs": "away"}]}, "runs 'away'"),
        ({"operations": [OPERATION | {"outputs": []}]}, "gives []"),
        ({"operations": [OPERATION | {"inputs": [1]}]}, "operations[0].inputs[0] is 1"),
        ({"operations": [OPERATION | {"more": 1}]}, "'more'"),
        ({"histogram": {"bins": 0, "least": 1}}, "0 bins"),
    ],
)
def test_what_is_no_artifact_is_refused_and_why(told, says):
    assert inspection.flaw(RIGHT) == "", "an artifact is refused"
    assert says in inspection.flaw(told), f"it says {inspection.flaw(told)!r}"


def test_what_a_target_says_can_be_written(lab):
    last = observe(lab, "surrogate in message").last
    assert (last.outcome, last.message) == (Outcome.ERROR, "w: bad ?")
    (last.message + last.log).encode()


def test_a_laboratory_says_whether_it_is_cut_off_from_the_network(lab):
    assert lab.network_isolated is all(zygote.network_isolated for zygote in lab._zygotes)
    assert lab._zygotes


def test_a_laboratory_that_cannot_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(laboratory, "REFERENCE", "no_such_module")
    with pytest.raises(UserError, match="no_such_module"):
        Laboratory()
    assert list(tmp_path.iterdir()) == [], "a folder is left behind"
