"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np

from generators.builder import Builder
from generators.graph import Value
from generators.ops.registry import operator
from generators.values import FLOAT, INT8, NUMPY, UINT8, Fill

SCALES = (0.0625, 1.0, 0.5, 0.03125, 0.0078125, 0.1)
"""Dyadic but for the last, so that dequantised numbers stay exact."""


def _parameters(b: Builder, x: Value, dtype: int) -> tuple[Value, Value | None, dict[str, int | None]]:
    """Scale, zero point and axis: one number a tensor or, from opset 13, one a channel."""
    scale = b.choose("scale", SCALES)
    wanted_channels = b.choose("per_channel", (False, False, True))
    axis = b.choose("axis", (1, 0, -1))
    zero_point = b.choose("zero_point", (None, 0, 3, 100))
    per_channel = wanted_channels and b.opset >= 13 and -x.rank <= axis < x.rank and x.fixed(axis)
    channels = x.shape[axis] if per_channel else 1
    shape = (channels,) if per_channel else ()
    scales = np.resize(np.array([scale, 2 * scale, scale / 2], np.float32), channels).reshape(shape)
    zeros = np.full(shape, zero_point or 0, NUMPY[dtype])
    scale_value, zero_value = b.constant("scale_source", scales), None
    if zero_point is not None or dtype != UINT8:  # left out, it is an uint8 zero
        zero_value = b.constant("zero_source", zeros)
    return scale_value, zero_value, {"axis": b.unless(axis, 1) if per_channel else None}


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
    b.emit("DequantizeLinear", (x, scale, zero), x.shapes, attributes, dtype=FLOAT, bounds=(-512.0, 512.0))
