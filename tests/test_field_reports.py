"""The five reports from the field that started driftnet, each on a freshly built model."""

import json

import numpy as np
import onnx
import pytest
from driftnet.cli import main as cli
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial, look
from driftnet.model.inspect import elements, nodes
from driftnet.model.verdict import Kind, Word
from driftnet.targets.environments import resolve

from tests.support import field_models, models


def run(*words):
    """(exit status, what was printed on stdout) of a driftnet command line is taken from pytest's capsys by `said`."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(word) for word in words])
    return end.value.code


def test_1_a_permuted_shape_behind_a_qdq_pair_is_found_and_reduced(runner, tmp_path):
    case = field_models.quantized_conv_net(tmp_path)
    examination = examine(Trial(case, resolve("mnn"), {}, runner))
    finding = examination.finding
    assert examination.verdict.word is Word.FAILS, "the whole model gives no output"
    assert finding.verdict.kind == Kind.WRONG_SHAPE
    assert nodes(finding.case) <= 2
    assert elements(finding.case) <= 64
    assert "[3, 1, 416, 416], should be [1, 3, 416, 416]" in finding.symptom


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"quantize": "offline"},
        {"quantize": "offline", "method": "ADMM"},
        {"quantize": "offline", "method": "EMA"},
        {"quantize": "weight-only", "memory": "low"},
        {"quantize": "weight-only", "weight_bits": 4, "memory": "low"},
    ],
    ids=lambda recipe: "-".join(map(str, recipe.values())) or "float",
)
def test_2_every_outcome_of_quantizing_a_multi_input_gru_is_classified(runner, recipe):
    verdict = look(Trial(field_models.multi_input_gru(), resolve("mnn"), recipe, runner))
    assert verdict.word is not Word.INVALID, verdict.message
    assert verdict.message or verdict.word is Word.AGREES, "an outcome that is not agreement says what it is"
    assert not verdict.failed or (verdict.stage and verdict.kind), f"{verdict} is put down to no stage and kind"
    assert look(Trial(models.relu(), resolve("mnn"), {}, runner)).word is Word.AGREES, "the runner survived"


def test_3_grouped_conv_transpose_and_norm_is_clean_on_the_current_mnn(runner):
    for groups in (1, 2, 4):
        for level in (0, 1, 2):
            case = models.grouped_conv_transpose_and_norm(groups)
            verdict = look(Trial(case, resolve("mnn"), {"optimize_level": level}, runner))
            assert (verdict.word, verdict.tier) == (Word.AGREES, "exact"), verdict.message


def test_3_a_converter_that_folds_norms_ignoring_groups_is_caught_and_reduced_to_the_two_nodes(runner):
    planted = resolve("tests.support.mutants:FOLDS_NORM_IGNORING_GROUPS")
    finding = examine(Trial(models.grouped_conv_transpose_and_norm(), planted, {}, runner)).finding
    assert finding.verdict.kind == Kind.WRONG_VALUES
    assert [node.op_type for node in finding.case.proto.graph.node] == ["ConvTranspose", "BatchNormalization"]
    assert elements(finding.case) <= 64


def test_4_a_calibration_feed_that_contradicts_the_model_is_the_users_mistake(tmp_path, capsys):
    onnx.save(field_models.unet_with_time_embedding(), tmp_path / "unet.onnx")
    np.savez(
        tmp_path / "calibration.npz",
        sample=np.zeros((2, 4, 8, 8), np.float32),
        timestep=np.zeros((160, 16), np.float32),
    )
    status = run(
        "check", tmp_path / "unet.onnx", "--target", "onnxruntime-quant",
        "--calibration", tmp_path / "calibration.npz", "--json",
    )  # fmt: skip
    error = json.loads(capsys.readouterr().out)["error"]
    assert status == 2
    assert error["kind"] == "feed"
    assert "calibration" in error["message"]
    assert "'timestep' has shape [160, 16], the model expects [2, 16]" in error["message"]


def test_4_the_same_model_with_a_right_calibration_feed_quantizes(runner):
    model = field_models.unet_with_time_embedding()
    feed = {"sample": np.ones((2, 4, 8, 8), np.float32), "timestep": np.ones((2, 16), np.float32)}
    case = models.Case(model.SerializeToString(), (feed,), (feed,))
    for recipe in (
        {"calibration": c, "format": f} for c in ("MinMax", "Entropy", "Percentile") for f in ("QDQ", "QOperator")
    ):
        verdict = look(Trial(case, resolve("onnxruntime-quant"), recipe, runner))
        assert not verdict.failed, f"{recipe}: {verdict.message}"


def test_5_a_custom_operator_that_nobody_registered_is_named_and_nothing_else_is_blamed(tmp_path, capsys):
    onnx.save(field_models.dual_path_with_unregistered_norm(), tmp_path / "dual_path.onnx")
    status = run("check", tmp_path / "dual_path.onnx", "--target", "mnn", "--json")
    (result,) = json.loads(capsys.readouterr().out)["targets"]
    assert status == 2
    assert result["verdict"] == "rejects"
    assert "com.speech::ChunkSegment" in result["message"]
    assert "/segmentation/chunk" in result["message"]
    assert "export it as operators of ONNX" in result["message"], "it is not said what to do next"
    assert result["culprits"] == [{"node": "/segmentation/chunk", "op_type": "ChunkSegment", "impact": None}]
    assert not result["reduced"]
