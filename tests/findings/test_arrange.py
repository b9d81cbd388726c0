"""Arranging a corpus: which cases stand for a cause, and nothing that people said is lost."""

import itertools
from pathlib import Path
from random import Random

import pytest
from driftnet import api
from driftnet.causes import record
from driftnet.causes.impact import Severity
from driftnet.causes.place import Where
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.causes.record import CauseRecord
from driftnet.causes.upstream import is_link
from driftnet.commands import triage as commands
from driftnet.findings import arrange, corpus
from driftnet.targets import environments
from driftnet.util.errors import UserError

from tests.findings.test_corpus import saved_relu


def named(digits, **changes):
    """A saved case whose id ends with these digits."""
    return saved_relu(id=f"test_mnn_relu_{digits:08x}", fine=f"fine {digits}", note=f"note {digits}", **changes)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "corpus"


def caused(root, id, *digits, **said):
    """A cause whose variants are the cases with these digits, all of which are kept; its folder."""
    folder = root / "mnn" / f"mnn_relu_{id}"
    folder.mkdir(parents=True)
    trigger = Trigger(Shape(), (Region((Atom("0.op", "is", "Relu"),)),))
    record.save(CauseRecord(folder.name, "mnn", f"cause {id}", Severity.WRONG, trigger, **said), folder)
    for one in digits:
        (place := folder / f"test_mnn_relu_{one:08x}").mkdir()
        corpus.write(named(one), place)
    return folder


def joined(root, *digits, **marks):
    """A cause that cases join one after the other, as they come; marks: of each what is said of it, by its digit."""
    first, *rest = (corpus.load(corpus.save(named(one, **marks.get(f"of_{one}", {})), root)) for one in digits)
    home = arrange.found(first, {}, root).parent
    for saved in rest:
        arrange.joined(saved, {"trigger": None, "place": Where(), "score": {}}, record.load(home), root)
    return home


def causes(root):
    """Cause -> its variants and what is listed of others, by their last digit."""
    found = {}
    for path in sorted(root.glob("*/*/cause.json")):
        cause = record.load(path.parent)
        variants = [int(folder.name[-8:], 16) for folder in corpus.folders([path.parent])]
        found[cause.id] = (variants, sorted(int(id[-8:], 16) for id in cause.merged))
    return found


def lying_loose(root):
    return [int(saved.id[-8:], 16) for saved in corpus.load_all(root) if saved.cause is None]


def test_cases_become_variants_of_a_cause_of_which_four_are_kept_and_no_note_is_lost(root):
    corpus.save(named(7), root)
    cause = record.load(joined(root, 1, 2, 3, 4, 5, 6))
    kept = [saved for saved in corpus.load_all(root) if saved.cause]
    assert len(kept) == arrange.VARIANTS
    notes = {saved.note for saved in kept} | set(cause.merged.values())
    assert notes == {f"note {digits}" for digits in range(1, 7)}
    assert lying_loose(root) == [7]


def test_a_case_that_somebody_marked_is_always_kept(root):
    marks = {"of_2": {"status": "flaky"}, "of_4": {"remedy": {"memory": "low"}}, "of_6": {"upstream": "https://x/1"}}
    home = joined(root, *range(1, 10), **marks)
    ((variants, merged),) = causes(root).values()
    assert {1, 2, 4, 6} <= set(variants), "the smallest and the marked ones"
    assert sorted([*variants, *merged]) == [*range(1, 10)]
    cause = record.load(home)
    assert (cause.upstream, cause.remedy, cause.status) == ("https://x/1", {"memory": "low"}, "open")


def test_a_cause_states_what_was_learned_of_a_case_that_stands_for_it(root):
    def learned(op, accuracy=1.0):
        trigger = Trigger(Shape(), (Region((Atom("0.op", "is", op),)),))
        return {"trigger": trigger, "place": Where(), "score": {"instances": 20, "accuracy": accuracy}}

    ids = [f"test_mnn_relu_{digits:08x}" for digits in range(1, 6)]
    gone = learned("Einsum")
    told = {id: learned(f"Op{k}", k / 10) for k, id in enumerate(ids, 1)} | {ids[4]: gone}
    folder = caused(root, "aaaaaaaa", *range(1, 6))
    findings = {id: record.finding(*one.values()) for id, one in told.items()}
    cause = record.update(record.load(folder), trigger=gone["trigger"], score=gone["score"], findings=findings)
    late = corpus.load(corpus.save(named(6), root))
    arrange.joined(late, gone, cause, root)
    cause = record.load(folder)
    assert set(cause.merged) == {ids[4], late.id}, "of what it is told by no case is kept"
    assert (cause.sentence[:3], cause.score["accuracy"]) == ("Op4", 0.4), "the best of what is known of the four"


def test_releases_of_cases_that_are_not_kept_are_those_of_the_cause(root):
    seen = {f"of_{k}": {"seen": (f"3.{k}.0", "3.10.0"), "not_seen": ("3.1.0", "2.9")} for k in range(1, 7)}
    cause = record.load(joined(root, *range(1, 7), **seen))
    assert cause.seen == ("3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0", "3.10.0")
    assert cause.not_seen == ("2.9",)


def test_what_cannot_be_written_leaves_everything_as_it_was(two, monkeypatch):
    before = {path: path.read_bytes() for path in two.rglob("*") if path.is_file()}
    monkeypatch.setattr(record, "replace_text", lambda *args: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(UserError, match="what was saved before is untouched"):
        triage(two, "aaaaaaaa", merge="bbbbbbbb")
    assert {path: path.read_bytes() for path in two.rglob("*") if path.is_file()} == before


@pytest.fixture
def two(root):
    """Two causes of two variants each, and a loose case."""
    caused(root, "aaaaaaaa", 1, 2)
    caused(root, "bbbbbbbb", 3, 4)
    corpus.save(named(5), root)
    return root


def test_what_is_no_link_is_not_taken_for_a_report(root):
    assert [is_link(said) for said in ("https://x/1", "near http://x/2", "none found (2026-11-22)")] == [True] * 3
    with pytest.raises(UserError, match="'notaurl' is no link"):
        api.triage(str(root / "mnn_relu_aaaaaaaa"), upstream="notaurl", root=str(root))


def triage(root, name, **given):
    paths = {key: Path(given.pop(key)) for key in ("merge", "split") if key in given}
    return api.triage(Path(name), root=root, **paths, **given)


def test_what_a_person_merges_is_one_cause(two):
    triage(two, "aaaaaaaa", merge="bbbbbbbb")
    triage(two, "aaaaaaaa", merge="00000005")
    expected = {"mnn_relu_aaaaaaaa": ([1, 2, 3, 4], [5])}
    assert (causes(two), lying_loose(two)) == (expected, [])


def test_causes_that_are_merged_keep_what_was_learned_of_each(two):
    learned = {}
    for digits, op in (("aaaaaaaa", "Relu"), ("bbbbbbbb", "Neg")):
        trigger = Trigger(Shape(), (Region((Atom("0.op", "is", op),)),))
        record.update(record.load(two / "mnn" / f"mnn_relu_{digits}"), trigger=trigger)
        learned[f"test_mnn_relu_{digits}"] = trigger
    triage(two, "aaaaaaaa", merge="bbbbbbbb")
    both = record.load(two / "mnn" / "mnn_relu_aaaaaaaa")
    assert {id: own.trigger for id, own in both.each.items()} == learned


@pytest.mark.parametrize(("status", "sort"), [("flaky", "heap"), ("open", "crash")])
def test_what_comes_and_goes_in_two_functions_crashes_anywhere_once_they_are_merged(two, status, sort):
    for digits, function in (("aaaaaaaa", "Tensor::~Tensor"), ("bbbbbbbb", "Variable::setName")):
        record.update(record.load(two / "mnn" / f"mnn_relu_{digits}"), place=Where("crash", (function,)))
    triage(two, "aaaaaaaa", status=status)
    triage(two, "aaaaaaaa", merge="bbbbbbbb")
    assert record.load(two / "mnn" / "mnn_relu_aaaaaaaa").place.sort == sort


def test_what_a_person_splits_off_lies_loose_until_it_is_merged_again(two):
    result = triage(two, "aaaaaaaa", split="00000002")
    assert result["cases"] == ["test_mnn_relu_00000001"]
    assert (causes(two)["mnn_relu_aaaaaaaa"], lying_loose(two)) == (([1], []), [2, 5])
    triage(two, "aaaaaaaa", merge="00000002")
    assert [variants for variants, _ in causes(two).values()] == [[1, 2], [3, 4]], "merged again"


def test_two_loose_cases_can_be_merged(root):
    for digits in (1, 2):
        corpus.save(named(digits), root)
    result = triage(root, "00000002", merge="00000001", note="one bug")
    assert causes(root) == {"mnn_relu_00000002": ([1, 2], [])}
    assert (result["id"], result["note"]) == ("mnn_relu_00000002", "one bug")


def test_whatever_people_say_no_case_is_lost(root):
    random, all_ = Random(1), range(1, 11)
    for digits in all_:
        corpus.save(named(digits, status="flaky" if digits % 3 == 0 else "open"), root)
    for step in range(8):
        largest, *others = sorted(causes(root), key=lambda id: -len(causes(root)[id][0])) or [None]
        if step % 3 == 2:
            triage(root, largest, split=f"{causes(root)[largest][0][0]:08x}")
        else:
            loose = [f"{digits:08x}" for digits in random.sample(lying_loose(root), 2)]
            triage(root, largest or loose[0], merge=others[0] if others and step % 2 else loose[1])
        variants, merged = (list(itertools.chain(*found)) for found in zip(*causes(root).values()))
        assert sorted([*variants, *merged, *lying_loose(root)]) == list(all_), f"after step {step}"
        assert not [d for d in merged if d % 3 == 0], "a marked case is not kept"


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("aaaaaaaa", {}, "triage was told nothing"),
        ("aaaaaaaa", {"merge": "aaaaaaaa"}, "are one cause already"),
        ("aaaaaaaa", {"merge": "00000002"}, "are one cause already"),
        ("aaaaaaaa", {"merge": "cccccccc"}, "there is no cause and no case 'cccccccc'"),
        ("aaaaaaaa", {"split": "00000003"}, "has no case 00000003"),
        ("00000005", {"split": "00000005"}, "is all that there is of it"),
    ],
)
def test_what_cannot_be_merged_or_split_is_said_and_changes_nothing(two, name, given, says):
    before = causes(two)
    with pytest.raises(UserError, match=says):
        triage(two, name, **given)
    assert causes(two) == before


def test_a_status_is_that_of_a_cause_with_its_variants_or_of_one_case(two):
    assert triage(two, "aaaaaaaa", status="fixed")["status"] == "fixed"
    assert {saved.status for saved in corpus.load_all(two / "mnn" / "mnn_relu_aaaaaaaa")} == {"fixed"}
    triage(two, "00000003", status="fixed")
    assert record.load(two / "mnn" / "mnn_relu_bbbbbbbb").status == "open", "its other variant is"
    triage(two, "00000004", status="expected", note="documented")
    assert record.load(two / "mnn" / "mnn_relu_bbbbbbbb").status == "expected"
    assert corpus.load(two / "mnn" / "mnn_relu_bbbbbbbb" / "test_mnn_relu_00000004").rule == "documented"


def test_a_flaky_variant_of_a_cause_that_is_open_stays_flaky(root):
    home = joined(root, 1, 2, of_1={"status": "fixed"}, of_2={"status": "flaky", "reproduced": 3})
    triage(root, home.name, status="open")
    assert [saved.status for saved in corpus.load_all(root)] == ["open", "flaky"]


def test_a_cause_outside_the_corpus_is_brought_into_it(two):
    other = two.parent / "mine"
    result = api.triage(two / "mnn" / "mnn_relu_aaaaaaaa", note="here too", root=other)
    assert (causes(other), result["note"]) == ({"mnn_relu_aaaaaaaa": ([1, 2], [])}, "here too")
    assert record.load(two / "mnn" / "mnn_relu_aaaaaaaa").note == "", "the other corpus was changed"


def test_a_case_is_studied_on_the_newest_release_it_was_seen_in_where_its_target_is_not_installed(root, monkeypatch):
    asked = []

    def resolve(word):
        asked.append(word)
        raise UserError("no index can be reached", kind="environment")

    monkeypatch.setattr(commands, "resolve", resolve)
    monkeypatch.setattr(environments, "is_installed", lambda name: False)
    elsewhere = corpus.save(named(1, seen=("3.4.1", "3.10.0", "3.6.1")), root.parent / "checked")
    told = api.triage(elsewhere, note="new", root=root)
    assert asked == ["mnn==3.10.0"]
    assert Path(told["path"]) == root / "mnn" / elsewhere.name, "where it cannot be studied, it is brought all the same"


def test_a_cause_that_is_called_after_a_case_which_it_has_no_more_stays(two):
    cause = two / "mnn" / "mnn_relu_aaaaaaaa"
    stays = [corpus.load(path).id for path in corpus.folders([cause])]
    other = corpus.load(corpus.save(named(0xAAAAAAAA), two))
    there = arrange.found(other, {}, two)
    assert [corpus.load(path).id for path in corpus.folders([cause])] == stays
    assert corpus.load(there).cause.id not in ("mnn_relu_aaaaaaaa", "mnn_relu_bbbbbbbb")


def test_a_case_that_was_brought_loose_is_given_its_cause_there_too(two):
    other, (first, *_) = two.parent / "mine", corpus.folders([two / "mnn" / "mnn_relu_aaaaaaaa"])
    saved = corpus.load(first)
    corpus.save(saved, other)
    assert [one.cause for one in corpus.load_all(other)] == [None]
    there = arrange.brought(first, other)
    assert [(one.path, one.cause.id) for one in corpus.load_all(other)] == [(there, saved.cause.id)]


def test_a_case_that_was_split_off_stays_loose_when_its_variant_is_brought_from_elsewhere(two):
    elsewhere = two.parent / "mine"
    arrange.brought(two / "mnn" / "mnn_relu_aaaaaaaa", elsewhere)
    triage(two, "aaaaaaaa", split="00000002")
    there = arrange.brought(elsewhere / "mnn" / "mnn_relu_aaaaaaaa" / "test_mnn_relu_00000002", two)
    assert there == two / "mnn" / "test_mnn_relu_00000002", f"{there} is where it lies, should be loose"
    assert (causes(two)["mnn_relu_aaaaaaaa"], lying_loose(two)) == (([1], []), [2, 5])


def test_what_a_run_wrote_for_maintainers_is_not_brought_into_a_corpus(two):
    cause = two / "mnn" / "mnn_relu_aaaaaaaa"
    for folder in corpus.folders([cause]):
        (folder / "ISSUE.md").write_text("a report")
        (folder / "without_trigger").mkdir()
    other = two.parent / "mine"
    arrange.brought(cause, other)
    arrange.brought(corpus.folders([two / "mnn" / "mnn_relu_bbbbbbbb"])[0], other)
    names = {path.name for folder in corpus.folders([other]) for path in folder.iterdir()}
    assert names == {"case.json", "model.onnx", "test_data_set_0"}
    assert [saved.answer for saved in corpus.load_all(cause)] == [
        s.answer for s in corpus.load_all(other / "mnn" / cause.name)
    ]


def test_a_cause_that_is_written_anew_keeps_the_model_that_it_was_grown_to(two):
    first, other = (two / "mnn" / f"mnn_relu_{letter * 8}" for letter in "ab")
    for folder in (first, other):
        (folder / "grown").mkdir()
        (folder / "grown" / "model.onnx").write_bytes(folder.name.encode())
        record.update(record.load(folder), grown={"of": folder.name})
    arrange.merge(first, other, two)
    assert (first / "grown" / "model.onnx").read_bytes() == first.name.encode()
    assert record.load(first).grown == {"of": first.name}


def test_a_cause_whose_grown_model_is_gone_tells_of_none(two):
    first, other = (two / "mnn" / f"mnn_relu_{letter * 8}" for letter in "ab")
    record.update(record.load(first), grown={"of": "test_x"})
    arrange.merge(first, other, two)
    assert record.load(first).grown == {}
