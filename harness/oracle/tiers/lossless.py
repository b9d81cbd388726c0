"""T1q, lossless quantization: on data that lie on the integer grid, quantizing is the identity.

A tensor is on the grid when every element is a whole number of steps, the step being what the quantizer's own formula
makes of the calibrated range: integers k g with range N g, say, where N divides 255. Let that be so for every operand
of every operator before an output, for the weights in every channel, and let the bias be a multiple of the product of
the steps of operand and weights. Then no operator reads anything that quantizing changed, and only the last results are
rounded: they are within .501 steps, and, where they lie on the grid too, right but for float rounding. With a Relu
behind, results are the float ones or those rounded before the Relu, whichever fits. Where only weights are quantized,
nothing at all is lost, and the tiers for floats judge.

`construct.construct` makes such cases; this tier recognizes one, whoever made it. Where calibration may clip (KL,
Entropy, Percentile, ADMM), it is asked only where the artifact tells that it did not: that a range ends within half a
bin in 2048 of the data. Each tensor may then be short by that much; and each operator has to be one that converters
leave whole, because of what they put between its parts nothing is known. Elsewhere the budget is asked.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from driftnet.model.arrays import distance
from driftnet.model.graph import Node, Values
from driftnet.model.operators import RECURRENT, WEIGHTED, Trait, having, settings
from driftnet.model.verdict import Kind, Tier, Verdict
from driftnet.oracle.exemptions import saturation, underspecified
from driftnet.oracle.question.answers import abstains, agrees, diverges
from driftnet.oracle.question.question import Place, Question
from driftnet.oracle.scheme import calibration, formulas
from driftnet.oracle.scheme.calibration import Step
from driftnet.oracle.tolerances.table import (
    HALF_STEP,
    HISTOGRAM_BIN,
    LOSSLESS_FLOAT_ERROR,
    ON_GRID_ERROR,
    ONE_STEP,
    TIE,
)
from driftnet.targets.interface import Scheme
from driftnet.util import spent

# Seen of MNN's converter.
TAKEN_APART = frozenset(
    {"BatchNormalization", "Clip", "CumSum", "LeakyRelu", "PRelu", "ReduceMean", "ReduceSum", "Resize"}
    | {"Trilu", "Where"}
)
"""operators of which a converter may make several"""
# Results of those that are taken out are some multiple of the operand, whose step quantizers keep.
OWN_STEP = (WEIGHTED | formulas.PLAIN) - having(Trait.WITHIN) - {"Abs", "LeakyRelu", "Neg", "Resize"}
"""operators whose results may leave the ranges of their operands; to others quantizers give the step of an operand"""


def keeps_weights(question: Question, place: Place) -> bool:
    """Whether only weights are quantized, and those before the place are on their grid: then floats are judged. Of
    scales that the artifact has to tell no grid is known here, whatever reads them: a Gather may."""
    scheme, model = question.scheme, question.graph
    return (
        scheme is not None
        and scheme.weight_codes is not None
        and scheme.activation_codes is None
        and formulas.keeps_weights(model, scheme, nodes := model.ancestors(place[1]))
        and not (scheme.told and (question.written or any(node.op in WEIGHTED | RECURRENT for node in nodes)))
    )


@spent.part("oracle lossless")
def decide(question: Question, places: Sequence[Place]) -> Mapping[Place, Verdict]:
    """Recognizes outputs on the grid of the question's scheme; abstains on all others."""
    scheme = question.scheme
    steps = calibration.steps(question, scheme) if scheme and not scheme.told else {}
    if scheme and scheme.clips:
        steps = _unclipped(question, steps)
    runs = {feed: Run(question, scheme, steps, feed) for feed, _ in places} if scheme and steps else {}
    verdicts = {}
    for place in places:
        nodes = question.graph.ancestors(place[1])
        lossy = runs[place[0]].lossy(nodes) if runs and nodes else [node.op for node in nodes]
        if lossy or not nodes:
            verdicts[place] = abstains(Tier.LOSSLESS, place, "quantizing loses something", lossy)
        else:
            verdicts[place] = _judge(runs[place[0]], place, nodes)
    return verdicts


def _unclipped(question: Question, formula: Mapping[str, Step]) -> dict[str, Step]:
    """Those steps of the formula that the artifact tells too, but for a bin of a histogram."""
    told = calibration.told(question, formula)
    return {
        name: formula[name]
        for name, steps in told.items()
        if all(abs(s.scale / formula[name].scale - 1) < HISTOGRAM_BIN for s in steps)
    }


@dataclass(frozen=True)
class Run:
    """One feed of a question whose activations have `steps`."""

    question: Question
    scheme: Scheme
    steps: Mapping[str, Step]
    feed: int

    @cached_property
    def values(self) -> Values:
        return {**self.question.records[self.feed], **self.question.graph.constants}

    @cached_property
    def vanished(self) -> frozenset[str]:
        return calibration.vanished(self.question)

    @cached_property
    def held(self) -> frozenset[str]:
        """The activations that are on their grid, by the range of this feed too: some quantizers use that."""
        codes = self.scheme.activation_codes or (0, 0)
        return frozenset(
            name
            for name, step in self.steps.items()
            if self.values[name].dtype == np.float32
            and step.holds(self.values[name])
            and formulas.on_grid([self.values[name]], codes, self.scheme.symmetric_activations)
        )

    def lossy(self, nodes: Sequence[Node]) -> list[str]:
        """The operators because of which the last of `nodes` (the ancestors of a tensor) may give something else."""
        *before, last = nodes
        rounded = before[-1].outputs if before and last.op == "Relu" and last.inputs[0] in before[-1].outputs else ()
        final = {*rounded, *last.outputs}
        return [
            node.op
            for node in nodes
            if not (self._reads(node, rounded) and (not final.isdisjoint(node.outputs) or self.shares(node)))
        ]

    def _reads(self, node: Node, rounded: Sequence[str]) -> bool:
        """Whether quantizing changes nothing that `node` reads, and clips nothing that it gives."""
        model = self.question.graph
        if not formulas.fits(node) or underspecified.is_open(node, self.values, model.opset):
            return False
        if self.scheme.clips and (node.op in TAKEN_APART or formulas.taken_apart(node, self.values)):
            return False
        if any(name and name not in self.values for name in node.inputs):  # a sequence, or a type numpy has not
            return False
        weighted = formulas.has_weights(model, node)
        for k, name in enumerate(node.inputs):
            quantized = name and k not in settings(node.op) and self.values[name].dtype.kind == "f"
            if not quantized or (weighted and name in node.inputs[1:3]):
                continue
            kept = name not in self.vanished and formulas.indifferent(self.values[name], self.scheme)
            fits = kept if name in model.constants else name in self.held
            if not fits and name not in rounded:
                return False
        return self._inside(node) and (not weighted or self._weighs(node))

    def _inside(self, node: Node) -> bool:
        given = [(self.values[name], self.steps.get(name)) for name in node.outputs if name in self.values]
        return all(
            step is not None and x.min(initial=0.0) >= step.low and x.max(initial=0.0) <= step.high
            for x, step in given
            if x.dtype.kind == "f"
        )

    def _weighs(self, node: Node) -> bool:
        """Whether weights and bias are on their grids."""
        model = self.question.graph
        step = self.steps.get(node.inputs[0])
        if step is None or not self.scheme.nearest_weights:
            return False
        scale, bias = formulas.weight_scales(model, node, self.scheme), model.constants.get(node.input(2))
        if scale is None or bias is None:
            return scale is not None and not node.input(2)
        return formulas.multiples(bias, formulas.by_output(scale, bias) * step.scale)

    def shares(self, node: Node) -> bool:
        """Whether the results of an operator like AveragePool fit its operand's step too: quantizers let it keep it."""
        operands = [name for name in node.inputs if name in self.steps]
        if node.op in WEIGHTED or len(operands) != 1:
            return True
        scale = np.asarray(self.steps[operands[0]].scale)
        return all(formulas.multiples(self.values[name], scale) for name in node.outputs if name in self.steps)


def _judge(run: Run, place: Place, nodes: Sequence[Node]) -> Verdict:
    question, step = run.question, _step_of_results(run, nodes[-1], place[1])
    got, expected = question.pair(place)
    on_grid = place[1] in run.held and run.shares(nodes[-1]) and not run.scheme.clips
    slack = _float_error(run, place, nodes)
    bound = np.full(expected.shape, (ON_GRID_ERROR if on_grid else HALF_STEP) * step + slack)
    error = distance(got, expected)
    if (error > bound).any():
        unfused = _beside_unfused(run, got, nodes)
        error = error if unfused is None or (unfused > bound).any() else unfused
    evidence = {"error": float(error.max(initial=0.0)), "bound": float(bound.max(initial=0.0))}
    if not (error > bound).any():
        return agrees(Tier.LOSSLESS, place, **evidence)
    if saturation.RULE in question.exceptions and any(_saturates(run, node) for node in nodes):
        cut = abstains(Tier.LOSSLESS, place, "it may be cut by more than a step", [])
        return dataclasses.replace(cut, rule=saturation.RULE)  # an artifact tells by how much
    verdict = diverges(Tier.LOSSLESS, question, place, error > bound, bound)
    one_step = not on_grid and bool((error <= ONE_STEP * step + slack).all())
    return dataclasses.replace(verdict, kind=Kind.OFF_BY_ONE_STEP) if one_step else verdict


def _float_error(run: Run, place: Place, nodes: Sequence[Node]) -> float:
    """What the floats that scales and results are, and the bins of a histogram, may move a result."""
    model = run.question.graph
    added = [model.constants.get(node.input(2)) for node in nodes[-2:] if node.op in WEIGHTED]
    terms = [run.question.pair(place)[1], *(bias for bias in added if bias is not None)]
    largest = max(float(np.abs(x.astype(np.float64)).max(initial=0.0)) for x in terms)
    return (LOSSLESS_FLOAT_ERROR + (HISTOGRAM_BIN * len(nodes) if run.scheme.clips else 0.0)) * largest


def _beside_unfused(run: Run, got: np.ndarray, nodes: Sequence[Node]) -> np.ndarray | None:
    """How far `got` is from results of a Relu that is not fused, so that those before it were rounded by themselves."""
    last = nodes[-1]
    if last.op != "Relu" or len(nodes) < 2 or last.inputs[0] not in run.steps:
        return None
    between, tie = _rounded(run.values[last.inputs[0]].astype(np.float64), run.steps[last.inputs[0]].scale)
    return np.asarray(np.maximum(distance(got, np.maximum(between, 0)) - tie, 0))


def _step_of_results(run: Run, node: Node, output: str) -> float:
    """The step of the place, or a larger one of an operand that the quantizer may have given it."""
    before = run.question.graph.producers.get(node.inputs[0])
    names = [output] if node.op in OWN_STEP else [*node.inputs, output]
    if node.op == "Relu" and before and before.op not in OWN_STEP and node.inputs[0] not in run.held:
        names += before.inputs
    return max((run.steps[name].scale for name in names if name in run.steps), default=0.0)


def _rounded(x: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """(x in whole steps, one step where x is so near a tie that either neighbour is right)"""
    steps = x / scale
    tie = np.abs(np.abs(steps - np.trunc(steps)) - 0.5) < TIE
    return np.rint(steps) * scale, np.where(tie, scale, 0.0)


def _saturates(run: Run, node: Node) -> bool:
    """Whether the machine may cut a pair of products of `node`."""
    model, held = run.question.graph, run.scheme.weight_codes
    if not formulas.has_weights(model, node) or held is None or held[0] >= 0:
        return False
    lowest, _ = run.scheme.activation_codes or (-1, 0)
    if (lowest < 0 and not run.scheme.held_as_floats) or model.constants[node.inputs[1]].size == 1:
        return False
    codes = np.abs(model.constants[node.inputs[1]] / formulas.weight_scales(model, node, run.scheme)).max()
    step, x = run.steps[node.inputs[0]], run.values[node.inputs[0]]
    return saturation.saturates((x.max() - step.low) / step.scale, codes)
