"""What a reduction takes for the failure that it was started for."""

import contextlib
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from driftnet.causes.place import Where
from driftnet.findings import pursuing
from driftnet.findings.trial import Trial
from driftnet.model.inspect import nodes
from driftnet.model.verdict import Observation, Outcome, StageRun, Verdict, Word
from driftnet.reduce.reducer import MINIMAL, Reduced
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models

SQRT = ("_mnncengine MNN::CPUUnary::onExecute", "_mnncengine MNN::Pipeline::execute")
OTHER_COPY = ("libMNN.so MNN::CPUUnary::onExecute",)
FLOOR = ("_mnncengine MNN::Tensor::host", "_mnncengine MNN::Pipeline::execute")


@pytest.mark.parametrize(("frames", "taken"), [(SQRT, True), (OTHER_COPY, True), (FLOOR, False), ((), True)])
def test_a_crash_is_reduced_in_its_function_as_far_as_that_is_known(monkeypatch, frames, taken):
    crash = Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV")
    seen = Observation((StageRun("execute", Outcome.CRASH, frames=frames),))
    monkeypatch.setattr(pursuing, "watch", lambda trial, fresh: (crash, seen))
    case = models.relu()
    trial, inquiry = Trial(case, resolve("mnn"), {}, SimpleNamespace()), SimpleNamespace(spent=False)
    reduction = pursuing._Reduction(trial, crash, inquiry, Where("crash", SQRT))
    said = reduction.reproduces(case, {})
    assert bool(said) == taken, f"a crash in {frames or 'no known place'} of one in {SQRT[0]}: {said!r}"
    unplaced = pursuing._Reduction(trial, crash, inquiry).reproduces(case, {})
    assert unplaced, f"where it crashed first is not known, so {frames} may be there: {unplaced!r}"


INF, NAN = np.float32([[-np.inf]]), np.float32([[np.nan]])


@pytest.mark.parametrize(
    ("operators", "x", "alone", "taken"),
    [
        (["Softmax"], INF, False, True),
        (["Softmax"], np.float32([[0]]), False, False),
        (["Relu"], INF, True, False),
        (["Relu"], NAN, True, False),
        (["Relu", "Softmax"], NAN, True, False),
        (["Relu", "Softmax"], NAN, False, True),
    ],
)
def test_nan_that_is_lost_is_not_reduced_to_nan_that_is_made_nor_to_what_a_plain_operator_does_to_it(
    runner, monkeypatch, operators, x, alone, taken
):
    def of(operators, x):
        names = ["x", *"tuv"[: len(operators) - 1], "y"]
        nodes = [helper.make_node(op, [a], [b]) for op, a, b in zip(operators, names, names[1:])]
        return models.case(nodes, {"x": x}, outputs=[("y", TensorProto.FLOAT, x.shape)])

    wrong = Verdict(Word.DIVERGES, stage="execute", kind="nan", message="wrong", output="y", at=(0, 0))
    monkeypatch.setattr(pursuing, "watch", lambda trial, fresh: (wrong, None))
    look = {"Relu": wrong if alone else Verdict(Word.AGREES)}
    monkeypatch.setattr(pursuing, "look", lambda trial: look[trial.case.proto.graph.node[0].op_type])
    trial = Trial(of(["Softmax"], INF), resolve("mnn"), {}, runner)
    reduction = pursuing._Reduction(trial, wrong, SimpleNamespace(spent=False))
    assert bool(reduction.reproduces(of(operators, x), {})) == taken


CRASH = Verdict(Word.CRASHES, stage="execute", kind="SIGSEGV")


@pytest.fixture
def reduced(monkeypatch):
    """What pursuing makes of a crash of a chain of so many nodes, where a reduction takes nothing away: the places that
    it was held to, its cases with the calls that it may take, and what is left."""

    def pursued(length):
        seen = Observation((StageRun("execute", Outcome.CRASH, frames=SQRT),))
        monkeypatch.setattr(pursuing, "watch", lambda trial, fresh=False: (CRASH, seen))
        monkeypatch.setattr(pursuing, "trace", lambda *_: None)
        places, asked = [], []

        def reduce(case, recipe, target, reproduces, record, calls, simpler):
            places.append(reproduces.__self__.where)
            asked.append((case, calls))
            return Reduced(models.relu() if len(asked) > 1 else readable, case, recipe, 30, 0.0, MINIMAL)

        monkeypatch.setattr(pursuing, "reduce", reduce)
        case, readable = chain("given", length), chain("x", length)
        runner = SimpleNamespace(within=lambda _: contextlib.nullcontext(), reference=SimpleNamespace(record=None))
        inquiry = SimpleNamespace(allowance=1, spent=False, effort=SimpleNamespace(calls=100))
        left = pursuing._reduced(Trial(case, resolve("mnn"), {}, runner), inquiry)
        return case, places, asked, left

    return pursued


def chain(name, length):
    made = [f"{name}{i}" for i in range(length + 1)]
    steps = [helper.make_node("Sqrt", [a], [b]) for a, b in itertools.pairwise(made)]
    return models.case(steps, {made[0]: np.ones((1, 4), np.float32)}, outputs=[(made[-1], TensorProto.FLOAT, (1, 4))])


def test_a_failure_is_reduced_in_the_place_in_which_it_was_first_seen(reduced):
    case, places, asked, _ = reduced(pursuing.MOST_IN_PLACE)
    assert places == [Where("crash", SQRT)], f"one reduction, in {SQRT[0]}, not {places}"
    assert asked == [(case, 100)], f"all calls are for it, not {asked}"


def test_a_crash_that_needs_many_nodes_in_its_place_is_reduced_on_by_its_kind_with_what_calls_are_left(reduced):
    case, places, asked, left = reduced(pursuing.MOST_IN_PLACE + 1)
    assert [bool(one.keys) for one in places] == [True, False], f"in its place, and then in any: {places}"
    assert [calls for _, calls in asked] == [100, 70], f"30 of 100 calls are spent, not {asked}"
    assert asked[1][0] is left.named is case, "what goes on has the names that it was given"
    assert nodes(left.trial.case) == 1, f"what is left is what the second reduction found, not {left.trial.case}"
