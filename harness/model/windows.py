"""Windows: a deep model in pieces shallow enough for the oracle to tell right from wrong.

Bounds grow with depth, and beyond a few layers they allow anything. So every tensor is recorded once in the reference,
the model is cut into small connected pieces, and each piece is fed what was recorded and judged as a model of its own:
errors cannot add up, and what diverges is where it is. Pieces that reach across each cut (seams) show what goes wrong
only where nodes meet.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from driftnet.model.inspect import Case, computing, has_any
from driftnet.model.operators import Trait
from driftnet.model.submodel import Recording, UnrecordedError, ancestors, constant_values, makers, reads, submodel
from driftnet.model.verdict import Verdict, Word
from driftnet.util.groups import groups

LAYERS, NODES = 3, 8
"""What a window holds at most: three layers that sum products (or hold a body, which may), of which the running-error
ball is narrow up to width 576; and nodes with floating-point results, without DequantizeLinear."""
ELEMENTS = 2**22
"""What the results of these have at most, on all feeds, but for those of one unit: to judge windows of 2.5 times that
took 600 to 900 MiB, and of eight times as many there is no answer (`ball_arithmetic.evaluate.MOST_HELD`)."""

Unit = tuple[int, ...]
"""Nodes, by their indices, between which nothing is cut."""

Window = tuple[Unit, ...]


@dataclass(frozen=True, eq=False)
class Judged:
    """A window as a model of its own, and the verdict on it."""

    window: Window
    verdict: Verdict

    @property
    def loose(self) -> bool:
        """Whether it agrees within so wide a bound that its parts have to be asked."""
        return len(self.window) > 1 and self.verdict.loose

    @property
    def nodes(self) -> list[int]:
        return nodes_of(self.window)


def nodes_of(window: Iterable[Unit]) -> list[int]:
    """The nodes of a window in topological order, each once."""
    return sorted({node for unit in window for node in unit})


def live_nodes(case: Case) -> list[int]:
    """Indices of the nodes that an output depends on, without Constant."""
    graph = case.proto.graph
    return sorted(ancestors(graph, [v.name for v in graph.output]).intersection(computing(graph)))


def split(case: Case, recorded: Recording) -> list[Window]:
    """Connected windows of at most LAYERS, NODES and ELEMENTS that cover every live node once.

    A node joins the window of what it reads, the latest first, while that has room.
    """
    units = _units(case, recorded)
    home = {node: k for k, unit in enumerate(units) for node in unit}
    made_by = makers(case.proto.graph)
    windows: list[list[int]] = []
    placed: dict[int, int] = {}
    for k, unit in enumerate(units):
        before = {home[m] for m in _producers(case, made_by, unit) if m in home} - {k}
        for w in sorted({placed[b] for b in before if b in placed}, reverse=True):
            if _fits(case, recorded, [units[u] for u in (*windows[w], k)]):
                windows[w].append(k)
                placed[k] = w
                break
        else:
            placed[k] = len(windows)
            windows.append([k])
    return [_with_pairs(case, tuple(units[k] for k in window), units, home, made_by) for window in windows]


def seams(case: Case, windows: Sequence[Window]) -> list[Window]:
    """For each node that reads across a cut: it, what it reads there, and what reads it first."""
    made_by = makers(case.proto.graph)
    unit_of = {node: unit for window in windows for unit in window for node in unit}
    readers: dict[int, int] = {}
    for node in sorted(unit_of, reverse=True):
        for maker in _producers(case, made_by, unit_of[node]):
            readers[maker] = node
    found: dict[Window, None] = {}
    for window in windows:
        inside = set(nodes_of(window))
        for unit in window:
            across = [m for m in _producers(case, made_by, unit) if m in unit_of and m not in inside]
            if across:
                after = [readers[node] for node in unit[-1:] if node in readers]
                pieces = {unit_of[node] for node in across} | {unit} | {unit_of[node] for node in after}
                found[tuple(sorted(pieces))] = None
    return list(found)


def survey(
    case: Case,
    recorded: Recording,
    look: Callable[[Case], Verdict],
    wrong: Callable[[Verdict], bool],
    pieces: Sequence[Window] | None = None,
) -> Iterator[Judged]:
    """Judge these pieces, or every window and seam; then, while no verdict is `wrong`, halves of what nobody could
    judge, or only loosely."""
    waiting = split(case, recorded) if pieces is None else list(pieces)
    waiting += seams(case, waiting) if pieces is None else []
    asked, affirmed, clean = set[Window](), set[int](), True
    while waiting and clean:
        undecided: list[Window] = []
        for window in waiting:
            judged = None if window in asked else _judged(case, recorded, window, look)
            asked.add(window)
            if judged is None:
                continue
            yield judged
            if judged.verdict.word is Word.AGREES and not judged.loose:
                affirmed.update(judged.nodes)
            else:
                undecided.append(window)
                clean = clean and not wrong(judged.verdict)
        halves = [half for window in undecided if len(window) > 1 for half in _halves(window)]
        waiting = [half for half in halves if not affirmed.issuperset(nodes_of(half))]


def _judged(case: Case, recorded: Recording, window: Window, look: Callable[[Case], Verdict]) -> Judged | None:
    try:
        return Judged(window, look(submodel(case, nodes_of(window), recorded, shared=True)))
    except UnrecordedError:
        return None


def _halves(window: Window) -> tuple[Window, Window]:
    middle = len(window) // 2
    return window[:middle], window[middle:]


def _units(case: Case, recorded: Recording) -> list[Unit]:
    """The live nodes in units, in the order of their last nodes.

    With the node that reads it first stands what is computed from constants alone and what makes integer vectors
    (shapes): a model of these alone has no inputs, and a target folds it. Nor is a Q/DQ pair cut, nor a tensor that
    could not be recorded.
    """
    graph = case.proto.graph
    live = live_nodes(case)
    readers: dict[str, list[int]] = {}
    for node in live:
        for name in reads(graph.node[node]):
            readers.setdefault(name, []).append(node)
    fixed, known = constant_values(graph), recorded.feeds[0]
    links = []
    for node in live:
        made = [name for name in graph.node[node].output if name]
        following = [reader for name in made for reader in readers.get(name, ())]
        if has_any(graph.node[node], Trait.QUANTIZES):
            joined = [reader for reader in following if has_any(graph.node[reader], Trait.DEQUANTIZES)]
        elif all(name in known for name in made):
            joined = following[:1] if fixed.issuperset(made) or all(_serves(known[name]) for name in made) else []
        else:
            joined = following
        links.append([node, *joined])
    return sorted((tuple(sorted(unit)) for unit in groups(links)), key=lambda nodes: nodes[-1])


def _serves(x: np.ndarray) -> bool:
    return x.dtype.kind in "iub" and x.ndim <= 1


def _producers(case: Case, made_by: dict[str, int], unit: Unit) -> list[int]:
    names = [name for node in unit for name in reads(case.proto.graph.node[node])]
    return [made_by[name] for name in dict.fromkeys(names) if name in made_by and made_by[name] not in unit]


def _fits(case: Case, recorded: Recording, units: Sequence[Unit]) -> bool:
    nodes = [case.proto.graph.node[i] for unit in units for i in unit]
    computing = [n for n in nodes if not has_any(n, Trait.DEQUANTIZES)]
    floating = [n for n in computing if any(_is_float(recorded, name) for name in n.output)]
    layers = sum(has_any(n, Trait.CONTRACTS | Trait.HAS_BODY) for n in nodes)
    return len(floating) <= NODES and layers <= LAYERS and _elements(recorded, floating) <= ELEMENTS


def _elements(recorded: Recording, nodes: Iterable[onnx.NodeProto]) -> int:
    made = {name for node in nodes for name in node.output}
    return sum(run[name].size for run in recorded.feeds for name in made & run.keys() if run[name].dtype.kind == "f")


def _is_float(recorded: Recording, name: str) -> bool:
    return name not in recorded.feeds[0] or recorded.feeds[0][name].dtype.kind == "f"


def _with_pairs(
    case: Case, window: Window, units: Sequence[Unit], home: Mapping[int, int], made_by: dict[str, int]
) -> Window:
    """`window` and the Q/DQ pairs before it, which are fused into what reads them."""
    graph = case.proto.graph
    before = {m for unit in window for m in _producers(case, made_by, unit) if m in home}
    pairs = {units[home[m]] for m in before if has_any(graph.node[m], Trait.DEQUANTIZES)}
    return tuple(sorted(set(window) | {pair for pair in pairs if len(pair) == 2}))
