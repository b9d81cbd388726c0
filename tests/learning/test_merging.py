"""Findings with one place or one trigger are one cause, others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from driftnet.causes.impact import Severity
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.findings.corpus import SavedCase
from driftnet.learning.merging import is_same
from driftnet.learning.study import proposal
from driftnet.learning.trigger import Learned, Score
from driftnet.model.verdict import Kind, Tier, Verdict, Word
from driftnet.targets.environments import resolve
from driftnet.util.groups import groups
from onnx import helper

from tests.support.models import grid
from tests.support.triggers import one, some

TARGET = resolve("mnn").target
WRONG = Verdict(Word.DIVERGES, Tier.EXACT, "execute", Kind.WRONG_VALUES)
CRASH = Verdict(Word.CRASHES, Tier.STRUCTURE, "execute", "SIGSEGV")


def of(op: str, *atoms: Atom, verdict: Verdict = WRONG, where: Where | None = None, **attributes: object) -> Learned:
    case = one(op, grid((1, 2, 6, 6)), **attributes)
    coarse = f"mnn/execute/{verdict.kind}"
    saved = SavedCase(
        f"test_{op}_{len(atoms)}", case, (), "mnn", {}, coarse, f"{coarse} | {op} | {attributes}", verdict
    )
    trigger = Trigger(Shape(), (Region((Atom("0.op", "is", op), *atoms)),))
    return Learned(saved, where or Where(), trigger, operators=((op,),), score=Score(20, 20))


def causes_of(found: Sequence[Learned]) -> list[set[int]]:
    """What is the same, directly or through others, by its place in `found`."""
    facts = [recipe_facts(TARGET, one.saved.recipe) for one in found]
    same = [[i, k] for i in range(len(found)) for k in range(i) if is_same(found[i], found[k], facts[i], facts[k])]
    return [set(group) for group in groups([*same, *([i] for i in range(len(found)))])]


def merged(*learned: Learned) -> list[set[str]]:
    return [{learned[i].saved.fine.split(" | ")[1] for i in cause} for cause in causes_of(learned)]


def test_crashes_in_one_function_are_one_cause() -> None:
    here = Where("crash", ("_mnn Pool::run", "_mnn main"))
    there = Where("crash", ("_mnn Other::run", "_mnn main"))
    crashes = [of("Abs", verdict=CRASH, where=here), of("Neg", verdict=CRASH, where=here)]
    assert merged(*crashes) == [{"Abs", "Neg"}]
    assert sorted(map(sorted, merged(*crashes, of("Exp", verdict=CRASH, where=there)))) == [["Abs", "Neg"], ["Exp"]]


def test_a_damaged_heap_merges_nothing_by_its_stack() -> None:
    heap = Where("heap", ("_mnn Pool::free",))
    assert len(merged(of("Abs", verdict=CRASH, where=heap), of("Neg", verdict=CRASH, where=heap))) == 2


def test_a_heap_that_is_damaged_in_one_function_is_one_cause() -> None:
    def damaged(function: str) -> Where:
        return Where("heap", ("_mnn Pool::free",), damage=(function, "_mnn main"))

    here = [of(op, verdict=CRASH, where=damaged("_mnn Pool::fill")) for op in ("Abs", "Neg")]
    there = of("Exp", verdict=CRASH, where=damaged("_mnn Other::fill"))
    assert sorted(map(sorted, merged(*here, there))) == [["Abs", "Neg"], ["Exp"]]


def test_a_case_that_meets_the_trigger_of_another_is_of_its_cause() -> None:
    without = of("MaxPool", Atom("0.attr.strides.stated", "is", False), kernel_shape=[2, 2])
    again = of("MaxPool", Atom("0.attr.pads.stated", "is", True), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    stated = of("MaxPool", Atom("0.attr.strides.stated", "is", True), kernel_shape=[2, 2], strides=[1, 1])
    assert len(causes_of([without, again])) == 1
    assert len(causes_of([without, stated])) == 2


def test_symptoms_of_two_sorts_are_two_causes() -> None:
    shape = replace(WRONG, kind=Kind.WRONG_SHAPE)
    assert len(causes_of([of("Abs"), of("Abs", verdict=shape)])) == 2


def test_a_finding_says_of_its_cause_how_severe_it_is_and_when_it_shows() -> None:
    said = proposal(of("Abs"))
    assert (said["severity"], said["title"]) == (Severity.WRONG, "Abs: wrong values when running")


def test_facts_that_are_computed_are_known_where_they_were_recorded() -> None:
    negative = of("Abs", Atom("0.out.0.negative", "is", True))
    known = replace(negative, tensors={"y": np.full((1, 2, 6, 6), -1, np.float32)})
    assert len(causes_of([negative, of("Abs", Atom("0.in.0.nan", "is", True))])) == 2
    assert len(causes_of([known, of("Abs", Atom("0.out.0.negative", "is", True))])) == 1


def test_one_function_in_two_modules_is_one_place() -> None:
    modules = [
        of(op, verdict=CRASH, where=Where("crash", (f"{m} Pool::run",))) for op, m in (("Abs", "a"), ("Neg", "b"))
    ]
    assert merged(*modules) == [{"Abs", "Neg"}]
    unnamed = [of(op, verdict=CRASH, where=Where("crash", (f"{m} run",))) for op, m in (("Abs", "a"), ("Neg", "b"))]
    assert len(merged(*unnamed)) == 2, "a name without a namespace may be anything's"


def test_an_optimizer_is_not_enough() -> None:
    fused = Where("", (), ("Fuser",))
    assert len(merged(of("Abs", where=fused), of("Neg", where=fused))) == 2
    assert len(merged(of("Abs", where=fused), of("Abs", Atom("opset", "is", 17)))) == 2, "one of them has no optimizer"


def test_a_check_raises_for_many_causes() -> None:
    check = Where("error", ("mnn/quant.py check", "RuntimeError"))
    assert len(merged(of("Abs", where=check), of("Neg", where=check))) == 2
    own = Where("error", ("mnn/quant.py check", "KeyError"))
    assert len(merged(of("Abs", where=own), of("Neg", where=own))) == 1


def test_what_a_telling_class_of_artifact_shows_is_one_cause() -> None:
    gone, weights = Where("artifact", ("operator removed",)), Where("artifact", ("weights",))
    assert len(merged(of("Abs", where=gone), of("Neg", where=gone))) == 1
    assert len(merged(of("Abs", where=weights), of("Neg", where=weights))) == 2


def test_a_trigger_that_errs_has_to_be_answered() -> None:
    wide, narrow = of("Abs"), of("Abs", Atom("opset", "is", 99))
    assert len(causes_of([wide, narrow])) == 1
    doubtful = replace(wide, score=Score(instances=10, right=7))
    assert len(causes_of([doubtful, narrow])) == 2
    assert len(causes_of([doubtful, replace(doubtful, saved=replace(wide.saved, id="test_other"))])) == 1


def test_at_one_place_the_neighbour_may_be_another_operator() -> None:
    said = Where("artifact", ("scale",))

    def behind(op: str, where: Where) -> Learned:
        chain = [helper.make_node(op, ["x"], ["t"]), helper.make_node("Floor", ["t"], ["y"])]
        case = some(chain, {"x": grid((2, 3))}, {}, outputs=["y"])
        atoms = (Atom("0.op", "is", op), Atom("1.op", "is", "Floor"))
        trigger = Trigger(Shape(2, frozenset({(1, 0)})), (Region(atoms),))
        saved = replace(of("Abs").saved, case=case, id=f"test_{op}", fine=f"mnn/execute | {op}>Floor | {op}")
        return Learned(saved, where, trigger, operators=((op,), ("Floor",)))

    assert len(causes_of([behind("Neg", said), behind("Abs", said)])) == 1
    assert len(causes_of([behind("Neg", Where()), behind("Abs", Where())])) == 2, "no place tells"


def test_a_trigger_of_any_operator_merges_those_that_were_tried() -> None:
    wide = replace(of("Abs"), trigger=Trigger(Shape(), (Region(()),)), operators=(("Abs", "Neg"),))
    assert len(causes_of([wide, replace(of("Neg"), trigger=None)])) == 1
    assert len(causes_of([wide, replace(of("Exp"), trigger=None)])) == 2


def test_messages_that_say_the_same_at_length_are_one_place() -> None:
    long, other = (
        "node {} error unrecognized attribute axis for operator",
        "graph {} cannot be sorted into any order at all",
    )
    here = [of("Abs", where=Where("message", (long.format(word),))) for word in ("model", "tensor")]
    assert len(merged(here[0], replace(here[1], trigger=None))) == 1
    assert len(merged(here[0], of("Abs", where=Where("message", (other.format("x"),))))) == 2
    short = of("Abs", where=Where("message", ("reshape error",)))
    assert len(merged(short, of("Neg", where=Where("message", ("reshape error",))))) == 2
