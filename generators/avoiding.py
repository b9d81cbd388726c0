"""Avoiding: what somebody would rather not see in a graph is drawn again, and what stays is left out.

Records are context-free, so one can be drawn again by itself: its operator stays what it is, its parameters and where
its operands come from change. What cannot help being unwanted goes at last, with what only it needed, and what is
unwanted for its going goes too.
"""

from collections.abc import Callable, Set
from dataclasses import replace
from itertools import count
from random import Random

from driftnet.generators.building.record import RECORD, SIZES_AT
from driftnet.generators.genome import Genome, of_code
from driftnet.generators.ops.table import OPERATORS
from driftnet.model.case import Case

Avoid = Callable[[Case], Set[str]]
"""The operators of a case that are not wanted as they stand there."""

TRIES = 2


def avoiding(genome: Genome, made: Callable[[Genome], Case], avoid: Avoid, rng: Random) -> Case:
    """The case that is `made` of `genome`, with the records of unwanted operators drawn again, at last without them."""
    case = made(genome)
    for attempt in count():
        unwanted = avoid(case)
        if not unwanted:
            break
        unwanted = unwanted | _readers(case, unwanted - {_name(record) for record in genome.records})
        changed = _redrawn(genome, unwanted, rng) if attempt < TRIES else without(genome, unwanted)
        if changed == genome:  # one record is left
            break
        genome = changed
        case = made(genome)
    return case


def _readers(case: Case, without_record: Set[str]) -> Set[str]:
    """The operators that read what others make that have no record of their own: where operands come from, such as a
    DequantizeLinear of constants, is for their records to say."""
    nodes = case.proto.graph.node if without_record else ()
    made = {name for node in nodes if node.op_type in without_record for name in node.output}
    return {node.op_type for node in nodes if not made.isdisjoint(node.input)}


def _redrawn(genome: Genome, unwanted: Set[str], rng: Random) -> Genome:
    """Other bytes for the records of these operators; the sizes stay, so that shapes go on to meet."""

    def again(record: bytes) -> bytes:
        noise = bytearray(rng.randbytes(RECORD))
        noise[SIZES_AT] = record[SIZES_AT]
        return of_code(record[0]).filled(bytes(noise))

    return replace(genome, records=tuple(again(r) if _name(r) in unwanted else r for r in genome.records))


def without(genome: Genome, unwanted: Set[str]) -> Genome:
    """`genome` without the records of these operators; one record stays."""
    kept = tuple(record for record in genome.records if _name(record) not in unwanted)
    return replace(genome, records=kept or genome.records[:1])


def _name(record: bytes) -> str:
    return OPERATORS[record[0] % len(OPERATORS)].name
