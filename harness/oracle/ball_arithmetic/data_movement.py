"""Data movement: every element of the result is one of an operand's, with its radius, or a given number."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, exact, joined, moved
from driftnet.oracle.ball_arithmetic.rules import Context, Integers, Maybe, moving, rule

MOST_EXPANDED = 2**26
"""Elements of what an Expand gives: a view, which costs nothing, until something is computed of it."""


def _expand(x: Array, shape: tuple[int, ...]) -> Array:
    if math.prod(shape) > MOST_EXPANDED:
        raise Undecided(f"it expands to {list(shape)}")
    return np.broadcast_to(x, shape)


# a rule each
SIMPLE: Mapping[str, Callable[..., Array]] = {
    "Compress": lambda x, condition, *, axis=None: np.compress(condition, x, axis),
    "Expand": lambda x, shape: _expand(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Flatten": lambda x, *, axis=1: x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),
    "Gather": lambda x, indices, *, axis=0: x.take(indices, axis),
    "GatherElements": lambda x, indices, *, axis=0: x[elements(indices, axis)],
    "Squeeze": lambda x, axes=None: x.squeeze(None if axes is None else tuple(axes)),
    "Tile": np.tile,
    "Transpose": lambda x, *, perm=None: x.transpose(perm),
    "Trilu": lambda x, k=0, *, upper=1: (np.triu if upper else np.tril)(x, int(k)),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}
for _operator, _function in SIMPLE.items():
    moving(_operator)(_function)


@moving("Reshape")
def reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """The same elements in row-major order; 0 copies a dim (unless allowzero), -1 is inferred"""
    return x.reshape([x.shape[axis] if n == 0 and not allowzero else n for axis, n in enumerate(shape)])


@moving("Slice")
def slice_(
    x: Array, starts: Integers, ends: Integers, axes: Integers | None = None, steps: Integers | None = None
) -> Array:
    """x[start:end:step] along the given axes, with the semantics of Python"""
    where = [slice(None)] * x.ndim
    chosen = range(len(starts)) if axes is None else axes
    for axis, start, end, step in zip(chosen, starts, ends, [1] * len(starts) if steps is None else steps):
        # Counted from the end, what lies before the first element is clamped to it by Python too.
        where[axis] = slice(start, end, step)
    return x[tuple(where)]


def elements(indices: Array, axis: int) -> tuple[Array, ...]:
    """Where in a tensor the elements are that `indices` mean along `axis`."""
    at = list(np.ogrid[tuple([slice(n) for n in indices.shape])])
    at[axis] = indices
    return tuple(at)


def paths(indices: Array) -> tuple[Array, ...]:
    """Rows of indices as what stands between brackets behind an array."""
    return tuple([indices[..., k] for k in range(indices.shape[-1])])


@moving("GatherND")
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Slices x[indices[i]], each row of indices a path into the axes after the first batch_dims"""
    steps = np.ogrid[tuple([slice(n) for n in indices.shape[:batch_dims]])]
    samples = [s.reshape(s.shape + (1,) * (indices.ndim - 1 - batch_dims)) for s in steps]
    return np.asarray(x[(*samples, *paths(indices))])


@moving("DepthToSpace")
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Channels to blocks of rows and columns, in DCR or CRD order"""
    b = blocksize
    n, c, h, w = x.shape
    shape = (n, b, b, c // b**2, h, w) if mode == "DCR" else (n, c // b**2, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return x.reshape(shape).transpose(order).reshape(n, c // b**2, h * b, w * b)


@moving("SpaceToDepth")
def space_to_depth(x: Array, *, blocksize: int) -> Array:
    """Blocks of rows and columns to channels"""
    b = blocksize
    n, c, h, w = x.shape
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


@moving("ReverseSequence")
def reverse_sequence(x: Array, lengths: Integers, *, time_axis: int = 0, batch_axis: int = 1) -> Array:
    """The first lengths[i] steps of sample i in reverse order"""
    result = x.copy()
    source, target = (np.moveaxis(side, (batch_axis, time_axis), (0, 1)) for side in (x, result))
    for sample, length in enumerate(lengths):
        target[sample, :length] = source[sample, :length][::-1]
    return result


@rule("Concat")
def concat(*operands: Ball, axis: int) -> Ball:
    """One tensor after the other along an axis"""
    return joined(operands, lambda xs: np.concatenate(xs, axis))


@rule("Split")
def split(x: Ball, split: Integers | None = None, *, axis: int = 0, node: Node) -> list[Ball]:
    """Pieces along an axis, as given or of equal size but for the last"""
    count = len(node.outputs)
    sizes = split or [-(-x.shape[axis] // count)] * count
    return pieces(x, list(accumulate(sizes))[:-1], axis)


def pieces(x: Ball, ends: list[int], axis: int) -> list[Ball]:
    """`x` cut along an axis before each of the positions `ends`."""
    midpoints = np.split(x.midpoint, ends, axis)
    radii = [None] * len(midpoints) if x.radius is None else np.split(x.radius, ends, axis)
    return [Ball(m, r, x.dtype) for m, r in zip(midpoints, radii)]


@rule("Pad")
def pad(x: Ball, pads: Integers, fill: Maybe = None, axes: Integers | None = None, *, node: Node) -> Ball:
    """More elements (or fewer) at both ends of axes: a constant, or elements found by `reach`"""
    before, after = [0] * x.midpoint.ndim, [0] * x.midpoint.ndim
    for k, axis in enumerate(axes or range(len(pads) // 2)):
        before[axis], after[axis] = pads[k], pads[k + len(pads) // 2]
    if (mode := node.attributes.get("mode", "constant")) != "constant":
        positions = [reach(n, p, q, mode) for n, p, q in zip(x.shape, before, after)]
        return moved(x, lambda a: a[np.ix_(*positions)])
    if fill is None:
        return padded(x, before, after, node.attributes.get("value", 0.0))
    return padded(x, before, after, fill.midpoint.reshape(())[()], float(np.max(fill.error)))


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


@rule("CenterCropPad")
def center_crop_pad(x: Ball, sizes: Integers, *, axes: Sequence[int] | None = None) -> Ball:
    """Axes cropped or padded with zeros to given sizes; of an odd difference the end gets the larger part"""
    before, after = [0] * x.midpoint.ndim, [0] * x.midpoint.ndim
    for axis, size in zip(range(x.midpoint.ndim) if axes is None else axes, sizes):
        missing = size - x.shape[axis]
        before[axis] = missing // 2 if missing > 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return padded(x, before, after, 0)


@rule("Dropout")
def dropout(
    x: Ball, ratio: Array | float = 0.5, training_mode: Array | None = None, *, context: Context
) -> list[Ball | None]:
    """x itself outside of training, and a mask of ones (open before opset 12); random in training, if any is dropped"""
    if training_mode is not None and training_mode.any() and float(ratio):
        raise Undecided("random in training")
    return [x, exact(np.ones(x.shape, np.bool_)) if context.opset >= 12 else None]
