"""What a campaign learns of a new finding at once: its trigger, and whether it shares its cause with what is known."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from driftnet.causes.host import host_of
from driftnet.causes.impact import severity_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.place import Where
from driftnet.findings import arrange, corpus
from driftnet.findings.arrange import Told
from driftnet.findings.corpus import SavedCase
from driftnet.findings.explaining import difference
from driftnet.findings.issues import KnownIssue, issues, symptom_of
from driftnet.findings.trial import Trial
from driftnet.learning.experiment import Experiments, computed
from driftnet.learning.foretelling import is_foretold, tried_of
from driftnet.learning.merging import is_same, title_of
from driftnet.learning.trigger import Learned, learn_trigger, score_of
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed

SECONDS = 2.4
"""CPU seconds of all processes for one finding: half of what a survey takes, which may be made at leisure."""


def study(saved: SavedCase, installed: Installed, where: Where, runner: Runner, seconds: float = SECONDS) -> Learned:
    """What is learned of a finding that was saved. where: the place where it was seen to fail before."""
    learned = learn_trigger(saved, installed, runner, seconds=seconds)
    return learned if learned.where.sort else dataclasses.replace(learned, where=where)


def at_sight(saved: SavedCase, installed: Installed, where: Where, runner: Runner) -> Learned:
    """What is known of a finding before anything is learned of it: what shares its cause by that does so whatever is
    learned. Where no place tells, the parts of the system are asked for without which it does not fail: an optimizer
    may say the very same as what runs without it."""
    if not where.tells:
        at_fault = Experiments(saved, installed, runner, SECONDS, where).parts_at_fault()
        where = dataclasses.replace(where, optimizers=at_fault)
    return Learned(saved, where, None, tensors=computed(saved.case, runner.reference))


def settled(folder: Path, installed: Installed, runner: Runner, root: Path) -> Path:
    """Give a case that lies loose below `root` the cause there that it shares, else one of its own; its new folder.

    Where it does not fail, nothing is learned, and it stays as it lies.
    """
    learned = learn_trigger(corpus.load(folder), installed, runner, seconds=SECONDS)
    if learned.trigger is None:
        return folder
    known = sharing(learned, installed, [issue for issue in issues(root) if issue.saved.cause], runner)
    if known and (cause := known.saved.cause):
        return arrange.joined(learned.saved, proposal(learned), cause, root)
    return arrange.found(learned.saved, proposal(learned), root)


def proposal(learned: Learned) -> Told:
    """What was learned of one finding, as a cause of its own says it."""
    saved, trigger = learned.saved, learned.trigger
    return {
        "title": title_of(saved, trigger),
        "severity": severity_of(saved.verdict),
        "trigger": trigger,
        "score": learned.score.as_json(),
        "place": learned.where,
        "tried": learned.free,
        "needed": learned.needed,
    }


def sharing(learned: Learned, installed: Installed, known: Sequence[KnownIssue], runner: Runner) -> KnownIssue | None:
    """The first of the known issues that has its cause in common with a finding, by place and by trigger, and is not
    told apart from it by what other releases or recipes show (`pipeline.difference`), which takes runs of the target.
    What a person said of the case comes before all that: what it was merged into is its cause, what it was split off is
    not.
    """
    target, id = installed.target, learned.saved.id
    known = [issue for issue in known if not issue.saved.cause or id not in issue.saved.cause.apart]
    for issue in known:
        if issue.saved.cause and id in issue.saved.cause.together:
            return issue
    options = recipe_facts(target, learned.saved.recipe)
    sort = symptom_of(learned.saved.coarse, ()).sort
    alike = [issue for issue in known if issue.saved.target == target.name and issue.symptom.sort == sort]
    differs = difference(Trial(learned.saved.case, installed, learned.saved.recipe, runner))
    others: list[tuple[KnownIssue, Learned]] = []
    for issue in alike:
        told, theirs = [*_learned(issue, runner)], recipe_facts(target, issue.saved.recipe)
        if not any(is_same(learned, other, options, theirs) for other in told):
            others += [(issue, other) for other in told]
        elif not differs(issue):
            return issue
    tried = tried_of(learned, target, runner.reference) if others else ()
    return next((i for i, other in others if is_foretold(learned, tried, other) and not differs(i)), None)


def _learned(issue: KnownIssue, runner: Runner) -> Iterator[Learned]:
    """What was learned of a known issue, by itself and of its cause as a whole."""
    saved = issue.saved
    tensors = computed(saved.case, runner.reference) if issue.causes else {}
    own = [{node.op} for node in host_of(saved.case).graph.nodes]
    for cause in issue.causes:
        named = cause.trigger.operators if cause.trigger else {}
        operators = tuple(tuple(sorted(named.get(role, op))) for role, op in enumerate(own))
        score = score_of(cause.score)
        yield Learned(saved, cause.place, cause.trigger, operators=operators, score=score, tensors=tensors)
