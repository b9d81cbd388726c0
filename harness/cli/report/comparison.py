"""What a target answers beside what it should: element by element, with those that are wrong marked."""

from dataclasses import dataclass

import numpy as np
from driftnet.api import Answer
from driftnet.findings.corpus import SavedCase
from driftnet.model.arrays import distance

MOST_ELEMENTS = 64
"""Of an output, those that are shown: all, or the ones that are furthest off."""


@dataclass(frozen=True)
class Element:
    """One element of an output: where it stands, both values as text, how far off, and whether it counts as wrong."""

    at: str
    expected: str
    actual: str
    error: str
    wrong: bool
    worst: bool


@dataclass(frozen=True)
class Comparison:
    """One output of one feed. form: of both, where that differs, then there are no elements to compare."""

    output: str
    feed: int
    form: str
    elements: tuple[Element, ...] = ()
    left_out: int = 0
    wrong: int = 0


def compared(saved: SavedCase, answer: Answer) -> list[Comparison]:
    """Each output that is not what it should be, bit by bit; none where nothing came out."""
    pairs = [
        (name, k, right, actual.get(name))
        for k, (expected, actual) in enumerate(zip(saved.expected, answer.outputs))
        for name, right in expected.items()
    ]
    failed = answer.verdict.failed  # of a failure that comes and goes what is off in a run that agrees is rounding
    found = (_compared(saved, name, k, right, actual, failed) for name, k, right, actual in pairs)
    return [one for one in found if one]


def _compared(saved: SavedCase, name: str, feed: int, right: object, actual: object, failed: bool) -> Comparison | None:
    should = np.asarray(right)
    if actual is None:
        return Comparison(name, feed, f"{_form(should)} was expected, and nothing came out")
    given = np.asarray(actual)
    if (given.shape, given.dtype) != (should.shape, should.dtype):
        return Comparison(name, feed, f"{_brief(should)} was expected, not {_brief(given)}")
    error = distance(given, should)
    if not error.any():
        return None
    ours = (name, feed) == (saved.verdict.output, saved.verdict.feed)
    bound = float(saved.verdict.bound) if ours else 0.0
    wrong = (error > bound) & failed
    furthest = np.argsort(-error.ravel(), kind="stable")[:MOST_ELEMENTS]
    order = sorted(furthest, key=lambda i: (not wrong.ravel()[i], i))  # those that are wrong first
    worst = tuple(saved.verdict.at or ()) if ours else ()
    elements = tuple(_element(should, given, error, wrong, np.unravel_index(i, error.shape), worst) for i in order)
    return Comparison(name, feed, "", elements, error.size - len(elements), int(wrong.sum()))


def _element(
    should: np.ndarray, given: np.ndarray, error: np.ndarray, wrong: np.ndarray, at: tuple[np.intp, ...], worst: object
) -> Element:
    place = tuple(map(int, at))
    texts = (str(list(place)) if place else "the value", f"{should[at]}", f"{given[at]}", f"{error[at]:.3g}")
    return Element(*texts, bool(wrong[at]), place == worst and bool(place))


def _form(x: np.ndarray) -> str:
    return f"{x.dtype}{list(x.shape)}"


def _brief(x: np.ndarray) -> str:
    with np.printoptions(threshold=8, edgeitems=3):
        return f"{_form(x)} {' '.join(str(x).split())}"
