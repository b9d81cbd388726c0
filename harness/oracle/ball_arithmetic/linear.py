"""Linear and bilinear maps.

For a sum of n products of x and w, each known to a radius,

    y = sum x w,   |y' - y| <= sum |w| r_x + (|x| + r_x) r_w + gamma_n' sum (|x| + r_x)(|w| + r_w)

holds in whatever order it is added. n' = n + 6: one rounding for the bias, and those of a BatchNormalization or a scale
that a converter multiplied into the weights (epsilon added, root, quotient, product, bias).

A Winograd transform adds up other numbers than the products. In MNN 3.6.1 it was measured to lose up to 59u of
sum max|x_c| max|w_c| over the channels c for windows of 3 x 3, which is up to 36 times the bound above; twice that is
added to it. For larger windows it loses up to 1e-3 of that sum, which is left to be found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, format_of, is_float, moved, rounded, widened
from driftnet.oracle.ball_arithmetic.rules import Integers, Maybe, attribute, rule
from driftnet.oracle.ball_arithmetic.sliding import Sliding, sliding, spread, window_attributes, windows
from driftnet.oracle.tolerances.table import FOLDED_ROUNDINGS, WINOGRAD_ROUNDINGS

MOST_PRODUCTS = 2**34
"""Of one sum of products: 2 s on a core, thrice for midpoint, radius and size, and nobody can interrupt it."""


MOST_COLUMNS = 2**22
"""Elements of the windows of a convolution that are written down at once: 32 MiB each for midpoint and radius."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of products before it is rounded: midpoint and radius, the sum of the terms' magnitudes, their number."""

    midpoint: Array
    radius: Array | float
    size: Array
    terms: int

    @staticmethod
    def of(x: Ball, add: Callable[[Array], Array], terms: int) -> Sum:
        """What `add` makes of x, a linear map without negative coefficients that adds up `terms` at most."""
        return Sum(add(x.numbers), 0.0 if x.radius is None else add(x.radius), add(np.abs(x.numbers)), terms)

    def each(self, move: Callable[[Array], Array]) -> Sum:
        """A linear map without negative coefficients on all three."""
        radius = self.radius if isinstance(self.radius, float) else move(self.radius)
        return Sum(move(self.midpoint), radius, move(self.size), self.terms)

    def together(self, move: Callable[[Array], Array]) -> Sum:
        """The same, all three at once: `move` is given them stacked along a new first axis."""
        if isinstance(self.radius, float):
            midpoint, size = move(np.stack([self.midpoint, self.size]))
            return Sum(midpoint, self.radius, size, self.terms)
        midpoint, radius, size = move(np.stack([self.midpoint, self.radius, self.size]))
        return Sum(midpoint, radius, size, self.terms)

    def plus(self, ball: Ball | None, factor: float = 1.0) -> Sum:
        """With factor * ball added, broadcast."""
        if ball is None:
            return self
        midpoint, scale = factor * ball.numbers, abs(factor)
        return Sum(
            self.midpoint + midpoint, self.radius + scale * ball.error, self.size + np.abs(midpoint), self.terms + 1
        )

    def times(self, factor: Array | float) -> Sum:
        """Times numbers that broadcast with it."""
        return Sum(self.midpoint * factor, self.radius * np.abs(factor), self.size * np.abs(factor), self.terms)

    def ball(self, dtype: np.dtype) -> Ball:
        """Rounded to `dtype`."""
        if not is_float(dtype):
            if not np.any(self.radius) and float(np.max(self.size, initial=0.0)) < 2.0**53:
                return Ball(self.midpoint.astype(np.int64).astype(dtype), None, dtype)  # overflow leaves the remainder
            return widened(self.midpoint, np.where(self.size < 2.0**53, self.radius, np.inf), dtype)
        form = format_of(dtype)
        # Of more terms than 1 / u nothing is known, and the quotient is huge.
        roundings = (self.terms + FOLDED_ROUNDINGS) / max(1 - (self.terms + FOLDED_ROUNDINGS) * form.unit, 1e-300)
        radius = self.radius + self.terms * form.tiny  # every product may underflow
        if float(self.size.max(initial=0.0)) > form.largest:  # so may every partial sum overflow
            radius = np.where(self.size > form.largest, np.inf, radius)
        return replace(rounded(self.midpoint, radius, dtype, roundings=roundings, size=self.size), terms=self.terms)


def products(multiply: Callable[[Array, Array], Array], x: Ball, w: Ball, terms: int) -> Sum:
    """sum x w as `multiply` does it, each result with `terms` terms. Undecided where that would take seconds."""
    _not_too_many(x.midpoint.size, w.midpoint.size, terms)
    midpoint, size = multiply(x.numbers, w.numbers), np.abs(w.numbers)
    radius: Array | float = 0.0
    if x.radius is not None:
        radius = multiply(x.radius, size)
    if w.radius is not None:
        radius = radius + multiply(np.abs(x.numbers) + x.error, w.radius)
    return Sum(midpoint, radius, multiply(np.abs(x.numbers), size), terms)


def _not_too_many(size: int, other: int, terms: int) -> None:
    if size * other > MOST_PRODUCTS * max(terms, 1):
        raise Undecided(f"it adds up more than {MOST_PRODUCTS:.0e} products")


@rule("MatMul")
def matmul(x: Ball, w: Ball) -> Ball:
    """NumPy's matmul"""
    return products(np.matmul, x, w, x.shape[-1]).ball(x.dtype)


@rule("Gemm")
def gemm(a: Ball, b: Ball, c: Maybe = None, *, node: Node) -> Ball:
    """alpha A' B' + beta C, A' and B' transposed on demand"""
    return product_and_sum(node, a, b, c).ball(a.dtype)


def product_and_sum(node: Node, a: Ball, b: Ball, c: Ball | None, *, scaled: bool = True) -> Sum:
    """What Gemm computes; not scaled: A' B' + C."""
    a = moved(a, np.transpose) if attribute(node, "transA", 0) else a
    b = moved(b, np.transpose) if attribute(node, "transB", 0) else b
    total = products(np.matmul, a, b, a.shape[1])
    if not scaled:
        return total.plus(c)
    return total.times(attribute(node, "alpha", 1.0)).plus(c, attribute(node, "beta", 1.0))


@rule("Einsum")
def einsum(*operands: Ball, equation: str) -> Ball:
    """Products of operands summed over the letters that the result lacks

    |prod (m + r) - prod m| <= prod (|m| + r) - prod |m|
    """

    def add(*arrays: Array) -> Array:
        return np.asarray(np.einsum(equation.replace(" ", ""), *arrays))

    terms = int(add(*[np.ones(x.shape) for x in operands]).max(initial=0.0))
    if len(operands) == 1 and terms == 1:
        return moved(operands[0], add)
    sizes = [np.abs(x.numbers) for x in operands]
    midpoint, size = add(*[x.numbers for x in operands]), add(*sizes)
    radius: Array | float = 0.0
    if any(x.radius is not None for x in operands):
        radius = add(*[s + x.error for s, x in zip(sizes, operands)]) - size
    return Sum(midpoint, radius, size, terms * len(operands)).ball(operands[0].dtype)


@rule("Det")
def det(x: Ball) -> Ball:
    """The determinant of each square matrix: elimination loses no more than 2^n of the permanent of |x|"""
    n = x.shape[-1]
    if n > 4:
        raise Undecided("the bound of a determinant is useless for larger matrices")
    permanent = _permanent(np.abs(x.numbers))
    radius = _permanent(np.abs(x.numbers) + x.error) - permanent if x.radius is not None else 0.0
    return rounded(np.linalg.det(x.numbers), radius, x.dtype, roundings=2.0**n * (n + 2), size=permanent)


def _permanent(x: Array) -> Array:
    n = x.shape[-1]
    paths = (reduce(np.multiply, [x[..., row, k] for row, k in enumerate(p)]) for p in permutations(range(n)))
    return np.asarray(sum(paths))


@rule("Conv")
def conv(x: Ball, w: Ball, bias: Maybe = None, *, node: Node) -> Ball:
    """Y = sum over channels of the group and the window of X W, plus B"""
    total = convolution(node, x, w, bias)
    return replace(total, radius=total.radius + _transformed(node, x, w)).ball(x.dtype)


def _transformed(node: Node, x: Ball, w: Ball) -> Array | float:
    """What a Winograd transform may lose, where one may be used: (N, M, 1, 1)."""
    strides, dilations, _ = window_attributes(node, w.midpoint.ndim - 2)
    if w.shape[2:] not in ((2, 2), (3, 3)) or {*strides, *dilations} != {1} or attribute(node, "group", 1) > 1:
        return 0.0
    largest = (np.abs(x.numbers) + x.error).max((2, 3), initial=0.0)
    heaviest = np.abs(w.numbers).max((2, 3), initial=0.0)
    return np.asarray(WINOGRAD_ROUNDINGS * format_of(x.dtype).unit * (largest @ heaviest.T)[..., None, None])


def convolution(node: Node, x: Ball, w: Ball, bias: Ball | None) -> Sum:
    """What Conv computes, in slabs along its first spatial dim where its columns are many."""
    group, spatial = attribute(node, "group", 1), w.midpoint.ndim - 2
    where = sliding(node, x.shape[2:], w.shape[2:])
    terms, channels = math.prod(w.shape[1:]), x.shape[0] * group
    columns = channels * terms * math.prod(where.count)
    _not_too_many(columns, w.midpoint.size, terms)
    thick = max(1, where.count[0] * MOST_COLUMNS // max(1, columns))
    slabs: list[Sum] = []
    for start in range(0, where.count[0], thick) or [0]:
        rows = slice(start, start + thick)

        def of_slab(values: Array, rows: slice = rows) -> Array:
            return _columns(windows(values, where)[:, :, rows], group, terms, spatial)

        count = (len(range(*rows.indices(where.count[0]))), *where.count[1:])
        slabs.append(weighted_columns(moved(x, of_slab), w, bias, count))
    return slabs[0] if len(slabs) == 1 else _side_by_side(slabs, axis=2)


def _side_by_side(sums: Sequence[Sum], axis: int) -> Sum:
    """Sums of as many terms as one."""
    exact = all(isinstance(each.radius, float) for each in sums)
    radius = 0.0 if exact else np.concatenate([np.broadcast_to(s.radius, s.midpoint.shape) for s in sums], axis)
    midpoint, size = (np.concatenate([getattr(s, part) for s in sums], axis) for part in ("midpoint", "size"))
    return Sum(midpoint, radius, size, sums[0].terms)


def weighted_columns(columns: Ball, w: Ball, bias: Ball | None, count: tuple[int, ...]) -> Sum:
    """Columns (N, group, terms, positions) times weights (M, C / group, *kernel) plus a bias: (N, M, *count)."""
    n, group, terms, _ = columns.shape
    outputs = w.shape[0]
    rows = moved(w, lambda values: values.reshape(group, outputs // group, terms))
    total = products(_rows_by_columns, columns, rows, terms).each(lambda y: y.reshape(n, outputs, *count))
    return total.plus(_by_channel(bias, len(count)))


def _rows_by_columns(columns: Array, rows: Array) -> Array:
    return np.asarray(rows @ columns)


def _columns(seen: Array, group: int, terms: int, spatial: int) -> Array:
    """Windows (N, C, *count, *kernel) as columns (N, group, terms, positions)."""
    taps = (*range(2 + spatial, 2 + 2 * spatial), *range(2, 2 + spatial))
    return seen.transpose(0, 1, *taps).reshape(seen.shape[0], group, terms, -1)


@rule("ConvTranspose")
def conv_transpose(x: Ball, w: Ball, bias: Maybe = None, *, group: int = 1, node: Node) -> Ball:
    """Y = the gradient of Conv by its input, plus B"""
    where, sizes = transposed(node, x.shape[2:], w.shape[2:])
    channels, per_group = x.shape[1] // group, w.shape[1]
    rows = moved(x, lambda values: values.reshape(x.shape[0], group, channels, -1))
    columns = moved(w, lambda values: values.reshape(group, channels, -1).swapaxes(1, 2))
    shape = (x.shape[0], group * per_group, *where.kernel, *where.count)
    total = products(_rows_by_columns, rows, columns, channels * math.prod(where.kernel))
    total = total.together(lambda parts: spread(parts.reshape(-1, *shape), where, sizes))
    return total.plus(_by_channel(bias, len(sizes))).ball(x.dtype)


def _by_channel(bias: Ball | None, spatial: int) -> Ball | None:
    return None if bias is None else moved(bias, lambda b: b.reshape(-1, *(1,) * spatial))


def transposed(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Sliding, tuple[int, ...]]:
    """The windows of a ConvTranspose, which slide over its result, and the sizes of that."""
    spatial = len(kernel)
    strides, dilations, pads = window_attributes(node, spatial)
    extra, auto = attribute(node, "output_padding", (0,) * spatial), attribute(node, "auto_pad", "NOTSET")
    reach = [s * (n - 1) + o + (k - 1) * d + 1 for s, n, o, k, d in zip(strides, sizes, extra, kernel, dilations)]
    before = tuple(pads[:spatial])
    result = tuple([r - p - q for r, p, q in zip(reach, pads, pads[spatial:])])
    wanted = node.attributes.get("output_shape")
    if wanted or auto.startswith("SAME"):
        result = tuple(wanted[-spatial:]) if wanted else tuple([n * s for n, s in zip(sizes, strides)])
        total = [max(r - n, 0) for r, n in zip(reach, result)]
        before = tuple([t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total])
    return Sliding(kernel, strides, dilations, before, sizes), result


@rule("Col2Im")
def col2im(x: Ball, sizes: Integers, block: Integers, *, node: Node) -> Ball:
    """Columns (N, C block, positions) added up where their blocks overlap in the image"""
    where = sliding(node, sizes, block)
    shape = (x.shape[0], x.shape[1] // math.prod(block), *where.kernel, *where.count)
    return Sum.of(x, lambda values: spread(values.reshape(shape), where, sizes), math.prod(block)).ball(x.dtype)
