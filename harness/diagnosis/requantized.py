"""A model that is quantized already, and is quantized once more: whose mistake it is that this fails.

Who gives a quantizer what a quantizer made has most often given the wrong file. An experiment tells: as it is the model
is right, and the float model that it stands for, with its roundings left out, does not fail when it is quantized.
"""

from collections import Counter
from dataclasses import replace

import onnx
from driftnet.diagnosis.end_to_end import losses
from driftnet.findings.trial import Trial, watch
from driftnet.model.graph import read
from driftnet.model.inspect import Case, all_nodes
from driftnet.model.operators import full_name
from driftnet.model.verdict import Kind, Observation, Verdict, Word
from driftnet.oracle.artifact.verified.operators import OPAQUE, QUANTIZED
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.oracle.tolerances.table import REWRITTEN
from driftnet.targets.recipe import unquantized
from driftnet.util.options import written
from onnx import numpy_helper

QUANTIZED_ALREADY = "quantized already"
"""The rule by which a check says nothing of a target, for it was given a model that is quantized already."""


def quantized_already(case: Case) -> str:
    """Which nodes say that a model is quantized; "" where none does."""
    names = [full_name(node.op_type, node.domain) for node in all_nodes(case.proto.graph)]
    counts = Counter(name for name in names if name in QUANTIZED | OPAQUE)
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"the model is quantized already: {said}" if counts else ""


def mistaken(trial: Trial, verdict: Verdict) -> Verdict:
    """`verdict`, a failure of a model that is quantized once more; or that this was a mistake, where experiments say
    so. Raises ExhaustedError."""
    plain = replace(trial, recipe=unquantized(trial.target, trial.recipe))
    as_it_is, seen = (verdict, None) if plain.quantizes else watch(plain)
    if not (_is_only_a_step(as_it_is, verdict) or _is_right(plain, as_it_is, seen)):
        return verdict
    floating = in_float(trial)
    found = watch(replace(trial, case=floating))[0] if floating else Verdict(Word.AGREES)
    if found.word not in (Word.AGREES, Word.ABSTAINS) and not _is_only_a_step(found, verdict):
        return verdict
    but = " but for a rounding step" if as_it_is.kind == Kind.OFF_BY_ONE_STEP else ""
    how = ", ".join(written(plain.recipe)) or "the default recipe"
    message = (
        f"no word on this target: {quantized_already(trial.case)}, and right as it is{but} ({how}); give the float "
        f"model. Quantized once more it {verdict.word} in {verdict.stage}: {verdict.message}"
    )
    return Verdict(Word.ABSTAINS, message=message, rule=QUANTIZED_ALREADY)


def _is_only_a_step(found: Verdict, verdict: Verdict) -> bool:
    """Whether what is `found` is a rounding step, and `verdict` is more: any quantized model may be one off."""
    return found.kind == Kind.OFF_BY_ONE_STEP != verdict.kind


def _is_right(trial: Trial, verdict: Verdict, seen: Observation | None) -> bool:
    rows = losses(seen.outputs, trial.runner.reference.run(trial.case).outputs) if seen and seen.outputs else []
    return verdict.word is Word.AGREES or (bool(rows) and all(row.change <= REWRITTEN for row in rows))


def in_float(trial: Trial) -> Case | None:
    """The float model that one of Q/DQ pairs stands for: weights as they are held, nothing rounded; None where there is
    more to it than pairs."""
    graph, proto = read(trial.case.proto, trial.case.file), onnx.ModelProto.FromString(trial.case.model)
    rounded = {r.node.outputs[0]: r.node.inputs[0] for r in read_artifact(graph).roundings}
    computed = trial.runner.reference.computed(trial.case)
    reads: dict[str, str] = {}
    kept = []
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] in rounded:
            continue
        if node.op_type != "DequantizeLinear" or node.output[0] not in computed:
            kept.append(node)
        elif node.input[0] in rounded:
            reads[node.output[0]] = rounded[node.input[0]]
        else:
            proto.graph.initializer.append(numpy_helper.from_array(computed[node.output[0]], node.output[0]))

    def source(name: str) -> str:
        while name in reads:
            name = reads[name]
        return name

    for node in kept:
        if not rounded.keys().isdisjoint(node.input):  # it computes with codes
            return None
        node.input[:] = [source(name) for name in node.input]
    made = {value.name for value in proto.graph.output}
    kept += [onnx.helper.make_node("Identity", [source(name)], [name]) for name in reads if name in made]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    case = replace(trial.case, model=proto.SerializeToString())
    return None if quantized_already(case) else case
