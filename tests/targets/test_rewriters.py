"""Rewriters of ONNX models: what the adapters promise. Those that are not installed get an environment."""

import numpy as np
import onnx
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import declared, resolve
from driftnet.targets.interface import StageError
from driftnet.targets.recipe import swept
from driftnet.targets.rewriters import onnxoptimizer, onnxslim
from driftnet.targets.rewriters.target import OUTGROWN, write
from onnx import TensorProto, helper

from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net, name_of

RELEASES = {"onnxoptimizer": "0.4.2", "onnxscript": "0.7.2", "onnxsim": "0.8.1", "onnxslim": "0.1.98"}


def assert_every_recipe_agrees(word, runner):
    def rule(recipe):
        verdict = look(Trial(conv_net(), resolve(word), recipe, runner))
        assert verdict.word is Word.AGREES, f"{verdict.word}: {verdict.message}"

    target = declared(word.partition("==")[0])
    parts = [{name: list(values[:2])} for name, values in target.switches.items()]
    assert_each(swept(target) + parts, rule, name_of)


def test_what_onnx_itself_rewrites_agrees_under_every_value_of_every_option(runner):
    assert_every_recipe_agrees("onnx-passes", runner)


@pytest.mark.network
@pytest.mark.parametrize("name", RELEASES)
def test_the_others_agree_in_an_environment_of_their_own(name, runner):
    assert_every_recipe_agrees(f"{name}=={RELEASES[name]}", runner)


def test_no_adapter_for_an_operator_is_a_documented_refusal(runner):
    """Gelu is of opset 20, and nothing says what it was before."""
    case = models.case(
        [helper.make_node("Gelu", ["x"], ["y"])], {"x": models.grid((4,))}, {}, outputs=[("y", 1, (4,))], opset=20
    )
    verdict = look(Trial(case, resolve("onnx-passes"), {"opset": "down"}, runner))
    assert (verdict.word, verdict.rule) == (Word.REJECTS, "no adapter"), verdict.message


def test_blocks_of_an_older_opset_are_a_documented_refusal(runner):
    scales = {"s": models.grid((2, 2))}
    blocks = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=2)]
    case = models.case(blocks, {"x": models.grid((2, 4))}, scales, outputs=[("y", TensorProto.UINT8, (2, 4))], opset=21)
    verdict = look(Trial(case, resolve("onnx-passes"), {"opset": "down"}, runner))
    assert (verdict.word, verdict.rule) == (Word.REJECTS, "not in that opset"), verdict.message


def test_an_opset_of_which_onnxruntime_has_no_kernel_is_a_documented_refusal(runner):
    pool = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[1, 1])
    feed = {"x": models.grid((1, 1, 4, 4)), "rois": np.float32([[0, 0, 0, 2, 2]])}
    case = models.case([pool], feed, {}, outputs=[("y", 1, (1, 1, 1, 1))], opset=21)
    verdict = look(Trial(case, resolve("onnx-passes"), {"opset": "up"}, runner))
    assert (verdict.word, verdict.rule) == (Word.REJECTS, "no kernel in that opset"), verdict.message


CHANGES = {
    "lost": (lambda graph: graph.input.pop(), "inputs are lost"),
    "renamed": (lambda graph: setattr(graph.output[0], "name", "z"), "outputs are lost"),
    "retyped": (lambda graph: setattr(graph.input[0].type.tensor_type, "elem_type", TensorProto.DOUBLE), "type of inp"),
    "fixed": (lambda graph: setattr(graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2), "a size of input"),
    "resized": (lambda graph: setattr(graph.output[0].type.tensor_type.shape.dim[1], "dim_value", 4), "a size of outp"),
    "flattened": (lambda graph: graph.output[0].type.tensor_type.shape.dim.pop(), "rank of output"),
    "broken": (lambda graph: setattr(graph.node[0], "op_type", "Rely"), "model is invalid"),
}


def relu():
    """y = Relu(x) of n rows of three."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_longer_what_it_was_is_an_error(change, tmp_path):
    onnx.save(relu(), tmp_path / "model.onnx")
    after, (damage, said) = relu(), CHANGES[change]
    assert write(str(tmp_path / "model.onnx"), after, str(tmp_path)).endswith("rewritten.onnx")
    damage(after.graph)
    with pytest.raises(StageError, match=said):
        write(str(tmp_path / "model.onnx"), after, str(tmp_path))


def test_what_is_said_of_an_invalid_model_that_was_written_is_no_refusal_of_age(tmp_path):
    onnx.save(relu(), tmp_path / "model.onnx")
    after = relu()
    after.graph.node[0].op_type = "Gelu"
    with pytest.raises(StageError, match=r"^the rewritten model is invalid: No Op registered for Gelu") as told:
        write(str(tmp_path / "model.onnx"), after, str(tmp_path))
    assert not [rule.name for rule in OUTGROWN if rule.matches(f"StageError: {told.value}")]


def test_a_size_of_an_output_may_become_known(tmp_path):
    onnx.save(relu(), tmp_path / "model.onnx")
    after = relu()
    after.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2
    assert write(str(tmp_path / "model.onnx"), after, str(tmp_path)) == str(tmp_path / "rewritten.onnx")


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("RuntimeError: Your model ir_version 13 is higher than the checker's (9).", "too old for the IR version"),
        ("RuntimeError: Your model ir_version is higher than the checker's.", "too old for the IR version"),
        ("ValidationError: No Op registered for Gelu with domain_version of 20", "too old for an operator"),
        ("RuntimeError: Warning: invalid version (must be between 1 and 21)", "too old for the opset"),
        ("loading\nAttributeError: No Op registered for Gelu\n", "too old for an operator"),
        ("AttributeError: 'list' object has no attribute 'shape'", ""),
        ("StageError: the rewritten model is invalid: No Op registered for Gelu with domain_version of 17", ""),
    ],
)
def test_a_release_refuses_what_its_onnx_has_not_yet_and_nothing_else(said, rule):
    assert next((one.name for one in OUTGROWN if one.matches(said)), "") == rule


def test_parts_that_can_be_left_out_are_told_apart():
    for parts in (onnxoptimizer.PASSES, onnxslim.PARTS):
        assert len(parts) == len(set(parts)) > 1
        assert all(part.replace("_", "").isalpha() for part in parts), parts
