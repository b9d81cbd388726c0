"""Small models for tests, built by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from driftnet.model.case import Case
from onnx import TensorProto, helper, numpy_helper


def case(
    nodes: Sequence[onnx.NodeProto],
    feed: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    outputs: Sequence[tuple[str, int, Sequence[int | str] | None]],
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    feeds: Sequence[Mapping[str, np.ndarray]] = (),
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
    opset: int = 17,
) -> Case:
    """A case of `nodes` fed with `feed`; outputs are (name, element type, shape)."""
    shapes = shapes or {}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), list(shapes.get(name, x.shape)))
        for name, x in feed.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        inputs,
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(x, name) for name, x in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Case(model.SerializeToString(), (feed, *feeds), tuple(calibration))


def grid(shape: Sequence[int], step: float = 0.5, levels: int = 7) -> np.ndarray:
    """Small multiples of `step`, different everywhere and both signs: sums of products of them are exact."""
    values = (np.arange(int(np.prod(shape))) * 5) % levels - levels // 2
    return (values * step).astype(np.float32).reshape(shape)


def relu() -> Case:
    """One Relu."""
    return case(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": grid((1, 4))}, outputs=[("y", TensorProto.FLOAT, (1, 4))]
    )


def grouped_conv_transpose_and_norm(groups: int = 2) -> Case:
    """ConvTranspose with groups, then BatchNormalization with dyadic statistics: exact in float32."""
    channels = 2 * groups
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["t"], group=groups, strides=[2, 2]),
        helper.make_node("BatchNormalization", ["t", "scale", "bias", "mean", "var"], ["y"], epsilon=0.0),
    ]
    constants = {
        "w": grid((channels, 2, 2, 2)),
        "scale": np.array([1, 2, 4, 0.5] * groups, np.float32)[:channels],
        "bias": np.array([0, 1, -1, 2] * groups, np.float32)[:channels],
        "mean": np.array([1, 0, 2, -1] * groups, np.float32)[:channels],
        "var": np.array([1, 4, 0.25, 1] * groups, np.float32)[:channels],
    }
    return case(
        nodes, {"x": grid((1, channels, 3, 3))}, constants, outputs=[("y", TensorProto.FLOAT, (1, channels, 6, 6))]
    )
