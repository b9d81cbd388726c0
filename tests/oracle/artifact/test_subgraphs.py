"""The bodies of If, Loop and Scan: what stands in them is compared like the rest of a model."""

import numpy as np
import pytest
from driftnet.model import graph as graphs
from driftnet.oracle.artifact.verified.tier import compare
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from onnx import TensorProto, helper, numpy_helper

from tests.oracle.artifact.test_verified import CODES, CONSTANTS, WS, B, W, X, model

PLAIN = [("MatMul", ["h", "w"], ["p"], {}), ("Add", ["p", "b"], ["r"], {})]
ROUNDED = [("DequantizeLinear", ["wq", "ws"], ["w"], {"axis": 1}), *PLAIN]


def body(nodes, inputs=(), outputs=("r",), **constants):
    def values(names):
        return [helper.make_tensor_value_info(name, kind, None) for name, kind in names]

    return helper.make_graph(
        [helper.make_node(op, reads, makes, **given) for op, reads, makes, given in nodes],
        "body",
        values(inputs),
        values((name, TensorProto.BOOL if name == "on" else TensorProto.FLOAT) for name in outputs),
        [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()],
    )


def choice(nodes, other="Neg", before="x", **constants):
    """An If, of which the data take the second branch."""
    otherwise = body([(other, ["h"], ["n"], {}), ("ReduceSum", ["n", "axis"], ["r"], {})], axis=np.array([1]))
    branches = {"then_branch": body(nodes, **constants), "else_branch": otherwise}
    return [
        ("Neg", [before], ["h"], {}),
        ("ReduceMax", ["h"], ["m"], {"keepdims": 0}),
        ("Greater", ["m", "ten"], ["c"], {}),
        ("If", ["c"], ["y"], {"name": "choice", **branches}),
    ]


def rounds(op, nodes, **constants):
    """A Loop or Scan with a state to which the body adds."""
    first = [("i", TensorProto.INT64), ("on", TensorProto.BOOL)] if op == "Loop" else []
    ends = [("Add", ["s", "r"], ["t"], {})]
    inputs = [*first, ("s", TensorProto.FLOAT), *([("h", TensorProto.FLOAT)] if op == "Scan" else [])]
    outputs = ["on", "t"] if op == "Loop" else ["t"]
    inner = body([*nodes, *ends], inputs, outputs, **constants)
    if op == "Loop":
        return [("Neg", ["x"], ["h"], {}), ("Loop", ["two", "", "zero"], ["y"], {"body": inner})]
    return [("Neg", ["x"], ["h"], {}), ("Scan", ["zero", "h"], ["y"], {"body": inner, "num_scan_inputs": 1})]


def compared(floating, artifact, **constants):
    """(where an artifact is wrong, the nodes that could not be compared)"""
    given = {"ten": np.float32(10), "two": np.array(2), "zero": np.zeros(3, np.float32), "b": B, **CONSTANTS}
    ours, theirs = (graphs.read(model(nodes, **given, **constants)) for nodes in (floating, artifact))
    found = compare(ours, theirs, [evaluate(theirs, {"x": X}).balls], None)
    return [problem.where for problem in found.problems], list(found.doubtful)


def test_weights_of_a_branch_are_compared_though_the_data_take_the_other():
    for codes, wrong in ((CODES, []), (CODES[::-1], ["w"])):
        assert compared(choice(PLAIN, w=W), choice(ROUNDED, wq=codes, ws=WS)) == (wrong, [])


def test_the_operators_of_a_branch_are_compared():
    assert compared(choice(PLAIN, w=W), choice(PLAIN, w=W, other="Abs")) == (["n"], [])


def test_weights_outside_a_body_that_reads_them_are_compared():
    for stored, wrong in ((W, []), (W[::-1], ["w"])):
        ours, theirs = (graphs.read(model(choice(PLAIN), ten=np.float32(10), b=B, w=w)) for w in (W, stored))
        found = compare(ours, theirs, [evaluate(theirs, {"x": X}).balls], None)
        assert [problem.where for problem in found.problems] == wrong


def test_a_body_may_read_what_was_rounded_outside_it():
    rounding = [("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}), ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], {})]
    inside = [("MatMul", ["xd", "w"], ["p"], {}), PLAIN[1]]
    nodes = choice(PLAIN, w=W)
    ours = choice([("MatMul", ["x", "w"], ["p"], {}), PLAIN[1]], w=W)
    assert compared(ours, [*rounding, *choice(inside, before="xd", w=W)]) == ([], [])
    assert compared(nodes, [*rounding, *choice(PLAIN, before="xd", w=2 * W)])[0] == ["w"]


def test_a_body_that_reads_what_nothing_is_known_of_is_undecided():
    ours, theirs = (graphs.read(model(choice(PLAIN, w=w), ten=np.float32(10), b=B)) for w in (W, W[::-1]))
    balls = {name: ball for name, ball in evaluate(theirs, {"x": X}).balls.items() if name != "h"}
    found = compare(ours, theirs, [balls], None)
    assert found.doubtful, "without an answer for h nobody knows"
    assert not found.problems, f"w is wrong only where h is known: {found.problems}"


@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_the_body_of_rounds_is_compared_in_the_first_of_them(op):
    for codes, wrong in ((CODES, []), (CODES[::-1], ["w"])):
        assert compared(rounds(op, PLAIN, w=W), rounds(op, ROUNDED, wq=codes, ws=WS)) == (wrong, [])
    other = [PLAIN[0], ("Sub", ["p", "b"], ["r"], {})]
    assert compared(rounds(op, PLAIN, w=W), rounds(op, other, w=W))[0], "it subtracts what is to be added"
