"""What `driftnet check` costs and says of models true to life: the benchmark that `driftnet bench --compare` reads.

python -m tests.support.check_costs [FILE] writes the measures as JSON, by default to reports/bench/check.json.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from driftnet.commands import bench
from driftnet.findings import corpus
from driftnet.model.case import Case
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import effective
from driftnet.targets.registry import DEFAULT_TARGETS

from tests.support import production
from tests.support.paths import ROOT, no_cases

PATIENCE = ("--budget", "86400", "--timeout", "600")
"""CPU time is measured: how busy the machine is may not change what is done."""


def forms() -> Iterator[tuple[str, Sequence[str]]]:
    """(name, options of `check`): each default target on floats, and quantizing if that is its default recipe."""
    for name in DEFAULT_TARGETS:
        target = resolve(name).target
        yield f"float on {name}", ("--target", name, "--recipe", json.dumps(target.features["float"]))
        if target.scheme(effective(target, {})):
            yield f"quantized by {name}", ("--target", name)


def measures(models: Mapping[str, Callable[[], Case]], forms: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Of each model in each form: CPU seconds, runs of the target, MiB of the largest process, and the share of nodes
    vouched for."""
    found = {}
    for name, made in models.items():
        with tempfile.TemporaryDirectory() as folder:
            words = _written(made(), Path(folder))
            for form, options in forms.items():
                told, used = _checked(*words, *options, *PATIENCE, "--json")
                found[f"{name}, {form}: CPU s"] = used.ru_utime + used.ru_stime
                found[f"{name}, {form}: runs of the target"] = told["target_runs"]
                found[f"{name}, {form}: largest process, MiB"] = used.ru_maxrss / 1024
                found[f"{name}, {form}: share vouched for"] = told["vouched"]
    return found


def _written(case: Case, folder: Path) -> list[str]:
    """The words of a command that checks `case`, which is written into `folder`."""
    calibration = folder / "calibration"
    calibration.mkdir()
    corpus.write_model(replace(case, calibration=()), (), folder)
    corpus.write_model(replace(case, feeds=case.calibration or case.feeds, calibration=()), (), calibration)
    given = {"--inputs": folder / "test_data_set_0", "--calibration": calibration, "--corpus": no_cases(folder)}
    return [str(folder / "model.onnx"), *(str(word) for pair in given.items() for word in pair)]


def _checked(*words: str) -> tuple[dict[str, Any], resource.struct_rusage]:
    """What `check` says of its one target, and what it and all of its processes used."""
    command = [sys.executable, "-m", "driftnet.cli.main", "check", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert "error" not in told, f"check said {told['error']}"
    (found,) = told["targets"]
    return found, used


def main() -> None:
    """The benchmark."""
    small = {name: getattr(production, name) for name in production.SMALL}
    found = bench.result("check", measures(small, dict(forms())))
    file = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "reports/bench/check.json"
    file.write_text(json.dumps(msgspec.to_builtins(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
