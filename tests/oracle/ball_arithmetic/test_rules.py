"""What the rules of ball arithmetic promise: whatever the operands are inside their balls, the result is inside its."""

import math

import numpy as np
import pytest
from driftnet.generators import bulk
from driftnet.model import graph
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Ball, between, hull, outside, rounded
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.ball_arithmetic.functions import erf

from tests.support.balls import apply, survey
from tests.support.rules import assert_each

FLOAT = np.dtype(np.float32)


def ball(midpoint, radius, dtype=FLOAT):
    """The ball around a list of numbers."""
    midpoint = np.asarray(midpoint, np.float64)
    return Ball(midpoint, np.broadcast_to(np.asarray(radius, np.float64), midpoint.shape), dtype)


def positive(*shape):
    """Random numbers from 0.5 to 2, with radii of up to 1e-3."""
    rng = np.random.default_rng(len(shape))
    return ball(rng.uniform(0.5, 2, shape), rng.uniform(0, 1e-3, shape))


def signed(*shape, scale=2.0):
    """Random normal numbers, with radii of up to 1e-3."""
    rng = np.random.default_rng(len(shape))
    return ball(scale * rng.normal(size=shape), rng.uniform(0, 1e-3, shape))


def unit(*shape):
    """Random numbers from -0.9 to 0.9, with radii of up to 1e-3."""
    rng = np.random.default_rng(len(shape))
    return ball(rng.uniform(-0.9, 0.9, shape), rng.uniform(0, 1e-3, shape))


CASES = [
    *[(op, (signed(40),), {}) for op in ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish")],
    *[(op, (signed(40),), {}) for op in ("Mish", "Erf", "Exp", "Sin", "Cos", "Atan", "Asinh", "Sinh", "Cosh", "Elu")],
    *[(op, (signed(40),), {}) for op in ("Celu", "Selu", "HardSigmoid", "ThresholdedRelu", "Shrink", "Gelu", "Floor")],
    *[(op, (signed(40),), {}) for op in ("LeakyRelu", "Ceil", "Round", "Sign", "Identity")],
    *[(op, (positive(40),), {}) for op in ("Sqrt", "Log", "Reciprocal")],
    *[(op, (unit(40),), {}) for op in ("Asin", "Acos", "Atanh", "Tan")],
    *[(op, (signed(4, 5), signed(5)), {}) for op in ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "PRelu")],
    ("Acosh", (ball(np.linspace(1.1, 9, 40), 1e-3),), {}),
    ("LeakyRelu", (signed(40),), {"alpha": -0.3}),
    ("Gelu", (signed(40),), {"approximate": "tanh"}),
    ("Swish", (signed(40),), {"alpha": 2.0}),
    ("Div", (signed(4, 5), positive(5)), {}),
    ("Mod", (signed(4, 5), positive(5)), {"fmod": 1}),
    ("Pow", (positive(4, 5), signed(5)), {}),
    ("Pow", (signed(40), np.array(2, np.float32)), {}),
    ("Pow", (signed(40), np.array(3, np.float32)), {}),
    ("Clip", (signed(4, 5), ball(-1, 1e-3), ball(1, 1e-3)), {}),
    ("Where", (np.array([True, False, True, False, True]), signed(4, 5), signed(5)), {}),
    *[(op, (signed(4, 5), np.array([1])), {}) for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")],
    *[(op, (signed(4, 5), np.array([1])), {}) for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")],
    *[(op, (positive(4, 5), np.array([0])), {}) for op in ("ReduceLogSum", "ReduceLogSumExp")],
    ("CumSum", (signed(4, 5), np.array(1)), {"reverse": 1, "exclusive": 1}),
    ("CumProd", (signed(4, 5), np.array(1)), {}),
    *[(op, (signed(4, 5),), {}) for op in ("ArgMax", "ArgMin", "Softmax", "LogSoftmax", "Hardmax")],
    ("Softmax", (signed(4, 5, scale=200.0),), {"axis": 0}),
    ("LogSoftmax", (signed(4, 5, scale=200.0),), {}),
    ("BatchNormalization", (signed(4, 5), signed(5), signed(5), signed(5), positive(5)), {}),
    ("InstanceNormalization", (signed(2, 5, 6), signed(5), signed(5)), {}),
    ("GroupNormalization", (signed(2, 4, 6), signed(4), signed(4)), {"num_groups": 2, "opset": 21}),
    ("LayerNormalization", (signed(4, 5), signed(5), signed(5)), {}),
    ("RMSNormalization", (signed(4, 5), signed(5)), {}),
    ("com.microsoft.BiasGelu", (signed(4, 5), signed(5)), {}),
    ("com.microsoft.FastGelu", (signed(4, 5), signed(5)), {}),
    ("com.microsoft.SkipLayerNormalization", (signed(4, 5), signed(4, 5), signed(5), signed(5), signed(5)), {}),
    ("com.microsoft.SkipSimplifiedLayerNormalization", (signed(4, 5), signed(4, 5), signed(5), signed(5)), {}),
    ("MeanVarianceNormalization", (signed(2, 3, 4, 2),), {}),
    ("LpNormalization", (positive(4, 5),), {"p": 1}),
    ("LRN", (signed(2, 5, 3, 3),), {"size": 3, "alpha": 1.0}),
    ("SoftmaxCrossEntropyLoss", (signed(4, 5), np.array([0, 2, 4, 2]), positive(5)), {}),
    ("RNN", (signed(3, 2, 4), signed(2, 5, 4), signed(2, 5, 5)), {"direction": "bidirectional"}),
    ("GRU", (signed(3, 2, 4), signed(1, 15, 4), signed(1, 15, 5), signed(1, 30)), {"linear_before_reset": 1}),
    ("LSTM", (signed(3, 2, 4), signed(1, 20, 4), signed(1, 20, 5), signed(1, 40)), {"direction": "reverse"}),
    ("Attention", (signed(1, 2, 3, 4), signed(1, 2, 3, 4), signed(1, 2, 3, 4)), {"is_causal": 1}),
    ("RotaryEmbedding", (signed(1, 2, 3, 4), unit(1, 3, 2), unit(1, 3, 2)), {}),
]


def test_the_result_of_every_point_lies_in_the_ball_of_the_result():
    def rule(numbered):
        _, (op, operands, attributes) = numbered
        rng = np.random.default_rng(0)
        whole = apply(op, *operands, **attributes)[0]
        assert whole.radius is None or whole.radius.shape == whole.midpoint.shape, "a radius for every element"
        assert not whole.undecided.all(), "decides nothing"
        for sign in (None, 0.999999, -0.999999):
            points = [
                Ball(x.midpoint + x.error * (sign or rng.uniform(-1, 1, x.shape)), None, FLOAT)
                if isinstance(x, Ball)
                else x
                for x in operands
            ]
            inner = apply(op, *points, **attributes)[0]
            wrong = outside(whole, inner.midpoint)
            what = f"of a point is {inner.midpoint[wrong]}, not in {whole.midpoint[wrong]} +- {whole.error}"
            assert not wrong.any(), what

    assert_each(enumerate(CASES), rule, lambda numbered: f"case {numbered[0]}, {numbered[1][0]}")


@pytest.mark.parametrize(
    "family", ["elementwise", "activation", "normalization", "reduction", "recurrent", "attention", "control", "loss"]
)
def test_every_tensor_of_the_reference_lies_in_its_ball(runner, family):
    assert survey(runner, family, 12, seed=7).wrong == []


def test_every_operator_has_an_answer_but_those_that_random_numbers_decide():
    random = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
    open_ = {"RoiAlign"}  # of what it takes the maximum
    silent = {
        op
        for index in range(60)
        for case in (bulk.case(9, index),)
        for op in evaluate(graph.read(case.proto), case.feeds[0]).undecided.values()
    }
    assert not silent - random - open_


def test_an_operator_used_as_no_rule_expects_has_no_answer_and_the_exception_is_told():
    node = Node("Concat", ("x", "y"), ("z",), {"axis": 7})
    model = graph.Graph((node,), {}, frozenset(), ("x", "y"), ("z",), 20)
    assert evaluate(model, {"x": np.ones(2), "y": np.ones(2)}).undecided == {"z": "Concat (AxisError)"}


def test_a_comparison_clear_of_the_tie_is_exact_and_one_across_it_open():
    (clear,) = apply("Greater", ball([1, 3], 0.5), np.array([2, 2], np.float32))
    assert clear.radius is None
    assert clear.midpoint.tolist() == [False, True]
    (across,) = apply("Less", ball([1, 2.2], 0.5), np.array([2, 2], np.float32))
    assert (across.midpoint.tolist(), across.radius.tolist()) == ([1.0, 0.5], [0.0, 0.5])


@pytest.mark.parametrize(
    ("op", "x", "low", "high"),
    [
        ("Floor", ball([1.9, 2.0, 2.5], 0.2), [1, 1, 2], [2, 2, 2]),
        ("Round", ball([0.5, 1.4], 0.05), [0, 1], [1, 1]),
        ("Sign", ball([0.0, 1.0], 0.1), [-1, 1], [1, 1]),
        ("ThresholdedRelu", ball([1.0], 0.1), [0], [1.1]),
    ],
)
def test_a_jump_inside_the_ball_gives_the_hull_of_both_sides(op, x, low, high):
    (y,) = apply(op, x)
    np.testing.assert_allclose(y.low, low, atol=1e-6)
    np.testing.assert_allclose(y.high, high, atol=1e-6)


def test_a_cast_to_integers_cuts_towards_zero_and_is_undecided_beyond_their_range():
    (whole,) = apply("Cast", ball([1.5, -1.5], 0.1), to=6)
    assert (whole.radius, whole.midpoint.tolist()) == (None, [1, -1])
    (y,) = apply("Cast", ball([2.0, 300.0, np.inf], [0.1, 0, 0]), to=3)
    assert (y.low[0], y.high[0]) == (1, 2)
    assert y.undecided.tolist() == [False, True, True]


def test_a_cast_of_the_largest_number_gives_that_number_whatever_stands_beside_it():
    (y,) = apply("Cast", ball([65504, 1e6, 0.1], 0, np.dtype(np.float64)), to=10)
    assert (y.low[0], y.high[0]) == (65504, 65504)
    assert y.undecided.tolist() == [False, True, False]


def test_the_index_of_the_maximum_is_a_hull_of_those_it_may_be():
    (index,) = apply("ArgMax", ball([[1, 3, 2, 3.1]], 0.2), axis=1, keepdims=0)
    assert (index.low.tolist(), index.high.tolist()) == ([1], [3])
    ties = np.array([[1, 3, 3]], np.float32)
    assert apply("ArgMax", ties, axis=1)[0].midpoint.tolist() == [[1]], "the first of equal maxima"
    assert apply("ArgMax", ties, axis=1, select_last_index=1)[0].midpoint.tolist() == [[2]]


@pytest.mark.parametrize("op", ["Elu", "Celu"])
def test_alpha_multiplies_the_error_of_an_exponential(op):
    x = np.array([-1.0], np.float32)
    once, thrice = (apply(op, x, alpha=alpha)[0].error for alpha in (1.0, 3.0))
    assert 2.5 * once < thrice < 3.5 * once, f"the error of {op} grows from {once} to {thrice}, should be 3 times"


def test_what_an_optimizer_fuses_is_what_it_was():
    x, skip, scale, bias = signed(4, 5), positive(4, 5), signed(5), unit(5)
    (total,) = apply("Add", x, skip)
    fused = apply("com.microsoft.SkipLayerNormalization", x, skip, scale, bias, epsilon=1e-5)
    np.testing.assert_array_equal(fused[0].midpoint, apply("LayerNormalization", total, scale, bias)[0].midpoint)
    np.testing.assert_array_equal(fused[3].midpoint, total.midpoint)
    (gelu,) = apply("Gelu", apply("Add", x, bias)[0], approximate="tanh")
    np.testing.assert_array_equal(apply("com.microsoft.FastGelu", x, bias)[0].midpoint, gelu.midpoint)


def test_attention_to_padded_keys_is_attention_to_fewer():
    q, k, v = signed(1, 2, 3, 4), unit(1, 2, 5, 4), signed(1, 2, 5, 4)
    first = [Ball(x.midpoint[:, :, :2], x.radius[:, :, :2], x.dtype) for x in (k, v)]
    (padded, *_) = apply("Attention", q, k, v, None, None, None, np.array([2]), opset=24)
    np.testing.assert_allclose(padded.midpoint, apply("Attention", q, *first, opset=24)[0].midpoint, atol=1e-12)
    (*_, weights) = apply("Attention", q, k, v, qk_matmul_output_mode=3, opset=24, outputs=4)
    np.testing.assert_allclose(weights.midpoint.sum(-1), 1, atol=1e-5)


def test_before_opset_13_softmax_goes_over_all_axes_from_its_own():
    x = np.zeros((2, 3, 4), np.float32)
    assert apply("Softmax", x, axis=1, opset=12)[0].midpoint[0, 0, 0] == pytest.approx(1 / 12)
    assert apply("Softmax", x, axis=1, opset=13)[0].midpoint[0, 0, 0] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_batch_major_data_give_a_recurrent_layer_the_same_results(op, gates):
    x, w, r, h = signed(4, 3, 2), signed(2, 5 * gates, 2), signed(2, 5 * gates, 5), signed(2, 3, 5)
    lens = np.array([4, 2, 1], np.int32)

    def swapped(ball, a, b):
        return Ball(ball.midpoint.swapaxes(a, b), ball.radius.swapaxes(a, b), ball.dtype)

    time_major = apply(op, x, w, r, None, lens, h, direction="bidirectional")
    batch_major = apply(op, swapped(x, 0, 1), w, r, None, lens, swapped(h, 0, 1), direction="bidirectional", layout=1)
    np.testing.assert_array_equal(batch_major[0].midpoint, time_major[0].midpoint.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(batch_major[1].radius, time_major[1].radius.swapaxes(0, 1))


@pytest.mark.parametrize(
    ("op", "rest", "attributes"),
    [
        ("Relu", (), {}),
        ("Sigmoid", (), {}),
        ("Softmax", (), {}),
        ("ReduceMax", (), {}),
        ("Cast", (), {"to": 11}),
        ("Add", (np.ones(1, np.float32),), {}),
        ("Clip", (np.zeros((), np.float32), np.ones((), np.float32)), {}),
        ("LayerNormalization", (np.ones(3, np.float32),), {}),
    ],
)
def test_what_is_undecided_stays_undecided(op, rest, attributes):
    (y, *_) = apply(op, ball([[1, 0, 2]], [[0, np.inf, 0]]), *rest, **attributes)
    assert y.undecided.flat[min(1, y.midpoint.size - 1)]


def test_a_truth_value_that_is_undecided_is_true_or_false():
    (y,) = apply("IsNaN", ball([1, 0, np.nan], [0, np.inf, 0]))
    assert (y.low.tolist(), y.high.tolist()) == ([0, 0, 1], [0, 1, 1])


def test_integers_that_are_exact_wrap_and_others_are_undecided_at_the_end_of_their_range():
    (y,) = apply("Add", np.array([127], np.int8), np.array([1], np.int8))
    assert y.midpoint.tolist() == [-128]
    (y,) = apply("Add", ball([127, 5], 0.5, np.dtype(np.int8)), np.array([1], np.int8))
    assert y.undecided.tolist() == [True, False]


def test_an_exact_zero_stays_one_and_underflow_does_not():
    (y,) = apply("Mul", np.float32([0, 1e-30]), np.float32([3, 1e-30]))
    assert y.error[0] == 0
    assert y.error[1] >= np.finfo(np.float32).smallest_normal


def test_a_sum_allows_for_another_order_but_not_for_another_term():
    x = np.random.default_rng(0).normal(size=(1, 1000)).astype(np.float32)
    (y,) = apply("ReduceSum", x, np.array([1]), keepdims=0)
    assert abs(float(np.cumsum(x)[-1]) - y.midpoint[0]) < y.radius[0]
    assert y.radius[0] < 0.1 * np.abs(x).mean()


def test_the_hull_of_two_balls_holds_both():
    both = hull([ball([1, 5], 0.1), ball([2, 5], 0.5)])
    assert (both.low[0], both.high[0]) == (pytest.approx(0.9), pytest.approx(2.5))
    assert both.low[1] == pytest.approx(4.5)


def test_between_infinities_anything_is_right_and_no_warning_is_given():
    x = between(np.array([-np.inf, np.inf, -np.inf]), np.array([np.inf, np.inf, 0.0]), np.dtype(np.float32))
    assert x.undecided.tolist() == [True, False, True]
    assert x.midpoint[1] == np.inf


def test_rounding_is_that_of_the_dtype():
    errors = [float(rounded(np.ones(1), 0.0, np.dtype(t), roundings=1).radius[0]) for t in (np.float32, np.float16)]
    assert errors == [pytest.approx(2.0**-24, rel=1e-6), pytest.approx(2.0**-11, rel=1e-3)]


def test_what_is_held_of_a_large_graph_is_bounded():
    nodes = tuple(Node("Relu", (f"t{k}",), (f"t{k + 1}",), {}) for k in range(3))
    chain = graph.Graph(nodes, {}, frozenset(), ("t0",), ("t3",), 17)
    found = evaluate(chain, {"t0": np.ones(4, np.float32)}, most=7)
    assert list(found.undecided.items()) == [("t3", "all tensors together")], f"{found.undecided} have no answer"


def test_the_error_function_is_that_of_the_library_to_three_roundings():
    x = np.concatenate([np.linspace(-7, 7, 20_001), [1e-300, -1e-300, 5e-324, 1e-17, np.inf, -np.inf, 0.0, -0.0]])
    exact = np.array([math.erf(each) for each in x])
    off = np.abs(erf(x) - exact)
    worst = int(np.argmax(off / np.maximum(np.abs(exact), 1e-3)))
    assert (off <= 3 * 2.0**-53 * np.maximum(np.abs(exact), 2.0**-1022)).all(), f"erf({x[worst]!r}) is {off[worst]} off"
    assert np.array_equal(np.signbit(erf(x)), np.signbit(x)), "a sign is lost"
    assert np.isnan(erf(np.array([np.nan]))).all(), "NaN is taken for a number"
