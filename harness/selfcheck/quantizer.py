"""Bugs of quantizers: what is written into the quantized ONNX model is not what the data and the format ask for.

onnxruntime's quantizer calls the codes of a constant x `x_quantized`, its parameters `x_scale` and `x_zero_point`;
those of a bias begin with the name of its codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from driftnet.model import operators
from driftnet.selfcheck import mutant
from driftnet.selfcheck.mutant import MNN_ONLY, ORT, Mutant, plant
from driftnet.selfcheck.site import Site, constant, sites
from driftnet.targets.interface import Feed
from onnx import ModelProto, numpy_helper

preload = mutant.preload

WEIGHTED = sorted(operators.WEIGHTED)
# Of each family that is quantized, those that both quantizers are known to treat.
QUANTIZED = (*WEIGHTED, "Relu", "MaxPool", "AveragePool", "Clip", "Resize", "Transpose")
# They all begin with the codes, the scale and the zero point of an activation.
TAKES_CODES = ("DequantizeLinear", "QLinearAdd", "QLinearConv", "QLinearMatMul", "QGemm")


@dataclass(frozen=True)
class Tensor:
    """Names of the three initializers of a quantized constant."""

    codes: str
    scale: str
    zero_point: str


def writing(*focus: str, **options: Any) -> Callable[[Callable[..., None]], Mutant]:
    """Mutant the decorated damage, done to (the quantized model, the model it was made of)."""
    return plant(mutant.quantizing, *(focus or WEIGHTED), targets=ORT, **options)


def edit(model: ModelProto, name: str, change: Callable[[np.ndarray], Any]) -> None:
    """Replace the initializer `name`, where there is one, by what `change` makes of it."""
    if (value := constant(model, name)) is not None:
        write(model, name, np.asarray(change(value)))


def write(model: ModelProto, name: str, value: np.ndarray) -> None:
    """Give the initializer `name` another value, in its dtype and shape."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    x = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(value.astype(x.dtype).reshape(x.shape), name))


def weights(model: ModelProto) -> list[Tensor]:
    """The constants held in codes of one byte."""
    found = [t.name.removesuffix("_quantized") for t in _held(model, 1)]
    return [Tensor(f"{base}_quantized", f"{base}_scale", f"{base}_zero_point") for base in found]


def biases(model: ModelProto) -> list[Tensor]:
    """The biases held in codes of four bytes."""
    return [Tensor(t.name, f"{t.name}_scale", f"{t.name}_zero_point") for t in _held(model, 4)]


def activations(model: ModelProto) -> list[str]:
    """The names of tensors that have a calibrated scale."""
    held = {t.scale for t in (*weights(model), *biases(model))}
    return [t.name.removesuffix("_scale") for t in model.graph.initializer if _is_scale(t.name) and t.name not in held]


def _is_scale(name: str) -> bool:
    return name.endswith("_scale")


def _held(model: ModelProto, bytes_each: int) -> list[Any]:
    found = [t for t in model.graph.initializer if t.name.endswith("_quantized")]
    return [t for t in found if numpy_helper.to_array(t).itemsize == bytes_each]


def _limits(codes: np.ndarray) -> tuple[int, int]:
    return int(np.iinfo(codes.dtype).min), int(np.iinfo(codes.dtype).max)


# Weights


@writing()
def truncated_weights(model: ModelProto, original: ModelProto) -> None:
    """The codes of weights are truncated towards zero where they are to be rounded."""
    for tensor in weights(model):
        values = constant(original, tensor.codes.removesuffix("_quantized"))
        scale, zero = constant(model, tensor.scale), constant(model, tensor.zero_point)
        if values is not None and scale is not None and zero is not None and scale.size == 1:
            truncated = np.trunc(values / scale) + zero.astype(int)
            write(model, tensor.codes, truncated)


@writing()
def weights_without_lowest_bit(model: ModelProto, original: ModelProto) -> None:
    """Weights lose the lowest bit of their codes."""
    for tensor in weights(model):
        edit(model, tensor.codes, lambda q: q // 2 * 2)


@writing()
def one_wrong_weight(model: ModelProto, original: ModelProto) -> None:
    """One code of each weight tensor has one bit wrong."""

    def change(q: np.ndarray) -> np.ndarray:
        q = q.copy()
        q.reshape(-1)[q.size // 2 : q.size // 2 + 1] ^= 4
        return q

    for tensor in weights(model):
        edit(model, tensor.codes, change)


@writing()
def flipped_sign_of_weights(model: ModelProto, original: ModelProto) -> None:
    """Signed codes of weights are written as unsigned ones and read as signed, or the other way round."""
    for tensor in weights(model):
        edit(model, tensor.codes, lambda q: (q.view(np.uint8) ^ np.uint8(0x80)).view(q.dtype))


@writing()
def weights_cut_to_seven_bits(model: ModelProto, original: ModelProto) -> None:
    """Weights are clipped to the reduced range, while their scale is that of the whole range."""
    for tensor in weights(model):
        codes, zero = constant(model, tensor.codes), constant(model, tensor.zero_point)
        if codes is not None and zero is not None and zero.size:
            centre = int(zero.flat[0])
            write(model, tensor.codes, np.clip(codes.astype(int), centre - 64, centre + 63))


@writing()
def weight_zero_point_off_by_one(model: ModelProto, original: ModelProto) -> None:
    """The zero point of weights is one too large."""
    for tensor in weights(model):
        edit(model, tensor.zero_point, lambda z: np.where(z < _limits(z)[1], z.astype(int) + 1, z.astype(int) - 1))


@writing(per_channel=True)
def rolled_channel_scales(model: ModelProto, original: ModelProto) -> None:
    """Each channel of the weights has the scale of the one before."""
    for tensor in weights(model):
        edit(model, tensor.scale, lambda s: np.roll(s, 1))


@writing(per_channel=True)
def scale_of_first_channel(model: ModelProto, original: ModelProto) -> None:
    """Every channel of the weights has the scale of the first."""
    for tensor in weights(model):
        edit(model, tensor.scale, lambda s: np.full_like(s, s.flat[0]) if s.size else s)


@writing(per_channel=True, quantize="static", format="QDQ")
def scales_along_another_axis(model: ModelProto, original: ModelProto) -> None:
    """The scales of channels are laid along another axis of the weights, where it is as long."""
    for at in sites(model, "DequantizeLinear"):
        codes, scale = at.constant(0), at.constant(1)
        if codes is not None and scale is not None and scale.size > 1:
            axis = at.get("axis", 1) % codes.ndim
            if others := [k for k, n in enumerate(codes.shape) if n == scale.size and k != axis]:
                at.put(axis=others[0])


@writing("unet-down", "separable-block", "residual-block", "quantized-matmul", "Conv")
def scale_of_another_weight(model: ModelProto, original: ModelProto) -> None:
    """Each weight tensor has the scale of the one before it."""
    found = [(t, constant(model, t.scale)) for t in weights(model)]
    for (tensor, own), (_, other) in zip(found, [found[-1], *found] if found else []):
        if own is not None and other is not None and own.shape == other.shape:
            write(model, tensor.scale, other)


@writing()
def doubled_weight_scale(model: ModelProto, original: ModelProto) -> None:
    """The scale of weights is twice as large as need be, codes accordingly: a bit is given away."""
    for tensor in weights(model):
        zero = constant(model, tensor.zero_point)
        if zero is not None and not zero.any() and constant(model, tensor.scale) is not None:
            edit(model, tensor.scale, lambda s: s * 2)
            edit(model, tensor.codes, lambda q: np.rint(q / 2))


@writing("Conv", "ConvTranspose")
def weights_in_another_layout(model: ModelProto, original: ModelProto) -> None:
    """Kernels are written with channels last and read with channels first."""
    for tensor in weights(model):
        edit(model, tensor.codes, lambda q: np.moveaxis(q, 1, -1).reshape(q.shape) if q.ndim > 2 else q)


# Biases


@writing("Conv", "ConvTranspose", "Gemm")
def zeroed_bias(model: ModelProto, original: ModelProto) -> None:
    """The codes of biases are all zero."""
    for tensor in biases(model):
        edit(model, tensor.codes, np.zeros_like)


@writing("Conv", "ConvTranspose", "Gemm")
def stale_bias_scale(model: ModelProto, original: ModelProto) -> None:
    """Biases are quantized with the scale that the input had before the last calibration, larger by a third."""
    for tensor in biases(model):
        edit(model, tensor.codes, lambda q: np.rint(q * 0.75))


@writing("Conv", "ConvTranspose", "Gemm")
def bias_in_eight_bits(model: ModelProto, original: ModelProto) -> None:
    """The codes of biases are cut to eight bits."""
    for tensor in biases(model):
        edit(model, tensor.codes, lambda q: np.clip(q, -128, 127))


# Activations


@writing(*QUANTIZED)
def zero_point_off_by_one(model: ModelProto, original: ModelProto) -> None:
    """Codes of activations are read with a zero point that is one off."""
    for at in _readers(model):
        if (zero := at.constant(2)) is not None:
            at.feed(2, np.where(zero < _limits(zero)[1], zero.astype(int) + 1, zero.astype(int) - 1).astype(zero.dtype))


@writing(*QUANTIZED)
def scale_off_by_a_percent(model: ModelProto, original: ModelProto) -> None:
    """Codes of activations are read with a scale that is a percent larger than the one they were written with."""
    for at in _readers(model):
        if (scale := at.constant(1)) is not None:
            at.feed(1, (scale * 1.01).astype(scale.dtype))


@writing(*QUANTIZED, quantize="static", calibration="MinMax")  # the other methods may narrow a range as they like
def cut_range(model: ModelProto, original: ModelProto) -> None:
    """The scale of activations is a quarter smaller than the calibrated range needs."""
    for name in activations(model):
        edit(model, f"{name}_scale", lambda s: s * 0.75)


@writing(*QUANTIZED)
def doubled_activation_scale(model: ModelProto, original: ModelProto) -> None:
    """The scale of activations is twice as large as the calibrated range needs."""
    for name in activations(model):
        edit(model, f"{name}_scale", lambda s: s * 2)


@writing(*QUANTIZED, types="u8s8", quantize="static", calibration="MinMax")
def symmetric_for_asymmetric(model: ModelProto, original: ModelProto) -> None:
    """Activations get the zero point of a symmetric range and keep the scale of the asymmetric one."""
    for name in activations(model):
        edit(model, f"{name}_zero_point", lambda z: np.full_like(z, sum(_limits(z)) // 2 + 1))


@writing(*QUANTIZED)
def parameters_of_another_tensor(model: ModelProto, original: ModelProto) -> None:
    """Codes of activations are read with the scale and zero point of the tensor before."""
    readers = _readers(model)
    given = [list(at.node.input[1:3]) for at in readers]
    for at, other in zip(readers[1:], given):
        at.node.input[1:3] = other


@writing(*QUANTIZED, quantize="static", format="QDQ", calibration="MinMax")
def grid_of_another_tensor(model: ModelProto, original: ModelProto) -> None:
    """Activations are written and read with the scale and zero point of the tensor before."""
    writers, readers = sites(model, "QuantizeLinear"), sites(model, "DequantizeLinear")
    given = [list(at.node.input[1:3]) for at in writers]
    for writer, other in zip(writers[1:], given):
        for at in (writer, *(reader for reader in readers if reader.node.input[0] == writer.node.output[0])):
            at.node.input[1:3] = other


@writing(*QUANTIZED, quantize="static", format="QDQ")
def missing_requantization(model: ModelProto, original: ModelProto) -> None:
    """What an operator gives is read with the scale and zero point of what it was given."""
    for at in sites(model, "DequantizeLinear"):
        quantize = at.producer(0)
        operator = quantize.producer(0) if quantize else None
        source = operator.producer(0) if operator and operator.node.input else None
        if source and source.node.op_type == "DequantizeLinear":
            at.node.input[1:] = source.node.input[1:]


@writing(*QUANTIZED, quantize="static", format="QDQ")
def quantized_twice(model: ModelProto, original: ModelProto) -> None:
    """A second pair of QuantizeLinear and DequantizeLinear, one and a half times as coarse, stands behind the first."""
    for at in _readers(model):
        scale, zero = at.constant(1), at.constant(2)
        if scale is not None and zero is not None:
            at.after("DequantizeLinear", np.asarray(scale * 1.5, scale.dtype), zero)
            at.reader().before(0, "QuantizeLinear", np.asarray(scale * 1.5, scale.dtype), zero)


@plant(mutant.calibrating, *QUANTIZED, targets=ORT, quantize="static", calibration="MinMax")
def calibrated_on_one_sample(feeds: Sequence[Feed]) -> Sequence[Feed]:
    """Only the last sample is looked at."""
    return feeds[-1:]


@plant(mutant.calibrating, *QUANTIZED, targets=ORT, quantize="static", calibration="MinMax")
def calibrated_on_magnitudes(feeds: Sequence[Feed]) -> Sequence[Feed]:
    """Calibration looks at |x| and forgets the negative side."""
    return [{name: np.abs(x) if x.dtype.kind == "f" else x for name, x in feed.items()} for feed in feeds]


# The files of MNN


@plant(mutant.patching, *WEIGHTED, targets=MNN_ONLY)
def rolled_scales_in_file(content: bytearray, held: Mapping[str, Any]) -> None:
    """Each channel of the weights in an MNN file has the scale of the one before."""
    for layer in held["layers"]:
        overwrite(content, layer["scales"], np.roll(layer["scales"], 1, axis=0))


@plant(mutant.patching, *WEIGHTED, targets=MNN_ONLY)
def scales_off_by_a_percent_in_file(content: bytearray, held: Mapping[str, Any]) -> None:
    """The scales of the weights in an MNN file are a percent too large."""
    for layer in held["layers"]:
        overwrite(content, layer["scales"], layer["scales"] * np.float32(1.01))


def overwrite(content: bytearray, old: np.ndarray, new: np.ndarray) -> None:
    """Put the floats `new` in the places of `old`, each wherever it lies first: offsets may stand between them."""
    places = [(content.find(np.float32(x).tobytes()), np.float32(y).tobytes()) for x, y in zip(old.flat, new.flat)]
    for place, value in places:
        if place >= 0:
            content[place : place + 4] = value


def _readers(model: ModelProto) -> list[Site]:
    """The nodes that read codes of activations."""
    return [at for at in sites(model, *TAKES_CODES) if at.constant(0) is None and len(at.node.input) > 2]
