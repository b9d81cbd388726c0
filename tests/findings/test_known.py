"""An issue explains a failure when the known bug alone is what fails, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from driftnet.causes.place import Where, class_of
from driftnet.findings import corpus, explaining, pipeline, pursuing
from driftnet.findings.corpus import SavedCase
from driftnet.findings.explaining import is_gone
from driftnet.findings.issues import KnownIssue, KnownIssues, Symptom
from driftnet.findings.known import Explanation, Failure, explain
from driftnet.findings.pattern import may_occur, occurrences
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial
from driftnet.model.inspect import Case
from driftnet.model.signature import folder_name
from driftnet.model.submodel import recording
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict, Word
from driftnet.reduce.reducer import reduce
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from onnx import helper

from tests.support import models
from tests.support import reduction as tools
from tests.support.paths import saved_case
from tests.support.toy_target import FLAWED, MENDED, TOY

RNG = np.random.default_rng(3)
COARSE = "planted/execute/wrong-values"
node = helper.make_node


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def failure(bug: tools.Bug, coarse: str = COARSE, culprit: str = "") -> Failure:
    return lambda case: Symptom(coarse, "somewhere", culprit) if bug(case, {}) else Symptom()


def explains(known: KnownIssue, case: Case, says: Failure, record: Any) -> bool:
    return explain(KnownIssues([known]), case, says, record).rest is None


def issue(case: Case, coarse: str = COARSE, **verdict: Any) -> KnownIssue:
    said = Verdict(**{"word": Word.DIVERGES, "stage": "execute", "kind": "wrong-values", **verdict})
    return KnownIssue(SavedCase("test_x", case, (), "planted", {}, coarse, f"{coarse} | | ", said))


def changed(known: KnownIssue, **changes: Any) -> KnownIssue:
    return KnownIssue(replace(known.saved, **changes))


def reduced(case: Case, bug: tools.Bug) -> Case:
    return reduce(case, {}, tools.TARGET, bug, tools.record).case


def found(issue: KnownIssue, case: Case) -> list[tuple[int, ...]]:
    return occurrences(issue.pattern, case, recording(case, tools.record).feeds[0])


def small(*nodes: Any, shape: tuple[int, ...] = (2, 3), **constants: np.ndarray) -> Case:
    return tools.make_case(nodes, {"x": floats(*shape)}, [nodes[-1].output[0]], constants)


def operators(explanation: Explanation) -> list[str]:
    """What is left in the rest."""
    assert explanation.rest is not None, "the failure was explained"
    return [node.op_type for node in explanation.rest.proto.graph.node]


FOLD = tools.on_valid(tools.folds_scale_by_group)


def test_a_reduced_fold_explains_the_same_fold_inside_a_larger_model():
    known = issue(reduced(tools.cnn(3, planted=1), FOLD))
    case = tools.cnn(6, planted=4)
    assert len(known.nodes) == 2
    assert explains(known, case, failure(FOLD), tools.record), "the issue does not explain its own bug elsewhere"


def test_a_place_is_run_once_however_many_issues_it_may_be_of():
    case = small(node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["y"]))
    neg = issue(small(node("Neg", ["x"], ["y"])))
    others = [changed(neg, id=f"test_{k}") for k in range(3)]
    asked = []

    def fails_as_a_whole(part: Case) -> Symptom:
        asked.append([n.op_type for n in part.proto.graph.node])
        return Symptom(COARSE) if part is case else Symptom()

    assert explain(KnownIssues([neg, *others]), case, fails_as_a_whole, tools.record).rest is case
    assert asked == [["Neg", "Abs"], ["Neg"]], "a place was run again"


def test_it_explains_the_case_it_comes_from():
    case = tools.cnn(3, planted=1)
    left = reduced(case, FOLD)
    for again in (case, left):
        assert explains(issue(left), again, failure(FOLD), tools.record), (
            "the issue does not explain the case that it was reduced from"
        )


def test_another_bug_beside_the_known_one_is_not_explained():
    known = issue(reduced(tools.cnn(3, planted=1), FOLD))
    either = tools.on_valid(lambda case, recipe: FOLD(case, {}) or tools.contains("GlobalAveragePool")(case, {}))
    assert not explains(known, tools.cnn(4, planted=1), failure(either), tools.record), (
        "another bug beside it should stay unexplained"
    )


def test_another_bug_of_the_same_operators_is_not_explained():
    """Conv alone is known; here a Conv followed by Relu fails, and no Conv fails by itself."""
    known = issue(
        reduced(
            small(node("Conv", ["x", "w"], ["y"]), shape=(1, 2, 4, 4), w=floats(2, 2, 3, 3)), tools.contains("Conv")
        )
    )
    case = tools.cnn(2, planted=9)
    fused = tools.on_valid(lambda case, recipe: any(a.op_type == "BatchNormalization" for a, _ in tools.edges(case)))
    assert may_occur(known.pattern, case), "the pattern of one Conv may occur wherever there is a Conv"
    assert not explains(known, case, failure(fused), tools.record), (
        "no Conv fails by itself, so a known Conv explains nothing"
    )


def test_a_failure_of_another_kind_at_the_same_place_is_not_explained():
    known = issue(reduced(tools.cnn(3, planted=1), FOLD))
    crash = failure(FOLD, "planted/execute/SIGSEGV")
    assert not explains(known, tools.cnn(3, planted=1), crash, tools.record), (
        "wrong values are known there, a crash is not"
    )


def test_a_symptom_of_another_kind_downstream_is_explained():
    case = small(node("Relu", ["x"], ["a"]), node("Log", ["a"], ["b"]), node("Neg", ["b"], ["y"]), shape=(3,))
    relu = tools.contains("Relu")

    def says(case: Case) -> Symptom:
        ops = {n.op_type for n in case.proto.graph.node}
        return Symptom("" if not relu(case, {}) else "planted/execute/nan" if "Log" in ops else COARSE)

    known = issue(reduced(small(node("Relu", ["x"], ["y"]), shape=(3,)), relu))
    assert explains(known, case, says, tools.record), "the known bug is what makes the NaN downstream"


def test_kinds_that_take_several_runs_to_tell_are_recognized_by_one():
    known = issue(small(node("Relu", ["x"], ["y"])), "planted/execute/nondeterministic", kind="nondeterministic")
    case = small(node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"]))
    assert explains(known, case, failure(tools.contains("Relu")), tools.record), (
        "what five runs told to be nondeterministic is wrong in one, and known"
    )


@pytest.mark.parametrize("is_flaky", [True, False])
@pytest.mark.parametrize("coarse", [COARSE, "planted/execute/crash"])
def test_a_place_of_a_flaky_bug_need_not_fail_by_itself_but_the_rest_must_not(is_flaky, coarse):
    known = changed(issue(small(node("Relu", ["x"], ["y"]))), status="flaky" if is_flaky else "open")
    case = small(node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"]))
    whole = failure(lambda part, recipe: len(part.proto.graph.node) == 2, coarse)
    assert explains(known, case, whole, tools.record) is (is_flaky and coarse == COARSE)
    beside = failure(tools.contains("Neg"), coarse)
    assert not explains(known, case, beside, tools.record), "what another operator does is not this bug"


def neg_and_abs(case: Case, recipe: object) -> bool:
    return tools.contains("Neg")(case, {}) or tools.contains("Abs")(case, {})


def test_two_known_bugs_explain_a_failure_together():
    case = small(node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Abs", ["b"], ["y"]))
    known_issues = [issue(small(node(op, ["x"], ["y"]))) for op in ("Neg", "Abs")]
    assert explain(KnownIssues(known_issues), case, failure(neg_and_abs), tools.record).rest is None
    for one in known_issues:
        assert not explains(one, case, failure(neg_and_abs), tools.record), "one of two bugs explains both"


def test_what_a_known_bug_does_not_explain_is_left_in_the_rest():
    case = small(node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Abs", ["b"], ["y"]))
    known = issue(small(node("Neg", ["x"], ["y"])))
    explanation = explain(KnownIssues([known]), case, failure(neg_and_abs), tools.record)
    assert explanation.known_issues == (known,)
    assert operators(explanation) == ["Exp", "Abs"]


def test_without_masks_the_rest_is_the_case():
    case = small(node("Neg", ["x"], ["y"]))
    assert explain(KnownIssues(), case, failure(neg_and_abs), tools.record).rest is case


def test_nothing_runs_where_an_operator_of_the_pattern_is_missing():
    case = small(node("Relu", ["x"], ["y"]))

    def never(part: Case) -> Any:
        raise AssertionError("a part was run")

    def as_seen(part: Case) -> Symptom:
        return Symptom(COARSE) if part is case else never(part)

    known = issue(small(node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["y"])))
    assert not explains(known, case, as_seen, never), "there is no operator of the pattern"


def test_edges_are_part_of_the_pattern():
    known = issue(small(node("Exp", ["x"], ["a"]), node("Neg", ["a"], ["y"])))
    apart = small(node("Exp", ["x"], ["a"]), node("Abs", ["a"], ["b"]), node("Neg", ["b"], ["y"]))
    together = small(node("Abs", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["y"]))
    assert found(known, apart) == []
    assert found(known, together) == [(1, 2)]


def test_every_occurrence_is_found_once():
    known = issue(small(node("Add", ["x", "x"], ["y"])))
    case = small(node("Add", ["x", "x"], ["a"]), node("Add", ["a", "a"], ["b"]), node("Add", ["b", "b"], ["y"]))
    assert found(known, case) == [(0,), (1,), (2,)]


def conv(group: int = 1, channels: int = 4, **attributes: Any) -> Case:
    weight = floats(channels, channels // group, 1, 1)
    if group > 1:
        attributes["group"] = group
    return small(node("Conv", ["x", "w"], ["y"], **attributes), shape=(1, channels, 5, 5), w=weight)


def leaky(alpha: float) -> Case:
    return small(node("LeakyRelu", ["x"], ["y"], alpha=alpha))


@pytest.mark.parametrize(
    ("pattern", "case", "expected"),
    [
        (conv(group=2, channels=2), conv(group=4), True),
        (conv(group=2, channels=2), conv(), False),
        (conv(), conv(group=2), True),
        (conv(strides=[2, 2]), conv(strides=[3, 3], group=2), True),
        (conv(channels=1), conv(channels=4), True),
        (conv(channels=4), conv(channels=1), True),
        (leaky(0.5), leaky(-1.0), True),
        (leaky(0.5), leaky(0.0), False),
        (leaky(-1.0), leaky(0.5), False),
        (leaky(0.0), leaky(0.5), True),
    ],
    ids=[
        *("same-class", "attribute-missing", "attribute-more", "list-class", "one-matches-many", "many-matches-one"),
        *("negative-is-large", "zero-is-not-large", "positive-is-not-negative", "zero-is-anything"),
    ],
)
def test_a_place_matches_when_it_has_at_least_what_the_pattern_has(pattern: Case, case: Case, expected: bool):
    assert bool(found(issue(pattern), case)) == expected


def neg(*shape: int, dtype: type = np.float32) -> Case:
    return tools.make_case([node("Neg", ["x"], ["y"])], {"x": np.ones(shape, dtype)}, ["y"])


def add(*shape: int) -> Case:
    return small(node("Add", ["x", "w"], ["y"]), w=floats(*shape))


def clip(*inputs: str) -> Case:
    bounds = {name: np.float32(0) for name in inputs if name}
    return small(node("Clip", ["x", *inputs], ["y"]), **bounds)


@pytest.mark.parametrize(
    ("pattern", "case", "expected"),
    [
        (neg(2), neg(3, 2), True),
        (neg(3, 2), neg(2), True),
        (neg(2), neg(2, dtype=np.int32), False),
        (neg(2), neg(0), False),
        (conv(), small(node("Conv", ["x", "w"], ["y"]), shape=(1, 4, 5), w=floats(4, 4, 1)), False),
        (small(node("Add", ["x", "x"], ["y"])), add(2, 3), True),
        (add(2, 3), small(node("Add", ["x", "x"], ["y"])), True),
        (clip("", "b"), clip("a"), False),
        (clip(), clip("a"), True),
    ],
    ids=[
        "more-axes",
        "fewer-axes",
        "another-dtype",
        "empty",
        "another-convolution",
        "constant-for-input",
        "input-for-constant",
        "absent-input",
        "more-inputs",
    ],
)
def test_operands_are_compared_by_class(pattern: Case, case: Case, expected: bool):
    assert bool(found(issue(pattern), case)) == expected


def test_data_movement_is_compared_without_the_type_of_the_data():
    def flattened(x: np.ndarray) -> Case:
        return tools.make_case([node("Flatten", ["x"], ["y"])], {"x": x}, ["y"], {})

    known = issue(flattened(np.ones((2, 2), np.float32)))
    assert found(known, flattened(np.ones((2, 2), np.int32))) != []
    assert not found(known, flattened(np.ones((2, 0), np.int32))), "empty tensors are another matter"


def test_a_subgraph_may_hold_anything():
    def loop(*nodes: Any) -> Case:
        body = helper.make_graph(
            [node("Identity", ["go"], ["on"]), *nodes],
            "body",
            [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("go", 9), ("v", 1))],
            [helper.make_tensor_value_info(name, kind, []) for name, kind in (("on", 9), ("w", 1))],
        )
        return tools.make_case(
            [node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": np.array(2, np.float32)}, ["y"], {"n": np.array(2)}
        )

    other_body = loop(node("Abs", ["v"], ["u"]), node("Exp", ["u"], ["w"]))
    assert found(issue(loop(node("Neg", ["v"], ["w"]))), other_body) != []


def test_siblings_match_and_other_operators_do_not():
    def unary(op_type: str) -> Case:
        return small(node(op_type, ["x"], ["y"]))

    for known, sibling, other in (("ReduceL1", "ReduceLogSum", "Relu"), ("Sigmoid", "Tanh", "Softmax")):
        assert found(issue(unary(known)), unary(sibling)) != [], f"{known} is not told in {sibling}"
        assert found(issue(unary(known)), unary(other)) == [], f"{known} is told in {other}"


@pytest.mark.parametrize("kind", ["wrong-values", "memory"])
def test_a_bug_of_another_stage_is_not_asked(kind):
    case, asked = neg(3), []

    def failure(part: Case) -> Symptom:
        asked.append(part)
        return Symptom(f"planted/quantize/{kind}")

    assert explain(KnownIssues([issue(neg(3))]), case, failure, tools.record).rest is case
    assert asked == [case]


def test_a_wrong_shape_explains_a_crash_of_what_runs_the_model_before():
    case = small(node("Neg", ["x"], ["t"]), node("Gather", ["t", "i"], ["y"]), i=np.array([0]))
    known = issue(neg(3), "planted/execute/wrong-shape", kind="wrong-shape")

    def failure(part: Case) -> Symptom:
        there = {n.op_type for n in part.proto.graph.node}
        shown = "convert/SIGFPE" if {"Neg", "Gather"} <= there else "execute/wrong-shape" if "Neg" in there else ""
        return Symptom(f"planted/{shown}" if shown else "")

    assert explain(KnownIssues([known]), case, failure, tools.record).rest is None
    assert explain(
        KnownIssues([issue(neg(3), "planted/quantize/error/x", stage="quantize")]), case, failure, tools.record
    ).rest


def test_an_error_told_at_length_is_known_at_any_operator():
    words = "valueerror histogram has not been collected please run collect first"
    known = issue(small(node("Neg", ["x"], ["y"])), f"planted/quantize/error/{words}", kind="error", stage="quantize")
    case = small(node("Sin", ["x"], ["t"]), node("Concat", ["t", "t"], ["y"], axis=0))
    bug = tools.on_valid(lambda case, _: any(n.op_type == "Concat" for n in case.proto.graph.node))
    assert explains(known, case, failure(bug, known.symptom.coarse), tools.record), (
        "the words of the error are those that are known"
    )
    assert not explains(known, case, failure(bug, "planted/quantize/error/something else"), tools.record), (
        "the words of the error are others"
    )


def test_an_error_told_at_length_is_known_whatever_the_classes_of_operands_are():
    words = "valueerror expected scale of one element"
    known = issue(conv(group=2), f"planted/quantize/error/{words}", kind="error", stage="quantize")
    assert found(known, conv()), "the words of the error tell more than the attributes"
    assert found(known, small(node("Conv", ["x", "w"], ["y"]), shape=(1, 4, 5), w=floats(4, 4, 1))) != []
    assert found(issue(conv(group=2)), conv()) == []


def relu_behind(maker: str) -> Case:
    return small(node(maker, ["x"], ["t"]), node("Relu", ["t"], ["y"]))


def test_what_made_the_operand_of_the_node_at_fault_does_not_count():
    known = issue(relu_behind("Exp"), culprits=(("y", "Relu"),))
    drops = tools.on_valid(lambda case, _: [n.op_type for n in case.proto.graph.node][1:] in (["Relu"], ["Clip"]))
    for case in (relu_behind("Sin"), small(node("Sin", ["x"], ["t"]), node("Clip", ["t"], ["y"]))):
        assert explains(known, case, failure(drops, culprit=case.proto.graph.node[1].op_type), tools.record), (
            "what fails is known, whatever made its operand"
        )
    assert not explains(known, relu_behind("Sin"), failure(drops, culprit="Sin"), tools.record), "another bug"
    assert not explains(issue(relu_behind("Exp")), relu_behind("Sin"), failure(drops), tools.record), (
        "without a node at fault all operators count"
    )


def test_company_that_the_node_at_fault_needs_shares_its_operands():
    def beside(other: str, operand: str) -> Case:
        nodes = [node(other, [operand], ["a"]), node("Relu", ["x"], ["y"]), node("Neg", ["w"], ["b"])]
        return tools.make_case(nodes, {"x": floats(3), "w": floats(3)}, ["a", "y", "b"], {})

    company = [node("Exp", ["x"], ["a"]), node("Relu", ["x"], ["y"])]
    known = issue(tools.make_case(company, {"x": floats(3)}, ["a", "y"], {}), culprits=(("y", "Relu"),))
    assert found(known, beside("Sin", "x")) == [(0, 1)]
    assert found(known, beside("Sin", "w")) == []


def test_a_place_computed_from_constants_is_asked_with_an_input_too():
    case = small(node("Neg", ["w"], ["a"]), node("Add", ["a", "x"], ["y"]), w=floats(2, 3))
    fails = tools.on_valid(lambda case, _: tools.contains("Neg")(case, {}) and len(case.proto.graph.input) > 0)
    assert explains(issue(small(node("Neg", ["x"], ["y"]))), case, failure(fails), tools.record), (
        "it fails with an input in place of the constants too"
    )


def test_an_error_told_at_length_is_known_of_nodes_that_pass_on_a_sequence():
    words = "valueerror histogram has not been collected please run collect first"
    known = issue(small(node("Neg", ["x"], ["y"])), f"planted/quantize/error/{words}", kind="error", stage="quantize")
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "i"], ["t"]), node("Abs", ["t"], ["y"])]
    case = small(*nodes, i=np.array(0))
    everywhere = tools.on_valid(lambda case, _: True)
    assert explains(known, case, failure(everywhere, known.symptom.coarse), tools.record), (
        "the error is told at length, so known"
    )
    not_there = tools.on_valid(lambda case, _: any(n.op_type == "Abs" for n in case.proto.graph.node))
    assert explains(known, case, failure(not_there, known.symptom.coarse), tools.record), (
        "the error is told at length, so known"
    )


def test_a_lone_identity_is_known_at_whatever_reads_or_makes_a_tensor_of_its_class():
    identity = [node("Identity", ["x"], ["y"])]
    known = issue(tools.make_case(identity, {"x": np.array([-1])}, ["y"], {}))
    fails = failure(tools.on_valid(lambda case, _: True))
    assert explains(known, small(node("Shape", ["x"], ["y"])), fails, tools.record), (
        "Shape reads a tensor of that class"
    )
    assert explains(known, small(node("Gather", ["x", "i"], ["y"]), i=np.array([0])), fails, tools.record), (
        "Gather makes one"
    )
    assert not explains(known, small(node("Relu", ["x"], ["y"])), fails, tools.record), (
        "Relu has no tensor of that class"
    )
    half = small(node("Relu", ["x"], ["t"]), node("Shape", ["t"], ["y"]))
    assert operators(explain(KnownIssues([known]), half, fails, tools.record)) == ["Relu"]


def test_an_error_of_few_words_is_known_at_its_own_operators_only():
    known = issue(small(node("Neg", ["x"], ["y"])), "planted/execute/error/compute shape error", kind="error")
    case = small(node("Sin", ["x"], ["t"]), node("Concat", ["t", "t"], ["y"], axis=0))
    bug = tools.on_valid(lambda case, _: any(n.op_type == "Concat" for n in case.proto.graph.node))
    assert not explains(known, case, failure(bug, known.symptom.coarse), tools.record), (
        "few words are not enough at other operators"
    )


@pytest.mark.parametrize(("words", "is_known"), [("keyerror", False), ("keyerror of scale", True)])
def test_the_type_of_an_exception_alone_is_known_at_its_own_operators_only(words, is_known):
    known = issue(small(node("Neg", ["x"], ["y"])), f"planted/convert/error/{words}", kind="error", stage="convert")
    case = small(node("Sin", ["x"], ["t"]), node("Neg", ["t"], ["y"]))
    for operator, there in (("Sin", is_known), ("Neg", True)):
        bug = tools.on_valid(tools.contains(operator))
        assert explains(known, case, failure(bug, known.symptom.coarse), tools.record) is there, operator


def test_a_failure_that_goes_away_under_the_remedy_of_a_saved_case_is_that_one_whatever_its_operators():
    remedy = {"disabled": ["Mover"]}
    off, other = Symptom("planted/execute/off-by-one-step"), Symptom("planted/execute/crash")
    known = changed(issue(small(node("Neg", ["x"], ["y"]))), remedy=remedy)
    case = small(node("Sin", ["x"], ["y"]))

    def says(symptom: Symptom, cured: bool) -> bool:
        explained = explain(
            KnownIssues([known]), case, lambda _: symptom, tools.record, lambda _, by: cured and by == remedy
        )
        return explained.rest is None

    assert says(off, cured=True), "the same kind of failure, and gone"
    assert not says(off, cured=False), "another bug: the remedy is none"
    assert not says(other, cured=True), "a crash is not a wrong value"


def test_a_remedy_is_asked_of_what_patterns_do_not_explain():
    moves = changed(issue(small(node("Neg", ["x"], ["y"]))), remedy={"disabled": ["Mover"]})
    case = small(node("Sin", ["x"], ["t"]), node("Softmax", ["t"], ["y"]))
    everywhere, asked = failure(tools.on_valid(lambda case, _: True)), list[int]()

    def cured(part: Case, remedy: Mapping[str, Any]) -> bool:
        asked.append(len(part.proto.graph.node))
        return True

    known = KnownIssues([moves, issue(small(node("Softmax", ["x"], ["y"])))])
    explanation = explain(known, case, everywhere, tools.record, cured)
    assert explanation.rest is None
    assert len(explanation.known_issues) == 2
    assert asked == [1], "the Softmax is known by its pattern, so the rest is the Sin alone"


def test_of_what_a_system_says_at_length_the_remedy_is_asked_first_and_once():
    remedy, words = {"disabled": ["Mover"]}, "planted/execute/error/model graph output does not exist in graph"
    moves = changed(issue(small(node("Neg", ["x"], ["y"])), words), remedy=remedy)
    case, asked, ran = small(node("Sin", ["x"], ["t"]), node("Softmax", ["t"], ["y"])), [], []

    def fails(part: Case) -> Symptom:
        ran.append(part)
        return Symptom(words)

    def cured(part: Case, by: Mapping[str, Any]) -> bool:
        asked.append(part)
        return goes

    known = KnownIssues([moves, issue(small(node("Softmax", ["x"], ["y"])))])
    for goes, runs in ((True, 1), (False, 2)):
        asked.clear(), ran.clear()
        assert (explain(known, case, fails, tools.record, cured).rest is None) is goes
        assert (asked, len(ran)) == ([case], runs), "a Softmax is cut out where the remedy is none"


def test_ranks_count_for_kernels_and_not_for_quantizers():
    def conv(rank: int) -> Case:
        ones = (1,) * (rank - 2)
        return small(node("Conv", ["x", "w"], ["y"]), shape=(1, 4, *ones), w=floats(2, 4, *ones))

    for stage, found_too in (("execute", False), ("quantize", True)):
        known = issue(conv(3), f"planted/{stage}/wrong-values", stage=stage)
        assert bool(found(known, conv(4))) is found_too, stage


def test_a_place_that_the_wrong_output_does_not_hang_on_is_not_asked():
    nodes = [node("Sin", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Neg", ["a"], ["c"])]
    case = tools.make_case(nodes, {"x": floats(2)}, ["b", "c"], {})
    runs = list[int]()

    def says(output: str) -> Failure:
        def failure(part: Case) -> Symptom:
            runs.append(len(part.proto.graph.node))
            whole = len(part.proto.graph.node) == 3
            return Symptom(COARSE, output=output) if whole or part.proto.graph.node[0].op_type == "Sin" else Symptom()

        return failure

    sine = issue(small(node("Sin", ["x"], ["y"])))
    assert explain(KnownIssues([sine]), case, says("b"), tools.record).rest is case
    assert runs == [3], "b hangs on the Neg alone, and the issue knows nothing of that"
    assert explain(KnownIssues([sine]), case, says("c"), tools.record).rest is None


def test_a_hang_or_an_error_is_gone_when_something_else_is_the_matter_and_a_wrong_value_is_not():
    hang, error, wrong = "t/quantize/hang", "t/execute/error/no such kernel", "t/execute/wrong-values"
    assert [is_gone(before, "") for before in (hang, error, wrong)] == [True, True, True]
    assert is_gone(hang, error), "behind the error nothing hangs"
    assert is_gone(error, wrong), "there is a result, so no error"
    assert not is_gone(error, error), "the error is still there"
    assert not is_gone(wrong, error), "it may be there behind the error"


def test_what_a_later_release_that_has_the_bug_is_right_about_is_another_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Installed(TOY, "tests.support.toy_target:TOY", "1", sys.executable)
    now = Installed(MENDED, "tests.support.toy_target:MENDED", "2", sys.executable)
    with Runner(small_models=True) as runner:
        trial = Trial(models.relu(), old, {"offset": "one"}, runner)
        finding = examine(trial).finding
        assert finding
        both, first = (KnownIssue(replace(finding.to_save(), seen=seen)) for seen in (("1", "2"), ("1",)))
        assert examine(trial, [both]).known == both.id
        monkeypatch.setattr(explaining, "present", lambda installed: now if installed is old else None)
        assert examine(trial, [first]).known == first.id, "the later release has not that bug, and can say nothing"
        other = examine(trial, [both])
    assert (other.known, other.finding is not None) == ("", True), "it is taken for the bug that is still there"
    assert other.finding
    assert folder_name(other.finding.signature) != both.id, "it has the name of another bug"


def test_what_an_older_release_does_without_quantizing_is_not_a_bug_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = Installed(FLAWED, "tests.support.toy_target:FLAWED", "1", sys.executable)
    monkeypatch.setattr(Trial, "quantizes", property(lambda trial: trial.recipe.get("offset") == "one"))
    two, three = (
        tools.make_case([node("Relu", ["x"], ["y"])], {"x": np.float32([1, 2, 4][:n])}, ["y"]) for n in (2, 3)
    )
    with Runner(small_models=True) as runner:
        finding = examine(Trial(two, old, {"offset": "one"}, runner)).finding
        assert finding
        known = KnownIssue(finding.to_save())
        plain = Trial(three, old, {}, runner)
        assert examine(plain, [known]).known == known.id
        monkeypatch.setattr(explaining, "present", lambda installed: replace(installed, release="2"))
        other = examine(plain, [known])
        assert other.known == "", "it is taken for the bug of quantizing"
        assert examine(replace(plain, recipe={"offset": "one"}), [known]).known == known.id
    assert other.finding
    assert folder_name(other.finding.signature) != known.id, "it has the name of another bug"


def test_a_range_that_is_another_tensors_is_no_operator_that_is_gone_for_it_has_one_operator_in_common(
    runner: Runner,
) -> None:
    """Neither is it known by a case that shows the one, nor reduced to the other: both are wrong values."""
    numbers = {"s": [1, 0.5], "b": [0, 0.5], "m": [0, 1], "v": [1, 1]}
    constants = {name: np.float32(values) for name, values in numbers.items()}
    nodes = [node("BatchNormalization", ["x", *constants], ["y"]), node("Relu", ["y"], ["z"])]
    x, outputs = np.linspace(-4, 2, 8, dtype=np.float32).reshape(1, 2, 4), [(name, 1, (1, 2, 4)) for name in "yz"]
    gone = KnownIssue(corpus.load(saved_case("dc9313e3")))
    trial = Trial(models.case(nodes, {"x": x}, constants, outputs=outputs), resolve("onnxruntime-quant"), {}, runner)
    found = examine(trial, [gone])
    assert (gone.wrong, found.known) == ("operator removed", "")
    assert found.finding
    assert class_of(found.finding.verdict) == class_of(found.verdict) == "range of another tensor"


@pytest.mark.parametrize(
    ("said", "shown", "known"),
    [
        ("'c' of Add holds 0 at [], the float model 1e-05: 5.2e+05 steps off", "codes unused", False),
        ("'c' of Add holds 0 at [], the float model 1e-05: 5.2e+05 steps off", "small numbers lost", True),
        ("'c' of Add holds 1 at [0], the float model 2: 3 steps off", "codes unused", False),
        ("'c' of Add uses 50% of its codes where 95% are usual: its scale is too big", "codes unused", True),
        ("'c' of Add holds 1 at [0], the float model 2: 3 steps off", "scale", True),
    ],
)
def test_a_constant_that_leaves_codes_out_is_no_bug_of_another_class_at_the_same_operator(said, shown, known):
    """What is wrong with a constant of an Add is many things: an operator that a case has too says little."""
    case = small(node("Add", ["x", "c"], ["y"]), c=floats(2, 3))
    saved, failed = issue(case, tier="artifact", message=said), Symptom(COARSE, "y", "Add", where=artifact(shown))
    found = explains(saved, case, lambda part: failed if part.proto.graph.node else Symptom(), tools.record)
    assert found == known, f"{shown!r} by a case of class {saved.wrong!r}: known is {found}, should be {known}"


def artifact(wrong: str) -> Where:
    return Where("artifact", (wrong,))


def test_a_failure_known_in_part_is_no_other_issue_that_the_cut_shows(runner, monkeypatch):
    """Cut out of the rest, a model may end in a stage that the whole came through."""
    case = models.case([node("Neg", ["x"], ["y"])], {"x": floats(2)}, outputs=[("y", 1, (2,))])
    known = issue(case)
    other = changed(known, id="test_other")
    trial = Trial(case, resolve("mnn"), {}, runner)

    def pursued(trial: Trial, inquiry: object) -> None:
        raise pursuing.KnownError(other, trial)

    ran = (known.saved.verdict, Observation((StageRun("execute", Outcome.OK),)))
    monkeypatch.setattr(pipeline, "watch", lambda trial: ran)
    monkeypatch.setattr(pipeline, "explained", lambda *args: Explanation((known,), case))
    monkeypatch.setattr(pipeline, "pursue", pursued)
    assert examine(trial).known == known.id
