"""Is an ordinary network ever accused wrongly? Sixty of them, under every family of recipes of every target.

`python -m tests.zoo.gate [--seed 100] [--models "cnn 103,rnn 107"] [--recipes "mnn KL,..."]` checks each network of
`tests.support.ordinary` under each recipe of the targets that are installed here, or under those that are named: then
the newest release of a target that is not gets an environment of its own. It prints each verdict that accuses, or has
no answer, beside a comparison that driftnet has no part in (`tests.zoo.measure.compared`), and counts.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from driftnet.diagnosis.check import check
from driftnet.findings import corpus
from driftnet.findings.issues import issues
from driftnet.findings.trial import Trial
from driftnet.model.case import Case
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.run.sandbox import allowance
from driftnet.targets.environments import declared, is_installed, releases, resolve, where_seen

from tests.support.ordinary import ordinary
from tests.zoo.measure import alone, compared
from tests.zoo.measure import said as own

OFFLINE = {"quantize": "offline"}
DYNAMIC = {"quantize": "dynamic"}
RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mnn": ("mnn", {}),
    "mnn fused": ("mnn", {"transformer_fuse": True, "origin_rnn": True, "optimize_level": 2}),
    "mnn weights": ("mnn", {"quantize": "weight-only"}),
    "mnn weights in blocks": ("mnn", {"quantize": "weight-only", "weight_block": 32, "weight_asymmetric": False}),
    "mnn weights kept": ("mnn", {"quantize": "weight-only", "memory": "low"}),
    "mnn KL": ("mnn", OFFLINE),
    "mnn ADMM": ("mnn", {**OFFLINE, "method": "ADMM", "weight_method": "ADMM"}),
    "mnn EMA": ("mnn", {**OFFLINE, "method": "EMA"}),
    "QDQ": ("onnxruntime-quant", {}),
    "QDQ per channel": ("onnxruntime-quant", {"per_channel": True, "types": "u8s8", "preprocess": True}),
    "QDQ percentile": ("onnxruntime-quant", {"calibration": "Percentile", "types": "u8u8"}),
    "QOperator": ("onnxruntime-quant", {"format": "QOperator", "calibration": "Entropy"}),
    "dynamic": ("onnxruntime-quant", DYNAMIC),
    "dynamic u8": ("onnxruntime-quant", {**DYNAMIC, "types": "u8u8", "preprocess": True}),
    "graph": ("onnxruntime-graph", {}),
    "graph saved": ("onnxruntime-graph", {"level": "extended", "saved": "onnx"}),
    "onnxslim": ("onnxslim", {}),
    "onnxsim": ("onnxsim", {}),
    "onnxoptimizer": ("onnxoptimizer", {}),
    "onnxoptimizer until nothing changes": ("onnxoptimizer", {"fixed_point": True}),
    "onnxscript": ("onnxscript", {}),
    "onnxscript rewriter": ("onnxscript", {"tool": "rewriter"}),
    "onnx up": ("onnx-passes", {}),
    "onnx newest": ("onnx-passes", {"opset": "newest"}),
    "onnx inliner": ("onnx-passes", {"tool": "inliner"}),
    "onnx shapes": ("onnx-passes", {"tool": "shape_inference", "data_propagation": True}),
    "openvino": ("openvino", {}),
    "openvino converted": ("openvino", {"converter": "convert_model", "shapes": "dynamic", "hint": "THROUGHPUT"}),
    "openvino int8": ("openvino", {"quantize": "openvino"}),
    "openvino QDQ": ("openvino", {"quantize": "onnx", "preset": "MIXED"}),
    "tract": ("tract", {}),
    "tract NNEF": ("tract", {"format": "nnef"}),
    "ncnn": ("ncnn", {}),
    "ncnn plain": ("ncnn", {"packing": False, "winograd": False, "sgemm": False}),
    "tvm": ("tvm", {}),
    "iree": ("iree", {}),
    "litert": ("litert", {}),
    "litert int8": ("litert", {"quantize": "integer"}),
}
SECONDS = 15.0
"""CPU time of one check."""
PATIENCE = 60.0
"""Seconds of wall time for each of these: beside other work a check for people ends without an answer, and none is what
the gate counts."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, print and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first network of each kind")
    parser.add_argument("--models", default="", help="names, with commas; all without")
    parser.add_argument("--recipes", default="", help="names, with commas; without, those of targets installed here")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU time of one check")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th recipe, others for each network")
    given = parser.parse_args(arguments)
    installed = [name for name, (target, _) in RECIPES.items() if is_installed(target)]
    recipes = given.recipes.split(",") if given.recipes else installed
    known, counts = issues(corpus.OWN), Counter[str]()
    allowance.PATIENCE = PATIENCE
    with Runner(small_models=True) as runner:
        for number, (name, case) in enumerate(ordinary(given.seed)):
            if name in given.models.split(",") or not given.models:
                some = [recipe for k, recipe in enumerate(recipes) if (k + number) % given.every == 0]
                said = Counter(told(name, case, recipe, known, runner, given.seconds) for recipe in some)
                print(f"{name}: {', '.join(f'{count} {word}' for word, count in said.items())}", flush=True)
                counts += said
    print(", ".join(f"{count} {said}" for said, count in sorted(counts.items())))


def told(name: str, case: Case, recipe: str, known: Sequence[Any], runner: Runner, seconds: float) -> str:
    """What the verdict is worth; printed, where it is no agreement."""
    target, options = RECIPES[recipe]
    target = where_seen(target, () if is_installed(target) else releases(declared(target).distribution))
    checked = check(Trial(case, resolve(target), options, runner), known, seconds=seconds)
    verdict = checked.verdict
    if verdict.word is Word.AGREES:
        return "agrees"
    said = str(verdict.word)
    error, allowed, why = compared(case.proto, target, options, case.feeds, case.calibration)
    if verdict.failed:
        parts = [[name for name, _ in diagnosis.nodes] for diagnosis in checked.diagnoses]
        worst = alone(case.proto, parts, target, options, case.runs) if own(error, allowed) != "wrong" else None
        if worst and own(*worst[:2]) == "wrong":
            error, allowed, why = worst
        said = f"fails, by the comparison {own(error, allowed)}"
    blamed = ", ".join(sorted({culprit.op_type for culprit in checked.culprits}))
    known_as = next((d.examination.known for d in checked.diagnoses if d.examination.known), "")
    numbers = "" if error is None else f"{error:.2g} of {allowed:.2g}"
    print(f"{said}: {name}, {recipe}: {verdict.word} {verdict.kind} at {blamed}; known {known_as}; {numbers} ({why}); "
          f"{verdict.message[:300]}", flush=True)  # fmt: skip
    return said


if __name__ == "__main__":
    main()
