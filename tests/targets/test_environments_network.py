"""Other releases of the real systems, fetched from the package index and called in the sandbox.

Not part of the default run: pytest -m network tests/targets/test_environments_network.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet.model.verdict import Outcome
from driftnet.run.sandbox.zygote import Reply, Zygote
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import effective
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.network


def answered(reply: Reply) -> Reply:
    __tracebackhide__ = True
    assert reply.outcome is Outcome.OK, f"the outcome is {reply.outcome}, should be ok: {reply.message} {reply.log}"
    return reply


@pytest.mark.parametrize("word", ["mnn==3.4.1", "mnn==3.0.0", "onnxruntime-quant==1.20.1", "onnxruntime-quant==1.17.3"])
def test_another_release_runs_in_an_environment_of_its_own(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTNET_CACHE", str(tmp_path))
    weight = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 4
    feed = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    installed = resolve(word)
    assert installed.python.startswith(str(tmp_path)), f"{word} runs in {installed.python}"
    with Zygote(python=installed.python, preload=(installed.spec.partition(":")[0],)) as zygote:
        worker = zygote.worker()
        path, folder, options = worker.folder / "model.onnx", str(worker.folder), effective(installed.target, {})
        onnx.save(model, path)
        artifact = answered(worker.call(f"{installed.spec}.convert", str(path), folder, options)).value
        artifact = answered(worker.call(f"{installed.spec}.quantize", artifact, [feed], folder, options)).value
        outputs = answered(worker.call(f"{installed.spec}.execute", artifact, [feed], ["y"], options)).value
    assert np.allclose(outputs[0]["y"], feed["x"] @ weight, atol=0.2), f"y is {outputs[0]['y']}"
