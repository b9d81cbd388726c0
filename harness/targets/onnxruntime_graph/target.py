"""onnxruntime's graph optimizer: the CPU provider with its optimizations, in a session or by way of a saved model; and
what comes with it in Python: fusions for transformers, and the conversion to float16."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.targets.interface import Answers, Feed, Option, Options, Rule, Target, answered, unquantized
from driftnet.targets.snippet import FEEDS

# What onnxruntime 1.31 calls its graph transformers and rewrite rules (graph_transformer_utils.cc).
OPTIMIZERS = (
    *("EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout", "ExpandElimination"),
    *("CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion"),
    *("FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion"),
    *("ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion", "ClipQuantRewrite"),
    *("ReluQuantRewrite", "DoubleQDQPairsRemover", "ConstantSharing", "CommonSubexpressionElimination"),
    *("ConstantFolding", "MatMulAddFusion", "ReshapeFusion", "GeluFusionL1", "GeluFusionL2", "LayerNormFusionL1"),
    *("LayerNormFusionL2", "QDQPropagationTransformer", "WeightBiasQuantization", "EnsureUniqueDQForNodeUnit"),
    *("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider", "QDQS8ToU8Transformer"),
    *("QDQSelectorActionTransformer", "QDQFinalCleanupTransformer"),
    *("GemmActivationFusion", "MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion", "ConvActivationFusion"),
    *("SimplifiedLayerNormFusion", "AttentionFusion", "EmbedLayerNormFusion", "GatherSliceToSplitFusion"),
    *("GatherToSliceFusion", "MatmulTransposeFusion", "BiasGeluFusion", "SkipLayerNormFusion", "FastGeluFusion"),
    *("QuickGeluFusion", "BiasSoftmaxFusion", "MatMulScaleFusion", "MatMulNBitsFusion", "NchwcTransformer"),
    *("NhwcTransformer", "ConvAddActivationFusion"),
)

# Each keeps others from seeing a graph: without it they meet what they otherwise never do.
SINGLE = (
    *("ConstantFolding", "CommonSubexpressionElimination", "TransposeOptimizer", "MatMulAddFusion", "ConstantSharing"),
    *("QDQPropagationTransformer", "ConvActivationFusion", "NchwcTransformer"),
)


# Those with fusions of their own that are for CPUs too, of the kinds that onnxruntime.transformers knows.
KINDS = ("bert", "gpt2", "bart", "t5", "conformer", "clip")

# What stays float32 in a model of float16, beside operators that always do, where it is made so: what overflows early.
SUMS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Pow", "ReduceMean", "ReduceSum", "Softmax")
HALVES = ("all", "inside", "all-but-sums", "inside-but-sums")


def preload_runtime() -> None:
    """Import onnxruntime, so that forked workers have it."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)


def preload() -> None:
    """The same with its fusions in Python, where the release has them: to import them takes as long as many cases."""
    preload_runtime()
    with contextlib.suppress(ImportError):
        import onnxruntime.transformers.optimizer  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """The model as it is, since what a session optimizes and what it saves fail alike, and both are done in one stage;
    or what the fusions for one kind of transformers make of it, without a session's own, as `folder`/fused.onnx; of
    either one of float16, as `folder`/halves.onnx."""
    if options["transformers"] != "none":
        from onnxruntime.transformers.optimizer import optimize_model

        fused = optimize_model(model, options["transformers"], opt_level=0)
        model = os.path.join(folder, "fused.onnx")
        fused.save_model_to_file(model)
    if options["float16"] != "no":
        import onnx
        from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

        kept, sums = options["float16"].startswith("inside"), options["float16"].endswith("sums")
        blocked = [*DEFAULT_OP_BLOCK_LIST, *(SUMS if sums else ())]
        halves = convert_float_to_float16(onnx.load(model), keep_io_types=kept, op_block_list=blocked)
        model = os.path.join(folder, "halves.onnx")
        onnx.save(halves, model)
    return model


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one session of the CPU provider: of the model, or of what another session saved of it. One whose
    inputs and outputs were made float16 is fed so, and its results are given in the types of the model before."""
    import onnxruntime as ort

    settings, disabled = _settings(options, options["level"]), _disabled(options)
    optimized = "optimized." + options["saved"]  # in the current folder, the worker's own: messages name no other
    try:
        if options["saved"] != "no":
            settings.optimized_model_filepath = optimized
            if options["saved"] == "ort":
                settings.add_session_config_entry("session.save_model_format", "ORT")
            ort.InferenceSession(artifact, settings, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
            artifact, settings, disabled = optimized, _settings(options, "off"), []
        session = ort.InferenceSession(
            artifact, settings, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
        )
        if not options["float16"].startswith("all"):
            return [answered(outputs, session.run(list(outputs), dict(feed))) for feed in feeds]
        halves = {value.name for value in session.get_inputs() if value.type == "tensor(float16)"}
        results = []
        for feed in feeds:
            given = {name: x.astype(np.float16) if name in halves else x for name, x in feed.items()}
            found = answered(outputs, session.run(list(outputs), given))
            for name, x in found.items():
                if getattr(x, "dtype", None) == np.float16 and outputs[name] == "float32":
                    found[name] = x.astype(np.float32)
            results.append(found)
        return results
    finally:
        if os.path.exists(optimized):
            os.remove(optimized)


def commands(options: Options) -> str:
    """The package's own session, and its settings."""
    level = "DISABLE_ALL" if options["level"] == "off" else f"ENABLE_{options['level'].upper()}"
    lines = [
        "python - <<'END'",
        FEEDS,
        "import onnxruntime as ort",
        *_converting(options),
        "settings = ort.SessionOptions()",
        f"settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_{level}",
    ]
    if options["saved"] == "ort":
        lines.append("settings.add_session_config_entry('session.save_model_format', 'ORT')")
    if options["saved"] != "no":
        lines.append(f"settings.optimized_model_filepath = 'optimized.{options['saved']}'")
    if options["mode"] == "parallel":
        lines.append("settings.execution_mode = ort.ExecutionMode.ORT_PARALLEL")
    if not options["prepacking"]:
        lines.append("settings.add_session_config_entry('session.disable_prepacking', '1')")
    disabled = f", disabled_optimizers={_disabled(options)}" if _disabled(options) else ""
    lines.append(f"session = ort.InferenceSession({_made(options)!r}, settings{disabled})")
    if options["saved"] != "no":
        lines.append("settings = ort.SessionOptions()")
        lines.append("settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL")
        lines.append(f"session = ort.InferenceSession('optimized.{options['saved']}', settings)")
    if options["float16"].startswith("all"):
        lines.append(
            "tests = [{k: x.astype('float16') if x.dtype == 'float32' else x for k, x in f.items()} for f in tests]"
        )
    return "\n".join([*lines, "for feed in tests:", "    print(session.run(None, feed))", "END"])


def _converting(options: Options) -> list[str]:
    lines, kind = [], options["transformers"]
    if kind != "none":
        lines.append("from onnxruntime.transformers.optimizer import optimize_model")
        lines.append(f"optimize_model('model.onnx', {kind!r}, opt_level=0).save_model_to_file('fused.onnx')")
    if options["float16"] != "no":
        before, sums = _made({**options, "float16": "no"}), options["float16"].endswith("sums")
        lines.append("from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16")
        lines.append(f"blocked = [*DEFAULT_OP_BLOCK_LIST, *{SUMS if sums else ()}]")
        kept = f"keep_io_types={options['float16'].startswith('inside')}, op_block_list=blocked"
        lines.append(f"onnx.save(convert_float_to_float16(onnx.load({before!r}), {kept}), 'halves.onnx')")
    return lines


def _made(options: Options) -> str:
    """The file that converting gives."""
    if options["float16"] != "no":
        return "halves.onnx"
    return "model.onnx" if options["transformers"] == "none" else "fused.onnx"


def _settings(options: Options, level: str) -> Any:
    """The SessionOptions of one stage."""
    import onnxruntime as ort

    levels = {
        "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    }
    # Of releases that know no such level, what it has is in the one above.
    levels["layout"] = getattr(ort.GraphOptimizationLevel, "ORT_ENABLE_LAYOUT", levels["all"])
    settings = ort.SessionOptions()
    settings.graph_optimization_level = levels[level]
    settings.intra_op_num_threads = options["threads"]
    settings.inter_op_num_threads = 1
    if options["mode"] == "parallel":
        settings.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        settings.inter_op_num_threads = 2
    if not options["prepacking"]:
        settings.add_session_config_entry("session.disable_prepacking", "1")
    settings.log_severity_level = 4
    return settings


def _disabled(options: Options) -> list[str]:
    """The optimizers that are to be left out."""
    single = options.get("without", "none")
    return [*options.get("disabled_optimizers", ()), *([single] if single != "none" else [])]


_OPTIMIZED = {"level": ("all", "layout", "extended", "basic")}
_FUSED = {"level": ("all", "layout", "extended")}
_HALVES = {"float16": HALVES}
_SAVED = {"saved": ("ort",)}
_DOCS = "https://onnxruntime.ai/docs/performance/model-optimizations"
_CORE = "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core"
_BIASES = "optimizer/qdq_transformer/weight_bias_quantization.h"
_FLAT = f"{_CORE}/graph/graph_flatbuffers_utils.cc"
_INCLUDE = "https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session"
_COMPATIBILITY = "https://onnxruntime.ai/docs/reference/compatibility.html"


def _outgrown() -> Iterator[Rule]:
    """What an older release says of what it has not yet. That it cannot run what its own quantizer made is no such
    thing, so the operators which that writes stand apart."""
    made = r"(?!QLinear|QGemm|Quantize|Dequantize|DynamicQuantize|ConvInteger|MatMulInteger)"
    for stage in ("convert", "quantize", "execute"):
        for name, pattern in (
            ("too old for the IR version", r"Unsupported model IR version: \d+, max supported IR version: \d+"),
            (
                "too old for the opset",
                r"[Oo]pset \d+ is under development|support for models stamped with official rel",
            ),
            ("too old for the opset", r"is till opset \d+|No opset import for domain|Unrecognized ir_version"),
            ("too old for an operator or type", rf"Could not find an implementation for {made}\w+\(\d+\) node"),
            ("too old for an operator or type", rf"Failed to find kernel for {made}\w+\(\d+\)"),
            ("too old for an operator", rf"(No Op registered for|No schema registered for|Fatal error:) {made}\w+"),
            ("too old for an operator", rf"\b{made}\w+(\(-?\d+\))? is not a registered function/op"),
            ("too old for a type", rf"Type Error: Type '.*' of (in|out)put parameter \(.*\) of operator \({made}"),
        ):
            yield Rule(name, stage, pattern, _COMPATIBILITY)
    # Pre-processing goes on where its session refused the model, and finds no file.
    pattern = r"Unable to open proto file: \S+optimized\.onnx"
    yield Rule("too old to be pre-processed", "convert", pattern, _COMPATIBILITY)


OUTGROWN = tuple(_outgrown())
ONNXRUNTIME_GRAPH = Target(
    name="onnxruntime-graph",
    distribution="onnxruntime",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        # A session takes 2 ms where these take 7 and, as far as half precision tells little, as much.
        Option(
            "transformers",
            "convert",
            ("none", *KINDS),
            "for which transformers nodes are fused in Python first",
            share=1 / 4,
        ),
        Option("float16", "convert", ("no", *HALVES), "what becomes float16; inside: no input or output", share=1 / 4),
        Option("level", "execute", ("all", "layout", "extended", "basic", "off"), "how much is optimized"),
        Option("without", "execute", ("none", *SINGLE), "one optimizer that is left out", _OPTIMIZED),
        Option("saved", "execute", ("no", "onnx", "ort"), "what is run: the session, or the model that it saved"),
        Option("mode", "execute", ("sequential", "parallel"), "whether independent nodes run at the same time"),
        Option("prepacking", "execute", (True, False), "whether kernels rearrange constant weights"),
        Option("threads", "execute", (1, 2), "threads of one node"),
    ),
    switches={"disabled_optimizers": OPTIMIZERS},
    companions=(("1.19", "numpy<2"), (">=1.25", "sympy"), ("", "onnx")),  # older ones require it themselves
    features={"float": {}},
    natives=(
        "onnxruntime.InferenceSession",
        "onnxruntime.transformers.optimizer.optimize_model",
        "onnxruntime.transformers.float16.convert_float_to_float16",
    ),
    outgrown=OUTGROWN,
    refusals=(
        Rule("type outside of the ORT format", "execute", r"We do not support type \[\d+\] for now", _FLAT, _SAVED),
        *(
            Rule(name, "execute", pattern, _DOCS + "/float16.html", _HALVES)  # its op_block_list has to name them
            for name, pattern in (
                ("operator not defined for float16", r"Type 'tensor\(float16\)' of input parameter \(.*\) of operator"),
                ("operator without a kernel for float16", r"Could not find an implementation for \w+\(\d+\) node"),
                ("operator without a kernel for float16", r"MLFloat16 data type is not supported with \w+"),
            )
        ),
    ),
    exceptions=(
        # Without VNNI, pairs of products of u8 and s8 are added in 16 bits.
        Rule("u8s8-saturation", "execute", "", _DOCS + "/quantization.html#when-and-why-do-i-need-to-try-u8u8"),
        Rule("bias-quantization", "execute", "", f"{_CORE}/{_BIASES}", _OPTIMIZED),
        Rule("half-precision", "execute", "", _DOCS + "/float16.html", _HALVES),
        # session.qdq_matmulnbits_accuracy_level, of which 4 (int8) is the default
        Rule("int8-matmul", "execute", "", f"{_INCLUDE}/onnxruntime_session_options_config_keys.h", _FUSED),
    ),
)
