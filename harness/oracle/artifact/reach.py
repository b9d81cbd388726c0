"""Reach: the outputs that quantization does not reach, because the quantizer left everything before them alone.

No noise is in these: whatever the options, they are what the float model says, and the tiers for floats judge them.
"""

from collections.abc import Iterator

from driftnet.model.graph import Graph, Node, captured, nested
from driftnet.model.operators import CONTRIB, RECURRENT, WEIGHTED
from driftnet.oracle.artifact.verified.operators import QUANTIZED
from driftnet.oracle.artifact.verified.reader import kept_by
from driftnet.oracle.question.question import Question


def untouched(question: Question) -> frozenset[str]:
    """The outputs before which an artifact holds nothing that quantizes; none without an artifact that tells."""
    told, artifact = question.artifact, question.written
    if artifact is None:
        inner = [node for node in nested(question.graph.nodes, question.graph.opset) if node.op in WEIGHTED | RECURRENT]
        hidden = any(node not in question.graph.nodes for node in inner)  # what subgraphs hold nobody tells
        floats = told.operations is not None and not told.tensors and not told.layers and not hidden
        return frozenset(question.graph.outputs if floats else ())
    reached = set(_quantized(artifact, question.graph))
    return frozenset(artifact.outputs) - reached


def _quantized(artifact: Graph, model: Graph) -> Iterator[str]:
    """The tensors of `artifact` that something which quantizes has made, or that depend on such a tensor."""
    kept = kept_by(model)
    reached: set[str] = set()
    for node in artifact.nodes:
        if not reached.isdisjoint((*node.inputs, *captured(node))) or (_quantizes(node) and not kept(node)):
            reached.update(node.outputs)
            yield from node.outputs


def _quantizes(node: Node) -> bool:
    return node.op in QUANTIZED or node.op.startswith(CONTRIB)
