"""Pooling over the spatial dims."""

from __future__ import annotations

from generators.builder import Builder, each
from generators.graph import Attribute, Value
from generators.ops.convolution import pads_for, padding_attributes, window, window_output
from generators.ops.elementwise import magnitude
from generators.ops.registry import operator
from generators.values import Shape

LARGEST = 1e12


def _pool(b: Builder, name: str, x: Value, window_of: tuple[Shape, Shape, Shape, str], extra: dict[str, Attribute | None]) -> None:
    kernel, strides, dilations, padding = window_of
    spatial = len(kernel)
    pads = pads_for(padding, kernel, dilations)
    # A pad must be smaller than its window: a window of padding alone has no maximum and no mean.
    pads = tuple([min(p, k - 1) for p, k in zip(pads, kernel * 2)])
    ceil = b.choose("ceil_mode", (0, 0, 1)) if padding not in ("SAME_UPPER", "SAME_LOWER", "VALID") else 0
    if ceil and not all(_tiles(shape, kernel, strides, dilations, pads) for shape in x.shapes):
        ceil = 0

    def shape(s: Shape) -> Shape:
        dims = zip(s[2:], kernel, strides, dilations, pads, pads[spatial:])
        return (*s[:2], *[window_output(n, k, t, d, p + q, padding, bool(ceil)) for n, k, t, d, p, q in dims])

    attributes = {
        "ceil_mode": b.unless(ceil, 0),
        "kernel_shape": kernel,
        **padding_attributes(b, padding, pads),
        "strides": b.unless(strides, (1,) * spatial),
        **extra,
    }
    b.emit(name, (x,), each(shape, x), attributes, bounds=(min(x.low, 0.0), max(x.high, 0.0)))


def _tiles(shape: Shape, kernel: Shape, strides: Shape, dilations: Shape, pads: Shape) -> bool:
    """Whether every window of ceil mode starts inside the tensor or its begin pads, about which engines would disagree."""
    spatial = len(kernel)
    for n, k, t, d, p, q in zip(shape[2:], kernel, strides, dilations, pads, pads[spatial:]):
        last = (window_output(n, k, t, d, p + q, "", True) - 1) * t
        if last >= n + p:
            return False
    return True


@operator("MaxPool", weight=2)
def max_pool(b: Builder) -> None:
    """The maximum of each window; padding does not count"""
    x = b.data(ranks=(4, 3, 5))
    kernel, strides, dilations, padding = window(b, x)
    extra: dict[str, Attribute | None] = {"dilations": b.unless(dilations, (1,) * len(kernel))}
    _pool(b, "MaxPool", x, (kernel, strides, dilations, padding), extra)


@operator("AveragePool", weight=1.5)
def average_pool(b: Builder) -> None:
    """The mean of each window, over the elements inside the tensor or over the padding too; dilations from opset 19"""
    x = b.data(ranks=(4, 3, 5), fits=lambda v: magnitude(v) < LARGEST)
    kernel, strides, dilations, padding = window(b, x)
    if b.opset < 19:
        dilations = (1,) * len(kernel)
    include = b.choose("count_include_pad", (0, 1))
    extra: dict[str, Attribute | None] = {"count_include_pad": b.unless(include, 0)}
    if b.opset >= 19:
        extra["dilations"] = b.unless(dilations, (1,) * len(kernel))
    _pool(b, "AveragePool", x, (kernel, strides, dilations, padding), extra)


@operator("LpPool", weight=0.5)
def lp_pool(b: Builder) -> None:
    """The p-norm of each window"""
    x = b.data(ranks=(4, 3), fits=lambda v: magnitude(v) < 1e6)
    kernel, strides, _, padding = window(b, x)
    extra: dict[str, Attribute | None] = {"p": b.choose("p", (None, 1, 3))}
    pads = pads_for(padding, kernel, (1,) * len(kernel))
    pads = tuple([min(p, k - 1) for p, k in zip(pads, kernel * 2)])
    spatial = len(kernel)

    def shape(s: Shape) -> Shape:
        dims = zip(s[2:], kernel, strides, pads, pads[spatial:])
        return (*s[:2], *[window_output(n, k, t, 1, p + q, padding) for n, k, t, p, q in dims])

    attributes = {"kernel_shape": kernel, **padding_attributes(b, padding, pads), "strides": strides, **extra}
    top = magnitude(x) * 128
    b.emit("LpPool", (x,), each(shape, x), attributes, bounds=(0.0, top))


def _global(name: str, rule: str) -> None:
    @operator(name, rule=rule)
    def global_pool(b: Builder) -> None:
        x = b.data(ranks=(4, 3, 5), fits=lambda v: magnitude(v) < LARGEST)
        b.emit(name, (x,), each(lambda s: (*s[:2], *[1] * (len(s) - 2)), x))


_global("GlobalAveragePool", "the mean over all spatial dims")
_global("GlobalMaxPool", "the maximum over all spatial dims")
