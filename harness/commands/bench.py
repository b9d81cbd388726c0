"""Benchmarks of driftnet itself, in CPU time; a ratio of two results from the same machine is what counts."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driftnet.campaign.shard import drawn
from driftnet.findings import corpus
from driftnet.generators import bulk
from driftnet.generators.quality import PLANTED, minimal, operators
from driftnet.generators.strategies import cases as drawn_cases
from driftnet.model.inspect import Case, nodes
from driftnet.oracle.judge import judge
from driftnet.run.runner import Runner
from driftnet.targets.environments import DEFAULT_TARGETS, resolve
from driftnet.targets.recipe import effective
from driftnet.util import records
from driftnet.util.errors import UserError
from driftnet.util.machine import description
from hypothesis import Phase, given, settings
from msgspec import Struct

MODELS = 200


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
                for variant, chosen in drawn(case, one, 0, index):
                    count += 1
                    with _timed(spent, "reference", runner):
                        reference = runner.reference.run(variant)
                    if reference.error or reference.broken:
                        continue
                    with _timed(spent, "target", runner):
                        observation = runner.observe(variant, one, chosen)
                    for run in observation.stages:
                        spent[f"{one.target.name} {run.stage}"] += run.seconds
                    with _timed(spent, "oracle", runner):
                        options = effective(one.target, chosen)
                        judge(variant, observation, target=one.target, options=options, reference=runner.reference)
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


def check(models: Mapping[str, Callable[[], Case]] | None = None) -> dict[str, float]:
    """What `driftnet check` costs and says of models true to life, each in the FORMS: CPU seconds, runs of the target,
    MiB of its largest process, and the share of nodes vouched for.

    models   by default those of tests.support.production, of which there is one only where driftnet's sources are:
    raises UserError elsewhere
    """
    measures: dict[str, float] = {}
    for name, made in (models or _production()).items():
        with tempfile.TemporaryDirectory() as folder:
            words = _written(made(), Path(folder))
            for form, options in FORMS.items():
                told, used = _command("check", *words, *options, *PATIENCE, "--json")
                (found,) = told["targets"]
                measures[f"{name}, {form}: CPU s"] = used.ru_utime + used.ru_stime
                measures[f"{name}, {form}: runs of the target"] = found["target_runs"]
                measures[f"{name}, {form}: largest process, MiB"] = used.ru_maxrss / 1024
                measures[f"{name}, {form}: share vouched for"] = found["vouched"]
    return measures


FORMS: Mapping[str, Sequence[str]] = {
    "float on onnxruntime": ("--target", "onnxruntime-quant", "--quantize", "none"),
    "quantized by onnxruntime": ("--target", "onnxruntime-quant"),
    "float on MNN": ("--target", "mnn"),
}

PATIENCE = ("--budget", "86400", "--timeout", "600")
"""CPU time is measured: how busy the machine is may not change what is done."""


def _production() -> Mapping[str, Callable[[], Case]]:
    try:
        models = importlib.import_module("tests.support.production")
    except ImportError as e:
        hint = "clone driftnet's repository, and run it there"
        raise UserError("the models of this benchmark are not installed with driftnet", hint=hint) from e
    return {name: getattr(models, name) for name in models.SMALL}


def _written(case: Case, folder: Path) -> list[str]:
    """The words of a command that checks `case`, which is written into `folder`."""
    calibration = folder / "calibration"
    calibration.mkdir()
    corpus.write_model(replace(case, calibration=()), (), folder)
    corpus.write_model(replace(case, feeds=case.calibration or case.feeds, calibration=()), (), calibration)
    given = {"--inputs": folder / "test_data_set_0", "--calibration": calibration, "--corpus": folder / "corpus"}
    return [str(folder / "model.onnx"), *(str(word) for pair in given.items() for word in pair)]


def _command(*words: str) -> tuple[dict[str, Any], resource.struct_rusage]:
    """What a command of driftnet prints as JSON, and what it and all of its processes used. Raises UserError where it
    cannot do what it is asked."""
    with subprocess.Popen([sys.executable, "-m", "driftnet.cli.main", *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    result: dict[str, Any] = json.loads(told)
    if "error" in result:
        raise UserError(result["error"]["message"], hint=result["error"]["hint"], kind=result["error"]["kind"])
    return result, used


BENCHMARKS: Mapping[str, Callable[[], dict[str, float]]] = {
    "cases": cases,
    "check": check,
    "generators": generators,
}


class Result(Struct, omit_defaults=True):
    """The measures of one benchmark, and the machine they were taken on; `before`, those of another result."""

    name: str
    measures: dict[str, float]
    machine: dict[str, Any]
    before: dict[str, float] | None = None


def run(name: str) -> Result:
    """The result of benchmark `name`. Raises UserError for an unknown name."""
    if name not in BENCHMARKS:
        raise UserError(f"no benchmark is called {name!r}", hint=f"there is {', '.join(BENCHMARKS)}", kind="option")
    return Result(name, BENCHMARKS[name](), description() | {"python": platform.python_version()})


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
