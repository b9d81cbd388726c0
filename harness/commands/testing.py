"""Tests: a saved case as one, and the examiner of cases in tests that somebody writes with Hypothesis."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from driftnet.causes.record import Status
from driftnet.commands import redtest
from driftnet.commands.saved import replay_one
from driftnet.findings import arrange, corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import KnownIssue, issues
from driftnet.findings.names import TESTS
from driftnet.findings.pipeline import examine, known_by, to_save
from driftnet.findings.pursuing import Finding
from driftnet.findings.trial import Trial, watch
from driftnet.learning.study import proposal, sharing, study
from driftnet.model.inspect import Case, graph_inputs
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.targets import recipe as recipes
from driftnet.targets.environments import Installed, is_installed, resolve
from driftnet.targets.recipe import Recipe
from driftnet.util.errors import UserError
from driftnet.util.files import in_turn

REPLAY_RUNS = 2

EFFORT = Effort(seconds=10.0, calls=300)
"""What the reduction of a red test may take."""

DAMAGED_HEAP = re.compile(r"(free|malloc|realloc|munmap_chunk)\(\)|corrupted|ended by SIGABRT in \w+$")
"""What the C library says, or fails to say, when it finds the heap damaged: where depends on what the heap holds."""


_HINT = "Case(model, feeds) is the bytes of an ONNX model, and one mapping or more of the names of its inputs to arrays"


class Divergence(AssertionError):
    """A failure that no saved case explains, as a person wants to read it. Each coarse signature has a subclass of its
    own, because Hypothesis tells failures apart by type and place."""


@functools.cache
def divergence(signature: str) -> type[Divergence]:
    """The subclass of Divergence for one coarse signature."""
    return type(re.sub(r"\W+", "_", signature), (Divergence,), {"__module__": "driftnet"})


@dataclass(frozen=True)
class Asked:
    """What was examined: the digest of a case, and the target and recipe it was tried with."""

    case: str
    target: str
    recipe: str


class Settled(BaseException):
    """Ends a test of Hypothesis that has failed: driftnet has reduced its failure, and Hypothesis would take minutes to
    look for a simpler case. As with Ctrl-C, what it has found is in its database. The plugin raises the failure."""


@dataclass
class Latest:
    """The failure of the test that runs now, if it has failed."""

    asked: Asked | None = None
    error: Divergence | None = None

    def known(self, asked: Asked) -> Divergence | None:
        """What the same case raised before. Under Hypothesis, where it draws another, the test is settled."""
        if self.error is None or self.asked is None:
            return None
        if asked == self.asked:
            return type(self.error)(*self.error.args)
        if asked.target == self.asked.target and _is_drawn_by_hypothesis():
            raise Settled(str(self.error))
        return None


class Examiner:
    """What the fixture `driftnet` is: examines cases, knowing the saved ones below a folder.

    known   those: what is fixed explains nothing;   found   folder into which new failures are saved, reduced
    """

    def __init__(
        self, runner: Runner, known: Iterable[SavedCase] = (), *, found: Path = TESTS, latest: Latest | None = None
    ) -> None:
        self.runner, self.found, self.known_issues = runner, found, list[KnownIssue]()
        self.fixed: dict[str, SavedCase] = {}
        for saved in known:
            if saved.status == Status.FIXED:
                self.fixed[saved.id] = saved
            else:
                self.known_issues.append(KnownIssue(saved))
        self.latest = latest or Latest()
        self.installed: dict[str, Installed] = {}
        self.shipped: list[KnownIssue] | None = None

    def __repr__(self) -> str:
        return "driftnet"  # among the arguments of a test that failed

    def knowing(self, folder: Path | str) -> Examiner:
        """The same examiner, which takes the open cases below `folder` as explanations; "corpus" is what a project has
        saved there, and what came with driftnet. Raises UserError where there is no such folder."""
        __tracebackhide__ = True
        if not any(root.is_dir() for root in corpus.known(Path(folder))):
            hint = "name the folder of saved cases; driftnet fuzz --save --corpus DIR begins one"
            raise UserError(f"{folder}: there is no such folder", hint=hint, kind="corpus")
        cases = map(corpus.load, corpus.known_folders(Path(folder)))
        return Examiner(self.runner, cases, found=self.found, latest=self.latest)

    def check(self, case: Case, target: str, recipe: Recipe | None = None) -> Word:
        """The verdict on one run of `case`.

        Raises a subclass of Divergence for a failure that nothing explains and that fresh processes show every time.
        By then it is reduced, and saved; what it says is for people. Raises UserError for a target or a recipe that
        there is not, and for a case that says nothing of one: a model that is none, or that the reference refuses, or
        no feed.
        """
        __tracebackhide__ = True
        asked = Asked(case.digest, target, repr(recipe))
        try:
            answer = self.latest.known(asked) or self._answer(self._trial(case, target, recipe or {}))
        except UserError as e:
            raise e.with_traceback(None) from None  # pytest shows the line of the test then, whose mistake it is
        if isinstance(answer, Word):
            return answer
        self.latest.asked, self.latest.error = asked, answer
        raise answer  # at one line: Hypothesis tells failures apart by that, too

    def _trial(self, case: Case, target: str, recipe: Recipe) -> Trial:
        if target not in self.installed:  # looking one up costs as much as some cases
            self.installed[target] = resolve(target)
        installed = self.installed[target]
        try:
            names = ", ".join(value.name for value in graph_inputs(case.proto))
        except Exception as e:  # protobuf's DecodeError, whose module has no types
            raise UserError(f"the model of the case cannot be read: {e}", hint=_HINT, kind="model") from None
        if not case.feeds:
            raise UserError(f"the case has no feeds; its model reads {names}", hint=_HINT, kind="model")
        return Trial(case, installed, recipes.validated(installed.target, recipe), self.runner)

    def _answer(self, trial: Trial) -> Word | Divergence:
        result = examine(trial, self.known_issues, effort=EFFORT)
        if result.verdict.word is Word.INVALID:
            raise UserError(result.verdict.message, hint=_HINT, kind="model")
        if (finding := result.finding) is None or result.known or _is_by_chance(finding):
            return result.verdict.word
        issue = self._shipped(finding)
        saved = to_save(finding, self.fixed, self.runner) if issue else self._kept(finding)
        if saved is None:
            return result.verdict.word
        again, seen = watch(replace(trial, case=saved.case, recipe=saved.recipe), fresh=True)
        outputs = seen.outputs if seen and again.failed else ()
        failure = divergence(saved.coarse)
        taken = len(f"{failure.__module__}.{failure.__name__}: ")
        release, known = trial.installed.release, issue.saved if issue else None
        return failure(redtest.told(saved, release, trial.case, outputs, taken, known))

    def _shipped(self, finding: Finding) -> KnownIssue | None:
        """What explains the finding of the cases that came with driftnet, which this examiner does not know: then it is
        told by that, and not saved another time."""
        if self.shipped is None:
            self.shipped = issues(corpus.COMMITTED)
        return known_by(finding, self.shipped, self.runner, EFFORT)

    def _kept(self, finding: Finding) -> SavedCase | None:
        """The finding as it is saved in the folder of its cause; None where it shares that with something known."""
        with in_turn(redtest.begun(self.found) / ".keeping"):
            folder = corpus.save(to_save(finding, self.fixed, self.runner), self.found)
            saved = corpus.load(folder)
            if saved.cause is None:
                learned = study(saved, finding.installed, finding.where, self.runner)
                if sharing(learned, finding.installed, self.known_issues, self.runner):
                    corpus.remove(folder)
                    return None
                saved = corpus.load(arrange.found(saved, proposal(learned), self.found))
            return saved


def _is_by_chance(finding: Finding) -> bool:
    """Whether it hangs on the heap: that is for campaigns to find, a test is red or green."""
    return finding.reproduced < finding.runs or DAMAGED_HEAP.search(finding.verdict.message) is not None


def _is_drawn_by_hypothesis() -> bool:
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and hypothesis.currently_in_test_context()


class Replayed(NamedTuple):
    """What a replay says to pytest; "" where nothing is.

    failure  why the case is not as its status says;   excuse  why it may fail;   absent  why it could not be asked
    """

    failure: str = ""
    excuse: str = ""
    absent: str = ""


def replayed(folder: Path, runner: Runner) -> Replayed:
    """Replay the case saved in `folder`."""
    try:
        saved = corpus.load(folder)
        if not is_installed(saved.target):
            elsewhere = f"driftnet replay {folder} --target {saved.target}==RELEASE"
            return Replayed(absent=f"{saved.target} is not installed here; {elsewhere} asks a release")
        result = replay_one(saved, "", REPLAY_RUNS, runner)
    except UserError as e:
        return Replayed(failure=str(e))
    if not result["as_expected"]:
        where = f"on {result['target']}=={result['release']} it {result['outcome']}"
        again = f"replay it: driftnet replay {folder}"
        return Replayed(failure=f"{saved.id} is {saved.status}, but {where}. {result['message']}\n{again}")
    if saved.status != "fixed" and (result["outcome"] == "reproduces" or saved.status == "open"):
        where = "" if result["outcome"] == "reproduces" else f" ({result['outcome']} here)"
        return Replayed(excuse=f"{saved.status}{where}: {saved.note or saved.verdict.message}")
    return Replayed()
