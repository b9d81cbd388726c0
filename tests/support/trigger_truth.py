"""How right the triggers of a corpus are: causes drawn at random, each trigger held against fresh instances of the
operators that it names, and what is said of those that are right too seldom.

    python -m tests.support.trigger_truth --target mnn --causes 60 --seed N [--instances 40] [--only ID ...]
    python -m tests.support.trigger_truth --target mnn --causes 20 --seed N --unnamed --store

Of a cause the trigger that it states is asked, with the case that meets it. Instances are cut out of random graphs, and
fail where they do as that case does. What the target refuses, or fails at before, says nothing; nor does a failure that
the trigger of another cause of this sort names.

A narrow trigger names none of these. So with --unnamed those that have named nothing yet are asked, whichever finding
states them, of the case with one to three things changed too, half of it where they hold. --store writes what was
counted into the causes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import mean, median

from driftnet.causes.host import host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.predicate import Trigger
from driftnet.causes.record import CauseRecord, Status, below, save
from driftnet.findings.corpus import SavedCase, folders, load
from driftnet.findings.issues import KnownIssue, issues, symptom_of
from driftnet.learning.experiment import Experiments, Sample, computed
from driftnet.learning.mending import replaced
from driftnet.learning.trigger import Learned, Score, compare, scored, walked
from driftnet.reduce.problem import name_of
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.util.apart import trusting

POOR = 0.8
"""The share of instances below which a trigger has to say that it errs."""
NEAR_SECONDS, TRIES = 12.0, 8
"""CPU seconds of all processes for the changes of one case, and how many are made for one that is counted."""


def stating(corpus: Path, target: str, only_unnamed: bool, statuses: Sequence[Status]) -> list[CauseRecord]:
    """Causes of a target that state a trigger, or one that has named nothing, those of most exposure first."""
    known = [cause for cause in below(corpus, target=target) if cause.status in statuses]
    known = [cause for cause in known if (unnamed(cause) if only_unnamed else cause.trigger)]
    return sorted(known, key=lambda cause: (-cause.exposure, cause.id))


def drawn(known: Sequence[CauseRecord], asked: argparse.Namespace) -> list[CauseRecord]:
    """Those that are named, else some at random."""
    if asked.only:
        return [cause for digits in asked.only for cause in known if cause.id.endswith(digits)]
    return sorted(Random(asked.seed).sample(known, min(asked.causes, len(known))), key=lambda cause: cause.id)


def case_of(cause: CauseRecord, trigger: Trigger, installed: Installed, runner: Runner) -> Learned | None:
    """What is known of the first case of a cause that meets its trigger, that which it is called after if it does; None
    where none does."""
    assert cause.path
    for saved in sorted(map(load, folders([cause.path])), key=lambda saved: saved.id != f"test_{cause.id}"):
        tensors = computed(saved.case, runner.reference)
        host = host_of(saved.case, tensors)
        if trigger.matches(host, recipe_facts(installed.target, saved.recipe)):
            return Learned(saved, cause.place, trigger, operators=_operators(saved, trigger), tensors=tensors)
    return None


def alike(known: Sequence[KnownIssue], learned: Learned) -> set[Trigger]:
    """The triggers of other causes that show as this one."""
    sort, own = symptom_of(learned.saved.coarse, ()).sort, learned.saved.cause
    there = [cause for issue in known if issue.symptom.sort == sort for cause in issue.causes]
    return {cause.trigger for cause in there if cause.trigger and own and cause.id != own.id}


def _operators(saved: SavedCase, trigger: Trigger) -> tuple[tuple[str, ...], ...]:
    """The operators of each role: those that the trigger names, else those of the case."""
    there = [node.op for node in host_of(saved.case).graph.nodes]
    return tuple(tuple(sorted(trigger.operators.get(role, there))) for role in range(trigger.shape.roles))


def unnamed(cause: CauseRecord) -> list[Trigger]:
    """The triggers of a cause of which nothing counts that they ever named a failure."""
    told = [cause, *cause.each.values()]
    named = {one.trigger for one in told if one.score.get("named")}
    return [*dict.fromkeys(one.trigger for one in told if one.trigger and one.trigger not in named)]


def near(
    trigger: Trigger,
    learned: Learned,
    installed: Installed,
    runner: Runner,
    *,
    seed: int,
    count: int,
    others: set[Trigger],
) -> Score:
    """How often the trigger is right about its case, and what failed like it, with one to three things changed, each
    once, half of it where it holds."""
    lab = Experiments(learned.saved, installed, runner, NEAR_SECONDS).begun()
    base = lab.facts(learned.saved.case, learned.saved.recipe, trigger.shape) if lab else None
    if lab is None or base is None:
        return Score()
    rng, told, seen = Random(seed), list[tuple[bool, bool]](), set[str]()
    starts = [Sample(learned.saved.case, learned.saved.recipe, "case", True, base)]
    for _ in range(TRIES * count):
        made = walked(lab, rng.choice(starts), rng)
        if len(told) >= count or not lab.left:
            break
        if made is None or (name := name_of(*made)) in seen:
            continue
        seen.add(name)
        held = sum(named for named, _ in told), sum(not named for named, _ in told)
        expected = lab.expected(*made, trigger)
        if expected is not None and held[not expected] >= count // 2:
            continue
        fails = lab.fails(*made)
        facts = lab.facts(*made, trigger.shape, base) if fails is not None else None
        if fails is None or facts is None:
            continue
        # At any place: the first of its shape may be one of other operators.
        host, options = host_of(made[0], lab.tensors(made[0])), recipe_facts(installed.target, made[1])
        named = trigger.matches(host, options) is True
        if named or not (fails and any(o.matches(host, options) for o in others)):
            told.append((named, fails))
            starts += [Sample(*made, "walk", True, facts)] if fails else []
    return scored(told)


def main() -> None:
    """Measure, a line a trigger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="mnn")
    parser.add_argument("--causes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--instances", type=int, default=40)
    parser.add_argument("--unnamed", action="store_true", help="triggers that have named nothing yet")
    parser.add_argument("--store", action="store_true", help="write what was counted into the causes")
    parser.add_argument("--only", nargs="+", metavar="DIGITS")
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    asked = parser.parse_args()
    installed, scores = resolve(asked.target), dict[str, Score]()
    known = [issue for issue in issues(asked.corpus) if issue.saved.target == asked.target]
    seconds = list[float]()
    statuses = (Status.OPEN, Status.FLAKY) if asked.only else (Status.OPEN,)
    for cause in drawn(stating(asked.corpus, asked.target, asked.unnamed, statuses), asked):
        for trigger in unnamed(cause) if asked.unnamed else (cause.trigger,):
            assert trigger
            with trusting(), Runner(small_models=True, hold_crashes=True) as runner:
                learned = case_of(cause, trigger, installed, runner)
                if learned is None:
                    print(cause.id, "no case of it meets its trigger", flush=True)
                    continue
                others, count = alike(known, learned), asked.instances
                (score,) = compare([trigger], learned, installed, runner, seed=asked.seed, count=count, others=others)
                if asked.unnamed:
                    score += near(trigger, learned, installed, runner, seed=asked.seed, count=count // 2, others=others)
                seconds.append(runner.all_cpu_seconds)
            if score.instances:
                scores[f"{cause.id} {len(scores)}"] = score
            if asked.store and score.instances and cause.path:
                cause = save(replaced(cause, learned.saved, trigger, trigger, score), cause.path)
            said = (
                "" if score.accuracy >= POOR or cause.score.get("accuracy", 1.0) < POOR else "POOR, and does not say so"
            )
            print(cause.id, json.dumps(score.as_json()), f"worth {score.worth:.2f}", said, flush=True)
    told = list(scores.values())
    if not told:
        parser.exit(1, "nothing was measured: no cause that was asked for states a trigger of this kind\n")
    right, worth = mean(s.accuracy for s in told), mean(s.worth for s in told)
    failing, found, named = (sum(getattr(s, name) for s in told) for name in ("failing", "found", "named"))
    print(f"{len(told)} causes measured: right {right:.3f}, worth {worth:.3f}")
    print(f"below {POOR}: {sum(s.accuracy < POOR for s in told)}; CPU seconds {median(seconds):.1f} (median)")
    print(f"{failing} instances fail, {found} of them named; {named} named")


if __name__ == "__main__":
    main()
