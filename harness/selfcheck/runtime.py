"""Bugs of runtimes: the right model is executed wrongly.

Those inside a kernel are written as nodes around it, so they need the quantized model unfused: there
a node that changes nothing leaves every bit as it was.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from driftnet.model import operators
from driftnet.selfcheck.mutant import Mutant, executing, feeding, loading, mutant
from driftnet.selfcheck.site import Site, sites
from driftnet.targets.interface import Answers, Feed
from onnx import ModelProto

# A bug of the whole runtime is looked for where most is computed.
ANYTHING = ("Conv", "Gemm", "MatMul", "residual-block", "Add", "Relu", "GRU", "Softmax", "Resize")
WEIGHTED = tuple(sorted(operators.WEIGHTED))


def results(*focus: str, needs: Sequence[str] = ()) -> Callable[[Callable[[np.ndarray], np.ndarray]], Mutant]:
    """Make the decorated damage, done to a copy of each result that is not empty, a bug."""

    def made(damage: Callable[[np.ndarray], np.ndarray]) -> Mutant:
        @functools.wraps(damage)
        def damage_all(outputs: Answers) -> Answers:
            return [{name: damage(x.copy()) if x.size else x for name, x in out.items()} for out in outputs]

        return mutant(executing, *(focus or ANYTHING), needs=needs)(damage_all)

    return made


def kernels(*focus: str) -> Callable[[Callable[[ModelProto], None]], Mutant]:
    """Make the decorated damage, done to the quantized model before it runs unfused, a bug."""
    return mutant(loading, *focus, needs=["unfused"])


@results("Div", "Log", "Pow", "Reciprocal", "Sqrt")
def nan_far_from_a_pole(x: np.ndarray) -> np.ndarray:
    """The first element behind an operator that has a pole is NaN, wherever the operand is."""
    if x.dtype.kind == "f":
        x.reshape(-1)[0] = np.nan
    return x


# Loops, buffers and threads


@results()
def zeroed_tail(x: np.ndarray) -> np.ndarray:
    """A loop over vectors of eight leaves the last n % 8 elements."""
    x.reshape(-1)[x.size - x.size % 8 :] = np.zeros(1, x.dtype)
    return x


@results()
def repeated_tail(x: np.ndarray) -> np.ndarray:
    """The last vector of a loop is computed from the one before."""
    if x.size > 8 and x.size % 8:
        flat = x.reshape(-1)
        flat[x.size - x.size % 8 :] = flat[x.size - x.size % 8 - 8 : x.size - 8]
    return x


@results("Conv", "ConvTranspose", "MaxPool", "BatchNormalization", "residual-block")
def lost_channel_remainder(x: np.ndarray) -> np.ndarray:
    """Channels come in packs of four; the last c % 4 are not written."""
    if x.ndim > 2 and x.shape[1] % 4:
        x[:, -(x.shape[1] % 4) :] = 0
    return x


@results("Conv", "ConvTranspose", "MaxPool", "BatchNormalization", "residual-block")
def channels_last(x: np.ndarray) -> np.ndarray:
    """A result of rank four is handed out in NHWC."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape) if x.ndim == 4 else x


@results()
def first_of_batch(x: np.ndarray) -> np.ndarray:
    """The stride of the batch is zero: every sample gets the result of the first."""
    if x.ndim > 1:
        x[1:] = x[0]
    return x


@results()
def uninitialized_element(x: np.ndarray) -> np.ndarray:
    """The last element is whatever memory held, another thing each time."""
    x.reshape(-1)[-1:] = (100 + np.random.default_rng().integers(0, 27, 1)).astype(x.dtype)
    return x


@results()
def lost_update(x: np.ndarray) -> np.ndarray:
    """Two threads race, and a block of four keeps what the buffer held; which block, differs from run to run."""
    start = int(np.random.default_rng().integers(0, max(1, x.size - 3)))
    x.reshape(-1)[start : start + 4] = np.full(1, 77).astype(x.dtype)
    return x


@mutant(executing, *ANYTHING)
def kept_state(outputs: Answers) -> Answers:
    """A session gives the first feed's result again wherever it fits."""
    first = outputs[0]
    return [{name: first[name] if first[name].shape == x.shape else x for name, x in out.items()} for out in outputs]


@mutant(executing, *ANYTHING)
def stale_output_buffer(outputs: Answers) -> Answers:
    """The second half of a result is still that of the feed before."""

    def halved(x: np.ndarray, before: np.ndarray) -> np.ndarray:
        if x.shape != before.shape:
            return x
        return np.concatenate([x.reshape(-1)[: x.size // 2], before.reshape(-1)[x.size // 2 :]]).reshape(x.shape)

    return [
        {name: halved(x, before[name]) for name, x in out.items()}
        for out, before in zip(outputs, [outputs[0], *outputs])
    ]


@mutant(executing, *ANYTHING)
def swapped_outputs(outputs: Answers) -> Answers:
    """Two outputs of one shape are exchanged."""
    return [_exchanged(out) for out in outputs]


@mutant(feeding, *ANYTHING, "Div", "Sub")
def swapped_inputs(feeds: Sequence[Feed]) -> Sequence[Feed]:
    """Two inputs of one shape are exchanged."""
    return [_exchanged(feed) for feed in feeds]


def _exchanged(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`arrays`, the first two of one shape and dtype in each other's place."""
    pairs = [(a, b) for a, b in combinations(sorted(arrays), 2) if _form(arrays[a]) == _form(arrays[b])]
    given = dict(arrays)
    for a, b in pairs[:1]:
        given[a], given[b] = given[b], given[a]
    return given


def _form(x: np.ndarray) -> tuple[Any, ...]:
    return x.shape, x.dtype


# Numbers


@results("Log", "Sqrt", "Acos", "Div", "ReduceLogSum")
def zero_for_nan(x: np.ndarray) -> np.ndarray:
    """NaN comes out as zero."""
    return np.where(np.isnan(x), np.zeros(1, x.dtype), x) if x.dtype.kind == "f" else x


@results()
def half_precision(x: np.ndarray) -> np.ndarray:
    """Results go through float16."""
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(x.dtype) if x.dtype == np.float32 else x
    return np.where(np.isfinite(half), half, x)


@results(*WEIGHTED, needs=["onnx"])
def neighbouring_value(x: np.ndarray) -> np.ndarray:
    """One element has the next larger value that the result holds: one step, where the result is quantized."""
    values = np.unique(x[np.isfinite(x)]) if x.dtype.kind == "f" else x[:0]
    if values.size > 1:
        flat = x.reshape(-1)
        flat[np.nanargmin(x)] = values[1]
    return x


# Inside the kernels of a quantized model


@kernels(*WEIGHTED, "Relu", "AveragePool")
def floor_for_round(model: ModelProto) -> None:
    """Quantizing takes the floor where it is to round."""
    for at in sites(model, "QuantizeLinear"):
        if (scale := at.constant(1)) is not None and scale.size == 1 and scale.dtype == np.float32:
            for op_type, operands in (("Div", [scale]), ("Floor", []), ("Mul", [scale])):
                at.before(0, op_type, *operands)


@kernels(*WEIGHTED, "Relu", "AveragePool")
def saturation_one_bit_early(model: ModelProto) -> None:
    """Quantizing saturates at half of the largest code."""
    for at in sites(model, "QuantizeLinear"):
        scale, zero = at.constant(1), at.constant(2)
        if scale is not None and zero is not None and scale.size == 1 and scale.dtype == np.float32:
            at.before(0, "Min", np.asarray((np.iinfo(zero.dtype).max // 2 - int(zero)) * scale, np.float32))


@kernels(*WEIGHTED, "Relu", "AveragePool")
def coarse_multiplier(model: ModelProto) -> None:
    """Requantizing multiplies by a scale of eight bits."""
    for at in sites(model, "QuantizeLinear"):
        if (scale := at.constant(1)) is not None and scale.dtype == np.float32 and at.producer(0):
            at.feed(1, ((scale.view(np.uint32) + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32))


@kernels("Conv", "Gemm", "MatMul")
def wrapping_accumulator(model: ModelProto) -> None:
    """Sums are accumulated in 16 bits and wrap."""
    for at, step in _integer_kernels(model):
        period = np.asarray(65536 * step, np.float32)
        at.after("Sub", period)
        wrapped = at.reader()
        wrapped.node.input[1] = wrapped.node.input[0]
        half = np.asarray(0.5, np.float32)
        for op_type, operands in (("Div", [period]), ("Add", [half]), ("Floor", []), ("Mul", [period])):
            wrapped.before(1, op_type, *operands)


@kernels("Conv", "Gemm", "MatMul")
def saturating_accumulator(model: ModelProto) -> None:
    """Sums are accumulated in 16 bits and saturate."""
    for at, step in _integer_kernels(model):
        at.after("Min", np.asarray(32767 * step, np.float32))
        at.after("Max", np.asarray(-32768 * step, np.float32))


@kernels("Conv", "padded-conv")
def padding_with_code_zero(model: ModelProto) -> None:
    """Padding is filled with code 0, not with the zero point."""
    for at in sites(model, "Conv"):
        source, pads = at.producer(0), at.get("pads")
        if source is None or source.node.op_type != "DequantizeLinear" or not pads or not any(pads):
            continue
        scale, zero = source.constant(1), source.constant(2)
        if scale is not None and zero is not None and scale.dtype == np.float32:
            half = len(pads) // 2
            ends = [0, 0, *pads[:half], 0, 0, *pads[half:]]
            at.before(0, "Pad", np.asarray(ends, np.int64), np.asarray(-int(zero) * scale, np.float32))
            at.put(pads=None)


@kernels(*WEIGHTED)
def lost_inner_remainder(model: ModelProto) -> None:
    """The inner loop runs in packs of four; the last k % 4 products are not added."""
    for at in sites(model, "Conv", "MatMul"):
        source = at.producer(1)
        codes = source.constant(0) if source else None
        axis = 1 if at.node.op_type == "Conv" else -2
        if source is None or codes is None or codes.ndim < 2 or not codes.shape[axis] % 4:
            continue
        zero = source.constant(2)
        cut = np.moveaxis(codes.copy(), axis, 0)
        cut[-(codes.shape[axis] % 4) :] = 0 if zero is None else zero.flat[0]
        source.feed(0, np.moveaxis(cut, 0, axis))


@kernels("Add", "Mul", "residual-block")
def unscaled_addition(model: ModelProto) -> None:
    """Both operands of an addition are read with the scale and zero point of the first."""
    for at in sites(model, "Add", "Mul"):
        pair = [at.producer(0), at.producer(1)]
        if all(source is not None and source.node.op_type == "DequantizeLinear" for source in pair):
            first, second = (source.node for source in pair if source)
            second.input[1:] = first.input[1:]


@kernels("AveragePool", "GlobalAveragePool")
def floor_of_average(model: ModelProto) -> None:
    """The average of codes is an integer division."""
    for at in sites(model, "AveragePool"):
        source = at.producer(0)
        scale = source.constant(1) if source and source.node.op_type == "DequantizeLinear" else None
        if scale is not None and scale.dtype == np.float32:
            at.after("Mul", scale)
            at.after("Floor")
            at.after("Div", scale)


def _integer_kernels(model: ModelProto) -> list[tuple[Site, np.ndarray]]:
    """The nodes on two quantized operands, with the step of their sums, in a shape that broadcasts to the result."""
    found = []
    for at in sites(model, "Conv", "Gemm", "MatMul"):
        pair = [at.producer(0), at.producer(1)]
        scales = [s.constant(1) for s in pair if s and s.node.op_type == "DequantizeLinear"]
        if len(scales) == 2 and all(s is not None and s.dtype == np.float32 for s in scales):
            step = np.asarray(scales[0]) * np.asarray(scales[1])
            spatial = at.shape(0) if at.node.op_type == "Conv" else None
            found.append((at, step.reshape(-1, *[1] * (len(spatial or [1, 1]) - 2)) if step.ndim else step))
    return found
