"""Recurrent layers, with every optional input."""

from typing import Any

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import WEIGHT, data, fresh, made, optional, tame, weight
from driftnet.generators.building.values import INT32, Fill, Shape
from driftnet.generators.ops.registry import operator

DIRECTIONS = ("forward", "bidirectional", "reverse")
OUTPUTS = ((True, False), (True, True), (False, True))
STATE_BOUND = 64.0
"""States stay below this on the short sequences generated here, an initial state included."""


def _layer(b: Builder, gates: int, activations: tuple[str, ...], attributes: dict[str, Any]) -> None:
    """One layer: X (T, B, I), W (D, gates H, I), R (D, gates H, H), B (D, 2 gates H) to Y (T, D, B, H), Y_h (D, B, H).

    The alternative activations are bounded like the usual ones, since a state may be fed back 16 times. Batch-major
    data (layout) is left out: onnxruntime's CPU provider does not have it.
    """
    x = data(b, ranks=(3,), fixed=(2,), domain=tame(1e6, WEIGHT))
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
    lengths = _lengths(b, x) if with_lengths else None
    with_cell = b.has("input_forget")
    states = [_state(b, f"initial_{which}", state, x.dtype) for which in ("h", "c")[: 1 + with_cell]]
    peepholes = [optional(b, "p", (directions, 3 * hidden), dtype=x.dtype)] if with_cell else []
    outputs = [
        (x.dtype, lambda s: (s[0], directions, s[1], hidden)) if sequence else None,
        *[(x.dtype, state) if last else None for _ in states],
    ]
    written = {
        **_activations(kind, activations, directions),
        "direction": direction,
        "hidden_size": hidden,
        **attributes,
    }
    b.emit_all((x, *weights, lengths, *states, *peepholes), outputs, written, bounds=STATE_BOUND)


def _lengths(b: Builder, x: Value) -> Value:
    """The length of each sequence of the batch."""
    shapes, fill = each(lambda s: (s[1],), x), Fill("range", low=1, high=x.least(0))
    if "input" in b.profile.numbers or shapes.count(shapes[0]) < len(shapes):
        return fresh(b, INT32, shapes, fill)
    return b.given("initializer", INT32, shapes, fill)


def _activations(kind: str, names: tuple[str, ...], directions: int) -> dict[str, Any]:
    """The usual activations left out, others, or others the first of which has parameters."""
    if kind == "usual":
        return {}
    if kind == "other":
        return {"activations": names * directions}
    return {
        "activations": ("HardSigmoid", *names[1:]) * directions,
        "activation_alpha": (0.25,) * directions,
        "activation_beta": (0.5,) * directions,
    }


def _state(b: Builder, name: str, shapes: tuple[Shape, ...], dtype: int) -> Value | None:
    source = b.choose(name, ("absent", "input", "absent", "initializer", "constant", "value"))
    return None if source == "absent" else made(b, source, shapes, dtype, "weight")


@operator("GRU", weight=2.5)
def gru(b: Builder) -> None:
    """z, r, h gates: H' = (1 - z) h + z H; linear_before_reset multiplies by r after the recurrent product"""
    # Words of the attribute `activations`, other ones than its default: so are those of LSTM and RNN.
    _layer(b, 3, ("Sigmoid", "Softsign"), b.attributes(linear_before_reset=(0, 1), clip=(None, None, 3.0)))


@operator("LSTM", weight=2.5)
def lstm(b: Builder) -> None:
    """i, o, f, c gates: C' = f C + i c, H' = o tanh(C'); P adds peepholes, input_forget couples i and f"""
    # Gates, cell and result.
    _layer(b, 4, ("Sigmoid", "Tanh", "Relu"), b.attributes(input_forget=(0, 0, 1), clip=(None, None, 3.0)))


@operator("RNN", weight=1.5)
def rnn(b: Builder) -> None:
    """H' = f(X W' + H R' + biases)"""
    _layer(b, 1, ("Sigmoid",), b.attributes(clip=(None, None, 3.0)))
