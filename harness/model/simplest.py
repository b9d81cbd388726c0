"""The simplest model: what any system should take, and what tells whether it takes an opset at all."""

import numpy as np
from driftnet.model.case import Case
from onnx import TensorProto, helper


def simplest(opset: int = 13) -> Case:
    """A Relu of four float32 numbers, shape (1, 4), in the oldest IR version that has `opset`."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    return Case(model.SerializeToString(), ({"x": np.array([[-1, 0, 1, 2]], np.float32)},))
