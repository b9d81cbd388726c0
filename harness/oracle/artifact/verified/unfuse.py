"""Operators that onnxruntime's optimizer makes of several, as these several: an artifact may have been saved optimized.

Formulas: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftnet.model.graph import Node
from driftnet.model.operators import CONTRIB

PARAMETERS = {"HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",), "Relu": (), "Sigmoid": (), "Tanh": ()}
"""What the numbers are that a fused activation is given; those of a Clip are operands, of which there is no tensor."""
Step = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""operator, operands behind the first one, attributes"""

EPSILON = 1e-12
"""of a SkipLayerNormalization that states none"""


def unfused(node: Node) -> tuple[Node, ...]:
    """The operators in `node`, in order, of which the last makes its results; none where it is not known as fused."""
    match node.op.removeprefix(CONTRIB):
        case "FusedConv" | "FusedGemm" if node.attributes["activation"] in PARAMETERS:
            return _with_activation(node)
        case "BiasGelu":
            return _chain(node, ("Add", node.inputs, {}), ("Gelu", (), {}))
        case "FastGelu":
            added: list[Step] = [("Add", node.inputs[:2], {})] if node.input(1) else []
            return _chain(node, *added, ("Gelu", node.inputs[: 0 if added else 1], {"approximate": "tanh"}))
        case "SkipLayerNormalization" if not any(node.outputs[1:3]):
            return _skip_layer_normalization(node)
    return ()


def _with_activation(node: Node) -> tuple[Node, ...]:
    fused = {k: x for k, x in node.attributes.items() if not k.startswith("activation")}
    given = node.attributes.get("activation_params")
    if given is None:
        given = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    activation = node.attributes["activation"]
    numbers = {name: x for name, x in zip(PARAMETERS[activation], given) if x is not None}
    added: list[Step] = [("Add", node.inputs[3:4], {})] if node.input(3) else []
    linear = node.op.removeprefix(CONTRIB + "Fused")
    return _chain(node, (linear, node.inputs[:3], fused), *added, (activation, (), numbers))


def _skip_layer_normalization(node: Node) -> tuple[Node, ...]:
    x, skip, scale = node.inputs[:3]
    total = node.outputs[3] if len(node.outputs) > 3 else ""
    terms: list[Step] = [("Add", (x, skip), {})]
    terms += [("Add", (node.input(4),), {})] if node.input(4) else []
    attributes = {"axis": -1, "epsilon": node.attributes.get("epsilon", EPSILON)}
    *added, last = _chain(node, *terms, ("LayerNormalization", (), attributes))
    operands = (last.inputs[0], scale, *([node.input(3)] if node.input(3) else []))
    if total:
        added[-1] = Node("Add", added[-1].inputs, (total,), {}, node.name)
        operands = (total, *operands[1:])
    return (*added, Node(last.op, operands, node.outputs[:1], last.attributes, node.name))


def _chain(node: Node, *steps: Step) -> tuple[Node, ...]:
    """The operators of `steps`, each on the result of the one before it, which is its first operand."""
    nodes: list[Node] = []
    before: tuple[str, ...] = ()
    for k, (op, operands, attributes) in enumerate(steps):
        result = node.outputs[:1] if k == len(steps) - 1 else (f"{node.outputs[0]}/{op}{k}",)
        nodes.append(Node(op, (*before, *operands), result, attributes, node.name))
        before = result
    return tuple(nodes)
