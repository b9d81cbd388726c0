"""Resizing and sampling of images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import (
    Array,
    Ball,
    Open,
    U,
    Undecided,
    constant,
    exact,
    format_of,
    hull,
    is_float,
    moved,
    undecided_where,
)
from driftnet.oracle.ball_arithmetic.elementwise import select
from driftnet.oracle.ball_arithmetic.interpolation import Kernel, crossed, interpolated, weighable
from driftnet.oracle.ball_arithmetic.linear import products
from driftnet.oracle.ball_arithmetic.rules import Context, Integers, attribute, rule
from driftnet.oracle.tolerances.table import GRID_ROUNDINGS, POSITION_ROUNDINGS


@dataclass(frozen=True)
class Axis:
    """How one axis is resized: from n elements to `out`; start and end of the region to crop to, in shares of it."""

    axis: int
    n: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def stays(self) -> bool:
        """Whether it is left as it is."""
        return self.scale == 1.0 and (self.start, self.end) == (0.0, 1.0)

    @property
    def leaves_fraction(self) -> bool:
        """Whether the scale gives a fraction of an element more than there are."""
        return abs(self.n * self.scale - self.out) > POSITION_ROUNDINGS * U * self.out


@rule("Resize")
def resize(
    x: Ball,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Integers | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    extrapolation_value: float = 0.0,
    node: Node,
    context: Context,
) -> Ball:
    """Axes scaled, or given sizes, by nearest, linear or cubic interpolation"""
    old = context.opset < 11  # when operand 1 was the scales
    transform = "asymmetric" if old else coordinate_transformation_mode
    region = roi if transform == "tf_crop_and_resize" else None
    outside = unsure = np.zeros((1,) * x.midpoint.ndim, np.bool_)
    value = constant(extrapolation_value, x.dtype)
    beyond, finite = moved(value, lambda values: np.broadcast_to(values, x.shape)), np.isfinite(value.midpoint)
    changed = [a for a in _axes(node, x.shape, region, roi if old else scales, sizes) if not a.stays]
    y = _readable(node, x) if changed else x
    for along in changed:
        if along.scale == 1.0:
            raise Open("whether an axis that is cropped with a scale of 1 changes: engines differ")
        if transform == "pytorch_half_pixel" and along.out == 1 < along.n and _depends_on_half(node, along):
            raise Open("where the one element lies: at 0 by the standard's text, at -0.5 by onnx.reference")
        where = positions(transform, along)
        y = _along(node, y, along, where, old)
        if transform == "tf_crop_and_resize":
            # Some interpolate what stands outside along other axes.
            beyond = _along(node, beyond, along, where, old) if finite else value
            shape = [-1 if k == along.axis else 1 for k in range(x.midpoint.ndim)]
            low, high, last = where.p - where.slack, where.p + where.slack, along.n - 1
            outside = outside | ((high < 0) | (low > last)).reshape(shape)
            unsure = unsure | (((low < 0) & (high >= 0)) | ((low <= last) & (high > last))).reshape(shape)
    if outside.any():
        y = select(exact(outside), select(exact(beyond.undecided), value, beyond), y)
    return undecided_where(unsure, y)


def _axes(
    node: Node, shape: tuple[int, ...], region: Array | None, given: Array | None, sizes: Integers | None
) -> list[Axis]:
    """What is to be done along each axis."""
    axes = [axis % len(shape) for axis in attribute(node, "axes", range(len(shape)))]
    lengths = [shape[axis] for axis in axes]
    if sizes:
        scales, results = _fitted(lengths, sizes, attribute(node, "keep_aspect_ratio_policy", "stretch"))
    else:
        scales = np.asarray(given, np.float64).ravel().tolist()
        results = [math.floor(n * s) for n, s in zip(lengths, scales)]
    ends = [0.0] * len(axes) + [1.0] * len(axes) if region is None else region.ravel().tolist()
    return [Axis(*each) for each in zip(axes, lengths, results, scales, ends, ends[len(axes) :])]


@rule("Upsample")
def upsample(x: Ball, scales: Array | Sequence[float], *, node: Node) -> Ball:
    """Axes scaled by nearest or linear interpolation, positions divided by the scale"""
    sizes = enumerate(zip(x.shape, np.asarray(scales).tolist()))
    axes = [Axis(axis, n, math.floor(n * scale), scale) for axis, (n, scale) in sizes]
    changed = [a for a in axes if not a.stays]
    y = _readable(node, x) if changed else x
    for along in changed:
        y = _along(node, y, along, positions("asymmetric", along), True)
    return y


def _fitted(lengths: Sequence[int], sizes: Sequence[int], policy: str) -> tuple[list[float], list[int]]:
    """Scales and sizes of the result."""
    ratios = [size / n for size, n in zip(sizes, lengths)]
    if policy == "stretch":
        return [float(np.float32(r)) for r in ratios], list(sizes)
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [float(np.float32(scale))] * len(lengths), [math.floor(scale * n + 0.5) for n in lengths]


@dataclass(frozen=True, eq=False)
class Positions:
    """Where in the operand each element of the result lies, and how far float32 may be from that.

    slack   the same for decisions: 0 where the scale is a whole number or a power of two, because then ties are exact
    """

    p: Array
    error: Array
    slack: Array


@lru_cache(maxsize=256)
def positions(transform: str, along: Axis) -> Positions:
    """The positions of the elements of the result along an axis. Raises Open where that is anybody's guess."""
    n, out, scale, start, end = along.n, along.out, along.scale, along.start, along.end
    i = np.arange(out, dtype=np.float64)
    step = 1.0 / scale
    corners = transform == "tf_crop_and_resize" or (transform == "align_corners" and n > 1 and out > 1)
    if corners and along.leaves_fraction:
        raise Open("where the last corner lies if the scale gives a fraction of an element: onnx.reference keeps it")
    match transform:
        case "half_pixel":
            p = (i + 0.5) / scale - 0.5
        case "tf_half_pixel_for_nn":
            p = (i + 0.5) / scale
        case "half_pixel_symmetric":
            p = n / 2 * (1 - out / (scale * n)) + (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            p = (i + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
        case "asymmetric":
            p = i / scale
        case "align_corners":
            step = (n - 1) / (out - 1) if out > 1 else 1.0
            p = i * (n - 1) / max(out - 1, 1)
        case "tf_crop_and_resize":
            step = (end - start) * (n - 1) / (out - 1) if out > 1 else 1.0
            p = start * (n - 1) + i * step if out > 1 else np.full(out, (start + end) * (n - 1) / 2)
        case _:
            raise Undecided(f"a coordinate transformation that is not known: {transform}")
    error = POSITION_ROUNDINGS * U * (np.abs(p) + 1)
    if transform == "tf_crop_and_resize":
        error = POSITION_ROUNDINGS * U * (np.abs(p) + abs(start) * (n - 1))
    whole = scale == int(scale) and transform not in ("align_corners", "tf_crop_and_resize")
    return Positions(p, error, np.zeros(out) if whole or math.frexp(step)[0] == 0.5 else error)


def _depends_on_half(node: Node, along: Axis) -> bool:
    """Whether an element at -0.5 is another one than that at 0, which is the first where the border is repeated."""
    weighed = attribute(node, "mode", "nearest") == "cubic" or attribute(node, "antialias", 0)
    # Of a fraction of an element more, onnx.reference forgets that there is one.
    return bool(weighed) or along.leaves_fraction


def _readable(node: Node, x: Ball) -> Ball:
    """x, which one element at a time is read of, or whose elements are weighed."""
    return x if attribute(node, "mode", "nearest") == "nearest" else weighable(x)


def _along(node: Node, x: Ball, along: Axis, where: Positions, old: bool) -> Ball:
    """x interpolated along one axis."""
    mode, n, axis = attribute(node, "mode", "nearest"), along.n, along.axis
    if mode == "nearest":
        rounding = attribute(node, "nearest_mode", "round_prefer_floor")
        if old:
            rounding = "ceil" if along.scale < 1 else "floor"
        ends = (_nearest(end, rounding) for end in (where.p - where.slack, where.p + where.slack))
        below, above = (np.clip(end, 0, n - 1).astype(np.int64) for end in ends)
        first = moved(x, lambda values: values.take(below, axis))
        return first if (below == above).all() else hull([first, moved(x, lambda values: values.take(above, axis))])
    if not is_float(x.dtype):
        raise Open("how integers are interpolated")
    outside = "exclude" if mode == "cubic" and attribute(node, "exclude_outside", 0) else "clamp"
    stretch = max(1 / along.scale, 1.0) if attribute(node, "antialias", 0) else 1.0
    if stretch > 1 and attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Open("by what a kernel is widened where the size follows from another axis")
    kernel = Kernel(mode, outside, float(attribute(node, "cubic_coeff_a", -0.75)), stretch)
    scaled = 2 if outside == "exclude" or stretch > 1 else 1  # the sum of the weights, and a division by it
    return interpolated(x, _weights(kernel, where, n), axis, 2 * kernel.reach * scaled)


@lru_cache(maxsize=64)
def _weights(kernel: Kernel, where: Positions, n: int) -> Ball:
    return kernel.ball(where.p, where.error, n)


def _nearest(p: Array, rounding: str) -> Array:
    match rounding:
        case "round_prefer_floor":
            return np.asarray(np.ceil(p - 0.5))
        case "round_prefer_ceil":
            return np.asarray(np.floor(p + 0.5))
        case "floor":
            return np.asarray(np.floor(p))
    return np.asarray(np.ceil(p))


@rule("GridSample")
def grid_sample(
    x: Ball, grid: Ball, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Ball:
    """X read at the positions of a grid in -1..1, interpolated"""
    sizes = x.shape[2:]
    reflection = "reflect centres" if align_corners else "reflect"
    outside = {"zeros": "drop", "border": "clamp", "reflection": reflection}[padding_mode]
    kernel = Kernel({"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode), outside)
    unit = max(format_of(grid.dtype).unit, U)
    axes = []
    for axis, n in enumerate(sizes):
        last = len(sizes) - 1 - axis  # a grid names the last dim first
        at = moved(grid, lambda g: g[..., last].reshape(x.shape[0], -1))  # noqa: B023
        half = (n - 1) / 2 if align_corners else n / 2
        p = (at.numbers + 1) * half - (0.0 if align_corners else 0.5)
        axes.append(kernel.ball(p, GRID_ROUNDINGS * unit * (np.abs(p) + n) + at.error * half, n))
    flat = moved(x if mode == "nearest" else weighable(x), lambda values: values.reshape(*x.shape[:2], -1))
    total = products(lambda values, w: values @ w.swapaxes(-1, -2), flat, crossed(axes), 4 ** len(sizes))
    return total.each(lambda y: y.reshape(*x.shape[:2], *grid.shape[1:-1])).ball(x.dtype)


@rule("AffineGrid")
def affine_grid(theta: Ball, size: Integers, *, align_corners: int = 0) -> Ball:
    """For each sample, the grid of positions that an affine map takes the pixels of an image to"""
    sizes = size[2:]
    lines = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in sizes]
    lines = [np.zeros(1) if align_corners and n == 1 else line for n, line in zip(sizes, lines)]
    grid = np.meshgrid(*lines, indexing="ij")
    pixels = np.stack([*grid[::-1], np.ones(tuple(sizes))], -1).reshape(-1, len(sizes) + 1)
    base = Ball(pixels, np.full(pixels.shape, GRID_ROUNDINGS * format_of(theta.dtype).unit), theta.dtype)
    total = products(lambda maps, points: points @ maps.swapaxes(-1, -2), theta, base, len(sizes) + 1)
    return total.each(lambda y: y.reshape(theta.shape[0], *sizes, len(sizes))).ball(theta.dtype)
