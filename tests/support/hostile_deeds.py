"""What a hostile target does to its process, and to those around it, before it answers. Runs in the sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from driftnet.targets import interface
from driftnet.targets.interface import StageError

from tests.support.deeds import crash
from tests.support.sandbox_faults import _pipe

PR_SET_NAME, PTRACE_ATTACH = 15, 16
ESCAPES = b"\x1b]0;x\x07\x1b[2J\0\xff\xfe::error::\r"


class UnspeakableError(Exception):
    """One that cannot be told."""

    def __str__(self) -> str:
        raise ValueError(self.args)


def speechless(value: Any) -> None:
    raise UnspeakableError(value)


def fail(error: BaseException) -> None:
    raise error


def recurse_in_c() -> None:
    sys.setrecursionlimit(10**9)
    deep: list[Any] = []
    for _ in range(10**6):
        deep = [deep]
    json.dumps(deep)


def each_descriptor(deed: Callable[[int], object]) -> None:
    for descriptor in range(1024):
        with contextlib.suppress(OSError):
            deed(descriptor)


def said(outcome: str = "ok", **more: Any) -> bytes:
    """What a worker says of its first calls, or would."""
    answer = {"id": 1, "outcome": outcome, "message": "", "cpu": 0.0, "peak_mib": 0.0, "value": None, **more}
    return interface.encode(answer)


def speak(*parts: bytes, pause: float = 0.0) -> None:
    pipe = _pipe()
    for part in parts:
        os.write(pipe, part)
        time.sleep(pause)


def beside(deed: Callable[[], object], count: int) -> None:
    for _ in range(count):
        threading.Thread(target=deed, daemon=True).start()


def spin() -> None:
    while True:
        pass


def children(count: int, deed: Callable[[], object]) -> None:
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            deed()
            os._exit(0)


def shout() -> None:
    while True:
        os.write(1, b"x" * 65536)


def lie_about_itself(**lies: Any) -> None:
    """All further answers say so."""
    honest = interface.Encoded

    class Liar(honest):  # type: ignore[misc, valid-type]
        def __init__(self, value: Any) -> None:
            super().__init__({**value, **lies} if isinstance(value, dict) and "outcome" in value else value)

    interface.Encoded = Liar  # type: ignore[misc]


def replace(where: Any, name: str, what: Any) -> None:
    setattr(where, name, what)


def limit(which: int, value: int) -> None:
    resource.setrlimit(which, (value, value))


def open_many() -> None:
    kept = []
    try:
        while True:
            kept.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        open_many.kept = kept  # type: ignore[attr-defined]


def files(count: int) -> None:
    for k in range(count):
        with open(f"file {k}\n", "wb"):
            pass


def many_maps(count: int) -> None:
    """So many regions of memory that may be executed, of files: each a line of /proc/self/maps."""
    with open(sys.executable, "rb") as file:
        many_maps.kept = [  # type: ignore[attr-defined]
            mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC, offset=8192 * (k % 64))
            for k in range(count)
        ]


def seem_held() -> None:
    """As a process looks that sleeps in the handler of a fatal signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSEGV])
    time.sleep(3600)


def in_memory(mib: int) -> None:
    """A file in memory that is no memory of this process."""
    file = os.memfd_create("hidden")
    for _ in range(mib):
        os.write(file, bytes(1 << 20))


def libc(name: str, *arguments: int) -> None:
    getattr(ctypes.CDLL(None), name)(*arguments)


def called(name: bytes) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name)
    threading.Thread(target=time.sleep, args=(0.1,)).start()


DONE: dict[str, Callable[[], object]] = {
    "exits with 0": lambda: os._exit(0),
    "exits politely": lambda: sys.exit(0),
    "exits with a text": lambda: sys.exit("x" * 10**6),
    "raises KeyboardInterrupt": lambda: fail(KeyboardInterrupt()),
    "raises GeneratorExit": lambda: fail(GeneratorExit()),
    "raises what cannot be told": lambda: speechless(1),
    "raises with a text of surrogates": lambda: fail(StageError("\ud800" * 1000)),
    "raises with 64 MiB of text": lambda: fail(StageError("x" * 2**26)),
    "raises with a name of 10^6 letters": lambda: fail(type("x" * 10**6, (Exception,), {})()),
    "raises a chain of 10^4 errors": lambda: fail(chained(10**4)),
    "recurses in C": recurse_in_c,
    "crashes in 8 threads": lambda: beside(crash, 8) or time.sleep(1),
    "stops itself": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "dies of SIGUSR1": lambda: os.kill(os.getpid(), signal.SIGUSR1),
    "dies of a realtime signal": lambda: os.kill(os.getpid(), signal.SIGRTMAX),
    "dies of an alarm": lambda: [signal.setitimer(signal.ITIMER_REAL, 0.01), time.sleep(3600)],
    "kills its template": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "terminates its template": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "crashes its template": lambda: os.kill(os.getppid(), signal.SIGSEGV),
    "stops its template": lambda: os.kill(os.getppid(), signal.SIGSTOP),
    "traces its template": lambda: libc("ptrace", PTRACE_ATTACH, os.getppid(), 0, 0),
    "closes every descriptor": lambda: os.closerange(0, 65536),
    "writes to every descriptor": lambda: each_descriptor(lambda fd: os.write(fd, b"garbage")),
    "opens files without an end": open_many,
    "answers twice": lambda: speak(said(), said()),
    "answers another call": lambda: speak(said(id=2**40)),
    "answers half and sleeps": lambda: speak(said()[:-3]) or time.sleep(3600),
    "answers half and dies": lambda: speak(said()[:-3]) or os._exit(0),
    "answers in crumbs": lambda: speak(*(bytes([b]) for b in said()), pause=0.001) or time.sleep(3600),
    "announces 2^62 bytes": lambda: speak(struct.pack("<4sIQ", b"DFT1", 16, 2**62)) or time.sleep(3600),
    "announces 4 GiB of names": lambda: speak(struct.pack("<4sIQ", b"DFT1", 2**32 - 1, 0)) or time.sleep(3600),
    "says ok without a value": lambda: speak(said(value=None)) or time.sleep(3600),
    "says an outcome that is none": lambda: speak(said("splendid")) or time.sleep(3600),
    "says cut": lambda: speak(said("cut")) or time.sleep(3600),
    "claims 10^300 CPU seconds": lambda: lie_about_itself(cpu=1e300),
    "claims NaN CPU seconds": lambda: lie_about_itself(cpu=float("nan")),
    "claims 10^300 MiB": lambda: lie_about_itself(peak_mib=1e300),
    "claims a million frames": lambda: lie_about_itself(frames=["x.py f"] * 10**6),
    "claims frames of 1 MB": lambda: lie_about_itself(outcome="error", frames=["x" * 10**6] * 8),
    "spins in 50 threads": lambda: beside(spin, 50),
    "leaves 30 children that spin": lambda: children(30, spin),
    "leaves 100 children that sleep": lambda: children(100, lambda: time.sleep(3600)),
    "leaves a daemon that shouts": lambda: children(1, shout),
    "shouts 256 MiB": lambda: [os.write(1, b"x" * 2**20) for _ in range(256)],
    "prints escape sequences": lambda: [os.write(1, ESCAPES * 1000), fail(StageError("\x1b[31m"))],
    "prints 10^6 carriage returns": lambda: [os.write(2, b"\r" * 10**6), fail(StageError("Error\r" * 1000))],
    "has no stdout": lambda: replace(sys, "stdout", None),
    "has no json": lambda: replace(json, "dumps", None),
    "has no encoder": lambda: replace(interface, "Encoded", None),
    "forbids itself memory": lambda: limit(resource.RLIMIT_AS, 1 << 20),
    "forbids itself descriptors": lambda: limit(resource.RLIMIT_NOFILE, 0),
    "forbids itself files": lambda: limit(resource.RLIMIT_FSIZE, 0),
    "writes 2000 files": lambda: files(2000),
    "moves to the root": lambda: os.chdir("/"),
    "calls itself ) R 1 (": lambda: called(b") R 1 ("),
    "seems held": seem_held,
    "seems held with 30000 maps": lambda: many_maps(30000) or seem_held(),
    "hides 512 MiB": lambda: in_memory(512),
}


def chained(count: int) -> Exception:
    error = StageError("the first")
    for _ in range(count):
        error, cause = StageError("another"), error
        error.__cause__ = cause
    return error
