"""Focus: what a name given to `focus=` asks for. An operator, a family of operators or a motif."""

from collections.abc import Sequence
from functools import lru_cache

from driftnet.generators.genome import of_code
from driftnet.generators.motifs import MOTIFS, Fragment
from driftnet.generators.ops.table import CODES, OPERATORS, families


def known_focus() -> tuple[str, ...]:
    """Every name that `focus=` understands: operators, then families, then motifs."""
    return (*CODES, *families(), *MOTIFS)


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
        else:
            raise ValueError(f"nothing is called {name!r}; there are {_listing()}")
    return tuple(found)


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
