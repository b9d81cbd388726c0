"""What onnx itself makes of models: its version converter, its inliner of functions, its shape inference."""

from __future__ import annotations

from driftnet.targets.interface import Option, Options, Rule, StageError, Target, unquantized
from driftnet.targets.onnxruntime_graph.target import preload_runtime
from driftnet.targets.rewriters.target import COMPANIONS, FEATURES, OUTGROWN, RUN, RUNS, execute, load, write

NEWEST = 26
"""The newest opset that onnxruntime 1.31 loads."""

# log(exp(x) + 1), as the standard writes them, loses every digit of small results, and overflows above 88.
KEPT = [("", "Softplus"), ("", "Mish")]


def preload() -> None:
    """Import what is needed, so that forked workers have it."""
    import onnx.inliner
    import onnx.version_converter  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """What the tool makes of the model."""
    import onnx
    import onnx.inliner
    import onnx.version_converter

    before = load(model)
    if options["tool"] == "inliner":  # functions of the standard too: few models have any of their own
        try:
            inlined = onnx.inliner.inline_selected_functions(before, KEPT, exclude=True, inline_schema_functions=True)
        except TypeError as e:
            if "unexpected keyword argument 'inline_schema_functions'" not in str(e):
                raise
            raise StageError("this release inlines no functions of the standard") from None
        return write(model, inlined, folder)
    if options["tool"] == "shape_inference":
        return write(model, onnx.shape_inference.infer_shapes(before, data_prop=options["data_propagation"]), folder)
    opset = next(one.version for one in before.opset_import if one.domain in ("", "ai.onnx"))
    newest = max(opset, min(NEWEST, onnx.defs.onnx_opset_version()))
    to = {"up": min(opset + 1, newest), "newest": newest, "down": opset - 1, "two down": opset - 2}[options["opset"]]
    return write(model, onnx.version_converter.convert_version(before, max(to, 7)), folder)


def commands(options: Options) -> str:
    """Its own functions."""
    call = {
        "inliner": f"inliner.inline_selected_functions(model, {KEPT}, exclude=True, inline_schema_functions=True)",
        "shape_inference": f"shape_inference.infer_shapes(model, data_prop={options.get('data_propagation')})",
        "version_converter": f"version_converter.convert_version(model, {_TO.get(options.get('opset', ''))})",
    }[options["tool"]]
    lines = ["python - <<'END'", "import onnx", "from onnx import inliner, shape_inference, version_converter"]
    lines += ["model = onnx.load('model.onnx')"]
    if options["tool"] == "version_converter":
        lines.append("opset = next(one.version for one in model.opset_import if one.domain in ('', 'ai.onnx'))")
        lines.append(f"newest = max(opset, min({NEWEST}, onnx.defs.onnx_opset_version()))")
    lines += [f"model = {call}", "onnx.save(model, 'rewritten.onnx')", "END"]
    return "\n".join([*lines, RUN])


_TO = {"up": "min(opset + 1, newest)", "newest": "newest", "down": "max(opset - 1, 7)", "two down": "max(opset - 2, 7)"}
_OPSETS = ("up", "newest", "down", "two down")
_CONVERTER = {"tool": ("version_converter",)}
_INFERENCE = {"tool": ("shape_inference",)}
_DOCS = "https://github.com/onnx/onnx/blob/main/docs/VersionConverter.md"
_INLINER = "https://github.com/onnx/onnx/blob/main/onnx/inliner.py"
_KERNELS = "https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md"
_NO_KERNEL = r"Could not find an implementation for|Failed to find kernel for"
_NOT_THERE = r"not supported (when|in|for Opset) |[Uu]nsupported |is unallowed|must have value none"

ONNX_PASSES = Target(
    name="onnx-passes",
    distribution="onnx",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option(
            "tool",
            "convert",
            ("version_converter", "inliner", "shape_inference"),
            "what rewrites",
            since={"inliner": "1.19"},
        ),
        Option(
            "opset",
            "convert",
            _OPSETS,
            "to the next opset, the newest that onnxruntime loads, the one before, two before",
            _CONVERTER,
        ),
        Option("data_propagation", "convert", (False, True), "follow values of shapes as well", _INFERENCE),
    ),
    companions=COMPANIONS[1:],
    features=FEATURES,
    outgrown=(*OUTGROWN, Rule("too old to inline", "convert", "inlines no functions of the standard", _INLINER)),
    natives=(
        "onnx.version_converter.convert_version",
        "onnx.inliner.inline_selected_functions",
        "onnx.shape_inference.infer_shapes",
        RUNS,
    ),
    refusals=(
        Rule("no adapter", "convert", r"No Adapter (From|To) Version|No Previous Version of", _DOCS),
        Rule("not in that opset", "convert", _NOT_THERE, _DOCS),
        # It is valid there; onnxruntime's kernels for the newest opsets come later.
        Rule("no kernel in that opset", "execute", _NO_KERNEL, _KERNELS, _CONVERTER),
    ),
)
