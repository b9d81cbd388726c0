"""Operator: one function that adds one node, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driftnet.generators.building.builder import Builder

Function = Callable[[Builder], None]

OLDEST_OPSET, NEWEST_OPSET = 11, 26


@dataclass(frozen=True)
class Operator:
    """One operator of the default domain.

    family    the module that defines it;  since  the first opset from OLDEST_OPSET that has it
    until     the last opset in which the engine runs it;  heir  the operator that its records mean in a newer one
    weight    how often it is drawn, relative to 1
    rule      its specification in a sentence or formula (the function's docstring)
    """

    name: str
    family: str
    since: int
    until: int
    heir: str
    weight: float
    function: Function
    rule: str


REGISTRY: dict[str, Operator] = {}
"""Operator name -> Operator, in shrink order."""


def operator(
    name: str,
    *,
    since: int = OLDEST_OPSET,
    until: int = NEWEST_OPSET,
    heir: str = "",
    weight: float = 1.0,
    rule: str = "",
) -> Callable[[Function], Function]:
    """Register the decorated function under `name`. `rule` is for functions that serve several operators."""

    def register(function: Function) -> Function:
        if name in REGISTRY:
            raise ValueError(f"operator {name} is registered twice")
        family = function.__module__.rpartition(".")[2]
        stated = rule or (function.__doc__ or "").strip()
        REGISTRY[name] = Operator(name, family, since, until, heir, weight, function, stated)
        return function

    return register
