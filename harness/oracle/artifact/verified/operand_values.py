"""Operand values: what the nodes of the float model read, were they in the places of their counterparts in an artifact.

A real tensor may be read rounded by some and as it is by others, and what an optimizer has fused stands nowhere: it is
computed from what does, without the roundings in between.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair
from driftnet.oracle.artifact.verified.dequantized import apply
from driftnet.oracle.artifact.verified.format import Use
from driftnet.oracle.artifact.verified.names import spellings
from driftnet.oracle.artifact.verified.operators import OPAQUE
from driftnet.oracle.ball_arithmetic.ball import Ball, Undecided, exact, hull, is_float, moved, undecided_where
from driftnet.oracle.tolerances.table import FOLDING_ERROR, MOVED_BOUND


@dataclass
class OperandValues:
    """What is known of the tensors of both, as far as a walk along the float model has come.

    anchored   counterparts of what comes before the node that is judged: an optimizer may compute these of later ones
    carried    what the float model makes, where the artifact has no counterpart
    at         float tensor -> the real tensor that it is, of those not carried
    unfused    whether the node that is judged was taken apart
    """

    comparison: Comparison
    anchored: set[str]
    carried: dict[str, Any] = field(default_factory=dict)
    unfused: bool = False

    def __post_init__(self) -> None:
        self.at, self.constants = dict(self.comparison.at), self.comparison.constants
        self.numbers, self.artifact = self.comparison.numbers, self.comparison.artifact
        pieces, constant = self.artifact.pieces, self.artifact.constant
        self.makers = {use.real: piece for piece in pieces for use in piece.results if use}
        self.lifted: dict[str, Any] = {}
        self.uses: dict[str, list[Use]] = {}
        read = [use for piece in pieces for use in piece.uses if use and use.tensor not in constant]
        for use in (*read, *map(self.artifact.use, self.artifact.graph.outputs)):
            self.uses.setdefault(use.real, []).append(use)

    def value(self, name: str, use: Use | None = None, how: How = How.BY_NAME) -> Ball:
        """A tensor of the float model, as the artifact has it at `use`, if it has."""
        if name in self.constants:
            lost = how is How.SAME and use is None
            return exact(self.constants[name]) if lost else self.constant(name, use)
        if name in self.at:
            real = self.at[name]
            return self.numbers.real(use) if use and use.real == real else self.as_read(real, use)
        ball = self.carried.get(name)
        if not isinstance(ball, Ball):
            raise Undecided(f"{name!r} has no value")
        return ball

    def constant(self, name: str, use: Use | None) -> Ball:
        """A constant of the float model as the artifact has it: at the same place, or under the same name."""
        own = self.constants[name]
        if not is_float(own.dtype):
            return exact(own)
        if use is not None and use.tensor in self.artifact.constant:
            return self.numbers.real(use)
        found = self.numbers.stored(name, own)
        stored = [x for tensor in spellings(name) if (x := self.numbers.constants.get(tensor)) is not None]
        if any(not np.array_equal(x, stored[0]) for x in stored):
            raise Undecided(f"some read {name!r} rounded, and others not")
        if found is not None:
            return replace(exact(own), midpoint=found[1])
        if own.size in self.unclaimed:
            raise Undecided(f"what became of {name!r} is not known")
        return exact(own)

    def output(self, name: str) -> Ball:
        """What the float model has for a graph output: where the artifact gives a constant as it was made, that one,
        whatever others read of it."""
        as_made = name in self.constants and self.artifact.use(name).format is None
        return exact(self.constants[name]) if as_made else self.value(name)

    def operands(self, pair: Pair) -> list[Ball | None]:
        """What the float node reads, were it in the place of its counterpart."""
        names = enumerate(pair.node.inputs)
        operands = [self.value(name, pair.operand(k), pair.how) if name else None for k, name in names]
        if pair.transposed and operands[1] is not None:
            operands[1] = moved(operands[1], np.transpose)
        if pair.bias and operands[2] is not None:
            shape = self.constants[pair.node.inputs[2]].shape
            operands[2] = moved(operands[2], lambda x: x.reshape(shape))
        return operands

    def as_read(self, real: str, like: Use | None = None) -> Ball:
        """A real tensor as its readers find it; where some read it rounded and others do not, what lies between."""
        kinds = self.kinds(real, like)
        if any(map(self.is_inside, kinds)):
            return self.unrounded(real)
        return hull([self.numbers.real(use) for use in kinds])

    def use(self, real: str) -> Use:
        """A real tensor as its readers find it. Raises Undecided where some read it rounded and others do not."""
        first, *others = self.kinds(real)
        if others:
            raise Undecided(f"some read {real!r} rounded, and others not")
        return first

    def kinds(self, real: str, like: Use | None = None) -> list[Use]:
        """A use of a real tensor that is rounded, and one that is not, where there are both; only that of the kind of
        `like` if there is one: as it is made, where that is not rounded and all others are."""
        made = self.artifact.use(real)
        uses = self.uses.get(real) or [made]
        if like:
            alike = [use for use in uses if (use.format is None) == (like.format is None)]
            uses = alike or ([made] if like.format is None and not made.integer else uses)
        return list({use.format is None: use for use in reversed(uses)}.values())

    def is_inside(self, use: Use) -> bool:
        """Whether a tensor stands only inside an operator that an optimizer has fused."""
        return use.tensor not in self.numbers.balls and use.real in self.makers

    def unrounded(self, real: str) -> Ball:
        """A real tensor as the artifact makes it of those that have counterparts, without roundings in between."""
        if real not in self.lifted:
            piece = self.makers.get(real)
            if piece is None or piece.node.op in OPAQUE:
                raise Undecided(f"{real!r} is made of integers inside an operator")
            operands = [self.of_unfused(use) if use else None for use in piece.uses]
            results = apply(piece.node, operands, self.artifact.graph.opset)
            self.lifted.update((use.real, ball) for use, ball in zip(piece.results, results) if use)
        ball = self.lifted.get(real)
        if not isinstance(ball, Ball):
            raise Undecided(f"{real!r} has no value")
        return ball

    def of_piece(self, use: Use) -> Ball:
        """What a piece reads: the artifact's value where that has a counterpart, or none has made it."""
        known = use.real in self.anchored or use.real in self.shared
        if use.real not in self.makers or (known and not self.is_inside(use)):
            return self.numbers.real(use)
        ball = self.unrounded(use.real)
        if use.format:
            low, high = self.numbers.limits(use.format)
            slack = MOVED_BOUND * self.step_of(use)
            # The float model has no such tensor to clip: nothing is known of what depends on these elements.
            ball = undecided_where((ball.low < low - slack) | (ball.high > high + slack), ball)
        return ball

    def of_unfused(self, use: Use) -> Ball:
        """What a piece inside the counterpart of a float node reads: of the tensors that this node reads, what it does.
        Where it was taken apart, and some pieces read them rounded and others not, all are given them as they are."""
        if use.real not in self.anchored or use.tensor in self.artifact.constant or self.is_inside(use):
            return self.of_piece(use)
        kinds = self.kinds(use.real, None if self.unfused else use)
        return self.numbers.real(min(kinds, key=lambda kind: kind.format is not None))

    def of_constant(self, real: str) -> float:
        """How far off a result may be that the artifact holds as a constant: half a step, and what folding may cost."""
        if real not in self.artifact.constant:
            return 0.0
        use = self.use(real)
        return self.step_of(use) + FOLDING_ERROR * float(np.abs(self.numbers.real(use).numbers).max(initial=1.0))

    def step_of(self, use: Use) -> float:
        """The quantization step of a tensor; 0 where it has none."""
        return float(self.numbers.scale(use.format).max()) if use.format else 0.0

    @cached_property
    def claimed(self) -> set[str]:
        """The tensors of the artifact that are operands of a counterpart, or have the name of a constant."""
        operands = {use.tensor for pair in self.comparison.pairs for use in pair.operands if use}
        return operands | {tensor for name in self.constants for tensor in spellings(name)}

    @cached_property
    def shared(self) -> set[str]:
        """The constants that the float model has too, as they were rounded."""
        return {self.artifact.stands_for(tensor) for tensor in self.claimed & self.artifact.constant}

    @cached_property
    def unclaimed(self) -> set[int]:
        """Sizes of the quantized constants of the artifact that are nobody's counterpart."""
        quantized = self.numbers.constants.keys() & self.artifact.formats.keys()
        return {self.numbers.constants[tensor].size for tensor in quantized - self.claimed}
