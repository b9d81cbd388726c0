"""The trust check: a case in which no damage could show is told apart, and revived."""

import dataclasses

import numpy as np
import pytest
from driftnet.campaign.insensitivity import insensitive, revived
from driftnet.generators import bulk
from driftnet.on_grid.construct import construct
from driftnet.targets.interface import Scheme
from onnx import TensorProto, helper

from tests.support.models import case

FLOAT = TensorProto.FLOAT


def relu_network(bias: float, inputs: float = 1.0):
    """relu(x @ w + bias): dead where the bias is far below zero."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["g"]), helper.make_node("Relu", ["g"], ["y"])]
    constants = {"w": rng.normal(size=(6, 4)).astype(np.float32), "b": np.full(4, bias, np.float32)}
    x = np.asarray(inputs * rng.normal(size=(3, 6)), np.float32)
    return case(nodes, {"x": x}, constants, outputs=[("y", FLOAT, (3, 4))])


def test_a_dead_relu_is_vacuous_and_a_live_one_is_not(runner):
    assert insensitive(relu_network(-100), runner.reference), "behind a bias of -100 no Relu is alive"
    assert not insensitive(relu_network(0), runner.reference), "half of the Relus are alive"


def test_weights_that_a_constant_states_as_numbers_stay(runner):
    nodes = [
        helper.make_node("Constant", [], ["b"], value_floats=[0.5, -1.0, 2.0]),
        helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
    ]
    model = case(
        nodes, {"x": np.ones((2, 4), np.float32)}, {"w": np.ones((4, 3), np.float32)}, outputs=[("y", FLOAT, (2, 3))]
    )
    assert not insensitive(model, runner.reference), "a changed input or weight changes the output"


def test_a_constant_result_that_a_change_would_move_is_not_vacuous(runner):
    mean = case(
        [helper.make_node("ReduceMean", ["x"], ["y"])],
        {"x": np.ones((2, 3), np.float32)},
        outputs=[("y", FLOAT, (1, 1))],
    )
    assert not insensitive(mean, runner.reference), "the mean would move with its input"


@pytest.mark.parametrize("operator", ["Shape", "Size"])
def test_a_result_that_depends_on_shapes_alone_is_vacuous(runner, operator):
    shape = (2,) if operator == "Shape" else ()
    model = case(
        [helper.make_node(operator, ["x"], ["y"])],
        {"x": np.ones((2, 3), np.float32)},
        outputs=[("y", TensorProto.INT64, shape)],
    )
    assert insensitive(model, runner.reference), "no number reaches the output"
    assert revived(model, runner.reference, 0) is None


def test_other_numbers_revive_a_case_that_they_killed(runner):
    dead = relu_network(-1, inputs=0.01)
    assert insensitive(dead, runner.reference), "with its own numbers no Relu is alive"
    alive = revived(dead, runner.reference, 0)
    assert alive is not None
    assert not insensitive(alive, runner.reference), "with other numbers it should be alive"
    assert [node.op_type for node in alive.proto.graph.node] == ["Gemm", "Relu"]
    again = revived(dead, runner.reference, 0)
    assert alive.model == again.model


def test_a_model_that_the_reference_refuses_is_nobodys_business(runner):
    broken = relu_network(0)
    assert not insensitive(dataclasses.replace(broken, feeds=({},)), runner.reference), (
        "what does not run is not called insensitive"
    )


def test_no_case_on_the_grid_is_vacuous(runner):
    scheme = Scheme((-127, 127), (0, 255))
    constructed = [construct(bulk.case(4, index), scheme, index) for index in range(30)]
    found = [insensitive(model, runner.reference) for model in constructed if model]
    assert len(found) > 15
    assert [k for k, dead in enumerate(found) if dead] == [], "indices of constructed cases that are insensitive"
