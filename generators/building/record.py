"""Record: the bytes that one node is made from, read one choice after the other."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from driftnet.generators.building.values import codes

T = TypeVar("T")

RECORD = 28
"""Bytes of a record."""

SIZES_AT, OFFSET_AT, FLAGS_AT, DTYPE_AT, CHOICES = slice(1, 5), 5, 6, 7, 8
"""Where a record has what: byte 0 the operator, then four sizes, where to start in the pool, flags, the dtype it would
have, and from CHOICES on one byte a choice. LSTM makes the most choices, 17."""

TAKES_EMPTY, MAKES_EMPTY = 192, 240
"""From which flags on a record takes a tensor without elements, and makes one, where it may."""

# What the bytes of a record choose from, whatever its operator.
MODEL, ANY = -2, -1
WISHES = (
    *[MODEL] * 14,
    *[ANY] * 5,
    *codes("float16 double int64 int32 bool uint8 int8 uint16 int16 uint32 uint64 bfloat16 float16 double"),
)
"""The dtype that one record would have. MODEL: the model's own; ANY: that of the most recent value."""
RANKS = (None, None, None, None, 4, 3, None, 2, 1, 5, 0, 6, 3, 4, 2, 1, 5, None, 3)
"""The rank of a fresh operand. None: the model's own."""
FRESH = 99
"""The reference that asks for a new graph input."""
REFERENCES = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, FRESH)
"""The n-th most recent fitting value. Chains are what converters fuse, hence the bias towards the latest."""
SOURCES = ("initializer", "initializer", "constant", "initializer", "input", "shared", "value", "dequantized")
"""Where a parameter comes from (see `driftnet.generators.building.operands.made`)."""
OPTIONAL_SOURCES = ("absent", "initializer", "absent", "absent", "constant", "input", "shared", "initializer")


class Chooser(Protocol):
    """Where the choices of one record come from."""

    data: bytes

    def choose(self, name: str, options: Sequence[T]) -> T: ...


class Record:
    """Reads one record: each choice takes the next byte; past the end everything is the simplest."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._cursor = CHOICES

    def choose(self, name: str, options: Sequence[T]) -> T:
        byte = self.data[self._cursor] if self._cursor < len(self.data) else 0
        self._cursor += 1
        return options[byte % len(options)]
