"""Learning a trigger: minimal pairs first, then instances from both sides of what is believed, until it errs no more.

    the saved case     its nodes are the roles, how they hang together is the shape
    minimal pairs      one thing changed each: which operators fail alike, what is needed, what is free
    a first trigger    of these alone
    batches            of instances: half of them, as far as the generator gives any, where the trigger says it fails;
                       where it errs it is learned anew, from all that was seen
    the end            three batches without a mistake, or the budget

Instances are of three sorts: the operators' own records (cheap), cut out of random graphs (as others will meet them),
and failures that were seen with a few more things changed (close to the border).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from driftnet.causes.facts import Facts, Value
from driftnet.causes.host import Tensors, host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings.corpus import SavedCase
from driftnet.generators.building.profile import Profile
from driftnet.learning import instances
from driftnet.learning.experiment import Experiments, Sample
from driftnet.learning.pairs import Change, changes
from driftnet.learning.regions import Data, learn
from driftnet.model.case import Case
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.recipe import Recipe

SECONDS = 4.8
PAIRS_SHARE = 0.4
"""Of the budget, what minimal pairs may take."""
BATCH = 24
"""Instances between two looks at what has been learned."""
QUIET = 3
"""Batches in a row in which the trigger did not err, after which it is believed."""
WEIGHTS = {"case": 4.0, "pair": 2.0, "walk": 1.0, "drawn": 1.5}
MOST = 0.7
"""The share of operators that fail where nearly any does."""
ANY = 4
"""Operators that have to fail before any is believed to."""
REPEATED = 3
"""Minimal pairs that fail, and as many that do not, that are run again to see whether they do so always."""
MOST_UNVARIED = 4
"""Nodes of a trigger that was learned from no instance that showed anything: with more it would repeat the model."""
PER_ASPECT = 8
"""Changes of one aspect that are run."""


@dataclass(frozen=True)
class Score:
    """How often a trigger was right about instances that it was not learned from.

    failing    how many of them failed in the same way;  found  how many of these it named;  named  how many it named
    """

    instances: int = 0
    right: int = 0
    failing: int = 0
    found: int = 0
    named: int = 0

    @property
    def accuracy(self) -> float:
        """The share of instances about which it was right; 1 where there was none."""
        return self.right / self.instances if self.instances else 1.0

    @property
    def worth(self) -> float:
        """The mean of two shares: of what fails, that which it named, and of what does not, that which it did not. A
        trigger that names nothing is worth a half, however rare failures are; 1 where there was no instance."""
        sound = self.instances - self.failing
        shares = [(self.found, self.failing), (sound - (self.named - self.found), sound)]
        told = [part / whole for part, whole in shares if whole]
        return sum(told) / len(told) if told else 1.0

    def __add__(self, other: "Score") -> "Score":
        """The score on the instances of both."""
        return Score(**{name: n + getattr(other, name) for name, n in vars(self).items()})

    def as_json(self) -> dict[str, Any]:
        """The score as a JSON value."""
        return {**vars(self), "accuracy": round(self.accuracy, 3)}


Told = tuple[bool, bool]
"""Of one instance: whether a trigger named it, and whether it failed."""


def score_of(told: Mapping[str, float]) -> Score:
    """The score that `Score.as_json` has told."""
    return Score(**{name: int(n) for name, n in told.items() if name != "accuracy"})


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned of one finding.

    trigger   None where there is no node to say anything of, or the case did not fail, or no instance showed
              anything of more nodes than MOST_UNVARIED: it would be the model itself
    free      aspects that were changed without losing the failure, with how often;  needed  those that lost it
    operators role -> the operators with which it fails
    score     on instances that it was not learned from
    steady    whether what failed once failed always
    tensors   what its case computes
    """

    saved: SavedCase
    where: Where
    trigger: Trigger | None
    free: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    operators: tuple[tuple[str, ...], ...] = ()
    score: Score = Score()
    runs: int = 0
    seconds: float = 0.0
    steady: bool = True
    samples: tuple[Sample, ...] = ()
    tensors: Tensors = field(default_factory=dict)


def learn_trigger(
    saved: SavedCase, installed: Installed, runner: Runner, *, seconds: float = SECONDS, seed: int = 1
) -> Learned:
    """Learn under which condition `installed` fails as it does on `saved`.

    seconds   CPU seconds of all processes that it may take;  seed  of the instances

    runner should hold crashes, so that those of other places are told apart.
    """
    asked = Experiments(saved, installed, runner, seconds)
    lab = asked.begun() or asked
    tensors = lab.tensors(saved.case)
    host = host_of(saved.case, tensors)
    place, shape = instances.whole(host), instances.shape_of(host)
    base = lab.facts(saved.case, saved.recipe, shape) if place else None
    if lab is asked or base is None:
        return Learned(saved, lab.where, None, runs=lab.runs, seconds=lab.spent, tensors=tensors)
    samples = [Sample(saved.case, saved.recipe, "case", True, base)]
    lab.seconds = seconds * PAIRS_SHARE
    samples += _pairs(lab, shape, base, list(changes(saved.case, saved.recipe, installed.target, host, place)))
    lab.seconds = seconds
    lab = lab.repeated([s for fails in (True, False) for s in [s for s in samples if s.fails is fails][-REPEATED:]])
    roles = _operators(samples, shape)
    trigger = _learned(shape, samples, roles)
    quiet, recent = 0, list[Told]()
    draws = _draws(lab, samples, roles, shape, Random(seed), seed)
    while lab.left and quiet < QUIET:
        batch = list(_batch(lab, draws, shape, base, trigger))
        if not batch:
            break
        told = [(trigger.holds(s.facts) is True, s.fails) for s in batch if s.facts is not None]
        recent = [*recent, *told][-QUIET * BATCH :]
        samples += batch
        lab = lab.repeated(batch[-2:])
        errs = any(named != fails for named, fails in told)
        quiet = 0 if errs else quiet + 1
        if errs:
            trigger = _learned(shape, samples, roles)
    told_of = under_options(trigger, samples) if recent or len(place) <= MOST_UNVARIED else None
    free, needed = _aspects(samples)
    return Learned(
        saved,
        lab.where,
        told_of,
        free,
        needed,
        tuple(map(tuple, roles)),
        score=scored(recent),
        runs=lab.runs,
        seconds=lab.spent,
        steady=lab.steady,
        samples=tuple(samples),
        tensors=tensors,
    )


def under_options(trigger: Trigger, samples: Sequence[Sample]) -> Trigger:
    """The trigger, each of whose regions asks for the values of an option that fail, too, where with another value the
    case was right and nothing in the region is known to fail: of hundreds of samples few differ in an option, so that a
    tree may do without."""
    told = [s for s in samples if s.facts is not None]
    failing = dict[str, set[Value]]()
    for s in (s for s in told if s.how in ("case", "pair") and s.fails):
        for name in (name for name in s.facts or () if name.startswith("recipe.")):
            failing.setdefault(name, set()).add((s.facts or {})[name])
    pairs = [s for s in told if s.how == "pair" and s.agrees and s.aspect in failing]

    def asked(region: Region) -> Iterator[Atom]:
        """What the region leaves open, though it may hold under an option with which the case was right."""
        options = Region(tuple(atom for atom in region.atoms if atom.fact.startswith("recipe.")))
        named = {atom.fact for atom in region.atoms}
        inside = [s.facts for s in told if s.fails and s.facts and region.holds(s.facts)]
        right = (s for s in pairs if s.facts and s.aspect not in named and options.holds(s.facts) is not False)
        open_ones = {s.aspect for s in right if all(x.get(s.aspect) != (s.facts or {})[s.aspect] for x in inside)}
        return (Atom(name, "in", tuple(sorted(failing[name], key=str))) for name in sorted(open_ones))

    return Trigger(trigger.shape, tuple(Region((*r.atoms, *asked(r))) for r in trigger.regions))


def compare(
    triggers: Sequence[Trigger],
    learned: Learned,
    installed: Installed,
    runner: Runner,
    *,
    seed: int,
    count: int = 40,
    tries: int = 120,
    others: Collection[Trigger] = (),
) -> list[Score]:
    """How often each of the triggers, of the shape that the case has, is right about the same fresh instances.

    others   of other causes that show in the same way: of a failure that one of these names, and the trigger does not,
             nothing is counted
    """
    told = [list[Told]() for _ in triggers]
    lab = Experiments(learned.saved, installed, runner, 1e9, steady=learned.steady).begun() if triggers else None
    if lab is None:
        return [Score() for _ in triggers]
    shape = triggers[0].shape
    roles = [list(names) for names in learned.operators]
    for index in range(tries):
        for case in _fresh(seed, index, roles, shape, lab):
            fails = lab.fails(case, learned.saved.recipe)
            facts = lab.facts(case, learned.saved.recipe, shape) if fails is not None else None
            if fails is None or facts is None:
                continue
            host, options = host_of(case, lab.tensors(case)), recipe_facts(installed.target, learned.saved.recipe)
            foreign = fails and any(other.matches(host, options) for other in others)
            for trigger, of_it in zip(triggers, told):
                named = trigger.holds(facts) is True
                if named or not foreign:
                    of_it.append((named, fails))
        if len(told[0]) >= count:
            break
    return [*map(scored, told)]


def scored(told: Sequence[Told]) -> Score:
    """The score of a trigger that told this."""
    return Score(
        len(told),
        right=sum(named == fails for named, fails in told),
        failing=sum(fails for _, fails in told),
        found=sum(named and fails for named, fails in told),
        named=sum(named for named, _ in told),
    )


def _learned(shape: Shape, samples: Sequence[Sample], roles: list[list[str]]) -> Trigger:
    """What the samples teach, with the operators said that they were drawn from."""
    regions = []
    for region in learn(_data(samples)):
        said = {atom.role for atom in region.atoms if atom.fact.endswith(".op") and atom.test in ("is", "in")}
        named = [
            Atom(f"{role}.op", "in" if len(names) > 1 else "is", tuple(names) if len(names) > 1 else names[0])
            for role, names in enumerate(roles)
            if role not in said and not _is_any(samples, role, names)
        ]
        regions.append(Region((*named, *region.atoms)))
    return Trigger(shape, tuple(regions))


def _is_any(samples: Sequence[Sample], role: int, names: Sequence[str]) -> bool:
    """Whether any operator may stand there: many were tried in this role, and all fail, or nearly all and Identity too,
    which only passes a tensor on."""
    tried = [s for s in samples if s.how == "pair" and s.aspect == f"{role}.op"]
    most = MOST if "Identity" in names else 1.0
    return len(names) >= ANY and sum(s.fails for s in tried) >= most * len(tried)


def _fresh(seed: int, index: int, roles: list[list[str]], shape: Shape, lab: Experiments) -> Iterator[Case]:
    record, profile = lab.runner.reference.record, Profile(**lab.installed.target.profile)
    yield from instances.among_others(seed, index, roles, shape, record, profile)
    if shape.roles > 1 and (made := instances.drawn(seed, index, roles, shape, record, profile)):
        yield made


def _pairs(lab: Experiments, shape: Shape, base: Facts, wanted: Sequence[Change]) -> Iterator[Sample]:
    """Every aspect once before any twice."""
    rank = Counter[str]()
    order = []
    for position, change in enumerate(wanted):
        rank[change.aspect] += 1
        if rank[change.aspect] <= PER_ASPECT:
            order.append((rank[change.aspect], position, change))
    for _, _, change in sorted(order, key=lambda x: x[:2]):
        if not lab.left:
            return
        case, recipe = change.make(), lab.saved.recipe if change.recipe is None else change.recipe
        fails = lab.fails(case, recipe) if case is not None else None
        if case is not None and fails is not None:
            facts = lab.facts(case, recipe, shape, base)
            yield Sample(case, recipe, "pair", fails, facts, change.aspect, change.said, lab.agrees(case, recipe))


def _operators(samples: Sequence[Sample], shape: Shape) -> list[list[str]]:
    """Role -> the operators with which it fails, the case's own first."""
    found = []
    for role in range(shape.roles):
        named = [s.facts[f"{role}.op"] for s in samples if s.facts and s.fails and s.how in ("case", "pair")]
        found.append([str(name) for name in dict.fromkeys(named)])
    return found


def _draws(
    lab: Experiments, samples: list[Sample], roles: list[list[str]], shape: Shape, rng: Random, seed: int
) -> Iterator[tuple[str, Case, Recipe]]:
    """Candidates without end: instances of the generator, and failures that were seen with one to three changes."""
    record, index, recipe = lab.runner.reference.record, 0, lab.saved.recipe
    profile = Profile(**lab.installed.target.profile)
    while True:
        index += 1
        match index % 6:
            case 0 | 4:
                if found := walked(lab, rng.choice([s for s in samples if s.fails]), rng):
                    yield "walk", *found
            case 1:
                for case in instances.among_others(seed, index, roles, shape, record, profile):
                    yield "drawn", case, recipe
            case _:
                made = instances.drawn(seed, index, roles, shape, record, profile)
                if made:
                    yield "drawn", made, recipe


def walked(lab: Experiments, sample: Sample, rng: Random) -> tuple[Case, Recipe] | None:
    """A case that was seen with one to three things changed; None where none could be."""
    case = sample.case
    for _ in range(1 + int(rng.random() * 3)):
        host = host_of(case, lab.tensors(case))
        bare = replace(lab.installed.target, options=())
        options = list(changes(case, sample.recipe, bare, host, instances.everything(host)))
        if not options:
            break
        aspect = rng.choice(sorted({change.aspect for change in options}))
        case = rng.choice([change for change in options if change.aspect == aspect]).make() or case
    return None if case is sample.case else (case, sample.recipe)


def _batch(
    lab: Experiments, draws: Iterator[tuple[str, Case, Recipe]], shape: Shape, base: Facts, trigger: Trigger
) -> Iterator[Sample]:
    count = outside = 0
    for _ in range(20 * BATCH):
        if count == BATCH or not lab.left:
            return
        how, case, recipe = next(draws)
        if lab.expected(case, recipe, trigger) is False:
            if outside >= BATCH // 2:
                continue
            outside += 1
        fails = lab.fails(case, recipe)
        if fails is None:
            continue
        facts = lab.facts(case, recipe, shape, base)
        if facts is not None:
            count += 1
            yield Sample(case, recipe, how, fails, facts)


def _data(samples: Sequence[Sample]) -> Data:
    known = [s for s in samples if s.facts is not None]
    return Data(
        [s.facts for s in known if s.facts is not None],
        np.array([s.fails for s in known], bool),
        np.array([WEIGHTS[s.how] for s in known]),
    )


def _aspects(samples: Sequence[Sample]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Aspects whose changes never lost the failure, and those that did."""
    kept, lost = dict[str, None](), dict[str, None]()
    for s in samples:
        if s.how == "pair":
            (kept if s.fails else lost).setdefault(s.aspect)
    return tuple(a for a in kept if a not in lost), tuple(lost)
