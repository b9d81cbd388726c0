"""A model and its feeds as Python code that makes them: what anybody can paste, read, and change."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from driftnet.model.inspect import Feed
from onnx import AttributeProto, helper, numpy_helper

SHOWN = 64
"""Elements of an array that is written as numbers; larger ones are base64."""


def model_code(model: onnx.ModelProto, name: str = "model") -> str:
    """Code that makes `model` by onnx.helper."""
    lines: list[str] = []
    graph = _graph(model.graph, lines, f"{name}_graph")
    opsets = ", ".join(f"helper.make_opsetid({o.domain!r}, {o.version})" for o in model.opset_import)
    functions = f", functions=[{', '.join(map(_message, model.functions))}]" if model.functions else ""
    lines.append(
        f"{name} = helper.make_model({graph}, opset_imports=[{opsets}], ir_version={model.ir_version}{functions})"
    )
    return "\n".join(lines)


def feeds_code(feeds: Sequence[Feed], name: str) -> str:
    """Code that makes feeds, one dictionary each."""
    said = [", ".join(f"{k!r}: {array_code(np.asarray(x))}" for k, x in feed.items()) for feed in feeds]
    return f"{name} = [\n" + "".join(f"    {{{text}}},\n" for text in said) + "]"


def array_code(x: np.ndarray) -> str:
    """An expression that is `x`, bit by bit."""
    if x.dtype.kind in "OUS":
        return f"np.array({[str(v) for v in x.ravel()]!r}, object).reshape({x.shape})"
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    dtype = f"np.{x.dtype.name}" if hasattr(np, x.dtype.name) else f"helper.tensor_dtype_to_np_dtype({number})"
    same = x.size > 1 and x.tobytes() == x.ravel()[:1].tobytes() * x.size
    if x.dtype.kind in "biuf" and hasattr(np, x.dtype.name) and (same or x.size <= SHOWN) and np.isfinite(x).all():
        if same:
            return f"np.full({x.shape}, {x.ravel()[0].item()!r}, {dtype})"
        return f"np.array({x.tolist()!r}, {dtype})" + (f".reshape({x.shape})" if 0 in x.shape else "")
    text = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
    return f'np.frombuffer(base64.b64decode("{text}"), {dtype}).reshape({x.shape})'


def _graph(graph: onnx.GraphProto, lines: list[str], name: str) -> str:
    """Append what makes `graph`, and say what it is called."""
    nodes = [f"    {_node(node, lines, f'{name}_{k}')},\n" for k, node in enumerate(graph.node)]
    tensors = [
        f"    numpy_helper.from_array({array_code(numpy_helper.to_array(t))}, {t.name!r}),\n" for t in graph.initializer
    ]
    parts = [
        f"{name}_nodes = [\n{''.join(nodes)}]",
        *([f"{name}_initializers = [\n{''.join(tensors)}]"] if tensors else []),
        f"{name} = helper.make_graph(\n    {name}_nodes, {graph.name or 'graph'!r},",
        f"    [{', '.join(map(_value, graph.input))}],\n    [{', '.join(map(_value, graph.output))}],",
        *([f"    {name}_initializers,"] if tensors else []),
        *([f"    value_info=[{', '.join(map(_value, graph.value_info))}],"] if graph.value_info else []),
        ")",
    ]
    lines.append("\n".join(parts))
    return name


def _node(node: onnx.NodeProto, lines: list[str], name: str) -> str:
    said = [repr(node.op_type), repr(list(node.input)), repr(list(node.output))]
    said += [f"{key}={getattr(node, key)!r}" for key in ("name", "domain") if getattr(node, key)]
    said += [f"{a.name}={_attribute(a, lines, f'{name}_{a.name}')}" for a in node.attribute]
    return f"helper.make_node({', '.join(said)})"


def _attribute(attribute: AttributeProto, lines: list[str], name: str) -> str:
    match attribute.type:
        case AttributeProto.TENSOR:
            return f"numpy_helper.from_array({array_code(numpy_helper.to_array(attribute.t))})"
        case AttributeProto.GRAPH:
            return _graph(attribute.g, lines, name)
        case AttributeProto.STRING:
            return repr(attribute.s.decode(errors="replace"))
        case AttributeProto.STRINGS:
            return repr([text.decode(errors="replace") for text in attribute.strings])
        case AttributeProto.INT | AttributeProto.FLOAT | AttributeProto.INTS | AttributeProto.FLOATS:
            return repr(helper.get_attribute_value(attribute))
    return _message(attribute)


def _value(value: onnx.ValueInfoProto) -> str:
    kind = value.type
    if kind.WhichOneof("value") != "tensor_type":
        return _message(value)
    tensor = kind.tensor_type
    element = f"onnx.TensorProto.{onnx.TensorProto.DataType.Name(tensor.elem_type)}"
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return f"helper.make_tensor_value_info({value.name!r}, {element}, {dims if tensor.HasField('shape') else None!r})"


def _message(proto: Any) -> str:
    return f"onnx.{type(proto).__name__}.FromString({proto.SerializeToString()!r})"
