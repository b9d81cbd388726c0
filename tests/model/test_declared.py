"""Shapes that a model declares wrongly are put right, and said; all others stay as they are."""

import numpy as np
import onnx
import pytest
from driftnet.model.declared import settle_shapes, undeclare
from onnx import TensorProto, helper, numpy_helper


def matmul(declared):
    """[batch, 3] times a weight of [3, 200], declared so, then Relu."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    weight = numpy_helper.from_array(np.ones((3, 20000), np.float32), "w")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in declared.items()]
    outputs = [value for value in shapes if value.name == "y"]
    graph = helper.make_graph(nodes, "test", [x], outputs, [weight])
    graph.value_info.extend(value for value in shapes if value.name != "y")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([], "y is declared [], and is [batch, 20000]"),
        (["batch", 10], "y is declared [batch, 10], and is [batch, 20000]"),
    ],
    ids=["scalar", "another size"],
)
def test_a_wrong_shape_of_an_output_is_put_right_and_said(shape, said):
    model = matmul({"y": shape})
    assert settle_shapes(model) == [said]
    onnx.checker.check_model(model, full_check=True)


def test_a_wrong_shape_inside_is_put_right_too():
    model = matmul({"h": [1, 1, 1], "y": ["batch", 20000]})
    assert settle_shapes(model) == ["h is declared [1, 1, 1], and is [batch, 20000]"]
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    "shape", [["batch", 20000], ["n", "m"], [4, 20000]], ids=["equal", "names", "a size for a name"]
)
def test_what_may_be_right_stays(shape):
    model = matmul({"y": shape})
    before = model.SerializeToString()
    assert settle_shapes(model) == []
    assert model.SerializeToString() == before, "the model changed"


def test_a_model_of_which_nothing_can_be_inferred_stays():
    model = matmul({"y": []})
    model.graph.node[0].op_type = "Nonsense"
    before = model.SerializeToString()
    assert settle_shapes(model) == []
    assert model.SerializeToString() == before, "the model changed"


@pytest.mark.parametrize("told", [TensorProto.FLOAT, None], ids=["type", "nothing"])
def test_an_output_without_a_shape_gets_the_inferred_one(told):
    model = matmul({"y": ["batch", 20000]})
    right = model.SerializeToString()
    model.graph.output[0].ClearField("type")
    if told is not None:
        model.graph.output[0].type.tensor_type.elem_type = told
    assert settle_shapes(model) == [], "nothing is declared wrongly"
    assert model == onnx.ModelProto.FromString(right), f"the output is {model.graph.output[0]}"


def test_a_sequence_stays_one_whose_shape_is_taken_away():
    value = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("SequenceEmpty", [], ["s"])], "test", [], [value])
    undeclare(graph)
    assert graph.output[0].type.HasField("sequence_type"), f"it is declared {graph.output[0].type}"


def test_what_a_constant_is_declared_to_be_stays_so_that_a_slice_is_right():
    """onnx forgets the value of an initializer whose declaration has no shape, and slices the first axes then."""
    bounds = {"starts": 1, "ends": 3, "axes": 2}
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", *bounds], ["y"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 2])],
        [numpy_helper.from_array(np.array([value]), name) for name, value in bounds.items()],
        value_info=[helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in bounds],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert settle_shapes(model) == []
    onnx.checker.check_model(model, full_check=True)
