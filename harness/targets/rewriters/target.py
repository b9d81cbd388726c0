"""What rewriters of ONNX models have in common: the model that one writes is run by onnxruntime without optimizations,
and its inputs and outputs stay what they were."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from driftnet.targets.interface import Answers, Feed, Options, Rule, StageError, answered
from driftnet.targets.snippet import FEEDS

# What executes is to be the reference's release: two releases differ where the standard leaves something open.
COMPANIONS = (("", "onnx"), ("", f"onnxruntime=={metadata.version('onnxruntime')}"))
FEATURES: Mapping[str, Options] = {"float": {}}
RUNS = "onnxruntime.InferenceSession"
INVALID = "the rewritten model is invalid"
OF_OTHERS = rf"\A(?![\s\S]*{INVALID})[\s\S]*"  # of lines that say nothing of what was rewritten
OUTGROWN = tuple(
    Rule(name, "convert", rf"{OF_OTHERS}({pattern})", "https://github.com/onnx/onnx/blob/main/docs/Versioning.md")
    for name, pattern in (
        ("too old for the IR version", r"model ir_version( \d+)? is higher than the checker's"),
        ("too old for the opset", r"No opset import for domain|invalid version \(must be between"),
        ("too old for an operator", r"No (Op|schema) registered for"),
    )
)
"""What a release says of what the onnx that it was built with has not yet; not what is said of a model that it wrote
itself, of which that is the fault."""


def load(path: str) -> Any:
    """The ModelProto at `path`, its external data with it."""
    import onnx

    return onnx.load(path)


def write(before: str, after: Any, folder: str) -> str:
    """`folder`/rewritten.onnx with the ModelProto `after`, made of the file `before`.

    Raises StageError where inputs or outputs are not what they were, or the checker refuses what it did not refuse.
    """
    import onnx

    if after is None:
        raise StageError("no model was returned")
    model = onnx.load(before, load_external_data=False)
    outside = any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    made = {tensor.name for tensor in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in made]
    left = {value.name: value for value in after.graph.input}
    _compare("input", given, [left[value.name] for value in given if value.name in left])
    _compare("output", model.graph.output, after.graph.output)
    rewritten = os.path.join(folder, "rewritten.onnx")
    onnx.save(after, rewritten, save_as_external_data=outside)
    if (why := _refused(rewritten)) and not _refused(before):
        raise StageError(f"{INVALID}: {why}")
    return rewritten


def _refused(path: str) -> str:
    """Why the checker refuses a model, "" where it does not."""
    import onnx

    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as e:
        return str(e)
    return ""


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one session of the CPU provider, without optimizations."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = ort.InferenceSession(artifact, settings, providers=["CPUExecutionProvider"])
    return [answered(outputs, session.run(list(outputs), dict(feed))) for feed in feeds]


RUN = f"""\
python - <<'END'
{FEEDS}
import onnxruntime as ort
settings = ort.SessionOptions()
settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession('rewritten.onnx', settings)
for feed in tests:
    print(session.run(None, feed))
END"""
"""What runs the rewritten model, beside the feeds of a saved case."""


def _compare(what: str, before: Iterable[Any], after: Iterable[Any]) -> None:
    """Raise StageError where the inputs or outputs have other names, types or stated sizes. A size may become known of
    an output, not of an input: the model would take less than it took."""
    old, new = [*before], [*after]
    if [value.name for value in old] != [value.name for value in new]:
        raise StageError(f"{what}s are lost, renamed or in another order: {_names(new)}, were {_names(old)}")
    for a, b in zip(old, new):
        s, t = a.type.tensor_type, b.type.tensor_type
        if not a.type.HasField("tensor_type"):
            continue
        if s.elem_type != t.elem_type:
            raise StageError(f"the type of {what} {a.name!r} is {t.elem_type}, was {s.elem_type}")
        if not (s.HasField("shape") and t.HasField("shape")):
            continue
        if len(s.shape.dim) != len(t.shape.dim):
            raise StageError(f"the rank of {what} {a.name!r} is {len(t.shape.dim)}, was {len(s.shape.dim)}")
        for d, e in zip(s.shape.dim, t.shape.dim):
            stated = d.HasField("dim_value") or what == "input"
            if stated and e.HasField("dim_value") and d.dim_value != e.dim_value:
                raise StageError(f"a size of {what} {a.name!r} is stated otherwise: {e.dim_value}, was {d.dim_value}")


def _names(values: Iterable[Any]) -> str:
    return ", ".join(value.name for value in values)
