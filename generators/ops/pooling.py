"""Pooling over the spatial dims."""

from __future__ import annotations

import math
from collections.abc import Mapping

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Attribute, Value
from driftnet.generators.building.operands import data, integers
from driftnet.generators.building.values import FLOAT, INT64, Fill, Shape
from driftnet.generators.ops.convolution import LARGEST, Window, padding_attributes, pads_for, window, window_output
from driftnet.generators.ops.elementwise import magnitude, tame
from driftnet.generators.ops.registry import operator

SPATIAL_RANKS = (4, 3, 5)


def _pool(
    b: Builder,
    name: str,
    w: Window,
    attributes: Mapping[str, Attribute | None],
    *,
    dilated: bool,
    ceil: bool = True,
    bounds: tuple[float, float],
) -> None:
    """A pool with that window; dilated, ceil: whether this operator has those attributes."""
    x, kernel, strides, dilations, padding = w.x, w.kernel, w.strides, w.dilations, w.padding
    wanted_ceil = b.choose("ceil_mode", (0, 0, 1))
    spatial = len(kernel)
    if not dilated:
        dilations = (1,) * spatial
    if any(k < t for k, t in zip(kernel, strides)) and padding.startswith("SAME"):
        padding = "none"  # onnxruntime refuses the negative pads that this would mean
    # A pad must be smaller than its window: a window of padding alone has no maximum and no mean.
    pads = tuple([min(p, k - 1) for p, k in zip(pads_for(padding, kernel, dilations), kernel * 2)])
    explicit = padding not in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ceiled = bool(wanted_ceil) and ceil and explicit and _starts_inside(x, kernel, strides, dilations, pads)

    def shape(s: Shape) -> Shape:
        dims = zip(s[2:], kernel, strides, dilations, pads, pads[spatial:])
        return (*s[:2], *[window_output(n, k, t, d, p + q, padding, ceiled) for n, k, t, d, p, q in dims])

    written = {
        "ceil_mode": b.unless(int(ceiled), 0) if ceil else None,
        "dilations": b.unless(dilations, (1,) * spatial) if dilated else None,
        "kernel_shape": kernel,
        **padding_attributes(b, padding, pads),
        "strides": b.unless(strides, (1,) * spatial),
        **attributes,
    }
    if name == "MaxPool" and x.dtype == FLOAT and b.opset >= 12 and b.choose("indices", (*[False] * 7, True)):
        order = b.unless(b.choose("storage_order", (0, 1)), 0)
        outputs = [(x.dtype, each(shape, x)), (INT64, each(shape, x))]
        b.emit_all(
            name, (x,), outputs, {**written, "storage_order": order}, bounds=(min(x.low, 0.0), max(x.high, 4096.0))
        )
        return
    b.emit(name, (x,), each(shape, x), written, bounds=bounds)


def _starts_inside(x: Value, kernel: Shape, strides: Shape, dilations: Shape, pads: Shape) -> bool:
    """Whether the last window of ceil mode starts before the end pads: engines disagree about one that does not."""
    spatial = len(kernel)
    for shape in x.shapes:
        for n, k, t, d, p, q in zip(shape[2:], kernel, strides, dilations, pads, pads[spatial:]):
            if (window_output(n, k, t, d, p + q, "", True) - 1) * t >= n + p:
                return False
    return True


@operator("MaxPool", weight=2)
def max_pool(b: Builder) -> None:
    """The maximum of each window; padding does not count"""
    w = window(b, b.types("MaxPool"), SPATIAL_RANKS, most=math.inf)
    _pool(b, "MaxPool", w, {}, dilated=True, bounds=(w.x.low, w.x.high))


@operator("AveragePool", weight=1.5)
def average_pool(b: Builder) -> None:
    """The mean of each window, over the elements inside the tensor or over the padding too; dilations from opset 19"""
    w = window(b, b.types("AveragePool"), SPATIAL_RANKS)
    include = b.unless(b.choose("count_include_pad", (0, 1)), 0)
    bounds = (min(w.x.low, 0.0), max(w.x.high, 0.0))
    _pool(b, "AveragePool", w, {"count_include_pad": include}, dilated=b.opset >= 19, bounds=bounds)


@operator("LpPool", weight=0.5)
def lp_pool(b: Builder) -> None:
    """The p-norm of each window; dilations and ceil_mode from opset 18"""
    w = window(b, b.types("LpPool"), SPATIAL_RANKS, most=1e6)
    p = b.choose("p", (None, 1, 3))
    bounds = (0.0, magnitude(w.x) * 128)
    _pool(b, "LpPool", w, {"p": p}, dilated=b.opset >= 18, ceil=b.opset >= 18, bounds=bounds)


def _global(name: str, rule: str) -> None:
    @operator(name, rule=rule)
    def global_pool(b: Builder) -> None:
        x = data(b, dtypes=b.types(name), ranks=SPATIAL_RANKS, fits=tame(LARGEST))
        b.emit(name, (x,), each(lambda s: (*s[:2], *[1] * (len(s) - 2)), x))


_global("GlobalAveragePool", "the mean over all spatial dims")
_global("GlobalMaxPool", "the maximum over all spatial dims")


@operator("GlobalLpPool", until=21, heir="LpPool", weight=0.3)
def global_lp_pool(b: Builder) -> None:
    """The p-norm over all spatial dims"""
    x = data(b, dtypes=b.types("GlobalLpPool"), ranks=SPATIAL_RANKS, fits=tame(1e4), fill=Fill("weight"))
    p = b.choose("p", (2, 1, 3))
    bounds = (0.0, 512 * magnitude(x))
    b.emit("GlobalLpPool", (x,), each(lambda s: (*s[:2], *[1] * (len(s) - 2)), x), {"p": b.unless(p, 2)}, bounds=bounds)


@operator("MaxUnpool", weight=0.3)
def max_unpool(b: Builder) -> None:
    """The maxima that MaxPool found, each where it was, zeros elsewhere"""
    x = data(b, ranks=(4,), fixed=None, least=(1, 1, 2, 2), fits=lambda v: min(v.shape[2:]) > 1)
    kernel = b.choose("kernel", ((2, 2), (1, 2), (2, 1)))
    pooled = tuple([n // k for n, k in zip(x.shape[2:], kernel)])
    shapes = each(lambda s: (*s[:2], *pooled), x)
    window_ = {"kernel_shape": kernel, "strides": kernel}
    maxima, indices = b.emit_all("MaxPool", (x,), [(x.dtype, shapes), (INT64, shapes)], window_, bounds=(x.low, x.high))
    exact = tuple([n * k for n, k in zip(pooled, kernel)]) == x.shape[2:]
    shape = integers(b, "output_shape", x.shape) if not exact or b.flag("explicit") else None
    bounds = (min(x.low, 0.0), max(x.high, 0.0))
    b.emit("MaxUnpool", (maxima, indices, shape), x.shapes, window_, bounds=bounds)
