"""A fuzzing budget inside a suite of tests: a run in slices, each of them a test, shared out among its processes."""

import itertools
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driftnet.campaign.events import Examined, Failed, Found, LeftOut
from driftnet.campaign.plan import Plan
from driftnet.campaign.shard import Shard
from driftnet.commands import redtest
from driftnet.findings import corpus
from driftnet.findings.names import TESTS
from driftnet.findings.trial import Trial, watch
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder

SLICES = 6
"""For each process of the suite: one that is through with its other tests takes the next."""


@dataclass(frozen=True)
class Budget:
    """What a suite spends on fuzzing.

    minutes   of wall time for each of the `processes`;   root   folder of the suite
    targets, corpus   none and None: what `driftnet fuzz` takes, too
    """

    minutes: float
    processes: int
    seed: int
    root: Path
    targets: Sequence[str] = ()
    corpus: Path | None = None

    @property
    def slices(self) -> int:
        """How many tests it makes. Slice k examines the indices k, k + slices, ...: none is examined twice, whichever
        process gets it."""
        return SLICES * self.processes

    @property
    def plan(self) -> Plan:
        """The same as a campaign, whose folder no other run knows: what one has found another finds again."""
        report = self.root / TESTS / f"fuzz-{self.seed}"
        return Plan(
            report=report, targets=self.targets or DEFAULT_TARGETS, seed=self.seed, corpus=self.corpus or corpus.OWN
        )

    def check(self) -> None:
        """Raises UserError for what there is not: a target, a corpus, minutes."""
        if not 0 < self.minutes < math.inf:
            raise UserError(f"--driftnet-minutes is a positive number, not {self.minutes}")
        if self.corpus is not None and not self.corpus.is_dir():
            hint = "name a folder of saved cases, or leave it out: then it is what came with driftnet"
            raise UserError(f"--driftnet-corpus {self.corpus}: there is no such folder", hint=hint)
        for word in self.targets:
            resolve(word)


@dataclass
class Slice:
    """What came of one.

    indices   that were examined;   cases   of them
    known     names of the causes that were met again;   causes   of those that no saved case explains
    new       these in words;   errors   of driftnet itself
    """

    indices: list[int] = field(default_factory=list)
    cases: int = 0
    known: set[str] = field(default_factory=set)
    causes: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Fuzzer:
    """The part of one process in a budget: its workers, and what it knows so far. Close it."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.plan = budget, budget.plan
        redtest.begun(budget.root / TESTS)
        make_folder(self.plan.found)
        self.runner = Runner(
            timeout=self.plan.timeout, memory_gib=self.plan.memory_gib, small_models=True, hold_crashes=True
        )
        self.shard = Shard(self.plan, self.runner, lambda: False)  # what is in hand when its time is over is finished

    def close(self) -> None:
        """End its workers."""
        self.runner.close()

    def run(self, k: int) -> Slice:
        """Examine the indices of slice `k` until its share of the time is over, one at least."""
        ends, told = time.monotonic() + 60 * self.budget.minutes / SLICES, Slice()
        for index in itertools.count(k, self.budget.slices):
            told.indices.append(index)
            for event in self.shard.run(index, self.plan.cases_per_model):
                match event:
                    case Examined():
                        told.cases += 1
                        told.known |= {_cause_of(Path(event.known))} if event.known else set()
                    case Found():
                        self._tell(event, told)
                    case Failed() | LeftOut():
                        told.errors.append(event.message)
            if time.monotonic() >= ends:
                return told
        raise AssertionError("there is no last index")

    def _tell(self, event: Found, told: Slice) -> None:
        saved = corpus.load(Path(event.path))
        installed = next(one for one in self.shard.installed if one.target.name == saved.target)
        _, seen = watch(Trial(saved.case, installed, saved.recipe, self.runner))
        told.new.append(redtest.told(saved, event.release, None, seen.outputs if seen else ()))
        told.causes.append(f"{_cause_of(Path(event.path))}: {redtest.sentence_of(saved, event.release)}")


def discard(budget: Budget) -> None:
    """Forget what an earlier run of the same seed has found, so that it is found again."""
    shutil.rmtree(budget.plan.report, ignore_errors=True)


def _cause_of(case: Path) -> str:
    """The name of the cause whose variant stands in `case`, or will: one that lies loose is called after its case."""
    return case.parent.name if (case.parent / "cause.json").exists() else case.name.removeprefix("test_")
