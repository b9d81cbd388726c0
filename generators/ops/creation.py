"""Tensors made from a shape or a few numbers, and random ones."""

import math

import numpy as np
from driftnet.generators.building.builder import Attributes, Builder
from driftnet.generators.building.graph import Stated
from driftnet.generators.building.operands import NUMBERS, Domain, constant, data, integers, scalar, shape_of, within
from driftnet.generators.building.values import BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, NUMPY, Fill, Shape
from driftnet.generators.ops.registry import operator

SEEDS = (0.0, 1.0, 7.0)
SIZES = ((2, 3), (1,), (2,), (1, 2, 2), (), (4, 4), (1, 3, 4, 4))


@operator("Size", weight=0.3)
def size(b: Builder) -> None:
    """How many elements x has"""
    x = data(b, empty=True)
    b.emit((x,), (), dtype=INT64, bounds=(0.0, 4096.0))


@operator("ConstantOfShape", weight=0.5)
def constant_of_shape(b: Builder) -> None:
    """A tensor of one number, its shape given or that of another tensor"""
    dtype = b.choose("dtype", b.profile.of_dtypes((FLOAT, INT64, FLOAT, BOOL, INT32, DOUBLE, FLOAT16)))
    dtype = dtype if dtype in b.types("T2") else FLOAT
    number = b.choose("value", (None, 1.0, 2.0, 3.0))
    wanted, like = b.choose("shape", SIZES), b.flag("like") and "computed" in b.profile.numbers
    shapes: Shape | tuple[Shape, ...] = wanted
    if like:
        x = data(b, dtypes=(FLOAT,), ranks=(3, 2, 4, 1))
        shapes, operand = x.shapes, shape_of(b, x)
    else:
        operand = integers(b, "shape_source", wanted)
    value = None if number is None and dtype == FLOAT else np.array([number or 0.0], NUMPY[dtype])
    b.emit((operand,), shapes, {"value": value}, dtype=dtype, bounds=(0.0, number or 0.0))


@operator("EyeLike", weight=0.3)
def eye_like(b: Builder) -> None:
    """Ones on a diagonal, zeros elsewhere, in the shape of a matrix"""
    x = data(b, ranks=(2,))
    dtype, k = b.choose("dtype", (None, FLOAT, INT64, INT32, DOUBLE)), b.choose("k", (0, 1, -1, 9))
    dtype = FLOAT if dtype is None and x.dtype not in b.types("T2") else dtype
    b.emit((x,), x, {"dtype": dtype, "k": k}, dtype=dtype or x.dtype, bounds=(0.0, 1.0))


@operator("Range", weight=0.4)
def range_(b: Builder) -> None:
    """start, start + delta, ... up to but without limit"""
    dtype = b.choose("dtype", b.profile.of_dtypes((FLOAT, INT64, INT32, DOUBLE)))
    start, limit, delta = b.choose("range", ((0, 1, 1), (0, 5, 1), (1, 8, 2), (4, 0, -1), (-2, 3, 2), (0, 16, 5)))
    named = {"start": start, "limit": limit, "delta": delta}
    operands = [scalar(b, name, number, NUMBERS, dtype=dtype) for name, number in named.items()]
    b.emit(operands, (max(math.ceil((limit - start) / delta), 0),), dtype=dtype, bounds=16.0)


def _distribution(b: Builder) -> Attributes:
    """The parameters of a normal or of a uniform distribution, and a seed."""
    if b.has("mean"):
        return b.attributes(mean=(None, 0.5, 2.0), scale=(None, 0.5, 2.0), seed=SEEDS)
    chosen = b.attributes(low=(None, 0.5, 2.0), high=(None, 0.5, 2.0), seed=SEEDS)
    if chosen["low"] is not None:
        chosen |= {"low": -chosen["low"], "high": Stated(chosen["high"] or 1.0)}
    return chosen


def random(b: Builder) -> None:
    """Random numbers in a given shape"""
    dtype, shape = b.choose("dtype", b.profile.of_dtypes((FLOAT, DOUBLE))), b.choose("shape", SIZES[:4])
    b.emit((), shape, {"dtype": Stated(dtype), "shape": shape, **_distribution(b)}, dtype=dtype, bounds=64.0)


def random_like(b: Builder) -> None:
    """Random numbers in the shape of x"""
    x = data(b, dtypes=(FLOAT, DOUBLE, INT64, INT32))
    wanted = b.choose("dtype", (FLOAT, None, DOUBLE))
    dtype = wanted if wanted is not None or x.dtype in (FLOAT, DOUBLE) else FLOAT
    b.emit((x,), x, {"dtype": dtype, **_distribution(b)}, dtype=dtype or x.dtype, bounds=64.0)


for _name, _rule in (
    ("RandomNormal", "normal numbers of a mean and a scale"),
    ("RandomUniform", "uniform numbers between low and high"),
):
    operator(_name, f"{_rule}, of a given shape", until=21, heir="ConstantOfShape", weight=0.15)(random)
    operator(f"{_name}Like", f"{_rule}, in the shape of x", until=21, heir="Dropout", weight=0.15)(random_like)


@operator("Bernoulli", until=21, heir="Dropout", weight=0.15)
def bernoulli(b: Builder) -> None:
    """1 with probability x, else 0"""
    x = data(b, dtypes=(FLOAT, DOUBLE), domain=within(0, 1, Fill("range", high=1)))
    dtype = b.choose("dtype", b.types("T2"))
    b.emit((x,), x, {"dtype": dtype, "seed": b.choose("seed", SEEDS)}, dtype=dtype, bounds=(0.0, 1.0))


@operator("Multinomial", until=21, heir="ArgMax", weight=0.15)
def multinomial(b: Builder) -> None:
    """Classes drawn with the log probabilities of each row"""
    x = data(b, dtypes=(FLOAT,), ranks=(2,), domain=Domain(lambda v: v.low > -20 and v.high < 20))
    count, dtype = b.choose("sample_size", (1, 3)), b.choose("dtype", (INT32, INT64))
    attributes = {"sample_size": Stated(count), "dtype": Stated(dtype), "seed": b.choose("seed", SEEDS)}
    b.emit((x,), lambda s: (s[0], count), attributes, dtype=dtype, bounds=(0.0, 16.0))


@operator("Dropout", weight=0.6)
def dropout(b: Builder) -> None:
    """x, and in training mode (an input from opset 12) a random part of it zero and the rest scaled up; and the mask"""
    x = data(b, domain=Domain(lambda v: v.magnitude < 1e30))
    ratio, training = b.choose("ratio", (None, 0.5, 0.25)), b.choose("training", (None, False, None, False, True))
    outputs = [(x.dtype, x), (BOOL, x) if b.flag("mask") else None]
    bounds = (min(2 * x.low, 0.0), max(2 * x.high, 1.0))
    if b.has("ratio"):
        b.emit_all((x,), outputs, {"ratio": None if ratio is None else Stated(ratio)}, bounds=bounds)
        return
    mode = None if training is None else constant(b, "training_mode", np.array(training))
    inputs = (x, scalar(b, "ratio_source", ratio), mode)
    b.emit_all(inputs, outputs, {"seed": int(b.choose("seed", SEEDS))}, bounds=bounds)
