"""The seeded face of the decoder: case (seed, index), fast.

A pair (seed, index) names the same case in every process, on every supported Python and under every PYTHONHASHSEED,
within one version of the generator. So only `Random.randbytes` and `Random.random` are used, whose sequences do not
depend on those, and nothing iterates over a set.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from random import Random
from types import MappingProxyType

from driftnet.generators import features
from driftnet.generators.avoiding import Avoid, avoiding, without
from driftnet.generators.building.graph import pruned
from driftnet.generators.building.header import Header
from driftnet.generators.building.profile import Profile
from driftnet.generators.building.record import RECORD, SIZES_AT
from driftnet.generators.building.serialization import build
from driftnet.generators.features import known_features
from driftnet.generators.focus import fragments, known_focus
from driftnet.generators.genome import Genome, decode, of_code, spliced
from driftnet.generators.motifs import MOTIFS, Fragment
from driftnet.generators.ops.table import CODES, OPERATORS
from driftnet.model.case import Case

__all__ = ["case", "genome", "known_features", "known_focus"]

POOL = 1024
SHORTEST, LONGEST = 7, 17
"""Records of a case, before dead code is removed and motifs come in."""

MOTIF_SHARE, SAME_SIZES = 0.06, 0.8
"""Of the records drawn, these shares are whole motifs, and have the sizes of the model."""

_EVEN: Mapping[str, float] = MappingProxyType({})


def case(
    seed: int,
    index: int,
    *,
    focus: Sequence[str] = (),
    weights: Mapping[str, float] = _EVEN,
    profile: Profile | None = None,
    avoid: Avoid | None = None,
    leave_out: Set[str] = frozenset(),
    alone: bool = False,
) -> Case:
    """Case number `index` of the stream `seed`.

    focus    names of operators, families or motifs (see `known_focus`); every case then is made around one of them
    weights  operator, motif or feature (see `known_features`) -> factor on how often it comes (1 where absent, 0 never)
    profile  what cases are made of, for toolchains that take no others; what `focus` names comes all the same
    avoid    which operators of a case are not wanted as they are: these are drawn again
    leave_out  operators that a case has none of
    alone    whether what `focus` names is all there is

    Raises ValueError for a name that does not exist, saying which do.
    """
    if profile:
        weights = {**weights, **dict.fromkeys(outside(profile), 0.0)}
    profile = features.narrowed(profile, Random(f"{seed} {index} sources"), features.factors(weights))
    origin = {"generator": "bulk", "seed": seed, "index": index, "focus": list(focus)}

    def made(genome: Genome) -> Case:
        return build(replace(decode(genome, profile=profile), origin=origin))

    drawn = genome(seed, index, focus=focus, weights=weights, alone=alone)
    drawn = without(drawn, leave_out) if leave_out else drawn
    return avoiding(drawn, made, avoid, Random(f"{seed} {index} avoiding")) if avoid else made(drawn)


@lru_cache(maxsize=8)
def outside(profile: Profile) -> tuple[str, ...]:
    """The operators that `profile` does without, and the motifs that have one of them."""
    without = {o.name for o in OPERATORS if o.since > profile.newest or o.name not in (profile.operators or CODES)}
    motifs = (name for name, steps in MOTIFS.items() if any(OPERATORS[step.data[0]].name in without for step in steps))
    return (*sorted(without), *motifs)


def genome(
    seed: int, index: int, *, focus: Sequence[str] = (), weights: Mapping[str, float] = _EVEN, alone: bool = False
) -> Genome:
    """The genome of that case."""
    rng = Random(f"{seed} {index}")
    wanted = features.factors(weights)
    header = features.header(rng, wanted)
    of_menu = [(name, factor) for name, factor in sorted(weights.items()) if not name.startswith(features.PREFIX)]
    menu = _menu(Header.read(header).opset, tuple(of_menu))
    sizes = rng.randbytes(4)
    records: list[bytes] = []
    for _ in range(SHORTEST + int(rng.random() * (LONGEST - SHORTEST + 1))):
        records.extend(filled(menu.draw(rng), sizes, rng))
    records = features.sized(records, rng, wanted)
    drawn = Genome(header, tuple(records), rng.randbytes(POOL))
    if not focus:
        return drawn
    menu_ = fragments(tuple(focus))
    middle = filled(menu_[int(rng.random() * len(menu_))], sizes, rng)
    return replace(drawn, records=tuple(middle)) if alone else _around(drawn, middle, int(rng.random() * len(records)))


@dataclass(frozen=True)
class _Menu:
    """What may be drawn, with cumulative weights."""

    fragments: tuple[Fragment, ...]
    cumulative: tuple[float, ...]

    def draw(self, rng: Random) -> Fragment:
        return self.fragments[bisect(self.cumulative, rng.random() * self.cumulative[-1])]


@lru_cache(maxsize=32)  # making one takes .3 ms, keeping it 76 KB
def _menu(opset: int, weights: tuple[tuple[str, float], ...]) -> _Menu:
    """Motifs, and the operators that `opset` has: a newer operator would raise the opset of the whole model."""
    factors = dict(weights)
    if unknown := [name for name in factors if name not in CODES and name not in MOTIFS]:
        fragments(tuple(unknown))
        raise ValueError(f"weights are for operators and motifs, {unknown[0]!r} is a family")
    operators = [o for o in OPERATORS if o.since <= opset <= o.until]
    share = MOTIF_SHARE * sum(o.weight for o in operators) / len(MOTIFS)
    entries: list[tuple[Fragment, float]] = [
        *[((of_code(CODES[o.name]),), o.weight * factors.get(o.name, 1.0)) for o in operators],
        *[(motif, share * factors.get(name, 1.0)) for name, motif in MOTIFS.items()],
    ]
    entries = [(fragment, weight) for fragment, weight in entries if weight > 0]
    if not entries:
        raise ValueError("the weights leave no operator to draw")
    return _Menu(tuple(fragment for fragment, _ in entries), tuple(accumulate(weight for _, weight in entries)))


def filled(fragment: Fragment, sizes: bytes, rng: Random) -> list[bytes]:
    """The fragment as records, random where it prescribes nothing. Most have the model's sizes, so that shapes meet."""
    records = []
    for template in fragment:
        noise = bytearray(rng.randbytes(RECORD))
        if rng.random() < SAME_SIZES:
            noise[SIZES_AT] = sizes
        records.append(template.filled(bytes(noise)))
    return records


def _around(context: Genome, middle: Sequence[bytes], position: int) -> Genome:
    """`context` with `middle` spliced in at `position`; what follows is dropped if it leaves `middle` dead."""
    whole = replace(context, records=spliced(context.records, middle, position))
    name = OPERATORS[middle[-1][0]].name
    if any(node.op_type == name for node in pruned(decode(whole)).nodes):
        return whole
    return replace(context, records=whole.records[: position + len(middle)])
