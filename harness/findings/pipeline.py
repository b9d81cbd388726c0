"""The way of one case: observe, judge, known? else confirm, trace back and reduce, sign.

Trial  ->  Examination, with a Finding where the verdict is a failure
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType

from driftnet.causes.lookup import recipe_facts
from driftnet.findings.corpus import SavedCase
from driftnet.findings.explaining import (
    Effort,
    Inquiry,
    difference,
    explained,
    known_of,
    recognizer_of,
    simpler_trial,
    symptom_seen,
)
from driftnet.findings.issues import KnownIssue, KnownIssues, Symptom
from driftnet.findings.known import NO_SYMPTOM
from driftnet.findings.pursuing import Finding, KnownError, pursue
from driftnet.findings.recognition import asked_for
from driftnet.findings.trial import CONFIRMATION, CONFIRMING_RUNS, Trial, confirm, look, watch
from driftnet.model.signature import coarse, folder_name, other_name
from driftnet.model.verdict import DEPENDS_ON_RUN, Kind, Observation, Verdict, Word
from driftnet.reduce.problem import ExhaustedError
from driftnet.run.runner import Runner
from driftnet.targets.recipe import canonical
from driftnet.util import spent


@dataclass(frozen=True, eq=False)
class Examination:
    """What came of one case; `known` names the open case that explains a failure.

    unconfirmed   a failure that fresh processes did not show again: it has no finding;   again   how many did not
    unexplained   the effort was spent before all known issues had been asked: the finding may be one of them
    recognized    the open case that it was known by without a run;   verified   it was examined as if it was not
    symptom       how it failed
    fewest        what was left of it when it was known, where it was being reduced until then
    shown         the open cases that no trigger told, each with a place that failed by itself as that does
    """

    verdict: Verdict
    finding: Finding | None = None
    known: str = ""
    unconfirmed: Verdict | None = None
    again: int = 0
    unexplained: bool = False
    recognized: str = ""
    verified: bool = False
    symptom: Symptom = NO_SYMPTOM
    fewest: Trial | None = None
    shown: tuple[tuple[str, Trial], ...] = ()

    @property
    def confirmed(self) -> bool:
        return self.unconfirmed is None


class Care(Enum):
    """What is done with a failure that is recognized without a run.

    NONE   it is known;   REST   what it is recognized by is cut out, and the rest is run: another bug may hide there
    ALL    it is examined as if it was not recognized, to see how often that errs
    """

    NONE = auto()
    REST = auto()
    ALL = auto()


def examine(
    trial: Trial,
    known_issues: Sequence[KnownIssue] = (),
    *,
    effort: Effort | None = None,
    care: Care = Care.REST,
    met: Mapping[Symptom, KnownIssue] = MappingProxyType({}),
) -> Examination:
    """Run one case the whole way. Raises nothing on account of the target or of the reference; ExhaustedError where the
    allowance of the runner, if there is one, is spent before a failure has been seen twice.

    known_issues   of the saved cases that count as known
    met   what was behind other failures of the same graph, with other numbers or another recipe, by how they showed
    """
    trial = replace(trial, recipe=canonical(trial.target, trial.recipe))
    with spent.part("first run"):
        verdict, seen = watch(trial)
    if not verdict.failed or seen is None:
        return Examination(verdict)
    issues = KnownIssues.of(known_issues, trial.target.name)
    recognizer, failed = recognizer_of(trial, verdict), symptom_seen(trial, verdict, seen)
    with spent.part("explanation"):
        recognized = recognizer.recognized(issues, failed)
    issue = recognized.issue if recognized else met.get(failed)
    sure = recognized is None or recognized.sure
    if issue and sure and (care is Care.NONE or (care is Care.REST and not recognized)):
        return Examination(verdict, known=issue.id, recognized=issue.id, symptom=failed)
    if verdict.word is Word.HANGS and not issue and trial.patience == math.inf:  # mostly it is only slow
        return examine(trial.patient, known_issues, effort=effort, care=care, met=met)
    inquiry = Inquiry.begun(issues, effort or Effort(), trial.runner, trusting=care is not Care.ALL)
    trial = trial.hurried(verdict, seen)
    found = replace(_examined(trial, verdict, seen, inquiry), symptom=failed)
    return replace(found, recognized=issue.id, verified=not inquiry.trusting) if issue and sure else found


def _examined(trial: Trial, verdict: Verdict, seen: Observation, inquiry: Inquiry) -> Examination:
    """What comes of a failure. What known issues explain has failed by itself, cut out; and what they leave of a case
    is confirmed when it is reduced."""
    simpler, cause, observed = simpler_trial(trial, verdict, seen)
    known = explained(simpler, cause, observed, inquiry)
    if known.rest is None:
        shown = tuple((issue.id, replace(simpler, case=part)) for issue, part in known.shown)
        return Examination(verdict, known=known.known_issues[0].id, shown=shown)
    if not known.known_issues:
        with spent.part(CONFIRMATION):
            confirmed = look(trial, fresh=True)
        if not confirmed.failed and not confirm(trial).failed:
            return Examination(confirmed, unconfirmed=verdict, again=1 + CONFIRMING_RUNS)
    try:
        found = pursue(replace(simpler, case=known.rest), inquiry)
    except ExhaustedError:
        return Examination(verdict, unexplained=True)
    except KnownError as e:
        if known.known_issues:  # what is left may end in a stage that the whole came through: that is not why it fails
            return Examination(verdict, known=known.known_issues[0].id)
        return Examination(verdict, known=e.issue.id, fewest=e.fewest, shown=((e.issue.id, e.fewest),))
    if found is None:
        return Examination(verdict, unconfirmed=verdict, again=2 * CONFIRMING_RUNS)
    # Reduced, it may turn out to be one that the known issues did not recognize in the whole model.
    reduced = replace(trial, case=found.case, recipe=found.recipe)
    differs, options = difference(reduced), recipe_facts(reduced.target, reduced.recipe)
    while same := inquiry.issues.named(folder_name(sign := found.signature)):
        missing = ", ".join(asked_for(same, options))
        if not (why := differs(same) or (f"without {missing}" if missing else "")):
            if known.known_issues:
                return Examination(verdict, known=known.known_issues[0].id)
            return Examination(verdict, found, known=same.id)
        found = replace(found, signature=replace(sign, fine=f"{sign.fine} | {why}"))
    return Examination(verdict, found, unexplained=known.cut)


def known_by(finding: Finding, issues: Sequence[KnownIssue], runner: Runner, effort: Effort) -> KnownIssue | None:
    """Which of `issues` explains a finding, all of it: those that nobody knew of when it was examined."""
    asked = KnownIssues.of(issues, finding.installed.target.name)
    if not asked:
        return None
    trial = Trial(finding.case, finding.installed, finding.recipe, runner)
    return known_of(trial, Inquiry.begun(asked, effort, runner))


def to_save(finding: Finding, fixed: Mapping[str, SavedCase], runner: Runner) -> SavedCase:
    """A finding to save, by another name where its own is that of a case that is `fixed`, by its id: of the same
    signature, and of another cause if that case is right here."""
    saved = finding.to_save()
    while there := fixed.get(saved.id):
        if reproduces(there, look(Trial(there.case, finding.installed, there.recipe, runner), fresh=True)):
            break  # it has come back
        saved = replace(saved, id=other_name(saved.id))
    return saved


def reproduces(saved: SavedCase, verdict: Verdict) -> bool:
    """Whether `verdict` is the failure that `saved` was saved for.

    Results that differ from run to run come of what lay in memory; where it is read as a place, the run ends instead.
    """
    if saved.kind in DEPENDS_ON_RUN:
        ends = (Word.CRASHES, Word.HANGS) if saved.kind == Kind.NONDETERMINISTIC else ()
        return verdict.word is Word.DIVERGES or (verdict.word in ends and verdict.stage == saved.verdict.stage)
    return verdict.failed and coarse(saved.target, verdict) == saved.coarse
