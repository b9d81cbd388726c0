"""Functions of one variable, and powers: what an interval goes to, and how well engines approximate them.

An interval [a, b] goes to the hull of f(a), f(b) and, where f is not monotone, of its values at the turning points and
jumps between. An engine's own f may be off by the absolute and relative errors of
driftnet.oracle.tolerances.approximations, which are stated for float32, and by 4u where that names no operator. In
a narrower format they are a quarter as many units in the last place: there a function is computed in float32, or has
few digits to get right.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    U,
    between,
    format_of,
    is_float,
    positive,
    rounded,
    undecided_where,
    value,
    widened,
)
from driftnet.oracle.ball_arithmetic.elementwise import add
from driftnet.oracle.ball_arithmetic.rules import Maybe, rule
from driftnet.oracle.tolerances.approximations import APPROXIMATIONS
from driftnet.oracle.tolerances.table import FUNCTION_ROUNDINGS, NARROW_FUNCTION

Function = Callable[[Array], Array]
Turn = tuple[float, ...]
"""(a point where f turns or jumps, its values or one-sided limits there ...)"""

DEFAULT = (0.0, FUNCTION_ROUNDINGS * U, 0.0)


def approximated(midpoint: Array, radius: Array | float, dtype: np.dtype, operator: str, factor: float = 1.0) -> Ball:
    """The ball around `midpoint`, known to `radius`, as an `operator` may give it, `factor` times as far off."""
    absolute, relative, _ = APPROXIMATIONS.get(operator, DEFAULT)
    size = np.abs(midpoint) + radius
    off = (factor * absolute + relative * size) / U
    return rounded(
        midpoint, radius, dtype, roundings=1, size=size + (off if format_of(dtype).unit == U else off * NARROW_FUNCTION)
    )


def through(function: Function, x: Ball, operator: str, turns: Sequence[Turn] = (), factor: float = 1.0) -> Ball:
    """`function` of a float ball, as `operator` approximates it. `function` is monotone but for `turns`.

    factor   what the absolute error of the approximation is multiplied by
    """
    if x.radius is None:
        return approximated(np.asarray(function(x.midpoint)), 0.0, x.dtype, operator, factor)
    low, high = x.low, x.high
    a, b = function(low), function(high)
    least, most = np.minimum(a, b), np.maximum(a, b)
    for point, *values in turns:
        inside = (low <= point) & (point <= high)
        least = np.where(inside, np.minimum(least, min(values)), least)
        most = np.where(inside, np.maximum(most, max(values)), most)
    ends = undecided_where(x.undecided, between(least, most, x.dtype))
    return approximated(ends.numbers, ends.error, x.dtype, operator, factor)


def looser(x: Ball, error: float | Sequence[float], operand: Ball) -> Ball:
    """What a target that declares `error` of its own may give in place of `x`, made of `operand`: off by so much in
    float32, by so much of elements beyond 1, and in narrower formats by as many roundings.

    error   where it is two, the second is for each unit of the operand
    """
    absolute, share = (error, 0.0) if isinstance(error, float | int) else error
    allowed = absolute + share * (np.abs(operand.numbers) + operand.error) if share else absolute
    own = allowed * max(1.0, format_of(x.dtype).unit / U)
    return widened(x.numbers, x.error + own * np.maximum(1.0, np.abs(x.numbers)), x.dtype)


def root(x: Ball) -> Ball:
    """The square root of what is not negative."""
    return through(np.sqrt, positive(x), "Sqrt")


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))"""
    return np.asarray(1 / (1 + np.exp(-x)))


def softplus(x: Array) -> Array:
    """ln(1 + exp(x))"""
    return np.asarray(np.logaddexp(0, x))


def mish(x: Array) -> Array:
    """x tanh(softplus(x))"""
    return np.asarray(x * np.tanh(softplus(x)))


def hard_swish(x: Array) -> Array:
    """x max(0, min(1, x / 6 + 1 / 2))"""
    return np.asarray(x * np.clip(x / 6 + 0.5, 0, 1))


def gelu(x: Array) -> Array:
    """x / 2 (1 + erf(x / sqrt 2))"""
    return np.asarray(x / 2 * (1 + erf(x / math.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"""
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


STEP, LAST, TERMS = 1 / 32, 6.0, 8


def _series() -> list[Array]:
    """The coefficients of the error function's Taylor series around 0, STEP, ... LAST: the n-th derivative is a Hermite
    polynomial times exp(-a^2)."""
    a = np.arange(0, LAST + STEP, STEP)
    slope, hermite = 2 / math.sqrt(math.pi) * np.exp(-a * a), [np.ones_like(a), 2 * a]
    for n in range(1, TERMS):
        hermite.append(2 * a * hermite[n] - 2 * n * hermite[n - 1])
    terms = [(-1) ** n * hermite[n] * slope / math.factorial(n + 1) for n in range(TERMS)]
    return [np.array([math.erf(each) for each in a]), *terms]


_ERF = _series()


def erf(x: Array) -> Array:
    """The error function, to three roundings of float64; math.erf of each element took a tenth of what a net of Gelus
    did."""
    size = np.minimum(np.abs(np.asarray(x, np.float64)), LAST)
    nearest = np.nan_to_num(np.rint(size / STEP)).astype(np.intp)
    y, h = _ERF[-1][nearest], size - nearest * STEP
    for term in reversed(_ERF[:-1]):
        y = y * h + term[nearest]
    return np.asarray(np.copysign(y, x))


def softsign(x: Array) -> Array:
    """x / (1 + |x|)"""
    return np.asarray(x / (1 + np.abs(x)))


# a rule each
SIMPLE: dict[str, tuple[Function, tuple[Turn, ...]]] = {
    "Acos": (np.arccos, ()),
    "Acosh": (np.arccosh, ()),
    "Asin": (np.arcsin, ()),
    "Asinh": (np.arcsinh, ()),
    "Atan": (np.arctan, ()),
    "Atanh": (np.arctanh, ()),
    "Cosh": (np.cosh, ((0.0, 1.0),)),
    "Erf": (erf, ()),
    "Exp": (np.exp, ()),
    "HardSwish": (hard_swish, ((-1.5, -0.375),)),
    "Log": (np.log, ()),
    "Mish": (mish, ((-1.1924312, -0.3088434),)),
    "Sigmoid": (sigmoid, ()),
    "Sinh": (np.sinh, ()),
    "Softplus": (softplus, ()),
    "Softsign": (softsign, ()),
    "Sqrt": (np.sqrt, ()),
    "Tanh": (np.tanh, ()),
}
"""operator without attributes -> (function, its turns)"""


@rule(*SIMPLE)
def simple(x: Ball, *, node: Node) -> Ball:
    """A function of one variable"""
    function, turns = SIMPLE[node.op]
    return through(function, x, node.op, turns)


@rule("Sin", "Cos")
def wave(x: Ball, *, node: Node) -> Ball:
    """Slopes are at most 1."""
    return approximated((np.sin if node.op == "Sin" else np.cos)(x.numbers), x.error, x.dtype, node.op)


@rule("Tan")
def tan(x: Ball) -> Ball:
    """Undecided where a pole may lie between."""
    branch = np.floor(x.low / math.pi + 0.5) != np.floor(x.high / math.pi + 0.5)
    return undecided_where(branch, through(np.tan, x, "Tan"))


@rule("Gelu", "com.microsoft.Gelu", "com.microsoft.BiasGelu", "com.microsoft.FastGelu")
def gelu_of_sum(x: Ball, bias: Maybe = None, *, approximate: str = "none", node: Node) -> Ball:
    """Of x and a bias, where there is one"""
    x = x if bias is None else add(x, bias)
    if node.op == "com.microsoft.FastGelu" or approximate == "tanh":
        return _gated(through(gelu_tanh, x, "Gelu", ((-0.7524614, -0.1700407),)), x, "Tanh")
    return through(gelu, x, "Gelu", ((-0.7517916, -0.1699712),))


@rule("Swish", "com.microsoft.QuickGelu")
def swish(x: Ball, *, alpha: float | None = None, node: Node) -> Ball:
    """x / (1 + exp(-alpha x))"""
    slope = alpha if alpha is not None else 1.0 if node.op == "Swish" else float(np.float32(1.702))
    turns = ((-1.2784645 / slope, -0.2784645 / slope),) if slope else ()
    return _gated(through(lambda v: v * sigmoid(slope * v), x, "Mish", turns), x, "Sigmoid")


def _gated(y: Ball, x: Ball, gate: str) -> Ball:
    """`y`, a product of x and a gate, less accurate by x times the absolute error of the gate."""
    off = APPROXIMATIONS[gate].absolute / U * (np.abs(x.numbers) + x.error)
    return rounded(y.numbers, y.error, x.dtype, roundings=1, size=off)


@rule("LeakyRelu")
def leaky_relu(x: Ball, *, alpha: float = 0.01) -> Ball:
    """x where x >= 0, else alpha x"""
    return through(lambda v: np.where(v >= 0, v, alpha * v), x, "LeakyRelu", ((0.0, 0.0),))


@rule("Elu", "Celu")
def elu(x: Ball, *, alpha: float = 1.0, node: Node) -> Ball:
    """x where x >= 0, else alpha (exp(x) - 1); Celu takes exp(x / alpha)"""
    return exponential_unit(x, alpha, stretch=alpha if node.op == "Celu" else 1.0)


@rule("Selu")
def selu(x: Ball, *, alpha: float = 1.6732632, gamma: float = 1.0507010) -> Ball:
    """gamma times Elu"""
    return exponential_unit(x, alpha, gamma)


def exponential_unit(x: Ball, alpha: float, gamma: float = 1.0, stretch: float = 1.0) -> Ball:
    """gamma x where x >= 0, else gamma alpha (exp(x / stretch) - 1)

    An error of exp is multiplied by alpha gamma: MNN's Elu is 2.3e-7 off with an alpha of 1, and 6.8e-7 with one of 3.
    """

    def unit(v: Array) -> Array:
        return np.asarray(gamma * np.where(v >= 0, v, alpha * np.expm1(np.minimum(v, 0) / stretch)))

    return through(unit, x, "Elu", ((0.0, 0.0),), factor=abs(alpha * gamma))


@rule("HardSigmoid")
def hard_sigmoid(x: Ball, *, alpha: float = 0.2, beta: float = 0.5) -> Ball:
    """max(0, min(1, alpha x + beta))"""
    return through(lambda v: np.clip(alpha * v + beta, 0, 1), x, "HardSigmoid")


@rule("ThresholdedRelu")
def thresholded_relu(x: Ball, *, alpha: float = 1.0) -> Ball:
    """x where x > alpha, else 0"""
    return through(lambda v: np.where(v > alpha, v, 0.0), x, "ThresholdedRelu", ((alpha, 0.0, alpha),))


@rule("Shrink")
def shrink(x: Ball, *, lambd: float = 0.5, bias: float = 0.0) -> Ball:
    """x + bias where x < -lambd, x - bias where x > lambd, else 0"""

    def shrunk(v: Array) -> Array:
        return np.where(v < -lambd, v + bias, np.where(v > lambd, v - bias, 0.0))

    if not is_float(x.dtype):
        return widened(np.trunc(shrunk(value(x).astype(np.float64))), 0.0, x.dtype)
    return through(shrunk, x, "Shrink", ((lambd, 0.0, lambd - bias), (-lambd, 0.0, bias - lambd)))


@rule("Pow")
def power(x: Ball, y: Ball) -> Ball:
    """x ** y in the dtype of x. Where neither sign of x - 0 is certain only a whole exponent has an answer."""
    if not is_float(x.dtype):
        return widened(np.trunc(value(x).astype(np.float64) ** value(y).astype(np.float64)), 0.0, x.dtype)
    if x.radius is None and y.radius is None:
        return approximated(x.numbers**y.numbers, 0.0, x.dtype, "Pow")
    corners = [a**b for a in (x.low, x.high) for b in (y.low, y.high)]
    low, high = reduce(np.minimum, corners), reduce(np.maximum, corners)
    across = (x.low < 0) & (x.high > 0)
    whole = (y.error == 0) & (y.numbers >= 0)
    even, odd = (whole & (y.numbers % 2 == rest) for rest in (0, 1))
    result = between(np.where(across & even, np.minimum(low, 0.0**y.numbers), low), high, x.dtype)
    vague = (across & ~even & ~odd) | x.undecided | y.undecided | ((x.low < 0) & (y.error > 0))
    result = undecided_where(vague, result)
    return approximated(result.numbers, result.error, x.dtype, "Pow")
