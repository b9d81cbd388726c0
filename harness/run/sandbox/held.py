"""Held crashes: a process that would have died sleeps instead, and its stack is read from outside.

In a worker that holds its crashes the handler of every signal in `FATAL` is `pause` of the C library (`inside`). A
thread that crashes then blocks that signal and sleeps in its handler, for good. Nothing runs in the broken process, and
no symbols are needed in it: who looks from outside finds the instruction in the frame that the kernel left on the stack
(some microseconds), and may have the whole stack unwound (.1 to .2 CPU s, by pystack).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
from driftnet.run.sandbox.inside import FATAL
from driftnet.util import files
from msgspec import Struct
from msgspec.structs import replace

_NEXT, _MOST = 512, 2**16
"""Words of a stack among which return addresses are guessed, and bytes of it that are read."""
_LEAST = 2**16
"""Linux maps nothing below: what runs there has jumped by a null pointer."""
_X86_64 = (168, 176)
"""Where above its top the stack of a handler holds the stack pointer and the instruction pointer of what crashed:
a return address, then a ucontext whose registers begin after 40 bytes, these two the 16th and 17th."""

SYSTEM = re.compile(
    r"(ld-linux|libc|libm|libpthread|libstdc\+\+|libgcc_s|libffi|libc_malloc_debug|\[vdso)(\W|$)|(lib)?python"
)
"""Modules whose frames say nothing of the system under test."""

_STANDARD = re.compile(r"(^|\w )(std::|__gnu_cxx::|operator new|operator delete|_?Py[A-Z_]|_PyEval|__)")
_HANDLER, _NEAR = 512, 2**16
"""Bytes of stack that `pause` may use, and that may lie between it and what crashed."""
_TRIES = 5  # a thread that ends meanwhile cannot be looked at
TOLD = 3
"""Frames of the system under test by which a crash is told."""
_START, _BUILD_ID = 2**16, b"\x14\0\0\0\3\0\0\0GNU\0"
"""Bytes at the beginning of a module, where linkers write its build ID, and how the note of one (of SHA-1) begins."""
STACKS, MOST_KEPT = "stacks-3", 2**20
"""The file, of the format 3, in which stacks are remembered, and bytes after which it begins anew."""


@dataclass(frozen=True)
class Held:
    """A thread of a process that sleeps in the handler of a fatal signal."""

    pid: int
    thread: int
    signal: int


def find(pids: Iterable[int]) -> Held | None:
    """A thread of one of these processes that has crashed and is held."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{name}/status") as file:
                    blocked = next((int(line[7:], 16) for line in file if line.startswith("SigBlk:")), 0)
                handled = [number for number in FATAL if blocked >> (number - 1) & 1]
                if len(handled) == 1:  # a thread that starts another one blocks them all for a moment
                    return Held(pid, int(name), handled[0])
    return None


def stack(held: Held) -> tuple[str, ...]:
    """The frames of the crash, innermost first, as "module symbol", or "module+0x12ab" where there is no symbol.

    An offset holds within one build of the module. They end with the last of which `telling` says. Empty where the
    stack cannot be read. Frames of handlers are left out. A stack that was unwound once on this machine is known again
    by its return addresses, each where it was; unwinding is .4 of the CPU time in which a trigger is learned.
    """
    maps = _maps(held.pid)
    instruction, words = _raw(held, maps) or (0, ())
    place = _place(instruction, maps)
    for known in _remembered().get(place, ()):
        if known.is_at(words, maps) and known.builds == _builds(held.pid, known.places):
            return known.frames
    nowhere = words and instruction < _LEAST  # from there is no way back for an unwinder, which takes 60 ms to say so
    unwound = [] if nowhere else _until_told(_unwound(held, maps))
    frames = tuple([name for _, name in unwound])
    if not frames and not place:
        return tuple([own for word in words[:_NEXT] if (own := _place(word, maps)) and not SYSTEM.match(own)][:TOLD])
    addresses = dict.fromkeys(address for address, _ in unwound)
    marks = [(at, _place(word, maps)) for at, word in enumerate(words) if word in addresses]
    found = _Stack(place, tuple(marks), "", frames)
    if place and {_place(address, maps) for address in addresses} == {*found.places}:
        _remember(replace(found, builds=_builds(held.pid, found.places)))
    return frames


class _Stack(Struct, frozen=True, array_like=True):
    """A stack that was unwound: what crashed, where on it (in words, above its top) the return addresses of its frames
    stand, and what tells the builds of their modules from others."""

    instruction: str
    marks: tuple[tuple[int, str], ...]
    builds: str
    frames: tuple[str, ...]

    @property
    def places(self) -> frozenset[str]:
        """Of the instruction, and of all that is returned to."""
        return frozenset((self.instruction, *(place for _, place in self.marks)))

    def is_at(self, words: Sequence[int], maps: Maps) -> bool:
        """Whether these words are of such a stack."""
        return all(at < len(words) and _place(words[at], maps) == place for at, place in self.marks)


def _builds(pid: int, places: Iterable[str]) -> str:
    """What tells the builds of these places' modules from others, "" where one of them is not found."""
    modules = {place.rpartition("+")[0] for place in places}
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
        found = sorted({(short(name), path) for path in paths if short(name := os.path.basename(path)) in modules})
        builds = [f"{name}:{_build(path)}" for name, path in found]
    except OSError:
        return ""
    return " ".join(builds) if modules == {name for name, _ in found} else ""


def _build(path: str) -> str:
    """What tells a build of a module from others, the same wherever and whenever it was installed: its size and what it
    holds. Raises OSError."""
    now = os.stat(path)
    return f"{now.st_size}:{_content(path, now.st_size, now.st_mtime_ns)}"


@cache
def _content(path: str, size: int, changed: int) -> str:
    """A hash of the first bytes of a module where they hold the build ID that a linker wrote, or else of all of them,
    made once as long as size and time of change are these. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a target may have put a pipe in its place
    try:
        hashed = hashlib.sha256(start := os.pread(file, _START, 0))
        at = len(start)
        while _BUILD_ID not in start and (more := os.pread(file, 2**20, at)):
            hashed.update(more)
            at += len(more)
        return hashed.hexdigest()[:16]
    finally:
        os.close(file)


@cache
def _remembered() -> dict[str, list[_Stack]]:
    """What processes of this user have unwound, by the instruction that crashed."""
    found: dict[str, list[_Stack]] = {}
    with contextlib.suppress(OSError):
        for line in (files.cache() / STACKS).read_bytes().splitlines():
            # Of a process that was killed, or of two at once.
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                known = msgspec.json.decode(line, type=_Stack)
                found.setdefault(known.instruction, []).append(known)
    return found


def _remember(found: _Stack) -> None:
    if not found.builds:
        return
    _remembered().setdefault(found.instruction, []).append(found)
    kept = files.cache() / STACKS
    with contextlib.suppress(OSError, UnicodeEncodeError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with open(kept, "ab") as file:
            if file.tell() > MOST_KEPT:
                file.truncate(0)
            file.write(msgspec.json.encode(found) + b"\n")


def telling(frames: Sequence[str], *, most: int = TOLD) -> tuple[str, ...]:
    """The first frames that name code of the system under test: without C library, wrappers of the standard library,
    and Python."""
    kept = []
    for frame in frames:
        module, _, symbol = frame.partition(" ")
        if not SYSTEM.match(module) and not _STANDARD.search(symbol):
            kept.append(frame)
    return tuple(kept[:most])


def _until_told(frames: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first of them, until `TOLD` are telling."""
    kept: list[tuple[int, str]] = []
    for frame in frames:
        kept.append(frame)
        if len(telling([name for _, name in kept])) == TOLD:
            break
    return kept


def _raw(held: Held, maps: Maps) -> tuple[int, Sequence[int]] | None:
    """The instruction that crashed, and the words above the top of its stack; None where this machine's frames are not
    known."""
    if platform.machine() != "x86_64":
        return None
    try:
        with open(f"/proc/{held.pid}/task/{held.thread}/syscall") as file:
            top = int(file.read().split()[-2], 16)
        memory = os.open(f"/proc/{held.pid}/mem", os.O_RDONLY)
    except (OSError, ValueError, IndexError):
        return None
    try:
        crashed = _crashed(os.pread(memory, _HANDLER + 256, top), top, maps)
        if crashed is None:
            return None
        pointer, instruction = crashed
        try:
            words = os.pread(memory, _MOST, pointer)
        except (OSError, OverflowError):  # a stack pointer may be anything by then
            return instruction, ()
        return instruction, memoryview(words[: len(words) // 8 * 8]).cast("Q")
    except OSError:
        return None
    finally:
        os.close(memory)


def _crashed(stack: bytes, top: int, maps: Maps) -> tuple[int, int] | None:
    """Stack and instruction pointer of what crashed, by the frame that the kernel left. Where there are several threads
    `pause` has called something that sleeps in its place, so the frame begins somewhat above the top."""
    for start in range(0, min(_HANDLER, len(stack) - 256), 8):
        returns, pointer, instruction = (
            int.from_bytes(stack[at : at + 8], "little") for at in (start, *(start + at for at in _X86_64))
        )
        if 0 < pointer - top < _NEAR and _place(returns, maps).startswith("libc"):
            return pointer, instruction
    return None


def _unwound(held: Held, maps: Maps) -> Iterator[tuple[int, str]]:
    """Address and name of each frame, innermost first."""
    # Imported here: other interpreters, and machines without a wheel of it, have no pystack.
    try:
        from pystack.engine import NativeReportingMode, get_process_threads
    except ImportError:
        return
    threads = []
    for _ in range(_TRIES):
        with contextlib.suppress(Exception):  # what it raises for a process whose memory is damaged is nowhere said
            threads = list(get_process_threads(held.pid, native_mode=NativeReportingMode.ALL))
            break
    frames = next((thread.native_frames for thread in threads if thread.tid == held.thread), [])
    crashed = False
    for frame in reversed(frames):  # innermost last
        if crashed:
            module = short(os.path.basename(frame.library))
            named = frame.symbol and frame.symbol != "???"
            name = f"{module} {without_arguments(frame.symbol)}" if named else _place(frame.address, maps) or module
            yield frame.address, name
        crashed = crashed or "restore_rt" in frame.symbol or "sigreturn" in frame.symbol


Maps = Sequence[tuple[int, int, int, str]]
"""(first address, end, offset of the first in its file, module), in the order of addresses"""


def _maps(pid: int) -> Maps:
    """All that `pid` may execute."""
    found = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
        for line in file:
            span, rights, offset, _, _, *path = line.split(maxsplit=5)
            if "x" in rights and path and path[0].startswith("/"):
                first, _, end = span.partition("-")
                found.append((int(first, 16), int(end, 16), int(offset, 16), short(os.path.basename(path[0].strip()))))
    return found


def _place(address: int, maps: Maps) -> str:
    for first, end, offset, module in maps[max(0, bisect(maps, (address, math.inf)) - 1) :][:1]:
        if first <= address < end:
            return f"{module}+{address - first + offset:#x}"
    return ""


@cache
def short(module: str) -> str:
    """The name of a module without what depends on interpreter and release: _tools for _tools.cpython-311.so."""
    return re.sub(r"(\.cpython-[\w-]+|\.abi3)?\.so[\d.]*$", "", module)


@cache
def without_arguments(symbol: str) -> str:
    """A C++ name without the arguments of function and templates; those of lambdas keep their number."""
    depth, kept = 0, []
    symbol = re.sub(r"operator\(\)", "operator_call", symbol)
    symbol = re.sub(r"operator([<>]+)", lambda m: "operator_" + str(len(m[1])), symbol)
    symbol = symbol.replace("(anonymous namespace)", "{anonymous}")
    for letter in symbol:
        depth += letter in "(<"
        if depth == 0:
            kept.append(letter)
        depth -= letter in ")>" and depth > 0
    return " ".join("".join(kept).replace("operator_call", "operator()").split())
