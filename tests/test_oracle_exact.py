"""T1: where nothing rounds, any differing bit is a divergence."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from harness.oracle import exact
from harness.oracle.exact import Grid, grid_of
from harness.oracle.question import Question
from harness.verdict import Kind, Word
from tests.models import case, grid, grouped_conv_transpose_and_norm
from tests.oracle_tools import verdict

FLOAT = TensorProto.FLOAT


def known(lab, model):
    """Names of the tensors on which nothing rounds."""
    run = lab.reference.run(model)
    assert not run.error, run.error
    return exact.grids(Question(model, (), run.outputs, lab.reference), 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, -8.0], Grid(8, 0)),
        ([0.75, 0.5], Grid(0.75, -2)),
        ([96.0, 32.0], Grid(96, 5)),
        ([0.0], Grid(0, 0)),
        ([1.0, np.inf], Grid(np.inf, 0)),
        ([1.0, 2.0**-20], Grid(1, -20)),
    ],
)
def test_the_grid_of_data_is_the_coarsest_that_holds_it(values, expected):
    assert grid_of(np.array(values, np.float32)) == expected


def test_random_data_have_too_fine_a_grid_to_be_added(lab):
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    model = case([helper.make_node("Add", ["x", "x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, (2, 8))])
    assert "x" in known(lab, model)
    doubled = np.array([[1, 2.0**-23]], np.float32)
    fits = case([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": doubled}, outputs=[("y", FLOAT, (1, 2))])
    assert "y" not in known(lab, fits), "the square of 2^-23 beside 1 needs 46 bits"
    assert "y" not in known(lab, model)


def test_doubles_that_float32_lacks_are_on_no_grid(lab):
    for number, claimed in ((0.5, True), (1 / 3, False)):
        x = np.array([number])
        model = case([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, outputs=[("y", TensorProto.DOUBLE, (1,))])
        assert ("y" in known(lab, model)) is claimed


def test_a_sum_that_may_leave_24_bits_is_not_claimed(lab):
    for terms, claimed in ((4, True), (2**14, False)):
        x = np.full((1, terms), 63, np.float32)
        w = np.full((terms, 1), 63, np.float32)
        model = case(
            [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 1))]
        )
        assert ("y" in known(lab, model)) is claimed


def test_movement_of_any_data_is_exact(lab):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    x[0, 0, 0] = np.nan
    model = case(
        [helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]), helper.make_node("Relu", ["t"], ["y"])],
        {"x": x},
        outputs=[("t", FLOAT, (4, 2, 3)), ("y", FLOAT, (4, 2, 3))],
    )
    assert "t" in known(lab, model)
    assert "y" not in known(lab, model), "engines differ on the maximum of NaN and 0"
    right = lab.reference.run(model).outputs[0]
    shifted = np.nextafter(right["t"], np.inf, dtype=np.float32)
    said = verdict(lab, model, {**right, "t": shifted})
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
def test_what_keeps_a_grid_and_what_does_not(lab, op, attributes, shape, claimed):
    model = case([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": grid(shape)}, outputs=[("y", FLOAT, "nchw")])
    assert ("y" in known(lab, model)) is claimed


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


def test_batch_normalization_is_exact_without_epsilon_only(lab):
    assert "y" in known(lab, normalization(0.0))
    assert "y" not in known(lab, normalization(1e-5))


def test_an_epsilon_of_a_thousandth_for_a_hundred_thousandth_is_seen(lab):
    model = normalization(1e-5)
    right = lab.reference.run(model).outputs
    wrong = lab.reference.run(normalization(1e-3)).outputs
    assert verdict(lab, model, *right).word is Word.AGREES
    assert verdict(lab, model, *wrong).kind == Kind.WRONG_VALUES


def test_batch_normalization_folded_regardless_of_groups_is_seen(lab):
    model = grouped_conv_transpose_and_norm()
    right = lab.reference.run(model).outputs[0]["y"]
    assert "y" in known(lab, model)
    assert verdict(lab, model, {"y": -0.0 + right}).word is Word.AGREES
    wrong = right.copy()
    wrong[:, :2], wrong[:, 2:] = right[:, 2:], right[:, :2]
    said = verdict(lab, model, {"y": wrong})
    assert (said.word, said.tier, said.kind) == (Word.DIVERGES, "exact", Kind.WRONG_VALUES)


def test_one_wrong_weight_among_many_is_seen_to_the_last_bit(lab):
    x, w = grid((1, 4, 6, 6)), grid((4, 4, 3, 3))
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    right = case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 4, 4))])
    w = w.copy()
    w[2, 1, 0, 2] += 0.5
    wrong = lab.reference.run(case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 4, 4))])).outputs
    said = verdict(lab, right, *wrong)
    assert (said.word, said.tier, said.bound) == (Word.DIVERGES, "exact", 0)
    assert "output 'y' at [0, 2, " in said.message
    assert said.message.endswith("elements are wrong")


def test_an_inexact_kernel_is_excused_by_name(lab):
    x, w = grid((1, 4, 6, 6)), grid((4, 4, 3, 3))
    model = case(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 4, 4))]
    )
    right = lab.reference.run(model).outputs[0]["y"]
    said = verdict(lab, model, {"y": right * np.float32(1 + 2**-22)})
    assert (said.word, said.rule) == (Word.AGREES, exact.INEXACT_KERNEL)
    assert verdict(lab, model, {"y": right * np.float32(1 + 2**-12)}).word is Word.DIVERGES


def test_a_decision_on_exact_numbers_is_exact(lab):
    x = np.array([[1, 2, 2, 0.5]], np.float32)
    model = case(
        [helper.make_node("ArgMax", ["x"], ["y"], axis=1)], {"x": x}, outputs=[("y", TensorProto.INT64, (1, 1))]
    )
    assert verdict(lab, model, {"y": np.array([[2]])}).word is Word.DIVERGES
    halves = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    model = case([helper.make_node("Round", ["x"], ["y"])], {"x": halves}, outputs=[("y", FLOAT, (4,))])
    said = verdict(lab, model, {"y": np.array([1, 2, 3, -1], np.float32)})
    assert (said.word, said.tier) == (Word.DIVERGES, "exact"), "halves go to even"


def test_every_rule_holds_where_onnxruntime_adds_in_another_order(lab):
    """The claim itself: summing backwards and with doubled precision gives the same bits."""
    x, w = grid((3, 50)), grid((50, 4))
    model = case([helper.make_node("Gemm", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (3, 4))])
    assert "y" in known(lab, model)
    backwards = (x[:, None, ::-1] * w.T[None, :, ::-1]).astype(np.float32).cumsum(-1, dtype=np.float32)[..., -1]
    assert verdict(lab, model, {"y": backwards}).word is Word.AGREES
    assert np.array_equal(backwards, (x.astype(np.float64) @ w).astype(np.float32))
