"""How far the results of operators that nobody computes exactly may lie from each other."""

from __future__ import annotations

from collections.abc import Mapping

APPROXIMATIONS: Mapping[str, tuple[float, float, float]] = {
    "Acos": (5e-7, 0, 0),
    "Asin": (5e-7, 0, 0),
    "Atan": (3e-7, 0, 0),
    "BlackmanWindow": (1e-6, 0, 0),
    "Celu": (3.5e-7, 0, 0),
    "Elu": (3.5e-7, 0, 0),
    "Exp": (0, 6e-7, 0),
    "Gelu": (2e-7, 2e-7, 0),
    "GRU": (1e-6, 0, 0),
    "HammingWindow": (1e-6, 0, 0),
    "HannWindow": (1e-6, 0, 0),
    "HardSigmoid": (1e-7, 0, 0),
    "HardSwish": (3e-7, 2e-7, 0),
    "InstanceNormalization": (5e-7, 5e-7, 0),
    "LayerNormalization": (5e-7, 5e-7, 0),
    "Log": (1e-7, 3e-7, 0),
    "LogSoftmax": (1e-6, 5e-7, 0),
    "LpNormalization": (0, 5e-7, 0),
    "LRN": (0, 5e-7, 0),
    "LSTM": (1e-6, 0, 0),
    "Mish": (3e-7, 5e-7, 0),
    "Pow": (0, 5e-7, 0),
    "Resize": (0, 0, 1e-6),
    "RNN": (1e-6, 0, 0),
    "Selu": (6e-7, 0, 0),
    "Sigmoid": (3e-7, 5e-7, 0),
    "Softmax": (1e-9, 1e-6, 0),
    "Softplus": (4e-7, 3e-7, 0),
    "Tanh": (5e-7, 0, 0),
    "Upsample": (0, 0, 1e-6),
}
"""operator -> distance in float32 between results that nobody calls wrong: absolute, relative, relative to the largest.

Elementary functions: the errors against float64 of onnxruntime 1.31.1 and MNN 3.6.1 added up, over 20 000 to 50 000
arguments in [-12, 12]. Compound operators: what their exponentials, tanh and square roots allow. Resize: coordinates
are rounded. Windows: so are the angles, which are at most 2 pi.
"""
