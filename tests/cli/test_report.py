"""Pages are whole by themselves, say what was found, and take nothing in a case for markup."""

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.campaign.events import Examined, Found
from driftnet.campaign.summary import Summary, Tally
from driftnet.cli import main as cli
from driftnet.cli.report import campaign, pages, progress, tables
from driftnet.findings import corpus
from driftnet.model.verdict import Verdict, Word
from driftnet.util.errors import UserError
from rich.console import Console

from tests.support import field_models, models
from tests.support.paths import CORPUS

VOID = {"meta", "br", "input", "link"}


class Page(HTMLParser):
    """The elements of a page, their attributes, and its text; complains of elements that are not closed."""

    def __init__(self, path):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open, f"{path}: {self.open} stay open"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def assert_whole(path):
    """A page without anything from elsewhere, that a screen reader can make sense of."""
    page = Page(path)
    for tag, attributes in page.elements:
        assert tag not in ("img", "link", "iframe"), f"{path} is not whole by itself"
        assert "src" not in attributes
    links = [attributes["href"] for _, attributes in page.elements if attributes.get("href")]
    dead = [href for href in links if not href.startswith("#") and not (path.parent / href).exists()]
    assert dead == [], f"{path} has links that lead nowhere"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len({*ids}), "two elements have one id"
    assert page.all("html") == [{"lang": "en"}]
    assert all("scope" in th for th in page.all("th")), "a head of a column or row says which it is"
    assert [svg for svg in page.all("svg") if not {"aria-label", "aria-hidden"} & svg.keys()] == [], (
        "pictures without words"
    )
    return page


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
        "none",
    ]
    words += ["--inputs", str(tmp_path / "fed.npz")]
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert end.value.code == 1
    page = assert_whole(Path(result["page"]))
    (fault,) = result["targets"][0]["faults"]
    for part in (
        "head <b>.onnx",
        fault["message"],
        "/head/Conv",
        "Verified",
        "error / bound",
        "default recipe",
        "reproduce.py",
    ):
        assert part in page.text, f"{part!r} is not on the page"
    assert f"--inputs {tmp_path / 'fed.npz'} --target" in page.text, "the command feeds what was fed"
    assert f"driftnet replay {fault['reduced']['path']}" in page.text
    assert page.all("svg")[0]["class"] == "graph"
    assert page.all("meter") != []


def test_the_page_of_a_check_of_several_targets_starts_with_a_table_of_them(tmp_path):
    onnx.save(field_models.dual_path_with_unregistered_norm(), tmp_path / "norm.onnx")
    result = api.check(tmp_path / "norm.onnx", api.CheckSettings(corpus=tmp_path / "none"))
    page = assert_whole(pages.write_check(result, tmp_path / "norm.onnx", tmp_path))
    assert {a["href"] for a in page.all("a")} == {"#t1", "#t2", "#t3"}
    assert page.text.count("rejects") == 6, "in the table, and over each section"


def test_an_index_leads_to_a_page_for_each_case(tmp_path):
    cases = [path for name in ("mnn*gemm*", "*qlinear*", "mnn*_if_*") for path in sorted(CORPUS.rglob(f"test_{name}"))]
    result = api.report(cases, out=tmp_path / "deep" / "out")
    index = pages.write_report(result, tmp_path / "deep" / "out")
    page = assert_whole(index)
    links = [a["href"] for a in page.all("a")]
    assert len({*links}) == len(cases)
    for row in result["cases"]:
        link = f"cases/{row['target']}-{row['id']}.html"
        assert link in links, f"no link to {link}"
        case = assert_whole(index.parent / link)
        for part in (row["what"], row["id"], row["kind"], "The model as text", "driftnet replay"):
            assert part in case.text, f"{part!r} is not on {link}"


def test_nothing_in_a_case_is_markup(tmp_path):
    hostile = "<script>alert(1)</script>\"'&"
    saved = dataclasses.replace(
        corpus.load(next(CORPUS.rglob("test_mnn*gemm*"))), note=hostile, upstream="javascript:x"
    )
    folder = corpus.save(saved, tmp_path)
    index = pages.write_report(api.report([folder], out=tmp_path / "out"), tmp_path / "out")
    for path in (index, *index.parent.glob("cases/*.html")):
        page = Page(path)
        assert hostile in page.text
        assert len(page.all("script")) == (path == index)
        assert not [a for a in page.all("a") if "javascript" in a["href"]]


def test_a_run_is_counted_on_the_index(tmp_path):
    summary = Summary(seed=3, cases=0, models=0, next_index=0)
    Tally(tmp_path / "cases", summary)(Examined(0, "mnn", "1", {}, Verdict(Word.AGREES), operators=("Add",)))
    progress.write(summary.as_json(), tmp_path)
    result = api.report([tmp_path], out=tmp_path / "html")
    assert result["runs"] == [
        {"path": str(tmp_path), "cases": 1, "verdicts": {"agrees": 1}, "new": 0, "known": 0, "cpu_seconds": 0.0}
    ]
    page = assert_whole(pages.write_report(result, tmp_path / "html"))
    assert "1 agrees" in page.text
    assert "0 causes" in page.text


def test_a_finding_that_is_not_reduced_to_the_end_is_told_with_the_command_that_goes_on(tmp_path, capsys):
    saved = corpus.load(min(CORPUS.rglob("test_mnn*gemm*")))
    path = corpus.save(dataclasses.replace(saved, unfinished=True), tmp_path)
    summary = Summary(seed=0, cases=0, models=0, next_index=0)
    Tally(tmp_path, summary)(Found(0, str(path), "1"))
    command = f"driftnet reduce {path} --out DIR"
    campaign.ended(Console(width=80), summary.as_json(), tmp_path, status=1)
    assert command in capsys.readouterr().out
    progress.write(summary.as_json(), tmp_path)
    assert command in (tmp_path / "summary.md").read_text(encoding="utf-8")
    pages.write_report(api.report([path], out=tmp_path / "out"), tmp_path / "out")
    assert command in next((tmp_path / "out" / "cases").glob("*.html")).read_text(encoding="utf-8")


def test_a_summary_that_is_none_is_named(tmp_path):
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(UserError, match="is no summary of a run"):
        api.report([tmp_path], out=tmp_path)


def test_the_command_says_where_the_page_is(tmp_path, capsys):
    case = min(CORPUS.rglob("test_mnn*gemm*"))
    with pytest.raises(SystemExit) as end:
        cli.main(["report", str(case), "--out", str(tmp_path), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert end.value.code == 0
    assert result["page"] == str(tmp_path / "index.html")
    assert [c["id"] for c in result["cases"]] == [case.name]
    tables.report(Console(), result)
    assert "1 case, 0 runs: " in capsys.readouterr().out
