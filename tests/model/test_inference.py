"""onnx's shape inference ends no process but its own."""

import onnx
import pytest
from driftnet.model.inference import InferenceError, inferred
from onnx import TensorProto, helper


def model(op, *outputs, **attributes):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    values = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([helper.make_node(op, ["x"], outputs, **attributes)], "test", [x], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_it_infers_what_onnx_infers():
    relu = model("Relu", "y")
    assert inferred(relu) == onnx.shape_inference.infer_shapes(relu), "the answer changed on its way"


def test_what_onnx_refuses_is_said_in_its_words():
    with pytest.raises(InferenceError, match="output size 2 not in range"):
        inferred(model("Relu", "y", "z"), check_type=True)


def test_a_split_with_more_results_than_it_says_ends_no_process_of_ours():
    with pytest.raises(InferenceError, match=r"its process down \(SIGABRT\)"):
        inferred(model("Split", "y", "z", num_outputs=1), check_type=True)
