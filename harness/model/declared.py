"""Shapes that a model declares of what its nodes make, where these contradict what onnx infers.

Exporters leave wrong ones behind (an output declared a scalar, a batch that was edited afterwards); onnxruntime warns
and runs such a model, onnx's checker calls it invalid. They say nothing about what is computed.
"""

import onnx
from driftnet.model.inference import InferenceError, inferred, light
from onnx import TensorShapeProto, ValueInfoProto


def undeclare(graph: onnx.GraphProto) -> None:
    """Take away the shapes that are declared of what nodes make. Without that of a constant onnx infers wrong ones: it
    takes a Slice for one along the first axes."""
    constant = {tensor.name for tensor in graph.initializer}
    for value in (*graph.output, *graph.value_info):
        # To touch a tensor's type would make a tensor of a sequence.
        if value.name not in constant and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def settle_shapes(model: onnx.ModelProto) -> list[str]:
    """Put the inferred shape in the place of each declared one that contradicts it, and say which these were. An output
    that declares none, which the checker refuses and onnxruntime does not, gets the inferred one."""
    bare = onnx.ModelProto()
    bare.CopyFrom(light(model))
    undeclare(bare.graph)
    try:
        graph = inferred(bare, data_prop=True).graph
    except InferenceError:
        return []
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    found = {value.name: shape for value in (*graph.value_info, *graph.output) if (shape := _shape(value)) is not None}
    said = []
    for value in (*model.graph.output, *model.graph.value_info):
        shape, right = _shape(value), found.get(value.name)
        if right is None:
            continue
        if shape is None:
            value.type.CopyFrom(types[value.name])
        elif _contradict(shape, right):
            said.append(f"{value.name} is declared {_text(shape)}, and is {_text(right)}")
            shape.CopyFrom(right)
    return said


def _shape(value: ValueInfoProto) -> TensorShapeProto | None:
    tensor = value.type.tensor_type
    return tensor.shape if tensor.HasField("shape") else None


def _contradict(one: TensorShapeProto, other: TensorShapeProto) -> bool:
    pairs = zip(one.dim, other.dim)
    return len(one.dim) != len(other.dim) or any(
        a.HasField("dim_value") and b.HasField("dim_value") and a.dim_value != b.dim_value for a, b in pairs
    )


def _text(shape: TensorShapeProto) -> str:
    dims = (str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in shape.dim)
    return f"[{', '.join(dims)}]"
