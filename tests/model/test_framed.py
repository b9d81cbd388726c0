"""In its frame a place fails where it fails by itself, not where it fails for having been cut out."""

from __future__ import annotations

import numpy as np
import pytest
from driftnet.model.case import Case
from driftnet.model.framed import framed, unframed
from driftnet.model.inspect import computing
from driftnet.model.submodel import Recording, submodel
from onnx import parser

from tests.support import reduction as tools
from tests.support.rules import assert_each

CHAIN = """
g (float[2,3] x, int64[3] i) => (float[2,3] y)
<float[3] w = {1, 2, 3}>
{
    a = Exp(x)
    b = Mul(a, w)
    c = Cast<to = 6>(b)
    d = Abs(c)
    e = Cast<to = 1>(d)
    f = Gather<axis = 1>(e, i)
    y = Neg(f)
}
"""


@pytest.fixture(scope="module")
def chain() -> tuple[Case, Recording]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{CHAIN}')
    feed = {"x": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), "i": np.array([2, 0, 1])}
    case = Case(model.SerializeToString(), (feed,))
    return case, Recording((dict(tools.record(case)[0]),), ())


def cut(chain: tuple[Case, Recording], node: int) -> tuple[Case, Case | None]:
    case, recorded = chain
    part = submodel(case, [computing(case.proto.graph)[node]], recorded)
    return part, framed(case, part)


def kinds(case: Case) -> list[str]:
    return [node.op_type for node in case.proto.graph.node]


def test_what_is_computed_there_is_computed_and_what_is_read_is_read(chain):
    wanted = {
        0: ["Exp", "Neg"],  # fed by whoever runs the model, read by another node
        1: ["Neg", "Mul", "Neg"],
        3: ["Cast", "Abs", "Cast"],  # int32, which is made of float32 and read as such
        5: ["Neg", "Gather", "Neg"],  # its indices are fed
        6: ["Neg", "Neg"],  # a graph output
    }

    def check(node):
        _, within = cut(chain, node)
        assert kinds(within) == wanted[node], f"node {node} stands in {kinds(within)}, should in {wanted[node]}"

    assert_each(wanted, check)


def test_the_place_computes_in_its_frame_what_it_computed(chain):
    def check(node):
        part, within = cut(chain, node)
        (got,), (should,) = tools.outputs(within), tools.outputs(part)
        ((name, y),) = should.items()
        sign = -1 if kinds(within)[-1] == "Neg" and f"{name}_framed" in got else 1
        np.testing.assert_array_equal(sign * next(iter(got.values())), y, err_msg=f"node {node} computes otherwise")

    assert_each(range(7), check)


def test_what_reads_constants_alone_stands_beside_something_that_is_fed():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng () => (float[3] y) <float[3] w = {1, 2, 3}> { y = Exp(w) }'
    )
    case = Case(model.SerializeToString(), ({},))
    within = framed(case, case)
    assert [value.name for value in within.proto.graph.input] == ["fed_beside"]
    assert set(tools.outputs(within)[0]) == {"y", "told_beside"}


def test_what_is_a_model_of_its_own_has_no_frame(chain):
    case, _ = chain
    assert framed(case, case) is None


def test_an_integer_that_no_float_stands_for_has_none():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (int64[2,2] x) => (int64[2,2] y) { a = Abs(x) y = Neg(a) }'
    )

    def frame(most):
        case = Case(model.SerializeToString(), ({"x": np.array([[1, 2], [3, most]])},))
        return framed(case, submodel(case, [1], Recording((dict(tools.record(case)[0]),), ())))

    assert frame(2**24) is not None
    assert frame(2**24 + 1) is None


def test_a_message_about_a_frame_names_the_tensor_of_the_model():
    told = unframed("output 'ly_framed' at [0] is 1.0")
    assert told == "output 'ly' as its reader in the frame gives it (Neg, or Cast to float) at [0] is 1.0"
