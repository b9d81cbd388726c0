"""An anonymized case fails as before, and holds nothing of the original that the failure does not need."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from driftnet.cli import main as cli
from driftnet.findings import corpus
from driftnet.findings.pursuing import Finding
from driftnet.findings.trial import Trial, confirm
from driftnet.handover.anonymize import anonymize, anonymized
from driftnet.model.signature import Signature, coarse, fine
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models
from tests.support.paths import no_cases

SECRETS = (b"customer", b"Acme", b"secret")


def telling_case(bias=(0.15625, 0.71875), label="customer_face"):
    """Conv and Relu with names, texts and weights that would tell whose model it is."""
    conv = helper.make_node("Conv", [label, "acme_w", "acme_b"], ["secret_t"], name="/Acme/secret/Conv")
    case = models.case(
        [conv, helper.make_node("Relu", ["secret_t"], ["customer_score"])],
        {label: np.array([[[[0.8125, 0.4375], [0.28125, 0.65625]]]], np.float32)},
        {
            "acme_w": np.array([0.390625, 0.921875], np.float32).reshape(2, 1, 1, 1),
            "acme_b": np.array(bias, np.float32),
        },
        outputs=[("customer_score", TensorProto.FLOAT, ["customer_batch", 2, 2, 2])],
        shapes={label: ["customer_batch", 1, 2, 2]},
    )
    model = onnx.ModelProto.FromString(case.model)
    model.producer_name, model.doc_string, model.graph.doc_string = "Acme", "secret", "secret"
    model.graph.name = "customer"
    model.graph.node[0].doc_string = "secret"
    helper.set_model_props(model, {"customer": "Acme"})
    return dataclasses.replace(case, model=model.SerializeToString(), origin={"file": "customer.onnx"})


def weights(case):
    return np.concatenate([onnx.numpy_helper.to_array(t).ravel() for t in case.proto.graph.initializer])


def test_what_the_failure_does_not_need_is_replaced():
    case = telling_case()
    found = anonymize(case, lambda candidate: True)
    assert found.remained == ()
    assert not [word for word in SECRETS if word in found.case.model]
    assert found.case.origin == {}
    assert {*found.case.feeds[0]} == {"x"}
    assert not np.isin(weights(case), weights(found.case)).any(), "a weight is still there"
    assert not np.isin(case.feeds[0]["customer_face"], found.case.feeds[0]["x"]).any(), "an input is still there"
    assert [node.op_type for node in found.case.proto.graph.node] == ["Conv", "Relu"], "the structure is the failure"


def test_a_value_that_the_failure_needs_stays_and_is_named():
    found = anonymize(telling_case(), lambda candidate: 0.71875 in weights(candidate))
    assert 0.71875 in weights(found.case)
    assert [text for text in found.remained if "initializer" in text] == ["1 of 2 values of initializer 'w1'"]
    assert 0.15625 not in weights(found.case)


def test_a_name_that_the_failure_needs_stays_and_is_named():
    found = anonymize(telling_case(), lambda candidate: b"customer_face" in candidate.model)
    assert found.remained == ("the name 'customer_face'",)
    assert b"Acme" not in found.case.model
    assert b"customer_score" not in found.case.model


def test_texts_and_large_integers_are_replaced_too():
    nodes = [helper.make_node("Gather", ["table", "secret_ids"], ["y"])]
    words = np.array(["customer", "Acme", "customer"] + ["secret"] * 47, object)
    feed = {"secret_ids": np.array([17, 42], np.int64)}
    case = models.case(nodes, feed, {"table": words}, outputs=[("y", TensorProto.STRING, [2])])
    found = anonymize(case, lambda candidate: True)
    assert found.remained == ()
    assert not [word for word in SECRETS if word in found.case.model]
    assert {*found.case.feeds[0]["x"].ravel().tolist()} - {17, 42}, "the input still holds the original's numbers"


def test_a_finding_is_confirmed_and_described_anew(runner):
    installed, case = resolve("tests.support.mutants:LOSES_BIAS"), telling_case()
    verdict, reproduced, _ = confirm(Trial(case, installed, {}, runner))
    sign = coarse(installed.target.name, verdict)
    expected = runner.reference.run(case).outputs
    finding = Finding(
        case,
        expected,
        installed,
        {},
        verdict,
        Signature(sign, fine(sign, case)),
        5,
        reproduced,
        "customer_face was wrong",
    )
    again, remained = anonymized(finding, runner)
    assert again.verdict.failed
    assert again.reproduced == again.runs
    assert again.signature.coarse == sign
    assert remained == ()
    assert np.array_equal(again.expected[0]["y"], runner.reference.run(again.case).outputs[0]["y"])
    assert "customer" not in json.dumps([again.verdict.as_json(), again.symptom, dict(again.case.origin)])


def test_check_writes_nothing_of_the_original(tmp_path, capsys):
    case, out = telling_case(), tmp_path / "out"
    (tmp_path / "customer.onnx").write_bytes(case.model)
    np.savez(tmp_path / "inputs.npz", **case.feeds[0])
    words = [
        "--target",
        "tests.support.mutants:LOSES_BIAS",
        "--inputs",
        tmp_path / "inputs.npz",
        "--corpus",
        no_cases(tmp_path),
    ]
    with pytest.raises(SystemExit) as end:
        cli.main(
            [str(word) for word in ("check", tmp_path / "customer.onnx", *words, "--out", out, "--anonymize", "--json")]
        )
    assert end.value.code == 1
    (one,) = json.loads(capsys.readouterr().out)["targets"]
    assert one["reduced"]["remained"] == []
    assert "goes away with" in (out / "check.html").read_text(encoding="utf-8"), (
        "the page of an anonymous check is empty"
    )
    written = [path for path in out.rglob("*") if path.is_file()]
    assert {"model.onnx", "ISSUE.md", "reproduce.py", "case.json"} <= {path.name for path in written}
    (script,) = out.rglob("reproduce.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env={})
    assert done.returncode == 1, f"the script does not show the bug of the target's own converter: {done.stdout}"
    leaks = [path.name for path in written for word in SECRETS if word.lower() in path.read_bytes().lower()]
    assert not leaks
    assert corpus.load(corpus.folders([out])[0]).verdict.word == "diverges"


def test_whatever_cannot_be_shown_again_is_not_written(runner):
    installed, case = resolve("mnn"), telling_case()
    verdict = dataclasses.replace(confirm(Trial(case, installed, {}, runner))[0], kind="wrong-values")
    finding = Finding(case, (), installed, {}, verdict, Signature("mnn/execute/wrong-values", ""), 5, 5)
    assert anonymized(finding, runner)[0] is None, "nothing fails here"
