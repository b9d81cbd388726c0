"""Families of operators that several modules speak of. A family that one tier alone asks for stands there."""

from __future__ import annotations

WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""linear in both operands; the second is quantized as weights where it is constant"""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})

AFFINE = frozenset({"Add", "BatchNormalization", "Div", "Mul", "Sub"})
"""with constants, an affine map of each channel: a converter may fold it into the weights before it"""
