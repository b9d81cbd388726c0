"""Places as models of their own, and which nodes a model is about."""

from __future__ import annotations

import pytest
from driftnet.causes.host import Host, host_of
from driftnet.causes.lookup import facts_of
from driftnet.causes.predicate import ONE_NODE
from driftnet.learning.instances import everything, shape_of, whole
from driftnet.model.case import Case
from onnx import helper

from tests.support.models import grid
from tests.support.triggers import some


def chained(insertions: int, *, last: str = "SequenceLength") -> Host:
    """A sequence of as many tensors, and one node that makes a tensor of it."""
    nodes = [helper.make_node("SequenceEmpty", [], ["s0"])]
    nodes += [helper.make_node("SequenceInsert", [f"s{k}", "x"], [f"s{k + 1}"]) for k in range(insertions)]
    attributes = {"axis": 0} if last == "ConcatFromSequence" else {}
    nodes.append(helper.make_node(last, [f"s{insertions}"], ["y"], **attributes))
    return host_of(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]))


@pytest.mark.parametrize("insertions", [1, 2, 5])
@pytest.mark.parametrize("last", ["SequenceLength", "ConcatFromSequence"])
def test_a_sequence_of_any_length_is_about_the_node_that_makes_a_tensor_of_it(insertions: int, last: str) -> None:
    host = chained(insertions, last=last)
    assert whole(host) == (insertions + 1,), f"{last} of {insertions} insertions is about {whole(host)}"
    assert shape_of(host) == ONE_NODE
    assert len(everything(host)) == insertions + 2
    dtype = facts_of(host, whole(host), {})["0.in.0.dtype"]
    assert dtype == "float", f"a sequence has the dtype of what it holds, not {dtype}"


def test_a_model_of_several_nodes_that_make_tensors_is_about_all_of_them() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["a"], ["s"]),
        helper.make_node("SequenceLength", ["s"], ["y"]),
    ]
    case: Case = some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"])
    assert whole(host_of(case)) == (0, 1, 2)
