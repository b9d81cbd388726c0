"""A run retold from its journal: which operators met which verdicts, and when each cause was met first."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from driftnet.campaign.events import Done, Event, Examined, Found
from driftnet.campaign.journal import histories
from driftnet.campaign.summary import Summary
from msgspec import Struct


class Retold(Struct, frozen=True):
    """What a summary does not tell.

    grid    operator -> verdict -> cases that hold it and got that
    first   cause -> the index of the first model that met it
    models  that were examined; indices are handed out in order, so that they stand for the time
    """

    grid: dict[str, dict[str, int]]
    first: dict[str, int]
    models: int


def retold(report: Path, summary: Summary) -> Retold:
    """What the journal of the run in `report` tells, beside its `summary`; of no journal, nothing."""
    events = [event for history in histories(report) for event in history]
    grid: dict[str, Counter[str]] = {}
    for examined in (event for event in events if isinstance(event, Examined)):
        for op in examined.operators:
            grid.setdefault(op, Counter())[examined.verdict.word] += 1
    causes = {entry.id: entry.cause or entry.id for entry in summary.findings}
    models = 1 + max((event.index for event in events if isinstance(event, Done)), default=-1)
    return Retold({op: dict(grid[op]) for op in sorted(grid)}, _first(events, causes), models)


def _first(events: Iterable[Event], causes: dict[str, str]) -> dict[str, int]:
    first: dict[str, int] = {}
    for event in events:
        met = event.known if isinstance(event, Examined) else event.path if isinstance(event, Found) else ""
        if met and isinstance(event, Examined | Found) and (cause := causes.get(Path(met).name)):
            first[cause] = min(event.index, first.get(cause, event.index))
    return first
