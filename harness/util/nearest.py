"""Names that somebody may have meant: what is nearest to a word that there is not."""

import difflib
from collections.abc import Iterable

from driftnet.util.errors import UserError

MOST = 5
ALIKE = 0.6
"""How alike two words have to be for the one to be meant by the other: difflib's own number."""


def nearest(word: str, known: Iterable[object], *, cutoff: float = ALIKE) -> list[str]:
    """Of the names in `known` those that are like `word`, the nearest first; case does not count."""
    lowered = {str(name).lower(): str(name) for name in known}
    return [lowered[name] for name in difflib.get_close_matches(word.lower(), lowered, MOST, cutoff=cutoff)]


def meant(word: str, known: Iterable[object], otherwise: str, *, cutoff: float = ALIKE) -> str:
    """A question that names what may be meant by `word`; where nothing is like it, what to say otherwise."""
    found = nearest(word, known, cutoff=cutoff)
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def demand(words: Iterable[str], known: Iterable[object], what: str, otherwise: str, *, kind: str = "option") -> None:
    """Raise UserError for the first of `words` that is not known: `what`, formatted with it, and `meant`."""
    there = [*known]
    for word in words:
        if word not in there:
            raise UserError(what.format(word), hint=meant(word, there, otherwise), kind=kind)
