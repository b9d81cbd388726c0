"""Rules: how an operator acts on balls, one short function each, registered by the operator's name.

A rule is a function (node, operands, context) -> results. Operands come by position, None where absent; results too,
None for an output that has no answer. A rule raises Undecided, saying why, when it has none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from driftnet.model.graph import Node, Values
from driftnet.oracle.ball_arithmetic.ball import Ball

Operands = Sequence[Any]
"""A Ball, None when absent, or for a sequence of tensors a tuple of balls."""

Results = Sequence[Any]


@dataclass(frozen=True)
class Context:
    """What a rule may need beside its node and operands.

    opset     version of the default domain
    lenient   allow a QuantizeLinear one step more than its operand's ball does
    subgraph  (a graph attribute, its operands in order) -> its outputs, read with the tensors around the node in scope
    observed  tensors as the implementation that is judged gave them: what it makes of its own state may be judged by it
    """

    opset: int
    lenient: bool
    subgraph: Callable[[onnx.GraphProto, Sequence[Ball]], Sequence[Ball]]
    observed: Values = field(default_factory=dict)


Rule = Callable[[Node, Operands, Context], Results]

RULES: dict[str, Rule] = {}
"""Operator (as graph.read names it) -> its rule."""


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of `operators`."""

    def register(function: Rule) -> Rule:
        for operator in operators:
            if operator in RULES:
                raise ValueError(f"operator {operator} has two rules")
            RULES[operator] = function
        return function

    return register


def attribute(node: Node, name: str, default: Any) -> Any:
    """An attribute of `node`, or what it is when left out."""
    attributes: Mapping[str, Any] = node.attributes
    return attributes.get(name, default)


def number(node: Node, name: str, default: float) -> float:
    """A float attribute, or what it is when left out: both are float32 in the model."""
    return float(np.float32(attribute(node, name, default)))
