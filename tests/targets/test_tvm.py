"""The target tvm: what its adapter promises. TVM is not installed here: its release gets an environment."""

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from driftnet.targets.interface import StageError
from driftnet.targets.recipe import effective, swept
from driftnet.targets.tvm.target import TVM, _array, _said
from onnx import TensorProto, helper

from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net, name_of
from tests.targets.test_tract import RELEASES

SAYS = {
    "OpNotImplemented: The following operators are not supported for frontend ONNX: Det, Col2Im; in onnx_frontend.py": (
        "operator not supported"
    ),
    "AssertionError: Only constant axes currently supported; in ReduceSum._impl_v13": "operand that has to be constant",
    "TypeError: Reshape requires the input new shape to be Shape. However, the given one is relax.TensorType": (
        "operand that has to be constant"
    ),
    "ValueError: Cannot broadcast symbolic dimension x_0 with non-1 constant 3: runtime value of symbolic dimension "
    "is unknown at compile time.; in MultiInputBase._impl_v1": "shape that has to be known",
    "ValueError: unknown dtype `object`; in dtype.cc": "type not supported",
    "InternalError: Check failed: (dtype == Float(32)) is false: norm: only support float32 and float16 for now": (
        "type not supported"
    ),
    "AssertionError: Missing outputs during conversion. Expected 2 but Got 1 in MaxPool.": "output that is not made",
    "ValueError: QuantizeLinear blocked quantization is not supported yet.": "form of an operator not supported",
    "KeyError: 'num_heads'; in Attention._impl_v1": "",
    "ValueError: no value in Constant; in Constant._impl_v13": "",
    "InternalError: Check failed: arr_size == nbytes (1 vs. 2) : TensorCopyFromBytes: size mismatch; in tensor.cc": "",
}


@pytest.mark.network
def test_every_value_of_every_option_runs_and_agrees(runner):
    def rule(recipe):
        verdict = look(Trial(conv_net(), resolve(f"tvm=={RELEASES['tvm']}"), recipe, runner))
        assert verdict.word is Word.AGREES, f"{verdict.word}: {verdict.message}"

    assert_each(swept(TVM), rule, name_of)


@pytest.mark.network
def test_inputs_are_told_apart_by_name_and_outputs_by_order(runner):
    nodes = [helper.make_node("Sub", ["b.1", "a"], ["y"]), helper.make_node("Shape", ["a"], ["z"])]
    feed = {"a": models.grid((2, 3)), "b.1": models.grid((3,))}
    outputs = [("z", TensorProto.INT64, (2,)), ("y", TensorProto.FLOAT, (2, 3))]
    case = models.case(nodes, feed, outputs=outputs)
    for recipe in ({}, {"format": "library"}, {"params": "inputs"}):
        verdict = look(Trial(case, resolve(f"tvm=={RELEASES['tvm']}"), recipe, runner))
        assert verdict.word is Word.AGREES, f"{recipe}: {verdict.message}"


def test_what_is_refused_and_what_is_not():
    told = {said: next((rule.name for rule in TVM.refusals if rule.matches(said)), "") for said in SAYS}
    assert told == SAYS


def test_an_error_is_told_with_the_converter_that_raised_it():
    class Conv:
        def _impl_v11(self):
            raise ValueError('In ir.Op(span=None, name="relax.sum", num_inputs=1, support_level=10), no axis\nlines')

    with pytest.raises(StageError) as error:
        _said(Conv()._impl_v11)
    assert str(error.value).startswith("ValueError: In relax.sum, no axis; in ")
    assert str(error.value).endswith("Conv._impl_v11")


def test_an_error_outside_of_converters_is_told_with_the_call_that_it_is_about_and_the_file():
    def call():
        raise RuntimeError("cannot emit this.\nOffending call:\nR.nn.relu(x, y)")

    with pytest.raises(StageError) as error:
        _said(call)
    assert str(error.value) == "RuntimeError: cannot emit this.; R.nn.relu; in test_tvm.py"


def test_a_shape_and_a_number_are_arrays_too():
    assert _array((2, 3)).tolist() == [2, 3]
    assert _array(2).shape == ()
    assert _array((2, 3)).dtype == np.int64


def test_commands_say_what_the_options_ask_for():
    def rule(recipe):
        said = TVM.commands(effective(TVM, recipe))
        for value in recipe.values():
            wanted = {"library": "export_library", "inputs": "detach_params", "cpu": "get_default_pipeline"}
            assert str(wanted.get(value, value)) in said or value == "declared", f"{value} is not in\n{said}"

    assert_each(swept(TVM), rule, name_of)
