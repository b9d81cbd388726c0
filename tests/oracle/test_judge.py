"""Which tier is asked when, and which verdict speaks for all."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from driftnet.model import graph
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Tier, Verdict, Word
from driftnet.oracle import judge as judging
from driftnet.oracle.judge import judge, who_is_wrong
from driftnet.oracle.question.question import HALVES
from driftnet.oracle.second_opinion import Blame
from driftnet.run.reference import ReferenceError, TooLargeError
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Rule, Scheme
from driftnet.targets.recipe import effective
from onnx import TensorProto, helper

from tests.support import oracle
from tests.support.models import case, grid
from tests.support.oracle import observed, target, verdict

FLOAT = TensorProto.FLOAT


def two_outputs():
    """Relu, which is exact, and Sin, which is not."""
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Sin", ["x"], ["s"])]
    return case(nodes, {"x": x}, outputs=[("r", FLOAT, (8,)), ("s", FLOAT, (8,))])


def test_equal_bits_agree_whatever_was_quantized(runner):
    model = two_outputs()
    right = runner.reference.run(model).outputs[0]
    for scheme in (None, Scheme((-127, 127), (0, 255), clips=True)):
        assert verdict(runner, model, {name: x.copy() for name, x in right.items()}, scheme=scheme).word is Word.AGREES


def test_each_output_has_the_tier_that_can_tell(runner):
    model = two_outputs()
    right = runner.reference.run(model).outputs[0]
    one_bit = np.nextafter(right["r"], np.float32(9), dtype=np.float32)
    said = verdict(runner, model, {"r": one_bit, "s": right["s"]})
    assert (said.word, said.tier, said.output) == (Word.DIVERGES, "exact", "r")
    said = verdict(runner, model, {"r": right["r"], "s": np.nextafter(right["s"], np.float32(9), dtype=np.float32)})
    assert (said.word, said.tier, said.output) == (Word.AGREES, "running-error", "s")


def test_one_output_that_nobody_can_judge_makes_the_whole_abstain_unless_another_diverges(runner):
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Add", ["e", "large"], ["sum"]),
        helper.make_node("Sub", ["sum", "large"], ["rest"]),
    ]
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    outputs = [("rest", FLOAT, (4, 4)), ("e", FLOAT, (4, 4))]
    model = case(nodes, {"x": x}, {"large": np.float32(1e7) + np.ones((4, 4), np.float32)}, outputs=outputs)
    right = runner.reference.run(model).outputs[0]
    other = right["rest"] + 1
    said = verdict(runner, model, {"rest": other, "e": right["e"]})
    assert (said.word, said.output, said.abstained) == (Word.ABSTAINS, "rest", ("Add", "Exp", "Sub"))
    said = verdict(runner, model, {"rest": other, "e": right["e"] * np.float32(1.01)})
    assert (said.word, said.output) == (Word.DIVERGES, "e")


@pytest.mark.parametrize(("large", "loose"), [(1e5, True), (1, False)])
def test_an_output_within_a_narrow_bound_does_not_vouch_for_one_whose_bound_allows_anything(runner, large, loose):
    """Sin is nearer to its bound, and speaks for both."""
    nodes = [
        helper.make_node("Sin", ["x"], ["s"]),
        helper.make_node("Add", ["s", "large"], ["sum"]),
        helper.make_node("Sub", ["sum", "large"], ["rest"]),
    ]
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    outputs = [("s", FLOAT, (8,)), ("rest", FLOAT, (8,))]
    model = case(nodes, {"x": x}, {"large": np.full(8, large, np.float32)}, outputs=outputs)
    right = runner.reference.run(model).outputs[0]
    other = {name: np.nextafter(y, np.float32(9), dtype=np.float32) for name, y in right.items()}
    said = verdict(runner, model, other)
    assert (said.word, said.output, said.loose) == (Word.AGREES, "s", loose)


@pytest.mark.parametrize(("dtype", "loose"), [(np.float16, False), (np.float32, True)])
def test_what_one_rounding_of_its_type_is_worth_is_no_loose_bound(dtype, loose):
    agrees, x = Verdict(Word.AGREES, Tier.RUNNING_ERROR, output="y", bound=2.0**-10), np.ones(3, dtype)
    found = judging._is_loose(SimpleNamespace(pair=lambda place: (x, x)), agrees)
    assert found == loose, f"a bound of 2^-10 of {dtype.__name__} is loose: {found}, should be {loose}"


def test_one_step_of_a_pair_is_a_kind_of_its_own(runner):
    constants = {"s": np.asarray(0.1, np.float32), "z": np.asarray(3, np.uint8)}
    nodes = [
        helper.make_node("Sin", ["x"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["y"]),
    ]
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    model = case(nodes, {"x": x}, constants, outputs=[("q", TensorProto.UINT8, (2, 8)), ("y", FLOAT, (8, 2))])
    right = runner.reference.run(model).outputs[0]
    for codes, kind in ((1, Kind.OFF_BY_ONE_STEP), (2, Kind.WRONG_VALUES)):
        q, y = right["q"].copy(), right["y"].copy()
        q[1, 2] += codes
        y[4, 1] += np.float32(codes * 0.1)
        assert verdict(runner, model, {**right, "q": q}).kind == kind
        assert verdict(runner, model, {**right, "y": y}).kind == kind


def test_one_step_of_a_pair_is_so_behind_a_choice_too(runner):
    """Of what a Where moves the condition is no part."""
    constants = {"s": np.asarray(0.1, np.float32), "z": np.asarray(3, np.uint8), "zero": np.zeros((), np.float32)}
    nodes = [
        helper.make_node("Sin", ["x"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Where", ["c", "d", "zero"], ["y"]),
    ]
    feed = {"x": np.random.default_rng(0).normal(size=8).astype(np.float32), "c": np.arange(8) % 2 == 1}
    model = case(nodes, feed, constants, outputs=[("y", FLOAT, (8,))])
    y = runner.reference.run(model).outputs[0]["y"] + np.float32(0.1) * feed["c"]
    assert verdict(runner, model, {"y": y}).kind == Kind.OFF_BY_ONE_STEP


def test_integers_are_compared_exactly(runner):
    nodes = [helper.make_node("Shape", ["x"], ["n"]), helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32)]
    model = case(nodes, {"x": grid((2, 3))}, outputs=[("n", TensorProto.INT64, (2,)), ("i", TensorProto.INT32, (2, 3))])
    right = runner.reference.run(model).outputs[0]
    said = verdict(runner, model, {"n": right["n"], "i": right["i"] + np.int32(1)})
    assert (said.word, said.tier, said.error) == (Word.DIVERGES, "exact", 1)


def test_outputs_without_elements_agree(runner):
    x = np.zeros((0, 3), np.float32)
    model = case([helper.make_node("Exp", ["x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, (0, 3))])
    said = verdict(runner, model, {"y": np.zeros((0, 3), np.float32)})
    assert (said.word, said.tier) == (Word.AGREES, "structure"), "no tier has compared a value"


def test_a_scalar_output_is_judged(runner):
    model = case(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": grid((2, 3))}, outputs=[("y", FLOAT, ())]
    )
    right = runner.reference.run(model).outputs[0]["y"]
    assert verdict(runner, model, {"y": right.copy()}).word is Word.AGREES
    said = verdict(runner, model, {"y": np.asarray(right + np.float32(1))})
    assert said.message.startswith("output 'y' is ")


def test_what_no_quantization_reaches_is_judged_as_floats_are(runner):
    """Of two outputs a dynamically quantized MatMul makes one; its noise excuses nothing in the other."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Sin", ["x"], ["s"])]
    model = case(nodes, {"x": x}, {"w": w}, outputs=[("m", FLOAT, (4, 4)), ("s", FLOAT, (4, 4))])
    quantizer, recipe = resolve("onnxruntime-quant"), {"quantize": "dynamic"}
    options = effective(quantizer.target, recipe)
    seen = runner.observe(model, quantizer, recipe)

    def said(outputs):
        changed = dataclasses.replace(seen, outputs=(outputs,))
        return judge(model, changed, target=quantizer.target, options=options, reference=runner.reference)

    (outputs,) = seen.outputs
    assert said(outputs).word is Word.AGREES
    wrong = said({**outputs, "s": outputs["s"] * np.float32(1.0001)})
    assert (wrong.word, wrong.tier, wrong.output) == (Word.DIVERGES, "running-error", "s")


def test_what_was_to_be_quantized_is_judged_as_floats_are(runner):
    """Conv without its bias: the noise of quantization would explain a hundredth of a step."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"])]
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 2, 5, 5), (2, 2, 3, 3)))
    model, unbiased = (
        case(nodes, {"x": x}, {"w": w, "b": np.full(2, b, np.float32)}, outputs=[("y", FLOAT, (1, 2, 3, 3))])
        for b in (1e-3, 0.0)
    )
    mnn = resolve("mnn")
    options = effective(mnn.target, {"quantize": "offline", "method": "EMA"})
    right, wrong = (runner.observe(m, mnn, options) for m in (model, unbiased))

    def said(seen):
        return judge(model, seen, target=mnn.target, options=options, reference=runner.reference)

    assert not said(right).failed
    assert not said(dataclasses.replace(wrong, plain=())).failed
    verdict = said(wrong)
    assert (verdict.word, verdict.tier, verdict.stage) == (Word.DIVERGES, "running-error", "execute")
    assert verdict.message.startswith("before it is quantized, output 'y' at [0, "), f"it says {verdict.message!r}"


def test_a_constant_that_is_taken_for_zero_is_no_fault(runner):
    """MNN's quantizer takes what is not larger than 1e-5 for zero, and the product is lost."""
    mnn, options = resolve("mnn"), effective(resolve("mnn").target, {"quantize": "offline"})
    nodes, x = [helper.make_node("Mul", ["x", "w"], ["y"])], np.full(4, 2, np.float32)
    for w, word in ((1e-5, Word.ABSTAINS), (1e-3, Word.AGREES)):
        model = case(nodes, {"x": x}, {"w": np.float32(w)}, outputs=[("y", FLOAT, (4,))])
        seen = runner.observe(model, mnn, options)
        assert judge(model, seen, target=mnn.target, options=options, reference=runner.reference).word is word


def test_an_artifact_without_a_scale_quantizes_nothing(runner):
    model = two_outputs()
    scheme, right = Scheme((-127, 127), (-127, 127), clips=True), runner.reference.run(model).outputs
    codes = {"scale": 0.1, "zero_point": 0.0, "low": -127.0, "high": 127.0}
    told = {"operations": [], "tensors": {"x": codes}, "layers": []}

    def said(artifact):
        outputs = {**right[0], "s": right[0]["s"] + np.float32(1e-4)}
        seen = dataclasses.replace(observed(outputs), artifact=oracle.told(artifact))
        return judge(model, seen, target=target(scheme), options={}, reference=runner.reference)

    assert said(told).word is Word.AGREES
    assert said({**told, "tensors": {}}).word is Word.DIVERGES


def test_an_output_depends_on_what_the_branches_of_an_if_read():
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Abs", ["s"], [name])], name, [], [helper.make_tensor_value_info(name, FLOAT, (4,))]
        )
        for name in ("then", "else")
    }
    nodes = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("If", ["c"], ["y"], **branches)]
    model = case(nodes, {"x": np.ones(4, np.float32)}, {"c": np.array(True)}, outputs=[("y", FLOAT, (4,))])
    assert [node.op for node in graph.read(model.proto).ancestors("y")] == ["Sin", "If"]


def test_what_the_reference_cannot_be_asked_is_left_open(runner):
    class Silent:
        """A reference whose worker answers the first question only."""

        run = staticmethod(runner.reference.run)

        def record(self, case, **limits):
            raise ReferenceError("ended by SIGSEGV")

        def sample(self, case, count):
            raise ReferenceError("ended by SIGSEGV")

    model = two_outputs()
    right = runner.reference.run(model).outputs[0]
    wrong = observed({"r": right["r"], "s": right["s"] + np.float32(1)})
    said = judge(model, wrong, target=target(), options={}, reference=Silent())
    assert (said.word, said.abstained) == (Word.ABSTAINS, ("Relu", "Sin"))
    assert "SIGSEGV" in said.message


@pytest.mark.parametrize(("off", "word"), [(0, Word.AGREES), (1, Word.DIVERGES)])
def test_where_all_tensors_of_two_feeds_are_too_large_one_is_judged_after_the_other(runner, off, word):
    class Small:
        """A reference that holds the tensors of one feed."""

        run = staticmethod(runner.reference.run)

        def record(self, case, **limits):
            if len(case.feeds) > 1:
                raise TooLargeError("all tensors of 2 inputs are too many")
            return runner.reference.record(case)

    model = two_outputs()
    model = dataclasses.replace(model, feeds=(model.feeds[0], {"x": model.feeds[0]["x"] / 2}))
    first, second = runner.reference.run(model).outputs
    noise = np.float32(1 + 2**-23)  # what rounds is not asked where bits are equal
    seen = observed({**first, "s": first["s"] * noise}, {**second, "s": second["s"] * noise + np.float32(off)})
    said = judge(model, seen, target=target(), options={}, reference=Small())
    assert (said.word, said.output) == (word, "s")
    assert said.feed == 1 or not off
    assert said.bound == judge(model, seen, target=target(), options={}, reference=runner.reference).bound


@pytest.mark.parametrize("scheme", [Scheme((-127, 127)), Scheme(halves=True)], ids=["weights", "halves"])
def test_of_what_a_converter_works_out_beforehand_more_than_anybody_holds_is_left_to_the_windows(
    runner, monkeypatch, scheme
):
    w, x = np.full((4, 4), 1 / 3, np.float32), np.ones((1, 4), np.float32)
    nodes = [helper.make_node("Identity", ["w"], ["v"]), helper.make_node("MatMul", ["x", "v"], ["y"])]
    model = case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 4))])
    wrong = runner.reference.run(model).outputs[0]["y"] * np.float32(2)
    monkeypatch.setattr("driftnet.oracle.scheme.precomputed.MOST_MADE", w.nbytes)
    assert verdict(runner, model, {"y": wrong}, scheme=scheme).word is Word.DIVERGES
    monkeypatch.setattr("driftnet.oracle.scheme.precomputed.MOST_MADE", w.nbytes - 1)
    said = verdict(runner, model, {"y": wrong}, scheme=scheme)
    assert (said.word, said.message) == (Word.ABSTAINS, "what depends on constants alone is 0 MiB")
    assert said.abstained == ("Identity", "MatMul")
    assert verdict(runner, model, {"y": wrong * np.float32(np.nan)}, scheme=scheme).kind == Kind.NAN
    assert verdict(runner, model, {"y": wrong[:, :3]}, scheme=scheme).kind == Kind.WRONG_SHAPE
    assert verdict(runner, model, {}, scheme=scheme).kind == Kind.NO_OUTPUT
    assert verdict(runner, model, {"y": wrong / np.float32(2)}, scheme=scheme).word is Word.AGREES, "bits are equal"
    seen, declared = observed({"y": wrong}), dataclasses.replace(target(), scheme=lambda options: scheme)
    accused = Verdict(Word.DIVERGES, output="y", kind=Kind.WRONG_VALUES)
    blame = who_is_wrong(accused, model, seen, target=declared, options={}, reference=runner.reference)
    assert blame is Blame.TARGET


@pytest.mark.parametrize(("largest", "word"), [(1e4, Word.DIVERGES), (1e5, Word.ABSTAINS)])
def test_infinity_is_right_of_what_float16_does_not_hold_though_nobody_works_it_out(runner, monkeypatch, largest, word):
    w, x = np.full((2, 2), largest, np.float32), np.ones((1, 2), np.float32)
    nodes = [helper.make_node("Neg", ["w"], ["v"]), helper.make_node("MatMul", ["x", "v"], ["y"])]
    model = case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 2))])
    monkeypatch.setattr("driftnet.oracle.scheme.precomputed.MOST_MADE", 0)
    infinite = np.full((1, 2), -np.inf, np.float32)
    assert verdict(runner, model, {"y": infinite}, scheme=Scheme(halves=True)).word is word


def test_where_the_reference_cannot_record_a_stage_that_failed_has_failed(runner):
    class Forgetful:
        """A reference that runs, and cannot hold every tensor."""

        run = staticmethod(runner.reference.run)

        def record(self, case, **limits):
            raise ReferenceError("over its memory limit")

    failed = Observation((StageRun("convert", Outcome.ERROR, message="cannot convert Relu"),))
    assert judge(two_outputs(), failed, target=target(), options={}, reference=Forgetful()).word is Word.FAILS


def test_the_steps_of_channels_are_their_own(runner):
    """900 steps of the second channel are less than one of the first."""
    constants = {"s": np.array([1, 0.001], np.float32), "z": np.zeros(2, np.int8)}
    nodes = [
        helper.make_node("Sin", ["x"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=1),
        helper.make_node("Transpose", ["d"], ["y"]),
    ]
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    model = case(nodes, {"x": x}, constants, outputs=[("d", FLOAT, (4, 2)), ("y", FLOAT, (2, 4))])
    right = runner.reference.run(model).outputs[0]
    for step, kind in ((np.float32(0.001), Kind.OFF_BY_ONE_STEP), (np.float32(0.9), Kind.WRONG_VALUES)):
        d, y = right["d"].copy(), right["y"].copy()
        d[1, 1] += step
        y[1, 2] += step
        assert verdict(runner, model, {**right, "d": d}).kind == kind
        assert verdict(runner, model, {**right, "y": y}).kind == kind


def test_constants_that_are_rounded_to_float16_may_be_off_by_that_and_by_no_more(runner):
    scheme, x = Scheme(halves=True), np.full((1, 4), 2, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]

    def said(w, held):
        model = case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 3))])
        return verdict(runner, model, {"y": np.maximum(x @ held, 0)}, scheme=scheme)

    w = np.random.default_rng(1).uniform(0.5, 1, (4, 3)).astype(np.float32)
    halves = w.astype(np.float16).astype(np.float32)
    assert said(w, halves).word is Word.AGREES
    assert said(w, np.float32(1.002) * halves).word is Word.DIVERGES, "a weight is off by more than float16 rounds"
    assert said(halves, np.float32(1.0001) * halves).word is Word.DIVERGES, "nothing to round"
    assert said(w * np.float32(1e6), halves * np.float32(1e6)).word is Word.ABSTAINS, "float16 does not hold them"


@pytest.mark.parametrize(("p", "off", "word"), [(3, 2e-4, "agrees"), (3, 1e-3, "diverges"), (2, 2e-4, "diverges")])
def test_a_norm_may_be_off_by_what_float16_leaves_of_its_exponent_and_by_no_more(runner, p, off, word):
    norm = helper.make_node("LpPool", ["x"], ["y"], p=p, kernel_shape=[2, 2], strides=[1, 1])
    model = case([norm], {"x": grid((1, 1, 3, 3))}, outputs=[("y", FLOAT, (1, 1, 2, 2))])
    y = runner.reference.run(model).outputs[0]["y"] * np.float32(1 + off)
    assert verdict(runner, model, {"y": y}, scheme=Scheme(halves=True)).word == word


@pytest.mark.parametrize(("dim", "off", "word"), [(3, 3e-4, "agrees"), (3, 3e-3, "diverges"), ("n", 3e-4, "diverges")])
def test_a_shape_is_a_constant_that_float16_rounds_only_where_sizes_are_fixed(runner, dim, off, word):
    cast = helper.make_node("Cast", ["s"], ["c"], to=FLOAT)
    nodes = [helper.make_node("Shape", ["x"], ["s"]), cast, helper.make_node("Div", ["t", "c"], ["y"])]
    feed = {"x": grid((3,)), "t": np.array([-0.26239], np.float32)}
    model = case(nodes, feed, outputs=[("y", FLOAT, (1,))], shapes={"x": [dim]})
    y = runner.reference.run(model).outputs[0]["y"] * np.float32(1 + off)
    assert verdict(runner, model, {"y": y}, scheme=Scheme(halves=True)).word == word


def test_what_may_be_computed_in_float16_may_be_off_by_that_and_by_no_more(runner):
    rng = np.random.default_rng(1)
    x, w = rng.uniform(0.5, 1, (1, 4)).astype(np.float32), rng.uniform(0.5, 1, (4, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Sqrt", ["m"], ["y"])]
    halving = target(exceptions=(Rule(HALVES, "execute", "", ""),))

    def said(scale, factor):
        model = case(nodes, {"x": x}, {"w": scale * w}, outputs=[("y", FLOAT, (1, 3))])
        with np.errstate(over="ignore"):
            halves = x.astype(np.float16) @ (scale * w).astype(np.float16)
        results = {"y": factor * np.sqrt(halves).astype(np.float32)}
        return judge(model, observed(results), target=halving, options={}, reference=runner.reference).word

    assert said(np.float32(1), np.float32(1)) is Word.AGREES
    assert said(np.float32(1), np.float32(1.02)) is Word.DIVERGES
    assert said(np.float32(1e6), np.float32(1)) is Word.ABSTAINS, "float16 does not hold it"
