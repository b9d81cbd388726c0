"""Shapes that a model declares wrongly are put right, and said; all others stay as they are."""

import numpy as np
import onnx
import pytest
from driftnet.model.declared import only_tensors, settle_bodies, settle_order, settle_shapes, undeclare
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


@pytest.mark.parametrize(("declared", "said"), [([], ["b is declared [], and is [1]"]), (["n"], [])])
def test_a_wrong_shape_of_what_a_body_gives_is_put_right(declared, said):
    """Paddle's exporter calls one number of a branch a scalar, in a Loop too."""
    cast = helper.make_node("Cast", ["x"], ["b"], to=TensorProto.FLOAT)
    body = helper.make_graph([cast], "body", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, declared)])
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)],
        "test",
        [helper.make_tensor_value_info(*each) for each in (("c", TensorProto.BOOL, []), ("x", TensorProto.INT64, [1]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    before = model.SerializeToString()
    assert settle_bodies(model) == 2 * said
    assert bool(said) or model.SerializeToString() == before, "the model changed"
    onnx.checker.check_model(model, full_check=True)


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


def test_scores_stand_in_the_place_of_a_map_of_them():
    """As scikit-learn's exporter writes a classifier."""
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", coefficients=[1.0, -1.0],
                         intercepts=[0.0, 0.0], classlabels_ints=[0, 1], post_transform="SOFTMAX"),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]  # fmt: skip
    score = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    probabilities = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, score))
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
        helper.make_value_info("probabilities", probabilities),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph(nodes, "test", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
    assert only_tensors(model) == ["probabilities is no tensor, and scores stands in its place, of which it is made"]
    assert [value.name for value in model.graph.output] == ["label", "scores"]
    assert [node.op_type for node in model.graph.node] == ["LinearClassifier"]
    onnx.checker.check_model(model, full_check=True)
    assert only_tensors(model) == [], "all are tensors now"


def test_the_parts_of_a_sequence_stand_in_its_place_but_not_those_of_a_loop():
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("SequenceConstruct", ["h", "x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "test", [x], [y]))
    assert only_tensors(model) == ["y is no tensor, and h stands in its place, of which it is made"]
    onnx.checker.check_model(model, full_check=True)
    branch = helper.make_graph([nodes[1]], "branch", [], [y])
    nodes[1:] = [
        helper.make_node("ReduceMax", ["h"], ["c"], keepdims=0),
        helper.make_node("Cast", ["c"], ["b"], to=TensorProto.BOOL),
        helper.make_node("If", ["b"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = helper.make_model(helper.make_graph(nodes, "test", [x], [y]))
    assert only_tensors(model) == [], "nobody looks into a branch"


def test_no_node_that_computes_vanishes_for_what_a_sequence_is_made_of():
    s = helper.make_tensor_value_info("s", TensorProto.INT64, None)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Exp", ["r"], ["e"])]
    model = helper.make_model(
        helper.make_graph([*nodes, helper.make_node("SequenceConstruct", ["e"], ["y"])], "test", [x, s], [y])
    )
    assert only_tensors(model) == [], "an output of unknown rank cannot be declared"
    assert [node.op_type for node in model.graph.node] == ["Reshape", "Exp", "SequenceConstruct"]
    model.graph.node[0].CopyFrom(helper.make_node("Neg", ["x"], ["r"]))
    assert only_tensors(model) == ["y is no tensor, and e stands in its place, of which it is made"]
    assert [node.op_type for node in model.graph.node] == ["Neg", "Exp"]


def test_sequences_that_are_made_of_each_other_are_left():
    nodes = [helper.make_node("SequenceInsert", [a, "x"], [b]) for a, b in (("b", "y"), ("y", "b"))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "test", [x], [y]))
    assert only_tensors(model) == []


def test_nodes_before_what_they_read_are_put_in_order_and_it_is_said():
    model = matmul({"y": ["batch", 20000]})
    assert settle_order(model) == [], "they are in order"
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert settle_order(model) == ["nodes stand before those that make what they read, and are put in order"]
    onnx.checker.check_model(model, full_check=True)
    model.graph.node[0].input[0] = "y"
    assert settle_order(model) == [], "there is no order of nodes that wait for each other"
