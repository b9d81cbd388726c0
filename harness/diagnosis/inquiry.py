"""The examination of one model: what it may cost, and what it has come to so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from driftnet.diagnosis import kernels
from driftnet.diagnosis.end_to_end import Impact
from driftnet.diagnosis.inside import Inside
from driftnet.diagnosis.localize import Fault, alike
from driftnet.diagnosis.result import Checked, Diagnosis
from driftnet.diagnosis.views import Distribution, Point
from driftnet.findings.issues import KnownIssue
from driftnet.findings.trial import Ran, Trial, watch
from driftnet.model.framed import framed
from driftnet.model.inspect import Case, Feed
from driftnet.model.verdict import Tier, Verdict, Word
from driftnet.model.windows import Judged
from driftnet.oracle.tolerances.table import LEAST_CHANGE, LOST
from driftnet.reduce.problem import ExhaustedError
from driftnet.run.sandbox.allowance import Allowance
from driftnet.targets.recipe import unquantized

BUDGET = "budget"
"""The rule by which a check abstains that was spent before the model was judged, or before a failure was confirmed."""

EXPLAINED = 0.5
"""Faults that explain less than this share of the error together work on each other: a small share acquits none."""


@dataclass(frozen=True, eq=False)
class Inquiry:
    """The trial of one model, and what its examination may cost.

    allowance  of CPU time, after which nothing is run;   spared   seconds of it that are left for confirming
    dear      whether one run of the model takes long
    started, limit   runs of the target when it began, and how many it may take
    tell      hears what is being done, for people
    inside    the tensors of the intact artifact, where these are known and tell right from wrong
    suspects  parts that go wrong there, though not by themselves;   suspected  tensors that do, where these were not
              asked for as a whole
    given     the model as it was given; that of `trial` has the branches that are taken in the place of its Ifs
    samples   those by which that was calibrated
    answers   whether outputs of the right form come out of the model: a part of it without may be cut out only
    frames    such parts, by their digests, as they stand in the model
    """

    trial: Trial
    known_issues: Sequence[KnownIssue]
    allowance: Allowance
    spared: float
    tell: Callable[[str], None]
    started: int
    limit: int
    dear: bool = False
    inside: Inside | None = None
    suspects: list[Case] = field(default_factory=list)
    suspected: list[str] = field(default_factory=list)
    given: Case | None = None
    samples: tuple[Feed, ...] = ()
    answers: bool = False
    frames: dict[str, Case] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        """The model."""
        return self.trial.case

    @property
    def intact(self) -> Trial:
        """The trial of the artifact that is there: fewer samples for windows would make another one."""
        return replace(self.trial, case=replace(self.case, calibration=self.samples or self.case.calibration))

    @property
    def left(self) -> int:
        """Runs that are left."""
        return self.limit - (self.trial.runner.target_runs - self.started)

    def look(self, case: Case, share: float = 1.0, *, plain: bool = False) -> Verdict:
        """The verdict on a run of a part, as it stands in the model where it fails for being cut out only. Raises
        ExhaustedError once the time or this share of the runs is spent.

        plain   on what it is before it is quantized: a run of that takes a tenth of one with calibration
        """
        if self.left <= (1 - share) * self.limit:
            raise ExhaustedError
        trial = replace(self.trial, case=case)
        if plain:
            trial = replace(trial, recipe=unquantized(trial.target, trial.recipe))
        verdict = self.judged(trial)
        if not self.answers or not verdict.failed or verdict.in_values:
            return verdict
        if within := framed(self.case, case):
            trial = replace(trial, case=within)
            there = self.judged(trial)
            if there.in_values or not there.failed:
                self.frames[case.digest] = within
                return there
        return verdict

    def survey(self, case: Case, share: float) -> Verdict:
        """The verdict on a part from the inside of the intact artifact, where that agrees; else `look`."""
        within = self.inside.verdict(case) if self.inside and self.in_time else None
        if within and within.word is Word.AGREES:
            return within
        alone = self.look(case, share)
        if within and within.failed and not alone.failed:
            self.suspects.append(case)
        return alone

    def judged(self, trial: Trial) -> Verdict:
        """The verdict on one run, but for the rounding of fast kernels."""
        ran = self.watch(trial)
        return kernels.judged(trial, *ran, partial(self.watch, like=ran))

    def watch(self, trial: Trial, like: Ran | None = None) -> Ran:
        """One run; like as of `watch`. Raises ExhaustedError once the time is spent."""
        if not self.in_time:
            raise ExhaustedError
        return watch(trial, like=like)

    def reducing(self) -> bool:
        """Says how far a reduction is, and never that it should stop."""
        self.tell(f"reducing: {self.limit - self.left} runs, {self.allowance.left:.0f} CPU seconds left")
        return False

    @property
    def in_time(self) -> bool:
        """Whether something new may be begun."""
        return self.allowance.left > self.spared


@dataclass(eq=False)
class Found:
    """What a check has come to. It grows as the check goes on, so that somebody may end it and keep what there is.

    target        its name;   ended   how the model fails, if nothing comes out of it;   again   in a fresh process too
    distributions   of a fault, by its nodes, of what it gets wrong;   depth   as of a Checked
    shared        what fails by the parameter of a tensor that one of the faults makes, and is none itself
    impacts       of a fault, by its nodes, what it does to the outputs; None where nobody can tell
    weighed       the same by itself, whatever else is found
    unconfirmed   a failure that fresh processes did not show again;   interrupted   somebody ended the check
    cut           what was ended because the time was spent, before a fault had been examined
    unlocated     how a window fails that nobody had the time to look into
    unsought      the time or the runs for it were spent before all faults had been looked for
    hasty         the time was spent before all faults had been looked for and weighed
    unheard       it was spent before anybody knew whether the model fails for the rounding of a fast kernel only
    unweighed     it was spent before all had been weighed that is right by a rule only
    as_written    what is lost is lost of the artifact too, where it is executed as it is written: its codes cost that
    """

    target: str
    ended: Verdict | None
    judged: list[Judged] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    shared: list[Fault] = field(default_factory=list)
    impacts: dict[tuple[int, ...], Impact | None] = field(default_factory=dict)
    weighed: dict[tuple[int, ...], Impact | None] = field(default_factory=dict)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    distributions: dict[tuple[int, ...], Distribution | None] = field(default_factory=dict)
    depth: tuple[Point, ...] = ()
    again: bool = False
    unconfirmed: Verdict | None = None
    interrupted: bool = False
    cut: str = ""
    unlocated: Verdict | None = None
    unsought: bool = False
    hasty: bool = False
    unheard: bool = False
    unweighed: bool = False
    as_written: bool = False
    excused: list[tuple[tuple[int, ...], str, Impact]] = field(default_factory=list)
    needed: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    def is_beside(self, fault: Fault) -> bool:
        """Whether `fault` fails otherwise than the model, of which nothing comes out: that fails by none of these, and
        they may be there for being cut only."""
        return self.ended is not None and not alike(self.target, fault.verdict, self.ended)


def serious_faults(found: Found) -> list[Fault]:
    """The faults that do something to the outputs, as far as anybody can tell, or take them away."""
    weighed = [(fault, found.impacts.get(fault.nodes)) for fault in found.faults if not found.is_beside(fault)]
    return [fault for fault, said in weighed if said is None or not said.negligible]


def is_wrong(verdict: Verdict, whole: Verdict) -> bool:
    """Whether a window's failure is one of the model's. A part may fail to run for being cut out; then it says nothing
    where the whole runs, and in no stage that a whole came through that is wrong when it runs."""
    if whole.word is Word.DIVERGES:
        return verdict.word is Word.DIVERGES or (verdict.failed and verdict.stage == "execute")
    return verdict.failed and (whole.failed or verdict.in_values)


def vouches(verdict: Verdict) -> bool:
    """Whether values were compared, and are right. Of outputs without elements shapes and dtypes are all there is."""
    return verdict.word is Word.AGREES and verdict.tier != Tier.STRUCTURE


def affirms(judged: Judged) -> bool:
    """Whether a window vouches for its nodes."""
    return vouches(judged.verdict) and not judged.loose


def is_right(checked: Checked) -> bool:
    """Whether the outputs are as good as right."""
    return all(row.change < LEAST_CHANGE for row in checked.end_to_end)


def is_lost(checked: Checked) -> bool:
    """Whether of an output so little is left that it is of no use."""
    return any(row.change >= LOST for row in checked.end_to_end)


def undecided(checked: Checked) -> bool:
    """Whether an output is lost, and nobody can tell of the model as a whole whether it may be."""
    return checked.verdict.word is Word.ABSTAINS and is_lost(checked)


def names_of(case: Case, fault: Fault) -> tuple[tuple[str, str], ...]:
    """(name, operator) of each of its nodes."""
    return tuple(name_of(case, i) for i in fault.nodes)


def name_of(case: Case, index: int) -> tuple[str, str]:
    """(name, operator) of a node; one without a name is called after what it makes."""
    node = case.proto.graph.node[index]
    return node.name or next(name for name in node.output if name), node.op_type
