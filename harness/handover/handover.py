"""Hand-over: what a maintainer needs to see a saved case fail, written into its folder.

reproduce.py   a script that needs the target's own package, onnx, numpy and onnxruntime, and nothing of driftnet
ISSUE.md       the report: versions, the graph, expected and actual, releases, what makes it go away
"""

import contextlib
import inspect
import platform
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from driftnet.causes.host import host_of
from driftnet.causes.impact import Severity, severity_of
from driftnet.causes.place import place_of
from driftnet.causes.record import Status
from driftnet.causes.upstream import reported
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.telling import cause_as_met, note_of
from driftnet.findings.trial import Trial, watch
from driftnet.handover import markdown, measures
from driftnet.handover import script as reproduction
from driftnet.handover.control import AGREES, SECONDS, STAGE_SECONDS, Proof, ablation, prove, tries_of
from driftnet.handover.inline import feeds_code, model_code
from driftnet.handover.standalone import EntangledError, Script, joined
from driftnet.learning.experiment import Sample, computed
from driftnet.model import svg
from driftnet.model.inspect import Feed, elements, nodes
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Tier, Verdict
from driftnet.oracle.second_opinion import Blame
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, installs
from driftnet.targets.interface import OURS, STAGES
from driftnet.targets.recipe import effective, validated
from driftnet.util.files import replace_text
from driftnet.util.options import written
from driftnet.util.templates import templates

RUN_SECONDS, HANGING_SECONDS = 60, 5
RUN_TARGET = '''\
def run_target(model, feeds, calibration, outputs, without=False):
    """Convert, quantize and run the ONNX file `model`, in the current folder. outputs: {{name: dtype}}."""
    folder, options = os.getcwd(), {options}
    begin("convert")
    artifact = {convert}(model, folder, options)
    begin("quantize")
    artifact = {quantize}(artifact, calibration or feeds, folder, options)
    {inspect}begin("execute")
    return {execute}(artifact, feeds, outputs, options)'''
INSPECTED = """Path("as_written.onnx").write_bytes({}(artifact, options)["model"])
    """

NEEDED = ("onnx", "numpy", "onnxruntime")
LOG_LINES, SHOWN_ELEMENTS, TITLE, FRAMES = 20, 64, 120, 12
TEST_SECONDS = 120
FEWEST_TESTS, MOST_TESTS = 3, 5
"""How often the script runs a control that shall not fail, whatever is known of the case: in a process of its own what
reads memory that nobody wrote finds another than in the sandbox. Of 57 models that were right in two runs there two
failed in half or all of these."""
STACK_TRIES = 3
"""Runs of a crash that may take to hold it: a damaged heap crashes in some of them only."""
MOST_PRINTED = 20_000
"""Bytes of a model that is printed as text: GitHub takes 65536 characters in all."""

HOW_JUDGED: Mapping[str, str] = {
    Tier.STRUCTURE: "whether every stage ran, and the shapes, types and finiteness of the outputs",
    Tier.EXACT: "on data for which every partial sum can be represented exactly, so any differing bit is an error",
    Tier.LOSSLESS: "on data on the quantizer's own grid, so that quantizing loses nothing before the last rounding",
    Tier.RUNNING_ERROR: "against the bound that running-error analysis in float64 gives for each element",
    Tier.SAMPLING: "against the spread of results when every tensor is perturbed in its last bits",
    Tier.ARTIFACT: "by the quantized model itself: whether it runs as written, and is the float model with roundings",
    Tier.BUDGET: "against the spread of results under the noise that this quantization makes",
}
DAMAGES: Mapping[Severity, str] = {
    Severity.WRONG: "Silently wrong results",
    Severity.CRASH: "A crash",
    Severity.HANG: "It does not come back",
    Severity.ERROR: "An error on a valid model",
    Severity.REFUSAL: "An error on a valid model that names no operator",
}
MISFORMED: Mapping[str, str] = {
    Kind.WRONG_SHAPE: "A result of a wrong shape",
    Kind.WRONG_DTYPE: "A result of a wrong type",
    Kind.NO_OUTPUT: "A result that is missing",
}
OPINIONS: Mapping[str, str] = {
    Blame.TARGET: "Second opinions (float64, onnx.reference) do not contradict the expected values",
    Blame.UNDECIDED: "Second opinions (float64, onnx.reference) contradict each other: who is wrong is open",
    Blame.REFERENCE: "Second opinions (float64, onnx.reference) say that onnxruntime's values are wrong",
}


def write(
    folder: Path,
    installed: Installed,
    runner: Runner,
    *,
    known: SavedCase | None = None,
    remedies: Sequence[str] = (),
    samples: Sequence[Sample] = (),
    seconds: float = SECONDS,
) -> Proof:
    """Write ISSUE.md and, where the text of the target's functions stands by itself, reproduce.py into the saved case
    `folder`, with a model beside them that does not fail; the proof is as they tell it.

    The target is run once more, to show what it does, unless it hangs. known: the case that it is known by, whose cause
    is told where it has none of its own. remedies: what makes the failure go away, in words. samples: changed models
    that were run before. seconds: of CPU, which the search for a negative control may take. Raises UserError when the
    case is not whole or the folder cannot be written.
    """
    saved = corpus.load(folder)
    if known and known.cause and not saved.cause:
        host = host_of(saved.case, computed(saved.case, runner.reference))
        cause = cause_as_met(known, host, installed.target, saved.recipe)
        cause = cause and replace(cause, grown={})  # that is not beside it
        upstream = saved.upstream or known.upstream
        saved = replace(saved, cause=cause, upstream=upstream, note=note_of(known, saved.operators) or saved.note)
    trial = Trial(saved.case, installed, saved.recipe, runner)
    verdict, seen = saved.verdict, None
    if saved.kind != Kind.HANG:
        verdict, seen = watch(trial, fresh=True)
    proof = prove(saved, trial, verdict, seen, seconds, samples)
    observation = seen or Observation((StageRun(saved.stage, Outcome.HANG),))
    if observation.last.outcome is Outcome.CRASH and not observation.last.frames:
        observation = _with_stack(observation, trial)
    table = ablation(saved, trial.within(STAGE_SECONDS), proof.claim, seconds / 2)
    told = partial(issue, saved, installed, observation, remedies=remedies, ablation=table)
    return _tested(proof, saved, folder, installed, runner, told)


def _tested(
    proof: Proof, saved: SavedCase, folder: Path, installed: Installed, runner: Runner, told: Callable[..., str]
) -> Proof:
    """Write the scripts, ISSUE.md and their control; one of which that very script does not say, in the sandbox, that
    it is right is none. Whoever ends it meanwhile finds that all speak of one control.

    told   the text of ISSUE.md, by the proof
    """
    without = folder / "without_trigger"
    for control in (proof.control, *proof.others, None):
        shutil.rmtree(without, ignore_errors=True)  # of an earlier time
        proof = replace(proof, control=control)
        if control is not None:
            without.mkdir()
            corpus.write_model(control.case, (), without)
        replace_text(folder / "ISSUE.md", told(proof=proof))
        (folder / "reproduce_onefile.py").unlink(missing_ok=True)  # of an earlier time
        if len(saved.case.model) <= MOST_PRINTED:
            _write_script(folder / "reproduce_onefile.py", saved, installed, proof, whole=True)
        written = _write_script(folder / "reproduce.py", saved, installed, proof)
        if control is None or not written or says_no(folder, without, saved, installed, runner):
            break
    return proof


def says_no(folder: Path, other: Path, saved: SavedCase, installed: Installed, runner: Runner) -> bool:
    """Whether reproduce.py in `folder`, run in the sandbox, says of the model in `other`, a folder below that one, that
    it does not fail. What it cannot tell of is no control either."""
    tries = min(MOST_TESTS, max(FEWEST_TESTS, tries_of(saved)))
    words = [str(folder / "reproduce.py"), str(other), str(tries)]
    return runner.status_of(installed, folder, words, TEST_SECONDS) == 0


def _write_script(path: Path, saved: SavedCase, installed: Installed, proof: Proof, *, whole: bool = False) -> bool:
    """Write a script, and say whether there is one; that of an earlier target does not stay."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(EntangledError):
        replace_text(path, script(saved, installed, proof, whole=whole))
    return path.exists()


def script(saved: SavedCase, installed: Installed, proof: Proof, *, whole: bool = False) -> str:
    """The text of reproduce.py; whole: with the models and their inputs in it.

    Nothing of the case's own text is in it but as Python literals.

    Raises EntangledError where the functions of the target cannot be put into it.
    """
    tries = tries_of(saved)
    calls, code, used = _calls(saved, installed, proof, whole=whole)
    ending = Script("")
    ending.add(reproduction.give_up)
    imports = {*used, *ending.imports, "import os", "import sys", "from pathlib import Path"}
    imports |= {"import base64", "from onnx import helper"} if whole else set()
    standard = [line for line in sorted(imports) if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    return _rendered(
        "reproduce.py.jinja",
        {
            "distribution": installed.target.distribution,
            "installing": _installing(installed, "\n".join([*used, calls, code])),
            "standard": standard,
            "imports": [line for line in sorted(imports) if line not in standard],
            "give_up": joined(ending.parts),
            "calls": calls,
            "code": code,
            "what": saved.title,
            "seen": ", ".join(saved.seen),
            "claim": proof.claim,
            "models": _models(saved, proof) if whole else "",
            "without": proof.control.what if proof.control else "",
            "complaint": installed.target.complaint,
            "seconds": HANGING_SECONDS if saved.kind == Kind.HANG else RUN_SECONDS,
            "tries": tries,
            "by_chance": saved.status == Status.FLAKY,
            "changed": proof.tried,
            "runs": saved.runs,
            "reproduced": saved.reproduced,
        },
    )


def issue(
    saved: SavedCase,
    installed: Installed,
    observation: Observation,
    proof: Proof,
    remedies: Sequence[str] = (),
    ablation: Sequence[tuple[str, str, str]] = (),
) -> str:
    """The text of ISSUE.md. ablation: (option, value, what happens) of options that were tried."""
    proto, target = saved.case.proto, installed.target
    printed = len(saved.case.model) <= MOST_PRINTED
    drawn = svg.picture(proto) if printed else None
    last, calls, code, why = observation.last, "", "", ""
    try:
        calls, code, used = _calls(saved, installed, proof)
        code = "\n".join([*used, calls, code])
    except EntangledError as e:
        why = str(e)
    controls = [proof.control, *proof.others] if proof.control else []
    ways = [f"the model {one.what}" for one in controls if one.same_model]
    changed = [f"{name}={value}" for name, value, told in ablation if told == AGREES]
    cause = saved.cause and saved.cause.of_case(saved.id)
    where = cause.place if cause and cause.place.keys else place_of(target, saved.verdict, observation)
    text = _rendered(
        "ISSUE.md.jinja",
        {
            "saved": saved,
            "target": target.name,
            "distribution": target.distribution,
            "release": installed.release,
            "installing": _installing(installed, code),
            "title": textwrap.shorten(saved.title, TITLE, placeholder=" …"),
            "damage": MISFORMED.get(saved.kind) or DAMAGES[severity_of(saved.verdict)],
            "trigger": cause.sentence if cause else "",
            "reported": reported(saved.upstream or (cause.upstream if cause else "")),
            "common": f"{cause.exposure:.0%}" if cause and cause.exposure else "",
            "grown": cause.grown if cause else {},
            "harm": cause.damage if cause else "",
            "place": str(where),
            "frames": of_system(last.frames)[:FRAMES],
            "message": "" if _says(proof, saved.verdict) else saved.verdict.message,
            "versions": {name: metadata.version(name) for name in NEEDED},
            "system": f"{platform.system()} {saved.machine.get('arch', platform.machine())}",
            "python": platform.python_version(),
            "features": saved.machine.get("cpu_features", []),
            "nodes": nodes(saved.case),
            "elements": elements(saved.case),
            "code": model_code(proto) if printed else "",
            "mermaid": svg.mermaid(drawn) if drawn else "",
            "calls": calls,
            "why": why,
            "commands": _typed(installed, target.commands(effective(target, saved.recipe)) if target.commands else ""),
            "onefile": printed,
            "inputs": [_values(feed) for feed in saved.case.feeds],
            "expected": [_values(outputs) for outputs in saved.expected],
            "actual": [_values(outputs) for outputs in observation.outputs],
            "shown": _shown,
            "ended": "" if last.outcome is Outcome.OK else _ending(observation),
            "log": last.log.splitlines()[-LOG_LINES:],
            "how": HOW_JUDGED.get(saved.verdict.tier, ""),
            "as_written": bool(proof.claim.about.get("as_written")),
            "opinion": OPINIONS.get(saved.verdict.blame, ""),
            "proof": proof,
            "by_chance": saved.status == Status.FLAKY,
            "remedies": list(dict.fromkeys([*(remedies or ways), *changed])),
            "ablation": ablation,
            "options": ", ".join(written(saved.recipe)) or "defaults",
        },
    )
    return markdown.page(text)


def _says(proof: Proof, verdict: Verdict) -> bool:
    """Whether what the proof found tells all that the verdict does."""
    if proof.found is None:
        return False
    words = verdict.message.partition(": ")[2]
    return verdict.kind in MISFORMED or (proof.claim.measure is measures.ending and words in proof.found.said)


def of_system(frames: Sequence[str]) -> list[str]:
    """The frames but those of driftnet itself: who mends the system has none of these files."""
    return [frame for frame in frames if not frame.startswith(OURS)]


def _with_stack(observation: Observation, trial: Trial) -> Observation:
    """A crash with the frames of its stack, which takes workers that hold crashes: the first of a few that has any."""
    with Runner(hold_crashes=True) as runner:
        for _ in range(STACK_TRIES):
            again = runner.observe(trial.case, trial.installed, trial.recipe, fresh=True)
            if again.last.outcome is Outcome.CRASH and again.last.frames:
                return again
    return observation


def _shown(feed: Mapping[str, str], expected: Mapping[str, str], actual: Mapping[str, str]) -> str:
    """What went in, what should have come out, and what did."""
    parts = (("input", feed), ("expected", expected), ("actual", actual))
    return "\n\n".join(
        "\n".join(f"{what} {name}: {x}" for name, x in values.items()) for what, values in parts if values
    )


def _installing(installed: Installed, code: str = "", tools: Sequence[str] = ()) -> str:
    """What pip is to be told for reproduce.py, or for the `tools` of the system, a line for each call of it; without
    what the target's own text imports under other options than those of this script's `code`."""
    target = installed.target
    modules = {module for f in (target.convert, target.quantize, target.execute) if (module := inspect.getmodule(f))}
    own = "\n".join(map(inspect.getsource, modules)) if code else ""
    idle = [one for one in target.companions if _imports(own, one[1]) and not _imports(code, one[1])]
    used = replace(target, companions=tuple(one for one in target.companions if one not in idle))
    calls = installs(used, installed.release, (*NEEDED, *tools))
    return "\n".join(f"python -m pip install {shlex.join(call)}" for call in calls)


def _typed(installed: Installed, commands: str) -> str:
    """`commands` in an environment of their own: what the system's tools install may fit nothing else."""
    made = ["python -m venv own", ". own/bin/activate", _installing(installed, tools=installed.target.tools)]
    return "\n".join([*made, commands]) if commands else ""


def _imports(code: str, requirement: str) -> bool:
    """Whether a program imports the module that is called as what is required; never for one that names releases, which
    may be there for what the system itself imports."""
    name = re.escape(requirement.replace("-", "_"))
    return bool(re.search(rf"^\s*(import|from) {name}\b", code, re.MULTILINE))


def _calls(saved: SavedCase, installed: Installed, proof: Proof, *, whole: bool = False) -> tuple[str, str, set[str]]:
    """The text of the target's own functions and of how they are called under the recipe of the case; that of all else
    that reproduce.py does; and what both import."""
    target = installed.target
    options = effective(target, validated(target, saved.recipe))
    others = effective(target, proof.control.recipe) if proof.control else options
    calls = Script(target.distribution, dict.fromkeys((*reproduction.FILLED_IN, "OPTIONS"), reproduction.__name__))
    names = {stage: calls.add(getattr(target, stage), options if options == others else None) for stage in STAGES}
    inspected = target.inspect and proof.claim.inspects
    names["inspect"] = INSPECTED.format(calls.add(target.inspect)) if target.inspect and inspected else ""
    names["options"] = "OPTIONS" if options == others else "OPTIONS_WITHOUT if without else OPTIONS"
    calls.parts.insert(0, _literal("OPTIONS", options))
    if options != others:
        calls.parts.insert(1, _literal("OPTIONS_WITHOUT", others))
    calls.parts.append(RUN_TARGET.format(**names))
    count = len(calls.parts)
    calls.parts.append(f"measure = {calls.add(proof.claim.measure)}")
    calls.add(reproduction.begin)
    if whole:
        calls.add(reproduction.placed)
    else:
        calls.parts.append("def here(place):\n    return SCRIPT.parent")
    calls.add(reproduction.main)
    return joined(calls.parts[:count]), joined(calls.parts[count:]), calls.imports


def _models(saved: SavedCase, proof: Proof) -> str:
    """Code that makes the case, and its negative control: the models, and what they are fed."""
    parts = [("", saved.case), *([("without_", proof.control.case)] if proof.control else [])]
    made = [
        f"{model_code(case.proto, f'{name}model')}\n{feeds_code(case.feeds, f'{name}feeds')}\n"
        f"{feeds_code(case.calibration, f'{name}calibration')}"
        for name, case in parts
    ]
    control = (
        '    placed(without_model, without_feeds, without_calibration, place / "without_trigger")\n' if made[1:] else ""
    )
    here = f"def here(place):\n    placed(model, feeds, calibration, place)\n{control}    return place"
    return "\n".join(made) + "\n\n\n" + here


def _literal(name: str, options: Mapping[str, Any]) -> str:
    return "".join([f"{name} = {{\n", *(f"    {k!r}: {v!r},\n" for k, v in options.items()), "}"])


def _ending(observation: Observation) -> str:
    last = observation.last
    what = {
        Outcome.CRASH: f"ended by {last.signal}",
        Outcome.HANG: "did not come back",
        Outcome.MEMORY: f"went over its memory limit ({last.peak_mib:.0f} MiB)",
    }.get(last.outcome, "failed")
    return f"{last.stage} {what}" + (f": {last.message}" if last.message not in ("", what) else "")


def _values(arrays: Feed) -> dict[str, str]:
    """Arrays in words: dtype, shape, and the values of small ones."""
    return {name: _array(np.asarray(x)) for name, x in arrays.items()}


def _array(x: np.ndarray) -> str:
    said = f"{x.dtype}{list(x.shape)}"
    if x.size == 0:
        return said
    if x.size > 1 and (x.ravel() == x.ravel()[0]).all():
        return f"{said} all {x.ravel()[0]}"
    with np.printoptions(threshold=SHOWN_ELEMENTS, linewidth=110, floatmode="unique"):
        return f"{said}\n{x}" if x.ndim > 1 else f"{said} {x}"


def _rendered(name: str, values: Mapping[str, Any]) -> str:
    found = templates("driftnet.handover", "templates", repr=repr, inline=markdown.inline, fenced=markdown.fenced)
    return found.get_template(name).render(values)
