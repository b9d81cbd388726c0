"""Saturation: where integer kernels add pairs of u8 s8 products in 16 bits, a pair that is too large is cut.

So do those of AVX2 and of AVX-512 without VNNI; newer machines add in 32 bits. A target that runs such kernels declares
it, by this name. Signed activations that are dequantized and quantized again around an operator are no way out: on x86
onnxruntime rewrites them to unsigned ones first (QDQS8ToU8Transformer).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import WEIGHTED, Trait, traits_of
from driftnet.oracle.ball_arithmetic.ball import Ball, is_float, widened
from driftnet.oracle.ball_arithmetic.rules import rule
from driftnet.util.machine import cpu_features

RULE = "u8s8-saturation"
WIDE_KERNELS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimd"})
LARGEST = 2**15 - 1
CUT = "driftnet.Cut"
"""A result that is off by what pairs of the products that it sums lose. Its operands are that result, the codes of
activations and those of weights, or constant floats, and the scales of the two and of the result, if they have any."""
HELD = WEIGHTED - {"ConvTranspose"}  # for which no runtime has an integer kernel
# No trait tells where operators that act on codes have these and their scales.
OPERANDS = {
    "ConvInteger": (0, 1),
    "MatMulInteger": (0, 1),
    "QLinearConv": (0, 3, 1, 4, 6),
    "QLinearMatMul": (0, 3, 1, 4, 6),
    "com.microsoft.QGemm": (0, 3, 1, 4, 7),
    "com.microsoft.MatMulIntegerToFloat": (0, 1, 2, 3),
}
"""By operator that acts on codes, the positions of what a CUT reads."""


def is_possible() -> bool:
    """Whether this machine has such kernels, and none that add in 32 bits."""
    features = cpu_features()
    return "avx2" in features and WIDE_KERNELS.isdisjoint(features)


def saturates(activation: float, weight: float) -> bool:
    """Whether this machine may cut a pair of products of codes that are at most so large, by magnitude."""
    return is_possible() and 2 * activation * weight > LARGEST


def cut(graph: Graph, node: Node, exact: str) -> Node | None:
    """What makes the first result of `node` on this machine of the `exact` one; None where it has no integer kernel."""
    if not is_possible():
        return None
    operands: tuple[str, ...]
    if node.op in HELD:
        data, weights = (graph.producers.get(name) for name in node.inputs[:2])
        if data is None or data.op != "DequantizeLinear":
            return None
        codes, scale = weights.inputs[:2] if weights and weights.op == "DequantizeLinear" else (node.inputs[1], "")
        if not scale and (node.op == "MatMul" or codes not in graph.constants):
            return None  # the runtime rounds constant weights alone, and none of a MatMul
        operands = (data.inputs[0], codes, data.inputs[1], scale)
    elif node.op in OPERANDS:
        operands = tuple(map(node.input, OPERANDS[node.op]))
    else:
        return None
    return Node(CUT, (exact, *operands), node.outputs[:1], {"op": node.op, "given": node.attributes})


@rule(CUT)
def off_by_what_is_cut(
    x: Ball,
    a: Ball,
    w: Ball,
    a_scale: Ball | None = None,
    w_scale: Ball | None = None,
    x_scale: Ball | None = None,
    *,
    op: str,
    given: Mapping[str, Any],
) -> Ball:
    """x, as far off as `lost` says for weights w of [M, C / groups, ...] or [..., K, N], of an operator that has the
    attributes `given`. Where codes are held as floats around it, s8 becomes u8."""
    held, slides = op in HELD, Trait.SLIDES in traits_of(op)
    unsigned = a.dtype == np.uint8 or (a.dtype == np.int8 and held)
    if not unsigned or not (w.dtype == np.int8 or (held and is_float(w.dtype))) or not w.numbers.size:
        return x
    codes, step = w.numbers, np.ones(1) if w_scale is None else np.abs(w_scale.numbers.ravel())
    if w.dtype != np.int8:  # the runtime rounds these itself, from the smallest to the largest, and may be a code off
        low, high = min(codes.min(), 0.0), max(codes.max(), np.finfo(np.float32).tiny)
        step = np.ravel((high - low) / 255)
        codes = (codes - low) / step + np.iinfo(np.int8).min
        codes += np.sign(codes)
    levels = a.high - np.iinfo(a.dtype).min
    error = lost((_products_of_windows if slides else _products_of_rows)(levels, codes, given))
    error = error * (step if step.size in (1, error.shape[-1]) else step.max()) * abs(given.get("alpha", 1.0))
    error = error if a_scale is None else error * np.abs(a_scale.numbers).max()
    if not error.any():
        return x
    if x_scale is not None:
        with np.errstate(divide="ignore", invalid="ignore"):  # what is quantized by 0 is no number of its own
            error = error / np.abs(x_scale.numbers).min() + (error > 0)
    if slides:
        error = error.reshape(-1, *[1] * (codes.ndim - 2))
    elif codes.ndim == 1:
        error = error[0]
    elif a.numbers.ndim > 1:
        error = error[..., None, :]
    if x.dtype.kind not in "iu":
        return widened(x.numbers, x.error + error, x.dtype)
    ends = np.iinfo(x.dtype)
    low, high = (np.clip(end, ends.min, ends.max) for end in (x.low - error, x.high + error))
    return widened((low + high) / 2, (high - low) / 2, x.dtype)


def _products_of_windows(x: np.ndarray, w: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    """The largest products [K, M] of a Conv of x [N, C, ...] by w [M, C / groups, ...]."""
    groups = x.shape[1] // w.shape[1]
    padded = any(given.get("pads", ())) or given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    least = np.iinfo(np.uint8).max if padded else 0  # padding is the zero point, which may be any
    largest = x.max((0, *range(2, x.ndim)), initial=least).reshape(groups, 1, -1, 1)
    return np.asarray((largest * w.reshape(groups, len(w) // groups, w.shape[1], -1)).reshape(len(w), -1).T)


def _products_of_rows(x: np.ndarray, w: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    """The largest products [..., K, N] of a MatMul or Gemm of x [..., M, K] by w [..., K, N], or what it transposes."""
    x, w = (np.swapaxes(y, -1, -2) if given.get(name, 0) else y for name, y in (("transA", x), ("transB", w)))
    return np.asarray(x.max(tuple(range(x.ndim - 1)), initial=0)[:, None] * (w if w.ndim > 1 else w[:, None]))


def lost(products: np.ndarray) -> np.ndarray:
    """The most that sums [..., N] lose of terms that are between 0 and `products` [..., K, N].

    A pair loses what it is beyond LARGEST. That is a convex function of its sum: however terms are paired, no more is
    lost than where the largest of one sign are.
    """
    worst = np.zeros((*products.shape[:-2], products.shape[-1]))
    for sign in (1, -1):
        falling = -np.sort(-np.maximum(sign * products, 0), axis=-2)
        pairs, second = falling[..., ::2, :], falling[..., 1::2, :]
        pairs[..., : second.shape[-2], :] += second
        worst = np.maximum(worst, np.maximum(pairs - LARGEST, 0).sum(-2))
    return worst
