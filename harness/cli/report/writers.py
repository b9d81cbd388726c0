"""Files a campaign leaves in its report folder: summary.json and summary.md."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from driftnet.api import Listener
from driftnet.campaign.events import Ended, Event, Tick
from driftnet.campaign.summary import Summary
from driftnet.util.files import json_text, replace_text

EVERY_SECONDS = 10.0


def periodically(folder: Path) -> Listener:
    """A listener that writes the summary into `folder` at the end, and every ten seconds in case the run is killed."""
    due = 0.0

    def update(summary: Summary, event: Event) -> None:
        nonlocal due
        if isinstance(event, Ended) or (isinstance(event, Tick) and event.elapsed >= due):
            due = event.elapsed + EVERY_SECONDS
            write_summary(summary.as_json(), folder)

    return update


def write_summary(result: Mapping[str, Any], folder: Path) -> None:
    """Write summary.json and summary.md, each atomically. Raises UserError (kind "disk")."""
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        resources.files("driftnet.cli.report").joinpath("summary.md").read_text()
    )
    for name, text in (("summary.json", json_text(result, indent=1) + "\n"), ("summary.md", template.render(result))):
        replace_text(folder / name, text)
