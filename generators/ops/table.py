"""Every operator there is."""

from importlib import import_module

from driftnet.generators.ops.registry import REGISTRY, Operator

_SHRINK_ORDER = (
    *("elementwise", "activation", "linear", "convolution", "normalization", "pooling", "reduction", "shape"),
    *("slicing", "casting", "logic", "recurrent", "quantization", "image", "indexing", "attention", "creation"),
    *("control", "sequence", "signal", "loss", "text"),
)
"""The modules of operators, each a family."""

for _family in _SHRINK_ORDER:
    import_module(f"driftnet.generators.ops.{_family}")


def families() -> dict[str, tuple[str, ...]]:
    """Family -> the names of its operators, each in shrink order."""
    return {family: tuple([o.name for o in REGISTRY.values() if o.family == family]) for family in _SHRINK_ORDER}


OPERATORS: tuple[Operator, ...] = tuple([REGISTRY[name] for members in families().values() for name in members])
"""In shrink order."""

CODES = {operator.name: code for code, operator in enumerate(OPERATORS)}
"""Operator name -> the first byte of its records."""
