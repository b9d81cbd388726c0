"""ncnn: pnnx, its converter of ONNX models, and its CPU runtime in float32."""

import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.targets.interface import Answers, Feed, Option, Options, Rule, StageError, Target, unquantized
from driftnet.targets.snippet import FEEDS


def preload() -> None:
    """Import ncnn, and what reads the shapes of inputs, so that forked workers have them."""
    import onnx  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """Let pnnx write `folder`/net.ncnn.param, with the weights and a script that says how both are run beside it."""
    with open(model, "rb") as file:
        status, said, files = _converted(file.read())
    print(said, file=sys.stderr)
    if status < 0:  # this process ends as its child did
        os.kill(os.getpid(), -status)
    if status:
        raise StageError(_last(said) or f"pnnx ended with exit status {status}")
    if unknown := re.findall(r"^todo (.+)", said, re.MULTILINE):
        raise StageError(f"todo {', '.join(dict.fromkeys(unknown))}")  # it ends well, and writes what nothing loads
    if without := _WITHOUT.search(said):
        raise StageError(without[0])  # likewise, and what it writes computes something else
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    return os.path.join(folder, "net.ncnn.param")


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one net, each in an extractor of its own."""
    import ncnn

    base = artifact[: -len(".ncnn.param")]
    net = ncnn.Net()
    for name, value in _settings(options).items():
        setattr(net.opt, name, value)
    for code, what in ((net.load_param(artifact), "load_param"), (net.load_model(f"{base}.ncnn.bin"), "load_model")):
        if code:
            raise StageError(f"{what} gave {code}")
    with open(f"{base}_ncnn.py") as file:
        given, made = _signature(file.read())
    if len(made) != len(outputs):
        raise StageError(f"the net has {len(made)} of {len(outputs)} outputs")
    answers = []
    for feed in feeds:
        extractor = net.create_extractor()
        for (blob, batch), x in zip(given, feed.values()):
            x = np.array(x, np.int32 if x.dtype == np.int64 else x.dtype, order="C")
            # A Mat neither copies nor keeps an array, and layers that work in place would write into it.
            extractor.input(blob, ncnn.Mat(x, batch_index=batch).clone())
        answers.append({name: _read(extractor, *out) for name, out in zip(outputs, made)})
    return answers


def commands(options: Options) -> str:
    """The converter, and the package's own functions as the script that it writes has them."""
    settings = [f"net.opt.{name} = {value}" for name, value in _settings(options).items()]
    return "\n".join(
        [
            "shapes=$(python - <<'END'",
            FEEDS,
            _SHAPES,
            "END",
            ")",
            "# The program itself: the command of this name imports torch.",
            "program=$(python -c 'from importlib.util import find_spec as found; print(found(\"pnnx\").origin)')",
            "${program%__init__.py}pnnx model.onnx fp16=0 inputshape=$shapes",
            "python - <<'END'",
            FEEDS,
            "import ncnn, numpy as np, re",
            "net = ncnn.Net()",
            *settings,
            "net.load_param('model.ncnn.param')",
            "net.load_model('model.ncnn.bin')",
            _RUN,
            "END",
        ]
    )


_SHAPES = """\
def told(x):
    kind = 'bool' if x.dtype == bool else f'{x.dtype.kind}{8 * x.itemsize}'
    return f"[{','.join(map(str, x.shape))}]{kind}"
print(','.join(map(told, tests[0].values())))"""
_RUN = """\
script = open('model_ncnn.py').read()  # which axis is the batch of a tensor
given = re.findall(r'ex.input\\("(\\w+)", ncnn.Mat\\(\\w+.numpy\\(\\), batch_index=(\\d+)', script)
made = re.findall(r'ex.extract\\("(\\w+)"\\)\\n.*numpy\\(batch_index=(\\d+)', script)
for feed in tests:
    extractor = net.create_extractor()
    for x, (blob, batch) in zip(feed.values(), given):
        x = np.ascontiguousarray(x, 'i4' if x.dtype == 'i8' else x.dtype)
        extractor.input(blob, ncnn.Mat(x, batch_index=int(batch)).clone())
    print([extractor.extract(blob)[1].numpy(batch_index=int(batch)) for blob, batch in made])"""


@functools.lru_cache(maxsize=1)
def _converted(model: bytes) -> tuple[int, str, dict[str, bytes]]:
    """The exit status of pnnx, its words, and the files that it writes. Its start alone takes .15 CPU s, and several
    recipes in turn have one model."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        with open(path, "wb") as file:
            file.write(model)
        shapes = ",".join(_shapes(path))
        call = [_converter(), "net.onnx", "fp16=0", f"inputshape={shapes}"]  # by default weights are rounded to float16
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True, errors="replace")
        files = {}
        for name in ("net.ncnn.param", "net.ncnn.bin", "net_ncnn.py"):
            if os.path.exists(os.path.join(folder, name)):
                with open(os.path.join(folder, name), "rb") as file:
                    files[name] = file.read()
    return done.returncode, done.stdout + done.stderr, files


def _converter() -> str:
    """The program in the package pnnx, whose import needs torch."""
    found = importlib.util.find_spec("pnnx")
    if found is None or found.origin is None:
        raise StageError("the package pnnx is not installed")
    return os.path.join(os.path.dirname(found.origin), "pnnx")


def _settings(options: Options) -> dict[str, Any]:
    """How a net computes: by default in float16 where the CPU has that."""
    exact = dict.fromkeys(("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"), False)
    return {
        **exact,
        "num_threads": options["threads"],
        "lightmode": options["lightmode"],
        "use_packing_layout": options["packing"],
        "use_sgemm_convolution": options["sgemm"],
        "use_winograd_convolution": options["winograd"],
    }


def _shapes(model: str) -> list[str]:
    """The inputs of an ONNX file as pnnx wants them: [1,2,3]f32. Raises StageError where ncnn has no such tensor."""
    import onnx

    graph = onnx.load(model).graph
    initialized = {tensor.name for tensor in graph.initializer}
    for value in (*graph.input, *graph.output):
        if not value.type.tensor_type.shape.dim:
            raise StageError(f"{value.name} has rank 0")
    return [_shape(value) for value in graph.input if value.name not in initialized]


def _shape(value: Any) -> str:
    import onnx

    tensor = value.type.tensor_type
    if not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise StageError(f"the shape of {value.name} has to be known")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    kind = "bool" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"
    return f"[{','.join(str(dim.dim_value) for dim in tensor.shape.dim)}]{kind}"


def _signature(script: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Blobs of inputs and outputs in the order of the ONNX model, each with the axis that is its batch, by the script
    that pnnx writes."""
    given = re.findall(r'ex\.input\("(\w+)", ncnn\.Mat\(\w+\.numpy\(\), batch_index=(\d+)\)', script)
    made = re.findall(r'ex\.extract\("(\w+)"\)\n\s*out\.append\(.*\.numpy\(batch_index=(\d+)\)', script)
    return [(name, int(axis)) for name, axis in given], [(name, int(axis)) for name, axis in made]


def _read(extractor: Any, blob: str, batch: int) -> np.ndarray:
    code, mat = extractor.extract(blob)
    if code or mat.empty():
        raise StageError(f"extract gave {code}" if code else "an output is empty")
    return np.array(mat.numpy(batch_index=batch))


def _last(text: str) -> str:
    """The last line that says anything."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


_WITHOUT = re.compile(r"^.* is not supported( yet)?!?$", re.MULTILINE)

_PNNX = "https://github.com/Tencent/ncnn/blob/master/tools/pnnx/README.md"
_MAT = "https://github.com/Tencent/ncnn/blob/master/src/mat.h"
_LAYERS = "https://github.com/Tencent/ncnn/blob/master/docs/developer-guide/operators.md"

# Of others the converter makes nothing that ncnn loads, in any form that was tried; Tan is off near its poles.
_TAKEN = """
Abs Acos Acosh Add Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Celu Clip Concat Conv
ConvTranspose Cos Cosh DepthToSpace Div Einsum Elu Erf Exp Expand Flatten Floor Gather Gelu Gemm GlobalAveragePool
GlobalMaxPool GridSample GroupNormalization GRU HardSigmoid HardSwish Identity InstanceNormalization
LayerNormalization LeakyRelu Log LogSoftmax LRN LSTM MatMul Max MaxPool Min Mish Mod Mul Neg Pad Pow PRelu
Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Relu
Reshape Resize RMSNormalization RNN Round Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus SpaceToDepth
Split Sqrt Squeeze Sub Sum Swish Tanh Tile Transpose Unsqueeze
"""

NCNN = Target(
    name="ncnn",
    distribution="ncnn",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("packing", "execute", (True, False), "several channels at once"),
        Option("sgemm", "execute", (True, False), "convolutions as products of matrices"),
        Option("winograd", "execute", (True, False), "convolutions by Winograd kernels"),
        Option("lightmode", "execute", (True, False), "memory of a blob is freed after its last use"),
        Option("threads", "execute", (1, 2), "threads of one run"),
    ),
    # Against float64, in [-30, 30]: 1.3e-7, 1.3e-7, 1e-7, 1.6e-7, 1.2e-6, 6.4e-7 and 1.7e-7 were measured of ncnn
    # 1.0.20261020, of results beyond 1 as a share of them. It is compiled with -ffast-math: a quotient of vectors is a
    # product with a reciprocal after one step of Newton's.
    approximations={
        "Acosh": 1.5e-7,
        "Asinh": 1.5e-7,
        "Atanh": 1.5e-7,
        "Div": 1.7e-7,
        "Mish": 1.5e-6,
        "Pow": 8e-7,
        "Sinh": 2e-7,
    },
    complaint=r"layer .* (not exists or registered|failed)|#+ pass_\w+(?![\s\S]*# pass_)",
    companions=(("", "onnx"), ("", "pnnx<={2} --no-deps")),
    features={"float": {}},
    profile={
        "weights": ("initializer", "constant", "shared"),
        "numbers": ("initializer", "constant"),
        "symbolic": False,
        "empty": False,
        "dtypes": ("float",),
        "ranks": (4, 3, 2, 1),
        "operators": tuple(_TAKEN.split()),
    },
    natives=(
        "ncnn.Net.load_param",
        "ncnn.Net.load_model",
        "ncnn.Net.create_extractor",
        "ncnn.Extractor.input",
        "ncnn.Extractor.extract",
    ),
    refusals=(
        Rule("shape that has to be known", "convert", r"the shape of .* has to be known", _PNNX),
        Rule("tensor without axes", "convert", r"\S+ has rank 0", _MAT),
        Rule("type not supported", "convert", r"unsupported tensor elem data type \d+", _PNNX),
        Rule("operator without a conversion", "convert", r"^todo .*", _PNNX),
        Rule("form of an operator not supported", "convert", _WITHOUT.pattern, _PNNX),
        Rule("operator that ncnn has not", "execute", r"^layer \S+ not exists or registered", _LAYERS),
    ),
)
