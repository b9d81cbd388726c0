"""Motifs: combinations of operators that went wrong in the field, as fragments of a genome.

A motif prescribes which operators follow each other and the few choices that matter; everything else is left to the
bytes it is filled with, so each use is another variation, and it is spliced into random context like any other record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from generators.builder import CHOICES, FRESH, HEADER, RECORD, Builder, Header
from generators.genome import Template
from generators.ops.registry import REGISTRY
from generators.ops.table import CODES

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


def step(name: str, **wanted: Any) -> Template:
    """A record of operator `name` that makes the `wanted` choices.

    Raises ValueError for a choice or an option that the operator does not have.
    """
    operator, encoder = REGISTRY[name], _Encoder(wanted)
    Builder(Header.read(bytes(HEADER)), max(operator.since, 17)).add(operator.function, lambda: encoder)
    if encoder.missing:
        raise ValueError(f"{name} has no choice {', '.join(map(repr, encoder.missing))}")
    data, mask = bytearray(RECORD), bytearray(RECORD)
    for position, byte in {0: CODES[name], **encoder.written}.items():
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
}
"""Name -> fragment."""
