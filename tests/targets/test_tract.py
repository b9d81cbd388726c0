"""The target tract: what its adapter promises. tract is not installed here: its release gets an environment."""

import math

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Word
from driftnet.targets.environments import declared, resolve
from driftnet.targets.recipe import swept
from driftnet.targets.tract.target import TRACT, _mnemonic
from onnx import helper

from tests.oracle.tolerances.test_measured import FUNCTIONS
from tests.support import models
from tests.support.rules import assert_each
from tests.targets.test_mnn import conv_net, name_of

RELEASES = {
    "tract": "0.23.9",
    "openvino": "2026.4.1",
    "ncnn": "1.0.20261020",
    "tvm": "0.27.0.post1",
    "iree": "3.13.0",
    "litert": "1.29.24",
}
RELEASE = "tract==0.23.9"

SAYS = {
    'Translating node #8 "LSTM_y5" LSTM; Non constant seq_len is not supported': "operand that has to be constant",
    "Impossible to unify Sym(n3) with Div(Add([Sym(n0), Val(1)]), 2).": "shape that has to be known",
    "Building node Cast_t45 (Cast); Caused by:; Unknown DatumType Bfloat16": "type not supported",
    'translating node #2; No serializer found for node #2 "Dropout_y4" Dropout': "operator without a form in NNEF",
    "Translating node STFT_t8; STFT expects a constant window": "operand that has to be constant",
    "Multinomial; 1: Only constant input shape are supported in Multinomial": "operand that has to be constant",
    "QuantizeLinear: unsupported per-axis output type U16": "type not supported",
    "Unimplemented(Det) ToTypedTranslator; Caused by:; Operator can not be made a TypedOp.": "operator not supported",
    "Deserializing op `deconv'; 6: symbolic dimension not supported in deconv": "shape that has to be known",
    "after rewiring expansion for output #0: expected 2,6,n4,F16 got 2,6,n2+1,F16": "shape that has to be known",
    'Evaluating #18 "GRU_y1" GruSeq; Caused by:; xw not contiguous': "",
    "after rewiring expansion for output #0: expected 1,n4,n5,F32 got 1,n2+1,n3,F32": "shape that has to be known",
    "Output mismatch after rewiring expansion for output #0: expected 4,3,F16 got 4,3,F32": "",
    "Output mismatch after rewiring expansion for output #0: expected n,1,F16 got n,1,F32": "",
    "Output mismatch after rewiring expansion for output #0: expected batch,3,F32 got batch,4,F32": "",
    "Output mismatch after rewiring expansion for output #0: expected n,F32 got m,F16": "",
    "Impossible to unify 0 with 2.": "",
}


@pytest.mark.network
def test_every_value_of_every_option_runs_and_agrees(runner):
    def rule(recipe):
        verdict = look(Trial(conv_net(), resolve(RELEASE), recipe, runner))
        assert verdict.word is Word.AGREES, f"{verdict.word}: {verdict.message}"

    assert_each(swept(TRACT), rule, name_of)


@pytest.mark.network
def test_a_scalar_stays_a_scalar(runner):
    case = models.case([helper.make_node("Neg", ["x"], ["y"])], {"x": np.float32(2.5)}, outputs=[("y", 1, ())])
    verdict = look(Trial(case, resolve(RELEASE), {}, runner))
    assert verdict.word is Word.AGREES, verdict.message


@pytest.mark.network
@pytest.mark.parametrize("name", ["tract", "openvino", "tvm", "litert"])
def test_results_are_off_by_what_is_declared_and_not_much_less(name, runner):
    assert declared(name).approximations, f"{name} declares none: it need not be among these"
    for operator, most in declared(name).approximations.items():
        x = np.linspace(*DOMAINS.get(operator, (-30, 30)), 50000, dtype=np.float32)
        node = helper.make_node(operator, ["x"], ["y"])
        case = models.case([node], {"x": x}, outputs=[("y", 1, x.shape)], opset=22)
        seen = runner.observe(case, resolve(f"{name}=={RELEASES[name]}"), {})
        right = RIGHT[operator](x.astype(np.float64))
        absolute, share = most if isinstance(most, tuple) else (most, 0.0)
        off = np.abs(seen.outputs[0]["y"] - right) / np.maximum(1, np.abs(right))
        error = (off / (absolute + share * np.abs(x))).max()
        assert 0.5 < error <= 1, f"{operator} is off by {error:g} of what it is said to be, {most}"


RIGHT = {
    **FUNCTIONS,
    "Acosh": np.arccosh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cos": np.cos,
    "Erf": np.vectorize(math.erf),
    "Exp": np.exp,
    "Sin": np.sin,
    "Sinh": np.sinh,
}
DOMAINS = {"Acosh": (1, 30), "Atanh": (-0.999, 0.999), "Exp": (-104, 88), "Softplus": (-110, 110)}


def test_what_is_refused_and_what_is_not():
    told = {said: next((rule.name for rule in TRACT.refusals if rule.matches(said)), "") for said in SAYS}
    assert told == SAYS


def test_types_are_called_what_tract_calls_them():
    called = [_mnemonic(np.dtype(dtype)) for dtype in ("bool", "uint8", "int64", "float16", "float64")]
    assert called == ["bool", "u8", "i64", "f16", "f64"]
