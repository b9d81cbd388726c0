"""Coverage: which forms of operators each target was asked so far, and what judged them.

A form is an operator with a type, a rank, an opset, a class of an attribute (as signatures tell them apart), or an
option of the recipe. They are counted by cases, from the journal: each graph is told once, with the index that drew it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from driftnet.campaign.events import Done, Drawn, Examined
from driftnet.campaign.journal import FOLDER, histories, settled
from driftnet.campaign.state import part
from driftnet.causes.host import Host
from driftnet.generators.building import kernels
from driftnet.generators.motifs import spelled
from driftnet.generators.ops.registry import REGISTRY
from driftnet.model.graph import Node, nested
from driftnet.model.schemas import schema_of
from driftnet.model.signature import attribute_classes
from driftnet.model.verdict import Verdict, Word
from driftnet.util.files import json_text, replace_text
from msgspec import Struct

FILE = "coverage.json"
SCHEMA = 1

Cell = tuple[str, str, str, str, str]
"""Target, operator, trait, its value, and what judged it; trait and value are "" for the operator as a whole."""
Counts = Counter[Cell]
"""Cell -> cases. Of two that may have seen the same, `a | b` holds what both know, of each count the larger one."""
OPTION, ATTRIBUTE = "recipe.", "attr."
REFUSED, UNTOLD = "refused", "untold"
SOUGHT = "sought"
"""In the place of a judge: indices that were drawn for a form, whether or not they have it."""


Nested = dict[str, dict[str, dict[str, dict[str, dict[str, int]]]]]
"""Counts as JSON has them: target in operator in trait in value in judge."""


class _Kept(Struct):
    """The file."""

    schema: int
    targets: Nested


def drawn(host: Host) -> Drawn:
    """The forms in a graph. host: what is known of it without running it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    opset = host.graph.opset
    for proto in host.model.graph.node:
        maker = next((host.makers[name] for name in proto.output if name in host.makers), None)
        if maker is None:  # a Constant
            continue
        node = host.graph.nodes[maker[0]]
        told: dict[str, object] = {"opset": opset}
        if name := _typical(node, opset):
            shape = host.shape(name)
            told |= {"type": host.dtype(name), "rank": None if shape is None else len(shape)}
        traits = found[node.op]
        for name, value in told.items():
            if value is not None:
                traits[name].add(str(value))
        for name, kind in attribute_classes(proto).items():
            traits[ATTRIBUTE + name].add(kind)
        for inner in nested([node], opset):
            found[inner.op]
    return {op: {name: tuple(sorted(values)) for name, values in traits.items()} for op, traits in found.items()}


def _typical(node: Node, opset: int) -> str:
    """The operand or result whose type and rank are the node's, "" where it has none."""
    is_result, k = _slot(node.op, opset)
    names = node.outputs if is_result else node.inputs
    return names[k] if k < len(names) else ""


@lru_cache(maxsize=4096)
def _slot(op: str, opset: int) -> tuple[bool, int]:
    """Where what has the operator's first type parameter stands: whether among the results, and at which place."""
    schema, parameters = schema_of(op, opset), kernels.parameters(op, opset)
    if schema and parameters:
        for is_result, values in enumerate((schema.inputs, schema.outputs)):
            for k, value in enumerate(values):
                if value.type_str == parameters[0]:
                    return bool(is_result), k
    return False, 0


def asked(report: Path) -> Counts:
    """What the run in `report` has asked so far; what is examined counts once its index is done."""
    counts: Counts = Counter()
    examined: list[Examined] = []
    for event in settled(histories(report)):
        if isinstance(event, Examined):
            examined.append(event)
        elif isinstance(event, Done):
            for case in examined:
                if case.graph < len(event.graphs):
                    counts.update(_cells_of(case, event.graphs[case.graph]))
            examined = []
            if event.sought:
                counts[(*event.sought, SOUGHT)] += 1
    return counts


def _cells_of(examined: Examined, graph: Drawn) -> Iterator[Cell]:
    """Where another operator may be why the case did not agree, texts of attributes are told as stated alone."""
    target, judge = examined.target, judged_by(examined.verdict)
    whole = examined.verdict.word is Word.AGREES or len(graph) == 1
    options = [
        (OPTION + name, str(part))
        for name, value in examined.recipe.items()
        for part in (value if isinstance(value, list | tuple) else [value])
    ]
    for op, traits in graph.items():
        yield target, op, "", "", judge
        told = [
            (name, value if whole or not _is_text(op, name, value) else "")
            for name, values in traits.items()
            for value in values
        ]
        yield from ((target, op, name, value, judge) for name, value in [*told, *options])


def _is_text(op: str, trait: str, value: str) -> bool:
    return op in REGISTRY and value in spelled(op).get(trait.removeprefix(ATTRIBUTE), ())


def judged_by(verdict: Verdict) -> str:
    """The tier that decided, or that none did."""
    if verdict.word is Word.REJECTS:
        return REFUSED
    return UNTOLD if verdict.word in (Word.ABSTAINS, Word.INVALID) else str(verdict.tier or UNTOLD)


def load(folder: Path) -> Counts:
    """What stands in the state in `folder`; nothing, where it has no such file. Raises UserError (kind "state")."""
    lost = f"delete it: only counts are lost; what was never asked is asked first then, as in a new state ({FILE})"
    told = part(folder / FILE, _Kept, SCHEMA, lost)
    return Counter(dict(_cells(told.targets))) if told else Counter()


def take(state: Path, report: Path) -> None:
    """Bring what the run in `report` has asked so far into `state`, once however often this is done: what the state
    held before the run is kept beside the run's journal."""
    before = report / FOLDER
    if not (before / FILE).exists():
        save(before, load(state))
    save(state, load(state) | load(before) + asked(report))


def save(folder: Path, counts: Counts) -> None:
    """Write them into the state in `folder`, atomically."""
    replace_text(folder / FILE, json_text({"schema": SCHEMA, "targets": as_nested(counts)}) + "\n")


def as_nested(counts: Counts) -> Nested:
    """Counts as JSON has them, in order."""
    found: Nested = {}
    for (target, op, trait, value, judge), n in sorted(counts.items()):
        found.setdefault(target, {}).setdefault(op, {}).setdefault(trait, {}).setdefault(value, {})[judge] = n
    return found


def _cells(nested_: Nested) -> Iterator[tuple[Cell, int]]:
    for target, operators in nested_.items():
        for op, traits in operators.items():
            for trait, values in traits.items():
                for value, judges in values.items():
                    for judge, n in judges.items():
                        yield (target, op, trait, value, judge), n


@lru_cache(maxsize=1024)
def possible(op: str, opset: int) -> Mapping[str, tuple[str, ...]]:
    """The types that an operator may have, as far as the reference has kernels for them, and of each attribute in the
    specification that it is stated, as ""."""
    parameters, schema = kernels.parameters(op, opset), schema_of(op, opset)
    types = kernels.dtypes(op, opset, parameters[0]) if parameters else ()
    found = {"type": tuple(kernels.name_of(code) for code in types)} if types else {}
    return found | {ATTRIBUTE + name: ("",) for name in (schema.attributes if schema else ())}
