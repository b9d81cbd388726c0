"""What the ONNX standard leaves open, or where its own implementations differ: no failure there is anybody's bug.

An output that depends on such a place is not judged where it fails. Each rule is a predicate on one node, with the
recorded tensors of a feed, and says where the disagreement can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.oracle.graph import Graph, Node, Values

WINDOWED = frozenset({"AveragePool", "Conv", "LpPool", "MaxPool"})


@dataclass(frozen=True)
class Contested:
    """A rule: its name, where the disagreement can be seen, and whether a node falls under it.

    applies(node, tensors of one feed with constants, opset)
    """

    name: str
    source: str
    applies: Callable[[Node, Values, int], bool]


def find(graph: Graph, records: tuple[Values, ...], output: str = "") -> tuple[Contested, Node] | None:
    """The first rule that applies to a node of `graph`, under the tensors of any feed, and that node.

    output   look only at what this graph output depends on
    """
    nodes = graph.ancestors(output) if output else graph.nodes
    for run in records:
        tensors: Mapping[str, np.ndarray] = {**graph.constants, **run}
        for node in nodes:
            for rule in RULES:
                if rule.applies(node, tensors, graph.opset):
                    return rule, node
    return None


def _window_beyond_input(node: Node, tensors: Values, opset: int) -> bool:
    x, kernel = tensors.get(node.input(0)), _kernel(node, tensors)
    padded_automatically = node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if node.op not in WINDOWED or x is None or len(kernel) != x.ndim - 2 or padded_automatically:
        return False
    pads = node.attributes.get("pads") or [0] * 2 * len(kernel)
    dilations = node.attributes.get("dilations") or [1] * len(kernel)
    return any(
        (k - 1) * d + 1 > size + begin + end
        for k, d, size, begin, end in zip(kernel, dilations, x.shape[2:], pads, pads[len(kernel) :])
    )


def _kernel(node: Node, tensors: Values) -> list[int]:
    if node.op == "Conv" and node.input(1) in tensors:
        return list(tensors[node.input(1)].shape[2:])
    return list(node.attributes.get("kernel_shape", ()))


def _partial_ceil_window(node: Node, tensors: Values, opset: int) -> bool:
    return node.op in WINDOWED and bool(node.attributes.get("ceil_mode")) and opset < 19


def _zero_scale(node: Node, tensors: Values, opset: int) -> bool:
    scale = tensors.get(node.input(1))
    return node.op == "QuantizeLinear" and scale is not None and not (np.asarray(scale, np.float64) > 0).all()


def _surplus_activations(node: Node, tensors: Values, opset: int) -> bool:
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    return node.op == "RNN" and len(node.attributes.get("activations", ())) > directions


RULES = (
    Contested(
        "window larger than its padded input",
        "the size formula gives less than one window; onnxruntime rounds it towards zero, onnx.reference down",
        _window_beyond_input,
    ),
    Contested(
        "last window of ceil_mode before opset 19",
        "https://github.com/onnx/onnx/pull/5741: opset 19 settled whether it may start in the padding",
        _partial_ceil_window,
    ),
    Contested(
        "scale that is not positive",
        "QuantizeLinear divides by it; the standard says nothing of the result",
        _zero_scale,
    ),
    Contested(
        "more activations than directions need",
        "onnxruntime ignores the surplus, onnx.reference refuses it",
        _surplus_activations,
    ),
)
