"""Tests: a saved case as one, and the examiner of cases in tests that somebody writes with Hypothesis."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from driftnet.commands.saved import replay_one
from driftnet.findings import corpus
from driftnet.findings.known import KnownIssue, issues
from driftnet.findings.pipeline import explanation
from driftnet.findings.trial import CONFIRMING_RUNS, Trial, confirm, watch
from driftnet.model.inspect import Case
from driftnet.model.signature import coarse
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import Recipe
from driftnet.util.errors import UserError

REPLAY_RUNS = 2

DAMAGED_HEAP = re.compile(r"(free|malloc|realloc|munmap_chunk)\(\)|corrupted|ended by SIGABRT in \w+$")
"""What the C library says, or fails to say, when it finds the heap damaged: where depends on what the heap holds."""


class Divergence(AssertionError):
    """A failure that no saved case explains. Each coarse signature has a subclass of its own, because Hypothesis tells
    failures apart by type and place, and then reports and shrinks each of them."""


@functools.cache
def divergence(signature: str) -> type[Divergence]:
    """The subclass of Divergence for one coarse signature."""
    return type(re.sub(r"\W+", "_", signature), (Divergence,), {})


class Examiner:
    """What the fixture `driftnet` is: examines cases, knowing the saved ones below `folder`."""

    def __init__(self, runner: Runner, known_issues: Iterable[KnownIssue] = ()) -> None:
        self.runner, self.known_issues = runner, list(known_issues)

    def knowing(self, folder: Path) -> Examiner:
        """The same examiner, which takes the open cases below `folder` as explanations."""
        return Examiner(self.runner, issues(folder))

    def check(self, case: Case, target: str, recipe: Recipe | None = None) -> Word:
        """The verdict on one run of `case`.

        Raises a subclass of Divergence for a failure that nothing explains and that fresh processes show every time.
        """
        trial = Trial(case, resolve(target), recipe or {}, self.runner)
        verdict, seen = watch(trial)
        if not verdict.failed or explanation(trial, verdict, self.known_issues, seen).rest is None:
            return verdict.word
        if DAMAGED_HEAP.search(verdict.message) or confirm(trial)[1] < CONFIRMING_RUNS:
            return verdict.word  # what depends on the heap is for campaigns to find: a test is red or green
        where = f"{verdict.stage} ({verdict.kind}), recipe {dict(trial.recipe)}"
        raise divergence(coarse(target, verdict))(f"{target} {verdict.word} in {where}: {verdict.message}")


def replayed(folder: Path, runner: Runner) -> tuple[str, str]:
    """Replay the case saved in `folder`: why it is not as its status says, and why it may fail; "" where nothing is."""
    try:
        saved = corpus.load(folder)
        result = replay_one(saved, "", REPLAY_RUNS, runner)
    except UserError as e:
        return str(e), ""
    if not result["as_expected"]:
        where = f"on {result['target']}=={result['release']} it {result['outcome']}"
        again = f"replay it: driftnet replay {folder}"
        return f"{saved.id} is {saved.status}, but {where}. {result['message']}\n{again}", ""
    if saved.status != "fixed" and (result["outcome"] == "reproduces" or saved.status == "open"):
        where = "" if result["outcome"] == "reproduces" else f" ({result['outcome']} here)"
        return "", f"{saved.status}{where}: {saved.note or saved.verdict.message}"
    return "", ""
