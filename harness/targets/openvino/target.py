"""OpenVINO: its ONNX frontend, its model files, its CPU plug-in in float32; and nncf, which quantizes for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from driftnet.targets.interface import STAGES, Answers, Feed, Option, Options, Rule, Scheme, StageError, Target
from driftnet.targets.onnxruntime_graph.target import preload_runtime
from driftnet.targets.rewriters import target as by_onnxruntime
from driftnet.targets.snippet import FEEDS

T = TypeVar("T")


def preload() -> None:
    """Import OpenVINO with its converter, and nncf (3 s), so that forked workers have them."""
    _import_quietly()
    import nncf.onnx.quantization.quantize_model
    import nncf.openvino.quantization.quantize_model  # noqa: F401
    import openvino.tools.ovc  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """Convert an ONNX file to `folder`/model.xml, with model.bin beside it; nothing where the ONNX model is run."""
    if options.get("converter", "none") == "none":
        return model
    _import_quietly()
    import openvino

    read = openvino.convert_model if options["converter"] == "convert_model" else openvino.Core().read_model
    path = os.path.join(folder, "model.xml")
    # By default weights are rounded to float16.
    _said(lambda: openvino.save_model(read(model), path, compress_to_fp16=False))
    return path


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    """Quantize to `folder`/quantized.xml or, where the artifact is an ONNX model, `folder`/quantized.onnx."""
    if options["quantize"] == "none":
        return artifact
    _import_quietly()
    return _said(lambda: _quantized(artifact, calibration, folder, options))


def infer(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds on the CPU, one by one in one request; where throughput is asked for, each in its own at once."""
    if options.get("engine") == "onnxruntime":
        return by_onnxruntime.execute(artifact, feeds, outputs, options)
    return _said(lambda: _executed(artifact, feeds, outputs, options))


def inspect(artifact: str, options: Options) -> dict[str, Any]:
    """The quantized model, where it is an ONNX model. As fits transformers, nncf divides what they read of the data by
    numbers of its own and multiplies weights by them: such a model is not the float model with codes in it."""
    if not artifact.endswith(".onnx") or options.get("transformer"):
        return {}
    with open(artifact, "rb") as file:
        return {"model": file.read()}


def scheme(options: Options) -> Scheme | None:
    """A scale a channel of weights, of which half of the codes may be used. Symmetric activations are unsigned where
    calibration saw no negative one; of ranges of samples the mean is taken."""
    if options["quantize"] == "none":
        return None
    return Scheme(
        weight_codes=(-127, 127) if options["overflow_fix"] == "DISABLE" else (-64, 63),
        activation_codes=(-128, 127),
        symmetric_weights=True,
        symmetric_activations=options["preset"] == "PERFORMANCE",
        per_channel=True,
        clips=True,
        moves_biases=options["bias_correction"] != "none",
        narrow=8e-4,  # nncf's fix_zero_filters_asymmetric; of symmetric ranges a tenth of that
    )


def commands(options: Options) -> str:
    """The package's own functions."""
    path = "model.onnx"
    lines = ["python - <<'END'", FEEDS, "import openvino as ov", "core = ov.Core()"]
    if options.get("converter", "none") != "none":
        read = "ov.convert_model" if options["converter"] == "convert_model" else "core.read_model"
        lines.append(f"ov.save_model({read}('model.onnx'), 'model.xml', {_UNROUNDED})")
        path = "model.xml"
    if options["quantize"] != "none":
        of_onnx = options["quantize"] == "onnx"
        lines += [
            "import nncf",
            f"model = {'onnx.load' if of_onnx else 'core.read_model'}({path!r})",
            "model = nncf.quantize(model, nncf.Dataset(calibration),",
            f"    preset=nncf.QuantizationPreset.{options['preset']},",
            f"    fast_bias_correction={options['bias_correction'] != 'full'}, subset_size={options['subset']},",
            f"    model_type={'nncf.ModelType.TRANSFORMER' if options['transformer'] else None},",
            "    advanced_parameters=nncf.AdvancedQuantizationParameters(",
            f"        disable_bias_correction={options['bias_correction'] == 'none'},",
            f"        overflow_fix=nncf.OverflowFix.{options['overflow_fix']}))",
        ]
        path = "quantized.onnx" if of_onnx else "quantized.xml"
        lines.append(f"onnx.save(model, {path!r})" if of_onnx else f"ov.save_model(model, {path!r}, {_UNROUNDED})")
    lines += ["for feed in tests:", f"    model = core.read_model({path!r})"]
    if options["shapes"] == "static":
        lines.append("    model.reshape({name: list(x.shape) for name, x in feed.items()})")
    elif options["shapes"] == "dynamic":
        lines.append("    model.reshape({p: ov.PartialShape.dynamic(p.partial_shape.rank) for p in model.inputs})")
    lines.append(f"    compiled = core.compile_model(model, 'CPU', {_settings(options)})")
    return "\n".join([*lines, "    print(compiled(feed).to_tuple())", "END"])


_UNROUNDED = "compress_to_fp16=False"


def _quantized(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    import nncf
    import onnx
    import openvino

    of_onnx = options["quantize"] == "onnx"
    path = os.path.join(folder, "quantized.onnx" if of_onnx else "quantized.xml")
    quantized = nncf.quantize(
        onnx.load(artifact) if of_onnx else openvino.Core().read_model(artifact),
        nncf.Dataset([dict(feed) for feed in calibration]),
        preset=nncf.QuantizationPreset[options["preset"]],
        subset_size=options["subset"],
        fast_bias_correction=options["bias_correction"] != "full",
        model_type=nncf.ModelType.TRANSFORMER if options["transformer"] else None,
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            disable_bias_correction=options["bias_correction"] == "none",
            overflow_fix=nncf.OverflowFix[options["overflow_fix"]],
        ),
    )
    if of_onnx:
        onnx.save(quantized, path)
    else:
        openvino.save_model(quantized, path, compress_to_fp16=False)
    return path


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


def _executed(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """As infer; one compiled model for all feeds, or, where shapes are those of the feed, for all of its shapes."""
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


def _inferred(asked: Sequence[tuple[Any, Feed]], names: Sequence[str], at_once: bool) -> Answers:
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
        raise StageError("; ".join(lines) or type(e).__name__) from None


_QUANTIZED = {"quantize": ("openvino", "onnx")}
_OPERATORS = "https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/docs/supported_ops.md"
_DOCS = "https://docs.openvino.ai/2026"
_QUANTIZING = (
    _DOCS + "/openvino-workflow/model-optimization-guide/quantizing-models-post-training/basic-quantization-flow.html"
)
_LOW_PRECISION = (
    _DOCS
    + "/documentation/openvino-extensibility/openvino-plugin-library/advanced-guides/low-precision-transformations.html"
)
_DIVISIONS = (
    "https://github.com/openvinotoolkit/openvino/blob/master/src/common/transformations/src/transformations/"
    "op_conversions/convert_divide.cpp"
)
_CPU = _DOCS + "/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html"

# Converting is done in any stage. A pattern takes the whole line: the operators that it names are left out then.
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
        r"input element type must be f32, f16, or bf16|does not support f64|unsupported src_prc: f64",
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
    execute=infer,
    scheme=scheme,
    inspect=inspect,
    commands=commands,
    executes_plain=True,
    options=(
        Option(
            "quantize",
            "quantize",
            ("none", "openvino", "onnx"),
            "what nncf quantizes: nothing, the converted model, the ONNX model",
        ),
        Option("preset", "quantize", ("PERFORMANCE", "MIXED"), "MIXED: activations with a zero point", _QUANTIZED),
        Option("bias_correction", "quantize", ("fast", "full", "none"), "how biases make up for errors", _QUANTIZED),
        Option(
            "overflow_fix",
            "quantize",
            ("FIRST_LAYER", "DISABLE", "ENABLE"),
            "of which layers the weights use half of the codes",
            _QUANTIZED,
        ),
        Option("subset", "quantize", (300, 1), "so many samples of the calibration are used at most", _QUANTIZED),
        Option("transformer", "quantize", (False, True), "quantize as fits transformers", _QUANTIZED),
        Option(
            "converter",
            "convert",
            ("read_model", "convert_model", "none"),
            "what makes the model file that is run; none: what executes reads the ONNX model",
            {"quantize": ("none", "openvino")},
        ),
        Option("engine", "execute", ("openvino", "onnxruntime"), "what runs it", {"quantize": ("onnx",)}),
        Option(
            "shapes",
            "execute",
            ("declared", "static", "dynamic"),
            "shapes of inputs: as the model declares them, those of the feed, unknown",
        ),
        Option("hint", "execute", ("LATENCY", "THROUGHPUT"), "what the plug-in is to be good at"),
        Option("threads", "execute", (1, 2), "threads of one run"),
    ),
    # Against float64, in [-110, 110]: 4.1e-7, 9e-7, 9.9e-7 and 7.6e-6 were measured of OpenVINO 2026.4.1, of results
    # beyond 1 as a share of them. A Softplus of -x is that of x less x, and off by a rounding of x: 7.1e-7 from -4 to
    # -8, 1.0e-6 from -8, 1.9e-6 from -16, 3.8e-6 from -32, 7.6e-6 from -64.
    approximations={"Erf": 5e-7, "Gelu": 1.2e-6, "Mish": 1.6e-6, "Softplus": (3e-7, 2**-23)},
    companions=(*by_onnxruntime.COMPANIONS, ("", "nncf")),
    features={"float": {}},
    natives=(
        "openvino.Core.read_model",
        "openvino.Core.compile_model",
        "openvino._pyopenvino.Model.reshape",  # openvino.Model has methods of its own for nothing but copies
        "openvino.InferRequest.start_async",
        "openvino.convert_model",
        "openvino.save_model",
        "nncf.Dataset",
        "nncf.quantize",
        by_onnxruntime.RUNS,
    ),
    refusals=(
        *(Rule(name, stage, said, source) for name, said, source in REFUSED for stage in STAGES),
        Rule("nothing to calibrate with", "quantize", r"Calibration dataset must not be empty", _QUANTIZING),
    ),
    exceptions=(
        Rule("int64-in-int32", "execute", "", _CPU),
        Rule("reciprocal-range", "execute", "", _DIVISIONS),
        Rule("moved-dequantization", "execute", "", _LOW_PRECISION),
        Rule(
            "u8s8-saturation",
            "execute",
            "",
            _QUANTIZING,
            {"overflow_fix": ("FIRST_LAYER", "DISABLE")},
            without={"overflow_fix": "ENABLE"},
        ),
    ),
)
