"""The target openvino: what its adapter promises. OpenVINO is not installed here: its release gets an environment."""

import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import resolve
from driftnet.targets.interface import StageError
from driftnet.targets.openvino.target import OPENVINO, _said
from driftnet.targets.recipe import effective, swept
from onnx import helper

from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net, name_of

RELEASE = "openvino==2026.4.1"

UNSUPPORTED = """\
Exception from src/inference/src/cpp/core.cpp:105:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted.
Summary:
-- No conversion rule found for operations: StringNormalizer-17
To facilitate the conversion of unsupported operations, refer to Frontend Extension documentation: https://a.b

"""
BROKEN = """\
Exception from src/inference/src/cpp/core.cpp:105:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- Conv-17 with a message:
While validating ONNX node '<Node(Conv): y>': cannot create std::vector larger than max_size()
Summary:
-- Conversion is failed for: Conv-17

"""


def words(text):
    """What an error of OpenVINO with this text becomes."""

    def call():
        raise RuntimeError(text)

    with pytest.raises(StageError) as error:
        _said(call)
    return str(error.value)


@pytest.mark.network
def test_every_value_of_every_option_runs_and_agrees(runner):
    def rule(recipe):
        verdict = look(Trial(conv_net(), resolve(RELEASE), recipe, runner))
        assert verdict.word is Word.AGREES, f"{verdict.word}: {verdict.message}"

    assert_each(swept(OPENVINO), rule, name_of)


@pytest.mark.network
def test_an_operator_without_a_conversion_is_refused_under_every_converter(runner):
    case = models.case(
        [helper.make_node("Bernoulli", ["x"], ["y"])], {"x": models.grid((4,))}, outputs=[("y", 1, (4,))]
    )
    rules = {look(Trial(case, resolve(RELEASE), recipe, runner)).rule for recipe in swept(OPENVINO)}
    assert rules == {"operator without a conversion"}


def test_an_error_is_told_without_the_layers_that_it_went_through():
    assert words(UNSUPPORTED) == "-- No conversion rule found for operations: StringNormalizer-17"
    assert words(BROKEN) == (
        "-- Conv-17 with a message:; "
        "While validating ONNX node '<Node(Conv): y>': cannot create std::vector larger than max_size()"
    )


def test_an_operator_that_it_fails_to_convert_is_no_refusal():
    def refused(text):
        return {rule.name for rule in OPENVINO.refusals if rule.matches(words(text))}

    assert refused(UNSUPPORTED) == {"operator without a conversion"}
    assert refused(BROKEN) == set()


def test_it_never_computes_in_less_than_float32():
    for recipe in swept(OPENVINO):
        said = OPENVINO.commands(effective(OPENVINO, recipe))
        assert "'INFERENCE_PRECISION_HINT': 'f32'" in said, f"{recipe} leaves the precision to the plug-in"
        assert "compress_to_fp16" not in said.replace("compress_to_fp16=False", ""), f"{recipe} rounds weights"
