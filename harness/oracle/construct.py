"""Cases for the lossless tier: a part of a graph with all its data on the integer grid of a scheme.

Node by node, what is free (inputs, weights, bias, constants) is drawn until the results are on the grid again; what
stays off it ends there, and what would have read it reads an input instead. A connected piece of what came out is the
case. Where only weights are quantised, half of the cases are the whole graph with other weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from generators.case import Case
from harness.oracle import graph, grid
from harness.oracle.balls.evaluate import evaluate
from harness.oracle.exact import grid_of
from harness.oracle.graph import Graph, Node
from harness.oracle.lattice import Lattice, coarse, coarse_channels, shifted, single_valued, steps_of
from harness.wire import Scheme

LARGEST_SUM = 2**23  # in steps: float32 holds every sum of the reference up to 2^24
TRIES = ((0.6, 51), (0.3, 15), (0.15, 5), (0.0, 3), (0.0, 1))
"""The share of weights that are not zero, and the widest range of coarse inputs; 0: one weight in a channel."""

CUT = "_cut"
FINEST = 2.0**-20
RICH = 0.4  # of the weighted operators have rich weights, and end there
WHOLE = 0.5
SHOWN = 0.15  # of the tensors inside a part are outputs too


def construct(case: Case, scheme: Scheme, rng_seed: int) -> Case | None:
    """A case on the grid of `scheme`, calibrated on its feeds: a connected part of the graph of `case`, of its shapes.

    None where the graph holds nothing that fits, or the scheme clips.
    """
    if scheme.clips or (scheme.symmetric_activations and (scheme.activation_codes or (-1,))[0] >= 0):
        return None
    rng = np.random.default_rng(rng_seed)
    origin = {**case.origin, "lossless": rng_seed}
    if scheme.activation_codes is None and rng.random() < WHOLE and (whole := _reweighted(case, scheme, rng)):
        return Case(whole, case.feeds, case.calibration, origin)
    part = _grown(case, scheme, rng)
    pieces = [piece for piece in _pieces(part) if _tells(part, piece)]
    if not pieces:
        return None
    sizes = np.array([len(piece) ** 2 for piece in pieces])
    piece = pieces[int(rng.choice(len(pieces), p=sizes / sizes.sum()))]
    return _assembled(case, part, piece, origin, rng)


@dataclass(frozen=True)
class Taken:
    """A node of the part: as it was, and as it stands there."""

    node: Node
    proto: onnx.NodeProto


@dataclass
class Part:
    """What has been drawn so far: names -> one array a feed, the same one where it is constant."""

    model: Graph
    scheme: Scheme
    shapes: Mapping[str, tuple[int, ...]]
    feeds: int
    unit: float
    lattice: Lattice
    values: dict[str, list[np.ndarray]] = field(default_factory=dict)
    off_grid: set[str] = field(default_factory=set)
    taken: list[Taken] = field(default_factory=list)

    @property
    def codes(self) -> tuple[int, int]:
        """Those of activations; any will do where they are not quantised."""
        return self.scheme.activation_codes or (-128, 127)

    def holds(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether a tensor with these values, one array a feed, is on the grid."""
        return grid.on_grid(arrays, self.codes, self.scheme.symmetric_activations)

    def step(self, arrays: Sequence[np.ndarray]) -> float:
        """The step of a tensor with these values."""
        low, high = (np.asarray(f([f(x, initial=0.0) for x in arrays])) for f in (np.min, np.max))
        return float(grid.scales(low, high, self.codes, self.scheme.symmetric_activations))


Drawn = dict[str, list[np.ndarray]]


def _lattice(scheme: Scheme, rng: np.random.Generator) -> Lattice:
    """That of rich inputs. Where activations are not quantised, any will do."""
    codes = scheme.activation_codes or (-128, 127)
    return Lattice.draw(rng, codes, scheme.symmetric_activations, bool(rng.random() < 0.5))


def _grown(case: Case, scheme: Scheme, rng: np.random.Generator) -> Part:
    model = graph.read(case.proto)
    feeds = min(len(case.feeds), 1 + int(rng.random() < 0.5))
    part = Part(model, scheme, _shapes(case), feeds, 2.0 ** -int(rng.integers(0, 5)), _lattice(scheme, rng))
    protos = [n for n in case.proto.graph.node if n.op_type != "Constant" or n.output[0] not in model.constants]
    for node, proto in zip(model.nodes, protos):
        if _fits(part, node):
            _take(part, node, proto, rng)
    return part


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """The float32 tensors of the main graph whose shapes follow from those of the first feed."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    for value in proto.graph.input:
        if value.name in case.feeds[0]:
            dims = np.shape(case.feeds[0][value.name])
            value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    tensors = [(v.name, v.type.tensor_type) for v in (*inferred.input, *inferred.value_info, *inferred.output)]
    return {
        name: tuple(dim.dim_value for dim in tensor.shape.dim)
        for name, tensor in tensors
        if tensor.elem_type == TensorProto.FLOAT
        and tensor.HasField("shape")
        and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    }


def _fits(part: Part, node: Node) -> bool:
    """Whether floats of known shape go in and come out of `node`, and the rest is constant."""
    constants = part.model.constants
    return (
        node.op in grid.WEIGHTED | grid.PLAIN
        and grid.unscaled(node)
        and (part.scheme.activation_codes is not None or node.op not in grid.FOLDED)
        and any(name in part.shapes and name not in constants for name in node.inputs)
        and all(name in part.shapes or name in constants or not name for name in node.inputs)
        and all(name in part.shapes or not name for name in node.outputs)
        and (node.op not in grid.WEIGHTED or not node.input(2) or node.input(2) in constants)
    )


def _take(part: Part, node: Node, proto: onnx.NodeProto, rng: np.random.Generator) -> None:
    """Add `node` to the part with operands that keep its results on the grid, or with results off it, or not at all."""
    names = [_name(part, node, name) for name in node.inputs]
    placed = Node(node.op, tuple(names), node.outputs, node.attributes, node.name)
    after_rounding = any(name in part.off_grid for name in names)
    found: tuple[Drawn, Drawn, bool] | None = None
    for density, widest in TRIES:
        drawn, rich = _drawn(part, placed, density, widest, rng)
        results = _results(part, placed, {**part.values, **drawn}) if drawn is not None else None
        if drawn is None or results is None:
            continue
        if not rich:
            _shift(part, placed, drawn, results)
        stays = not (rich or after_rounding) and _stays(part, placed, results, {**part.values, **drawn})
        found = drawn, results, stays
        if rich or after_rounding or stays:
            break
    if found is None or any(not np.isfinite(x).all() for arrays in found[1].values() for x in arrays):
        return
    drawn, results, stays = found
    part.values.update(drawn)
    part.values.update(results)
    part.off_grid.update(() if stays else results)
    changed = onnx.NodeProto()
    changed.CopyFrom(proto)
    changed.input[:] = names
    part.taken.append(Taken(placed, changed))


def _name(part: Part, node: Node, name: str) -> str:
    """What `node` reads in place of the tensor `name`: that, or an input where it has left the grid."""
    return name + CUT if name in part.off_grid and node.op != "Relu" else name


def _drawn(part: Part, node: Node, density: float, widest: int, rng: np.random.Generator) -> tuple[Drawn | None, bool]:
    """(values of what is free among the operands of `node`, whether they are rich); None where they cannot be drawn."""
    free = [name for name in dict.fromkeys(node.inputs) if name and name not in part.values]
    weighted = grid.has_weights(part.model, node)
    rich = weighted and node.inputs[1] in free and rng.random() < RICH
    drawn: Drawn = {}
    for name in free:
        known = {**part.values, **drawn}
        constant = part.model.constants.get(name)
        if constant is None:
            filled = _inputs(part, name, rich, widest, rng)
        elif weighted and name == node.inputs[1]:
            filled = [(_rich if rich else _coarse)(part, node, known, density, rng)] * part.feeds
        elif weighted and name == node.input(2):
            filled = [_bias(part, node, known, rich, rng)] * part.feeds
        else:
            filled = [_constant(part, node, name, rng)] * part.feeds
        if any(x is None for x in filled):
            return None, rich
        drawn[name] = [x for x in filled if x is not None]
    return drawn, rich


def _inputs(part: Part, name: str, rich: bool, widest: int, rng: np.random.Generator) -> list[np.ndarray | None]:
    shape, symmetric = part.shapes[name.removesuffix(CUT)], part.scheme.symmetric_activations
    if rich:
        return [part.lattice.fill(rng, shape) for _ in range(part.feeds)]
    return [*coarse(rng, shape, part.unit, steps_of(part.codes, symmetric), symmetric, widest, part.feeds)]


def _constant(part: Part, node: Node, name: str, rng: np.random.Generator) -> np.ndarray:
    """A constant that is no weight or bias of a weighted operator."""
    given, role = part.model.constants[name], node.inputs.index(name)
    if given.dtype != np.float32 or role >= grid.PARAMETERS.get(node.op, len(node.inputs)):
        return given
    match node.op, role:
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
    return grid.channel_axes(node, part.scheme) or (grid.output_axis(node),)


def _in_channels(points: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """[channels, terms] as weights of `shape`."""
    moved = [shape[k] for k in axes] + [n for k, n in enumerate(shape) if k not in axes]
    return np.ascontiguousarray(np.moveaxis(points.reshape(moved), range(len(axes)), axes), np.float32)


def _coarse(part: Part, node: Node, known: Drawn, density: float, rng: np.random.Generator) -> np.ndarray | None:
    """Weights of which the share `density` is not zero, equal ones but for the sign, and for the scale of a channel."""
    name = node.inputs[1]
    shape = part.model.constants[name].shape
    agreed = grid.weights_of(part.model, node) is not None and name in part.model.initializers
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
    varied = len(grid.channel_axes(node, part.scheme)) == 1 and density > 0 and not node.input(2)
    finer = rng.integers(0, 2, channels) if varied else np.zeros(1)
    return _in_channels(points * np.reshape(2.0**-finer, (-1, 1)), shape, axes)


def _rich(part: Part, node: Node, known: Drawn, density: float, rng: np.random.Generator) -> np.ndarray | None:
    """Weights anywhere among the codes; None where a channel has no place for both ends."""
    weights = grid.weights_of(part.model, node)
    if weights is None or part.scheme.weight_codes is None or node.inputs[1] not in part.model.initializers:
        return None
    lattice = Lattice.draw(rng, part.scheme.weight_codes, part.scheme.symmetric_weights, part.lattice.sharp)
    own_scales, axes = grid.channel_axes(node, part.scheme), _channels(part, node)
    points = lattice.points(rng, weights.size).reshape(math.prod(weights.shape[k] for k in axes), -1)
    terms = weights.size // weights.shape[grid.output_axis(node)]
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
        lsb = min(grid_of(x).lsb for x in known[node.inputs[0]]) + grid_of(weights).lsb
        return np.asarray(rng.integers(-2, 3, given.shape) * 2.0**lsb, np.float32)
    placed = replace(part.model, constants={**part.model.constants, node.inputs[1]: weights})
    scale = grid.weight_scales(placed, node, part.scheme)
    if scale is None:
        return None
    unit = grid.by_output(scale, given) * part.step(known[node.inputs[0]])
    return np.asarray(rng.integers(-4096, 4097, given.shape) * unit, np.float32)


def _shift(part: Part, node: Node, drawn: Drawn, results: Drawn) -> None:
    """Move results by a constant that is added to them all, where there is one, so that they are on the grid."""
    shiftable = node.op in ("Add", "BatchNormalization") or grid.has_weights(part.model, node)
    added = [name for name in drawn if name in part.model.constants and (node.op == "Add" or name == node.input(2))]
    if not added or not shiftable or node.inputs.count(added[0]) > 1:
        return
    name = added[0]
    ((result, arrays),) = results.items()
    if not all(x.size for x in arrays):
        return
    low, high = (float(f([f(x) for x in arrays])) for f in (np.min, np.max))
    steps = steps_of(part.codes, part.scheme.symmetric_activations)
    by = shifted(low, high, 2.0 ** min(grid_of(x).lsb for x in arrays), steps)
    if by is not None:
        drawn[name] = [np.asarray(x + np.float32(by), np.float32) for x in drawn[name]]
        results[result] = [np.asarray(x + np.float32(by), np.float32) for x in arrays]


def _results(part: Part, node: Node, values: Drawn) -> Drawn | None:
    """What `node` gives, one array a feed; None where no rule of ball arithmetic says it."""
    names = tuple(name for name in node.inputs if name)
    single = Graph((node,), {}, frozenset(), names, node.outputs, part.model.opset)
    results: Drawn = {name: [] for name in node.outputs if name}
    for feed in range(part.feeds):
        balls = evaluate(single, {name: values[name][feed] for name in names}).balls
        for name, arrays in results.items():
            if name not in balls or balls[name].dtype != np.float32 or not np.isfinite(balls[name].error).all():
                return None
            arrays.append(_snapped(balls[name].middle))
    return results


def _snapped(x: np.ndarray) -> np.ndarray:
    """`x` in float32, without the float noise of a BatchNormalization."""
    snapped = np.rint(x / FINEST) * FINEST
    return np.asarray(snapped if grid.near(snapped, x) else x, np.float32)


def _stays(part: Part, node: Node, results: Drawn, values: Drawn) -> bool:
    """Whether the results are on the grid, by their own step and by that of the only operand of other operators."""
    if not all(part.holds(arrays) for arrays in results.values()):
        return False
    operands = [name for name in node.inputs if name and name not in part.model.constants]
    if node.op in grid.WEIGHTED or len(operands) != 1:
        return True
    step = np.asarray(part.step(values[operands[0]]))
    return all(grid.multiples(x, step) for arrays in results.values() for x in arrays)


def _pieces(part: Part) -> list[list[Taken]]:
    """The nodes of the part in connected pieces, each in topological order."""
    pieces: list[tuple[set[str], list[Taken]]] = []
    for taken in part.taken:
        read = [name for name in taken.node.inputs if name and name not in part.model.constants]
        names, nodes = {*read, *(name for name in taken.node.outputs if name)}, [taken]
        for piece in [piece for piece in pieces if not names.isdisjoint(piece[0])]:
            pieces.remove(piece)
            names, nodes = names | piece[0], [*piece[1], *nodes]
        pieces.append((names, nodes))
    order = {id(taken): k for k, taken in enumerate(part.taken)}
    return [sorted(nodes, key=lambda taken: order[id(taken)]) for _, nodes in pieces]


def _tells(part: Part, piece: Sequence[Taken]) -> bool:
    """Whether its results are more than one value everywhere, in which no damage would show."""
    read = {name for taken in piece for name in taken.node.inputs}
    ends = [part.values[name] for taken in piece for name in taken.node.outputs if name and name not in read]
    return any(x.any() and (x.size == 1 or x.min() < x.max()) for arrays in ends for x in arrays if x.size)


def _assembled(
    case: Case, part: Part, piece: Sequence[Taken], origin: Mapping[str, Any], rng: np.random.Generator
) -> Case:
    read = dict.fromkeys(name for taken in piece for name in taken.node.inputs if name)
    made = dict.fromkeys(name for taken in piece for name in taken.node.outputs if name)
    constants = [name for name in read if name in part.model.constants]
    inputs = [name for name in read if name not in part.model.constants and name not in made]
    outputs = [name for name in made if name not in read or rng.random() < SHOWN]
    initializers = [name for name in constants if name in part.model.initializers]
    tensors = {name: numpy_helper.from_array(part.values[name][0], name) for name in constants}
    proto = helper.make_graph(
        [
            *(
                helper.make_node("Constant", [], [name], value=tensors[name])
                for name in constants
                if name not in initializers
            ),
            *(taken.proto for taken in piece),
        ],
        "on the grid",
        [_declared(name, part.values[name][0]) for name in inputs],
        [_declared(name, part.values[name][0]) for name in outputs],
        [tensors[name] for name in initializers],
    )
    model = helper.make_model(proto, opset_imports=case.proto.opset_import, ir_version=case.proto.ir_version)
    feeds = tuple({name: part.values[name][feed] for name in inputs} for feed in range(part.feeds))
    return Case(model.SerializeToString(), feeds, origin=origin)


def _declared(name: str, like: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, like.shape)


def _reweighted(case: Case, scheme: Scheme, rng: np.random.Generator) -> bytes | None:
    """The whole model of `case` with weights on the grid; None where it has none, or they cannot be put there."""
    model = graph.read(case.proto)
    part = Part(model, scheme, {}, 1, 1.0, _lattice(scheme, rng))
    weights: dict[str, np.ndarray] = {}
    for node in model.nodes:
        if node.op in grid.RECURRENT:
            given = [(name, model.constants[name]) for name in node.inputs[1:3] if name in model.constants]
            weights |= {name: single_valued(rng, w.shape, 0.5) for name, w in given if w.dtype == np.float32}
        elif grid.has_weights(model, node) and model.constants[node.inputs[1]].dtype == np.float32:
            drawn = _rich(part, node, {node.inputs[0]: [np.ones(1, np.float32)]}, 1.0, rng)
            drawn = drawn if drawn is not None else _coarse(part, node, {}, 0.5, rng)
            if drawn is None:
                return None
            weights[node.inputs[1]] = drawn / np.float32(2.0 ** max(0, math.frexp(np.abs(drawn).max())[1]))
    if not weights or not grid.keeps_weights(replace(model, constants={**model.constants, **weights}), scheme):
        return None
    return _with_constants(case.proto, weights)


def _with_constants(model: onnx.ModelProto, constants: Mapping[str, np.ndarray]) -> bytes:
    """`model` with other values in these initializers and Constant nodes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(numpy_helper.from_array(constants[tensor.name], tensor.name))
    for node in changed.graph.node:
        if node.op_type == "Constant" and node.output[0] in constants:
            value = numpy_helper.from_array(constants[node.output[0]])
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", value))
    return bytes(changed.SerializeToString())
