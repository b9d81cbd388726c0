"""What ISSUE.md gives to type runs as it stands, in the folder of the case, and prints what the target answers."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from driftnet.findings.corpus import write_model
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Target
from driftnet.targets.iree.target import IREE
from driftnet.targets.litert.target import LITERT
from driftnet.targets.mnn.target import MNN
from driftnet.targets.ncnn.target import NCNN
from driftnet.targets.onnxruntime_graph.target import ONNXRUNTIME_GRAPH
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from driftnet.targets.openvino.target import OPENVINO
from driftnet.targets.recipe import effective, swept
from driftnet.targets.rewriters.onnx_passes import ONNX_PASSES
from driftnet.targets.rewriters.onnxoptimizer import ONNXOPTIMIZER
from driftnet.targets.rewriters.onnxscript import ONNXSCRIPT
from driftnet.targets.rewriters.onnxsim import ONNXSIM
from driftnet.targets.rewriters.onnxslim import ONNXSLIM
from driftnet.targets.tract.target import TRACT
from driftnet.targets.tvm.target import TVM

from tests.targets.test_mnn import conv_net
from tests.targets.test_tract import RELEASES

BODY = re.compile(r"python - <<'END'\n(.*?)\nEND", re.DOTALL)


HERE = (MNN, ONNXRUNTIME_GRAPH, ONNXRUNTIME_QUANT, ONNX_PASSES)
ELSEWHERE = (IREE, LITERT, NCNN, ONNXOPTIMIZER, ONNXSCRIPT, ONNXSIM, ONNXSLIM, OPENVINO, TRACT, TVM)


@pytest.mark.parametrize("target", [*HERE, *ELSEWHERE], ids=lambda target: target.name)
def test_what_is_typed_is_whole_under_each_option(target):
    said = [target.commands(effective(target, recipe)) for recipe in swept(target)]
    bodies = [body for text in said for body in BODY.findall(text)]
    assert len(bodies) >= len(said) / 2
    for body in bodies:
        ast.parse(body)
        assert "..." not in body, body


def executable(path, text):
    path.write_text(text)
    path.chmod(0o700)


def typed(installed, options, folder):
    """What the commands print beside a case, with programs of the environment that holds the target, which was made in
    another place than it is in. Packages of this one come last."""
    programs = Path(installed.python).parent
    for script in programs.iterdir():
        if script.read_bytes()[:2] == b"#!" and not (folder / script.name).exists():
            executable(folder / script.name, f'#!/bin/sh\nexec {installed.python} {script} "$@"\n')
    (folder / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({sysconfig.get_path('purelib')!r})\n")
    path = os.pathsep.join([str(folder), str(programs), os.environ["PATH"]])
    said = subprocess.run(
        ["bash", "-e"],
        input=installed.target.commands(options),
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def assert_answered(said, answer):
    """The last result that is printed is `answer`, by its first numbers."""
    first = min(len(answer.ravel()), 3)
    shown = re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?", said[said.rindex("=[" if "=[" in said else "[" * answer.ndim) :])
    assert np.allclose(answer.ravel()[:first], [float(x) for x in shown[:first]], rtol=1e-4, atol=1e-6), said


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        (ONNX_PASSES, {"tool": "version_converter", "opset": "down"}),
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
    case, installed = conv_net(), resolve(target.name)
    write_model(case, (), tmp_path)
    for name in ("mnnconvert", "mnnquant"):  # those that ship report usage, and run pip
        script = f"import sys, _tools\n_tools.{name}(['{name}', *sys.argv[1:]])"
        executable(tmp_path / name, f"#!{sys.executable}\n{script}\n")
    assert_answered(
        typed(installed, effective(target, recipe), tmp_path), runner.observe(case, installed, recipe).outputs[-1]["y"]
    )


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "recipes"),
    [
        ("iree", [{}]),
        ("litert", [{}]),
        ("ncnn", [{}]),
        ("openvino", [{}, {"shapes": "static"}, {"quantize": "onnx"}, {"quantize": "openvino"}]),
        ("tract", [{}, {"shapes": "static"}, {"format": "nnef"}]),
        ("tvm", [{}, {"shapes": "static", "params": "inputs", "format": "library"}]),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_typed_gives_what_a_system_in_an_environment_answers(name, recipes, runner, tmp_path):
    case, installed = conv_net(), resolve(f"{name}=={RELEASES[name]}")
    for k, recipe in enumerate(recipes):
        folder = tmp_path / str(k)
        folder.mkdir()
        write_model(case, (), folder)
        answer = runner.observe(case, installed, recipe).outputs[-1]["y"]
        shown = np.moveaxis(answer, 1, -1) if name == "litert" else answer  # as TensorFlow has it
        assert_answered(typed(installed, effective(installed.target, recipe), folder), shown)
