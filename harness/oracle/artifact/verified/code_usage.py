"""D3, weights: are all codes used? A scale twice too big moves no weight by more than half a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.artifact.verified.dequantized import Numbers, Problem
from driftnet.oracle.artifact.verified.format import Format, Use
from driftnet.oracle.ball_arithmetic.quantized import code_range
from driftnet.oracle.tolerances.table import CODES_USED, LEAST_RANGE, LEAST_SCALE, SEVEN_BITS, UNUSUAL_USE


@dataclass(frozen=True)
class Usage:
    """The share of the codes that the weights of one scale use; of the constant `name` of `node`, of so many bytes."""

    share: float
    tensor: str
    name: str
    node: Node
    bytes: int


def usages(numbers: Numbers, use: Use, name: str, node: Node) -> Iterator[Usage]:
    """One for each scale of quantized weights; none where they are 0. Raises Undecided where they are not known."""
    ball = numbers.ball(numbers.artifact.codes_of(use.tensor))
    if use.format is None or use.format.block or use.format.packed or ball.dtype.kind not in "iu":
        return
    codes = ball.numbers - numbers.zero_point(use.format, ball.shape)
    scale = numbers.spread_scale(use.format, ball.shape)
    axes = tuple(k for k in range(codes.ndim) if scale.ndim == 0 or scale.shape[k] == 1)
    low, high = codes.min(axes, initial=0), codes.max(axes, initial=0)
    least, most = code_range(ball.dtype)
    span = np.maximum(high - low, 2 * np.maximum(high, -low) if _is_symmetric(numbers, use.format, ball.dtype) else 0)
    steps = np.broadcast_to(np.ravel(scale), span.size)
    wide = ((most - least) * steps > LEAST_RANGE) & (steps > LEAST_SCALE * steps.max(initial=0))
    for x in np.ravel(span)[wide]:
        if x > 0:
            yield Usage(float(x) / (most - least), use.tensor, name, node, ball.dtype.itemsize)


def wasted(used: Sequence[Usage], span: int | None) -> Iterator[Problem]:
    """The problems with codes that right weights leave out. span: highest less lowest code, where that is known."""
    usual = float(np.median([usage.share for usage in used] or [0]))
    said: set[str] = set()
    for usage in used:
        share, node = usage.share, usage.node
        least = UNUSUAL_USE * usual if span is None else CODES_USED * span / 255
        if span is None and abs(share - SEVEN_BITS) < 1 / 255:
            continue
        if share < least and usage.tensor not in said and usage.bytes == 1:
            said.add(usage.tensor)
            message = (
                f"{usage.name!r} of {node.op} uses {share:.0%} of its codes where {max(usual, least):.0%} are usual: "
                "its scale is too big"
            )
            yield Problem("parameter", usage.name, share, least, message, (node.name or node.outputs[0], node.op))


def _is_symmetric(numbers: Numbers, format: Format, dtype: np.dtype) -> bool:
    zero = numbers.zero_point(format, (1, 1))
    midpoint = 0 if np.iinfo(dtype).min < 0 else 128
    return bool((zero == midpoint).all())
