"""Inspection: is what a target's `inspect` says of its artifact of the form that targets.interface.Artifact states?

It comes from an untrusted process, and the oracle takes it at its word: anything else has to be refused before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from driftnet.model import external_data, graph
from driftnet.util.schema import EACH, NUMBER, misformed

LAYER = {"name": str, "result": str, "weights": np.ndarray, "scales": np.ndarray}
GRID = dict.fromkeys(("scale", "zero_point", "low", "high"), NUMBER)
OPERATION = {
    "name": str,
    "inputs": [str],
    "outputs": [str],
    "runs": str,
    "steps?": NUMBER,
    "in_order?": bool,
    "whole_bias?": bool,
    "layer?": str,
    "computes?": str,
    "then?": str,
    "attributes?": {EACH: (int, float, str, list)},
    "values?": np.ndarray,
}
ARTIFACT = {
    "model?": bytes,
    "layers?": [LAYER],
    "tensors?": {EACH: GRID},
    "histogram?": {"bins": int, "least": int},
    "reordered?": {EACH: str},
    "operations?": [OPERATION],
}
RUNS = frozenset({"moves", "codes", "codes unless broadcast", "float", "codes or floats", "somehow"})


def flaw(told: object, *, outside: bool = False) -> str:
    """What is wrong with the form of `told`, in words; "" when it is an Artifact that can be read.

    outside   the model's own weights lie in files beside it, so those of the artifact may, too
    """
    found = misformed(told, ARTIFACT, "the artifact")
    if found or not isinstance(told, Mapping):
        return found
    for layer in told.get("layers", ()):
        if not _is_layer(layer["weights"], layer["scales"]):
            return f"layer {layer['name']!r} has no float32 weights [channels, n] with scales [channels, blocks]"
    for operation in told.get("operations", ()):
        if operation["runs"] not in RUNS or not operation["outputs"]:
            return f"operation {operation['name']!r} runs {operation['runs']!r} and gives {operation['outputs']}"
    histogram = told.get("histogram")
    if histogram and not 0 < histogram["least"] < histogram["bins"]:
        return f"a histogram of {histogram['bins']} bins cannot be cut at {histogram['least']}"
    return _unreadable(told["model"], outside) if "model" in told else ""


def _is_layer(weights: np.ndarray, scales: np.ndarray) -> bool:
    if {weights.dtype, scales.dtype} != {np.dtype(np.float32)} or (weights.ndim, scales.ndim) != (2, 2):
        return False
    (channels, size), (rows, blocks) = weights.shape, scales.shape
    return bool(channels == rows and blocks > 0 and size % blocks == 0)


def _unreadable(data: bytes, outside: bool) -> str:
    """Why these bytes are no ONNX model that can be read without a file beside it."""
    try:
        model = onnx.ModelProto.FromString(data)
        if not model.graph.output:
            return "the model has no output"
        if outside:
            return ""
        if external_data.tensors_outside(model) or external_data.others_outside(model):
            return "the model keeps data in another file"
        graph.read(model)
    except Exception as e:  # protobuf, onnx and numpy raise many types for what is no model
        return f"the model cannot be read: {type(e).__name__}: {e}"
    return ""
