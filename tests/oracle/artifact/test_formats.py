"""What quantizers and optimizers make of a model beside its numbers: names, nodes taken apart, shared constants."""

import ml_dtypes
import numpy as np
import pytest
from driftnet.model import graph as graphs
from driftnet.model.operators import Trait, having
from driftnet.oracle.artifact.verified.calibration import Calibration
from driftnet.oracle.artifact.verified.tier import compare
from driftnet.oracle.ball_arithmetic.ball import exact
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.scheme.precomputed import folded, is_constant
from onnx import TensorProto, helper

from tests.oracle.artifact.test_verified import CODES, CONSTANTS, DYNAMIC, QDQ, RNG, WS, XS, B, W, X, model, problems

RELU = [
    ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
    ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], {}),
    ("Neg", ["xd"], ["t"], {}),
]


def test_a_relu_is_found_under_the_name_that_an_optimizer_decorates():
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


def test_a_quantizer_of_the_float_model_may_lose_movement_behind_it():
    own = ("QuantizeLinear", ["x", "s", "z"], ["t"], {})
    constants = {"s": np.float32(0.25), "z": np.uint8(3)}
    turned = [("Transpose", ["t"], ["u"], {}), ("Transpose", ["u"], ["v"], {}), ("Identity", ["v"], ["y"], {})]
    floating = model([own, *turned], **constants)
    graph = graphs.read(model([("QuantizeLinear", ["x", "s", "z"], ["y"], {})], **constants))
    assert not compare(graphs.read(floating), graph, [evaluate(graph, {"x": X}).balls], None).problems
    other = graphs.read(model([("QuantizeLinear", ["x", "s", "z"], ["y"], {})], **{**constants, "z": np.uint8(9)}))
    assert compare(graphs.read(floating), other, [evaluate(other, {"x": X}).balls], None).problems


def test_what_a_quantizer_adds_behind_dequantized_and_moved_data_is_a_rounding():
    constants = {"c": np.int8([8, -1]), "s": np.float32(0.0156), "i": np.array([1, 0])}
    own = [("DequantizeLinear", ["c", "s"], ["t"], {})]
    floating = model([*own, ("Gather", ["t", "i"], ["y"], {})], **constants)
    added = [("QuantizeLinear", ["g", "cs", "cz"], ["q"], {}), ("DequantizeLinear", ["q", "cs", "cz"], ["y"], {})]
    nodes = [*own, ("Gather", ["t", "i"], ["g"], {}), *added]
    assert problems(nodes, floating, **constants, cs=np.float32(0.001), cz=np.uint8(50)) == []


def test_what_a_dynamic_model_computes_of_moved_weights_is_computed_of_rounded_ones():
    table, index = RNG.normal(size=(3, 4)).astype(np.float32), np.array([2, 0])
    scale = np.float32(np.abs(table).max() / 127)
    pool = [("Pad", ["t", "p"], ["u"], {}), ("Max", ["u", "u"], ["y"], {})]
    floating = model([("Gather", ["w", "i"], ["t"], {}), *pool], w=table, i=index, p=np.zeros(4, np.int64))
    reads = [("Gather", ["w_quantized", "i"], ["tq"], {}), ("DequantizeLinear", ["tq", "s", "sz"], ["t"], {})]
    for shift, count in ((0, 0), (9, 1)):
        codes = (np.rint(table / scale) - shift * (table > 0)).astype(np.int8)
        constants = {"w_quantized": codes, "i": index, "s": scale, "sz": np.int8(0), "p": np.zeros(4, np.int64)}
        assert len(problems([*reads, *pool], floating, **constants)) == count, f"codes moved by {shift}"


def test_the_bound_of_a_clip_that_is_gone_may_be_an_input():
    floating = model([("Neg", ["x"], ["t"], {}), ("Clip", ["t", "low"], ["y"], {})])
    floating.graph.input.append(helper.make_tensor_value_info("low", TensorProto.FLOAT, []))
    gone = [*RELU[:2], ("Neg", ["xd"], ["t"], {}), ("QuantizeLinear", ["t", "ys", "yz"], ["yq"], {})]
    read = ("DequantizeLinear", ["yq", "ys", "yz"], ["y"], {})
    graph = graphs.read(model([*gone, read], **{**CONSTANTS, "yz": np.uint8(0)}))
    for low, count in ((0.0, 0), (1.0, 1)):
        given = {"x": X, "low": np.float32(low)}
        balls = {**evaluate(graph, given).balls, "low": exact(given["low"])}
        assert len(compare(graphs.read(floating), graph, [balls], None).problems) == count, f"bound {low}"


def test_a_relu_of_which_only_the_shape_is_read_is_not_missed():
    for reader, expected in (("Shape", []), ("Neg", [("topology", "r")])):
        nodes = [("Neg", ["x"], ["t"], {}), ("Relu", ["t"], ["r"], {}), (reader, ["r"], ["y"], {})]
        assert problems([*RELU, (reader, ["t"], ["y"], {})], model(nodes)) == expected, reader


def test_of_two_transposes_that_cancel_the_first_may_be_made_of_the_result_of_the_second():
    turned = {"perm": [1, 0]}
    nodes = [("Gelu", ["x"], ["t"], {}), ("Transpose", ["t"], ["z"], turned), ("Transpose", ["z"], ["y"], turned)]
    floating = model(nodes)
    floating.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    for op, expected in (("Erf", []), ("Tanh", [("topology", "t")])):
        apart = [("Mul", ["xd", "half"], ["h"], {}), (op, ["v"], ["e"], {}), ("Add", ["e", "one"], ["p"], {})]
        made = [("Mul", ["xd", "root"], ["v"], {}), *apart, ("Mul", ["h", "p"], ["y_QuantizeLinear_Input"], {})]
        ends = [
            ("QuantizeLinear", ["y_QuantizeLinear_Input", "xs", "xz"], ["yq"], {}),
            ("DequantizeLinear", ["yq", "xs", "xz"], ["y"], {}),
            ("Transpose", ["y"], ["z"], turned),
        ]
        constants = {"half": np.float32(0.5), "one": np.float32(1), "root": np.float32(0.5**0.5)}
        assert problems([*RELU[:2], *made, *ends], floating, **constants) == expected, op


def test_transposes_may_cancel_with_a_rounding_between_them_and_one_that_reads_the_first_travel():
    started = [("Sin", ["s"], ["c"], {}), ("Neg", ["c"], ["t"], {})]
    floating = [("Cos", ["x"], ["s"], {}), *started, ("Transpose", ["t"], ["u"], {}), ("Neg", ["u"], ["v"], {})]
    floating += [("Transpose", ["u"], ["w"], {}), ("Abs", ["w"], ["a"], {}), ("Transpose", ["v"], ["k"], {})]
    rounded = [("Cos", ["xd"], ["s"], {}), *started, ("QuantizeLinear", ["t", "xs", "xz"], ["tq"], {})]
    rounded += [("DequantizeLinear", ["tq", "xs", "xz"], [name], {}) for name in ("w_DequantizeLinear_Output", "td")]
    rounded += [("Abs", ["w_DequantizeLinear_Output"], ["a"], {})]
    ends = [("Add", ["a", "k"], ["y"], {})]
    for op, expected in (("Neg", []), ("Exp", ["v"])):
        found = problems([*RELU[:2], *rounded, (op, ["td"], ["k"], {}), *ends], model([*floating, *ends]))
        assert [where for _, where in found] == expected, op


@pytest.mark.parametrize(("op", "expected"), [("Abs", []), ("Neg", ["c"])])
def test_what_stood_behind_a_transpose_that_travels_has_its_axes_in_another_order(op, expected):
    floating = [("Transpose", ["x"], ["t"], {}), ("Sin", ["t"], ["s"], {}), ("Abs", ["s"], ["a"], {})]
    travelled = [*RELU[:2], ("Sin", ["xd"], ["s"], {}), (op, ["s"], ["a"], {}), ("Transpose", ["a"], ["c"], {})]
    found = problems([*travelled, ("Cos", ["c"], ["y"], {})], model([*floating, ("Cos", ["a"], ["y"], {})]))
    assert [where for _, where in found] == expected


def test_an_output_of_an_operator_taken_apart_may_be_rounded_inside():
    floating = model([("SoftmaxCrossEntropyLoss", ["x", "i"], ["t", "y"], {})], i=np.array([0, 1]))
    for made, wrong in (("LogSoftmax", False), ("Softmax", True)):
        nodes = [
            *RELU[:2],
            (made, ["xd"], ["s"], {"axis": 1}),
            ("QuantizeLinear", ["s", "cs", "cz"], ["sq"], {}),
            ("DequantizeLinear", ["sq", "cs", "cz"], ["sd"], {}),
            ("Identity", ["sd"], ["y"], {}),
        ]
        assert bool(problems(nodes, floating, cs=np.float32(0.1), cz=np.uint8(200))) is wrong, made


def test_what_is_taken_apart_may_read_its_operand_rounded_and_not_and_a_later_node_be_its_own():
    floating = model([("HardSwish", ["x"], ["t"], {}), ("Neg", ["t"], ["y"], {})])
    for alpha, wrong in ((1 / 6, False), (1 / 5, True)):
        apart = [("HardSigmoid", ["x"], ["s"], {"alpha": alpha, "beta": 0.5}), ("Mul", ["xd", "s"], ["t"], {})]
        assert bool(problems([*RELU[:2], *apart, ("Neg", ["t"], ["y"], {})], floating)) is wrong, f"alpha {alpha}"


def test_a_cast_that_had_another_name_reads_what_was_cut_to_a_range():
    floating = model([("Abs", ["x"], ["t"], {}), ("CastLike", ["t", "half"], ["y"], {})], half=np.float16(0))
    cut = [("QuantizeLinear", ["t", "cs", "cz"], ["tq"], {}), ("DequantizeLinear", ["tq", "cs", "cz"], ["td"], {})]
    nodes = [*RELU[:2], ("Abs", ["xd"], ["t"], {}), *cut, ("Cast", ["td"], ["y"], {"to": TensorProto.FLOAT16})]
    assert problems(nodes, floating, cs=np.float32(0.001), cz=np.uint8(0)) == []


def test_of_an_operand_that_was_moved_back_and_forth_both_kinds_are_right():
    turned = {"perm": [1, 0]}
    there = [("Transpose", ["x"], ["t"], turned), ("Transpose", ["t"], ["u"], turned)]
    floating = model([*there, ("Sin", ["u"], ["y"], {})])
    floating.graph.output.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, None))
    for op, wrong in (("Sin", False), ("Cos", True)):
        assert bool(problems([*RELU[:2], there[0], (op, ["xd"], ["y"], {})], floating)) is wrong, op


def test_of_a_movement_that_does_nothing_one_may_read_the_operand_and_others_the_rounded_result():
    moved = ("Transpose", ["x"], ["t"], {"perm": [0, 1]})
    floating = model([moved, ("Sin", ["t"], ["a"], {}), ("Neg", ["t"], ["k"], {}), ("Add", ["a", "k"], ["y"], {})])
    rounded = [("QuantizeLinear", ["t", "xs", "xz"], ["tq"], {}), ("DequantizeLinear", ["tq", "xs", "xz"], ["td"], {})]
    rest = [moved, *rounded, ("Neg", ["td"], ["k"], {}), ("Add", ["a", "k"], ["y"], {})]
    for op, expected in (("Sin", []), ("Cos", [("topology", "a")])):
        assert problems([(op, ["x"], ["a"], {}), *rest], floating) == expected, op


def test_an_output_that_is_constant_is_given_as_it_was_made_whatever_others_read():
    made = ("Range", ["two", "ten", "one"], ["y"], {})
    given = {"two": np.float32(2), "ten": np.float32(10), "one": np.float32(1)}
    floating = model([made, ("LeakyRelu", ["y"], ["z"], {})], **given)
    leaky = {"domain": "com.microsoft", "alpha": 0.01}
    rounded = [("QuantizeLinear", ["y", "cs", "cz"], ["y_quantized"], {})]
    rounded += [("QLinearLeakyRelu", ["y_quantized", "cs", "cz", "cs", "cz"], ["z_quantized"], leaky)]
    for first, expected in ((2, []), (2.01, [("parameter", "y"), ("topology", "y")])):
        changed = {**given, "two": np.float32(first), "cs": np.float32(0.11), "cz": np.uint8(0)}
        assert problems([made, *rounded], floating, **changed) == expected, first


def test_rows_gathered_from_blocks_of_a_few_bits_are_those_of_the_table():
    codes = RNG.integers(0, 16, (3, 4))
    nodes = [("Gather", ["table", "rows"], ["g"], {}), ("Add", ["x", "g"], ["y"], {})]
    rows = np.array([2, 0])
    floating = model(nodes, table=(codes * 0.25).astype(np.float32), rows=rows)
    attributes = {"domain": "com.microsoft", "gather_axis": 0, "quantize_axis": 1, "block_size": 16}
    blocks = ("GatherBlockQuantized", ["table_Q4", "rows", "table_scales"], ["g"], attributes)
    for stored, expected in ((codes, []), (codes[::-1], ["table"])):
        given = {"table_Q4": stored.astype(ml_dtypes.uint4), "table_scales": np.full((3, 1), 0.25, np.float32)}
        found = problems([blocks, nodes[1]], floating, rows=rows, **given)
        assert [where for _, where in found] == expected, stored


def test_a_shape_with_other_bounds_is_no_counterpart_of_one_that_was_folded():
    floating = model([("Neg", ["x"], ["t"], {}), ("Shape", ["t"], ["s"], {}), ("Reshape", ["t", "s"], ["y"], {})])
    part = [("Neg", ["xd"], ["t"], {}), ("Shape", ["t"], ["InstanceShape"], {"start": 1})]
    nodes = [*RELU[:2], *part, ("Expand", ["t", "InstanceShape"], ["y"], {})]
    assert problems(nodes, floating) == []


def test_pieces_of_one_node_may_read_its_operand_with_roundings_of_their_own():
    floating = model([("HardSwish", ["x"], ["y"], {})])
    coarse = np.float32(np.abs(X).max() / 9)
    for alpha, expected in ((1 / 6, []), (1 / 5, [("topology", "y")])):
        nodes = [
            *RELU[:2],
            ("QuantizeLinear", ["xd", "cs", "xz"], ["cq"], {}),
            ("DequantizeLinear", ["cq", "cs", "xz"], ["cd"], {}),
            ("HardSigmoid", ["cd"], ["s"], {"alpha": alpha, "beta": 0.5}),
            ("Mul", ["xd", "s"], ["y"], {}),
        ]
        assert problems(nodes, floating, cs=coarse) == expected, f"alpha {alpha}"


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
    assert problems(nodes, floating, xs2=2 * XS) == [("parameter", "xs2")], "it is twice as large at the second"


def test_what_is_drawn_is_no_constant_whatever_it_is_drawn_by():
    empty = graphs.Graph((), {}, frozenset(), (), (), 17)
    drawn = [op for op in having(Trait.RANDOM) if is_constant(graphs.Node(op, ("p",), ("y",), {}), {"p"}, empty)]
    assert not drawn, f"{drawn} of a constant are taken for constants"


def test_nodes_are_put_in_order_though_some_leave_out_a_result():
    late = ("DequantizeLinear", ["xq", "xs", "xz"], ["t"], {})
    recurrent = ("GRU", ["r", "w", "w", "", "", ""], ["", "h"], {"hidden_size": 1})
    graph = graphs.read(model([("Neg", ["t"], ["y"], {}), recurrent, late, RELU[0]]))
    made = [node.outputs[-1] for node in graphs.in_order(graph).nodes]
    assert made.index("xq") < made.index("t") < made.index("y"), made


def test_the_range_of_a_relu_is_not_that_of_its_operand_where_others_read_this_too():
    seen = Calibration({"x": (-1.0, 1.0), "h": (-4.0, 6.0), "r": (0.0, 6.0)})
    made = [*QDQ[:6], ("DequantizeLinear", ["yq", "ys", "yz"], ["hd"], {}), ("Relu", ["hd"], ["r"], {"name": "relu"})]
    for last, expected in ((("Neg", "r"), []), (("Sub", "h", "r"), [("ys", "relu")])):
        op, *operands = last
        nodes = [("Gemm", ["x", "w", "b"], ["h"], {}), ("Relu", ["h"], ["r"], {"name": "relu"})]
        floating = model([*nodes, (op, operands, ["y"], {})], w=W, b=B)
        graph = graphs.read(model([*made, (op, ["hd" if x == "h" else x for x in operands], ["y"], {})], **CONSTANTS))
        found = compare(graphs.read(floating), graph, [evaluate(graph, {"x": X}).balls], seen).problems
        assert [(problem.where, problem.culprit[0]) for problem in found] == expected, f"{op} reads {operands}"


def test_copies_of_a_dequantization_of_the_float_model_are_one_tensor():
    given = {"k": np.float32(0.13), "seven": np.float32(7)}
    codes = [("Mul", ["x", "seven"], ["z"], {}), ("Cast", ["z"], ["i"], {"to": TensorProto.INT8})]
    real = ("DequantizeLinear", ["i", "k"], ["r"], {})
    both = [("Sigmoid", ["r"], ["p"], {}), ("Sigmoid", ["r"], ["q"], {}), ("Add", ["p", "q"], ["y"], {})]
    copied = [
        *(*codes, ("DequantizeLinear", ["i", "k"], ["r/duplicated"], {}), real),
        *(("Sigmoid", ["r/duplicated"], ["p"], {}), both[1]),
        *(("QuantizeLinear", [n, "half", "zero"], [n + "i"], {}) for n in "pq"),
        *(("DequantizeLinear", [n + "i", "half", "zero"], [n + "d"], {}) for n in "pq"),
        ("Add", ["pd", "qd"], ["y"], {}),
    ]
    floating = model([*codes, real, *both], **given)
    assert problems(copied, floating, **given, half=np.float32(0.5), zero=np.int8(0)) == []


def test_a_constant_that_hangs_on_a_rounding_may_be_either():
    made = [("Mul", ["ten", "part"], ["m"], {}), ("Floor", ["m"], ["f"], {})]
    given = {"ten": np.float32(10), "part": np.float32(0.7)}
    floating = model([*made, ("Add", ["x", "f"], ["y"], {})], **given)
    for stored, expected in ((7, []), (6, []), (5, [("topology", "m")])):
        found = problems([("Add", ["x", "f"], ["y"], {})], floating, f=np.float32(stored))
        assert found == expected, f"10 times 0.7 is 7 or a little less, and {stored} was stored"


def test_text_that_is_computed_from_constants_is_known():
    graph = graphs.read(model([("Cast", ["ten"], ["t"], {"to": TensorProto.STRING})], output="t", ten=np.int64([10])))
    assert folded(graph)["t"].tolist() == ["10"]


def test_constants_that_are_rounded_inside_an_operator_taken_apart_are_roundings():
    for constant in (X, np.float32(0.3)):
        floating = model([("Mean", ["x", "c"], ["y"], {})], c=constant)
        for factor, expected in ((0.5, []), (0.25, [("topology", "y")])):
            nodes = [
                ("Mul", ["c", "half"], ["h"], {}),
                ("QuantizeLinear", ["h", "coarse", "zero"], ["hq"], {}),
                ("DequantizeLinear", ["hq", "coarse", "zero"], ["hd"], {}),
                ("Mul", ["x", "half"], ["g"], {}),
                ("Add", ["g", "hd"], ["y"], {}),
            ]
            given = {"c": constant, "half": np.float32(factor), "coarse": np.float32(0.1), "zero": np.int8(0)}
            assert problems(nodes, floating, **given) == expected, f"{constant.ndim}-D, times {factor}"


def test_weights_that_are_moved_may_be_rounded_twice():
    rows = np.arange(4)[::-1].copy()
    floating = model([("Gather", ["w", "k"], ["g"], {}), ("MatMul", ["x", "g"], ["y"], {})], w=W, k=rows)
    for k, expected in ((rows, []), (rows[::-1].copy(), [("topology", "g")])):
        nodes = [
            QDQ[2],
            ("Gather", ["wd", "k"], ["g"], {}),
            ("QuantizeLinear", ["g", "coarse", "zero"], ["gq"], {}),
            ("DequantizeLinear", ["gq", "coarse", "zero"], ["gd"], {}),
            ("MatMul", ["x", "gd"], ["y"], {}),
        ]
        given = {"k": k, "coarse": np.float32(0.1), "zero": np.int8(0)}
        assert problems(nodes, floating, **given) == expected, f"rows {k.tolist()}"


def test_a_weight_that_two_nodes_read_is_judged_for_each_way_round():
    square = RNG.normal(size=(4, 4)).astype(np.float32)
    step = np.float32(np.abs(square).max() / 127)
    floating = model([("Gemm", ["x", "v"], ["h"], {"transB": 1}), ("Gemm", ["h", "v"], ["y"], {})], v=square)
    codes = np.rint(square / step).astype(np.int8)
    for second, expected in (("v", []), ("u", [("parameter", "v")])):
        nodes = [
            *(("DequantizeLinear", [name + "q", "step"], [name + "d"], {}) for name in "uv"),
            ("MatMul", ["x", "ud"], ["h"], {}),
            ("MatMul", ["h", second + "d"], ["y"], {}),
        ]
        given = {"uq": codes.T.copy(), "vq": codes, "step": step}
        assert problems(nodes, floating, **given) == expected, f"the second reads {second}"


def test_weights_without_elements_are_right():
    floating = model([("MatMul", ["x", "e"], ["y"], {})], e=np.zeros((4, 0), np.float32))
    nodes = [("DequantizeLinear", ["eq", "xs"], ["ed"], {}), ("MatMul", ["x", "ed"], ["y"], {})]
    assert problems(nodes, floating, eq=np.zeros((4, 0), np.int8)) == []


def test_a_matmul_with_something_affine_behind_it_may_become_a_gemm():
    mean, ones = np.float32([0.1, 0.2, 0.3]), np.ones(3, np.float32)
    behind = ("BatchNormalization", ["m", "ones", "b", "mean", "ones"], ["h"], {"epsilon": 0.0})
    nodes = [("MatMul", ["x", "w"], ["m"], {}), behind, ("Relu", ["h"], ["y"], {})]
    floating = model(nodes, w=W, b=B, mean=mean, ones=ones)
    shifted = np.rint((B - mean) / (XS * WS)).astype(np.int32)
    assert problems(floating=floating, bq=shifted) == []
    assert problems(floating=floating) == [("parameter", "bd")], "the mean is not subtracted"
    kept = {"ys": np.float32(12 / 255), "yz": np.uint8(128)}
    assert problems(floating=floating, bq=shifted, **kept) == [("topology", "y")], "nothing clips at zero"


def test_weights_that_the_float_model_dequantizes_may_be_rounded_again():
    made = ("DequantizeLinear", ["i", "k"], ["d"], {})
    floating = model([made, ("Gemm", ["x", "d"], ["y"], {"beta": 1.0})], i=CODES, k=np.float32(0.01))
    again = [("QuantizeLinear", ["d", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["e"], {})]
    nodes = [made, *again, ("Gemm", ["x", "e"], ["y"], {})]
    assert problems(nodes, floating, i=CODES, k=np.float32(0.01), s=np.float32(0.013), z=np.int8(0)) == []


def test_a_bias_that_is_computed_is_not_judged_by_what_is_folded_into_weights():
    largest = ("ReduceMax", ["m"], ["t"], {"axes": [0], "keepdims": 0})
    made = [("MatMul", ["x", "w"], ["m"], {}), largest, ("Gemm", ["x", "w", "t"], ["h"], {})]
    floating = model([*made, ("Mul", ["h", "one"], ["y"], {})], w=W, one=np.float32(1))
    nodes = [QDQ[2], ("MatMul", ["x", "wd"], ["m"], {}), largest, ("Gemm", ["x", "wd", "t"], ["y"], {})]
    assert problems(nodes, floating) == []


def test_an_operator_taken_apart_may_read_its_operand_rounded_and_not():
    floating = model([("HardSwish", ["x"], ["y"], {})])
    rounded = [(op, [name if name != "xs" else "fine" for name in i], o, {}) for op, i, o, _ in RELU[:2]]
    for op, expected in (("Mul", []), ("Add", [("topology", "y")])):
        sigmoid = ("HardSigmoid", ["x"], ["s"], {"alpha": 1 / 6, "beta": 0.5})
        found = problems([*rounded, sigmoid, (op, ["xd", "s"], ["y"], {})], floating, fine=np.float32(1 / 255))
        assert found == expected, f"{op} of x within [-0.5, 0.5] and of its HardSigmoid"


def test_a_node_with_its_bias_behind_it_reads_its_operand_as_it_is_read():
    behind = [("Relu", ["x"], ["r"], {}), ("Concat", ["h", "r"], ["y"], {"axis": 1})]
    floating = model([("Gemm", ["x", "w", "b"], ["h"], {}), *behind], w=W, b=B)
    assert problems([*DYNAMIC[:6], *behind], floating) == []
