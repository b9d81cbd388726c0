"""An environment that something else was installed into: a message that says what mends it, and no traceback."""

import os
import subprocess
import sys

import pytest
from driftnet.util import misfits

from tests.support.paths import ROOT


def other(folder, package, release, broken):
    """`package` as another release, with which a module cannot be imported."""
    (folder / f"{package}-{release}.dist-info").mkdir()
    (folder / f"{package}-{release}.dist-info" / "METADATA").write_text(f"Name: {package}\nVersion: {release}\n")
    (folder / f"{broken}.py").write_text(
        "raise RuntimeError('Runtime version cannot be older than the linked gencode')\n"
    )


def test_what_fits_is_blamed_for_nothing():
    assert misfits.fault(RuntimeError("an error of driftnet")) is None


@pytest.mark.parametrize(
    "words", [["check", "a.onnx"], ["targets", "--try", "mnn"], ["lint", "a.onnx", "--target", "mnn"]]
)
def test_a_package_that_does_not_fit_is_named_with_the_cure(words, tmp_path):
    assert_told(tmp_path, words, "protobuf", "5.29.6", "onnx")


def test_a_command_line_that_cannot_even_be_imported_says_so_too(tmp_path):
    assert_told(tmp_path, ["targets"], "rich", "1.0", "rich")


def assert_told(tmp_path, words, package, release, broken):
    other(tmp_path, package, release, broken)
    done = subprocess.run(
        [sys.executable, "-c", "from driftnet.cli.start import main; main()", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"needs {package}>=" in done.stderr
    assert f"and {release} is installed" in done.stderr
    assert f"-m pip install '{package}>=" in done.stderr


def test_what_is_not_there_at_all_is_named(monkeypatch):
    monkeypatch.setattr(misfits.metadata, "requires", lambda name: ["no-such-package>=2"])
    said = misfits.fault(ImportError("no module"))
    assert said
    assert "driftnet needs no-such-package>=2, which is not installed" in said.message


def test_setup_is_done_anew_once_pip_has_changed_the_environment(tmp_path):
    site = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / ".venv" / ".ready").touch()

    def status():
        return subprocess.run(["make", "--question", ".venv/.ready"], cwd=tmp_path).returncode

    assert status() == 0, "there is nothing to do, and yet make would"
    os.utime(site, (2**32, 2**32))
    assert status() == 1, "make does not see that something was installed"
