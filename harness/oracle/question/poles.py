"""Poles: what may turn finite operands that moved a little into NaN or infinity."""

from __future__ import annotations

from driftnet.model.graph import Node, nested
from driftnet.oracle.question.question import Place, Question

DATA_DEPENDENT = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
POLES = frozenset(
    {"Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "LpNormalization", "Mod", "Pow", "ReduceLogSum", "Reciprocal"}
    | {"Sqrt", "Tan"}
)


def poles(question: Question, place: Place) -> list[str]:
    """The operators before a place, in subgraphs too, that may turn finite operands that moved a little into NaN or
    infinity."""
    graph = question.graph
    return [node.op for node in nested(graph.ancestors(place[1]), graph.opset) if _has_pole(node)]


def _has_pole(node: Node) -> bool:
    if node.op in ("InstanceNormalization", "LayerNormalization", "GroupNormalization", "BatchNormalization"):
        return bool(node.attributes.get("epsilon", 1e-5) == 0)
    return node.op in POLES
