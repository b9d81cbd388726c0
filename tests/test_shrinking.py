"""How small a graph Hypothesis is left with: one line a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, find, settings
from onnx import helper, numpy_helper

from generators.case import Case
from generators.strategies import cases

Bug = Callable[[Case], bool]

SETTINGS = settings(
    max_examples=20_000,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)


def minimal(bug: Bug, *, focus: str | tuple[str, ...] = (), seed: int = 0) -> Case:
    """The case that Hypothesis shrinks a failure of `bug` to."""
    return find(cases(focus=focus), bug, settings=SETTINGS, random=Random(seed))


def nodes(case: Case) -> list[onnx.NodeProto]:
    return [node for node in case.proto.graph.node if node.op_type != "Constant"]


def operators(case: Case) -> list[str]:
    return [node.op_type for node in nodes(case)]


def attribute(node: onnx.NodeProto, name: str, default: object) -> object:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def chains(case: Case) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Each node with each node that feeds it: (producer, consumer)."""
    producers = {output: node for node in nodes(case) for output in node.output}
    for node in nodes(case):
        for name in node.input:
            if name in producers:
                yield producers[name], node


def has(op_type: str) -> Bug:
    return lambda case: op_type in operators(case)


def follows(first: str, second: str) -> Bug:
    return lambda case: any((a.op_type, b.op_type) == (first, second) for a, b in chains(case))


def grouped_then(second: str) -> Bug:
    """A converter that folds `second` into a grouped ConvTranspose as if it had one group."""

    def bug(case: Case) -> bool:
        return any(
            a.op_type == "ConvTranspose" and attribute(a, "group", 1) != 1 and b.op_type == second
            for a, b in chains(case)
        )

    return bug


def with_attribute(op_type: str, name: str, wanted: Callable[[Any], bool]) -> Bug:
    """`op_type` with the attribute present and as wanted."""

    def bug(case: Case) -> bool:
        given = [attribute(node, name, None) for node in nodes(case) if node.op_type == op_type]
        return any(value is not None and wanted(value) for value in given)

    return bug


CLAIMS: dict[str, tuple[Bug, str, list[str]]] = {
    "anything": (lambda case: True, "", ["Identity"]),
    "a Conv": (has("Conv"), "", ["Conv"]),
    "an LSTM": (has("LSTM"), "", ["LSTM"]),
    "a grouped ConvTranspose": (
        with_attribute("ConvTranspose", "group", lambda group: group != 1),
        "",
        ["ConvTranspose"],
    ),
    "a strided MaxPool": (with_attribute("MaxPool", "strides", lambda strides: 2 in strides), "pooling", ["MaxPool"]),
    "a bidirectional GRU": (with_attribute("GRU", "direction", lambda d: d == b"bidirectional"), "GRU", ["GRU"]),
    "a reflected Pad": (with_attribute("Pad", "mode", lambda mode: mode == b"reflect"), "Pad", ["Pad"]),
    "BatchNormalization after a grouped ConvTranspose": (
        grouped_then("BatchNormalization"),
        "",
        ["ConvTranspose", "BatchNormalization"],
    ),
    "a scale after a grouped ConvTranspose": (grouped_then("Mul"), "", ["ConvTranspose", "Mul"]),
    "Relu after Conv": (follows("Conv", "Relu"), "Relu", ["Conv", "Relu"]),
    "MatMul after Transpose": (follows("Transpose", "MatMul"), "MatMul", ["Transpose", "MatMul"]),
    "Squeeze after GRU": (follows("GRU", "Squeeze"), "multi-input-gru", ["GRU", "Squeeze"]),
    "DequantizeLinear after QuantizeLinear": (
        follows("QuantizeLinear", "DequantizeLinear"),
        "quantized-conv",
        ["QuantizeLinear", "DequantizeLinear"],
    ),
    "the reshapes of a GroupNorm": (
        lambda case: operators(case).count("Reshape") > 1 and follows("Reshape", "InstanceNormalization")(case),
        "group-norm",
        ["Reshape", "InstanceNormalization", "Reshape"],
    ),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_failure_is_left_with_the_nodes_it_needs(claim: str, seed: int) -> None:
    bug, focus, expected = CLAIMS[claim]
    assert operators(minimal(bug, focus=focus or (), seed=seed)) == expected


def test_three_necessary_nodes_are_three_nodes() -> None:
    def bug(case: Case) -> bool:
        found = list(chains(case))
        kinds = {(a.op_type, b.op_type) for a, b in found}
        return {("Conv", "BatchNormalization"), ("BatchNormalization", "Relu")} <= kinds

    case = minimal(bug, focus=("Conv", "BatchNormalization", "Relu"))
    assert operators(case) == ["Conv", "BatchNormalization", "Relu"]


def test_sizes_shrink_to_one_and_numbers_to_zero() -> None:
    case = minimal(has("Conv"))
    tensors = [*case.feeds[0].values(), *(numpy_helper.to_array(t) for t in case.proto.graph.initializer)]
    assert all(x.size == 1 and not x.any() for x in tensors)


def test_a_value_that_matters_is_a_small_integer() -> None:
    case = minimal(lambda case: has("Relu")(case) and any((x > 0.75).any() for x in case.feeds[0].values()))
    (x,) = case.feeds[0].values()
    assert x.size == 1
    assert np.array_equal(x, np.ones_like(x))


def test_operands_shrink_to_initializers_and_dims_to_numbers() -> None:
    case = minimal(lambda case: {"Gemm", "Add"} <= set(operators(case)))
    assert not any(node.op_type == "Constant" for node in case.proto.graph.node)
    assert not any(d.dim_param for v in case.proto.graph.input for d in v.type.tensor_type.shape.dim)
    assert len(case.feeds) == 1


def test_a_symbolic_dim_that_matters_stays_alone() -> None:
    case = minimal(lambda case: any(d.dim_param for v in case.proto.graph.input for d in v.type.tensor_type.shape.dim))
    assert operators(case) == ["Identity"]
    assert len(case.feeds) == 2
