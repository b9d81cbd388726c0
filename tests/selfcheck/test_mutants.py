"""Mutants are caught where they do harm, and agree where they do none."""

import numpy as np
import pytest
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial, look
from driftnet.model.verdict import Kind, Outcome, Word
from driftnet.on_grid.construct import construct
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT
from driftnet.targets.recipe import effective
from onnx import TensorProto, helper

from tests.support import models


def conv(shape, *, feeds=1, **attributes):
    """Conv with a bias, exact in float32; shape is that of y."""
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    constants = {"w": models.grid((3, 2, 2, 2)), "b": np.array([1, 2, -3], np.float32)}
    data = [{"x": models.grid((1, 2, 5, 5)) + k} for k in range(feeds)]
    return models.case([node], data[0], constants, outputs=[("y", TensorProto.FLOAT, shape)], feeds=data[1:])


def scaled(width):
    """Mul by a constant [3, 1, 1]."""
    shape = (1, 3, 2, width)
    constants = {"c": np.array([1, 2, 4], np.float32).reshape(3, 1, 1)}
    node = helper.make_node("Mul", ["x", "c"], ["y"])
    return models.case([node], {"x": models.grid(shape)}, constants, outputs=[("y", TensorProto.FLOAT, shape)])


def verdict(runner, case, name, recipe=None):
    return look(Trial(case, resolve(name), recipe or {}, runner))


@pytest.mark.parametrize(
    ("name", "harmed", "unharmed"),
    [
        (
            "FOLDS_NORM_IGNORING_GROUPS",
            models.grouped_conv_transpose_and_norm(2),
            models.grouped_conv_transpose_and_norm(1),
        ),
        ("LOSES_BIAS", conv((1, 3, 4, 4)), models.relu()),
        ("SWAPS_PADS", conv((1, 3, 5, 5), pads=[1, 0, 0, 1]), conv((1, 3, 6, 6), pads=[1, 1, 1, 1])),
        ("BROADCASTS_ON_THE_WRONG_AXIS", scaled(3), models.relu()),
        ("KEEPS_STATE", conv((1, 3, 4, 4), feeds=2), conv((1, 3, 4, 4))),
    ],
)
def test_a_mutated_converter_or_executor_is_wrong_where_its_bug_is_in_play(runner, name, harmed, unharmed):
    assert verdict(runner, harmed, f"tests.support.mutants:{name}").word is Word.DIVERGES
    assert verdict(runner, unharmed, f"tests.support.mutants:{name}").word is Word.AGREES
    assert verdict(runner, harmed, "mnn").word is Word.AGREES, "the real target is right"


@pytest.mark.parametrize("name", ["TRUNCATES_WEIGHTS", "SHIFTS_ZERO_POINT"])
@pytest.mark.parametrize("recipe", [{}, {"per_channel": True}], ids=["per-tensor", "per-channel"])
def test_a_mutated_quantizer_is_caught_on_the_grid_of_its_scheme(runner, name, recipe):
    scheme = ONNXRUNTIME_QUANT.scheme(effective(ONNXRUNTIME_QUANT, recipe))
    case = construct(conv((1, 3, 4, 4)), scheme, 1)
    assert verdict(runner, case, "onnxruntime-quant", recipe).word is Word.AGREES, "the real target is right"
    assert verdict(runner, case, f"tests.support.mutants:{name}", recipe).word is Word.DIVERGES


def test_an_uninitialized_element_is_told_from_a_wrong_one(runner):
    target = resolve("tests.support.mutants:LEAVES_AN_ELEMENT_UNINITIALIZED")
    finding = examine(Trial(models.relu(), target, {}, runner)).finding
    assert finding.verdict.kind == Kind.NONDETERMINISTIC


def test_a_mutated_crash_is_survived(runner):
    run = runner.observe(models.relu(), resolve("tests.support.mutants:CRASHES"), {}).last
    assert (run.stage, run.outcome, run.signal) == ("execute", Outcome.CRASH, "SIGSEGV")
    assert verdict(runner, models.relu(), "tests.support.mutants:LOSES_BIAS").word is Word.AGREES, "the next case runs"


def test_a_mutated_hang_ends_at_the_time_limit():
    with Runner(timeout=1.0) as runner:
        run = runner.observe(models.relu(), resolve("tests.support.mutants:HANGS"), {}).last
    assert (run.stage, run.outcome) == ("execute", Outcome.HANG)
