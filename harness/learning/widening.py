"""Widening: every operator is tried in every role of a trigger of several operators.

    python -m driftnet.learning.widening CORPUS --target T [--only ID...]

A trigger names the operators that its cases happened to have, and those of their kind that its budget was enough for.
But what a system does to two operators is seldom about just these: what overwrites the output of one overwrites that of
any which ends alike. So each saved case is run with every other operator in the place of one, as far as all else that
the trigger says holds. One joins where the model fails in the same way, and neither its node by itself does, which has
a cause of its own then, nor another place meets a trigger of the cause. What crashes in one function is known by that,
and what comes and goes looks like anything. Scores stay, for they are of other instances.
"""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from driftnet.causes import record
from driftnet.causes.host import host_of
from driftnet.causes.lookup import facts_of, recipe_facts
from driftnet.causes.predicate import Atom, Region, Trigger
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.generators.ops.table import OPERATORS
from driftnet.learning import edits
from driftnet.learning.experiment import Experiments, computed
from driftnet.learning.merging import SPECIAL
from driftnet.learning.pairs import accepts
from driftnet.model.case import Case
from driftnet.model.inspect import computing
from driftnet.model.submodel import UnrecordedError, recording, submodel
from driftnet.model.verdict import DEPENDS_ON_RUN
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve
from driftnet.util.apart import trusting

SECONDS = 10.0
"""CPU seconds of all processes for one case."""


def widened(saved: SavedCase, cause: CauseRecord, installed: Installed, runner: Runner) -> Trigger | None:
    """The trigger of a saved case of `cause` with each operator that fails alike in a role of it."""
    own, known = cause.of_case(saved.id), {one.trigger for one in cause.each.values() if one.trigger}
    trigger = own.trigger
    by_chance = saved.status is Status.FLAKY or saved.kind in DEPENDS_ON_RUN
    if trigger is None or trigger.shape.roles < 2 or by_chance or own.place.tells:
        return trigger
    lab = Experiments(saved, installed, runner, SECONDS).begun()
    if lab is None:
        return trigger
    host, options = host_of(saved.case, lab.tensors(saved.case)), recipe_facts(installed.target, saved.recipe)
    regions = list(trigger.regions)
    for k, before in enumerate(regions):
        places = trigger.shape.places(host, trigger.operators)
        place = next((place for place in places if before.holds(facts_of(host, place, options))), ())
        for role, index in enumerate(place):
            region, fact, node = regions[k], f"{role}.op", host.graph.nodes[index]
            named = next((atom for atom in region.atoms if atom.fact == fact and atom.test in ("is", "in")), None)
            if named is None:
                continue
            there = named.value if isinstance(named.value, tuple) else (named.value,)
            rest = Region(tuple(atom for atom in region.atoms if atom is not named))
            more = []
            for op in _others(there, len(node.inputs), host.graph.opset):
                case = edits.with_operator(saved.case, node.outputs, op) if lab.left else None
                if case is None:
                    continue
                other = host_of(case, computed(case, runner.reference))
                elsewhere = any(one.matches(other, options) for one in known)
                if rest.holds(facts_of(other, place, options)) and not elsewhere and lab.fails(case, saved.recipe):
                    more += [] if _fails_alone(case, index, lab) else [op]
            if more:
                atoms = (Atom(fact, "in", (*there, *more)) if atom is named else atom for atom in region.atoms)
                regions[k] = Region(tuple(atoms))
    return dataclasses.replace(trigger, regions=tuple(regions))


def _others(there: Sequence[object], inputs: int, opset: int) -> Iterator[str]:
    """The operators that may read as many operands, and were not tried."""
    names = (operator.name for operator in OPERATORS if operator.name not in SPECIAL)
    return (name for name in names if name not in there and accepts(name, inputs, opset))


def _fails_alone(case: Case, index: int, lab: Experiments) -> bool:
    """Whether a node fails as the model does without the others, or that cannot be told."""
    try:
        recorded = recording(case, lab.runner.reference.record)
        part = submodel(case, {computing(case.proto.graph)[index]}, recorded)
    except (UnrecordedError, ReferenceError):
        return True
    return lab.fails(part, lab.saved.recipe) is not False


def widen(root: Path, installed: Installed, runner: Runner, only: Sequence[str] = ()) -> Iterator[str]:
    """Write the wider triggers into the causes below `root`; a line for each."""
    for folder in sorted(path.parent for path in root.glob(f"*/*/{record.FILE}")):
        cause = record.load(folder)
        if cause.target != installed.target.name or (only and cause.id not in only):
            continue
        for saved in corpus.load_all(folder):
            before = cause.of_case(saved.id)
            after = widened(saved, cause, installed, runner)
            if after is None or after == before.trigger:
                continue
            known = {
                id: {**said, "trigger": after.as_json()} if cause.of_case(id).trigger == before.trigger else said
                for id, said in cause.findings.items()
            }
            whole = after if cause.trigger == before.trigger else cause.trigger
            cause = record.save(dataclasses.replace(record.stating(cause, whole), findings=known), folder)
            yield f"{saved.id}: {_named(before.trigger)} -> {_named(after)}"


def _named(trigger: Trigger | None) -> str:
    return "; ".join(", ".join(sorted(names)) for names in trigger.operators.values()) if trigger else ""


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--only", nargs="*", default=(), help="ids of causes")
    asked = parser.parse_args()
    runner = Runner(timeout=1.0, small_models=True, hold_crashes=True)
    try:
        with trusting():  # the models are those of saved cases, and made of them
            for line in widen(asked.corpus, resolve(asked.target), runner, asked.only):
                print(line, flush=True)
    finally:
        runner.close()


if __name__ == "__main__":
    main()
