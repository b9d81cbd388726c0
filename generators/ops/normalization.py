"""Normalizations."""

import numpy as np
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Stated, Value
from driftnet.generators.building.operands import POSITIVE, WEIGHT, data, fresh, optional, tame, weight
from driftnet.generators.building.sizes import Sizes
from driftnet.generators.building.values import FLOAT, Fill, Shape
from driftnet.generators.ops.convolution import LINEAR
from driftnet.generators.ops.registry import operator

EPSILONS = (1e-5, 1e-5, 1e-3, 1e-1)
EVERY_FOURTH = (False, False, False, True)


def _affine(b: Builder, x: Value, shape: Shape) -> tuple[Value, Value, float]:
    """Scale, bias and the largest magnitude that a normalized tensor has with them."""
    scale, bias = weight(b, "scale", shape, dtype=x.dtype), weight(b, "bias", shape, dtype=x.dtype)
    return scale, bias, 64.0 * scale.magnitude + bias.magnitude


@operator("BatchNormalization", weight=3)
def batch_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) scale + B, each one number a channel (axis 1)"""
    x = data(b, ranks=(4, 3, 2, 5), fixed=(1,), domain=LINEAR)
    shape = (x.shape[1],)
    scale, bias, mean = (weight(b, name, shape, dtype=x.dtype) for name in ("scale", "bias", "mean"))
    variance = weight(b, "variance", shape, dtype=x.dtype, fill="positive")
    # Zero where the regime is exact: with a variance of 1/4, 1 or 4 the scale is then dyadic.
    epsilon = b.choose("epsilon", (0.0, 0.0, 1e-5) if b.regime.exact else EPSILONS)
    attributes = {"epsilon": epsilon, "momentum": b.choose("momentum", (None, 0.5))}
    spread = (x.magnitude + mean.magnitude) * scale.magnitude / (variance.low + epsilon) ** 0.5
    b.emit((x, scale, bias, mean, variance), x, attributes, bounds=spread + bias.magnitude)


@operator("InstanceNormalization", weight=2)
def instance_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) scale + B, mean and var over the spatial dims of each sample and channel"""
    x = data(b, ranks=(4, 3, 5), fixed=(1,), domain=LINEAR)
    scale, bias, top = _affine(b, x, (x.shape[1],))
    b.emit((x, scale, bias), x, b.attributes(epsilon=EPSILONS), bounds=top)


@operator("LayerNormalization", weight=2)
def layer_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) Scale + B over all axes from `axis` on"""
    x = data(b, ranks=(3, 2, 4), fixed=None, domain=LINEAR)
    axis = b.axis("axis", x.rank) if b.flag("inner") else -1
    shape = x.shape[axis:]
    scale, bias = weight(b, "scale", shape, dtype=x.dtype), optional(b, "bias", shape, dtype=x.dtype)
    epsilon = b.choose("epsilon", EPSILONS)
    k, ones = axis % x.rank, (1,) * len(shape)
    statistics = (FLOAT, lambda s: (*s[:k], *ones)) if b.choose("statistics", EVERY_FOURTH) else None
    top = max(64.0 * scale.magnitude + (bias.magnitude if bias else 0.0), x.magnitude, epsilon**-0.5)
    attributes = {"axis": axis, "epsilon": epsilon, "stash_type": 1}
    b.emit_all((x, scale, bias), [(x.dtype, x), statistics, statistics], attributes, bounds=top)


@operator("LpNormalization", weight=0.7)
def lp_normalization(b: Builder) -> None:
    """Y = X / its p-norm along `axis`, on positive X so that no norm is zero"""
    x = data(b, ranks=(3, 2, 4), domain=POSITIVE)
    b.emit((x,), x, {"axis": b.axis("axis", x.rank), **b.attributes(p=(2, 1))}, bounds=(0.0, 1.0))


@operator("LRN")
def lrn(b: Builder) -> None:
    """Y = X / (bias + alpha / size sum of squares over `size` neighbouring channels) ** beta"""
    x = data(b, ranks=(4,), domain=tame(1e4, WEIGHT))
    b.emit((x,), x, b.attributes(size=(1, 3, 5), alpha=(None, 1.0), beta=(None, 0.5), bias=(None, 2.0)))


@operator("GroupNormalization", weight=1.5)
def group_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var + epsilon) scale + bias, mean and var over the channels and pixels of a group"""
    groups = b.choose("num_groups", (1, 2, 3, 4))
    x = data(b, ranks=(4, 3, 5), fixed=(1,), sizes=Sizes(multiple=groups), domain=LINEAR)
    scale, bias, top = _affine(b, x, (x.shape[1],))
    b.emit((x, scale, bias), x, {"num_groups": groups, **b.attributes(epsilon=EPSILONS)}, bounds=top)


@operator("RMSNormalization", weight=1.5)
def rms_normalization(b: Builder) -> None:
    """Y = X / sqrt(mean of squares + epsilon) scale, the mean over all axes from `axis` on"""
    x = data(b, ranks=(3, 2, 4), fixed=None, domain=tame(1e9))
    axis = b.axis("axis", x.rank) if b.flag("inner") else -1
    scale = weight(b, "scale", x.shape[axis:], dtype=x.dtype)
    b.emit((x, scale), x, {"axis": axis, **b.attributes(epsilon=EPSILONS)}, bounds=64.0 * scale.magnitude)


@operator("MeanVarianceNormalization", weight=0.5)
def mean_variance_normalization(b: Builder) -> None:
    """Y = (X - mean) / sqrt(var) over the given axes, batch and pixels by default

    X is made here, of eight different numbers: onnxruntime gives NaN where all are equal.
    """
    shape = b.choose("shape", ((1, 2, 2, 2), (2, 2, 2, 1), (2, 1, 2, 2), (1, 1, 2, 4)))
    numbers = np.array([3, 1, -2, 0, 4, -1, 2, -3], np.float32).reshape(shape)
    x = fresh(b, FLOAT, shape, Fill(array=numbers))
    axes = b.choose("axes", ((0, 2, 3), (0, 1, 2, 3), (2, 3)))
    b.emit((x,), x, {"axes": Stated(axes)}, bounds=64.0)
