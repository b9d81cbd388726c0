"""names: whatever the tensors of a model are called, a target sees plain names, and answers in the model's own."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import pytest
from driftnet.findings.corpus import load
from driftnet.findings.trial import Trial, watch
from driftnet.model.inspect import bodies
from driftnet.model.verdict import Observation, Outcome, StageRun, Word
from driftnet.run.names import PLAIN, plainly_named
from driftnet.run.sandbox.worker import Worker
from driftnet.targets.environments import resolve
from onnx import TensorProto, helper

from tests.support import models
from tests.support.paths import saved_case

ODD = ("/stft/Conv_output_0", "serving_default_input_2:0", "--out", "ä b")


def net():
    """Two products and an If that reads what stands outside it; every tensor is called as some exporter does it."""
    x, h, flag, y = ODD
    inner = [helper.make_node("Relu", [h], ["/inner/made"])]
    branch = helper.make_graph(
        inner, "branch", [], [helper.make_tensor_value_info("/inner/made", TensorProto.FLOAT, None)]
    )
    nodes = [
        helper.make_node("MatMul", [x, "w/0"], [h], name="first"),
        helper.make_node("If", [flag], ["if:0"], then_branch=branch, else_branch=branch),
        helper.make_node("MatMul", ["if:0", "w/0"], [y], name="second"),
    ]
    weights = {"w/0": models.grid((4, 4)), flag: np.array(True)}
    return models.case(nodes, {x: models.grid((2, 4))}, weights, outputs=[(y, TensorProto.FLOAT, (2, 4))])


def names_in(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for body in bodies(node):
            yield from names_in(body)


def test_a_target_sees_plain_names_and_the_same_model(runner):
    case = net()
    plain, names = plainly_named(case)
    assert [name for name in names_in(plain.proto.graph) if not PLAIN.fullmatch(name)] == []
    (right,), (made,) = (runner.reference.run(c).outputs for c in (case, plain))
    assert np.array_equal(names.made(made)[ODD[-1]], right[ODD[-1]])


def test_a_model_is_renamed_once_whatever_it_is_fed():
    case = net()
    fewer = replace(case, feeds=case.feeds[:1], calibration=case.feeds[:1])
    assert plainly_named(fewer)[0].model is plainly_named(case)[0].model, "each case holds a renamed model of its own"


def test_a_model_with_plain_names_is_left_as_it_is():
    case = models.relu()
    plain, names = plainly_named(case)
    assert plain is case
    assert names.plain == {}


@pytest.mark.parametrize("target", ["mnn", "onnxruntime-quant"])
def test_outputs_and_artifacts_come_in_the_names_of_the_model(runner, target):
    case = net()
    recipe = {"quantize": "weight-only"} if target == "mnn" else {}
    verdict, seen = watch(Trial(case, resolve(target), recipe, runner))
    assert verdict.word is Word.AGREES, verdict.message
    assert [list(outputs) for outputs in seen.outputs] == [[ODD[-1]]]
    model = seen.artifact.model
    told = names_in(onnx.ModelProto.FromString(model).graph) if model else [x.result for x in seen.artifact.layers]
    assert {name.removesuffix("_quantized") for name in told} >= ({ODD[0], "w/0"} if model else {ODD[-1]})


def test_what_a_target_says_is_told_in_the_names_of_the_model():
    _, names = plainly_named(net())
    told = f"cannot lower '{names.plain[ODD[0]]}' and {names.plain[ODD[1]]}2, tensor9999_ neither"
    (run,) = names.observation(Observation((StageRun("convert", Outcome.ERROR, told),))).stages
    assert run.message == f"cannot lower '{ODD[0]}' and {ODD[1]}2, tensor9999_ neither"


def test_names_that_extend_one_another_do_so_still():
    """Systems make names such as /a_scale themselves: whether theirs clash with a model's own must not change, and
    told again in the model's names those of the system are no others than it makes."""
    own = ["/a", "/a_scale", "/a_scale_2", "/a/b", "/a/b_scale"]
    nodes = [
        helper.make_node("Relu", [before], [made], name=f"{made}_QuantizeLinear")
        for before, made in zip(["x", *own], own)
    ]
    case = models.case(nodes, {"x": models.grid((2,))}, outputs=[(own[-1], TensorProto.FLOAT, (2,))])
    plain, names = plainly_named(case)
    made = [node.output[0] for node in plain.proto.graph.node]
    a, b = made[0], made[3]
    assert made == [a, f"{a}_scale", f"{a}_scale_2", b, f"{b}_scale"], f"got {made}, should extend {a} and {b}"
    called = [node.name for node in plain.proto.graph.node]
    assert called == [f"{name}_QuantizeLinear" for name in made], f"got {called}, should be called after {made}"
    told = [node.output[0] for node in onnx.ModelProto.FromString(names.model(plain.model)).graph.node]
    assert told == own, f"got {told}, should be {own} again"


def test_a_name_clash_of_the_quantizer_shows_as_it_does_outside(runner):
    """A model with X and X_scale, both odd: under others it made an artifact that seemed to hold X_scale twice, where
    the quantizer itself refuses the model."""
    saved = load(saved_case("64d50bc7"))
    _, seen = watch(Trial(saved.case, resolve(saved.target), saved.recipe, runner))
    assert "Graph is not a DAG" in seen.last.message, f"got {seen.last.message!r}, should be what the quantizer says"


def test_a_name_that_looks_like_one_of_ours_is_taken_for_none(runner):
    case = net()
    model = onnx.ModelProto.FromString(case.model)
    model.graph.node[0].output[0] = model.graph.node[1].attribute[0].g.node[0].input[0] = "tensor0_"
    model.graph.node[1].attribute[1].g.node[0].input[0] = "tensor0_"
    case = replace(case, model=model.SerializeToString())
    plain, names = plainly_named(case)
    assert "tensor0_" in names_in(plain.proto.graph)
    assert set(names.plain.values()).isdisjoint({"tensor0_"})


def test_the_inside_of_an_artifact_is_asked_for_by_the_names_of_the_model(runner):
    case = net()
    asked = {ODD[1]: "float32"}
    (made,) = runner.tap(case, resolve("mnn"), {}, asked)
    (right,) = runner.reference.record(case)
    assert np.allclose(made[ODD[1]], right[ODD[1]], atol=1e-5)


def test_what_was_made_of_a_model_is_looked_into_without_being_made_again(runner, monkeypatch):
    case, call, stages = net(), Worker.call, []

    def heard(self, word, *args, **told):
        stages.append(word.rpartition(".")[2])
        return call(self, word, *args, **told)

    monkeypatch.setattr(Worker, "call", heard)
    asked = {ODD[1]: "float32"}
    with runner.within(runner.allow(60)):
        runner.observe(case, resolve("mnn"), {})
        del stages[:]
        first, again = runner.tap(case, resolve("mnn"), {}, asked), runner.tap(case, resolve("mnn"), {}, asked)
        assert stages == ["tap", "tap"]
        runner.tap(case, resolve("mnn"), {"optimize_level": 2}, asked)
        assert stages[2:] == ["convert", "quantize", "tap"], "under other options it is another artifact"
    assert np.array_equal(again[0][ODD[1]], first[0][ODD[1]])


def test_what_took_longest_to_make_is_there_still_when_something_else_has_been_looked_into(runner, monkeypatch):
    call, stages = Worker.call, []

    def heard(self, word, *args, **told):
        stages.append(word.rpartition(".")[2])
        return call(self, word, *args, **told)

    with runner.within(runner.allow(60)):
        runner.observe(net(), resolve("mnn"), {"quantize": "offline"})
        monkeypatch.setattr(Worker, "call", heard)
        for recipe in ({}, {"quantize": "offline"}, {}):
            runner.tap(net(), resolve("mnn"), recipe, {ODD[1]: "float32"})
    assert stages == ["convert", "quantize", "tap", "tap", "tap"]
