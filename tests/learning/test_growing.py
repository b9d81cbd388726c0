"""A reduced case grows back into a model that somebody might have, and fails on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from driftnet.causes.place import Where
from driftnet.findings import arrange, corpus
from driftnet.findings.trial import Trial, look
from driftnet.learning import growing
from driftnet.learning.growing import grow
from driftnet.learning.study import proposal
from driftnet.learning.trigger import Learned
from driftnet.model.case import Case
from driftnet.model.signature import coarse
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve

from tests.support.models import grid
from tests.support.paths import CORPUS
from tests.support.triggers import one, saved

NEEDS_STRIDES = "tests.support.bugs:NEEDS_STRIDES"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(small_models=True, hold_crashes=True) as made:
        yield made


def pool() -> Case:
    return one("MaxPool", grid((1, 1, 2, 3)), kernel_shape=[1, 2])


def test_a_node_grows_into_a_small_classifier_whose_damage_is_measured(runner: Runner, tmp_path: Path) -> None:
    finding = saved(pool(), NEEDS_STRIDES, runner)
    grown = grow(finding, resolve(NEEDS_STRIDES), runner)
    assert grown is not None
    ops = [node.op_type for node in grown.case.proto.graph.node]
    assert ops == ["Conv", "Relu", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm"], f"{ops}: {grown.added}"
    assert np.shape(grown.case.feeds[0]["x0"])[1] >= 4, "a usual number of channels"
    found = look(Trial(grown.case, resolve(NEEDS_STRIDES), finding.recipe, runner))
    assert (found.word, found.kind) == (finding.verdict.word, finding.kind), f"the verdict is {found}"


def test_the_damage_is_measured_and_stands_in_the_cause(runner: Runner, tmp_path: Path) -> None:
    negates = "tests.support.bugs:NEGATES_LONG_MAXIMA"
    finding = saved(one("ReduceMax", grid((2, 3, 4)), axes=[0, 1], keepdims=1), negates, runner)
    grown = grow(finding, resolve(negates), runner)
    assert grown is not None
    assert 0.5 <= grown.damage["relative_l2"] <= 2, f"of what has another sign the damage is {grown.damage}"
    learned = Learned(finding, Where(), None)
    path = arrange.found(corpus.load(corpus.save(finding, tmp_path)), proposal(learned), tmp_path)
    growing.write(grown, corpus.load(path), runner)
    cause = corpus.load(path).cause
    assert cause is not None
    assert cause.damage.startswith("outputs off by "), cause.grown
    assert (path.parent / "grown" / "test_data_set_0" / "output_0.pb").exists()
    assert corpus.folders([tmp_path]) == [path], "it is no case of its own"


def test_the_grown_models_of_the_corpus_fail(runner: Runner) -> None:
    folders = sorted(CORPUS.glob("onnxruntime-quant/*/grown"))
    assert folders, "there are some"
    quiet = []
    for folder in folders:
        first = corpus.load(corpus.folders([folder.parent])[0])
        case, _ = corpus.read_model(folder)
        name = first.cause.grown["of"] if first.cause else ""
        grown_of = corpus.load(folder.parent / name)
        verdict = look(Trial(case, resolve(grown_of.target), grown_of.recipe, runner))
        if not grown_of.depends and not (verdict.failed and coarse(grown_of.target, verdict) == grown_of.coarse):
            quiet.append(f"{folder.parent.name}: {verdict.word} {verdict.message}")
    assert not quiet, "\n".join(quiet)
