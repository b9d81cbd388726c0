"""Where a heap is damaged, which the crash that comes of it later does not tell.

    python -m driftnet.handover.damage CORPUS [--only IDS]

The reproduction of a case is run under valgrind's memcheck, in the sandbox. The first write out of bounds in code of
the system is the place; where there is none, the first invalid free, or read.
"""

import argparse
import dataclasses
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from driftnet.causes import record
from driftnet.causes.record import CauseRecord
from driftnet.findings import corpus
from driftnet.handover import handover
from driftnet.run.runner import Runner
from driftnet.run.sandbox import held
from driftnet.targets.environments import Installed, resolve, where_seen
from driftnet.util.errors import UserError

SECONDS, MEMORY_GIB = 600.0, 6.0
KEPT = 3
"""Frames that are told, the innermost first."""
WRONG = ("Invalid write", "Invalid free", "Mismatched free", "Invalid read")
"""What memcheck finds, what damages a heap most surely first."""
FRAME = re.compile(r"==\d+==\s+(?:at|by) 0x[0-9A-F]+: (.+?) \((?:in (?P<file>[^)]*)|[^)]*)\)$")


def frames_of(log: str) -> tuple[str, ...]:
    """The frames of the first of the worst errors that memcheck's `log` has in code of the system under test, as
    "module symbol"; () where it has none."""
    found = list(_errors(log))
    return next((frames for wrong in WRONG for what, frames in found if what.startswith(wrong)), ())


def _errors(log: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    what, frames = "", list[str]()
    for line in log.splitlines():
        said = re.sub(r"^==\d+==\s?", "", line)
        if (frame := FRAME.match(line)) and what:
            if "site-packages" in (frame["file"] or ""):
                frames.append(f"{Path(frame['file']).name.partition('.')[0]} {_symbol(frame[1])}")
        elif said and not said.startswith(" "):
            what, frames = said, []
        elif own := held.telling(frames, most=KEPT):  # what follows is where the block came from
            yield what, own
            what, frames = "", []


def _symbol(text: str) -> str:
    """A function without its parameters."""
    return re.sub(r"\(.*", "", text.replace("(anonymous namespace)", "anonymous"))


def damaged_by(folder: Path, installed: Installed, runner: Runner) -> tuple[str, ...]:
    """Where the target damages the heap on the case in `folder`, which has its reproduce.py; () where that was not
    seen. Raises UserError where there is no valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise UserError("valgrind is not on the PATH", hint="install it, or name its folder in PATH", kind="tool")
    script = [installed.python, "-I", str(folder / "reproduce.py"), "--child", str(folder), "0", ""]
    words = ["env", "PYTHONMALLOC=malloc", valgrind, "--error-limit=no", "--num-callers=24", *script]
    return frames_of(runner.output_of(installed.python, folder, words, SECONDS))


def _with_damage(cause: CauseRecord, case: str, frames: tuple[str, ...]) -> CauseRecord:
    """The cause, and what was learned of the case itself, with where the heap is damaged."""
    findings = {
        id: {**said, "place": {**said["place"], "damage": list(frames)}} if id == case else said
        for id, said in cause.findings.items()
    }
    return dataclasses.replace(cause, place=dataclasses.replace(cause.place, damage=frames), findings=findings)


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", nargs="*", default=(), help="the 8 hex digits at the end of names of causes")
    asked = parser.parse_args()
    for path in sorted(asked.corpus.glob(f"*/*/{record.FILE}")):
        cause = record.load(path.parent)
        if cause.place.sort != "heap" or (asked.only and cause.id[-8:] not in asked.only):
            continue
        source = corpus.folders([path.parent])[0]
        with tempfile.TemporaryDirectory() as scratch, Runner(memory_gib=MEMORY_GIB) as runner:
            folder = Path(scratch) / source.name
            shutil.copytree(source, folder)
            installed = resolve(where_seen(cause.target, cause.seen))
            handover.write(folder, installed, runner, seconds=1.0)
            frames = damaged_by(folder, installed, runner)
        print(cause.id, " <- ".join(frames) or "not seen", file=sys.stderr)
        if frames:
            record.update(_with_damage(cause, source.name, frames))


if __name__ == "__main__":
    try:
        main()
    except UserError as e:
        sys.exit(f"{e.message}: {e.hint}")
