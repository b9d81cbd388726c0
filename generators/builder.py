"""Builder: what an operator function sees while it adds its node to the graph.

An operator function reads its parameters from a record (`choose`), resolves its operands (`data`, `weight`, `constant`)
and emits its node (`emit`). Nothing is ever rejected: a reference names the n-th most recent value that fits, else a
fresh graph input is made, and parameters are clamped into their legal range. Which byte a choice reads should not
depend on what stands around the record, so that deleting a record leaves the meaning of every other byte alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from math import prod
from typing import Any, Protocol, TypeVar

import numpy as np

from generators import values
from generators.graph import Attribute, Body, Given, GraphSpec, Node, Value
from generators.ops import kernels
from generators.values import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    ELEMENTS,
    FLOAT,
    FLOAT8,
    FLOAT16,
    INT4,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMPY,
    STORAGE,
    STRING,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Fill,
    Regime,
    Shape,
)

T = TypeVar("T")

HEADER = 10
RECORD = 28
"""Bytes of a header and of a record."""

SIZES_AT, _OFFSET, FLAGS_AT, DTYPE_AT, CHOICES = slice(1, 5), 5, 6, 7, 8
"""Where a record has what: byte 0 the operator, then four sizes, where to start in the pool, flags, the dtype it would
have, and from CHOICES on one byte a choice. LSTM makes the most choices, 17."""

TAKES_EMPTY, MAKES_EMPTY = 192, 240
"""From which flags on a record takes a tensor without elements, and makes one, where it may."""

# What the bytes of a header choose from.
OPSETS = (17, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 18, 21, 13)
EVERY_AXIS = (0, 1, 2, 3, 4, 5)
DYNAMIC: tuple[tuple[int, ...], ...] = ((), (0,), (), (0, -1), (-1,), (0,), (0, 1), (0, -1, -2), (-2,), EVERY_AXIS)
GROWTHS = (1, 2, 3, 1, 5)
BATCHES = (1, 2, 1, 3, 2, 4, 5)
PREFERRED_RANKS = (2, 4, 3, 4, 3, 4, 2, 1, 5)
FORMS = (*["plain"] * 10, *["literal"] * 3, "unnamed", "listed", "described")
"""How the file is written, see GraphSpec.form."""
MODEL_DTYPES = (*[FLOAT] * 24, FLOAT16, DOUBLE, INT64, INT32, INT8, UINT8)
"""The dtype that the operators of a model have where they can."""

# What the bytes of a record choose from, whatever its operator.
SIZES = (1, 2, 3, 4, 5, 6, 8, 4, 7, 3, 9, 10, 12, 2, 16)
WIDE = (65, 72, 66, 100, 67, 129)
"""Channels of a fresh operand, now and then: more than any vector loop takes at once, and mostly no multiple of it."""
MODEL, ANY = -2, -1
WISHES = (
    *[MODEL] * 14,
    *[ANY] * 5,
    *(FLOAT16, DOUBLE, INT64, INT32, BOOL, UINT8, INT8, UINT16, INT16, UINT32, UINT64, BFLOAT16, FLOAT16, DOUBLE),
)
"""The dtype that one record would have. MODEL: the model's own; ANY: that of the most recent value."""
RANKS = (None, None, None, None, 4, 3, None, 2, 1, 5, 0, 6, 3, 4, 2, 1, 5, None, 3)
"""The rank of a fresh operand. None: the model's own."""
FRESH = 99
"""The reference that asks for a new graph input."""
REFERENCES = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, FRESH)
"""The n-th most recent fitting value. Chains are what converters fuse, hence the bias towards the latest."""
SOURCES = ("initializer", "initializer", "constant", "initializer", "input", "shared", "value", "dequantized")
OPTIONAL_SOURCES = ("absent", "initializer", "absent", "absent", "constant", "input", "shared", "initializer")
WEIGHT_SCALES = np.array([1 / 64, 1 / 128, 1 / 32], np.float32)  # dyadic: a dequantised weight stays exact

_CODED = (*[(11, INT8, 127)] * 5, (11, UINT8, 127), (21, INT4, 7), (19, FLOAT8[0], 8))
"""What a dequantised weight is stored as: since which opset, dtype, the largest code."""

INPUT_ELEMENTS = 512
"""A fresh operand has no more elements (but for a wide one), so that operators which multiply sizes mostly stay under
`ELEMENTS`."""

_BYTES = range(256)
_CODES = {dtype: code for code, dtype in STORAGE.items()}
_DATA = Fill("data")


def _anything(value: Value) -> bool:
    return True


@dataclass(frozen=True)
class Header:
    """What holds for a whole model, read from the first bytes of a genome."""

    opset: int
    dynamic: tuple[int, ...]
    growth: int
    feeds: int
    batch: int
    regime: Regime
    rank: int
    every_sink: bool
    annotated: bool
    dtype: int
    form: str

    @staticmethod
    def read(data: bytes) -> Header:
        opset, dynamic, growth, batch, regime, rank, every_sink, annotated, dtype, form = data
        axes = DYNAMIC[dynamic % len(DYNAMIC)]
        return Header(
            opset=OPSETS[opset % len(OPSETS)],
            dynamic=axes,
            growth=GROWTHS[growth % len(GROWTHS)],
            feeds=2 if axes or growth >= 128 else 1,
            batch=BATCHES[batch % len(BATCHES)],
            regime=values.REGIMES[regime % len(values.REGIMES)],
            rank=PREFERRED_RANKS[rank % len(PREFERRED_RANKS)],
            every_sink=every_sink % 2 == 1,
            annotated=annotated % 2 == 1,
            dtype=MODEL_DTYPES[dtype % len(MODEL_DTYPES)],
            form=FORMS[form % len(FORMS)],
        )


@dataclass(frozen=True)
class Profile:
    """Where operands may come from, for a toolchain that wants some of them constant. The default allows everything.

    weights  parameters: kernels, biases, scales, initial states
    numbers  what decides a shape: axes, sizes, repeats, bounds of slices
    """

    weights: tuple[str, ...] = ("initializer", "constant", "input", "shared", "value", "dequantized")
    numbers: tuple[str, ...] = ("initializer", "constant", "input")


CONSTANT_NUMBERS = Profile(numbers=("initializer",))
CONSTANT_OPERANDS = Profile(weights=("initializer", "shared"), numbers=("initializer",))


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


class TooLarge(Exception):
    """A tensor would have more than `ELEMENTS` elements. The record is decoded again on fresh operands of size 1."""


def each(rule: Callable[..., Shape], *operands: Value) -> tuple[Shape, ...]:
    """The shape that `rule` gives for the operands' shapes, in each feed."""
    return tuple([rule(*shapes) for shapes in zip(*[operand.shapes for operand in operands])])


class Builder:
    """A graph under construction."""

    def __init__(self, header: Header, opset: int, profile: Profile | None = None) -> None:
        self.header, self.opset, self.regime = header, opset, header.regime
        self.profile = profile or Profile()
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.givens: list[Given] = []
        self.candidates: list[Value] = []
        self.empties: list[Value] = []
        self.extra: list[int] = []
        self.results: list[Value] = []
        self._isolated = False
        self._offset = 0
        self._record: Chooser = Record(b"")

    # One record

    def add(self, function: Callable[[Builder], None], record: Callable[[], Chooser]) -> None:
        """Let an operator function add its node, decoding what `record` opens."""
        lists: tuple[list[Any], ...] = (self.values, self.nodes, self.givens, self.candidates, self.empties)
        before = [len(made) for made in lists]
        try:
            self._run(function, record(), isolated=False)
        except TooLarge:
            for made, size in zip(lists, before):
                del made[size:]
            self._run(function, record(), isolated=True)
        if self._record.data[FLAGS_AT] % 8 == 7:
            self.extra.extend(value.index for value in self.results)

    def _run(self, function: Callable[[Builder], None], record: Chooser, *, isolated: bool) -> None:
        self._record, self._isolated, self._offset, self.results = record, isolated, 3 * record.data[_OFFSET], []
        function(self)

    # Choices

    def choose(self, name: str, options: Sequence[T]) -> T:
        """One of `options`, the first being the simplest. `name` is how a motif asks for a certain one."""
        return self._record.choose(name, options)

    def flag(self, name: str) -> bool:
        return self.choose(name, (False, True))

    def axis(self, name: str, rank: int) -> int:
        """An axis of a tensor of `rank` (at least 1), negative as often as not."""
        byte = self.choose(name, _BYTES)
        axis = byte // 2 % rank
        return axis - rank if byte % 2 else axis

    def few(self, count: int) -> int:
        """`count`, or at most 4 where this record has been found to make something too large."""
        return min(count, 4) if self._isolated else count

    @property
    def explicit(self) -> bool:
        """Whether attributes that equal their default are written out."""
        return self._record.data[FLAGS_AT] // 8 % 2 == 1

    def unless(self, value: T, default: T) -> T | None:
        """`value`, or None (leave the attribute out) where it is the default and this record is not explicit."""
        return None if value == default and not self.explicit else value

    # Operands

    def data(
        self,
        name: str = "x",
        *,
        dtypes: Sequence[int] = (FLOAT,),
        ranks: Sequence[int] = (0, 1, 2, 3, 4, 5, 6),
        fixed: Sequence[int] | None = (),
        least: Shape = (),
        most: Shape = (),
        multiple: int = 1,
        fits: Callable[[Value], bool] = _anything,
        fill: Fill = _DATA,
        empty: bool = False,
    ) -> Value:
        """An operand: a recent value of one of `dtypes` and `ranks`, else a fresh graph input.

        fixed        axes that must have the same size in every feed (None: all of them)
        multiple     what the size of axis 1 must be a multiple of
        fits         what else an existing value must meet
        least, most  bounds on the sizes of a fresh input, from axis 0 on, so that it meets `fits` and nothing needs
                     clamping: a record should not depend on another one to have made room for it
        fill         the numbers of a fresh input, such that it meets `fits`
        empty        whether a tensor without elements will do
        """
        reference, rank = self.choose(name, REFERENCES), self.choose(f"{name}_rank", RANKS)
        wish = WISHES[self._record.data[DTYPE_AT] % len(WISHES)]
        model = self.header.dtype
        narrow = dtypes
        if wish in dtypes:
            narrow = (wish,)
        elif wish == MODEL and model in dtypes:
            narrow = (model,)
        if reference != FRESH and not self._isolated:

            def suits(value: Value) -> bool:
                return (
                    value.rank in ranks
                    and _is_fixed(value, fixed)
                    and (multiple == 1 or value.shape[1] % multiple == 0)
                    and fits(value)
                )

            if empty and self.empties and self._record.data[FLAGS_AT] >= TAKES_EMPTY:
                found = self._recent(self.empties, dtypes, reference, suits)
            else:
                found = self._recent(self.candidates, narrow, reference, suits)
                if found is None and wish == MODEL and narrow is not dtypes:
                    found = self._recent(self.candidates, dtypes, reference, suits)
            if found is not None:
                return found
        sizes = self._fresh_sizes(self._fresh_rank(rank, ranks), least, most, multiple)
        if empty and sizes and self._record.data[FLAGS_AT] >= MAKES_EMPTY:
            sizes[self._record.data[FLAGS_AT] // 8 % len(sizes)] = 0
        return self.fresh(narrow[0], self._per_feed(sizes, fixed, most), fill)

    @staticmethod
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

    def types(self, op_type: str, parameter: str = "T", *, inner: bool = False) -> tuple[int, ...]:
        """The dtypes that `parameter` of `op_type` may have, as this opset and the engine have it.

        inner  whether those that no graph input can have (bfloat16, float8, int4) are among them
        """
        return _types(op_type, self.opset, parameter, inner)

    def find(self, fits: Callable[[Value], bool]) -> Value | None:
        """The most recent value that fits, if there is one and this record may refer to others."""
        if self._isolated:
            return None
        return next((value for value in reversed(self.candidates) if fits(value)), None)

    def weight(
        self, name: str, shape: Shape, *, dtype: int = FLOAT, fill: str = "weight", sources: Sequence[str] = SOURCES
    ) -> Value:
        """A parameter of this shape, from one of `sources`. fill: see Fill."""
        return self.made(self.choose(name, sources), (shape,) * self.header.feeds, dtype, fill)

    def optional(self, name: str, shape: Shape, *, dtype: int = FLOAT, fill: str = "weight") -> Value | None:
        """A parameter that may be left out."""
        source = self.choose(name, OPTIONAL_SOURCES)
        return None if source == "absent" else self.made(source, (shape,) * self.header.feeds, dtype, fill)

    def scalar(
        self,
        name: str,
        number: float | None,
        sources: Sequence[str] = ("initializer", "constant"),
        *,
        dtype: int = FLOAT,
    ) -> Value | None:
        """A 0-D constant, or None for None."""
        source = self.choose(name, sources)
        return None if number is None else self.fixed(source, np.array(number, STORAGE[dtype]))

    def integers(
        self, name: str, numbers: Sequence[int], sources: Sequence[str] = ("initializer", "constant")
    ) -> Value:
        """A 1-D int64 constant (axes, a target shape, repeats)."""
        return self.fixed(self.choose(name, sources), np.array(numbers, np.int64))

    def whole(
        self,
        name: str,
        shapes: tuple[Shape, ...],
        low: int,
        high: int,
        *,
        dtype: int = INT64,
        sources: Sequence[str] = ("initializer", "constant", "initializer", "input"),
    ) -> Value:
        """Integers low..high: indices, labels, codes, lengths."""
        source, fill = self.choose(name, sources), Fill("range", self._next_offset(), low, high)
        if any(shape != shapes[0] for shape in shapes):
            source = "input"
        elif source not in self.profile.numbers:
            source = "initializer"
        return self.given(source, dtype, shapes, fill)

    def constant(self, name: str, array: np.ndarray, sources: Sequence[str] = ("initializer", "constant")) -> Value:
        """A tensor of certain numbers."""
        return self.fixed(self.choose(name, sources), array)

    def fresh(self, dtype: int, shapes: tuple[Shape, ...], fill: Fill) -> Value:
        """A new graph input that later records may refer to."""
        offset = self._next_offset() if fill.array is None else 0
        fill = Fill(fill.kind, offset, fill.low, fill.high, fill.array)
        value = self.given("input", dtype if dtype in NUMPY else FLOAT, shapes, fill)
        self._offer(value)
        return value if value.dtype == dtype else self.cast(value, dtype)

    def cast(self, x: Value, dtype: int) -> Value:
        """x in another dtype."""
        return self.emit("Cast", (x,), x.shapes, {"to": dtype}, dtype=dtype)

    def _offer(self, value: Value) -> None:
        """Let later records refer to `value`, unless it holds infinities."""
        if not value.container and not math.isinf(value.high):
            (self.empties if value.empty else self.candidates).append(value)

    def made(self, source: str, shapes: tuple[Shape, ...], dtype: int, kind: str) -> Value:
        """An operand from `source`, by whatever else comes nearest where that has none.

        A shape that differs between the feeds forces a graph input.
        """
        fill = Fill(kind, self._next_offset())
        if source not in self.profile.weights or (source == "input" and dtype not in NUMPY):
            source = "initializer"
        if source == "shared" and not self._isolated:
            for given in reversed(self.givens):
                if given.fill.kind == kind and given.value.shapes == shapes and given.value.dtype == dtype:
                    return given.value
        if source == "value" and kind == "weight":
            found = self.find(lambda v: v.shapes == shapes and v.dtype == dtype)
            if found is not None:
                return found
        if source == "input" or any(shape != shapes[0] for shape in shapes):
            if dtype not in NUMPY:
                return self.cast(self.given("input", FLOAT, shapes, fill), dtype)
            return self.given("input", dtype, shapes, fill)
        if source == "dequantized" and kind == "weight" and dtype == FLOAT:
            return self._dequantized(shapes[0], fill)
        return self.given("constant" if source == "constant" else "initializer", dtype, shapes, fill)

    def given(self, source: str, dtype: int, shapes: tuple[Shape, ...], fill: Fill) -> Value:
        """A tensor that no node computes: source is "input", "initializer" or "constant"."""
        if dtype == STRING:
            low = high = 0.0
        else:
            low, high = values.bounds(fill, self.regime, dtype)
        value = self._value(dtype, shapes, low, high)
        self.givens.append(Given(value, source, fill))
        return value

    def fixed(self, source: str, array: np.ndarray) -> Value:
        """A tensor of certain numbers from a certain source, without a choice."""
        dtype = STRING if array.dtype == object else _CODES[array.dtype]
        if source not in self.profile.numbers or (source == "input" and dtype not in NUMPY):
            source = "initializer"
        return self.given(source, dtype, (array.shape,) * self.header.feeds, Fill(array=array))

    def _dequantized(self, shape: Shape, fill: Fill) -> Value:
        """Codes and a DequantizeLinear, per channel of axis 0 where the opset has that (13)."""
        per_channel = self.opset >= 13 and len(shape) > 1
        since, dtype, top = _CODED[fill.offset % len(_CODED)]
        if self.opset < since:
            dtype, top = INT8, 127
        low = 0 if dtype == UINT8 else -top
        codes = self.given("initializer", dtype, (shape,) * self.header.feeds, Fill("range", fill.offset, low, top))
        scale = self.fixed("initializer", np.resize(WEIGHT_SCALES, shape[:1] if per_channel else ()))
        value = self._value(FLOAT, codes.shapes, -4.0, 4.0)
        attributes = {"axis": 0} if per_channel else {}
        self.nodes.append(Node("DequantizeLinear", (codes.index, scale.index), (value.index,), attributes))
        return value

    # Nodes

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        shapes: tuple[Shape, ...],
        attributes: Mapping[str, Attribute | None] | None = None,
        *,
        dtype: int | None = None,
        bounds: tuple[float, float] | None = None,
        container: str = "",
    ) -> Value:
        """Add a node with one output. Attributes that are None are left out; dtype defaults to that of the first input,
        bounds to the hull of the inputs' bounds."""
        first = inputs[0] if inputs else None
        if dtype is None:
            assert first is not None, "a node without a first input says its dtype"
            dtype = first.dtype
        (value,) = self.emit_all(op_type, inputs, [(dtype, shapes)], attributes, bounds=bounds, container=container)
        assert value is not None
        return value

    def emit_all(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[int, tuple[Shape, ...]] | None],
        attributes: Mapping[str, Attribute | None] | None = None,
        *,
        bounds: tuple[float, float] | None = None,
        container: str = "",
    ) -> list[Value | None]:
        """Add a node with several outputs, each (dtype, shape in each feed), or None where it is left out."""
        if bounds is None:
            present = [v for v in inputs if v is not None]
            bounds = (min([v.low for v in present], default=0.0), max([v.high for v in present], default=0.0))
        made = [None if output is None else self._value(*output, *bounds, container) for output in outputs]
        arguments = [None if v is None else v.index for v in inputs]
        kept = {k: v for k, v in attributes.items() if v is not None} if attributes else {}
        indices = [None if v is None else v.index for v in made]
        self.nodes.append(Node(op_type, _trimmed(arguments), _trimmed(indices), kept))
        results = [v for v in made if v is not None]
        for value in results:
            self._offer(value)
        self.results = results
        return made

    def body(self, inputs: Sequence[Value], function: Callable[[], Sequence[Value]]) -> Body:
        """A subgraph with these inputs (see `argument`). What `function` emits is in it; it returns the outputs."""
        outside = self.nodes, self.candidates, self.empties, self.results
        self.nodes, self.candidates, self.empties = [], [], []
        try:
            outputs = function()
            return Body(tuple(v.index for v in inputs), tuple(v.index for v in outputs), tuple(self.nodes))
        finally:
            self.nodes, self.candidates, self.empties, self.results = outside

    def argument(self, dtype: int, shapes: tuple[Shape, ...], bounds: tuple[float, float]) -> Value:
        """A value that only a body has: its formal input."""
        return self._value(dtype, shapes, *bounds)

    def spec(self, pool: bytes) -> GraphSpec:
        """What was built. Outputs: the last record's, those that asked for it, and every sink if the header says so."""
        outputs = [value.index for value in self.results]
        outputs.extend(self.extra)
        if self.header.every_sink:
            used = {index for node in self.nodes for index in (*node.inputs, *node.reads())}
            outputs.extend(i for node in self.nodes for i in node.outputs if i is not None and i not in used)
        outputs = [self._presentable(index) for index in dict.fromkeys(outputs) if self._is_output(index)]
        form = self.header.form
        if form == "listed" and "input" not in self.profile.weights:
            form = "plain"
        return GraphSpec(
            opset=self.opset,
            regime=self.regime,
            nodes=tuple(self.nodes),
            givens=tuple(self.givens),
            values=tuple(self.values),
            outputs=tuple(dict.fromkeys(outputs)),
            pool=pool,
            annotated=self.header.annotated,
            form=form,
        )

    def _is_output(self, index: int) -> bool:
        value = self.values[index]
        return not value.container and value.dtype != STRING

    def _presentable(self, index: int) -> int:
        """The value itself, or it cast to a dtype that a graph output can have."""
        value = self.values[index]
        return index if value.dtype in NUMPY else self.cast(value, FLOAT).index

    # Shapes

    def _fresh_rank(self, wanted: int | None, ranks: Sequence[int]) -> int:
        """The wanted rank, else the model's own, else the first that the operator takes."""
        if wanted is not None and wanted in ranks:
            return wanted
        return self.header.rank if self.header.rank in ranks else ranks[0]

    def _fresh_sizes(self, rank: int, least: Shape, most: Shape, multiple: int) -> list[int]:
        """The sizes that the record asks for, the model's batch size first, within bounds and `INPUT_ELEMENTS`."""
        bytes_ = self._record.data[SIZES_AT]
        sizes = [SIZES[bytes_[axis % 4] % len(SIZES)] for axis in range(rank)]
        if rank > 1:
            sizes[0] = self.header.batch
        if self._isolated:
            sizes = [1] * rank
        while prod(sizes) > INPUT_ELEMENTS:
            largest = sizes.index(max(sizes))
            sizes[largest] //= 2
        if rank > 2 and bytes_[1] >= 256 - len(WIDE) and not self._isolated:
            sizes = [1, WIDE[255 - bytes_[1]], *[min(n, 3) for n in sizes[2:4]], *[1] * (rank - 4)]
        for axis, (low, high) in enumerate(zip_longest(least[:rank], most[:rank])):
            sizes[axis] = min(max(sizes[axis], low or 1), high or ELEMENTS)
        if multiple > 1:
            sizes[1] = -(-sizes[1] // multiple) * multiple
        return sizes

    def _per_feed(self, sizes: list[int], fixed: Sequence[int] | None, most: Shape) -> tuple[Shape, ...]:
        """The shape in each feed: the model's dynamic axes grow from feed to feed, but for those that are fixed."""
        rank, growth = len(sizes), [0] * len(sizes)
        for axis in () if fixed is None or self._isolated else self.header.dynamic:
            axis = axis % rank if -rank <= axis < rank else rank
            if len(most) <= axis < rank and all(axis != other % rank for other in fixed or () if -rank <= other < rank):
                growth[axis] = self.header.growth
                if prod([n + g for n, g in zip(sizes, growth)]) > INPUT_ELEMENTS:
                    growth[axis] = 0
        return tuple([tuple([n + feed * g for n, g in zip(sizes, growth)]) for feed in range(self.header.feeds)])

    def _value(self, dtype: int, shapes: tuple[Shape, ...], low: float, high: float, container: str = "") -> Value:
        for shape in shapes:
            if prod(shape) > ELEMENTS:
                raise TooLarge
        value = Value(len(self.values), dtype, shapes, *values.clamped(dtype, low, high), container)
        self.values.append(value)
        return value

    def _next_offset(self) -> int:
        offset, self._offset = self._offset, self._offset + 29
        return offset


@lru_cache(maxsize=8192)
def _types(op_type: str, opset: int, parameter: str, inner: bool) -> tuple[int, ...]:
    usable = STORAGE if inner else NUMPY
    return tuple([dtype for dtype in kernels.dtypes(op_type, opset, parameter) if dtype in usable])


def _trimmed(indices: list[int | None]) -> tuple[int | None, ...]:
    """Without what is left out at the end."""
    while indices and indices[-1] is None:
        indices.pop()
    return tuple(indices)


def _is_fixed(value: Value, axes: Sequence[int] | None) -> bool:
    if axes is None:
        return value.static
    return not axes or all(value.fixed(axis) for axis in axes if -value.rank <= axis < value.rank)
