"""Activations: element by element, the shape stays."""

from __future__ import annotations

import math
from collections.abc import Callable

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, scalar, weight
from driftnet.generators.building.values import FLOAT16, RANGES
from driftnet.generators.ops.elementwise import UNIT
from driftnet.generators.ops.registry import operator

Bounds = Callable[[float, float], tuple[float, float]]


def _activation(name: str, rule: str, bounds: Bounds, *, since: int = 11, weight: float = 1.0) -> None:
    @operator(name, since=since, weight=weight, rule=rule)
    def activation(b: Builder) -> None:
        # In float16 onnxruntime's Softplus and its like overflow to infinity where e ** x does.
        x = data(b, dtypes=b.types(name), fits=lambda v: v.dtype != FLOAT16 or v.high <= 36.0)
        b.emit(name, (x,), x.shapes, bounds=bounds(x.low, x.high))


_activation("Relu", "y = max(x, 0)", lambda low, high: (max(low, 0.0), max(high, 0.0)), weight=3)
_activation("Sigmoid", "y = 1 / (1 + exp(-x))", lambda low, high: (0.0, UNIT), weight=1.5)
_activation("Tanh", "y = tanh(x)", lambda low, high: (-UNIT, UNIT), weight=1.5)
_activation("Softplus", "y = ln(exp(x) + 1)", lambda low, high: (0.0, max(high, 0.0) + 1.0))
_activation("Softsign", "y = x / (1 + |x|)", lambda low, high: (-UNIT, UNIT))
_activation("HardSwish", "y = x max(0, min(1, x / 6 + 1 / 2))", lambda low, high: (-0.375, max(high, 0.0)), since=14)
_activation("Mish", "y = x tanh(softplus(x))", lambda low, high: (-0.31, max(high, 0.0)), since=18)
_activation("Erf", "y = erf(x)", lambda low, high: (-UNIT, UNIT))


def _alpha(b: Builder, default: float) -> float:
    """A slope, dyadic where the regime is exact: then a leaky unit keeps every partial sum representable."""
    return b.choose("alpha", (0.5, 0.25, 2.0, -0.5) if b.regime.exact else (default, 0.1, 1.5, 0.0, -0.3))


def _stretched(x: Value, slope: float) -> tuple[float, float]:
    ends = (x.low, x.high, x.low * slope, x.high * slope)
    return min(ends), max(ends)


@operator("LeakyRelu", weight=1.5)
def leaky_relu(b: Builder) -> None:
    """y = x where x >= 0, else alpha x"""
    x = data(b, dtypes=b.types("LeakyRelu"))
    alpha = _alpha(b, 0.01)
    b.emit("LeakyRelu", (x,), x.shapes, {"alpha": b.unless(alpha, 0.01)}, bounds=_stretched(x, alpha))


@operator("PRelu")
def prelu(b: Builder) -> None:
    """y = x where x >= 0, else slope x; slope broadcasts to x (unidirectional)"""
    x = data(b, dtypes=b.types("PRelu"), ranks=(2, 3, 4, 5), fixed=(1,))
    per_channel = (x.shape[1],) + (1,) * (x.rank - 2)
    shape = b.choose("shape", (per_channel, (1,), per_channel, (1,) * x.rank))
    slope = weight(b, "slope", shape, dtype=x.dtype)
    b.emit("PRelu", (x, slope), x.shapes, bounds=_stretched(x, max(-slope.low, slope.high)))


@operator("Elu")
def elu(b: Builder) -> None:
    """y = x where x >= 0, else alpha (exp(x) - 1)"""
    x = data(b, dtypes=b.types("Elu"))
    alpha = _alpha(b, 1.0)
    b.emit("Elu", (x,), x.shapes, {"alpha": b.unless(alpha, 1.0)}, bounds=(-abs(alpha), max(x.high, abs(alpha))))


@operator("Celu", since=12)
def celu(b: Builder) -> None:
    """y = max(0, x) + min(0, alpha (exp(x / alpha) - 1)), alpha > 0"""
    x = data(b, dtypes=b.types("Celu"))
    alpha = b.choose("alpha", (1.0, 0.5, 2.0))
    b.emit("Celu", (x,), x.shapes, {"alpha": b.unless(alpha, 1.0)}, bounds=(-alpha, max(x.high, 0.0)))


@operator("Selu")
def selu(b: Builder) -> None:
    """y = gamma x where x > 0, else gamma (alpha exp(x) - alpha)"""
    x = data(b, dtypes=b.types("Selu"))
    alpha, gamma = b.choose("alpha", (None, 1.0, 2.0)), b.choose("gamma", (None, 1.0, 0.5))
    b.emit("Selu", (x,), x.shapes, {"alpha": alpha, "gamma": gamma}, bounds=(-2.0, max(1.06 * x.high, 0.0)))


@operator("HardSigmoid")
def hard_sigmoid(b: Builder) -> None:
    """y = max(0, min(1, alpha x + beta))"""
    x = data(b, dtypes=b.types("HardSigmoid"))
    alpha = b.choose("alpha", (None, 0.25, 0.5, 1 / 6))
    beta = b.choose("beta", (None, 0.5, 0.25))
    b.emit("HardSigmoid", (x,), x.shapes, {"alpha": alpha, "beta": beta}, bounds=(0.0, 1.0))


@operator("ThresholdedRelu")
def thresholded_relu(b: Builder) -> None:
    """y = x where x > alpha, else 0"""
    x = data(b, dtypes=b.types("ThresholdedRelu"))
    alpha = b.choose("alpha", (1.0, 0.0, 0.5))
    bounds = (min(0.0, x.low), max(0.0, x.high))
    b.emit("ThresholdedRelu", (x,), x.shapes, {"alpha": b.unless(alpha, 1.0)}, bounds=bounds)


@operator("Gelu", since=20)
def gelu(b: Builder) -> None:
    """y = x / 2 (1 + erf(x / sqrt 2)), or its tanh approximation"""
    x = data(b, dtypes=b.types("Gelu"))
    approximate = b.choose("approximate", ("none", "tanh"))
    attributes = {"approximate": b.unless(approximate, "none")}
    b.emit("Gelu", (x,), x.shapes, attributes, bounds=(-0.2, max(x.high, 0.0)))


@operator("Clip", weight=2)
def clip(b: Builder) -> None:
    """y = min(max(x, low), high), each bound an optional scalar"""
    x = data(b, dtypes=b.types("Clip"))
    low, high = b.choose("bounds", ((0.0, 6.0), (-1.0, 1.0), (None, 1.0), (0.0, None), (-0.5, 2.5), (None, None)))
    sources = ("initializer", "constant", "initializer", "input")
    if x.dtype in RANGES:
        least = RANGES[x.dtype][0]
        low, high = (None if bound is None else max(math.floor(bound), least) for bound in (low, high))
    operands = [scalar(b, name, bound, sources, dtype=x.dtype) for name, bound in (("low", low), ("high", high))]
    floor, ceiling = -math.inf if low is None else low, math.inf if high is None else high
    bounds = (min(max(x.low, floor), ceiling), min(max(x.high, floor), ceiling))
    b.emit("Clip", (x, *operands), x.shapes, bounds=bounds)


@operator("Softmax", weight=1.5)
def softmax(b: Builder) -> None:
    """y = exp(x) / sum exp(x): over `axis`, and before opset 13 over it and all axes after it"""
    _normalized(b, "Softmax", (0.0, UNIT))


@operator("LogSoftmax")
def log_softmax(b: Builder) -> None:
    """y = log(softmax(x)), with the axes of Softmax"""
    _normalized(b, "LogSoftmax", (-200.0, 0.0))


@operator("Hardmax")
def hardmax(b: Builder) -> None:
    """y = 1 at the first maximum along the axes of Softmax, else 0"""
    _normalized(b, "Hardmax", (0.0, 1.0))


def _normalized(b: Builder, name: str, bounds: tuple[float, float]) -> None:
    x = data(b, dtypes=b.types(name), ranks=(2, 3, 4, 1, 5))
    axis = b.axis("axis", x.rank)
    default = -1 if b.opset >= 13 else 1
    b.emit(name, (x,), x.shapes, {"axis": b.unless(axis, default)}, bounds=bounds)


@operator("Shrink", weight=0.4)
def shrink(b: Builder) -> None:
    """y = x + bias where x < -lambd, x - bias where x > lambd, else 0"""
    x = data(b, dtypes=[dtype for dtype in b.types("Shrink") if dtype not in RANGES])
    lambd, bias = b.choose("lambd", (0.5, 1.0, 0.0)), b.choose("bias", (0.0, 0.5, 1.0))
    attributes = {"lambd": b.unless(lambd, 0.5), "bias": b.unless(bias, 0.0)}
    b.emit("Shrink", (x,), x.shapes, attributes, bounds=(min(x.low, 0.0), max(x.high, 0.0)))


@operator("Swish", since=24, until=24, heir="Mish", weight=0.7)
def swish(b: Builder) -> None:
    """y = x / (1 + exp(-alpha x))"""
    x = data(b, dtypes=b.types("Swish"))
    alpha = b.choose("alpha", (1.0, 0.5, 2.0))
    bounds = (min(x.low, 0.0), max(x.high, 0.0))
    b.emit("Swish", (x,), x.shapes, {"alpha": b.unless(alpha, 1.0)}, bounds=bounds)
