"""Tensors made from a shape or a few numbers, and random ones."""

from __future__ import annotations

import math

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Attribute
from driftnet.generators.building.operands import constant, data, integers, scalar
from driftnet.generators.building.values import BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, NUMPY, Fill, Shape
from driftnet.generators.ops.registry import operator

SEEDS = (0.0, 1.0, 7.0)
SIZES = ((2, 3), (1,), (2,), (1, 2, 2), (), (4, 4), (1, 3, 4, 4))
NUMBERS = ("initializer", "constant", "initializer", "input")


@operator("Size", weight=0.3)
def size(b: Builder) -> None:
    """How many elements x has"""
    x = data(b, dtypes=b.types("Size"), empty=True)
    b.emit("Size", (x,), ((),) * len(x.shapes), dtype=INT64, bounds=(0.0, 4096.0))


@operator("ConstantOfShape", weight=0.5)
def constant_of_shape(b: Builder) -> None:
    """A tensor of one number, its shape given or that of another tensor"""
    allowed = b.types("ConstantOfShape", "T2")
    dtype = b.choose("dtype", (FLOAT, INT64, FLOAT, BOOL, INT32, DOUBLE, FLOAT16))
    dtype = dtype if dtype in allowed else FLOAT
    number = b.choose("value", (None, 1.0, 2.0, 3.0))
    wanted, like = b.choose("shape", SIZES), b.flag("like")
    shapes: tuple[Shape, ...] = (wanted,) * b.header.feeds
    if like:
        x = data(b, ranks=(3, 2, 4, 1))
        shapes = x.shapes
        operand = b.emit("Shape", (x,), ((x.rank,),) * len(shapes), dtype=INT64, bounds=(1.0, 4096.0))
    else:
        operand = integers(b, "shape_source", wanted)
    value = None if number is None and dtype == FLOAT else np.array([number or 0.0], NUMPY[dtype])
    bounds = (0.0, number or 0.0)
    b.emit("ConstantOfShape", (operand,), shapes, {"value": value}, dtype=dtype, bounds=bounds)


@operator("EyeLike", weight=0.3)
def eye_like(b: Builder) -> None:
    """Ones on a diagonal, zeros elsewhere, in the shape of a matrix"""
    x = data(b, dtypes=b.types("EyeLike", "T1"), ranks=(2,))
    dtype, k = b.choose("dtype", (None, FLOAT, INT64, INT32, DOUBLE)), b.choose("k", (0, 1, -1, 9))
    dtype = FLOAT if dtype is None and x.dtype not in b.types("EyeLike", "T2") else dtype
    attributes = {"dtype": dtype, "k": b.unless(k, 0)}
    b.emit("EyeLike", (x,), x.shapes, attributes, dtype=dtype or x.dtype, bounds=(0.0, 1.0))


@operator("Range", weight=0.4)
def range_(b: Builder) -> None:
    """start, start + delta, ... up to but without limit"""
    dtype = b.choose("dtype", (FLOAT, INT64, INT32, DOUBLE))
    start, limit, delta = b.choose("range", ((0, 1, 1), (0, 5, 1), (1, 8, 2), (4, 0, -1), (-2, 3, 2), (0, 16, 5)))
    operands = [
        scalar(b, name, number, NUMBERS, dtype=dtype)
        for name, number in (("start", start), ("limit", limit), ("delta", delta))
    ]
    count = max(math.ceil((limit - start) / delta), 0)
    b.emit("Range", operands, ((count,),) * b.header.feeds, dtype=dtype, bounds=(-16.0, 16.0))


def _random(name: str, rule: str, parameters: tuple[str, str]) -> None:
    def attributes(b: Builder) -> dict[str, Attribute | None]:
        numbers = {name: b.choose(name, (None, 0.5, 2.0)) for name in parameters}
        if parameters[0] == "low" and numbers["low"] is not None:
            numbers["low"], numbers["high"] = -numbers["low"], numbers["high"] or 1.0
        return {**numbers, "seed": b.choose("seed", SEEDS)}

    @operator(name, until=21, heir="ConstantOfShape", rule=f"{rule}, of a given shape", weight=0.15)
    def random(b: Builder) -> None:
        dtype, shape = b.choose("dtype", (FLOAT, DOUBLE)), b.choose("shape", SIZES[:4])
        written = {"dtype": dtype, "shape": shape, **attributes(b)}
        b.emit(name, (), (shape,) * b.header.feeds, written, dtype=dtype, bounds=(-64.0, 64.0))

    @operator(f"{name}Like", until=21, heir="Dropout", rule=f"{rule}, in the shape of x", weight=0.15)
    def like(b: Builder) -> None:
        x = data(b, dtypes=(FLOAT, DOUBLE, INT64, INT32))
        wanted = b.choose("dtype", (FLOAT, None, DOUBLE))
        dtype = wanted if wanted is not None or x.dtype in (FLOAT, DOUBLE) else FLOAT
        written = {"dtype": dtype, **attributes(b)}
        b.emit(f"{name}Like", (x,), x.shapes, written, dtype=dtype or x.dtype, bounds=(-64.0, 64.0))


_random("RandomNormal", "normal numbers of a mean and a scale", ("mean", "scale"))
_random("RandomUniform", "uniform numbers between low and high", ("low", "high"))


@operator("Bernoulli", since=15, until=21, heir="Dropout", weight=0.15)
def bernoulli(b: Builder) -> None:
    """1 with probability x, else 0"""
    allowed = b.types("Bernoulli", "T2")
    x = data(b, dtypes=(FLOAT, DOUBLE), fits=lambda v: v.low >= 0 and v.high <= 1, fill=Fill("range", high=1))
    dtype = b.choose("dtype", allowed)
    written = {"dtype": dtype, "seed": b.choose("seed", SEEDS)}
    b.emit("Bernoulli", (x,), x.shapes, written, dtype=dtype, bounds=(0.0, 1.0))


@operator("Multinomial", until=21, heir="ArgMax", weight=0.15)
def multinomial(b: Builder) -> None:
    """Classes drawn with the log probabilities of each row"""
    x = data(b, ranks=(2,), fits=lambda v: v.low > -20 and v.high < 20)
    count, dtype = b.choose("sample_size", (1, 3)), b.choose("dtype", (INT32, INT64))
    written = {"sample_size": count, "dtype": dtype, "seed": b.choose("seed", SEEDS)}
    shapes = each(lambda s: (s[0], count), x)
    b.emit("Multinomial", (x,), shapes, written, dtype=dtype, bounds=(0.0, 16.0))


@operator("Dropout", weight=0.6)
def dropout(b: Builder) -> None:
    """x, and in training mode (an input from opset 12) a random part of it zero and the rest scaled up; and the mask"""
    x = data(b, dtypes=b.types("Dropout"), fits=lambda v: max(-v.low, v.high) < 1e30)
    ratio, training = b.choose("ratio", (None, 0.5, 0.25)), b.choose("training", (None, False, None, False, True))
    with_mask = b.flag("mask")
    outputs = [(x.dtype, x.shapes), (BOOL, x.shapes) if with_mask else None]
    bounds = (min(2 * x.low, 0.0), max(2 * x.high, 1.0))
    if b.opset < 12:
        b.emit_all("Dropout", (x,), outputs, {"ratio": ratio}, bounds=bounds)
        return
    mode = None if training is None else constant(b, "training_mode", np.array(training))
    inputs = (x, scalar(b, "ratio_source", ratio, dtype=FLOAT), mode)
    b.emit_all("Dropout", inputs, outputs, {"seed": int(b.choose("seed", SEEDS))}, bounds=bounds)
