"""Windows, Fourier transforms and the mel scale.

A transform is a product with a matrix of cosines and sines whose angles engines compute in the tensor's own dtype,
some of them unreduced: an angle near 2 pi k n / N is off by u times itself, so entries are known to 8u (1 + angle).
Where N is no power of two, Bluestein's algorithm has angles up to pi N behind every entry: 4u N more (onnxruntime was
measured to lose up to 1.8 u N of the sum of |x|, N = 2 to 1000).
"""

import math
from functools import lru_cache

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, format_of, moved, rounded
from driftnet.oracle.ball_arithmetic.elementwise import multiply
from driftnet.oracle.ball_arithmetic.linear import products
from driftnet.oracle.ball_arithmetic.rules import Context, Integers, Maybe, dtype_of, rule
from driftnet.oracle.tolerances.table import BLUESTEIN_ROUNDINGS, FOURIER_ROUNDINGS, UNDECIDED_COUNT

# a rule each
WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}
"""Of a - b cos(2 pi n / N) + c cos(4 pi n / N)."""


@rule(*WINDOWS)
def window(size: Integers, *, output_datatype: int = 1, periodic: int = 1, node: Node) -> Ball:
    """w_n = a - b cos(2 pi n / N) + c cos(4 pi n / N), N the size or, where not periodic, one less"""
    (n,), dtype = size, dtype_of(output_datatype)
    if n == 1:  # 0 / 0 where it is not periodic
        raise Undecided("a window of one element")
    a, b, c = WINDOWS[node.op]
    angle = 2 * math.pi * np.arange(n) / max(n if periodic else n - 1, 1)
    unit = max(format_of(dtype).unit, format_of(np.dtype(np.float32)).unit)
    return rounded(a - b * np.cos(angle) + c * np.cos(2 * angle), FOURIER_ROUNDINGS * unit * (1 + angle), dtype)


@rule("DFT")
def dft(
    x: Ball,
    length: Integers | None = None,
    axis: Integers | int | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
    context: Context,
) -> Ball:
    """X_k = sum x_n exp(-2 pi i n k / N) along an axis, the last dim real or complex; the inverse divided by N"""
    along = axis[0] if isinstance(axis, list) else axis if axis is not None else 1 if context.opset < 20 else -2
    along %= x.midpoint.ndim
    n = length[0] if length else x.shape[along]
    if inverse and onesided:
        raise Undecided("the inverse of a one-sided spectrum")
    x = moved(x, lambda values: _fitted(np.moveaxis(values, along, -2), n))
    result = transformed(x, n, n // 2 + 1 if onesided else n, bool(inverse))
    return moved(result, lambda values: np.moveaxis(values, -2, along))


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


@lru_cache(maxsize=16)
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
def stft(x: Ball, step: Integers, weights: Maybe = None, length: Integers | None = None, *, onesided: int = 1) -> Ball:
    """The DFT of each windowed frame of a signal (batch, length, 1 or 2)"""
    n = length[0] if length else 0 if weights is None else weights.shape[0]
    starts = np.arange((x.shape[1] - n) // step[0] + 1) * step[0]
    frames = moved(x, lambda values: values[:, starts[:, None] + np.arange(n)])
    if weights is not None:
        frames = multiply(frames, moved(weights, lambda values: values[:, None]))
    return transformed(frames, n, n // 2 + 1 if onesided else n, False)


@rule("MelWeightMatrix")
def mel_weight_matrix(
    bands: Array, length: Array, rate: Array, low: Array, high: Array, *, output_datatype: int = 1
) -> Ball:
    """Triangles between bins of the spectrum that are equally far apart in mel = 2595 log10(1 + hz / 700)"""
    count, bins = int(bands.item()), int(length.item())
    mel_low, mel_high = (2595 * math.log10(1 + float(hz.item()) / 700) for hz in (low, high))
    mels = mel_low + np.arange(count + 2) * (mel_high - mel_low) / (count + 2)
    exactly = (bins + 1) * (700 * (10 ** (mels / 2595) - 1)) / float(rate.item())
    if (np.abs(exactly - np.rint(exactly)) < UNDECIDED_COUNT * exactly).any():
        raise Undecided("to which bin an edge belongs depends on rounding")
    edges = np.floor(exactly).astype(int)
    result = np.zeros((bins // 2 + 1, count))
    for band, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:])):
        if centre == left:
            result[centre, band] = 1
        for k in range(left, centre + 1 if centre > left else left):
            result[k, band] = (k - left) / (centre - left)
        for k in range(centre, right):
            result[k, band] = (right - k) / (right - centre)
    return rounded(result, 0.0, dtype_of(output_datatype))
