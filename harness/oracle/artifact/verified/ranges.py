"""D3, ranges of activations: do they cover what calibration saw, [min, 0, max] within 1.01 steps, and no more?

Where calibration clips (Entropy, Percentile), a range only has to be a part of the data's. One that is computed of what
is rounded is held to that. A tensor may have the range
of another one that shares its scale (data movement), or of the Relu or Clip that reads it alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.oracle.artifact.verified.calibration import CALIBRATED_ELSEWHERE, RANGE, Calibration, Range, largest_of
from driftnet.oracle.artifact.verified.comparison import Comparison, Problem, problem_of
from driftnet.oracle.artifact.verified.constants import CODES
from driftnet.oracle.artifact.verified.dequantized import Numbers
from driftnet.oracle.artifact.verified.format import Format, Rounding
from driftnet.oracle.artifact.verified.operators import CLIPPING, MEASURING, MOVEMENT, SHARING
from driftnet.oracle.artifact.verified.range_outliers import BOUNDS, Proportion, bounds, cut_off, moved_from, outliers
from driftnet.oracle.artifact.verified.reader import read_artifact
from driftnet.oracle.ball_arithmetic.ball import Undecided, exact, format_of
from driftnet.oracle.tolerances.table import ABSURD_RANGE, COVERED, GIVEN_UP, ROOMY_RANGE, SHIFTED


def stated_ranges(graph: Graph) -> dict[str, Range]:
    """The ranges that an artifact rounds its tensors within, and those that data movement makes these of."""
    artifact = read_artifact(graph)
    numbers = Numbers(artifact, {name: exact(x) for name, x in graph.constants.items()})
    ranges: dict[str, Range] = {}
    for rounding in artifact.roundings:
        with suppress(Undecided):
            low, high = numbers.limits(rounding.format)
            if np.isfinite([low, high]).all() and low < high:
                ranges |= dict.fromkeys((rounding.real, moved_from(graph, rounding.real)), (low, high))
    return ranges | {name: ranges[real] for name, real in artifact.real.items() if real in ranges}


def wrong_ranges(c: Comparison, calibration: Calibration) -> list[Problem]:
    """The problems with ranges, given what is known of their data."""
    checker = _Checker(c, calibration)
    checker.judge()
    return checker.problems


@dataclass
class _Checker:
    c: Comparison
    calibration: Calibration
    problems: list[Problem] = field(default_factory=list)
    proportions: list[Proportion] = field(default_factory=list)

    def judge(self) -> None:
        """Every static rounding of a tensor that the float model has."""
        tensors = self.c.tensors
        formats, constant = self.c.artifact.formats, self.c.artifact.constant
        own = {formats[name].scale for name in constant if name in formats}
        own |= self.c.model.constants.keys()  # an optimizer moved a pair of the float model
        keyed = []
        for rounding in self.c.artifact.roundings:
            with suppress(Undecided):
                if not rounding.dynamic and rounding.tensor not in constant:
                    keyed.append((rounding, self.key(rounding.format)))
        # Of tensors that the float model has not, of weights, or that stand in the float model.
        unknown = {key for found, key in keyed if found.real not in tensors or found.format.scale in own}
        for rounding, key in keyed:
            if key not in unknown:
                shared = [name for other, same in keyed if same == key for name in tensors[other.real]]
                with suppress(Undecided):
                    self.range(rounding, shared, tensors[rounding.real])
        records, alike = self.calibration.records, self.calibration.alike
        for p, error, bound, what, elsewhere in outliers(self.c.model, self.proportions, records, alike):
            if shifted := self.is_shifted(p):
                what = f"as wide, but moved, and cuts {cut_off(p, records):.1%} of it off: the zero point is wrong"
            message = f"{self.told(p.name, p.found, p.seen)}: {what}"
            about = () if shifted else (CALIBRATED_ELSEWHERE if elsewhere else RANGE, p.name)
            self.add(p.rounding, p.rounding.node, error, bound, message, shifted=shifted, about=about)

    def add(
        self,
        rounding: Rounding,
        node: Node,
        error: float,
        bound: float,
        message: str,
        *,
        shifted: bool = False,
        about: tuple[str, ...] = (),
    ) -> None:
        where = rounding.format.zero_point if shifted else rounding.format.scale
        self.problems.append(replace(problem_of(node, "parameter", error, bound, message, where=where), about=about))

    def is_shifted(self, p: Proportion) -> bool:
        """Whether a range is as wide as that of the data, [min, 0, max], and stands elsewhere."""
        low, high = min(p.seen[0], 0.0), max(p.seen[1], 0.0)
        width, off = p.found[1] - p.found[0], max(abs(p.found[0] - low), abs(p.found[1] - high))
        return bool(p.rounding.format.zero_point) and abs(width / (high - low) - 1) < SHIFTED < off / width

    def told(self, name: str, found: Range, data: Range) -> str:
        seen = "on these inputs it is in" if self.calibration.sampled else "calibration saw"
        return f"{_rounded(name, found)}, but {seen} [{data[0]:.6g}, {data[1]:.6g}]"

    def key(self, format: Format) -> tuple[object, ...]:
        """What tensors that are rounded alike have in common; a quantizer of which nothing is known may write that
        anew for each."""
        values = (*self.c.numbers.scale(format).ravel(), *self.c.numbers.zero_point(format, (1,)).ravel())
        return values if self.calibration.sampled else (format.scale, format.zero_point)

    def range(self, rounding: Rounding, shared: Sequence[str], own: Sequence[str]) -> None:
        """Judge one rounding of the tensors `own`; shared: those that are rounded alike. May raise Undecided."""
        found, scale = self.c.numbers.limits(rounding.format), self.c.numbers.scale(rounding.format).item()
        ranges, sampled = self.calibration.ranges, self.calibration.sampled
        if not 0 < scale < np.inf or set(own).issubset(self.calibration.empty):  # parameters.py tells of such a scale
            return
        if sampled and (most := self.beyond(own, found)):
            message = f"{_rounded(own[0], found)}, but cannot leave [{most[0]:g}, {most[1]:g}]"
            self.add(rounding, rounding.node, (found[1] - found[0]) / (most[1] - most[0]), ROOMY_RANGE, message)
            return
        if self.is_computed(rounding):
            self.computed(rounding, found, scale)
            return
        reached, lent = self.neighbours(own)
        if sampled and self.half_is_missed(rounding, found, own, lent):
            return
        names = [name for name in dict.fromkeys([*own, *self.linked(reached, shared), *reached]) if name not in lent]
        known = [ranges[name] for name in names if name in ranges]
        if not known or not np.isfinite(known).all() or self.has_no_scale(known, rounding):
            return
        unit = format_of(self.c.numbers.ball(rounding.format.scale).dtype).unit  # the scale is rounded to it
        vague = max((self.calibration.errors.get(name, 0.0) for name in names), default=0.0)
        slack = COVERED * scale + vague + unit * largest_of(found)
        if min(high - low for low, high in known) <= self.calibration.narrow:
            slack += self.calibration.narrow

        def fits(candidates: Iterable[Range]) -> bool:
            return any(self.fits(candidate, found, slack) for candidate in candidates)

        possible = [*_candidates(known), *self.by_definition(names)]
        if fits(possible):
            # To what has no end, as behind a Clip from 0 to infinity, nothing is in a proportion.
            wide = [x for x in possible if x[1] > x[0] and np.isfinite(largest_of(x)) and found[1] > found[0]]
            sizes = {x: np.log2(largest_of(found) / largest_of(x)) for x in wide}
            of_kind = [log2 for x, log2 in sizes.items() if (x[0] < 0) == (found[0] < 0)] or [*sizes.values()]
            recorded = [name for name in own if name in ranges]
            # What calibration saw is held to that alone: how far it clips is its own affair. The last is behind a Relu
            # or Clip that the range has absorbed.
            if sampled and sizes and recorded:
                name, same = recorded[-1], self.of_calibration([ranges[name] for name in recorded], found, slack)
                nearest, own_kind = min(sizes.values(), key=abs), min(of_kind, key=abs)
                self.proportions.append(Proportion(rounding, name, nearest, found, ranges[name], same, own_kind))
            return
        error = max(abs(min(known[0][0], 0) - found[0]), abs(max(known[0][1], 0) - found[1])) / scale
        message = f"{self.told(own[0], found, known[0])}: {error:.3g} steps off"
        lenders = [
            node
            for name, node in lent.items()
            if name in ranges and (fits(_candidates([ranges[name]])) or self.has_no_scale([ranges[name]], rounding))
        ]
        if lenders:
            message += f"; {_lent_by(lenders[0])}"
        format = rounding.format
        elsewhere = self.calibration.alike and moved_from(self.c.model, own[0]) in self.c.model.inputs
        message += "; was it calibrated on others?" if elsewhere else ""
        about = (CALIBRATED_ELSEWHERE if elsewhere else RANGE, own[0], format.scale, format.zero_point)
        self.add(rounding, [*lenders, rounding.node][0], error, COVERED, message, about=about)

    def is_computed(self, rounding: Rounding) -> bool:
        """Whether a range is made of the numbers that are rounded, as where there is no DynamicQuantizeLinear yet."""
        graph, scale = self.c.artifact.graph, rounding.format.scale
        if scale in self.c.artifact.constant:
            return False
        return any(rounding.node.inputs[0] in node.inputs for node in graph.ancestors(scale))

    def computed(self, rounding: Rounding, found: Range, scale: float) -> None:
        """Judge a range that is made of what is rounded: what was rounded before it is in these numbers already, and
        calibration saw them without. May raise Undecided."""
        name = rounding.node.inputs[0]
        ball = self.c.numbers.ball(name)
        if not ball.numbers.size or not np.isfinite(ball.numbers).all():
            return
        data = (float(ball.numbers.min()), float(ball.numbers.max()))
        unsure = float(np.max(self.c.numbers.ball(rounding.format.scale).error)) * (found[1] - found[0]) / scale
        slack = COVERED * scale + unsure + float(np.max(ball.error, initial=0.0))
        if not any(_is_near(found, wanted, slack) for wanted in _candidates([data])):
            error = max(abs(min(data[0], 0) - found[0]), abs(max(data[1], 0) - found[1])) / scale
            message = f"{_rounded(name, found)}, but holds [{data[0]:.6g}, {data[1]:.6g}]: {error:.3g} steps off"
            about = (RANGE, name, rounding.format.scale, rounding.format.zero_point)
            self.add(rounding, rounding.node, error, COVERED, message, about=about)

    def half_is_missed(self, rounding: Rounding, found: Range, own: Sequence[str], lent: Mapping[str, Node]) -> bool:
        """Whether a range ends at 0, the tensor is of both signs, and not only a Relu or Clip sees it rounded so.

        Whatever was calibrated on: where nothing is on the other side of 0 there, the Relu would have nothing to do.
        """
        data = [record[name].ravel() for name in own if name not in lent for record in self.calibration.records]
        if not lent or not data or (found[0] < 0 < found[1]) or self.is_read_as_it_is(rounding):
            return False
        half, beyond = ("negative", min) if found[0] >= 0 else ("positive", max)
        x = np.concatenate(data)
        if np.mean(x < 0 if half == "negative" else x > 0) < GIVEN_UP:
            return False
        node, seen = next(iter(lent.values())), (float(x.min()), float(x.max()))
        message = f"{self.told(own[0], found, seen)}: the {half} half is cut off; {_lent_by(node)}"
        error = abs(beyond(seen)) / self.c.numbers.scale(rounding.format).item()
        self.add(rounding, node, error, COVERED, message)
        return True

    def is_read_as_it_is(self, rounding: Rounding) -> bool:
        """Whether something reads the numbers that are rounded here before they are."""
        graph, source = self.c.artifact.graph, rounding.node.inputs[0]
        if rounding.node.op != "QuantizeLinear":
            return False  # it makes codes itself
        return source in graph.outputs or len(graph.readers(source)) > 1

    def has_no_scale(self, known: Sequence[Range], rounding: Rounding) -> bool:
        """Whether data are so small that their scale would be no normal number: quantizers then take 1, or a range of
        1 where one makes the scale anew."""
        scale, (low, high) = self.c.numbers.ball(rounding.format.scale), self.c.numbers.limits(rounding.format)
        is_one = np.isclose((self.c.numbers.scale(rounding.format).item(), high - low), 1).any()
        if scale.dtype.kind != "f" or not is_one:
            return False
        return min(map(largest_of, known)) < 2 * CODES * float(np.finfo(scale.dtype).tiny)

    def fits(self, wanted: Range, found: Range, slack: float) -> bool:
        if self.calibration.sampled:
            return not self.calibration.alike or wanted[1] - wanted[0] <= ABSURD_RANGE * (found[1] - found[0])
        if self.calibration.clips:
            return wanted[0] - slack <= found[0] <= 0 <= found[1] <= wanted[1] + slack and found[0] < found[1]
        return _is_near(found, wanted, slack)

    def of_calibration(self, known: Sequence[Range], found: Range, slack: float) -> bool:
        """Whether a range is that of the data themselves, which no other data happen to have."""
        return any(_is_near(found, candidate, slack) for candidate in _candidates(known))

    def by_definition(self, names: Iterable[str]) -> Iterator[Range]:
        """The ranges that the results of an operator may be given, whatever the data."""
        for name in names:
            if (node := self.c.model.producers.get(name)) and node.op in BOUNDS:
                yield from ((0.0, 1.0), (-1.0, 1.0))
            elif known := bounds(self.c.model, name):
                yield known

    def beyond(self, names: Iterable[str], found: Range) -> Range | None:
        """What one of `names` may hold by definition, where `found` goes far beyond that."""
        known = [bounds(self.c.model, moved_from(self.c.model, name)) for name in names]
        return next((x for x in known if x and largest_of(found) > ROOMY_RANGE * COVERED * largest_of(x) > 0), None)

    def linked(self, near: set[str], shared: Sequence[str]) -> Iterator[str]:
        """Those of `shared` that nodes link with `near`: quantizers give no others one scale, and the one that is known
        to have written it gives it only to what its operators of SHARING read and make."""
        reached = set(near)
        ends = [{*n.inputs, *n.outputs} for n in self.c.model.nodes if self.calibration.sampled or n.op in SHARING]
        while found := {*shared} & {x for names in ends if not reached.isdisjoint(names) for x in names} - reached:
            reached |= found
        return (name for name in shared if name in reached)

    def neighbours(self, own: Sequence[str]) -> tuple[set[str], dict[str, Node]]:
        """Tensors whose range the one called `own` may have, through data movement and of a Relu or Clip; and those
        whose range it may not have, because the Relu or Clip is not all that reads it."""
        reached, lent = set(own), dict[str, Node]()
        for node in self.c.model.nodes:  # forward
            name = node.input(0)
            if node.op not in MOVEMENT | CLIPPING:
                continue
            if name in lent or (name in reached and node.op in CLIPPING and not self.sees_all(node)):
                lent |= dict.fromkeys(node.outputs, lent.get(name, node))
            elif name in reached:
                reached.update(node.outputs)
        for node in reversed(self.c.model.nodes):
            if node.op in MOVEMENT and not reached.isdisjoint(node.outputs):
                reached.add(node.input(0))
        return reached, lent

    def sees_all(self, node: Node) -> bool:
        """Whether nothing of the operand of a Relu or Clip is read but what this, or another one like it, passes on."""
        name, found = node.inputs[0], self.calibration.ranges.get(node.outputs[0])
        return name not in self.c.model.outputs and all(
            other.op in MEASURING or (other.op in CLIPPING and self.calibration.ranges.get(other.outputs[0]) == found)
            for other in self.c.model.readers(name)
        )


def _lent_by(node: Node) -> str:
    return f"that is the range of what {node.op} makes of it, which is not all that is read of it"


def _is_near(found: Range, wanted: Range, slack: float) -> bool:
    return abs(found[0] - wanted[0]) <= slack and abs(found[1] - wanted[1]) <= slack


def _rounded(name: str, found: Range) -> str:
    return f"{name!r} is rounded within [{found[0]:.6g}, {found[1]:.6g}]"


def _candidates(known: Sequence[Range]) -> Iterator[Range]:
    """The ranges that data in one of `known`, or in all of them, may give: [min, 0, max], or symmetric."""
    union = (min(low for low, _ in known), max(high for _, high in known))
    for low, high in [*known, union]:
        low, high = min(low, 0.0), max(high, 0.0)
        yield low, high
        yield -largest_of((low, high)), largest_of((low, high))
