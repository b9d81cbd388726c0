"""Other dtypes for the same numbers, or for the same bits."""

from __future__ import annotations

from collections.abc import Sequence

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, weight
from driftnet.generators.building.values import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT8,
    FLOAT16,
    INT4,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMPY,
    RANGES,
    UINT4,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from driftnet.generators.ops.elementwise import magnitude
from driftnet.generators.ops.registry import operator

SAME_WIDTH = {FLOAT: INT32, DOUBLE: INT64, FLOAT16: INT16, INT32: UINT32, INT64: UINT64, INT16: UINT16, INT8: UINT8}


@operator("BitCast", since=26, weight=2.0)
def bit_cast(b: Builder) -> None:
    """The bits of x read as an integer of the same width"""
    x = data(b, dtypes=[dtype for dtype in b.types("BitCast", "T1") if dtype in SAME_WIDTH])
    to = SAME_WIDTH[x.dtype]
    b.emit("BitCast", (x,), x.shapes, {"to": to}, dtype=to, bounds=RANGES[to])


@operator("CastLike", since=15, weight=0.4)
def cast_like(b: Builder) -> None:
    """x in the dtype of another tensor"""
    x = data(b, dtypes=b.types("Cast", "T1"))
    to = castable(x, b.choose("to", TARGETS), b.types("Cast", "T2"))
    shape = b.choose("shape", ((), (1,), (2, 1)))
    like = weight(b, "like", shape, dtype=to, sources=("initializer", "input", "constant"))
    bounds = (0.0, 1.0) if to == BOOL else (x.low, x.high)
    b.emit("CastLike", (x, like), x.shapes, dtype=to, bounds=bounds)


TARGETS = (FLOAT, INT64, BOOL, FLOAT, INT32, FLOAT16, FLOAT, DOUBLE, UINT8, INT8, FLOAT, INT16, UINT16, UINT32, UINT64)
INNER_TARGETS = (BFLOAT16, *FLOAT8[:2], INT4, BFLOAT16, *FLOAT8[2:], UINT4)


@operator("Cast")
def cast(b: Builder) -> None:
    """y = x in another dtype; to an integer, only what lies inside its range"""
    x = data(b, dtypes=b.types("Cast", "T1", inner=True), empty=True)
    to = castable(x, b.choose("to", (*TARGETS, *INNER_TARGETS)), b.types("Cast", "T2", inner=True))
    attributes = {"to": to, "saturate": b.unless(1, 1) if b.opset >= 19 and to in FLOAT8 else None}
    b.emit("Cast", (x,), x.shapes, attributes, dtype=to, bounds=(0.0, 1.0) if to == BOOL else (x.low, x.high))


def castable(x: Value, to: int, allowed: Sequence[int]) -> int:
    """`to` where x lies in its range, else the nearest dtype that is wide enough. No result is left to the engine."""
    if to == BOOL:
        return to
    if to in RANGES:
        least, most = RANGES[to]
        inside = least <= x.low and x.high <= min(most, 2.0**53) and to in allowed
        return to if inside else INT64 if magnitude(x) < 2.0**53 else x.dtype if x.dtype in NUMPY else FLOAT
    if to == DOUBLE:
        return to
    return to if to in allowed and magnitude(x) < limit_of_float(to) else FLOAT


def limit_of_float(dtype: int) -> float:
    """What a number must stay below to be finite in a dtype of floats."""
    return {FLOAT16: 6e4, FLOAT: 3e38, BFLOAT16: 3e38}.get(dtype, 240.0)
