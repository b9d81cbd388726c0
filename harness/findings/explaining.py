"""Explaining: which known issues account for a failure, as far as can be found out within an effort."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from driftnet.causes.lookup import recipe_facts
from driftnet.causes.place import place_of
from driftnet.causes.record import Status
from driftnet.findings.issues import KnownIssue, KnownIssues, Symptom, symptom_of
from driftnet.findings.known import NO_SYMPTOM, Explanation, Other, explain
from driftnet.findings.recognition import TRUSTED_OF_OLD, Recognizer
from driftnet.findings.trial import Trial, confirm, look, watch
from driftnet.model.inspect import Case
from driftnet.model.signature import DAMAGE, coarse
from driftnet.model.verdict import DEPENDS_ON_RUN, Kind, Observation, Verdict, Word
from driftnet.reduce.problem import ExhaustedError
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.run.sandbox.allowance import Allowance
from driftnet.targets.environments import present
from driftnet.targets.recipe import Recipe, effective, remedied, unquantized
from driftnet.targets.recipe import simpler as simpler_recipes
from driftnet.util import spent


@dataclass(frozen=True)
class Effort:
    """What a finding may cost: `seconds` of CPU time, and `calls` of the target for its reduction; `stop` ends it."""

    seconds: float = 20.0
    calls: int = 500
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, eq=False)
class Inquiry:
    """What the examination of one failure goes by.

    issues      known ones of the target;   trusting   whether what is recognized counts as known
    allowance   of the effort, from when it began
    """

    issues: KnownIssues
    effort: Effort
    allowance: Allowance
    trusting: bool = True

    @classmethod
    def begun(cls, issues: KnownIssues, effort: Effort, runner: Runner, *, trusting: bool = True) -> Inquiry:
        """One that begins now."""
        return cls(issues, effort, runner.allow(effort.seconds), trusting)

    @property
    def spent(self) -> bool:
        """Whether the effort is."""
        return self.effort.stop() or self.allowance.spent


@spent.part("explanation")
def known_of(trial: Trial, inquiry: Inquiry, shown: tuple[Verdict, Observation] | None = None) -> KnownIssue | None:
    """The known issue that explains the failure of a reduced case, all of it. shown: what a run of it showed."""
    verdict, seen = shown or watch(trial)
    if not verdict.failed or seen is None:
        return None
    simpler, cause, observed = simpler_trial(trial, verdict, seen)
    known = explained(simpler, cause, observed, replace(inquiry, trusting=True))
    return known.known_issues[0] if known.rest is None else None


def is_recognized(trial: Trial, verdict: Verdict, seen: Observation, inquiry: Inquiry) -> bool:
    """Whether a failure is surely known without a run."""
    found = recognizer_of(trial, verdict).recognized(inquiry.issues, symptom_seen(trial, verdict, seen))
    return found is not None and found.sure


def symptom_seen(trial: Trial, verdict: Verdict, seen: Observation | None) -> Symptom:
    """How `trial` failed; that of no failure where it did not."""
    if not verdict.failed:
        return NO_SYMPTOM
    where = place_of(trial.target, verdict, seen)
    return symptom_of(coarse(trial.target.name, verdict), verdict.culprits, verdict.output, where)


def recognizer_of(trial: Trial, verdict: Verdict) -> Recognizer:
    """Of a failure with `verdict`. What is wrong before it is quantized is so whatever quantizes it."""
    tensors = partial(trial.runner.reference.computed, trial.case)
    recipe = unquantized(trial.target, trial.recipe) if verdict.before else trial.recipe
    trusted = TRUSTED_OF_OLD if present(trial.installed) else None
    return Recognizer(trial.case, recipe_facts(trial.target, recipe), tensors, trusted)


@spent.part("explanation")
def simpler_trial(trial: Trial, verdict: Verdict, seen: Observation) -> tuple[Trial, Verdict, Observation]:
    """A simpler recipe by which it fails too, with what it shows, where that tells more: one that does not quantize, or
    one by which it is executed that ends in the error that converting ended in; else what is given.

    Calibration runs the model: what cannot be run crashes a quantizer, through no fault of its own. Weights that are
    converted wrongly are quantized wrongly. And a converter that fixes shapes computes them as the runtime would.
    """
    early = verdict.stage == "convert" and verdict.kind == Kind.ERROR
    may = early or verdict.stage == "quantize" or verdict.before
    sort = symptom_seen(trial, verdict, None).sort
    for recipe in simpler_recipes(trial.target, trial.recipe) if may else ():
        simpler = replace(trial, recipe=recipe)
        if early or not simpler.quantizes:
            found, observed = watch(simpler)
            alike = found.failed and (found.word is Word.DIVERGES) == (verdict.word is Word.DIVERGES)
            later = found.stage == "execute" and symptom_seen(simpler, found, None).sort == sort
            if observed and alike and (later or not early):
                return simpler, found, observed
    return trial, verdict, seen


def explanation(
    trial: Trial, verdict: Verdict, known_issues: Sequence[KnownIssue], seen: Observation | None = None
) -> Explanation:
    """How far the saved cases account for `trial` failing with `verdict`, as was `seen`."""
    issues = KnownIssues.of(known_issues, trial.target.name)
    return explained(trial, verdict, seen, Inquiry.begun(issues, Effort(seconds=math.inf), trial.runner))


@spent.part("explanation")
def explained(trial: Trial, verdict: Verdict, seen: Observation | None, inquiry: Inquiry) -> Explanation:
    """How far known issues account for `trial` failing with `verdict`, as was seen."""
    name, recognizer, issues = trial.target.name, recognizer_of(trial, verdict), inquiry.issues
    failed = symptom_seen(trial, verdict, seen)

    def failure(part: Case) -> Symptom:
        if part is trial.case:  # what was seen may be recognized, however much is spent
            return failed
        if inquiry.spent:
            raise ExhaustedError
        return symptom_seen(trial, *watch(replace(trial, case=part)))

    def cured(part: Case, remedy: Recipe) -> bool:
        recipe = remedied(trial.target, trial.recipe, remedy)
        if effective(trial.target, recipe) == trial.options:  # that would be the same run
            return False
        if inquiry.spent:
            raise ExhaustedError
        found = look(replace(trial, case=part, recipe=recipe))
        return is_gone(coarse(name, verdict), coarse(name, found) if found.failed else "")

    @cache
    def of_part(part: Case) -> Callable[[KnownIssue], str]:
        return difference(replace(trial, case=part))

    def differs(issue: KnownIssue, part: Case) -> bool:
        if inquiry.spent:
            raise ExhaustedError
        return bool(of_part(part)(issue))

    issues = issues.first(recognizer.matching(issues, failed))
    try:
        record, recognize = trial.runner.reference.record, partial(recognizer.recognized, issues)
        doubted = partial(recognizer.doubted, issues, release=trial.installed.release)
        return explain(issues, trial.case, failure, record, cured, recognize, inquiry.trusting, Other(doubted, differs))
    except ReferenceError:
        return Explanation((), trial.case)
    except ExhaustedError:
        return Explanation((), trial.case, cut=True)


def difference(trial: Trial) -> Callable[[KnownIssue], str]:
    """Why a failure of an older release is another one than a known issue, in words; "" where nothing says so.

    The release that is installed here has that issue, too, and is right about the case; or nothing is quantized, and
    the saved case is right then: an older release may have a bug that shows wherever it quantizes.
    """
    now = present(trial.installed)
    if now is None:
        return lambda issue: ""
    later, release = replace(trial, installed=now), now.release

    @cache
    def is_right(often: bool) -> bool:
        return not confirm(later).failed if often else look(later).word is Word.AGREES

    @cache
    def told(issue: KnownIssue) -> str:
        may_hide = issue.saved.status == Status.FLAKY or issue.saved.kind in (*DEPENDS_ON_RUN, *DAMAGE)
        needs_more = not (may_hide or trial.quantizes) and replace(trial, recipe=issue.saved.recipe).quantizes
        if needs_more and look(replace(trial, case=issue.saved.case)).word is Word.AGREES:
            return "without quantizing"
        has_it = any(release in seen for seen in (issue.saved.seen, *(cause.seen for cause in issue.causes)))
        if has_it and is_right(False) and (not may_hide or is_right(True)):
            return f"mended since {trial.installed.release}"
        return ""

    return told


def is_gone(before: str, after: str) -> bool:
    """Whether a failure with the coarse signature `before` is cured where one with `after` is seen, "" for none. A hang
    or an error is when something else is the matter; a wrong value may still be there behind that."""
    return not after or (before.split("/")[2] in (Kind.HANG, Kind.ERROR) and after != before)
