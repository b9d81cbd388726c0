"""How small the reducer makes what fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet.model.inspect import Case, all_nodes, declared_dims, elements, nodes
from driftnet.model.submodel import needless, reads
from driftnet.reduce.problem import array_complexity, shrink
from driftnet.reduce.reducer import Reduced, reduce
from onnx import helper

from tests.support import models
from tests.support import reduction as tools

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def reduced(case: Case, bug: tools.Bug, recipe: dict[str, object] | None = None, **limits: float) -> Reduced:
    return reduce(case, recipe or {}, tools.TARGET, bug, tools.record, **limits)


def operators(case: Case) -> list[str]:
    return [node.op_type for node in case.proto.graph.node]


def values(case: Case) -> set[float]:
    arrays = [*tools.constants_of(case).values(), *(x for feed in case.feeds for x in feed.values())]
    return {float(v) for x in arrays for v in np.ravel(x)}


def test_a_cnn_with_a_wrong_fold_comes_down_to_the_two_nodes_that_are_folded():
    case = tools.cnn()
    assert nodes(case) == 41, f"the model to start from has {nodes(case)} nodes, should be 41"
    result = reduced(case, tools.on_valid(tools.folds_scale_by_group), {"method": "KL", "threads": 4})
    assert operators(result.case) == ["ConvTranspose", "BatchNormalization"]
    assert elements(result.case) <= 16, f"{elements(result.case)} elements are left, should be at most 16"
    assert values(result.case) <= {0.0, 1.0}, f"the values left are {values(result.case)}, should be 0 and 1"
    assert result.recipe == {}, f"the recipe left is {result.recipe}, should be empty"
    assert len(result.case.feeds) == 1, f"{len(result.case.feeds)} feeds are left, should be one"
    assert result.calls <= 100, f"it took {result.calls} runs of the target, should be at most 100"


def test_the_result_reproduces_and_is_valid():
    bug = tools.on_valid(tools.folds_scale_by_group)
    result = reduced(tools.cnn(3, planted=1), bug)
    assert bug(result.case, result.recipe), "the reduced case does not show the bug it was reduced for"


def test_reduction_is_deterministic():
    results = [reduced(tools.cnn(3, planted=1), tools.on_valid(tools.folds_scale_by_group)) for _ in range(2)]
    assert results[0].case.digest == results[1].case.digest, "two reductions of one case differ"
    assert results[0].calls == results[1].calls, "two reductions of one case took different numbers of runs"


@pytest.mark.parametrize("calls", [1, 5, 20])
def test_a_spent_budget_keeps_the_best_so_far(calls: int):
    bug = tools.on_valid(tools.folds_scale_by_group)
    result = reduced(tools.cnn(5, planted=2), bug, calls=calls)
    assert (result.ended, result.calls) == ("budget", calls), f"ended as {result.ended} after {result.calls} runs"
    assert bug(result.case, result.recipe), "what the budget left does not show the bug"


def test_no_time_at_all_gives_the_case_back():
    case = tools.cnn(3, planted=1)
    result = reduced(case, tools.on_valid(tools.folds_scale_by_group), budget=0)
    assert (result.ended, result.case) == ("budget", case)


def test_an_interrupt_keeps_the_best_so_far():
    case, bug = tools.cnn(5, planted=2), tools.on_valid(tools.folds_scale_by_group)
    asked = []

    def bug_until_interrupted(candidate: Case, recipe: object) -> bool:
        asked.append(candidate)
        if len(asked) == 10:
            raise KeyboardInterrupt
        return bug(candidate, recipe)

    result = reduced(case, bug_until_interrupted)
    assert result.ended == "interrupted", f"the reduction ended as {result.ended}, should be interrupted"
    assert bug(result.case, result.recipe), "what the interrupt left does not show the bug"
    assert nodes(result.case) < nodes(case), "ten runs made nothing smaller"


def test_no_candidate_is_tried_twice():
    seen: list[str] = []

    def bug(case: Case, recipe: object) -> bool:
        seen.append(case.digest)
        return tools.is_valid(case) and tools.folds_scale_by_group(case, {})

    reduced(tools.cnn(3, planted=1), bug)
    assert len(seen) == len(set(seen)), f"{len(seen) - len(set(seen))} of {len(seen)} candidates were tried again"


def test_a_result_whose_size_depends_on_numbers_keeps_the_size_that_is_declared():
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"])
    feed = {"boxes": np.float32([[[0, 0, 1, 1], [2, 2, 3, 3]]]), "scores": np.float32([[[1, 2]]])}
    case = models.case([node], feed, {"most": np.int64([2])}, outputs=[("y", 7, (2, 3))], opset=11)
    result = reduced(case, tools.on_valid(tools.contains("NonMaxSuppression")))
    (declared,) = result.case.proto.graph.output
    (made,) = tools.record(result.case)
    assert declared_dims(declared) == list(made[declared.name].shape)


@pytest.mark.parametrize("op", ["Conv", "Relu", "GlobalAveragePool", "ConvTranspose"])
def test_a_bug_of_one_operator_comes_down_to_that_node(op: str):
    result = reduced(tools.cnn(), tools.contains(op))
    assert operators(result.case) == [op]
    assert elements(result.case) <= 4, f"{elements(result.case)} elements are left, should be at most 4"
    assert values(result.case) == {0.0}, f"the values left are {values(result.case)}, should all be 0"


def test_two_nodes_far_apart_keep_their_link_through_what_stood_between():
    nodes_ = [helper.make_node("Exp", ["x"], ["a"])]
    nodes_ += [helper.make_node("Relu", [v], [w]) for v, w in zip("abcdefg", "bcdefgh")]
    nodes_ += [helper.make_node("Neg", ["h"], ["y"])]

    def bug(case: Case, recipe: object) -> bool:
        ops = operators(case)
        return (
            tools.is_valid(case)
            and ops[0] == "Exp"
            and ops[-1] == "Neg"
            and len(list(tools.edges(case))) == len(ops) - 1
        )

    result = reduced(tools.make_case(nodes_, {"x": random(4, 4)}, ["y"]), bug)
    assert operators(result.case) == ["Exp", "Neg"], f"left are {operators(result.case)}, should be Exp and Neg"


def test_one_of_several_outputs_is_enough():
    nodes_ = [helper.make_node(op, ["x"], [op]) for op in ("Exp", "Relu", "Neg", "Abs")]
    case = tools.make_case(nodes_, {"x": random(3)}, ["Exp", "Relu", "Neg", "Abs"])
    result = reduced(case, tools.contains("Neg"))
    assert operators(result.case) == ["Neg"]
    assert [v.name for v in result.case.proto.graph.output] == ["y"]


@pytest.mark.parametrize(("by_dead", "left"), [(True, ["Relu", "Relu"]), (False, ["Sin"])])
def test_what_no_output_needs_stays_only_where_the_failure_does_not_show_without(by_dead: bool, left: list[str]):
    dead = [helper.make_node("Neg", ["b"], ["n"]), helper.make_node("Abs", ["n"], ["m"])]
    live = [helper.make_node(op, [x], [y]) for op, x, y in zip(("Relu", "Sin", "Erf"), "auv", "uvy")]
    case = tools.make_case([*live, *dead], {"a": random(2, 3), "b": random(4)}, ["y"])

    def bug(case: Case, recipe: tools.Recipe) -> bool:
        return bool(needless(case.proto.graph)) if by_dead else "Sin" in operators(case)

    assert sorted(operators(reduced(case, tools.on_valid(bug)).case)) == left


def test_optional_operands_go_with_the_gaps_they_leave():
    case = tools.make_case(
        [helper.make_node("LSTM", ["x", "w", "r", "b", "n", "", "c", "p"], ["", "", "y"], hidden_size=2)],
        {"x": random(3, 2, 4)},
        ["y"],
        {
            "w": random(1, 8, 4),
            "r": random(1, 8, 2),
            "b": random(1, 16),
            "n": np.array([3, 2], np.int32),
            "c": random(1, 2, 2),
            "p": random(1, 6),
        },
    )
    (node,) = reduced(case, tools.contains("LSTM")).case.proto.graph.node
    assert list(node.input) == ["x", "w", "r"], f"operands left are {list(node.input)}, should be the first three"


def test_variadic_operands_go_down_to_one():
    case = tools.make_case([helper.make_node("Max", ["x", "v", "w"], ["y"])], {k: random(2) for k in "xvw"}, ["y"])
    (node,) = reduced(case, tools.contains("Max")).case.proto.graph.node
    assert list(node.input) == ["x"]


def leaky(alpha: float) -> Case:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=alpha)
    return tools.make_case([node], {"x": np.array([-1, 1, -3], np.float32)}, ["y"])


@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_an_attribute_goes_where_the_failure_stays_what_it_is(alpha: float):
    (node,) = reduced(leaky(alpha), tools.contains("LeakyRelu")).case.proto.graph.node
    assert tools.attributes(node) == {}


def test_a_stated_default_stays_where_its_absence_is_another_bug():
    def shows(case: Case, recipe: object) -> str:
        stated = any(tools.attributes(node) for node in case.proto.graph.node)
        return "" if not tools.contains("LeakyRelu")(case, {}) else "stated" if stated else "absent"

    for alpha in (0.01, 0.5):
        (node,) = reduced(leaky(alpha), shows).case.proto.graph.node
        assert "alpha" in tools.attributes(node), f"{alpha} was dropped"


@pytest.mark.parametrize("needed", [False, True])
def test_the_declared_type_of_a_weight_stays_only_where_the_failure_needs_it(needed: bool):
    case = tools.make_case(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": random(3, 4)}, ["y"], {"w": random(4, 5)}
    )
    model = case.proto
    model.graph.value_info.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 5]))

    def bug(candidate: Case, recipe: object) -> bool:
        declared = bool(candidate.proto.graph.value_info)
        return tools.is_valid(candidate) and operators(candidate) == ["MatMul"] and (declared or not needed)

    graph = reduced(replace(case, model=model.SerializeToString()), bug).case.proto.graph
    said = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.value_info]
    assert said == ([[1, 1]] if needed else []), "a declaration follows its weight"


def test_an_operator_that_does_not_matter_becomes_relu():
    case = tools.make_case(
        [helper.make_node("Softmax", ["x"], ["a"], axis=0), helper.make_node("Mul", ["a", "w"], ["y"])],
        {"x": random(3, 4)},
        ["y"],
        {"w": random(4)},
    )
    assert operators(reduced(case, tools.on_valid(lambda case, recipe: True)).case) == ["Relu"]
    bug = tools.on_valid(lambda case, recipe: operators(case)[-1] == "Mul" and len(operators(case)) == 2)
    assert operators(reduced(case, bug).case) == ["Relu", "Mul"]


def test_a_plain_operator_drops_what_only_the_other_operands_needed():
    nodes_ = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Sin", ["x"], ["b"])]
    nodes_.append(helper.make_node("Add", ["a", "b"], ["y"]))
    case = tools.make_case(nodes_, {"x": random(3, 4)}, ["y"])

    def bug(case: Case, recipe: object) -> bool:
        return operators(case) == ["Exp", "Sin", "Add"] or operators(case)[1:] == ["Relu"]

    assert operators(reduced(case, tools.on_valid(bug)).case) == ["Relu", "Relu"]


def branches() -> Case:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3,4] start, bool flag) => (float[3,4] end)
    {
        one = Exp(start)
        two = Neg(one)
        three = If(flag) <
            then_branch = t () => (float[3,4] inner) { deep = Add(two, one) inner = Abs(deep) },
            else_branch = e () => (float[3,4] other) { other = Neg(start) }
        >
        end = Sin(three)
    }
    """
    feed = {"start": random(3, 4), "flag": np.array(True)}
    return Case(onnx.parser.parse_model(text).SerializeToString(), (feed,))


def test_a_branch_keeps_what_it_captures():
    left = reduced(branches(), tools.contains("If")).case
    assert operators(left) == ["If"]
    assert all(len(name) <= 2 for name in reads(left.proto.graph.node[0])), "names in the branches are not tidied"


@pytest.mark.parametrize("bug", [["Abs"], ["Add", "Abs"], ["Exp", "Add", "Abs", "Sin"]], ids="-".join)
def test_a_bug_in_a_branch_comes_out_of_it(bug: list[str]):
    def shows(case: Case, recipe: object) -> bool:
        ops = [node.op_type for node in all_nodes(case.proto.graph)]
        return set(bug) <= set(ops)

    assert operators(reduced(branches(), tools.on_valid(shows)).case) == bug


def test_names_are_tidied():
    case = tools.make_case(
        [helper.make_node("Add", ["model.in", "layer.weight"], ["layer.out"], name="model/layer/Add")],
        {"model.in": random(2)},
        ["layer.out"],
        {"layer.weight": random(2)},
    )
    result = reduced(case, tools.contains("Add"))
    (node,) = result.case.proto.graph.node
    assert (node.name, list(node.input), list(node.output)) == ("", ["x", "w"], ["y"])
    (node,) = result.named.proto.graph.node
    assert node.name == "model/layer/Add", "who has the model knows its names"
    assert elements(result.named) == elements(result.case), "it is the same case"


def test_a_constant_value_that_the_bug_needs_is_kept_and_the_rest_is_zero():
    case = tools.make_case(
        [helper.make_node("Mul", ["x", "w"], ["y"])], {"x": random(2, 3, 4)}, ["y"], {"w": random(2, 3, 4)}
    )

    def bug(case: Case, recipe: object) -> bool:
        weights = tools.constants_of(case)
        return tools.is_valid(case) and any((w < 0).any() for w in weights.values())

    result = reduced(case, bug)
    assert elements(result.case) == 2, f"{elements(result.case)} elements are left, should be 2"
    assert values(result.case) == {0.0, -1.0}, f"the values left are {values(result.case)}, should be 0 and -1"


def test_symbolic_dims_become_static_unless_the_bug_needs_them():
    nodes_ = [helper.make_node("Relu", ["x"], ["y"])]
    feeds = [{"x": random(n, 3)} for n in (4, 5)]
    case = tools.make_case(nodes_, feeds[0], ["y"], symbols={"x": ["N", 3]}, more_feeds=feeds[1:])

    def dims(case: Case) -> list[str | int]:
        return [d.dim_param or d.dim_value for d in case.proto.graph.input[0].type.tensor_type.shape.dim]

    assert dims(reduced(case, tools.contains("Relu")).case) == [1]
    symbolic = reduced(case, tools.on_valid(lambda case, recipe: isinstance(dims(case)[0], str)))
    assert dims(symbolic.case) == ["N", 1], f"the input is {dims(symbolic.case)}, should be ['N', 1]"


def test_a_free_dim_without_a_name_becomes_static_too():
    case = tools.make_case([helper.make_node("Relu", ["x"], ["y"])], {"x": random(4)}, ["y"], symbols={"x": [None]})
    (dim,) = reduced(case, tools.contains("Relu")).case.proto.graph.input[0].type.tensor_type.shape.dim
    assert dim.dim_value == 1, f"the dim is {dim}, should be 1"


def test_an_option_the_failure_needs_stays_in_the_recipe():
    case = tools.make_case([helper.make_node("Relu", ["x"], ["y"])], {"x": random(3)}, ["y"])
    bug = tools.on_valid(lambda case, recipe: recipe.get("method") == "KL")
    assert reduced(case, bug, {"method": "KL", "threads": 4}).recipe == {"method": "KL"}


def test_what_needs_fewer_options_is_asked_anew_whether_it_is_known():
    asked: list[dict[str, object]] = []

    def simpler(case: Case, recipe: dict[str, object], anew: bool) -> None:
        asked.extend([dict(recipe)] if anew else [])

    bug = tools.on_valid(lambda case, recipe: recipe.get("method") == "KL")
    case = tools.make_case([helper.make_node("Relu", ["x"], ["y"])], {"x": random(3)}, ["y"])
    reduce(case, {"method": "KL", "threads": 4}, tools.TARGET, bug, tools.record, simpler=simpler)
    assert asked[-1] == {"method": "KL"}, f"it was asked with {asked}, should be once more without threads"


def test_calibration_feeds_go_unless_the_failure_needs_them():
    calibration = [{"x": random(3)} for _ in range(5)]
    case = tools.make_case([helper.make_node("Relu", ["x"], ["y"])], {"x": random(3)}, ["y"], calibration=calibration)
    assert reduced(case, tools.contains("Relu")).case.calibration == ()
    needed = reduced(case, tools.on_valid(lambda case, recipe: len(case.calibration) >= 2))
    assert len(needed.case.calibration) == 2


def test_calibration_feeds_stay_valid():
    nodes_ = [helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect")]
    case = tools.make_case(
        nodes_,
        {"x": random(9)},
        ["y"],
        {"pads": np.array([0, 2])},
        symbols={"x": ["N"]},
        calibration=[{"x": random(4)}],
    )
    left = reduced(case, tools.on_valid(lambda case, recipe: len(case.calibration) == 1)).case
    assert tools.is_valid(replace(left, feeds=left.calibration)), "the calibration feed is no longer valid"


def test_shrink_finds_the_items_that_matter():
    assert shrink(range(100), lambda items: {3, 77} <= set(items)) == [3, 77]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_shrink_keeps_the_least_number_of_items(kept: int):
    assert len(shrink(range(7), lambda items: True, least=kept)) == kept


def test_simple_values_are_simple():
    order = [0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 100.0, 0.25, 0.1, np.nan]
    ranks = [array_complexity(np.array([v])) for v in order]
    assert ranks == sorted(ranks), f"the values {order} have complexities {ranks}, which should rise"
