"""D1, execution: is a quantized ONNX model executed as it is written?

The artifact is evaluated in ball arithmetic. A rounding to integers makes its ball a single code, or two at a tie, so
what is behind it is known exactly and nothing of a wrong kernel hides in quantization noise. Fused integer kernels
round once where the written model rounds twice; what is outside only until each rounding is allowed one step more is
of a milder kind, off-by-one-step.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import numpy as np
from driftnet.model.arrays import distance
from driftnet.model.graph import Graph, Values, captured
from driftnet.oracle.artifact.verified.comparison import Problem
from driftnet.oracle.artifact.verified.messages import at, blaming, farthest
from driftnet.oracle.artifact.verified.operators import DEQUANTIZE
from driftnet.oracle.ball_arithmetic.ball import Ball, format_of, outside
from driftnet.oracle.ball_arithmetic.conditioning import is_ill
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation, evaluate
from driftnet.oracle.exemptions import documented


@dataclass(frozen=True)
class Execution:
    """What came of one feed: problems by output, and for outputs that cannot be judged the operator that is why."""

    problems: Mapping[str, Problem]
    undecided: Mapping[str, str]


def execution(graph: Graph, evaluation: Evaluation, feed: Values, observed: Values) -> Execution:
    """Whether the `observed` outputs are what `graph`, evaluated as `evaluation` on `feed`, makes."""
    problems, undecided = {}, {}
    lenient: Evaluation | None = None
    for name in (name for name in graph.outputs if name in observed):
        ball = evaluation.balls.get(name)
        if not isinstance(ball, Ball):
            undecided[name] = evaluation.undecided.get(name, "")
        elif problem := difference(ball, observed[name], name):
            lenient = lenient or evaluate(graph, feed, lenient=True)
            wider = lenient.balls.get(name)
            if isinstance(wider, Ball):
                problems[name] = difference(wider, observed[name], name) or replace(problem, mild=True)
            else:
                undecided[name] = lenient.undecided.get(name, "")
        elif between := between_steps(graph, evaluation, name, observed[name]):
            problems[name] = between
        elif is_ill(ball) or ball.undecided.any():
            undecided[name] = graph.producers[name].op if name in graph.producers else ""
    return Execution(problems, undecided)


def nodes_as_written(graph: Graph, tensors: Values, exceptions: Container[str]) -> tuple[list[Problem], dict[str, str]]:
    """The nodes of `graph` whose recorded results are not what they make of their recorded operands; and results that
    are, by rules that are documented, each with these.

    tensors      the constants, and whatever else was recorded; a node that reads another is not judged
    exceptions   names of the rules that hold
    """
    problems: list[Problem] = []
    excused: dict[str, str] = {}
    for node in graph.nodes:
        given = {name: tensors[name] for name in (*node.inputs, *captured(node)) if name in tensors}
        if any(name and name not in given for name in node.inputs):
            continue
        part = Graph((node,), {}, frozenset(), tuple(given), node.outputs, graph.opset)
        made = {name: tensors[name] for name in node.outputs if name in tensors}
        found = execution(part, evaluate(part, given), given, made).problems
        rewritten, rules = documented.documented(part, exceptions) if found else (part, set())
        if rules and not execution(rewritten, evaluate(rewritten, given), given, made).problems:
            excused |= dict.fromkeys(found, " and ".join(sorted(rules)))
            continue
        why = "is not computed as written, even without optimizations"
        problems += [blaming(node, why, problem) for problem in found.values()]
    return problems, excused


def difference(ball: Ball, x: np.ndarray, name: str) -> Problem | None:
    """The problem of `x`, called `name`, with where it is farthest outside its ball; None when it is inside."""
    if ball.shape != x.shape:
        message = f"{name!r} has shape {list(x.shape)}, as written {list(ball.shape)}"
        return Problem("execution", name, np.inf, 0.0, message)
    wrong = outside(ball, x)
    if not wrong.any():
        return None
    error = np.asarray(distance(x, ball.midpoint))
    bound = np.broadcast_to(ball.error, error.shape)
    where = farthest(wrong, error, bound)
    message = (
        f"{name!r} is {x[where]}{at(where)}, as written {ball.midpoint[where]:.9g}: error {error[where]:.3g}, "
        f"bound {bound[where]:.3g}; {int(wrong.sum())} of {wrong.size} elements"
    )
    return Problem("execution", name, float(error[where]), float(bound[where]), message, at=tuple(map(int, where)))


def between_steps(graph: Graph, evaluation: Evaluation, name: str, x: np.ndarray) -> Problem | None:
    """The problem of `x`, where a DequantizeLinear with one scale makes it of integers and it is no multiple of that.

    At a tie the ball takes in whatever lies between two codes, though there is nothing.
    """
    node = graph.producers.get(name)
    if node is None or node.op not in DEQUANTIZE or not x.size or not np.isfinite(x).all():
        return None
    codes, scale = evaluation.balls.get(node.inputs[0]), graph.constants.get(node.inputs[1])
    whole = isinstance(codes, Ball) and codes.dtype.kind in "iu"
    if scale is None or scale.size != 1 or not scale.all() or not whole:
        return None
    real, step = x.astype(np.float64), float(scale.flat[0])
    worst = float(np.abs(real - np.rint(real / step) * step).max())
    bound = 4 * format_of(x.dtype).unit * float(np.abs(real).max())
    if worst <= bound:
        return None
    message = f"{name!r} lies up to {worst / step:.3g} steps beside what a DequantizeLinear with scale {step:.6g} makes"
    return Problem("execution", name, worst, bound, message)
