"""The way of one case: observe, judge, known? else confirm, trace back and reduce, sign.

Trial  ->  Examination, with a Finding where the verdict is a failure
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache, partial
from types import MappingProxyType

from driftnet.causes.lookup import recipe_facts
from driftnet.causes.place import Where, class_of, place_of
from driftnet.causes.record import Status
from driftnet.findings.corpus import FIRST_SEEN, SavedCase
from driftnet.findings.issues import NOWHERE, KnownIssue, KnownIssues, Symptom, symptom_of
from driftnet.findings.known import NO_SYMPTOM, Explanation, Other, explain
from driftnet.findings.recognition import TRUSTED_OF_OLD, Recognizer, asked_for
from driftnet.findings.trial import CONFIRMING_RUNS, Confirmed, Trial, blamed, confirm, is_stale_state, look, watch
from driftnet.model.inspect import Case, Feed, nodes
from driftnet.model.signature import DAMAGE, Signature, coarse, fine, folder_name, other_name
from driftnet.model.verdict import DEPENDS_ON_RUN, Kind, Observation, Tier, Verdict, Word
from driftnet.oracle.judge import BEFORE
from driftnet.oracle.tolerances.table import CLEAR_OF_BOUND, CLEAR_OF_STEP
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import BUDGET, MINIMAL, reduce
from driftnet.reduce.trace import trace
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.run.sandbox.allowance import Allowance
from driftnet.targets.environments import Installed, present
from driftnet.targets.recipe import Recipe, canonical, effective, remedied, unquantized
from driftnet.targets.recipe import simpler as simpler_recipes
from driftnet.util.machine import description

MOST_ASKED = 12
"""Nodes of a case that is asked whether it is known before it is reduced to the end: of more there are so many places
to ask that it costs as much as to go on."""

HANG_CALLS = 20  # each takes its whole time limit
HANG_LIMITS = 4.0
"""How many time limits a hang is given once before it is told: what is only slow comes back, on a busy machine too."""

CLEAR = dict.fromkeys((Tier.RUNNING_ERROR, Tier.SAMPLING), CLEAR_OF_BOUND)
CLEAR |= dict.fromkeys((Tier.LOSSLESS, Tier.ARTIFACT, Tier.BUDGET), CLEAR_OF_STEP)
"""How many times its bound an error must be for a reduction step to count; other tiers are exact (1)."""

WEAKER = (
    {Tier.STRUCTURE, Tier.EXACT},
    {Tier.LOSSLESS, Tier.ARTIFACT},
    {Tier.RUNNING_ERROR, Tier.SAMPLING},
    {Tier.BUDGET},
)
"""Tiers, the strongest first.

A failure of one may not be reduced into one of a weaker tier: a target has many small inaccuracies near poles, and a
reduction that may use them slips from the bug it was started for into one of those.
"""


@dataclass(frozen=True)
class Effort:
    """What a finding may cost: `seconds` of CPU time, and `calls` of the target for its reduction; `stop` ends it."""

    seconds: float = 20.0
    calls: int = 500
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, eq=False)
class Finding:
    """A confirmed failure, reduced as far as the effort went.

    answer       digest of what the target answered (`Observation.digest`) in a last run; "" where that did not fail
    symptom      the failure it was first seen by, where that was another one
    ended        how the reduction ended (`Reduced.ended`);   named   the case under the names it was given, if reduced
    where        in the target it fails
    """

    case: Case
    expected: tuple[Feed, ...]
    installed: Installed
    recipe: Recipe
    verdict: Verdict
    signature: Signature
    runs: int
    reproduced: int
    answer: str = ""
    symptom: str = ""
    ended: str = MINIMAL
    named: Case | None = None
    where: Where = NOWHERE

    def to_save(self) -> SavedCase:
        """The finding as a case for the corpus: open, or flaky with its rate."""
        return SavedCase(
            id=folder_name(self.signature),
            case=self.case,
            expected=self.expected,
            target=self.installed.target.name,
            recipe=self.recipe,
            coarse=self.signature.coarse,
            fine=self.signature.fine,
            verdict=self.verdict,
            status=Status.OPEN if self.reproduced == self.runs else Status.FLAKY,
            seen=(self.installed.release,),
            machine=description(),
            runs=self.runs,
            reproduced=self.reproduced,
            answer=self.answer,
            note=f"{FIRST_SEEN}{self.symptom}" if self.symptom else "",
            unfinished=self.ended != MINIMAL,
        )


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


class KnownError(Exception):
    """What is being reduced is known, as far as it was reduced then."""

    def __init__(self, issue: KnownIssue, fewest: Trial) -> None:
        super().__init__(issue.id)
        self.issue, self.fewest = issue, fewest


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
    verdict, seen = watch(trial)
    if not verdict.failed or seen is None:
        return Examination(verdict)
    issues = KnownIssues.of(known_issues, trial.target.name)
    recognizer, failed = _recognizer(trial, verdict), _symptom(trial, verdict, seen)
    recognized = recognizer.recognized(issues, failed)
    issue = recognized.issue if recognized else met.get(failed)
    sure = recognized is None or recognized.sure
    if issue and sure and (care is Care.NONE or (care is Care.REST and not recognized)):
        return Examination(verdict, known=issue.id, recognized=issue.id, symptom=failed)
    inquiry = Inquiry.begun(issues, effort or Effort(), trial.runner, trusting=care is not Care.ALL)
    trial = trial.hurried(verdict, seen)
    found = replace(_examined(trial, verdict, seen, inquiry), symptom=failed)
    return replace(found, recognized=issue.id, verified=not inquiry.trusting) if issue and sure else found


def _examined(trial: Trial, verdict: Verdict, seen: Observation, inquiry: Inquiry) -> Examination:
    """What comes of a failure. What known issues explain has failed by itself, cut out; and what they leave of a case
    is confirmed when it is reduced."""
    simpler, cause, observed = _simpler(trial, verdict, seen)
    known = _explained(simpler, cause, observed, inquiry)
    if known.rest is None:
        shown = tuple((issue.id, replace(simpler, case=part)) for issue, part in known.shown)
        return Examination(verdict, known=known.known_issues[0].id, shown=shown)
    if not known.known_issues:
        confirmed = look(trial, fresh=True)
        if not confirmed.failed and not confirm(trial).failed:
            return Examination(confirmed, unconfirmed=verdict, again=1 + CONFIRMING_RUNS)
    try:
        found = pursue(replace(simpler, case=known.rest), inquiry)
    except ExhaustedError:
        return Examination(verdict, unexplained=True)
    except KnownError as e:
        return Examination(verdict, known=e.issue.id, fewest=e.fewest, shown=((e.issue.id, e.fewest),))
    if found is None:
        return Examination(verdict, unconfirmed=verdict, again=2 * CONFIRMING_RUNS)
    # Reduced, it may turn out to be one that the known issues did not recognize in the whole model.
    reduced = replace(trial, case=found.case, recipe=found.recipe)
    differs, options = difference(reduced), recipe_facts(reduced.target, reduced.recipe)
    while same := inquiry.issues.named(folder_name(sign := found.signature)):
        missing = ", ".join(asked_for(same, options))
        if not (why := differs(same) or (f"without {missing}" if missing else "")):
            return Examination(verdict, found, known=same.id)
        found = replace(found, signature=replace(sign, fine=f"{sign.fine} | {why}"))
    return Examination(verdict, found, unexplained=known.cut)


def known_by(finding: Finding, issues: Sequence[KnownIssue], runner: Runner, effort: Effort) -> KnownIssue | None:
    """Which of `issues` explains a finding, all of it: those that nobody knew of when it was examined."""
    asked = KnownIssues.of(issues, finding.installed.target.name)
    if not asked:
        return None
    trial = Trial(finding.case, finding.installed, finding.recipe, runner)
    return _known(trial, Inquiry.begun(asked, effort, runner))


def _known(trial: Trial, inquiry: Inquiry, shown: tuple[Verdict, Observation] | None = None) -> KnownIssue | None:
    """The known issue that explains the failure of a reduced case, all of it. shown: what a run of it showed."""
    verdict, seen = shown or watch(trial)
    if not verdict.failed or seen is None:
        return None
    simpler, cause, observed = _simpler(trial, verdict, seen)
    known = _explained(simpler, cause, observed, replace(inquiry, trusting=True))
    return known.known_issues[0] if known.rest is None else None


def _is_recognized(trial: Trial, verdict: Verdict, seen: Observation, inquiry: Inquiry) -> bool:
    """Whether a failure is surely known without a run."""
    found = _recognizer(trial, verdict).recognized(inquiry.issues, _symptom(trial, verdict, seen))
    return found is not None and found.sure


def _symptom(trial: Trial, verdict: Verdict, seen: Observation | None) -> Symptom:
    """How `trial` failed; that of no failure where it did not."""
    if not verdict.failed:
        return NO_SYMPTOM
    where = place_of(trial.target, verdict, seen)
    return symptom_of(coarse(trial.target.name, verdict), verdict.culprits, verdict.output, where)


def _recognizer(trial: Trial, verdict: Verdict) -> Recognizer:
    """Of a failure with `verdict`. What is wrong before it is quantized is so whatever quantizes it."""
    tensors = partial(trial.runner.reference.computed, trial.case)
    recipe = unquantized(trial.target, trial.recipe) if verdict.message.startswith(BEFORE) else trial.recipe
    trusted = TRUSTED_OF_OLD if present(trial.installed) else None
    return Recognizer(trial.case, recipe_facts(trial.target, recipe), tensors, trusted)


def _simpler(trial: Trial, verdict: Verdict, seen: Observation) -> tuple[Trial, Verdict, Observation]:
    """A simpler recipe by which it fails too, with what it shows, where that tells more: one that does not quantize, or
    one by which it is executed that ends in the error that converting ended in; else what is given.

    Calibration runs the model: what cannot be run crashes a quantizer, through no fault of its own. Weights that are
    converted wrongly are quantized wrongly. And a converter that fixes shapes computes them as the runtime would.
    """
    early = verdict.stage == "convert" and verdict.kind == Kind.ERROR
    may = early or verdict.stage == "quantize" or verdict.message.startswith(BEFORE)
    sort = _symptom(trial, verdict, None).sort
    for recipe in simpler_recipes(trial.target, trial.recipe) if may else ():
        simpler = replace(trial, recipe=recipe)
        if early or not simpler.quantizes:
            found, observed = watch(simpler)
            alike = found.failed and (found.word is Word.DIVERGES) == (verdict.word is Word.DIVERGES)
            later = found.stage == "execute" and _symptom(simpler, found, None).sort == sort
            if observed and alike and (later or not early):
                return simpler, found, observed
    return trial, verdict, seen


def explanation(
    trial: Trial, verdict: Verdict, known_issues: Sequence[KnownIssue], seen: Observation | None = None
) -> Explanation:
    """How far the saved cases account for `trial` failing with `verdict`, as was `seen`."""
    issues = KnownIssues.of(known_issues, trial.target.name)
    return _explained(trial, verdict, seen, Inquiry.begun(issues, Effort(seconds=math.inf), trial.runner))


def _explained(trial: Trial, verdict: Verdict, seen: Observation | None, inquiry: Inquiry) -> Explanation:
    """How far known issues account for `trial` failing with `verdict`, as was seen."""
    name, recognizer, issues = trial.target.name, _recognizer(trial, verdict), inquiry.issues
    failed = _symptom(trial, verdict, seen)

    def failure(part: Case) -> Symptom:
        if part is trial.case:  # what was seen may be recognized, however much is spent
            return failed
        if inquiry.spent:
            raise ExhaustedError
        return _symptom(trial, *watch(replace(trial, case=part)))

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


def to_save(finding: Finding, fixed: Mapping[str, SavedCase], runner: Runner) -> SavedCase:
    """A finding to save, by another name where its own is that of a case that is `fixed`, by its id: of the same
    signature, and of another cause if that case is right here."""
    saved = finding.to_save()
    while there := fixed.get(saved.id):
        if reproduces(there, look(Trial(there.case, finding.installed, there.recipe, runner), fresh=True)):
            break  # it has come back
        saved = replace(saved, id=other_name(saved.id))
    return saved


def is_gone(before: str, after: str) -> bool:
    """Whether a failure with the coarse signature `before` is cured where one with `after` is seen, "" for none. A hang
    or an error is when something else is the matter; a wrong value may still be there behind that."""
    return not after or (before.split("/")[2] in (Kind.HANG, Kind.ERROR) and after != before)


def pursue(trial: Trial, inquiry: Inquiry) -> Finding | None:
    """Trace a failure back to where it starts, reduce it, confirm what is left, and sign it; None when it is gone.

    Of the first tensor that is wrong by itself, once the fewest nodes are left that fail, and of what is left in the
    end, the known issues are asked again: what they explain then is not reduced any further, nor confirmed. Raises
    KnownError for it.
    """
    first, name, record = trial, trial.target.name, trial.runner.reference.record
    verdict, symptom, ended, calls = look(trial), "", MINIMAL, inquiry.effort.calls
    named: Case | None = None
    shown: tuple[Trial, Verdict, Observation] | None = None

    def examined(part: Case) -> Verdict:
        if inquiry.spent:
            raise ExhaustedError
        return look(replace(trial, case=part))

    def check_new(case: Case, recipe: Recipe, anew: bool = True) -> None:
        """Raise KnownError if it is; anew: whether or not it is recognized without a run."""
        part = replace(trial, case=case, recipe=recipe)
        is_it = shown and (shown[0].case, shown[0].recipe) == (case, recipe)
        here = (shown[1], shown[2]) if shown and is_it else None
        asked = nodes(case) <= MOST_ASKED if anew else here and _is_recognized(part, *here, inquiry)
        if asked and (issue := _known(part, inquiry, here)):
            raise KnownError(issue, part)

    def reproduces(case: Case, recipe: Recipe) -> str:
        """What is wrong, in words; "" where nothing is, or something else."""
        nonlocal shown
        if inquiry.spent:
            raise ExhaustedError
        candidate = replace(trial, case=case, recipe=recipe)
        if candidate.quantizes and not quantized:  # a default may quantize: that is no simpler case
            return ""
        # What a damaged heap leads to depends on what the process did before.
        found, observed = watch(candidate, fresh=verdict.kind == "SIGABRT")
        if not (is_clear(found) and coarse(name, found) == wanted and _rank(found) <= _rank(verdict)):
            return ""
        if class_of(found) != class_of(verdict):  # a range that is another tensor's is no operator that is gone
            return ""
        if observed:
            shown = candidate, found, observed
        return found.message if found.word is Word.DIVERGES else wanted

    try:
        with trial.runner.within(inquiry.allowance):
            if verdict.surfaces_late and (source := trace(trial.case, examined, record)):
                if coarse(name, source.verdict) != coarse(name, verdict):
                    symptom = f"{verdict.message}; the first tensor that is wrong by itself: {source.verdict.message}"
                trial, verdict = replace(trial, case=source.case), source.verdict
                check_new(trial.case, trial.recipe)
            wanted, quantized = coarse(name, verdict), trial.quantizes
            if verdict.word is Word.HANGS:
                calls = min(calls, HANG_CALLS)
            reduced = reduce(trial.case, trial.recipe, trial.target, reproduces, record, calls=calls, simpler=check_new)
            trial, ended = replace(trial, case=reduced.case, recipe=reduced.recipe), reduced.ended
            named = reduced.named
    except ReferenceError as e:
        symptom = f"not reduced: {e}"
    except ExhaustedError:
        ended = BUDGET
    try:
        if issue := _known(trial, inquiry):  # a run in fresh processes costs more than asking
            raise KnownError(issue, trial)
    except ExhaustedError:
        ended = BUDGET
    confirmed = confirm(trial)
    if not confirmed.failed:  # its failure needed what a worker had done before
        trial, named = first, None
        confirmed = confirm(trial)
    if confirmed.failed and confirmed.verdict.word is Word.HANGS:
        trial, confirmed = _given_time(trial, confirmed)
    if not confirmed.failed:
        return None
    if is_stale_state(trial, confirmed.verdict):
        confirmed = confirmed._replace(verdict=replace(confirmed.verdict, kind=Kind.STALE_STATE))
    return replace(signed(trial, confirmed), symptom=symptom, ended=ended, named=named)


def _given_time(trial: Trial, confirmed: Confirmed) -> tuple[Trial, Confirmed]:
    """A confirmed hang, given HANG_LIMITS times its limit: still one, what else fails by then, or only slow. What hangs
    in some runs may come back in this one, and is not told then: slow is far more common."""
    patient = replace(trial, patience=HANG_LIMITS * trial.runner.seconds)
    try:
        found = look(patient, fresh=True)
    except ExhaustedError:
        return trial, confirmed
    if found.word is Word.HANGS:
        return trial, confirmed._replace(verdict=found)
    return (patient, confirm(patient)) if found.failed else (trial, confirmed._replace(failed=0))


def signed(trial: Trial, confirmed: Confirmed) -> Finding:
    """A confirmed failure as a finding: who is wrong, what the target answers, its signature."""
    verdict, answer, where = blamed(trial, confirmed.verdict)
    sign = coarse(trial.target.name, verdict)
    return Finding(
        trial.case,
        trial.runner.reference.run(trial.case).outputs,
        trial.installed,
        trial.recipe,
        verdict,
        Signature(sign, fine(sign, trial.case)),
        confirmed.runs,
        confirmed.failed,
        answer,
        where=where,
    )


def is_clear(verdict: Verdict) -> bool:
    """Whether a failure is clear of the edge, so that it does not come and go while the case shrinks."""
    return verdict.failed and verdict.error >= CLEAR.get(verdict.tier, 1.0) * verdict.bound


def _rank(verdict: Verdict) -> int:
    return next(rank for rank, tiers in enumerate(WEAKER) if verdict.tier in tiers)


def reproduces(saved: SavedCase, verdict: Verdict) -> bool:
    """Whether `verdict` is the failure that `saved` was saved for.

    Results that differ from run to run come of what lay in memory; where it is read as a place, the run ends instead.
    """
    if saved.kind in DEPENDS_ON_RUN:
        ends = (Word.CRASHES, Word.HANGS) if saved.kind == Kind.NONDETERMINISTIC else ()
        return verdict.word is Word.DIVERGES or (verdict.word in ends and verdict.stage == saved.verdict.stage)
    return verdict.failed and coarse(saved.target, verdict) == saved.coarse
