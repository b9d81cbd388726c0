"""The simulation of a large cluster does what its parts say, on numbers that are known."""

from __future__ import annotations

import pytest

from tests.support.scale import BEFORE, NOW, Costs, Distributions, Line, Load, read, simulated

FREE = Costs(Line(0.0), Line(0.0), 0.0, Line(0.0), 0, 0.0)


def measured(costs=FREE, failing=0, known_before=0.0):
    load = Load([(1.0, failing)], [0.1], [1.0], ["mnn"], 0.5, 1.0, known_before, 0.0, 0, 12.0)
    return Distributions(costs, {"one": load}, 0.0, (0.01, 0.0), {})


@pytest.mark.parametrize(("workers", "indices"), [(1, 99), (50, 50 * 99)])
def test_where_messages_cost_nothing_and_nothing_fails_no_worker_waits(workers, indices):
    told = simulated(measured(), "one", workers, seconds=100.0)
    assert abs(told.indices - indices) <= workers, f"got {told.indices} indices, should be {indices}"
    assert told.of_ideal > 0.98, f"of the time {told.of_ideal:.2f} counts, should be all"


@pytest.mark.parametrize("who", ["coordinator", "scheduler"])
def test_it_stops_where_one_that_serves_all_is_busy(who):
    slow = Costs(**{**{name: getattr(FREE, name) for name in FREE.__struct_fields__}, who: Line(0.1)})
    told = simulated(measured(slow), "one", 50, seconds=100.0)
    assert 900 <= told.indices <= 1000, f"got {told.indices} indices, should be ten a second"
    assert getattr(told, who) > 95, f"it was busy for {getattr(told, who):.0f} of 100 seconds"


def test_a_list_of_all_workers_for_each_index_costs_the_more_the_more_there_are():
    few, many = (simulated(measured(), "one", workers, 50.0, BEFORE).indices for workers in (10, 100))
    assert many < few, f"100 workers examined {many} indices, 10 {few}, should be less"


def test_what_cannot_be_what_others_found_is_not_examined_again():
    strict, by_case = (simulated(measured(failing=1), "one", 20, 100.0, ways) for ways in (BEFORE, NOW))
    assert 0 < by_case.again < strict.again, f"again: {by_case.again} by case, {strict.again} by target"
    assert by_case.found > strict.found, f"found: {by_case.found} by case, {strict.found} by target"


def test_the_committed_measurements_say_that_more_workers_examine_more_until_it_stops():
    cases = [simulated(read(), "the committed corpus", workers, 20.0).indices for workers in (1, 8, 64)]
    assert cases == sorted(cases), f"with 1, 8 and 64 workers: {cases} indices"
    assert cases[2] > 30 * cases[0], f"64 workers examined {cases[2]} indices, one {cases[0]}"
