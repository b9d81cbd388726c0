"""Hand-over: what a maintainer needs to see a saved case fail, written into its folder.

reproduce.py   a script that needs the target's own package, onnx, numpy and onnxruntime, and nothing of driftnet
ISSUE.md       the report: versions, the graph, expected and actual, releases, what makes it go away
"""

from __future__ import annotations

import functools
import math
import platform
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import onnx
from driftnet.causes.record import Status
from driftnet.findings import corpus
from driftnet.findings.corpus import SavedCase
from driftnet.findings.trial import Trial, watch
from driftnet.handover import script as reproduction
from driftnet.handover.control import SECONDS, Proof, prove
from driftnet.handover.standalone import EntangledError, Script, joined
from driftnet.model import svg
from driftnet.model.inspect import Feed, all_nodes, elements, nodes
from driftnet.model.signature import DAMAGE
from driftnet.model.verdict import Kind, Observation, Outcome, StageRun, Tier
from driftnet.oracle.second_opinion import Blame
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed
from driftnet.targets.interface import STAGES
from driftnet.targets.recipe import effective, validated
from driftnet.util.files import replace_text

RUN_SECONDS, HANGING_SECONDS = 60, 5
SURE = 0.999
"""The probability with which reproduce.py shows a flaky case, by trying as often as its rate asks for."""

DAMAGE_TRIES = 20
"""A damaged heap ends a process or not by how it is laid out: of the first case met, half of all layouts did."""

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
LOG_LINES, SHOWN_ELEMENTS, TITLE = 20, 64, 120
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
OPINIONS: Mapping[str, str] = {
    Blame.TARGET: "Second opinions (float64, onnx.reference) do not contradict the expected values",
    Blame.UNDECIDED: "Second opinions (float64, onnx.reference) contradict each other: who is wrong is open",
    Blame.REFERENCE: "Second opinions (float64, onnx.reference) say that onnxruntime's values are wrong",
}


def write(
    folder: Path, installed: Installed, runner: Runner, *, remedies: Sequence[str] = (), seconds: float = SECONDS
) -> None:
    """Write ISSUE.md and, where the text of the target's functions stands by itself, reproduce.py into the saved case
    `folder`, with a model beside them that does not fail.

    The target is run once more, to show what it does, unless it hangs. remedies: what makes the failure go away, in
    words. seconds: of CPU, which the search for a negative control may take. Raises UserError when the case is not
    whole or the folder cannot be written.
    """
    saved = corpus.load(folder)
    trial = Trial(saved.case, installed, saved.recipe, runner)
    verdict, seen = saved.verdict, None
    if saved.kind != Kind.HANG:
        verdict, seen = watch(trial, fresh=True)
    proof = prove(saved, trial, verdict, seen, seconds)
    observation = seen or Observation((StageRun(saved.stage, Outcome.HANG),))
    without = folder / "without_trigger"
    shutil.rmtree(without, ignore_errors=True)  # of an earlier time
    if proof.control:
        without.mkdir()
        corpus.write_model(proof.control.case, (), without)
    replace_text(folder / "ISSUE.md", issue(saved, installed, observation, proof, remedies))
    try:
        replace_text(folder / "reproduce.py", script(saved, installed, proof))
    except EntangledError:
        (folder / "reproduce.py").unlink(missing_ok=True)  # of an earlier target


def script(saved: SavedCase, installed: Installed, proof: Proof) -> str:
    """The text of reproduce.py. Nothing of the case's own text is in it but as Python literals.

    Raises EntangledError where the functions of the target cannot be put into it.
    """
    tries = DAMAGE_TRIES if saved.kind in DAMAGE else 1
    by_chance = saved.status == Status.FLAKY
    if by_chance:
        rate = max(saved.reproduced, 1) / max(saved.runs, 1)
        tries = max(tries, math.ceil(math.log(1 - SURE) / math.log(1 - min(rate, SURE))))
    calls, code, used = _calls(saved, installed, proof)
    ending = Script("")
    ending.add(reproduction.give_up)
    imports = sorted({*used, *ending.imports, "import os", "import sys", "from pathlib import Path"})
    standard = [line for line in imports if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    return _rendered(
        "reproduce.py.jinja",
        {
            "distribution": installed.target.distribution,
            "packages": _packages(installed),
            "standard": standard,
            "imports": [line for line in imports if line not in standard],
            "give_up": joined(ending.parts),
            "calls": calls,
            "code": code,
            "what": _first_line(saved),
            "seen": ", ".join(saved.seen),
            "claim": proof.claim,
            "without": proof.control.what if proof.control else "",
            "complaint": installed.target.complaint,
            "seconds": HANGING_SECONDS if saved.kind == Kind.HANG else RUN_SECONDS,
            "tries": tries,
            "by_chance": by_chance,
            "changed": proof.tried,
            "runs": saved.runs,
            "reproduced": saved.reproduced,
        },
    )


def issue(
    saved: SavedCase, installed: Installed, observation: Observation, proof: Proof, remedies: Sequence[str] = ()
) -> str:
    """The text of ISSUE.md."""
    proto, printed = saved.case.proto, len(saved.case.model) <= MOST_PRINTED
    text, drawn = onnx.printer.to_text(proto) if printed else "", svg.picture(proto)
    last, calls, why = observation.last, "", ""
    try:
        calls, *_ = _calls(saved, installed, proof)
    except EntangledError as e:
        why = str(e)
    return _rendered(
        "ISSUE.md.jinja",
        {
            "saved": saved,
            "target": installed.target.name,
            "distribution": installed.target.distribution,
            "release": installed.release,
            "packages": _packages(installed),
            "title": textwrap.shorten(_first_line(saved), TITLE, placeholder=" …"),
            "message": saved.verdict.message,
            "versions": {name: metadata.version(name) for name in NEEDED},
            "system": f"{platform.system()} {saved.machine.get('arch', platform.machine())}",
            "python": platform.python_version(),
            "features": saved.machine.get("cpu_features", []),
            "nodes": nodes(saved.case),
            "elements": elements(saved.case),
            "text": text,
            "mermaid": svg.mermaid(drawn) if drawn else "",
            "calls": calls,
            "why": why,
            "inputs": [_values(feed) for feed in saved.case.feeds],
            "expected": [_values(outputs) for outputs in saved.expected],
            "actual": [_values(outputs) for outputs in observation.outputs],
            "ended": "" if last.outcome is Outcome.OK else _ending(observation),
            "log": last.log.splitlines()[-LOG_LINES:],
            "how": HOW_JUDGED.get(saved.verdict.tier, ""),
            "as_written": bool(proof.claim.about.get("as_written")),
            "proof": proof,
            "opinion": OPINIONS.get(saved.verdict.blame, ""),
            "remedies": remedies,
        },
    )


def _packages(installed: Installed) -> str:
    """What pip has to install for reproduce.py."""
    held = installed.target.distribution
    return " ".join([*(name for name in NEEDED if name != held), f"{held}=={installed.release}"])


def _calls(saved: SavedCase, installed: Installed, proof: Proof) -> tuple[str, str, set[str]]:
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
    calls.add(reproduction.main)
    return joined(calls.parts[:count]), joined(calls.parts[count:]), calls.imports


def _literal(name: str, options: Mapping[str, Any]) -> str:
    return "".join([f"{name} = {{\n", *(f"    {k!r}: {v!r},\n" for k, v in options.items()), "}"])


def _first_line(saved: SavedCase) -> str:
    """The cause, where somebody has found it; else the operators and what they show."""
    if saved.note:
        return saved.note.splitlines()[0]
    operators = " + ".join(dict.fromkeys(node.op_type for node in all_nodes(saved.case.proto.graph)))
    return f"{operators}: {(saved.verdict.message or saved.coarse).splitlines()[0]}"


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
    return _template(
        resources.files("driftnet.handover").joinpath("templates", name).read_text(encoding="utf-8")
    ).render(values)


@functools.cache  # compiling costs 80 ms a case, the rest 15
def _template(text: str) -> jinja2.Template:
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["repr"] = repr
    return environment.from_string(text)
