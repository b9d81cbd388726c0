"""Apart: work that may end its process, or never end, is done by a fork of this one.

    apart(lambda ask: judge(...), seconds=5, mib=1024)     the bytes that it gives, or ExceededError "... (SIGSEGV)"

A fork has all that this process has, so nothing is handed to it; what it gives, and what it asks for meanwhile, are
bytes. It costs some 6 ms of CPU time where this process has 90 MiB, as much as half a generated case; 90 where it has a
GiB. So a process that works on what it has made itself does so `with trusting()`: that is tried in place first, in
narrow limits (`tried`). And what is worth a second try is done `at_risk`, by one such process for all of it.
"""

import contextlib
import faulthandler
import gc
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn, TypeVar

from driftnet.util import limits, spent
from driftnet.util.errors import UserError
from driftnet.util.limits import ExceededError, bounded
from driftnet.util.machine import die_with_parent

T = TypeVar("T")
Message = bytes | bytearray | Sequence[bytes | bytearray | memoryview]
"""Bytes, or pieces of them that are sent from where they lie: joined, the tensors of a large model would be in memory
twice, in a process that has all that its parent has."""
Ask = Callable[[Message], bytearray]
"""What the parent answers."""
QUICK_SECONDS, QUICK_MIB = 0.5, 128
"""What is tried in place may take. Of 934 runs of generated cases none was judged in more than .13 s; and what one call
of numpy, which nothing interrupts, does in so little memory takes a few seconds at most."""
RISKED_SECONDS, RISKED_MIB = 2.0, 512
"""The same of what is at risk: it is lost as a whole, but once, and parts of real models take more."""
HOPELESS_SECONDS = 8.0
"""CPU seconds after which what is tried in place, and never comes back to the interpreter, ends this process."""
PATIENCE = 5.0
IDLE = 0.02
"""How many times its CPU seconds, and one more, a fork may be silent while it uses less than IDLE of them: others may
have the cores."""
LAST_WORDS = 60.0
"""Seconds in which what is at risk is to say what it has, once it was interrupted."""
MOST_SAID = 2**28
"""Bytes of a message."""
_CLOCK = os.sysconf("SC_CLK_TCK")
_HEAD = struct.Struct("<cQ")
_ASKS, _GIVES, _EXCEEDS, _LACKS, _RAISES, _KILLED = b"?", b"+", b">", b"-", b"!", b"x"
_BEGINS, _TELLS, _REFUSES, _STOPS = b"b", b".", b"u", b"^"
_GOES_ON = _BEGINS, _TELLS
_AT_ONCE = 1 << 20  # bytes that are heard
_trusting = False
_quick = QUICK_SECONDS, float(QUICK_MIB)
_used = 0.0


@contextlib.contextmanager
def trusting(yes: bool = True) -> Iterator[None]:
    """Whether what this process works on meanwhile may be tried in it: it can be lost, or does nothing with what others
    say."""
    global _trusting
    before, _trusting = _trusting, yes
    try:
        yield
    finally:
        _trusting = before


def trusts() -> bool:
    """Whether this process is trusting now."""
    return _trusting


def cpu_seconds() -> float:
    """CPU seconds of this process and of its forks for work apart."""
    return time.process_time() + _used


def tried(work: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """What `work` gives in this process, where it is trusted and takes little; else what `otherwise` does."""
    if _trusting:
        outside = resource.getrlimit(resource.RLIMIT_CPU)[0]
        try:
            end = math.ceil(time.process_time() + HOPELESS_SECONDS)
            limits.set_soft(resource.RLIMIT_CPU, end)
            return bounded(work, seconds=_quick[0], mib=_quick[1])
        except ExceededError:
            pass
        finally:
            limits.set_soft(resource.RLIMIT_CPU, outside)
    return otherwise()


def apart(
    work: Callable[[Ask], Message], *, seconds: float, mib: float, answer: Callable[[bytearray], Message] | None = None
) -> bytes:
    """What `work` gives in a fork of this process.

    answer   what this process says to what the fork asks

    Where somebody kills the fork, another one works, once. Raises ExceededError where that takes more CPU `seconds` or
    more memory, ends the fork, or hangs; MemoryError where somebody else grants this process less; RuntimeError with
    the traceback where it raises anything else.
    """
    kind, said = _forked(work, seconds, mib, answer)
    if kind == _KILLED:  # by somebody who knows nothing of the work
        kind, said = _forked(work, seconds, mib, answer)
    if kind == _GIVES:
        return bytes(said)
    if kind == _LACKS:
        raise MemoryError(said.decode(errors="replace"))
    if kind == _RAISES:
        raise RuntimeError(said.decode(errors="replace"))
    raise ExceededError(said.decode(errors="replace"))


def at_risk(work: Callable[[Callable[[str], None]], bytes], tell: Callable[[str], None]) -> bytes | None:
    """What `work` gives in a fork of this process that is trusting; None where that is lost, or where this is no main
    thread, which alone hears of signals: then it is to be done here, apart.

    tell   hears what the fork tells meanwhile

    What interrupts this process, SIGINT or another, interrupts the fork, whose answer is still heard. Raises what
    `work` does if that is a UserError or KeyboardInterrupt, and the latter too where no answer comes in LAST_WORDS
    seconds; RuntimeError with the traceback where it raises anything else.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    parent, hears, early, end = os.getpid(), False, False, math.inf

    def interrupt() -> None:
        nonlocal early, end
        end = min(end, time.monotonic() + LAST_WORDS)
        if hears:
            os.kill(child, signal.SIGINT)
        else:  # a fork that is being made loses signals
            early = True

    ours, theirs = socket.socketpair()
    with ours, theirs, _interrupted_by(interrupt):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                if (child := os.fork()) == 0:
                    _be_at_risk(theirs, work, parent)
            finally:
                if os.getpid() != parent:  # interrupted before it began
                    os._exit(0)
        kind, said = _BEGINS, bytearray()
        try:
            theirs.close()
            while kind in _GOES_ON and time.monotonic() < end:
                if not select.select([ours], [], [], 0.2)[0]:
                    continue
                kind, said = _heard(ours)
                if kind == _TELLS:
                    _told(tell, said.decode(), interrupt)
                hears = True
                if early:
                    early = False
                    os.kill(child, signal.SIGINT)
        except (EOFError, ConnectionError, ExceededError):
            kind = _BEGINS
        finally:
            hears = False  # its id may be another's soon
            _ended(child, within=1.0 if kind in _GOES_ON else 5.0)
    if kind == _REFUSES:
        message, hint, slug = json.loads(said)
        raise UserError(message, hint=hint, kind=slug)
    if kind == _STOPS or (kind in _GOES_ON and end < math.inf):
        raise KeyboardInterrupt
    if kind == _RAISES:
        raise RuntimeError(said.decode(errors="replace"))
    return bytes(said) if kind == _GIVES else None


def _told(tell: Callable[[str], None], text: str, interrupt: Callable[[], None]) -> None:
    try:
        tell(text)
    except KeyboardInterrupt:
        interrupt()


@contextlib.contextmanager
def _interrupted_by(interrupt: Callable[[], None]) -> Iterator[None]:
    """While the block runs, `interrupt` is called in this process where a signal would raise KeyboardInterrupt. In a
    fork SIGINT raises that, and nothing else does: somebody may send it both."""
    parent, before = os.getpid(), dict[int, Callable[[int, FrameType | None], object]]()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != parent and number != signal.SIGINT:
            return
        try:
            before[number](number, frame)
        except KeyboardInterrupt:
            if os.getpid() != parent:
                raise
            interrupt()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(handler := signal.getsignal(number)):
            before[number] = handler
            signal.signal(number, hear)
    try:
        yield
    finally:
        for changed, handler in before.items():
            if signal.getsignal(changed) is hear:  # nobody has changed it since
                signal.signal(changed, handler)


def _be_at_risk(pipe: socket.socket, work: Callable[[Callable[[str], None]], bytes], parent: int) -> NoReturn:
    """Work, say what comes of it, and end."""
    global _quick
    try:
        os.setpgid(0, 0)  # a terminal's Ctrl-C comes by way of the parent alone
        die_with_parent(parent)
        gc.freeze()
        _die_quietly()
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a command that a shell has put in the background
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _quick = RISKED_SECONDS, RISKED_MIB
        try:
            _say(pipe, _BEGINS, b"")
            with trusting():
                said = _GIVES, work(lambda text: _say(pipe, _TELLS, text.encode(errors="replace")))
        except UserError as e:
            said = _REFUSES, json.dumps([e.message, e.hint, e.kind]).encode()
        except KeyboardInterrupt:
            said = _STOPS, b""
        except BaseException:
            said = _RAISES, traceback.format_exc().encode(errors="replace")
        _say(pipe, *said)
    finally:
        os._exit(0)


def _forked(
    work: Callable[[Ask], Message], seconds: float, mib: float, answer: Callable[[bytearray], Message] | None
) -> tuple[bytes, bytes | bytearray]:
    """What a fork says last, its kind first; where it says nothing, how it ended. It is _KILLED where somebody else did
    that before it had used up its time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which the fork needs nothing of
            parent, child = os.getpid(), os.fork()
        if child == 0:
            _be_fork(theirs, work, seconds, mib, parent)
        theirs.close()
        kind, said, patience, before = b"", bytearray(), PATIENCE * (seconds + 1), _used
        try:
            kind, said = _conversation(ours, child, answer, patience)
        except TimeoutError:
            kind, said = _EXCEEDS, bytearray(f"more than {patience:.3g} s".encode())
        except (EOFError, ConnectionError):
            pass
        finally:
            status, by_us = _ended(child, within=0.0 if kind else 1.0)
    if kind:
        return kind, said
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGXCPU:
        return _EXCEEDS, f"more than {seconds:.3g} s of CPU time".encode()
    killed = number == signal.SIGKILL and not by_us and _used - before < seconds
    return _KILLED if killed else _EXCEEDS, f"its process down ({_named(status)})".encode()


def _conversation(
    pipe: socket.socket, child: int, answer: Callable[[bytearray], Message] | None, patience: float
) -> tuple[bytes, bytearray]:
    """The last message of the fork, after its questions; TimeoutError where it is silent, and sleeps, for so long."""
    pipe.settimeout(patience)
    while True:
        used = _cpu_seconds_of(child)
        while not select.select([pipe], [], [], patience)[0]:
            if (now := _cpu_seconds_of(child)) - used < IDLE * patience:
                raise TimeoutError
            used = now
        kind, said = _heard(pipe)
        if kind != _ASKS or answer is None:
            return kind, said
        _send(pipe, _GIVES, answer(said))


def _cpu_seconds_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return sum(map(int, file.read().rpartition(b")")[2].split()[11:13])) / _CLOCK


def _heard(pipe: socket.socket) -> tuple[bytes, bytearray]:
    """The next message: its kind and what it says. Raises EOFError where there is none, ExceededError where it is too
    long."""
    kind, size = _HEAD.unpack(_received(pipe, _HEAD.size))
    if size > MOST_SAID:
        raise ExceededError(f"a message of {size} bytes")
    return kind, _received(pipe, size)


def _received(pipe: socket.socket, size: int) -> bytearray:
    message = bytearray(size)
    with memoryview(message) as rest:
        while rest:
            if not (count := pipe.recv_into(rest, min(len(rest), _AT_ONCE))):
                raise EOFError
            rest = rest[count:]
    return message


def _ended(child: int, within: float) -> tuple[int, bool]:
    """The wait status of a fork that ends `within` so many seconds, or is killed then; and whether it was."""
    global _used
    end, killed = time.monotonic() + within, False
    while not (found := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            found, killed = os.wait4(child, 0), True
            break
        time.sleep(0.001)
    used = found[2].ru_utime + found[2].ru_stime
    _used += used
    spent.elsewhere(used)
    return found[1], killed


def _named(status: int) -> str:
    """How a process ended that has this wait status, in a word."""
    if os.WIFEXITED(status):
        return f"exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _be_fork(pipe: socket.socket, work: Callable[[Ask], Message], seconds: float, mib: float, parent: int) -> NoReturn:
    """Work, say what comes of it, and end."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent decides what they mean
            signal.signal(number, signal.SIG_IGN)
        die_with_parent(parent)
        gc.freeze()  # or it would write to every page that it shares
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)  # an abort says its last words there
        _die_quietly()
        limits.forget()
        most = math.ceil(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))  # at the second it is no SIGXCPU
        _say(pipe, *_outcome(pipe, work, seconds, mib))
    finally:
        os._exit(0)


def _die_quietly() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # as in `driftnet.run.sandbox.inside`
    faulthandler.disable()


def _outcome(pipe: socket.socket, work: Callable[[Ask], Message], seconds: float, mib: float) -> tuple[bytes, Message]:
    def ask(what: Message) -> bytearray:
        _say(pipe, _ASKS, what)
        return _heard(pipe)[1]

    try:
        return _GIVES, bounded(lambda: work(ask), seconds=seconds, mib=mib)
    except ExceededError as e:
        return _EXCEEDS, str(e).encode()
    except MemoryError as e:
        return _LACKS, str(e).encode(errors="replace")
    except BaseException:
        return _RAISES, traceback.format_exc().encode(errors="replace")


def _say(pipe: socket.socket, kind: bytes, said: Message) -> None:
    pipe.settimeout(None)
    _send(pipe, kind, said)


def _send(pipe: socket.socket, kind: bytes, said: Message) -> None:
    pieces = [said] if isinstance(said, (bytes, bytearray)) else said
    pipe.sendall(_HEAD.pack(kind, sum(map(len, pieces))))
    for piece in pieces:
        pipe.sendall(piece)
