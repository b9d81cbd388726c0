"""Results as tables for a terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from driftnet.causes.upstream import reported
from driftnet.util.options import written
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Result = Mapping[str, Any]
AGREES = "agrees"  # `Word` imports libraries of arrays
COLOURS = {"agrees": "green", "rejects": "yellow", "invalid": "yellow", "abstains": "yellow"}
OUTPUTS = 5  # of a model, the worst, that are shown
SEVERAL = 8  # nodes, options or inputs that are told in a line
OPERATORS = 20  # of which most was never asked, that are listed
OF_LITTLE_USE = "of little use, quantized rightly or not: an output is lost in noise"
PLACES = 3  # that meet a cause, that are named
NEVER_BROKEN = ("case", "cause", "status", "outcome", "runs")  # columns of what one copies
SUMMED = 3  # verdicts, of more of which the last line is a summary
MESSAGE = 160  # characters of a message in a table; the case has all of it


def impact(finding: Result) -> str:
    """What a finding does to a user, how many models may meet it at most, and how often it comes back."""
    exposure = finding.get("exposure", 0.0)
    common = ", artificial" if finding.get("artificial") else f", at most {exposure:.1%} of models" if exposure else ""
    return f"{finding['severity']}{common}{comes(finding)}"


def comes(finding: Result) -> str:
    """How often a finding failed when it was run again, where that was not every time."""
    failed, runs = finding.get("reproduced", 0), finding.get("runs", 0)
    return f", shows in {failed} of {runs} runs" if failed < runs else ""


def shares(seconds: Mapping[str, float]) -> str:
    """What took which share of a time, as words."""
    total = sum(seconds.values())
    return ", ".join(f"{name} {100 * spent / max(total, 1e-9):.0f} %" for name, spent in seconds.items())


def replay(console: Console, result: Result) -> None:
    """One row a saved case, called by its digits; what is not as its status says stands out. Of several releases a
    column each."""
    wrong = [c for c in result["cases"] if not c["as_expected"]]
    number = len({c["id"] for c in result["cases"]})
    console.print(_by_case(result) if number == len(result["cases"]) else _by_release(result))
    on = ", ".join(dict.fromkeys(f"{c['target']}=={c['release']}" for c in result["cases"]))
    why = "interrupted" if result["interrupted"] else "for want of time"
    left = f"; {result['left']} not run to the end, {why}" if result["left"] else ""
    say(console, f"{counted(number, 'case')} on {on}, {len(wrong)} unexpected{left}")
    for name, count in result["absent"].items():
        say(console, f"{counted(count, 'case')} of {name} left out: it is not installed here; --target {name}==RELEASE")
    for c in result["cases"]:
        if c["status"] == "flaky" and not c["reproduced"] and c["outcome"] != "error":
            known = "of {1} runs it showed in {0} when it was saved".format(*c["shows"])
            again = f"driftnet replay {c['id'][-8:]} --runs {4 * c['runs']}"
            say(console, f"{c['id'][-8:]} did not fail in {counted(c['runs'], 'run')}; {known}: {again}")
    for c in wrong:
        said = f": {c['message']}"
        if c["status"] == "open" and c["outcome"] == "agrees":
            said = f" agrees on {c['target']}=={c['release']}: if that is a fix, driftnet triage CASE --status fixed"
        say(console, called(c["id"])[0] + said)


def _by_case(result: Result) -> Table:
    table = _table("case", "what", "status", "outcome", "runs", "")
    for c in result["cases"]:
        mark = "" if c["as_expected"] else "[red]unexpected[/]"
        if c["as_expected"] and c["status"] == "open" and c["outcome"] != "reproduces":
            mark = f"depends on the {c['depends']}"
        table.add_row(*called(c["id"]), c["status"], c["outcome"], f"{c['reproduced']}/{c['runs']}", mark)
    return table


def _by_release(result: Result) -> Table:
    releases = list(dict.fromkeys(f"{c['target']}=={c['release']}" for c in result["cases"]))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for c in result["cases"]:
        said = c["outcome"] if c["as_expected"] else f"[red]{c['outcome']}[/]"
        cells.setdefault((c["id"], c["status"]), {})[f"{c['target']}=={c['release']}"] = said
    table = _table("case", "what", "status", *releases)
    for (id, status), row in cells.items():
        table.add_row(*called(id), status, *(row.get(release, "") for release in releases))
    return table


def bisect(console: Console, result: Result) -> None:
    """One case: a row a release; all: a row a cause, with its history in words."""
    if "bisected" not in result:
        table = _table("release", "outcome", "")
        for state in result["states"]:
            colour = {"agrees": "green", "reproduces": "red"}.get(state["outcome"], "yellow")
            table.add_row(state["release"], f"[{colour}]{state['outcome']}[/]", escape(state["what"]))
        console.print(table)
        say(console, f"{result['id']} on {result['target']}: {result['sentence']}")
        if (tried := len(result["states"])) < result["releases"]:
            say(console, f"run on {tried} of {result['releases']} releases: between two alike, nothing was run")
        return
    table = _table("cause", "releases")
    for one in result["bisected"]:
        table.add_row(one["id"][-8:], escape(one["sentence"]))
    console.print(table)
    say(console, f"{counted(len(result['bisected']), 'cause')}; without a history: {result['left']}")


def support(console: Console, result: Result) -> None:
    """A row an operator, those that do not work always first."""
    table = _table("operator", "", "models", "known causes")
    for one in sorted(result["operators"], key=lambda one: one["word"] == "works"):
        colour = {"works": "green", "partly": "yellow", "refused": "yellow", "untold": "dim"}.get(one["word"], "red")
        said = counts(one["counts"])
        known = ", ".join(cause["id"][-8:] for cause in one["causes"])
        table.add_row(one["operator"], f"[{colour}]{one['word']}[/]", said, known)
    console.print(table)
    what = f"{result['models']} models of one operator each in {result['cpu_seconds']:.0f} CPU s"
    say(console, f"{result['target']} {result['release']}: {what}")
    if result["interrupted"]:
        console.print("  [yellow]interrupted[/]: more models may say otherwise")
    if result["against"]:
        changed = changes(result)
        say(console, f"otherwise than {result['against']}: {counted(sum(c['models'] for c in changed), 'model')}")
        for c in changed:
            form = f": {c['form']}" if c["form"] else ""
            say(console, f"  {c['operator']} {c['from']} → {c['to']}, {c['models']} of {c['of']}{form}")
    if result.get("page"):
        say(console, f"page: {result['page']}")


def changes(result: Result) -> list[dict[str, Any]]:
    """What became of operators since another release, what fails now and did not before that first; each with `form`,
    the values of traits that have to do with it, in words, and `of`, how many models of the operator there are."""
    found = [
        {**change, "operator": one["operator"], "of": one["models"], "form": _form(change["forms"])}
        for one in result["operators"]
        for change in one["changed"]
    ]
    return sorted(found, key=lambda change: (change["from"] != "works", change["to"] == "works", change["operator"]))


def _form(forms: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    told = {
        trait: ", ".join(f"{value} ({n['changed']} of {sum(n.values())})" for value, n in values.items())
        for trait, values in forms.items()
    }
    return "; ".join(f"{trait} {said}" for trait, said in told.items())


def coverage(console: Console, result: Result, *, every: bool = False) -> None:
    """For each target how much was asked, and the operators of which most was not; every: all of them."""
    for one in result["targets"]:
        table = _table("operator", "cases", "judged by", "never asked")
        asked = [told for told in one["operators"] if told["cases"]]
        gaps = sorted(asked, key=lambda told: told["forms"] - told["possible"])
        for told in gaps if every else gaps[:OPERATORS]:
            table.add_row(told["operator"], str(told["cases"]), counts(told["judged"]), escape(_never(told["never"])))
        console.print(table)
        if len(gaps) > OPERATORS and not every:
            say(console, f"{len(gaps) - OPERATORS} more operators of which less is left: --all lists them")
        what = f"{len(asked)} of {counted(len(one['operators']), 'operator')} asked"
        say(console, f"{one['target']}: {what}, {one['forms']} of their {one['possible']} types and attributes")
        if one["never"]:
            names = one["never"] if every else one["never"][:OPERATORS]
            more = len(one["never"]) - len(names)
            say(console, f"never asked: {', '.join(names)}{f' and {more} more' if more else ''}")
    if result.get("page"):
        say(console, f"page: {result['page']}")


def _never(never: Mapping[str, Sequence[str]]) -> str:
    """What was never asked of an operator but options, in words."""
    return "; ".join(f"{name} {', '.join(values)}" for name, values in never.items() if not name.startswith("recipe."))


def lint(console: Console, result: Result) -> None:
    """The causes that are met, each with its places; then those that may be."""
    met, may = result["met"], result["may"]
    causes, confirmed = len({m["cause"] for m in met}), "cleared" in result
    refused = f"{counted(len(result['refused']), 'node')} refused, " if result["refused"] else ""
    failing = len({m["node"] for m in may if "fails" in m})
    otherwise = f"{counted(failing, 'node')} failing otherwise, " if failing else ""
    colour = "red" if met or refused or failing else "yellow" if may else "green"
    console.print(
        f"[{colour}]{refused}{counted(causes, 'known cause')} met[/], "
        f"{otherwise}"
        f"{len({m['cause'] for m in may})} more may be{': --confirm runs them' if may and not confirmed else ''}; "
        f"of {result['causes']} of {result['target']} {result['release']} ({result['seconds']:.2f} CPU s)"
    )
    say(console, *misdeclared(result))
    for (op, function), group in groupby(result["custom"], key=lambda one: (one["op_type"], one["function"])):
        same = list(group)
        what = "a custom operator that nobody registered" if "::" in op else "none of ONNX, nor registered"
        what = "a function of the model" if function else what
        say(console, f"{op} is {what}: {several([one['node'] for one in same], PLACES)}", f"  {same[0]['advice']}")
    for when, group in groupby(result["refused"], key=lambda one: one["when"]):
        say(console, f"refused: {when}: {several([one['node'] for one in group], PLACES)}")
    for title, listed in (("met", met), ("may be met", may)):
        say(console, listed and f"{title}:")
        for cause, places in groupby(listed, key=lambda m: m["cause"]):
            there = list(places)
            first = there[0]
            say(
                console,
                f"{called(cause)[0]} {first['severity']}: {several(_nodes(there), PLACES)}",
                f"  {first['title']}",
                not first["title"].startswith(first["when"]) and f"  {first['when']}",
                title != "met" and f"  {first['why']}",
                *(
                    f"  {said}"
                    for said in dict.fromkeys(m["fails"] for m in there if "fails" in m)
                    if said != first["why"]
                ),
                *(f"  not run: {said}" for said in dict.fromkeys(m["not_run"] for m in there if "not_run" in m)),
                first.get("cure") and f"  avoids it, tried here: {first['cure']}",
                first["advice"] and f"  may avoid it: {first['advice']}",
                first["upstream"] and f"  {reported(first['upstream'])}",
            )


def audit(console: Console, result: Result) -> None:
    """The problems of a quantized model, the most telling question first."""
    problems = result["problems"]
    console.print(
        f"{_head(result)}: {counted(len(problems), 'problem')}; "
        f"{result['compared']:.1%} of the float model's nodes were compared"
    )
    say(
        console,
        made_up(result),
        *misdeclared(result),
        result["preprocessed"]
        and "  compared with the float model as onnxruntime's pre-processing (quant_pre_process) makes it",
        result["unmatched"] and f"  not compared: {several(_nodes(result['unmatched']))}",
        *_end_to_end(result["end_to_end"]),
        not result["usable"] and f"  {OF_LITTLE_USE}",
        *_vanishing(result),
        *(f"  wrong, but does nothing to the outputs: {said}" for said in result["notes"]),
    )
    if layers := [row for row in result["layers"] if row["sqnr_db"]][:OUTPUTS]:
        say(console, "  worst tensors: " + ", ".join(map(_decibels, layers)))
    for layer in result["in_float"]:
        rest = ", ".join(map(_decibels, layer["end_to_end"][:OUTPUTS]))
        own = _decibels({**layer["loss"], "output": f"{layer['op_type']} {layer['node']} has"}) + " by itself"
        say(console, f"  {own}; left in float: {rest}")
    for rule, count in result["excused"].items():
        say(console, f"{counted(count, 'node')} not compared: {rule} (docs/judgement.md) allows any result")
    table = Table("question", "where", "error", "bound", "what", box=None, pad_edge=False)
    for problem in problems:
        numbers = [f"{problem[key]:.3g}" for key in ("error", "bound")]
        table.add_row(problem["question"], escape(problem["where"]), *numbers, escape(problem["message"]))
    if problems:
        console.print(table)


def _vanishing(result: Mapping[str, Any]) -> list[str]:
    """What vanishes beside larger numbers, and what is lost where that is left in float which it vanishes in."""
    told = [f"  vanishes: {said}" for said in result["vanishing"]]
    rows = ", ".join(map(_decibels, result["joins_in_float"][:OUTPUTS]))
    return [*told, *([f"  left in float, the results of these joins: {rows}"] if rows else [])]


def _head(result: Mapping[str, Any]) -> str:
    """The verdict, coloured, and whether what is right is of use."""
    word = result["verdict"]
    useless = word == AGREES and not result["usable"]
    head, colour = (f"{word}, but of little use", "yellow") if useless else (word, COLOURS.get(word, "red"))
    return f"[{colour}]{head}[/]"


def check(console: Console, result: Result) -> None:
    """The verdict on one model, a paragraph a target and recipe."""
    for r in result["targets"]:
        recipe = ", ".join(written(r["recipe"])) or "default recipe"
        at = r.get("at_fault") or r["stage"]
        shows = f", shows in {r['stage']}" if r["stage"] and at != r["stage"] else ""
        where = (f" in {at}" if at else "") + (f" ({r['kind']}{shows})" if r["kind"] else "")
        known = ", known" if r["known"] and r["verdict"] != AGREES else ""
        verdict = f"{_head(r)}{where}{known}"
        console.print(f"[bold]{r['target']}=={r['release']}[/] {escape(recipe)}: {verdict}")
        rest = f"; not verified: {counts(r['doubtful'])}" if r["doubtful"] else ""
        stages = ", ".join(f"{s['stage']} {s['outcome']}" for s in r["stages"])
        say(
            console,
            made_up(r),
            r["made_up"] and r["nan_in_reference"] and f"  {nan_in_reference(r)}",
            *misdeclared(r),
            *(f"  {said}" for said in r["calibrated_elsewhere"]),
            r["unquantized"] and f"  {r['unquantized']}",
            r["quantized_already"] not in r["message"] and f"  {r['quantized_already']}",
            *(f"  without effect: {said}" for said in r.get("ignored", ())),
            r["accepted"] and f"  accepted, for the outputs are near enough: {r['accepted']}",
            r["message"] and f"  {r['message']}{_which(r)}",
            stages and f"  stages: {stages}",
            *_end_to_end(r["end_to_end"]),
            not r["usable"] and f"  {OF_LITTLE_USE}",
            *_vanishing(r),
            *(f"  {cost['message']}" for cost in r["kernels"] if cost["message"] not in r["message"]),
            *(f"  output {name}: random by definition: only its range is checked" for name in r["random"]),
            stages and f"  verified: {r['vouched']:.1%} of the nodes{rest}",
            r["culprits"] and f"  {about_culprits(r)}: {several(_nodes(r['culprits']))}",
            r["notes"] and f"  {about_notes(r)}: {several(_nodes(r['notes']))}",
        )
        for fault in r["faults"]:
            _fault(console, fault, "fault" if r["verdict"] != AGREES else "excused")
        if r["interrupted"]:
            console.print("  [yellow]interrupted[/]: there may be more faults, and cases may get smaller")
    if len(result["targets"]) > SUMMED:
        words = Counter(r["verdict"] for r in result["targets"])
        wrong = [r for r in result["targets"] if r["verdict"] not in COLOURS]
        under = {f"{r['target']} {', '.join(written(r['recipe'])) or 'default recipe'}" for r in wrong}
        said = ", ".join(f"{count} {word}" for word, count in words.items())
        say(
            console,
            f"of {counted(len(result['targets']), 'run')}: {said}{': ' if under else ''}{'; '.join(sorted(under))}",
        )


def made_up(result: Mapping[str, Any]) -> str:
    """Which inputs nobody gave, and of which shapes they are."""
    shapes = result.get("made_up_shapes", {})
    told = [f"{name} {shapes[name]}" if name in shapes else name for name in result["made_up"]]
    return f"  made up, give --inputs for real ones: {several(told)}" if told else ""


def nan_in_reference(check: Mapping[str, Any]) -> str:
    """What speaks against inputs that nobody gave."""
    named = several([repr(name) for name in check["nan_in_reference"]])
    return f"the reference is NaN on these made-up inputs, in {named}: give --inputs by which it is not"


def about_culprits(check: Mapping[str, Any]) -> str:
    """What the nodes are that are named: of a model that agrees, right by a rule or off by a known step."""
    return f"no failure of the model ({check['rule']})" if check["verdict"] == AGREES else "nodes at fault"


def misdeclared(result: Mapping[str, Any]) -> list[str]:
    """What is read otherwise than the model says."""
    return [f"  taken otherwise than it is declared: {said}" for said in result["misdeclared"]]


def about_notes(check: Mapping[str, Any]) -> str:
    """Why nodes are only noted: something comes out of the model all the same, or it fails otherwise."""
    ended = any(stage["outcome"] != "ok" for stage in check["stages"])
    if ended:
        return "fail by themselves, otherwise than the model"
    shares = [note["impact"] for note in check["notes"] if note["impact"] is not None]
    less = f"at most {max(shares):.1%} of their error" if any(shares) else "none that shows among other errors"
    return f"wrong, with little effect on the outputs, {less}"


def _which(check: Mapping[str, Any]) -> str:
    """Which error the message tells, where the largest is told too."""
    by_bound = check["end_to_end"] and "elements are wrong" in check["message"]
    return " (this element is the worst by its bound)" if by_bound else ""


def _end_to_end(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far the outputs are off, the worst first."""
    worst = sorted(rows, key=lambda row: row["relative_l2"], reverse=True)
    told = []
    for row in worst[:OUTPUTS]:
        ranks = [
            f"{what} the same in {row[name]:.1%}"
            for name, what in (("argmax", "largest"), ("top_k", "top 5"))
            if row[name] is not None
        ]
        numbers = [
            f"largest error {row['max_abs']:.3g}, of values up to {row['largest']:.3g}",
            f"relative L2 {row['relative_l2']:.2g}",
            "" if row["cosine"] is None else f"cosine {row['cosine']:.5f}",
            "" if row["sqnr_db"] is None else _decibels({**row, "output": "SQNR"}),
        ]
        told.append(f"  output {row['output']}: {', '.join(filter(None, (*numbers, *ranks)))}")
    more = len(worst) - OUTPUTS
    return told + ([f"  and {counted(more, 'output')} that are nearer"] if more > 0 else [])


def _decibels(row: Mapping[str, Any]) -> str:
    """The signal to noise of a row, after its name."""
    said = "exact" if not row["max_abs"] else "no signal" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f} dB"
    return f"{row['output']} {said}"


def _fault(console: Console, fault: Mapping[str, Any], called: str) -> None:
    """One fault of a model, whatever it is called: which nodes, how badly, what is known of it."""
    named = _nodes(fault["nodes"])
    more = f" and {len(named) - SEVERAL} more" if len(named) > SEVERAL else ""
    where = " with ".join(named[:SEVERAL]) + more or "the model as a whole"
    stage = f", at fault is {fault['stage']}" if fault["stage"] else ""
    share = "" if fault["impact"] is None else f", explains {fault['impact']:.0%} of the error of the outputs"
    what = f"{fault['verdict']} ({fault['kind']}, {fault['tier']}){stage}{share}"
    console.print(f"  [bold]{called}[/] {escape(where)}: {what}")
    cures = several([cure(one) for one in fault["goes_away_with"]])
    note = shortened(fault["note"], MESSAGE)
    say(
        console,
        f"    {fault['message']}",
        cures and f"    goes away with {cures}",
        fault["known"] and f"    known: {fault['cause']}: {note}",
        fault["known_path"] and f"    its known case: {fault['known_path']}",
        fault["looks_like"] and f"    looks like {fault['cause']}: {note}",
        fault["looks_like"] and f"    but is not shown to be that: {fault['unlike']}",
    )
    if reduced := fault["reduced"]:
        size = f"{counted(reduced['nodes'], 'node')}, {counted(reduced['elements'], 'element')}"
        left = "; ".join(reduced.get("remained", ())) or "nothing but operators, attributes and shapes"
        say(
            console,
            f"    reduced: {size}: {reduced['path'] or 'give --out DIR to keep it'}",
            reduced["unfinished"]
            and "    reduction stopped early; to continue: more --budget, or driftnet reduce CASE",
            "remained" in reduced and f"    left of the original: {left}",
        )


def report(console: Console, result: Result) -> None:
    """Where the pages are."""
    causes = counted(len({case["cause"] or case["id"] for case in result["cases"]}), "cause")
    runs = f" of {counted(len(result['runs']), 'run')}" if result["runs"] else ""
    say(console, f"{causes}, {counted(len(result['cases']), 'case')}{runs}: {result['page']}")


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
    files = result["files"]
    able = "can be hidden (--hide-files)" if files["can_be_hidden"] else f"cannot be hidden: {files['why_not']}"
    say(console, f"files outside a target's own: {'hidden' if files['hidden'] else able}")


def tried(console: Console, result: Result) -> None:
    """What became of the easiest model, recipe by recipe."""
    table = _table("recipe", "verdict", "stage", "")
    for row in result["tried"]:
        options = ", ".join(written(row["recipe"])) or "defaults"
        table.add_row(options, row["verdict"], row["stage"], escape(row["message"]))
    say(console, f"{result['target']}=={result['release']}: a Relu of four numbers")
    console.print(table)


def bench(console: Console, result: Result) -> None:
    """Benchmark results; with two of them, their ratios, as they are and beside the fixed work."""
    compared = ["before", "ratio", "by fixed work"] if "before" in result else []
    table = _table("benchmark", "measure", "value", *compared)
    for name, value in result["measures"].items():
        row = [result["name"], name, f"{value:.4g}"]
        if ratios := result.get("ratios", {}).get(name):
            row += [f"{result['before'][name]:.4g}", *("" if one is None else f"{one:.3f}" for one in ratios)]
        table.add_row(*row)
    console.print(table)
    if work := result.get("work"):
        before = f"; before, {result['work_before']:.2f}" if "work_before" in result else ""
        say(console, f"the fixed work took {work:.2f} CPU s{before}")


def selfcheck(console: Console, result: Result) -> None:
    """Detection of mutants by kind and by tier, and what clean targets were blamed for."""
    table = _table("kind", "stage", "effective", "detected", "what goes wrong")
    for name, kind in result["kinds"].items():
        table.add_row(name, kind["stage"], *(str(kind[n]) for n in ("effective", "detected")), escape(kind["what"]))
    console.print(table)
    say(console, "detected by: " + counts(result["tiers"]))
    for what, seen in (*result["places"].items(), ("on the grid", result["constructed"]), ("all", result)):
        share = seen["detected"] / seen["effective"] if seen["effective"] else 1.0
        console.print(f"{what}: {seen['detected']} of {seen['effective']} detected ({share:.1%})")
    if without := [name for name, kind in result["kinds"].items() if not kind["applies"]]:
        say(console, f"of what the target documents that it does not support: {', '.join(without)}")
    clean = result["clean"]
    console.print(
        f"clean targets: {counted(clean['cases'], 'case')}; false alarms: {clean['false_alarms']}; "
        f"known failures: {clean['set_aside']}"
    )
    for alarm in clean["alarms"]:
        verdict, around = alarm["verdict"], ", ".join(alarm["origin"].get("focus", ())) or "any operator"
        again = f"driftnet selfcheck --kind {alarm['kind']} --seed {result['seed']} --cases {result['cases']} --json"
        said = shortened(verdict.get("message", ""), MESSAGE)
        where = alarm["case"] or again
        say(console, f"false alarm on {alarm['target']} ({around}): {said}", f"  its recipe and verdict: {where}")
    say(console, *result["problems"], style="red")


def reduced(console: Console, result: Result) -> None:
    """What is left of a case or a model, and by which name it is known."""
    size = f"{counted(result['nodes'], 'node')}, {counted(result['elements'], 'element')}"
    cost = f"{counted(result['target_runs'], 'run')}, {result['cpu_seconds']:.1f} CPU s"
    known = f"known: {result['cause']}" if result["cause"] else "not known"
    say(
        console,
        f"reduced on {result['target']} to {size} ({cost}): {result['path']}",
        f"  of {result['of']}" + (f"; not {result['not']}" if "not" in result else ""),
        *misdeclared({"misdeclared": result.get("misdeclared", ())}),
        result["renamed"] and f"  what is left is called {result['renamed']}; {known}",
        result["interrupted"] and "  interrupted: it may get smaller",
        result["unfinished"]
        and not result["interrupted"]
        and "  reduction stopped early; to continue: more --budget, or driftnet reduce of that folder",
    )


def fields(console: Console, result: Result) -> None:
    """A small result as `name: value` lines."""
    say(console, *(f"{name}: {value}" for name, value in result.items()))


def called(id: str) -> tuple[str, str]:
    """What to call a cause or case on a command line, and the other words of its id."""
    slug, _, digits = id.removeprefix("test_").rpartition("_")
    return digits, slug.replace("_", " ")


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the plural unless it is one."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def counts(numbers: Mapping[str, int]) -> str:
    """The numbers with what they are of, as words."""
    return ", ".join(f"{number} {what}" for what, number in numbers.items())


def shortened(text: str, most: int) -> str:
    """The first line of `text`, cut to `most` characters."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= most else line[: most - 1] + "…"


def say(console: Console, *lines: Any, style: str = "") -> None:
    """A line for each text that is there; nothing in it is markup."""
    for line in filter(None, lines):
        console.print(line, style=style, markup=False, soft_wrap=True)


def several(words: Sequence[str], most: int = SEVERAL) -> str:
    """The first of some words, and how many more there are."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def cure(remedy: Mapping[str, Any]) -> str:
    """An option with which a fault goes away, as a person writes it."""
    return written({remedy["option"]: remedy["value"]})[0]


def _nodes(nodes: Sequence[Mapping[str, str]]) -> list[str]:
    return [f"{node['op_type']} {node['node']}" for node in nodes]


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in NEVER_BROKEN)
    return table
