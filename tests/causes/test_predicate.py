"""Facts of a place, and predicates over them: data, evaluated without a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from driftnet.causes.facts import Value
from driftnet.causes.host import host_of, hosts
from driftnet.causes.lookup import facts_of
from driftnet.causes.predicate import Atom, Region, Shape, Trigger, trigger_of
from driftnet.causes.words import atom_in_words, otherwise, sentence
from driftnet.learning.instances import shape_of, whole
from onnx import TensorProto, helper, numpy_helper

from tests.support.models import grid
from tests.support.triggers import one, some

HIDDEN = Trigger(
    Shape(2, frozenset({(1, 0)})),
    (
        Region(
            (
                Atom("0.op", "is", "Transpose"),
                Atom("1.op", "in", ("MatMul", "Gemm")),
                Atom("0.out.0.final", "is", False),
            )
        ),
    ),
)


def facts(case, **options):
    host = host_of(case)
    return facts_of(host, whole(host), options)


def test_an_attribute_is_told_with_its_default_and_whether_it_is_stated() -> None:
    found = facts(one("MaxPool", grid((1, 2, 6, 6)), kernel_shape=[2, 3]))
    assert found["0.op"] == "MaxPool"
    assert found["0.attr.strides.stated"] is False
    assert found["0.attr.auto_pad"] == "NOTSET"
    assert found["0.attr.auto_pad.default"] is True
    assert found["0.attr.kernel_shape"] == (2, 3)
    assert (found["0.say.kernel_shape.count"], found["0.say.kernel_shape.most"]) == (2, 3)
    assert found["0.attr.kernel_shape.first"] == 2


def test_an_operand_is_told_by_where_it_comes_from_and_what_it_holds() -> None:
    found = facts(one("Sub", grid((2, 3)), constants=[np.array([0, -1, -1], np.float32)]))
    assert (found["0.in.0.from"], found["0.in.1.from"]) == ("input", "constant")
    assert (found["0.in.1.dtype"], found["0.in.1.rank"], found["0.in.1.dim.-1"]) == ("float", 1, 3)
    assert (found["0.in.1.negative"], found["0.in.1.zero"], found["0.in.1.distinct"]) == (True, True, False)
    assert found["0.in.1.like.0"] is False
    assert (found["0.out.0.rank"], found["0.out.0.final"], found["0.out.0.readers"]) == (2, True, 0)
    assert found["0.out.0.negative"] is None, "what is computed is unknown without a run"


def test_a_result_that_is_listed_without_a_name_is_told() -> None:
    weights = {name: np.zeros((1, 4, 1), np.float32) for name in "wr"}
    for listed in (["y"], ["y", "", ""]):
        node = helper.make_node("LSTM", ["x", "w", "r"], listed, hidden_size=1)
        found = facts(some([node], {"x": grid((1, 1, 1))}, weights, outputs=["y"]))
        assert (found["0.outputs"], found["0.outputs.listed"]) == (1, len(listed))


def test_operands_are_held_against_each_other_and_against_the_result() -> None:
    shapes = [np.zeros(shape, np.float32) for shape in ((1, 3), (3,))]
    found = facts(one("Max", grid((1, 3)), constants=shapes))
    assert (found["0.broadcast"], found["0.broadcast.alike"]) == ("nothing", False), (
        "of three operands the last is shorter"
    )
    assert [found[f"0.in.{k}.like.out"] for k in range(3)] == [True, True, False]
    assert facts(one("Max", grid((1, 3)), constants=shapes[:1]))["0.broadcast.alike"] is True
    assert "0.broadcast.alike" not in facts(one("MatMul", grid((1, 3)), constants=[np.zeros((3, 1), np.float32)]))


@pytest.mark.parametrize(("kernel", "dilations", "spread"), [([1, 2], [2, 1], False), ([1, 2], [1, 2], True)])
def test_whether_dilations_make_a_window_wider_is_told(kernel: list[int], dilations: list[int], spread: bool) -> None:
    x, weights = grid((1, 1, 6, 6)), np.ones((1, 1, *kernel), np.float32)
    assert facts(one("MaxPool", x, kernel_shape=kernel, dilations=dilations))["0.say.spread"] is spread
    assert facts(one("Conv", x, constants=[weights], dilations=dilations))["0.say.spread"] is spread
    conv = helper.make_node("Conv", ["x", "w"], ["y"], dilations=dilations)
    inputs = [helper.make_tensor_value_info("x", 1, [1, 1, 9, 9]), helper.make_empty_tensor_value_info("w")]
    unknown = next(hosts(helper.make_model(helper.make_graph([conv], "g", inputs, []))))
    assert facts_of(unknown, (0,), {})["0.say.spread"] is None


@pytest.mark.parametrize(("n", "pads", "beyond"), [(5, [0, 0], False), (5, [1, 1], True), (4, [0, 1], True)])
def test_a_window_that_begins_behind_the_image_is_told(n: int, pads: list[int], beyond: bool) -> None:
    pooled = one("MaxPool", grid((1, 1, n)), kernel_shape=[2], strides=[2], pads=pads, ceil_mode=1)
    assert facts(pooled)["0.say.beyond"] is beyond
    assert "0.say.beyond" not in facts(one("MaxPool", grid((1, 1, n)), kernel_shape=[2]))


@pytest.mark.parametrize(
    ("op", "stated"),
    [
        ("Conv", {"group": 0}),
        ("Conv", {"auto_pad": "SAME_UPPER", "strides": [0, 0]}),
        ("MaxPool", {"ceil_mode": 1, "kernel_shape": [2, 2], "strides": [0, 0]}),
    ],
)
def test_of_an_attribute_that_no_model_may_state_facts_are_told_all_the_same(op: str, stated: dict[str, Any]) -> None:
    """Experiments propose such models, and ask what is expected of them before these are run."""
    weights = [grid((3, 2, 2, 2))] if op == "Conv" else []
    found = facts(one(op, grid((1, 2, 6, 6)), *weights, **stated))
    assert found["0.op"] == op
    assert "0.say.per_group" not in found


def test_depthwise_uneven_pads_and_halves_are_told() -> None:
    weights = np.ones((2, 1, 2, 2), np.float32)
    found = facts(one("Conv", grid((1, 2, 6, 6)), constants=[weights], group=2, pads=[0, 1, 0, 1]))
    assert [found[f"0.say.{said}"] for said in ("depthwise", "per_group", "pads.even")] == [True, 1, True]
    uneven = facts(one("Conv", grid((1, 2, 6, 6)), constants=[weights[:1].repeat(2, 1)], pads=[0, 0, 0, 1]))
    assert uneven["0.say.pads.even"] is False
    assert "0.say.depthwise" not in uneven
    halves = [facts(one("Round", np.float32([number])))["0.in.0.halves"] for number in (-2.5, 1.5, 2.25, 2)]
    assert halves == [True, False, False, False]
    minus = [facts(one("Round", np.float32([number])))["0.in.0.minus"] for number in (-0.0, 0.0, -1.0)]
    assert minus == [True, False, False]
    said = Trigger(Shape(), (Region((Atom("0.say.pads.even", "is", False), Atom("0.broadcast.alike", "is", False))),))
    assert "with other pads on one side than on the other, its operands of different shapes" in sentence(said)


def test_a_constant_is_told_by_the_attribute_that_states_it() -> None:
    nodes = [helper.make_node("Constant", [], ["w"], value_float=2.0), helper.make_node("Sub", ["x", "w"], ["y"])]
    found = facts(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]))
    assert (found["0.in.1.from"], found["0.in.1.initializer"], found["0.in.1.by"]) == ("constant", False, "value_float")
    said = sentence(Trigger(Shape(), (Region((Atom("0.in.1.by", "in", ("value_int", "value_float")),)),)))
    assert said == "any operator attribute that states operand 1 one of value_int, value_float"


def test_all_operators_that_a_trigger_leaves_out_are_told() -> None:
    atoms = tuple(Atom("0.op", "not", name) for name in ("Max", "Min"))
    assert sentence(Trigger(Shape(), (Region(atoms),))) == "any operator but Max, Min"


def test_axes_are_told_alike_as_attribute_and_as_operand() -> None:
    old = facts(one("ReduceSum", grid((2, 3)), axes=[0, 1], opset=11))
    new = facts(one("ReduceSum", grid((2, 3)), constants=[np.array([0, 1])], opset=13))
    assert old["0.say.axes.count"] == new["0.say.axes.count"] == 2


def test_a_tensor_that_two_operands_are_is_seen() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Mul", ["t", "t"], ["y"])]
    found = facts(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]))
    assert found["1.in.0.made"] == "0.out.0"
    assert found["1.in.1.repeated"] is True
    assert found["1.in.1.shared"] == "1.in.0"


def test_an_operand_that_no_output_needs_is_told() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), *(helper.make_node("Neg", [x], [x + x]) for x in "xab")]
    found = facts(some(nodes, {"x": grid((2, 3)), "a": grid((2, 3)), "b": grid((2, 3))}, {}, outputs=["y", "bb"]))
    assert [f"{k}.in.0.needless" in found for k in range(4)] == [False, False, True, False]


def test_what_another_node_computes_too_is_told_of_the_later() -> None:
    nodes = [helper.make_node("Add", ["x", w], [y], name=y) for w, y in (("a", "t"), ("b", "u"), ("c", "y"))]
    weights = {"a": np.float32([1]), "b": np.float32([1]), "c": np.float32([2])}
    found = facts(some(nodes, {"x": grid((2, 3))}, weights, outputs=["t", "u", "y"]))
    assert [found[f"{role}.twin"] for role in range(3)] == [False, True, False]


def test_what_hands_on_its_operand_is_told_whatever_it_is_called() -> None:
    zero, one_ = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
    no_pads = np.zeros(4, np.int64)
    told = [
        facts(one(op, grid((2, 3)), constants=[constant]))["0.passes"]
        for op, constant in (("Sub", zero), ("Div", one_), ("Div", zero), ("Pad", no_pads), ("Pad", no_pads + 1))
    ]
    assert told == [True, True, False, True, False]
    assert facts(one("Pad", grid((2, 3)), constants=[no_pads + 1]))["0.moves"] is True


@pytest.mark.parametrize(
    ("op", "inputs", "fixed", "handed"),
    [
        ("Add", "w x", np.float32(0), True),
        ("Mul", "w x", np.float32(1), True),
        ("Add", "x w", np.zeros((2, 3), np.float32), True),
        ("Add", "w x", np.zeros((1, 2, 3), np.float32), False),
        ("Sub", "w x", np.float32(0), False),
        ("Dropout", "x  w", np.bool_(False), True),
        ("Dropout", "x  w", np.bool_(True), False),
        ("Dropout", "x w", np.float32(0.5), True),
        ("Identity", "x", None, True),
        ("Concat", "x", None, True),
        ("Concat", "x x", None, False),
    ],
)
def test_the_operand_that_is_handed_on_is_looked_for_by_its_position(
    op: str, inputs: str, fixed: np.ndarray | None, handed: bool
) -> None:
    node = helper.make_node(op, inputs.split(" "), ["y"], **({"axis": 0} if op == "Concat" else {}))
    constants = {} if fixed is None else {"w": np.asarray(fixed)}
    assert facts(some([node], {"x": grid((2, 3))}, constants, outputs=["y"]))["0.passes"] is handed


@pytest.mark.parametrize("order", ["x w", "w x"])
def test_what_is_repeated_beside_a_constant_is_not_handed_on(order: str) -> None:
    node = helper.make_node("Add", order.split(), ["y"])
    wide = some([node], {"x": grid((1, 1))}, {"w": np.zeros((2, 3), np.float32)}, outputs=["y"])
    assert facts(wide)["0.passes"] is False


def test_whether_an_operand_is_handed_on_is_unknown_where_its_shape_or_dtype_is() -> None:
    def told(op: str, result: onnx.ValueInfoProto, constants: dict[str, np.ndarray], **attributes: int) -> Value:
        node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
        fixed = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        [host] = hosts(helper.make_model(helper.make_graph([node], "g", [x], [result], fixed)))
        return facts_of(host, whole(host), {})["0.passes"]

    untyped = onnx.ValueInfoProto(name="y")
    floats = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    assert told("Add", floats, {"w": np.zeros((2, 3), np.float32)}) is None, "n may be 1"
    assert told("Add", floats, {"w": np.zeros((1, 1), np.float32)}) is True, "one number repeats nothing"
    assert told("Cast", untyped, {}, to=TensorProto.FLOAT) is None
    assert told("Cast", floats, {}, to=TensorProto.FLOAT) is True


@pytest.mark.parametrize(("opset", "size"), [(12, 6), (13, 2)])
def test_a_softmax_goes_over_all_axes_from_its_own_on_below_opset_13(opset: int, size: int) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2, 3])
    made = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", opset)])
    [host] = hosts(made)
    got = facts_of(host, whole(host), {})["0.axis.size"]
    assert got == size, f"at opset {opset} it goes over {got} elements, should be {size}"


def test_numbers_that_half_precision_rounds_up_are_told() -> None:
    told = [facts(one("Mul", grid((1, 1)), constants=[np.float32([number])])) for number in (0.5, -0.1, 0.3)]
    found = [of_one["0.in.1.raised"] for of_one in told]
    assert found == [False, False, True], "half precision holds .09998 and .30005 instead of .1 and .3"


def test_a_model_whose_nodes_share_a_name_is_told() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    assert facts(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]))["named"] is False
    nodes[0].name = "first"
    assert facts(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]))["named"] is True
    said = Trigger(Shape(), (Region((Atom("named", "is", False), Atom("0.twin", "is", True))),))
    assert sentence(said) == "any operator with a node before that computes the same; nodes that share a name"


def test_a_model_without_inputs_is_told() -> None:
    """MNN runs none whose output is drawn at random."""
    alone = some([helper.make_node("RandomNormal", [], ["y"], shape=[2, 3])], {}, {}, outputs=["y"])
    assert (facts(alone)["fed"], facts(one("Relu", grid((2, 3))))["fed"]) == (False, True)
    said = Trigger(Shape(), (Region((Atom("0.op", "is", "RandomNormal"), Atom("fed", "is", False))),))
    assert sentence(said) == "RandomNormal; a model without inputs"


def test_a_model_that_may_be_given_other_sizes_is_told() -> None:
    """Of MNN's sessions a resize of one input may leave another's results stale."""
    fixed = one("Relu", grid((2, 3)))
    free = onnx.load_from_string(fixed.model)
    free.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    model = replace(fixed, model=free.SerializeToString())
    assert [facts(case)["symbolic"] for case in (fixed, model)] == [False, True]
    said = Trigger(Shape(), (Region((Atom("0.op", "is", "Relu"), Atom("symbolic", "is", True))),))
    assert sentence(said) == "Relu; a model with an input of symbolic size"


@pytest.mark.parametrize(
    ("between", "scale", "zero", "on_grid"),
    [
        (["Transpose", "Relu"], 0.5, 3, True),
        ([], 0.5, 3, True),
        (["Transpose"], 0.25, 3, False),
        (["Transpose"], 0.5, 4, False),
        (["Sigmoid"], 0.5, 3, False),
    ],
)
def test_what_its_codes_hold_already_is_told_of_what_is_quantized(
    between: list[str], scale: float, zero: int, on_grid: bool
) -> None:
    """It makes no difference to these whether a system leaves out the pair."""
    names = [f"t{k}" for k in range(len(between) + 1)]
    moved = [helper.make_node(op, [a], [b]) for op, a, b in zip(between, names, names[1:])]
    first = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["t0"])
    last = helper.make_node("QuantizeLinear", [names[-1], "scale", "zero"], ["y"])
    held = {"s": np.float32(0.5), "z": np.uint8(3), "scale": np.float32(scale), "zero": np.uint8(zero)}
    found = facts(some([first, *moved, last], {"x": grid((2, 3)).astype(np.uint8)}, held, outputs=["y"]))
    assert found[f"{len(moved) + 1}.on_grid"] is on_grid


@pytest.mark.parametrize(
    ("between", "by", "first", "last", "on_grid"),
    [
        (None, [0.5, 0.25], {"axis": 0}, {"axis": 0}, True),
        (None, [0.5, 0.25], {"axis": 0}, {"axis": -2}, True),
        ("Relu", [0.5, 0.25], {"axis": 0}, {"axis": 0}, True),
        (None, [0.5, 0.25], {"axis": 0}, {"axis": 1}, False),
        (None, 0.5, {"axis": 0}, {"axis": 1}, True),
        ("Transpose", [0.5, 0.25], {"axis": 0}, {"axis": 0}, False),
        ("Transpose", [0.5], {"axis": 0}, {"axis": 1}, True),
        ("Tile", [0.5, 0.25], {"axis": 0}, {"axis": 0}, False),
    ],
)
def test_scales_along_an_axis_hold_what_was_not_moved(
    between: str | None, by: Any, first: dict[str, int], last: dict[str, int], on_grid: bool
) -> None:
    """Each is for its place: of what is transposed, or quantized along another axis, onnxruntime makes other codes."""
    last_input = "a" if between is None else "b"
    moved = [helper.make_node(between, ["a", *(["n"] if between == "Tile" else [])], ["b"])] if between else []
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"], **first),
        *moved,
        helper.make_node("QuantizeLinear", [last_input, "s", "z"], ["y"], **last),
    ]
    held = {"s": np.array(by, np.float32), "z": np.full_like(by, 3, np.uint8), "n": np.array([2, 1])}
    found = facts(some(nodes, {"x": grid((2, 2)).astype(np.uint8)}, held, outputs=["y"]))[f"{len(nodes) - 1}.on_grid"]
    assert found is on_grid, f"of {first}, {between}, {last} by {by} on_grid is {found}, should be {on_grid}"


@pytest.mark.parametrize(
    ("codes", "first", "last", "on_grid"),
    [
        (np.uint8, None, None, True),
        (np.int8, None, None, False),
        (np.int8, None, np.int8(0), True),
        (np.int8, None, np.int8(1), False),
        (np.int8, np.int8(0), None, False),
    ],
)
def test_a_zero_point_that_is_not_there_is_0_of_the_type_of_the_codes(
    codes: Any, first: Any, last: Any, on_grid: bool
) -> None:
    """What is quantized without one is uint8, whatever it was made of."""
    held = {"s": np.float32(0.5)} | {k: v for k, v in {"first": first, "last": last}.items() if v is not None}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", *(["first"] if "first" in held else [])], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "s", *(["last"] if "last" in held else [])], ["y"]),
    ]
    found = facts(some(nodes, {"x": grid((2, 2)).astype(codes)}, held, outputs=["y"]))["1.on_grid"]
    assert found is on_grid, f"of {codes.__name__}, {first} and {last}, on_grid is {found}, should be {on_grid}"


def test_what_is_cast_between_or_joined_in_other_blocks_is_not_on_its_grid() -> None:
    held = {"s": np.float32(0.5), "z": np.uint8(3), "h": np.float16(0.5)}
    x = {"x": grid((2, 4)).astype(np.uint8)}
    first = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"])
    cast = helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT16)
    last = helper.make_node("QuantizeLinear", ["b", "h", "z"], ["y"])
    found = facts(some([first, cast, last], x, held, outputs=["y"], opset=21))["2.on_grid"]
    assert found is False, f"of what is cast to float16 on_grid is {found}, should be False"
    for size, on_grid in ((2, True), (4, False)):
        held = {"s": np.full((2, 2), 0.5, np.float32)}
        first = helper.make_node("DequantizeLinear", ["x", "s"], ["a"], axis=1, block_size=2)
        last = helper.make_node("QuantizeLinear", ["a", "s"], ["y"], axis=1, block_size=size)
        found = facts(some([first, last], x, held, outputs=["y"], opset=21))["1.on_grid"]
        assert found is on_grid, f"of blocks of 2, then {size}, on_grid is {found}, should be {on_grid}"


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (["n", 3], ["n", 3], True),
        (["n", 3], ["m", 3], None),
        (["n", 3], ["n", 4], False),
        (["n", 3], ["n"], False),
        ([None, 3], [None, 3], None),
    ],
)
def test_symbolic_dims_of_one_name_are_equal(a: list[Any], b: list[Any], alike: bool | None) -> None:
    inputs = [helper.make_tensor_value_info(*said) for said in (("a", 1, a), ("b", 1, b))]
    graph = helper.make_graph([helper.make_node("Where", ["c", "a", "b"], ["y"])], "g", inputs, [])
    host = next(hosts(helper.make_model(graph)))
    assert host.of_one_shape("a", "b") is alike


@pytest.mark.parametrize(("sizes", "alike"), [((2, 3), None), ((1, 3), None), ((3,), False), ((2, 4), False)])
def test_a_size_of_a_constant_is_equal_to_no_dim_that_is_unknown(sizes: tuple[int, ...], alike: bool | None) -> None:
    inputs = [helper.make_tensor_value_info("a", 1, ["n", 3])]
    held = [numpy_helper.from_array(np.ones(sizes, np.float32), "b")]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", inputs, [], held)
    assert next(hosts(helper.make_model(graph))).of_one_shape("a", "b") is alike


@pytest.mark.parametrize(("pads", "covered"), [([0, 3, 0, 0], True), ([2, 0, 0, 0], True), ([1, 2, 9, 9], False)])
def test_whether_the_padding_before_is_as_long_as_the_image_is_told(pads: list[int], covered: bool) -> None:
    """No window may lie in it: MNN divides by the number of elements of one."""
    found = facts(one("AveragePool", grid((1, 1, 2, 3)), kernel_shape=[4, 4], pads=pads))
    assert found["0.say.covered"] is covered


def test_constants_of_equal_numbers_are_seen_but_for_single_ones() -> None:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "b"], ["u"])]
    nodes += [helper.make_node("Mul", ["u", "one"], ["v"]), helper.make_node("Add", ["v", "uno"], ["y"])]
    single = {name: np.ones(1, np.float32) for name in ("one", "uno")}
    found = facts(some(nodes, {"x": grid((2, 3))}, {"a": grid((3, 3)), "b": grid((3, 3)), **single}, outputs=["y"]))
    assert {name: value for name, value in found.items() if name.endswith((".equals", ".shared"))} == {
        "1.in.1.equals": "0.in.1"
    }


def test_a_vector_of_as_many_elements_as_there_are_channels_is_seen() -> None:
    """Converters take such a one for a bias."""
    for shape, result, told in [
        ((3,), (1, 3, 2, 3), True),
        ((2,), (1, 3, 2, 2), False),
        ((1, 3, 1, 1), (1, 3, 2, 2), True),
    ]:
        found = facts(
            some([helper.make_node("Add", ["x", "w"], ["y"])], {"x": grid(result)}, {"w": grid(shape)}, outputs=["y"])
        )
        assert found["0.in.1.like.channels"] is told, f"{shape} to {result}: {found['0.in.1.like.channels']}"


def test_results_whose_types_the_model_states_are_told_from_those_that_are_inferred() -> None:
    case = some([helper.make_node("Relu", [a], [b]) for a, b in ("xt", "ty")], {"x": grid((2, 3))}, {}, outputs=["y"])
    model = onnx.ModelProto.FromString(case.model)
    del model.graph.value_info[:]
    for known, told in [(case, [True, True]), (replace(case, model=model.SerializeToString()), [False, True])]:
        assert [facts(known)[f"{role}.out.0.declared"] for role in (0, 1)] == told


def test_lists_of_attributes_that_are_equal_are_seen() -> None:
    nodes = [
        helper.make_node("Transpose", [a], [b], perm=perm) for a, b, perm in zip("xtu", "tuy", ((1, 0), (1, 0), (0, 1)))
    ]
    found = facts(some(nodes, {"x": grid((2, 3))}, {}, outputs=["y"]))
    assert {name: value for name, value in found.items() if name.endswith(".equals")} == {
        "1.attr.perm.equals": "0.attr.perm"
    }


@pytest.mark.parametrize(
    ("atom", "holds"),
    [
        (Atom("a", "is", 3), True),
        (Atom("a", "is", 4), False),
        (Atom("a", "not", 4), True),
        (Atom("a", "in", (1, 3)), True),
        (Atom("a", "least", 3), True),
        (Atom("a", "most", 2), False),
        (Atom("text", "least", 3), False),
        (Atom("nothing", "is", 3), False),
        (Atom("nothing", "not", 3), True),
        (Atom("nothing", "least", 3), False),
        (Atom("unknown", "is", 3), None),
        (Atom("unknown", "not", 3), None),
    ],
)
def test_an_atom_holds_fails_or_is_unknown(atom: Atom, holds: bool | None) -> None:
    assert atom.holds({"a": 3, "text": "x", "unknown": None}) is holds


def test_what_is_unknown_matters_only_where_all_else_holds() -> None:
    unknown, false = Atom("unknown", "is", 1), Atom("a", "is", 1)
    assert Region((unknown, false)).holds({"unknown": None, "a": 2}) is False
    assert Region((unknown,)).holds({"unknown": None}) is None
    assert Trigger(Shape(), (Region((unknown,)), Region(()))).holds({"unknown": None}) is True


def test_a_trigger_is_json_and_comes_back() -> None:
    trigger = Trigger(HIDDEN.shape, (*HIDDEN.regions, Region((Atom("0.attr.perm", "is", (1, 0)),))))
    assert trigger_of(json.loads(json.dumps(trigger.as_json()))) == trigger
    with pytest.raises(ValueError, match="is no test of a fact"):
        trigger_of({"roles": 1, "edges": [], "shared": [], "regions": [[{"fact": "a", "calls": "os.system"}]]})


def test_a_trigger_is_met_at_a_place_in_a_larger_model() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("MatMul", ["w", "b"], ["c"]),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    given = {"x": grid((2, 3))}, {"w": grid((4, 3))}
    host = host_of(some(nodes, *given, outputs=["y"]))
    assert HIDDEN.matches(host, {}), f"{HIDDEN} is not met in a graph that has its three nodes, should be"
    assert [HIDDEN.matches(host, {}, node) for node in range(4)] == [False, True, True, False]
    assert HIDDEN.matches(host_of(some(nodes, *given, outputs=["y", "b"])), {}) is False
    apart = [*nodes[:2], helper.make_node("MatMul", ["w", "v"], ["c"]), nodes[3]]
    host = host_of(some(apart, given[0], {**given[1], "v": grid((3, 3))}, outputs=["y", "b"]))
    assert HIDDEN.matches(host, {}) is False


def test_the_shape_of_a_case_says_what_is_read_and_what_is_shared() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["y"]),
        helper.make_node("Gemm", ["z", "w"], ["u"]),
        helper.make_node("Relu", ["u"], ["v"]),
    ]
    case = some(nodes, {"x": grid((2, 3)), "z": grid((1, 3))}, {"w": grid((3, 3))}, outputs=["y", "v"])
    assert shape_of(host_of(case)) == Shape(3, frozenset({(2, 1)}), frozenset({(1, 0)}))


def test_a_trigger_is_a_sentence() -> None:
    atoms = (Atom("0.op", "in", ("MaxPool", "AveragePool")), Atom("0.attr.strides.stated", "is", False))
    trigger = Trigger(Shape(), (Region(atoms),))
    said = sentence(trigger, ("0.in.0.dtype", "opset", "recipe.threads"))
    assert said == "MaxPool, AveragePool without `strides`; any dtype, opset and `threads`"
    assert sentence(HIDDEN) == "Transpose → MatMul, Gemm: Transpose result no graph output"
    atoms = (Atom("0.op", "is", "LSTM"), Atom("1.op", "is", "GRU"), Atom("1.in.2.shared", "in", ("1.in.1", "0.in.1")))
    atoms += (Atom("1.in.4.equals", "not", "1.in.2"),)
    atoms += (Atom("1.attr.activations.equals", "is", "0.attr.activations"),)
    said = sentence(Trigger(Shape(2, frozenset({(1, 0)})), (Region(atoms),)))
    assert said == "LSTM → GRU: GRU operand 2 the same tensor as operand 1 or operand 1 of the first, " + (
        "operand 4 not equal to operand 2, `activations` as that of the first"
    )


def test_what_regions_have_in_common_is_said_once() -> None:
    def half(slot: int) -> Region:
        constant, raised = Atom(f"0.in.{slot}.from", "is", "constant"), Atom(f"0.in.{slot}.raised", "is", True)
        return Region((Atom("0.op", "is", "Where"), constant, raised, Atom("recipe.fp16", "is", True)))

    assert sentence(Trigger(Shape(), (half(0), half(1), half(2)))) == (
        "Where operand 0, 1 or 2 a constant, this operand with what half precision rounds up; under fp16=True"
    )
    plain = Region((Atom("0.op", "is", "Where"), Atom("opset", "in", (9,))))
    assert sentence(Trigger(Shape(), (half(1), plain))).endswith("rounds up; under fp16=True; or opset = 9")


def test_a_long_list_of_operators_in_a_row_is_said_once() -> None:
    atoms = (
        Atom("0.op", "is", "Dropout"),
        Atom("1.op", "in", ("And", "Not", "Or")),
        Atom("1.in.0.made", "is", "0.out.1"),
    )
    said = sentence(Trigger(Shape(2, frozenset({(1, 0)})), (Region(atoms),)))
    assert said == "Dropout → And, Not, Or: the second node: operand 0 is result 1 of the first"


def test_what_a_trigger_speaks_of_is_not_said_to_be_free() -> None:
    trigger = Trigger(Shape(), (Region((Atom("0.op", "is", "Abs"), Atom("opset", "most", 12))),))
    assert sentence(trigger, ("opset",)) == "Abs; opset at most 12"


def test_a_sentence_says_what_ends_the_failure_and_whether_it_is_to_be_trusted() -> None:
    trigger = Trigger(Shape(), (Region((Atom("0.op", "is", "MaxPool"), Atom("0.attr.strides.stated", "is", False))),))
    said = sentence(trigger, (), ("0.attr.strides",), {"instances": 10, "right": 10})
    assert said == "MaxPool without `strides`; not with `strides` stated"
    said = sentence(trigger, (), (), {"instances": 10, "right": 7})
    assert said == "MaxPool without `strides`; often, not always (as far as learned: right about 7 of 10 models)"
    assert sentence(trigger, (), (), {"instances": 0, "right": 0}).endswith("; not measured")
    rare = {"instances": 200, "right": 190, "failing": 10}
    said = sentence(trigger, (), (), {**rare, "found": 0, "named": 0})
    assert said.endswith("; not only then (as far as learned: of 10 that failed it named 0)")
    said = sentence(trigger, (), (), {**rare, "found": 10, "named": 20})
    assert said.endswith("; not always (as far as learned: of 20 that it named 10 failed)")


@pytest.mark.parametrize(
    "fact", ["0.in.x.dtype", "0.in.-1.dtype", "0.in.99.dtype", "0.out.x.rank", "².op", "9.op", "0.in", ""]
)
def test_a_fact_that_there_is_not_is_no_fact(fact: str) -> None:
    told = facts(one("Relu", grid((2, 3))))
    assert fact not in told
    assert Atom(fact, "is", "float").holds(told) is False


@pytest.mark.parametrize(
    ("test", "fact", "value", "said"),
    [
        ("is", "0.in.0.dtype", "uint8", "operand 0 of uint8"),
        ("in", "0.in.0.dtype", ("float", "float16", "double"), "operand 0 of float, float16 or double"),
        ("not", "0.in.0.dtype", "float", "operand 0 not of float"),
        ("is", "0.in.1.from", "constant", "operand 1 a constant"),
        ("in", "0.in.1.from", ("input", "computed"), "operand 1 no constant"),
        ("not", "0.in.1.from", "input", "operand 1 no input of the model"),
        ("least", "0.in.0.rank", 4, "operand 0 of 4 axes or more"),
        ("not", "0.out.0.rank", 1, "result not of 1 axis"),
        ("most", "0.in.0.elements", 8, "operand 0 of 8 elements or fewer"),
        ("is", "0.out.0.readers", 0, "result read by no node"),
        ("least", "0.out.0.readers", 2, "result read by 2 nodes or more"),
        ("in", "0.out.0.reader", ("", "Neg"), "result read by no node or Neg"),
        ("not", "0.in.0.maker", "Conv", "operand 0 not made by Conv"),
        ("is", "recipe.method", "ADMM", "under method=ADMM"),
        ("in", "recipe.method", ("KL", "ADMM"), "under method=KL or ADMM"),
        ("not", "recipe.quantize", "none", "under quantize other than none"),
        ("least", "recipe.threads", 2, "under threads at least 2"),
    ],
)
def test_an_atom_is_said_as_people_would(test: str, fact: str, value: Any, said: str) -> None:
    assert atom_in_words(Atom(fact, test, value), Region(())) == said


def test_the_opposite_of_an_option_is_said_as_an_option() -> None:
    trigger = Trigger(Shape(), (Region((Atom("0.op", "is", "Conv"), Atom("recipe.fp16", "is", True))),))
    assert sentence(trigger, (), ("recipe.fp16",)) == "Conv; under fp16=True; not under fp16=False"


def test_what_ends_the_failure_is_not_said_where_that_denies_a_denial() -> None:
    atoms = (Atom("0.op", "is", "Relu"), Atom("0.out.0.final", "is", True), Atom("0.in.0.given", "is", False))
    said = sentence(Trigger(Shape(), (Region(atoms),)), (), ("0.out.0.final", "0.in.0.given"))
    assert said == "Relu result a graph output, without operand 0; not with operand 0"


def test_what_lies_outside_of_a_number_of_axes_is_one_more_or_one_less() -> None:
    region = Region((Atom("0.in.0.rank", "most", 3), Atom("0.in.0.dtype", "in", ("int32", "uint8"))))
    assert otherwise(region) == ["operand 0 of 4 axes or more", "operand 0 not of int32 or uint8"]


def test_nobody_is_advised_to_make_something_else_of_floats() -> None:
    floats = (Atom("0.in.0.dtype", "in", ("float", "int32")), Atom("0.out.0.dtype", "not", "uint8"))
    assert otherwise(Region(floats)) == []
    assert otherwise(Region((Atom("0.in.0.dtype", "not", "float"),))) == ["operand 0 of float"]
