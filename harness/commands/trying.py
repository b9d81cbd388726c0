"""A target that somebody wrote, tried on the easiest model: does its plug-in work at all?"""

from collections.abc import Mapping
from typing import Any

from driftnet.findings.trial import Trial, look
from driftnet.model.simplest import simplest
from driftnet.model.verdict import FAILURES, Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import swept


def attempt(word: str) -> dict[str, Any]:
    """Run a Relu of four numbers on the target `word` through each stage, under every value of every option.

    {"target", "release", "tried": [{"recipe", "verdict", "stage", "message"}]}. Raises UserError (kind "target") where
    there is no such target, where its declaration contradicts itself, and where a statement of the plug-in's own file
    raises, or a function of it returns what is of another type than it has to be: that is no finding of the system.
    """
    installed, case, tried = resolve(word), simplest(), []
    with Runner(small_models=True) as runner:
        for recipe in swept(installed.target):
            verdict = look(Trial(case, installed, recipe, runner))
            told = {"verdict": str(verdict.word), "stage": verdict.stage, "message": verdict.message}
            tried.append({"recipe": recipe, **told})
    return {"target": installed.target.name, "release": installed.release, "tried": tried}


def attempt_status(result: Mapping[str, Any]) -> int:
    """The exit status: 1 where the target fails, crashes, hangs or diverges under a recipe, or is right under none: a
    Relu that is refused each time shows nothing; else 0."""
    verdicts = {row["verdict"] for row in result["tried"]}
    return int(not verdicts.isdisjoint(FAILURES) or Word.AGREES not in verdicts)
