"""T2: random float data, judged by the ball that float64 gives each output."""

import numpy as np
import pytest
from driftnet.model.verdict import Kind, Word
from driftnet.oracle.tiers import running_error
from onnx import TensorProto, helper

from tests.support.models import case
from tests.support.oracle import WRONG_WEIGHTS, asked, in_float64

FLOAT = TensorProto.FLOAT


def normal(*shape, seed=0, dtype=np.float32):
    """Random normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def one(op, x, *, element=FLOAT, shape=None, opset=22, **others):
    """A case of one operator of x, constants and attributes, which gives y, of the shape of x by default."""
    constants = {name: value for name, value in others.items() if isinstance(value, np.ndarray)}
    attributes = {name: value for name, value in others.items() if name not in constants}
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    return case([node], {"x": x}, constants, outputs=[("y", element, shape or x.shape)], opset=opset)


X = normal(1, 4, 8, 8)


def convolution(w):
    """Conv of random data."""
    return one("Conv", X, w=w, shape=(1, 4, 6, 6))


def said_of(runner, model, y):
    """The tier's verdict on the output y."""
    return asked(running_error.decide, runner, model, {"y": np.asarray(y)})


def test_another_order_of_summation_is_no_bug(runner):
    w = normal(4, 4, 3, 3, seed=1)
    said = said_of(runner, convolution(w), in_float64(X, w))
    assert (said.word, said.tier) == (Word.AGREES, "running-error")
    assert 0 < said.error <= said.bound


@pytest.mark.parametrize("damage", WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS)
def test_wrong_weights_are_seen(runner, damage):
    w = normal(4, 4, 3, 3, seed=1)
    said = said_of(runner, convolution(w), in_float64(X, damage(w)))
    assert (said.word, said.kind, said.tier) == (Word.DIVERGES, Kind.WRONG_VALUES, "running-error")
    assert said.error > 3 * said.bound


@pytest.mark.parametrize("op", ["BatchNormalization", "InstanceNormalization", "LayerNormalization"])
def test_a_wrong_epsilon_is_seen(runner, op):
    parameters = {"scale": normal(4, seed=1), "bias": normal(4, seed=3)}
    if op == "BatchNormalization":
        parameters |= {"mean": normal(4, seed=2), "var": np.ones(4, np.float32)}
    right, wrong = (one(op, normal(2, 4, 4, 4), epsilon=epsilon, **parameters) for epsilon in (1e-5, 1e-3))
    assert said_of(runner, right, runner.reference.run(right).outputs[0]["y"]).word is Word.AGREES
    assert said_of(runner, right, runner.reference.run(wrong).outputs[0]["y"]).word is Word.DIVERGES


def test_every_feed_is_judged(runner):
    first, second = normal(3), normal(3, seed=1)
    model = case(
        [helper.make_node("Exp", ["x"], ["y"])], {"x": first}, outputs=[("y", FLOAT, (3,))], feeds=[{"x": second}]
    )
    said = asked(running_error.decide, runner, model, {"y": np.exp(first)}, {"y": np.exp(first)})
    assert (said.word, said.feed) == (Word.DIVERGES, 1)


def test_a_message_says_what_where_got_and_should_be(runner):
    x = normal(2, 3)
    wrong = np.exp(x)
    wrong[1, 2] = 7
    said = said_of(runner, one("Exp", x), wrong)
    should_be = np.float32(np.exp(np.float64(x[1, 2])))
    assert said.message.startswith(f"output 'y' at [1, 2] is 7.0, should be {should_be}: error ")
    assert said.message.endswith("1 of 6 elements are wrong")


def test_cancellation_is_left_to_others_and_named(runner):
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["t"]),
        helper.make_node("Sub", ["t", "s"], ["y"]),
    ]
    model = case(nodes, {"x": np.float32(1e5) * (1 + normal(8) ** 2)}, outputs=[("y", FLOAT, (8,))])
    said = said_of(runner, model, runner.reference.run(model).outputs[0]["y"])
    assert (said.word, said.abstained) == (Word.ABSTAINS, ("Sub",))


def test_what_lies_clear_of_an_undecided_element_is_judged(runner):
    nodes = [helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Greater", ["t", "e"], ["y"])]
    x = np.linspace(0, 2, 21).astype(np.float32)
    constants = {"e": np.exp(np.float64(x[7])).astype(np.float32)}
    model = case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.BOOL, (21,))])
    right = x > x[7]
    either = right.copy()
    either[7] = not either[7]
    assert {said_of(runner, model, y).word for y in (right, either)} == {Word.AGREES}, "a tie may go either way"
    assert said_of(runner, model, ~right).word is Word.DIVERGES, "what is no tie may not"


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_infinities_and_nan_have_to_be_of_the_same_kind(runner, special):
    x = np.array([1, special, 2], np.float32)
    model = one("Add", x, c=np.ones(3, np.float32))
    assert said_of(runner, model, x + 1).word is Word.AGREES
    said = said_of(runner, model, np.array([2, 5, 3], np.float32))
    assert (said.word, said.kind) == (Word.DIVERGES, Kind.NAN)


def test_what_overflows_may_be_anything(runner):
    model = one("Mul", np.array([1, 1e30], np.float32), c=np.full(2, 1e20, np.float32))
    for answer in (np.inf, np.finfo(np.float32).max):
        said = said_of(runner, model, np.array([1e20, answer], np.float32))
        assert said.word is Word.ABSTAINS, "half of the output is undecided"
    assert said_of(runner, model, np.array([2e20, np.inf], np.float32)).word is Word.DIVERGES


def recurrent(op, gates, steps=60, hidden=24):
    """A long, wide recurrent layer, whose rounding errors no ball could follow to the end."""
    shapes = [(1, gates * hidden, 3), (1, gates * hidden, hidden)]
    w, r = (0.5 * normal(*shape, seed=k + 1) for k, shape in enumerate(shapes))
    nodes = [helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=hidden)]
    output = ("y", FLOAT, (steps, 1, 2, hidden))
    return case(nodes, {"x": normal(steps, 2, 3)}, {"w": w, "r": r}, outputs=[output], opset=14)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_is_judged_step_by_step(runner, op, gates):
    model = recurrent(op, gates)
    right = runner.reference.run(model).outputs[0]["y"]
    assert said_of(runner, model, right).word is Word.AGREES
    for step in (0, 30, 59):
        wrong = right.copy()
        wrong[step, 0, 1, 5] += 1e-4
        assert said_of(runner, model, wrong).word is Word.DIVERGES, f"an error in step {step}"


def test_an_empty_output_agrees(runner):
    model = one("Exp", np.zeros((0, 3), np.float32))
    assert said_of(runner, model, np.zeros((0, 3), np.float32)).word is Word.AGREES


def test_float64_may_be_computed_in_float32(runner):
    x = normal(8, dtype=np.float64)
    model = one("Exp", x, element=TensorProto.DOUBLE)
    assert said_of(runner, model, np.exp(x.astype(np.float32)).astype(np.float64)).word is Word.AGREES


def test_float64_may_be_held_in_float32(runner):
    x = np.array([1 / 3, 1e-300, np.inf])
    model, carried = one("Relu", x, element=TensorProto.DOUBLE), x.astype(np.float32).astype(np.float64)
    assert said_of(runner, model, carried).word is Word.AGREES
    assert said_of(runner, model, carried * (1 + 2.0**-22)).word is Word.DIVERGES


def test_elements_that_may_be_anything_are_not_vouched_for(runner):
    """However few they are, unless they are the reference's own."""
    d = np.ones((1, 100), np.float32)
    d[0, :9] = 1e-9
    nodes = [
        helper.make_node("Sin", ["d"], ["e"]),
        helper.make_node("Sub", ["e", "k"], ["f"]),
        helper.make_node("Div", ["x", "f"], ["y"]),
    ]
    x = np.random.default_rng(0).uniform(1, 2, (1, 100)).astype(np.float32)
    constants = {"k": np.where(d < 0.5, np.sin(d), 0).astype(np.float32)}
    model = case(nodes, {"x": x, "d": d}, constants, outputs=[("y", TensorProto.FLOAT, (1, 100))])
    right = runner.reference.run(model).outputs[0]["y"]
    near = np.where(d < 0.5, right, right * np.float32(1 + 1e-7))
    assert asked(running_error.decide, runner, model, {"y": near}).word is Word.AGREES
    assert asked(running_error.decide, runner, model, {"y": np.where(d < 0.5, np.nan, right)}).word is Word.ABSTAINS
