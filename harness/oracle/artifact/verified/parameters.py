"""D3, parameters: does each weight, bias, scale and range of an artifact say what the float model and its data say?

    constants.py         weights, biases and operands: within half a step
    code_usage.py        and their codes are all used: a scale twice too big hides in that half
    this module          scales are positive, finite, and the same where integers are written and where they are read
    ranges.py            ranges of activations; range_outliers.py where the data of calibration are not known

Of a quantizer of which nothing is known, a wrong constant may be right after all:
    equalization.py      it is off by a factor that cancels;   bias_correction.py   it was moved on purpose
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from driftnet.oracle.artifact.verified.bias_correction import corrected
from driftnet.oracle.artifact.verified.code_usage import wasted
from driftnet.oracle.artifact.verified.comparison import Comparison, Problem, problem_of
from driftnet.oracle.artifact.verified.constants import Constants
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.equalization import Scaling, equivalent
from driftnet.oracle.artifact.verified.format import Format
from driftnet.oracle.artifact.verified.ranges import wrong_ranges
from driftnet.oracle.ball_arithmetic.ball import Undecided


def wrong_parameters(c: Comparison) -> list[Problem]:
    """The problems with parameters."""
    judged = Constants(c)
    problems = [*wrong_scales(c), *judged.problems, *wasted(c, judged.sharp)]
    wrong, scaling = {problem.where for problem in problems}, Scaling()
    if c.span is None and wrong:
        scaling = equivalent(c, judged.held, wrong)
        spared = scaling.constants | corrected(c, wrong - scaling.constants)
        problems = [problem for problem in problems if problem.where not in spared]
    problems = [replace(problem, where=judged.made_by.get(problem.where, problem.where)) for problem in problems]
    if c.calibration is None:
        return problems
    # The largest of a tensor whose channels were scaled is that of the channel whose data are least like others.
    ranges = {name: found for name, found in c.calibration.ranges.items() if name not in scaling.multiples}
    return problems + wrong_ranges(c, replace(c.calibration, ranges=ranges))


def wrong_scales(c: Comparison) -> Iterator[Problem]:
    """Scales that differ between writing and reading, or that are no scales."""
    for node, written, read in c.artifact.rereads:
        message = f"integers are written with {_said(c.numbers, written)}, but read with {_said(c.numbers, read)}"
        about = ("reread", written.scale, read.scale, written.zero_point, read.zero_point)
        yield replace(problem_of(node, "parameter", 1.0, 0.0, message, where=read.scale), about=about)
    for rounding in c.artifact.roundings:
        try:
            scale = c.numbers.scale(rounding.format)
        except Undecided:
            continue
        if not rounding.dynamic and not (np.isfinite(scale) & (scale > 0)).all():
            name = rounding.format.scale
            odd = np.ravel(scale)[~(np.isfinite(scale) & (scale > 0)).ravel()][0]
            own = (c.tensors.get(rounding.real) or [rounding.real])[-1]
            message = f"scale {name!r} of {own!r} holds {odd:g}: not positive, or not finite"
            maker = c.model.producers.get(own, rounding.node)
            found = problem_of(maker, "parameter", np.inf, 0.0, message, where=name)
            yield replace(found, about=("scale", name))


def _said(numbers: Numbers, format: Format) -> str:
    try:
        scale, zero = numbers.scale(format).ravel(), numbers.zero_point(format, (1,)).ravel()
    except (Undecided, ValueError):
        return f"scale {format.scale!r}"
    return f"scale {format.scale!r} ({scale[0]:.6g}, zero point {zero[0]:g}{', ...' if scale.size > 1 else ''})"
