"""What is random by definition is judged by shape, dtype and range."""

import numpy as np
import pytest
from driftnet.model.graph import read
from driftnet.model.verdict import Word
from driftnet.oracle.ball_arithmetic.creation import random_tensors
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.tiers import running_error
from driftnet.targets.interface import Scheme
from onnx import TensorProto, helper

from tests.support.models import case
from tests.support.oracle import verdict

FLOAT = TensorProto.FLOAT
X = {"x": np.full((3, 4), 0.5, np.float32)}


def one(op, element=FLOAT, shape=(3, 4), constants=None, **attributes):
    """A case of one random operator."""
    node = helper.make_node(op, ["x", *(constants or {})], ["y"], **attributes)
    return case([node], X, constants, outputs=[("y", element, shape)])


CASES = {
    "uniform": (one("RandomUniformLike", low=2.0, high=3.0), np.float32(2.5), np.float32(3.5)),
    "normal": (one("RandomNormalLike", mean=1.0, scale=2.0), np.float32(16.0), np.float32(18.0)),
    "bernoulli": (one("Bernoulli"), np.float32(1.0), np.float32(2.0)),
    "multinomial": (one("Multinomial", TensorProto.INT32, (3, 1)), np.int32(3), np.int32(4)),
}


@pytest.mark.parametrize("name", CASES)
def test_any_numbers_in_range_are_right_and_none_outside(runner, name):
    model, inside, outside = CASES[name]
    y = np.full_like(runner.reference.run(model).outputs[0]["y"], inside)
    said = verdict(runner, model, {"y": y})
    assert (said.word, said.rule) == (Word.AGREES, running_error.RANDOM), said.message
    y.flat[1] = outside
    assert verdict(runner, model, {"y": y}).word is Word.DIVERGES, f"{outside} is out of range"


def test_what_a_multinomial_draws_of_numbers_beyond_half_precision_is_open_where_that_is_allowed(runner):
    feeds = {"x": np.array([[1e6, 0, 0, 0], [0.5, -np.inf, 0, 0], [np.inf, 0, 0, 0]], np.float32)}
    for halves, open_rows in ((False, {2}), (True, {0, 2})):
        drawn = evaluate(read(CASES["multinomial"][0].proto), feeds, halves=halves).balls["y"]
        assert set(np.flatnonzero(drawn.undecided)) == open_rows, f"halves={halves}: {drawn}"


def test_a_trained_dropout_and_what_follows_it_are_judged_by_shape(runner):
    constants = {"ratio": np.float32(0.5), "training": np.array(True)}
    nodes = [helper.make_node("Dropout", ["x", *constants], ["d"]), helper.make_node("Sin", ["d"], ["y"])]
    model = case(nodes, X, constants, outputs=[("y", FLOAT, (3, 4))])
    other = np.zeros((3, 4), np.float32)
    assert verdict(runner, model, {"y": other}).rule == running_error.RANDOM
    assert verdict(runner, model, {"y": other}, scheme=Scheme((-127, 127), (0, 255))).word is Word.AGREES
    assert verdict(runner, model, {"y": other[1:]}).word is Word.DIVERGES, "a wrong shape is wrong all the same"


def test_what_is_behind_chance_is_random_and_what_leaves_an_operand_out_is_not():
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["r"]),
        helper.make_node("TopK", ["r", "k"], ["", "i"]),
        helper.make_node("Clip", ["x", "", "x0"], ["c"]),
        helper.make_node("Neg", ["r"], ["n"]),
    ]
    constants = {"k": np.array([1]), "x0": np.float32(1)}
    shapes = [("i", TensorProto.INT64, (3, 1)), ("c", FLOAT, (3, 4)), ("n", FLOAT, (3, 4))]
    graph = read(case(nodes, X, constants, outputs=shapes).proto)
    assert random_tensors(graph) == {"r", "i", "n"}
