"""Localization: the smallest sets of a model's nodes that go wrong by themselves.

By layer: a single node that is fed what the reference computed, and fails. By fusion: several nodes that fail together
though no part of them does, which is what a converter's fold or an executor's fused kernel looks like. A failing window
is halved as long as a half fails, and delta debugging takes what is left; a model of which no window fails is bisected
as a whole.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from driftnet.model.inspect import Case
from driftnet.model.signature import coarse
from driftnet.model.submodel import Recording, UnrecordedError, ancestors, reads, submodel
from driftnet.model.verdict import MADE_TWICE, Verdict, Word
from driftnet.model.windows import Judged, live_nodes
from driftnet.reduce.passes import bisect
from driftnet.reduce.problem import shrink

TOLD = 6
"""Parts that are run of those that a message names, or known causes do: a run each, most often of the first alone."""


@dataclass(frozen=True, eq=False)
class Fault:
    """Nodes, by index, that fail as a model of their own, fed what was recorded. The first is told first."""

    nodes: tuple[int, ...]
    case: Case
    verdict: Verdict


@dataclass(frozen=True, eq=False)
class Search:
    """What a localization asks, and what it was told.

    look    the verdict on a part; it may raise ExhaustedError to end the search
    target  name of the target, for signatures
    told    of nodes, how they fail; None where they do not
    """

    case: Case
    recorded: Recording
    look: Callable[[Case], Verdict]
    target: str
    told: dict[tuple[int, ...], Fault | None] = field(default_factory=dict)

    def keep(self, judged: Judged) -> None:
        """Take a window for told."""
        nodes = tuple(judged.nodes)
        self.told[nodes] = Fault(nodes, submodel(self.case, nodes, self.recorded, shared=True), judged.verdict)

    def fault(self, nodes: Sequence[int], wanted: Verdict | None = None) -> Fault | None:
        """These nodes by themselves, where they fail: in the way of `wanted`, or in any way."""
        key = tuple(nodes)
        if key not in self.told:
            try:
                part = submodel(self.case, key, self.recorded, shared=True)
                verdict = self.look(part)
                self.told[key] = Fault(key, part, verdict) if verdict.failed else None  # a part holds its weights
            except UnrecordedError:
                self.told[key] = None
        found = self.told[key]
        if found is None or not (alike(self.target, found.verdict, wanted) if wanted else found.verdict.failed):
            return None
        return found


def alike(target: str, found: Verdict, wanted: Verdict) -> bool:
    """Whether a part that fails as `found` may be why the whole fails as `wanted`. What ends a part in a stage that the
    whole came through is there for being cut out only."""
    if not found.failed or (found.in_values and wanted.in_values):
        return found.failed and (wanted.about[:1] != (MADE_TWICE,) or found.about[:1] == wanted.about[:1])
    if wanted.surfaces_late:
        return found.in_values or found.stage == wanted.stage
    return coarse(target, found) == coarse(target, wanted)


def locate_told(search: Search, whole: Verdict) -> Iterator[Fault]:
    """The faults among what the message of `whole`, a model of which nothing comes out, names: each such node with what
    makes its operands, and each such tensor with what makes it and one of its readers. A run or two of these tell what
    the windows of a large model may have no time to."""
    graph, live = search.case.proto.graph, set(live_nodes(search.case))
    makers = {name: i for i in live for name in graph.node[i].output if name}
    tried: dict[tuple[int, ...], None] = {}
    for name in _told(search.case, whole.message):
        for i in sorted(live):
            node = graph.node[i]
            if node.name == name:
                tried |= {(i,): None, tuple(sorted({i} | {makers[x] for x in reads(node) if x in makers})): None}
            if name in reads(node):
                tried |= {tuple(sorted({i, makers.get(name, i)})): None}
    for nodes in list(tried)[:TOLD]:
        if fault := search.fault(nodes, whole):
            yield from _narrowed(search, fault)
            return


def _told(case: Case, message: str) -> list[str]:
    """The nodes and tensors of `case` that `message` names, the longest names first: a short one may be a word."""
    graph = case.proto.graph
    names = {name for node in graph.node for name in (node.name, *node.input, *node.output) if name and name in message}
    said = (name for name in names if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w/])", message))
    return sorted(said, key=lambda name: (-len(name), name))


def locate(
    search: Search, failing: Sequence[Judged], whole: Verdict, suspects: Sequence[str] = (), known: Sequence[Fault] = ()
) -> Iterator[Fault]:
    """The faults of a model, each as soon as it is found; first those that fail as the whole does.

    failing    windows that failed;   whole   the verdict on the model, which is bisected where no window explains it
    suspects   tensors that are wrong in the intact artifact, though what makes them is right by itself
    known      faults that were found before, which are not told again
    """
    found = list(known)
    for judged in sorted(failing, key=lambda judged: not alike(search.target, judged.verdict, whole)):
        search.keep(judged)
        nodes = judged.nodes
        # A seam reaches to what may have been found in its neighbours.
        for fault in [fault for fault in found if set(fault.nodes) <= set(nodes)]:
            nodes = [node for node in nodes if node not in fault.nodes]
        while nodes and (part := search.fault(nodes, judged.verdict)):
            again = (search.fault(chain, judged.verdict) for chain in _like(search.case, found, nodes))
            known = [fault for fault in again if fault]
            for fault in known or _narrowed(search, part):
                found.append(fault)
                nodes = [node for node in nodes if node not in fault.nodes]
                yield fault
    diverges = whole.word is Word.DIVERGES and bool(found)  # a wrong shape in one place may be wrong values in another
    # Of what ends a model the reducer finds the nodes, at a tenth of what halving and removing them here costs.
    explained = not whole.in_values or diverges or any(alike(search.target, f.verdict, whole) for f in found)
    undecided = whole.word is Word.ABSTAINS and not found
    if explained and not undecided:
        return
    if before := _before(search, None if undecided else whole, suspects):
        yield before
    elif not undecided and (across := _bisected(search, whole)):
        yield from _narrowed(search, across)


def _narrowed(search: Search, fault: Fault) -> Iterator[Fault]:
    middle = len(fault.nodes) // 2
    halves = (fault.nodes[:middle], fault.nodes[middle:])
    failing = [half for nodes in halves if nodes and (half := search.fault(nodes, fault.verdict))] if middle else []
    for half in failing:
        yield from _narrowed(search, half)
    if not failing:
        kept = shrink(fault.nodes, lambda nodes: search.fault(nodes, fault.verdict) is not None, least=1)
        # A wrong shape of one node may be wrong values of the next: so at last in any way.
        while (fewer := shrink(kept, lambda nodes: search.fault(nodes) is not None, least=1)) != kept:
            kept = fewer  # what the first needed may be gone with the last
        yield search.fault(kept) or fault


def _like(case: Case, found: Sequence[Fault], nodes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Nodes of a window with the operators of a fault found elsewhere: one run each, where narrowing takes ten."""
    graph = case.proto.graph
    for operators in dict.fromkeys(tuple(graph.node[i].op_type for i in fault.nodes) for fault in found):
        for start in nodes:
            chain = [start]
            while len(chain) < len(operators):
                following = [i for i in nodes if set(reads(graph.node[i])) & set(graph.node[chain[-1]].output)]
                chain += [i for i in following if graph.node[i].op_type == operators[len(chain)]][:1] or [start]
            if tuple(graph.node[i].op_type for i in chain) == operators:
                yield tuple(chain)


def _before(search: Search, whole: Verdict | None, suspects: Sequence[str]) -> Fault | None:
    """The fewest nodes before the first suspect that fail as the whole does, in any way where nobody can tell whether
    that fails; that which makes it first. Twice as many are tried each time, because small models cost little; and a
    run of nodes is shortened only: the rest is left to the reducer."""
    graph, live = search.case.proto.graph, set(live_nodes(search.case))
    for name in suspects:
        nodes = sorted(ancestors(graph, [name]) & live)
        counts = [min(2 ** (k + 1), len(nodes)) for k in range(len(nodes).bit_length())]
        if most := next((count for count in counts if _fails(search, nodes, whole, count)), 0):
            found = search.fault(nodes[-bisect(most, partial(_fails, search, nodes, whole)) :], whole)
            return found and replace(found, nodes=found.nodes[::-1])
    return None


def _fails(search: Search, nodes: Sequence[int], whole: Verdict | None, last: int) -> bool:
    return search.fault(nodes[-last:], whole) is not None


def _bisected(search: Search, whole: Verdict) -> Fault | None:
    """The shortest failing run of nodes: the shortest failing prefix, and of that the shortest failing suffix."""
    nodes = live_nodes(search.case)
    if not nodes:
        return None

    def fails(part: Sequence[int]) -> bool:
        return search.fault(part, whole) is not None

    nodes = nodes[: bisect(len(nodes), lambda n: fails(nodes[:n]))]
    run = nodes[len(nodes) - bisect(len(nodes), lambda n: fails(nodes[len(nodes) - n :])) :]
    ends = [run[0], run[-1]]
    return search.fault(ends, whole) if len(run) > 2 and fails(ends) else search.fault(run, whole)
