"""Constants: what a model holds beside its nodes, initializers and Constant nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from driftnet.model import external_data
from driftnet.model.inspect import Case
from onnx import helper, numpy_helper

Tensors = Mapping[str, np.ndarray]


def constant(node: onnx.NodeProto) -> np.ndarray | None:
    """The value of a Constant node; None for another node, or a Constant of nothing, of strings or a sparse tensor."""
    if node.op_type != "Constant" or not node.attribute:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        return numpy_helper.to_array(attribute.t)
    dtypes = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    if attribute.name in dtypes:
        return np.array(helper.get_attribute_value(attribute), dtypes[attribute.name])
    return None


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
