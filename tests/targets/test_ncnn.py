"""The target ncnn: what its adapter promises. It is not installed here: its release gets an environment."""

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from driftnet.targets.interface import StageError
from driftnet.targets.ncnn.target import NCNN, _shapes, _signature
from onnx import TensorProto, helper, save

from tests.oracle.tolerances.test_measured import FUNCTIONS
from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_rewriters import assert_every_recipe_agrees
from tests.targets.test_tract import RELEASES

RELEASE = f"ncnn=={RELEASES['ncnn']}"

SCRIPT = """\
    with ncnn.Net() as net:
        net.load_param("net.ncnn.param")
        net.load_model("net.ncnn.bin")

        with net.create_extractor() as ex:
            ex.input("in0", ncnn.Mat(in0.numpy(), batch_index=0).clone())
            ex.input("in1", ncnn.Mat(in1.numpy(), batch_index=233).clone())

            _, out0 = ex.extract("out0")
            out.append(torch.from_numpy(out0.numpy(batch_index=1)))
"""


@pytest.mark.network
def test_every_value_of_every_option_runs_and_agrees(runner):
    assert_every_recipe_agrees(RELEASE, runner)


@pytest.mark.network
def test_inputs_of_a_process_are_those_of_its_feed_however_large(runner):
    """A Mat does not keep the array that it is made of: what had been given back was read."""
    x = np.linspace(-30, 30, 200000, dtype=np.float32).reshape(2, -1)
    case = models.case([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, outputs=[("y", 1, x.shape)])
    verdict = look(Trial(case, resolve(RELEASE), {}, runner))
    assert verdict.word is Word.AGREES, verdict.message


RIGHT = {"Acosh": np.arccosh, "Asinh": np.arcsinh, "Atanh": np.arctanh, "Mish": FUNCTIONS["Mish"], "Sinh": np.sinh}


@pytest.mark.network
def test_results_are_off_by_what_is_declared_and_not_much_less(runner):
    def off(operator, x, right, constants):
        node = helper.make_node(operator, ["x", *constants], ["y"])
        case = models.case([node], {"x": x}, constants, outputs=[("y", 1, x.shape)], opset=22)
        seen = runner.observe(case, resolve(RELEASE), {})
        return (np.abs(seen.outputs[0]["y"] - right) / np.maximum(1, np.abs(right))).max()

    def rule(operator):
        if operator == "Pow":
            x = np.linspace(0.01, 30, 50000, dtype=np.float32)
            error = off(operator, x, x.astype(np.float64) ** np.float32(1.7), {"c": np.float32(1.7)})
        elif operator == "Div":
            x, by = (np.linspace(*ends, 50000, dtype=np.float32) for ends in ((1, 30), (1, 2)))
            error = off(operator, x, x.astype(np.float64) / by, {"c": by})
        else:
            end = 0.99 if operator == "Atanh" else 30
            x = np.linspace(1 if operator == "Acosh" else -end, end, 50000, dtype=np.float32)
            error = off(operator, x, RIGHT[operator](x.astype(np.float64)), {})
        most = NCNN.approximations[operator]
        assert most / 2 < error <= most, f"off by {error:g}, said to be by {most:g}"

    assert_each(NCNN.approximations, rule, str)


SAYS = {
    ("convert", "todo Slice, Gather"): "operator without a conversion",
    ("convert", "softmax along batch axis 0 is not supported"): "form of an operator not supported",
    ("convert", "unsqueeze batch dim 0 is not supported yet!"): "form of an operator not supported",
    ("convert", "the shape of x0 has to be known"): "shape that has to be known",
    ("convert", "y0 has rank 0"): "tensor without axes",
    ("convert", "unsupported tensor elem data type 9"): "type not supported",
    ("convert", "conv2d to conv1d is not done"): "",
    ("execute", "load_param gave -1\nlayer torch.gt not exists or registered"): "operator that ncnn has not",
    ("execute", "load_param gave -1\nlayer load_param 4 GRU_0 failed"): "",
    ("execute", "an output is empty"): "",
    ("execute", "extract gave -1"): "",
}


def test_what_is_refused_and_what_is_not():
    told = {
        (stage, said): next((rule.name for rule in NCNN.refusals if rule.stage == stage and rule.matches(said)), "")
        for stage, said in SAYS
    }
    assert told == SAYS


def test_blobs_and_their_batches_are_read_from_the_script_of_the_converter():
    assert _signature(SCRIPT) == ([("in0", 0), ("in1", 233)], [("out0", 1)])


def test_shapes_of_inputs_are_told_as_the_converter_takes_them_and_have_to_be_known(tmp_path):
    def shapes(*dims):
        inputs = [helper.make_tensor_value_info(f"x{k}", t, d) for k, (t, d) in enumerate(dims)]
        graph = helper.make_graph([], "graph", inputs, [])
        save(helper.make_model(graph), tmp_path / "model.onnx")
        return _shapes(str(tmp_path / "model.onnx"))

    assert shapes((TensorProto.FLOAT, [2, 3]), (TensorProto.INT64, [1]), (TensorProto.BOOL, [4])) == [
        "[2,3]f32",
        "[1]i64",
        "[4]bool",
    ]
    with pytest.raises(StageError, match="shape of x0 has to be known"):
        shapes((TensorProto.FLOAT, ["n", 3]))
