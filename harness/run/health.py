"""Health of the machine: what it has too little of is no fault of a target.

A full disk, no descriptor left, no memory: every target fails then, again and again, as if it had a bug. So a runner
asks before it begins, and a failure counts only where the machine is well when it has been seen.
"""

import _thread
import contextlib
import errno
import os
import resource
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from driftnet.util.errors import UserError
from driftnet.util.limits import address_space, lacks_memory

SPACE_MIB = 64
"""Free in the folder of the workers: twice what the largest generated case and its artifacts were seen to take."""
INODES = 256
DESCRIPTORS = 64
"""That a process may open beyond those it has: a worker needs about 20, a pool of shards a few each."""
MEMORY_MIB = 256
"""Of the machine, and of the address space that this process may have."""
STARTING_SECONDS = 20.0
"""After which a thread that has not begun never does."""

FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""What a system call says where the machine, or a limit of it, is at fault."""


def check(folder: Path) -> None:
    """Raise UserError (kind "machine") that names what the machine has too little of to run workers in `folder`."""
    if lacks := list(_lacks(folder)):
        raise lacking(lacks)


def lacking(what: Sequence[str]) -> UserError:
    """The error that names what the machine has too little of."""
    return _fault(f"this machine has too little to run targets: {'; '.join(what)}")


def fault(error: BaseException) -> UserError | None:
    """The fault of the machine (kind "machine") that `error` comes from; None where it is one of driftnet."""
    if lacks_memory(error) or "can't start new thread" in str(error):
        return _fault(f"this machine, or a limit of it, has no memory or process left for driftnet itself: {error}")
    if isinstance(error, OSError) and error.errno in FAULTS:
        return _fault(f"this machine, or a limit of it, fails driftnet itself: {error}")
    return None


def _fault(message: str) -> UserError:
    hint = "free it or raise the limit, then run this again"
    return UserError(message, hint=hint, kind="machine")


def _lacks(folder: Path) -> Iterator[str]:
    try:
        disk = os.statvfs(folder)
    except OSError as e:
        yield f"{folder} is gone ({e.strerror})"
        return
    if (free := disk.f_bavail * disk.f_frsize >> 20) < SPACE_MIB:
        yield f"{free} MiB are free in {folder}, {SPACE_MIB} are needed"
    if disk.f_files and disk.f_favail < INODES:
        yield f"{disk.f_favail} files can be made in {folder}, {INODES} are needed"
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        yield "/proc is not there, or has no file descriptor left to be read with"
        return
    if (left := resource.getrlimit(resource.RLIMIT_NOFILE)[0] - used) < DESCRIPTORS:
        yield f"{left} more files can be opened, {DESCRIPTORS} are needed (ulimit -n)"
    if (available := _available_mib()) is not None and available < MEMORY_MIB:
        yield f"{available} MiB of memory are available, {MEMORY_MIB} are needed"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and (left := limit - address_space() >> 20) < MEMORY_MIB:
        yield f"{max(left, 0)} MiB more of address space may be had, {MEMORY_MIB} are needed (ulimit -v)"
        return  # a thread would want its stack
    try:
        _start_thread()
    except (RuntimeError, MemoryError) as e:
        yield f"no process can be started ({e or 'no memory'}; ulimit -u)"


def _start_thread() -> None:
    """Raise RuntimeError where none starts: it counts as a process where these are limited, and costs less.

    threading.Thread would wait for ever for one that has no memory to begin with.
    """
    begun = threading.Lock()
    begun.acquire()
    _thread.start_new_thread(begun.release, ())
    if not begun.acquire(timeout=STARTING_SECONDS):
        raise RuntimeError("a new thread does not begin")


def _available_mib() -> int | None:
    """Memory that could be had, None where Linux does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) >> 10
    return None
