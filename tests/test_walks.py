"""What CONTRIBUTING.md and docs/ show of code can be typed as it stands there."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
from driftnet.reduce import passes, reducer
from onnx import TensorProto, helper

from tests.support import models, reduction
from tests.support.paths import ROOT

BLOCK = re.compile(r"(?:^(?: {4}.*)?\n)+", re.M)


def block(paper: str, start: str) -> str:
    """The indented block of a document that has a line with `start`, as code."""
    text = (ROOT / paper).read_text(encoding="utf-8")
    (found,) = (
        textwrap.dedent(part) for part in BLOCK.findall(text) if re.search(rf"^ *{re.escape(start)}", part, re.M)
    )
    return found.strip("\n") + "\n"


MOST_OPENED = {"an option of MNN": 1, "a target": 3, "a false alarm": 3, "an operator that is generated": 3}
MOST_OPENED |= {"an HTML page": 3, "a reduction pass": 3, "a column of replay's table": 3}
"""Tasks of a newcomer, and how many files or folders one has to open; of any other five."""


def test_each_task_of_a_newcomer_has_a_row_that_names_few_files():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \|$", text[text.index("## Where is") : text.index("## Add an operator")], re.M
    )
    opened = {task: re.findall(r"`[\w/.]+(?:\.py|\.md|/)`", where) for task, where in rows}
    assert MOST_OPENED.keys() <= opened.keys(), f"no row of {MOST_OPENED.keys() - opened.keys()}"
    many = {task: names for task, names in opened.items() if len(names) > MOST_OPENED.get(task, 5)}
    assert many == {}, f"more files than {MOST_OPENED}"


def test_the_operator_that_is_shown_is_the_one_that_there_is():
    shown = block("docs/generators.md", '@operator("Flatten")')
    assert shown in (ROOT / "generators/ops/shape.py").read_text(encoding="utf-8"), f"has become another one:\n{shown}"


SYSTEM = """
import onnxruntime

Error = ValueError


def convert(model, path, level):
    return model


class load:
    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path)

    def run(self, feed, outputs):
        return dict(zip(outputs, self.session.run(outputs, feed)))
"""
"""A toolchain, as the walk has it."""


def test_the_target_that_is_shown_is_installed_and_tried(tmp_path):
    files = {
        "pyproject.toml": block("CONTRIBUTING.md", "[project]"),
        "my_toolchain/__init__.py": SYSTEM,
        "my_toolchain/target.py": block("CONTRIBUTING.md", "def convert(model, folder, options):"),
    }
    project, site = tmp_path / "project", tmp_path / "site"
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    assert sum(len(text.splitlines()) for text in files.values()) - len(SYSTEM.splitlines()) <= 60, "it has grown"
    words = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", site, project)
    done = subprocess.run([sys.executable, "-m", "pip", "install", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tried = subprocess.run(
        [str(Path(sys.executable).with_name("driftnet")), "targets", "--try", "my-toolchain", "--json"],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    told = json.loads(tried.stdout)
    assert (told["release"], {row["verdict"] for row in told["tried"]}) == ("1.0", {"agrees"}), told


def test_the_reduction_pass_that_is_shown_takes_signs_away(monkeypatch):
    shown = dict(vars(passes))
    exec(block("CONTRIBUTING.md", "def positive_values(problem: Problem) -> None:"), shown)
    monkeypatch.setattr(reducer, "PASSES", (shown["positive_values"],))
    case = models.case(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": np.ones(3, np.float32)},
        {"w": -np.ones(3, np.float32)},
        outputs=[("y", TensorProto.FLOAT, (3,))],
    )
    result = reducer.reduce(case, {}, reduction.TARGET, reduction.contains("Add"), reduction.record)
    (values,) = reduction.constants_of(result.case).values()
    assert np.array_equal(values, np.ones(3)), f"leaves {values}"
