"""onnxruntime's quantizer, static and dynamic, and the execution of what it makes by onnxruntime's CPU provider."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.targets.interface import Feed, Option, Options, Rule, Scheme, StageError, Target
from driftnet.targets.onnxruntime_graph.target import OPTIMIZERS, OUTGROWN
from driftnet.targets.onnxruntime_graph.target import preload as preload_runtime

WEIGHT_CODES = {("s8", False): (-127, 127), ("s8", True): (-64, 64), ("u8", False): (0, 255), ("u8", True): (0, 127)}


def preload() -> None:
    """Import the quantizer (.4 s), so that forked workers have it."""
    import onnxruntime.quantization.shape_inference  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """The model as it is, or `folder`/preprocessed.onnx: optimized and with shapes inferred."""
    if not options["preprocess"]:
        return model
    from onnxruntime.quantization.shape_inference import quant_pre_process

    preprocessed = os.path.join(folder, "preprocessed.onnx")
    # Symbolic shape inference is meant for transformers; on other models it raises where onnx's own inference works.
    outside = _keeps_data_outside(model)
    quant_pre_process(
        model,
        preprocessed,
        skip_symbolic_shape=True,
        save_as_external_data=outside,
        all_tensors_to_one_file=outside,
        external_data_location="preprocessed.data" if outside else None,
    )
    return preprocessed


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    """Quantize to `folder`/quantized.onnx; static quantization calibrates on `calibration`."""
    if options["quantize"] == "none":
        return artifact
    import onnxruntime.quantization as ort

    quantized = os.path.join(folder, "quantized.onnx")
    types = {"s8": ort.QuantType.QInt8, "u8": ort.QuantType.QUInt8}
    activations, weights = _types(options)
    arguments: dict[str, Any] = {
        "weight_type": types[weights],
        "per_channel": options.get("per_channel", False),
        "reduce_range": options["reduce_range"],
        "use_external_data_format": _keeps_data_outside(artifact),
    }
    if options["quantize"] == "dynamic":
        ort.quantize_dynamic(artifact, quantized, **arguments)
    else:
        ort.quantize_static(
            artifact,
            quantized,
            _Reader(iter(calibration)),
            quant_format=ort.QuantFormat[options["format"]],
            calibrate_method=ort.CalibrationMethod[options["calibration"]],
            activation_type=types[activations],
            extra_options={
                "ActivationSymmetric": options.get("symmetric_activations", False),
                "ForceQuantizeNoInputCheck": options["force_quantize"],
                "DedicatedQDQPair": options.get("dedicated_pairs", False),
            },
            **arguments,
        )
    if not os.path.exists(quantized):
        raise StageError("no model was written")
    return quantized


def execute(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Run all feeds in one session of the CPU provider."""
    import onnxruntime as ort

    levels = {
        "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    }
    settings = ort.SessionOptions()
    settings.graph_optimization_level = levels[options["optimization"]]
    settings.intra_op_num_threads = options["threads"]
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = ort.InferenceSession(
        artifact,
        settings,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=options.get("disabled_optimizers"),
    )
    return [dict(zip(outputs, session.run(list(outputs), dict(feed)))) for feed in feeds]


def tap(
    artifact: str, feeds: Sequence[Feed], tensors: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Each tensor as one more output of the model, by itself: asked for together they would keep others from being
    fused."""
    import onnx

    model = onnx.load(artifact, load_external_data=False)
    made = {name for node in model.graph.node for name in node.output}
    found: list[dict[str, np.ndarray]] = [{} for _ in feeds]
    beside = os.path.join(os.path.dirname(artifact), "tapped.onnx")  # where its external data lie, too
    count = len(model.graph.output)
    for name, declared in tensors.items():
        if name in made:
            del model.graph.output[count:]
            if all(value.name != name for value in model.graph.output):
                model.graph.output.append(onnx.ValueInfoProto(name=name))  # onnxruntime infers the rest
            onnx.save(model, beside)
            for known, outputs in zip(found, execute(beside, feeds, {name: declared}, options)):
                known.update(outputs)
    return found


def inspect(artifact: str, options: Options) -> dict[str, Any]:
    """The quantized model."""
    with open(artifact, "rb") as file:
        return {"model": file.read()}


def commands(options: Options) -> str:
    """The package's own functions."""
    lines, model = ["python - <<'END'", "from onnxruntime.quantization import *"], "model.onnx"
    if options["preprocess"]:
        lines.append("from onnxruntime.quantization.shape_inference import quant_pre_process")
        lines.append(f"quant_pre_process({model!r}, 'preprocessed.onnx', skip_symbolic_shape=True)")
        model = "preprocessed.onnx"
    types = {"s8": "QuantType.QInt8", "u8": "QuantType.QUInt8"}
    activations, weights = _types(options) if options["quantize"] != "none" else ("", "")
    common = f"weight_type={types.get(weights)}, per_channel={options.get('per_channel', False)}"
    if options["quantize"] == "dynamic":
        arguments = f"{common}, reduce_range={options['reduce_range']}"
        lines.append(f"quantize_dynamic({model!r}, 'quantized.onnx', {arguments})")
    elif options["quantize"] == "static":
        lines += [
            f"quantize_static({model!r}, 'quantized.onnx', reader,  # a CalibrationDataReader of the inputs",
            f"    quant_format=QuantFormat.{options['format']}, {common},",
            f"    calibrate_method=CalibrationMethod.{options['calibration']}, activation_type={types[activations]},",
            f"    reduce_range={options['reduce_range']}, extra_options={{",
            f"        'ActivationSymmetric': {options.get('symmetric_activations', False)},",
            f"        'ForceQuantizeNoInputCheck': {options['force_quantize']},",
            f"        'DedicatedQDQPair': {options.get('dedicated_pairs', False)}}})",
        ]
    return "\n".join([*lines, "END"])


def scheme(options: Options) -> Scheme | None:
    """The scheme that the options ask for. Dynamic: the ranges of activations come from the feed itself."""
    if options["quantize"] == "none":
        return None
    activations, weights = _types(options)
    static, symmetric = options["quantize"] == "static", options.get("symmetric_activations", False)
    signed = static and activations == "s8"
    return Scheme(
        weight_codes=WEIGHT_CODES[weights, options["reduce_range"]],
        activation_codes=((-127 if symmetric else -128), 127) if signed else (0, 255),
        symmetric_weights=weights == "s8",
        symmetric_activations=symmetric,
        per_channel=options.get("per_channel", False),
        per_tensor=frozenset() if static else frozenset({"Conv"}),  # ConvInteger takes one weight scale
        clips=static and options["calibration"] != "MinMax",
    )


def _keeps_data_outside(model: str) -> bool:
    """Whether the model has weights in files beside it, as a large one must: what is made of it then has to, too."""
    import onnx

    tensors = onnx.load(model, load_external_data=False).graph.initializer
    return any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors)


class _Reader:
    """What onnxruntime calls a CalibrationDataReader."""

    def __init__(self, feeds: Iterator[Feed]) -> None:
        self._feeds = feeds

    def get_next(self) -> dict[str, np.ndarray] | None:
        feed = next(self._feeds, None)
        return None if feed is None else dict(feed)


def _types(options: Options) -> tuple[str, str]:
    """(activations, weights), each "s8" or "u8"."""
    both = str(options["types"])
    return both[:2], both[2:]


_STATIC, _QUANTIZED = {"quantize": ("static",)}, {"quantize": ("static", "dynamic")}
_OPTIMIZED = {"optimization": ("all",)}
_DOCS = "https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html"
_SOURCE = "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core"
_BIASES = "optimizer/qdq_transformer/weight_bias_quantization.h"
_INCLUDE = "https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session"

ONNXRUNTIME_QUANT = Target(
    name="onnxruntime-quant",
    distribution="onnxruntime",
    convert=convert,
    quantize=quantize,
    execute=execute,
    scheme=scheme,
    inspect=inspect,
    tap=tap,
    commands=commands,
    options=(
        Option("preprocess", "convert", (False, True), "optimize and infer shapes before quantizing"),
        Option("quantize", "quantize", ("static", "dynamic", "none"), "ranges of activations: calibrated, live"),
        Option("format", "quantize", ("QDQ", "QOperator"), "how quantized operators are written", _STATIC),
        Option("calibration", "quantize", ("MinMax", "Entropy", "Percentile"), "how ranges are found", _STATIC),
        Option(
            "types",
            "quantize",
            ("s8s8", "u8s8", "u8u8"),
            "types of activations and weights; dynamic quantization has u8 activations whatever is said here",
            _QUANTIZED,
        ),
        # With u8 weights the zero points of channels would differ, which QLinearConv does not take.
        Option("per_channel", "quantize", (False, True), "one weight scale a channel", {"types": ("s8s8", "u8s8")}),
        Option("reduce_range", "quantize", (False, True), "weights in 7 bits", _QUANTIZED),
        Option(
            "symmetric_activations",
            "quantize",
            (False, True),
            "activations without zero point",
            {**_STATIC, "types": ("s8s8",)},
        ),
        Option("force_quantize", "quantize", (False, True), "quantize data movement of unquantized data too", _STATIC),
        Option(
            "dedicated_pairs",
            "quantize",
            (False, True),
            "a Q/DQ pair for each consumer",
            {**_STATIC, "format": ("QDQ",)},
        ),
        Option("optimization", "execute", ("all", "off"), "graph optimization level of the session"),
        Option("threads", "execute", (1, 2), "threads of one run"),
    ),
    switches={"disabled_optimizers": OPTIMIZERS},
    companions=(  # the quantizer needs an onnx of its time without requiring one
        ("1.19", "numpy<2"),
        ("1.17", "onnx<1.16"),
        ("1.20", "onnx<1.17"),
        ("1.22", "onnx<1.18"),
        ("1.24", "onnx<1.20"),
        ("1.17", "scipy"),  # for entropies, which later ones compute themselves
        ("", "onnx"),
        ("", "sympy"),
    ),
    features={
        "float": {"quantize": "none"},
        "onnx": {},
        "preprocessed": {"preprocess": True, "quantize": "none"},
        "qdq": {"quantize": "static", "format": "QDQ"},
        "unfused": {"quantize": "static", "format": "QDQ", "optimization": "off"},
        "min-max": {"quantize": "static", "calibration": "MinMax"},
        "per-channel": {"per_channel": True},
        "u8s8": {"types": "u8s8"},
    },
    natives=(
        "onnxruntime.quantization.quantize_static",
        "onnxruntime.quantization.quantize_dynamic",
        "onnxruntime.quantization.shape_inference.quant_pre_process",
        "onnxruntime.InferenceSession",
    ),
    refusals=(
        Rule("unsupported combination of types", "quantize", r"quantization doesn't support data format", _DOCS),
        Rule(
            "shape inference is left to the caller",
            "quantize",
            r"running shape inference before quantization may resolve this issue",
            _DOCS + "#pre-processing",
        ),
    ),
    outgrown=OUTGROWN,
    exceptions=(
        # Without VNNI, pairs of products of u8 and s8 are added in 16 bits.
        Rule("u8s8-saturation", "execute", "", _DOCS + "#when-and-why-do-i-need-to-try-u8u8"),
        Rule("bias-quantization", "execute", "", f"{_SOURCE}/{_BIASES}", _OPTIMIZED),
        # It is among the basic optimizations, which pre-processing makes.
        Rule("bias-quantization", "execute", "", _DOCS + "#pre-processing", {"preprocess": (True,)}),
        # session.qdq_matmulnbits_accuracy_level, of which 4 (int8) is the default
        Rule("int8-matmul", "execute", "", f"{_INCLUDE}/onnxruntime_session_options_config_keys.h", _OPTIMIZED),
    ),
)
