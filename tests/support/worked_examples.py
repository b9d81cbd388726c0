"""The examples that docs/ follows step by step, run for real: `make docs` puts what they say into the pages."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
from driftnet.diagnosis.audit import audit
from driftnet.findings import corpus
from driftnet.findings.explaining import Effort
from driftnet.findings.issues import KnownIssue
from driftnet.findings.pipeline import examine
from driftnet.findings.trial import Trial, watch
from driftnet.generators import bulk
from driftnet.generators.ops.table import OPERATORS
from driftnet.model import graph as graphs
from driftnet.model.case import Case
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.match import match
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.oracle.ball_arithmetic.evaluate import evaluate
from driftnet.oracle.exemptions import saturation
from driftnet.oracle.judge import judge
from driftnet.run.runner import Runner
from driftnet.targets.environments import resolve
from onnx import helper, numpy_helper, printer

from tests.support.paths import CORPUS

SEED, INDEX, FOCUS = 7, 15, ("ConvTranspose",)


@functools.cache
def one_case() -> Mapping[str, str]:
    """docs/architecture.md: from the bytes of a genome to the folder of a finding."""
    genome = bulk.genome(SEED, INDEX, focus=FOCUS)
    case, mnn = bulk.case(SEED, INDEX, focus=FOCUS), resolve("mnn")
    records = [f"{r.hex(' ', 4)}  {OPERATORS[r[0] % len(OPERATORS)].name}" for r in genome.records]
    told = {
        "genome": "\n".join([f"header  {genome.header.hex(' ', 4)}", *(f"record  {line}" for line in records)]),
        "graph": printer.to_text(case.proto),
        "case": "\n".join(f"{name:3} {x.dtype}{list(x.shape)}" for name, x in case.feeds[0].items()),
    }
    known = [KnownIssue(saved) for saved in corpus.load_all(CORPUS)]
    with Runner() as runner, tempfile.TemporaryDirectory() as folder:
        trial = Trial(case, mnn, {}, runner)
        verdict, observation = watch(trial)
        assert observation is not None, "the case was refused before it reached the target"
        right = runner.reference.run(case).outputs[0]["y0"]
        told["observation"] = "\n".join(
            [f"{run.stage:9} {run.outcome}" for run in observation.stages]
            + [f"y0, MNN         {observation.outputs[0]['y0'].ravel().tolist()}"]
            + [f"y0, onnxruntime {right.ravel().tolist()}"]
        )
        told["verdict"] = json.dumps(verdict.as_json(), indent=1)
        before = runner.target_runs
        told["known"] = f"{examine(trial, known).known}\nafter {runner.target_runs - before} runs of MNN"
        before = runner.target_runs
        finding = examine(trial, effort=Effort(seconds=60)).finding
        runs = runner.target_runs - before
        assert finding is not None, "nothing was found"
        path = corpus.save(finding.to_save(), Path(folder))
        told["folder"] = "\n".join(sorted(str(p.relative_to(folder)) for p in path.rglob("*.*")))
    left = [printer.to_text(finding.case.proto), "", finding.verdict.message, f"after {runs} runs of MNN"]
    told["reduced"] = "\n".join(left)
    told["signature"] = f"coarse  {finding.signature.coarse}\nfine    {finding.signature.fine}"
    return told


def float_model() -> onnx.ModelProto:
    """Two samples of three numbers through a Gemm and a Relu."""
    weights = {"w": np.float32([[0.50, -1.00], [0.20, 0.73], [-0.31, 0.40]]), "b": np.float32([0.10, -0.25])}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["h"], "gemm"), helper.make_node("Relu", ["h"], ["y"], "relu")],
        "example",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(x, name) for name, x in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


FEED = {"x": np.float32([[1.0, -0.5, 0.25], [-1.5, 2.0, 0.8]])}


STEP = np.float32(3.03) / np.float32(255)  # of y, which calibration saw go up to 3.03
DAMAGES: Mapping[str, Mapping[str, object]] = {
    "one code of w is 95 where it is 93": {"w_quantized": [64, -127, 25, 95, -39, 51]},
    "the bias is 13 steps too large": {"b_quantized": [925, -2300]},
    "the zero point of y is 1 where it is 0": {"y_zero_point": 1},
    "the scale of x is .01 where it is .0137": {"x_scale": 0.01},
}


@functools.cache
def one_artifact() -> Mapping[str, str]:
    """docs/artifact-tier.md: a model of two nodes, as onnxruntime quantizes it, and the same with damages. None of its
    products is cut on any processor."""
    model, target = float_model(), resolve("onnxruntime-quant")
    case = Case(model.SerializeToString(), (FEED,), (FEED,))
    with Runner() as runner, mock.patch.object(saturation, "is_possible", return_value=False):
        trial = Trial(case, target, {"types": "u8s8"}, runner)
        verdict, observation = watch(trial)
        assert observation is not None, "the case was refused before it reached the target"
        assert observation.artifact.model is not None, "there is no artifact"
        quantized = onnx.ModelProto.FromString(observation.artifact.model)

        def moved(row: int, column: int) -> str:
            y = observation.outputs[0]["y"].copy()
            y[row, column] += STEP
            seen = dataclasses.replace(observation, outputs=({"y": y},))
            verdict = judge(case, seen, target=trial.target, options=trial.options, reference=runner.reference)
            return f"{verdict.word}: {verdict.kind} in {verdict.stage}\n    {verdict.message}"

        audits = {what: audit(model, changed(quantized, **values), [FEED], runner) for what, values in DAMAGES.items()}
        moves = [moved(0, 0), moved(0, 1)]
        right = runner.reference.run(case).outputs[0]["y"]
    floating, graph = graphs.read(model), graphs.in_order(graphs.read(quantized))
    evaluation, artifact = evaluate(graph, FEED), read_artifact(graph)
    pairs = match(floating, floating.constants, Numbers(artifact, evaluation.balls)).pairs
    constant = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    codes, scale = constant["w_quantized"].ravel(), constant["w_scale"]
    weights = floating.constants["w"].ravel()
    sums, result = evaluation.balls["y_QuantizeLinear_Input"], evaluation.balls["y_QuantizeLinear_Output"]
    return {
        "float": printer.to_text(model),
        "artifact": printer.to_text(quantized),
        "outputs": "\n".join([f"float      {_row(right)}", f"quantized  {_row(observation.outputs[0]['y'])}"]),
        "reading": "\n".join(
            [f"operation  {p.node.op}({', '.join(u.real for u in p.uses if u)})" for p in artifact.pieces]
            + [f"rounding   of {r.real}, by {r.format.scale} and {r.format.zero_point}" for r in artifact.roundings]
        ),
        "matching": "\n".join(f"{pair.node.op:5} {pair.first}: {pair.how}" for pair in pairs),
        "weights": "\n".join(
            f"{w:6.2f}  code {code:4}  {code * scale:9.6f}  {abs(code * scale - w) / scale:4.2f} steps off"
            for w, code in zip(weights, codes)
        ),
        "execution": "\n".join(
            f"{midpoint:9.6f} +- {error:.1e}   /{STEP:.6f} = {midpoint / STEP:9.4f}   code {code:3.0f} +- {slack:.0f}"
            for midpoint, error, code, slack in zip(
                *(np.broadcast_to(x, (2, 2)).ravel() for b in (sums, result) for x in (b.midpoint, b.error))
            )
        ),
        "verdict": f"{verdict.word}, by the tier {verdict.tier}",
        "moved": "\n".join(moves),
        "damages": "\n".join(
            line
            for what, found in audits.items()
            for line in (f"{what}:", *(f"    {problem.question}: {problem.message}" for problem in found.problems))
        ),
    }


def _row(x: np.ndarray) -> str:
    return "  ".join(f"{number:.4f}" for number in x.ravel())


def changed(model: onnx.ModelProto, **values: object) -> onnx.ModelProto:
    """`model` with other values in these constants."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in copy.graph.initializer:
        if tensor.name in values:
            before = numpy_helper.to_array(tensor)
            after = np.asarray(values[tensor.name], before.dtype).reshape(before.shape)
            tensor.CopyFrom(numpy_helper.from_array(after, tensor.name))
    return copy
