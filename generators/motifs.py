"""Motifs: combinations of operators that went wrong in the field, as fragments of a genome.

A motif prescribes which operators follow each other and the few choices that matter; everything else is left to the
bytes it is filled with, so each use is another variation, and it is spliced into random context like any other record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.header import HEADER, Header
from driftnet.generators.building.record import ANY, CHOICES, DTYPE_AT, FRESH, RECORD, WISHES
from driftnet.generators.genome import Template
from driftnet.generators.ops.registry import REGISTRY
from driftnet.generators.ops.table import CODES

T = TypeVar("T")
Fragment = tuple[Template, ...]


class _Encoder:
    """Makes the wanted choices, the simplest elsewhere, and writes down which bytes say so."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.data = bytes(RECORD)
        self.written: dict[int, int] = {}
        self.missing = dict(wanted)
        self._cursor = CHOICES

    def choose(self, name: str, options: Sequence[T]) -> T:
        position, self._cursor = self._cursor, self._cursor + 1
        if name not in self.missing:
            return options[0]
        choice: T = self.missing.pop(name)
        self.written[position] = options.index(choice)
        return choice


def step(name: str, *, latest: bool = False, **wanted: Any) -> Template:
    """A record of operator `name` that makes the `wanted` choices; latest: on operands of whatever dtype came last.

    Raises ValueError for a choice or an option that the operator does not have.
    """
    operator, encoder = REGISTRY[name], _Encoder(wanted)
    Builder(Header.read(bytes(HEADER)), max(operator.since, 17)).add(name, operator.function, lambda: encoder)
    if encoder.missing:
        raise ValueError(f"{name} has no choice {', '.join(map(repr, encoder.missing))}")
    data, mask = bytearray(RECORD), bytearray(RECORD)
    dtype = {DTYPE_AT: WISHES.index(ANY)} if latest else {}
    for position, byte in {0: CODES[name], **dtype, **encoder.written}.items():
        data[position], mask[position] = byte, 255
    return Template(bytes(data), bytes(mask))


def _affine() -> Fragment:
    """One factor and one term a channel, as a normalization ends."""
    return tuple([step(name, x=0, y="made", y_form="channel", y_source="initializer") for name in ("Mul", "Add")])


def _quantized() -> Fragment:
    """A per-tensor pair that agrees with itself."""
    return tuple(
        [
            step(name, x=0, scale=0.0625, per_channel=False, zero_point=3)
            for name in ("QuantizeLinear", "DequantizeLinear")
        ]
    )


def _by_number(name: str, number: float, x: int = 0) -> Template:
    return step(name, x=x, literal=number)


def _with(name: str, x: int = 0) -> Template:
    """Two computed values together."""
    return step(name, x=x, y="value", literal=None)


_AXES_LAST = 4  # the third axis of three
_SQUARE_CONV: Mapping[str, Any] = {"kernel": (1, 1, 1), "padding": "none", "multiplier": 0, "group": 1}
_SAME_CONV = step("Conv", x=0, x_rank=4, kernel=(3, 3, 3), strides=(1, 1, 1), padding="same", multiplier=0)
_POINT_CONV = step("Conv", x=0, x_rank=4, kernel=(1, 1, 1), strides=(1, 1, 1), padding="none", group=1)
_SILU = (step("Sigmoid", x=0), _with("Mul", 1))


MOTIFS: dict[str, Fragment] = {
    "grouped-conv-transpose-batch-norm": (
        step("ConvTranspose", group=2, w="initializer"),
        step(
            "BatchNormalization",
            x=0,
            scale="initializer",
            bias="initializer",
            mean="initializer",
            variance="initializer",
        ),
    ),
    "grouped-conv-transpose-scale": (
        step("ConvTranspose", group=2, w="initializer"),
        step("Mul", x=0, y="made", y_form="channel", y_source="initializer"),
    ),
    "time-embedding": (
        step("Conv", x=FRESH, x_rank=4, multiplier=0),
        step("Gemm", a=FRESH, transA=False, n=0),
        step("Sigmoid", x=0),
        step("Unsqueeze", x=0, axes=(2, 3)),
        step("Mul", x=0, y="value"),
    ),
    "multi-input-gru": (
        step("GRU", x=FRESH, initial_h="input", outputs=(True, True)),
        step("Squeeze", x=1),
        step("Add", x=0, y="made", y_form="same", y_source="input"),
    ),
    "group-norm": (
        step("Reshape", form="groups"),
        step("InstanceNormalization", x=0, scale="initializer", bias="initializer"),
        step("Reshape", x=0, form="like"),
        *_affine(),
    ),
    "dual-path": (
        step("Conv", x_rank=4),
        step("Reshape", x=0, form="merge"),
        step("Transpose", x=0, perm="rotate"),
        step("LSTM", x=0, direction="bidirectional", outputs=(True, False)),
        step("Transpose", x=0, perm="middle"),
        step("Reshape", x=0, form="merge"),
        step("MatMul", a=0, form="matrix"),
        step("Add", x=0, y="value"),
        step("LayerNormalization", x=0),
    ),
    "quantized-conv": (
        step("Conv", x_rank=4),
        *_quantized(),
        step("Conv", x=0, w="dequantized"),
        step("Relu", x=0),
        *_quantized(),
    ),
    "layer-norm-by-hand": (
        step("ReduceMean", x_rank=3, axes=_AXES_LAST, keepdims=1),
        _with("Sub", 1),
        step("Pow", x=0, exponent=2.0),
        step("ReduceMean", x=0, axes=_AXES_LAST, keepdims=1),
        _by_number("Add", 1e-5),
        step("Sqrt", x=0),
        _with("Div", 4),
        *_affine(),
    ),
    "gelu-by-hand": (
        step("Identity"),
        _by_number("Div", 2**0.5),
        step("Erf", x=0),
        _by_number("Add", 1.0),
        _with("Mul", 3),
        _by_number("Mul", 0.5),
    ),
    "gelu-by-tanh": (
        step("Pow", exponent=3.0),
        _by_number("Mul", 0.044715),
        _with("Add", 2),
        step("Tanh", x=0),
        _by_number("Add", 1.0),
        _with("Mul", 0),
    ),
    "softmax-by-hand": (
        step("ReduceMax", x_rank=3, axes=_AXES_LAST, keepdims=1),
        _with("Sub", 1),
        step("Exp", x=0),
        step("ReduceSum", x=0, axes=_AXES_LAST, keepdims=1),
        _with("Div", 1),
    ),
    "attention-by-hand": (
        step("MatMul", a_rank=4, form="matrix"),
        step("Transpose", x=0, perm="swap first"),
        step("MatMul", a=0, form="matrix"),
        _by_number("Div", 2.0),
        step("Softmax", x=0),
        step("Dropout", x=0),
        step("MatMul", a=0, form="matrix"),
        step("Transpose", x=0, perm="middle"),
        step("Reshape", x=0, form="merge"),
    ),
    "residual-block": (
        _SAME_CONV,
        step("BatchNormalization", x=0),
        step("Relu", x=0),
        _SAME_CONV,
        step("BatchNormalization", x=0),
        _with("Add", 0),
        step("Relu", x=0),
    ),
    "separable-block": (
        step("Conv", x=0, x_rank=4, kernel=(3, 3, 3), padding="same", group=0, multiplier=1),
        step("BatchNormalization", x=0),
        step("Clip", x=0, bounds=(0.0, 6.0)),
        _POINT_CONV,
        step("BatchNormalization", x=0),
    ),
    "silu": (step("Conv", x_rank=4), *_SILU),
    "unet-down": (
        _SAME_CONV,
        step("GlobalAveragePool", x=0),
        _with("Add", 1),
        *_SILU,
        step("MaxPool", x=0, kernel=(2, 2, 2), strides=(2, 2, 2)),
    ),
    "unet-up": (
        _SAME_CONV,
        step("Resize", x=0, mode="nearest", scales=(2.0, 2.0, 2.0)),
        step("Relu", x=0),
        step("Concat", x=0, y0="value", count=2),
        _POINT_CONV,
    ),
    "quantized-matmul": (
        *_quantized(),
        step("MatMul", a=0, w="dequantized", form="matrix"),
        _with("Add", 0),
        *_quantized(),
    ),
    "quantized-per-channel": (
        step("Conv", x_rank=4, w="dequantized"),
        step("QuantizeLinear", x=0, per_channel=True, axis=1, scale=0.5, zero_point=3),
        step("DequantizeLinear", x=0, per_channel=True, axis=1, scale=0.5, zero_point=3),
        step("Relu", x=0),
    ),
    "padded-conv": (step("Pad", x_rank=4, mode="constant"), step("Conv", x=0), step("Relu", x=0)),
    "conv-padded": (
        step("Conv", x_rank=4, w="initializer", b="initializer"),
        step("Pad", x=0, mode="constant", partial=True),
        step("Conv", x=0, w="initializer"),
    ),
    "cropped-conv": (
        step("Conv", x_rank=4, w="initializer"),
        step("Pad", x=0, mode="constant", number=None, after=-1),
        step("Relu", x=0),
    ),
    "embedding": (
        step("Gather", table=True, table_source="initializer"),
        step("MatMul", a=0, w="initializer", form="matrix"),
        step("Softmax", x=0),
    ),
    "padded-pool": (step("Pad", x_rank=4, mode="constant"), step("AveragePool", x=0)),
    "scaled-conv": (
        step("Conv", w="initializer", multiplier=3, x_rank=4),
        *_affine(),
        step("BatchNormalization", x=0),
    ),
    "shifted-conv": (step("Conv", w="initializer", multiplier=2, x_rank=4), _affine()[1], step("Relu", x=0)),
    "shifted-conv-transpose": (step("ConvTranspose", w="initializer", group=2), _affine()[1]),
    "tied-conv": (
        step("Conv", x_rank=4, w="initializer", b="initializer", **_SQUARE_CONV),
        step("Relu", x=0),
        step("Conv", x=0, w="shared", b="shared", **_SQUARE_CONV),
    ),
    "tied-gemm": (
        step("Gemm", a=FRESH, transA=False, n=0, w="initializer", c="initializer", alpha=1.0, beta=1.0),
        step("Relu", x=0),
        step("Gemm", a=0, transA=False, n=0, w="shared", c="shared", alpha=1.0, beta=1.0),
    ),
    "tied-matmul": (
        step("MatMul", a_rank=3, form="matrix", n=0, w="initializer"),
        step("Tanh", x=0),
        step("MatMul", a=0, form="matrix", n=0, w="shared"),
    ),
    "selected": (step("Conv", x_rank=4), step("Relu", x=0), step("Where", x=0, y="value"), step("Concat", x=0)),
    "squeeze-excite": (
        step("Conv", x_rank=4, multiplier=3),
        step("GlobalAveragePool", x=0),
        step("Conv", x=0, b="initializer", **_SQUARE_CONV),
        step("Relu", x=0),
        step("HardSigmoid", x=0),
        _with("Mul", 4),
    ),
    "hard-swish-by-hand": (
        step("Identity"),
        _by_number("Add", 3.0),
        step("Clip", x=0, bounds=(0.0, 6.0)),
        _with("Mul", 2),
        _by_number("Div", 6.0),
    ),
    "scaled-gemm": (
        step("Gemm", transB=True, w="initializer", alpha=1.0),
        step("Reshape", x=0, form="explicit"),
        step("Mul", x=0, y="made", y_form="scalar", y_source="initializer"),
    ),
    "shifted-gemm": (
        step("Gemm", w="initializer", beta=1.0),
        step("Reshape", x=0, form="tail"),
        step("Add", x=0, y="made", y_form="last", y_source="initializer", literal=None),
    ),
    "biased-matmul": (
        step("MatMul", form="matrix"),
        step("Add", x=0, y="made", y_form="last", y_source="initializer", literal=None),
        step("Relu", x=0),
    ),
    "reshapes": tuple(step("Reshape", x=0, form=form) for form in ("rows", "unsqueezed", "squeezed", "flat")),
    "views": (step("Conv"), step("Reshape", x=0, form="view"), step("Gemm", a=0), step("Reshape", x=0, form="sized")),
    "channel-shuffle": (
        step("Reshape", x_rank=4, form="shuffle"),
        step("Transpose", x=0, perm="middle"),
        step("Reshape", x=0, form="merge"),
    ),
    "transposed-split": (
        step("Transpose", x_rank=4, perm="to last"),
        step("Reshape", x=0, form="explicit"),
        step("Transpose", x=0, perm="swap last"),
    ),
    "transposed-axes": (
        step("Transpose", x_rank=3, perm="swap last"),
        step("Unsqueeze", x=0),
        step("Transpose", x=0),
        step("Squeeze", x=0, every=False, axes=62),
        step("Transpose", x=0),
    ),
    "reduced-views": (step("ReduceMean", x_rank=3, axes=_AXES_LAST, keepdims=0), step("Unsqueeze", x=0, axes=(2,))),
    "twins": (step("Sigmoid"), step("Sigmoid", x=1), _with("Add"), step("Tanh", x=0), step("Tanh", x=1), _with("Mul")),
    "transposes": tuple(step("Transpose", x=0, perm=perm) for perm in ("swap last", "rotate", "default", "swap last")),
    "slices": (step("Slice"), step("Slice", x=0), step("Concat", x=0, y0="value"), step("Concat", x=0, y0="value")),
    "casts": tuple(step("Cast", x=0, to=to, latest=True) for to in (1, 11, 1)),
    "axes": (
        step("Unsqueeze", axes=(0,)),
        step("Unsqueeze", x=0, axes=(1,)),
        step("ReduceSum", x=0, keepdims=0, axes=1),
        step("Squeeze", x=0),
        step("Unsqueeze", x=0),
    ),
    "identities": (
        _by_number("Add", 0.0),
        _by_number("Mul", 1.0),
        step("Identity", x=0),
        step("Transpose", x=0, perm="identity"),
        step("Dropout", x=0),
        _by_number("Sub", 0.0),
        step("Cast", x=0, to=1),
        step("Concat", x=0, count=1),
        step("Slice", x=0, form=(0, 2**63 - 1, 1)),
        step("Expand", x=0, size=1, higher=False),
        step("Pad", x=0, before=0, after=0),
        _by_number("Div", 1.0),
    ),
    "shape-arithmetic": (
        step("Shape", start=0),
        step("Gather", latest=True, x=0, indices=(0,)),
        step("Concat", latest=True, x=0, y0="self"),
        step("ReduceSum", latest=True, x=0),
        step("Cast", latest=True, x=0, to=1),
    ),
}
"""Name -> fragment."""
