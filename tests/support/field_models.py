"""The models of the five reports from the field, built freshly: architecture true to life, weights random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from driftnet.model.case import Case
from onnx import TensorProto, helper, numpy_helper


def quantized_conv_net(folder: Path, size: int = 416) -> Case:
    """A convolutional net on [1, 3, size, size], made Q/DQ by onnxruntime's static quantizer."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    rng = np.random.default_rng(1)
    model = _model(
        [
            helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c1"], ["r1"]),
            helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c2"], ["r2"]),
            helper.make_node("MaxPool", ["r2"], ["out"], kernel_shape=[2, 2], strides=[2, 2]),
        ],
        [("image", (1, 3, size, size))],
        [("out", (1, 8, size // 8, size // 8))],
        {
            "w1": rng.standard_normal((8, 3, 3, 3)) * 0.3,
            "b1": rng.standard_normal(8) * 0.1,
            "w2": rng.standard_normal((8, 8, 3, 3)) * 0.2,
            "b2": rng.standard_normal(8) * 0.1,
        },
        opset=13,
    )
    feeds = [{"image": rng.uniform(0, 1, (1, 3, size, size)).astype(np.float32)} for _ in range(2)]

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(feeds)

        def get_next(self):
            return next(self.feeds, None)

    source, quantized = folder / "float.onnx", folder / "qdq.onnx"
    onnx.save(model, source)
    quantize_static(source, quantized, Reader(), quant_format=QuantFormat.QDQ)
    return Case(quantized.read_bytes(), (feeds[0],), (), {"report": 1})


def multi_input_gru(hidden: int = 8, features: int = 6) -> Case:
    """A sequence model: two GRU layers, initial states as inputs, a gate from another input, dynamic lengths."""
    rng = np.random.default_rng(2)
    constants = {}
    for layer, width in ((1, features), (2, hidden)):
        constants[f"w{layer}"] = rng.standard_normal((1, 3 * hidden, width)) * 0.4
        constants[f"r{layer}"] = rng.standard_normal((1, 3 * hidden, hidden)) * 0.4
        constants[f"b{layer}"] = rng.standard_normal((1, 6 * hidden)) * 0.1
    nodes = [
        helper.make_node("GRU", ["x", "w1", "r1", "b1", "", "h1"], ["g1", "h1_out"], hidden_size=hidden),
        helper.make_node("Squeeze", ["g1", "axis1"], ["s1"]),
        helper.make_node("Mul", ["s1", "gate"], ["m1"]),
        helper.make_node(
            "GRU", ["m1", "w2", "r2", "b2", "", "h2"], ["g2", "h2_out"], hidden_size=hidden, linear_before_reset=1
        ),
        helper.make_node("Squeeze", ["g2", "axis1"], ["s2"]),
        helper.make_node("Sigmoid", ["s2"], ["out"]),
    ]
    model = _model(
        nodes,
        [("x", ("T", 1, features)), ("gate", ("T", 1, hidden)), ("h1", (1, 1, hidden)), ("h2", (1, 1, hidden))],
        [("out", ("T", 1, hidden)), ("h1_out", (1, 1, hidden)), ("h2_out", (1, 1, hidden))],
        constants,
        integers={"axis1": np.array([1], np.int64)},
        opset=14,
    )

    def feed(length: int):
        shapes = {"x": (length, 1, features), "gate": (length, 1, hidden), "h1": (1, 1, hidden), "h2": (1, 1, hidden)}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    return Case(model.SerializeToString(), (feed(5), feed(3)), tuple(feed(5) for _ in range(4)), {"report": 2})


def unet_with_time_embedding(channels: int = 160) -> onnx.ModelProto:
    """A UNet's block: an image of 4 channels, a time step, and a broadcasting Mul of the two."""
    rng = np.random.default_rng(4)
    return _model(
        [
            helper.make_node("Conv", ["sample", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Gemm", ["timestep", "v"], ["e"]),
            helper.make_node("Unsqueeze", ["e", "axes"], ["e4"]),
            helper.make_node("Mul", ["c", "e4"], ["m"]),
            helper.make_node("Sigmoid", ["m"], ["out"]),
        ],
        [("sample", (2, 4, 8, 8)), ("timestep", (2, 16))],
        [("out", (2, channels, 8, 8))],
        {"w": rng.standard_normal((channels, 4, 3, 3)) * 0.2, "v": rng.standard_normal((16, channels)) * 0.3},
        integers={"axes": np.array([2, 3], np.int64)},
        opset=13,
    )


def dual_path_with_unregistered_norm(channels: int = 16) -> onnx.ModelProto:
    """A DualPathRNN's norm: GroupNorm as an exporter writes it, behind an operator that nobody registered."""
    return _model(
        [
            helper.make_node("ChunkSegment", ["x"], ["segments"], "/segmentation/chunk", domain="com.speech", size=4),
            helper.make_node("Reshape", ["segments", "grouped"], ["r"], name="/norm/reshape"),
            helper.make_node("InstanceNormalization", ["r", "scale", "shift"], ["n"], name="/norm/instance"),
            helper.make_node("Reshape", ["n", "back"], ["out"], name="/norm/back"),
        ],
        [("x", (1, channels, 16))],
        [("out", (1, channels, 4, 8))],
        {"scale": np.ones(1), "shift": np.zeros(1)},
        integers={"grouped": np.array([1, 1, -1], np.int64), "back": np.array([1, channels, 4, 8], np.int64)},
        opset=17,
        domains=("com.speech",),
    )


def _model(nodes, inputs, outputs, constants, *, integers=None, opset, domains=()) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "field",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(np.asarray(x, np.float32), name) for name, x in constants.items()]
        + [numpy_helper.from_array(x, name) for name, x in (integers or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
