"""Is the word about trained models right? Each verdict on the zoo beside a comparison that driftnet has no part in.

`python -m tests.zoo.measure [--models A,B] [--recipes C,D] [--again]` checks each model under each recipe as a user
would, by the command line in a process of its own; keeps what it said beside the models in the cache; and writes
docs/zoo.md of all that is kept. What the target makes of a model comes through the sandbox; everything else here is
onnxruntime and numpy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from driftnet.model.case import Case
from driftnet.run.runner import Runner
from driftnet.run.sandbox.allowance import LATE
from driftnet.targets.environments import resolve
from driftnet.targets.recipe import effective
from onnx import numpy_helper

from tests.support.paths import ROOT
from tests.zoo.models import Specimen, cache_folder, specimens

RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mnn float": ("mnn", {}),
    "mnn weight-only": ("mnn", {"quantize": "weight-only"}),
    "mnn offline KL": ("mnn", {"quantize": "offline"}),
    "ort static QDQ": ("onnxruntime-quant", {}),
    "ort dynamic": ("onnxruntime-quant", {"quantize": "dynamic"}),
}
PLAIN_SCHEME = {"types": "s8s8", "per_channel": True, "symmetric_activations": True}
INTRODUCTION = """\
`driftnet check` on {} trained models out of packages of the index, as `make zoo-table` measures it: each model on two
realistic inputs, calibrated on four. Beside each verdict stands what a comparison says that driftnet has no part in
(`tests/zoo/measure.py`, onnxruntime and numpy): the error of the worst output (relative, L2) and what it may be. Float
models, without Winograd's kernels, may lose what a hundred roundings of their inputs do; quantized weights four times
what numpy's rounding of them loses; of onnxruntime's own artifacts the execution is compared with that without
optimizations, and each weight with the float one; MNN's offline quantization with onnxruntime's of the same scheme, and
with the float model whose tensors are cut where the Kullback-Leibler divergence of their histograms is least. A whole
that is off by no more may hold a wrong node all the same: so where a model is accused, the comparison asks the nodes
that are by themselves. Where nothing came out, or nothing can be compared, the comparison is unclear. MiB are those of
the largest process.
"""
FEEDS, SAMPLES = 2, 4
ROUNDED = 1e-5
"""What rounding may cost an output at least, relative to its L2 norm: with Winograd's kernels off, if they are used."""
LOST = 0.9
"""An error of which there is nothing left to compare."""
AMPLIFIED = 100.0
"""How many roundings of the inputs the rounding inside a network may amount to."""
QUANTIZED = 0.05
"""What steps of fused kernels may come to at least, relative to the L2 norm of an output."""
HALF = 0.51
"""Steps that a weight may be off by."""
LIKE = 4.0
"""A quantized model may be off by so many times what the same done with numpy is off by."""

IN_CODES = {"Add", "AveragePool", "Concat", "Conv", "Gemm", "MatMul", "MaxPool", "Mul", "Relu", "Sigmoid", "Softmax"}
"""Operators whose results MNN may hold in codes, when it is asked what a cut of these alone comes to."""
BINS, CODES = 2048, 128
NOTHING = 1e-12
"""Weights that are so small a share of the largest add less than a rounding to any result."""
ROWS = {"GRU", "LSTM", "RNN"}
"""Operators of whose weights each row has a scale."""

APART = """\
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, file=sys.stderr)
sys.exit(status)
"""
"""Runs a command from a small process, and says at last what it took: a child is charged with the memory that its
parent had when it began, and who compares models has much."""

Feed = Mapping[str, np.ndarray]
Outputs = Sequence[Feed]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="", help="names, with commas; all without")
    parser.add_argument("--recipes", default="", help="names, with commas; all without")
    parser.add_argument("--again", action="store_true", help="measure again what was measured")
    parser.add_argument("--compare", action="store_true", help="of what was measured, make the comparison again")
    given = parser.parse_args(arguments)
    models = [s for s in specimens() if s.name in given.models.split(",") or not given.models]
    kept().mkdir(parents=True, exist_ok=True)
    for specimen in models:
        for recipe in given.recipes.split(",") if given.recipes else RECIPES:
            path = kept() / f"{specimen.name}.{recipe.replace(' ', '-')}.json"
            if given.again or given.compare or not path.exists():
                told = json.loads(path.read_text()) if given.compare and path.exists() else None
                row = measured(specimen, recipe, told)
                print(line(row), flush=True)
                if LATE in (row["message"] or ""):  # that tells of this machine, not of what is measured
                    print("not kept: measure it again on a machine that is less busy", flush=True)
                else:
                    path.write_text(json.dumps(row, indent=1))
    written = ROOT / "docs" / "zoo.md"
    written.write_text(page(written.read_text(encoding="utf-8")), encoding="utf-8")


def kept() -> Path:
    """The folder of what was measured."""
    return cache_folder() / "measured"


def measured(specimen: Specimen, recipe: str, told: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One check, unless that was `told`, and what the comparison outside says of the same model, target and recipe."""
    target, options = RECIPES[recipe]
    feeds = [specimen.feed(seed) for seed in range(FEEDS)]
    samples = [specimen.feed(100 + seed) for seed in range(SAMPLES)]
    told = told or checked(specimen.path, target, options, feeds, samples)
    model = specimen.load()
    error, allowed, why = compared(model, target, options, feeds, samples)
    own = said(error, allowed)
    parts = [[node["node"] for node in fault["nodes"]] for fault in told["faults"]]
    if own != "wrong" and told["verdict"] == "diverges":
        worst = alone(model, parts, target, options, feeds)
        if worst and said(*worst[:2]) == "wrong":
            (error, allowed, why), own = worst, "wrong"
    return {
        "model": specimen.name,
        "recipe": recipe,
        **told,
        "mib": round(sum(path.stat().st_size for _, path, _ in specimen.files) / 2**20, 2),
        "own": own,
        "error": error,
        "allowed": allowed,
        "why": why,
    }


def said(error: float | None, allowed: float) -> str:
    """What the comparison says in a word."""
    return "unclear" if error is None else "right" if error <= allowed else "wrong"


def checked(path: Path, target: str, options: Mapping[str, Any], feeds: Outputs, samples: Outputs) -> dict[str, Any]:
    """What `driftnet check` says; its CPU seconds, and the memory of the largest of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, given in (("inputs", feeds), ("calibration", samples)):
            (Path(folder) / name).mkdir()
            for k, feed in enumerate(given):
                np.savez(Path(folder) / name / f"{k}.npz", **feed)
        # The console script: a module of the command line alone leaves OpenBLAS its threads, which wait by spinning.
        command = [str(Path(sys.executable).with_name("driftnet")), "check", str(path), "--target", target, "--json"]
        command += ["--inputs", f"{folder}/inputs", "--calibration", f"{folder}/calibration"]
        command += ["--recipe", json.dumps(options)]
        with open(Path(folder) / "out", "wb") as out, open(Path(folder) / "err", "wb") as err:
            apart = [sys.executable, "-c", APART, *command]
            status = subprocess.call(apart, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT)
        seconds, peak = (Path(folder) / "err").read_text().split()[-2:]
        said = json.loads((Path(folder) / "out").read_text() or "{}")
    result = said.get("targets", [{}])[0]
    names = ("verdict", "stage", "kind", "known", "message", "culprits", "notes", "vouched", "end_to_end", "kernels")
    faults = [
        {k: fault[k] for k in ("nodes", "kind", "message", "impact", "known", "goes_away_with", "reduced")}
        for fault in result.get("faults", [])
    ]
    return {
        "status": status,
        **{name: result.get(name) for name in names},
        "faults": faults,
        "problem": said.get("error"),
        "cpu_seconds": round(max(float(seconds), result.get("cpu_seconds") or 0), 1),
        "peak_mib": int(peak),
    }


def compared(
    model: onnx.ModelProto, target: str, options: Mapping[str, Any], feeds: Outputs, samples: Outputs
) -> tuple[float | None, float, str]:
    """(relative L2 error of the worst output, what it may be, why); no error where nothing came out."""
    with Runner(timeout=120) as runner:
        case = Case(model.SerializeToString(), tuple(feeds), tuple(samples))
        seen = runner.observe(case, resolve(target), options)
        artifact = seen.artifact.model
        exact = {"disabled_kernels": ["Winograd"]}
        before = runner.observe(case, resolve(target), exact).outputs if target == "mnn" else ()
    right = run(model.SerializeToString(), feeds)
    if not seen.outputs:
        last = seen.last
        return None, 0.0, f"{last.stage} {last.outcome}: {(last.message or last.signal or '').strip()[:200]}"
    error = off(seen.outputs, right)
    jittered = [{k: jitter(x) for k, x in feed.items()} for feed in feeds]
    rounding = AMPLIFIED * max(off(run(model.SerializeToString(), jittered), right), 2.0**-24)
    unit = max((np.finfo(x.dtype).eps for x in right[0].values() if x.dtype.kind == "f"), default=0.0)
    plain, rounding = off(before, right) if before else 0.0, max(ROUNDED, rounding, float(unit))
    if not options:  # right with these kernels is right
        plain = min(plain, error)
    if plain > rounding or (target == "mnn" and not options):
        return plain, rounding, f"unquantized, without Winograd; with it {error:.2g}"
    if options.get("quantize") == "weight-only":
        like = off(run(with_rounded_weights(model).SerializeToString(), feeds), right)
        if not like:
            return None, 0.0, "its weights stand in subgraphs, where numpy rounds none"
        return error, max(rounding, LIKE * like), f"weights rounded by numpy: {like:.2g}"
    installed = resolve(target).target
    if artifact is None and target != "mnn" and installed.scheme(effective(installed, options)) is None:
        return error, rounding, "unquantized"
    if artifact is None:
        with Runner(timeout=120) as runner:
            alike = runner.observe(case, resolve("onnxruntime-quant"), PLAIN_SCHEME)
        like = off(alike.outputs, right) if alike.outputs else 0.0
        cut = off(run(with_cut_tensors(model, samples).SerializeToString(), feeds), right)
        why = f"onnxruntime's of that scheme: {like:.2g}; cut as that divergence has it: {cut:.2g}"
        if LOST <= cut <= error <= LIKE * cut:
            return None, 0.0, f"off by {error:.2g}, but cutting loses as much; {why}"
        return error, min(LOST, max(QUANTIZED, LIKE * like, LIKE * cut)), why
    # onnxruntime's own artifact: executed as it is written, but for steps that fused kernels may be off by, and the
    # weights in it right? What steps come to shows where the inputs are off by as much.
    try:
        written = run(artifact, feeds)
    except Exception as e:  # onnxruntime has no type of its own for what it does not load
        return None, 0.0, f"without optimizations it does not load: {str(e)[:100]}"
    executed = off(seen.outputs, written)
    stepped = [{k: jitter(x, 0.5 / 127) for k, x in feed.items()} for feed in feeds]
    moved = artifact if any(x.dtype.kind == "f" for x in feeds[0].values()) else with_moved_tables(artifact)
    allowed = max(QUANTIZED, LIKE * off(run(moved, stepped), written))
    steps, where = weight_error(model, onnx.ModelProto.FromString(artifact))
    why = f"as written {executed:.2g}, weights {steps:.2f} steps, end to end {error:.2g}"
    own = {tensor.name for tensor in model.graph.initializer}
    stored = [t for t in onnx.ModelProto.FromString(artifact).graph.initializer if t.name not in own]
    if odd := [t.name for t in stored if np.isinf(numpy_helper.to_array(t).astype(np.float64)).any()]:
        return float("inf"), allowed, f"{why}, {odd[0]} is infinite"
    return (executed, allowed, why) if steps <= HALF else (float("inf"), allowed, f"{why} at {where}")


def alone(
    model: onnx.ModelProto, parts: Sequence[Sequence[str]], target: str, options: Mapping[str, Any], feeds: Outputs
) -> tuple[float, float, str] | None:
    """The worst of these parts by itself, each calibrated on what it is fed, as of `compared`; beside what a whole
    network loses when it is quantized, a wrong node may not show. None where none of them could be compared.

    parts   names of nodes, or of what those without a name make
    """
    found: list[tuple[float, float, str]] = []
    for names in parts:
        nodes = [n for n in model.graph.node if n.name in names or not set(names).isdisjoint(n.output)]
        if not nodes:
            continue
        part, fed = cut_out(model, nodes, feeds)
        error, allowed, why = compared(part, target, options, fed, fed)
        if error is not None and said(error, allowed) == "right" and options:
            with Runner(timeout=120) as runner:
                got = runner.observe(Case(part.SerializeToString(), tuple(fed), tuple(fed)), resolve(target), options)
            right, codes = (
                run(part.SerializeToString(), fed),
                with_rounded_weights(with_cut_tensors(part, fed, coded=True)),
            )
            like = off(run(codes.SerializeToString(), fed), right)
            error, allowed, why = off(got.outputs, right), max(QUANTIZED, LIKE * like), f"in codes of numpy: {like:.2g}"
            if (steps := steps_of_nothing(part, got.outputs, right)) > 1:
                error, allowed, why = steps, 1.0, f"what has no weights is off by {steps:.0f} steps"
        if error is not None:
            found.append((error, allowed, f"{', '.join(names)} alone: {why}"))
    return max(found, key=lambda each: each[0] / each[1], default=None)


def steps_of_nothing(part: onnx.ModelProto, got: Outputs, right: Outputs) -> float:
    """How many steps of its result a Conv is off by where all weights are next to nothing: that holds a bias alone."""
    weights = {t.name: numpy_helper.to_array(t) for t in part.graph.initializer}
    worst = 0.0
    for node in part.graph.node:
        w, name = weights.get(node.input[1]) if node.op_type == "Conv" else None, node.output[0]
        if w is not None and got and name in right[0]:
            largest = np.abs(w).max(axis=tuple(range(1, w.ndim)))
            dead = np.flatnonzero(largest <= NOTHING * largest.max())
            for run, exact in zip(got, right):
                step = np.abs(exact[name]).max() / CODES
                worst = max(
                    [worst, *(float(np.abs(run[name] - exact[name])[:, dead].max() / step) for _ in dead[:1] if step)]
                )
    return worst


def cut_out(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], feeds: Outputs
) -> tuple[onnx.ModelProto, list[Feed]]:
    """These nodes as a model, and what onnxruntime feeds them; what is constant stays so."""
    graph = model.graph
    constant = {t.name: t for t in graph.initializer}
    constant |= {n.output[0]: n.attribute[0].t for n in graph.node if n.op_type == "Constant"}
    made = [name for node in nodes for name in node.output if name]
    read = [x for x in dict.fromkeys(x for node in nodes for x in node.input if x) if x not in made]
    later = {x for node in graph.node if node not in nodes for x in node.input} | {v.name for v in graph.output}
    given = [name for name in made if name in later] or made[-1:]
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    there = {value.name for value in graph.output}
    names = [name for name in (*read, *given) if name not in there and name not in constant and name not in feeds[0]]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    seen = [{**feed, **ran} for feed, ran in zip(feeds, run(whole.SerializeToString(), feeds))]

    def declared(name: str) -> onnx.ValueInfoProto:
        x = seen[0][name]
        return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)

    part = onnx.ModelProto()
    part.CopyFrom(model)
    for field in ("node", "initializer", "input", "output", "value_info"):
        part.graph.ClearField(field)
    part.graph.node.extend(nodes)
    for name in read:
        if name in constant:
            part.graph.initializer.add().CopyFrom(constant[name])
            part.graph.initializer[-1].name = name
    taken = [name for name in read if name not in constant]
    part.graph.input.extend(map(declared, taken))
    part.graph.output.extend(map(declared, given))
    return part, [{name: run[name] for name in taken} for run in seen]


def run(model: bytes, feeds: Outputs) -> list[Feed]:
    """What onnxruntime makes of it without optimizations."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads, settings.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(feed)))) for feed in feeds]


def off(observed: Outputs, expected: Outputs) -> float:
    """The relative L2 error of the output that is farthest off, over all feeds; infinite for another shape or NaN."""
    worst = 0.0
    for name, first in expected[0].items():
        if first.dtype.kind in "biuf":
            pairs = [(got.get(name), right[name]) for got, right in zip(observed, expected)]
            if any(a is None or a.shape != b.shape for a, b in pairs):
                return float("inf")
            a, b = (np.concatenate([np.asarray(x, np.float64).ravel() for x in side]) for side in zip(*pairs))
            error = float(np.linalg.norm(np.where(a == b, 0, a - b)) / (np.linalg.norm(b) or 1.0))
            worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst


def jitter(x: np.ndarray, step: float = 0.0) -> np.ndarray:
    """Every float rounded once more, at random; or moved by `step` times the largest."""
    if x.dtype.kind != "f":
        return x
    signs = np.random.default_rng(0).choice([-1, 1], x.shape)
    moved = signs * step * np.abs(x).max(initial=0) if step else x * signs * np.finfo(x.dtype).eps
    return np.asarray(x + moved, x.dtype)


def with_moved_tables(artifact: bytes) -> bytes:
    """The artifact with each table that a Gather reads moved by half a step, at random: of what is fed whole numbers
    these are the first floats."""
    model, rng = onnx.ModelProto.FromString(artifact), np.random.default_rng(0)
    makers = {name: node for node in model.graph.node for name in node.output}
    tables = set()
    for node in model.graph.node:
        name = node.input[0] if node.op_type == "Gather" else ""
        while name in makers and makers[name].op_type in ("DequantizeLinear", "QuantizeLinear"):
            name = makers[name].input[0]
        tables.add(name)
    for tensor in model.graph.initializer:
        x = numpy_helper.to_array(tensor)
        if tensor.name in tables and x.dtype.kind == "f":
            tensor.CopyFrom(numpy_helper.from_array(jitter(x, 0.5 / 127), tensor.name))
        elif tensor.name in tables and x.dtype.itemsize == 1:
            ends, step = np.iinfo(x.dtype), rng.integers(0, 2, x.shape)
            codes = np.clip(x.astype(np.int64) + step, ends.min, ends.max).astype(x.dtype)
            tensor.CopyFrom(numpy_helper.from_array(codes, tensor.name))
    return model.SerializeToString()


def with_rounded_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each matrix and kernel rounded to 8 bits, a scale and zero point an output channel."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    weights = {node.input[1]: node for node in copy.graph.node if node.op_type in ("Conv", "MatMul", "Gemm")}
    weights |= {name: node for node in copy.graph.node if node.op_type in ROWS for name in node.input[1:3]}
    stated = {node.output[0]: node.attribute[0].t for node in copy.graph.node if node.op_type == "Constant"}
    stated = {name: tensor for name, tensor in stated.items() if len(tensor.dims) > 1}
    for name, tensor in [*((t.name, t) for t in copy.graph.initializer), *stated.items()]:
        if name in weights and len(tensor.dims) > 1:
            x = numpy_helper.to_array(tensor)
            node = weights[name]
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            rows = (x.ndim - 1,) if node.op_type in ROWS else ()
            first = node.op_type == "Conv" or transposed
            axes = rows or (tuple(range(1, x.ndim)) if first else tuple(range(x.ndim - 1)))
            low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
            scale = np.where(high > low, (high - low) / 255, 1)
            rounded = np.rint((x - low) / scale) * scale + low
            tensor.CopyFrom(numpy_helper.from_array(rounded.astype(x.dtype), tensor.name))
    return copy


def with_cut_tensors(model: onnx.ModelProto, samples: Outputs, *, coded: bool = False) -> onnx.ModelProto:
    """The model with what each of these operators makes cut at a threshold by its histogram over `samples`; coded, not
    cut there but rounded to codes of its whole range, after opset 10."""
    whole, copy = onnx.ModelProto(), onnx.ModelProto()
    whole.CopyFrom(model)
    copy.CopyFrom(model)
    given = {output.name for output in model.graph.output}
    made = {name for node in model.graph.node if node.op_type in IN_CODES for name in node.output[:1]}
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(made - given))
    seen = run(whole.SerializeToString(), samples)
    del copy.graph.node[:]
    for node in model.graph.node:
        copy.graph.node.append(node)
        name = node.output[0]
        if name in made and seen[0][name].dtype == np.float32:
            values = np.concatenate([record[name].ravel() for record in seen])
            if not np.isfinite(values).all():  # a mask: there is no range to cut
                continue
            if coded:
                scale = np.float32(np.abs(values).max(initial=0.0) / (CODES - 1) or 1.0)
                steps = {f"{name}:scale": scale, f"{name}:zero": np.int8(0)}
                copy.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), k) for k, x in steps.items())
                copy.graph.node[-1].output[0] = f"{name}:whole"
                for op, takes, makes in (("Quantize", "whole", f"{name}:codes"), ("Dequantize", "codes", name)):
                    copy.graph.node.append(onnx.helper.make_node(f"{op}Linear", [f"{name}:{takes}", *steps], [makes]))
                continue
            most = threshold(values)
            for end, limit in (("low", -most), ("high", most)):
                copy.graph.initializer.append(numpy_helper.from_array(np.float32(limit), f"{name}:{end}"))
            copy.graph.node[-1].output[0] = f"{name}:whole"
            for op, operand, limit, result in (("Max", "whole", "low", "above"), ("Min", "above", "high", "")):
                named = f"{name}:{result}" if result else name  # a Clip has its bounds as attributes before opset 11
                copy.graph.node.append(onnx.helper.make_node(op, [f"{name}:{operand}", f"{name}:{limit}"], [named]))
    return copy


def threshold(x: np.ndarray) -> float:
    """Where x is cut so that the histogram of its magnitudes diverges least from that in codes (Migacz 2017)."""
    largest = float(np.abs(x).max(initial=0.0))
    counts = np.histogram(np.abs(x[x != 0]), BINS, (0, largest or 1.0))[0].astype(np.float64)
    best, least = BINS, np.inf
    for bins in range(CODES, BINS + 1):
        cut, code = counts[:bins].copy(), np.arange(bins) * CODES // bins
        cut[-1] += counts[bins:].sum()
        there = counts[:bins] > 0
        mean = np.bincount(code, counts[:bins], CODES) / np.maximum(np.bincount(code, there, CODES), 1)
        held = cut > 0
        divergence = float(np.sum(cut[held] * np.log(cut[held] / np.where(there, mean[code], 1e-7)[held])))
        if divergence < least:
            best, least = bins, divergence
    return (best - 0.5) / BINS * largest


def weight_error(model: onnx.ModelProto, quantized: onnx.ModelProto) -> tuple[float, str]:
    """How far a weight of the artifact is from the float one at most, in steps; and which."""
    floats = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    held = {t.name: t for t in quantized.graph.initializer}
    worst, where = 0.0, ""
    for name, x in floats.items():
        parts = [held.get(f"{name}_{part}") for part in ("quantized", "scale", "zero_point")]
        if any(part is None for part in parts) or not x.size:
            continue
        codes, scale, zero = (numpy_helper.to_array(part).astype(np.float64) for part in parts if part is not None)
        if scale.size > 1:
            continue
        found = (codes - zero) * scale
        ways = [
            y for y in (found, found.T) if y.shape == x.shape
        ]  # what Gemm reads transposed is stored as MatMul has it
        steps = min((float(np.abs(y - x).max() / scale.item()) for y in ways), default=0.0)
        if steps > worst:
            worst, where = steps, name
    return worst, where


def rows() -> list[dict[str, Any]]:
    """What was measured of the models of the manifest, in its order; a cache may hold others."""
    order = [specimen.name for specimen in specimens()]
    found = [json.loads(path.read_text()) for path in kept().glob("*.json")]
    return sorted(
        (row for row in found if row["model"] in order),
        key=lambda row: (order.index(row["model"]), list(RECIPES).index(row["recipe"])),
    )


def judged(row: Mapping[str, Any]) -> str:
    """What the verdict is worth: right, false alarm, miss, or no answer."""
    failed, agreed = row["verdict"] in ("diverges", "fails", "crashes", "hangs"), row["verdict"] == "agrees"
    if not failed and not agreed:
        return "" if row["verdict"] == "rejects" else "no answer"
    if row["own"] == "unclear":  # nothing came out: a failure then; or the comparison has no answer
        return ""
    return "" if failed == (row["own"] == "wrong") else "false alarm" if failed else "miss"


def line(row: Mapping[str, Any]) -> str:
    """A row for a terminal."""
    error = "-" if row["error"] is None else f"{row['error']:.2g} of {row['allowed']:.2g}"
    known = f" known {row['known']}" if row["known"] else ""
    what = (row["message"] or str(row["problem"] or ""))[:150]
    parts = [f"{row['model']} / {row['recipe']}: {row['verdict']}{known}; own: {row['own']} ({error}; {row['why']})"]
    parts += [judged(row).upper(), f"{row['cpu_seconds']} s, {row['peak_mib']} MiB of {row['mib']}", what]
    return "; ".join(filter(None, parts))


def page(before: str = "") -> str:
    """docs/zoo.md; what was not measured on this machine stands as it did `before`."""
    order = [specimen.name for specimen in specimens()]
    verdicts, heading, audits = before.partition("\n## ")
    lines = [text for text in verdicts.splitlines() if text.startswith("|")]
    written = [[cell.strip() for cell in text.split("|")[1:-1]] for text in lines]
    cells = {(row[0], row[2]): row for row in written if row[0] in order}
    cells |= {(row["model"], row["recipe"]): _cells(row) for row in rows() if row["verdict"]}
    table = sorted(cells.values(), key=lambda row: (order.index(row[0]), list(RECIPES).index(row[2])))
    counts = Counter(row[-1] for row in table)
    answered = sum(row[5] != "unclear" for row in table)
    lines = [
        "# Trained models",
        "",
        *textwrap.wrap(INTRODUCTION.format(len({row[0] for row in table})), 120),
        "",
        f"{len(table)} verdicts, {answered} of them with a comparison. False alarms: {counts['false alarm']}; "
        f"misses: {counts['miss']}; without an answer: {counts['no answer']}.",
        "",
        "| model | MB | recipe | verdict | nodes at fault | comparison | error | may be | CPU s | MiB |  |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in table),
    ]
    return "\n".join([*lines, ""]) + heading + audits


def _cells(row: Mapping[str, Any]) -> list[str]:
    said = f"{row['verdict']}{', known' if row['known'] and row['verdict'] != 'agrees' else ''}"
    at_fault = (
        ", ".join(dict.fromkeys(c["op_type"] for c in row["culprits"] or ())) if row["verdict"] != "agrees" else ""
    )
    numbers = ("", "") if row["error"] is None else (f"{row['error']:.2g}", f"{row['allowed']:.2g}")
    cells = (row["model"], row["mib"], row["recipe"], said, at_fault, row["own"], *numbers, row["cpu_seconds"])
    return [str(cell) for cell in (*cells, row["peak_mib"], judged(row))]


if __name__ == "__main__":
    main()
