"""Fast kernels: algorithms like Winograd's round more than any bound of single elements allows.

A target declares each with what it may lose at most, normwise, and how to do without it. A failure in values no larger
than that which is gone without the kernel is its rounding: agreement, by the kernel's name, with the remedy told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from driftnet.diagnosis.attribution import Watch, with_options
from driftnet.findings.trial import Trial, watch
from driftnet.model.arrays import distance
from driftnet.model.inspect import all_nodes
from driftnet.model.verdict import Kind, Observation, Verdict
from driftnet.targets.interface import Kernel


def used(trial: Trial, *, before: bool = False) -> list[Kernel]:
    """The kernels that the target may use for this model, or `before` it is quantized, unless its recipe does
    without."""
    operators = {node.op_type for node in all_nodes(trial.case.proto.graph)}
    return [
        kernel
        for kernel in trial.target.kernels
        if not operators.isdisjoint(kernel.operators)
        and all(trial.options.get(name) == value and not before for name, value in kernel.when.items())
        and any(trial.options.get(name) != value for name, value in kernel.without.items())
    ]


def judged(trial: Trial, verdict: Verdict, seen: Observation | None, watch: Watch, *, whole: bool = False) -> Verdict:
    """`verdict`, or what it is without a kernel, where that is no failure and the difference is the kernel's rounding.
    Where a model fails before it is quantized, that is asked of what is not quantized; what quantizing does is left.

    whole   a whole model, in which what its layers lose adds up: their windows are held to the bound, it is not
    """
    if seen is None or verdict.kind != Kind.WRONG_VALUES or not verdict.in_values:
        return verdict
    before = verdict.before
    for kernel in used(trial, before=before):
        without, other = watch(with_options(trial, kernel.without))
        if other is None or (without.before if before else without.failed):
            continue
        # Held against the same without the kernel: against the reference the noise of quantizing would count, too.
        pair = (seen.plain, other.plain) if before else (seen.outputs, other.outputs)
        if whole or loss(*pair) <= kernel.loss:
            if without.failed:
                return without
            return replace(without, rule=kernel.name, output=verdict.output, feed=verdict.feed, message=_said(kernel))
    return verdict


def uncovered(trial: Trial, verdict: Verdict, seen: Observation | None) -> tuple[Trial, Verdict, Observation | None]:
    """What is given; or where a kernel's rounding fails a model before it is quantized, and so hides what quantizing
    does to it, the same without that kernel."""
    for kernel in used(trial, before=True) if verdict.before else ():
        without = with_options(trial, kernel.without)
        found, observed = watch(without)
        if not found.before:
            return without, found, observed
    return trial, verdict, seen


def loss(observed: Sequence[Mapping[str, np.ndarray]], expected: Sequence[Mapping[str, np.ndarray]]) -> float:
    """The largest error of an output by the largest element it should have, the worst of all."""
    worst = 0.0
    for got, right in zip(observed, expected):
        for name, x in right.items():
            if x.dtype.kind == "f" and x.size:
                size = float(distance(x, np.zeros_like(x)).max())
                worst = max(worst, float(distance(got[name], x).max()) / (size or 1.0))
    return worst


def _said(kernel: Kernel) -> str:
    return f"within what rounding allows without {kernel.name} kernels"
