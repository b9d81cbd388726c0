"""T1: where nothing rounds, any differing bit is a divergence."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from driftnet.generators import bulk
from driftnet.model.graph import with_values
from driftnet.model.verdict import Kind, Word
from driftnet.oracle.ball_arithmetic.ball import Ball, is_float
from driftnet.oracle.ball_arithmetic.evaluate import applied
from driftnet.oracle.fixed_point.fixed_point import FixedPoint, fixed_point_of
from driftnet.oracle.fixed_point.rules import RULES
from driftnet.oracle.question.question import Question
from driftnet.oracle.tiers import exact
from onnx import TensorProto, helper

from tests.support.models import case, grid, grouped_conv_transpose_and_norm
from tests.support.oracle import verdict

FLOAT = TensorProto.FLOAT


def known(runner, model):
    """Names of the tensors on which nothing rounds."""
    run = runner.reference.run(model)
    assert not run.error, run.error
    return exact.formats(Question(model, (), run.outputs, runner.reference), 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, -8.0], FixedPoint(8, 0)),
        ([0.75, 0.5], FixedPoint(0.75, -2)),
        ([96.0, 32.0], FixedPoint(96, 5)),
        ([0.0], FixedPoint(0, 0)),
        ([1.0, np.inf], FixedPoint(np.inf, 0)),
        ([1.0, 2.0**-20], FixedPoint(1, -20)),
    ],
)
def test_the_grid_of_data_is_the_coarsest_that_holds_it(values, expected):
    assert fixed_point_of(np.array(values, np.float32)) == expected


def test_random_data_have_too_fine_a_grid_to_be_added(runner):
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    model = case([helper.make_node("Add", ["x", "x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, (2, 8))])
    assert "x" in known(runner, model)
    doubled = np.array([[1, 2.0**-23]], np.float32)
    fits = case([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": doubled}, outputs=[("y", FLOAT, (1, 2))])
    assert "y" not in known(runner, fits), "the square of 2^-23 beside 1 needs 46 bits"
    assert "y" not in known(runner, model)


def test_doubles_that_float32_lacks_are_on_no_grid(runner):
    for number, claimed in ((0.5, True), (1 / 3, False)):
        x = np.array([number])
        model = case([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, outputs=[("y", TensorProto.DOUBLE, (1,))])
        assert ("y" in known(runner, model)) is claimed


def test_a_sum_that_may_leave_24_bits_is_not_claimed(runner):
    for terms, claimed in ((4, True), (2**14, False)):
        x = np.full((1, terms), 63, np.float32)
        w = np.full((terms, 1), 63, np.float32)
        model = case(
            [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 1))]
        )
        assert ("y" in known(runner, model)) is claimed


def test_movement_of_any_data_is_exact(runner):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    x[0, 0, 0] = np.nan
    model = case(
        [helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]), helper.make_node("Relu", ["t"], ["y"])],
        {"x": x},
        outputs=[("t", FLOAT, (4, 2, 3)), ("y", FLOAT, (4, 2, 3))],
    )
    assert "t" in known(runner, model)
    assert "y" not in known(runner, model), "engines differ on the maximum of NaN and 0"
    right = runner.reference.run(model).outputs[0]
    shifted = np.nextafter(right["t"], np.inf, dtype=np.float32)
    said = verdict(runner, model, {**right, "t": shifted})
    assert (said.word, said.tier, said.output) == (Word.DIVERGES, "exact", "t")


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "claimed"),
    [
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, (1, 2, 4, 4), True),
        ("AveragePool", {"kernel_shape": [3, 3]}, (1, 2, 4, 4), False),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, (1, 2, 4, 4), False),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}, (1, 2, 4, 4), True),
        ("GlobalAveragePool", {}, (1, 2, 4, 4), True),
        ("GlobalAveragePool", {}, (1, 2, 3, 4), False),
        ("LeakyRelu", {"alpha": 0.25}, (1, 2, 4, 4), True),
        ("LeakyRelu", {"alpha": 0.1}, (1, 2, 4, 4), False),
        ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, (1, 2, 4, 4), True),
        ("DepthToSpace", {"blocksize": 2}, (1, 4, 2, 2), True),
        ("Sigmoid", {}, (1, 2, 4, 4), False),
    ],
)
def test_what_keeps_a_grid_and_what_does_not(runner, op, attributes, shape, claimed):
    model = case([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": grid(shape)}, outputs=[("y", FLOAT, "nchw")])
    assert ("y" in known(runner, model)) is claimed


def normalization(epsilon):
    """BatchNormalization with dyadic statistics."""
    constants = {
        "s": np.array([1, 2], np.float32),
        "b": np.array([0, 1], np.float32),
        "m": np.array([1, -1], np.float32),
        "v": np.array([1, 0.25], np.float32),
    }
    nodes = [helper.make_node("BatchNormalization", ["x", *constants], ["y"], epsilon=epsilon)]
    return case(nodes, {"x": grid((1, 2, 3))}, constants, outputs=[("y", FLOAT, (1, 2, 3))])


def test_batch_normalization_is_exact_without_epsilon_only(runner):
    assert "y" in known(runner, normalization(0.0))
    assert "y" not in known(runner, normalization(1e-5))


def test_an_epsilon_of_a_thousandth_for_a_hundred_thousandth_is_seen(runner):
    model = normalization(1e-5)
    right = runner.reference.run(model).outputs
    wrong = runner.reference.run(normalization(1e-3)).outputs
    assert verdict(runner, model, *right).word is Word.AGREES
    assert verdict(runner, model, *wrong).kind == Kind.WRONG_VALUES


def test_batch_normalization_folded_regardless_of_groups_is_seen(runner):
    model = grouped_conv_transpose_and_norm()
    right = runner.reference.run(model).outputs[0]["y"]
    assert "y" in known(runner, model)
    assert verdict(runner, model, {"y": -0.0 + right}).word is Word.AGREES
    wrong = right.copy()
    wrong[:, :2], wrong[:, 2:] = right[:, 2:], right[:, :2]
    said = verdict(runner, model, {"y": wrong})
    assert (said.word, said.tier, said.kind) == (Word.DIVERGES, "exact", Kind.WRONG_VALUES)


def test_one_wrong_weight_among_many_is_seen_to_the_last_bit(runner):
    x, w = grid((1, 4, 6, 6)), grid((4, 4, 3, 3))
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    right = case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 4, 4))])
    w = w.copy()
    w[2, 1, 0, 2] += 0.5
    wrong = runner.reference.run(case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 4, 4))])).outputs
    said = verdict(runner, right, *wrong)
    assert (said.word, said.tier, said.bound) == (Word.DIVERGES, "exact", 0)
    assert "output 'y' at [0, 2, " in said.message
    assert said.message.endswith("elements are wrong")


def test_an_inexact_kernel_is_excused_by_name(runner):
    x, w = grid((1, 4, 6, 6)), grid((4, 4, 3, 3))
    model = case(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 4, 4))]
    )
    right = runner.reference.run(model).outputs[0]["y"]
    said = verdict(runner, model, {"y": right * np.float32(1 + 2**-22)})
    assert (said.word, said.rule) == (Word.AGREES, exact.INEXACT_KERNEL)
    assert verdict(runner, model, {"y": right * np.float32(1 + 2**-12)}).word is Word.DIVERGES


def test_a_decision_on_exact_numbers_is_exact(runner):
    x = np.array([[1, 2, 2, 0.5]], np.float32)
    model = case(
        [helper.make_node("ArgMax", ["x"], ["y"], axis=1)], {"x": x}, outputs=[("y", TensorProto.INT64, (1, 1))]
    )
    assert verdict(runner, model, {"y": np.array([[2]])}).word is Word.DIVERGES
    halves = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    model = case([helper.make_node("Round", ["x"], ["y"])], {"x": halves}, outputs=[("y", FLOAT, (4,))])
    said = verdict(runner, model, {"y": np.array([1, 2, 3, -1], np.float32)})
    assert (said.word, said.tier) == (Word.DIVERGES, "exact"), "halves go to even"


def test_every_rule_holds_where_onnxruntime_adds_in_another_order(runner):
    """The claim itself: summing backwards and with doubled precision gives the same bits."""
    x, w = grid((3, 50)), grid((50, 4))
    model = case([helper.make_node("Gemm", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (3, 4))])
    assert "y" in known(runner, model)
    backwards = (x[:, None, ::-1] * w.T[None, :, ::-1]).astype(np.float32).cumsum(-1, dtype=np.float32)[..., -1]
    assert verdict(runner, model, {"y": backwards}).word is Word.AGREES
    assert np.array_equal(backwards, (x.astype(np.float64) @ w).astype(np.float32))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_numbers_that_numpy_does_not_know_are_on_their_grid(dtype):
    assert fixed_point_of(np.array([1, 6, 0]).astype(dtype)).size == 6
    assert fixed_point_of(np.array([2.0**-3, 2]).astype(ml_dtypes.bfloat16)) == FixedPoint(2, -3)
    assert fixed_point_of(np.array([1.0, np.nan]).astype(ml_dtypes.bfloat16)) == FixedPoint(np.inf, 0)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.float8_e4m3fn])
def test_products_with_dequantized_weights_of_few_bits_round(runner, dtype):
    """They were taken for zeros once, and every other order of summation for wrong."""
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    codes, scale = (
        np.array([[3, -5, 7, 1], [2, -3, 5, -7], [1, 6, -2, 3], [-1, 4, -6, 2]], np.float32),
        np.float32(0.0371),
    )
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["v"]), helper.make_node("MatMul", ["x", "v"], ["y"])]
    model = case(nodes, {"x": x}, {"w": codes.astype(dtype), "s": scale}, outputs=[("y", FLOAT, (64, 4))], opset=21)
    assert "y" not in known(runner, model)
    backwards = (
        sum((x[:, k : k + 1] * (codes[k] * scale) for k in (3, 2, 1)), np.float32(0)) + x[:, :1] * codes[0] * scale
    )
    assert not np.array_equal(backwards, runner.reference.run(model).outputs[0]["y"]), "the order makes a difference"
    assert verdict(runner, model, {"y": backwards}).word is Word.AGREES


def one(op, *operands, outputs=("y",), rank=1, made=FLOAT, opset=17, **attributes):
    """A case of one node; its operands are inputs. Results: y of type `made`, indices i, a mask m."""
    feed = {f"x{k}": np.asarray(x) for k, x in enumerate(operands)}
    node = helper.make_node(op, list(feed), list(outputs), **attributes)
    dtypes = {"y": made, "i": TensorProto.INT64, "m": TensorProto.BOOL}
    declared = [(name, attributes.get("to", dtypes[name]), list("abcd"[:rank])) for name in outputs]
    return case([node], feed, outputs=declared, opset=opset)


TENTH, MANY = np.float32(0.1), np.array([300, -5, 1e10, 7], np.float32)
OPEN = {
    "a float range": (one("Range", TENTH, np.float32(2), TENTH), {}),
    "a cast out of range": (one("Cast", MANY, to=TensorProto.UINT8), {"y": np.array([255, 0, 255, 7], np.uint8)}),
    "an index twice": (
        one("ScatterElements", np.zeros(3, np.float32), np.array([1, 1]), np.array([5, 6], np.float32)),
        {"y": np.array([0, 5, 0], np.float32)},
    ),
    "a path twice": (
        one("ScatterND", np.zeros(3, np.float32), np.array([[1], [1]]), np.array([5, 6], np.float32)),
        {"y": np.array([0, 5, 0], np.float32)},
    ),
    "which of equal maxima": (
        one("MaxPool", np.ones((1, 1, 4), np.float32), outputs=("y", "i"), rank=3, kernel_shape=[2], strides=[2]),
        {"i": np.array([[[1, 3]]])},
    ),
    "which way a mean of integers is rounded": (
        one("ReduceMean", np.array([[-1, -2], [1, 2]], np.int32), made=TensorProto.INT32, axes=[1], keepdims=0),
        {"y": np.array([-2, 1], np.int32)},
    ),
    "how a float is written": (
        one("Cast", np.array([0.1, 1], np.float32), to=TensorProto.STRING),
        {"y": np.array(["0.10000000149", "1.0"], object)},
    ),
    "which way a weighted integer is rounded": (
        case(
            [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")],
            {"x": np.array([[[0, 1, 4]]], np.uint8)},
            {"s": np.array([1, 1, 2], np.float32)},
            outputs=[("y", TensorProto.UINT8, (1, 1, 6))],
        ),
        {"y": np.array([[[0, 0, 1, 2, 3, 4]]], np.uint8)},
    ),
    "a mask without training, before opset 12": (
        one("Dropout", np.ones(3, np.float32), outputs=("y", "m"), opset=11),
        {"m": np.ones(3, bool)},
    ),
    "the maximum of numbers and NaN": (
        one("ReduceMax", np.array([[1, np.nan, 3]], np.float32), axes=[1], keepdims=0),
        {"y": np.array([np.nan], np.float32)},
    ),
    "the place of NaN": (
        one("MaxPool", np.array([[[1, np.nan, 3]]], np.float32), outputs=("y", "i"), rank=3, kernel_shape=[3]),
        {"i": np.array([[[1]]])},
    ),
    "the larger of NaN and a number": (
        one(
            "ScatterElements",
            np.array([1, np.nan, 3], np.float32),
            np.array([1, 2]),
            np.array([5, 6], np.float32),
            opset=18,
            reduction="max",
        ),
        {"y": np.array([1, 5, 6], np.float32)},
    ),
    "the mean of nothing": (
        one("ReduceMean", np.zeros((3, 0), np.float32), axes=[1], keepdims=0),
        {"y": np.full(3, np.nan, np.float32)},
    ),
    "the order of what is not sorted": (
        one("TopK", np.array([1, 5, 3, 4], np.float32), np.array([3]), outputs=("y", "i"), sorted=0),
        {"y": np.array([5, 4, 3], np.float32), "i": np.array([1, 3, 2])},
    ),
    "an index between two": (
        one("OneHot", np.array([0.5, 1], np.float32), np.float32(3), np.array([0, 1], np.float32), rank=2),
        {"y": np.array([[0, 1, 0], [0, 1, 0]], np.float32)},
    ),
}


@pytest.mark.parametrize("open_", OPEN)
def test_what_the_standard_leaves_open_is_not_exact(runner, open_):
    model, other = OPEN[open_]
    assert known(runner, model).keys().isdisjoint({"y", "i", "m"})
    said = verdict(runner, model, {**runner.reference.run(model).outputs[0], **other})
    assert not said.failed, said


def test_doubles_may_be_computed_in_float32(runner):
    x = np.array([1 + 2.0**-20, *range(2, 13)])
    bounds = np.square(x.astype(np.float32)) * np.array([1.0] + 11 * [2.0])
    nodes = [helper.make_node("Mul", ["x", "x"], ["t"]), helper.make_node("Greater", ["t", "c"], ["y"])]
    model = case(nodes, {"x": x}, {"c": bounds}, outputs=[("y", TensorProto.BOOL, (12,))])
    assert runner.reference.run(model).outputs[0]["y"][0], "the square needs 41 bits"
    assert verdict(runner, model, {"y": np.zeros(12, bool)}).word is Word.AGREES


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1])
def test_an_integer_of_64_bits_that_is_off_by_one_is_wrong(runner, number):
    model = one("Identity", np.array([number, 5]), made=TensorProto.INT64)
    said = verdict(runner, model, {"y": np.array([number - 1, 5])})
    assert (said.word, said.error) == (Word.DIVERGES, 1)


def test_a_range_of_binary_fractions_is_exact(runner):
    model = one("Range", np.float32(1), np.float32(9), np.float32(0.25))
    assert "y" in known(runner, model)


def ties(x):
    return np.resize(np.array([-1.5, 0.5, 0.5, 0.5, 1.5, -0.5, -0.5]), x.shape).astype(x.dtype)


@pytest.mark.parametrize(("kind", "changed"), [("f", ties), ("i", np.zeros_like)])
def test_wherever_a_ball_is_undecided_exact_abstains(runner, kind, changed):
    """Of operands that are ties or indices that are all the same."""

    def changed_to(tensors):
        return {name: changed(x) if x.dtype.kind == kind else x for name, x in tensors.items()}

    judged = 0
    for op in sorted(RULES.keys() - {"Upsample"}):
        made = bulk.case(2, 0, focus=(op,))
        model = with_values(made.proto, changed_to(Question(made, (), (), runner.reference).graph.constants))
        made = replace(made, model=model.SerializeToString(), feeds=(changed_to(made.feeds[0]),))
        if not (run := runner.reference.run(made)).outputs:
            continue  # a shape of zeros, say
        question = Question(made, (), run.outputs, runner.reference)
        exactly, values = exact.formats(question, 0), {**question.records[0], **question.graph.constants}
        known = [node for node in question.graph.nodes if values.keys() >= {*node.inputs} - {""}]
        for node in (node for node in known if exactly.keys() & {*node.outputs}):
            operands = {name: values[name] for name in node.inputs if name}
            balls = applied(node, operands, question.graph.opset).balls
            found = [balls.get(name) for name in node.outputs if name]
            for ball in (part for x in found for part in (x if isinstance(x, tuple) else (x,))):  # or a sequence
                assert isinstance(ball, Ball), f"{node.op} has no ball, but is exact"
                assert np.isfinite(ball.error).all(), f"{node.op} of {operands} is undecided, but exact"
                whole = not is_float(ball.dtype) and node.op != "QuantizeLinear"  # which says how to break ties
                assert not (whole and ball.error.any()), f"{node.op} of {operands} has several answers, but is exact"
                judged += 1
    assert judged > 100, f"only {judged} exact results were held to their balls"
