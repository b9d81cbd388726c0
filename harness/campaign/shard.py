"""Shard: what one process of a campaign does with one case index.

What other shards have found is read from the run's folder of cases, which is the only thing the shards share.
"""

import gc
import importlib
import math
import multiprocessing
import os
import random
import re
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing import util
from multiprocessing.synchronize import Event as SharedEvent
from pathlib import Path
from typing import Any, NamedTuple

from driftnet.campaign import coverage
from driftnet.campaign import seeds as neighbours
from driftnet.campaign.age import of_its_time
from driftnet.campaign.events import Done, Drawn, Event, Examined, Failed, Found, Learned, LeftOut, Warned
from driftnet.campaign.gaps import DRAWS, Form, Gaps
from driftnet.campaign.insensitivity import insensitive, revived
from driftnet.campaign.journal import Journal
from driftnet.campaign.refused import TRIED, Forms, Refusals, forms_of
from driftnet.campaign.state import CASES
from driftnet.campaign.steering import KEPT, Doubts, Steering
from driftnet.causes.facts import Host, host_of, recipe_facts
from driftnet.causes.place import Where
from driftnet.causes.predicate import Trigger
from driftnet.causes.record import CauseRecord
from driftnet.findings import arrange, corpus
from driftnet.findings.issues import KnownIssue, KnownIssues, Symptom
from driftnet.findings.pipeline import Care, Effort, Examination, Finding, examine, known_by, to_save
from driftnet.findings.trial import Trial
from driftnet.generators import bulk
from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.generators.focus import operators_of
from driftnet.handover import handover
from driftnet.learning import mending
from driftnet.learning.experiment import Sample
from driftnet.learning.study import at_sight, proposal, sharing, study
from driftnet.model.inspect import Case
from driftnet.model.verdict import Tier, Verdict, Word
from driftnet.on_grid.construct import construct
from driftnet.run import health
from driftnet.run.runner import Runner
from driftnet.run.share import GENERATED_SECONDS, MEMORY_GIB
from driftnet.targets import recipe
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.interface import Target
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.apart import trusting
from driftnet.util.errors import UserError
from driftnet.util.files import claimed, in_turn
from driftnet.util.machine import give_back_memory, leave_to_parent

RECIPES_PER_MODEL = 4
LOSSLESS_SHARE = 0.5
REDUCTION_CALLS = 45  # 40 were the mean (37 reductions); `driftnet reduce` goes on where one was cut short
LEARNING = 0.15
"""Of the CPU time of a run that has to end, what learning triggers may take while findings come faster than they can be
learned of: an hour has time for all, a minute with no corpus for one in nine."""
HANDING = 0.1
"""The same of handing over: beyond it no control is searched for until a finding is learned of. Ten minutes on an old
release with fifty bugs of its own spent a quarter on that."""
MORE_EFFORT = 4
"""Times the effort of the first trial, for a failure that it did not explain."""
VERIFIED, RUN_AGAIN = 5, 10
"""Of 100 failures that are recognized without a run, those that are examined all the same, and those of which the rest
of the model is run."""
CANARIES = 100
"""Cases after which the health of the machine is asked for, whatever became of them: what keeps everything from running
is no failure of anybody. That takes 20 ms of CPU time a template."""
NO_NETWORK_NAMESPACE = "this system grants no network namespace; what is under test can reach the network"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a campaign examines, and when it ends.

    targets   target words ("mnn", "mnn==3.4.1", ...)
    minutes, cases   of wall time, or cases (model x target x recipe), whichever is over first; two minutes by default
    focus     names the generator is restricted to
    seeds     models (ONNX files, saved cases, folders of them) whose neighbours take the place of generated graphs
    steer     make what open cases already blame rarer (then the cases depend on what was found before)
    corpus    folder of known cases; of corpus/ what came with driftnet is known too;   save   bring new ones into it
    state     folder of a state (`driftnet.campaign.state`), what its nights found is known too
    mended    ids of causes that are fixed on these releases: what fails like them is new
    report    folder of the run: new cases are written below its cases/ as they are found
    resume    go on with the case indices after those of the summary.json in `report`
    cluster   address of a Dask scheduler, whose workers examine then in place of processes of this machine
    python    the interpreter that holds the targets; None: this one, or one made for a release
    timeout, memory_gib   of one stage of a target;   reduce_seconds   for the reduction of one finding
    """

    report: Path
    targets: Sequence[str] = DEFAULT_TARGETS
    minutes: float | None = None
    cases: int | None = None
    seed: int = 0
    workers: int = 1
    cluster: str = ""
    focus: Sequence[str] = ()
    seeds: Sequence[Path] = ()
    steer: bool = True
    corpus: Path = Path("corpus")
    save: bool = False
    state: Path | None = None
    mended: Set[str] = frozenset()
    resume: bool = False
    python: str | None = None
    timeout: float = GENERATED_SECONDS
    memory_gib: float = MEMORY_GIB
    reduce_seconds: float = 10.0

    @property
    def found(self) -> Path:
        """The folder into which new cases are written."""
        return self.report / "cases"

    @property
    def seconds(self) -> float:
        """Of wall time, after which it ends."""
        minutes = 2.0 if self.minutes is None and self.cases is None else self.minutes
        return math.inf if minutes is None else 60 * minutes

    @property
    def cases_per_model(self) -> int:
        """How many cases (model x target x recipe) one index stands for."""
        return len(self.targets) * RECIPES_PER_MODEL


class New(NamedTuple):
    """A new finding: its folder, and the models that were run to learn of it, none where that waits."""

    path: Path
    samples: Sequence[Sample] = ()


@dataclass(frozen=True, eq=False)
class _Read:
    """What there is to know of a graph, whatever it is fed: each once, when it is asked for."""

    case: Case
    host: Host

    @cached_property
    def forms(self) -> Forms:
        return forms_of(self.case, self.host)

    @cached_property
    def drawn(self) -> Drawn:
        return coverage.drawn(self.host)


@dataclass
class Shard:
    """The state of one process: its workers, its targets, and what is known so far.

    of_run   the names of the known issues that lie in the folder of this run, in the order in which they came
    """

    plan: Plan
    runner: Runner
    stopping: Callable[[], bool]
    installed: list[Installed] = field(default_factory=list)
    seeds: list[Case] = field(default_factory=list)
    known_issues: dict[str, KnownIssue] = field(default_factory=dict)
    of_run: dict[str, None] = field(default_factory=dict)
    of_target: dict[str, KnownIssues] = field(default_factory=dict)
    fixed: dict[str, corpus.SavedCase] = field(default_factory=dict)
    steering: Steering = field(default_factory=lambda: Steering(()))
    doubts: Doubts = field(default_factory=Doubts)
    refusals: list[Refusals] = field(default_factory=list)
    gaps: list[Gaps] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    graphs: dict[bytes, _Read] = field(default_factory=dict)
    damaged: dict[Path, LeftOut] = field(default_factory=dict)
    warned: set[Warned | LeftOut] = field(default_factory=set)
    ages: list[Mapping[str, float]] = field(default_factory=list)
    examined: int = 0
    waiting: list[tuple[Path, Installed, Where]] = field(default_factory=list)
    learning_seconds: float = 0.0
    handing_seconds: float = 0.0

    @cached_property
    def focused(self) -> Set[str]:
        """The operators that somebody asked for: drawn whatever is known of them."""
        return operators_of(self.plan.focus)

    @cached_property
    def journal(self) -> Journal:
        """What this process writes of the run."""
        return Journal(self.plan.report)

    def __post_init__(self) -> None:
        self.installed = [resolve(word, python=self.plan.python) for word in self.plan.targets]
        self.seeds = neighbours.seeds(self.plan.seeds)
        self.ages = [of_its_time(one, self.runner) for one in self.installed]
        self.refusals = [Refusals() for _ in self.installed]
        asked = coverage.load(self.plan.state) if self.plan.state else coverage.Counts()
        if self.plan.resume:
            asked |= coverage.asked(self.plan.report)
        self.profiles = [Profile(**one.target.profile) for one in self.installed]
        part = part_of(multiprocessing.current_process().name, 1 if self.plan.cluster else self.plan.workers)
        self.gaps = [Gaps(one.target.name, asked, of, part) for one, of in zip(self.installed, self.profiles)]
        for folder in corpus.known(self.plan.corpus):
            self.learn(folder, self.plan.mended, told={*self.known_issues, *self.fixed})
        if self.plan.state:
            self.learn(self.plan.state / CASES, self.plan.mended)
        if self.plan.resume:
            self._adopt()

    def learn(self, folder: Path, mended: Set[str] = frozenset(), told: Set[str] = frozenset()) -> None:
        """Take the cases saved below `folder` into account from now on, but those `told` before; a fixed one explains
        nothing any more, nor does one of a cause that is `mended`, nor one that is not whole."""
        for path in corpus.case_folders(folder):
            if path.name in told:
                continue
            known = self.known_issues.get(path.name)
            if (known is None or (known.saved.path != path and known.saved.cause is None)) and path not in self.damaged:
                try:
                    saved = corpus.load(path)
                except UserError as e:
                    if path.exists():  # else another shard has learned its cause meanwhile
                        self.damaged[path] = LeftOut(e.message, e.hint)
                    continue
                cause = saved.cause or arrange.loose(saved)
                if saved.status == "fixed":
                    self.fixed[saved.id] = saved
                elif cause.id not in mended:
                    self._know(KnownIssue(saved))

    def _adopt(self) -> None:
        """Learn, when there is time, of what an earlier run into this report found and did not learn of."""
        self.learn(self.plan.found)
        for saved in (self.known_issues[name].saved for name in self.of_run):
            for one in self.installed if saved.cause is None else ():
                if saved.path and one.target.name == saved.target and one.release in saved.seen:
                    self.waiting.append((saved.path, one, Where()))

    def forget(self) -> None:
        """Know no more of what was found in this run and counts for nothing."""
        for name in [*self.of_run]:
            if (path := self.known_issues[name].saved.path) and not path.exists():
                self._forget(name)

    def _know(self, issue: KnownIssue) -> None:
        self.known_issues[issue.id] = issue
        self.of_run.pop(issue.id, None)
        if str(issue.saved.path).startswith(f"{self.plan.found}{os.sep}"):
            self.of_run[issue.id] = None
        self.of_target.clear()
        self.steering = Steering(())  # of another time

    def _forget(self, name: str) -> None:
        del self.known_issues[name]
        self.of_run.pop(name, None)
        self.of_target.clear()

    def _issues(self, target: str) -> KnownIssues:
        """What is known of a target now."""
        if target not in self.of_target:
            self.of_target[target] = KnownIssues.of([*self.known_issues.values()], target)
        return self.of_target[target]

    def run(self, index: int, most: int) -> Iterator[Event]:
        """Examine the first `most` cases that `index` stands for, as events. The last is Done, unless it is stopped,
        or something stays unexplained: then it is examined again when the run is gone on with."""
        self.forget()
        self.learn(self.plan.found)
        network = () if self.runner.network_isolated else (Warned(NO_NETWORK_NAMESPACE),)
        for warning in {*network, *self.damaged.values()} - self.warned:
            self.warned.add(warning)
            yield warning
        favoured = index % len(self.installed)
        self.graphs.clear()
        sought = self._sought(index, favoured)
        own, cases = self.profiles[favoured], dict[Profile, Case]()
        for profile in (own, *self.profiles):
            if profile not in cases:
                around = sought if profile == own else None
                cases[profile] = self._case(index, favoured, profile, sought=around)
        drafts = [(j, c) for j, one in enumerate(self.installed) for c in choices(one, self.plan.seed, index)]
        given = [cases[profile] for profile in self.profiles]
        graphs = [self._read(case).drawn for case in cases.values()]
        graph = [[*cases].index(profile) for profile in self.profiles]
        left_out: list[Set[str]] = [frozenset() for _ in self.installed]
        met: dict[Symptom, KnownIssue] = {}
        outcomes: list[tuple[Set[Trigger], bool]] = []
        unexplained = False
        for k, (j, choice) in enumerate(drafts[:most]):
            if self.stopping():
                return
            begun = self.runner.all_cpu_seconds
            one = self.installed[j]
            draft = Trial(variant(given[j], one, choice), one, choice.recipe, self.runner)
            trial, is_insensitive = self._telling(draft)
            care = care_of(f"{self.plan.seed}/{index}/{trial.target.name}/{k}")
            result = self._examined(trial, care, met)
            self.examined += 1
            blamed = result.verdict.failed and not result.known
            # By another tier nobody was kept from looking: what it saw may be anything.
            unjudged = result.verdict.word is Word.ABSTAINS and result.verdict.tier == Tier.STRUCTURE
            if blamed or unjudged:
                self.runner.check_health()  # the machine may be at fault: nobody is blamed then
            elif self.examined % CANARIES == 0:
                self.runner.check_health(fresh=False)
            if self.examined % CANARIES == 0:
                give_back_memory()
            refused = self._refused_for(trial.case, j, result.verdict)
            if result.verdict.failed or result.verdict.word is Word.AGREES:
                outcomes.append((self._met(trial), result.verdict.failed))
            new = None
            if (finding := result.finding) and not (result.known or result.unexplained):
                id, kept = self.keep(finding)
                if isinstance(kept, KnownIssue):
                    result = replace(result, known=kept.id)
                    if id != kept.id and self.plan.workers > 1 and not self.plan.cluster:  # another may have met it
                        yield Learned(id, 0.0, str(kept.saved.path))
                else:
                    new = kept
            if result.known:
                met[result.symptom] = self.known_issues[result.known]
                self._issues(trial.target.name).prefer(met[result.symptom])
                mending.remember(self.plan.report, result.shown)
            yield Examined(
                index,
                trial.target.name,
                trial.installed.release,
                dict(trial.recipe),
                result.verdict,
                known=str(self.known_issues[result.known].saved.path) if result.known else "",
                confirmed=result.confirmed,
                operators=tuple(sorted({node.op_type for node in trial.case.proto.graph.node})),
                insensitive=is_insensitive,
                recognized=bool(result.recognized),
                verified=result.verified,
                cpu=(examined := self.runner.all_cpu_seconds) - begun,
                once=result.unconfirmed,
                again=result.again,
                unexplained=result.unexplained,
                graph=graph[j],
            )
            self.gaps[j].learn(graphs[graph[j]], result.verdict.word is Word.AGREES)
            if refused and any(later == j for later, _ in drafts[k + 1 : most]):
                left_out[j] |= refused
                given[j] = self._case(index, favoured, self.profiles[j], left_out[j])
                graph[j] = len(graphs)
                graphs.append(self._read(given[j]).drawn)
                met.clear()
            unexplained = unexplained or result.unexplained
            if new:
                self._hand_over(new, trial.installed)
                met[result.symptom] = self.known_issues[new.path.name]
                yield Found(index, str(new.path), trial.installed.release, self.runner.all_cpu_seconds - examined)
        yield from self._catch_up()
        self.doubts.learn(outcomes)
        if not unexplained:
            yield Done(index, tuple(graphs), (self.installed[favoured].target.name, *sought) if sought else None)

    def _examined(self, trial: Trial, care: Care, met: Mapping[Symptom, KnownIssue]) -> Examination:
        """What comes of a trial; what was not explained is tried once more, with more effort. Where the run is ending
        it counts as it stands: nobody may go on with it."""
        issues = self._issues(trial.target.name)
        effort = Effort(self.plan.reduce_seconds, REDUCTION_CALLS, self.stopping)
        result = examine(trial, issues, effort=effort, care=care, met=met)
        if result.unexplained and not self.stopping():
            more = replace(effort, seconds=MORE_EFFORT * effort.seconds)
            result = examine(trial, issues, effort=more, care=care, met=met)
        return replace(result, unexplained=result.unexplained and not self.stopping())

    def keep(self, finding: Finding) -> tuple[str, New | KnownIssue]:
        """The id by which it is saved; and what is new, in a folder in that of its cause, or the known issue instead
        with which it shares that.

        It is saved first, whatever comes then, and learned of after. Others wait while it is written, and no longer.
        """
        saved = to_save(finding, self.fixed, self.runner)
        with ExitStack() as ours:
            with self._writing():
                before = {*self.known_issues}
                there = corpus.standing(saved, self.plan.found)
                loose = corpus.save(saved, self.plan.found)
                self.learn(self.plan.found)
                if there is None:
                    ours.enter_context(claimed(loose))
            if there:  # another shard has found the very same meanwhile, or it waits
                if saved.id not in self.known_issues:  # it is not whole
                    self._know(KnownIssue(replace(saved, path=there)))
                return saved.id, self.known_issues[saved.id]
            return saved.id, self._kept(finding, corpus.load(loose), before)

    def _kept(self, finding: Finding, saved: corpus.SavedCase, before: Set[str]) -> New | KnownIssue:
        """What becomes of a finding that lies loose now, examined when the issues `before` were known."""
        meanwhile = [issue for name, issue in self.known_issues.items() if name not in {*before, saved.id}]
        if issue := known_by(finding, meanwhile, self.runner, Effort(self.plan.reduce_seconds, stop=self.stopping)):
            self._remove(saved)
            self._forget(saved.id)
            return issue
        seen = at_sight(saved, finding.installed, finding.where, self.runner)  # experiments cost more than all the rest
        if issue := sharing(seen, finding.installed, self._others(saved), self.runner):
            return self._shared(saved, issue, issue.saved.cause)
        loose = self._loose(saved)
        if self._waits:  # it may end while this is learned of, or its control searched for
            begun = self.runner.all_cpu_seconds
            handover.write(loose, finding.installed, self.runner, seconds=0.0)
            self.handing_seconds += self.runner.all_cpu_seconds - begun
        if self._may_learn:
            return self._learned(saved, finding.installed, finding.where)
        self.waiting.append((loose, finding.installed, finding.where))
        return New(loose)

    @property
    def _may_learn(self) -> bool:
        """Whether there is time now to learn of a finding; in a run that ends with its time only it may wait, loose."""
        return not self._waits or self.learning_seconds < LEARNING * self.runner.all_cpu_seconds

    @property
    def _waits(self) -> bool:
        """Whether what takes long may wait: the run ends with its time only."""
        return self.plan.cases is None and not self.plan.cluster

    def _hand_over(self, new: New, installed: Installed) -> None:
        """Write what a maintainer needs beside a new finding, with a control; where that takes too much of a run, not
        before it is learned of."""
        begun = self.runner.all_cpu_seconds
        if not self._waits or new.samples or self.handing_seconds < HANDING * begun:
            with claimed(new.path) as ours:
                if ours:  # else another shard has adopted what waits, and hands it over
                    handover.write(new.path, installed, self.runner, samples=new.samples)
            self.handing_seconds += self.runner.all_cpu_seconds - begun

    def _learned(self, saved: corpus.SavedCase, installed: Installed, where: Where) -> New | KnownIssue:
        """What lies loose, with a cause of its own; the known issue instead with which it shares that."""
        begun = self.runner.all_cpu_seconds
        learned, asked = study(saved, installed, where, self.runner), set[KnownIssue]()
        while True:
            others = self._others(saved)
            issue = sharing(learned, installed, [one for one in others if one not in asked], self.runner)
            asked.update(others)
            if issue is not None:
                self.learning_seconds += self.runner.all_cpu_seconds - begun
                return self._shared(saved, issue, replace(arrange.loose(saved), **proposal(learned).said))
            with self._writing():
                self.learn(self.plan.found)  # what others have learned of meanwhile
                if asked.issuperset(self._others(saved)):
                    self.learning_seconds += self.runner.all_cpu_seconds - begun
                    path = arrange.found(saved, proposal(learned), self.plan.found)
                    self.learn(self.plan.found)
                    return New(path, learned.samples)

    def _writing(self) -> AbstractContextManager[None]:
        """What is found stands still meanwhile, but for what the block does."""
        return in_turn(self.plan.report / ".keeping")

    def _loose(self, saved: corpus.SavedCase) -> Path:
        """Where it lies in the run's folder while it has no cause."""
        return self.plan.found / saved.target / saved.id

    def _remove(self, saved: corpus.SavedCase) -> None:
        """Take away what lies loose, once nobody else is about to know it by its folder."""
        with self._writing():
            corpus.remove(self._loose(saved))

    def _others(self, saved: corpus.SavedCase) -> list[KnownIssue]:
        """What is known of its target beside it."""
        return [one for one in self._issues(saved.target) if one.id != saved.id]

    def _shared(self, saved: corpus.SavedCase, issue: KnownIssue, own: CauseRecord | None) -> KnownIssue:
        """The known issue with which what lies loose shares its cause. What it is recognized by, its `own`, is another
        variant of that: the next one like it costs less."""
        self._remove(saved)
        self._know(KnownIssue(replace(saved, cause=own, path=issue.saved.path)))
        return issue

    def _catch_up(self) -> Iterator[Event]:
        """Learn of what this process has found and could not learn of at once, as far as there is time."""
        while self.waiting and self._may_learn and not self.stopping():
            path, installed, where = self.waiting.pop(0)
            begun = self.runner.all_cpu_seconds
            with ExitStack() as ours:
                with self._writing():
                    if not ours.enter_context(claimed(path)):  # another shard has adopted it, or found it
                        continue
                new = self._learned(corpus.load(path), installed, where)
            if isinstance(new, New):
                self._hand_over(new, installed)
            known = "" if isinstance(new, New) else str(new.saved.path)
            yield Learned(path.name, self.runner.all_cpu_seconds - begun, known)

    @property
    def steers(self) -> bool:
        """Whether drawing goes by what is known and by what was refused."""
        return self.plan.steer and not self.seeds

    def _case(
        self,
        index: int,
        favoured: int,
        profile: Profile = EVERYTHING,
        leave_out: Set[str] = frozenset(),
        sought: Form | None = None,
    ) -> Case:
        """The graph of `index` made of what is in `profile`, without the operators `leave_out`, by what is known of the
        target at `favoured`, around what is `sought`."""
        plan = self.plan
        if self.seeds:
            return neighbours.neighbour(self.seeds, plan.seed, index, self.runner.reference)
        if not self.steers:
            return bulk.case(plan.seed, index, focus=tuple(plan.focus), weights=self.ages[favoured], profile=profile)
        if len(self.steering.issues) != len(self.known_issues):
            self.steering = Steering(tuple(self.known_issues.values()), self.doubts)
        steering, refusals = self.steering, self.refusals[favoured]
        recipes = [
            (one.target.name, recipe_facts(one.target, under))
            for one in self.installed
            for choice in choices(one, plan.seed, index)
            for under in runs_under(one.target, choice.recipe)
        ]
        lookout = steering.under(recipes)
        free, tried = self._chance(index, "free", KEPT), self._tries(index)
        refused = self._refused(index, favoured)
        came = False

        def unwanted(case: Case) -> Set[str]:
            nonlocal came
            came = came or (sought is not None and sought.comes_in(self._read(case).drawn))
            known = frozenset[str]()
            if not free:
                known = lookout.unwanted(self._read(case).host, lambda: self.runner.reference.computed(case))
            if refusals and not tried:
                known |= refusals.unwanted(self._read(case).forms)
            return known - self.focused

        def drawn(seed: int, focus: Sequence[str], weights: Mapping[str, float], alone: bool = False) -> Case:
            return bulk.case(
                seed,
                index,
                focus=focus,
                weights={
                    **weights,
                    **steering.weights(self.installed[favoured].target.name),
                    **self.ages[favoured],
                    **dict.fromkeys(refused, 0.0),
                },
                profile=profile,
                avoid=None if free and tried else unwanted,
                leave_out=leave_out | refused,
                alone=alone,
            )

        if not sought:
            return drawn(plan.seed, tuple(plan.focus), {})
        alone = self.gaps[favoured].alone(sought)
        for attempt in range(DRAWS):
            seed = zlib.crc32(f"{plan.seed} {attempt}".encode())
            case = drawn(seed, (sought.focus,), {**self.gaps[favoured].rare, **sought.weights}, alone)
            if came or sought.comes_in(self._read(case).drawn):  # what was not wanted then seldom is the next time
                break
        return case

    def _sought(self, index: int, favoured: int) -> Form | None:
        """What the target at `favoured` was never asked and is to be now, if this index is for that."""
        if self.plan.focus or not self.steers:
            return None
        gaps, rng = self.gaps[favoured], random.Random(f"{self.plan.seed} {index} gap")
        without = {name for name, factor in self.ages[favoured].items() if not factor} | self._refused(index, favoured)
        return gaps.one(rng, without) if rng.random() < gaps.share(without) else None

    def _refused(self, index: int, favoured: int) -> Set[str]:
        """The operators that the target at `favoured` refuses, if this index goes by that."""
        return frozenset() if self._tries(index) else self.refusals[favoured].operators() - self.focused

    def _tries(self, index: int) -> bool:
        """Whether this index is drawn as if nothing was refused."""
        return self._chance(index, "refused", TRIED)

    def _read(self, case: Case) -> _Read:
        """Its graph, read once: most cases of an index have one. The host has the numbers of the first of them."""
        if case.model not in self.graphs:
            self.graphs[case.model] = _Read(case, host_of(case))
        return self.graphs[case.model]

    def _chance(self, index: int, name: str, among: int) -> bool:
        return zlib.crc32(f"{self.plan.seed}/{index}/{name}".encode()) % among == 0

    def _refused_for(self, case: Case, j: int, verdict: Verdict) -> frozenset[str]:
        """What target `j` did with `case` is learned; the operators that the rest of its cases do without."""
        if not self.steers:
            return frozenset()
        return self.refusals[j].learn(self._read(case).forms, verdict) - self.focused

    def _met(self, trial: Trial) -> Set[Trigger]:
        """The triggers that a case meets, by what is known of it without running it."""
        if not self.steers:
            return frozenset()
        facts = recipe_facts(trial.target, trial.recipe)
        return self.steering.under([(trial.target.name, facts)]).met(self._read(trial.case).host)

    def _telling(self, trial: Trial) -> tuple[Trial, bool]:
        """A case that is to be quantized, with other numbers where no damage could show; and whether that remains."""
        if not trial.quantizes or not insensitive(trial.case, self.runner.reference):
            return trial, False
        other = revived(trial.case, self.runner.reference, self.plan.seed)
        return replace(trial, case=other or trial.case), other is None


def part_of(name: str, workers: int) -> tuple[int, int]:
    """What a process seeks of what was never asked, so that no two of a run seek the same: which part, of how many.
    name: of the process; those of a pool are numbered in turn, and one that dies takes the others with it."""
    return int(re.findall(r"\d+", f"0 {name}")[-1]) % workers, workers


def care_of(name: str) -> Care:
    """What is done with a failure of the case called so that is recognized without a run, the same in every run."""
    chance = zlib.crc32(name.encode()) % 100
    return Care.ALL if chance < VERIFIED else Care.REST if chance < VERIFIED + RUN_AGAIN else Care.NONE


class Choice(NamedTuple):
    """What is chosen for one case beside its graph.

    grid_seed, on_grid   whether it is put on the quantizer's grid, where it quantizes and the graph allows that
    """

    recipe: dict[str, Any]
    grid_seed: int
    on_grid: bool


def choices(installed: Installed, seed: int, index: int) -> list[Choice]:
    """What is chosen for each case of `index` on one target, the same wherever it is examined: what quantizes nothing
    first, as what fails there needs no search behind a quantizer, and explains what fails alike when quantized."""
    target, rng = installed.target, random.Random(f"{seed}/{index}/{installed.target.name}")
    drawn = (recipe.draw(target, rng) for _ in range(RECIPES_PER_MODEL))
    chosen = [Choice(one, rng.getrandbits(32), rng.random() < LOSSLESS_SHARE) for one in drawn]
    return sorted(chosen, key=lambda one: target.scheme(recipe.effective(target, one.recipe)) is not None)


def runs_under(target: Target, chosen: recipe.Recipe) -> list[recipe.Recipe]:
    """The recipes by which a model is run under one: where what is to be quantized is executed too, that without
    quantizing as well."""
    plain = recipe.unquantized(target, chosen) if target.executes_plain else chosen
    return [chosen] if plain == chosen else [chosen, plain]


def variant(case: Case, installed: Installed, choice: Choice) -> Case:
    """`case`, on the grid where that is chosen."""
    scheme = installed.target.scheme(recipe.effective(installed.target, choice.recipe))
    return (construct(case, scheme, choice.grid_seed) if scheme and choice.on_grid else None) or case


_shard: Shard | UserError


def begin(plan: Plan, stop: SharedEvent) -> None:
    """Set this process up as a shard of `plan` (a process pool's initializer).

    What keeps it from that is told with the first index: all that a pool says of an initializer is that it died.
    """
    global _shard
    leave_to_parent()
    try:
        runner = Runner(timeout=plan.timeout, memory_gib=plan.memory_gib, small_models=True, hold_crashes=True)
        util.Finalize(None, runner.close, exitpriority=10)  # multiprocessing's children run no atexit functions
        runner.check_health()  # of its first worker, too: nothing is examined where that cannot do what it may be asked
        _shard = Shard(plan, runner, stop.is_set)
        importlib.import_module("onnx.reference")  # or it grows by 10 MiB late, when the first strings are judged
        gc.collect()
        gc.freeze()  # what is known stays, and need not be gone through again and again: 3 % of a run
    except UserError as e:
        _shard = e
    except Exception as e:
        traceback.print_exc()
        hint = "this is an error of driftnet itself; please report it with what stands on stderr"
        _shard = UserError(f"{type(e).__name__}: {e}", hint=hint, kind="internal")


def examine_index(index: int, most: int, trusted: bool = True, ends: float = math.inf) -> list[Event]:
    """The events of one index, each written into the journal as it happens.

    trusted   whether it may be judged in this process: no shard has died with it in hand
    ends      when (time.monotonic) the run is over: nothing is begun any more

    An exception of ours is an event too: it must not end the campaign.
    """
    events: list[Event] = []
    try:
        if isinstance(_shard, UserError):
            raise _shard
        if time.monotonic() >= ends:
            return []
        with trusting(trusted):
            for event in _events(_shard, index, most):
                _shard.journal.write(event)
                events.append(event)
    except UserError as e:  # a full disk, an unwritable folder: nothing the next case would mend
        events.append(Failed(index, e.message, e.hint, e.kind))
    return events


def _events(shard: Shard, index: int, most: int) -> Iterator[Event]:
    try:
        yield from shard.run(index, most)
    except UserError as e:
        if e.kind == "environment":  # that has started before: the machine may be at fault
            shard.runner.check_health()
        raise
    except Exception as e:
        if lacking := health.fault(e):
            raise lacking from e
        shard.runner.check_health()
        yield Failed(index, f"{type(e).__name__}: {e}", trace="".join(traceback.format_exception(e)))
        yield Done(index)
