"""Live progress: a panel on a terminal, one plain line every ten seconds elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

from driftnet.api import Listener
from driftnet.campaign.events import Event, Failed, Found, Tick, Warned
from driftnet.campaign.summary import Summary, commonest
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

PLAIN_SECONDS = 10.0
SHOWN_FINDINGS = 8


def line(summary: Summary, left: float) -> str:
    """Where a campaign stands, in one line; `left` seconds before its end."""
    rate = summary.cases / summary.wall_seconds if summary.wall_seconds else 0.0
    counts = ", ".join(f"{n} {word}" for word, n in commonest(summary.verdicts).items()) or "starting"
    errors = f", {len(summary.errors)} errors of driftnet" if summary.errors else ""
    until = f", {max(0.0, left):.0f} s left" if math.isfinite(left) else ""
    known = len(summary.findings) - len(summary.new)
    return (
        f"{summary.wall_seconds:.0f} s: {summary.cases} cases, {rate:.1f}/s ({counts}); "
        f"{len(summary.new)} new and {known} known findings{errors}{until}"
    )


@contextlib.contextmanager
def told(console: Console, what: str) -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done on `console` (stderr) while the block runs: always the last thing said
    on a terminal, elsewhere a line every ten seconds."""
    if console.is_terminal:
        with console.status(escape(what)) as status:
            yield lambda text: status.update(escape(f"{what}: {text}"))
        return
    started = said = time.monotonic()

    def tell(text: str) -> None:
        nonlocal said
        if (now := time.monotonic()) - said >= PLAIN_SECONDS:
            said = now
            console.print(f"{now - started:.0f} s: {text}", markup=False)

    yield tell


@contextlib.contextmanager
def shown(console: Console, *, quiet: bool = False) -> Iterator[Listener]:
    """A listener that shows progress on `console` (stderr) while the block runs; when `quiet`, only warnings."""
    if quiet:
        yield _warning(console, lambda summary, event: None)
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield _warning(
                console, lambda s, event: live.update(_panel(s, event.left)) if isinstance(event, Tick) else None
            )
    else:
        yield _warning(console, _plain(console))


def _warning(console: Console, show: Listener) -> Listener:
    """`show`, and every warning in a line of its own: once, though each shard has it."""
    said = set()

    def update(summary: Summary, event: Event) -> None:
        show(summary, event)
        if isinstance(event, Warned) and event not in said:
            said.add(event)
            console.print(f"warning: {event.message}", markup=False)

    return update


def _panel(summary: Summary, left: float) -> Table:
    panel = Table.grid(padding=(0, 2))
    panel.add_row("[bold]driftnet fuzz[/]", line(summary, left))
    for finding in summary.new[-SHOWN_FINDINGS:]:
        panel.add_row("[red]found[/]", finding.id)
    return panel


def _plain(console: Console) -> Listener:
    due = PLAIN_SECONDS

    def update(summary: Summary, event: Event) -> None:
        nonlocal due
        match event:
            case Found():
                console.print(f"found {event.path.name}", markup=False)
            case Failed():
                console.print(f"error of driftnet in case {event.index}: {event.message}", markup=False)
            case Tick() if event.elapsed >= due:
                due += PLAIN_SECONDS
                console.print(line(summary, event.left), markup=False)

    return update
