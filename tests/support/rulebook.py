"""Rulebook: which tier judges which operator, and which behaviour is documented and so no bug.

`make docs` writes docs/judgement.md.
"""

from collections.abc import Iterator

from driftnet.generators.ops.table import families
from driftnet.model.operators import WEIGHTED
from driftnet.oracle.ball_arithmetic import evaluate  # noqa: F401  (it registers the rules)
from driftnet.oracle.ball_arithmetic.creation import RANDOM
from driftnet.oracle.ball_arithmetic.rules import RULES
from driftnet.oracle.exemptions import underspecified
from driftnet.oracle.fixed_point import rules
from driftnet.oracle.scheme import formulas
from driftnet.oracle.tolerances.approximations import APPROXIMATIONS, MEASURED
from driftnet.oracle.tolerances.table import DERIVED, TOLERANCES
from driftnet.targets.environments import declared
from driftnet.targets.interface import Rule, Target
from driftnet.targets.registry import registered


def page() -> str:
    """The rulebook as Markdown."""
    targets = [declared(name) for name in sorted(registered())]
    return "\n".join(
        [
            "# What judges what",
            "",
            "[oracle.md](oracle.md) says what the tiers ask. The first that can tell, on the data at hand, judges.",
            "Budget, the last of all, is asked of whatever is quantized, and sampling of any float.",
            "",
            *_operators(),
            "## What is documented, and so no bug",
            "",
            *_refusals(targets),
            "",
            "Numerical behaviour that a target documents, tolerated where the oracle predicts it, and counted by name:",
            "",
            "| target | rule | source |",
            "|---|---|---|",
            *[f"| {t.name} | {rule.name} | {rule.source} |" for t in targets for rule in t.exceptions],
            "",
            "What the standard leaves open; a failure there abstains, by the name of the rule:",
            "",
            "| rule | source |",
            "|---|---|",
            *[f"| {rule.name} | {rule.source} |" for rule in underspecified.RULES],
            "",
            *_tolerances(),
        ]
    )


def tiers(operator: str) -> list[str]:
    """The tiers that have an answer for `operator`, in the order in which they are asked."""
    if operator in RANDOM:
        return ["structure", "running error (the range)"]
    answers = {
        "exact": operator in rules.RULES,
        "running error": operator in RULES,
        "sampling": True,
        "lossless": operator in WEIGHTED | formulas.PLAIN,
        "artifact": operator in RULES,
    }
    return [tier for tier, answered in answers.items() if answered]


def _operators() -> Iterator[str]:
    for family, names in families().items():
        yield from (f"## {family}", "", "| operator | tiers |", "|---|---|")
        yield from (f"| {name} | {', '.join(tiers(name))} |" for name in names)
        yield ""


def _tolerances() -> Iterator[str]:
    yield from ("## How far off is right", "", "| tolerance | is | unit | because | source |", "|---|---|---|---|---|")
    for name, x in TOLERANCES.items():
        unit, evidence = (text.replace("|", "\\|") for text in (x.unit, x.evidence))
        yield f"| {name} | {x:.6g} | {unit} | {evidence} | {x.source} |"
    yield from (
        "",
        "How far results of an operator in float32 may be from each other, where nobody computes it exactly:",
        "",
    )
    yield from ("| operator | absolute | relative | of the largest | |", "|---|---|---|---|---|")
    for op, allowed in APPROXIMATIONS.items():
        numbers = " | ".join(f"{number:g}" if number else "" for number in allowed)
        yield f"| {op} | {numbers} | {'measured' if op in MEASURED else DERIVED} |"
    yield ""


def _refusals(targets: list[Target]) -> Iterator[str]:
    yield from ('"Not supported" (verdict `rejects`):', "", "| target | rule | stage | source |", "|---|---|---|---|")
    yield from (_refusal(target, rule) for target in targets for rule in target.refusals)


def _refusal(target: Target, rule: Rule) -> str:
    return f"| {target.name} | {rule.name} | {rule.stage} | {rule.source} |"
