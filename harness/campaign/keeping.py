"""Keeping: what one process of a campaign knows, and what becomes of what it finds.

What other processes have found is read from the run's folder of cases, which is the only thing they share.
"""

import os
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from driftnet.campaign.events import Event, Learned, LeftOut
from driftnet.campaign.plan import Plan
from driftnet.campaign.state import CASES
from driftnet.causes.place import Where
from driftnet.causes.record import CauseRecord
from driftnet.findings import arrange, corpus
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import KnownIssue, KnownIssues
from driftnet.findings.pipeline import known_by, to_save
from driftnet.findings.pursuing import Finding
from driftnet.handover import handover
from driftnet.learning.experiment import Sample
from driftnet.learning.study import at_sight, proposal, sharing, study
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.registry import registered
from driftnet.util import spent
from driftnet.util.errors import UserError
from driftnet.util.files import claimed, in_turn

LEARNING = 0.15
"""Of the CPU time of a run that has to end, what learning triggers may take while findings come faster than they can be
learned of: an hour has time for all, a minute with no corpus for one in nine."""
HANDING = 0.1
"""The same of handing over: beyond it no control is searched for until a finding is learned of. Ten minutes on an old
release with fifty bugs of its own spent a quarter on that."""


LEARNED, HANDED = "learning", "handing over"


class New(NamedTuple):
    """A new finding: its folder, and the models that were run to learn of it, none where that waits."""

    path: Path
    samples: Sequence[Sample] = ()


@dataclass
class Keeping:
    """What is known, and what was found and waits to be learned of.

    of_run   the names of the known issues that lie in the folder of this run, in the order in which they came
    fixed    saved cases that explain nothing any more;   damaged   what is not whole
    """

    plan: Plan
    runner: Runner
    installed: Sequence[Installed]
    stopping: Callable[[], bool]
    known_issues: dict[str, KnownIssue] = field(default_factory=dict)
    of_run: dict[str, None] = field(default_factory=dict)
    of_target: dict[str, KnownIssues] = field(default_factory=dict)
    fixed: dict[str, corpus.SavedCase] = field(default_factory=dict)
    damaged: dict[Path, LeftOut] = field(default_factory=dict)
    waiting: list[tuple[Path, Installed, Where]] = field(default_factory=list)
    learning_seconds: float = 0.0
    handing_seconds: float = 0.0

    def __post_init__(self) -> None:
        for folder in corpus.known(self.plan.corpus):
            self.learn(folder, self.plan.mended, told={*self.known_issues, *self.fixed})
        if self.plan.state:
            self.learn(self.plan.state / CASES, self.plan.mended)
        if self.plan.resume:
            self.adopt()

    def learn(self, folder: Path, mended: Set[str] = frozenset(), told: Set[str] = frozenset()) -> None:
        """Take the cases saved below `folder` into account from now on, but those `told` before, and those in folders
        of targets that are not examined; a fixed one explains nothing any more, nor does one of a cause that is
        `mended`, nor one that is not whole."""
        for path in corpus.case_folders(folder):
            if path.name in told or path.relative_to(folder).parts[0] in self.unasked:
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
                    self.know(KnownIssue(saved))

    @cached_property
    def unasked(self) -> Set[str]:
        """The targets that are registered and not examined."""
        return registered().keys() - {one.target.name for one in self.installed}

    def adopt(self) -> None:
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

    def know(self, issue: KnownIssue) -> None:
        self.known_issues[issue.id] = issue
        self.of_run.pop(issue.id, None)
        if str(issue.saved.path).startswith(f"{self.plan.found}{os.sep}"):
            self.of_run[issue.id] = None
        self.of_target.clear()

    def _forget(self, name: str) -> None:
        del self.known_issues[name]
        self.of_run.pop(name, None)
        self.of_target.clear()

    def issues(self, target: str) -> KnownIssues:
        """What is known of a target now."""
        if target not in self.of_target:
            self.of_target[target] = KnownIssues.of([*self.known_issues.values()], target)
        return self.of_target[target]

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
                    self.know(KnownIssue(replace(saved, path=there)))
                return saved.id, self.known_issues[saved.id]
            return saved.id, self._kept(finding, corpus.load(loose), before)

    def _kept(self, finding: Finding, saved: corpus.SavedCase, before: Set[str]) -> New | KnownIssue:
        """What becomes of a finding that lies loose now, examined when the issues `before` were known."""
        meanwhile = [issue for name, issue in self.known_issues.items() if name not in {*before, saved.id}]
        if issue := known_by(finding, meanwhile, self.runner, Effort(self.plan.reduce_seconds, stop=self.stopping)):
            self._remove(saved)
            self._forget(saved.id)
            return issue
        with spent.part(LEARNED):
            seen = at_sight(saved, finding.installed, finding.where, self.runner)  # experiments cost more than the rest
            issue = sharing(seen, finding.installed, self._others(saved), self.runner)
        if issue:
            return self._shared(saved, issue, issue.saved.cause)
        loose = self._loose(saved)
        if self._waits:  # it may end while this is learned of, or its control searched for
            begun = self.runner.all_cpu_seconds
            with spent.part(HANDED):
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

    @spent.part(HANDED)
    def hand_over(self, new: New, installed: Installed) -> None:
        """Write what a maintainer needs beside a new finding, with a control; where that takes too much of a run, not
        before it is learned of."""
        begun = self.runner.all_cpu_seconds
        if not self._waits or new.samples or self.handing_seconds < HANDING * begun:
            with claimed(new.path) as ours:
                if ours:  # else another shard has adopted what waits, and hands it over
                    handover.write(new.path, installed, self.runner, samples=new.samples)
            self.handing_seconds += self.runner.all_cpu_seconds - begun

    @spent.part(LEARNED)
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
                return self._shared(saved, issue, replace(arrange.loose(saved), **proposal(learned)))
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
        return [one for one in self.issues(saved.target) if one.id != saved.id]

    def _shared(self, saved: corpus.SavedCase, issue: KnownIssue, own: CauseRecord | None) -> KnownIssue:
        """The known issue with which what lies loose shares its cause. What it is recognized by, its `own`, is another
        variant of that: the next one like it costs less."""
        self._remove(saved)
        self.know(KnownIssue(replace(saved, cause=own, path=issue.saved.path)))
        return issue

    def catch_up(self) -> Iterator[Event]:
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
                self.hand_over(new, installed)
            known = "" if isinstance(new, New) else str(new.saved.path)
            yield Learned(path.name, self.runner.all_cpu_seconds - begun, known)
