"""Artifact: what a target tells of what it made when it quantized.

A target's `inspect` gives it as plain data, a JSON object that may hold bytes and arrays. They come from an untrusted
process, and the oracle takes them at their word: `driftnet.util.records.read` refuses whatever is not of this form.
"""

from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

Runs = Literal["moves", "codes", "codes unless broadcast", "float", "codes or floats", "somehow"]
"""How an operation runs:

moves   gives the data it reads in another shape or order, as codes where both are on one grid
codes   reads and gives codes
codes unless broadcast   does so where its operands have the shape of the result, or one element
float   reads what is there, and gives floats;   codes or floats   does the one or the other
somehow   nothing is known of it
"""


class Layer(Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """A weighted operator.

    result   the tensor of the model that it should make
    weights, scales   its weights as dequantized, float32 [channels, n], and their steps, float32 [channels, blocks of
             n / blocks weights]
    room     by what share of the largest a weight may be further off than half a step: scales were rounded last
    """

    name: str
    result: str
    weights: np.ndarray
    scales: np.ndarray
    room: float = 0.0

    def __post_init__(self) -> None:
        weights, scales = self.weights, self.scales
        if {weights.dtype, scales.dtype} == {np.dtype(np.float32)} and (weights.ndim, scales.ndim) == (2, 2):
            (channels, size), (rows, blocks) = weights.shape, scales.shape
            if channels == rows and blocks > 0 and size % blocks == 0:
                return
        raise ValueError(f"layer {self.name!r} has no float32 weights [channels, n] with scales [channels, blocks]")

    @property
    def steps(self) -> np.ndarray:
        """The step of each weight, [channels, n]."""
        return np.repeat(self.scales, self.weights.shape[1] // self.scales.shape[1], axis=1)


class Codes(Struct, frozen=True, forbid_unknown_fields=True):
    """The codes of a tensor: clip(round(x / scale) + zero_point, low, high)."""

    scale: float
    zero_point: float
    low: float
    high: float


class Histogram(Struct, frozen=True, forbid_unknown_fields=True):
    """These scales are (t + 1/2) / bins * m / high for a whole t, least <= t < bins, with m the largest magnitude that
    calibration saw."""

    bins: int
    least: int

    def __post_init__(self) -> None:
        if not 0 < self.least < self.bins:
            raise ValueError(f"a histogram of {self.bins} bins cannot be cut at {self.least}")


class Operation(Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """One operation, by the names of its tensors.

    steps      how far what it rounds may be off, parts of a step or several
    in_order   of data that are moved: whether they keep their order
    computes   the ONNX operator, with `attributes`, whose result it gives, perhaps through `then`
    layer      the layer that holds its weights, or has them among its own: its operand times these is the result
    whole_bias its bias is cut to a whole number of steps of operand times weights
    values     the numbers it holds
    """

    name: str
    inputs: tuple[str, ...]
    outputs: Annotated[tuple[str, ...], Meta(min_length=1)]
    runs: Runs
    steps: float = 0.0
    in_order: bool = False
    whole_bias: bool = False
    layer: str = ""
    computes: str = ""
    then: str = ""
    attributes: dict[str, int | float | str | list[Any]] = {}
    values: np.ndarray | None = None


class Artifact(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of an artifact; all of it at its default where nothing is.

    model       a quantized ONNX model, serialized, where the target writes one; else
    layers      its weighted operators, as far as it says their weights
    tensors     the codes of its tensors;   histogram   how their scales were chosen
    operations  what it runs, in order; None where it does not tell
    reordered   tensors of the artifact that hold a tensor of the model in another order of its elements
    """

    model: bytes | None = None
    layers: tuple[Layer, ...] = ()
    tensors: dict[str, Codes] = {}
    histogram: Histogram | None = None
    reordered: dict[str, str] = {}
    operations: tuple[Operation, ...] | None = None


UNTOLD = Artifact()
