"""Limits: what work on data that nobody vouches for may take in this process. What takes more is given up, by name.

    bounded(lambda: judge(...), seconds=8, mib=1024)      the result, or ExceededError "more than 8 s of CPU time"

Time is CPU time of the process: SIGPROF comes when it is over, and the interpreter raises between two of its steps (the
engine of `re` asks in between, too). One call of numpy is not interrupted, so what a single one may cost is said where
it is called. Memory is address space beyond what there was; an allocation above it fails as it does on a small machine.
"""

import resource
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, EncodeError

T = TypeVar("T")
_AGAIN = 0.2  # CPU seconds after which it is raised again, where somebody swallowed it
_PAGE = resource.getpagesize()


class ExceededError(Exception):
    """A limit was exceeded; the message names it: "more than 1024 MiB of memory"."""


class _OverdueError(BaseException):
    """The time is over. No `except Exception` on the way is meant."""


_running = False
_outside = resource.RLIM_INFINITY  # address space that this process may have beside such work
_needed = 0  # address space that the work was to have


def bounded(work: Callable[[], T], *, seconds: float, mib: float) -> T:
    """What `work` gives. Raises ExceededError where that takes more CPU `seconds`, more memory or deeper nesting.

    Inside another bounded work the limits of that hold; in a thread that is not the main one, time has none. Where
    somebody else grants this process less memory than `mib`, it raises MemoryError.
    """
    if _running:
        return work()
    try:
        try:
            _begin(seconds, mib)
            return work()
        finally:
            _end()
    except _OverdueError:
        _end()  # it may have come in the very moment of the end
        raise ExceededError(f"more than {seconds:.3g} s of CPU time") from None
    except (MemoryError, EncodeError, DecodeError) as e:
        if not lacks_memory(e):
            raise
        if _is_less(_granted(), _needed):
            raise MemoryError(str(e)) from None
        raise ExceededError(f"more than {mib:.0f} MiB of memory") from None
    except RecursionError:
        raise ExceededError("deeper nesting than an interpreter follows") from None


def lacks_memory(error: BaseException) -> bool:
    """Whether `error` is how Python, numpy or protobuf say that no memory was left.

    Protobuf has no type for that. Nothing else keeps a model from being encoded: ONNX requires no field, and models of
    2 GiB are never made (`driftnet.model.external_data`).
    """
    if isinstance(error, DecodeError):
        return "alloc" in str(error)  # "Error parsing message with type 'onnx.ModelProto': Arena alloc failed"
    return isinstance(error, (MemoryError, EncodeError))


def set_soft(which: int, value: int) -> None:
    """Set the soft limit `which` of this process, or as much of it as the hard one allows: somebody outside may have
    lowered that at any time."""
    most = resource.getrlimit(which)[1]
    resource.setrlimit(which, (value if _is_less(value, most) else most, most))


def address_space() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(64).split()[0]) * _PAGE


def _granted() -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def _is_less(limit: int, other: int) -> bool:
    return limit != resource.RLIM_INFINITY and (other == resource.RLIM_INFINITY or limit < other)


def _begin(seconds: float, mib: float) -> None:
    global _running, _outside, _needed
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPROF, _overdue)  # and never back: one that comes late would end the process
        signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
    _outside, _needed = _granted(), address_space() + int(mib * 2**20)
    _running = True
    set_soft(resource.RLIMIT_AS, _outside if _is_less(_outside, _needed) else _needed)


def _end() -> None:
    global _running
    if _running:
        _running = False
        set_soft(resource.RLIMIT_AS, _outside)
    if threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_PROF, 0)


def _overdue(number: int, frame: Any) -> None:
    if _running:
        raise _OverdueError


def forget() -> None:
    """In a fork: no limit of what its parent was about holds any more."""
    _end()
