"""A model that is refused is told apart: too new, without implementation, failing on its inputs, not valid."""

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models


def made(*nodes, shape=(2, 4), shapes=None, **kwargs):
    outputs = [("y", TensorProto.FLOAT, shape)]
    return models.case(nodes, {"x": models.grid((2, 4))}, outputs=outputs, shapes=shapes, **kwargs)


RELU, DANGLING = helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["nobody"], ["y"])
RESHAPE = helper.make_node("Reshape", ["x", "to"], ["y"], "/block/reshape")
SINE_OF_BFLOAT16 = (
    helper.make_node("Cast", ["x"], ["c"], to=TensorProto.BFLOAT16),
    helper.make_node("Sin", ["c"], ["s"], "sine"),
    helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
)
THREE_ROWS = {"to": np.array([3, -1])}
REFUSED = {
    "the model is of opset 99, and onnxruntime reads those": made(RELU, opset=99),
    "onnxruntime has no implementation of Sin-22 for the types": made(*SINE_OF_BFLOAT16, opset=22),
    "cannot run node '/block/reshape' (Reshape) on these inputs: The input tensor cannot be reshaped": made(
        RESHAPE, constants=THREE_ROWS, shapes={"x": ("A", "B")}, shape=(3, "C")
    ),
    "the model is not valid ONNX: Nodes in a graph must be topologically sorted": made(DANGLING),
    "the model is not valid ONNX: Mismatched attribute": made(helper.make_node("Softmax", ["x"], ["y"], axis="one")),
    "(4) vs (5)": made(RELU, shape=(2, 5)),
}


@pytest.mark.parametrize("says", REFUSED)
def test_each_refusal_has_its_own_words(runner, says):
    verdict = look(Trial(REFUSED[says], resolve("onnxruntime-quant"), {}, runner))
    assert verdict.word is Word.INVALID, verdict.message
    assert says in verdict.message
    assert "onnxruntime_src" not in verdict.message, "no line of somebody else's source code"
    assert "\n" not in verdict.message
