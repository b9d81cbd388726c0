"""Pages are whole by themselves, say what was found, and take nothing in a case for markup."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.campaign.events import Found
from driftnet.campaign.summary import Summary, Tally
from driftnet.cli import main as cli
from driftnet.cli.report import campaign, overview, pages, progress
from driftnet.findings import corpus
from rich.console import Console

from tests.support import field_models, models
from tests.support.html import assert_whole
from tests.support.paths import no_cases, saved_case


def planted():
    node = onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], name="/head/Conv", kernel_shape=[2, 2])
    constants = {"w": models.grid((3, 2, 2, 2)), "b": models.grid((3,)) + 1}
    return models.case([node], {"x": models.grid((1, 2, 5, 5))}, constants, outputs=[("y", 1, (1, 3, 4, 4))])


def test_the_page_of_a_check_shows_the_fault_its_picture_and_how_to_see_it_again(tmp_path, capsys):
    model = tmp_path / "head <b>.onnx"
    model.write_bytes(planted().model)
    np.savez(tmp_path / "fed.npz", **planted().feeds[0])
    words = [
        "check",
        str(model),
        "--target",
        "tests.support.mutants:LOSES_BIAS",
        "--out",
        str(tmp_path),
        "--corpus",
        str(no_cases(tmp_path)),
    ]
    words += ["--inputs", str(tmp_path / "fed.npz")]
    before = corpus.save(corpus.load(saved_case("c4a8227f")), tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--json"])
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert end.value.code == 1
    page = assert_whole(Path(result["page"]))
    assert f"{tmp_path} holds cases that this check did not write: {before}\n" in err
    (fault,) = result["targets"][0]["faults"]
    for part in (
        "head <b>.onnx",
        fault["message"],
        "/head/Conv",
        "Verified",
        "Exit status 1.",
        "cases that this check did not write",
        before.name,
        "Errors along the depth of the model",
        "Where it lies",
        "The wrong tensor",
        "error / bound",
        "default recipe",
        "reproduce.py",
    ):
        assert part in page.text, f"{part!r} is not on the page"
    assert f"--inputs {tmp_path / 'fed.npz'} --target" in page.text, "the command feeds what was fed"
    assert f"driftnet replay {fault['reduced']['path']}" in page.text
    assert [drawn["class"] for drawn in page.all("svg")[:4]] == ["plot", "graph", "plot", "graph"]
    assert page.all("meter") != []


def test_the_page_of_a_check_of_several_targets_starts_with_a_table_of_them(tmp_path):
    onnx.save(field_models.dual_path_with_unregistered_norm(), tmp_path / "norm.onnx")
    result = api.check(tmp_path / "norm.onnx", api.CheckSettings(corpus=tmp_path / "none"))
    page = assert_whole(pages.write_check(result, tmp_path / "norm.onnx", tmp_path))
    assert {a["href"] for a in page.all("a")} == {"#t1", "#t2", "#t3"}
    assert page.text.count("rejects") == 6, "in the table, and over each section"
    assert "in a sandbox that has no network" in page.text, "a network that is cut off reads like the model"


def test_a_finding_that_does_not_always_come_back_is_told_so(tmp_path, capsys):
    saved = corpus.load(saved_case("c4a8227f"))
    path = corpus.save(dataclasses.replace(saved, runs=5, reproduced=1), tmp_path)
    summary = Summary(seed=0, cases=0, models=0, next_index=0)
    Tally(tmp_path, summary)(Found(0, str(path), "1"))
    campaign.ended(Console(width=80), summary.as_json(), tmp_path, status=1)
    assert "shows in 1 of 5 runs" in capsys.readouterr().out
    overview.write_report(api.report([path], out=tmp_path / "out"), tmp_path / "out")
    assert "shows in 1 of 5 runs" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_a_finding_that_is_not_reduced_to_the_end_is_told_with_the_command_that_goes_on(tmp_path, capsys):
    saved = corpus.load(saved_case("c4a8227f"))
    path = corpus.save(dataclasses.replace(saved, unfinished=True), tmp_path)
    summary = Summary(seed=0, cases=0, models=0, next_index=0)
    Tally(tmp_path, summary)(Found(0, str(path), "1"))
    command = f"driftnet reduce {path} --out DIR"
    campaign.ended(Console(width=80), summary.as_json(), tmp_path, status=1)
    assert command in capsys.readouterr().out
    progress.write(summary.as_json(), tmp_path)
    assert command in (tmp_path / "summary.md").read_text(encoding="utf-8")
    overview.write_report(api.report([path], out=tmp_path / "out"), tmp_path / "out")
    assert command in next((tmp_path / "out" / "causes").glob("*.html")).read_text(encoding="utf-8")


def test_a_run_that_examined_nothing_is_not_said_to_have_found_nothing_only(tmp_path, capsys):
    summary = Summary(seed=0, cases=0, models=0, next_index=0)
    campaign.ended(Console(width=100), summary.as_json(), tmp_path, status=0)
    assert "nothing was examined" in capsys.readouterr().out
