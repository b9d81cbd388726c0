"""Inside: what the intact artifact makes of the tensors on its way, where its target hands them out by name.

A part of the model is judged on these: fed what the artifact itself computed before it, does the artifact compute what
the part says? Errors cannot add up, as in windows, and nothing is cut, which can make faults of its own (MNN gives what
a 1-D Conv makes another rank where it is a graph output). Agreement is believed. A failure is a hint: a name may have
moved with a fusion. So it counts where the part fails as a model of its own too, or the model up to there does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from driftnet.diagnosis.localize import Fault
from driftnet.findings.trial import Trial
from driftnet.model.inspect import Case, graph_inputs
from driftnet.model.submodel import Recording
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict
from driftnet.oracle.judge import judge

ELSEWHERE = 0.1
"""A tensor of the intact artifact that is off by less than this share of what the part gave is right there."""

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Inside:
    """The tensors of the intact artifact, one mapping a feed, what it was fed among them."""

    trial: Trial
    tensors: Sequence[Tensors]

    def verdict(self, part: Case) -> Verdict | None:
        """The verdict on a part by itself, without running it; None where the artifact does not know what it takes."""
        feeds = [self._known(tensors, run) for tensors, run in zip(self.tensors, part.feeds)]
        names = [value.name for value in part.proto.graph.output]
        if any(feed is None for feed in feeds) or any(name not in run for name in names for run in self.tensors):
            return None
        case = replace(part, feeds=tuple(feed for feed in feeds if feed is not None), calibration=())
        seen = Observation(
            (StageRun("execute", Outcome.OK),), tuple({name: run[name] for name in names} for run in self.tensors)
        )
        trial = self.trial
        return judge(case, seen, target=trial.target, options=trial.options, reference=trial.runner.reference)

    def handed_out(self, recorded: Recording) -> set[str]:
        """The names of those that have the form in which they were recorded."""
        runs = list(zip(self.tensors, recorded.feeds))
        return {name for name in self.tensors[0] if all(_alike(run.get(name), right.get(name)) for run, right in runs)}

    def _known(self, tensors: Tensors, feed: Tensors) -> Tensors | None:
        """What the artifact computed of the tensors in `feed`, where these are of the same form."""
        known = all(_alike(tensors.get(name), x) for name, x in feed.items())
        return {name: tensors[name] for name in feed} if known else None


def _alike(x: np.ndarray | None, y: np.ndarray | None) -> bool:
    """Whether both are there, of one form."""
    return x is not None and y is not None and (x.shape, x.dtype) == (y.shape, y.dtype)


def look_inside(trial: Trial, recorded: Recording, names: Sequence[str] = ()) -> Inside:
    """Ask for every recorded tensor, or for these."""
    wanted = {name: str(x.dtype) for name, x in recorded.feeds[0].items() if x.dtype.kind in "biuf"}
    fed = {value.name for value in graph_inputs(trial.case.proto)}
    asked = {name: kind for name, kind in wanted.items() if name not in fed and (not names or name in names)}
    tensors = trial.runner.tap(trial.case, trial.installed, trial.recipe, asked)
    return Inside(
        trial,
        [{**feed, **in_form(found, right)} for feed, found, right in zip(trial.case.feeds, tensors, recorded.feeds)],
    )


def in_form(found: Tensors, right: Tensors) -> Tensors:
    """The tensors of `found` that are in `right`, each of that shape if it differs in dims of 1 only: MNN holds what a
    1-D Conv makes in four dims."""
    return {name: _in_shape(x, right[name].shape) for name, x in found.items() if name in right}


def _in_shape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    same = [n for n in x.shape if n != 1] == [n for n in shape if n != 1]
    return x.reshape(shape) if same else x


def made_by_cutting(fault: Fault, made: Sequence[Tensors], inside: Inside, recorded: Recording) -> bool:
    """Whether the tensors that `fault` gets wrong by itself are right in the intact artifact.

    made   what the target makes of the part
    """
    names = [value.name for value in fault.case.proto.graph.output]
    if any(name not in run for run in inside.tensors for name in names):
        return False
    whole = max(off(run[n], right[n]) for run, right in zip(inside.tensors, recorded.feeds) for n in names)
    part = max(off(run.get(n), right[n]) for run, right in zip(made, recorded.feeds) for n in names)
    return whole < ELSEWHERE * part


def off(got: np.ndarray | None, right: np.ndarray) -> float:
    """The L2 norm of the error by that of what is right; infinity for another shape."""
    if got is None or got.shape != right.shape:
        return float("inf")
    a, b = got.astype(np.float64), right.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinity from infinity is a NaN, which nobody takes
        error = float(np.linalg.norm(np.where(same, 0.0, a - b)))
    return error / (float(np.linalg.norm(b)) or 1.0) if np.isfinite(error) else float("inf")
