"""Findings with one place or one trigger are one cause, others are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driftnet.causes.place import Where, place_of
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings.corpus import SavedCase
from driftnet.learning.merging import Severity, causes_of
from driftnet.learning.trigger import Learned
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Tier, Verdict, Word
from driftnet.targets.environments import resolve

from tests.support.models import grid
from tests.support.triggers import one

TARGET = resolve("mnn").target
TARGETS = {"mnn": TARGET}
WRONG = Verdict(Word.DIVERGES, Tier.EXACT, "execute", Kind.WRONG_VALUES)
CRASH = Verdict(Word.CRASHES, Tier.STRUCTURE, "execute", "SIGSEGV")


def of(op: str, *atoms: Atom, verdict: Verdict = WRONG, where: Where | None = None, **attributes: object) -> Learned:
    case = one(op, grid((1, 2, 6, 6)), **attributes)
    coarse = f"mnn/execute/{verdict.kind}"
    saved = SavedCase(
        f"test_{op}_{len(atoms)}", case, (), "mnn", {}, coarse, f"{coarse} | {op} | {attributes}", verdict
    )
    return Learned(saved, where or Where(), Trigger(Shape(), (Region((Atom("0.op", "is", op), *atoms)),)))


def merged(*learned: Learned) -> list[set[str]]:
    return [{member.saved.fine.split(" | ")[1] for member in cause.members} for cause in causes_of(learned, TARGETS)]


def test_crashes_in_one_function_are_one_cause() -> None:
    here = Where("crash", ("_mnn Pool::run", "_mnn main"))
    there = Where("crash", ("_mnn Other::run", "_mnn main"))
    crashes = [of("Abs", verdict=CRASH, where=here), of("Neg", verdict=CRASH, where=here)]
    assert merged(*crashes) == [{"Abs", "Neg"}]
    assert sorted(map(sorted, merged(*crashes, of("Exp", verdict=CRASH, where=there)))) == [["Abs", "Neg"], ["Exp"]]


def test_a_damaged_heap_merges_nothing_by_its_stack() -> None:
    heap = Where("heap", ("_mnn Pool::free",))
    assert len(merged(of("Abs", verdict=CRASH, where=heap), of("Neg", verdict=CRASH, where=heap))) == 2


def test_a_case_that_meets_the_trigger_of_another_is_of_its_cause() -> None:
    without = of("MaxPool", Atom("0.attr.strides.stated", "is", False), kernel_shape=[2, 2])
    again = of("MaxPool", Atom("0.attr.pads.stated", "is", True), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    stated = of("MaxPool", Atom("0.attr.strides.stated", "is", True), kernel_shape=[2, 2], strides=[1, 1])
    assert len(causes_of([without, again], TARGETS)) == 1
    assert len(causes_of([without, stated], TARGETS)) == 2


def test_symptoms_of_two_sorts_are_two_causes() -> None:
    shape = replace(WRONG, kind=Kind.WRONG_SHAPE)
    assert len(causes_of([of("Abs"), of("Abs", verdict=shape)], TARGETS)) == 2


def test_a_cause_has_a_severity_and_at_most_four_variants() -> None:
    many = [of("Abs", *[Atom(f"recipe.{k}", "not", 1)] * k) for k in range(7)]
    (cause,) = causes_of(many, TARGETS)
    assert cause.severity is Severity.WRONG
    assert len(cause.variants) == 4
    said = cause.as_json()
    assert len(said["variants"]) + len(said["merged"]) == 7
    assert said["title"] == "Abs: wrong values when running"


@pytest.mark.parametrize(
    ("verdict", "run", "where"),
    [
        (
            CRASH,
            {"frames": ("libc raise", "_x std::f", "_x Pool::run", "_x main")},
            Where("crash", ("_x Pool::run", "_x main")),
        ),
        (CRASH, {"frames": ("libc abort", "libc free", "_x Pool::free")}, Where("heap", ("_x Pool::free",))),
        (CRASH, {}, Where()),
        (
            Verdict(Word.FAILS, Tier.STRUCTURE, "quantize", Kind.ERROR),
            {"frames": ("numpy/core.py f", "mnn/quant.py scale", "mnn/nn/run.py go"), "message": "ValueError: no"},
            Where("error", ("mnn/quant.py scale", "ValueError")),
        ),
        (
            Verdict(Word.FAILS, Tier.STRUCTURE, "execute", Kind.ERROR, "Compute Shape Error for 17"),
            {"frames": ("mnn/nn/run.py go",), "message": "Compute Shape Error for 17"},
            Where("message", ("compute shape error for",)),
        ),
        (WRONG, {}, Where()),
    ],
)
def test_a_place_is_read_off_a_verdict_and_what_was_observed(verdict: Verdict, run: dict, where: Where) -> None:
    outcome = Outcome.CRASH if verdict is CRASH else Outcome.ERROR
    assert place_of(TARGET, verdict, Observation((StageRun("execute", outcome, **run),))) == where


def test_facts_that_are_computed_are_known_where_they_were_recorded() -> None:
    negative = of("Abs", Atom("0.out.0.negative", "is", True))
    known = replace(negative, tensors={"y": np.full((1, 2, 6, 6), -1, np.float32)})
    assert len(causes_of([negative, of("Abs", Atom("0.in.0.nan", "is", True))], TARGETS)) == 2
    assert len(causes_of([known, of("Abs", Atom("0.out.0.negative", "is", True))], TARGETS)) == 1
