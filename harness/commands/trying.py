"""A target that somebody wrote, tried on the easiest model: does its plug-in work at all?"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from driftnet.findings.trial import Trial, look
from driftnet.model.simplest import simplest
from driftnet.model.verdict import FAILURES, Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.interface import STAGES, Target
from driftnet.targets.recipe import swept
from driftnet.util.errors import UserError


def attempt(word: str) -> dict[str, Any]:
    """Run a Relu of four numbers on the target `word` through each stage, under every value of every option.

    {"target", "release", "tried": [{"recipe", "verdict", "stage", "message"}]}. Raises UserError (kind "target") where
    there is no such target, where its declaration contradicts itself, and where a statement of the plug-in's own file
    raises, or a function of it returns what is of another type than it has to be: that is no finding of the system.
    """
    installed, case, tried = resolve(word), simplest(), []
    if wrong := "; ".join(misdeclared(installed.target)):
        raise UserError(
            f"the declaration of target {installed.target.name} is wrong: {wrong}",
            hint="driftnet.targets.interface.Option, Rule and Target say what each field means",
            kind="target",
        )
    with Runner(small_models=True) as runner:
        for recipe in swept(installed.target):
            verdict = look(Trial(case, installed, recipe, runner))
            told = {"verdict": str(verdict.word), "stage": verdict.stage, "message": verdict.message}
            tried.append({"recipe": recipe, **told})
    return {"target": installed.target.name, "release": installed.release, "tried": tried}


def misdeclared(target: Target) -> Iterator[str]:
    """What of a declaration cannot be meant, a sentence each."""
    stages, values = ", ".join(STAGES), {option.name: option.values for option in target.options}
    for option in target.options:
        if option.stage not in STAGES:
            yield f"option {option.name} has the stage {option.stage!r}, which is none of {stages}"
        if not option.values:
            yield f"option {option.name} has no values"
        if sum(other.name == option.name for other in target.options) > 1:
            yield f"there are two options {option.name}"
    rules = (*target.refusals, *target.outgrown, *target.exceptions)
    for rule in rules:
        if rule.stage not in STAGES:
            yield f"rule {rule.name!r} has the stage {rule.stage!r}, which is none of {stages}"
        try:
            re.compile(rule.pattern)
        except re.error as e:
            yield f"the pattern of rule {rule.name!r} is none: {e}"
    conditions = [(f"option {option.name}", option.when) for option in target.options]
    conditions += [(f"rule {rule.name!r}", rule.when) for rule in rules]
    conditions += [
        (f"feature {name!r}", {k: (v,) for k, v in options.items()}) for name, options in target.features.items()
    ]
    for who, when in conditions:
        for name, wanted in when.items():
            if strange := [value for value in wanted if value not in values.get(name, ())]:
                yield f"{who} speaks of {name}={strange[0]!r}, which is no value of an option"


def attempt_status(result: Mapping[str, Any]) -> int:
    """The exit status: 1 where the target fails, crashes, hangs or diverges under a recipe, or is right under none: a
    Relu that is refused each time shows nothing; else 0."""
    verdicts = {row["verdict"] for row in result["tried"]}
    return int(not verdicts.isdisjoint(FAILURES) or Word.AGREES not in verdicts)
