"""The Hypothesis face of the decoder: `@given(case=cases(focus="ConvTranspose"))`."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from generators.builder import HEADER, RECORD
from generators.case import Case
from generators.focus import fragments
from generators.genome import Genome, decode
from generators.graph import build
from generators.motifs import MOTIFS, Fragment

POOL = 64
"""Bytes for numbers. Read in a circle, so tensors larger than this repeat themselves, which costs no bug seen so far."""

_record = st.binary(min_size=RECORD, max_size=RECORD)
_pool = st.binary(min_size=POOL, max_size=POOL)
_header = st.binary(min_size=HEADER, max_size=HEADER)


def _filled(fragment: Fragment, noise: Sequence[bytes]) -> tuple[bytes, ...]:
    """The fragment as records, the bytes it leaves open taken from `noise`; a step is left out where its first is zero.

    So the shrinker can delete single steps of a motif, and one use in 256 lacks one: a mutation.
    """
    return tuple([template.filled(bytes_) for template, bytes_ in zip(fragment, noise) if bytes_[0] or len(fragment) == 1])


def _uses(fragment: Fragment) -> st.SearchStrategy[tuple[bytes, ...]]:
    return st.tuples(*[_record] * len(fragment)).map(lambda noise: _filled(fragment, noise))


def genomes(*, focus: str | Sequence[str] = (), max_nodes: int = 12) -> st.SearchStrategy[Genome]:
    """Genomes of up to `max_nodes` records or motifs. focus: see `cases`."""
    names = (focus,) if isinstance(focus, str) else tuple(focus)
    wanted = [_uses(fragment) for fragment in fragments(names)]
    anything = _record.map(lambda record: (record,))
    motif = st.one_of([_uses(fragment) for fragment in MOTIFS.values()])
    elements = st.one_of(anything, anything, anything, *wanted) if wanted else st.one_of(*[anything] * 7, motif)
    records = st.lists(elements, min_size=0 if wanted else 1, max_size=max_nodes)
    if wanted:
        records = st.tuples(records, st.one_of(wanted)).map(lambda both: [*both[0], both[1]])
    return st.builds(_genome, _header, records, _pool)


def _genome(header: bytes, parts: Sequence[tuple[bytes, ...]], pool: bytes) -> Genome:
    return Genome(header, tuple([record for part in parts for record in part]), pool)


def cases(*, focus: str | Sequence[str] = (), max_nodes: int = 12) -> st.SearchStrategy[Case]:
    """Valid ONNX models with feeds, up to `max_nodes` operators or motifs before dead code is removed.

    focus  names of operators, families or motifs (`generators.focus.known_focus()`): each case is made around one of them

    Shrinks towards one node, sizes of 1, zeros, initializers. Nothing is filtered. Raises ValueError for an unknown focus.
    """
    return genomes(focus=focus, max_nodes=max_nodes).map(lambda genome: build(decode(genome)))
