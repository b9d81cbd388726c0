"""The machine a case was seen on, as far as it can change what a target computes; and what processes ask of it."""

import contextlib
import ctypes
import functools
import os
import platform
import signal
from multiprocessing import active_children, parent_process
from typing import Any

_FEATURES = (
    *("sse4_1", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_int8", "amx_bf16", "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2"),
)
"""The instruction sets for which onnxruntime, MNN and their like keep kernels of their own."""

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """Names, as Linux prints them, of the instruction sets that choose a kernel; empty where Linux does not say."""
    try:
        with open("/proc/cpuinfo") as f:
            line = next((line for line in f if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        return ()
    present = set(line.split())
    return tuple(name for name in _FEATURES if name in present)


def description() -> dict[str, Any]:
    """What a saved case says of the machine it was seen on."""
    return {"arch": platform.machine(), "cpu_features": list(cpu_features())}


def available_cores() -> int:
    """Cores this process may use: what `--workers auto` stands for."""
    return len(os.sched_getaffinity(0))


def die_with_parent(parent: int | None = None) -> None:
    """Let the kernel kill this process when the thread that started it ends, however that ends.

    parent   the process that started it, where that may have ended already: then this one does now
    """
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended meanwhile
        os.kill(os.getpid(), signal.SIGKILL)


def leave_to_parent() -> None:
    """Let the process that made this one, one of a pool, decide what Ctrl-C and other signals of a terminal or a
    scheduler mean: they come to both. With it this one ends."""
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in held:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
    parent = parent_process()
    die_with_parent(parent.pid if parent else None)  # it may have been killed while this one was starting


def end_pools() -> None:
    """Kill the processes of this one's pools, whatever they do."""
    for process in active_children():
        process.kill()


def give_back_memory() -> None:
    """Let the system have the memory that was freed: glibc keeps up to twice the largest block that it ever freed, so
    that one large case would be paid for to the end of the process. Elsewhere nothing happens."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
