"""What the tests of the oracle share: observations without a target, and damage done to arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from driftnet.model.artifact import Artifact
from driftnet.model.case import Case
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict, Word
from driftnet.oracle.judge import judge
from driftnet.oracle.question.answers import Decide
from driftnet.oracle.question.question import Question
from driftnet.run.runner import Runner
from driftnet.targets.interface import Scheme, StageError, Target
from driftnet.util.records import read


def refuses(*_):
    """Stands for the stages of a target that is never run."""
    raise StageError("this target is never run")


def target(scheme: Scheme | None = None, **declared: Any) -> Target:
    """A target that exists as a declaration only."""
    bare = Target("declared", "driftnet", refuses, refuses, refuses, scheme=lambda options: scheme)
    return replace(bare, **declared)


def told(said: Mapping[str, object] | None) -> Artifact:
    """The artifact of which a target's `inspect` says this."""
    return read(said or {}, Artifact, "the artifact")


def observed(*outputs: Mapping[str, np.ndarray]) -> Observation:
    """All stages ended well and gave `outputs`, one mapping a feed."""
    return Observation((StageRun("execute", Outcome.OK),), outputs)


def verdict(runner: Runner, case: Case, *outputs: Mapping[str, np.ndarray], scheme: Scheme | None = None) -> Verdict:
    """What the oracle says where a target gave `outputs` for `case`."""
    return judge(case, observed(*outputs), target=target(scheme), options={}, reference=runner.reference)


def asked(tier: Decide, runner: Runner, case: Case, *outputs: Mapping[str, np.ndarray]) -> Verdict:
    """What one tier alone says of the output that is furthest from right."""
    question = Question(case, outputs, runner.reference.run(case).outputs, runner.reference)
    verdicts = list(tier(question, question.places).values())
    return max(verdicts, key=lambda v: (v.word is Word.DIVERGES, v.word is Word.ABSTAINS, v.error / (v.bound or 1)))


def in_float64(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution of x, [1, C, H, W], with w, [O, C, 3, 3], another way and in double precision."""
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (3, 3), axis=(1, 2))
    return np.einsum("chwij,ocij->ohw", windows, w.astype(np.float64))[None].astype(np.float32)


WRONG_WEIGHTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "weights rounded to float16": lambda w: w.astype(np.float16).astype(np.float32),
    "one weight x 1.001": lambda w: np.where(w == w.max(), w * np.float32(1.001), w),
    "input channels reversed": lambda w: w[:, ::-1],
    "kernel transposed": lambda w: w.swapaxes(2, 3),
}
