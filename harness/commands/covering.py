"""Coverage: what runs and nights have asked of each target, by what it was judged, and what they never asked."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.campaign import coverage as covered
from driftnet.campaign import state as states
from driftnet.campaign.coverage import ATTRIBUTE, OPTION, SOUGHT, Counts, possible
from driftnet.campaign.journal import FOLDER
from driftnet.generators.ops.table import OPERATORS
from driftnet.targets import environments
from driftnet.util.errors import UserError
from driftnet.util.nearest import demand
from driftnet.util.options import listed, paths_of

UNTIL = {operator.name: operator.until for operator in OPERATORS}
"""Operator that is generated -> the newest opset in which it is."""

Traits = Mapping[str, Mapping[str, Mapping[str, int]]]


def coverage(
    paths: Path | str | Sequence[Path | str], *, targets: str | Sequence[str] = (), operators: str | Sequence[str] = ()
) -> dict[str, Any]:
    """What was asked: operators by types, ranks, opsets, attributes and options of recipes, by what judged them.

    paths      folders of states (`fuzz --state`) and of runs; of a count in several of them the larger one is told
    targets, operators   only these; by default all that were asked, and all that are generated

    Raises UserError for a folder that is neither, for a target that nothing was asked of, and for an unknown operator.
    """
    folders, targets, operators = paths_of(paths), listed(targets), listed(operators)
    demand(operators, UNTIL, "{} is not generated", "docs/operators.md lists what is")
    counts: Counts = Counter()
    for path in folders:
        counts |= _asked(path)
    nested = covered.as_nested(Counter({cell: n for cell, n in counts.items() if cell[-1] != SOUGHT}))
    there = ", ".join(nested) or "none"
    demand(targets, nested, "nothing was asked of {}", f"what was asked: {there}", kind="target")
    chosen = operators or sorted({*UNTIL, *(op for told in nested.values() for op in told)})
    return {
        "paths": [str(path) for path in folders],
        "targets": [_of_target(name, nested[name], chosen) for name in targets or nested],
    }


def _asked(path: Path) -> Counts:
    if (path / FOLDER).is_dir():
        return covered.asked(path)
    if any((path / name).exists() for name in (states.FILE, covered.FILE)):
        return covered.load(path)
    hint = "name the folder of a run (reports/...) or of a state (driftnet fuzz --state DIR)"
    raise UserError(f"{path} is neither a run nor a state", hint=hint, kind="report")


def _of_target(target: str, asked: Mapping[str, Traits], operators: Iterable[str]) -> dict[str, Any]:
    values = _options(target)
    told = [_of_operator(name, asked.get(name, {}), values) for name in operators]
    return {
        "target": target,
        "never": [one["operator"] for one in told if not one["cases"]],
        "forms": sum(one["forms"] for one in told),
        "possible": sum(one["possible"] for one in told),
        "operators": told,
    }


def _of_operator(name: str, asked: Traits, options: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    judged = asked.get("", {}).get("", {})
    wanted = dict(possible(name, UNTIL[name])) if name in UNTIL else {}
    never = {
        trait: [value for value in values if value and value not in asked.get(trait, {})]
        for trait, values in (wanted | {OPTION + option: values for option, values in options.items()}).items()
    }
    unstated = [trait.removeprefix(ATTRIBUTE) for trait, of in wanted.items() if "" in of and trait not in asked]
    lacking = sum(len(never[trait]) for trait in wanted) + len(unstated)
    total = sum(map(len, wanted.values()))
    return {
        "operator": name,
        "cases": sum(judged.values()),
        "judged": dict(judged),
        "traits": {trait: dict(values) for trait, values in asked.items() if trait},
        "forms": total - lacking,
        "possible": total,
        "never": {trait: values for trait, values in never.items() if values}
        | ({"attributes": unstated} if unstated else {}),
    }


def _options(target: str) -> dict[str, list[str]]:
    """The values of its options but the defaults, which recipes leave out; none, where the target is not here."""
    try:
        declared = environments.declared(target)
    except UserError:
        return {}
    options = {option.name: [str(value) for value in option.values[1:]] for option in declared.options}
    return options | {name: list(parts) for name, parts in declared.switches.items()}
