"""Factors that cancel: what a quantizer multiplies a tensor by, it may divide the weights by that read it."""

import numpy as np
import pytest
from driftnet.model import graph as graphs
from driftnet.oracle.artifact.verified.calibration import Calibration, ranges_of
from driftnet.oracle.artifact.verified.tier import compare
from driftnet.oracle.ball_arithmetic.evaluate import evaluate

from tests.oracle.artifact.test_verified import RNG, B, W, X, model

GAIN, SHIFT = RNG.uniform(0.5, 2, 4).astype(np.float32), RNG.normal(size=4).astype(np.float32)
S = np.array([0.25, 3, 1.5, 0.7], np.float32)
W2 = RNG.normal(size=(3, 5)).astype(np.float32)
D = np.array([2, 0.4, 1.3], np.float32)
SMOOTHED = model(
    [
        ("Mul", ["x", "g"], ["m"], {}),
        ("Add", ["m", "h"], ["a"], {}),
        ("MatMul", ["a", "w"], ["y"], {"name": "product"}),
    ],
    g=GAIN,
    h=SHIFT,
    w=W,
)
EQUALISED = model(
    [
        ("Gemm", ["x", "w", "b"], ["t"], {"name": "one"}),
        ("Relu", ["t"], ["r"], {}),
        ("Transpose", ["r"], ["v"], {"perm": [1, 0]}),
        ("Transpose", ["v"], ["z"], {"perm": [1, 0]}),
        ("MatMul", ["z", "w2"], ["y"], {"name": "two"}),
    ],
    w=W,
    b=B,
    w2=W2,
)


def problems(floating, nodes=None, calibration=None, **constants):
    """Where an artifact is wrong that has these float constants, and weights whose codes are rounded anew."""
    stored, before = {}, []
    for name, x in constants.items():
        if name.startswith("w"):
            scale = (np.abs(x).max(0) / 127).astype(np.float32)
            stored |= {f"{name}q": np.rint(x / scale).astype(np.int8), f"{name}s": scale}
            before.append(("DequantizeLinear", [f"{name}q", f"{name}s"], [name], {"axis": 1}))
        else:
            stored[name] = x
    read = graphs.read(floating)
    nodes = nodes or [
        (n.op, list(n.inputs), list(n.outputs), dict(n.attributes) | {"name": n.name}) for n in read.nodes
    ]
    graph = graphs.read(model([*before, *nodes], **stored))
    return [p.where for p in compare(read, graph, [evaluate(graph, {"x": X}).balls], calibration).problems]


def test_what_a_norm_is_divided_by_may_be_multiplied_into_the_weights_behind_it():
    right = {"g": GAIN / S, "h": SHIFT / S, "w": W * S[:, None]}
    assert problems(SMOOTHED, **right) == []
    assert problems(SMOOTHED, **right | {"w": W}) == ["g", "h"], "nothing divides by the factor"
    assert problems(SMOOTHED, **right | {"w": W * S[::-1, None]}) == ["g", "h", "w"], "other channels do"
    assert problems(SMOOTHED, **right | {"h": SHIFT}) == ["g", "w"], "the shift is no multiple"


def test_nothing_is_said_of_the_range_of_a_multiple():
    names = {"QuantizeLinear": ("a", "q"), "DequantizeLinear": ("q", "d")}
    rounding = [(op, [reads, "s", "zero"], [makes], {}) for op, (reads, makes) in names.items()]
    nodes = [
        ("Mul", ["x", "g"], ["m"], {}),
        ("Add", ["m", "h"], ["a"], {}),
        *rounding,
        ("MatMul", ["d", "w"], ["y"], {}),
    ]
    data = {"a": X * GAIN + SHIFT}
    known = Calibration(ranges_of([data]), sampled=True, records=[data])
    scale = np.float32(np.abs(data["a"]).max() / 127 / 8)
    for factor, wrong in ((8, []), (1, ["s"])):
        right = {"g": GAIN / factor, "h": SHIFT / factor, "w": W * factor}
        found = problems(SMOOTHED, nodes, calibration=known, **right, s=scale, zero=np.int8(0))
        assert found == wrong, f"divided by {factor}"


def test_a_mul_of_the_quantizers_own_may_be_divided_out_of_the_weights():
    own = [("Mul", ["a", "d"], ["scaled"], {})]
    nodes = [*(("Mul", ["x", "g"], ["m"], {}), ("Add", ["m", "h"], ["a"], {})), *own]
    nodes += [("MatMul", ["scaled", "w"], ["y"], {})]
    kept = {"g": GAIN, "h": SHIFT, "d": (1 / S)[None]}
    assert problems(SMOOTHED, nodes, **kept, w=W * S[:, None]) == []
    found = problems(SMOOTHED, nodes, **kept, w=W)
    assert found, "nothing divides by the factor"


@pytest.mark.parametrize("wrong", [None, "b", "w2"])
def test_a_factor_may_pass_a_relu_and_movement_on_its_way_into_the_next_layer(wrong):
    right = {"w": W * D, "b": B * D, "w2": W2 / D[:, None]}
    plain = {"w": W, "b": B, "w2": W2}
    found = problems(EQUALISED, **right | ({wrong: plain[wrong]} if wrong else {}))
    assert bool(found) == bool(wrong), f"with the float model's own {wrong}: {found}"


def test_a_factor_that_reaches_an_output_is_wrong():
    floating = model([("Mul", ["x", "g"], ["m"], {}), ("Relu", ["m"], ["y"], {})], g=GAIN)
    assert problems(floating, g=GAIN / S) == ["g"]
