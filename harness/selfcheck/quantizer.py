"""Bugs of quantizers: what is written into the quantized ONNX model is not what the data and the format ask for.

onnxruntime's quantizer calls the codes of a constant x `x_quantized`, its parameters `x_scale` and `x_zero_point`;
those of a bias begin with the name of its codes.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from driftnet.model import operators
from driftnet.selfcheck.mutant import Mutant, calibrating, mutant, quantizing
from driftnet.selfcheck.site import Site, constant, sites
from driftnet.targets.interface import Feed
from onnx import ModelProto, numpy_helper

WEIGHTED = tuple(sorted(operators.WEIGHTED))
BIASED = tuple(op_type for op_type in WEIGHTED if op_type != "MatMul")
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


def writing(*focus: str, needs: Sequence[str] = ()) -> Callable[[Callable[[ModelProto, ModelProto], None]], Mutant]:
    """Make the decorated damage, done to (the quantized model, the model it was made of), a bug."""
    return mutant(quantizing, *(focus or WEIGHTED), needs=("onnx", *needs))


def editing(
    part: str, of: Callable[[ModelProto], list[Tensor]], *focus: str, needs: Sequence[str] = ()
) -> Callable[[Callable[[np.ndarray], Any]], Mutant]:
    """Make the decorated change of some initializers a bug: of which tensors, and which of the three of each."""

    def made(change: Callable[[np.ndarray], Any]) -> Mutant:
        @functools.wraps(change)
        def damage(model: ModelProto, original: ModelProto) -> None:
            for tensor in of(model):
                if (value := constant(model, name := getattr(tensor, part))) is not None:
                    write(model, name, np.asarray(change(value)))

        return writing(*focus, needs=needs)(damage)

    return made


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


def activations(model: ModelProto) -> list[Tensor]:
    """The tensors that have a calibrated scale."""
    held = {t.scale for t in (*weights(model), *biases(model))}
    scales = [t.name for t in model.graph.initializer if t.name.endswith("_scale") and t.name not in held]
    return [Tensor("", scale, f"{scale.removesuffix('_scale')}_zero_point") for scale in scales]


def _held(model: ModelProto, bytes_each: int) -> list[Any]:
    found = [t for t in model.graph.initializer if t.name.endswith("_quantized")]
    return [t for t in found if numpy_helper.to_array(t).itemsize == bytes_each]


def _one_off(zero: np.ndarray) -> np.ndarray:
    return np.where(zero < np.iinfo(zero.dtype).max, zero.astype(int) + 1, zero.astype(int) - 1).astype(zero.dtype)


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
def weights_cut_to_seven_bits(model: ModelProto, original: ModelProto) -> None:
    """Weights are clipped to the reduced range, while their scale is that of the whole range."""
    for tensor in weights(model):
        codes, zero = constant(model, tensor.codes), constant(model, tensor.zero_point)
        if codes is not None and zero is not None and zero.size:
            centre = int(zero.flat[0])
            write(model, tensor.codes, np.clip(codes.astype(int), centre - 64, centre + 63))


@editing("codes", weights)
def weights_without_lowest_bit(codes: np.ndarray) -> np.ndarray:
    """Weights lose the lowest bit of their codes."""
    return codes // 2 * 2


@editing("codes", weights)
def one_wrong_weight(codes: np.ndarray) -> np.ndarray:
    """One code of each weight tensor has one bit wrong."""
    codes = codes.copy()
    codes.reshape(-1)[codes.size // 2 : codes.size // 2 + 1] ^= 4
    return codes


@editing("codes", weights)
def flipped_sign_of_weights(codes: np.ndarray) -> np.ndarray:
    """Signed codes of weights are written as unsigned ones and read as signed, or the other way round."""
    return (codes.view(np.uint8) ^ np.uint8(0x80)).view(codes.dtype)


@editing("codes", weights, "Conv", "ConvTranspose")
def weights_in_another_layout(codes: np.ndarray) -> np.ndarray:
    """Kernels are written with channels last and read with channels first."""
    return np.moveaxis(codes, 1, -1).reshape(codes.shape) if codes.ndim > 2 else codes


@editing("zero_point", weights)
def weight_zero_point_off_by_one(zero: np.ndarray) -> np.ndarray:
    """The zero point of weights is one too large."""
    return _one_off(zero)


@editing("scale", weights, needs=["per-channel"])
def rolled_channel_scales(scale: np.ndarray) -> np.ndarray:
    """Each channel of the weights has the scale of the one before."""
    return np.roll(scale, 1)


@editing("scale", weights, needs=["per-channel"])
def scale_of_first_channel(scale: np.ndarray) -> np.ndarray:
    """Every channel of the weights has the scale of the first."""
    return np.full_like(scale, scale.flat[0]) if scale.size else scale


@writing(needs=["per-channel", "qdq"])
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
        codes, scale, zero = (constant(model, name) for name in (tensor.codes, tensor.scale, tensor.zero_point))
        if codes is not None and scale is not None and zero is not None and not zero.any():
            write(model, tensor.scale, scale * 2)
            write(model, tensor.codes, np.rint(codes / 2))


# Biases


@editing("codes", biases, *BIASED)
def zeroed_bias(codes: np.ndarray) -> np.ndarray:
    """The codes of biases are all zero."""
    return np.zeros_like(codes)


@editing("codes", biases, *BIASED)
def stale_bias_scale(codes: np.ndarray) -> np.ndarray:
    """Biases are quantized with the scale that the input had before the last calibration, larger by a third."""
    return np.rint(codes * 0.75)


@editing("codes", biases, *BIASED)
def bias_in_eight_bits(codes: np.ndarray) -> np.ndarray:
    """The codes of biases are cut to eight bits."""
    return np.asarray(np.clip(codes, -128, 127))


# Activations


@writing(*QUANTIZED)
def zero_point_off_by_one(model: ModelProto, original: ModelProto) -> None:
    """Codes of activations are read with a zero point that is one off."""
    for at in _readers(model):
        if (zero := at.constant(2)) is not None:
            at.feed(2, _one_off(zero))


@writing(*QUANTIZED)
def scale_off_by_a_percent(model: ModelProto, original: ModelProto) -> None:
    """Codes of activations are read with a scale that is a percent larger than the one they were written with."""
    for at in _readers(model):
        if (scale := at.constant(1)) is not None:
            at.feed(1, (scale * 1.01).astype(scale.dtype))


@editing("scale", activations, *QUANTIZED, needs=["min-max"])  # other methods may narrow a range as they like
def cut_range(scale: np.ndarray) -> np.ndarray:
    """The scale of activations is a quarter smaller than the calibrated range needs."""
    return scale * 0.75


@editing("scale", activations, *QUANTIZED)
def doubled_activation_scale(scale: np.ndarray) -> np.ndarray:
    """The scale of activations is twice as large as the calibrated range needs."""
    return scale * 2


@editing("zero_point", activations, *QUANTIZED, needs=["min-max", "u8s8"])
def symmetric_for_asymmetric(zero: np.ndarray) -> np.ndarray:
    """Activations get the zero point of a symmetric range and keep the scale of the asymmetric one."""
    limits = np.iinfo(zero.dtype)
    return np.full_like(zero, (limits.min + limits.max) // 2 + 1)


@writing(*QUANTIZED)
def parameters_of_another_tensor(model: ModelProto, original: ModelProto) -> None:
    """Codes of activations are read with the scale and zero point of the tensor before."""
    readers = _readers(model)
    given = [list(at.node.input[1:3]) for at in readers]
    for at, other in zip(readers[1:], given):
        at.node.input[1:3] = other


@writing(*QUANTIZED, needs=["qdq", "min-max"])
def grid_of_another_tensor(model: ModelProto, original: ModelProto) -> None:
    """Activations are written and read with the scale and zero point of the tensor before."""
    writers, readers = sites(model, "QuantizeLinear"), sites(model, "DequantizeLinear")
    given = [list(at.node.input[1:3]) for at in writers]
    for writer, other in zip(writers[1:], given):
        for at in (writer, *(reader for reader in readers if reader.node.input[0] == writer.node.output[0])):
            at.node.input[1:3] = other


@writing(*QUANTIZED, needs=["qdq"])
def missing_requantization(model: ModelProto, original: ModelProto) -> None:
    """What an operator gives is read with the scale and zero point of what it was given."""
    for at in sites(model, "DequantizeLinear"):
        quantize = at.producer(0)
        operator = quantize.producer(0) if quantize else None
        source = operator.producer(0) if operator and operator.node.input else None
        if source and source.node.op_type == "DequantizeLinear":
            at.node.input[1:] = source.node.input[1:]


@writing(*QUANTIZED, needs=["qdq"])
def quantized_twice(model: ModelProto, original: ModelProto) -> None:
    """A second pair of QuantizeLinear and DequantizeLinear, one and a half times as coarse, stands behind the first."""
    for at in _readers(model):
        scale, zero = at.constant(1), at.constant(2)
        if scale is not None and zero is not None:
            at.after("DequantizeLinear", np.asarray(scale * 1.5, scale.dtype), zero)
            at.reader().before(0, "QuantizeLinear", np.asarray(scale * 1.5, scale.dtype), zero)


@mutant(calibrating, *QUANTIZED, needs=["min-max"])
def calibrated_on_one_sample(feeds: Sequence[Feed]) -> Sequence[Feed]:
    """Only the last sample is looked at."""
    return feeds[-1:]


@mutant(calibrating, *QUANTIZED, needs=["min-max"])
def calibrated_on_magnitudes(feeds: Sequence[Feed]) -> Sequence[Feed]:
    """Calibration looks at |x| and forgets the negative side."""
    return [{name: np.abs(x) if x.dtype.kind == "f" else x for name, x in feed.items()} for feed in feeds]


def _readers(model: ModelProto) -> list[Site]:
    """The nodes that read codes of activations."""
    return [at for at in sites(model, *TAKES_CODES) if at.constant(0) is None and len(at.node.input) > 2]
