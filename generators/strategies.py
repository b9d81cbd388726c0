"""The Hypothesis face of the decoder: `@given(case=cases(focus="ConvTranspose"))`."""

from collections.abc import Sequence
from functools import partial
from itertools import chain

from driftnet.generators.building.header import HEADER
from driftnet.generators.building.profile import Profile
from driftnet.generators.building.record import RECORD
from driftnet.generators.building.serialization import build
from driftnet.generators.focus import fragments
from driftnet.generators.genome import Genome, decode, of_code
from driftnet.generators.motifs import MOTIFS, Fragment
from driftnet.generators.ops.table import CODES, OPERATORS
from driftnet.model.case import Case
from hypothesis import strategies as st

POOL = 64
"""Most bytes for numbers. They are read in a circle: a single one shrinks every tensor to equal numbers, whatever its
size, so that sizes can shrink next."""

_header = st.binary(min_size=HEADER, max_size=HEADER)
_record = st.binary(min_size=RECORD, max_size=RECORD)
_pool = st.binary(min_size=1, max_size=POOL)

MENU: tuple[Fragment, ...] = (
    *[(of_code(CODES[operator.name]),) for operator in OPERATORS for _ in range(round(5 * operator.weight))],
    *[motif for motif in MOTIFS.values() for _ in range(10)],
)
"""What an element of a graph is sampled from, in shrink order; what is to come more often is in here more often.

(A strategy that is repeated in `one_of` counts once, so weights have to be entries of a `sampled_from`.)
"""


@st.composite
def _uses(draw: st.DrawFn, fragments_: st.SearchStrategy[Fragment]) -> tuple[bytes, ...]:
    """The records of one fragment.

    The first byte of each step of a motif says what stays of it: 0 nothing, 1 its operator alone. So the shrinker can
    delete single steps and release what they prescribe, and now and then a motif is drawn mutated.
    """
    fragment = draw(fragments_)
    noise = [draw(_record) for _ in fragment]
    if len(fragment) == 1:
        return (fragment[0].filled(noise[0]),)
    return tuple(
        [
            (of_code(step.data[0]) if bytes_[0] == 1 else step).filled(bytes_)
            for step, bytes_ in zip(fragment, noise)
            if bytes_[0]
        ]
    )


def genomes(*, focus: str | Sequence[str] = (), max_nodes: int = 16) -> st.SearchStrategy[Genome]:
    """Genomes of up to `max_nodes` operators or motifs. focus: see `cases`."""
    wanted = fragments((focus,) if isinstance(focus, str) else tuple(focus))
    menu = (*MENU, *wanted * (len(MENU) // len(wanted) + 1)) if wanted else MENU
    # Hypothesis makes lists of about min_size + 5 elements whatever max_size is: two of them give graphs large enough.
    # A sampled_from hashes all that it samples from: made anew for each draw it took two thirds of the time.
    half = st.lists(_uses(st.sampled_from(menu)), max_size=max_nodes // 2)
    last = _uses(st.sampled_from(wanted or MENU))
    codes = frozenset(step.data[0] for fragment in wanted or MENU for step in fragment)
    return st.builds(partial(_genome, codes), _header, half, half, st.booleans(), last, _pool)


Records = tuple[bytes, ...]


def _genome(
    wanted: frozenset[int],
    header: bytes,
    first: Sequence[Records],
    second: Sequence[Records],
    ended: bool,
    last: Records,
    pool: bytes,
) -> Genome:
    """The records, and the last ones where they are wanted: without one of the operators there would be no focus.

    (Were there always a last one, a failure in the middle could not get rid of it.)
    """
    records = (*chain(*first), *chain(*second))
    if ended or not any(record[0] in wanted for record in records):
        records = (*records, *last)
    return Genome(header, records, pool)


def cases(
    *, focus: str | Sequence[str] = (), max_nodes: int = 16, profile: Profile | None = None
) -> st.SearchStrategy[Case]:
    """Valid ONNX models with feeds, of up to `max_nodes` operators or motifs before dead code is removed.

    focus  names of operators, families or motifs (`driftnet.generators.focus.known_focus()`): each case has one of
           them, mostly more
    profile  what cases are made of, for toolchains that take no others; `focus` says of which operators

    Shrinks towards one node, sizes of 1, zeros, initializers. Nothing is filtered. Raises ValueError for an unknown
    focus, saying which there are.
    """
    return _cases(genomes(focus=focus, max_nodes=max_nodes), profile)


@st.composite  # of what is mapped Hypothesis prints how it was made, which says nothing here; of this the case
def _cases(draw: st.DrawFn, drawn: st.SearchStrategy[Genome], profile: Profile | None) -> Case:
    return build(decode(draw(drawn), profile=profile))
