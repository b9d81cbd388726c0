"""What CONTRIBUTING.md and docs/ show of code can be typed as it stands there."""

import re
import sys
import textwrap
from types import ModuleType

import numpy as np
import onnxruntime
from driftnet.reduce import passes, reducer
from driftnet.targets.recipe import effective
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


def test_the_operator_that_is_shown_is_the_one_that_there_is():
    shown = block("docs/generators.md", '@operator("Flatten")')
    assert shown in (ROOT / "generators/ops/shape.py").read_text(encoding="utf-8"), f"has become another one:\n{shown}"


class Session:
    """A toolchain's own session, as the walk has it."""

    def __init__(self, path: str) -> None:
        self.session = onnxruntime.InferenceSession(path)

    def run(self, feed: dict, outputs: list) -> dict:
        return dict(zip(outputs, self.session.run(outputs, feed)))


def test_the_target_that_is_shown_runs(monkeypatch, tmp_path):
    system = ModuleType("my_toolchain")
    system.Error, system.load = ValueError, Session
    system.convert = lambda model, path, level: model
    monkeypatch.setitem(sys.modules, "my_toolchain", system)
    shown: dict = {}
    exec(block("CONTRIBUTING.md", "def convert(model, folder, options):"), shown)
    target, case, path = shown["TARGET"], models.relu(), tmp_path / "model.onnx"
    path.write_bytes(case.model)
    options = effective(target, {})
    artifact = target.quantize(target.convert(str(path), str(tmp_path), options), case.feeds, str(tmp_path), options)
    (results,) = target.execute(artifact, case.feeds[:1], {"y": "float32"}, options)
    assert np.array_equal(results["y"], np.maximum(case.feeds[0]["x"], 0)), f"gives {results}"


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
