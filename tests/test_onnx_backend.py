"""A saved case is an ONNX backend test: onnx's own loader finds it, and its runner runs it."""

import unittest

import onnxruntime.backend
import pytest
from driftnet.findings import corpus
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tests.findings.test_corpus import saved_relu
from tests.support import models


@pytest.fixture
def folder(tmp_path):
    corpus.save(saved_relu(), tmp_path)
    return tmp_path


def test_onnx_loads_a_saved_case(folder):
    (loaded,) = load_model_tests(data_dir=str(folder), kind="mnn")
    assert loaded.name == "test_relu_01234567"
    assert loaded.model_dir == str(folder / "mnn" / loaded.name)


@pytest.mark.parametrize(("factor", "passes"), [(1, True), (2, False)])
def test_onnx_runs_a_saved_case_and_compares_its_outputs(tmp_path, monkeypatch, factor, passes):
    wanted = ({"y": factor * models.relu().feeds[0]["x"].clip(0)},)
    corpus.save(saved_relu(expected=wanted), tmp_path)

    def only_ours(kind):
        return load_model_tests(data_dir=str(tmp_path), kind="mnn") if kind == "real" else []

    monkeypatch.setattr("onnx.backend.test.runner.load_model_tests", only_ours)
    suite = Runner(onnxruntime.backend, __name__).test_suite
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun == suite.countTestCases() > 0
    assert result.wasSuccessful() == passes, result.failures or result.errors
