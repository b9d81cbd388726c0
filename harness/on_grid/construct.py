"""Cases for the lossless tier: a connected part of a graph with all its data on the integer grid of a scheme.

Where only weights are quantized, half of the cases are the whole graph with other weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from driftnet.model import graph
from driftnet.model.case import Case
from driftnet.model.operators import RECURRENT
from driftnet.on_grid.draw import single_valued
from driftnet.on_grid.grow import Taken, grown
from driftnet.on_grid.operands import Part, coarse_weights, rich_weights
from driftnet.oracle.scheme import formulas
from driftnet.targets.interface import Scheme
from onnx import TensorProto, helper, numpy_helper

WHOLE = 0.5
SHOWN = 0.15  # of the tensors inside a part are outputs too


def construct(case: Case, scheme: Scheme, rng_seed: int) -> Case | None:
    """A case on the grid of `scheme`, calibrated on its feeds: a connected part of the graph of `case`, of its shapes.

    None where the graph holds nothing that fits. Where calibration may clip, it has no reason to with such data.
    """
    if scheme.symmetric_activations and (scheme.activation_codes or (-1,))[0] >= 0:
        return None
    rng = np.random.default_rng(rng_seed)
    origin = {**case.origin, "lossless": rng_seed}
    if scheme.activation_codes is None and rng.random() < WHOLE and (whole := _reweighted(case, scheme, rng)):
        return Case(whole, case.feeds, case.calibration, origin)
    part, taken = grown(case, scheme, rng)
    pieces = [piece for piece in _pieces(part, taken) if _tells(part, piece)]
    if not pieces:
        return None
    sizes = np.array([len(piece) ** 2 for piece in pieces])
    piece = pieces[int(rng.choice(len(pieces), p=sizes / sizes.sum()))]
    return _assembled(case, part, piece, origin, rng)


def _pieces(part: Part, nodes_taken: Sequence[Taken]) -> list[list[Taken]]:
    """The nodes of the part in connected pieces, each in topological order."""
    pieces: list[tuple[set[str], list[Taken]]] = []
    for taken in nodes_taken:
        read = [name for name in taken.node.inputs if name and name not in part.model.constants]
        names, nodes = {*read, *(name for name in taken.node.outputs if name)}, [taken]
        for piece in [piece for piece in pieces if not names.isdisjoint(piece[0])]:
            pieces.remove(piece)
            names, nodes = names | piece[0], [*piece[1], *nodes]
        pieces.append((names, nodes))
    order = {id(taken): k for k, taken in enumerate(nodes_taken)}
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
    part = Part.begin(model, scheme, {}, 1, rng)
    weights: dict[str, np.ndarray] = {}
    for node in model.nodes:
        if node.op in RECURRENT:
            given = [(name, model.constants[name]) for name in node.inputs[1:3] if name in model.constants]
            weights |= {name: single_valued(rng, w.shape, 0.5) for name, w in given if w.dtype == np.float32}
        elif formulas.has_weights(model, node) and model.constants[node.inputs[1]].dtype == np.float32:
            drawn = rich_weights(part, node, {node.inputs[0]: [np.ones(1, np.float32)]}, 1.0, rng)
            drawn = drawn if drawn is not None else coarse_weights(part, node, {}, 0.5, rng)
            if drawn is None:
                return None
            weights[node.inputs[1]] = drawn / np.float32(2.0 ** max(0, math.frexp(np.abs(drawn).max())[1]))
    changed = replace(model, constants={**model.constants, **weights})
    if not weights or not formulas.keeps_weights(changed, scheme, changed.nodes):
        return None
    return bytes(graph.with_values(case.proto, weights).SerializeToString())
