"""What a target asks of its system: every native call with its arguments, the files that it leaves, what comes out.

python -m tests.support.native_calls FOLDER runs, for each FOLDER/<k>/, the target's own functions and then those of the
script FOLDER/<k>/reproduce.py, and writes both accounts into FOLDER/<k>/told.json. FOLDER/<k>/asked.json holds
{"target": a word, "options": those in effect}; the model and its inputs lie beside it. Each runs in a fork of its own:
OpenVINO numbers what it makes, and writes the numbers into its files.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from driftnet.findings import corpus
from driftnet.model.inspect import Case, dtype_name
from driftnet.targets.environments import resolve
from driftnet.targets.interface import Options, Target

SECONDS = 120
"""Wall seconds that one run of a target may take: a lock that a fork has inherited would hold it for ever."""

SETTINGS = ("graph_optimization_level", "intra_op_num_threads", "inter_op_num_threads", "log_severity_level")
SETTINGS += ("execution_mode",)
ENTRIES = ("session.disable_prepacking", "session.save_model_format")


def words(x: Any) -> Any:
    """An argument as JSON, alike for alike ones of two modules."""
    if isinstance(x, np.ndarray):
        return [x.dtype.str, list(x.shape), hashlib.sha256(x.tobytes()).hexdigest()]
    if isinstance(x, Mapping):
        return {str(k): words(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [words(v) for v in x]
    if type(x).__name__ == "SessionOptions":
        return {name: str(getattr(x, name)) for name in SETTINGS} | {name: entry(x, name) for name in ENTRIES}
    if type(x).__name__ == "Mat":  # of ncnn, as Net is
        return words(np.array(x))
    if type(x).__name__ == "Net":
        return {name: str(getattr(x.opt, name)) for name in dir(x.opt) if name.startswith(("use_", "num_", "light"))}
    if x is None or isinstance(x, bool | int | float | str):
        return (
            re.sub(r"[a-z0-9_]{8}/augmented", "a name/augmented", x.replace(os.getcwd(), "."))
            if isinstance(x, str)
            else x
        )
    return re.sub(r"<(.*[.])?(\w+) object at 0x\w+>", r"\2", str(x))


def entry(settings: Any, name: str) -> str | None:
    """One of the entries of onnxruntime's SessionOptions; None where it is not set."""
    try:
        return settings.get_session_config_entry(name)
    except RuntimeError:
        return None


def digest(content: bytes) -> str:
    """Of a file, whatever name that is made anew each time its maker has given it."""
    return hashlib.sha256(re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"a UUID", content)).hexdigest()


def recorded(name: str, call: Callable[..., Any], log: Path) -> Callable[..., Any]:
    """`call`, written into a file: it may run in a child that forks off."""

    def recording(*args: Any, **named: Any) -> Any:
        with log.open("a") as file:
            file.write(json.dumps([name, words(args), words(named)]) + "\n")
        return call(*args, **named)

    return recording


def account(folder: Path, log: Path, run: Callable[[], Any]) -> dict[str, Any]:
    """What `run` does in the empty folder that it is called in, by a fork of this process."""
    told = folder.with_suffix(".json")
    told.unlink(missing_ok=True)
    fork = multiprocessing.get_context("fork").Process(
        target=lambda: told.write_text(json.dumps(account_here(folder, log, run)))
    )
    fork.start()
    fork.join(SECONDS)
    fork.kill()
    assert told.exists(), f"{run} ended with status {fork.exitcode}, should be 0"
    return json.loads(told.read_text(encoding="utf-8"))


def account_here(folder: Path, log: Path, run: Callable[[], Any]) -> dict[str, Any]:
    """As account, by this process."""
    shutil.rmtree(folder, ignore_errors=True)  # the same folder for everybody: an artifact may hold its own path
    folder.mkdir()
    log.write_text("")
    os.chdir(folder)
    try:
        results = words(run())
    except Exception as e:
        results = f"{type(e).__name__}: {e}"
    made = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "calls": [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()],
        "files": {str(path.relative_to(folder)): digest(path.read_bytes()) for path in made},
        "results": results,
    }


def by_target(target: Target, options: Options, place: Path, case: Case, outputs: Mapping[str, str]) -> Any:
    folder, calibration = os.getcwd(), list(case.calibration or case.feeds)
    converted = target.convert(str(place / "model.onnx"), folder, options)
    return target.execute(target.quantize(converted, calibration, folder, options), list(case.feeds), outputs, options)


def by_script(place: Path, case: Case, outputs: Mapping[str, str]) -> Any:
    spec = importlib.util.spec_from_file_location("reproduce", place / "reproduce.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sys.excepthook = sys.__excepthook__
    return script.run_target(str(place / "model.onnx"), list(case.feeds), list(case.calibration), outputs)


def main(root: Path) -> None:
    log = root / "calls.txt"
    places = sorted(path for path in root.iterdir() if path.is_dir())
    asked = [json.loads((place / "asked.json").read_text(encoding="utf-8")) for place in places]
    installed = resolve(asked[0]["target"])
    target = installed.target
    getattr(importlib.import_module(installed.spec.partition(":")[0]), "preload", lambda: None)()
    for dotted in target.natives:
        name, _, function = dotted.rpartition(".")
        holder = pkgutil.resolve_name(name)
        setattr(holder, function, recorded(dotted, getattr(holder, function), log))
    for place, each in zip(places, asked):
        case, _ = corpus.read_model(place)
        outputs = {value.name: dtype_name(value) for value in case.proto.graph.output}
        runs = {
            "target": partial(by_target, target, each["options"], place, case, outputs),
            "script": partial(by_script, place, case, outputs),
        }
        told = {who: account(place / "run", log, run) for who, run in runs.items()}
        (place / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
