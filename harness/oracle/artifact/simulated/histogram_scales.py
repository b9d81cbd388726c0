"""Thresholds: is each scale of an activation one that its calibration may have chosen?

Of a calibration by histogram it is documented which scales there may be: with the largest magnitude m that was seen, a
number of bins, and the highest code h,

    scale = (t + 1/2) / bins * m / h      for a whole t, least <= t < bins

m is known to the radius of a ball: the float model is evaluated on the calibration data. A tensor whose scale is that
of another tensor of the model is let pass: converters move names, and an operation may keep the scale of its operand.
So is one whose scale a piece has that the artifact cuts from something: what calibration saw there is not known.
"""

from collections.abc import Mapping

import numpy as np
from driftnet.model.artifact import Histogram
from driftnet.model.verdict import Verdict
from driftnet.oracle.artifact.simulated.trace import Region
from driftnet.oracle.artifact.simulated.weights import misquantized_tensor
from driftnet.oracle.ball_arithmetic.ball import Ball
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme.artifact_trace import Grid, Trace
from driftnet.oracle.tolerances.table import LARGEST_VANISHED, SCALE_ERROR


def problem(question: Question, trace: Trace, regions: Mapping[str, Region], histogram: Histogram) -> Verdict | None:
    """The verdict on the first tensor with a scale that no calibration chooses, if there is one."""
    seen = largest(question)
    names = {name: name for name in question.graph.inputs} | {name: region.start for name, region in regions.items()}
    pieces = {trace.grids[x].scale for x, op in trace.makers.items() if len(op.outputs) > 1 and x in trace.grids}
    for name, interval in seen.items():
        grid = trace.grids.get(names.get(name, ""))
        if grid is None or grid.scale <= 0 or grid.scale in pieces or interval[0] < LARGEST_VANISHED:
            continue
        if not any(_may_be(grid, other, histogram) for other in (interval, *seen.values())):
            right = (histogram.bins - 0.5) / histogram.bins * interval[1] / grid.high
            message = (
                f"the scale of tensor {name!r} is {grid.scale:.7g}, should be {right:.7g}, or what a cut at one of "
                f"{histogram.bins} bins makes of it: calibration saw numbers up to {interval[1]:.7g}"
            )
            maker = question.graph.producers.get(name)
            return misquantized_tensor(name, maker, message, abs(grid.scale - right), SCALE_ERROR * right)
    return None


def largest(question: Question) -> dict[str, tuple[float, float]]:
    """Float32 tensor -> the interval that its largest magnitude over the calibration lies in, where one is known."""
    seen: dict[str, tuple[float, float]] = {}
    unknown: set[str] = set()
    for feed in question.case.calibration or question.case.feeds:
        for name, ball in evaluate(question.graph, feed).balls.items():
            if not isinstance(ball, Ball) or ball.dtype != np.float32:
                continue
            if not ball.midpoint.size or not np.isfinite(ball.midpoint).all() or ball.undecided.any():
                unknown.add(name)
                continue
            magnitude = np.abs(ball.numbers)
            low, high = float((magnitude - ball.error).max()), float((magnitude + ball.error).max())
            before = seen.get(name, (0.0, 0.0))
            seen[name] = (max(low, before[0]), max(high, before[1]))
    return {name: interval for name, interval in seen.items() if name not in unknown}


def _may_be(grid: Grid, interval: tuple[float, float], histogram: Histogram) -> bool:
    """Whether a calibration that saw a largest magnitude in `interval` may choose the scale of `grid`."""
    if interval[0] < LARGEST_VANISHED:
        return False
    bins = grid.scale * grid.high * histogram.bins
    low, high = bins / (interval[1] * (1 + SCALE_ERROR)) - 0.5, bins / (interval[0] * (1 - SCALE_ERROR)) - 0.5
    return bool(max(np.ceil(low), histogram.least) <= min(high, histogram.bins - 1))
