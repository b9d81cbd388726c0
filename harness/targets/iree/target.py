"""IREE: its ONNX importer, its compiler for CPUs, its virtual machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
from driftnet.targets.interface import Answers, Feed, Option, Options, Rule, StageError, Target, unquantized
from driftnet.targets.snippet import FEEDS


def preload() -> None:
    """Import IREE's compiler and runtime, so that forked workers have them."""
    import iree.compiler.api
    import iree.compiler.extras.onnx_importer
    import iree.runtime  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """Import the ONNX file into MLIR and compile that to `folder`/model.vmfb, beside it what its inputs are called."""
    from iree.compiler import api

    text, inputs = _imported(model, options)
    with open(os.path.join(folder, "inputs.json"), "w", encoding="utf-8") as file:
        json.dump(inputs, file)
    session = api.Session()
    session.set_flags(*_flags(options))
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    parsed = invocation.parse_source(api.Source.wrap_buffer(session, text.encode() + b"\0"))
    if not (parsed and invocation.execute()):
        raise StageError("it does not compile")
    path = os.path.join(folder, "model.vmfb")
    output = api.Output.open_file(path)
    invocation.output_vm_bytecode(output)
    output.keep()
    for one in (output, invocation, session):
        one.close()
    return path


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one context."""
    import iree.runtime

    with open(os.path.join(os.path.dirname(artifact), "inputs.json"), encoding="utf-8") as file:
        inputs = json.load(file)
    with open(artifact, "rb") as file:
        content = file.read()
    config = iree.runtime.Config(options["driver"])
    module = iree.runtime.VmModule.copy_buffer(config.vm_instance, content)
    context = iree.runtime.SystemContext(vm_modules=[module], config=config)
    (name,) = (name for name in module.function_names if not name.endswith("$async") and not name.startswith("__"))
    run = context.modules[module.name][name]
    answers = []
    for feed in feeds:
        made = run(*(np.array(feed[name], order="C") for name in inputs))
        made = made if isinstance(made, (list, tuple)) else [made]
        if len(made) != len(outputs):
            raise StageError(f"it gave {len(made)} of {len(outputs)} outputs")
        answers.append({name: _typed(np.array(x), outputs[name]) for name, x in zip(outputs, made)})
    return answers


def commands(options: Options) -> str:
    """The package's own programs."""
    return "\n".join(
        [
            f"iree-import-onnx model.onnx --opset-version {options['opset']} -o model.mlir",
            f"iree-compile model.mlir {' '.join(_flags(options))} -o model.vmfb",
            "python - <<'END'",
            FEEDS,
            _RUN.replace("DRIVER", options["driver"]),
            "END",
        ]
    )


_RUN = """\
import numpy as np, subprocess
for feed in tests:
    given = []
    for k, x in enumerate(feed.values()):
        np.save(f'input_{k}.npy', x)
        given.append(f'--input=@input_{k}.npy')
    subprocess.run(['iree-run-module', '--module=model.vmfb', '--device=DRIVER', *given], check=True)"""


FLAGS = (
    "opt-const-eval=false",
    "opt-data-tiling",
    "opt-aggressively-propagate-transposes",
    "opt-generalize-matmul",
    "opt-outer-dim-concat",
    "dispatch-creation-enable-aggressive-fusion",
    "dispatch-creation-enable-fuse-padding-into-linalg-consumer-ops",
    "global-opt-propagate-transposes-through-conv",
    "global-opt-use-im2col-for-convs",
    "llvmcpu-enable-ukernels=all",
)


def _imported(path: str, options: Options) -> tuple[str, list[str]]:
    """The text of the MLIR module that an ONNX file becomes, by what iree-import-onnx does; and its inputs."""
    import onnx
    from iree.compiler import ir
    from iree.compiler.extras import onnx_importer

    model = onnx.load(path)
    if model.opset_import[0].version < options["opset"]:
        try:
            model = onnx.version_converter.convert_version(model, options["opset"])
        except RuntimeError as e:
            raise StageError(f"onnx makes no opset {options['opset']} of it: {e}") from None
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)]
    if onnx.TensorProto.DOUBLE in (*types, *(tensor.data_type for tensor in graph.initializer)):
        raise StageError("doubles are computed as floats, see --iree-input-demote-f64-to-f32")
    info = onnx_importer.ModelInfo(model)
    module = info.create_module(context=ir.Context()).operation
    onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
    module.verify()
    return module.get_asm(assume_verified=True), [*info.main_graph.input_map]


def _flags(options: Options) -> list[str]:
    """What iree-compile is told."""
    flags = ["--iree-input-type=onnx", "--iree-hal-target-backends=llvm-cpu"]
    flags += [f"--iree-llvmcpu-target-cpu={options['cpu']}", f"--iree-opt-level={options['opt_level']}"]
    return [*flags, *([f"--iree-{options['flag']}"] if options["flag"] != "none" else [])]


def _typed(x: np.ndarray, dtype: str) -> np.ndarray:
    """Integers of the type that they are declared to have: to IREE those of one size are one type."""
    wanted = np.dtype(dtype or x.dtype)
    same = {x.dtype.kind, wanted.kind} == {"i", "u"} and x.dtype.itemsize == wanted.itemsize
    return x.view(wanted) if same else x


_SUPPORT = "https://iree.dev/guides/ml-frameworks/onnx/"

# All that numpy has, but for doubles.
DTYPES = ("float", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")

# What the compiler says first of an error, without the operation that it prints; of an ONNX operator, up to its name.
_ERROR = r"(?<=error: )(failed to legalize operation 'torch\.operator'.*?name = \"onnx\.\w+|.*?(?=: %|: \"|\n|$))"

REFUSED = (
    ("operator without a lowering", r"failed to legalize operation 'torch\.operator'.*", _SUPPORT),
    ("attribute that is not imported", r"ONNX importer does not support generic node attribute type \w+", _SUPPORT),
    ("opset that onnx cannot raise", r"onnx makes no opset \d+ of it", _SUPPORT),
    ("type not supported", r"doubles are computed as floats|Unsupported builtin tensor type", _SUPPORT),
)

IREE = Target(
    name="iree",
    distribution="iree-base-compiler",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("cpu", "convert", ("generic", "host"), "which CPU it is compiled for"),
        Option("opt_level", "convert", ("O0", "O1", "O2", "O3"), "how much is optimized"),
        Option("opset", "convert", (17, 21), "what a model of an older opset is made by onnx first"),
        Option("flag", "convert", ("none", *FLAGS), "one flag of the compiler beside these"),
        Option("driver", "execute", ("local-sync", "local-task"), "what runs it: the caller, or threads"),
    ),
    companions=(("", "onnx"), ("", "iree-base-runtime=={release}")),
    # Against float64, in [-30, 30] where they are defined: 1.41e-6, 1.41e-6, 2.4e-6, 3e-7, 1.2e-7, 1e-7 and 1.2e-7 were
    # measured of IREE 3.13.0, of results beyond 1 as a share of them.
    approximations={
        "Sin": 1.7e-6,
        "Cos": 1.7e-6,
        "Atan": 2.8e-6,
        "Gelu": 3.6e-7,
        "Acosh": 1.4e-7,
        "Atanh": 1.2e-7,
        "Sinh": 1.5e-7,
    },
    complaint=_ERROR,
    features={"float": {}},
    natives=(
        "onnx.version_converter.convert_version",
        "iree.compiler.extras.onnx_importer.ModelInfo",
        "iree.compiler.api.Session.set_flags",
        "iree.compiler.api.Source.wrap_buffer",
        "iree.compiler.api.Invocation.execute",
        "iree.runtime.Config",
        "iree.runtime.VmModule.copy_buffer",
        "iree.runtime.SystemContext",
    ),
    profile={"numbers": ("initializer",), "dtypes": DTYPES},
    refusals=tuple(Rule(name, "convert", said, source) for name, said, source in REFUSED),
)
