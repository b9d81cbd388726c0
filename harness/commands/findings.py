"""Findings: the page of what was found, a cause a line, the one that matters most first.

`make docs` writes docs/findings.md.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from driftnet.causes.impact import Severity, ranked
from driftnet.causes.record import CauseRecord
from driftnet.findings import arrange, corpus
from driftnet.findings.corpus import SavedCase
from driftnet.handover.markdown import row

SEVERITIES = {
    Severity.WRONG: "wrong values",
    Severity.CRASH: "crash",
    Severity.HANG: "hang",
    Severity.ERROR: "error",
    Severity.REFUSAL: "refusal",
}
LONGEST = 300
"""Characters of a cell; cause.json has the rest."""


def page(root: Path = corpus.COMMITTED) -> str:
    """The causes below `root` as Markdown."""
    causes: dict[str, list[SavedCase]] = {}
    for saved in sorted(corpus.load_all(root), key=lambda saved: saved.size):
        causes.setdefault(saved.cause.id if saved.cause else saved.id, []).append(saved)
    names = sorted({cases[0].target for cases in causes.values()})
    return "\n".join(
        [
            "# Findings",
            "",
            "What driftnet has found so far, one line a cause, by what it does to a user and by how many models may",
            "meet it: the share of those that `harness/causes/exposure.json` counts. Each is a folder in `corpus/`,",
            "named by the digits in the last column: `driftnet replay DIGITS` runs its cases. *What* was seen of the",
            "smallest one, *when* is the condition that was learned by experiment, *right* the share of fresh models",
            'about which that was right. Releases are those it was run on, and "not" names those that agree;',
            "what `driftnet bisect` found is told as first bad and last good.",
            "",
            *(line for name in names for line in _of_target(name, list(causes.values()))),
        ]
    )


def _of_target(name: str, causes: Sequence[Sequence[SavedCase]]) -> Iterator[str]:
    yield from (f"## {name}", "")
    yield "| severity | models | what | when | right | place | seen on | cases | cause |"
    yield "|---|---|---|---|---|---|---|---|---|"
    told = [(cases[0].cause or arrange.loose(cases[0]), cases) for cases in causes if cases[0].target == name]
    for cause, cases in ranked(told, lambda pair: pair[0].standing):
        yield row(_cells(cause, cases), LONGEST)
    yield ""


def _cells(cause: CauseRecord, cases: Sequence[SavedCase]) -> Iterator[str]:
    status = "" if cause.status == "open" else f" ({cause.status})"
    right = cause.score.get("accuracy") if cause.score.get("instances") else None
    count = len(cases) + len(cause.merged)
    yield SEVERITIES[cause.severity] + status
    yield "" if not cause.impact else "none" if cause.artificial else f"{cause.exposure:.0%}"
    yield "; ".join(filter(None, (cases[0].note or cause.title, cause.note, cause.reported)))
    yield cause.sentence
    yield "" if right is None else f"{right:.0%}"
    yield str(cause.place)
    yield _releases(cause, cases)
    yield str(count)
    yield f"`{cause.id[-8:]}`"


def _releases(cause: CauseRecord, cases: Sequence[SavedCase]) -> str:
    if cause.releases:
        return cause.history
    seen, gone = (cause.seen, cause.not_seen) if cause.seen else (cases[0].seen, cases[0].not_seen)
    said = seen[0] if len(seen) == 1 else f"{seen[0]} to {seen[-1]}" if seen else ""
    return f"{said}; not {', '.join(gone)}" if gone else said
