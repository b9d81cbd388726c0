"""Control flow is taken apart: a bug inside a body comes out of it; one that needs the loop keeps one node in it."""

import numpy as np
import onnx
import pytest
from driftnet.model.inspect import Case, all_nodes, nodes
from driftnet.reduce.reducer import reduce

from tests.support import reduction as tools

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[3] start, int64 times) => (float[3] end, float[n,3] all)
<bool going = {1}>
{
    before = Exp(start)
    final, all = Loop(times, going, before) <
        body = b (int64 i, bool on, float[3] state) => (bool again, float[3] next, float[3] seen)
        {
            again = Identity(on)
            one = Neg(state)
            two = Abs(one)
            three = Sin(two)
            next = Add(three, start)
            seen = Cos(next)
        }
    >
    end = Tanh(final)
}
"""
SCAN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[3] start, float[5,3] rows) => (float[3] end, float[5,3] all)
{
    end, all = Scan <num_scan_inputs = 1,
        body = b (float[3] state, float[3] row) => (float[3] next, float[3] seen)
        {
            sum = Add(state, row)
            low = Sin(sum)
            next = Abs(low)
            seen = Cos(next)
        }
    > (start, rows)
}
"""
FEED = {"start": np.array([0.5, -1, 2], np.float32), "times": np.array(3)}
ROWS = {"start": FEED["start"], "rows": np.arange(15, dtype=np.float32).reshape(5, 3)}
CASES = {"Loop": (LOOP, FEED), "Scan": (SCAN, ROWS)}


def left(kind, *needed):
    """The operators of what is left, those in bodies too, when the bug shows where all of `needed` are."""
    text, feed = CASES[kind]
    case = Case(onnx.parser.parse_model(text).SerializeToString(), (feed,))

    def bug(case, recipe):
        return set(needed) <= {node.op_type for node in all_nodes(case.proto.graph)}

    result = reduce(case, {}, tools.TARGET, tools.on_valid(bug), tools.record)
    assert result.calls <= 100, f"{result.calls} attempts for {nodes(case)} nodes"
    return [node.op_type for node in all_nodes(result.case.proto.graph)]


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("needed", [["Sin"], ["Sin", "Add"], ["Cos"]], ids="-".join)
def test_a_bug_in_a_body_comes_out_of_it(kind, needed):
    kept = left(kind, *needed)
    assert set(needed) <= set(kept)
    assert len(kept) <= len(needed) + (kind == "Scan"), "what takes the first slice of a Scan's input may have to stay"


@pytest.mark.parametrize("kind", CASES)
def test_a_bug_that_needs_the_loop_keeps_one_node_in_it(kind):
    kept = left(kind, kind, "Sin")
    assert kept[0] == kind
    assert "Sin" in kept
    assert len(kept) <= 3, "an Identity may have to stay, for what a body gives back may not be what it is given"
