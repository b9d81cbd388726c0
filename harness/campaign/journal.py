"""Journal: what happened in a run, one line of JSON an event, written before anybody is told of it.

    REPORT/journal/<when>-<process>.jsonl     written by one process alone, so that none waits for another

The journal and the folder of its cases are all that a run needs to be gone on with: the summary is derived from them
(`driftnet.campaign.summary.derived`). A process may be killed between any two bytes that it writes. So a line without
its end is none, and what was begun and has no `Done` is to be done again.
"""

import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from driftnet.campaign.events import Done, Event, Examined
from driftnet.util.errors import UserError
from driftnet.util.files import disk_error, json_number, json_text, make_folder, remedy
from driftnet.util.records import read

FOLDER = "journal"
REPORT = (FOLDER, "missed", "issues", "summary.json", "summary.md", "findings.sarif", "junit.xml", "annotations.txt")
"""What a run writes into its report folder beside its cases."""


class Journal:
    """The file of this process in the journal of the run whose report folder is `report`.

    pause   seconds for which nobody waits for the disk at the end of an index; a machine that loses its power costs
            what was examined in them
    """

    def __init__(self, report: Path, pause: float = 0.0) -> None:
        self._pause, self._waited = pause, -math.inf
        self.path = report / FOLDER / f"{time.time_ns()}-{os.getpid()}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as e:
            raise disk_error(self.path, e) from e

    def write(self, event: Event) -> None:
        """Write an event, and wait until it is on the disk with those before it. Nobody waits for a case: it is
        examined again where the `Done` of its index is not there. Raises UserError (kind "disk")."""
        told = msgspec.to_builtins(event, enc_hook=float)  # a bound may be a Tolerance, a float with its evidence
        line = json_text(told) + "\n"
        try:
            os.write(self._file, line.encode())
            paused = isinstance(event, Done) and time.monotonic() < self._waited + self._pause
            if not paused and not isinstance(event, Examined):
                os.fsync(self._file)
                self._waited = time.monotonic()
        except OSError as e:
            raise disk_error(self.path, e) from e


def histories(report: Path) -> list[list[Event]]:
    """What each process that has worked on the run wrote, the oldest first; lines that are not whole are left out."""
    return [list(_events(path)) for path in sorted((report / FOLDER).glob("*.jsonl"))]


def settled(histories_: Iterable[Iterable[Event]]) -> Iterator[Event]:
    """The events of all processes, each index once: without the cases of one that its process did not finish, for they
    are examined again, and without those of one that was examined again because its process died in telling of it."""
    done: set[int] = set()
    for history in histories_:
        examined: list[Examined] = []
        for event in history:
            if isinstance(event, Examined):
                examined.append(event)
            elif not isinstance(event, Done):
                yield event
            else:
                if event.index not in done:
                    yield from (case for case in examined if case.index == event.index)
                    yield event
                done.add(event.index)
                examined = []


def put_aside(report: Path) -> Path | None:
    """Move what an earlier run told in the same folder into one of its own below that, which is returned; the cases
    that it found stay, and are known. Raises UserError (kind "disk")."""
    told = [path for path in map(report.joinpath, REPORT) if path.exists()]
    if not told:
        return None
    aside = next(path for k in itertools.count(1) if not (path := report / f"earlier-{k}").exists())
    make_folder(aside)
    try:
        for path in told:
            path.rename(aside / path.name)
    except OSError as e:
        raise disk_error(aside, e) from e
    return aside


def _events(path: Path) -> Iterator[Event]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as e:
        raise UserError(f"cannot read {path}: {e.strerror}", hint=remedy(e), kind="disk") from e
    for line in lines:
        try:
            value = json.loads(line, parse_float=json_number)
            event: Event = read(value, Event, "event")  # type: ignore[arg-type]
        except (ValueError, RecursionError):  # cut off by the death of its writer
            continue
        yield event
