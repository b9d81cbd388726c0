"""Instances: what the generator makes of the operators of a place, cut out so that nothing else stands around."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from driftnet.causes.facts import Place
from driftnet.causes.host import Host, host_of
from driftnet.causes.predicate import ONE_NODE, Shape
from driftnet.generators import bulk
from driftnet.generators.building.header import HEADER
from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.generators.building.serialization import build
from driftnet.generators.genome import Genome, decode, of_code
from driftnet.generators.ops.table import CODES
from driftnet.model.case import Case
from driftnet.model.inspect import computing
from driftnet.model.submodel import Record, UnrecordedError, recording, submodel, with_makers
from driftnet.run.reference import ReferenceError

Operators = Mapping[int, Sequence[str]]
"""Role -> the operators that it may have."""


def drawn(
    seed: int, index: int, roles: Sequence[Sequence[str]], shape: Shape, record: Record, profile: Profile = EVERYTHING
) -> Case | None:
    """A place of `shape` made of one record for each role, by itself; None where the records do not hang together so.

    Dearer nothing is made: where the model is the place there is nothing to record.
    """
    rng = Random(f"{seed} {index} instance")
    names = [options[int(rng.random() * len(options))] for options in roles]
    if any(name not in CODES for name in names):
        return None
    header, sizes = rng.randbytes(HEADER), rng.randbytes(4)
    records = bulk.filled(tuple(of_code(CODES[name]) for name in names), sizes, rng)
    case = build(decode(Genome(header, tuple(records), rng.randbytes(bulk.POOL)), profile=profile))
    if rng.random() < 0.5:
        case = replace(case, calibration=())
    return next(cut(case, shape, dict(enumerate(roles)), record), None)


def among_others(
    seed: int, index: int, roles: Sequence[Sequence[str]], shape: Shape, record: Record, profile: Profile = EVERYTHING
) -> Iterator[Case]:
    """The places of `shape` in case `index` of the stream `seed`, which is made around one of their operators."""
    focus = tuple(dict.fromkeys(name for options in roles for name in options if name in CODES))
    if focus:
        yield from cut(bulk.case(seed, index, focus=focus, profile=profile), shape, dict(enumerate(roles)), record)


def cut(case: Case, shape: Shape, roles: Operators, record: Record, most: int = 2) -> Iterator[Case]:
    """The first places of `shape` in `case` with these operators, each as a model of its own."""
    host = host_of(case)
    indices, seen = computing(case.proto.graph), set[frozenset[int]]()
    fits = {role: frozenset(names) for role, names in roles.items()}
    recorded = None
    for place in shape.places(host, fits):
        if frozenset(place) in seen:
            continue
        seen.add(frozenset(place))
        if len(place) == len(indices):
            yield case
        else:
            try:
                recorded = recorded or recording(case, record)
                yield submodel(case, with_makers(case, [indices[i] for i in place], recorded), recorded)
            except (UnrecordedError, ReferenceError):
                pass
        if len(seen) == most:
            return


def everything(host: Host) -> Place:
    """All nodes as one place."""
    return tuple(range(len(host.graph.nodes)))


def whole(host: Host) -> Place:
    """The nodes that the model is about: all, but where one alone makes a tensor, that one. The others make what it
    reads and nothing can feed, and there is no end of ways to: a sequence of any length."""
    all_nodes = everything(host)
    told = tuple(i for i in all_nodes if not all(map(host.is_no_tensor, filter(None, host.graph.nodes[i].outputs))))
    return told if len(told) == 1 else all_nodes


def shape_of(host: Host) -> Shape:
    """How the nodes that the model is about hang together."""
    if len(whole(host)) == 1:
        return ONE_NODE
    nodes = host.graph.nodes
    edges = {(reader, host.makers[name][0]) for name in host.makers for reader in host.readers.get(name, ()) if name}
    joined = {frozenset(edge) for edge in edges}
    shared = {
        (b, a)
        for a in range(len(nodes))
        for b in range(a + 1, len(nodes))
        if frozenset({a, b}) not in joined and not set(filter(None, nodes[a].inputs)).isdisjoint(nodes[b].inputs)
    }
    return Shape(len(nodes), frozenset(edges), frozenset(shared))
