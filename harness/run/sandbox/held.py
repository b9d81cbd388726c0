"""Held crashes: a process that would have died sleeps instead, and its stack is read from outside.

In a worker that holds its crashes the handler of every signal in `FATAL` is `pause` of the C library (`inside`). A
thread that crashes then blocks that signal and sleeps in its handler, for good. Nothing runs in the broken process, and
no symbols are needed in it: who looks from outside finds the instruction in the frame that the kernel left on the stack
(some microseconds), and may have the whole stack unwound (.1 to .2 CPU s, by pystack).
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import struct
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
from driftnet.run.sandbox.inside import FATAL
from driftnet.util import files

_CODE = struct.Struct("<512Q")
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
STACKS, MOST_KEPT = "stacks-1", 2**20
"""The file, of the format 1, in which stacks are remembered, and bytes after which it begins anew."""
_KNOWN: dict[tuple[str, ...], tuple[str, ...]] = {}


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

    An offset holds within one build of the module. Empty where the stack cannot be read. Frames of handlers are left
    out. Stacks with the same instruction on top, in code of the target's own, are unwound once in this process. (With
    what lies below it on the stack, some of it left from earlier calls, .4 of the CPU time in which a trigger was
    learned went into unwinding alike ones.)
    """
    trail = tuple(_trail(held))
    key = trail if trail and _says_nothing(trail[0]) else trail[:1]
    if all(map(_says_nothing, key)):  # any process may crash in `abort`
        return tuple(_unwound(held))
    known = _KNOWN.get(key)
    if known is None:
        build = _build(held.pid, key)
        known = _remembered().get(build, ())
        if not known:
            known = tuple(_unwound(held))
            if not known and not key[0]:  # from a jump to nowhere there is no way back for an unwinder
                known = key[1:]
            if known and build:
                _remember(build, known)
        if known:
            _KNOWN[key] = known
    return known


def _build(pid: int, key: Sequence[str]) -> str:
    """The instructions of a key with what tells the builds of their modules from others, "" where nothing does: in
    those, what was unwound once on this machine is so for good."""
    modules = {place.partition("+")[0] for place in key if place}
    try:
        with open(f"/proc/{pid}/maps") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
        found = [os.stat(path) for path in sorted(paths) if short(os.path.basename(path)) in modules]
    except OSError:
        return ""
    return " ".join([*key, *(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in found)])


@cache
def _remembered() -> Mapping[str, tuple[str, ...]]:
    """What processes of this user have unwound, by `_build`."""
    found: dict[str, tuple[str, ...]] = {}
    with contextlib.suppress(OSError):
        for line in (files.cache() / STACKS).read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):  # of a process that was killed, or of two at once
                found.update([msgspec.json.decode(line, type=tuple[str, tuple[str, ...]])])
    return found


def _remember(build: str, frames: Sequence[str]) -> None:
    kept = files.cache() / STACKS
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with open(kept, "ab") as file:
            if file.tell() > MOST_KEPT:
                file.truncate(0)
            file.write(msgspec.json.encode((build, frames)) + b"\n")


def _says_nothing(place: str) -> bool:
    return not place or SYSTEM.match(place) is not None


def telling(frames: Sequence[str], *, most: int = 3) -> tuple[str, ...]:
    """The first frames that name code of the system under test: without C library, wrappers of the standard library,
    and Python."""
    kept = []
    for frame in frames:
        module, _, symbol = frame.partition(" ")
        if not SYSTEM.match(module) and not _STANDARD.search(symbol):
            kept.append(frame)
    return tuple(kept[:most])


def _trail(held: Held) -> Iterator[str]:
    """The instruction that crashed, and what looks like the addresses it would have returned to; nothing where this
    machine's frames are not known."""
    if platform.machine() != "x86_64":
        return
    try:
        with open(f"/proc/{held.pid}/task/{held.thread}/syscall") as file:
            top = int(file.read().split()[-2], 16)
        memory = os.open(f"/proc/{held.pid}/mem", os.O_RDONLY)
    except (OSError, ValueError, IndexError):
        return
    try:
        maps = _maps(held.pid)
        crashed = _crashed(os.pread(memory, _HANDLER + 256, top), top, maps)
        if crashed is None:
            return
        pointer, instruction = crashed
        yield _place(instruction, maps)
        words = _CODE.unpack(os.pread(memory, _CODE.size, pointer))
    except (OSError, OverflowError, struct.error):  # a stack pointer may be anything by then
        return
    finally:
        os.close(memory)
    own = [place for word in words if (place := _place(word, maps)) and not SYSTEM.match(place)]
    yield from own[:3]


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


def _unwound(held: Held) -> Iterator[str]:
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
    maps = _maps(held.pid)
    crashed = False
    for frame in reversed(frames):  # innermost last
        if crashed:
            module = short(os.path.basename(frame.library))
            named = frame.symbol and frame.symbol != "???"
            yield f"{module} {without_arguments(frame.symbol)}" if named else _place(frame.address, maps) or module
        crashed = crashed or "restore_rt" in frame.symbol or "sigreturn" in frame.symbol


Maps = Sequence[tuple[int, int, int, str]]
"""(first address, end, offset of the first in its file, module), in the order of addresses"""


def _maps(pid: int) -> Maps:
    """All that `pid` may execute."""
    found = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as file:
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
