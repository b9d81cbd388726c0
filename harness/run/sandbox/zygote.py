"""Zygote: the template process of one interpreter, which forks workers that have everything imported already."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driftnet.run.sandbox import hiding
from driftnet.run.sandbox.allowance import Allowance
from driftnet.run.sandbox.inside import children
from driftnet.run.sandbox.worker import MEASURING, Exit, Limits, Process, Reply, Worker, is_stopped
from driftnet.util import spent
from driftnet.util.errors import UserError
from driftnet.util.files import SCRATCH

__all__ = ["Limits", "Reply", "Worker", "Zygote"]

# No other variable of ours reaches a system under test: a CI job's environment holds its secrets.
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TZ", MEASURING)
FIXED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
ANSWER_SECONDS, LOOKS = 60.0, 60
"""How long a template may be silent, and how often it is looked at meanwhile: one that is stopped says nothing."""
TEMPLATES = "templates"
"""The part of the work (`driftnet.util.spent`) that starts them, and forks workers."""
BOOT = (
    "import gc, json, sys; gc.disable(); settings = json.loads(sys.argv[1]); "  # looking takes a fifth of importing
    "sys.path[:1] = settings['before']; sys.path += settings['after']; "
    "from driftnet.run.sandbox.inside import serve; serve(settings)"
)
_HINT = "it needs Python 3.8 or newer, numpy, the system under test, and of the machine memory and a few processes"
_SENT = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)
"""How a template ends that others end; by any other signal it died by itself."""


class Zygote:
    """Makes workers in the interpreter `python`, in a network namespace of their own and with a scrubbed environment.

    preload  modules to import before forking; where one has a function preload(), that is called too. Another
             interpreter than this one is lent driftnet, and these modules where it has none of that name
    folder   where to make the temporary folder that holds those of the workers; None: the system's place
    shown    what else is shown where files are hidden (`driftnet.run.sandbox.hiding`)

    Close it, or use it in a `with`. network_isolated is False where the system grants no user namespace: root is in a
    network namespace then, too, but could leave it. Raises UserError (kind "environment") when the interpreter does not
    start or cannot import what is asked for, and where files are to be hidden and cannot be.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        preload: Sequence[str] = (),
        limits: Limits | None = None,
        folder: str | Path | None = None,
        shown: Collection[Path] = (),
    ) -> None:
        self.python, self.preload, self.limits = python, tuple(preload), limits or Limits()
        self.folder = Path(tempfile.mkdtemp(prefix="sandbox-", dir=folder))
        self._above = str(folder) if folder and Path(folder).name.startswith(SCRATCH) else ""
        self.network_isolated = False
        self._hides, self._shown = hiding.asked(), frozenset(shown)
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._processes: set[Process] = set()
        self._cpu_of_template = self._cpu_of_ended = 0.0
        self._closed = False
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds used so far by the template and its workers, those of a call that is running not yet counted."""
        with self._lock:
            return self._cpu_of_template + self._cpu_of_ended + sum(process.cpu for process in self._processes)

    def worker(self, allowance: Callable[[], Allowance | None] = lambda: None) -> Worker:
        """A worker with a folder of its own. Its process starts with the first call; this zygote's close() ends it.

        allowance   what it may use at the moment, beside its limits
        """
        with self._lock:
            self._check_open()
            folder = self.folder / f"worker-{len(self._workers)}"
            folder.mkdir()
            self._workers.append(Worker(folder, self.limits, self._fork, self._reap, allowance))
            return self._workers[-1]

    def show(self, files: Collection[Path]) -> None:
        """Let workers see these files too, where files are hidden: in a new template, as none can be shown more."""
        if self._hides and not self._shown.issuperset(files):
            for worker in self._workers:
                worker.close()
            with self._lock:
                self._shown = self._shown.union(files)
                self._restart()

    def close(self) -> None:
        """End every process and remove their folders. The CPU time of all of them is then in RUSAGE_CHILDREN."""
        if not self._closed:
            self._closed = True
            for worker in self._workers:
                worker.close()
            self._stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this zygote has been closed")

    @spent.part(TEMPLATES)
    def _start(self) -> None:
        """Begin; where somebody ends the template meanwhile, once more."""
        complaint = self._begin()
        if complaint and self._template.returncode in _SENT:
            complaint = self._begin()
        if complaint:
            raise UserError(complaint, hint=_HINT, kind="environment")

    def _begin(self) -> str:
        """Start a template; why none has started, "" where one has. Raises UserError where there is no interpreter."""
        if self._hides:
            hiding.demand()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(ANSWER_SECONDS / LOOKS)
        settings = {
            **_paths(self.python, self.preload, self.folder),
            "parent": os.getpid(),
            "control": theirs.fileno(),
            "generations": hiding.GENERATIONS if self._hides else 1,
            "preload": self.preload,
            "folder": "" if self._hides else str(self.folder),  # else it is removed outside
            "above": "" if self._hides else self._above,
            "limits": asdict(self.limits),
        }
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        words = ["-s", "-c", BOOT, json.dumps(settings)]
        with theirs, tempfile.TemporaryFile() as log, contextlib.ExitStack() as files:
            command, passed = [self.python, *words], [theirs.fileno()]
            try:
                if self._hides:
                    environment.pop(MEASURING, None)  # the files that it would write are hidden
                    passed.append(files.enter_context(_passwd(self.folder)).fileno())
                    command = self._hiding(words, *passed)
                self._template = subprocess.Popen(
                    command,
                    env={**environment, **FIXED, "HOME": str(self.folder), "TMPDIR": str(self.folder)},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=passed,
                    start_new_session=True,
                )
            except OSError as e:
                self._control.close()
                raise UserError(f"{self.python} does not start: {e}", hint=_HINT, kind="environment") from None
            theirs.close()
            greeting = self._hear()
            if greeting is None:
                self._stop()
                log.seek(0)
                return _complaint(self.python, self._template.returncode, log.read())
        self.network_isolated = bool(greeting["network_isolated"])
        return ""

    def _hiding(self, words: Sequence[str], control: int, passwd: int) -> list[str]:
        """The command that starts the template where files are hidden."""
        one, lent = hiding.interpreter(self.python), {name.partition(".")[0] for name in ("driftnet", *self.preload)}
        command = hiding.command(words, one, self.folder, lent=lent, shown=self._shown, passwd=passwd)
        return hiding.beside(os.getpid(), control, self.folder, self._above, command)

    def _stop(self) -> None:
        """End the template, which takes its workers along, and wait for it."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._template.wait(ANSWER_SECONDS)
        self._template.kill()
        self._template.wait()

    def _restart(self) -> None:
        """Begin anew when the template has died, and its workers with it."""
        self._stop()
        self._cpu_of_ended += self._cpu_of_template + sum(process.cpu for process in self._processes)
        self._cpu_of_template = 0.0
        self._processes.clear()
        self._start()

    @spent.part(TEMPLATES)
    def _fork(self, folder: Path, layout: int) -> Process:
        with self._lock:
            self._check_open()
            process = self._forked(folder, layout) if self._template.poll() is None else None
            if process is None:  # somebody killed it: another one may do better
                self._restart()
                process = self._forked(folder, layout)
            if process is None:
                raise UserError(f"{self.python} died while making a worker", hint=_HINT, kind="environment")
            self._processes.add(process)
            return process

    def _forked(self, folder: Path, layout: int) -> Process | None:
        """A worker's process; None when the template has died, and the process with it."""
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            log = os.memfd_create("log")
            undo.callback(os.close, log)
            fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
            with theirs:
                answer = self._ask({"fork": str(folder), "layout": layout}, [theirs.fileno(), log])
            if answer is None:
                return None
            spent.elsewhere(answer["cpu"] - self._cpu_of_template, TEMPLATES)
            self._cpu_of_template = answer["cpu"]
            try:
                pidfd = os.pidfd_open(answer["pid"])
            except ProcessLookupError:  # a template that lives keeps what has ended until it is asked for
                return None
            undo.pop_all()
            return Process(answer["pid"], ours, pidfd, log)

    def _reap(self, process: Process) -> Exit:
        """End `process`. If its template has died it went along, and nothing more is known than that."""
        with self._lock:
            answer = self._ask({"reap": process.pid}) if process in self._processes else None
            if answer is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._template.wait(1.0)
                return Exit(signal.SIGKILL, orphaned=self._template.poll() not in (None, *_SENT))
            self._processes.remove(process)
            self._cpu_of_ended += answer["cpu"]
            process.cpu = answer["cpu"]
            process.tell()
            return Exit(**answer)

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any] | None:
        """The template's answer; None when it has died, as it does when it fails to answer."""
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            return self._hear()
        except ConnectionError:
            return None
        except BaseException:  # its answer may still come, and would be taken for that to the next request
            self._template.kill()
            raise

    def _hear(self) -> dict[str, Any] | None:
        for _ in range(LOOKS):
            try:
                message = self._control.recv(1 << 16)
            except TimeoutError:
                if any(map(is_stopped, self._line())):
                    break
            else:
                return json.loads(message) if message else None
        self._template.kill()
        return None

    def _line(self) -> list[int]:
        """The template, and what stands between it and this process."""
        line = [[self._template.pid]]
        for _ in range(hiding.GENERATIONS - 1 if self._hides else 0):
            line.append([child for pid in line[-1] for child in children(pid)])
        return [pid for generation in line for pid in generation]


def _passwd(folder: Path) -> io.FileIO:
    """A file that says of this user alone what /etc/passwd does."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = "user"
    file = io.FileIO(os.memfd_create("passwd"), "r+")
    file.write(f"{name}:x:{user}:{os.getgid()}::{folder}:/bin/sh\n".encode())
    file.seek(0)
    return file


def _paths(python: str, preload: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """The directories where the interpreter `python` finds modules "before" and "after" looking at its own."""
    if os.path.abspath(python) == os.path.abspath(sys.executable):
        return {"before": [os.path.abspath(entry) for entry in sys.path], "after": []}
    ours = {module.partition(".")[0] for module in preload} - {"driftnet"}
    return {"before": [_lend(["driftnet"], folder / "before")], "after": [_lend(sorted(ours), folder / "after")]}


def _lend(packages: Sequence[str], folder: Path) -> str:
    """A directory of links to these packages of ours: where they lie may also lie our numpy, which does not fit."""
    folder.mkdir(exist_ok=True)
    for name in packages:
        for place in hiding.locations(name)[:1]:
            link = folder / (name if os.path.isdir(place) else os.path.basename(place))
            if not link.is_symlink():
                link.symlink_to(place)
    return str(folder)


def _complaint(python: str, status: int, log: bytes) -> str:
    last = log.decode(errors="replace").strip().rpartition("\n")[2]
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"the sandbox's interpreter {python} could not start ({how}): {last or 'it said nothing'}"
