"""What ISSUE.md gives to type runs as it stands, in the folder of the case, and prints what the target answers."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from driftnet.findings.corpus import write_model
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Target
from driftnet.targets.mnn.target import MNN
from driftnet.targets.onnxruntime_graph.target import ONNXRUNTIME_GRAPH
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from driftnet.targets.recipe import effective, swept

from tests.targets.test_mnn import conv_net

BODY = re.compile(r"python - <<'END'\n(.*?)\nEND", re.DOTALL)


@pytest.mark.parametrize("target", [MNN, ONNXRUNTIME_GRAPH, ONNXRUNTIME_QUANT], ids=lambda target: target.name)
def test_what_is_typed_is_whole_under_each_option(target):
    said = [target.commands(effective(target, recipe)) for recipe in swept(target)]
    bodies = [body for text in said for body in BODY.findall(text)]
    assert len(bodies) >= len(said) / 2
    for body in bodies:
        ast.parse(body)
        assert "..." not in body, body


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        (ONNXRUNTIME_GRAPH, {"saved": "onnx"}),
        (ONNXRUNTIME_QUANT, {}),
        (ONNXRUNTIME_QUANT, {"inputs": "narrow", "nodes": "nodes_to_exclude", "preprocess": True, "per_channel": True}),
        (ONNXRUNTIME_QUANT, {"quantize": "weight-only", "format": "QOperator"}),
        (MNN, {}),
        (MNN, {"quantize": "offline"}),
    ],
    ids=lambda one: one.name if isinstance(one, Target) else "-".join(map(str, one)),
)
def test_what_is_typed_gives_what_the_target_answers(target, recipe, runner, tmp_path):
    case, options = conv_net(), effective(target, recipe)
    write_model(case, (), tmp_path)
    for name in ("mnnconvert", "mnnquant"):  # those that ship report usage, and run pip
        script = f"import sys, _tools\n_tools.{name}(['{name}', *sys.argv[1:]])"
        (tmp_path / name).write_text(f"#!{sys.executable}\n{script}\n")
        (tmp_path / name).chmod(0o700)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    said = subprocess.run(
        ["bash", "-e"], input=target.commands(options), cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    shown = re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?", said.stdout[said.stdout.rindex("[[[[") :])
    last = runner.observe(case, resolve(target.name), recipe).outputs[-1]["y"]
    assert np.allclose(last.ravel()[:3], [float(x) for x in shown[:3]], rtol=1e-4, atol=1e-6), said.stdout
