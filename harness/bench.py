"""Benchmarks of driftnet itself, in CPU time; a ratio of two results from the same machine is what counts."""

from __future__ import annotations

import contextlib
import json
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings

from generators import bulk
from generators.quality import PLANTED, minimal, operators
from generators.strategies import cases as drawn_cases
from harness.case import Case, nodes
from harness.environments import resolve
from harness.errors import UserError
from harness.laboratory import Laboratory
from harness.machine import description
from harness.oracle.judge import judge
from harness.recipe import effective
from harness.shard import drawn

MODELS = 200


def cases(models: int = MODELS, targets: Sequence[str] = ("mnn", "onnxruntime-quant")) -> dict[str, float]:
    """Cases per CPU second, and CPU milliseconds per case by stage, over `models` generated models without reduction.

    The stages of a target are wall time in its worker, which has one thread and nothing to wait for.
    """
    spent: dict[str, float] = defaultdict(float)
    count = 0
    with Laboratory() as lab:
        installed = [resolve(word) for word in targets]
        before = time.process_time() + lab.cpu_seconds
        for index in range(models):
            with _timed(spent, "generate", lab):
                case = bulk.case(0, index)
            for one in installed:
                for variant, chosen in drawn(case, one, 0, index):
                    count += 1
                    with _timed(spent, "reference", lab):
                        reference = lab.reference.run(variant)
                    if reference.error or reference.broken:
                        continue
                    with _timed(spent, "target", lab):
                        observation = lab.observe(variant, one, chosen)
                    for run in observation.stages:
                        spent[f"{one.target.name} {run.stage}"] += run.seconds
                    with _timed(spent, "oracle", lab):
                        options = effective(one.target, chosen)
                        judge(variant, observation, target=one.target, options=options, reference=lab.reference)
        total = time.process_time() + lab.cpu_seconds - before
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


BENCHMARKS: Mapping[str, Callable[[], dict[str, float]]] = {"cases": cases, "generators": generators}


def run(name: str) -> dict[str, Any]:
    """The measures of benchmark `name`, and the machine they were taken on. Raises UserError for an unknown name."""
    if name not in BENCHMARKS:
        raise UserError(f"no benchmark is called {name!r}", hint=f"there is {', '.join(BENCHMARKS)}", kind="option")
    machine = description() | {"python": platform.python_version()}
    return {"name": name, "measures": BENCHMARKS[name](), "machine": machine}


def read(path: Path) -> dict[str, Any]:
    """A result that was written before. Raises UserError when it is none."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
        name, measures, machine = result["name"], result["measures"], result["machine"]
        if not isinstance(name, str) or not isinstance(machine, dict):
            raise TypeError("its name is no text, or its machine no object")
        if not all(isinstance(value, int | float) for value in measures.values()):
            raise TypeError("not every measure is a number")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        what = f"lacks {e}" if isinstance(e, KeyError) else str(e)
        raise UserError(f"{path} is no benchmark result: {what}", hint="driftnet bench --out FILE writes one") from e
    return {"name": name, "measures": measures, "machine": machine}


@contextlib.contextmanager
def _timed(spent: dict[str, float], name: str, lab: Laboratory) -> Iterator[None]:
    """Add the CPU seconds of a block, in this process and in the workers of `lab`, to spent[name]."""
    started = time.process_time() + lab.cpu_seconds
    yield
    spent[name] += time.process_time() + lab.cpu_seconds - started
