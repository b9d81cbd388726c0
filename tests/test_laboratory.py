"""The laboratory takes whatever a target does for an observation, and leaves nothing behind."""

import sys
import tempfile

import pytest

from harness import laboratory
from harness.environments import Installed
from harness.errors import UserError
from harness.laboratory import Laboratory
from harness.verdict import Outcome
from tests import models
from tests.sandbox_faults import HOSTILE

INSTALLED = Installed(HOSTILE, "tests.sandbox_faults:HOSTILE", "1", sys.executable)


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
