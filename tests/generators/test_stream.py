"""A pair (seed, index) names one case, whatever process makes it, on whatever Python."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from driftnet.generators import bulk, genome
from driftnet.generators.building.profile import CONSTANT_OPERANDS

from tests.support.generated import digest
from tests.support.paths import ROOT
from tests.support.rules import assert_each

SOURCES = sorted(Path(genome.__file__).parent.rglob("[a-z]*.py"))
VERSION_DEPENDENT = {name for name in dir(Random) if not name.startswith("_")} - {"random", "randbytes"}
"""Methods of Random of which no Python promises that another gives the same."""


def is_set(node: ast.expr) -> bool:
    """Whether an expression is a set as far as its form tells."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return named or isinstance(node, ast.Set | ast.SetComp)


def stream(order: int) -> list[str]:
    """Digests of cases of every sort, made from the first to the last (order 1) or the other way round (-1)."""
    weights = {"Conv": 3.0, "Relu": 0.2, "feature:symbolic": 0.4, "feature:zero-size": 0.5, "feature:source-input": 0.5}
    steered: list[dict[str, Any]] = [
        {},
        {"focus": ("pooling", "Conv", "group-norm")},
        {"weights": weights},
        {"profile": CONSTANT_OPERANDS},
    ]
    pairs = [(index, options) for index in range(25) for options in steered][::order]
    return [digest(bulk.case(5, index, **options)) for index, options in pairs][::order]


def test_a_pair_of_seed_and_index_names_one_case_in_every_process() -> None:
    here = stream(1)
    program = "from tests.generators.test_stream import stream; print(*stream(-1))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    folder = ROOT
    there = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()
    different = [k for k, (one, other) in enumerate(zip(here, there, strict=True)) if one != other]
    assert different == [], "another process, with another hash seed and another order, made other cases"
    assert len(set(here[::4])) == 25, "different indices made the same case"


def test_generators_use_nothing_that_differs_between_pythons_runs_or_machines() -> None:
    def rule(path: Path) -> None:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        drawn = sorted({node.attr for node in nodes if isinstance(node, ast.Attribute)} & VERSION_DEPENDENT)
        assert drawn == [], f"{drawn} may draw otherwise on another Python: use Random.random or Random.randbytes"
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        assert not {"hash", "id"} & called, "calls hash or id, which differ from process to process"
        of_sets = [node.lineno for node in nodes if isinstance(node, ast.For) and is_set(node.iter)]
        of_sets += [node.iter.lineno for node in nodes if isinstance(node, ast.comprehension) and is_set(node.iter)]
        assert of_sets == [], f"lines {of_sets} iterate over a set, whose order depends on PYTHONHASHSEED"
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        machine = {"os", "time", "datetime", "platform", "secrets", "uuid", "onnxruntime"} & imported
        assert not machine, f"imports {machine}, which say other things on other machines"

    assert_each(SOURCES, rule, lambda path: path.stem)
