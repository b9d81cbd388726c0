"""HTML pages of findings: an overview of all causes, and a page for each with its cases."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.api import Answer
from driftnet.causes.impact import HARM, WEIGHT, Severity
from driftnet.causes.upstream import reported
from driftnet.cli.report.comparison import compared
from driftnet.cli.report.rendering import commands, rendered, shown
from driftnet.cli.report.tables import impact
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.model.verdict import Word
from driftnet.util.files import replace_text
from driftnet.util.options import written

Row = Mapping[str, Any]
HANDED_OVER = ("model.onnx", "reproduce.py", "reproduce_onefile.py", "ISSUE.md")
"""Files of a case that its page leads to; copied beside it, so that a report can be moved."""
FILTERS = ("target", "severity", "stage", "kind", "status")
VERDICTS = [*Word]
MANY = {
    Severity.WRONG: "silently wrong values",
    Severity.CRASH: "crashes",
    Severity.HANG: "hangs",
    Severity.ERROR: "errors",
    Severity.REFUSAL: "errors that name nothing",
}
WIDE, HIGH = 640, 160  # pixels of the chart of causes over models


def write_report(result: Mapping[str, Any], out: Path, answers: Mapping[str, Answer] | None = None) -> Path:
    """Write `out`/index.html, and a page below `out`/causes for each cause of the cases that api.report returned.

    answers   what the targets say to them today, by their ids
    """
    causes: dict[str, list[Row]] = {}
    for row in result["cases"]:  # the best comes first: of causes, and of the cases of each
        causes.setdefault(row["cause"], []).append(row)
    (out / "causes").mkdir(exist_ok=True)
    told = [_cause(rows, out, answers or {}) for rows in causes.values()]
    index = out / "index.html"
    replace_text(index, rendered("index.html", {**result, **_totals(told), "causes": told, **_charts(result, told)}))
    return index


def page_of(row: Row) -> str:
    """Where below the folder of a report the page of a case, or of its cause, is."""
    return f"causes/{row['target']}-{(row['cause'] or row['id'])[-8:]}.html"


def _cause(rows: Sequence[Row], out: Path, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Write the page of one cause, and return what the overview says of it."""
    first, page = rows[0], page_of(rows[0])
    loaded = [corpus.load(Path(row["path"])) for row in rows]
    cases = [_case(saved, row, out, answers.get(saved.id)) for saved, row in zip(loaded, rows)]
    heading, cause = loaded[0].summed_up, loaded[0].cause
    said = {"first": first, "heading": heading, "cause": cause, "cases": cases, "impact": impact(first)}
    replace_text(out / page, rendered("cause.html", {**said, "harm": HARM[Severity(first["severity"])]}))
    operators = dict.fromkeys(op for saved in loaded for op in saved.operators)
    return {
        **first,
        "page": page,
        "heading": heading,
        "digits": page[-13:-5],
        "impact": impact(first),
        "operators": [*operators],
        "seen": _releases(loaded[0]),
        "variants": len(rows),
        "times": sum(row.get("times", 0) for row in rows),
        "upstream": reported(loaded[0].upstream or (cause.upstream if cause else "")),
    }


def _case(saved: SavedCase, row: Row, out: Path, answer: Answer | None) -> dict[str, Any]:
    of_case = saved.cause and saved.cause.of_case(saved.id)
    return {
        "saved": saved,
        "digits": saved.id[-8:],
        "upstream": reported(saved.upstream),
        "sentence": row.get("trigger", ""),
        "place": str(of_case.place) if of_case else "",
        "recipe": ", ".join(written(saved.recipe)) or "defaults",
        "shown": shown(saved.case, saved.expected),
        "answer": answer,
        "compared": compared(saved, answer) if answer else [],
        "commands": commands(saved),
        "files": _handed_over(saved, out),
        "issue": _issue(saved),
    }


def _handed_over(saved: SavedCase, out: Path) -> list[tuple[str, str]]:
    """The files of a case, copied below `out`: the name of each, and where its page finds it."""
    folder = out / "files" / saved.id[-8:]
    there = [saved.path / name for name in HANDED_OVER if saved.path and (saved.path / name).is_file()]
    for path in there:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.name)
    return [(path.name, os.path.relpath(folder / path.name, out / "causes")) for path in there]


def _issue(saved: SavedCase) -> str:
    path = saved.path and saved.path / "ISSUE.md"
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def _releases(saved: SavedCase) -> str:
    return (saved.cause and saved.cause.history) or " to ".join(dict.fromkeys((*saved.seen[:1], *saved.seen[-1:])))


def _totals(causes: Sequence[Row]) -> dict[str, Any]:
    """How many causes there are of what, and what the filters offer."""
    severities = Counter(cause["severity"] for cause in causes)
    return {
        "severities": [(MANY[word], severities[word]) for word in WEIGHT if severities[word]],
        "by_target": Counter(cause["target"] for cause in causes),
        "new": sum(cause["status"] == "new" for cause in causes),
        "filters": {name: sorted({cause[name] for cause in causes} - {""}) for name in FILTERS},
        "operators_met": sorted({op for cause in causes for op in cause["operators"]}),
    }


def _charts(result: Mapping[str, Any], causes: Sequence[Row]) -> dict[str, Any]:
    named = {cause["cause"]: cause for cause in causes}
    by_operator = _heat(result["operators"], VERDICTS) if result["operators"] else _heat(_kinds(causes), [*WEIGHT])
    return {"heat": by_operator, "curve": _curve(result["growth"]), "named": named}


def _kinds(causes: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Operator -> severity -> causes, of what no run counted."""
    counts: dict[str, Counter[str]] = {}
    for cause in causes:
        for op in cause["operators"]:
            counts.setdefault(op, Counter())[cause["severity"]] += 1
    return {op: dict(of) for op, of in counts.items()}


def _heat(grid: Mapping[str, Mapping[str, int]], columns: Sequence[str]) -> dict[str, Any]:
    """The rows of a heat map, the operators that fail most often first; those that never do are only counted."""
    bad = {*columns} - {Word.AGREES, Word.REJECTS, Word.INVALID, Word.ABSTAINS}
    failing = {op: sum(of.get(word, 0) for word in bad) for op, of in grid.items()}
    totals = {op: sum(of.values()) for op, of in grid.items()}
    most = max(totals.values(), default=1)
    whole = {op: totals[op] if Word.AGREES in columns else most for op in grid}
    order = sorted((op for op in grid if failing[op]), key=lambda op: (-failing[op] / whole[op], -failing[op], op))
    rows = [
        {"operator": op, "cells": [(grid[op].get(word, 0), grid[op].get(word, 0) / whole[op]) for word in columns]}
        for op in order
    ]
    return {"columns": columns, "rows": rows, "clean": len(grid) - len(rows), "counted": Word.AGREES in columns}


def _curve(growth: Sequence[Sequence[int]]) -> dict[str, Any] | None:
    """Distinct causes over models examined, as a line of steps."""
    if not growth:
        return None
    models, causes = growth[-1]
    x, y = WIDE / max(models, 1), HIGH / max(causes, 1)
    steps = [f"M0,{HIGH}"] + [f"H{at * x:.1f} V{HIGH - met * y:.1f}" for at, met in growth]
    half = next((at for at, met in growth if 2 * met >= causes), 0)
    return {"path": " ".join(steps), "models": models, "causes": causes, "half": half, "wide": WIDE, "high": HIGH}
