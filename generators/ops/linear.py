"""Matrix products."""

from __future__ import annotations

from generators.builder import Builder, each
from generators.graph import Value
from generators.ops.elementwise import broadcast, magnitude, tame
from generators.ops.registry import operator
from generators.values import Shape

LARGEST = 1e12
COLUMNS = (1, 2, 3, 4, 5, 8, 16, 0)
"""Columns of the second matrix; 0 means as many as it has rows."""


def _top(a: Value, b: Value, terms: int) -> float:
    return magnitude(a) * magnitude(b) * terms


@operator("Gemm", weight=2.5)
def gemm(b: Builder) -> None:
    """Y = alpha A' B' + beta C, A' (M, K) and B' (K, N) transposed on demand, C broadcast to (M, N)"""
    transposed_a, transposed_b = b.flag("transA"), b.flag("transB")
    inner, outer = (0, 1) if transposed_a else (1, 0)
    a = b.data("a", dtypes=b.types("Gemm"), ranks=(2,), fixed=(inner,), fits=tame(LARGEST))
    k = a.shape[inner]
    n = b.choose("n", COLUMNS) or k
    w = b.weight("w", (n, k) if transposed_b else (k, n), dtype=a.dtype)
    c = b.optional("c", b.choose("c_shape", ((n,), (1, n), (1,), (), (n,))), dtype=a.dtype)
    alpha, beta = b.choose("alpha", (1.0, 1.0, 0.5, 2.0)), b.choose("beta", (1.0, 1.0, 0.5, -1.0))
    attributes = {
        "alpha": b.unless(alpha, 1.0),
        "beta": b.unless(beta, 1.0),
        "transA": b.unless(int(transposed_a), 0),
        "transB": b.unless(int(transposed_b), 0),
    }
    top = abs(alpha) * _top(a, w, k) + (abs(beta) * magnitude(c) if c else 0.0)
    b.emit("Gemm", (a, w, c), each(lambda s: (s[outer], n), a), attributes, bounds=(-top, top))


@operator("MatMul", weight=2.5)
def matmul(b: Builder) -> None:
    """NumPy's matmul: the last two dims are matrices, those before broadcast; a 1-D operand is a vector"""
    a = b.data("a", dtypes=b.types("MatMul"), ranks=(2, 3, 4, 1), fixed=(-1,), fits=tame(LARGEST))
    k = a.shape[-1]
    n = b.choose("n", COLUMNS) or k
    form = b.choose("form", ("matrix", "matrix", "batched", "vector"))
    batch = a.shape[:-2] if form == "batched" and all(a.fixed(axis) for axis in range(a.rank - 2)) else ()
    w = b.weight("w", (k,) if form == "vector" else (*batch, k, n), dtype=a.dtype)
    top = _top(a, w, k)
    b.emit("MatMul", (a, w), each(matmul_shape, a, w), bounds=(-top, top))


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """The shape of NumPy's matmul."""
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)
