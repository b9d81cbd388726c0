"""Constants: what a model holds beside its nodes, initializers and Constant nodes."""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from driftnet.model import external_data
from driftnet.model.inspect import Case
from driftnet.model.operators import full_name
from onnx import helper, numpy_helper

Tensors = Mapping[str, np.ndarray]


def constant(node: onnx.NodeProto) -> np.ndarray | None:
    """The value of a Constant node; None for another node, or a Constant of nothing or of a sparse tensor."""
    name = node.attribute[0].name if full_name(node.op_type, node.domain) == "Constant" and node.attribute else ""
    if name in ("", "sparse_value"):
        return None
    value = helper.get_attribute_value(node.attribute[0])
    if name == "value":
        return numpy_helper.to_array(value)
    if name.startswith("value_string"):
        texts = [text.decode(errors="replace") for text in ([value] if isinstance(value, bytes) else value)]
        return np.array(texts if name == "value_strings" else texts[0], object)
    return np.array(value, np.float32 if name.startswith("value_float") else np.int64)


def stored_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers and the tensors of Constant nodes, by the name of the value."""
    yield from ((t.name, t) for t in graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")


def with_constants(case: Case, run: Tensors) -> Tensors:
    """`run` and the values of initializers and Constant nodes."""
    values = {t.name: external_data.array(t, case.file) for t in case.proto.graph.initializer}
    values |= {n.output[0]: x for n in case.proto.graph.node if (x := constant(n)) is not None}
    return {**values, **run}
