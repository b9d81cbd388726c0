"""Activations: element by element, the shape stays."""

import math
from functools import partial

from driftnet.generators.building.builder import Builder, hull
from driftnet.generators.building.graph import Stated
from driftnet.generators.building.operands import NUMBERS, Domain, data, scalar, weight
from driftnet.generators.building.values import FLOAT16, RANGES, Shape
from driftnet.generators.ops.elementwise import ONE, Ends, unary
from driftnet.generators.ops.registry import Function, operator

# In float16 onnxruntime's Softplus and its like overflow to infinity where e ** x does.
_EXPONENTS = Domain(lambda v: v.dtype != FLOAT16 or v.high <= 36.0)

activation = partial(operator, family="activation")
_plain = partial(unary, domain=_EXPONENTS)

activation("Relu", "y = max(x, 0)", weight=3)(_plain(lambda low, high: (max(low, 0.0), max(high, 0.0))))
activation("Sigmoid", "y = 1 / (1 + exp(-x))", weight=1.5)(_plain((0.0, ONE)))
activation("Tanh", "y = tanh(x)", weight=1.5)(_plain((-ONE, ONE)))
activation("Softplus", "y = ln(exp(x) + 1)")(_plain(lambda low, high: (0.0, max(high, 0.0) + 1.0)))
activation("Softsign", "y = x / (1 + |x|)")(_plain((-ONE, ONE)))
activation("HardSwish", "y = x max(0, min(1, x / 6 + 1 / 2))")(_plain(lambda low, high: (-0.375, max(high, 0.0))))
activation("Mish", "y = x tanh(softplus(x))")(_plain(lambda low, high: (-0.31, max(high, 0.0))))
activation("Erf", "y = erf(x)")(_plain((-ONE, ONE)))


def _slopes(default: float, b: Builder) -> tuple[float, ...]:
    """Dyadic where the regime is exact: then a leaky unit keeps every partial sum representable."""
    return (0.5, 0.25, 2.0, -0.5) if b.regime.exact else (default, 0.1, 1.5, 0.0, -0.3)


def _leaky(low: float, high: float, slope: float) -> Ends:
    return hull(low, high, low * slope, high * slope)


activation("LeakyRelu", "y = x where x >= 0, else alpha x", weight=1.5)(unary(_leaky, alpha=partial(_slopes, 0.01)))


@operator("PRelu")
def prelu(b: Builder) -> None:
    """y = x where x >= 0, else slope x; slope broadcasts to x (unidirectional)"""
    x = data(b, ranks=(2, 3, 4, 5), fixed=(1,))
    per_channel = (x.shape[1],) + (1,) * (x.rank - 2)
    last = x.shape[-1:] if x.fixed(x.rank - 1) else per_channel

    def along(axis: int) -> Shape:
        return tuple([n if k == axis else 1 for k, n in enumerate(x.shape)]) if x.fixed(axis) else per_channel

    whole = x.shape[1:] if all(map(x.fixed, range(1, x.rank))) else per_channel
    shapes = (per_channel, (1,), last, (1,) * x.rank, along(x.rank - 1), along(x.rank - 2), whole)
    shape = b.choose("shape", shapes)
    slope = weight(b, "slope", shape, dtype=x.dtype)
    b.emit((x, slope), x, bounds=_leaky(x.low, x.high, slope.magnitude))


activation("Elu", "y = x where x >= 0, else alpha (exp(x) - 1)")(
    unary(lambda low, high, alpha: (-abs(alpha), max(high, abs(alpha))), alpha=partial(_slopes, 1.0))
)
activation("Celu", "y = max(0, x) + min(0, alpha (exp(x / alpha) - 1)), alpha > 0")(
    unary(lambda low, high, alpha: (-alpha, max(high, 0.0)), alpha=(1.0, 0.5, 2.0))
)
activation("Selu", "y = gamma x where x > 0, else gamma (alpha exp(x) - alpha)")(
    unary(lambda low, high, *_: (-2.0, max(1.06 * high, 0.0)), alpha=(None, 1.0, 2.0), gamma=(None, 1.0, 0.5))
)
activation("HardSigmoid", "y = max(0, min(1, alpha x + beta))")(
    unary((0.0, 1.0), alpha=(None, 0.25, 0.5, 1 / 6), beta=(None, Stated(0.5), 0.25))
)
activation("ThresholdedRelu", "y = x where x > alpha, else 0")(
    unary(lambda low, high, alpha: hull(low, high, 0.0), alpha=(1.0, 0.0, 0.5))
)
activation("Gelu", "y = x / 2 (1 + erf(x / sqrt 2)), or its tanh approximation")(
    unary(lambda low, high, _: (-0.2, max(high, 0.0)), approximate=("none", "tanh"))
)


@operator("Clip", weight=2)
def clip(b: Builder) -> None:
    """y = min(max(x, low), high), each bound an optional scalar"""
    x = data(b)
    low, high = b.choose("bounds", ((0.0, 6.0), (-1.0, 1.0), (None, 1.0), (0.0, None), (-0.5, 2.5), (None, None)))
    if x.dtype in RANGES:
        low, high = (None if end is None else max(math.floor(end), RANGES[x.dtype][0]) for end in (low, high))
    operands = [scalar(b, name, end, NUMBERS, dtype=x.dtype) for name, end in (("low", low), ("high", high))]
    floor, ceiling = -math.inf if low is None else low, math.inf if high is None else high
    b.emit((x, *operands), x, bounds=(min(max(x.low, floor), ceiling), min(max(x.high, floor), ceiling)))


def _normalized(bounds: Ends) -> Function:
    def normalized(b: Builder) -> None:
        x = data(b, ranks=(2, 3, 4, 1, 5))
        b.emit((x,), x, {"axis": b.axis("axis", x.rank)}, bounds=bounds)

    return normalized


_SOFTMAX = "y = exp(x) / sum exp(x): over `axis`, and before opset 13 over it and all axes after it"
activation("Softmax", _SOFTMAX, weight=1.5)(_normalized((0.0, ONE)))
activation("LogSoftmax", "y = log(softmax(x)), with the axes of Softmax")(_normalized((-200.0, 0.0)))
activation("Hardmax", "y = 1 at the first maximum along the axes of Softmax, else 0")(_normalized((0.0, 1.0)))


@operator("Shrink", weight=0.4)
def shrink(b: Builder) -> None:
    """y = x + bias where x < -lambd, x - bias where x > lambd, else 0"""
    x = data(b, dtypes=b.floats())
    b.emit((x,), x, b.attributes(lambd=(0.5, 1.0, 0.0), bias=(0.0, 0.5, 1.0)), bounds=hull(x, 0.0))


activation("Swish", "y = x / (1 + exp(-alpha x))", weight=0.7, until=24, heir="Mish")(
    unary(lambda low, high, _: hull(low, high, 0.0), alpha=(1.0, 0.5, 2.0))
)
