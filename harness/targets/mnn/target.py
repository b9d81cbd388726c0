"""MNN: its converter (weight-only quantization included), its offline quantizer, its Module executor.

Works with MNN and numpy alone, back to 3.0. The native modules are called directly: the package MNN.tools, and with it
the shipped console scripts, runs pip and reports usage when imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import re
import struct
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from driftnet.targets.interface import Answers, Feed, Kernel, Option, Options, Rule, Scheme, StageError, Target
from driftnet.targets.mnn import artifact as mnn_artifact
from driftnet.targets.mnn import mutants
from driftnet.targets.snippet import FEEDS

# A model without operators has 132 bytes, one of a single Identity 372.
STUB_BYTES = 256
WINOGRAD_MEMORY_LEVEL = 3  # Interpreter::HintMode
# What MNN computes a type in. An output comes back in it, and is given the declared type again.
COMPUTED_IN = {
    "float32": "float32",
    "float16": "float32",
    "float64": "float32",
    "int32": "int32",
    "int64": "int32",
    "bool": "int32",
    "uint8": "uint8",
}

# Options that are True or False, and the flag of the converter.
SWITCHES = {
    "fp16": "--fp16",
    "transformer_fuse": "--transformerFuse",
    "origin_rnn": "--useOriginRNNImpl",
    "static_model": "--saveStaticModel",
    "native_groups": "--groupConvNative",
    "sparse": "--detectSparseSpeedUp",
    "external_data": "--saveExternalData",
}


def preload() -> None:
    """Import the native modules, so that forked workers have them."""
    import _tools  # noqa: F401
    import MNN.expr
    import MNN.nn  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """Convert an ONNX file to `folder`/model.mnn."""
    import _tools

    artifact = os.path.join(folder, "model.mnn")
    arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", artifact, "--bizCode", "driftnet"]
    # Without "=1" the flag means false, and inputs want NC4HW4.
    arguments += ["--keepInputFormat=1", *_flags(options)]
    if options["static_model"] and not _has_fixed_shapes(model):
        raise StageError("a static model needs the shape of each input, and here one is left open")
    _tools.mnnconvert(arguments)
    _check_written(artifact)
    return artifact


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    """Quantize offline to `folder`/quantized.mnn, calibrated on `calibration`."""
    if options["quantize"] != "offline":
        return artifact
    data = os.path.join(folder, "calibration")
    os.mkdir(data)
    batch = max(1, next((len(x) for feed in calibration for x in feed.values() if x.ndim), 1))
    config: dict[str, Any] = {
        "feature_quantize_method": options["method"],
        "weight_quantize_method": options["weight_method"],
        "quant_bits": 8,
        "path": data,
        "batch_size": batch,
        "feature_clamp_value": options.get("activation_clamp", 127),
        "weight_clamp_value": options.get("weight_clamp", 127),
    }
    if "Winograd" in options.get("disabled_kernels", ()):
        config["winogradOpt"] = False
    if options.get("skipped", False):
        weighted = [op for op in _operators(artifact, folder) if op["type"] in ("Convolution", "ConvolutionDepthwise")]
        config["skip_quant_op_names"] = [op["name"] for op in weighted[::2]]
    if options["calibration_input"] == "image" and _is_image(calibration):
        config.update(_write_images(calibration, data))
    else:
        # EMA wants a batch of samples however many one holds, and changes its batch size when there are fewer.
        wanted = max(batch, len(calibration)) if options["method"] == "EMA" else len(calibration)
        config.update(_write_sequences(itertools.islice(itertools.cycle(calibration), wanted), data))
    settings, quantized = os.path.join(folder, "quantize.json"), os.path.join(folder, "quantized.mnn")
    with open(settings, "w", encoding="utf-8") as file:
        json.dump(config, file)
    _run_apart(lambda: _quantize_file(artifact, quantized, settings))
    _check_written(quantized)
    return quantized


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one Module on the CPU, in float32."""
    import MNN.nn

    # On x86 "normal" and "low" precision gave the same bits on all ten operators tried; elsewhere they allow float16.
    settings = {"backend": "CPU", "numThread": options["threads"], "memory": options["memory"], "precision": "high"}
    names = sorted(feeds[0])
    runtime = MNN.nn.create_runtime_manager((settings,))
    if "Winograd" in options.get("disabled_kernels", ()):
        runtime.set_hint(WINOGRAD_MEMORY_LEVEL, 0)
    module = MNN.nn.load_module_from_file(artifact, names, list(outputs), runtime_manager=runtime)
    if module is None:
        raise StageError("the model does not load")
    return [_forward(module, [feed[name] for name in names], outputs) for feed in feeds]


def tap(artifact: str, feeds: Sequence[Feed], tensors: Mapping[str, str], options: Options) -> Answers:
    """Each tensor as the only output of the model: asked for together they would keep others from being fused."""
    found: Answers = [{} for _ in feeds]
    for name, declared in tensors.items():
        with contextlib.suppress(Exception):  # it raises many types for a name that a fusion has taken away
            for known, made in zip(found, execute(artifact, feeds, {name: declared}, options)):
                known.update(made)
    return found


def inspect(artifact: str, options: Options) -> dict[str, Any]:
    """What the file says, see mnn_artifact.read. The pixels of images are not quite the case's samples."""
    return mnn_artifact.read(artifact, options.get("method") == "KL" and options["calibration_input"] == "sequence")


def commands(options: Options) -> str:
    """The tools that come with the package, and its Module; nothing where a quantizer's data need more than a few lines
    of text: images, and the names of operators."""
    lines = ["mnnconvert -f ONNX --modelFile model.onnx --MNNModel model.mnn --bizCode test --keepInputFormat=1"]
    lines[0] += "".join(f" {flag}" for flag in _flags(options))
    model = "model.mnn"
    if options["quantize"] == "offline":
        if options["calibration_input"] == "image" or options.get("skipped", False):
            return ""
        given = {
            "feature_quantize_method": options["method"],
            "weight_quantize_method": options["weight_method"],
            "feature_clamp_value": options.get("activation_clamp", 127),
            "weight_clamp_value": options.get("weight_clamp", 127),
            "quant_bits": 8,
            "path": "samples",
            "input_type": "sequence",
        }
        more = "max(batch, len(calibration))" if options["method"] == "EMA" else "len(calibration)"
        lines += [
            "python - <<'END'",
            FEEDS,
            _SAMPLES.replace("GIVEN", json.dumps(given)).replace("WANTED", more),
            "END",
        ]
        lines.append("mnnquant model.mnn quantized.mnn quantize.json")
        model = "quantized.mnn"
    settings = {"backend": "CPU", "numThread": options["threads"], "memory": options["memory"], "precision": "high"}
    hint = (
        f"runtime.set_hint({WINOGRAD_MEMORY_LEVEL}, 0)\n" if "Winograd" in options.get("disabled_kernels", ()) else ""
    )
    run = _RUN.replace("SETTINGS", repr(settings)).replace("HINT\n", hint).replace("MODEL", model)
    return "\n".join([*lines, "python - <<'END'", FEEDS, run, "END"])


_SAMPLES = """\
import json, os
batch = max(1, next((len(x) for feed in calibration for x in feed.values() if x.ndim), 1))
for k in range(WANTED):
    feed = calibration[k % len(calibration)]
    for name, x in feed.items():
        file = os.path.normpath(f'samples/input_{k}/{name}.txt')
        os.makedirs(os.path.dirname(file), exist_ok=True)
        open(file, 'w').write('\\n'.join(repr(v) for v in x.astype(float).ravel().tolist()))
    shapes = [{'name': name, 'shape': list(x.shape)} for name, x in feed.items()]
    json.dump({'inputs': shapes}, open(f'samples/input_{k}/input.json', 'w'))
json.dump({**GIVEN, 'batch_size': batch, 'inputs': shapes}, open('quantize.json', 'w'))"""
_RUN = """\
import MNN.nn, MNN.expr as expr, numpy as np
runtime = MNN.nn.create_runtime_manager((SETTINGS,))
HINT
names, outputs = sorted(inputs), [x.name for x in graph.output]
net = MNN.nn.load_module_from_file('MODEL', names, outputs, runtime_manager=runtime)
for feed in tests:
    given = []
    for x in map(feed.get, names):
        kind, dtype = {'f': (expr.float, 'f4'), 'u': (expr.uint8, 'u1')}.get(x.dtype.kind, (expr.int, 'i4'))
        given.append(expr.placeholder(list(x.shape), expr.NCHW, kind))
        given[-1].write(np.ascontiguousarray(x, dtype).reshape(x.shape))
    for name, y in zip(outputs, net.forward(given)):
        print(name, np.array((expr.convert(y, expr.NCHW) if y.data_format == expr.NC4HW4 else y).read()))"""


def scheme(options: Options) -> Scheme | None:
    """Weights: one scale an output channel. Activations, offline only: symmetric but for EMA, in [-127, 127]."""
    if options["quantize"] == "none":
        return Scheme(halves=True) if options["fp16"] else None
    if options["quantize"] == "offline":
        return Scheme(
            weight_codes=_up_to(options.get("weight_clamp", 127)),
            activation_codes=_up_to(options.get("activation_clamp", 127)),
            symmetric_weights=True,
            symmetric_activations=options["method"] != "EMA",
            per_channel=True,
            clips=True,
            nearest_weights=options["weight_method"] == "MAX_ABS" or options["method"] == "EMA",  # which ignores it
        )
    highest = 2 ** (options["weight_bits"] - 1) - 1
    symmetric = not (options["weight_asymmetric"] or options["hqq"])
    return Scheme(
        weight_codes=(-highest if symmetric else -highest - 1, highest),
        symmetric_weights=symmetric,
        per_channel=True,
        told=options["weight_block"] > 0 or options["hqq"] or options["scale_bits"] != 32,
    )


def _up_to(highest: int) -> tuple[int, int]:
    return -highest, highest


def _flags(options: Options) -> Iterator[str]:
    yield from ("--optimizeLevel", str(options["optimize_level"]))
    yield from ("--optimizePrefer", str(options["optimize_prefer"]))
    if options["quantize"] == "weight-only":
        yield from ("--weightQuantBits", str(options["weight_bits"]))
        yield f"--weightQuantAsymmetric={int(options['weight_asymmetric'])}"
        if options["weight_block"]:
            yield from ("--weightQuantBlock", str(options["weight_block"]))
        if options.get("hqq", False):
            yield "--hqq"
        if options["scale_bits"] != 32:
            yield from ("--weightQuantScaleBit", str(options["scale_bits"]))
    for name, flag in SWITCHES.items():
        if options.get(name, False):
            yield flag
    if not options["matmul_as_conv"]:
        yield from ("--convertMatmulToConv", "0")
    if options["target_version"] != "newest":
        yield from ("--targetVersion", options["target_version"])


def _check_written(path: str) -> None:
    """The native functions report success whatever happened, so look at what they wrote."""
    if not os.path.exists(path):
        raise StageError("no model was written")
    if os.path.getsize(path) < STUB_BYTES:
        raise StageError("the model that was written is an empty stub")


def _quantize_file(source: str, target: str, settings: str) -> None:
    import _tools

    _tools.mnnquant(["mnnquant", source, target, settings])


def _has_fixed_shapes(model: str) -> bool:
    """Whether no dim of an input is left open. It is read from the bytes: beside an older release there is no onnx."""
    with open(model, "rb") as file:
        found = [file.read()]
    for field in (7, 11, 2, 1, 2, 1):  # graph, input, type, tensor_type, shape, dim
        found = [value for message in found for number, value in _fields(message) if number == field]
    return all(any(number == 1 for number, _ in _fields(dim)) for dim in found)  # dim_value


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each field of a protobuf message; of a number no bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        number = varint() if key & 7 in (0, 2) else 0  # the value itself, or how many bytes follow
        size = {0: 0, 1: 8, 2: number, 5: 4}[key & 7]
        yield key >> 3, message[at : at + size]
        at += size


def _operators(artifact: str, folder: str) -> list[dict[str, Any]]:
    """The operators of a file, as MNN tells them. It writes numbers that are none as C does."""
    import _tools

    told = os.path.join(folder, "told.json")
    _tools.mnnconvert(["mnnconvert", "-f", "MNN", "--modelFile", artifact, "--JsonFile", told])
    with open(told, encoding="utf-8", errors="replace") as file:
        operators: list[dict[str, Any]] = json.loads(re.sub(r"(?<=[\s,\[])-?(nan|inf)\b", "0", file.read()))["oplists"]
    return operators


def _run_apart(call: Callable[[], None]) -> None:
    """Run `call` in a child process, and end the way the child did when that was by a signal.

    The quantizer leaves callbacks into freed memory behind: EMA after ADMM in one process ends in SIGSEGV. People run
    it as a command of its own.
    """
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException:
            traceback.print_exc()
        finally:
            ctypes.CDLL(None).fflush(None)
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))


def _forward(module: Any, arrays: Sequence[np.ndarray], outputs: Mapping[str, str]) -> dict[str, np.ndarray]:
    results = module.forward([_variable(x) for x in arrays])
    if len(results) != len(outputs):
        raise StageError(f"forward gave {len(results)} of {len(outputs)} outputs")
    if any(result.shape is None for result in results):  # of what could not be computed nothing is known
        raise StageError("forward gave an output of which it knows no shape")
    return {name: _array(result, outputs[name]) for name, result in zip(outputs, results)}


def _variable(x: np.ndarray) -> Any:
    import MNN.expr as expr

    computed = COMPUTED_IN.get(x.dtype.name)
    if computed is None:
        raise StageError(f"MNN.expr has no type to write a {x.dtype} input in")
    written = x.astype(computed)
    if x.dtype == np.int64 and (written != x).any():
        raise StageError("an int64 input does not fit into int32, which is what MNN computes in")
    types = {"float32": expr.float, "int32": expr.int, "uint8": expr.uint8}
    variable = expr.placeholder(list(x.shape), expr.NCHW, types[computed])
    variable.write(np.ascontiguousarray(written).reshape(x.shape))
    return variable


def _array(variable: Any, declared: str) -> np.ndarray:
    """A result as an array of the declared type, when it is in the type that MNN computes that one in."""
    import MNN.expr as expr

    if variable.dtype == expr.int8:
        # The bytes of a quantized tensor: on x86 MNN stores them 128 higher, those of other int8 tensors not.
        raise StageError(f"MNN hands out a {declared} output as it stores it")
    if variable.data_format == expr.NC4HW4:
        variable = expr.convert(variable, expr.NCHW)
    if 0 in variable.shape:  # read() fails on these
        x = np.zeros(variable.shape, {expr.int: "int32", expr.uint8: "uint8"}.get(variable.dtype, "float32"))
    else:
        x = np.array(variable.read())  # what read() gives lies in the variable's own memory
    return x.astype(declared) if x.dtype.name == COMPUTED_IN.get(declared) else x


def _is_image(calibration: Sequence[Feed]) -> bool:
    """Whether the only input is one finite float32 image [1, 1 or 3 or 4, H >= 2, W >= 2], of one size throughout."""
    arrays = [x for feed in calibration for x in feed.values()]
    return (
        all(len(feed) == 1 for feed in calibration)
        and all(x.dtype == np.float32 and x.shape == arrays[0].shape and np.isfinite(x).all() for x in arrays)
        and all(x.ndim == 4 and x.shape[0] == 1 and x.shape[1] in (1, 3, 4) and min(x.shape[2:]) >= 2 for x in arrays)
    )


def _write_images(calibration: Sequence[Feed], folder: str) -> dict[str, Any]:
    """One PNG a sample. A byte b stands for (b - mean) * normal; lowest and highest value are 0 and 255."""
    samples = np.stack([x[0].transpose(1, 2, 0) for feed in calibration for x in feed.values()])
    low, high = float(samples.min()), float(samples.max())
    normal = (high - low) / 255 or 1.0
    for number, pixels in enumerate(np.rint((samples - low) / normal).astype(np.uint8)):
        with open(os.path.join(folder, f"{number:04}.png"), "wb") as file:
            file.write(_png(pixels))
    height, width, channels = samples.shape[1:]
    return {
        "input_type": "image",
        "format": {1: "GRAY", 3: "RGB", 4: "RGBA"}[channels],
        "mean": [-low / normal] * channels,
        "normal": [normal] * channels,
        "width": width,
        "height": height,
    }


def _png(pixels: np.ndarray) -> bytes:
    """PNG of uint8 [height, width, 1 or 3 or 4]."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _write_sequences(samples: Iterator[Feed], folder: str) -> dict[str, Any]:
    """One folder a sample, with a text file an input."""
    inputs: list[dict[str, Any]] = []
    for number, feed in enumerate(samples):
        sample = os.path.join(folder, f"input_{number}")
        os.mkdir(sample)
        inputs = [{"name": name, "shape": list(x.shape)} for name, x in feed.items()]
        for name, x in feed.items():
            path = os.path.normpath(f"{sample}/{name}.txt")  # as MNN has it, of a name that begins with a slash too
            if not path.startswith(sample + os.sep):
                raise StageError(f"calibration data of an input called {name!r} would be a file outside its folder")
            os.makedirs(os.path.dirname(path), exist_ok=True)  # a name may hold slashes
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(repr(v) for v in x.astype(float).ravel().tolist()))
        with open(os.path.join(sample, "input.json"), "w", encoding="utf-8") as file:
            json.dump({"inputs": inputs}, file)
    return {"input_type": "sequence", "inputs": inputs}


_MNN = "https://github.com/alibaba/MNN/blob/master"
_CONVERT_DOCS, _QUANT_DOCS = f"{_MNN}/docs/tools/convert.md", f"{_MNN}/docs/tools/quant.md"
_WINOGRAD, _CPU = f"{_MNN}/source/math/WingoradGenerater.cpp", f"{_MNN}/source/backend/cpu"
_WITHOUT_WINOGRAD = {"disabled_kernels": ["Winograd"]}
_OFFLINE = {"quantize": ("offline",)}
_FITTED = {**_OFFLINE, "method": ("KL", "ADMM")}  # EMA heeds nothing of these
_WEIGHT_ONLY = {"quantize": ("weight-only",)}
_NOTHING, _AS_CONVERTED = {"quantize": ("none",)}, {"quantize": ("none", "weight-only")}

MNN = Target(
    name="mnn",
    distribution="mnn",
    convert=convert,
    quantize=quantize,
    execute=execute,
    scheme=scheme,
    inspect=inspect,
    tap=tap,
    commands=commands,
    tools=("aliyun-log-python-sdk",),  # brings a protobuf along that a new onnx cannot be imported with
    executes_plain=True,
    features={"float": {"quantize": "none"}},
    mutants=(mutants.rolled_scales_in_file, mutants.scales_off_by_a_percent_in_file),
    natives=("_tools.mnnconvert", "_tools.mnnquant", "MNN.nn.create_runtime_manager", "MNN.nn.load_module_from_file"),
    complaint=(
        r"Check failed: .*|what\(\): .*|Compute Shape Error.*|Reshape error.*|Broad ?cast error.*|Can't find .*"
        r"|Create execution error.*|Don't support.*|.*[Nn]ot support.*|.*[Ii]nvalid.*|Error for .*|.* [Ee]rror[: ].*"
    ),
    options=(
        Option("quantize", "quantize", ("none", "weight-only", "offline"), "what is quantized, and by which tool"),
        Option("weight_bits", "convert", (8, 4, 2, 3, 5, 6, 7), "bits of a weight", _WEIGHT_ONLY),
        Option("weight_asymmetric", "convert", (True, False), "whether weights get a zero point", _WEIGHT_ONLY),
        Option("weight_block", "convert", (0, 32, 16), "a scale for so many input channels; 0: for all", _WEIGHT_ONLY),
        Option("hqq", "convert", (False, True), "half-quadratic fit of zero points, which it always has", _WEIGHT_ONLY),
        Option("scale_bits", "convert", (32, 16), "bits of a stored scale", _WEIGHT_ONLY),
        Option("fp16", "convert", (False, True), "weights and other constants in half precision", _NOTHING),
        Option("method", "quantize", ("KL", "ADMM", "EMA"), "how ranges of activations are found", _OFFLINE),
        Option("weight_method", "quantize", ("MAX_ABS", "ADMM"), "how weights are rounded", _OFFLINE),
        Option("weight_clamp", "quantize", (127, 100), "largest code of a weight", _FITTED),
        Option("activation_clamp", "quantize", (127, 100), "largest code of an activation", _FITTED),
        Option("skipped", "quantize", (False, True), "every other weighted operator stays as it is", _FITTED),
        Option(
            "calibration_input",
            "quantize",
            ("sequence", "image"),
            "form of the calibration data; image only where the one input is [1, 1 or 3 or 4, H, W], else sequence",
            _OFFLINE,
            applies=_is_image,
        ),
        Option("optimize_level", "convert", (1, 2, 0), "2: may be wrong for rare inputs; 0: meant for MNN sources"),
        Option("optimize_prefer", "convert", (0, 1, 2), "0: normal; 1: smallest; 2: fastest"),
        Option("transformer_fuse", "convert", (False, True), "fuse attention and the like"),
        Option("origin_rnn", "convert", (False, True), "keep LSTM and GRU as one operator"),
        Option("static_model", "convert", (False, True), "fix the shapes of inputs"),
        Option("native_groups", "convert", (False, True), "keep a grouped convolution as one operator"),
        Option("matmul_as_conv", "convert", (True, False), "make a convolution of a product by constants"),
        Option("sparse", "convert", (False, True), "write sparse weights as such"),
        Option("external_data", "convert", (False, True), "weights in a file of their own", _AS_CONVERTED),
        Option("target_version", "convert", ("newest", "1.2", "2.0"), "for which releases it is made"),
        Option("memory", "execute", ("normal", "low"), "low keeps quantized weights quantized in memory"),
        Option("threads", "execute", (1, 2), "threads of one run"),
    ),
    switches={"disabled_kernels": ("Winograd",)},
    kernels=(
        # What is transformed is rounded to codes of its own. A few large weights cost more, up to .89: that is told as
        # wrong, for a channel that is lost costs no more.
        Kernel(
            "Winograd of codes",
            frozenset({"Conv"}),
            0.35,
            _WITHOUT_WINOGRAD,
            f"{_CPU}/compute/ConvInt8Winograd.cpp",
            ("3.6.1", 0.31),
            when={"method": "EMA"},
        ),
        # Without it 1e-6; the weights were random or trained, and a window holds three layers.
        Kernel("Winograd", frozenset({"Conv"}), 4e-3, _WITHOUT_WINOGRAD, _WINOGRAD, ("3.6.1", 8.1e-4)),
    ),
    exceptions=(
        # convertDataType: "For compability, use int32 instead of int64"
        Rule("int64-in-int32", "execute", "", f"{_MNN}/tools/converter/source/onnx/onnxOpConverter.cpp"),
    ),
    refusals=(
        Rule("shapes left open in a static model", "convert", r"a static model needs the shape", _CONVERT_DOCS),
        Rule(
            "operator not supported", "convert", r"These Op Not Support: .*|NOT_SUPPORTED_OP: .*", f"{_MNN}/docs/faq.md"
        ),
        Rule(
            "input type without a counterpart",
            "execute",
            r"MNN\.expr has no type to write an? \w+ input in",
            f"{_MNN}/docs/pymnn/expr.md",
        ),
        Rule("int64 is computed in int32", "execute", r"does not fit into int32", _CONVERT_DOCS),
        Rule("cast between types that it does not have", "execute", r"Don't support cast form", f"{_CPU}/CPUCast.cpp"),
        Rule(
            "ReverseSequence of what has not 32 bits",
            "execute",
            r"Don't support \d+ bit's ReverseSequence",
            f"{_CPU}/CPUReverseSequence.cpp",
        ),
        Rule("input named like a file elsewhere", "quantize", r"would be a file outside its folder", _QUANT_DOCS),
        Rule("quantized graph outputs", "execute", r"MNN hands out an? \w+ output as it stores it", _QUANT_DOCS),
    ),
)
