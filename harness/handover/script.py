"""What reproduce.py does beside running the target. This text goes into it, with the names of FILLED_IN made anew.

A status of 1 says that the failure was seen again. So what the script itself does wrong, or cannot do, may not end in
that one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
from driftnet.model.inspect import dtype_name, graph_inputs
from onnx import numpy_helper

SCRIPT = Path(__file__)
HERE = SCRIPT.parent
WHAT = SEEN = DISTRIBUTION = ENDED = SAID = ""
AS_WRITTEN = False
TOLERANCE, SECONDS, TRIES = 0.0, 60, 1

REPRODUCED, NOT_TRIED, RAISED = 1, 2, 3  # exit statuses, the last one of the child
MEMORY = 8 << 30  # bytes of address space that a run may take
PATIENCE = 300  # seconds for what comes before and behind the run
FROM_OUTSIDE = (signal.SIGALRM, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Arrays = Mapping[str, np.ndarray]


def run_target(model: str, feeds: Sequence[Arrays], calibration: Sequence[Arrays], outputs: Mapping[str, str]) -> Any:
    """What the target makes of the ONNX file `model`, in the current folder: one {output: array} a feed."""
    raise NotImplementedError


FILLED_IN = frozenset(
    {"SCRIPT", "HERE", "WHAT", "SEEN", "DISTRIBUTION", "ENDED", "SAID", "AS_WRITTEN", "TOLERANCE", "SECONDS", "TRIES"}
    | {"run_target", "give_up"}
)


def give_up(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Where an error of this script itself ends."""
    traceback.print_exception(kind, error, trace)
    print(f"could not be tried: {kind.__name__}: {error}", flush=True)
    os._exit(2)


def main() -> None:
    """Try as often as it may take; say what is wrong, or that nothing is."""
    model = onnx.load(HERE / "model.onnx", load_external_data=False)
    inputs = [value.name for value in graph_inputs(model)]
    outputs = {value.name: dtype_name(value) for value in model.graph.output}
    feeds = arrays("test_data_set_*", inputs)
    if "--child" in sys.argv:
        child(int(sys.argv[-1]), feeds, arrays("calibration_*", inputs), outputs)
    print(WHAT)
    print("seen on", SEEN, "- installed here:", DISTRIBUTION, metadata.version(DISTRIBUTION))
    for attempt in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            if told := failure(Path(folder), attempt) or difference(Path(folder), feeds, list(outputs)):
                print(f"{told}\nREPRODUCED")
                sys.exit(REPRODUCED)
    print("not reproduced")


def child(attempt: int, feeds: Sequence[Arrays], calibration: Sequence[Arrays], outputs: Mapping[str, str]) -> NoReturn:
    """Run the target, and leave its results in the current folder. A process of its own does it, since it may crash.

    It ends without what C and Python do at an exit: a crash there is not what was seen.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    kept = stirred(attempt)
    signal.alarm(SECONDS)  # ends this process, whatever native code is doing
    try:
        results = run_target(str(HERE / "model.onnx"), feeds, calibration, outputs)
    except Exception as error:
        if isinstance(error, (ImportError, NameError)) and type(error).__name__ not in SAID:
            raise  # not the target's fault: it is not here, or this script lacks something
        traceback.print_exc()
        Path("raised.txt").write_text(f"{type(error).__name__}: {error}", errors="replace", encoding="utf-8")
        os._exit(RAISED)
    finally:
        signal.alarm(0)
    del kept
    for k, result in enumerate(results):
        for i, name in enumerate(outputs):
            if name in result:
                tensor = numpy_helper.from_array(np.asarray(result[name]))
                Path(f"{k}_{i}.pb").write_bytes(tensor.SerializeToString())
    sys.stdout.flush()
    os._exit(0)


def stirred(attempt: int) -> list[bytearray]:
    """Blocks with holes between them: each attempt but the first finds another heap."""
    sizes = np.random.default_rng(attempt).integers(16, 4096, 3000 if attempt else 0)
    return [bytearray(int(size)) for size in sizes][::2]


def failure(folder: Path, attempt: int) -> str:
    """Run the target in `folder`: how that failed, "" when it came back. Raises RuntimeError when this says nothing."""
    command = [sys.executable, str(SCRIPT), "--child", str(attempt)]
    with open(folder / "log.txt", "wb") as log:
        child = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        status = child.wait(SECONDS + PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # and what it started
    print((folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip()[-4000:])
    if status == -signal.SIGALRM and ENDED == "hang":
        return f"actual: did not come back in {SECONDS} s"
    if status < 0 and -status not in FROM_OUTSIDE:
        return f"actual: ended by {signal.Signals(-status).name}"
    if status == RAISED and ENDED in ("error", "memory"):
        return f"actual: {(folder / 'raised.txt').read_text(encoding='utf-8')}"
    if status not in (0, NOT_TRIED) and f"exit-{status}" == ENDED:
        return f"actual: ended itself with status {status}"
    if status:
        raise RuntimeError(f"it ended with status {status}, which is not what was seen")
    return ""


def difference(folder: Path, feeds: Sequence[Arrays], outputs: Sequence[str]) -> str:
    """What is wrong with the first wrong output in `folder`, "" when none is."""
    model = folder / "as_written.onnx" if AS_WRITTEN else HERE / "model.onnx"
    expected = reference(model, feeds, outputs)
    print("onnx.reference", second_opinion(model, feeds, expected))
    for k, i in np.ndindex(len(feeds), len(outputs)):
        right, path = expected[k][outputs[i]], folder / f"{k}_{i}.pb"
        actual = array(path) if path.exists() else None
        if told := "it is missing" if actual is None else compared(right, actual):
            return f"output {outputs[i]!r} of feed {k}: {told}\nexpected: {right}\nactual:   {actual}"
    return ""


def reference(model: Path, feeds: Sequence[Arrays], outputs: Sequence[str]) -> list[Arrays]:
    """What onnxruntime computes without graph optimizations."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    return [dict(zip(outputs, session.run(list(outputs), dict(feed)))) for feed in feeds]


def second_opinion(model: Path, feeds: Sequence[Arrays], expected: Sequence[Arrays]) -> str:
    """What onnx.reference says of the expected values, in words."""
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(str(model))
        results = [dict(zip(evaluator.output_names, evaluator.run(None, dict(feed)))) for feed in feeds]
    except Exception as error:
        return f"cannot run it ({type(error).__name__})"
    told = [compared(a[name], b[name]) for a, b in zip(expected, results) for name in a]
    return next((f"differs: {text}" for text in told if text), "agrees")


def compared(expected: np.ndarray, actual: np.ndarray) -> str:
    """What is wrong with `actual`, "" when nothing is."""
    if expected.shape != actual.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    if expected.dtype != actual.dtype:
        return f"dtype {actual.dtype} instead of {expected.dtype}"
    if expected.dtype.kind not in "biuf":
        return "" if np.array_equal(expected, actual) else "other values"
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(a - b))
    wrong = ~(error <= TOLERANCE)
    if not wrong.any():
        return ""
    return f"{wrong.sum()} of {wrong.size} elements are wrong, the worst by {np.nanmax(error[wrong], initial=0):.6g}"


def arrays(pattern: str, names: Sequence[str]) -> list[Arrays]:
    """The inputs in every folder that `pattern` matches, one {name: array} a folder."""
    folders = sorted(HERE.glob(pattern), key=lambda folder: int(folder.name.rpartition("_")[2]))
    return [{name: array(folder / f"input_{i}.pb") for i, name in enumerate(names)} for folder in folders]


def array(path: Path) -> np.ndarray:
    """The array in a serialized TensorProto."""
    return np.asarray(numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))
