"""D3, ranges of an artifact alone, of which the data of calibration are not known.

The ranges of all tensors stand in about the same proportion to what inputs like those of calibration give (eleven
architectures, two of eight samples: 0.95 to 1.25 for nine of ten tensors), and one that stands out is wrong. For inputs
that are made up it has to stand out further. But less where it is too narrow: that much of its data lies outside can
hardly come of other inputs, while the data of the other tensors lie inside: then, on inputs like those of calibration,
it does not count how much wider some of the others are. And where the other ranges are exactly those of these inputs,
these are what calibration saw: then a range need not stand out as far, however small its tensor is, and inputs are
judged too. Where an input has another range than its data, these are others than calibration saw: then it is told only
that a large share of them is cut off, or that next to nothing of the ranges is used. Of the range of an input, be it
moved or mapped linearly first, that is told whatever the others are: what bounds a tensor, or normalizes it, hides from
those behind it what was calibrated on. In 261 right artifacts, audited on
inputs made up within the range of their input, none of 6190 ranges is less than 0.55 or more than 2.8 times in
proportion.

What an operator cannot give, whatever it reads, no range has to hold.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from driftnet.model.graph import Graph, Values
from driftnet.oracle.artifact.verified.calibration import Range
from driftnet.oracle.artifact.verified.format import Rounding
from driftnet.oracle.artifact.verified.operators import MAPPING, MOVEMENT
from driftnet.oracle.tolerances.table import (
    ABSURD_RANGE,
    ALIKE,
    CUT_OFF,
    FOREIGN,
    GIVEN_UP,
    PROMINENT,
    PROMINENT_CUT,
    PROMINENT_DEVIATIONS,
)

MANY = 4
"""tensors, of which one may stand out"""
LARGE = 64
"""elements of a tensor, whose range varies little from input to input"""
# Numbers, which no trait holds: the image of each function, where it is bounded.
BOUNDS: Mapping[str, Range] = {
    **dict.fromkeys(("HardSigmoid", "Sigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Cos", "Erf", "Sin", "Softsign", "Tanh"), (-1.0, 1.0)),
}


@dataclass(frozen=True)
class Proportion:
    """log2 of the largest that a rounding's range holds by the largest data of tensor `name`, and its two ranges.

    of_calibration   the range is exactly that of the data, so that calibration saw the same
    of_kind   log2 by the data that are, as the range, of one sign or of both
    """

    rounding: Rounding
    name: str
    log2: float
    found: Range
    seen: Range
    of_calibration: bool = False
    of_kind: float = 0.0


class Outlier(NamedTuple):
    """A proportion that stands out: how many times the median of all it is, and what that may be.

    elsewhere   it is the data of calibration, or these, that are not what the model is made for
    """

    proportion: Proportion
    error: float
    bound: float
    words: str
    elsewhere: bool = False


def outliers(
    model: Graph, proportions: Sequence[Proportion], records: Sequence[Values], alike: bool
) -> Iterator[Outlier]:
    """Each proportion that stands out, from all that nodes link it with too; where data said to be alike are others,
    because an input has another range, those of inputs.

    Of made-up data no input is judged, whose size was chosen.
    """
    if exact := alike and are_those_of_calibration(proportions):
        proportions = [replace(p, log2=p.of_kind) for p in proportions]
    judged = [p for p in proportions if alike or moved_from(model, p.name) not in model.inputs]
    others = [p for p in proportions if alike and p.name in model.inputs and abs(p.log2) > ALIKE]
    if alike and not exact:
        yield from (told := list(_of_other_inputs(model, proportions, others, records)))
        judged = [p for p in judged if all(p is not other for other, *_ in told)]
    if alike and (len(judged) < MANY or (others and not exact)):
        return
    known = {p.name: p for p in proportions}
    linked = links(model, known)
    logs = np.array([p.log2 for p in judged])
    off, usual = logs, np.log2(ABSURD_RANGE)  # of a few tensors none is known to be as usual
    if len(judged) >= MANY:
        off = logs - np.median(logs)
        usual = PROMINENT_DEVIATIONS * 1.4826 * float(np.median(np.abs(off)))
    alone = alike and len({p.found for p in judged if p.log2 < -ALIKE}) == 1
    for p, log2 in zip(judged, map(float, off)):
        if bounds(model, moved_from(model, p.name)):  # whatever the size of the data
            log2 = min(log2, p.log2, key=abs)
        least = max(PROMINENT if alike else PROMINENT_CUT if log2 < 0 else float(np.log2(ABSURD_RANGE)), usual)
        size = sum(record[p.name].size for record in records)
        if exact:
            least = float(np.log2(ABSURD_RANGE) if p in others and log2 > 0 else ALIKE)  # as [0, 1] for any image
        elif alone and max(log2, p.log2) < -(enough := float(ALIKE if size >= LARGE else PROMINENT)):
            least = enough
        # A range that cuts its data off is one witness, however many tensors have it.
        near = (known[name] for name in linked[p.name] if log2 > 0 or known[name].found != p.found)
        nearest = min((abs(p.log2 - other.log2) for other in near), default=np.inf)
        if abs(log2) <= least or nearest <= least or p.of_calibration:
            continue
        cut = cut_off(p, records)
        if cut >= GIVEN_UP if log2 < 0 else exact or (size >= LARGE and len(judged) >= MANY):
            rest = f", and cuts {cut:.1%} of it off" if cut >= GIVEN_UP else ""
            what = f"{2**log2:.3g} times the proportion of the other tensors{rest}"
            yield Outlier(p, 2 ** abs(log2), 2**least, what)


def _of_other_inputs(
    model: Graph, proportions: Sequence[Proportion], inputs: Sequence[Proportion], records: Sequence[Values]
) -> Iterator[Outlier]:
    """Those of the `inputs` whose range cuts off much of what is given for them; and those of which the range is far
    wider than that, or of what is made of them alone."""
    common = 2 ** float(np.median([p.log2 for p in proportions if not bounds(model, moved_from(model, p.name))] or [0]))
    known = {p.name for p in proportions}
    for p in proportions:
        size, source = sum(record[p.name].size for record in records), mapped_from(model, p.name, known)
        if p in inputs and (cut := cut_off(p, records)) >= CUT_OFF:
            what = f"{cut:.1%} of these inputs are cut off; was it calibrated on others?"
            yield Outlier(p, cut, float(CUT_OFF), what, True)
        elif p.log2 < np.log2(FOREIGN) or source not in model.inputs or source in known - {p.name}:
            continue
        elif common >= FOREIGN or size >= LARGE:  # one number, as a time, may be anything that calibration saw
            factor = 2**p.log2
            said = f"{factor:.3g} times what these inputs give"
            if common >= FOREIGN:
                said = f"all ranges are about {common:.3g} times what these inputs give, this one {factor:.3g} times"
            what = f"{said}; was it calibrated on [0, 255] or so, and used on others?"
            yield Outlier(p, factor, float(FOREIGN), what, True)


def cut_off(p: Proportion, records: Sequence[Values]) -> float:
    """The share of the data that lies outside of the range."""
    data = np.concatenate([record[p.name].ravel() for record in records])
    return float(np.mean((data < p.found[0]) | (data > p.found[1])))


def are_those_of_calibration(proportions: Sequence[Proportion]) -> bool:
    """Whether the data are what calibration saw: most ranges say so, and only one says something else."""
    same = sum(p.of_calibration for p in proportions)
    off = {p.found for p in proportions if not p.of_calibration and abs(p.of_kind) > ALIKE}
    return same >= max(MANY, len(proportions) - len(proportions) // MANY) and len(off) == 1


def links(model: Graph, known: Collection[str]) -> Mapping[str, set[str]]:
    """For each of the tensors `known`, the nearest others of them that it is made of, or that are made of it."""
    near = {name: {name} for name in known if name not in model.producers}
    linked: dict[str, set[str]] = {name: set() for name in known}
    for node in model.nodes:
        before = set[str]().union(*(near.get(name, set()) for name in node.inputs))
        for name in node.outputs:
            near[name] = {name} if name in linked else before
            for other in before if name in linked else ():
                linked[name].add(other)
                linked[other].add(name)
    return linked


def bounds(model: Graph, name: str) -> Range | None:
    """What a tensor may hold by the definition of the operator that makes it; None where that is anything."""
    node = model.producers.get(name)
    if node is None or node.op in BOUNDS:
        return BOUNDS[node.op] if node else None
    ends = [model.constants.get(node.input(k), np.zeros(0)) for k in (1, 2)] if node.op == "Clip" else []
    if not ends or not all(end.size for end in ends):
        return None
    return min(float(ends[0].min()), 0.0), max(float(ends[1].max()), 0.0)


def moved_from(model: Graph, name: str) -> str:
    """The tensor of which data movement makes the one called `name`; itself where it is no result of that."""
    while (node := model.producers.get(name)) and node.op in MOVEMENT:
        name = node.input(0)
    return name


def mapped_from(model: Graph, name: str, known: Collection[str]) -> str:
    """The tensor of which data movement and linear maps by constants make the one called `name`, the nearest of those
    `known` if there is one between them; itself where it is no result of that."""
    while (node := model.producers.get(name)) and node.op in MOVEMENT | MAPPING:
        read = [operand for operand in node.inputs if operand and operand not in model.constants]
        moves = node.op in MOVEMENT
        if not moves and (len(read) != 1 or (node.op == "Div" and read[0] != node.inputs[0])):
            break
        name = node.inputs[0] if moves else read[0]
        if name in known:
            break
    return name
