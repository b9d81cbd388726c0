"""What runs inside the sandbox: a template process that has imported the system under test, and the workers it forks.

Forking makes a fresh worker cost milliseconds where starting an interpreter and importing costs .3 to 1 s. This module
runs in the interpreter of the system under test: Python 3.8 and numpy must be enough for it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any, Callable, NoReturn  # noqa: UP035  (collections.abc.Callable[...] needs Python 3.9)

from harness import wire

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# What to receive at once: a buffer of 1 MiB costs 30 us to get, so not for small messages.
_SMALL, _LARGE = 1 << 16, 1 << 20
_CPUS = os.cpu_count() or 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def serve(settings: dict[str, Any]) -> None:
    """Be the template: import what is asked for, then fork and reap workers until the control socket closes.

    settings: "control" file descriptor of the control socket, "preload" modules to import, "folder" to remove at the
    end, and the "limits" of each worker.
    """
    control = socket.socket(fileno=settings["control"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    isolated = _isolate_network()
    _adopt_orphans()
    # Only while importing: the signal fires when the creating *thread* ends, and afterwards the socket tells.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for name in settings["preload"]:
        getattr(importlib.import_module(name), "preload", _nothing)()
    _LIBC.prctl(PR_SET_PDEATHSIG, 0)
    gc.freeze()
    _flush()
    _say(control, network_isolated=isolated)

    workers: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while _serve_request(control, workers, settings["limits"]):
            pass
    for pid in workers:
        _reap(pid, workers)
    shutil.rmtree(settings["folder"], ignore_errors=True)


def _serve_request(control: socket.socket, workers: set[int], limits: dict[str, int]) -> bool:
    """Fork or reap one worker. False when the parent has gone."""
    request, descriptors = _hear(control)
    if request is None:
        return False
    if "reap" in request:
        workers.remove(request["reap"])
        _say(control, **_reap(request["reap"], workers))
        return True
    pid = os.fork()
    if pid == 0:
        control.close()
        pipe, log = descriptors
        _work(pipe, log, request["fork"], limits)
    workers.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    _say(control, pid=pid, cpu=_cpu_seconds(resource.RUSAGE_SELF))
    return True


def _nothing() -> None:
    """What a module without preload() does when preloaded."""


def _isolate_network() -> bool:
    """Move into a network namespace without any interface that is up. False where the system does not allow that."""
    if _LIBC.unshare(CLONE_NEWNET) == 0:
        return True
    # A child tries first: where the maps are refused, as by Ubuntu's AppArmor, there is no way back.
    child = os.fork()
    if child == 0:
        os._exit(0 if _enter_user_namespace() else 1)
    return os.waitpid(child, 0)[1] == 0 and _enter_user_namespace()


def _enter_user_namespace() -> bool:
    """Move into a network namespace by way of a user namespace, which needs no privilege."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return False
    # Without these maps the process could create no file (EOVERFLOW).
    for name, text in ("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError:
            return False
    return True


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


def _work(pipe: int, log: int, folder: str, limits: dict[str, int]) -> NoReturn:
    """Be a worker: never return into the template."""
    code = 1
    try:
        _confine(log, folder, limits)
        # A number of its own, so that a target closing or writing to small descriptors does not hit it.
        high = fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 256 + int.from_bytes(os.urandom(1), "little"))
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


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _answer(pipe: socket.socket) -> None:
    """Answer calls until the other side hangs up."""
    functions: dict[str, Callable[..., Any]] = {}
    while True:
        message = _receive(pipe)
        if message is None:
            return
        request = wire.decode(message)
        # The parent's own time limit comes first; this one is for a worker whose parent has stopped looking.
        allowed = _cpu_seconds(resource.RUSAGE_SELF) + 1 + 2 * request["seconds"] * _CPUS
        _limit(resource.RLIMIT_CPU, int(allowed))
        reply: dict[str, Any] = {"id": request["id"], "outcome": "ok", "message": "", "value": None}
        try:
            name = request["function"]
            if name not in functions:
                functions[name] = _find(name)
            reply["value"] = wire.encode(functions[name](*request["args"]))
        except MemoryError as e:
            reply.update(outcome="memory", message=f"{type(e).__name__}: {e}")
        except wire.StageError as e:
            reply.update(outcome="error", message=str(e))
        except Exception as e:
            reply.update(outcome="error", message=f"{type(e).__name__}: {e}")
        _flush()
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        reply["cpu"] = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        reply["peak_mib"] = max(usage.ru_maxrss for usage in usages) / 1024
        pipe.sendall(wire.encode(reply))


def _receive(pipe: socket.socket) -> bytearray | None:
    message = bytearray()
    size = None
    while size is None or len(message) < size:
        chunk = pipe.recv(_SMALL if size is None else _LARGE)
        if not chunk:
            return None
        message += chunk
        size = wire.message_size(message)
    return message


def _find(name: str) -> Any:
    """The function that "module:attribute.attribute" names."""
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found


def _cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    _LIBC.fflush(None)
