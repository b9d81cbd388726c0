"""Operands: how an operator function gets its inputs.

Nothing is ever rejected: `data` names the n-th most recent value that fits, else makes a graph input; a parameter comes
from the source that its byte names, or from what comes nearest where that has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.generators.building import record
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Node, Value
from driftnet.generators.building.sizes import Sizes, fresh_rank, fresh_sizes, per_feed
from driftnet.generators.building.values import FLOAT, INT64, NUMPY, STORAGE, STRING, Fill, Shape, codes, limit

WEIGHT_SCALES = np.array([1 / 64, 1 / 128, 1 / 32], np.float32)  # dyadic: a dequantized weight stays exact

_CODED = (*[(11, "int8", 127)] * 5, (11, "uint8", 127), (21, "int4", 7), (19, "float8e4m3fn", 8))
"""What a dequantized weight is stored as: since which opset, dtype, the largest code."""

_CODES = {dtype: code for code, dtype in STORAGE.items()}
CONSTANTS = ("initializer", "constant")
NUMBERS = ("initializer", "constant", "initializer", "input")
"""Where indices, bounds and the like come from."""


DATA, WEIGHT, UNIT = Fill("data"), Fill("weight"), Fill("unit")
ANY_SIZES = Sizes()


@dataclass(frozen=True)
class Domain:
    """What an operand may hold.

    holds  whether an existing value will do;  fill  the numbers of a fresh input, with which it does
    """

    holds: Callable[[Value], bool]
    fill: Fill = DATA


ANYTHING = Domain(lambda value: True)
POSITIVE = Domain(lambda value: value.low > 0, Fill("positive"))


def tame(most: float, fill: Fill = DATA) -> Domain:
    """Below `most` (for float32; less in a narrower dtype), so that sums and products do not overflow."""
    return Domain(lambda value: value.magnitude < limit(value.dtype, most), fill)


def within(low: float, high: float, fill: Fill = UNIT) -> Domain:
    """From `low` to `high`."""
    return Domain(lambda value: low <= value.low and value.high <= high, fill)


def data(
    b: Builder,
    name: str = "x",
    *,
    dtypes: Sequence[int] = (),
    ranks: Sequence[int] = (0, 1, 2, 3, 4, 5, 6),
    fixed: Sequence[int] | None = (),
    sizes: Sizes = ANY_SIZES,
    domain: Domain = ANYTHING,
    empty: bool = False,
) -> Value:
    """An operand: a recent value of one of `dtypes` and `ranks`, else a fresh graph input.

    dtypes  by default those of the operator's first input
    fixed   axes that must have the same size in every feed (None: all of them)
    empty   whether a tensor without elements will do

    Of dtypes and ranks it has one that the profile has, where there is one.
    """
    dtypes, ranks = b.profile.of_dtypes(dtypes or b.types()), b.profile.of_ranks(ranks)
    empty = empty and b.profile.empty
    reference, wanted_rank = b.choose(name, record.REFERENCES), b.choose(f"{name}_rank", record.RANKS)
    flags = b.record.data[record.FLAGS_AT]
    narrow = _wished(b, dtypes)
    if reference != record.FRESH and not b.isolated:
        holds, multiple = domain.holds, sizes.multiple

        def suits(value: Value) -> bool:
            fits = value.rank in ranks and _is_fixed(value, fixed)
            return fits and (multiple == 1 or value.shape[1] % multiple == 0) and holds(value)

        if empty and b.empties and flags >= record.TAKES_EMPTY:
            found = _recent(b.empties, dtypes, reference, suits)
        else:
            found = _recent(b.candidates, narrow, reference, suits)
            if found is None and _wish(b) == record.MODEL and narrow is not dtypes:
                found = _recent(b.candidates, dtypes, reference, suits)
        if found is not None:
            return found
    rank = fresh_rank(b.header, wanted_rank, ranks)
    shape = sizes.bounded(fresh_sizes(b.header, b.record.data[record.SIZES_AT], rank, isolated=b.isolated))
    if empty and rank and flags >= record.MAKES_EMPTY:
        shape[flags // 8 % rank] = 0
    held = [*range(rank if fixed is None or b.isolated else len(sizes.most)), *_present(fixed or (), rank)]
    return fresh(b, narrow[0], per_feed(b.header, shape, held), domain.fill)


def _wish(b: Builder) -> int:
    return record.WISHES[b.record.data[record.DTYPE_AT] % len(record.WISHES)]


def _wished(b: Builder, dtypes: Sequence[int]) -> Sequence[int]:
    """Of `dtypes` the one that the record would have, or all of them."""
    wish = _wish(b)
    wish = b.header.dtype if wish == record.MODEL else wish
    return (wish,) if wish in dtypes else dtypes


def _recent(
    values: Sequence[Value], dtypes: Sequence[int], reference: int, suits: Callable[[Value], bool]
) -> Value | None:
    """The most recent value that suits but for `reference` of them, or the oldest if there are not so many."""
    found = None
    for value in reversed(values):
        if value.dtype in dtypes and suits(value):
            found = value
            if reference == 0:
                break
            reference -= 1
    return found


def _present(axes: Sequence[int], rank: int) -> list[int]:
    """Those of `axes` that a tensor of `rank` has, counted from 0."""
    return [axis % rank for axis in axes if -rank <= axis < rank]


def _is_fixed(value: Value, axes: Sequence[int] | None) -> bool:
    if axes is None:
        return value.static
    return not axes or all(value.fixed(axis) for axis in _present(axes, value.rank))


def fresh(b: Builder, dtype: int, shapes: Shape | tuple[Shape, ...], fill: Fill) -> Value:
    """A new graph input that later records may refer to."""
    fill = Fill(fill.kind, b.next_offset() if fill.array is None else 0, fill.low, fill.high, fill.array)
    value = b.given("input", dtype if dtype in NUMPY else FLOAT, b.shapes(shapes), fill)
    b.offer(value)
    return value if value.dtype == dtype else b.cast(value, dtype)


def find(b: Builder, fits: Callable[[Value], bool]) -> Value | None:
    """The most recent value that fits, if there is one and this record may refer to others."""
    return None if b.isolated else next((value for value in reversed(b.candidates) if fits(value)), None)


def weight(
    b: Builder,
    name: str,
    shapes: Shape | tuple[Shape, ...],
    *,
    dtype: int = FLOAT,
    fill: str = "weight",
    sources: Sequence[str] = record.SOURCES,
) -> Value:
    """A parameter of this shape (or one for each feed), from one of `sources`. fill: see Fill."""
    return made(b, b.choose(name, sources), b.shapes(shapes), dtype, fill)


def optional(b: Builder, name: str, shape: Shape, *, dtype: int = FLOAT) -> Value | None:
    """A parameter that may be left out."""
    source = b.choose(name, record.OPTIONAL_SOURCES)
    return None if source == "absent" else made(b, source, b.shapes(shape), dtype, "weight")


def made(b: Builder, source: str, shapes: tuple[Shape, ...], dtype: int, kind: str) -> Value:
    """An operand from `source`, by whatever else comes nearest where that has none.

    A shape that differs between the feeds forces a graph input.
    """
    fill = Fill(kind, b.next_offset())
    if source not in b.profile.weights or (source == "input" and dtype not in NUMPY):
        source = "initializer"
    if source == "shared" and not b.isolated:
        for given in reversed(b.givens):
            if given.fill.kind == kind and given.value.shapes == shapes and given.value.dtype == dtype:
                return given.value
    if source == "value" and kind == "weight":
        found = find(b, lambda v: v.shapes == shapes and v.dtype == dtype)
        if found is not None:
            return found
    if source == "input" or any(shape != shapes[0] for shape in shapes):
        value = b.given("input", dtype if dtype in NUMPY else FLOAT, shapes, fill)
        return value if value.dtype == dtype else b.cast(value, dtype)
    if source == "dequantized" and kind == "weight" and dtype == FLOAT:
        return _dequantized(b, shapes[0], fill)
    return b.given("constant" if source == "constant" else "initializer", dtype, shapes, fill)


def _dequantized(b: Builder, shape: Shape, fill: Fill) -> Value:
    """Codes and a DequantizeLinear, per channel of axis 0 where the opset has that (13)."""
    per_channel = b.opset >= 13 and len(shape) > 1
    since, name, top = _CODED[fill.offset % len(_CODED)]
    if b.opset < since:
        name, top = "int8", 127
    numbers = Fill("range", fill.offset, 0 if name == "uint8" else -top, top)
    stored = b.given("initializer", codes(name)[0], b.shapes(shape), numbers)
    scale = fixed(b, "initializer", np.resize(WEIGHT_SCALES, shape[:1] if per_channel else ()))
    result = b.value(FLOAT, stored.shapes, (-4.0, 4.0))
    attributes = {"axis": 0} if per_channel else {}
    b.nodes.append(Node("DequantizeLinear", (stored.index, scale.index), (result.index,), attributes))
    return result


def scalar(
    b: Builder, name: str, number: float | None, sources: Sequence[str] = CONSTANTS, *, dtype: int = FLOAT
) -> Value | None:
    """A 0-D constant, or None for None."""
    source = b.choose(name, sources)
    return None if number is None else fixed(b, source, np.array(number, STORAGE[dtype]))


def integers(b: Builder, name: str, numbers: Sequence[int], sources: Sequence[str] = CONSTANTS) -> Value:
    """A 1-D int64 constant (axes, a target shape, repeats)."""
    return constant(b, name, np.array(numbers, np.int64), sources)


def constant(b: Builder, name: str, array: np.ndarray, sources: Sequence[str] = CONSTANTS) -> Value:
    """A tensor of certain numbers."""
    return fixed(b, b.choose(name, sources), array)


def fixed(b: Builder, source: str, array: np.ndarray) -> Value:
    """A tensor of certain numbers from a certain source, without a choice."""
    dtype = STRING if array.dtype == object else _CODES[array.dtype]
    if source not in b.profile.numbers or (source == "input" and dtype not in NUMPY):
        source = "initializer"
    return b.given(source, dtype, (array.shape,) * b.header.feeds, Fill(array=array))


def whole(
    b: Builder,
    name: str,
    shapes: Shape | tuple[Shape, ...],
    low: int,
    high: int,
    *,
    dtype: int = INT64,
    sources: Sequence[str] = NUMBERS,
) -> Value:
    """Integers low..high, in one shape or one for each feed: indices, labels, codes, lengths."""
    source, fill, shapes = b.choose(name, sources), Fill("range", b.next_offset(), low, high), b.shapes(shapes)
    if any(shape != shapes[0] for shape in shapes):
        source = "input"
    elif source not in b.profile.numbers:
        source = "initializer"
    return b.given(source, dtype, shapes, fill)


def shape_of(b: Builder, x: Value) -> Value:
    """The shape of x, computed."""
    return b.emit((x,), (x.rank,), op_type="Shape", dtype=INT64, bounds=(1.0, 4096.0))
