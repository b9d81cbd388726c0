"""Every operator there is. The order of the families, and of the operators in them, is shrink order."""

from __future__ import annotations

from generators.ops import (  # noqa: F401  importing registers them
    activation,
    convolution,
    elementwise,
    image,
    linear,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    shape,
)
from generators.ops.registry import REGISTRY, Operator

OPERATORS: tuple[Operator, ...] = tuple(REGISTRY.values())
CODES = {operator.name: code for code, operator in enumerate(OPERATORS)}
"""Operator name -> the first byte of its records."""


def families() -> dict[str, tuple[str, ...]]:
    """Family -> the names of its operators."""
    names: dict[str, list[str]] = {}
    for operator in OPERATORS:
        names.setdefault(operator.family, []).append(operator.name)
    return {family: tuple(members) for family, members in names.items()}
