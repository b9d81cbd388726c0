"""Value regimes: which numbers a tensor is filled with.

Every number comes from a pool of bytes that belongs to the genome. A byte is read through a palette whose order is
shrink order, so a pool of zero bytes gives the simplest tensors there are and a shrunk pool stays readable. A short
pool is read in a circle: one non-zero byte makes a whole tensor non-zero.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper


def codes(names: str) -> tuple[int, ...]:
    """The dtypes that these words name, as ONNX numbers them."""
    return tuple([int(TensorProto.DataType.Value(name.upper())) for name in names.split()])


FLOAT, DOUBLE, FLOAT16, BFLOAT16 = codes("float double float16 bfloat16")
FLOAT8 = codes("float8e4m3fn float8e5m2 float8e4m3fnuz float8e5m2fnuz")
INT8, UINT8, INT16, UINT16, INT32, UINT32 = codes("int8 uint8 int16 uint16 int32 uint32")
INT64, UINT64, INT4, UINT4, BOOL, STRING = codes("int64 uint64 int4 uint4 bool string")

NUMPY: dict[int, np.dtype[Any]] = {
    code: np.dtype(helper.tensor_dtype_to_np_dtype(code))
    for code in codes("float double float16 int8 uint8 int16 uint16 int32 int64 uint32 uint64 bool")
}
"""The dtypes of graph inputs and outputs. All others stay inside a graph."""

STORAGE = NUMPY | {code: np.dtype(helper.tensor_dtype_to_np_dtype(code)) for code in (BFLOAT16, *FLOAT8, INT4, UINT4)}

RANGES: dict[int, tuple[float, float]] = {
    BOOL: (0.0, 1.0),
    INT4: (-8.0, 7.0),
    UINT4: (0.0, 15.0),
    **{code: (float(np.iinfo(t).min), float(np.iinfo(t).max)) for code, t in NUMPY.items() if t.kind in "iu"},
}
"""The smallest and the largest number of each dtype of integers."""

_TAME = {FLOAT16: 36.0, INT8: 8.0, UINT8: 12.0, INT16: 128.0, UINT16: 200.0, INT32: 2.0**15, UINT32: 2.0**15}

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
    Regime("faint", (0.0, 1e-6, -1e-6, 5e-7, -3e-7, 1e-8), _DYADIC, _QUARTERS),  # less than a bias can be quantized to
    Regime("negative", (-1.0, -2.0, -0.5, -3.0, -1.5, -4.0, -0.25, -8.0), _DYADIC, _QUARTERS),
    Regime("sparse", (0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 2.0), _DYADIC, _QUARTERS),
)
REGIMES = (CONSTRUCTED, RANDOM, CONSTRUCTED, RANDOM, CONSTRUCTED, RANDOM, CONSTRUCTED, RANDOM, *SPECIAL)
"""What the regime byte of a header chooses from."""


@dataclass(frozen=True, slots=True)
class Fill:
    """How a tensor that the graph is given gets its numbers.

    kind    "data", "weight", "positive" (see Regime); "range": the integers low..high, the smallest magnitude first;
            "nonfinite": infinities and NaN among small numbers; "unit": numbers in -1..1, without the ends
    offset  where in the pool to start
    array   the numbers themselves, the same in every feed; then the other fields say nothing
    """

    kind: str = "data"
    offset: int = 0
    low: int = 0
    high: int = 1
    array: np.ndarray | None = None


_NONFINITE = np.array((0.0, 1.0, np.nan, np.inf, -1.0, -np.inf, 0.5, np.nan), np.float32)
_CONTINUOUS = {"data": (-4.0, 4.0), "weight": (-1.0, 1.0), "positive": (0.125, 4.125)}
_PALETTES: dict[tuple[str, str], tuple[float, ...]] = {
    (r.name, kind): getattr(r, kind) for r in REGIMES for kind in _CONTINUOUS
}
_TABLES = {key: np.resize(np.array(palette, np.float32), 256) for key, palette in _PALETTES.items() if palette}
"""The palettes as 256 numbers each, indexed by a byte."""
_BOUNDS = {key: (min(palette), max(palette)) if palette else _CONTINUOUS[key[1]] for key, palette in _PALETTES.items()}


def limit(dtype: int, most: float) -> float:
    """`most`, which suits float32, or how large operands may be in `dtype` that products of a few stay in range."""
    return min(_TAME.get(dtype, 2.0**31 if dtype in RANGES else most), most)


def clamped(dtype: int, low: float, high: float) -> tuple[float, float]:
    """The bounds of numbers that lie in low..high before they are put into `dtype`; integers wrap around."""
    if dtype not in RANGES:
        return low, high
    least, most = RANGES[dtype]
    return (low, high) if least <= low and high <= most else (least, most)


def bounds(fill: Fill, regime: Regime, dtype: int) -> tuple[float, float]:
    """The lowest and highest number that `fill` can give."""
    if fill.array is not None:
        return (float(fill.array.min()), float(fill.array.max())) if fill.array.size else (0.0, 0.0)
    if fill.kind == "range":
        return float(fill.low), float(fill.high)
    if fill.kind == "nonfinite":
        return -math.inf, math.inf
    if fill.kind == "unit":
        return -0.875, 0.875
    low, high = _BOUNDS[regime.name, fill.kind]
    if dtype in (FLOAT, DOUBLE):
        return low, high
    if dtype in RANGES:
        least, most = RANGES[dtype]
        if fill.kind == "positive":
            return 1.0, max(1.0, min(round(high), most))
        low, high = _stretched(regime, fill.kind) * low, _stretched(regime, fill.kind) * high
        return max(least, min(round(low), 0.0)), max(min(round(max(high, -low)), most), 0.0)
    return max(low, -_LARGEST_HALF), min(high, _LARGEST_HALF)


_LARGEST_HALF = 32.0
"""float16 and smaller floats stay below this: their cubes are still finite."""


def _stretched(regime: Regime, kind: str) -> float:
    """Continuous weights lie in -1..1: as integers they would be nearly all zero."""
    return 4.0 if kind == "weight" and not regime.weight else 1.0


def circle(pool: bytes) -> np.ndarray:
    """`pool` repeated so often that any tensor can be read from any offset in it."""
    return np.frombuffer(pool * (2 + 2 * ELEMENTS // len(pool)) if pool else bytes(4 * ELEMENTS), np.uint8)


def materialize(
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
    if dtype != FLOAT and fill.kind != "range":
        numbers = _in_range(numbers, fill, dtype, regime)
    return np.asarray(numbers, STORAGE[dtype]).reshape(shape)


def _in_range(numbers: np.ndarray, fill: Fill, dtype: int, regime: Regime) -> np.ndarray:
    """`numbers` as `dtype` can hold them: integers rounded, and without sign where there is none."""
    if dtype == BOOL:
        return numbers > 0
    if dtype not in RANGES:
        tame = dtype == DOUBLE or fill.kind == "nonfinite"
        return numbers if tame else np.clip(numbers, -_LARGEST_HALF, _LARGEST_HALF)
    least, most = RANGES[dtype]
    whole = np.rint(numbers * np.float32(_stretched(regime, fill.kind))).astype(np.float64)
    if fill.kind == "positive":
        return np.clip(np.abs(whole), 1.0, most)
    return np.clip(whole if least < 0 else np.abs(whole), least, min(most, 2.0**62))


def _numbers(fill: Fill, raw: np.ndarray, count: int, regime: Regime) -> np.ndarray:
    """`count` numbers from twice as many bytes."""
    if fill.kind == "range":
        size = fill.high - fill.low + 1
        whole = raw[:count].astype(np.int64) % size + max(fill.low, 0)
        return np.where(whole > fill.high, whole - size, whole)
    if fill.kind == "nonfinite":
        return np.take(_NONFINITE, raw[:count] % len(_NONFINITE))
    if fill.kind == "unit":
        return _numbers(Fill("weight"), raw, count, regime) * np.float32(0.125 if regime.weight else 0.875)
    table = _TABLES.get((regime.name, fill.kind))
    if table is not None:
        return np.take(table, raw[:count])
    signed: np.ndarray = raw.view("<i2") * np.float32(2.0**-15)
    if fill.kind == "positive":
        signed = np.abs(signed) * np.float32(4.0) + np.float32(0.125)
    elif fill.kind == "data":
        signed *= np.float32(4.0)
    return signed
