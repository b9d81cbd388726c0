"""Mutants come into play, are told from clean targets, and are counted by kind and tier."""

import ast
import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet.cli import main as cli
from driftnet.cli.report import tables
from driftnet.findings.corpus import load
from driftnet.findings.trial import Trial
from driftnet.model.artifact import Artifact
from driftnet.model.inspect import nodes
from driftnet.model.verdict import Observation, Outcome, StageRun, Tier, Verdict, Word
from driftnet.oracle.exemptions import saturation
from driftnet.selfcheck import mutant, mutated, selfcheck
from driftnet.selfcheck.effect import is_effective, same
from driftnet.selfcheck.mutant import MUTANTS
from driftnet.selfcheck.selfcheck import Count, Judged
from driftnet.targets.environments import declared, resolve
from driftnet.targets.registry import registered
from driftnet.util.errors import UserError
from onnx import TensorProto, helper
from rich.console import Console

from tests.support import models
from tests.support.paths import ROOT, no_cases
from tests.support.rules import assert_each

NAME = attrgetter("name")
RECIPES = ({}, {"format": "QOperator"}, {"per_channel": True}, {"types": "u8s8", "symmetric_activations": False})


ALL = {name: bug for target in registered() for name, bug in mutated.mutants(declared(target)).items()}


def through(wrapper):
    return [bug for bug in ALL.values() if bug.wrapper is wrapper]


@pytest.fixture(scope="module")
def quantized(runner):
    """(quantized, original) models with every feature that a bug of the quantizer or of kernels needs."""
    rng = np.random.default_rng(0)
    shape = (1, 3, 6, 6)
    constants = {
        "w": rng.normal(size=(3, 3, 3, 3)).astype(np.float32),
        "b": 5 * rng.normal(size=3).astype(np.float32),
        "v": rng.normal(size=(3, 3, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "v"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "c"], ["a"]),
        helper.make_node("AveragePool", ["a"], ["y"], kernel_shape=[1, 1]),
    ]
    case = models.case(
        nodes, {"x": rng.normal(size=shape).astype(np.float32)}, constants, outputs=[("y", TensorProto.FLOAT, shape)]
    )
    target = resolve("onnxruntime-quant")
    made = [runner.observe(case, target, recipe).artifact.model for recipe in RECIPES]
    return [(onnx.ModelProto.FromString(model), case.proto) for model in made]


def changed(damage, *given):
    model = onnx.ModelProto()
    model.CopyFrom(given[0])
    damage(model, *given[1:])
    return model != given[0]


def test_a_mutant_of_another_release_is_found_where_nothing_is_registered():
    word, _, release = mutated.word("lost-bias", "mnn==3.0.0").partition("==")
    nobody = (
        "from importlib import metadata as m\ndef no(name): raise m.PackageNotFoundError(name)\nm.distribution = no\n"
    )
    load = f"from driftnet.targets.loading import attribute\nprint(attribute(*{word!r}.split(':', 1)).name)"
    code = f"{nobody}m.entry_points = lambda **given: ()\n{load}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, release) == ("lost-bias\n", "3.0.0"), done.stderr
    assert ("", "onnx") in declared(word).companions, "what damages a model needs onnx"


def test_who_interrupts_it_waits_for_no_kind_to_come_to_its_end(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    threading.Timer(1.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        selfcheck.run(
            ["lost-bias"],
            cases=200,
            seed=0,
            workers=1,
            corpus_folder=no_cases(tmp_path),
            listener=lambda *told: pytest.fail("it has come to its end"),
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert used < 10, f"{used:.0f} CPU seconds were used"


def test_there_are_at_least_a_hundred_kinds_of_bugs_each_described_once():
    assert len(ALL) >= 100, f"there are {len(ALL)} kinds of bugs"
    assert set(MUTANTS) < set(ALL), "some shared bug fits into no target, or no target has bugs of its own"
    assert len({bug.doc for bug in ALL.values()}) == len(ALL), "two kinds are the same bug"
    assert {bug.stage for bug in ALL.values()} == {"convert", "quantize", "execute"}


def test_a_bug_of_the_converter_changes_models_of_its_focus(runner):
    def rule(bug):
        assert next(selfcheck.trials(bug, 0, 60, runner), None), "none of 60 models is changed"

    assert_each(through(mutant.converting), rule, NAME)


def test_a_bug_of_the_quantizer_or_of_kernels_changes_a_quantized_model(quantized):
    def rule(bug):
        given = 2 if bug.stage == "quantize" else 1
        assert any(changed(bug.damage, *pair[:given]) for pair in quantized), "no quantized model is changed"

    assert_each([*through(mutant.quantizing), *through(mutant.loading)], rule, NAME)


def test_a_bug_at_the_inputs_changes_feeds():
    feeds = [{"a": models.grid((2, 3)) + k, "b": models.grid((2, 3)) - k} for k in (1, 2)]

    def rule(bug):
        damaged = bug.damage(feeds)
        changed = len(damaged) < 2 or any((damaged[0][name] != feeds[0][name]).any() for name in "ab")
        assert changed, "neither the feeds nor their number is changed"

    assert_each([*through(mutant.feeding), *through(mutant.calibrating)], rule, NAME)


def test_a_bug_at_the_results_changes_them():
    x = np.array([0.1, np.nan, *range(3, 91)], np.float32).reshape(2, 3, 3, 5)
    outputs = [{"y": x + k, "z": x * k} for k in (1, 2)]

    def rule(bug):
        damaged = bug.damage([{name: x.copy() for name, x in out.items()} for out in outputs])
        changed = [not np.array_equal(damaged[k][n], outputs[k][n], equal_nan=True) for k in range(2) for n in "yz"]
        assert any(changed), "no result is changed"

    assert_each(through(mutant.executing), rule, NAME)


def test_what_a_bug_does_not_touch_is_bitwise_that_of_the_clean_target(runner):
    words = "onnxruntime-quant", mutated.word("wrapping-accumulator", "onnxruntime-quant")
    clean, damaged = (resolve(word) for word in words)
    case = models.grouped_conv_transpose_and_norm()
    recipe = MUTANTS["wrapping-accumulator"].options(clean.target)
    right, seen = (runner.observe(case, one, recipe) for one in (clean, damaged))
    assert same(right.outputs, seen.outputs), f"the mutant gave {seen.outputs}, the clean one {right.outputs}"


def on_onnxruntime(runner, case, recipe):
    return Trial(case, resolve("onnxruntime-quant"), recipe, runner)


def product(lowest):
    """y = x w + b, of which `lowest` is the smallest element of b."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    constants = {"w": w, "b": np.float32([lowest, 0, 0, 0])}
    return models.case(nodes, {"x": x}, constants, outputs=[("y", TensorProto.FLOAT, (4, 4))])


@pytest.mark.parametrize(("lowest", "effective"), [(1e-2, True), (1e-8, False)])
@pytest.mark.parametrize("quantize", ["none", "static"])
def test_a_bug_that_moves_results_no_further_than_rounding_is_none(runner, lowest, effective, quantize):
    case, recipe = product(lowest), {"quantize": quantize}
    words = "onnxruntime-quant", mutated.word("lost-bias", "onnxruntime-quant")
    clean, seen = (runner.observe(case, resolve(word), recipe) for word in words)
    seen = replace(seen, outputs=({"y": seen.outputs[0]["y"] + np.float32(lowest)},))
    found = is_effective(MUTANTS["lost-bias"], on_onnxruntime(runner, case, recipe), clean, seen)
    assert found is effective


def test_a_gelu_of_halves_is_not_approximated_as_its_own_steps_are_further_off():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = every[np.isfinite(every) & (abs(every) < 8)]
    half, exact = np.float16(0.5), x.astype(np.float64)
    erf = np.array([math.erf(v) for v in x / np.float16(math.sqrt(2))], np.float16)
    stepwise = (half * x) * (np.float16(1) + erf)
    right = 0.5 * exact * (1 + np.array([math.erf(v / math.sqrt(2)) for v in exact]))
    by_tanh = 0.5 * exact * (1 + np.tanh(math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)))
    own, between = abs(stepwise - right).max(), abs(by_tanh - right).max()
    assert own > between, f"rounding moves a Gelu of halves by {own}, the bug by {between}"

    for dtype, changes in ((np.float16, False), (np.float32, True)):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        node = helper.make_node("Gelu", ["x"], ["y"])
        case = models.case([node], {"x": np.ones(7, dtype)}, outputs=[("y", element, (7,))], opset=20)
        found = selfcheck.changes(MUTANTS["approximate-gelu"], case)
        assert found is changes, f"whether the bug changes a Gelu of {dtype.__name__}: {found}, should be {changes}"


def test_what_is_random_by_definition_shows_no_bug(runner):
    nodes = [helper.make_node("RandomNormal", [], ["r"], shape=[3]), helper.make_node("Add", ["x", "r"], ["y"])]
    case = models.case(nodes, {"x": np.ones(3, np.float32)}, outputs=[("y", TensorProto.FLOAT, (3,))])
    runs = [runner.observe(case, resolve("onnxruntime-quant"), {"quantize": "none"}) for _ in range(2)]
    runs[1] = replace(runs[1], outputs=({"y": runs[0].outputs[0]["y"] + 9},))
    effective = is_effective(MUTANTS["lost-update"], on_onnxruntime(runner, case, {"quantize": "none"}), *runs)
    assert not effective, "a difference behind a random operator counts as a bug"


def test_at_a_tie_either_code_is_right_in_the_runtime(runner):
    """Quantizing .5 with a scale of 1 may give 0 or 1, but 2 is a bug."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    nodes += [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    constants = {"s": np.float32(1), "z": np.uint8(0)}
    feed, output = {"x": np.float32([0.5, 4])}, ("y", TensorProto.FLOAT, (2,))
    case = models.case(nodes, feed, constants, outputs=[output])

    def seen(first):
        outputs = ({"y": np.float32([first, 4])},)
        return Observation((StageRun("execute", Outcome.OK),), outputs, Artifact(model=case.model))

    trial = on_onnxruntime(runner, case, {})
    told = [is_effective(MUTANTS["floor-for-round"], trial, seen(0), seen(k)) for k in (1, 4)]
    assert told == [False, True]


@pytest.mark.parametrize(
    ("bug", "tier"),
    [
        (MUTANTS["toggled-keepdims"], "structure"),
        (MUTANTS["first-of-batch"], "exact"),
        (MUTANTS["other-direction"], "running-error"),
        (MUTANTS["saturating-accumulator"], "lossless"),
        (MUTANTS["one-wrong-weight"], "artifact"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_tiers_catch_bugs_of_their_own(runner, bug, tier, monkeypatch):
    monkeypatch.setattr(saturation, "is_possible", lambda: False)  # else it is no bug that products are cut
    seen = (judged.verdict for seed in range(8) for judged in selfcheck.check(bug, seed, 2, runner, ()).mutants)
    assert any(verdict.failed and verdict.tier == tier for verdict in seen), f"no {bug.name} was seen by {tier}"


def test_a_seed_names_its_cases(runner):
    first, second = (selfcheck.check(MUTANTS["saturating-accumulator"], 0, 2, runner, ()) for _ in range(2))
    assert first == second


def test_the_command_says_what_was_detected_by_kind_and_by_tier(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["selfcheck", "--json", "--cases", "2", "--kind", "toggled-keepdims", "--kind", "inverted-perm"])
    result = json.loads(capsys.readouterr().out)
    assert list(result["kinds"]) == ["toggled-keepdims", "inverted-perm"]
    assert {name: kind["effective"] for name, kind in result["kinds"].items()} == dict.fromkeys(result["kinds"], 2)
    assert sum(result["tiers"].values()) == sum(kind["detected"] for kind in result["kinds"].values())
    assert result["clean"]["cases"] >= 4
    assert exit.value.code == bool(result["problems"])


def made(detected, missed=0, raised=()):
    verdicts = [Verdict(Word.FAILS)] * detected + [Verdict(Word.AGREES)] * missed
    verdicts += [Verdict(Word.ABSTAINS, Tier.ERROR, message=message) for message in raised]
    return Count(mutants=[Judged("mnn", {"quantize": "none"}, {}, False, verdict) for verdict in verdicts], clean=9)


def test_too_little_detected_a_false_alarm_and_an_error_of_the_oracle_are_problems():
    alarmed = replace(made(200), alarms=made(1).mutants)
    assert not selfcheck.summary({"cut-range": made(200, 5)})["problems"]
    assert selfcheck.summary({"lost-bias": made(3, 2), "cut-range": made(200)})["problems"] == [
        "lost-bias: 3 of 5 detected, 80% wanted"
    ]
    assert selfcheck.summary({"lost-bias": made(9, 1)})["problems"] == ["9 of 10 detected, 97% wanted"]
    assert selfcheck.summary({"lost-bias": made(200, raised=["IndexError: 3"])})["problems"] == [
        "errors that the oracle raised: 1; the first: IndexError: 3"
    ]
    assert selfcheck.summary({"lost-bias": alarmed})["problems"] == ["false alarms: 1 of 9 clean cases"]
    assert selfcheck.summary({"lost-bias": Count()})["problems"] == [
        "lost-bias was not tested: of the cases tried, it changed an output in none"
    ]


def test_a_bug_of_what_a_target_refuses_does_not_apply_and_one_that_never_runs_is_a_problem():
    refused, broken = Count(refused=30, failed=2), Count(refused=2, failed=30)
    assert not selfcheck.summary({"swapped-gates": refused, "lost-bias": made(9)})["problems"]
    assert selfcheck.summary({"swapped-gates": broken, "lost-bias": made(9)})["problems"] == [
        "swapped-gates was not tested: of the cases tried, it changed an output in none"
    ]


def test_cases_that_the_clean_target_refuses_are_counted_as_such(runner, monkeypatch):
    ran = selfcheck.check(MUTANTS["toggled-keepdims"], 0, 1, runner, (), ["tests.support.plain:PLAIN"])
    assert (ran.refused, ran.applies) == (0, True)
    rejecting = Verdict(Word.REJECTS)
    monkeypatch.setattr(selfcheck, "judge", lambda *given, **others: rejecting)
    monkeypatch.setattr(runner, "observe", lambda *given: Observation(()))
    refused = selfcheck.check(MUTANTS["toggled-keepdims"], 0, 1, runner, (), ["tests.support.plain:PLAIN"])
    assert (refused.ran, refused.failed, refused.applies) == (0, 0, False)


def test_a_false_alarm_is_told_with_its_message_and_how_to_see_it_again(capsys):
    alarm = Judged("mnn", {}, {"focus": ["ReduceL2"]}, False, Verdict(Word.DIVERGES, message="y has shape [1]"))
    counts = selfcheck.summary({"lost-bias": replace(made(9), alarms=[alarm])})
    tables.selfcheck(Console(width=200), {"seed": 7, "cases": 3, **counts})
    said = capsys.readouterr().out
    assert "false alarm on mnn (ReduceL2): y has shape [1]" in said
    assert "driftnet selfcheck --kind lost-bias --seed 7 --cases 3 --json" in said


def test_what_a_clean_target_is_blamed_for_is_written_down_reduced(runner, tmp_path):
    maxima = replace(MUTANTS["toggled-keepdims"], focus=("ReduceMax",))
    count = selfcheck.check(maxima, 2, 2, runner, (), ["tests.support.bugs:NEGATES_LONG_MAXIMA"], out=tmp_path)
    saved = [load(Path(alarm.case)) for alarm in count.alarms]
    assert {nodes(case.case) for case in saved} == {1}, f"{len(saved)} alarms"
    assert {node.op_type for case in saved for node in case.case.proto.graph.node} == {"ReduceMax"}


def test_an_unknown_kind_is_the_users_mistake(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["selfcheck", "--json", "--kind", "bad-luck"])
    assert exit.value.code == 2
    assert "lost-bias" in json.loads(capsys.readouterr().out)["error"]["hint"]


def test_a_third_target_proves_its_oracle_on_the_day_it_is_added(capsys):
    plain = "tests.support.plain:PLAIN"
    fitting = mutated.mutants(resolve(plain).target)
    assert {bug.stage for bug in fitting.values()} == {"convert", "execute"}, "what quantizes nothing has no such bugs"
    assert "constants-in-half-precision" in fitting, "it says that it computes in floats"
    kinds = ["lost-bias", "swapped-operands", "constants-in-half-precision", "zeroed-tail", "swapped-inputs"]
    with pytest.raises(SystemExit) as end:
        cli.main(
            ["selfcheck", "--target", plain, "--json", "--cases", "2"] + [word for k in kinds for word in ("--kind", k)]
        )
    result = json.loads(capsys.readouterr().out)
    assert result["problems"] == [], f"what selfcheck says of a plain target: {result['problems']}"
    assert end.value.code == 0
    assert result["places"] == {"plain none": {"effective": 10, "detected": 10}}
    with pytest.raises(SystemExit) as end:
        cli.main(["selfcheck", "--target", plain, "--json", "--kind", "rolled-scales-in-file"])
    assert end.value.code == 2
    assert "zeroed-tail" in json.loads(capsys.readouterr().out)["error"]["hint"]


def test_a_bug_that_does_not_fit_is_no_target():
    with pytest.raises(UserError, match="rolled-channel-scales is no bug that fits into mnn"):
        resolve(mutated.word("rolled-channel-scales", "mnn"))


def test_selfcheck_and_what_it_stands_on_name_no_system():
    names = {name for target in registered() for name in (target, target.replace("-", "_"))}

    def rule(path):
        texts = {
            node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant)
        }
        modules = [
            node.module
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
        ]
        assert not texts & names, f"names {sorted(texts & names)}"
        assert not [m for m in modules if m.startswith("driftnet.targets.") and m.split(".")[2] in names], "imports one"

    assert_each(sorted((ROOT / "harness" / "selfcheck").glob("*.py")), rule)
