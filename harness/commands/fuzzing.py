"""Generated graphs: pushed through targets, or just written."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from driftnet.campaign import coordinator, coverage
from driftnet.campaign import seeds as neighbours
from driftnet.campaign import summary as counted
from driftnet.campaign.events import Begun, Ended, Event, Found, Learned, Tick, Warned
from driftnet.campaign.journal import Journal, histories, put_aside
from driftnet.campaign.plan import Plan
from driftnet.campaign.state import CASES, LOCK
from driftnet.campaign.summary import Summary, Tally, derived
from driftnet.commands import nights
from driftnet.findings import arrange, corpus
from driftnet.generators import bulk
from driftnet.generators.building.profile import EVERYTHING, Profile
from driftnet.model.inspect import Case
from driftnet.run.runner import Runner
from driftnet.targets.environments import declared, resolve
from driftnet.util.errors import UserError
from driftnet.util.files import held, make_folder
from driftnet.util.nearest import nearest
from driftnet.util.options import listed, paths_of

JOURNALED_SECONDS = 5.0
"""Between two lines of the journal that say how long the run has taken so far, and two states of its summary."""
Listener = Callable[[Summary, Event], None]


def fuzz(plan: Plan, *, listeners: Sequence[Listener] = ()) -> Summary:
    """Run a campaign, whose findings and summary.json stand in the report of `plan`. Listeners are called with the
    summary so far and each event.

    Saved cases that are not whole are left out, and the run ends with an error for them. Raises UserError for an
    unknown target or focus, for seeds that cannot be used, for folders that cannot be written, when another run writes
    there, and when there is nothing to resume.
    """
    for word in plan.targets:
        resolve(word, python=plan.python)
    _check_focus(plan.focus)
    if plan.seeds and plan.cluster:
        raise UserError("a cluster is sent no seeds", hint="leave out --from or --cluster", kind="option")
    misdeclared: list[str] = []
    if plan.seeds:
        with Runner(memory_gib=plan.memory_gib) as runner:
            neighbours.check(plan.seeds, runner.reference, misdeclared.append)
    for folder in (plan.found, *([plan.corpus] if plan.save else [])):
        make_folder(folder)
    with ExitStack() as stack:
        stack.enter_context(held(plan.report / "lock"))
        if plan.state:
            make_folder(plan.state)
            stack.enter_context(held(plan.state / LOCK))
        return _run(plan, listeners, misdeclared)


def _run(plan: Plan, listeners: Sequence[Listener], warnings: Sequence[str]) -> Summary:
    corpus.sweep(plan.found)
    aside = None if plan.resume else put_aside(plan.report)
    new = Summary(seed=plan.seed, cases=0, models=0)
    summary, done = _resumed(plan) if plan.resume else (new, frozenset[int]())
    tally, journal = Tally(plan.found, summary), Journal(plan.report)
    before = () if plan.resume else tuple(path.name for path in corpus.case_folders(plan.found))
    begun = Begun(plan.seed, before, _given(plan))
    journal.write(begun)
    tally(begun)
    _save(plan, corpus.case_folders(plan.found))
    written, night, brought = 0.0, None, dict[str, list[Path]]()

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(tally.summary, event)

    for text in warnings:
        tell(Warned(text))
    if aside:
        stay = f"; what it found stays there and is known: {len(before)} cases" if before else ""
        tell(Warned(f"an earlier run has written into {plan.report}; what it told stands in {aside} now{stay}"))
    if plan.state:
        plan, night = nights.begin(plan, plan.state, tell)
        coverage.take(night.state, plan.report)  # what was asked before it was killed

    def hear(event: Event) -> None:
        nonlocal written
        tally(event)
        due = isinstance(event, Ended) or (isinstance(event, Tick) and event.elapsed >= written + JOURNALED_SECONDS)
        if isinstance(event, Ended | Tick) and due:
            written = event.elapsed
            journal.write(event)
        if isinstance(event, Found):
            brought[Path(event.path).name] = _save(plan, [Path(event.path)])
        if isinstance(event, Learned) and not any(plan.found.glob(f"*/*/{event.case}")):
            for loose in brought.get(event.case, ()):
                corpus.remove(loose)  # it has a cause that was known
        if isinstance(event, Ended):
            tally.summary, _ = derived(plan.report, plan.found)
            _save(plan, corpus.case_folders(plan.found))
            if night:
                tally.summary.night = nights.end(night, tally.summary)
                coverage.take(night.state, plan.report)
        if due:
            counted.write(tally.summary, plan.report)
        tell(event)

    coordinator.run(plan, hear, done=done)
    return tally.summary


def _save(plan: Plan, found: Iterable[Path]) -> list[Path]:
    """Bring what the run has found into the corpus and the state, where that is wanted; the folders that are new."""
    roots = [*([plan.corpus] if plan.save else []), *([plan.state / CASES] if plan.state else [])]
    new = []
    for folder in found if roots else ():
        try:
            saved = corpus.load(folder)
        except UserError:  # not whole: a warning has said so
            continue
        for root in roots:
            stood = corpus.standing(saved, root)
            there = arrange.brought(folder, root)
            if not stood:
                new.append(there)
    return new


def _resumed(plan: Plan) -> tuple[Summary, frozenset[int]]:
    summary, done = derived(plan.report, plan.found)
    begun = [event for history in histories(plan.report) for event in history if isinstance(event, Begun)]
    said = "" if begun else "it has no journal"
    for event in begun:
        if event.seed != plan.seed:
            said = f"that run has seed {event.seed}, not {plan.seed}"
        elif event.given is not None and event.given != _given(plan):
            said = f"that run draws neighbours of {', '.join(event.given)}" if event.given else "that run has no --from"
    if said:
        raise UserError(
            f"cannot go on with the run of {plan.report}: {said}",
            hint="give the --report DIR of a run, and the same --seed and --from",
            kind="report",
        )
    return summary, done


def _given(plan: Plan) -> tuple[str, ...]:
    """The models whose neighbours are drawn."""
    return tuple(sorted(str(path.resolve()) for path in plan.seeds))


def generate(
    *,
    cases: int,
    seed: int = 0,
    out: Path | str,
    focus: str | Sequence[str] = (),
    seeds: Path | str | Sequence[Path | str] = (),
    target: str = "",
) -> dict[str, Any]:
    """Write `cases` generated cases as ONNX backend tests `out`/test_<index>/, expected outputs left out.

    target   the one for which they are drawn, which need not be installed: it may take little at all

    With `seeds` (ONNX files, saved cases, folders of them) they are neighbours of these. Each folder appears whole, in
    the place of what an earlier run left there. Raises UserError for an unknown focus or target, for seeds that cannot
    be used, and (kind "disk") when a folder cannot be written.
    """
    out, focus, models = Path(out), listed(focus), paths_of(seeds)
    _check_focus(focus)
    make_folder(out)
    started = coordinator.cpu_seconds()
    misdeclared: list[str] = []
    if models:
        with Runner(small_models=True) as runner:
            reference, given = runner.reference, neighbours.check(models, runner.reference, misdeclared.append)
            _write(out, (neighbours.neighbour(given, seed, index, reference) for index in range(cases)))
    else:
        profile = Profile(**declared(target).profile) if target else EVERYTHING
        _write(out, (bulk.case(seed, index, focus=tuple(focus), profile=profile) for index in range(cases)))
    told = {"misdeclared": misdeclared} if misdeclared else {}
    return {"cases": cases, "cpu_seconds": round(coordinator.cpu_seconds() - started, 3), **told}


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
                hint=f"the nearest: {', '.join(nearest(name, sorted(known), cutoff=0.0))}",
                kind="focus",
            )
