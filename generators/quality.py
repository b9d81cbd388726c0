"""Quality of shrinking: planted bugs, and how many nodes Hypothesis leaves of a graph that has one.

A bug is a property of a case, as if some toolchain went wrong on it; `necessary` names the operators that it takes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import onnx
from driftnet.generators.strategies import cases
from driftnet.model.case import Case
from hypothesis import Phase, find, settings
from onnx import TensorProto, helper

Bug = Callable[[Case], bool]

SETTINGS = settings(max_examples=20_000, database=None, deadline=None, phases=(Phase.generate, Phase.shrink))


@dataclass(frozen=True)
class Planted:
    """A bug, the operators that it needs, and where the search for it starts (those operators by default)."""

    bug: Bug
    necessary: tuple[str, ...]
    focus: tuple[str, ...] = ()


def minimal(bug: Bug, *, focus: str | tuple[str, ...] = (), seed: int = 0) -> Case:
    """The case that Hypothesis shrinks a failure of `bug` to. Raises NoSuchExample where it meets none."""
    return find(cases(focus=focus), bug, settings=SETTINGS, random=Random(seed))


def nodes(case: Case) -> list[onnx.NodeProto]:
    """Nodes without Constants."""
    return [node for node in case.proto.graph.node if node.op_type != "Constant"]


def operators(case: Case) -> list[str]:
    """Operator of each node, without Constants."""
    return [node.op_type for node in nodes(case)]


def attribute(node: onnx.NodeProto, name: str, default: object) -> object:
    """An attribute of a node, or the default where it is left out."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def chains(case: Case) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Each node with each node that feeds it: (producer, consumer)."""
    producers = {output: node for node in nodes(case) for output in node.output}
    for node in nodes(case):
        for name in node.input:
            if name in producers:
                yield producers[name], node


def has(op_type: str) -> Bug:
    """Any node of `op_type`."""
    return lambda case: op_type in operators(case)


def chain(*op_types: str) -> Bug:
    """Each operator is fed by the one before."""

    def bug(case: Case) -> bool:
        ends = {name for node in nodes(case) if node.op_type == op_types[0] for name in node.output}
        for op_type in op_types[1:]:
            following = [node for node in nodes(case) if node.op_type == op_type and ends & set(node.input)]
            ends = {name for node in following for name in node.output}
        return bool(ends)

    return bug


def with_attribute(op_type: str, name: str, wanted: Callable[[Any], bool]) -> Bug:
    """`op_type` with the attribute present and as wanted."""

    def bug(case: Case) -> bool:
        given = [attribute(node, name, None) for node in nodes(case) if node.op_type == op_type]
        return any(value is not None and wanted(value) for value in given)

    return bug


def grouped_then(second: str) -> Bug:
    """A converter that folds `second` into a grouped ConvTranspose as if it had one group."""

    def bug(case: Case) -> bool:
        return any(
            a.op_type == "ConvTranspose" and attribute(a, "group", 1) != 1 and b.op_type == second
            for a, b in chains(case)
        )

    return bug


def on_input(op_type: str, wanted: Callable[[np.ndarray], bool]) -> Bug:
    """`op_type` reads a graph input whose numbers in the first feed are as wanted."""

    def bug(case: Case) -> bool:
        read = {name for node in nodes(case) if node.op_type == op_type for name in node.input}
        return any(name in read and wanted(x) for name, x in case.feeds[0].items())

    return bug


def of_dtype(op_type: str, dtype: int) -> Bug:
    """`op_type` gives a graph output of that dtype."""

    def bug(case: Case) -> bool:
        given = {name for node in nodes(case) if node.op_type == op_type for name in node.output}
        return any(v.name in given and v.type.tensor_type.elem_type == dtype for v in case.proto.graph.output)

    return bug


def symbolic(op_type: str) -> Bug:
    """`op_type` in a graph that takes a symbolic dim."""

    def bug(case: Case) -> bool:
        dims = [d.dim_param for v in case.proto.graph.input for d in v.type.tensor_type.shape.dim]
        return op_type in operators(case) and any(dims)

    return bug


def _alone(bug: Bug, op_type: str) -> Planted:
    return Planted(bug, (op_type,))


def _chain(*op_types: str, focus: tuple[str, ...] = ()) -> Planted:
    return Planted(chain(*op_types), op_types, focus)


def _grouped(second: str) -> Planted:
    return Planted(grouped_then(second), ("ConvTranspose", second))


PLANTED: dict[str, Planted] = {
    # One operator of every sort: with weights, with states, with a body, in codes, of another shape than its operands'.
    **{op: _alone(has(op), op) for op in ("Conv", "LSTM", "Einsum", "TopK", "Loop", "QLinearConv", "ScatterND")},
    "a grouped ConvTranspose": _alone(with_attribute("ConvTranspose", "group", lambda n: n != 1), "ConvTranspose"),
    "a strided MaxPool": _alone(with_attribute("MaxPool", "strides", lambda n: 2 in n), "MaxPool"),
    "a bidirectional GRU": _alone(with_attribute("GRU", "direction", lambda d: d == b"bidirectional"), "GRU"),
    "a reflected Pad": _alone(with_attribute("Pad", "mode", lambda mode: mode == b"reflect"), "Pad"),
    "a cubic Resize": _alone(with_attribute("Resize", "mode", lambda mode: mode == b"cubic"), "Resize"),
    "a reduction that drops its axes": _alone(with_attribute("ReduceMean", "keepdims", lambda n: n == 0), "ReduceMean"),
    "a Softmax over the first axis": _alone(with_attribute("Softmax", "axis", lambda n: n == 0), "Softmax"),
    "a dilated Conv": _alone(with_attribute("Conv", "dilations", lambda n: max(n) > 1), "Conv"),
    "Add in half precision": _alone(of_dtype("Add", TensorProto.FLOAT16), "Add"),
    "Mul of integers": _alone(of_dtype("Mul", TensorProto.INT64), "Mul"),
    "Relu of more than 3/4": _alone(on_input("Relu", lambda x: bool((x > 0.75).any())), "Relu"),
    "Sigmoid of a negative number": _alone(on_input("Sigmoid", lambda x: bool((x < 0).any())), "Sigmoid"),
    "MatMul of a batch": _alone(on_input("MatMul", lambda x: x.ndim == 3 and x.shape[0] > 1), "MatMul"),
    "InstanceNormalization of a volume": _alone(
        on_input("InstanceNormalization", lambda x: x.ndim == 5), "InstanceNormalization"
    ),
    "Transpose of a symbolic dim": _alone(symbolic("Transpose"), "Transpose"),
    "BatchNormalization after a grouped ConvTranspose": _grouped("BatchNormalization"),
    "a scale after a grouped ConvTranspose": _grouped("Mul"),
    "Relu after Conv": _chain("Conv", "Relu"),
    "MatMul after Transpose": _chain("Transpose", "MatMul"),
    "Squeeze after GRU": _chain("GRU", "Squeeze", focus=("multi-input-gru",)),
    "DequantizeLinear after QuantizeLinear": _chain("QuantizeLinear", "DequantizeLinear", focus=("quantized-conv",)),
    "Transpose after Reshape": _chain("Reshape", "Transpose"),
    "Conv after Pad": _chain("Pad", "Conv"),
    "Mul after Sigmoid": _chain("Sigmoid", "Mul"),
    "Concat after Slice": _chain("Slice", "Concat"),
    "Gemm after Flatten": _chain("Flatten", "Gemm"),
    "a bias and a Relu after MatMul": _chain("MatMul", "Add", "Relu", focus=("biased-matmul",)),
    "Conv, BatchNormalization, Relu": _chain("Conv", "BatchNormalization", "Relu", focus=("residual-block",)),
    "the reshapes of a GroupNorm": _chain("Reshape", "InstanceNormalization", "Reshape", focus=("group-norm",)),
    "a block of a CNN": _chain("Conv", "BatchNormalization", "Relu", "Conv", focus=("residual-block",)),
    "a LayerNorm by hand": _chain("ReduceMean", "Sub", "Pow", focus=("layer-norm-by-hand",)),
}
"""Name -> bug."""
