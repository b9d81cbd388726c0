"""The support page says of each operator what the target does with models of it, and what another release did."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from driftnet import api
from driftnet.cli.main import driftnet
from driftnet.cli.report import pages, progress, tables
from driftnet.commands import supporting
from driftnet.model.case import Case
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from onnx import TensorProto, helper
from rich.console import Console

from tests.support.models import case, grid, relu
from tests.support.paths import ROOT

ASKED = ["Relu", "AffineGrid", "Resize"]


@pytest.fixture(scope="module")
def result() -> dict:
    return api.support("mnn", against="mnn", operators=ASKED, budget=2.0, root=ROOT / "corpus")


def test_each_operator_gets_as_many_models_and_a_word(result: dict) -> None:
    told = {one["operator"]: one for one in result["operators"]}
    assert list(told) == ASKED
    counts = [one["models"] for one in told.values()]
    assert max(counts) - min(counts) <= 3, f"the operators got {counts} models"
    assert told["AffineGrid"]["word"] == "refused", "MNN has no such operator"
    assert told["AffineGrid"]["counts"] == {"refused": told["AffineGrid"]["models"]}
    failed = {*told["Resize"]["counts"]} & {"crashes", "diverges", "errors"}
    assert failed, f"of MNN's Resize, wrong in most of its forms, it is told {told['Resize']['counts']}"


def test_known_causes_stand_beside_the_operator_of_their_trigger(result: dict) -> None:
    told = {one["operator"]: one for one in result["operators"]}
    known = told["Resize"]["causes"]
    assert known, "no cause of the corpus has Resize in its trigger"
    silent = [cause["id"] for cause in known if not cause["when"]]
    assert silent == [], "causes without a condition stand beside an operator"


def test_causes_beside_an_operator_may_show_under_the_options_that_are_run() -> None:
    """That of a Gelu alone is one of two findings of its cause; what EMA crashes on is quantized."""
    target = resolve("mnn").target
    told = supporting._causes(ROOT / "corpus", target, target.features["float"])["Gelu"]
    ids = {cause.id[-8:] for cause in told}
    assert ids >= {"c68653fa"}, f"of Gelu {ids} are told, should be c68653fa too"
    assert "a4264a45" not in ids, f"of Gelu {ids} are told, of which a4264a45 asks for method=EMA"


def test_forms_count_every_model_once_for_each_trait(result: dict) -> None:
    for one in result["operators"]:
        for trait in ("type", "rank", "opset"):
            total = sum(n for counts in one["forms"][trait].values() for n in counts.values())
            assert total == one["models"], f"{one['operator']}: {trait} counts {total} of {one['models']} models"


def test_the_page_shows_where_an_operator_does_not_work(result: dict, tmp_path: Path) -> None:
    page = pages.write_support(result, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert 'id="AffineGrid"' in text
    assert "does not support" in text, "what the target says of a refusal is not on the page"
    assert (tmp_path / "support.md").read_text(encoding="utf-8").count("| AffineGrid | refused |") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"support.html", "support.md", "support.json"}


def half_relu() -> Case:
    x = grid((1, 4)).astype(np.float16)
    return case([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, outputs=[("y", TensorProto.FLOAT16, (1, 4))])


def model(outcome: str, before: str = "", **traits: str) -> dict[str, Any]:
    said = "" if outcome == "works" else f"it {outcome}"
    return {"outcome": outcome, "before": before, "traits": traits, "message": said, "said_before": "it did"}


def test_an_operator_of_which_some_models_fail_is_there_in_part() -> None:
    partly, fails = ["works", "diverges"], ["diverges", "crashes"]
    for outcomes, word in ((["works"] * 2, "works"), (partly, "partly"), (fails, "fails")):
        told = supporting._told("Relu", [model(outcome) for outcome in outcomes], [])
        assert told["word"] == word, f"of {outcomes} it is told {told['word']}, should be {word}"


def test_what_became_of_an_operator_is_told_of_each_form(result: dict, tmp_path: Path) -> None:
    alike = [model("works", "works", type="float32", axis=axis) for axis in "0123456789"]
    models = [
        *alike,
        *[model("errors", "works", type="float16", axis="1") for _ in range(3)],
        *[model("works", "refused", type="int8", axis=axis) for axis in "0369"],
    ]
    told = supporting._told("Relu", models, [])
    gained, lost = told["changed"]
    assert (lost["from"], lost["to"], lost["models"], lost["message"]) == ("works", "errors", 3, "it errors")
    assert lost["forms"]["type"] == {"float16": {"changed": 3}}, "the type is the form in which it fails now"
    assert gained["forms"] == {"type": {"int8": {"changed": 4}}}, "the axis has nothing to do with it"
    assert gained["message"] == "it did", "what was said before tells what works now"
    page = {**result, "against": "mnn==1", "operators": [told]}
    pages.write_support(page, tmp_path)
    console = Console(record=True, width=200)
    tables.support(console, page)
    text = console.export_text()
    assert "otherwise than mnn==1: 7 models" in text
    assert "Relu works → errors, 3 of 17: type float16 (3 of 3)" in text
    markdown = (tmp_path / "support.md").read_text(encoding="utf-8")
    assert "| Relu | works → errors | 3 of 17 | type float16 (3 of 3) | it errors |" in markdown
    html = (tmp_path / "support.html").read_text(encoding="utf-8")
    assert html.index("What changed since mnn==1") < html.index("float16 (3 of 3)") < html.index('id="Relu"')


def test_a_release_against_itself_does_nothing_otherwise(result: dict) -> None:
    changed = {one["operator"]: one["changed"] for one in result["operators"] if one["changed"]}
    assert changed == {}, "what comes and goes is told as a change"
    console = Console(record=True, width=200)
    tables.support(console, result)
    assert ": 0 models" in console.export_text(), "what --against was asked for is not told"


def test_a_form_is_told_where_more_of_it_fails_than_chance_would_have() -> None:
    many = {"float32": {"works": 90, "diverges": 9}, "int8": {"refused": 4}, "float16": {"works": 1, "diverges": 1}}
    few = {"0": {"works": 50, "diverges": 5}, "1": {"works": 40, "diverges": 5}, "2": {"works": 1, "refused": 4}}
    told = supporting.telling({"type": many, "axis": few, "rank": {"2": {"diverges": 9, "refused": 3}}})
    assert told == {"type": {"int8": {"refused": 4}}, "axis": {"2": {"works": 1, "refused": 4}}}, (
        "a share of failures as everywhere, or a trait of one value, was told as where an operator does not work"
    )
    asked = [(2, 2, 2, 4), (0, 2, 1, 4), (1, 3, 0, 9), (3, 3, 9, 9), (1, 2, 2, 4)]
    found = [supporting.chance(*one) for one in asked]
    assert found == pytest.approx([1 / 6, 1.0, 0.0, 1.0, 5 / 6]), f"of {asked}: got {found}"


def test_what_stands_out_by_chance_is_tried_on_fresh_models() -> None:
    one = {"type": {"float32": {"works": 30, "diverges": 6}, "float64": {"diverges": 2}}}
    whole = {"works": 30, "diverges": 8}
    assert supporting.telling(one) == {}, "two of two, where a fifth fails, is told of one value of two"
    failing = [("diverges",) * 8, ("works",) * 8, ()]
    told = [supporting._failing(one, whole, {("type", "float64"): fresh}) for fresh in failing]
    assert told == [{"type": {"float64": {"diverges": 10}}}, {}, {}], f"it tells {told}"


def test_fresh_models_are_run_for_the_forms_that_stand_out_alone() -> None:
    models = [model("works", type="float32", rank="4", opset="13") for _ in range(20)]
    models += [model("diverges", type="float16", rank="4", opset="13") for _ in range(3)]
    cases = [relu(), half := half_relu(), relu(), *[half] * supporting.AGAIN]
    ran: list[object] = []
    found = supporting._again("Relu", models, cases, lambda case: ran.append(case) or model("crashes"))
    assert found == {("type", "float16"): ["crashes"] * supporting.AGAIN}, f"it found {found}"
    assert ran == [half] * supporting.AGAIN, f"{len(ran)} models were run, should be those of float16"


def test_thousands_of_models_of_one_operator_are_no_more_than_a_float_holds() -> None:
    half = supporting.chance(2001, 4001, 4001, 8002)
    assert half == pytest.approx(0.5), f"more than half of 4,001 where half is bad: got {half}, should be .5"
    told = supporting.telling({"type": {"float32": {"works": 1200}, "float16": {"errors": 1300}}})
    assert set(told["type"]) == {"float16"}, f"the value that fails: got {told}, should be float16"


def test_what_was_done_is_written_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, told = supporting._run, list[str]()

    def interrupted(*given: Any) -> dict[str, Any]:
        if len(told) > 3:
            raise KeyboardInterrupt
        return run(*given)

    @contextlib.contextmanager
    def listened(*given: object) -> Iterator[Callable[[str], None]]:
        yield told.append

    monkeypatch.setattr(supporting, "_run", interrupted)
    monkeypatch.setattr(progress, "told", listened)
    words = ["support", "--target", "mnn", "--operator", "Relu", "--operator", "Abs", "--out", str(tmp_path)]
    done = CliRunner().invoke(driftnet, words, standalone_mode=False)
    assert done.return_value == 2, done.output
    assert "interrupted" in done.output
    assert len(told) > 3, f"only this was said meanwhile: {told}"
    assert json.loads((tmp_path / "support.json").read_text())["interrupted"] is True
    for page in ("support.md", "support.html"):
        assert "Not complete" in (tmp_path / page).read_text(encoding="utf-8"), f"{page} looks as if it were whole"


def test_an_operator_that_is_not_generated_is_a_user_error() -> None:
    with pytest.raises(UserError, match="Frobnicate is not generated"):
        api.support("mnn", operators=["Frobnicate"])
    with pytest.raises(UserError) as written_out:
        api.support("mnn", operators=["Convolution"])
    assert written_out.value.hint == "did you mean Conv?", f"the hint is {written_out.value.hint!r}"
    assert CliRunner().invoke(driftnet, ["support", "--help"]).exit_code == 0
