"""Operators that onnxruntime's optimizer makes of several, as these several: an artifact may have been saved optimized.

Formulas: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from collections.abc import Mapping
from typing import Any

from driftnet.model.graph import Node
from driftnet.model.operators import CONTRIB

# What onnxruntime fuses into a product, and no other activation.
PARAMETERS = {"HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",), "Relu": (), "Sigmoid": (), "Tanh": ()}
"""What the numbers are that a fused activation is given; those of a Clip are operands, of which there is no tensor."""
Step = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""operator, operands behind the first one, attributes"""


def unfused(node: Node) -> tuple[Node, ...]:
    """The operators in `node`, in order, of which the last makes its results; none where it is not known as fused."""
    match node.op.removeprefix(CONTRIB):  # each fused operator is defined by its own chain
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
    x, skip, scale, shift, bias = (node.input(k) for k in range(5))
    terms: list[Step] = [("Add", (x, skip), {}), *([("Add", (bias,), {})] if bias else [])]
    attributes = {"axis": -1, "epsilon": node.attributes.get("epsilon", 1e-12)}
    norm = ("LayerNormalization", (scale, shift) if shift else (scale,), attributes)
    return _chain(node, *terms, norm, inner=node.outputs[3] if len(node.outputs) > 3 else "")


def _chain(node: Node, *steps: Step, inner: str = "") -> tuple[Node, ...]:
    """The operators of `steps`, each on the result of the one before it, which is its first operand.

    inner   what the last reads, where it has a name of its own
    """
    names = [f"{node.outputs[0]}/{op}{k}" for k, (op, _, _) in enumerate(steps)]
    names[-2:] = [inner or names[-2], node.outputs[0]]
    before = [(), *((name,) for name in names)]
    made = zip(before, steps, names)
    return tuple(Node(op, (*x, *operands), (y,), given, node.name) for x, (op, operands, given), y in made)
