"""The end of a campaign on a terminal: what was counted, what is known in a line a target, and what is new, whole."""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from driftnet.causes.impact import HARM, Severity
from driftnet.cli.report import tables
from driftnet.cli.report.issues import ISSUE
from driftnet.cli.report.nightly import night
from driftnet.cli.report.tables import Result, counted, impact, say, shares, shortened
from driftnet.findings.names import called
from driftnet.util import errors
from rich.console import Console

WIDEST = 100  # columns: longer lines of prose are hard to read
LONGEST = 600  # characters of a message: an exception may quote a whole model
BRIEF = 2  # lines of a trigger, in the five that a run ends with
STATUS = {
    0: "nothing found",
    1: "something new, or back or worse",
    2: "an error of driftnet itself, or a saved case that is not whole",
    3: "only known findings",
}
UNASKED = "nothing was examined, so nothing found: give it more --minutes"
INTERRUPTED = "interrupted, and nothing new until then"


def ended(console: Console, result: Result, folder: Path, *, status: int, every: bool = False) -> None:
    """What a campaign counted and found.

    folder   of its report;   status   that the command ends with;   every   list what is known, too
    """
    width = min(console.width, WIDEST)
    new = [finding for finding in result["findings"] if finding["status"] == "new"]
    known = [finding for finding in result["findings"] if finding["status"] != "new"]
    for text in filter(None, _counted(result)):
        say(console, *textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False))
    say(console, *(_listed(known) if every else _by_target(known)))
    if new:
        say(console, f"\n{counted(len(new), 'new finding')}, what matters most first:")
    for finding in new:
        _told(console, [_head(finding), *_what(finding, width), _size(finding)])
    for what, left in (
        ("not reduced to the end", [finding for finding in new if finding.get("unfinished")]),
        ("not handed over", [finding for finding in new if _lacks(Path(finding["path"]), ISSUE)]),
    ):
        if left:
            say(console, f"{what}: {counted(len(left), 'new finding')}; to go on with the first:")
            say(console, f"  driftnet reduce {shlex.quote(left[0]['path'])} --out DIR")
    if result.get("interrupted"):
        goes_on = f"the same command with --resume --report {shlex.quote(str(folder))} goes on"
        say(console, f"interrupted: {goes_on}", style="yellow")
    for message, indices in _by_message(result["errors"]).items():
        others = f" and {len(indices) - 1} others" if indices[1:] else ""
        where = f"error of driftnet in case {indices[0]}{others}" if indices[0] >= 0 else "error"
        say(console, f"{where}: {message[:LONGEST]}", style="red")
    if result.get("night"):
        night(console, result["night"])
    say(
        console,
        new and f"\nreplay the new cases: driftnet replay {folder / 'cases'}",
        f"report: {folder / 'summary.md'}",
        f"exit status {status}: {_meant(result, status)}",
    )
    for best in (new or known)[:1]:
        shown = f"  its page: driftnet report {shlex.quote(called(Path(best['path'])))} --open"
        if len(new) == 1:  # it stands above, whole
            say(console, f"\n{best['id'][-8:]}, the new finding", shown)
            continue
        _told(console, [_head(best) + ("" if new else ", known"), *_briefly(best, width), shown])


def _meant(result: Result, status: int) -> str:
    """What an exit status of a run says."""
    if status == 2 and not result["errors"] and result.get("interrupted"):
        return INTERRUPTED
    return STATUS[status] if status or result["cases"] else UNASKED


def _by_message(errors: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """What errors say -> the cases that said so."""
    found: dict[str, list[int]] = {}
    for error in errors:
        found.setdefault(error["message"], []).append(error["index"])
    return found


def _told(console: Console, lines: Sequence[str]) -> None:
    """A paragraph of its own, with its first line as its head."""
    say(console, f"\n{lines[0]}", style="bold")
    say(console, *lines[1:])


def _head(finding: Result) -> str:
    stage = f", {finding['stage']}" if finding["stage"] else ""
    harm = HARM[Severity(finding["severity"])]
    return f"{finding['id'][-8:]}  {finding['target']}{stage}: {harm} ({finding['kind']})"


def _size(finding: Result) -> str:
    common = f"; at most {finding['exposure']:.0%} of models meet it" if finding.get("exposure") else ""
    met = f"  {counted(finding['nodes'], 'node')}, met {counted(finding.get('times', 0), 'time')}"
    return f"{met}{tables.comes(finding)}{common}"


def _what(finding: Result, width: int) -> Iterator[str]:
    """What happened and when it does, whole; no word is broken, so that one can copy it."""
    yield from _wrapped(errors.shortened(finding["message"], LONGEST), width)
    if trigger := finding.get("trigger"):
        yield from _wrapped(f"when: {trigger}", width)


def _briefly(finding: Result, width: int) -> list[str]:
    """The same in three lines at most."""
    message, *when = _what({**finding, "message": shortened(finding["message"], width - 2)}, width)
    if len(when) > BRIEF:
        when = [*when[: BRIEF - 1], f"{when[BRIEF - 1][: width - 2].rpartition(' ')[0]} …"]
    return [message, *when]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False)


def _by_target(known: Iterable[Result]) -> Iterator[str]:
    for target, found in groupby(sorted(known, key=_target), key=_target):
        there = list(found)
        causes = len({finding.get("cause") or finding["id"] for finding in there})
        times = counted(sum(finding.get("times", 0) for finding in there), "time")
        yield f"{target}: {counted(causes, 'known cause')}, seen {times}; --all lists them, as the report does"


def _listed(known: Iterable[Result]) -> Iterator[str]:
    for target, found in groupby(sorted(known, key=_target), key=_target):
        yield f"\nknown of {target}:"
        for finding in found:
            digits, what = tables.called(finding["id"])
            yield f"{digits}  {finding.get('times', 0):4} x  {impact(finding)}: {what.removeprefix(f'{target} ')}"


def _target(finding: Result) -> str:
    name: str = finding["target"]
    return name


def _lacks(folder: Path, name: str) -> bool:
    """Whether a case stands there without this file: the run ended before it was written."""
    return folder.is_dir() and not (folder / name).exists()


def _counted(result: Result) -> Iterator[Any]:
    lost, late = result["unconfirmed"], len(result["unexplained"])
    per_cpu = result["cases"] / result["cpu_seconds"] if result["cpu_seconds"] else 0.0
    yield (
        f"{counted(result['cases'], 'case')} of {counted(result['models'], 'model')} in {result['wall_seconds']:.0f} s "
        f"({result['cpu_seconds']:.0f} CPU s, {per_cpu:.1f} cases per CPU second)"
    )
    yield result["cpu_by"] and "CPU time: " + shares(result["cpu_by"])
    yield f"verdicts: {tables.counts(result['verdicts'])}"
    yield (
        result["recognized"]
        and f"known by trigger or place, without a run: {counted(result['recognized'], 'failure')}; "
        f"{result['verified']} of them examined all the same, {result['mistaken']} mistaken"
    )
    yield lost and f"not reproducible in fresh processes, so not reported: {counted(lost, 'failure')}"
    yield late and f"not explained in their time, and examined again by --resume: {counted(late, 'model')}"
