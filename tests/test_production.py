"""The models that stand for production are valid, run, and hold what they are meant to hold."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from driftnet.model.inspect import nodes, validate_feed

from tests.support import production

HOLDS = {
    "unet": {"Conv": 20, "InstanceNormalization": 15, "Softmax": 3, "Resize": 2, "Cos": 1, "Unsqueeze": 8},
    "dual_path_rnn": {"LSTM": 4, "InstanceNormalization": 5, "ConvTranspose": 1, "Pad": 1},
    "speech_enhancer": {"ConvTranspose": 4, "BatchNormalization": 12, "GRU": 8, "Split": 6},
    "mobilenet_v2": {"Conv": 52, "Clip": 35, "GlobalAveragePool": 1, "Gemm": 1},
    "transformer": {"Gather": 2, "Erf": 2, "Softmax": 2, "ReduceMean": 10},
}


def run(case, feed):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(case.model, settings).run(None, dict(feed))


@pytest.mark.parametrize("name", production.SMALL)
def test_a_production_model_is_valid_and_its_outputs_are_as_declared(name):
    case = production.SMALL[name]()
    onnx.checker.check_model(case.model, full_check=True)
    for feed in (*case.feeds, *case.calibration):
        validate_feed(case.proto, feed, "a feed")
    for value, x in zip(case.proto.graph.output, run(case, case.feeds[0]), strict=True):
        declared = [d.dim_value for d in value.type.tensor_type.shape.dim]
        assert all(n in (0, m) for n, m in zip(declared, x.shape, strict=True)), f"{name}: {value.name} is {x.shape}"
        assert np.isfinite(x).all(), f"{name}: {value.name} is not finite"
        assert 1e-3 < x.std() < 1e3, f"{name}: {value.name} says nothing"


@pytest.mark.parametrize("name", production.SMALL)
def test_another_feed_gives_another_result(name):
    case = production.SMALL[name]()
    results = (run(case, feed) for feed in (case.feeds[0], case.calibration[0]))
    for value, one, other in zip(case.proto.graph.output, *results, strict=True):
        assert np.std(one - other) > 0.05 * np.std(one), f"{name}: {value.name} hardly depends on what is fed"


@pytest.mark.parametrize("name", production.SMALL)
def test_a_production_model_holds_the_operators_of_its_architecture(name):
    case = production.SMALL[name]()
    counts = Counter(node.op_type for node in case.proto.graph.node)
    assert {op: n for op, n in HOLDS[name].items() if counts[op] < n} == {}, f"{name} lacks some: {counts}"
    names = [node.name for node in case.proto.graph.node]
    assert len({*names}) == len(names), f"{name}: two nodes have one name"


def test_the_same_arguments_give_the_same_bytes():
    assert production.SMALL["transformer"]().model == production.SMALL["transformer"]().model


def test_the_full_models_have_the_size_of_production():
    assert nodes(production.unet()) >= 200
    assert nodes(production.dual_path_rnn()) >= 100
    assert nodes(production.speech_enhancer()) >= 250
    mobilenet = production.mobilenet_v2()
    assert sum(np.prod(t.dims) for t in mobilenet.proto.graph.initializer) == pytest.approx(3.5e6, rel=0.02)


def test_every_output_depends_on_every_state_of_the_speech_enhancer_or_on_its_spectrum():
    case = production.SMALL["speech_enhancer"]()
    before = run(case, case.feeds[0])
    for name, x in case.feeds[0].items():
        after = run(case, {**case.feeds[0], name: x + 1})
        assert any((a != b).any() for a, b in zip(before, after, strict=True)), f"nothing depends on {name}"


def test_a_sequence_of_another_length_runs_through_the_transformer():
    case = production.SMALL["transformer"]()
    (logits,) = run(case, {"ids": np.zeros((1, 3), np.int64)})
    assert logits.shape == (1, 3, 32)


@pytest.mark.parametrize("qdq", [True, False], ids=["QDQ", "QOperator"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "transformer"])
def test_a_quantized_production_model_is_quantized_and_runs(name, qdq):
    case = production.SMALL[name]()
    quantized = production.quantized(case, qdq=qdq)
    assert "QuantizeLinear" in {node.op_type for node in quantized.proto.graph.node}
    assert any(node.op_type.startswith("QLinear") for node in quantized.proto.graph.node) != qdq
    (exact,), (rough,) = run(case, case.feeds[0]), run(quantized, case.feeds[0])
    assert np.corrcoef(exact.ravel(), rough.ravel())[0, 1] > 0.8, f"{name} is something else when quantized"
