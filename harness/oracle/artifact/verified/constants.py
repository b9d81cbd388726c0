"""D3, constants: is each weight, bias and operand of the artifact within half a step of the float model's?

    weights   |deq(Wq) - W| <= s/2 (1 + 2e-4), and the extreme code is used (code_usage.py)
    bias      the same with s = s_x s_w, and its scale is that product: a stale one is right until kernels fuse

Where affine operators were folded into weights, W is the folded one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from driftnet.model.graph import Node
from driftnet.model.operators import AFFINE, RECURRENT, WEIGHTED
from driftnet.oracle.artifact.verified.comparison import Comparison, How, Pair, Problem, label, problem_of
from driftnet.oracle.artifact.verified.format import Format, Use
from driftnet.oracle.artifact.verified.messages import at, channels_told, distance_told
from driftnet.oracle.artifact.verified.names import first_result
from driftnet.oracle.artifact.verified.operators import BROADCASTING, is_only_measured
from driftnet.oracle.ball_arithmetic.ball import Undecided, format_of, is_float
from driftnet.oracle.scheme.folding import fold
from driftnet.oracle.tolerances.table import (
    CLIPPED,
    ONE_STEP,
    PARAMETER_FLOAT_ERROR,
    PARAMETER_HALF_STEP,
    SAME_FACTOR,
    SCALE_ERROR,
    UNDERFLOW,
)

CODES = 255
WIDE = 2.0**30
"""a code of a bias that is near the end of int32"""


@dataclass(frozen=True)
class Held:
    """A constant as the artifact has it, as it should be, and how far apart its codes are: arrays of one shape.

    name   in the float model;   node   that reads it there;   use   of the artifact
    error  what dtypes make of a value, as a share of it
    """

    name: str
    node: Node
    use: Use
    found: np.ndarray
    wanted: np.ndarray
    steps: np.ndarray
    error: float

    @property
    def bound(self) -> np.ndarray:
        """By how much its elements may be off."""
        size = np.where(np.isfinite(self.wanted), np.abs(self.wanted), 0)
        return np.asarray(PARAMETER_HALF_STEP * self.steps + self.error * size + UNDERFLOW)

    @property
    def factor(self) -> float:
        """By what all elements are multiplied, as far as their codes can say; 0 where by no one factor."""
        return self.factor_within(PARAMETER_HALF_STEP)

    def factor_within(self, most: float) -> float:
        """The same, where each element may be off by `most` steps besides. That one element is further off than that
        says nothing of the others, which are too small to tell: its code may be wrong."""
        found, wanted, steps = self.found.astype(np.float64).ravel(), self.wanted.ravel(), self.steps.ravel()
        size, both = float(wanted @ wanted), np.isfinite(found).all() and np.isfinite(wanted).all()
        if not both or not size or np.count_nonzero(np.abs(found - wanted) > most * steps) < 2:
            return 0.0
        factor = float(found @ wanted) / size
        off = np.abs(found - factor * wanted)
        near = off <= max(1.0, factor) * most * steps + SCALE_ERROR * np.abs(found)
        return factor if factor > 0 and abs(factor - 1) > SAME_FACTOR and near.all() else 0.0

    @property
    def offset(self) -> int:
        """By how many codes all elements are off; 0 where by no one number."""
        with np.errstate(divide="ignore", invalid="ignore"):
            codes = (self.found - self.wanted) / self.steps
        if codes.size < 2 or not np.isfinite(codes).all():
            return 0
        offset = np.rint(np.median(codes))
        return int(offset) if (np.abs(codes - offset) <= PARAMETER_HALF_STEP + SCALE_ERROR * abs(offset)).all() else 0

    def channels_are_scaled(self, wrong: np.ndarray) -> bool:
        """Whether all that is `wrong` fills channels, each of which is off by a factor of its own: of so few elements
        that is known to a step at best."""
        for axis in range(wrong.ndim):
            apart = [np.moveaxis(x, axis, 0) for x in (self.found, self.wanted, self.steps, wrong)]
            found, wanted, steps, off = (x.reshape(len(x), -1) for x in apart)
            rows = (row[:3] for row in zip(found, wanted, steps, off) if row[3].any())
            channels = (replace(self, found=f, wanted=w, steps=s) for f, w, s in rows)
            one_step_each = len(found) > 1 and np.allclose(steps, steps[:, :1], rtol=SAME_FACTOR)
            if one_step_each and all(channel.factor_within(ONE_STEP) for channel in channels):
                return True
        return False


@dataclass
class Constants:
    """The constants of one comparison, judged.

    held      those of counterparts, by use and name
    sharp     those that are right, and have scales that come from their own range
    problems  of the others
    factors   by first result of the node: by what all weights of it are multiplied, as a wrong scale does
    made_by   of what is wrong, the scale or zero point that makes it so, where its elements say that
    """

    comparison: Comparison
    held: dict[tuple[Use, str], Held] = field(default_factory=dict)
    sharp: list[Held] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    factors: dict[str, float] = field(default_factory=dict)
    made_by: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        c = self.comparison
        self.model, self.constants, self.numbers, self.artifact = c.model, c.constants, c.numbers, c.artifact
        self.clips = c.calibration is not None and c.calibration.clips
        self.moves_biases = c.calibration is not None and c.calibration.moves_biases
        self.rounded = {rounding.tensor for rounding in self.artifact.roundings}
        self.of_counterparts()
        self.by_name()

    def add(self, node: Node, where: str, error: float, bound: float, message: str, **about: Any) -> None:
        self.problems.append(replace(problem_of(node, "parameter", error, bound, message, where=where), **about))

    def of_counterparts(self) -> None:
        """Judge the operands of each counterpart."""
        pairs = self.comparison.pairs
        biases = {id(pair.piece): pair for pair in pairs if pair.how is How.ABSORBED and pair.bias}
        seen: set[tuple[Use, str, bool]] = set()
        for pair in pairs:
            if pair.how is not How.SAME or pair.piece is None:
                continue
            if (made := biases.get(id(pair.piece))) and not any(pair.operands[2:]):
                pair = replace(pair, operands=(*pair.operands[:2], *made.operands), bias=made.bias)
            folded = self.comparison.folded.get(id(pair.piece), [])
            for k, wanted in self.wanted(pair, folded).items():
                use = pair.operand(k)
                if folded and k == 2 and use is None:
                    self.lost_bias(folded, wanted)
                if use is None or (use, pair.node.input(k), pair.transposed) in seen:
                    continue
                seen.add((use, pair.node.input(k), pair.transposed))
                try:
                    held = self.constant(pair, k, use, wanted)
                    if held and self.is_right(held) and self.takes_all_codes(pair, k, use):
                        self.sharp.append(held)
                except Undecided:
                    continue

    def wanted(self, pair: Pair, foldings: Sequence[Node]) -> dict[int, np.ndarray]:
        """Position -> value that the artifact should have there, for the float constants of a node."""
        own = {k: self.constants[name] for k, name in enumerate(pair.node.inputs) if name in self.constants}
        operands = {k: x for k, x in own.items() if is_float(x.dtype)}
        if pair.node.op == "Gemm" and pair.piece:
            for position, name in ((1, "alpha"), (2, "beta")):  # either may have been multiplied into its operand
                ours, theirs = (node.attributes.get(name, 1.0) for node in (pair.node, pair.piece.node))
                if position in operands and ours != theirs:
                    operands[position] = operands[position] * (ours / (theirs or 1.0))
        return fold(pair.node, operands, foldings, self.constants) if foldings else operands

    def constant(self, pair: Pair, position: int, use: Use, wanted: np.ndarray) -> Held | None:
        """The constant in the place of an operand; None where it is wrong by its form or its scale, or another one."""
        if self.is_moved(pair.node, position):
            return None
        node, real, step = pair.node, self.numbers.real(use), self.numbers.step(use.tensor)
        found = real.numbers
        steps = np.zeros(found.shape) if step is None else step
        if real.radius is not None:  # computed from constants, with roundings that may go either way
            steps = steps + 2 * real.radius
        if pair.transposed and position == 1:
            found, steps = found.T, steps.T
        if pair.bias is not None and position == 2 and found.size == wanted.size:
            found = found.reshape(wanted.shape)
        if node.op in BROADCASTING and found.size == wanted.size:
            if not self.is_broadcast_alike(node, use, found, wanted):
                return None
            found = found.reshape(wanted.shape)
        if found.shape != wanted.shape or (position == 2 and use.format and not self.bias_scale(pair, use.format, use)):
            return None
        made_by = self.model.producers.get(node.inputs[0])
        # Below zero a Relu leaves nothing to clip.
        if node.op == "Clip" and made_by and made_by.op == "Relu":
            found, wanted = np.maximum(found, 0), np.maximum(wanted, 0)
        if use.format and self.is_calibrated(use) and (self.clips or self.is_cut_a_little(use.format, wanted)):
            # Half precision may not reach as far as the range.
            within = np.clip(wanted.astype(np.float64), *self.numbers.limits(use.format))
            wanted = within.astype(wanted.dtype).reshape(found.shape)
        if self.is_erased(node, use, found, wanted):
            steps = np.zeros(found.shape)
        name, error = node.input(position) or use.tensor, self.float_error(use.tensor)
        if name not in self.model.constants or wanted is not self.constants[name]:  # computed: terms may have cancelled
            error = max(error, 2 * max(self.units(node), format_of(wanted.dtype).unit))
            steps = steps + 4 * error * np.abs(wanted).max(initial=0.0)
        held = Held(name, node, use, found, wanted.astype(np.float64), steps.reshape(found.shape), error)
        self.held[use, name] = held
        return held

    def by_name(self) -> None:
        """Judge constants of nodes without counterpart that are stored under their names."""
        for pair in self.comparison.pairs:
            if pair.how is How.SAME or (pair.how is How.ABSORBED and pair.node.op in AFFINE):
                continue
            for k, name in enumerate(pair.node.inputs):
                wanted = self.constants.get(name)
                if wanted is None or not is_float(wanted.dtype) or self.is_moved(pair.node, k):
                    continue
                try:
                    if stored := self.numbers.stored(name, wanted):
                        tensor, found, steps = stored
                        error = self.float_error(tensor)
                        if name not in self.model.constants:
                            steps = steps + 4 * error * np.abs(wanted).max(initial=0.0)
                        exactly = wanted.astype(np.float64)
                        held = Held(name, pair.node, self.artifact.use(tensor), found, exactly, steps, error)
                        if self.is_right(held) and k == 1 and pair.node.op in WEIGHTED:
                            self.sharp.append(held)
                except Undecided:
                    continue

    def is_moved(self, node: Node, position: int) -> bool:
        """Whether the operand there is a bias, and biases are other ones than the model's on purpose."""
        if node.op == "Add" and len(node.inputs) == 2:
            node, position = self.model.producers.get(node.inputs[1 - position], node), 2
            return self.moves_biases and node.op == "MatMul" and node.inputs[1] in self.constants
        return self.moves_biases and position == 2 and node.op in WEIGHTED

    def is_right(self, held: Held) -> bool:
        """Judge the elements of a constant."""
        found, wanted, bound = held.found, held.wanted, held.bound
        same, finite = (found == wanted) | (np.isnan(found) & np.isnan(wanted)), np.isfinite(wanted)
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0, np.where(finite & np.isfinite(found), np.abs(found - wanted), np.inf))
            wrong, excess = ~(error <= bound), error / bound
        if not wrong.any():
            return True
        where = np.unravel_index(int(np.argmax(np.where(wrong, excess, 0))), wrong.shape)
        distance = distance_told(error[where], held.steps[where])
        message = (
            f"{held.name!r} of {held.node.op} holds {found[where]:.6g}{at(where)}, the float model {wanted[where]:.6g}"
            f": {distance}; {int(wrong.sum())} of {wrong.size} elements{channels_told(wrong)}"
        )
        codes, format = self.artifact.codes_of(held.use.tensor), held.use.format or Format("")
        place, factor = held.name, held.factor
        of_weights = held.node.op in WEIGHTED and held.name == held.node.input(1)
        if of_weights and format.zero_point and (offset := held.offset):
            self.made_by[held.name] = format.zero_point
            message += f"; all are {offset:+d} codes off, as {format.zero_point!r} makes them"
        elif of_weights and not factor and format.scale and held.channels_are_scaled(wrong):
            self.made_by[held.name] = format.scale
            message += f"; each channel by a factor of its own, as {format.scale!r} makes them"
        elif factor and of_weights:
            self.factors[first_result(held.node)] = factor
            message += f": all are {factor:.4g} times that, as its scale {format.scale!r} makes them"
        elif factor and held.node.op in WEIGHTED and format.unit:  # of a bias
            by_weights = self.factors.get(first_result(held.node), 1.0)
            if np.isclose(factor, by_weights, rtol=SAME_FACTOR):
                return False  # the scale of the weights is told of already
            place, weights = format.unit
            message = (
                f"{held.name!r} of {held.node.op} is {factor:.4g} times the float model's, all of it: its scale is "
                f"that of the input, {place!r}, by that of the weights, {weights!r}, and the weights are "
                f"{'right' if by_weights == 1 else 'wrong too'}"
            )
        about = ("stored", held.name, codes, format.zero_point, str(format.axis), *(format.unit or (format.scale,)))
        own = self.model.constants.get(held.name)  # not one that is computed, or into which something was folded
        rounded = held.use.format and held.node.op in BROADCASTING  # an epsilon, say; of weights all is told
        stored = found if rounded and own is not None and np.array_equal(own, wanted, equal_nan=True) else None
        element = tuple(map(int, where))
        self.add(held.node, place, error[where], bound[where], message, at=element, about=about, stored=stored)
        return False

    def units(self, node: Node) -> float:
        """The coarsest unit of the dtypes of the node's constants: what is folded into it may be computed in that."""
        own = [self.constants[name].dtype for name in node.inputs if name in self.constants]
        return max((format_of(dtype).unit for dtype in own if is_float(dtype)), default=0.0)

    def is_erased(self, node: Node, use: Use, found: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether an operand with a scale of its own holds nothing but zeros, of which quantizers take the scale to be
        1, where it has values of which the scale would be a normal number."""
        if node.op not in BROADCASTING or use.format is None or found.any():
            return False
        dtype = self.numbers.ball(use.format.scale).dtype
        return dtype.kind == "f" and bool((np.abs(wanted) > 2 * CODES * np.finfo(dtype).tiny).any())

    def lost_bias(self, foldings: Sequence[Node], wanted: np.ndarray) -> None:
        """Judge affine operators that have become part of one without a bias."""
        node = foldings[-1]
        if is_only_measured(self.model, node):
            return
        terms = [self.constants[name] for folded in foldings for name in folded.inputs if name in self.constants]
        largest = max(float(np.abs(x).max(initial=0.0)) for x in terms)
        error = float(np.abs(wanted).max(initial=0.0))
        if error > 8 * PARAMETER_FLOAT_ERROR * largest:
            message = f"{node.op} {label(node)!r} is gone, and what it adds, up to {error:.6g}, too"
            self.add(node, label(node), error, 0.0, message)

    def is_broadcast_alike(self, node: Node, use: Use, found: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether the operand of an elementwise operator extends along the same axes."""
        if _extent(found) == _extent(wanted):
            return True
        shapes = f"{list(found.shape)}, in the float model {list(wanted.shape)}"
        message = f"{use.tensor!r} of {node.op} has shape {shapes}: it is broadcast along other axes"
        self.add(node, use.tensor, np.inf, 0.0, message)
        return False

    def float_error(self, tensor: str) -> float:
        """What the dtypes of a constant and of its scale make of a value, as a share of it."""
        format = self.artifact.formats.get(tensor)
        names = [tensor, format.scale] if format and format.scale else [tensor]
        dtypes = [self.numbers.ball(name).dtype for name in names]
        return max(PARAMETER_FLOAT_ERROR, *(2 * format_of(dtype).unit for dtype in dtypes if is_float(dtype)), 0.0)

    def bias_scale(self, pair: Pair, format: Format, use: Use) -> bool:
        """Whether an int32 bias has the scale that kernels assume, that of the product."""
        integers = self.numbers.ball(self.artifact.codes_of(use.tensor))
        x, w = (operand.format if operand else None for operand in pair.operands[:2])
        if pair.node.op not in WEIGHTED or format.unit or integers.dtype != np.int32 or x is None or w is None:
            return True
        scale = self.numbers.scale(format).ravel()
        product = (self.numbers.scale(x) * self.numbers.scale(w)).ravel()
        close = 4 * format_of(self.numbers.ball(format.scale).dtype).unit + SCALE_ERROR
        factors = {1.0} | {float(pair.node.attributes.get(name, 1.0)) for name in ("alpha", "beta")}
        for factor in factors if len(scale) == len(product) else [1.0]:
            if np.allclose(scale, product * factor, rtol=close, atol=0):
                return True
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(np.resize(scale, product.shape) / product)
            worst = float(np.maximum(ratio, 1 / ratio).max())
        by_weights = self.factors.get(pair.first, 0.0)
        if by_weights and np.allclose(ratio * by_weights, 1, rtol=SAME_FACTOR):
            return False  # the scale of the weights is told of already
        message = (
            f"scale {format.scale!r} of the bias is off the product of the scales of input, {x.scale!r}, and weights, "
            f"{w.scale!r}, by a factor of up to {worst:.6g}: one of the three is wrong, and kernels take the bias's "
            "for that product"
        )
        self.add(pair.node, format.scale, worst - 1, close, message, about=("product", format.scale, x.scale, w.scale))
        return False

    def takes_all_codes(self, pair: Pair, position: int, use: Use) -> bool:
        """Whether the scale of a constant comes from its own range, be it weights or what is added or multiplied."""
        if pair.node.op in WEIGHTED:
            return position == 1 and not self.is_bias_wide(pair)
        if pair.node.op in RECURRENT:
            return position in (1, 2)
        stated = pair.node.input(position) in self.model.constants  # what is computed may be computed otherwise
        return pair.node.op in BROADCASTING and stated and not (self.clips and self.is_calibrated(use))

    def is_bias_wide(self, pair: Pair) -> bool:
        """Whether the codes of the bias fill an int32: then quantizers raise the scales of weights until it fits."""
        use = pair.operand(2)
        if use is None or use.format is None:
            return False
        codes = self.numbers.ball(self.artifact.codes_of(use.tensor))
        return codes.dtype == np.int32 and float(np.abs(codes.numbers).max(initial=0.0)) >= WIDE

    def is_calibrated(self, use: Use) -> bool:
        """Whether a constant is rounded at run time, as activations are, so that calibration chose its range."""
        return self.artifact.codes_of(use.tensor) in self.rounded

    def is_cut_a_little(self, format: Format, wanted: np.ndarray) -> bool:
        """Whether a calibration of which nothing is known may have cut off the outliers of a constant."""
        calibration = self.comparison.calibration
        if calibration is None or not calibration.sampled or self.numbers.scale(format).size != 1:
            return False
        low, high = self.numbers.limits(format)
        return bool(low <= (1 - CLIPPED) * wanted.min(initial=0) and high >= (1 - CLIPPED) * wanted.max(initial=0))


def _extent(x: np.ndarray) -> list[tuple[int, int]]:
    """(axis counted from the last, elements along it), where there are several."""
    return [(k - x.ndim, n) for k, n in enumerate(x.shape) if n != 1]
