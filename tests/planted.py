"""Targets with a planted bug: each wraps a real one and damages its model, its artifact or its result.

They go through the public interface, so whatever catches them would catch the same bug in a toolchain:
"tests.planted:LOSES_BIAS" is a target word like "mnn".
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, numpy_helper

from harness.targets import mnn, onnxruntime_quant
from harness.targets.mnn import MNN
from harness.targets.onnxruntime_quant import ONNXRUNTIME_QUANT
from harness.wire import Feed, Options, Target

Outputs = list[dict[str, np.ndarray]]
WEIGHTED = ("Conv", "ConvTranspose", "Gemm")


def preload() -> None:
    mnn.preload()
    onnxruntime_quant.preload()


def converting(name: str, damage: Callable[[ModelProto], None]) -> Target:
    """MNN whose converter sees the model after `damage`."""

    def convert(model: str, folder: str, options: Options) -> str:
        proto = onnx.load(model)
        damage(proto)
        damaged = os.path.join(folder, "damaged.onnx")
        onnx.save(proto, damaged)
        return MNN.convert(damaged, folder, options)

    return replace(MNN, name=name, convert=convert)


def quantizing(name: str, damage: Callable[[ModelProto], None]) -> Target:
    """onnxruntime's quantiser with `damage` done to the model that it makes."""

    def quantize(artifact: str, calibration: Sequence[Feed], folder: str, options: Options) -> str:
        path = ONNXRUNTIME_QUANT.quantize(artifact, calibration, folder, options)
        quantized = onnx.load(path)
        damage(quantized)
        onnx.save(quantized, path)
        return path

    return replace(ONNXRUNTIME_QUANT, name=name, quantize=quantize)


def executing(name: str, damage: Callable[[Outputs], Outputs]) -> Target:
    """MNN with `damage` done to the results of all feeds."""

    def execute(artifact: str, feeds: Sequence[Feed], outputs: Sequence[str], options: Options) -> Outputs:
        return damage(MNN.execute(artifact, feeds, outputs, options))

    return replace(MNN, name=name, execute=execute)


def fold_norm_ignoring_groups(model: ModelProto) -> None:
    """Fold BatchNormalization into the ConvTranspose before it, right for one group only."""
    weights, graph = _weights(model), model.graph
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        before = next((n for n in graph.node if norm.input[0] in n.output and n.op_type == "ConvTranspose"), None)
        if before is None or not {before.input[1], *before.input[2:], *norm.input[1:]} <= set(weights):
            continue
        scale, bias, mean, var = (weights[name] for name in norm.input[1:])
        epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
        factor = (scale / np.sqrt(var + epsilon)).astype(np.float32)
        w = weights[before.input[1]]
        shape = (1, -1, *[1] * (w.ndim - 2))
        given = weights[before.input[2]] if len(before.input) > 2 else np.float32(0)
        _replace_input(model, before, 1, w * factor[: w.shape[1]].reshape(shape))
        _replace_input(model, before, 2, (given - mean) * factor + bias)
        before.output[0] = norm.output[0]
        graph.node.remove(norm)


def lose_bias(model: ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type in WEIGHTED and len(node.input) > 2:
            del node.input[2:]


def swap_pads(model: ModelProto) -> None:
    """Pad at the end what is to be padded at the beginning."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "pads":
                half = len(attribute.ints) // 2
                attribute.ints[:] = [*attribute.ints[half:], *attribute.ints[:half]]


def broadcast_on_the_wrong_axis(model: ModelProto) -> None:
    """Take a constant [C, 1, 1] of Add or Mul for [1, 1, C]."""
    weights = _weights(model)
    for node in model.graph.node:
        constant = weights.get(node.input[1]) if node.op_type in ("Add", "Mul") else None
        if constant is not None and constant.ndim >= 3 and constant.shape[-2:] == (1, 1):
            _replace_input(model, node, 1, np.moveaxis(constant, -3, -1))


def truncate_weights(model: ModelProto) -> None:
    """Cut the lowest bit off the codes of weights."""
    for tensor in model.graph.initializer:
        codes = numpy_helper.to_array(tensor)
        if tensor.name.endswith("_quantized") and codes.itemsize == 1:
            tensor.CopyFrom(numpy_helper.from_array(codes // 2 * 2, tensor.name))


def shift_zero_point(model: ModelProto) -> None:
    """Dequantise activations with a zero point that is one off."""
    weights = _weights(model)
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] not in weights and len(node.input) > 2:
            zero_point = weights[node.input[2]]
            _replace_input(model, node, 2, np.where(zero_point < 127, zero_point + 1, 126).astype(zero_point.dtype))


def leave_an_element_uninitialised(results: Outputs) -> Outputs:
    rng = np.random.default_rng()
    for x in [x for result in results for x in result.values() if x.size]:
        x.reshape(-1)[-1] = rng.integers(1, 100)
    return results


def keep_state(results: Outputs) -> Outputs:
    """Give the first feed's result again wherever it fits."""
    return [
        {name: results[0][name] if results[0][name].shape == x.shape else x for name, x in result.items()}
        for result in results
    ]


def crash(results: Outputs) -> Outputs:
    os.kill(os.getpid(), signal.SIGSEGV)
    return results


def hang(results: Outputs) -> Outputs:
    time.sleep(3600)
    return results


def _weights(model: ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def _replace_input(model: ModelProto, node: NodeProto, position: int, value: np.ndarray) -> None:
    """Feed `node` from an initializer of its own."""
    name = f"{node.output[0]}_planted_{position}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    inputs = [*node.input, *[""] * (position + 1 - len(node.input))]
    inputs[position] = name
    node.input[:] = inputs


FOLDS_NORM_IGNORING_GROUPS = converting("folds-norm-ignoring-groups", fold_norm_ignoring_groups)
LOSES_BIAS = converting("loses-bias", lose_bias)
SWAPS_PADS = converting("swaps-pads", swap_pads)
BROADCASTS_ON_THE_WRONG_AXIS = converting("broadcasts-on-the-wrong-axis", broadcast_on_the_wrong_axis)
TRUNCATES_WEIGHTS = quantizing("truncates-weights", truncate_weights)
SHIFTS_ZERO_POINT = quantizing("shifts-zero-point", shift_zero_point)
LEAVES_AN_ELEMENT_UNINITIALISED = executing("leaves-an-element-uninitialised", leave_an_element_uninitialised)
KEEPS_STATE = executing("keeps-state", keep_state)
CRASHES = executing("crashes", crash)
HANGS = executing("hangs", hang)
