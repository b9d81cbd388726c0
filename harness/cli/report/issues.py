"""Issues of a night: of each cause that nights announced the text, and the `gh` commands that open or update it.

    <digits>.md           what an issue says when it is opened: the cause, what happened to it, how to see it
    <digits>-update.md    what is said in an issue that there is: what this night has seen
    send.sh               opens, tells, closes and opens again; nothing is sent before somebody runs it

An issue is found by the 8 hex digits in its title. What happened in this night is sent; with `all`, what waits too.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import onnx
from driftnet.campaign.ledger import What
from driftnet.campaign.summary import Entry, Happened, Tonight
from driftnet.causes.impact import HARM
from driftnet.cli.report.rendering import MOST_PRINTED
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.handover.markdown import cut, fenced, inline, page, plain
from driftnet.model.inspect import elements, nodes
from driftnet.util.errors import UserError
from driftnet.util.files import disk_error, make_folder, replace_text
from driftnet.util.options import written

FOLDER, SCRIPT, ISSUE = "issues", "send.sh", "ISSUE.md"
TITLE = 200  # characters; GitHub takes 256
_WRITTEN = re.compile(r"send\.sh|[0-9a-f]{8}(-update)?\.md")

TOLD = {What.NEW: "It was found", What.BACK: "It came back", What.WORSE: "It got worse", What.FIXED: "It was fixed"}


def write(night: Tonight, found: Sequence[Entry], folder: Path) -> Path:
    """Write into `folder` what is to be said of the causes of a night, in place of what is there of another; found: the
    findings of its run, of which the new ones have a text for maintainers. The script that sends it. Raises UserError
    (kind "disk")."""
    make_folder(folder)
    _cleared(folder)
    texts = {entry.cause: Path(entry.path) / ISSUE for entry in found if entry.status == "new"}
    for one in (*night.changes, *night.waiting):
        replace_text(folder / f"{digits(one)}.md", page(_opened(one, night, texts.get(one.cause))))
    changed: dict[str, list[Happened]] = {}
    for one in night.changes:
        changed.setdefault(one.cause, []).append(one)
    for changes in changed.values():
        replace_text(folder / f"{digits(changes[0])}-update.md", "\n".join(_updated(changes, night)))
    replace_text(folder / SCRIPT, _script(night, [changes[-1] for changes in changed.values()]))
    return folder / SCRIPT


def digits(one: Happened) -> str:
    """What to call a cause."""
    return one.cause[-8:]


def title(one: Happened) -> str:
    """The title of its issue, in a line."""
    return cut(" ".join(plain(f"[driftnet {digits(one)}] {one.target}: {one.title}").split()), TITLE)


def _cleared(folder: Path) -> None:
    """Remove what another night has written, and nothing else: it may be somebody's own folder."""
    for path in folder.iterdir():
        if _WRITTEN.fullmatch(path.name):
            try:
                path.unlink()
            except OSError as e:
                raise disk_error(path, e) from e


def _opened(one: Happened, night: Tonight, text: Path | None) -> str:
    lines = [*_status(one), "", _signed(night), ""]
    if text and text.is_file():
        return "\n".join([*lines, text.read_text(encoding="utf-8")])
    if saved := _smallest(Path(one.path)):
        lines += [*_model(saved), "", fenced(f"driftnet replay {shlex.quote(str(saved.path))}", "sh")]
    return "\n".join([*lines, ""])


def _status(one: Happened) -> Iterator[str]:
    """What is known of a cause by now."""
    yield f"**{HARM[one.severity].capitalize()}** on {one.target}: {inline(one.title)}"
    yield ""
    first = f" First found on {one.since}." if one.since else ""
    yield f"* {TOLD[one.what]}, on {inline(one.release)}; it is {one.status} now.{first}"
    for release, outcome in one.releases.items():
        yield f"* {inline(release)}: {inline(outcome)}"


def _model(saved: SavedCase) -> Iterator[str]:
    if saved.cause and (trigger := saved.cause.of_case(saved.id).sentence):
        yield f"When: {inline(trigger)}"
        yield ""
    yield fenced(saved.verdict.message)
    yield ""
    size = f"{nodes(saved.case)} nodes and {elements(saved.case)} elements"
    yield f"Options that are not the default: {inline(', '.join(written(saved.recipe)) or 'none')}. The model, {size}:"
    yield ""
    if len(saved.case.model) <= MOST_PRINTED:
        yield fenced(onnx.printer.to_text(saved.case.proto))


def _updated(changes: Sequence[Happened], night: Tonight) -> Iterator[str]:
    for one in changes:
        yield f"{TOLD[one.what]}, on {one.target} {inline(one.release)}."
    yield f"It is {changes[-1].status} now."
    yield ""
    yield from (f"* {inline(release)}: {inline(outcome)}" for release, outcome in changes[-1].releases.items())
    yield ""
    yield _signed(night)
    yield ""


def _signed(night: Tonight) -> str:
    """By which the script knows in an issue that this night has spoken there."""
    return f"<sub>night {night.id}</sub>"


def _smallest(folder: Path) -> SavedCase | None:
    """The smallest case of a cause, None where it is not whole or there no more."""
    try:
        there = [corpus.load(path) for path in corpus.folders([folder])] if folder.is_dir() else []
    except UserError:
        return None
    return min(there, key=lambda saved: saved.size, default=None)


def _script(night: Tonight, changed: Sequence[Happened]) -> str:
    """The script: a function, and a line a cause."""
    template = resources.files("driftnet.cli.report").joinpath(SCRIPT).read_text(encoding="utf-8")
    told = {one.cause for one in changed}
    lines = [_line(one) for one in changed]
    lines += ['[ "${1:-}" = all ] || exit 0', *(_line(one) for one in night.waiting if one.cause not in told)]
    return template.replace("NIGHT", night.id) + "\n".join([*lines, ""])


def _line(one: Happened) -> str:
    return shlex.join(["tell", digits(one), one.status, title(one)])
