"""What runs inside the sandbox: a template process that has imported the system under test, and the workers it forks.

Forking makes a fresh worker cost milliseconds where starting an interpreter and importing costs .3 to 1 s. This module
runs in the interpreter of the system under test: Python 3.8 and numpy must be enough for it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import dis
import fcntl
import gc
import importlib
import inspect
import json
import mmap
import os
import re
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from random import Random
from typing import Any, Callable, Iterator, NoReturn  # noqa: UP035  (of collections.abc they need Python 3.9)

from driftnet.run.sandbox.outside import SWEEPS, sweep
from driftnet.targets import interface
from driftnet.targets.interface import LARGE, SMALL

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
# Landlock's system calls, the same on every architecture, and its constants
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ACCESS_REFER, RULE_PATH_BENEATH, SCOPE_SOCKET, SCOPE_SIGNAL = 1 << 13, 1, 1, 2
_CPUS = os.cpu_count() or 1
FATAL = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_PROBED_FILES, _PROBED_BYTES = 48, 1 << 26
FRAMES = 24  # of a traceback, the innermost
# glibc's mallopt(M_PERTURB, byte) fills what is freed with the byte, and what is allocated with its complement:
# 0x7f7f7f7f is a huge float and a huge integer, 0xaaaaaaaa a tiny negative float.
M_PERTURB = -6
FILLED = (0, 0, 0x80, 0x55)
LAYOUTS = len(FILLED)
_GAPS, _LONGEST = 2000, 4096
_MOST_SAID = 1 << 16  # characters of an error message
UNTOLD = -1
_LIBC = ctypes.CDLL(None, use_errno=True)


def serve(settings: dict[str, Any]) -> None:
    """Be the template: import what is asked for, then fork and reap workers until the control socket closes.

    settings: "parent" process, so many "generations" up, file descriptor of the "control" socket to it, "preload"
    modules to import, "folder" to remove at the end, "above" what to remove then if nobody holds it (both may be "",
    for nothing), and the "limits" of each worker.
    """
    control = socket.socket(fileno=settings["control"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU):  # it may be born while a limit for the oracle holds
        most = resource.getrlimit(which)[1]
        resource.setrlimit(which, (most, most))
    isolated = _isolate()
    line = _ancestors(settings["generations"])
    if len(line) > 1 and (open_to := [pid for pid in line if os.path.exists(f"/proc/{pid}/root")]):
        sys.exit(f"files would not be hidden: /proc/{open_to[0]}/root leads to all (no user namespaces, no Landlock?)")
    _adopt_orphans()
    with _swept_after_death(settings["above"]):
        # Only while importing: the signal fires when the creating *thread* ends, and afterwards the socket tells.
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if _ancestors(len(line))[-1] not in (settings["parent"], UNTOLD):  # it, or one between, has ended meanwhile
            os.kill(os.getpid(), signal.SIGKILL)
        for name in settings["preload"]:
            getattr(importlib.import_module(name), "preload", _nothing)()
    if len(line) == 1:  # bwrap has but one thread
        _LIBC.prctl(PR_SET_PDEATHSIG, 0)
    gc.freeze()
    gc.enable()
    _flush()
    _say(control, network_isolated=isolated)

    workers: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while _serve_request(control, workers, settings["limits"]):
            pass
    for pid in workers:
        _reap(pid, workers)
    shutil.rmtree(settings["folder"], ignore_errors=True)
    sweep(settings["above"])


@contextlib.contextmanager
def _swept_after_death(folder: str) -> Iterator[None]:
    """While the block runs another process stands by: where somebody kills this one, it removes `folder` if nobody
    holds that any more."""
    reader, writer = os.pipe()
    other = os.fork()
    if other == 0:
        os.close(writer)
        if not os.read(reader, 1):
            sweep(folder, SWEEPS)
        os._exit(0)
    os.close(reader)
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):  # somebody killed the other one
            os.write(writer, b".")
        os.close(writer)
        os.waitpid(other, 0)


def _ancestors(generations: int) -> list[int]:
    """So many processes up from this one, the nearest first: 0 above the first of all, UNTOLD where /proc hides it."""
    line = [os.getppid()]
    while len(line) < generations:
        told = stat(line[-1])
        line.append(int(told[1]) if told else line[-1] and UNTOLD)
    return line


def _serve_request(control: socket.socket, workers: set[int], limits: dict[str, int]) -> bool:
    """Fork or reap one worker. False when the parent has gone."""
    request, descriptors = _hear(control)
    if request is None:
        return False
    if "reap" in request:
        workers.remove(request["reap"])
        _say(control, **_reap(request["reap"], workers))
        return True
    template, pid = os.getpid(), os.fork()
    if pid == 0:
        control.close()
        pipe, log = descriptors
        _lay_out(request.get("layout", 0))
        _work(pipe, log, request["fork"], limits, template)
    workers.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    _say(control, pid=pid, cpu=_cpu_seconds())
    return True


def probe() -> list[str]:
    """What a worker cannot do, in words: what any system may ask for has nothing to do with the one under test."""
    lacks = []

    def have_memory() -> None:
        with mmap.mmap(-1, _PROBED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            with contextlib.suppress(OSError):  # in huge pages it takes 5 ms of CPU time instead of 40
                memory.madvise(mmap.MADV_HUGEPAGE)
            for start in range(0, _PROBED_BYTES, mmap.PAGESIZE):
                memory[start] = 1

    def write() -> None:
        with open("probe", "wb") as file:
            file.write(bytes(1 << 20))
        os.remove("probe")

    def open_files() -> None:
        with contextlib.ExitStack() as files:
            for _ in range(_PROBED_FILES):
                files.enter_context(open(os.devnull))

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    def start() -> None:
        thread = threading.Thread(target=str)
        thread.start()
        thread.join()

    deeds = {
        "write a MiB": write,
        f"open {_PROBED_FILES} files": open_files,
        f"have {_PROBED_BYTES >> 20} MiB of memory": have_memory,
        "start a process": fork,
        "start a thread": start,
    }
    for what, deed in deeds.items():
        try:
            deed()
        except (OSError, MemoryError, RuntimeError) as e:
            lacks.append(f"{what} ({e})")
    return lacks


def _nothing() -> None:
    """What a module without preload() does when preloaded."""


def _isolate() -> bool:
    """Leave network and processes of this machine behind, as far as the system allows. Whether the network is gone."""
    # A child tries first: where the maps are refused, as by Ubuntu's AppArmor, there is no way back.
    child = os.fork()
    if child == 0:
        os._exit(0 if _enter_namespaces() else 1)
    gone = os.waitpid(child, 0)[1] == 0 and _enter_namespaces()
    if not gone:
        _LIBC.unshare(CLONE_NEWNET)  # root may, and may come back: it keeps off the network what does not insist
    _leave_processes()
    return gone


def _enter_namespaces() -> bool:
    """Move into a network namespace without any interface that is up, by way of a user namespace.

    That needs no privilege, and leaves none, not even to root, over what is outside: neither may setns() bring the
    network back, nor does /proc show the environment and memory of processes that were there before.
    """
    pid, (ready, tell) = os.getpid(), os.pipe()
    helper = os.fork()
    if helper == 0:  # stays outside: from inside nobody but the own user could be mapped
        os.close(tell)
        os._exit(0 if os.read(ready, 1) and _map_users(pid) else 1)
    os.close(ready)
    if _LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0:
        os.write(tell, b".")
    os.close(tell)
    return os.waitpid(helper, 0)[1] == 0


def _map_users(pid: int) -> bool:
    """Let users and groups be the same in the namespace of `pid`, or, where only root may do that, this user alone.

    Without a map that process could create no file (EOVERFLOW), and root could not read the files of others.
    """
    # that of groups first: a map of one user may be written by anybody, and only once
    alone = {"gid_map": os.getgid(), "uid_map": os.getuid()}
    try:
        for name in alone:
            with open(f"/proc/self/{name}") as file:
                ranges = [line.split() for line in file]
            _write(f"/proc/{pid}/{name}", "".join(f"{first} {first} {count}\n" for first, _, count in ranges))
        return True
    except OSError:
        pass
    try:
        _write(f"/proc/{pid}/setgroups", "deny")
        for name, number in alone.items():
            _write(f"/proc/{pid}/{name}", f"{number} {number} 1")
        return True
    except OSError:
        return False


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _leave_processes() -> None:
    """Enter a Landlock domain (https://docs.kernel.org/userspace-api/landlock.html) that restricts no files.

    From inside nobody may trace processes outside, nor read their environment (since Linux 5.19), nor signal them or
    connect to their abstract sockets (6.12).
    """
    version = _LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 2:
        return
    # A domain that handles any access to files forbids moving them between folders, unless that is handled and allowed.
    scoped = version >= 6
    handled = (ctypes.c_uint64 * 3)(0 if scoped else ACCESS_REFER, 0, SCOPE_SOCKET | SCOPE_SIGNAL)
    rules = _LIBC.syscall(CREATE_RULESET, handled, ctypes.c_size_t(24 if scoped else 8), 0)
    if rules < 0:
        return
    root = os.open("/", os.O_PATH)
    allowed = struct.pack("=Qi", ACCESS_REFER, root)
    if scoped or _LIBC.syscall(ADD_RULE, rules, RULE_PATH_BENEATH, allowed, 0) == 0:
        _LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _LIBC.syscall(RESTRICT_SELF, rules, 0)
    os.close(root)
    os.close(rules)


def _say(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


def _hear(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next request with the file descriptors that came along; None when the parent has gone."""
    descriptors = array.array("i")
    message, ancillary, _, _ = control.recvmsg(1 << 16, socket.CMSG_SPACE(8 * descriptors.itemsize))
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    return (json.loads(message) if message else None), list(descriptors)


def _reap(pid: int, workers: set[int]) -> dict[str, Any]:
    """End a worker and all that it started, none of `workers`; how it ended, in a worker that had ended already."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it is so new that it has no group of its own yet
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    usages = [usage]
    # A living worker adopts its orphans itself, so a child that is no worker comes from a dead one. Again and again,
    # because ending it makes its own children appear here.
    while orphans := [child for child in children(os.getpid()) if child not in workers]:
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)
        usages += [os.wait4(orphan, 0)[2] for orphan in orphans]
    return {
        "status": status,
        "cpu": sum(usage.ru_utime + usage.ru_stime for usage in usages),
        "peak_mib": max(usage.ru_maxrss for usage in usages) / 1024,
    }


def stat(pid: int) -> list[str]:
    """What /proc/PID/stat tells, from the state on: state, parent, ...; nothing of a process that is not there."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`, those that have ended and were not waited for included."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own: also of one that fled into a session of its own."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def _work(pipe: int, log: int, folder: str, limits: dict[str, int], template: int) -> NoReturn:
    """Be a worker: never return into the template."""
    code = 1
    try:
        _confine(log, folder, limits)
        if os.getppid() != template:  # it died before this one asked to go along
            os._exit(1)
        # A number of its own, so that a target closing or writing to small descriptors does not hit it.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        high = fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, min(256 + int.from_bytes(os.urandom(1), "little"), most))
        os.close(pipe)
        _answer(socket.socket(fileno=high))
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _lay_out(which: int) -> None:
    """Give the heap of the C library another layout: gaps of many sizes, and no zeros in what was never written.

    A read or write out of bounds does what lies there lets it do, and in one layout that may be nothing, or always the
    same. Layout 0 is what the template left.
    """
    if not which:
        return
    rng, pointer = Random(which), ctypes.c_void_p
    _LIBC.malloc.restype = pointer
    blocks = [pointer(_LIBC.malloc(ctypes.c_size_t(rng.randrange(16, _LONGEST)))) for _ in range(_GAPS)]
    for block in blocks[::2]:
        _LIBC.free(block)
    if hasattr(_LIBC, "mallopt"):  # musl has none
        _LIBC.mallopt(M_PERTURB, FILLED[which])


def _look_at_heap() -> None:
    """Let the C library look at what was freed, as it does for a large block: what it finds damaged ends the process
    within the call that has damaged it, not in the next one, or behind an answer."""
    _LIBC.malloc.restype = pointer = ctypes.c_void_p
    _LIBC.free(pointer(_LIBC.malloc(ctypes.c_size_t(SMALL))))


def _confine(log: int, folder: str, limits: dict[str, int]) -> None:
    os.setsid()
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _adopt_orphans()
    for descriptor in 1, 2:
        os.dup2(log, descriptor)
    os.close(log)
    # Line buffered, or a crash would take along what has been printed, by Python and by native code into C's stdout.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]
    _LIBC.setvbuf(ctypes.c_void_p.in_dll(_LIBC, "stdout"), None, 1, 1 << 16)
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    tempfile.tempdir = folder
    with open("/proc/self/oom_score_adj", "w") as file:  # when memory runs out, the kernel takes workers first
        file.write("1000")
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    # Address space is not memory: what is allocated and never touched does no harm. The parent watches what is used.
    _limit(resource.RLIMIT_AS, size + (2 * limits["memory_mib"] + 1024) * 2**20)
    _limit(resource.RLIMIT_FSIZE, limits["file_mib"] * 2**20)
    _limit(resource.RLIMIT_CORE, 1)  # 0 would still start a crash handler where core_pattern is a pipe; 1 does not
    if limits.get("hold_crashes"):
        for number in FATAL:
            _LIBC.signal(int(number), ctypes.cast(_LIBC.pause, ctypes.c_void_p))


def _limit(which: int, value: int, *, for_good: bool = True) -> None:
    """Lower a limit; `for_good`: so that it cannot be raised again."""
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value if for_good else hard))


def _answer(pipe: socket.socket) -> None:
    """Answer calls until the other side hangs up."""
    functions: dict[str, Callable[..., Any]] = {}
    while True:
        message = _receive(pipe)
        if message is None:
            return
        request = interface.decode(message)
        # The parent's own time limit comes first; this one is for a worker whose parent has stopped looking.
        allowed = _cpu_seconds() + 1 + 2 * request["seconds"] * _CPUS
        _limit(resource.RLIMIT_CPU, int(allowed), for_good=False)
        reply: dict[str, Any] = {"id": request["id"], "outcome": "ok", "message": "", "value": None}
        try:
            name = request["function"]
            if name not in functions:
                functions[name] = _find(name)
            reply["value"] = interface.Encoded(functions[name](*request["args"]))
        except MemoryError as e:
            reply.update(outcome="memory", message=f"{type(e).__name__}: {e}")
        except interface.StageError as e:
            reply.update(outcome="error", message=str(e))
        except Exception as e:
            told, mistake = f"{type(e).__name__}: {e}", _mistake(e, functions.get(name))
            reply.update(outcome="error", message=told, frames=_frames(e), mistake=mistake)
        reply["message"] = reply["message"][:_MOST_SAID]
        if reply["outcome"] == "error":
            _look_at_heap()
        _flush()
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        reply["cpu"] = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        reply["peak_mib"] = max(usage.ru_maxrss for usage in usages) / 1024
        send(pipe, interface.Encoded(reply))


def send(pipe: socket.socket, message: interface.Encoded) -> None:
    """Say a message; a large one in pieces."""
    for piece in message.pieces() if len(message) >= LARGE else [bytes(message)]:
        pipe.sendall(piece)


def _frames(error: Exception) -> list[str]:
    """Where `error` was raised, innermost first, as "package/module.py function"; built-in modules as they are.

    A frame of driftnet begins with `interface.OURS`, wherever it is installed.
    """
    own = os.path.dirname(os.path.dirname(interface.__file__)) + os.sep
    frames = []
    for frame in traceback.extract_tb(error.__traceback__)[-FRAMES:]:
        path = frame.filename
        entry = max((e for e in sys.path if e and path.startswith(e + os.sep)), key=len, default="")
        where = os.path.relpath(path, entry) if entry else os.path.basename(path)
        frames.append(f"{interface.OURS + path[len(own) :] if path.startswith(own) else where} {frame.name}")
    return frames[::-1]


def _mistake(error: Exception, function: Callable[..., Any] | None) -> str:
    """ "file:line" where `error` comes out of the file of `function` itself; "" where what that has called raised it,
    native code too, of which there is no frame."""
    own = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None) if function else None
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    if own is None or last is None:
        return ""
    code = last.tb_frame.f_code
    # Python 3.11 calls a builtin in PRECALL once it has seen it often enough.
    called = dis.opname[code.co_code[last.tb_lasti]].startswith(("CALL", "PRECALL", "IMPORT"))
    if called and not (isinstance(error, TypeError) and re.search(_MISFIT, str(error))):
        return ""
    if code.co_filename in (__file__, interface.__file__):  # it takes other arguments, or gives what is no value
        return f"{own.co_filename}:{own.co_firstlineno}"
    return f"{code.co_filename}:{last.tb_lineno}" if code.co_filename == own.co_filename else ""


_MISFIT = r"\btakes .*argument|missing \d+ required|unexpected keyword argument|multiple values for|is not callable"


def _receive(pipe: socket.socket) -> bytearray | None:
    message = bytearray()
    size = None
    while size is None or len(message) < size:
        chunk = pipe.recv(SMALL if size is None else LARGE)
        if not chunk:
            return None
        message += chunk
        size = interface.message_size(message)
    return message


def _find(name: str) -> Any:
    """The function that "module:attribute.attribute" names."""
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    _LIBC.fflush(None)
