"""The target openvino: what its adapter promises. OpenVINO is not installed here: its release gets an environment."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.oracle.judge import judge
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

    of_onnx = [{"quantize": "onnx", **recipe} for recipe in swept(OPENVINO) if {"shapes", "hint", "preset"} & {*recipe}]
    assert_each([*swept(OPENVINO), *of_onnx], rule, name_of)


@pytest.mark.network
def test_a_quantized_onnx_model_is_judged_by_what_it_says_whatever_runs_it(runner):
    for engine in ("openvino", "onnxruntime"):
        recipe = {"quantize": "onnx", "engine": engine}
        seen = runner.observe(conv_net(), resolve(RELEASE), recipe)
        assert seen.artifact.model, f"nothing is told of what was quantized: {seen.last.message}"
        operators = {node.op_type for node in onnx.load_from_string(seen.artifact.model).graph.node}
        assert {"QuantizeLinear", "DequantizeLinear"} <= operators, f"{engine} runs {operators}"
        off = replace(
            seen, outputs=tuple({name: x * np.float32(1.01) for name, x in run.items()} for run in seen.outputs)
        )
        options = effective(OPENVINO, recipe)
        words = [
            judge(conv_net(), run, target=OPENVINO, options=options, reference=runner.reference).word
            for run in (seen, off)
        ]
        assert words == [Word.AGREES, Word.DIVERGES], f"{engine}: right and 1 % off are {words}"


@pytest.mark.network
def test_an_operator_without_a_conversion_is_refused_under_every_converter(runner):
    case = models.case(
        [helper.make_node("Bernoulli", ["x"], ["y"])], {"x": models.grid((4,))}, outputs=[("y", 1, (4,))]
    )
    recipes = [recipe for recipe in swept(OPENVINO) if "engine" not in recipe]
    rules = {look(Trial(case, resolve(RELEASE), recipe, runner)).rule for recipe in recipes}
    assert rules == {"operator without a conversion"}


def test_an_error_is_told_without_the_layers_that_it_went_through():
    assert words(UNSUPPORTED) == "-- No conversion rule found for operations: StringNormalizer-17"
    assert words(BROKEN) == (
        "-- Conv-17 with a message:; "
        "While validating ONNX node '<Node(Conv): y>': cannot create std::vector larger than max_size()"
    )


def test_an_error_without_words_is_told_by_its_name():
    assert words("") == "RuntimeError"


def test_an_operator_that_it_fails_to_convert_is_no_refusal():
    def refused(text):
        return {rule.name for rule in OPENVINO.refusals if rule.matches(words(text))}

    assert refused(UNSUPPORTED) == {"operator without a conversion"}
    assert refused(BROKEN) == set()


def test_only_a_quantized_onnx_model_can_be_inspected(tmp_path):
    (tmp_path / "quantized.onnx").write_bytes(b"a model")
    assert OPENVINO.inspect(str(tmp_path / "quantized.onnx"), {}) == {"model": b"a model"}
    assert OPENVINO.inspect(str(tmp_path / "quantized.xml"), {}) == {}


def test_codes_that_may_be_left_unused_are_told_of_the_scheme():
    codes = {
        fix: OPENVINO.scheme(effective(OPENVINO, {"quantize": "onnx", "overflow_fix": fix})).weight_codes
        for fix in ("FIRST_LAYER", "DISABLE", "ENABLE")
    }
    assert codes == {"FIRST_LAYER": (-64, 63), "DISABLE": (-127, 127), "ENABLE": (-64, 63)}


def test_it_never_computes_in_less_than_float32():
    for recipe in swept(OPENVINO):
        said = OPENVINO.commands(effective(OPENVINO, recipe))
        assert "'INFERENCE_PRECISION_HINT': 'f32'" in said, f"{recipe} leaves the precision to the plug-in"
        assert "compress_to_fp16" not in said.replace("compress_to_fp16=False", ""), f"{recipe} rounds weights"
