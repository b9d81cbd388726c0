"""What is asked of every generated case."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import onnxruntime as ort
from driftnet.generators.building import values
from driftnet.model.case import Case, Feed
from onnx import helper


def run(model: bytes, feed: Feed) -> list[np.ndarray]:
    """The outputs of onnxruntime without optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, dict(feed))]


def assert_as_declared(value: onnx.ValueInfoProto, x: np.ndarray, symbols: dict[str, int]) -> None:
    """Dtype and shape are those declared, and a symbol has one size throughout."""
    tensor = value.type.tensor_type
    assert x.dtype == helper.tensor_dtype_to_np_dtype(tensor.elem_type), f"{value.name} has dtype {x.dtype}"
    declared = [d.dim_param or d.dim_value for d in tensor.shape.dim]
    assert len(declared) == x.ndim, f"{value.name} has shape {x.shape}, declared {declared}"
    for dim, n in zip(declared, x.shape, strict=True):
        expected = symbols.setdefault(dim, n) if isinstance(dim, str) else dim
        assert expected == n, f"{value.name} has shape {x.shape}, declared {declared}, symbols {symbols}"


def assert_valid(case: Case) -> None:
    """The checker accepts the model, and onnxruntime gives finite outputs as declared for every feed.

    What value_info declares of intermediates is held to account too.
    """
    onnx.checker.check_model(case.proto, full_check=True)
    watched = onnx.ModelProto.FromString(case.model)
    kinds = [(value, value.type.tensor_type.elem_type) for value in watched.graph.value_info]
    watched.graph.output.extend(value for value, dtype in kinds if dtype in values.NUMPY)
    for feed in (*case.feeds, *case.calibration):
        symbols: dict[str, int] = {}
        outputs = run(watched.SerializeToString(), feed)
        for value in case.proto.graph.input:
            if value.name in feed:  # else it has an initializer
                assert_as_declared(value, feed[value.name], symbols)
        for value, x in zip(watched.graph.output, outputs, strict=True):
            assert_as_declared(value, x, symbols)
        finals = case.proto.graph.output
        for value, x in zip(finals, outputs[: len(finals)], strict=True):
            assert x.dtype.kind != "f" or np.isfinite(x).all(), f"{value.name} is not finite in {case.origin}"


def operators(case: Case) -> list[str]:
    return [node.op_type for node in case.proto.graph.node if node.op_type != "Constant"]


def digest(case: Case) -> str:
    h = hashlib.sha256(case.model)
    for feed in (*case.feeds, *case.calibration):
        for name in sorted(feed):
            h.update(f"{name} {feed[name].dtype} {feed[name].shape}".encode() + feed[name].tobytes())
    return h.hexdigest()
