"""Known issues are found by how a failure shows and by the operators there are, and give what looking at each gave."""

from __future__ import annotations

from typing import Any

from driftnet.causes.impact import Severity
from driftnet.causes.place import Where
from driftnet.causes.record import CauseRecord
from driftnet.findings.issues import HEAP, KnownIssue, KnownIssues, Symptom
from onnx import helper

from tests.findings.test_known import COARSE, changed, issue, small

CRASH, ERROR = "planted/execute/SIGSEGV", "planted/execute/error/shapes do not fit at all here"
MODEL = small(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"]))


def of(operator: str, coarse: str = COARSE, place: str = "", **changes: Any) -> KnownIssue:
    known = issue(small(helper.make_node(operator, ["x"], ["y"])), coarse, kind=coarse.split("/")[2])
    cause = CauseRecord(f"{operator}_{coarse}", "planted", "", Severity.WRONG, place=Where(place))
    return changed(known, id=f"test_{operator}", cause=cause, **changes)


def test_what_is_preferred_is_asked_first_and_all_else_as_it_is_given():
    relu, neg, other = of("Relu"), of("Neg"), of("Clip")
    known = KnownIssues([relu, neg, other])
    assert known.like(Symptom(COARSE)) == [relu, neg, other]
    known.prefer(other)
    known.prefer(neg)
    assert known.like(Symptom(COARSE)) == [neg, other, relu], "the last one that is preferred is the first"
    assert known.first([relu, other]).like(Symptom(COARSE)) == [relu, other, neg]
    assert known.like(Symptom(COARSE)) == [neg, other, relu], "another order is another's"


def test_what_was_found_once_is_given_in_the_order_in_which_it_is_asked_now():
    relu, neg, other = of("Relu"), of("Neg"), of("Clip")
    known, asked = KnownIssues([relu, neg, other]), list[str]()

    def find() -> list[tuple[KnownIssue, int]]:
        asked.append("")
        return [(other, 1), (relu, 2), (relu, 3)]

    assert [*known.once("", find)] == [(relu, 2), (relu, 3), (other, 1)]
    known.prefer(neg)
    known.prefer(other)
    assert [*known.once("", find)] == [(other, 1), (relu, 2), (relu, 3)]
    assert len(asked) == 1


def test_a_place_is_possible_where_its_operators_or_their_siblings_are():
    relu, clip, softmax, late = of("Relu"), of("Clip"), of("Softmax"), of("Relu", "planted/quantize/wrong-values")
    cured = of("Relu", remedy={"optimize": False})
    known = KnownIssues([relu, clip, softmax, late, cured])
    assert known.possible("execute", MODEL) == [relu, clip], "no other operator, stage, or remedy"
    assert known.cured(Symptom(COARSE)) == [cured]


def test_a_damaged_heap_and_wrong_values_are_looked_up_for_each_other():
    wrong, crash, heap = of("Relu"), of("Relu", CRASH), of("Relu", CRASH, HEAP)
    known = KnownIssues([wrong, crash, heap])
    assert known.like(Symptom(COARSE)) == [wrong, heap]
    assert known.like(Symptom(CRASH)) == [crash, heap]
    assert known.like(Symptom(CRASH, where=Where(HEAP))) == [wrong, crash, heap]


def test_a_crash_and_what_ran_out_of_memory_are_looked_up_for_each_other():
    crash, memory = of("Relu", CRASH), of("Relu", "planted/execute/memory")
    known = KnownIssues([crash, memory, of("Relu")])
    assert known.like(Symptom(CRASH)) == [crash, memory]
    assert known.like(Symptom("planted/execute/memory")) == [crash, memory]
    assert known.like(Symptom("planted/execute/hang")) == []


def test_words_and_names_are_looked_up():
    told, merged = of("Relu", ERROR), of("Neg")
    cause = merged.saved.cause
    assert cause
    merged = changed(merged, cause=CauseRecord(**{**vars(cause), "merged": {"test_gone": ""}}))
    known = KnownIssues.of([told, merged, changed(of("Abs"), target="another")], "planted")
    assert [*known] == [told, merged], "those of one target"
    assert known.told(Symptom(ERROR)) is told
    assert known.told(Symptom(COARSE)) is None
    assert known.named("test_gone") is merged
    assert known.named("test_Abs") is None
