"""Ledgers: each cause is announced once, fixed and back when it is, and states that are merged lose nothing."""

import pytest
from driftnet.campaign import state as states
from driftnet.campaign.ledger import (
    QUIET_NIGHTS,
    Change,
    Ledger,
    Night,
    Status,
    Tracked,
    What,
    announced,
    changed_in,
    looked,
    merged,
)
from driftnet.causes.impact import Severity
from driftnet.causes.releases import BAD, DIFFERS, GOOD, UNTESTABLE
from driftnet.util.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

GIVEN = Tracked("toy", "a title", Severity.WRONG)
FOUND = announced(GIVEN, "1.0", "n1")


def told(cause):
    return [(change.night, change.what, change.release) for change in cause.changes]


def after(cause, *looks):
    """The cause after looks (release, outcome), one a night."""
    for number, (release, outcome) in enumerate(looks, 2):
        cause = looked(cause, release, outcome, f"n{number}")
    return cause


def test_a_cause_is_announced_by_the_night_that_finds_it_and_by_no_later_one():
    assert told(FOUND) == [("n1", What.NEW, "1.0")]
    again = announced(after(FOUND, ("1.0", BAD), ("1.0", BAD)), "1.0", "n4")
    assert told(again) == told(FOUND)
    assert changed_in(Ledger(causes={"c": again}), "n4") == {}
    assert list(changed_in(Ledger(causes={"c": again}), "n1")) == ["c"]


def test_what_a_corpus_knew_is_not_announced():
    assert told(after(GIVEN, ("1.0", BAD), ("1.0", BAD))) == []


def test_it_is_fixed_where_a_release_that_never_showed_it_does_not():
    fixed = after(FOUND, ("2.0", GOOD), ("2.0", GOOD))
    assert told(fixed)[1:] == [("n2", What.FIXED, "2.0")]
    assert fixed.status == Status.FIXED


def test_it_comes_back_where_another_release_shows_it_again_and_not_on_an_old_one():
    back = after(FOUND, ("2.0", GOOD), ("3.0", BAD), ("3.0", BAD))
    assert told(back)[1:] == [("n2", What.FIXED, "2.0"), ("n3", What.BACK, "3.0")]
    old = after(FOUND, ("2.0", GOOD), ("1.0", BAD))
    assert told(old)[1:] == [("n2", What.FIXED, "2.0")]
    assert old.status == Status.OPEN


def test_a_release_that_is_older_than_one_that_showed_it_mends_nothing():
    found = announced(GIVEN, "10.0", "n1")
    older = after(found, ("9.0", GOOD), ("9.0", BAD), ("10.0", BAD))
    assert told(older) == told(found)
    assert older.status == Status.OPEN
    assert told(after(found, ("9.0", GOOD), ("11.0", GOOD)))[1:] == [("n3", What.FIXED, "11.0")]


def test_what_a_night_finds_of_a_fixed_cause_is_back_and_not_new():
    back = announced(after(FOUND, ("2.0", GOOD)), "2.0", "n3")
    assert told(back)[1:] == [("n2", What.FIXED, "2.0"), ("n3", What.BACK, "2.0")]


@pytest.mark.parametrize(("certain", "status"), [(True, Status.FIXED), (False, Status.OPEN)])
def test_on_a_release_that_showed_it_once_may_be_chance(certain, status):
    cause = announced(Tracked("toy", "a title", Severity.WRONG, certain=certain), "1.0", "n1")
    quiet = after(cause, *[("1.0", GOOD)] * (QUIET_NIGHTS - 1))
    assert quiet.status == Status.OPEN
    assert looked(quiet, "1.0", GOOD, "n9").status == status
    assert looked(quiet, "1.0", BAD, "n9").changes == quiet.changes


def test_two_looks_of_one_night_count_as_one_quiet_night():
    cause = FOUND
    for _ in range(QUIET_NIGHTS):
        cause = looked(cause, "1.0", GOOD, "n2")
    assert cause.status == Status.OPEN


def test_it_is_worse_where_a_new_release_fails_more_severely_and_that_is_told_once():
    cause = announced(Tracked("toy", "a title", Severity.ERROR), "1.0", "n1")
    worse = looked(cause, "2.0", f"{DIFFERS}: execute/SIGSEGV", "n2", Severity.CRASH)
    assert told(worse)[1:] == [("n2", What.WORSE, "2.0")]
    again = looked(worse, "2.0", f"{DIFFERS}: execute/SIGSEGV", "n3", Severity.CRASH)
    assert told(again) == told(worse)
    assert worse.severity == Severity.CRASH


def test_a_release_that_is_older_than_one_that_showed_it_makes_nothing_worse():
    cause = announced(Tracked("toy", "a title", Severity.ERROR), "10.0", "n1")
    older, newer = (looked(cause, r, f"{DIFFERS}: execute/SIGSEGV", "n2", Severity.CRASH) for r in ("9.0", "11.0"))
    assert (told(older), older.severity) == (told(cause), Severity.ERROR)
    assert told(newer)[1:] == [("n2", What.WORSE, "11.0")]


def test_a_release_that_cannot_be_asked_changes_nothing():
    for cause in (FOUND, after(FOUND, ("2.0", GOOD))):
        asked = looked(cause, "3.0", f"{UNTESTABLE}: too old", "n9")
        assert (asked.status, asked.changes) == (cause.status, cause.changes)


EMPTY = Ledger()
RELEASES, NAMES = ("1.0", "2.0", "3.0"), ("a", "b", "c")
deeds = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(RELEASES), st.sampled_from((BAD, GOOD, "found"))))


def ledger(deeds, start=EMPTY, *, of):
    """A ledger that goes on from another, a night a deed; `of` tells nights of different machines apart."""
    nights, causes = dict(start.nights), dict(start.causes)
    for number, (name, release, what) in enumerate(deeds):
        night = f"n{len(start.nights) + number:02d}{of}"
        nights[night] = Night(night, number)
        known = causes.get(name, GIVEN)
        causes[name] = announced(known, release, night) if what == "found" else looked(known, release, what, night)
    return Ledger(nights=nights, causes=causes)


@given(deeds, deeds, deeds, deeds)
def test_states_merge_in_any_order_and_any_number_of_times(first, a, b, c):
    start = ledger(first, of="")
    x, y, z = (ledger(more, start, of=name) for more, name in ((a, "x"), (b, "y"), (c, "z")))
    assert merged(x, y) == merged(y, x)
    assert merged(merged(x, y), z) == merged(x, merged(y, z))
    assert merged(merged(x, y), y) == merged(x, y)
    assert merged(x, start) == x


@given(deeds, deeds)
def test_what_is_merged_loses_no_cause_no_release_and_no_night_and_announces_nothing_twice(a, b):
    x, y = ledger(a, of="x"), ledger(b, of="y")
    both = merged(x, y)
    assert {*both.causes} == {*x.causes, *y.causes}
    assert {*both.nights} == {*x.nights, *y.nights}
    for name, cause in both.causes.items():
        parts = [one.causes[name] for one in (x, y) if name in one.causes]
        assert {*cause.looks} == {release for part in parts for release in part.looks}
        assert {*cause.bad} == {release for part in parts for release in part.bad}
        assert sum(change.what == What.NEW for change in cause.changes) <= 1, cause.changes
        others = {change for part in parts for change in part.changes if change.what != What.NEW}
        assert others <= {*cause.changes}


def test_a_state_is_read_as_it_was_written(tmp_path):
    kept = ledger([("a", "1.0", "found"), ("b", "2.0", GOOD), ("a", "2.0", GOOD)], of="")
    states.save(tmp_path, kept)
    assert states.load(tmp_path) == kept
    assert kept.causes["a"].changes[0] == Change("n00", What.NEW, "1.0")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 2}', '{"schema": 1, "causes": {"a": 1}}'])
def test_a_state_that_is_not_whole_is_told_and_not_taken_for_an_empty_one(tmp_path, text):
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        states.load(tmp_path)
    assert raised.value.kind == "state"
