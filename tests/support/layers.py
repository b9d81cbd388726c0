"""A graph being written down layer by layer, with the nodes and names that torch.onnx gives them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from driftnet.model.case import Case
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
CALIBRATION_FEEDS = 3


class Net:
    """A graph being written down: nodes are named by scope and operator, as torch.onnx names them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._scope: list[str] = []
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self._scope.append(name)
        yield
        self._scope.pop()

    def __call__(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the result of a new node; a list of names where it has several."""
        name = self._fresh(op_type)
        results = [f"{name}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, results, name=name, **attributes))
        return results[0] if outputs == 1 else results

    def constant(self, value: Any, dtype: Any = np.float32, name: str = "constant") -> str:
        name = self._fresh(name)
        self.constants[name] = np.asarray(value, dtype)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64, "shape")

    def weight(self, *shape: int, fan: float, name: str = "weight") -> str:
        """Normally distributed, scaled so that `fan` inputs of unit variance give a result of unit variance."""
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan), name=name)

    def bias(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape) * 0.05, name="bias")

    def gain(self, *shape: int) -> str:
        """Scales of a norm, around 1."""
        return self.constant(1 + self.rng.standard_normal(shape) * 0.1, name="gain")

    def _fresh(self, name: str) -> str:
        stem = "/" + "/".join([*self._scope, name])
        self._taken[stem] += 1
        return stem if self._taken[stem] == 1 else f"{stem}_{self._taken[stem] - 1}"

    def case(
        self,
        inputs: Mapping[str, tuple[int, Sequence[int | str]]],
        outputs: Mapping[str, tuple[str, Sequence[int | str]]],
        feed: Callable[[np.random.Generator], dict[str, np.ndarray]],
    ) -> Case:
        """The finished model. inputs: {name: (element type, shape)}; outputs: {name: (made by, shape)}, all float."""
        names = {made: name for name, (made, _) in outputs.items()}
        for node in self.nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        graph = helper.make_graph(
            self.nodes,
            "main_graph",
            [helper.make_tensor_value_info(name, *declared) for name, declared in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()],
            [numpy_helper.from_array(x, name) for name, x in self.constants.items()],
        )
        model = helper.make_model(
            graph, producer_name="pytorch", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        rng = np.random.default_rng(0)
        feeds = [feed(rng) for _ in range(1 + CALIBRATION_FEEDS)]
        return Case(model.SerializeToString(), (feeds[0],), tuple(feeds[1:]))


def noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normally distributed float32."""
    return rng.standard_normal(shape).astype(np.float32)


def conv(
    net: Net, x: str, into: int, out: int, kernel: Sequence[int], *, group: int = 1, gain: float = 1, **attributes: Any
) -> str:
    """A convolution with bias; padded to keep its size unless `pads` says otherwise. gain: 2 after a Relu (He 2015)."""
    fan = into // group * int(np.prod(kernel)) / gain
    attributes.setdefault("pads", [k // 2 for k in kernel] * 2)
    weight = net.weight(out, into // group, *kernel, fan=fan)
    return net("Conv", x, weight, net.bias(out), group=group, kernel_shape=list(kernel), **attributes)


def linear(net: Net, x: str, into: int, out: int) -> str:
    """torch.nn.Linear on a tensor of any rank: MatMul and Add."""
    return net("Add", net.bias(out), net("MatMul", x, net.weight(into, out, fan=into)))


def group_norm(net: Net, x: str, groups: int, shape: Sequence[int]) -> str:
    """torch.nn.GroupNorm on [N, C, ...], as the exporter writes it for opsets without the operator."""
    channels, ones = shape[1], [1] * (len(shape) - 2)
    with net.scope("norm"):
        flat = net("Reshape", x, net.integers(0, groups, -1))
        ones_and_zeros = net.constant(np.ones(groups)), net.constant(np.zeros(groups))
        norm = net("InstanceNormalization", flat, *ones_and_zeros, epsilon=1e-5)
        back = net("Reshape", norm, net.integers(*shape))
        return net("Add", net("Mul", back, net.gain(channels, *ones)), net.bias(channels, *ones))


def batch_norm(net: Net, x: str, channels: int) -> str:
    """torch.nn.BatchNorm2d in evaluation, not folded."""
    variance = net.constant(net.rng.uniform(0.5, 1.5, channels), name="running_var")
    statistics = net.gain(channels), net.bias(channels), net.bias(channels), variance
    return net("BatchNormalization", x, *statistics, epsilon=1e-5, momentum=0.9)


def layer_norm(net: Net, x: str, shape: Sequence[int]) -> str:
    """torch.nn.LayerNorm over the last dims, as written before opset 17."""
    axes = list(range(-len(shape), 0))
    with net.scope("norm"):
        centred = net("Sub", x, net("ReduceMean", x, axes=axes))
        variance = net("ReduceMean", net("Pow", centred, net.constant(2.0)), axes=axes)
        unit = net("Div", centred, net("Sqrt", net("Add", variance, net.constant(1e-5))))
        return net("Add", net("Mul", unit, net.gain(*shape)), net.bias(*shape))


def silu(net: Net, x: str) -> str:
    """x sigmoid(x), as two nodes."""
    return net("Mul", x, net("Sigmoid", x))


def gelu(net: Net, x: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2, as five nodes."""
    erf = net("Erf", net("Div", x, net.constant(np.sqrt(2))))
    return net("Mul", net("Mul", x, net("Add", erf, net.constant(1.0))), net.constant(0.5))


def attention(net: Net, x: str, width: int, heads: int) -> str:
    """Multi-head self-attention on [N, T, width], by hand."""
    with net.scope("attention"):

        def split(projected: str, perm: Sequence[int]) -> str:
            return net("Transpose", net("Reshape", projected, net.integers(0, -1, heads, width // heads)), perm=perm)

        q, k, v = (linear(net, x, width, width) for _ in "qkv")
        scores = net("MatMul", split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)))
        weights = net("Softmax", net("Div", scores, net.constant(np.sqrt(width / heads))), axis=-1)
        mixed = net("Transpose", net("MatMul", weights, split(v, (0, 2, 1, 3))), perm=(0, 2, 1, 3))
        return linear(net, net("Reshape", mixed, net.integers(0, -1, width)), width, width)
