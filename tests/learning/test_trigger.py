"""A trigger that is known is found: by experiment, from one reduced case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.causes.words import sentence
from driftnet.learning.experiment import Sample
from driftnet.learning.trigger import compare, learn_trigger, under_options
from driftnet.model.case import Case
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from onnx import helper

from tests.support.models import grid
from tests.support.triggers import learned, one, said, saved, some


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


def pool(op: str, **attributes: object) -> Case:
    return one(op, grid((1, 2, 6, 6)), kernel_shape=[2, 2], **attributes)


def transposed(*, exposed: bool) -> Case:
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["t", "w"], ["y"])]
    return some(nodes, {"x": grid((2, 3))}, {"w": grid((2, 4))}, outputs=["y", "t"] if exposed else ["y"])


def products(weights: dict[str, np.ndarray]) -> Case:
    first, *_, last = [*weights, *weights]
    nodes = [helper.make_node("MatMul", ["x", first], ["t"]), helper.make_node("MatMul", ["t", last], ["y"])]
    return some(nodes, {"x": grid((2, 3))}, weights, outputs=["y"])


def test_an_attribute_that_is_not_stated(runner: Runner) -> None:
    found = learned(pool("MaxPool"), "tests.support.bugs:NEEDS_STRIDES", runner)
    assert said(found, pool("MaxPool")), f"the trigger is {found.trigger}"
    assert said(found, pool("AveragePool")), "its sibling, which fails too"
    assert said(found, pool("LpPool")) is False, "its sibling, which does not"
    assert said(found, pool("MaxPool", strides=[1, 1])) is False
    assert said(found, pool("MaxPool", auto_pad="SAME_UPPER")), "what does not matter"
    assert "without `strides`" in sentence(found.trigger, found.free), sentence(found.trigger, found.free)
    assert {"0.attr.strides.stated"} & {*found.needed} or "0.attr.strides" in found.needed
    assert "0.attr.ceil_mode" in found.free, f"of what was tried, this does not matter: {found.free}"
    (score,) = compare([found.trigger], found, resolve("tests.support.bugs:NEEDS_STRIDES"), runner, seed=9)
    assert score.accuracy >= 0.95, f"of fresh instances it is right about {score}"
    assert score.failing, "some of them fail"


def test_how_many_axes_there_are(runner: Runner) -> None:
    x = grid((2, 3, 4))
    found = learned(one("ReduceMax", x, axes=[0, 1]), "tests.support.bugs:NEGATES_LONG_MAXIMA", runner)
    assert said(found, one("ReduceMax", x, axes=[1, 2])), f"the trigger is {found.trigger}"
    assert said(found, one("ReduceMax", x, axes=[1])) is False
    assert said(found, one("ReduceMin", x, axes=[1, 2])) is False


def test_a_constant_operand_at_a_crash(runner: Runner) -> None:
    x, w = grid((2, 3)), np.full((3,), 2, np.float32)
    # A crash costs a template and an unwound stack: what takes others a second takes ten.
    found = learned(one("Sub", x, constants=[w]), "tests.support.bugs:CRASHES_AT_CONSTANTS", runner, seconds=12)
    assert found.where.sort == "crash"
    assert found.where.keys[0].endswith("string_at"), f"the place is {found.where}"
    assert said(found, one("Div", x, constants=[w])), f"the trigger is {found.trigger}"
    assert said(found, one("Add", x, constants=[w])) is False
    assert said(found, one("Sub", x, w)) is False, "a second operand that is fed"


def test_how_nodes_hang_together(runner: Runner) -> None:
    found = learned(transposed(exposed=False), "tests.support.bugs:FUSES_TRANSPOSES", runner)
    assert found.trigger is not None
    assert found.trigger.shape.edges == {(1, 0)}
    assert said(found, transposed(exposed=False)), f"the trigger is {found.trigger}"
    assert said(found, transposed(exposed=True)) is False
    assert said(found, one("MatMul", grid((2, 3)), constants=[grid((3, 4))])) is False, "a MatMul by itself"


def test_that_weights_of_two_nodes_are_equal_is_told_from_that_they_are_one(runner: Runner) -> None:
    found = learned(products({"w": grid((3, 3))}), "tests.support.bugs:REFUSES_TIED_WEIGHTS", runner)
    assert "1.in.1.shared" in found.free, "one tensor or two of the same numbers does not matter"
    assert "1.in.1.equals" in found.needed, "other numbers do"


def test_the_only_option_of_a_recipe_is_tried_at_its_default(runner: Runner) -> None:
    """Conversion to float16 says of the mean of doubles, which is a float32, that it is a float16."""
    node, weights = helper.make_node("LayerNormalization", ["x", "w"], ["y", "mean"]), {"w": np.ones(3)}
    case = some([node], {"x": grid((2, 3)).astype(np.float64)}, weights, outputs=["y"])
    finding = saved(case, "onnxruntime-graph", runner, {"float16": "all"})
    found = learn_trigger(finding, resolve("onnxruntime-graph"), runner, seconds=3.0)
    assert "recipe.float16" in found.needed, f"the trigger is {found.trigger}"


def test_a_trigger_asks_for_an_option_without_which_the_case_is_right() -> None:
    def sample(how: str, aspect: str, fails: bool, **options: str) -> Sample:
        facts = {"0.op": "Relu"} | {f"recipe.{name}": value for name, value in options.items()}
        return Sample(pool("MaxPool"), {}, how, fails, facts, aspect, agrees=not fails and aspect != "recipe.types")

    samples = [
        sample("case", "", True, format="QOperator", types="u8", method="KL"),
        sample("pair", "recipe.format", False, format="QDQ", types="u8", method="KL"),
        sample("pair", "recipe.types", False, format="QOperator", types="s8", method="KL"),
        sample("pair", "recipe.method", True, format="QOperator", types="u8", method="ADMM"),
        sample("pair", "recipe.method", False, format="QOperator", types="u8", method="EMA"),
    ]
    before = Trigger(Shape(), (Region((Atom("0.op", "is", "Relu"),)),))
    (region,) = under_options(before, samples).regions
    assert region.atoms[1:] == (
        Atom("recipe.format", "in", ("QOperator",)),
        Atom("recipe.method", "in", ("ADMM", "KL")),
    ), "of what fails otherwise nothing is known"
    assert under_options(before, samples[:1]) == before


def test_a_region_away_from_the_case_asks_for_the_option_too_unless_it_fails_without() -> None:
    def sample(how: str, fails: bool, dtype: str, option: str) -> Sample:
        facts = {"0.op": "Relu", "0.in.0.dtype": dtype, "recipe.fusions": option}
        return Sample(
            pool("MaxPool"), {}, how, fails, facts, "recipe.fusions" if how == "pair" else "", agrees=not fails
        )

    samples = [sample("case", True, "int32", "t5"), sample("pair", False, "int32", "none")]
    elsewhere = Region((Atom("0.in.0.dtype", "not", "int32"),))
    (region,) = under_options(Trigger(Shape(), (elsewhere,)), samples).regions
    asked = Atom("recipe.fusions", "in", ("t5",))
    assert region.atoms[1:] == (asked,), f"{region.atoms[1:]}, of what is not int32 no failure without it was seen"
    without = [*samples, sample("walk", True, "float", "none")]
    (region,) = under_options(Trigger(Shape(), (elsewhere,)), without).regions
    assert region == elsewhere, f"{region}, though a float one failed without the option"


def test_a_finding_that_does_not_come_back_teaches_nothing(runner: Runner) -> None:
    finding = saved(pool("MaxPool"), "tests.support.bugs:NEEDS_STRIDES", runner)
    mended = replace(finding, case=pool("MaxPool", strides=[1, 1]))
    found = learn_trigger(mended, resolve("tests.support.bugs:NEEDS_STRIDES"), runner, seconds=1.0)
    assert found.trigger is None


@pytest.mark.parametrize(("relus", "told"), [(3, True), (5, False)])
def test_of_many_nodes_that_nobody_varied_nothing_is_said(runner: Runner, relus: int, told: bool) -> None:
    nodes = [helper.make_node("Relu", [f"x{k}"], [f"x{k + 1}"]) for k in range(relus)]
    nodes.append(helper.make_node("MaxPool", [f"x{relus}"], ["y"], kernel_shape=[2, 2]))
    case = some(nodes, {"x0": grid((1, 2, 6, 6))}, {}, outputs=["y"])
    found = learned(case, "tests.support.bugs:NEEDS_STRIDES", runner, seconds=0.0)
    assert (found.trigger is not None) is told, f"the trigger of {relus + 1} nodes is {found.trigger}"
