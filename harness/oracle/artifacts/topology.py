"""D2, topology: is the artifact's graph the float graph, but for roundings?

With every QuantizeLinear taken for a clip to its range, and the float model given the artifact's weights, both compute
the same up to float rounding. That is asked node by node: a float node and its counterpart, on the very values that the
artifact has there, so nothing accumulates and a wrong node is named. Counterparts with the same attributes need no
arithmetic. A Relu or Clip may have been absorbed into a range: then that range has to do what it did, up to 0.51 of a
step at its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from onnx import GraphProto

from harness.oracle.artifacts.difference import blaming, differences, disagreement
from harness.oracle.artifacts.form import OPAQUE, Use
from harness.oracle.artifacts.matching import (
    RANGES,
    RESHAPING,
    How,
    Matching,
    Pair,
    same_attributes,
    without_bodies,
)
from harness.oracle.artifacts.values import FOLDING_ERROR, Numbers, Problem, apply, spellings
from harness.oracle.balls.ball import Ball, Undecided, exact, hull, is_float, undecided_where
from harness.oracle.balls.operands import moved
from harness.oracle.graph import Graph, Node
from harness.oracle.operators import AFFINE

MOVED_BOUND = 0.51
"""of a step: how far the bound of an absorbed Relu or Clip may move"""
REDEFINED = frozenset({"Hardmax", "LogSoftmax", "Softmax"})
"""operators whose attributes mean something else in another opset"""


@dataclass(frozen=True)
class Topology:
    """problems, and nodes of the float model of which it cannot be told that they are right, of so many."""

    problems: tuple[Problem, ...]
    doubtful: tuple[Node, ...]
    nodes: int


def compare(model: Graph, constants: Mapping[str, np.ndarray], matching: Matching, numbers: Numbers) -> Topology:
    """Whether each node of `model` is in the artifact, on the values that `numbers` has."""
    walk = _Walk(model, constants, matching, numbers)
    doubtful = [pair.node for pair in matching.pairs if not walk.step(pair)]
    walk.ends()
    return Topology(tuple(walk.problems), tuple(doubtful), len(matching.pairs))


def differing_attributes(matching: Matching) -> Iterator[Problem]:
    """Nodes whose attributes are given other values, for an artifact that cannot be evaluated."""
    for pair in matching.pairs:
        if pair.how is How.SAME and pair.piece:
            theirs = pair.piece.node.attributes
            stated = {k: x for k, x in pair.node.attributes.items() if k in theirs and not isinstance(x, GraphProto)}
            if any(str(theirs[k]) != str(x) for k, x in stated.items()):
                where = pair.node.name or pair.first
                message = f"{pair.node.op} is not the float model's{differences(pair)}"
                yield Problem("topology", where, 1.0, 0.0, message, (where, pair.node.op))


@dataclass
class _Walk:
    model: Graph
    constants: Mapping[str, np.ndarray]
    matching: Matching
    numbers: Numbers
    problems: list[Problem] = field(default_factory=list)
    carried: dict[str, Any] = field(default_factory=dict)
    alone: list[Node] = field(default_factory=list)
    apart: bool = False

    def __post_init__(self) -> None:
        self.at = dict(self.matching.at)
        absorbed = [pair for pair in self.matching.pairs if pair.how is How.ABSORBED and pair.node.op in AFFINE]
        self.folded = {id(pair.piece) for pair in absorbed if pair.piece}
        self.opset = self.numbers.artifact.graph.opset
        # Counterparts of what comes before the node that is judged: an optimiser may compute these of later ones.
        self.anchored = {real for name, real in self.at.items() if name not in self.model.producers}
        self.makers = {use.real: piece for piece in self.numbers.artifact.pieces for use in piece.results if use}
        self.lifted: dict[str, Any] = {}
        self.sources: dict[str, frozenset[str]] = {}
        self.turns: dict[str, tuple[int, ...]] = {}
        self.views: dict[str, list[Use]] = {}
        for piece in self.numbers.artifact.pieces:
            for use in piece.uses:
                if use and use.tensor not in self.numbers.artifact.constant:
                    self.views.setdefault(use.real, []).append(use)
        for name in self.numbers.artifact.graph.outputs:
            use = self.numbers.artifact.use(name)
            self.views.setdefault(use.real, []).append(use)

    def step(self, pair: Pair) -> bool:
        """Judge one node; whether it could be told that it is right or wrong."""
        try:
            match pair.how:
                case How.SAME:
                    return self.is_identical(pair) or self.compared(pair)
                case How.NAMED:
                    return self.compared(pair)
                case How.ABSORBED if not self.is_clipped_later(pair.node):
                    return self.absorbed(pair)
            self.carry(pair.node, apply(pair.node, self.operands(pair), self.model.opset))
        except Undecided:
            return False
        finally:
            self.anchored.update(self.at[name] for name in pair.node.outputs if name in self.at)
            self.lifted.clear()
        return True

    def carry(self, node: Node, results: Sequence[Any]) -> None:
        """Go on with what the float model makes, where the artifact has no counterpart."""
        self.alone.append(node)
        self.carried.update(zip(node.outputs, results))
        self.sources.update(dict.fromkeys(node.outputs, self.sources_of(node)))
        for name in node.outputs:
            self.at.pop(name, None)
        turn = self.turn(node)
        if turn and isinstance(results[0], Ball) and len(results[0].shape) == len(turn):
            self.turns.update(dict.fromkeys(node.outputs, turn))

    def sources_of(self, node: Node) -> frozenset[str]:
        """The tensors of the artifact that the operands of a node are, or that these are computed from."""
        known = [self.sources.get(name, frozenset((self.at.get(name, ""),))) for name in node.inputs]
        return frozenset[str]().union(*known)

    def turn(self, node: Node) -> tuple[int, ...]:
        """How the artifact's axes are to be permuted to give those of a node that stands behind a Transpose which the
        artifact has further on, or not at all."""
        before = next((self.turns[name] for name in node.inputs if name in self.turns), ())
        if node.op != "Transpose":
            return before
        ball = self.carried.get(node.outputs[0])
        own = node.attributes.get("perm") or range(len(ball.shape) if isinstance(ball, Ball) else 0)[::-1]
        return tuple(before[k] for k in own) if before else tuple(own)

    def is_identical(self, pair: Pair) -> bool:
        """Whether the counterpart is the same operation by its form."""
        artifact, node = self.numbers.artifact, pair.node
        if pair.piece is None or pair.piece.node.op != node.op:
            return False
        if not same_attributes(without_bodies(node), without_bodies(pair.piece.node)):
            return False
        if node.op in REDEFINED and self.model.opset != artifact.graph.opset:
            return False
        names = node.inputs + ("",) * (len(pair.operands) - len(node.inputs))
        if id(pair.piece) in self.folded:  # D3 looks after the bias that this may have made
            names = names[:2]
        return all(self.is_same_operand(name, use) for name, use in zip(names, pair.operands))

    def is_same_operand(self, name: str, use: Use | None) -> bool:
        if not name or use is None:
            return not name and use is None
        if name not in self.constants:
            return self.at.get(name) == use.real
        if use.tensor not in self.numbers.artifact.constant:
            return False
        constant = self.constants[name]
        return is_float(constant.dtype) or np.array_equal(constant, self.numbers.ball(use.tensor).middle)

    def compared(self, pair: Pair) -> bool:
        """Compute the node on the artifact's values, and hold it against what the artifact has."""
        node, real = self.neutral(pair), self.at[pair.first]
        self.apart = pair.how is How.NAMED or not self.carried.keys().isdisjoint(node.inputs)
        operands = self.operands(pair)
        if pair.how is How.NAMED and any(self.is_behind(self.at.get(name, real), real) for name in node.inputs):
            self.carry(pair.node, apply(node, operands, self.model.opset))  # `ends` allows for the rounding in between
            return True
        if id(pair.piece) in self.folded and len(pair.operands) > 2 and pair.operands[2]:
            bias = self.numbers.real(pair.operands[2])
            operands = [*operands[:2], moved(bias, np.ravel)]
        wanted = apply(node, operands, self.model.opset)
        returned = pair.how is How.NAMED and real in self.sources_of(node)  # Transposes that cancel, say
        found = [self.shown(real)] if returned else self.found(pair, real)
        both = [
            x for x in zip(node.outputs, wanted, found) if x[0] and isinstance(x[1], Ball) and isinstance(x[2], Ball)
        ]
        if both and all(np.isinf(b.error).all() for _, _, b in both):
            return False
        if pair.guessed and any(disagreement(pair, *x, 0.0) for x in both):
            self.carry(pair.node, wanted)
            return False
        for name, a, b in both:
            if self.is_turned(pair, name, a, b):
                continue
            if pair.how is How.NAMED and disagreement(pair, name, a, b, 0.0) and self.passes(pair, name, b, 0.0):
                return self.step(replace(pair, how=How.ABSORBED))
            self.hold(pair, name, a, b, self.of_constant(real))
        self.carried.update((name, ball) for name, ball in zip(node.outputs, wanted) if name not in self.at)
        return True

    def is_turned(self, pair: Pair, name: str, wanted: Ball, found: Ball) -> bool:
        """Whether a result has its axes in another order, because a Transpose before it has travelled behind it."""
        turn = self.turn(pair.node) if not self.turns.keys().isdisjoint(pair.node.inputs) else ()
        if not turn or len(turn) != len(found.shape) or not disagreement(pair, name, wanted, found, 0.0):
            return False
        if disagreement(pair, name, wanted, moved(found, lambda x: x.transpose(turn)), 0.0):
            return False
        self.carried[name] = moved(self.shown(self.at.pop(name)), lambda x: x.transpose(turn))
        self.turns[name] = turn
        return True

    def is_behind(self, later: str, real: str) -> bool:
        """Whether the artifact makes `later` of `real`: of two Transposes that cancel, the operand of its result."""
        names, seen = [later], {real}
        while names:
            piece = self.makers.get(names.pop())
            read = {use.real for use in piece.uses if use} if piece else set()
            if real in read:
                return True
            names += read - seen
            seen |= read
        return False

    def of_constant(self, real: str) -> float:
        """How far off a result may be that the artifact holds as a constant: half a step, and what folding may cost."""
        if real not in self.numbers.artifact.constant:
            return 0.0
        use = self.view(real)
        return self.step_of(use) + FOLDING_ERROR * float(np.abs(self.numbers.real(use).numbers).max(initial=1.0))

    def neutral(self, pair: Pair) -> Node:
        """The node without the factors of a Gemm that have been multiplied into its constants: D3 looks after those."""
        node = pair.node
        if node.op == "MatMul" and pair.piece and pair.piece.node.op == "Gemm":
            return replace(node, op="Gemm", attributes={})
        if node.op != "Gemm" or pair.piece is None or pair.piece.node.op not in ("Gemm", "MatMul"):
            return node
        other = pair.piece.node.attributes
        factors = {
            name: other.get(name, 1.0) for k, name in ((1, "alpha"), (2, "beta")) if node.input(k) in self.constants
        }
        return replace(node, attributes={**node.attributes, **factors})

    def found(self, pair: Pair, real: str) -> list[Any]:
        """What the artifact has for each result."""
        if pair.piece is not None and pair.how is How.SAME and pair.bias is None:
            read = self.lent if self.apart else self.seen
            return apply(pair.piece.node, [read(use) if use else None for use in pair.piece.uses], self.opset)
        if real in self.makers:
            return [self.unrounded(real)]
        return [self.shown(real)]

    def unrounded(self, real: str) -> Ball:
        """A real tensor as the artifact makes it of those that have counterparts, without roundings in between."""
        if real not in self.lifted:
            piece = self.makers.get(real)
            if piece is None or piece.node.op in OPAQUE:
                raise Undecided(f"{real!r} is made of integers inside an operator")
            results = apply(piece.node, [self.lent(use) if use else None for use in piece.uses], self.opset)
            self.lifted.update((use.real, ball) for use, ball in zip(piece.results, results) if use)
        ball = self.lifted.get(real)
        if not isinstance(ball, Ball):
            raise Undecided(f"{real!r} has no value")
        return ball

    def seen(self, use: Use) -> Ball:
        """What a piece reads: the artifact's value where that has a counterpart, or none has made it."""
        known = use.real in self.anchored or use.real in self.shared
        if use.real not in self.makers or (known and not self.is_inside(use)):
            return self.numbers.real(use)
        ball = self.unrounded(use.real)
        if use.format:
            low, high = (float(end[0]) for end in self.numbers.limits(use.format))
            slack = MOVED_BOUND * self.step_of(use)
            # The float model has no such tensor to clip: nothing is known of what depends on these elements.
            ball = undecided_where((ball.low < low - slack) | (ball.high > high + slack), ball)
        return ball

    def lent(self, use: Use) -> Ball:
        """What a piece inside the counterpart of a float node reads: of the tensors that this node reads, what it does.
        Where it was taken apart, and some pieces read them rounded and others not, all are given them as they are."""
        if use.real not in self.anchored or use.tensor in self.numbers.artifact.constant or self.is_inside(use):
            return self.seen(use)
        kinds = self.kinds(use.real, None if self.apart else use)
        return self.numbers.real(min(kinds, key=lambda view: view.format is not None))

    def operands(self, pair: Pair) -> list[Ball | None]:
        """What the float node reads, were it in the place of its counterpart."""
        uses = pair.operands + (None,) * (len(pair.node.inputs) - len(pair.operands))
        operands = [self.value(name, use, pair.how) if name else None for name, use in zip(pair.node.inputs, uses)]
        if pair.transposed and operands[1] is not None:
            operands[1] = moved(operands[1], np.transpose)
        if pair.bias and operands[2] is not None:
            shape = self.constants[pair.node.inputs[2]].shape
            operands[2] = moved(operands[2], lambda x: x.reshape(shape))
        return operands

    def value(self, name: str, use: Use | None = None, how: How = How.NAMED) -> Ball:
        """A tensor of the float model, as the artifact has it at `use`, if it has."""
        if name in self.constants:
            lost = how is How.SAME and use is None
            return exact(self.constants[name]) if lost else self.constant(name, use)
        if name in self.at:
            real = self.at[name]
            return self.numbers.real(use) if use and use.real == real else self.shown(real, use)
        ball = self.carried.get(name)
        if not isinstance(ball, Ball):
            raise Undecided(f"{name!r} has no value")
        return ball

    def shown(self, real: str, like: Use | None = None) -> Ball:
        """A real tensor as its readers see it; where some see it rounded and others do not, what lies between."""
        kinds = self.kinds(real, like)
        if any(map(self.is_inside, kinds)):
            return self.unrounded(real)
        return hull([self.numbers.real(use) for use in kinds])

    def is_inside(self, use: Use) -> bool:
        """Whether a tensor stands only inside an operator that an optimiser has fused."""
        return use.tensor not in self.numbers.balls and use.real in self.makers

    def view(self, real: str, like: Use | None = None) -> Use:
        """A real tensor as its readers see it. Raises Undecided where some see it rounded and others do not."""
        first, *others = self.kinds(real, like)
        if others:
            raise Undecided(f"some read {real!r} rounded, and others not")
        return first

    def kinds(self, real: str, like: Use | None = None) -> list[Use]:
        """A view of a real tensor that is rounded, and one that is not, where there are both; only that of the kind of
        `like` if there is one."""
        views = self.views.get(real) or [self.numbers.artifact.use(real)]
        if like:
            views = [use for use in views if (use.format is None) == (like.format is None)] or views
        return list({use.format is None: use for use in reversed(views)}.values())

    def constant(self, name: str, use: Use | None) -> Ball:
        """A constant of the float model as the artifact has it: at the same place, or under the same name."""
        own = self.constants[name]
        if not is_float(own.dtype):
            return exact(own)
        if use is not None and use.tensor in self.numbers.artifact.constant:
            return self.numbers.real(use)
        found = self.numbers.stored(name, own)
        stored = [x for tensor in spellings(name) if (x := self.numbers.constants.get(tensor)) is not None]
        if any(not np.array_equal(x, stored[0]) for x in stored):
            raise Undecided(f"some read {name!r} rounded, and others not")
        if found is not None:
            return replace(exact(own), middle=found[1])
        if own.size in self.unclaimed:
            raise Undecided(f"what became of {name!r} is not known")
        return exact(own)

    @cached_property
    def shared(self) -> set[str]:
        """The constants that the float model has too, as operands of a counterpart or by name, as they were rounded."""
        artifact = self.numbers.artifact
        operands = {use.tensor for pair in self.matching.pairs for use in pair.operands if use}
        operands.update(tensor for name in self.constants for tensor in spellings(name))
        return {artifact.stands_for(tensor) for tensor in operands & artifact.constant}

    @cached_property
    def unclaimed(self) -> set[int]:
        """Sizes of the quantised constants of the artifact that are nobody's counterpart."""
        claimed = {use.tensor for pair in self.matching.pairs for use in pair.operands if use}
        claimed.update(tensor for name in self.constants for tensor in spellings(name))
        stored, formats = self.numbers.constants, self.numbers.artifact.formats
        return {x.size for tensor, x in stored.items() if tensor in formats and tensor not in claimed}

    def absorbed(self, pair: Pair) -> bool:
        """Whether nothing is missing without the node: for a range, what its readers see passes through unchanged."""
        node = pair.node
        if node.op not in RANGES:
            return True
        real = self.at[pair.first]
        rest = [self.bound(name) if name else None for name in node.inputs[1:]]
        found = []
        for use in {use.tensor: use for use in self.views.get(real, [])}.values() or [self.view(real)]:
            seen = self.numbers.real(use)
            wanted = apply(node, [seen, *rest], self.model.opset)[0]
            found.append(disagreement(pair, pair.first, wanted, seen, MOVED_BOUND * self.step_of(use)))
        # Others may rightly read the tensor as it was before the Relu.
        if all(found):
            self.problems += [problem for problem in found[:1] if problem]
        return True

    def bound(self, name: str) -> Ball:
        """A bound of a Clip that is gone, which the artifact need not have."""
        given = self.numbers.balls.get(name) if name in self.model.inputs else None
        return exact(self.constants[name]) if name in self.constants else given or self.value(name)

    def is_clipped_later(self, node: Node) -> bool:
        """Whether a Relu has become part of each Clip that reads it: none of them passes on what is below zero."""
        readers = [pair for pair in self.matching.pairs if node.outputs[0] in pair.node.inputs]
        bounds = [pair.operands[1] for pair in readers if pair.node.op == "Clip" and len(pair.operands) > 1]
        if node.op != "Relu" or node.outputs[0] in self.model.outputs or not readers or len(bounds) < len(readers):
            return False
        return all(bound is not None and self.numbers.real(bound).numbers.min(initial=0) >= 0 for bound in bounds)

    def ends(self) -> None:
        """Whether each graph output of the artifact is the counterpart of the float model's."""
        for name in self.model.outputs:
            real, at = self.numbers.artifact.stands_for(name), self.at.get(name, "")
            if at == real or name not in self.model.producers:
                continue
            if name in self.constants and real not in self.numbers.artifact.constant:
                continue  # the artifact computes it, with roundings on the way
            try:
                wanted = self.value(name)
                inside = name in self.carried and real not in self.anchored
                found = self.unrounded(real) if inside else self.shown(real)
                slack = sum(self.step_of(self.view(r)) for r in (at, real) if r)
            except Undecided:
                continue
            if name in self.constants:
                slack += FOLDING_ERROR * float(np.abs(wanted.numbers).max(initial=1.0))
            self.hold(Pair(self.model.producers[name], How.NAMED), name, wanted, found, slack)

    def step_of(self, use: Use) -> float:
        """The quantisation step of a tensor; 0 where it has none."""
        return float(self.numbers.scale(use.format).max()) if use.format else 0.0

    def passes(self, pair: Pair, name: str, found: Ball, slack: float) -> bool:
        """Whether a Relu or Clip passes on what it reads."""
        try:
            return pair.node.op in RANGES and not disagreement(
                pair, name, self.value(pair.node.inputs[0]), found, slack
            )
        except Undecided:
            return False

    def hold(self, pair: Pair, name: str, wanted: Ball, found: Ball, slack: float) -> None:
        """Add a problem where two balls have no point in common."""
        # An intermediate of another shape is another tensor of that name; an output is the same for whoever reads it.
        if wanted.shape != found.shape and pair.how is not How.SAME and name not in self.model.outputs:
            return
        problem = disagreement(pair, name, wanted, found, slack)
        if problem is None:
            return
        if self.passes(pair, name, found, slack):
            problem = disagreement(replace(pair, how=How.ABSORBED), name, wanted, found, slack) or problem
            self.problems.append(problem)
            return
        read, missing = set(pair.node.inputs), None
        for node in reversed(self.alone):
            if not read.isdisjoint(node.outputs):
                # Optimisers move and merge what only reshapes: that one of these is gone says little.
                missing = missing if missing and node.op in RESHAPING else node
                read.update(node.inputs)
        if missing:
            problem = blaming(missing, "has no counterpart, and is missed", problem)
        elif extra := self.stranger(pair):
            problem = blaming(extra, "is no operation of the float model", problem)
        self.problems.append(problem)

    def stranger(self, pair: Pair) -> Node | None:
        """What makes an operand of the counterpart, and is nobody's counterpart."""
        uses = pair.piece.uses if pair.piece and pair.how is How.SAME else ()
        makers = [self.makers.get(use.real) for use in uses if use and use.real not in {*self.at.values()}]
        matched = {id(piece) for p in self.matching.pairs for piece in (p.piece, p.bias) if piece}
        return next((maker.node for maker in makers if maker and id(maker) not in matched), None)
