"""Operator: one function that adds one node, and the registry of all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.kernels import OPSETS

Function = Callable[[Builder], None]


@dataclass(frozen=True)
class Operator:
    """One operator of the default domain.

    family    the module that defines it;  since  the first of `OPSETS` that has it
    until     the last opset in which the engine runs it;  heir  the operator that its records mean in a newer one
    weight    how often it is drawn, relative to 1
    rule      its specification in a sentence or formula
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


def operators(
    rules: Mapping[str, str], *, weight: float = 1.0, until: int = OPSETS[-1], heir: str = "", family: str = ""
) -> Callable[[Function], Function]:
    """Register the decorated function under each of these names, with its rule.

    The rule is by default the function's docstring, and the family the name of its module.
    """

    def register(function: Function) -> Function:
        for name, rule in rules.items():
            if name in REGISTRY:
                raise ValueError(f"operator {name} is registered twice")
            stated = rule or (function.__doc__ or "").strip()
            module = family or function.__module__.rpartition(".")[2]
            REGISTRY[name] = Operator(name, module, _since(name), until, heir, weight, function, stated)
        return function

    return register


def operator(
    name: str, rule: str = "", *, weight: float = 1.0, until: int = OPSETS[-1], heir: str = "", family: str = ""
) -> Callable[[Function], Function]:
    """Register the decorated function under one name. See `operators`."""
    return operators({name: rule}, weight=weight, until=until, heir=heir, family=family)


def _since(name: str) -> int:
    """The first opset in which the specification has the operator, and not as one that is deprecated."""
    had = (opset for opset in OPSETS if onnx.defs.has(name, opset))
    return next(opset for opset in had if not onnx.defs.get_schema(name, opset).deprecated)
