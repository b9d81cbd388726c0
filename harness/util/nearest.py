"""Names that somebody may have meant: what is nearest to a word that there is not."""

import difflib
from collections.abc import Iterable

from driftnet.util.errors import UserError

MOST = 5
ALIKE = 0.6
"""How alike two words have to be for the one to be meant by the other: difflib's own number."""
SHORT = 3
"""Letters that a name has to have for a longer word to be meant by it."""


def nearest(word: str, known: Iterable[object], *, cutoff: float = ALIKE) -> list[str]:
    """Of the names in `known` those that are like `word`, the nearest first, then those that it begins with, as what is
    written out does with what is cut short; case does not count."""
    lowered, word = {str(name).lower(): str(name) for name in known}, word.lower()
    found = difflib.get_close_matches(word, lowered, MOST, cutoff=cutoff)
    short = [name for name in sorted(lowered, key=len, reverse=True) if len(name) >= SHORT and word.startswith(name)]
    return [lowered[name] for name in dict.fromkeys((*found, *short))][:MOST]


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
