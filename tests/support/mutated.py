"""What others may hand in, mutated: models, fields of JSON files, archives of arrays, settings.

Run as a program, it hands mutated models to `check` and mutated cases to `replay`, and counts what came of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from driftnet.findings import corpus
from driftnet.util.files import json_text
from hypothesis import strategies as st
from onnx import TensorProto

NUMBERS = (0, 1, -1, 2, 7, 99, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63), 1.5, float("inf"), -float("inf"))
TEXTS = ("", "\0", "..", "/etc/passwd", "../../x", "x" * 5000, "a\nb", "\ud800", "<b>", "Relu", "ai.onnx", "\x1b[31m")
WEIRD = (*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [None], {"a": 1}, {"": {}})
PIECES = (b"\0", b"\xff", b"\xff" * 9, b"\x80" * 10, b"\x0a\x00", b"\x7f\xff\xff\xff", b"PK\x03\x04", b'"', b"{", b"[")

Path_ = tuple[Any, ...]


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` with a few bytes overwritten, put in, taken out, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed)))
        piece = draw(st.sampled_from(PIECES) | st.binary(min_size=1, max_size=8))
        match draw(st.sampled_from(("overwrite", "put in", "take out", "double", "cut"))):
            case "overwrite":
                changed[at : at + len(piece)] = piece
            case "put in":
                changed[at:at] = piece
            case "take out":
                del changed[at : at + len(piece)]
            case "double":
                changed[at:at] = changed[at : at + 64]
            case "cut":
                del changed[at:]
    return bytes(changed)


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The path of each value inside a JSON value, its own among them."""
    yield path
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(value: Any, path: Path_, new: Any) -> Any:
    """A copy of a JSON value with another value at `path`."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


@st.composite
def refilled(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value in which one value or more are others, of any type."""
    for _ in range(draw(st.integers(1, 2))):
        value = put(value, draw(st.sampled_from(list(places(value)))), draw(st.sampled_from(WEIRD)))
    return value


def messages(message: Any) -> Iterator[Any]:
    """Every protobuf message inside one, itself first."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if _repeated(field) else [value]:
                yield from messages(inner)


def _repeated(field: Any) -> bool:
    return bool(getattr(field, "is_repeated", None) or getattr(field, "label", 0) == 3)


@st.composite
def remodelled(draw: st.DrawFn, data: bytes) -> bytes:
    """A model in which fields have other values, are gone or are there twice, tensors lie in strange files, or names
    are not text."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(draw(st.integers(1, 3))):
        message = draw(st.sampled_from(list(messages(model))))
        fields = message.DESCRIPTOR.fields
        field = draw(st.sampled_from([f for f in fields if f.message_type is None] or list(fields)))
        with contextlib.suppress(ValueError, TypeError, AttributeError, UnicodeError):  # that one takes no such value
            value = draw(st.sampled_from(WEIRD))
            if field.message_type is not None or draw(st.integers(0, 4)) == 0:
                message.ClearField(field.name)
            elif _repeated(field):
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value.encode() if isinstance(value, str) and field.type == 12 else value)
    if model.graph.initializer and draw(st.integers(0, 3)) == 0:
        tensor = draw(st.sampled_from(list(model.graph.initializer)))
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key in ("location", "offset", "length"):
            tensor.external_data.add(key=key, value=draw(st.sampled_from([t for t in TEXTS if t != "\ud800"])))
    changed = bytes(model.SerializeToString())
    if draw(st.integers(0, 4)) == 0:  # no field of text takes these
        changed = changed.replace(draw(st.sampled_from((b"x", b"y", b"Relu", b"w"))), b"\xff")
    return draw(edited(changed)) if draw(st.integers(0, 2)) == 0 else changed


def small_cases(count: int) -> list[corpus.SavedCase]:
    """So many cases of the corpus of onnxruntime-quant and MNN, the same each time."""
    folders = [folder for folder in corpus.folders([corpus.COMMITTED]) if (folder / "case.json").exists()]
    chosen = random.Random(5).sample(folders, count)
    return [corpus.load(folder) for folder in chosen]


def _outcome(words: Sequence[str], seconds: float) -> tuple[str, float, float]:
    """How a command ended, in words, and the CPU seconds and MiB of its own process."""
    code = (
        "import atexit, resource, sys, time\n"
        "from driftnet.cli.main import main\n"
        "tell = lambda: print(f'SELF {time.process_time()} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}',"
        " file=sys.stderr)\n"
        "atexit.register(tell)\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "did not end", seconds, 0.0
    said = done.stderr.decode(errors="replace")
    cpu, kib = next((line.split()[1:] for line in said.splitlines() if line.startswith("SELF ")), ("0", "0"))
    if "Traceback" in said or "error of driftnet itself" in said:
        return f"traceback: {said.strip().splitlines()[-2][:200]}", float(cpu), float(kib) / 1024
    return f"status {done.returncode}", float(cpu), float(kib) / 1024


def attack(what: str, count: int, seed: int, make: Callable[[random.Random, Path], Sequence[str]]) -> bool:
    """Run so many commands on mutated input; print what came of them. Whether none broke down."""
    outcomes, worst = Counter[str](), [0.0, 0.0]
    for k in range(count):
        with tempfile.TemporaryDirectory() as folder:
            words = make(random.Random(f"{seed}/{what}/{k}"), Path(folder))
            outcome, cpu, mib = _outcome(words, 120)
            if not outcome.startswith("status") or cpu > 10 or mib > 1536:
                kept = Path(tempfile.gettempdir(), f"driftnet-{what}-{k}")
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                print(f"{what} {k}: {outcome}, {cpu:.1f} CPU s, {mib:.0f} MiB; see {kept}", flush=True)
        outcomes[outcome] += 1
        worst = [max(worst[0], cpu), max(worst[1], mib)]
    print(
        json.dumps({what: count, "most CPU seconds": worst[0], "most MiB": worst[1], "outcomes": outcomes}), flush=True
    )
    return all(outcome.startswith("status") for outcome in outcomes) and worst[0] <= 10 and worst[1] <= 1536


def drawn(strategy: st.SearchStrategy[Any], rng: random.Random) -> Any:
    """One value of a strategy, that which `rng` stands for."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    found: list[Any] = []
    quiet = settings(
        max_examples=2, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )

    @seeded(rng.getrandbits(64))
    @quiet
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found[-1]  # the first one is the simplest


def main(models: int = 500, cases: int = 500, seed: int = 0) -> int:
    """Print what was tried and what came of it; 0 where nothing broke down."""
    saved = small_cases(40)

    def mutated_model(rng: random.Random, folder: Path) -> Sequence[str]:
        one = rng.choice(saved)
        (folder / "model.onnx").write_bytes(drawn(remodelled(one.case.model), rng))
        return ["check", str(folder / "model.onnx"), "--target", one.target, "--budget", "5", "--timeout", "3"]

    def mutated_case(rng: random.Random, folder: Path) -> Sequence[str]:
        one = rng.choice(saved)
        assert one.path is not None
        shutil.copytree(one.path, folder / one.id)
        file = rng.choice(sorted(path for path in (folder / one.id).rglob("*") if path.is_file()))
        if file.name == "case.json" or rng.random() < 0.5:
            file = folder / one.id / "case.json"
            file.write_bytes(json_text(drawn(refilled(json.loads(file.read_bytes())), rng)).encode(errors="replace"))
        else:
            file.write_bytes(drawn(edited(file.read_bytes()), rng))
        return ["replay", str(folder / one.id), "--runs", "1", "--timeout", "3"]

    begun = time.monotonic()
    right = [attack("models", models, seed, mutated_model), attack("cases", cases, seed, mutated_case)]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU s, process {os.getpid()}")
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
