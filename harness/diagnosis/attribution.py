"""What a failure hangs on: the options that make it go away, each alone, and with them the stage at fault.

Asked of reduced cases, where a run costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from driftnet.findings.trial import Trial
from driftnet.model.verdict import Observation, Tier, Verdict, Word
from driftnet.reduce.problem import shrink
from driftnet.targets.recipe import Recipe, canonical

Watch = Callable[[Trial], tuple[Verdict, Observation | None]]


@dataclass(frozen=True)
class Remedy:
    """One option set to another value, with which a failure is gone."""

    option: str
    value: Any
    stage: str


def with_options(trial: Trial, options: Recipe) -> Trial:
    """`trial` with these options in the place of its own."""
    return replace(trial, recipe=canonical(trial.target, {**trial.recipe, **options}))


def remedies(trial: Trial, verdict: Verdict, watch: Watch) -> Iterator[Remedy]:
    """Every change of a single option that makes `verdict` go away; of a switch, the fewest parts."""

    def cures(name: str, value: Any) -> bool:
        found, _ = watch(with_options(trial, {name: value}))
        return found.word is Word.AGREES or (found.word is Word.ABSTAINS and verdict.word is not Word.DIVERGES)

    target, chosen = trial.target, trial.options
    for option in target.options:
        for value in option.values:
            if option.name in chosen and value != chosen[option.name] and cures(option.name, value):
                yield Remedy(option.name, value, option.stage)
    for name, parts in target.switches.items():
        if not chosen[name] and cures(name, list(parts)):
            yield Remedy(name, shrink(parts, partial(cures, name), least=1), "execute")


def stage_at_fault(trial: Trial, verdict: Verdict, found: Sequence[Remedy], watch: Watch) -> str:
    """The stage that goes wrong, as far as it can be told from outside; "" where it cannot.

    A stage that reports a failure is the one, and the executor where it does not execute an artifact as it is written.
    What quantizing has no part in, be it its error or an artifact that is wrong, the converter brought about. A wrong
    result is the quantizer's where it goes away without quantizing and the quantized model, executed for what it is, is
    executed rightly; the executor's where it is not. Else it is the stage whose options cure it.
    """
    wrong = verdict.word is Word.DIVERGES
    if verdict.stage == "convert" or (verdict.stage == "execute" and (not wrong or verdict.tier is Tier.ARTIFACT)):
        return verdict.stage
    plain = next((r for r in found if not with_options(trial, {r.option: r.value}).quantizes), None)
    if verdict.stage == "quantize":
        return "quantize" if plain or not _may_be_plain(trial) else "convert"
    if plain and trial.quantizes:
        return _executor_or_quantizer(trial, plain, watch)
    stages = {remedy.stage for remedy in found} - {"quantize"}
    return stages.pop() if len(stages) == 1 else ""


def _executor_or_quantizer(trial: Trial, plain: Remedy, watch: Watch) -> str:
    _, observation = watch(trial)
    if not observation or observation.artifact.model is None:
        return "quantize"
    executed = {option.name for option in trial.target.options if option.stage == "execute"}
    chosen = {name: value for name, value in trial.recipe.items() if name in executed} | {plain.option: plain.value}
    quantized = replace(trial.case, model=observation.artifact.model, calibration=())
    again, _ = watch(with_options(replace(trial, case=quantized, recipe={}), chosen))
    return "execute" if again.failed else "quantize" if again.word is Word.AGREES else ""


def _may_be_plain(trial: Trial) -> bool:
    """Whether the target has an option under which nothing is quantized."""
    plainest = replace(trial, recipe={})
    return any(
        not with_options(plainest, {option.name: value}).quantizes
        for option in trial.target.options
        for value in option.values
    )
