"""T0: stages, outputs, shapes, dtypes, and what is not a number."""

import dataclasses

import numpy as np
import pytest
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Word
from driftnet.oracle.judge import judge
from driftnet.targets.interface import Rule, Scheme
from onnx import TensorProto, helper

from tests.support.models import case, grid, relu
from tests.support.oracle import target, verdict

INT8 = Scheme(weight_codes=(-127, 127), activation_codes=(0, 255))


def ended(runner, run, **declaration):
    """The verdict where the last stage ended as `run` says."""
    observation = Observation((StageRun("convert", Outcome.OK), run))
    return judge(relu(), observation, target=target(**declaration), options={}, reference=runner.reference)


@pytest.mark.parametrize(
    ("run", "word", "kind"),
    [
        (StageRun("execute", Outcome.CRASH, signal="SIGSEGV"), Word.CRASHES, "SIGSEGV"),
        (StageRun("execute", Outcome.MEMORY, peak_mib=5000), Word.CRASHES, Kind.MEMORY),
        (StageRun("execute", Outcome.HANG, seconds=10), Word.HANGS, Kind.HANG),
        (StageRun("execute", Outcome.GARBAGE, message="not a message"), Word.FAILS, Kind.ERROR),
        (StageRun("execute", Outcome.ERROR, message="Broad cast error"), Word.FAILS, Kind.ERROR),
    ],
)
def test_a_stage_that_did_not_end_well_decides(runner, run, word, kind):
    said = ended(runner, run)
    assert (said.word, said.kind, said.stage, said.tier) == (word, kind, "execute", "structure")
    assert "execute" in said.message, f"the message must name the stage: {said.message}"


def test_a_documented_refusal_is_found_in_message_or_log_of_its_stage(runner):
    rule = Rule("unsupported operator", "execute", r"^Not Support: \w+", "https://example.org/operators")
    for run in (
        StageRun("execute", Outcome.ERROR, message="failed", log="loading\nNot Support: Foo\n"),
        StageRun("execute", Outcome.ERROR, message="Not Support: Foo"),
    ):
        said = ended(runner, run, refusals=(rule,))
        assert (said.word, said.rule) == (Word.REJECTS, "unsupported operator")
        assert "Not Support: Foo" in said.message
    told = StageRun("execute", Outcome.ERROR, message="convert: Not Support: Foo of three axes, here\nit is one")
    assert ended(runner, told, refusals=(dataclasses.replace(rule, pattern=r"Support: \w+"),)).message.endswith(
        "this: Not Support: Foo of three axes, here"
    ), "the sentence is cut short"
    elsewhere = dataclasses.replace(rule, stage="convert")
    assert ended(runner, run, refusals=(elsewhere,)).word is Word.FAILS


def test_a_package_that_is_not_installed_beside_the_system_is_no_failure_of_it(runner):
    for missing, word in (("scipy", Word.REJECTS), ("toolchain", Word.FAILS), ("toolchain.parts", Word.FAILS)):
        run = StageRun("quantize", Outcome.ERROR, f"ModuleNotFoundError: No module named '{missing}'")
        said = ended(runner, run, natives=("toolchain.run",))
        assert (said.word, said.rule) == (word, "missing-package" if word is Word.REJECTS else ""), missing


def test_a_crash_is_no_refusal_whatever_was_printed_before(runner):
    rule = Rule("unsupported operator", "execute", "Not Support", "https://example.org/operators")
    run = StageRun("execute", Outcome.CRASH, signal="SIGABRT", log="Not Support: Foo")
    assert ended(runner, run, refusals=(rule,)).word is Word.CRASHES


def test_a_model_that_the_reference_refuses_is_invalid_before_anything_else(runner):
    wrong = case(
        [helper.make_node("Relu", ["nowhere"], ["y"])], {"x": grid((2,))}, outputs=[("y", TensorProto.FLOAT, (2,))]
    )
    crash = Observation((StageRun("convert", Outcome.CRASH, signal="SIGSEGV"),))
    assert judge(wrong, crash, target=target(), options={}, reference=runner.reference).word is Word.INVALID


def transposed():
    """A Transpose with all dims distinct."""
    return case(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])],
        {"x": grid((1, 3, 5))},
        outputs=[("y", TensorProto.FLOAT, (1, 5, 3))],
    )


def test_a_permuted_shape_is_named(runner):
    said = verdict(runner, transposed(), {"y": grid((1, 3, 5))})
    assert (said.word, said.kind, said.output) == (Word.DIVERGES, Kind.WRONG_SHAPE, "y")
    assert said.message == "output 'y' has shape [1, 3, 5], should be [1, 5, 3]"


def test_a_wrong_dtype_is_named(runner):
    said = verdict(runner, relu(), {"y": np.zeros((1, 4), np.float64)})
    assert (said.word, said.kind) == (Word.DIVERGES, Kind.WRONG_DTYPE)
    assert said.message == "output 'y' has dtype float64, should be float32"


def test_a_missing_output_is_named(runner):
    said = verdict(runner, relu(), {})
    assert (said.word, said.kind) == (Word.FAILS, Kind.NO_OUTPUT)
    assert said.message == "output 'y' is missing"


def test_the_second_feed_is_judged_too(runner):
    two = dataclasses.replace(relu(), feeds=(relu().feeds[0], {"x": grid((1, 4)) + 1}))
    good = runner.reference.run(two).outputs
    assert verdict(runner, two, *good).word is Word.AGREES
    said = verdict(runner, two, good[0], {"y": good[1]["y"] + 1})
    assert (said.word, said.feed) == (Word.DIVERGES, 1)
    assert "of feed 1" in said.message
    assert verdict(runner, two, good[0]).kind == Kind.NO_OUTPUT


def found(x, then=()):
    """NonZero, whose shape depends on data; `then` comes before it."""
    nodes = [*then, helper.make_node("NonZero", ["t" if then else "x"], ["y"])]
    return case(nodes, {"x": x}, outputs=[("y", TensorProto.INT64, ("a", "b"))])


def test_a_shape_that_rounding_changes_is_left_open(runner):
    square_root = [helper.make_node("Sqrt", ["x"], ["s"]), helper.make_node("Mul", ["s", "s"], ["m"])]
    residue = [*square_root, helper.make_node("Sub", ["m", "x"], ["t"])]
    unstable = found(np.array([2, 3, 5], np.float32), residue)
    expected = runner.reference.run(unstable).outputs[0]["y"]
    other = np.zeros((1, 3 - expected.shape[1]), np.int64)
    assert verdict(runner, unstable, {"y": other}).word is Word.ABSTAINS
    stable = found(np.array([2, 0, 5], np.float32))
    assert verdict(runner, stable, {"y": np.zeros((1, 3), np.int64)}).kind == Kind.WRONG_SHAPE


def repeated(condition):
    """A Loop that joins states to each other: x times a matrix, and so on, while `condition` holds of the last."""
    value, numbers = helper.make_tensor_value_info, TensorProto.FLOAT
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["t"]),
            helper.make_node("ReduceSum", ["t"], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT64),
            helper.make_node("Less", [condition, "most"], ["go"]),
            helper.make_node("Identity", ["t"], ["kept"]),
        ],
        "body",
        [value("i", TensorProto.INT64, ()), value("before", TensorProto.BOOL, ()), value("s", numbers, None)],
        [value("go", TensorProto.BOOL, ()), value("t", numbers, None), value("kept", numbers, None)],
    )
    nodes = [helper.make_node("Loop", ["", "on", "x"], ["last", "y"], body=body)]
    constants = {"w": np.eye(2, dtype=np.float32) * 2, "on": np.array(True), "most": np.array(9)}
    x = np.array([[1, 1]], np.float32)
    return case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT, ("n", 1, 2))])


def test_how_often_a_loop_runs_that_sums_end_is_left_open_in_a_quantized_target_and_what_a_counter_ends_is_not(runner):
    summed, counted = repeated("whole"), repeated("i")
    fewer = runner.reference.run(summed).outputs[0]["y"][:1]
    assert verdict(runner, summed, {"y": fewer}, scheme=INT8).word is Word.ABSTAINS
    assert verdict(runner, summed, {"y": fewer}).kind == Kind.WRONG_SHAPE, "it was not quantized"
    assert verdict(runner, counted, {"y": fewer}, scheme=INT8).kind == Kind.WRONG_SHAPE


def test_a_quantized_target_may_err_but_not_make_nan_of_numbers(runner):
    x = np.array([[0.1, 0.7, -0.3, 0.9]], np.float32)
    sigmoid = case([helper.make_node("Sigmoid", ["x"], ["y"])], {"x": x}, outputs=[("y", TensorProto.FLOAT, (1, 4))])
    right = runner.reference.run(sigmoid).outputs[0]["y"]
    wrong = right.copy()
    wrong[0, 2] = np.nan
    said = verdict(runner, sigmoid, {"y": wrong}, scheme=INT8)
    assert (said.word, said.kind, said.tier) == (Word.DIVERGES, Kind.NAN, "structure")
    assert "[0, 2] is nan, should be 0.42" in said.message
    assert verdict(runner, sigmoid, {"y": right + np.float32(0.001)}, scheme=INT8).word is Word.AGREES


def test_nan_behind_a_pole_is_left_open_where_the_divisor_was_quantized(runner):
    divided = case(
        [helper.make_node("Div", ["x", "z"], ["y"])],
        {"x": grid((1, 4)), "z": np.array([[1e-4, 1, 2, 4]], np.float32)},
        outputs=[("y", TensorProto.FLOAT, (1, 4))],
    )
    out = runner.reference.run(divided).outputs[0]["y"].copy()
    out[0, 0] = np.inf
    assert verdict(runner, divided, {"y": out}, scheme=INT8).word is Word.ABSTAINS


@pytest.mark.parametrize(
    ("op", "scaled", "attributes"),
    [("MeanVarianceNormalization", False, {"axes": [1]}), ("RMSNormalization", True, {"epsilon": 0.0})],
)
def test_nan_is_left_open_where_a_spread_was_quantized_to_nothing(runner, op, scaled, attributes):
    x, scale = np.array([[1e-4, 2e-4, 0, 1e-4], [1, 2, 3, 5]], np.float32), np.ones(4, np.float32)
    node = helper.make_node(op, ["x", "s"] if scaled else ["x"], ["y"], **attributes)
    model = case([node], {"x": x}, {"s": scale} if scaled else {}, outputs=[("y", TensorProto.FLOAT, (2, 4))], opset=23)
    out = runner.reference.run(model).outputs[0]["y"].copy()
    out[0] = np.nan
    said = verdict(runner, model, {"y": out}, scheme=INT8)
    assert not said.failed, f"{said.message}: the spread of the first row may have been quantized to 0"


def test_equal_kinds_of_infinity_and_nan_are_equal(runner):
    special = case(
        [helper.make_node("Log", ["x"], ["y"])],
        {"x": np.array([0, -1, 2, np.inf], np.float32)},
        outputs=[("y", TensorProto.FLOAT, (4,))],
    )
    right = runner.reference.run(special).outputs[0]["y"]
    assert np.isfinite(right).tolist() == [k not in (0, 1, 3) for k in range(right.size)]
    assert verdict(runner, special, {"y": right.copy()}).word is Word.AGREES
    negated = right.copy()
    negated[0] = np.inf
    assert verdict(runner, special, {"y": negated}).kind == Kind.NAN


def test_an_infinity_behind_a_pole_in_a_branch_is_not_accused_by_structure(runner):
    def branch(op, inputs, output):
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, inputs, [output])], output, [], [result])

    x, d = np.linspace(1, 2, 4, dtype=np.float32), np.array([1e-3, 1, 1, 1], np.float32)
    branches = {"then_branch": branch("Div", ["x", "d"], "z"), "else_branch": branch("Identity", ["x"], "z")}
    node = helper.make_node("If", ["c"], ["y"], **branches)
    model = case([node], {"x": x, "d": d}, {"c": np.array(True)}, outputs=[("y", TensorProto.FLOAT, (4,))])
    said = verdict(runner, model, {"y": np.append(np.float32(np.inf), (x / d)[1:])}, scheme=INT8)
    assert said.word is Word.ABSTAINS, "the divisor may have been quantized to 0"
