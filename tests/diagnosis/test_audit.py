"""driftnet audit: right quantizations are found right, whatever tool made them, and each damage is found and named."""

import io
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from driftnet import api
from driftnet.cli.main import driftnet
from driftnet.cli.report import tables
from driftnet.commands import auditing
from driftnet.diagnosis import audit
from driftnet.model import graph as graphs
from driftnet.model.case import Case
from driftnet.model.verdict import Word
from driftnet.oracle.artifact.verified.calibration import CALIBRATED_ELSEWHERE, RANGE
from driftnet.oracle.artifact.verified.range_outliers import Proportion, outliers
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import onnx_engine
from driftnet.util.errors import UserError
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from rich.console import Console

from tests.oracle.artifact import test_verified
from tests.support import damage, production
from tests.support.models import case as models_case


@pytest.fixture(scope="module")
def runner():
    with Runner(small_models=True) as runner:
        yield runner


def dynamic(case: Case, **options: object) -> Case:
    """What onnxruntime's dynamic quantizer makes of `case`."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "quantized.onnx")
        source.write_bytes(case.model)
        quantize_dynamic(source, target, **options)
        return Case(target.read_bytes(), case.feeds)


def weight_only(case: Case) -> Case:
    """Weights of MatMul in 4 bits, by blocks."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    quantizer = MatMulNBitsQuantizer(proto, block_size=16, is_symmetric=True)
    quantizer.process()
    return Case(quantizer.model.model.SerializeToString(), case.feeds)


FORMS: dict[str, Callable[[Case], Case]] = {
    "qdq": production.quantized,
    "qdq-per-channel": lambda case: production.quantized(case, per_channel=True),
    "qoperator": lambda case: production.quantized(case, qdq=False),
    "dynamic": lambda case: dynamic(case, weight_type=QuantType.QUInt8),
    "weight-only": weight_only,
}
PAIRS = [
    ("mobilenet_v2", "qdq-per-channel"),
    ("mobilenet_v2", "qoperator"),
    ("transformer", "qoperator"),
    ("transformer", "dynamic"),
    ("transformer", "weight-only"),
    ("dual_path_rnn", "qdq"),
    ("speech_enhancer", "qdq"),
]


@cache
def made(name: str, form: str) -> tuple[Case, onnx.ModelProto]:
    """A model of production in its small size, and what a quantizer makes of it."""
    case = production.SMALL[name]()
    return replace(case, feeds=case.feeds[:1]), FORMS[form](case).proto


@pytest.mark.parametrize(("name", "form"), PAIRS)
def test_a_right_quantization_is_clean_and_all_of_it_was_compared(runner, name, form):
    case, quantized = made(name, form)
    found = audit.audit(case.proto, quantized, case.feeds, runner)
    assert found.verdict is Word.AGREES, f"{name} {form} is accused: {found.problems[0].message}"
    assert found.vouched >= 0.95, f"{name} {form}: only {found.vouched:.0%} of the nodes were compared"


@pytest.mark.parametrize("harm", damage.DAMAGES, ids=lambda harm: harm.__name__)
def test_a_damage_that_changes_an_output_is_found_and_named(runner, harm):
    start = damage.DAMAGES.index(harm)
    for name, form in (*PAIRS[start % len(PAIRS) :], *PAIRS[: start % len(PAIRS)]):
        case, right = made(name, form)
        wrong, names = damage.damaged(right, harm, 0)
        if names and (harm is damage.stale_bias_scale or changes_an_output(runner, right, wrong, case)):
            break
    of_ranges = harm is damage.narrow_range  # what is told by data like those of calibration alone
    feeds = case.calibration if of_ranges else case.feeds
    found = audit.audit(case.proto, wrong, feeds, runner, alike=of_ranges)
    assert found.problems, f"{harm.__name__} in {name} {form} was not found; it was made at {sorted(names)}"
    said = {text.removesuffix("_quant") for p in found.problems for text in (p.where, p.culprit[0]) if text}
    close = any(a.startswith(b) or b.startswith(a) for a in said for b in names)
    assert close, f"{harm.__name__} in {name} {form} was made at {sorted(names)}, but {sorted(said)} were named"


def changes_an_output(runner: Runner, right: onnx.ModelProto, wrong: onnx.ModelProto, case: Case) -> bool:
    """Whether the damaged model gives something else, or does not even run."""
    try:
        one, other = (runner.reference.record(Case(m.SerializeToString(), case.feeds))[0] for m in (right, wrong))
    except ReferenceError:
        return True
    return any(not np.array_equal(one[v.name], other[v.name]) for v in right.graph.output)


def fake_quantized(weights: np.ndarray, steps: np.ndarray) -> onnx.ModelProto:
    """A MatMul and a Relu as tools export them that keep float weights: Q and DQ around weights, and around x; the
    tensors are numbered anew."""
    return model(
        [
            helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["1"]),
            helper.make_node("DequantizeLinear", ["1", "xs", "xz"], ["2"]),
            helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["3"], axis=1),
            helper.make_node("DequantizeLinear", ["3", "ws", "wz"], ["4"], axis=1),
            helper.make_node("MatMul", ["2", "4"], ["5"], "product"),
            helper.make_node("Relu", ["5"], ["y"]),
        ],
        w=weights,
        ws=steps.astype(np.float32),
        wz=np.zeros(steps.shape, np.int8),
        xs=np.float32(1 / 127),
        xz=np.int8(0),
    )


def model(nodes: list[onnx.NodeProto], opset: int = 17, **constants: object) -> onnx.ModelProto:
    """[2, 4] -> [2, 3]"""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


WEIGHTS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
STEPS = np.abs(WEIGHTS).max(0) / 127
FLOAT = model(
    [helper.make_node("MatMul", ["x", "w"], ["5"], "product"), helper.make_node("Relu", ["5"], ["y"])], w=WEIGHTS
)
FEED = {"x": np.random.default_rng(1).uniform(-1, 1, (2, 4)).astype(np.float32)}


def test_fake_quantization_of_float_weights_is_read_too(runner):
    assert audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS), [FEED], runner).problems == ()


def test_a_scale_that_cuts_weights_off_is_named(runner):
    found = audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS * [1, 0.5, 1]), [FEED], runner)
    assert [(p.question, p.where) for p in found.problems] == [("parameter", "w")], found.problems
    assert "1 of axis 1" in found.problems[0].message, "the message does not tell the channel"


def test_an_output_of_another_shape_is_named(runner):
    wider, steps = (np.append(x, x[..., :1], -1) for x in (WEIGHTS, STEPS))
    found = audit.audit(FLOAT, fake_quantized(wider, steps), [FEED], runner)
    assert [(p.question, p.where) for p in found.problems] == [("topology", "y")], found.problems
    assert "[2, 4], in the float model [2, 3]" in found.problems[0].message


CODES = np.rint(WEIGHTS / STEPS).astype(np.int8)
BIAS = np.random.default_rng(2).normal(size=3).astype(np.float32)
BIASED = model(
    [
        helper.make_node("MatMul", ["x", "w"], ["1"], "product"),
        helper.make_node("Add", ["1", "b"], ["2"], "sum"),
        helper.make_node("Gelu", ["2"], ["y"], "gelu"),
    ],
    20,
    w=WEIGHTS,
    b=BIAS,
)


def optimized(bias: np.ndarray) -> onnx.ModelProto:
    """BIASED, quantized dynamically and saved by onnxruntime after its optimizer: each fused node is several."""
    return model(
        [
            helper.make_node("DynamicQuantizeMatMul", ["x", "wq", "ws"], ["1"], domain="com.microsoft"),
            helper.make_node("BiasGelu", ["1", "b"], ["y"], domain="com.microsoft"),
        ],
        20,
        wq=CODES,
        ws=STEPS.astype(np.float32),
        b=bias,
    )


EXPORTED = model(
    [
        *BIASED.graph.node[:2],
        helper.make_node("Div", ["2", "root"], ["3"]),
        helper.make_node("Erf", ["3"], ["4"]),
        helper.make_node("Add", ["4", "one"], ["5"]),
        helper.make_node("Mul", ["2", "5"], ["6"]),
        helper.make_node("Mul", ["6", "half"], ["y"]),
    ],
    20,
    w=WEIGHTS,
    b=BIAS,
    root=np.float32(2**0.5),
    one=np.float32(1),
    half=np.float32(0.5),
)
"""BIASED as exporters write a Gelu"""


@pytest.mark.parametrize("floating", [BIASED, EXPORTED], ids=["one-operator", "several"])
def test_what_an_optimizer_has_fused_is_read_as_the_operators_that_it_was(runner, floating):
    right = audit.audit(floating, optimized(BIAS), [FEED], runner)
    assert right.problems == ()
    assert right.vouched == 1
    found = audit.audit(floating, optimized(BIAS[::-1].copy()), [FEED], runner)
    assert {"b", "sum"} & {problem.where for problem in found.problems}, found.problems


def weights_alone(codes: np.ndarray, steps: np.ndarray, **attributes: int) -> onnx.ModelProto:
    """FLOAT, of which only the weights are quantized."""
    nodes = [
        helper.make_node("DequantizeLinear", ["wq", "ws"], ["2"], **attributes),
        helper.make_node("MatMul", ["x", "2"], ["5"], "product"),
        helper.make_node("Relu", ["5"], ["y"]),
    ]
    return model(nodes, 21, wq=codes, ws=steps.astype(np.float32))


def test_activations_that_onnxruntime_documents_to_round_are_no_fault_of_execution(runner):
    artifact = weights_alone(CODES, STEPS, axis=1)
    plain = runner.reference.record(Case(artifact.SerializeToString(), (FEED,)))[0]["y"]
    engine = onnx_engine()
    fast = runner.observe(Case(artifact.SerializeToString(), (FEED,)), engine, engine.target.features["float"])
    assert not np.array_equal(fast.outputs[0]["y"], plain), "onnxruntime does not round here, so nothing is tested"
    assert audit.audit(FLOAT, artifact, [FEED], runner).problems == ()


def test_what_an_exception_allows_anything_of_is_not_counted_as_compared(runner):
    weights = WEIGHTS * np.array([[0], [1], [1], [1]], np.float32)
    floating = onnx.ModelProto()
    floating.CopyFrom(FLOAT)
    floating.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, floating.graph.initializer[0].name))
    codes = CODES * np.array([[0], [1], [1], [1]], np.int8)
    feed = {"x": np.array([[1e3, 0.1, 0.2, 0.3], [1e3, 0.3, -0.2, 0.1]], np.float32)}
    found = audit.audit(floating, weights_alone(codes, STEPS, axis=1), [feed], runner)
    assert found.problems == ()
    assert found.excused == {"int8-matmul": 1}, "rounding leaves nothing of what has weight"
    assert found.vouched == 0.5, "the Relu was compared, the product was not"
    assert found.unmatched == (("product", "MatMul"),)
    assert found.verdict is Word.ABSTAINS, "half of a model is not enough to agree"


def test_an_audit_that_compared_too_little_ends_with_status_2():
    assert [api.audit_status({"verdict": word}) for word in ("agrees", "diverges", "abstains")] == [0, 1, 2]


def test_what_a_right_quantization_loses_is_told_end_to_end_and_where(runner):
    found = audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS), [FEED], runner)
    (row,) = found.end_to_end
    assert (row.output, found.verdict) == ("y", Word.AGREES)
    assert 30 < row.sqnr_db < 60, f"{row.sqnr_db} dB, should be some 45 of eight bits"
    coarse = audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS * 16), [FEED], runner)
    assert coarse.end_to_end[0].sqnr_db < row.sqnr_db - 15, "four bits lose sixteen times as much"
    assert {layer.output for layer in found.layers} <= {"5", "y"}


def test_the_layer_that_loses_most_is_named_with_what_leaving_it_in_float_gives(runner):
    """Two products in a row, the first by weights of so few steps that almost nothing is left of them."""
    rng = np.random.default_rng(5)
    first, second = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2))

    def chain(names: tuple[str, str], more: list[onnx.NodeProto], **constants: object) -> onnx.ModelProto:
        products = [
            helper.make_node("MatMul", ["x", names[0]], ["h"], "coarse"),
            helper.make_node("MatMul", ["h", names[1]], ["y"], "fine"),
        ]
        made = model([*more, *products], **constants)
        made.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
        return made

    steps = {"s1": np.abs(first).max() / 2, "s2": np.abs(second).max() / 127}
    codes = {f"w{k}": np.rint(w / steps[f"s{k}"]).astype(np.int8) for k, w in ((1, first), (2, second))}
    scales = {name: np.float32(step) for name, step in steps.items()}
    pairs = [helper.make_node("DequantizeLinear", [f"w{k}", f"s{k}", f"z{k}"], [f"d{k}"]) for k in (1, 2)]
    quantized = chain(("d1", "d2"), pairs, **codes, **scales, z1=np.int8(0), z2=np.int8(0))
    found = audit.audit(chain(("w1", "w2"), [], w1=first, w2=second), quantized, [FEED], runner)
    best = found.in_float[0]
    assert (best.node, best.op_type) == ("coarse", "MatMul"), [layer.node for layer in found.in_float]
    assert best.loss.sqnr_db < 20, f"{best.loss.sqnr_db} dB by itself"
    gained = best.in_float[0].sqnr_db - found.end_to_end[0].sqnr_db
    assert gained > 15, f"{gained} dB gained by leaving two bits in float"


def test_an_activation_that_is_fused_carries_the_error_of_what_it_is_fused_with(runner):
    quantized = test_verified.model(test_verified.QOPERATOR, **test_verified.CONSTANTS)
    found = audit.audit(test_verified.FLOAT, quantized, [{"x": test_verified.X}], runner)
    assert [(layer.node, layer.op_type) for layer in found.in_float] == [("gemm", "Gemm")], found.in_float


@pytest.mark.parametrize(("end", "place"), [(0.6, "xz"), (1 / 4, "xs"), (1 / 255, "xs")])
def test_a_range_that_cuts_much_of_an_input_off_is_wrong_and_the_zero_point_where_it_is_as_wide(runner, end, place):
    """The input is in [0, 1], and rounded within a range as wide that is moved, or of a part of that."""
    step = np.float32((1 if place == "xz" else end) / 255)
    rounded = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
    ]
    body = [helper.make_node(n.op_type, [*n.input], [*n.output], n.name) for n in FLOAT.graph.node]
    body[0].input[0] = "d"
    zero = np.uint8(round(255 * (1 - end)) % 256 if place == "xz" else 0)
    quantized = model([*rounded, *body], w=WEIGHTS, xs=step, xz=zero)
    feed = {"x": np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)}
    found = audit.audit(FLOAT, quantized, [feed], runner, alike=True)
    assert [problem.where for problem in found.problems] == [place], found.problems
    mistaken = place == "xs"  # the inputs may be others than those of calibration, and nobody quantized wrongly
    assert found.verdict is (Word.ABSTAINS if mistaken else Word.DIVERGES), found.problems


@pytest.mark.parametrize(
    ("factors", "moved", "place"), [([1, 1, 1], 3, "wz"), ([1, 1.5, 1], 0, "ws"), ([1, 1.5, 0.6], 0, "ws")]
)
def test_a_zero_point_or_the_scales_of_channels_by_which_weights_are_wrong_are_named(runner, factors, moved, place):
    weights = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    steps = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
    codes = np.rint(weights / steps).astype(np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "ws", "wz"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"], "product"),
    ]
    held = {"codes": codes, "ws": (steps * factors).astype(np.float32), "wz": np.full(3, moved, np.int8)}
    floating = model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], w=weights)
    found = audit.audit(floating, model(nodes, **held), [FEED], runner)
    assert [problem.where for problem in found.problems] == [place], found.problems


@pytest.mark.parametrize("steps", [[0.01, 0.02, 0.015], [0.01]], ids=["channels", "tensor"])
def test_one_code_that_is_wrong_beside_small_ones_speaks_for_no_other_scale(runner, steps):
    codes = np.int8([[127, 50, -127], [1, 127, 20], [-2, -60, 33], [3, 9, -80]])[:, : len(steps)]
    scale = np.float32(steps)
    weights, damaged = (codes * scale).astype(np.float32), codes.copy()
    damaged[0, 0] = 100
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "ws"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"], "product"),
    ]
    floating = model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], w=weights)
    found = audit.audit(floating, model(nodes, codes=damaged, ws=scale), [FEED], runner)
    assert [problem.where for problem in found.problems] == ["w"], found.problems
    assert "as 'ws' makes them" not in found.problems[0].message, found.problems
    assert "as its scale" not in found.problems[0].message, found.problems


@pytest.mark.parametrize(
    ("zero", "outlier", "question", "where"),
    [(40, -1, "parameter", "rz"), (128, -1, "topology", "relu"), (128, -6, "topology", "relu")],
    ids=["moved", "of its operand", "of its operand, clipped"],
)
def test_a_range_that_does_not_begin_where_a_relu_does_has_a_wrong_zero_point_or_is_that_of_its_operand(
    runner, zero, outlier, question, where
):
    weights = np.eye(4, 3, dtype=np.float32)
    product = helper.make_node("MatMul", ["x", "w"], ["g"], "product")
    pair = [
        helper.make_node("QuantizeLinear", ["g", "rs", "rz"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "rs", "rz"], ["y"]),
    ]
    floating = model([product, helper.make_node("Relu", ["g"], ["y"], "relu")], w=weights)
    feed = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    feed["x"][0, 0] = outlier
    scale = np.float32(2 / 255 if zero == 128 else 1 / 255)
    found = audit.audit(floating, model([product, *pair], w=weights, rs=scale, rz=np.uint8(zero)), [feed], runner)
    assert [(p.question, p.where) for p in found.problems] == [(question, where)], found.problems


def test_an_infinite_scale_is_told_first(runner):
    """Of a table that holds minus infinity onnxruntime's dynamic quantizer makes an infinite scale, and NaN of all."""
    found = audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS * [1, np.inf, 1]), [FEED], runner)
    assert (found.problems[0].question, found.problems[0].where) == ("parameter", "ws"), found.problems
    assert "inf" in found.problems[0].message


def test_scores_that_vanish_beside_boxes_are_told(runner):
    """The classic loss of a detector: one step for boxes up to 100 and for scores below .1."""
    constants = {"large": np.float32(100), "small": np.float32(0.1)}
    joined = [
        helper.make_node("Mul", ["x", "large"], ["boxes"]),
        helper.make_node("Mul", ["x", "small"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["j"], "join", axis=1),
    ]

    def ends_in(nodes: list[onnx.NodeProto], **more: object) -> onnx.ModelProto:
        made = model([*joined, *nodes], **constants, **more)
        made.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 8
        return made

    pair = [
        helper.make_node("QuantizeLinear", ["j", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    floating = ends_in([helper.make_node("Identity", ["j"], ["y"])])
    found = audit.audit(floating, ends_in(pair, s=np.float32(100 / 127), z=np.int8(0)), [FEED], runner)
    assert len(found.vanishing) == 1, found.vanishing
    assert "'scores'" in found.vanishing[0], found.vanishing


@pytest.mark.parametrize(("factor", "word", "wrong"), [(1, Word.ABSTAINS, 0), (1 / 16, Word.DIVERGES, 1)])
def test_calibration_on_other_data_excuses_no_range_that_such_data_do_not_explain(runner, factor, word, wrong):
    case = production.SMALL["dual_path_rnn"]()
    (name,) = (value.name for value in case.proto.graph.input)
    others = tuple({name: 50 * run[name]} for run in case.calibration)
    quantized = production.quantized(replace(case, calibration=others)).proto
    scale = next(node.input[1] for node in reversed(quantized.graph.node) if node.op_type == "QuantizeLinear")
    (tensor,) = (tensor for tensor in quantized.graph.initializer if tensor.name == scale)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), scale))
    found = audit.audit(case.proto, quantized, case.feeds[:1], runner, alike=True)
    assert found.verdict is word, found.problems
    assert [p.where for p in found.problems if p.about[:1] == (RANGE,)] == wrong * [scale]


def test_where_the_range_of_an_input_is_itself_wrong_no_range_behind_it_is_accused(runner):
    case = production.SMALL["dual_path_rnn"]()
    quantized = production.quantized(case).proto
    (name,) = (value.name for value in case.proto.graph.input)
    scale = next(n.input[1] for n in quantized.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == name)
    (tensor,) = (tensor for tensor in quantized.graph.initializer if tensor.name == scale)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(16), scale))
    found = audit.audit(case.proto, quantized, case.feeds[:1], runner, alike=True)
    assert [p.about[:2] for p in found.problems] == [(CALIBRATED_ELSEWHERE, name)], found.problems


@pytest.mark.parametrize(("masked", "lost"), [(-10000.0, 1), (-2.0, 0)])
def test_scores_that_vanish_beside_the_mask_of_an_attention_are_told_and_what_leaving_both_in_float_gives(
    runner, masked, lost
):
    mask = np.where(np.arange(4) < 2, 0, masked).astype(np.float32)
    pair = [
        helper.make_node("QuantizeLinear", ["j", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"]),
    ]
    scores = [helper.make_node("Mul", ["x", "half"], ["scores"]), helper.make_node("Add", ["scores", "mask"], ["j"])]
    weights, constants = helper.make_node("Softmax", ["d"], ["y"]), {"half": np.float32(0.5), "mask": mask}
    floating = model([*scores, helper.make_node("Identity", ["j"], ["d"]), weights], **constants)
    step = np.float32((np.abs(FEED["x"]).max() / 2 - masked) / 127)
    found = audit.audit(floating, model([*scores, *pair, weights], **constants, s=step, z=np.int8(0)), [FEED], runner)
    assert len(found.vanishing) == lost, f"{found.vanishing}, should be {lost}"
    assert not lost or "'scores'" in found.vanishing[0], found.vanishing
    assert [row.max_abs for row in found.joins_in_float] == lost * [0.0], "in float nothing of it is lost"


def test_the_sign_of_the_largest_of_a_block_may_take_the_last_of_four_bits(runner):
    largest = np.take_along_axis(WEIGHTS, np.abs(WEIGHTS).argmax(0)[None], 0)
    steps = largest / -8
    codes = np.clip(np.rint(WEIGHTS / steps), -8, 7).astype(ml_dtypes.int4)
    assert audit.audit(FLOAT, weights_alone(codes, steps, axis=0, block_size=4), [FEED], runner).problems == ()
    found = audit.audit(FLOAT, weights_alone(codes, np.roll(steps, 1), axis=0, block_size=4), [FEED], runner)
    assert "w" in {problem.where for problem in found.problems}, "block scales of other columns went unseen"


def test_codes_of_eight_bit_floats_are_as_far_apart_as_they_are_large(runner):
    steps = np.abs(WEIGHTS).max(0) / 448
    codes = (WEIGHTS / steps).astype(ml_dtypes.float8_e4m3fn)
    assert audit.audit(FLOAT, weights_alone(codes, steps, axis=1), [FEED], runner).problems == ()
    wrong = codes.copy()
    wrong[2, 1] = wrong[2, 1].astype(np.float32) * 1.25
    found = audit.audit(FLOAT, weights_alone(wrong, steps, axis=1), [FEED], runner)
    assert [problem.where for problem in found.problems] == ["w"], found.problems
    assert "[2, 1]" in found.problems[0].message


class Faulty:
    """A runner in which a MatMul that a Relu reads is executed wrongly."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.reference = runner, runner.reference

    def observe(self, case: Case, *rest: object) -> object:
        seen = self.runner.observe(case, *rest)
        if {"MatMul", "Relu"} <= {node.op_type for node in case.proto.graph.node}:
            outputs = tuple({name: x + 1 for name, x in out.items()} for out in seen.outputs)
            return replace(seen, outputs=outputs)
        return seen


def test_a_fault_of_a_fusion_is_told_of_the_nodes_that_have_it(runner):
    small = {"x": -np.abs(FEED["x"])}  # codes of which no processor cuts a product
    found = audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS), [small], Faulty(runner))
    assert [(p.question, p.where) for p in found.problems] == [("execution", "product, y")], found.problems


def layers(biases: np.ndarray, weights: list[onnx.NodeProto], **constants: object) -> onnx.ModelProto:
    """Two layers [4, 4] with `biases`, and a MatMul to three columns."""
    nodes = [
        *weights,
        helper.make_node("MatMul", ["x", "v"], ["1"]),
        helper.make_node("Add", ["1", "a"], ["2"], "first"),
        helper.make_node("MatMul", ["2", "v"], ["3"]),
        helper.make_node("Add", ["3", "b"], ["4"], "second"),
        helper.make_node("MatMul", ["4", "w"], ["y"]),
    ]
    return model(nodes, a=biases[0], b=biases[1], w=WEIGHTS, **constants)


@pytest.mark.parametrize(("moves", "places"), [((0.3, 0.3), []), ((0.0, 0.3), ["b"]), ((0.3, 30.0), ["b"])])
def test_biases_may_be_corrected_for_rounding_but_all_of_them_and_by_no_more(runner, moves, places):
    square = np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32)
    step = np.float32(np.abs(square).max() / 127)
    codes = np.rint(square / step).astype(np.int8)
    error = (codes * step - square).sum(0)
    biases = np.random.default_rng(4).normal(size=(2, 4)).astype(np.float32)
    moved = (biases + np.array(moves)[:, None] * error).astype(np.float32)
    pair = [helper.make_node("DequantizeLinear", ["vq", "vs"], ["v"])]
    found = audit.audit(layers(biases, [], v=square), layers(moved, pair, vq=codes, vs=step), [FEED], runner)
    assert [problem.where for problem in found.problems] == places, found.problems


def test_a_node_is_missed_whose_readers_see_its_operand_rounded_and_as_it_is(runner):
    def made(nodes: list[onnx.NodeProto], one: str, other: str) -> onnx.ModelProto:
        products = [helper.make_node("MatMul", [one, "w"], ["4"]), helper.make_node("MatMul", [other, "w"], ["5"])]
        added = helper.make_node("Add", ["4", "5"], ["y"], "sum")
        step = np.float32(3 / 127)
        return model([*nodes, *products, added], v=np.eye(4, dtype=np.float32), w=WEIGHTS, s=step, z=np.int8(0))

    product = helper.make_node("MatMul", ["x", "v"], ["1"])
    unit = helper.make_node("LeakyRelu", ["1"], ["2"], "unit", alpha=0.1)
    pair = (
        helper.make_node("QuantizeLinear", ["2", "s", "z"], ["3"]),
        helper.make_node("DequantizeLinear", ["3", "s", "z"], ["2_dq"]),
    )
    assert not audit.audit(
        made([product, unit], "2", "2"), made([product, unit, *pair], "2_dq", "2"), [FEED], runner
    ).problems
    wrong = made([product, *pair], "2_dq", "1")
    wrong.graph.node[1].input[0] = "1"
    found = audit.audit(made([product, unit], "2", "2"), wrong, [FEED], runner)
    assert "unit" in [problem.where for problem in found.problems], found.problems


def test_a_tensor_has_not_the_range_of_another_that_no_node_links_it_with(runner):
    nodes = [
        helper.make_node("Mul", ["x", "hundred"], ["1"]),
        helper.make_node("Tanh", ["1"], ["2"]),
        helper.make_node("MatMul", ["2", "w"], ["y"]),
    ]
    pairs = [
        [
            helper.make_node("QuantizeLinear", [name, f"{name}_scale", "zero"], [f"{name}_q"]),
            helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_scale", "zero"], [f"{name}_dq"]),
        ]
        for name in "1y"
    ]
    reading = [helper.make_node("Tanh", ["1_dq"], ["2"]), helper.make_node("MatMul", ["2", "w"], ["y"])]
    floating = model(nodes, hundred=np.float32(100), w=WEIGHTS)
    for scale, places in ((np.float32(100 / 127), []), (np.float32(3 / 127), ["1_scale"])):
        constants = {"1_scale": scale, "y_scale": np.float32(3 / 127), "zero": np.int8(0)}
        artifact = model([nodes[0], *pairs[0], *reading, *pairs[1]], hundred=np.float32(100), w=WEIGHTS, **constants)
        found = audit.audit(floating, artifact, [FEED], runner)
        assert [problem.where for problem in found.problems] == places, found.problems


def test_made_up_inputs_tell_one_symbolic_dim_from_another(tmp_path):
    def reshaped(index: int) -> onnx.ModelProto:
        """[rows, columns, 4] flattened but for one of its dims."""
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["1"]),
            helper.make_node("DequantizeLinear", ["1", "xs", "xz"], ["2"]),
            helper.make_node("Shape", ["x"], ["3"]),
            helper.make_node("Gather", ["3", "index"], ["4"], "which"),
            helper.make_node("Concat", ["4", "rest"], ["5"], axis=0),
            helper.make_node("Reshape", ["2", "5"], ["y"]),
        ]
        made = model(nodes, index=np.array([index]), rest=np.array([-1]), xs=np.float32(1 / 127), xz=np.int8(0))
        made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns", 4]))
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None]))
        return made

    floating = reshaped(0)
    del floating.graph.node[:2]
    floating.graph.node[-1].input[0] = "x"
    for name, proto in {"float": floating, "right": reshaped(0), "wrong": reshaped(1)}.items():
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
    assert not auditing.audit(tmp_path / "float.onnx", tmp_path / "right.onnx")["problems"]
    problems = auditing.audit(tmp_path / "float.onnx", tmp_path / "wrong.onnx")["problems"]
    assert "which" in [problem["culprit"]["node"] for problem in problems], problems


def test_models_that_cannot_be_a_pair_are_a_mistake_of_the_user(runner):
    other = fake_quantized(WEIGHTS, STEPS)
    other.graph.output[0].name = "z"
    with pytest.raises(UserError, match="different outputs: y in the float model, z in the quantized one"):
        audit.audit(FLOAT, other, [FEED], runner)
    with pytest.raises(UserError, match="nothing is quantized"):
        audit.audit(FLOAT, FLOAT, [FEED], runner)
    with pytest.raises(UserError, match="are they in the right order"):
        audit.audit(fake_quantized(WEIGHTS, STEPS), FLOAT, [FEED], runner)


def test_a_model_that_quantizers_leave_alone_because_it_stands_inside_an_if_says_so(runner):
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["double"]), helper.make_node("MatMul", ["double", "w"], ["made"])],
        "branch",
        [],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, [2, 3])],
    )
    inside = model(
        [helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)],
        flag=np.array(True),
        w=WEIGHTS,
    )
    with pytest.raises(UserError, match="nothing is quantized: 4 of 5 nodes stand inside If"):
        audit.audit(inside, inside, [FEED], runner)


@pytest.mark.parametrize(
    ("x", "said"), [(np.full((2, 4), np.nan, np.float32), "'x' holds NaN"), (np.zeros((0, 4), np.float32), "are empty")]
)
def test_inputs_of_which_nothing_can_be_told_are_a_mistake_of_the_user(runner, x, said):
    with pytest.raises(UserError, match=said):
        audit.audit(FLOAT, fake_quantized(WEIGHTS, STEPS), [{"x": x}], runner)


def relu_of_what_else_is_read(low: float, rounded: Sequence[str], readers: Sequence[str]) -> onnx.ModelProto:
    """x v, called "plain", is rounded within [`low`, 4], and that called as `rounded` says, if at all; a Relu and a Neg
    read what `readers` say, and the output is the sum of what both make, times w."""
    step = np.float32((4 - low) / 255)
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["plain"], "product"),
        *([helper.make_node("QuantizeLinear", ["plain", "s", "z"], ["q"])] if rounded else []),
        *(helper.make_node("DequantizeLinear", ["q", "s", "z"], [name]) for name in rounded),
        helper.make_node("Relu", [readers[0]], ["2"], "unit"),
        helper.make_node("Neg", [readers[1]], ["3"], "other"),
        helper.make_node("Add", ["2", "3"], ["4"]),
        helper.make_node("MatMul", ["4", "w"], ["y"]),
    ]
    scale = {"s": step, "z": np.uint8(round(-low / step))} if rounded else {}
    return model(nodes, v=np.eye(4, dtype=np.float32), w=WEIGHTS, **scale)


@pytest.mark.parametrize("alike", [False, True], ids=["made up", "like calibration"])
@pytest.mark.parametrize(
    ("low", "readers", "is_wrong"),
    [(0.0, ("1", "1"), True), (-4.0, ("1", "1"), False), (0.0, ("1", "plain"), False)],
    ids=["of the Relu", "of both signs", "which the other reads before"],
)
def test_the_range_of_a_relu_is_not_that_of_what_something_else_reads_too(runner, low, readers, is_wrong, alike):
    floating = relu_of_what_else_is_read(low, [], ("plain", "plain"))
    found = audit.audit(floating, relu_of_what_else_is_read(low, ["1"], readers), [FEED], runner, alike=alike)
    told = [problem.message for problem in found.problems if problem.where == "s"]
    assert [("the negative half is cut off" in message) for message in told] == [True] * is_wrong, found.problems
    assert found.verdict is (Word.DIVERGES if is_wrong else Word.AGREES)


def test_an_output_of_no_use_is_not_headlined_as_right(tmp_path):
    for name, proto in {"float": FLOAT, "right": fake_quantized(WEIGHTS, STEPS)}.items():
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
    result = auditing.audit(tmp_path / "float.onnx", tmp_path / "right.onnx")
    assert result["verdict"] == "agrees"
    for usable, head in {True: "agrees: 0 problems", False: "agrees, but of little use: 0 problems"}.items():
        console = Console(file=io.StringIO(), width=200)
        tables.audit(console, result | {"usable": usable})
        assert console.file.getvalue().startswith(head), console.file.getvalue()


def test_the_command_prints_its_contract_and_exits_with_0_or_1(tmp_path):
    right, wrong = fake_quantized(WEIGHTS, STEPS), fake_quantized(WEIGHTS[:, ::-1].copy(), STEPS[::-1])
    for name, proto in {"float": FLOAT, "right": right, "wrong": wrong}.items():
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
    for name, status in {"right": 0, "wrong": 1}.items():
        arguments = ["audit", str(tmp_path / "float.onnx"), str(tmp_path / f"{name}.onnx"), "--json"]
        run = CliRunner().invoke(driftnet, arguments, standalone_mode=False)
        said = json.loads(run.stdout)
        assert run.return_value == status, f"{name}: {said}"
        assert (said["verdict"] == "agrees") is (status == 0)
        assert said["made_up"] == ["x"], "nobody gave any inputs"
        lacking = [{"question", "where", "error", "bound", "message"} - problem.keys() for problem in said["problems"]]
    assert not any(lacking), f"problems of the contract lack {lacking}"


def test_an_audit_takes_the_data_sets_beside_the_pair_and_says_what_is_made_up(tmp_path):
    float_model, quantized = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    float_model.write_bytes(FLOAT.SerializeToString())
    quantized.write_bytes(fake_quantized(WEIGHTS, STEPS).SerializeToString())
    told = CliRunner().invoke(driftnet, ["audit", str(float_model), str(quantized)], standalone_mode=False).stdout
    assert "made up, give --inputs for real ones: x" in told
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    fed = np.full((2, WEIGHTS.shape[0]), 0.75, np.float32)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(fed, "x").SerializeToString())
    given = auditing.audit(float_model, quantized)
    assert (given["verdict"], given["made_up"]) == ("agrees", [])


@pytest.mark.parametrize("scale", [0.0, np.nan])
def test_a_scale_that_is_not_positive_is_named_in_json_that_everybody_reads(tmp_path, scale):
    wrong = fake_quantized(WEIGHTS, STEPS)
    stored = next(t for t in wrong.graph.initializer if t.name == "xs")
    stored.CopyFrom(numpy_helper.from_array(np.float32(scale), "xs"))
    (tmp_path / "float.onnx").write_bytes(FLOAT.SerializeToString())
    (tmp_path / "wrong.onnx").write_bytes(wrong.SerializeToString())
    arguments = ["audit", str(tmp_path / "float.onnx"), str(tmp_path / "wrong.onnx"), "--json"]
    run = CliRunner().invoke(driftnet, arguments, standalone_mode=False)
    said = json.loads(run.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    named = [problem["message"] for problem in said["problems"] if problem["where"] == "xs"]
    assert run.return_value == 1, f"exit status {run.return_value}; {run.exception}"
    assert len(named) == 1, said
    assert "not positive" in named[0], said


@pytest.mark.parametrize(("factor", "alike"), [(0.5, True), (4.0, True), (8.0, False)])
def test_a_range_out_of_proportion_is_wrong_and_far_out_of_it_for_any_inputs(runner, factor, alike):
    case = production.SMALL["dual_path_rnn"]()
    right = production.quantized(case).proto
    wrong = onnx.ModelProto()
    wrong.CopyFrom(right)
    rounding = next(n for n in wrong.graph.node if "/separator/norm/Mul_output_0" in n.input)
    scale = next(t for t in wrong.graph.initializer if t.name == rounding.input[1])
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(factor), scale.name))
    assert audit.audit(case.proto, right, case.calibration, runner, alike=alike).verdict is Word.AGREES
    found = audit.audit(case.proto, wrong, case.calibration, runner, alike=alike)
    assert scale.name in [problem.where for problem in found.problems], f"{scale.name} is {factor} times what it was"


@pytest.mark.parametrize(("tensor", "factor"), [("y", 2.0), ("r1", 1.5), ("r3", 0.6)])
def test_on_the_data_of_calibration_a_scale_is_named_however_small_its_tensor_is(runner, tensor, factor):
    rng, sizes = np.random.default_rng(4), (6, 8, 8, 8, 4)
    nodes, constants, name = [], {}, "x"
    for k, shape in enumerate(pairwise(sizes)):
        made, result = f"m{k}", "y" if k == 3 else f"r{k + 1}"
        nodes.append(helper.make_node("MatMul", [name, f"w{k}"], [result if k == 3 else made], name=made))
        nodes += [helper.make_node("Relu", [made], [result], name=result)] * (k < 3)
        constants, name = constants | {f"w{k}": rng.normal(0, 0.5, shape).astype(np.float32)}, result
    feeds = tuple({"x": rng.normal(size=(1, 6)).astype(np.float32)} for _ in range(4))
    model = models_case(nodes, feeds[0], constants, outputs=[("y", TensorProto.FLOAT, (1, 4))]).model
    case = Case(model, feeds, feeds)
    quantized = production.quantized(case).proto
    assert audit.audit(case.proto, quantized, feeds, runner, alike=True).verdict is Word.AGREES
    scale = next(t for t in quantized.graph.initializer if t.name == f"{tensor}_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(factor), scale.name))
    found = audit.audit(case.proto, quantized, feeds, runner, alike=True)
    assert [problem.where for problem in found.problems] == [scale.name]


def test_what_preprocessing_folds_and_inlines_is_compared_after_it(runner):
    """onnxruntime's own quant_pre_process folds BatchNormalization, and makes HardSigmoid and Mul of HardSwish."""
    rng = np.random.default_rng(2)
    nodes, constants, name = [], {}, "x"
    for k in range(3):
        parts = {part: f"{part}{k}" for part in ("c", "b", "s", "h", "m", "v", "w")}
        nodes += [
            helper.make_node("Conv", [name, parts["w"]], [parts["c"]], name=parts["c"], pads=[1] * 4),
            helper.make_node("BatchNormalization", [parts[p] for p in "cshmv"], [parts["b"]], name=parts["b"]),
            helper.make_node("HardSwish", [parts["b"]], ["y" if k == 2 else f"t{k}"], name=f"t{k}"),
        ]
        name = f"t{k}"
        constants |= {parts["w"]: rng.normal(0, 0.2, (6, 6, 3, 3)).astype(np.float32)}
        constants |= {parts[p]: rng.normal(size=6).astype(np.float32) for p in "shm"}
        constants |= {parts["v"]: rng.uniform(0.5, 2, 6).astype(np.float32)}
    feeds = tuple({"x": rng.normal(size=(1, 6, 9, 9)).astype(np.float32)} for _ in range(2))
    floating = models_case(nodes, feeds[0], constants, outputs=[("y", TensorProto.FLOAT, (1, 6, 9, 9))])
    case = Case(floating.model, feeds)
    seen = runner.observe(case, onnx_engine(), {"preprocess": True, "types": "u8s8"})
    quantized = onnx.ModelProto.FromString(seen.artifact.model)
    found = audit.audit(case.proto, quantized, feeds, runner, alike=True)
    assert (found.verdict, found.preprocessed, found.vouched) == (Word.AGREES, True, 1.0), found
    for tensor in quantized.graph.initializer:
        if tensor.name.endswith("_scale") and "w1" in tensor.name:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.3), tensor.name))
    damaged = audit.audit(case.proto, quantized, feeds, runner, alike=True)
    assert damaged.verdict is Word.DIVERGES, "a weight's scale of 1.3 times what it should be is not seen"


def test_a_range_that_alone_cuts_its_data_off_is_named_however_much_wider_others_are():
    """Two samples of those of calibration may need a half of some ranges, and all of others."""
    names, data = [f"t{k}" for k in range(8)], np.linspace(-1, 1, 500)
    wide = [Proportion(None, name, k / 8, (-1.0, 1.0), (-1.0, 1.0)) for k, name in enumerate(names[1:])]
    cut = Proportion(None, "t0", -0.6, (-0.66, 0.66), (-1.0, 1.0))
    graph = graphs.read(model([helper.make_node("Relu", [a], [b]) for a, b in zip(["x", *names], [*names, "y"])]))
    for rows, accused in (([cut, *wide], ["t0"]), (wide, [])):
        found = [row.name for row, *_ in outliers(graph, rows, [dict.fromkeys(names, data)], alike=True)]
        assert found == accused


def test_where_an_artifact_ends_the_node_is_named_and_what_was_wrong_before_it(runner):
    """An Add of two shapes that do not fit ends it; before it a Relu was taken away."""
    right = fake_quantized(WEIGHTS, STEPS)
    right.graph.node[-1].output[0] = "6"
    ended = helper.make_node("Add", ["6", "five"], ["y"], "ended")
    right.graph.node.append(ended)
    right.graph.initializer.append(numpy_helper.from_array(np.ones((5, 5), np.float32), "five"))
    right.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHTS, "w"))
    found = audit.audit(FLOAT, right, [FEED], runner)
    assert {(p.question, p.where) for p in found.problems} >= {("execution", "ended"), ("parameter", "w")}, found


def test_what_is_multiplied_between_two_nodes_is_named_where_a_norm_was_folded(runner):
    """The name of a tensor behind it is all that a Conv whose norm was folded leaves to tell it by."""
    rng = np.random.default_rng(6)
    weight, scale, shift = (rng.normal(size=s).astype(np.float32) for s in ((3, 2, 1, 1), 3, 3))
    values = [("x", [1, 2, 4, 4]), ("y", [1, 3, 4, 4])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values]

    def made(nodes: list[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
        held = [numpy_helper.from_array(np.asarray(x, np.float32), name) for name, x in constants.items()]
        held.append(numpy_helper.from_array(np.zeros(3, np.int8), "z"))
        graph = helper.make_graph(nodes, "graph", infos[:1], infos[1:], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)

    norm = helper.make_node("BatchNormalization", ["c", "s", "h", "m", "v"], ["y"], "norm")
    first = helper.make_node("Relu", ["x"], ["r"], "relu")
    norms = {"s": scale, "h": shift, "m": np.zeros(3), "v": np.ones(3) - 1e-5}
    floating = made([first, helper.make_node("Conv", ["r", "w"], ["c"], "conv"), norm], w=weight, **norms)
    folded = weight * scale[:, None, None, None]
    steps = np.abs(folded).max((1, 2, 3)) / 127
    codes = numpy_helper.from_array(np.rint(folded / steps[:, None, None, None]).astype(np.int8), "q")
    back = helper.make_node("DequantizeLinear", ["q", "step", "z"], ["d"], axis=0)
    conv = helper.make_node("Conv", ["r", "d", "h"], ["y"], "conv")

    def quantized(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
        whole = made([back, *nodes, conv], step=steps, h=shift, f=np.float32(1.5))
        whole.graph.initializer.append(codes)
        return whole

    feed = {"x": rng.normal(size=(1, 2, 4, 4)).astype(np.float32)}
    assert audit.audit(floating, quantized([first]), [feed], runner).verdict is Word.AGREES
    between = [helper.make_node("Relu", ["x"], ["b"], "relu"), helper.make_node("Mul", ["b", "f"], ["r"], "more")]
    found = audit.audit(floating, quantized(between), [feed], runner)
    assert [(p.question, p.where) for p in found.problems] == [("topology", "more")], found


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Word.AGREES), (100.0, Word.DIVERGES)])
def test_a_wrong_constant_that_no_output_feels_is_a_note(runner, factor, verdict):
    """An epsilon that is nothing beside what it is added to is rounded to 0."""
    sums = [helper.make_node("MatMul", ["x", "w"], ["5"]), helper.make_node("Add", ["5", "tiny"], ["y"], "sum")]
    floating = model(sums, w=WEIGHTS, tiny=np.float32(1e-9 * factor**4))
    pairs = [
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["2"], axis=1),
        helper.make_node("DequantizeLinear", ["zero", "one", "zero"], ["tiny_back"]),
    ]
    more = {"wq": CODES, "ws": STEPS.astype(np.float32), "wz": np.zeros(3, np.int8)}
    more |= {"zero": np.int8(0), "one": np.float32(1)}
    products = [
        helper.make_node("MatMul", ["x", "2"], ["5"]),
        helper.make_node("Add", ["5", "tiny_back"], ["y"], "sum"),
    ]
    found = audit.audit(floating, model([*pairs, *products], **more), [FEED], runner)
    assert found.verdict is verdict, found
    assert [p.where for p in (found.notes if verdict is Word.AGREES else found.problems)] == ["tiny"]


@pytest.mark.parametrize(("of_calibration", "accused"), [(True, []), (False, ["t0"])])
def test_a_range_that_is_exactly_that_of_the_data_is_not_out_of_proportion(of_calibration, accused):
    """Where calibration clips, the one tensor that it did not clip is not eight times too wide."""
    names, wide, clipped = [f"t{k}" for k in range(12)], (-8.0, 8.0), (-1.0, 1.0)
    data = np.linspace(*wide, 5000)
    rows = [
        Proportion(None, name, 0.0 if name == "t0" else -3.0, wide if name == "t0" else clipped, wide, of_calibration)
        for name in names
    ]
    graph = graphs.read(model([helper.make_node("Relu", [a], [b]) for a, b in zip(["x", *names], [*names, "y"])]))
    records = [dict.fromkeys(names, data)]
    found = [row.name for row, *_ in outliers(graph, rows, records, alike=True)]
    assert found == accused
