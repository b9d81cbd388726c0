"""One rule for many things: every one is asked, and the test fails once with all that do not keep it."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Thing = TypeVar("Thing")


def assert_each(things: Iterable[Thing], rule: Callable[[Thing], None], named: Callable[[Thing], object] = str) -> None:
    """Asks `rule`, which raises for what does not keep it, of each of `things`; there has to be one at least.

    The message has a line for each thing that broke the rule: what it is, and what the rule said of it.
    """
    asked, broken = 0, []
    for thing in things:
        asked += 1
        try:
            rule(thing)
        except (Exception, pytest.fail.Exception) as error:
            broken.append(f"{named(thing)}: {_told(error)}")
    assert asked, "a rule that is asked of nothing says nothing: its list of things is empty"
    assert not broken, f"{len(broken)} of {asked} break the rule:\n" + "\n".join(broken)


def _told(error: BaseException) -> str:
    """An assertion's own words, without what pytest adds to them; of any other exception its type too."""
    words = str(error).partition("\nassert ")[0].strip()
    return words if isinstance(error, AssertionError | pytest.fail.Exception) else f"{type(error).__name__}: {words}"
