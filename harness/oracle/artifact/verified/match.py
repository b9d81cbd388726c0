"""Find, for each node of the float model, what became of it in a quantized artifact.

Node by node in topological order. A piece of the artifact is a node's counterpart when it is the same operator on the
counterparts of its operands; where several are (parallel branches), names and then weights decide. What has none may be
found by the name of its result (several nodes were fused, or one split), or may have been absorbed by the node before
it: a Relu into a quantized range, an Identity by nothing, a BatchNormalization into weights. All else is unmatched: its
value is computed where it is needed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import AFFINE, WEIGHTED
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.format import Piece, Use
from driftnet.oracle.artifact.verified.names import attributes_of, content, first_result, named
from driftnet.oracle.artifact.verified.operators import CLIPPING, COMMUTATIVE, COPYING, MOVEMENT, RESHAPING
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, is_float
from driftnet.oracle.tolerances.table import NEGLIGIBLE


def match(model: Graph, constants: Mapping[str, np.ndarray], numbers: Numbers) -> Comparison:
    """The nodes of `model`, those that depend on its inputs, with what became of them in the artifact of `numbers`.

    constants  of the float model, those computed from constants included
    """
    matcher = _Matcher(model, constants, numbers)
    pairs = [matcher.pair(node) for node in model.nodes if not all(n in constants for n in node.outputs if n)]
    return Comparison(model, constants, numbers, tuple(pairs), matcher.at)


@dataclass
class _Matcher:
    model: Graph
    constants: Mapping[str, np.ndarray]
    numbers: Numbers
    at: dict[str, str] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    owner: dict[str, Piece] = field(default_factory=dict)
    twins: dict[tuple[object, ...], Pair] = field(default_factory=dict)
    guesses: set[str] = field(default_factory=set)
    """float tensors of which neither a name nor every operand says what they are in the artifact"""

    def __post_init__(self) -> None:
        artifact = self.numbers.artifact
        self.by_operator: dict[str, list[Piece]] = defaultdict(list)
        self.makers: dict[str, Piece] = {}
        self.names = set(artifact.graph.inputs) | set(artifact.real) | set(artifact.real.values())
        for piece in artifact.pieces:
            if not all(use is None or use.tensor in artifact.constant for use in piece.results):
                self.by_operator[piece.node.op].append(piece)
                self.makers.update((use.real, piece) for use in piece.results if use)
        self.names.update(self.makers)
        self.called = self.by_name()
        self.namesakes = {
            self.called[name]: node for node in self.model.nodes for name in node.outputs if name in self.called
        }
        self.at.update((name, artifact.stands_for(name)) for name in self.model.inputs)

    def by_name(self) -> dict[str, str]:
        """Float tensor -> the real tensor called like it. Exporters that number tensors give the same name to others:
        where what makes them differs too often, only the names of graph outputs say anything."""
        called = {}
        right = wrong = 0
        for node in self.model.nodes:
            for name in node.outputs:
                if name and (real := named(self.numbers.artifact, self.names, name)):
                    called[name] = real
                    maker = self.makers.get(real)
                    same = maker is None or maker.node.op == node.op or node.op in CLIPPING | AFFINE | COPYING
                    right, wrong = right + same, wrong + (not same)
        return called if right >= 2 * wrong else {name: called[name] for name in self.model.outputs if name in called}

    def pair(self, node: Node) -> Pair:
        pieces = self.by_operator[node.op]
        if node.op == "Gemm" and node.input(1) in self.constants and not node.attributes.get("transA", 0):
            pieces = [*pieces, *self.by_operator["MatMul"]]
        if node.op == "MatMul" and node.input(1) in self.constants:
            pieces = [*pieces, *filter(self.adds_a_row, self.by_operator["Gemm"])]
        fits = [(score, piece) for piece in pieces if (score := self.fit(node, piece)) is not None]
        if fits:
            _, piece = max(fits, key=lambda fit: fit[0])
            guessed, uses = self.is_guess(node, piece), self.aligned(node, piece)
            self.guesses.update(node.outputs if guessed else ())
            pair = self.with_bias(replace(self.claimed(node, piece), operands=uses or piece.uses, guessed=guessed))
            self.twins[self.form(node)] = pair
            return pair
        if twin := self.twins.get(self.form(node)):  # common subexpressions have become one
            others = zip(node.outputs, twin.node.outputs)
            self.at.update((name, self.at[other]) for name, other in others if other in self.at)
            return replace(twin, node=node)
        first = first_result(node)
        before = next((self.at[name] for name in node.inputs if name in self.at), "")
        real = self.called.get(first, "")
        if real and real != before:
            self.at[first] = real
            maker = self.makers.get(real)
            if maker and (bias := self.bias_behind(node, maker, before)):
                self.owner[real] = self.makers[before]
                return Pair(node, How.ABSORBED, self.makers[before], (bias,), bias=maker)
            if maker and maker.node.op == node.op and id(maker) not in self.taken:  # its operands are others
                self.taken.add(id(maker))
                return Pair(node, How.SAME, maker, maker.uses)
            return Pair(node, How.BY_NAME, maker)
        if not real and (other := self.miswired(node) or self.namesake(node)):
            return self.claimed(node, other)
        if before and self.absorbable(node, before):
            self.at[first] = before
            return Pair(node, How.ABSORBED, self.maker(before))
        return Pair(node, How.UNMATCHED)

    def claimed(self, node: Node, piece: Piece) -> Pair:
        """`piece` is the counterpart of `node`, and of no other."""
        self.taken.add(id(piece))
        self.at.update((name, use.real) for name, use in zip(node.outputs, piece.results) if name and use)
        return Pair(node, How.SAME, piece, piece.uses)

    def adds_a_row(self, piece: Piece) -> bool:
        """Whether a Gemm is a MatMul with something affine behind it, as optimizers write that."""
        given, bias = piece.node.attributes, piece.uses[2] if len(piece.uses) > 2 else None
        plain = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
        ball = self.numbers.balls.get(bias.tensor) if bias else None
        return all(given.get(k, x) == x for k, x in plain.items()) and isinstance(ball, Ball) and len(ball.shape) == 1

    def form(self, node: Node) -> tuple[object, ...]:
        """What nodes that compute the same have in common."""
        operands = [self.at.get(name) or content(self.constants.get(name), name) for name in node.inputs]
        return (node.op, *operands, *sorted(attributes_of(node).items()))

    def operands_of(self, piece: Piece) -> list[str]:
        """The real tensors that a piece reads, constants left out."""
        return [use.real for use in piece.uses if use and not self.is_constant(use)]

    def varying(self, node: Node) -> list[str]:
        """The operands of a node that are no constants."""
        return [name for name in node.inputs if name and name not in self.constants]

    def operands_at(self, node: Node) -> list[str]:
        """The real tensors that these are; "" where that is not known."""
        return [self.at.get(name, "") for name in self.varying(node)]

    def is_constant(self, use: Use) -> bool:
        return use.tensor in self.numbers.artifact.constant

    def constant_of(self, piece: Piece) -> Use | None:
        """The first constant that a piece reads."""
        return next((use for use in piece.uses if use and self.is_constant(use)), None)

    def is_guess(self, node: Node, piece: Piece) -> bool:
        """Whether an operand is unknown or a guess, what the piece reads is too, and no name tells of the result."""
        known = {name: real for name, real in self.at.items() if name not in self.guesses}
        if self.called.get(first_result(node), "") in piece.node.outputs or all(map(known.get, self.varying(node))):
            return False
        return not set(self.operands_of(piece)) <= set(known.values())

    def miswired(self, node: Node) -> Piece | None:
        """The same operator on other tensors of the float model, on which the float model has no such operator."""
        wanted, anchored = self.operands_at(node), set(self.at.values())
        for piece in self.by_operator[node.op]:
            reads = self.operands_of(piece)
            if id(piece) in self.taken or len(reads) != len(wanted) or len(reads) < 2 or not set(reads) <= anchored:
                continue
            others = [other for other in self.model.nodes if other.op == node.op and other is not node]
            if set(reads) & set(wanted) and not any(sorted(self.operands_at(o)) == sorted(reads) for o in others):
                return piece
        return None

    def namesake(self, node: Node) -> Piece | None:
        """The operation called like `node` that reads its operands behind one that nobody in the float model is."""
        wanted = self.operands_at(node)
        for piece in self.by_operator[node.op]:
            reads = self.operands_of(piece)
            called = bool(node.name) and piece.node.name.removesuffix("_quant") == node.name
            if not called or id(piece) in self.taken or len(reads) != len(wanted) or not all(wanted):
                continue
            if all(read == at or self.is_stranger(read, at) for read, at in zip(reads, wanted)):
                return piece
        return None

    def is_stranger(self, real: str, at: str) -> bool:
        """Whether `real` is computed of `at` by an operation that is no node's counterpart yet, nor moves data only."""
        maker = self.makers.get(real)
        return bool(
            maker and id(maker) not in self.taken and maker.node.op not in MOVEMENT and at in self.operands_of(maker)
        )

    def with_bias(self, pair: Pair) -> Pair:
        """The pair with the Add behind it, where the node has a bias that the piece has not."""
        made = pair.node.outputs[0]
        found = self.bias_added(pair.node, pair.operands, self.at.get(made, "")) if pair.piece else None
        if not pair.piece or not found:
            return pair
        piece, constant = found
        self.taken.add(id(piece))
        self.at[made] = piece.node.outputs[0]
        self.owner[piece.node.outputs[0]] = pair.piece
        return replace(pair, operands=(*pair.operands[:2], constant), bias=piece)

    def bias_added(self, node: Node, uses: Sequence[Use | None], made: str) -> tuple[Piece, Use] | None:
        """The Add behind what makes `made`, and what it adds, where the node has a bias that `uses` have not."""
        if node.op not in WEIGHTED or node.input(2) not in self.constants or uses[2]:
            return None
        added = [(piece, self.constant_of(piece)) for piece in self.by_operator["Add"] if made in piece.node.inputs]
        return next(((piece, use) for piece, use in added if use and self.same_size(node.inputs[2], use)), None)

    def bias_behind(self, node: Node, maker: Piece, before: str) -> Use | None:
        """What `maker` adds to a linear operation, where that is the bias that folding the affine `node` gave it."""
        added = maker.node.op == "Add" != node.op and before in maker.node.inputs and self.absorbable(node, before)
        return self.constant_of(maker) if added and node.op in AFFINE else None

    def maker(self, real: str) -> Piece | None:
        """The operation that makes a real tensor, its bias added."""
        return self.owner.get(real) or self.makers.get(real)

    def absorbable(self, node: Node, real: str) -> bool:
        """Whether a node may vanish behind what makes `real`: one that is affine, into constants that this reads."""
        maker = self.maker(real)
        if node.op not in AFFINE:
            perm = list(node.attributes.get("perm", ())) if node.op == "Transpose" else []
            return node.op in CLIPPING | COPYING or bool(perm and perm == sorted(perm))
        read = maker.uses[:2] if maker and maker.node.op in WEIGHTED else ()
        return any(use and self.is_constant(use) for use in read) and len(self.varying(node)) == 1

    def fit(self, node: Node, piece: Piece) -> float | None:
        """How well `piece` is the counterpart of `node`; None when it is not."""
        uses = None if id(piece) in self.taken else self.aligned(node, piece)
        if uses is None:
            return None
        results = [use.real for use in piece.results if use]
        if results and (behind := self.bias_added(node, uses, results[0])):
            results.append(behind[0].node.outputs[0])
        called = self.called.get(first_result(node), "")
        others = [self.namesakes[real] for real in results if called != real and real in self.namesakes]
        # Of affine operators that were folded together, a bias is left, called like the last of them.
        rivals = [other for other in others if other.op == node.op or {other.op, node.op} <= AFFINE]
        if any(self.form(other) != self.form(node) for other in rivals):
            return None
        same = attributes_of(node) == attributes_of(piece.node)
        score = 0.0 if not called else 4.0 if called in results else -4.0
        if called not in results:
            known = self.operands_at(node)
            if (known and not any(known)) or (node.op in RESHAPING and not self.same_form(node, piece, uses)):
                return None
            if node.op == "Shape" and not same:
                return None  # most are known before anything runs, and gone; what is taken apart has some of its own
        score += 1.0 * same
        held = [(name, use) for name, use in zip(node.inputs, uses) if use and name in self.constants]
        return score + sum(self.closeness(name, use) for name, use in held)

    def same_form(self, node: Node, piece: Piece, uses: Sequence[Use | None]) -> bool:
        """Whether the attributes that both give are equal, and constant shapes and axes are."""
        a, b, constants = attributes_of(node), attributes_of(piece.node), self.numbers.artifact.graph.constants
        held = [(self.constants[name], use) for name, use in zip(node.inputs, uses) if use and name in self.constants]
        whole = [(x, constants.get(use.tensor, np.zeros(0))) for x, use in held if x.dtype.kind in "iu"]
        return all(a[name] == b[name] for name in a.keys() & b.keys()) and all(np.array_equal(*both) for both in whole)

    def aligned(self, node: Node, piece: Piece) -> tuple[Use | None, ...] | None:
        """The uses of `piece` in the order of the operands of `node`; None when they cannot be the same."""
        orders: Sequence[Sequence[Use | None]] = [piece.uses]
        if node.op in COMMUTATIVE and len(piece.uses) == 2:
            orders = [piece.uses, piece.uses[::-1]]
        for uses in orders:
            padded = tuple(uses) + (None,) * (len(node.inputs) - len(uses))
            names = node.inputs + ("",) * (len(padded) - len(node.inputs))
            if all(self.agrees(name, use) for name, use in zip(names, padded)):
                return padded
        return None

    def agrees(self, name: str, use: Use | None) -> bool:
        constant = use is not None and self.is_constant(use)
        if not name or name in self.constants:
            return use is None or (constant and (not name or self.same_size(name, use)))
        return use is not None and not constant and self.at.get(name, use.real) == use.real

    def same_size(self, name: str, use: Use) -> bool:
        """Whether two float constants have as many elements."""
        ball, own = self.numbers.balls.get(use.tensor), self.constants[name]
        if not is_float(own.dtype) or ball is None:
            return True
        packed = use.format.packed if use.format else None
        return bool(own.size == (packed[1] * packed[2] if packed else ball.midpoint.size))

    def closeness(self, name: str, use: Use) -> float:
        """Between 0 and 1 for a constant, 1 where the values are the same."""
        wanted = self.constants[name]
        try:
            found = self.numbers.real(use)
        except Undecided:
            return 0.0
        if found.shape != wanted.shape or wanted.dtype.kind not in "fiu":
            return 0.0
        finite = np.isfinite(found.numbers) & np.isfinite(wanted)  # a mask of attention holds -inf
        error = float(np.abs(found.numbers[finite] - wanted[finite]).sum())
        return 1.0 / (1.0 + error / (float(np.abs(wanted[finite]).sum(dtype=np.float64)) + NEGLIGIBLE))
