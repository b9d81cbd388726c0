"""charts: what stands where on the page of a check."""

import re

from driftnet.cli.report import charts


def point(at, *, error=None, excess=None):
    return {"tensor": f"t{at}", "at": at, "error": error, "excess": excess}


def test_what_is_beyond_its_bound_stands_above_the_line_and_what_is_not_below():
    drawn = charts.along_the_depth([point(0.1, excess=0.2), point(0.5, excess=30.0), point(0.9, excess=1e-20)])
    right, wrong, tiny = drawn["excess"]
    assert wrong["over"]
    assert not right["over"]
    assert wrong["y"] < drawn["bound"] < right["y"] < tiny["y"] <= drawn["high"]
    assert right["x"] < wrong["x"] < tiny["x"]


def test_errors_of_the_intact_artifact_are_joined_in_order():
    drawn = charts.along_the_depth([point(0.0, error=1e-7), point(0.5, error=1e-3), point(1.0, error=1e-2)])
    places = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+),([\d.]+)", drawn["path"])]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True), "larger errors stand higher"


def test_nothing_is_drawn_of_nothing():
    assert charts.along_the_depth([]) is None
    assert charts.along_the_depth([point(0.5, error=0.0)]) is None, "of no error there is no logarithm"
    assert charts.histogram(None) is None
    assert charts.neighbourhood([]) == ""


def test_a_histogram_has_a_bar_for_each_interval_and_the_larger_count_the_higher_one():
    shown = {"tensor": "y", "low": -1.0, "high": 1.0, "right": (1, 10, 100), "made": (0, 111, 0)}
    drawn = charts.histogram(shown)
    heights = [bar["h"] for bar in drawn["bars"]]
    assert heights == sorted(heights)
    assert max(heights) < drawn["high"], "the largest count is one of those that were made"
    assert (drawn["least"], drawn["most"]) == (-1.0, 1.0)


def test_the_node_at_fault_is_marked_among_its_neighbours():
    nodes = [
        {"node": "before", "op_type": "Relu", "inputs": ["x"], "outputs": ["a"], "at_fault": False},
        {"node": "<b>/Erf", "op_type": "Erf", "inputs": ["a"], "outputs": ["y"], "at_fault": True},
    ]
    drawn = charts.neighbourhood(nodes)
    assert drawn.count("fault") == 1 + drawn.count("the fault lies"), drawn
    assert "&lt;b&gt;/Erf" in drawn
    assert "<b>" not in drawn
