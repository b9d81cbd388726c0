"""Builder: what an operator function sees while it adds its node to the graph.

An operator function reads its parameters from a record (`choose`), resolves its operands (`operands`) and emits a node
(`emit`). Which byte a choice reads should not depend on what stands around the record, so that deleting a record leaves
the meaning of every other byte alone; parameters are clamped into their legal range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

from driftnet.generators.building import kernels, values
from driftnet.generators.building.graph import Attribute, Body, Given, GraphSpec, Node, Value
from driftnet.generators.building.header import Header
from driftnet.generators.building.profile import Profile
from driftnet.generators.building.record import FLAGS_AT, OFFSET_AT, Chooser, Record
from driftnet.generators.building.values import ELEMENTS, FLOAT, NUMPY, STORAGE, STRING, Fill, Shape

T = TypeVar("T")

_BYTES = range(256)


class TooLarge(Exception):
    """A tensor would have more than `ELEMENTS` elements. The record is decoded again on fresh operands of size 1."""


def each(rule: Callable[..., Shape], *operands: Value) -> tuple[Shape, ...]:
    """The shape that `rule` gives for the operands' shapes, in each feed."""
    return tuple([rule(*shapes) for shapes in zip(*[operand.shapes for operand in operands])])


class Builder:
    """A graph under construction, and the record that is being decoded.

    values      every tensor so far;  givens: those that no node computes
    candidates  what later records may refer to, the latest last;  empties: likewise, those without elements
    results     outputs of the last node;  extra: what is to be a graph output beside those
    isolated    whether this record has been found to make something too large: it refers to nothing and stays small
    """

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
        self.record: Chooser = Record(b"")
        self.isolated = False
        self._offset = 0

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
        if self.record.data[FLAGS_AT] % 8 == 7:
            self.extra.extend(value.index for value in self.results)

    def _run(self, function: Callable[[Builder], None], record: Chooser, *, isolated: bool) -> None:
        self.record, self.isolated, self._offset, self.results = record, isolated, 3 * record.data[OFFSET_AT], []
        function(self)

    # Choices

    def choose(self, name: str, options: Sequence[T]) -> T:
        """One of `options`, the first being the simplest. `name` is how a motif asks for a certain one."""
        return self.record.choose(name, options)

    def flag(self, name: str) -> bool:
        """Yes or no, no being the simplest."""
        return self.choose(name, (False, True))

    def axis(self, name: str, rank: int) -> int:
        """An axis of a tensor of `rank` (at least 1), negative as often as not."""
        byte = self.choose(name, _BYTES)
        axis = byte // 2 % rank
        return axis - rank if byte % 2 else axis

    def few(self, count: int) -> int:
        """`count`, or at most 4 where this record is isolated."""
        return min(count, 4) if self.isolated else count

    @property
    def explicit(self) -> bool:
        """Whether attributes that equal their default are written out."""
        return self.record.data[FLAGS_AT] // 8 % 2 == 1

    def unless(self, value: T, default: T) -> T | None:
        """`value`, or None (leave the attribute out) where it is the default and this record is not explicit."""
        return None if value == default and not self.explicit else value

    # Values

    def types(self, op_type: str, parameter: str = "T", *, inner: bool = False) -> tuple[int, ...]:
        """The dtypes that `parameter` of `op_type` may have, as this opset and the engine have it.

        inner  whether those that no graph input can have (bfloat16, float8, int4) are among them
        """
        return _types(op_type, self.opset, parameter, inner)

    def next_offset(self) -> int:
        """Where in the pool the next tensor of this record starts."""
        offset, self._offset = self._offset, self._offset + 29
        return offset

    def offer(self, value: Value) -> None:
        """Let later records refer to `value`, unless it holds infinities."""
        if not value.container and not math.isinf(value.high):
            (self.empties if value.empty else self.candidates).append(value)

    def given(self, source: str, dtype: int, shapes: tuple[Shape, ...], fill: Fill) -> Value:
        """A tensor that no node computes: source is "input", "initializer" or "constant"."""
        if dtype == STRING:
            bounds = 0.0, 0.0
        else:
            bounds = values.bounds(fill, self.regime, dtype)
        value = self.value(dtype, shapes, bounds)
        self.givens.append(Given(value, source, fill))
        return value

    def value(self, dtype: int, shapes: tuple[Shape, ...], bounds: tuple[float, float], container: str = "") -> Value:
        """A value by itself, as the formal input of a body is. Raises TooLarge."""
        for shape in shapes:
            if prod(shape) > ELEMENTS:
                raise TooLarge
        value = Value(len(self.values), dtype, shapes, *values.clamped(dtype, *bounds), container)
        self.values.append(value)
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
        made = [None if output is None else self.value(*output, bounds, container) for output in outputs]
        arguments = [None if v is None else v.index for v in inputs]
        kept = {k: v for k, v in attributes.items() if v is not None} if attributes else {}
        indices = [None if v is None else v.index for v in made]
        self.nodes.append(Node(op_type, _trimmed(arguments), _trimmed(indices), kept))
        results = [v for v in made if v is not None]
        for value in results:
            self.offer(value)
        self.results = results
        return made

    def cast(self, x: Value, dtype: int) -> Value:
        """x in another dtype."""
        return self.emit("Cast", (x,), x.shapes, {"to": dtype}, dtype=dtype)

    def body(self, inputs: Sequence[Value], function: Callable[[], Sequence[Value]]) -> Body:
        """A subgraph with these inputs (see `value`). What `function` emits is in it; it returns the outputs."""
        outside = self.nodes, self.candidates, self.empties, self.results
        self.nodes, self.candidates, self.empties = [], [], []
        try:
            outputs = function()
            return Body(tuple(v.index for v in inputs), tuple(v.index for v in outputs), tuple(self.nodes))
        finally:
            self.nodes, self.candidates, self.empties, self.results = outside

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


@lru_cache(maxsize=8192)
def _types(op_type: str, opset: int, parameter: str, inner: bool) -> tuple[int, ...]:
    usable = STORAGE if inner else NUMPY
    return tuple([dtype for dtype in kernels.dtypes(op_type, opset, parameter) if dtype in usable])


def _trimmed(indices: list[int | None]) -> tuple[int | None, ...]:
    """Without what is left out at the end."""
    while indices and indices[-1] is None:
        indices.pop()
    return tuple(indices)
