"""Mending: triggers that are too narrow, weakened by what they have missed.

    python -m driftnet.learning.mending CORPUS --target T RUN... [--only ID...]

What a run finds out to be known the long way, though no trigger said so, it keeps: the known issue, and the place that
failed by itself as the issue does, with what reads its results too (`remember`). That is a counterexample to each
trigger of the cause. It says which atoms a failure can do without, and experiments say whether all can that meet the
rest:

    weakened   the region that it breaks least, without the atoms that it breaks, or with what it has among their values
    learned    where that names too much, the atoms that tell from each other what failed and what did not of it

Either has to be right about fresh instances that it names and the trigger did not: near the counterexample, and as the
generator draws the operators. Of what another cause is known to do nothing is counted. A trigger is measured anew, on
the same instances before and after, and is written if it is right about as many of each of two seeds.
"""

import argparse
import base64
import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from driftnet.causes import record
from driftnet.causes.facts import Facts
from driftnet.causes.host import Host, host_of
from driftnet.causes.lookup import facts_of, recipe_facts
from driftnet.causes.predicate import Atom, Region, Trigger
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings.corpus import SavedCase
from driftnet.findings.issues import KnownIssue, KnownIssues, issues
from driftnet.findings.recognition import INSTANCES, is_trusted
from driftnet.findings.trial import Trial
from driftnet.generators.building.profile import Profile
from driftnet.learning import edits
from driftnet.learning.experiment import Experiments, Sample
from driftnet.learning.instances import among_others, drawn
from driftnet.learning.merging import SPECIAL, title_of
from driftnet.learning.regions import Data, learn
from driftnet.learning.trigger import Learned, Score, compare, walked
from driftnet.model.case import Case, Feed
from driftnet.model.verdict import DEPENDS_ON_RUN
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.recipe import Recipe
from driftnet.util.apart import trusting
from driftnet.util.files import json_text
from onnx import TensorProto, numpy_helper

FOLDER = "missed"
SECONDS = 5.0
"""CPU seconds of all processes for one counterexample."""
EACH = 4
"""Counterexamples of one issue that are looked at."""
POOL = 160
"""Fresh instances that are made for one counterexample; only those are run on which something hangs."""
TRIED = 20
"""Of these, what is run to see whether a wider trigger is true: half of it near the counterexample."""
ENOUGH, RIGHT = 6, 0.94
"""Instances that a wider trigger has to be asked about, and the share of them that has to fail."""
SEEDS = (5, 6)
"""Of the instances that a wider trigger is measured on: one that named all of 40 rightly was right about .72 of the
next 40."""
WEAKER = 4
"""Regions that are weakened for one counterexample, those first that it breaks least."""
READ = re.compile(r"\.(final|readers?)$")
"""Facts of who reads a result: of a place that is cut out nobody does."""

Missed = tuple[Case, Recipe]


def remember(report: Path, shown: Iterable[tuple[str, Trial]]) -> None:
    """Keep in the folder of a run the places that failed as known issues do, each with the id of one, that no trigger
    told."""
    told = [{"issue": id, "recipe": dict(trial.recipe), "case": _as_json(trial.case)} for id, trial in shown]
    add(report, "".join(json_text(one) + "\n" for one in told))


def add(report: Path, lines: str) -> None:
    """Keep what was `taken` where somebody else remembered it."""
    if lines:
        (report / FOLDER).mkdir(exist_ok=True)
        with (report / FOLDER / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(lines)


def taken(report: Path) -> str:
    """What the folder of a run had kept, and has no more."""
    paths = [*(report / FOLDER).glob("*.jsonl")]
    lines = "".join(f"{line}\n" for path in paths for line in _lines(path))
    for path in paths:
        path.unlink()
    return lines


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def missed(runs: Iterable[Path]) -> dict[str, list[Missed]]:
    """Id of an issue -> the counterexamples that runs have kept, each once."""
    found: dict[str, dict[str, Missed]] = {}
    for path in (path for run in runs for path in sorted((run / FOLDER).glob("*.jsonl"))):
        for line in _lines(path):
            try:
                said = json.loads(line)
            except ValueError:  # cut off by the death of its writer
                continue
            found.setdefault(said["issue"], {})[line] = (_case_of(said["case"]), said["recipe"])
    return {id: list(cases.values()) for id, cases in found.items()}


def _as_json(case: Case) -> dict[str, Any]:
    """A case as a JSON value, which `_case_of` reads."""
    return {
        "model": base64.b64encode(case.model).decode(),
        "feeds": [_encoded(feed) for feed in case.feeds],
        "calibration": [_encoded(feed) for feed in case.calibration],
    }


def _case_of(value: Mapping[str, Any]) -> Case:
    """The case that a line holds in base64."""
    feeds, calibration = (tuple(map(_decoded, value[what])) for what in ("feeds", "calibration"))
    return Case(base64.b64decode(value["model"]), feeds, calibration)


def _encoded(feed: Feed) -> dict[str, str]:
    arrays = {name: numpy_helper.from_array(np.asarray(x)) for name, x in feed.items()}
    return {name: base64.b64encode(tensor.SerializeToString()).decode() for name, tensor in arrays.items()}


def _decoded(feed: Mapping[str, str]) -> Feed:
    return {name: numpy_helper.to_array(TensorProto.FromString(base64.b64decode(x))) for name, x in feed.items()}


@dataclass(frozen=True, eq=False)
class Weaker:
    """A region that a counterexample breaks, and wider ones that it fulfils.

    broken    the atoms that it breaks;   regions   without these, then with its own values among theirs
    facts     of the counterexample there
    """

    before: Trigger
    region: Region
    broken: tuple[Atom, ...]
    regions: tuple[Region, ...]
    facts: Facts

    def instead(self, after: Region) -> Trigger:
        """The trigger with another region in the place of this one."""
        regions = (after if region == self.region else region for region in self.before.regions)
        return Trigger(self.before.shape, tuple(regions))

    def beside(self, more: Region) -> Trigger:
        """The trigger with one more region."""
        return Trigger(self.before.shape, (*self.before.regions, more))


def weakened(trigger: Trigger, host: Host, options: Facts) -> Iterator[Weaker]:
    """Each region of `trigger` so that it holds at a place of `host`: of several that where it breaks the fewest atoms.
    None for a place with an operator that is never there by chance, nor one that breaks all."""
    places = [facts_of(host, place, options).all() for place in trigger.shape.places(host)]
    for region in trigger.regions if places else ():
        each = [tuple(atom for atom in region.atoms if not atom.holds(facts)) for facts in places]
        broken, facts = min(zip(each, places), key=lambda both: len(both[0]))
        by_chance = all(facts.get(atom.fact) not in SPECIAL for atom in broken if atom.fact.endswith(".op"))
        if len(broken) < len(region.atoms) and by_chance:
            kept = [atom for atom in region.atoms if atom not in broken]
            wider = [one for atom in broken if (one := _stretched(atom, facts))]
            named = [atom for atom in wider if atom.fact.endswith(".op")]
            regions = dict.fromkeys((Region((*named, *kept)), Region((*wider, *kept))))
            yield Weaker(trigger, region, broken, tuple(regions), facts)


def _stretched(atom: Atom, facts: Facts) -> Atom | None:
    """An atom that holds of these facts too; None where that is none."""
    have = facts.get(atom.fact)
    if have is not None and atom.test in ("is", "in"):
        values = atom.value if isinstance(atom.value, tuple) and atom.test == "in" else (atom.value,)
        return Atom(atom.fact, "in", (*values, have))
    is_number = isinstance(have, int | float) and not isinstance(have, bool)
    return Atom(atom.fact, atom.test, have) if is_number and atom.test in ("least", "most") else None


@dataclass(eq=False)
class Mending:
    """The mending of the triggers of one issue.

    lab      where it fails;   others   triggers of other causes that show alike
    """

    issue: KnownIssue
    lab: Experiments
    others: Collection[Trigger] = ()

    def mended(self, counterexamples: Iterable[Missed]) -> tuple[dict[Trigger, Trigger], list[str]]:
        """Trigger -> what it is to be; what came of each counterexample, in words."""
        now = {cause.trigger: cause.trigger for cause in self.issue.causes if cause.trigger}
        if not now:
            return {}, ["no trigger"]
        told = list[str]()
        for case, recipe in counterexamples:
            host, options = self.host(case), recipe_facts(self.lab.installed.target, recipe)
            if len(told) == EACH or any(trigger.matches(host, options) for trigger in now.values()):
                continue
            self.lab.seconds = self.lab.spent + SECONDS
            if self.lab.fails(case, recipe) is not True:
                told.append("fails in another way, or elsewhere")
            elif found := self._wider([*dict.fromkeys(now.values())], case, recipe):
                wide, after = found
                facts = (atom.fact for atom in wide.broken)
                told.append(f"{'without' if len(after.regions) == len(wide.before.regions) else 'beside'} {[*facts]}")
                now = {before: after if one == wide.before else one for before, one in now.items()}
            else:
                told.append("nothing weaker is true")
        return {before: after for before, after in now.items() if before != after}, told

    def host(self, case: Case) -> Host:
        """A case with all that it computes."""
        return host_of(case, self.lab.tensors(case))

    def _wider(self, triggers: Sequence[Trigger], case: Case, recipe: Recipe) -> tuple[Weaker, Trigger] | None:
        """What was weakened, and the whole trigger then; None where nothing that a counterexample fulfils is true."""
        host, options = self.host(case), recipe_facts(self.lab.installed.target, recipe)
        weaker = [one for trigger in triggers for one in weakened(trigger, host, options)]
        for one in sorted(weaker, key=lambda one: len(one.broken))[:WEAKER]:
            pool = _Pool(self, case, recipe, one)
            for region in one.regions:
                if pool.is_true(one.instead(region)):
                    return one, one.instead(region)
            more = pool.learned(one.regions[0])
            if more and pool.is_true(one.beside(more), seed=2):
                return one, one.beside(more)
        return None


class _Instance(NamedTuple):
    """A fresh one, with the facts of its place. near: whether it is the counterexample with a few things changed."""

    case: Case
    host: Host
    facts: Facts
    near: bool


class _Pool:
    """Fresh instances around one counterexample, each made once, and run when something hangs on it."""

    def __init__(self, mending: Mending, case: Case, recipe: Recipe, weaker: Weaker) -> None:
        self.mending, self.lab, self.case, self.recipe, self.weaker = mending, mending.lab, case, recipe, weaker
        self.options = recipe_facts(self.lab.installed.target, recipe)
        self.made = cache(lambda seed: list(self._made(seed)))

    def _made(self, seed: int) -> Iterator[_Instance]:
        """Cases with a place of the shape of the trigger that do not meet it, nor the trigger of another cause."""
        before = self.weaker.before
        for near, case in self._cases(seed):
            host = self.mending.host(case)
            known = (before, *self.mending.others)
            facts = self.lab.facts(case, self.recipe, before.shape, self.weaker.facts)
            if facts is not None and not any(trigger.matches(host, self.options) for trigger in known):
                yield _Instance(case, host, facts, near)

    def _cases(self, seed: int) -> Iterator[tuple[bool, Case]]:
        """(near, case): the counterexample with changes, and what the generator draws; where it hangs on who reads a
        result, with a Neg behind."""
        read, rng = any(READ.search(atom.fact) for atom in self.weaker.broken), Random(seed)
        for index in range(POOL):
            for case in self._fresh(seed, index, rng) if self.lab.left else ():
                behind = edits.behind(case, host_of(case).graph.outputs[0]) if read and not index % 2 else case
                if behind is not None:
                    yield bool(index % 2), behind

    def _fresh(self, seed: int, index: int, rng: Random) -> Iterator[Case]:
        shape, record = self.weaker.before.shape, self.lab.runner.reference.record
        wide = self.weaker.instead(self.weaker.regions[-1]).operators
        own = sorted({node.op for node in host_of(self.case).graph.nodes})
        roles = [sorted(wide.get(role, own)) for role in range(shape.roles)]
        profile = Profile(**self.lab.installed.target.profile)
        if index % 2:
            start = Sample(self.case, self.recipe, "case", True, None)
            yield from (found[0] for found in [walked(self.lab, start, rng)] if found)
        elif index % 4:
            yield from (case for case in [drawn(seed, index, roles, shape, record, profile)] if case)
        else:
            yield from among_others(seed, index, roles, shape, record, profile)

    def is_true(self, wider: Trigger, *, seed: int = 1) -> bool:
        """Whether what `wider` names and the trigger does not fails in the same way, both near the counterexample and
        as the generator draws it."""
        right, wrong = Counter[bool](), Counter[bool]()
        for one in self.made(seed):
            if not self.lab.left or wrong.total() > TRIED * (1 - RIGHT):
                return False
            if right[one.near] + wrong[one.near] < TRIED // 2 and wider.matches(one.host, self.options):
                fails = self.lab.fails(one.case, self.recipe)
                right[one.near] += fails is True
                wrong[one.near] += fails is False
        return right.total() >= ENOUGH and right.total() >= RIGHT * (right.total() + wrong.total())

    def learned(self, within: Region) -> Region | None:
        """What tells from each other what fails of `within` and what does not; None where too little was seen."""
        facts, fails = [self.weaker.facts], [True]
        for one in self.made(1):
            if len(fails) > 3 * TRIED or not self.lab.left:
                break
            if within.holds(one.facts) and (failed := self.lab.fails(one.case, self.recipe)) is not None:
                facts.append(one.facts)
                fails.append(failed)
        if sum(fails) < ENOUGH or all(fails):
            return None
        weights = np.array([4.0] + [1.0] * (len(fails) - 1))
        return Region((*within.atoms, *learn(Data(facts, np.array(fails, bool), weights))[0].atoms))


def replaced(cause: CauseRecord, saved: SavedCase, before: Trigger, after: Trigger, score: Score) -> CauseRecord:
    """The cause with another trigger wherever it has that one."""
    new = {"trigger": after.as_json(), "score": score.as_json()}
    findings = {
        id: {**said, **new} if cause.of_case(id).trigger == before else said for id, said in cause.findings.items()
    }
    cause = dataclasses.replace(cause, findings=findings)
    if cause.trigger != before:
        return cause
    title = title_of(saved, after) if cause.title == title_of(saved, before) else cause.title
    return dataclasses.replace(record.stating(cause, after), score=score.as_json(), title=title)


def is_better(had: Score, has: Score) -> bool:
    """Whether the second of two triggers is no worse on the same instances, if there were enough."""
    return has.instances >= INSTANCES and has.worth >= had.worth and has.accuracy >= had.accuracy


def _measured(triggers: Sequence[Trigger], mending: Mending, seed: int) -> list[Score]:
    """How right each trigger is, on the same fresh instances of the operators that the last names."""
    lab, saved, last = mending.lab, mending.issue.saved, triggers[-1]
    own = sorted({node.op for node in host_of(saved.case).graph.nodes})
    operators = tuple(tuple(sorted(last.operators.get(role, own))) for role in range(last.shape.roles))
    learned = Learned(saved, lab.where, last, operators=operators)
    return compare(triggers, learned, lab.installed, lab.runner, seed=seed, others=mending.others)


def mend(
    root: Path,
    installed: Installed,
    runner: Runner,
    counterexamples: Mapping[str, Sequence[Missed]],
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
) -> Iterator[str]:
    """Write the wider triggers into the causes below `root`; a line for each issue that has counterexamples.

    only   ends of the ids of issues;   seeds   of the instances, on each of which a wider trigger has to be no worse
    """
    known = KnownIssues.of(issues(root), installed.target.name)
    for issue in known:
        saved, wanted = issue.saved, not only or any(issue.id.endswith(end) for end in only)
        if saved.cause is None or saved.cause.path is None or not (wanted and counterexamples.get(issue.id)):
            continue
        if saved.status is Status.FLAKY or saved.kind in DEPENDS_ON_RUN:
            yield f"{issue.id}: comes and goes"
            continue
        alike = (c for one in known if one.symptom.sort == issue.symptom.sort for c in one.causes if is_trusted(c))
        others = {c.trigger for c in alike if c.trigger and c.id != saved.cause.id}
        lab = Experiments(saved, installed, runner, SECONDS).begun()
        if lab is None:
            yield f"{issue.id}: the saved case does not fail"
            continue
        mending = Mending(issue, lab, others)
        after, told = mending.mended(counterexamples[issue.id])
        for before, new in after.items():
            scores = [_measured([before, new], mending, seed) for seed in seeds]
            had, has = (sum(each, Score()) for each in zip(*scores))
            if better := all(is_better(*both) for both in scores):
                record.save(replaced(record.load(saved.cause.path), saved, before, new, has), saved.cause.path)
            told.append(f"{'written' if better else 'given up'}: {had.as_json()} -> {has.as_json()}")
        yield f"{issue.id}: {'; '.join(told) or 'told by now'}"


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", help="report folders of runs of `driftnet fuzz`")
    parser.add_argument("--target", required=True)
    parser.add_argument("--only", nargs="*", default=(), help="ends of the ids of saved cases")
    asked = parser.parse_args()
    runner = Runner(timeout=1.0, small_models=True, hold_crashes=True)
    try:
        with trusting():  # the models are those of a run, and made of them
            for line in mend(asked.corpus, resolve(asked.target), runner, missed(asked.runs), only=asked.only):
                print(line, flush=True)
    finally:
        runner.close()


if __name__ == "__main__":
    main()
