"""Runner: the sandboxed workers that one thread of examination needs, made on demand and kept."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.model import external_data, graph
from driftnet.model.artifact import UNTOLD, Artifact
from driftnet.model.inspect import Case, dtype_name, no_text
from driftnet.model.simplest import simplest
from driftnet.model.verdict import Observation, Outcome, StageRun
from driftnet.run import health
from driftnet.run.names import plainly_named
from driftnet.run.reference import Reference
from driftnet.run.sandbox import hiding
from driftnet.run.sandbox.allowance import Allowance
from driftnet.run.sandbox.worker import make_empty
from driftnet.run.sandbox.zygote import Limits, Reply, Worker, Zygote
from driftnet.run.share import MEMORY_GIB, SAVED_SECONDS
from driftnet.targets.environments import Installed
from driftnet.targets.interface import STAGES, unquantized
from driftnet.targets.recipe import Recipe, effective
from driftnet.util import apart, spent
from driftnet.util.elsewhere import refusal
from driftnet.util.errors import UserError, shortened
from driftnet.util.files import Scratch
from driftnet.util.limits import lacks_memory
from driftnet.util.records import read

SMALL_ANSWER_MIB = 512
MOST_TOLD, MOST_TOLD_A_NODE = 500, 50
"""Nodes of an artifact: so many, and so many more for each of the model."""

PATHS = ("convert", "quantize")
"""Stages that give the path of a file."""

MEMORY = "/dev/shm"
MEMORY_BYTES = 2**30
REFERENCE, COMMANDS, SCRIPTS = "driftnet.run.reference_worker", "subprocess", "driftnet.run.sandbox.scripted"
CANARY = [[0.0, 0.0, 1.0, 2.0]]
"""What the simplest model gives."""
ANSWERING_SECONDS = 20.0
"""For a question that takes milliseconds: where others have the cores it may take a thousand times as long."""


class Runner:
    """Runs cases on targets and on the reference, each in a worker of its own. Close it, or use it in a `with`.

    timeout  seconds that one stage may take;  memory_gib  resident memory that one worker may use
    small_models   keep the files that stages pass on in memory: making and removing them cost more than some stages
    hold_crashes   crashes come with the frames of their stack
    target_runs  how often a target has been run so far
    allowance    what holds now (`within`)
    """

    def __init__(
        self,
        *,
        timeout: float = SAVED_SECONDS,
        memory_gib: float = MEMORY_GIB,
        small_models: bool = False,
        hold_crashes: bool = False,
    ) -> None:
        if said := refusal():
            raise UserError(said, kind="platform")
        if hiding.asked():
            hiding.demand()  # before there is a folder that somebody has to remove
        memory = int(memory_gib * 1024)
        answer = SMALL_ANSWER_MIB if small_models else memory
        self._limits = Limits(memory, timeout, max(Limits.file_mib, memory // 2), hold_crashes, answer)
        self._scratch = Scratch(MEMORY if small_models and _has_room() else None)
        self._folder = self._scratch.path
        self._zygotes: dict[tuple[str, str, int], Zygote] = {}
        self._workers: dict[tuple[str, str, int], Worker] = {}
        self._shown: frozenset[Path] = frozenset()
        self._turn = 0
        self._cpu_of_ended = 0.0
        self._kept: dict[str, _Kept] = {}
        self.allowance: Allowance | None = None
        try:
            self.check_health()
        except UserError:
            self._scratch.close()
            raise
        self._cases = 0
        self.target_runs = 0
        try:
            self.reference = Reference(self._worker(sys.executable, REFERENCE), self._show)
        except BaseException:
            self.close()
            raise

    @property
    def seconds(self) -> float:
        """How long a stage may take."""
        return self._limits.seconds

    def observe(
        self,
        case: Case,
        installed: Installed,
        recipe: Recipe,
        *,
        fresh: bool = False,
        layout: int = 0,
        timeout: float = math.inf,
    ) -> Observation:
        """What `installed` does with `case` under `recipe`; in a new process when `fresh`.

        layout    of the heap of the process (`sandbox.inside.LAYOUTS`)
        timeout   seconds that a stage may take, where that is not what it may take otherwise
        """
        worker, seconds = self._worker_of(installed), self.seconds if timeout == math.inf else timeout
        if fresh or worker.layout != layout:
            worker.renew(layout)
        case, names = plainly_named(case)

        def seen() -> Observation:
            with self._placed(case, installed, recipe, seconds) as placed:
                return placed.observation()

        return names.observation(worker.undisturbed(seen))

    def tap(
        self, case: Case, installed: Installed, recipe: Recipe, tensors: Mapping[str, str]
    ) -> tuple[Mapping[str, np.ndarray], ...]:
        """What the intact artifact makes of `tensors` (name -> numpy's name of their type), one mapping a feed; fewer
        where it does not know some, none where it cannot be asked."""
        nothing: tuple[Mapping[str, np.ndarray], ...] = tuple({} for _ in case.feeds)
        if installed.target.tap is None:
            return nothing
        case, names = plainly_named(case)
        asked = {names.plain.get(name, name): kind for name, kind in tensors.items()}

        def tapped() -> Any:
            with self._placed(case, installed, recipe, self.seconds, tapped=True) as placed:
                artifact, value = self._artifact_of(placed), placed.model
                for stage in ("tap",) if artifact else ("convert", "quantize", "tap"):
                    reply = placed.asked(stage, artifact or value, asked)
                    if reply.outcome is not Outcome.OK:
                        return None
                    value = reply.value
                return value

        value = self._worker_of(installed).undisturbed(tapped)
        return nothing if value is None else tuple(map(names.made, value))

    def converted(self, case: Case, installed: Installed, recipe: Recipe) -> bytes | None:
        """The file that the convert stage makes of the model; None where it makes none."""
        case, names = plainly_named(case)

        def made() -> bytes | None:
            with self._placed(case, installed, recipe, self.seconds) as placed:
                reply = placed.asked("convert", placed.model)
                return Path(reply.value).read_bytes() if reply.outcome is Outcome.OK else None

        data = self._worker_of(installed).undisturbed(made)
        return None if data is None else names.model(data)

    @contextlib.contextmanager
    def _placed(
        self, case: Case, installed: Installed, recipe: Recipe, seconds: float, tapped: bool = False
    ) -> Iterator[_Placed]:
        """The case where a worker of the target has it, in an empty folder, while the block runs.

        tapped   what is made of it is kept: there may be more to ask about it
        """
        worker = self._worker_of(installed)
        if worker.displaced:
            worker.renew()
        self._cases += 1
        self.target_runs += 1
        folder = worker.folder / f"case_{self._cases}"
        make_empty(folder)
        try:
            model = _file_of(case, folder)
            if model == case.file:
                self._show(external_data.files(case))
            options = effective(installed.target, recipe)
            placed = _Placed(worker, installed, case, options, str(model), folder, seconds)
            yield placed
            self._keep(placed, tapped)
        finally:
            if folder not in self._kept_folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, placed: _Placed, tapped: bool) -> None:
        """Let the artifact be there for questions about its inside: the one that took longest to make, and the last
        that was asked. A check asks what it has quantized and what it has not, in turns."""
        artifact, longest = placed.made.get("quantize"), self._kept.get("longest")
        if self.allowance is None or artifact is None or placed.installed.target.tap is None:
            return
        made, before = _Kept(placed.identity, placed.folder, artifact, placed.spent[0]), self._kept_folders
        self._kept |= {"tapped": made} if tapped else {}
        self._kept |= {"longest": made} if longest is None or longest.seconds < made.seconds else {}
        for folder in before - self._kept_folders:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _kept_folders(self) -> set[Path]:
        return {kept.folder for kept in self._kept.values()}

    def _artifact_of(self, placed: _Placed) -> str | None:
        """The file that was made of that very case before, if it is there still."""
        alike = (kept for kept in self._kept.values() if kept.identity == placed.identity)
        return next((kept.artifact for kept in alike if _is_file_in(kept.folder, kept.artifact)), None)

    def turn(self) -> None:
        """Run targets in workers of other templates from now on: those of one share the layout of its memory, and with
        it what becomes of a read or write out of bounds. Of two for each target one works and the other stands by.

        Where failures seen in the ones before count, `check_health` comes first: it asks those that work.
        """
        self._turn = 1 - self._turn

    def let_go(self) -> None:
        """End the templates of all targets; what is run next makes new ones. Raises UserError as `check_health` does:
        what was seen in the ones before counts no less."""
        self.check_health()
        for key in [key for key in self._zygotes if key[1] != REFERENCE]:
            zygote = self._zygotes.pop(key)
            zygote.close()
            self._cpu_of_ended += zygote.cpu_seconds
            del self._workers[key]

    def status_of(self, installed: Installed, folder: Path, words: Sequence[str], timeout: float) -> int | None:
        """The exit status of the Python script words[0] with its arguments, in a new worker of `installed`; None where
        it has none after so many seconds. It runs on a copy of `folder`: words that are paths in it are paths in
        that."""
        worker = self._worker_of(installed)
        worker.renew()
        with _copied(folder, words, worker) as command:
            status = worker.call(f"{SCRIPTS}:status", command, timeout=timeout).value
        worker.renew()
        return status if isinstance(status, int) else None

    def output_of(self, python: str, folder: Path, words: Sequence[str], timeout: float) -> str:
        """What a command prints, on both streams, that runs on such a copy where targets of the interpreter `python`
        do; "" where it takes longer."""
        worker = self._worker(python, COMMANDS)
        with _copied(folder, words, worker) as command:
            output = worker.call(f"{COMMANDS}:getoutput", shlex.join(command), timeout=timeout).value
        return output if isinstance(output, str) else ""

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds used so far in the workers, this process not included."""
        return self._cpu_of_ended + sum(zygote.cpu_seconds for zygote in self._zygotes.values())

    @property
    def all_cpu_seconds(self) -> float:
        """CPU seconds used so far in the workers and in this process, since it began."""
        return self.cpu_seconds + apart.cpu_seconds()

    def allow(self, seconds: float) -> Allowance:
        """CPU seconds from now on."""
        for folder in self._kept_folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._kept.clear()
        return Allowance.of(lambda: self.all_cpu_seconds, seconds)

    @contextlib.contextmanager
    def within(self, allowance: Allowance | None) -> Iterator[None]:
        """While the block runs, what a worker does beyond `allowance` is cut, and nothing is asked of one any more; of
        two such blocks, one in the other, the narrower holds. None: nothing is cut."""
        before = self.allowance
        self.allowance = min(before, allowance, key=lambda each: each.left) if before and allowance else allowance
        try:
            yield
        finally:
            self.allowance = before

    @property
    def memory_mib(self) -> int:
        """Resident memory that one worker may use."""
        return self._limits.memory_mib

    @property
    def network_isolated(self) -> bool:
        """Whether every worker so far is cut off from the network; there is one, the reference's, from the start."""
        return all(zygote.network_isolated for zygote in self._zygotes.values())

    @spent.part("health")
    def check_health(self, *, fresh: bool = True) -> None:
        """Raise UserError (kind "machine") where the machine has too little to run anything (see `health`), workers
        cannot do what any system may ask for, or the reference is wrong about the simplest model.

        fresh   of new workers, which costs more than all the rest: their first case takes longer, too
        """
        with self.within(None):
            self._check_health(fresh)

    def _check_health(self, fresh: bool) -> None:
        health.check(self._folder)
        standing_by = 1 - self._turn
        for key, worker in self._workers.items():
            python, module, turn = key
            if turn == standing_by and module not in (REFERENCE, COMMANDS):
                continue
            if fresh:
                worker.renew()
            reply = self._answered(key, "driftnet.run.sandbox.inside:probe")
            if reply.outcome is not Outcome.OK:
                raise health.lacking([f"a worker of {python} does not answer: {reply.message or reply.outcome}"])
            if reply.value:
                raise health.lacking([f"a worker of {python} cannot {', '.join(map(str, reply.value))}"])
        case, key = simplest(), (sys.executable, REFERENCE, 0)
        if key in self._workers:
            reply = self._answered(key, f"{REFERENCE}:run", case.model, list(case.feeds))
            said = reply.value[0]["y"].tolist() if reply.outcome is Outcome.OK else reply.message or reply.outcome
            if said != CANARY:
                raise health.lacking([f"the reference says of the simplest model {said}, should be {CANARY}"])

    def _answered(self, key: tuple[str, str, int], function: str, *args: Any) -> Reply:
        """What a worker answers; where somebody kills it, or its template, what another one does."""
        worker = self._workers[key]
        return worker.undisturbed(lambda: worker.call(function, *args, timeout=ANSWERING_SECONDS))

    def close(self) -> None:
        """End every worker and remove what they left."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._scratch.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _show(self, files: Collection[Path]) -> None:
        """Let workers see these files, where files are hidden: a large model is taken where it lies."""
        if not self._shown.issuperset(files):
            self._shown = self._shown.union(files)
            for zygote in self._zygotes.values():
                zygote.show(self._shown)

    def ready(self, several: Iterable[Installed]) -> None:
        """Begin the templates of all of these at once. One that does not start says why where it is asked for."""

        def begun(installed: Installed) -> None:
            with contextlib.suppress(UserError):
                self._worker_of(installed)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(begun, {one.python: one for one in several}.values()))

    def _worker_of(self, installed: Installed) -> Worker:
        return self._worker(installed.python, installed.spec.partition(":")[0])

    def _worker(self, python: str, module: str) -> Worker:
        key = python, module, 0 if module in (REFERENCE, COMMANDS) else self._turn
        if key not in self._workers:
            place, limits = self._folder, self._limits
            zygote = Zygote(python=python, preload=(module,), limits=limits, folder=place, shown=self._shown)
            with contextlib.ExitStack() as unless_it_starts:
                unless_it_starts.callback(zygote.close)
                self._workers[key] = zygote.worker(lambda: self.allowance)
                unless_it_starts.pop_all()
            self._zygotes[key] = zygote
        return self._workers[key]


def _file_of(case: Case, folder: Path) -> Path:
    """A file with the model. A large one is taken where it lies; a part of one, and any other, is written."""
    if case.file and external_data.is_whole(case):
        return case.file
    external_data.write(case, folder / "model.onnx")
    return folder / "model.onnx"


@contextlib.contextmanager
def _copied(folder: Path, words: Sequence[str], worker: Worker) -> Iterator[list[str]]:
    """The words with the paths in `folder` made paths in a copy of it, which is there while the block runs."""
    if worker.displaced:
        worker.renew()
    copy = worker.folder / "copy"
    make_empty(copy)
    try:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        inside = {word for word in words if Path(word).is_relative_to(folder)}
        yield [str(copy / Path(word).relative_to(folder)) if word in inside else word for word in words]
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _has_room() -> bool:
    try:
        return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    except OSError:
        return False


@dataclass(frozen=True)
class _Kept:
    """An artifact that was made of what `identity` tells, in so many seconds."""

    identity: tuple[Any, ...]
    folder: Path
    artifact: str
    seconds: float


@dataclass(frozen=True, eq=False)
class _Placed:
    """A case where a worker of its target has it: the file of the model, and the folder for what is made of it. A stage
    may take so many seconds. made: what stages gave so far;   spent: the seconds that this took"""

    worker: Worker
    installed: Installed
    case: Case
    options: Mapping[str, Any]
    model: str
    folder: Path
    seconds: float
    made: dict[str, str] = field(default_factory=dict)
    spent: list[float] = field(default_factory=lambda: [0.0])

    @property
    def identity(self) -> tuple[Any, ...]:
        """What its artifact depends on."""
        target, case = self.installed.target, self.case
        later = {option.name for option in target.options if option.stage == "execute"}
        made_by = {name: value for name, value in self.options.items() if name not in later}
        samples = (case.calibration or case.feeds) if target.scheme(self.options) else ()
        of_case = dataclasses.replace(case, feeds=(), calibration=samples).digest
        return self.installed.spec, self.installed.python, made_by, of_case

    def asked(self, stage: str, value: Any, tensors: Mapping[str, str] | None = None) -> Reply:
        """What a stage makes of the result of the one before; GARBAGE where it is no answer. tensors: to be tapped."""
        with spent.part(f"target {stage}"):
            given = self._given(stage, tensors)
            reply = self.worker.call(f"{self.installed.spec}.{stage}", value, *given, timeout=self.seconds)
        if reply.outcome is Outcome.OK and not self._has_form(stage, reply.value):
            wanted = f"list[dict[str, ndarray]] of length {len(self.case.feeds)}, a dict of all outputs for each feed"
            wanted = "str, the path of a file" if stage in PATHS else wanted
            message = f"{stage} has to return {wanted}; it returned {_form(reply.value)}"
            mistake = f"{self.installed.spec}.{stage}"
            return dataclasses.replace(reply, outcome=Outcome.GARBAGE, message=message, mistake=mistake)
        if reply.outcome is Outcome.OK and stage in PATHS:
            if reply.value != self.model and not _is_file_in(self.folder, reply.value):
                message = f"{stage} returned {shortened(repr(reply.value), 200)}, which is no file in its folder"
                return dataclasses.replace(reply, outcome=Outcome.GARBAGE, message=message)
            self.made[stage] = reply.value
            self.spent[0] += reply.seconds
        return reply

    def _given(self, stage: str, tensors: Mapping[str, str] | None) -> tuple[Any, ...]:
        """What a stage is told beside the result of the one before."""
        case, folder, options = self.case, str(self.folder), self.options
        match stage:
            case "convert":
                return folder, options
            case "quantize":
                return list(case.calibration or case.feeds), folder, options
            case "inspect":
                return (options,)
            case "tap":
                return list(case.feeds), tensors, options
        return list(case.feeds), {v.name: dtype_name(v) for v in case.proto.graph.output}, options

    def _has_form(self, stage: str, value: Any) -> bool:
        """Whether it is of the type that the interface of a target promises: workers are not trusted."""
        if stage in PATHS:
            return isinstance(value, str)
        return stage == "inspect" or (
            isinstance(value, list)
            and len(value) == len(self.case.feeds)
            and all(isinstance(o, dict) and all(isinstance(x, np.ndarray) for x in o.values()) for o in value)
        )

    def observation(self) -> Observation:
        """What the stages do with it, as far as they come."""
        target, runs, made, artifact = self.installed.target, list[StageRun](), self.made, UNTOLD
        inspects = target.inspect is not None and target.scheme(self.options) is not None
        value: Any = self.model
        for stage in STAGES:
            if stage == "quantize" and target.quantize is unquantized:  # it gives what it is given: nobody is asked
                runs.append(StageRun(stage, Outcome.OK))
                made[stage] = value
                continue
            if inspects and stage == "execute":
                reply = self.asked("inspect", value)
                if reply.outcome is Outcome.OK:
                    try:
                        artifact = told(reply.value, self.case)
                    except ValueError as e:
                        reply = dataclasses.replace(reply, outcome=Outcome.GARBAGE, message=str(e))
                if reply.outcome is not Outcome.OK:
                    runs.append(_stage_run("inspect", reply, self.folder))
            reply = self.asked(stage, value)
            runs.append(_stage_run(stage, reply, self.folder))
            if reply.outcome is not Outcome.OK:
                return Observation(tuple(runs), artifact=artifact)
            value = reply.value
        plain: list[Mapping[str, np.ndarray]] = []
        if target.executes_plain and made["convert"] != made["quantize"]:
            reply = self.asked("execute", made["convert"])
            plain = reply.value if reply.outcome is Outcome.OK else plain
        return Observation(tuple(runs), tuple(value), artifact, tuple(plain))


def told(value: object, case: Case) -> Artifact:
    """What `inspect` said of what was made of `case`, as an Artifact. Raises ValueError where it is none, or its model
    cannot be read or is no model of that size."""
    artifact = read(value, Artifact, "the artifact")
    if artifact.model is not None and (flaw := _flaw(artifact.model, case)):
        raise ValueError(flaw)
    return artifact


def _flaw(data: bytes, case: Case) -> str:
    """Why these bytes are no ONNX model that can be read without a file beside it, of what was made of `case`; "" where
    they are."""
    try:
        model = onnx.ModelProto.FromString(data)
        if not model.graph.output:
            return "the model has no output"
        if no_text(model.graph) is not None:
            return "the model has a name that is no text"
        most = MOST_TOLD + MOST_TOLD_A_NODE * len(case.proto.graph.node)
        if len(model.graph.node) > most:
            return f"the model has {len(model.graph.node)} nodes, where one of {most} is far too large"
        if case.file is not None:  # its own weights lie in files beside it, so those of the artifact may, too
            return ""
        if external_data.tensors_outside(model) or external_data.others_outside(model):
            return "the model keeps data in another file"
        if unmade := graph.unmade(graph.in_order(graph.read(model)), case.feeds[0]):
            return f"the model reads {unmade[1]!r}, which nothing makes"
    except Exception as e:  # protobuf, onnx and numpy raise many types for what is no model
        if lacks_memory(e):
            raise
        return f"the model cannot be read: {type(e).__name__}: {e}"
    return ""


def _is_file_in(folder: Path, path: str) -> bool:
    try:
        if os.path.dirname(path) == str(folder) and stat.S_ISREG(os.lstat(path).st_mode):
            return True  # lies in it, whatever the folder is: no link, as nearly every artifact is none
        return Path(path).resolve().is_relative_to(folder.resolve()) and Path(path).is_file()
    except (OSError, ValueError, RuntimeError):  # a name too long, one with a NUL, a circle of links
        return False


def _form(value: Any, depth: int = 3) -> str:
    """The type of a value as annotations spell it, with those of the first things in it."""
    name, length = type(value).__name__, f" of length {len(value)}" if depth == 3 and isinstance(value, list) else ""
    if not isinstance(value, list | dict) or not value or not depth:
        return f"{name}{length}"
    within = islice(value.values() if isinstance(value, dict) else value, 8)
    forms = " | ".join(sorted({_form(x, depth - 1) for x in within}))
    return f"{name}[{'str, ' * isinstance(value, dict)}{forms}]{length}"


def _stage_run(stage: str, reply: Reply, folder: Path) -> StageRun:
    message, log = _readable(reply.message, folder), _readable(reply.log, folder)
    *frames, mistake = (where.encode("utf-8", "replace").decode() for where in (*reply.frames, reply.mistake))
    seconds, peak = reply.seconds, reply.peak_mib
    return StageRun(stage, reply.outcome, message, reply.signal, log, seconds, peak, tuple(frames), mistake)


def _readable(said: str, folder: Path) -> str:
    """What a system said, which mostly is nothing, without the names of the folder of the case and of that in which the
    worker has its temporary files. Names in a model need not be text, and a message may quote them: a lone surrogate
    could not be written."""
    if not said:
        return said
    return said.encode("utf-8", "replace").decode().replace(f"{folder}/", "").replace(f"{folder.parent}/", "")
