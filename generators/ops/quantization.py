"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np

from generators.builder import Builder
from generators.graph import Value
from generators.ops.registry import operator
from generators.values import INT8, NUMPY, UINT8, Fill

SCALES = (0.0625, 1.0, 0.5, 0.03125, 0.0078125, 0.1)
"""Dyadic but for the last, so that dequantised numbers stay exact."""


def _parameters(b: Builder, x: Value, dtype: int) -> tuple[Value, Value | None, dict[str, int | None]]:
    """Scale, zero point and axis: one number a tensor or, from opset 13, one a channel."""
    scale = np.float32(b.choose("scale", SCALES))
    per_channel = b.choose("per_channel", (False, False, True))
    axis = b.choose("axis", (1, 0, -1))
    offset = b.choose("zero_point", (None, 0, 3, 128 if dtype == UINT8 else -5))
    if not (per_channel and b.opset >= 13 and -x.rank <= axis < x.rank and x.fixed(axis)):
        shape: tuple[int, ...] = ()
    else:
        shape = (x.shape[axis],)
    scales = np.resize(scale * np.float32([1.0, 2.0, 0.5]), shape) if shape else np.array(scale)
    scale_value = b.constant("scale_source", scales)
    zero = np.full(shape, offset or 0, NUMPY[dtype])
    if offset is None and dtype == INT8:
        offset = 0  # left out it would mean uint8
    zero_value = b.constant("zero_source", zero) if offset is not None else None
    return scale_value, zero_value, {"axis": b.unless(axis, 1) if shape else None}


@operator("QuantizeLinear", weight=1.5)
def quantize_linear(b: Builder) -> None:
    """y = saturate(round(x / scale) + zero_point), halves to even"""
    x = b.data(ranks=(4, 3, 2, 1, 5))
    dtype = b.choose("dtype", (UINT8, INT8))
    scale, zero, attributes = _parameters(b, x, dtype)
    bounds = (0.0, 255.0) if dtype == UINT8 else (-128.0, 127.0)
    b.emit("QuantizeLinear", (x, scale, zero), x.shapes, attributes, dtype=dtype, bounds=bounds)


@operator("DequantizeLinear", weight=1.5)
def dequantize_linear(b: Builder) -> None:
    """y = (x - zero_point) scale"""
    x = b.data(dtypes=(UINT8, INT8), ranks=(4, 3, 2, 1, 5), fill=Fill("range", low=0, high=127))
    scale, zero, attributes = _parameters(b, x, x.dtype)
    b.emit("DequantizeLinear", (x, scale, zero), x.shapes, attributes, dtype=1, bounds=(-512.0, 512.0))
