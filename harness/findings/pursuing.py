"""Pursuing: a failure traced back to where it starts, reduced, confirmed and signed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driftnet.causes.place import Where, class_of
from driftnet.causes.record import Status
from driftnet.findings.corpus import FIRST_SEEN, SavedCase
from driftnet.findings.explaining import Inquiry, is_recognized, known_of
from driftnet.findings.issues import NOWHERE, KnownIssue
from driftnet.findings.trial import Confirmed, Trial, blamed, confirm, is_stale_state, look, watch
from driftnet.model.inspect import Case, Feed, nodes
from driftnet.model.signature import Signature, coarse, fine, folder_name
from driftnet.model.verdict import Kind, Observation, Tier, Verdict, Word
from driftnet.oracle.tolerances.table import CLEAR_OF_BOUND, CLEAR_OF_STEP
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import BUDGET, MINIMAL, reduce
from driftnet.reduce.trace import trace
from driftnet.run.reference import ReferenceError
from driftnet.targets.environments import Installed
from driftnet.targets.recipe import Recipe
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


class KnownError(Exception):
    """What is being reduced is known, as far as it was reduced then."""

    def __init__(self, issue: KnownIssue, fewest: Trial) -> None:
        super().__init__(issue.id)
        self.issue, self.fewest = issue, fewest


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
        asked = nodes(case) <= MOST_ASKED if anew else here and is_recognized(part, *here, inquiry)
        if asked and (issue := known_of(part, inquiry, here)):
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
        if issue := known_of(trial, inquiry):  # a run in fresh processes costs more than asking
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
