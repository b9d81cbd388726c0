"""Read a quantized ONNX model: which float operations it stands for, and where integers stand for real numbers.

QDQ, QOperator and dynamic models say the same thing in three ways: real tensors pass through roundings, and float
operations act on them. Reading lifts all three to that. Tensors that differ only by rounding (what a QuantizeLinear
reads, its integers, what a DequantizeLinear or a Cast to floats makes of them) stand for one *real* tensor, called by
the name of its first member; a QLinearConv, or a MatMulInteger with the Cast and Mul behind it, is a Conv or MatMul on
real tensors.

    x ─ QuantizeLinear ─ x_q ─ DequantizeLinear ─ x' ─ Conv     x_q ─ QLinearConv ─ y_q
    real: x            x     x                  x      Piece        real: x      Piece    y_q
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.oracle.artifact.verified.format import (
    CONTRIB,
    DEQUANTIZE,
    FLOATS,
    INTEGER_PRODUCTS,
    LAYOUTS,
    MOVEMENT,
    OWN_ATTRIBUTES,
    QUANTIZE,
    Artifact,
    Format,
    Layout,
    Piece,
    Rounding,
    Use,
)
from driftnet.oracle.artifact.verified.unfuse import unfused
from driftnet.oracle.scheme.precomputed import is_constant


def read_artifact(graph: Graph, kept: Callable[[Node], bool] = lambda node: False) -> Artifact:
    """Lift `graph`. kept: whether a node that quantizes or acts on integers stands in the float model too."""
    reader = _Reader(graph, kept)
    for k, node in enumerate(graph.nodes):
        if is_constant(node, reader.constant):
            reader.constant.update(name for name in node.outputs if name)
        if k not in reader.done:
            reader.read(node)
    return Artifact(
        graph,
        tuple(reader.pieces),
        reader.real,
        reader.formats,
        tuple(reader.roundings),
        tuple(reader.rereads),
        frozenset(reader.constant),
        frozenset(reader.integers),
    )


class _Reader:
    """The state of one reading, node after node."""

    def __init__(self, graph: Graph, kept: Callable[[Node], bool]) -> None:
        self.graph, self.kept = graph, kept
        self.pieces: list[Piece] = []
        self.real: dict[str, str] = {}
        self.formats: dict[str, Format] = {}
        self.roundings: list[Rounding] = []
        self.rereads: list[tuple[Node, Format, Format]] = []
        self.constant = set(graph.constants)
        self.done: set[int] = set()
        self.integers: set[str] = set()
        self.firsts: dict[tuple[object, ...], Node] = {}
        self.look_ahead()

    def read(self, node: Node) -> None:
        if self.kept(node):
            self.once(node)
        elif node.op in QUANTIZE:
            self.round(node, node.outputs[0], _format(node))
        elif node.op in DEQUANTIZE:
            self.integer(node, node.inputs[0], _format(node))
            self.join(node.outputs[0], node.inputs[0])
            self.formats[node.outputs[0]] = _format(node)
        elif node.op == "DynamicQuantizeLinear":
            self.round(node, node.outputs[0], Format(node.outputs[1], node.outputs[2]), dynamic=True)
        elif node.op in INTEGER_PRODUCTS:
            self.integer_product(node)
        elif node.op == CONTRIB + "MatMulIntegerToFloat":
            operands = LAYOUTS[node.op].operands
            self.product(node, [self.operand(node, *where) for where in operands], node.input(6))
        elif layout := _layout(node):
            self.quantized(node, layout)
        elif node.op == CONTRIB + "MatMulNBits" and not node.input(4):
            bits, rows, columns, block = (node.attributes[name] for name in ("bits", "K", "N", "block_size"))
            format = Format(node.input(2), node.input(3), block=block, packed=(bits, rows, columns))
            self.integer(node, node.inputs[1], format)
            self.product(node, [self.use(name) for name in node.inputs[:2]], node.input(5))
        elif node.op == CONTRIB + "DynamicQuantizeMatMul":
            self.integer(node, node.inputs[1], Format(node.inputs[2], node.input(3), axis=-1))
            self.product(node, [self.use(name) for name in node.inputs[:2]], node.input(4))
        elif node.op == CONTRIB + "DynamicQuantizeLSTM":
            for k, scale in ((1, 8), (2, 10)):
                format = Format(node.input(scale), node.input(scale + 1), axis=0, flipped=True)
                self.integer(node, node.inputs[k], format)
            uses = [self.use(name) for name in node.inputs[:8]]
            self.piece(node, "LSTM", uses, [self.use(name) for name in node.outputs])
        elif node.op == "Cast" and node.attributes["to"] in FLOATS:
            self.join(node.outputs[0], node.inputs[0])
            if node.inputs[0] in self.formats:
                self.formats[node.outputs[0]] = self.formats[node.inputs[0]]
        elif node.op in MOVEMENT and node.inputs[0] in self.integers:
            self.movement(node)
        else:
            for part in unfused(node) or (node,):
                self.plain(part)

    def once(self, node: Node) -> None:
        """A node of the float model; of its copies, one for each reader, the results are those of the first."""
        first = self.firsts.setdefault((node.op, node.inputs, str(sorted(node.attributes.items()))), node)
        if first is node:
            self.plain(node)
        for name, other in zip(node.outputs, first.outputs):
            if name != other:
                self.join(name, other)

    def plain(self, node: Node) -> None:
        uses, results = ([self.use(name) for name in names] for names in (node.inputs, node.outputs))
        self.piece(node, node.op, uses, results)

    def look_ahead(self) -> None:
        """The formats of integer constants that are moved (a Gather from an embedding) before they are dequantized."""
        for node in reversed(self.graph.nodes):
            if self.kept(node):
                continue
            if layout := _layout(node):
                for value, steps, zero in layout.operands:
                    format = Format(node.input(steps), node.input(zero), axis=_channel_axis(node, value))
                    self.formats.setdefault(node.input(value), format)
            elif node.op in INTEGER_PRODUCTS and (scaled := self.scaled(node)):
                for k, scale in enumerate(scaled[1]):
                    format = Format(scale, node.input(k + 2), axis=_channel_axis(node, k))
                    self.formats.setdefault(node.inputs[k], format)
            elif node.op in DEQUANTIZE:
                self.formats.setdefault(node.inputs[0], _format(node))
            elif node.op in MOVEMENT and node.outputs[0] in self.formats and node.inputs[0] not in self.formats:
                self.formats[node.inputs[0]] = self.formats[node.outputs[0]]
        self.formats = {name: format for name, format in self.formats.items() if name in self.constant}
        self.integers.update(self.formats)

    def use(self, name: str, format: Format | None = None) -> Use | None:
        if not name:
            return None
        return Use(name, self.real.get(name, name), format or self.formats.get(name), name in self.integers)

    def join(self, tensor: str, other: str) -> None:
        self.real[tensor] = self.real.get(other, other)

    def round(self, node: Node, integers: str, format: Format, dynamic: bool = False) -> None:
        self.join(integers, node.inputs[0])
        self.integer(node, integers, format)
        self.roundings.append(Rounding(self.real[integers], format, node, integers, dynamic))

    def integer(self, node: Node, name: str, format: Format) -> None:
        """`name` holds integers of `format`, says `node`."""
        self.integers.add(name)
        written = self.formats.setdefault(name, format)
        if not self.same(written, format):
            self.rereads.append((node, written, format))

    def same(self, a: Format, b: Format) -> bool:
        if a == b or a.unit or b.unit:
            return True
        values = self.graph.constants
        known = all(name in values for name in (a.scale, b.scale))
        if not known:
            return a.scale == b.scale
        zero = [values[f.zero_point].astype(np.int64) if f.zero_point in values else np.zeros(1) for f in (a, b)]
        return np.array_equal(np.ravel(values[a.scale]), np.ravel(values[b.scale])) and (
            np.array_equal(np.ravel(zero[0]), np.ravel(zero[1])) or not (zero[0].any() or zero[1].any())
        )

    def piece(
        self,
        source: Node,
        op: str,
        uses: Sequence[Use | None],
        results: Sequence[Use | None],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        inputs, outputs = (tuple(use.real if use else "" for use in side) for side in (uses, results))
        node = Node(op, inputs, outputs, source.attributes if attributes is None else attributes, source.name)
        self.pieces.append(Piece(node, tuple(uses), tuple(results), source))

    def product(self, node: Node, uses: Sequence[Use | None], bias: str) -> None:
        """A MatMul of `uses`, with the Add of a bias that the operator has taken in."""
        product = self.use(f"{node.outputs[0]}/product" if bias else node.outputs[0])
        self.piece(node, "MatMul", uses, [product], {})
        if bias:
            self.piece(node, "Add", [product, self.use(bias)], [self.use(node.outputs[0])], {})

    def quantized(self, node: Node, layout: Layout) -> None:
        uses = [self.use(node.input(k)) for k in layout.plain]
        uses += [self.operand(node, *where) for where in layout.operands]
        if name := node.input(layout.bias) if layout.bias >= 0 else "":
            a, b = (use.format for use in uses if use)
            factor = node.attributes.get("alpha", 1.0)  # of a QGemm, whose kernel multiplies the bias by it too
            format = Format("", unit=(a.scale, b.scale), factor=factor) if a and b else None
            self.integer(node, name, format or Format(""))
            uses.append(self.use(name, format))
        self.written(node, node.outputs[0], layout.result)
        attributes = {k: v for k, v in node.attributes.items() if k not in OWN_ATTRIBUTES}
        self.piece(node, layout.op, uses, [self.use(node.outputs[0])], attributes)

    def operand(self, node: Node, value: int, scale: int, zero: int) -> Use | None:
        name = node.input(value)
        format = Format(node.input(scale), node.input(zero), axis=_channel_axis(node, value))
        self.integer(node, name, format)
        return self.use(name, format)

    def written(self, node: Node, name: str, where: tuple[int, int] | None) -> None:
        if where and node.input(where[0]):
            self.integer(node, name, Format(node.input(where[0]), node.input(where[1])))
            self.roundings.append(Rounding(name, self.formats[name], node, name))

    def movement(self, node: Node) -> None:
        format = self.formats[node.inputs[0]]
        values = [name for k, name in enumerate(node.inputs) if k == 2 and node.op == "Pad" and name]
        for name in values:
            self.integer(node, name, format)
        for name in node.outputs[: None if node.op == "Split" else 1]:
            self.integer(node, name, format)
        self.plain(node)

    def integer_product(self, node: Node) -> None:
        """MatMulInteger or ConvInteger, with the Cast and the Mul by both scales behind it, as one float operation."""
        scaled = self.scaled(node)
        if scaled is None:
            self.plain(node)
            return
        output, scales, nodes = scaled
        self.done.update(nodes)
        formats = [Format(scale, node.input(k + 2), axis=_channel_axis(node, k)) for k, scale in enumerate(scales)]
        for name, format in zip(node.inputs, formats):
            self.integer(node, name, format)
        uses = [self.use(name, format) for name, format in zip(node.inputs, formats)]
        self.piece(node, node.op.removesuffix("Integer"), uses, [self.use(output)])

    def scaled(self, node: Node) -> tuple[str, list[str], list[int]] | None:
        """(the real result, the scales of both operands, indices of the nodes that scale the integers)"""
        cast = self.only_reader(node.outputs[0], "Cast")
        scale = self.only_reader(cast[1].outputs[0], "Mul") if cast else None
        if cast is None or scale is None:
            return None
        factor = next((name for name in scale[1].inputs if name != cast[1].outputs[0]), "")
        product = self.graph.producers.get(factor)
        if product is None or product.op != "Mul":
            return None
        given = self.formats.get(node.inputs[0])
        swapped = given is not None and given.scale == product.inputs[1]
        scales = [*product.inputs[::-1]] if swapped else [*product.inputs]
        return scale[1].outputs[0], scales, [cast[0], scale[0], *self.indices(product)]

    def only_reader(self, name: str, op: str) -> tuple[int, Node] | None:
        found = [(k, node) for k, node in enumerate(self.graph.nodes) if name in node.inputs]
        return found[0] if len(found) == 1 and found[0][1].op == op and name not in self.graph.outputs else None

    def indices(self, wanted: Node) -> Iterator[int]:
        return (k for k, node in enumerate(self.graph.nodes) if node is wanted)


def _layout(node: Node) -> Layout | None:
    """Which inputs of a quantized operator are what; None for any other."""
    if node.op == CONTRIB + "QLinearConcat":
        return Layout("Concat", tuple((k, k + 1, k + 2) for k in range(2, len(node.inputs), 3)), (0, 1))
    return LAYOUTS.get(node.op)


def _format(node: Node) -> Format:
    """That of a QuantizeLinear or DequantizeLinear."""
    axis, block = node.attributes.get("axis", 1), node.attributes.get("block_size", 0)
    return Format(node.input(1), node.input(2), axis, block)


def _channel_axis(node: Node, position: int) -> int:
    """Along which axis of a quantized operator's operand scales differ, where there are several."""
    if node.op in ("QLinearConv", "ConvInteger"):
        return 0
    if node.op == CONTRIB + "QGemm":
        return 0 if position and node.attributes.get("transB", 0) else 1
    # A row scale for the first operand of a product, a column scale for the second.
    return -1 if position else -2
