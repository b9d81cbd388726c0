"""Progress, live: always the last thing said on a terminal, one line every ten seconds elsewhere; and on the disk."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftnet.campaign.events import Asked, Ended, Event, Failed, Found, LeftOut, Tick, Warned
from driftnet.campaign.summary import Summary, commonest
from driftnet.cli.report import exchange, issues, tables
from driftnet.cli.report.campaign import LONGEST
from driftnet.util import options
from driftnet.util.files import replace_text
from driftnet.util.templates import templates
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from driftnet.api import Listener

EVERY_SECONDS = 10.0


@contextlib.contextmanager
def told(console: Console, what: str) -> Iterator[Callable[[str], None]]:
    """A function that shows on `console` (stderr) what is being done, while the block runs."""
    started = said = time.monotonic()

    def tell(text: str) -> None:
        nonlocal said
        if (now := time.monotonic()) - said >= EVERY_SECONDS:
            said = now
            console.print(f"{now - started:.0f} s: {text}", markup=False)

    if console.is_terminal:
        with console.status(escape(what)) as status:
            yield lambda text: status.update(escape(f"{what}, {time.monotonic() - started:.0f} s: {text}"))
    else:
        yield tell


@contextlib.contextmanager
def shown(console: Console, *, quiet: bool = False) -> Iterator[Listener]:
    """A listener that shows a campaign on `console` (stderr) while the block runs; when `quiet`, only warnings: each
    once, though every shard has it, and one error of driftnet once, though many cases have it."""
    warned, failed = set[Event](), set[str]()
    with contextlib.nullcontext() if quiet else told(console, "driftnet fuzz") as tell:

        def update(summary: Summary, event: Event) -> None:
            match event:
                case Warned() | LeftOut() if event not in warned:
                    warned.add(event)
                    left_out = "; it is left out" if isinstance(event, LeftOut) else ""
                    console.print(f"warning: {event.message}{left_out}", markup=False)
                case Found() if tell:
                    console.print(found(Path(event.path).name), markup=False)
                case Failed() if tell and event.message not in failed:
                    failed.add(event.message)
                    console.print(f"error of driftnet in case {event.index}: {event.message[:LONGEST]}", markup=False)
                case Asked() if tell:
                    tell(f"{event.number} of {event.of} known causes asked again")
                case Tick() if tell:
                    tell(line(summary, event.left))

        yield update


def found(name: str) -> str:
    """What is said of a finding when it comes, of the `name` of its folder: what to call it, and what it is."""
    digits, what = tables.called(name)
    return f"found {digits}: {what}"


def line(summary: Summary, left: float) -> str:
    """Where a campaign stands, in one line; `left` seconds before its end."""
    rate = summary.cases / summary.wall_seconds if summary.wall_seconds else 0.0
    counts = tables.counts(commonest(summary.verdicts)) or "the first model is examined: the larger, the longer"
    errors = f", {len(summary.errors)} errors of driftnet" if summary.errors else ""
    until = f", {max(0.0, left):.0f} s left" if math.isfinite(left) else ""
    known = tables.counted(summary.known_causes, "known cause")
    found = f"{tables.counted(len(summary.new), 'new finding')}, {known}"
    return f"{summary.cases} cases, {rate:.1f}/s ({counts}); {found}{errors}{until}"


def written(folder: Path) -> Listener:
    """A listener that writes the summary for people into `folder` at the end, and every ten seconds in case the run is
    killed; at the end the same for other programs, too, and what to say of a night's causes."""
    due = 0.0

    def update(summary: Summary, event: Event) -> None:
        nonlocal due
        if isinstance(event, Ended) or (isinstance(event, Tick) and event.elapsed >= due):
            due = event.elapsed + EVERY_SECONDS
            write(summary.as_json(), folder)
        if isinstance(event, Ended):
            exchange.write(summary, folder)
            if summary.night:
                issues.write(summary.night, summary.findings, folder / issues.FOLDER)

    return update


def write(result: Mapping[str, Any], folder: Path) -> None:
    """Write summary.md atomically. Raises UserError (kind "disk")."""
    template = templates("driftnet.cli.report").get_template("summary.md")
    replace_text(
        folder / "summary.md", template.render({**result, "impact": tables.impact, "written": options.written})
    )
