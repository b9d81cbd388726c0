"""What is handed over shows the failure to somebody who has no driftnet."""

import ast
import dataclasses
import functools
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from driftnet import api
from driftnet.causes.host import host_of
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.telling import cause_as_met
from driftnet.findings.trial import Trial
from driftnet.handover import handover, markdown
from driftnet.handover.claim import claims
from driftnet.handover.control import AGREES, AS_FAR, Control, Proof, ablation
from driftnet.handover.measures import Measured
from driftnet.learning.experiment import computed
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict, Word
from driftnet.targets.environments import Installed, declared, resolve
from driftnet.targets.interface import Option
from driftnet.targets.mnn.target import MNN
from onnx import TensorProto, helper

from tests.support import models
from tests.support.paths import CORPUS, saved_case
from tests.support.toy_target import TOY

RAN = Observation((StageRun("execute", Outcome.OK),), ({"y": np.ones((1, 4), np.float32)},))


def script(saved, word):
    """reproduce.py of a case that was not run, so that nothing is known but its verdict."""
    return handover.script(saved, resolve(word), proof(saved))


def test_what_the_target_imports_under_other_options_only_need_not_be_installed():
    openvino = Installed(declared("openvino"), "", "2026.4.0", sys.executable)
    said = {code: handover._installing(openvino, code) for code in ("import openvino", "def f():\n    import nncf")}
    assert ["nncf" in one for one in said.values()] == [False, True], said
    assert all("onnx" in one and "openvino==2026.4.0" in one for one in said.values()), said


def test_an_option_that_means_nothing_for_the_data_is_not_tried(runner):
    options = tuple(Option(n, "execute", (0, 1), "", applies=lambda feeds, n=n: n == "used") for n in ("used", "idle"))
    toy = dataclasses.replace(TOY, options=(*TOY.options, *options))
    saved = saved_relu()
    trial = Trial(saved.case, Installed(toy, "tests.support.toy_target:TOY", "1", sys.executable), {}, runner)
    assert {name for name, _, _ in ablation(saved, trial, proof(saved).claim, 60.0)} == {"offset", "used"}


def test_an_option_under_which_it_is_as_wrong_mends_nothing_though_that_is_allowed_there(runner):
    saved, toy = saved_relu(), Installed(TOY, "tests.support.toy_target:TOY", "1", sys.executable)
    trial, claim = Trial(saved.case, toy, {"offset": "one"}, runner), proof(saved).claim

    def told(bound):
        return [what for *_, what in ablation(saved, trial, dataclasses.replace(claim, bound=bound), 60.0)]

    assert told(claim.bound) == [AGREES], "without an offset it is right"
    assert told(-1.0) == [AS_FAR], "what is as far off as before is told as mended"


def proof(saved):
    return Proof(next(claims(saved, saved.verdict, None)), None, None)


def saved_relu(**changes):
    case = models.relu()
    expected = ({"y": np.maximum(case.feeds[0]["x"], 0)},)
    verdict = Verdict(Word.DIVERGES, stage="execute", kind="wrong-values", message="y is wrong", output="y")
    saved = SavedCase("test_relu_01234567", case, expected, "mnn", {}, "coarse", "fine", verdict, seen=("3.6.1",))
    return dataclasses.replace(saved, **changes)


@pytest.fixture(scope="module")
def written(runner, tmp_path_factory):
    """name -> a case of the corpus with what is handed over, which is made once."""

    @functools.cache
    def folder(name):
        (source,) = CORPUS.rglob(name)
        made = shutil.copytree(source, tmp_path_factory.mktemp("written") / name)
        handover.write(made, resolve(corpus.load(source).target), runner)
        return made

    return folder


@pytest.fixture
def handed_over(written, tmp_path):
    """name -> a copy of a case of the corpus, with what is handed over."""
    return lambda name: shutil.copytree(written(name), tmp_path / name)


def run(folder, **variables):
    """The script in an interpreter that sees neither this checkout nor the environment's variables."""
    command = [sys.executable, "-I", str(folder / "reproduce.py")]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, env=variables)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_mnn_execute_wrong-values_gemm_f56c53d6", "off by 1 (allowed: 0)"),
        ("test_onnxruntime-quant_quantize_error_gemm_85a5f4bb", "IndexError"),
    ],
)
def test_the_script_reproduces_a_saved_case_by_itself(handed_over, name, said):
    folder = handed_over(name)
    result = run(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    assert said in result.stdout
    assert "REPRODUCED" in result.stdout


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("test_onnxruntime-quant_quantize_wrong-values_dequantizelinear-gemm_f9aa95fb", "parameter 'w2' more"),
        (
            "test_onnxruntime-quant_quantize_wrong-values_leakyrelu-relu_58a9f155",
            "what the node that makes it cuts off",
        ),
        ("test_onnxruntime-quant_quantize_wrong-values_matmul-where_a95122a5", "'x4_scale' is not positive and finite"),
        (
            "test_onnxruntime-quant_execute_wrong-values_softmax_ea342d05",
            "the quantized model, as it is written, makes",
        ),
        ("test_mnn_execute_sigfpe_maxpool_fff8ffab", "execute ends with SIGFPE"),
        ("test_onnxruntime-quant_execute_error_matmul_1665271d", "execute ends with error"),  # it names its folder
    ],
)
def test_a_script_claims_what_was_judged_and_does_not_see_it_without_the_trigger(handed_over, name, claimed):
    folder = handed_over(name)
    result = run(folder)
    said = result.stdout[result.stdout.rindex("fails: this model") :]
    assert claimed in result.stdout, f"{name} claims something else:\n{result.stdout}"
    assert result.returncode == 1, f"{name} does not reproduce:\n{result.stdout}{result.stderr}"
    assert "\ndoes not fail: the same model with" in said, f"{name} has no negative control:\n{said}"
    shutil.copytree(folder / "without_trigger", folder, dirs_exist_ok=True)
    taken_away = run(folder)
    assert taken_away.returncode == 0, f"{name} reproduces though its trigger was taken away:\n{taken_away.stdout}"


def test_the_script_says_no_where_nothing_is_wrong(runner, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    handover.write(folder, resolve("mnn"), runner)
    result = run(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "not reproduced" in result.stdout


def test_a_case_with_what_is_handed_over_still_loads_as_it_was(handed_over, tmp_path):
    folder = handed_over("test_mnn_execute_wrong-values_gemm_f56c53d6")
    assert {"reproduce.py", "ISSUE.md", "case.json", "model.onnx"} <= {path.name for path in folder.iterdir()}
    before = corpus.load(saved_case(folder.name[-8:]))
    assert corpus.load(folder).case.digest == before.case.digest
    assert corpus.folders([tmp_path]) == [folder]


def test_the_issue_says_what_a_maintainer_asks_for(handed_over):
    folder = handed_over("test_mnn_execute_wrong-values_gemm_f56c53d6")
    text = (folder / "ISSUE.md").read_text(encoding="utf-8")
    assert text.startswith("# mnn 3.6.1: Gemm with transA")
    for part in (
        "| seen on | 3.0.0,",
        "python -m pip install onnx numpy onnxruntime mnn==3.6.1",
        "```mermaid\nflowchart TD",
        "**Silently wrong results**",
        "* fails: this model: output",
        "* does not fail: the same model with",
        "helper.make_node('Gemm', ",
        "mnnconvert -f ONNX --modelFile model.onnx",
        "| optimize_level | 2 | fails in the same way |",
        "expected y: float32",
        "actual y: float32",
        "5 of 5 runs in fresh processes failed",
        "_tools.mnnconvert(arguments)",
        "'quantize': 'none'",
    ):
        assert part in text, f"{part!r} is missing in:\n{text}"


def test_the_issue_of_a_crash_shows_its_stack(handed_over):
    folder = handed_over("test_mnn_execute_sigfpe_maxpool_fff8ffab")
    text = (folder / "ISSUE.md").read_text(encoding="utf-8")
    assert "**A crash**" in text
    assert "\nWhere in mnn: " in text, f"no place in:\n{text}"
    assert "MNN::PoolSizeComputer::onComputeSize" in text, f"the function that crashes is not named in:\n{text}"
    assert "* does not fail: the same model with strides of MaxPool" in text


def test_the_stack_of_an_error_ends_where_the_system_is_called(handed_over):
    """Who mends the system has none of the files of a target's description, or of the sandbox."""
    folder = handed_over("test_onnxruntime-quant_quantize_error_gemm_85a5f4bb")
    text = (folder / "ISSUE.md").read_text(encoding="utf-8")
    stack = text.partition("```text\n")[2].partition("\n```")[0].splitlines()
    others = [frame for frame in stack if not frame.startswith("onnxruntime/")]
    assert not others, f"{others} are shown, should be frames of onnxruntime alone"
    last = "onnxruntime/quantization/quantize.py quantize_static"
    assert stack[-1:] == [last], f"the stack is {stack}, should end with {last}, which is called"


def test_reducing_a_saved_case_hands_it_over_with_what_is_known_of_it(tmp_path):
    before = corpus.load(saved_case("f56c53d6"))
    result = api.reduce(before.path, out=tmp_path)
    assert (result["renamed"], result["cause"]) == ("", ""), "it fails as it did"
    after = corpus.load(Path(result["path"]))
    assert (after.note, after.seen, after.not_seen) == (before.note, before.seen, before.not_seen)
    text = (after.path / "ISSUE.md").read_text(encoding="utf-8")
    assert markdown.inline(before.note.splitlines()[0]) in text
    assert "| seen on | 3.0.0, " in text
    assert after.cause is not None, "its cause is not told, though it meets the trigger still"
    told = before.cause.of_case(before.id)
    assert (after.cause.trigger, after.cause.releases) == (told.trigger, told.releases)
    assert f"when: {markdown.inline(told.sentence)}" in text


def test_the_issue_says_what_makes_it_go_away():
    saved = saved_relu(recipe={"optimize_level": 2}, not_seen=("3.0.0",))
    text = handover.issue(saved, resolve("mnn"), RAN, proof(saved), ["--optimizeLevel 0"])
    _, _, cure = text.partition("## What makes it go away")
    assert "* --optimizeLevel 0" in cure
    assert "mnn 3.0.0" in cure
    assert "optimize_level=2" in text


@pytest.mark.parametrize(("same_model", "goes_away"), [(True, "* the model with y stated"), (False, "Nothing known")])
def test_a_control_that_computes_the_same_is_a_way_out(same_model, goes_away):
    saved, measured = saved_relu(), Measured(0.0, "right")
    made = dataclasses.replace(proof(saved), control=Control(saved.case, {}, "with y stated", measured, same_model))
    text = handover.issue(saved, resolve("mnn"), RAN, made)
    assert goes_away in text.partition("## What makes it go away")[2]


def test_the_tools_of_a_system_are_run_in_an_environment_of_their_own():
    saved = saved_relu()
    text = handover.issue(saved, resolve("mnn"), RAN, proof(saved))
    typed = text.partition("own tools")[2].partition("```sh\n")[2].partition("```")[0].splitlines()
    assert typed[:2] == ["python -m venv own", ". own/bin/activate"]
    assert typed[2].startswith("python -m pip install ")
    assert {f"mnn=={resolve('mnn').release}", *MNN.tools} <= set(typed[2].split())
    assert typed[3].startswith("mnnconvert ")


def test_what_makes_it_go_away_is_told_once_and_whole():
    saved = saved_relu()
    table = [("format", "QOperator", "does not fail"), ("quantize", "weight-only", "does not fail")]
    text = handover.issue(saved, resolve("mnn"), RAN, proof(saved), ["format=QOperator"], table)
    cure = text.partition("## What makes it go away")[2].partition("Each option")[0]
    assert [line for line in cure.splitlines() if line] == ["* format=QOperator", "* quantize=weight-only"]


def test_the_issue_of_what_is_known_says_by_what_cause(runner, tmp_path):
    known = corpus.load(saved_case("f56c53d6"))
    alike = dataclasses.replace(known, id="test_gemm_01234567", note="", not_seen=(), cause=None)
    folder = corpus.save(alike, tmp_path)
    handover.write(folder, resolve("mnn"), runner, known=known, seconds=0)
    text = (folder / "ISSUE.md").read_text(encoding="utf-8")
    host = host_of(alike.case, computed(alike.case, runner.reference))
    told = cause_as_met(known, host, MNN, alike.recipe)
    for part in (known.note.splitlines()[0] or told.title, told.id, told.history, f"when: {told.sentence}"):
        assert markdown.inline(part)[:100] in text, text
    assert "| not on |" not in text, "it says that no good release is known beside the one that it names"
    assert "grown" not in text, "it names a model that is not beside it"
    assert "\n\n| | |\n" in text, "a table that no empty line goes before is none"


def test_the_text_of_a_case_cannot_become_code():
    note = '"""\' + __import__("os").system("touch /tmp/owned") + \'"""'
    text = script(saved_relu(note=note, seen=(note,)), "mnn")
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    assert values["WHAT"] == values["SEEN"] == note


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


def test_the_script_in_one_file_says_the_same(handed_over, tmp_path):
    folder = handed_over("test_mnn_execute_wrong-values_gemm_f56c53d6")
    alone = tmp_path / "elsewhere" / "pasted.py"
    alone.parent.mkdir()
    shutil.move(folder / "reproduce_onefile.py", alone)
    commands = [[sys.executable, "-I", path] for path in (folder / "reproduce.py", alone)]
    both = [subprocess.run(command, capture_output=True, text=True) for command in commands]
    assert [done.returncode for done in both] == [1, 1], both[1].stdout + both[1].stderr
    assert both[0].stdout == both[1].stdout
    assert list(alone.parent.iterdir()) == [alone], "the script left something beside itself"


def test_a_flaky_case_is_tried_as_often_as_its_rate_asks_for():
    text = script(saved_relu(status="flaky", runs=5, reproduced=2), "mnn")
    assert "TRIES = 14  # 2 of 5 runs failed" in text


def test_an_issue_of_a_flaky_case_says_how_often_it_fails_and_whether_this_run_did():
    saved = saved_relu(status="flaky", runs=5, reproduced=2)
    text = handover.issue(saved, resolve("mnn"), RAN, proof(saved))
    assert "* fails, in 2 of 5 runs: this model" in text
    assert "The run that is shown here did not fail." in text
    assert "* fails: this model" in handover.issue(saved_relu(), resolve("mnn"), RAN, proof(saved))


@pytest.mark.parametrize(
    ("word", "kind", "message", "found", "begins"),
    [
        (Word.FAILS, "error", "mnn failed in execute: no kind", "error: no kind", "An error on a valid model"),
        (Word.DIVERGES, "wrong-shape", "output 'y' has shape [2]", "shape (2,)", "A result of a wrong shape"),
        (Word.FAILS, "no-output", "output 'y' is missing", "output 'y' is missing", "A result that is missing"),
    ],
)
def test_an_issue_says_once_what_happened_and_of_a_shape_no_error(word, kind, message, found, begins):
    saved = saved_relu(verdict=Verdict(word, stage="execute", kind=kind, message=message, output="y"))
    text = handover.issue(saved, resolve("mnn"), RAN, dataclasses.replace(proof(saved), found=Measured(1.0, found)))
    said = next(line for line in text.splitlines() if line.startswith("**"))
    assert said.startswith(f"**{begins}"), f"it begins: {said}"
    assert message not in said, f"it is said twice: {said}"
    assert f"* fails: this model: {found}" in text
    assert message in handover.issue(saved, resolve("mnn"), RAN, proof(saved)), "nothing else says it where it is open"


def test_a_control_is_the_first_that_the_script_itself_says_is_right(tmp_path):
    """Whenever that is asked, ISSUE.md speaks of the same one."""
    saved, asked, issues, says = saved_relu(), [], [], iter([1, 2, None, 0])

    def status_of(installed, folder, words, seconds):
        asked.append(words)
        issues.append((folder / "ISSUE.md").read_text())
        return next(says)

    runner = SimpleNamespace(status_of=status_of)
    found = [Control(saved.case, {}, f"way {k}", Measured(0.0, "")) for k in range(5)]
    whole = dataclasses.replace(proof(saved), control=found[0], others=tuple(found[1:]))
    kept = handover._tested(whole, saved, tmp_path, resolve("mnn"), runner, lambda proof: proof.control.what)
    assert kept.control is found[3], f"{kept.control.what} is kept; those before it fail, or cannot be told"
    assert issues == [one.what for one in found[:4]], f"ISSUE.md spoke of {issues} while each control was run"
    runs = {words[2] for words in asked}
    assert runs == {"3"}, f"each was run {runs} times; what depends on memory that nobody wrote takes several"


def test_a_damaged_heap_is_laid_out_anew_in_each_of_many_tries():
    saved = saved_relu()
    crash = dataclasses.replace(saved, verdict=Verdict(Word.CRASHES, stage="execute", kind="SIGABRT"))
    text = script(crash, "mnn")
    assert "TRIES = 20" in text
    assert "TRIES = 1\n" in script(saved, "mnn")


def test_an_issue_of_a_case_whose_reduction_was_cut_short_claims_no_minimality_and_names_the_command_that_goes_on():
    saved = saved_relu(recipe={"optimize_level": 2}, unfinished=True)
    text = handover.issue(saved, resolve("mnn"), RAN, proof(saved))
    assert "driftnet reduce . --out DIR" in text
    assert "needs each of those" not in text, "nobody knows which of the options the failure needs"
    assert "as far as the failure allowed" not in text
    assert "as far as the failure allowed" in handover.issue(saved_relu(), resolve("mnn"), RAN, proof(saved_relu()))
