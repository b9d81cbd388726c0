"""TVM: its ONNX frontend for Relax, its passes, what LLVM makes of that for a CPU, its virtual machine."""

from __future__ import annotations

import itertools
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from driftnet.targets.interface import Answers, Feed, Option, Options, Rule, StageError, Target, unquantized
from driftnet.targets.snippet import FEEDS

T = TypeVar("T")
LIBRARIES = itertools.count()
"""Their numbers: of a name that was loaded before, that library is given."""

# How it writes an operator out, and what it says below an error of the call that it is about.
_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
_CALL = re.compile(r"Offending call:\s*(R\.[\w.]+)")


def preload() -> None:
    """Import TVM with its ONNX frontend, so that forked workers have them."""
    import tvm.relax.frontend.onnx  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """The model as it is: what is compiled for memory and for a library fails alike, so both are done in one stage."""
    return model


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one virtual machine or, where shapes are those of the feed, in one for all of its shapes."""
    return _said(lambda: _executed(artifact, feeds, list(outputs), options))


def commands(options: Options) -> str:
    """The package's own functions, for each feed anew."""
    given = ["onnx.load('model.onnx')", "sanitize_input_names=False"]
    if options["shapes"] == "static":
        given.append("shape_dict={name: list(x.shape) for name, x in feed.items()}")
    kept = options["params"] == "inputs"
    if kept:
        given.append("keep_params_in_input=True")
    lines = [
        f"module = from_onnx({', '.join(given)})",
        f"target = tvm.target.Target({{'kind': 'llvm', 'opt-level': {options['opt_level']}}})",
    ]
    if kept:
        lines.append("module, params = relax.frontend.detach_params(module)")
    without = [*options.get("disabled_passes", ())]
    lines.append(f"with tvm.transform.PassContext(opt_level=3, disabled_pass={without}):")
    if options["rewrite"] != "none":
        said = LAYOUTS if options["rewrite"] == "ConvertLayout" else ""
        lines.append(f"    module = relax.transform.{options['rewrite']}({said})(module)")
    if options["pipeline"] == "zero":
        lines.append("    module = relax.get_pipeline('zero')(module)")
    pipeline = "relax.get_default_pipeline(target)" if options["pipeline"] == "cpu" else "'default'"
    lines.append(
        f"    built = relax.build(module, target, relax_pipeline={pipeline}, exec_mode={options['exec_mode']!r})"
    )
    if options["format"] == "library":
        lines += ["built.export_library('./model.so')", "built = tvm.runtime.load_module('./model.so')"]
    lines += [
        "machine = relax.VirtualMachine(built, tvm.cpu())",
        f"given = [tvm.runtime.tensor(np.ascontiguousarray(feed[name])) for name in inputs]{_WEIGHTS if kept else ''}",
        "print(machine['main'](*given))",
    ]
    head = ["import numpy as np, tvm", "from tvm import relax", "from tvm.relax.frontend.onnx import from_onnx"]
    body = [*head, "for feed in tests:", *(f"    {line}" for line in lines)]
    return "\n".join(["python - <<'END'", FEEDS, *body, "END"])


_WEIGHTS = " + [*params.get('main', ())]"


REWRITES = (
    "CombineParallelMatmul",
    "ConvertLayout",
    "DataflowUseInplaceCalls",
    "DecomposeOpsForInference",
    "EliminateCommonSubexpr",
    "FoldBatchnormToConv2D",
    "RemoveRedundantReshape",
    "ReorderPermuteDimsAfterConcat",
)
LAYOUTS = {"relax.nn.conv2d": ["NHWC", "OHWI"]}


def _compiled(path: str, feed: Feed, options: Options) -> tuple[Any, list[Any]]:
    """The ONNX model compiled, with shapes of inputs those of `feed` where it has any; and the weights that it wants
    behind its inputs."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    kept = options["params"] == "inputs"
    module = from_onnx(
        onnx.load(path),
        shape_dict={name: list(x.shape) for name, x in feed.items()},
        keep_params_in_input=kept,
        sanitize_input_names=False,
    )
    weights = {}
    if kept:
        module, weights = relax.frontend.detach_params(module)
    target = tvm.target.Target({"kind": "llvm", "opt-level": options["opt_level"]})
    with tvm.transform.PassContext(opt_level=3, disabled_pass=[*options.get("disabled_passes", ())]):
        if options["rewrite"] != "none":
            rewrite = getattr(relax.transform, options["rewrite"])
            module = (rewrite(LAYOUTS) if options["rewrite"] == "ConvertLayout" else rewrite())(module)
        if options["pipeline"] == "zero":
            module = relax.get_pipeline("zero")(module)
        pipeline = relax.get_default_pipeline(target) if options["pipeline"] == "cpu" else "default"
        built = relax.build(module, target, relax_pipeline=pipeline, exec_mode=options["exec_mode"])
    return built, [*weights.get("main", ())]


def _executed(artifact: str, feeds: Sequence[Feed], names: Sequence[str], options: Options) -> Answers:
    import tvm
    from tvm import relax

    machines: dict[Any, Any] = {}
    answers = []
    for feed in feeds:
        static = options["shapes"] == "static"
        shapes = tuple((name, x.shape) for name, x in feed.items()) if static else None
        if shapes not in machines:
            built, weights = _compiled(artifact, feed if static else {}, options)
            if options["format"] == "library":
                path = os.path.abspath(f"model{next(LIBRARIES)}.so")
                try:
                    built.export_library(path)
                    built = tvm.runtime.load_module(path)
                finally:
                    if os.path.exists(path):
                        os.remove(path)
            machine = relax.VirtualMachine(built, tvm.cpu())
            wanted = machine.module["get_function_arity"]("main") - len(weights)
            order = [machine.module["get_function_param_name"]("main", k) for k in range(wanted)]
            machines[shapes] = order, machine["main"], weights
        order, run, weights = machines[shapes]
        if missing := [name for name in order if name not in feed]:
            raise StageError(f"the model has inputs that the ONNX model has not: {', '.join(missing)}")
        given = [tvm.runtime.tensor(np.array(feed[name], order="C")) for name in order]
        made = run(*given, *weights)
        made = [made] if len(names) == 1 else [*made]
        if len(made) != len(names):
            raise StageError(f"it gave {len(made)} of {len(names)} outputs")
        answers.append({name: _array(x) for name, x in zip(names, made)})
    return answers


def _array(x: Any) -> np.ndarray:
    """What the virtual machine gives: a tensor, or, of what the frontend knows to be one, a shape or a number."""
    return np.array(x.numpy() if hasattr(x, "numpy") else [*x] if isinstance(x, Iterable) else x)


def _said(call: Callable[[], T]) -> T:
    """What `call` returns; its error as one line, with the converter or the source file that raised it."""
    try:
        return call()
    except (StageError, MemoryError):
        raise
    except Exception as e:  # classes of its own, and those of Python
        said = _OPERATOR.sub(r"\1", str(e)).strip()
        about = _CALL.findall(said)[:1]
        raise StageError("; ".join([f"{type(e).__name__}: {said}".partition("\n")[0], *about, _place(e)])) from None


def _place(error: Exception) -> str:
    """Which converter of the frontend raised it, as Conv._impl_v11; else the file of its own sources."""
    found, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name.startswith("_impl_v"):
            found = getattr(code, "co_qualname", code.co_name)
        trace = trace.tb_next
    return f"in {found or os.path.basename(traceback.extract_tb(error.__traceback__)[-1].filename)}"


_FRONTEND = "https://github.com/apache/tvm/blob/main/python/tvm/relax/frontend/onnx/onnx_frontend.py"

# A pattern takes the operators that it names: they are left out then.
REFUSED = (
    (
        "operator not supported",
        r"operators are not supported for frontend ONNX: .*|opset version \d+ of \w+ not implemented",
    ),
    (
        "operand that has to be constant",
        r"[Oo]nly constant \w+|must be a constant|non-constant axis|Dynamic (pads|axes|Split|size)|"
        r"new shape to be Shape|cannot handle ShapeExpr|not support ShapeExpr",
    ),
    (
        "shape that has to be known",
        r"statically (known|typed)|unknown rank|known input rank|static shape is unknown|symbolic dimension|"
        r"(with|on) symbolic|symbolic extent|dynamic dim size|has ShapeExpr shape",
    ),
    (
        "type not supported",
        r"unknown dtype `object`|supports float32 inputs|mixed input dtypes|are supported only|only support float|"
        r"should be one of .*, but got T\.",
    ),
    ("output that is not made", r"Missing outputs during conversion"),
    (
        "form of an operator not supported",
        r".*(not (currently )?supported|[Uu]nsupported|only supports|Only .* supported|reductions are supported|"
        r"sorted must be 1|is invalid for operator Pad|in attribute auto_pad is invalid).*",
    ),
)

TVM = Target(
    name="tvm",
    distribution="apache-tvm",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("format", "execute", ("memory", "library"), "what is run: what was compiled, or a shared library of it"),
        Option(
            "shapes",
            "execute",
            ("static", "declared"),
            "shapes of inputs: those of the feed, or as the model declares them",
        ),
        Option("params", "execute", ("constants", "inputs"), "what initializers are to the compiler"),
        Option(
            "pipeline",
            "execute",
            ("default", "cpu", "zero"),
            "what lowers a model: no fusion, what is made for CPUs, fusion before all else",
        ),
        Option("exec_mode", "execute", ("bytecode", "compiled"), "what calls the kernels"),
        Option("opt_level", "execute", (3, 2, 1, 0), "how much LLVM optimizes"),
        Option("rewrite", "execute", ("none", *REWRITES), "one pass that is run before all others"),
    ),
    # Against float64, in [-30, 30] where they are defined: 9.9e-7 and 1.1e-7 were measured of TVM 0.27.0.post1, of
    # results beyond 1 as a share of them. Its Atanh is a logarithm: where that is of nearly 1, little is left.
    approximations={"Mish": 1.2e-6, "Atanh": 1.3e-7},
    companions=(("", "onnx"),),
    features={"float": {}},
    profile={"numbers": ("initializer", "constant")},
    natives=(
        "tvm.relax.frontend.onnx.from_onnx",
        "tvm.relax.frontend.detach_params",
        *(f"tvm.relax.transform.{name}" for name in REWRITES),
        "tvm.relax.get_pipeline",
        "tvm.relax.get_default_pipeline",
        "tvm.relax.build",
        "tvm.runtime.Executable.export_library",
        "tvm.runtime.load_module",
        "tvm.relax.VirtualMachine",
    ),
    refusals=tuple(Rule(name, "execute", said, _FRONTEND) for name, said in REFUSED),
)
