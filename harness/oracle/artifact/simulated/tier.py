"""The artifact tier for artifacts that are no ONNX but tell their operations: is it executed as it says?

The float model is evaluated in ball arithmetic as the artifact computes it: with the artifact's weights, and with every
tensor that an operation reads or gives in codes on the grid that the artifact tells for it,

    y = (clip(round(x / scale) + zero_point, low, high) - zero_point) scale

Where x is clear of a tie between two codes y is a point, at a tie it is both, so what is behind is known to rounding
and nothing drowns in quantization noise. Which operations run in codes, and which of them do not take the nearest code,
the target declares; which of them compute a tensor of the model, `trace` finds out. Of a tensor of which that is not
known nothing is said, nor of what depends on it, unless it was handed out: then the rest has to follow from what it was
seen to be. Nor is anything said where a ball is too wide.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from driftnet.model.arrays import distance
from driftnet.model.artifact import Layer
from driftnet.model.graph import Graph, Node, Values
from driftnet.model.operators import Trait, having
from driftnet.model.verdict import Kind, Tier, Verdict
from driftnet.oracle.artifact.simulated import histogram_scales, weights
from driftnet.oracle.artifact.simulated.expand import BY_OTHER_MEANS, ROUNDED, expand, rounding
from driftnet.oracle.artifact.simulated.trace import MOVING, Grids, Region, merged, regions_of
from driftnet.oracle.artifact.simulated.weights import Weights, distance_of, in_place, weights_of
from driftnet.oracle.ball_arithmetic.ball import (
    Ball,
    U,
    between,
    format_of,
    hull,
    is_float,
    joined,
    outside,
    undecided_where,
    widened,
)
from driftnet.oracle.ball_arithmetic.conditioning import is_ill
from driftnet.oracle.ball_arithmetic.data_movement import pieces
from driftnet.oracle.ball_arithmetic.evaluate import Evaluation
from driftnet.oracle.ball_arithmetic.rules import Context, rule
from driftnet.oracle.question.answers import abstains, agrees_inside, diverges, evaluated
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.scheme.artifact_trace import Grid, Trace, read_trace
from driftnet.oracle.tolerances.table import BY_OTHER_MEANS_ERROR, CODE_ROUNDINGS, ONE_STEP
from driftnet.util import spent

TIER = Tier.ARTIFACT
UNKNOWN = "artifact.Unknown."
"""before the name of an operator: what becomes of its result is not known"""
OBSERVED = "artifact.Observed"
"""The operator that gives the attribute `tensor` as the artifact handed it out."""

CUT = 0.5
"""Steps from which on a code beyond the nearest was not rounded to, but cut or counted off."""

ACTIVATIONS = having(Trait.ACTIVATION) | {"BatchNormalization"}


@dataclass(frozen=True)
class Simulation:
    """A float model as an artifact computes it.

    steps         of each tensor that has a grid
    misquantized  the verdict on the first layer or scale that is not what the model and its calibration ask for
    """

    graph: Graph
    steps: Mapping[str, float]
    misquantized: Verdict | None


@spent.part("oracle artifact, simulated")
def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Each feed is evaluated once, and its balls let go before the next. Abstains everywhere unless the artifact tells
    its operations."""
    simulation = simulated(question)
    if simulation is None:
        return {place: abstains(TIER, place, "the artifact tells no operations", ()) for place in places}
    if simulation.misquantized:
        return dict.fromkeys(places, simulation.misquantized)
    verdicts: dict[Place, Verdict] = {}
    for feed in sorted({feed for feed, _ in places}):
        there = [place for place in places if place[0] == feed]
        evaluation = evaluated(question, simulation.graph, feed)
        verdicts |= {place: _judge(question, place, evaluation, simulation) for place in there}
    return {place: verdicts[place] for place in places}


def simulated(question: Question) -> Simulation | None:
    """The simulation of what the artifact says, if it tells its operations and has quantized activations."""
    artifact, scheme = question.artifact, question.scheme
    if scheme is None or scheme.activation_codes is None or artifact.operations is None:
        return None
    model, trace, regions = _traced(question)
    steps = {name: trace.grids[r.start].scale for name, r in regions.items() if r.start in trace.grids}
    kept = _held(model, regions, weights.layers_of(question))
    problems = {layer.name: weights.problem(layer, own, scheme) for layer, own, _ in kept if own}
    doubtful = {name for layer, own, name in kept if own is None or problems[layer.name]}
    doubtful |= {name for name, region in regions.items() if _passes_over(model, region, regions)}
    sure = [layer.name for layer, own, name in kept if own and _is_alone(own.node, model, regions[name])]
    regions |= {name: dataclasses.replace(regions[name], known=False, told=False) for name in doubtful}
    slack = {name: _of_bias(layer, regions[name]) for layer, _, name in kept}
    graph = _rewritten(_with_weights(model, kept), regions, trace, slack)
    found = next((problems[name] for name in sure if problems[name]), None)
    if found is None and artifact.histogram:
        found = histogram_scales.problem(question, trace, regions, artifact.histogram)
    return Simulation(graph, steps, found)


def _traced(question: Question) -> tuple[Graph, Trace, dict[str, Region]]:
    """The model as the artifact computes it, what the artifact tells, and what computes which tensor."""
    trace, constants = read_trace(question.artifact), question.graph.constants
    called = {**trace.reordered, **_folded(question.graph, trace, weights.layers_of(question))}
    trace = dataclasses.replace(trace, reordered=called)
    model = merged(question.graph, trace)
    return model, trace, regions_of(model, trace, [{**constants, **record} for record in question.records])


def _folded(model: Graph, trace: Trace, layers: Sequence[Layer]) -> dict[str, str]:
    """What the model calls the results of layers that a BatchNormalization was folded into, where they have the name
    that the result had before."""
    candidates, found = list(weights_of(model)), dict[str, str]()
    held = {layer.name: layer for layer in layers}
    for tensor, op in trace.makers.items():
        name, layer = trace.name(tensor), held.get(op.layer)
        fitting = [w for w in candidates if w.node.outputs[0] == name and np.isfinite(w.factors).all()]
        if layer is None or not any(w.result for w in fitting):
            continue
        fitting = [w for w in fitting if w.matrix.shape == layer.weights.shape]
        best = min(reversed(fitting), key=lambda w: distance_of(layer, w).max(initial=0.0), default=None)
        apart = trace.makers.get(trace.start(best.result)) if best else None
        if best and best.result and (apart is None or apart.runs == "moves"):
            found[tensor] = best.result
    return found


def cut(question: Question) -> dict[str, float]:
    """The tensors whose numbers the artifact is known to make whole codes by cutting, not by rounding; with the step of
    these codes, which need not be that of the result."""
    if question.artifact.operations is None:
        return {}
    regions = {name: region for name, region in _traced(question)[2].items() if region.steps >= CUT}
    return {name: max((grid.scale for grid in region.grids if grid), default=0.0) for name, region in regions.items()}


def rounded_only(question: Question) -> list[Values] | None:
    """What each feed gives where every code is the nearest, whatever the target declares; None where what is rounded is
    not known."""
    simulation = simulated(question)
    if simulation is None or simulation.misquantized:
        return None
    nodes = [
        dataclasses.replace(node, attributes={**node.attributes, "steps": 0.0}) if node.op == ROUNDED else node
        for node in simulation.graph.nodes
    ]
    graph, found = dataclasses.replace(simulation.graph, nodes=tuple(nodes)), list[Values]()
    for feed, given in enumerate(question.observed):
        evaluation = evaluated(question, graph, feed)
        if not evaluation.undecided.keys().isdisjoint(given):
            return None
        found.append({name: evaluation.balls[name].midpoint.astype(x.dtype) for name, x in given.items()})
    return found


def _judge(question: Question, place: Place, evaluation: Evaluation, simulation: Simulation) -> Verdict:
    name = place[1]
    if name in evaluation.undecided:
        operator = evaluation.undecided[name].removeprefix(UNKNOWN)
        return abstains(TIER, place, "what is rounded on the way is not known", [operator])
    got, ball = question.pair(place)[0], evaluation.balls[name]
    if ball.shape != got.shape:
        return abstains(TIER, place, "rounding changes the shape", [simulation.graph.producers[name].op])
    wrong = outside(ball, got)
    if wrong.any():
        verdict = diverges(TIER, question, place, wrong, ball.error, midpoint=ball.midpoint)
        verdict = dataclasses.replace(verdict, message=f"{verdict.message}; {_why(simulation.graph, name)}")
        step = simulation.steps.get(name, 0.0) if is_float(ball.dtype) else 0.0
        if verdict.kind is Kind.WRONG_VALUES and distance(got, ball.midpoint)[wrong].max() <= ONE_STEP * step:
            return dataclasses.replace(verdict, kind=Kind.OFF_BY_ONE_STEP)
        return verdict
    if is_ill(ball):
        operators = {node.op for node in question.graph.ancestors(name)}
        return abstains(TIER, place, "ill-conditioned: roundings to another code move it too far", sorted(operators))
    return agrees_inside(TIER, place, got, ball)


def _why(graph: Graph, name: str) -> str:
    """Why quantizing excuses nothing more."""
    if any(node.op == ROUNDED for node in graph.ancestors(name)):
        return "that is reckoned with all that the scales in the quantized model round on the way to it"
    return "the quantized model has no scale for it, nor for anything on the way to it: nothing there may be rounded"


@rule(ROUNDED)
def rounded(x: Ball, *, grids: Sequence[Grid | None], steps: float, slack: float) -> Ball:
    """x, known to `slack` only, on `grids`, at most `steps` beyond the nearest code."""
    if not is_float(x.dtype):
        return x
    if slack:
        x = widened(x.numbers, x.error + slack, x.dtype)
    if len(grids) == 1:
        return _on_grid(x, grids[0], steps)
    ends = [k * x.shape[1] // len(grids) for k in range(1, len(grids))]
    placed = [_on_grid(part, grid, steps) for part, grid in zip(pieces(x, ends, 1), grids)]
    return joined(placed, lambda arrays: np.concatenate(arrays, axis=1))


@rule(BY_OTHER_MEANS)
def by_other_means(y: Ball, f: Ball, g: Ball) -> Ball:
    """y, undecided where f and g have no number in common somewhere, beyond what approximating f may change."""
    both = np.isfinite(f.numbers) & np.isfinite(g.numbers)
    apart = np.abs(f.numbers - g.numbers) - f.error - g.error
    limit = BY_OTHER_MEANS_ERROR * np.abs(f.numbers).max(initial=0.0, where=both)
    one = np.where(both, apart <= limit, (f.numbers == g.numbers) | (np.isnan(f.numbers) & np.isnan(g.numbers)))
    return undecided_where(np.full(y.shape, not one.all()), y)


@rule(OBSERVED)
def observed(*, tensor: str, context: Context) -> Ball:
    """The tensor, to the rounding of the type that it was handed out in."""
    x = context.observed[tensor]
    own = format_of(x.dtype)
    lost = np.abs(x) * own.unit + own.tiny if x.dtype == np.float16 else np.zeros(())
    return widened(x, lost, x.dtype)


def _on_grid(x: Ball, grid: Grid | None, steps: float) -> Ball:
    if grid is None:
        return x
    v, r = x.numbers / grid.scale, x.error / grid.scale
    d = r + CODE_ROUNDINGS * U * (np.abs(v) + r) + steps
    codes = [np.clip(np.rint(end) + grid.zero_point, grid.low, grid.high) for end in (v - d, v + d)]
    low, high = ((code - grid.zero_point) * grid.scale for code in codes)
    own = format_of(x.dtype)
    u = CODE_ROUNDINGS * own.unit
    low, high = low - u * np.abs(low) - own.tiny, high + u * np.abs(high) + own.tiny
    y = undecided_where(x.undecided, between(low, high, x.dtype))
    return y if grid.sure else hull([x, y])


Held = tuple[Layer, Weights | None, str]
"""A layer, the weights of the model that it holds, if any has its form, and the result of its region."""


def _held(model: Graph, regions: Mapping[str, Region], found: Sequence[Layer]) -> list[Held]:
    candidates, kept = list(weights_of(model)), []
    for name, region in regions.items():
        names = {op.layer for op in region.operations}
        within = [model.nodes[k] for k in region.within]
        for layer in (layer for layer in found if layer.name in names):
            fitting = [w for w in candidates if w.node in within and w.matrix.shape == layer.weights.shape]
            best = min(fitting, key=lambda w: distance_of(layer, w).max(initial=0.0), default=None)
            finite = all(np.isfinite(w.factors).all() for w in fitting)  # else they may have become anything
            kept.append((layer, best if finite else None, name))
    return kept


def _is_alone(node: Node, model: Graph, region: Region) -> bool:
    """Whether nothing in the region of `node` changes its weights but a BatchNormalization."""
    others = {model.nodes[k].op for k in region.within} - {node.op}
    return all(op in ACTIVATIONS or op in MOVING for op in others)


def _with_weights(model: Graph, kept: Sequence[Held]) -> Graph:
    """`model` with the weights that the artifact holds in place of those that they were."""
    nodes, constants = list(model.nodes), dict(model.constants)
    for layer, best, name in kept:
        if best is not None:
            plain = np.where(best.factors == 0, best.matrix, layer.weights / np.where(best.factors, best.factors, 1))
            replaced, at = f"{best.node.inputs[1]}~{name}", model.nodes.index(best.node)
            constants[replaced] = in_place(best.node, plain, model.constants[best.node.inputs[1]].shape)
            nodes[at] = dataclasses.replace(best.node, inputs=(best.node.inputs[0], replaced, *best.node.inputs[2:]))
    return dataclasses.replace(model, nodes=tuple(nodes), constants=constants)


def _passes_over(model: Graph, region: Region, regions: Mapping[str, Region]) -> bool:
    """Whether a tensor on a grid of its own lies inside: the artifact computes it, but the result without it."""
    within = {name for k in region.within for name in model.nodes[k].outputs} - {region.result}
    return any(any(regions[name].grids) and regions[name].grids != region.grids for name in within & regions.keys())


def _of_bias(layer: Layer, region: Region) -> float:
    """How far off the region's result may be where its bias is cut to whole steps of operand times weights."""
    if not any(op.whole_bias for op in region.operations):
        return 0.0
    read = [grid.scale for grids in region.sources.values() for grid in grids if grid]
    return max(read, default=0.0) * float(layer.scales.max(initial=0.0))


def _rewritten(model: Graph, regions: Mapping[str, Region], trace: Trace, slack: Mapping[str, float]) -> Graph:
    """`model` with a rounding wherever a region says so, and what is not known marked so.

    slack   how far off results may be before they are rounded
    """
    inside = {name: f"{name}~held" for name in model.outputs if name in regions and any(regions[name].handed_out)}
    reads, unknown = _reads(model, regions)
    nodes: list[Node] = []
    constants = dict(model.constants)
    for k, node in enumerate(model.nodes):
        given = [inside.get(name, name) for name in node.inputs]
        for j, name in enumerate(node.inputs):
            if (k, name) in reads:
                nodes.append(rounding(given[j], f"{name}~{k}~{j}", reads[k, name]))
                given[j] = f"{name}~{k}~{j}"
        results = [f"{name}~computed" if name in regions else name for name in node.outputs]
        nodes.append(dataclasses.replace(node, inputs=tuple(given), outputs=tuple(results)))
        for name in (name for name in node.outputs if name in regions):
            region, inner, made = regions[name], inside.get(name, name), f"{name}~computed"
            if name in unknown:
                expansion = expand(model, region, trace, inside, made, f"{name}~expanded") if region.told else None
                if expansion is None:
                    nodes.append(Node(UNKNOWN + node.op, (), tuple({inner, name}), {}))
                    if region.is_observable and name in model.outputs:
                        inside[name] = f"{name}~observed"
                        nodes.append(Node(OBSERVED, (), (inside[name],), {"tensor": name}))
                    continue
                nodes += [*expansion.nodes, rounding(f"{name}~expanded", inner, expansion.grids, expansion.steps)]
                constants |= expansion.constants
            else:
                nodes.append(rounding(made, inner, region.grids, region.steps, slack.get(name, 0.0)))
            if inner != name:
                nodes.append(rounding(inner, name, region.handed_out))
    return dataclasses.replace(model, nodes=tuple(nodes), constants=constants)


def _reads(model: Graph, regions: Mapping[str, Region]) -> tuple[dict[tuple[int, str], Grids], set[str]]:
    """({(number of a node, operand): the grids it is read on}, results of which it is not known what is rounded)"""
    reads: dict[tuple[int, str], Grids] = {}
    unknown = {region.result for region in regions.values() if not region.known}
    for region in regions.values():
        if region.result not in unknown:
            for k in region.within:
                for name in region.sources.keys() & set(model.nodes[k].inputs):
                    if reads.setdefault((k, name), region.sources[name]) != region.sources[name]:
                        unknown.add(region.result)
    return reads, unknown
