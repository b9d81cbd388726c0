"""Recurrent layers: a step in ball arithmetic, carried along each sequence.

X (T, B, I), W (D, gates H, I), R (D, gates H, H), B (D, 2 gates H), states (D, B, H); Y (T, D, B, H). The sum of a gate
is one sum of I + H products and the biases, rounded as such. What a step adds to the state's radius stays in it, and
the recurrent weights may multiply it: after some ten steps of a wide layer nothing is left to say. So where the Y of
the implementation that is judged is known, each step starts from the state that it gave: any right implementation makes
the right step from there, and a wrong one a wrong step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.model.graph import Node, Values
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, exact, hull, rounded, value
from driftnet.oracle.ball_arithmetic.elementwise import add, larger, multiply, negated, select, smaller
from driftnet.oracle.ball_arithmetic.functions import sigmoid, softplus, softsign, through
from driftnet.oracle.ball_arithmetic.linear import Sum, products
from driftnet.oracle.ball_arithmetic.normalization import constant
from driftnet.oracle.ball_arithmetic.operands import joined, moved, operand
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule

Activation = Callable[[Ball], Ball]
State = tuple[Ball, ...]


@dataclass(frozen=True)
class Layer:
    """One direction of a node.

    w, r   weights transposed: (I, gates H) and (H, gates H);  bias_w, bias_r   (gates H,)
    peepholes   (3, H): of the gates i, o, f;   activations   the functions f, g, h of the specification
    clip   bound on what goes into an activation
    """

    node: Node
    w: Ball
    r: Ball
    bias_w: Ball | None
    bias_r: Ball | None
    peepholes: Ball | None
    activations: tuple[Activation, ...]
    clip: float

    @property
    def hidden(self) -> int:
        return self.r.shape[0]

    def gate(self, x: Ball, k: int) -> Ball:
        """Columns of gate k."""
        return moved(x, lambda a: a[..., k * self.hidden : (k + 1) * self.hidden])

    def activate(self, which: int, x: Ball) -> Ball:
        """Activation number `which` of `x`, clipped."""
        if self.clips(x):
            x = smaller(larger(x, constant(-self.clip, x.dtype)), constant(self.clip, x.dtype))
        return self.activations[which](x)

    def clips(self, x: Ball) -> bool:
        """Whether any element of `x` may be beyond `clip`."""
        return not np.max(np.abs(x.numbers) + x.error, initial=0.0) <= self.clip


Step = Callable[[Layer, Sum, State], State]


@rule("RNN")
def _rnn(node: Node, operands: Operands, context: Context) -> Results:
    """H' = f(X W' + H R' + biases)"""
    return recurrent(node, operands, 1, ("Tanh",), _rnn_step, context.observed)


def _rnn_step(layer: Layer, wx: Sum, state: State) -> State:
    (h,) = state
    return (layer.activate(0, _plus(wx, products(np.matmul, h, layer.r, layer.hidden), layer.bias_r).ball(h.dtype)),)


@rule("GRU")
def _gru(node: Node, operands: Operands, context: Context) -> Results:
    """z, r, h gates: H' = (1 - z) h + z H"""
    return recurrent(node, operands, 3, ("Sigmoid", "Tanh"), _gru_step, context.observed)


def _gru_step(layer: Layer, wx: Sum, state: State) -> State:
    """h = g(X Wh' + (r H) Rh' + biases), or with linear_before_reset g(X Wh' + r (H Rh' + bias) + bias)"""
    (h,) = state
    n = layer.hidden
    both, last = slice(0, 2 * n), slice(2 * n, 3 * n)
    weights, bias = moved(layer.r, lambda a: a[:, last]), layer.bias_r and moved(layer.bias_r, lambda a: a[last])
    gates_bias = layer.bias_r and moved(layer.bias_r, lambda a: a[both])
    fed_back = products(np.matmul, h, moved(layer.r, lambda a: a[:, both]), n)
    gates = layer.activate(0, _plus(wx.each(lambda a: a[..., both]), fed_back, gates_bias).ball(h.dtype))
    z, r = layer.gate(gates, 0), layer.gate(gates, 1)
    x = wx.each(lambda a: a[..., last])
    if attribute(layer.node, "linear_before_reset", 0):
        inner = products(np.matmul, h, weights, n).plus(bias).ball(h.dtype)
        candidate = layer.activate(1, add(x.ball(h.dtype), multiply(r, inner)))
    else:
        inner_sum = products(np.matmul, multiply(r, h), weights, n)
        candidate = layer.activate(1, _plus(x, inner_sum, bias).ball(h.dtype))
    return (_blend(z, candidate, h),)


def _blend(z: Ball, a: Ball, b: Ball) -> Ball:
    """(1 - z) a + z b, in which a change of z moves the result by a - b."""
    share, rest = z.numbers, 1 - z.numbers
    apart = np.abs(a.numbers - b.numbers) + a.error + b.error
    radius = np.abs(rest) * a.error + np.abs(share) * b.error + apart * z.error
    size = np.abs(rest * a.numbers) + np.abs(share * b.numbers) + np.abs(share * a.numbers)
    return rounded(rest * a.numbers + share * b.numbers, radius, a.dtype, roundings=3, size=size)


@rule("LSTM")
def _lstm(node: Node, operands: Operands, context: Context) -> Results:
    """i, o, f, c gates: C' = f C + i c, H' = o h(C')"""
    return recurrent(node, operands, 4, ("Sigmoid", "Tanh", "Tanh"), lstm_step, context.observed)


def lstm_step(layer: Layer, wx: Sum, state: State) -> State:
    """One step of an LSTM: H' and C' of the sum X W' and its bias, and of (H, C)."""
    h, c = state
    sums = _plus(wx, products(np.matmul, h, layer.r, layer.hidden), layer.bias_r).ball(h.dtype)
    gates = layer.activate(0, moved(_peeping(layer, sums, (0, 2), c), lambda a: a[..., : 3 * layer.hidden]))
    i, o, f = (layer.gate(gates, k) for k in range(3))
    if attribute(layer.node, "input_forget", 0):
        f = add(constant(1.0, h.dtype), negated(i))
    cell = add(multiply(f, c), multiply(i, layer.activate(1, layer.gate(sums, 3))))
    if layer.peepholes is not None:
        o = layer.activate(0, layer.gate(_peeping(layer, sums, (1,), cell), 1))
    # "applied to the input of activations", says the specification of clip; onnxruntime leaves the cell alone.
    seen = layer.activations[2](cell)
    return multiply(o, hull([seen, layer.activate(2, cell)]) if layer.clips(cell) else seen), cell


def _peeping(layer: Layer, sums: Ball, gates: Sequence[int], cell: Ball) -> Ball:
    """The sums of the gates, some of which see the cell."""
    if layer.peepholes is None:
        return sums
    seeing = np.repeat(np.isin(range(4), gates), layer.hidden)
    weights = moved(layer.peepholes, lambda p: np.where(seeing, np.resize(p, 4 * layer.hidden), 0))
    return add(sums, multiply(weights, moved(cell, lambda a: np.tile(a, 4))))


def _plus(a: Sum, b: Sum, bias: Ball | None) -> Sum:
    return Sum(a.midpoint + b.midpoint, a.radius + b.radius, a.size + b.size, a.terms + b.terms).plus(bias)


def recurrent(
    node: Node, operands: Operands, gates: int, defaults: tuple[str, ...], step: Step, observed: Values
) -> Results:
    """Y, Y_h and for two states Y_c of every direction; each step from the Y observed before it, where there is one."""
    batch_first = bool(attribute(node, "layout", 0))
    x = moved(operands[0], lambda a: np.swapaxes(a, 0, 1)) if batch_first else operands[0]
    length, batch = x.shape[:2]
    lens = operand(operands, 4)
    lens = np.full(batch, length) if lens is None else value(lens)
    direction = attribute(node, "direction", "forward")
    seen = observed.get(node.outputs[0])
    seen = np.moveaxis(seen, 0, 2) if batch_first and seen is not None else seen
    sequences, finals = [], []
    for d, layer in enumerate(_layers(node, operands, gates, defaults)):
        states = [
            _initial(operand(operands, 5 + k), d, batch, layer, x.dtype, batch_first) for k in range(1 + gates // 4)
        ]
        backwards = direction == "reverse" or d == 1
        y, state = _carried(layer, x, tuple(states), lens, backwards, step, None if seen is None else seen[:, d])
        sequences.append(y)
        finals.append(state)
    axis = 2 if batch_first else 1
    y = joined(sequences, lambda arrays: np.stack(arrays, 1))
    y = moved(y, lambda a: np.moveaxis(a, 2, 0)) if batch_first else y
    return [y, *(joined(last, lambda arrays: np.stack(arrays, axis - 1)) for last in zip(*finals))]


def _carried(
    layer: Layer, x: Ball, state: State, lens: Array, backwards: bool, step: Step, seen: Array | None
) -> tuple[Ball, State]:
    """(T, B, H) and the last state. Beyond its length a sequence yields 0 and keeps its state."""
    length, batch = x.shape[:2]
    time, sample = np.arange(length)[:, None], np.arange(batch)
    order = np.where(time < lens, lens - 1 - time, time) if backwards else np.broadcast_to(time, (length, batch))
    ordered = moved(x, lambda a: a[order, sample]) if backwards else x
    wx = products(np.matmul, ordered, layer.w, x.shape[2]).plus(layer.bias_w)
    zero, yields = Ball(np.zeros((batch, layer.hidden)), None, x.dtype), []
    for t in range(length):
        before = state
        if t and seen is not None:
            before = (rounded(seen[order[t - 1], sample], 0.0, x.dtype, roundings=1), *state[1:])
        new = step(layer, _at(wx, t), before)
        if t < lens.min(initial=length):
            state = new
            yields.append(new[0])
        else:
            going = exact((t < lens)[:, None])
            state = tuple(select(going, a, b) for a, b in zip(new, state))
            yields.append(select(going, new[0], zero))
    if not yields:
        return Ball(np.zeros((0, batch, layer.hidden)), None, x.dtype), state
    y = joined(yields, np.stack)
    return (moved(y, lambda a: a[order, sample]) if backwards else y), state


def _at(sums: Sum, t: int) -> Sum:
    return sums.each(lambda a: a[t])


def _initial(given: Ball | None, d: int, batch: int, layer: Layer, dtype: np.dtype, batch_first: bool) -> Ball:
    if given is None:
        return Ball(np.zeros((batch, layer.hidden)), None, dtype)
    return moved(given, lambda a: a[:, d] if batch_first else a[d])


def _layers(node: Node, operands: Operands, gates: int, defaults: tuple[str, ...]) -> Iterator[Layer]:
    w, r = operands[1:3]
    biases, peepholes = operand(operands, 3), operand(operands, 7)
    n = gates * r.shape[2]
    functions = _activations(node, defaults * w.shape[0])
    for d in range(w.shape[0]):
        yield Layer(
            node,
            moved(_of(w, d), np.transpose),
            moved(_of(r, d), np.transpose),
            biases and moved(_of(biases, d), lambda a: a[:n]),
            biases and moved(_of(biases, d), lambda a: a[n:]),
            peepholes and _of(peepholes, d),
            functions[d * len(defaults) : (d + 1) * len(defaults)],
            attribute(node, "clip", np.inf),
        )


def _of(x: Ball, d: int) -> Ball:
    return moved(x, lambda a: a[d])


PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}
"""activation -> defaults of alpha and beta, None where it has none"""


def _activations(node: Node, defaults: tuple[str, ...]) -> tuple[Activation, ...]:
    """The activations, each taking from the lists of alphas and betas what it needs."""
    alphas, betas = (iter(attribute(node, f"activation_{name}", ())) for name in ("alpha", "beta"))
    found = []
    for name in (str(name).lower() for name in attribute(node, "activations", defaults)):
        alpha, beta = PARAMETERS.get(name, (None, None))
        found.append(
            _activation(
                name,
                0.0 if alpha is None else float(next(alphas, alpha)),
                0.0 if beta is None else float(next(betas, beta)),
            )
        )
    return tuple(found)


def _activation(name: str, alpha: float, beta: float) -> Activation:
    """The function of that name, as approximated by the operator that is most like it."""
    table: dict[str, tuple[Callable[[Array], Array], str, Sequence[tuple[float, ...]]]] = {
        "affine": (lambda x: alpha * x + beta, "HardSigmoid", ()),
        "elu": (lambda x: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), "Elu", ((0.0, 0.0),)),
        "hardsigmoid": (lambda x: np.clip(alpha * x + beta, 0, 1), "HardSigmoid", ()),
        "leakyrelu": (lambda x: np.where(x >= 0, x, alpha * x), "LeakyRelu", ((0.0, 0.0),)),
        "relu": (lambda x: np.maximum(x, 0), "Relu", ()),
        "scaledtanh": (lambda x: alpha * np.tanh(beta * x), "Tanh", ()),
        "sigmoid": (sigmoid, "Sigmoid", ()),
        "softplus": (softplus, "Softplus", ()),
        "softsign": (softsign, "Softsign", ()),
        "tanh": (np.tanh, "Tanh", ()),
        "thresholdedrelu": (lambda x: np.where(x > alpha, x, 0), "ThresholdedRelu", ((alpha, 0.0, alpha),)),
    }
    function, operator, turns = table[name]
    return lambda x: through(function, x, operator, turns)
