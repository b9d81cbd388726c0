"""A survey of saved cases: what was learned of each, and the causes that they come down to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from driftnet.findings.corpus import SavedCase, load_all
from driftnet.learning.merging import Cause, causes_of
from driftnet.learning.trigger import SECONDS, Learned, learn_trigger, measure
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.util.files import replace_text

FILE = "causes.json"
FRESH = 40
"""Instances that a trigger is measured on."""


def survey(corpus: Path, *, seconds: float = SECONDS, seed: int = 1, fresh: int = FRESH) -> list[Cause]:
    """Learn the trigger of every saved case below `corpus`, merge them into causes, and write causes.json there.

    seconds   CPU seconds of all processes for each case
    fresh     instances, of another seed, on which each trigger is measured afterwards, beyond these seconds
    """
    learned = list(learn_all(load_all(corpus), seconds=seconds, seed=seed, fresh=fresh))
    targets = {name: resolve(name).target for name in {m.saved.target for m in learned}}
    causes = causes_of(learned, targets)
    replace_text(corpus / FILE, json.dumps(summary(learned, causes), indent=1) + "\n")
    return causes


def learn_all(
    cases: Sequence[SavedCase], *, seconds: float = SECONDS, seed: int = 1, fresh: int = FRESH
) -> Iterator[Learned]:
    """What can be learned of each case, one after the other. Some are `flaky`: what they need may not come back."""
    installed = {name: resolve(name) for name in {saved.target for saved in cases}}
    for saved in cases:
        target = installed[saved.target]
        # A runner of its own: what one target's crashes left in a template is not the next one's.
        with Runner(small_models=True, hold_crashes=True) as runner:
            learned = learn_trigger(saved, target, runner, seconds=seconds, seed=seed)
            score = measure(learned, target, runner, seed=seed + 1, count=fresh) if fresh else learned.score
        yield dataclasses.replace(learned, score=score)


def summary(learned: Sequence[Learned], causes: Sequence[Cause]) -> dict[str, Any]:
    """The causes with the numbers that say how well they were learned."""
    with_trigger = [m for m in learned if m.trigger]
    scores = [m.score for m in with_trigger if m.score.instances]
    return {
        "cases": len(learned),
        "with_trigger": len(with_trigger),
        "causes": [cause.as_json() for cause in causes],
        "median_cpu_seconds": round(median([m.seconds for m in learned] or [0.0]), 2),
        "mean_accuracy": round(sum(s.accuracy for s in scores) / max(1, len(scores)), 4),
        "below_80_percent": [m.saved.id for m in with_trigger if m.score.instances and m.score.accuracy < 0.8],
    }
