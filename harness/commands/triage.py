"""What people say of causes and cases: a status, a link, a note, a remedy; what belongs together and what does not."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.causes import record
from driftnet.causes.record import Status
from driftnet.causes.upstream import is_link
from driftnet.findings import arrange, corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.explaining import is_gone
from driftnet.findings.names import located
from driftnet.findings.trial import Trial, look
from driftnet.learning.study import settled
from driftnet.model.signature import coarse
from driftnet.run.runner import Runner
from driftnet.targets import recipe
from driftnet.targets.environments import resolve, where_seen
from driftnet.util.errors import UserError
from driftnet.util.nearest import demand


def triage(
    path: Path | str,
    *,
    status: str = "",
    upstream: str = "",
    note: str = "",
    remedy: Mapping[str, str] | None = None,
    merge: Path | str | None = None,
    split: Path | str | None = None,
    root: Path | str = Path("corpus"),
) -> dict[str, Any]:
    """Say something of a cause or of a saved case; one outside `root` is brought into it, and a case without a cause,
    as `check` writes it, gets one there.

    path    its folder, its id, or the 8 hex digits at its end
    status  of a case, or of all variants of a cause: open, fixed, flaky or expected; of an open cause those stay flaky
        that come back in some runs only
    remedy  options, with values as a person writes them, under which the bug is gone: from then on a failure that goes
        away under them is taken for this one
    merge   another cause or case, which is the same: its cases become variants of this one. That lasts
    split   a case of this cause that is another one: it lies loose from then on. That lasts
    Raises UserError for an unknown status, an `upstream` that is no link, for `expected` without a note that names the
    documented rule, for a remedy under which a case fails as it does without, and where there is nothing to merge or to
    split.
    """
    if not (status or upstream or note or remedy or merge or split):
        what = "triage was told nothing"
        raise UserError(what, hint="give --status, --upstream, --note, --remedy, --merge or --split", kind="option")
    demand(filter(None, [status]), Status, "there is no status {!r}", f"it is one of {', '.join(Status)}")
    if status == Status.EXPECTED and not note:
        raise UserError("an expected case names its rule", hint="say which with --note", kind="option")
    if upstream and not is_link(upstream):
        raise UserError(
            f"{upstream!r:.80} is no link", hint="--upstream https://github.com/OWNER/NAME/issues/N", kind="option"
        )
    root = Path(root)
    roots = (root, corpus.COMMITTED)
    folder = located(Path(path), roots)
    chosen = _remedy(_cases(folder), remedy) if remedy else None
    folder = _brought(folder, root, learns=not merge and status not in (Status.FIXED, Status.EXPECTED))
    if merge:
        folder = arrange.merge(folder, arrange.brought(located(Path(merge), roots), root), root)
    if split:
        arrange.split(folder, Path(split).name, root)
    said = {"upstream": upstream, "note": note, "remedy": chosen}
    _say(folder, Status(status) if status else None, {name: value for name, value in said.items() if value})
    return _told(folder)


def _brought(folder: Path, root: Path, *, learns: bool) -> Path:
    """As `arrange.brought`. A case that has no cause and that nobody knew there is studied, if it is to explain others,
    and has one then; not where its target is not installed, nor can be, or does not fail."""
    is_cause = (folder / record.FILE).exists()
    known = is_cause or (saved := corpus.load(folder)).cause or corpus.standing(saved, root)
    there = arrange.brought(folder, root)
    if known or not learns:
        return there
    try:
        installed = resolve(where_seen(saved.target, saved.seen))
    except UserError:
        return there
    with Runner(hold_crashes=True) as runner:
        return settled(there, installed, runner, root)


def _cases(folder: Path) -> list[SavedCase]:
    return [corpus.load(found) for found in corpus.folders([folder])]


def _say(folder: Path, status: Status | None, said: Mapping[str, Any]) -> None:
    """Write what is said of the cause or case in `folder` into cause.json and case.json."""
    is_cause = (folder / record.FILE).exists()
    if is_cause:
        record.update(record.load(folder), **said)
    for saved in _cases(folder):
        changes = {name: value for name, value in said.items() if name == "remedy" or not is_cause}
        if status == Status.EXPECTED:
            changes["rule"] = said["note"]
        stays = is_cause and status == Status.OPEN and saved.reproduced < saved.runs
        changed = corpus.update(saved, status=saved.status if status is None or stays else status, **changes)
        if changed.cause and changed.cause.path and not is_cause:
            arrange.settle_status(changed.cause.path)
    if is_cause:
        arrange.settle_status(folder)


def _told(folder: Path) -> dict[str, Any]:
    cases = _cases(folder)
    it = record.load(folder) if (folder / record.FILE).exists() else cases[0]
    return {
        "id": it.id,
        "path": str(folder),
        "status": it.status,
        "upstream": it.upstream,
        "note": it.note,
        "remedy": dict(it.remedy),
        "cases": [saved.id for saved in cases],
    }


def _remedy(cases: Sequence[SavedCase], texts: Mapping[str, str]) -> dict[str, Any]:
    installed = resolve(where_seen(cases[0].target, cases[0].seen))
    chosen = recipe.parsed(installed.target, texts)
    with Runner() as runner:
        for saved in cases:
            changed = recipe.validated(installed.target, recipe.remedied(installed.target, saved.recipe, chosen))
            verdict = look(Trial(saved.case, installed, changed, runner), fresh=True)
            if not is_gone(saved.coarse, coarse(saved.target, verdict) if verdict.failed else ""):
                raise UserError(
                    f"{saved.id} fails under {json.dumps(changed)} too: {verdict.message}",
                    hint=f"driftnet check {saved.path}/model.onnx names the options that make a failure go away",
                    kind="option",
                )
    return chosen
