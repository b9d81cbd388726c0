"""Age: an old release is asked once for the newest opset that it takes, and nothing newer is drawn for it.

Which other operators and types it has not yet is learned as any refusal is (`driftnet.campaign.refused`).
"""

from collections.abc import Mapping

from driftnet.findings.trial import Trial, look
from driftnet.generators.building.kernels import OPSETS
from driftnet.generators.features import PREFIX
from driftnet.generators.ops.registry import REGISTRY
from driftnet.model.simplest import simplest
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed


def of_its_time(installed: Installed, runner: Runner) -> Mapping[str, float]:
    """Operator or feature -> factor on how often it is drawn: 0 for what came after the release, if that is an old one;
    what is not there counts 1."""
    target = installed.target
    if not target.outgrown or not all(rule in target.refusals for rule in target.outgrown):
        return {}
    newest = newest_opset(installed, runner)
    later = [f"{PREFIX}opset-{opset}" for opset in OPSETS if opset > newest]
    return dict.fromkeys([*later, *(name for name, operator in REGISTRY.items() if operator.since > newest)], 0.0)


def newest_opset(installed: Installed, runner: Runner) -> int:
    """The newest opset of which the simplest model is not refused as one that came later."""
    names = {rule.name for rule in installed.target.outgrown}
    for opset in reversed(OPSETS):
        verdict = look(Trial(simplest(opset), installed, {}, runner))
        if verdict.word is not Word.REJECTS or verdict.rule not in names:
            return opset
    return OPSETS[0]
