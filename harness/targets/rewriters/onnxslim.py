"""onnxslim: constant folding, fusions, common subexpressions."""

from __future__ import annotations

from driftnet.targets.interface import Option, Options, Target, unquantized
from driftnet.targets.onnxruntime_graph.target import preload_runtime
from driftnet.targets.rewriters.target import COMPANIONS, FEATURES, OUTGROWN, RUN, RUNS, execute, load, write

PARTS = ("constant_folding", "graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying")


def preload() -> None:
    """Import what is needed (3.6 s), so that forked workers have it."""
    import onnxslim  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """What onnxslim makes of the model."""
    import onnxslim

    left_out = [*options["skipped"], *([options["without"]] if options["without"] != "none" else [])]
    slim = onnxslim.slim(load(model), no_shape_infer=not options["shapes"], skip_optimizations=left_out or None)
    return write(model, slim, folder)


def commands(options: Options) -> str:
    """Its command line."""
    shapes = "" if options["shapes"] else " --no-shape-infer"
    without = "" if options["without"] == "none" else f" --skip-optimizations {options['without']}"
    return f"onnxslim model.onnx rewritten.onnx{shapes}{without}\n{RUN}"


ONNXSLIM = Target(
    name="onnxslim",
    distribution="onnxslim",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("shapes", "convert", (True, False), "infer shapes"),
        Option("without", "convert", ("none", *PARTS), "one part of it that is left out"),
    ),
    switches={"skipped": PARTS},
    # Models that it makes have the newest IR version that onnx knows, which onnxruntime may not.
    companions=(("0.1.71", "onnx<1.19"), *COMPANIONS),
    features=FEATURES,
    outgrown=OUTGROWN,
    natives=("onnxslim.slim", RUNS),
)
