"""At each step of a write a process is killed, or the disk is full: what is there is whole, and the next one works."""

import errno
import os
import signal
import sys
import warnings

import pytest
from driftnet.campaign.events import Done, Found
from driftnet.campaign.journal import Journal, histories
from driftnet.findings import corpus
from driftnet.util.errors import UserError
from driftnet.util.files import replace_text

from tests.findings.test_corpus import saved_relu

STEPS = ("open", "os.mkdir", "os.rename", "os.replace", "os.remove", "os.chmod", "os.rmdir", "tempfile.mkstemp")
MOST = 500
KILLED, FULL = "killed", "disk full"


def at_step(number, how, work):
    """Do `work` in a process that is killed, or told that the disk is full, at that of its steps that touch files.

    How it ended: None where it came to its end, KILLED, or FULL where it raised a UserError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of pytest: the child asks nothing of them
        child = os.fork()
    if child == 0:
        left = number

        def hook(event, arguments):
            nonlocal left
            if event in STEPS and not (event == "open" and isinstance(arguments[2], int) and not arguments[2] & 3):
                left -= 1
                if left == 0 and how == KILLED:
                    os.kill(os.getpid(), signal.SIGKILL)
                if left == 0:
                    raise OSError(errno.ENOSPC, "No space left on device")

        status = 1
        try:
            sys.addaudithook(hook)
            work()
            status = 0
        except UserError:
            status = 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, 2), (
        f"step {number}, {how}: exit status {status >> 8}"
    )
    return KILLED if os.WIFSIGNALED(status) else FULL if status else None


def each_step(how, work, check):
    """`check` is asked after each of the steps at which `work` can end; how many there are."""
    for number in range(1, MOST):
        ended = at_step(number, how, work)
        check(number)
        if ended is None:
            return number - 1
    raise AssertionError(f"it takes more than {MOST} steps")


@pytest.mark.parametrize("how", [KILLED, FULL])
def test_a_case_is_there_whole_or_not_at_all(tmp_path, how):
    saved = saved_relu()

    def check(number):
        for folder in corpus.folders([tmp_path]):
            assert corpus.load(folder).fine == saved.fine, f"step {number}: another case"

    steps = each_step(how, lambda: corpus.save(saved, tmp_path), check)
    assert steps > 5, f"it was ended at {steps} steps only"
    assert len(corpus.load_all(tmp_path)) == 1, "the last one, which came to its end, saved nothing"
    corpus.sweep(tmp_path)
    assert not list(tmp_path.rglob(".*")), "drafts of those that were killed stay for ever"
    assert len(corpus.load_all(tmp_path)) == 1, "a whole case was swept away"


@pytest.mark.parametrize("how", [KILLED, FULL])
def test_a_text_is_the_old_or_the_new_one(tmp_path, how):
    path = tmp_path / "case.json"
    path.write_text("old")

    def check(number):
        assert path.read_text() in ("old", "new"), f"step {number}: {path.read_text()!r}"

    steps = each_step(how, lambda: replace_text(path, "new"), check)
    assert steps >= 3, f"it was ended at {steps} steps only"
    assert path.read_text() == "new"


@pytest.mark.parametrize("how", [KILLED, FULL])
def test_what_a_journal_has_told_is_read_again(tmp_path, how):
    def work():
        journal = Journal(tmp_path)
        journal.write(Found(3, "/c/test_a", "1"))
        journal.write(Done(3))

    def check(number):
        for history in histories(tmp_path):
            assert history in ([], [Found(3, "/c/test_a", "1")], [Found(3, "/c/test_a", "1"), Done(3)]), number

    assert each_step(how, work, check) >= 2
    assert [event for history in histories(tmp_path) for event in history][-1] == Done(3)
