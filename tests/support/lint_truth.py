"""How right `driftnet lint` is: of the nodes that fail by themselves, how many are named, and of the named, how many do
not fail. 30 generated models of a fresh seed and 10 realistic ones, on mnn (as it is, and quantized) and
onnxruntime-quant.

    python -m tests.support.lint_truth run OUT.json [--seed N]     cut each node out, with recorded operands, and run it
    python -m tests.support.lint_truth score OUT.json [--corpus DIR] [--confirm]

Of nodes of one realistic model that are alike in every fact but their neighbours', one is run. A place of several nodes
that is named counts as failing where it, or any of its nodes, fails when it is cut out.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from driftnet.causes.facts import host_of, hosts, recipe_facts
from driftnet.causes.meeting import Meeting, meetings
from driftnet.commands.linting import causes_of
from driftnet.findings.trial import Trial, look
from driftnet.generators import bulk
from driftnet.model.case import Case
from driftnet.model.framed import framed
from driftnet.model.inspect import bodies, computing
from driftnet.model.signature import coarse
from driftnet.model.submodel import Recording, UnrecordedError, recording, submodel, with_makers
from driftnet.run.reference import ReferenceError
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve

from tests.support.field_models import multi_input_gru
from tests.support.production import SMALL
from tests.zoo.models import specimens

GENERATED = 30
ZOO = ("wake_word", "face_proposals", "thai_words", "denoiser")
COMPANY = ("maker", "reader", "final")
"""Facts of a node that say nothing of it alone."""
SETTINGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("mnn", {}),
    ("mnn", {"quantize": "offline"}),
    ("onnxruntime-quant", {}),
)


def models(seed: int) -> Iterator[tuple[str, Case]]:
    """The models by name."""
    for k in range(GENERATED):
        yield f"generated {k}", bulk.case(seed, k)
    for name, make in SMALL.items():
        yield name, make()
    yield "multi_input_gru", multi_input_gru()
    for specimen in specimens():
        if specimen.name in ZOO:
            yield specimen.name, Case(specimen.load().SerializeToString(), (specimen.feed(0),), (specimen.feed(1),))


def cut(case: Case, place: tuple[int, ...], recorded: Recording, trial: Trial) -> str | None:
    """How the nodes of a place fail by themselves: "" not at all, or only as they were cut out, None where that cannot
    be told."""
    indices = computing(case.proto.graph)
    try:
        part = submodel(case, with_makers(case, [indices[i] for i in place], recorded), recorded)
    except (UnrecordedError, ValueError):
        return None
    verdict = look(replace(trial, case=_plainly(part)))
    within = framed(case, part) if verdict.failed else None
    if verdict.word == "agrees" or (within and look(replace(trial, case=_plainly(within))).word == "agrees"):
        return ""
    return coarse(trial.target.name, verdict) if verdict.failed else None


def _plainly(case: Case) -> Case:
    """`case` with plain names for its inputs: MNN's calibration files are called like the input that they are of, and
    exporters' names hold slashes."""
    model = onnx.ModelProto.FromString(case.model)
    names = {v.name: f"x{k}" for k, v in enumerate(model.graph.input)}
    if any(True for node in model.graph.node for _ in bodies(node)) or names.keys() & {
        v.name for v in model.graph.output
    }:
        return case
    for value in model.graph.input:
        value.name = names[value.name]
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    feeds = [{names.get(name, name): x for name, x in feed.items()} for feed in case.runs]
    return replace(case, model=model.SerializeToString()).fed(feeds)


def run(out: Path, seed: int) -> None:
    """Cut out and run every node, and write down how each fails."""
    told: list[dict[str, Any]] = []
    with Runner(small_models=True) as runner:
        for name, case in models(seed):
            try:
                recorded = recording(case, runner.reference.record)
            except ReferenceError as e:
                print(name, e)
                continue
            host = host_of(case, recorded.feeds[0])
            for target, recipe in SETTINGS:
                trial, alike = Trial(case, resolve(target), recipe, runner), {}
                for node in range(len(host.graph.nodes)):
                    facts = {
                        k: v for k, v in host.of_node(node).items() if not k.endswith(("maker", "reader", "final"))
                    }
                    key = node if name.startswith("generated") else json.dumps(facts, default=str)
                    if key not in alike:
                        alike[key] = node
                        failure = cut(case, (node,), recorded, trial)
                        told.append(
                            {"model": name, "target": target, "recipe": recipe, "node": node, "failure": failure}
                        )
            print(
                name, len(host.graph.nodes), Counter(bool(t["failure"]) for t in told if t["model"] == name), flush=True
            )
            out.write_text(json.dumps({"seed": seed, "nodes": told}), encoding="utf-8")


def score(truth: Path, corpus: Path, *, confirm: bool, show: bool) -> None:
    """Lint the models, and compare with what was found by running."""
    value = json.loads(truth.read_text(encoding="utf-8"))
    total: Counter[str] = Counter()
    with Runner(small_models=True) as runner:
        for name, case in models(value["seed"]):
            here = [t for t in value["nodes"] if t["model"] == name]
            if not here:
                continue
            recorded: Recording | None = None
            for target, recipe in SETTINGS:
                installed = resolve(target)
                failing = {
                    t["node"]: t["failure"] for t in here if (t["target"], t["recipe"]) == (target, dict(recipe))
                }
                known = causes_of(corpus, installed.target)
                found = meetings(list(hosts(case.proto)), known, recipe_facts(installed.target, recipe))
                places: dict[tuple[int, ...], list[Meeting]] = {}
                for meeting in found:
                    if not meeting.inside and (not meeting.why or confirm):
                        places.setdefault(meeting.place, []).append(meeting)
                named: set[int] = set()
                wrong: dict[tuple[int, ...], list[Meeting]] = {}
                for place, met in places.items():
                    known_nodes = [failing[i] for i in place if failing.get(i) is not None]
                    if not known_nodes:
                        continue
                    fails = any(known_nodes)
                    if not fails and len(place) > 1:
                        recorded = recorded or recording(case, runner.reference.record)
                        fails = bool(cut(case, place, recorded, Trial(case, installed, recipe, runner)))
                    if fails or not all(m.why for m in met):
                        total["named"] += 1
                        total["named that do not fail"] += not fails
                        named.update(place)
                        if not fails:
                            wrong[place] = met
                for node, failure in failing.items():
                    if failure:
                        total["fail"] += 1
                        total["fail and are named"] += node in named
                        if show and node not in named:
                            may = sorted({m.cause.id for m in found if node in m.place})
                            op = hosts_op(case, node)
                            print(f"missed  {name} {target} {recipe} {op} {failure} may {may[:4]}")
                for met in wrong.values():
                    if show:
                        print(f"wrong  {name} {target} {recipe} {[m.cause.id for m in met if not m.why][:4]}")
    print(json.dumps({"seed": value["seed"], "confirm": confirm, **total}))
    print(f"recall {total['fail and are named'] / max(1, total['fail']):.3f}")
    print(f"named that do not fail {total['named that do not fail'] / max(1, total['named']):.3f}")


def hosts_op(case: Case, node: int) -> str:
    """The operator of a node."""
    return host_of(case).graph.nodes[node].op


def main() -> None:
    """Run, or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "score"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--confirm", action="store_true")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.what == "run":
        run(given.file, given.seed)
    else:
        score(given.file, given.corpus, confirm=given.confirm, show=given.show)


if __name__ == "__main__":
    main()
