"""What reproduce.py does beside running the target. This text goes into it, with the names of FILLED_IN made anew.

A status of 1 says that what is claimed was seen. So what the script itself does wrong, or cannot do, may not end in
that one, nor may another failure.
"""

import contextlib
import copy
import ctypes
import math
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
from driftnet.handover.markdown import plain
from driftnet.handover.measures import Measured, OtherwiseError, Run
from driftnet.model.inspect import dtype_name, graph_inputs
from driftnet.model.signature import said
from onnx import numpy_helper

SCRIPT = Path(__file__)
WHAT = CLAIM = ALLOWED = WITHOUT = SEEN = DISTRIBUTION = COMPLAINT = ""
ABOUT: Mapping[str, Any] = {}
BOUND, SECONDS, TRIES, BY_CHANCE, CHANGED = 0.0, 60, 1, False, 0

REPRODUCED, NOT_TRIED, RAISED, OUT_OF_MEMORY = 1, 2, 3, 4  # exit statuses, the last two of the child
USAGE = """usage: python reproduce.py [FOLDER [TRIES]]

Without FOLDER the case is run, and then the same without what makes it fail. FOLDER: another model.onnx to run, with
test_data_set_* beside it, at most TRIES times. Exit status: 1 reproduced, 0 not reproduced, 2 could not be told."""
MEMORY = 8 << 30  # bytes of address space that a run may take
PATIENCE = 300  # seconds for what comes before and behind the run
CHECKED = {"LD_PRELOAD": "libc_malloc_debug.so.0", "GLIBC_TUNABLES": "glibc.malloc.check=3"}
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Arrays = Mapping[str, np.ndarray]


def run_target(
    model: str, feeds: Sequence[Arrays], calibration: Sequence[Arrays], outputs: Mapping[str, str], without: bool
) -> Any:
    """What the target makes of the ONNX file `model`, in the current folder: one {output: array} a feed."""
    raise NotImplementedError


def measure(run: Run, about: Mapping[str, Any]) -> Measured:
    """What is claimed to be above BOUND."""
    raise NotImplementedError


FILLED_IN = frozenset(
    {"SCRIPT", "WHAT", "CLAIM", "ALLOWED", "WITHOUT", "SEEN", "DISTRIBUTION", "COMPLAINT", "ABOUT", "BOUND", "SECONDS"}
    | {"TRIES", "BY_CHANCE", "CHANGED", "here", "run_target", "measure", "give_up"}
)


def here(place: Path) -> Path:
    """The folder with the model and its inputs; `place` is an empty one."""
    raise NotImplementedError


def give_up(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Where an error of this script itself ends; that nobody reads on is none worth a word."""
    if kind is BrokenPipeError:
        os._exit(2)
    traceback.print_exception(kind, error, trace)
    print(f"could not be tried: {kind.__name__}: {error}", flush=True)
    os._exit(2)


def main() -> None:
    """Try the case, or another model in a folder of the same layout that is named, as often as is said; and then the
    one without the trigger. Say what came of each."""
    if "--child" in sys.argv:
        child(*sys.argv[2:])
    given = sys.argv[1:]
    if {"-h", "--help"} & {*given}:
        print(USAGE)
        sys.exit(0)
    if given and not (Path(given[0]) / "model.onnx").is_file():
        print(f"{USAGE}\n\nno model.onnx in {given[0]}")
        sys.exit(NOT_TRIED)
    if given[2:] or not all(tries.isdecimal() and int(tries) for tries in given[1:]):
        print(f"{USAGE}\n\nTRIES is a number from 1 on, not {' '.join(given[1:])}")
        sys.exit(NOT_TRIED)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(given[0]).resolve() if given else here(Path(place))
        report(folder, int(given[1]) if given[1:] else TRIES, own=not given)


def report(folder: Path, most: int, *, own: bool) -> NoReturn:
    """Try the model in `folder`, and what stands beside it."""
    print(plain(f"{WHAT}\nclaimed: {CLAIM}"))
    print(plain(f"seen on {SEEN} - installed here: {DISTRIBUTION} {metadata.version(DISTRIBUTION)}"))
    error, tries = tried(folder, "this model", most)
    if WITHOUT and own:
        tried(folder / "without_trigger", f"the same model {WITHOUT}", TRIES if BY_CHANCE else tries)
    elif not WITHOUT:
        print(f"no negative control: {CHANGED} changed models were run, and each of them failed or was refused")
    print({True: "REPRODUCED", False: "not reproduced"}[error > BOUND] if error == error else "could not be told")
    sys.exit(REPRODUCED if error > BOUND else 0 if error == error else NOT_TRIED)


def tried(folder: Path, what: str, tries: int) -> tuple[float, int]:
    """Run the model in `folder`, as often as it may take; (what was measured last, how often it was run)."""
    attempt, error = 0, math.nan
    while attempt < tries and not error > BOUND:
        with tempfile.TemporaryDirectory() as place:
            os.environ["TMPDIR"] = place  # onnxruntime leaves a file there
            try:
                error, said, _ = measure(observed(folder, Path(place), attempt), ABOUT)
            except OtherwiseError as other:
                error, said = math.nan, f"something else fails: {other}"
        attempt += 1
    answer = "fails" if error > BOUND else "does not fail" if error == error else "cannot be told"
    print(plain(f"{answer}: {what}: {said}{ALLOWED}"), flush=True)
    return error, attempt


def observed(folder: Path, place: Path, attempt: int) -> Run:
    """One run of the model in `folder`."""
    model = onnx.load(folder / "model.onnx")
    feeds, calibration = (arrays(folder, pattern, model) for pattern in ("test_data_set_*", "calibration_*"))
    stage, ended, words = run_apart(folder, place, attempt, "")
    written = place / "as_written.onnx"
    quantized = onnx.load(written) if written.exists() else None
    answers = [] if ended else read_back(place, model, len(feeds))
    alone = []
    if ABOUT.get("alone") and not ended:
        (place / "alone").mkdir()
        _, failed, _ = run_apart(folder, place / "alone", attempt, str(ABOUT["feed"]))
        alone = [{}] if failed else read_back(place / "alone", model, 1)
    return Run(model, feeds, calibration, answers, alone, quantized, stage, ended, words, ask)


def run_apart(folder: Path, place: Path, attempt: int, only: str) -> tuple[str, str, str]:
    """Run the target in the folder `place`: (the stage that failed, how that ended, its words), empty where none did.

    A process of its own does it, since it may crash. only: the number of the feed that is run, "" for all. In every
    other attempt the C library checks what is freed: a damaged heap that ends one run of 40 ended 8 of 14 so.
    """
    command = [sys.executable, str(SCRIPT), "--child", str(folder), str(attempt), only]
    around = {**os.environ, **CHECKED} if attempt % 2 else None
    with open(place / "log.txt", "wb") as log:
        process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log, env=around, start_new_session=True)
    try:
        status = process.wait(SECONDS + PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
    log_text = (place / "log.txt").read_text(encoding="utf-8", errors="replace")
    _, began, own = log_text.rpartition("\n--- ")
    stage, _, own = own.partition("\n")
    if status == 0:
        return "", "", ""
    print(plain(log_text.strip()[-4000:]))
    if status == NOT_TRIED or not began or -status in FROM_OUTSIDE:
        raise RuntimeError(f"it ended with status {status}, in this script or from outside")
    raised = (place / "raised.txt").read_text(encoding="utf-8") if (place / "raised.txt").exists() else ""
    known = {RAISED: "error", OUT_OF_MEMORY: "memory", -signal.SIGALRM: "hang"}
    ended = known.get(status) or (signal.Signals(-status).name if status < 0 else f"exit-{status}")
    own, raised = (text.replace(f"{place.resolve()}/", "") for text in (own, raised))  # as they were told when judged
    return stage, ended, said(own, raised, COMPLAINT) if status == RAISED else ""


def child(folder: str, attempt: str, only: str) -> NoReturn:
    """Run the target, and leave its results in the current folder.

    It ends without what C and Python do at an exit: a crash there is not what was seen.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    model = onnx.load(Path(folder) / "model.onnx", load_external_data=False)
    feeds, calibration = (arrays(Path(folder), name, model) for name in ("test_data_set_*", "calibration_*"))
    if only:
        feeds, calibration = [feeds[int(only)]], calibration or feeds
    outputs = {value.name: dtype_name(value) for value in model.graph.output}
    kept, ended = stirred(int(attempt)), 0
    signal.alarm(SECONDS)  # ends this process, whatever native code is doing
    try:
        without = Path(folder).name == "without_trigger"
        results = run_target(str(Path(folder) / "model.onnx"), feeds, calibration, outputs, without)
    except Exception as error:
        if isinstance(error, (ImportError, NameError)) and type(error).__name__.lower() not in ABOUT.get("words", ""):
            raise  # not the target's fault: it is not here, or this script lacks something
        traceback.print_exc()
        ours = type(error).__name__ == "StageError"
        told = str(error) if ours else f"{type(error).__name__}: {error}"
        Path("raised.txt").write_text(told, errors="replace", encoding="utf-8")
        ctypes.CDLL(None).fflush(None)  # native words that are not yet in the log
        ended = OUT_OF_MEMORY if isinstance(error, MemoryError) else RAISED
    if ended:  # what the target had made is gone with the error, which may be where it crashes
        os._exit(ended)
    signal.alarm(0)
    del kept
    for k, result in enumerate(results):
        for i, name in enumerate(outputs):
            if name in result:
                tensor = numpy_helper.from_array(np.asarray(result[name]))
                Path(f"{k}_{i}.pb").write_bytes(tensor.SerializeToString())
    sys.stdout.flush()
    os._exit(0)


def begin(stage: str) -> None:
    """Say in the log which stage begins."""
    ctypes.CDLL(None).fflush(None)
    print(f"\n--- {stage}", flush=True)


def stirred(attempt: int) -> list[bytearray]:
    """Blocks with holes between them: each attempt but the first finds another heap."""
    sizes = np.random.default_rng(attempt).integers(16, 4096, 3000 if attempt else 0)
    return [bytearray(int(size)) for size in sizes][::2]


def ask(model: onnx.ModelProto, feeds: Sequence[Arrays], names: Sequence[str]) -> list[Arrays]:
    """What onnxruntime makes of tensors without graph optimizations, one {name: array} a feed."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    model, fed = copy.deepcopy(model), {value.name for value in model.graph.input}
    known = {value.name for value in model.graph.output}
    wanted = [name for name in names if name not in fed]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return [{**feed, **dict(zip(wanted, session.run(wanted, dict(feed))))} for feed in feeds]


def arrays(folder: Path, pattern: str, model: onnx.ModelProto) -> list[Arrays]:
    """The inputs in every folder that `pattern` matches, one {name: array} a folder."""
    names = [value.name for value in graph_inputs(model)]
    folders = sorted(folder.glob(pattern), key=lambda path: int(path.name.rpartition("_")[2]))
    return [{name: array(path / f"input_{i}.pb") for i, name in enumerate(names)} for path in folders]


def read_back(place: Path, model: onnx.ModelProto, count: int) -> list[Arrays]:
    """What the target left in `place`, one {output: array} a feed."""
    names = list(enumerate(value.name for value in model.graph.output))
    files = [[(name, place / f"{k}_{i}.pb") for i, name in names] for k in range(count)]
    return [{name: array(path) for name, path in own if path.exists()} for own in files]


def placed(model: onnx.ModelProto, feeds: Sequence[Arrays], calibration: Sequence[Arrays], folder: Path) -> Path:
    """Write a model and its inputs into `folder` as `arrays` reads them."""
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    for pattern, given in (("test_data_set", feeds), ("calibration", calibration)):
        for k, feed in enumerate(given):
            (folder / f"{pattern}_{k}").mkdir()
            for i, value in enumerate(graph_inputs(model)):
                tensor = numpy_helper.from_array(np.asarray(feed[value.name]), value.name)
                (folder / f"{pattern}_{k}" / f"input_{i}.pb").write_bytes(tensor.SerializeToString())
    return folder


def array(path: Path) -> np.ndarray:
    """The array in a serialized TensorProto."""
    return np.asarray(numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))
