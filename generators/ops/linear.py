"""Matrix products."""

from math import prod

from driftnet.generators.building.broadcasting import broadcast
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, find, fresh, optional, tame, weight
from driftnet.generators.building.values import Fill, Shape
from driftnet.generators.ops.convolution import LINEAR
from driftnet.generators.ops.registry import operator

COLUMNS = (*[1, 2, 3, 4, 5, 8, 16, 0] * 3, 70)
"""Columns of the second matrix; 0 means as many as it has rows."""


def _top(a: Value, b: Value, terms: int) -> float:
    return a.magnitude * b.magnitude * terms


@operator("Gemm", weight=2.5)
def gemm(b: Builder) -> None:
    """Y = alpha A' B' + beta C, A' (M, K) and B' (K, N) transposed on demand, C broadcast to (M, N)"""
    transposed_a, transposed_b = b.flag("transA"), b.flag("transB")
    inner, outer = (0, 1) if transposed_a else (1, 0)
    a = data(b, "a", ranks=(2,), fixed=(inner,), domain=LINEAR)
    k = a.shape[inner]
    n = b.choose("n", COLUMNS) or k
    w = weight(b, "w", (n, k) if transposed_b else (k, n), dtype=a.dtype)
    c = optional(b, "c", b.choose("c_shape", ((n,), (1, n), (1,), (), (n,))), dtype=a.dtype)
    alpha, beta = b.choose("alpha", (1.0, 1.0, 0.5, 2.0)), b.choose("beta", (1.0, 1.0, 0.0, -1.0))
    attributes = {"alpha": alpha, "beta": beta, "transA": int(transposed_a), "transB": int(transposed_b)}
    top = abs(alpha) * _top(a, w, k) + (abs(beta) * c.magnitude if c else 0.0)
    b.emit((a, w, c), lambda s: (s[outer], n), attributes, bounds=top)


@operator("MatMul", weight=2.5)
def matmul(b: Builder) -> None:
    """NumPy's matmul: the last two dims are matrices, those before broadcast; a 1-D operand is a vector"""
    a = data(b, "a", ranks=(2, 3, 4, 1), fixed=(-1,), domain=LINEAR)
    k = a.shape[-1]
    n = b.choose("n", COLUMNS) or k
    form = b.choose("form", ("matrix", "matrix", "batched", "vector"))
    batch = a.shape[:-2] if form == "batched" and all(a.fixed(axis) for axis in range(a.rank - 2)) else ()
    w = weight(b, "w", (k,) if form == "vector" else (*batch, k, n), dtype=a.dtype)
    b.emit((a, w), each(matmul_shape, a, w), bounds=_top(a, w, k))


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """The shape of NumPy's matmul."""
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)


EQUATIONS = (
    *("ij->ji", "ij,jk->ik", "ij->i", "ij,ij->ij", "ij,kj->ik", "ij->", "ij,j->i"),
    *("bij,bjk->bik", "bij->bji", "bij,bij->b", "bij,kj->bik", "...ij->...ji", "bij,bkj->bik", "bij->ij"),
    *("bhij,bhjk->bhik", "bhij,bhkj->bhik", "bhij->bhji", "bhij,hj->bi", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"),
    *("...ij,...jk->...ik", "i,i...->...", "ij, jk -> ik"),
)


@operator("Einsum", weight=0.8)
def einsum(b: Builder) -> None:
    """Products of operands summed over the letters that the result lacks"""
    equation = b.choose("equation", EQUATIONS)
    terms, result = equation.replace("...", ".").replace(" ", "").split("->")
    first, _, other = terms.partition(",")
    x = data(b, ranks=(len(first),), domain=tame(1e6), fixed=(-1,))
    n = b.choose("n", (1, 2, 3, 4))

    def sizes(s: Shape, letters: str) -> Shape:
        known = dict(zip(first, s))
        return tuple([known.get(letter, n) for letter in letters])

    operands = [x]
    if other:
        shapes = each(lambda s: sizes(s, other), x)
        operands.append(weight(b, "y", shapes, dtype=x.dtype, sources=("initializer", "input", "constant")))
    count = max(prod(shape) for shape in x.shapes)
    top = count * x.magnitude * (operands[-1].magnitude if other else 1.0)
    b.emit(operands, lambda s: sizes(s, result), {"equation": equation}, bounds=top)


@operator("Det", weight=0.2)
def det(b: Builder) -> None:
    """The determinant of each square matrix"""
    n, batch = b.choose("n", (1, 2, 3)), b.choose("batch", ((), (2,), (1,)))
    dtypes, small = b.types(), tame(1e3)
    x = find(b, lambda v: v.dtype in dtypes and v.rank > 1 and v.static and v.shape[-2:] == (n, n) and small.holds(v))
    x = x or fresh(b, dtypes[0], (*batch, n, n), Fill("weight"))
    b.emit((x,), lambda s: s[:-2], bounds=6.0 * max(x.magnitude, 1.0) ** n)
