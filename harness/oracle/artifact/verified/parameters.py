"""D3, parameters: does each weight, bias and scale of an artifact say what the float model says?

    weights   |deq(Wq) - W| <= s/2 (1 + 2e-4), and the extreme code is used: a scale twice too big hides in the former
    bias      the same with s = s_x s_w, and its scale is that product: a stale one is right until kernels fuse
    scales    positive, finite, and the same where integers are written and where they are read
    ranges    ranges.py

Where affine operators were folded into weights, W is the folded one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import AFFINE, RECURRENT, WEIGHTED
from driftnet.oracle.artifact.verified.bias_correction import corrected
from driftnet.oracle.artifact.verified.code_usage import Usage, usages, wasted
from driftnet.oracle.artifact.verified.dequantized import Numbers, Problem
from driftnet.oracle.artifact.verified.equalization import Held, Scaling, equivalent
from driftnet.oracle.artifact.verified.folding import Folding, fold
from driftnet.oracle.artifact.verified.format import Format, Use
from driftnet.oracle.artifact.verified.match import How, Matching, Pair
from driftnet.oracle.artifact.verified.messages import channels_told, distance_told
from driftnet.oracle.artifact.verified.ranges import CODES, Calibration, check_ranges
from driftnet.oracle.ball_arithmetic.ball import Undecided, format_of, is_float
from driftnet.oracle.tolerances.table import CLIPPED, PARAMETER_FLOAT_ERROR, PARAMETER_HALF_STEP

ELEMENTWISE = AFFINE - {"BatchNormalization"} | {"Max", "Mean", "Min", "PRelu", "Pow", "Sum"}
WIDE = 2.0**30
"""a code of a bias that is near the end of int32"""


def check(
    model: Graph,
    constants: Mapping[str, np.ndarray],
    matching: Matching,
    numbers: Numbers,
    calibration: Calibration | None,
    span: int | None = None,
) -> tuple[Problem, ...]:
    """The problems with parameters.

    calibration  None: nothing is known of it, and ranges are not judged
    span         highest less lowest code of weights, where the scheme is known
    """
    checker = _Checker(model, constants, matching, numbers, calibration)
    checker.scales()
    checker.constants_of_pairs()
    checker.namesakes()
    checker.problems += wasted(checker.used, span)
    wrong = {problem.where for problem in checker.problems}
    spared, scaling = frozenset[str](), Scaling()
    if span is None and wrong:
        held: dict[tuple[Use, str], Held] = {}
        replace(checker, problems=[], used=[], held=held).constants_of_pairs()
        scaling = equivalent(model, constants, matching, numbers, held, wrong)
        spared = scaling.constants | corrected(model, constants, matching, numbers, wrong - scaling.constants)
    problems = tuple(problem for problem in checker.problems if problem.where not in spared)
    if calibration is None:
        return problems
    # The largest of a tensor whose channels were scaled is that of the channel whose data are least like others.
    ranges = {name: found for name, found in calibration.ranges.items() if name not in scaling.multiples}
    return problems + check_ranges(model, matching, numbers, replace(calibration, ranges=ranges))


@dataclass
class _Checker:
    model: Graph
    constants: Mapping[str, np.ndarray]
    matching: Matching
    numbers: Numbers
    calibration: Calibration | None
    problems: list[Problem] = field(default_factory=list)
    used: list[Usage] = field(default_factory=list)
    """of each scale of constants that are right"""
    held: dict[tuple[Use, str], Held] | None = None
    """what was judged, where that is asked for"""

    @property
    def clips(self) -> bool:
        return self.calibration is not None and self.calibration.clips

    def add(self, where: str, error: float, bound: float, message: str, node: Node) -> None:
        culprit = (node.name or node.outputs[0], node.op)
        self.problems.append(Problem("parameter", where, error, bound, message, culprit))

    def scales(self) -> None:
        artifact = self.numbers.artifact
        for node, a, b in artifact.rereads:
            scales = [_said(self.numbers, format) for format in (a, b)]
            self.add(b.scale, 1.0, 0.0, f"integers are written with {scales[0]}, but read with {scales[1]}", node)
        for rounding in artifact.roundings:
            try:
                scale = self.numbers.scale(rounding.format)
            except Undecided:
                continue
            if not rounding.dynamic and not (np.isfinite(scale) & (scale > 0)).all():
                message = f"scale {rounding.format.scale!r} of {rounding.real!r} holds {scale.min():g}: not positive"
                self.add(rounding.format.scale, np.inf, 0.0, message, rounding.node)

    def constants_of_pairs(self) -> None:
        foldings: dict[int, list[Folding]] = {}
        for pair in self.matching.pairs:
            if pair.how is How.ABSORBED and pair.node.op in AFFINE and pair.piece:
                foldings.setdefault(id(pair.piece), []).append(Folding(pair.node, self.constants))
        biases = {id(p.piece): p for p in self.matching.pairs if p.how is How.ABSORBED and p.bias}
        seen: set[tuple[Use, str, bool]] = set()
        for pair in self.matching.pairs:
            if pair.how is not How.SAME or pair.piece is None:
                continue
            if (made := biases.get(id(pair.piece))) and not any(pair.operands[2:]):
                pair = replace(pair, operands=(*pair.operands[:2], *made.operands), bias=made.bias)
            folded = foldings.get(id(pair.piece), [])
            for k, wanted in self.wanted(pair, folded):
                use = pair.operands[k] if k < len(pair.operands) else None
                if folded and k == 2 and use is None:
                    self.lost_bias(folded, wanted)
                if use is None or (use, pair.node.input(k), pair.transposed) in seen:
                    continue
                seen.add((use, pair.node.input(k), pair.transposed))
                try:
                    if self.constant(pair, k, use, wanted) and self.takes_all_codes(pair, k, use):
                        self.used += usages(self.numbers, use, pair.node.input(k), pair.node)
                except Undecided:
                    continue

    def wanted(self, pair: Pair, foldings: Sequence[Folding]) -> Iterator[tuple[int, np.ndarray]]:
        """(position, value that the artifact should have there) for the float constants of a node."""
        operands = {
            k: self.constants[name]
            for k, name in enumerate(pair.node.inputs)
            if name in self.constants and is_float(self.constants[name].dtype)
        }
        if pair.node.op == "Gemm" and pair.piece:
            for position, name in ((1, "alpha"), (2, "beta")):  # either may have been multiplied into its operand
                factor = pair.node.attributes.get(name, 1.0) / (pair.piece.node.attributes.get(name, 1.0) or 1.0)
                if position in operands and factor != 1:
                    operands[position] = operands[position] * factor
        if foldings:
            operands = fold(pair.node, operands, foldings)
        return iter(operands.items())

    def constant(self, pair: Pair, position: int, use: Use, wanted: np.ndarray) -> bool:
        """Judge the constant in the place of an operand; whether it is right."""
        real, step = self.numbers.real(use), self.numbers.step(use.tensor)
        found = real.numbers
        if real.radius is not None:  # computed from constants, with roundings that may go either way
            step = 2 * real.radius + (0.0 if step is None else step)
        if pair.transposed and position == 1:
            found, step = found.T, None if step is None else step.T
        if pair.bias is not None and position == 2 and found.size == wanted.size:
            found = found.reshape(wanted.shape)
        if pair.node.op in ELEMENTWISE and found.size == wanted.size:
            if not self.is_broadcast_alike(pair, use, found, wanted):
                return False
            found, step = found.reshape(wanted.shape), None if step is None else step.reshape(wanted.shape)
        if found.shape != wanted.shape or (position == 2 and use.format and not self.bias_scale(pair, use)):
            return False
        made_by = self.model.producers.get(pair.node.inputs[0])
        if pair.node.op == "Clip" and made_by and made_by.op == "Relu":
            found, wanted = np.maximum(found, 0), np.maximum(wanted, 0)  # below zero there is nothing to clip
        if use.format and self.is_calibrated(use) and (self.clips or self.is_cut_a_little(use.format, wanted)):
            wanted = np.clip(wanted, *self.numbers.limits(use.format)).reshape(found.shape)
        erased = self.is_erased(pair, use, found, wanted)
        steps = np.zeros(found.shape) if step is None or erased else step.reshape(found.shape)
        name, error = pair.node.input(position) or use.tensor, self.float_error(use.tensor)
        if name not in self.model.constants or wanted is not self.constants[name]:  # computed: terms may have cancelled
            error = max(error, 2 * max(self.units(pair.node), format_of(wanted.dtype).unit))
            steps = steps + 4 * error * np.abs(wanted).max(initial=0.0)
        exactly = wanted.astype(np.float64)
        if self.held is not None:
            self.held[use, pair.node.input(position)] = Held(found, exactly, _bound(exactly, steps, error))
        return self.values(name, pair.node, found, exactly, steps, error)

    def units(self, node: Node) -> float:
        """The coarsest unit of the dtypes of the node's constants: what is folded into it may be computed in that."""
        own = [self.constants[name].dtype for name in node.inputs if name in self.constants]
        return max((format_of(dtype).unit for dtype in own if is_float(dtype)), default=0.0)

    def is_erased(self, pair: Pair, use: Use, found: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether an operand with a scale of its own holds nothing but zeros, of which quantizers take the scale to be
        1, where it has values of which the scale would be a normal number."""
        if pair.node.op not in ELEMENTWISE or use.format is None or found.any():
            return False
        dtype = self.numbers.ball(use.format.scale).dtype
        return dtype.kind == "f" and bool((np.abs(wanted) > 2 * CODES * np.finfo(dtype).tiny).any())

    def lost_bias(self, foldings: Sequence[Folding], wanted: np.ndarray) -> None:
        """Judge affine operators that have become part of one without a bias."""
        node = foldings[-1].node
        terms = [self.constants[name] for f in foldings for name in f.node.inputs if name in self.constants]
        largest = max(float(np.abs(x).max(initial=0.0)) for x in terms)
        error = float(np.abs(wanted).max(initial=0.0))
        if error > 8 * PARAMETER_FLOAT_ERROR * largest:
            where = node.name or node.outputs[0]
            self.add(where, error, 0.0, f"{node.op} {where!r} is gone, and what it adds, up to {error:.6g}, too", node)

    def is_broadcast_alike(self, pair: Pair, use: Use, found: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether the operand of an elementwise operator extends along the same axes."""
        if _extent(found) == _extent(wanted):
            return True
        shapes = f"{list(found.shape)}, in the float model {list(wanted.shape)}"
        message = f"{use.tensor!r} of {pair.node.op} has shape {shapes}: it is broadcast along other axes"
        self.add(use.tensor, np.inf, 0.0, message, pair.node)
        return False

    def namesakes(self) -> None:
        """Judge constants of nodes without counterpart that are stored under their names."""
        for pair in self.matching.pairs:
            if pair.how is How.SAME or (pair.how is How.ABSORBED and pair.node.op in AFFINE):
                continue
            for k, name in enumerate(pair.node.inputs):
                wanted = self.constants.get(name)
                if wanted is None or not is_float(wanted.dtype):
                    continue
                try:
                    stored = self.numbers.stored(name, wanted)
                    if stored:
                        error, use = self.float_error(stored[0]), self.numbers.artifact.use(stored[0])
                        computed = 0.0 if name in self.model.constants else 4 * error * np.abs(wanted).max(initial=0.0)
                        steps, exactly = stored[2] + computed, wanted.astype(np.float64)
                        right = self.values(name, pair.node, stored[1], exactly, steps, error)
                        if right and k == 1 and pair.node.op in WEIGHTED:
                            self.used += usages(self.numbers, use, name, pair.node)
                except Undecided:
                    continue

    def float_error(self, tensor: str) -> float:
        """What the dtypes of a constant and of its scale make of a value, as a share of it."""
        format = self.numbers.artifact.formats.get(tensor)
        names = [tensor, format.scale] if format and format.scale else [tensor]
        dtypes = [self.numbers.ball(name).dtype for name in names]
        return max(PARAMETER_FLOAT_ERROR, *(2 * format_of(dtype).unit for dtype in dtypes if is_float(dtype)), 0.0)

    def values(
        self, name: str, node: Node, found: np.ndarray, wanted: np.ndarray, steps: np.ndarray, float_error: float
    ) -> bool:
        """Judge the elements of a constant; whether they are right."""
        same, finite = (found == wanted) | (np.isnan(found) & np.isnan(wanted)), np.isfinite(wanted)
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0, np.where(finite & np.isfinite(found), np.abs(found - wanted), np.inf))
            bound = _bound(wanted, steps, float_error)
            wrong, excess = ~(error <= bound), error / bound
        if not wrong.any():
            return True
        where = np.unravel_index(int(np.argmax(np.where(wrong, excess, 0))), wrong.shape)
        message = (
            f"{name!r} of {node.op} holds {found[where]:.6g} at [{', '.join(map(str, where))}], the float model "
            f"{wanted[where]:.6g}: {distance_told(error[where], steps[where])}; {int(wrong.sum())} of {wrong.size} "
            f"elements{channels_told(wrong)}"
        )
        self.add(name, float(error[where]), float(bound[where]), message, node)
        return False

    def bias_scale(self, pair: Pair, use: Use) -> bool:
        """Whether an int32 bias has the scale that kernels assume, that of the product."""
        uses, format = pair.operands, use.format
        integers = self.numbers.ball(self.numbers.artifact.codes_of(use.tensor))
        if pair.node.op not in WEIGHTED:
            return True
        if format is None or format.unit or integers.dtype != np.int32 or not uses[0] or not uses[1]:
            return True
        if uses[0].format is None or uses[1].format is None:
            return True
        scale = self.numbers.scale(format).ravel()
        product = (self.numbers.scale(uses[0].format) * self.numbers.scale(uses[1].format)).ravel()
        close = 4 * format_of(self.numbers.ball(format.scale).dtype).unit + 1e-6
        factors = {float(pair.node.attributes.get(name, 1.0)) for name in ("alpha", "beta")} | {1.0}
        if any(np.allclose(scale, product * f, rtol=close, atol=0) for f in factors if len(scale) == len(product)):
            return True
        if len(scale) != len(product) and np.allclose(scale, product, rtol=close, atol=0):
            return True
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(np.resize(scale, product.shape) / product)
            worst = float(np.maximum(ratio, 1 / ratio).max())
        message = (
            f"scale {format.scale!r} of the bias is off the product of the scales of input, {uses[0].format.scale!r}, "
            f"and weights, {uses[1].format.scale!r}, by a factor of up to {worst:.6g}: one of the three is wrong, "
            "and kernels take the bias's for that product"
        )
        self.add(format.scale, worst - 1, close, message, pair.node)
        return False

    def takes_all_codes(self, pair: Pair, position: int, use: Use) -> bool:
        """Whether the scale of a constant comes from its own range, be it weights or what is added or multiplied."""
        if pair.node.op in WEIGHTED:
            return position == 1 and not self.is_bias_wide(pair)
        if pair.node.op in RECURRENT:
            return position in (1, 2)
        stated = pair.node.input(position) in self.model.constants  # what is computed may be computed otherwise
        return pair.node.op in ELEMENTWISE and stated and not (self.clips and self.is_calibrated(use))

    def is_bias_wide(self, pair: Pair) -> bool:
        """Whether the codes of the bias fill an int32: then quantizers raise the scales of weights until it fits."""
        use = pair.operands[2] if len(pair.operands) > 2 else None
        if use is None or use.format is None:
            return False
        codes = self.numbers.ball(self.numbers.artifact.codes_of(use.tensor))
        return codes.dtype == np.int32 and float(np.abs(codes.numbers).max(initial=0.0)) >= WIDE

    def is_calibrated(self, use: Use) -> bool:
        """Whether a constant is rounded at run time, as activations are, so that calibration chose its range."""
        return any(
            rounding.tensor == self.numbers.artifact.codes_of(use.tensor)
            for rounding in self.numbers.artifact.roundings
        )

    def is_cut_a_little(self, format: Format, wanted: np.ndarray) -> bool:
        """Whether a calibration of which nothing is known may have cut off the outliers of a constant."""
        if self.calibration is None or not self.calibration.sampled or self.numbers.scale(format).size != 1:
            return False
        low, high = (float(end[0]) for end in self.numbers.limits(format))
        return bool(low <= (1 - CLIPPED) * wanted.min(initial=0) and high >= (1 - CLIPPED) * wanted.max(initial=0))


def _bound(wanted: np.ndarray, steps: np.ndarray, float_error: float) -> np.ndarray:
    """By how much the elements of a constant may be off."""
    return np.asarray(
        PARAMETER_HALF_STEP * steps + float_error * np.where(np.isfinite(wanted), np.abs(wanted), 0) + 1e-37
    )


def _extent(x: np.ndarray) -> list[tuple[int, int]]:
    """(axis counted from the last, elements along it), where there are several."""
    return [(k - x.ndim, n) for k, n in enumerate(x.shape) if n != 1]


def _said(numbers: Numbers, format: Format) -> str:
    try:
        scale, zero = numbers.scale(format).ravel(), numbers.zero_point(format, (1,)).ravel()
    except (Undecided, ValueError):
        return f"scale {format.scale!r}"
    return f"scale {format.scale!r} ({scale[0]:.6g}, zero point {zero[0]:g}{', ...' if scale.size > 1 else ''})"
