"""What a report tells: the causes of runs and of saved cases, what the runs counted, and how they differ."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from driftnet.campaign.retold import Retold, retold
from driftnet.campaign.summary import FILE, Entry, Summary, commonest, described
from driftnet.causes.impact import ranked
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.names import located
from driftnet.findings.trial import Trial, watch
from driftnet.model.inspect import Feed
from driftnet.model.verdict import Verdict, Word
from driftnet.run.runner import Runner
from driftnet.run.share import SAVED_SECONDS
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder
from driftnet.util.options import paths_of
from driftnet.util.records import read

MOST_RUN = 60
"""Cases of a report that are run to show what they answer, where nobody says: 3 to 60 s of one core."""


@dataclass(frozen=True)
class Answer:
    """What a target says to a saved case today: the release, the verdict, and the outputs, one {name: array} a feed."""

    release: str
    verdict: Verdict
    outputs: tuple[Feed, ...] = ()


@dataclass(frozen=True)
class _Run:
    """A run: the folder of its report, what it counted, and what its journal tells beside."""

    path: Path
    summary: Summary
    told: Retold

    @property
    def causes(self) -> dict[str, int]:
        """How often it met each cause."""
        times: dict[str, int] = {}
        for entry in self.summary.findings:
            times[entry.cause or entry.id] = times.get(entry.cause or entry.id, 0) + entry.times
        return times


def report(paths: Path | str | Sequence[Path | str] = ("corpus",), *, out: Path | str) -> dict[str, Any]:
    """Every saved case at or below `paths` (folders of runs, of the corpus, of a check), what the runs met that was
    known, and what they counted.

    Of two runs or more the last is compared with the one before it; of one, with the run before it in the same folder.
    The pages about them belong into `out`, which is made. Raises UserError when it cannot be, when there is no such
    path, and when a case or summary is not whole.
    """
    make_folder(Path(out))
    there = [located(path) for path in paths_of(paths)]
    runs = [_run(path) for path in there if (path / FILE).exists()]
    new = {entry.id for run in runs for entry in run.summary.new}
    times = {entry.id: entry.times for run in runs for entry in run.summary.findings}
    found = {saved.id: saved for saved in map(corpus.load, corpus.folders(there))}
    found = {saved.id: saved for saved in _known(runs) if saved.id not in found} | found
    if not (found or runs):
        what = f"no run and no saved case below {', '.join(map(str, there))}"
        raise UserError(what, hint="driftnet fuzz makes a run; driftnet triage brings cases into corpus/", kind="case")
    told = [(saved, _entry(saved, times.get(saved.id, 0), new)) for saved in found.values()]
    before = runs[-2] if len(runs) > 1 else _before(runs[0].path) if runs else None
    return {
        "runs": [_counted(run) for run in runs],
        "cases": [_reported(saved, entry) for saved, entry in ranked(told, lambda it: _standing(it[1], new))],
        "compared": _compared(before, runs[-1]) if before else None,
        "operators": _grid(run.told for run in runs),
        "growth": _growth(runs),
    }


def answers(result: Mapping[str, Any], *, most: int = MOST_RUN) -> dict[str, Answer]:
    """What the installed targets say today to the cases that `report` told of, by their ids, each run once in a fresh
    worker; of more than `most` nothing is run. What hung, and what is not installed here, has no answer."""
    rows = result["cases"] if len(result["cases"]) <= most else []
    found: dict[str, Answer] = {}
    if not rows:
        return found
    with Runner(timeout=SAVED_SECONDS) as runner:
        for saved in (corpus.load(Path(row["path"])) for row in rows):
            if saved.verdict.word is not Word.HANGS and (answer := _answer(saved, runner)):
                found[saved.id] = answer
    return found


def _answer(saved: SavedCase, runner: Runner) -> Answer | None:
    try:
        installed = resolve(saved.target)
    except UserError:  # a page of what was found elsewhere is read here
        return None
    verdict, seen = watch(Trial(saved.case, installed, saved.recipe, runner), fresh=True)
    return Answer(installed.release, verdict, tuple(map(dict, seen.outputs)) if seen else ())


def _known(runs: Iterable[_Run]) -> list[SavedCase]:
    """The saved cases that runs met, as far as they are here."""
    there = {entry.id: Path(entry.path) for run in runs for entry in run.summary.findings}
    return [corpus.load(path) for path in there.values() if (path / "case.json").exists()]


def _entry(saved: SavedCase, times: int, new: set[str]) -> Entry:
    release = saved.seen[-1] if saved.seen else ""
    entry = described(saved, release, "new" if saved.id in new else saved.status)
    return msgspec.structs.replace(entry, times=times)


def _standing(entry: Entry, new: set[str]) -> Any:
    return replace(entry.standing, known=bool(new) and entry.id not in new)


def _reported(saved: SavedCase, entry: Entry) -> dict[str, Any]:
    title = saved.cause.title if saved.cause else saved.title
    return {**msgspec.to_builtins(entry), "what": saved.note or saved.verdict.message or saved.id, "title": title}


def _run(path: Path) -> _Run:
    try:
        text = (path / FILE).read_text(encoding="utf-8")
        summary = read(json.loads(text), Summary, "summary")
    except (OSError, ValueError) as e:
        raise UserError(
            f"{path / FILE} is no summary of a run: {e}", hint="name the folder of a driftnet fuzz run", kind="report"
        ) from e
    return _Run(path, summary, retold(path, summary))


def _before(path: Path) -> _Run | None:
    """The run that ended last of those beside `path` that ended before it."""
    ended = (path / FILE).stat().st_mtime
    beside = [(other.stat().st_mtime, other.parent) for other in path.resolve().parent.glob(f"*/{FILE}")]
    earlier = [pair for pair in beside if pair[0] < ended and pair[1] != path.resolve()]
    return _run(max(earlier)[1]) if earlier else None


def _counted(run: _Run) -> dict[str, Any]:
    summary = run.summary
    return {
        "path": str(run.path),
        "cases": summary.cases,
        "verdicts": commonest(summary.verdicts),
        "new": len(summary.new),
        "known": summary.known_causes,
        "cpu_seconds": summary.cpu_seconds,
    }


def _compared(before: _Run, now: _Run) -> dict[str, Any]:
    """Which causes only one of two runs met, and how often both met the others. One that is not met again need not be
    gone: other models were drawn."""
    old, new = before.causes, now.causes
    return {
        "before": {"path": str(before.path), "cases": before.summary.cases, "causes": len(old)},
        "now": {"path": str(now.path), "cases": now.summary.cases, "causes": len(new)},
        "appeared": sorted(new.keys() - old.keys()),
        "not_met": sorted(old.keys() - new.keys()),
        "both": {cause: [old[cause], new[cause]] for cause in sorted(old.keys() & new.keys())},
    }


def _grid(told: Iterable[Retold]) -> dict[str, dict[str, int]]:
    """Operator -> verdict -> cases, of all runs."""
    total: dict[str, dict[str, int]] = {}
    for op, counts in (item for one in told for item in one.grid.items()):
        row = total.setdefault(op, {})
        for word, count in counts.items():
            row[word] = row.get(word, 0) + count
    return dict(sorted(total.items()))


def _growth(runs: Iterable[_Run]) -> list[list[int]]:
    """[models examined, distinct causes met by then] at each model that met one for the first time, run after run."""
    points, met, before = [[0, 0]], set[str](), 0
    for run in runs:
        late = {entry.cause or entry.id: run.told.models - 1 for entry in run.summary.findings}  # no event tells of it
        for cause, index in sorted((late | run.told.first).items(), key=lambda item: item[1]):
            if cause not in met:
                met.add(cause)
                points.append([before + index + 1, len(met)])
        before += run.told.models
    return [*points, [before, len(met)]] if before else []
