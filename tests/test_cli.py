"""The command line: bad input is one clear message with what to do, exit status 2, and never a traceback."""

import json

import numpy as np
import onnx
import pytest

from harness import cli, corpus
from tests import models
from tests.test_corpus import saved_relu


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


@pytest.mark.parametrize("content", [b"", b"this is no model", b"\x08\x07\x12"])
def test_a_corrupt_model_is_named(driftnet, tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    assert_one_clear_message(driftnet("check", path), says="broken.onnx is not an ONNX model")


def test_a_missing_model_is_named(driftnet, tmp_path):
    assert_one_clear_message(driftnet("check", tmp_path / "absent.onnx"), says="no such file")


def test_an_unknown_target_is_named_with_what_there_is(driftnet, model):
    assert_one_clear_message(driftnet("check", model, "--target", "tensorrt"), says="tensorrt")
    assert_one_clear_message(driftnet("fuzz", "--target", "tensorrt", "--cases", "1"), says="onnxruntime-quant")


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
        (["--timeout", "0"], "0.1"),
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


def test_an_unknown_focus_is_named_with_what_there_is(driftnet, tmp_path):
    result = driftnet("generate", "--cases", "1", "--focus", "Konv", "--out", tmp_path)
    assert_one_clear_message(result, says="ConvTranspose")


def test_a_truncated_case_is_named(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    (folder / "case.json").write_text('{"schema": 1,')
    assert_one_clear_message(driftnet("replay", tmp_path), says="not a whole case.json")


def test_nothing_to_replay_is_said(driftnet, tmp_path):
    assert_one_clear_message(driftnet("replay", tmp_path), says="no saved case below")
    assert_one_clear_message(driftnet("replay", tmp_path / "absent"), says="no case and no folder of cases")


def test_nothing_to_reduce_is_said(driftnet, model, tmp_path):
    result = driftnet("reduce", model, "--target", "mnn", "--out", tmp_path / "out")
    assert_one_clear_message(result, says="nothing to reduce: mnn agrees")


def test_an_unknown_command_is_named(driftnet):
    assert_one_clear_message(driftnet("fuzzz"), says="No such command 'fuzzz'")


def test_an_expected_case_needs_its_rule(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path)
    assert_one_clear_message(driftnet("triage", folder, "--status", "expected"), says="names its rule")
    assert_one_clear_message(driftnet("triage", folder, "--status", "closed"), says="a case cannot be 'closed'")


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


def test_triage_sets_status_link_and_note_and_brings_a_new_case_in(driftnet, tmp_path):
    folder = corpus.save(saved_relu(), tmp_path / "report")
    root = tmp_path / "corpus"
    words = ["--status", "fixed", "--upstream", "https://example.org/7", "--note", "mended", "--corpus", root]
    assert driftnet("triage", folder, *words)[0] == 0
    moved = corpus.load(root / "mnn" / folder.name)
    assert (moved.status, moved.upstream, moved.note) == ("fixed", "https://example.org/7", "mended")
    assert corpus.load(folder).status == "open", "the report was changed"


def test_defaults_come_from_pyproject(driftnet, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.driftnet.generate]\ncases = 3\nseed = 5\nout = "made"\n')
    monkeypatch.chdir(tmp_path)
    assert driftnet("generate")[0] == 0
    assert len(list((tmp_path / "made").glob("test_*/model.onnx"))) == 3


def test_a_broken_pyproject_is_named(driftnet, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.driftnet\n")
    monkeypatch.chdir(tmp_path)
    assert_one_clear_message(driftnet("targets"), says="pyproject.toml cannot be read")
