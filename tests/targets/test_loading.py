"""Importing a target harms nothing: not the status of a command, not what it says, not its process."""

import json
import subprocess
import sys

import pytest
from driftnet.targets import loading
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError

from tests.support.models import relu
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("os._exit(0)", "its import takes its process down (exit status 0)"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("os.kill(os.getpid(), 11)", "its import takes its process down (SIGSEGV)"),
        ("raise BaseException('no')", "BaseException: no"),
        ("raise RuntimeError('one\\ntwo')", "two"),
        ("while True: pass", "its import takes more than 0.2 s of CPU time"),
        ("import no_such_system", "No module named 'no_such_system'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_target_that_cannot_be_loaded(tmp_path, monkeypatch, line, says):
    monkeypatch.setattr(loading, "SECONDS", 0.2)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hostile_at_import.py").write_text(f"import os, sys\n{line}\nTARGET = 1\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        resolve("hostile_at_import:TARGET")
    assert "cannot be loaded" in caught.value.message
    assert says in caught.value.message
    assert caught.value.kind == "target"
    assert "hostile_at_import" not in sys.modules


def test_what_a_module_prints_at_import_is_not_in_the_json(tmp_path):
    said = "import os\nprint('printed')\nos.write(1, b'written')\nfrom tests.support.toy_target import TOY as TARGET\n"
    (tmp_path / "talkative.py").write_text(said, encoding="utf-8")
    (tmp_path / "model.onnx").write_bytes(relu().model)
    words = ["check", str(tmp_path / "model.onnx"), "--target", "talkative:TARGET", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "driftnet.cli.main", *words],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["targets"][0]["verdict"] == "agrees"
    assert "printed" in done.stderr
    assert "written" in done.stderr
