"""Benchmarks of driftnet itself, in CPU time; a ratio of two results from the same machine is what counts."""

import contextlib
import json
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.campaign.plan import Plan, choices, variant
from driftnet.campaign.summary import Summary
from driftnet.causes import record
from driftnet.commands.fuzzing import fuzz
from driftnet.commands.linting import lint
from driftnet.findings import corpus as saved_cases
from driftnet.findings.corpus import COMMITTED
from driftnet.generators import bulk
from driftnet.generators.quality import PLANTED, minimal, operators
from driftnet.generators.strategies import cases as drawn_cases
from driftnet.model.inspect import Case, nodes
from driftnet.model.signature import hash8
from driftnet.model.verdict import Word
from driftnet.oracle.judge import judge
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import effective
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util import records
from driftnet.util.errors import UserError
from driftnet.util.machine import description
from driftnet.util.nearest import demand
from driftnet.util.spent import OUTSIDE
from hypothesis import Phase, given, settings
from msgspec import Struct, structs
from onnx import TensorProto, helper, numpy_helper

MODELS = 200
WORK = 80
RATE, TAKEN = "per CPU ", ("CPU s", "CPU ms", "ms per case")
"""In the names of measures: so many in a CPU second, and what takes so long."""
FROM_SAVED, TIMES, CAMPAIGN_SEED = 600, 10, 60611
"""Cases of one campaign on one target. From an empty corpus it has a minute instead."""


def cases(models: int = MODELS, targets: Sequence[str] = DEFAULT_TARGETS) -> dict[str, float]:
    """Cases per CPU second, and CPU milliseconds per case by stage, over `models` generated models without reduction.

    The stages of a target are wall time in its worker, which has one thread and nothing to wait for.
    """
    spent: dict[str, float] = defaultdict(float)
    count = 0
    with Runner() as runner:
        installed = [resolve(word) for word in targets]
        before = time.process_time() + runner.cpu_seconds
        for index in range(models):
            with _timed(spent, "generate", runner):
                case = bulk.case(0, index)
            for one in installed:
                for choice in choices(one, 0, index):
                    count += 1
                    with _timed(spent, "grid", runner):
                        given = variant(case, one, choice)
                    with _timed(spent, "reference", runner):
                        reference = runner.reference.run(given)
                    if reference.error or reference.broken:
                        continue
                    with _timed(spent, "target", runner):
                        observation = runner.observe(given, one, choice.recipe)
                    for run in observation.stages:
                        spent[f"{one.target.name} {run.stage}"] += run.seconds
                    with _timed(spent, "oracle", runner):
                        options = effective(one.target, choice.recipe)
                        judge(given, observation, target=one.target, options=options, reference=runner.reference)
        total = time.process_time() + runner.cpu_seconds - before
    milliseconds = {f"{stage}, ms per case": 1000 * seconds / count for stage, seconds in sorted(spent.items())}
    return {"cases per CPU second": count / total, **milliseconds}


def generators(models: int = 1000, seeds: int = 5) -> dict[str, float]:
    """CPU milliseconds per generated case, and how many nodes and CPU seconds shrinking takes for each planted bug."""
    started = time.process_time()
    made = [bulk.case(0, index) for index in range(models)]
    milliseconds = 1000 * (time.process_time() - started) / models
    drawn_milliseconds = _drawn(models)
    extra, seconds = [], []
    for planted in PLANTED.values():
        for seed in range(seeds):
            started = time.process_time()
            found = minimal(planted.bug, focus=planted.focus or planted.necessary, seed=seed)
            seconds.append(time.process_time() - started)
            extra.append(len(operators(found)) - len(planted.necessary))
    return {
        "bulk, CPU ms per case": milliseconds,
        "bulk, mean nodes": statistics.mean(map(nodes, made)),
        "Hypothesis, CPU ms per case": drawn_milliseconds,
        "planted bugs": float(len(PLANTED)),
        "shrinking, median of extra nodes": statistics.median(extra),
        "shrinking, share with at most one extra node": sum(n <= 1 for n in extra) / len(extra),
        "shrinking, mean CPU s": statistics.mean(seconds),
        "shrinking, share under 3 CPU s": sum(s < 3 for s in seconds) / len(seconds),
        "shrinking, longest CPU s": max(seconds),
    }


def _drawn(models: int) -> float:
    """CPU milliseconds per case that Hypothesis draws."""

    @settings(max_examples=models, database=None, deadline=None, phases=[Phase.generate], derandomize=True)
    @given(case=drawn_cases())
    def draw(case: Case) -> None:
        assert case.model

    started = time.process_time()
    draw()
    return 1000 * (time.process_time() - started) / models


def campaign(targets: Sequence[str] = DEFAULT_TARGETS, saved: Path = COMMITTED) -> dict[str, float]:
    """What campaigns with one worker find for their CPU time, from the saved cases, from ten times as many of the same
    causes, and from none, a target at a time.

    refused   cases that the target refuses, which tell nothing of it
    shares of the CPU time: of cases that did not fail, of known failures, of new ones (explained, confirmed, reduced,
    learned of), of what is handed over of these, of everything else (starting, reading the corpus, drawing graphs)
    parts of it, spent for   what comes first of what is open (`driftnet.util.spent`);   spent on   what that is: a run
    of a target, say, whatever it is for;   everything else   where no part is open, and in the coordinator
    waiting   the share of the wall time in which neither this process nor a worker did anything
    """
    measures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        none, many = Path(place) / "none", Path(place) / "many"
        none.mkdir()
        multiplied(saved, many, TIMES)
        for word in targets:
            plan = Plan(report=Path(place) / word, targets=(word,), seed=CAMPAIGN_SEED)
            for name, chosen in (
                ("saved cases", replace(plan, corpus=saved, cases=FROM_SAVED)),
                ("ten times as many", replace(plan, corpus=many, cases=FROM_SAVED)),
                ("empty corpus", replace(plan, corpus=none, minutes=1)),
            ):
                summary = fuzz(replace(chosen, report=plan.report / name))
                told = {f"{word}, {name}: {what}": value for what, value in campaign_measures(summary).items()}
                measures |= told
    return measures


def multiplied(saved: Path, many: Path, times: int) -> None:
    """Write a corpus with `times` copies of each cause below `saved`, all but one under other names, into `many`."""
    for file in saved.glob(f"*/*/{record.FILE}"):
        folder = file.parent
        names = [folder.name, *(path.name for path in saved_cases.folders([folder]))]
        for copy in range(times):
            other = {name[-8:]: hash8(f"{name} {copy}") if copy else name[-8:] for name in names}
            renamed = partial(re.compile("|".join(other)).sub, lambda digits: other[digits[0]])  # noqa: B023 (used here)
            for path in (path for path in folder.rglob("*") if path.is_file()):
                place = many / renamed(str(path.relative_to(saved)))
                place.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".json":
                    place.write_text(renamed(path.read_text(encoding="utf-8")), encoding="utf-8")
                else:
                    shutil.copyfile(path, place)


def campaign_measures(summary: Summary) -> dict[str, float]:
    """The measures of one campaign."""
    seconds, by = max(summary.cpu_seconds, 1e-9), summary.cpu_by
    known = sum(finding.times - (finding.status == "new") for finding in summary.findings)
    refused = summary.verdicts.get(Word.REJECTS, 0)
    counted = {
        "CPU s": summary.cpu_seconds,
        "cases per CPU second": summary.cases / seconds,
        "cases that are not refused per CPU second": (summary.cases - refused) / seconds,
        "new causes": float(len(causes := {finding.cause for finding in summary.new})),
        "new causes per CPU minute": 60 * len(causes) / seconds,
        "known failures": float(known),
        "verified of these, mistaken": float(summary.mistaken),
    }
    each = {"CPU ms of a known failure": 1000 * by.get("known", 0.0) / known} if known else {}
    shares = {f"share of the CPU time, {what}": spent / seconds for what, spent in sorted(by.items())}
    shares |= {what: spent / seconds for what, spent in parts(summary).items()}
    return counted | each | shares | waiting(summary)


def parts(summary: Summary) -> dict[str, float]:
    """CPU seconds of one campaign: all of them by what they were spent for, then all again by what on."""
    rest = max(0.0, summary.cpu_seconds - sum(summary.cpu_parts.values()))
    told: dict[str, float] = defaultdict(float)
    for name, seconds in summary.cpu_parts.items():
        why, _, what = name.partition(": ")
        told[f"part of the CPU time, spent for: {why}"] += seconds
        told[f"part of the CPU time, spent on: {what}"] += seconds
    for way in ("for", "on"):
        told[f"part of the CPU time, spent {way}: {OUTSIDE}"] += rest
    return dict(sorted(told.items()))


def waiting(summary: Summary) -> dict[str, float]:
    """Where it is known how long a campaign took, for how much of that it waited."""
    wall = summary.wall_seconds
    return {"part of the wall time, waiting": max(0.0, 1 - summary.cpu_seconds / wall)} if wall else {}


def linting(nodes: int = 500, targets: Sequence[str] = DEFAULT_TARGETS) -> dict[str, float]:
    """CPU seconds of holding a chain of Conv, BatchNormalization and Relu, `nodes` in all, against what is known."""
    rng = np.random.default_rng(0)
    built, x = [], "x"
    constants: dict[str, np.ndarray] = {}
    for k in range(nodes):
        op, sizes = (("Conv", [(8, 8, 1, 1)]), ("BatchNormalization", [(8,)] * 4), ("Relu", []))[k % 3]
        names = [f"{op}{k}_{i}" for i in range(len(sizes))]
        constants |= {name: np.abs(rng.standard_normal(size, dtype=np.float32)) for name, size in zip(names, sizes)}
        built.append(helper.make_node(op, [x, *names], [x := f"t{k}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, None, None)) for name in ("x", x)]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(built, "chain", ends[:1], ends[1:], weights)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
        return {f"{word}, CPU s": lint(path, target=word, corpus=COMMITTED)["seconds"] for word in targets}


BENCHMARKS: Mapping[str, Callable[[], dict[str, float]]] = {
    "campaign": campaign,
    "cases": cases,
    "generators": generators,
    "lint": linting,
}


class Result(Struct, omit_defaults=True):
    """The measures of one benchmark, and the machine they were taken on, with what was installed.

    work     CPU seconds that `fixed_work` took there, before and after it; none in results of an older time
    before   the measures of another result, and its `work_before`;   ratios   to these (`compared`)
    """

    name: str
    measures: dict[str, float]
    machine: dict[str, Any]
    work: float | None = None
    before: dict[str, float] | None = None
    work_before: float | None = None
    ratios: dict[str, tuple[float, float | None]] = {}


def run(name: str) -> Result:
    """The result of benchmark `name`. Raises UserError for an unknown name."""
    demand([name], BENCHMARKS, "no benchmark is called {!r}", f"there is {', '.join(BENCHMARKS)}")
    work = fixed_work()
    measures = BENCHMARKS[name]()
    return result(name, measures, (work + fixed_work()) / 2)


def result(name: str, measures: dict[str, float], work: float | None = None) -> Result:
    """The measures of a benchmark that was run on this machine."""
    releases = {word: resolve(word).release for word in DEFAULT_TARGETS}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "onnx": onnx.__version__, **releases}
    return Result(name, measures, description() | versions, fixed_work() if work is None else work)


def fixed_work() -> float:
    """CPU seconds of a piece of work that is always the same, in Python, numpy and onnx, on one core: by it results of
    two machines are comparable, and of one that was more or less busy."""
    x = np.linspace(-1, 1, 512 * 512, dtype=np.float32).reshape(512, 512)
    model = helper.make_graph([], "work", [], [], [numpy_helper.from_array(x, "x")]).SerializeToString()
    started = time.process_time()
    for _ in range(WORK):
        numpy_helper.to_array(onnx.GraphProto.FromString(model).initializer[0])
        np.sort(np.tanh(x).astype(np.float64), axis=1).cumsum()
        json.loads(json.dumps({str(k): [k, k / 7] for k in range(4000)}))
    return time.process_time() - started


def compared(before: Result, now: Result) -> Result:
    """A result beside another one. The ratio of each measure: as it is, and as it would be if the fixed work had taken
    as long both times, None where that is not known or says nothing of it (a share, a count)."""
    work = now.work and before.work and now.work / before.work
    told = structs.replace(now, before=before.measures, work_before=before.work, ratios={})
    for name, value in now.measures.items():
        if was := before.measures.get(name):
            ratio, power = value / was, 1 if RATE in name else -1 if any(unit in name for unit in TAKEN) else 0
            told.ratios[name] = (ratio, ratio * work**power if work and power else None)
    return told


def read(path: Path) -> Result:
    """A result that was written before. Raises UserError when it is none."""
    try:
        return records.read(json.loads(path.read_text(encoding="utf-8")), Result, "the result")
    except (OSError, ValueError) as e:
        raise UserError(f"{path} is no benchmark result: {e}", hint="driftnet bench --out FILE writes one") from e


@contextlib.contextmanager
def _timed(spent: dict[str, float], name: str, runner: Runner) -> Iterator[None]:
    """Add the CPU seconds of a block, in this process and in the workers of `runner`, to spent[name]."""
    started = time.process_time() + runner.cpu_seconds
    yield
    spent[name] += time.process_time() + runner.cpu_seconds - started
