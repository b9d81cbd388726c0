"""`from driftnet import ...`: what Python programs are promised, and what docs/python.md shows of it."""

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import driftnet
import pytest

from tests.support.paths import ROOT
from tests.support.rules import assert_each

PROMISED = (
    *("Case", "Option", "Plan", "Rule", "StageError", "Summary", "Target", "audit", "cases", "check", "coverage"),
    *("fuzz", "generate", "lint", "replay", "report", "support"),
)
HEAVY = ("click", "hypothesis", "jinja2", "msgspec", "numpy", "onnx", "onnxruntime", "rich")


def test_every_name_that_is_promised_is_there_and_documented():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    lacking = [name for name in PROMISED if name not in dir(driftnet) or not getattr(driftnet, name).__doc__]
    assert lacking == [], f"driftnet has no {lacking}, or they do not say what they are"
    untold = [name for name in driftnet.__all__ if f"`{name}`" not in page]
    assert untold == [], f"docs/python.md says nothing of {untold}"


def test_the_signatures_on_the_page_about_python_are_those_of_the_functions():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").replace("\\|", "|")
    told = re.findall(r"^\| `(\w+)\((.*)\)` \| `(.+)` \|$", page, re.MULTILINE)
    assert {name for name, *_ in told} == {"coverage", "fuzz", "generate", "report", "support"}

    def rule(row):
        name, arguments, result = row
        signature = inspect.signature(getattr(driftnet, name))
        assert re.findall(r"(\w+):", arguments) == [*signature.parameters]
        assert result.partition("[")[0] == signature.return_annotation.__name__

    assert_each(told, rule, named=lambda row: row[0])


def test_a_plan_takes_texts_for_paths_and_one_name_for_a_list_of_one():
    written = driftnet.Plan(report="run", corpus="mine", seeds="model.onnx", targets="mnn", focus="GRU")
    listed = {"seeds": (Path("model.onnx"),), "targets": ("mnn",), "focus": ("GRU",)}
    meant = driftnet.Plan(report=Path("run"), corpus=Path("mine"), **listed)
    assert written == meant, f"a plan of texts is {written}, should be {meant}"


def test_a_target_that_is_named_twice_runs_once():
    plan = driftnet.Plan(report="run", targets=["mnn", "onnxruntime-quant", "mnn"])
    assert plan.targets == ("mnn", "onnxruntime-quant"), f"{plan.targets} would run"


def test_a_name_that_there_is_not_is_refused_as_python_does():
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        from driftnet import nonsense  # noqa: F401


@pytest.mark.parametrize(("statement", "needed"), [("import driftnet", []), ("from driftnet import Target", ["numpy"])])
def test_a_name_imports_only_what_it_needs(statement, needed):
    code = f"import sys; {statement}; print(*sorted({set(HEAVY)} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == needed, f"`{statement}` imports {done.stdout}"


def test_the_examples_of_the_page_about_python_do_what_they_show():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False, encoding="utf-8")
    assert tried > 10, f"docs/python.md has {tried} examples"
    assert failed == 0, f"{failed} examples of docs/python.md show something else than what happens"
