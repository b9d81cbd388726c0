"""A sweep: every node of many generated models, asked by itself, and what triggers say of it held against the answer.

    python -m driftnet.learning.sweep CORPUS --target T [--recipe JSON]... [--focus OP...] [--seed N] [--models N]

A survey learns each trigger by itself, from cases that are nothing but their place. This asks how triggers fare among
others, as `lint` and recognition meet them: a failure of a known cause that no trigger of it names becomes a finding of
that cause, learned from all that the sweep saw; a trigger that names what does not fail is learned anew; each trigger's
score counts what the sweep saw of it; and what is of no known cause is one of its own. A failure counts where the node
still fails in its frame (`driftnet.model.framed`).

Half of the models are learned from, the other half tells how right that is.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from driftnet.causes import record
from driftnet.causes.facts import Facts, facts_of, host_of, recipe_facts
from driftnet.causes.place import place_of
from driftnet.causes.predicate import Shape, Trigger
from driftnet.causes.record import CauseRecord
from driftnet.findings import arrange, corpus
from driftnet.findings.known import KnownIssue, Symptom, issues, symptom_of
from driftnet.findings.pipeline import examine
from driftnet.findings.recognition import is_alike, is_same_place
from driftnet.findings.trial import Trial, watch
from driftnet.generators import bulk
from driftnet.learning.regions import Data, learn
from driftnet.learning.study import proposal, sharing, study
from driftnet.learning.trigger import Score
from driftnet.model.case import Case
from driftnet.model.framed import framed
from driftnet.model.inspect import computing, elements
from driftnet.model.signature import coarse
from driftnet.model.submodel import UnrecordedError, recording, submodel
from driftnet.model.verdict import Word
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.recipe import Recipe

ONE = Shape(1, frozenset(), frozenset())
"""The place that is one node."""
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
                part = submodel(case, [index], recorded)
            except (UnrecordedError, ValueError):
                continue
            within = framed(case, part)
            for recipe in recipes:
                facts = dict(facts_of(host, (node,), recipe_facts(installed.target, recipe)))
                verdict, seen = watch(Trial(part, installed, recipe, runner, SECONDS))
                if verdict.word is Word.AGREES:
                    yield Row(k, recipe, facts, part, None)
                if not verdict.failed:
                    continue
                if within and watch(Trial(within, installed, recipe, runner, SECONDS))[0].word is Word.AGREES:
                    yield Row(k, recipe, facts, part, None)
                    continue
                where = place_of(installed.target, verdict, seen)
                said = coarse(installed.target.name, verdict)
                yield Row(k, recipe, facts, part, symptom_of(said, verdict.culprits, verdict.output, where))


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
            for cause in _each(issue):
                if not is_alike(issue, cause, symptom):
                    continue
                if cause.trigger and cause.trigger.shape == ONE and cause.trigger.holds(row.facts) is True:
                    row.cause = issue.saved.cause.id if issue.saved.cause else ""
                    return True
                there = there or (cause.id if is_same_place(cause, symptom) else "")
        row.cause = there
        return bool(there)

    def _looked_at(self, row: Row) -> str:
        """The id of the cause of a failure, "" where that cannot be told; of one that is new it is written down."""
        trial = Trial(row.part, self.installed, row.recipe, self.runner)
        result = examine(trial, self.known)
        by_id = {issue.id: issue for issue in self.known}
        if result.known:
            cause = by_id[result.known].saved.cause
            return cause.id if cause else ""
        if not result.finding or result.unexplained:
            return ""
        saved = corpus.load(corpus.save(result.finding.to_save(), self.root))
        if saved.cause:
            return saved.cause.id
        learned = study(saved, result.finding, self.runner)
        shared = sharing(learned, result.finding, self.known, self.runner)
        if shared and (cause := shared.saved.cause):
            arrange.joined(saved, proposal(learned), cause, self.root)
        else:
            cause = record.load(arrange.found(saved, proposal(learned), self.root).parent)
        self.load()
        return cause.id

    def widen(self) -> None:
        """Give the causes of failures that no trigger names another finding, with a trigger learned of the sweep."""
        for id, cause in self.records().items():
            mine = [row for row in self.rows if row.cause == id]
            triggers = {said.trigger for said in _findings(cause)}
            missed = [row for row in mine if not any(t and t.shape == ONE and t.holds(row.facts) for t in triggers)]
            if len({row.model for row in missed}) < WITNESSES:
                continue
            trigger, score = self._learned(mine, missed)
            print(f"{id}: {len(missed)} of {len(mine)} missed; {score.as_json() if trigger else 'nothing learned'}")
            if trigger is None:
                continue
            smallest = sorted(missed, key=lambda row: (not trigger.holds(row.facts), elements(row.part)))
            for row in smallest[:LOOKED_AT]:
                finding = examine(Trial(row.part, self.installed, row.recipe, self.runner)).finding
                if finding:
                    saved = corpus.load(corpus.save(finding.to_save(), self.root))
                    if saved.cause is None:
                        said = {"trigger": trigger, "place": finding.where, "score": score.as_json()}
                        proposed = arrange.Proposal(saved.id[-8:], (saved.id,), said)
                        print("  ", arrange.joined(saved, proposed, cause, self.root))
                        break
        self.load()

    def mend(self) -> None:
        """Learn anew, from what the sweep saw, the triggers that name nodes which do not fail."""
        for id, cause in self.records().items():
            findings = {key: dict(said) for key, said in cause.findings.items()}
            whole = cause.trigger
            for key, own in (_by_id(cause) or {"": cause}).items():
                if not own.trigger or own.trigger.shape != ONE:
                    continue
                named = [row for row in self.rows if own.trigger.holds(row.facts) is True]
                failing = [row for row in named if row.cause == id]
                wrong = [row for row in named if row.symptom is None]
                if len({row.model for row in failing}) < WITNESSES or len(wrong) <= (1 - RIGHT) * len(named):
                    continue
                trigger, score = self._learned(failing, failing)
                print(
                    f"{id} {key}: names {len(wrong)} that do not fail; {score.as_json() if trigger else 'not mended'}"
                )
                if trigger is None:
                    continue
                whole = trigger if own.trigger == cause.trigger else whole
                if key:
                    findings[key]["trigger"] = trigger.as_json()
            record.update(cause, findings=findings, trigger=whole)
        self.load()

    def _learned(self, mine: Sequence[Row], missed: Sequence[Row]) -> tuple[Trigger | None, Score]:
        """A trigger of what was missed, learned of every other model, and how right it is about the others."""
        operators, rng = {row.op for row in mine}, Random(0)
        clean = [row for row in self.rows if row.symptom is None]
        others = [row for row in clean if row.op not in operators]
        clean = [row for row in clean if row.op in operators] + rng.sample(others, min(OTHERS, len(others)))
        half = {row.model for k, row in enumerate(missed) if k % 2 == 0}
        learning = [row for row in missed if row.model in half] + [r for r in mine if r not in missed and r.model % 2]
        beside = [row for row in clean if row.model % 2]
        fails = np.array([True] * len(learning) + [False] * len(beside))
        data = Data([row.facts for row in (*learning, *beside)], fails, np.ones(len(fails)))
        tested = [(row.facts, True) for row in mine if row not in learning]
        tested += [(row.facts, False) for row in clean if not row.model % 2]
        regions = []
        for region in learn(data):
            named = [failing for facts, failing in tested if region.holds(facts) is True]
            new = any(region.holds(row.facts) is True for row in missed)
            if new and named and sum(named) >= RIGHT * len(named):
                regions.append(region)
        trigger = Trigger(ONE, tuple(regions)) if regions else None
        return trigger, _score(trigger, [(f, fails) for f, fails in tested if f["0.op"] in operators])

    def score(self) -> None:
        """Add what the sweep saw of each trigger to its score: of the nodes that fail those that have its cause, but
        for those that another finding of that names."""
        for cause in self.records().values():
            by_id = _by_id(cause)
            told = [row for row in self.rows if row.symptom is None or row.cause == cause.id]
            findings = {id: {**cause.findings[id], "score": _added(own, told, by_id)} for id, own in by_id.items()}
            record.update(cause, findings=findings, score=_added(cause, told, by_id))


def _by_id(cause: CauseRecord) -> dict[str, CauseRecord]:
    """The cause as each of its findings shows it, by their ids."""
    return {id: cause.of_case(id) for id in cause.findings}


def _added(cause: CauseRecord, rows: Sequence[Row], others: Mapping[str, CauseRecord]) -> Mapping[str, float]:
    """The score of the trigger of `cause` with what `rows` say of it."""
    trigger = cause.trigger
    operators = trigger.operators.get(0) if trigger and trigger.shape == ONE else None
    if not trigger or not operators:  # of any operator: every node of the sweep would outweigh what was seen of it
        return cause.score
    rest = [own.trigger for own in others.values() if own.trigger and own.trigger != trigger]
    tested = []
    for row in rows:
        if row.op not in operators:
            continue
        elsewhere = row.symptom and any(one.shape == ONE and one.holds(row.facts) for one in rest)
        if not elsewhere or trigger.holds(row.facts):
            tested.append((row.facts, row.symptom is not None))
    seen = _score(trigger, tested)
    before = {name: int(n) for name, n in cause.score.items() if name != "accuracy"}
    sums = {name: n + before.get(name, 0) for name, n in vars(seen).items()}
    return {name: float(n) for name, n in Score(**sums).as_json().items()}


def _score(trigger: Trigger | None, tested: Sequence[tuple[Facts, bool]]) -> Score:
    named = [trigger is not None and trigger.holds(facts) is True for facts, _ in tested]
    fails = [failing for _, failing in tested]
    right = sum(a == b for a, b in zip(named, fails))
    return Score(len(tested), right, sum(fails), sum(a and b for a, b in zip(named, fails)), sum(named))


def _each(issue: KnownIssue) -> Iterator[CauseRecord]:
    """Its cause as each of its findings shows it."""
    if issue.saved.cause:
        yield from _findings(issue.saved.cause)


def _findings(cause: CauseRecord) -> list[CauseRecord]:
    return list(_by_id(cause).values()) or [cause]


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
    with Runner(small_models=True, hold_crashes=True) as runner:
        sweep = Sweep(asked.corpus, resolve(asked.target), runner)
        sweep.load()
        cases = (bulk.case(asked.seed, k, focus=tuple(asked.focus)) for k in range(asked.models))
        sweep.rows = list(rows_of(sweep.installed, asked.recipe or [{}], cases, runner))
        failing = [row for row in sweep.rows if row.symptom]
        print(f"{len(sweep.rows)} nodes, {len(failing)} fail, {runner.all_cpu_seconds:.0f} CPU s", flush=True)
        sweep.attribute()
        sweep.mend()
        sweep.widen()
        sweep.score()
        print(f"{runner.all_cpu_seconds:.0f} CPU s")


if __name__ == "__main__":
    main()
