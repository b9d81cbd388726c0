"""Two pages of the causes in the corpus: all of them, a line each, and those that matter most.

`make docs` writes docs/findings.md and docs/trophies.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from driftnet.causes.impact import Severity, ranked
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings import arrange, corpus
from driftnet.findings.corpus import SavedCase
from driftnet.util.errors import in_a_line

SEVERITIES = {
    Severity.WRONG: "wrong values",
    Severity.CRASH: "crash",
    Severity.HANG: "hang",
    Severity.ERROR: "error",
    Severity.REFUSAL: "refusal",
}
LONGEST, SHORTEST = 300, 200
"""Characters of a cell, and of one among trophies; cause.json has the rest."""
BEST = 20
"""Causes of a target that are told among trophies."""

FINDINGS = """# Findings

What driftnet has found so far, one line a cause, by what it does to a user and by how many models may
meet it: the share of those that `harness/causes/exposure.json` counts. Each is a folder in `corpus/`,
named by the digits in the last column: `driftnet replay DIGITS` runs its cases. *What* was seen of the
smallest one, *when* is the condition that was learned by experiment, *right* the share of fresh models
about which that was right. Releases are those it was run on, and "not" names those that agree;
what `driftnet bisect` found is told as first bad and last good.
"""

TROPHIES = """# Trophies

The causes that matter most, by impact: how severe a failure is, times the share of real models that may meet its
trigger (of those that `harness/causes/exposure.json` counts; what is not known of their nodes is taken to fit, so a
share is an upper bound). *Damage* is measured of a model that the smallest case was grown back to, over random inputs
(where these do not fail, over its own numbers in another order): usual sizes, weights as large as trained ones, a
layer before, a classifier behind, as far as it goes on to fail (`grown/` in the folder of the cause). *Upstream* says
what a search of the public issues showed: a link with the state that it had; one that is near, of the same symptom
but not surely of the same cause; that nothing was found, and what was looked for; or that nobody has looked yet. All
causes stand in [findings.md](findings.md). The digits in the last column are what `driftnet replay` takes for a name.
"""

Told = tuple[CauseRecord, Sequence[SavedCase]]
"""A cause, and its cases, the smallest first."""


def findings(root: Path = corpus.COMMITTED) -> str:
    """The causes below `root` as Markdown."""
    head = "severity | models | what | when | right | place | seen on | cases | cause"
    return _page(FINDINGS, head, _causes(root), lambda told: row(_cells(*told), LONGEST))


def trophies(root: Path = corpus.COMMITTED) -> str:
    """The causes below `root` that matter most, as Markdown."""
    head = "severity | models | what | damage | a way out | upstream | cause"
    possible = [
        (cause, cases)
        for cause, cases in _causes(root)
        if cause.status in (Status.OPEN, Status.FLAKY) and cause.exposure and not cause.artificial
    ]
    return _page(TROPHIES, head, possible, lambda told: row(_trophy(*told), SHORTEST), BEST)


def _causes(root: Path) -> list[Told]:
    told: dict[str, tuple[CauseRecord, list[SavedCase]]] = {}
    for saved in sorted(corpus.load_all(root), key=lambda saved: saved.size):
        cause = saved.cause or arrange.loose(saved)
        told.setdefault(cause.id, (cause, []))[1].append(saved)
    return list(told.values())


def _page(about: str, head: str, causes: Iterable[Told], line, most: int | None = None) -> str:
    """A table for each target, of so many causes, those of most impact first."""
    lines, found = [about], list(causes)
    for name in sorted({cause.target for cause, _ in found}):
        best = ranked([told for told in found if told[0].target == name], lambda told: told[0].standing)
        lines += [f"## {name}", "", f"| {head} |", f"|{'---|' * (head.count('|') + 1)}", *map(line, best[:most]), ""]
    return "\n".join(lines)


def _cells(cause: CauseRecord, cases: Sequence[SavedCase]) -> Iterator[str]:
    status = "" if cause.status == "open" else f" ({cause.status})"
    right = cause.score.get("accuracy") if cause.score.get("instances") else None
    yield SEVERITIES[cause.severity] + status
    yield "" if not cause.impact else "none" if cause.artificial else f"{cause.exposure:.0%}"
    yield "; ".join(filter(None, (cases[0].note or cause.title, cause.note, cause.reported)))
    yield cause.sentence
    yield "" if right is None else f"{right:.0%}"
    yield str(cause.place)
    yield _releases(cause, cases)
    yield str(len(cases) + len(cause.merged))
    yield f"`{cause.id[-8:]}`"


def _trophy(cause: CauseRecord, cases: Sequence[SavedCase]) -> Iterator[str]:
    yield str(cause.severity)
    yield f"{cause.exposure:.0%}"
    yield cases[0].note or cause.title
    yield cause.damage
    yield ", ".join(f"{option} = {value}" for option, value in cause.remedy.items())
    yield cause.reported or "nobody has looked"
    yield f"`{cause.id[-8:]}`"


def _releases(cause: CauseRecord, cases: Sequence[SavedCase]) -> str:
    if cause.releases:
        return cause.history
    seen, gone = (cause.seen, cause.not_seen) if cause.seen else (cases[0].seen, cases[0].not_seen)
    said = seen[0] if len(seen) == 1 else f"{seen[0]} to {seen[-1]}" if seen else ""
    return f"{said}; not {', '.join(gone)}" if gone else said


def row(cells: Iterable[str], most: int) -> str:
    """A row of a table: each cell in a line, of at most so many characters."""
    escaped = (in_a_line(cell, most).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
