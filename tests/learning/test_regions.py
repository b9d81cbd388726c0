"""Regions are learned from labelled facts alone."""

from __future__ import annotations

from random import Random

import numpy as np
from driftnet.causes.facts import Facts, Value
from driftnet.causes.predicate import Atom, Shape, Trigger
from driftnet.learning.regions import Data, learn

DTYPES = ("float", "uint8", "int64")


def drawn(count: int, seed: int = 1) -> list[dict[str, Value]]:
    """Facts at random, of which none has anything to do with another."""
    rng = Random(seed)
    return [
        {
            "0.attr.strides.stated": rng.random() < 0.5,
            "0.in.0.dtype": rng.choice(DTYPES),
            "0.in.0.rank": rng.randrange(1, 6),
            **{f"0.in.{k}.dim.{axis}": rng.randrange(1, 9) for k in range(2) for axis in range(4)},
            **{f"0.in.{k}.zero": rng.random() < 0.5 for k in range(4)},
        }
        for _ in range(count)
    ]


def learned(fails, count: int = 200) -> Trigger:
    """The trigger that is learned of `fails`, the first row a failure."""
    rows = sorted(drawn(count), key=lambda row: not fails(row))
    data = Data(rows, np.array([fails(row) for row in rows]), np.ones(count))
    return Trigger(Shape(), learn(data))


def errors(trigger: Trigger, fails) -> int:
    """Of 300 fresh rows."""
    return sum((trigger.holds(row) is True) != fails(row) for row in drawn(300, seed=2))


def test_one_condition_is_one_atom() -> None:
    def fails(row: Facts) -> bool:
        return row["0.attr.strides.stated"] is False

    trigger = learned(fails)
    assert [region.atoms for region in trigger.regions] == [(Atom("0.attr.strides.stated", "is", False),)]


def test_a_conjunction_is_found_whole() -> None:
    def fails(row: Facts) -> bool:
        return row["0.in.0.dtype"] == "uint8" and row["0.in.0.rank"] >= 3 and not row["0.in.1.zero"]

    trigger = learned(fails)
    assert errors(trigger, fails) == 0, f"learned {trigger.regions}"
    assert len(trigger.regions) == 1


def test_two_conditions_are_two_regions() -> None:
    def fails(row: Facts) -> bool:
        return (row["0.in.0.dtype"] == "uint8" and row["0.in.0.rank"] == 2) or (
            row["0.in.0.dtype"] == "int64" and row["0.in.3.zero"] is True
        )

    trigger = learned(fails, 400)
    assert errors(trigger, fails) <= 3, f"learned {trigger.regions}"
    assert len(trigger.regions) == 2


def test_labels_that_hang_on_nothing_give_a_first_region_and_hardly_more() -> None:
    rng = Random(5)
    rows = drawn(200)
    data = Data(rows, np.array([k == 0 or rng.random() < 0.05 for k in range(200)]), np.ones(200))
    assert len(learn(data)) <= 3


def test_what_was_never_seen_not_to_fail_needs_no_atom() -> None:
    rows = drawn(20)
    assert [region.atoms for region in learn(Data(rows, np.ones(20, bool), np.ones(20)))] == [()]
