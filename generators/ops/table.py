"""Every operator there is."""

from __future__ import annotations

from driftnet.generators.ops import (
    activation,
    attention,
    casting,
    control,
    convolution,
    creation,
    elementwise,
    image,
    indexing,
    linear,
    logic,
    loss,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    sequence,
    shape,
    signal,
    slicing,
    text,
)
from driftnet.generators.ops.registry import REGISTRY, Operator

_SHRINK_ORDER = (
    elementwise,
    activation,
    linear,
    convolution,
    normalization,
    pooling,
    reduction,
    shape,
    slicing,
    casting,
    logic,
    recurrent,
    quantization,
    image,
    indexing,
    attention,
    creation,
    control,
    sequence,
    signal,
    loss,
    text,
)


def families() -> dict[str, tuple[str, ...]]:
    """Family -> the names of its operators, each in shrink order."""
    names = [module.__name__.rpartition(".")[2] for module in _SHRINK_ORDER]
    return {name: tuple([o.name for o in REGISTRY.values() if o.family == name]) for name in names}


OPERATORS: tuple[Operator, ...] = tuple([REGISTRY[name] for members in families().values() for name in members])
"""In shrink order."""

CODES = {operator.name: code for code, operator in enumerate(OPERATORS)}
"""Operator name -> the first byte of its records."""
