"""A model that is quantized already, and is quantized once more: whose mistake it is that this fails.

Who gives a quantizer what a quantizer made has most often given the wrong file. Experiments tell: as it is the model
is right, and the float model that it stands for, with its roundings left out, does not fail when it is quantized. But
only an error may be so excused, of a model whose activations are rounded, and only in quantizing it: a crash, a hang or
a wrong value is nobody's mistake who gave a valid model; nor is an error in execution, unless names of the artifact
clash, as where it was quantized twice.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import onnx
from driftnet.diagnosis.end_to_end import losses
from driftnet.findings.explaining import explanation
from driftnet.findings.issues import KnownIssue
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


def mistaken(trial: Trial, verdict: Verdict, seen: Observation | None, known_issues: Sequence[KnownIssue]) -> Verdict:
    """`verdict`, a failure of a model that is quantized once more, as was `seen`; or that this was a mistake, where
    experiments say so, and no known issue explains it. Raises ExhaustedError."""
    if seen is None or not _may_be_mistaken(trial, verdict, seen):
        return verdict
    plain = replace(trial, recipe=unquantized(trial.target, trial.recipe))
    as_it_is, shown = (verdict, None) if plain.quantizes else watch(plain)
    if as_it_is.kind != Kind.OFF_BY_ONE_STEP and not _is_right(plain, as_it_is, shown):  # any quantized model may be so
        return verdict
    floating = in_float(trial)
    if floating is None:
        return verdict
    found, ran = watch(replace(trial, case=floating))
    if (found.failed and found.kind != Kind.OFF_BY_ONE_STEP) or not (ran and ran.outputs):
        return verdict
    known = explanation(trial, verdict, known_issues, seen)
    if known.known_issues or known.cut:
        return verdict
    but = " but for a rounding step" if as_it_is.kind == Kind.OFF_BY_ONE_STEP else ""
    how = ", ".join(written(plain.recipe)) or "the default recipe"
    message = (
        f"no word on this target: {quantized_already(trial.case)}, and right as it is{but} ({how}); give the float "
        f"model. Quantized once more it {verdict.word} in {verdict.stage}: {verdict.message}"
    )
    return Verdict(Word.ABSTAINS, message=message, rule=QUANTIZED_ALREADY)


def _may_be_mistaken(trial: Trial, verdict: Verdict, seen: Observation) -> bool:
    """Whether it is an error of quantizing activations that are rounded already."""
    if verdict.word is not Word.FAILS or not read_artifact(read(trial.case.proto, trial.case.file)).roundings:
        return False
    return verdict.stage == "quantize" or _names_clash(trial.case.proto, seen.artifact.model)


def _names_clash(model: onnx.ModelProto, artifact: bytes | None) -> bool:
    """Whether two nodes of the artifact have one name, or make one tensor, and no two of the model do."""
    try:
        made = onnx.ModelProto.FromString(artifact or b"")
    except Exception:  # protobuf's DecodeError, whose module has no types
        return False
    return _has_twice(made) and not _has_twice(model)


def _has_twice(model: onnx.ModelProto) -> bool:
    nodes = model.graph.node
    names = [node.name for node in nodes if node.name], [name for node in nodes for name in node.output if name]
    return any(len(set(some)) < len(some) for some in names)


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
