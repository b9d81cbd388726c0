"""T3: random float data, judged by how far rounding moves the reference."""

import numpy as np
import pytest
from driftnet.model.verdict import Kind, Word
from driftnet.oracle.tiers import sampling
from onnx import TensorProto, helper

from tests.support.models import case
from tests.support.oracle import WRONG_WEIGHTS, asked, in_float64, verdict

FLOAT = TensorProto.FLOAT


def normal(*shape, seed=0):
    """Random normal float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = normal(1, 4, 8, 8)


def convolution(w, *then):
    """Conv of random data, and `then` behind it."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["t" if then else "y"]), *then]
    return case(nodes, {"x": X}, {"w": w}, outputs=[("y", FLOAT, (1, 4, 6, 6))])


def test_another_order_of_summation_is_no_bug(runner):
    w = normal(4, 4, 3, 3, seed=1)
    said = asked(sampling.decide, runner, convolution(w), {"y": in_float64(X, w)})
    assert (said.word, said.tier) == (Word.AGREES, "sampling")
    assert 0 < said.error <= said.bound


@pytest.mark.parametrize("damage", WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS)
def test_wrong_weights_are_seen(runner, damage):
    w = normal(4, 4, 3, 3, seed=1)
    said = asked(sampling.decide, runner, convolution(w), {"y": in_float64(X, damage(w))})
    assert (said.word, said.kind, said.tier) == (Word.DIVERGES, Kind.WRONG_VALUES, "sampling")
    assert said.error > 3 * said.bound


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_window_that_is_zero_but_for_rounding_may_be_computed_in_float32(runner, dtype):
    """0.42 - 0.5 + 0.08 is -1e-17 in float64, and 1e-8 in float32."""
    node = helper.make_node("BlackmanWindow", ["n"], ["w"], periodic=0, output_datatype=dtype)
    made = case(
        [node, helper.make_node("Cast", ["w"], ["c"], to=FLOAT), helper.make_node("Add", ["c", "x"], ["y"])],
        {"x": np.zeros(2, np.float32)},
        {"n": np.array(2, np.int64)},
        outputs=[("y", FLOAT, (2,))],
    )
    said = asked(sampling.decide, runner, made, {"y": np.full(2, 1e-8, np.float32)})
    assert (said.word, said.tier) == (Word.AGREES, "sampling"), said.message
    said = asked(sampling.decide, runner, made, {"y": np.full(2, 1e-2, np.float32)})
    assert said.word is Word.DIVERGES, "any value will do"


@pytest.mark.parametrize(("limit", "most"), [("MOST_SAMPLED", 4 * X.size), ("MOST_NODES", 0)])
def test_what_is_too_large_is_not_run_with_noise(runner, monkeypatch, limit, most):
    monkeypatch.setattr(f"driftnet.oracle.question.question.{limit}", most)
    w = normal(4, 4, 3, 3, seed=1)
    said = asked(sampling.decide, runner, convolution(w), {"y": in_float64(X, w) + np.float32(1)})
    assert (said.word, said.message) == (Word.ABSTAINS, "it is too large to be run with noise")


def test_a_message_says_what_where_got_and_should_be(runner):
    model = case([helper.make_node("Exp", ["x"], ["y"])], {"x": normal(2, 3)}, outputs=[("y", FLOAT, (2, 3))])
    right = runner.reference.run(model).outputs[0]["y"]
    wrong = right.copy()
    wrong[1, 2] = 7
    said = asked(sampling.decide, runner, model, {"y": wrong})
    assert said.message.startswith(f"output 'y' at [1, 2] is 7.0, should be {right[1, 2]}: error ")
    assert said.message.endswith("1 of 6 elements are wrong")


@pytest.mark.parametrize("terms", [1000, 30000])
def test_a_long_sum_in_sequence_is_no_bug(runner, terms):
    """Float32 sums of thousands of terms, one after the other: the worst order there is."""
    for seed in range(5):
        x = normal(2, terms, seed=seed)
        model = case(
            [helper.make_node("ReduceSum", ["x", "axes"], ["y"])],
            {"x": x},
            {"axes": np.array([1])},
            outputs=[("y", FLOAT, (2, 1))],
        )
        sequential = x.cumsum(1, dtype=np.float32)[:, -1:]
        said = asked(sampling.decide, runner, model, {"y": sequential})
        assert said.word is not Word.DIVERGES, said.message
        said = asked(sampling.decide, runner, model, {"y": x[:, 1:].sum(1, dtype=np.float32, keepdims=True)})
        assert said.word is not Word.AGREES, "a term is missing"


def test_every_operator_that_adds_up_may_do_so_in_another_order(runner):
    """One sum of 2048 squares, whose terms a norm over all positions adds up as a ReduceL2 does."""
    x = normal(1, 1, 2048)
    model = case([helper.make_node("GlobalLpPool", ["x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, (1, 1, 1))])
    samples = runner.reference.sample(model, count=24)
    right = runner.reference.run(model).outputs[0]["y"]
    spread = max(float(np.abs(sample[0]["y"] - right).max()) for sample in samples)
    said = asked(sampling.decide, runner, model, {"y": right + np.float32(30 * spread)})
    assert said.word is Word.AGREES, said.message


def test_a_hundred_matrix_products_another_way_are_no_bugs(runner):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(2, 600))
        x, w = rng.normal(size=(3, k)).astype(np.float32), rng.normal(size=(k, 4)).astype(np.float32)
        model = case(
            [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (3, 4))]
        )
        y = (x[:, None, :] * w.T).cumsum(-1, dtype=np.float32)[..., -1]
        said = asked(sampling.decide, runner, model, {"y": y})
        assert said.word is Word.AGREES, f"seed {seed}, {k} terms: {said.message}"


def test_the_tanh_of_another_library_is_no_bug(runner):
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    model = case([helper.make_node("Tanh", ["x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, (64,))])
    exact = np.tanh(x.astype(np.float64))
    assert asked(sampling.decide, runner, model, {"y": (exact + 2e-7).astype(np.float32)}).word is Word.AGREES
    assert asked(sampling.decide, runner, model, {"y": (exact + 2e-5).astype(np.float32)}).word is Word.DIVERGES


def test_the_allowance_of_tanh_follows_its_error_through_the_graph(runner):
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Mul", ["t", "w"], ["m"])]
    nodes.append(helper.make_node("Sub", ["m", "w"], ["y"]))
    x, w = np.full((1, 8), 5.0, np.float32), np.full((1, 8), 1000.0, np.float32)
    model = case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 8))])
    right = runner.reference.run(model).outputs[0]["y"]
    assert abs(right).max() < 0.2
    assert asked(sampling.decide, runner, model, {"y": right + np.float32(2e-4)}).word is Word.AGREES
    assert asked(sampling.decide, runner, model, {"y": right + np.float32(2e-2)}).word is not Word.AGREES


def test_a_decision_that_rounding_flips_is_masked(runner):
    x = np.array([[1.0, 1.0 + 2**-23, 0.0, 3.0, *range(4, 60)]], np.float32).repeat(2, 0)
    x[1, :2] = x[1, 1::-1]
    nodes = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Sub", ["s", "x"], ["t"])]
    nodes.append(helper.make_node("Greater", ["t", "c"], ["y"]))
    threshold = np.float32(np.sin(1.0) - 1.0)
    model = case(nodes, {"x": x}, {"c": np.array([threshold])}, outputs=[("y", TensorProto.BOOL, (2, 60))])
    right = runner.reference.run(model).outputs[0]["y"]
    flipped = right.copy()
    flipped[0, 0] ^= True
    assert asked(sampling.decide, runner, model, {"y": flipped}).word is Word.AGREES
    flipped[0, 30] ^= True
    said = asked(sampling.decide, runner, model, {"y": flipped})
    assert (said.word, said.bound) == (Word.DIVERGES, 0)
    assert "at [0, 30]" in said.message


def test_what_is_ill_conditioned_is_left_open_with_its_operators(runner):
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Log", ["e"], ["l"])]
    nodes.append(helper.make_node("Sub", ["l", "x"], ["y"]))
    model = case(nodes, {"x": normal(4, 4)}, outputs=[("y", FLOAT, (4, 4))])
    residue = runner.reference.run(model).outputs[0]["y"]
    said = asked(sampling.decide, runner, model, {"y": residue[::-1] * 3})
    assert (said.word, said.tier, said.abstained) == (Word.ABSTAINS, "sampling", ("Exp", "Log", "Sub"))


def test_nan_where_the_reference_is_finite_is_named(runner):
    model = case([helper.make_node("Exp", ["x"], ["y"])], {"x": normal(2, 3)}, outputs=[("y", FLOAT, (2, 3))])
    wrong = runner.reference.run(model).outputs[0]["y"].copy()
    wrong[0, 1] = np.nan
    said = asked(sampling.decide, runner, model, {"y": wrong})
    assert (said.word, said.kind) == (Word.DIVERGES, Kind.NAN)
    assert "at [0, 1] is nan" in said.message


def test_the_worst_of_several_outputs_speaks(runner):
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    model = case(nodes, {"x": normal(2, 3)}, outputs=[("y", FLOAT, (2, 3)), ("z", FLOAT, (2, 3))])
    right = runner.reference.run(model).outputs[0]
    said = asked(sampling.decide, runner, model, {"y": right["y"] * np.float32(1.01), "z": right["z"] * np.float32(2)})
    assert (said.word, said.output) == (Word.DIVERGES, "z")


@pytest.mark.parametrize("error", [1e-7, 1e-3])
def test_the_zero_at_the_end_of_a_window_may_be_the_rounding_of_an_angle(runner, error):
    node = helper.make_node("HannWindow", ["n"], ["y"], periodic=0)
    model = case([node], {"n": np.array(2)}, outputs=[("y", FLOAT, (2,))])
    assert verdict(runner, model, {"y": np.array([0, error], np.float32)}).failed is (error > 1e-5)


@pytest.mark.parametrize(
    ("there", "word"), [(1, Word.AGREES), (8, Word.AGREES), (3, Word.ABSTAINS), (900, Word.DIVERGES)]
)
def test_of_what_a_flipped_decision_may_place_elsewhere_only_what_some_run_gave_is_right(runner, there, word):
    """Whether a 1 is below a threshold, and replaced by 8, depends on rounding."""
    x = np.append(1, np.linspace(4, 8, 30)).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "third"], ["t"]),
        helper.make_node("Less", ["t", "limit"], ["c"]),
        helper.make_node("Where", ["c", "low", "x"], ["y"]),
    ]
    constants = {"third": np.float32(1 / 3), "limit": np.float32(1 / 3), "low": np.float32(8)}
    model = case(nodes, {"x": x}, constants, outputs=[("y", FLOAT, (31,))])
    right = runner.reference.run(model).outputs[0]["y"]
    got = right.copy()
    got[0] = there
    assert asked(sampling.decide, runner, model, {"y": got}).word is word, f"{there} for {right[0]}"


@pytest.mark.parametrize(("error", "word"), [(1e-5, Word.ABSTAINS), (1.0, Word.DIVERGES)], ids=["small", "gross"])
def test_of_what_a_subgraph_computes_only_a_gross_error_is_one(runner, error, word):
    """No noise is put inside the branch, so that rounding there moves no sample."""
    w = normal(4, 4, 3, 3, seed=1)
    branch = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["inner"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", FLOAT, (1, 4, 6, 6))],
    )
    node = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    model = case([node], {"x": X}, {"w": w, "yes": np.array(True)}, outputs=[("y", FLOAT, (1, 4, 6, 6))])
    right = runner.reference.run(model).outputs[0]["y"]
    said = asked(sampling.decide, runner, model, {"y": right + np.float32(error) * np.abs(right).max()})
    assert said.word is word, f"an error of {error} of the largest: {said.message}"


@pytest.mark.parametrize(
    ("factor", "fed", "wrong", "word"),
    [
        (1.0, 1e-8, 0.0, Word.AGREES),  # MNN's Tanh of 1e-8 is 0
        (1.0, 1e-8, 1.0, Word.DIVERGES),
        (1e3, 1e-8, 0.0, Word.AGREES),
        (1e-6, 0.5, 0.0, Word.DIVERGES),
    ],
)
def test_the_tanh_of_another_library_is_no_bug_inside_of_a_subgraph_either(runner, factor, fed, wrong, word):
    """What it may err by is carried to the output by what stands between them."""
    inner = helper.make_tensor_value_info("inner", FLOAT, (1,))
    branch = helper.make_graph([helper.make_node("Tanh", ["x"], ["inner"])], "branch", [], [inner])
    nodes = [
        helper.make_node("If", ["yes"], ["t"], then_branch=branch, else_branch=branch),
        helper.make_node("Mul", ["t", "factor"], ["y"]),
    ]
    constants = {"yes": np.array(True), "factor": np.float32(factor)}
    model = case(nodes, {"x": np.array([fed], np.float32)}, constants, outputs=[("y", FLOAT, (1,))])
    found = asked(sampling.decide, runner, model, {"y": np.array([wrong], np.float32)})
    assert found.word is word, f"{factor} times the Tanh of {fed} is {wrong}: {found}"


def test_what_noise_before_a_subgraph_explains_is_no_error_of_it(runner):
    w = normal(4, 4, 3, 3, seed=1)
    shape = helper.make_tensor_value_info("inner", FLOAT, (1, 4, 6, 6))
    branch = helper.make_graph([helper.make_node("Identity", ["t"], ["inner"])], "branch", [], [shape])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = case(nodes, {"x": X}, {"w": w, "yes": np.array(True)}, outputs=[("y", FLOAT, (1, 4, 6, 6))])
    said = asked(sampling.decide, runner, model, {"y": in_float64(X, w)})
    assert said.word is Word.AGREES, f"another order of summation: {said.word}, {said.message}"
