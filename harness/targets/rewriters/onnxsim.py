"""onnxsim, the ONNX simplifier: constant folding, shape inference and fusions."""

from __future__ import annotations

from driftnet.targets.interface import Option, Options, StageError, Target, unquantized
from driftnet.targets.onnxruntime_graph.target import preload_runtime
from driftnet.targets.rewriters.target import COMPANIONS, FEATURES, OUTGROWN, RUN, RUNS, execute, load, write


def preload() -> None:
    """Import what is needed (4.9 s), so that forked workers have it."""
    import onnxsim  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """What onnxsim makes of the model."""
    import onnxsim

    simple, checked = onnxsim.simplify(
        load(model),
        perform_optimization=options["fusions"],
        skip_constant_folding=not options["folding"],
        skip_shape_inference=not options["shapes"],
    )
    if not checked:
        raise StageError("the simplified model did not pass onnxsim's own check")
    return write(model, simple, folder)


def commands(options: Options) -> str:
    """Its command line."""
    flags = {"fusions": "--skip-optimization", "folding": "--skip-constant-folding", "shapes": "--skip-shape-inference"}
    told = [flag for name, flag in flags.items() if not options[name]]
    return " ".join(["onnxsim model.onnx rewritten.onnx", *told]) + f"\n{RUN}"


ONNXSIM = Target(
    name="onnxsim",
    distribution="onnxsim",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("fusions", "convert", (True, False), "eliminate and fuse nodes"),
        Option("folding", "convert", (True, False), "fold constants"),
        Option("shapes", "convert", (True, False), "infer shapes"),
    ),
    companions=COMPANIONS,
    features=FEATURES,
    outgrown=OUTGROWN,
    natives=("onnxsim.simplify", RUNS),
)
