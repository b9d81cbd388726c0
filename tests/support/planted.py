"""Planted targets that tests name, as "tests.support.planted:LOSES_BIAS", and some that misbehave on any model."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace

import numpy as np
import onnx
from driftnet.selfcheck import converter, mutant, quantizer, rewrites, runtime
from driftnet.selfcheck.mutant import Outputs
from driftnet.targets.interface import Options
from driftnet.targets.mnn import target as mnn
from driftnet.targets.mnn.target import MNN

preload = mutant.preload


def crash(results: Outputs) -> Outputs:
    os.kill(os.getpid(), signal.SIGSEGV)
    return results


LAYOUT = random.random()
"""Another one in each process that imports this: what a worker has from its template."""


def add_layout(results: Outputs) -> Outputs:
    return [{name: array + np.float32(1 + LAYOUT) for name, array in outputs.items()} for outputs in results]


def hang(results: Outputs) -> Outputs:
    time.sleep(3600)
    return results


FOLDS_NORM_IGNORING_GROUPS = converter.folded_norm_ignoring_groups.mnn


def convert_without_bias(model: str, folder: str, options: Options) -> str:
    """A plain function, so that its findings get a script."""
    proto = onnx.load(model)
    for node in proto.graph.node:
        if node.op_type == "Conv":
            del node.input[2:]
    damaged = os.path.join(folder, "damaged.onnx")
    onnx.save(proto, damaged)
    return mnn.convert(damaged, folder, options)


LOSES_BIAS = replace(MNN, name="lost-bias", convert=convert_without_bias)
SWAPS_PADS = converter.swapped_pads.mnn
BROADCASTS_ON_THE_WRONG_AXIS = rewrites.wrong_broadcast_axis.mnn
TRUNCATES_WEIGHTS = quantizer.weights_without_lowest_bit.onnxruntime_quant
SHIFTS_ZERO_POINT = quantizer.zero_point_off_by_one.onnxruntime_quant
LEAVES_AN_ELEMENT_UNINITIALISED = runtime.uninitialized_element.mnn
KEEPS_STATE = runtime.kept_state.mnn
DEPENDS_ON_LAYOUT = replace(mutant.executing(MNN, add_layout), name="depends-on-layout")
CRASHES = replace(mutant.executing(MNN, crash), name="crashes")
HANGS = replace(mutant.executing(MNN, hang), name="hangs")
