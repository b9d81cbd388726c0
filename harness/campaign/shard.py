"""Shard: what one process of a campaign does with one case index."""

import gc
import importlib
import math
import multiprocessing
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from multiprocessing import util
from multiprocessing.synchronize import Event as SharedEvent

from driftnet.campaign.drawing import GENERATOR, Drawing, Models, part_of
from driftnet.campaign.events import Done, Event, Examined, Failed, Found, Learned, LeftOut, Warned
from driftnet.campaign.gaps import Part
from driftnet.campaign.insensitivity import insensitive, revived
from driftnet.campaign.journal import Journal
from driftnet.campaign.keeping import Keeping, New
from driftnet.campaign.plan import Plan, choices
from driftnet.causes.predicate import Trigger
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import KnownIssue, Symptom
from driftnet.findings.pipeline import Care, Examination, examine
from driftnet.findings.trial import Trial
from driftnet.learning import mending
from driftnet.model.verdict import Tier, Word
from driftnet.run import health
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.util import spent
from driftnet.util.apart import trusting
from driftnet.util.errors import UserError
from driftnet.util.machine import give_back_memory, leave_to_parent

REDUCTION_CALLS = 45  # 40 were the mean (37 reductions); `driftnet reduce` goes on where one was cut short
MORE_EFFORT = 4
"""Times the effort of the first trial, for a failure that it did not explain."""
VERIFIED, RUN_AGAIN = 5, 10
"""Of 100 failures that are recognized without a run, those that are examined all the same, and those of which the rest
of the model is run."""
LEAST_TOLD = 5e-6
"""CPU seconds of a part of the work."""
CANARIES = 100
"""Cases after which the health of the machine is asked for, whatever became of them: what keeps everything from running
is no failure of anybody. That takes 20 ms of CPU time a template."""
NO_NETWORK_NAMESPACE = "this system grants no network namespace; what is under test can reach the network"


@dataclass
class Shard:
    """The state of one process: its workers, its targets, what it knows, and what it draws."""

    plan: Plan
    runner: Runner
    stopping: Callable[[], bool]
    warned: set[Warned | LeftOut] = field(default_factory=set)
    examined: int = 0

    def __post_init__(self) -> None:
        self.installed = [resolve(word, python=self.plan.python) for word in self.plan.targets]
        self.keeping = Keeping(self.plan, self.runner, self.installed, self.stopping)
        self.drawing = Drawing(self.plan, self.runner, self.installed, self.keeping.known_issues)
        self.seek(part_of(multiprocessing.current_process().name, self.plan.workers))
        self.journal = Journal(self.plan.report)

    def seek(self, part: Part) -> None:
        """Of what was never asked, seek this part from now on."""
        for gaps in self.drawing.gaps:
            gaps.part = part

    def run(self, index: int, most: int) -> Iterator[Event]:
        """Examine the first `most` cases that `index` stands for, as events. The last is Done, unless it is stopped,
        or something stays unexplained: then it is examined again when the run is gone on with."""
        keeping, drawing = self.keeping, self.drawing
        keeping.forget()
        keeping.learn(self.plan.found)
        yield from self._warnings()
        models = Models(drawing, index)
        chosen = [(j, c) for j, one in enumerate(self.installed) for c in choices(one, self.plan.seed, index)][:most]
        met: dict[Symptom, KnownIssue] = {}
        outcomes: list[tuple[Set[Trigger], bool]] = []
        unexplained = False
        for k, (j, choice) in enumerate(chosen):
            if self.stopping():
                return
            begun, one = self.runner.all_cpu_seconds, self.installed[j]
            with spent.part(GENERATOR):
                draft = Trial(drawing.variant(models.of(j), index, j, choice), one, choice.recipe, self.runner)
                trial, is_insensitive = self._telling(draft)
            care = care_of(f"{self.plan.seed}/{index}/{trial.target.name}/{k}")
            result = self._examined(trial, care, met)
            self._look_after(result)
            refused = drawing.refused_for(trial.case, j, result.verdict)
            if result.verdict.failed or result.verdict.word is Word.AGREES:
                outcomes.append((drawing.met(trial), result.verdict.failed))
            result, new, learned = self._kept(result)
            if learned:
                yield learned
            if result.known:
                met[result.symptom] = known = keeping.known_issues[result.known]
                refused |= drawing.known_for(trial.case, index, known)
                keeping.issues(trial.target.name).prefer(known)
                mending.remember(self.plan.report, result.shown)
            examined = self.runner.all_cpu_seconds
            graph = models.number(j)
            yield self._told(index, graph, trial, result, cpu=examined - begun, insensitive=is_insensitive)
            drawing.gaps[j].learn(models.drawn[graph], result.verdict.word is Word.AGREES)
            if refused and any(later == j for later, _ in chosen[k + 1 :]):
                models.leave_out(j, refused)
                met.clear()
            unexplained = unexplained or result.unexplained
            if new:
                keeping.hand_over(new, trial.installed)
                met[result.symptom] = keeping.known_issues[new.path.name]
                yield Found(index, str(new.path), trial.installed.release, self.runner.all_cpu_seconds - examined)
        yield from keeping.catch_up()
        drawing.doubts.learn(outcomes)
        if not unexplained:
            for_gap = (self.installed[models.favoured].target.name, *models.sought) if models.sought else None
            yield Done(index, tuple(models.drawn), for_gap, cpu=told(spent.take()))

    def _warnings(self) -> Iterator[Event]:
        """What was not told yet of this machine and of the cases that are not whole."""
        network = () if self.runner.network_isolated else (Warned(NO_NETWORK_NAMESPACE),)
        for warning in {*network, *self.keeping.damaged.values()} - self.warned:
            self.warned.add(warning)
            yield warning

    def _kept(self, result: Examination) -> tuple[Examination, New | None, Learned | None]:
        """The result, known if what was found is; else what is kept of it. Learned: another name of what is known."""
        finding = result.finding
        if finding is None or result.known or result.unexplained:
            return result, None, None
        id, kept = self.keeping.keep(finding)
        if not isinstance(kept, KnownIssue):
            return result, kept, None
        may_be_met = id != kept.id and self.plan.workers > 1 and not self.plan.cluster  # by another shard
        return replace(result, known=kept.id), None, Learned(id, 0.0, str(kept.saved.path)) if may_be_met else None

    def _told(
        self, index: int, graph: int, trial: Trial, result: Examination, *, cpu: float, insensitive: bool
    ) -> Examined:
        """What is told of one case."""
        return Examined(
            index,
            trial.target.name,
            trial.installed.release,
            dict(trial.recipe),
            result.verdict,
            known=str(self.keeping.known_issues[result.known].saved.path) if result.known else "",
            confirmed=result.confirmed,
            operators=tuple(sorted({node.op_type for node in trial.case.proto.graph.node})),
            insensitive=insensitive,
            recognized=bool(result.recognized),
            verified=result.verified,
            cpu=cpu,
            once=result.unconfirmed,
            again=result.again,
            unexplained=result.unexplained,
            graph=graph,
        )

    def _look_after(self, result: Examination) -> None:
        """Raise where the machine may be at fault for what came of a trial: nobody is blamed then."""
        self.examined += 1
        blamed = result.verdict.failed and not result.known
        # By another tier nobody was kept from looking: what it saw may be anything.
        unjudged = result.verdict.word is Word.ABSTAINS and result.verdict.tier == Tier.STRUCTURE
        if blamed or unjudged:
            self.runner.check_health()
        elif self.examined % CANARIES == 0:
            self.runner.check_health(fresh=False)
        if self.examined % CANARIES == 0:
            give_back_memory()

    def _examined(self, trial: Trial, care: Care, met: Mapping[Symptom, KnownIssue]) -> Examination:
        """What comes of a trial; what was not explained is tried once more, with more effort. Where the run is ending
        it counts as it stands: nobody may go on with it."""
        issues = self.keeping.issues(trial.target.name)
        effort = Effort(self.plan.reduce_seconds, REDUCTION_CALLS, self.stopping)
        result = examine(trial, issues, effort=effort, care=care, met=met)
        if result.unexplained and not self.stopping():
            more = replace(effort, seconds=MORE_EFFORT * effort.seconds)
            result = examine(trial, issues, effort=more, care=care, met=met)
        return replace(result, unexplained=result.unexplained and not self.stopping())

    def _telling(self, trial: Trial) -> tuple[Trial, bool]:
        """A case that is to be quantized, with other numbers where no damage could show; and whether that remains."""
        if not trial.quantizes or not insensitive(trial.case, self.runner.reference):
            return trial, False
        other = revived(trial.case, self.runner.reference, self.plan.seed)
        return replace(trial, case=other or trial.case), other is None


def told(taken: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """What was spent, as Done tells it."""
    return {f"{why}: {what}": round(seconds, 5) for (why, what), seconds in taken.items() if seconds > LEAST_TOLD}


def care_of(name: str) -> Care:
    """What is done with a failure of the case called so that is recognized without a run, the same in every run."""
    chance = zlib.crc32(name.encode()) % 100
    return Care.ALL if chance < VERIFIED else Care.REST if chance < VERIFIED + RUN_AGAIN else Care.NONE


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
        spent.gather("starting")
    except UserError as e:
        _shard = e
    except Exception as e:
        traceback.print_exc()
        hint = "this is an error of driftnet itself; please report it with what stands on stderr"
        _shard = UserError(f"{type(e).__name__}: {e}", hint=hint, kind="internal")


def examine_index(
    index: int, most: int, trusted: bool = True, ends: float = math.inf, part: Part | None = None
) -> list[Event]:
    """The events of one index, each written into the journal as it happens.

    trusted   whether it may be judged in this process: no shard has died with it in hand
    ends      when (time.monotonic) the run is over: nothing is begun any more
    part      of what was never asked, what is sought from now on; None: as before

    An exception of ours is an event too: it must not end the campaign.
    """
    events: list[Event] = []
    try:
        if isinstance(_shard, UserError):
            raise _shard
        if time.monotonic() >= ends:
            return []
        if part:
            _shard.seek(part)
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
