"""HTML pages, each a file by itself: of a checked model, and of the operators that a target has."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftnet.cli.report import charts, tables
from driftnet.cli.report.rendering import commands, rendered, shown
from driftnet.commands.checking import check_status, is_miscalibrated
from driftnet.findings import corpus
from driftnet.model.verdict import FAILURES, Word
from driftnet.util.files import json_text, replace_text
from driftnet.util.options import written

SENTENCES = {
    0: "Right: what comes out is what should, or is accepted.",
    1: "Wrong: something fails that is not known.",
    2: "Not judged: nobody can tell all of it.",
    3: "Wrong: all that fails is known.",
}
MISCALIBRATED = "Not judged: calibrated on other data than the inputs, by which an output is lost."


def write_check(result: Mapping[str, Any], model: Path, out: Path, *, given: Sequence[str] = ()) -> Path:
    """Write `out`/check.html from what api.check returned for the file `model`, with the reduced cases it points to.

    given   words of the command line that say what the model was fed
    """
    targets = [_target(one, [str(model), *given]) for one in result["targets"]]
    page, status = out / "check.html", check_status(result)
    told = {
        "targets": targets,
        "model": model.name,
        "status": status,
        "sentence": f"{_sentence(result, status)}{_which_fail(result, status)} Exit status {status}.",
        "earlier": earlier(result, out),
        "of_little_use": tables.OF_LITTLE_USE,
        "nan_in_reference": tables.nan_in_reference,
    }
    replace_text(page, rendered("check.html", {**result, **told}))
    return page


def _sentence(result: Mapping[str, Any], status: int) -> str:
    return MISCALIBRATED if status == 2 and any(map(is_miscalibrated, result["targets"])) else SENTENCES[status]


def earlier(result: Mapping[str, Any], out: Path) -> list[str]:
    """The folders of cases below `out` that were there before a check, and are not of it."""
    faults = [fault for one in result["targets"] for fault in one["faults"]]
    written = {fault["known_path"] or (fault["reduced"] or {}).get("path") for fault in faults}
    return sorted({str(path.parent) for path in out.glob("*/test_*/case.json")} - written)


def _which_fail(result: Mapping[str, Any], status: int) -> str:
    """The targets that a sentence about failures is about, where others are on the page too."""
    rows = [r for r in result["targets"] if Word(r["verdict"]) in FAILURES and not r["accepted"]]
    names = dict.fromkeys(f"{r['target']} {r['release']}" for r in rows if status == 3 or not r["known"])
    return f" It fails on {', '.join(names)}." if names and len(result["targets"]) > len(names) else ""


def nameless(result: Mapping[str, Any]) -> dict[str, Any]:
    """What api.check returned without anything that is named, counted or measured in the model itself: verdicts,
    operators at fault and what cures them are left, and the reduced cases, which are to be anonymous already."""
    said = ("made_up", "misdeclared", "calibrated_elsewhere", "nan_in_reference", "vanishing", "joins_in_float")
    named = ("end_to_end", "kernels", *said, "random", "worst", "culprits", "notes", "depth")
    hidden = {"message": "", "unquantized": "", "usable": True, "doubtful": {}, **{name: [] for name in named}}
    bare = {"message": "", "error": 0.0, "bound": 0.0, "around": [], "distribution": None}
    targets = []
    for one in result["targets"]:
        faults = [{**fault, **bare, "nodes": [{**n, "node": ""} for n in fault["nodes"]]} for fault in one["faults"]]
        targets.append({**one, **hidden, "faults": faults})
    return {**result, "targets": targets}


def write_support(result: Mapping[str, Any], out: Path) -> Path:
    """Write support.html, support.md and support.json into `out`, from what api.support returned."""
    operators = [
        {**one, "said": tables.counts(one["counts"]), "shown": _failing(one["failing"])} for one in result["operators"]
    ]
    words = dict(Counter(one["word"] for one in operators))
    options = ", ".join(written(result["options"])) or "defaults"
    page = out / "support.html"
    told = {"operators": operators, "words": words, "options": options, "changes": tables.changes(result)}
    replace_text(page, rendered("support.html", {**result, **told}))
    replace_text(out / "support.json", json_text(result, indent=1) + "\n")
    replace_text(out / "support.md", "\n".join(_support_lines(result, operators)) + "\n")
    return page


def write_coverage(result: Mapping[str, Any], out: Path) -> Path:
    """Write coverage.html and coverage.json into `out`, from what api.coverage returned."""
    targets = [
        {**one, "operators": [_covered(told) for told in one["operators"]], "judges": _judges(one["operators"])}
        for one in result["targets"]
    ]
    page = out / "coverage.html"
    replace_text(page, rendered("coverage.html", {**result, "targets": targets}))
    replace_text(out / "coverage.json", json_text(result, indent=1) + "\n")
    return page


def _judges(operators: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What judged, in how many cases, the commonest first; a case counts for each of its operators."""
    total: Counter[str] = Counter()
    for told in operators:
        total.update(told["judged"])
    return dict(total.most_common())


def _covered(told: Mapping[str, Any]) -> dict[str, Any]:
    """An operator with its traits in words: value and cases, and how many of them a tier could judge."""
    traits: dict[str, list[dict[str, Any]]] = {}
    for trait, values in told["traits"].items():
        rows = [
            {"value": value, "cases": sum(judged.values()), "said": tables.counts(judged)}
            for value, judged in values.items()
        ]
        traits[trait.removeprefix("attr.").replace("recipe.", "option ")] = sorted(rows, key=lambda row: -row["cases"])
    never = {trait.replace("recipe.", "option "): values for trait, values in told["never"].items()}
    return {**told, "shown": traits, "lacking": never}


def _support_lines(result: Mapping[str, Any], operators: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"# {result['target']} {result['release']}: which operators work"
    if result["interrupted"]:
        yield from ("", f"Not complete: interrupted after {result['models']} models.")
    if result["against"]:
        yield from ("", f"## What changed since {result['against']}", "")
        yield from ("| operator | from → to | models | in which form | what it says |", "|---|---|---|---|---|")
        for c in tables.changes(result):
            change, said = f"{c['from']} → {c['to']} | {c['models']} of {c['of']}", c["message"].replace("|", "\\|")
            yield f"| {c['operator']} | {change} | {c['form']} | {said} |"
        yield from ("", "## Operators")
    yield from ("", "| operator | | models | where it does not work | causes |", "|---|---|---|---|---|")
    for one in operators:
        where = "; ".join(
            f"{trait} " + ", ".join(f"{value['value']} ({value['said']})" for value in values)
            for trait, values in one["shown"].items()
        )
        causes = ", ".join(f"`{cause['id'][-8:]}`" for cause in one["causes"])
        yield f"| {one['operator']} | {one['word']} | {one['said']} | {where} | {causes} |"


def _failing(forms: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, list[dict[str, str]]]:
    """The values that have to do with a failure, in words."""
    return {
        trait: [
            {"value": value, "said": tables.counts(counts), "word": max(counts, key=lambda name: counts[name])}
            for value, counts in values.items()
        ]
        for trait, values in forms.items()
    }


def _target(one: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    recipe = ", ".join(written(one["recipe"])) or "default recipe"
    options = [word for option in written(one["recipe"]) for word in ("--option", option)]
    again = shlex.join(["driftnet", "check", *given, "--target", f"{one['target']}=={one['release']}", *options])
    worst = sorted(one["end_to_end"], key=lambda row: -row["relative_l2"])
    return {
        **one,
        "recipe_text": recipe,
        "again": again,
        "about_notes": tables.about_notes(one),
        "about_culprits": tables.about_culprits(one),
        "end_to_end": worst,
        "chart": charts.along_the_depth(one["depth"]),
        "faults": [_fault(fault) for fault in one["faults"]],
    }


def _fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    path = (fault["reduced"] or {}).get("path", "") or fault["known_path"]
    picture, chart = charts.neighbourhood(fault["around"]), charts.histogram(fault["distribution"])
    cures = [tables.cure(one) for one in fault["goes_away_with"]]
    fault = {**fault, "picture": picture, "chart": chart, "goes_away_with": cures}
    if not path:
        return {**fault, "shown": None}
    saved = corpus.load(Path(path))
    return {**fault, "shown": shown(saved.case, saved.expected), "commands": commands(saved)}
