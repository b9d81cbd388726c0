"""What the tests of the balls share: one rule applied to arrays, and a case judged against the reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from driftnet.generators.bulk import case
from driftnet.model import graph
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Ball, exact, outside
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.ball_arithmetic.rules import RULES, Context
from driftnet.run.runner import Runner

from tests.support.rules import assert_each


def no_subgraph(*_: Any) -> Any:
    """Stands for the bodies that the operators under test have not."""
    raise AssertionError("there is no subgraph")


def apply(
    op: str, *operands: Any, opset: int = 22, lenient: bool = False, outputs: int = 1, **attributes: Any
) -> list[Any]:
    """What the rule of `op` gives for operands that are balls, arrays (exact) or None (absent)."""
    balls = [exact(x) if isinstance(x, np.ndarray) else x for x in operands]
    node = Node(op, ("x",) * len(balls), ("y",) * outputs, attributes)
    with np.errstate(all="ignore"):
        return list(RULES[op](node, balls, Context(opset, lenient, no_subgraph)))


def around(x: np.ndarray, radius: Any) -> Ball:
    """The ball around `x`, each element known to `radius`."""
    return Ball(x.astype(np.float64), np.broadcast_to(np.asarray(radius, np.float64), x.shape).copy(), x.dtype)


def holds(ball: Ball, x: np.ndarray) -> bool:
    """Whether `x` is a right answer."""
    return ball.shape == x.shape and not outside(ball, x).any()


def assert_holds(ball: Ball, x: np.ndarray) -> None:
    """`x` is a right answer."""
    assert ball.shape == x.shape, f"an answer of shape {x.shape}, should be {ball.shape}"
    wrong = outside(ball, x)
    told = f"{x[wrong]}, should be {ball.midpoint[wrong]} to within {np.broadcast_to(ball.error, x.shape)[wrong]}"
    assert not wrong.any(), f"{wrong.sum()} of {x.size} elements lie outside of their ball: {told}"


def assert_outside(ball: Ball, x: np.ndarray) -> None:
    """`x` is a wrong answer, and seen to be one."""
    assert not holds(ball, x), f"{x} lies in its ball, {ball.midpoint} to within {ball.error}; it should not"


def noise(shape: tuple[int, ...], seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@dataclass(frozen=True)
class Survey:
    """Of generated cases around an operator: tensors that the reference computes outside of their balls or whose rule
    broke, and how many of the operator's own results have no answer, of how many that could have one."""

    wrong: list[str]
    unanswered: int
    total: int


def survey(runner: Runner, op: str, cases: int, seed: int = 1) -> Survey:
    """Evaluate cases 0, 1, ... around `op` and compare every tensor with the reference."""
    wrong, unanswered, total = [], 0, 0
    for index in range(cases):
        made = case(seed, index, focus=(op,))
        model = graph.read(made.proto)
        for feed, record in zip(made.feeds, runner.reference.record(made)):
            evaluation = evaluate(model, feed)
            for node in model.nodes:
                for name in filter(None, node.outputs):
                    ball = evaluation.balls.get(name)
                    if name in record and isinstance(ball, Ball) and not holds(ball, record[name]):
                        wrong.append(f"{name}, made by {node.op}, of case ({seed}, {index}, focus={op!r})")
                    if evaluation.undecided.get(name, "").startswith(f"{node.op} ("):
                        wrong.append(f"{name}: {evaluation.undecided[name]}, of case ({seed}, {index}, focus={op!r})")
                    if node.op == op and not any(operand in evaluation.undecided for operand in node.inputs):
                        total += 1
                        unanswered += ball is None
    return Survey(wrong, unanswered, total)


def assert_all_answered(runner: Runner, operators: Iterable[str], cases: int) -> None:
    """Each operator's rule has an answer for every case drawn around it, and the reference is in every ball."""

    def rule(op: str) -> None:
        seen = survey(runner, op, cases)
        assert seen.wrong == [], f"outside their balls: {seen.wrong}"
        answers = f"{seen.total - seen.unanswered} of {seen.total} results"
        assert 0 == seen.unanswered < seen.total, f"has an answer for {answers}, should for all"

    assert_each(operators, rule)
