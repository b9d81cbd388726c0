"""Recurrent layers, with every optional input."""

from __future__ import annotations

from collections.abc import Mapping

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Attribute, Value
from driftnet.generators.building.operands import data, fresh, made, optional, weight
from driftnet.generators.building.values import INT32, Fill, Shape
from driftnet.generators.ops.elementwise import tame
from driftnet.generators.ops.registry import operator

DIRECTIONS = ("forward", "bidirectional", "reverse")
OUTPUTS = ((True, False), (True, True), (False, True))
STATE_BOUND = 64.0
"""States stay below this on the short sequences generated here, an initial state included."""


def _layer(
    b: Builder, name: str, gates: int, activations: tuple[str, ...], attributes: Mapping[str, Attribute | None]
) -> None:
    """One layer: X (T, B, I), W (D, gates H, I), R (D, gates H, H), B (D, 2 gates H) to Y (T, D, B, H), Y_h (D, B, H).

    The alternative activations are bounded like the usual ones, since a state may be fed back 16 times. Batch-major
    data (layout) is left out: onnxruntime's CPU provider does not have it.
    """
    x = data(b, dtypes=b.types(name), ranks=(3,), fixed=(2,), fits=tame(1e6), fill=Fill("weight"))
    hidden = b.choose("hidden_size", (1, 2, 3, 4, 5, 8))
    direction = b.choose("direction", DIRECTIONS)
    sequence, last = b.choose("outputs", OUTPUTS)
    with_lengths = b.flag("sequence_lens")
    kind = b.choose("activations", ("usual", "usual", "other", "scaled"))
    directions = 2 if direction == "bidirectional" else 1
    weights = (
        weight(b, "w", (directions, gates * hidden, x.shape[2]), dtype=x.dtype),
        weight(b, "r", (directions, gates * hidden, hidden), dtype=x.dtype),
        optional(b, "b", (directions, 2 * gates * hidden), dtype=x.dtype),
    )
    state = each(lambda s: (directions, s[1], hidden), x)
    lengths = _sequence_lens(b, x) if with_lengths else None
    states = [_state(b, f"initial_{which}", state, x.dtype) for which in ("h", "c")[: 2 if name == "LSTM" else 1]]
    peepholes = [optional(b, "p", (directions, 3 * hidden), dtype=x.dtype)] if name == "LSTM" else []
    outputs = [
        (x.dtype, each(lambda s: (s[0], directions, s[1], hidden), x)) if sequence else None,
        *[(x.dtype, state) if last else None for _ in states],
    ]
    written = {
        **_activations(kind, activations, directions),
        "direction": b.unless(direction, "forward"),
        "hidden_size": hidden,
        **attributes,
    }
    inputs = (x, *weights, lengths, *states, *peepholes)
    b.emit_all(name, inputs, outputs, written, bounds=(-STATE_BOUND, STATE_BOUND))


def _activations(kind: str, names: tuple[str, ...], directions: int) -> dict[str, Attribute | None]:
    """The usual activations left out, others, or others the first of which has parameters."""
    if kind == "usual":
        return {}
    if kind == "other":
        return {"activations": names * directions}
    scaled = ("HardSigmoid", *names[1:])
    return {
        "activations": scaled * directions,
        "activation_alpha": (0.25,) * directions,
        "activation_beta": (0.5,) * directions,
    }


def _state(b: Builder, name: str, shapes: tuple[Shape, ...], dtype: int) -> Value | None:
    source = b.choose(name, ("absent", "input", "absent", "initializer", "constant", "value"))
    return None if source == "absent" else made(b, source, shapes, dtype, "weight")


def _sequence_lens(b: Builder, x: Value) -> Value:
    """The length of each sequence of the batch, from 1 to T."""
    shortest = min(shape[0] for shape in x.shapes)
    return fresh(b, INT32, each(lambda s: (s[1],), x), Fill("range", low=1, high=shortest))


@operator("GRU", weight=2.5)
def gru(b: Builder) -> None:
    """z, r, h gates: H' = (1 - z) h + z H; linear_before_reset multiplies by r after the recurrent product"""
    linear = b.choose("linear_before_reset", (0, 1))
    clip = b.choose("clip", (None, None, 3.0))
    _layer(b, "GRU", 3, ("Sigmoid", "Softsign"), {"linear_before_reset": b.unless(linear, 0), "clip": clip})


@operator("LSTM", weight=2.5)
def lstm(b: Builder) -> None:
    """i, o, f, c gates: C' = f C + i c, H' = o tanh(C'); P adds peepholes, input_forget couples i and f"""
    coupled = b.choose("input_forget", (0, 0, 1))
    clip = b.choose("clip", (None, None, 3.0))
    attributes = {"input_forget": b.unless(coupled, 0), "clip": clip}
    _layer(b, "LSTM", 4, ("Sigmoid", "Tanh", "Relu"), attributes)


@operator("RNN", weight=1.5)
def rnn(b: Builder) -> None:
    """H' = f(X W' + H R' + biases)"""
    clip = b.choose("clip", (None, None, 3.0))
    _layer(b, "RNN", 1, ("Sigmoid",), {"clip": clip})
