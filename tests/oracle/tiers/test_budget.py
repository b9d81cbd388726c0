"""D4, the budget: what sampled quantization noise explains is right, what it does not is wrong."""

import dataclasses
from copy import deepcopy

import numpy as np
import pytest
from driftnet.model.case import Case
from driftnet.model.verdict import Kind, Word
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import noise
from driftnet.oracle.scheme.calibration import Step, steps, told
from driftnet.oracle.tiers import budget
from driftnet.oracle.tolerances.table import SCORE
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Scheme
from driftnet.targets.recipe import effective
from onnx import TensorProto, helper

from tests.support import oracle
from tests.support.models import case

FLOAT = TensorProto.FLOAT
S8S8 = Scheme((-127, 127), (-128, 127))
CLIPS = dataclasses.replace(S8S8, clips=True)


def network(*, last: str = "Identity") -> Case:
    """Gemm, Relu, Gemm and one more operator: 16 rows of 12 numbers to 16 rows of 6."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2"], ["z"]),
        helper.make_node(last, ["z"], ["y"]),
    ]
    shapes = {"w1": (12, 10), "b1": (10,), "w2": (10, 6)}
    constants = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    element, dims = (TensorProto.INT64, (1, 6)) if last == "ArgMax" else (FLOAT, (16, 6))
    x = rng.normal(size=(16, 12)).astype(np.float32)
    return case(nodes, {"x": x}, constants, outputs=[("y", element, dims)])


def quantized(model: Case, scheme: Scheme = S8S8, damage: float = 0.0) -> dict[str, np.ndarray]:
    """What a right quantizer makes of `network`, but for a step of h that is off by the share `damage`."""

    def rounded(x: np.ndarray, codes: tuple[int, int], like: np.ndarray, wrong: float = 0.0) -> np.ndarray:
        low, high = min(like.min(), 0.0), max(like.max(), 0.0)
        scale = (high - low) / (codes[1] - codes[0])
        zero = np.rint(codes[0] - low / scale)
        return (np.clip(np.rint(x / scale) + zero, *codes) - zero) * scale * (1 + wrong)

    w1, b1, w2 = (noise_free(model, name) for name in ("w1", "b1", "w2"))
    calibration = (model.calibration or model.feeds)[0]["x"].astype(np.float64)
    x, codes = model.feeds[0]["x"].astype(np.float64), scheme.activation_codes
    h = np.maximum(calibration @ w1 + b1, 0)
    w1, w2 = (np.rint(w / np.abs(w).max() * 127) / 127 * np.abs(w).max() for w in (w1, w2))
    hidden = rounded(np.maximum(rounded(x, codes, calibration) @ w1 + b1, 0), codes, h, damage)
    return {"y": rounded(hidden @ w2, codes, h @ w2).astype(np.float32)}


def noise_free(model: Case, name: str) -> np.ndarray:
    """A constant in float64."""
    return Question(model, (), (), None).graph.constants[name].astype(np.float64)


def asked(runner, model, outputs, scheme=S8S8, artifact=None):
    """The budget's verdict on the only place."""
    question = Question(
        model, (outputs,), runner.reference.run(model).outputs, runner.reference, scheme, artifact=oracle.told(artifact)
    )
    ((_, said),) = budget.decide(question, question.places).items()
    return said


def test_a_right_quantizer_is_within_its_budget(runner):
    said = asked(runner, network(), quantized(network()))
    assert (said.word, said.tier) == (Word.AGREES, "budget"), said.message
    assert 0.1 < said.error < SCORE / 2 < said.bound == SCORE


def test_a_step_that_is_a_tenth_off_is_seen_by_the_slope(runner):
    said = asked(runner, network(), quantized(network(), damage=0.1))
    assert (said.word, said.kind, said.stage) == (Word.DIVERGES, Kind.WRONG_VALUES, "execute")
    assert said.error > said.bound
    assert "slope" in said.message


def test_half_a_step_needs_no_samples(runner, monkeypatch):
    monkeypatch.setattr(budget, "sampled", None)
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, S8S8)
    right, step = question.expected[0]["y"], steps(question, S8S8)["y"].scale
    said = asked(runner, model, {"y": right + np.float32(0.49 * step)})
    assert (said.word, said.error, said.bound) == (Word.AGREES, 0, 0)


def test_samples_are_the_same_however_many_run_at_once(runner, monkeypatch):
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, S8S8)
    together = noise.sampled(noise.of_scheme(question, S8S8), question, range(5))
    monkeypatch.setattr(noise, "MOST_AT_ONCE", 1)
    apart = noise.sampled(noise.of_scheme(question, S8S8), question, range(5))
    assert [run["y"].tobytes() for (run,) in apart] == [run["y"].tobytes() for (run,) in together]
    assert len(apart) == 5


def test_only_weights_quantized_means_only_weights_are_noisy(runner):
    scheme = Scheme((-8, 7), symmetric_weights=False, per_channel=True)
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, scheme)
    assert not noise.of_scheme(question, scheme).activations
    right, worst = question.expected[0]["y"], np.abs(question.expected[0]["y"]).max()
    assert asked(runner, model, {"y": right + np.float32(0.01 * worst)}, scheme).word is Word.AGREES
    assert asked(runner, model, {"y": right * np.float32(2)}, scheme).word is Word.DIVERGES


def test_what_calibration_clips_is_no_fault(runner):
    model = network()
    narrow = dataclasses.replace(model, calibration=({"x": model.feeds[0]["x"] / 3},))
    clipped = quantized(narrow)
    assert asked(runner, narrow, clipped).word is Word.AGREES, "a feed leaves the calibrated range"
    assert asked(runner, model, clipped, CLIPS).word is Word.AGREES, "calibration may have chosen this range"
    assert asked(runner, model, clipped).word is Word.DIVERGES, "nothing says that there was anything to clip"


def test_of_a_tensor_that_was_zero_in_calibration_nobody_knows_the_step(runner):
    model = network()
    blind = dataclasses.replace(model, calibration=({"x": np.zeros_like(model.feeds[0]["x"])},))
    assert asked(runner, blind, quantized(model, damage=0.5)).word is Word.ABSTAINS


def test_a_range_that_the_artifact_tells_is_the_one_that_counts(runner):
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, CLIPS)
    formula = steps(question, CLIPS)
    kept = {name: tensor(step) for name, step in formula.items()}
    narrow = dataclasses.replace(model, calibration=({"x": model.feeds[0]["x"] / 3},))
    clipped = quantized(narrow)
    assert asked(runner, model, clipped, CLIPS, {"tensors": kept}).word is Word.DIVERGES, (
        "it says that nothing is clipped"
    )
    absurd = {name: tensor(step, 0.01) for name, step in formula.items()}
    mostly = {name: x * np.float32(0.01) for name, x in quantized(model).items()}
    assert asked(runner, model, mostly, S8S8, {"tensors": absurd}).word is Word.DIVERGES, "no calibration clips so much"


def test_copies_of_a_tensor_in_another_layout_may_be_clipped_by_themselves(runner):
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, CLIPS)
    formula = steps(question, CLIPS)
    tensors = {"x": tensor(formula["x"]), "turned": tensor(formula["x"], 0.5), "other": tensor(formula["x"])}
    moves = {"name": "turned", "inputs": ["x"], "outputs": ["turned"], "runs": "moves"}
    said = oracle.told({"tensors": tensors, "operations": [moves]})
    found = told(dataclasses.replace(question, artifact=said), formula)
    assert [step.scale / formula["x"].scale for step in found.pop("x")] == pytest.approx([1, 0.5])
    assert not found


def test_what_rests_on_a_tensor_of_which_no_step_is_told_is_not_accused(runner):
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, CLIPS)
    tensors = {name: tensor(step) for name, step in steps(question, CLIPS).items()}
    wrong = {name: x + 1 for name, x in quantized(model).items()}
    assert asked(runner, model, wrong, CLIPS, {"tensors": tensors}).word is Word.DIVERGES
    tensors["h"]["scale"] = 0.0
    assert asked(runner, model, wrong, CLIPS, {"tensors": tensors}).word is Word.ABSTAINS
    right = asked(runner, model, quantized(model), CLIPS, {"tensors": tensors})
    assert right.word is Word.AGREES, "it is as the noise of all others explains"


def tensor(step: Step, narrowed: float = 1.0) -> dict[str, float]:
    """What an artifact tells of a tensor with s8 codes, its range narrowed."""
    return {
        "scale": step.scale * narrowed,
        "zero_point": float(np.rint(-128 - step.low / step.scale)),
        "low": -128,
        "high": 127,
    }


def test_a_decision_that_noise_flips_is_nobodys_fault(runner):
    model = network(last="ArgMax")
    right = runner.reference.run(model).outputs[0]["y"]
    assert asked(runner, model, {"y": (right + 1) % 16}).word is Word.ABSTAINS


def test_behind_a_decision_nobody_is_accused(runner):
    model = network(last="Ceil")
    right = runner.reference.run(model).outputs[0]["y"]
    said = asked(runner, model, {"y": right * 3})
    assert (said.word, said.abstained) == (Word.ABSTAINS, ("Ceil", "Gemm", "Relu"))


def test_behind_a_cast_to_the_type_of_another_tensor_nobody_is_accused(runner):
    made = network()
    proto = made.proto.__class__.FromString(made.model)
    proto.graph.node[-1].output[0] = "i"
    proto.graph.node.append(helper.make_node("CastLike", ["i", "like"], ["c"]))
    proto.graph.node.append(helper.make_node("CastLike", ["c", "i"], ["y"]))
    proto.graph.initializer.append(helper.make_tensor("like", TensorProto.INT32, [1], [0]))
    model = dataclasses.replace(made, model=proto.SerializeToString())
    said = asked(runner, model, {"y": runner.reference.run(model).outputs[0]["y"] * 3})
    assert (said.word, said.abstained) == (Word.ABSTAINS, ("CastLike", "Gemm", "Identity", "Relu"))


@pytest.mark.parametrize(("size", "word"), [(1e-3, Word.DIVERGES), (1e-6, Word.ABSTAINS)])
def test_behind_a_number_with_few_digits_left_nobody_is_accused(runner, size, word):
    nodes = [helper.make_node("Mul", ["x", "s"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    constants = {"s": np.float16(size), "w": np.full((4, 4), -0.4, np.float16)}
    x = np.linspace(0.5, 1, 4, dtype=np.float16).reshape(1, 4)
    model = case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT16, (1, 4))])
    right = runner.reference.run(model).outputs[0]["y"]
    assert asked(runner, model, {"y": right * np.float16(2)}).word is word


def test_noise_that_drowns_the_result_leaves_nothing_to_judge(runner):
    model = network(last="Sign")
    zero = dataclasses.replace(model, feeds=({"x": model.feeds[0]["x"] * 0},), calibration=model.feeds)
    right = runner.reference.run(zero).outputs[0]["y"]
    said = asked(runner, zero, {"y": right + 9})
    assert said.word is Word.ABSTAINS


@pytest.mark.parametrize("format", ["QDQ", "QOperator"])
def test_onnxruntimes_quantizer_is_within_its_budget_unless_it_loses_a_bias(runner, format):
    real, recipe = resolve("onnxruntime-quant"), {"format": format, "types": "u8s8"}
    model = network()
    lossy = model.proto.__class__.FromString(model.model)
    del lossy.graph.node[0].input[2:]
    for given, word in (
        (model, Word.AGREES),
        (dataclasses.replace(model, model=lossy.SerializeToString()), Word.DIVERGES),
    ):
        outputs = runner.observe(given, real, recipe).outputs[0]
        assert asked(runner, model, outputs, real.target.scheme(effective(real.target, recipe))).word is word


def test_noise_is_the_same_whenever_it_is_drawn(runner):
    model = network()
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, CLIPS)
    drawn = noise.of_scheme(question, CLIPS)
    first, second = noise.sampled(drawn, question, range(4)), noise.sampled(drawn, question, range(2, 4))
    for a, b in zip(first[2:], second, strict=True):
        assert np.array_equal(a[0]["y"], b[0]["y"])


@pytest.mark.parametrize("scheme", [S8S8, CLIPS], ids=["covers", "clips"])
def test_noise_is_made_of_operators_that_the_models_opset_has(runner, scheme):
    """There is no Round before opset 11, no Where before 9, no Max that broadcasts before 8."""
    models = {opset: dataclasses.replace(network(), model=in_opset(network(), opset)) for opset in (7, 8, 10, 17)}
    drawn = {}
    for opset, model in models.items():
        question = Question(model, (), runner.reference.run(model).outputs, runner.reference, scheme)
        runs = noise.sampled(noise.of_scheme(question, scheme), question, range(6))
        drawn[opset] = [run["y"] for (run,) in runs]
    step = steps(question, scheme)["y"].scale
    assert [len(runs) for runs in drawn.values()] == [6, 6, 6, 6], "each of them runs"
    for opset, runs in drawn.items():
        assert np.allclose(runs, drawn[17], atol=1e-4 * step), f"noise of opset {opset} is that of opset 17"


def in_opset(given: Case, opset: int) -> bytes:
    """`network` of operators that are the same in all of these: the second Gemm has no bias, which opset 11 allowed."""
    model = deepcopy(given.proto)
    model.graph.node[2].op_type = "MatMul"
    model.opset_import[0].version = opset
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_noise_of_an_old_opset_is_of_the_models_own_dtype(runner, dtype, opset):
    x, w = np.linspace(-1, 1, 8, dtype=dtype).reshape(2, 4), np.eye(4, dtype=dtype)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = case([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", element, (2, 4))])
    old = deepcopy(made.proto)
    old.opset_import[0].version = opset
    model = dataclasses.replace(made, model=old.SerializeToString(), calibration=({"x": x / 2},))
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, CLIPS)
    runs = noise.sampled(noise.of_scheme(question, CLIPS), question, range(2))
    assert [run["y"].dtype for (run,) in runs] == [dtype, dtype], "each of them runs"
    assert all(0 < np.abs(run["y"] - x).max() < 1 for (run,) in runs), "it is noise, and clips at most at half of x"


@pytest.mark.parametrize("elements", [1, 60, 64])
def test_what_is_not_finite_is_not_passed_over(runner, elements):
    """Behind an operator with a pole structure says nothing of it."""
    x = np.linspace(1, 4, 64, dtype=np.float32)
    model = case([helper.make_node("Sqrt", ["x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, (64,))])
    said = asked(runner, model, {"y": np.where(np.arange(64) < elements, np.nan, np.sqrt(x)).astype(np.float32)})
    assert (said.word, said.abstained) == (Word.ABSTAINS, ("Sqrt",))
