"""What differs from the float model, told for a person: by how much, where, and who is to blame."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from driftnet.model.graph import Node
from driftnet.model.operators import WEIGHTED
from driftnet.oracle.artifact.verified.comparison import How, Pair, Problem, label, problem_of
from driftnet.oracle.ball_arithmetic.ball import Ball
from driftnet.oracle.tolerances.table import FAR_APART
from onnx import GraphProto

RUNS = 4
"""runs of indices that are named"""


def blaming(node: Node, what: str, problem: Problem) -> Problem:
    """`problem`, of which `node` is the cause."""
    message = f"{node.op} {label(node)!r} {what}: {problem.message}"
    return replace(problem, where=label(node), culprit=(label(node), node.op), message=message)


def disagreement(pair: Pair, name: str, wanted: Ball, found: Ball, slack: float) -> Problem | None:
    """The problem where the balls that the float model and the artifact make of tensor `name` have no point in common,
    with where they are farthest apart; slack: by how much besides they may be."""
    node, where = pair.node, pair.node.name or name
    if wanted.shape != found.shape:
        message = f"{node.op} makes {name!r} of shape {list(found.shape)}, the float model of {list(wanted.shape)}"
        return problem_of(node, "topology", np.inf, 0.0, message + differences(pair), where=where)
    with np.errstate(invalid="ignore"):
        error = np.abs(wanted.numbers - found.numbers)
    bound = np.broadcast_to(wanted.error + found.error + slack, error.shape)
    same = (wanted.numbers == found.numbers) | (np.isnan(wanted.numbers) & np.isnan(found.numbers)) | np.isinf(bound)
    wrong = ~same & ~(error <= bound * (1 + FAR_APART))
    if not wrong.any():
        return None
    worst = farthest(wrong, error, bound)
    have, should = found.numbers[worst], wanted.numbers[worst]
    said = {
        How.SAME: f"{node.op} is not the float model's{differences(pair)}: {name!r} is {have:.6g}, should be "
        f"{should:.6g}",
        How.ABSORBED: f"{node.op} is gone, and no range does what it did: {name!r} holds {have:.6g}, {node.op} makes "
        f"{should:.6g}",
    }
    otherwise = f"{name!r} is {have:.6g}, the float model's {node.op} on the same operands makes {should:.6g}"
    message = f"{said.get(pair.how, otherwise)}; {int(wrong.sum())} of {wrong.size} elements"
    problem = problem_of(node, "topology", error[worst], bound[worst], message, where=where)
    about = ("lost", name) if pair.how is How.ABSORBED else ()
    return replace(problem, at=tuple(map(int, worst)), about=about)


def farthest(wrong: np.ndarray, error: np.ndarray, bound: np.ndarray) -> tuple[np.intp, ...]:
    """Where what is wrong is farthest beyond its bound."""
    beyond = np.nan_to_num(error - bound, nan=np.inf)
    return np.unravel_index(int(np.argmax(np.where(wrong, beyond, -1))), error.shape)


def at(where: Sequence[np.intp]) -> str:
    """Where an element stands."""
    return f" at [{', '.join(map(str, where))}]" if len(where) else ""


def differences(pair: Pair) -> str:
    """Which attributes differ, and whether the bias is gone, for a person."""
    if pair.piece is None:
        return ""
    a, b = pair.node.attributes, pair.piece.node.attributes
    names = [k for k in {**a, **b} if str(a.get(k)) != str(b.get(k))]
    told = [
        f"another {k}" if isinstance(a.get(k), GraphProto) else f"{k} {b.get(k)} instead of {a.get(k)}" for k in names
    ]
    if pair.how is How.SAME and pair.node.op in WEIGHTED:
        own, use = pair.node.input(2), pair.operand(2)
        if own and use is None and pair.bias is None:
            told.append(f"it has no bias, the float model has {own!r}")
    return f" ({', '.join(told)})" if told else ""


def distance_told(error: float, step: float) -> str:
    """How far off a constant is, in steps where it has any."""
    return f"{error / step:.3g} steps off" if step > 0 else f"off by {error:.3g}"


def channels_told(wrong: np.ndarray) -> str:
    """Where the wrong elements are, if they fill few indices of one axis only, or one run of them."""
    told: dict[str, float] = {}
    for axis, count in enumerate(wrong.shape):
        hit = np.flatnonzero(wrong.any(axis=tuple(k for k in range(wrong.ndim) if k != axis)))
        runs = np.split(hit, np.flatnonzero(np.diff(hit) > 1) + 1)
        if len(hit) < count and (len(hit) <= max(2, count // 4) or (len(runs) == 1 and 4 * len(hit) <= 3 * count)):
            named = [f"{run[0]}" if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs]
            more = f" and {len(named) - RUNS} more" if len(named) > RUNS else ""
            told[f", all in {', '.join(named[:RUNS])}{more} of axis {axis}"] = len(hit) / count
    return min(told, key=lambda text: told[text], default="")
