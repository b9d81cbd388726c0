"""Trophies: the page of the causes that matter most, and whether anybody knew.

`make docs` writes docs/trophies.md.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from driftnet.causes.impact import ranked
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings import arrange, corpus
from driftnet.findings.corpus import SavedCase
from driftnet.handover.markdown import row

BEST = 20
"""Causes of a target that are told."""
LONGEST = 200
"""Characters of a cell; cause.json has the rest."""


ABOUT = """# Trophies

The causes that matter most, by impact: how severe a failure is, times the share of real models that may meet its
trigger (of those that `harness/causes/exposure.json` counts; what is not known of their nodes is taken to fit, so a
share is an upper bound). *Damage* is measured of a model that the smallest case was grown back to, over random inputs
(where these do not fail, over its own numbers in another order): usual sizes, weights as large as trained ones, a
layer before, a classifier behind, as far as it goes on to fail (`grown/` in the folder of the cause). *Upstream* says
what a search of the public issues showed: a link with the state that it had; one that is near, of the same symptom
but not surely of the same cause; that nothing was found, and what was looked for; or that nobody has looked yet. All
causes stand in [findings.md](findings.md). The digits in the last column are what `driftnet replay` takes for a name.
"""


def page(root: Path = corpus.COMMITTED) -> str:
    """The causes below `root` that matter most, as Markdown."""
    told: dict[str, tuple[CauseRecord, list[SavedCase]]] = {}
    for saved in sorted(corpus.load_all(root), key=lambda saved: saved.size):
        cause = saved.cause or arrange.loose(saved)
        told.setdefault(cause.id, (cause, []))[1].append(saved)
    possible = [
        (cause, cases)
        for cause, cases in told.values()
        if cause.status in (Status.OPEN, Status.FLAKY) and cause.exposure and not cause.artificial
    ]
    best = ranked(possible, lambda pair: pair[0].standing)
    return "\n".join(
        [ABOUT, *(line for name in sorted({c.target for c, _ in best}) for line in _of_target(name, best))]
    )


def _of_target(name: str, best: Sequence[tuple[CauseRecord, Sequence[SavedCase]]]) -> Iterator[str]:
    yield from (
        f"## {name}",
        "",
        "| severity | models | what | damage | a way out | upstream | cause |",
        "|---|---|---|---|---|---|---|",
    )
    for cause, cases in [pair for pair in best if pair[0].target == name][:BEST]:
        remedy = ", ".join(f"{option} = {value}" for option, value in cause.remedy.items())
        what, upstream = cases[0].note or cause.title, cause.reported or "nobody has looked"
        cells = (str(cause.severity), f"{cause.exposure:.0%}", what, cause.damage, remedy, upstream)
        yield row((*cells, f"`{cause.id[-8:]}`"), LONGEST)
    yield ""
