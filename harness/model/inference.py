"""Shape inference, and inlining, by onnx, in a process of its own.

Its native code trusts a model that nobody vouches for: a Split that has more results than its `num_outputs` says reads
out of bounds, and ends the process. A fork is lost instead; it costs some milliseconds (inferring every edit so made
fuzzing a quarter dearer), so a process that can be lost itself (`driftnet.util.apart.trusting`) only does it for models
that are likely to be wrong.
"""

import math
from collections.abc import Callable
from typing import Any

import onnx
import onnx.inliner
from driftnet.util.apart import apart, trusts
from driftnet.util.limits import ExceededError, lacks_memory
from onnx import helper

SECONDS, MIB = 30.0, 4096
LARGE = 2**14
"""Elements of an initializer from which on inference is given its type alone."""


class InferenceError(Exception):
    """onnx infers no shapes for a model; the message says why, as far as anybody knows."""


def inferred(model: onnx.ModelProto, *, doubtful: bool = False, **options: Any) -> onnx.ModelProto:
    """`onnx.shape_inference.infer_shapes(model, **options)`. Raises InferenceError where that raises anything, or ends
    its process.

    doubtful   the model is likely to be wrong: nobody does that in a process of value
    """
    return _made(lambda: onnx.shape_inference.infer_shapes(model, **options), "shape inference", doubtful=doubtful)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` without functions of its own. Raises InferenceError as `inferred`."""
    return _made(lambda: onnx.inliner.inline_local_functions(model), "inliner") if model.functions else model


def _made(work: Callable[[], onnx.ModelProto], what: str, *, doubtful: bool = False) -> onnx.ModelProto:
    if trusts() and not doubtful:
        try:
            return work()
        except Exception as e:  # onnx raises its own types, protobuf's, and what its C++ side throws
            if lacks_memory(e):
                raise
            raise InferenceError(str(e)) from None
    try:
        said = apart(lambda ask: _answer(work), seconds=SECONDS, mib=MIB)
    except ExceededError as e:
        raise InferenceError(f"onnx's {what} takes {e}") from None
    if said[:1] != b"+":
        raise InferenceError(said[1:].decode(errors="replace"))
    found: onnx.ModelProto = onnx.ModelProto.FromString(said[1:])
    return found


def light(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` without its large initializers, of which inference needs the types alone."""
    large = [t for t in model.graph.initializer if math.prod(t.dims) > LARGE]
    if not large:
        return model
    names = {t.name for t in large}
    copy = onnx.ModelProto(ir_version=max(4, model.ir_version), opset_import=model.opset_import)
    copy.functions.extend(model.functions)
    copy.graph.name = model.graph.name
    copy.graph.node.extend(model.graph.node)
    copy.graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    copy.graph.input.extend(v for v in model.graph.input if v.name not in names)
    copy.graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large)
    copy.graph.output.extend(model.graph.output)
    copy.graph.value_info.extend(model.graph.value_info)
    return copy


def _answer(work: Callable[[], onnx.ModelProto]) -> bytes:
    try:
        return b"+" + bytes(work().SerializeToString())
    except Exception as e:
        return b"-" + str(e).encode(errors="replace")
