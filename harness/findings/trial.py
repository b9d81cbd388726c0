"""Trial: one case on one target under one recipe, and what runs of it show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from driftnet.causes.place import Where, place_of
from driftnet.model import external_data
from driftnet.model.framed import framed
from driftnet.model.inspect import NOT_REGISTERED, Case, custom_operators, validate_feed
from driftnet.model.verdict import Kind, Observation, Outcome, Verdict, Word
from driftnet.oracle.judge import judge, who_is_wrong
from driftnet.oracle.second_opinion import Blame
from driftnet.reduce.problem import ExhaustedError
from driftnet.run.reference import Reference
from driftnet.run.refusals import explained
from driftnet.run.runner import Runner
from driftnet.run.sandbox.inside import LAYOUTS
from driftnet.targets.environments import Installed
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe, effective
from driftnet.util.apart import Ask, apart, tried
from driftnet.util.errors import UserError
from driftnet.util.limits import ExceededError, bounded
from driftnet.util.spent import part

CONFIRMING_RUNS = 5
CONFIRMATION = "confirmation"
"""The part of the work (`driftnet.util.spent`) that it is."""

JUDGING_SECONDS, JUDGING_MIB, LEAST_SECONDS = 5.0, 1024, 0.2
"""What the oracle may take for one run, of CPU time and memory: so much, and so much more for each MiB of model and
feeds; but no more memory than a worker, and no more time than a budget leaves, though always so little. Of 934 runs of
generated cases none was judged in more than 0.13 s."""

TOO_MUCH = "too-much"
"""The rule by which it abstains where that is exceeded."""

UNANSWERED = frozenset({Outcome.CRASH, Outcome.MEMORY, Outcome.HANG})
"""Of a stage that ended so there is nothing to judge but a few lines of text: no fork is made for that, which costs
more than the run itself where this process is large."""

T = TypeVar("T")
Ran = tuple[Verdict, Observation | None]

HANG_LIMITS = 4.0
"""How many time limits a hang is given before anything else is done about it, and once more, reduced, before it is
told: what is only slow comes back, on a busy machine too."""

HURRIED = 0.1
"""The share of its time limit that a case which used it up is given from then on."""


def takes_samples(target: Target, recipe: Recipe) -> bool:
    """Whether what is quantized under `recipe` depends on samples."""
    scheme = target.scheme(effective(target, recipe))
    return scheme is not None and (scheme.activation_codes is not None or scheme.moves_biases or scheme.told)


@dataclass(frozen=True, eq=False)
class Trial:
    """A case, the target and the recipe it is run with, and the workers to run it in.

    patience   seconds after which a stage counts as hanging, where that is not what `runner` says
    layout     of the heap of the process that it runs in
    """

    case: Case
    installed: Installed
    recipe: Recipe
    runner: Runner
    patience: float = math.inf
    layout: int = 0

    @property
    def target(self) -> Target:
        """What is declared of the target."""
        return self.installed.target

    @property
    def options(self) -> dict[str, Any]:
        """The options in effect."""
        return effective(self.target, self.recipe)

    @property
    def quantizes(self) -> bool:
        """Whether the recipe quantizes anything."""
        return self.target.scheme(self.options) is not None

    @property
    def calibrates(self) -> bool:
        """Whether what is quantized depends on samples."""
        return takes_samples(self.target, self.recipe)

    @property
    def limit(self) -> float:
        """Seconds after which a stage counts as hanging."""
        return self.runner.seconds if self.patience == math.inf else self.patience

    @property
    def patient(self) -> Trial:
        """The same with HANG_LIMITS times the limit of `runner`."""
        return replace(self, patience=HANG_LIMITS * self.runner.seconds)

    def within(self, seconds: float) -> Trial:
        """The same, with no longer than that for a stage."""
        return replace(self, patience=min(self.limit, seconds))

    def hurried(self, verdict: Verdict, seen: Observation) -> Trial:
        """The same for many more runs, none of which should take much longer than the one that showed `verdict`."""
        longest = max((run.seconds for run in seen.stages), default=0.0)
        enough = HURRIED * longest if verdict.word is Word.HANGS else max(1.0, 10 * longest)
        return self.within(enough)


def look(trial: Trial, *, fresh: bool = False) -> Verdict:
    """The verdict on one run, without confirmation; in a new process when `fresh`. Raises ExhaustedError as `watch`."""
    return watch(trial, fresh=fresh)[0]


def watch(trial: Trial, *, fresh: bool = False, like: Ran | None = None) -> Ran:
    """What `look` says, and what was observed; None where there was no need to ask the target, or what it said, or the
    model, takes too much to be judged.

    like   what another run of this case and scheme came to: the same answers are not judged again

    Raises ExhaustedError where the allowance of the runner, if there is one, is spent before that is known, and
    UserError (kind "target") where a statement of the target's own file raises, or a function of it gives what is of
    another type than the interface says: that is no failure of the system.
    """
    allowance, most = trial.runner.allowance, _most(trial)
    try:
        verdict, seen = _watched(trial, most, fresh, like)
        mistake = seen.last.mistake if seen and verdict.failed else ""
        if mistake:  # a damaged heap makes any statement fail, once
            again = _watched(trial, most, True, like)[1]
            mistake = mistake if again and again.last.mistake == mistake else ""
    except ExceededError as e:
        message = f"judging this takes {e}"
        if most.hurried:
            raise ExhaustedError(message) from None
        verdict, seen, mistake = Verdict(Word.ABSTAINS, message=message, rule=TOO_MUCH), None, ""
    if allowance and allowance.cut:
        raise ExhaustedError(allowance.cut)
    if seen and mistake:
        raise UserError(
            f"the plug-in of target {trial.target.name} is broken: {mistake}, {seen.last.stage}: {seen.last.message}",
            hint="mend it: driftnet.targets.interface.Target says what each function takes and returns; what the "
            "system itself reports is raised as a StageError",
            kind="target",
        )
    return verdict, seen


def _watched(trial: Trial, most: _Most, fresh: bool, like: Ran | None) -> Ran:
    seen = bounded(lambda: _seen(trial, fresh), seconds=most.seconds, mib=most.mib)
    if isinstance(seen, Verdict):
        return seen, None
    if seen.last.outcome is Outcome.CUT:
        raise ExhaustedError(seen.last.message)
    if like and like[1] and seen.outputs and like[1].digest == seen.digest:
        return like[0], seen
    reference = trial.runner.reference
    ask = partial(judge, target=trial.target, options=trial.options, reference=reference)
    if seen.last.outcome in UNANSWERED:
        return bounded(lambda: ask(trial.case, seen), seconds=most.seconds, mib=most.mib), seen
    return _judged(most, reference, lambda: ask(trial.case, seen), Verdict), seen


def watch_cut(trial: Trial, whole: Case) -> Ran:
    """What `watch` says of a case that was cut out of `whole`; what it says of it in its frame, where it agrees there:
    then it fails for having been cut out alone."""
    verdict, seen = watch(trial)
    within = framed(whole, trial.case) if verdict.failed else None
    if within is None:
        return verdict, seen
    there, seen_there = watch(replace(trial, case=within))
    return (there, seen_there) if there.word is Word.AGREES else (verdict, seen)


@dataclass(frozen=True)
class _Most:
    """CPU seconds and MiB of memory that work on one run may take. hurried: the time is what a budget leaves."""

    seconds: float
    mib: float
    hurried: bool


def _most(trial: Trial) -> _Most:
    """What such a model is worth."""
    case = trial.case
    mib = (len(case.model) + sum(x.nbytes for feed in case.runs for x in map(np.asarray, feed.values()))) / 2**20
    if case.file:
        mib += external_data.outside(case.proto) / 2**20
    memory = max(JUDGING_MIB, min(JUDGING_MIB * (1 + mib), trial.runner.memory_mib))
    left = max(LEAST_SECONDS, trial.runner.allowance.left) if trial.runner.allowance else math.inf
    usual = JUDGING_SECONDS * (1 + mib)
    return _Most(min(usual, left), memory, left < usual)


def _judged(most: _Most, reference: Reference, work: Callable[[], T], form: type[T]) -> T:
    """What `work` gives, a `form`, where it cannot take this process down: apart, and on probation only here.

    The reference is asked by this process all the same, which keeps its answers.
    """

    def work_apart(ask: Ask) -> bytes:
        reference.ask_by(ask)
        return msgspec.msgpack.encode(work(), enc_hook=plain_number)

    def elsewhere() -> T:
        told = apart(work_apart, seconds=most.seconds, mib=most.mib, answer=reference.answer)
        return msgspec.msgpack.decode(told, type=form)

    return tried(work, elsewhere)


def plain_number(value: Any) -> Any:
    """A number of numpy, or one with its evidence, as the number."""
    return value.item() if isinstance(value, np.generic) else float(value)


def _seen(trial: Trial, fresh: bool) -> Verdict | Observation:
    """What is observed, or the verdict where there is no need to."""
    if refused := _refused(trial):
        return refused
    case, installed, recipe, layout = trial.case, trial.installed, trial.recipe, trial.layout
    return trial.runner.observe(case, installed, recipe, fresh=fresh, layout=layout, timeout=trial.patience)


def _refused(trial: Trial) -> Verdict | None:
    """The verdict on a case that no target is to blame for."""
    case = trial.case
    if unfit := _unfit(case):
        return unfit
    reference = trial.runner.reference.run(case, trial.patience)
    if reference.error:
        return Verdict(Word.INVALID, message=explained(reference.error))
    if reference.broken:
        return Verdict(Word.ABSTAINS, message=reference.broken)
    names = [value.name for value in case.proto.graph.output]
    if unsaveable := [name for name in names if any(name not in outputs for outputs in reference.outputs)]:
        return Verdict(Word.ABSTAINS, message=f"output {unsaveable[0]!r} is no tensor that numpy could hold")
    return None


@lru_cache(maxsize=2)
def _unfit(case: Case) -> Verdict | None:
    """The verdict on a case that nobody can run, by what it says itself; one is asked about under many recipes."""
    if custom := custom_operators(case.proto):
        node, op = custom[0]
        what = "a custom operator that nobody registered" if "::" in op else "none of ONNX, nor registered"
        message = f"operator {op} (node {node!r}) is {what}: its shape is unknown; {NOT_REGISTERED}"
        return Verdict(Word.REJECTS, message=message, stage="convert", rule="custom-operator", culprits=tuple(custom))
    try:
        for feed in case.runs:
            validate_feed(case.proto, feed, "a feed")
    except UserError as e:  # onnxruntime itself lets one symbolic dim have two sizes
        return Verdict(Word.INVALID, message=e.message)
    return None


def laid_out(trial: Trial, runs: int) -> Iterator[Trial]:
    """`trial` so many times, with one layout of the heap after the other."""
    return (replace(trial, layout=k % LAYOUTS) for k in range(runs))


class Confirmed(NamedTuple):
    """What so many runs came to, of which so many failed."""

    verdict: Verdict
    failed: int
    runs: int


@part(CONFIRMATION)
def confirm(trial: Trial) -> Confirmed:
    """Run it in fresh workers of two templates, with heaps of every layout: the commonest failure among the verdicts
    (else the first one), and how many failed.

    Results that differ from run to run make its kind `nondeterministic`. Raises UserError where the machine was at
    fault in the first template; that of the second is for the caller to ask. Raises ExhaustedError as `watch` where
    none has failed until then.
    """
    verdicts: list[Verdict] = []
    try:
        for k, one in enumerate(laid_out(trial, CONFIRMING_RUNS)):
            if k == CONFIRMING_RUNS // 2:
                if any(verdict.failed for verdict in verdicts):
                    trial.runner.check_health()
                trial.runner.turn()
            verdicts.append(look(one, fresh=True))
    except ExhaustedError:
        if not any(verdict.failed for verdict in verdicts):
            raise
    failures = [verdict for verdict in verdicts if verdict.failed]
    if not failures:
        return Confirmed(verdicts[0], 0, len(verdicts))
    verdict = Counter(failures).most_common(1)[0][0]
    if verdict.word is Word.DIVERGES and len({(v.word, v.kind, v.error) for v in verdicts}) > 1:
        message = f"{len(failures)} of {len(verdicts)} runs failed, with results that differ; {verdict.message}"
        verdict = replace(verdict, kind=Kind.NONDETERMINISTIC, message=message)
    return Confirmed(verdict, len(failures), len(verdicts))


def blamed(trial: Trial, verdict: Verdict) -> tuple[Verdict, str, Where]:
    """A confirmed failure, with who is wrong, the target or the reference, the digest of the target's answer, and where
    in the target it fails; without these where no time is left to ask."""
    try:
        found, seen = watch(trial, fresh=True)
    except ExhaustedError:
        return verdict, "", Where()
    if seen is None or not found.failed:
        return verdict, "", Where()
    try:
        reference = trial.runner.reference
        wrong = _judged(_most(trial), reference, lambda: _who_is_wrong(trial, found, seen), Blame)
    except ExceededError:
        wrong = Blame.UNDECIDED
    return replace(verdict, blame=wrong), seen.digest, place_of(trial.target, found, seen)


def _who_is_wrong(trial: Trial, verdict: Verdict, seen: Observation) -> Blame:
    reference = trial.runner.reference
    return who_is_wrong(verdict, trial.case, seen, target=trial.target, options=trial.options, reference=reference)


@part(CONFIRMATION)
def is_stale_state(trial: Trial, verdict: Verdict) -> bool:
    """Whether the feed that fails would be right in a session of its own; no where no time is left to ask."""
    case = trial.case
    if len(case.feeds) < 2 or verdict.word is not Word.DIVERGES:
        return False
    alone = replace(case, feeds=(case.feeds[verdict.feed],), calibration=case.calibration or case.feeds)
    try:
        return look(replace(trial, case=alone), fresh=True).word is Word.AGREES
    except ExhaustedError:
        return False
