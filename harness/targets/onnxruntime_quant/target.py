"""onnxruntime's quantizer, static and dynamic, and the execution of what it makes by onnxruntime's CPU provider."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.targets.interface import Answers, Feed, Option, Options, Rule, Scheme, StageError, Target, answered
from driftnet.targets.onnxruntime_graph.target import OPTIMIZERS, OUTGROWN, preload_runtime
from driftnet.targets.snippet import FEEDS

# Codes by (type, whether the range is reduced), as the quantizer has them.
CODES = {
    ("s4", False): (-8, 7),
    ("s4", True): (-4, 3),
    ("u4", False): (0, 15),
    ("u4", True): (0, 7),
    ("s8", False): (-128, 127),
    ("s8", True): (-64, 64),
    ("u8", False): (0, 255),
    ("u8", True): (0, 127),
    ("s16", False): (-32768, 32767),
    ("s16", True): (-16384, 16384),
    ("u16", False): (0, 65535),
    ("u16", True): (0, 32767),
}
# Options that are True or False, and what extra_options calls them.
EXTRA = {
    "symmetric_activations": "ActivationSymmetric",
    "force_quantize": "ForceQuantizeNoInputCheck",
    "dedicated_pairs": "DedicatedQDQPair",
    "restricted_zero_points": "ActivationRestrictedAsymmetric",
    "symmetric_ranges": "CalibTensorRangeSymmetric",
    "moving_average": "CalibMovingAverage",
    "constant_products": "MatMulConstBOnly",
    "pairs_of_weights": "AddQDQPairToWeight",
    "contrib_pairs": "UseQDQContribOps",
    "keep_activations": "QDQKeepRemovableActivations",
    "subgraphs": "EnableSubgraph",
    "nnapi_sigmoid": "extra.Sigmoid.nnapi",
}
# How weights are rounded in blocks, and what the quantizer calls it; "default" has no name.
ALGORITHMS = {"RTN": "RTNWeightOnlyQuantConfig", "k_quant": "KQuantWeightOnlyQuantConfig"}
# What `quantize` hands options to by name: of another function such a TypeError is the release's own.
CALLED = (r"quantize_(static|dynamic)", r"(MatMulNBitsQuantizer|\w+WeightOnlyQuantConfig)\.__init__")
INPUTS = ("as others", "16 bits", "narrow")
# What a user names where only operators with weights are meant: options take names.
WEIGHTED = ["Conv", "ConvTranspose", "Gemm", "MatMul"]


def preload() -> None:
    """Import the quantizers (.4 s), so that forked workers have them."""
    import onnxruntime.quantization.shape_inference

    with contextlib.suppress(ImportError):  # an older release
        import onnxruntime.quantization.matmul_nbits_quantizer  # noqa: F401

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
        skip_optimization=options["preprocess"] == "shapes",
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
    import onnx
    import onnxruntime.quantization as ort

    quantized = os.path.join(folder, "quantized.onnx")
    model = onnx.load(artifact) if options["model_from"] == "memory" else artifact
    outside = options["external_data"] or _keeps_data_outside(artifact)
    if options["quantize"] == "weight-only":
        _quantize_products(model, artifact, quantized, outside, options)
        return quantized
    activations, weights = (ort.QuantType[f"Q{name}"] for name in _type_names(options))
    arguments: dict[str, Any] = {
        "weight_type": weights,
        "per_channel": options.get("per_channel", False),
        "reduce_range": options["reduce_range"],
        "use_external_data_format": outside,
        **_chosen(artifact, options),
    }
    extra: dict[str, Any] = _extra(options)
    if options["quantize"] == "dynamic":
        ort.quantize_dynamic(model, quantized, extra_options=extra, **arguments)
    else:
        if (override := options.get("inputs", "as others")) != "as others":
            extra["TensorQuantOverrides"] = _overrides(calibration, override)
        if options["calibration_cache"]:
            arguments["calibration_cache_path"] = os.path.join(folder, "ranges.json")
        for _ in range(1 + options["calibration_cache"]):
            ort.quantize_static(
                model,
                quantized,
                _Reader(calibration),
                quant_format=ort.QuantFormat[options["format"]],
                calibrate_method=ort.CalibrationMethod[options["calibration"]],
                activation_type=activations,
                extra_options=dict(extra),
                **arguments,
            )
    if not os.path.exists(quantized):
        raise StageError("no model was written")
    return quantized


def _quantize_products(model: Any, artifact: str, quantized: str, outside: bool, options: Options) -> None:
    """Only the constant weights of MatMul, and rows of Gather, in blocks of a few bits."""
    import onnx
    import onnxruntime.quantization as ort
    import onnxruntime.quantization.matmul_nbits_quantizer as nbits

    read = onnx.load(artifact, load_external_data=False)
    opset = max(entry.version for entry in read.opset_import if entry.domain in ("", "ai.onnx"))
    if opset < 21 and (options["format"] == "QDQ" or options.get("gather", False)):  # else it writes another number
        raise StageError("The opset of the input model is under 21 and doesn't support int4 data type")
    form, algorithm = ort.QuantFormat[options["format"]], options.get("algorithm", "default")
    config = getattr(nbits, ALGORITHMS[algorithm])(quant_format=form) if algorithm in ALGORITHMS else None
    quantizer = nbits.MatMulNBitsQuantizer(model, quant_format=form, algo_config=config, **_blocks(options))
    quantizer.process()
    quantizer.model.save_model_to_file(quantized, outside)


def _blocks(options: Options) -> dict[str, Any]:
    """How weights are quantized in blocks."""
    return {
        "bits": options.get("bits", 4),
        "block_size": options["block"],
        "is_symmetric": options["symmetric_blocks"],
        "accuracy_level": options.get("accuracy_level", 0) or None,
        # These two the quantizer has, and takes their names.
        "op_types_to_quantize": ("MatMul", "Gather") if options.get("gather", False) else ("MatMul",),
        "channel_wised_quantize": options.get("whole_channels", False),
    }


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one session of the CPU provider."""
    import onnxruntime as ort

    levels = {"all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL, "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL}
    settings = ort.SessionOptions()
    settings.graph_optimization_level = levels[options["optimization"]]
    settings.intra_op_num_threads = options["threads"]
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = ort.InferenceSession(
        artifact, settings, providers=["CPUExecutionProvider"], disabled_optimizers=options.get("disabled_optimizers")
    )
    return [answered(outputs, session.run(list(outputs), dict(feed))) for feed in feeds]


def tap(artifact: str, feeds: Sequence[Feed], tensors: Mapping[str, str], options: Options) -> Answers:
    """Each tensor as one more output of the model, by itself: asked for together they would keep others from being
    fused."""
    import onnx

    model = onnx.load(artifact, load_external_data=False)
    made = {name for node in model.graph.node for name in node.output}
    found: Answers = [{} for _ in feeds]
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
    """The quantized model, with its weights where they lie outside because an option says so."""
    if options["quantize"] != "none" and options["external_data"]:
        import onnx

        return {"model": onnx.load(artifact).SerializeToString()}
    with open(artifact, "rb") as file:
        return {"model": file.read()}


def commands(options: Options) -> str:
    """The package's own functions."""
    lines, model = (
        ["python - <<'END'", FEEDS, "import onnxruntime as ort", "from onnxruntime.quantization import *"],
        "model.onnx",
    )
    if options["preprocess"]:
        lines.append("from onnxruntime.quantization.shape_inference import quant_pre_process")
        without = ", skip_optimization=True" if options["preprocess"] == "shapes" else ""
        lines.append(f"quant_pre_process({model!r}, 'preprocessed.onnx', skip_symbolic_shape=True{without})")
        model = "preprocessed.onnx"
    given = f"onnx.load({model!r})" if options.get("model_from") == "memory" else repr(model)
    if options["quantize"] == "weight-only":
        lines += _products(given, options)
    elif options["quantize"] != "none":
        lines += _quantizing(given, model, options)
    level = "ENABLE_ALL" if options["optimization"] == "all" else "DISABLE_ALL"
    quantized = model if options["quantize"] == "none" else "quantized.onnx"
    return "\n".join(
        [
            *lines,
            "settings = ort.SessionOptions()",
            f"settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_{level}",
            f"settings.intra_op_num_threads = {options['threads']}",
            f"session = ort.InferenceSession({quantized!r}, settings,",
            f"    disabled_optimizers={options.get('disabled_optimizers')})",
            "for feed in tests:",
            "    print(session.run(None, feed))",
            "END",
        ]
    )


_READER = """\
class Reader(CalibrationDataReader):
    def __init__(self):
        self.set_range(0, len(calibration))
    def __len__(self):
        return len(calibration)
    def set_range(self, start_index, end_index):
        self.left = iter(calibration[start_index:end_index])
    def get_next(self):
        return next(self.left, None)"""


def _products(given: str, options: Options) -> list[str]:
    """Quantizing the weights of products alone."""
    form, algorithm = options["format"], options.get("algorithm", "default")
    config = f"{ALGORITHMS[algorithm]}(quant_format=QuantFormat.{form})" if algorithm in ALGORITHMS else None
    return [
        "from onnxruntime.quantization.matmul_nbits_quantizer import *",
        f"quantizer = MatMulNBitsQuantizer({given}, quant_format=QuantFormat.{form}, algo_config={config},",
        f"    {', '.join(f'{name}={value!r}' for name, value in _blocks(options).items())})",
        "quantizer.process()",
        f"quantizer.model.save_model_to_file('quantized.onnx', {options['external_data']})",
    ]


def _quantizing(given: str, model: str, options: Options) -> list[str]:
    """Quantizing with or without calibration."""
    activations, weights = _type_names(options)
    lines = [f"extra = {_extra(options)}"]
    arguments = [
        f"weight_type=QuantType.Q{weights}",
        f"per_channel={options.get('per_channel', False)}",
        f"reduce_range={options['reduce_range']}",
        "extra_options=extra",
    ]
    if options["external_data"]:
        arguments.append("use_external_data_format=True")
    if options["operators"] == "weighted":
        arguments.append(f"op_types_to_quantize={WEIGHTED}")
    if options["nodes"] != "all":
        lines.append(f"nodes = [n.name for n in onnx.load({model!r}).graph.node if n.op_type != 'Constant'][::2]")
        arguments.append(f"{options['nodes']}=nodes")
    if options["quantize"] == "static":
        lines.append(_READER)
        arguments += [
            f"quant_format=QuantFormat.{options['format']}",
            f"calibrate_method=CalibrationMethod.{options['calibration']}",
            f"activation_type=QuantType.Q{activations}",
        ]
        if options["calibration_cache"]:
            arguments.append("calibration_cache_path='ranges.json'")
        if (override := options.get("inputs", "as others")) != "as others":
            ends = "{'rmin': min(x.min() for x in seen) / 2, 'rmax': max(x.max() for x in seen) / 2}"
            said = "{'quant_type': QuantType.QUInt16}" if override == "16 bits" else ends
            lines += [
                "extra['TensorQuantOverrides'] = overrides = {}",
                "for name in inputs:",
                "    seen = [feed[name] for feed in calibration]",
                "    if seen[0].dtype == 'float32' and all(x.size for x in seen):",
                f"        overrides[name] = [{said}]",
            ]
    reader = ", Reader()" if options["quantize"] == "static" else ""
    call = [f"quantize_{options['quantize']}({given}, 'quantized.onnx'{reader}, {', '.join(arguments[:4])},"]
    call += [f"    {', '.join(arguments[4:])})"]
    return [*lines, *call * (1 + options.get("calibration_cache", False))]


def scheme(options: Options) -> Scheme | None:
    """The scheme that the options ask for. Dynamic: the ranges of activations come from the feed itself."""
    if options["quantize"] == "none":
        return None
    if options["quantize"] == "weight-only":
        bits = options["bits"] if options.get("algorithm") == "default" else 4  # others have no choice
        highest = 2**bits - 1
        return Scheme(weight_codes=(0, highest), symmetric_weights=options["symmetric_blocks"], told=True)
    activations, weights = _types(options)
    static, symmetric = options["quantize"] == "static", options.get("symmetric_activations", False)
    without_zero_point = (weights[0] == "s") != options["other_symmetry"]
    narrowed = options.get("inputs") == "narrow" or options.get("moving_average", False)
    widened = any(options.get(name, False) for name in ("symmetric_ranges", "restricted_zero_points"))
    # Weights of channels are symmetric in any case with QDQ, "because QLinear* ops require the same zero-point in every
    # channel" (qdq_quantizer.py), and those of a tensor as asked for.
    mixed = options["other_symmetry"] and options.get("per_channel", False)
    return Scheme(
        weight_codes=_codes(weights, options["reduce_range"], without_zero_point),
        activation_codes=_codes(activations, False, symmetric),
        symmetric_weights=without_zero_point,
        symmetric_activations=symmetric,
        per_channel=options.get("per_channel", False),
        per_tensor=frozenset() if static else frozenset({"Conv"}),  # ConvInteger takes one weight scale
        clips=static and (options["calibration"] != "MinMax" or narrowed),
        # Half a step is missing at the end of -8 to 7, and of a range that is made symmetric for codes that are not.
        told=weights == "s4" or widened or narrowed or mixed,
        narrow=float(options.get("least_range", "0")),
        held_as_floats=static and options["format"] == "QDQ",
    )


def _codes(type: str, reduced: bool, symmetric: bool) -> tuple[int, int]:
    lowest, highest = CODES[type, reduced]
    return (-highest if symmetric and type in ("s8", "s16") else lowest), highest


def _extra(options: Options) -> dict[str, Any]:
    """extra_options, as far as no tensor is named in it."""
    given: dict[str, Any] = {EXTRA[name]: value for name, value in options.items() if name in EXTRA and value}
    if options["other_symmetry"]:
        given["WeightSymmetric"] = _types(options)[1][0] == "u"
    if options.get("products_of_data", False):
        given["MatMulConstBOnly"] = False
    if options.get("strided", False):
        given["CalibStridedMinMax"] = 1
    if options.get("percentile", "99.999") != "99.999":
        given["CalibPercentile"] = float(options["percentile"])
    if options.get("least_range", "0") != "0":
        given["MinimumRealRange"] = float(options["least_range"])
    if options.get("float_results", False):
        given["OpTypesToExcludeOutputQuantization"] = WEIGHTED
    if options.get("float_biases", False):
        given["QuantizeBias"] = False
    return given


def _chosen(artifact: str, options: Options) -> dict[str, list[str]]:
    """What is quantized and what is not, by operator and by name."""
    import onnx

    chosen: dict[str, list[str]] = {}
    if options.get("operators", "all") == "weighted":
        chosen["op_types_to_quantize"] = WEIGHTED
    if options["nodes"] != "all":
        nodes = onnx.load(artifact, load_external_data=False).graph.node
        chosen[options["nodes"]] = [node.name for node in nodes if node.op_type != "Constant"][::2]
    return chosen


def _overrides(calibration: Sequence[Feed], how: str) -> dict[str, list[dict[str, Any]]]:
    """TensorQuantOverrides of the inputs: another type, or the half of what calibration saw."""
    import onnxruntime.quantization as ort

    overrides: dict[str, list[dict[str, Any]]] = {}
    for name in calibration[0]:
        arrays = [feed[name] for feed in calibration]
        if arrays[0].dtype != np.float32 or not all(x.size for x in arrays):
            continue
        low, high = min(x.min() for x in arrays) / 2, max(x.max() for x in arrays) / 2
        overrides[name] = [{"quant_type": ort.QuantType.QUInt16} if how == "16 bits" else {"rmin": low, "rmax": high}]
    return overrides


def _keeps_data_outside(model: str) -> bool:
    """Whether the model has weights in files beside it, as a large one must: what is made of it then has to, too."""
    import onnx

    tensors = onnx.load(model, load_external_data=False).graph.initializer
    return any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors)


class _Reader:
    """What onnxruntime calls a CalibrationDataReader."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds = feeds
        self.set_range(0, len(feeds))

    def __len__(self) -> int:
        return len(self._feeds)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._left = iter(self._feeds[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        feed = next(self._left, None)
        return None if feed is None else dict(feed)


def _types(options: Options) -> tuple[str, str]:
    """(activations, weights), each "s" or "u" and how many bits."""
    both = str(options["types"])
    return f"{both[0]}{options.get('activation_bits', 8)}", f"{both[2]}{options.get('weight_bits', 8)}"


def _type_names(options: Options) -> tuple[str, str]:
    """The same as onnxruntime calls them, "Int8" or "UInt8"."""
    activations, weights = (f"{'U' * (x[0] == 'u')}Int{x[1:]}" for x in _types(options))
    return activations, weights


_STATIC, _QUANTIZED = {"quantize": ("static",)}, {"quantize": ("static", "dynamic")}
_DYNAMIC, _WEIGHT_ONLY = {"quantize": ("dynamic",)}, {"quantize": ("weight-only",)}
_PAIRS, _BLOCKS = {**_STATIC, "format": ("QDQ",)}, {**_WEIGHT_ONLY, "format": ("QOperator",)}
_OPERATORS, _BLOCKS_IN_PAIRS = {**_STATIC, "format": ("QOperator",)}, {**_WEIGHT_ONLY, "format": ("QDQ",)}
_MIN_MAX, _PERCENTILE = ({**_STATIC, "calibration": (name,)} for name in ("MinMax", "Percentile"))
_SIGNED, _UNSIGNED = {**_STATIC, "types": ("s8s8",)}, {**_STATIC, "types": ("u8s8", "u8u8")}
_UNSYMMETRIC = {**_STATIC, "calibration": ("MinMax", "Entropy")}  # Percentile makes them symmetric anyway
_ANY, _WRITTEN = {"quantize": ("static", "dynamic", "weight-only")}, {"quantize": ("static", "weight-only")}
_OPTIMIZED = {"optimization": ("all",)}
_DOCS = "https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html"
_PRE = f"{_DOCS}#pre-processing"
_NBITS = (
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/tools/quantization/matmul_nbits_quantizer.py"
)
_SOURCE = "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core"
_BIASES = "optimizer/qdq_transformer/weight_bias_quantization.h"
_INCLUDE = "https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session"

PER_CHANNEL = 4.0
"""How much likelier one scale a channel is than what other options open: most that deploy a convolution ask for it.
Drawn like others, with QDQ, it was in one of 170 recipes: 1.16.3 fails of a ConvTranspose with a constant bias then."""

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
        Option("preprocess", "convert", (False, True, "shapes"), "optimize and infer shapes before, or only infer"),
        Option(
            "quantize",
            "quantize",
            ("static", "dynamic", "none", "weight-only"),
            "ranges of activations: calibrated, live; weight-only: by MatMulNBits",
            since={"weight-only": "1.22"},
        ),
        Option("format", "quantize", ("QDQ", "QOperator"), "how quantized operators are written", _WRITTEN),
        Option("calibration", "quantize", ("MinMax", "Entropy", "Percentile"), "how ranges are found", _STATIC),
        Option(
            "types",
            "quantize",
            ("s8s8", "u8s8", "u8u8"),
            "types of activations and weights; dynamic quantization has u8 activations whatever is said here",
            _QUANTIZED,
        ),
        Option("activation_bits", "quantize", (8, 16), "bits of an activation", _PAIRS, {16: "1.17"}),
        Option("weight_bits", "quantize", (8, 4, 16), "bits of a weight", _PAIRS, {4: "1.19", 16: "1.17"}),
        # With u8 weights the zero points of channels would differ, which QLinearConv does not take.
        Option(
            "per_channel",
            "quantize",
            (False, True),
            "one weight scale a channel",
            {"types": ("s8s8", "u8s8")},
            share=PER_CHANNEL,
        ),
        Option("reduce_range", "quantize", (False, True), "weights in 7 bits", _QUANTIZED),
        Option(
            "other_symmetry",
            "quantize",
            (False, True),
            "signed weights with a zero point, unsigned ones with one in the middle (WeightSymmetric)",
            _QUANTIZED,
        ),
        Option("symmetric_activations", "quantize", (False, True), "activations without zero point", _SIGNED),
        Option(
            "restricted_zero_points",
            "quantize",
            (False, True),
            "zero points of activations at an end or in the middle",
            _UNSIGNED,
        ),
        Option("operators", "quantize", ("all", "weighted"), "op_types_to_quantize", _QUANTIZED),
        Option(
            "nodes", "quantize", ("all", "nodes_to_exclude", "nodes_to_quantize"), "all, or every other", _QUANTIZED
        ),
        Option("model_from", "quantize", ("file", "memory"), "how the model is given", _ANY, {"memory": "1.17"}),
        Option("external_data", "quantize", (False, True), "weights in a file of their own", _ANY),
        Option("force_quantize", "quantize", (False, True), "quantize data movement of unquantized data too", _STATIC),
        Option("constant_products", "quantize", (False, True), "MatMul only by constants", _OPERATORS),
        Option("nnapi_sigmoid", "quantize", (False, True), "1/256 for the scale of Sigmoid", _OPERATORS),
        Option("products_of_data", "quantize", (False, True), "MatMul of data, too", _DYNAMIC),
        Option("subgraphs", "quantize", (False, True), "what is in subgraphs, too", _DYNAMIC),
        Option("symmetric_ranges", "quantize", (False, True), "ranges made symmetric in calibration", _UNSYMMETRIC),
        Option("moving_average", "quantize", (False, True), "the moving average of minima and maxima", _MIN_MAX),
        Option("strided", "quantize", (False, True), "calibrated sample by sample", _MIN_MAX),
        Option("percentile", "quantize", ("99.999", "95"), "of the data that are not clipped", _PERCENTILE),
        Option(
            "calibration_cache", "quantize", (False, True), "ranges are saved, and read again", _STATIC, {True: "1.31"}
        ),
        Option("least_range", "quantize", ("0", "0.01"), "narrower ranges of activations are widened to it", _STATIC),
        Option("inputs", "quantize", INPUTS, "overrides: another type, or range", _PAIRS, {"16 bits": "1.17"}),
        Option("dedicated_pairs", "quantize", (False, True), "a Q/DQ pair for each consumer", _PAIRS),
        Option("pairs_of_weights", "quantize", (False, True), "weights stay floats, before a pair", _PAIRS),
        Option("contrib_pairs", "quantize", (False, True), "pairs of the domain com.microsoft", _PAIRS),
        Option("keep_activations", "quantize", (False, True), "no Relu or Clip is absorbed by a range", _PAIRS),
        Option("float_results", "quantize", (False, True), "results of weighted operators stay floats", _PAIRS),
        Option("float_biases", "quantize", (False, True), "biases stay floats", _PAIRS),
        Option("algorithm", "quantize", ("default", "RTN", "k_quant"), "how blocks are rounded", _BLOCKS),
        Option("bits", "quantize", (4, 8, 2), "bits of a weight", _BLOCKS),
        Option("block", "quantize", (32, 16, 128), "weights that share a scale", _WEIGHT_ONLY),
        Option("symmetric_blocks", "quantize", (False, True), "without zero points", _WEIGHT_ONLY),
        Option("accuracy_level", "quantize", (0, 1, 4), "4: kernels may round the other operand to int8", _BLOCKS),
        Option("gather", "quantize", (False, True), "rows of Gather too", _BLOCKS),
        Option("whole_channels", "quantize", (False, True), "blocks as long as a channel", _BLOCKS_IN_PAIRS),
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
        (">=1.22", "onnx-ir"),  # for weights in blocks
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
        "onnxruntime.quantization.matmul_nbits_quantizer.MatMulNBitsQuantizer",
        "onnxruntime.quantization.shape_inference.quant_pre_process",
        "onnxruntime.InferenceSession",
    ),
    refusals=(
        Rule("unsupported combination of types", "quantize", r"quantization doesn't support data format", _DOCS),
        Rule("too old for the types of blocks", "quantize", r"is under 21 and doesn't support int4 data type", _NBITS),
        Rule("shape inference is left to the caller", "quantize", r"running shape inference before quantization", _PRE),
    ),
    outgrown=(
        *OUTGROWN,
        *(
            Rule("too old for an option", "quantize", pattern, _DOCS)
            for pattern in (
                rf"^TypeError: ({'|'.join(CALLED)})\(\) got an unexpected keyword argument '\w+'",
                r"(Key|Attribute)Error: '?QU?Int\d+",
                r"PathLike object, not ModelProto",
                r"No module named 'onnxruntime\.",
            )
        ),
    ),
    exceptions=(
        # Without VNNI, pairs of products of u8 and s8 are added in 16 bits.
        Rule(
            "u8s8-saturation",
            "execute",
            "",
            _DOCS + "#when-and-why-do-i-need-to-try-u8u8",
            without={"reduce_range": True},
        ),
        Rule("bias-quantization", "execute", "", f"{_SOURCE}/{_BIASES}", _OPTIMIZED),
        # It is among the basic optimizations, which pre-processing makes.
        Rule("bias-quantization", "execute", "", _PRE, {"preprocess": (True,)}),
        # session.qdq_matmulnbits_accuracy_level, of which 4 (int8) is the default
        Rule("int8-matmul", "execute", "", f"{_INCLUDE}/onnxruntime_session_options_config_keys.h", _OPTIMIZED),
    ),
)
