"""Part: what a part of a graph reads and gives while it is put on the grid, and how operands are drawn for a node.

Rich operands hold any code, coarse ones few small integers (see `lattice`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from driftnet.model.graph import Graph, Node
from driftnet.model.operators import settings
from driftnet.on_grid.draw import Lattice, coarse, coarse_channels, single_valued, steps_of
from driftnet.oracle.fixed_point.fixed_point import fixed_point_of
from driftnet.oracle.scheme import formulas
from driftnet.targets.interface import Scheme

LARGEST_SUM = 2**23  # in steps: float32 holds every sum of the reference up to 2^24
RICH = 0.4  # of the weighted operators have rich weights, and end there
CUT = "_cut"
"""what is added to the name of a tensor that left the grid, where it becomes an input"""

Drawn = dict[str, list[np.ndarray]]
"""Name -> one array a feed, the same one where it is constant."""


@dataclass
class Part:
    """What has been drawn so far.

    shapes   of the float32 tensors of the graph;   feeds   how many there will be
    unit     of coarse data;   lattice   of rich inputs
    values   every tensor of the part;   off_grid   those that quantizing would change
    """

    model: Graph
    scheme: Scheme
    shapes: Mapping[str, tuple[int, ...]]
    feeds: int
    unit: float
    lattice: Lattice
    values: Drawn = field(default_factory=dict)
    off_grid: set[str] = field(default_factory=set)

    @staticmethod
    def begin(
        model: Graph, scheme: Scheme, shapes: Mapping[str, tuple[int, ...]], feeds: int, rng: np.random.Generator
    ) -> Part:
        """Nothing drawn yet but what holds for all. Where activations are not quantized, any codes will do."""
        unit, sharp = 2.0 ** -int(rng.integers(0, 5)), bool(rng.random() < 0.5)
        lattice = Lattice.draw(rng, scheme.activation_codes or formulas.ANY_CODES, scheme.symmetric_activations, sharp)
        return Part(model, scheme, shapes, feeds, unit, lattice)

    @property
    def codes(self) -> tuple[int, int]:
        """Those of activations."""
        return self.scheme.activation_codes or formulas.ANY_CODES

    def holds(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether a tensor with these values, one array a feed, is on the formulas."""
        return formulas.on_grid(arrays, self.codes, self.scheme.symmetric_activations)

    def step(self, arrays: Sequence[np.ndarray]) -> float:
        """The step of a tensor with these values."""
        low, high = (np.asarray(f([f(x, initial=0.0) for x in arrays])) for f in (np.min, np.max))
        return float(formulas.scales(low, high, self.codes, self.scheme.symmetric_activations))


def operands_for(
    part: Part, node: Node, density: float, widest: int, rng: np.random.Generator
) -> tuple[Drawn | None, bool]:
    """(values of what is free among the operands of `node`, whether they are rich); None where they cannot be drawn."""
    free = [name for name in dict.fromkeys(node.inputs) if name and name not in part.values]
    weighted = formulas.has_weights(part.model, node)
    if any(not formulas.indifferent(x, part.scheme) for x in _shared(part, node)):
        return None, False
    rich = weighted and node.inputs[1] in free and rng.random() < RICH
    drawn: Drawn = {}
    for name in free:
        known = {**part.values, **drawn}
        constant = part.model.constants.get(name)
        if constant is None:
            filled = _inputs(part, name, rich, widest, rng)
        elif weighted and name == node.inputs[1]:
            filled = [(rich_weights if rich else coarse_weights)(part, node, known, density, rng)] * part.feeds
        elif weighted and name == node.input(2):
            filled = [_bias(part, node, known, rich, rng)] * part.feeds
        else:
            filled = [_constant(part, node, name, rng)] * part.feeds
        if any(x is None for x in filled):
            return None, rich
        drawn[name] = [x for x in filled if x is not None]
    return drawn, rich


def _shared(part: Part, node: Node) -> list[np.ndarray]:
    """Constants that another node has drawn, and that are neither weights nor bias to this one."""
    own = node.inputs[1:3] if formulas.has_weights(part.model, node) else ()
    names = [name for name in node.inputs if name in part.model.constants and name in part.values and name not in own]
    return [part.values[name][0] for name in names if part.values[name][0].dtype == np.float32]


def _inputs(part: Part, name: str, rich: bool, widest: int, rng: np.random.Generator) -> list[np.ndarray | None]:
    shape, symmetric = part.shapes[name.removesuffix(CUT)], part.scheme.symmetric_activations
    if rich:
        return [part.lattice.fill(rng, shape) for _ in range(part.feeds)]
    return [*coarse(rng, shape, part.unit, steps_of(part.codes, symmetric), symmetric, widest, part.feeds)]


def _constant(part: Part, node: Node, name: str, rng: np.random.Generator) -> np.ndarray:
    """A constant that is no weight or bias of a weighted operator."""
    given, role = part.model.constants[name], node.inputs.index(name)
    if given.dtype != np.float32 or role in settings(node.op):
        return given
    match node.op, role:  # the constants that leave the results on the grid are others for each
        case "BatchNormalization", 4:
            return np.full_like(given, 1 - node.attributes.get("epsilon", 1e-5))
        case ("Pad", _) | ("BatchNormalization", 3):
            return np.zeros_like(given)
        case "BatchNormalization", 1:
            return np.full_like(given, float(rng.choice([0.5, 1, 2])))
        case "Clip", _:
            return np.full_like(given, part.unit * float(rng.integers(0, 8)) * (1 if role == 2 else -1))
        case ("Add", _) | ("BatchNormalization", 2):
            return np.full_like(given, part.unit * float(rng.integers(-2, 3)))
    return single_valued(rng, given.shape, part.unit)


def _channels(part: Part, node: Node) -> tuple[int, ...]:
    """The axes of weights along which they are drawn: where each has its scale, else where outputs differ."""
    return formulas.channel_axes(node, part.scheme) or (formulas.output_axis(node),)


def _in_channels(points: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """[channels, terms] as weights of `shape`."""
    moved = [shape[k] for k in axes] + [n for k, n in enumerate(shape) if k not in axes]
    return np.ascontiguousarray(np.moveaxis(points.reshape(moved), range(len(axes)), axes), np.float32)


def coarse_weights(part: Part, node: Node, known: Drawn, density: float, rng: np.random.Generator) -> np.ndarray | None:
    """Weights of which the share `density` is not zero, equal ones but for the sign, and for the scale of a channel."""
    name = node.inputs[1]
    shape = part.model.constants[name].shape
    agreed = formulas.weights_of(part.model, node) is not None and name in part.model.initializers
    if not math.prod(shape):
        return None
    if not agreed:
        return np.where(rng.random(shape) < max(density, 0.1), np.float32(1), np.float32(0))
    axes = _channels(part, node)
    channels = math.prod(shape[k] for k in axes)
    if not part.scheme.symmetric_weights and math.prod(shape) == channels:
        return None  # a range without both its ends: what becomes of it, formulas do not agree upon
    signed = part.scheme.symmetric_weights and rng.random() < 0.7
    points = coarse_channels(rng, channels, math.prod(shape) // channels, density, signed)
    varied = len(formulas.channel_axes(node, part.scheme)) == 1 and density > 0 and not node.input(2)
    finer = rng.integers(0, 2, channels) if varied else np.zeros(1)
    return _in_channels(points * np.reshape(2.0**-finer, (-1, 1)), shape, axes)


def rich_weights(part: Part, node: Node, known: Drawn, density: float, rng: np.random.Generator) -> np.ndarray | None:
    """Weights anywhere among the codes; None where a channel has no place for both ends."""
    weights = formulas.weights_of(part.model, node)
    if weights is None or part.scheme.weight_codes is None or node.inputs[1] not in part.model.initializers:
        return None
    lattice = Lattice.draw(rng, part.scheme.weight_codes, part.scheme.symmetric_weights, part.lattice.sharp)
    own_scales, axes = formulas.channel_axes(node, part.scheme), _channels(part, node)
    points = lattice.points(rng, weights.size).reshape(math.prod(weights.shape[k] for k in axes), -1)
    terms = weights.size // weights.shape[formulas.output_axis(node)]
    x = np.stack([np.abs(x).max(initial=0.0) for x in known[node.inputs[0]]]).max()
    largest = x / part.step(known[node.inputs[0]]) * max(-lattice.lowest, lattice.highest)
    points[rng.random(points.shape) > LARGEST_SUM / (2 * largest * terms + 1)] = 0
    marked = [lattice.mark(rng, channel) for channel in points]
    if not (all(marked) or (not own_scales and lattice.mark(rng, points.reshape(-1)))):
        return None
    finer = rng.integers(0, 3, len(points)) if len(own_scales) == 1 else np.zeros(len(points))
    return _in_channels(points * (lattice.scale * 2.0**-finer)[:, None], weights.shape, axes)


def _bias(part: Part, node: Node, known: Drawn, rich: bool, rng: np.random.Generator) -> np.ndarray | None:
    """Whole numbers of the product of the steps of operand and weights."""
    given, (weights, *_) = part.model.constants[node.input(2)], known[node.inputs[1]]
    if not rich:
        lsb = min(fixed_point_of(x).lsb for x in known[node.inputs[0]]) + fixed_point_of(weights).lsb
        return np.asarray(rng.integers(-2, 3, given.shape) * 2.0**lsb, np.float32)
    placed = replace(part.model, constants={**part.model.constants, node.inputs[1]: weights})
    scale = formulas.weight_scales(placed, node, part.scheme)
    if scale is None:
        return None
    unit = formulas.by_output(scale, given) * part.step(known[node.inputs[0]])
    return np.asarray(rng.integers(-4096, 4097, given.shape) * unit, np.float32)
