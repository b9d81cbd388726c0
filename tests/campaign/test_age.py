"""What an old release has not yet is learned once, and left out of what is drawn for it."""

from __future__ import annotations

import sys

from driftnet.campaign.age import newest_opset, of_its_time
from driftnet.generators import bulk
from driftnet.generators.ops.registry import REGISTRY
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.interface import Target

from tests.support.toy_target import AGED, YOUNG


def installed(target: Target, name: str) -> Installed:
    return Installed(target, f"tests.support.toy_target:{name}", "1", sys.executable)


def test_no_case_is_drawn_of_an_opset_that_came_after_the_release(runner: Runner) -> None:
    old = installed(AGED, "AGED")
    assert newest_opset(old, runner) == 17
    weights = of_its_time(old, runner)
    assert weights["feature:opset-18"] == 0
    assert "feature:opset-17" not in weights
    newer = {name for name, operator in REGISTRY.items() if operator.since > 17}
    assert newer <= {name for name, factor in weights.items() if factor == 0}
    opsets = [bulk.case(3, index, weights=weights).proto.opset_import[0].version for index in range(60)]
    assert max(opsets) == 17, f"opsets {sorted({*opsets})} were drawn"


def test_of_a_release_that_is_not_old_nothing_is_left_out(runner: Runner) -> None:
    assert of_its_time(installed(YOUNG, "YOUNG"), runner) == {}
