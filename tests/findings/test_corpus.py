"""Saved cases: whole or not at all, read back as they were, and nothing in them is trusted."""

import dataclasses
import errno
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from driftnet import api
from driftnet.campaign import state
from driftnet.campaign.plan import Plan
from driftnet.campaign.shard import Shard
from driftnet.commands.testing import Examiner
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.issues import issues
from driftnet.model.verdict import Verdict, Word
from driftnet.run.runner import Runner
from driftnet.util.errors import UserError
from driftnet.util.machine import description
from onnx import TensorProto, helper

from tests.support import models, mutants
from tests.support.paths import ROOT


def saved_relu(**changes):
    case = models.relu()
    expected = ({"y": np.maximum(case.feeds[0]["x"], 0)},)
    verdict = Verdict(Word.DIVERGES, stage="execute", kind="wrong-values", message="y is wrong")
    saved = SavedCase("test_relu_01234567", case, expected, "mnn", {"memory": "low"}, "coarse", "fine", verdict)
    return dataclasses.replace(saved, **changes)


@pytest.fixture
def folder(tmp_path):
    return corpus.save(saved_relu(), tmp_path)


def test_a_saved_case_reads_back_as_it_was(folder):
    loaded, saved = corpus.load(folder), saved_relu()
    assert loaded.case.digest == saved.case.digest
    assert np.array_equal(loaded.expected[0]["y"], saved.expected[0]["y"])
    same = ("id", "target", "recipe", "coarse", "fine", "verdict", "status", "runs", "reproduced")
    assert [getattr(loaded, name) for name in same] == [getattr(saved, name) for name in same]


def test_several_feeds_and_calibration_feeds_are_kept_in_order(tmp_path):
    feeds = tuple({"x": np.full((1, 4), k, np.float32)} for k in range(12))
    case = dataclasses.replace(models.relu(), feeds=feeds, calibration=feeds[:11])
    loaded = corpus.load(corpus.save(saved_relu(case=case, expected=tuple({"y": f["x"]} for f in feeds)), tmp_path))
    assert [feed["x"][0, 0] for feed in loaded.case.feeds] == list(range(12))
    assert [feed["x"][0, 0] for feed in loaded.case.calibration] == list(range(11))


def test_an_option_may_be_a_list_of_parts(tmp_path):
    saved = saved_relu(target="onnxruntime-quant", recipe={"disabled_optimizers": ["ConvBNFusion"]})
    assert corpus.load(corpus.save(saved, tmp_path)).recipe == saved.recipe


def test_a_case_that_already_stands_is_left_alone(folder, tmp_path):
    before = (folder / "case.json").read_text(encoding="utf-8")
    assert corpus.save(saved_relu(note="another"), tmp_path) == folder
    assert (folder / "case.json").read_text(encoding="utf-8") == before


def test_a_case_that_cannot_be_written_whole_is_not_written_at_all(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    first = corpus.save(saved_relu(), tmp_path)
    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(UserError, match="No space left on device") as error:
        corpus.save(saved_relu(id="test_second_89abcdef"), tmp_path)
    assert error.value.kind == "disk"
    assert [p.name for p in first.parent.iterdir()] == [first.name], "a draft was left behind"


def test_a_file_where_a_folder_should_be_is_a_user_error(tmp_path):
    (tmp_path / "mnn").touch()
    with pytest.raises(UserError, match="cannot write") as error:
        corpus.save(saved_relu(), tmp_path)
    assert error.value.kind == "disk"


def test_an_update_that_fails_leaves_the_case_as_it_was(folder, monkeypatch):
    before = (folder / "case.json").read_text(encoding="utf-8")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError, match="what was saved before is untouched"):
        corpus.update(corpus.load(folder), status="fixed")
    assert (folder / "case.json").read_text(encoding="utf-8") == before
    assert not list(folder.glob(".case.*")), "a draft was left behind"


def test_an_update_changes_case_json_alone(folder):
    model = (folder / "model.onnx").read_bytes()
    corpus.update(corpus.load(folder), status="fixed", upstream="https://example.org/1")
    loaded = corpus.load(folder)
    assert (loaded.status, loaded.upstream) == ("fixed", "https://example.org/1")
    assert (folder / "model.onnx").read_bytes() == model


@pytest.mark.parametrize("cut", [0, 1, 100, -3])
def test_a_truncated_case_json_is_named(folder, cut):
    path = folder / "case.json"
    path.write_text(path.read_text(encoding="utf-8")[:cut])
    with pytest.raises(UserError, match=r"case\.json: not a whole case\.json") as error:
        corpus.load(folder)
    assert error.value.kind == "case"
    assert error.value.hint


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("schema", 99, "case.json: schema 99"),
        ("status", "odd", "case.status is 'odd': expected one of open, fixed, flaky, expected"),
        ("recipe", None, "missing required field `recipe`"),
        ("recipe", ["KL"], r"case.recipe is \['KL'\]: expected `object`"),
        ("recipe", {"method": [["KL"]]}, r"case.recipe\[...\]\[0\], in {'method': \[\['KL'\]\]}: expected `bool"),
        ("recipe", {"method": {"KL": 1}}, r"case.recipe\[...\], in {'method': {'KL': 1}}: expected `bool"),
        ("verdict", "crashes", "verdict is 'crashes': expected `object`"),
        ("verdict", {"word": "crashes", "message": 3}, "case.verdict.message is 3: expected `str`"),
        ("verdict", {}, "case.verdict is {}: object missing required field `word`"),
        ("verdict", {"word": "fell"}, "case.verdict.word is 'fell': expected one of agrees, diverges"),
        ("verdict", {"word": "crashes", "culprits": 5}, "verdict.culprits is 5: expected `array`"),
        (
            "verdict",
            {"word": "crashes", "culprits": [["a"]]},
            r"verdict.culprits\[0\] is \['a'\]: expected `array` of length 2",
        ),
        ("verdict", {"word": "crashes", "error": "abc"}, "verdict.error is 'abc': expected `float`"),
        ("verdict", {"word": "crashes", "feed": -1}, "verdict.feed is -1: expected `int` >= 0"),
        ("runs", 3, "5 of 3 runs"),
        ("reproduced", -1, "-1 of 5 runs"),
        ("target", 7, "target is 7: expected `str`"),
        ("coarse", [], r"coarse is \[\]: expected `str`"),
        ("fine", 1.5, "fine is 1.5: expected `str`"),
        ("status", {}, r"case.status is {}: expected `str`"),
        ("upstream", 3, "upstream is 3: expected `str`"),
        ("note", False, "note is False: expected `str`"),
        ("rule", [1], r"rule is \[1\]: expected `str`"),
        ("seen", "3.6.1", "seen is '3.6.1': expected `array`"),
        ("not_seen", [3.6], r"not_seen\[0\] is 3.6: expected `str`"),
        ("runs", "5", "runs is '5': expected `int`"),
        ("reproduced", True, "reproduced is True: expected `int`"),
        ("machine", [], r"machine is \[\]: expected `object`"),
        ("origin", "bulk", "origin is 'bulk': expected `object`"),
    ],
)
def test_a_case_json_of_another_form_is_named(folder, key, value, says):
    path = folder / "case.json"
    fields = json.loads(path.read_text(encoding="utf-8")) | {key: value}
    if value is None:
        del fields[key]
    path.write_text(json.dumps(fields))
    with pytest.raises(UserError, match=says) as error:
        corpus.load(folder)
    assert error.value.kind == "case"


@pytest.mark.parametrize("content", ["[]", "3", "null", "[" * 100_000], ids=["list", "number", "null", "deep"])
def test_a_case_json_that_is_no_object_is_named(folder, content):
    (folder / "case.json").write_text(content)
    with pytest.raises(UserError, match=r"not a whole case\.json"):
        corpus.load(folder)


NO_NAMES = ["evilmod:X", "../../escape", "..", ".", "a/b", "/abs", "", "mnn==3.4.1", ".hidden", "a\n", "a..b"]


@pytest.mark.parametrize("target", NO_NAMES)
def test_a_case_cannot_name_code_or_a_path_as_its_target(folder, target):
    path = folder / "case.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"target": target}))
    with pytest.raises(UserError, match="is not the plain name of a registered target"):
        corpus.load(folder)


def test_replaying_a_case_never_imports_what_it_names(folder, tmp_path, monkeypatch):
    (tmp_path / "evilmod.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nX = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = folder / "case.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"target": "evilmod:X"}))
    with pytest.raises(UserError, match="evilmod:X"):
        api.replay([folder], runs=1)
    assert not (tmp_path / "ran").exists(), "the case made the harness import its module"


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("field", ["target", "id"])
def test_a_case_is_never_saved_outside_the_corpus(tmp_path, field, name):
    root = tmp_path / "deep" / "er" / "corpus"
    with pytest.raises(UserError, match="cannot name a folder"):
        corpus.save(saved_relu(**{field: name}), root)
    assert list(tmp_path.iterdir()) == [], "something was written"


def test_a_finding_on_an_unregistered_target_is_saved_and_read_back(tmp_path):
    name = mutants.LOSES_BIAS.name
    loaded = corpus.load(corpus.save(saved_relu(target=name), tmp_path))
    assert (loaded.target, loaded.path) == (name, tmp_path / name / loaded.id)


def test_what_else_is_said_of_the_machine_does_not_matter(folder):
    path = folder / "case.json"
    machine = {"arch": "x86_64", "cpu_features": ["avx2"], "threads": 1}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"machine": machine}))
    assert corpus.load(folder).machine == machine
    assert description().keys() == {"arch", "cpu_features"}


def test_a_case_loaded_from_within_its_folder_keeps_its_id(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert corpus.load(Path(".")).id == folder.name


def test_a_backend_test_that_is_no_saved_case_is_said_to_be_one(tmp_path):
    api.generate(cases=1, seed=0, out=tmp_path)
    folder = tmp_path / "test_000000"
    with pytest.raises(UserError, match="generated or foreign backend test, not a saved case") as error:
        corpus.load(folder)
    assert f"driftnet check {folder}/model.onnx --inputs {folder}/test_data_set_0" in error.value.hint


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_generating_again_leaves_nothing_of_the_earlier_run_in_a_case(tmp_path):
    api.generate(cases=1, seed=1, out=tmp_path / "new")
    stale = tmp_path / "out" / "test_000000" / "test_data_set_99"
    stale.mkdir(parents=True)
    (stale / "input_0.pb").write_bytes(b"stale")
    api.generate(cases=1, seed=1, out=tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["test_000000"], "a draft was left behind"


def test_generating_onto_a_full_disk_is_a_user_error_and_leaves_nothing_partial(tmp_path, monkeypatch):
    api.generate(cases=1, seed=1, out=tmp_path)
    before = contents(tmp_path)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(corpus, "_write_arrays", full)
    with pytest.raises(UserError, match="No space left on device") as error:
        api.generate(cases=2, seed=2, out=tmp_path)
    assert error.value.kind == "disk"
    assert contents(tmp_path) == before, "the earlier case was harmed, or a part of the new one stayed"


def test_the_first_of_two_processes_that_save_one_case_wins(tmp_path):
    folder = tmp_path / "test_x"
    with corpus.whole(folder) as draft:
        (draft / "whose").write_text("the second's")
        folder.mkdir()
        (folder / "whose").write_text("the first's")
    assert (folder / "whose").read_text(encoding="utf-8") == "the first's"
    assert list(tmp_path.iterdir()) == [folder], "a draft was left behind"


@pytest.mark.parametrize("content", [b"", b"hello world", b"\x08\x07\x12", bytes(range(256))])
def test_a_file_that_is_no_model_is_named(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not an ONNX model") as error:
        corpus.read_onnx(path)
    assert error.value.kind == "model"


def test_a_model_that_points_outside_its_folder_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 16)
    inside = tmp_path / "case"
    inside.mkdir()
    model = onnx.ModelProto.FromString(models.relu().model)
    tensor = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (inside / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="points outside its folder"):
        corpus.read_onnx(inside / "model.onnx")


def test_external_data_in_the_models_own_folder_is_read(tmp_path):
    weights = np.arange(2000, dtype=np.float32)
    case = models.case(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": weights},
        {"w": weights},
        outputs=[("y", TensorProto.FLOAT, (2000,))],
    )
    onnx.save(
        onnx.ModelProto.FromString(case.model), tmp_path / "m.onnx", save_as_external_data=True, location="m.data"
    )
    read = corpus.read_onnx(tmp_path / "m.onnx")
    assert np.array_equal(onnx.numpy_helper.to_array(read.graph.initializer[0]), weights)


def test_a_missing_input_file_is_named(folder):
    (folder / "test_data_set_0" / "input_0.pb").unlink()
    with pytest.raises(UserError, match=r"input_0\.pb is missing: the input 'x'"):
        corpus.load(folder)


def test_a_truncated_input_file_is_named(folder):
    path = folder / "test_data_set_0" / "input_0.pb"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"input_0\.pb is not a whole tensor"):
        corpus.load(folder)


def test_drafts_of_other_processes_are_no_cases(folder, tmp_path):
    draft = tmp_path / "mnn" / ".test_other_0.draft"
    draft.mkdir()
    (draft / "model.onnx").write_bytes(b"")
    assert corpus.folders([tmp_path]) == [folder]


def test_what_a_project_has_saved_adds_to_what_came_with_driftnet_and_goes_before_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(corpus, "COMMITTED", tmp_path / "bundled")
    ids = [f"test_relu_{digit * 8}" for digit in "abc"]
    for place, names, changes in (("bundled", ids[:2], {}), ("corpus", ids[1:], {"status": "fixed"})):
        for id in names:
            corpus.save(saved_relu(id=id, **changes), tmp_path / place)

    def known(folder):
        plan = Plan(report=tmp_path / "run", corpus=Path(folder), targets=("mnn",))
        with Runner() as runner:
            kept, examiner = Shard(plan, runner, stopping=lambda: False).keeping, Examiner(runner).knowing(folder)
        states = state.causes(*corpus.known(Path(folder)))
        told = {saved.id: saved.status == "fixed" for one in states.values() for saved in one.cases}
        assert told == {id: id in kept.fixed for id in (*kept.known_issues, *kept.fixed)}
        assert {*kept.known_issues} == {one.id for one in issues(Path(folder))}
        assert ({*kept.known_issues}, {*kept.fixed}) == ({i.id for i in examiner.known_issues}, {*examiner.fixed})
        return sorted(kept.known_issues), sorted(kept.fixed)

    for own in ("corpus", tmp_path / "corpus"):
        assert known(own) == (ids[:1], ids[1:]), f"of {own}"
    assert known("bundled") == (ids[:2], []), "another folder is not alone"
    (tmp_path / "corpus").rename(tmp_path / "other")
    assert known("corpus") == (ids[:2], []), "a project that has saved nothing"
    assert known("other") == ([], ids[1:])


def test_in_a_clone_what_came_with_driftnet_is_known_once(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert corpus.known(Path("corpus")) == (Path("corpus"),)
