"""LiteRT (TensorFlow Lite): what onnx2tf makes of an ONNX model, by way of TensorFlow, run by LiteRT's interpreter.

Quantized to int8 it is by TensorFlow's converter, which onnx2tf asks the same of under its flag -oiqt, but with data of
images or of one shape only.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from unittest import mock

import numpy as np
from driftnet.targets.interface import Answers, Feed, Option, Options, Rule, Scheme, StageError, Target
from driftnet.targets.snippet import FEEDS

T = TypeVar("T")
SAMPLES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""What the converter tries a model of images on. It is fetched where there is no such file in the current folder."""

_COLOR = re.compile(r"\x1b\[[\d;]*m")


def preload() -> None:
    """Import both, so that forked workers have them; TensorFlow starts no threads before it is used.

    What the first conversion of a process does once is done as well: it imports Keras, and reads the source of the
    converter again for each function that it traces, which takes longer than a conversion does after that.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import ai_edge_litert.interpreter  # noqa: F401
    import onnx2tf
    import tensorflow as tf

    with contextlib.suppress(ImportError):
        import keras  # noqa: F401
    within = onnx2tf.convert
    for code in within.__code__.co_consts:
        if isinstance(code, types.CodeType) and code.co_freevars == ("model",):
            traced = types.FunctionType(code, within.__globals__, closure=(types.CellType(),))
            with contextlib.suppress(Exception):  # of another release, it is made when it is needed
                tf.autograph.to_graph(traced)


def convert(model: str, folder: str, options: Options) -> str:
    """The file for LiteRT, as `folder`/tf/model_float32.tflite or float16, with what is noted of results beside it.

    Inputs keep their shapes. Raises StageError where a shape is not known.
    """
    import onnx2tf

    inputs, shapes = _shapes(model)
    if not os.path.exists(SAMPLES):
        np.save(SAMPLES, np.random.default_rng(0).random((20, 128, 128, 3), np.float32))
    written = os.path.join(folder, "tf")
    with _padding(options), _only_one(options):
        _said(
            lambda: onnx2tf.convert(
                input_onnx_file_path=model,
                output_folder_path=written,
                output_signaturedefs=True,
                keep_shape_absolutely_input_names=inputs,
                not_use_onnxsim=True,  # it is a program of another package
                disable_group_convolution=not options["groups"],
                enable_batchmatmul_unfold=options["unfold"],
                enable_rnn_unroll=options["unroll"],
                non_verbose=True,
            )
        )
    name = os.path.splitext(os.path.basename(model))[0]
    path = os.path.join(written, f"{name}_{options.get('weights', 'float32')}.tflite")
    if not os.path.exists(path):
        raise StageError(f"no file {os.path.basename(path)} was written")
    _note(path, {name: (name, shape) for name, shape in shapes.items()})
    return path


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    """Quantize TensorFlow's model, from which the file was made, on the feeds of `calibration`; the file of that, or
    the same where nothing is to be quantized."""
    if options["quantize"] == "none":
        return artifact
    path = os.path.join(folder, f"{options['quantize']}.tflite")
    made = _said(lambda: _quantized(os.path.dirname(artifact), calibration, options))
    with open(path, "wb") as file:
        file.write(made)
    # The signature of TensorFlow's model numbers results.
    shapes = [(name, shape) for name, (_, shape) in _noted(artifact).items()]
    _note(path, {name: (f"output_{number}", shape) for number, (name, shape) in enumerate(shapes)})
    return path


def scheme(options: Options) -> Scheme | None:
    """Half precision, or int8: weights symmetric, with a scale a channel of convolutions and products, activations
    with a zero point, and ranges of all that calibration saw."""
    if options["quantize"] == "none":
        return Scheme(halves=True) if options["weights"] == "float16" else None
    return Scheme(
        weight_codes=(-127, 127),
        activation_codes=(-128, 127),
        symmetric_weights=True,
        symmetric_activations=False,
        per_channel=options["per_channel"],
    )


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one interpreter. A result whose channels are last, as they are in TensorFlow, is given with them
    in the second place."""
    return _said(lambda: _executed(artifact, feeds, outputs, options))


def commands(options: Options) -> str:
    """The converter, and the package's own functions."""
    flags = ["-osd", "-nuo", "-kat $names", *(flag for name, value, flag in _FLAGS if options[name] == value)]
    resolver = f"OpResolverType.{_RESOLVERS[options['kernels']]}"
    path, quantizing = f"tf/model_{options.get('weights', 'float32')}.tflite", []
    if options["quantize"] != "none":
        path = f"{options['quantize']}.tflite"
        quantizing = [
            "import tensorflow as tf",
            "converter = tf.lite.TFLiteConverter.from_saved_model('tf')",
            "converter.optimizations = [tf.lite.Optimize.DEFAULT]",
            "ops = tf.lite.OpsSet",
            "converter.target_spec.supported_ops = [ops.TFLITE_BUILTINS_INT8, ops.SELECT_TF_OPS]",
            f"converter._experimental_disable_per_channel = {not options['per_channel']}",
            "converter.representative_dataset = lambda: iter(calibration)",
            *["converter.inference_input_type = converter.inference_output_type = tf.int8"][
                : options["quantize"] == "full"
            ],
            f"open({path!r}, 'wb').write(converter.convert())",
        ]
    return "\n".join(
        [
            "names=$(python - <<'END'",
            FEEDS,
            "print(*inputs)",
            "END",
            ")",
            f"onnx2tf -i model.onnx -o tf {' '.join(flags)}",
            "python - <<'END'",
            FEEDS,
            *quantizing,
            "from ai_edge_litert.interpreter import Interpreter, OpResolverType",
            f"net = Interpreter({path!r}, num_threads={options['threads']},",
            f"                  experimental_op_resolver_type={resolver})",
            _RUN,
            "END",
        ]
    )


_RUN = """\
net.allocate_tensors()
for feed in tests:
    for given in net.get_input_details():
        name = given['name'].removeprefix('serving_default_').partition(':')[0]
        x, (scale, zero_point) = feed[name], given['quantization']
        if scale and x.dtype.kind == 'f':  # an input of codes
            x = (x / scale).round() + zero_point
        net.set_tensor(given['index'], x.clip(-128, 127).astype('int8') if scale else x)
    net.invoke()
    # Channels are last, as TensorFlow has them; codes stand for numbers as those of inputs do.
    print({made['name']: net.get_tensor(made['index']) for made in net.get_output_details()})"""
_FLAGS = (("groups", False, "-dgc"), ("unfold", True, "-ebu"), ("unroll", True, "-eru"))
_RESOLVERS = {"xnnpack": "AUTO", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}


@contextlib.contextmanager
def _padding(options: Options) -> Iterator[None]:
    """While the block runs a MaxPool of what will be quantized is padded as under -oiqt, by zeros: else by the lowest
    float there is, and no code is left for anything else (onnx2tf's issue 444)."""
    from onnx2tf.ops import MaxPool

    made = MaxPool.make_node

    def told(*args: Any, **given: Any) -> Any:
        return made(*args, **{**given, "output_integer_quantized_tflite": options["quantize"] != "none"})

    MaxPool.make_node = told
    try:
        yield
    finally:
        MaxPool.make_node = made


@contextlib.contextmanager
def _only_one(options: Options) -> Iterator[None]:
    """While the block runs, of the two files that the converter writes of every model that of the other weights is left
    empty: making it takes a third of the time."""
    from tensorflow.lite.python import lite

    halves = options.get("weights") == "float16"
    with contextlib.ExitStack() as until_then:
        for maker in (lite.TFLiteKerasModelConverterV2, lite.TFLiteFrozenGraphConverterV2):

            def made(self: Any, convert: Callable[[Any], bytes] = maker.convert) -> bytes:
                return convert(self) if bool(self.target_spec.supported_types) == halves else b""

            until_then.enter_context(mock.patch.object(maker, "convert", made))
        yield


def _note(artifact: str, results: Mapping[str, tuple[str, Sequence[int]]]) -> None:
    """Keep beside a file of each output the name that the signature has for it, and its shape."""
    with open(artifact + ".json", "w", encoding="utf-8") as file:
        json.dump(results, file)


def _noted(artifact: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    with open(artifact + ".json", encoding="utf-8") as file:
        return {name: (named, tuple(shape)) for name, (named, shape) in json.load(file).items()}


def _quantized(folder: str, calibration: Sequence[Feed], options: Options) -> bytes:
    """The file that TensorFlow's converter makes of the saved model in `folder`, quantized."""
    import tensorflow as tf

    if not calibration:
        raise StageError("there is nothing to calibrate with")
    converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.SELECT_TF_OPS]
    converter._experimental_disable_per_channel = not options["per_channel"]
    taken = tf.saved_model.load(folder).signatures["serving_default"].structured_input_signature[1]
    converter.representative_dataset = lambda: (
        {name: np.asarray(feed[name]) for name in taken} for feed in calibration
    )
    if options["quantize"] == "full":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    made: bytes = converter.convert()
    return made


def _shapes(model: str) -> tuple[list[str], dict[str, list[int]]]:
    """The inputs of an ONNX file, and the shapes of its outputs."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(model), data_prop=True).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    for value in (*inputs, *graph.output):
        tensor = value.type.tensor_type
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            raise StageError(f"the shape of {value.name} has to be known")
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.output}
    return [value.name for value in inputs], shapes


def _executed(path: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    noted = _noted(path)
    resolver = getattr(OpResolverType, _RESOLVERS[options["kernels"]])
    net = Interpreter(path, num_threads=options["threads"], experimental_op_resolver_type=resolver)
    if net.get_signature_list():
        run = net.get_signature_runner()
        made_of = run.get_output_details()
    else:
        if len(outputs) != 1:
            raise StageError("which of several results is which cannot be told without a signature")
        ((only, _),) = noted.values()
        run, made_of = functools.partial(_by_order, net, only), {only: net.get_output_details()[0]}
    taken = {_bare(given["name"]): given for given in net.get_input_details()}
    answers = []
    for feed in feeds:
        if missing := sorted(taken.keys() - feed.keys()):
            raise StageError(f"the model has inputs that the ONNX model has not: {', '.join(missing)}")
        made = run(**{name: _in_codes(np.array(feed[name], order="C"), given) for name, given in taken.items()})
        answer = {}
        for name, dtype in outputs.items():
            named, shape = noted[name]
            if named in made:
                x = _from_codes(made[named], made_of[named]) if dtype == "float32" else made[named]
                answer[name] = _channels_second(name, x, shape)
        answers.append(answer)
    return answers


def _in_codes(x: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    """What a user feeds an input of codes: the nearest ones of numbers."""
    scale, zero_point = given["quantization"]
    if not scale or x.dtype.kind != "f":
        return x
    ends = np.iinfo(given["dtype"])
    codes = np.clip(np.rint(x / np.float32(scale)) + zero_point, ends.min, ends.max)
    return np.asarray(codes.astype(given["dtype"]), order="C")


def _from_codes(x: np.ndarray, made: Mapping[str, Any]) -> np.ndarray:
    """The numbers that codes of a result stand for."""
    scale, zero_point = made["quantization"]
    if not scale or x.dtype.kind == "f":
        return x
    # Of a single number, an integer beside it would make a double.
    return np.asarray((x.astype(np.float32) - np.float32(zero_point)) * np.float32(scale))


def _bare(name: str) -> str:
    """Of serving_default_x:0 the name that it has in the ONNX model."""
    return name.removeprefix("serving_default_").rpartition(":")[0] or name.removeprefix("serving_default_")


def _by_order(net: Any, named: str, **feed: np.ndarray) -> dict[str, np.ndarray]:
    """Run a net without a signature, as the converter writes one with a grouped convolution: its only result."""
    net.allocate_tensors()
    for given in net.get_input_details():
        net.set_tensor(given["index"], feed[_bare(given["name"])])
    net.invoke()
    return {named: net.get_tensor(net.get_output_details()[0]["index"])}


def _channels_second(name: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A result with its channels in the second place, where only so it has the shape that it is to have."""
    moved = np.moveaxis(x, -1, 1) if x.ndim > 2 else x
    if moved.shape != shape or x.shape != shape:
        return moved if moved.shape == shape else x
    if not np.array_equal(moved, x, equal_nan=x.dtype.kind == "f"):
        raise StageError(f"in which place the channels of {name} are cannot be told from its shape")
    return x


def _said(call: Callable[[], T]) -> T:
    """What `call` returns; its error as one line, with the file of the converter that raised it. It ends the process
    where it gives up, and has said why before."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            return call()
    except (StageError, MemoryError):
        raise
    except (Exception, SystemExit) as e:
        lines = [_COLOR.sub("", line) for line in said.getvalue().splitlines()]
        errors = [line.strip() for line in lines if "ERROR:" in line and "The trace log" not in line]
        message = " ".join(errors[:2]) if isinstance(e, SystemExit) else _COLOR.sub("", f"{type(e).__name__}: {e}")
        raise StageError(f"{message.strip().partition(chr(10))[0]}; in {_place(e)}") from None


def _place(error: BaseException) -> str:
    """The innermost file of the converter that the error passed, as ops/Conv.py; else the innermost one."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [file for file in files if f"{os.sep}onnx2tf{os.sep}ops{os.sep}" in file]
    return os.sep.join((own or files)[-1].split(os.sep)[-2:])


_README = "https://github.com/PINTO0309/onnx2tf/blob/main/README.md"
_QUANTIZED = {"quantize": ("integer", "full")}
_PLAIN = {"kernels": ("reference",)}
_QUANTIZING = "https://ai.google.dev/edge/litert/conversion/tensorflow/quantization/post_training_quantization"
_FLEX = "https://ai.google.dev/edge/litert/conversion/tensorflow/ops_select"

# Of others it makes nothing that runs, in any form that was tried, or nothing that is a tensor of numbers.
_TAKEN = """
Abs Add And ArgMax ArgMin Atan Attention AveragePool BatchNormalization BitShift BitwiseAnd BitwiseNot BitwiseOr
BitwiseXor Cast Ceil Celu Clip Col2Im Concat Conv ConvTranspose Cos Cosh CumProd CumSum DFT DepthToSpace
DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand Flatten Floor GRU Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample
GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LSTM
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool
MeanVarianceNormalization Min Mish Mod Mul Neg NegativeLogLikelihoodLoss Not OneHot Or PRelu Pad Pow QLinearMatMul
QuantizeLinear RMSNormalization RNN Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RotaryEmbedding Round
ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss
Softplus Softsign Split Sqrt Squeeze Sub Tan Tanh TensorScatter ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze
Where Xor
"""

LITERT = Target(
    name="litert",
    distribution="onnx2tf",
    convert=convert,
    quantize=quantize,
    execute=execute,
    commands=commands,
    executes_plain=True,
    options=(
        Option(
            "quantize",
            "quantize",
            ("none", "integer", "full"),
            "integer: int8 between inputs and outputs of floats; full: these too",
        ),
        Option("per_channel", "quantize", (True, False), "one weight scale a channel", _QUANTIZED),
        Option("weights", "convert", ("float32", "float16"), "what weights are kept in", {"quantize": ("none",)}),
        Option("groups", "convert", (True, False), "whether a grouped convolution stays one operator"),
        Option("unfold", "convert", (False, True), "whether a product of several matrices is taken apart"),
        Option("unroll", "convert", (False, True), "whether recurrent layers are taken apart"),
        Option("kernels", "execute", tuple(_RESOLVERS), "whose kernels run: XNNPACK's where it has any, LiteRT's"),
        Option("threads", "execute", (1, 2), "threads of one run"),
    ),
    scheme=scheme,
    # Against float64, in [-30, 30], of Exp up to where it overflows: 2.4e-7, 3e-7, 3.9e-6, 6.2e-7 and 9.9e-7 were
    # measured of XNNPACK's kernels in LiteRT 2.1.0, of results beyond 1 as a share of them. Exp is off by a rounding of
    # x: 5.2e-7 from 4 to 8, 9.3e-7 from 8, 1.8e-6 from 16, 3.5e-6 from 32.
    approximations={"Sin": 2.7e-7, "Cos": 3.3e-7, "Exp": (3e-7, 2**-23), "Gelu": 7e-7, "Mish": 1.1e-6},
    companions=(("", "ai-edge-litert"),),
    features={"float": {"quantize": "none", "weights": "float32"}},
    profile={
        "weights": ("initializer", "shared"),
        "numbers": ("initializer",),
        "symbolic": False,
        "empty": False,
        "dtypes": ("float", "int32", "int64", "bool"),
        "ranks": (4, 3, 2, 1, 5),
        "operators": tuple(_TAKEN.split()),
    },
    natives=(
        "onnx2tf.convert",
        "tensorflow.saved_model.load",
        "tensorflow.lite.TFLiteConverter.from_saved_model",
        "ai_edge_litert.interpreter.Interpreter",
    ),
    refusals=(
        Rule("shape that has to be known", "convert", r"the shape of .* has to be known", _README),
        Rule("operator not supported", "convert", r"No module named 'onnx2tf\.ops\.\w+'", _README),
        Rule(
            "operator that LiteRT has not", "convert", r"Could not translate MLIR to FlatBuffer.*error: 'tf\.\w+", _FLEX
        ),
        Rule("result that hangs on no input", "convert", r"Output tensors of a Functional model must be", _README),
        Rule("operator that LiteRT has not", "execute", r"Make sure you invoke the Flex delegate", _FLEX),
        Rule("operator without a reference kernel", "execute", r"Didn't find op for builtin opcode", _FLEX, _PLAIN),
        Rule("form of an operator not supported", "convert", r"Pull requests are welcome|Invalid auto_pad ", _README),
        Rule("operator that LiteRT has not", "quantize", r"Current CPU implementations do not yet support", _FLEX),
        Rule("nothing to calibrate with", "quantize", r"there is nothing to calibrate with", _QUANTIZING),
        Rule("layout that cannot be told", "execute", r"in which place the channels of .* cannot be told", _README),
        Rule("results that cannot be told apart", "execute", r"which of several results is which", _README),
    ),
)
