"""onnxoptimizer: passes that eliminate and fuse nodes."""

from __future__ import annotations

from driftnet.targets.interface import Option, Options, Rule, Target, unquantized
from driftnet.targets.onnxruntime_graph.target import preload_runtime
from driftnet.targets.rewriters.target import COMPANIONS, FEATURES, OUTGROWN, RUN, RUNS, execute, load, write

# What onnxoptimizer 0.4.2 runs where no passes are named (get_fuse_and_elimination_passes).
PASSES = (
    *("eliminate_nop_cast", "eliminate_nop_dropout", "eliminate_nop_flatten", "extract_constant_to_initializer"),
    *("eliminate_consecutive_idempotent_ops", "eliminate_if_with_const_cond", "eliminate_nop_monotone_argmax"),
    *("eliminate_nop_pad", "eliminate_nop_concat", "eliminate_nop_split", "eliminate_nop_expand"),
    *("eliminate_shape_gather", "eliminate_slice_after_shape", "eliminate_nop_transpose", "fuse_add_bias_into_conv"),
    *("fuse_bn_into_conv", "fuse_consecutive_concats", "fuse_consecutive_log_softmax", "fuse_consecutive_squeezes"),
    *("fuse_consecutive_reduce_unsqueeze", "fuse_consecutive_transposes", "fuse_matmul_add_bias_into_gemm"),
    *("fuse_pad_into_conv", "fuse_pad_into_pool", "fuse_transpose_into_gemm", "fuse_concat_into_reshape"),
    *("eliminate_nop_reshape", "eliminate_nop_with_unit", "eliminate_common_subexpression", "fuse_qkv"),
    *("fuse_consecutive_unsqueezes", "eliminate_deadend", "eliminate_identity", "eliminate_shape_op"),
    *("fuse_consecutive_slices", "eliminate_unused_initializer", "eliminate_duplicate_initializer", "rewrite_where"),
)


def preload() -> None:
    """Import what is needed, so that forked workers have it."""
    import onnxoptimizer  # noqa: F401

    preload_runtime()


def convert(model: str, folder: str, options: Options) -> str:
    """What its fuse and elimination passes make of the model."""
    import onnxoptimizer

    passes = [name for name in onnxoptimizer.get_fuse_and_elimination_passes() if name not in options["skipped"]]
    return write(model, onnxoptimizer.optimize(load(model), passes, options["fixed_point"]), folder)


def commands(options: Options) -> str:
    """Its command line."""
    again = " --fixed_point" if options["fixed_point"] else ""
    return f"python -m onnxoptimizer model.onnx rewritten.onnx{again}\n{RUN}"


ONNXOPTIMIZER = Target(
    name="onnxoptimizer",
    distribution="onnxoptimizer",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(Option("fixed_point", "convert", (False, True), "repeat until nothing changes"),),
    switches={"skipped": PASSES},
    companions=COMPANIONS,
    features=FEATURES,
    outgrown=OUTGROWN,
    natives=("onnxoptimizer.optimize", RUNS),
    refusals=(
        Rule(
            "type that it does not know",
            "convert",
            r"no supported data type: \d+",
            "https://github.com/onnx/onnx/blob/main/onnx/common/ir_pb_converter.cc",
        ),
    ),
)
