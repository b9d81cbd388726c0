"""Growth: put the nodes of a graph on the grid one after the other.

What is free among the operands of a node is drawn until the results are on the grid again. What stays off it ends
there, and what would have read it reads an input instead; only a Relu may come behind.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import onnx
from driftnet.model import graph
from driftnet.model.case import Case
from driftnet.model.declared import undeclare
from driftnet.model.graph import Node
from driftnet.model.inference import inferred
from driftnet.model.operators import WEIGHTED
from driftnet.on_grid.draw import shifted, steps_of
from driftnet.on_grid.operands import CUT, Drawn, Part, operands_for
from driftnet.oracle.ball_arithmetic.evaluate import applied
from driftnet.oracle.exemptions import underspecified
from driftnet.oracle.fixed_point.fixed_point import fixed_point_of
from driftnet.oracle.scheme import formulas
from driftnet.targets.interface import Scheme
from onnx import TensorProto, helper

TRIES = ((0.6, 51), (0.3, 15), (0.15, 5), (0.0, 3), (0.0, 1))
"""The share of weights that are not zero, and the widest range of coarse inputs; 0: one weight in a channel."""

FINEST = 2.0**-20


@dataclass(frozen=True)
class Taken:
    """A node of the part, and as it stands in its model."""

    node: Node
    proto: onnx.NodeProto


def grown(case: Case, scheme: Scheme, rng: np.random.Generator) -> tuple[Part, list[Taken]]:
    """What could be put on the grid of `scheme`, with the shapes that it has in `case`."""
    model = graph.read(case.proto)
    part = Part.begin(model, scheme, _shapes(case), min(len(case.feeds), 1 + int(rng.random() < 0.5)), rng)
    protos = [n for n in case.proto.graph.node if n.op_type != "Constant" or n.output[0] not in model.constants]
    fitting = [(node, proto) for node, proto in zip(model.nodes, protos) if _fits(part, node)]
    return part, [taken for node, proto in fitting if (taken := _take(part, node, proto, rng))]


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """The float32 tensors of the main graph whose shapes follow from those of the first feed."""
    proto = deepcopy(case.proto)
    for value in proto.graph.input:
        if value.name in case.feeds[0]:
            dims = np.shape(case.feeds[0][value.name])
            value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    del proto.graph.value_info[:]
    undeclare(proto.graph)
    whole = inferred(proto, data_prop=True).graph
    tensors = [(v.name, v.type.tensor_type) for v in (*whole.input, *whole.value_info, *whole.output)]
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
    like = {name: np.broadcast_to(np.float32(1), shape) for name, shape in part.shapes.items()}
    return (
        formulas.fits(node)
        and not underspecified.is_open(node, like, part.model.opset)
        and (part.scheme.activation_codes is not None or node.op not in formulas.FOLDED)
        and any(name in part.shapes and name not in constants for name in node.inputs)
        and all(name in part.shapes or name in constants or not name for name in node.inputs)
        and all(name in part.shapes or not name for name in node.outputs)
        and (node.op not in WEIGHTED or not node.input(2) or node.input(2) in constants)
    )


def _take(part: Part, node: Node, proto: onnx.NodeProto, rng: np.random.Generator) -> Taken | None:
    """Add `node` to the part, with results on the grid or off it; None where nothing can be drawn for it."""
    names = [_name(part, node, name) for name in node.inputs]
    placed = Node(node.op, tuple(names), node.outputs, node.attributes, node.name)
    after_rounding = any(name in part.off_grid for name in names)
    found: tuple[Drawn, Drawn, bool] | None = None
    for density, widest in TRIES:
        drawn, rich = operands_for(part, placed, density, widest, rng)
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
        return None
    drawn, results, stays = found
    part.values.update(drawn)
    part.values.update(results)
    part.off_grid.update(() if stays else results)
    changed = deepcopy(proto)
    changed.input[:] = names
    return Taken(placed, changed)


def _name(part: Part, node: Node, name: str) -> str:
    """What `node` reads in place of the tensor `name`: that, or an input where it has left the formulas."""
    return name + CUT if name in part.off_grid and node.op != "Relu" else name


def _shift(part: Part, node: Node, drawn: Drawn, results: Drawn) -> None:
    """Move results by a constant that is added to them all, where there is one, so that they are on the formulas."""
    # These add a constant to each channel, or to all.
    shiftable = node.op in ("Add", "BatchNormalization") or formulas.has_weights(part.model, node)
    added = [name for name in drawn if name in part.model.constants and (node.op == "Add" or name == node.input(2))]
    if not added or not shiftable or node.inputs.count(added[0]) > 1:
        return
    name = added[0]
    ((result, arrays),) = results.items()
    if not all(x.size for x in arrays):
        return
    low, high = (float(f([f(x) for x in arrays])) for f in (np.min, np.max))
    steps = steps_of(part.codes, part.scheme.symmetric_activations)
    by = shifted(low, high, 2.0 ** min(fixed_point_of(x).lsb for x in arrays), steps)
    if by is not None:
        drawn[name] = [np.asarray(x + np.float32(by), np.float32) for x in drawn[name]]
        results[result] = [np.asarray(x + np.float32(by), np.float32) for x in arrays]


def _results(part: Part, node: Node, values: Drawn) -> Drawn | None:
    """What `node` gives, one array a feed; None where no rule of ball arithmetic says it."""
    results: Drawn = {name: [] for name in node.outputs if name}
    for feed in range(part.feeds):
        operands = {name: values[name][feed] for name in node.inputs if name}
        balls = applied(node, operands, part.model.opset).balls
        for name, arrays in results.items():
            if name not in balls or balls[name].dtype != np.float32 or not np.isfinite(balls[name].error).all():
                return None
            arrays.append(_snapped(balls[name].midpoint))
    return results


def _snapped(x: np.ndarray) -> np.ndarray:
    """`x` in float32, without the float noise of a BatchNormalization."""
    snapped = np.rint(x / FINEST) * FINEST
    return np.asarray(snapped if formulas.near(snapped, x) else x, np.float32)


def _stays(part: Part, node: Node, results: Drawn, values: Drawn) -> bool:
    """Whether the results are on the grid, by their own step and by that of the only operand of other operators."""
    if not all(part.holds(arrays) for arrays in results.values()):
        return False
    operands = [name for name in node.inputs if name and name not in part.model.constants]
    if node.op in WEIGHTED or len(operands) != 1:
        return True
    step = np.asarray(part.step(values[operands[0]]))
    return all(formulas.multiples(x, step) for arrays in results.values() for x in arrays)
