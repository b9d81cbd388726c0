"""Focus: what a name given to `focus=` asks for. An operator, a family of operators, a motif, or an operator with a
text for one of its attributes ("Einsum.equation=ij->ji")."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from driftnet.generators.genome import of_code
from driftnet.generators.motifs import MOTIFS, Fragment, spelled, step
from driftnet.generators.ops.table import CODES, OPERATORS, families


def known_focus() -> tuple[str, ...]:
    """Every name that `focus=` understands: operators, then families, then motifs, then operators with a text."""
    return (*CODES, *families(), *MOTIFS, *_spellings())


@lru_cache(maxsize=256)
def fragments(focus: tuple[str, ...]) -> tuple[Fragment, ...]:
    """The fragments that the names ask for, one of which each case is to hold. Raises ValueError for unknown names."""
    found: list[Fragment] = []
    for name in focus:
        if name in MOTIFS:
            found.append(MOTIFS[name])
        elif name in CODES:
            found.append((of_code(CODES[name]),))
        elif name in families():
            found.extend((of_code(CODES[operator]),) for operator in families()[name])
        elif name in _spellings():
            found.append(_spellings()[name])
        else:
            raise ValueError(f"nothing is called {name!r}; there are {_listing()}")
    return tuple(found)


@cache
def _spellings() -> Mapping[str, Fragment]:
    """Every operator with a text for one of its attributes, as the record that states it."""

    def stated(operator: str, **wanted: Any) -> Fragment:
        return (step(operator, **wanted),)

    return {
        spelling(operator, attribute, text): stated(operator, **{attribute: text})
        for operator in CODES
        for attribute, texts in spelled(operator).items()
        for text in texts
    }


def spelling(operator: str, attribute: str, text: str) -> str:
    """How `focus=` calls an operator with this text for that attribute."""
    return f"{operator}.{attribute}={text}"


def operators_of(focus: Sequence[str]) -> frozenset[str]:
    """The operators that the names ask for. Raises ValueError for unknown names."""
    return frozenset(OPERATORS[step.data[0]].name for steps in fragments(tuple(focus)) for step in steps)


def _listing() -> str:
    groups: Sequence[tuple[str, Sequence[str]]] = (
        ("the operators", sorted(CODES)),
        ("the families", sorted(families())),
        ("the motifs", sorted(MOTIFS)),
    )
    return "; ".join(f"{what} {', '.join(names)}" for what, names in groups)
