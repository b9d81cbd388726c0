"""What a run found, in the formats of others: SARIF 2.1.0, JUnit XML, and annotations of GitHub's workflows.

Red is what is new, and with a state what came back or got worse; what is known is told beside, so that it is not lost.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from driftnet.campaign.ledger import RED, Status, What
from driftnet.campaign.summary import Entry, Happened, Summary
from driftnet.causes.impact import HARM, Severity
from driftnet.handover.markdown import plain
from driftnet.util.errors import shortened
from driftnet.util.files import json_text, replace_text

SARIF, JUNIT, ANNOTATIONS = "findings.sarif", "junit.xml", "annotations.txt"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LONGEST, LINE = 1_000, 250  # characters of a message, and of it in one line
MOST_ANNOTATIONS = 10
"""GitHub shows so many of a step."""
_ESCAPES = {ord("%"): "%25", ord("\r"): "%0D", ord("\n"): "%0A"}
_IN_PROPERTIES = _ESCAPES | {ord(":"): "%3A", ord(","): "%2C"}


@dataclass(frozen=True)
class Told:
    """A cause as a run tells it.

    what   happened to it in the night of a state, else "new" or "known";   times   the run met it
    when   its trigger, where one is known
    path   of its case, or of its folder where the run has not met it
    """

    cause: str
    what: str
    target: str
    release: str
    severity: Severity
    message: str
    path: Path
    when: str = ""
    times: int = 0

    @property
    def red(self) -> bool:
        """Whether it makes the run red."""
        return self.what in RED

    @property
    def sentence(self) -> str:
        """The cause, what happened to it, and what it does, in a line that nothing obeys."""
        head = f"{self.what}: {HARM[self.severity]} on {self.target} {self.release}"
        return shortened(" ".join(plain(f"{head}: {self.message}").split()), LINE)

    @property
    def whole(self) -> str:
        """What it does, and when."""
        return shortened(plain(f"{self.message} (when: {self.when})" if self.when else self.message), LONGEST)


def write(summary: Summary, folder: Path) -> None:
    """Write the three files into `folder`, each atomically. Raises UserError (kind "disk")."""
    replace_text(folder / SARIF, json_text(sarif(summary), indent=1) + "\n")
    replace_text(folder / JUNIT, junit(summary))
    replace_text(folder / ANNOTATIONS, "".join(f"{line}\n" for line in annotated(summary)))


def told(summary: Summary) -> list[Told]:
    """The causes that a run met, each once, what happened to others in its night, and what waits; red ones first.

    Of what happened to a cause in one night what is red counts, as in the exit status; one that is open is not fixed.
    """
    happened = sorted(summary.night.changes, key=lambda one: one.what in RED) if summary.night else []
    changes = {one.cause: one for one in happened if one.what in RED or one.status == Status.FIXED}
    found: dict[str, Told] = {}
    for entry in summary.findings:
        id = entry.cause or entry.id
        there = found.get(id)
        what = changes[id].what if id in changes else "new" if entry.status == "new" else "known"
        times = entry.times + (there.times if there else 0)
        first = there if there and (there.red or what != What.NEW) else _of_entry(id, what, entry)
        found[id] = replace(first, times=times)
    others = [*happened, *summary.night.waiting] if summary.night else []
    for one, what in (*((one, one.what) for one in changes.values()), *((one, "known") for one in others)):
        found.setdefault(one.cause, _of_change(one, what))
    return sorted(found.values(), key=lambda one: not one.red)


def sarif(summary: Summary) -> dict[str, Any]:
    """A SARIF log of one run; what is fixed is no result."""
    rows = [one for one in told(summary) if one.what != What.FIXED]
    driver = {"name": "driftnet", "version": metadata.version("driftnet"), "rules": [_rule(one) for one in rows]}
    notes = [{"level": "error", "message": {"text": text}} for text in _trouble(summary)]
    invocation = {
        "executionSuccessful": not summary.errors,
        "exitCode": summary.exit_status,
        "toolExecutionNotifications": notes,
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(one, index) for index, one in enumerate(rows)],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def junit(summary: Summary) -> str:
    """A test a cause: red ones have failed, known ones are skipped, fixed ones pass; a run without any has one test."""
    rows = told(summary)
    failures, skipped = sum(one.red for one in rows), sum(not one.red and one.what != What.FIXED for one in rows)
    trouble = "\n".join(_trouble(summary))
    counts = {"tests": len(rows) + 1, "failures": failures, "errors": int(bool(trouble)), "skipped": skipped}
    seconds = f"{summary.wall_seconds:.1f}"
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {name: str(count) for name, count in counts.items()})
    suite.attrib |= {"name": "driftnet fuzz", "time": seconds}
    run = ElementTree.SubElement(suite, "testcase", classname="driftnet", name="the run itself", time=seconds)
    if trouble:
        ElementTree.SubElement(run, "error", message=trouble.partition("\n")[0]).text = trouble
    for one in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=f"driftnet.{one.target}", name=one.cause, time="0")
        if one.red:
            failure = ElementTree.SubElement(case, "failure", type=one.what, message=one.sentence)
            failure.text = f"{one.whole}\n\ndriftnet replay {one.path}"
        elif one.what != What.FIXED:
            ElementTree.SubElement(case, "skipped", message=one.sentence)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def annotated(summary: Summary) -> Iterator[str]:
    """Commands of GitHub's workflows: an error for each of driftnet itself and each red cause, what matters most first;
    a notice of the rest."""
    rows = told(summary)
    fixed = sum(one.what == What.FIXED for one in rows)
    red = [("driftnet", shortened(text, LONGEST)) for text in _trouble(summary)]
    titled = [(f"driftnet {one.cause[-8:]}: {one.what} on {one.target} {one.release}", one) for one in rows if one.red]
    known = len(rows) - len(titled) - fixed
    red += [(title, one.sentence) for title, one in titled]
    for title, text in red[:MOST_ANNOTATIONS]:
        yield f"::error title={title.translate(_IN_PROPERTIES)}::{text.translate(_ESCAPES)}"
    more = f"{len(red) - MOST_ANNOTATIONS} more red, " if len(red) > MOST_ANNOTATIONS else ""
    yield f"::notice title=driftnet::{more}{known} known causes, {fixed} fixed, {summary.cases} cases"


def _trouble(summary: Summary) -> list[str]:
    """What else makes the run red: errors, and, but with a state, failures of which nobody knows whether they are
    known."""
    said = [plain(error.message) or "an error without a message" for error in summary.errors]
    if summary.unexplained and not summary.night:
        indices = ", ".join(map(str, summary.unexplained[:10]))
        count = len(summary.unexplained)
        said.append(f"{count} failed of which nobody knows whether they are known, for want of effort: cases {indices}")
    return said


def _of_entry(id: str, what: str, entry: Entry) -> Told:
    path = Path(entry.path)
    return Told(id, what, entry.target, entry.release, entry.severity, entry.message, path, entry.trigger, entry.times)


def _of_change(one: Happened, what: str) -> Told:
    return Told(one.cause, what, one.target, one.release, one.severity, one.title, Path(one.path))


def _rule(one: Told) -> dict[str, Any]:
    return {
        "id": one.cause,
        "shortDescription": {"text": f"{HARM[one.severity]} on {one.target}"},
        "fullDescription": {"text": one.whole},
        "defaultConfiguration": {"level": "error" if one.severity in (Severity.WRONG, Severity.CRASH) else "warning"},
    }


def _result(one: Told, index: int) -> dict[str, Any]:
    return {
        "ruleId": one.cause,
        "ruleIndex": index,
        "level": "error" if one.red else "note",
        "baselineState": "new" if one.red else "unchanged",
        "message": {"text": one.sentence},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(one.path)}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"cause/v1": one.cause},
        "properties": {"target": one.target, "release": one.release, "severity": one.severity, "times": one.times},
    }


def _uri(folder: Path) -> str:
    """Where the record of a case or cause is: from here, where it is below, as a file of the repository is named."""
    path = next((folder / name for name in ("case.json", "cause.json") if (folder / name).is_file()), folder).resolve()
    here = Path.cwd()
    return quote(os.fspath(path.relative_to(here))) if path.is_relative_to(here) else path.as_uri()
