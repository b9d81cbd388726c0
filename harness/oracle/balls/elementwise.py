"""Element by element: arithmetic with NumPy's broadcasting.

sum       r = r1 + r2,  rounded by 2u (|x| + |y|): a converter may add constants in another order
product   r = |x| r2 + |y| r1 + r1 r2,  rounded twice: it may multiply constants first
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from harness.oracle.balls.ball import Ball, is_float, rounded, widened
from harness.oracle.balls.rules import Context, Operands, Results, rule
from harness.oracle.graph import Node


@rule("Identity")
def identity(node: Node, operands: Operands, context: Context) -> Results:
    """y = x"""
    return [operands[0]]


@rule("Add")
def add(node: Node, operands: Operands, context: Context) -> Results:
    """z = x + y"""
    return [total(operands)]


@rule("Mul")
def multiply(node: Node, operands: Operands, context: Context) -> Results:
    """z = x y"""
    return [product(operands[0], operands[1])]


@rule("Relu")
def relu(node: Node, operands: Operands, context: Context) -> Results:
    """y = max(x, 0)"""
    x = operands[0]
    if x.radius is None and not is_float(x.dtype):
        return [Ball(np.maximum(x.middle, 0), None, x.dtype)]
    return [widened(np.maximum(x.numbers, 0), x.error, x.dtype)]


def total(balls: Operands) -> Ball:
    """The sum of balls of one dtype."""
    dtype = balls[0].dtype
    if not is_float(dtype) and all(b.radius is None for b in balls):
        return Ball(np.asarray(reduce(np.add, [b.middle for b in balls])), None, dtype)
    middle = reduce(np.add, [b.numbers for b in balls])
    radius = reduce(np.add, [b.error for b in balls])
    return rounded(middle, radius, dtype, size=reduce(np.add, [np.abs(b.numbers) for b in balls]))


def product(x: Ball, y: Ball) -> Ball:
    """x y, of balls of one dtype."""
    if not is_float(x.dtype) and x.radius is None and y.radius is None:
        return Ball(np.asarray(x.middle * y.middle), None, x.dtype)
    radius = np.abs(x.numbers) * y.error + np.abs(y.numbers) * x.error + x.error * y.error
    return rounded(x.numbers * y.numbers, radius, x.dtype)
