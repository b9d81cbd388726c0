"""The artifact tier where an artifact tells its operations: the model is evaluated on the grids that it tells."""

import dataclasses

import numpy as np
import pytest
from driftnet.model.artifact import Artifact, Layer
from driftnet.model.graph import Graph, Node
from driftnet.model.verdict import Kind, Word
from driftnet.oracle.artifact.simulated import tier as simulation
from driftnet.oracle.artifact.simulated.trace import merged, regions_of
from driftnet.oracle.artifact.simulated.weights import Weights, layers_of, problem
from driftnet.oracle.ball_arithmetic.ball import Ball
from driftnet.oracle.judge import cut_tensors, judge
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme.artifact_trace import read_trace
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Scheme
from driftnet.targets.recipe import canonical, effective
from msgspec import structs
from onnx import TensorProto, helper

from tests.support import models, oracle
from tests.support.rules import assert_each

FLOAT = TensorProto.FLOAT
SCHEME = Scheme((-127, 127), (-127, 127), symmetric_activations=True, per_channel=True, clips=True)
X = np.random.default_rng(5).uniform(-4, 4, (3, 8)).astype(np.float32)


def operation(name, inputs, outputs, runs, **said):
    return {"name": name, "inputs": list(inputs), "outputs": list(outputs), "runs": runs, "steps": 0, **said}


def artifact(operations, scales):
    tensors = {name: {"scale": float(s), "zero_point": 0.0, "low": -127.0, "high": 127.0} for name, s in scales.items()}
    return {"layers": [], "tensors": tensors, "operations": [operation("x", (), ("x",), "somehow"), *operations]}


def on_grid(x, scale):
    return np.clip(np.rint(x / scale), -127, 127) * scale


def question_of(runner, case, outputs, said):
    expected = runner.reference.run(case).outputs
    return Question(case, outputs, expected, runner.reference, SCHEME, artifact=oracle.told(said))


def ask(runner, case, said, y):
    """What the simulation says of outputs `y`."""
    outputs = ({"y": np.asarray(y, np.float32)},)
    question = question_of(runner, case, outputs, said)
    return simulation.decide(question, question.places)[0, "y"]


CHAIN = models.case(
    [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Exp", ["h"], ["y"])],
    {"x": X},
    outputs=[("y", FLOAT, X.shape)],
)
SCALES = {"x": 4 / 127, "h": 0.6 / 127, "y": 3 / 127}
TOLD = artifact([operation("h", "x", "h", "codes"), operation("y", "h", "y", "codes")], SCALES)


def simulated_chain():
    h = on_grid(np.tanh(on_grid(X, SCALES["x"])), SCALES["h"])
    return on_grid(np.exp(h), SCALES["y"])


def test_results_on_the_told_grids_are_right_however_far_from_the_float_model(runner):
    y = simulated_chain()
    assert np.abs(y - np.exp(np.tanh(X))).max() > 0.5, "this grid clips so much that no noise would explain it"
    assert ask(runner, CHAIN, TOLD, y).word is Word.AGREES


TWINS = models.case(
    [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Tanh", ["x"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ],
    {"x": X},
    outputs=[("y", FLOAT, X.shape)],
)


def test_a_common_subexpression_that_the_converter_took_away_is_on_the_grid_of_what_was_left(runner):
    said = artifact(
        [operation("a", "x", "a", "codes"), operation("y", "aa", "y", "codes")], {"x": 4 / 127, "a": 0.3, "y": 0.01}
    )
    a = on_grid(np.tanh(on_grid(X, 4 / 127)), 0.3)
    found = ask(runner, TWINS, said, on_grid(a * a, 0.01))
    assert found.word is Word.AGREES, f"both operands on the grid: got {found.word}, {found.message}"
    half = ask(runner, TWINS, said, on_grid(a * np.tanh(X), 0.01))
    assert half.word is Word.DIVERGES, f"one operand on the grid, the other as it was: got {half.word}, should diverge"


def test_equal_nodes_that_the_converter_kept_are_two_where_it_fused_what_follows(runner):
    nodes = [helper.make_node("Tanh", ["x"], [name]) for name in "ab"]
    nodes += [helper.make_node("Relu", [name], ["r" + name]) for name in "ab"]
    case = models.case(
        [*nodes, helper.make_node("Add", ["ra", "rb"], ["y"])], {"x": X}, outputs=[("y", FLOAT, X.shape)]
    )
    fused = [operation(name, "x", ["r" + name], "codes") for name in "ab"]
    scales = {"x": 4 / 127, "ra": 1 / 127, "rb": 1 / 127, "y": 2 / 127}
    said = artifact([*fused, operation("y", ["ra", "rb"], "y", "codes")], scales)
    branch = on_grid(np.maximum(np.tanh(on_grid(X, 4 / 127)), 0), 1 / 127)
    found = ask(runner, case, said, on_grid(2 * branch, 2 / 127))
    assert (found.word, found.tier) == (Word.AGREES, "artifact"), (
        f"both branches: got {found}, should agree by the file"
    )
    lost = ask(runner, case, said, on_grid(branch, 2 / 127))
    assert lost.word is Word.DIVERGES, f"one branch lost: got {lost.word}, should diverge"


def test_two_draws_of_one_operand_are_no_common_subexpression():
    trace = read_trace(oracle.told(artifact([operation("a", "x", "a", "codes")], {"a": 0.3})))
    for op, kept in [("Tanh", ("a", "a")), ("RandomNormalLike", ("a", "b"))]:
        nodes = [Node(op, ("x",), (name,), {}) for name in "ab"]
        graph = Graph((*nodes, Node("Mul", ("a", "b"), ("y",), {})), {}, frozenset(), ("x",), ("y",), 15)
        read = merged(graph, trace).nodes[-1].inputs
        assert read == kept, f"what is read of two {op}: got {read}, should be {kept}"


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda y: np.where(y == y.max(), y - SCALES["y"], y), Kind.OFF_BY_ONE_STEP),
        (lambda y: y.astype(np.float16), Kind.OFF_BY_ONE_STEP),
        (lambda y: y * 1.01, Kind.OFF_BY_ONE_STEP),
        (lambda y: np.roll(y, 1, axis=0), Kind.WRONG_VALUES),
        (lambda y: np.where(y == y.min(), 0, y), Kind.WRONG_VALUES),
    ],
    ids=["one code", "half precision", "a percent", "rows exchanged", "an element lost"],
)
def test_what_the_artifact_does_not_say_is_wrong_however_small(runner, damage, kind):
    found = ask(runner, CHAIN, TOLD, damage(simulated_chain()))
    assert (found.word, found.tier) == (Word.DIVERGES, "artifact"), "a fault far below quantization noise went unseen"
    assert found.kind is kind


def test_it_is_told_why_quantizing_excuses_no_error(runner):
    floats = [{**told, "runs": "float"} for told in TOLD["operations"][1:]]
    said = {
        "reckoned with all that the scales": ask(runner, CHAIN, TOLD, simulated_chain() + 1),
        "has no scale for it, nor for anything on the way": ask(runner, CHAIN, artifact(floats, {}), simulated_chain()),
    }
    for words, found in said.items():
        assert found.word is Word.DIVERGES, found.message
        assert words in found.message, found.message


def test_a_grid_that_the_executor_does_not_follow_is_seen(runner):
    wrong = artifact(TOLD["operations"][1:], {**SCALES, "h": SCALES["h"] * 1.02})
    assert ask(runner, CHAIN, wrong, simulated_chain()).word is Word.DIVERGES, "h was rounded to another grid than told"


def test_an_operation_in_floats_reads_its_operand_as_it_is(runner):
    scales = {"x": 0.5, "h": 1 / 127, "y": 3 / 127}
    said = artifact([operation("h", "x", "h", "float"), operation("y", "h", "y", "codes")], scales)
    y = on_grid(np.exp(on_grid(np.tanh(X), 1 / 127)), 3 / 127)
    assert ask(runner, CHAIN, said, y).word is Word.AGREES
    of_rounded = on_grid(np.exp(on_grid(np.tanh(on_grid(X, 0.5)), 1 / 127)), 3 / 127)
    assert ask(runner, CHAIN, said, of_rounded).word is Word.DIVERGES, "x is not rounded, whatever its grid"


def test_an_operation_that_does_not_take_the_nearest_code_has_as_many_steps_as_it_says(runner):
    loose = artifact([TOLD["operations"][1], operation("y", "h", "y", "codes") | {"steps": 1}], SCALES)
    y = simulated_chain()
    one, two = (np.where(y == y.min(), y + k * SCALES["y"], y) for k in (1, 2))
    assert ask(runner, CHAIN, loose, one).word is Word.AGREES
    assert ask(runner, CHAIN, loose, two).word is Word.DIVERGES


def test_moving_data_between_tensors_of_one_grid_rounds_them(runner):
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    case = models.case(nodes, {"x": X}, outputs=[("y", FLOAT, X.T.shape)])
    operations = [operation("t", "x", "t", "moves"), operation("y", "t", "y", "float")]
    rounded, kept = np.maximum(on_grid(X.T, 0.1), 0), np.maximum(X.T, 0)
    same, other = ({"x": 0.1, "t": s, "y": 0.2} for s in (0.1, 0.11))
    assert ask(runner, case, artifact(operations, same), rounded).word is Word.AGREES
    assert ask(runner, case, artifact(operations, same), kept).word is Word.DIVERGES
    assert ask(runner, case, artifact(operations, other), kept).word is Word.AGREES, "codes of two grids are not moved"


def softsign(last="codes"):
    """Softsign as three operations with two tensors between them that the model does not have."""
    operations = [
        operation("a", "x", "a", "codes", computes="Abs"),
        operation("one", (), ("one",), "somehow", values=np.ones((), np.float32)),
        operation("b", ("a", "one"), "b", "codes", computes="Add"),
        operation("y", ("x", "b"), "y", last, computes="Div"),
    ]
    return artifact(operations, {"x": 4 / 127, "a": 4 / 127, "one": 1 / 127, "b": 5 / 127, "y": 0.8 / 127})


SOFTSIGN = models.case([helper.make_node("Softsign", ["x"], ["y"])], {"x": X}, outputs=[("y", FLOAT, X.shape)])


def test_what_is_rounded_between_the_operations_of_one_operator_counts(runner):
    x = on_grid(X, 4 / 127)
    y = on_grid(x / on_grid(on_grid(np.abs(x), 4 / 127) + 1, 5 / 127), 0.8 / 127)
    unrounded = on_grid(x / (1 + np.abs(x)), 0.8 / 127)
    assert (y != unrounded).any(), "the roundings between show in the result"
    assert ask(runner, SOFTSIGN, softsign(), y).word is Word.AGREES
    assert ask(runner, SOFTSIGN, softsign(), unrounded).word is Word.DIVERGES
    assert ask(runner, SOFTSIGN, softsign(), np.where(y == y.max(), 0, y)).word is Word.DIVERGES


def test_of_an_operand_that_was_moved_into_an_untold_shape_nothing_is_said_unless_it_fits(runner):
    """x is made a column there, and the sum of x times the rows of w is another than that of x times its columns."""
    feed = {"x": np.float32([-3, 0]), "w": np.ones((2, 2), np.float32)}
    case = models.case(
        [helper.make_node("Einsum", ["x", "w"], ["y"], equation="i,ij->j")],
        feed,
        outputs=[("y", FLOAT, (2,))],
        opset=12,
    )
    said = artifact(
        [
            operation("w", (), ("w",), "somehow"),
            operation("column", "x", ("column",), "moves", in_order=True),
            operation("sign", ("column",), ("sign",), "codes", computes="Identity"),
            operation("m", ("sign", "w"), "m", "codes", computes="Mul"),
            operation("y", "m", "y", "codes", computes="ReduceSum", attributes={"axes": [0], "keepdims": 0}),
        ],
        dict.fromkeys(("x", "column", "sign", "w", "m", "y"), 1 / 127),
    )
    assert ask(runner, case, said, [-1, -1]).word is Word.ABSTAINS
    square = {"x": np.float32([[-3, 0], [2, 1]]), "w": np.ones((2, 2), np.float32)}
    whole = models.case(
        [helper.make_node("Einsum", ["x", "w"], ["y"], equation="ij,ij->j")],
        square,
        outputs=[("y", FLOAT, (2,))],
        opset=12,
    )
    assert ask(runner, whole, said, [0, 1]).word is Word.AGREES, (
        "the shape that it is moved into is the one that it had"
    )
    assert ask(runner, whole, said, [-1, 1]).word is Word.DIVERGES


@pytest.mark.parametrize(
    ("f", "g", "known"),
    [
        ([1, 100], [1.5, 100], True),
        ([1, 100], [5, 100], False),
        ([1, np.inf], [5, np.inf], False),
        ([1, np.nan], [5, np.nan], False),
        ([1, np.inf], [1, np.inf], True),
        ([1, np.inf], [1, -np.inf], False),
        ([1, 2], [1, np.nan], False),
    ],
)
def test_what_is_computed_by_other_means_is_known_where_it_is_the_same(f, g, known):
    f, g = (Ball(np.float64(x), None, np.dtype(np.float32)) for x in (f, g))
    with np.errstate(all="ignore"):  # as where graphs are evaluated
        y = simulation.by_other_means(Ball(np.ones(2), None, f.dtype), f, g)
    assert y.undecided.any() != known


def test_an_operation_that_the_target_does_not_know_is_named(runner):
    found = ask(runner, SOFTSIGN, softsign("somehow"), X)
    assert (found.word, found.abstained) == (Word.ABSTAINS, ("Softsign",))


def test_an_operator_that_the_artifact_passes_over_is_not_rounded(runner):
    nodes = [helper.make_node("Sigmoid", ["x"], ["h"]), helper.make_node("Mul", ["x", "h"], ["y"])]
    outputs = [("y", FLOAT, X.shape), ("h", FLOAT, X.shape)]
    case = models.case(nodes, {"x": X}, outputs=outputs)
    operations = [operation("h", "x", "h", "codes"), operation("y", "x", "y", "codes")]
    said = artifact(operations, {"x": 4 / 127, "h": 0.25, "y": 4 / 127})
    x = on_grid(X, 4 / 127)
    y, h = (z.astype(np.float32) for z in (on_grid(x / (1 + np.exp(-x)), 4 / 127), on_grid(1 / (1 + np.exp(-x)), 0.25)))
    outputs = ({"y": y, "h": h},)
    question = question_of(runner, case, outputs, said)
    found = simulation.decide(question, question.places)
    assert found[0, "h"].word is Word.AGREES
    assert found[0, "y"].word is Word.ABSTAINS, "y is x * sigmoid(x) in one operation, which never sees h"


def test_codes_without_a_grid_say_nothing(runner):
    for lost in SCALES:
        said = artifact(TOLD["operations"][1:], {name: s for name, s in SCALES.items() if name != lost})
        assert ask(runner, CHAIN, said, simulated_chain()).word is Word.ABSTAINS, f"nobody told the scale of {lost}"


def test_an_operation_may_run_in_codes_or_floats(runner):
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    case = models.case(nodes, {"x": X}, {"axes": np.array([1])}, outputs=[("y", FLOAT, (3,))])
    operations = [operation("y", "x", "y", "codes or floats")]
    said = artifact(operations, {"x": 4 / 127, "y": 0.1})
    for x in (X, on_grid(X, 4 / 127)):
        for y in (x.sum(axis=1), on_grid(x.sum(axis=1), 0.1)):
            assert ask(runner, case, said, y).word is Word.AGREES
    assert ask(runner, case, said, X.sum(axis=1) + 0.4).word is Word.DIVERGES


def test_a_converter_that_gives_a_tensor_the_name_of_another_is_not_believed(runner):
    said = artifact([operation("y", "x", "h", "codes"), operation("z", "h", "y", "moves")], SCALES)
    assert ask(runner, CHAIN, said, simulated_chain()).word is Word.ABSTAINS, "operation y gives a tensor called h"


def test_a_tensor_that_moves_data_in_the_model_and_is_computed_in_the_artifact_is_another(runner):
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Exp", ["t"], ["y"])]
    case = models.case(nodes, {"x": X}, outputs=[("y", FLOAT, X.T.shape)])
    operations = [operation("e", "x", "t", "codes"), operation("y", "t", "y", "moves")]
    x, t = (float(np.abs(z).max()) * 2047.5 / 2048 / 127 for z in (X, np.exp(X)))
    said = artifact(operations, {"x": x, "t": t, "y": t}) | {"histogram": {"bins": 2048, "least": 128}}
    found = ask(runner, case, said, on_grid(np.exp(on_grid(X.T, x)), t))
    assert found.word is Word.ABSTAINS, "the converter took Exp before Transpose, and moved the names"


def test_operations_in_a_circle_end():
    said = artifact([operation("a", "b", "a", "moves"), operation("b", "a", "b", "moves")], {"y": 1.0})
    said["operations"].append(operation("y", "a", "y", "moves"))
    graph = Question(SOFTSIGN, (), (), None).graph
    regions = regions_of(graph, read_trace(oracle.told(said)), [{"y": X}])
    assert not regions["y"].known, "nobody knows where its data are from"


def weighted(op, shape, x, y, norm=False, **attributes):
    rng = np.random.default_rng(3)
    nodes = [helper.make_node(op, ["x", "w", "b"], ["c" if norm else "t"], **attributes)]
    constants = {"w": rng.normal(size=shape), "b": rng.normal(size=y[1])}
    if norm:
        nodes.append(helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["t"]))
        constants |= {name: rng.uniform(0.5, 2, y[1]) for name in "somv"}
    nodes += [helper.make_node("Relu", ["t"], ["r"]), helper.make_node("Sigmoid", ["r"], ["y"])]
    values = {name: value.astype(np.float32) for name, value in constants.items()}
    return models.case(nodes, {"x": rng.normal(size=x).astype(np.float32)}, values, outputs=[("y", FLOAT, y)])


CASES = {
    "convolution": weighted("Conv", (8, 4, 2, 2), (1, 4, 4, 4), (1, 8, 3, 3)),
    "grouped convolution": weighted("Conv", (8, 4, 2, 2), (1, 8, 4, 4), (1, 8, 3, 3), group=2),
    "depthwise convolution": weighted("Conv", (8, 1, 2, 2), (1, 8, 4, 4), (1, 8, 3, 3), group=8),
    "folded convolution": weighted("Conv", (8, 4, 2, 2), (1, 4, 4, 4), (1, 8, 3, 3), norm=True),
    "transposed convolution": weighted("ConvTranspose", (4, 6, 2, 2), (1, 4, 4, 4), (1, 6, 5, 5)),
    "matrix product": weighted("Gemm", (5, 6), (3, 6), (3, 5), transB=1, alpha=0.5),
}
MNN = resolve("mnn").target


def observed(runner, case, **recipe):
    chosen = canonical(MNN, {"quantize": "offline", **recipe})
    observation = runner.observe(case, resolve("mnn"), chosen)
    assert observation.outputs, f"MNN did not run it: {observation.last.message}"
    return observation, effective(MNN, chosen)


@pytest.mark.parametrize("recipe", [{}, {"method": "ADMM", "weight_method": "ADMM"}, {"method": "EMA"}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_what_mnn_executes_is_what_its_file_says(runner, name, recipe):
    seen, options = observed(runner, CASES[name], **recipe)
    found = judge(CASES[name], seen, target=MNN, options=options, reference=runner.reference)
    assert found.word is Word.AGREES, found.message
    assert recipe or found.tier == "artifact", "by default MNN's file tells enough"


def test_averages_that_mnn_cuts_to_codes_are_not_accused_for_their_mean(runner):
    x = np.random.default_rng(0).normal(0.1, 1, (2, 32, 8, 16)).astype(np.float32)
    node, result = helper.make_node("GlobalAveragePool", ["x"], ["y"]), ("y", FLOAT, (2, 32, 1, 1))
    case = models.case([node], {"x": x}, outputs=[result])
    seen, options = observed(runner, case)
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert not found.failed, f"{found.message}: its file says that averages are not rounded to the nearest code"


def test_what_is_grossly_wrong_behind_an_average_that_is_cut_is_accused(runner):
    rng = np.random.default_rng(3)
    nodes, constants, before = [], dict[str, np.ndarray](), "x"
    for k, channels in enumerate((3, 8, 8, 8)):
        constants[f"w{k}"] = (rng.normal(size=(8, channels, 3, 3)) * np.sqrt(2 / (9 * channels))).astype(np.float32)
        nodes.append(helper.make_node("Conv", [before, f"w{k}"], [f"c{k}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [before := f"r{k}"]))
    constants["w"] = rng.normal(0, 0.3, (8, 10)).astype(np.float32)
    nodes.append(helper.make_node("GlobalAveragePool", [before], ["g"]))
    nodes.append(helper.make_node("Flatten", ["g"], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", "w"], ["y"]))
    x = rng.normal(size=(1, 3, 16, 16)).astype(np.float32)
    case = models.case(nodes, {"x": x}, constants, outputs=[("y", FLOAT, (1, 10))])
    seen, options = observed(runner, case)
    y = seen.outputs[0]["y"]
    assert "g" in cut_tensors(case, seen, target=MNN, options=options, reference=runner.reference), "an average is cut"
    for what, failed, told in (
        ("as it is", False, y),
        ("doubled", True, 2 * y),
        ("negated", True, -y),
        ("zeroed", True, 0 * y),
        ("permuted", True, y[:, ::-1]),
    ):
        outputs = ({"y": np.ascontiguousarray(told)},)
        other = dataclasses.replace(seen, outputs=outputs)
        found = judge(case, other, target=MNN, options=options, reference=runner.reference)
        assert found.failed == failed, f"{what}: {found.word} by {found.tier}, should fail: {failed}; {found.message}"


@pytest.mark.parametrize("name", CASES)
def test_results_in_half_precision_are_not_what_its_file_says(runner, name):
    seen, options = observed(runner, CASES[name])
    y = seen.outputs[0]["y"].astype(np.float16).astype(np.float32)
    seen = dataclasses.replace(seen, outputs=({"y": y},))
    found = judge(CASES[name], seen, target=MNN, options=options, reference=runner.reference)
    assert (found.word, found.tier) == (Word.DIVERGES, "artifact"), "results in half precision went unseen"


def test_a_scale_of_weights_that_the_formula_does_not_give_is_a_problem_of_the_quantizer(runner):
    case = CASES["folded convolution"]
    seen, options = observed(runner, case)
    layer = seen.artifact.layers[0]
    larger = structs.replace(layer, scales=layer.scales * np.float32(1.0005))
    seen = dataclasses.replace(
        seen,
        artifact=structs.replace(seen.artifact, layers=(larger,)),
        outputs=({"y": seen.outputs[0]["y"] + np.float32(1)},),
    )
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert (found.word, found.stage) == (Word.DIVERGES, "quantize")
    assert "the scale of channel" in found.message, found.message


def told_scale(runner, scale, *more):
    """What is said of CHAIN where a calibration by histogram is said to have chosen `scale` for h, and for what `more`
    operations give."""
    largest = {"x": np.abs(X).max(), "h": scale * 127 / (2047.5 / 2048), "y": np.exp(np.tanh(X)).max()}
    scales = {name: m / 127 * 2047.5 / 2048 for name, m in largest.items()}
    given = {name: scale for op in more for name in op["outputs"]}
    said = artifact([*TOLD["operations"][1:], *more], scales | given) | {"histogram": {"bins": 2048, "least": 128}}
    h = on_grid(np.tanh(on_grid(X, scales["x"])), scales["h"])
    return ask(runner, CHAIN, said, on_grid(np.exp(h), scales["y"]))


def test_a_scale_that_no_cut_of_a_histogram_gives_is_a_problem_of_the_quantizer(runner):
    largest = float(np.abs(np.tanh(X)).max())
    for t in (2047, 1200, 128):
        assert told_scale(runner, (t + 0.5) / 2048 * largest / 127).word is Word.AGREES, f"a cut at bin {t} is allowed"
    for wrong in (1.01, 1200.8 / 2048, 100.5 / 2048):
        found = told_scale(runner, wrong * largest / 127)
        assert (found.word, found.stage) == (Word.DIVERGES, "quantize"), f"{wrong} times the largest went unseen"
        assert found.culprits == (("h", "Tanh"),)


def test_a_tensor_that_has_the_scale_of_another_is_let_pass(runner):
    assert told_scale(runner, float(np.abs(X).max()) / 127 * 2047.5 / 2048).word is Word.AGREES


def test_a_tensor_that_has_the_scale_of_a_piece_is_let_pass(runner):
    wrong = 1200.8 / 2048 * float(np.abs(np.tanh(X)).max()) / 127
    assert told_scale(runner, wrong).word is Word.DIVERGES
    assert told_scale(runner, wrong, operation("cut", "h", ["h1", "h2"], "moves")).word is Word.AGREES


def test_a_channel_of_zeros_may_have_any_scale(runner):
    case = CASES["convolution"]
    seen, _ = observed(runner, case)
    layer = seen.artifact.layers[0]
    scales, weights = layer.scales.copy(), layer.weights.copy()
    scales[2], weights[2] = np.nan, np.nan
    question = Question(case, (), (), None, artifact=Artifact(layers=(Layer("y", "y", weights, scales),)))
    (read,) = layers_of(question)
    assert not read.weights[2].any(), "code 0 is 0 in steps of NaN too"
    assert np.isfinite(read.scales).all(), f"scales are {read.scales}, should be finite"


def normalized(nodes, x, y, **constants):
    """`nodes` with one, zero and `constants` of one channel."""
    given = {"one": np.ones(1, np.float32), "zero": np.zeros(1, np.float32), **constants}
    return models.case(nodes, {"x": x}, given, outputs=[("y", FLOAT, y)])


def test_a_normalization_in_fixed_point_may_take_the_other_code_near_a_tie(runner):
    """MNN's multiplier has 15 bits."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-4, 4, (1, 16, 16, 64)).astype(np.float32)
    scale, shift = rng.normal(size=(2, 16)).astype(np.float32)
    nodes = [helper.make_node("BatchNormalization", ["x", "scale", "shift", "shift", "two"], ["y"], epsilon=1e-5)]
    case = normalized(nodes, x, x.shape, scale=scale, shift=shift, two=np.full(16, 2, np.float32))
    seen, options = observed(runner, case)
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert (found.word, found.tier) == (Word.AGREES, "artifact"), found.message


def test_weights_may_be_folded_with_one_normalization_after_another(runner):
    x = np.random.default_rng(1).normal(size=(1, 1, 4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "one", "zero", "one"], ["n"], epsilon=1e-5),
        helper.make_node("BatchNormalization", ["n", "s", "one", "zero", "one"], ["y"], epsilon=1e-5),
    ]
    case = normalized(nodes, x, (1, 1, 3, 3), w=np.ones((1, 1, 2, 2), np.float32), s=np.float32([3]))
    seen, options = observed(runner, case)
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert found.word is Word.AGREES, found.message


def test_the_product_with_a_vector_may_be_reshaped_as_codes(runner):
    nodes, w = [helper.make_node("MatMul", ["w", "x"], ["y"])], np.float32([[[0, 0], [0, 1], [1, 1]]])
    case = models.case(nodes, {"x": np.ones(2, np.float32)}, {"w": w}, outputs=[("y", FLOAT, (1, 3))])
    seen, options = observed(runner, case, method="ADMM")
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert found.word is Word.AGREES, found.message


def test_of_weights_folded_with_an_infinite_factor_nothing_is_said(runner):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "one", "one", "one", "zero"], ["y"], epsilon=0.0),
    ]
    case = normalized(nodes, X[None, None], (1, 1, *X.shape), w=np.ones((1, 1, 1, 1), np.float32))
    seen, _ = observed(runner, case)
    assert not np.isfinite(seen.artifact.layers[0].weights).any(), "MNN folds in another way"
    question = Question(case, (), (), runner.reference, SCHEME, artifact=seen.artifact)
    assert simulation.simulated(question).misquantized is None


def test_a_tensor_that_is_held_in_another_order_is_the_model_s(runner):
    operations = [operation("h", "x", ["h, transposed"], "codes"), operation("y", ["h, transposed"], "y", "codes")]
    said = artifact(operations, {"x": SCALES["x"], "h, transposed": SCALES["h"], "y": SCALES["y"]})
    assert ask(runner, CHAIN, said, 1.01 * simulated_chain()).word is Word.ABSTAINS, "nobody said what it holds"
    said["reordered"] = {"h, transposed": "h"}
    assert ask(runner, CHAIN, said, simulated_chain()).word is Word.AGREES
    assert ask(runner, CHAIN, said, 1.01 * simulated_chain()).word is Word.DIVERGES


def test_a_small_result_in_half_precision_is_rounded_to_its_smallest_step(runner):
    """Of half precision that is 6e-8, whatever the number."""
    x, w = np.float16([3.168, -0.08386]), np.float16(1e-5)
    case = models.case(
        [helper.make_node("Mul", ["x", "w"], ["y"])], {"x": x, "w": w}, outputs=[("y", TensorProto.FLOAT16, (2,))]
    )
    operations = [operation("w", (), ("w",), "somehow"), operation("y", ("x", "w"), "y", "codes", computes="Mul")]
    scales = {"x": 3.168 / 127, "w": 1e-5 / 127, "y": 3.2e-5 / 127}
    exact = on_grid(on_grid(x.astype(float), scales["x"]) * on_grid(float(w), scales["w"]), scales["y"])
    question = question_of(runner, case, ({"y": exact.astype(np.float16)},), artifact(operations, scales))
    assert (exact.astype(np.float16) != exact).any(), "they are between two steps"
    assert simulation.decide(question, question.places)[0, "y"].word is Word.AGREES
    off = question_of(runner, case, ({"y": np.float16(exact + 2e-7)},), artifact(operations, scales))
    assert simulation.decide(off, off.places)[0, "y"].word is Word.DIVERGES


def test_an_integer_is_not_off_by_a_step(runner):
    nodes = [helper.make_node("Transpose", ["x"], ["y"])]
    case = models.case(nodes, {"x": np.array([3], np.uint8)}, outputs=[("y", TensorProto.UINT8, (1,))])
    said = artifact([operation("y", "x", "y", "moves")], {"y": 300.0})
    question = question_of(runner, case, ({"y": np.array([7], np.uint8)},), said)
    found = simulation.decide(question, question.places)[0, "y"]
    assert (found.word, found.kind) == (Word.DIVERGES, Kind.WRONG_VALUES)


@pytest.mark.parametrize("read", ["h", "s"])
def test_a_computed_tensor_may_be_on_the_grid_of_what_it_is_moved_into(runner, read):
    operations = [operation("h", "x", "h", "float"), operation("s", "h", "s", "moves")]
    operations += [operation("t", "s", "t", "moves"), operation("y", read, "y", "float")]
    exact, rounded = np.exp(np.tanh(X)), np.exp(on_grid(np.tanh(X), 1 / 127))
    said = artifact(operations, {"t": 1 / 127})
    for right in (exact, rounded):
        assert ask(runner, CHAIN, said, right).word is Word.AGREES
    assert ask(runner, CHAIN, said, 1.01 * exact).word is Word.DIVERGES
    assert ask(runner, CHAIN, artifact(operations, {}), rounded).word is Word.DIVERGES, "there is no grid to be on"


def test_what_is_moved_from_one_grid_to_another_by_a_tensor_without_one_is_on_neither_for_sure(runner):
    """The executor may keep the codes of the first: in a pooling's result, say, that is transposed in two steps."""
    operations = [operation("h", "x", "h", "float"), operation("s", "h", "s", "moves")]
    operations += [operation("t", "s", "t", "moves"), operation("y", "t", "y", "float")]
    kept = np.exp(on_grid(np.tanh(X), 1 / 127))
    said = ask(runner, CHAIN, artifact(operations, {"h": 1 / 127, "t": 1 / 100}), kept)
    assert said.word is Word.ABSTAINS
    assert ask(runner, CHAIN, artifact(operations, {"h": 1 / 100, "t": 1 / 100}), kept).word is Word.DIVERGES


def test_data_joined_from_several_grids_may_be_put_on_the_result_s(runner):
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Abs", ["x"], ["b"])]
    nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=0))
    case = models.case(nodes, {"x": X}, outputs=[("y", FLOAT, (6, 8))])
    operations = [operation(*told) for told in (("a", "x", "a", "codes"), ("b", "x", "b", "codes"))]
    said = artifact([*operations, operation("y", ("a", "b"), "y", "moves")], {"a": 1 / 127, "b": 0.03, "y": 0.05})
    said["tensors"]["x"] = said["tensors"]["b"]
    x = on_grid(X, 0.03)
    kept = np.concatenate([on_grid(np.tanh(x), 1 / 127), np.abs(x)])
    for right in (kept, on_grid(kept, 0.05)):
        assert ask(runner, case, said, right).word is Word.AGREES
    assert ask(runner, case, said, on_grid(kept, 0.25)).word is Word.DIVERGES


def test_a_constant_that_is_joined_with_codes_may_stay_as_it_is_stored(runner):
    """MNN rounded it for a Repeat of the joined data, and not for a view of them beside."""
    w = np.sin(X)
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Concat", ["a", "w"], ["t"], axis=0)]
    nodes.append(helper.make_node("Identity", ["t"], ["y"]))
    case = models.case(nodes, {"x": X}, {"w": w}, outputs=[("y", FLOAT, (6, 8))])
    operations = [operation("a", "x", "a", "codes"), operation("w", (), "w", "somehow", values=w)]
    operations += [operation("t", ("a", "w"), "t", "moves"), operation("y", "t", "y", "moves")]
    said = artifact(operations, {**dict.fromkeys("xawt", 1 / 50), "y": 1 / 60})
    codes = on_grid(np.tanh(on_grid(X, 1 / 50)), 1 / 50)
    for held in (w, on_grid(w, 1 / 50)):
        assert ask(runner, case, said, np.concatenate([codes, held])).word is Word.AGREES
    assert ask(runner, case, said, np.concatenate([codes + 1 / 50, w])).word is Word.DIVERGES


@pytest.mark.parametrize(("fill", "runs"), [(-1.0, "somehow"), (0.0, "moves")])
def test_mnn_does_not_tell_what_becomes_of_the_number_that_pads(runner, fill, runs):
    constants = {"p": np.array([0, 0, 2, 0]), "f": np.array(fill, np.float32)}
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Pad", ["t", "p", "f"], ["y"])]
    seen, _ = observed(runner, models.case(nodes, {"x": X}, constants, outputs=[("y", FLOAT, (5, 8))]))
    assert [op.runs for op in seen.artifact.operations if op.name == "y"] == [runs]


def test_the_codes_in_mnn_s_tables_go_beyond_the_range_that_activations_are_clamped_to(runner):
    case = models.case(
        [helper.make_node("Reciprocal", ["x"], ["y"])],
        {"x": np.array([0.5, 1, 3.5], np.float32)},
        outputs=[("y", FLOAT, (3,))],
        calibration=[{"x": np.array([0.5, 1, 1.5], np.float32)}],
    )
    seen, options = observed(runner, case, activation_clamp=100)
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert found.word is Word.AGREES, found.message


def test_a_name_that_two_tensors_have_is_that_of_the_one_the_other_is_transposed_into(runner):
    rng = np.random.default_rng(3)
    feed, w = {"x": rng.normal(size=(1, 4, 4, 4)).astype(np.float32)}, rng.normal(size=(8, 4, 2, 2)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[2, 2])
    case = models.case([node], feed, {"w": w}, outputs=[("y", FLOAT, (1, 8, 3, 3))])
    seen, options = observed(runner, case, method="EMA")
    for y, word in ((seen.outputs[0]["y"], Word.AGREES), (seen.outputs[0]["y"] * np.float32(1.01), Word.DIVERGES)):
        found = judge(
            case,
            dataclasses.replace(seen, outputs=({"y": y},)),
            target=MNN,
            options=options,
            reference=runner.reference,
        )
        assert (found.word, found.tier) == (word, "artifact"), "EMA calls the result of the Conv y too"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_depends_on_an_unknown_result_that_was_handed_out_has_to_follow_from_it(runner, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Erf", ["x"], ["h"]), helper.make_node("Exp", ["h"], ["y"])]
    case = models.case(nodes, {"x": X.astype(dtype)}, outputs=[("h", kind, X.shape), ("y", kind, X.shape)])
    said = artifact([operation("h", "x", "h", "somehow"), operation("y", "h", "y", "codes")], {"h": 1 / 127, "y": 0.03})
    h = on_grid(np.tanh(X), 1 / 127)

    def judged(y):
        outputs = ({"h": h.astype(dtype), "y": y.astype(dtype)},)
        question = question_of(runner, case, outputs, said)
        verdicts = simulation.decide(question, question.places)
        return verdicts[0, "h"].word, verdicts[0, "y"].word

    assert judged(on_grid(np.exp(h), 0.03)) == (Word.ABSTAINS, Word.AGREES), "whatever h is, y is right of it"
    assert judged(on_grid(np.exp(h), 0.03) + 0.06) == (Word.ABSTAINS, Word.DIVERGES)


def test_wrong_weights_are_seen_whatever_activation_stands_beside_them(runner):
    w = np.random.default_rng(7).normal(size=(8, 5)).astype(np.float32)
    scales = (np.abs(w.T).max(axis=1, keepdims=True) / 127).astype(np.float32)
    operations = [operation("y", "x", "y", "codes", computes="layer", layer="y")]

    def rule(activation):
        nodes = [helper.make_node(activation, ["x"], ["t"]), helper.make_node("MatMul", ["t", "w"], ["y"])]
        case = models.case(nodes, {"x": X}, {"w": w}, outputs=[("y", FLOAT, (3, 5))])
        for factor, stage in ((1, ""), (1.1, "quantize")):
            held = (np.rint(w.T / scales) * scales * factor).astype(np.float32)
            layers = [{"name": "y", "result": "y", "weights": held, "scales": scales}]
            said = artifact(operations, {"x": 4 / 127, "y": 0.1}) | {"layers": layers}
            y = runner.reference.run(case).outputs[0]["y"]
            found = ask(runner, case, said, y)
            assert (found.stage == "quantize") == bool(stage), f"weights times {factor}: {found}"

    assert_each(("Relu", "Tanh", "Softsign"), rule)


def fitted(wanted):
    """Codes and scales fitted to each other: weights are rounded first, and those too large are clipped."""
    first = np.abs(wanted).max(axis=1, keepdims=True) / 127
    rounded, scales = np.rint(wanted / first) * first, first / 1.25
    for _ in range(100):
        codes = np.clip(np.rint(rounded / scales), -127, 127)
        scales = (rounded * codes).sum(axis=1, keepdims=True) / (codes * codes).sum(axis=1, keepdims=True)
    return codes, scales


def told_of_fitted(wanted, codes, scales):
    layer = Layer("y", "y", (codes * scales).astype(np.float32), scales.astype(np.float32))
    weights = Weights(Node("MatMul", ("x", "w"), ("y",), {}), wanted, np.ones((len(wanted), 1)))
    return problem(layer, weights, dataclasses.replace(SCHEME, nearest_weights=False))


HEAVY = np.random.default_rng(4).standard_t(6, size=(4, 240))


def test_weights_and_scales_that_are_fitted_to_each_other_are_right_with_the_largest_clipped():
    codes, scales = fitted(HEAVY)
    off = np.abs(codes * scales - HEAVY) / scales
    assert off.max() > 1.1, "no weight is clipped by more than it might be rounded by"
    assert told_of_fitted(HEAVY, codes, scales) is None


@pytest.mark.parametrize("steps", [2, -2])
def test_the_weight_that_broke_the_rule_is_accused_and_no_clipped_one(steps):
    codes, scales = fitted(HEAVY)
    small = int(np.argmin(np.abs(codes[2])))
    codes[2, small] += steps
    assert f"weight {small} of channel 2 " in told_of_fitted(HEAVY, codes, scales).message


@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_a_scale_that_is_not_fitted_to_its_codes_is_wrong(factor):
    _, scales = fitted(HEAVY)
    scales[1] *= factor
    codes = np.clip(np.rint(HEAVY / scales), -127, 127)
    assert "channel 1 " in told_of_fitted(HEAVY, codes, scales).message


def test_a_weight_is_clipped_only_where_it_is_larger():
    codes, scales = fitted(HEAVY)
    smaller = np.where(np.arange(240) == 7, np.sign(HEAVY) * 110 * scales, HEAVY)
    wrong = np.where(np.arange(240) == 7, np.sign(HEAVY) * 127, codes)
    assert "weight 7 of channel " in told_of_fitted(smaller, wrong, scales).message


@pytest.mark.parametrize(("step", "wrong"), [(1e-6 / 127, False), (1e-3, True)])
def test_a_dead_channel_may_have_any_scale_whose_step_is_nothing(step, wrong):
    wanted = np.array([[0.5, -1.0, 0.25], [1e-20, -2e-20, 0.0]])
    scales = np.array([[1 / 127], [step]], np.float32)
    layer = Layer("y", "y", (np.rint(wanted / scales) * scales).astype(np.float32), scales)
    weights = Weights(Node("MatMul", ("x", "w"), ("y",), {}), wanted, np.ones((2, 1)))
    assert (problem(layer, weights, SCHEME) is not None) is wrong


@pytest.mark.parametrize("method", ["KL", "ADMM", "EMA"])
def test_weights_of_a_heavy_tail_are_right_however_they_are_quantized(runner, method):
    w = HEAVY.reshape(8, 12, 2, 5).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="y")]
    x = np.random.default_rng(5).normal(size=(1, 12, 6, 9)).astype(np.float32)
    case = models.case(nodes, {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 8, 5, 5))])
    seen, options = observed(runner, case, method=method, weight_method="ADMM")
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert not found.failed, found.message


def test_data_moved_from_another_grid_are_not_surely_on_the_one_they_are_moved_on_from(runner):
    operations = [
        operation("h", "x", "h", "codes"),
        operation("s", "h", "s", "moves"),
        operation("y", "s", "y", "moves"),
    ]
    case = models.case(
        [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Identity", ["h"], ["y"])],
        {"x": X},
        outputs=[("y", FLOAT, X.shape)],
    )
    said = artifact(operations, {"x": SCALES["x"], "h": 1 / 127, "s": 1 / 100, "y": 1 / 100})
    kept = on_grid(np.tanh(on_grid(X, SCALES["x"])), 1 / 127)
    for right in (kept, on_grid(kept, 1 / 100)):
        assert ask(runner, case, said, right).word is Word.AGREES
    assert ask(runner, case, said, on_grid(kept, 1 / 20)).word is Word.DIVERGES


EMA = {
    "a LeakyRelu of codes gives codes": (
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("LeakyRelu", ["c"], ["y"], alpha=0.3)],
        ["y"],
    ),
    "a pooling may share the codes of a convolution beside it": (
        [
            helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[2, 2], strides=[1, 1]),
            helper.make_node("Conv", ["x", "w"], ["y"]),
        ],
        ["p", "y"],
    ),
    "a BatchNormalization that is folded leaves its name": (
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[0, 0, 1, 1]),
            helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], epsilon=0.1),
        ],
        ["y"],
    ),
    "a BatchNormalization that is folded is rounded by the name of what it read": (
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=3.0),
            helper.make_node("HardSwish", ["n"], ["h"]),
            helper.make_node("Conv", ["h", "w"], ["y"]),
        ],
        ["y"],
    ),
    "floats that are moved are put on the grid that a convolution reads them on": (
        [
            helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"], epsilon=0.1),
            helper.make_node("Conv", ["n", "w"], ["y"]),
            helper.make_node("Transpose", ["n"], ["t"], perm=[0, 2, 3, 1]),
        ],
        ["y", "t"],
    ),
}


@pytest.mark.parametrize("name", EMA)
def test_of_models_with_few_grids_too_what_mnn_executes_is_right(runner, name):
    nodes, outputs = EMA[name]
    w = np.random.default_rng(1).normal(size=(3, 1, 1, 1)).astype(np.float32)
    x = np.random.default_rng(2).uniform(-1, 1, (1, 3, 4, 4)).astype(np.float32)
    grouped = [n if n.op_type != "Conv" else helper.make_node("Conv", n.input, n.output, group=3) for n in nodes]
    for node, given in zip(grouped, nodes):
        node.attribute.extend(a for a in given.attribute if node is not given)
    ones = dict.fromkeys("sbmv", np.ones(3, np.float32))
    dims = ["N", "C", "H", "W"]
    case = models.case(grouped, {"x": x}, {"w": w, **ones}, outputs=[(y, FLOAT, dims) for y in outputs])
    seen, options = observed(runner, case, method="EMA")
    found = judge(case, seen, target=MNN, options=options, reference=runner.reference)
    assert found.word is Word.AGREES, found.message


def test_what_stands_beside_a_result_that_is_open_may_have_any_scale(runner):
    """A Concat gives its operands one scale: of RoiAlign's largest samples the standard says too little to know it."""
    region = {"r": np.array([[0, 0, 1, 1]], np.float32), "i": np.array([0])}

    def said_of(mode, joint=("Concat", {"axis": 0}), shape=(2, 1, 3, 8)):
        nodes = [
            helper.make_node("RoiAlign", ["x", "r", "i"], ["t"], mode=mode, output_height=3, output_width=8),
            helper.make_node(joint[0], ["t", "z"], ["y"], **joint[1]),
        ]
        feed = {"x": X.reshape(1, 1, 3, 8), "z": X.reshape(1, 1, 3, 8) / 8}
        case = models.case(nodes, feed, region, outputs=[("y", FLOAT, shape)])
        given = {"z": 0.3, "x": float(np.abs(X).max()) / 127 * 2047.5 / 2048}
        operations = [operation("y", ["x", "z"], ["y"], "somehow"), operation("z", (), ("z",), "somehow")]
        said = artifact(operations, given) | {"histogram": {"bins": 2048, "least": 128}}
        return ask(runner, case, said, np.zeros(shape))

    assert said_of("max").word is Word.ABSTAINS
    assert said_of("avg").stage == "quantize", "where it is known no other scale is right"
    assert said_of("max", ("Add", {}), (1, 1, 3, 8)).stage == "quantize", "an Add ties no scales"
