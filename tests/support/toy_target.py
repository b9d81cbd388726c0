"""Small targets as others may write them: functions in several modules, made by closures, methods of an object."""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from driftnet.targets import interface
from driftnet.targets.interface import Feed, Option, Options, StageError, Target

from tests.support import toy_arrays as arrays
from tests.support.toy_arrays import shifted as moved

LIMIT: int = 100


def check(x: np.ndarray) -> np.ndarray:
    if x.size > LIMIT:
        raise StageError(f"more than {LIMIT} elements")
    return x


def convert(model: str, folder: str, options: Options) -> str:
    """A copy."""
    return shutil.copy(model, Path(folder, "copy.onnx").as_posix())


def keep(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
    return artifact


def execute(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Relu, or what it takes for that."""
    from tests.support.toy_arrays import OFFSETS as known

    results: list[dict[str, np.ndarray]] = []
    for feed in feeds:
        (x,) = feed.values()
        y: np.ndarray = np.maximum(check(x), 0)
        assert arrays.OFFSETS is known
        results.append(dict.fromkeys(outputs, moved(y, options["offset"])))
    return results


OPTIONS_OF_TOY = (Option("offset", "execute", ("none", "one"), "what is added"),)
TOY = Target("toy", "numpy", convert, keep, execute, options=OPTIONS_OF_TOY)


def relu(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    return execute(artifact, feeds, outputs, {"offset": "none"})


MENDED = replace(TOY, execute=relu)


def flawed(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Wrong of three elements too, whatever the offset."""
    (x,) = feeds[0].values()
    return execute(artifact, feeds, outputs, {"offset": "one"} if x.size == 3 else options)


FLAWED = replace(TOY, execute=flawed)


def damaging(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Writes a byte behind a block of the heap, where nothing lies."""
    block = np.empty(2001, np.int8)
    ctypes.memset(block.ctypes.data + block.nbytes, 1, 1)
    raise StageError("refused")


DAMAGES = replace(TOY, execute=damaging)


def damaging_freed(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Writes over the sizes of blocks that it has freed, more than the C library keeps for the next of their size."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = pointer = ctypes.c_void_p
    blocks = [libc.malloc(ctypes.c_size_t(24)) for _ in range(16)]
    for block in blocks:
        libc.free(pointer(block))
    for block in blocks:
        ctypes.memset(block - 8, 1, 8)
    raise StageError("refused")


DAMAGES_FREED = replace(TOY, execute=damaging_freed)


def failing(model: str, folder: str, options: Options) -> str:
    import no_such_system

    return no_such_system.convert(model)


LACKS_ITS_SYSTEM = Target(
    "lacks-its-system", "numpy", failing, keep, execute, options=OPTIONS_OF_TOY, natives=("no_such_system.convert",)
)


def made(suffix: str) -> Any:
    def convert(model: str, folder: str, options: Options) -> str:
        return model + suffix

    return convert


CLOSURE = Target("closure", "numpy", made(""), keep, execute, options=OPTIONS_OF_TOY)
PARTIAL = Target("partial", "numpy", convert, partial(keep), execute, options=OPTIONS_OF_TOY)


def where(model: str, folder: str, options: Options) -> str:
    return str(Path(__file__).with_name("model.onnx"))


ELSEWHERE = Target("elsewhere", "numpy", where, keep, execute, options=OPTIONS_OF_TOY)


def main(artifact: str, calibration: Sequence[Feed], folder: str, options: interface.Options) -> str:
    return artifact


NAMED_ALIKE = Target("named-alike", "numpy", convert, main, execute, options=OPTIONS_OF_TOY)


def whole(model: str, folder: str, options: Options) -> str:
    return str(vars(arrays))


MODULE_AS_A_VALUE = Target("module-as-a-value", "numpy", whole, keep, execute, options=OPTIONS_OF_TOY)


def of_release(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """Relu, as each release of a made-up package has it."""
    from driftnet_toy import release  # type: ignore[import-not-found]

    if release == "0.9":
        raise AttributeError("there is no such function yet")
    if release == "1.0":
        raise StageError("Unsupported model IR version: 9, max supported IR version: 6")
    if release == "1.3":
        raise StageError("it does not work today")
    wrong = 1 if release in ("1.2", "1.4") else 0
    return [dict.fromkeys(outputs, np.maximum(next(iter(feed.values())), 0) + np.float32(wrong)) for feed in feeds]


RELEASED = Target(
    "released",
    "driftnet-toy",
    convert,
    keep,
    of_release,
    outgrown=(interface.Rule("too old", "execute", "Unsupported model IR version", "nowhere"),),
)


def of_opset_17(model: str, folder: str, options: Options) -> str:
    """Refuse what is of a newer opset, as an old release does."""
    import onnx

    (opset,) = onnx.load(model).opset_import
    if opset.version > 17:
        raise StageError(f"opset {opset.version} is too new")
    return model


_TOO_NEW = interface.Rule("too old for the opset", "convert", r"opset \d+ is too new", "nowhere")


def nothing(model: str, folder: str, options: Options) -> str:
    raise StageError("it takes nothing at all")


_TAKES_NOTHING = interface.Rule("anything", "convert", "takes nothing", "nowhere")
REFUSING = replace(TOY, convert=nothing, refusals=(_TAKES_NOTHING,))
NARROW = Target(
    "narrow",
    "numpy",
    convert,
    keep,
    execute,
    options=OPTIONS_OF_TOY,
    profile={"numbers": ("initializer",), "operators": ("Add", "Relu"), "ranks": (2,), "symbolic": False},
)
BURNED = 0.2


def burning(model: str, folder: str, options: Options) -> str:
    """A copy, for BURNED seconds of CPU time."""
    end = time.process_time() + BURNED
    while time.process_time() < end:
        pass
    return convert(model, folder, options)


def as_it_should(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(artifact, providers=["CPUExecutionProvider"])
    return [dict(zip(outputs, session.run([*outputs], dict(feed)))) for feed in feeds]


BURNING = replace(NARROW, name="burning", convert=burning, execute=as_it_should)
YOUNG = Target("toy", "numpy", of_opset_17, keep, execute, options=OPTIONS_OF_TOY, outgrown=(_TOO_NEW,))
AGED = replace(YOUNG, refusals=(_TOO_NEW,))
