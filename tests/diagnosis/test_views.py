"""views: where a fault lies, how errors run along the depth, how a wrong tensor is distributed."""

import numpy as np
import pytest
from driftnet.diagnosis.views import BINS, along_the_depth, around, distribution
from driftnet.model.submodel import Recording
from driftnet.model.verdict import Verdict, Word
from onnx import helper

from tests.support import reduction as tools

NODES = [
    helper.make_node("Relu", ["x"], ["a"], name="first"),
    helper.make_node("Neg", ["a"], ["b"], name="second"),
    helper.make_node("Abs", ["b"], ["c"], name="third"),
    helper.make_node("Exp", ["c"], ["y"], name="last"),
]
CASE = tools.make_case(NODES, {"x": np.ones(3, np.float32)}, ["y"], {})


def test_a_fault_is_shown_between_those_that_make_what_it_reads_and_read_what_it_makes():
    found = around(CASE, (1,))
    assert [(n.node, n.at_fault) for n in found] == [("first", False), ("second", True), ("third", False)]


def test_windows_stand_at_the_depth_of_what_they_end_in_with_the_worst_of_each():
    verdicts = [
        Verdict(Word.AGREES, output="b", error=0.5, bound=2.0),
        Verdict(Word.DIVERGES, output="b", error=6.0, bound=2.0),
        Verdict(Word.AGREES, output="y", error=np.inf, bound=2.0),
    ]
    points = along_the_depth(CASE, verdicts, None, Recording(({},), ()))
    assert [(p.tensor, p.at, p.error, p.excess) for p in points] == [("b", 0.25, None, 3.0)]


def test_every_number_of_a_wrong_tensor_is_counted_and_nothing_else():
    right = [{"y": np.array([0.0, 1.0, 2.0], np.float32)}]
    made = [{"y": np.array([0.0, np.nan, 10.0], np.float32)}]
    found = distribution("y", made, right)
    assert (found.low, found.high, len(found.right)) == (0.0, 10.0, BINS)
    assert (sum(found.right), sum(found.made)) == (3, 2), "NaN lies nowhere"
    assert distribution("y", [{"y": np.array(["a"])}], right) is None
    assert distribution("y", made, [{}]) is None


@pytest.mark.parametrize(
    ("low", "high"),
    [(2.7e38, 2.7e38), (1e30, np.nextafter(1e30, np.inf)), (-1.7e308, 1.7e308), (0.0, 5e-324), (3.0, 3.0)],
)
def test_numbers_of_any_size_however_near_to_each_other_are_counted(low, high):
    found = distribution("y", [{"y": np.array([low, np.inf])}], [{"y": np.array([low, high])}])
    assert (found.low, found.high, sum(found.right), sum(found.made)) == (low, high, 2, 1)
    assert found.made[0] == 1
