"""What a system under test may do to its worker. Runs in the sandbox."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import numpy as np
from driftnet.targets import interface

_LIBC = ctypes.CDLL(None)
_hoard: list[object] = []


def preload() -> None:
    """What the template does before it forks."""
    _hoard.append("preloaded")


def echo(value: object) -> object:
    return value


def hoard(value: object) -> list[object]:
    """Remember `value`, and return what this process remembers."""
    _hoard.append(value)
    return _hoard


def pid() -> int:
    return os.getpid()


def refuse() -> None:
    raise interface.StageError("Don't support type Einsum")


def raise_value_error() -> None:
    raise ValueError("seven is not even")


def recurse() -> None:
    recurse()


def interrupt() -> None:
    raise KeyboardInterrupt


def answer_with_what_cannot_cross() -> object:
    return object()


def jump_to_nowhere() -> None:
    ctypes.CFUNCTYPE(None)(8)()


def segfault() -> None:
    ctypes.string_at(0)


def read_a_number() -> None:
    ctypes.c_int.from_address(16).value  # noqa: B018


def read_from_an_array() -> None:
    (ctypes.c_int * 1).from_address(16)[0]


def segfault_in_a_child() -> None:
    if (child := os.fork()) == 0:
        segfault()
    os.waitpid(child, 0)


def segfault_in_a_thread() -> None:
    thread = threading.Thread(target=segfault)
    thread.start()
    thread.join()


def segfault_beside_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    segfault()


def speak_and_segfault() -> None:
    _LIBC.puts(b"last words of native code")
    print("last words of Python")
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def abort_for_want_of_memory() -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def signal_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def signal_itself_at_first(number: int) -> None:
    """Come back only when it is called a second time in this working folder."""
    if not os.path.exists("begun"):
        os.mkdir("begun")
        signal_itself(number)


def exit_at_once(code: int) -> None:
    os._exit(code)


def exit_politely(code: int) -> None:
    sys.exit(code)


def sleep() -> None:
    time.sleep(600)


def work_on_half_a_core(seconds: float) -> float:
    """So many CPU seconds, in twice the time."""
    end = time.process_time() + seconds
    while (now := time.process_time()) < end:
        while time.process_time() < now + 0.01:
            pass
        time.sleep(0.01)
    return seconds


def work_on_the_first_core(seconds: float) -> None:
    """So many CPU seconds, on a core that others may have, too."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    burn(seconds)


def spin_in_native_code() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def fill_memory(mib: int) -> int:
    """Touch this much memory, a little at a time."""
    return sum(len(block) for block in [np.ones(1 << 20, np.uint8) for _ in range(mib)])


def ask_for_memory(mib: int) -> None:
    np.empty(mib << 20, np.uint8)


def speak() -> None:
    print("from Python")
    print("from Python's stderr", file=sys.stderr)
    _LIBC.puts(b"from native code")
    subprocess.run(["echo", "from a child"], check=True)


def chatter(mib: int) -> None:
    """Print this much in lines, at most 1 MiB in 3 ms."""
    for _ in range(mib):
        os.write(1, (b"x" * 63 + b"\n") * (1 << 14))
        time.sleep(0.003)
    os.write(1, b"the end\n")


def read_input() -> str:
    return sys.stdin.read()


def environment() -> str:
    return repr(os.environ) + Path("/proc/self/environ").read_text(encoding="utf-8")


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def folders() -> list[str]:
    return [os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"]]


def write_file(mib: int) -> None:
    with open("big", "wb") as file:
        for _ in range(mib):
            file.write(b"x" * (1 << 20))


def start_child() -> int:
    """Start a process that outlives the call, and return its pid."""
    return subprocess.Popen(["sleep", "600"]).pid


def start_child_and_segfault() -> None:
    """Crash while a forked child still holds the pipe."""
    if os.fork() == 0:
        time.sleep(600)
    segfault()


def start_daemon(seconds: float) -> int:
    """Start a process that flees into a session of its own; return its pid once it has burnt `seconds` there."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        burn(seconds)
        os.write(writer, str(os.getpid()).encode())
        time.sleep(600)
    return int(os.read(reader, 16))


def start_daemon_and_segfault(path: str) -> None:
    Path(path).write_text(str(start_daemon(0.0)))
    segfault()


def fill_memory_in_a_child(mib: int) -> None:
    child = os.fork()
    if child == 0:
        fill_memory(mib)
        os._exit(0)
    os.waitpid(child, 0)


def share_memory_with_children(mib: int, children: int) -> None:
    """Touch this much memory, and fork children that only read it, for .2 s."""
    kept = np.ones(mib << 20, np.uint8)
    pids = []
    for _ in range(children):
        pids.append(os.fork())
        if pids[-1] == 0:
            kept.sum()
            time.sleep(0.2)
            os._exit(0)
    for child in pids:
        os.waitpid(child, 0)


def replace_folder(what: str) -> None:
    """Put something else in the place of the working directory: "nothing", "file", "pipe", or "link"."""
    here = os.getcwd()
    shutil.rmtree(here)
    if what == "file":
        Path(here).touch()
    if what == "pipe":
        os.mkfifo(here)
    if what == "link":
        os.symlink("/proc", here)


def convert(model: str, folder: str, options: interface.Options) -> str:
    """Answer with no path of a file in `folder`, or fail."""
    deed = options["deed"]
    if deed == "surrogate in message":
        print("log of", folder)
        raise interface.StageError(f"{folder}/w: bad \udcff, {tempfile.gettempdir()}/t")
    if deed == "circle of links":
        os.symlink("circle", f"{folder}/circle")
    if deed == "file in the way":
        number = int(folder.rpartition("_")[2])
        Path(folder).with_name(f"case_{number + 1}").touch()
    answers = {
        "nul": "a\0b",
        "long name": "x" * 5000,
        "surrogate": "\ud800",
        "circle of links": f"{folder}/circle",
        "folder": folder,
        "outside": __file__,
        "out by a link": f"{folder}/../../../../../../../../etc/passwd",
    }
    return answers.get(deed, model)


def quantize(artifact: str, calibration: object, folder: str, options: interface.Options) -> str:
    if options["deed"] == "killed at first":
        os.mkdir(f"{folder}/calibration")
        signal_itself_at_first(signal.SIGKILL)
    return artifact


def execute(
    artifact: str, feeds: list[interface.Feed], outputs: list[str], options: interface.Options
) -> list[interface.Feed]:
    if options["deed"] in ("nothing", "file", "pipe", "link"):
        replace_folder(options["deed"])
    return list(feeds)


def inspect(artifact: str, options: interface.Options) -> object:
    """Tell what is no artifact, or nothing at all."""
    if options["deed"] == "crash in inspect":
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"model": b"this is no model"}


def scheme(options: interface.Options) -> interface.Scheme | None:
    return interface.Scheme(weight_codes=(-127, 127)) if "inspect" in options["deed"] else None


DEEDS = (
    "none",
    *("garbage from inspect", "crash in inspect"),
    *("nul", "long name", "surrogate", "circle of links", "folder", "outside", "out by a link"),
    *("nothing", "file", "pipe", "link", "file in the way", "surrogate in message"),
    "killed at first",
)
HOSTILE = interface.Target(
    *("hostile", "numpy", convert, quantize, execute),
    options=(interface.Option("deed", "convert", DEEDS, "what to do"),),
    scheme=scheme,
    inspect=inspect,
)


def join_network_of(pid: int) -> None:
    """Move into the network namespace of another process."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None).setns(namespace, 0) != 0:
        raise PermissionError


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")


def raise_limits() -> None:
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def burn_in_a_child(seconds: float) -> None:
    child = os.fork()
    if child == 0:
        burn(seconds)
        os._exit(0)
    os.waitpid(child, 0)


def _pipe() -> int:
    """The descriptor of the pipe, which a target has no business to know."""
    links = Path("/proc/self/fd").iterdir()
    return next(int(p.name) for p in links if p.is_symlink() and os.readlink(p).startswith("socket:"))


def write_to_pipe(garbage: bytes) -> None:
    os.write(_pipe(), garbage)


def write_to_pipe_and_exit(garbage: bytes, code: int) -> None:
    os.write(_pipe(), garbage)
    os._exit(code)


def dribble() -> None:
    """Answer byte by byte, without an end, each when the one before was heard: else the kernel joins them."""
    pipe = _pipe()
    os.write(pipe, interface.encode(bytes(2**24))[:64])
    while True:
        os.write(pipe, b"x")
        while any(fcntl.ioctl(pipe, termios.TIOCOUTQ, bytes(4))):
            pass


def close_pipe() -> None:
    os.close(_pipe())
    time.sleep(60)


def open_descriptors() -> list[str]:
    """What each open descriptor refers to."""
    return [os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()]


def unwritten(size: int) -> bytes:
    """What lies in memory that was allocated and never written."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    return ctypes.string_at(libc.malloc(ctypes.c_size_t(size)), size)
