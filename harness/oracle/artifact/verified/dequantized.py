"""The real numbers that tensors of a quantized model stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.artifact.verified.format import Artifact, Format, Use
from driftnet.oracle.artifact.verified.names import spellings
from driftnet.oracle.artifact.verified.operators import MOVEMENT, QUANTIZE
from driftnet.oracle.ball_arithmetic.ball import (
    FLOAT,
    NARROW,
    Ball,
    Undecided,
    exact,
    format_of,
    is_float,
    moved,
    value,
    widened,
)
from driftnet.oracle.ball_arithmetic.contrib import unpacked_weights
from driftnet.oracle.ball_arithmetic.evaluate import UNFORESEEN
from driftnet.oracle.ball_arithmetic.quantized import along, code_range
from driftnet.oracle.ball_arithmetic.rules import RULES, Context


@dataclass(frozen=True)
class Numbers:
    """What the tensors of `artifact` are under one feed; balls are those of its evaluation."""

    artifact: Artifact
    balls: Mapping[str, Any]

    def real(self, use: Use) -> Ball:
        """The real numbers that a tensor stands for. Raises Undecided where they are not known."""
        if not use.integer or use.format is None:
            return self.ball(use.tensor)
        codes, zero, step = self.coded(use.tensor, use.format)
        with np.errstate(invalid="ignore"):  # an infinite scale is a problem of its own
            whole = widened((codes.numbers - zero) * step, codes.error * step, FLOAT)
        return moved(whole, _flip) if use.format.flipped else whole

    def coded(self, tensor: str, format: Format) -> tuple[Ball, np.ndarray, np.ndarray]:
        """(codes, zero points, scales) of a tensor of integers, which broadcast."""
        ball = self.ball(tensor)
        if not format.packed:
            return ball, self.zero_point(format, ball.shape), _spread(self.scale(format), format, ball.shape)
        bits, rows, columns = format.packed
        zero = value(self.ball(format.zero_point)) if format.zero_point else None
        held = value(ball), value(self.ball(format.scale)), zero
        codes, origin, scale = unpacked_weights(*held, (columns, rows), bits, format.block)
        return exact(codes.T), origin.T, scale.T

    def ball(self, tensor: str) -> Ball:
        """The ball of a tensor. Raises Undecided where there is none."""
        found = self.balls.get(tensor)
        if not isinstance(found, Ball):
            raise Undecided(f"tensor {tensor!r} has no answer")
        return found

    def scale(self, format: Format) -> np.ndarray:
        """The scales of a format in float64, as they are stored; of one computed from data, the likeliest. Raises
        Undecided where that may be anything."""
        if format.unit:
            a, b = (self.ball(name).numbers for name in format.unit)
            return format.factor * np.asarray(a.ravel() * b.ravel() if a.size > 1 and b.size > 1 else a * b)
        ball = self.ball(format.scale)
        if (np.isinf(ball.error) & np.isfinite(ball.numbers)).any():
            raise Undecided(f"scale {format.scale!r} is computed of what is not known")
        return ball.numbers

    def zero_point(self, format: Format, shape: tuple[int, ...]) -> np.ndarray:
        """The zero points, in a shape that broadcasts to that of the integers."""
        if not format.zero_point:
            return np.zeros(())
        return _spread(self.ball(format.zero_point).numbers, format, shape)

    def limits(self, format: Format) -> tuple[float, float]:
        """The ends of a range, of one scale for the whole tensor."""
        dtype = self.ball(format.zero_point).dtype if format.zero_point else np.dtype(np.uint8)
        scale, zero = self.scale(format), self.zero_point(format, (1,))
        if scale.size != 1:
            raise Undecided("a range for each channel")
        low, high = code_range(dtype)
        with np.errstate(invalid="ignore"):  # a scale may be infinite
            return float(np.ravel((low - zero) * scale)[0]), float(np.ravel((high - zero) * scale)[0])

    def step(self, tensor: str) -> np.ndarray | None:
        """The distance of neighbouring values for each element of a constant, summed where it is rounded several times;
        None where it is no quantized one."""
        format = self.artifact.formats.get(tensor)
        if format:
            written = self.artifact.codes_of(tensor)
            codes, _, scale = self.coded(written, format)
            steps = _spacing(codes, format) * np.abs(scale)
            maker = self.artifact.graph.producers.get(written)
            if maker and maker.op in QUANTIZE and (before := self.step(maker.inputs[0])) is not None:
                steps = steps + before  # what an optimizer rounded, and the quantizer again
            return _flip(steps) if format.flipped else steps
        node = self.artifact.graph.producers.get(tensor)
        if node is None or node.op not in MOVEMENT or node.op == "MaxPool":
            return None
        step = self.step(node.input(0))
        if step is None:
            return None
        rest = [self.ball(name) if name else None for name in node.inputs[1:]]
        return np.asarray(apply(node, [exact(step.astype(np.float64)), *rest], self.artifact.graph.opset)[0].numbers)

    def stored(self, name: str, wanted: np.ndarray) -> tuple[str, np.ndarray, np.ndarray] | None:
        """The constant called like `name`: (tensor, its values, its steps) in the shape of `wanted`, transposed if that
        is nearer. None when there is none; steps are 0 for a float."""
        for tensor in spellings(name):
            found = self.constants.get(tensor)
            if found is None or found.ndim != wanted.ndim:
                continue
            step = self.step(tensor)
            side = (found, np.zeros(found.shape) if step is None else step)
            sides = [side, (_flip(side[0]), _flip(side[1]))] if found.ndim > 1 else [side]
            if fitting := [side for side in sides if side[0].shape == wanted.shape]:
                return (tensor, *min(fitting, key=lambda side: float(np.abs(side[0] - wanted).sum())))
        return None

    @cached_property
    def constants(self) -> Mapping[str, np.ndarray]:
        """Constants of the artifact that are floats, by name, as what they stand for; quantized ones among them."""
        found = {}
        for piece in self.artifact.pieces:
            for use in piece.uses:
                if use and use.tensor in self.artifact.constant and use.tensor not in found:
                    found[use.tensor] = self.real(use).midpoint
        return found


def _spacing(codes: Ball, format: Format) -> np.ndarray:
    """How far apart neighbouring codes are: twice as far at the ends of blocks of few bits, whose scale may be that of
    the largest element with its sign, so that as large an opposite one has no code; and at the highest of signed codes
    where the lowest one stands for the largest element."""
    if is_float(codes.dtype) and not format.packed:
        own = format_of(codes.dtype)
        _, exponent = np.frexp(codes.numbers)
        return np.asarray(np.maximum(np.ldexp(own.unit, exponent), own.tiny))
    low, high = (0, 2 ** format.packed[0] - 1) if format.packed else code_range(codes.dtype)
    blocks = format.packed or (format.block and codes.dtype in NARROW)
    signed = low < 0 and (codes.numbers == low).any()
    return np.where(np.isin(codes.numbers, [low, high] if blocks else [high] if signed else []), 2.0, 1.0)


def _flip(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)


def _spread(values: np.ndarray, format: Format, shape: Sequence[int]) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to that of the integers, [] to [1, C, 1, 1] or blocks."""
    if values.size > 1 and values.ndim > 1 and not format.block:
        return values[:, None, :] if len(shape) == 3 else values  # [directions, rows] of recurrent weights
    return along(exact(values), tuple(shape), format.axis, format.block if values.size > 1 else 0).midpoint


def apply(node: Node, operands: list[Ball | None], opset: int) -> list[Any]:
    """What `node` makes of `operands`. Raises Undecided where that is not known; subgraphs are not entered."""
    rule = RULES.get(node.op)
    if rule is None:
        raise Undecided(f"{node.op} has no rule")
    try:
        with np.errstate(all="ignore"):
            results = list(rule(node, operands, Context(opset, False, _no_subgraph)))
    except UNFORESEEN as e:  # the operands that the artifact has there do not fit the float model's node
        raise Undecided(f"{node.op}: {e}") from None
    if not results or not isinstance(results[0], Ball):
        raise Undecided(f"{node.op} has no answer")
    return results


def _no_subgraph(proto: Any, operands: Any) -> Any:
    raise Undecided("subgraphs are not entered")
