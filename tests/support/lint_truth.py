"""How right `lint` is: of the nodes of models that fail alone, how many it names, and how many of those that it names
do not fail.

    python -m tests.support.lint_truth --target mnn --seed N [--models 30] [--seconds 60]

Generated models, and realistic ones as they are and quantized. A node fails alone where it does cut out with recorded
operands, and with its neighbours too, what reads it and what those read: weights that come out exchanged alone, and are
right for their Conv, are no failure of the model. A place that is named fails where it does, or where it does with its
neighbours, none of which fails alone; one that a cause names which comes and goes fails where one of a few runs does.
What takes longer than STAGE_SECONDS hangs: two places of onnxruntime-quant that do took all the time of their models,
some 80 s where any other takes .02. Of a model that takes too long a sample of the nodes is asked; how many places are
left is said, and they count as neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from driftnet.causes.host import hosts
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.meeting import meetings
from driftnet.causes.record import Status
from driftnet.commands.linting import causes_of, reached
from driftnet.findings.trial import Trial, watch_cut
from driftnet.generators import bulk
from driftnet.generators.building.profile import Profile
from driftnet.model.case import Case
from driftnet.model.inspect import computing
from driftnet.model.submodel import UnrecordedError, reads, recording, submodel, with_makers
from driftnet.model.verdict import Verdict, Word
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.util.apart import trusting

from tests.support.production import SMALL, quantized

STAGE_SECONDS = 5.0
"""Wall seconds of one stage of one run."""
RUNS = 5
"""Of what comes and goes."""


def models(asked: argparse.Namespace, profile: Profile) -> Iterator[tuple[str, Case]]:
    """The models, with names."""
    for index in range(asked.models):
        yield f"generated {index}", bulk.case(asked.seed, index, profile=profile)
    for name, build in SMALL.items():
        yield name, build()
        yield f"{name} quantized", quantized(build())


Place = tuple[int, ...]


def alone(
    case: Case, trial: Trial, runner: Runner, places: Mapping[Place, int], seconds: float
) -> tuple[dict[Place, Verdict], set[int], int]:
    """What the target makes of `places`, each given as many runs as it may take, and of each node by itself, as far as
    they can be cut out; of those that say otherwise with their neighbours, what they say there. Then the nodes that
    fail by themselves and there, and how many were left when `seconds` of CPU were over, half of which are for the
    first."""
    start = runner.all_cpu_seconds
    indices, recorded = computing(case.proto.graph), recording(case, runner.reference.record)
    nodes = [case.proto.graph.node[i] for i in indices]

    def verdict(place: Place) -> Verdict | None:
        try:
            part = submodel(case, with_makers(case, [indices[k] for k in place], recorded), recorded)
        except UnrecordedError:
            return None
        for _ in range(places.get(place, 1)):
            said = watch_cut(replace(trial, case=part).within(STAGE_SECONDS), case)[0]
            if said.failed:
                break
        return None if said.word in (Word.INVALID, Word.ABSTAINS, Word.REJECTS) else said

    def readers(place: Place) -> set[int]:
        made = {name for k in place for name in nodes[k].output if name}
        return {k for k, node in enumerate(nodes) if made.intersection(reads(node))}.difference(place)

    def makers(place: set[int]) -> set[int]:
        read = {name for k in place for name in reads(nodes[k])}
        return {k for k, node in enumerate(nodes) if read.intersection(node.output)}

    others = [(k,) for k in range(len(indices)) if (k,) not in places]
    wanted = [*sorted(places), *Random(0).sample(others, len(others))]
    found, left = dict[Place, Verdict](), 0
    for k, place in enumerate(wanted):
        if runner.all_cpu_seconds > start + seconds / 2:
            left = len(wanted) - k
            break
        if said := verdict(place):
            found[place] = said
    itself = {place[0] for place, said in found.items() if len(place) == 1 and said.failed}
    for place, said in list(found.items()):
        beside = readers(place) if said.failed or place in places else set()
        beside |= makers(beside)
        if beside and (said.failed or not beside - {*place} & itself):
            if runner.all_cpu_seconds > start + seconds:
                del found[place]
                left += 1
            else:
                found[place] = verdict(tuple(sorted({*place, *beside}))) or said
    return found, {k for k in itself if (k,) in found and found[k,].failed}, left


def main() -> None:
    """Measure, a line a model and a line a mistake."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="mnn")
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds that one model may take")
    parser.add_argument("--only", help="of the models those whose name holds this text")
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    asked = parser.parse_args()
    installed = resolve(asked.target)
    known = reached(causes_of([asked.corpus], installed.target), installed.target, {})
    options = recipe_facts(installed.target, {})
    failing = named = maybe = told = wrong = 0
    with trusting(), Runner(small_models=True) as runner:
        for name, case in models(asked, Profile(**installed.target.profile)):
            if asked.only and asked.only not in name:
                continue
            met = [m for m in meetings(list(hosts(case.proto)), known, options) if not m.inside]
            sure = dict[Place, int]()
            for m in (m for m in met if not m.why):
                place, flaky = tuple(sorted(m.place)), m.cause.status is Status.FLAKY
                sure[place] = max(sure.get(place, 1), RUNS if flaky else 1)
            try:
                found, bad, left = alone(case, Trial(case, installed, {}, runner), runner, sure, asked.seconds)
            except ReferenceError:
                continue
            nodes = computing(case.proto.graph)
            in_sure = {k for place in sure for k in place}
            possible = in_sure | {k for m in met for k in m.place}
            right = {place: found[place].failed for place in sure if place in found}
            failing, named, maybe = failing + len(bad), named + len(bad & in_sure), maybe + len(bad & possible)
            told, wrong = told + len(right), wrong + sum(not failed for failed in right.values())
            missing = f"; {left} places left" if left else ""
            print(
                f"{name}: {len(bad)} fail, {len(bad & in_sure)} named; {len(right)} named places{missing}", flush=True
            )
            for k in sorted(bad - in_sure):
                may = {m.cause.id[-8:]: m.why for m in met if k in m.place}
                print("   not named", case.proto.graph.node[nodes[k]].op_type, found[k,].message[:90], "may:", may)
            for place in (place for place, failed in right.items() if not failed):
                by = [m.cause.id[-8:] for m in met if tuple(sorted(m.place)) == place and not m.why]
                print("   does not fail", [case.proto.graph.node[nodes[k]].op_type for k in place], by)
    print(f"{failing} nodes fail alone: {named} named, {maybe} named or possible")
    print(f"{told} places named, {wrong} do not fail")


if __name__ == "__main__":
    main()
