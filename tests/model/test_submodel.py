"""Any subset of a model's nodes is a legal model that computes what was recorded."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import onnx
import pytest
from driftnet.generators import bulk
from driftnet.model.inspect import Case, computing, declared_dims, graph_inputs
from driftnet.model.submodel import (
    Recording,
    UnrecordedError,
    ancestors,
    reads,
    recording,
    recording_within,
    submodel,
    with_makers,
)
from onnx import helper, parser

from tests.support import reduction as tools
from tests.support.rules import assert_each

RNG = np.random.default_rng(1)


def parsed(text: str, *feeds: dict[str, np.ndarray], calibration: tuple[dict[str, np.ndarray], ...] = ()) -> Case:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    return Case(model.SerializeToString(), feeds, calibration)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def assert_computes_the_recorded(part: Case, recorded: Recording) -> None:
    graph = part.proto.graph
    held = {name for node in graph.node for name in (*node.input, *node.output)}
    apart = replace(part, feeds=part.calibration, calibration=())  # a session draws other random numbers for each run
    for run, got in zip(recorded.runs, [*tools.outputs(part), *tools.outputs(apart)], strict=True):
        if any(name in run and run[name].dtype == np.float16 for name in held):
            continue  # onnxruntime computes in float32 between nodes: what is recorded was rounded, what is read not
        for name, y in got.items():
            if name in run:  # numpy cannot hold all types
                np.testing.assert_array_equal(y, run[name], err_msg=f"output {name} is not what was recorded")


DIAMOND = """
g (float[N,3] x) => (float[N,3] y, float[N,3] b)
<float[3] w = {1, 2, 3}>
{
    a = Exp(x)
    b = Mul(a, w)
    c = Neg(a)
    v = Neg(w)
    d = Add(b, c)
    y = Sub(d, v)
}
"""


def diamond() -> Case:
    return parsed(DIAMOND, {"x": floats(2, 3)}, {"x": floats(5, 3)})


def test_every_subset_of_a_graph_is_legal_and_computes_the_recorded_values():
    case = diamond()
    recorded = recording(case, tools.record)

    def rule(keep: tuple[int, ...]) -> None:
        part = submodel(case, keep, recorded)
        assert_computes_the_recorded(part, recorded)
        left = len(computing(part.proto.graph))
        assert left <= len(keep), f"has {left} nodes, should have {len(keep)} at most"

    assert_each([s for n in range(1, 7) for s in combinations(range(6), n)], rule)


def test_the_kept_nodes_are_those_that_were_asked_for():
    case = diamond()
    part = submodel(case, [1, 4], recording(case, tools.record))
    assert [node.op_type for node in part.proto.graph.node] == ["Mul", "Add"]


def test_a_cut_edge_becomes_an_input_fed_the_recorded_value():
    case = diamond()
    recorded = recording(case, tools.record)
    part = submodel(case, [4], recorded)
    assert [v.name for v in graph_inputs(part.proto)] == ["b", "c"]
    for feed, run in zip(part.feeds, recorded.feeds, strict=True):
        np.testing.assert_array_equal(feed["c"], run["c"])


def test_a_cut_edge_that_derives_from_constants_becomes_an_initializer():
    case = diamond()
    part = submodel(case, [5], recording(case, tools.record))
    assert [v.name for v in graph_inputs(part.proto)] == ["d"]
    np.testing.assert_array_equal(tools.constants_of(part)["v"], [-1, -2, -3])


def test_a_computed_shape_becomes_an_initializer_where_all_feeds_agree_on_it():
    text = """
    g (float[2,6] x) => (float[a,b] y)
    {
        s = Shape(x)
        i = Constant<value: tensor = int64[2] {1, 0}>()
        t = Gather(s, i)
        y = Reshape(x, t)
    }
    """
    case = parsed(text, {"x": floats(2, 6)})
    part = submodel(case, [3], recording(case, tools.record))
    assert tools.constants_of(part)["t"].tolist() == [6, 2]
    assert [v.name for v in graph_inputs(part.proto)] == ["x"]


def test_dims_that_differ_between_feeds_are_symbolic_under_their_declared_name():
    case = diamond()
    part = submodel(case, [4], recording(case, tools.record))
    dims = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in part.proto.graph.input]
    assert dims == [["N", 3], ["N", 3]]


def test_a_dim_that_is_free_without_a_name_stays_free_where_the_model_is_cut():
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    case = tools.make_case(nodes, {"x": floats(2, 6)}, ["y"], symbols={"x": [None, 6]})
    (value,) = submodel(case, [1], recording(case, tools.record)).proto.graph.input
    assert declared_dims(value) == ["?", 6]


def test_a_value_between_kept_nodes_is_no_output_unless_it_was_one():
    case = diamond()
    recorded = recording(case, tools.record)
    names = [v.name for v in submodel(case, [0, 2, 4], recorded).proto.graph.output]
    assert names == ["d"], f"outputs are {names}: a is read by kept nodes, so only d"
    names = [v.name for v in submodel(case, [1, 4], recorded).proto.graph.output]
    assert names == ["b", "d"], f"outputs are {names}: b was an output before"


def test_a_float_that_nodes_on_both_sides_of_a_cut_read_is_an_output_where_that_is_asked_for():
    case = diamond()
    exp_neg, recorded = [0, 2], recording(case, tools.record)
    for shared, outputs in ((False, ["c"]), (True, ["a", "c"])):
        part = submodel(case, exp_neg, recorded, shared=shared)
        assert [value.name for value in part.proto.graph.output] == outputs
        assert_computes_the_recorded(part, recorded)


def test_outputs_can_be_chosen():
    case = diamond()
    part = submodel(case, [0, 1], recording(case, tools.record), ["a", "b"])
    assert [v.name for v in part.proto.graph.output] == ["a", "b"]


def test_calibration_feeds_are_cut_like_feeds():
    case = parsed(DIAMOND, {"x": floats(2, 3)}, calibration=({"x": floats(4, 3)}, {"x": floats(4, 3)}))
    recorded = recording(case, tools.record)
    part = submodel(case, [4], recorded)
    assert [sorted(feed) for feed in part.calibration] == [["b", "c"]] * 2
    np.testing.assert_array_equal(part.calibration[1]["c"], recorded.calibration[1]["c"])


def test_what_a_subgraph_captures_counts_as_read():
    text = """
    g (float[3] x, bool c) => (float[3] y)
    {
        a = Exp(x)
        b = Neg(x)
        y = If(c) <
            then_branch = t () => (float[3] u) { u = Add(a, x) },
            else_branch = e () => (float[3] v) { v = Abs(b) }
        >
    }
    """
    case = parsed(text, {"x": floats(3), "c": np.array(True)})
    assert reads(case.proto.graph.node[2]) == ["c", "a", "x", "b"]
    assert ancestors(case.proto.graph, ["y"]) == {0, 1, 2}
    recorded = recording(case, tools.record)
    part = submodel(case, [2], recorded)
    assert [v.name for v in graph_inputs(part.proto)] == ["x", "c", "a", "b"]
    assert_computes_the_recorded(part, recorded)


def test_constant_nodes_come_with_their_readers():
    text = """
    g (float[2] x) => (float[2] y)
    {
        a = Exp(x)
        w = Constant<value_floats = [2.0, 3.0]>()
        y = Mul(a, w)
    }
    """
    case = parsed(text, {"x": floats(2)})
    part = submodel(case, [2], recording(case, tools.record))
    assert [node.op_type for node in part.proto.graph.node] == ["Constant", "Mul"]


def test_a_sequence_at_the_cut_is_refused():
    text = """
    g (float[2] x) => (float[2] y)
    {
        s = SequenceConstruct(x, x)
        i = Constant<value_int = 0>()
        y = SequenceAt(s, i)
    }
    """
    case = parsed(text, {"x": floats(2)})
    recorded = Recording(({"x": case.feeds[0]["x"], "y": case.feeds[0]["x"]},), ())
    with pytest.raises(UnrecordedError, match="'s'"):
        submodel(case, [2], recorded)
    assert tools.is_valid(submodel(case, [0, 2], recorded)), "the two nodes together need no cut"


def test_nothing_kept_is_refused():
    case = diamond()
    with pytest.raises(ValueError, match="at least one node"):
        submodel(case, [], recording(case, tools.record))


def test_what_is_for_people_only_goes():
    case = diamond()
    model = onnx.ModelProto.FromString(case.model)
    model.doc_string = model.producer_name = "somebody's model"
    model.graph.node[0].doc_string = "layer 1"
    model.metadata_props.append(onnx.StringStringEntryProto(key="stage", value="draft"))
    part = submodel(Case(model.SerializeToString(), case.feeds), range(6), recording(case, tools.record))
    assert b"layer 1" not in part.model
    assert b"somebody" not in part.model
    assert b"draft" not in part.model


def test_random_subsets_of_a_cnn_compute_the_recorded_values():
    case = tools.cnn(4, planted=1, size=6)
    recorded = recording(case, tools.record)
    rng = random.Random(0)
    for _ in range(20):
        keep = rng.sample(computing(case.proto.graph), rng.randint(1, 13))
        assert_computes_the_recorded(submodel(case, keep, recorded), recorded)


@pytest.mark.parametrize("block", range(6))
def test_random_subsets_of_generated_cases_compute_the_recorded_values(block: int):
    compared = 0
    for index in range(15 * block, 15 * block + 15):
        case = bulk.case(4, index)
        recorded = recording(case, tools.record)
        rng = random.Random(index)
        for _ in range(3):
            keep = rng.sample(computing(case.proto.graph), rng.randint(1, len(computing(case.proto.graph))))
            try:
                part = submodel(case, keep, recorded)
            except UnrecordedError:  # a cut through a sequence
                continue
            assert_computes_the_recorded(part, recorded)
            compared += 1
    assert compared > 30, f"{compared} of 45 parts could be cut out"


def test_a_node_that_was_dead_can_be_kept():
    case = diamond()
    recorded = recording(case, tools.record)
    model = onnx.ModelProto.FromString(case.model)
    del model.graph.output[0]
    part = submodel(Case(model.SerializeToString(), case.feeds), [5], recorded)
    assert [v.name for v in part.proto.graph.output] == ["y"]


def test_an_initializer_that_is_also_an_input_stays_both():
    node = helper.make_node("Add", ["x", "w"], ["y"])
    case = tools.make_case([node], {"x": floats(2)}, ["y"], {"w": floats(2)})
    model = onnx.ModelProto.FromString(case.model)
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2]))
    case = Case(model.SerializeToString(), case.feeds)
    part = submodel(case, [0], recording(case, tools.record))
    assert tools.is_valid(part), "the part of a model in the style of IR version 3 is not valid"
    assert [sorted(feed) for feed in part.feeds] == [["x"]]


def test_what_is_recorded_follows_the_memory_it_may_take():
    feeds = [{"x": floats(4)} for _ in range(5)]
    case = parsed("g (float[4] x) => (float[4] y) { y = Relu(x) }", *feeds[:3], calibration=tuple(feeds[3:]))
    for most, counts in ((0, (1, 1)), (64, (2, 1)), (128, (3, 1)), (160, (3, 2)), (2**20, (3, 2))):
        part, recorded = recording_within(case, tools.record, most)
        got = (len(part.feeds), len(part.calibration))
        assert got == counts, f"{most} bytes hold {got} feeds and calibration feeds of 32 bytes, should be {counts}"
        assert_computes_the_recorded(part, recorded)
        assert len(recorded.runs) == len(part.runs)
        assert most >= 64 or recorded.calibration[0] is recorded.feeds[0], "one of them is held twice"


def test_what_nothing_can_feed_comes_along_back_to_tensors():
    text = """
    g (float[N] x, float[N] y) => (int64 n)
    {
        a = Abs(x)
        none = SequenceEmpty()
        one = SequenceInsert(none, a)
        two = SequenceInsert(one, y)
        n = SequenceLength(two)
    }
    """
    case = parsed(text, {"x": floats(2), "y": floats(2)})
    recorded = recording(case, tools.record)
    keep = with_makers(case, [4], recorded)
    assert keep == {1, 2, 3, 4}, f"the sequence's makers, and not what makes its tensors, come along: {keep}"
    part = submodel(case, keep, recorded)
    assert [v.name for v in graph_inputs(part.proto)] == ["y", "a"], "the tensors are fed"
    assert_computes_the_recorded(part, recorded)
    assert with_makers(case, [0], recorded) == {0}
