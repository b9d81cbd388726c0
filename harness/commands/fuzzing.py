"""Generated graphs: pushed through targets, or just written."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from driftnet.campaign import coordinator
from driftnet.campaign import seeds as neighbours
from driftnet.campaign.events import Event, Found
from driftnet.campaign.shard import Plan, case_folders
from driftnet.campaign.summary import Summary, Tally
from driftnet.findings import corpus
from driftnet.generators import bulk
from driftnet.model.inspect import Case
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder
from driftnet.util.records import read

NEAREST = 5
Listener = Callable[[Summary, Event], None]


def fuzz(plan: Plan, *, listeners: Sequence[Listener] = ()) -> Summary:
    """Run a campaign. Listeners are called with the summary so far and each event.

    Raises UserError for an unknown target or focus, for seeds that cannot be used, for folders that cannot be written,
    for saved cases that are not whole, and when there is nothing to resume.
    """
    for word in plan.targets:
        resolve(word, python=plan.python)
    _check_focus(plan.focus)
    if plan.seeds:
        with Runner(memory_gib=plan.memory_gib) as runner:
            neighbours.check(plan.seeds, runner.reference)
    for folder in (plan.found, *([plan.corpus] if plan.save else [])):
        make_folder(folder)
    for folder in (*case_folders(plan.corpus), *case_folders(plan.found)):
        corpus.load(folder)  # one that is not whole is said now: a shard could only die of it
    summary = _resumed(plan) if plan.resume else Summary(seed=plan.seed, cases=0, models=0, next_index=0)
    tally = Tally(plan.found, summary)

    def hear(event: Event) -> None:
        tally(event)
        if plan.save and isinstance(event, Found):
            corpus.save(corpus.load(event.path), plan.corpus)
        for listener in listeners:
            listener(summary, event)

    coordinator.run(plan, hear, first_index=summary.next_index)
    return summary


def _resumed(plan: Plan) -> Summary:
    path = plan.report / "summary.json"
    try:
        summary = read(json.loads(path.read_text(encoding="utf-8")), Summary, "summary")
        if summary.seed != plan.seed:
            raise ValueError(f"that run has seed {summary.seed}, not {plan.seed}")
    except (OSError, ValueError) as e:
        raise UserError(
            f"cannot go on with the run of {path}: {e}",
            hint="give --report DIR of a run that wrote a summary.json, and the same --seed",
            kind="report",
        ) from e
    return summary


def generate(
    *, cases: int, seed: int, out: Path, focus: Sequence[str] = (), seeds: Sequence[Path] = ()
) -> dict[str, Any]:
    """Write `cases` generated cases as ONNX backend tests `out`/test_<index>/, expected outputs left out.

    With `seeds` (ONNX files, saved cases, folders of them) they are neighbours of these. Each folder appears whole, in
    the place of what an earlier run left there. Raises UserError for an unknown focus, for seeds that cannot be used,
    and (kind "disk") when a folder cannot be written.
    """
    _check_focus(focus)
    make_folder(out)
    started = coordinator.cpu_seconds()
    if seeds:
        with Runner(small_models=True) as runner:
            reference, given = runner.reference, neighbours.check(seeds, runner.reference)
            _write(out, (neighbours.neighbour(given, seed, index, reference) for index in range(cases)))
    else:
        _write(out, (bulk.case(seed, index, focus=tuple(focus)) for index in range(cases)))
    return {"cases": cases, "cpu_seconds": round(coordinator.cpu_seconds() - started, 3)}


def _write(out: Path, cases: Iterable[Case]) -> None:
    for index, case in enumerate(cases):
        with corpus.whole(out / f"test_{index:06d}", replace=True) as folder:
            corpus.write_model(case, (), folder)


def _check_focus(focus: Iterable[str]) -> None:
    known = bulk.known_focus()
    for name in focus:
        if name not in known:
            raise UserError(
                f"no operator, family or motif is called {name!r}",
                hint=f"the nearest: {', '.join(_nearest(name, known))}",
                kind="focus",
            )


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names nearest to one that there is not, the nearest first; case does not count."""
    lowered = {word.lower(): word for word in sorted(known)}
    return [lowered[word] for word in difflib.get_close_matches(name.lower(), lowered, NEAREST, cutoff=0.0)]
