"""Neighbours of real models: valid, different, the same for the same seed, and of every sort."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from driftnet.campaign import seeds
from driftnet.cli.main import driftnet
from driftnet.generators import bulk
from driftnet.generators.mutation.changes import CHANGES
from driftnet.generators.mutation.neighbour import neighbour
from driftnet.model.case import Case
from onnx import TensorProto, helper

from tests.support import models


def small_network():
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "b", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("ReduceMean", ["p"], ["y"], axes=[2, 3], keepdims=0),
    ]
    constants = {"w": rng.standard_normal((4, 3, 3, 3)), "b": np.ones(4), "s": np.full(4, 2.0), "v": np.ones(4)}
    feed = {"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float32)}
    values = {name: x.astype(np.float32) for name, x in constants.items()}
    return models.case(nodes, feed, values, outputs=[("y", TensorProto.FLOAT, (1, 4))])


SEEDS = [small_network(), *[bulk.case(3, index) for index in range(6)]]


def test_neighbours_pass_the_full_check_and_run(runner):
    for index in range(40):
        case = seeds.neighbour(SEEDS, 7, index, runner.reference)
        onnx.checker.check_model(case.proto, full_check=True)
        assert not runner.reference.run(case).error, f"neighbour {index} does not run"


def test_neighbours_differ_from_the_case_and_from_each_other():
    found = {neighbour(SEEDS[0], 1, index).model for index in range(40)}
    assert len(found) >= 36, f"only {len(found)} of 40 neighbours are different"
    assert SEEDS[0].model not in found


def test_a_seed_and_an_index_name_the_same_neighbour_again():
    first, again = (neighbour(SEEDS[0], 5, 9, others=SEEDS) for _ in range(2))
    assert first.model == again.model
    others = [name for name, x in first.feeds[0].items() if not np.array_equal(x, again.feeds[0][name])]
    assert others == [], "inputs with other numbers the second time"


def test_every_sort_of_change_happens():
    made = Counter()
    for index in range(120):
        made.update(neighbour(SEEDS[0], 3, index, others=SEEDS).origin["mutation"]["changes"])
    missing = {change.__name__ for change in CHANGES} - set(made)
    assert not missing, f"no neighbour in 120 has {missing}; {made}"


def test_the_model_that_neighbours_are_made_of_stays_as_it_is():
    before = SEEDS[0].proto.SerializeToString()
    for index in range(20):
        neighbour(SEEDS[0], 2, index, others=SEEDS)
    assert SEEDS[0].proto.SerializeToString() == before


def test_where_nothing_can_be_changed_the_case_comes_back():
    case = Case(onnx.ModelProto(ir_version=8).SerializeToString(), ({},))
    assert neighbour(case, 0, 0).model == case.model


@pytest.mark.parametrize("form", ["file", "case folder"])
def test_generate_from_a_model_writes_neighbours(tmp_path, form):
    folder = Path("corpus/onnxruntime-quant").resolve()
    seed = min(folder.glob("*/test_*")) if form == "case folder" else tmp_path / "model.onnx"
    if form == "file":
        seed.write_bytes(SEEDS[0].model)
    arguments = ["generate", "--cases", "3", "--from", str(seed), "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(driftnet, arguments, standalone_mode=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["cases"] == 3
    assert len(list((tmp_path / "out").glob("test_*/model.onnx"))) == 3


def test_a_folder_without_models_is_no_seed(tmp_path, runner):
    with pytest.raises(seeds.UserError, match="no model at or below"):
        seeds.seeds([tmp_path], runner.reference)
