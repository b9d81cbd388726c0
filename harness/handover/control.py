"""The negative control: the nearest model without what makes it fail, of which the claim must not hold."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from driftnet.causes.host import host_of
from driftnet.causes.record import Status
from driftnet.findings.corpus import SavedCase
from driftnet.findings.trial import Trial, laid_out, watch
from driftnet.handover import measures
from driftnet.handover.claim import Claim, claims, run_of
from driftnet.handover.measures import Measured, Run
from driftnet.learning.experiment import Sample
from driftnet.learning.instances import everything
from driftnet.learning.pairs import Change, changes
from driftnet.model.case import Case, Feed
from driftnet.model.signature import DAMAGE
from driftnet.model.verdict import Kind, Observation, Verdict, Word
from driftnet.run.reference import ReferenceError
from driftnet.targets.interface import STAGES
from driftnet.targets.recipe import Recipe, canonical
from driftnet.util.options import text

SECONDS = 4.0
"""CPU seconds of all processes that the search may take."""

STAGE_SECONDS = 2.0
SURE = 0.999
"""The probability with which reproduce.py shows a flaky case, by trying as often as its rate asks for."""

DAMAGE_TRIES = 20
"""A damaged heap ends a process or not by how it is laid out: of the first case met, half of all layouts did."""

NONDETERMINISTIC_TRIES = 5
OF_ONE_TEMPLATE = 5
"""Runs after which those of a control get another template."""

NEAR = ("stated", "attr", "given", "outputs", "from", "initializer", "order", "values", "dim", "symbolic", "final")
FAR = ("maker", "reader", "dtype", "rank", "opset", "op", "recipe")
"""What a change is of, the nearest first."""

MOST_CONTROLS, FURTHER = 4, 12
"""Cases that do not fail which are looked for, and changes that are tried for more once there is one. What is claimed
should hold of none of them; one is handed over."""

WORDS: Sequence[tuple[str, str]] = (
    (r"(\d+)\.attr\.(\w+)\.stated=left out", "without {1} of {op}"),
    (r"(\d+)\.attr\.(\w+)\.stated=(.*)", "with {1} of {op} stated, {2}"),
    (r"(\d+)\.attr\.(\w+)=(.*)", "with {1} of {op} = {2}"),
    (r"(\d+)\.in\.(\d+)\.given=.*", "without operand {1} of {op}"),
    (r"(\d+)\.in\.(\d+)\.(?:from|initializer)=(.*)", "with operand {1} of {op} given as {2}"),
    (r"(\d+)\.in\.(\d+)\.dtype=(.*)", "with operand {1} of {op} in {2}"),
    (r"(\d+)\.in\.(\d+)\.dim\.(\d+)=(.*)", "with dim {2} of operand {1} of {op} = {3}"),
    (r"(\d+)\.in\.(\d+)\.values=(.*)", "with other values in operand {1} of {op} ({2})"),
    (r"(\d+)\.in\.(\d+)\.maker=(.*)", "with a {2} before operand {1} of {op}"),
    (r"(\d+)\.out\.\d+\.(?:reader|final)=(.*)", "with the result of {op}: {1}"),
    (r"(\d+)\.outputs=(.*)", "with {op} giving {1} of its results"),
    (r"(\d+)\.order=.*", "with the operands of {op} exchanged"),
    (r"(\d+)\.op=(.*)", "with {1} in the place of {op}"),
    (r"values=(.*)", "with other values ({0})"),
    (r"symbolic=(.*)", "with symbolic sizes: {0}"),
    (r"rank=(.*)", "with an axis more"),
    (r"opset=(.*)", "at opset {0}"),
    (r"recipe\.(\w+)=(.*)", "with option {0} = {1}"),
)
"""A change, as `aspect=said`, and how it is told."""


SAME_MODEL = re.compile(r"\d+\.attr\.\w+\.stated=(?!left out)|\d+\.in\.\d+\.initializer=|symbolic=")
"""Changes, as `aspect=said`, of how a model is written: what it computes is as before."""


@dataclass(frozen=True, eq=False)
class Control:
    """A case that does not fail, one change away. what: the change in words; found: what the claim measures of it;
    same_model: whether it computes what the case does."""

    case: Case
    recipe: Recipe
    what: str
    found: Measured
    same_model: bool = False


@dataclass(frozen=True, eq=False)
class Proof:
    """A claim, what it measures of the case (None: that was not run, or did not fail so this time), and its control.

    others  controls that might be taken instead;   tried  how many changed models were run
    """

    claim: Claim
    found: Measured | None
    control: Control | None
    others: tuple[Control, ...] = ()
    tried: int = 0


@dataclass(eq=False)
class Search:
    """Changes that take the failure away.

    useless   aspects and what was said of them, of changes that are known not to
    """

    saved: SavedCase
    trial: Trial
    verdict: Verdict
    end: float
    useless: Set[tuple[str, str]] = frozenset()
    tried: int = 0

    def found(self) -> Iterator[tuple[Change, Trial, Run]]:
        """The nearest ones, with what was observed of them, while the budget lasts."""
        count, further, most = 0, 0, MOST_CONTROLS if tries_of(self.saved) == 1 else 1
        for change in self.changes():
            if count == most or further == FURTHER or self.trial.runner.all_cpu_seconds > self.end:
                return
            case = None if (change.aspect, change.said) in self.useless else change.make()
            if case is None:
                continue
            recipe = self.trial.recipe if change.recipe is None else change.recipe
            trial = replace(self.trial, case=case, recipe=recipe).within(STAGE_SECONDS)
            self.tried, further = self.tried + 1, further + bool(count)
            if (seen := self.agreeing(trial)) is not None:
                alone, count = alone_answers(self.saved, trial, self.verdict), count + 1
                yield change, trial, run_of(case, trial.target, seen, trial.runner, alone)

    def changes(self) -> Iterator[Change]:
        """The nearest first; of one aspect one before any two."""
        case, runner = self.trial.case, self.trial.runner
        try:
            host = host_of(case, runner.reference.record(case)[0])
        except ReferenceError:
            host = host_of(case)
        rank = Counter[str]()
        order: list[tuple[int, int, int, Change]] = []
        for change in changes(case, self.trial.recipe, self.trial.target, host, everything(host)):
            rank[change.aspect] += 1
            order.append((min(rank[change.aspect], 4), _distance(change.aspect), len(order), change))
        yield from (change for *_, change in sorted(order, key=lambda x: x[:3]))

    def agreeing(self, trial: Trial) -> Observation | None:
        """What is observed of a case, in fresh processes with heaps of every layout, where no run of it fails; else
        None."""
        seen = None
        for k, one in enumerate(laid_out(trial, max(2, tries_of(self.saved)))):
            if k % OF_ONE_TEMPLATE == OF_ONE_TEMPLATE - 1:
                trial.runner.turn()
            verdict, seen = watch(one, fresh=k > 0)
            if verdict.word is not Word.AGREES:
                return None
        return seen


def tries_of(saved: SavedCase) -> int:
    """How many runs it takes to see the failure, or to say that it is not there."""
    tries = (
        DAMAGE_TRIES if saved.kind in DAMAGE else NONDETERMINISTIC_TRIES if saved.kind == Kind.NONDETERMINISTIC else 1
    )
    if saved.status == Status.FLAKY:
        rate = max(saved.reproduced, 1) / max(saved.runs, 1)
        tries = max(tries, math.ceil(math.log(1 - SURE) / math.log(1 - min(rate, SURE))))
    return tries


def search(
    saved: SavedCase, trial: Trial, verdict: Verdict, seconds: float = SECONDS, samples: Sequence[Sample] = ()
) -> Search:
    """A search that may take so many CPU seconds from now on. samples: what was changed before, and what came of it."""
    useless = frozenset((s.aspect, s.said) for s in samples if s.how == "pair" and not s.agrees)
    return Search(saved, trial, verdict, trial.runner.all_cpu_seconds + seconds, useless, len(useless))


def prove(
    saved: SavedCase,
    trial: Trial,
    found: Verdict,
    seen: Observation | None,
    seconds: float = SECONDS,
    samples: Sequence[Sample] = (),
) -> Proof:
    """The most exact claim that holds of the case and not of a control; without a control the most exact one.

    found, seen   the verdict on one more run and what was observed; None where it is not run, for it hangs
    """
    again = found.failed and found.kind == saved.kind
    verdict = found if again else saved.verdict
    run = None
    if seen is not None:
        run = run_of(trial.case, trial.target, seen, trial.runner, alone_answers(saved, trial, verdict))
    made = list(claims(saved, verdict, run))
    made = ([claim for claim in made if run and claim.holds(run)] if again else []) or made[:1]
    looked = search(saved, trial, verdict, seconds, samples)
    controls = list(looked.found())

    def is_loose(claim: Claim) -> bool:
        """Whether it holds where nothing fails. A parameter may be wrong where that does no harm; values may not."""
        held = sum(claim.holds(run) for *_, run in controls)
        return held > (0 if claim.measure is measures.values else len(controls) / 2)

    claim = min(made, key=is_loose)  # of equals the first, which is the most exact
    passed = [
        Control(other.case, other.recipe, in_words(change, trial.case), measured, is_same_model(change))
        for change, other, its_run in controls
        if (measured := claim.measured(its_run)) is not None and not measured.error > claim.bound
    ]
    ranked = sorted(passed, key=lambda control: not control.found.telling)
    shown = claim.measured(run) if run and claim.holds(run) else None
    return Proof(claim, shown, next(iter(ranked), None), tuple(ranked[1:]), looked.tried)


AGREES = "does not fail"
AS_FAR = "as far off, which is allowed there"
"""Of an option that only widens a bound: that mends nothing."""


def ablation(saved: SavedCase, trial: Trial, claim: Claim, seconds: float) -> list[tuple[str, str, str]]:
    """(option, value, what happens) of each option of the target with each other value, as far as the budget goes.

    Options of stages that the failure keeps from being run are left out, and those that mean nothing for its data.

    claim   what is said of the case, which has to be gone, too, where nothing fails
    """
    feeds = saved.case.calibration or saved.case.feeds
    reached = STAGES[: STAGES.index(saved.stage) + 1] if saved.stage in STAGES else STAGES
    end, table = trial.runner.all_cpu_seconds + seconds, list[tuple[str, str, str]]()
    chosen = trial.options
    for option in trial.target.options:
        if option.applies and not option.applies(feeds):
            continue
        for value in option.values if option.name in chosen and option.stage in reached else ():
            if value != chosen[option.name] and trial.runner.all_cpu_seconds < end:
                other = replace(trial, recipe=canonical(trial.target, {**trial.recipe, option.name: value}))
                found, seen = watch(other)
                alike = found.failed and (found.stage, found.kind) == (saved.stage, saved.kind)
                told = "fails in the same way" if alike else f"fails otherwise: {found.kind} in {found.stage}"
                quiet = {Word.AGREES: AGREES, Word.REJECTS: "is refused"}.get(found.word, "cannot be told")
                if quiet == AGREES and seen and claim.holds(run_of(other.case, other.target, seen, other.runner)):
                    quiet = AS_FAR
                table.append((option.name, text(value), told if found.failed else quiet))
    return table


def alone_answers(saved: SavedCase, trial: Trial, verdict: Verdict) -> Sequence[Feed]:
    """Of a stale state: what the feed that fails gives in a session of its own."""
    if saved.kind != Kind.STALE_STATE or len(trial.case.feeds) <= verdict.feed:
        return ()
    case = trial.case
    alone = replace(case, feeds=(case.feeds[verdict.feed],), calibration=case.calibration or case.feeds)
    return trial.runner.observe(alone, trial.installed, trial.recipe, fresh=True, timeout=trial.patience).outputs


def in_words(change: Change, case: Case) -> str:
    """A change as a phrase: "with strides of MaxPool stated, [1, 1]"."""
    for pattern, words in WORDS:
        if found := re.fullmatch(pattern, f"{change.aspect}={change.said}", re.DOTALL):
            role = re.match(r"\d+(?=\.)", change.aspect)
            op = host_of(case).graph.nodes[int(role[0])].op if role else ""
            return words.format(*found.groups(), op=op)
    return f"with another {change.aspect}: {change.said}"


def is_same_model(change: Change) -> bool:
    """Whether the model computes what it did before the change."""
    return bool(SAME_MODEL.match(f"{change.aspect}={change.said}"))


def _distance(aspect: str) -> int:
    parts = aspect.split(".")
    return min((k for k, name in enumerate((*NEAR, *FAR)) if name in parts), default=len(NEAR))
