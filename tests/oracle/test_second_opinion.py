"""The second opinion says who is wrong."""

import numpy as np
from driftnet.oracle.question.question import Question
from driftnet.oracle.second_opinion import Blame, blame
from onnx import TensorProto, helper

from tests.support import models


def asked(runner, observed, expected, op="Add"):
    """Who is wrong about x `op` x, for x = [1, 2, 3, 4]?"""
    x = np.array([1, 2, 3, 4], np.float32)
    case = models.case([helper.make_node(op, ["x", "x"], ["y"])], {"x": x}, outputs=[("y", TensorProto.FLOAT, (4,))])
    answers = [({"y": np.asarray(y, np.float32)},) for y in (observed, expected)]
    return blame(Question(case, *answers, runner.reference), (0, "y"))


def test_a_target_with_everybody_against_it_is_wrong(runner):
    assert asked(runner, observed=[2, 4, 6, 9], expected=[2, 4, 6, 8]) is Blame.TARGET


def test_a_reference_with_everybody_against_it_is_wrong(runner):
    assert asked(runner, observed=[2, 4, 6, 8], expected=[2, 4, 6, 9]) is Blame.REFERENCE


def test_where_nothing_rounds_by_rule_the_text_of_the_standard_decides(runner, monkeypatch):
    monkeypatch.setattr("driftnet.oracle.second_opinion._in_ball", lambda *_: None)
    assert asked(runner, observed=[2, 4, 6, 9], expected=[2, 4, 6, 8]) is Blame.TARGET
    assert asked(runner, observed=[2, 4, 6, 8], expected=[2, 4, 6, 9]) is Blame.REFERENCE
    assert asked(runner, observed=[2, 4, 6, 7], expected=[2, 4, 6, 9]) is Blame.UNDECIDED


def test_two_opinions_that_contradict_each_other_decide_nothing(runner, monkeypatch):
    monkeypatch.setattr("driftnet.oracle.second_opinion._in_ball", lambda *_: False)
    assert asked(runner, observed=[2, 4, 6, 9], expected=[2, 4, 6, 8]) is Blame.UNDECIDED
