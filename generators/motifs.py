"""Motifs: combinations of operators that went wrong in the field, as fragments of a genome.

A motif prescribes which operators follow each other and the few choices that matter; everything else is left to the
bytes it is filled with, so each use is another variation, and it is spliced into random context like any other record.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import onnx
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.header import HEADER, Header
from driftnet.generators.building.record import ANY, CHOICES, DTYPE_AT, FRESH, RECORD, WISHES
from driftnet.generators.genome import Template
from driftnet.generators.ops.registry import REGISTRY
from driftnet.generators.ops.table import CODES

T = TypeVar("T")
Fragment = tuple[Template, ...]


class _Encoder:
    """Makes the wanted choices, the simplest elsewhere, and writes down which bytes say so; what there was to choose is
    `seen`."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.data = bytes(RECORD)
        self.written: dict[int, int] = {}
        self.seen: dict[str, Sequence[Any]] = {}
        self.missing = dict(wanted)
        self._cursor = CHOICES

    def choose(self, name: str, options: Sequence[T]) -> T:
        position, self._cursor = self._cursor, self._cursor + 1
        self.seen.setdefault(name, options)
        name = _DATA if name in ("x", "a") and _DATA in self.missing else name
        if name not in self.missing:
            return options[0]
        choice: T = self.missing.pop(name)
        self.written[position] = options.index(choice)
        return choice


_OLD = {"tf_half_pixel_for_nn"}
"""Texts that old opsets alone have: one graph in six with a record that chooses it."""
_DATA = "data"
"""The reference of the operand that an operator function calls x, or a where it has a matrix."""


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


@lru_cache(maxsize=256)
def spelled(name: str) -> Mapping[str, tuple[str, ...]]:
    """Attribute -> the texts that a record of operator `name` chooses from for it, in shrink order, but those of old
    opsets; the choice is called as the attribute is."""
    operator, encoder = REGISTRY[name], _Encoder({})
    builder = Builder(Header.read(bytes(HEADER)), max(operator.since, 17))
    builder.add(name, operator.function, lambda: encoder)
    stated = onnx.defs.get_schema(name, builder.opset).attributes
    return {
        choice: tuple(o for o in dict.fromkeys(options) if o not in _OLD)
        for choice, options in encoder.seen.items()
        if choice in stated
        and stated[choice].type == onnx.defs.OpSchema.AttrType.STRING
        and all(isinstance(o, str) for o in options)
    }


def then(name: str, **wanted: Any) -> Template:
    """A step on the most recent value that fits: mostly what the step before gave."""
    return step(name, **{_DATA: 0, **wanted})


def _by_number(name: str, number: float) -> Template:
    return then(name, literal=number)


def _with(name: str, x: int = 0) -> Template:
    """Two computed values together: the most recent, and the one that is `x` older."""
    return then(name, data=x, y="value", literal=None)


def _by_constant(name: str, form: str, **wanted: Any) -> Template:
    return then(name, y="made", y_form=form, y_source="initializer", **wanted)


def _chain(*parts: str | Template | Fragment) -> Fragment:
    """The steps one after the other; a name is that operator on what came before, all else about it open."""
    steps: list[Template] = []
    for part in parts:
        steps += [then(part)] if isinstance(part, str) else [part] if isinstance(part, Template) else part
    return tuple(steps)


_AXES_LAST = 4  # the third axis of three
_SQUARE_CONV: Mapping[str, Any] = {"kernel": (1, 1, 1), "padding": "none", "multiplier": 0, "group": 1}
_GEMM: Mapping[str, Any] = {"transA": False, "n": 0, "alpha": 1.0, "beta": 1.0}
_SAME_CONV = then("Conv", x_rank=4, kernel=(3, 3, 3), strides=(1, 1, 1), padding="same", multiplier=0)
_POINT_CONV = then("Conv", x_rank=4, kernel=(1, 1, 1), strides=(1, 1, 1), padding="none", group=1)
_SILU = (then("Sigmoid"), _with("Mul", 1))
_AFFINE = (_by_constant("Mul", "channel"), _by_constant("Add", "channel"))
"""One factor and one term a channel, as a normalization ends."""
_MATRIX = then("MatMul", form="matrix")
_MEAN = then("ReduceMean", axes=_AXES_LAST, keepdims=1)
_STATISTICS = dict.fromkeys(("scale", "bias", "mean", "variance"), "initializer")


def _pair(**wanted: Any) -> Fragment:
    """Quantized and dequantized, alike."""
    # The two names are what the motifs of quantization are about.
    return tuple([then(name, zero_point=3, **wanted) for name in ("QuantizeLinear", "DequantizeLinear")])


_QUANTIZED = _pair(scale=0.0625, per_channel=False)

MOTIFS: dict[str, Fragment] = {
    "grouped-conv-transpose-batch-norm": _chain(
        step("ConvTranspose", group=2, w="initializer"), then("BatchNormalization", **_STATISTICS)
    ),
    "grouped-conv-transpose-scale": _chain(
        step("ConvTranspose", group=2, w="initializer"), _by_constant("Mul", "channel")
    ),
    "time-embedding": _chain(
        step("Conv", x=FRESH, x_rank=4, multiplier=0),
        step("Gemm", a=FRESH, transA=False, n=0),
        "Sigmoid",
        then("Unsqueeze", axes=(2, 3)),
        then("Mul", y="value"),
    ),
    "multi-input-gru": _chain(
        step("GRU", x=FRESH, initial_h="input", outputs=(True, True)),
        then("Squeeze", data=1),
        then("Add", y="made", y_form="same", y_source="input"),
    ),
    "group-norm": _chain(
        step("Reshape", form="groups"),
        then("InstanceNormalization", scale="initializer", bias="initializer"),
        then("Reshape", form="like"),
        _AFFINE,
    ),
    "dual-path": _chain(
        step("Conv", x_rank=4),
        then("Reshape", form="merge"),
        then("Transpose", perm="rotate"),
        then("LSTM", direction="bidirectional", outputs=(True, False)),
        then("Transpose", perm="middle"),
        then("Reshape", form="merge"),
        _MATRIX,
        then("Add", y="value"),
        "LayerNormalization",
    ),
    "quantized-conv": _chain(step("Conv", x_rank=4), _QUANTIZED, then("Conv", w="dequantized"), "Relu", _QUANTIZED),
    "layer-norm-by-hand": _chain(
        step("ReduceMean", x_rank=3, axes=_AXES_LAST, keepdims=1),
        _with("Sub", 1),
        then("Pow", exponent=2.0),
        _MEAN,
        _by_number("Add", 1e-5),
        "Sqrt",
        _with("Div", 4),
        _AFFINE,
    ),
    "gelu-by-hand": _chain(
        step("Identity"),
        _by_number("Div", 2**0.5),
        "Erf",
        _by_number("Add", 1.0),
        _with("Mul", 3),
        _by_number("Mul", 0.5),
    ),
    "gelu-by-tanh": _chain(
        step("Pow", exponent=3.0),
        _by_number("Mul", 0.044715),
        _with("Add", 2),
        "Tanh",
        _by_number("Add", 1.0),
        _with("Mul", 0),
    ),
    "softmax-by-hand": _chain(
        step("ReduceMax", x_rank=3, axes=_AXES_LAST, keepdims=1),
        _with("Sub", 1),
        "Exp",
        then("ReduceSum", axes=_AXES_LAST, keepdims=1),
        _with("Div", 1),
    ),
    "attention-by-hand": _chain(
        step("MatMul", a_rank=4, form="matrix"),
        then("Transpose", perm="swap first"),
        _MATRIX,
        _by_number("Div", 2.0),
        "Softmax",
        "Dropout",
        _MATRIX,
        then("Transpose", perm="middle"),
        then("Reshape", form="merge"),
    ),
    "residual-block": _chain(
        _SAME_CONV, "BatchNormalization", "Relu", _SAME_CONV, "BatchNormalization", _with("Add"), "Relu"
    ),
    "separable-block": _chain(
        then("Conv", x_rank=4, kernel=(3, 3, 3), padding="same", group=0, multiplier=1),
        "BatchNormalization",
        then("Clip", bounds=(0.0, 6.0)),
        _POINT_CONV,
        "BatchNormalization",
    ),
    "silu": _chain(step("Conv", x_rank=4), _SILU),
    "unet-down": _chain(
        _SAME_CONV, "GlobalAveragePool", _with("Add", 1), _SILU, then("MaxPool", kernel=(2, 2, 2), strides=(2, 2, 2))
    ),
    "unet-up": _chain(
        _SAME_CONV,
        then("Resize", mode="nearest", scales=(2.0, 2.0, 2.0)),
        "Relu",
        then("Concat", y0="value", count=2),
        _POINT_CONV,
    ),
    "quantized-matmul": _chain(_QUANTIZED, then("MatMul", w="dequantized", form="matrix"), _with("Add"), _QUANTIZED),
    "quantized-per-channel": _chain(
        step("Conv", x_rank=4, w="dequantized"), _pair(per_channel=True, axis=1, scale=0.5), "Relu"
    ),
    "padded-conv": _chain(step("Pad", x_rank=4, mode="constant"), "Conv", "Relu"),
    "conv-padded": _chain(
        step("Conv", x_rank=4, w="initializer", b="initializer"),
        then("Pad", mode="constant", partial=True),
        then("Conv", w="initializer"),
    ),
    "cropped-conv": _chain(
        step("Conv", x_rank=4, w="initializer"), then("Pad", mode="constant", number=None, after=-1), "Relu"
    ),
    "embedding": _chain(
        step("Gather", table=True, table_source="initializer"),
        then("MatMul", w="initializer", form="matrix"),
        "Softmax",
    ),
    "padded-pool": _chain(step("Pad", x_rank=4, mode="constant"), "AveragePool"),
    "scaled-conv": _chain(step("Conv", w="initializer", multiplier=3, x_rank=4), _AFFINE, "BatchNormalization"),
    "shifted-conv": _chain(step("Conv", w="initializer", multiplier=2, x_rank=4), _AFFINE[1], "Relu"),
    "shifted-conv-transpose": _chain(step("ConvTranspose", w="initializer", group=2), _AFFINE[1]),
    "tied-conv": _chain(
        step("Conv", x_rank=4, w="initializer", b="initializer", **_SQUARE_CONV),
        "Relu",
        then("Conv", w="shared", b="shared", **_SQUARE_CONV),
    ),
    "tied-gemm": _chain(
        step("Gemm", a=FRESH, w="initializer", c="initializer", **_GEMM),
        "Relu",
        then("Gemm", w="shared", c="shared", **_GEMM),
    ),
    "tied-matmul": _chain(
        step("MatMul", a_rank=3, form="matrix", n=0, w="initializer"),
        "Tanh",
        then("MatMul", form="matrix", n=0, w="shared"),
    ),
    "selected": _chain(step("Conv", x_rank=4), "Relu", then("Where", y="value"), "Concat"),
    "squeeze-excite": _chain(
        step("Conv", x_rank=4, multiplier=3),
        "GlobalAveragePool",
        then("Conv", b="initializer", **_SQUARE_CONV),
        "Relu",
        "HardSigmoid",
        _with("Mul", 4),
    ),
    "hard-swish-by-hand": _chain(
        step("Identity"),
        _by_number("Add", 3.0),
        then("Clip", bounds=(0.0, 6.0)),
        _with("Mul", 2),
        _by_number("Div", 6.0),
    ),
    "scaled-gemm": _chain(
        step("Gemm", transB=True, w="initializer", alpha=1.0),
        then("Reshape", form="explicit"),
        _by_constant("Mul", "scalar"),
    ),
    "shifted-gemm": _chain(
        step("Gemm", w="initializer", beta=1.0), then("Reshape", form="tail"), _by_constant("Add", "last", literal=None)
    ),
    "biased-matmul": _chain(step("MatMul", form="matrix"), _by_constant("Add", "last", literal=None), "Relu"),
    "reshapes": _chain(*[then("Reshape", form=form) for form in ("rows", "unsqueezed", "squeezed", "flat")]),
    "views": _chain(step("Conv"), then("Reshape", form="view"), "Gemm", then("Reshape", form="sized")),
    "channel-shuffle": _chain(
        step("Reshape", x_rank=4, form="shuffle"), then("Transpose", perm="middle"), then("Reshape", form="merge")
    ),
    "transposed-split": _chain(
        step("Transpose", x_rank=4, perm="to last"),
        then("Reshape", form="explicit"),
        then("Transpose", perm="swap last"),
    ),
    "transposed-axes": _chain(
        step("Transpose", x_rank=3, perm="swap last"),
        "Unsqueeze",
        "Transpose",
        then("Squeeze", every=False, axes=62),
        "Transpose",
    ),
    "reduced-views": _chain(step("ReduceMean", x_rank=3, axes=_AXES_LAST, keepdims=0), then("Unsqueeze", axes=(2,))),
    "twins": _chain(step("Sigmoid"), then("Sigmoid", data=1), _with("Add"), "Tanh", then("Tanh", data=1), _with("Mul")),
    "transposes": _chain(*[then("Transpose", perm=perm) for perm in ("swap last", "rotate", "default", "swap last")]),
    "slices": _chain(step("Slice"), "Slice", then("Concat", y0="value"), then("Concat", y0="value")),
    "casts": _chain(*[then("Cast", to=to, latest=True) for to in (1, 11, 1)]),
    "axes": _chain(
        step("Unsqueeze", axes=(0,)),
        then("Unsqueeze", axes=(1,)),
        then("ReduceSum", keepdims=0, axes=1),
        "Squeeze",
        "Unsqueeze",
    ),
    "identities": _chain(
        _by_number("Add", 0.0),
        _by_number("Mul", 1.0),
        "Identity",
        then("Transpose", perm="identity"),
        "Dropout",
        _by_number("Sub", 0.0),
        then("Cast", to=1),
        then("Concat", count=1),
        then("Slice", form=(0, 2**63 - 1, 1)),
        then("Expand", size=1, higher=False),
        then("Pad", before=0, after=0),
        _by_number("Div", 1.0),
    ),
    "shape-arithmetic": _chain(
        step("Shape", start=0),
        then("Gather", latest=True, indices=(0,)),
        then("Concat", latest=True, y0="self"),
        then("ReduceSum", latest=True),
        then("Cast", latest=True, to=1),
    ),
}
"""Name -> fragment."""
