"""Control flow, with small bodies."""

import numpy as np
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Attribute, Value
from driftnet.generators.building.operands import WEIGHT, constant, data, find, scalar, tame, weight, whole
from driftnet.generators.building.values import BOOL, FLOAT, INT64
from driftnet.generators.ops.registry import operator

# Drawn from, in this order, which is part of what a genome means.
STEPS = {"Neg": 1, "Abs": 1, "Identity": 1, "Add": 2, "Mul": 2, "Tanh": 1, "Relu": 1, "Sub": 2, "Sigmoid": 1, "Max": 2}
"""What a body may do, an operator -> how many operands it takes: a few of all sorts that keep shape and dtype."""

LARGEST = 1e6


def _step(b: Builder, name: str, x: Value, other: Value) -> Value:
    """x through one operator of `STEPS`, its second operand (where it has one) being `other`, of the same shape."""
    op_type = b.choose(name, tuple(STEPS))
    if x.dtype not in b.types(op_type=op_type):
        op_type = "Identity"
    if STEPS[op_type] == 2:
        return b.emit((x, other), x, op_type=op_type, bounds=1e12)
    return b.emit((x,), x, op_type=op_type, bounds=max(x.magnitude, 1.0))


@operator("If", weight=0.5)
def if_(b: Builder) -> None:
    """The outputs of one branch or of the other, as a condition says; both read the values around them"""
    x = data(b, dtypes=b.types(op_type="Neg"), domain=tame(LARGEST))
    condition = find(b, lambda v: v.dtype == BOOL and v.shapes[0] in ((), (1,)) and v.static)
    if condition is None or b.flag("given"):
        condition = whole(b, "condition", (), 0, 1, dtype=BOOL, sources=("input", "initializer"))
    one = b.body((), lambda: [_step(b, "then", x, x)])
    other = b.body((), lambda: [_step(b, "else", _step(b, "else_first", x, x), x)])
    b.emit((condition,), x, {"then_branch": one, "else_branch": other}, dtype=x.dtype, bounds=1e12)


@operator("Loop", weight=0.4)
def loop(b: Builder) -> None:
    """A state passed through a body up to M times and while a condition holds; what each turn yields is stacked"""
    x = data(b, dtypes=b.floats(op_type="Neg"), domain=tame(LARGEST, WEIGHT))
    turns, stops, stacked = b.choose("turns", (1, 2, 3, 0)), b.flag("stops"), b.flag("stacked")
    number = b.value(INT64, b.shapes(()), (0.0, 8.0))
    going = b.value(BOOL, b.shapes(()), (0.0, 1.0))
    state = b.value(x.dtype, x.shapes, (-LARGEST, LARGEST))

    def body() -> list[Value]:
        again = b.emit((going,), going, op_type="Identity")
        if stops:
            again = b.emit((going,), going, op_type="Not")
        result = b.emit((_step(b, "body", state, x),), x, op_type="Tanh", bounds=1.0)
        return [again, result, b.emit((state,), x, op_type="Neg")] if stacked else [again, result]

    inner = b.body((number, going, state), body)
    if stacked and not x.static:
        turns = max(turns, 1)  # of no turns at all onnxruntime stacks no symbolic dims
    unlimited = stops and b.choose("unlimited", (False, False, True))
    count = 1 if unlimited else min(turns, 1) if stops else turns
    trips = None if unlimited else scalar(b, "trips", turns, dtype=INT64)
    first = constant(b, "condition", np.array(True)) if stops or b.flag("conditional") else None
    outputs = [(x.dtype, x.shapes), *[(x.dtype, tuple([(count, *s) for s in x.shapes]))] * stacked]
    b.emit_all((trips, first, x), outputs, {"body": inner}, bounds=max(x.magnitude, 1.0))


@operator("Scan", weight=0.4)
def scan(b: Builder) -> None:
    """A state passed along the slices of x; what each step yields is stacked"""
    x = data(b, dtypes=(FLOAT,), ranks=(3, 2, 4), domain=tame(LARGEST, WEIGHT))
    backwards, feedback = b.flag("backwards"), b.flag("feedback")
    axis, last, stacked = b.choose("axis", (0, 0, 1, -1)), b.flag("last"), b.choose("stacked", (0, 0, 1))
    slices = x.resized(axis)
    yielded = tuple([(*rest[:stacked], s[axis], *rest[stacked:]) for rest, s in zip(slices, x.shapes)])
    initial = weight(b, "initial", slices, sources=("initializer", "input", "constant"))
    state = b.value(FLOAT, slices, (-LARGEST, LARGEST))
    element = b.value(FLOAT, slices, (x.low, x.high))

    def body() -> list[Value]:
        total = b.emit((state, element), slices, op_type="Add", bounds=LARGEST)
        kept = b.emit((total,), slices, op_type="Tanh", bounds=1.0) if feedback else total
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
    b.emit_all((initial, x), [(FLOAT, slices), (FLOAT, yielded)], attributes, bounds=1e15)
