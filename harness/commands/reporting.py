"""What runs found and what is saved, for the HTML pages that tell of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from driftnet.campaign.summary import Entry, Summary, described
from driftnet.causes.impact import ranked
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.names import located
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder
from driftnet.util.records import read


def report(paths: Sequence[Path] = (Path("corpus"),), *, out: Path) -> dict[str, Any]:
    """Every saved case at or below `paths` (folders of runs, of the corpus, of a check), and what the runs counted.

    The pages about them belong into `out`, which is made. Raises UserError when it cannot be, when there is no such
    path, and when a case or summary is not whole.
    """
    make_folder(out)
    paths = [located(path) for path in paths]
    found = [corpus.load(folder) for folder in corpus.folders(paths)]
    told = [
        (saved, described(saved, saved.seen[-1] if saved.seen else "", saved.status))
        for saved in {saved.id: saved for saved in found}.values()
    ]
    return {
        "runs": [_run(path / "summary.json") for path in paths if (path / "summary.json").exists()],
        "cases": [_reported(saved, entry) for saved, entry in ranked(told, lambda pair: pair[1].standing)],
    }


def _reported(saved: SavedCase, entry: Entry) -> dict[str, Any]:
    title = saved.cause.title if saved.cause else saved.note or saved.verdict.message or saved.id
    return {**msgspec.to_builtins(entry), "what": saved.note or saved.verdict.message or saved.id, "title": title}


def _run(path: Path) -> dict[str, Any]:
    try:
        summary = read(json.loads(path.read_text(encoding="utf-8")), Summary, "summary")
    except (OSError, ValueError) as e:
        raise UserError(
            f"{path} is no summary of a run: {e}", hint="name the folder of a driftnet fuzz run", kind="report"
        ) from e
    return {
        "path": str(path.parent),
        "cases": summary.cases,
        "verdicts": summary.verdicts,
        "new": len(summary.new),
        "known": len(summary.findings) - len(summary.new),
        "cpu_seconds": summary.cpu_seconds,
    }
