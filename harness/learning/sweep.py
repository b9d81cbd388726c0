"""A sweep: every node of many generated models, asked by itself, and what triggers say of it held against the answer.

    python -m driftnet.learning.sweep CORPUS --target T [--recipe JSON]... [--focus OP...] [--seed N] [--models N]

A survey learns each trigger by itself, from cases that are nothing but their place. This asks how triggers fare among
others, as `lint` and recognition meet them. What the sweep saw of a trigger counts in its score; one that names what
does not fail is learned anew from that; a failure of a known cause that no trigger of it names becomes a finding of
that cause; and what is of no known cause is one of its own. A failure counts where the node still fails in its frame
(`driftnet.model.framed`).

What is learned is learned of one half of the models, and has the score that it has on the other.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from driftnet.causes import record
from driftnet.causes.facts import Facts
from driftnet.causes.host import host_of
from driftnet.causes.lookup import facts_of, recipe_facts
from driftnet.causes.place import place_of
from driftnet.causes.predicate import ONE_NODE, Trigger
from driftnet.causes.record import CauseRecord
from driftnet.findings import arrange, corpus
from driftnet.findings.issues import KnownIssue, Symptom, issues, symptom_of
from driftnet.findings.pipeline import examine
from driftnet.findings.recognition import is_alike, is_same_place
from driftnet.findings.trial import Trial, watch_cut
from driftnet.generators import bulk
from driftnet.generators.building.profile import Profile
from driftnet.learning.regions import Data, learn
from driftnet.learning.study import proposal, sharing, study
from driftnet.learning.trigger import Score, score_of
from driftnet.model.case import Case
from driftnet.model.inspect import computing, elements
from driftnet.model.signature import coarse
from driftnet.model.submodel import UnrecordedError, recording, submodel, with_makers
from driftnet.model.verdict import Word
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.recipe import Recipe
from driftnet.util.apart import trusting

WITNESSES = 3
"""Failures, in as many models, that a trigger is learned from at least."""
LOOKED_AT = 2
"""Of the failures that look alike, how many are examined for what they are."""
OTHERS = 1200
"""Nodes with other operators that do not fail, which a trigger is learned beside."""
RIGHT = 0.9
"""The share of what a region names that has to fail, in the models that it was not learned from."""
SECONDS = 1.0
"""Wall seconds of one stage of one run."""


@dataclass(eq=False)
class Row:
    """One node of one model under one recipe. symptom: how it fails, None where it does not;   cause: its id."""

    model: int
    recipe: Recipe
    facts: Facts
    part: Case
    symptom: Symptom | None
    cause: str = ""

    @property
    def op(self) -> str:
        """The operator."""
        return str(self.facts["0.op"])


def rows_of(installed: Installed, recipes: Sequence[Recipe], cases: Iterable[Case], runner: Runner) -> Iterator[Row]:
    """Every node of models, under every recipe; but for what cannot be cut out, or not be judged."""
    for k, case in enumerate(cases):
        try:
            recorded = recording(case, runner.reference.record)
        except ReferenceError:
            continue
        host = host_of(case, recorded.feeds[0])
        for node, index in enumerate(computing(case.proto.graph)):
            try:
                part = submodel(case, with_makers(case, [index], recorded), recorded)
            except (UnrecordedError, ValueError):
                continue
            for recipe in recipes:
                verdict, seen = watch_cut(Trial(part, installed, recipe, runner, SECONDS), case)
                symptom = None
                if verdict.failed:
                    said, where = coarse(installed.target.name, verdict), place_of(installed.target, verdict, seen)
                    symptom = symptom_of(said, verdict.culprits, verdict.output, where)
                if symptom or verdict.word is Word.AGREES:
                    facts = dict(facts_of(host, (node,), recipe_facts(installed.target, recipe)))
                    yield Row(k, recipe, facts, part, symptom)


@dataclass(eq=False)
class Sweep:
    """What a sweep saw, and the corpus that it is held against."""

    root: Path
    installed: Installed
    runner: Runner
    rows: list[Row] = field(default_factory=list)
    known: list[KnownIssue] = field(default_factory=list)

    def load(self) -> None:
        """Read what the corpus knows of the target."""
        name = self.installed.target.name
        self.known = [issue for issue in issues(self.root) if issue.saved.target == name]

    def records(self) -> dict[str, CauseRecord]:
        """The causes by their ids."""
        return {issue.saved.cause.id: issue.saved.cause for issue in self.known if issue.saved.cause}

    def attribute(self) -> None:
        """Say of each failure which cause it has: one whose trigger it meets and that shows alike, else that of its
        place, else what examining one like it says. What is of none becomes a cause."""
        waiting: dict[tuple[str, str, Any], list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.symptom and not self._recognized(row, row.symptom):
                waiting[row.op, row.symptom.sort, row.symptom.where.keys[:1]].append(row)
        for (op, sort, _), alike in waiting.items():
            found = next(filter(None, map(self._looked_at, alike[:LOOKED_AT])), "")
            print(f"{len(alike)} {op} {sort}: {found or 'not told'}", flush=True)
            for row in alike:
                row.cause = found

    def _recognized(self, row: Row, symptom: Symptom) -> bool:
        there = ""
        for issue in self.known:
            for cause in issue.saved.cause.each.values() if issue.saved.cause else ():
                if not is_alike(issue, cause, symptom):
                    continue
                if _names(cause, row):
                    row.cause = cause.id
                    return True
                there = there or (cause.id if is_same_place(cause, symptom) else "")
        row.cause = there
        return bool(there)

    def _looked_at(self, row: Row) -> str:
        """The id of the cause of a failure, "" where that cannot be told; of one that is new it is written down."""
        trial = Trial(row.part, self.installed, row.recipe, self.runner)
        result = examine(trial, self.known)
        if result.known:
            known = next(issue.saved.cause for issue in self.known if issue.id == result.known)
            return known.id if known else ""
        if not result.finding or result.unexplained:
            return ""
        saved = corpus.load(corpus.save(result.finding.to_save(), self.root))
        if saved.cause:
            return saved.cause.id
        learned = study(saved, result.finding.installed, result.finding.where, self.runner)
        shared = sharing(learned, self.installed, self.known, self.runner)
        if shared and (cause := shared.saved.cause):
            arrange.joined(saved, proposal(learned), cause, self.root)
        else:
            cause = record.load(arrange.found(saved, proposal(learned), self.root).parent)
        self.load()
        return cause.id

    def score(self) -> None:
        """Add what the sweep saw of each trigger to its score: of the nodes that fail those that have its cause, but
        for those that another finding of that names."""
        for cause in self.records().values():
            told = [row for row in self.rows if row.symptom is None or row.cause == cause.id]
            findings = {id: {**cause.findings[id], "score": _added(cause.of_case(id), told)} for id in cause.findings}
            record.update(cause, findings=findings, score=_added(cause, told))
        self.load()

    def mend(self) -> None:
        """Learn anew, from what the sweep saw, the triggers that name nodes which do not fail."""
        for cause in self.records().values():
            for id, own in cause.each.items():
                if learned := self._mended(own):
                    print(f"{cause.id} {id}: names what does not fail; learned anew, {learned[1]}")
                    cause = _with(cause, id, *learned)
            record.update(cause, findings=cause.findings, trigger=cause.trigger, score=cause.score)
        self.load()

    def _mended(self, own: CauseRecord) -> tuple[Trigger, Mapping[str, float]] | None:
        named = [row for row in self.rows if _names(own, row)]
        failing = [row for row in named if row.cause == own.id]
        wrong = sum(row.symptom is None for row in named)
        if len({row.model for row in failing}) < WITNESSES or wrong <= (1 - RIGHT) * len(named):
            return None
        return self._learned(failing, failing)

    def widen(self) -> None:
        """Give the causes of failures that no trigger names another finding, with a trigger learned of the sweep."""
        for cause in self.records().values():
            mine = [row for row in self.rows if row.cause == cause.id]
            missed = [row for row in mine if not any(_names(own, row) for own in cause.each.values())]
            if len({row.model for row in missed}) < WITNESSES:
                continue
            learned = self._learned(mine, missed)
            print(f"{cause.id}: {len(missed)} of {len(mine)} missed; {learned[1] if learned else 'nothing learned'}")
            smallest = sorted(
                (r for r in missed if learned and learned[0].holds(r.facts)), key=lambda r: elements(r.part)
            )
            if learned and (path := next(filter(None, (self._kept(r, cause, *learned) for r in smallest[:2])), None)):
                print("  ", path)
        self.load()

    def _kept(self, row: Row, cause: CauseRecord, trigger: Trigger, score: Mapping[str, float]) -> Path | None:
        """The folder of a failure, reduced, as a finding of `cause` with what was learned; None where it is none."""
        finding = examine(Trial(row.part, self.installed, row.recipe, self.runner)).finding
        saved = corpus.load(corpus.save(finding.to_save(), self.root)) if finding else None
        if finding is None or saved is None or saved.cause:
            return None
        said = {"trigger": trigger, "place": finding.where, "score": score}
        return arrange.joined(saved, said, cause, self.root)

    def _learned(self, mine: Sequence[Row], wanted: Sequence[Row]) -> tuple[Trigger, Mapping[str, float]] | None:
        """A trigger of those that are wanted among the failures `mine`, and its score; None where none is right.

        Every other model with any that is wanted is learned from, and every other one of the rest.
        """
        operators, rng = {row.op for row in mine}, Random(0)
        clean = [row for row in self.rows if row.symptom is None]
        others = [row for row in clean if row.op not in operators]
        beside = [row for row in clean if row.op in operators] + rng.sample(others, min(OTHERS, len(others)))
        models = sorted({row.model for row in wanted})
        first = {*models[::2], *(row.model for row in self.rows if row.model % 2 and row.model not in models)}
        half = [row for row in (*mine, *beside) if row.model in first]
        fails = np.array([row.symptom is not None for row in half])
        rest = [row for row in (*mine, *beside) if row.model not in first]
        regions = []
        for region in learn(Data([row.facts for row in half], fails, np.ones(len(half)))):
            named = [row.symptom is not None for row in rest if region.holds(row.facts)]
            if named and sum(named) >= RIGHT * len(named) and any(region.holds(row.facts) for row in wanted):
                regions.append(region)
        trigger = Trigger(ONE_NODE, tuple(regions))
        asked = [row for row in rest if row.op in operators]
        return (trigger, _score(trigger, asked).as_json()) if regions else None


def _names(cause: CauseRecord, row: Row) -> bool:
    """Whether the trigger of `cause`, one of a single node, holds."""
    return cause.trigger is not None and cause.trigger.shape == ONE_NODE and cause.trigger.holds(row.facts) is True


def _with(cause: CauseRecord, id: str, trigger: Trigger, score: Mapping[str, float]) -> CauseRecord:
    """`cause` with what was learned anew of one finding."""
    own = cause.of_case(id)
    whole = replace(cause, trigger=trigger, score=score) if own.trigger == cause.trigger else cause
    if id not in cause.findings:
        return whole
    return replace(whole, findings={**cause.findings, id: record.finding(trigger, own.place, score)})


def _added(cause: CauseRecord, rows: Sequence[Row]) -> Mapping[str, float]:
    """The score of the trigger of `cause` with what `rows` say of it."""
    trigger = cause.trigger
    operators = trigger.operators.get(0) if trigger and trigger.shape == ONE_NODE else None
    if not trigger or not operators:  # of any operator: every node of the sweep would outweigh what was seen of it
        return cause.score
    others = [own for own in cause.each.values() if own.trigger != trigger]
    asked = [row for row in rows if row.op in operators]
    asked = [row for row in asked if not row.symptom or _names(cause, row) or not any(_names(o, row) for o in others)]
    before = vars(score_of(cause.score))
    sums = {name: n + before[name] for name, n in vars(_score(trigger, asked)).items()}
    return Score(**sums).as_json()


def _score(trigger: Trigger, rows: Sequence[Row]) -> Score:
    told = [(trigger.holds(row.facts) is True, row.symptom is not None) for row in rows]
    right = sum(named == fails for named, fails in told)
    found = sum(named and fails for named, fails in told)
    return Score(len(told), right, sum(fails for _, fails in told), found, sum(named for named, _ in told))


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--recipe", type=json.loads, action="append", help="as JSON; the default one if none is given")
    parser.add_argument("--focus", nargs="+", default=(), help="operators that the models are made around")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=300)
    asked = parser.parse_args()
    with trusting(), Runner(small_models=True, hold_crashes=True) as runner:  # the models are generated
        sweep = Sweep(asked.corpus, resolve(asked.target), runner)
        sweep.load()
        profile = Profile(**sweep.installed.target.profile)
        cases = (bulk.case(asked.seed, k, focus=tuple(asked.focus), profile=profile) for k in range(asked.models))
        sweep.rows = list(rows_of(sweep.installed, asked.recipe or [{}], cases, runner))
        failing = [row for row in sweep.rows if row.symptom]
        print(f"{len(sweep.rows)} nodes, {len(failing)} fail, {runner.all_cpu_seconds:.0f} CPU s", flush=True)
        sweep.attribute()
        sweep.score()
        sweep.mend()
        sweep.widen()
        print(f"{runner.all_cpu_seconds:.0f} CPU s")


if __name__ == "__main__":
    main()
