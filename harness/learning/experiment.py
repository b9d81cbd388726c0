"""Experiments on one failure: a case is run, and the answer is whether it fails in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from driftnet.causes.facts import Facts
from driftnet.causes.host import Host, Tensors, host_of
from driftnet.causes.lookup import facts_of, recipe_facts
from driftnet.causes.place import Where, place_of
from driftnet.causes.predicate import Shape, Trigger
from driftnet.causes.record import Status
from driftnet.findings.corpus import SavedCase
from driftnet.findings.issues import symptom_of
from driftnet.findings.pursuing import is_clear
from driftnet.findings.trial import Trial, watch
from driftnet.learning.instances import whole
from driftnet.model.case import Case
from driftnet.model.signature import coarse
from driftnet.model.verdict import DEPENDS_ON_RUN, Kind, Tier, Verdict, Word
from driftnet.oracle.ball_arithmetic.creation import random_tensors
from driftnet.reduce.problem import name_of, shrink
from driftnet.run.reference import Reference, ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.interface import STAGES
from driftnet.targets.recipe import Recipe, remedied

STAGE_SECONDS = 1.0
"""Wall seconds of one stage of one run."""

TRIES = 3
"""Runs that something which does not always show is given."""


@dataclass(frozen=True, eq=False)
class Sample:
    """What came of one experiment.

    how     "case", "pair", "walk", "drawn": how it was made;   aspect  what was changed, of a minimal pair
    fails   whether it fails in the same way
    facts   those of the place; None where it has no such place
    agrees  whether it is right: what does not fail in this way may fail in another
    """

    case: Case
    recipe: Recipe
    how: str
    fails: bool
    facts: Facts | None
    aspect: str = ""
    said: str = ""
    agrees: bool = False


@dataclass(eq=False)
class Experiments:
    """Runs changed cases of one saved failure, as long as the budget lasts, each once.

    seconds   CPU seconds of all processes
    where     the place where it fails;   steady   whether what fails once fails always: else each is run several times
    plain     whether it fails under default options too
    """

    saved: SavedCase
    installed: Installed
    runner: Runner
    seconds: float
    where: Where = field(default_factory=Where)
    steady: bool = True
    plain: bool = True
    runs: int = 0
    _known: dict[str, bool | None] = field(default_factory=dict)
    _right: set[str] = field(default_factory=set)
    _start: float | None = None

    def __post_init__(self) -> None:
        self._start = self.runner.all_cpu_seconds if self._start is None else self._start
        self._sort = symptom_of(self.saved.coarse, ()).sort
        self.steady = self.steady and self.saved.status is not Status.FLAKY

    @property
    def spent(self) -> float:
        """CPU seconds used so far."""
        return self.runner.all_cpu_seconds - (self._start or 0.0)

    @property
    def left(self) -> bool:
        """Whether some of the budget is left."""
        return self.spent < self.seconds

    def begun(self) -> Experiments | None:
        """The experiments at the place where the case fails when it is run as it was saved; None where it does not."""
        for _ in range(TRIES):
            verdict, observation = watch(self._trial(self.saved.case, self.saved.recipe), fresh=True)
            if self._is_alike(verdict):
                plain = not self.saved.recipe or self._fails_plainly(self.saved.case)
                there = replace(self, where=place_of(self.installed.target, verdict, observation), plain=plain)
                return replace(there, where=replace(there.where, optimizers=there.parts_at_fault()))
        return None

    def parts_at_fault(self) -> tuple[str, ...]:
        """The fewest parts of the target without which the case does not fail; none where that cures nothing, or it
        fails before they are at work. It takes one run where no part is at fault."""
        if self.saved.stage != "execute":
            return ()

        def cures(name: str, parts: Sequence[str]) -> bool:
            changed = remedied(self.installed.target, self.saved.recipe, {name: list(parts)})
            return self.fails(self.saved.case, changed) is False

        for name, parts in self.installed.target.switches.items():
            if cures(name, parts):
                return tuple(shrink(parts, partial(cures, name), least=1))
        return ()

    def fails(self, case: Case, recipe: Recipe) -> bool | None:
        """Whether it fails in the same way, at the same place; None where that cannot be told: what is refused, or
        fails in another way before it could in this one, says nothing of it, and what fails under default options too
        has another cause where the case does not."""
        name = name_of(case, recipe)
        if name not in self._known:
            self._known[name] = self._run(case, recipe)
        return self._known[name]

    def agrees(self, case: Case, recipe: Recipe) -> bool:
        """Whether what `fails` was asked of is right each time it was run."""
        return name_of(case, recipe) in self._right

    def repeated(self, samples: Sequence[Sample]) -> Experiments:
        """The experiments to go on with, once some of `samples` were run again: where one comes out otherwise, nothing
        is steady, nor known."""
        for sample in samples:
            self.runs += 1
            verdict, _ = watch(self._trial(sample.case, sample.recipe), fresh=True)
            if self._is_alike(verdict) != sample.fails:
                return replace(self, steady=False, _known={})
        return self

    def _run(self, case: Case, recipe: Recipe) -> bool | None:
        for _ in range(1 if self.steady else TRIES):
            self.runs += 1
            verdict, observation = watch(self._trial(case, recipe), fresh=not self.steady)
            hurried = verdict.word is Word.HANGS and self.saved.kind != Kind.HANG
            if verdict.word in (Word.INVALID, Word.ABSTAINS, Word.REJECTS) or hurried:
                return None
            if self._is_alike(verdict):
                there = self.where.near(place_of(self.installed.target, verdict, observation))
                return True if there and is_clear(verdict) and (self.plain or not self._fails_plainly(case)) else None
            if verdict.failed and _reached(verdict) <= _reached(self.saved.verdict):
                return None
        if verdict.word is Word.AGREES:
            self._right.add(name_of(case, recipe))
        return False

    def _fails_plainly(self, case: Case) -> bool:
        """Whether it fails in the same way under default options."""
        self.runs += 1
        return self._is_alike(watch(self._trial(case, {}))[0])

    def _trial(self, case: Case, recipe: Recipe) -> Trial:
        return Trial(case, self.installed, recipe, self.runner).within(STAGE_SECONDS)

    def _is_alike(self, verdict: Verdict) -> bool:
        if not verdict.failed:
            return False
        if self.saved.kind in DEPENDS_ON_RUN:
            return verdict.word is Word.DIVERGES
        return symptom_of(coarse(self.installed.target.name, verdict), ()).sort == self._sort

    def tensors(self, case: Case) -> Tensors:
        """What the first feed makes the tensors of `case`."""
        return computed(case, self.runner.reference)

    def expected(self, case: Case, recipe: Recipe, trigger: Trigger) -> bool | None:
        """What `trigger` says of `case` before it is run; None where that hangs on what is computed."""
        return trigger.matches(host_of(case), recipe_facts(self.installed.target, recipe))

    def facts(self, case: Case, recipe: Recipe, shape: Shape, like: Facts | None = None) -> Facts | None:
        """The facts of the place of `shape` in `case`, of several that which has most in common with `like`."""
        host = host_of(case, self.tensors(case))
        options = recipe_facts(self.installed.target, recipe)
        found = [facts_of(host, place, options).all() for place in _first(shape, host)]
        if like is None or len(found) < 2:
            return found[0] if found else None
        return max(found, key=lambda facts: sum(facts.get(k) == v for k, v in like.items()))


def computed(case: Case, reference: Reference) -> Tensors:
    """What the first feed makes the tensors of `case`: outputs, and what is between where anything is. Of what is
    random nothing: the next run makes it otherwise."""
    host = host_of(case)
    try:
        if set(host.makers) <= set(host.graph.outputs):
            found = next(iter(reference.run(case).outputs), {})
        else:
            found = reference.record(case)[0]
    except ReferenceError:
        return {}
    random = random_tensors(host.graph)
    return {name: x for name, x in found.items() if name not in random}


def _reached(verdict: Verdict) -> tuple[int, bool, bool]:
    """How far a run came: its stage, whether that came to its end, whether all but numbers was right."""
    stage = STAGES.index(verdict.stage) if verdict.stage in STAGES else 0
    return stage, verdict.word is Word.DIVERGES, verdict.tier != Tier.STRUCTURE


def _first(shape: Shape, host: Host, most: int = 6) -> list[tuple[int, ...]]:
    if len(about := whole(host)) == shape.roles == 1:
        return [about]
    places = []
    for place in shape.places(host):
        places.append(place)
        if len(places) == most:
            break
    return places
