"""Targets that never come to an end, each time in another way, or late. They run in the sandbox."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from driftnet.targets.interface import Feed, Option, Options, StageError, Target

from tests.support.deeds import spin_in_c


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def leave_daemons() -> None:
    """Processes that work on in sessions of their own, while this one sleeps."""
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            spin_in_c()
    time.sleep(3600)


def shout() -> None:
    while True:
        os.write(1, b"x" * 65536)


def hear_nothing() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)


DEEDS: dict[str, Callable[[], None]] = {f.__name__: f for f in (spin_in_c, stop, leave_daemons, shout, hear_nothing)}


def convert(model: str, folder: str, options: Options) -> str:
    return model


def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    return artifact


def execute(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    DEEDS[options["deed"]]()
    return []


ENDLESS = Target(
    *("endless", "numpy", convert, quantize, execute),
    options=(Option("deed", "execute", tuple(DEEDS), "how it goes on"),),
)


LATE = 0.6


def fail_late(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Fails after LATE seconds of CPU time."""
    end = time.process_time() + LATE
    while time.process_time() < end:
        pass
    raise StageError("too late")


def fail_after_sleep(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Fails after LATE seconds, whatever else the machine does."""
    time.sleep(LATE)
    raise StageError("too late")


def relu_after_sleep(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """The answer of a Relu after LATE seconds."""
    time.sleep(LATE)
    return [{name: np.maximum(x, 0) for name, x in zip(outputs, feed.values())} for feed in feeds]


DOZING = Target("dozing", "numpy", convert, quantize, fail_after_sleep)
DAWDLING = Target("dawdling", "numpy", convert, quantize, relu_after_sleep)
SLOW = Target("slow", "numpy", convert, quantize, fail_late)


def end_only_whole(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Fails at once on more than one Relu, and goes on for ever on less."""
    with open(artifact, "rb") as file:
        if file.read().count(b"Relu") < 2:
            spin_in_c()
    raise StageError("two of them")


ENDLESS_IN_PARTS = Target("endless-in-parts", "numpy", convert, quantize, end_only_whole)


def end_only_in_parts(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """The answer of one Relu after LATE seconds; on more than one it goes on for ever."""
    with open(artifact, "rb") as file:
        if file.read().count(b"Relu") > 1:
            time.sleep(3600)
    return relu_after_sleep(artifact, feeds, outputs, options)


ENDLESS_WHOLE = Target("endless-whole", "numpy", convert, quantize, end_only_in_parts)
