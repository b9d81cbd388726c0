"""Sizes that belong together shrink together."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from driftnet.generators.ops.table import OPERATORS
from driftnet.model.inspect import Case, elements
from driftnet.reduce.reducer import reduce
from driftnet.reduce.size_constraints import Operands, constraints
from onnx import helper

from tests.support import reduction as tools
from tests.support.rules import assert_each

RNG = np.random.default_rng(2)
node = helper.make_node
Shapes = dict[str, tuple[int, ...]]


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def minimal(case: Case, *chain: str) -> Case:
    """What is left of `case` when the bug is that these operators follow each other."""
    return reduce(case, {}, tools.TARGET, tools.contains(*chain), tools.record).case


def test_channels_shrink_through_a_chain_of_convolutions():
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        node("Conv", ["n", "w1"], ["y"]),
    ]
    constants = {"w0": floats(8, 6, 3, 3), "b0": floats(8), "w1": floats(10, 8, 1, 1)}
    constants |= {k: np.abs(floats(8)) for k in "sbmv"}
    case = minimal(
        tools.make_case(nodes, {"x": floats(2, 6, 9, 9)}, ["y"], constants), "Conv", "BatchNormalization", "Conv"
    )
    assert elements(case) <= 8, f"{elements(case)} elements are left of three nodes with one channel each"


def block(*operators: str) -> Case:
    """Operators on 64 channels of 16 x 16 as exporters write them, each on what the one before makes; a Concat also on
    `x`."""
    nodes, constants, last, channels = [], {}, "x", 64
    for i, op in enumerate(operators):
        operands, given = [last], {}
        if op == "Conv":
            constants |= {f"w{i}": floats(64, channels, 3, 3), f"b{i}": floats(64)}
            operands, given = [last, f"w{i}", f"b{i}"], {"kernel_shape": [3, 3], "pads": [1] * 4, "dilations": [1, 1]}
            channels = 64
        elif op == "ConvTranspose":
            constants[f"w{i}"] = floats(channels, 64, 2, 2)
            operands, given = [last, f"w{i}"], {"kernel_shape": [2, 2], "strides": [2, 2]}
        elif op == "BatchNormalization":
            constants |= {f"{k}{i}": np.abs(floats(channels)) for k in "sbmv"}
            operands += [f"{k}{i}" for k in "sbmv"]
        elif op == "MaxPool":
            given = {"kernel_shape": [2, 2], "strides": [2, 2]}
        elif op == "Concat":
            operands, given, channels = [last, "x"], {"axis": 1}, channels + 64
        nodes.append(node(op, operands, [f"t{i}"], **given))
        last = f"t{i}"
    return tools.make_case(nodes, {"x": floats(1, 64, 16, 16)}, [last], constants)


@pytest.mark.parametrize(
    ("chain", "most"),
    [
        (("Conv", "BatchNormalization", "Conv"), 7),
        (("Conv", "BatchNormalization", "Relu", "Conv"), 7),
        (("Conv", "Concat", "BatchNormalization", "Conv"), 20),
        (("ConvTranspose", "BatchNormalization", "MaxPool", "Concat"), 12),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_block_of_64_channels_shrinks_to_one_or_two(chain: tuple[str, ...], most: int):
    left = minimal(block(*chain), *chain)
    assert elements(left) <= most, f"{elements(left)} elements are left"


@pytest.mark.parametrize(("channels", "group", "out"), [(8, 8, 8), (8, 4, 12), (6, 2, 4)])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_groups_shrink_to_the_fewest_that_are_groups(op: str, channels: int, group: int, out: int):
    weight = (out, channels // group, 2, 2) if op == "Conv" else (channels, out // group, 2, 2)
    case = tools.make_case(
        [node(op, ["x", "w", "b"], ["y"], group=group)],
        {"x": floats(1, channels, 5, 5)},
        ["y"],
        {"w": floats(*weight), "b": floats(out)},
    )

    def bug(case: Case, recipe: object) -> bool:
        return any(tools.attributes(n).get("group", 1) > 1 for n in case.proto.graph.node) and tools.is_valid(case)

    left = reduce(case, {}, tools.TARGET, bug, tools.record).case
    assert tools.attributes(left.proto.graph.node[0])["group"] == 2
    assert elements(left) == 4, f"{elements(left)} elements are left, should be 2 of x and 2 of w"


@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_recurrent_layers_shrink_to_one_unit(op: str, gates: int):
    hidden, inputs, directions = 5, 3, 2
    case = tools.make_case(
        [node(op, ["x", "w", "r", "b"], ["y", "h"], hidden_size=hidden, direction="bidirectional")],
        {"x": floats(4, 2, inputs)},
        ["y", "h"],
        {
            "w": floats(directions, gates * hidden, inputs),
            "r": floats(directions, gates * hidden, hidden),
            "b": floats(directions, 2 * gates * hidden),
        },
    )
    left = minimal(case, op)
    assert elements(left) == 1 + 2 * gates, f"{elements(left)} elements are left, should be one unit of one direction"


def test_recurrent_layers_that_leave_out_their_first_result_shrink_apart():
    nodes = [
        node("GRU", ["x", "w0", "r0"], ["", "h"], hidden_size=3, name="first"),
        node("GRU", ["h", "w1", "r1"], ["", "y"], hidden_size=2, direction="bidirectional", name="second"),
    ]
    constants = {"w0": floats(1, 9, 4), "r0": floats(1, 9, 3), "w1": floats(2, 6, 3), "r1": floats(2, 6, 2)}
    left = minimal(tools.make_case(nodes, {"x": floats(2, 3, 4)}, ["y"], constants), "GRU", "GRU")
    assert elements(left) <= 13, f"{elements(left)} elements are left, should be one unit of two GRUs"


TIED = [
    ([node("Gemm", ["x", "w", "b"], ["y"], transB=1)], {"x": (4, 6)}, {"w": (5, 6), "b": (5,)}, 2),
    ([node("MatMul", ["x", "w"], ["y"])], {"x": (3, 4, 6)}, {"w": (6, 5)}, 2),
    ([node("MatMul", ["x", "w"], ["y"])], {"x": (2, 3, 4, 6)}, {"w": (2, 3, 6, 5)}, 2),
    (
        [node("Transpose", ["x"], ["a"], perm=[2, 0, 1]), node("Add", ["a", "w"], ["y"])],
        {"x": (3, 4, 5)},
        {"w": (5, 3, 4)},
        2,
    ),
    (
        [node("Concat", ["x", "w"], ["a"], axis=1), node("Mul", ["a", "v"], ["y"])],
        {"x": (2, 4)},
        {"w": (2, 4), "v": (8,)},
        3,
    ),
    ([node("LayerNormalization", ["x", "s"], ["y"])], {"x": (3, 4, 5)}, {"s": (5,)}, 2),
    ([node("InstanceNormalization", ["x", "s", "b"], ["y"])], {"x": (3, 4, 5)}, {"s": (4,), "b": (4,)}, 3),
    ([node("ReduceSum", ["x"], ["a"], keepdims=0), node("Neg", ["a"], ["y"])], {"x": (3, 4, 5)}, {}, 1),
]


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "most"), TIED, ids=["-".join(n.op_type for n in row[0]) for row in TIED]
)
def test_everything_tied_shrinks_to_one(nodes: list[onnx.NodeProto], inputs: Shapes, constants: Shapes, most: int):
    case = tools.make_case(
        nodes, {k: floats(*s) for k, s in inputs.items()}, ["y"], {k: floats(*s) for k, s in constants.items()}
    )
    left = minimal(case, *(n.op_type for n in nodes))
    assert elements(left) <= most, f"{elements(left)} elements are left, should be at most {most}"


@pytest.mark.parametrize(
    ("equation", "x", "w", "y", "tied"),
    [
        ("bij, bij -> b", (2, 3, 4), (2, 3, 4), (2,), ["w0 x0 y0", "w1 x1", "w2 x2"]),
        ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5), (2, 3, 5), ["w0 x0 y0", "w1 x2", "w2 y2", "x1 y1"]),
        ("i,i...->...", (3,), (3, 2, 4), (2, 4), ["w0 x0", "w1 y0", "w2 y1"]),
        ("i...j,jk->i...k", (2, 6, 3), (3, 4), (2, 6, 4), ["w0 x2", "w1 y2", "x0 y0", "x1 y1"]),
        ("kj,ji", (2, 3), (3, 4), (4, 2), ["w0 x1", "w1 y0", "x0 y1"]),
        ("...kj,ji", (5, 2, 3), (3, 4), (5, 4, 2), ["w0 x2", "w1 y1", "x0 y0", "x1 y2"]),
    ],
)
def test_sizes_of_one_letter_of_an_einsum_change_together(
    equation: str, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], tied: list[str]
):
    einsum = node("Einsum", ["x", "w"], ["y"], equation=equation)
    found = constraints(Operands(einsum, {"x": floats(*x), "w": floats(*w), "y": floats(*y)}))
    assert sorted(" ".join(sorted(f"{size.owner}{size.at}" for size in sizes)) for sizes in found) == tied


def test_a_reshape_follows_its_input():
    nodes = [node("Reshape", ["x", "shape"], ["a"]), node("Add", ["a", "w"], ["y"])]
    constants = {"shape": np.array([2, 3, 20]), "w": floats(20)}
    left = minimal(tools.make_case(nodes, {"x": floats(6, 4, 5)}, ["y"], constants), "Reshape", "Add")
    assert elements(left) <= 5, f"{elements(left)} elements are left, should be 1 + 1 and the shape's 3"


def test_a_resize_follows_its_input():
    nodes = [node("Resize", ["x", "", "", "sizes"], ["y"])]
    case = tools.make_case(nodes, {"x": floats(3, 4, 5, 6)}, ["y"], {"sizes": np.array([3, 4, 10, 12])})
    left = minimal(case, "Resize")
    assert elements(left) <= 5, f"{elements(left)} elements are left, should be 1 and the sizes' 4"


def test_quantization_parameters_follow_the_axis_they_belong_to():
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["a"]), node("DequantizeLinear", ["a", "s", "z"], ["y"])]
    constants = {"s": np.abs(floats(4)) + 1, "z": np.zeros(4, np.int8)}
    left = minimal(
        tools.make_case(nodes, {"x": floats(2, 4, 3)}, ["y"], constants), "QuantizeLinear", "DequantizeLinear"
    )
    assert elements(left) <= 3, f"{elements(left)} elements are left, should be one of x, scale and zero point"


def test_feeds_of_different_sizes_shrink_together():
    case = tools.make_case(
        [node("Relu", ["x"], ["y"])],
        {"x": floats(7, 5)},
        ["y"],
        symbols={"x": ["N", 5]},
        more_feeds=[{"x": floats(4, 5)}],
    )

    def bug(case: Case, recipe: object) -> bool:
        return len({feed["x"].shape for feed in case.feeds}) == 2 and tools.is_valid(case)

    left = reduce(case, {}, tools.TARGET, bug, tools.record).case
    assert [feed["x"].shape for feed in left.feeds] == [(2, 1), (1, 1)]


def test_an_input_of_undeclared_size_stays_undeclared():
    case = tools.make_case([node("Relu", ["x"], ["y"])], {"x": floats(4, 3)}, ["y"])
    model = onnx.ModelProto.FromString(case.model)
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()

    def bug(case: Case, recipe: object) -> bool:
        dims = case.proto.graph.input[0].type.tensor_type.shape.dim
        return not dims[0].WhichOneof("value") and tools.is_valid(case)

    left = reduce(Case(model.SerializeToString(), case.feeds), {}, tools.TARGET, bug, tools.record).case
    assert [x.shape for x in left.feeds[0].values()] == [(1, 1)]


def test_ranks_go_down_as_far_as_the_bug_allows():
    case = tools.make_case([node("Relu", ["x"], ["y"])], {"x": floats(2, 3, 4, 5)}, ["y"])
    assert next(iter(minimal(case, "Relu").feeds[0].values())).shape == (1,)

    def bug(case: Case, recipe: object) -> bool:
        return all(np.ndim(x) >= 3 for x in case.feeds[0].values()) and tools.is_valid(case)

    left = reduce(case, {}, tools.TARGET, bug, tools.record).case
    assert next(iter(left.feeds[0].values())).shape == (1, 1, 1)


def test_a_convolution_keeps_its_rank():
    case = tools.make_case(
        [node("Conv", ["x", "w"], ["y"])], {"x": floats(1, 2, 4, 4)}, ["y"], {"w": floats(2, 2, 1, 1)}
    )
    assert next(iter(minimal(case, "Conv").feeds[0].values())).shape == (1, 1, 1, 1)


def test_of_operands_that_are_not_known_no_sizes_hang_together() -> None:
    """What is random, or behind what failed, is not recorded."""

    def rule(op: str) -> None:
        given: dict[str, dict[str, Any]] = {
            "Transpose": {"perm": [2, 0, 1]},
            "Einsum": {"equation": "ij,jk->ik"},
            "Gather": {"axis": 2},
        }
        axes: dict[str, Any] = {"strides": [2, 2], "kernel_shape": [3, 3], "group": 2}
        node = helper.make_node(op, ["a", "b", "c"], ["y", "z"], **given.get(op, axes))
        states: list[dict[str, np.ndarray]] = [{}, {"b": np.ones((2, 2), np.int64)}, {"y": np.ones((2, 3))}]
        for known in states:
            found = [size.owner for sizes in constraints(Operands(node, known)) for size in sizes if size.what == "dim"]
            assert {*found} <= known.keys(), f"with {sorted(known)} known"

    assert_each([one.name for one in OPERATORS], rule, str)
