"""Convolutions in one, two and three spatial dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import data, made, optional, weight
from driftnet.generators.building.values import Fill, Shape
from driftnet.generators.ops.elementwise import magnitude, tame
from driftnet.generators.ops.registry import operator

KERNELS = ((1, 1, 1), (3, 3, 3), (2, 2, 2), (3, 1, 2), (1, 3, 3), (5, 3, 1), (4, 4, 1), (2, 5, 2))
STRIDES = ((1, 1, 1), (1, 1, 1), (2, 2, 2), (1, 2, 1), (2, 1, 2), (3, 2, 1))
DILATIONS = ((1, 1, 1), (1, 1, 1), (1, 1, 1), (2, 2, 2), (1, 2, 1), (2, 1, 3))
PADDINGS = ("none", "same", "lopsided", "SAME_UPPER", "one", "SAME_LOWER", "begin", "end", "VALID")
GROUPS = (1, 2, 0, 3, 1, 4)
"""How many groups; 0 means one a channel."""
MULTIPLIERS = (*[1, 2, 3, 4, 0] * 5, 67)
"""Output channels of each group; 0 means as many in all as the input has."""
DATA = Fill("data")
LARGEST = 1e12
"""Linear operators take operands up to this magnitude, so that a few of them in a row stay finite."""


def pads_for(padding: str, kernel: Shape, dilations: Shape) -> Shape:
    """The explicit pads (all begins, then all ends) that a kind of padding means; none for those of auto_pad."""
    half = tuple([d * (k - 1) // 2 for k, d in zip(kernel, dilations)])
    zero, one = (0,) * len(kernel), (1,) * len(kernel)
    explicit = {"same": half + half, "lopsided": half + one, "one": one + one, "begin": one + zero, "end": zero + one}
    return explicit.get(padding, zero + zero)


def window_output(n: int, kernel: int, stride: int, dilation: int, pads: int, auto_pad: str, ceil: bool = False) -> int:
    """Positions of a sliding window along one spatial dim, as the specification of Conv and the pools has it."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return -(-n // stride)
    free = n + pads - (dilation * (kernel - 1) + 1)
    return (-(-free // stride) if ceil else free // stride) + 1


def _clamped(kernel: Shape, dilations: Shape, x: Value) -> tuple[Shape, Shape]:
    """Kernel and dilations such that one window fits inside the unpadded input of every feed."""
    smallest = _least(x)
    kernel = tuple([min(k, n) for k, n in zip(kernel, smallest)])
    return kernel, tuple([d if d * (k - 1) + 1 <= n else 1 for k, d, n in zip(kernel, dilations, smallest)])


@dataclass(frozen=True)
class Window:
    """A sliding window as drawn, for up to three spatial dims, and the input it slides over."""

    x: Value
    kernel: Shape
    dilations: Shape
    strides: Shape
    padding: str


def window(
    b: Builder,
    dtypes: Sequence[int],
    ranks: Sequence[int],
    *,
    fixed: Sequence[int] = (),
    multiple: int = 1,
    most: float = LARGEST,
    fill: Fill = DATA,
) -> Window:
    """A window and the operand it slides over; the window is clamped to what fits in that operand."""
    kernel, strides = b.choose("kernel", KERNELS), b.choose("strides", STRIDES)
    dilations, padding = b.choose("dilations", DILATIONS), b.choose("padding", PADDINGS)
    if padding in ("SAME_UPPER", "SAME_LOWER"):
        dilations = (1, 1, 1)  # onnxruntime and the specification part ways on dilated SAME
    least = (1, 1, *[d * (k - 1) + 1 for k, d in zip(kernel, dilations)])
    x = data(b, dtypes=dtypes, ranks=ranks, fixed=fixed, least=least, multiple=multiple, fits=tame(most), fill=fill)
    return Window(x, *_clamped(kernel, dilations, x), strides[: x.rank - 2], padding)


def padding_attributes(b: Builder, padding: str, pads: Shape) -> dict[str, str | Shape | None]:
    """auto_pad or pads. Pads of zero may be left out."""
    if padding in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        return {"auto_pad": padding}
    return {"auto_pad": b.unless("NOTSET", "NOTSET"), "pads": b.unless(pads, (0,) * len(pads))}


def _spread(x: Value, w: Value, bias: Value | None, terms: int) -> tuple[float, float]:
    top = magnitude(x) * magnitude(w) * terms + (magnitude(bias) if bias else 0.0)
    return -top, top


@operator("Conv", weight=4)
def conv(b: Builder) -> None:
    """Y = sum over channels of the group and the window of X W, plus B; spatial dims as `window_output`"""
    groups = b.choose("group", GROUPS)
    slide = window(b, b.types("Conv"), (4, 3, 5), fixed=(1,), multiple=max(groups, 1))
    x = slide.x
    group = groups or x.shape[1]
    multiplier = b.few(b.choose("multiplier", MULTIPLIERS))
    outputs = group * multiplier or x.shape[1]
    w = weight(b, "w", (outputs, x.shape[1] // group, *slide.kernel), dtype=x.dtype)
    bias = optional(b, "b", (outputs,), dtype=x.dtype)
    shapes, attributes = convolved(b, slide, group, outputs)
    bounds = _spread(x, w, bias, x.shape[1] // group * prod(slide.kernel))
    b.emit("Conv", (x, w, bias), shapes, attributes, bounds=bounds)


def convolved(
    b: Builder, slide: Window, group: int, outputs: int
) -> tuple[tuple[Shape, ...], dict[str, int | str | Shape | None]]:
    """The shapes of a convolution with `outputs` channels, and its attributes."""
    kernel, strides, dilations, padding = slide.kernel, slide.strides, slide.dilations, slide.padding
    pads = pads_for(padding, kernel, dilations)
    spatial = len(kernel)

    def shape(s: Shape) -> Shape:
        sizes = zip(s[2:], kernel, strides, dilations, pads, pads[spatial:])
        return (s[0], outputs, *[window_output(n, k, t, d, p + q, padding) for n, k, t, d, p, q in sizes])

    return each(shape, slide.x), {
        "dilations": b.unless(dilations, (1,) * spatial),
        "group": b.unless(group, 1),
        "kernel_shape": b.unless(kernel, kernel),
        **padding_attributes(b, padding, pads),
        "strides": b.unless(strides, (1,) * spatial),
    }


@operator("ConvTranspose", weight=4)
def conv_transpose(b: Builder) -> None:
    """Y = the gradient of Conv by its input; a dim: stride (n - 1) + output_padding + (k - 1) dilation + 1 - pads"""
    groups = b.choose("group", GROUPS)
    dtypes = b.types("ConvTranspose")
    x = data(b, dtypes=dtypes, ranks=(4, 3, 5), fixed=(1,), multiple=max(groups, 1), fits=tame(LARGEST))
    group, spatial = groups or x.shape[1], x.rank - 2
    kernel, strides, dilations = (
        b.choose(name, options)[:spatial]
        for name, options in (("kernel", KERNELS), ("strides", STRIDES), ("dilations", DILATIONS))
    )
    padding = b.choose("padding", ("none", "one", "none", "output_shape", "SAME_UPPER", "SAME_LOWER", "begin", "VALID"))
    extra = b.choose("output_padding", (0, 0, 1))
    per_group = b.few(b.choose("multiplier", (*[1, 2, 3, 1] * 6, 66)))
    w = weight(b, "w", (x.shape[1], per_group, *kernel), dtype=x.dtype)
    bias = optional(b, "b", (per_group * group,), dtype=x.dtype)
    if not _transposable(padding, x, kernel, strides, dilations):
        padding = "none"
    implied = padding in ("SAME_UPPER", "SAME_LOWER", "output_shape")
    output_padding = tuple([0 if implied else min(extra, stride - 1) for stride in strides])
    reach = tuple([(k - 1) * d + 1 + o for k, d, o in zip(kernel, dilations, output_padding)])
    pads = pads_for(padding, kernel, dilations)
    if any(s * (n - 1) + r < 3 for n, s, r in zip(_least(x), strides, reach)):
        pads = (0,) * len(pads)

    def shape(s: Shape) -> Shape:
        full = [t * (n - 1) + r - p - q for n, t, r, p, q in zip(s[2:], strides, reach, pads, pads[spatial:])]
        same = [n * t for n, t in zip(s[2:], strides)]
        return (s[0], per_group * group, *(same if padding.startswith("SAME") else full))

    shapes = each(shape, x)
    attributes = {
        "dilations": b.unless(dilations, (1,) * spatial),
        "group": b.unless(group, 1),
        "kernel_shape": b.unless(kernel, kernel),
        "output_padding": b.unless(output_padding, (0,) * spatial),
        **({"output_shape": shapes[0][2:]} if padding == "output_shape" else padding_attributes(b, padding, pads)),
        "strides": b.unless(strides, (1,) * spatial),
    }
    bounds = _spread(x, w, bias, x.shape[1] // group * prod(kernel))
    b.emit("ConvTranspose", (x, w, bias), shapes, attributes, bounds=bounds)


def _transposable(padding: str, x: Value, kernel: Shape, strides: Shape, dilations: Shape) -> bool:
    """Whether the padding is legal: SAME needs a window that covers the stride, output_shape equal feeds."""
    if padding == "output_shape":
        return all(x.fixed(axis) for axis in range(2, x.rank))
    covers = all(k >= s and d == 1 for k, s, d in zip(kernel, strides, dilations))
    return covers or not padding.startswith("SAME")


def _least(x: Value) -> Shape:
    """The smallest size of each spatial dim over the feeds."""
    return tuple([min(sizes) for sizes in zip(*[shape[2:] for shape in x.shapes])])


@operator("DeformConv", since=19, weight=0.3)
def deform_conv(b: Builder) -> None:
    """Conv whose taps each read the image at an offset of their own, times a mask"""
    x = data(b, dtypes=b.types("DeformConv"), ranks=(4,), fixed=(1,), least=(1, 1, 2, 2), fits=_deformable)
    kernel, outputs = b.choose("kernel", ((1, 1), (2, 2), (1, 2))), b.choose("outputs", (1, 2))
    channels = x.shape[1]
    group = channels if b.choose("grouped", (False, False, True)) else 1
    moved = channels if b.choose("offset_group", (False, False, True)) else 1
    strides, pad = b.choose("strides", ((1, 1), (1, 1), (2, 1))), b.choose("pads", (0, 0, 1))
    outputs *= group
    w = weight(b, "w", (outputs, channels // group, *kernel), dtype=x.dtype)
    taps = prod(kernel)

    def image(s: Shape, channels: int) -> Shape:
        sizes = zip(s[2:], kernel, strides)
        return (s[0], channels, *[window_output(n, k, t, 1, 2 * pad, "") for n, k, t in sizes])

    source = b.choose("offset", ("initializer", "input"))
    offset = made(b, source, each(lambda s: image(s, 2 * taps * moved), x), x.dtype, "unit")
    bias = optional(b, "b", (outputs,), dtype=x.dtype)
    masked = b.flag("masked")
    mask = made(b, "initializer", each(lambda s: image(s, taps * moved), x), x.dtype, "positive") if masked else None
    bounds = _spread(x, w, bias, 5 * channels * taps)
    attributes = {
        "group": b.unless(group, 1),
        "kernel_shape": b.unless(kernel, kernel),
        "offset_group": b.unless(moved, 1),
        "pads": b.unless((pad,) * 4, (0,) * 4),
        "strides": b.unless(strides, (1, 1)),
    }
    b.emit("DeformConv", (x, w, offset, bias, mask), each(lambda s: image(s, outputs), x), attributes, bounds=bounds)


def _deformable(v: Value) -> bool:
    return min(_least(v)) > 1 and tame(LARGEST)(v)
