"""A model while it is being changed, and the dice that choose how."""

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any, TypeVar

import numpy as np
import onnx
from driftnet.model.inference import inferred
from driftnet.model.inspect import Case, opset
from onnx import TensorProto, numpy_helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)

T = TypeVar("T")


class Dice:
    """Choices that are the same for the same seed on every Python."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def below(self, n: int) -> int:
        """One of 0 ... n - 1."""
        return int(self._random.random() * n)

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return options[self.below(len(options))]


class Draft:
    """A model and its feeds while they are being changed, with the tensor types that onnx inferred at the start."""

    def __init__(self, case: Case, others: Sequence[Case] = ()) -> None:
        self.others = others
        self.model = deepcopy(case.proto)
        self.graph = self.model.graph
        self.feeds: list[dict[str, np.ndarray]] = [dict(feed) for feed in case.feeds]
        self.opset = opset(self.model)
        self.values = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        infos = (*self.graph.input, *self.graph.value_info, *self.graph.output)
        self.types = {v.name: v.type.tensor_type for v in infos if v.type.HasField("tensor_type")}

    def inferred(self, *, doubtful: bool = False, **options: Any) -> onnx.ModelProto:
        """The model with its types as `driftnet.model.inference.inferred` gives them, whatever it said of them."""
        del self.graph.value_info[:]
        for output in self.graph.output:
            output.ClearField("type")
        return inferred(self.model, doubtful=doubtful, check_type=True, data_prop=True, **options)

    def dims(self, name: str) -> list[int] | None:
        """The shape of a tensor, -1 where symbolic; None when its rank is not known."""
        if name in self.values:
            return list(self.values[name].shape)
        known = name in self.types and self.types[name].HasField("shape")
        return [d.dim_value if d.HasField("dim_value") else -1 for d in self.types[name].shape.dim] if known else None

    def floats(self) -> list[str]:
        """Tensors of known rank and a float dtype that nodes compute or feeds give."""
        made = [name for node in self.graph.node for name in node.output]
        given = [v.name for v in self.graph.input if v.name not in self.values]
        return [n for n in (*given, *made) if self.element(n) in FLOATS and self.dims(n) is not None]

    def element(self, name: str) -> int:
        """The element type of a tensor, 0 when it is not known."""
        return int(self.types[name].elem_type) if name in self.types else 0

    def new(self, stem: str) -> str:
        """A name that no tensor has."""
        taken = {name for node in self.graph.node for name in (*node.input, *node.output)} | set(self.values)
        return next(name for k in range(len(taken) + 1) if (name := f"{stem}_{k}") not in taken)

    def constant(self, array: np.ndarray) -> str:
        """The name of a new initializer."""
        name = self.new("constant")
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        self.values[name] = array
        return name

    def behind(self, name: str, nodes: Sequence[onnx.NodeProto], result: str) -> None:
        """Put `nodes`, which compute `result` from tensor `name`, between it and all that read it."""
        for node in self.graph.node:
            node.input[:] = [result if x == name else x for x in node.input]
        producers = [k for k, node in enumerate(self.graph.node) if name in node.output]
        for k, node in enumerate(nodes):
            self.graph.node.insert(producers[0] + 1 + k if producers else k, node)
