"""A target that somebody wrote, tried on the easiest model: does its plug-in work at all?"""

import importlib.util
from typing import Any

from driftnet.findings.trial import Trial, watch
from driftnet.model.simplest import simplest
from driftnet.model.verdict import Observation, Outcome
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.recipe import swept
from driftnet.util.errors import UserError


def attempt(word: str) -> dict[str, Any]:
    """Run a Relu of four numbers on the target `word` through each stage, under every value of every option.

    {"target", "release", "tried": [{"recipe", "verdict", "stage", "message"}]}. Raises UserError (kind "target") where
    there is no such target, and where a statement of the plug-in's own file raises: that is no finding of the system.
    """
    installed, case, tried = resolve(word), simplest(), []
    with Runner(small_models=True) as runner:
        for recipe in swept(installed.target):
            verdict, seen = watch(Trial(case, installed, recipe, runner))
            if seen is not None:
                _raise_where_broken(installed, seen)
            told = {"verdict": str(verdict.word), "stage": verdict.stage, "message": verdict.message}
            tried.append({"recipe": recipe, **told})
    return {"target": installed.target.name, "release": installed.release, "tried": tried}


def _raise_where_broken(installed: Installed, seen: Observation) -> None:
    last = seen.last
    module = importlib.util.find_spec(installed.spec.partition(":")[0])
    if last.outcome is not Outcome.ERROR or not last.frames or not module or not module.origin:
        return  # a StageError has no frames: these are the system's own words
    file, _, function = last.frames[0].rpartition(" ")
    called = file.endswith("run/sandbox/inside.py")  # it takes other arguments than the interface says
    if called or module.origin.endswith(f"/{file}"):
        where = f"{module.origin}, {last.stage if called else function}"
        raise UserError(
            f"the plug-in of target {installed.target.name} is broken: {where}: {last.message}",
            hint="mend it; what the system itself reports is raised as a StageError",
            kind="target",
        )
