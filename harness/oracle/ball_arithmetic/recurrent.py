"""Recurrent layers: a step in ball arithmetic, carried along each sequence.

X (T, B, I), W (D, gates H, I), R (D, gates H, H), B (D, 2 gates H), states (D, B, H); Y (T, D, B, H). The sum of a gate
is one sum of I + H products and the biases, rounded as such. What a step adds to the state's radius stays in it, and
the recurrent weights may multiply it: after some ten steps of a wide layer nothing is left to say. So where the Y of
the implementation that is judged is known, each step starts from the state that it gave: any right implementation makes
the right step from there, and a wrong one a wrong step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from operator import itemgetter

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, constant, exact, hull, joined, moved, rounded, value
from driftnet.oracle.ball_arithmetic.elementwise import add, larger, multiply, relu, select, smaller, subtract
from driftnet.oracle.ball_arithmetic.functions import (
    exponential_unit,
    hard_sigmoid,
    leaky_relu,
    looser,
    sigmoid,
    softplus,
    softsign,
    thresholded_relu,
    through,
)
from driftnet.oracle.ball_arithmetic.linear import Sum, products
from driftnet.oracle.ball_arithmetic.rules import Context, Maybe, Operands, Results, attribute, rule

Activation = Callable[[Ball], Ball]
LOOSE = "driftnet.loose"
"""An attribute: the ONNX name of an activation -> by how much a target says that it is off."""
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


def _rnn_step(layer: Layer, wx: Sum, state: State) -> State:
    (h,) = state
    return (layer.activate(0, _plus(wx, products(np.matmul, h, layer.r, layer.hidden), layer.bias_r).ball(h.dtype)),)


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


def lstm_step(layer: Layer, wx: Sum, state: State) -> State:
    """One step of an LSTM: H' and C' of the sum X W' and its bias, and of (H, C)."""
    h, c = state
    sums = _plus(wx, products(np.matmul, h, layer.r, layer.hidden), layer.bias_r).ball(h.dtype)
    gates = layer.activate(0, moved(_peeping(layer, sums, (0, 2), c), lambda a: a[..., : 3 * layer.hidden]))
    i, o, f = (layer.gate(gates, k) for k in range(3))
    if attribute(layer.node, "input_forget", 0):
        f = subtract(constant(1, h.dtype), i)
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


@dataclass(frozen=True)
class Cell:
    """What a step of a layer does: its gates and states, the activations where none are named, the step itself."""

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Step


# a rule each
CELLS = {
    "RNN": Cell(1, 1, ("Tanh",), _rnn_step),
    "GRU": Cell(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": Cell(4, 2, ("Sigmoid", "Tanh", "Tanh"), lstm_step),
}


@rule(*CELLS)
def layers(*operands: Maybe, node: Node, context: Context) -> Results:
    """RNN: H' = f(X W' + H R' + biases); GRU: z, r, h gates, H' = (1 - z) h + z H; LSTM: i, o, f, c gates,
    C' = f C + i c, H' = o h(C')"""
    return recurrent(CELLS[node.op], node, operands, context)


def recurrent(cell: Cell, node: Node, operands: Operands, context: Context) -> Results:
    """Y, Y_h and for two states Y_c of every direction; each step from the Y observed before it, where there is one."""
    x, w, r, *rest = operands
    bias, lens, h, c, peepholes = [*rest, *[None] * 5][:5]
    batch_first, seen = bool(attribute(node, "layout", 0)), context.observed.get(node.outputs[0])
    if batch_first:
        x, h, c = (state and moved(state, lambda a: np.swapaxes(a, 0, 1)) for state in (x, h, c))
        seen = None if seen is None else np.moveaxis(seen, 0, 2)
    length, batch = x.shape[:2]
    steps = np.full(batch, length) if lens is None else value(lens)
    sequences, finals = [], []
    for d, layer in enumerate(_layers(node, cell, w, r, bias, peepholes)):
        given = [moved(state, itemgetter(d)) if state else _zeros(x, batch, layer.hidden) for state in (h, c)]
        backwards = attribute(node, "direction", "forward") == "reverse" or d == 1
        start, shown = tuple(given[: cell.states]), None if seen is None else seen[:, d]
        y, state = _carried(layer, x, start, steps, backwards, cell.step, shown)
        sequences.append(y)
        finals.append(state)
    y = joined(sequences, lambda arrays: np.stack(arrays, 1))
    y = moved(y, lambda a: np.moveaxis(a, 2, 0)) if batch_first else y
    return [y, *(joined(last, lambda arrays: np.stack(arrays, int(batch_first))) for last in zip(*finals))]


def _carried(
    layer: Layer, x: Ball, state: State, lens: Array, backwards: bool, step: Step, seen: Array | None
) -> tuple[Ball, State]:
    """(T, B, H) and the last state. Beyond its length a sequence yields 0 and keeps its state."""
    length, batch = x.shape[:2]
    time, sample = np.arange(length)[:, None], np.arange(batch)
    order = np.where(time < lens, lens - 1 - time, time) if backwards else np.broadcast_to(time, (length, batch))
    ordered = moved(x, lambda a: a[order, sample]) if backwards else x
    wx = products(np.matmul, ordered, layer.w, x.shape[2]).plus(layer.bias_w)
    zero, yields = _zeros(x, batch, layer.hidden), []
    for t in range(length):
        before = state
        if t and seen is not None:
            before = (rounded(seen[order[t - 1], sample], 0.0, x.dtype, roundings=1), *state[1:])
        new = step(layer, wx.each(lambda a: a[t]), before)  # noqa: B023
        if t < lens.min(initial=length):
            state = new
            yields.append(new[0])
        else:
            going = exact((t < lens)[:, None])
            state = tuple(select(going, a, b) for a, b in zip(new, state))
            yields.append(select(going, new[0], zero))
    if not yields:
        return _zeros(x, 0, batch, layer.hidden), state
    y = joined(yields, np.stack)
    return (moved(y, lambda a: a[order, sample]) if backwards else y), state


def _zeros(like: Ball, *shape: int) -> Ball:
    return Ball(np.zeros(shape), None, like.dtype)


def _layers(node: Node, cell: Cell, w: Ball, r: Ball, bias: Ball | None, peepholes: Ball | None) -> Iterator[Layer]:
    n, count = cell.gates * r.shape[2], len(cell.activations)
    functions = _activations(node, cell.activations * w.shape[0])
    for d in range(w.shape[0]):
        yield Layer(
            node,
            moved(w, lambda a: a[d].T),  # noqa: B023
            moved(r, lambda a: a[d].T),  # noqa: B023
            bias and moved(bias, lambda a: a[d, :n]),  # noqa: B023
            bias and moved(bias, lambda a: a[d, n:]),  # noqa: B023
            peepholes and moved(peepholes, itemgetter(d)),
            functions[d * count : (d + 1) * count],
            attribute(node, "clip", np.inf),
        )


ACTIVATIONS: Mapping[str, Callable[..., Ball]] = {
    "affine": lambda x, alpha=1.0, beta=0.0: through(lambda v: alpha * v + beta, x, "HardSigmoid"),
    "elu": lambda x, alpha=1.0: exponential_unit(x, alpha),
    "hardsigmoid": hard_sigmoid,
    "leakyrelu": leaky_relu,
    "relu": relu,
    "scaledtanh": lambda x, alpha=1.0, beta=1.0: through(lambda v: alpha * np.tanh(beta * v), x, "Tanh"),
    "sigmoid": lambda x: through(sigmoid, x, "Sigmoid"),
    "softplus": lambda x: through(softplus, x, "Softplus"),
    "softsign": lambda x: through(softsign, x, "Softsign"),
    "tanh": lambda x: through(np.tanh, x, "Tanh"),
    "thresholdedrelu": thresholded_relu,
}


def _activations(node: Node, defaults: tuple[str, ...]) -> tuple[Activation, ...]:
    """The activations, each taking from the lists of alphas and betas what it needs."""
    lists = {name: iter(attribute(node, f"activation_{name}", ())) for name in ("alpha", "beta")}
    loose = {name.lower(): error for name, error in attribute(node, LOOSE, {}).items()}
    found = []
    for name in attribute(node, "activations", defaults):
        function = ACTIVATIONS[str(name).lower()]
        taken = {name: next(lists[name], None) for name in signature(function).parameters if name in lists}
        exact = partial(function, **{name: x for name, x in taken.items() if x is not None})
        found.append(partial(_loosely, exact, loose.get(str(name).lower(), 0.0)))
    return tuple(found)


def _loosely(function: Activation, error: float | tuple[float, float], x: Ball) -> Ball:
    return looser(function(x), error, x) if error else function(x)
