"""A failure is known without a run by the place of its crash, or by a trusted trigger that what is wrong hangs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.causes.record import CauseRecord, Severity, Status
from driftnet.findings.issues import HEAP, KnownIssue, KnownIssues, Symptom, issues
from driftnet.findings.known import explain
from driftnet.findings.recognition import Recognizer, asked_for, is_same_place, is_trusted
from driftnet.learning.experiment import computed
from driftnet.model.case import Case
from driftnet.model.verdict import Kind
from driftnet.reduce.reducer import reduce
from driftnet.targets.environments import declared
from onnx import helper

from tests.findings.test_known import COARSE, issue, small
from tests.support import reduction as tools
from tests.support.paths import CORPUS
from tests.support.rules import assert_each

RELIABLE = {"instances": 40, "right": 40, "failing": 9, "found": 9, "named": 9, "accuracy": 1.0}
CRASH = Where("crash", ("_mnncengine MNN::onComputeSize", "_mnncengine MNN::run"))
NOWHERE = Where()
node = helper.make_node

# Relu(x) -> a -> Neg -> y, and Abs(x) -> z
CASE = small(node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"]))
TWO = tools.make_case(
    [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["z"])], {"x": np.float32([[-1, 2]])}, ["y", "z"], {}
)


def triggered(
    *atoms: Atom, score: Mapping[str, float] = RELIABLE, where: Where = NOWHERE, **changes: Any
) -> KnownIssue:
    """An issue whose cause has a trigger of one node."""
    trigger = Trigger(Shape(), (Region(atoms),)) if atoms else None
    cause = CauseRecord("a_cause", "planted", "", Severity.WRONG, trigger, score, place=where)
    known = issue(small(node("Relu", ["x"], ["y"])), **changes)
    return KnownIssue(replace(known.saved, cause=cause))


def recognized(issues: Sequence[KnownIssue], case: Case, failed: Symptom, gone: frozenset[int] = frozenset()) -> Any:
    recognizer = Recognizer(case, {"recipe.threads": 1}, lambda: tools.record(case)[0])
    found = recognizer.recognized(KnownIssues(issues), failed, gone)
    return found and (found.issue.id, sorted(found.nodes))


def is_op(name: str) -> Atom:
    return Atom("0.op", "is", name)


@pytest.mark.parametrize(
    ("trigger", "status", "seen", "release", "doubted"),
    [
        ("Abs", "flaky", (), "1.0", True),
        ("Abs", "open", ("1.10",), "1.9", True),
        ("Abs", "open", ("1.9",), "1.10", False),
        ("Abs", "open", ("1.9", "1.10"), "1.9", False),
        ("Relu", "open", ("1.10",), "1.9", False),
    ],
    ids=["comes and goes", "older", "newer", "older, but showed it", "met"],
)
def test_a_pattern_is_doubted_where_it_says_little_and_the_trigger_is_not_met(trigger, status, seen, release, doubted):
    known = triggered(is_op(trigger))
    known = KnownIssue(replace(known.saved, status=status, cause=replace(known.saved.cause, seen=seen)))
    recognizer = Recognizer(CASE, {"recipe.threads": 1}, lambda: tools.record(CASE)[0])
    found = recognizer.doubted(KnownIssues([known]), Symptom(COARSE, output="y"), release)
    assert [one.id for one in found] == [known.id] * doubted


@pytest.mark.parametrize(("option", "test"), [("method", "is"), ("method", "not"), ("threads", "is")])
def test_what_is_not_quantized_is_no_issue_that_asks_how_it_is(option, test):
    known = triggered(is_op("Relu"), Atom(f"recipe.{option}", test, "KL"))
    recognizer = Recognizer(CASE, {"recipe.threads": 1}, lambda: tools.record(CASE)[0])
    found = recognizer.doubted(KnownIssues([known]), Symptom(COARSE, output="y"), "1.0")
    missing = ["method"] if (option, test) == ("method", "is") else []
    assert asked_for(known, recognizer.options) == missing, "what may be anything but one value may be absent"
    assert bool(found) is bool(missing), "an option that differs may be too narrow, one that is not there is not"


@pytest.mark.parametrize("status", ["flaky", "open"])
def test_what_comes_and_goes_at_another_place_is_another(status):
    known = triggered(where=CRASH, kind="crash", coarse="planted/execute/crash")
    known = KnownIssue(replace(known.saved, status=status))
    recognizer = Recognizer(CASE, {"recipe.threads": 1}, lambda: tools.record(CASE)[0])
    for where in (CRASH, Where("crash", ("_tools MNN::another",))):
        found = recognizer.doubted(KnownIssues([known]), Symptom("planted/execute/crash", where=where), "1.0")
        doubted = status == "flaky" and where != CRASH
        assert [one.id for one in found] == [known.id] * doubted, "what fails always is run to see whether it is that"


def test_a_place_that_meets_the_trigger_is_known_when_the_failure_shows_alike():
    known = triggered(is_op("Relu"))
    assert recognized([known], CASE, Symptom(COARSE, output="y")) == ("test_x", [0])
    assert recognized([known], CASE, Symptom("planted/execute/wrong-shape", output="y")) is None
    assert recognized([triggered(is_op("Abs"))], CASE, Symptom(COARSE, output="y")) is None


def test_a_trigger_has_to_be_right_more_often_where_more_is_asked_of_it():
    known = triggered(is_op("Relu"), score={**RELIABLE, "right": 34, "accuracy": 0.85})
    for trusted, is_known in ((None, True), (0.9, False)):
        recognizer = Recognizer(CASE, {}, dict, trusted)
        found = recognizer.recognized(KnownIssues([known]), Symptom(COARSE, output="y"))
        assert (found is not None) == is_known, f"of triggers that are right about 85 %, where {trusted} is asked"


def test_a_case_is_known_by_what_was_learned_of_it_too_where_its_cause_shows_at_several_places():
    whole = triggered(is_op("Abs"), where=CRASH)
    own = {"trigger": Trigger(Shape(), (Region((is_op("Relu"),)),)).as_json(), "place": NOWHERE.as_json()}
    cause = replace(whole.saved.cause, findings={whole.id: {**own, "score": RELIABLE}})
    known = KnownIssue(replace(whole.saved, cause=cause))
    failed = Symptom(COARSE, output="y")
    assert recognized([whole], CASE, failed) is None
    assert recognized([known], CASE, failed) == ("test_x", [0])


def test_how_far_a_value_is_off_does_not_count():
    assert recognized([triggered(is_op("Relu"))], CASE, Symptom("planted/execute/off-by-one-step", output="y")), (
        "how far a wrong value is off should not count"
    )


def test_a_step_is_put_down_to_a_larger_error_only_where_no_step_is_known():
    failed = Symptom("planted/execute/off-by-one-step", output="y")
    larger = triggered(is_op("Relu"))
    step = issue(small(node("Relu", ["x"], ["y"])), failed.coarse, kind="off-by-one-step")

    def failure(case: Case) -> Symptom:
        return failed if any(n.op_type == "Relu" for n in case.proto.graph.node) else Symptom()

    for known, wanted in (([larger], larger), ([larger, step], step)):
        issues = KnownIssues(known)
        recognize = partial(Recognizer(CASE, {}, dict).recognized, issues)
        assert recognize(failed).sure is False, "the size of the error is another"
        found = explain(issues, CASE, failure, tools.record, recognize=recognize)
        assert (found.known_issues, found.rest) == ((wanted,), None)


def test_an_error_or_a_crash_is_the_same_in_whichever_stage_it_shows():
    for kind in ("error/compute shape error for", "crash", "SIGFPE"):
        known = triggered(is_op("Relu"), coarse=f"planted/execute/{kind}")
        assert recognized([known], CASE, Symptom(f"planted/convert/{kind}")), f"{kind} of the stage before"
    assert recognized([triggered(is_op("Relu"))], CASE, Symptom("planted/convert/wrong-values", output="y")) is None


def test_signals_are_of_one_sort_where_memory_is_damaged_only():
    crash = triggered(is_op("Relu"), coarse="planted/execute/crash", kind="SIGSEGV")
    for kind, known in (("SIGBUS", True), ("SIGABRT", True), ("SIGFPE", False), ("SIGKILL", False)):
        assert bool(recognized([crash], CASE, Symptom(f"planted/convert/{kind}"))) is known, kind
    killed = triggered(is_op("Relu"), coarse="planted/execute/SIGKILL", kind="SIGKILL")
    assert recognized([killed], CASE, Symptom("planted/execute/SIGKILL")), "it shows in the same way"
    assert recognized([killed], CASE, Symptom("planted/convert/SIGKILL")) is None, "memory runs out in any stage"


def test_a_wrong_output_has_to_hang_on_the_place():
    known = triggered(is_op("Relu"))
    assert recognized([known], TWO, Symptom(COARSE, output="y")), "y is what the Relu makes"
    assert recognized([known], TWO, Symptom(COARSE, output="z")) is None, "z has nothing to do with the Relu"


def test_what_is_cut_out_is_no_place_any_more():
    assert recognized([triggered(is_op("Relu"))], CASE, Symptom(COARSE, output="y"), frozenset({0})) is None


def test_options_and_values_that_only_a_run_tells_count():
    negative = Atom("0.in.0.negative", "is", True)
    failed = Symptom(COARSE, output="y")
    assert recognized([triggered(is_op("Relu"), negative)], CASE, failed), "its trigger is met"
    assert recognized([triggered(is_op("Neg"), negative)], CASE, failed) is None, "what a Relu makes is not negative"
    assert recognized([triggered(is_op("Relu"), Atom("recipe.threads", "is", 1))], CASE, failed), (
        "its option is in effect"
    )
    assert recognized([triggered(is_op("Relu"), Atom("recipe.threads", "is", 4))], CASE, failed) is None


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [
        ({}, True),
        ({"accuracy": 0.75}, False),
        ({"instances": 5}, False),
        ({"named": 18}, False),
        ({"named": 10}, True),
        ({"failing": 0, "found": 0, "named": 0}, True),
        ({"failing": 0, "found": 0, "named": 0, "accuracy": 0.89}, False),
        ({"failing": 1, "found": 0, "named": 0, "accuracy": 0.97}, False),
    ],
    ids=str,
)
def test_a_trigger_is_trusted_that_is_right_about_fresh_instances_and_about_those_it_names(changes, trusted):
    known = triggered(is_op("Relu"), score=RELIABLE | changes)
    assert is_trusted(known.saved.cause) is trusted
    assert bool(recognized([known], CASE, Symptom(COARSE, output="y"))) is trusted


def test_less_trust_is_asked_of_a_trigger_where_the_place_says_the_same():
    score = RELIABLE | {"accuracy": 0.75}
    assert is_trusted(triggered(is_op("Relu"), score=score, where=CRASH).saved.cause), f"{score} is enough at a crash"
    assert not is_trusted(triggered(is_op("Relu"), score=score).saved.cause), f"{score} is not enough elsewhere"


def test_a_crash_in_the_same_function_is_known_whatever_the_trigger_says():
    crash = {"coarse": "planted/execute/crash", "kind": "SIGSEGV"}
    known = triggered(is_op("Abs"), where=CRASH, **crash)
    failed = Symptom("planted/execute/crash", where=CRASH)
    assert recognized([known], CASE, failed) == ("test_x", [])
    for called in (CRASH.keys[:1], (CRASH.keys[0], "_mnncengine MNN::resize"), ("_tools MNN::onComputeSize",)):
        other = replace(failed, where=Where("crash", called))
        assert recognized([known], CASE, other) == ("test_x", []), f"by its place it would be merged: {called}"
    elsewhere = replace(failed, where=Where("crash", ("_mnncengine MNN::onResize",)))
    assert recognized([known], CASE, elsewhere) is None
    heap = replace(failed, where=Where("heap", CRASH.keys))
    assert recognized([known], CASE, heap) is None, "where a damaged heap crashes says nothing"


def test_a_kind_that_takes_several_runs_to_tell_shows_as_wrong_values_in_one():
    known = triggered(is_op("Relu"), coarse="planted/execute/nondeterministic", kind=Kind.NONDETERMINISTIC)
    assert recognized([known], CASE, Symptom(COARSE, output="y")), "it is the known one"


def test_what_is_recognized_is_cut_out_and_the_rest_is_run():
    known = triggered(is_op("Relu"))
    recognizer = Recognizer(CASE, {}, dict)
    ran: list[list[str]] = []

    def failure(case: Case) -> Symptom:
        operators = [n.op_type for n in case.proto.graph.node]
        ran.append(operators)
        return Symptom(COARSE, output="y") if "Relu" in operators or still else Symptom()

    def recognize(failed: Symptom, gone: Any) -> Any:
        return recognizer.recognized(KnownIssues([known]), failed, frozenset(gone))

    for still in (False, True):
        ran.clear()
        explained = explain(KnownIssues([known]), CASE, failure, tools.record, recognize=recognize)
        assert ran[:2] == [["Relu", "Neg"], ["Neg"]], f"what was run: {ran}"
        assert [found.id for found in explained.known_issues] == ["test_x"]
        assert (explained.rest is not None) is still, "another bug in the rest is left over"


def test_what_is_recognized_is_verified_by_its_own_nodes_first():
    known = triggered(is_op("Relu"))
    recognize = partial(Recognizer(CASE, {}, dict).recognized, KnownIssues([known]))
    ran: list[list[str]] = []

    def failing(*guilty: str) -> Any:
        def failure(case: Case) -> Symptom:
            operators = [n.op_type for n in case.proto.graph.node]
            ran.append(operators)
            return Symptom(COARSE, output="y") if {*guilty} & {*operators} else Symptom()

        return failure

    explained = explain(KnownIssues([known]), CASE, failing("Relu"), tools.record, recognize=recognize, trusting=False)
    assert (ran, explained.rest) == ([["Relu", "Neg"], ["Relu"], ["Neg"]], None)
    explained = explain(KnownIssues([known]), CASE, failing("Neg"), tools.record, recognize=recognize, trusting=False)
    assert explained.known_issues == (), "the Relu does not fail by itself: it was recognized by mistake"
    explained = explain(KnownIssues([known]), CASE, failing("Neg"), tools.record, recognize=recognize)
    assert explained.known_issues == (known,)


def test_the_known_issues_are_asked_once_the_fewest_nodes_are_left():
    asked: list[tuple[bool, int]] = []
    bug = tools.on_valid(tools.folds_scale_by_group)
    case = tools.cnn(6, planted=4)

    def simpler(part, recipe, anew):
        asked.append((anew, len(part.proto.graph.node)))

    reduced = reduce(case, {}, tools.TARGET, bug, tools.record, simpler=simpler)
    left, *others = (n for anew, n in asked if anew)
    assert left == len(reduced.case.proto.graph.node), "nodes when it was asked whatever it is"
    assert len(others) <= 1, "and once more at most, with plainer operators"
    left_each_time = [n for _, n in asked]
    assert left_each_time == sorted(left_each_time, reverse=True), f"as nodes go it may be recognized: {asked}"
    assert left < len(case.proto.graph.node)


def test_a_cause_without_a_trigger_is_known_by_its_place_alone():
    known = triggered(where=CRASH, coarse="planted/execute/crash", kind="SIGSEGV")
    assert recognized([known], TWO, Symptom("planted/execute/crash", where=CRASH)) == ("test_x", [])
    assert recognized([known], TWO, Symptom("planted/execute/crash", where=Where("crash", ("elsewhere",)))) is None
    assert recognized([triggered()], CASE, Symptom(COARSE, output="y")) is None, (
        "no place tells, and there is no trigger"
    )


def test_a_damaged_heap_is_known_by_its_trigger_wherever_it_crashes():
    damage = {"coarse": "planted/execute/crash", "kind": "SIGABRT"}
    known = triggered(is_op("Relu"), where=Where("heap", ("planted Relu::run",)), **damage)
    for where in (Where("heap", ("planted Abs::run",)), CRASH, NOWHERE):
        failed = Symptom("planted/execute/crash", where=where)
        assert recognized([known], TWO, failed) == ("test_x", [0]), f"it showed at {where}"
    assert recognized([triggered(is_op("Gelu"), where=known.saved.cause.place, **damage)], TWO, failed) is None


def test_a_crash_in_what_a_known_function_calls_or_was_called_by_is_another_though_the_trigger_is_met():
    called, caller, sibling = (
        Where("crash", keys) for keys in (("m get", "m run", "m all"), ("m run", "m all"), ("m set", "m run"))
    )
    for own, there in ((called, caller), (caller, called), (called, sibling)):
        known = triggered(is_op("Relu"), where=own, coarse="planted/execute/crash", kind="SIGSEGV")
        assert recognized([known], CASE, Symptom("planted/execute/crash", where=own)), f"{own.keys} is its place"
        failed = Symptom("planted/execute/crash", where=there)
        assert recognized([known], CASE, failed) is None, f"{own.keys}, {there.keys}: what calls many is a driver"
        assert not own.near(there), "no experiment takes it for the same either"


def test_what_is_written_out_of_bounds_is_a_crash_or_a_wrong_value_and_known_if_the_rest_is_right():
    damaged = Symptom("planted/execute/crash", where=Where("heap", ("planted Abs::run",)))
    known = triggered(is_op("Relu"))
    heap = triggered(is_op("Relu"), where=Where("heap"), coarse="planted/execute/crash", kind="SIGABRT")
    for issue_, failed in ((known, damaged), (heap, Symptom(COARSE, output="y"))):
        found = Recognizer(CASE, {}, dict).recognized(KnownIssues([issue_]), failed)
        assert found, failed
        assert (found.nodes, found.sure) == ({0}, False)
    first = Recognizer(CASE, {}, dict).recognized(KnownIssues([known, heap]), damaged)
    assert first.issue is heap, "what shows alike comes first"
    crash = Symptom("planted/execute/crash", where=CRASH)
    shape = Symptom("planted/execute/wrong-shape", output="y")
    for issue_, failed in ((known, crash), (heap, shape)):
        assert Recognizer(CASE, {}, dict).recognized(KnownIssues([issue_]), failed) is None, failed


def test_who_runs_out_of_memory_has_read_a_size_where_a_known_bug_that_comes_and_goes_crashes():
    memory = Symptom("planted/execute/memory")
    known = triggered(is_op("Relu"), coarse="planted/execute/crash", kind="SIGSEGV")
    assert recognized([known], CASE, memory) is None, "it crashes in every run"
    flaky = KnownIssue(replace(known.saved, status=Status.FLAKY))
    found = Recognizer(CASE, {}, dict).recognized(KnownIssues([flaky]), memory)
    assert found
    assert (found.nodes, found.sure) == ({0}, False), "it counts if the rest is right"
    early = Symptom("planted/convert/memory")
    assert recognized([flaky], CASE, early) is None, "it is another stage"
    short = triggered(is_op("Relu"), coarse="planted/execute/memory", kind=Kind.MEMORY)
    short = KnownIssue(replace(short.saved, status=Status.FLAKY))
    for where, is_known in ((NOWHERE, True), (Where(HEAP, CRASH.keys), True), (CRASH, False)):
        crash = Symptom("planted/execute/crash", where=where)
        assert bool(recognized([short], CASE, crash)) is is_known, f"a crash at {where} of a function of its own"


def test_a_trigger_of_a_damaged_heap_is_believed_if_the_rest_is_right_however_few_instances_crashed():
    rarely = RELIABLE | {"right": 30, "failing": 1, "found": 1, "named": 10, "accuracy": 0.75}
    known = triggered(is_op("Relu"), score=rarely, where=Where("heap"), coarse="planted/execute/crash", kind="SIGABRT")
    failed = Symptom("planted/execute/crash", where=Where("heap"))
    found = Recognizer(CASE, {}, dict).recognized(KnownIssues([known]), failed)
    assert found
    assert (found.nodes, found.sure) == ({0}, False)
    elsewhere = triggered(is_op("Relu"), score=rarely, coarse="planted/execute/crash", kind="SIGABRT")
    assert Recognizer(CASE, {}, dict).recognized(KnownIssues([elsewhere]), Symptom("planted/execute/crash")) is None


def test_a_place_that_makes_what_cannot_be_recorded_is_cut_out_with_what_reads_that():
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "i"], ["t"]), node("Abs", ["t"], ["y"])]
    case = small(*nodes, i=np.array(0))
    known = triggered(is_op("SequenceConstruct"))

    def failure(part: Case) -> Symptom:
        failed = any(n.op_type == "SequenceConstruct" for n in part.proto.graph.node)
        return Symptom(COARSE, output="y") if failed else Symptom()

    recognizer = Recognizer(case, {}, lambda: tools.record(case)[0])
    issues = KnownIssues([known])
    left = explain(issues, case, failure, tools.record, recognize=partial(recognizer.recognized, issues)).rest
    assert left is None, f"what is known is all that fails, and {left} is left"


def test_what_one_function_of_a_quantizer_does_to_an_artifact_is_known_at_any_node():
    removed, wrong = Where("artifact", ("operator removed",)), Where("artifact", ("scale",))
    other = triggered(is_op("Gelu"), where=removed)
    found = Recognizer(CASE, {}, dict).recognized(KnownIssues([other]), Symptom(COARSE, "y", "Neg", where=removed))
    assert found
    assert (found.issue, found.nodes) == (other, {1}), "the node that the verdict names is cut out"
    vague = triggered(is_op("Gelu"), where=wrong)
    failed = Symptom(COARSE, "y", "Neg", where=wrong)
    assert Recognizer(CASE, {}, dict).recognized(KnownIssues([vague]), failed) is None, "many functions make scales"


def test_no_trusted_trigger_of_the_corpus_claims_the_case_of_another_cause(runner):
    everything = issues(CORPUS)

    def rule(one: KnownIssue) -> None:
        cause = one.saved.cause
        failed = replace(one.symptom, where=cause.of_case(one.id).place)
        alike = (
            other
            for other in everything
            if other.saved.cause
            and other.saved.cause.id != cause.id
            and other.symptom.sort == failed.sort
            and not is_same_place(other.saved.cause.of_case(other.id), failed)
        )
        options = recipe_facts(declared(one.saved.target), one.saved.recipe)
        recognizer = Recognizer(one.saved.case, options, lambda: computed(one.saved.case, runner.reference))
        found = recognizer.recognized(KnownIssues(alike), failed)
        assert not (found and found.sure), f"a case of {cause.id}, which {found.issue.saved.cause.id} claims"

    assert_each((one for one in everything if one.saved.cause), rule, named=lambda one: one.id)


def test_what_ends_in_one_check_is_not_one_by_that_place():
    for raised, is_known in (("RuntimeError", False), ("KeyError", True)):
        where = Where("error", ("onnxruntime/quantization/onnx_quantizer.py quantize_model", raised))
        known = triggered(is_op("Abs"), where=where)
        found = recognized([known], CASE, Symptom(COARSE, output="y", where=where))
        assert (found is not None) == is_known, f"{raised} at one place"
