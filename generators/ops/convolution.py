"""Convolutions in one, two and three spatial dims."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import Domain, data, made, optional, tame, weight
from driftnet.generators.building.sizes import Sizes
from driftnet.generators.building.values import Shape
from driftnet.generators.ops.registry import operator

KERNELS = ((1, 1, 1), (3, 3, 3), (2, 2, 2), (3, 1, 2), (1, 3, 3), (5, 3, 1), (4, 4, 1), (2, 5, 2))
STRIDES = ((1, 1, 1), (1, 1, 1), (2, 2, 2), (1, 2, 1), (2, 1, 2), (3, 2, 1))
DILATIONS = ((1, 1, 1), (1, 1, 1), (1, 1, 1), (2, 2, 2), (1, 2, 1), (2, 1, 3))
PADDINGS = ("none", "same", "lopsided", "SAME_UPPER", "one", "SAME_LOWER", "begin", "end", "VALID")
SAME = ("SAME_UPPER", "SAME_LOWER")
GROUPS = (1, 2, 0, 3, 1, 4)
"""How many groups; 0 means one a channel."""
MULTIPLIERS = (*[1, 2, 3, 4, 0] * 5, 67)
"""Output channels of each group; 0 means as many in all as the input has."""
LINEAR = tame(1e12)
"""Linear operators take operands up to this magnitude, so that a few of them in a row stay finite."""


@dataclass(frozen=True)
class Window:
    """A sliding window, with a number for each spatial dim, and the tensor that it slides over."""

    x: Value
    kernel: Shape
    dilations: Shape
    strides: Shape
    padding: str

    @property
    def pads(self) -> Shape:
        """The explicit pads (all begins, then all ends) that the padding means; none for those of auto_pad."""
        half = tuple([d * (k - 1) // 2 for k, d in zip(self.kernel, self.dilations)])
        no, one = (0,) * len(half), (1,) * len(half)
        explicit = {"same": half + half, "lopsided": half + one, "one": one + one, "begin": one + no, "end": no + one}
        return explicit.get(self.padding, no + no)

    def positions(self, shape: Shape, pads: Shape, *, ceil: bool = False) -> Shape:
        """How many it has along each spatial dim, as the specification of Conv and the pools has it."""
        if self.padding in SAME:
            return tuple([-(-n // stride) for n, stride in zip(shape[2:], self.strides)])
        ends = zip(pads, pads[len(self.kernel) :])
        sizes = zip(shape[2:], self.kernel, self.dilations, self.strides, ends)
        free = [(n + sum(ends) - (d * (k - 1) + 1), stride) for n, k, d, stride, ends in sizes]
        return tuple([(-(-n // stride) if ceil else n // stride) + 1 for n, stride in free])

    def attributes(self, b: Builder, pads: Shape) -> dict[str, Any]:
        """As Conv, ConvTranspose and the pools have them, those that only some have still absent."""
        ones = (1,) * len(self.kernel)
        implied = self.padding in (*SAME, "VALID")
        return {
            "dilations": b.unless(self.dilations, ones) if b.has("dilations") else None,
            "group": None,
            "kernel_shape": b.unless(self.kernel, self.kernel),
            "output_padding": None,
            "output_shape": None,
            "auto_pad": self.padding if implied else "NOTSET",
            "pads": None if implied else b.unless(pads, (0,) * len(pads)),
            "strides": b.unless(self.strides, ones),
        }


def window(
    b: Builder,
    ranks: Sequence[int],
    domain: Domain = LINEAR,
    *,
    dtypes: Sequence[int] = (),
    fixed: Sequence[int] = (),
    multiple: int = 1,
) -> Window:
    """A window and the operand it slides over; one of it fits inside the unpadded operand of every feed."""
    kernel, strides = b.choose("kernel", KERNELS), b.choose("strides", STRIDES)
    dilations, padding = b.choose("dilations", DILATIONS), b.choose("padding", PADDINGS)
    if padding in SAME:
        dilations = (1, 1, 1)  # onnxruntime and the specification part ways on dilated SAME
    sizes = Sizes(least=(1, 1, *[d * (k - 1) + 1 for k, d in zip(kernel, dilations)]), multiple=multiple)
    x = data(b, dtypes=dtypes, ranks=ranks, fixed=fixed, sizes=sizes, domain=domain)
    smallest = [x.least(axis) for axis in range(2, x.rank)]
    clamped = tuple([min(k, n) for k, n in zip(kernel, smallest)])
    dilations_ = tuple([d if d * (k - 1) + 1 <= n else 1 for k, d, n in zip(clamped, dilations, smallest)])
    return Window(x, clamped, dilations_, strides[: x.rank - 2], padding)


def _spread(x: Value, w: Value, bias: Value | None, terms: int) -> float:
    return x.magnitude * w.magnitude * terms + (bias.magnitude if bias else 0.0)


@operator("Conv", weight=4)
def conv(b: Builder) -> None:
    """Y = sum over channels of the group and the window of X W, plus B; a dim: (n + pads - reach) // stride + 1"""
    groups = b.choose("group", GROUPS)
    slide = window(b, (4, 3, 5), fixed=(1,), multiple=max(groups, 1))
    x = slide.x
    group = groups or x.shape[1]
    outputs = group * b.few(b.choose("multiplier", MULTIPLIERS)) or x.shape[1]
    w = weight(b, "w", (outputs, x.shape[1] // group, *slide.kernel), dtype=x.dtype)
    bias = optional(b, "b", (outputs,), dtype=x.dtype)
    shapes, attributes = convolved(b, slide, group, outputs)
    bounds = _spread(x, w, bias, x.shape[1] // group * prod(slide.kernel))
    b.emit((x, w, bias), shapes, attributes, bounds=bounds)


def convolved(b: Builder, slide: Window, group: int, outputs: int) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    """The shapes of a convolution with `outputs` channels, and its attributes."""
    shapes = tuple([(s[0], outputs, *slide.positions(s, slide.pads)) for s in slide.x.shapes])
    return shapes, {**slide.attributes(b, slide.pads), "group": group}


@operator("ConvTranspose", weight=4)
def conv_transpose(b: Builder) -> None:
    """Y = the gradient of Conv by its input; a dim: stride (n - 1) + output_padding + (k - 1) dilation + 1 - pads"""
    groups = b.choose("group", GROUPS)
    x = data(b, ranks=(4, 3, 5), fixed=(1,), sizes=Sizes(multiple=max(groups, 1)), domain=LINEAR)
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
    # SAME needs a window that covers the stride, output_shape equal feeds.
    covers = all(k >= s and d == 1 for k, s, d in zip(kernel, strides, dilations))
    if not (all(map(x.fixed, range(2, x.rank))) if padding == "output_shape" else covers or padding not in SAME):
        padding = "none"
    slide = Window(x, kernel, dilations, strides, padding)
    implied = padding in (*SAME, "output_shape")
    output_padding = tuple([0 if implied else min(extra, stride - 1) for stride in strides])
    reach = tuple([(k - 1) * d + 1 + o for k, d, o in zip(kernel, dilations, output_padding)])
    pads = slide.pads
    if any(s * (x.least(axis) - 1) + r < 3 for axis, (s, r) in enumerate(zip(strides, reach), 2)):
        pads = (0,) * len(pads)

    def shape(s: Shape) -> Shape:
        full = [t * (n - 1) + r - p - q for n, t, r, p, q in zip(s[2:], strides, reach, pads, pads[spatial:])]
        same = [n * t for n, t in zip(s[2:], strides)]
        return (s[0], per_group * group, *(same if padding in SAME else full))

    attributes = slide.attributes(b, pads)
    attributes |= {"group": group, "output_padding": b.unless(output_padding, (0,) * spatial)}
    if padding == "output_shape":
        attributes |= {"output_shape": shape(x.shape)[2:], "auto_pad": None, "pads": None}
    bounds = _spread(x, w, bias, x.shape[1] // group * prod(kernel))
    b.emit((x, w, bias), shape, attributes, bounds=bounds)


@operator("DeformConv", weight=0.3)
def deform_conv(b: Builder) -> None:
    """Conv whose taps each read the image at an offset of their own, times a mask"""
    image = Domain(lambda v: min(v.least(2), v.least(3)) > 1 and LINEAR.holds(v))
    x = data(b, ranks=(4,), fixed=(1,), sizes=Sizes(least=(1, 1, 2, 2)), domain=image)
    kernel, outputs = b.choose("kernel", ((1, 1), (2, 2), (1, 2))), b.choose("outputs", (1, 2))
    channels = x.shape[1]
    group = channels if b.choose("grouped", (False, False, True)) else 1
    moved = channels if b.choose("offset_group", (False, False, True)) else 1
    strides, pad = b.choose("strides", ((1, 1), (1, 1), (2, 1))), b.choose("pads", (0, 0, 1))
    slide, taps = Window(x, kernel, (1, 1), strides, ""), prod(kernel)
    w = weight(b, "w", (outputs * group, channels // group, *kernel), dtype=x.dtype)

    def shapes(channels: int) -> tuple[Shape, ...]:
        return tuple([(s[0], channels, *slide.positions(s, (pad,) * 4)) for s in x.shapes])

    sources = ("initializer", "input")
    offset = weight(b, "offset", shapes(2 * taps * moved), dtype=x.dtype, fill="unit", sources=sources)
    bias = optional(b, "b", (outputs * group,), dtype=x.dtype)
    mask = None
    if b.flag("masked"):
        mask = made(b, "initializer", shapes(taps * moved), x.dtype, "positive")
    attributes = {
        "group": group,
        "kernel_shape": b.unless(kernel, kernel),
        "offset_group": moved,
        "pads": b.unless((pad,) * 4, (0,) * 4),
        "strides": b.unless(strides, (1, 1)),
    }
    bounds = _spread(x, w, bias, 5 * channels * taps)
    b.emit((x, w, offset, bias, mask), shapes(outputs * group), attributes, bounds=bounds)
