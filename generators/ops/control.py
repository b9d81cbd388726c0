"""Control flow, with small bodies."""

from __future__ import annotations

import numpy as np
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Attribute, Value
from driftnet.generators.building.operands import constant, data, find, made, whole
from driftnet.generators.building.values import BOOL, FLOAT, INT64, RANGES, Fill, Shape
from driftnet.generators.ops.elementwise import tame
from driftnet.generators.ops.registry import operator

STEPS = ("Neg", "Abs", "Identity", "Add", "Mul", "Tanh", "Relu", "Sub", "Sigmoid", "Max")
LARGEST = 1e6


def _step(b: Builder, name: str, x: Value, other: Value) -> Value:
    """x through one operator of `STEPS`, its second operand (where it has one) being `other`, of the same shape."""
    op_type = b.choose(name, STEPS)
    if x.dtype not in b.types(op_type, "V" if op_type == "Identity" and b.opset >= 14 else "T"):
        op_type = "Identity"
    if op_type in ("Add", "Mul", "Sub", "Max"):
        return b.emit(op_type, (x, other), x.shapes, bounds=(-1e12, 1e12))
    return b.emit(op_type, (x,), x.shapes, bounds=(-max(-x.low, x.high, 1.0), max(-x.low, x.high, 1.0)))


@operator("If", weight=0.5)
def if_(b: Builder) -> None:
    """The outputs of one branch or of the other, as a condition says; both read the values around them"""
    x = data(b, dtypes=b.types("Neg"), fits=tame(LARGEST))
    condition = find(b, lambda v: v.dtype == BOOL and v.shapes[0] in ((), (1,)) and v.static)
    if condition is None or b.flag("given"):
        condition = whole(b, "condition", ((),) * len(x.shapes), 0, 1, dtype=BOOL, sources=("input", "initializer"))
    one = b.body((), lambda: [_step(b, "then", x, x)])
    other = b.body((), lambda: [_step(b, "else", _step(b, "else_first", x, x), x)])
    attributes = {"then_branch": one, "else_branch": other}
    b.emit("If", (condition,), x.shapes, attributes, dtype=x.dtype, bounds=(-1e12, 1e12))


@operator("Loop", weight=0.4)
def loop(b: Builder) -> None:
    """A state passed through a body up to M times and while a condition holds; what each turn yields is stacked"""
    x = data(b, dtypes=[d for d in b.types("Neg") if d not in RANGES], fits=tame(LARGEST), fill=Fill("weight"))
    turns, stops, stacked = b.choose("turns", (1, 2, 3, 0)), b.flag("stops"), b.flag("stacked")
    shapes = x.shapes
    number = b.value(INT64, ((),) * len(shapes), (0.0, 8.0))
    going = b.value(BOOL, ((),) * len(shapes), (0.0, 1.0))
    state = b.value(x.dtype, shapes, (-LARGEST, LARGEST))

    def body() -> list[Value]:
        again = b.emit("Identity", (going,), going.shapes)
        if stops:
            again = b.emit("Not", (going,), going.shapes)
        result = _step(b, "body", state, x)
        result = b.emit("Tanh", (result,), shapes, bounds=(-1.0, 1.0))
        return [again, result, b.emit("Neg", (state,), shapes)] if stacked else [again, result]

    inner = b.body((number, going, state), body)
    if stacked and not x.static:
        turns = max(turns, 1)  # of no turns at all onnxruntime stacks no symbolic dims
    unlimited = stops and b.choose("unlimited", (False, False, True))
    count = 1 if unlimited else min(turns, 1) if stops else turns
    trips = None if unlimited else constant(b, "trips", np.array(turns, np.int64))
    first = constant(b, "condition", np.array(True)) if stops or b.flag("conditional") else None
    outputs = [(x.dtype, shapes), (x.dtype, tuple((count, *s) for s in shapes)) if stacked else None]
    top = max(-x.low, x.high, 1.0)
    b.emit_all("Loop", (trips, first, x), outputs[: 2 if stacked else 1], {"body": inner}, bounds=(-top, top))


@operator("Scan", weight=0.4)
def scan(b: Builder) -> None:
    """A state passed along the slices of x; what each step yields is stacked"""
    x = data(b, dtypes=(FLOAT,), ranks=(3, 2, 4), fits=tame(LARGEST), fill=Fill("weight"))
    backwards, feedback = b.flag("backwards"), b.flag("feedback")
    axis, last, stacked = b.choose("axis", (0, 0, 1, -1)), b.flag("last"), b.choose("stacked", (0, 0, 1))
    k = axis % x.rank
    slices: tuple[Shape, ...] = tuple([(*s[:k], *s[k + 1 :]) for s in x.shapes])
    yielded = tuple([(*rest[:stacked], s[k], *rest[stacked:]) for rest, s in zip(slices, x.shapes)])
    initial = made(b, b.choose("initial", ("initializer", "input", "constant")), slices, FLOAT, "weight")
    state = b.value(FLOAT, slices, (-LARGEST, LARGEST))
    element = b.value(FLOAT, slices, (x.low, x.high))

    def body() -> list[Value]:
        total = b.emit("Add", (state, element), slices, bounds=(-LARGEST, LARGEST))
        kept = b.emit("Tanh", (total,), slices, bounds=(-1.0, 1.0)) if feedback else total
        return [kept, _step(b, "yield", element, state)]

    inner = b.body((state, element), body)
    attributes: dict[str, Attribute | None] = {
        "num_scan_inputs": 1,
        "body": inner,
        "scan_input_axes": (axis,) if axis or b.explicit else None,
        "scan_input_directions": (1,) if backwards else None,
        "scan_output_axes": (stacked,) if stacked or b.explicit else None,
        "scan_output_directions": (1,) if last else None,
    }
    b.emit_all("Scan", (initial, x), [(FLOAT, slices), (FLOAT, yielded)], attributes, bounds=(-1e15, 1e15))
