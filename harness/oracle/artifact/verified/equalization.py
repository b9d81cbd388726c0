"""Equivalent scaling: what makes a tensor may multiply its channels by numbers d, where all that reads it divides by d.

    (W / d) (d x) = W x        and d f(x) = f(d x) for a Relu, a pooling, and data movement between

Quantizers move the outliers of activations into weights so (SmoothQuant, https://arxiv.org/abs/2211.10438; cross-layer
equalization, https://arxiv.org/abs/1906.04721): through the constants of a norm, a Mul or a linear operator, or a Mul
of their own. Each element of a constant leaves its d an interval, found = d wanted within its bound. Where those of a
channel have a point in common, and d cancels in every reader from there on, the constants are right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.graph import Graph, Node, captured
from driftnet.model.operators import WEIGHTED
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair
from driftnet.oracle.artifact.verified.constants import Held
from driftnet.oracle.artifact.verified.dequantized import apply
from driftnet.oracle.artifact.verified.format import Artifact, Use
from driftnet.oracle.artifact.verified.names import named
from driftnet.oracle.artifact.verified.operators import (
    ARITHMETIC,
    CARRYING,
    MEASURING,
    NORMS,
    PASSING,
    POOLING,
    SLIDING,
)
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, is_float
from driftnet.oracle.scheme.folding import output_axis


@dataclass(frozen=True)
class Factor:
    """Positive numbers between `low` and `high`; origins: first results of the nodes that are the reason."""

    low: np.ndarray
    high: np.ndarray
    origins: frozenset[str] = frozenset()

    @property
    def is_one(self) -> bool:
        return bool(((self.low <= 1) & (self.high >= 1)).all())

    def times(self, other: Factor) -> Factor:
        return Factor(self.low * other.low, self.high * other.high)

    def by(self, other: Factor) -> Factor:
        with np.errstate(divide="ignore"):
            return Factor(self.low / other.high, self.high / other.low)

    def met(self, other: Factor) -> Factor:
        """What is in both. Raises Undecided where nothing is."""
        return Factor(np.maximum(self.low, other.low), np.minimum(self.high, other.high)).possible()

    def common(self, axes: tuple[int, ...]) -> Factor:
        """What is in all that lie along `axes`. Raises Undecided where nothing is."""
        return Factor(self.low.max(axes), self.high.min(axes)).possible()

    def possible(self) -> Factor:
        if not ((self.low <= self.high) & (self.high > 0)).all():
            raise Undecided("no factor explains it")
        return self

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> Factor:
        return replace(self, low=change(self.low), high=change(self.high))


ONE = Factor(np.ones(()), np.ones(()))


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
    for name in c.model.outputs:
        walk.guilty |= walk.factor(name).origins
    right = {name for name, origins in walk.explained.items() if not origins & walk.guilty}
    multiples = {name for name, factor in walk.factors.items() if not factor.origins & walk.guilty}
    return Scaling(frozenset(right - walk.unexplained), frozenset(multiples))


@dataclass
class _Walk:
    c: Comparison
    held: Mapping[tuple[Use, str], Held]
    wrong: Collection[str]
    factors: dict[str, Factor] = field(default_factory=dict)
    explained: dict[str, frozenset[str]] = field(default_factory=dict)
    unexplained: set[str] = field(default_factory=set)
    guilty: frozenset[str] = frozenset()

    def step(self, pair: Pair) -> None:
        """Find the factors of a node's results from those of its operands and its constants."""
        node = pair.node
        read = [self.factors[name] for name in (*node.inputs, *captured(node)) if name in self.factors]
        wrong = {name for name in node.inputs if name in self.wrong}
        if node.op in MEASURING or not (read or wrong):
            return
        origins = frozenset[str]().union(*(factor.origins for factor in read))
        try:
            results, judged = self.results(pair)
        except (Undecided, ValueError):  # the latter where what the artifact has there is of another shape
            self.guilty |= origins
            self.unexplained |= wrong
            return
        if wrong and not all(result.is_one for result in results):
            origins |= {pair.first}
        right = {node.input(k) for k in judged} if origins else set()
        self.unexplained |= wrong - right
        self.explained |= {name: self.explained.get(name, frozenset()) | origins for name in wrong & right}
        for name, result in zip(node.outputs, results):
            if name and not result.is_one:
                self.factors[name] = replace(result, origins=origins)

    def factor(self, name: str) -> Factor:
        return self.factors.get(name, ONE)

    def results(self, pair: Pair) -> tuple[list[Factor], tuple[int, ...]]:
        """(the factor of each result, positions of the constants that were judged). Raises Undecided, ValueError."""
        node, first, second = pair.node, self.factor(pair.node.input(0)), self.factor(pair.node.input(1))
        constant = next((k for k in (1, 0) if node.input(k) in self.c.constants), None)
        op = "" if pair.how is How.ABSORBED and node.op != "Clip" else node.op
        if op in WEIGHTED and constant == 1:
            return self.linear(pair, first)
        if op in NORMS and first is ONE:
            return [self.norm(pair)], (1, 2)
        if op in ARITHMETIC:
            if constant is not None:
                first, second = [self.ratio(pair, k) if k == constant else self.factor(node.inputs[k]) for k in (0, 1)]
            result = first.times(second) if op == "Mul" else first.by(second) if op == "Div" else first.met(second)
            return [result], () if constant is None else (constant,)
        if op in CARRYING:
            return self.carried(node), ()
        if op in POOLING:
            _vector(first.low, len(self.shape(node.inputs[0])) - 1)
        if op and (op not in POOLING | PASSING or not second.is_one):
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
        return Factor(np.where(size > 0, low, zeros), np.where(size > 0, high, np.inf))

    def linear(self, pair: Pair, given: Factor) -> tuple[list[Factor], tuple[int, ...]]:
        """The results of a linear operator: found W = wanted W times the factor of the output, by that of the input."""
        node, wanted = pair.node, self.c.constants[pair.node.inputs[1]]
        spatial = wanted.ndim - 2 if node.op in SLIDING else 0
        if any(name in self.factors for name in node.inputs[1:]) or (node.op == "Gemm" and "transA" in node.attributes):
            raise Undecided("another operand is a multiple too")
        made = self.ratio(pair, 1).times(given.changed(lambda x: _along_inputs(node, _vector(x, spatial + 1), wanted)))
        if made.is_one:
            return [ONE], (1,)
        axis, channels = output_axis(node, wanted)
        made = made.common(tuple(k for k in range(wanted.ndim) if k != axis))
        if node.input(2):
            made = made.met(self.ratio(pair, 2).changed(np.ravel))
        return [made.changed(lambda x: x.reshape((channels,) + (1,) * spatial))], (1, 2)

    def norm(self, pair: Pair) -> Factor:
        made = self.ratio(pair, 1)
        made = made.met(self.ratio(pair, 2)) if pair.node.input(2) else made
        trailing = 0 if "Layer" in pair.node.op or "RMS" in pair.node.op else len(self.shape(pair.node.inputs[0])) - 2
        return made.changed(lambda x: x.reshape(x.shape + (1,) * trailing))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.c.numbers.ball(self.c.at.get(name, name)).shape

    def carried(self, node: Node) -> list[Factor]:
        """The factors that data movement makes of those of its operands."""
        ends = []
        for end in ("low", "high"):
            operands: list[Ball | None] = []
            for k, name in enumerate(node.inputs):
                if k == 0 or node.op == "Concat":
                    operands.append(exact(np.broadcast_to(getattr(self.factor(name), end), self.shape(name))))
                else:
                    known = self.c.constants.get(name)
                    operands.append(exact(known) if known is not None else self.c.numbers.balls.get(name))
            ends.append([_narrowed(ball.midpoint) for ball in apply(node, operands, self.c.model.opset)])
        return [Factor(low, high) for low, high in zip(*ends)]


def _is_float(stored: np.ndarray | None) -> bool:
    return stored is not None and is_float(stored.dtype)


def _vector(x: np.ndarray, trailing: int) -> np.ndarray:
    """`x` as one number a channel, or one for all. Raises Undecided where it differs along another axis than that of
    channels, behind which there are `trailing - 1`."""
    if x.size > 1 and x.shape[-trailing:][:1] != (x.size,):
        raise Undecided("no number a channel")
    return x.ravel()


def _along_inputs(node: Node, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """One number for each input channel in a shape that broadcasts to that of the weights."""
    ones = (1,) * (weights.ndim - 2)
    if node.op == "Conv" and x.size > 1:  # [outputs, inputs of a group, ...]
        groups = node.attributes.get("group", 1)
        return np.repeat(x.reshape(groups, -1), weights.shape[0] // groups, axis=0).reshape(-1, weights.shape[1], *ones)
    if node.op == "ConvTranspose":
        return x.reshape(-1, 1, *ones)
    return x if node.attributes.get("transB", 0) else x.reshape(-1, 1)


def _narrowed(x: np.ndarray) -> np.ndarray:
    """`x` with one element along each axis along which it does not differ."""
    for axis in range(x.ndim):
        first = x.take([0], axis)
        x = first if (x == first).all() else x
    return x
