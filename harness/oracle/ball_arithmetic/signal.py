"""Windows, Fourier transforms and the mel scale.

A transform is a product with a matrix of cosines and sines whose angles engines compute in the tensor's own dtype,
some of them unreduced: an angle near 2 pi k n / N is off by u times itself, so entries are known to 8u (1 + angle).
Where N is no power of two, Bluestein's algorithm has angles up to pi N behind every entry: 4u N more (onnxruntime was
measured to lose up to 1.8 u N of the sum of |x|, N = 2 to 1000).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, format_of, rounded, value
from driftnet.oracle.ball_arithmetic.linear import products
from driftnet.oracle.ball_arithmetic.operands import integers, moved, operand
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule
from driftnet.oracle.tolerances.table import BLUESTEIN_ROUNDINGS, FOURIER_ROUNDINGS, UNDECIDED_COUNT
from onnx import helper

WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Of a - b cos(2 pi n / N) + c cos(4 pi n / N)."""


@rule(*WINDOWS)
def window(node: Node, operands: Operands, context: Context) -> Results:
    """w_n = a - b cos(2 pi n / N) + c cos(4 pi n / N), N the size or, where not periodic, one less"""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node, "output_datatype", 1)))
    size = (integers(operands, 0) or [0])[0]
    a, b, c = WINDOWS[node.op]
    turns = size if attribute(node, "periodic", 1) else size - 1
    angle = 2 * math.pi * np.arange(size) / max(turns, 1)
    if size == 1:  # 0 / 0 where it is not periodic
        raise Undecided("a window of one element")
    midpoint = a - b * np.cos(angle) + c * np.cos(2 * angle)
    unit = max(format_of(dtype).unit, format_of(np.dtype(np.float32)).unit)
    return [rounded(midpoint, FOURIER_ROUNDINGS * unit * (1 + angle), dtype)]


@rule("DFT")
def dft(node: Node, operands: Operands, context: Context) -> Results:
    """X_k = sum x_n exp(-2 pi i n k / N) along an axis, the last dim real or complex; the inverse divided by N"""
    x: Ball = operands[0]
    length = integers(operands, 1)
    given = integers(operands, 2) if context.opset >= 20 else None
    axis = given[0] if given else attribute(node, "axis", 1) if context.opset < 20 else -2
    axis %= x.midpoint.ndim
    inverse, onesided = attribute(node, "inverse", 0), attribute(node, "onesided", 0)
    n = length[0] if length else x.shape[axis]
    if inverse and onesided:
        raise Undecided("the inverse of a one-sided spectrum")
    x = moved(x, lambda values: _fitted(np.moveaxis(values, axis, -2), n))
    bins = n // 2 + 1 if onesided else n
    result = transformed(x, n, bins, bool(inverse))
    return [moved(result, lambda values: np.moveaxis(values, -2, axis))]


def _fitted(values: Array, n: int) -> Array:
    """(..., steps, parts) cut or filled with zeros to n steps."""
    missing = n - values.shape[-2]
    if missing <= 0:
        return values[..., :n, :]
    return np.concatenate([values, np.zeros((*values.shape[:-2], missing, values.shape[-1]))], -2)


def transformed(x: Ball, n: int, bins: int, inverse: bool) -> Ball:
    """The first bins of the transform of x (..., n, 1 or 2), as (..., bins, 2)."""
    parts = x.shape[-1]
    matrix = _matrix(n, bins, inverse, parts, x.dtype)
    flat = moved(x, lambda values: values.reshape(*values.shape[:-2], n * parts))
    result = products(np.matmul, flat, matrix, 2 * n)
    result = result.each(lambda y: y.reshape(*y.shape[:-1], bins, 2))
    return (result.times(1 / n) if inverse else result).ball(x.dtype)


@lru_cache(maxsize=64)
def _matrix(n: int, bins: int, inverse: bool, parts: int, dtype: np.dtype) -> Ball:
    """(n parts, bins 2): what real and imaginary part of each step contribute to those of each bin."""
    angle = (2 if inverse else -2) * math.pi / n * np.outer(np.arange(n), np.arange(bins))
    cos, sin = np.cos(angle), np.sin(angle)
    real = np.stack([cos, sin], -1)
    imaginary = np.stack([-sin, cos], -1)
    midpoint = np.stack([real, imaginary][:parts], 1)
    roundings = FOURIER_ROUNDINGS * (1 + np.abs(angle)) + (0 if math.frexp(n)[0] == 0.5 else BLUESTEIN_ROUNDINGS * n)
    radius = np.broadcast_to((roundings * format_of(dtype).unit)[:, None, :, None], midpoint.shape)
    shape = (n * parts, bins * 2)
    return Ball(midpoint.reshape(shape), radius.reshape(shape), dtype)


@rule("STFT")
def stft(node: Node, operands: Operands, context: Context) -> Results:
    """The DFT of each windowed frame of a signal (batch, length, 1 or 2)"""
    x, weights = operands[0], operand(operands, 2)
    step, length = (integers(operands, 1) or [1])[0], integers(operands, 3)
    n = length[0] if length else weights.shape[0]
    starts = np.arange((x.shape[1] - n) // step + 1) * step
    frames = moved(x, lambda values: values[:, starts[:, None] + np.arange(n)])
    if weights is not None:
        column = moved(weights, lambda values: values[:, None])
        size, slack = np.abs(frames.numbers), frames.error
        radius = size * column.error + slack * (np.abs(column.numbers) + column.error)
        frames = rounded(frames.numbers * column.numbers, radius, x.dtype)
    bins = n // 2 + 1 if attribute(node, "onesided", 1) else n
    return [transformed(frames, n, bins, False)]


@rule("MelWeightMatrix")
def mel_weight_matrix(node: Node, operands: Operands, context: Context) -> Results:
    """Triangles between bins of the spectrum that are equally far apart in mel = 2595 log10(1 + hz / 700)"""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node, "output_datatype", 1)))
    bands, length, rate, low, high = (float(value(x).ravel()[0]) for x in operands[:5])
    mel_low, mel_high = (2595 * math.log10(1 + hz / 700) for hz in (low, high))
    mels = mel_low + np.arange(bands + 2) * (mel_high - mel_low) / (bands + 2)
    exactly = (length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate
    if (np.abs(exactly - np.rint(exactly)) < UNDECIDED_COUNT * exactly).any():
        raise Undecided("to which bin an edge belongs depends on rounding")
    edges = np.floor(exactly).astype(int)
    result = np.zeros((int(length) // 2 + 1, int(bands)))
    for band, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:])):
        if centre == left:
            result[centre, band] = 1
        for k in range(left, centre + 1 if centre > left else left):
            result[k, band] = (k - left) / (centre - left)
        for k in range(centre, right):
            result[k, band] = (right - k) / (right - centre)
    return [rounded(result, 0.0, dtype)]
