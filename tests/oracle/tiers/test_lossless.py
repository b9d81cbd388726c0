"""T1q: on the integer grid quantizing is the identity, and a quantizer has half a step to be right in."""

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from driftnet.findings.trial import Trial, look
from driftnet.model import graph
from driftnet.model.case import Case
from driftnet.model.verdict import Kind, Word
from driftnet.on_grid.construct import construct
from driftnet.oracle.exemptions import saturation
from driftnet.oracle.judge import judge
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import calibration, formulas
from driftnet.oracle.tiers import lossless
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Rule, Scheme
from driftnet.targets.recipe import effective
from onnx import TensorProto, helper, numpy_helper

from tests.support import oracle
from tests.support.models import case
from tests.support.oracle import observed, target, verdict

FLOAT = TensorProto.FLOAT
SCHEMES = {
    "s8s8": Scheme((-127, 127), (-128, 127)),
    "u8s8": Scheme((-127, 127), (0, 255)),
    "u8s8 per channel": Scheme((-127, 127), (0, 255), per_channel=True),
    "u8u8": Scheme((0, 255), (0, 255), symmetric_weights=False),
    "s8s8 symmetric": Scheme((-127, 127), (-127, 127), symmetric_activations=True),
    "u8s8 reduced range": Scheme((-64, 64), (0, 255)),
}
WEIGHT_ONLY = {
    "8 bits": Scheme((-128, 127), symmetric_weights=False, per_channel=True),
    "4 bits": Scheme((-8, 7), symmetric_weights=False, per_channel=True),
    "8 bits symmetric": Scheme((-127, 127), per_channel=True),
}


def product(*, bias: bool = True, terms: int = 24) -> Case:
    """One Gemm: 5 rows, 4 outputs."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(terms, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
    names = ["x", "w", "b"][: 2 + bias]
    x = rng.normal(size=(5, terms)).astype(np.float32)
    return case([helper.make_node("Gemm", names, ["y"])], {"x": x}, constants, outputs=[("y", FLOAT, (5, 4))])


@dataclass
class Quantized:
    """A Gemm in integers, as a quantizer would make it; tests damage its fields."""

    x_scale: float
    x_zero: int
    w: np.ndarray
    w_scale: np.ndarray
    w_zero: int
    bias: np.ndarray
    y_scale: float
    y_zero: int
    codes: tuple[int, int]
    rounded: Callable[[np.ndarray], np.ndarray] = np.rint
    misread: int = 0  # added to the zero point where it is taken away again

    @staticmethod
    def of(model: Case, scheme: Scheme) -> "Quantized":
        """By the formulas of `scheme`, written down once more, for calibration on the feed."""
        constants = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.proto.graph.initializer}
        x = model.feeds[0]["x"].astype(np.float64)
        y = x @ constants["w"] + constants["b"]
        x_scale, x_zero = parameters(x, scheme.activation_codes, scheme.symmetric_activations)
        y_scale, y_zero = parameters(y, scheme.activation_codes, scheme.symmetric_activations)
        columns = constants["w"].T if scheme.per_channel else [constants["w"]]
        w_scale, w_zero = np.transpose([parameters(c, scheme.weight_codes, scheme.symmetric_weights) for c in columns])
        w = np.rint(constants["w"] / w_scale) + w_zero[0]
        bias = np.rint(constants["b"] / (x_scale * w_scale))
        return Quantized(x_scale, x_zero, w, w_scale, w_zero[0], bias, y_scale, y_zero, scheme.activation_codes)

    def run(self, x: np.ndarray) -> np.ndarray:
        """The dequantized result."""
        q = np.clip(np.rint(x.astype(np.float64) / self.x_scale) + self.x_zero, *self.codes)
        total = (q - self.x_zero - self.misread) @ (self.w - self.w_zero) + self.bias
        y = self.rounded(total * self.x_scale * self.w_scale / self.y_scale) + self.y_zero
        return ((np.clip(y, *self.codes) - self.y_zero) * self.y_scale).astype(np.float32)


def parameters(x, codes, symmetric):
    """(scale, zero point) of data `x`."""
    if symmetric:
        return np.abs(x).max() / codes[1], 0
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / (codes[1] - codes[0])
    return scale, int(np.rint(codes[0] - low / scale))


def put(scheme, seed=0, model=None):
    """A case on the formulas."""
    constructed = construct(model or product(), scheme, seed)
    assert constructed is not None
    return constructed


def rich(scheme, seed=0, model=None):
    """A case on the grid whose weights are anywhere among the codes, and results between two of theirs."""
    for trial in range(100):
        constructed = construct(model or product(), scheme, 100 * seed + trial)
        if constructed and len(np.unique(np.abs(weights(constructed)))) > 5:
            return constructed
    raise AssertionError("no rich weights among a hundred cases")


def weights(model):
    """The constant weights of a case with one Gemm."""
    (gemm,) = (node for node in model.proto.graph.node if node.op_type in ("Gemm", "MatMul"))
    return next(numpy_helper.to_array(t) for t in model.proto.graph.initializer if t.name == gemm.input[1])


def lossless_says(runner, model, outputs, scheme, artifact=None):
    """What the tier says of the only place, asked alone."""
    expected = runner.reference.run(model).outputs
    question = Question(model, (outputs,), expected, runner.reference, scheme, artifact=oracle.told(artifact))
    ((_, said),) = lossless.decide(question, question.places).items()
    return said


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_right_quantizer_agrees(runner, scheme):
    for seed in range(8):
        model = put(scheme, seed)
        y = Quantized.of(model, scheme).run(model.feeds[0]["x"])
        said = lossless_says(runner, model, {"y": y}, scheme)
        assert said.word is Word.AGREES, f"seed {seed}: {said.message}"
        assert said.error <= said.bound


DAMAGES = {
    "zero point of the input + 1": lambda q: dataclasses.replace(q, misread=1),
    "zero point of the output + 1": lambda q: Shifted(**vars(q)),
    "weights truncated": lambda q: dataclasses.replace(q, w=q.w - (q.w > q.w_zero)),
    "weights one code off": lambda q: dataclasses.replace(q, w=q.w + 1),
    "bias lost": lambda q: dataclasses.replace(q, bias=q.bias * 0),
    "bias by a stale scale": lambda q: dataclasses.replace(q, bias=q.bias * 2),
    "floor for round": lambda q: dataclasses.replace(q, rounded=np.floor),
    "truncation for round": lambda q: dataclasses.replace(q, rounded=np.trunc),
    "range cut by a tenth": lambda q: dataclasses.replace(q, y_scale=q.y_scale * 0.9),
    "scale of the weights 2 % off": lambda q: dataclasses.replace(q, w_scale=q.w_scale * 1.02),
}


class Shifted(Quantized):
    """Adds its zero point when it quantizes and takes away one less when it dequantizes."""

    def run(self, x):
        return (super().run(x) + np.float32(self.y_scale)).astype(np.float32)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_quantizer_is_seen(runner, damage):
    unseen, changed = [], 0
    for (name, scheme), seed, data in itertools.product(SCHEMES.items(), range(2), (put, rich)):
        model = data(scheme, seed)
        quantized, x = Quantized.of(model, scheme), model.feeds[0]["x"]
        y = damage(quantized).run(x)
        if np.array_equal(y, quantized.run(x)):
            continue  # where nothing changed there is nothing to be seen
        changed += 1
        said = verdict(runner, model, {"y": y}, scheme=scheme)
        if said.word is not Word.DIVERGES:
            unseen.append(f"{name}, seed {seed}, {data.__name__}: {said.word}, error {said.error}, bound {said.bound}")
    assert changed, "no result was changed: this is no damage"
    assert unseen == [], f"{len(unseen)} of {changed} changed results should diverge, but do not"


def test_results_that_are_rounded_to_the_wrong_side_are_of_a_kind_of_their_own(runner):
    scheme, kinds = SCHEMES["s8s8"], set()
    for damage in ("floor for round", "bias lost"):
        model = rich(scheme)
        y = DAMAGES[damage](Quantized.of(model, scheme)).run(model.feeds[0]["x"])
        kinds.add((damage, lossless_says(runner, model, {"y": y}, scheme).kind))
    assert kinds == {("floor for round", Kind.OFF_BY_ONE_STEP), ("bias lost", Kind.WRONG_VALUES)}


def test_one_wrong_weight_is_seen(runner):
    model = rich(SCHEMES["u8s8"])
    quantized = Quantized.of(model, SCHEMES["u8s8"])
    quantized.w[3, 2] -= 20
    said = verdict(runner, model, {"y": quantized.run(model.feeds[0]["x"])}, scheme=SCHEMES["u8s8"])
    assert said.word is Word.DIVERGES
    assert ", 2] is " in said.message


def test_the_scale_of_another_channel_is_seen(runner):
    scheme = SCHEMES["u8s8 per channel"]
    several = [(seed, q) for seed in range(8) if len(set((q := Quantized.of(rich(scheme, seed), scheme)).w_scale)) > 1]
    assert len(several) > 3, f"only {len(several)} of 8 models have channels of several scales"
    for seed, quantized in several:
        model = rich(scheme, seed)
        quantized.w_scale = np.roll(quantized.w_scale, 1)
        y = quantized.run(model.feeds[0]["x"])
        assert verdict(runner, model, {"y": y}, scheme=scheme).word is Word.DIVERGES, f"unseen with seed {seed}"


@pytest.mark.parametrize("scheme", WEIGHT_ONLY.values(), ids=WEIGHT_ONLY)
def test_where_only_weights_are_quantized_the_result_is_right_to_their_rounding(runner, scheme):
    model = put(scheme)
    right = runner.reference.run(model).outputs[0]["y"]
    assert verdict(runner, model, {"y": right.copy()}, scheme=scheme).word is Word.AGREES
    step = np.abs(right[right != 0]).min() / 8
    said = verdict(runner, model, {"y": right + step}, scheme=scheme)
    assert (said.word, said.tier) == (Word.DIVERGES, "running-error")
    assert said.bound < step / 1000


@pytest.mark.parametrize("scheme", WEIGHT_ONLY.values(), ids=WEIGHT_ONLY)
def test_weights_are_exact_where_their_scales_are_powers_of_two(scheme):
    one_value, any_code = (graph.read(made(scheme).proto) for made in (put, rich))
    assert dict(formulas.inexact_weights(one_value, scheme)).keys() == {"w"}, "codes times 1/127, say"
    assert list(formulas.inexact_weights(any_code, scheme)) == []


@pytest.mark.parametrize("scheme", [*SCHEMES.values(), *WEIGHT_ONLY.values()], ids=[*SCHEMES, *WEIGHT_ONLY])
def test_off_the_grid_it_abstains(runner, scheme):
    model = product()
    right = runner.reference.run(model).outputs[0]["y"]
    said = lossless_says(runner, model, {"y": right * np.float32(1.05)}, scheme)
    assert (said.word, said.tier, said.abstained) == (Word.ABSTAINS, "lossless", ("Gemm",))


def test_where_calibration_may_clip_it_judges_only_if_the_artifact_tells_that_it_did_not(runner):
    clips = dataclasses.replace(SCHEMES["s8s8 symmetric"], clips=True)
    model = put(clips, 0)
    y = Quantized.of(model, clips).run(model.feeds[0]["x"])
    question = Question(model, (), runner.reference.run(model).outputs, runner.reference, clips)
    steps = calibration.steps(question, clips)
    for narrowed, judged in ((1.0, True), (1 - 1 / 4096, True), (0.9, False)):
        tensors = {
            name: {"scale": step.scale * narrowed, "zero_point": 0, "low": -127, "high": 127}
            for name, step in steps.items()
        }
        for given, right in ((y, True), (y + np.float32(steps["y"].scale), False)):
            said = lossless_says(runner, model, {"y": given}, clips, {"tensors": tensors}).word
            assert said is ((Word.AGREES if right else Word.DIVERGES) if judged else Word.ABSTAINS)
    assert lossless_says(runner, model, {"y": y}, clips).word is Word.ABSTAINS, "the artifact tells nothing"


@pytest.mark.parametrize(
    ("attributes", "bias", "apart"),
    [({}, 2, False), ({}, 1, True), ({"alpha": 2.0}, 2, True), ({"beta": 2.0}, 2, False)],
)
def test_a_converter_may_take_a_gemm_apart_because_of_its_alpha_or_a_bias_that_is_broadcast(attributes, bias, apart):
    node = graph.Node("Gemm", ("x", "w", "b"), ("y",), attributes)
    assert formulas.taken_apart(node, {"b": np.zeros(bias), "y": np.zeros((3, 2))}) is apart


@pytest.mark.parametrize(("symmetric", "word"), [(False, Word.DIVERGES), (True, Word.ABSTAINS)])
def test_no_code_stands_for_the_end_of_a_range_that_is_symmetric_for_codes_that_are_not(runner, symmetric, word):
    """onnxruntime, WeightSymmetric of uint8: of the constant 1.0 is kept 127 steps of 2/255."""
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = case([node], {"x": np.zeros(1, np.float32)}, {"w": np.ones(1, np.float32)}, outputs=[("y", FLOAT, (1,))])
    scheme = Scheme((0, 255), (0, 255), symmetric_weights=symmetric)
    assert lossless_says(runner, model, {"y": np.float32([127 * 2 / 255])}, scheme).word is word


def test_a_feed_outside_the_calibrated_range_abstains(runner):
    model = put(SCHEMES["u8s8"])
    wider = dataclasses.replace(model, feeds=({"x": model.feeds[0]["x"] * 2},), calibration=model.feeds)
    right = runner.reference.run(wider).outputs[0]["y"]
    assert lossless_says(runner, wider, {"y": right * np.float32(1.01)}, SCHEMES["u8s8"]).word is Word.ABSTAINS


def test_a_zero_point_that_moves_the_range_by_one_code_is_seen_on_sharp_data(runner):
    """Wrong in the extreme code alone: the most that half a step can show."""
    scheme, seen = SCHEMES["s8s8"], []
    for seed in range(20):
        model = rich(scheme, seed)
        quantized = Quantized.of(model, scheme)
        for moved in (-1, 1):
            quantized.x_zero += moved
            y = quantized.run(model.feeds[0]["x"])
            seen.append(verdict(runner, model, {"y": y}, scheme=scheme).failed)
            quantized.x_zero -= moved
    assert np.mean(seen) > 0.3, f"seen in {sum(seen)} of {len(seen)} cases"


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_extreme_codes_are_in_every_channel_and_feed_of_rich_data(scheme):
    for seed in range(4):
        model = rich(scheme, seed)
        q = Quantized.of(model, scheme)
        assert np.frexp(q.x_scale)[0] == 0.5
        assert set(np.frexp(q.w_scale)[0].ravel()) == {0.5}, f"scales {q.w_scale} are no powers of two"
        x = model.feeds[0]["x"] / q.x_scale + q.x_zero
        for codes, data, symmetric in [
            (scheme.activation_codes, x, scheme.symmetric_activations),
            *((scheme.weight_codes, channel, scheme.symmetric_weights) for channel in q.w.T),
        ]:
            extreme = (-np.abs(data).max(), np.abs(data).max()) if symmetric else (data.min(), data.max())
            assert extreme == ((-codes[1], codes[1]) if symmetric else codes), f"codes of seed {seed}"


def test_the_same_seed_constructs_the_same_case():
    first, second, third = (put(SCHEMES["u8s8"], seed) for seed in (1, 1, 2))
    assert first.model == second.model
    assert np.array_equal(first.feeds[0]["x"], second.feeds[0]["x"])
    assert first.model != third.model


def test_results_of_other_ranges_than_the_operands_are_held_to_steps_of_their_own(runner):
    x = np.arange(256, dtype=np.float32).reshape(4, 64)
    node = helper.make_node("Mul", ["x", "c"], ["y"])
    model = case([node], {"x": x}, {"c": np.float32(1 / 64)}, outputs=[("y", FLOAT, (4, 64))])
    y = x / np.float32(64)
    assert lossless_says(runner, model, {"y": y}, SCHEMES["u8s8"]).word is Word.AGREES
    said = lossless_says(runner, model, {"y": y + np.float32(0.25)}, SCHEMES["u8s8"])
    assert said.word is Word.DIVERGES, f"16 of its own steps, a quarter of one of the operand: {said}"


def test_a_relu_may_be_fused_or_come_after_a_rounding_of_its_own(runner):
    gemm = product(bias=False).proto
    gemm.graph.node[0].output[0] = "t"
    gemm.graph.node.append(helper.make_node("Relu", ["t"], ["y"]))
    scheme, seen = SCHEMES["s8s8"], 0
    for seed in range(6):
        model = rich(scheme, seed, dataclasses.replace(product(), model=gemm.SerializeToString()))
        x, t = model.feeds[0]["x"], runner.reference.record(model)[0]["t"].astype(np.float64)
        w = numpy_helper.to_array(model.proto.graph.initializer[0])
        assert np.array_equal(t, x.astype(np.float64) @ w)
        scale, _ = parameters(t, scheme.activation_codes, False)
        y_scale, _ = parameters(np.maximum(t, 0), scheme.activation_codes, False)
        fused = np.rint(np.maximum(t, 0) / y_scale) * y_scale
        unfused = np.rint(np.maximum(np.rint(t / scale) * scale, 0) / y_scale) * y_scale
        for y in (fused, unfused):
            given = {"t": t.astype(np.float32), "y": y.astype(np.float32)}
            assert verdict(runner, model, given, scheme=scheme).word is Word.AGREES
        floored = np.floor(np.maximum(t, 0) / y_scale) * y_scale
        given = {"t": t.astype(np.float32), "y": floored.astype(np.float32)}
        seen += verdict(runner, model, given, scheme=scheme).failed
    assert seen


def residual(*, bias: bool = True) -> Case:
    """Two branches, of Conv, BatchNormalization, Relu, Conv, and of MaxPool; then Add, Relu, Concat, Transpose."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"][: 2 + bias], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"][: 2 + bias], ["c2"]),
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("Add", ["c2", "p"], ["a"]),
        helper.make_node("Relu", ["a"], ["q"]),
        helper.make_node("Concat", ["q", "p"], ["k"], axis=1),
        helper.make_node("Transpose", ["k"], ["y"], perm=[0, 2, 3, 1]),
    ]
    rng = np.random.default_rng(0)
    constants = {name: np.ones(4, np.float32) for name in ("b1", "b2", "s", "b", "m", "v")}
    constants |= {"w1": rng.normal(size=(4, 4, 3, 3)), "w2": rng.normal(size=(4, 4, 1, 1))}
    constants = {name: x.astype(np.float32) for name, x in constants.items() if bias or name not in ("b1", "b2")}
    x = rng.normal(size=(2, 4, 5, 6)).astype(np.float32)
    shapes = {"x": ("n", 4, "h", "w")}
    outputs = [("y", FLOAT, (2, 5, 6, 8))]
    return case(nodes, {"x": x}, constants, outputs=outputs, shapes=shapes, feeds=[{"x": -x}])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_branching_graph_is_put_on_the_grid_and_every_output_is_judged(runner, scheme, bias):
    sizes = []
    for seed in range(5):
        model = put(scheme, seed, residual(bias=bias))
        run = runner.reference.run(model)
        assert run.error == ""
        question = Question(model, run.outputs, run.outputs, runner.reference, scheme)
        said = lossless.decide(question, question.places)
        assert {v.word for v in said.values()} == {Word.AGREES}, f"seed {seed}: not all is recognized as on the grid"
        sizes.append(len(question.graph.nodes))
    assert max(sizes) >= 5, f"the largest part of 9 nodes has {max(sizes)}"


def test_on_the_grid_an_intermediate_result_one_step_off_is_seen(runner):
    scheme, seen = SCHEMES["u8s8"], 0
    for seed in range(10):
        model = put(scheme, seed, residual())
        run = runner.reference.run(model)
        question = Question(model, run.outputs, run.outputs, runner.reference, scheme)
        for place in question.places:
            step = calibration.steps(question, scheme)[place[1]]
            if step.holds(run.outputs[place[0]][place[1]]):
                moved = [{name: x + np.float32(step.scale) for name, x in out.items()} for out in run.outputs]
                damaged = dataclasses.replace(question, observed=tuple(moved))
                seen += lossless.decide(damaged, [place])[place].failed
    assert seen > 10


def test_what_cannot_be_on_the_grid_is_cut_off(runner):
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Conv", ["s", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"]),
    ]
    constants = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.ones(4, np.float32)}
    x = np.ones((2, 3, 5, 7), np.float32)
    large = case(nodes, {"x": x}, constants, outputs=[("y", FLOAT, (2, 4, 5, 7))], shapes={"x": ("n", 3, "h", "w_")})
    part = put(SCHEMES["u8s8"], 0, large)
    assert [node.op_type for node in part.proto.graph.node] == ["Conv", "Relu"]
    assert part.feeds[0]["s"].shape == (2, 3, 5, 7)
    right = runner.reference.run(part)
    assert right.error == ""
    damaged = {name: y * np.float32(1.1) for name, y in right.outputs[0].items()}
    assert verdict(runner, part, damaged, scheme=SCHEMES["u8s8"]).tier == "lossless"


RECIPES = [{}, {"format": "QOperator", "types": "u8s8"}, {"quantize": "dynamic"}, {"per_channel": True}]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_onnxruntime_quantizes_graphs_on_the_grid_without_loss(runner, recipe):
    real = resolve("onnxruntime-quant")
    scheme = real.target.scheme(effective(real.target, recipe))
    for seed in range(2):
        said = look(Trial(put(scheme, seed, residual()), real, recipe, runner))
        assert said.word is Word.AGREES, said.message
        assert said.tier in ("exact", "lossless") or (said.rule == saturation.RULE and saturation.is_possible())


@pytest.mark.parametrize("damaged", ["TRUNCATES_WEIGHTS", "SHIFTS_ZERO_POINT"])
def test_a_mutant_of_the_quantizer_is_seen_in_whole_graphs(runner, damaged):
    real, planted = resolve("onnxruntime-quant"), resolve(f"tests.support.mutants:{damaged}")
    recipe = {"types": "u8s8", "optimization": "off"}
    scheme = real.target.scheme(effective(real.target, recipe))
    seen = changed = 0
    for seed in range(4):
        model = put(scheme, seed, residual())
        clean, dirty = (runner.observe(model, target, recipe).outputs for target in (real, planted))
        if any(not np.array_equal(a[name], b[name]) for a, b in zip(clean, dirty) for name in a):
            changed += 1
            seen += look(Trial(model, planted, recipe, runner)).failed
    assert seen == changed >= 2, f"{seen} of {changed} are seen"


def test_an_output_that_no_node_makes_is_not_judged(runner):
    passed = case(
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": np.ones(3, np.float32)},
        outputs=[("x", FLOAT, (3,)), ("y", FLOAT, (3,))],
    )
    wrong = {"x": np.zeros(3, np.float32), "y": np.ones(3, np.float32)}
    question = Question(passed, (wrong,), runner.reference.run(passed).outputs, runner.reference, SCHEMES["u8s8"])
    assert lossless.decide(question, [(0, "x")])[0, "x"].word is Word.ABSTAINS


def test_a_graph_without_a_fitting_operator_is_not_constructed():
    softmax = case(
        [helper.make_node("Softmax", ["x"], ["y"])], {"x": np.ones((2, 3), np.float32)}, outputs=[("y", FLOAT, (2, 3))]
    )
    assert construct(softmax, SCHEMES["u8s8"], 0) is None


def test_weights_of_a_constant_node_are_quantized_by_nobody_knows_which_formula(runner):
    model = rich(SCHEMES["s8s8"], 0, product(bias=False))
    moved = model.proto.__class__.FromString(model.model)
    weights = moved.graph.initializer.pop(0)
    moved.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=weights))
    hidden = dataclasses.replace(model, model=moved.SerializeToString())
    y = runner.reference.run(model).outputs[0]["y"] * np.float32(1.1)
    assert lossless_says(runner, model, {"y": y}, SCHEMES["s8s8"]).word is Word.DIVERGES
    assert lossless_says(runner, hidden, {"y": y}, SCHEMES["s8s8"]).word is Word.ABSTAINS


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("behind", ["BatchNormalization", "Mul"])
def test_weights_that_a_converter_scales_before_it_quantizes_keep_their_codes_where_channels_have_scales(
    runner, behind, per_channel
):
    scheme = dataclasses.replace(WEIGHT_ONLY["8 bits"], per_channel=per_channel)
    model = rich(scheme, 0, product(bias=False))
    scaled = model.proto.__class__.FromString(model.model)
    scaled.graph.node[0].output[0] = "t"
    names = ["t", "f"] if behind == "Mul" else ["t", "f", "zero", "zero", "f"]
    scaled.graph.node.append(helper.make_node(behind, names, ["y"]))
    for name, value in (("f", 3.0), ("zero", 0.0)):
        scaled.graph.initializer.append(numpy_helper.from_array(np.full(4, value, np.float32), name))
    folded = dataclasses.replace(model, model=scaled.SerializeToString())
    run = runner.reference.run(folded)
    assert run.error == ""
    question = Question(folded, (), run.outputs, runner.reference, scheme)
    assert lossless.keeps_weights(question, (0, "y")) is per_channel


@pytest.mark.parametrize("scheme", WEIGHT_ONLY.values(), ids=WEIGHT_ONLY)
def test_where_only_weights_are_quantized_whole_graphs_stay_as_they_are(scheme):
    rng, names = np.random.default_rng(0), ["Conv", "Sigmoid", "Relu", "GRU"]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("GRU", ["r", "w", "h"], ["y"], hidden_size=2),
    ]
    shapes = {"k": (4, 3, 2), "w": (1, 6, 5), "h": (1, 6, 2)}
    constants = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    large = case(nodes, {"x": np.ones((2, 3, 6), np.float32)}, constants, outputs=[("y", FLOAT, (2, 1, 4, 2))])
    found = [put(scheme, seed, large) for seed in range(10)]
    whole = [model for model in found if [node.op_type for node in model.proto.graph.node] == names]
    assert whole, "no seed keeps the whole graph"
    for model in whole:
        assert np.array_equal(model.feeds[0]["x"], large.feeds[0]["x"])


def test_what_has_no_place_for_both_extremes_is_not_constructed():
    placed = [bool(construct(product(terms=1), SCHEMES["u8u8"], seed)) for seed in range(5)]
    assert any(placed), "one term has place for both extremes with no seed"
    column = dataclasses.replace(SCHEMES["u8u8"], per_channel=True)
    assert construct(product(terms=1), column, 0) is None


def test_saturation_of_unsigned_by_signed_pairs_is_excused_only_where_the_machine_has_it(runner, monkeypatch):
    scheme = SCHEMES["u8s8"]
    model = put(scheme)
    y = runner.reference.run(model).outputs[0]["y"] * np.float32(0.5)
    rule = Rule("u8s8-saturation", "execute", "", "https://onnxruntime.ai/docs/performance/quantization")

    def said(*features):
        monkeypatch.setattr(saturation, "cpu_features", lambda: features)
        declared = target(scheme, exceptions=(rule,))
        return judge(model, observed({"y": y}), target=declared, options={}, reference=runner.reference)

    assert said("avx2", "avx512_vnni").word is Word.DIVERGES
    assert (said("avx2").word, said("avx2").rule) == (Word.ABSTAINS, "u8s8-saturation"), "no artifact tells how far"
    monkeypatch.setattr(saturation, "cpu_features", lambda: ("avx2",))
    assert verdict(runner, model, {"y": y}, scheme=scheme).word is Word.DIVERGES, "this target does not declare it"


def test_what_is_computed_in_a_range_that_is_widened_has_its_step(runner):
    x, w = np.array([-0.0625], np.float32), np.array(-0.0625, np.float32)
    model = case([helper.make_node("Mul", ["w", "x"], ["y"])], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1,))])
    found = look(Trial(model, resolve("onnxruntime-quant"), {"least_range": "0.01"}, runner))
    assert found.word is Word.AGREES, f"1/256 is no multiple of the step of [0, 0.01]: {found}"
