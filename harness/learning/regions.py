"""From labelled facts to a few regions: sequential covering, each region grown around a failure that was seen.

A region starts at one failing sample and grows more special: of the atoms that are true of that sample those are taken
that keep the most failures and exclude the most that does not fail, as long as they are worth it (a beam search). So
each region has a witness, and says of it only what is needed.

What facts are preferred where the data leave it open stands in `COSTS`: that an attribute is stated explains more than
that some dim is at most 7.

Decision trees were tried on the same facts and are as accurate, but their leaves say things that no failure needs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from driftnet.causes.facts import Facts
from driftnet.causes.predicate import Atom, Region

COSTS: Sequence[tuple[str, float]] = (
    (r"\d+\.op$", 0.05),
    (r"\.made$", 0.0),
    (r"\.attr\.\w+\.(stated|default)$", 0.05),
    (r"\.say\.", 0.15),
    (r"^recipe\.", 0.1),
    (r"\.(dtype|given|from)$", 0.1),
    (r"\.rank$|\.lost$|\.broadcast$|\.broadcast\.alike$|\.axis\.\w+$", 0.1),
    (r"\.shared$|\.equals$|\.repeated$", 0.15),
    (r"\.attr\.\w+$", 0.15),
    (r"\.any\.", 0.15),
    (r"\.trait\.|\.moves$|\.passes$", 0.2),
    (r"\.attr\.", 0.2),
    (r"\.like\.(0|out|channels)$|\.symbolic$|inputs$|outputs$|\.final$", 0.25),
    (r"\.in\.\d\.(negative|positive|zeros?|minus|finite|nan|whole|halves|raised|tied)$", 0.3),
    (r"\.initializer$|\.by$|\.declared$|\.maker$|\.reader$|\.readers$", 0.35),
    (r"^opset$|^symbolic$", 0.35),
    (r"\.dim\.", 0.8),
    (r".", 1.0),
)
"""Pattern of a fact's name -> how much dearer an atom of it is, the first that fits.

With dims at .4 and the rest at .5, 17 instead of 13 bounds on sizes and magnitudes were believed of 26 findings, and
fresh instances were predicted a little worse.
"""

REGIONS = 6
ATOMS = 6
BEAM = 6
SEEDS = 3
"""Failures that are left over from which the next region is tried."""

WRONG = 2.0
"""What a sample counts that does not fail and yet is in a region, against one that fails."""

EACH, DEAR = 1.5, 3.0
"""What an atom has to bring in samples, and how much more one whose cost is 1."""

FEW, MANY = 12, 64
"""Values that an atom lists at most, and operators."""

_ABSENT = "\0"


@dataclass(frozen=True, eq=False)
class Data:
    """Samples to learn from. weights: how much each counts (a minimal pair says more than a random instance)."""

    facts: Sequence[Facts]
    fails: np.ndarray
    weights: np.ndarray


def learn(data: Data, witness: int = 0) -> tuple[Region, ...]:
    """Regions that hold the failures of `data` and as little else as can be told apart; the first holds `witness`.

    A region has to be worth its atoms: a few failures that stand alone make none.
    """
    columns = _columns(data.facts)
    first = _best(data, columns, witness, data.fails)
    found, left = [first], data.fails & ~first.covered
    while len(found) < REGIONS and left.any():
        rest = np.flatnonzero(left)
        seeds = rest[np.unique(np.linspace(0, len(rest) - 1, SEEDS).astype(int))]
        grown = max((_best(data, columns, int(seed), left) for seed in seeds), key=lambda g: g.worth)
        if grown.worth <= 0:
            break
        found.append(grown)
        left &= ~grown.covered
    return tuple(Region(g.atoms) for g in _needed(data, found))


@dataclass(frozen=True, eq=False)
class _Grown:
    """A region on its way. worth: failures in it less what else is, and less its atoms, in samples."""

    atoms: tuple[Atom, ...]
    covered: np.ndarray
    worth: float


def _needed(data: Data, found: list[_Grown]) -> list[_Grown]:
    """Without the regions, but for the first, whose failures the others hold."""
    kept = list(found)
    for grown in found[:0:-1]:
        others = np.logical_or.reduce([g.covered for g in kept if g is not grown])
        if not (data.fails & grown.covered & ~others).any():
            kept.remove(grown)
    return kept


@dataclass(frozen=True, eq=False)
class _Column:
    name: str
    cost: float
    values: Sequence[Any]
    codes: np.ndarray
    numbers: np.ndarray | None


def _columns(facts: Sequence[Facts]) -> list[_Column]:
    names = dict.fromkeys(name for row in facts for name in row)
    columns = []
    for name in names:
        index: dict[Any, int] = {}
        codes = np.empty(len(facts), np.int64)
        for i, row in enumerate(facts):
            value = row.get(name, _ABSENT)
            codes[i] = index.setdefault((type(value), value), len(index))
        if len(index) > 1:
            values = [value for _, value in index]
            cost = next(c for pattern, c in COSTS if re.search(pattern, name))
            columns.append(_Column(name, cost, values, codes, _numbers(values, codes)))
    return columns


def _numbers(values: Sequence[Any], codes: np.ndarray) -> np.ndarray | None:
    """The column as numbers, NaN where it has none; None where it holds fewer than two."""
    numeric = [v if isinstance(v, int | float) and not isinstance(v, bool) else np.nan for v in values]
    if np.isfinite(numeric).sum() < 2:
        return None
    found: np.ndarray = np.asarray(numeric, np.float64)[codes]
    return found


def _best(data: Data, columns: Sequence[_Column], seed: int, wanted: np.ndarray) -> _Grown:
    """The region around `seed` that is worth most, by beam search. wanted: the failures that count."""
    atoms, matrix, costs = _candidates(data, columns, seed)
    price = EACH + DEAR * costs
    right = data.weights * np.where(wanted, 1.0, np.where(data.fails, 0.02, 0.0))
    wrong = data.weights * ~data.fails
    everything = np.ones(len(data.fails), bool)
    best = _Grown((), everything, float(right.sum() - WRONG * wrong.sum()))
    beam: list[tuple[tuple[int, ...], np.ndarray, float]] = [((), everything, 0.0)]
    for _ in range(ATOMS if atoms else 0):
        candidates = []
        for chosen, covered, paid in beam:
            kept, left = matrix @ (right * covered), matrix @ (wrong * covered)
            worth = kept - WRONG * left - paid - price
            promise = _promise(kept, left, right.sum(), wrong.sum()) - paid - price
            picked = {*np.argsort(-promise)[:BEAM].tolist(), int(np.argmax(worth))}
            candidates += [
                (float(promise[i]), float(worth[i]), (*chosen, i), covered & matrix[i], paid + float(price[i]))
                for i in picked
            ]
        candidates.sort(key=lambda c: -c[0])
        for _, worth_of, chosen, covered, _ in candidates:
            if worth_of > best.worth + 1e-9:
                best = _Grown(tuple(atoms[k] for k in chosen), covered, worth_of)
        beam, seen = [], set[bytes]()
        for _, _, chosen, covered, paid in candidates:
            if (mark := covered.tobytes()) not in seen and len(beam) < BEAM:
                seen.add(mark)
                beam.append((chosen, covered, paid))
        if not beam or not any((covered & ~data.fails).any() for _, covered, _ in beam):
            break
    return best


def _promise(kept: np.ndarray, left: np.ndarray, all_right: float, all_wrong: float) -> np.ndarray:
    """How much more failing a half-grown region is than everything, in samples (the gain of FOIL, to base 2):
    what is worth most after one atom is narrow, and leads nowhere."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = kept * (np.log2(kept / (kept + left)) - np.log2(all_right / (all_right + all_wrong)))
    found: np.ndarray = np.where(kept > 0, gain, -np.inf)
    return found


def _candidates(data: Data, columns: Sequence[_Column], seed: int) -> tuple[list[Atom], np.ndarray, np.ndarray]:
    """The atoms that are true of the sample `seed` and false of some other; rows of which samples each holds of."""
    atoms: list[Atom] = []
    rows: list[np.ndarray] = []
    costs: list[float] = []

    def add(atom: Atom, row: np.ndarray, cost: float) -> None:
        atoms.append(atom)
        rows.append(row)
        costs.append(cost)

    for column in columns:
        code = column.codes[seed]
        mine = column.values[code]
        if mine is None:
            continue
        unknown = np.array([value is None for value in column.values])[column.codes]
        if _is_named(column.name, mine):
            add(Atom(column.name, "is", mine), column.codes == code, column.cost)
        if isinstance(mine, str) and mine != _ABSENT:
            good = [c for c in np.unique(column.codes[data.fails]) if isinstance(column.values[c], str)]
            named = [c for c in good if column.values[c] != _ABSENT]
            if 1 < len(named) < (MANY if column.name.endswith(".op") else FEW):
                values = tuple(column.values[c] for c in named)
                add(Atom(column.name, "in", values), np.isin(column.codes, named), column.cost + 0.02)
        for other, value in enumerate(column.values):
            if mine == _ABSENT and isinstance(value, bool) and not _PRESENCE.search(column.name):
                continue  # what has no size is not "not of fixed size"
            if other != code and value is not None and _is_named(column.name, value):
                add(Atom(column.name, "not", value), (column.codes != other) & ~unknown, column.cost + 0.05)
        if column.numbers is not None and isinstance(mine, int | float) and not isinstance(mine, bool):
            for value in _thresholds(column.numbers[np.isfinite(column.numbers)]):
                with np.errstate(invalid="ignore"):
                    if value <= mine:
                        add(Atom(column.name, "least", value), column.numbers >= value, column.cost + 0.05)
                    if value >= mine:
                        add(Atom(column.name, "most", value), column.numbers <= value, column.cost + 0.05)
    return atoms, np.array(rows, bool).reshape(len(atoms), len(data.fails)), np.array(costs)


_PRESENCE = re.compile(r"\.(given|repeated)$|\.trait\.|\.has\.")
_MEASURED = re.compile(r"\.(dim|ratio|elements|magnitude|smallest|readers|least|most|count|lost)\b|opset")

_SIZED = re.compile(r"\.(magnitude|smallest)$")


def _is_named(name: str, value: Any) -> bool:
    """Whether equality with `value` may be what matters: of counts it is that of 0 and 1 alone, of numbers of 0."""
    if value == _ABSENT:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool) and _MEASURED.search(name):
        return value == 0 or (value == 1 and not _SIZED.search(name))
    return not (isinstance(value, tuple) and _MEASURED.search(name))


def _thresholds(numbers: np.ndarray) -> list[int | float]:
    """At most 16 of the values that occur."""
    found = np.unique(numbers)
    picked = found[np.unique(np.linspace(0, len(found) - 1, min(16, len(found))).astype(int))]
    return [int(v) if float(v).is_integer() else float(v) for v in picked]
