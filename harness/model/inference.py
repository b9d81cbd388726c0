"""Shape inference by onnx, in a process of its own.

Its native code trusts a model that nobody vouches for: a Split that has more results than its `num_outputs` says reads
out of bounds, and ends the process. A fork is lost instead; it costs some milliseconds (inferring every edit so made
fuzzing a quarter dearer), so this is for models that are likely to be wrong.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import onnx


class InferenceError(Exception):
    """onnx infers no shapes for a model; the message says why, as far as anybody knows."""


def inferred(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """`onnx.shape_inference.infer_shapes(model, **options)`. Raises InferenceError where that raises anything, or ends
    its process."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which the child needs nothing of
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            with open(writer, "wb") as answer:
                answer.write(_answer(model, options))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as answer:
        said = answer.read()
    _, ended = os.waitpid(child, 0)
    if ended or not said:
        raise InferenceError(f"onnx's shape inference ended its process (wait status {ended})")
    if said[:1] != b"+":
        raise InferenceError(said[1:].decode(errors="replace"))
    found: onnx.ModelProto = onnx.ModelProto.FromString(said[1:])
    return found


def _answer(model: onnx.ModelProto, options: dict[str, Any]) -> bytes:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # an abort says its last words there
    try:
        return b"+" + bytes(onnx.shape_inference.infer_shapes(model, **options).SerializeToString())
    except Exception as e:  # onnx raises its own types, protobuf's, and what its C++ side throws
        return b"-" + str(e).encode(errors="replace")
