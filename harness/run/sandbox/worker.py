"""Worker: a process that can be lost. Calls functions in it, and tells what became of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from driftnet.model.verdict import Outcome
from driftnet.run.sandbox import held
from driftnet.run.sandbox.allowance import Allowance
from driftnet.run.sandbox.inside import FRAMES, children, send, stat
from driftnet.targets import interface
from driftnet.targets.interface import LARGE, SMALL
from driftnet.util import spent
from driftnet.util.errors import shortened
from driftnet.util.records import read
from msgspec import Meta, Struct

LOG_BYTES = 64 * 1024
LINE, MESSAGE = 1000, 4000
"""Characters of a line of a log, and of a message, that are kept: patterns are searched in them."""
MEASURING = "COVERAGE_PROCESS_CONFIG"  # the variable by which coverage.py (`make coverage`) reaches child processes
_LOG_MOST = 16 * 1024 * 1024
_TICK_MS = 20.0  # how often a busy worker's memory is looked at: 30 us each
CRUMBS, CRUMB = 5000, 512
"""Pieces that any answer may come in, and bytes of each further one, in the mean: each costs this process some time."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1
_AWAKE = (["R"], ["S"], ["D"])
_STOPPING = 0.1
T = TypeVar("T")
KILLED = "killed from outside, as the kernel does when memory runs out"
BUSY, STARVED = 0.1, 8.0
"""Of the wall time of a call, the share in which a process works, or waits for a core, that tells this from sleep; and
how many times its limit a call may take where others have the cores."""


@dataclass(frozen=True)
class Limits:
    """What one worker may use: resident memory with its children, wall seconds a call, size of any file it writes.

    hold_crashes   it does not die of a crash but is held until its stack has been read (`held`)
    answer_mib     what it may say at once: it is held in a process that nothing guards
    """

    memory_mib: int = 4096
    seconds: float = 10.0
    file_mib: int = 2048
    hold_crashes: bool = False
    answer_mib: int = 4096


@dataclass(frozen=True, eq=False)
class Reply:
    """How one call ended.

    value    what the function returned, for OK; it comes from an untrusted process, so check its form
    message  for ERROR the text of a StageError, or "TypeName: text" of another exception; for the other failures what
             happened, in words; "" for OK. Of a long one the middle is left out (`shortened`)
    signal   for CRASH the signal's name, or "exit-3" when the process ended itself with status 3; else ""
    log      the last 64 KiB that the process wrote to stdout and stderr during the call, of each line LINE characters
    seconds  wall time;   peak_mib  peak resident memory of the process, or of the largest of its children
    frames   where it failed, innermost first: of an exception "package/module.py function", of a crash that was held
             "module symbol"
    mistake  "file:line" of the function's own file, where that raised what StageError is not, and had called nothing;
             the function's name, where it gave what is of another type than it has to be
    """

    outcome: Outcome
    value: Any = None
    message: str = ""
    signal: str = ""
    log: str = ""
    seconds: float = 0.0
    peak_mib: float = 0.0
    frames: tuple[str, ...] = ()
    mistake: str = ""


@dataclass(frozen=True)
class Exit:
    """How a process ended: its wait status, and the CPU seconds and peak memory of it and its children.

    orphaned   its template had died by itself, and took it along
    """

    status: int
    cpu: float = 0.0
    peak_mib: float = 0.0
    orphaned: bool = False


@dataclass(eq=False)
class Process:
    """One forked process, seen from the parent: its pipe, its pidfd, the memory file that its output goes to.

    cpu  CPU seconds that it had used at its last reply;   told   those that were told (`driftnet.util.spent`)
    """

    pid: int
    pipe: socket.socket
    pidfd: int
    log: int
    cpu: float = 0.0
    told: float = 0.0
    poll: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        self.poll.register(self.pipe, select.POLLIN)
        self.poll.register(self.pidfd, select.POLLIN)

    def ended(self, within: float) -> bool:
        """Whether the process has ended, or does so in the next `within` seconds."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(within * 1e3))

    def tell(self) -> None:
        """Tell what it has used since."""
        spent.elsewhere(self.cpu - self.told)
        self.told = self.cpu

    def close(self) -> None:
        """Let go of it."""
        self.pipe.close()
        os.close(self.pidfd)
        os.close(self.log)


class Worker:
    """A process to call functions in; replaced by a new one whenever it crashes, hangs or writes garbage.

    Made by Zygote.worker(), and used by one thread at a time. `folder` is the working directory of the process; the
    caller may put files there. layout: of the heap of its process.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        fork: Callable[[Path, int], Process],
        reap: Callable[[Process], Exit],
        allowance: Callable[[], Allowance | None],
    ) -> None:
        self.folder, self._limits, self._fork, self._reap, self._allowance = folder, limits, fork, reap, allowance
        self._process: Process | None = None
        self._calls = self._disturbed = 0
        self.layout = 0

    @spent.part(spent.WIRE)
    def call(self, function: str, *args: Any, timeout: float | None = None) -> Reply:
        """Call `function` ("module:attribute.attribute") with wire-encodable arguments.

        timeout  wall seconds; None: those of the limits

        Whatever the function does is a Reply; CUT where what it may use at the moment is spent. Raises TypeError when
        an argument cannot cross the pipe, and UserError when the interpreter cannot start.
        """
        seconds = self._limits.seconds if timeout is None else timeout
        allowance = self._allowance()
        if allowance is None:
            return self._called(function, args, seconds, math.inf)
        left, wall = allowance.left, allowance.wall
        reply = self._called(function, args, min(seconds, wall), left) if left > 0 else Reply(Outcome.CUT)
        if reply.outcome is Outcome.CUT or (reply.outcome is Outcome.HANG and wall < seconds):
            name = re.split("[:.]", function)[-1]
            message = f"{name} was cut off after {reply.seconds:.1f} s" if left > 0 else "nothing more was run"
            allowance.cut = allowance.cut or message
            reply = dataclasses.replace(reply, outcome=Outcome.CUT, message=message)
        return reply

    def _called(self, function: str, args: Sequence[Any], seconds: float, cpu: float) -> Reply:
        """What becomes of a call that may take so many seconds of wall time, and of CPU time with this process."""
        self._calls += 1
        asked = {"id": self._calls, "function": function, "args": args, "seconds": seconds}
        request = interface.Encoded(asked)
        process = self._ready()
        started, used = time.monotonic(), process.cpu
        try:
            _send(process, request, seconds)
            most_cpu = process.cpu + cpu + time.process_time()
            message = _receive(process, started + seconds, self._limits, most_cpu)
            reply = _parse(message, self._calls, process)
            process.cpu = min(process.cpu, used + 1 + _CORES * (time.monotonic() - started))  # it may say anything
            if reply.peak_mib > self._limits.memory_mib:
                _fail(Outcome.MEMORY, f"used {reply.peak_mib:.0f} MiB of the {self._limits.memory_mib} allowed")
        except _NoReplyError as failure:
            reply = self._post_mortem(process, failure)
        except BaseException:
            self.close()
            raise
        process.tell()
        if reply.outcome is Outcome.MEMORY:
            self.close()
        return dataclasses.replace(reply, seconds=time.monotonic() - started)

    def undisturbed(self, ask: Callable[[], T]) -> T:
        """What `ask`, which calls this worker, gives; once more where somebody killed or stopped the process meanwhile,
        and time is left. Who did, and why, says nothing of what was called; that may have left files, so `ask` has to
        begin anew."""
        before = self._disturbed
        said, allowance = ask(), self._allowance()
        return said if self._disturbed == before or (allowance and allowance.spent) else ask()

    @property
    def seconds(self) -> float:
        """Wall seconds that a call may take where nobody says otherwise."""
        return self._limits.seconds

    @property
    def displaced(self) -> bool:
        """Whether `folder` is no directory any more."""
        return self.folder.is_symlink() or not self.folder.is_dir()

    def renew(self, layout: int = 0) -> None:
        """Empty the folder, and let the next calls run in a new process. layout: of its heap, one of
        `inside.LAYOUTS`; 0 is what the template left."""
        self.close()
        self.layout = layout
        make_empty(self.folder)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            try:
                if MEASURING in os.environ:  # what it ran is written when it ends by itself, and lost when it is killed
                    process.pipe.shutdown(socket.SHUT_RDWR)
                    process.ended(within=2.0)
                self._reap(process)
            finally:
                process.close()

    def _ready(self) -> Process:
        """A process that waits for a call; one that has died or written something since its last reply does not."""
        if self._process is not None and self._process.poll.poll(0):
            self.close()
        if self._process is None:
            if self.displaced:
                make_empty(self.folder)
            self._process = self._fork(self.folder, self.layout)
        return self._process

    def _post_mortem(self, process: Process, failure: _NoReplyError) -> Reply:
        self._process = None
        self._disturbed += failure.stopped
        crash, frames = failure.crash, held.stack(failure.crash) if failure.crash else ()
        alone = crash is not None or (failure.outcome is None and process.ended(within=1.0))
        try:
            end = self._reap(process)
            log = _read_log(process.log)
        finally:
            process.close()
        if alone:
            outcome, message, name = _cause(crash.signal if crash else end.status, failure.message, log)
            self._disturbed += message is KILLED and not end.orphaned
            return Reply(outcome, None, message, name, log, peak_mib=end.peak_mib, frames=frames)
        message = failure.message or "closed its end of the pipe"
        return Reply(failure.outcome or Outcome.GARBAGE, None, message, "", log, peak_mib=end.peak_mib)


def make_empty(folder: Path) -> None:
    """Make `folder` an empty directory, whatever a worker has made of it."""
    if os.path.lexists(folder):
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


class _NoReplyError(Exception):
    """The process gave no good reply; outcome None: because it ended, or at least closed its end of the pipe, or is
    held with its `crash`. stopped: somebody has stopped it."""

    def __init__(
        self, outcome: Outcome | None, message: str, crash: held.Held | None = None, stopped: bool = False
    ) -> None:
        super().__init__(message)
        self.outcome, self.message, self.crash, self.stopped = outcome, message, crash, stopped


def _fail(outcome: Outcome | None, message: str) -> NoReturn:
    raise _NoReplyError(outcome, message)


def _send(process: Process, request: interface.Encoded, seconds: float) -> None:
    process.pipe.settimeout(seconds)
    try:
        send(process.pipe, request)
    except TimeoutError:
        _fail(Outcome.HANG, f"took no call within {seconds:g} s")
    except OSError:
        _fail(None, "")


def _receive(process: Process, deadline: float, limits: Limits, most_cpu: float) -> bytearray:
    """The bytes of one message. Watches the process while it waits; a busy one that other processes keep from its core
    may take longer. most_cpu: CPU seconds, with those of this process, at which it is cut off."""
    message, size, seconds, begun = bytearray(), None, deadline - (now := time.monotonic()), now
    pieces, waited = 0, math.nan
    while size is None or len(message) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            deadline += _kept_waiting(process, seconds, time.monotonic() - begun, waited)
            continue
        ready = [descriptor for descriptor, _ in process.poll.poll(min(_TICK_MS, left * 1e3))]
        if process.pipe.fileno() in ready:
            chunk = _read(process.pipe, SMALL if size is None else LARGE)
            if not chunk:
                _fail(None, "the answer breaks off" if message else "")
            message += chunk
            pieces += 1
            if pieces > CRUMBS + len(message) // CRUMB:
                _fail(Outcome.GARBAGE, f"answers in crumbs: {pieces} for {len(message)} bytes")
            if size is None:
                size = _size(message, limits)
        elif ready:
            _fail(None, "the answer breaks off" if message else "")
        else:
            _watch(process, limits, most_cpu)
            if math.isnan(waited):
                waited = _seconds_waited(process.pid)
    return message


def _kept_waiting(process: Process, allowed: float, passed: float, waited: float) -> float:
    """The wall seconds more that a call is given, of which `passed` have, in place of the CPU seconds that it did not
    get of those `allowed`. Fails with HANG where it did, or does nothing. waited: for a core before the call began."""
    used = sum(map(cpu_seconds_of, family(process.pid))) - process.cpu
    busy = used + max(0.0, _seconds_waited(process.pid) - waited)
    if not (BUSY * passed < busy and used < allowed and passed < STARVED * allowed):
        stopped = is_stopped(process.pid)
        raise _NoReplyError(Outcome.HANG, f"{'was stopped, and ' * stopped}gave no answer in time", stopped=stopped)
    return max(allowed - used, _TICK_MS / 1e3)


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds used by a process and the children it waited for; 0 of one that has ended."""
    return sum(map(int, stat(pid)[11:15])) / _CLOCK


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped a process, or traces it."""
    return stat(pid)[:1] in (["T"], ["t"])


@contextlib.contextmanager
def _stopped(members: Sequence[int]) -> Iterator[None]:
    """Those of these processes that run do not meanwhile; one that does not stop in `_STOPPING` s is not waited for."""
    running = [member for member in members if not is_stopped(member)]
    try:
        for member in running:
            _signal(member, signal.SIGSTOP)
        end = time.monotonic() + _STOPPING
        while any(stat(member)[:1] in _AWAKE for member in running) and time.monotonic() < end:
            time.sleep(0.0005)
        yield
    finally:
        for member in running:
            _signal(member, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _seconds_waited(pid: int) -> float:
    """For how long the threads of a process could have run, and others had the cores; 0 where Linux does not say."""
    waited = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                waited += int(file.read().split()[1])
    return waited / 1e9


def _read(pipe: socket.socket, most: int) -> bytes:
    try:
        return pipe.recv(most)
    except ConnectionError:
        return b""


def _size(message: bytearray, limits: Limits) -> int | None:
    try:
        size = interface.message_size(message)
    except interface.WireError as e:
        _fail(Outcome.GARBAGE, str(e))
    if size is not None and size > limits.answer_mib * 2**20:
        _fail(Outcome.GARBAGE, f"announces an answer of {size} bytes")
    return size


def _watch(process: Process, limits: Limits, most_cpu: float) -> None:
    members = family(process.pid)
    if most_cpu < math.inf and sum(map(cpu_seconds_of, members)) + time.process_time() > most_cpu:
        _fail(Outcome.CUT, "")
    if limits.hold_crashes and (crash := held.find(members)):
        raise _NoReplyError(None, "", crash)
    used = sum(map(_resident, members))
    if used > limits.memory_mib and len(members) > 1:  # what a fork shares with its parent has been counted twice
        used = sum(map(_proportional, members))
    if used > limits.memory_mib:
        _fail(Outcome.MEMORY, f"used {used:.0f} MiB of the {limits.memory_mib} allowed")
    if os.fstat(process.log).st_size > _LOG_MOST:
        with _stopped(members):  # or what they write between the reading and the cutting is lost
            tail = _read_tail(process.log)
            os.ftruncate(process.log, 0)
            os.write(process.log, tail)


def family(pid: int) -> list[int]:
    """The process `pid` and its descendants."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def _resident(pid: int) -> float:
    """Resident memory in MiB; 0 of a process that has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * _PAGE / 2**20
    return 0.0


def _proportional(pid: int) -> float:
    """Resident memory in MiB, of shared pages only this process's part; takes .4 ms a GiB."""
    with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024
    return _resident(pid)


class _Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """What `inside` says of a call, but for its value."""

    id: int
    outcome: Literal["ok", "error", "memory"]
    message: str
    cpu: Annotated[float, Meta(ge=0, le=sys.float_info.max)]
    peak_mib: Annotated[float, Meta(ge=0, le=sys.float_info.max)]
    frames: tuple[str, ...] = ()
    mistake: str = ""


def _parse(message: bytearray, call: int, process: Process) -> Reply:
    try:
        said = interface.decode(message, copy=False)  # of a large model the tensors are most of the memory
        encoded = said.pop("value", None) if isinstance(said, dict) else None
        answer = read(said, _Answer, "the answer")
        outcome = Outcome(answer.outcome)
        # The value is encoded, and there only if the call ended well.
        if answer.id != call or isinstance(encoded, memoryview) is not (outcome is Outcome.OK):
            _fail(Outcome.GARBAGE, f"no answer to this call: {bytes(message[:80])!r}")
        value = interface.decode(encoded, copy=False) if isinstance(encoded, memoryview) else None
    except ValueError as e:
        _fail(Outcome.GARBAGE, str(e))
    process.cpu = answer.cpu
    log = _read_log(process.log)
    frames = tuple(frame[:LINE] for frame in answer.frames[:FRAMES])
    text, mistake = shortened(answer.message, MESSAGE), answer.mistake[:LINE]
    return Reply(outcome, value, text, "", log, peak_mib=answer.peak_mib, frames=frames, mistake=mistake)


def _cause(status: int, broken: str, log: str) -> tuple[Outcome, str, str]:
    """Outcome, message and signal of a process that ended by itself with this wait status.

    broken  what was wrong with the answer that it had begun to write, "" when it had not
    """
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        if broken:
            return Outcome.GARBAGE, broken, ""
        return Outcome.CRASH, f"ended itself with exit status {code}", f"exit-{code}"
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"SIG{number}"
    if number == signal.SIGKILL:
        return Outcome.MEMORY, KILLED, ""
    if number == signal.SIGABRT and "bad_alloc" in log:
        return Outcome.MEMORY, "std::bad_alloc", ""
    if number == signal.SIGXCPU:
        return Outcome.HANG, "used more CPU time than the call may take", ""
    return Outcome.CRASH, f"ended by {name}", name


def _read_tail(log: int) -> bytes:
    size = os.fstat(log).st_size
    return os.pread(log, LOG_BYTES, max(0, size - LOG_BYTES)) if size else b""


def _read_log(log: int) -> str:
    """What was written since the last call of this function, at most the end of it."""
    text = _read_tail(log)
    if text:
        os.ftruncate(log, 0)
    lines = text.decode(errors="replace").split("\n")
    return "\n".join(shortened(line, LINE) for line in lines)
