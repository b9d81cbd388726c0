"""What reproduce.py asserts: one function a sort of failure, which measures how far off one run of the target is.

Each is used twice: on what the sandbox observed, before the script is written, and, as this very text, in the script.
`about` holds what a function has to know of the failure; that is there where the error is above the claim's bound.
What fails in another way than was claimed raises OtherwiseError.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from driftnet.model.arrays import distance, same_kind
from driftnet.model.signature import DAMAGE, normalized
from onnx import helper, numpy_helper


class OtherwiseError(Exception):
    """It fails, but in another way, or there is nothing to measure."""


class Run(NamedTuple):
    """One run of the target.

    model, feeds, calibration    what it was given;   answers  {output: array} a feed
    alone      the answers where the feed in question had a session of its own
    quantized  the quantized ONNX model, where that is what the target makes
    stage, ended, said   the last stage that began; how it ended ("", a signal, "error", ...); and its words
    ask        (model, feeds, names of tensors) -> what onnxruntime without optimizations makes of them, a feed
    """

    model: Any
    feeds: Any
    calibration: Any
    answers: Any
    alone: Any
    quantized: Any
    stage: str
    ended: str
    said: str
    ask: Any


class Measured(NamedTuple):
    """How far off it is, and a sentence that says so. telling: whether a failure could have shown at all."""

    error: float
    said: str
    telling: bool = True


def ending(run: Run, about: Mapping[str, Any]) -> Measured:
    """A stage does not come back, or raises: 1 where it ended as it was seen to, 0 where everything ran."""
    if not run.ended:
        return Measured(0.0, "every stage ran")
    told = f"{run.stage} ended with {run.ended}{': ' if run.said else ''}{run.said[:1000]}"
    alike = run.ended == about["ended"] or {run.ended, about["ended"]} <= DAMAGE  # which of these depends on chance
    if run.stage != about["stage"] or not alike or (run.ended == "error" and normalized(run.said) != about["words"]):
        raise OtherwiseError(told)
    return Measured(1.0, told)


def form(run: Run, about: Mapping[str, Any]) -> Measured:
    """An output is missing, or has another shape or dtype than the model says: 1, else 0."""
    k, name, part = about["feed"], about["output"], about["part"]
    actual, right = answers(run)[k].get(name), run.ask(run.model, run.feeds, [name])[k][name]
    if actual is None:
        return Measured(1.0, f"output {name!r} is missing")
    has, should = getattr(actual, part), getattr(right, part)
    return Measured(float(has != should), f"output {name!r} has {part} {has}, should be {should}")


def values(run: Run, about: Mapping[str, Any]) -> Measured:
    """An output is off what onnxruntime makes of the model, or of the quantized model as it is written: by how much, at
    the element in question, or anywhere."""
    k, name, at = about["feed"], about["output"], tuple(about["at"])
    found = answers(run)[k].get(name)
    right = run.ask(run.quantized if about["as_written"] else run.model, run.feeds, [name])[k][name]
    actual = compared(found, right)
    error = distance(actual, right)
    if len(at) != error.ndim or any(i >= n for i, n in zip(at, error.shape)):  # that element is not there
        at = np.unravel_index(int(np.argmax(error)), error.shape) if error.size else ()
    if about["norm"] == "size":
        return Measured(float(np.linalg.norm(error)), f"output {name!r} is off by {np.linalg.norm(error):.6g} in all")
    worst = float(error[at]) if error.size else 0.0
    where = f" at {[int(i) for i in at]}" if at else ""
    told = f"output {name!r} of feed {k}{where} is {actual[at]}, should be {right[at]}: off by {worst:.6g}"
    if about["alone"]:
        once = distance(compared(run.alone[0].get(name), right), right)
        if not once.size or once.max() >= worst:
            raise OtherwiseError(f"{told}; and so it is in a session of its own")
        told += f", and by {once.max():.6g} in a session of its own"
    return Measured(worst, told, telling=bool(right.any() if right.size == 1 else (right != right.ravel()[:1]).any()))


def finiteness(run: Run, about: Mapping[str, Any]) -> Measured:
    """Elements that are NaN or infinite where they should not be, or the other way round: how many."""
    k, name = about["feed"], about["output"]
    found = answers(run)[k].get(name)
    right = run.ask(run.quantized if about["as_written"] else run.model, run.feeds, [name])[k][name]
    actual = compared(found, right)
    wrong = ~same_kind(actual, right)
    first = f", the first {actual[wrong].ravel()[0]} instead of {right[wrong].ravel()[0]}" if wrong.any() else ""
    told = f"output {name!r} of feed {k} has {int(wrong.sum())} elements that are finite or not, and should not{first}"
    return Measured(float(wrong.sum()), told)


def answers(run: Run) -> Any:
    """What the target answered, which is all that is asked."""
    if run.ended:
        raise OtherwiseError(f"{run.stage} ended with {run.ended}{': ' if run.said else ''}{run.said[:1000]}")
    return run.answers


def compared(actual: Any, right: np.ndarray) -> np.ndarray:
    """`actual`, an array of the form of `right`."""
    if actual is None:
        raise OtherwiseError("the output is missing")
    if (actual.shape, actual.dtype) != (right.shape, right.dtype):
        raise OtherwiseError(f"it is {actual.dtype}{list(actual.shape)}, not {right.dtype}{list(right.shape)}")
    return np.asarray(actual)


def stored(run: Run, about: Mapping[str, Any]) -> Measured:
    """A constant of the quantized model is off that of the float model: by how much, at the element in question."""
    right, codes = parameter(run.model, about["tensor"]), parameter(run.quantized, about["codes"])
    if right is None or codes is None:
        return Measured(
            0.0, f"there is no parameter {about['tensor'] if right is None else about['codes']!r}", telling=False
        )
    held = codes.astype(np.float64)
    if about["zero"]:
        held = held - along(parameter(run.quantized, about["zero"]), held, about["axis"])
    for scale in about["scales"]:
        held = held * along(parameter(run.quantized, scale), held, about["axis"])
    if held.shape != right.shape and held.T.shape == right.shape:
        held = held.T
    error, at = distance(held.reshape(right.shape), right), tuple(about["at"])
    if len(at) != error.ndim or any(i >= n for i, n in zip(at, error.shape)):
        at = np.unravel_index(int(np.argmax(error)), error.shape)
    told = f"the quantized model holds {held.reshape(right.shape)[at]:.6g} in the place of {right[at]:.6g}"
    return Measured(
        float(error[at]), f"{told}, element {[int(i) for i in at]} of {about['tensor']!r}: off by {error[at]:.6g}"
    )


def positive(run: Run, about: Mapping[str, Any]) -> Measured:
    """A scale of the quantized model is not positive, or not finite: 1, else 0."""
    scale = parameter(run.quantized, about["scale"])
    if scale is None:
        return Measured(0.0, f"there is no scale {about['scale']!r}", telling=False)
    wrong = ~(np.isfinite(scale) & (scale > 0))
    return Measured(
        float(wrong.any()), f"scale {about['scale']!r} is {scale[wrong].ravel()[0] if wrong.any() else scale}"
    )


def product(run: Run, about: Mapping[str, Any]) -> Measured:
    """The scale of a bias is off the product of those of input and weights, which kernels take it for: the factor less
    one."""
    bias, x, w = (parameter(run.quantized, name) for name in about["scales"])
    if bias is None or x is None or w is None:
        return Measured(0.0, f"there are no scales {', '.join(about['scales'])}", telling=False)
    ratio = np.abs(bias.astype(np.float64).ravel() / (x.astype(np.float64) * w.astype(np.float64)).ravel())
    worst = float(np.maximum(ratio, 1 / ratio).max())
    return Measured(
        worst - 1,
        f"scale {about['scales'][0]!r} is off {' times '.join(about['scales'][1:])} by a factor of {worst:.6g}",
    )


def alike(run: Run, about: Mapping[str, Any]) -> Measured:
    """Integers are written with one scale or zero point, and read with another: 1, else 0."""
    pairs = [[parameter(run.quantized, name) for name in names] for names in about["pairs"]]
    wrong = any(a is not None and b is not None and not np.array_equal(a, b) for a, b in pairs)
    told = "; ".join(f"written with {a}, read with {b}" for a, b in pairs)
    return Measured(float(wrong), f"{' and '.join(map(repr, about['pairs'][0]))}: {told}")


def span(run: Run, about: Mapping[str, Any]) -> Measured:
    """The range that an activation is rounded within is off what calibration saw: by how many steps."""
    scale, zero = parameter(run.quantized, about["scale"]), parameter(run.quantized, about["zero"])
    if scale is None or zero is None:
        return Measured(0.0, f"there is no scale {about['scale']!r}", telling=False)
    codes = np.iinfo(zero.dtype)
    low, high = ((end - float(zero.ravel()[0])) * float(scale.ravel()[0]) for end in (codes.min, codes.max))
    feeds, name = run.calibration or run.feeds, about["tensor"]
    seen = [x for found in run.ask(run.model, feeds, [name]) if (x := found[name]).size]
    least, most = min(float(x.min()) for x in seen), max(float(x.max()) for x in seen)
    steps = max(abs(min(least, 0.0) - low), abs(max(most, 0.0) - high)) / float(scale.ravel()[0])
    told = f"{name!r} is rounded within [{low:.6g}, {high:.6g}], but calibration saw [{least:.6g}, {most:.6g}]"
    return Measured(steps, f"{told}: {steps:.4g} steps off")


def lost(run: Run, about: Mapping[str, Any]) -> Measured:
    """A Relu or Clip is gone: by how much the quantized model, as it is written, holds what that would have cut off."""
    name, k = about["tensor"], about["feed"]
    if not any(name in node.output for node in run.model.graph.node):
        return Measured(0.0, f"no node makes {name!r}", telling=False)
    holds = run.ask(run.quantized, run.feeds, [name])[k][name]
    again = copy.deepcopy(run.model)  # the node once more, on what the quantized model holds: that may change nothing
    node = next(node for node in again.graph.node if name in node.output)
    node.input[0] = "held"
    again.graph.input.append(
        helper.make_tensor_value_info("held", helper.np_dtype_to_tensor_dtype(holds.dtype), holds.shape)
    )
    right = run.ask(again, [{**run.feeds[k], "held": holds}], [name])[0][name]
    error = distance(holds, right)
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    told = f"the quantized model holds {holds[at]:.6g} in {name!r}, of which {node.op_type} makes {right[at]:.6g}"
    return Measured(float(error[at]), f"{told}: off by {error[at]:.6g}")


def parameter(model: onnx.ModelProto, name: str) -> np.ndarray | None:
    """A constant of a model; None where it has none of that name."""
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return np.asarray(numpy_helper.to_array(tensor))
    for node in model.graph.node:
        if node.op_type == "Constant" and name in node.output and node.attribute[0].name == "value":
            return np.asarray(numpy_helper.to_array(node.attribute[0].t))
    return None


def along(x: Any, like: np.ndarray, axis: int) -> np.ndarray:
    """Scales or zero points, one for all of `like` or one an index of its axis, in a shape that broadcasts."""
    if x is None:
        raise OtherwiseError("a scale or zero point is no constant")
    flat = x.astype(np.float64).ravel()
    spread = [-1 if i == axis % like.ndim else 1 for i in range(like.ndim)]
    return np.asarray(flat.reshape(spread) if flat.size > 1 else flat[0])
