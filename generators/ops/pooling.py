"""Pooling over the spatial dims."""

import math
from dataclasses import replace
from typing import Any

from driftnet.generators.building.builder import Bounds, Builder, hull
from driftnet.generators.building.operands import WEIGHT, Domain, data, integers, tame
from driftnet.generators.building.sizes import Sizes
from driftnet.generators.building.values import FLOAT, INT64, Shape
from driftnet.generators.ops.convolution import LINEAR, SAME, Window, window
from driftnet.generators.ops.registry import operator, operators

SPATIAL_RANKS = (4, 3, 5)


def _pool(b: Builder, w: Window, bounds: Bounds, **attributes: Any) -> None:
    """A pool with that window, and beside the attributes that follow from it these."""
    wanted_ceil, x = b.choose("ceil_mode", (0, 0, 1)), w.x
    if not b.has("dilations"):
        w = replace(w, dilations=(1,) * len(w.kernel))
    if any(k < t for k, t in zip(w.kernel, w.strides)) and w.padding in SAME:
        w = replace(w, padding="none")  # onnxruntime refuses the negative pads that this would mean
    # A pad must be smaller than its window: a window of padding alone has no maximum and no mean.
    pads = tuple([min(p, k - 1) for p, k in zip(w.pads, w.kernel * 2)])
    explicit = w.padding not in (*SAME, "VALID")
    ceiled = bool(wanted_ceil) and b.has("ceil_mode") and explicit and _starts_inside(w, pads)

    def shape(s: Shape) -> Shape:
        return (*s[:2], *w.positions(s, pads, ceil=ceiled))

    written = {"ceil_mode": int(ceiled), **w.attributes(b, pads), "kernel_shape": w.kernel, **attributes}
    if b.has("storage_order") and x.dtype == FLOAT and b.opset >= 12 and b.choose("indices", (*[False] * 7, True)):
        written["storage_order"] = b.choose("storage_order", (0, 1))
        b.emit_all((x,), [(x.dtype, shape), (INT64, shape)], written, bounds=(min(x.low, 0.0), max(x.high, 4096.0)))
        return
    b.emit((x,), shape, written, bounds=bounds)


def _starts_inside(w: Window, pads: Shape) -> bool:
    """Whether the last window of ceil mode starts before the end pads: engines disagree about one that does not."""
    return all(
        (count - 1) * stride < n + pad
        for shape in w.x.shapes
        for n, count, stride, pad in zip(shape[2:], w.positions(shape, pads, ceil=True), w.strides, pads)
    )


@operator("MaxPool", weight=2)
def max_pool(b: Builder) -> None:
    """The maximum of each window; padding does not count"""
    w = window(b, SPATIAL_RANKS, tame(math.inf))
    _pool(b, w, w.x)


@operator("AveragePool", weight=1.5)
def average_pool(b: Builder) -> None:
    """The mean of each window, over the elements inside the tensor or over the padding too; dilations from opset 19"""
    w = window(b, SPATIAL_RANKS)
    _pool(b, w, hull(w.x, 0.0), **b.attributes(count_include_pad=(0, 1)))


@operator("LpPool", weight=0.5)
def lp_pool(b: Builder) -> None:
    """The p-norm of each window; dilations and ceil_mode from opset 18"""
    w = window(b, SPATIAL_RANKS, tame(1e6))
    _pool(b, w, (0.0, w.x.magnitude * 128), **b.attributes(p=(None, 1, 3)))


def _one_a_channel(shape: Shape) -> Shape:
    return (*shape[:2], *[1] * (len(shape) - 2))


@operators(
    {"GlobalAveragePool": "the mean over all spatial dims", "GlobalMaxPool": "the maximum over all spatial dims"}
)
def global_pool(b: Builder) -> None:
    """A pool whose window is the whole image"""
    x = data(b, ranks=SPATIAL_RANKS, domain=LINEAR)
    b.emit((x,), _one_a_channel)


@operator("GlobalLpPool", until=21, heir="LpPool", weight=0.3)
def global_lp_pool(b: Builder) -> None:
    """The p-norm over all spatial dims"""
    x = data(b, ranks=SPATIAL_RANKS, domain=tame(1e4, WEIGHT))
    b.emit((x,), _one_a_channel, b.attributes(p=(2, 1, 3)), bounds=(0.0, 512 * x.magnitude))


@operator("MaxUnpool", weight=0.3)
def max_unpool(b: Builder) -> None:
    """The maxima that MaxPool found, each where it was, zeros elsewhere"""
    image = Domain(lambda v: min(v.shape[2:]) > 1)
    x = data(b, dtypes=(FLOAT,), ranks=(4,), fixed=None, sizes=Sizes(least=(1, 1, 2, 2)), domain=image)
    kernel = b.choose("kernel", ((2, 2), (1, 2), (2, 1)))
    pooled = tuple([n // k for n, k in zip(x.shape[2:], kernel)])
    shapes = tuple([(*s[:2], *pooled) for s in x.shapes])
    attributes = {"kernel_shape": kernel, "strides": kernel}
    outputs = [(x.dtype, shapes), (INT64, shapes)]
    maxima, indices = b.emit_all((x,), outputs, attributes, op_type="MaxPool", bounds=x)
    exact = tuple([n * k for n, k in zip(pooled, kernel)]) == x.shape[2:]
    shape = integers(b, "output_shape", x.shape) if not exact or b.flag("explicit") else None
    b.emit((maxima, indices, shape), x, attributes, bounds=hull(x, 0.0))
