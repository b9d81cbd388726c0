"""Recurrent layers, with every optional input."""

from __future__ import annotations

from generators.builder import Builder, each
from generators.graph import Attribute, Value
from generators.ops.registry import operator
from generators.values import FLOAT, INT32, Fill, Shape

DIRECTIONS = ("forward", "bidirectional", "reverse")
OUTPUTS = ((True, False), (True, True), (False, True))
RAW_BOUND = 64.0
"""Without clipping gates, a state stays far below this on the sequences generated here."""


def _layer(
    b: Builder, name: str, gates: int, activations: tuple[str, ...], extra: dict[str, Attribute | None], *, cell: bool = False
) -> None:
    """One recurrent layer: X (T, B, I), or (B, T, I) where layout is 1; W (D, gates H, I), R (D, gates H, H), B (D, 2 gates H)."""
    x = b.data(ranks=(3,), fixed=(2,), fits=lambda v: -1e6 < v.low and v.high < 1e6, fill=Fill("weight"))
    hidden = b.choose("hidden_size", (1, 2, 3, 4, 5, 8))
    direction = b.choose("direction", DIRECTIONS)
    outputs = b.choose("outputs", OUTPUTS)
    lengths, layout = b.flag("sequence_lens"), 0
    alternative = b.choose("activations", (False, False, True))
    directions = 2 if direction == "bidirectional" else 1
    weights = [
        b.weight("w", (directions, gates * hidden, x.shape[2])),
        b.weight("r", (directions, gates * hidden, hidden)),
        b.optional("b", (directions, 2 * gates * hidden)),
    ]
    batch_axis = 1 - layout

    def state(s: Shape) -> Shape:
        return (directions, s[1], hidden)

    sequence_lens = _sequence_lens(b, x, batch_axis) if lengths else None
    states = [_state(b, f"initial_{which}", each(state, x)) for which in ("h", "c")[: 2 if cell else 1]]
    peepholes = [b.optional("p", (directions, 3 * hidden))] if cell else []
    attributes: dict[str, Attribute | None] = {
        "activations": activations * directions if alternative else None,
        "direction": b.unless(direction, "forward"),
        "hidden_size": hidden,
        **extra,
    }
    sequence = each(lambda s: (s[0], directions, s[1], hidden), x)
    last = each(state, x)
    made = [(FLOAT, sequence) if outputs[0] else None, (FLOAT, last) if outputs[1] else None]
    if cell:
        made.append((FLOAT, last) if outputs[1] else None)
    while made[-1] is None:
        made.pop()
    b.emit_all(name, (x, *weights, sequence_lens, *states, *peepholes), made, attributes, bounds=(-RAW_BOUND, RAW_BOUND))


def _state(b: Builder, name: str, shapes: tuple[Shape, ...]) -> Value | None:
    source = b.choose(name, ("absent", "input", "absent", "initializer", "constant", "value"))
    return None if source == "absent" else b.made(source, shapes, FLOAT, "weight")


def _sequence_lens(b: Builder, x: Value, batch_axis: int) -> Value:
    """The length of each sequence of the batch, from 1 to T."""
    longest = min(shape[1 - batch_axis] for shape in x.shapes)
    return b.fresh(INT32, each(lambda s: (s[batch_axis],), x), Fill("range", low=1, high=longest))


@operator("GRU", weight=2.5)
def gru(b: Builder) -> None:
    """z, r, h gates: H' = (1 - z) h + z H; linear_before_reset multiplies by r after the recurrent product"""
    linear = b.choose("linear_before_reset", (0, 1))
    clip = b.choose("clip", (None, None, 3.0))
    _layer(b, "GRU", 3, ("Sigmoid", "Relu"), {"linear_before_reset": b.unless(linear, 0), "clip": clip})


@operator("LSTM", weight=2.5)
def lstm(b: Builder) -> None:
    """i, o, f, c gates: C' = f C + i c, H' = o tanh(C'); P adds peepholes, input_forget couples i and f"""
    coupled = b.choose("input_forget", (0, 0, 1))
    clip = b.choose("clip", (None, None, 3.0))
    extra: dict[str, Attribute | None] = {"input_forget": b.unless(coupled, 0), "clip": clip}
    _layer(b, "LSTM", 4, ("Sigmoid", "Tanh", "Relu"), extra, cell=True)


@operator("RNN", weight=1.5)
def rnn(b: Builder) -> None:
    """H' = f(X W' + H R' + biases)"""
    clip = b.choose("clip", (None, None, 3.0))
    _layer(b, "RNN", 1, ("Sigmoid",), {"clip": clip})
