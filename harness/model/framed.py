"""A place that was cut out of a model, framed as it stood there: what is computed there is computed, and what is read
is read.

A cut makes of a computed tensor a graph input, and of one that is read a graph output, and a system may treat those in
their own way: MNN's offline quantizer takes a graph input of integers for floats, and onnxruntime's has nothing to
collect where no float is left. Such a failure is one of the cut, not of the place.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from driftnet.model.inspect import Case, bodies, graph_inputs, refill
from onnx import TensorProto, helper

EXACT = 2.0**24
"""The magnitude up to which float32 holds every integer."""
_SUFFIX = "_framed"
_FRAMED = re.compile(rf"'([^']+){_SUFFIX}'")
_BESIDE = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)


def unframed(message: str) -> str:
    """A message about a part in its frame, by the name of the model's own tensor, and how the frame tells it."""
    return _FRAMED.sub(r"'\1' as its reader in the frame gives it (Neg, or Cast to float)", message)


def framed(case: Case, part: Case) -> Case | None:
    """`part`, cut out of `case`, with its frame: a Neg, or a Cast from float for what is no float, before each graph
    input that no one feeds in `case`, and one behind each result that another node reads there; and, where all that it
    reads is constant, a Neg of an input beside it.

    None where there is nothing to frame, or where a value has no float32 that stands for it.
    """
    model = onnx.ModelProto.FromString(part.model)
    if any(True for node in model.graph.node for _ in bodies(node)):
        return None
    given = {value.name for value in graph_inputs(case.proto)}
    final = {value.name for value in case.proto.graph.output}
    feeds = [dict(feed) for feed in part.runs]
    before: list[onnx.NodeProto] = []
    for value in graph_inputs(model):
        if value.name in given:
            continue
        inside, name = value.name, f"{value.name}{_SUFFIX}"
        values = [feed.pop(inside) for feed in feeds]
        fed = _fed(values)
        if fed is None:
            return None
        for feed, x in zip(feeds, fed):
            feed[name] = x
        value.name = name
        before.append(_between(values[0].dtype, name, inside, into=True))
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(fed[0].dtype)
    behind: list[onnx.NodeProto] = []
    for value in model.graph.output:
        kind = value.type.tensor_type.elem_type
        if value.name not in final and kind not in (TensorProto.UNDEFINED, TensorProto.STRING):
            inside, value.name = value.name, f"{value.name}{_SUFFIX}"
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            behind.append(_between(dtype, inside, value.name, into=False))
            if dtype.kind != "f":
                value.type.tensor_type.elem_type = TensorProto.FLOAT
    if not graph_inputs(model):
        before.append(_between(_BESIDE.dtype, "fed_beside", "told_beside", into=True))
        model.graph.input.append(helper.make_tensor_value_info("fed_beside", TensorProto.FLOAT, _BESIDE.shape))
        model.graph.output.append(helper.make_tensor_value_info("told_beside", TensorProto.FLOAT, _BESIDE.shape))
        for feed in feeds:
            feed["fed_beside"] = _BESIDE
    if not before and not behind:
        return None
    refill(model.graph.node, [*before, *model.graph.node, *behind])
    return replace(part, model=model.SerializeToString()).fed(feeds)


def _between(dtype: np.dtype, source: str, result: str, *, into: bool) -> onnx.NodeProto:
    """The node that makes a tensor of `dtype` out of what is fed (`into`), or what is told out of one."""
    if dtype.kind == "f":
        return helper.make_node("Neg", [source], [result])
    to = helper.np_dtype_to_tensor_dtype(dtype) if into else TensorProto.FLOAT
    return helper.make_node("Cast", [source], [result], to=to)


def _fed(values: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """What has to be fed for `_between` to make `values` of it; None where nothing does."""
    if values[0].dtype.kind == "f":
        return [-x for x in values]
    if values[0].dtype.kind not in "biu":
        return None
    if any(np.abs(x.astype(np.float64)).max(initial=0) > EXACT for x in values):
        return None
    return [x.astype(np.float32) for x in values]
