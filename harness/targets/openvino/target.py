"""OpenVINO: its ONNX frontend, its model files, its CPU plug-in in float32."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from driftnet.targets.interface import Feed, Option, Options, Rule, StageError, Target

T = TypeVar("T")


def preload() -> None:
    """Import OpenVINO with its converter (.7 s), so that forked workers have it."""
    _import_quietly()
    import openvino.tools.ovc  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """Convert an ONNX file to `folder`/model.xml, with model.bin beside it."""
    if options["converter"] == "none":
        return model
    _import_quietly()
    import openvino

    read = openvino.convert_model if options["converter"] == "convert_model" else openvino.Core().read_model
    path = os.path.join(folder, "model.xml")
    # By default weights are rounded to float16.
    _said(lambda: openvino.save_model(read(model), path, compress_to_fp16=False))
    return path


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    """There is nothing to quantize."""
    return artifact


def execute(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Run all feeds on the CPU, one by one in one request; where throughput is asked for, each in its own at once."""
    return _said(lambda: _executed(artifact, feeds, outputs, options))


def commands(options: Options) -> str:
    """The package's own functions."""
    lines, path = ["python - <<'END'", "import openvino as ov", "core = ov.Core()"], "model.onnx"
    if options["converter"] != "none":
        read = "ov.convert_model" if options["converter"] == "convert_model" else "core.read_model"
        lines.append(f"ov.save_model({read}('model.onnx'), 'model.xml', compress_to_fp16=False)")
        path = "model.xml"
    lines.append(f"model = core.read_model({path!r})")
    if options["shapes"] == "static":
        lines.append("model.reshape(SHAPES)  # {name: shape} of the inputs")
    elif options["shapes"] == "dynamic":
        lines.append("model.reshape({p: ov.PartialShape.dynamic(p.partial_shape.rank) for p in model.inputs})")
    return "\n".join([*lines, f"compiled = core.compile_model(model, 'CPU', {_settings(options)})", "END"])


def _import_quietly() -> None:
    """Let nothing be reported of use: without this module, which comes with the package, nothing is."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]


def _settings(options: Options) -> dict[str, Any]:
    """Unless it is told otherwise, it computes in bfloat16 where the CPU has that."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": options["hint"],
        "INFERENCE_NUM_THREADS": options["threads"],
    }


def _executed(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """As execute; one compiled model for all feeds, or, where shapes are those of the feed, for all of its shapes."""
    compiled: dict[Any, Any] = {}
    asked = []
    for feed in feeds:
        shapes = tuple((name, x.shape) for name, x in feed.items()) if options["shapes"] == "static" else None
        if shapes not in compiled:
            compiled[shapes] = _compiled(artifact, feed, options)
        model = compiled[shapes]
        if len(model.outputs) != len(outputs):
            raise StageError(f"the compiled model has {len(model.outputs)} of {len(outputs)} outputs")
        asked.append((model, dict(feed)))
    return _inferred(asked, list(outputs), options["hint"] == "THROUGHPUT")


def _compiled(artifact: str, feed: Feed, options: Options) -> Any:
    """The compiled model, with shapes of inputs as they are declared, those of `feed`, or all unknown but for ranks."""
    import openvino

    core = openvino.Core()
    model = core.read_model(artifact)
    if options["shapes"] == "static":
        model.reshape({name: list(x.shape) for name, x in feed.items()})
    elif options["shapes"] == "dynamic":
        model.reshape({p: openvino.PartialShape.dynamic(p.partial_shape.rank) for p in model.inputs})
    return core.compile_model(model, "CPU", _settings(options))


def _inferred(asked: Sequence[tuple[Any, Feed]], names: Sequence[str], at_once: bool) -> list[dict[str, np.ndarray]]:
    """What each compiled model gives for its feed; outputs come in the order of the ONNX model."""
    one_by_one = {id(model): model.create_infer_request() for model, _ in asked}
    requests = [model.create_infer_request() if at_once else one_by_one[id(model)] for model, _ in asked]
    answers = []
    for request, (_, feed) in zip(requests, asked):
        request.start_async(feed)
        if not at_once:
            answers.append(_answer(request, names))
    return answers or [_answer(request, names) for request in requests]


def _answer(request: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    request.wait()
    return {name: np.array(tensor.data) for name, tensor in zip(names, request.output_tensors)}


# Which of its layers speak, and what it says of every error alike.
_FRAME = re.compile(
    r"Exception from |Check 'false' failed at |FrontEnd API failed|Model wasn't fully converted|Summary:|"
    r"-- Conversion is failed for|To facilitate the conversion|Encountered unconverted operation"
)


def _said(call: Callable[[], T]) -> T:
    """What `call` returns; its error as one line of what it says beside the layers that it went through."""
    try:
        return call()
    except StageError:
        raise
    except Exception as e:  # its converter's is a class of its own
        lines = [line.strip() for line in str(e).splitlines() if line.strip() and not _FRAME.match(line)]
        raise StageError("; ".join(lines) or str(e)) from None


_OPERATORS = "https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/docs/supported_ops.md"
_DOCS = "https://docs.openvino.ai/2026"
_CPU = _DOCS + "/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html"

# Converting is done in either stage. A pattern takes the whole line: the operators that it names are left out then.
REFUSED = (
    ("operator without a conversion", r"No conversion rule found for operations: .*", _OPERATORS),
    ("activation of a recurrent operator", r"[Uu]n(known|supported) activation function", _OPERATORS),
    (
        "form of an operator without a conversion",
        r"[Mm]ode is not supported|Unsupported padding mode|is only supported for \d+D input|"
        r"Input must be 4-dimensional|output_size must be a 1D input of shape \[2\]|doesn't support case when|"
        r"must be divisible by the block size|doesn't support non per-tensor quantization",
        _OPERATORS,
    ),
    (
        "type without a conversion",
        r"Unsupported (input )?type|Element not supported|must be one of the supported types|"
        r"input element type must be f32, f16, or bf16",
        _OPERATORS,
    ),
    (
        "shape that has to be static",
        r"must be static|has to be known \(static\)|must have static rank|signal input must be static|"
        r"with dynamic rank|[Dd]oesn't support dynamic|expects Constant for port",
        _CPU,
    ),
)

OPENVINO = Target(
    name="openvino",
    distribution="openvino",
    convert=convert,
    quantize=quantize,
    execute=execute,
    commands=commands,
    options=(
        Option(
            "converter",
            "convert",
            ("read_model", "convert_model", "none"),
            "what makes the model file that is run; none: what executes reads the ONNX model",
        ),
        Option(
            "shapes",
            "execute",
            ("declared", "static", "dynamic"),
            "shapes of inputs: as the model declares them, those of the feed, unknown",
        ),
        Option("hint", "execute", ("LATENCY", "THROUGHPUT"), "what the plug-in is to be good at"),
        Option("threads", "execute", (1, 2), "threads of one run"),
    ),
    features={"float": {}},
    natives=("openvino.Core", "openvino.convert_model", "openvino.save_model"),
    refusals=(
        *(Rule(name, stage, said, source) for name, said, source in REFUSED for stage in ("convert", "execute")),
    ),
    exceptions=(Rule("int64-in-int32", "execute", "", _CPU),),
)
