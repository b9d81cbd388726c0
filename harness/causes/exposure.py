"""Exposure: how common a trigger is in models that people have, from a statistics file of the forms of their nodes.

A *form* is what is known of a node without knowing its model: its operator, attributes, opset, and of each operand and
result the dtype, the rank, whether it is constant, and what makes or reads it. exposure.json, beside this file, holds
every form that was met in models out of public packages, and every pair of forms that hang together, each with the
models that have it. `python -m tests.support.exposure` makes it.

What a form does not tell (sizes, most values, the options of a recipe) is neutral: exposure is how many models *may*
meet a trigger. But a trigger that asks for what ordinary data have not, a result of zeros alone or an empty tensor, is
met by none. A trigger that none of them can meet is artificial.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from re import compile as pattern
from typing import Any

import numpy as np
from driftnet.causes.facts import Facts, of_attributes, of_dtypes, of_list
from driftnet.causes.predicate import Atom, Region, Trigger, tuples

FILE = Path(__file__).with_name("exposure.json")

OF_A_NODE = pattern(
    r"op|inputs|outputs|any\.\w+|say\.\w+\.\w+|attr\.\w+(\.\w+)*|"
    r"in\.\d\.(given|from|initializer|dtype|rank|maker|symbolic|repeated|zeros|negative|positive|whole|same|finite)|"
    r"out\.\d\.(given|final|dtype|rank|reader)"
)
"""The facts of a node that its form tells."""
STATED = pattern(r"(in\.\d)\.by")
OF_VALUES = ("zeros", "negative", "positive", "whole", "same", "finite")
"""What is told of an operand's values, of constants alone."""
ORDINARY = {"zeros": False, "same": False, "nan": False, "whole": False, "finite": True}
"""What is so of nearly every tensor of floating-point numbers that a model with ordinary inputs computes."""
RARE = pattern(r"in\.\d\.(needless|extended\..+)|out\.\d\.extended\..+|twin")
"""What exporters seldom write, and no form tells."""
FED = {"fed": True}
"""What is so of every model that people have, which have inputs."""
SMALL, LARGE = 1e-2, 1e3
"""Between these lies the largest magnitude of nearly every one of them."""
USUAL: Mapping[str, Facts] = {
    "in": dict.fromkeys(("rank", *OF_VALUES)) | {"given": True, "dtype": "float", "maker": ""},
    "out": {"given": True, "dtype": "float", "rank": None, "final": False},
}
"""What the file does not say of an operand and of a result, because it is so of most."""


@dataclass(frozen=True)
class Exposure:
    """How common a trigger is.

    exposure   the share of the models that may meet it;   nodes   the share of all their nodes that may
    artificial   whether none may
    """

    exposure: float = 0.0
    nodes: float = 0.0
    artificial: bool = True


@dataclass(frozen=True, eq=False)
class Form:
    """A form and where it was met. models: model -> how many nodes of it"""

    facts: Facts
    models: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two forms of which the second reads, as operand `slot`, result `result` of the first."""

    maker: int
    reader: int
    result: int
    slot: int
    models: frozenset[int]


@dataclass(frozen=True, eq=False)
class Statistics:
    """The forms that real models have. sources: of each model, the package and what exported it"""

    sources: Sequence[Mapping[str, Any]]
    forms: Sequence[Form]
    pairs: Sequence[Pair]

    @cached_property
    def nodes(self) -> int:
        """All nodes of all models."""
        return sum(sum(form.models.values()) for form in self.forms)

    @cached_property
    def _of_operators(self) -> Mapping[str, Sequence[int]]:
        """Operator -> the forms that it has."""
        found: dict[str, list[int]] = {}
        for k, form in enumerate(self.forms):
            found.setdefault(str(form.facts["op"]), []).append(k)
        return found

    def exposure(self, trigger: Trigger) -> Exposure:
        """How common `trigger` is."""
        found: dict[int, set[int]] = {}
        for region in trigger.regions:
            for model, forms in self._met(region, trigger).items():
                found.setdefault(model, set()).update(forms)
        nodes = sum(self.forms[k].models[model] for model, forms in found.items() for k in forms)
        artificial = not found and not any(self._met(_without_rare(region), trigger) for region in trigger.regions)
        return Exposure(_share(len(found), len(self.sources)), _share(nodes, self.nodes), artificial)

    def _met(self, region: Region, trigger: Trigger) -> dict[int, set[int]]:
        """Models with, for each role, a form that may be it, and for each edge a pair that may -> forms of role 0."""
        if not all(atom.holds(FED) for atom in region.atoms if atom.fact in FED):
            return {}
        fitting = [self._fitting(region, role) for role in range(trigger.shape.roles)]
        models = [{model for k in forms for model in self.forms[k].models} for forms in fitting]
        first = set(fitting[0])
        for reader, maker in trigger.shape.edges:
            here = [p for p in self.pairs if p.maker in fitting[maker] and p.reader in fitting[reader]]
            here = [p for p in here if _joined(region, reader, maker, p)]
            models.append({model for pair in here for model in pair.models})
            if 0 in (reader, maker):
                first &= {pair.reader if reader == 0 else pair.maker for pair in here}
        everywhere = set.intersection(*models)
        return {model: forms for model in everywhere if (forms := {k for k in first if model in self.forms[k].models})}

    def _fitting(self, region: Region, role: int) -> frozenset[int]:
        asked = [atom for atom in region.atoms if atom.role == role or atom.fact == "opset"]
        atoms = [replace(atom, fact=atom.fact.removeprefix(f"{role}.")) for atom in asked]
        named = region.operators(role)
        here = self._of_operators if named is None else {op: self._of_operators.get(op, ()) for op in named}
        forms = (k for numbers in here.values() for k in numbers)
        return frozenset(k for k in forms if all(_may_hold(atom, self.forms[k].facts) for atom in atoms))


def _may_hold(atom: Atom, form: Facts) -> bool:
    """Whether an atom holds of a form, or may in ordinary data where the form does not tell."""
    if stated := STATED.fullmatch(atom.fact):  # by a Constant node: no initializer, which most constants are
        return form.get(f"{stated[1]}.from") == "constant" and not form.get(f"{stated[1]}.initializer")
    if RARE.fullmatch(atom.fact):
        return atom.value is not True
    told = atom.fact == "opset" or OF_A_NODE.fullmatch(atom.fact)
    held = atom.holds(form) if told else None
    return not _is_unusual(atom, form) if held is None else held


def _without_rare(region: Region) -> Region:
    return Region(tuple(atom for atom in region.atoms if not RARE.fullmatch(atom.fact.partition(".")[2])))


def _is_unusual(atom: Atom, form: Facts) -> bool:
    """Whether it asks for numbers or sizes that are seldom computed."""
    tensor, _, what = atom.fact.partition(".dim.")[0].rpartition(".")
    if ".dim." in atom.fact or what == "elements":
        return atom.test in ("is", "most") and atom.value == 0
    if what == "magnitude" and isinstance(atom.value, int | float):
        return atom.value < SMALL if atom.test == "most" else atom.test == "least" and atom.value > LARGE
    if what == "whole" and "float" not in str(form.get(f"{tensor}.dtype")):
        return False
    wanted = atom.value if atom.test == "is" else not atom.value if atom.test == "not" else None
    return what in ORDINARY and wanted is not None and wanted is not ORDINARY[what]


@cache
def statistics(file: Path = FILE) -> Statistics:
    """The statistics in `file`."""
    return from_json(json.loads(file.read_text(encoding="utf-8")))


def from_json(value: Mapping[str, Any]) -> Statistics:
    """What `as_json` made a JSON value of."""
    parts = [{name: tuples(v) for name, v in part.items()} for part in value["parts"]]
    opset_of = [source["opset"] for source in value["models"]]
    forms: list[Form] = []
    numbers: dict[tuple[int, int], int] = {}
    for k, line in enumerate(value["forms"]):
        told, _, counts = line.partition("|")
        models = {int(model): int(count) for model, _, count in (item.partition(":") for item in counts.split())}
        for opset in dict.fromkeys(opset_of[model] for model in models):
            numbers[k, opset] = len(forms)
            here = {model: count for model, count in models.items() if opset_of[model] == opset}
            forms.append(Form(_told(told.split(), parts, opset), here))
    pairs = []
    for line in value["pairs"]:
        told, _, listed = line.partition("|")
        maker, reader, result, slot = map(int, told.split())
        found = [int(model) for model in listed.split()]
        for opset in dict.fromkeys(opset_of[model] for model in found):
            alike = frozenset(model for model in found if opset_of[model] == opset)
            pairs.append(Pair(numbers[maker, opset], numbers[reader, opset], result, slot, alike))
    return Statistics(value["models"], forms, pairs)


def as_json(found: Statistics) -> dict[str, Any]:
    """The statistics as a JSON value, in which what forms share (attributes, an operand, a result) stands once.

    parts   what is said of a node itself (with its stated attributes), of an operand, of a result
    forms   "17 0=3 1=5 >0=8|2:40": parts of the node, its operands and its results; models and how many nodes of each.
            Forms that differ by opset alone, which the model tells, are one line.
    pairs   "4 7 0 1|2 9": maker, reader, result and operand; models
    """
    parts: dict[str, int] = {}
    lines: dict[str, dict[int, int]] = {}
    numbers: dict[str, int] = {}
    line_of: list[int] = []
    for form in found.forms:
        told = {slot: json.dumps(part, sort_keys=True) for slot, part in _parts(form.facts).items()}
        line = " ".join(f"{slot}{parts.setdefault(part, len(parts))}" for slot, part in told.items())
        counted = lines.setdefault(line, {})
        for model, count in form.models.items():
            counted[model] = counted.get(model, 0) + count
        line_of.append(numbers.setdefault(line, len(numbers)))
    joined: dict[str, set[int]] = {}
    for p in found.pairs:
        joined.setdefault(f"{line_of[p.maker]} {line_of[p.reader]} {p.result} {p.slot}", set()).update(p.models)
    return {
        "models": list(found.sources),
        "parts": list(map(json.loads, parts)),
        "forms": [
            f"{line}|{' '.join(f'{model}:{count}' for model, count in sorted(models.items()))}"
            for line, models in lines.items()
        ],
        "pairs": [f"{line}|{' '.join(map(str, sorted(models)))}" for line, models in joined.items()],
    }


def _parts(facts: Facts) -> dict[str, dict[str, Any]]:
    """The facts of the node itself, and of each operand and result, without what follows from others."""
    found: dict[str, dict[str, Any]] = {"": {}}
    for name, value in facts.items():
        head, *rest = name.split(".")
        if head in ("in", "out"):
            part = found.setdefault(f"{'>' if head == 'out' else ''}{rest[0]}=", {})
            if rest[1] not in USUAL[head] or USUAL[head][rest[1]] != value:
                part[rest[1]] = value
        elif head == "attr":
            if len(rest) == 1 and facts[f"{name}.stated"]:
                found[""][name] = value
        elif head == "op" or (head == "say" and not facts.get(f"attr.{rest[0]}.stated")):
            found[""][name] = value
    return found


def _told(numbers: Sequence[str], parts: Sequence[Mapping[str, Any]], opset: int) -> Facts:
    """The facts of a form, of those that `_parts` kept and those that follow."""
    own, *tensors = numbers
    facts: dict[str, Any] = {name: v for name, v in parts[int(own)].items() if not name.startswith("attr.")}
    stated = {name.removeprefix("attr."): v for name, v in parts[int(own)].items() if name.startswith("attr.")}
    facts |= {"opset": opset, **dict(of_attributes(facts["op"], opset, stated))}
    for name, v in stated.items():
        if isinstance(v, tuple):
            facts |= of_list(name, np.asarray(v))
    slots = {"in": 0, "out": 0}
    for tensor in tensors:
        slot, _, number = tensor.partition("=")
        head = "out" if slot.startswith(">") else "in"
        slots[head] += 1
        told = {**USUAL[head], **parts[int(number)]}
        facts |= {f"{head}.{slot.lstrip('>')}.{name}": v for name, v in told.items()}
    dtypes = {v for name, v in facts.items() if name.endswith(".dtype") and _is_computed(name, facts)}
    return facts | {"inputs": slots["in"], "outputs": slots["out"], **dict(of_dtypes(dtypes))}


def _is_computed(name: str, facts: Facts) -> bool:
    return facts.get(f"{name.removesuffix('.dtype')}.from") != "constant"


def _joined(region: Region, reader: int, maker: int, pair: Pair) -> bool:
    """Whether what the region says of which operand the maker makes goes with a pair."""
    told = {f"{reader}.in.{pair.slot}.made": f"{maker}.out.{pair.result}"}
    return all(atom.holds(told) for atom in region.atoms if atom.fact in told)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
