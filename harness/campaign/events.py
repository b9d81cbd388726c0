"""Events: what a campaign tells its listeners. Progress bars, summaries and reports are listeners and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftnet.model.verdict import Verdict
from msgspec import Struct


class Examined(Struct, frozen=True):
    """One case was examined.

    known       the path of the saved case that explains its failure, "" where none does
    confirmed   False: it failed, but not again in fresh processes
    operators   those of the model;   insensitive   no damage could have shown, and no other numbers helped
    cpu         CPU seconds of all processes that it took
    """

    index: int
    target: str
    release: str
    recipe: Mapping[str, Any]
    verdict: Verdict
    known: str = ""
    confirmed: bool = True
    operators: tuple[str, ...] = ()
    insensitive: bool = False
    cpu: float = 0.0


class Found(Struct, frozen=True):
    """A new finding was saved; cpu: what that took beside its examination."""

    index: int
    path: Path
    release: str
    cpu: float = 0.0


class Warned(Struct, frozen=True):
    """Something that concerns the whole run."""

    message: str


class Failed(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="error"):
    """An error: of driftnet itself, with its `trace`, or one that the next case would not mend, of this `kind`."""

    index: int
    message: str
    hint: str | None = None
    kind: str | None = None
    trace: str | None = None


class Done(Struct, frozen=True):
    """All cases of an index are examined."""

    index: int


class Tick(Struct, frozen=True):
    """A few times a second: wall seconds since the beginning, and those that are left."""

    elapsed: float
    left: float


class Ended(Struct, frozen=True):
    """The end, however it came: wall seconds, and the CPU seconds of this process and all it has started."""

    elapsed: float
    cpu: float


Event = Examined | Found | Warned | Failed | Done | Tick | Ended
