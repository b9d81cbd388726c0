"""The target mnn: what its adapter promises, on the installed release."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from driftnet.findings.corpus import COMMITTED
from driftnet.findings.issues import KnownIssue, issues
from driftnet.findings.pipeline import Care, examine
from driftnet.findings.trial import Trial, look
from driftnet.generators import bulk
from driftnet.model.verdict import Outcome, Word
from driftnet.targets.environments import resolve
from driftnet.targets.interface import StageError
from driftnet.targets.mnn import target as mnn
from onnx import TensorProto, helper

from tests.support import models
from tests.support.rules import assert_each

FLOAT = TensorProto.FLOAT
RECIPES = [
    {option.name: value}
    for option in mnn.MNN.options
    if option.stage != "quantize"
    for value in option.values
    if not option.when
]
WEIGHT_ONLY = [
    {"quantize": "weight-only", "weight_bits": bits, "weight_asymmetric": asymmetric, "memory": memory}
    for bits, asymmetric, memory in itertools.product((8, 4), (True, False), ("normal", "low"))
]
OFFLINE = [
    {"quantize": "offline", "method": method, "weight_method": weight_method, "calibration_input": form}
    for method, weight_method, form in itertools.product(
        ("KL", "ADMM", "EMA"), ("MAX_ABS", "ADMM"), ("sequence", "image")
    )
    if (method, form) != ("ADMM", "image")  # corrupts the heap on 3.6.1
]


def name_of(recipe):
    return "-".join(map(str, recipe.values()))


def conv_net(batch=1, samples=3):
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"]),
    ]
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        "v": rng.standard_normal((5, 4, 1, 1)).astype(np.float32),
    }
    feeds = [{"x": rng.uniform(-1, 1, (batch, 3, 8, 8)).astype(np.float32)} for _ in range(samples)]
    return models.case(nodes, feeds[0], constants, outputs=[("y", FLOAT, (batch, 5, 8, 8))], feeds=feeds[1:])


def one(op, x, *, output=None, opset=17, constants=None, **attributes):
    """A case of one node from x (and the constants) to y; output is y's element type, None: that of x."""
    node = helper.make_node(op, ["x", *(constants or {})], ["y"], **attributes)
    element = helper.np_dtype_to_tensor_dtype(x.dtype) if output is None else output
    return models.case([node], {"x": x}, constants, outputs=[("y", element, x.shape)], opset=opset)


def observe(runner, case, recipe=None):
    return runner.observe(case, resolve("mnn"), recipe or {})


def relative_error(runner, case, recipe):
    """The worst error of any element of any feed, in units of the largest value that is right."""
    observation = observe(runner, case, recipe)
    assert observation.last.outcome is Outcome.OK, f"{recipe}: {observation.last.message}\n{observation.last.log}"
    pairs = zip(observation.outputs, runner.reference.run(case).outputs)
    return max(float(np.abs(got["y"] - right["y"]).max() / np.abs(right["y"]).max()) for got, right in pairs)


def assert_errors_between(runner, low, high, recipes):
    def rule(recipe):
        error = relative_error(runner, conv_net(), recipe)
        assert low < error < high, f"moves results by {error:g} of the largest, should by {low:g} to {high:g}"

    assert_each(recipes, rule, name_of)


def test_options_of_conversion_and_execution_keep_float_results(runner):
    assert_errors_between(runner, -1, 1e-5, RECIPES)


def test_weight_only_quantization_moves_results_by_as_much_as_its_bits_allow(runner):
    assert_errors_between(runner, 1e-4, 2e-2, [recipe for recipe in WEIGHT_ONLY if recipe["weight_bits"] == 8])
    assert_errors_between(runner, 1e-2, 0.3, [recipe for recipe in WEIGHT_ONLY if recipe["weight_bits"] == 4])
    assert_errors_between(runner, 1e-6, 2e-3, [{"fp16": True}])


def test_each_offline_method_works_with_each_form_of_calibration(runner):
    assert_errors_between(runner, 1e-4, 0.5, OFFLINE)


@pytest.mark.parametrize("method", ["KL", "ADMM", "EMA"])
def test_calibration_works_for_batches_however_few_samples_there_are(runner, method):
    assert 1e-4 < relative_error(runner, conv_net(batch=3, samples=1), {"quantize": "offline", "method": method}) < 0.5


def test_offline_methods_do_not_disturb_each_other_in_one_worker(runner):
    for method in ("KL", "ADMM", "EMA", "KL", "EMA"):
        observation = observe(runner, conv_net(), {"quantize": "offline", "method": method})
        assert observation.last.outcome is Outcome.OK, f"{method} after others: {observation.last.message}"


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int64"])
def test_results_come_back_in_the_declared_type(runner, dtype):
    case = one("Neg", np.array([[1, -2, 3]], dtype))
    (outputs,) = observe(runner, case).outputs
    assert outputs["y"].dtype == dtype
    assert outputs["y"].tolist() == [[-1, 2, -3]]


def test_bool_results_come_back_as_bool(runner):
    (outputs,) = observe(runner, one("Not", np.array([True, False]))).outputs
    assert outputs["y"].dtype == np.bool_
    assert outputs["y"].tolist() == [False, True]


def test_scalars_and_empty_arrays_keep_their_shape(runner):
    for x in (np.array(2, np.float32), np.zeros((0, 3), np.float32)):
        (outputs,) = observe(runner, one("Neg", x)).outputs
        assert outputs["y"].shape == x.shape


def test_feeds_of_different_shapes_run_in_one_session(runner):
    x = np.ones((1, 3), np.float32)
    node = helper.make_node("Neg", ["x"], ["y"])
    case = models.case(
        [node], {"x": x}, outputs=[("y", FLOAT, ("n", 3))], shapes={"x": ("n", 3)}, feeds=[{"x": np.ones((4, 3), "f")}]
    )
    assert [outputs["y"].shape for outputs in observe(runner, case).outputs] == [(1, 3), (4, 3)]


def renamed(case, name):
    """`case` with its input called `name`."""
    model = onnx.ModelProto.FromString(case.model)
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    return models.Case(model.SerializeToString(), tuple({name: feed["x"]} for feed in case.feeds))


@pytest.mark.parametrize("name", ["block/x", "/stft/Conv_output_0", "../x", "in:0", "a b", 'x;"y"|z', "ä"])
def test_an_input_can_be_calibrated_whatever_an_exporter_called_it(runner, name):
    assert relative_error(runner, renamed(conv_net(), name), {"quantize": "offline"}) < 0.5


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        pytest.param(
            one(
                "GroupNormalization",
                np.ones((1, 4, 3), np.float32),
                constants={"s": np.ones(4, np.float32), "b": np.ones(4, np.float32)},
                opset=21,
                num_groups=2,
            ),
            "operator not supported",
            id="operator",
        ),
        pytest.param(one("Transpose", np.ones((2, 2), np.int8)), "input type without a counterpart", id="int8-input"),
        pytest.param(one("Neg", np.array([2**40])), "int64 is computed in int32", id="large-int64"),
        pytest.param(
            one(
                "ReverseSequence",
                np.ones((3, 2), np.uint8),
                constants={"lengths": np.array([1, 2])},
                output=TensorProto.UINT8,
                opset=13,
            ),
            "ReverseSequence of what has not 32 bits",
            id="uint8-reversed",
        ),
        pytest.param(
            one(
                "QuantizeLinear",
                np.ones((2, 3), np.float32),
                constants={"s": np.array(1, np.float32), "z": np.array(0, np.int8)},
                output=TensorProto.INT8,
            ),
            "quantized graph outputs",
            id="int8-output",
        ),
    ],
)
def test_a_documented_refusal_is_recognized(runner, case, rule):
    verdict = look(Trial(case, resolve("mnn"), {}, runner))
    assert (verdict.word, verdict.rule) == (Word.REJECTS, rule), verdict.message


def test_no_model_written_is_an_error_though_the_converter_reports_success(runner):
    run = observe(runner, one("Hardmax", np.ones((2, 3), np.float32))).last
    assert (run.stage, run.outcome, run.message) == ("convert", Outcome.ERROR, "no model was written")


def test_a_crash_is_an_observation(runner):
    observation = observe(runner, one("Max", np.ones((2, 3), np.float32)))
    assert observation.last.outcome is Outcome.CRASH, "Max of one operand crashes MNN's converter on 3.6.1"
    assert observation.last.signal == "SIGSEGV"
    assert "Max op" in observation.last.log, "what native code said before is kept"
    assert observe(runner, models.relu()).last.outcome is Outcome.OK, "the next case runs in a new process"


def test_a_crash_of_the_quantizer_is_an_observation(runner):
    observation = observe(runner, one("LRN", np.ones((1, 4, 6, 6), np.float32), size=3), {"quantize": "offline"})
    assert observation.last.stage == "quantize"
    assert observation.last.outcome is Outcome.CRASH, "KL on LRN crashes MNN 3.6.1, in a child of the worker"
    assert observation.last.signal == "SIGSEGV"


def test_an_output_without_a_shape_is_an_error_of_mnn_s_and_no_mistake_of_its_plug_in():
    module = SimpleNamespace(forward=lambda given: [SimpleNamespace(shape=None)])
    with pytest.raises(StageError, match="knows no shape"):
        mnn._forward(module, (), {"y": "float32"})


def test_images_keep_the_range_of_calibration(tmp_path):
    feeds = [{"x": np.linspace(-2, 6, 3 * 4 * 5, dtype=np.float32).reshape(1, 3, 4, 5)}]
    config = mnn._write_images(feeds, str(tmp_path))
    (mean,), (normal,) = set(config["mean"]), set(config["normal"])
    assert np.allclose([(0 - mean) * normal, (255 - mean) * normal], [-2, 6])
    assert (tmp_path / "0000.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("op", ["HardSigmoid", "Celu", "ThresholdedRelu", "LpPool"])
def test_numbers_of_attributes_are_constants_in_half_precision_too(runner, op):
    x = np.array([0.3, 1, -2.7, 5.3], np.float32)
    given = {} if op == "HardSigmoid" else {"alpha": 0.3}
    if op == "LpPool":
        x, given = x.reshape(1, 1, 2, 2), {"p": 3, "kernel_shape": [1, 1], "strides": [1, 1]}
    found = look(Trial(one(op, x, **given), resolve("mnn"), {"fp16": True}, runner))
    assert found.word is Word.AGREES, found.message


def test_what_does_not_run_is_not_the_quantizers_fault(runner):
    pooled = one("MaxPool", models.grid((1, 1, 2, 2)), kernel_shape=[1, 1])
    found = examine(Trial(pooled, resolve("mnn"), {}, runner)).finding
    known = KnownIssue(found.to_save())
    assert look(Trial(pooled, resolve("mnn"), {"quantize": "offline"}, runner)).stage == "quantize", (
        "calibration runs the model"
    )
    found = examine(Trial(pooled, resolve("mnn"), {"quantize": "offline"}, runner), [known])
    assert found.known == known.id, "the crash of the float model explains that of the quantizer"


def test_what_does_not_run_is_not_the_fault_of_who_fixes_shapes(runner):
    pooled = one("LpPool", models.grid((1, 1, 2)), kernel_shape=[1], auto_pad="SAME_UPPER")
    found = examine(Trial(pooled, resolve("mnn"), {}, runner)).finding
    known, static = KnownIssue(found.to_save()), Trial(pooled, resolve("mnn"), {"static_model": True}, runner)
    assert (found.verdict.stage, look(static).stage) == ("execute", "convert"), "to fix shapes is to compute them"
    assert examine(static, [known]).known == known.id, "the error of the runtime explains that of the converter"


def test_what_is_wrong_before_it_is_quantized_is_known_by_the_trigger_of_floats(runner):
    constants = {"i": np.array([[-1], [-2]]), "u": models.grid((2, 1))}
    scattered = one("ScatterElements", models.grid((2, 3)), constants=constants, axis=1)
    known = issues(COMMITTED / "mnn")
    for recipe in ({}, {"quantize": "offline", "method": "EMA"}):
        before = runner.target_runs
        found = examine(Trial(scattered, resolve("mnn"), recipe, runner), known, care=Care.NONE)
        assert "scatterelements" in found.recognized, f"under {recipe} it is {found.verdict.message}"
        assert runner.target_runs == before + 1, "nothing had to be run to know it"


def test_a_shape_that_is_left_open_is_seen_without_onnx(tmp_path: Path) -> None:
    """The reader of bytes says what onnx says, of each way to state a shape and of what the generator draws."""
    shapes = [(2, 3), ("n", 3), (None, 3), (0, 3), (), None]
    models = [_identity_of(shape) for shape in shapes] + [bulk.case(11, index).proto for index in range(60)]
    path = tmp_path / "model.onnx"
    found = []
    for model in models:
        path.write_bytes(model.SerializeToString())
        found.append(mnn._has_fixed_shapes(str(path)))
    dims = [[d for x in model.graph.input for d in x.type.tensor_type.shape.dim] for model in models]
    assert found == [all(d.HasField("dim_value") for d in of) for of in dims]
    assert set(found) == {True, False}


def _identity_of(shape: Sequence[int | str | None] | None) -> onnx.ModelProto:
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    return helper.make_model(helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", told[:1], told[1:]))
