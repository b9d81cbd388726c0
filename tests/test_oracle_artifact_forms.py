"""What quantisers and optimisers make of a model beside its numbers: names, nodes taken apart, shared constants."""

import numpy as np

from harness.oracle import graph as graphs
from harness.oracle.artifact import compare
from harness.oracle.artifacts.form import in_order
from harness.oracle.balls.evaluate import evaluate
from tests.test_oracle_artifact import CODES, CONSTANTS, RNG, XS, B, W, X, model, problems

RELU = [
    ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
    ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], {}),
    ("Neg", ["xd"], ["t"], {}),
]


def test_a_relu_is_found_under_the_name_that_an_optimiser_decorates():
    floating = model([("Neg", ["x"], ["t"], {}), ("Relu", ["t"], ["h"], {}), ("Abs", ["h"], ["y"], {})])
    for op, expected in (("Max", []), ("Min", [("topology", "h")])):
        decorated = (op, ["t", "zero"], ["InsertedPrecisionFreeCast_h"], {})
        nodes = [*RELU, decorated, ("Abs", ["InsertedPrecisionFreeCast_h"], ["y"], {})]
        assert problems(nodes, floating, zero=np.float32(0)) == expected, op


def test_a_relu_that_is_lost_behind_an_operator_taken_apart_is_the_culprit():
    floating = model([("HardSwish", ["x"], ["t"], {}), ("Relu", ["t"], ["y"], {})])
    apart = [("HardSigmoid", ["xd"], ["s"], {"alpha": 1 / 6, "beta": 0.5}), ("Mul", ["xd", "s"], ["y"], {})]
    graph = graphs.read(model([*RELU[:2], *apart], **CONSTANTS))
    (found,) = compare(graphs.read(floating), graph, [evaluate(graph, {"x": X}).balls], None).problems
    assert found.culprit == ("y", "Relu"), found


def test_what_was_fused_of_constants_is_computed_from_rounded_ones():
    weights = [("MatMul", ["v", "w"], ["m"], {}), ("Relu", ["m"], ["r"], {})]
    floating = model([*weights, ("MatMul", ["x", "r"], ["y"], {})], v=np.eye(4, dtype=np.float32), w=W)
    for shift, expected in ((0, []), (30, [("parameter", "w")])):
        nodes = [
            *RELU[:2],
            ("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], {"axis": 1}),
            ("MatMul", ["v", "wd"], ["r"], {}),
            ("QuantizeLinear", ["r", "rs", "rz"], ["rq"], {}),
            ("DequantizeLinear", ["rq", "rs", "rz"], ["rd"], {}),
            ("MatMul", ["xd", "rd"], ["y"], {}),
        ]
        step, wrong = np.float32(W.max() / 255), np.clip(CODES.astype(int) + shift, -128, 127).astype(np.int8)
        constants = {"v": np.eye(4, dtype=np.float32), "rs": step, "rz": np.uint8(0), "wq": wrong}
        assert problems(nodes, floating, **constants) == expected, f"codes moved by {shift}"


def test_integers_that_a_concat_reads_stand_for_reals():
    table = RNG.normal(size=(3, 4)).astype(np.float32)
    scale, index = np.float32(np.abs(table).max() / 127), np.array([2, 0])
    floating = model([("Gather", ["w", "i"], ["g"], {}), ("Concat", ["g", "x"], ["y"], {"axis": 0})], w=table, i=index)
    operands = ["ys", "xz", "gq", "s", "sz", "xq", "xs", "xz"]
    nodes = [
        RELU[0],
        ("Gather", ["w_quantized", "i"], ["gq"], {}),
        ("QLinearConcat", operands, ["yq"], {"axis": 0, "domain": "com.microsoft"}),
        ("DequantizeLinear", ["yq", "ys", "xz"], ["y"], {}),
    ]
    for shift, expected in ((0, []), (4, [("parameter", "g")])):
        codes = (np.rint(table / scale) - shift * (table > 0)).astype(np.int8)
        constants = {"w_quantized": codes, "i": index, "s": scale, "sz": np.int8(0)}
        assert problems(nodes, floating, **constants) == expected, f"codes moved by {shift}"


def test_a_bias_is_judged_at_every_kernel_that_reads_it():
    gemms = [("Gemm", [x, "w", "b"], [y], {"name": y}) for x, y in (("x", "h"), ("z", "y"))]
    floating = model([gemms[0], ("Slice", ["h", "zero", "four", "zero"], ["z"], {}), gemms[1]], w=W, b=B)
    del floating.graph.node[1]
    floating.graph.node[1].input[0] = "x"

    def gemm(x, y):
        operands = [*x, "wq", "ws", "wz", "bq", "ys", "yz"]
        return ("QGemm", operands, [y + "q"], {"name": y, "domain": "com.microsoft"})

    twice = ("QuantizeLinear", ["x", "xs2", "xz"], ["xq2"], {})
    ends = [("DequantizeLinear", ["yq", "ys", "yz"], ["y"], {}), ("DequantizeLinear", ["hq", "ys", "yz"], ["h"], {})]
    nodes = [RELU[0], twice, gemm(["xq", "xs", "xz"], "h"), gemm(["xq2", "xs2", "xz"], "y"), *ends]
    assert problems(nodes, floating, xs2=XS) == []
    assert problems(nodes, floating, xs2=2 * XS) == [("parameter", "b")], "it is twice as large at the second"


def test_nodes_are_put_in_order_though_some_leave_out_a_result():
    late = ("DequantizeLinear", ["xq", "xs", "xz"], ["t"], {})
    recurrent = ("GRU", ["r", "w", "w", "", "", ""], ["", "h"], {"hidden_size": 1})
    graph = graphs.read(model([("Neg", ["t"], ["y"], {}), recurrent, late, RELU[0]]))
    made = [node.outputs[-1] for node in in_order(graph).nodes]
    assert made.index("xq") < made.index("t") < made.index("y"), made
