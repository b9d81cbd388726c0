"""What an old release has not yet is learned once, and left out of what is drawn for it."""

from __future__ import annotations

import sys

from driftnet.campaign.age import ENOUGH, LEAST, Age
from driftnet.generators import bulk
from driftnet.generators.ops.registry import REGISTRY
from driftnet.model.verdict import Verdict, Word
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.interface import Target

from tests.support.toy_target import AGED, YOUNG


def age(target: Target, runner: Runner, name: str) -> Age:
    return Age(Installed(target, f"tests.support.toy_target:{name}", "1", sys.executable), runner)


def test_no_case_is_drawn_of_an_opset_that_came_after_the_release(runner: Runner) -> None:
    old = age(AGED, runner, "AGED")
    assert old.newest_opset == 17
    weights = old.weights
    assert weights["feature:opset-18"] == 0
    assert "feature:opset-17" not in weights
    newer = {name for name, operator in REGISTRY.items() if operator.since > 17}
    assert newer <= {name for name, factor in weights.items() if factor == 0}
    opsets = [bulk.case(3, index, weights=weights).proto.opset_import[0].version for index in range(60)]
    assert max(opsets) == 17, f"opsets {sorted({*opsets})} were drawn"


def test_of_a_release_that_is_not_old_nothing_is_left_out(runner: Runner) -> None:
    assert age(YOUNG, runner, "YOUNG").weights == {}


def test_an_operator_that_is_refused_is_drawn_less_often_by_how_often_it_runs(runner: Runner) -> None:
    old = age(AGED, runner, "AGED")
    refused = Verdict(
        Word.REJECTS, message="toy does not support this: no kernel for Mul(14)", rule=AGED.outgrown[0].name
    )
    for _ in range(ENOUGH):
        old.learn(refused, ["Add", "Mul"])
    assert old.weights["Mul"] == LEAST
    assert "Add" not in old.weights, "what the refusal does not name was blamed"
    for _ in range(ENOUGH):
        old.learn(Verdict(Word.AGREES), ["Mul"])
    assert old.weights["Mul"] == 0.5
