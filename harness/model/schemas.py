"""Operators as onnx's schemas describe them, and their attributes as plain values."""

from functools import cache, lru_cache
from typing import Any

import numpy as np
from onnx import GraphProto, defs, helper

FEW = 8
"""Numbers of a tensor attribute that are told in full."""


@lru_cache(maxsize=4096)
def schema_of(op: str, opset: int) -> defs.OpSchema | None:
    """The schema of an operator of the default domain, None where there is none."""
    try:
        return _schema(op, defs.get_schema(op, opset).since_version)
    except defs.SchemaError:
        return None


@cache  # 6 KB each time that it is asked for; most opsets have those of the one before
def _schema(op: str, version: int) -> defs.OpSchema:
    return defs.get_schema(op, version)


def default_of(schema: defs.OpSchema, name: str) -> Any:
    """The value that an absent attribute has, None where the schema says none."""
    proto = schema.attributes[name].default_value
    return plain(helper.get_attribute_value(proto)) if proto.name else None


def plain(value: Any) -> Any:
    """An attribute as text, number, or tuple of them; graphs and tensors by a word for what they are."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray):
        return tuple(value.reshape(-1).tolist()) if value.size <= FEW and value.dtype.kind in "biuf" else "tensor"
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, str | int | float | bool):
        return value
    return "graph" if isinstance(value, GraphProto) else type(value).__name__
