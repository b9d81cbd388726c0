"""Sixty ordinary networks with weights like those of trained ones: convolutional, recurrent, transformers.

What random weights lack, these have: channels that are dead or nearly so, a few weights and channels far larger than
the others, activations most of which are zero, one table that is read at both ends, masks of minus infinity. They are
small, and differ by their seed in layers, norms, activations, sizes and names. Same seed, same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from driftnet.model.case import Case
from onnx import TensorProto

from tests.support.layers import Net, attention, batch_norm, conv, gelu, group_norm, layer_norm, linear, noise, silu

EACH = 20
Activation = Callable[[Net, str], str]
ACTIVATIONS: tuple[Activation, ...] = (
    lambda net, x: net("Relu", x),
    lambda net, x: net("Clip", x, net.constant(0.0), net.constant(6.0)),
    lambda net, x: net("LeakyRelu", x, alpha=0.1),
    silu,
    lambda net, x: net("HardSwish", x),
    lambda net, x: net("Elu", x),
    lambda net, x: net("Mul", x, net("Tanh", net("Softplus", x))),
    gelu,
)


def ordinary(first: int = 0) -> Iterator[tuple[str, Case]]:
    """(name, case) of all of them, by turns of each kind; another `first` seed makes others."""
    for seed in range(first, first + EACH):
        for kind, make in (("cnn", _convolutional), ("rnn", _recurrent), ("transformer", _transformer)):
            yield f"{kind} {seed}", make(seed)


class Trained(Net):
    """A net whose weights and biases look as training leaves them; in every fourth some rows of weights are dead."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dies = seed % 4 == 1

    def weight(self, *shape: int, fan: float, name: str = "weight") -> str:
        """As of a Net; a matrix or kernel has outliers, rows and columns of several sizes, and dead ones."""
        x = self.rng.standard_normal(shape) / np.sqrt(fan)
        if len(shape) > 1 and min(shape[:2]) > 1:
            x *= np.exp(0.4 * self.rng.standard_normal((shape[0], *[1] * (len(shape) - 1))))
            x[self.rng.random(shape) < 0.002] *= 12
            if self.dies:
                x[self.rng.random(shape[0]) < 0.1] *= self.rng.choice([0.0, 1e-38, 1e-9, 1e-4])
        return self.constant(x, name=name)

    def bias(self, *shape: int) -> str:
        """Some are so low that a Relu behind them is always zero."""
        x = 0.1 * self.rng.standard_normal(shape) - 0.05
        return self.constant(np.where(self.rng.random(shape) < 0.08, x - 3, x), name="bias")

    def gain(self, *shape: int) -> str:
        """Scales of a norm: around 1, a few large, a few zero."""
        x = np.abs(1 + 0.2 * self.rng.standard_normal(shape))
        x[self.rng.random(shape) < 0.03] *= 6
        x[self.rng.random(shape) < 0.03] = 0
        return self.constant(x, name="gain")


def _convolutional(seed: int) -> Case:
    """A classifier, detector or filter of pictures [1, 3, s, s] or sounds [1, 1, s]."""
    net = Trained(seed)
    rng, act = net.rng, ACTIVATIONS[seed % len(ACTIVATIONS)]
    flat = seed % 4 == 3  # along time only
    size, width = (
        (int(rng.choice([160, 256])), 12) if flat else (int(rng.choice([16, 24, 32])), int(rng.choice([8, 12, 16])))
    )
    shape = (1, 1, size) if flat else (1, 3, size, size)
    kernel = (int(rng.choice([3, 5, 7])),) if flat else (3, 3)
    with net.scope("stem"):
        x = act(net, batch_norm(net, conv(net, "image", shape[1], width, kernel, strides=[2] * len(kernel)), width))
    size //= 2
    start, begun = x, size
    for number in range(int(rng.integers(2, 5))):
        with net.scope(f"block.{number}"):
            style = (seed + number) % 4
            if style == 0:  # a residual block
                h = act(net, batch_norm(net, conv(net, x, width, width, kernel), width))
                x = act(net, net("Add", batch_norm(net, conv(net, h, width, width, kernel), width), x))
            elif style == 1:  # depth-wise, squeezed and excited
                h = act(net, conv(net, x, width, 2 * width, [1] * len(kernel)))
                h = act(net, conv(net, h, 2 * width, 2 * width, kernel, group=2 * width))
                squeezed = net("GlobalAveragePool", h)
                gate = net("Relu", conv(net, squeezed, 2 * width, 4, [1] * len(kernel)))
                gate = conv(net, gate, 4, 2 * width, [1] * len(kernel))
                gate = net("HardSigmoid", gate) if seed % 2 else net("Sigmoid", gate)
                x = net("Add", x, conv(net, net("Mul", h, gate), 2 * width, width, [1] * len(kernel)))
            elif style == 2:  # dense: what was there and what is new, side by side
                h = act(net, group_norm(net, conv(net, x, width, width, kernel), 4, (1, width, *[size] * len(kernel))))
                x = conv(net, net("Concat", x, h, axis=1), 2 * width, width, [1] * len(kernel))
            else:  # pooled, dilated
                h = net(
                    "MaxPool", x, kernel_shape=[3] * len(kernel), strides=[1] * len(kernel), pads=[1] * 2 * len(kernel)
                )
                pads = [k // 2 * 2 for k in kernel] * 2
                x = act(net, conv(net, h, width, width, kernel, dilations=[2] * len(kernel), pads=pads))
    form = seed % 3
    image = {"image": (TensorProto.FLOAT, shape)}

    def feed(rng: np.random.Generator) -> dict[str, np.ndarray]:
        x = np.cumsum(rng.standard_normal(shape), axis=-1) / np.sqrt(shape[-1])
        return {"image": np.asarray(np.maximum(x, -0.5) if seed % 2 else x, np.float32)}

    if form == 0:  # classes
        y = net("Flatten", net("GlobalAveragePool", x), axis=1)
        y = net("Softmax", net("Gemm", y, net.weight(10, width, fan=width), net.bias(10), transB=1), axis=-1)
        return net.case(image, {"classes": (y, (1, 10))}, feed)
    if form == 1:  # boxes and scores
        heads = [conv(net, x, width, out, [1] * len(kernel)) for out in (4, 6)]
        boxes, scores = (
            net("Transpose", net("Reshape", h, net.integers(1, n, -1)), perm=(0, 2, 1)) for h, n in zip(heads, (4, 6))
        )
        places = begun ** len(kernel)
        boxes = net("Mul", net("Exp", net("Clip", boxes, net.constant(-4.0), net.constant(4.0))), net.constant(8.0))
        y = net("Concat", boxes, net("Sigmoid", scores), axis=2)
        return net.case(image, {"found": (y, (1, places, 10))}, feed)
    skip = conv(net, start, width, width, [1] * len(kernel))
    up = [2] * len(kernel)
    if seed % 2:
        weight = net.weight(width, width, *up, fan=width)
        y = net("ConvTranspose", net("Add", x, skip), weight, net.bias(width), kernel_shape=up, strides=up)
    else:
        scales = net.constant([1, 1, *up], name="scales")
        y = net("Resize", net("Add", x, skip), "", scales, mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip
    y = net("Tanh", conv(net, act(net, y), width, 1, kernel))
    return net.case(image, {"mask": (y, (1, 1, *[2 * begun] * len(kernel)))}, feed)


def _recurrent(seed: int) -> Case:
    """A tagger of tokens, or a net on frames: recurrent layers, on convolutions in some, under attention in others."""
    net = Trained(100 + seed)
    rng = net.rng
    length, width, hidden = int(rng.integers(6, 16)), 12, int(rng.choice([8, 12, 16]))
    declared = "T" if seed % 5 == 4 else length
    tokens = seed % 3 == 0
    op, gates = (("LSTM", 4), ("GRU", 3))[seed % 2]
    both = seed % 4 >= 2
    ways = 2 if both else 1
    if tokens:
        x = net("Transpose", net("Gather", net.weight(40, width, fan=1), "ids"), perm=(1, 0, 2))
        inputs = {"ids": (TensorProto.INT64, (1, declared))}
    else:
        inputs = {"frames": (TensorProto.FLOAT, (1, declared, width))}
        x = "frames"
        if seed % 3 == 1:
            x = net("Transpose", x, perm=(0, 2, 1))
            x = net("Relu", batch_norm(net, conv(net, x, width, width, (3,)), width))
            x = net("Transpose", x, perm=(2, 0, 1))
        else:
            x = net("Transpose", layer_norm(net, x, (width,)), perm=(1, 0, 2))
    outputs: dict[str, tuple[str, tuple[int | str, ...]]] = {}
    into = width
    for layer in range(1 + seed % 3):
        with net.scope(f"layer.{layer}"):
            weights = [
                net.constant(net.rng.standard_normal((ways, gates * hidden, n)) / np.sqrt(n)) for n in (into, hidden)
            ]
            bias = net.constant(0.1 * net.rng.standard_normal((ways, 2 * gates * hidden)) + 0.3)
            state = net.constant(np.zeros((ways, 1, hidden)))
            states = (state,) * (2 if op == "LSTM" else 1)
            more = {"linear_before_reset": 1} if op == "GRU" else {}
            y, last, *_ = net(op, x, *weights, bias, "", *states, outputs=2, hidden_size=hidden,
                              direction="bidirectional" if both else "forward", **more)  # fmt: skip
            x = net("Reshape", net("Transpose", y, perm=(0, 2, 1, 3)), net.integers(0, 1, ways * hidden))
            into = ways * hidden
    outputs["state"] = (last, (ways, 1, hidden))
    x = net("Transpose", x, perm=(1, 0, 2))
    if seed % 4 == 1:
        scores = linear(net, net("Tanh", linear(net, x, into, 8)), 8, 1)
        share = net("Softmax", scores, axis=1)
        y = net("ReduceSum", net("Mul", share, x), net.integers(1), keepdims=0)
        outputs["y"] = (net("Sigmoid", linear(net, y, into, 5)), (1, 5))
    else:
        outputs["y"] = (net("LogSoftmax", linear(net, x, into, 9), axis=-1), (1, declared, 9))

    def feed(rng: np.random.Generator) -> dict[str, np.ndarray]:
        if tokens:
            return {"ids": np.minimum(rng.zipf(1.4, (1, length)), 39).astype(np.int64)}
        return {"frames": np.maximum(noise(rng, 1, length, width), -0.2)}

    return net.case(inputs, outputs, feed)


def _masked_attention(net: Net, x: str, width: int, heads: int, mask: str) -> str:
    """Self-attention in which a mask is added to the scores, of minus infinity where nobody may look."""
    with net.scope("attention"):
        packed = linear(net, x, width, 3 * width)
        q, k, v = net("Split", packed, net.integers(width, width, width), outputs=3, axis=-1)
        perms = (0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)
        q, k, v = (
            net("Transpose", net("Reshape", part, net.integers(0, -1, heads, width // heads)), perm=perm)
            for part, perm in zip((q, k, v), perms)
        )
        scores = net("Mul", net("MatMul", q, k), net.constant(1 / np.sqrt(width / heads)))
        share = net("Softmax", net("Add", scores, mask), axis=-1)
        mixed = net("Reshape", net("Transpose", net("MatMul", share, v), perm=(0, 2, 1, 3)), net.integers(0, -1, width))
        return linear(net, mixed, width, width)


def _root_mean_square_norm(net: Net, x: str, width: int) -> str:
    mean = net("ReduceMean", net("Pow", x, net.constant(2.0)), axes=[-1])
    root = net("Reciprocal", net("Sqrt", net("Add", mean, net.constant(1e-6))))
    return net("Mul", net.gain(width), net("Mul", x, root))


def _transformer(seed: int) -> Case:
    """An encoder or a causal decoder of tokens, of patches of a picture, or of frames."""
    net = Trained(200 + seed)
    rng = net.rng
    width, heads, length, words = int(rng.choice([16, 24])), 2, int(rng.integers(6, 14)), 48
    kind = ("tokens", "patches", "frames")[seed % 3]
    norm = (
        lambda x: net("LayerNormalization", x, net.gain(width), net.bias(width), epsilon=1e-5),
        lambda x: layer_norm(net, x, (width,)),
        lambda x: _root_mean_square_norm(net, x, width),
    )[seed // 3 % 3]
    if kind == "tokens":
        table = net.weight(words, width, fan=4)
        inputs = {"ids": (TensorProto.INT64, (1, length))}
        x = net("Gather", table, "ids")
    elif kind == "patches":
        inputs = {"image": (TensorProto.FLOAT, (1, 3, 16, 16))}
        length = 16
        x = net(
            "Conv", "image", net.weight(width, 3, 4, 4, fan=48), net.bias(width), kernel_shape=[4, 4], strides=[4, 4]
        )
        x = net("Transpose", net("Reshape", x, net.integers(1, width, length)), perm=(0, 2, 1))
    else:
        inputs = {"frames": (TensorProto.FLOAT, (1, length, 20))}
        x = linear(net, "frames", 20, width)
    x = net("Add", x, net.weight(1, length, width, fan=4))
    causal = np.triu(np.full((length, length), -np.inf if seed % 2 else -1e4), 1)[None, None]
    mask = net.constant(causal, name="mask") if seed % 4 else ""
    for number in range(int(rng.integers(1, 4))):
        with net.scope(f"layer.{number}"):
            h = norm(x)
            h = _masked_attention(net, h, width, heads, mask) if mask else attention(net, h, width, heads)
            x = net("Add", x, h)
            h = linear(net, norm(x), width, 2 * width)
            if seed % 5 == 2:  # gated
                h = net("Mul", silu(net, h), linear(net, norm(x), width, 2 * width))
            elif seed % 5 == 3:
                h = net("Relu", h)
            else:
                h = gelu(net, h)
            x = net("Add", x, linear(net, h, 2 * width, width))
    x = norm(x)
    if kind == "tokens":  # the table that was read at the beginning is read again
        y = net("MatMul", x, net("Transpose", table, perm=(1, 0)))
        outputs = {"logits": (y, (1, length, words))}
    elif kind == "patches":
        y = net("Softmax", linear(net, net("ReduceMean", x, axes=[1], keepdims=0), width, 7), axis=-1)
        outputs = {"classes": (y, (1, 7))}
    else:
        outputs = {"y": (net("Sigmoid", linear(net, x, width, 5)), (1, length, 5))}

    def feed(rng: np.random.Generator) -> dict[str, np.ndarray]:
        ((name, (_, shape)),) = inputs.items()
        if name == "ids":
            return {name: np.minimum(rng.zipf(1.4, shape), words - 1).astype(np.int64)}
        x = noise(rng, *shape)
        x[..., 0] *= 8  # a feature far larger than the others
        return {name: x}

    return net.case(inputs, outputs, feed)
