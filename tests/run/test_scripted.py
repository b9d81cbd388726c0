"""Scripts run in workers, in place of processes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve

AGAIN = """
import os, subprocess, sys
if sys.argv[1:] == ["again"]:
    print("here", flush=True)
    {}
with open("log", "wb") as log:
    process = subprocess.Popen([sys.executable, __file__, "again"], cwd=".", stdout=log, stderr=log)
status = process.wait(20)
assert open("log").read() == "here\\n"
sys.exit(status + 100)
"""


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as runner:
        yield runner


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        ("import sys\nsys.exit(7)", 7),
        ("import sys\nsys.exit('said')", 1),
        ("raise ValueError", 1),
        ("import os, sys\nsys.excepthook = lambda *_: os._exit(2)\nraise ValueError", 2),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", -11),
        ("if __name__ == '__main__':\n    import onnx, sys\n    sys.exit(len(sys.argv))", 2),
        (AGAIN.format("sys.exit(5)"), 105),
        (AGAIN.format("os.kill(os.getpid(), 11)"), 89),
    ],
)
def test_a_script_ends_as_it_does_in_a_process_of_its_own(
    runner: Runner, tmp_path: Path, text: str, status: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    assert runner.status_of(resolve("mnn"), tmp_path, [str(script), "word"], 20.0) == status


def test_a_script_that_does_not_end_has_no_status(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("while True:\n    pass", encoding="utf-8")
    assert runner.status_of(resolve("mnn"), tmp_path, [str(tmp_path / "script.py")], 0.3) is None
