"""Linear operators in ball arithmetic: any order of summation is inside, a wrong weight is not."""

import numpy as np
import pytest
from driftnet.model import graph
from driftnet.oracle.ball_arithmetic import evaluate as evaluation
from driftnet.oracle.ball_arithmetic import linear
from driftnet.oracle.ball_arithmetic.ball import Undecided
from driftnet.oracle.ball_arithmetic.conditioning import culprit
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from onnx import helper

from tests.support import models
from tests.support.balls import apply, around, assert_all_answered, assert_holds, assert_outside, holds, noise

OPERATORS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "Det", "Col2Im")


def test_the_reference_stays_in_the_balls_of_every_generated_form(runner):
    assert_all_answered(runner, OPERATORS, cases=4)


def in_order(x, w, order):
    """x w in float32, the terms added one after the other in `order`."""
    total = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for k in order:
        total = (total + x[:, k : k + 1] * w[k]).astype(np.float32)
    return total


def test_a_sum_in_any_order_stays_in_the_ball():
    x, w = noise((4, 60)), noise((60, 5), 1)
    (ball,) = apply("MatMul", x, w)
    for seed in range(10):
        assert_holds(ball, in_order(x, w, np.random.default_rng(seed).permutation(60)))


@pytest.mark.parametrize("folded", ["Add", "Sub", "Mul and Add", "BatchNormalization"])
def test_a_sum_may_begin_with_what_is_added_to_it_next(folded):
    """Engines make that its bias: each of its terms is then rounded to a digit of the bias."""
    x, w, b = (noise((64, 3000)) / 1e6).astype(np.float32), noise((3000, 5), 1), np.full(5, 2.7, np.float32)
    (product,) = apply("MatMul", x, w)
    scale, none = np.full(5, 0.5, np.float32), np.zeros(5, np.float32)
    if folded == "BatchNormalization":
        (ball,) = apply(folded, product, scale, b, none, np.ones(5, np.float32), epsilon=0.0)
    else:
        (ball,) = apply("Mul", product, scale) if folded == "Mul and Add" else (product,)
        (ball,) = apply("Sub", ball, -b) if folded == "Sub" else apply("Add", ball, b)
    total = np.repeat(b[None], 64, axis=0)
    factors = w if folded in ("Add", "Sub") else (w * scale).astype(np.float32)
    for k in range(3000):
        total = (total + x[:, k : k + 1] * factors[k]).astype(np.float32)
    assert_holds(ball, total)
    assert_outside(ball, total * 1.001)


def test_the_ball_is_no_wider_than_its_theory():
    x, w = noise((4, 60)), noise((60, 5), 1)
    (ball,) = apply("MatMul", x, w)
    assert (ball.radius / (70 * 2.0**-24 * (np.abs(x) @ np.abs(w)) + 1e-30)).max() <= 1


@pytest.mark.parametrize("radius", [0.0, 0.01])
def test_a_convolution_in_slabs_is_that_of_the_whole(monkeypatch, radius):
    x, w, b = around(noise((2, 4, 9, 7)), radius), noise((6, 2, 3, 3), 1), noise((6,), 2)
    given = {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    (whole,) = apply("Conv", x, w, b, **given)
    monkeypatch.setattr(linear, "MOST_COLUMNS", 600)
    (slabs,) = apply("Conv", x, w, b, **given)
    off = np.abs(slabs.midpoint - whole.midpoint).max()
    assert off < 1e-12, f"the midpoint is {off} off"
    off = np.abs(slabs.radius - whole.radius).max()
    assert off < 1e-12, f"the radius is {off} off"


def test_balls_that_nobody_asks_for_any_more_are_let_go_and_what_is_said_of_them_is_kept(monkeypatch):
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Sub", ["a", "x"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Abs", ["d"], ["e"]),
    ]
    x = noise((2, 50))
    made = graph.read(models.case(nodes, {"x": x}, {"w": noise((2, 50), 1)}, outputs=[("e", 1, x.shape)]).proto)
    whole = evaluate(made, {"x": x}, inexact={"w": 10.0})
    monkeypatch.setattr(evaluation, "FEW_HELD", 0)
    kept = evaluate(made, {"x": x}, inexact={"w": 10.0}, keep=made.outputs)
    assert not {"a", "b", "c"} & kept.balls.keys(), "d is an operand of what is asked for"
    assert_holds(whole.balls["e"], kept.balls["e"].midpoint.astype(np.float32))
    assert culprit(made, kept.balls, kept.ill, "e") == culprit(made, whole.balls, whole.ill, "e") == "Add"


def test_no_operator_is_blamed_for_operands_that_were_let_go(monkeypatch):
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["c"]),
        helper.make_node("Div", ["c", "tiny"], ["d"]),
    ]
    x, constants = np.abs(noise((2, 50))) + 1, {"w": np.abs(noise((2, 50), 1)) + 1, "tiny": np.float32(1e-20)}
    made = graph.read(models.case(nodes, {"x": x}, constants, outputs=[("d", 1, x.shape)]).proto)
    monkeypatch.setattr(evaluation, "FEW_HELD", 0)
    for keep in (None, made.outputs):
        found = evaluate(made, {"x": x}, keep=keep)
        assert ("a" in found.balls) == (keep is None)
        assert culprit(made, found.balls, found.ill, "d") == "Div", "a - a is 0 up to the rounding of a"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_weight_off_by_a_few_roundings_of_the_whole_sum_is_outside(dtype):
    x, w = noise((4, 9), dtype=dtype), noise((9, 5), 1, dtype)
    (ball,) = apply("MatMul", x, w)
    wrong = x.astype(np.float64) @ w.astype(np.float64)
    assert holds(ball, wrong.astype(dtype)), "the right product is inside"
    wrong[2, 3] += 3 * ball.radius[2, 3]
    assert not holds(ball, wrong.astype(dtype)), "three radii away is outside"


def test_a_batch_normalization_folded_into_weights_stays_in_the_ball():
    x, w, b = noise((2, 4, 9, 9)), noise((6, 4, 3, 3), 1), noise((6,), 2)
    scale, shift, mean, variance = (
        noise((6,), 3),
        noise((6,), 4),
        noise((6,), 5),
        np.abs(noise((6,), 6)) + np.float32(0.1),
    )
    (y,) = apply("Conv", x, w, b)
    (ball,) = apply("BatchNormalization", y, scale, shift, mean, variance)
    factor = scale / np.sqrt(variance + np.float32(1e-5))
    (folded,) = apply("Conv", x, w * factor[:, None, None, None], (b - mean) * factor + shift)
    assert_holds(ball, folded.midpoint.astype(np.float32))


def winograd(x, w):
    """A convolution in one dim with three taps by the transform F(4, 3), in float32."""
    b = np.zeros((6, 6), np.float32)
    b[0, ::2] = b[5, 1::2] = 4, -5, 1
    b[1:5, 1:5] = [-4, -4, 1, 1], [4, -4, -1, 1], [-2, -1, 2, 1], [2, -1, -2, 1]
    g = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.float32) / 24
    a = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float32)
    return a @ ((g @ w) * (b @ x))


def test_a_winograd_transform_stays_in_the_ball_of_a_convolution():
    for seed in range(50):
        x, w = np.exp(3 * noise((6, 6), seed)), noise((3, 3), 100 + seed)
        (ball,) = apply("Conv", x[None, None], w[None, None])
        rows = [np.stack([winograd(x[i + k], w[k]) for k in range(3)]).sum(0) for i in range(4)]
        assert_holds(ball, np.stack(rows)[None, None])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_grouped_convolution_is_its_parts(groups):
    x, w = noise((2, 4, 6, 5)), noise((8, 4 // groups, 3, 2), 1)
    (whole,) = apply("Conv", x, w, group=groups, pads=[1, 0, 2, 1])
    parts = [
        apply("Conv", part, rows, pads=[1, 0, 2, 1])[0].midpoint
        for part, rows in zip(np.split(x, groups, 1), np.split(w, groups, 0))
    ]
    assert np.allclose(whole.midpoint, np.concatenate(parts, 1), rtol=1e-12)


@pytest.mark.parametrize(
    "attributes", [{}, {"strides": [2, 3]}, {"dilations": [2, 1]}, {"group": 2, "pads": [1, 0, 0, 1]}]
)
def test_a_transposed_convolution_is_the_adjoint_of_the_convolution(attributes):
    groups = attributes.get("group", 1)
    w = noise((4, 6 // groups, 3, 2), 1, np.float64)
    x = noise((2, 6, 7, 8), dtype=np.float64)
    (y,) = apply("Conv", x, w, **attributes)
    probe = noise(y.shape, 2, np.float64)
    (back,) = apply("ConvTranspose", probe, w, **attributes)
    assert np.isclose(np.sum(y.midpoint * probe), np.sum(x * back.midpoint), rtol=1e-12)


PLANTED = {
    "swapped pads": ({"pads": [2, 0, 0, 1]}, {"pads": [0, 1, 2, 0]}),
    "another stride of the same size": (
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "pads": [0, 0, 2, 2]},
    ),
    "dilation ignored": ({"dilations": [2, 2]}, {"pads": [0, 0, -2, -2]}),
    "SAME padded at the other end": (
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_of_the_window_is_outside(bug):
    right, wrong = PLANTED[bug]
    x, w = noise((1, 2, 8, 8)), noise((3, 2, 3, 3), 1)
    (ball,), (damaged,) = apply("Conv", x, w, **right), apply("Conv", x, w, **wrong)
    assert ball.shape == damaged.shape, "the bug does not show in the shape"
    assert_outside(ball, damaged.midpoint.astype(np.float32))


def test_a_kernel_with_rows_and_columns_exchanged_or_a_lost_bias_is_outside():
    x, w, b = noise((1, 2, 8, 8)), noise((3, 2, 3, 3), 1), noise((3,), 2)
    (ball,) = apply("Conv", x, w, b)
    for damaged in (
        apply("Conv", x, w.swapaxes(2, 3).copy(), b),
        apply("Conv", x, w),
        apply("Conv", x, w, b[::-1].copy()),
    ):
        assert_outside(ball, damaged[0].midpoint.astype(np.float32))


def test_alpha_and_beta_count():
    a, b, c = noise((3, 4)), noise((4, 5), 1), noise((5,), 2)
    (ball,) = apply("Gemm", a, b, c, alpha=0.5, beta=2.0)
    assert_holds(ball, (0.5 * (a @ b) + 2 * c).astype(np.float32))
    assert_outside(ball, (a @ b + c).astype(np.float32))


def test_radii_of_both_factors_reach_the_product():
    x, w = around(noise((3, 4)), 0.5), around(noise((4, 2), 1), 0.25)
    (ball,) = apply("MatMul", x, w)
    generator = np.random.default_rng(2)
    for _ in range(20):
        other = [b.midpoint + b.radius * generator.choice([-1, 1], b.shape) for b in (x, w)]
        assert_holds(ball, (other[0] @ other[1]).astype(np.float32))


def test_integers_keep_the_remainder_of_what_overflows():
    x = np.full((1, 4), 2**24, np.int32)
    (ball,) = apply("MatMul", x, x.T.copy())
    assert ball.radius is None
    assert ball.midpoint.item() == 0, "2**50 is a multiple of 2**32"


def test_a_sum_whose_parts_may_overflow_is_undecided():
    x = np.array([[3e38, 3e38, -3e38, -3e38]], np.float32)
    (ball,) = apply("MatMul", x, np.ones((4, 1), np.float32))
    assert ball.undecided.all(), "the result is 0, but adding from the left passes infinity"


def test_a_determinant_of_a_large_matrix_has_no_answer():
    with pytest.raises(Undecided, match="useless"):
        apply("Det", noise((5, 5)))
