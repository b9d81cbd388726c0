"""What a runtime documents to round is no failure; anything else is, and where nothing is documented that too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driftnet.model import graph
from driftnet.model.verdict import Word
from driftnet.oracle.ball_arithmetic.ball import exact
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.exemptions.documented import (
    APPROXIMATED,
    BIAS,
    MOVED,
    NARROW,
    RECIPROCAL,
    ROWS,
    approximate,
    documented,
)
from driftnet.oracle.judge import judge
from driftnet.oracle.tolerances.table import MOVED_DEQUANTIZATION
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Rule
from onnx import TensorProto, helper

from tests.support.models import case
from tests.support.oracle import observed, target

SCALE, CODES = np.float32(0.25), np.array([[3, -5], [100, 7]], np.int8)
X, B = np.array([[3.7, -1.2]], np.float32), np.array([0.3, -0.44], np.float32)
node = helper.make_node


def dequantized_bias():
    """A Gemm of dequantized operands with a bias in floats."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "s"], ["v"]),
        node("Gemm", ["d", "v", "b"], ["y"]),
    ]
    constants = {"s": SCALE, "z": np.int8(0), "w": CODES, "b": B}
    return case(nodes, {"x": X}, constants, outputs=[("y", TensorProto.FLOAT, (1, 2))])


def dequantized_weights(op: str):
    """A product of floats and dequantized weights."""
    nodes = [node("DequantizeLinear", ["w", "s"], ["v"]), node(op, ["x", "v"], ["y"])]
    return case(nodes, {"x": X}, {"s": SCALE, "w": CODES}, outputs=[("y", TensorProto.FLOAT, (1, 2))])


def said(runner, model, shift, *rules):
    """The verdict on outputs that are right but for `shift`."""
    right = runner.reference.run(model).outputs[0]["y"]
    declared = target(exceptions=tuple(Rule(name, "execute", "", "somewhere") for name in rules))
    outputs = {"y": (right + shift).astype(np.float32)}
    return judge(model, observed(outputs), target=declared, options={}, reference=runner.reference)


def test_a_bias_rounded_to_the_product_of_the_scales_is_right_where_that_is_documented(runner):
    step = SCALE * SCALE
    shift = np.rint(B / step) * step - B
    verdict = said(runner, dequantized_bias(), shift, BIAS)
    assert (verdict.word, verdict.rule) == (Word.AGREES, BIAS)
    assert said(runner, dequantized_bias(), shift, ROWS).word is Word.DIVERGES
    assert said(runner, dequantized_bias(), 2 * shift, BIAS).word is Word.DIVERGES, "it is known exactly"


def test_dequantized_data_may_be_off_by_roundings_where_moving_it_is_documented(runner):
    model = dequantized_bias()
    shift = np.float32(
        [MOVED_DEQUANTIZATION * SCALE]
    )  # the largest weight is 100 steps, so this is a 25th of what is allowed
    verdict = said(runner, model, shift, MOVED)
    assert (verdict.word, verdict.rule) == (Word.AGREES, MOVED)
    assert said(runner, model, shift, ROWS).word is Word.DIVERGES
    assert said(runner, model, 1000 * shift, MOVED).word is Word.DIVERGES, "a sixteenth of a step is no rounding"


def test_a_symmetric_range_may_have_either_zero_point_where_its_scale_is_documented_to_be_a_product(runner):
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "y"])]

    def words(x, shift):
        model = case(nodes, {"x": np.float32(x)}, outputs=[("y", TensorProto.UINT8, ())])
        right = runner.reference.run(model).outputs[0]["y"]
        declared = target(exceptions=(Rule(RECIPROCAL, "execute", "", "somewhere"),))
        outputs = observed({"y": np.uint8(int(right) + shift)})
        return [
            judge(model, outputs, target=one, options={}, reference=runner.reference).word
            for one in (declared, target())
        ]

    assert words([-3, 1, 3], -1) == [Word.AGREES, Word.DIVERGES], "128 by the standard, 127 one rounding away"
    assert words([-3, 1, 3], -2) == [Word.DIVERGES, Word.DIVERGES], "126 is none of the two"
    assert words([-3, 1, 2], -1) == [Word.DIVERGES, Word.DIVERGES], "of this range there is one"


def test_an_approximation_is_right_within_what_the_target_says_of_it(runner):
    model = case(
        [node("Erf", ["x"], ["h"]), node("Neg", ["h"], ["y"])], {"x": X}, outputs=[("y", TensorProto.FLOAT, (1, 2))]
    )
    right = runner.reference.run(model).outputs[0]["y"]

    def said(shift, **approximations):
        declared = replace(target(), approximations=approximations)
        return judge(model, observed({"y": right + shift}), target=declared, options={}, reference=runner.reference)

    shift = np.float32(4e-6)
    assert (said(shift, Erf=5e-6).word, said(shift, Erf=5e-6).rule) == (Word.AGREES, APPROXIMATED)
    assert said(shift, Tanh=5e-6).word is Word.DIVERGES
    assert said(2 * shift, Erf=5e-6).word is Word.DIVERGES


def test_an_approximation_holds_of_the_activations_of_a_recurrent_layer():
    """tract computes them as it does Sigmoid and Tanh by themselves."""
    weights = {"w": np.full((1, 4, 2), 0.5, np.float32), "r": np.zeros((1, 4, 1), np.float32)}
    layer = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=1)
    model = case([layer], {"x": X[None]}, weights, outputs=[("y", TensorProto.FLOAT, (1, 1, 1, 1))])

    def error(**approximations):
        run, names = documented(graph.read(model.proto), (), approximations)
        return names, evaluate(run, model.feeds[0]).balls["y"].error.max()

    (none, own), (names, loose) = error(), error(Sigmoid=4e-6)
    assert (none, names) == (set(), {APPROXIMATED})
    assert 3e-6 <= loose - own <= 2e-5, f"it is allowed to be off by {loose}, without by {own}"
    assert error(Relu=1.0)[1] == own, "it has none"


def test_an_approximation_holds_in_a_subgraph_too():
    branch = helper.make_graph(
        [node("Erf", ["x"], ["b"])], "branch", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, (1, 2))]
    )
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = case([chosen], {"x": X}, {"c": np.array(True)}, outputs=[("y", TensorProto.FLOAT, (1, 2))])
    run, names = documented(graph.read(model.proto), (), {"Erf": 5e-6})
    error = evaluate(run, model.feeds[0]).balls["y"].error.max()
    assert (names, 5e-6 <= error < 6e-6) == ({APPROXIMATED}, True), f"in an If it is allowed to be off by {error}"


@pytest.mark.parametrize(
    ("dtype", "number", "most"), [(np.float32, 1.0, 5e-6), (np.float32, 1000.0, 5e-3), (np.float16, 1.0, 5e-6 * 2**13)]
)
def test_an_approximation_is_as_large_as_its_result_and_as_coarse_as_its_type(dtype, number, most):
    ball = exact(np.array([number], dtype))
    assert approximate(ball, ball, error=5e-6).error.item() == pytest.approx(most)


def test_an_approximation_may_be_off_by_a_rounding_of_what_it_is_made_of_and_by_no_more(runner):
    """A Softplus of x below 0 that is that of -x, and x: in a subgraph and a recurrent layer too."""
    x = np.array([-100, -8, 0.5], np.float32)
    nodes = [node("Softplus", ["x"], ["y"])]
    model = case(nodes, {"x": x}, outputs=[("y", TensorProto.FLOAT, (3,))])
    right, declared = runner.reference.run(model).outputs[0]["y"], {"Softplus": (3e-7, 2**-23)}

    def said(*shift):
        seen = observed({"y": right + np.array(shift, np.float32)})
        return judge(
            model, seen, target=replace(target(), approximations=declared), options={}, reference=runner.reference
        ).word

    assert said(7.6e-6, 9.5e-7, 0) is Word.AGREES
    assert said(2e-5, 0, 0) is said(0, 7e-6, 0) is said(0, 0, 7e-6) is Word.DIVERGES
    body = helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3,))])
    branches = helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)
    inside = case([branches], {"x": x}, {"c": np.array(True)}, outputs=[("z", TensorProto.FLOAT, (3,))])
    run, _ = documented(graph.read(inside.proto), (), declared)
    assert 1.2e-5 < evaluate(run, inside.feeds[0]).balls["z"].error[0] < 1.4e-5, "100 roundings of 1.2e-7, and a bit"


def test_a_bias_that_is_an_input_is_not_rounded(runner):
    nodes = [node("DequantizeLinear", ["w", "s"], ["v"]), node("Gemm", ["x", "v", "b"], ["y"])]
    feed, constants = {"x": X, "b": B}, {"s": SCALE, "w": CODES}
    model = case(nodes, feed, constants, outputs=[("y", TensorProto.FLOAT, (1, 2))])
    assert said(runner, model, np.rint(B / SCALE**2) * SCALE**2 - B, BIAS).word is Word.DIVERGES


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_rows_rounded_to_eight_bits_are_right_where_that_is_documented(runner, op):
    step = np.abs(X).max() / 127
    shift = (np.rint(X / step) * step - X) @ (CODES * SCALE)
    verdict = said(runner, dequantized_weights(op), shift, BIAS, ROWS)
    assert (verdict.word, verdict.rule) == (Word.AGREES, ROWS)
    assert said(runner, dequantized_weights(op), shift).word is Word.DIVERGES
    assert said(runner, dequantized_weights(op), 3 * np.abs(X).max(), ROWS).word is Word.DIVERGES, "it is bounded"


def test_where_what_is_documented_moves_it_too_far_nobody_can_tell(runner):
    """Rows rounded six times over allow any output, that of a wrong one too."""
    rng, width = np.random.default_rng(0), 64
    nodes, last = [node("DequantizeLinear", ["w", "s"], ["v"])], "x"
    for layer in range(6):
        nodes.append(node("MatMul", [last, "v"], [f"h{layer}"]))
        last = f"h{layer}"
    constants = {"w": rng.integers(-127, 128, (width, width)).astype(np.int8), "s": np.float32(1 / 1016)}
    x = rng.normal(size=(1, width)).astype(np.float32)
    model = case(nodes, {"x": x}, constants, outputs=[(last, TensorProto.FLOAT, (1, width))])
    right = runner.reference.run(model).outputs[0][last]
    declared = target(exceptions=(Rule(ROWS, "execute", "", "somewhere"),))
    verdict = judge(model, observed({last: -right}), target=declared, options={}, reference=runner.reference)
    assert (verdict.word, verdict.rule) == (Word.ABSTAINS, ROWS)


def test_what_optimizations_round_is_documented_only_where_they_run():
    options = {"optimization": "off"}
    quantizer = resolve("onnxruntime-quant").target
    assert {BIAS, ROWS}.isdisjoint(rule.name for rule in quantizer.exceptions if rule.holds(options))
    assert {BIAS, ROWS} <= {rule.name for rule in quantizer.exceptions if rule.holds({"optimization": "all"})}
    preprocessed = {"preprocess": True, "optimization": "off"}
    rules = {rule.name for rule in quantizer.exceptions if rule.holds(preprocessed)}
    assert rules & {BIAS, ROWS} == {BIAS}, "pre-processing makes the basic optimizations"


@pytest.mark.parametrize(
    ("attributes", "quantized", "scales", "rounded"),
    [
        ({}, {}, (), True),
        ({}, {"axis": 1}, (8,), True),
        ({}, {"axis": 0}, (32,), False),
        ({}, {"axis": 0, "block_size": 16}, (2, 8), True),
        ({}, {"axis": 0, "block_size": 8}, (4, 8), False),
        ({"transB": 1}, {}, (), False),
        ({"alpha": 0.5}, {}, (), False),
    ],
)
def test_rows_are_rounded_where_the_runtime_has_a_kernel_of_codes(attributes, quantized, scales, rounded):
    nodes = [node("DequantizeLinear", ["w", "s"], ["v"], **quantized), node("Gemm", ["x", "v"], ["y"], **attributes)]
    constants = {"w": np.ones((32, 8), np.int8), "s": np.ones(scales, np.float32)}
    feed, outputs = {"x": np.ones((2, 32), np.float32)}, [("y", TensorProto.FLOAT, (2, 8))]
    model = case(nodes, feed, constants, outputs=outputs, opset=21)
    assert (ROWS in documented(graph.read(model.proto), {ROWS})[1]) is rounded


@pytest.mark.parametrize(
    ("x", "y", "word"),
    [
        (np.int64(100_000), 100_000**2 - 2**33, Word.AGREES),
        (np.int64(100_000), 100_000**2 - 2**33 + 1, Word.DIVERGES),
        (np.uint64(50_000), 50_000**2 - 2**32 + 2**64, Word.AGREES),
        (np.uint64(50_000), 50_000**2 - 2**32 + 2**63, Word.DIVERGES),
    ],
)
def test_integers_of_64_bits_wrap_in_32_where_that_is_documented(runner, x, y, word):
    outputs = {"y": np.array([y], x.dtype)}
    of_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    model = case([node("Mul", ["x", "x"], ["y"])], {"x": np.array([x])}, outputs=[("y", of_type, (1,))])
    for rules, expected in (((NARROW,), word), ((), Word.DIVERGES)):
        declared = target(exceptions=tuple(Rule(name, "execute", "", "somewhere") for name in rules))
        found = judge(model, observed(outputs), target=declared, options={}, reference=runner.reference)
        assert found.word is expected, found.message
