"""T1q, lossless quantisation: on data that lie on the integer grid, quantising is the identity.

Weights are k 2^-a and hold the extreme codes in every channel (or tensor, as the scheme quantises), inputs are k 2^-b
with the extreme codes in every feed, the bias is an integer multiple of 2^-(a+b). The quantiser's own formula then
gives steps of exactly 2^-a and 2^-b, nothing is lost before the operator, its integer sum is the float sum, and what is
left is the rounding of results: |y_q - y| <= 0.501 steps of y. With a Relu behind, y is the float result or that one
rounded before the Relu, whichever fits. Where only weights are quantised, nothing at all is lost, and the tiers for
floats judge.

This holds for one operator, with or without a Relu behind it. `construct.construct` puts a case on the grid; this tier
recognises one there, whoever made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.machine import cpu_features
from harness.oracle import calibration, grid
from harness.oracle.calibration import Step
from harness.oracle.graph import Node
from harness.oracle.question import Place, Question, abstains, agrees, distance, diverges
from harness.verdict import Verdict

TIER = "lossless"
HALF_STEP = 0.501
SATURATION = "u8s8-saturation"
FOLDED = frozenset({"BatchNormalization", "Div", "Mul"})
"""operators that a converter may multiply into weights before it quantises them"""


def keeps_weights(question: Question) -> bool:
    """Whether only weights are quantised and all of them are on their grid, so that floats are what is to be judged."""
    scheme = question.scheme
    if scheme is None or scheme.weight_codes is None or scheme.activation_codes is not None:
        return False
    model = question.graph
    operators = {node.op for node in model.nodes}
    if operators & grid.RECURRENT or (operators & grid.WEIGHTED and operators & FOLDED):
        return False
    varying = set(model.inputs)
    for node in model.nodes:
        if not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
    return all(
        (name in varying or (name == node.inputs[1] and grid.weight_scales(model, node, scheme) is not None))
        for node in model.nodes
        if node.op in grid.WEIGHTED
        for name in node.inputs[:2]
    )


def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Recognises a case on the grid of the question's scheme; abstains on all others."""
    scheme, nodes = question.scheme, grid.chain(question.graph)
    steps: Mapping[str, Step] = {}
    if nodes and scheme and scheme.activation_codes and not scheme.clips:
        steps = calibration.steps(question, scheme)
    on_grid = {feed: bool(steps) and _on_grid(question, nodes, steps, feed) for feed in {feed for feed, _ in places}}
    return {
        place: _judge(question, place, nodes, steps)
        if on_grid[place[0]]
        else abstains(TIER, place, "quantising loses something", [n.op for n in question.graph.ancestors(place[1])])
        for place in places
    }


def _on_grid(question: Question, nodes: Sequence[Node], steps: Mapping[str, Step], feed: int) -> bool:
    """Whether nothing is lost before the first node's results, and nothing is clipped behind it."""
    node, scheme, model = nodes[0], question.scheme, question.graph
    values = {**question.records[feed], **model.constants}
    produced = [name for n in nodes for name in n.outputs if name]
    if any(values[name].min(initial=0.0) < steps[name].low for name in produced if name in steps) or any(
        values[name].max(initial=0.0) > steps[name].high for name in produced if name in steps
    ):
        return False
    weighted = grid.has_weights(model, node)
    operands = node.inputs[:1] if weighted else [x for x in node.inputs if x and values[x].dtype == np.float32]
    if not all(name in steps and steps[name].holds(values[name]) for name in operands):
        return False
    if not weighted:
        return True
    scale = grid.weight_scales(model, node, scheme) if scheme else None
    bias = model.constants.get(node.input(2))
    if scale is None or bias is None:
        return scale is not None and not node.input(2)
    unit = grid.by_output(scale, bias) * steps[node.inputs[0]].scale
    return grid.multiples(bias, unit)


def _judge(question: Question, place: Place, nodes: Sequence[Node], steps: Mapping[str, Step]) -> Verdict:
    got, expected = question.pair(place)
    float_error = 1e-6 * float(np.abs(expected.astype(np.float64)).max(initial=0.0))
    bound = np.full(expected.shape, HALF_STEP * _step_of_results(nodes[0], place, steps) + float_error)
    error = distance(got, expected)
    if (error > bound).any() and len(nodes) > 1 and place[1] in nodes[1].outputs:
        # not fused: the results before the Relu were rounded by themselves
        values = question.records[place[0]][nodes[1].inputs[0]].astype(np.float64)
        between, tie = _rounded(values, steps[nodes[1].inputs[0]].scale)
        unfused = np.abs(got - np.maximum(between, 0)) - tie
        error = error if (unfused > bound).any() else np.maximum(unfused, 0)
    worst = float(error.max(initial=0.0))
    evidence = {"error": worst, "bound": float(bound.max(initial=0.0))}
    if not (error > bound).any():
        return agrees(TIER, place, **evidence)
    if SATURATION in question.exceptions and _saturates(question, nodes[0], steps, place[0]):
        return agrees(TIER, place, **evidence, rule=SATURATION)
    return diverges(TIER, question, place, error > bound, bound)


def _step_of_results(node: Node, place: Place, steps: Mapping[str, Step]) -> float:
    """The step of the place; quantisers give operators like AveragePool one step for input and output."""
    names = [place[1]] if node.op in grid.WEIGHTED else [*node.inputs, place[1]]
    return max((steps[name].scale for name in names if name in steps), default=0.0)


def _rounded(x: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """(x in whole steps, one step where x is so near a tie that either neighbour is right)"""
    steps = x / scale
    tie = np.abs(np.abs(steps - np.trunc(steps)) - 0.5) < 1e-3
    return np.rint(steps) * scale, np.where(tie, scale, 0.0)


def _saturates(question: Question, node: Node, steps: Mapping[str, Step], feed: int) -> bool:
    """Whether a pair of u8 s8 products may leave int16, on a machine that adds such pairs in 16 bits."""
    scheme = question.scheme
    if scheme is None or not grid.has_weights(question.graph, node) or (scheme.activation_codes or (-1,))[0] < 0:
        return False
    if {"avx512_vnni", "avx_vnni", "amx_int8", "asimd"} & set(cpu_features()):
        return False
    scale = grid.weight_scales(question.graph, node, scheme)
    codes = np.abs(question.graph.constants[node.inputs[1]] / scale).max()
    step, x = steps[node.inputs[0]], question.records[feed][node.inputs[0]]
    return bool(2 * codes * (x.max() - step.low) / step.scale > np.iinfo(np.int16).max)
