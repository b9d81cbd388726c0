"""onnxscript's optimizer and rewriter."""

from __future__ import annotations

from driftnet.targets.interface import Option, Options, Target, unquantized
from driftnet.targets.onnxruntime_graph.target import preload_runtime
from driftnet.targets.rewriters.target import COMPANIONS, FEATURES, OUTGROWN, RUN, RUNS, execute, load, write


def preload() -> None:
    """Import what is needed (3 s), so that forked workers have it."""
    import onnxscript.optimizer
    import onnxscript.rewriter  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """What the optimizer, or the rewriter with its own rules, makes of the model."""
    import onnxscript.optimizer
    import onnxscript.rewriter

    if options["tool"] == "rewriter":
        return write(model, onnxscript.rewriter.rewrite(load(model)), folder)
    optimized = onnxscript.optimizer.optimize(
        load(model), num_iterations=options["iterations"], onnx_shape_inference=options["shapes"]
    )
    return write(model, optimized, folder)


def commands(options: Options) -> str:
    """Its own functions."""
    call = "rewriter.rewrite(model)"
    if options["tool"] == "optimizer":
        numbers = f"num_iterations={options['iterations']}, onnx_shape_inference={options['shapes']}"
        call = f"optimizer.optimize(model, {numbers})"
    lines = ["python - <<'END'", "import onnx", "from onnxscript import optimizer, rewriter"]
    return "\n".join([*lines, "model = onnx.load('model.onnx')", f"onnx.save({call}, 'rewritten.onnx')", "END", RUN])


_OPTIMIZER = {"tool": ("optimizer",)}

ONNXSCRIPT = Target(
    name="onnxscript",
    distribution="onnxscript",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("tool", "convert", ("optimizer", "rewriter"), "what rewrites"),
        Option("iterations", "convert", (2, 1), "how often", _OPTIMIZER),
        Option("shapes", "convert", (True, False), "infer shapes by onnx", _OPTIMIZER),
    ),
    companions=COMPANIONS,
    features=FEATURES,
    outgrown=OUTGROWN,
    natives=("onnxscript.optimizer.optimize", "onnxscript.rewriter.rewrite", RUNS),
)
