"""Bugs whose triggers are known, in a system that has none: onnxruntime executing what it is given.

A test that learns a trigger knows what it should be. Named as "tests.support.bugs:NEEDS_STRIDES".
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from driftnet.targets.interface import Feed, Options, StageError, Target
from driftnet.targets.onnxruntime_quant import target as onnxruntime_quant
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT

preload = onnxruntime_quant.preload
Bug = Callable[[onnx.ModelProto], None]


def found(model: onnx.ModelProto, *operators: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in operators]


def refuse_pools_without_strides(model: onnx.ModelProto) -> None:
    for node in found(model, "MaxPool", "AveragePool"):
        if all(attribute.name != "strides" for attribute in node.attribute):
            raise StageError("strides are none")


def negate_long_maxima(model: onnx.ModelProto) -> None:
    """Wrong values: ReduceMax of more than one axis gives the least."""
    for node in found(model, "ReduceMax"):
        if any(attribute.name == "axes" and len(attribute.ints) > 1 for attribute in node.attribute):
            node.op_type = "ReduceMin"


def crash_at_constants(model: onnx.ModelProto) -> None:
    """A crash where the second operand of Sub or Div is an initializer."""
    constants = {tensor.name for tensor in model.graph.initializer}
    if any(node.input[1] in constants for node in found(model, "Sub", "Div")):
        ctypes.string_at(0)


def refuse_hidden_transposes(model: onnx.ModelProto) -> None:
    """A Transpose before a MatMul, unless it is a graph output too."""
    outputs = {value.name for value in model.graph.output}
    for node in found(model, "MatMul"):
        for maker in found(model, "Transpose"):
            if maker.output[0] in node.input and maker.output[0] not in outputs:
                raise StageError("a Transpose was fused")


def refuse_tied_weights(model: onnx.ModelProto) -> None:
    """A MatMul of what another one makes, by the same numbers."""
    weights = {t.name: onnx.numpy_helper.to_array(t).tobytes() for t in model.graph.initializer}
    for node in found(model, "MatMul"):
        for maker in found(model, "MatMul"):
            tied = weights.get(node.input[1], b"") == weights.get(maker.input[1])
            if tied and maker.output[0] == node.input[0]:
                raise StageError("weights are used twice")


def refuse_outputs_that_are_read(model: onnx.ModelProto) -> None:
    """An output that Neg, Abs or Exp reads too; and Ceil anywhere."""
    outputs = {value.name for value in model.graph.output}
    if any(node.input[0] in outputs for node in found(model, "Neg", "Abs", "Exp")) or found(model, "Ceil"):
        raise StageError("an output is gone")


def having(name: str, bug: Bug) -> Target:
    def convert(model: str, folder: str, options: Options) -> str:
        proto, damaged = onnx.load(model), os.path.join(folder, "damaged.onnx")
        bug(proto)
        onnx.save(proto, damaged)
        return ONNXRUNTIME_QUANT.convert(damaged, folder, options)

    return replace(ONNXRUNTIME_QUANT, name=name, convert=convert)


def refusing_twice(
    artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options
) -> list[dict[str, np.ndarray]]:
    """The same words of Ceil, and of Abs unless an optimizer is switched off."""
    fused = () if "ReshapeFusion" in options["disabled_optimizers"] else ("Abs",)
    if found(onnx.load(artifact), "Ceil", *fused):
        raise StageError("the type of an input of this operator is not valid here")
    return ONNXRUNTIME_QUANT.execute(artifact, feeds, outputs, options)


NEEDS_STRIDES = having("needs-strides", refuse_pools_without_strides)
NEGATES_LONG_MAXIMA = having("negates-long-maxima", negate_long_maxima)
CRASHES_AT_CONSTANTS = having("crashes-at-constants", crash_at_constants)
FUSES_TRANSPOSES = having("fuses-transposes", refuse_hidden_transposes)
REFUSES_TIED_WEIGHTS = having("refuses-tied-weights", refuse_tied_weights)
LOSES_OUTPUTS = having("loses-outputs", refuse_outputs_that_are_read)
REFUSES_TWICE = replace(ONNXRUNTIME_QUANT, name="refuses-twice", execute=refusing_twice)
