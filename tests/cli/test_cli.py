"""The command line: bad input is one clear message with what to do, exit status 2, and never a traceback."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.cli import main as cli
from driftnet.commands import bench as benchmarks
from driftnet.commands import saved
from driftnet.diagnosis import check as checks
from driftnet.diagnosis.result import Checked
from driftnet.findings import corpus
from driftnet.model.verdict import Verdict, Word
from driftnet.run.runner import Runner
from driftnet.util.errors import UserError

from tests.findings.test_corpus import saved_relu
from tests.support import models
from tests.support.paths import CORPUS, saved_case


@pytest.fixture
def driftnet(capsys):
    """Run a command line: (exit status, stdout, stderr)."""

    def run(*words):
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        said = capsys.readouterr()
        return end.value.code, said.out, said.err

    return run


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(models.relu().model)
    return path


def assert_one_clear_message(result, *, says):
    status, out, err = result
    assert status == 2, f"exit status {status}; {err}"
    assert out == "", "an error was written to stdout"
    assert says in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) <= 3, f"more than a message and a hint: {err}"


@pytest.mark.parametrize(
    "words",
    [
        ["fuzz", "--resume", "--report", "runs/one"],
        ["support", "--target", "mnn", "--operator", "Frobnicate", "--out", "runs/one"],
    ],
)
def test_a_command_that_is_refused_leaves_no_folder_behind(words, driftnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert driftnet(*words)[0] == 2
    assert list(tmp_path.iterdir()) == [], "something was made for a run that was refused"


def test_what_stood_before_a_command_was_refused_stays(driftnet, tmp_path):
    (tmp_path / "one").mkdir()
    assert driftnet("fuzz", "--resume", "--report", tmp_path / "one")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_release_that_is_not_named_is_asked_for(driftnet):
    assert_one_clear_message(driftnet("fuzz", "--target", "mnn==", "--cases", "4"), says="names no release")


@pytest.mark.parametrize("content", [b"", b"this is no model", b"\x08\x07\x12"])
def test_a_corrupt_model_is_named(driftnet, tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    assert_one_clear_message(driftnet("check", path), says="broken.onnx is not an ONNX model")


def test_a_model_without_nodes_is_named(driftnet, tmp_path):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    path = tmp_path / "empty.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [x], [x])), path)
    assert_one_clear_message(driftnet("check", path), says="empty.onnx has no nodes")


def test_a_missing_model_is_named(driftnet, tmp_path):
    assert_one_clear_message(driftnet("check", tmp_path / "absent.onnx"), says="no such file")


def test_what_is_no_regular_file_is_named_and_not_read(driftnet, model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in tmp_path / "pipe", "/dev/zero":
        assert_one_clear_message(driftnet("check", path), says=f"{path} is no regular file")
        assert_one_clear_message(driftnet("check", model, "--inputs", path), says="no such file or folder")


NODE = onnx.helper.make_node
NO_MODELS = {
    "dangling": ([NODE("Add", ["x", "nope"], ["y"])], "input 'nope' of node"),
    "cycle": ([NODE("Add", ["x", "y"], ["z"]), NODE("Relu", ["z"], ["y"])], "must be topologically sorted"),
    "of nothing": ([NODE("Constant", [], ["c"]), NODE("Add", ["x", "c"], ["y"])], "the model is not valid ONNX"),
    "double": ([NODE("Relu", ["x"], ["y"]), NODE("Abs", ["x"], ["y"])], "must be in single static assignment"),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_seeds_that_are_no_models_are_named_with_what_the_checker_says(driftnet, model, tmp_path, name):
    nodes, says = NO_MODELS[name]
    proto = onnx.load(model)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    model.write_bytes(proto.SerializeToString())
    out = tmp_path / "out"
    assert_one_clear_message(driftnet("generate", "--from", model, "--cases", 1, "--out", out), says=says)
    assert not out.exists(), "something was generated"
    if name == "cycle":
        assert_one_clear_message(driftnet("fuzz", "--from", model, "--cases", 1, "--report", out), says=says)


def test_an_unknown_target_is_named_with_what_there_is(driftnet, model):
    assert_one_clear_message(driftnet("check", model, "--target", "tensorrt"), says="tensorrt")
    assert_one_clear_message(driftnet("fuzz", "--target", "tensorrt", "--cases", "1"), says="onnxruntime-quant")
    assert_one_clear_message(driftnet("lint", model), says="onnxruntime-quant")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--option", "method=LK"], "option method of target mnn cannot be 'LK'; it is one of 'KL', 'ADMM', 'EMA'"),
        (["--option", "metod=KL"], "target mnn has no option 'metod'"),
        (["--option", "method"], "'method' is not of the form"),
        (["--recipe", "{"], "--recipe is not JSON"),
        (["--recipe", "[]"], "--recipe is not a JSON object"),
        (["--recipe", "{}", "--sweep"], "exclude each other"),
        (["--dim", "N=two"], "--dim N takes a whole number"),
        (["--dim", "N=0"], "an empty tensor cannot show a difference"),
        (["--timeout", "0"], "0.1"),
        (["--timeout", "nan"], "nan is no finite number"),
        (["--timeout", "1e300"], "is not in the range"),
        (["--memory", "inf"], "is not in the range"),
        (["--memory", "nan"], "nan is no finite number"),
        (["--budget", "nan"], "nan is no finite number"),
        (["--dim", "N=²"], "--dim N takes a whole number"),
    ],
)
def test_bad_options_are_named(driftnet, model, words, says):
    assert_one_clear_message(driftnet("check", model, "--target", "mnn", *words), says=says)


@pytest.mark.parametrize(
    ("feed", "says"),
    [
        ({"x": np.zeros((2, 4), np.float32)}, "input 'x' has shape [2, 4], the model expects [1, 4]"),
        ({"x": np.zeros((1, 4), np.int32)}, "input 'x' has dtype int32, the model expects float32"),
        ({"X": np.zeros((1, 4), np.float32)}, "lacks input 'x'"),
        ({"x": np.zeros((1, 4), np.float32), "z": np.zeros(1)}, "gives 'z', which is no input of the model"),
    ],
)
def test_feeds_that_contradict_the_model_are_named(driftnet, model, tmp_path, feed, says):
    np.savez(tmp_path / "feed.npz", **feed)
    assert_one_clear_message(driftnet("check", model, "--inputs", tmp_path / "feed.npz"), says=says)


def test_a_file_that_is_no_npz_is_named(driftnet, model, tmp_path):
    (tmp_path / "feed.npz").write_bytes(b"PK\x03\x04 cut")
    assert_one_clear_message(driftnet("check", model, "--inputs", tmp_path / "feed.npz"), says="not a whole .npz")


def test_an_unwritable_corpus_is_named(driftnet, tmp_path):
    (tmp_path / "corpus").write_text("a file where a folder should be")
    result = driftnet("fuzz", "--cases", "1", "--report", tmp_path / "r", "--save", "--corpus", tmp_path / "corpus")
    assert_one_clear_message(result, says="cannot write into")


def test_a_run_without_end_is_none(driftnet, tmp_path):
    for minutes in "nan", "inf", "0":
        assert_one_clear_message(driftnet("fuzz", "--minutes", minutes, "--report", tmp_path / "r"), says="--minutes")


def test_an_unknown_focus_is_named_with_the_nearest_there_are(driftnet, tmp_path):
    result = driftnet("generate", "--cases", "1", "--focus", "Konv", "--out", tmp_path)
    assert_one_clear_message(result, says=" Conv,")
    assert len(result[2]) < 300, "a wall of names helps nobody"


def test_a_truncated_case_is_named(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    (folder / "case.json").write_text('{"schema": 1,')
    assert_one_clear_message(driftnet("replay", tmp_path), says="not a whole case.json")


def test_nothing_to_replay_is_said(driftnet, tmp_path):
    assert_one_clear_message(driftnet("replay", tmp_path), says="no saved case below")
    assert_one_clear_message(driftnet("replay", tmp_path / "absent"), says="no case and no folder of cases")


def test_cases_of_another_target_and_recipes_that_there_are_not_are_no_cases_to_replay(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    assert_one_clear_message(driftnet("replay", folder, "--target", "onnxruntime-quant"), says="they are for mnn")
    held = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    (folder / "case.json").write_text(json.dumps({**held, "recipe": {"metod": "KL"}}))
    assert_one_clear_message(driftnet("replay", folder), says="target mnn has no option 'metod'")


@pytest.mark.parametrize("words", [["fuzz"], ["check", "m.onnx"], ["lint", "m.onnx"], ["support"], ["selfcheck"]])
def test_with_a_corpus_that_there_is_not_nothing_is_run(driftnet, words):
    result = driftnet(*words, "--target", "mnn", "--corpus", "nowhere")
    assert_one_clear_message(result, says="--corpus nowhere: there is no such folder")  # or a typo made everything new


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["fuz"], "fuzz"),
        (["fuzz", "--minuts", "1"], "--minutes"),
        (["fuzz", "--target", "nmn"], "mnn"),
        (["fuzz", "--focus", "convtranspos"], "ConvTranspose"),
        (["support", "--target", "mnn", "--operator", "conv"], "Conv"),
        (["support", "--target", "mnn", "--option", "quantise=offline"], "quantize"),
        (["support", "--target", "mnn", "--option", "quantize=ofline"], "offline"),
        (["replay", "1960440"], "19604402"),
        (["triage", "19604402", "--status", "fixd"], "fixed"),
        (["selfcheck", "--target", "mnn", "--kind", "lost-bia"], "lost-bias"),
        (["bench", "case"], "cases"),
    ],
)
def test_for_a_word_that_there_is_not_the_nearest_is_told(driftnet, words, meant):
    result = driftnet(*words)
    assert_one_clear_message(result, says=meant)
    assert re.search(rf"(?i)(did you mean|the nearest).*{re.escape(meant)}\b", result[2]), result[2]


def test_a_word_that_is_like_no_value_of_an_option_is_not_corrected(driftnet):
    """One letter of four is another word; all values are told beside it."""
    result = driftnet("support", "--target", "mnn", "--option", "quantize=nope")
    assert_one_clear_message(result, says="it is one of 'none', 'weight-only', 'offline'")
    assert "did you mean" not in result[2], result[2]


@pytest.mark.parametrize("name", ["", *cli.driftnet.commands])
def test_every_help_ends_its_text_with_examples_that_the_command_line_takes(driftnet, name):
    status, out, _ = driftnet(*filter(None, [name]), "--help")
    assert status == 0
    examples = re.findall(r"^ *(?:Examples?:)? +(driftnet [^\n]*?)(?:  .*)?$", out, re.MULTILINE)
    assert examples, f"no example in the help of driftnet {name}"
    for example in examples:
        command, *words = shlex.split(example)[1:]
        # With the settings of the whole: click keeps the help option that it makes.
        whole = click.Context(cli.driftnet, **cli.driftnet.context_settings)
        cli.driftnet.commands[command].make_context(command, words, whole, resilient_parsing=True)
        unknown = {w.partition("=")[0] for w in words if w.startswith("--")} - _options(cli.driftnet.commands[command])
        assert not unknown, f"{example}: there is no {unknown}"


def _options(command):
    return {word for option in command.params for word in option.opts}


def test_nothing_to_reduce_is_said(driftnet, model, tmp_path):
    result = driftnet("reduce", model, "--target", "mnn", "--out", tmp_path / "out")
    assert_one_clear_message(result, says=f"nothing to reduce: mnn agrees on {model}\n")
    assert "your own inputs and options: --inputs, --dim, --option" in result[2]
    assert f"driftnet check {model} --out FOLDER" in result[2], "parts may fail where the whole agrees"


def test_an_unknown_command_is_named(driftnet):
    assert_one_clear_message(driftnet("fuzzz"), says="No such command 'fuzzz'")


def test_an_expected_case_needs_its_rule(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    assert_one_clear_message(driftnet("triage", folder, "--status", "expected"), says="names its rule")
    assert_one_clear_message(driftnet("triage", folder, "--status", "closed"), says="there is no status 'closed'")


def test_with_json_an_error_is_one_object_on_stdout(driftnet, tmp_path):
    for words in (["check", tmp_path / "absent.onnx"], ["fuzz", "--workers", "none"], ["nonsense"]):
        status, out, _ = driftnet(*words, "--json")
        error = json.loads(out)["error"]
        assert status == 2
        assert {"kind", "message", "hint"} <= error.keys()


def test_a_model_that_is_right_exits_0_and_says_so(driftnet, model):
    status, out, _ = driftnet("check", model, "--target", "mnn", "--json")
    (result,) = json.loads(out)["targets"]
    assert (status, result["verdict"], result["vouched"]) == (0, "agrees", 1.0)


def test_a_model_the_reference_refuses_is_invalid_and_exits_2(driftnet, tmp_path):
    proto = onnx.ModelProto.FromString(models.relu().model)
    proto.graph.node[0].input[0] = "nowhere"
    path = tmp_path / "invalid.onnx"
    path.write_bytes(proto.SerializeToString())
    status, out, _ = driftnet("check", path, "--target", "mnn", "--json")
    (result,) = json.loads(out)["targets"]
    assert (status, result["verdict"], result["blame"]) == (2, "invalid", "model")
    assert "nowhere" in result["message"]


def test_a_model_that_declares_a_wrong_shape_is_judged_all_the_same_and_that_is_said(driftnet, tmp_path):
    proto = onnx.ModelProto.FromString(models.relu().model)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    path = tmp_path / "scalar.onnx"
    path.write_bytes(proto.SerializeToString())
    status, out, _ = driftnet("check", path, "--target", "onnxruntime-graph", "--json")
    (result,) = json.loads(out)["targets"]
    assert (status, result["verdict"]) == (0, "agrees"), result["message"]
    assert [said.split(" is declared")[0] for said in result["misdeclared"]] == [proto.graph.output[0].name]
    said = "taken otherwise than it is declared: y is declared []"
    assert said in driftnet("lint", path, "--target", "onnxruntime-graph")[1]
    words = "--from", path, "--cases", 1, "--workers", 1, "--target", "onnxruntime-graph", "--report", tmp_path / "run"
    assert said in driftnet("fuzz", *words)[2]
    words = "--from", path, "--cases", 1, "--out", tmp_path / "made"
    assert "y is declared []" in driftnet("generate", *words)[1]


def test_triage_sets_status_link_and_note_and_brings_a_new_case_in(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path / "report")
    root = tmp_path / "corpus"
    words = ["--status", "fixed", "--upstream", "https://example.org/7", "--note", "mended", "--corpus", root]
    assert driftnet("triage", folder, *words)[0] == 0
    moved = corpus.load(root / "mnn" / folder.name)
    assert (moved.status, moved.upstream, moved.note) == ("fixed", "https://example.org/7", "mended")
    assert corpus.load(folder).status == "open", "the report was changed"


def test_a_case_of_a_check_gets_a_cause_with_a_trigger_in_the_corpus(driftnet, tmp_path):
    loose = replace(corpus.load(saved_case("1f9d8948")), cause=None)
    folder = corpus.save(loose, tmp_path / "checked")
    status, out, _ = driftnet("triage", folder, "--status", "open", "--corpus", tmp_path / "corpus", "--json")
    brought = corpus.load(Path(json.loads(out)["path"]))
    assert (status, brought.id, brought.cause and brought.cause.status) == (0, loose.id, "open")
    assert brought.cause.trigger is not None, "nobody learned when it fails"


def test_a_case_that_replay_would_not_find_is_not_brought_into_the_corpus(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path / "run").rename(tmp_path / "acase")
    words = ["--status", "open", "--corpus", tmp_path / "corpus"]
    assert_one_clear_message(driftnet("triage", folder, *words), says="is called test_")
    assert not (tmp_path / "corpus").exists()
    folder = folder.rename(folder.with_name("test_acase"))
    assert driftnet("triage", folder, *words)[0] == 0
    assert [path.name for path in corpus.folders([tmp_path / "corpus"])] == ["test_acase"]


def test_a_remedy_is_tried_before_it_is_written_down(driftnet, tmp_path):
    known = saved_case("6fc7aa95")
    words = ["triage", known, "--status", "open", "--corpus", tmp_path, "--remedy"]
    refused = driftnet(*words, "disabled_optimizers=NhwcTransformer")
    assert_one_clear_message(refused, says='fails under {"disabled_optimizers": ["NhwcTransformer"]} too')
    assert driftnet(*words, "disabled_optimizers=DoubleQDQPairsRemover")[0] == 0
    brought = corpus.load(tmp_path / "onnxruntime-quant" / known.parent.name / known.name)
    assert brought.remedy == {"disabled_optimizers": ["DoubleQDQPairsRemover"]}
    assert brought.cause.trigger == corpus.load(known).cause.trigger


def test_defaults_come_from_pyproject(driftnet, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.driftnet.generate]\ncases = 3\nseed = 5\nout = "made"\n')
    monkeypatch.chdir(tmp_path)
    assert driftnet("generate")[0] == 0
    assert len(list((tmp_path / "made").glob("test_*/model.onnx"))) == 3


def test_a_broken_pyproject_is_named(driftnet, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.driftnet\n")
    monkeypatch.chdir(tmp_path)
    assert_one_clear_message(driftnet("targets"), says="pyproject.toml cannot be read")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[tool.driftnet.generat]\ncases = 1", "[tool.driftnet.generat] is not a table for one of fuzz, state"),
        ("[tool.driftnet]\ngenerate = 1", "[tool.driftnet.generate] is not a table"),
        ("[tool]\ndriftnet = 1", "[tool.driftnet] is not a table"),
        ("[tool.driftnet.fuzz]\npython = './evil'", "python in [tool.driftnet.fuzz] would run what this file names"),
        ("[tool.driftnet.fuzz]\ntarget = ['mnn', 'evil:T']", "target in [tool.driftnet.fuzz] would run what this file"),
        ("[tool.driftnet.replay]\ntarget = 'evil:T'", "target in [tool.driftnet.replay] would run what this file"),
        ("[tool.driftnet.generate]\ncase = 1", "case in [tool.driftnet.generate] is no option; there is cases, seed"),
        ("[tool.driftnet.generate]\ncases = true", "cases in [tool.driftnet.generate] cannot be True"),
        ("[tool.driftnet.generate]\ncases = '3'", "cases in [tool.driftnet.generate] cannot be '3'"),
        ("[tool.driftnet.generate]\nfocus = 'Conv'", "focus in [tool.driftnet.generate] cannot be 'Conv'"),
        ("[tool.driftnet.generate]\nout = 3", "out in [tool.driftnet.generate] cannot be 3"),
        ("[tool.driftnet.fuzz]\nno-steer = 1", "no-steer in [tool.driftnet.fuzz] cannot be 1"),
    ],
)
def test_defaults_that_mean_nothing_are_named(driftnet, tmp_path, monkeypatch, table, says):
    (tmp_path / "pyproject.toml").write_text(table + "\n")
    monkeypatch.chdir(tmp_path)
    assert_one_clear_message(driftnet("generate", "--cases", "1", "--out", "made"), says=says)


def test_defaults_are_called_like_options(driftnet, tmp_path, monkeypatch):
    table = "[tool.driftnet.fuzz]\ntarget = ['tensorrt']\nworkers = 1\nno-steer = true\nminutes = 1\n"
    (tmp_path / "pyproject.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    assert_one_clear_message(driftnet("fuzz"), says="there is no target 'tensorrt'")


@pytest.mark.parametrize(
    "words", [["lint", "m.onnx"], ["support"], ["bisect", "m"], ["reduce", "m", "--out", "o"], ["generate"]]
)
def test_of_targets_where_one_can_be_named_none_is_dropped(driftnet, words):
    result = driftnet(*words, "--target", "mnn", "--target", "onnxruntime-quant")
    assert_one_clear_message(result, says=f"{words[0]} takes one --target: run it once for each")


@pytest.mark.parametrize(("command", "goes_on"), [("fuzz", True), ("targets", False)])
def test_only_a_run_that_can_go_on_is_told_so_when_the_machine_fails(driftnet, monkeypatch, command, goes_on):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device", "x")

    monkeypatch.setattr(api, command, full)
    result = driftnet(command)
    assert_one_clear_message(result, says="free it or raise the limit, then run this again")
    assert ("--resume" in result[2]) is goes_on


def test_a_report_of_nothing_is_an_error(driftnet, tmp_path):
    result = driftnet("report", tmp_path, "--out", tmp_path / "out")
    assert_one_clear_message(result, says=f"no run and no saved case below {tmp_path}")


def test_a_model_is_reduced_with_the_sizes_and_options_that_are_given(driftnet, tmp_path, monkeypatch):
    tried = []

    def checked(trial, *rest, **how):
        tried.append(trial)
        raise UserError("seen")

    monkeypatch.setattr(checks, "check", checked)
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])
    made = onnx.helper.make_empty_tensor_value_info("y")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [made])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "model.onnx")
    words = ["--target", "mnn", "--dim", "n=3", "--option", "optimize_level=0", "--out", tmp_path / "out"]
    assert_one_clear_message(driftnet("reduce", tmp_path / "model.onnx", *words), says="seen")
    (trial,) = tried
    assert (trial.case.feeds[0]["x"].shape, trial.recipe) == ((3, 4), {"optimize_level": 0})


def test_inputs_and_options_are_of_models_and_saved_cases_have_their_own(driftnet, model, tmp_path):
    words = ["--dim", "batch=2", "--out", tmp_path / "out"]
    result = driftnet("reduce", saved_case("c4a8227f"), *words)
    assert_one_clear_message(result, says="is a saved case, which has inputs and options of its own")
    assert_one_clear_message(driftnet("reduce", model, *words), says="no input of the model has a dim called 'batch'")


def test_an_error_of_driftnet_itself_exits_2_with_its_traceback_on_stderr(driftnet, monkeypatch):
    def slip(**options):
        raise RuntimeError("a slip")

    monkeypatch.setattr(api, "targets", slip)
    status, out, err = driftnet("targets")
    assert (status, out) == (2, "")
    assert "Traceback" in err
    status, out, err = driftnet("targets", "--json")
    assert status == 2
    assert json.loads(out)["error"]["kind"] == "internal"
    assert json.loads(out)["error"]["message"] == "RuntimeError: a slip"
    assert "Traceback" in err


def test_sigterm_ends_a_command_like_ctrl_c(driftnet, monkeypatch):
    ended = []

    def interrupted(**options):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            ended.append("in order")

    monkeypatch.setattr(api, "targets", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    assert_one_clear_message(driftnet("targets"), says="interrupted")
    assert ended == ["in order"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_during_a_check_leaves_no_temporary_folder(tmp_path, model):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "driftnet.cli.main",
            "check",
            str(model),
            "--target",
            "tests.support.mutants:HANGS",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.getcwd()},
    )
    deadline = time.monotonic() + 60
    while not list(temporary.glob("driftnet-*/*/worker-0/case_1/model.onnx")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(temporary.glob("driftnet-*")), process.communicate()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err.decode()
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert not list(temporary.iterdir()), "temporary files stay behind"


def test_one_truncated_case_stops_a_replay_before_anything_runs(driftnet, tmp_path, monkeypatch):
    corpus.save(saved_relu(), tmp_path)
    broken = corpus.save(saved_relu(id="test_relu_89abcdef"), tmp_path)
    (broken / "case.json").write_text('{"schema": 1,')
    monkeypatch.setattr(saved, "replay_one", lambda *args, **options: pytest.fail("a case was run"))
    assert_one_clear_message(driftnet("replay", tmp_path), says="not a whole case.json")


def test_a_fuzz_run_with_a_truncated_case_in_its_corpus_goes_on_and_exits_2(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path / "corpus")
    (folder / "case.json").write_text('{"schema": 1,')
    status, out, err = driftnet("fuzz", "--cases", "1", "--report", tmp_path / "r", "--corpus", tmp_path / "corpus")
    assert status == 2, err
    assert "not a whole case.json" in err
    assert "1 case of 1 model" in out


@pytest.mark.parametrize(
    ("verdict", "blame"),
    [
        (Verdict(Word.ABSTAINS, message="the reference crashes: SIGSEGV"), "reference"),
        (Verdict(Word.ABSTAINS, message="an operation may round"), ""),
        (Verdict(Word.INVALID, message="the reference refuses the model: no"), "model"),
        (Verdict(Word.CRASHES, stage="convert", kind="SIGSEGV"), "mnn"),
        (Verdict(Word.AGREES), ""),
    ],
)
def test_blame_is_put_where_it_belongs(driftnet, model, monkeypatch, verdict, blame):
    monkeypatch.setattr(checks, "check", lambda *args, **options: Checked(verdict))
    _, out, _ = driftnet("check", model, "--target", "mnn", "--json")
    assert json.loads(out)["targets"][0]["blame"] == blame


def test_a_dim_that_no_input_has_is_named_with_those_there_are(driftnet, model, tmp_path):
    assert_one_clear_message(driftnet("check", model, "--dim", "Z=3"), says="symbolic dims of its inputs: none")
    symbolic = models.case(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        {"x": models.grid((2, 4))},
        outputs=[("y", onnx.TensorProto.FLOAT, ("N", "T"))],
        shapes={"x": ("N", "T")},
    )
    path = tmp_path / "symbolic.onnx"
    path.write_bytes(symbolic.model)
    assert_one_clear_message(driftnet("check", path, "--dim", "Z=3"), says="symbolic dims of its inputs: N, T")


def test_an_out_that_cannot_be_written_is_named_before_anything_runs(driftnet, model, tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setattr(checks, "check", lambda *args, **options: pytest.fail("the check began"))
    monkeypatch.setattr(benchmarks, "run", lambda name: pytest.fail("the benchmark began"))
    assert_one_clear_message(driftnet("check", model, "--out", blocked / "x"), says="cannot write into")
    assert_one_clear_message(driftnet("reduce", model, "--out", blocked / "x"), says="cannot write into")
    assert_one_clear_message(driftnet("bench", "--out", blocked / "x"), says="cannot write into")
    assert_one_clear_message(driftnet("bench", "--out", tmp_path), says="it is a folder")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        '{"name": "cases"}',
        *(
            json.dumps(r)
            for r in (
                {"name": "cases", "measures": {"a": "fast"}, "machine": {}},
                {"name": "cases", "measures": [1], "machine": {}},
                {"name": 3, "measures": {}, "machine": {}},
            )
        ),
    ],
)
def test_a_file_that_is_no_benchmark_result_is_named(driftnet, tmp_path, text):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"name": "cases", "measures": {"a": 2.0}, "machine": {}}))
    bad.write_text(text)
    assert_one_clear_message(driftnet("bench", "--compare", good, bad), says="bad.json is no benchmark result")
    assert_one_clear_message(driftnet("bench", "--compare", bad, good), says="bad.json is no benchmark result")


def test_a_comparison_of_benchmarks_can_be_written_too(driftnet, tmp_path):
    for name, value in (("a", 2.0), ("b", 3.0)):
        result = {"name": "cases", "measures": {"rate": value}, "machine": {}}
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    words = ["--compare", tmp_path / "a.json", tmp_path / "b.json", "--out", tmp_path / "c.json", "--json"]
    status, out, _ = driftnet("bench", *words)
    assert status == 0
    assert json.loads(out) == json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert json.loads(out)["before"] == {"rate": 2.0}
    assert not list(tmp_path.glob(".*")), "a draft stays behind"


def test_an_interpreter_can_be_named(driftnet, model, tmp_path):
    status, out, _ = driftnet("check", model, "--target", "mnn", "--python", sys.executable, "--json")
    assert (status, json.loads(out)["targets"][0]["verdict"]) == (0, "agrees")


def test_an_interpreter_that_there_is_not_is_named(driftnet, model, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path / "cases")
    for words in (
        ["check", model],
        ["replay", folder],
        ["reduce", folder, "--out", tmp_path / "out"],
        ["fuzz", "--cases", "1", "--report", tmp_path / "report"],
    ):
        assert_one_clear_message(driftnet(*words, "--python", "/no/such/python"), says="no interpreter /no/such/python")


def test_where_the_network_cannot_be_cut_off_a_warning_is_on_stderr(driftnet, model, monkeypatch):
    monkeypatch.setattr(Runner, "network_isolated", False)
    status, out, err = driftnet("check", model, "--target", "mnn", "--json")
    assert (status, json.loads(out)["network_isolated"]) == (0, False)
    assert err.startswith("warning: this system grants no network namespace")
    monkeypatch.setattr(Runner, "network_isolated", True)
    again = driftnet("check", model, "--target", "mnn", "--json")[2]
    assert "warning" not in again, f"nothing is to be warned of, got {again}"  # of slow machines it tells progress


def test_targets_says_whether_the_network_is_cut_off(driftnet):
    status, out, _ = driftnet("targets", "--json")
    assert status == 0
    assert {type(target["network_isolated"]) for target in json.loads(out)["targets"]} == {bool}


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("streams", ["stdout=read-by-nobody", "stdout=closed", "stderr=read-by-nobody"])
def test_the_status_is_true_where_nobody_reads_what_is_said(tmp_path, as_json, streams):
    """A broken pipe used to end a run with 1, which says that there is a new finding."""
    name, how = streams.split("=")
    ours, theirs = os.pipe()
    os.close(ours)
    words = ["replay", str(min((CORPUS / "onnxruntime-quant").rglob("case.json")).parent), "--runs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "driftnet.cli.main", *words, *(["--json"] if as_json else [])],
        preexec_fn=(lambda: os.close(1)) if how == "closed" else None,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE} | ({name: theirs} if how != "closed" else {}),
    )
    os.close(theirs)
    assert done.returncode == 3, done.stderr
    assert not done.stderr, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fuzz", "--help"], ["fuzz", "--workers", "0"]])
def test_what_runs_nothing_imports_no_library_of_arrays_or_models(words):
    heavy = ("numpy", "onnx", "jinja2", "msgspec", "driftnet.findings")
    code = (
        "import sys\nfrom driftnet.cli.main import main\ntry:\n    main(sys.argv[1:])\n"
        f"finally:\n    print('imported:', *[name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "imported:", f"driftnet {' '.join(words)} needs none of these: {done.stdout}"


def test_a_terminal_obeys_no_name_of_a_model(driftnet, model, tmp_path):
    proto = onnx.ModelProto.FromString(model.read_bytes())
    hostile = "\x1b]0;gone\x07\x9b31m\u202ex"
    proto.graph.input[0].name = proto.graph.node[0].input[0] = hostile
    model.write_bytes(proto.SerializeToString())
    said = driftnet("check", model, "--target", "onnxruntime-graph")
    assert said[0] == 0, said
    assert "?]0;gone?31m?x" in said[1]
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value=hostile)
    model.write_bytes(proto.SerializeToString())
    refused = driftnet("check", model, "--target", "onnxruntime-graph")
    assert refused[0] == 2, refused
    assert set("\x1b\x07\x9b\u202e").isdisjoint("".join(map(str, [*said, *refused])))
