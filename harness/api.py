"""What the command line and a notebook both call: one function a command, returning what `--json` prints."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from generators import bulk
from harness import audit as audits
from harness import bench as benchmarks
from harness import campaign, corpus, environments, external, handover, neighbours, recipe
from harness import check as checks
from harness import selfcheck as selfchecks
from harness.anonymise import anonymised
from harness.case import Case, elements, graph_inputs, nodes
from harness.environments import Installed, resolve
from harness.errors import UserError
from harness.feeds import made_up, read_feeds
from harness.files import replace_text
from harness.known import Mask, mask_of
from harness.laboratory import Laboratory
from harness.machine import cpu_features
from harness.pipeline import Effort, examine, look, reproduces
from harness.recipe import Recipe
from harness.sandbox.zygote import Zygote
from harness.shard import Event, Plan, case_folders
from harness.summary import Summary, described
from harness.verdict import FAILURES, Kind, Verdict, Word
from harness.wire import STAGES

HANGING_SECONDS = 2.0  # a saved case has a node or two: if it hung, and still runs after this time, it still hangs
LARGEST = 1.7976931348623157e308  # JSON has no infinity
HELD = 4
"""How often one stage may hold a model's weights: as read, as its own, packed for a kernel, as written."""

Listener = Callable[[Summary, Event], None]
MEMORY_GIB = 4.0
DEFAULT_TARGETS = ("mnn", "onnxruntime-quant")


def fuzz(
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    minutes: float | None = None,
    cases: int | None = None,
    seed: int = 0,
    workers: int = 1,
    focus: Sequence[str] = (),
    corpus_folder: Path = Path("corpus"),
    save: bool = False,
    report: Path,
    steer: bool = True,
    resume: bool = False,
    seeds: Sequence[Path] = (),
    python: str | None = None,
    timeout: float = 3.0,
    memory_gib: float = MEMORY_GIB,
    listeners: Sequence[Listener] = (),
) -> Summary:
    """Fuzz until `minutes` are over or `cases` (model x target x recipe) are examined; by default for two minutes.

    New cases are written below `report`/cases as they are found and, when `save`, into `corpus_folder` too. `resume`
    goes on with the case indices after those of the summary.json in `report`. With `seeds` (ONNX files, saved cases,
    folders of them) the cases are neighbours of these. `python` is the interpreter that holds
    the targets (None: this one, or one made for the release that a target names). Listeners are called with the summary
    so far and each event.

    Raises UserError for an unknown target or focus, for folders that cannot be written, for saved cases that are not
    whole, and when there is nothing to resume.
    """
    for word in targets:
        resolve(word, python=python)
    _check_focus(focus)
    neighbours.seeds(seeds)
    plan = Plan(
        targets=tuple(targets),
        seed=seed,
        corpus=corpus_folder,
        cases=report / "cases",
        focus=tuple(focus),
        steer=steer,
        seeds=tuple(seeds),
        python=python,
        timeout=timeout,
        memory_gib=memory_gib,
    )
    _make_folder(plan.cases)
    if save:
        _make_folder(corpus_folder)
    for folder in (*case_folders(plan.corpus), *case_folders(plan.cases)):
        corpus.load(folder)  # one that is not whole is said now: a shard could only die of it
    summary = Summary(run_cases=plan.cases, seed=seed)
    if resume:
        _restore(summary, report / "summary.json")
    if minutes is None and cases is None:
        minutes = 2.0
    bounds = campaign.Bounds(
        seconds=math.inf if minutes is None else minutes * 60, cases=math.inf if cases is None else cases
    )

    def hear(event: Event) -> None:
        summary(event)
        if save and event["event"] == "found":
            corpus.save(corpus.load(Path(event["path"])), corpus_folder)
        for listener in listeners:
            listener(summary, event)

    campaign.run(plan, bounds, workers=workers, listener=hear, first_index=summary.next_index)
    return summary


def generate(
    *, cases: int, seed: int, out: Path, focus: Sequence[str] = (), seeds: Sequence[Path] = ()
) -> dict[str, Any]:
    """Write `cases` generated cases as ONNX backend tests `out`/test_<index>/, expected outputs left out.

    With `seeds` (ONNX files, saved cases, folders of them) they are neighbours of these. Each folder appears whole, in
    the place of what an earlier run left there. Raises UserError for an unknown focus, for seeds that cannot be used,
    and (kind "disk") when a folder cannot be written.
    """
    _check_focus(focus)
    _make_folder(out)
    started = time.process_time()
    if seeds:
        return _generate_neighbours(cases, seed, out, neighbours.seeds(seeds))
    for index in range(cases):
        _write_case(bulk.case(seed, index, focus=tuple(focus)), out, index)
    return {"cases": cases, "cpu_seconds": round(time.process_time() - started, 3)}


def _generate_neighbours(cases: int, seed: int, out: Path, seeds: Sequence[Case]) -> dict[str, Any]:
    with Laboratory(small_models=True) as lab:
        started = _cpu_seconds(lab)
        for index in range(cases):
            _write_case(neighbours.neighbour(seeds, seed, index, lab.reference), out, index)
        return {"cases": cases, "cpu_seconds": round(_cpu_seconds(lab) - started, 3)}


def _write_case(case: Case, out: Path, index: int) -> None:
    with corpus.whole(out / f"test_{index:06d}", replace=True) as folder:
        corpus.write_model(case, (), folder)


def _cpu_seconds(lab: Laboratory) -> float:
    return time.process_time() + lab.cpu_seconds


def _restore(summary: Summary, path: Path) -> None:
    try:
        summary.restore(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(
            f"cannot go on with the run of {path}: {e}",
            hint="give --report DIR of a run that wrote a summary.json, and the same --seed",
            kind="report",
        ) from e


def _check_focus(focus: Iterable[str]) -> None:
    known = bulk.known_focus()
    for name in focus:
        if name not in known:
            raise UserError(
                f"nothing to focus on is called {name!r}",
                hint="operators, families and motifs: " + ", ".join(sorted(known)),
                kind="focus",
            )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as e:
        raise UserError(
            f"cannot write into {folder}: {e.strerror}",
            hint="name another folder, or mend its permissions",
            kind="disk",
        ) from e


def replay(
    paths: Sequence[Path] = (Path("corpus"),),
    *,
    target: str = "",
    runs: int = 5,
    python: str | None = None,
    timeout: float = 20.0,
) -> dict[str, Any]:
    """Run every saved case at or below `paths`, `runs` times in fresh workers: does it behave as its status says?

    target  examine this target (release) instead of the one that each case names
    python  the interpreter that holds the targets; None: this one, or one made for the release

    Raises UserError, before anything is run, for a case that is not whole and for a target that there is not.
    """
    folders = corpus.folders(paths)
    if not folders:
        raise UserError(
            f"no saved case below {', '.join(map(str, paths))}", hint="driftnet fuzz finds some", kind="case"
        )
    loaded = [corpus.load(folder) for folder in folders]
    for word in {target or saved.target for saved in loaded}:
        resolve(word, python=python)
    with Laboratory(timeout=timeout) as lab:
        cases = [replay_one(saved, target, runs, lab, python=python) for saved in loaded]
        return {"cases": cases, "network_isolated": lab.network_isolated}


def replay_status(result: Mapping[str, Any]) -> int:
    """The exit status of `replay`: 1 when a case does not behave as its status says, 3 when an open one reproduced."""
    if not all(case["as_expected"] for case in result["cases"]):
        return 1
    return 3 if any(c["status"] == "open" and c["outcome"] == "reproduces" for c in result["cases"]) else 0


def behaves(saved: corpus.SavedCase, outcome: str) -> bool:
    """Whether `outcome` is what the status of `saved` promises. An open case is strict only where the CPU features are
    those it was seen with; flaky and expected ones may do anything but be invalid."""
    if saved.status == "fixed":
        return outcome == "agrees"
    if saved.status in ("flaky", "expected"):
        return outcome != "error"
    same_machine = saved.machine.get("cpu_features") == list(cpu_features())
    return outcome == "reproduces" or (outcome == "agrees" and not same_machine)


def replay_one(
    saved: corpus.SavedCase, target: str, runs: int, lab: Laboratory, *, python: str | None = None
) -> dict[str, Any]:
    """Run one saved case `runs` times in fresh workers; `target` and `python` as in `replay`."""
    installed = resolve(target or saved.target, python=python)
    patience = HANGING_SECONDS if saved.kind == Kind.HANG else math.inf
    with lab.hurried(patience):
        verdicts = [look(saved.case, installed, saved.recipe, lab, fresh=True) for _ in range(runs)]
    same = [v for v in verdicts if reproduces(saved, v)]
    worst = next((v for v in verdicts if v.failed), verdicts[0])
    if same:
        outcome = "reproduces"
    elif worst.failed:
        outcome = "differs"
    else:
        outcome = "error" if worst.word is Word.INVALID else "agrees"
    return {
        "id": saved.id,
        "target": installed.target.name,
        "release": installed.release,
        "status": saved.status,
        "outcome": outcome,
        "runs": runs,
        "reproduced": len(same),
        "as_expected": behaves(saved, outcome),
        "message": worst.message,
    }


def check(
    model: Path,
    *,
    targets: Sequence[str] = DEFAULT_TARGETS,
    inputs: Path | None = None,
    calibration: Path | None = None,
    recipe_json: Recipe | None = None,
    options: Mapping[str, str] | None = None,
    sweep: bool = False,
    dims: Mapping[str, int] | None = None,
    corpus_folder: Path = Path("corpus"),
    out: Path | None = None,
    python: str | None = None,
    timeout: float = 60.0,
    memory_gib: float = MEMORY_GIB,
    budget: float = 300.0,
    tell: Callable[[str], None] = lambda text: None,
    anonymous: bool = False,
) -> dict[str, Any]:
    """Examine one real model on `targets`, and reduce what fails; reduced cases are written below `out`.

    recipe_json, options, sweep   one recipe as a whole; options as texts; or every option's every value in turn
    dims   sizes for symbolic dims of inputs that are made up
    python   the interpreter that holds the targets; None: this one, or one made for the release that a target names
    budget   seconds for each target and recipe after which nothing new is begun, and what was found so far is told
    tell     hears what is being done, for people; KeyboardInterrupt ends the check, and what was found so far is kept
    anonymous   write no name, text or number of the model below `out` but what a failure needs; `remained` says which

    Raises UserError for a model or feeds that cannot be used, a feed that contradicts the model, unknown options and
    dims, and when `out` cannot be written.
    """
    proto = corpus.read_onnx(model, entire=False)
    _check_dims(proto, dims or {})
    if out:
        _make_folder(out)
    feeds = read_feeds(inputs, proto, "inputs") if inputs else (made_up(proto, dims or {}),)
    samples = read_feeds(calibration, proto, "calibration") if calibration else ()
    case = external.case(proto, model, feeds, samples, {"file": model.name})
    held = [resolve(word, python=python) for word in targets]
    runs = [(one, chosen) for one in held for chosen in _recipes(one, recipe_json, options or {}, sweep)]
    masks = [mask_of(saved) for saved in corpus.load_all(corpus_folder) if saved.status != "fixed"]
    with Laboratory(timeout=timeout, memory_gib=_memory(memory_gib, case)) as lab:
        results: list[dict[str, Any]] = []
        for one, chosen in runs:
            try:
                results.append(_check_one(case, one, chosen, lab, masks, out, budget, tell, anonymous))
            except KeyboardInterrupt:
                if not results:
                    raise
                results[-1]["interrupted"] = True
            if results[-1]["interrupted"]:
                break
        return {"targets": results, "network_isolated": lab.network_isolated}


def _memory(gib: float, case: Case) -> float:
    """What a worker may use: `gib`, or as many times what a large model keeps outside itself as a stage may hold it."""
    return max(gib, HELD * external.outside(case.proto) / 2**30)


def check_status(result: Mapping[str, Any]) -> int:
    """The exit status of `check`: 1 for a failure, 3 when every failure is known, 2 when something was not judged."""
    failures = [r for r in result["targets"] if Word(r["verdict"]) in FAILURES]
    if failures:
        return 3 if all(r["known"] for r in failures) else 1
    return 0 if all(r["verdict"] == Word.AGREES for r in result["targets"]) else 2


def _check_dims(model: onnx.ModelProto, dims: Iterable[str]) -> None:
    symbolic = {d.dim_param for v in graph_inputs(model) for d in v.type.tensor_type.shape.dim if d.dim_param}
    for name in dims:
        if name not in symbolic:
            raise UserError(
                f"no input of the model has a dim called {name!r}",
                hint=f"symbolic dims of its inputs: {', '.join(sorted(symbolic)) or 'none'}",
                kind="option",
            )


def _recipes(
    installed: Installed, whole: Recipe | None, options: Mapping[str, str], sweep: bool
) -> list[dict[str, Any]]:
    target = installed.target
    if sweep:
        return recipe.swept(target)
    chosen = dict(whole or {}) | {name: recipe.parsed(target, name, text) for name, text in options.items()}
    return [recipe.validated(target, chosen)]


def _check_one(
    case: Case,
    installed: Installed,
    chosen: Recipe,
    lab: Laboratory,
    masks: Sequence[Mask],
    out: Path | None,
    seconds: float,
    tell: Callable[[str], None],
    anonymous: bool,
) -> dict[str, Any]:
    runs_before, cpu_before = lab.target_runs, _cpu_seconds(lab)
    named = f"{installed.target.name}: "
    checked = checks.check(case, installed, chosen, lab, masks, seconds=seconds, tell=lambda text: tell(named + text))
    result = checked.as_json()
    for diagnosis, fault in zip(checked.diagnoses, result["faults"]):
        finding = diagnosis.examination.finding
        if finding and anonymous:
            finding, fault["reduced"]["remained"] = anonymised(finding, lab)
        if out and finding:
            folder = corpus.save(finding.to_save(), out)
            cures = [f"{r.option} = {r.value}" for r in diagnosis.remedies]
            handover.write(folder, installed, lab, remedies=cures)
            fault["reduced"]["path"] = str(folder)
    faults = sorted(result["faults"], key=lambda fault: bool(fault["known"]))
    return {
        "target": installed.target.name,
        "release": installed.release,
        "recipe": dict(chosen),
        **result,
        "blame": _blame(checked.verdict, installed),
        "goes_away_with": faults[0]["goes_away_with"] if faults else [],
        "reduced": next((fault["reduced"] for fault in faults if fault["reduced"]), None),
        "target_runs": lab.target_runs - runs_before,
        "cpu_seconds": round(_cpu_seconds(lab) - cpu_before, 2),
    }


def _blame(verdict: Verdict, installed: Installed) -> str:
    if verdict.failed:
        return installed.target.name
    if verdict.word is Word.INVALID:
        return "model"
    broke = verdict.word is Word.ABSTAINS and verdict.message.startswith("the reference")
    return "reference" if broke else ""


def audit(
    model: Path, quantised: Path, *, inputs: Path | None = None, timeout: float = 60.0, memory_gib: float = MEMORY_GIB
) -> dict[str, Any]:
    """Whether the ONNX model in `quantised` is a right quantisation of that in `model`, and executed as written.

    inputs   feeds for both; without them two are made up

    Raises UserError for files and feeds that cannot be used, for models whose inputs or outputs differ, and where
    nothing is quantised.
    """
    proto, other = corpus.read_onnx(model), corpus.read_onnx(quantised)
    audits.check_pair(proto, other)
    feeds = read_feeds(inputs, proto, "inputs") if inputs else tuple(made_up(proto, {}, seed) for seed in (0, 1))
    with Laboratory(timeout=timeout, memory_gib=memory_gib) as lab:
        found = audits.audit(proto, other, feeds, lab)
        return {
            "verdict": str(found.verdict),
            "problems": [
                {
                    "question": problem.question,
                    "where": problem.where,
                    "error": min(problem.error, LARGEST),
                    "bound": problem.bound,
                    "message": problem.message,
                    "culprit": {"node": problem.culprit[0], "op_type": problem.culprit[1]},
                }
                for problem in found.problems
            ],
            "vouched": found.vouched,
            "tolerated": found.tolerated,
            "network_isolated": lab.network_isolated,
        }


def reduce(
    path: Path,
    *,
    target: str = "",
    budget: float = 60.0,
    out: Path,
    python: str | None = None,
    timeout: float = 20.0,
) -> dict[str, Any]:
    """Reduce a saved case, or a model with made-up inputs, and write the result below `out`, ready to be handed over.

    Raises UserError when the case does not fail: there is nothing to reduce then; and when `out` cannot be written.
    """
    before = corpus.load(path) if path.is_dir() else None
    if before:
        case, chosen, word = before.case, before.recipe, target or before.target
    else:
        proto = corpus.read_onnx(path, entire=False)
        case, chosen, word = external.case(proto, path, [made_up(proto, {})]), {}, target or DEFAULT_TARGETS[0]
    installed = resolve(word, python=python)
    _make_folder(out)
    with Laboratory(timeout=timeout, memory_gib=_memory(MEMORY_GIB, case)) as lab:
        cpu_before = _cpu_seconds(lab)
        if before:
            examined = examine(case, installed, chosen, lab, effort=Effort(seconds=budget))
            verdict, findings = examined.verdict, [examined.finding]
        else:  # a model may be so deep that only its windows tell
            checked = checks.check(case, installed, chosen, lab, (), seconds=budget)
            verdict, findings = checked.verdict, [diagnosis.examination.finding for diagnosis in checked.diagnoses]
        finding = next((finding for finding in findings if finding), None)
        if finding is None:
            raise UserError(
                f"nothing to reduce: {word} {verdict.word} on {path}. {verdict.message}",
                hint="name the target that fails with --target",
                kind="case",
            )
        found = finding.to_save()
        if before and before.fine == found.fine:  # what is known of it stays known
            known = {name: getattr(before, name) or getattr(found, name) for name in ("note", "upstream", "not_seen")}
            found = dataclasses.replace(found, seen=tuple(dict.fromkeys((*before.seen, *found.seen))), **known)
        folder = corpus.save(found, out)
        handover.write(folder, installed, lab)
        return {
            "path": str(folder),
            "nodes": nodes(finding.case),
            "elements": elements(finding.case),
            "target_runs": lab.target_runs,
            "cpu_seconds": round(_cpu_seconds(lab) - cpu_before, 2),
            "interrupted": finding.interrupted,
            "network_isolated": lab.network_isolated,
        }


def report(paths: Sequence[Path] = (Path("corpus"),), *, out: Path) -> dict[str, Any]:
    """Every saved case at or below `paths` (folders of runs, of the corpus, of a check), and what the runs counted.

    The pages about them belong into `out`, which is made. Raises UserError when it cannot be, when there is no such
    path, and when a case or summary is not whole.
    """
    _make_folder(out)
    found = [corpus.load(folder) for folder in corpus.folders(paths)]
    return {
        "runs": [_run(path / "summary.json") for path in paths if (path / "summary.json").exists()],
        "cases": [
            described(saved, saved.seen[-1] if saved.seen else "", saved.status)
            | {"what": saved.note or str(saved.verdict.get("message", "")) or saved.id}
            for saved in {saved.id: saved for saved in found}.values()
        ],
    }


def _run(path: Path) -> dict[str, Any]:
    summary = Summary(run_cases=path.parent / "cases")
    try:
        result = json.loads(path.read_text())
        summary.seed = result["seed"]
        summary.restore(result)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(
            f"{path} is no summary of a run: {e}", hint="name the folder of a driftnet fuzz run", kind="report"
        ) from e
    new = len(summary.new)
    counted = {"new": new, "known": len(summary.findings) - new, "cpu_seconds": summary.cpu_before}
    return {
        "path": str(path.parent),
        "cases": summary.cases,
        "verdicts": dict(summary.verdicts.most_common()),
        **counted,
    }


def triage(
    path: Path, *, status: str, upstream: str = "", note: str = "", root: Path = Path("corpus")
) -> dict[str, Any]:
    """Set the status of a saved case, with an upstream link and a note; a case outside `root` is brought into it.

    Raises UserError for an unknown status, and for `expected` without a note that names the documented rule.
    """
    if status not in corpus.STATUSES:
        raise UserError(
            f"a case cannot be {status!r}", hint=f"it is one of {', '.join(corpus.STATUSES)}", kind="option"
        )
    if status == "expected" and not note:
        raise UserError("an expected case names its rule", hint="say which with --note", kind="option")
    saved = corpus.load(path)
    if not path.resolve().is_relative_to(root.resolve()):
        saved = corpus.load(corpus.save(saved, root))
    changes = {"upstream": upstream or saved.upstream, "note": note or saved.note}
    changes["rule"] = note if status == "expected" else saved.rule
    updated = corpus.update(saved, status=status, **changes)
    return {
        "id": updated.id,
        "path": str(updated.path),
        "status": status,
        "upstream": updated.upstream,
        "note": updated.note,
    }


def targets(*, prune: bool = False) -> dict[str, Any]:
    """Every registered target with its releases and options; `prune` deletes the environments of other releases."""
    if prune:
        environments.prune()
    with Zygote() as zygote:
        isolated = zygote.network_isolated
    return {"targets": [_described(name) | {"network_isolated": isolated} for name in environments.registered()]}


def bench(name: str = "cases", *, compare: tuple[Path, Path] | None = None, out: Path | None = None) -> dict[str, Any]:
    """Run one benchmark, or put two results beside each other (the second against the first).

    Raises UserError for an unknown benchmark, a file that holds no result, and when `out` cannot be written.
    """
    if out:
        _make_folder(out.parent)
        if out.is_dir():
            raise UserError(f"cannot write {out}: it is a folder", hint="name a file in it", kind="disk")
    if compare:
        before, result = (benchmarks.read(path) for path in compare)
        result["before"] = before["measures"]
    else:
        result = benchmarks.run(name)
    if out:
        replace_text(out, json.dumps(result, indent=1) + "\n")
    return result


def selfcheck(
    *,
    cases: int = 22,
    seed: int = 0,
    kinds: Sequence[str] = (),
    workers: int = 1,
    corpus_folder: Path = Path("corpus"),
    listener: selfchecks.Listener = selfchecks.nobody,
) -> dict[str, Any]:
    """Plant bugs into real targets and count which are detected, on `cases` effective cases of each kind of bug.

    kinds  names of planted bugs, all by default; the listener is told of each that is done. What the open cases in
    `corpus_folder` explain is no false alarm. Raises UserError for a kind that there is not.
    """
    counts = selfchecks.run(
        kinds, cases=cases, seed=seed, workers=workers, corpus_folder=corpus_folder, listener=listener
    )
    return selfchecks.summary(counts)


def selfcheck_status(result: Mapping[str, Any]) -> int:
    """The exit status of `selfcheck`: 1 when too little is detected, or there is a false alarm."""
    return 1 if result["problems"] else 0


def _described(name: str) -> dict[str, Any]:
    installed = resolve(name)
    made = [e.release for e in environments.environments() if e.distribution == installed.target.distribution]
    return {
        "name": name,
        "installed": installed.release,
        "releases": made,
        "stages": list(STAGES),
        "options": [
            {"name": o.name, "stage": o.stage, "values": list(o.values), "help": o.help, "when": dict(o.when)}
            for o in installed.target.options
        ],
    }
