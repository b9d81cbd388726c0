"""Mutants that tests name, as "tests.support.mutants:LOSES_BIAS", and some that misbehave on any model."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace

import numpy as np
import onnx
from driftnet.selfcheck import mutant, mutated
from driftnet.selfcheck.mutant import MUTANTS
from driftnet.targets.interface import Answers, Options
from driftnet.targets.mnn import target as mnn
from driftnet.targets.mnn.target import MNN
from driftnet.targets.onnxruntime_quant.target import ONNXRUNTIME_QUANT

from tests.support.sandbox_faults import unwritten

preload = mutated.preload


def crash(results: Answers) -> Answers:
    os.kill(os.getpid(), signal.SIGSEGV)
    return results


LAYOUT = random.random()
"""Another one in each process that imports this: what a worker has from its template."""


def add_layout(results: Answers) -> Answers:
    return [{name: array + np.float32(1 + LAYOUT) for name, array in outputs.items()} for outputs in results]


def add_unwritten(results: Answers) -> Answers:
    """What glibc's perturbed memory lets a value that nobody wrote look like, and zero where it is not perturbed."""
    perturbed = set(unwritten(4096)[64:]) == {0x7F}
    return [{name: array + np.float32(perturbed) for name, array in outputs.items()} for outputs in results]


def hang(results: Answers) -> Answers:
    time.sleep(3600)
    return results


FOLDS_NORM_IGNORING_GROUPS = MUTANTS["folded-norm-ignoring-groups"].put_into(MNN)


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
SWAPS_PADS = MUTANTS["swapped-pads"].put_into(MNN)
BROADCASTS_ON_THE_WRONG_AXIS = MUTANTS["wrong-broadcast-axis"].put_into(MNN)
TRUNCATES_WEIGHTS = MUTANTS["weights-without-lowest-bit"].put_into(ONNXRUNTIME_QUANT)
SHIFTS_ZERO_POINT = MUTANTS["zero-point-off-by-one"].put_into(ONNXRUNTIME_QUANT)
LEAVES_AN_ELEMENT_UNINITIALIZED = MUTANTS["uninitialized-element"].put_into(MNN)
KEEPS_STATE = MUTANTS["kept-state"].put_into(MNN)
DEPENDS_ON_LAYOUT = replace(mutant.executing(MNN, add_layout), name="depends-on-layout")
CRASHES = replace(mutant.executing(MNN, crash), name="crashes")
READS_UNWRITTEN = replace(mutant.executing(MNN, add_unwritten), name="reads-unwritten")
HANGS = replace(mutant.executing(MNN, hang), name="hangs")
