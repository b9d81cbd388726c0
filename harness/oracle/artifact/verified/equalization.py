"""Equivalent scaling: what makes a tensor may multiply its channels by numbers d, where all that reads it divides by d.

    (W / d) (d x) = W x        and d f(x) = f(d x) for a Relu, a pooling, and data movement between

Quantizers move the outliers of activations into weights so (SmoothQuant, https://arxiv.org/abs/2211.10438; cross-layer
equalization, https://arxiv.org/abs/1906.04721): through the constants of a norm, a Mul or a linear operator, or a Mul
of their own. Each element of a constant leaves its d an interval, found = d wanted within its bound. Where those of a
channel have a point in common, and d cancels in every reader from there on, the constants are right.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.graph import Graph, Node, captured
from driftnet.model.operators import WEIGHTED
from driftnet.oracle.artifact.verified import operators
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair
from driftnet.oracle.artifact.verified.constants import Held
from driftnet.oracle.artifact.verified.dequantized import apply
from driftnet.oracle.artifact.verified.format import Artifact, Use
from driftnet.oracle.artifact.verified.names import named
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, is_float
from driftnet.oracle.scheme.folding import output_axis

Factor = np.ndarray
"""Positive numbers between two ends, which lie along the last axis."""
ONE = np.ones(2)


@dataclass(frozen=True)
class Scaling:
    """constants  names of those that are right but for factors that cancel
    multiples  tensors of the float model that the artifact has multiplied by them
    """

    constants: frozenset[str] = frozenset()
    multiples: frozenset[str] = frozenset()


def inserted(model: Graph, artifact: Artifact) -> Graph:
    """`model` with a Mul by ones where the artifact multiplies a tensor of it by constants, for linear operators."""
    known = {use.real for piece in artifact.pieces for use in (*piece.uses, *piece.results) if use}
    called = {artifact.stands_for(name): name for name in model.inputs}
    called |= {real: name for node in model.nodes for name in node.outputs if (real := named(artifact, known, name))}
    nodes, constants = list(model.nodes), dict(model.constants)
    for piece in artifact.pieces:
        result = piece.results[0].real if piece.results[0] else ""
        stored = [use.tensor for use in piece.uses if use and _is_float(artifact.graph.constants.get(use.tensor))]
        sources = [called[use.real] for use in piece.uses if use and use.real in called]
        if piece.node.op != "Mul" or result in called or not stored or not sources:
            continue
        readers = [p for p in artifact.pieces if p.node.op in WEIGHTED and p.uses[0] and p.uses[0].real == result]
        results = {called.get(use.real) for reader in readers for use in reader.results if use}
        places = [k for k, n in enumerate(nodes) if n.inputs[:1] == (sources[0],) and results.intersection(n.outputs)]
        for k in places:
            nodes[k] = replace(nodes[k], inputs=(result, *nodes[k].inputs[1:]))
        if places:
            constants[f"{result}/ones"] = np.ones_like(artifact.graph.constants[stored[0]])
            nodes.insert(places[0], Node("Mul", (sources[0], f"{result}/ones"), (result,), {}, piece.node.name))
    return replace(model, nodes=tuple(nodes), constants=constants)


def equivalent(c: Comparison, held: Mapping[tuple[Use, str], Held], wrong: Collection[str]) -> Scaling:
    """What of the constants called `wrong` is right but for factors that cancel.

    held   the float constants of the artifact's operators, by use and name in the float model
    """
    walk = _Walk(c, held, wrong)
    for pair in c.pairs:
        walk.step(pair)
    guilty = walk.guilty.union(*(walk.origins.get(name, ()) for name in c.model.outputs))
    right = {name for name, origins in walk.explained.items() if not origins & guilty}
    multiples = {name for name, origins in walk.origins.items() if not origins & guilty}
    return Scaling(frozenset(right - walk.unexplained), frozenset(multiples))


@dataclass
class _Walk:
    """factors    what the artifact has multiplied tensors by, where that is not one
    origins    of these: first results of the nodes that are the reason
    explained  wrong constants that factors explain, and the reasons for these;   unexplained  the others
    guilty     reasons for factors that do not cancel
    """

    c: Comparison
    held: Mapping[tuple[Use, str], Held]
    wrong: Collection[str]
    factors: dict[str, Factor] = field(default_factory=dict)
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    explained: dict[str, frozenset[str]] = field(default_factory=dict)
    unexplained: set[str] = field(default_factory=set)
    guilty: frozenset[str] = frozenset()

    def step(self, pair: Pair) -> None:
        """Find the factors of a node's results from those of its operands and its constants."""
        node = pair.node
        read = [self.origins[name] for name in (*node.inputs, *captured(node)) if name in self.origins]
        wrong = {name for name in node.inputs if name in self.wrong}
        if node.op in operators.MEASURING or not (read or wrong):
            return
        origins = frozenset[str]().union(*read)
        try:
            results, judged = self.results(pair)
        except (Undecided, ValueError):  # the latter where what the artifact has there is of another shape
            self.guilty |= origins
            self.unexplained |= wrong
            return
        if wrong and not all(map(_is_one, results)):
            origins |= {pair.first}
        right = {node.input(k) for k in judged} if origins else set()
        self.unexplained |= wrong - right
        self.explained |= {name: self.explained.get(name, frozenset()) | origins for name in wrong & right}
        for name, result in zip(node.outputs, results):
            if name and not _is_one(result):
                self.factors[name], self.origins[name] = result, origins

    def factor(self, name: str) -> Factor:
        return self.factors.get(name, ONE)

    def results(self, pair: Pair) -> tuple[list[Factor], tuple[int, ...]]:
        """(the factor of each result, positions of the constants that were judged). Raises Undecided, ValueError."""
        node, first, second = pair.node, self.factor(pair.node.input(0)), self.factor(pair.node.input(1))
        constant = next((k for k in (1, 0) if node.input(k) in self.c.constants), None)
        op = "" if pair.how is How.ABSORBED and node.op != "Clip" else node.op
        if op in WEIGHTED and constant == 1:
            return self.linear(pair, first)
        if op in operators.NORMS and first is ONE:
            return [self.norm(pair)], (1, 2)
        if op in operators.ARITHMETIC:
            if constant is not None:
                first, second = [self.ratio(pair, k) if k == constant else self.factor(node.inputs[k]) for k in (0, 1)]
            with np.errstate(divide="ignore"):
                # Factors multiply as their operands do; the sums are those of operands with one factor.
                made = (
                    first * second if op == "Mul" else first / second[..., ::-1] if op == "Div" else _met(first, second)
                )
            return [made], () if constant is None else (constant,)
        if op in operators.CARRYING:
            return self.carried(node), ()
        if op in operators.POOLING:
            _vector(first, len(self.shape(node.inputs[0])) - 1)
        if op and (op not in operators.POOLING | operators.PASSING or not _is_one(second)):
            raise Undecided(f"{op} of a multiple is no multiple")
        return [first], ()

    def ratio(self, pair: Pair, k: int) -> Factor:
        """What the artifact may have multiplied a constant by, for each element."""
        use = pair.operand(k)
        held = self.held.get((use, pair.node.input(k))) if use else None
        if held is None:
            raise Undecided("nothing is known of the constant")
        with np.errstate(divide="ignore", invalid="ignore"):  # constants may be infinite
            size, found = np.abs(held.wanted), held.found * np.sign(held.wanted)
            low, high = np.maximum(found - held.bound, 0) / size, (found + held.bound) / size
        zeros = np.where(np.abs(held.found) <= held.bound, 0, np.inf)  # of nothing anything is a multiple
        return np.stack([np.where(size > 0, low, zeros), np.where(size > 0, high, np.inf)], axis=-1)

    def linear(self, pair: Pair, given: Factor) -> tuple[list[Factor], tuple[int, ...]]:
        """The results of a linear operator: found W = wanted W times the factor of the output, by that of the input."""
        node, wanted = pair.node, self.c.constants[pair.node.inputs[1]]
        spatial = wanted.ndim - 2 if node.op in operators.SLIDING else 0
        if any(name in self.factors for name in node.inputs[1:]) or (node.op == "Gemm" and "transA" in node.attributes):
            raise Undecided("another operand is a multiple too")
        made = self.ratio(pair, 1) * _along_inputs(node, _vector(given, spatial + 1), wanted)
        if _is_one(made):
            return [ONE], (1,)
        axis, channels = output_axis(node, wanted)
        rest = tuple(k for k in range(wanted.ndim) if k != axis)
        made = _possible(made[..., 0].max(rest), made[..., 1].min(rest))
        if node.input(2):
            made = _met(made, self.ratio(pair, 2).reshape(-1, 2))
        return [made.reshape(channels, *(1,) * spatial, 2)], (1, 2)

    def norm(self, pair: Pair) -> Factor:
        made = self.ratio(pair, 1)
        made = _met(made, self.ratio(pair, 2)) if pair.node.input(2) else made
        # Scales of these lie along the last axes, of the others along the channels.
        trailing = 0 if "Layer" in pair.node.op or "RMS" in pair.node.op else len(self.shape(pair.node.inputs[0])) - 2
        return made.reshape(*made.shape[:-1], *(1,) * trailing, 2)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.c.numbers.ball(self.c.at.get(name, name)).shape

    def carried(self, node: Node) -> list[Factor]:
        """The factors that data movement makes of those of its operands."""
        ends = []
        for end in (0, 1):
            operands: list[Ball | None] = []
            for k, name in enumerate(node.inputs):
                if k == 0 or node.op == "Concat":
                    operands.append(exact(np.broadcast_to(self.factor(name)[..., end], self.shape(name))))
                else:
                    known = self.c.constants.get(name)
                    operands.append(exact(known) if known is not None else self.c.numbers.balls.get(name))
            ends.append([ball.midpoint for ball in apply(node, operands, self.c.model.opset)])
        return [_narrowed(np.stack(both, axis=-1)) for both in zip(*ends)]


def _is_float(stored: np.ndarray | None) -> bool:
    return stored is not None and is_float(stored.dtype)


def _is_one(x: Factor) -> bool:
    return bool(((x[..., 0] <= 1) & (x[..., 1] >= 1)).all())


def _met(a: Factor, b: Factor) -> Factor:
    """What is in both. Raises Undecided where nothing is."""
    return _possible(np.maximum(a[..., 0], b[..., 0]), np.minimum(a[..., 1], b[..., 1]))


def _possible(low: np.ndarray, high: np.ndarray) -> Factor:
    if not ((low <= high) & (high > 0)).all():
        raise Undecided("no factor explains it")
    return np.stack([low, high], axis=-1)


def _vector(x: Factor, trailing: int) -> Factor:
    """`x` as one number a channel, or one for all. Raises Undecided where it differs along another axis than that of
    channels, behind which there are `trailing - 1`."""
    if x.size > 2 and x.shape[:-1][-trailing:][:1] != (x.size // 2,):
        raise Undecided("no number a channel")
    return x.reshape(-1, 2)


def _along_inputs(node: Node, x: Factor, weights: np.ndarray) -> Factor:
    """One number for each input channel in a shape that broadcasts to that of the weights."""
    ones = (1,) * (weights.ndim - 2)
    if node.op == "Conv" and len(x) > 1:  # [outputs, inputs of a group, ...]
        groups = node.attributes.get("group", 1)
        each = np.repeat(x.reshape(groups, -1, 2), weights.shape[0] // groups, axis=0)
        return each.reshape(-1, weights.shape[1], *ones, 2)
    if node.op == "ConvTranspose":
        return x.reshape(-1, 1, *ones, 2)
    return x if node.attributes.get("transB", 0) else x.reshape(-1, 1, 2)


def _narrowed(x: Factor) -> Factor:
    """`x` with one element along each axis along which it does not differ."""
    for axis in range(x.ndim - 1):
        first = x.take([0], axis)
        x = first if (x == first).all() else x
    return x
