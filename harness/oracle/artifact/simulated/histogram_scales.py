"""Thresholds: is each scale of an activation one that its calibration may have chosen?

Of a calibration by histogram it is documented which scales there may be: with the largest magnitude m that was seen, a
number of bins, and the highest code h,

    scale = (t + 1/2) / bins * m / h      for a whole t, least <= t < bins

m is known to the radius of a ball: the float model is evaluated on the calibration data. A tensor whose scale is that
of another tensor of the model is let pass: converters move names, and an operation may keep the scale of its operand.
So is one whose scale a piece has that the artifact cuts from something: what calibration saw there is not known. Nor is
it of a result of which the standard says too little: where that is an operand of a Concat, which gives all of them one
scale, the others may have its.
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
    seen, unknown = largest(question)
    joined = [node.inputs for node in question.graph.nodes if node.op == "Concat"]
    beside = {name for operands in joined if not unknown.isdisjoint(operands) for name in operands}
    names = {name: name for name in question.graph.inputs} | {name: region.start for name, region in regions.items()}
    pieces = {trace.grids[x].scale for x, op in trace.makers.items() if len(op.outputs) > 1 and x in trace.grids}
    for name, interval in seen.items():
        grid = trace.grids.get(names.get(name, ""))
        if grid is None or grid.scale <= 0 or grid.scale in pieces or interval[0] < LARGEST_VANISHED or name in beside:
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


def largest(question: Question) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """Float32 tensor -> the interval that its largest magnitude over the calibration lies in; the tensors of which
    nothing is known."""
    seen: dict[str, tuple[float, float]] = {}
    unknown: set[str] = set()
    for feed in question.case.calibration or question.case.feeds:
        balls = evaluate(question.graph, feed).balls
        made = (name for node in question.graph.nodes for name in node.outputs if name)
        unknown.update(name for name in made if not isinstance(balls.get(name), Ball))
        for name, ball in balls.items():
            if not isinstance(ball, Ball) or ball.dtype != np.float32:
                continue
            if not ball.midpoint.size or not np.isfinite(ball.midpoint).all() or ball.undecided.any():
                unknown.add(name)
                continue
            magnitude = np.abs(ball.numbers)
            low, high = float((magnitude - ball.error).max()), float((magnitude + ball.error).max())
            before = seen.get(name, (0.0, 0.0))
            seen[name] = (max(low, before[0]), max(high, before[1]))
    return {name: interval for name, interval in seen.items() if name not in unknown}, unknown


def _may_be(grid: Grid, interval: tuple[float, float], histogram: Histogram) -> bool:
    """Whether a calibration that saw a largest magnitude in `interval` may choose the scale of `grid`."""
    if interval[0] < LARGEST_VANISHED:
        return False
    bins = grid.scale * grid.high * histogram.bins
    low, high = bins / (interval[1] * (1 + SCALE_ERROR)) - 0.5, bins / (interval[0] * (1 - SCALE_ERROR)) - 0.5
    return bool(max(np.ceil(low), histogram.least) <= min(high, histogram.bins - 1))
