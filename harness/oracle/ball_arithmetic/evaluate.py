"""Evaluate a graph in ball arithmetic, node by node, with the rules that the modules named below register."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from driftnet.model import graph as graphs
from driftnet.model.graph import Graph, Node, Values, captured
from driftnet.oracle.ball_arithmetic import (  # noqa: F401  (they register their rules)
    attention,
    contrib,
    control,
    creation,
    data_movement,
    decisions,
    elementwise,
    functions,
    image,
    indexing,
    linear,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduction,
    regions,
    sequence,
    signal,
    softmax,
    text,
)
from driftnet.oracle.ball_arithmetic.ball import Ball, Open, Undecided, half, held, in_half, widened
from driftnet.oracle.ball_arithmetic.conditioning import is_ill_at
from driftnet.oracle.ball_arithmetic.rules import RULES, Context

MOST_HELD = 2**25
"""Elements of all balls that are computed, with those that were let go: half a GiB where none was. What a graph
computes beyond that has no answer: so much is the inside of a deep model on a large input, whose balls allow anything
at its end."""

FEW_HELD = 2**20
"""Elements of computed balls from which on those are let go that nobody asks for any more."""

TOO_LARGE = "all tensors together"


@dataclass(frozen=True)
class Evaluation:
    """What is known of the tensors of a graph.

    balls      tensor -> Ball, or a tuple of balls for a sequence
    undecided  tensor -> operator that has no answer, and the exception where its rule broke
    open       tensors of which the standard leaves it open what they are, given what they are made of
    ill        tensors whose balls were let go, and could not vouch for an answer
    """

    balls: Mapping[str, Any]
    undecided: Mapping[str, str]
    open: frozenset[str]
    ill: frozenset[str] = frozenset()


def evaluate(
    graph: Graph,
    feed: Values,
    *,
    lenient: bool = False,
    observed: Values | None = None,
    inexact: Mapping[str, float] | None = None,
    halves: bool = False,
    most: int = MOST_HELD,
    keep: Collection[str] | None = None,
) -> Evaluation:
    """Every tensor of `graph`, given those that `feed` holds: its inputs, or recorded tensors to cut it at.

    What `feed` holds is taken from there and not computed. lenient: allow each QuantizeLinear one step more.
    observed: tensors as the implementation that is judged gave them. A recurrent layer then need not be right from the
    first step to the last, which no ball could follow for long, but at every step from the state that it showed.
    inexact: the radii of constants that are not known exactly. halves: whatever is float32, constants and feed too, may
    be held and computed in float16. most: elements of balls that may be computed. keep: the tensors that are asked for,
    where those between may be let go.
    """
    with np.errstate(all="ignore"):
        constants = {name: graph.constants[name] for name in inexact or {}}
        given = {name: widened(x, np.asarray((inexact or {})[name]), x.dtype) for name, x in constants.items()}
        given |= {name: (half if halves else held)(x) for name, x in feed.items()}
        return _evaluate(graph, given, {}, lenient, observed or {}, most, halves, keep)


def applied(node: Node, operands: Values, opset: int) -> Evaluation:
    """The results of one node, told its operands; one that has subgraphs reads nothing else."""
    return evaluate(Graph((node,), {}, frozenset(), tuple(operands), node.outputs, opset), operands)


def _evaluate(
    graph: Graph,
    given: Mapping[str, Any],
    unknown: Mapping[str, str],
    lenient: bool,
    observed: Values,
    most: int,
    halves: bool,
    keep: Collection[str] | None = None,
) -> Evaluation:
    """given, unknown: balls and undecided tensors from outside, for a subgraph those around it too."""
    balls: dict[str, Any] = {**{name: (half if halves else held)(x) for name, x in graph.constants.items()}, **given}
    undecided = dict(unknown)
    open_: set[str] = set()
    bodies: dict[int, Graph] = {}
    last, ill = (_last_readers(graph, keep), set[str]()) if keep is not None else ({}, set[str]())

    def subgraph(proto: onnx.GraphProto, operands: Sequence[Any]) -> list[Any]:
        inner = bodies.get(id(proto)) or bodies.setdefault(id(proto), graphs.read_graph(proto, graph.opset))
        found = _evaluate(inner, {**balls, **dict(zip(inner.inputs, operands))}, undecided, lenient, {}, most, halves)
        if missing := [found.undecided[name] for name in inner.outputs if name in found.undecided]:
            raise Undecided(f"{missing[0]} has no answer")
        return [found.balls[name] for name in inner.outputs]

    context, computed, told = Context(graph.opset, lenient, subgraph, observed), 0, 0
    for number, node in enumerate(graph.nodes):
        if last and computed > FEW_HELD:
            for before in graph.nodes[told:number]:  # while what they are made of is there
                ill.update(name for name in before.outputs if _is_vague(graph, balls, name))
            for name in [name for name, reader in last.items() if reader < number]:
                balls.pop(name, None)
                del last[name]
            told = number
        if all(name in balls for name in node.outputs if name):
            continue
        reason = next((undecided[name] for name in node.inputs if name in undecided), "")
        reason = reason or (TOO_LARGE if computed > most else "")
        results: Sequence[Any] = ()
        if not reason:
            operands = [balls[name] if name else None for name in node.inputs]
            try:
                results, reason = _apply(node, operands, context)
                results = [in_half(made) for made in results] if halves else results
            except Open:
                reason = node.op
                open_.update(node.outputs)
        for k, name in enumerate(node.outputs):
            if name and name not in given:
                if k < len(results) and results[k] is not None:
                    balls[name] = results[k]
                    computed += balls[name].midpoint.size if isinstance(balls[name], Ball) else 0
                else:
                    undecided[name] = reason
    return Evaluation(balls, undecided, frozenset(open_), frozenset(ill))


def _last_readers(graph: Graph, keep: Collection[str]) -> dict[str, int]:
    """Computed tensor -> the number of the node that reads it last, its maker where none does; but for those in `keep`
    and what these are made of."""
    last = {name: k for k, node in enumerate(graph.nodes) for name in node.outputs if name}
    last.update(
        (name, k) for k, node in enumerate(graph.nodes) for name in (*node.inputs, *captured(node)) if name in last
    )
    kept = {*keep, *(x for name in keep if name in graph.producers for x in graph.producers[name].inputs)}
    return {name: k for name, k in last.items() if name not in kept}


def _is_vague(graph: Graph, balls: Mapping[str, Any], name: str) -> bool:
    ball = balls.get(name)
    return isinstance(ball, Ball) and (bool(ball.undecided.any()) or is_ill_at(graph, balls, name))


UNFORESEEN = (ArithmeticError, LookupError, TypeError, ValueError)
"""What a rule runs into where a model, which may be anybody's, uses an operator as the rule does not expect."""


def _apply(node: Node, operands: Sequence[Any], context: Context) -> tuple[Sequence[Any], str]:
    """The results of `node`, and what there is to say of those that are missing.

    There are none when it has no rule, or its rule no answer. A rule that broke is told apart: those are counted, and a
    test wants none on generated models. Raises Open.
    """
    rule = RULES.get(node.op)
    if rule is None:
        return (), node.op
    try:
        return rule(node, operands, context), node.op
    except Open:
        raise
    except Undecided:
        return (), node.op
    except UNFORESEEN as e:
        return (), f"{node.op} ({type(e).__name__})"
