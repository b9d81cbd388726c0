"""pytest: saved cases are tests, and `driftnet` is a fixture for Hypothesis tests on real targets.

`pytest DIR` replays every saved case below DIR. An open case that reproduces is an expected failure, strictly: a
fix turns the replay red until `driftnet triage` says that it is fixed. It need not reproduce where the CPU features, or
what a release that showed it now answers, are others than when it was saved.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from driftnet import api
from driftnet.findings import corpus
from driftnet.findings.known import KnownIssue, issue_of
from driftnet.findings.pipeline import explanation
from driftnet.findings.trial import CONFIRMING_RUNS, Trial, confirm, look
from driftnet.model.inspect import Case
from driftnet.model.signature import coarse
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError

_LABORATORY = pytest.StashKey[Runner]()
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


def runner_of(config: pytest.Config) -> Runner:
    """The workers of this pytest process, made when first asked for and closed with the session."""
    if _LABORATORY not in config.stash:
        config.stash[_LABORATORY] = Runner()
        config.add_cleanup(config.stash[_LABORATORY].close)
    return config.stash[_LABORATORY]


class Examiner:
    """What the fixture `driftnet` is: examines cases, knowing the saved ones below `folder`."""

    def __init__(self, runner: Runner, known_issues: Iterable[KnownIssue] = ()) -> None:
        self.runner, self.known_issues = runner, list(known_issues)

    def knowing(self, folder: Path) -> Examiner:
        """The same examiner, which takes the open cases below `folder` as explanations."""
        return Examiner(self.runner, [issue_of(saved) for saved in corpus.load_all(folder) if saved.status != "fixed"])

    def check(self, case: Case, target: str, recipe: Mapping[str, Any] | None = None) -> Word:
        """The verdict on one run of `case`.

        Raises a subclass of Divergence for a failure that nothing explains and that fresh processes show every time.
        """
        trial = Trial(case, resolve(target), recipe or {}, self.runner)
        verdict = look(trial)
        if not verdict.failed or explanation(trial, verdict, self.known_issues).rest is None:
            return verdict.word
        if DAMAGED_HEAP.search(verdict.message) or confirm(trial)[1] < CONFIRMING_RUNS:
            return verdict.word  # what depends on the heap is for campaigns to find: a test is red or green
        where = f"{verdict.stage} ({verdict.kind}), recipe {dict(recipe or {})}"
        raise divergence(coarse(target, verdict))(f"{target} {verdict.word} in {where}: {verdict.message}")


@pytest.fixture(scope="session")
def driftnet(pytestconfig: pytest.Config) -> Examiner:
    """Examine cases on real targets: `driftnet.knowing(corpus).check(case, "mnn", recipe)`."""
    return Examiner(runner_of(pytestconfig))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A folder with a case.json beside a model.onnx is a test."""
    if file_path.name == "case.json" and (file_path.parent / "model.onnx").exists():
        return CaseFile.from_parent(parent, path=file_path)
    return None


class CaseFile(pytest.File):
    """A case.json."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one test it stands for."""
        yield CaseItem.from_parent(self, name=self.path.parent.name)


class CaseItem(pytest.Item):
    """The replay of one saved case."""

    def runtest(self) -> None:
        """Pass, fail or xfail as the status of the case demands."""
        saved = corpus.load(self.path.parent)
        result = api.replay_one(saved, "", REPLAY_RUNS, runner_of(self.config))
        if not result["as_expected"]:
            raise Misbehaviour(
                f"{saved.id} is {saved.status}, but on {result['target']}=={result['release']} it {result['outcome']}. "
                f"{result['message']}\nreplay it: driftnet replay {self.path.parent}"
            )
        if saved.status != "fixed" and (result["outcome"] == "reproduces" or saved.status == "open"):
            where = "" if result["outcome"] == "reproduces" else f" ({result['outcome']} here)"
            pytest.xfail(f"{saved.status}{where}: {saved.note or saved.verdict.message}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | Any:
        """The sentence alone: the traceback would show only driftnet's own lines."""
        if isinstance(excinfo.value, Misbehaviour | UserError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the test stands, and its name."""
        return self.path, None, f"saved case {self.name}"


class Misbehaviour(AssertionError):
    """A saved case that does not behave as its status says."""
