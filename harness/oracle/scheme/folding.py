"""Fold affine operators with constant operands into the weights of the linear operator before them.

y = g (W x + b) + h, with g and h one number an output channel, is a linear operator with W g and b g + h.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from driftnet.model.graph import Node, Values
from driftnet.model.operators import Trait, traits_of
from driftnet.oracle.ball_arithmetic.ball import Undecided
from driftnet.oracle.scheme.formulas import is_outputs_first


def fold(
    node: Node, operands: Mapping[int, np.ndarray], foldings: Sequence[Node], constants: Values
) -> dict[int, np.ndarray]:
    """Weights (1) and bias (2) of the linear `node` with affine `foldings`, which stand behind it and read `constants`,
    multiplied in; empty where they cannot be.

    Of a bias that is no constant nothing is said.
    """
    weights = operands.get(1)
    if weights is None:
        return {}
    axis, channels = output_axis(node, weights)
    trailing = weights.ndim - 2 if Trait.SLIDES in traits_of(node.op) else 0
    result = weights.astype(np.float64)
    bias = np.zeros(channels) + operands.get(2, np.zeros(())).astype(np.float64)
    try:
        for folding in foldings:
            gain, shift = _gain_and_shift(folding, constants, channels, trailing)
            result, bias = _scaled(node, result, gain, axis), bias * gain + shift
    except (Undecided, ValueError):
        return {}
    computed = 2 not in operands and bool(node.input(2))
    return {**operands, 1: result} | ({} if computed else {2: bias})


def _gain_and_shift(node: Node, constants: Values, channels: int, trailing: int) -> tuple[np.ndarray, np.ndarray]:
    """(g, h) in float64, one number a channel. trailing: axes behind that of the channels in the result.

    Raises Undecided where the affine `node` is no such map.
    """
    if node.op == "BatchNormalization":
        gamma, beta, mean, variance = (constants[name].astype(np.float64) for name in node.inputs[1:5])
        gain = gamma / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
        return gain, beta - gain * mean
    name = next(name for name in node.inputs if name in constants)
    operand = _by_channel(constants[name].astype(np.float64), channels, trailing)
    one, zero = np.ones(channels), np.zeros(channels)
    match node.op:  # the one formula of each, as the standard has it
        case "Add":
            return one, operand
        case "Mul":
            return operand, zero
        case "Sub" if name == node.inputs[1]:
            return one, -operand
        case "Sub":
            return -one, operand
        case "Div" if name == node.inputs[1]:
            return 1 / operand, zero
    raise Undecided(f"{node.op} is no affine map")


def output_axis(node: Node, weights: np.ndarray) -> tuple[int, int]:
    """(the axis of the weights along which outputs differ, how many outputs there are)"""
    if node.op == "ConvTranspose":
        return 1, weights.shape[1] * node.attributes.get("group", 1)
    if is_outputs_first(node):
        return 0, weights.shape[0]
    return weights.ndim - 1, weights.shape[-1]


def _scaled(node: Node, weights: np.ndarray, gain: np.ndarray, axis: int) -> np.ndarray:
    groups = node.attributes.get("group", 1) if node.op == "ConvTranspose" else 1
    if groups > 1:  # [inputs, outputs of a group, ...]: the inputs of group g make its outputs
        by_group = np.repeat(gain.reshape(groups, -1), weights.shape[0] // groups, axis=0)
        return np.asarray(weights * by_group.reshape(weights.shape[:2] + (1,) * (weights.ndim - 2)))
    return np.asarray(weights * gain.reshape([-1 if k == axis else 1 for k in range(weights.ndim)]))


def _by_channel(x: np.ndarray, channels: int, trailing: int) -> np.ndarray:
    """`x`, which is broadcast to the result, as one number a channel."""
    if x.size == 1:
        return np.full(channels, x.reshape(()))
    shape = x.shape[: x.ndim - trailing] if trailing else x.shape
    if shape[-1:] != (channels,) or x.size != channels or x.ndim < trailing + 1:
        raise Undecided("it is no number a channel")
    return x.ravel()
