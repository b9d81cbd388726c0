"""How far the results of operators that nobody computes exactly may lie from each other, in float32."""

from collections.abc import Mapping
from typing import NamedTuple


class Approximation(NamedTuple):
    """What results that nobody calls wrong may be apart: absolute, relative, and relative to the largest."""

    absolute: float = 0.0
    relative: float = 0.0
    of_largest: float = 0.0


# a number each
MEASURED: Mapping[str, Approximation] = {
    "Acos": Approximation(5e-7),
    "Asin": Approximation(5e-7),
    "Atan": Approximation(3e-7),
    "Celu": Approximation(3.5e-7),
    "Elu": Approximation(3.5e-7),
    "Exp": Approximation(0, 6e-7),
    "Gelu": Approximation(2e-7, 2e-7),
    "HardSigmoid": Approximation(1e-7),
    "HardSwish": Approximation(3e-7, 2e-7),
    "Log": Approximation(1e-7, 3e-7),
    "Mish": Approximation(3e-7, 5e-7),
    "Selu": Approximation(6e-7),
    "Sigmoid": Approximation(3e-7, 5e-7),
    "Softplus": Approximation(4e-7, 3e-7),
    "Tanh": Approximation(5e-7),
}
"""Functions of one variable: the errors of onnxruntime 1.31.1 and MNN 3.6.1 against float64, over 20 000 to 50 000
arguments in [-12, 12]. `tests/oracle/tolerances/` measures those that are installed."""

# likewise
APPROXIMATIONS: Mapping[str, Approximation] = {
    **MEASURED,
    # compound operators: what their exponentials, tanh and square roots allow
    "GRU": Approximation(1e-6),
    "LSTM": Approximation(1e-6),
    "RNN": Approximation(1e-6),
    "InstanceNormalization": Approximation(5e-7, 5e-7),
    "LayerNormalization": Approximation(5e-7, 5e-7),
    "LogSoftmax": Approximation(1e-6, 5e-7),
    "SoftmaxCrossEntropyLoss": Approximation(1e-6, 5e-7),
    "LpNormalization": Approximation(0, 5e-7),
    "LRN": Approximation(0, 5e-7),
    "Softmax": Approximation(1e-9, 1e-6),
    "Pow": Approximation(0, 5e-7),
    # coordinates are rounded
    "Resize": Approximation(0, 0, 1e-6),
    "Upsample": Approximation(0, 0, 1e-6),
    # so are angles, which are at most 2 pi
    "BlackmanWindow": Approximation(1e-6),
    "HammingWindow": Approximation(1e-6),
    "HannWindow": Approximation(1e-6),
}
