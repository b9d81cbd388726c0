"""Where driftnet does not run it says so in a sentence, and suites that do not use it do not notice."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

ELSEWHERE = """
import sys, sysconfig
sysconfig.get_config_vars()  # it reads a file of the platform that this really is
sys.platform = {platform!r}
sys.modules.update(dict.fromkeys({lacks!r}))
"""
WINDOWS = ("fcntl", "resource")
"""What Python has on Linux and on macOS only."""


def elsewhere(code, *, platform="darwin", lacks=(), folder=ROOT):
    """The process that runs this code where Python says that it is on this platform."""
    text = ELSEWHERE.format(platform=platform, lacks=lacks) + code
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("platform", "name", "lacks"), [("darwin", "macOS", ()), ("win32", "Windows", WINDOWS)])
def test_the_command_line_ends_with_a_sentence_that_names_the_container(platform, name, lacks):
    done = elsewhere(
        "sys.argv[1:] = ['fuzz']; from driftnet.cli.start import main; main()", platform=platform, lacks=lacks
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, f"one sentence, got {done.stderr}"
    assert f"this is {name}: use its container, which docs/install.md" in done.stderr


def test_a_program_is_told_why_nothing_can_be_imported_or_run():
    imported = elsewhere("import driftnet; driftnet.check", lacks=WINDOWS)
    run = elsewhere("from driftnet.run.runner import Runner; Runner()")
    assert "ImportError: driftnet needs Linux, and this is macOS" in imported.stderr
    assert "UserError: driftnet needs Linux, and this is macOS" in run.stderr


def test_a_suite_that_does_not_use_it_passes_and_one_that_does_is_told_why(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    (tmp_path / "test_using.py").write_text("def test_using(driftnet): pass\n")
    pytest_of = "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *{!r}]))"
    own, using, budget = (
        elsewhere(pytest_of.format(words), lacks=WINDOWS, folder=tmp_path)
        for words in (["test_own.py"], ["test_using.py"], ["test_own.py", "--driftnet-minutes", "1"])
    )
    assert (own.returncode, "1 passed" in own.stdout) == (0, True), own.stdout + own.stderr
    assert "needs Linux" in using.stdout
    assert "Traceback" not in using.stdout + using.stderr
    assert (budget.returncode, "needs Linux" in budget.stderr) == (4, True), budget.stdout + budget.stderr
