"""A trigger of several operators is tried with every other one in each role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from driftnet.causes import record
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings import arrange, corpus
from driftnet.learning.study import proposal, study
from driftnet.learning.widening import widen
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from onnx import helper

from tests.support.models import grid
from tests.support.triggers import found, some

LOSES_OUTPUTS = "tests.support.bugs:LOSES_OUTPUTS"
READ = Trigger(
    Shape(2, frozenset({(1, 0)})),
    (Region((Atom("0.op", "is", "MatMul"), Atom("0.out.0.final", "is", True), Atom("1.op", "is", "Neg"))),),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


def test_what_fails_alike_in_a_role_joins_and_what_fails_by_itself_does_not(runner: Runner, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    case = some(nodes, {"x": grid((2, 3))}, {"w": np.ones((3, 2), np.float32)}, outputs=["t", "y"])
    finding = found(case, LOSES_OUTPUTS, runner)
    saved = corpus.load(corpus.save(finding.to_save(), tmp_path))
    folder = arrange.found(
        saved, proposal(study(saved, finding.installed, finding.where, runner, seconds=0.5)), tmp_path
    ).parent
    record.save(replace(record.load(folder), trigger=READ), folder)
    told = list(widen(tmp_path, resolve(LOSES_OUTPUTS), runner))
    trigger = record.load(folder).trigger
    assert trigger is not None
    assert len(told) == 1, f"one trigger became wider: {told}"
    assert trigger.operators[1] == {"Neg", "Abs", "Exp"}, f"Ceil fails by itself: {sorted(trigger.operators[1])}"
    assert trigger.operators[0] >= {"MatMul", "Gemm"}, f"any maker will do: {sorted(trigger.operators[0])}"
