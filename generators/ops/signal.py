"""Windows, Fourier transforms and the mel scale."""

from __future__ import annotations

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import constant, data, scalar, weight
from driftnet.generators.building.values import DOUBLE, FLOAT, INT32, INT64, Shape
from driftnet.generators.ops.elementwise import magnitude, tame
from driftnet.generators.ops.registry import operator


def _window(name: str, rule: str) -> None:
    @operator(name, since=17, rule=f"w_n = {rule}, N the size or, where not periodic, one less", weight=0.2)
    def window(b: Builder) -> None:
        n, of_size = b.choose("size", (4, 2, 8, 5)), b.choose("size_dtype", (INT64, INT32))
        dtype, periodic = b.choose("output_datatype", (FLOAT, DOUBLE)), b.choose("periodic", (1, 0))
        size = scalar(b, "size_source", n, ("initializer", "constant", "input"), dtype=of_size)
        attributes = {"output_datatype": b.unless(dtype, FLOAT), "periodic": b.unless(periodic, 1)}
        b.emit(name, (size,), ((n,),) * b.header.feeds, attributes, dtype=dtype, bounds=(-0.1, 1.0))


_window("HannWindow", "1/2 - 1/2 cos(2 pi n / N)")
_window("HammingWindow", "25/46 - 21/46 cos(2 pi n / N)")
_window("BlackmanWindow", "0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)")


def _transformable(v: Value) -> bool:
    """A real signal (last dim 1) or a complex one (2) of moderate numbers."""
    return v.shape[-1] in (1, 2) and tame(1e6)(v)


@operator("DFT", since=17, weight=0.4)
def dft(b: Builder) -> None:
    """X_k = sum x_n exp(-2 pi i n k / N) along an axis (an input from opset 20), the last dim real or complex"""
    x = data(b, dtypes=(FLOAT, DOUBLE), ranks=(3,), fixed=(-1,), most=(64, 64, 2), fits=_transformable)
    inverse, onesided = b.flag("inverse"), b.flag("onesided")
    axis, given = b.choose("axis", (1, 1, -2)), b.choose("dft_length", (None, 4, None, 3))
    if x.shape[-1] == 2 or inverse:
        onesided = False
    if b.opset < 20 and axis < 0:
        axis = 1
    k = axis % x.rank
    length = None if given is None else scalar(b, "length_source", given, dtype=INT64)

    def shape(s: Shape) -> Shape:
        n = given or s[k]
        return (*s[:k], n // 2 + 1 if onesided else n, *s[k + 1 : -1], 2)

    attributes = {"inverse": b.unless(int(inverse), 0), "onesided": b.unless(int(onesided), 0)}
    operands: tuple[Value | None, ...] = (x, length)
    if b.opset >= 20:
        operands = (x, length, constant(b, "axis_source", np.array(axis, np.int64)) if axis != -2 else None)
    else:
        attributes["axis"] = b.unless(axis, 1)
    top = 1024.0 * magnitude(x)
    b.emit("DFT", operands, each(shape, x), attributes, bounds=(-top, top))


def _long_enough(v: Value) -> bool:
    return v.shape[-1] == 1 and min(shape[1] for shape in v.shapes) >= 4 and tame(1e6)(v)


@operator("STFT", since=17, weight=0.3)
def stft(b: Builder) -> None:
    """The DFT of each windowed frame of a real signal (batch, length, 1)"""
    least, most = (1, 4, 1), (64, 64, 1)
    x = data(b, dtypes=(FLOAT, DOUBLE), ranks=(3,), fixed=(-1,), least=least, most=most, fits=_long_enough)
    step, frame = b.choose("frame_step", (1, 2, 3)), b.choose("frame_length", (4, 2, 3))
    onesided, with_window = b.choose("onesided", (1, 0)), b.flag("window")
    window = weight(b, "window_source", (frame,), dtype=x.dtype) if with_window else None
    operands = (
        x,
        scalar(b, "step_source", step, dtype=INT64),
        window,
        scalar(b, "length_source", frame, dtype=INT64) if window is None or b.explicit else None,
    )
    bins = frame // 2 + 1 if onesided else frame
    shapes = each(lambda s: (s[0], (s[1] - frame) // step + 1, bins, 2), x)
    top = 64.0 * magnitude(x)
    b.emit("STFT", operands, shapes, {"onesided": onesided}, bounds=(-top, top))


@operator("MelWeightMatrix", since=17, weight=0.2)
def mel_weight_matrix(b: Builder) -> None:
    """The weights that sum the bins of a spectrum to bands of the mel scale"""
    bands, length, rate = b.choose("num_mel_bins", (4, 2, 8)), b.choose("dft_length", (16, 8)), 8192
    low, high = b.choose("edges", ((0.0, 4096.0), (100.0, 4000.0)))
    dtype = b.choose("output_datatype", (FLOAT, DOUBLE))
    operands = [
        *[scalar(b, f"n{k}", number, dtype=INT64) for k, number in enumerate((bands, length, rate))],
        *[scalar(b, f"edge{k}", number) for k, number in enumerate((low, high))],
    ]
    shapes = ((length // 2 + 1, bands),) * b.header.feeds
    attributes = {"output_datatype": b.unless(dtype, FLOAT)}
    b.emit("MelWeightMatrix", operands, shapes, attributes, dtype=dtype, bounds=(0.0, 1.0))
