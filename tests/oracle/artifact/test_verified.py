"""The artifact tier: what a quantized ONNX model says of itself, against the float model and against what came out."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model import graph as graphs
from driftnet.model.artifact import UNTOLD, Artifact
from driftnet.model.case import Case
from driftnet.model.graph import Node
from driftnet.model.verdict import Kind, Word
from driftnet.oracle.artifact.verified import tier as artifact
from driftnet.oracle.artifact.verified.calibration import Calibration, calibration_of
from driftnet.oracle.artifact.verified.execution import execution, nodes_as_written
from driftnet.oracle.artifact.verified.messages import channels_told
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.oracle.artifact.verified.tier import compare
from driftnet.oracle.ball_arithmetic.ball import exact
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.exemptions import saturation
from driftnet.oracle.exemptions.documented import documented
from driftnet.oracle.judge import judge
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme.folding import fold
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Scheme
from driftnet.targets.recipe import effective
from msgspec import structs
from onnx import TensorProto, helper, numpy_helper

from tests.support.models import case

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (2, 4)).astype(np.float32)
W = RNG.normal(size=(4, 3)).astype(np.float32)
B = RNG.normal(size=3).astype(np.float32)
XS, WS = np.float32(2 / 255), (np.abs(W).max(0) / 127).astype(np.float32)
XZ = np.uint8(128)
CODES = np.rint(W / WS).astype(np.int8)
BIAS = np.rint(B / (XS * WS)).astype(np.int32)
YS, YZ = np.float32(6 / 255), np.uint8(0)
"""the result is rounded within [0, 6]: a Relu is absorbed"""


def model(nodes, output="y", **constants):
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(op, inputs, outputs, **given) for op, inputs, outputs, given in nodes],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )


FLOAT = model([("Gemm", ["x", "w", "b"], ["h"], {"name": "gemm"}), ("Relu", ["h"], ["y"], {})], w=W, b=B)
CONSTANTS = {"xs": XS, "xz": XZ, "wq": CODES, "ws": WS, "bq": BIAS, "bs": XS * WS, "ys": YS, "yz": YZ}
CONSTANTS |= {"wz": np.zeros(3, np.int8), "bz": np.zeros(3, np.int32)}
QDQ = [
    ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
    ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], {}),
    ("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], {"axis": 1}),
    ("DequantizeLinear", ["bq", "bs", "bz"], ["bd"], {"axis": 0}),
    ("Gemm", ["xd", "wd", "bd"], ["h"], {"name": "gemm"}),
    ("QuantizeLinear", ["h", "ys", "yz"], ["yq"], {}),
    ("DequantizeLinear", ["yq", "ys", "yz"], ["y"], {}),
]
QOPERATOR = [
    ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
    (
        "QGemm",
        ["xq", "xs", "xz", "wq", "ws", "wz", "bq", "ys", "yz"],
        ["yq"],
        {"name": "gemm_quant", "domain": "com.microsoft"},
    ),
    ("DequantizeLinear", ["yq", "ys", "yz"], ["y"], {}),
]
DYNAMIC = [
    ("DynamicQuantizeLinear", ["x"], ["xq", "ds", "dz"], {}),
    ("MatMulInteger", ["xq", "wq", "dz", "wz"], ["i"], {}),
    ("Cast", ["i"], ["f"], {"to": TensorProto.FLOAT}),
    ("Mul", ["ds", "ws"], ["s"], {}),
    ("Mul", ["f", "s"], ["p"], {}),
    ("Add", ["p", "b"], ["h"], {}),
    ("Relu", ["h"], ["y"], {}),
]
FORMS = {"QDQ": QDQ, "QOperator": QOPERATOR, "dynamic": DYNAMIC}
SEEN = {"x": (-1.0, 1.0), "h": (-4.0, 6.0), "y": (0.0, 6.0)}


def problems(nodes=QDQ, floating=FLOAT, calibration=None, **changed):
    """(question, where) of what is wrong with an artifact."""
    graph = graphs.read(model(nodes, **{**CONSTANTS, "b": B, **changed}))
    found = compare(graphs.read(floating), graph, [evaluate(graph, {"x": X}).balls], calibration)
    return [(problem.question, problem.where) for problem in found.problems]


@pytest.mark.parametrize(
    ("form", "activations", "weights", "feature", "cut"),
    [
        ("QDQ", np.uint8, CODES, "avx2", True),
        ("QDQ", np.int8, CODES, "avx2", True),  # onnxruntime makes these unsigned
        ("QDQ", np.int8, np.ones_like(W), "avx2", True),
        ("QDQ", np.int8, CODES // 2, "avx2", False),
        ("QDQ", np.int8, CODES, "avx512_vnni", False),
        ("QOperator", np.uint8, CODES, "avx2", True),
        ("QOperator", np.int8, CODES, "avx2", False),
        ("dynamic", np.uint8, CODES, "avx2", True),
    ],
)
def test_products_are_cut_of_unsigned_codes_and_of_signed_ones_that_are_held_as_floats(
    monkeypatch, form, activations, weights, feature, cut
):
    monkeypatch.setattr(saturation, "cpu_features", lambda: (feature,))
    zero = activations(np.iinfo(activations).max // 2 + 1 if activations is np.uint8 else 0)
    nodes = [node for node in FORMS[form] if weights.dtype == np.int8 or "wd" not in node[2]]
    held = "wq" if weights.dtype == np.int8 else "wd"
    graph = graphs.read(model(nodes, **{**CONSTANTS, "xz": zero, "yz": zero, held: weights, "b": B}))
    run, names = documented(graph, {saturation.RULE})
    written, made = (evaluate(each, {"x": np.ones_like(X)}).balls["y"] for each in (graph, run))
    assert bool((made.error > written.error).any()) is cut, (written.error, made.error)
    assert names == ({saturation.RULE} if feature == "avx2" else set())


@pytest.mark.parametrize(
    ("feature", "problems", "excused"), [("avx2", 0, {"i": saturation.RULE}), ("avx512_vnni", 1, {})]
)
def test_a_node_that_cuts_products_without_optimizations_too_is_excused_where_the_machine_does(
    monkeypatch, feature, problems, excused
):
    monkeypatch.setattr(saturation, "cpu_features", lambda: (feature,))
    graph = graphs.read(model(DYNAMIC, **{**CONSTANTS, "b": B}))
    balls = evaluate(graph, {"x": np.ones_like(X)}).balls
    recorded = {name: np.asarray(balls[name].midpoint, balls[name].dtype) for name in ("xq", "dz", "i")}
    found = nodes_as_written(graph, {**graph.constants, **recorded, "i": recorded["i"] - 1}, {saturation.RULE})
    assert (len(found[0]), found[1]) == (problems, excused), f"found {found}"


COMPUTED = [
    ("ReduceMin", ["x"], ["low"], {"keepdims": 0}),
    ("ReduceMax", ["x"], ["high"], {"keepdims": 0}),
    ("Sub", ["high", "low"], ["width"], {}),
    ("Div", ["width", "codes"], ["ds"], {}),
    ("Sub", ["nothing", "low"], ["below"], {}),
    ("Div", ["below", "ds"], ["z"], {}),
    ("Floor", ["z"], ["zf"], {}),
    ("Cast", ["zf"], ["dz"], {"to": TensorProto.UINT8}),
    ("QuantizeLinear", ["x", "ds", "dz"], ["xq"], {}),
    *DYNAMIC[1:],
]
"""Of a model of opset 10, which has no DynamicQuantizeLinear, onnxruntime's quantizer makes this."""


def test_a_range_that_is_computed_of_what_is_rounded_is_held_to_that():
    """Calibration saw the float model: of what is quantized before, the tensor is not quite the same any more."""
    seen = Calibration({"x": (float(X.min()) + 0.05, float(X.max()) - 0.05)})
    codes = np.float32(255)
    assert problems(COMPUTED, FLOAT, seen, codes=codes, nothing=np.float32(0)) == []
    assert problems(COMPUTED, FLOAT, seen, codes=codes * 2, nothing=np.float32(0)) == [("parameter", "ds")]
    assert problems(COMPUTED, FLOAT, seen, codes=codes, nothing=np.float32(0.1)) == [("parameter", "ds")]


def test_a_scale_that_is_computed_of_what_is_not_known_is_none_that_is_zero():
    """What is not known is held as 0 in a ball of any size."""
    graph = graphs.read(model(COMPUTED, **CONSTANTS, b=B, codes=np.float32(255), nothing=np.float32(0)))
    known = evaluate(graph, {"x": X}).balls
    for error, wrong in ((np.inf, []), (0.0, ["ds"])):
        scale = replace(known["ds"], midpoint=np.zeros(()), radius=np.full((), error))
        found = compare(graphs.read(FLOAT), graph, [{**known, "ds": scale}], None).problems
        assert [problem.where for problem in found if problem.question == "parameter"] == wrong, error


@pytest.mark.parametrize("form", FORMS)
def test_three_ways_to_say_the_same_are_read_alike(form):
    pieces = read_artifact(graphs.read(model(FORMS[form], **CONSTANTS, b=B))).pieces
    linear = [piece for piece in pieces if piece.node.op in ("Gemm", "MatMul")]
    assert len(linear) == 1, f"{form}: one linear operation, not {[piece.node.op for piece in pieces]}"
    assert [use.real for use in linear[0].uses[:2]] == ["x", "wq"], "it reads x and the weights"


@pytest.mark.parametrize("form", FORMS)
def test_a_right_artifact_has_no_problem(form):
    assert problems(FORMS[form]) == [], f"{form} is right"


def test_a_name_that_is_stored_and_made_is_told_alone():
    """A quantizer calls its scales after tensors, and so did the one before it."""
    assert problems(DYNAMIC, ds=np.float32(0.1)) == [("topology", "ds")]


def test_a_range_is_as_exact_as_its_scale_is_stored():
    nodes = [("QuantizeLinear", ["x", "s", "zero"], ["q"], {}), ("DequantizeLinear", ["q", "s", "zero"], ["d"], {})]
    floating = model([("Neg", ["x"], ["y"], {})])
    seen = Calibration({"x": (-3.18359375, 1.0)})
    for scale, wrong in ((3.18359375 / 127, []), (3.18359375 / 127 * 1.02, [("parameter", "s")])):
        half = {"s": np.float16(scale), "zero": np.int8(0)}
        artifact = model([*nodes, ("Neg", ["d"], ["y"], {})], **half)
        artifact.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
        graph = graphs.read(artifact)
        balls = evaluate(graph, {"x": X.astype(np.float16)}).balls
        found = compare(graphs.read(floating), graph, [balls], seen, span=254).problems
        assert [(p.question, p.where) for p in found] == wrong, scale


@pytest.mark.parametrize("form", FORMS)
def test_weights_truncated_instead_of_rounded_are_a_wrong_parameter(form):
    found = problems(FORMS[form], wq=np.trunc(W / WS).astype(np.int8))
    assert found == [("parameter", "w")], f"{form}: {found}"


def test_weights_that_are_rounded_twice_may_be_off_by_both_roundings():
    coarse = np.float32(np.abs(W).max() / 127)
    nodes = [
        *QDQ[:2],
        ("DequantizeLinear", ["wq", "ws", "wz"], ["w_once"], {"axis": 1}),
        ("QuantizeLinear", ["w_once", "cs", "cz"], ["wc"], {}),
        ("DequantizeLinear", ["wc", "cs", "cz"], ["wd"], {}),
        *QDQ[3:],
    ]
    step = np.full(3, XS * coarse)
    given = {"cs": coarse, "cz": np.int8(0), "bs": step, "bq": np.rint(B / step).astype(np.int32)}
    first = np.full(3, np.float32(1.1) * coarse)
    right = np.rint(W / first).astype(np.int8)
    for codes, expected in ((right, []), (right + np.int8(1), [("parameter", "w")])):
        assert problems(nodes, wq=codes, ws=first, **given) == expected


@pytest.mark.parametrize("form", FORMS)
def test_the_scale_of_another_channel_is_a_wrong_parameter(form):
    found = problems(FORMS[form], ws=WS[::-1].copy())
    assert ("parameter", "ws") in found, f"{form}: {found}"


def test_a_stale_bias_scale_is_wrong_though_the_bias_is_right():
    found = problems(bs=XS * WS * np.float32(3), bq=np.rint(B / (XS * WS * 3)).astype(np.int32))
    assert found == [("parameter", "bs")], found


@pytest.mark.parametrize(
    ("form", "scale", "factor", "where"),
    [("QOperator", "xs", 0.5, "xs"), ("QOperator", "ws", 1.3, "w"), ("QDQ", "ws", 1.3, "w")],
)
def test_a_wrong_scale_is_named_once_and_not_the_bias_that_is_read_with_it(form, scale, factor, where):
    """In operators on integers a bias has the product of both scales, and is off by the factor of either."""
    changed = {scale: (CONSTANTS[scale] * factor).astype(np.float32)}
    assert problems(FORMS[form], **changed) == [("parameter", where)]


@pytest.mark.parametrize(
    ("hit", "said"),
    [
        ((slice(None), slice(0, 8)), ", all in 0..7 of axis 1"),
        ((slice(None), [0, 2, 3]), ", all in 0, 2..3 of axis 1"),
        ((slice(None), slice(0, 10)), ", all in 0..9 of axis 1"),
        ((1, 5), ", all in 5 of axis 1"),
        ((slice(None), slice(None)), ""),
    ],
)
def test_only_an_axis_is_named_that_tells_where_what_is_wrong_is(hit, said):
    """Not one of two places that are both hit, nor one of a single place."""
    wrong = np.zeros((2, 16, 1), bool)
    wrong[hit] = True
    assert channels_told(wrong) == said


def test_a_bias_may_be_another_one_where_biases_are_moved_and_a_weight_may_not():
    moved, codes = {"bq": BIAS + np.int32(40)}, {"wq": np.trunc(W / WS).astype(np.int8)}
    for moves, expected in ((False, [("parameter", "b")]), (True, [])):
        calibration = Calibration(SEEN, clips=True, moves_biases=moves)
        assert problems(calibration=calibration, **moved) == expected, f"biases are moved: {moves}"
        assert ("parameter", "w") in problems(calibration=calibration, **moved, **codes), f"biases are moved: {moves}"


@pytest.mark.parametrize("made", ["MatMul", "Relu"])
@pytest.mark.parametrize("moves", [False, True])
def test_what_is_added_to_a_product_is_such_a_bias_and_to_another_result_it_is_not(made, moves):
    nodes = [(made, ["x", "w"][: 2 if made == "MatMul" else 1], ["h"], {}), ("Add", ["b", "h"], ["y"], {})]
    shapes = {"w": W} if made == "MatMul" else {}
    addend = B if made == "MatMul" else W[:, 0]
    floating, moved = (model(nodes, b=x, **shapes) for x in (addend, addend + np.float32(0.25)))
    graph = graphs.read(moved)
    calibration = Calibration(SEEN, clips=True, moves_biases=moves)
    found = compare(graphs.read(floating), graph, [evaluate(graph, {"x": X}).balls], calibration).problems
    assert (not found) is (made == "MatMul" and moves), found


def test_a_scale_twice_too_big_is_told_by_the_codes_that_it_leaves_out():
    graph = graphs.read(model(QDQ, **{**CONSTANTS, "ws": 2 * WS, "wq": np.rint(W / WS / 2).astype(np.int8)}))
    found = compare(graphs.read(FLOAT), graph, [evaluate(graph, {"x": X}).balls], None, 254).problems
    assert any("too big" in problem.message for problem in found), found


@pytest.mark.parametrize(("most", "span"), [(1, 254), (2, 128), (1, 65535), (2, 32768)])
@pytest.mark.parametrize(("more", "wrong"), [(1, False), (2, True)])
def test_what_is_added_takes_all_codes_too(most, span, more, wrong):
    """It has 8 bits where weights have 16, and where those leave out half of their codes it does too."""
    floating = model([("Add", ["x", "c"], ["y"], {})], c=W[0, 0] * np.ones((2, 4), np.float32))
    step = np.float32(most * more * abs(W[0, 0]) / 127)
    rows = [*QDQ[:2], ("DequantizeLinear", ["cq", "cs", "cz"], ["cd"], {}), ("Add", ["xd", "cd"], ["y"], {})]
    codes = np.full((2, 4), np.rint(W[0, 0] / step), np.int8)
    graph = graphs.read(model(rows, xs=XS, xz=XZ, cq=codes, cs=step, cz=np.int8(0)))
    found = compare(graphs.read(floating), graph, [evaluate(graph, {"x": X}).balls], None, span).problems
    assert any("too big" in problem.message for problem in found) is wrong, found


def test_integers_read_with_another_zero_point_than_they_were_written_with_are_wrong():
    assert ("parameter", "ys") in problems([*QDQ[:-1], ("DequantizeLinear", ["yq", "ys", "xz"], ["y"], {})])


def test_a_relu_may_be_absorbed_by_a_range_that_starts_at_zero_only():
    assert problems(yz=YZ) == []
    assert problems(yz=np.uint8(100)) == [("topology", "y")], "the Relu is gone, and nothing does what it did"


def test_a_relu_may_be_absorbed_behind_a_product_that_was_written_anew():
    plain = [
        ("MatMul", ["x", "wd"], ["m"], {}),
        ("Add", ["m", "bd"], ["a"], {}),
        ("Relu", ["a"], ["r"], {"name": "relu"}),
    ]
    floating = model([*plain, ("Neg", ["r"], ["y"], {})], wd=W, bd=B)
    fused = [*QDQ[:4], ("Gemm", ["xd", "wd", "bd"], ["g"], {}), ("Reshape", ["g", "shape"], ["r"], {})]
    pair = [("QuantizeLinear", ["r", "ys", "yz"], ["rq"], {}), ("DequantizeLinear", ["rq", "ys", "yz"], ["rd"], {})]
    nodes = [*fused, *pair, ("Neg", ["rd"], ["y"], {})]
    assert problems(nodes, floating, shape=np.int64([2, 3])) == [], "the range begins at zero"
    lost = problems(nodes, floating, shape=np.int64([2, 3]), yz=np.uint8(128))
    assert lost == [("topology", "relu")], "this range does not do what the Relu did"


@pytest.mark.parametrize(("low", "expected"), [(0, []), (-1, [("topology", "r")])])
def test_a_relu_may_become_the_lower_bound_of_the_clip_that_reads_it(low, expected):
    bounds = {"low": np.float32(-0.5), "high": np.float32(6)}
    plain = [("MatMul", ["x", "w"], ["m"], {}), ("Relu", ["m"], ["r"], {}), ("Clip", ["r", "low", "high"], ["y"], {})]
    fused = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["m"], {}), ("Clip", ["m", "low", "high"], ["y"], {})]
    found = problems(fused, model(plain, w=W, **bounds), **{**bounds, "low": np.float32(low)})
    assert found == expected, f"lower bound {low}"


def test_a_tensor_in_the_place_of_a_constant_is_wrong():
    nodes = [("MatMul", ["x", "w"], ["m"], {}), ("Add", ["m", "b"], ["y"], {"name": "add"})]
    twice = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["m"], {}), ("Add", ["m", "m"], ["y"], {"name": "add"})]
    assert problems(twice, model(nodes, w=W, b=B)) == [("topology", "add")]


def test_an_output_of_another_shape_is_wrong():
    nodes = [("MatMul", ["x", "w"], ["m"], {}), ("Add", ["m", "b"], ["y"], {"name": "add"})]
    lone = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["m"], {}), ("DequantizeLinear", ["bq", "bs", "bz"], ["y"], {"axis": 0})]
    assert problems(lone, model(nodes, w=W, b=B)) == [("topology", "add")]


def test_a_lost_bias_is_a_wrong_topology_and_told_as_that():
    graph = graphs.read(model([*QDQ[:3], ("Gemm", ["xd", "wd"], ["h"], {"name": "gemm"}), *QDQ[5:]], **CONSTANTS))
    (found,) = compare(graphs.read(FLOAT), graph, [evaluate(graph, {"x": X}).balls], None).problems
    assert (found.question, found.where) == ("topology", "gemm")
    assert "no bias, the float model has 'b'" in found.message


@pytest.mark.parametrize(("read", "wrong"), [("Shape", []), ("Relu", ["add"])])
def test_what_adds_to_a_tensor_of_which_only_the_shape_is_read_may_go(read, wrong):
    sums = [(read, ["t"], ["s"], {}), ("Cast", ["s"], ["c"], {"to": 1}), ("ReduceMax", ["c"], ["r"], {"keepdims": 0})]
    nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Add", ["h", "b"], ["t"], {"name": "add"}), *sums]
    floating = model([*nodes, ("Mul", ["h", "r"], ["y"], {})], w=W, b=B)
    product = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["h"], {})]
    artifact = [*product, (read, ["h"], ["s"], {}), *sums[1:], ("Mul", ["h", "r"], ["y"], {})]
    assert [where for _, where in problems(artifact, floating)] == wrong, f"{read} of the sum"


def test_another_attribute_is_a_wrong_topology_unless_it_makes_no_difference():
    for alpha, expected in ((1.0, []), (0.5, [("parameter", "w")])):
        gemm = ("Gemm", ["xd", "wd", "bd"], ["h"], {"name": "gemm", "alpha": alpha})
        assert problems([*QDQ[:4], gemm, *QDQ[5:]]) == expected, f"alpha {alpha}"


def test_constants_that_hold_infinity_are_compared():
    masked = np.array([[-np.inf, 0, -np.inf], [0, 0, 1]], np.float32)
    floating = model(
        [("MatMul", ["x", "w"], ["h"], {}), ("Add", ["h", "mask"], ["y"], {"name": "add"})], w=W, mask=masked
    )
    quantized = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["h"], {}), ("Add", ["h", "mask"], ["y"], {"name": "add"})]
    assert not problems(quantized, floating, mask=masked), "a mask that stayed as it was is right"
    assert problems(quantized, floating, mask=np.roll(masked, 1)), "another mask is wrong"


def test_a_bias_that_vanished_with_its_add_is_missed():
    floating = model([("MatMul", ["x", "w"], ["m"], {"name": "matmul"}), ("Add", ["m", "b"], ["y"], {})], w=W, b=B)
    kept = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["m"], {"name": "matmul"})]
    assert problems([*kept, ("Add", ["m", "b"], ["y"], {})], floating) == []
    lost = problems([*QDQ[:3], ("MatMul", ["xd", "wd"], ["y"], {"name": "matmul"})], floating)
    assert lost == [("parameter", "y")], "the Add became part of a product that adds nothing"


def test_the_step_of_zeros_excuses_nothing():
    floating = model([("MatMul", ["x", "w"], ["m"], {}), ("Add", ["m", "b"], ["y"], {})], w=W, b=B / 10)
    shift = [("DequantizeLinear", ["cq", "cs", "cz"], ["c"], {}), ("Add", ["m", "c"], ["y"], {})]
    nodes = [*QDQ[:3], ("MatMul", ["xd", "wd"], ["m"], {}), *shift]
    for scale, codes, expected in ((B.max() / 1270, np.rint(B / B.max() * 127), []), (1, B * 0, [("parameter", "b")])):
        held = {"cs": np.float32(scale), "cz": np.int8(0), "cq": codes.clip(-128, 127).astype(np.int8)}
        assert problems(nodes, floating, **held) == expected, f"scale {scale}"


@pytest.mark.parametrize("op", ["Add", "Greater", "Mod"])
@pytest.mark.parametrize(("shape", "expected"), [([1, 3], []), ([3, 1], [("parameter", "c")])])
def test_an_operand_broadcast_along_another_axis_is_wrong(op, shape, expected):
    given = {"fmod": 1} if op == "Mod" else {}
    nodes = [("Expand", ["h", "s"], ["e"], {}), (op, ["e", "c"], ["m"], given)]
    nodes = [("Gemm", ["x", "w", "b"], ["h"], {}), *nodes, ("Cast", ["m"], ["y"], {"to": TensorProto.FLOAT})]
    constants = {"w": W[:, :1].repeat(3, 1), "b": B, "s": np.int64([1, 2, 3])}
    right = model(nodes, **constants, c=np.float32([1, 2, 3]))
    assert problems(nodes, right, **constants, c=np.float32([1, 2, 3]).reshape(shape)) == expected


def test_what_quantizes_inside_and_stood_in_the_float_model_is_left_as_it_is():
    """Of a model that was quantized dynamically before: taken for an LSTM of floats it would be off by steps."""
    hidden = 2
    codes = {name: RNG.integers(-127, 128, (1, size, 8)).astype(np.int8) for name, size in (("wq", 4), ("rq", hidden))}
    given = {
        **codes,
        "s": np.int64([2, 1, 4]),
        "ws": np.float32([0.05]),
        "rs": np.float32([0.03]),
        "zp": np.zeros(1, np.int8),
    }
    inputs = ["z", "wq", "rq", "", "", "", "", "", "ws", "zp", "rs", "zp"]
    lstm = ("DynamicQuantizeLSTM", inputs, ["y"], {"hidden_size": hidden, "domain": "com.microsoft"})
    nodes = [("Reshape", ["x", "s"], ["z"], {}), lstm]
    floating = model(nodes, **given)
    assert problems(nodes, floating, **given) == []
    swapped = {**given, "wq": codes["wq"][:, :, [0, 1, 4, 5, 2, 3, 6, 7]]}
    assert problems(nodes, floating, **swapped) != [], "two gates are exchanged"


def test_the_weights_of_a_dynamic_lstm_are_judged_the_other_way_round():
    hidden = 2
    gates = {"w": RNG.normal(size=(1, 4 * hidden, 4)), "r": RNG.normal(size=(1, 4 * hidden, hidden))}
    gates = {name: x.astype(np.float32) for name, x in gates.items()}
    reshape = ("Reshape", ["x", "s"], ["z"], {})
    floating = model(
        [reshape, ("LSTM", ["z", "w", "r"], ["y"], {"hidden_size": hidden})], s=np.int64([2, 1, 4]), **gates
    )
    inputs = ["z", "wq", "rq", "", "", "", "", "", "ws", "zp", "rs", "zp"]
    nodes = [reshape, ("DynamicQuantizeLSTM", inputs, ["y"], {"hidden_size": hidden, "domain": "com.microsoft"})]

    def found(gates):
        scales = {name: np.abs(x).max().reshape(1) / np.float32(127) for name, x in gates.items()}
        codes = {f"{k}q": np.rint(x / scales[k]).astype(np.int8).swapaxes(1, 2) for k, x in gates.items()}
        given = {
            **codes,
            **{f"{k}s": x for k, x in scales.items()},
            "zp": np.zeros(1, np.int8),
            "s": np.int64([2, 1, 4]),
        }
        return problems(nodes, floating, **given)

    assert found(gates) == []
    swapped = {name: x[:, [0, 1, 4, 5, 2, 3, 6, 7]] for name, x in gates.items()}
    assert found(swapped) == [("parameter", "w"), ("parameter", "r")], "two gates are exchanged"


def test_what_is_computed_from_constants_may_be_computed_from_rounded_ones():
    floating = model([("MatMul", ["c", "w"], ["m"], {}), ("Add", ["x", "v"], ["y"], {})], output="m", w=W, c=X, v=X)
    nodes = [
        ("DequantizeLinear", ["cq", "xs", "xz"], ["cd"], {}),
        QDQ[2],
        ("MatMul", ["cd", "wd"], ["m"], {}),
        ("Add", ["x", "v"], ["y"], {}),
    ]
    codes = np.clip(np.rint(X / XS) + 128, 0, 255).astype(np.uint8)
    assert problems(nodes, floating, cq=codes, v=X) == []
    assert ("parameter", "c") in problems(nodes, floating, cq=codes[::-1].copy(), v=X), "the rows are exchanged"


def test_a_constant_that_was_folded_and_rounded_is_judged_by_its_codes():
    nodes = [("Neg", ["c"], ["t"], {}), ("Pow", ["t", "two"], ["m"], {}), ("Add", ["x", "v"], ["y"], {})]
    floating = model(nodes, output="m", c=X, v=X, two=np.float32(2))
    taken, made = ["t_quantized", "xs", "xz"], ["ms", "mz"]
    nodes = [
        ("QLinearMul", taken + taken + made, ["mq"], {"domain": "com.microsoft"}),
        ("DequantizeLinear", ["mq", *made], ["m"], {}),
        ("Add", ["x", "v"], ["y"], {}),
    ]
    codes = np.clip(np.rint(-X / XS) + 128, 0, 255).astype(np.uint8)
    given = {"ms": np.float32(1 / 255), "mz": np.uint8(0), "v": X}
    assert problems(nodes, floating, t_quantized=codes, **given) == []
    assert problems(nodes, floating, t_quantized=codes[::-1].copy(), **given) != [], "the rows are exchanged"


def test_a_factor_behind_a_product_of_activations_is_missed():
    floating = model(
        [
            ("Transpose", ["x"], ["k"], {}),
            ("MatMul", ["x", "k"], ["s"], {}),
            ("Mul", ["s", "f"], ["m"], {}),
            ("Softmax", ["m"], ["y"], {}),
        ],
        f=np.float32(0.25),
    )
    kept = [*QDQ[:2], ("Transpose", ["xd"], ["k"], {}), ("MatMul", ["xd", "k"], ["s"], {})]
    assert (
        problems([*kept, ("Mul", ["s", "f"], ["m"], {}), ("Softmax", ["m"], ["y"], {})], floating, f=np.float32(0.25))
        == []
    )
    assert problems([*kept, ("Softmax", ["s"], ["y"], {})], floating) == [("topology", "m")], "no weights could hold it"


def test_what_is_taken_from_constants_is_what_the_float_model_takes():
    floating = model([("Gather", ["w", "k"], ["y"], {})], w=W, k=np.int64([0, -1]))
    nodes = [QDQ[2], ("Gather", ["wd", "k"], ["y"], {})]
    assert problems(nodes, floating, k=np.int64([0, -1])) == []
    assert problems(nodes, floating, k=np.int64([0, 1])) == [("topology", "y")], "a negative index is another one"


def test_a_copy_of_a_dequantization_of_the_float_model_is_no_quantization():
    given = {"k": np.float32(0.13), "seven": np.float32(7)}
    codes = [("Mul", ["x", "seven"], ["z"], {}), ("Cast", ["z"], ["i"], {"to": TensorProto.INT8})]
    dequantized = ("DequantizeLinear", ["i", "k"], ["r"], {})
    floating = model([*codes, dequantized, ("MatMul", ["r", "w"], ["m"], {})], output="m", w=W, **given)
    copied = [
        *(*codes, ("DequantizeLinear", ["i", "k"], ["r/duplicated"], {})),
        *(("QuantizeLinear", ["r/duplicated", "xs", "xz"], ["xq"], {}), QDQ[1], QDQ[2]),
        ("MatMul", ["xd", "wd"], ["m"], {}),
    ]
    assert problems(copied, floating, **given) == []


def test_ranges_have_to_be_those_that_calibration_saw():
    assert problems(calibration=Calibration(SEEN)) == []
    assert problems(calibration=Calibration({**SEEN, "y": (0.0, 9.0)})) == [("parameter", "ys")]
    assert problems(calibration=Calibration({**SEEN, "y": (0.0, 9.0)}, clips=True)) == [], "a part of the data's range"
    tiny = {**SEEN, "h": (-1e-6, 1e-6), "y": (0.0, 1e-6)}
    for narrow, wrong in ((0.0, [("parameter", "ys")]), (8e-4, [("parameter", "ys")]), (10.0, [])):
        found = problems(calibration=Calibration(tiny, clips=True, narrow=narrow))
        assert found == wrong, f"a range of 1e-6 that may be widened by {narrow}: {found}"
    assert problems(calibration=Calibration({**SEEN, "h": (-4.0, 3.0), "y": (0.0, 3.0)}, clips=True)) == [
        ("parameter", "ys")
    ]


@pytest.mark.parametrize(("taken", "scale", "agrees"), [(0, 1, True), (0, 9, True), (2, 1, True), (2, 9, False)])
def test_any_range_fits_what_has_no_elements(runner, taken, scale, agrees):
    """onnxruntime gives what a Slice leaves nothing of a scale of 1, whatever the Slice reads."""
    nodes = [
        helper.make_node("Slice", ["x", "low", "high"], ["h"]),
        helper.make_node("Concat", ["m", "h"], ["y"], axis=0),
    ]
    bounds = {"low": np.array([0], np.int64), "high": np.array([taken], np.int64)}
    feed = {"x": np.linspace(0, 1, 4, dtype=np.float32), "m": np.linspace(-1, 1, 4, dtype=np.float32)}
    sliced = case(nodes, feed, bounds, outputs=[("y", TensorProto.FLOAT, (4 + taken,))], calibration=[feed])
    quantizer = resolve("onnxruntime-quant")
    seen = runner.observe(sliced, quantizer, {})
    written = onnx.ModelProto.FromString(seen.artifact.model)
    for tensor in written.graph.initializer:
        if tensor.name == "h_scale":
            tensor.CopyFrom(numpy_helper.from_array(scale * numpy_helper.to_array(tensor), "h_scale"))
    stored = [tensor.name for tensor in written.graph.initializer]
    assert "h_scale" in stored, f"{stored} should hold the scale of what is sliced"
    seen = replace(seen, artifact=structs.replace(seen.artifact, model=written.SerializeToString()))
    options = effective(quantizer.target, {})
    verdict = judge(sliced, seen, target=quantizer.target, options=options, reference=runner.reference)
    assert (verdict.word is Word.AGREES) is agrees, verdict


def test_the_scale_of_a_tensor_may_be_an_array_of_one():
    ranges = Calibration(SEEN)
    assert problems(calibration=ranges, xs=XS.reshape(1), ys=YS.reshape(1), bs=(XS * WS)) == []
    assert problems(calibration=ranges, ys=2 * YS.reshape(1)) == [("parameter", "ys")]


def test_calibration_may_clip_as_much_as_it_likes():
    assert problems(calibration=Calibration(dict.fromkeys(SEEN, (-9e4, 9e4)), clips=True)) == []


def test_a_range_may_reach_further_than_half_precision():
    constants = {"b": np.float16([3e4, -2e4, 6e4]), "s": np.float16(600), "zero": np.int8(0)}
    nodes = [("QuantizeLinear", ["b", "s", "zero"], ["q"], {}), ("DequantizeLinear", ["q", "s", "zero"], ["d"], {})]
    floating, artifact = (
        model([*before, ("Add", ["x", read], ["y"], {})], **constants) for before, read in (([], "b"), (nodes, "d"))
    )
    for proto in (floating, artifact):
        proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    graph = graphs.read(artifact)
    balls = evaluate(graph, {"x": X.astype(np.float16)}).balls
    assert not compare(graphs.read(floating), graph, [balls], Calibration({}, clips=True)).problems


def test_a_softmax_may_have_the_range_of_its_definition_wherever_it_goes():
    given = {"pads": np.int64([0, 1, 0, 1]), "minus": np.float32(-1)}
    step = {"us": np.float32(1 / 255), "uz": np.uint8(0)}
    seen = Calibration({"s": (0.25, 0.5), "y": (-1.0, 0.5)})
    for op, expected in (("Softmax", []), ("Neg", [("parameter", "us")])):
        floating = model([(op, ["x"], ["s"], {}), ("Pad", ["s", "pads", "minus"], ["y"], {})], **given)
        nodes = [
            (op, ["x"], ["s"], {}),
            ("QuantizeLinear", ["s", "us", "uz"], ["sq"], {}),
            ("DequantizeLinear", ["sq", "us", "uz"], ["sd"], {}),
            ("Pad", ["sd", "pads", "minus"], ["y"], {}),
        ]
        assert problems(nodes, floating, seen, **given, **step) == expected, op


def test_a_scale_of_the_float_model_was_not_calibrated():
    seen = Calibration({**SEEN, "x": (-0.25, 0.25)})
    assert problems(calibration=seen) == [("parameter", "xs")]
    nodes = [("Gemm", ["x", "w", "b"], ["h"], {"name": "gemm"}), ("Relu", ["h"], ["y"], {})]
    assert problems(floating=model(nodes, w=W, b=B, xs=XS), calibration=seen) == []


def test_a_batch_normalization_may_be_folded_into_weights():
    gain, shift = np.float32([2, 0.5, -1]), np.float32([0, 1, 2])
    floating = model(
        [
            ("Gemm", ["x", "w", "b"], ["g"], {"name": "gemm"}),
            ("Mul", ["g", "gain"], ["m"], {}),
            ("Add", ["m", "shift"], ["h"], {}),
            ("Relu", ["h"], ["y"], {}),
        ],
        w=W,
        b=B,
        gain=gain,
        shift=shift,
    )
    scale = WS * np.abs(gain)
    folded = {"ws": scale, "wq": np.rint(W * gain / scale).astype(np.int8), "bs": XS * scale}
    bias = np.rint((B * gain + shift) / (XS * scale)).astype(np.int32)
    assert problems(floating=floating, **folded, bq=bias) == []
    assert problems(floating=floating, **folded, bq=BIAS) == [("parameter", "b")], "the bias was not folded"


def test_folding_into_a_grouped_transposed_convolution_goes_by_group():
    weights, gain = RNG.normal(size=(4, 2, 1)), np.float32([1, 2, 3, 4])
    node = Node("ConvTranspose", ("x", "w"), ("h",), {"group": 2})
    folded = fold(node, {1: weights}, [Node("Mul", ("h", "g"), ("y",), {})], {"g": gain[:, None]})
    expected = weights * np.array([[1, 2], [1, 2], [3, 4], [3, 4]])[:, :, None]
    np.testing.assert_allclose(folded[1], expected, err_msg="inputs of the second group make outputs 2 and 3")


def executed(shift):
    """What D1 says of the right output, shifted."""
    graph = graphs.read(model(QDQ, **CONSTANTS))
    evaluation = evaluate(graph, {"x": X})
    right = evaluation.balls["y"].midpoint
    observed = {"y": np.float32(np.where(right > 0, right + shift, right))}
    return execution(graph, evaluation, {"x": X}, observed).problems


def test_an_artifact_executed_as_written_has_no_problem():
    assert executed(0) == {}


def test_one_step_off_is_of_a_milder_kind():
    assert executed(YS)["y"].mild
    assert not executed(3 * YS)["y"].mild


def test_8_bit_floats_have_values_between_the_multiples_of_a_scale():
    rows = [("QuantizeLinear", ["x", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["y"], {})]
    graph = graphs.read(model(rows, s=np.float32(1), z=np.zeros((), ml_dtypes.float8_e5m2)))
    feed = {"x": np.full(20, 0.25, np.float32)}
    assert execution(graph, evaluate(graph, feed), feed, {"y": feed["x"]}).problems == {}


@pytest.mark.parametrize(("observed", "right"), [(0, True), (0.25, False), (1, True)])
def test_at_a_tie_a_result_is_either_code_and_nothing_between(observed, right):
    rows = [("QuantizeLinear", ["x", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["y"], {})]
    graph = graphs.read(model(rows, s=np.float32(1), z=np.uint8(0)))
    feed = {"x": np.float32([0.5, *[4] * 19])}
    found = execution(graph, evaluate(graph, feed), feed, {"y": np.float32([observed, *[4] * 19])})
    assert not found.undecided
    assert (not found.problems) is right


def question(nodes, observed, **changed):
    case = Case(FLOAT.SerializeToString(), ({"x": X},))
    data = model(nodes, **{**CONSTANTS, **changed}).SerializeToString()
    scheme = Scheme(weight_codes=(-127, 127))
    return Question(case, ({"y": observed},), ({"y": observed},), None, scheme, artifact=Artifact(model=data))


def test_the_tier_blames_the_quantizer_for_parameters_and_the_executor_for_the_rest():
    place, right = (0, "y"), np.float32(evaluate(graphs.read(model(QDQ, **CONSTANTS)), {"x": X}).balls["y"].midpoint)
    assert artifact.decide(question(QDQ, right), [place])[place].word is Word.AGREES
    wrong = artifact.decide(question(QDQ, right, wq=-CODES), [place])[place]
    assert (wrong.stage, wrong.word, wrong.culprits) == ("quantize", Word.DIVERGES, (("gemm", "Gemm"),))
    late = artifact.decide(question(QDQ, right + 1), [place])[place]
    assert (late.stage, late.kind) == ("execute", Kind.WRONG_VALUES)


def test_behind_a_node_that_cannot_be_compared_the_tier_abstains():
    floating = model([("MatMul", ["x", "w"], ["m"], {}), ("Add", ["m", "b"], ["y"], {})], w=W, b=B)
    rows = [
        ("Reshape", ["xd", "s"], ["xr"], {}),
        ("Gemm", ["xr", "wd", "bd"], ["g"], {}),
        ("Reshape", ["g", "t"], ["y"], {}),
    ]
    artifact_model = model([*QDQ[:4], *rows], **CONSTANTS, s=np.int64([2, 4]), t=np.int64([2, 3]))
    right = np.float32(evaluate(graphs.read(artifact_model), {"x": X}).balls["y"].midpoint)
    asked = replace(question(QDQ, right), case=Case(floating.SerializeToString(), ({"x": X},)))
    asked = replace(asked, artifact=Artifact(model=artifact_model.SerializeToString()))
    verdict = artifact.decide(asked, [(0, "y")])[0, "y"]
    assert (verdict.word, verdict.abstained) == (Word.ABSTAINS, ("Add", "MatMul")), (
        "nobody knows which constant is the bias"
    )


def test_what_nobody_can_evaluate_is_as_written_where_the_reference_runs_it_so(runner):
    """Of an index that lies near a whole number before it is cut nobody knows what it takes."""
    cut = [("Mul", ["x", "tenth"], ["p"], {}), ("Cast", ["p"], ["c"], {"to": TensorProto.INT64})]
    whole = model([*cut, ("Gather", ["table", "c"], ["y"], {})], tenth=np.float32(0.1), table=np.float32(range(9)) ** 2)
    case = Case(whole.SerializeToString(), ({"x": np.array([[10, 20, 30, 40], [5, 15, 20, 70]], np.float32)},))
    (right,) = runner.reference.outputs(case)
    asked = Question(
        case,
        (right,),
        (right,),
        runner.reference,
        Scheme(weight_codes=(-127, 127)),
        artifact=Artifact(model=case.model),
    )
    place = (0, "y")
    assert artifact.decide(asked, [place])[place].word is Word.ABSTAINS, "is it known now? then this says nothing"
    assert artifact.as_reference_runs(asked, [place]) == [place]
    assert artifact.decide(asked, [place], as_run=True)[place].word is Word.AGREES
    off = replace(asked, observed=({"y": right["y"] + 1},))
    assert artifact.as_reference_runs(off, [place]) == [], "it gives something else"


def test_strings_are_what_the_reference_makes_of_the_artifact(runner):
    text = [("x", TensorProto.STRING, (2,))], [("y", TensorProto.STRING, (2,))]
    x, y = ([helper.make_tensor_value_info(*value) for value in values] for values in text)
    proto = helper.make_model(
        helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "test", x, y),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    given = Case(proto.SerializeToString(), ({"x": np.array(["a", "b"], object)},))
    right = runner.reference.run(given).outputs
    asked = Question(given, right, right, runner.reference, None, artifact=Artifact(model=given.model))
    assert artifact.as_reference_runs(asked, [(0, "y")]) == [(0, "y")]


def test_without_an_artifact_the_tier_abstains():
    asked = replace(question(QDQ, X), artifact=UNTOLD)
    assert artifact.decide(asked, [(0, "y")])[0, "y"].word is Word.ABSTAINS


def test_nodes_out_of_order_are_put_in_order():
    proto = onnx.ModelProto()
    proto.CopyFrom(model(QDQ, **CONSTANTS))
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    ordered = graphs.in_order(graphs.read(proto))
    assert ordered.nodes[-1].outputs == ("y",)


def test_an_artifact_without_the_output_says_nothing_of_it(runner):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = case(nodes, {"x": X}, {"w": W}, outputs=[("y", TensorProto.FLOAT, (2, 3))])
    other = case([helper.make_node("Relu", ["x"], ["z"])], {"x": X}, outputs=[("z", TensorProto.FLOAT, (2, 4))])
    scheme, expected = Scheme((-127, 127), (0, 255)), runner.reference.run(made).outputs
    zeros = ({"y": np.zeros((2, 3), np.float32)},)
    question = Question(made, zeros, expected, runner.reference, scheme, artifact=Artifact(model=other.model))
    (said,) = artifact.decide(question, question.places).values()
    assert said.word is Word.ABSTAINS


def test_only_what_lies_within_a_tensor_may_have_its_scale():
    pair = [("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}), ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], {})]
    written = [("QuantizeLinear", ["h", "xs", "xz"], ["hq"], {}), ("DequantizeLinear", ["hq", "xs", "xz"], ["y"], {})]
    seen = Calibration({"x": (-1.0, 1.0), "y": (-4.0, 4.0)})
    for op, expected in (("Reshape", []), ("MatMul", [("parameter", "xs")])):
        given = {"Reshape": {"w": np.int64([4, 2])}, "MatMul": {"w": W}}[op]
        floating = model([(op, ["x", "w"], ["y"], {})], **given)
        assert problems([*pair, (op, ["xd", "w"], ["h"], {}), *written], floating, seen, **given) == expected, op


def test_of_an_operator_taken_apart_only_some_pieces_may_read_codes():
    """x HardSigmoid(x), of which the product is quantized, is HardSwish of no one x."""
    floating = model([("HardSwish", ["x"], ["y"], {})])
    pieces = [
        ("HardSigmoid", ["x"], ["h"], {"alpha": 1 / 6}),
        ("QuantizeLinear", ["x", "xs", "xz"], ["xq"], {}),
        ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], {}),
        ("Mul", ["xd", "h"], ["y"], {}),
    ]
    assert problems(pieces, floating, xs=np.float32(0.05)) == []


def test_what_is_behind_a_near_tie_is_not_held_to_what_calibration_saw(runner):
    """Which boxes a detector takes first may hang on the order of a sum, and with it the range of what is taken."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("TopK", ["scores", "k"], ["best", "places"]),
        helper.make_node("GatherElements", ["boxes", "places"], ["taken"], axis=1),
    ]
    feed = {"x": np.ones((1, 2), np.float32), "boxes": np.arange(3, dtype=np.float32)[None]}
    constants = {"w": np.ones((2, 3), np.float32), "k": np.array([2])}
    outputs = [(name, TensorProto.FLOAT, (1, 2)) for name in ("best", "taken")]
    tied = case(nodes, feed, constants, outputs=outputs)
    scheme = Scheme(weight_codes=(-127, 127), activation_codes=(-128, 127))
    right = runner.reference.run(tied).outputs
    known = calibration_of(Question(tied, right, right, runner.reference, scheme)).ranges
    assert sorted(known) == ["best", "boxes", "scores", "x"], f"the ranges of {sorted(known)} are held to"


def test_of_twins_one_may_be_quantized_and_the_other_not(runner):
    x, w, b = np.array([[[-1.5, 4.0]]], np.float32), np.full((1, 1, 1), -0.5, np.float32), np.array([4], np.float32)
    twins = [helper.make_node("Conv", ["x", "w", "b"], [y], name=f"Conv_{y}", strides=[2]) for y in ("quantized", "y")]
    outputs = [(name, TensorProto.FLOAT, (1, 1, 1)) for name in ("quantized", "y")]
    model = case(twins, {"x": x}, {"w": w, "b": b}, outputs=outputs)
    recipe = {"quantize": "dynamic", "nodes": "nodes_to_quantize"}
    found = look(Trial(model, resolve("onnxruntime-quant"), recipe, runner))
    assert found.word is Word.AGREES, f"what the float one gives is not what the other has to: {found}"


def cut_by_pairs(a, w):
    """Sums [M, N] of products of a [M, K] and w [K, N], of which those next to each other are added in 16 bits."""
    terms = np.pad(a[:, :, None] * w, ((0, 0), (0, a.shape[1] % 2), (0, 0)))
    return np.clip(terms[:, ::2] + terms[:, 1::2], -(2**15), saturation.LARGEST).sum(1)


@pytest.mark.parametrize(
    ("a", "w"), [((3, 7), (7, 4)), ((3, 8), (8,)), ((8,), (8, 4)), ((8,), (8,)), ((3, 8), (2, 8, 5))]
)
def test_a_product_of_codes_is_off_by_what_is_cut_at_most(a, w):
    rng = np.random.default_rng(0)
    a, w = rng.integers(0, 256, a), rng.integers(-128, 128, w)
    x = np.asarray(a @ w)
    rows, columns = np.atleast_2d(a), np.moveaxis(w if w.ndim > 1 else w[:, None], -2, 0)
    made = cut_by_pairs(rows, columns.reshape(len(columns), -1)).reshape(len(rows), *columns.shape[1:])
    made = (np.moveaxis(made, 0, -2) if w.ndim > 1 else made).reshape(x.shape)
    operands = exact(x.astype(np.int32)), exact(a.astype(np.uint8)), exact(w.astype(np.int8))
    ball = saturation.off_by_what_is_cut(*operands, op="MatMulInteger", given={})
    assert ball.shape == x.shape
    assert (np.abs(made - x) <= ball.error).all(), (made - x, ball.error)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_window_of_codes_is_off_by_what_is_cut_at_most(groups):
    rng = np.random.default_rng(groups)
    a, w = rng.integers(200, 256, (1, 4, 3, 3)), rng.integers(-128, 128, (8, 4 // groups, 3, 3))
    channels = [a[0].reshape(groups, -1)[k * groups // 8] for k in range(8)]
    x = np.array([row @ kernel.ravel() for row, kernel in zip(channels, w)]).reshape(1, 8, 1, 1)
    made = [cut_by_pairs(row[None], kernel.reshape(-1, 1)) for row, kernel in zip(channels, w)]
    operands = exact(x.astype(np.int32)), exact(a.astype(np.uint8)), exact(w.astype(np.int8))
    ball = saturation.off_by_what_is_cut(*operands, op="ConvInteger", given={})
    assert ball.shape == x.shape
    off = np.abs(np.reshape(made, x.shape) - x)
    assert off.any(), "nothing is cut"
    assert (off <= ball.error).all(), (off, ball.error)
