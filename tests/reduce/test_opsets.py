"""What a reader of a reduced model has to know is as old as what the model says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from driftnet.model.inspect import Case
from driftnet.reduce.reducer import reduce
from onnx import helper

from tests.support import reduction as tools

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def model(*nodes: onnx.NodeProto, opset: int = 21) -> Case:
    case = tools.make_case(nodes, {"x": X}, ["y"], {"axes": np.array([1])}, opset=opset)
    proto = onnx.ModelProto.FromString(case.model)
    proto.ir_version = 10
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return Case(proto.SerializeToString(), case.feeds)


def versions(case: Case, bug: tools.Bug) -> tuple[int, int, int]:
    """(opset, IR version, number of operator sets) of what is left."""
    left = reduce(case, {}, tools.TARGET, bug, tools.record).case.proto
    assert left.opset_import[0].domain == ""
    return left.opset_import[0].version, left.ir_version, len(left.opset_import)


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        (helper.make_node("Erf", ["x"], ["y"]), 13),
        (helper.make_node("Sin", ["x"], ["y"]), 11),  # since 7: 11 is old enough
        (helper.make_node("ReduceMean", ["x", "axes"], ["y"]), 18),  # with axes as an attribute it would be another
        (helper.make_node("Identity", ["x"], ["y"]), 21),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_the_opset_goes_down_to_the_one_that_defines_the_operators(node: onnx.NodeProto, opset: int):
    bug = tools.on_valid(lambda case, recipe: [n.op_type for n in case.proto.graph.node] == [node.op_type])
    assert versions(model(node), bug)[::2] == (opset, 1)


def test_the_ir_version_goes_with_the_opset():
    assert versions(model(helper.make_node("Erf", ["x"], ["y"])), tools.contains("Erf")) == (13, 7, 1)


def test_versions_that_the_failure_needs_stay():
    def bug(case: Case, recipe: object) -> bool:
        return case.proto.opset_import[0].version >= 19 and tools.is_valid(case)

    assert versions(model(helper.make_node("Erf", ["x"], ["y"])), bug) == (21, 10, 2)
