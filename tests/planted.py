"""Planted targets that tests name, as "tests.planted:LOSES_BIAS", and two that end or hold up their worker."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

from harness.planted import converter, plant, quantiser, rewrites, runtime
from harness.planted.plant import Outputs
from harness.targets.mnn import MNN

preload = plant.preload


def crash(results: Outputs) -> Outputs:
    os.kill(os.getpid(), signal.SIGSEGV)
    return results


def hang(results: Outputs) -> Outputs:
    time.sleep(3600)
    return results


FOLDS_NORM_IGNORING_GROUPS = converter.folded_norm_ignoring_groups.mnn
LOSES_BIAS = converter.lost_bias.mnn
SWAPS_PADS = converter.swapped_pads.mnn
BROADCASTS_ON_THE_WRONG_AXIS = rewrites.wrong_broadcast_axis.mnn
TRUNCATES_WEIGHTS = quantiser.weights_without_lowest_bit.onnxruntime_quant
SHIFTS_ZERO_POINT = quantiser.zero_point_off_by_one.onnxruntime_quant
LEAVES_AN_ELEMENT_UNINITIALISED = runtime.uninitialised_element.mnn
KEEPS_STATE = runtime.kept_state.mnn
CRASHES = replace(plant.executing(MNN, crash), name="crashes")
HANGS = replace(plant.executing(MNN, hang), name="hangs")
