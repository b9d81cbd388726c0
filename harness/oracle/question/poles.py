"""Poles: what may turn finite operands that moved a little into NaN or infinity."""

from driftnet.model.graph import Node, nested
from driftnet.model.operators import Trait, traits_of
from driftnet.oracle.question.question import Place, Question


def poles(question: Question, place: Place) -> list[str]:
    """The operators before a place, in subgraphs too, that may turn finite operands that moved a little into NaN or
    infinity."""
    graph = question.graph
    return [node.op for node in nested(graph.ancestors(place[1]), graph.opset) if _has_pole(node)]


def _has_pole(node: Node) -> bool:
    if Trait.NORMALIZES in traits_of(node.op):
        return bool(node.attributes.get("epsilon", 1e-5) == 0)
    return Trait.HAS_POLES in traits_of(node.op)
