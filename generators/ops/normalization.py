"""Normalizations."""

from __future__ import annotations

import numpy as np
from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.operands import data, fresh, optional, weight
from driftnet.generators.building.values import FLOAT, Fill
from driftnet.generators.ops.elementwise import magnitude, tame
from driftnet.generators.ops.registry import operator

EPSILONS = (1e-5, 1e-5, 1e-3, 1e-1)
EVERY_FOURTH = (False, False, False, True)
LARGEST = 1e12


def _epsilon(b: Builder) -> float:
    """Zero where the regime is exact: with a variance of 1/4, 1 or 4 the scale is then dyadic."""
    return b.choose("epsilon", (0.0, 0.0, 1e-5) if b.regime.exact else EPSILONS)


@operator("BatchNormalization", weight=3)
def batch_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) scale + B, each one number a channel (axis 1)"""
    x = data(b, dtypes=b.types("BatchNormalization"), ranks=(4, 3, 2, 5), fixed=(1,), fits=tame(LARGEST))
    shape = (x.shape[1],)
    scale, bias, mean = (weight(b, name, shape, dtype=x.dtype) for name in ("scale", "bias", "mean"))
    variance = weight(b, "variance", shape, dtype=x.dtype, fill="positive")
    epsilon = _epsilon(b)
    momentum = b.choose("momentum", (None, 0.5))
    top = (magnitude(x) + magnitude(mean)) * magnitude(scale) / (variance.low + epsilon) ** 0.5 + magnitude(bias)
    attributes = {"epsilon": b.unless(epsilon, 1e-5), "momentum": momentum}
    b.emit("BatchNormalization", (x, scale, bias, mean, variance), x.shapes, attributes, bounds=(-top, top))


@operator("InstanceNormalization", weight=2)
def instance_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) scale + B, mean and var over the spatial dims of each sample and channel"""
    dtypes = b.types("InstanceNormalization")
    x = data(b, dtypes=dtypes, ranks=(4, 3, 5), fixed=(1,), fits=tame(LARGEST))
    shape = (x.shape[1],)
    scale, bias = weight(b, "scale", shape, dtype=x.dtype), weight(b, "bias", shape, dtype=x.dtype)
    epsilon = b.choose("epsilon", EPSILONS)
    top = 64.0 * magnitude(scale) + magnitude(bias)
    attributes = {"epsilon": b.unless(epsilon, 1e-5)}
    b.emit("InstanceNormalization", (x, scale, bias), x.shapes, attributes, bounds=(-top, top))


@operator("LayerNormalization", since=17, weight=2)
def layer_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) Scale + B over all axes from `axis` on"""
    x = data(b, dtypes=b.types("LayerNormalization"), ranks=(3, 2, 4), fixed=None, fits=tame(LARGEST))
    axis = b.axis("axis", x.rank) if b.flag("inner") else -1
    shape = x.shape[axis:]
    scale, bias = weight(b, "scale", shape, dtype=x.dtype), optional(b, "bias", shape, dtype=x.dtype)
    epsilon = b.choose("epsilon", EPSILONS)
    top = 64.0 * magnitude(scale) + (magnitude(bias) if bias else 0.0)
    attributes = {"axis": b.unless(axis, -1), "epsilon": b.unless(epsilon, 1e-5), "stash_type": b.unless(1, 1)}
    k = axis % x.rank
    statistics = (
        (FLOAT, each(lambda s: (*s[:k], *[1] * (len(s) - k)), x)) if b.choose("statistics", EVERY_FOURTH) else None
    )
    top = max(top, magnitude(x), epsilon**-0.5)
    b.emit_all(
        "LayerNormalization",
        (x, scale, bias),
        [(x.dtype, x.shapes), statistics, statistics],
        attributes,
        bounds=(-top, top),
    )


@operator("LpNormalization", weight=0.7)
def lp_normalization(b: Builder) -> None:
    """Y = X / its p-norm along `axis`, on positive X so that no norm is zero"""
    dtypes = b.types("LpNormalization")
    x = data(b, dtypes=dtypes, ranks=(3, 2, 4), fits=lambda v: v.low > 0, fill=Fill("positive"))
    axis, p = b.axis("axis", x.rank), b.choose("p", (2, 1))
    attributes = {"axis": b.unless(axis, -1), "p": b.unless(p, 2)}
    b.emit("LpNormalization", (x,), x.shapes, attributes, bounds=(0.0, 1.0))


@operator("LRN")
def lrn(b: Builder) -> None:
    """Y = X / (bias + alpha / size sum of squares over `size` neighbouring channels) ** beta"""
    x = data(b, dtypes=b.types("LRN"), ranks=(4,), fits=tame(1e4), fill=Fill("weight"))
    size = b.choose("size", (1, 3, 5))
    attributes = {
        "size": size,
        "alpha": b.choose("alpha", (None, 1.0)),
        "beta": b.choose("beta", (None, 0.5)),
        "bias": b.choose("bias", (None, 2.0)),
    }
    b.emit("LRN", (x,), x.shapes, attributes)


@operator("GroupNormalization", since=21, weight=1.5)
def group_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) scale + bias, mean and var over the channels and pixels of a group"""
    groups = b.choose("num_groups", (1, 2, 3, 4))
    dtypes = b.types("GroupNormalization")
    x = data(b, dtypes=dtypes, ranks=(4, 3, 5), fixed=(1,), multiple=groups, fits=tame(LARGEST))
    shape = (x.shape[1],)
    scale, bias = weight(b, "scale", shape, dtype=x.dtype), weight(b, "bias", shape, dtype=x.dtype)
    epsilon = b.choose("epsilon", EPSILONS)
    top = 64.0 * magnitude(scale) + magnitude(bias)
    attributes = {"num_groups": groups, "epsilon": b.unless(epsilon, 1e-5)}
    b.emit("GroupNormalization", (x, scale, bias), x.shapes, attributes, bounds=(-top, top))


@operator("RMSNormalization", since=23, weight=1.5)
def rms_normalization(b: Builder) -> None:
    """Y = X / sqrt(mean of squares + epsilon) scale, the mean over all axes from `axis` on"""
    x = data(b, dtypes=b.types("RMSNormalization"), ranks=(3, 2, 4), fixed=None, fits=tame(1e9))
    axis = b.axis("axis", x.rank) if b.flag("inner") else -1
    scale = weight(b, "scale", x.shape[axis:], dtype=x.dtype)
    epsilon = b.choose("epsilon", EPSILONS)
    top = 64.0 * magnitude(scale)
    attributes = {"axis": b.unless(axis, -1), "epsilon": b.unless(epsilon, 1e-5)}
    b.emit("RMSNormalization", (x, scale), x.shapes, attributes, bounds=(-top, top))


@operator("MeanVarianceNormalization", weight=0.5)
def mean_variance_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var) over the given axes, batch and pixels by default

    X is made here, of eight different numbers: onnxruntime gives NaN where all are equal.
    """
    shape = b.choose("shape", ((1, 2, 2, 2), (2, 2, 2, 1), (2, 1, 2, 2), (1, 1, 2, 4)))
    numbers = np.array([3, 1, -2, 0, 4, -1, 2, -3], np.float32).reshape(shape)
    x = fresh(b, FLOAT, (shape,) * b.header.feeds, Fill(array=numbers))
    axes = b.choose("axes", ((0, 2, 3), (0, 1, 2, 3), (2, 3)))
    b.emit("MeanVarianceNormalization", (x,), x.shapes, {"axes": axes}, bounds=(-64.0, 64.0))
