"""What a failure hangs on: the options and rewrites of the model that make it go away, each alone, and with them the
stage at fault.

Asked of reduced cases, where a run costs milliseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx
from driftnet.findings.trial import Ran, Trial, laid_out
from driftnet.model.arrays import distance
from driftnet.model.inference import InferenceError, inlined
from driftnet.model.inspect import graph_inputs
from driftnet.model.schemas import schema_of
from driftnet.model.signature import DAMAGE
from driftnet.model.verdict import WITHOUT_NOISE, Tier, Verdict, Word
from driftnet.reduce.problem import shrink
from driftnet.run.sandbox.inside import LAYOUTS
from driftnet.targets.environments import onnx_engine
from driftnet.targets.recipe import Recipe, canonical
from driftnet.util.options import text
from onnx import helper

Watch = Callable[[Trial], Ran]


MODEL = "model"
"""The option of a remedy that rewrites the model, with the name of a rewrite for its value."""


@dataclass(frozen=True)
class Remedy:
    """One option set to another value, with which a failure is gone; or one rewrite of the model."""

    option: str
    value: Any
    stage: str

    def __str__(self) -> str:
        return f"{self.option}={text(self.value)}"


def with_options(trial: Trial, options: Recipe) -> Trial:
    """`trial` with these options in the place of its own."""
    return replace(trial, recipe=canonical(trial.target, {**trial.recipe, **options}))


def under(trial: Trial, remedy: Remedy) -> Trial:
    """`trial` with the remedy; as it is, where that is a rewrite that changes nothing of it."""
    if remedy.option == MODEL:
        return REWRITES.get(remedy.value, partial(_stated, which=remedy.value))(trial)
    return with_options(trial, {remedy.option: remedy.value})


def frozen(trial: Trial) -> Trial:
    """`trial` with the dims of its inputs as they are fed, where a model takes others too."""
    model, fed = onnx.ModelProto.FromString(trial.case.model), trial.case.feeds[0]
    same = all({n: x.shape for n, x in run.items()} == {n: x.shape for n, x in fed.items()} for run in trial.case.runs)
    free = False
    for value in graph_inputs(model):
        dims = value.type.tensor_type.shape.dim
        free = free or any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims)
        for dim, size in zip(dims, fed[value.name].shape):
            dim.dim_value = size
    if not (free and same):
        return trial
    made = trial.runner.reference.run(trial.case).outputs[0]
    del model.graph.value_info[:]  # their names for dims that now have sizes
    for value in model.graph.output:
        value.CopyFrom(
            helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, made[value.name].shape)
        )
    return replace(trial, case=replace(trial.case, model=model.SerializeToString()))


def simplified(trial: Trial) -> Trial:
    """`trial` with its model folded and shortened, as onnxruntime does before quantizing."""
    engine = onnx_engine()
    data = trial.runner.converted(trial.case, engine, engine.target.features["preprocessed"])
    return trial if data is None else replace(trial, case=replace(trial.case, model=data))


def without_functions(trial: Trial) -> Trial:
    """`trial` with the functions of its model inlined, as onnx.inliner.inline_local_functions does."""
    try:
        model = inlined(trial.case.proto)
    except InferenceError:
        return trial
    return (
        trial
        if model is trial.case.proto
        else replace(trial, case=replace(trial.case, model=model.SerializeToString()))
    )


SIMPLIFIED, INLINED = "simplified by onnxruntime", "functions inlined"
LEFT = 0.5
"""The share of the error of a wrong value that a remedy may leave."""
SURE = 3 * LAYOUTS
"""Runs that have to be right under a remedy for a damaged heap. Of thirty options one was right in each of LAYOUTS by
chance, in every second check of a crash that showed in four of five runs."""

REWRITES: Mapping[str, Callable[[Trial], Trial]] = {
    "symbolic dims frozen": frozen,
    INLINED: without_functions,
    SIMPLIFIED: simplified,
}


EVERY = "every default stated"


def _stated(trial: Trial, which: str = EVERY) -> Trial:
    """`trial` with what nodes of its main graph leave to defaults stated: every attribute, or one (`_said`)."""
    model, changed = onnx.ModelProto.FromString(trial.case.model), False
    for node, default in _unstated(model):
        if which in (EVERY, _said(node, default)):
            node.attribute.append(default)
            changed = True
    return replace(trial, case=replace(trial.case, model=model.SerializeToString())) if changed else trial


def _unstated(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, onnx.AttributeProto]]:
    opset = next((one.version for one in model.opset_import if not one.domain), 0)
    for node in model.graph.node:
        schema = schema_of(node.op_type, opset) if not node.domain else None
        there = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items() if schema else ():
            if name not in there and attribute.default_value.name:
                yield node, attribute.default_value


def _said(node: onnx.NodeProto, default: onnx.AttributeProto) -> str:
    return f"{default.name} of {node.op_type} stated"


def remedies(trial: Trial, verdict: Verdict, watch: Watch) -> Iterator[Remedy]:
    """Every change of a single option that makes `verdict` go away, and every rewrite of the model; of a switch, the
    fewest parts. First what changes least: a default that is stated."""

    def cures(name: str, value: Any) -> bool:
        return mends(trial, verdict, with_options(trial, {name: value}), watch)

    def rewritten(names: Iterable[str]) -> list[Remedy]:
        found = [Remedy(MODEL, name, "convert") for name in names]
        made = ((one, under(trial, one)) for one in found)
        return [one for one, other in made if other is not trial and mends(trial, verdict, other, watch)]

    if every := rewritten([EVERY]):  # most often no default matters: then they are not asked one by one
        yield from rewritten(dict.fromkeys(_said(*pair) for pair in _unstated(trial.case.proto))) or every
    target, chosen = trial.target, trial.options
    for option in target.options:
        for value in option.values:
            if option.name in chosen and value != chosen[option.name] and cures(option.name, value):
                yield Remedy(option.name, value, option.stage)
    for name, parts in target.switches.items():
        if not chosen[name] and cures(name, list(parts)):
            yield Remedy(name, shrink(parts, partial(cures, name), least=1), "execute")
    yield from rewritten(REWRITES)


def mends(trial: Trial, verdict: Verdict, other: Trial, watch: Watch) -> bool:
    """Whether a failure of `trial`, `verdict`, is gone from `other`, the same under a remedy. Where values are wrong
    that no noise of quantizing is in, the worst of them is much closer to the right one, too: a bound that is wider
    mends nothing. What damages the heap, and shows in some runs only, is gone from SURE of them, of several templates:
    the processes of one lie at the same addresses, and are lucky together."""
    if verdict.kind in DAMAGE:
        for k, one in enumerate(laid_out(other, SURE)):
            if k and k % LAYOUTS == 0:
                other.runner.turn()
            if watch(one)[0].word not in (Word.AGREES, Word.ABSTAINS):
                return False
        return True
    after, seen = watch(other)
    if after.word is Word.ABSTAINS:
        return verdict.word is not Word.DIVERGES
    if after.word is not Word.AGREES or not verdict.in_values or verdict.tier not in WITHOUT_NOISE:
        return after.word is Word.AGREES
    before = watch(trial)[1]
    runs = [one.outputs[verdict.feed] for one in (before, seen) if one and one.outputs]
    right = trial.runner.reference.run(trial.case).outputs[verdict.feed] if len(runs) == 2 else {}
    if verdict.output not in right or any(run[verdict.output].shape != right[verdict.output].shape for run in runs):
        return True  # the verdicts are all there is
    was, left = (float(distance(run[verdict.output], right[verdict.output])[verdict.at].max(initial=0)) for run in runs)
    return not was or (left < was and left <= LEFT * was)


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
    plain = next((r for r in found if r.option != MODEL and not under(trial, r).quantizes), None)
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
