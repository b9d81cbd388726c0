"""The overview of causes and the page of each: what was found, beside what should be, whole by themselves."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from driftnet import api
from driftnet.campaign.events import Begun, Done, Ended, Examined, Found
from driftnet.campaign.journal import Journal
from driftnet.campaign.summary import derived, write
from driftnet.cli import main as cli
from driftnet.cli.report import overview, tables
from driftnet.cli.report.comparison import MOST_ELEMENTS, compared
from driftnet.findings import corpus
from driftnet.model.arrays import distance
from driftnet.model.verdict import Verdict, Word
from driftnet.util.errors import UserError
from rich.console import Console

from tests.support.html import Page, assert_whole
from tests.support.paths import CORPUS, saved_case

GEMM = saved_case("d9a741f5")
AGREES = Verdict(Word.AGREES)


def run(folder, *, known=(), new=(), clean=0):
    """The report of a run that met these saved cases, one a model, and models of an Add and of a Relu that agree."""
    cases = folder / "cases"
    cases.mkdir(parents=True)
    saved = [*map(corpus.load, known), *map(corpus.load, new)]
    journal = Journal(folder)
    journal.write(Begun(7))
    for index, one in enumerate(saved):
        path = str(one.path) if index < len(known) else ""
        operators = tuple(node.op_type for node in one.case.proto.graph.node)
        journal.write(Examined(index, one.target, "1", {}, one.verdict, known=path, operators=operators))
        if not path:
            journal.write(Found(index, str(corpus.save(dataclasses.replace(one, cause=None), cases)), "1"))
        journal.write(Done(index))
    for index in range(len(saved), len(saved) + clean):
        journal.write(Examined(index, "mnn", "1", {}, AGREES, operators=("Add", "Gemm")))
        journal.write(Done(index))
    journal.write(Ended(1.0, 2.0))
    write(derived(folder, cases)[0], folder)
    return folder


def written(paths, out, **given):
    """The page of the overview, and what it was made of."""
    result = api.report(paths, out=out)
    return assert_whole(overview.write_report(result, out, **given)), result


def test_the_overview_leads_to_a_page_for_each_cause_that_shows_all_its_cases(tmp_path):
    cases = [path for name in ("mnn*gemm*", "*qlinear*", "mnn*_if_*") for path in sorted(CORPUS.rglob(f"test_{name}"))]
    page, result = written(cases, tmp_path / "deep" / "out")
    links = [a["href"] for a in page.all("a")]
    assert {row["id"] for row in result["cases"]} == {path.name for path in cases}
    assert {a for a in links if not a.startswith("#")} == {overview.page_of(row) for row in result["cases"]}
    for row in result["cases"]:
        link = overview.page_of(row)
        shown = assert_whole(tmp_path / "deep" / "out" / link)
        for part in (row["message"].strip(), row["id"], row["kind"], "The model as text", "driftnet replay"):
            assert part in shown.text, f"{part!r} is not on {link}"
        assert f"../files/{row['id'][-8:]}/model.onnx" in [a["href"] for a in shown.all("a")]


def test_nothing_in_a_case_is_markup(tmp_path):
    hostile = "<script>alert(1)</script>\"'& `<b>`"
    saved = corpus.load(saved_case("c4a8227f"))
    verdict = dataclasses.replace(saved.verdict, message=hostile, output=hostile)
    saved = dataclasses.replace(saved, note=hostile, upstream="javascript:x", verdict=verdict)
    folder = corpus.save(saved, tmp_path)
    (folder / "ISSUE.md").write_text(hostile)
    index = overview.write_report(api.report([folder], out=tmp_path / "out"), tmp_path / "out")
    for path in (index, *index.parent.glob("causes/*.html")):
        page = Page(path)
        assert hostile in page.text
        assert len(page.all("script")) == (path == index)
        assert page.all("b") == [], "what stands between backticks is text too"
        assert not [a for a in page.all("a") if "javascript" in a["href"]]


def test_each_cause_can_be_filtered_by_what_it_is(tmp_path):
    page, result = written(sorted(CORPUS.rglob("test_*softmax*")), tmp_path)
    rows = [tr for tr in page.all("tr") if "data-target" in tr]
    assert len(rows) == len({row["cause"] for row in result["cases"]})
    for tr, row in zip(rows, {row["cause"]: row for row in reversed(result["cases"])}.values(), strict=True):
        assert {name for name in tr if name.startswith("data-")} == {
            *("data-target", "data-severity", "data-stage", "data-kind", "data-status", "data-operator")
        }, row
    offered = {select["data-by"] for select in page.all("select")}
    assert offered >= {"target", "severity", "stage", "kind", "operator"}
    labelled = {label["for"] for label in page.all("label")}
    assert {field["id"] for field in (*page.all("select"), *page.all("input"))} == labelled


def test_a_run_is_counted_with_its_operators_by_verdict_and_its_causes_over_models(tmp_path):
    result_dir = run(tmp_path / "run", known=[GEMM, GEMM], clean=2)
    page, result = written([result_dir], tmp_path / "html")
    (counted,) = result["runs"]
    assert counted["verdicts"] == {"diverges": 2, "agrees": 2}
    assert (counted["new"], counted["known"]) == (0, 1)
    assert result["operators"]["Gemm"] == {"diverges": 2, "agrees": 2}
    assert result["operators"]["Add"] == {"agrees": 2}
    assert result["growth"] == [[0, 0], [1, 1], [4, 1]], "the cause was met by the first of four models"
    assert "1 distinct causes, new and known, after 4 models" in page.text
    heat = [th for th in page.all("th") if th["scope"] == "row"]
    assert len(heat) == 1, "Gemm stands in the map; Add was in no case that failed"
    assert "1 more operators were in no case that failed" in page.text


def test_the_curve_ends_with_all_causes_that_are_listed(tmp_path):
    folder = run(tmp_path / "run", known=[GEMM], new=[saved_case("b68c767f")])
    lines = (folder / "journal").glob("*")
    for path in lines:  # of what was learned last no event may tell
        path.write_bytes(b"".join(x for x in path.read_bytes().splitlines(True) if b'"found"' not in x))
    page, result = written([folder], tmp_path / "html")
    assert result["growth"][-1] == [2, 2]
    assert "2 distinct causes, new and known, after 2 models" in page.text


def test_what_a_run_met_that_is_known_stands_behind_what_is_new(tmp_path):
    other = saved_case("b68c767f")
    folder = run(tmp_path / "run", known=[GEMM], new=[other])
    page, result = written([folder], tmp_path / "html")
    assert [(row["id"], row["status"]) for row in result["cases"]] == [(other.name, "new"), (GEMM.name, "open")]
    assert [tr["data-status"] for tr in page.all("tr") if "data-status" in tr] == ["new", "open"]
    assert "2 causes, 1 new" in page.text
    assert "1 of onnxruntime-quant, 1 of mnn. They show in 2 cases" in page.text
    told = [Page(tmp_path / "html" / overview.page_of(row)).text for row in result["cases"]]
    assert ["When it fails was not learned" in text for text in told] == [True, False], "only one has a cause"


def test_a_run_is_compared_with_the_one_before_it(tmp_path):
    other = saved_case("b68c767f")
    before, now = run(tmp_path / "a", known=[GEMM]), run(tmp_path / "b", known=[GEMM, other])
    os.utime(before / "summary.json", (1, 1))
    page, result = written([now], tmp_path / "html")
    cause = {path: corpus.load(path).cause.id for path in (GEMM, other)}
    assert result["compared"]["appeared"] == [cause[other]]
    assert result["compared"]["not_met"] == []
    assert result["compared"]["both"] == {cause[GEMM]: [1, 1]}
    assert "1 met only now" in page.text
    assert written([now, before], tmp_path / "html")[1]["compared"]["not_met"] == [cause[other]], "in the order given"
    assert written([before], tmp_path / "html")[1]["compared"] is None, "nothing was before it"


def test_actual_values_stand_beside_expected_ones_with_those_that_are_wrong_marked(tmp_path):
    result = api.report([GEMM], out=tmp_path)
    answers = api.answers(result)
    assert [*answers] == [GEMM.name]
    overview.write_report(result, tmp_path, answers)
    page = assert_whole(tmp_path / overview.page_of(result["cases"][0]))
    saved, answer = corpus.load(GEMM), answers[GEMM.name]
    wrong = int((distance(answer.outputs[0]["y"], saved.expected[0]["y"]) > saved.verdict.bound).sum())
    assert len([tr for tr in page.all("tr") if tr.get("class") == "wrong"]) == min(wrong, MOST_ELEMENTS) > 0
    assert f"Output y: {wrong} wrong" in " ".join(page.text.split())


def answered(saved, outputs):
    return api.Answer("1", saved.verdict, ({"y": outputs},))


def test_an_element_is_wrong_that_is_off_by_more_than_the_bound():
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    saved = corpus.load(GEMM)
    verdict = dataclasses.replace(saved.verdict, output="y", feed=0, bound=0.5, at=(1, 1))
    saved = dataclasses.replace(saved, expected=({"y": expected},), verdict=verdict)
    actual = expected.copy()
    actual[1, 1], actual[0, 2] = np.nan, 2.25
    (one,) = compared(saved, answered(saved, actual))
    assert [e.at for e in one.elements if e.wrong] == ["[1, 1]"]
    assert [e.at for e in one.elements if e.worst] == ["[1, 1]"]
    assert (one.wrong, one.left_out, len(one.elements)) == (1, 0, 6)
    assert compared(saved, answered(saved, expected)) == []


def test_no_element_is_wrong_of_a_run_in_which_a_failure_that_comes_and_goes_did_not_come():
    expected = np.zeros(8, np.float32)
    saved = dataclasses.replace(corpus.load(GEMM), expected=({"y": expected},))
    (one,) = compared(saved, api.Answer("1", AGREES, ({"y": expected + np.float32(1e-7)},)))
    assert (one.wrong, len(one.elements)) == (0, 8), f"{one.wrong} of {len(one.elements)} are wrong, should be 0 of 8"
    assert not any(e.wrong for e in one.elements), "what an agreeing run is off by is rounding"


def test_of_a_large_output_the_elements_that_are_furthest_off_are_shown():
    expected = np.zeros(1000, np.float32)
    saved = corpus.load(GEMM)
    saved = dataclasses.replace(saved, expected=({"y": expected},))
    actual = expected.copy()
    actual[[3, 900]] = 1
    (one,) = compared(saved, answered(saved, actual))
    assert [e.at for e in one.elements[:2]] == ["[3]", "[900]"], "those that are wrong come first"
    assert (len(one.elements), one.left_out) == (MOST_ELEMENTS, 1000 - MOST_ELEMENTS)


def test_an_output_of_another_shape_or_none_is_told_in_words():
    saved = dataclasses.replace(corpus.load(GEMM), expected=({"y": np.zeros(1, np.float32)},))
    (one,) = compared(saved, answered(saved, np.zeros((1, 1), np.float32)))
    assert one.form == "float32[1] [0.] was expected, not float32[1, 1] [[0.]]"
    (one,) = compared(saved, api.Answer("1", AGREES, ({},)))
    assert one.form == "float32[1] was expected, and nothing came out"


def test_many_cases_are_not_run_and_their_pages_say_how_to(tmp_path):
    result = api.report([GEMM], out=tmp_path)
    assert api.answers(result, most=0) == {}
    overview.write_report(result, tmp_path, {})
    assert f"driftnet report {GEMM.name[-8:]} runs it" in Page(tmp_path / overview.page_of(result["cases"][0])).text


def test_a_summary_that_is_none_is_named(tmp_path):
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(UserError, match="is no summary of a run"):
        api.report([tmp_path], out=tmp_path)


def test_the_command_says_where_the_page_is(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["report", str(GEMM), "--out", str(tmp_path), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert end.value.code == 0
    assert result["page"] == str(tmp_path / "index.html")
    assert [Path(c["path"]).name for c in result["cases"]] == [GEMM.name]
    tables.report(Console(), result)
    assert "1 cause, 1 case: " in capsys.readouterr().out
