"""The target iree: what its adapter promises. IREE is not installed here: its release gets an environment."""

import re

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from driftnet.targets.iree.target import IREE, _typed
from driftnet.targets.recipe import effective, swept
from onnx import TensorProto, helper

from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net, name_of
from tests.targets.test_tract import RELEASES

RELEASE = f"iree=={RELEASES['iree']}"

UNSUPPORTED = """\
source.mlir:9:10: error: failed to legalize operation 'torch.operator' that was explicitly marked illegal: %7:2 = \
"torch.operator"(%arg0, %1) <{name = "onnx.GRU"}> {torch.onnx.hidden_size = 3 : si64} : (!torch.vtensor<[?,3],f32>)
    %3 = torch.operator "onnx.GRU"(%arg0, %arg1)
         ^
"""
BROKEN = """\
source.mlir:1:1: warning: while creating CPU target: a generic one
source.mlir:12:10: error: failed to legalize operation 'torch.aten.matmul' that was explicitly marked illegal: %9 = "t"
source.mlir:13:10: error: 'tensor.cast' op operand type 'tensor<?x1xi1>' and result type 'tensor<1xi1>' differ
"""


@pytest.mark.network
def test_every_value_of_every_option_runs_and_agrees(runner):
    def rule(recipe):
        verdict = look(Trial(conv_net(), resolve(RELEASE), recipe, runner))
        assert verdict.word is Word.AGREES, f"{verdict.word}: {verdict.message}"

    assert_each(swept(IREE), rule, name_of)


@pytest.mark.network
def test_inputs_are_told_apart_by_name_and_integers_keep_their_type(runner):
    nodes = [helper.make_node("Sub", ["b", "a"], ["y"]), helper.make_node("Sub", ["y", "b"], ["z"])]
    feed = {"a": np.array([1, 2], np.uint8), "b": np.array([200, 255], np.uint8)}
    case = models.case(nodes, feed, outputs=[("z", TensorProto.UINT8, (2,)), ("y", TensorProto.UINT8, (2,))], opset=14)
    verdict = look(Trial(case, resolve(RELEASE), {}, runner))
    assert verdict.word is Word.AGREES, verdict.message


@pytest.mark.network
def test_doubles_are_refused_as_it_computes_them_as_floats(runner):
    case = models.case([helper.make_node("Neg", ["x"], ["y"])], {"x": np.ones(2)}, outputs=[("y", 11, (2,))])
    verdict = look(Trial(case, resolve(RELEASE), {}, runner))
    assert (verdict.word, verdict.rule) == (Word.REJECTS, "type not supported")


def test_what_is_refused_and_what_is_not():
    imported = "OnnxImportError: ONNX importer does not support generic node attribute type TYPE_PROTO with ID 13"
    says = UNSUPPORTED, imported, BROKEN
    told = [next((rule.name for rule in IREE.refusals if rule.matches(said)), "") for said in says]
    assert told == ["operator without a lowering", "attribute that is not imported", ""]


def test_of_an_error_the_first_is_told_without_the_operation_that_is_printed():
    said = [re.search(IREE.complaint, log)[0] for log in (UNSUPPORTED, BROKEN, "source.mlir:1:1: error: no entry\n")]
    assert said[0].endswith('name = "onnx.GRU')
    assert said[1:] == [
        "failed to legalize operation 'torch.aten.matmul' that was explicitly marked illegal",
        "no entry",
    ]


def test_only_integers_of_the_same_size_are_given_the_type_that_is_declared():
    x = np.array([-1, 2], np.int8)
    assert _typed(x, "uint8").tolist() == [255, 2]
    assert {_typed(x, name).dtype.name for name in ("int8", "int16", "float32", "")} == {"int8"}


def test_commands_tell_the_compiler_what_the_target_tells_it():
    def rule(recipe):
        said = IREE.commands(effective(IREE, recipe))
        missing = [value for value in recipe.values() if str(value) not in said]
        assert not missing, f"{missing} is not in\n{said}"

    assert_each(swept(IREE), rule, name_of)
