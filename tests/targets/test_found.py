"""What was found in releases of systems that are not installed here, so that the corpus cannot replay it: the smallest
case of each cause, held against that release in an environment of its own."""

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models
from tests.targets.test_tract import RELEASES

FLOAT = TensorProto.FLOAT


def one(op, feed, output, *, constants=None, opset=18, outputs=("y",), inputs=None, **attributes):
    """One node of `op`; output: (type, shape) of the last of `outputs`."""
    names = inputs or [*feed, *(constants or {})]
    node = helper.make_node(op, names, list(outputs), **attributes)
    return models.case([node], feed, constants or {}, outputs=[(outputs[-1], *output)], opset=opset)


def lstm(*, peepholes=False, **attributes):
    """One step of an LSTM of one cell, from a state of ones."""
    ones = {"w": np.ones((1, 4, 1), np.float32), "r": np.ones((1, 4, 1), np.float32)}
    state = {"h": np.ones((1, 1, 1), np.float32), "c": np.ones((1, 1, 1), np.float32)}
    gates = {"p": np.ones((1, 3), np.float32)} if peepholes else {}
    names = ["x", "w", "r", "", "", "h", "c", *gates]
    feed, constants = {"x": np.ones((1, 1, 1), np.float32)}, {**ones, **state, **gates}
    result = (FLOAT, (1, 1, 1, 1))
    return one("LSTM", feed, result, constants=constants, inputs=names, hidden_size=1, **attributes)


def tied():
    """Two products by the same weights, the second by their transpose, as encoders with tied weights have them."""
    nodes = [helper.make_node("Gemm", ["x", "w"], ["h"]), helper.make_node("Gemm", ["h", "w"], ["y"], transB=1)]
    weights = np.arange(16, dtype=np.float32).reshape(4, 4)
    return models.case(nodes, {"x": np.float32([[1, 2, 0, 1]])}, {"w": weights}, outputs=[("y", FLOAT, (1, 4))])


X = np.float32([-2, -0.5, 0.5, 2])
BELOW = np.float32([[0, 200]])
IMAGE = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)

INDICES = np.array([[-1, 1], [1, -2]])

FOUND = {
    "tract": {
        "Celu divides and multiplies by no alpha": one("Celu", {"x": X}, (FLOAT, (4,)), alpha=0.5),
        "Selu has 1.0507 for its default gamma": one("Selu", {"x": X}, (FLOAT, (4,))),
        "LogSoftmax is the logarithm of a softmax": one("LogSoftmax", {"x": BELOW}, (FLOAT, (1, 2)), axis=1),
        "GlobalLpPool of p 1": one("GlobalLpPool", {"x": IMAGE}, (FLOAT, (1, 2, 1, 1)), p=1),
        "ReduceLogSumExp overflows": one("ReduceLogSumExp", {"x": BELOW}, (FLOAT, (1, 1))),
        "ReduceMax of booleans": one("ReduceMax", {"x": X > 0}, (TensorProto.BOOL, (1,)), opset=20),
        "IsNaN of doubles": one("IsNaN", {"x": X.astype(float)}, (TensorProto.BOOL, (4,))),
        "Squeeze without axes": one("Squeeze", {"x": IMAGE}, (FLOAT, (2, 2, 2)), opset=11),
        "GatherND panics at negative indices": one("GatherND", {"x": IMAGE[0], "i": INDICES}, (FLOAT, (2, 2))),
        "ConstantOfShape without a value is of doubles": one(
            "ConstantOfShape", {}, (FLOAT, (2,)), constants={"s": np.array([2])}, opset=16
        ),
        "RandomUniformLike wants a shape": one("RandomUniformLike", {"x": X}, (FLOAT, (4,)), seed=1.0),
    },
    "openvino": {
        "Gemm by the transpose of what another multiplies by is not transposed": tied(),
        "LSTM ignores its peepholes": lstm(peepholes=True),
        "LSTM ignores input_forget": lstm(input_forget=1),
        "ReduceLogSum before opset 18 ignores its axes": one(
            "ReduceLogSum", {"x": IMAGE}, (FLOAT, (1, 2, 2, 1)), opset=17, axes=[0, 3]
        ),
        "ReduceLogSumExp before opset 18 ignores its axes": one(
            "ReduceLogSumExp", {"x": IMAGE}, (FLOAT, (1, 2)), opset=17, axes=[2, 3], keepdims=0
        ),
        "Softmax before opset 13 is of one axis": one("Softmax", {"x": IMAGE}, (FLOAT, IMAGE.shape), opset=11, axis=1),
    },
}


@pytest.mark.network
@pytest.mark.parametrize(("name", "what"), [(name, what) for name, causes in FOUND.items() for what in causes])
def test_what_was_found_in_a_release_is_still_seen_there(name, what, runner):
    verdict = look(Trial(FOUND[name][what], resolve(f"{name}=={RELEASES[name]}"), {}, runner))
    assert verdict.failed, f"{what}: {verdict.word} {verdict.rule} {verdict.message}"
