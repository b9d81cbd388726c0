"""D3, weights: are all codes used? A scale twice too big moves no weight by more than half a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.oracle.artifact.verified.comparison import Comparison, Problem, problem_of
from driftnet.oracle.artifact.verified.constants import Held
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.ball_arithmetic.ball import Undecided
from driftnet.oracle.ball_arithmetic.quantized import code_range
from driftnet.oracle.tolerances.table import CODES_USED, LEAST_RANGE, LEAST_SCALE, SEVEN_BITS, UNUSUAL_USE


@dataclass(frozen=True)
class Usage:
    """The share of the codes, of so many bytes, that the weights of one scale of a constant use."""

    share: float
    held: Held
    bytes: int


def wasted(c: Comparison, constants: Sequence[Held]) -> Iterator[Problem]:
    """The problems with codes that right constants leave out, of those whose scales come from their own range."""
    # Weights of 16 bits have constants of 8 beside them, which stand for activations: reduced, both leave out half.
    span = c.span >> 8 if c.span and c.span > 255 else c.span
    middle = (int(span or 255) + 1) // 2  # with a bit less unsigned codes begin at 0 all the same
    used = [usage for held in constants for usage in _usages(c.numbers, held, middle)]
    usual = float(np.median([usage.share for usage in used] or [0]))
    said: set[str] = set()
    for usage in used:
        share, held = usage.share, usage.held
        least = UNUSUAL_USE * usual if span is None else CODES_USED * min(1.0, span / 255)
        if span is None and abs(share - SEVEN_BITS) < 1 / 255:
            continue
        if share < least and held.use.tensor not in said and usage.bytes == 1:
            said.add(held.use.tensor)
            message = (
                f"{held.name!r} of {held.node.op} uses {share:.0%} of its codes where {max(usual, least):.0%} are "
                "usual: its scale is too big"
            )
            yield problem_of(held.node, "parameter", share, least, message, where=held.name)


def _usages(numbers: Numbers, held: Held, middle: int) -> list[Usage]:
    """One for each scale of a quantized constant; none where it is 0, or its codes are not known. middle: of unsigned
    codes, the zero point of those that are symmetric."""
    format = held.use.format
    try:
        if format is None or format.block:
            return []
        ball, zero, scale = numbers.coded(numbers.artifact.codes_of(held.use.tensor), format)
        if ball.dtype.kind not in "iu":
            return []
        kind = np.iinfo(ball.dtype)  # constants that stand for activations have codes of their own
        symmetric = np.isin(numbers.zero_point(format, (1, 1)), (0,) if kind.min else (middle, kind.max // 2 + 1)).all()
    except Undecided:
        return []
    codes = ball.numbers - zero
    axes = tuple(k for k in range(codes.ndim) if scale.ndim == 0 or scale.shape[k] == 1)
    low, high = codes.min(axes, initial=0), codes.max(axes, initial=0)
    least, most = code_range(ball.dtype)
    span = np.maximum(high - low, 2 * np.maximum(high, -low) if symmetric else 0)
    steps = np.broadcast_to(np.ravel(scale), span.size)
    wide = ((most - least) * steps > LEAST_RANGE) & (steps > LEAST_SCALE * steps.max(initial=0))
    shares = np.ravel(span)[wide] / (most - least)
    return [Usage(float(share), held, ball.dtype.itemsize) for share in shares if share > 0]
