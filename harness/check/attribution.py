"""What a failure hangs on: the options that make it go away, each alone, and with them the stage at fault.

Asked of reduced cases, where a run costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from driftnet.model.inspect import Case
from driftnet.model.verdict import Observation, Tier, Verdict, Word
from driftnet.reduce.problem import shrink
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe, canonical, effective

Watch = Callable[[Case, Recipe], tuple[Verdict, Observation | None]]


@dataclass(frozen=True)
class Remedy:
    """One option set to another value, with which a failure is gone."""

    option: str
    value: Any
    stage: str


def remedies(case: Case, recipe: Recipe, verdict: Verdict, target: Target, watch: Watch) -> Iterator[Remedy]:
    """Every change of a single option that makes `verdict` on `case` go away; of a switch, the fewest parts."""

    def cures(name: str, value: Any) -> bool:
        found, _ = watch(case, canonical(target, {**recipe, name: value}))
        return found.word is Word.AGREES or (found.word is Word.ABSTAINS and verdict.word is not Word.DIVERGES)

    chosen = effective(target, recipe)
    for option in target.options:
        for value in option.values:
            if option.name in chosen and value != chosen[option.name] and cures(option.name, value):
                yield Remedy(option.name, value, option.stage)
    for name, parts in target.switches.items():
        if not chosen[name] and cures(name, list(parts)):
            yield Remedy(name, shrink(parts, partial(cures, name), least=1), "execute")


def stage_at_fault(
    case: Case, recipe: Recipe, verdict: Verdict, found: Sequence[Remedy], target: Target, watch: Watch
) -> str:
    """The stage that goes wrong, as far as it can be told from outside; "" where it cannot.

    A stage that reports a failure is the one, and the executor where it does not execute an artifact as it is written.
    What quantizing has no part in, be it its error or an artifact that is wrong, the converter brought about. A wrong
    result is the quantizer's where it goes away without quantizing and the quantized model, executed for what it is, is
    executed rightly; the executor's where it is not. Else it is the stage whose options cure it.
    """
    wrong = verdict.word is Word.DIVERGES
    if verdict.stage == "convert" or (verdict.stage == "execute" and (not wrong or verdict.tier == Tier.ARTIFACT)):
        return verdict.stage
    plain = next((r for r in found if target.scheme(effective(target, {**recipe, r.option: r.value})) is None), None)
    if verdict.stage == "quantize":
        return "quantize" if plain or not _may_be_plain(target) else "convert"
    if plain and target.scheme(effective(target, recipe)):
        return _executor_or_quantizer(case, recipe, plain, target, watch)
    stages = {remedy.stage for remedy in found} - {"quantize"}
    return stages.pop() if len(stages) == 1 else ""


def _executor_or_quantizer(case: Case, recipe: Recipe, plain: Remedy, target: Target, watch: Watch) -> str:
    _, observation = watch(case, recipe)
    if not observation or observation.artifact.model is None:
        return "quantize"
    executed = {option.name for option in target.options if option.stage == "execute"}
    chosen = {name: value for name, value in recipe.items() if name in executed} | {plain.option: plain.value}
    quantized = replace(case, model=observation.artifact.model, calibration=())
    again, _ = watch(quantized, canonical(target, chosen))
    return "execute" if again.failed else "quantize" if again.word is Word.AGREES else ""


def _may_be_plain(target: Target) -> bool:
    """Whether the target has an option under which nothing is quantized."""
    return any(
        target.scheme(effective(target, {option.name: value})) is None
        for option in target.options
        for value in option.values
    )
