"""Events: what a campaign tells its listeners. Progress bars, summaries and reports are listeners and nothing more.

Each is a line of the journal too, with its name as "event".
"""

from collections.abc import Mapping
from typing import Any

from driftnet.model.verdict import Verdict
from msgspec import Struct

Drawn = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The forms of operators in a graph (`driftnet.campaign.coverage`): operator -> trait -> values."""


class Begun(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="begun"):
    """A run begins, or goes on. cases: those that stood in its folder of cases before. given: the models whose
    neighbours it draws, None where a journal of an older time does not say."""

    seed: int
    cases: tuple[str, ...] = ()
    given: tuple[str, ...] | None = None


class Asked(Struct, frozen=True, tag_field="event", tag="asked"):
    """A known cause was asked again before a night's graphs, as the `number`-th `of` so many: what a release does."""

    cause: str
    release: str
    outcome: str
    number: int
    of: int


class Examined(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="examined"):
    """One case was examined.

    known       the path of the saved case that explains its failure, "" where none does
    confirmed   False: it failed, but not again in fresh processes;   once   how;   again   how many did not
    graph       which of those of its index it has, counted from 0
    unexplained   it failed, and nobody knows whether that is known: its effort was spent before
    operators   those of the model;   insensitive   no damage could have shown, and no other numbers helped
    recognized  what is known by trigger or place, without a run;   verified   it was examined all the same
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
    recognized: bool = False
    verified: bool = False
    cpu: float = 0.0
    once: Verdict | None = None
    again: int = 0
    unexplained: bool = False
    graph: int = 0

    @property
    def mistaken(self) -> bool:
        """Whether what it was recognized as turned out not to explain it."""
        return self.verified and self.confirmed and not self.known


class Found(Struct, frozen=True, tag_field="event", tag="found"):
    """A new finding was saved; cpu: what that took beside its examination."""

    index: int
    path: str
    release: str
    cpu: float = 0.0


class Learned(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="learned"):
    """What was found earlier has its cause now. known: the path of the known case with which it shares that, "" where
    it is one of its own; cpu: what that took."""

    case: str
    cpu: float
    known: str = ""


class Warned(Struct, frozen=True, tag_field="event", tag="warned"):
    """Something that concerns the whole run."""

    message: str


class LeftOut(Struct, frozen=True, tag_field="event", tag="left-out"):
    """A saved case that is not whole counts for nothing in this run, which ends with an error for it."""

    message: str
    hint: str


class Failed(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="error"):
    """An error: of driftnet itself, with its `trace`, or one that the next case would not mend, of this `kind`."""

    index: int
    message: str
    hint: str | None = None
    kind: str | None = None
    trace: str | None = None


class Done(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="done"):
    """All cases of an index are examined.

    graphs   what was in the graphs that these have
    sought   what the first was drawn for, if anything: target, operator, trait, value (`driftnet.campaign.gaps`)
    cpu      CPU seconds since another index was done, "why: what" (`driftnet.util.spent`)
    """

    index: int
    graphs: tuple[Drawn, ...] = ()
    sought: tuple[str, str, str, str] | None = None
    cpu: Mapping[str, float] = {}


class Tick(Struct, frozen=True, tag_field="event", tag="tick"):
    """A few times a second: wall seconds since the beginning, and those that are left."""

    elapsed: float
    left: float


class Ended(Struct, frozen=True, omit_defaults=True, tag_field="event", tag="ended"):
    """The end, however it came: wall seconds, and the CPU seconds of this process and all it has started.

    interrupted   somebody ended it before its time
    """

    elapsed: float
    cpu: float
    interrupted: bool = False


Event = Begun | Asked | Examined | Found | Learned | Warned | LeftOut | Failed | Done | Tick | Ended
