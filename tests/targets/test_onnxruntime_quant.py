"""The target onnxruntime-quant: what its adapter promises, on the installed release."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Outcome, Word
from driftnet.oracle.exemptions import saturation
from driftnet.targets.environments import resolve
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT, OPTIMIZERS
from driftnet.targets.recipe import canonical, effective, swept
from onnx import helper
from onnxruntime.quantization import quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer, RTNWeightOnlyQuantConfig
from onnxruntime.quantization.quant_utils import compute_scale_zp, save_and_reload_model_with_shape_infer

from tests.support import models
from tests.support.rules import assert_each
from tests.support.triggers import some
from tests.targets.test_mnn import conv_net, name_of

STATIC = [
    {"format": form, "calibration": calibration, "types": types, "per_channel": per_channel}
    for form, calibration, types, per_channel in itertools.product(
        ("QDQ", "QOperator"), ("MinMax", "Entropy", "Percentile"), ("s8s8", "u8s8", "u8u8"), (False, True)
    )
    if not (per_channel and types == "u8u8")
]
DYNAMIC = [
    {"quantize": "dynamic", "types": types, "reduce_range": reduced}
    for types, reduced in itertools.product(("s8s8", "u8u8"), (False, True))
]
OTHERS = [
    {"preprocess": True},
    {"symmetric_activations": True},
    {"force_quantize": True},
    {"dedicated_pairs": True},
    {"reduce_range": True},
    {"optimization": "off"},
    {"threads": 2},
]

RESTRICTED = {"calibration": "Percentile", "types": "u8s8", "restricted_zero_points": True}

NET = """<ir_version: 10, opset_import: ["" : 21]>
net (float[1,3,2,40] x, float[1,1,4,4] z, int64[2] i, bool q)
    => (float[1,4,2,2] y, float[1,1,2,2] p, float[2,64] g, float[1,4,2,6] s)
{
    [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    [relu] r = Relu (c)
    [product] m = MatMul (r, v)
    [sigmoid] n = Sigmoid (m)
    [transpose] t = Transpose <perm = [0, 1, 3, 2]> (n)
    [square] y = MatMul (n, t)
    [pool] p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (z)
    [rows] g = Gather (e, i)
    BRANCH
}"""
BRANCH = "[choice] s = If (q) <then_branch = a () => (float[1,4,2,6] u) {u = MatMul (r, v)}, else_branch = o () => \
(float[1,4,2,6] l) {l = Identity (m)}>"
SHAPES = {"w": (4, 3, 3, 3), "b": (4,), "v": (40, 6), "e": (32, 64)}
LIKE_OTHERS = ("model_from", "strided", "calibration_cache")
"""options that lead to the same model by another way"""


def written(recipe, folder):
    """What quantizing a net with something for every option writes; inputs z are small."""
    rng, options = np.random.default_rng(3), effective(ONNXRUNTIME_QUANT, recipe)
    # The other quantizers do not know what a branch reads from outside.
    branch = BRANCH if options["quantize"] == "dynamic" else "f = Cast <to = 1> (q) [sum] s = Add (m, f)"
    model = onnx.parser.parse_model(NET.replace("BRANCH", branch))
    for name, shape in SHAPES.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype("f"), name))
    feeds = [
        {
            "x": (rng.standard_normal((1, 3, 2, 40)) ** 5 + k).astype("f"),
            "z": rng.uniform(-1e-3, 1e-3, (1, 1, 4, 4)).astype("f"),
            "i": np.int64([3, 1]),
            "q": np.array(True),
        }
        for k in range(3)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    converted = ONNXRUNTIME_QUANT.convert(str(folder / "model.onnx"), str(folder), options)
    quantized = ONNXRUNTIME_QUANT.quantize(converted, feeds, str(folder), options)
    return onnx.load(quantized, load_external_data=False).SerializeToString(deterministic=True)


def observe(runner, recipe):
    """(case, observation) of the small net."""
    case = conv_net()
    return case, runner.observe(case, resolve("onnxruntime-quant"), recipe)


def quantized(recipe, folder):
    """The graph that quantizing the small net writes."""
    case, options = conv_net(), effective(ONNXRUNTIME_QUANT, recipe)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model)
    converted = ONNXRUNTIME_QUANT.convert(str(folder / "model.onnx"), str(folder), options)
    calibration = case.calibration or case.feeds
    return onnx.load(ONNXRUNTIME_QUANT.quantize(converted, calibration, str(folder), options)).graph


def test_every_recipe_quantizes_and_runs(runner):
    reduced = {"reduce_range": True} if saturation.is_possible() else {}  # as is documented for such a machine

    def rule(recipe):
        case, observation = observe(runner, {**recipe, **reduced})
        assert observation.last.outcome is Outcome.OK, f"{observation.last.message}\n{observation.last.log}"
        for got, right in zip(observation.outputs, runner.reference.run(case).outputs, strict=True):
            error = np.abs(got["y"] - right["y"]).max() / np.abs(right["y"]).max()
            assert 1e-4 < error < 0.1, f"{error:g} is no error of 8 bits, should be between 1e-4 and 0.1"

    assert_each(STATIC + DYNAMIC + OTHERS, rule, name_of)


def test_weights_keep_to_the_codes_of_the_declared_scheme(tmp_path):
    def rule(recipe):
        scheme = ONNXRUNTIME_QUANT.scheme(effective(ONNXRUNTIME_QUANT, recipe))
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in quantized(recipe, tmp_path).initializer}
        codes = {name: x.astype(int) for name, x in tensors.items() if name in ("w_quantized", "v_quantized")}
        assert codes, f"no quantized weights among {sorted(tensors)}"
        low, high = scheme.weight_codes
        for name, x in codes.items():
            assert low <= x.min() < x.max() <= high, f"{name} has codes {x.min()} to {x.max()}, not {low} to {high}"
            assert max(high - x.max(), x.min() - low) < 1 or scheme.symmetric_weights, f"{name} wastes codes"
            scales, right = tensors[name.replace("_quantized", "_scale")].size, len(x) if scheme.per_channel else 1
            assert scales == right, f"{name} has {scales} scales, should have {right}"

    assert_each(STATIC + DYNAMIC, rule, name_of)


def test_what_restricted_zero_points_leave_unused_is_right(runner):
    """The constant 128 to 255 of u8, and a range of 1 for what is all 0."""
    weights = np.float32([[-0.25], [-1.5], [-1], [-1]])
    constant = helper.make_node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weights))
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"], transA=1)
    concat = helper.make_node("Concat", ["x", "w"], ["y"], axis=0)
    recipe = canonical(ONNXRUNTIME_QUANT, RESTRICTED)
    for node, x in ((gemm, np.arange(-6, 6, dtype=np.float32).reshape(4, 3)), (concat, np.zeros((1, 1), np.float32))):
        case = some([constant, node], {"x": x}, {}, outputs=["y"])
        seen = look(Trial(case, resolve("onnxruntime-quant"), recipe, runner))
        assert seen.word is Word.AGREES, f"{node.op_type}: {seen.message}"


def test_scales_of_channels_that_are_made_symmetric_in_any_case_are_told_by_the_artifact():
    told = {
        (channels, other): ONNXRUNTIME_QUANT.scheme(
            effective(ONNXRUNTIME_QUANT, {"types": "s8s8", "per_channel": channels, "other_symmetry": other})
        ).told
        for channels, other in itertools.product((False, True), repeat=2)
    }
    assert [where for where, is_told in told.items() if is_told] == [(True, True)]


def test_every_value_of_every_option_of_the_quantizer_changes_the_model_that_it_writes(tmp_path):
    """But for those that only give, or calibrate, the same in another way."""
    made = {}

    def model(recipe):
        key = str(sorted(recipe.items()))
        if key not in made:
            made[key] = written(recipe, tmp_path / str(len(made)))
        return made[key]

    def rule(pair):
        name, recipe = pair
        force = {"force_quantize": True} if name == "least_range" else {}  # what is small is quantized then
        more, less = (
            {**r, **force}
            for r in (recipe, canonical(ONNXRUNTIME_QUANT, {k: v for k, v in recipe.items() if k != name}))
        )
        assert (model(more) == model(less)) == (name in LIKE_OTHERS), f"{name} changes something, or changes nothing"

    opened = {option.name: option for option in ONNXRUNTIME_QUANT.options if option.when}
    recipes = [r for r in swept(ONNXRUNTIME_QUANT) if r != {"calibration": "Entropy"}]  # 128 bins for as many codes
    pairs = [(name, recipe) for recipe in recipes for name in recipe if name in opened]
    assert len({name for name, _ in pairs}) == len(opened)
    assert_each(pairs, rule, str)


def test_formats_differ_in_the_operators_written(tmp_path):
    operators = {}
    for form in ("QDQ", "QOperator"):
        operators[form] = {node.op_type for node in quantized({"format": form}, tmp_path / form).node}
    assert "Conv" in operators["QDQ"]
    assert "QLinearConv" in operators["QOperator"]


def test_onnxruntime_knows_its_optimizers_by_these_names(tmp_path):
    """Without FuseReluClip and its like a Relu before a Clip stays where it is."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Clip", ["r", "low", "high"], ["y"])]
    constants = {"low": np.float32(-1), "high": np.float32(1)}
    case = models.case(
        nodes, {"x": models.grid((4,))}, {k: np.asarray(v) for k, v in constants.items()}, outputs=[("y", 1, (4,))]
    )
    optimized = {}
    for disabled in ((), ("FuseReluClip",)):
        settings = onnxruntime.SessionOptions()
        settings.optimized_model_filepath = str(tmp_path / f"{len(disabled)}.onnx")
        onnxruntime.InferenceSession(case.model, settings, disabled_optimizers=disabled)
        optimized[disabled] = [n.op_type for n in onnx.load(settings.optimized_model_filepath).graph.node]
    assert "FuseReluClip" in OPTIMIZERS
    assert "Relu" not in optimized[()]
    assert "Relu" in optimized[("FuseReluClip",)]


def test_ranges_behind_float16_are_known_only_as_far_as_that_rounds(runner):
    """Calibration computes in float32 what a model of float16 rounds; the standard deviation of nearly equal values is
    another one then."""
    nodes = [
        helper.make_node("ReduceLogSumExp", ["x", "axes"], ["t"], keepdims=1),
        helper.make_node("LayerNormalization", ["t", "t"], ["normalized", "mean", "s"], axis=0),
        helper.make_node("Squeeze", ["s"], ["y"]),
        helper.make_node("Conv", ["v", "w"], ["z"]),
    ]
    quarters = np.random.default_rng(7).integers(-16, 16, (1, 2, 3, 12)).astype(np.float16) / 4
    one = np.ones((1, 1, 1, 1), np.float32)
    outputs = [("y", onnx.TensorProto.FLOAT, ()), ("z", onnx.TensorProto.FLOAT, one.shape)]
    constants = {"axes": np.int64([0, 2, 3]), "w": one}
    case = models.case(nodes, {"x": quarters, "v": one}, constants, outputs=outputs, opset=21)
    verdict = look(Trial(case, resolve("onnxruntime-quant"), {}, runner))
    assert verdict.word is Word.AGREES, verdict.message


def test_what_a_gemm_of_beta_0_leaves_out_may_stay_as_it_is(runner):
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], beta=0.0),
        helper.make_node("Gather", ["table", "i"], ["z"]),
    ]
    constants = {"w": [[0]], "b": [1], "table": [[-0.25], [2]]}
    case = models.case(
        nodes,
        {"x": np.float32([[3]]), "i": np.array([[1]])},
        {name: np.float32(x) for name, x in constants.items()},
        outputs=[("y", onnx.TensorProto.FLOAT, (1, 1)), ("z", onnx.TensorProto.FLOAT, (1, 1, 1))],
    )
    verdict = look(Trial(case, resolve("onnxruntime-quant"), {"quantize": "dynamic"}, runner))
    assert verdict.word is Word.AGREES, verdict.message


def test_symmetric_codes_of_seven_bits_have_64_in_the_middle(runner):
    weights = np.float32([[0.99, -0.94], [0.5, 0.1]])  # of one sign a little less than of the other
    case = models.case(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": models.grid((1, 2))},
        {"w": weights},
        outputs=[("y", onnx.TensorProto.FLOAT, (1, 2))],
    )
    recipe = {"quantize": "dynamic", "types": "u8u8", "reduce_range": True, "other_symmetry": True}
    verdict = look(Trial(case, resolve("onnxruntime-quant"), recipe, runner))
    assert verdict.word is Word.AGREES, verdict.message


@pytest.mark.parametrize(
    ("called", "refused"),
    [
        *((one, True) for one in (quantize_static, quantize_dynamic, MatMulNBitsQuantizer, RTNWeightOnlyQuantConfig)),
        *((one, False) for one in (compute_scale_zp, save_and_reload_model_with_shape_infer)),
    ],
)
def test_a_release_lacks_an_option_where_what_the_target_calls_takes_no_such_keyword_and_nowhere_else(called, refused):
    with pytest.raises(TypeError) as told:
        called(no_such_option=1)
    said = f"TypeError: {told.value}"
    assert any(rule.matches(said) for rule in ONNXRUNTIME_QUANT.outgrown) == refused, said


def test_a_result_that_is_no_tensor_is_left_out_instead_of_ending_the_run(tmp_path):
    kind = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1])
    nodes = [helper.make_node("Optional", [], ["none"], type=kind), helper.make_node("Neg", ["x"], ["y"])]
    none = helper.make_value_info("none", helper.make_optional_type_proto(kind))
    x, y = (helper.make_value_info(name, kind) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [none, y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    options, feed = effective(ONNXRUNTIME_QUANT, {}), {"x": np.ones(1, np.float32)}
    (answer,) = ONNXRUNTIME_QUANT.execute(str(tmp_path / "m.onnx"), [feed], {"none": "", "y": "float32"}, options)
    assert answer == {"y": -feed["x"]}
