"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Result = Mapping[str, Any]
OUTPUTS = 5  # of a model, the worst, that are shown
MESSAGE = 160  # characters of a message in a table; the case has all of it


def fuzz(console: Console, result: Result, folder: Path) -> None:
    """The end of a campaign: counts, findings, where they are."""
    per_cpu = result["cases"] / result["cpu_seconds"] if result["cpu_seconds"] else 0.0
    console.print(
        f"{counted(result['cases'], 'case')} of {counted(result['models'], 'model')} in {result['wall_seconds']:.0f} s "
        f"({result['cpu_seconds']:.0f} CPU s, {per_cpu:.1f} cases per CPU second)"
    )
    console.print("verdicts: " + ", ".join(f"{n} {word}" for word, n in result["verdicts"].items()))
    if result["unconfirmed"]:
        console.print(
            f"not reproducible in fresh processes, so not reported: {counted(result['unconfirmed'], 'failure')}"
        )
    if result["findings"]:
        console.print(_findings(result["findings"]))
    for finding in result["findings"]:
        if finding.get("unfinished"):
            again = f"reduction stopped early; to continue: driftnet reduce {finding['path']} --out DIR"
            console.print(again, markup=False, soft_wrap=True)
    for error in result["errors"]:
        console.print(f"error of driftnet in case {error['index']}: {error['message']}", style="red", markup=False)
    console.print(f"report: {folder / 'summary.md'}", markup=False)
    if any(f["status"] == "new" for f in result["findings"]):
        console.print(f"replay the new cases: driftnet replay {folder / 'cases'}", markup=False)


def replay(console: Console, result: Result) -> None:
    """One row a saved case; rows that are not as their status says stand out."""
    table = _table("case", "target", "status", "outcome", "runs", "")
    for c in result["cases"]:
        mark = "" if c["as_expected"] else "[red]unexpected[/]"
        if c["as_expected"] and c["status"] == "open" and c["outcome"] != "reproduces":
            mark = "not on this CPU, or another answer than when it was saved"
        release = f"{c['target']}=={c['release']}"
        table.add_row(c["id"], release, c["status"], c["outcome"], f"{c['reproduced']}/{c['runs']}", mark)
    console.print(table)
    wrong = [c for c in result["cases"] if not c["as_expected"]]
    console.print(f"{counted(len(result['cases']), 'case')}, {len(wrong)} unexpected")
    for c in wrong:
        if c["status"] == "open" and c["outcome"] == "agrees":
            said = f"agrees on {c['target']}=={c['release']}: if that is a fix, driftnet triage CASE --status fixed"
            console.print(f"{c['id']} {said}", markup=False)
        else:
            console.print(f"{c['id']}: {c['message']}", markup=False)


def audit(console: Console, result: Result) -> None:
    """The problems of a quantized model, the most telling question first."""
    colour = "red" if result["problems"] else "green"
    console.print(
        f"[{colour}]{result['verdict']}[/]: {counted(len(result['problems']), 'problem')}; "
        f"{result['vouched']:.1%} of the float model's nodes were compared"
    )
    for rule, count in result["excused"].items():
        console.print(
            f"{counted(count, 'node')} not compared: {rule} (docs/judgement.md) allows any result", markup=False
        )
    if not result["problems"]:
        return
    table = Table("question", "where", "error", "bound", "what", box=None, pad_edge=False)
    for problem in result["problems"]:
        numbers = [f"{problem[key]:.3g}" for key in ("error", "bound")]
        table.add_row(problem["question"], escape(problem["where"]), *numbers, escape(problem["message"]))
    console.print(table)


def check(console: Console, result: Result) -> None:
    """The verdict on one model, a paragraph a target and recipe."""
    for r in result["targets"]:
        colour = {"agrees": "green", "rejects": "yellow", "invalid": "yellow", "abstains": "yellow"}.get(
            r["verdict"], "red"
        )
        recipe = ", ".join(f"{k}={v}" for k, v in r["recipe"].items()) or "default recipe"
        where = f" in {r['stage']}" if r["stage"] else ""
        kind = (f" ({r['kind']})" if r["kind"] else "") + (", known" if r["known"] else "")
        console.print(
            f"[bold]{r['target']}=={r['release']}[/] {escape(recipe)}: [{colour}]{r['verdict']}[/]{where}{kind}"
        )
        if r["message"]:
            console.print(f"  {r['message']}", markup=False)
        if r["stages"]:
            console.print("  stages: " + ", ".join(f"{s['stage']} {s['outcome']}" for s in r["stages"]), markup=False)
        for output in sorted(r["outputs"], key=lambda o: o["error"], reverse=True)[:OUTPUTS]:
            console.print(
                f"  output {output['name']}: error {output['error']:.3g}, largest value {output['largest']:.3g}",
                markup=False,
            )
        for name in r["random"]:
            console.print(f"  output {name}: random by definition: only its range is checked", markup=False)
        if r["stages"]:
            doubtful = ", ".join(f"{count} {op}" for op, count in r["doubtful"].items())
            rest = f"; not verified: {doubtful}" if doubtful else ""
            console.print(f"  verified: {r['vouched']:.1%} of the nodes{rest}", markup=False)
        if r["culprits"]:
            console.print(
                "  nodes at fault: " + ", ".join(f"{c['op_type']} {c['node']}" for c in r["culprits"]), markup=False
            )
        for fault in r["faults"]:
            _fault(console, fault)
        if r["interrupted"]:
            console.print("  [yellow]interrupted[/]: there may be more faults, and cases may get smaller")


def _fault(console: Console, fault: Mapping[str, Any]) -> None:
    """One fault of a model: which nodes, how badly, what is known of it."""
    where = " with ".join(f"{c['op_type']} {c['node']}" for c in fault["nodes"]) or "the model as a whole"
    stage = f" in {fault['stage']}" if fault["stage"] else ""
    console.print(f"  [bold]fault[/] {escape(where)}: {fault['verdict']}{stage} ({fault['kind']}, {fault['tier']})")
    console.print(f"    {fault['message']}", markup=False)
    if fault["goes_away_with"]:
        cures = ", ".join(f"{cure['option']}={cure['value']}" for cure in fault["goes_away_with"])
        console.print(f"    goes away with {cures}", markup=False)
    if fault["known"]:
        console.print(f"    known: {fault['known_path'] or fault['known']}", markup=False)
    if reduced := fault["reduced"]:
        path = reduced["path"] or "give --out DIR to keep it"
        size = f"{counted(reduced['nodes'], 'node')}, {counted(reduced['elements'], 'element')}"
        console.print(f"    reduced: {size}: {path}", markup=False)
        if reduced["unfinished"]:
            console.print(
                "    reduction stopped early; to continue: more --budget, or driftnet reduce CASE", markup=False
            )
        if "remained" in reduced:
            left = "; ".join(reduced["remained"]) or "nothing but operators, attributes and shapes"
            console.print(f"    left of the original: {left}", markup=False)


def report(console: Console, result: Result) -> None:
    """Where the pages are."""
    counts = f"{counted(len(result['cases']), 'case')}, {counted(len(result['runs']), 'run')}"
    console.print(f"{counts}: {result['page']}", markup=False)


def targets(console: Console, result: Result) -> None:
    """What can be examined, and how."""
    for t in result["targets"]:
        installed, others = t["installed"] or "no", ", ".join(t["releases"]) or "none"
        network = "cut off" if t["network_isolated"] else "NOT cut off"
        console.print(f"[bold]{t['name']}[/] installed: {installed}; other releases: {others}; network: {network}")
        table = _table("stage", "option", "values (default first)", "")
        for o in t["options"]:
            table.add_row(o["stage"], o["name"], ", ".join(map(str, o["values"])), escape(o["help"]))
        console.print(table)


def bench(console: Console, result: Result) -> None:
    """Benchmark results; with two of them, their ratio."""
    table = _table("benchmark", "measure", "value", *(["before", "ratio"] if "before" in result else []))
    for name, value in result["measures"].items():
        row = [result["name"], name, f"{value:.4g}"]
        if before := result.get("before", {}).get(name):
            row += [f"{before:.4g}", f"{value / before:.3f}"]
        table.add_row(*row)
    console.print(table)


def selfcheck(console: Console, result: Result) -> None:
    """Detection of mutants by kind and by tier, and what clean targets were blamed for."""
    table = _table("kind", "stage", "effective", "detected", "what goes wrong")
    for name, kind in result["kinds"].items():
        counts = (str(kind["effective"]), str(kind["detected"]))
        table.add_row(name, kind["stage"], *counts, escape(kind["what"]))
    console.print(table)
    console.print("detected by: " + ", ".join(f"{tier} {n}" for tier, n in result["tiers"].items()))
    for what, counts in (*result["places"].items(), ("on the grid", result["constructed"]), ("all", result)):
        share = counts["detected"] / counts["effective"] if counts["effective"] else 1.0
        console.print(f"{what}: {counts['detected']} of {counts['effective']} detected ({share:.1%})")
    clean = result["clean"]
    console.print(
        f"clean targets: {counted(clean['cases'], 'case')}; false alarms: {clean['false_alarms']}; "
        f"known failures: {clean['set_aside']}"
    )
    for alarm in clean["alarms"]:
        verdict, around = alarm["verdict"], ", ".join(alarm["origin"].get("focus", ())) or "any operator"
        console.print(
            f"false alarm on {alarm['target']} ({around}): {shortened(verdict.get('message', ''), MESSAGE)}\n"
            f"  its recipe and verdict: driftnet selfcheck --kind {alarm['kind']} --seed {result['seed']} "
            f"--cases {result['cases']} --json",
            markup=False,
        )
    for problem in result["problems"]:
        console.print(problem, style="red", markup=False)


def fields(console: Console, result: Result) -> None:
    """A small result as `name: value` lines."""
    for name, value in result.items():
        console.print(f"{name}: {value}", markup=False)


def _findings(findings: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("finding", "status", "times", "nodes", "elements")
    for f in sorted(findings, key=lambda f: (f["status"] != "new", f["id"])):
        row = [f["status"], f["times"], f["nodes"], f["elements"]]
        said = shortened(f["message"], MESSAGE)
        table.add_row(f"{f['id']}\n  [dim]{escape(said)}[/]", *map(str, row))
    return table


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the plural unless it is one."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def shortened(text: str, most: int) -> str:
    """The first line of `text`, cut to `most` characters."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= most else line[: most - 1] + "…"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
