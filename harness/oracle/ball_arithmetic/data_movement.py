"""Data movement: every element of the result is one of an operand's, with its radius, or a given number."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, exact
from driftnet.oracle.ball_arithmetic.operands import array, integers, joined, moved, operand, parameter
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule


@rule("Reshape")
def reshape(node: Node, operands: Operands, context: Context) -> Results:
    """The same elements in row-major order; 0 copies a dim (unless allowzero), -1 is inferred"""
    target = integers(operands, 1) or []
    if not attribute(node, "allowzero", 0):
        target = [operands[0].shape[axis] if n == 0 else n for axis, n in enumerate(target)]
    return [moved(operands[0], lambda x: x.reshape(target))]


@rule("Transpose")
def transpose(node: Node, operands: Operands, context: Context) -> Results:
    """The axes in another order, reversed by default"""
    perm = node.attributes.get("perm")
    return [moved(operands[0], lambda x: x.transpose(perm))]


@rule("Flatten")
def flatten(node: Node, operands: Operands, context: Context) -> Results:
    """A matrix: the dims before `axis` as rows, the others as columns"""
    shape, axis = operands[0].shape, attribute(node, "axis", 1)
    k = axis % len(shape) if axis < 0 else axis
    return [moved(operands[0], lambda x: x.reshape(math.prod(shape[:k]), math.prod(shape[k:])))]


@rule("Squeeze")
def squeeze(node: Node, operands: Operands, context: Context) -> Results:
    """Without the given axes of size 1, or without all of them"""
    axes = parameter(node, operands, 1, "axes")
    return [moved(operands[0], lambda x: x.squeeze(None if axes is None else tuple(axes)))]


@rule("Unsqueeze")
def unsqueeze(node: Node, operands: Operands, context: Context) -> Results:
    """With new axes of size 1"""
    axes = parameter(node, operands, 1, "axes") or []
    rank = operands[0].midpoint.ndim + len(axes)
    new = {axis % rank for axis in axes}
    sizes = iter(operands[0].shape)
    shape = [1 if axis in new else next(sizes) for axis in range(rank)]
    return [moved(operands[0], lambda x: x.reshape(shape))]


@rule("Concat")
def concat(node: Node, operands: Operands, context: Context) -> Results:
    """One tensor after the other along an axis"""
    axis = node.attributes["axis"]
    return [joined(operands, lambda xs: np.concatenate(xs, axis))]


@rule("Split")
def split(node: Node, operands: Operands, context: Context) -> Results:
    """Pieces along an axis, as given or of equal size but for the last"""
    axis, count = attribute(node, "axis", 0), len(node.outputs)
    n = operands[0].shape[axis]
    sizes = parameter(node, operands, 1, "split") or [-(-n // count)] * count
    ends = list(accumulate(sizes))[:-1]
    return pieces(operands[0], ends, axis)


def pieces(ball: Ball, ends: list[int], axis: int) -> list[Ball]:
    """`ball` cut along an axis before each of the positions `ends`."""
    midpoints = np.split(ball.midpoint, ends, axis)
    radii = [None] * len(midpoints) if ball.radius is None else np.split(ball.radius, ends, axis)
    return [Ball(m, r, ball.dtype) for m, r in zip(midpoints, radii)]


@rule("Slice")
def slice_(node: Node, operands: Operands, context: Context) -> Results:
    """x[start:end:step] along the given axes, with the semantics of Python"""
    starts = parameter(node, operands, 1, "starts") or []
    ends = parameter(node, operands, 2, "ends") or []
    axes = parameter(node, operands, 3, "axes") or range(len(starts))
    steps = integers(operands, 4) or [1] * len(starts)
    where = [slice(None)] * operands[0].midpoint.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        # Counted from the end, what lies before the first element is clamped to it by Python too.
        where[axis] = slice(start, end, step)
    return [moved(operands[0], lambda x: x[tuple(where)])]


@rule("Pad")
def pad(node: Node, operands: Operands, context: Context) -> Results:
    """More elements (or fewer) at both ends of axes: a constant, or elements found by `reach`"""
    x: Ball = operands[0]
    pads = parameter(node, operands, 1, "pads") or []
    axes = integers(operands, 3) or list(range(len(pads) // 2))
    before, after = [0] * x.midpoint.ndim, [0] * x.midpoint.ndim
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    mode = attribute(node, "mode", "constant")
    if mode == "constant":
        given = operand(operands, 2)
        if given is None:
            return [padded(x, before, after, attribute(node, "value", 0.0))]
        return [padded(x, before, after, given.midpoint.reshape(())[()], float(np.max(given.error)))]
    positions = [reach(n, p, q, mode) for n, p, q in zip(x.shape, before, after)]
    return [moved(x, lambda values: values[np.ix_(*positions)])]


def padded(x: Ball, before: list[int], after: list[int], fill: object, error: float = 0.0) -> Ball:
    """x with `fill`, known to `error`, before and after it along each axis; negative counts take elements away."""
    sizes = list(zip(x.shape, before, after))
    shape = [n + p + q for n, p, q in sizes]
    source = tuple([slice(max(-p, 0), n - max(-q, 0)) for n, p, q in sizes])
    target = tuple([slice(max(p, 0), p + n + min(q, 0)) for n, p, q in sizes])

    def surrounded(values: Array, number: object) -> Array:
        result = np.full(shape, number, values.dtype)
        result[target] = values[source]
        return result

    if x.radius is None and not error:
        return Ball(surrounded(x.midpoint, "" if x.midpoint.dtype == object else fill), None, x.dtype)
    return Ball(surrounded(x.numbers, fill), surrounded(np.broadcast_to(x.error, x.shape), error), x.dtype)


def reach(n: int, before: int, after: int, mode: str) -> Array:
    """Which of n elements stand at positions -before ... n + after - 1."""
    positions = np.arange(-before, n + after)
    match mode:
        case "edge":
            return np.clip(positions, 0, n - 1)
        case "wrap":
            return positions % n
        case "reflect":
            period = max(2 * (n - 1), 1)
            return (n - 1) - np.abs(positions % period - (n - 1))
    raise Undecided(f"a mode of Pad that is not known: {mode}")


@rule("Expand")
def expand(node: Node, operands: Operands, context: Context) -> Results:
    """x broadcast with a shape"""
    shape = np.broadcast_shapes(operands[0].shape, tuple(integers(operands, 1) or ()))
    return [moved(operands[0], lambda x: np.broadcast_to(x, shape))]


@rule("Tile")
def tile(node: Node, operands: Operands, context: Context) -> Results:
    """x repeated along each axis"""
    repeats = integers(operands, 1) or []
    return [moved(operands[0], lambda x: np.tile(x, repeats))]


@rule("DepthToSpace")
def depth_to_space(node: Node, operands: Operands, context: Context) -> Results:
    """Channels to blocks of rows and columns, in DCR or CRD order"""
    b = node.attributes["blocksize"]
    n, c, h, w = operands[0].shape
    depth_first = attribute(node, "mode", "DCR") == "DCR"
    shape = (n, b, b, c // b**2, h, w) if depth_first else (n, c // b**2, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3)
    return [moved(operands[0], lambda x: x.reshape(shape).transpose(order).reshape(n, c // b**2, h * b, w * b))]


@rule("SpaceToDepth")
def space_to_depth(node: Node, operands: Operands, context: Context) -> Results:
    """Blocks of rows and columns to channels"""
    b = node.attributes["blocksize"]
    n, c, h, w = operands[0].shape

    def move(x: Array) -> Array:
        blocks = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return blocks.reshape(n, c * b**2, h // b, w // b)

    return [moved(operands[0], move)]


@rule("CenterCropPad")
def center_crop_pad(node: Node, operands: Operands, context: Context) -> Results:
    """Axes cropped or padded with zeros to given sizes; of an odd difference the end gets the larger part"""
    x: Ball = operands[0]
    sizes = integers(operands, 1) or []
    before, after = [0] * x.midpoint.ndim, [0] * x.midpoint.ndim
    for axis, size in zip(attribute(node, "axes", range(x.midpoint.ndim)), sizes):
        missing = size - x.shape[axis]
        before[axis] = missing // 2 if missing > 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return [padded(x, before, after, 0)]


@rule("Trilu")
def trilu(node: Node, operands: Operands, context: Context) -> Results:
    """The upper or lower triangle of each matrix, zeros elsewhere; k moves the diagonal"""
    k = (integers(operands, 1) or [0])[0]
    triangle = np.triu if attribute(node, "upper", 1) else np.tril
    return [moved(operands[0], lambda x: triangle(x, k))]


@rule("ReverseSequence")
def reverse_sequence(node: Node, operands: Operands, context: Context) -> Results:
    """The first sequence_lens[i] steps of sample i in reverse order"""
    time, batch = attribute(node, "time_axis", 0), attribute(node, "batch_axis", 1)
    lengths = integers(operands, 1) or []

    def move(x: Array) -> Array:
        result = x.copy()
        source, target = np.moveaxis(x, (batch, time), (0, 1)), np.moveaxis(result, (batch, time), (0, 1))
        for sample, length in enumerate(lengths):
            target[sample, :length] = source[sample, :length][::-1]
        return result

    return [moved(operands[0], move)]


@rule("Dropout")
def dropout(node: Node, operands: Operands, context: Context) -> Results:
    """x itself outside of training, and a mask of ones (open before opset 12); random in training, if any is dropped"""
    training, ratio = array(operands, 2), array(operands, 1)
    dropped = attribute(node, "ratio", 0.5) if ratio is None else float(ratio)
    if training is not None and training.any() and dropped:
        raise Undecided("random in training")
    return [operands[0], exact(np.ones(operands[0].shape, np.bool_)) if context.opset >= 12 else None]
