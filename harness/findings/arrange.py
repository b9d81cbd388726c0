"""Arranging a corpus: which cases are variants of which cause, and what is remembered of those that are not kept.

Each cause has a folder with cause.json and at most VARIANTS of its cases; of the others it lists the ids with their
notes. What people said lasts: a case that has a status of its own, a link or a remedy is always kept. A folder appears
whole, and what it replaces goes last: whatever ends that early, no case is lost.
"""

import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from driftnet.causes import record
from driftnet.causes.exposure import statistics
from driftnet.causes.impact import Severity, severity_of
from driftnet.causes.record import CauseRecord, Status
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.issues import HEAP
from driftnet.model.signature import other_name
from driftnet.targets.environments import numbers
from driftnet.util.errors import UserError

GROWN = "grown"
"""Of a cause, the folder of the model that its smallest case was grown back to."""
VARIANTS = 4
"""Cases that stand for a cause: the smallest, and those that differ most. More only where people marked more."""

_OF_THE_SAME = (
    *("title", "trigger", "score", "tried", "needed", "place", "impact"),
    *("seen", "not_seen", "releases", "remedy", "upstream", "note"),
)

ASKS_FOR_MOST = (Status.OPEN, Status.FLAKY, Status.EXPECTED, Status.FIXED)


Told = Mapping[str, Any]
"""What was learned of a case, as fields of a `CauseRecord`: title, severity, trigger, score, tried, needed, place."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Cases that shall stand under one record."""

    cases: tuple[SavedCase, ...]
    record: CauseRecord


def _absorbing(first: CauseRecord, others: Sequence[CauseRecord]) -> CauseRecord:
    """`first` with what was said of the others too."""
    all_ = (first, *others)
    return dataclasses.replace(
        first,
        upstream=_joined(" ", (cause.upstream for cause in all_)),
        note=_joined("; ", (cause.note for cause in all_)),
        remedy=next((cause.remedy for cause in all_ if cause.remedy), {}),
        merged={id: note for cause in all_ for id, note in cause.merged.items()},
        findings={id: told for cause in all_ for id, told in cause.learned.items()} if others else first.findings,
        together=tuple(dict.fromkeys(id for cause in all_ for id in cause.together)),
        apart=tuple(dict.fromkeys(id for cause in all_ for id in cause.apart)),
    )


def merge(folder: Path, other: Path, root: Path) -> Path:
    """Make the cases of the cause or case in `other` variants of the one in `folder`, for good; the folder of that.
    What crashes as the heap has it, and not in one function, crashes anywhere.

    Raises UserError where these are one already, or of two targets.
    """
    groups_ = [[corpus.load(path) for path in corpus.folders([place])] for place in (folder, other)]
    (mine, theirs), (cases, more) = ((group[0].cause or loose(group[0]) for group in groups_), groups_)
    if mine.id == theirs.id or mine.target != theirs.target:
        why = "are one cause already" if mine.id == theirs.id else "are of two targets"
        raise UserError(f"{folder.name} and {other.name} {why}", hint="name another with --merge", kind="case")
    moved = (theirs.id, *(saved.id for saved in more))
    both = _absorbing(mine, [theirs])
    both = dataclasses.replace(
        both,
        together=tuple(dict.fromkeys((*both.together, *moved))),
        apart=tuple(id for id in both.apart if id not in moved),
    )
    places = (mine.place, theirs.place)
    flaky = any(saved.status is Status.FLAKY for saved in (*cases, *more))
    if flaky and all(place.sort == "crash" for place in places) and not mine.place.is_one_with(theirs.place):
        both = dataclasses.replace(both, place=dataclasses.replace(both.place, sort=HEAP))
    write(root, [_Group((*cases, *more), both)])
    return root / both.target / both.id


def split(folder: Path, name: str, root: Path) -> None:
    """Take a case out of the cause in `folder`, for good: it lies loose from then on. One that was merged and is not
    kept only is no longer listed.

    Raises UserError where the cause has no such case, or no other.
    """
    cause = record.load(folder) if (folder / record.FILE).exists() else None
    cases = [corpus.load(path) for path in corpus.folders([folder])]
    ids = [*(saved.id for saved in cases), *(cause.merged if cause else ())]
    chosen = next((id for id in ids if name in (id, id[-8:])), None)
    if cause is None or chosen is None or [saved.id for saved in cases] == [chosen]:
        what = f"{folder.name} has no case {name}" if chosen is None else f"{chosen} is all that there is of it"
        raise UserError(what, hint=f"its cases are {', '.join(ids)}", kind="case")
    merged = {id: note for id, note in cause.merged.items() if id != chosen}
    together = tuple(id for id in cause.together if id != chosen)
    findings = {id: learned for id, learned in cause.findings.items() if id != chosen}
    apart = tuple(dict.fromkeys((*cause.apart, chosen)))
    record.update(cause, merged=merged, findings=findings, together=together, apart=apart)
    if chosen not in cause.merged:
        with corpus.whole(root / cause.target / chosen) as draft:
            shutil.copytree(folder / chosen, draft, dirs_exist_ok=True)
        shutil.rmtree(folder / chosen)
        settle_status(folder)


def found(saved: SavedCase, told: Told, root: Path) -> Path:
    """Give a case that lies loose below `root` the folder of a cause of its own; the case's new folder. Where another
    cause is called after such a case, which it has no more, this one gets other digits."""
    cause = dataclasses.replace(loose(saved), **told)
    while (root / cause.target / cause.id).exists():
        cause = dataclasses.replace(cause, id=other_name(cause.id))
    write(root, [_Group((saved,), cause)])
    return root / cause.target / cause.id / saved.id


def of_the_same(cause: CauseRecord, id: str) -> Told:
    """What its cause says of the case `id`, for another case that is seen to fail for the same reason."""
    return {name: getattr(cause.of_case(id), name) for name in _OF_THE_SAME}


def joined(saved: SavedCase, told: Told, cause: CauseRecord, root: Path) -> Path:
    """Make a case that lies loose below `root` a variant of a cause there, with what was learned of it; the case's new
    folder, or that of the cause where others stand for it."""
    home = root / cause.target / cause.id
    before = record.load(home)
    there = [corpus.load(path) for path in corpus.folders([home])]
    said = [(one.id, vars(before)) for one in there[:1] if not before.findings] + [(saved.id, told)]
    learned = {id: record.finding(own["trigger"], own["place"], own["score"]) for id, own in said}
    write(root, [_Group((*there, saved), dataclasses.replace(before, findings={**before.findings, **learned}))])
    kept = home / saved.id
    return kept if kept.exists() else home


def brought(folder: Path, root: Path) -> Path:
    """The folder of a cause or of a case, or its copy in `root` where it stands elsewhere; a case that has a cause
    becomes a variant of it there too, unless it was split off that there. What stands there already is left alone,
    unless it lies loose and has a cause now; what was written beside a case for a maintainer stays where it is."""
    if folder.resolve().is_relative_to(root.resolve()):
        return folder
    if (folder / record.FILE).exists():
        cause = record.load(folder)
        with corpus.whole(root / cause.target / cause.id) as draft:
            record.save(cause, draft)
            for variant in corpus.folders([folder]):
                (draft / variant.name).mkdir()
                corpus.write(corpus.load(variant), draft / variant.name)
            if (folder / GROWN).is_dir():
                shutil.copytree(folder / GROWN, draft / GROWN)
        return root / cause.target / cause.id
    saved = corpus.load(folder)
    there = corpus.standing(saved, root)
    if there and (saved.cause is None or there.parent != root / saved.target):
        return there
    there = there or corpus.save(saved, root)
    if not saved.cause:
        return there
    home = root / saved.target / saved.cause.id
    others = [corpus.load(path) for path in corpus.folders([home])] if home.exists() else []
    cause = record.load(home) if home.exists() else saved.cause
    if saved.id in cause.apart:
        return there
    write(root, [_Group((*others, corpus.load(there)), cause)])
    return corpus.standing(saved, root) or home


def settle_status(folder: Path) -> None:
    """Give the cause in `folder` the status of its variants that asks for most."""
    found = [corpus.load(path).status for path in corpus.folders([folder])]
    record.update(record.load(folder), status=min(found, key=ASKS_FOR_MOST.index))


def loose(saved: SavedCase) -> CauseRecord:
    """The record of a case that lies loose: a cause of its own, of which no trigger is known."""
    return CauseRecord(
        id=saved.id.removeprefix("test_"),
        target=saved.target,
        title=saved.title,
        severity=severity_of(saved.verdict),
        upstream=saved.upstream,
        remedy=saved.remedy,
    )


def write(root: Path, found: Sequence[_Group]) -> None:
    """Write the folders of causes below `root`, and then remove what they replace."""
    before = {_folder(saved) for group in found for saved in group.cases}
    written = set()
    with ExitStack() as drafts:
        for group in found:
            kept, settled = _settled(group)
            folder = root / settled.target / settled.id
            draft = drafts.enter_context(corpus.whole(folder, replace=True))
            for saved in kept:
                shutil.copytree(_path(saved), draft / saved.id)
            if group.record.path and (group.record.path / GROWN).is_dir():
                shutil.copytree(group.record.path / GROWN, draft / GROWN)
            else:
                settled = dataclasses.replace(settled, grown={})
            record.save(settled, draft)
            written.add(folder.resolve())
    for folder in before - written:
        corpus.remove(folder)


def _settled(group: _Group) -> tuple[list[SavedCase], CauseRecord]:
    """The cases that are kept, and the record with what all of them, kept or not, were said to be."""
    kept = variants(group.cases)
    gone = {saved.id: saved.note for saved in group.cases if saved not in kept}
    before = _told_by(kept, group.record)
    seen = _releases(before.seen, *(saved.seen for saved in group.cases))
    not_seen = _releases(before.not_seen, *(saved.not_seen for saved in group.cases))
    return kept, dataclasses.replace(
        before,
        severity=min((before.severity, *(severity_of(saved.verdict) for saved in kept)), key=list(Severity).index),
        seen=seen,
        not_seen=tuple(release for release in not_seen if release not in seen),
        status=min((saved.status for saved in group.cases), key=ASKS_FOR_MOST.index),
        remedy=before.remedy or next((saved.remedy for saved in kept if saved.remedy), {}),
        upstream=before.upstream or _joined(" ", [saved.upstream for saved in group.cases]),
        impact=asdict(statistics().exposure(before.trigger)) if before.trigger else {},
        merged={id: note for id, note in {**before.merged, **gone}.items() if id not in {s.id for s in kept}},
    )


def _told_by(kept: Sequence[SavedCase], cause: CauseRecord) -> CauseRecord:
    """The record with what was learned best of the cases that stand for it, where its trigger was learned of others
    alone: what is said of a cause is said of a case that is there."""
    own = {id: cause.of_case(id) for id in cause.findings}
    by = {id for id, said in own.items() if said.trigger == cause.trigger}
    there = [said for saved in kept if (said := own.get(saved.id)) and said.trigger]
    if not by or not by.isdisjoint(saved.id for saved in kept) or not there:
        return cause
    best = max(there, key=lambda said: said.score.get("accuracy", 0.0))
    return dataclasses.replace(cause, trigger=best.trigger, score=best.score, tried=(), needed=())


def variants(cases: Sequence[SavedCase]) -> list[SavedCase]:
    """The cases that stand for a cause, the smallest first: that, those that people marked, and up to VARIANTS each
    time the one that differs most from those taken."""
    first, *rest = sorted(cases, key=lambda saved: saved.size)
    taken = [first, *(saved for saved in rest if saved.status != Status.OPEN or saved.remedy or saved.upstream)]
    rest = [saved for saved in rest if saved not in taken]
    while rest and len(taken) < VARIANTS:
        far = max(rest, key=lambda saved: min(_difference(saved, other) for other in taken))
        taken.append(far)
        rest.remove(far)
    return sorted(taken, key=lambda saved: saved.size)


def _difference(a: SavedCase, b: SavedCase) -> int:
    """In how many words of their fine signatures two cases differ."""
    return len(set(a.fine.split()) ^ set(b.fine.split()))


def _path(saved: SavedCase) -> Path:
    if saved.path is None:
        raise ValueError("only cases that were loaded from a folder can be arranged")
    return saved.path


def _folder(saved: SavedCase) -> Path:
    """The folder that goes when the case has a new one: that of its cause, or its own."""
    return (_path(saved).resolve().parent if saved.cause else _path(saved)).resolve()


def _releases(*all_: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({release for some in all_ for release in some}, key=numbers))


def _joined(separator: str, texts: Iterable[str]) -> str:
    return separator.join(dict.fromkeys(filter(None, texts)))
