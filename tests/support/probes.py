"""Single nodes as the generator makes them, which can be run again on other data: what traits say is tried on these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from driftnet.generators import bulk
from driftnet.generators.ops.table import CODES
from driftnet.model.constants import with_constants
from driftnet.model.operators import Trait, having, parameters
from driftnet.run import reference_worker
from driftnet.targets.interface import StageError
from onnx import helper, numpy_helper

Data = Mapping[int, np.ndarray]
"""Operand's position -> its elements."""
WANTED, CASES = 3, 24


@dataclass(frozen=True, eq=False)
class Probe:
    """A node with the operands it had: its parameters stay, its data may be others.

    numbers   zero, and all numbers that attributes and parameters give
    """

    node: onnx.NodeProto
    operands: tuple[np.ndarray | None, ...]
    session: Any

    @property
    def data(self) -> dict[int, np.ndarray]:
        kept = parameters(self.node.op_type)
        return {k: x for k, x in enumerate(self.operands) if x is not None and k not in kept}

    @property
    def floats(self) -> dict[int, np.ndarray]:
        return {k: x for k, x in self.data.items() if x.dtype in (np.float32, np.float64)}

    @property
    def numbers(self) -> np.ndarray:
        stated = [a.f for a in self.node.attribute if a.type == onnx.AttributeProto.FLOAT]
        kept = [x.ravel() for k, x in enumerate(self.operands) if x is not None and k not in self.data]
        return np.concatenate([[0.0, *stated], *(x.astype(np.float64) for x in kept if x.dtype.kind in "fiu")])

    def __call__(self, data: Data) -> list[np.ndarray]:
        given = {k: np.asarray(x, self.data[k].dtype) for k, x in ({**self.data, **data}).items()}
        return [np.asarray(x) for x in self.session.run(None, {f"x{k}": x for k, x in given.items()})]

    def filled(self, numbers: Callable[[tuple[int, ...]], Any]) -> dict[int, np.ndarray]:
        """Its floating-point data with other elements."""
        return {k: np.asarray(numbers(x.shape), x.dtype) for k, x in self.floats.items()}


@cache
def probes() -> Mapping[str, list[Probe]]:
    """Operator -> nodes of it with floating-point data (where it takes any), that read tensors which can be fed."""
    found: dict[str, list[Probe]] = defaultdict(list)
    for op in (op for op in CODES if op not in having(Trait.HAS_BODY)):
        spare: list[Probe] = []
        for index in range(CASES):
            case = bulk.case(5, index, focus=(op,))
            try:
                known = with_constants(case, reference_worker.record(case.model, case.feeds)[0])
            except StageError:
                continue
            for node in case.proto.graph.node:
                if node.op_type == op and all(name in known for name in node.input if name):
                    probe = _probe(node, known, case.proto)
                    usable = probe.floats and all(x.size for x in probe.floats.values())
                    (found[op] if usable else spare).append(probe)
            if len(found[op]) >= WANTED:
                break
        found[op] = (found[op] + spare)[:WANTED]
    return found


def _probe(node: onnx.NodeProto, known: Mapping[str, np.ndarray], model: onnx.ModelProto) -> Probe:
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    alone.input[:] = [name and f"x{k}" for k, name in enumerate(node.input)]
    operands = tuple(known[name] if name else None for name in node.input)
    there = {f"x{k}": (k, x) for k, x in enumerate(operands) if x is not None}
    kept = parameters(node.op_type)
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), None)
        for name, (k, x) in there.items()
        if k not in kept
    ]
    stored = [numpy_helper.from_array(x, name) for name, (k, x) in there.items() if k in kept]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([alone], "probe", fed, made, stored)
    proto = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return Probe(node, operands, reference_worker._session(proto.SerializeToString()))


def tried() -> list[tuple[str, Probe]]:
    """Every probe on which something can be tried, with its operator: it takes floating-point data, draws nothing."""
    return [(op, p) for op, found in probes().items() if op not in having(Trait.RANDOM) for p in found if p.floats]
