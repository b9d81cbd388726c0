"""Tensors made from a shape or from a few numbers."""

from __future__ import annotations

import math

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, rounded, value
from driftnet.oracle.ball_arithmetic.operands import integers
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule
from driftnet.oracle.tolerances.table import UNDECIDED_LENGTH
from onnx import helper


@rule("Shape")
def shape(node: Node, operands: Operands, context: Context) -> Results:
    """The shape of x, or a slice of it"""
    part = slice(attribute(node, "start", 0), node.attributes.get("end"))
    return [exact(np.array(operands[0].shape[part], np.int64))]


@rule("Size")
def size(node: Node, operands: Operands, context: Context) -> Results:
    """How many elements x has"""
    return [exact(np.array(operands[0].midpoint.size, np.int64))]


@rule("ConstantOfShape")
def constant_of_shape(node: Node, operands: Operands, context: Context) -> Results:
    """A tensor of one number"""
    number = np.asarray(attribute(node, "value", np.float32(0)))
    return [exact(np.full(integers(operands, 0) or (), number.ravel()[0], number.dtype))]


@rule("Range")
def range_(node: Node, operands: Operands, context: Context) -> Results:
    """start, start + delta, ... up to but without limit; by multiplication or by repeated addition"""
    start, limit, delta = (value(x).ravel()[0] for x in operands)
    if start.dtype.kind != "f":
        return [exact(np.arange(start, limit, delta, dtype=start.dtype))]
    exactly = (float(limit) - float(start)) / float(delta)
    count = max(math.ceil(exactly), 0)
    if exactly != count and abs(exactly - round(exactly)) < UNDECIDED_LENGTH * abs(exactly):
        raise Undecided("how many elements there are depends on rounding")
    midpoint = float(start) + float(delta) * np.arange(count)
    if (midpoint.astype(start.dtype) == midpoint).all():
        return [exact(midpoint.astype(start.dtype))]
    return [rounded(midpoint, 0.0, start.dtype, roundings=count + 1.0, size=abs(float(start)) + np.abs(midpoint))]


@rule("EyeLike")
def eye_like(node: Node, operands: Operands, context: Context) -> Results:
    """Ones on a diagonal, zeros elsewhere, in the shape of a matrix"""
    x: Ball = operands[0]
    given = attribute(node, "dtype", 0)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(given)) if given else x.dtype
    rows, columns = x.shape
    return [exact(np.eye(rows, columns, k=attribute(node, "k", 0)).astype(dtype))]
