"""What is handed over shows the failure to somebody who has no driftnet."""

import ast
import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from driftnet import api
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.handover import handover
from driftnet.model.inspect import digest
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict, Word
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models
from tests.support.paths import CORPUS

RAN = Observation((StageRun("execute", Outcome.OK),), ({"y": np.ones((1, 4), np.float32)},))


def saved_relu(**changes):
    case = models.relu()
    expected = ({"y": np.maximum(case.feeds[0]["x"], 0)},)
    verdict = Verdict(Word.DIVERGES, stage="execute", kind="wrong-values", message="y is wrong", output="y")
    saved = SavedCase("test_relu_01234567", case, expected, "mnn", {}, "coarse", "fine", verdict, seen=("3.6.1",))
    return dataclasses.replace(saved, **changes)


def handed_over(runner, tmp_path, name):
    """A copy of a case of the corpus, with what is handed over."""
    (source,) = CORPUS.glob(f"*/{name}")
    folder = tmp_path / name
    shutil.copytree(source, folder)
    handover.write(folder, resolve(source.parent.name), runner)
    return folder


def run(folder, **variables):
    """The script in an interpreter that sees neither this checkout nor the environment's variables."""
    command = [sys.executable, "-I", str(folder / "reproduce.py")]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, env=variables)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_mnn_execute_wrong-values_gemm_f56c53d6", "elements are wrong"),
        ("test_onnxruntime-quant_quantize_error_gemm_85a5f4bb", "IndexError"),
    ],
)
def test_the_script_reproduces_a_saved_case_by_itself(runner, tmp_path, name, said):
    folder = handed_over(runner, tmp_path, name)
    result = run(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    assert said in result.stdout
    assert "REPRODUCED" in result.stdout


def test_the_script_says_no_where_nothing_is_wrong(runner, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    handover.write(folder, resolve("mnn"), runner)
    result = run(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "not reproduced" in result.stdout


def test_a_case_with_what_is_handed_over_still_loads_as_it_was(runner, tmp_path):
    folder = handed_over(runner, tmp_path, "test_mnn_execute_wrong-values_gemm_f56c53d6")
    assert {"reproduce.py", "ISSUE.md", "case.json", "model.onnx"} <= {path.name for path in folder.iterdir()}
    before = corpus.load(CORPUS / "mnn" / folder.name)
    assert digest(corpus.load(folder).case) == digest(before.case)
    assert corpus.folders([tmp_path]) == [folder]


def test_the_issue_says_what_a_maintainer_asks_for(runner, tmp_path):
    folder = handed_over(runner, tmp_path, "test_mnn_execute_wrong-values_gemm_f56c53d6")
    text = (folder / "ISSUE.md").read_text(encoding="utf-8")
    assert text.startswith("# mnn 3.6.1: Gemm with transA")
    for part in (
        "| seen on | 3.0.0,",
        "python -m pip install onnx numpy onnxruntime mnn==3.6.1",
        "```mermaid\nflowchart TD",
        "y = Gemm <",
        "expected y: float32",
        "actual y: float32",
        "5 of 5 runs in fresh processes failed",
        "_tools.mnnconvert(arguments)",
        "'quantize': 'none'",
    ):
        assert part in text, f"{part!r} is missing in:\n{text}"


def test_reducing_a_saved_case_hands_it_over_with_what_is_known_of_it(tmp_path):
    before = corpus.load(CORPUS / "mnn" / "test_mnn_execute_wrong-values_gemm_f56c53d6")
    result = api.reduce(before.path, out=tmp_path)
    after = corpus.load(Path(result["path"]))
    assert (after.note, after.seen, after.not_seen) == (before.note, before.seen, before.not_seen)
    text = (after.path / "ISSUE.md").read_text(encoding="utf-8")
    assert before.note in text
    assert "| seen on | 3.0.0, " in text


def test_the_issue_says_what_makes_it_go_away():
    saved = saved_relu(recipe={"optimize_level": 2}, not_seen=("3.0.0",))
    text = handover.issue(saved, resolve("mnn"), RAN, ["--optimizeLevel 0"])
    _, _, cure = text.partition("## What makes it go away")
    assert "* --optimizeLevel 0" in cure
    assert "mnn 3.0.0" in cure
    assert "optimize_level = 2" in text


def test_the_text_of_a_case_cannot_become_code():
    note = '"""\' + __import__("os").system("touch /tmp/owned") + \'"""'
    text = handover.script(saved_relu(note=note, seen=(note,)), resolve("mnn"), RAN)
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    assert values["WHAT"] == values["SEEN"] == note


def test_a_tolerance_lies_between_what_is_wrong_and_what_is_right():
    def of(**changes):
        verdict = dataclasses.replace(saved_relu().verdict, **changes)
        return handover.tolerance(saved_relu(verdict=verdict), RAN)

    worst = float(np.abs(1 - saved_relu().expected[0]["y"]).max())
    assert of(tier="exact", error=1.0) == 0, "bit for bit where there is no bound"
    assert 1e-6 * worst < of(error=1.0, bound=1e-6) < worst
    assert of(error=3.0, bound=1.0) == pytest.approx(worst / 3**0.5, rel=1e-2), "a tier may count in steps"


def test_values_do_not_count_where_the_failure_was_another():
    saved = saved_relu()
    crash = dataclasses.replace(saved, verdict=Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV"))
    assert handover.tolerance(crash, RAN) > 1e300
    assert "not values" in handover.script(crash, resolve("mnn"), RAN)


def test_what_quantizing_costs_is_no_difference_where_the_question_is_how_the_result_runs(runner, tmp_path):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 8)).astype(np.float32), rng.standard_normal((8, 3)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    case = models.case([node], {"x": x}, {"w": w}, outputs=[("y", TensorProto.FLOAT, (2, 3))])
    verdict = Verdict(Word.DIVERGES, "artifact", "execute", kind="wrong-values", output="y")
    saved = saved_relu(case=case, expected=({"y": x @ w},), target="onnxruntime-quant", verdict=verdict)
    folder = corpus.save(saved, tmp_path)
    handover.write(folder, resolve("onnxruntime-quant"), runner)
    result = run(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the quantized model as it is written" in (folder / "ISSUE.md").read_text(encoding="utf-8")


def test_a_flaky_case_is_tried_as_often_as_its_rate_asks_for():
    text = handover.script(saved_relu(status="flaky", runs=5, reproduced=2), resolve("mnn"), RAN)
    assert "TRIES = 14  # 2 of 5 runs failed" in text


def test_a_damaged_heap_is_laid_out_anew_in_each_of_many_tries():
    saved = saved_relu()
    crash = dataclasses.replace(saved, verdict=Verdict(Word.CRASHES, stage="execute", kind="SIGABRT"))
    text = handover.script(crash, resolve("mnn"), RAN)
    assert "TRIES = 20" in text
    assert "TRIES = 1\n" in handover.script(saved, resolve("mnn"), RAN)


def test_an_issue_of_a_case_whose_reduction_was_cut_short_claims_no_minimality_and_names_the_command_that_goes_on():
    saved = saved_relu(recipe={"optimize_level": 2}, unfinished=True)
    text = handover.issue(saved, resolve("mnn"), RAN)
    assert "driftnet reduce . --out DIR" in text
    assert "needs each of those" not in text, "nobody knows which of the options the failure needs"
    assert "as far as the failure allowed" not in text
    assert "as far as the failure allowed" in handover.issue(saved_relu(), resolve("mnn"), RAN)
