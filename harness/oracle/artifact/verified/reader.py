"""Read a quantized ONNX model: which float operations it stands for, and where integers stand for real numbers.

QDQ, QOperator and dynamic models say the same thing in three ways: real tensors pass through roundings, and float
operations act on them. Reading lifts all three to that. Tensors that differ only by rounding (what a QuantizeLinear
reads, its integers, what a DequantizeLinear or a Cast to floats makes of them) stand for one *real* tensor, called by
the name of its first member; a QLinearConv, or a MatMulInteger with the Cast and Mul behind it, is a Conv or MatMul on
real tensors.

    x ─ QuantizeLinear ─ x_q ─ DequantizeLinear ─ x' ─ Conv     x_q ─ QLinearConv ─ y_q
    real: x            x     x                  x      Piece        real: x      Piece    y_q
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.oracle.artifact.verified import operators
from driftnet.oracle.artifact.verified.format import (
    OWN_ATTRIBUTES,
    RENAMED,
    Artifact,
    Format,
    Layout,
    Piece,
    Rounding,
    Use,
    layout_of,
    linear_format,
    operand_format,
)
from driftnet.oracle.artifact.verified.names import COPY, PREFIXES
from driftnet.oracle.artifact.verified.unfuse import unfused
from driftnet.oracle.scheme.precomputed import is_constant


def read_artifact(graph: Graph, kept: Callable[[Node], bool] = lambda node: False) -> Artifact:
    """Lift `graph`. kept: whether a node that quantizes or acts on integers stands in the float model too."""
    artifact = Artifact(graph, set(graph.constants))
    reader = _Reader(artifact, kept)
    for node in graph.nodes:
        if is_constant(node, artifact.constant, graph):
            artifact.constant.update(name for name in node.outputs if name)
        if id(node) not in reader.done:
            reader.read(node)
    return artifact


def kept_by(model: Graph) -> Callable[[Node], bool]:
    """Whether a node that quantizes, casts or acts on integers stood in the float model already."""
    own = operators.QUANTIZED | operators.OPAQUE | {"Cast"}
    makers: dict[str, str] = {}
    for node in model.nodes:
        # An optimizer that takes movement away, two Transposes say, gives its result's name to what that reads. What
        # a quantizer adds has the name of what it rounds too, where it dequantizes.
        passed = makers.get(node.input(0)) if node.op in operators.MOVEMENT else None
        op = node.op if node.op in own else passed if passed != "DequantizeLinear" else None
        makers.update({name: op for name in node.outputs if name and op})
    kept = {(start + name, op) for name, op in makers.items() for start in PREFIXES}
    return lambda node: any((name.split(COPY)[0], node.op) in kept for name in node.outputs)


class _Reader:
    """The state of one reading, node after node, which fills `artifact`."""

    def __init__(self, artifact: Artifact, kept: Callable[[Node], bool]) -> None:
        self.artifact, self.graph, self.kept = artifact, artifact.graph, kept
        self.real, self.formats, self.integers = artifact.real, artifact.formats, artifact.integers
        self.done: set[int] = set()
        self.firsts: dict[tuple[object, ...], Node] = {}
        self.formats.update(self.look_ahead())
        self.integers.update(self.formats)

    def read(self, node: Node) -> None:
        if self.kept(node):
            self.once(node)
        elif node.op in operators.QUANTIZE:
            self.round(node, node.outputs[0], linear_format(node))
        elif node.op in operators.DEQUANTIZE:
            self.integer(node, node.inputs[0], linear_format(node))
            self.join(node.outputs[0], node.inputs[0])
            self.formats[node.outputs[0]] = linear_format(node)
        elif node.op == "DynamicQuantizeLinear":
            self.round(node, node.outputs[0], Format(node.outputs[1], node.outputs[2]), dynamic=True)
        elif node.op in operators.INTEGER_PRODUCTS and (scaled := self.scaled(node)):
            self.integer_product(node, *scaled)
        elif layout := layout_of(node):
            self.quantized(node, layout)
        elif node.op == "Cast" and node.attributes["to"] in operators.FLOATS:
            self.join(node.outputs[0], node.inputs[0])
            if node.inputs[0] in self.formats:
                self.formats[node.outputs[0]] = self.formats[node.inputs[0]]
        elif node.op in operators.MOVEMENT and node.input(0) in self.integers:
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

    def look_ahead(self) -> dict[str, Format]:
        """The formats of integer constants that are moved (a Gather from an embedding) before they are dequantized."""
        formats: dict[str, Format] = {}
        for node in reversed(self.graph.nodes):
            if self.kept(node):
                continue
            if layout := layout_of(node):
                for where in layout.operands:
                    if not isinstance(where, int):
                        value, *rest = (node.input(k) for k in where)
                        formats.setdefault(value, operand_format(node, where[0], *rest))
            elif node.op in operators.INTEGER_PRODUCTS and (scaled := self.scaled(node)):
                for k, scale in enumerate(scaled[1]):
                    formats.setdefault(node.inputs[k], operand_format(node, k, scale, node.input(k + 2)))
            elif node.op in operators.DEQUANTIZE:
                formats.setdefault(node.inputs[0], linear_format(node))
            elif node.op in operators.MOVEMENT and node.outputs[0] in formats and node.input(0) not in formats:
                formats[node.input(0)] = formats[node.outputs[0]]
        return {name: format for name, format in formats.items() if name in self.artifact.constant}

    def use(self, name: str, format: Format | None = None) -> Use | None:
        if not name:
            return None
        return Use(name, self.real.get(name, name), format or self.formats.get(name), name in self.integers)

    def join(self, tensor: str, other: str) -> None:
        self.real[tensor] = self.real.get(other, other)

    def round(self, node: Node, integers: str, format: Format, dynamic: bool = False) -> None:
        self.join(integers, node.inputs[0])
        self.integer(node, integers, format)
        self.artifact.roundings.append(Rounding(self.real[integers], format, node, integers, dynamic))

    def integer(self, node: Node, name: str, format: Format) -> None:
        """`name` holds integers of `format`, says `node`."""
        self.integers.add(name)
        written = self.formats.setdefault(name, format)
        if not self.same(written, format):
            self.artifact.rereads.append((node, written, format))

    def same(self, a: Format, b: Format) -> bool:
        if a == b or a.unit or b.unit:
            return True
        known = self.graph.constants
        if a.scale not in known or b.scale not in known:
            return a.scale == b.scale
        zeros = [known.get(f.zero_point, np.zeros(1)).astype(np.int64).ravel() for f in (a, b)]
        alike = np.array_equal(zeros[0], zeros[1]) or not (zeros[0].any() or zeros[1].any())
        return alike and np.array_equal(known[a.scale].ravel(), known[b.scale].ravel())

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
        self.artifact.pieces.append(Piece(node, tuple(uses), tuple(results), source))

    def quantized(self, node: Node, layout: Layout) -> None:
        uses = [self.operand(node, where) for where in layout.operands]
        if name := node.input(layout.bias) if layout.bias >= 0 else "":
            a, b = (use.format for use in uses if use)
            factor = node.attributes.get("alpha", 1.0)  # of a QGemm, whose kernel multiplies the bias by it too
            format = Format("", unit=(a.scale, b.scale), factor=factor) if a and b else None
            self.integer(node, name, format or Format(""))
            uses.append(self.use(name, format))
        if layout.result and node.input(layout.result[0]):
            written, (scale, zero) = node.outputs[0], layout.result
            self.integer(node, written, Format(node.input(scale), node.input(zero)))
            self.artifact.roundings.append(Rounding(written, self.formats[written], node, written))
        added = node.input(layout.added) if layout.added >= 0 else ""
        results = [self.use(name) for name in ([f"{node.outputs[0]}/product"] if added else node.outputs)]
        attributes = {RENAMED.get(k, k): v for k, v in node.attributes.items() if k not in OWN_ATTRIBUTES}
        self.piece(node, layout.op, uses, results, attributes)
        if added:
            self.piece(node, "Add", [*results, self.use(added)], [self.use(node.outputs[0])], {})

    def operand(self, node: Node, where: int | tuple[int, int, int]) -> Use | None:
        """What a quantized operator reads."""
        if isinstance(where, int):
            return self.use(node.input(where))
        value, scale, zero = where
        format = operand_format(node, value, node.input(scale), node.input(zero))
        self.integer(node, node.input(value), format)
        return self.use(node.input(value), format)

    def movement(self, node: Node) -> None:
        format = self.formats[node.inputs[0]]
        values = [name for k, name in enumerate(node.inputs) if k == 2 and node.op == "Pad" and name]
        for name in (*values, *node.outputs[: None if node.op == "Split" else 1]):
            self.integer(node, name, format)
        self.plain(node)

    def integer_product(self, node: Node, output: str, scales: Sequence[str], nodes: Sequence[Node]) -> None:
        """MatMulInteger or ConvInteger, with the Cast and the Mul by both scales behind it, as one float operation."""
        self.done.update(map(id, nodes))
        formats = [operand_format(node, k, scale, node.input(k + 2)) for k, scale in enumerate(scales)]
        for name, format in zip(node.inputs, formats):
            self.integer(node, name, format)
        uses = [self.use(name, format) for name, format in zip(node.inputs, formats)]
        self.piece(node, node.op.removesuffix("Integer"), uses, [self.use(output)])

    def scaled(self, node: Node) -> tuple[str, Sequence[str], Sequence[Node]] | None:
        """(the real result, the scales of both operands, the nodes that scale the integers)"""
        cast = self.only_reader(node.outputs[0], "Cast")
        scale = self.only_reader(cast.outputs[0], "Mul") if cast else None
        if cast is None or scale is None:
            return None
        factor = next((name for name in scale.inputs if name != cast.outputs[0]), "")
        product = self.graph.producers.get(factor)
        if product is None or product.op != "Mul":
            return None
        given = self.formats.get(node.inputs[0])
        swapped = given is not None and given.scale == product.inputs[1]
        return scale.outputs[0], product.inputs[:: -1 if swapped else 1], (cast, scale, product)

    def only_reader(self, name: str, op: str) -> Node | None:
        found = [node for node in self.graph.nodes if name in node.inputs]
        return found[0] if len(found) == 1 and found[0].op == op and name not in self.graph.outputs else None
