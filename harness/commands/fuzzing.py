"""Generated graphs: pushed through targets, or just written."""

from __future__ import annotations

import difflib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from driftnet.campaign import coordinator
from driftnet.campaign import seeds as neighbours
from driftnet.campaign.shard import Event, Plan, case_folders
from driftnet.campaign.summary import Summary
from driftnet.findings import corpus
from driftnet.generators import bulk
from driftnet.model.inspect import Case
from driftnet.run.runner import MEMORY_GIB, Runner
from driftnet.targets.environments import DEFAULT_TARGETS, resolve
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder

NEAREST = 5
Listener = Callable[[Summary, Event], None]


def fuzz(
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    minutes: float | None = None,
    cases: int | None = None,
    seed: int = 0,
    workers: int = 1,
    focus: Sequence[str] = (),
    corpus_folder: Path = Path("corpus"),
    save: bool = False,
    report: Path,
    steer: bool = True,
    resume: bool = False,
    seeds: Sequence[Path] = (),
    python: str | None = None,
    timeout: float = 3.0,
    memory_gib: float = MEMORY_GIB,
    listeners: Sequence[Listener] = (),
) -> Summary:
    """Fuzz until `minutes` are over or `cases` (model x target x recipe) are examined; by default for two minutes.

    New cases are written below `report`/cases as they are found and, when `save`, into `corpus_folder` too. `resume`
    goes on with the case indices after those of the summary.json in `report`. With `seeds` (ONNX files, saved cases,
    folders of them) the cases are neighbours of these. `python` is the interpreter that holds
    the targets (None: this one, or one made for the release that a target names). Listeners are called with the summary
    so far and each event.

    Raises UserError for an unknown target or focus, for seeds that cannot be used, for folders that cannot be written,
    for saved cases that are not whole, and when there is nothing to resume.
    """
    for word in targets:
        resolve(word, python=python)
    _check_focus(focus)
    if seeds:
        with Runner(memory_gib=memory_gib) as runner:
            neighbours.check(seeds, runner.reference)
    plan = Plan(
        targets=tuple(targets),
        seed=seed,
        corpus=corpus_folder,
        cases=report / "cases",
        focus=tuple(focus),
        steer=steer,
        seeds=tuple(seeds),
        python=python,
        timeout=timeout,
        memory_gib=memory_gib,
    )
    make_folder(plan.cases)
    if save:
        make_folder(corpus_folder)
    for folder in (*case_folders(plan.corpus), *case_folders(plan.cases)):
        corpus.load(folder)  # one that is not whole is said now: a shard could only die of it
    summary = Summary(run_cases=plan.cases, seed=seed)
    if resume:
        _restore(summary, report / "summary.json")
    if minutes is None and cases is None:
        minutes = 2.0
    bounds = coordinator.Bounds(
        seconds=math.inf if minutes is None else minutes * 60, cases=math.inf if cases is None else cases
    )

    def hear(event: Event) -> None:
        summary(event)
        if save and event["event"] == "found":
            corpus.save(corpus.load(Path(event["path"])), corpus_folder)
        for listener in listeners:
            listener(summary, event)

    coordinator.run(plan, bounds, workers=workers, listener=hear, first_index=summary.next_index)
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
    started = time.process_time()
    if seeds:
        return _generate_neighbours(cases, seed, out, seeds)
    for index in range(cases):
        _write_case(bulk.case(seed, index, focus=tuple(focus)), out, index)
    return {"cases": cases, "cpu_seconds": round(time.process_time() - started, 3)}


def _generate_neighbours(cases: int, seed: int, out: Path, paths: Sequence[Path]) -> dict[str, Any]:
    with Runner(small_models=True) as runner:
        started = runner.all_cpu_seconds
        seeds = neighbours.check(paths, runner.reference)
        for index in range(cases):
            _write_case(neighbours.neighbour(seeds, seed, index, runner.reference), out, index)
        return {"cases": cases, "cpu_seconds": round(runner.all_cpu_seconds - started, 3)}


def _write_case(case: Case, out: Path, index: int) -> None:
    with corpus.whole(out / f"test_{index:06d}", replace=True) as folder:
        corpus.write_model(case, (), folder)


def _restore(summary: Summary, path: Path) -> None:
    try:
        summary.restore(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(
            f"cannot go on with the run of {path}: {e}",
            hint="give --report DIR of a run that wrote a summary.json, and the same --seed",
            kind="report",
        ) from e


def _check_focus(focus: Iterable[str]) -> None:
    known = bulk.known_focus()
    for name in focus:
        if name not in known:
            raise UserError(
                f"nothing to focus on is called {name!r}",
                hint=f"the nearest operators, families and motifs: {', '.join(_nearest(name, known))}",
                kind="focus",
            )


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names nearest to one that there is not, the nearest first; case does not count."""
    lowered = {word.lower(): word for word in sorted(known)}
    return [lowered[word] for word in difflib.get_close_matches(name.lower(), lowered, NEAREST, cutoff=0.0)]
