"""D4, the budget: is an error within what quantisation noise explains? For artifacts that cannot be read.

The float model is rerun with noise in place of quantisation. Each float tensor x with step s becomes

    s (round(clip(x) / s + d) - d)

where d is independent U(-.5, .5) in odd samples and one common shift in even ones, because the codes of equal values
move together; each weight becomes w + s_w U(-.5, .5). With E_k the error of sample k, e that of the target, mu and sd
mean and deviation of a statistic over the samples, and dist(a, b..c) the distance of a from that interval:

    score = max( L2(e) / 2 max L2(E_k),  max|e| / 2 max max|E_k|,
                 dist(mean e, 0..mu) / 8 sd,  dist(slope e, 0..mu) / 8 sd ),      slope e = <e, y> / <y, y>

A score above 2 diverges; the verdict's error is the score and its bound 2. Zero counts as well as mu, because noise
that a right quantiser does not make (zeros stay zero) is made here. Behind a decision (a comparison, an index) that
noise may flip, and where it drowns the result, nobody can tell. Where calibration may clip, each sample clips each
tensor at a place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from generators.case import Case, Feed
from harness.oracle import calibration, grid
from harness.oracle.graph import Graph, Values
from harness.oracle.question import Place, Question, abstains, agrees, distance
from harness.verdict import Kind, Verdict, Word
from harness.wire import Scheme

TIER = "budget"
FLAG = 2.0
SAMPLES = (12, 24, 48, 96)
DROWNED = 2.0  # times L2 of the result
DEEPEST_CLIP = 1 / 16  # of the range: 128 of 2048 bins is the least that KL keeps
FLOAT_ERROR = 1e-5  # of max|y|: what is no quantisation noise
DECISIONS = frozenset(
    {"And", "ArgMax", "ArgMin", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Compress"}
    | {"DequantizeLinear", "DynamicQuantizeLinear", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "If"}
    | {"IsInf", "IsNaN", "Less", "LessOrEqual", "Loop", "Mod", "NonMaxSuppression", "NonZero", "Not", "Or"}
    | {"QuantizeLinear", "Round", "Scan", "Shrink", "Sign", "ThresholdedRelu", "TopK", "Unique", "Xor"}
)
"""operators of which a small change of an operand may change the result by any amount"""


def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Asks for samples only where half a step does not settle it, and for more before it accuses."""
    if question.scheme is None:
        return {place: _cannot_tell(question, place, "nothing is quantised") for place in places}
    noise = Noise.of(question, question.scheme)
    verdicts = {place: agrees(TIER, place) for place in places if _within_half_a_step(question, place, noise)}
    disputed = [place for place in places if place not in verdicts]
    samples: list[Sequence[Values]] = []
    for count in SAMPLES:
        if not disputed:
            break
        samples += noise.sampled(question, range(len(samples), count))
        for place in disputed:
            verdicts[place] = _judge(question, place, [sample[place[0]] for sample in samples])
        disputed = [place for place in disputed if verdicts[place].error > FLAG / 2]
    return verdicts


@dataclass(frozen=True)
class Noise:
    """What is quantised: activations -> their steps, weights -> the step of each element."""

    activations: Mapping[str, calibration.Step]
    weights: Mapping[str, np.ndarray]
    clips: bool

    @staticmethod
    def of(question: Question, scheme: Scheme) -> Noise:
        """By the scheme: every float tensor of the main graph but its constants, and the weights."""
        activations = {name: step for name, step in calibration.steps(question, scheme).items() if step.low < step.high}
        return Noise(activations, weight_steps(question.graph, scheme), scheme.clips)

    def sampled(self, question: Question, numbers: range) -> list[Sequence[Values]]:
        """[sample][feed][output], sample by sample."""
        case, graph, first = question.case, question.graph, question.records[0]
        activations = {name: first[name] for name in self.activations}
        model = _instrumented(case.proto, activations, {name: graph.constants[name] for name in self.weights})
        feeds = []
        for number in numbers:
            rng = np.random.default_rng(number)
            drawn = self._drawn(rng, {**graph.constants, **first}, number)
            for feed, record in zip(case.feeds, question.records):
                exact = {f"{name}~exact" if name in self.activations else name: x for name, x in feed.items()}
                shifts = {f"{name}~shift": _shift(rng, record[name], number) for name in self.activations}
                feeds.append({**exact, **drawn, **shifts})
        runs = question.reference.run(Case(model, tuple(feeds))).outputs
        return [runs[k : k + len(case.feeds)] for k in range(0, len(runs), len(case.feeds))]

    def _drawn(self, rng: np.random.Generator, values: Values, number: int) -> Feed:
        """What one sample has for all feeds: noise of weights, and the range of each activation."""
        drawn = {}
        for name, steps in self.weights.items():
            w = values[name]
            drawn[f"{name}~noise"] = (steps * rng.uniform(-0.5, 0.5, w.shape)).astype(w.dtype)
        for name, step in self.activations.items():
            kept = DEEPEST_CLIP ** rng.uniform() if self.clips and number % 3 else 1.0
            for part, value in (("low", step.low), ("high", step.high), ("step", step.scale)):
                drawn[f"{name}~{part}"] = np.asarray(value * kept, values[name].dtype)
        return drawn


def weight_steps(model: Graph, scheme: Scheme) -> dict[str, np.ndarray]:
    """The step of each constant that `scheme` quantises as weights, the largest that anybody might take."""
    if scheme.weight_codes is None:
        return {}
    names = {node.inputs[1]: node for node in model.nodes if grid.has_weights(model, node)}
    names |= {name: node for node in model.nodes if node.op in grid.RECURRENT for name in node.inputs[1:3]}
    found = {}
    for name, node in names.items():
        w = model.constants.get(name)
        if w is None or w.dtype.kind != "f" or not w.size or not np.isfinite(w).all():
            continue
        kept = grid.channel_axes(node, scheme) if node.op in ("Conv", "Gemm") or w.ndim == 2 else ()
        axes = tuple(k for k in range(w.ndim) if len(kept) != 1 or k not in kept)
        low, high = (f(w, axis=axes, keepdims=True).astype(np.float64) for f in (np.min, np.max))
        step = grid.scales(low, high, scheme.weight_codes, scheme.symmetric_weights)
        found[name] = np.where(low == high, 0.0, step) * (1 if scheme.nearest_weights else 2)
    return found


def _shift(rng: np.random.Generator, x: np.ndarray, number: int) -> np.ndarray:
    return np.asarray(rng.uniform(-0.5, 0.5, x.shape if number % 2 else (1,) * x.ndim), x.dtype)


def _within_half_a_step(question: Question, place: Place, noise: Noise) -> bool:
    step, (got, expected) = noise.activations.get(place[1]), question.pair(place)
    return step is not None and bool((distance(got, expected) <= 0.5 * step.scale).all())


def _judge(question: Question, place: Place, samples: Sequence[Values]) -> Verdict:
    got, expected = question.pair(place)
    runs = [sample[place[1]] for sample in samples]
    if not runs or any(run.shape != expected.shape for run in runs):
        return _cannot_tell(question, place, "noise changes the shape")
    if expected.dtype.kind != "f":
        right = np.any([run == got for run in (*runs, expected)], axis=0)
        return agrees(TIER, place) if right.all() else _cannot_tell(question, place, "noise may flip a decision")
    finite = np.isfinite(np.stack([got, expected, *runs])).all(axis=0)
    y = expected[finite].astype(np.float64)
    if not y.size:
        return _cannot_tell(question, place, "nothing finite is left")
    errors = np.stack([run[finite] - y for run in runs])
    if np.median(np.linalg.norm(errors, axis=1)) > DROWNED * np.linalg.norm(y):
        return _cannot_tell(question, place, "noise drowns it")
    score, statistic = _score(got[finite] - y, errors, y)
    note = f"{question.describe(place)} is {score:.2g} times as far off as sampled noise explains, by its {statistic}"
    if score <= FLAG:
        return agrees(TIER, place, error=score, bound=FLAG, message=note if score > FLAG / 2 else "")
    if {node.op for node in question.graph.ancestors(place[1])} & DECISIONS:
        return _cannot_tell(question, place, "noise may flip a decision")
    where: dict[str, Any] = {"feed": place[0], "output": place[1], "error": score, "bound": FLAG}
    return Verdict(Word.DIVERGES, TIER, "execute", Kind.WRONG_VALUES, note, **where)


def _score(error: np.ndarray, errors: np.ndarray, y: np.ndarray) -> tuple[float, str]:
    """(score, the statistic that has it) of one error, given those of the samples, of results `y`."""
    floor = FLOAT_ERROR * np.abs(y).max() + 1e-30
    size = np.linalg.norm(errors, axis=1).max() + floor * np.sqrt(y.size)
    scores = {
        "size": np.linalg.norm(error) / (2 * size),
        "largest element": np.abs(error).max() / (2 * (np.abs(errors).max() + floor)),
        "mean": _stray(error.mean(), errors.mean(axis=1), floor),
    }
    if y.any():
        scores["slope"] = _stray(error @ y / (y @ y), errors @ y / (y @ y), FLOAT_ERROR)
    worst = max(scores, key=lambda name: scores[name])
    return float(scores[worst]), worst


def _stray(value: float, sampled: np.ndarray, floor: float) -> float:
    """How far `value` is from the interval between zero and the mean of the samples, in eight deviations."""
    mean = float(sampled.mean())
    away = max(min(0.0, mean) - value, value - max(0.0, mean), 0.0)
    return away / (8 * (float(sampled.std()) + floor))


def _cannot_tell(question: Question, place: Place, why: str) -> Verdict:
    return abstains(TIER, place, why, [node.op for node in question.graph.ancestors(place[1])])


def _instrumented(model: onnx.ModelProto, activations: Values, weights: Values) -> bytes:
    """`model` with these tensors made noisy; what makes x makes x~exact instead.

    Ranges, steps, shifts and the noise of weights are graph inputs, in the dtype of the tensor.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    noisy = {name: list(_rounding(name)) for name in activations}
    noisy |= {name: [helper.make_node("Add", [f"{name}~exact", f"{name}~noise"], [name])] for name in weights}
    nodes: list[onnx.NodeProto] = []
    for value in (*graph.input, *graph.initializer):
        if value.name in noisy:
            nodes += noisy[value.name]
            value.name = f"{value.name}~exact"
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.output[:] = [f"{name}~exact" if name in noisy else name for name in node.output]
        nodes += [copy, *(inserted for name in node.output for inserted in noisy.get(name, ()))]
    del graph.node[:]
    graph.node.extend(nodes)
    given = {f"{name}~{part}": x.dtype.type() for name, x in activations.items() for part in ("low", "high", "step")}
    given |= {f"{name}~shift": x for name, x in activations.items()}
    given |= {f"{name}~noise": x for name, x in weights.items()}
    for name, like in given.items():
        dims = [f"{name}{axis}" for axis in range(like.ndim)]
        graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(like.dtype), dims))
    return bytes(changed.SerializeToString())


def _rounding(x: str) -> Sequence[onnx.NodeProto]:
    """Nodes that make `x` of x~exact."""
    steps = [
        ("Max", f"{x}~exact", f"{x}~low"),
        ("Min", f"{x}~1", f"{x}~high"),
        ("Div", f"{x}~2", f"{x}~step"),
        ("Add", f"{x}~3", f"{x}~shift"),
        ("Round", f"{x}~4"),
        ("Sub", f"{x}~5", f"{x}~shift"),
        ("Mul", f"{x}~6", f"{x}~step"),
    ]
    last = len(steps)
    return [helper.make_node(op, [*names], [x if k == last else f"{x}~{k}"]) for k, (op, *names) in enumerate(steps, 1)]
