"""Other dtypes for the same numbers, or for the same bits."""

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
    INT64,
    NUMPY,
    RANGES,
    codes,
)
from driftnet.generators.ops.registry import operator

SAME_WIDTH = dict(
    zip(codes("float double float16 int32 int64 int16 int8"), codes("int32 int64 int16 uint32 uint64 uint16 uint8"))
)


@operator("BitCast", weight=2.0)
def bit_cast(b: Builder) -> None:
    """The bits of x read as an integer of the same width"""
    x = data(b, dtypes=[dtype for dtype in b.types() if dtype in SAME_WIDTH])
    to = SAME_WIDTH[x.dtype]
    b.emit((x,), x, {"to": to}, dtype=to, bounds=RANGES[to])


TARGETS = codes("float int64 bool float int32 float16 float double uint8 int8 float int16 uint16 uint32 uint64")
INNER_TARGETS = codes("bfloat16 float8e4m3fn float8e5m2 int4 bfloat16 float8e4m3fnuz float8e5m2fnuz uint4")


@operator("CastLike", weight=0.4)
def cast_like(b: Builder) -> None:
    """x in the dtype of another tensor"""
    x = data(b, dtypes=b.types(op_type="Cast"))
    to = castable(x, b.choose("to", b.profile.of_dtypes(TARGETS)), b.types("T2", op_type="Cast"))
    shape = b.choose("shape", ((), (1,), (2, 1)))
    like = weight(b, "like", shape, dtype=to, sources=("initializer", "input", "constant"))
    b.emit((x, like), x, dtype=to, bounds=(0.0, 1.0) if to == BOOL else x)


@operator("Cast")
def cast(b: Builder) -> None:
    """y = x in another dtype; to an integer, only what lies inside its range"""
    x = data(b, dtypes=b.types(inner=True), empty=True)
    to = castable(x, b.choose("to", b.profile.of_dtypes((*TARGETS, *INNER_TARGETS))), b.types("T2", inner=True))
    attributes = {"to": to, "saturate": 1 if to in FLOAT8 else None}
    b.emit((x,), x, attributes, dtype=to, bounds=(0.0, 1.0) if to == BOOL else x)


def castable(x: Value, to: int, allowed: Sequence[int]) -> int:
    """`to` where x lies in its range, else the nearest dtype that is wide enough. No result is left to the engine."""
    if to in (BOOL, DOUBLE):
        return to
    if to in RANGES:
        least, most = RANGES[to]
        inside = least <= x.low and x.high <= min(most, 2.0**53) and to in allowed
        return to if inside else INT64 if x.magnitude < 2.0**53 else x.dtype if x.dtype in NUMPY else FLOAT
    largest = {FLOAT16: 6e4, FLOAT: 3e38, BFLOAT16: 3e38}.get(to, 240.0)
    return to if to in allowed and x.magnitude < largest else FLOAT
