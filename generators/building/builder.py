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

import numpy as np
import onnx
from driftnet.generators.building import kernels, values
from driftnet.generators.building.graph import Attribute, Body, Given, GraphSpec, Node, Stated, Value
from driftnet.generators.building.header import Header
from driftnet.generators.building.profile import Profile
from driftnet.generators.building.record import FLAGS_AT, OFFSET_AT, Chooser, Record
from driftnet.generators.building.values import ELEMENTS, FLOAT, NUMPY, STORAGE, STRING, Fill, Shape
from onnx import helper

T = TypeVar("T")
Shapes = Shape | tuple[Shape, ...] | Value | Callable[[Shape], Shape]
"""One shape or one for each feed, the tensor that has it, or the rule that makes it from that of the first input."""
Bounds = tuple[float, float] | Value | float
"""The least and the largest number, or the tensor that has them, or the largest magnitude."""
Attributes = Mapping[str, Any]
"""Name -> Attribute | Stated | None: those that are None are left out, so are most that have their default."""

_BYTES = range(256)


class TooLarge(Exception):
    """A tensor would have more than `ELEMENTS` elements. The record is decoded again on fresh operands of size 1."""


def each(rule: Callable[..., Shape], *operands: Value) -> tuple[Shape, ...]:
    """The shape that `rule` gives for the operands' shapes, in each feed."""
    return tuple([rule(*shapes) for shapes in zip(*[operand.shapes for operand in operands])])


def hull(*operands: Value | float) -> tuple[float, float]:
    """Bounds that hold whatever these may be."""
    ends = [(x.low, x.high) if isinstance(x, Value) else (x, x) for x in operands]
    return min([low for low, _ in ends], default=0.0), max([high for _, high in ends], default=0.0)


class Builder:
    """A graph under construction, and the record that is being decoded.

    op_type     the operator of that record
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
        self.op_type, self.record = "", Record(b"")  # type: str, Chooser
        self.isolated = False
        self._offset = 0

    # One record

    def add(self, op_type: str, function: Callable[[Builder], None], record: Callable[[], Chooser]) -> None:
        """Let an operator's function add its node, decoding what `record` opens."""
        self.op_type = op_type
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

    def attributes(self, **options: Sequence[Any]) -> dict[str, Any]:
        """One of the options for each name, as attributes are written."""
        return {name: self.choose(name, values) for name, values in options.items()}

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

    # The specification

    def has(self, attribute: str, op_type: str = "") -> bool:
        """Whether the operator (by default that of this record) has an attribute in this opset."""
        return attribute in _defaults(op_type or self.op_type, self.opset)[0]

    def types(self, parameter: str = "", *, op_type: str = "", inner: bool = False) -> tuple[int, ...]:
        """The dtypes that a type parameter of the operator may have, as this opset and the engine have it.

        parameter  by default that of the first input;  op_type  by default the operator of this record
        inner      whether those that no graph input can have (bfloat16, float8, int4) are among them
        """
        return _types(op_type or self.op_type, self.opset, parameter, inner)

    def floats(self, *, op_type: str = "") -> tuple[int, ...]:
        """Those of `types` that are no integers."""
        return tuple([dtype for dtype in self.types(op_type=op_type) if dtype not in values.RANGES])

    def shapes(self, shape: Shape | tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The shape in each feed, the same for all where only one is given."""
        return shape if shape and isinstance(shape[0], tuple) else (shape,) * self.header.feeds  # type: ignore[return-value]

    # Values

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
        bounds = (0.0, 0.0) if dtype == STRING else values.bounds(fill, self.regime, dtype)
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
        inputs: Sequence[Value | None],
        shapes: Shapes,
        attributes: Attributes | None = None,
        *,
        op_type: str = "",
        dtype: int | None = None,
        bounds: Bounds | None = None,
        container: str = "",
    ) -> Value:
        """Add a node with one output, by default of this record's operator; dtype defaults to that of the first input,
        bounds to the hull of the inputs'."""
        first = inputs[0] if inputs else None
        if dtype is None:
            assert first is not None, "a node without a first input says its dtype"
            dtype = first.dtype
        outputs = [(dtype, shapes)]
        (value,) = self.emit_all(inputs, outputs, attributes, op_type=op_type, bounds=bounds, container=container)
        assert value is not None
        return value

    def emit_all(
        self,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[int, Shapes] | None],
        attributes: Attributes | None = None,
        *,
        op_type: str = "",
        bounds: Bounds | None = None,
        container: str = "",
    ) -> list[Value | None]:
        """Add a node with several outputs, each (dtype, shapes), or None where it is left out."""
        op_type = op_type or self.op_type
        if bounds is None:
            present = [v for v in inputs if v is not None]
            bounds = min([v.low for v in present], default=0.0), max([v.high for v in present], default=0.0)
        elif not isinstance(bounds, tuple):
            bounds = (bounds.low, bounds.high) if isinstance(bounds, Value) else (-bounds, bounds)
        made = [
            None if output is None else self.value(output[0], self._resulting(output[1], inputs), bounds, container)
            for output in outputs
        ]
        arguments = [None if v is None else v.index for v in inputs]
        indices = [None if v is None else v.index for v in made]
        written = self._written(op_type, attributes) if attributes else {}
        self.nodes.append(Node(op_type, _trimmed(arguments), _trimmed(indices), written))
        results = [v for v in made if v is not None]
        for value in results:
            self.offer(value)
        self.results = results
        return made

    def _resulting(self, shapes: Shapes, inputs: Sequence[Value | None]) -> tuple[Shape, ...]:
        if isinstance(shapes, Value):
            return shapes.shapes
        if isinstance(shapes, tuple):
            return self.shapes(shapes)
        first = inputs[0] if inputs else None
        assert first is not None, "a rule for shapes needs a first input"
        return each(shapes, first)

    def _written(self, op_type: str, attributes: Attributes) -> dict[str, Attribute]:
        """Those that are given, without what equals its default where this record is not explicit. Of an attribute that
        only newer opsets have the default is all that can be asked for."""
        written: dict[str, Attribute] = {}
        (own, newer), explicit = _defaults(op_type, self.opset), self.explicit
        for name, value in attributes.items():
            if value is None:
                continue
            default = own.get(name)
            if default is None and name not in own:
                assert value == newer[name], f"{op_type} has no {name} in opset {self.opset}"
            elif explicit or default is None or value != default:
                written[name] = value.value if isinstance(value, Stated) else value
        return written

    def cast(self, x: Value, dtype: int) -> Value:
        """x in another dtype."""
        return self.emit((x,), x, {"to": dtype}, op_type="Cast", dtype=dtype)

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
    parameter = parameter or _specified(op_type, _version(op_type, opset))[0]
    return tuple([dtype for dtype in kernels.dtypes(op_type, opset, parameter) if dtype in usable])


@lru_cache(maxsize=8192)
def _defaults(op_type: str, opset: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attribute -> default, None where it has none: of the operator in this opset, and what newer ones have beside."""
    own, newest = (_specified(op_type, _version(op_type, n))[1] for n in (opset, kernels.OPSETS[-1]))
    return own, {name: default for name, default in newest.items() if name not in own}


def _version(op_type: str, opset: int) -> int:
    return int(onnx.defs.get_schema(op_type, opset).since_version)


@lru_cache(maxsize=1024)
def _specified(op_type: str, version: int) -> tuple[str, dict[str, Any]]:
    """The type parameter of the first input, and the default of each attribute."""
    schema = onnx.defs.get_schema(op_type, version)
    return next((x.type_str for x in schema.inputs), ""), {
        n: _default(a.default_value) for n, a in schema.attributes.items()
    }


def _default(stated: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(stated) if stated.type else None
    if isinstance(value, float):
        return float(str(np.float32(value)))  # 1e-05 of float32 is 1e-05
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _trimmed(indices: list[int | None]) -> tuple[int | None, ...]:
    """Without what is left out at the end."""
    while indices and indices[-1] is None:
        indices.pop()
    return tuple(indices)
