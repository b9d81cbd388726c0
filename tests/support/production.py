"""Models like those people ship, built freshly: architecture and node names as exporters write them, weights random.

Every builder returns a Case: a model, feeds that fit it, and feeds to calibrate on. Sizes are parameters; the defaults
are those of production, SMALL holds variants for tests. Same arguments, same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from driftnet.model.case import Case
from onnx import TensorProto

from tests.support.layers import Net, attention, batch_norm, conv, gelu, group_norm, layer_norm, linear, noise, silu


def unet(
    *,
    size: int = 64,
    base: int = 32,
    factors: Sequence[int] = (1, 2, 4),
    groups: int = 8,
    heads: int = 4,
    seed: int = 0,
) -> Case:
    """A denoising UNet: [1, 4, size, size] and a time step [1]; attention where the image is smallest."""
    net, time_width = Net(seed), 4 * base

    def block(x: str, into: int, out: int, size: int) -> str:
        shape = (1, into, size, size)
        h = conv(net, silu(net, group_norm(net, x, groups, shape)), into, out, (3, 3))
        shift = net("Gemm", silu(net, time), net.weight(out, time_width, fan=time_width), net.bias(out), transB=1)
        h = net("Add", h, net("Unsqueeze", shift, net.integers(2, 3)))
        h = conv(net, silu(net, group_norm(net, h, groups, (1, out, size, size))), out, out, (3, 3))
        return net("Add", x if into == out else conv(net, x, into, out, (1, 1)), h)

    def attended(x: str, width: int, size: int) -> str:
        flat = net("Reshape", group_norm(net, x, groups, (1, width, size, size)), net.integers(0, width, -1))
        mixed = attention(net, net("Transpose", flat, perm=(0, 2, 1)), width, heads)
        back = net("Reshape", net("Transpose", mixed, perm=(0, 2, 1)), net.integers(0, width, size, size))
        return net("Add", back, x)

    with net.scope("time"):
        frequencies = net.constant(np.exp(-np.log(10_000) * np.arange(base // 2) / (base // 2))[None])
        angles = net("Mul", net("Unsqueeze", "timestep", net.integers(1)), frequencies)
        time = net("Concat", net("Cos", angles), net("Sin", angles), axis=1)
        time = net("Gemm", time, net.weight(time_width, base, fan=base), net.bias(time_width), transB=1)
        time = silu(net, time)
        time = net("Gemm", time, net.weight(time_width, time_width, fan=time_width), net.bias(time_width), transB=1)
    widths, now, width = [base * f for f in factors], size, base
    with net.scope("in"):
        x = conv(net, "sample", 4, base, (3, 3))
    skips = []
    for level, out in enumerate(widths):
        with net.scope(f"down.{level}"):
            x, width = block(x, width, out, now), out
            if level == len(widths) - 1:
                x = attended(x, width, now)
            skips.append((x, width))
            if level < len(widths) - 1:
                x, now = conv(net, x, width, width, (3, 3), strides=[2, 2]), now // 2
    with net.scope("mid"):
        x = block(attended(block(x, width, width, now), width, now), width, width, now)
    for level, out in reversed(list(enumerate(widths))):
        with net.scope(f"up.{level}"):
            skip, skip_width = skips[level]
            x, width = block(net("Concat", x, skip, axis=1), width + skip_width, out, now), out
            if level == len(widths) - 1:
                x = attended(x, width, now)
            if level:
                scales = net.constant([1, 1, 2, 2], name="scales")
                x = net("Resize", x, "", scales, mode="nearest", nearest_mode="floor",
                        coordinate_transformation_mode="asymmetric")  # fmt: skip
                x, now = conv(net, x, width, width, (3, 3)), now * 2
    with net.scope("out"):
        x = conv(net, silu(net, group_norm(net, x, groups, (1, width, now, now))), width, 4, (3, 3))
    shape = (1, 4, size, size)
    return net.case(
        {"sample": (TensorProto.FLOAT, shape), "timestep": (TensorProto.FLOAT, (1,))},
        {"noise": (x, shape)},
        lambda rng: {"sample": noise(rng, *shape), "timestep": rng.integers(0, 1000, 1).astype(np.float32)},
    )


def dual_path_rnn(
    *, samples: int = 4000, width: int = 64, hidden: int = 64, chunk: int = 50, blocks: int = 3, seed: int = 0
) -> Case:
    """A DualPathRNN separator of two speakers: a waveform [1, 1, samples] to [1, 2, samples].

    Frames are cut into half-overlapping chunks; in each block one LSTM goes along a chunk and one across the chunks.
    """
    net, frames = Net(seed), samples // 8 - 1  # kernel 16, stride 8
    hop = chunk // 2
    count = -(-frames // hop) + 1  # chunks that cover the frames and half a chunk before and after
    padded = (count + 1) * hop

    def half(x: str, *, intra: bool) -> str:
        """Along the chunk: a batch of `count` sequences [chunk]; across: a batch of `chunk` sequences [count]."""
        length, batch = (chunk, count) if intra else (count, chunk)
        with net.scope("intra" if intra else "inter"):
            perm = (2, 0, 3, 1) if intra else (3, 0, 2, 1)
            sequence = net("Reshape", net("Transpose", x, perm=perm), net.integers(length, batch, width))
            weights = [net.weight(2, 4 * hidden, fan, fan=fan) for fan in (width, hidden)]
            state = net.constant(np.zeros((2, batch, hidden)))
            y = net("LSTM", sequence, *weights, net.bias(2, 8 * hidden), "", state, state,
                    outputs=3, hidden_size=hidden, direction="bidirectional")[0]  # fmt: skip
            y = net("Reshape", net("Transpose", y, perm=(0, 2, 1, 3)), net.integers(length, batch, 2 * hidden))
            y = net("Reshape", linear(net, y, 2 * hidden, width), net.integers(length, 1, batch, width))
            y = net("Transpose", y, perm=(1, 3, 0, 2) if intra else (1, 3, 2, 0))
            return net("Add", x, group_norm(net, y, 1, (1, width, chunk, count)))

    with net.scope("encoder"):
        encoded = net("Conv", "mixture", net.weight(width, 1, 16, fan=16), kernel_shape=[16], strides=[8])
        encoded = net("Relu", encoded)
    with net.scope("separator"):
        x = conv(net, group_norm(net, encoded, 1, (1, width, frames)), width, width, (1,))
        x = net("Pad", x, net.integers(0, 0, hop, 0, 0, padded - hop - frames))
        first = net("Slice", x, net.integers(0), net.integers(padded - hop), net.integers(2))
        second = net("Slice", x, net.integers(hop), net.integers(padded), net.integers(2))
        parts = [net("Reshape", part, net.integers(1, width, count, hop)) for part in (first, second)]
        x = net("Transpose", net("Concat", *parts, axis=3), perm=(0, 1, 3, 2))
        for number in range(blocks):
            with net.scope(f"block.{number}"):
                x = half(half(x, intra=True), intra=False)
        x = conv(net, net("PRelu", x, net.constant([0.25])), width, 2 * width, (1, 1))
        x = net("Reshape", net("Transpose", x, perm=(0, 1, 3, 2)), net.integers(2, width, count, chunk))
        halves = net("Split", x, net.integers(hop, hop), outputs=2, axis=3)
        flat = [net("Reshape", part, net.integers(2, width, count * hop)) for part in halves]
        first = net("Slice", flat[0], net.integers(hop), net.integers(hop + frames), net.integers(2))
        second = net("Slice", flat[1], net.integers(0), net.integers(frames), net.integers(2))
        mask = net("Relu", conv(net, net("Add", first, second), width, width, (1,)))
    with net.scope("decoder"):
        separated = net("Mul", mask, encoded)
        sources = net("ConvTranspose", separated, net.weight(width, 1, 16, fan=width), kernel_shape=[16], strides=[8])
        sources = net("Reshape", sources, net.integers(1, 2, -1))
    return net.case(
        {"mixture": (TensorProto.FLOAT, (1, 1, samples))},
        {"sources": (sources, (1, 2, 8 * frames + 8))},
        lambda rng: {"mixture": 0.5 * noise(rng, 1, 1, samples)},
    )


def speech_enhancer(
    *,
    frequencies: int = 257,
    bands: int = 129,
    channels: int = 16,
    blocks: int = 3,
    frames: int | str = 1,
    seed: int = 0,
) -> Case:
    """A GTCRN-like speech enhancer for streaming: a spectrum [1, frequencies, frames, 2] and the states of its layers.

    Strided convolutions along frequency, dilated depth-wise ones along time that are given the frames before, a gate by
    a GRU over time, a dual-path GRU, and the mirror image with grouped ConvTranspose and BatchNormalization.
    """
    net, low = Net(seed), frequencies // 4
    narrow = ((bands + 1) // 2 + 1) // 2  # bands after two strides of 2
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {}
    outputs: dict[str, tuple[str, Sequence[int | str]]] = {}

    def state(name: str, *shape: int) -> str:
        inputs[name] = (TensorProto.FLOAT, shape)
        return name

    def gru(x: str, into: int, hidden: int, start: str, *, both: bool = False) -> tuple[str, str]:
        """[T, N, into] to [T, N, directions * hidden]; and the last state."""
        ways = 2 if both else 1
        weights = [net.weight(ways, 3 * hidden, fan, fan=fan) for fan in (into, hidden)]
        y, last = net("GRU", x, *weights, net.bias(ways, 6 * hidden), "", start, outputs=2, hidden_size=hidden,
                      linear_before_reset=1, direction="bidirectional" if both else "forward")  # fmt: skip
        flat = net("Reshape", net("Transpose", y, perm=(0, 2, 1, 3)), net.integers(0, 0, ways * hidden))
        return flat, last

    def prelu(x: str) -> str:
        return net("PRelu", x, net.constant(np.full((1, 1, 1), 0.25)))

    def up(x: str, into: int, out: int, kernel: Sequence[int], *, group: int = 1, **attributes: Any) -> str:
        weight = net.weight(into, out // group, *kernel, fan=into // group * int(np.prod(kernel)) // 2)
        x = net("ConvTranspose", x, weight, net.bias(out), group=group, kernel_shape=list(kernel), **attributes)
        return batch_norm(net, x, out)

    def temporal(x: str, number: int, dilation: int, *, transposed: bool) -> str:
        """Half of the channels go through three convolutions and a gate; then the halves are shuffled."""
        name, half, reach = f"{'decoder' if transposed else 'encoder'}_{number}", channels // 2, 2 * dilation
        with net.scope(name):
            one, two = net("Split", x, net.integers(half, half), outputs=2, axis=1)
            h = prelu(batch_norm(net, conv(net, one, half, channels, (1, 1)), channels))
            h = net("Concat", state(f"conv_{name}", 1, channels, reach, narrow), h, axis=2)
            outputs[f"conv_{name}_out"] = (
                net("Slice", h, net.integers(-reach), net.integers(2**31 - 1), net.integers(2)),
                (1, channels, reach, narrow),
            )
            if transposed:
                h = up(h, channels, channels, (3, 3), group=channels, dilations=[dilation, 1],
                       pads=[reach, 1, reach, 1])  # fmt: skip
            else:
                h = conv(net, h, channels, channels, (3, 3), group=channels, dilations=[dilation, 1], pads=[0, 1, 0, 1])
                h = batch_norm(net, h, channels)
            h = batch_norm(net, conv(net, prelu(h), channels, half, (1, 1)), half)
            energy = net("ReduceMean", net("Pow", h, net.constant(2.0)), axes=[-1], keepdims=0)
            gate, last = gru(
                net("Transpose", energy, perm=(2, 0, 1)), half, channels, state(f"gate_{name}", 1, 1, channels)
            )
            outputs[f"gate_{name}_out"] = (last, (1, 1, channels))
            gate = net("Transpose", net("Sigmoid", linear(net, gate, channels, half)), perm=(1, 2, 0))
            h = net("Mul", h, net("Unsqueeze", gate, net.integers(-1)))
            pair = net("Concat", *(net("Unsqueeze", part, net.integers(2)) for part in (h, two)), axis=2)
            return net("Reshape", pair, net.integers(1, channels, -1, narrow))

    def dual_path(x: str, number: int) -> str:
        """A GRU along frequency, one along time that carries its state, each with a norm and a residual."""
        with net.scope(f"dual_{number}"):
            x = net("Transpose", x, perm=(0, 2, 3, 1))  # [1, frames, narrow, channels]
            with net.scope("intra"):
                h = net("Transpose", net("Reshape", x, net.integers(-1, narrow, channels)), perm=(1, 0, 2))
                groups = net("Split", h, net.integers(channels // 2, channels // 2), outputs=2, axis=2)
                h = net("Concat", *(gru(g, channels // 2, channels // 4, "", both=True)[0] for g in groups), axis=2)
                h = net("Reshape", net("Transpose", h, perm=(1, 0, 2)), net.integers(1, -1, narrow, channels))
                x = net("Add", x, layer_norm(net, linear(net, h, channels, channels), (narrow, channels)))
            with net.scope("inter"):
                h = net("Reshape", x, net.integers(-1, narrow, channels))
                h, last = gru(h, channels, channels, state(f"inter_{number}", 1, narrow, channels))
                outputs[f"inter_{number}_out"] = (last, (1, narrow, channels))
                h = net("Reshape", h, net.integers(1, -1, narrow, channels))
                x = net("Add", x, layer_norm(net, linear(net, h, channels, channels), (narrow, channels)))
            return net("Transpose", x, perm=(0, 3, 1, 2))

    inputs["spectrum"] = (TensorProto.FLOAT, (1, frequencies, frames, 2))
    with net.scope("features"):
        image = net("Transpose", "spectrum", perm=(0, 3, 2, 1))
        power = net("ReduceSum", net("Mul", image, image), net.integers(1), keepdims=1)
        x = net("Concat", net("Sqrt", net("Add", power, net.constant(1e-12))), image, axis=1)
        kept = net("Slice", x, net.integers(0), net.integers(low), net.integers(3))
        rest = net("Slice", x, net.integers(low), net.integers(frequencies), net.integers(3))
        merged = net("MatMul", rest, net.weight(frequencies - low, bands - low, fan=frequencies - low))
        x = net("Concat", kept, merged, axis=3)
    with net.scope("encoder"):
        first = prelu(batch_norm(net, conv(net, x, 3, channels, (1, 5), strides=[1, 2]), channels))
        second = conv(net, first, channels, channels, (1, 5), strides=[1, 2], group=2)
        skips = [prelu(batch_norm(net, second, channels))]
    for number in range(blocks):
        skips.append(temporal(skips[-1], number, 2**number, transposed=False))
    x = dual_path(dual_path(skips[-1], 0), 1)
    for number in reversed(range(blocks)):
        x = temporal(net("Add", x, skips[number + 1]), number, 2**number, transposed=True)
    with net.scope("decoder"):
        x = up(net("Add", x, skips[0]), channels, channels, (1, 5), group=2, strides=[1, 2], pads=[0, 2, 0, 2],
               output_padding=[0, 1 - (bands + 1) // 2 % 2])  # fmt: skip
        x = up(net("Add", prelu(x), first), channels, 2, (1, 5), strides=[1, 2], pads=[0, 2, 0, 2],
               output_padding=[0, 1 - bands % 2])  # fmt: skip
        x = net("Tanh", x)
    with net.scope("mask"):
        kept = net("Slice", x, net.integers(0), net.integers(low), net.integers(3))
        rest = net("Slice", x, net.integers(low), net.integers(bands), net.integers(3))
        split = net("MatMul", rest, net.weight(bands - low, frequencies - low, fan=bands - low))
        mask = net("Split", net("Concat", kept, split, axis=3), net.integers(1, 1), outputs=2, axis=1)
        real, imaginary = net("Split", image, net.integers(1, 1), outputs=2, axis=1)
        new_real = net("Sub", net("Mul", real, mask[0]), net("Mul", imaginary, mask[1]))
        new_imaginary = net("Add", net("Mul", real, mask[1]), net("Mul", imaginary, mask[0]))
        enhanced = net("Transpose", net("Concat", new_real, new_imaginary, axis=1), perm=(0, 3, 2, 1))
    outputs["enhanced"] = (enhanced, inputs["spectrum"][1])

    def feed(rng: np.random.Generator) -> dict[str, np.ndarray]:
        sizes = {name: [d if isinstance(d, int) else 4 for d in shape] for name, (_, shape) in inputs.items()}
        return {name: 0.3 * noise(rng, *shape) for name, shape in sizes.items()}

    return net.case(inputs, outputs, feed)


MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repetitions, stride of each stage (Sandler et al. 2018, table 2)."""


def mobilenet_v2(*, size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0) -> Case:
    """MobileNetV2 with its norms folded into the convolutions, as torch.onnx exports it for evaluation."""
    net, image = Net(seed), (1, 3, size, size)

    def clipped(x: str) -> str:
        return net("Clip", x, net.constant(0.0), net.constant(6.0))

    def scaled(channels: int) -> int:
        return max(8, int(channels * width + 4) // 8 * 8)

    with net.scope("features.0"):
        into = scaled(32)
        x = clipped(conv(net, "image", 3, into, (3, 3), strides=[2, 2]))
    stages = [(t, scaled(c), s if i == 0 else 1) for t, c, n, s in MOBILENET_V2 for i in range(n)]
    for number, (expansion, out, stride) in enumerate(stages, 1):
        with net.scope(f"features.{number}"):
            hidden, h = into * expansion, x
            if expansion != 1:
                h = clipped(conv(net, h, into, hidden, (1, 1)))
            h = clipped(conv(net, h, hidden, hidden, (3, 3), group=hidden, strides=[stride] * 2, gain=2))
            h = conv(net, h, hidden, out, (1, 1), gain=2)
            x, into = net("Add", x, h) if stride == 1 and into == out else h, out
    last = scaled(1280)
    with net.scope("classifier"):
        x = net("Flatten", net("GlobalAveragePool", clipped(conv(net, x, into, last, (1, 1)))), axis=1)
        x = net("Gemm", x, net.weight(classes, last, fan=last), net.bias(classes), transB=1)
    return net.case(
        {"image": (TensorProto.FLOAT, image)}, {"logits": (x, (1, classes))}, lambda rng: {"image": noise(rng, *image)}
    )


def transformer(
    *, vocabulary: int = 512, width: int = 64, heads: int = 4, layers: int = 3, length: int = 16, seed: int = 0
) -> Case:
    """A transformer encoder on token ids [1, T], T symbolic: embeddings, attention, GELU; every norm by hand."""
    net = Net(seed)
    with net.scope("embeddings"):
        words = net("Gather", net.weight(vocabulary, width, fan=1), "ids")
        count = net("Gather", net("Shape", "ids"), net.constant(1, np.int64))
        positions = net("Slice", net.weight(1, 4 * length, width, fan=4), net.integers(0),
                        net("Unsqueeze", count, net.integers(0)), net.integers(1))  # fmt: skip
        x = layer_norm(net, net("Add", words, positions), (width,))
    for number in range(layers):
        with net.scope(f"layer.{number}"):
            x = layer_norm(net, net("Add", attention(net, x, width, heads), x), (width,))
            h = linear(net, gelu(net, linear(net, x, width, 4 * width)), 4 * width, width)
            x = layer_norm(net, net("Add", h, x), (width,))
    with net.scope("head"):
        logits = linear(net, x, width, vocabulary)
    return net.case(
        {"ids": (TensorProto.INT64, (1, "T"))},
        {"logits": (logits, (1, "T", vocabulary))},
        lambda rng: {"ids": rng.integers(0, vocabulary, (1, length))},
    )


SMALL: Mapping[str, Callable[[], Case]] = {
    "unet": lambda: unet(size=8, base=8, groups=4, heads=2),
    "dual_path_rnn": lambda: dual_path_rnn(samples=200, width=8, hidden=4, chunk=6, blocks=2),
    "speech_enhancer": lambda: speech_enhancer(frequencies=33, bands=17, channels=8, blocks=2, frames=2),
    "mobilenet_v2": lambda: mobilenet_v2(size=32, width=0.25, classes=10),
    "transformer": lambda: transformer(vocabulary=32, width=16, heads=2, layers=2, length=6),
}
"""Every model with all of its structure, in sizes that cost a test a few milliseconds."""


def quantized(case: Case, *, qdq: bool = True, per_channel: bool = False) -> Case:
    """What onnxruntime's static quantizer makes of `case`; QOperator unless `qdq`."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._feeds = iter(case.calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "quantized.onnx")
        source.write_bytes(case.model)
        form = QuantFormat.QDQ if qdq else QuantFormat.QOperator
        quantize_static(source, target, Reader(), quant_format=form, per_channel=per_channel)
        return replace(case, model=target.read_bytes())
