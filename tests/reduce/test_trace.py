"""A failure that surfaces late is traced back to where it starts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from driftnet.model.inspect import Case, nodes
from driftnet.model.verdict import Kind, Verdict, Word
from driftnet.reduce.trace import trace
from onnx import helper

from tests.support import reduction as tools

AGREES = Verdict(Word.AGREES)
WRONG_SHAPE = Verdict(Word.DIVERGES, stage="execute", kind=Kind.WRONG_SHAPE)
NO_OUTPUT = Verdict(Word.FAILS, stage="execute", kind=Kind.NO_OUTPUT)


def chain(*ops: str) -> Case:
    made = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i, op in enumerate(ops)]
    return tools.make_case(made, {"v0": np.ones((2, 3), np.float32)}, [f"v{len(ops)}"])


def shape_of(op: str) -> Callable[[Case], Verdict]:
    """`op` gives a wrong shape, and whatever reads it does not run."""

    def examine(case: Case) -> Verdict:
        assert tools.is_valid(case), "trace made a case that is not valid"
        ops = [node.op_type for node in case.proto.graph.node]
        return AGREES if op not in ops else WRONG_SHAPE if ops[-1] == op else NO_OUTPUT

    return examine


def ops(case: Case) -> list[str]:
    return [node.op_type for node in case.proto.graph.node]


def test_the_earliest_tensor_that_fails_alone_is_the_finding():
    traced = trace(chain("Exp", "Abs", "Neg", "Relu"), shape_of("Abs"), tools.record)
    assert traced is not None
    assert (ops(traced.case), traced.verdict.kind, traced.tensor) == (["Exp", "Abs"], Kind.WRONG_SHAPE, "v2")


def test_a_failure_of_the_last_tensor_has_no_earlier_source():
    assert trace(chain("Exp", "Abs", "Neg"), shape_of("Neg"), tools.record) is None


@pytest.mark.parametrize("at", [0, 1, 57, 98])
def test_a_large_model_is_bisected(at: int):
    case = chain(*(["Exp"] + ["Relu"] * (at - 1) if at else []), "Abs", *["Relu"] * (99 - at))
    calls = 0

    def examine(case: Case) -> Verdict:
        nonlocal calls
        calls += 1
        return shape_of("Abs")(case)

    traced = trace(case, examine, tools.record)
    assert traced is not None
    assert nodes(traced.case) == at + 1, f"traced to {nodes(traced.case)} nodes, should be {at + 1}"
    assert calls <= 10, f"it took {calls} examinations of 100 nodes, should be at most 10"


def test_only_what_the_tensor_depends_on_is_kept():
    made = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Abs", ["x"], ["b"])]
    made.append(helper.make_node("Add", ["a", "b"], ["y"]))
    case = tools.make_case(made, {"x": np.ones(3, np.float32)}, ["y"])
    traced = trace(case, shape_of("Abs"), tools.record)
    assert traced is not None
    assert ops(traced.case) == ["Abs"]
