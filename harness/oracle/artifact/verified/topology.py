"""D2, topology: is the artifact's graph the float graph, but for roundings?

With every QuantizeLinear taken for a clip to its range, and the float model given the artifact's weights, both compute
the same up to float rounding. That is asked node by node: a float node and its counterpart, on the very values that the
artifact has there, so nothing accumulates and a wrong node is named. Counterparts with the same attributes need no
arithmetic. A Relu or Clip may have been absorbed into a range: then that range has to do what it did, up to 0.51 of a
step at its bounds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair, Problem, label, problem_of
from driftnet.oracle.artifact.verified.dequantized import apply
from driftnet.oracle.artifact.verified.format import Use
from driftnet.oracle.artifact.verified.messages import blaming, differences, disagreement
from driftnet.oracle.artifact.verified.names import attributes_of
from driftnet.oracle.artifact.verified.operand_values import OperandValues
from driftnet.oracle.artifact.verified.operators import (
    CLIPPING,
    MATRIX_PRODUCTS,
    REDEFINED,
    RESHAPING,
    is_only_measured,
)
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, is_float, moved
from driftnet.oracle.tolerances.table import FOLDING_ERROR, MOVED_BOUND, PROMINENT
from onnx import GraphProto


def differing_nodes(comparison: Comparison) -> tuple[list[Problem], list[Node]]:
    """The problems with nodes of the float model, and the nodes of which it cannot be told that they are right."""
    walk = _Walk(comparison)
    doubtful = [pair.node for pair in comparison.pairs if not walk.step(pair)]
    walk.ends()
    return walk.problems, doubtful


def differing_attributes(comparison: Comparison) -> Iterator[Problem]:
    """Nodes whose attributes are given other values, for an artifact that cannot be evaluated."""
    for pair in comparison.pairs:
        if pair.how is How.SAME and pair.piece:
            theirs = pair.piece.node.attributes
            stated = {k: x for k, x in pair.node.attributes.items() if k in theirs and not isinstance(x, GraphProto)}
            if any(str(theirs[k]) != str(x) for k, x in stated.items()):
                message = f"{pair.node.op} is not the float model's{differences(pair)}"
                yield problem_of(pair.node, "topology", 1.0, 0.0, message)


@dataclass
class _Walk:
    comparison: Comparison
    problems: list[Problem] = field(default_factory=list)
    unmatched: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        c = self.comparison
        self.model, self.constants, self.pairs, self.numbers = c.model, c.constants, c.pairs, c.numbers
        self.values = OperandValues(c, {real for name, real in c.at.items() if name not in c.model.producers})
        self.folded, self.opset = c.folded, c.artifact.graph.opset
        self.sources: dict[str, frozenset[str]] = {}
        self.turns: dict[str, tuple[int, ...]] = {}

    def step(self, pair: Pair) -> bool:
        """Judge one node; whether it could be told that it is right or wrong."""
        try:
            match pair.how:
                case How.SAME:
                    return self.is_identical(pair) or self.compared(pair)
                case How.BY_NAME:
                    return self.compared(pair)
                case How.ABSORBED if not self.is_clipped_later(pair.node):
                    return self.absorbed(pair)
            self.carry(pair.node, apply(pair.node, self.values.operands(pair), self.model.opset))
        except Undecided:
            return False
        finally:
            self.values.anchored.update(self.values.at[name] for name in pair.node.outputs if name in self.values.at)
            self.values.lifted.clear()
        return True

    def carry(self, node: Node, results: Sequence[Any]) -> None:
        """Go on with what the float model makes, where the artifact has no counterpart."""
        self.unmatched.append(node)
        self.values.carried.update(zip(node.outputs, results))
        self.sources.update(dict.fromkeys(node.outputs, self.sources_of(node)))
        for name in node.outputs:
            self.values.at.pop(name, None)
        turn = self.turn(node)
        if turn and isinstance(results[0], Ball) and len(results[0].shape) == len(turn):
            self.turns.update(dict.fromkeys(node.outputs, turn))

    def sources_of(self, node: Node) -> frozenset[str]:
        """The tensors of the artifact that the operands of a node are, or that these are computed from."""
        known = [self.sources.get(name, frozenset((self.values.at.get(name, ""),))) for name in node.inputs]
        return frozenset[str]().union(*known)

    def turn(self, node: Node) -> tuple[int, ...]:
        """How the artifact's axes are to be permuted to give those of a node that stands behind a Transpose which the
        artifact has further on, or not at all."""
        before = next((self.turns[name] for name in node.inputs if name in self.turns), ())
        if node.op != "Transpose":
            return before
        ball = self.values.carried.get(node.outputs[0])
        own = node.attributes.get("perm") or range(len(ball.shape) if isinstance(ball, Ball) else 0)[::-1]
        return tuple(before[k] for k in own) if before else tuple(own)

    def is_identical(self, pair: Pair) -> bool:
        """Whether the counterpart is the same operation by its form."""
        node, other = pair.node, pair.piece.node if pair.piece else None
        if other is None or other.op != node.op or (node.op in REDEFINED and self.model.opset != self.opset):
            return False
        if attributes_of(node, bodies=False) != attributes_of(other, bodies=False):
            return False
        names = node.inputs + ("",) * (len(pair.operands) - len(node.inputs))
        if id(pair.piece) in self.folded:  # D3 looks after the bias that this may have made
            names = names[:2]
        return all(self.is_same_operand(name, use) for name, use in zip(names, pair.operands))

    def is_same_operand(self, name: str, use: Use | None) -> bool:
        if not name or use is None:
            return not name and use is None
        if name not in self.constants:
            return self.values.at.get(name) == use.real
        if use.tensor not in self.comparison.artifact.constant:
            return False
        constant = self.constants[name]
        return is_float(constant.dtype) or np.array_equal(constant, self.numbers.ball(use.tensor).midpoint)

    def compared(self, pair: Pair) -> bool:
        """Compute the node on the artifact's values, and hold it against what the artifact has."""
        node, real = self.neutral(pair), self.values.at[pair.first]
        self.values.unfused = pair.how is How.BY_NAME or not self.values.carried.keys().isdisjoint(node.inputs)
        operands = self.values.operands(pair)
        read = [self.values.at.get(name, real) for name in node.inputs]
        if pair.how is How.BY_NAME and any(self.is_behind(tensor, real) for tensor in read):
            self.carry(pair.node, apply(node, operands, self.model.opset))  # `ends` allows for the rounding in between
            return True
        if id(pair.piece) in self.folded and (bias := pair.operand(2)):
            operands = [*operands[:2], moved(self.numbers.real(bias), np.ravel)]
        wanted = apply(node, operands, self.model.opset)
        returned = pair.how is How.BY_NAME and real in self.sources_of(node)  # Transposes that cancel, say
        found = [self.values.as_read(real)] if returned else self.found(pair, real)
        results = zip(node.outputs, wanted, found)
        both = [(name, a, b) for name, a, b in results if name and isinstance(a, Ball) and isinstance(b, Ball)]
        if both and all(np.isinf(b.error).all() for _, _, b in both):
            return False
        if pair.guessed and any(disagreement(pair, *x, 0.0) for x in both):
            self.carry(pair.node, wanted)
            return False
        for name, a, b in both:
            if self.is_turned(pair, name, a, b):
                continue
            if pair.how is How.BY_NAME and disagreement(pair, name, a, b, 0.0) and self.passes(pair, name, b, 0.0):
                return self.step(replace(pair, how=How.ABSORBED))
            self.hold(pair, name, a, b, self.values.of_constant(real))
        self.values.carried |= {name: x for name, x in zip(node.outputs, wanted) if name not in self.values.at}
        return True

    def is_turned(self, pair: Pair, name: str, wanted: Ball, found: Ball) -> bool:
        """Whether a result has its axes in another order, because a Transpose before it has travelled behind it."""
        turn = self.turn(pair.node) if not self.turns.keys().isdisjoint(pair.node.inputs) else ()
        if not turn or len(turn) != len(found.shape) or not disagreement(pair, name, wanted, found, 0.0):
            return False
        if disagreement(pair, name, wanted, moved(found, lambda x: x.transpose(turn)), 0.0):
            return False
        self.values.carried[name] = moved(self.values.as_read(self.values.at.pop(name)), lambda x: x.transpose(turn))
        self.turns[name] = turn
        return True

    def is_behind(self, later: str, real: str) -> bool:
        """Whether the artifact makes `later` of `real`: of two Transposes that cancel, the operand of its result."""
        names, seen = [later], {real}
        while names:
            piece = self.values.makers.get(names.pop())
            read = {use.real for use in piece.uses if use} if piece else set()
            if real in read:
                return True
            names += read - seen
            seen |= read
        return False

    def neutral(self, pair: Pair) -> Node:
        """The node without the factors of a Gemm that have been multiplied into its constants: D3 looks after those."""
        node = pair.node
        # The one that an optimizer makes of the other.
        if node.op == "MatMul" and pair.piece and pair.piece.node.op == "Gemm":
            return replace(node, op="Gemm", attributes={})
        if node.op != "Gemm" or pair.piece is None or pair.piece.node.op not in MATRIX_PRODUCTS:
            return node
        other = pair.piece.node.attributes
        factors = {
            name: other.get(name, 1.0) for k, name in ((1, "alpha"), (2, "beta")) if node.input(k) in self.constants
        }
        return replace(node, attributes={**node.attributes, **factors})

    def found(self, pair: Pair, real: str) -> list[Any]:
        """What the artifact has for each result."""
        if pair.piece is not None and pair.how is How.SAME and pair.bias is None:
            read = self.values.of_unfused if self.values.unfused else self.values.of_piece
            return apply(pair.piece.node, [read(use) if use else None for use in pair.piece.uses], self.opset)
        if real in self.values.makers:
            return [self.values.unrounded(real)]
        return [self.values.as_read(real)]

    def absorbed(self, pair: Pair) -> bool:
        """Whether nothing is missing without the node: for a range, what its readers see passes through unchanged."""
        node = pair.node
        if node.op not in CLIPPING or is_only_measured(self.model, node):
            return True
        real = self.values.at[pair.first]
        rest = [self.bound(name) if name else None for name in node.inputs[1:]]
        found: list[Problem | None] = []
        for use in {use.tensor: use for use in self.values.uses.get(real, [])}.values() or [self.values.use(real)]:
            seen = self.numbers.real(use)
            wanted = apply(node, [seen, *rest], self.model.opset)[0]
            problem = disagreement(pair, pair.first, wanted, seen, MOVED_BOUND * self.values.step_of(use))
            found.append(problem and self.by_its_zero_point(problem, pair, use))
        # Others may rightly read the tensor as it was before the Relu.
        if all(found):
            self.problems += [problem for problem in found[:1] if problem]
        return True

    def by_its_zero_point(self, problem: Problem, pair: Pair, use: Use) -> Problem:
        """The problem of a Relu that is gone; or of the zero point, where the range is not that of its operand either:
        that reaches as far below zero as it does above, in proportion to the data, unless it was clipped."""
        ranges, format = self.comparison.calibration.ranges if self.comparison.calibration else {}, use.format
        low, high = ranges.get(pair.node.inputs[0], (0.0, 0.0))
        if pair.node.op != "Relu" or not low < 0 < high or format is None or not format.zero_point:
            return problem
        least, most = self.numbers.limits(format)
        if not least < 0 < most or abs(np.log2((least / most) / (low / high))) <= PROMINENT:
            return problem
        if self.may_be_clipped(pair.node.inputs[0], least):
            return problem
        message = (
            f"{pair.first!r} reaches from {least:.6g} to {most:.6g}, where Relu begins at 0 and its operand is in "
            f"[{low:.6g}, {high:.6g}]: the zero point is wrong"
        )
        return replace(problem, question="parameter", where=format.zero_point, message=message)

    def may_be_clipped(self, name: str, least: float) -> bool:
        """Whether a calibration that clips might let the range of a tensor begin at `least` < 0. It leaves out outliers
        only, and so not most of what is below zero, as far as the inputs are known."""
        if (calibration := self.comparison.calibration) is None or not calibration.records:
            return calibration is None or calibration.clips
        numbers = [x[x < 0] for record in calibration.records if (x := record.get(name)) is not None]
        below = np.concatenate([np.zeros(0), *numbers])
        return bool(np.median(below) >= least) if below.size else calibration.clips

    def bound(self, name: str) -> Ball:
        """A bound of a Clip that is gone, which the artifact need not have."""
        given = self.numbers.balls.get(name) if name in self.model.inputs else None
        return exact(self.constants[name]) if name in self.constants else given or self.values.value(name)

    def is_clipped_later(self, node: Node) -> bool:
        """Whether a Relu has become part of each Clip that reads it: none of them passes on what is below zero."""
        readers = [pair for pair in self.pairs if node.outputs[0] in pair.node.inputs]
        bounds = [pair.operand(1) if pair.node.op == "Clip" else None for pair in readers]
        if node.op != "Relu" or node.outputs[0] in self.model.outputs or not readers or None in bounds:
            return False
        return all(self.numbers.real(bound).numbers.min(initial=0) >= 0 for bound in bounds if bound)

    def ends(self) -> None:
        """Whether each graph output of the artifact is the counterpart of the float model's."""
        for name in self.model.outputs:
            real, at = self.comparison.artifact.stands_for(name), self.values.at.get(name, "")
            if at == real or name not in self.model.producers:
                continue
            if name in self.constants and real not in self.comparison.artifact.constant:
                continue  # the artifact computes it, with roundings on the way
            try:
                wanted = self.values.output(name)
                inside = name in self.values.carried and real not in self.values.anchored
                found = self.values.unrounded(real) if inside else self.values.as_read(real)
                slack = sum(self.values.step_of(self.values.use(r)) for r in (at, real) if r)
            except Undecided:
                continue
            if name in self.constants:
                slack += FOLDING_ERROR * float(np.abs(wanted.numbers).max(initial=1.0))
            self.hold(Pair(self.model.producers[name], How.BY_NAME), name, wanted, found, slack)

    def passes(self, pair: Pair, name: str, found: Ball, slack: float) -> bool:
        """Whether a Relu or Clip passes on what it reads."""
        if pair.node.op not in CLIPPING:
            return False
        try:
            return not disagreement(pair, name, self.values.value(pair.node.inputs[0]), found, slack)
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
            self.problems.append(disagreement(replace(pair, how=How.ABSORBED), name, wanted, found, slack) or problem)
            return
        read, missing = set(pair.node.inputs), None
        for node in reversed(self.unmatched):
            if not read.isdisjoint(node.outputs):
                # Optimizers move and merge what only reshapes: that one of these is gone says little.
                missing = missing if missing and node.op in RESHAPING else node
                read.update(node.inputs)
        if missing:
            problem = blaming(missing, "could not be matched to the quantized graph, and is missed", problem)
        elif extra := self.stranger(pair):
            problem = blaming(extra, "is no operation of the float model", problem)
        self.problems.append(problem)

    def stranger(self, pair: Pair) -> Node | None:
        """What makes an operand of the counterpart, is nobody's counterpart, and not called like a node either."""
        uses = pair.piece.uses if pair.piece and pair.how is How.SAME else ()
        known, own = set(self.values.at.values()), {label(node) for node in self.model.nodes}
        makers = [self.values.makers.get(use.real) for use in uses if use and use.real not in known]
        matched = {id(piece) for p in self.pairs for piece in (p.piece, p.bias) if piece}
        others = [maker.node for maker in makers if maker and id(maker) not in matched]
        return next((node for node in others if label(node) not in own), None)
