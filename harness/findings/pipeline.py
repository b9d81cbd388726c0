"""The way of one case: observe, judge, confirm, known? else trace back and reduce, sign.

Case + Installed target + Recipe  ->  Examination, with a Finding where the verdict is a failure
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driftnet.findings.corpus import SavedCase, Status
from driftnet.findings.known import Explanation, KnownIssue, Symptom, explain, symptom_of
from driftnet.model.inspect import Case, Feed, custom_operators, validate_feed
from driftnet.model.signature import Signature, coarse, fine, folder_name
from driftnet.model.verdict import Kind, Observation, Tier, Verdict, Word
from driftnet.oracle.judge import judge, who_is_wrong
from driftnet.oracle.tolerances.table import CLEAR_OF_BOUND, CLEAR_OF_STEP
from driftnet.reduce.problem import ExhaustedError
from driftnet.reduce.reducer import BUDGET, MINIMAL, reduce
from driftnet.reduce.trace import trace
from driftnet.run.reference import ReferenceError
from driftnet.run.refusals import explained
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.recipe import Recipe, canonical, effective, remedied
from driftnet.targets.recipe import simpler as simpler_recipes
from driftnet.util.errors import UserError
from driftnet.util.machine import description

CONFIRMING_RUNS = 5

HURRIED = 0.1
"""The share of its time limit that a case which used it up is given from then on."""

HANG_CALLS = 20  # each takes its whole time limit

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
    """What a finding may cost: `seconds` of wall time, and `calls` of the target for its reduction; `stop` ends it."""

    seconds: float = 20.0
    calls: int = 500
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, eq=False)
class Finding:
    """A confirmed failure, reduced as far as the effort went.

    answer       digest of what the target answered (`Observation.digest`) in a last run; "" where that did not fail
    symptom      the failure it was first seen by, where that was another one
    ended        how the reduction ended (`Reduced.ended`)
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
            note=f"first seen as: {self.symptom}" if self.symptom else "",
            unfinished=self.ended != MINIMAL,
        )


@dataclass(frozen=True, eq=False)
class Examination:
    """What came of one case; `known` names the open case that explains a failure.

    unconfirmed   a failure that fresh processes did not show again: it has no finding
    """

    verdict: Verdict
    finding: Finding | None = None
    known: str = ""
    unconfirmed: Verdict | None = None

    @property
    def confirmed(self) -> bool:
        return self.unconfirmed is None


def examine(
    case: Case,
    installed: Installed,
    recipe: Recipe,
    runner: Runner,
    known_issues: Sequence[KnownIssue] = (),
    *,
    effort: Effort | None = None,
) -> Examination:
    """Run one case the whole way. Raises nothing on account of the target or of the reference.

    known_issues   of the saved cases that count as known
    """
    recipe = canonical(installed.target, recipe)
    verdict = look(case, installed, recipe, runner)
    if not verdict.failed:
        return Examination(verdict)
    # Many runs of this case and of smaller ones are to come; none of them should take much longer than the first.
    with runner.hurried(
        HURRIED * runner.last_seconds if verdict.word is Word.HANGS else max(1.0, 10 * runner.last_seconds)
    ):
        return _examine_failure(case, installed, recipe, verdict, runner, known_issues, effort or Effort())


def _examine_failure(
    case: Case,
    installed: Installed,
    recipe: Recipe,
    verdict: Verdict,
    runner: Runner,
    known_issues: Sequence[KnownIssue],
    effort: Effort,
) -> Examination:
    deadline = time.monotonic() + effort.seconds

    def spent() -> bool:
        return effort.stop() or time.monotonic() > deadline

    confirmed = look(case, installed, recipe, runner, fresh=True)
    if not confirmed.failed and not confirm(case, installed, recipe, runner)[1]:
        return Examination(confirmed, unconfirmed=verdict)
    recipe, cause = _unquantized(case, installed, recipe, verdict, runner)
    known = explanation(case, installed, recipe, cause, runner, known_issues, spent)
    if known.rest is None:
        return Examination(verdict, known=known.known_issues[0].id)
    finding = pursue(known.rest, installed, recipe, runner, effort.calls, spent)
    if finding is None:
        return Examination(verdict, unconfirmed=verdict)
    # Reduced, it may turn out to be one that the known_issues did not recognize in the whole model.
    if same := [issue.id for issue in known_issues if issue.id == folder_name(finding.signature)]:
        return Examination(verdict, finding, known=same[0])
    recipe, cause = _unquantized(finding.case, installed, finding.recipe, finding.verdict, runner)
    known = explanation(finding.case, installed, recipe, cause, runner, known_issues, spent)
    return Examination(verdict, finding, known="" if known.rest else known.known_issues[0].id)


def _unquantized(
    case: Case, installed: Installed, recipe: Recipe, verdict: Verdict, runner: Runner
) -> tuple[Recipe, Verdict]:
    """A simpler recipe that does not quantize and fails too, with its verdict; else what is given.

    Calibration runs the model: what cannot be run crashes a quantizer, through no fault of its own. And weights that
    are converted wrongly are quantized wrongly.
    """
    for simpler in simpler_recipes(installed.target, recipe) if verdict.stage == "quantize" else ():
        if not _quantizes(installed, simpler):
            found = look(case, installed, simpler, runner)
            if found.failed and (found.word is Word.DIVERGES) == (verdict.word is Word.DIVERGES):
                return simpler, found
    return recipe, verdict


def look(case: Case, installed: Installed, recipe: Recipe, runner: Runner, *, fresh: bool = False) -> Verdict:
    """The verdict on one run of `case`, without confirmation; in a new process when `fresh`."""
    return watch(case, installed, recipe, runner, fresh=fresh)[0]


def watch(
    case: Case, installed: Installed, recipe: Recipe, runner: Runner, *, fresh: bool = False
) -> tuple[Verdict, Observation | None]:
    """What `look` says, and what was observed; None where there was no need to ask the target."""
    if refused := _refused(case, runner):
        return refused, None
    observation = runner.observe(case, installed, recipe, fresh=fresh)
    options = effective(installed.target, recipe)
    return judge(case, observation, target=installed.target, options=options, reference=runner.reference), observation


def _refused(case: Case, runner: Runner) -> Verdict | None:
    """The verdict on a case that no target is to blame for."""
    if custom := custom_operators(case.proto):
        node, op = custom[0]
        message = f"operator {op} (node {node!r}) is none of ONNX, nor registered: its shape is unknown"
        if "::" in op:
            message = f"operator {op} (node {node!r}) is a custom operator that nobody registered: its shape is unknown"
        return Verdict(Word.REJECTS, message=message, stage="convert", rule="custom-operator", culprits=tuple(custom))
    try:
        for feed in (*case.feeds, *case.calibration):
            validate_feed(case.proto, feed, "a feed")
    except UserError as e:  # onnxruntime itself lets one symbolic dim have two sizes
        return Verdict(Word.INVALID, message=e.message)
    reference = runner.reference.run(case)
    if reference.error:
        return Verdict(Word.INVALID, message=explained(reference.error))
    if reference.broken:
        return Verdict(Word.ABSTAINS, message=reference.broken)
    names = [value.name for value in case.proto.graph.output]
    if unsaveable := [name for name in names if any(name not in outputs for outputs in reference.outputs)]:
        return Verdict(Word.ABSTAINS, message=f"output {unsaveable[0]!r} is no tensor that numpy could hold")
    return None


def confirm(case: Case, installed: Installed, recipe: Recipe, runner: Runner) -> tuple[Verdict, int]:
    """Run `case` in fresh workers of two templates: the commonest failure among the verdicts (else the first one), and
    how many failed.

    Results that differ from run to run make its kind `nondeterministic`.
    """
    verdicts = [look(case, installed, recipe, runner, fresh=True) for _ in range(CONFIRMING_RUNS // 2)]
    runner.renew()
    verdicts += [look(case, installed, recipe, runner, fresh=True) for _ in range(CONFIRMING_RUNS - len(verdicts))]
    failures = [verdict for verdict in verdicts if verdict.failed]
    if not failures:
        return verdicts[0], 0
    verdict = Counter(failures).most_common(1)[0][0]
    if verdict.word is Word.DIVERGES and len({(v.word, v.kind, v.error) for v in verdicts}) > 1:
        message = f"{len(failures)} of {len(verdicts)} runs failed, with results that differ; {verdict.message}"
        verdict = dataclasses.replace(verdict, kind=Kind.NONDETERMINISTIC, message=message)
    return verdict, len(failures)


def explanation(
    case: Case,
    installed: Installed,
    recipe: Recipe,
    verdict: Verdict,
    runner: Runner,
    known_issues: Sequence[KnownIssue],
    spent: Callable[[], bool] = lambda: False,
) -> Explanation:
    """How far the saved cases account for `case` failing with `verdict`; not at all once the effort is `spent`."""
    name = installed.target.name

    def failure(part: Case) -> Symptom:
        if spent():
            raise ExhaustedError
        found = verdict if part is case else look(part, installed, recipe, runner)
        return symptom_of(coarse(name, found), found.culprits, found.output) if found.failed else Symptom()

    def cured(part: Case, remedy: Recipe) -> bool:
        found = look(part, installed, remedied(installed.target, recipe, remedy), runner)
        return is_gone(coarse(name, verdict), coarse(name, found) if found.failed else "")

    try:
        return explain(
            [issue for issue in known_issues if issue.target == name], case, failure, runner.reference.record, cured
        )
    except (ReferenceError, ExhaustedError):
        return Explanation((), case)


def is_gone(before: str, after: str) -> bool:
    """Whether a failure with the coarse signature `before` is cured where one with `after` is seen, "" for none. A hang
    or an error is when something else is the matter; a wrong value may still be there behind that."""
    return not after or (before.split("/")[2] in (Kind.HANG, Kind.ERROR) and after != before)


def pursue(
    case: Case, installed: Installed, recipe: Recipe, runner: Runner, calls: int, spent: Callable[[], bool]
) -> Finding | None:
    """Trace a failure back to where it starts, reduce it, confirm what is left, and sign it; None when it is gone."""
    name, record, symptom, ended = installed.target.name, runner.reference.record, "", MINIMAL
    first_case, first_recipe = case, recipe
    verdict = look(case, installed, recipe, runner)

    def examined(part: Case) -> Verdict:
        if spent():
            raise ExhaustedError
        return look(part, installed, recipe, runner)

    try:
        if verdict.surfaces_late and (source := trace(case, examined, record)):
            if coarse(name, source.verdict) != coarse(name, verdict):
                symptom = f"{verdict.message}; the first tensor that is wrong by itself: {source.verdict.message}"
            case, verdict = source.case, source.verdict
        wanted, quantized = coarse(name, verdict), _quantizes(installed, recipe)

        def reproduces(candidate: Case, simpler: Recipe) -> str:
            """What is wrong, in words; "" where nothing is, or something else."""
            if spent():
                raise ExhaustedError
            if _quantizes(installed, simpler) and not quantized:  # a default may quantize: that is no simpler case
                return ""
            # What a damaged heap leads to depends on what the process did before.
            found = look(candidate, installed, simpler, runner, fresh=verdict.kind == "SIGABRT")
            if not (is_clear(found) and coarse(name, found) == wanted and _rank(found) <= _rank(verdict)):
                return ""
            return found.message if found.word is Word.DIVERGES else wanted

        if verdict.word is Word.HANGS:
            calls = min(calls, HANG_CALLS)
        reduced = reduce(case, recipe, installed.target, reproduces, record, budget=math.inf, calls=calls)
        case, recipe, ended = reduced.case, reduced.recipe, reduced.ended
    except ReferenceError as e:
        symptom = f"not reduced: {e}"
    except ExhaustedError:
        ended = BUDGET
    verdict, reproduced = confirm(case, installed, recipe, runner)
    if not reproduced:  # its failure needed what a worker had done before
        case, recipe = first_case, first_recipe
        verdict, reproduced = confirm(case, installed, recipe, runner)
    if not reproduced:
        return None
    if is_stale_state(case, installed, recipe, verdict, runner):
        verdict = dataclasses.replace(verdict, kind=Kind.STALE_STATE)
    verdict, answer = blamed(case, installed, recipe, verdict, runner)
    sign = coarse(name, verdict)
    signature = Signature(sign, fine(sign, case))
    expected = runner.reference.run(case).outputs
    runs = CONFIRMING_RUNS
    return Finding(case, expected, installed, recipe, verdict, signature, runs, reproduced, answer, symptom, ended)


def blamed(case: Case, installed: Installed, recipe: Recipe, verdict: Verdict, runner: Runner) -> tuple[Verdict, str]:
    """A confirmed failure, with who is wrong, the target or the reference, and the digest of the target's answer."""
    found, observation = watch(case, installed, recipe, runner, fresh=True)
    if observation is None or not found.failed:
        return verdict, ""
    options = effective(installed.target, recipe)
    wrong = who_is_wrong(found, case, observation, target=installed.target, options=options, reference=runner.reference)
    return dataclasses.replace(verdict, blame=wrong), observation.digest


def _quantizes(installed: Installed, recipe: Recipe) -> bool:
    return installed.target.scheme(effective(installed.target, recipe)) is not None


def is_clear(verdict: Verdict) -> bool:
    """Whether a failure is clear of the edge, so that it does not come and go while the case shrinks."""
    return verdict.failed and verdict.error >= CLEAR.get(verdict.tier, 1.0) * verdict.bound


def _rank(verdict: Verdict) -> int:
    return next(rank for rank, tiers in enumerate(WEAKER) if verdict.tier in tiers)


def is_stale_state(case: Case, installed: Installed, recipe: Recipe, verdict: Verdict, runner: Runner) -> bool:
    """Whether the feed that fails would be right in a session of its own."""
    if len(case.feeds) < 2 or verdict.word is not Word.DIVERGES:
        return False
    alone = dataclasses.replace(case, feeds=(case.feeds[verdict.feed],), calibration=case.calibration or case.feeds)
    return look(alone, installed, recipe, runner, fresh=True).word is Word.AGREES


def reproduces(saved: SavedCase, verdict: Verdict) -> bool:
    """Whether `verdict` is the failure that `saved` was saved for."""
    if saved.kind in (Kind.NONDETERMINISTIC, Kind.STALE_STATE):
        return verdict.word is Word.DIVERGES
    return verdict.failed and coarse(saved.target, verdict) == saved.coarse
