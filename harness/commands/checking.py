"""One model, checked on targets."""

import math
import mmap
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from driftnet.causes.host import host_of
from driftnet.diagnosis import check as checks
from driftnet.diagnosis.end_to_end import are_usable, within
from driftnet.diagnosis.requantized import QUANTIZED_ALREADY
from driftnet.diagnosis.result import Diagnosis
from driftnet.findings import corpus
from driftnet.findings.issues import KnownIssue, issues
from driftnet.findings.telling import cause_as_met, note_of
from driftnet.findings.trial import Trial, plain_number, takes_samples
from driftnet.model import external_data
from driftnet.model.arrays import has_nan
from driftnet.model.feeds import demand_dims, given_or_beside, made_up, made_up_otherwise
from driftnet.model.inspect import Case, Feed, graph_inputs
from driftnet.model.verdict import FAILURES, Verdict, Word
from driftnet.oracle.artifact.verified.calibration import CALIBRATED_ELSEWHERE, ranges_of
from driftnet.oracle.tolerances.table import CUT_OFF, FOREIGN
from driftnet.run.runner import Runner
from driftnet.run.share import MEMORY_GIB, REAL_SECONDS
from driftnet.targets import recipe
from driftnet.targets.environments import Installed, resolve
from driftnet.targets.interface import Target
from driftnet.targets.recipe import Recipe
from driftnet.targets.registry import DEFAULT_TARGETS
from driftnet.util.apart import at_risk
from driftnet.util.errors import UserError
from driftnet.util.files import make_folder
from driftnet.util.options import demand_mapping, listed

HELD = 4
"""How often one stage may hold a model's weights: as read, as its own, packed for a kernel, as written."""

BUDGETS = (5.0, 27.0), (20.0, 115.0), (math.inf, 290.0)
"""(MiB of a model up to which, CPU seconds that a check of it may take): 30, 120 and 300 with what starting takes."""

SECONDS_A_GIB = 60.0
"""What a stage may take for the weights of a large model: quantizing them takes a third of that on a core to itself."""


RECIPE = '{"quantize": "offline"}'
"""What a person is shown a recipe by."""


def demand_mappings(dims: object, options: object) -> None:
    """Raise UserError (kind "option") unless both are mappings, as a caller in Python may get wrong."""
    demand_mapping(dims, "dims", '{"batch": 1}')
    demand_mapping(options, "options", RECIPE)


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """How a model is checked.

    inputs, calibration   files or folders of feeds; else the data sets beside an only model; else feeds are made up,
              with these `dims` for symbolic ones
    recipe, options, sweep   one recipe as a whole; options as texts; or every option's every value in turn
    corpus    folder of known cases, None: corpus/, and those that came with driftnet;   out   where reduced cases are
              written
    python    the interpreter that holds the targets; None: this one, or one made for the release that a target names
    timeout, memory_gib   what a stage may take and a worker use; a large model is given more, by SECONDS_A_GIB and HELD
    budget    CPU seconds for each target and recipe after which nothing is run, and what was found so far is told;
              None: what a model of its size is worth, by BUDGETS
    atol, rtol, accept   outputs within these of the reference's, element by element, are accepted whatever the verdict,
              and `accept` says why
    anonymize   write no name, text or number of the model below `out` but what a failure needs; `remained` says which
    """

    targets: str | Sequence[str] = DEFAULT_TARGETS
    inputs: Path | str | None = None
    calibration: Path | str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    recipe: Recipe | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    sweep: bool = False
    corpus: Path | str | None = None
    out: Path | str | None = None
    python: str | None = None
    timeout: float = REAL_SECONDS
    memory_gib: float = MEMORY_GIB
    budget: float | None = None
    anonymize: bool = False
    atol: float = 0.0
    rtol: float = 0.0
    accept: str = ""

    def __post_init__(self) -> None:
        demand_mappings(self.dims, self.options)
        demand_mapping(self.recipe, "recipe", RECIPE)

    def budget_of(self, case: Case) -> float:
        """CPU seconds for that model."""
        mib = (len(case.model) + external_data.outside(case.proto)) / 2**20
        usual = next(seconds for most, seconds in BUDGETS if mib <= most)
        return usual if self.budget is None else self.budget


def check(
    model: Path | str, settings: CheckSettings | None = None, *, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Examine one real model on its targets, and reduce what fails.

    tell     hears what is being done, for people; KeyboardInterrupt ends the check, and what was found so far is kept

    Raises UserError for a model or feeds that cannot be used, a feed that contradicts the model, unknown options and
    dims, and when `out` cannot be written.
    """
    model, settings = Path(model), settings or CheckSettings()
    if bool(settings.accept) != bool(settings.atol or settings.rtol):
        raise UserError(
            "what is accepted needs a size and a reason: --atol or --rtol, and --accept NOTE",
            hint='driftnet check MODEL.onnx --rtol 1e-3 --accept "int8 on purpose, see the table of the release"',
            kind="option",
        )
    misdeclared: list[str] = []
    proto = corpus.read_given(model, entire=False, tell=misdeclared.append)
    if not proto.graph.node:
        hint = "its outputs are inputs or constants: was it exported whole?"
        raise UserError(f"{model} has no nodes, so there is nothing to check", hint=hint, kind="model")
    demand_dims(proto, settings.dims)
    if settings.out:
        make_folder(Path(settings.out))
    feeds = given_or_beside(settings.inputs, model, proto, "inputs")
    samples = given_or_beside(settings.calibration, model, proto, "calibration")
    elsewhere = _calibrated_elsewhere(feeds, samples)  # of feeds that are made up nothing is
    invented = () if feeds else tuple(value.name for value in graph_inputs(proto))
    feeds = feeds or (made_up(proto, settings.dims),)
    case = external_data.case(proto, model, feeds, samples, {"file": model.name})
    held = [resolve(word, python=settings.python) for word in listed(settings.targets)]
    runs = [(one, chosen) for one in held for chosen in _recipes(one.target, settings)]
    known_issues = issues(Path(settings.corpus or corpus.OWN))

    sampled = [not settings.calibration or takes_samples(one.target, chosen) for one, chosen in runs]
    used = np.frombuffer(mmap.mmap(-1, 8))  # CPU seconds; what a fork writes there is seen here

    def judged(case: Case) -> dict[str, Any]:
        def work(tell: Callable[[str], None]) -> bytes:
            result = _checked(case, runs, settings, known_issues, tell, used, elsewhere)
            return msgspec.msgpack.encode(result, enc_hook=plain_number)

        data = at_risk(work, tell)
        if data is not None:
            return cast("dict[str, Any]", msgspec.msgpack.decode(data))
        left = max(0.0, settings.budget_of(case) - float(used[0]) / len(runs))
        if used[0]:
            tell(f"the process that judged was lost: all is done again, apart, with a budget of {left:.0f} CPU seconds")
        return _checked(case, runs, replace(settings, budget=left), known_issues, tell, used, elsewhere)

    result = judged(case)
    if invented and all(one["verdict"] == str(Word.INVALID) for one in result["targets"]):
        others = made_up_otherwise(proto, settings.dims)
        with runner_for(case, settings.timeout, settings.memory_gib) as runner:
            other = next(filter(lambda feed: runner.reference.runs(replace(case, feeds=(feed,))), others), None)
        if other:
            feeds = (other,)
            tell("made up inputs anew, of sizes that the model takes")
            result = judged(replace(case, feeds=feeds))
    needless = ["dims, for inputs are given"] if settings.dims and not invented else []
    told = [
        {
            **one,
            "made_up": list(invented),
            "made_up_shapes": {name: list(feeds[0][name].shape) for name in invented},
            "misdeclared": misdeclared,
            "ignored": needless + ([] if calibrates else ["calibration, for this recipe takes no samples"]),
        }
        for one, calibrates in zip(result["targets"], sampled)
    ]
    return {**result, "targets": told}


def _checked(
    case: Case,
    runs: Sequence[tuple[Installed, Recipe]],
    settings: CheckSettings,
    known_issues: Sequence[KnownIssue],
    tell: Callable[[str], None],
    used: np.ndarray,
    elsewhere: Sequence[str],
) -> dict[str, Any]:
    """What `check` gives, but for what is told of the inputs; `used` holds CPU seconds, up to what was told last; where
    inputs are calibrated `elsewhere`, and an output is lost by it, no word is said about the numbers that come out."""
    with runner_for(case, settings.timeout, settings.memory_gib) as runner:
        results, before = list[dict[str, Any]](), runner.all_cpu_seconds

        def telling(text: str) -> None:
            used[0] = runner.all_cpu_seconds - before
            tell(text)

        for one, chosen in runs:
            try:
                results.append(_check_one(Trial(case, one, chosen, runner), settings, known_issues, telling, elsewhere))
            except KeyboardInterrupt:
                if not results:
                    raise
                results[-1]["interrupted"] = True
            if results[-1]["interrupted"]:
                break
        return {"targets": results, "network_isolated": runner.network_isolated}


def check_status(result: Mapping[str, Any]) -> int:
    """The exit status of `check`: 1 for a failure, 3 when every failure is known, 2 when something was not judged, or
    what is no new failure was interrupted, or where calibration on other data than the inputs lost an output, or a
    model was given that is quantized already; what is accepted counts as agreement, and what a release of a target does
    not support under one recipe only, as in a sweep, is passed over."""
    right = {(r["target"], r["release"]) for r in result["targets"] if r["verdict"] == Word.AGREES or r["accepted"]}
    rest = [r for r in result["targets"] if r["verdict"] != Word.AGREES and not r["accepted"]]
    rest = [r for r in rest if r["verdict"] != Word.REJECTS or (r["target"], r["release"]) not in right]
    failures = [r for r in rest if Word(r["verdict"]) in FAILURES]
    if not all(r["known"] for r in failures):
        return 1
    if any(r.get("interrupted") for r in result["targets"]):
        return 2
    return 3 if failures else 2 if rest else 0


def is_miscalibrated(told: Mapping[str, Any]) -> bool:
    """Whether no word is said on a target, for it was calibrated on other data."""
    return bool(told["rule"] == CALIBRATED_ELSEWHERE)


def runner_for(case: Case, timeout: float, memory_gib: float) -> Runner:
    """Workers that may use what is said, or more where `case` is a large model."""
    gib = external_data.outside(case.proto) / 2**30
    held = max(memory_gib, HELD * gib)
    return Runner(timeout=max(timeout, SECONDS_A_GIB * gib), memory_gib=held, hold_crashes=True)  # or none is known


def _calibrated_elsewhere(feeds: Sequence[Feed], samples: Sequence[Feed]) -> list[str]:
    """Inputs of which much lies outside of what calibration is given, or that use next to nothing of that."""
    ranges, calibrated = ranges_of(feeds), ranges_of(samples)
    told = []
    for name in [name for name in ranges if name in calibrated]:
        (low, high), (least, most) = ranges[name], calibrated[name]
        x = np.concatenate([feed[name].ravel() for feed in feeds])
        cut = float(np.mean((x < min(least, 0)) | (x > max(most, 0))))  # quantizers make room for 0
        here, there = max(-low, high), max(-least, most)
        if cut >= CUT_OFF or (0 < here * FOREIGN <= there and x.size > len(feeds)):  # one number, as a time, may be any
            much = f"{cut:.1%} of the inputs are cut off" if cut >= CUT_OFF else f"{there / here:.3g} times as large"
            said = f"calibration data are in [{least:.6g}, {most:.6g}], the inputs in [{low:.6g}, {high:.6g}]: {much}"
            told.append(f"{name!r} is calibrated on other data: {said}")
    return told


def _recipes(target: Target, settings: CheckSettings) -> list[dict[str, Any]]:
    if settings.sweep:
        return recipe.swept(target)
    return [recipe.validated(target, {**(settings.recipe or {}), **recipe.parsed(target, settings.options)})]


def hand_over(folder: Path, installed: Installed, runner: Runner, **said: Any) -> None:
    """Write what a maintainer needs. It is imported here: with generators and all it takes a third of the time in which
    a small model is checked."""
    from driftnet.handover import handover

    handover.write(folder, installed, runner, **said)


def _check_one(
    trial: Trial,
    settings: CheckSettings,
    known_issues: Sequence[KnownIssue],
    tell: Callable[[str], None],
    elsewhere: Sequence[str],
) -> dict[str, Any]:
    runner, name = trial.runner, trial.target.name
    runs_before, cpu_before = runner.target_runs, runner.all_cpu_seconds
    known = {issue.id: issue.saved for issue in known_issues}
    checked = checks.check(
        trial, known_issues, seconds=settings.budget_of(trial.case), tell=lambda text: tell(f"{name}: {text}")
    )
    elsewhere = elsewhere if trial.calibrates else ()
    usable = not trial.quantizes or are_usable(checked.end_to_end)
    nameless = checked.verdict.failed and checked.verdict.in_values and not checked.culprits
    if elsewhere and not usable and (nameless or checked.verdict.word is Word.AGREES):
        message = "no word on this target: by --calibration of other data an output is lost; bring both to one scale"
        checked = replace(checked, verdict=Verdict(Word.ABSTAINS, message=message, rule=CALIBRATED_ELSEWHERE))
    result = checked.as_json()
    inner = {name for node in trial.case.proto.graph.node for name in node.output}
    inner -= {value.name for value in trial.case.proto.graph.output}
    for told in (result, *result["faults"]):
        told["message"] = _told_apart(told["message"], inner)
    stages = {fault["stage"] for fault in result["faults"]}
    at_fault = stages.pop() if checked.verdict.failed and len(stages) == 1 else ""
    for diagnosis, fault in zip(checked.diagnoses, result["faults"]):
        _complete(fault, diagnosis, known.get(diagnosis.examination.known), trial, settings)
    accepted = (
        bool(settings.accept)
        and checked.observation is not None
        and within(
            checked.observation.outputs,
            runner.reference.run(trial.case).outputs,
            atol=settings.atol,
            rtol=settings.rtol,
            leave_out=checked.random,
        )
    )
    faults = sorted(result["faults"], key=lambda fault: bool(fault["known"]))
    names, right = [value.name for value in trial.case.proto.graph.output], runner.reference.run(trial.case).outputs
    return {
        "target": name,
        "release": trial.installed.release,
        "recipe": dict(trial.recipe),
        **result,
        "at_fault": at_fault or checked.verdict.stage,
        "cause": cause_of(known[checked.known]) if checked.known in known else "",
        "calibrated_elsewhere": list(elsewhere),
        "nan_in_reference": [name for name in names if has_nan({name: run[name]} for run in right if name in run)],
        "usable": usable,
        "accepted": settings.accept if accepted and checked.verdict.word is not Word.AGREES else "",
        "blame": _blame(checked.verdict, name),
        "goes_away_with": faults[0]["goes_away_with"] if faults else [],
        "reduced": next((fault["reduced"] for fault in faults if fault["reduced"]), None),
        "target_runs": runner.target_runs - runs_before,
        "cpu_seconds": round(runner.all_cpu_seconds - cpu_before, 2),
    }


def _complete(
    fault: dict[str, Any], diagnosis: Diagnosis, saved: corpus.SavedCase | None, trial: Trial, settings: CheckSettings
) -> None:
    """Tell in `fault` what its cause is, where it is known by a saved case, and hand it over, where an `out` is given:
    reduced, or as it is saved."""
    finding, out = diagnosis.examination.finding, Path(settings.out) if settings.out else None
    if finding and settings.anonymize:
        from driftnet.handover.anonymize import anonymized

        finding, fault["reduced"]["remained"] = anonymized(finding, trial.runner)
    if saved:
        fault["note"] = _said_of(saved, finding.case if finding else trial.case, trial)
        fault["cause"] = cause_of(saved)
    if not out:
        return
    cures = [str(remedy) for remedy in diagnosis.remedies]
    if finding:
        folder = corpus.save(finding.to_save(), out)
        shown = None if diagnosis.unlike else saved  # what only looks like a known one is no copy of it
        hand_over(folder, trial.installed, trial.runner, known=shown, remedies=cures)
        fault["reduced"]["path"] = str(folder)
    elif saved and not diagnosis.unlike and not saved.rule:
        folder = corpus.save(saved, out)
        hand_over(folder, trial.installed, trial.runner, known=saved, remedies=cures)
        fault["known_path"] = str(folder)


def _told_apart(message: str, inner: Collection[str]) -> str:
    """A message that calls no tensor an output that is none of the model, but of a part that was cut out."""
    said = re.match(r"output '([^']*)'", message)
    return f"inner tensor{message.removeprefix('output')}" if said and said[1] in inner else message


def cause_of(saved: corpus.SavedCase) -> str:
    """The id of the cause of a case, by which people are told of it; its own where it has none."""
    return saved.cause.id if saved.cause else saved.id


def _said_of(saved: corpus.SavedCase, failing: Case, trial: Trial) -> str:
    """What is known of what fails as a saved case does, in a line: what people said of that, where it has the same
    operators, or of its cause; never the numbers of another model."""
    host = host_of(failing)
    cause = cause_as_met(saved, host, trial.installed.target, trial.recipe)
    note = note_of(saved, {node.op for node in host.graph.nodes})
    said = (note, saved.rule, *((cause.title, cause.note) if cause else ()))
    return next(filter(None, said), "") or (saved.cause.title if saved.cause else saved.summed_up)


def _blame(verdict: Verdict, target: str) -> str:
    if verdict.failed:
        return target
    if verdict.rule == CALIBRATED_ELSEWHERE:
        return "calibration"
    if verdict.word is Word.INVALID or verdict.rule == QUANTIZED_ALREADY:
        return "model"
    broke = verdict.word is Word.ABSTAINS and verdict.message.startswith("the reference")
    return "reference" if broke else ""
