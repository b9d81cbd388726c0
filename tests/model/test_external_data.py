"""Models whose weights stay in files of their own: read by path, cut into parts that load what they read."""

import dataclasses
import os

import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.diagnosis.check import check
from driftnet.findings import corpus
from driftnet.findings.trial import Trial, look
from driftnet.handover.anonymize import anonymize
from driftnet.model import external_data
from driftnet.model.inspect import elements
from driftnet.model.verdict import Word
from driftnet.reduce.reducer import reduce
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from onnx import TensorProto, helper

from tests.support import models
from tests.support.localization import FLOAT

WIDTH, LAYERS = 24, 6


def chain(activation="Relu"):
    """Products with 24 x 24 weights (2304 bytes each), an activation behind each."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32) for i in range(LAYERS)}
    nodes, last = [], "x"
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]))
        last = "y" if i == LAYERS - 1 else f"a{i}"
        nodes.append(helper.make_node(activation, [f"m{i}"], [last]))
    x = rng.normal(size=(2, WIDTH)).astype(np.float32)
    return models.case(nodes, {"x": x}, weights, outputs=[("y", TensorProto.FLOAT, (2, WIDTH))])


@pytest.fixture
def large(monkeypatch):
    """The limit that makes `chain` a large model, and two of its layers none."""
    monkeypatch.setattr(external_data, "MOST_LOADED", 2 * 4 * WIDTH * WIDTH)


def stored(case, folder):
    """The model of `case` in a file, all of its tensors in another."""
    path = folder / "model.onnx"
    model = onnx.ModelProto.FromString(case.model)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def read(case, folder):
    path = stored(case, folder)
    return external_data.case(corpus.read_onnx(path, entire=False), path, case.feeds)


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        ("mnn", {}),
        ("onnxruntime-quant", FLOAT),
        ("onnxruntime-quant", {"preprocess": True}),
        ("onnxruntime-quant", {"quantize": "dynamic"}),
    ],
    ids=str,
)
def test_a_large_model_is_judged_in_windows_without_being_loaded(runner, large, tmp_path, target, recipe):
    case = read(chain(), tmp_path)
    assert len(case.model) < 4 * WIDTH * WIDTH, "its weights have been loaded"
    checked = check(Trial(case, resolve(target), recipe, runner), ())
    assert checked.verdict.word is Word.AGREES, checked.verdict.message
    assert checked.vouched == 1.0


def test_a_bug_in_a_large_model_is_localized_and_reduced(runner, large, tmp_path):
    case = read(chain("Erf"), tmp_path)
    target = resolve("tests.support.localization:ERF_IS_APPROXIMATED.onnxruntime_quant")
    checked = check(Trial(case, target, FLOAT, runner), ())
    assert {culprit.op_type for culprit in checked.culprits} == {"Erf"}
    finding = checked.diagnoses[0].examination.finding
    assert elements(finding.case) == 1
    assert finding.case.file is None


def test_a_model_that_is_a_link_has_its_weights_beside_the_link(runner, large, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path = stored(chain(), tmp_path)
    os.replace(path, tmp_path / "elsewhere" / "model.onnx")
    path.symlink_to(tmp_path / "elsewhere" / "model.onnx")
    case = external_data.case(corpus.read_onnx(path, entire=False), path, chain().feeds)
    for target, recipe in (("mnn", {}), ("onnxruntime-quant", FLOAT)):
        verdict = look(Trial(case, resolve(target), recipe, runner))
        assert verdict.message == "no tier reads weights of 0.0 GiB" or verdict.word is Word.AGREES, verdict


def test_a_part_that_is_large_itself_is_handed_over_with_its_own_weights_alone(large, tmp_path):
    case = read(chain(), tmp_path)
    model = onnx.ModelProto.FromString(case.model)
    kept = model.graph.initializer[1:5]
    part = dataclasses.replace(case, model=onnx.ModelProto(graph=onnx.GraphProto(initializer=kept)).SerializeToString())
    assert external_data.is_whole(case), "all of the case travels"
    assert not external_data.is_whole(part), "the weights of the part should stay in a file"
    out = tmp_path / "part"
    out.mkdir()
    external_data.write(part, out / "model.onnx")
    assert sum(path.stat().st_size for path in out.glob("*.data")) == 4 * 4 * WIDTH * WIDTH
    written = onnx.load(out / "model.onnx")
    for tensor, original in zip(written.graph.initializer, kept, strict=True):
        assert np.array_equal(onnx.numpy_helper.to_array(tensor), external_data.array(original, case.file))


def test_a_finding_that_stays_large_is_saved_with_its_weights_beside_it(runner, large, tmp_path):
    case = read(chain(), tmp_path)
    saved = tmp_path / "saved"
    saved.mkdir()
    corpus.write_model(case, runner.reference.run(case).outputs, saved)
    again, expected = corpus.read_model(saved)
    assert again.file == saved / "model.onnx"
    assert np.array_equal(runner.reference.run(again).outputs[0]["y"], expected[0]["y"])


def test_weights_that_stay_outside_are_not_taken_for_anonymous(large, tmp_path):
    remained = anonymize(read(chain(), tmp_path), lambda case: True).remained
    assert sum("too large to be read" in text for text in remained) == LAYERS


@pytest.mark.parametrize("how", ["absolute", "above", "link", "folder link"])
def test_data_outside_the_folder_are_refused_of_large_models_too(large, tmp_path, how):
    inside, secret = tmp_path / "inside", tmp_path / "secret"
    for folder in (inside, secret):
        folder.mkdir()
    path = stored(chain(), inside)
    os.replace(inside / "weights.bin", secret / "weights.bin")
    location = {"absolute": str(secret / "weights.bin"), "above": "../secret/weights.bin"}.get(how, "weights.bin")
    if how == "link":
        (inside / "weights.bin").symlink_to(secret / "weights.bin")
    if how == "folder link":
        (inside / "data").symlink_to(secret)
        location = "data/weights.bin"
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="points outside its folder"):
        api.check(path, api.CheckSettings(targets=["onnxruntime-quant"]))


@pytest.mark.parametrize(
    "entries",
    [{"location": "a\0b"}, {"location": "x" * 5000}, {"location": "weights.bin", "offset": "-1"}, {"locations": "w"}],
    ids=["a NUL", "a name too long", "a negative offset", "an unknown entry"],
)
def test_what_no_file_can_be_called_is_told(tmp_path, entries):
    path = stored(chain(), tmp_path)
    model = onnx.load(path, load_external_data=False)
    del model.graph.initializer[0].external_data[:]
    for key, value in entries.items():
        model.graph.initializer[0].external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match=r"its external data cannot be read|is not an ONNX model"):
        corpus.read_onnx(path)


def test_data_that_are_too_short_are_told_before_anything_runs(large, tmp_path):
    path = stored(chain(), tmp_path)
    with open(tmp_path / "weights.bin", "r+b") as file:
        file.truncate(4 * WIDTH * WIDTH)
    with pytest.raises(UserError, match=r"weights\.bin is too short for tensor 'w1'"):
        api.check(path, api.CheckSettings(targets=["onnxruntime-quant"]))


def test_a_weight_that_stays_outside_shrinks(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(external_data, "MOST_LOADED", 4096)
    case = models.case(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        {"i": np.arange(3)},
        {"w": np.arange(1280, dtype=np.float32).reshape(40, 32)},
        outputs=[("y", TensorProto.FLOAT, (3, 32))],
    )
    case = read(case, tmp_path)

    def reads_twenty_at_least(candidate, recipe):
        read = [t for t in candidate.proto.graph.initializer if len(t.dims) == 2 and t.dims[1] >= 20]
        return bool(read and runner.reference.run(candidate).outputs)

    reduced = reduce(case, {}, resolve("mnn").target, reads_twenty_at_least, runner.reference.record).case
    assert case.file
    assert reduced.file is None
    assert elements(reduced) <= 31 + 1
