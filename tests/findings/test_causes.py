"""Causes on disk: their records, the cases below them, and how both are named."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from driftnet import api
from driftnet.causes import record
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.causes.record import CauseRecord, Severity
from driftnet.findings import corpus
from driftnet.findings.arrange import loose
from driftnet.findings.corpus import FIRST_SEEN
from driftnet.findings.issues import issues
from driftnet.findings.names import called, located, located_case, namesake
from driftnet.util.errors import UserError

from tests.findings.test_corpus import saved_relu

TRIGGER = Trigger(
    Shape(2, frozenset({(1, 0)})),
    (Region((Atom("0.op", "in", ("MaxPool", "AveragePool")), Atom("0.attr.strides", "is", (2, 2)))),),
)
CAUSE = CauseRecord(
    "mnn_relu_aaaaaaaa",
    "mnn",
    "Relu: wrong values",
    Severity.WRONG,
    trigger=TRIGGER,
    tried=("opset",),
    place=Where("crash", ("f", "g")),
    impact={"exposure": 0.25, "artificial": False},
    seen=("3.6.1",),
    remedy={"memory": "low"},
    merged={"test_relu_bbbbbbbb": "in a Loop too"},
    together=("test_relu_cccccccc",),
    apart=("test_relu_dddddddd",),
)


def written(root, cause=CAUSE, cases=("test_relu_aaaaaaaa", "test_relu_01234567")):
    """A cause with these cases below `root`."""
    folder = root / cause.target / cause.id
    folder.mkdir(parents=True)
    record.save(cause, folder)
    for id in cases:
        corpus.save(saved_relu(id=id), root).rename(folder / id)
    return folder


@pytest.fixture
def cause(tmp_path):
    return written(tmp_path / "corpus")


def test_a_cause_reads_back_as_it_was(cause):
    loaded = record.load(cause)
    assert dataclasses.replace(loaded, path=None).__dict__ == CAUSE.__dict__


def test_a_cause_says_its_trigger_in_words_and_counts_what_was_merged(cause):
    said = json.loads((cause / "cause.json").read_text(encoding="utf-8"))
    assert said["sentence"] == "MaxPool, AveragePool → any operator: MaxPool, AveragePool `strides` = [2, 2]; any opset"
    assert said["count"] == len(said["merged"]) == 1


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("severity", "ugly", "expected one of wrong, crash, hang, error, refusal"),
        ("status", "done", "expected one of open, fixed, flaky, expected"),
        ("trigger", {"roles": 1}, "cause.trigger is no trigger: KeyError 'edges'"),
        ("trigger", [], r"cause\.trigger is \[\]: expected `object`"),
        ("title", None, "title is None"),
        ("target", "evil:module", "not the plain name of a registered target"),
        ("schema", 2, "schema 2, this driftnet reads 1"),
    ],
)
def test_a_cause_json_of_another_form_is_named(cause, key, value, says):
    path = cause / "cause.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {key: value}))
    with pytest.raises(UserError, match=says) as error:
        record.load(cause)
    assert (error.value.kind, bool(error.value.hint)) == ("cause", True)
    with pytest.raises(UserError, match=says):
        corpus.load(cause / "test_relu_aaaaaaaa")


def test_a_variant_knows_its_cause_and_a_loose_case_has_none(cause):
    root = cause.parents[1]
    loose = corpus.save(saved_relu(id="test_relu_eeeeeeee"), root)
    found = {saved.id: saved.cause.title if saved.cause else "" for saved in corpus.load_all(root)}
    assert found == {"test_relu_aaaaaaaa": CAUSE.title, "test_relu_01234567": CAUSE.title, loose.name: ""}
    assert [issue.id for issue in issues(root)] == sorted(found, key=list(found).index)


def test_what_is_saved_as_a_variant_is_not_saved_again_beside_its_cause(cause):
    root = cause.parents[1]
    assert corpus.save(saved_relu(id="test_relu_01234567"), root) == cause / "test_relu_01234567"
    assert [path.name for path in (root / "mnn").iterdir()] == [cause.name]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("mnn_relu_aaaaaaaa", ""),
        ("aaaaaaaa", ""),
        ("test_relu_aaaaaaaa", "test_relu_aaaaaaaa"),
        ("test_relu_01234567", "test_relu_01234567"),
        ("01234567", "test_relu_01234567"),
    ],
)
def test_a_cause_or_case_is_named_by_its_id_or_the_digits_at_its_end(cause, monkeypatch, name, where):
    monkeypatch.chdir(cause.parents[2])
    found = located(cause.relative_to(cause.parents[2]) / where)
    assert located(type(cause)(name)) == found, f"{name} names {located(type(cause)(name))}, should be {found}"


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("mnn_relu_aaaaaaaa", ""),
        ("aaaaaaaa", ""),
        ("test_relu_01234567", "test_relu_01234567"),
        ("01234567", "test_relu_01234567"),
    ],
)
def test_behind_the_folder_of_a_report_elsewhere_a_name_is_looked_for_in_that(
    cause, tmp_path, monkeypatch, name, where
):
    report = tmp_path / "elsewhere"
    shutil.copytree(cause.parents[1], report / "cases")
    monkeypatch.chdir(tmp_path)
    found = located(report / name)
    assert found == report / "cases" / cause.relative_to(cause.parents[1]) / where, f"{report / name} names {found}"
    assert located(report / "cases" / name) == found, "the folder of its cases is a corpus"
    assert located(type(cause)(called(found))) == found, f"{called(found)} is what a run says of it"
    assert located(report / "zzzzzzzz") == report / "zzzzzzzz"


def test_a_path_that_there_is_not_is_looked_for_in_a_report_or_a_corpus_only(cause):
    deeper = cause.parents[2] / "01234567"
    assert located(deeper) == deeper, "everything below the parent of a mistyped path is searched"
    assert located(type(cause)("/01234567")) == type(cause)("/01234567")


def test_of_a_cause_the_smallest_variant_is_taken_where_one_case_is_asked_for(cause, monkeypatch):
    monkeypatch.chdir(cause.parents[2])
    taken = located_case(type(cause)("aaaaaaaa"))
    assert taken.resolve() == cause / "test_relu_01234567"
    assert namesake(type(cause)("aaaaaaaa"), taken).name == "test_relu_aaaaaaaa", "it has the digits that were said"
    assert namesake(type(cause)("01234567"), taken) is None


def test_a_title_names_the_operator_unless_somebody_has_said_more():
    told = {"": "Relu: wrong values when running", f"{FIRST_SEEN}a crash": "Relu: wrong values when running"}
    told["Relu forgets zero\nand more"] = "Relu forgets zero"
    for note, title in told.items():
        saved = saved_relu(note=note)
        assert (saved.title, loose(saved).title) == (title, title), f"of the note {note!r}"


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("aaaaaaab", "there is no cause and no case 'aaaaaaab'", "did you mean aaaaaaaa"),
        ("test_relu_0123456", "no case 'test_relu_0123456'", "did you mean test_relu_01234567"),
        ("zzzz", "no case 'zzzz'", "8 hex digits"),
        ("bbbbbbbb", "test_relu_bbbbbbbb was merged into mnn_relu_aaaaaaaa", "name that cause: aaaaaaaa"),
    ],
)
@pytest.mark.parametrize("command", ["replay", "triage", "reduce", "report", "generate"])
def test_every_command_says_which_name_comes_nearest(cause, monkeypatch, tmp_path, command, name, says, hint):
    monkeypatch.chdir(cause.parents[2])
    path, out = type(cause)(name), tmp_path / "out"
    calls = {
        "replay": lambda: api.replay([path]),
        "triage": lambda: api.triage(path, status="fixed"),
        "reduce": lambda: api.reduce(path, out=out),
        "report": lambda: api.report([path], out=out),
        "generate": lambda: api.generate(cases=1, seed=0, out=out, seeds=[path]),
    }
    with pytest.raises(UserError, match=says) as error:
        calls[command]()
    assert hint in error.value.hint


def test_a_cause_is_replayed_with_all_its_variants(cause, monkeypatch):
    monkeypatch.chdir(cause.parents[2])
    result = api.replay([type(cause)("aaaaaaaa")], runs=1)
    assert [case["id"] for case in result["cases"]] == ["test_relu_01234567", "test_relu_aaaaaaaa"]


def test_counts_of_a_score_are_written_as_they_were_read():
    (path, *_) = sorted(Path("corpus").glob("*/*/cause.json"))
    fields = json.loads(path.read_text(encoding="utf-8")) | {"score": {"instances": 452, "accuracy": 0.5}}
    told = record.of_json(fields, path.parent.name).as_json()["score"]
    assert json.dumps(told) == '{"instances": 452, "accuracy": 0.5}'
