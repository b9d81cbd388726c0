"""Noise: the float model with quantization as sampled noise, in one session whose graph inputs are what is drawn.

A float tensor x with range [low, high] and step s becomes s (round(clip(x) / s + d) - d), a weight w + s_w U(-.5, .5).
d is independent U(-.5, .5) in odd samples and one common shift in even ones, because the codes of equal values move
together. What is cut to a code, not rounded, is less by half a step too: in one sample of three towards zero, in one
downwards, and in one not.

Steps are those that the artifact tells, where it can be read, else those of the scheme's formula. Where calibration may
clip and nobody tells at what, each sample has ranges and steps smaller by a factor of its own for each tensor; where
the artifact tells of others, a tensor may have the steps of those beside it. Where a
feed leaves the calibrated range or calibration clips, it matters which consumers of a tensor read it quantized (those
in integers do, others may not), so each draws that for itself.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from driftnet.model.graph import Graph, Values
from driftnet.model.inspect import Case, refill
from driftnet.model.operators import RECURRENT
from driftnet.oracle.question.question import Question
from driftnet.oracle.scheme import calibration, formulas
from driftnet.oracle.tolerances.table import DEEPEST_CLIP, LARGEST_VANISHED
from driftnet.targets.interface import Scheme
from onnx import NodeProto, TensorProto, helper, numpy_helper

MOST_AT_ONCE = 2**26
"""Bytes of samples that are run by one session, where one sample is no larger: the noise of all weights is in each."""
BROADCASTING_BOUNDS, WHERE, ROUND = 8, 9, 11
"""The operator sets that first have a Max and Min which broadcast, a Where, and a Round."""


@dataclass(frozen=True)
class Noise:
    """What is quantized: activations -> their steps, weights -> the step of each element.

    narrowed  activations -> factors of which range and step may be times as large; () is any down to DEEPEST_CLIP
    partly    consumers may read a tensor unquantized
    unknown   tensors that were zero in calibration, or so small that the quantizer took them for it, and are not now:
              no formula says what becomes of them
    untold    tensors of which calibration saw something and the quantizer tells no step: left as they are, it seems
    cut       activations whose codes are known to be cut, not rounded
    """

    activations: Mapping[str, calibration.Step]
    weights: Mapping[str, np.ndarray]
    narrowed: Mapping[str, tuple[float, ...]]
    partly: bool
    unknown: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()


def of_scheme(question: Question, scheme: Scheme) -> Noise:
    """By the scheme: every float tensor of the main graph but its constants, and the weights."""
    calibrated = calibration.steps(question, scheme)
    empty = {name for name, codes in question.artifact.tensors.items() if codes.scale == 0}
    formula = {name: step for name, step in calibrated.items() if step.low < step.high and name not in empty}
    untold = {n for n in empty & calibrated.keys() if calibrated[n].high - calibrated[n].low >= LARGEST_VANISHED}
    nothing = calibrated.keys() - formula - untold
    unknown = {name for name in nothing if any(record[name].any() for record in question.records)}
    unknown |= calibration.vanished(question)
    formula |= _fixed(question.graph, scheme, formula)
    told = calibration.told(question, formula)
    activations = formula | {name: found[0] for name, found in told.items()}
    narrowed = {name: tuple(s.scale / found[0].scale for s in found) for name, found in told.items() if len(found) > 1}
    if scheme.clips:
        narrowed |= {name: _around(question.graph, name, formula, told) for name in formula.keys() - told.keys()}
    strays = any(
        record[name].min(initial=0.0) < step.low or record[name].max(initial=0.0) > step.high
        for record in question.records
        for name, step in activations.items()
    )
    partly = scheme.clips or strays
    return Noise(
        activations, weight_steps(question.graph, scheme), narrowed, partly, frozenset(unknown), frozenset(untold)
    )


def with_cut(noise: Noise, steps: Mapping[str, float]) -> Noise:
    """`noise`, where tensors are known to be cut to codes of these steps."""
    held = {name: step for name, step in noise.activations.items() if name in steps}
    coarse = {name: replace(step, scale=max(step.scale, steps[name])) for name, step in held.items()}
    return replace(noise, activations={**noise.activations, **coarse}, cut=frozenset(held))


def _around(
    model: Graph, name: str, formula: Mapping[str, calibration.Step], told: Mapping[str, Sequence[calibration.Step]]
) -> tuple[float, ...]:
    """By what the formula's step of a tensor may be multiplied of which the artifact tells nothing.

    Where it tells of others, that one is not quantized, or an executor takes the step of what is beside it for it.
    """
    if not told:
        return ()
    made = model.producers.get(name)
    nodes = [*([made] if made else []), *(node for node in model.nodes if name in node.inputs)]
    beside = {x for node in nodes for x in (*node.inputs, *node.outputs)}
    factors = [step.scale / formula[name].scale for x in sorted(beside) for step in told.get(x, ())]
    return (1.0, *(factor for factor in factors if DEEPEST_CLIP <= factor <= 1 / DEEPEST_CLIP))


def _fixed(model: Graph, scheme: Scheme, formula: Mapping[str, calibration.Step]) -> dict[str, calibration.Step]:
    """The steps of results of Softmax, wherever they are coarser for the range 0..1, which quantizers may give them:
    onnxruntime.quantization.operators.softmax has out_scale = 1 / 256."""
    names = [name for node in model.nodes if node.op == "Softmax" for name in node.outputs if name in formula]
    lowest, highest = scheme.activation_codes or (0, 0)
    step = 1 / (highest - lowest + 1)
    return {name: calibration.Step(0.0, 1.0, step) for name in names if formula[name].scale < step}


def weight_steps(model: Graph, scheme: Scheme) -> dict[str, np.ndarray]:
    """The step of each constant that `scheme` quantizes as weights, the largest that anybody might take."""
    if scheme.weight_codes is None:
        return {}
    names = {node.inputs[1]: node for node in model.nodes if formulas.has_weights(model, node)}
    names |= {name: node for node in model.nodes if node.op in RECURRENT for name in node.inputs[1:3]}
    found = {}
    for name, node in names.items():
        w = model.constants.get(name)
        if w is None or w.dtype.kind != "f" or not w.size or not np.isfinite(w).all():
            continue
        kept = formulas.channel_axes(node, scheme) if node.op == "Conv" or w.ndim == 2 else ()
        axes = tuple(k for k in range(w.ndim) if len(kept) != 1 or k not in kept)
        low, high = (f(w, axis=axes, keepdims=True).astype(np.float64) for f in (np.min, np.max))
        step = formulas.scales(low, high, scheme.weight_codes, scheme.symmetric_weights)
        found[name] = np.where((low == 0) & (high == 0), 0.0, step) * (1 if scheme.nearest_weights else 2)
    return found


def sampled(noise: Noise, question: Question, numbers: range) -> list[Sequence[Values]]:
    """[sample][feed][output]; sample k is the same whenever it is drawn. Empty when the reference refuses the model."""
    case, graph, first = question.case, question.graph, question.records[0]
    values = {**graph.constants, **first}
    model, choices = _instrumented(
        case.proto, noise, {name: values[name] for name in (*noise.activations, *noise.weights)}
    )
    runs: list[Values] = []
    feeds: list[dict[str, np.ndarray]] = []
    for number in numbers:
        rng = np.random.default_rng(number)
        drawn = {f"{name}~use": np.asarray(number % 4 == 0 or rng.random() < 0.5) for name in choices}
        for name, steps in noise.weights.items():
            w = values[name]
            drawn[f"{name}~noise"] = (steps * rng.uniform(-0.5, 0.5, w.shape)).astype(w.dtype)
        for name, factors in sorted(noise.narrowed.items()):
            any_factor = DEEPEST_CLIP ** rng.uniform() if number % 3 else 1.0
            drawn[f"{name}~kept"] = np.asarray(rng.choice(factors) if factors else any_factor, values[name].dtype)
        for feed, record in zip(case.feeds, question.records):
            exact = {f"{name}~exact" if name in noise.activations else name: x for name, x in feed.items()}
            shifts = {f"{name}~shift": _shift(rng, record[name], number) for name in noise.activations}
            back = {f"{name}~back": shifts[f"{name}~shift"] + _lost(record[name], number) for name in noise.cut}
            feeds.append({**exact, **drawn, **shifts, **back})
        one_more = sum(x.nbytes for feed in feeds[-len(case.feeds) :] for x in feed.values())
        if number == numbers[-1] or len(feeds) // len(case.feeds) * one_more + one_more > MOST_AT_ONCE:
            runs += question.reference.run(Case(model, tuple(feeds))).outputs
            feeds = []
    return [runs[k : k + len(case.feeds)] for k in range(0, len(runs), len(case.feeds))]


def _shift(rng: np.random.Generator, x: np.ndarray, number: int) -> np.ndarray:
    return np.asarray(rng.uniform(-0.5, 0.5, x.shape if number % 2 else (1,) * x.ndim), x.dtype)


def _lost(x: np.ndarray, number: int) -> np.ndarray:
    """What a code of `x` is less by on average where it is cut, in steps."""
    cut = (np.zeros_like(x), np.full_like(x, 0.5), np.copysign(np.asarray(0.5, x.dtype), x))[number % 3]
    return np.where(x == 0, np.zeros_like(x), cut)


def _instrumented(model: onnx.ModelProto, noise: Noise, like: Values) -> tuple[bytes, list[str]]:
    """(`model` with `noise`, the names of the reads that choose). What makes x makes x~exact instead.

    like   an array of the dtype and rank of each tensor
    """
    changed = deepcopy(model)
    graph = changed.graph
    opset = next((own.version for own in model.opset_import if own.domain in ("", "ai.onnx")), 1)
    inserted = {name: _rounding(name, noise, opset, like[name].dtype) for name in noise.activations}
    inserted |= {name: [helper.make_node("Add", [f"{name}~exact", f"{name}~noise"], [name])] for name in noise.weights}
    choices = [name for name in noise.activations if noise.partly]
    nodes: list[NodeProto] = []
    for value in (*graph.input, *graph.initializer):
        if value.name in inserted:
            nodes += inserted[value.name]
            value.name = f"{value.name}~exact"
    for number, node in enumerate(model.graph.node):
        copy = NodeProto()
        copy.CopyFrom(node)
        for k, name in enumerate(node.input):
            if noise.partly and name in noise.activations:
                copy.input[k] = f"{name}~{number}~{k}"
                nodes += _choice(name, copy.input[k], opset, like[name].dtype)
                choices.append(copy.input[k])
        copy.output[:] = [f"{name}~exact" if name in inserted else name for name in node.output]
        nodes += [copy, *(after for name in node.output for after in inserted.get(name, ()))]
    refill(graph.node, nodes)
    for name, step in noise.activations.items():
        for part, value in (("low", step.low), ("high", step.high), ("step", step.scale), ("half", 0.5)):
            graph.initializer.append(numpy_helper.from_array(np.asarray(value, like[name].dtype), f"{name}~{part}"))
    given: dict[str, np.ndarray | np.generic] = {f"{name}~use": np.bool_() for name in choices}
    given |= {f"{name}~kept": like[name].dtype.type() for name in noise.narrowed}
    given |= {f"{name}~shift": like[name] for name in noise.activations}
    given |= {f"{name}~back": like[name] for name in noise.cut}
    given |= {f"{name}~noise": like[name] for name in noise.weights}
    for name, x in given.items():
        dims = [f"{name}{axis}" for axis in range(x.ndim)]
        graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), dims))
    return bytes(changed.SerializeToString()), choices


def _rounding(x: str, noise: Noise, opset: int, dtype: np.dtype[Any]) -> list[NodeProto]:
    """Nodes that make `x`, of that `dtype`, of x~exact, of operators that `opset` has."""
    step, own = noise.activations[x], helper.np_dtype_to_tensor_dtype(dtype)
    within: list[tuple[Any, ...]] = [("Max", f"{x}~low"), ("Min", f"{x}~high")]
    rounded: list[tuple[Any, ...]] = [("Round",)]
    if opset < BROADCASTING_BOUNDS:
        limits = {"min": step.low, "max": step.high}
        # onnxruntime has a Clip of that age for float32 alone.
        within = [("Cast", {"to": TensorProto.FLOAT}), ("Clip", limits), ("Cast", {"to": own})]
    if opset < ROUND:
        rounded = [("Add", f"{x}~half"), ("Floor",)]
    steps: list[tuple[Any, ...]] = [
        *within,
        ("Div", f"{x}~step"),
        ("Add", f"{x}~shift"),
        *rounded,
        ("Sub", f"{x}~back" if x in noise.cut else f"{x}~shift"),
        ("Mul", f"{x}~step"),
    ]
    if x in noise.narrowed:
        steps = [("Div", f"{x}~kept"), *steps, ("Mul", f"{x}~kept")]
    names = [f"{x}~exact", *(f"{x}~after{k}" for k in range(1, len(steps))), f"{x}~rounded" if noise.partly else x]
    nodes = []
    for k, (op, *other) in enumerate(steps):
        attributes = other.pop() if other and isinstance(other[0], dict) else {}
        nodes.append(helper.make_node(op, [names[k], *other], [names[k + 1]], **attributes))
    return [*nodes, *_choice(x, x, opset, dtype)] if noise.partly else nodes


def _choice(x: str, result: str, opset: int, dtype: np.dtype[Any]) -> list[NodeProto]:
    """Nodes that make `result`, of that `dtype`, of x~rounded or x~exact."""
    use, rounded, exact = f"{result}~use", f"{x}~rounded", f"{x}~exact"
    if opset >= WHERE:
        return [helper.make_node("Where", [use, rounded, exact], [result])]
    lost, chosen, number = f"{result}~lost", f"{result}~chosen", f"{result}~number"
    return [
        helper.make_node("Sub", [rounded, exact], [lost]),
        helper.make_node("Cast", [use], [number], to=helper.np_dtype_to_tensor_dtype(dtype)),
        helper.make_node("Mul", [lost, number], [chosen]),
        helper.make_node("Add", [exact, chosen], [result]),
    ]
