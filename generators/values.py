"""Value regimes: which numbers a tensor is filled with.

Every number comes from a pool of bytes that belongs to the genome. A byte is read through a palette whose order is
shrink order, so a pool of zero bytes gives the simplest tensors there are and a shrunk pool stays readable. A short
pool is read in a circle: one non-zero byte makes a whole tensor non-zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

FLOAT, DOUBLE, FLOAT16 = int(TensorProto.FLOAT), int(TensorProto.DOUBLE), int(TensorProto.FLOAT16)
INT8, UINT8, INT16, UINT16 = (
    int(t) for t in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16)
)
INT32, INT64, BOOL = int(TensorProto.INT32), int(TensorProto.INT64), int(TensorProto.BOOL)
INTEGERS = (INT64, INT32, INT8, UINT8)

NUMPY: dict[int, np.dtype[Any]] = {
    FLOAT: np.dtype(np.float32),
    DOUBLE: np.dtype(np.float64),
    FLOAT16: np.dtype(np.float16),
    INT8: np.dtype(np.int8),
    UINT8: np.dtype(np.uint8),
    INT16: np.dtype(np.int16),
    UINT16: np.dtype(np.uint16),
    INT32: np.dtype(np.int32),
    INT64: np.dtype(np.int64),
    BOOL: np.dtype(np.bool_),
}

ELEMENTS = 4096
"""No tensor of a generated graph has more elements than this."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Regime:
    """What one model's numbers look like. Each palette is in shrink order; an empty one means continuous values.

    data      graph inputs and other operands;  weight    trained parameters
    positive  variances and other numbers above zero
    exact     every partial sum of linear operators is meant to be exactly representable
    """

    name: str
    data: tuple[float, ...]
    weight: tuple[float, ...]
    positive: tuple[float, ...]
    exact: bool = False


_DYADIC = (0.0, 1.0, -1.0, 2.0, 0.5, -2.0, -0.5, 3.0, -3.0, 1.5, -1.5, 4.0, -4.0, 0.25, -0.25, -1.0)
_QUARTERS = (1.0, 4.0, 0.25)  # their square roots are dyadic too: BatchNormalization stays exact

CONSTRUCTED = Regime("constructed", _DYADIC, _DYADIC, _QUARTERS, exact=True)
RANDOM = Regime("random", (), (), ())
SPECIAL = (
    Regime("ties", (0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.5, 1.0, -1.0, 127.5, -128.5), _DYADIC, _QUARTERS),
    Regime("huge", (0.0, 1e6, -1e6, 1.0, -1.0, 65504.0, -65504.0, 3e8, -3e8), _DYADIC, _QUARTERS),
    Regime("tiny", (0.0, 1e-6, -1e-6, 1e-20, -1e-20, 1.0, -1.0, 1e-3), _DYADIC, _QUARTERS),
    Regime("negative", (-1.0, -2.0, -0.5, -3.0, -1.5, -4.0, -0.25, -8.0), _DYADIC, _QUARTERS),
    Regime("sparse", (0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 2.0), _DYADIC, _QUARTERS),
)
REGIMES = (CONSTRUCTED, RANDOM, CONSTRUCTED, RANDOM, CONSTRUCTED, RANDOM, CONSTRUCTED, RANDOM, *SPECIAL)
"""What the regime byte of a header chooses from."""


@dataclass(frozen=True, slots=True)
class Fill:
    """How a tensor that the graph is given gets its numbers.

    kind    "data", "weight", "positive" (see Regime) or "range": the integers low..high, the smallest magnitude first
    offset  where in the pool to start
    array   the numbers themselves, the same in every feed; then the other fields say nothing
    """

    kind: str = "data"
    offset: int = 0
    low: int = 0
    high: int = 1
    array: np.ndarray | None = None


@dataclass(frozen=True)
class _Tables:
    """The palettes of one regime as 256 numbers each, indexed by a byte; None where values are continuous."""

    tables: dict[str, np.ndarray | None]
    bounds: dict[str, tuple[float, float]]


def _expanded(palette: tuple[float, ...]) -> np.ndarray | None:
    return np.resize(np.array(palette, np.float32), 256) if palette else None


_CONTINUOUS_BOUNDS = {"data": (-4.0, 4.0), "weight": (-1.0, 1.0), "positive": (0.125, 4.125)}
_BY_REGIME = {
    r.name: _Tables(
        {kind: _expanded(getattr(r, kind)) for kind in _CONTINUOUS_BOUNDS},
        {
            kind: (min(getattr(r, kind)), max(getattr(r, kind))) if getattr(r, kind) else bounds
            for kind, bounds in _CONTINUOUS_BOUNDS.items()
        },
    )
    for r in REGIMES
}


def bounds(fill: Fill, regime: Regime) -> tuple[float, float]:
    """The lowest and highest number that `fill` can give."""
    if fill.array is not None:
        return (float(fill.array.min()), float(fill.array.max())) if fill.array.size else (0.0, 0.0)
    if fill.kind == "range":
        return float(fill.low), float(fill.high)
    return _BY_REGIME[regime.name].bounds[fill.kind]


def circle(pool: bytes) -> np.ndarray:
    """`pool` repeated so often that any tensor can be read from any offset in it."""
    return np.frombuffer(pool * (2 + 2 * ELEMENTS // len(pool)) if pool else bytes(4 * ELEMENTS), np.uint8)


def materialise(
    fill: Fill, dtype: int, shape: Shape, regime: Regime, pool: np.ndarray, period: int, shift: int = 0
) -> np.ndarray:
    """The numbers of one tensor. `pool` is a `circle` of `period` bytes; `shift` moves on in it, for another feed."""
    if fill.array is not None:
        return fill.array
    count = 1
    for n in shape:
        count *= n
    start = (fill.offset + shift) % period if period else 0
    numbers = _numbers(fill, pool[start : start + 2 * count], count, regime)
    return np.asarray(numbers, NUMPY[dtype]).reshape(shape)


def _numbers(fill: Fill, raw: np.ndarray, count: int, regime: Regime) -> np.ndarray:
    """`count` numbers from twice as many bytes."""
    if fill.kind == "range":
        size = fill.high - fill.low + 1
        whole = raw[:count].astype(np.int64) % size + max(fill.low, 0)
        return np.where(whole > fill.high, whole - size, whole)
    table = _BY_REGIME[regime.name].tables[fill.kind]
    if table is not None:
        return np.take(table, raw[:count])
    signed: np.ndarray = raw.view("<i2") * np.float32(2.0**-15)
    if fill.kind == "positive":
        signed = np.abs(signed) * np.float32(4.0) + np.float32(0.125)
    elif fill.kind == "data":
        signed *= np.float32(4.0)
    return signed
