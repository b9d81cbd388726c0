"""What rests on measurements of a system is measured again: the installed one may do worse than the record, or better.

Worse than the tolerance, and right answers are called wrong. Far better than what was seen, and bugs hide behind a
tolerance that nobody needs any more: then the record has to be lowered.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from driftnet.diagnosis import kernels
from driftnet.model.case import Case
from driftnet.oracle.ball_arithmetic import functions
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import calibration
from driftnet.oracle.tiers import budget
from driftnet.oracle.tolerances.approximations import MEASURED
from driftnet.oracle.tolerances.table import TOLERANCES
from driftnet.run.runner import Runner
from driftnet.targets.environments import declared, registered, resolve
from driftnet.targets.recipe import canonical, effective
from onnx import TensorProto, helper

from tests.support.models import case

UNIT = 2.0**-24
FAR_BETTER = 0.1
"""of what was seen"""
FLOAT = TensorProto.FLOAT
MNN = resolve("mnn")

ELU_ALPHA, SELU_ALPHA, GAMMA, SLOPE = (float(np.float32(x)) for x in (1.0, 1.6732632, 1.0507010, 0.2))
FUNCTIONS: Mapping[str, functions.Function] = {
    **{name: functions.SIMPLE[name][0] for name in MEASURED if name in functions.SIMPLE},
    "Celu": lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0))),
    "Elu": lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0))),
    "Gelu": functions.gelu,
    "HardSigmoid": lambda x: np.clip(SLOPE * x + 0.5, 0, 1),
    "Selu": lambda x: GAMMA * np.where(x >= 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))),
}
DOMAINS = {"Acos": (-1, 1), "Asin": (-1, 1), "Log": (1e-6, 12)}
UNMEASURED = {"Gelu": "MNN computes the approximation by tanh, whatever is asked for", "Mish": "MNN has none"}


def verdict_on(name: str, measured: float, most: float, seen: float) -> str:
    """What is to be done about a record; "" where it stands."""
    if measured > most:
        return f"{name}: {measured:.3g} was measured, beyond the tolerance {most:.3g}: the system got worse"
    if measured < FAR_BETTER * seen:
        return f"{name}: {measured:.3g} was measured, far less than the {seen:.3g} on record: lower the tolerance"
    return ""


def share(op: str, results: np.ndarray, x: np.ndarray) -> float:
    """The share of what `op` may be off that `results` are, at most."""
    right, (absolute, relative, _) = FUNCTIONS[op](x.astype(np.float64)), MEASURED[op]
    return float((np.abs(results - right) / (absolute + relative * np.abs(right))).max())


def arguments(op: str) -> np.ndarray:
    """20 000 of them."""
    return np.random.default_rng(0).uniform(*DOMAINS.get(op, (-12, 12)), 20_000).astype(np.float32)


def by_onnxruntime(runner: Runner, made: Case) -> np.ndarray:
    """The result of the reference, which is onnxruntime without optimizations."""
    return runner.reference.run(made).outputs[0]["y"]


def by_mnn(runner: Runner, made: Case) -> np.ndarray | None:
    """The result of MNN; None where it has none."""
    outputs = runner.observe(made, MNN, {}).outputs
    return outputs[0]["y"] if outputs else None


@pytest.mark.parametrize("op", MEASURED)
def test_functions_are_approximated_as_well_as_it_is_recorded(runner, op):
    x = arguments(op)
    made = case([helper.make_node(op, ["x"], ["y"])], {"x": x}, outputs=[("y", FLOAT, x.shape)], opset=22)
    theirs = by_mnn(runner, made)
    own = np.inf if theirs is None else share(op, theirs, x)
    assert op not in UNMEASURED or own > 1, f"{op}: {UNMEASURED.get(op)} no longer: measure it too"
    shares = [share(op, by_onnxruntime(runner, made), x), *([] if op in UNMEASURED else [own])]
    assert not (told := verdict_on(op, max(shares), 1.0, 1.0)), told


@pytest.mark.parametrize(
    ("factor", "told"), [(1 + 1e-5, "got worse"), (1 + 1e-10, "lower the tolerance")], ids=["worse", "far better"]
)
def test_a_function_that_got_worse_or_far_better_is_told(factor, told):
    x = arguments("Softplus")
    results = functions.softplus(x.astype(np.float64)) * factor
    assert told in verdict_on("Softplus", share("Softplus", results, x), 1.0, 1.0)


def convolution(seed: int, channels: int, size: int) -> Case:
    """16 kernels of 3 x 3 over normal numbers."""
    rng = np.random.default_rng(seed)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, channels, size, size), (16, channels, 3, 3)))
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    return case([node], {"x": x}, {"w": w}, outputs=[("y", FLOAT, (1, 16, size - 2, size - 2))])


def questioned(runner: Runner, made: Case, **recipe: object) -> Question:
    """What the oracle is asked of MNN's answer."""
    chosen = canonical(MNN.target, {"quantize": "offline", **recipe})
    seen = runner.observe(made, MNN, chosen)
    expected, scheme = runner.reference.run(made).outputs, MNN.target.scheme(effective(MNN.target, chosen))
    return Question(made, tuple(seen.outputs), expected, runner.reference, scheme, artifact=seen.artifact)


def winograd(runner: Runner) -> float:
    """Of sizes at which the tile is small: a larger one is a finding (corpus/mnn/…_conv_82eb1a26)."""
    worst = 0.0
    for seed, size in enumerate((9, 10, 15, 16, 18, 30)):
        made = convolution(seed, 16, size)
        (x,), w = made.feeds[0].values(), made.proto.graph.initializer[0]
        w = np.frombuffer(w.raw_data, np.float32).reshape(16, 16, 3, 3).astype(np.float64)
        seen = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (3, 3), axis=(1, 2))
        largest = np.abs(x[0]).max((1, 2)) @ np.abs(w).max((2, 3)).T
        off = np.abs(by_mnn(runner, made)[0] - np.einsum("chwij,ocij->ohw", seen, w))
        worst = max(worst, float((off.max((1, 2)) / largest).max()))
    return worst / UNIT


def lost_to_winograd(runner: Runner, recipe: Mapping[str, object]) -> float:
    """By one layer, of tiles small and large, of the largest element."""
    made = [convolution(seed, channels, size) for seed, channels, size in ((20, 4, 20), (14, 32, 14), (48, 16, 48))]
    without = {**recipe, "disabled_kernels": ["Winograd"]}
    outputs = [[runner.observe(case, MNN, options).outputs for options in (recipe, without)] for case in made]
    return max(kernels.loss(*both) for both in outputs)


def bluestein(runner: Runner) -> float:
    worst = 0.0
    for n in (3, 7, 31, 97, 127, 251, 509, 600, 997, 1000):
        x = np.random.default_rng(n).normal(size=(1, n, 1)).astype(np.float32)
        node = helper.make_node("DFT", ["x"], ["y"], axis=1)
        found = by_onnxruntime(runner, case([node], {"x": x}, outputs=[("y", FLOAT, (1, n, 2))]))[0]
        right = np.fft.fft(x[0, :, 0].astype(np.float64))
        off = np.abs(found - np.stack([right.real, right.imag], -1)).max()
        worst = max(worst, float(off / (UNIT * n * np.abs(x).sum())))
    return worst


def score(runner: Runner) -> float:
    """Of the budget, for right quantizations."""
    questions = [questioned(runner, convolution(seed, 4, 8)) for seed in range(4)]
    return max(verdict.error for q in questions for verdict in budget.decide(q, q.places).values())


def vanished(runner: Runner) -> float:
    """The largest constant that is taken for nothing."""
    x, found = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32), 0.0
    w = np.random.default_rng(1).normal(size=(4, 4, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "c"], ["y"])]
    for size in (1e-6, 3e-6, 9e-6, 3e-5, 1e-4, 3e-4):
        constants = {"w": w, "c": np.full((1, 4, 8, 8), size, np.float32)}
        made = case(nodes, {"x": x}, constants, outputs=[("y", FLOAT, (1, 4, 8, 8))])
        if questioned(runner, made).artifact.tensors["c"].scale == 0:
            found = size
    return found


def ranges(runner: Runner) -> float:
    """The widest range of an activation, of the data's."""
    worst = 0.0
    for method in ("KL", "ADMM", "EMA"):
        for seed in range(4):
            question = questioned(runner, convolution(seed, 4, 8), method=method)
            tensors = question.artifact.tensors
            for name, step in calibration.steps(question, question.scheme).items():
                worst = max(worst, tensors[name].scale / step.scale if name in tensors else 0.0)
    return worst


def layer_scales(runner: Runner) -> float:
    """How far the scales of weights are from what the largest weight of a channel makes them."""
    worst = 0.0
    for seed in range(10):
        question = questioned(runner, convolution(seed, 4, 8))
        largest = np.abs(question.graph.constants["w"]).max((1, 2, 3)).astype(np.float64)
        scales = question.artifact.layers[0].scales[:, 0].astype(np.float64)
        worst = max(worst, float(np.abs(scales * 127 - largest).max() / largest.max()))
    return worst


MEASUREMENTS: Mapping[tuple[str, str], Callable[[Runner], float]] = {
    ("WINOGRAD_ROUNDINGS", "mnn"): winograd,
    ("BLUESTEIN_ROUNDINGS", "onnxruntime"): bluestein,
    ("SCORE", "mnn"): score,
    ("LARGEST_VANISHED", "mnn"): vanished,
    ("WIDEST_RANGE", "mnn"): ranges,
    ("LAYER_SCALE_ERROR", "mnn"): layer_scales,
}


KERNELS: Mapping[tuple[str, str], Callable[[Runner], float]] = {
    ("mnn", "Winograd"): lambda runner: lost_to_winograd(runner, {}),
    ("mnn", "Winograd of codes"): lambda runner: lost_to_winograd(runner, {"quantize": "offline", "method": "EMA"}),
}


@pytest.mark.parametrize(("target", "name"), KERNELS)
def test_a_fast_kernel_loses_what_its_declaration_says(runner, target, name):
    (kernel,) = (kernel for kernel in resolve(target).target.kernels if kernel.name == name)
    _, seen = kernel.seen
    measured = KERNELS[target, name](runner)
    assert not (told := verdict_on(f"{target}'s {name}", measured, kernel.loss, seen)), told


def test_every_fast_kernel_that_a_target_declares_is_measured():
    there = {(target, kernel.name) for target in registered() for kernel in declared(target).kernels}
    assert there == KERNELS.keys(), "the kernels that are declared, and those that are measured here"


@pytest.mark.parametrize(("name", "system"), MEASUREMENTS)
def test_a_tolerance_fits_the_installed_system_as_it_fitted_the_one_on_record(runner, name, system):
    _, seen = TOLERANCES[name].seen[system]
    measured = MEASUREMENTS[name, system](runner)
    assert not (told := verdict_on(name, measured, TOLERANCES[name], seen)), told


def test_every_tolerance_that_was_measured_is_measured_again():
    recorded = {(name, system) for name, tolerance in TOLERANCES.items() for system in tolerance.seen}
    assert recorded == MEASUREMENTS.keys()
    assert MEASURED.keys() == FUNCTIONS.keys()


def test_every_tolerance_says_what_it_is_in_why_and_where_that_is_from():
    for name, tolerance in TOLERANCES.items():
        assert tolerance > 0, f"{name} is {float(tolerance)}, should be more than nothing"
        said = (tolerance.unit, tolerance.evidence, tolerance.source)
        assert all(said), f"{name} says {said}, should say its unit, the evidence and where that is from"
