"""Drawing: the graphs of one process, by what is known, what a target refuses and what it was never asked."""

import random
import re
import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from driftnet.campaign import coverage
from driftnet.campaign import seeds as neighbours
from driftnet.campaign.age import of_its_time
from driftnet.campaign.events import Drawn
from driftnet.campaign.gaps import DRAWS, Form, Gaps, Part
from driftnet.campaign.plan import Choice, Plan, choices, runs_under, variant
from driftnet.campaign.refused import TRIED, Forms, forms_of, remembered
from driftnet.campaign.steering import KEPT, Doubts, Steering
from driftnet.causes.facts import Facts
from driftnet.causes.host import Host, host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.predicate import Trigger
from driftnet.findings.corpus import known as known_folders
from driftnet.findings.issues import KnownIssue
from driftnet.findings.trial import Trial
from driftnet.generators import bulk
from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.generators.focus import operators_of
from driftnet.model.inspect import Case
from driftnet.model.verdict import Verdict
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.util.spent import part

GENERATOR = "generator"
"""The part of the work (`driftnet.util.spent`) that drawing is."""


PARTS = 4
"""Parts of a graph on the grid of a quantizer that are drawn until one does not meet what is known."""


@dataclass(frozen=True, eq=False)
class Read:
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
class Drawing:
    """What graphs are drawn of, with what was seen of those before.

    known   the known issues, by their ids
    """

    plan: Plan
    runner: Runner
    installed: Sequence[Installed]
    known: Mapping[str, KnownIssue]
    doubts: Doubts = field(default_factory=Doubts)
    graphs: dict[bytes, Read] = field(default_factory=dict)
    _steering: Steering = field(default_factory=lambda: Steering(()))
    _of_index: dict[int, list[tuple[str, str, Facts]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seeds = neighbours.seeds(self.plan.seeds, self.runner.reference) if self.plan.seeds else []
        self.ages = [of_its_time(one, self.runner) for one in self.installed]
        folders = known_folders(self.plan.corpus)
        self.refusals = [remembered(folders, one.target.name, one.release) for one in self.installed]
        asked = coverage.load(self.plan.state) if self.plan.state else coverage.Counts()
        if self.plan.resume:
            asked |= coverage.asked(self.plan.report)
        self.profiles = [Profile(**one.target.profile) for one in self.installed]
        self.gaps = [Gaps(one.target.name, asked, of) for one, of in zip(self.installed, self.profiles)]

    @cached_property
    def focused(self) -> Set[str]:
        """The operators that somebody asked for: drawn whatever is known of them."""
        return operators_of(self.plan.focus)

    @property
    def steers(self) -> bool:
        """Whether drawing goes by what is known and by what was refused."""
        return self.plan.steer and not self.seeds

    @property
    def steering(self) -> Steering:
        """By what is known now."""
        if [*self._steering.issues] != [*self.known.values()]:
            self._steering = Steering(tuple(self.known.values()), self.doubts)
        return self._steering

    def case(
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
        steering, refusals, one = self.steering, self.refusals[favoured], self.installed[favoured]
        lookout = steering.under(self._recipes(index))
        free, tried = self._is_free(index), self._tries(index)
        refused = self._refused(index, favoured)
        came = False

        def unwanted(case: Case) -> Set[str]:
            nonlocal came
            came = came or (sought is not None and sought.comes_in(self.read(case).drawn))
            known = frozenset[str]()
            if not free:
                known = lookout.unwanted(self.read(case).host, lambda: self.runner.reference.computed(case))
            if refusals and not tried:
                known |= refusals.unwanted(self.read(case).forms)
            return known - self.focused

        def drawn(seed: int, focus: Sequence[str], weights: Mapping[str, float], alone: bool = False) -> Case:
            return bulk.case(
                seed,
                index,
                focus=focus,
                weights={
                    **weights,
                    **steering.weights(one.target.name, one.release),
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
            if came or sought.comes_in(self.read(case).drawn):  # what was not wanted then seldom is the next time
                break
        return case

    def _recipes(self, index: int) -> Sequence[tuple[str, str, Facts]]:
        """The recipes by which graphs of `index` are run, with their targets and releases; asked for again when one is
        refused."""
        if index not in self._of_index:
            self._of_index = {
                index: [
                    recipe
                    for one in self.installed
                    for choice in choices(one, self.plan.seed, index)
                    for recipe in _runs(one, choice)
                ]
            }
        return self._of_index[index]

    def variant(self, case: Case, index: int, j: int, choice: Choice) -> Case:
        """`case` on the grid of target `j`, where that is chosen: another part of it where one meets what is known, as
        a part of a graph with other numbers may. Where all do, as it was drawn."""
        one, given = self.installed[j], variant(case, self.installed[j], choice)
        if given is case or not self.steers or self._is_free(index):
            return given
        lookout = self.steering.under(_runs(one, choice))

        def meets(part: Case) -> bool:
            return bool(lookout.unwanted(self.read(part).host, lambda: self.runner.reference.computed(part)))

        others = (variant(case, one, choice._replace(grid_seed=choice.grid_seed + k)) for k in range(1, PARTS))
        return next((part for part in chain([given], others) if not meets(part)), case)

    def sought(self, index: int, favoured: int) -> Form | None:
        """What the target at `favoured` was never asked and is to be now, if this index is for that."""
        if self.plan.focus or not self.steers:
            return None
        gaps, rng = self.gaps[favoured], random.Random(f"{self.plan.seed} {index} gap")
        without = {name for name, factor in self.ages[favoured].items() if not factor} | self._refused(index, favoured)
        return gaps.one(rng, without) if rng.random() < gaps.share(without) else None

    def _refused(self, index: int, favoured: int) -> Set[str]:
        """The operators that the target at `favoured` refuses, if this index goes by that."""
        return frozenset() if self._tries(index) else self.refusals[favoured].operators() - self.focused

    def _is_free(self, index: int) -> bool:
        """Whether this index is drawn as if nothing was known."""
        return self._chance(index, "free", KEPT)

    def _tries(self, index: int) -> bool:
        """Whether this index is drawn as if nothing was refused."""
        return self._chance(index, "refused", TRIED)

    def read(self, case: Case) -> Read:
        """Its graph, read once: most cases of an index have one. The host has the numbers of the first of them."""
        if case.model not in self.graphs:
            self.graphs[case.model] = Read(case, host_of(case))
        return self.graphs[case.model]

    def _chance(self, index: int, name: str, among: int) -> bool:
        return zlib.crc32(f"{self.plan.seed}/{index}/{name}".encode()) % among == 0

    @part(GENERATOR)
    def refused_for(self, case: Case, j: int, verdict: Verdict) -> frozenset[str]:
        """What target `j` did with `case` is learned; the operators that the rest of its cases do without."""
        if not self.steers:
            return frozenset()
        return self.refusals[j].learn(self.read(case).forms, verdict) - self.focused

    @part(GENERATOR)
    def known_for(self, case: Case, index: int, issue: KnownIssue) -> frozenset[str]:
        """The operators that the rest of the cases of `index` do without once `case` has failed for a known issue,
        though it met no trigger: under other recipes it would mostly fail again."""
        if not self.steers or self._is_free(index):
            return frozenset()
        return issue.op_types & {node.op_type for node in case.proto.graph.node} - self.focused

    @part(GENERATOR)
    def met(self, trial: Trial) -> Set[Trigger]:
        """The triggers that a case meets, by what is known of it without running it."""
        if not self.steers:
            return frozenset()
        under = trial.target.name, trial.installed.release, recipe_facts(trial.target, trial.recipe)
        return self.steering.under([under]).met(self.read(trial.case).host)


class Models:
    """The models of one index, one for each target: several where some take little at all.

    favoured   the target by which they are drawn, by its place;   sought   what that was never asked, if anything
    drawn      what each model is, in the order in which they came
    """

    def __init__(self, drawing: Drawing, index: int) -> None:
        self._drawing, self._index, self.favoured = drawing, index, index % len(drawing.installed)
        drawing.graphs.clear()
        self.sought = drawing.sought(index, self.favoured)
        own, cases = drawing.profiles[self.favoured], dict[Profile, Case]()
        for profile in dict.fromkeys((own, *drawing.profiles)):
            sought = self.sought if profile == own else None
            cases[profile] = drawing.case(index, self.favoured, profile, sought=sought)
        self.drawn = [drawing.read(case).drawn for case in cases.values()]
        self._cases = [cases[profile] for profile in drawing.profiles]
        self._numbers = [[*cases].index(profile) for profile in drawing.profiles]
        self._left_out: list[Set[str]] = [frozenset() for _ in drawing.profiles]

    def of(self, j: int) -> Case:
        """That of the target `j`."""
        return self._cases[j]

    def number(self, j: int) -> int:
        """Its place in `drawn`."""
        return self._numbers[j]

    def leave_out(self, j: int, operators: Set[str]) -> None:
        """Draw another model for the target `j`, without these operators and those left out before, around what is
        sought still, unless that is of one of them."""
        self._left_out[j] |= operators
        profile = self._drawing.profiles[j]
        wanted = profile == self._drawing.profiles[self.favoured] and self.sought
        sought = wanted if wanted and wanted.operator not in self._left_out[j] else None
        self._cases[j] = self._drawing.case(self._index, self.favoured, profile, self._left_out[j], sought)
        self._numbers[j] = len(self.drawn)
        self.drawn.append(self._drawing.read(self._cases[j]).drawn)


def part_of(name: str, workers: int) -> Part:
    """What a process seeks of what was never asked, so that no two of a run seek the same: which part, of how many.
    name: of the process; those of a pool are numbered in turn, and one that dies takes the others with it."""
    return int(re.findall(r"\d+", f"0 {name}")[-1]) % workers, workers


def _runs(one: Installed, choice: Choice) -> list[tuple[str, str, Facts]]:
    """The recipes by which what is chosen is run on a target, with the name of that and its release."""
    recipes = runs_under(one.target, choice.recipe)
    return [(one.target.name, one.release, recipe_facts(one.target, under)) for under in recipes]
