"""Inspection: is what a target's `inspect` says of its artifact of the form that harness.wire.Artifact states?

It comes from an untrusted process, and the oracle takes it at its word: anything else has to be refused before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from harness import external
from harness.oracle import graph

EACH = "*"
"""as a key: any name"""
NUMBER = (int, float)
LAYER = {"name": str, "result": str, "weights": np.ndarray, "scales": np.ndarray}
GRID = dict.fromkeys(("scale", "zero_point", "low", "high"), NUMBER)
OPERATION = {
    "name": str,
    "inputs": [str],
    "outputs": [str],
    "runs": str,
    "steps?": int,
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
"""types; a list of one: a list of such; {name: ...}: an object with these keys, those with "?" may be missing"""
RUNS = frozenset({"moves", "codes", "codes unless broadcast", "float", "codes or floats", "somehow"})


def flaw(told: object, *, outside: bool = False) -> str:
    """What is wrong with the form of `told`, in words; "" when it is an Artifact that can be read.

    outside   the model's own weights lie in files beside it, so those of the artifact may, too
    """
    found = _misformed(told, ARTIFACT, "the artifact")
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


def _misformed(value: object, form: object, where: str) -> str:
    if isinstance(form, dict):
        return _misformed_object(value, form, where)
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where} is {_kind(value)}, not a list"
        return next((wrong for k, x in enumerate(value) if (wrong := _misformed(x, form[0], f"{where}[{k}]"))), "")
    kinds = form if isinstance(form, tuple) else (form,)
    if type(value) in kinds:
        return ""
    return f"{where} is {_kind(value)}, not {' or '.join(kind.__name__ for kind in kinds)}"


def _misformed_object(value: object, form: Mapping[str, object], where: str) -> str:
    if not isinstance(value, dict):
        return f"{where} is {_kind(value)}, not an object"
    if EACH in form:
        forms = dict.fromkeys(value, form[EACH])
    else:
        forms = {name.removesuffix("?"): kind for name, kind in form.items()}
        if missing := [name for name in form if not name.endswith("?") and name not in value]:
            return f"{where} lacks {missing[0]!r}"
        if unknown := [name for name in value if name not in forms]:
            return f"{where} has {unknown[0]!r:.80}, which it should not"
    return next((bad for name, x in value.items() if (bad := _misformed(x, forms[name], f"{where}[{name!r:.80}]"))), "")


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"


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
        if external.tensors_outside(model) or external.others_outside(model):
            return "the model keeps data in another file"
        graph.read(model)
    except Exception as e:  # protobuf, onnx and numpy raise many types for what is no model
        return f"the model cannot be read: {type(e).__name__}: {e}"
    return ""
