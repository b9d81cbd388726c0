"""How small a graph Hypothesis is left with: a line a claim. All bugs, five seeds each: `driftnet bench generators`."""

from __future__ import annotations

import numpy as np
import pytest
from driftnet.generators.quality import PLANTED, has, minimal, operators
from onnx import numpy_helper

FAST = [name for name, planted in PLANTED.items() if len(planted.necessary) == 1]
CHAINS = (
    "BatchNormalization after a grouped ConvTranspose",
    "a scale after a grouped ConvTranspose",
    "Squeeze after GRU",
    "DequantizeLinear after QuantizeLinear",
    "the reshapes of a GroupNorm",
    "Conv, BatchNormalization, Relu",
)


def test_anything_is_one_node_at_last() -> None:
    assert operators(minimal(lambda case: True)) == ["Identity"]


@pytest.mark.parametrize("name", [*FAST, *CHAINS])
def test_a_failure_is_left_with_the_nodes_it_needs(name: str) -> None:
    planted = PLANTED[name]
    found = minimal(planted.bug, focus=planted.focus or planted.necessary, seed=1)
    assert operators(found) == list(planted.necessary)


def test_sizes_shrink_to_one_and_numbers_to_zero() -> None:
    case = minimal(has("Conv"))
    tensors = [*case.feeds[0].values(), *(numpy_helper.to_array(t) for t in case.proto.graph.initializer)]
    assert [x.tolist() for x in tensors if x.size != 1 or x.any()] == [], "tensors that are not one zero"


def test_a_value_that_matters_is_a_small_integer() -> None:
    case = minimal(PLANTED["Relu of more than 3/4"].bug, focus="Relu")
    (x,) = case.feeds[0].values()
    assert x.size == 1
    assert np.array_equal(x, np.ones_like(x))


def test_operands_shrink_to_initializers_and_dims_to_numbers() -> None:
    case = minimal(lambda case: {"Gemm", "Add"} <= set(operators(case)))
    assert "Constant" not in [node.op_type for node in case.proto.graph.node]
    assert {d.dim_param for v in case.proto.graph.input for d in v.type.tensor_type.shape.dim} <= {""}, "symbolic dims"
    assert len(case.feeds) == 1


def test_a_symbolic_dim_that_matters_stays_alone() -> None:
    case = minimal(lambda case: any(d.dim_param for v in case.proto.graph.input for d in v.type.tensor_type.shape.dim))
    assert operators(case) == ["Identity"]
    assert len(case.feeds) == 2
